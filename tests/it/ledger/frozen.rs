//! The migrations of the tables never change: whoever has run one does not run it again.

use std::path::Path;

use sha2::{Digest as _, Sha256};

/// Each file and the SHA-256 of its text. A new file adds a line; no line changes.
const FROZEN: &str = "
postgres/tables/0001_fences.sql a0e994e478c224a90d2ffc1360c20c15675d3fa00db0532a47f6db5a6a4f182d
postgres/tables/0002_data.sql 08af5a86918e01090f8890bb185745c51423b9b664203c35f6141f4229ad1e58
postgres/tables/0003_line.sql 12f22a785d29af56f6a04686bed621a7963bce5040eddcb0e75535bc78c38f33
postgres/tables/0004_operators.sql 4f43808e2117b2324f014c29ffdcb1f0323730b264924d808c53ea1f3bcfc38c
postgres/tables/0005_feed.sql f7c872bb865591307879aef76bb472906b72528618899b96eddbd3556f259cfb
postgres/tables/0006_blobs.sql 501fd02db9dc0bcf4e18d8f6b1effc5c639c26306c9ed83da40782260350def6
postgres/tables/0007_upstreams.sql 804f3e6993213b8dc19a084a1b4eca5935b627eaf9f43467b65328b74d476c25
postgres/tables/0008_access.sql b3e00ac8f647f134262e7e53891a8b065a8493654202b0cc8db0b1d51c7da4f0
postgres/tables/0009_audit_tree.sql 9652a6f2bbdb9508cbedae5f26f4d0ec9c9fb771f00a1f96e370ded086ba1f1d
postgres/tables/0010_stocks.sql 94ce4f03cc5d829ab243808180df3bf79ccf678cb3917a761b6432621e8bf3f8
postgres/tables/0011_buckets.sql b28bb74e7baf669d63fa134f6d8929e21f05dc3f28a41a283bb205ade903b2d2
postgres/tables/0012_uploads.sql 143bee9163e60dd0c32ae3fa746e662cdf62813bf6a4b6abb1a53dfb5984583e
postgres/tables/0013_frozen.sql c2648de97ca86ba71c5d721c53892121d3cc860c206f97290e018fd4e87b8cd5
postgres/tables/0014_place.sql 55f5dd09863315ece0e169105235637b18f9d2787ce2604cc865403560f3517d
postgres/tables/0015_numbers.sql 03f28b6155b5a2f1db7df4f59ede1c7152dd985d63a36f7ee9bae970faad5247
postgres/tables/0016_credentials.sql ae7f2499c27f272ae2cad6dc0bbc74543ee1090870229803dd9ae62271cfa5bc
postgres/tables/0017_own_time.sql 16ba0483f91c83f60c99cf3afe6f7d97e11edee47545de50a9d2bf236fe7c680
postgres/tables/0018_agreed_before.sql 8452bca941c99ebb5c15589ee5427dd3c1943283d17dfc10a89e9f8194f37dbe
postgres/tables/0019_root.sql 40efaa12ed98174d85ee68546220ced381e0fe9c9f315d56a722baf9e14c0c05
postgres/tables/0020_let_go.sql 85334ab96450db53d7fd7854dadd097800da5b802eb7af73de0495be434ea2c9
postgres/tables/0021_ends.sql ce941a31c2f5950cea3ef4b22b474e0131f802acc8b5b0f6bef046fbc104c9d6
sqlite/0001_tables.sql 4f527dd8b6bd3b7e1478bfc9e38fe21b673649ae5eb85abcbdbe5c186d3c9809
sqlite/0006_operators.sql 8b2d7617750e31adff39f72e7a9a08331e4c0192c0b3008539a240e75ae92033
sqlite/0009_events.sql 53cda38ece9d959342fc29e2eb3cebcc3b286ca9670e11b4b7888af9be36f474
sqlite/0010_blobs.sql 6131d1bdd822112d184233d77bd88116bb39afe52e42a2b34bf7c9e309fe30e9
sqlite/0011_upstreams.sql b6402d6eeb11cca0fd44ee3977740297dfe3015c41c00eb04a724c1b6f8e5fa9
sqlite/0012_access.sql d0354454626ec7c3b42cf0285186bd574fdbfe81677ddf3ad0070717b3656124
sqlite/0013_audit_tree.sql 5be84927198cc736e789025cc74860c7df04c07921dfc7b9a909e52d86aff693
sqlite/0014_stocks.sql 6c0ec4e6e427ec5c04a7981e4bbdb30ece72b640eebf91bcfb113b70d8ca03e8
sqlite/0015_buckets.sql dbce15c073a194b00653a8a4f769849a661315446d373dff99a18b904c043747
sqlite/0016_uploads.sql 97419421607e06de4abb74fd978673c1aac77e6cf39d14395ea6e399ecefacf9
sqlite/0017_frozen.sql ef6c11f92ddda57093cdb6c4e3c13a9a5e9683f2f0fe8128873aad0fdb56128e
sqlite/0018_credentials.sql 6ef41331fb054b637d7fd72645c79cdd75e48b28278f2437be5f91025e071689
sqlite/0019_own_time.sql 44e7a333a56fe1665bd59d1f874e6142d666e3f3ecd236891100ce91852d55da
sqlite/0020_root.sql e0e6e207305d4acbdb827385e6918c3c367974dfc8f578e3f3478c9d6f2ca5c4
sqlite/0021_let_go.sql 5098da98f7e101a5132ca04db9d8cfdf1666ae43dd29600c88bc5dbe1d11d2b2
sqlite/0022_ends.sql 8130ee87c66360b6a2df86c2b0c259ed107e64ff8f3f70b9838ec6c5b209199b
";

#[test]
fn migrations_are_as_they_were() {
    let schema = Path::new(env!("CARGO_MANIFEST_DIR")).join("../schema");
    let mut found = Vec::new();
    for folder in ["postgres/tables", "sqlite"] {
        for entry in std::fs::read_dir(schema.join(folder)).expect("the folder is there") {
            let entry = entry.expect("an entry");
            let name = entry.file_name().into_string().expect("a name");
            let bytes = std::fs::read(entry.path()).expect("it can be read");
            let digest: String =
                Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
            found.push(format!("{folder}/{name} {digest}"));
        }
    }
    found.sort_unstable();
    let frozen: Vec<_> = FROZEN.trim().lines().map(str::trim).collect();
    assert_eq!(found, frozen, "a change of the tables is a new file: see schema/README.md");
}

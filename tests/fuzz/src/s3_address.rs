//! Where an S3 request goes: a line with `Host`, then a path as it is sent.

use fencegate_s3::address::{Address, check_key};
use fencegate_s3::bucket::{BucketName, Depth};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::first_line;

const DOMAIN: &str = "s3.test";

/// A path is taken as what it is however it is encoded, by path or by host; and its key is one object, of this bucket,
/// which leads back to it.
pub fn s3_address(input: &[u8]) {
    let (host, path) = first_line(input);
    let (Ok(host), Ok(path)) = (std::str::from_utf8(host), std::str::from_utf8(path)) else {
        return;
    };
    let Ok(address) = Address::read(Some(host), path, Some(DOMAIN)) else { return };
    let Some(bucket) = &address.bucket else {
        assert!(path == "/" && address.key.is_none());
        return;
    };
    assert!(!bucket.as_str().contains([':', '/']));
    assert_eq!(BucketName::new(bucket.as_str()).as_ref(), Ok(bucket));
    let Some(key) = &address.key else { return };
    check_key(key).unwrap();
    let encoded = utf8_percent_encode(key, NON_ALPHANUMERIC);
    let by_path = Address::read(None, &format!("/{bucket}/{encoded}"), Some(DOMAIN)).unwrap();
    let by_host =
        Address::read(Some(&format!("{bucket}.{DOMAIN}:9")), &format!("/{encoded}"), Some(DOMAIN));
    assert_eq!((&by_path, &by_host.unwrap()), (&address, &address));
    for depth in 0..=Depth::MAX {
        let depth = Depth::new(depth).unwrap();
        let Ok((resource, inner)) = depth.object_of(bucket, key) else { continue };
        assert_eq!(BucketName::of_resource(&resource).as_ref(), Some(bucket));
        assert_eq!(depth.key_of(bucket, &resource, &inner).as_ref(), Some(key));
    }
}

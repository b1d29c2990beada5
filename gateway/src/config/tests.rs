//! Tests of the settings. None reads the environment or the working directory of this process.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use clap::{Args as _, FromArgMatches as _};

use super::*;

/// A file that goes when the test ends.
struct File(PathBuf);

impl File {
    fn new(text: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("fencegate-config-{}-{count}.toml", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, text).unwrap();
        Self(path)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn load(file: &str, env: &[(&str, &str)], flags: &Flags) -> Result<Config, String> {
    let file = File::new(file);
    let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let path = file.0.display().to_string();
    Config::load_from(Some(&file.0), env, flags)
        .map_err(|error| error.to_string().replace(&path, "FILE"))
}

/// The flags of a command line.
pub(super) fn flags(line: &str) -> Flags {
    let command = Flags::augment_args(clap::Command::new("fencegate").no_binary_name(true));
    Flags::from_arg_matches(&command.get_matches_from(line.split_whitespace())).unwrap()
}

fn read(file: &str) -> Result<Config, String> {
    load(file, &[], &Flags::default())
}

fn with_env(env: &[(&str, &str)]) -> Result<Config, String> {
    load("", env, &Flags::default())
}

fn refusal(file: &str) -> String {
    read(file).expect_err("it must be refused")
}

const POSTGRES: &str = "postgres://gw:hush@db:5432/fence?sslmode=verify-full";

/// Every setting set to something that is not its default.
fn full() -> Config {
    Config {
        blobs: Some(BlobsUrl::parse("s3://bucket/prefix").unwrap()),
        postgres: Some(PostgresUrl::new(POSTGRES).unwrap()),
        etcd: vec!["a:2379".into(), "b:2379".into()],
        etcd_user: Some("gw".into()),
        etcd_password: Some(serde_json::from_str("\"hush\"").unwrap()),
        etcd_ca_file: Some("ca.pem".into()),
        etcd_cert_file: Some("cert.pem".into()),
        etcd_key_file: Some("key.pem".into()),
        tls_cert_file: Some("own.pem".into()),
        tls_key_file: Some("own-key.pem".into()),
        tls_client_ca_file: Some("callers.pem".into()),
        tls_client_auth: ClientAuth::Required,
        tls_client_crl_file: Some("revoked.pem".into()),
        server_names: vec![HostName::parse("gate.example.com").unwrap()],
        ..Config::default()
    }
}

/// What comes out if nothing is given.
fn untouched() -> Config {
    let socket = std::path::absolute("./fencegate-data/admin.sock").unwrap();
    Config { admin_listen: vec![AdminAddress::Unix(socket)], ..Config::default() }
}

#[test]
fn nothing_given_means_the_defaults() {
    let config = read("").unwrap();
    assert_eq!(config, untouched());
    let without_file = Config::load_from(None, std::iter::empty(), &Flags::default());
    assert_eq!(without_file, Ok(untouched()));
}

#[test]
fn flags_win_over_the_environment_and_that_over_the_file() {
    let file = "log = \"warn\"\nbatch_max = 8\nlisten = \"127.0.0.1:1\"\nkeys_kept = \"3d\"";
    let env = [
        ("FENCEGATE_BATCH_MAX", "9"),
        ("FENCEGATE_LISTEN", "127.0.0.1:2"),
        ("FENCEGATE_METRICS_PREFIX", "job:, cron:"),
        ("FENCEGATE_CONFIG", "elsewhere"),
        ("OTHER", "ignored"),
        ("FENCEGATE_SERVICE_HOST", "10.0.0.1"),
        ("FENCEGATE_PORT", "tcp://10.0.0.1:8080"),
        ("FENCEGATE_PORT_8080_TCP_ADDR", "10.0.0.1"),
    ];
    let config = load(file, &env, &flags("--listen 127.0.0.1:3 --log-format json")).unwrap();
    assert_eq!(config.log, "warn");
    assert_eq!(config.batch_max, 9);
    assert_eq!(config.listen.port(), 3);
    assert_eq!(config.keys_kept, Duration::from_secs(3 * 24 * 60 * 60));
    assert_eq!(config.metrics_prefix, ["job:", "cron:"]);
    assert_eq!(config.log_format, LogFormat::Json);
}

#[test]
fn lists_are_split_and_repeated() {
    let line = "--postgres postgres://localhost/x --etcd [::1]:1,[::1]:2 --metrics-prefix job: --metrics-prefix a,b";
    let config = load("", &[], &flags(line)).unwrap();
    assert_eq!(config.etcd, ["[::1]:1", "[::1]:2"]);
    assert_eq!(config.metrics_prefix, ["job:", "a,b"]);
}

#[test]
fn flags_are_refused_before_the_settings_are_read() {
    let command = Flags::augment_args(clap::Command::new("fencegate").no_binary_name(true));
    for given in [["--data-dir", ""], ["--inline-bytes-max", "many"], ["--refence", "maybe"]] {
        assert!(command.clone().try_get_matches_from(given).is_err(), "{given:?}");
    }
}

#[test]
fn text_that_looks_like_a_number_stays_text() {
    let env = [
        ("FENCEGATE_POSTGRES", POSTGRES),
        ("FENCEGATE_ETCD", "a:2379,b:2379"),
        ("FENCEGATE_INSECURE_BACKENDS", "true"),
        ("FENCEGATE_ETCD_USER", "7"),
        ("FENCEGATE_ETCD_PASSWORD", "0123"),
    ];
    let config = with_env(&env).unwrap();
    assert!(config.is_shared());
    assert_eq!(config.etcd, ["a:2379", "b:2379"]);
    assert_eq!(config.etcd_password.unwrap().reveal(), "0123");
}

#[test]
fn what_is_no_setting_is_refused_wherever_it_stands() {
    assert_eq!(refusal("batch-max = 3"), "FILE: batch-max is not a setting; is batch_max meant?");
    assert_eq!(
        refusal("nonsense = 3"),
        "FILE: nonsense is not a setting; docs/config.md lists all"
    );
    let env = [("FENCEGATE_LISTN", "127.0.0.1:2")];
    let error = with_env(&env).unwrap_err();
    let meant =
        "FENCEGATE_LISTN in the environment is not a setting; did you mean FENCEGATE_LISTEN?";
    assert_eq!(error, meant);
}

#[test]
fn a_variable_that_is_none_of_ours_is_passed_over_with_a_warning() {
    let ours = ["FENCEGATE_CONFIG", "FENCEGATE_LISTEN", "FENCEGATE_PORT", "FENCEGATE_SERVICE_HOST"];
    assert_eq!(names::strangers(ours.into_iter()), Vec::<String>::new());
    for stranger in ["BIN", "URL", "LOG_LEVEL", "TOKEN", "HOME", "IMAGE_TAG", "ETCD_ENDPOINTS", ""]
    {
        let variable = format!("FENCEGATE_{stranger}");
        let env = [(variable.as_str(), "x")];
        assert_eq!(with_env(&env), Ok(untouched()), "{variable}");
        let [warning] = &names::strangers([variable.as_str()].into_iter())[..] else {
            panic!("one warning of {variable}");
        };
        assert!(warning.starts_with(&format!("{variable} in the environment is not")), "{warning}");
    }
    for (slip, meant) in [
        ("POSTGRESS", "POSTGRES"),
        ("POSTGERS", "POSTGRES"),
        ("DATADIR", "DATA_DIR"),
        ("Listen", "LISTEN"),
        ("UPSTREAM", "UPSTREAMS"),
        ("CORS_ORIGINS", "CORS_ORIGIN"),
        ("REQUEST_TIMEOUTS", "REQUEST_TIMEOUT"),
        ("ETCDUSER", "ETCD_USER"),
        ("LOGS", "LOG"),
    ] {
        let error = with_env(&[(&format!("FENCEGATE_{slip}"), "x")]);
        let error = error.expect_err(slip);
        assert!(error.ends_with(&format!("did you mean FENCEGATE_{meant}?")), "{error}");
    }
}

#[test]
fn only_this_machine_is_listened_to_unless_somebody_says_so() {
    for address in ["0.0.0.0:8080", "[::]:8080", "10.0.0.5:1", "[::ffff:10.0.0.5]:1"] {
        let error = refusal(&format!("listen = \"{address}\""));
        assert!(error.starts_with("listen (from FILE): "), "{error}");
        assert!(error.contains("--open-to-network") && error.contains(address), "{error}");
        let open = read(&format!("listen = \"{address}\"\nopen_to_network = true"));
        let open = open.unwrap();
        assert!(
            open.warnings()[0].contains("can take and break any lock"),
            "{:?}",
            open.warnings()
        );
    }
    for address in ["127.0.0.1:0", "127.1.2.3:8080", "[::1]:8080", "[::ffff:127.0.0.1]:8080"] {
        let config = read(&format!("listen = \"{address}\"")).unwrap();
        assert_eq!(config.warnings(), Vec::<String>::new(), "{address}");
    }
    // With TLS, rules of access are looked for in the ledger.
    let proxied = "listen = \"0.0.0.0:1\"\ntls = \"proxy\"\ntrusted_proxies = [\"10.0.0.7\"]";
    let own = "listen = \"0.0.0.0:1\"\ntls_cert_file = \"a.pem\"\ntls_key_file = \"b.pem\"";
    for secured in [proxied, own] {
        let config = read(secured).unwrap();
        assert!(config.needs_rules() && !config.requires_lock_id(), "{secured}");
        assert_eq!(config.warnings(), Vec::<String>::new());
    }
    assert!(refusal("tls = \"proxy\"").contains("trusted_proxies"));
    let told = refusal("audit_witness = [\"https://ann:hunter2@witness.example.org\"]");
    assert!(told.contains("a user or a password") && !told.contains("hunter2"), "{told}");
    assert!(
        refusal(&format!("{own}\ntls = \"proxy\"\ntrusted_proxies = [\"10.0.0.7\"]"))
            .contains("others")
    );
    let door = "admin_listen = [\"127.0.0.1:1\", \"unix:/run/a.sock\", \"10.0.0.5:1\"]";
    let error = refusal(door);
    assert!(
        error.starts_with("admin_listen (from FILE): ") && error.contains("10.0.0.5:1"),
        "{error}"
    );
    let open = read(&format!("{door}\nopen_to_network = true")).unwrap();
    assert!(open.warnings()[0].contains("whoever reaches 10.0.0.5:1 can"), "{:?}", open.warnings());
    assert!(open.requires_lock_id());
    let env = [("FENCEGATE_ADMIN_LISTEN", "127.0.0.1:1, unix:/run/a.sock")];
    let local = with_env(&env).unwrap();
    assert!(local.warnings().is_empty() && !local.requires_lock_id());
    let env = [("FENCEGATE_LISTEN", "0.0.0.0:1"), ("FENCEGATE_OPEN_TO_NETWORK", "true")];
    assert!(with_env(&env).is_ok());
    let env = [("FENCEGATE_OPEN_TO_NETWORK", "yes")];
    assert!(with_env(&env).unwrap_err().contains("expected a boolean"));
    let line =
        "--listen 0.0.0.0:1 --open-to-network --server-names gate.example.com,10.0.0.5,fd00::1";
    let config = load("", &[], &flags(line)).unwrap();
    assert_eq!(read(&config.show().unwrap()), Ok(config));
}

#[test]
fn pages_of_everywhere_are_not_let_in() {
    let error = refusal("cors_origin = [\"https://ops.example.com\", \"*\"]");
    assert!(error.starts_with("cors_origin (from FILE): * would let every page"), "{error}");
    for bad in ["", "gate.example.com:8080", "http://gate", "a b", "*", "*.example.com", "[::1"] {
        let error = refusal(&format!("server_names = [\"{bad}\"]"));
        assert!(error.contains("is not the name or address of a host"), "{error}");
    }
}

#[test]
fn what_leaves_the_machine_is_verified_unless_somebody_says_otherwise() {
    let with = |postgres: &str, etcd: &str, more: &str| {
        let file = format!(
            "postgres = \"postgres://{postgres}\"\netcd = [\"127.0.0.1:1\", \"{etcd}\"]\n{more}"
        );
        read(&file)
    };
    let (near, far) = ("127.0.0.1:2379", "etcd-1:2379");
    for postgres in ["u@db/x", "u@10.0.0.5/x?sslmode=require", "u@db/x?sslmode=verify-ca"] {
        let error = with(postgres, near, "").unwrap_err();
        assert!(
            error.starts_with("postgres (from FILE): ") && error.contains("verify-full"),
            "{error}"
        );
        assert!(error.contains("insecure_backends"), "{error}");
        let allowed = with(postgres, near, "insecure_backends = true").unwrap();
        assert!(allowed.warnings()[0].contains("sslmode=verify-full"), "{:?}", allowed.warnings());
        let shown = allowed.show().unwrap();
        assert!(shown.contains("insecure_backends = true"), "{shown}");
    }
    for postgres in [
        "u@db/x?sslmode=verify-full",
        "u@localhost/x",
        "u@[::1]/x",
        "u:p@[::1]:5432/x",
        "u@127.0.0.1/x",
        "u@x/y?host=/run",
    ] {
        let config = with(postgres, near, "").unwrap_or_else(|error| panic!("{postgres}: {error}"));
        assert_eq!(config.warnings(), Vec::<String>::new(), "{postgres}");
    }
    for etcd in [far, "http://etcd-1:2379", "10.0.0.5:2379", "[fd00::1]:2379"] {
        let error = with("u@localhost/x", etcd, "").unwrap_err();
        assert!(error.starts_with("etcd (from FILE): ") && error.contains(etcd), "{error}");
        assert!(with("u@localhost/x", etcd, "insecure_backends = true").is_ok(), "{etcd}");
    }
    assert!(with("u@localhost/x", "http://[::1]:2379", "").is_ok());
    for (host, is_far) in [("crm.internal", true), ("10.0.0.5:80", true), ("[::1]:80", false)] {
        let front = |scheme: &str| {
            let table = format!(
                "[[upstreams]]\nname = \"crm\"\nurl = \"{scheme}://{host}\"\nresource = \"/{{resource}}\"\n\
                 resource_form = \"digits\"\nguarantee = \"drained\"\n"
            );
            with("u@localhost/x", near, &table).err()
        };
        let error = front("http");
        assert_eq!(error.is_some_and(|it| it.starts_with("upstreams (from FILE): ")), is_far);
        assert_eq!(front("https"), None);
    }
    let ca = File::new("");
    let tls = format!("etcd_ca_file = {:?}", ca.0);
    assert!(with("u@localhost/x", far, &tls).is_ok());
}

#[test]
fn a_refusal_names_the_setting_its_source_and_the_range() {
    let env = [("FENCEGATE_BATCH_MAX", "257")];
    assert_eq!(
        with_env(&env),
        Err("batch_max (from FENCEGATE_BATCH_MAX): 257 is not from 1 to 256".into())
    );
    assert_eq!(
        load("", &[], &flags("--inline-bytes-max 2000000")),
        Err("inline_bytes_max (from --inline-bytes-max): 2000000 is not from 1 to 1048576".into())
    );
    assert_eq!(
        refusal("request_timeout = \"2m\""),
        "request_timeout (from FILE): 2m is not from 100ms to 1m"
    );
    assert_eq!(
        refusal("request_timeout = \"fast\""),
        "request_timeout (from FILE): \"fast\" is not a duration such as 500ms, 30s or 5m"
    );
}

#[test]
fn values_of_a_wrong_form_are_refused() {
    let cases = [
        (
            "listen = \"localhost\"",
            "listen (from FILE): \"localhost\" is not an IP address and port",
        ),
        ("queue_max = \"many\"", "queue_max (from FILE): found string"),
        ("queue_max = -1", "queue_max (from FILE): "),
        ("etcd = \"a:1\"", "etcd (from FILE): found string"),
        ("etcd = [\"a:1\", 2]", "etcd[1] (from FILE): found integer `2`, expected a string"),
        ("log = 2027-02-01", "log (from FILE): found map, expected a string"),
        ("[[upstreams]]\nname = 7", "upstreams[0].name (from FILE): found integer `7`"),
        ("log = \"=,=\"", "log (from FILE): "),
        ("log_format = \"xml\"", "log_format (from FILE): unknown variant"),
        ("etcd_prefix = \"fence\"", "etcd_prefix (from FILE): it must begin"),
        ("metrics_prefix = [\"a/\"]", "metrics_prefix (from FILE): \"a/\""),
        ("cors_origin = [\"https://a/b\"]", "cors_origin (from FILE): "),
        ("uploads_kept = \"1h\"", "uploads_kept (from FILE): 1h is not above upload_timeout"),
        ("upload_timeout = \"2h\"", "uploads_kept: 2h is not above upload_timeout"),
        ("etcd_user = \"gw\"", "etcd_user (from FILE): it needs etcd_password"),
        ("tls_cert_file = \"c\"", "tls_cert_file (from FILE): it needs tls_key_file"),
        ("tls_key_file = \"k\"", "tls_key_file (from FILE): it needs tls_cert_file"),
        ("tls_client_ca_file = \"c\"", "tls_client_ca_file (from FILE): it needs tls_cert_file"),
        (
            "tls_client_auth = \"required\"",
            "tls_client_auth (from FILE): it needs tls_client_ca_file",
        ),
        ("tls_client_auth = \"always\"", "tls_client_auth (from FILE): unknown variant"),
        (
            "tls_client_crl_file = \"c\"",
            "tls_client_crl_file (from FILE): it needs tls_client_ca_file",
        ),
        ("etcd_cert_file = \"c\"", "etcd_cert_file (from FILE): it needs etcd_key_file"),
        ("log = ", "FILE is not valid TOML: line 1"),
        ("\nlog = \"a\" \"hush\"", "FILE is not valid TOML: line 2"),
    ];
    for (file, expected) in cases {
        let error = refusal(file);
        assert!(error.starts_with(expected), "{file}: {error}");
        assert!(!error.contains("hush"), "{error}");
    }
}

#[test]
fn postgres_and_etcd_go_together() {
    let alone = refusal(&format!("postgres = \"{POSTGRES}\""));
    assert!(alone.starts_with("postgres (from FILE): it needs etcd as well"));
    let alone = refusal("etcd = [\"a:2379\"]");
    assert!(alone.starts_with("etcd (from FILE): it needs postgres as well"));
    let both =
        format!("postgres = \"{POSTGRES}\"\netcd = [\"http://localhost:2379\", \"[::1]:2379\"]");
    assert!(read(&both).is_ok());
}

#[test]
fn etcd_members_are_checked() {
    for (member, part) in [
        ("a", "is not host:port"),
        ("a:0", "is not host:port"),
        ("u:p@a:1", "is not host:port"),
        ("https://a:1", "needs etcd_ca_file"),
        ("ftp://a:1", "must begin with http://"),
    ] {
        let error = refusal(&format!("etcd = [\"{member}\"]"));
        assert!(error.contains(part), "{member}: {error}");
    }
}

#[test]
fn secrets_are_never_shown() {
    let config = full();
    let shown = format!("{config:?}{}", config.show().unwrap());
    assert!(!shown.contains("hush"), "{shown}");
    assert!(shown.contains("postgres://gw:***@db:5432/fence?sslmode=verify-full"), "{shown}");
    for (url, expected) in [
        ("postgres://db/x?password=hush&port=7", "postgres://db/x?password=***&port=7"),
        ("postgres://db/x?p%61ssword=hush", "postgres://db/x?p%61ssword=***"),
        ("postgres://u:hu@sh@db/x", "postgres://u:***@db/x"),
        ("postgres://u@db/x", "postgres://u@db/x"),
    ] {
        assert_eq!(PostgresUrl::new(url).unwrap().to_string(), expected);
    }
    for file in [
        "postgres = \"mysql://u:hush@db/x\"\netcd = [\"a:1\"]",
        "postgres = \"postgres://u:hush@db:port/x\"\netcd = [\"a:1\"]",
        "postgres = [\"hush\"]",
        "etcd_password = [\"hush\"]",
        "etcd_password = 1234567890",
        "etcd_password = 12345678901234567890123",
    ] {
        let error = refusal(file);
        assert!(!error.contains("hush") && !error.contains("1234567890"), "{error}");
    }
}

#[test]
fn what_is_shown_can_be_read_again() {
    let shown = untouched().show().unwrap();
    assert_eq!(read(&shown), Ok(untouched()));
    assert!(shown.contains("# guarantee: strict"), "{shown}");
    assert!(shown.contains("# ledger: sqlite"), "{shown}");
    assert!(full().show().unwrap().contains("# mint: etcd, a:2379, b:2379"));
}

/// The table of a section of `docs/config.md`.
fn table_of(settings: &[Setting]) -> String {
    let defaults = toml::Table::try_from(Config::default()).unwrap();
    let decade = table::Written(&Duration::from_hours(3650 * 24)).to_string();
    let mut text = "| setting | default | allowed | environment | flag | meaning |\n".to_owned();
    text += "|---|---|---|---|---|---|\n";
    for setting in settings {
        let default = match defaults.get(setting.name) {
            Some(toml::Value::Array(_)) | None => "none".to_owned(),
            Some(value) => format!("`{}`", value.to_string().trim_matches('"')),
        };
        let repeated = matches!(setting.kind, Kind::List | Kind::Upstreams);
        let flag = match (setting.flag, setting.flag()) {
            (None, _) => String::new(),
            (_, flag) if repeated => format!("`--{flag}` (repeatable) "),
            (_, flag) => format!("`--{flag}` "),
        };
        let (name, variable) = (setting.name, setting.name.to_ascii_uppercase());
        let (allowed, doc) = ((setting.allowed)().replace(&decade, "10 years"), setting.doc());
        text += &format!(
            "| `{name}` | {default} | {allowed} | `FENCEGATE_{variable}` | {flag}| {doc} |\n"
        );
    }
    text
}

/// `FENCE_TEST_WRITE_DOCS=1` writes them anew.
#[test]
fn the_page_has_all_settings() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/config.md");
    let found = std::fs::read_to_string(path).unwrap();
    let mut page = found.clone();
    for section in SETTINGS.chunk_by(|one, next| one.section == next.section) {
        let heading = page.find(&format!("\n## {}\n", section[0].section)).unwrap();
        let begin = heading + page[heading..].find("\n|").unwrap() + 1;
        let end = begin + page[begin..].find("|\n\n").unwrap() + 2;
        page.replace_range(begin..end, &table_of(section));
    }
    if std::env::var_os("FENCE_TEST_WRITE_DOCS").is_some() {
        std::fs::write(path, page).unwrap();
    } else {
        assert_eq!(found, page, "run this test with FENCE_TEST_WRITE_DOCS=1");
    }
}

const UPSTREAM: &str = "name = \"a\"\nurl = \"https://a:1/b\"\nresource = \"/r/{resource}\"\n\
                        resource_form = \"digits\"\nauthorization = \"pass\"\n\
                        guarantee = \"drained\"\ntimeout = \"2s\"\nmax_effect_delay = \"9s\"\n\
                        connect_timeout = \"1s\"\nin_flight_max = 7\nintermediary = false\n";

#[test]
fn upstreams_are_given_in_three_ways() {
    let pairs = "name=a,url=https://a:1/b,resource=/r/{resource},guarantee=drained,timeout=2s,\
                 resource_form=digits,authorization=pass,max_effect_delay=9s,connect_timeout=1s,in_flight_max=7,intermediary=false";
    let other = "name=b,url=https://b,resource=/{resource}/x,guarantee=admission,resource_prefix=c.,\
                 resource_form=any";
    let in_file = read(&format!("[[upstreams]]\n{UPSTREAM}")).unwrap();
    let upstream = &in_file.upstreams[0];
    assert_eq!((upstream.prefix().as_str(), upstream.in_flight_max), ("a:", 7));
    assert_eq!(upstream.max_effect_delay, Some(Duration::from_secs(9)));
    let line = format!("--upstream {pairs} --upstream {other}");
    let flagged = load("", &[], &flags(&line)).unwrap();
    assert_eq!(flagged.upstreams[0], *upstream);
    assert_eq!(flagged.upstreams[1].prefix(), "c.");
    // An answer that may be another's is not trusted unless somebody says so.
    assert_eq!([0, 1].map(|at: usize| flagged.upstreams[at].intermediary), [false, true]);
    let both = format!("{pairs}; {other}");
    let env = [("FENCEGATE_UPSTREAMS", both.as_str())];
    assert_eq!(with_env(&env).unwrap().upstreams, flagged.upstreams);
    // What is shown can be read again.
    let shown = flagged.show().unwrap();
    assert_eq!(read(&shown), Ok(flagged), "{shown}");
}

#[test]
fn every_key_of_an_upstream_is_documented() {
    let files = "ca_file = \"/a\"\ncert_file = \"/b\"\nkey_file = \"/c\"\n";
    let settings = read(&format!("[[upstreams]]\n{UPSTREAM}resource_prefix = \"a:\"\n{files}"));
    let table = toml::Table::try_from(&settings.unwrap().upstreams[0]).unwrap();
    let page = include_str!("../../../docs/config.md");
    assert_eq!(table.len(), 16);
    for key in table.keys() {
        let is_there = |row: &str| page.contains(&format!("\n| {row} | "));
        let pair = "`cert_file`, `key_file`";
        let is_in_pair = pair.contains(&format!("`{key}`")) && is_there(pair);
        assert!(is_in_pair || is_there(&format!("`{key}`")), "docs/config.md has no row for {key}");
    }
}

#[test]
fn upstreams_are_checked() {
    let with = |key: &str, value: &str| {
        let kept: Vec<&str> =
            UPSTREAM.lines().filter(|line| !line.starts_with(&format!("{key} ="))).collect();
        let value = if value.is_empty() { String::new() } else { format!("{key} = {value}") };
        refusal(&format!("[[upstreams]]\n{}\n{value}", kept.join("\n")))
    };
    for (key, value, part) in [
        ("name", "\"a/b\"", "a name has"),
        ("name", "\"\"", "a name has"),
        ("name", "", "missing field `name`"),
        ("url", "\"a:1\"", "must begin with http"),
        ("url", "\"file:///etc\"", "must begin with http"),
        ("url", "\"http://u:hush@a/\"", "must not hold a user or a password"),
        ("url", "\"http://a/?b=c\"", "must not have a query"),
        ("url", "\"http://a/#b\"", "must not have a fragment"),
        ("url", "\"http://\"", "cannot be read"),
        ("resource", "\"/r\"", "{resource}"),
        ("resource_form", "", "missing field `resource_form`"),
        ("resource_form", "\"numbers\"", "is not digits, uuid-lower, lower, any or"),
        ("resource_form", "\"[0-9]+\"", "from ^ to $"),
        ("authorization", "\"ours\"", "is strip, pass or file:/PATH"),
        ("authorization", "\"file:here\"", "is strip, pass or file:/PATH"),
        ("cert_file", "\"/a\"", "cert_file and key_file go together"),
        ("url", "\"http://127.0.0.1\"\nca_file = \"/a\"", "are for an url with https"),
        ("resource_prefix", "\"a/\"", "begins no resource name"),
        ("resource_prefix", "\"\"", "begins no resource name"),
        ("guarantee", "\"strict\"", "unknown variant"),
        ("timeout", "\"2h\"", "is not from 100ms to 1h"),
        ("connect_timeout", "\"3s\"", "is not from 1ms to 2s"),
        ("in_flight_max", "0", "is not from 1"),
        ("body_bytes_max", "0", "is not from 1"),
        ("max_effect_delay", "\"2s\"", "is not above timeout"),
        ("guarantee", "\"admission\"", "max_effect_delay is for"),
        ("intermediary", "\"maybe\"", "expected a boolean"),
        ("urls", "\"x\"", "unknown field"),
    ] {
        let error = with(key, value);
        assert!(error.starts_with("upstreams") && error.contains(part), "{key} {value}: {error}");
        assert!(!error.contains("hush"), "{error}");
    }
    let two = |name: &str, prefix: &str| {
        let other = UPSTREAM.replace("\"a\"", &format!("\"{name}\""));
        format!("[[upstreams]]\n{UPSTREAM}[[upstreams]]\n{other}resource_prefix = \"{prefix}\"\n")
    };
    assert!(refusal(&two("a", "b:")).contains("is there twice"));
    assert!(refusal(&two("b", "a:b:")).contains("overlap"));
    assert!(refusal(&two("b", "a")).contains("overlap"));
    assert!(read(&two("b", "b:")).is_ok());
}

#[test]
fn a_form_of_resources_is_warned_about_or_kept_in_the_file() {
    let with = |form: &str| UPSTREAM.replace("\"digits\"", form);
    let any = read(&format!("[[upstreams]]\n{}", with("\"any\""))).unwrap();
    assert!(any.warnings()[0].contains("resource_form = \"any\""), "{:?}", any.warnings());
    let regex = with("'^(de|fr)-[0-9]{1,3}$'");
    let config = read(&format!("[[upstreams]]\n{regex}")).unwrap();
    assert_eq!(config.warnings(), Vec::<String>::new());
    let shown = config.show().unwrap();
    assert_eq!(read(&shown), Ok(config), "{shown}");
    let pairs =
        "name=a,url=http://a,resource=/r/{resource},resource_form=^[0-9]+$,guarantee=admission";
    let env = [("FENCEGATE_UPSTREAMS", pairs)];
    for error in [load("", &[], &flags(&format!("--upstream {pairs}"))), with_env(&env)] {
        let error = error.unwrap_err();
        assert!(error.contains("a regular expression goes into the file"), "{error}");
    }
}

#[test]
fn a_connection_may_take_no_longer_than_the_request_by_default() {
    let connecting = |more: &str| {
        let kept: Vec<&str> = UPSTREAM
            .lines()
            .filter(|line| !line.contains("time") && !line.contains("max_effect_delay"))
            .collect();
        let file = format!("[[upstreams]]\n{}\n{more}", kept.join("\n"));
        read(&file).unwrap().upstreams[0].connect_timeout()
    };
    assert_eq!(connecting("timeout = \"2s\""), Duration::from_secs(2));
    assert_eq!(connecting("timeout = \"20s\""), Duration::from_secs(5));
    assert_eq!(connecting(""), Duration::from_secs(5));
    assert_eq!(connecting("timeout = \"2s\"\nconnect_timeout = \"1s\""), Duration::from_secs(1));
}

#[test]
fn a_data_directory_has_a_socket_for_its_operator() {
    let socket = |config: &Config| config.admin_listen.clone();
    let there = read("data_dir = \"/srv/gate\"").unwrap();
    assert_eq!(socket(&there), [AdminAddress::Unix("/srv/gate/admin.sock".into())]);
    assert_eq!(socket(&read("admin_listen = []").unwrap()), []);
    // One that no socket can have is left out.
    let deep = format!("data_dir = \"/{}\"", "x".repeat(100));
    let deep = read(&deep).unwrap();
    assert_eq!(socket(&deep), []);
    let why = deep.socket_trouble().unwrap();
    assert!(why.contains("more than the 107 bytes") && why.contains("shorter data_dir"), "{why}");
    assert_eq!(there.socket_trouble(), None);
    let shared = "postgres = \"postgres://u@127.0.0.1/d\"\netcd = [\"127.0.0.1:2379\"]";
    assert_eq!(socket(&read(shared).unwrap()), []);
}

/// A root of S3 keys.
const ROOT: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

#[test]
fn s3_is_off_by_default_and_let_in_like_the_rest() {
    let config = read("").unwrap();
    assert_eq!((config.s3_listen, config.s3_region.as_str()), (None, "fencegate"));
    let error = refusal("s3_listen = \"10.0.0.5:9000\"");
    assert!(error.starts_with("s3_listen (from FILE): 10.0.0.5:9000 is reached from"), "{error}");
    let open = read("s3_listen = \"10.0.0.5:9000\"\nopen_to_network = true").unwrap();
    assert!(open.warnings()[0].contains("whoever reaches 10.0.0.5:9000 can"));
    assert!(open.requires_lock_id() && !open.is_local());
    let own = "s3_listen = \"10.0.0.5:9000\"\ntls_cert_file = \"a.pem\"\ntls_key_file = \"b.pem\"";
    let secured = read(own).unwrap();
    assert!(secured.needs_rules());
    let told = |config: &Config| config.s3_endpoint_at(config.s3_listen.unwrap());
    assert_eq!(told(&secured), "https://10.0.0.5:9000");
    assert_eq!(told(&read("s3_listen = \"127.0.0.1:9000\"").unwrap()), "http://127.0.0.1:9000");
    let named = "s3_listen = \"127.0.0.1:9000\"\ns3_endpoint = \"https://s3.example.com/\"";
    assert_eq!(told(&read(named).unwrap()), "https://s3.example.com");
}

#[test]
fn settings_of_s3_are_checked() {
    for (file, expected) in [
        ("s3_endpoint = \"http://s3\"", "s3_endpoint (from FILE): it needs s3_listen"),
        ("s3_domain = \"s3.example.com\"", "s3_domain (from FILE): it needs s3_listen"),
        ("s3_anonymous = \"read\"", "s3_anonymous (from FILE): it needs s3_listen"),
        ("s3_anonymous = \"all\"", "s3_anonymous (from FILE): unknown variant"),
        ("s3_once = \"never\"", "s3_once (from FILE): unknown variant"),
        ("s3_region = \"Us\"", "s3_region (from FILE): it has 1 to 63"),
        ("s3_domain = \"10.0.0.5\"", "s3_domain (from FILE): 10.0.0.5 is an address"),
        ("s3_endpoint = \"http://s3/x\"", "s3_endpoint (from FILE): \"http://s3/x\" is not a URL"),
        ("s3_endpoint = \"s3:9000\"", "s3_endpoint (from FILE): \"s3:9000\" is not a URL"),
        (
            "s3_listen = \"0.0.0.0:1\"\nopen_to_network = true",
            "s3_listen (from FILE): it needs s3_endpoint",
        ),
        ("multipart_kept = \"1m\"", "multipart_kept (from FILE): 1m is not from 1h"),
        (
            "s3_listen = \"127.0.0.1:1\"\npostgres = \"postgres://u@127.0.0.1/d\"\netcd = [\"127.0.0.1:2379\"]",
            "s3_listen (from FILE): beside postgres it needs s3_root as well",
        ),
        ("s3_root = \"hush\"", "s3_root (from FILE): "),
        ("s3_root = [\"hush\"]", "s3_root (from FILE): "),
    ] {
        let error = refusal(file);
        assert!(error.starts_with(expected) && !error.contains("hush"), "{file}: {error}");
    }
}

#[test]
fn the_root_of_s3_keys_is_told_by_a_digest_alone() {
    let other = ROOT.replace('0', "1");
    let one = read(&format!("s3_root = \"{ROOT}\"")).unwrap();
    let two = read(&format!("s3_root = \"{ROOT},{other}\"")).unwrap();
    let shown = format!("{two:?}{}", two.show().unwrap());
    assert!(
        !shown.contains(ROOT) && !shown.contains(&other) && shown.contains("s3_root = \"***\"")
    );
    let prints = [&one, &two].map(|config| config.s3_root.as_ref().unwrap().fingerprint());
    assert_ne!(prints[0], prints[1]);
    assert!(prints[1].starts_with(&prints[0]), "{prints:?}");
    assert_eq!(two.s3_root.as_ref().unwrap().roots().len(), 2);
    let turned = read(&format!("s3_root = \"{other},{ROOT}\"")).unwrap();
    assert_ne!(turned, two);
    for bad in
        [&ROOT[1..], &format!("{ROOT},"), &ROOT.to_uppercase(), &format!("{ROOT},{ROOT},{ROOT}")]
    {
        let error = refusal(&format!("s3_root = \"{bad}\""));
        assert!(error.contains("64 hexadecimal digits") && !error.contains(&bad[..8]), "{error}");
    }
    let env = [("FENCEGATE_S3_ROOT", ROOT)];
    assert_eq!(with_env(&env).unwrap().s3_root, one.s3_root);
}

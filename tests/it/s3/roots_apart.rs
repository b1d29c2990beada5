//! The root is apart from the ledger, so that who reads that can make no keys: no byte of it is there, and what older gateways
//! left there goes away.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use fence_core::wire::Lock;
use fence_tests::gateway::{Gateway, Settings};
use fence_tests::postgres::{Postgres, database_in};
use fence_tests::secrets;
use memchr::memmem;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _};

use super::keys::{root, speaking_s3};
use super::roots::key_of;
use crate::setup::{SetUp, ledger_file};

fn embedded() -> Settings {
    Gateway::embedded().flag("--s3-listen", "127.0.0.1:0")
}

/// The file of the root in a data directory.
fn file(gateway: &Gateway) -> PathBuf {
    gateway.data_dir().join("s3.root")
}

fn root_in(file: &Path) -> String {
    fs::read_to_string(file).expect("a root").trim().to_owned()
}

/// Looks for the root in these bytes, as it is or in hex.
fn has(bytes: &[u8], root: &str) -> bool {
    let raw = hex::decode(root).expect("hex");
    [root.as_bytes(), &raw].iter().any(|form| memmem::find(bytes, form).is_some())
}

/// Looks for the root in the files of a folder, other than the one that is there for it.
fn is_in_a_file(folder: &Path, root: &str) -> bool {
    let files = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("a file").path());
    let files = files.filter(|path| path.is_file() && !path.ends_with("s3.root"));
    let all: Vec<_> = files.map(|path| fs::read(path).expect("it can be read")).collect();
    assert!(all.iter().any(|bytes| bytes.starts_with(b"SQLite format 3")), "there is no ledger");
    all.iter().any(|bytes| has(bytes, root))
}

/// Leaves the root in the ledger of a gateway that does not run, as an older one did.
async fn left_in_clear(gateway: &Gateway, root: &str) {
    let ledger = SqliteConnectOptions::new().filename(ledger_file(gateway));
    let mut ledger = ledger.connect().await.expect("the ledger");
    let older = format!(
        "DROP TRIGGER IF EXISTS s3_root_digest_stays;
         UPDATE guard SET s3_root_digest = NULL;
         INSERT INTO s3_root VALUES (1, X'{root}')"
    );
    ledger.execute(AssertSqlSafe(older)).await.expect("it is written");
    ledger.close().await.expect("it is closed");
    assert!(is_in_a_file(&gateway.data_dir(), root), "the ledger has it");
}

/// Starts the gateway, which must refuse to; returns what it says.
async fn refused(gateway: &mut Gateway) -> String {
    let before = gateway.log().len();
    gateway.spawn();
    let status = gateway.wait_for_exit().await;
    let said = gateway.log().split_off(before);
    assert_eq!(status.code(), Some(1), "{said}");
    said
}

/// A gateway that was killed, a lock, the id of its key, and the root of that.
async fn used() -> (Gateway, Lock, String, String) {
    let mut gateway = embedded().start().await;
    let lock = gateway.client().acquire("lake", "10m").await;
    let key = key_of(&gateway.client(), &lock).await.access_key_id;
    gateway.kill9();
    let root = root_in(&file(&gateway));
    (gateway, lock, key, root)
}

#[tokio::test]
async fn a_data_directory_has_the_root_in_a_file_and_not_in_its_ledger() {
    let (mut gateway, lock, key, root) = used().await;
    let mode =
        |gateway: &Gateway| fs::metadata(file(gateway)).expect("a file").permissions().mode();
    assert_eq!(mode(&gateway) & 0o777, 0o600);
    assert!(!is_in_a_file(&gateway.data_dir(), &root));
    // One that is lost or from elsewhere is noticed, and nothing is put in its place.
    let aside = gateway.data_dir().join("aside");
    fs::rename(file(&gateway), &aside).expect("it is renamed");
    let said = refused(&mut gateway).await;
    assert!(said.contains("s3.root is missing") && said.contains("openssl rand"), "{said}");
    assert!(!file(&gateway).exists());
    let other = self::root();
    fs::write(file(&gateway), &other).expect("it is written");
    let said = refused(&mut gateway).await;
    assert!(said.contains("this is not the root"), "{said}");
    assert!(!said.contains(&other) && !said.contains(&root), "{said}");
    // Back again, and readable to others, as a copy may be.
    fs::rename(&aside, file(&gateway)).expect("it is renamed");
    fs::set_permissions(file(&gateway), fs::Permissions::from_mode(0o644)).expect("its rights");
    gateway.restart().await;
    assert_eq!(mode(&gateway) & 0o777, 0o600);
    assert_eq!(key_of(&gateway.client(), &lock).await.access_key_id, key);
    assert!(!gateway.log().contains(&root));
}

#[tokio::test]
async fn a_root_that_an_older_gateway_left_moves_into_the_file() {
    let (mut gateway, lock, key, root) = used().await;
    // The second time as after a crash between the file and the ledger.
    for is_moved_already in [false, true] {
        left_in_clear(&gateway, &root).await;
        if !is_moved_already {
            fs::remove_file(file(&gateway)).expect("it is removed");
        }
        gateway.restart().await;
        assert_eq!(root_in(&file(&gateway)), root);
        assert_eq!(key_of(&gateway.client(), &lock).await.access_key_id, key);
        assert!(!is_in_a_file(&gateway.data_dir(), &root), "while the gateway runs");
        gateway.kill9();
        assert!(!is_in_a_file(&gateway.data_dir(), &root), "after it was killed");
    }
    // Of two roots none is thrown away.
    left_in_clear(&gateway, &root).await;
    let other = self::root();
    fs::write(file(&gateway), &other).expect("it is written");
    let said = refused(&mut gateway).await;
    assert!(said.contains("the file is from elsewhere"), "{said}");
    assert_eq!(root_in(&file(&gateway)), other);
    assert!(is_in_a_file(&gateway.data_dir(), &root));
}

#[tokio::test]
async fn a_backup_has_no_root_and_says_so() {
    let (mut gateway, _, _, root) = used().await;
    let mut copy = embedded().start().await;
    copy.kill9();
    let to = copy.data_dir();
    // The ledger that is copied may be one of an older gateway.
    for is_in_clear in [false, true] {
        if is_in_clear {
            left_in_clear(&gateway, &root).await;
        }
        fs::remove_dir_all(&to).expect("it is removed");
        let (code, told, log) = gateway.run(&["backup", to.to_str().expect("a path")]).await;
        assert_eq!(code, Some(0), "{told}{log}");
        let place = file(&gateway).display().to_string();
        assert!(told.contains(&format!("not in it is {place}")), "{told}");
        assert!(!file(&copy).exists() && !is_in_a_file(&to, &root));
        let (code, told, log) = copy.run(&["refence", "--reason", "restored"]).await;
        assert_eq!(code, Some(0), "{told}{log}");
        let said = refused(&mut copy).await;
        assert!(said.contains("s3.root is missing"), "{said}");
    }
    gateway.restart().await;
    fs::copy(file(&gateway), file(&copy)).expect("it is copied");
    copy.restart().await;
    assert_eq!(root_in(&file(&copy)), root);
}

#[tokio::test]
async fn beside_postgres_s3_needs_a_root_of_the_settings() {
    let settings = SetUp::Clustered.settings().await.flag("--s3-listen", "127.0.0.1:0");
    let (status, log) = settings.without_env("FENCEGATE_S3_ROOT").start_refused().await;
    assert_eq!(status.code(), Some(2), "{log}");
    for told in ["it needs s3_root as well", "openssl rand -hex 32", "FROM fencegate.s3_root"] {
        assert!(log.contains(told), "{told}: {log}");
    }
}

#[tokio::test]
async fn a_root_that_an_older_gateway_left_in_postgres_goes_away_once_it_is_a_setting() {
    let url = Postgres::shared().await.database().await;
    let etcd = fence_tests::etcd::Etcd::shared().await;
    let settings = Gateway::clustered(&url, &etcd.endpoint(), &etcd.prefix());
    let (root, other) = (root(), root());
    let is_in_ledger = || has(&secrets::dump(&url).expect("a dump"), &root);
    let mut gateway = speaking_s3(settings.clone(), &root).start().await;
    let lock = gateway.client().acquire("lake", "10m").await;
    let key = key_of(&gateway.client(), &lock).await.access_key_id;
    gateway.kill9();
    assert!(!is_in_ledger());
    let postgres = Postgres::shared().await;
    let left = format!("INSERT INTO fencegate.s3_root (root) VALUES (decode('{root}', 'hex'))");
    // The first time nothing is agreed, as when a command alone has made keys.
    for forget in ["DELETE FROM fencegate.agreed WHERE name = 's3_root'; ", ""] {
        postgres.execute(database_in(&url), &format!("{forget}{left}")).await;
        assert!(is_in_ledger());
        // One without S3 says that it is there, and one with another root does not start.
        let without = settings.clone().start().await;
        without.logged("an older version left the root of S3 keys in the ledger").await;
        let (status, log) = speaking_s3(settings.clone(), &other).start_refused().await;
        assert!(status.code() == Some(1) && log.contains("s3_root is "), "{log}");
        assert!(log.contains("SELECT encode(root, 'hex') FROM fencegate.s3_root"), "{log}");
        assert!(!log.contains(&root) && !log.contains(&other), "{log}");
        assert!(is_in_ledger(), "nothing changed");
        // What that prints is the setting, and then it is not in the ledger any more.
        let print = "SELECT encode(root, 'hex') FROM fencegate.s3_root";
        let mut owner = postgres.connect(database_in(&url)).await;
        let printed: String = sqlx::query_scalar(print).fetch_one(&mut owner).await.expect("it");
        let gateway = speaking_s3(settings.clone(), &printed).start().await;
        assert!(!is_in_ledger());
        assert_eq!(key_of(&gateway.client(), &lock).await.access_key_id, key);
        assert!(!gateway.log().contains(&root));
    }
}

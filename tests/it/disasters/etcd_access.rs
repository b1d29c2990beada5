//! How a gateway reaches etcd: with a user and a password, over TLS, and past members that are down.

use std::path::Path;
use std::process::Command;

use fence_tests::etcd::Etcd;
use fence_tests::gateway::{Gateway, Settings};
use fence_tests::postgres::Postgres;
use fence_tests::process::{eventually, free_port};
use serde_json::json;

async fn clustered(endpoints: &str) -> Settings {
    let postgres = Postgres::shared().await;
    Gateway::clustered(&postgres.database().await, endpoints, "/fencegate")
}

/// Locks a resource, as soon as there is a mint.
async fn granted(gateway: &Gateway) {
    let client = gateway.client();
    eventually("a lock is granted", async || {
        let answer = client.lock(&json!({ "resource": "job:1" })).send().await;
        (answer.status == 201).then_some(())
    })
    .await;
}

fn succeed(command: &mut Command) {
    let output = command.output().expect("the program is installed");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn etcdctl(etcd: &Etcd, arguments: &str) {
    let mut command = Command::new("etcdctl");
    command.env("ETCDCTL_API", "3").args(["--endpoints", &etcd.endpoint()]);
    succeed(command.args(arguments.split(' ')));
}

#[tokio::test]
async fn with_a_user_and_a_password() {
    let etcd = Etcd::dedicated().await;
    for call in [
        "user add root:root-password",
        "user grant-role root root",
        "user add gateway:secret",
        "role add gateway",
        "role grant-permission gateway --prefix=true readwrite /fencegate/",
        "user grant-role gateway gateway",
        "auth enable",
    ] {
        etcdctl(&etcd, call);
    }
    let user = clustered(&etcd.endpoint()).await.env("FENCEGATE_ETCD_USER", "gateway");
    granted(&user.env("FENCEGATE_ETCD_PASSWORD", "secret").start().await).await;

    let user = clustered(&etcd.endpoint()).await.env("FENCEGATE_ETCD_USER", "gateway");
    let refused = user.env("FENCEGATE_ETCD_PASSWORD", "wrong").start().await;
    let answer = refused.client().lock(&json!({ "resource": "job:2" })).send().await;
    answer.refused(503, "mint-unavailable");
    assert!(!refused.log().contains("wrong"), "the log shows the password");
}

/// Makes an authority, certificates of it for `server` and `client`, and another authority.
fn make_certificates(directory: &Path) {
    let script = "
        key='-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2'
        printf 'subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n' > extensions
        for name in ca other; do
            openssl req -x509 $key -keyout $name.key -out $name.pem -subj /CN=$name
        done
        for name in server client; do
            openssl req $key -keyout $name.key -out $name.csr -subj /CN=$name
            openssl x509 -req -in $name.csr -CA ca.pem -CAkey ca.key -CAcreateserial \\
                -out $name.pem -days 2 -extfile extensions
        done";
    succeed(Command::new("sh").args(["-e", "-c", script]).current_dir(directory));
}

#[tokio::test]
async fn over_tls_with_a_certificate_of_its_own() {
    let directory = tempfile::tempdir().expect("a directory");
    make_certificates(directory.path());
    let etcd = Etcd::with_tls(directory.path().to_owned());
    let path = |name: &str| directory.path().join(name).display().to_string();
    let endpoint = format!("https://{}", etcd.endpoint());
    let with = async |authority: &str, certificate: bool| {
        let settings = clustered(&endpoint).await.env("FENCEGATE_ETCD_CA_FILE", &path(authority));
        match certificate {
            true => settings
                .env("FENCEGATE_ETCD_CERT_FILE", &path("client.pem"))
                .env("FENCEGATE_ETCD_KEY_FILE", &path("client.key")),
            false => settings,
        }
        .start()
        .await
    };
    granted(&with("ca.pem", true).await).await;
    for stranger in [with("other.pem", true).await, with("ca.pem", false).await] {
        let answer = stranger.client().lock(&json!({ "resource": "job:2" })).send().await;
        answer.refused(503, "mint-unavailable");
    }
}

#[tokio::test]
async fn past_a_member_that_is_down() {
    let etcd = Etcd::dedicated().await;
    let endpoints = format!("127.0.0.1:{},{}", free_port(), etcd.endpoint());
    let gateway = clustered(&endpoints).await.start().await;
    let client = gateway.client();
    for index in 0..20 {
        client.acquire(&format!("job:{index}"), "1m").await;
    }
}

/// Whoever looks at the gateway alone must see why no lock is granted.
#[tokio::test]
async fn the_size_and_the_alarms_of_etcd_are_told() {
    use etcd_client::{AlarmAction, AlarmType, Client};
    let etcd = Etcd::dedicated().await;
    let mut admin = Client::connect([etcd.endpoint()], None).await.expect("etcd answers");
    let full = admin.alarm(AlarmAction::Activate, AlarmType::Nospace, None).await;
    full.expect("an alarm is raised");
    let gateway = clustered(&etcd.endpoint()).await.start().await;
    eventually("the alarm is in the log", async || {
        gateway.log().contains("alarm:NOSPACE").then_some(())
    })
    .await;
    let metrics = gateway.client().get("/metrics").send().await.expect(200).text();
    let figure = |name: &str| {
        let line = metrics.lines().find(|line| line.starts_with(&format!("{name}{{member=")));
        line.and_then(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok())
    };
    assert!(figure("fencegate_etcd_db_bytes").is_some_and(|bytes| bytes > 0.0), "{metrics}");
    assert!(figure("fencegate_etcd_db_in_use_bytes").is_some_and(|bytes| bytes > 0.0), "{metrics}");
    assert_eq!(figure("fencegate_etcd_alarm"), Some(1.0), "{metrics}");
}

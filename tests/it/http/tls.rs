//! TLS on the gateway's own listener: who is let in, and how certificates change.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fence_tests::gateway::{Gateway, Settings};
use fence_tests::process::eventually;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams,
    SanType, SerialNumber, date_time_ymd,
};
use reqwest::{Certificate, Client, Identity};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Who signs certificates.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// A certificate with this serial number, and its key.
    fn issue(&self, serial: u64, usage: ExtendedKeyUsagePurpose) -> (String, String) {
        let mut params = CertificateParams::default();
        params.serial_number = Some(SerialNumber::from(serial));
        params.subject_alt_names = vec![SanType::IpAddress(IpAddr::from([127, 0, 0, 1]))];
        params.extended_key_usages = vec![usage];
        params.not_after = date_time_ymd(2040, 1, 1);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    fn server(&self, serial: u64) -> (String, String) {
        self.issue(serial, ExtendedKeyUsagePurpose::ServerAuth)
    }

    fn client(&self, serial: u64) -> Identity {
        let (certificate, key) = self.issue(serial, ExtendedKeyUsagePurpose::ClientAuth);
        Identity::from_pem(format!("{certificate}{key}").as_bytes()).unwrap()
    }

    fn revokes(&self, serial: u64) -> String {
        let revoked = RevokedCertParams {
            serial_number: SerialNumber::from(serial),
            revocation_time: date_time_ymd(2024, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(2024, 1, 1),
            next_update: date_time_ymd(2040, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: vec![revoked],
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.0).unwrap().pem().unwrap()
    }

    /// A caller that trusts this authority, with a connection of its own for each request or not.
    fn caller(&self, keeps: bool, identity: Option<Identity>) -> Client {
        let root = Certificate::from_pem(self.0.pem().as_bytes()).unwrap();
        let client =
            Client::builder().no_proxy().tls_certs_only([root]).timeout(Duration::from_secs(10));
        let client = client.pool_max_idle_per_host(if keeps { 1 } else { 0 });
        match identity {
            Some(identity) => client.identity(identity),
            None => client,
        }
        .build()
        .unwrap()
    }
}

/// The files of a gateway's own certificate.
struct Files {
    folder: TempDir,
}

impl Files {
    fn new((certificate, key): &(String, String)) -> Self {
        let files = Self { folder: tempfile::tempdir().unwrap() };
        files.put("own.pem", certificate);
        files.put("own-key.pem", key);
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Puts a file in the place of the one that is there, as a whole.
    fn put(&self, name: &str, text: &str) {
        let beside = self.path("new");
        std::fs::write(&beside, text).unwrap();
        std::fs::rename(beside, self.path(name)).unwrap();
    }

    fn gateway(&self) -> Settings {
        let flag = |path: &Path| path.to_str().unwrap().to_owned();
        Gateway::embedded()
            .flag("--tls-cert-file", &flag(&self.path("own.pem")))
            .flag("--tls-key-file", &flag(&self.path("own-key.pem")))
    }
}

fn url(gateway: &Gateway, path: &str) -> String {
    format!("https://{}{path}", gateway.address())
}

async fn answers(gateway: &Gateway, caller: &Client) -> bool {
    let answer = caller.get(url(gateway, "/readyz")).send().await;
    answer.is_ok_and(|answer| answer.status() == 200)
}

async fn is_ready(gateway: &Gateway, caller: &Client) {
    eventually("it answers by TLS", async || answers(gateway, caller).await.then_some(())).await;
}

#[tokio::test]
async fn a_lock_and_a_write_by_tls() {
    let authority = Authority::new("ours");
    let files = Files::new(&authority.server(1));
    let gateway = files.gateway().begin();
    let caller = authority.caller(true, None);
    is_ready(&gateway, &caller).await;
    gateway.logged("listening on https://").await;
    let lock = caller.post(url(&gateway, "/locks")).json(&serde_json::json!({ "resource": "r" }));
    let lock: serde_json::Value = lock.send().await.unwrap().json().await.unwrap();
    let put = caller
        .put(url(&gateway, "/resources/r/objects/k"))
        .header("x-fence-token", lock["token"].as_str().unwrap())
        .body(vec![7; 300_000]);
    assert_eq!(put.send().await.unwrap().status(), 201);
    let read = caller.get(url(&gateway, "/resources/r/objects/k")).send().await.unwrap();
    assert_eq!(read.bytes().await.unwrap(), vec![7; 300_000]);
    let metrics = caller.get(url(&gateway, "/metrics")).send().await.unwrap().text().await.unwrap();
    let expires =
        metrics.lines().find(|line| line.starts_with("fencegate_tls_certificate_expires_seconds "));
    assert_eq!(expires, Some("fencegate_tls_certificate_expires_seconds 2208988800"));
    // Somebody who trusts others does not go on.
    let other = Authority::new("others").caller(false, None);
    assert!(!answers(&gateway, &other).await);
}

#[tokio::test]
async fn what_is_no_tls_is_told_so_and_nobody_waits_for_a_handshake_for_ever() {
    let authority = Authority::new("ours");
    let files = Files::new(&authority.server(1));
    let gateway = files.gateway().begin();
    let caller = authority.caller(true, None);
    is_ready(&gateway, &caller).await;
    let mut plain = TcpStream::connect(gateway.address()).await.unwrap();
    plain.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    plain.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("use https://"), "{answer}");
    let mut silent = TcpStream::connect(gateway.address()).await.unwrap();
    // The beginning of a handshake, and no more.
    let mut stalled = TcpStream::connect(gateway.address()).await.unwrap();
    stalled.write_all(&[22, 3, 1, 2, 0, 1]).await.unwrap();
    let mut rubbish = TcpStream::connect(gateway.address()).await.unwrap();
    rubbish.write_all(&[22; 600]).await.unwrap();
    for stream in [&mut silent, &mut stalled, &mut rubbish] {
        let mut rest = Vec::new();
        let end =
            tokio::time::timeout(Duration::from_secs(60), stream.read_to_end(&mut rest)).await;
        end.expect("it is closed").ok();
    }
    assert!(answers(&gateway, &caller).await);
    let metrics = caller.get(url(&gateway, "/metrics")).send().await.unwrap().text().await.unwrap();
    let closed = "fencegate_connections_closed_total{reason=\"handshake\"} 4";
    assert!(metrics.contains(closed), "{metrics}");
}

#[tokio::test]
async fn a_certificate_is_changed_without_ending_a_connection_and_a_bad_one_is_not_used() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let files = Files::new(&old.server(1));
    let gateway = files.gateway().begin();
    let kept = old.caller(true, None);
    is_ready(&gateway, &kept).await;
    // A certificate without its key is not used, whoever is told of it.
    let (certificate, key) = new.server(2);
    files.put("own.pem", &certificate);
    gateway.hangup();
    gateway.logged("do not go together").await;
    assert!(answers(&gateway, &old.caller(false, None)).await);
    files.put("own-key.pem", &key);
    is_ready(&gateway, &new.caller(false, None)).await;
    assert!(!answers(&gateway, &old.caller(false, None)).await, "the old one is gone");
    assert!(answers(&gateway, &kept).await, "the connection is still open");
    let metrics = new.caller(false, None).get(url(&gateway, "/metrics")).send().await.unwrap();
    let metrics = metrics.text().await.unwrap();
    let failures =
        metrics.lines().find_map(|line| line.strip_prefix("fencegate_tls_reload_failures_total "));
    assert!(failures.is_some_and(|count| count != "0"), "{metrics}");
}

#[tokio::test]
async fn only_callers_with_a_certificate_of_the_right_authority_are_let_in() {
    let (ours, callers, others) =
        (Authority::new("ours"), Authority::new("callers"), Authority::new("others"));
    let files = Files::new(&ours.server(1));
    files.put("callers.pem", &callers.0.pem());
    files.put("revoked.pem", &callers.revokes(9));
    let settings = files
        .gateway()
        .flag("--tls-client-ca-file", files.path("callers.pem").to_str().unwrap())
        .flag("--tls-client-crl-file", files.path("revoked.pem").to_str().unwrap());
    let gateway = settings.begin();
    let good = callers.client(8);
    is_ready(&gateway, &ours.caller(false, Some(good.clone()))).await;
    for (who, identity) in [
        ("nobody", None),
        ("one of another authority", Some(others.client(8))),
        ("one that is revoked", Some(callers.client(9))),
    ] {
        assert!(!answers(&gateway, &ours.caller(false, identity)).await, "{who} is let in");
    }
    // What is revoked later is not let in any more.
    files.put("revoked.pem", &callers.revokes(8));
    eventually("it is not let in any more", async || {
        let caller = ours.caller(false, Some(good.clone()));
        (!answers(&gateway, &caller).await).then_some(())
    })
    .await;
    assert!(answers(&gateway, &ours.caller(false, Some(callers.client(10)))).await);
}

#[tokio::test]
async fn files_that_cannot_be_used_are_told_at_the_start() {
    let authority = Authority::new("ours");
    let (own, other) = (authority.server(1), authority.server(2));
    let too_large = "x".repeat((1 << 20) + 1);
    for (certificate, key, says) in [
        ("", own.1.as_str(), "own.pem: it has no certificate"),
        (own.0.as_str(), "", "own-key.pem: it has no private key"),
        (own.0.as_str(), other.1.as_str(), "do not go together"),
        (too_large.as_str(), own.1.as_str(), "own.pem: it has more than 1048576 bytes"),
    ] {
        let files = Files::new(&(certificate.to_owned(), key.to_owned()));
        let (status, log) = files.gateway().start_refused().await;
        assert_eq!(status.code(), Some(1), "{log}");
        assert!(log.contains(says), "{log}");
    }
    let files = Files::new(&own);
    std::fs::remove_file(files.path("own.pem")).unwrap();
    let (status, log) = files.gateway().start_refused().await;
    assert!(status.code() == Some(1) && log.contains("own.pem: No such file"), "{log}");
}

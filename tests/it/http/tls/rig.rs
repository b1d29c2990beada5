//! Authorities, the files that they sign, and callers with certificates.
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
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;
use tokio_rustls::rustls::pki_types::UnixTime;

/// Who signs certificates.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, both as PEM.
#[derive(Clone)]
pub(crate) struct Pair {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Its own certificate.
    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// The SHA-256 of that, as the rules of access name it.
    pub(crate) fn digest(&self) -> String {
        hex::encode(Sha256::digest(self.0.der()))
    }

    /// A certificate with these properties, and its key.
    fn issue(&self, params: &CertificateParams) -> Pair {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap().pem();
        Pair { certificate, key: key.serialize_pem() }
    }

    /// One for the gateway.
    pub(crate) fn server(&self, serial: u64) -> Pair {
        self.issue(&params(serial, ExtendedKeyUsagePurpose::ServerAuth))
    }

    /// A certificate for the gateway, good in these years.
    pub(crate) fn server_in(&self, years: std::ops::Range<i32>) -> Pair {
        let mut params = params(1, ExtendedKeyUsagePurpose::ServerAuth);
        params.not_before = date_time_ymd(years.start, 1, 1);
        params.not_after = date_time_ymd(years.end, 1, 1);
        self.issue(&params)
    }

    /// One for a caller.
    pub(crate) fn client(&self, serial: u64) -> Pair {
        self.issue(&params(serial, ExtendedKeyUsagePurpose::ClientAuth))
    }

    /// One for a caller that ends so many seconds from now, or has ended then.
    pub(crate) fn client_until(&self, seconds: i64) -> Pair {
        let mut params = params(7, ExtendedKeyUsagePurpose::ClientAuth);
        let end = UnixTime::now().as_secs().checked_add_signed(seconds).unwrap();
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(1970, 1, 1) + Duration::from_secs(end);
        self.issue(&params)
    }

    /// One for a caller with this subject, and these names beside it.
    pub(crate) fn client_named(&self, subject: &str, names: Vec<SanType>) -> Pair {
        let mut params = params(1, ExtendedKeyUsagePurpose::ClientAuth);
        params.distinguished_name.push(DnType::CommonName, subject);
        params.subject_alt_names = names;
        self.issue(&params)
    }

    /// The list of what it has revoked, which is good until 2040.
    pub(crate) fn revokes(&self, serial: u64) -> String {
        self.revokes_until(serial, 2040)
    }

    /// The same, but good until the beginning of a year.
    pub(crate) fn revokes_until(&self, serial: u64, year: i32) -> String {
        let revoked = RevokedCertParams {
            serial_number: SerialNumber::from(serial),
            revocation_time: date_time_ymd(2023, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(2023, 1, 1),
            next_update: date_time_ymd(year, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: vec![revoked],
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.0).unwrap().pem().unwrap()
    }

    /// A caller that trusts this authority, with a connection of its own for each request or not.
    pub(crate) fn caller(&self, keeps: bool, own: Option<&Pair>) -> Client {
        let root = Certificate::from_pem(self.pem().as_bytes()).unwrap();
        let client =
            Client::builder().no_proxy().tls_certs_only([root]).timeout(Duration::from_secs(30));
        let client = client.pool_max_idle_per_host(if keeps { 1 } else { 0 });
        match own {
            Some(Pair { certificate, key }) => {
                let identity = Identity::from_pem(format!("{certificate}{key}").as_bytes());
                client.identity(identity.unwrap())
            }
            None => client,
        }
        .build()
        .unwrap()
    }
}

fn params(serial: u64, usage: ExtendedKeyUsagePurpose) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.serial_number = Some(SerialNumber::from(serial));
    params.subject_alt_names = vec![SanType::IpAddress(IpAddr::from([127, 0, 0, 1]))];
    params.extended_key_usages = vec![usage];
    params.not_after = date_time_ymd(2040, 1, 1);
    params
}

/// The files of a gateway's own certificate, and of those that it takes.
pub(crate) struct Files {
    folder: TempDir,
}

impl Files {
    pub(crate) fn new(own: &Pair) -> Self {
        let files = Self { folder: tempfile::tempdir().unwrap() };
        files.put("own.pem", &own.certificate);
        files.put("own-key.pem", &own.key);
        files
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Puts a file in the place of the one that is there, as a whole.
    pub(crate) fn put(&self, name: &str, text: &str) {
        let beside = self.path("new");
        std::fs::write(&beside, text).unwrap();
        std::fs::rename(beside, self.path(name)).unwrap();
    }

    pub(crate) fn gateway(&self) -> Settings {
        Gateway::embedded()
            .flag("--tls-cert-file", flag(&self.path("own.pem")))
            .flag("--tls-key-file", flag(&self.path("own-key.pem")))
    }

    /// One that takes certificates of this authority, which has revoked what this list says.
    pub(crate) fn gateway_for(&self, callers: &Authority, list: &str) -> Settings {
        self.put("callers.pem", &callers.pem());
        self.put("revoked.pem", list);
        self.gateway()
            .flag("--tls-client-ca-file", flag(&self.path("callers.pem")))
            .flag("--tls-client-crl-file", flag(&self.path("revoked.pem")))
    }
}

fn flag(path: &Path) -> &str {
    path.to_str().unwrap()
}

pub(crate) fn url(gateway: &Gateway, path: &str) -> String {
    format!("https://{}{path}", gateway.address())
}

pub(crate) async fn answers(gateway: &Gateway, caller: &Client) -> bool {
    let answer = caller.get(url(gateway, "/readyz")).send().await;
    answer.is_ok_and(|answer| answer.status() == 200)
}

pub(crate) async fn is_ready(gateway: &Gateway, caller: &Client) {
    eventually("it answers by TLS", async || answers(gateway, caller).await.then_some(())).await;
}

/// The value of a metric, if there is one.
pub(crate) async fn metric(gateway: &Gateway, caller: &Client, name: &str) -> Option<String> {
    let metrics = caller.get(url(gateway, "/metrics")).send().await.unwrap().text().await.unwrap();
    let mut values = metrics.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    values.next().map(str::to_owned)
}

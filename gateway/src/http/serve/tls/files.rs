//! The files that TLS is made of, and what is made of them.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use tokio_rustls::rustls::crypto::aws_lc_rs::{Ticketer, default_provider};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer, PrivateKeyDer,
};
use tokio_rustls::rustls::server::{
    NoServerSessionStorage, ServerSessionMemoryCache, WebPkiClientVerifier,
};
use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use x509_parser::certificate::Validity;
use x509_parser::oid_registry::OID_X509_EXT_ISSUER_DISTRIBUTION_POINT;
use x509_parser::prelude::{CertificateRevocationList, FromDer as _, X509Certificate};

/// Bytes of a file.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Sessions of TLS 1.2 that can be gone on with.
const SESSIONS_MAX: usize = 1024;

/// The files that the settings name.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// The gateway's certificate, and behind it those between it and its authority.
    pub cert: PathBuf,
    /// The key of that certificate.
    pub key: PathBuf,
    /// Whose certificates callers must have, if they must.
    pub clients: Option<ClientFiles>,
}

/// Who is let in.
#[derive(Debug, Clone)]
pub struct ClientFiles {
    /// The authorities that sign callers' certificates.
    pub ca: PathBuf,
    /// Certificates that are revoked.
    pub crl: Option<PathBuf>,
}

/// What the files were when they were looked at: device, file, length, and the times of change of
/// each and of its rights.
pub(super) type Seen = Vec<Option<(u64, u64, u64, [(i64, i64); 2])>>;

/// What connections are secured with.
pub(super) struct Loaded {
    pub(super) config: Arc<ServerConfig>,
    /// When the certificate ends, in seconds since 1970.
    pub(super) expires: i64,
    /// Whether it is in date now.
    pub(super) is_in_date: bool,
}

impl TlsFiles {
    fn all(&self) -> impl Iterator<Item = &Path> {
        let clients = self.clients.iter();
        let clients = clients.flat_map(|files| [Some(&files.ca), files.crl.as_ref()]).flatten();
        [&self.cert, &self.key].into_iter().chain(clients).map(PathBuf::as_path)
    }

    /// What they are now. Links are followed: a volume of Kubernetes changes by changing one.
    pub(super) fn seen(&self) -> Seen {
        let seen = |path: &Path| {
            let file = fs::metadata(path).ok()?;
            let times = [(file.mtime(), file.mtime_nsec()), (file.ctime(), file.ctime_nsec())];
            Some((file.dev(), file.ino(), file.len(), times))
        };
        self.all().map(seen).collect()
    }

    /// Reads all of them. TLS 1.3 and 1.2, HTTP/1.1 alone, and no data before the handshake has ended: it could be sent
    /// again by somebody else.
    ///
    /// # Errors
    /// Which of them cannot be used, and why.
    pub(super) fn load(&self) -> anyhow::Result<Loaded> {
        let chain: Vec<CertificateDer<'static>> = all_of(&self.cert, "certificate")?;
        let key = read(&self.key)?;
        let key = PrivateKeyDer::from_pem_slice(&key)
            .with_context(|| format!("{}: it has no private key", self.key.display()))?;
        let unreadable = || format!("{}: its certificate cannot be read", self.cert.display());
        let validity = chain.iter().map(validity).collect::<anyhow::Result<Vec<_>>>();
        let validity = validity.with_context(unreadable)?.swap_remove(0);
        let (expires, is_in_date) = (validity.not_after.timestamp(), validity.is_valid());
        let provider = Arc::new(default_provider());
        let config = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()?;
        let config = match &self.clients {
            None => config.with_no_client_auth(),
            Some(ClientFiles { ca, crl }) => {
                let mut roots = RootCertStore::empty();
                for root in all_of(ca, "certificate")? {
                    let cannot = || format!("{}: a certificate cannot be used", ca.display());
                    roots.add(root).with_context(cannot)?;
                }
                let mut clients =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                if let Some(crl) = crl {
                    let lists: Vec<CertificateRevocationListDer<'static>> =
                        all_of(crl, "list of revoked certificates")?;
                    one_of_each(&lists).with_context(|| format!("{}", crl.display()))?;
                    // Those that there is no list for are let in: lists of the authorities in between are optional.
                    clients = clients.with_crls(lists).allow_unknown_revocation_status();
                }
                let cannot = || "the authorities of callers cannot be used".to_owned();
                config.with_client_cert_verifier(clients.build().with_context(cannot)?)
            }
        };
        let mut config = config.with_single_cert(chain, key).with_context(|| {
            format!("{} and {} do not go together", self.cert.display(), self.key.display())
        })?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        if self.clients.is_some() {
            // Whoever goes on with a session is not asked for a certificate again, which may have ended since.
            config.send_tls13_tickets = 0;
            config.session_storage = Arc::new(NoServerSessionStorage {});
        } else {
            // New ones with each change.
            config.ticketer = Ticketer::new()?;
            config.session_storage = ServerSessionMemoryCache::new(SESSIONS_MAX);
        }
        Ok(Loaded { config: Arc::new(config), expires, is_in_date })
    }
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    let shown = path.display();
    let file = fs::metadata(path).with_context(|| format!("{shown}"))?;
    ensure!(file.len() <= FILE_BYTES_MAX, "{shown}: it has more than {FILE_BYTES_MAX} bytes");
    fs::read(path).with_context(|| format!("{shown}"))
}

/// All of a kind in a file, at least one.
fn all_of<T: PemObject>(path: &Path, what: &str) -> anyhow::Result<Vec<T>> {
    let text = read(path)?;
    let found: Result<Vec<T>, _> = T::pem_slice_iter(&text).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => bail!("{}: it has no {what}", path.display()),
        Err(error) => bail!("{}: it is no PEM: {error}", path.display()),
    }
}

fn validity(certificate: &CertificateDer<'_>) -> anyhow::Result<Validity> {
    let (_, certificate) = X509Certificate::from_der(certificate)?;
    Ok(certificate.validity().clone())
}

/// Of two lists of one issuer only the first would count, and what the other one revokes would be let in.
fn one_of_each(lists: &[CertificateRevocationListDer<'_>]) -> anyhow::Result<()> {
    let mut issuers = HashSet::new();
    for list in lists {
        let (_, list) = CertificateRevocationList::from_der(list)?;
        let scope =
            list.extensions().iter().find(|it| it.oid == OID_X509_EXT_ISSUER_DISTRIBUTION_POINT);
        let of = (list.issuer().as_raw().to_vec(), scope.map(|it| it.value.to_vec()));
        let issuer = list.issuer().to_string();
        ensure!(issuers.insert(of), "it has two lists of {issuer}: leave the newest alone");
    }
    Ok(())
}

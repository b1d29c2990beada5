//! The files that TLS is made of: when they have changed, and what is in them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use jiff::Timestamp;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs::{Ticketer, default_provider};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{NoServerSessionStorage, ServerSessionMemoryCache};
use x509_parser::certificate::Validity;
use x509_parser::prelude::{FromDer as _, X509Certificate};
use x509_parser::time::ASN1Time;

use super::callers::{Callers, ClientFiles};
use crate::files::{self, FILE_BYTES_MAX};
use crate::seen;

/// Sessions of TLS 1.2 that can be gone on with.
const SESSIONS_MAX: usize = 1024;

/// The files that the settings name.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// The gateway's certificate, and behind it those between it and its authority.
    pub cert: PathBuf,
    /// The key of that certificate.
    pub key: PathBuf,
    /// Whose certificates callers may show, if they are asked for any.
    pub clients: Option<ClientFiles>,
}

/// What the files were when they were looked at.
pub(super) type Seen = Vec<seen::Seen>;

/// What connections are secured with.
pub(super) struct Loaded {
    pub(super) config: Arc<ServerConfig>,
    /// Whose certificates are taken, if callers are asked for any.
    pub(super) callers: Option<Callers>,
    /// When the gateway's own certificate ends, in seconds since 1970.
    pub(super) expires: i64,
    /// Whether that is in date now.
    pub(super) is_in_date: bool,
}

/// What a look at the files found.
pub(super) enum Found {
    /// They are as they were.
    Same,
    /// Somebody was changing them meanwhile.
    Changing,
    /// What they are now, and what is in them.
    Read(Seen, anyhow::Result<Box<Loaded>>),
}

impl TlsFiles {
    fn all(&self) -> impl Iterator<Item = &Path> {
        let clients = self.clients.iter();
        let clients = clients.flat_map(|files| [Some(&files.ca), files.crl.as_ref()]).flatten();
        [&self.cert, &self.key].into_iter().chain(clients).map(PathBuf::as_path)
    }

    /// Tells that the gateway's own certificate is not in date, if it can be read: callers will hold that against it.
    pub fn warning(&self) -> Option<String> {
        let chain = certificates(&self.cert).ok()?;
        let validity = validity(chain.first()?).ok()?;
        let time = |time: ASN1Time| Timestamp::from_second(time.timestamp()).ok();
        let (from, to) = (time(validity.not_before)?, time(validity.not_after)?);
        (!validity.is_valid()).then(|| {
            let cert = self.cert.display();
            format!("tls_cert_file: {cert} is good from {from} to {to}, and not now: callers will refuse it")
        })
    }

    /// What they are now. Links are followed: a volume of Kubernetes changes by changing one.
    pub(super) fn seen(&self) -> Seen {
        self.all().map(seen::Seen::of).collect()
    }

    /// Reads them if they are not what they were before, or must be read anyway. A certificate that is not in date is not
    /// taken in place of another one. Waits for the disk: not for a task that others wait for.
    pub(super) fn look(&self, before: &Seen, must: bool) -> Found {
        let seen = self.seen();
        if seen == *before && !must {
            return Found::Same;
        }
        let loaded = self.load().and_then(|loaded| {
            ensure!(loaded.is_in_date, "the certificate is not in date");
            Ok(Box::new(loaded))
        });
        if self.seen() != seen { Found::Changing } else { Found::Read(seen, loaded) }
    }

    /// Reads all of them. TLS 1.3 and 1.2, HTTP/1.1 alone, and no data before the handshake has ended: it could be sent
    /// again by somebody else.
    ///
    /// # Errors
    /// Which of them cannot be used, and why.
    pub(super) fn load(&self) -> anyhow::Result<Loaded> {
        let chain = certificates(&self.cert)?;
        let key = read(&self.key, FILE_BYTES_MAX)?;
        let key = PrivateKeyDer::from_pem_slice(&key)
            .with_context(|| format!("{}: it has no private key", self.key.display()))?;
        let unreadable = || format!("{}: its certificate cannot be read", self.cert.display());
        let validity = chain.iter().map(validity).collect::<anyhow::Result<Vec<_>>>();
        let validity = validity.with_context(unreadable)?.swap_remove(0);
        let (expires, is_in_date) = (validity.not_after.timestamp(), validity.is_valid());
        let callers = self.clients.as_ref().map(Callers::load).transpose()?;
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()?;
        let config = match &callers {
            None => config.with_no_client_auth(),
            Some(callers) => config.with_client_cert_verifier(callers.verifier()),
        };
        let mut config = config.with_single_cert(chain, key).with_context(|| {
            format!("{} and {} do not go together", self.cert.display(), self.key.display())
        })?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        if callers.is_some() {
            // Whoever goes on with a session is not asked for a certificate again, which may have ended since.
            config.send_tls13_tickets = 0;
            config.session_storage = Arc::new(NoServerSessionStorage {});
        } else {
            // New ones with each change.
            config.ticketer = Ticketer::new()?;
            config.session_storage = ServerSessionMemoryCache::new(SESSIONS_MAX);
        }
        Ok(Loaded { config: Arc::new(config), callers, expires, is_in_date })
    }
}

/// The bytes of a file, which may grow while it is read.
///
/// # Errors
/// It cannot be read, or has more than so many bytes.
pub(super) fn read(path: &Path, bytes_max: u64) -> anyhow::Result<Vec<u8>> {
    files::read(path, bytes_max).with_context(|| format!("{}", path.display()))
}

/// All of a kind in the text of a file, at least one.
///
/// # Errors
/// It has none, or is no PEM.
pub(super) fn all_of<T: PemObject>(path: &Path, text: &[u8], what: &str) -> anyhow::Result<Vec<T>> {
    let found: Result<Vec<T>, _> = T::pem_slice_iter(text).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => bail!("{}: it has no {what}", path.display()),
        Err(error) => bail!("{}: it is no PEM: {error}", path.display()),
    }
}

/// The certificates in a file.
///
/// # Errors
/// It cannot be read, or has none.
pub(super) fn certificates(path: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    all_of(path, &read(path, FILE_BYTES_MAX)?, "certificate")
}

/// From when to when a certificate is good.
///
/// # Errors
/// It cannot be read.
pub(super) fn validity(certificate: &CertificateDer<'_>) -> anyhow::Result<Validity> {
    let (_, certificate) = X509Certificate::from_der(certificate)?;
    Ok(certificate.validity().clone())
}

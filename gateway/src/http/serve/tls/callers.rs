//! Whose certificates are taken from callers: those of some authorities, which have not revoked them.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use sha2::{Digest as _, Sha256};
use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;
use tokio_rustls::rustls::pki_types::{CertificateDer, CertificateRevocationListDer, UnixTime};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use x509_parser::oid_registry::OID_X509_EXT_ISSUER_DISTRIBUTION_POINT;
use x509_parser::prelude::{CertificateRevocationList, FromDer as _, X509Certificate};

use super::files::{all_of, certificates, read};

/// Bytes of a file of lists: some 200,000 certificates that are revoked. Each handshake with a certificate hashes the
/// list of its authority.
const LISTS_BYTES_MAX: u64 = 16 << 20;

/// Who is let in with which certificate.
#[derive(Debug, Clone)]
pub struct ClientFiles {
    /// The authorities that sign callers' certificates.
    pub ca: PathBuf,
    /// Certificates that are revoked.
    pub crl: Option<PathBuf>,
    /// Whether nobody is let in without a certificate.
    pub required: bool,
}

/// Whose certificates are taken.
pub(super) struct Callers {
    verifier: Arc<dyn ClientCertVerifier>,
    /// Verifiers of what each authority alone has signed, by the SHA-256 of its certificate. `verifier` knows what is revoked.
    each: Vec<(String, Arc<dyn ClientCertVerifier>)>,
    made_of: [u8; 32],
    lapse: Option<i64>,
}

impl Callers {
    /// Reads the authorities, and the lists of what they have revoked.
    ///
    /// # Errors
    /// Which of the files cannot be used, and why.
    pub(super) fn load(files: &ClientFiles) -> anyhow::Result<Self> {
        let ClientFiles { ca, crl, required } = files;
        let authorities = certificates(ca)?;
        let mut made_of = Sha256::new();
        let mut roots = RootCertStore::empty();
        let mut each = Vec::new();
        for root in &authorities {
            let cannot = || format!("{}: a certificate cannot be used", ca.display());
            roots.add(root.clone()).with_context(cannot)?;
            let digest = Sha256::digest(root);
            made_of.update(digest);
            each.push((hex::encode(digest), alone(root).with_context(cannot)?));
        }
        let provider = Arc::new(default_provider());
        let mut verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        if !required {
            verifier = verifier.allow_unauthenticated();
        }
        let mut lapse = None;
        if let Some(path) = crl {
            let lists = lists(path)?;
            lapse = checked(&lists, &authorities).with_context(|| path.display().to_string())?;
            lists.iter().for_each(|list| made_of.update(Sha256::digest(list)));
            // What there is no list for is let in: not every authority has one.
            verifier = verifier.with_crls(lists).allow_unknown_revocation_status();
        }
        let cannot = || "the authorities of callers cannot be used".to_owned();
        let verifier = verifier.build().with_context(cannot)?;
        Ok(Self { verifier, each, made_of: made_of.finalize().into(), lapse })
    }

    /// What a handshake asks.
    pub(super) fn verifier(&self) -> Arc<dyn ClientCertVerifier> {
        Arc::clone(&self.verifier)
    }

    /// Whether the same authorities have revoked the same: what was taken with the others is taken with these.
    pub(super) fn is_as(&self, other: &Self) -> bool {
        self.made_of == other.made_of
    }

    /// When the first of the lists is to be replaced by a newer one, in seconds since 1970.
    pub(super) fn lapse(&self) -> Option<i64> {
        self.lapse
    }

    /// The authorities that have signed a caller's certificate, itself or through others: a chain that is good says only that
    /// one of them has.
    pub(super) fn authorities(&self, chain: &[CertificateDer<'_>]) -> Vec<String> {
        let Some((own, between)) = chain.split_first() else { return Vec::new() };
        let has_signed = |alone: &Arc<dyn ClientCertVerifier>| {
            alone.verify_client_cert(own, between, UnixTime::now()).is_ok()
        };
        let each = self.each.iter().filter(|(_, alone)| has_signed(alone));
        each.map(|(digest, _)| digest.clone()).collect()
    }

    /// Tells whether these still have signed it, all of them.
    pub(super) fn have_signed(&self, authorities: &[String], chain: &[CertificateDer<'_>]) -> bool {
        let now = self.authorities(chain);
        authorities.iter().all(|authority| now.contains(authority))
    }

    /// Whether a caller's certificates are taken now, its own first. Hashes the list of its authority.
    pub(super) fn accept(&self, chain: &[CertificateDer<'_>]) -> bool {
        let Some((own, between)) = chain.split_first() else { return false };
        self.verifier.verify_client_cert(own, between, UnixTime::now()).is_ok()
    }
}

/// A verifier of what one authority has signed.
fn alone(root: &CertificateDer<'static>) -> anyhow::Result<Arc<dyn ClientCertVerifier>> {
    let mut roots = RootCertStore::empty();
    roots.add(root.clone())?;
    let provider = Arc::new(default_provider());
    Ok(WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build()?)
}

fn lists(path: &Path) -> anyhow::Result<Vec<CertificateRevocationListDer<'static>>> {
    all_of(path, &read(path, LISTS_BYTES_MAX)?, "list of revoked certificates")
}

/// When the first of these lists lapses, in seconds since 1970.
///
/// # Errors
/// 1. One is not of an authority that is trusted, or not signed by it: each handshake with its certificates would fail,
///    or nothing that it revokes would count.
/// 2. Two are of one issuer: only the first would count, and what the other one revokes would be let in.
fn checked(
    lists: &[CertificateRevocationListDer<'_>],
    authorities: &[CertificateDer<'_>],
) -> anyhow::Result<Option<i64>> {
    let authorities = authorities.iter().map(|der| Ok(X509Certificate::from_der(der)?.1));
    let authorities = authorities.collect::<anyhow::Result<Vec<_>>>()?;
    let (mut issuers, mut lapse) = (HashSet::new(), None);
    for list in lists {
        let (_, list) = CertificateRevocationList::from_der(list)?;
        let issuer = list.issuer();
        let mut of = authorities.iter().filter(|it| it.subject().as_raw() == issuer.as_raw());
        match (of.clone().next(), of.any(|authority| is_signed(&list, authority))) {
            (None, _) => bail!("its list of {issuer} is of no authority in tls_client_ca_file"),
            (Some(_), false) => bail!("its list of {issuer} is not signed by that authority"),
            (Some(_), true) => {}
        }
        let scope =
            list.extensions().iter().find(|it| it.oid == OID_X509_EXT_ISSUER_DISTRIBUTION_POINT);
        let scope = (issuer.as_raw().to_vec(), scope.map(|it| it.value.to_vec()));
        ensure!(issuers.insert(scope), "it has two lists of {issuer}: leave the newest alone");
        let next = list.next_update().map(|next| next.timestamp());
        lapse = lapse.into_iter().chain(next).min();
    }
    Ok(lapse)
}

/// Whether a list is signed with an authority's key, by any method that a handshake takes.
fn is_signed(list: &CertificateRevocationList<'_>, authority: &X509Certificate<'_>) -> bool {
    let key = &authority.public_key().subject_public_key.data;
    let (signed, signature) = (list.tbs_cert_list.as_ref(), &list.signature_value.data);
    let methods = default_provider().signature_verification_algorithms.all;
    methods.iter().any(|method| method.verify_signature(key, signed, signature).is_ok())
}

//! What a client certificate names: one SPIFFE id, or one DNS name. Never its subject.

use fencegate_access::Identity;
use fencegate_access::identity::CertificateName;
use jiff::Timestamp;
use sha2::{Digest as _, Sha256};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// The holder of a client certificate, whose chain is good and leads to these authorities; nobody if it names none, or more than
/// one.
pub fn shown_by_certificate(der: &[u8], authorities: &[String]) -> Option<Identity> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let names = certificate.subject_alternative_name().ok()??;
    let (mut uris, mut hosts) = (Vec::new(), Vec::new());
    for name in &names.value.general_names {
        match name {
            GeneralName::URI(uri) => uris.push(*uri),
            GeneralName::DNSName(host) => hosts.push(*host),
            _ => {}
        }
    }
    let name = match (uris.as_slice(), hosts.as_slice()) {
        ([uri], _) if is_spiffe(uri) => CertificateName::Spiffe((*uri).to_owned()),
        ([], [host]) if is_host(host) => CertificateName::Dns((*host).to_owned()),
        _ => return None,
    };
    let expires = Timestamp::from_second(certificate.validity().not_after.timestamp()).ok()?;
    let (fingerprint, authorities) = (hex::encode(Sha256::digest(der)), authorities.to_vec());
    Some(Identity::Certificate { name, fingerprint, authorities, expires })
}

/// A SPIFFE id with a trust domain and a path (<https://github.com/spiffe/spiffe/blob/main/standards/SPIFFE-ID.md>).
fn is_spiffe(uri: &str) -> bool {
    let Some((domain, path)) = uri.strip_prefix("spiffe://").and_then(|rest| rest.split_once('/'))
    else {
        return false;
    };
    let in_domain =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-_".contains(&byte);
    let in_path = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    let is_segment =
        |segment: &str| !matches!(segment, "" | "." | "..") && segment.bytes().all(in_path);
    !domain.is_empty()
        && domain.bytes().all(in_domain)
        && uri.len() <= 2048
        && path.split('/').all(is_segment)
}

/// A DNS name in lower case, without a wildcard.
fn is_host(host: &str) -> bool {
    let in_label = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    host.len() <= 253
        && host.split('.').all(|label| {
            (1..=63).contains(&label.len())
                && label.bytes().all(in_label)
                && !label.starts_with('-')
                && !label.ends_with('-')
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_as_they_are_or_not_at_all() {
        for good in ["spiffe://example.org/ops/a", "spiffe://td/p"] {
            assert!(is_spiffe(good), "{good}");
        }
        for bad in [
            "spiffe://TD/p",
            "SPIFFE://td/p",
            "spiffe://td",
            "spiffe://td/",
            "spiffe://td//p",
            "spiffe:///p",
            "spiffe://td/../p",
            "spiffe://td/p?q",
            "https://td/p",
            "spiffe://td/p%41",
        ] {
            assert!(!is_spiffe(bad), "{bad}");
        }
        assert!(is_host("worker.example.com") && is_host("w"));
        for bad in ["*.example.com", "", "a..b", "A.example", "-a", "a-", "a_b"] {
            assert!(!is_host(bad), "{bad}");
        }
    }
}

//! Causes for which no gateway is reached: those that pass, and those that no wait can mend.

use reqwest::Method;
use rustls::{AlertDescription, CertificateError};

use super::answer::{Nothing, causes};

/// Cause for which no gateway was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unreached {
    /// Nobody answers there, at least not now.
    Away,
    /// There is no such name.
    Name,
    /// The certificate there is not trusted.
    Untrusted,
    /// No TLS is spoken there, and the URL begins with `https`.
    NoTls,
    /// TLS is spoken there, and the URL begins with `http`.
    Tls,
    /// A certificate of the caller is missing, or was refused.
    Certificate,
}

impl Unreached {
    /// Tells a cause that no wait can mend from one that may pass. A name may be made known meanwhile.
    pub(crate) fn lasts(self) -> bool {
        !matches!(self, Self::Away | Self::Name)
    }
}

/// Tells if such a failure ends a call that nothing has ever answered. A request that changes something goes on being asked
/// after if any of it may have been sent: that it took no effect is not known.
pub(super) fn ends_call(nothing: &Nothing, method: &Method) -> bool {
    let is_harmless = !nothing.was_sent || method.is_safe();
    is_harmless && nothing.unreached.is_some_and(Unreached::lasts)
}

/// Cause for which an attempt at this base URL got no answer, and the text of it.
pub(super) fn why(base: &str, error: &reqwest::Error) -> (Option<Unreached>, String) {
    let first = found(error);
    let last = causes_from(error);
    match first {
        Some(Unreached::Untrusted) => {
            (first, format!("the certificate of {base} is not trusted: {last}"))
        }
        Some(Unreached::NoTls) => (first, format!("no TLS is spoken at {base}: {last}")),
        Some(Unreached::Certificate) => {
            (first, format!("a certificate of the caller is missing or refused at {base}: {last}"))
        }
        Some(Unreached::Name) => (first, format!("the name in {base} is not known: {last}")),
        _ if error.is_connect() => {
            (Some(Unreached::Away), format!("no gateway answers at {base}: {last}"))
        }
        _ => (None, format!("no answer from {base}: {}", causes(error))),
    }
}

/// Walks from an error to its root. An I/O error holds its cause where `source` does not show it.
fn chain(error: &reqwest::Error) -> Vec<&(dyn std::error::Error + 'static)> {
    let mut all: Vec<&(dyn std::error::Error + 'static)> = Vec::new();
    let mut next = std::error::Error::source(error);
    while let Some(cause) = next {
        all.push(cause);
        let within = cause.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        next = match within {
            Some(within) => Some(within),
            None => cause.source(),
        };
    }
    all
}

fn causes_from(error: &reqwest::Error) -> String {
    chain(error).last().map_or_else(|| error.to_string(), ToString::to_string)
}

fn found(error: &reqwest::Error) -> Option<Unreached> {
    let chain = chain(error);
    let tls = chain.iter().find_map(|cause| cause.downcast_ref::<rustls::Error>());
    match tls {
        Some(tls) => of_tls(tls),
        // The resolver of the system says it in words alone; a failure that passes is one of the other kind.
        None => {
            let is_name = chain.iter().any(|cause| cause.to_string() == "dns error");
            let passes = chain.iter().any(|cause| cause.to_string().contains("Temporary failure"));
            (is_name && !passes).then_some(Unreached::Name)
        }
    }
}

fn of_tls(error: &rustls::Error) -> Option<Unreached> {
    use AlertDescription as Alert;
    match error {
        // A clock that is wrong on this side is set right by people.
        rustls::Error::InvalidCertificate(CertificateError::UnknownRevocationStatus) => None,
        rustls::Error::InvalidCertificate(_) => Some(Unreached::Untrusted),
        rustls::Error::InvalidMessage(_) => Some(Unreached::NoTls),
        rustls::Error::AlertReceived(
            Alert::CertificateRequired
            | Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::UnknownCA
            | Alert::AccessDenied,
        ) => Some(Unreached::Certificate),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_have_been_sent_to_change_something_is_asked_after() {
        let ends = |was_sent, unreached, method| {
            let nothing = Nothing { was_sent, timed_out: false, unreached, detail: String::new() };
            ends_call(&nothing, &method)
        };
        for cause in [Unreached::Untrusted, Unreached::NoTls, Unreached::Certificate] {
            assert!(
                !ends(true, Some(cause), Method::PUT) && !ends(true, Some(cause), Method::POST)
            );
            assert!(ends(true, Some(cause), Method::GET) && ends(false, Some(cause), Method::PUT));
        }
        for cause in [None, Some(Unreached::Away), Some(Unreached::Name)] {
            assert!(!ends(false, cause, Method::GET), "{cause:?} may pass");
        }
    }
}

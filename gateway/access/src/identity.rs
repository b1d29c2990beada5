//! What a request shows of who sent it, and why that may be nobody.

use std::collections::BTreeMap;
use std::sync::Arc;

use fencegate_wire::PrincipalName;
use jiff::Timestamp;

use crate::key::ApiKey;
use crate::pattern::Variable;
use crate::rules::Issuer;

/// Who sent a request, as far as that was verified: signatures and chains have been checked, an API key has not.
#[derive(Debug, Clone)]
pub enum Identity {
    /// An API key, as it was presented.
    Key(ApiKey),
    /// A token whose signature and audience are good, and that is good already. It may have expired.
    Jwt {
        /// The issuer that it was held against. Under other rules it counts only if they say the same of that issuer.
        issuer: Arc<Issuer>,
        /// Its claims that are texts.
        claims: BTreeMap<String, String>,
        /// From when on it is not taken: its `exp`, and what clocks may differ.
        expires: Timestamp,
    },
    /// A client certificate whose chain is good.
    Certificate {
        /// Its one name.
        name: CertificateName,
        /// Its SHA-256, as 64 hexadecimal digits.
        fingerprint: String,
        /// The SHA-256 of the certificate of each authority that has signed it, itself or through others.
        authorities: Vec<String>,
        /// When it ends.
        expires: Timestamp,
    },
    /// A process on this machine, at a socket.
    Unix {
        /// Its user.
        uid: u32,
        /// Its group.
        gid: u32,
    },
    /// A request of S3 that was signed with a principal's key.
    S3Key {
        /// By which the rules name it.
        kid: String,
    },
    /// A request of S3 that was signed with the key of a lock: its principal asks, by the credential that took the lock or
    /// renewed it last.
    S3Lock {
        /// The lock's principal.
        principal: PrincipalName,
        /// The name of that credential; none of a lock that another principal has handed over.
        credential: Option<String>,
        /// The end of a token or a certificate; the rules say that of a key.
        ends: Option<Timestamp>,
    },
}

/// The most characters of a credential's name.
const CREDENTIAL_CHARS_MAX: usize = 256;

/// What a certificate names. Never its subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CertificateName {
    /// Its one URI, `spiffe://DOMAIN/PATH`.
    Spiffe(String),
    /// Its one DNS name.
    Dns(String),
}

impl Identity {
    /// The name by which it is revoked, and which the audit has. Never a secret.
    pub fn credential(&self) -> String {
        let name = match self {
            Self::Key(key) => format!("key:{}", key.kid()),
            Self::Jwt { issuer, claims, .. } => match claims.get("jti") {
                Some(id) => format!("jti:{}#{id}", issuer.name),
                None => format!("jwt:{}", issuer.name),
            },
            Self::Certificate { fingerprint, .. } => format!("cert:sha256:{fingerprint}"),
            Self::Unix { uid, .. } => format!("unix:{uid}"),
            Self::S3Key { kid } => format!("key:{kid}"),
            Self::S3Lock { credential, .. } => {
                credential.clone().unwrap_or_else(|| "s3-lock".to_owned())
            }
        };
        shortened(&name)
    }

    /// What a variable stands for, but for the principal's own name.
    pub(crate) fn value_of(&self, variable: &Variable) -> Option<String> {
        match (variable, self) {
            (Variable::Claim(name), Self::Jwt { claims, .. }) => claims.get(name).cloned(),
            (Variable::Spiffe, Self::Certificate { name: CertificateName::Spiffe(id), .. }) => {
                let (_, path) = id.strip_prefix("spiffe://")?.split_once('/')?;
                Some(path.to_owned())
            }
            (Variable::Dns, Self::Certificate { name: CertificateName::Dns(name), .. }) => {
                Some(name.clone())
            }
            _ => None,
        }
    }

    /// When it ends by itself; a key's end is in the rules.
    pub fn expires(&self) -> Option<Timestamp> {
        match self {
            Self::Jwt { expires, .. } | Self::Certificate { expires, .. } => Some(*expires),
            Self::S3Lock { ends, .. } => *ends,
            Self::Key(_) | Self::Unix { .. } | Self::S3Key { .. } => None,
        }
    }
}

/// The name of a credential as it is kept: an issuer may give its tokens ids of any length.
pub(crate) fn shortened(name: &str) -> String {
    name.chars().take(CREDENTIAL_CHARS_MAX).collect()
}

/// Why an identity is nobody's. For the log: callers are told no more than that it is not good, or that it has ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unauthenticated {
    /// No principal has a key with this id.
    #[error("no key has this id")]
    UnknownKey,
    /// A principal has a key with this id, and another secret.
    #[error("it is not the secret of this key")]
    WrongSecret,
    /// It was good until then.
    #[error("it expired at {0}")]
    Expired(Timestamp),
    /// The rules name it as revoked.
    #[error("it is revoked")]
    Revoked,
    /// No principal's conditions hold for it.
    #[error("no principal matches it")]
    Nobody,
    /// The conditions of more than one principal hold: which one is meant?
    #[error("it matches both principals `{0}` and `{1}`")]
    Ambiguous(String, String),
    /// A value that stands in a principal's name makes it no name.
    #[error("its principal would have the name `{0}`, which is none")]
    NoName(String),
}

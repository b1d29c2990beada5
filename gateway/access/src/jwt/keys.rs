//! The public keys of an issuer (JWKS, RFC 7517).

use std::collections::BTreeMap;

use jsonwebtoken::DecodingKey;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, PublicKeyUse};
use serde::Deserialize;
use serde_json::Value;

use crate::rules::Algorithm;

/// Bytes of a set of keys.
pub const KEYS_BYTES_MAX: usize = 256 * 1024;
/// Keys in a set.
const KEYS_MAX: usize = 100;

/// Why a text is no set of keys.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeysError {
    /// More bytes or keys than a set has.
    #[error("a set has at most {KEYS_MAX} keys in {KEYS_BYTES_MAX} bytes")]
    TooLong,
    /// It is no JSON of that kind.
    #[error("it is no JWKS: {0}")]
    Unreadable(String),
    /// Two keys with one id, for one algorithm.
    #[error("two keys have the id {0:?}")]
    Twice(String),
}

/// The keys that an issuer signs with, as they were read last.
pub struct TokenKeys(BTreeMap<(String, Kind), (DecodingKey, Option<String>)>);

/// What a key can be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Rsa,
    P256,
    P384,
    Ed25519,
}

impl TokenKeys {
    /// Reads a set. Keys of other kinds, for encryption, or without an id are passed over; so issuers may have them. A set
    /// without any is a set: so an issuer withdraws all of its keys.
    pub fn parse(json: &str) -> Result<Self, KeysError> {
        #[derive(Deserialize)]
        struct Set {
            keys: Vec<Value>,
        }
        if json.len() > KEYS_BYTES_MAX {
            return Err(KeysError::TooLong);
        }
        let set: Set =
            serde_json::from_str(json).map_err(|error| KeysError::Unreadable(error.to_string()))?;
        if set.keys.len() > KEYS_MAX {
            return Err(KeysError::TooLong);
        }
        let mut keys = BTreeMap::new();
        for value in set.keys {
            let Some((kid, kind, key)) = usable(&value) else { continue };
            let only_for = value.get("alg").and_then(Value::as_str).map(str::to_owned);
            if keys.insert((kid.clone(), kind), (key, only_for)).is_some() {
                return Err(KeysError::Twice(kid));
            }
        }
        Ok(Self(keys))
    }

    /// Tells whether no key is in it that can be used: then no token is taken.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The key with this id, if it is one for this algorithm.
    pub(super) fn find(&self, kid: &str, algorithm: Algorithm) -> Option<&DecodingKey> {
        let (key, only_for) = self.0.get(&(kid.to_owned(), algorithm.kind()))?;
        let fits = only_for.as_deref().is_none_or(|only| only == algorithm.as_str());
        fits.then_some(key)
    }
}

fn usable(value: &Value) -> Option<(String, Kind, DecodingKey)> {
    let jwk = Jwk::deserialize(value).ok()?;
    let signs = matches!(jwk.common.public_key_use, None | Some(PublicKeyUse::Signature));
    let kind = match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => Kind::Rsa,
        AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P256 => Kind::P256,
        AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P384 => Kind::P384,
        AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => {
            Kind::Ed25519
        }
        _ => return None,
    };
    let key = DecodingKey::from_jwk(&jwk).ok()?;
    signs.then_some((jwk.common.key_id.clone()?, kind, key))
}

impl Algorithm {
    /// What stands in a token as `alg`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RS256 => "RS256",
            Self::PS256 => "PS256",
            Self::ES256 => "ES256",
            Self::ES384 => "ES384",
            Self::EdDSA => "EdDSA",
        }
    }

    fn kind(self) -> Kind {
        match self {
            Self::RS256 | Self::PS256 => Kind::Rsa,
            Self::ES256 => Kind::P256,
            Self::ES384 => Kind::P384,
            Self::EdDSA => Kind::Ed25519,
        }
    }
}

impl From<Algorithm> for jsonwebtoken::Algorithm {
    fn from(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::RS256 => Self::RS256,
            Algorithm::PS256 => Self::PS256,
            Algorithm::ES256 => Self::ES256,
            Algorithm::ES384 => Self::ES384,
            Algorithm::EdDSA => Self::EdDSA,
        }
    }
}

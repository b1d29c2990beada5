//! Somebody who signs tokens, also such as no library would make.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]
#![expect(clippy::disallowed_methods, reason = "the times in tokens are those of the real clock")]

use std::path::Path;

use aws_lc_rs::encoding::{AsDer as _, PublicKeyX509Der};
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jiff::Timestamp;
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, crypto};
use serde_json::{Value, json};

/// What stands in tokens as `iss`.
pub(super) const ISSUER: &str = "https://issuer.example";

/// A key that signs, and what everybody may know of it.
pub(super) struct Signer {
    kid: String,
    signing: EncodingKey,
    /// As it stands in a set of keys.
    pub(super) public: Value,
    /// The two numbers that it is, behind a byte.
    pub(super) point: Vec<u8>,
    /// The same with what says of which kind it is.
    pub(super) der: Vec<u8>,
}

impl Signer {
    pub(super) fn new(kid: &str) -> Self {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
        let signing = EncodingKey::from_ec_der(pair.to_pkcs8v1().unwrap().as_ref());
        let public = Jwk::from_encoding_key(&signing, Algorithm::ES256).unwrap();
        let mut public = serde_json::to_value(public).unwrap();
        public["kid"] = kid.into();
        public["use"] = "sig".into();
        let known = pair.public_key();
        let der: PublicKeyX509Der<'_> = known.as_der().unwrap();
        let (point, der) = (known.as_ref().to_vec(), der.as_ref().to_vec());
        Self { kid: kid.to_owned(), signing, public, point, der }
    }

    /// The public key as files have it.
    pub(super) fn pem(&self) -> String {
        let text = STANDARD.encode(&self.der);
        let (first, second) = text.split_at(64);
        format!("-----BEGIN PUBLIC KEY-----\n{first}\n{second}\n-----END PUBLIC KEY-----\n")
    }

    /// The head of a good token.
    pub(super) fn head(&self) -> Value {
        json!({ "alg": "ES256", "kid": self.kid, "typ": "JWT" })
    }

    /// A token whose signature is good, whatever it says.
    pub(super) fn signed(&self, head: &str, claims: &str) -> String {
        signed_by(head, claims, &self.signing, Algorithm::ES256)
    }

    /// A token with these claims.
    pub(super) fn claiming(&self, claims: &Value) -> String {
        self.signed(&self.head().to_string(), &claims.to_string())
    }

    /// A good token of this subject.
    pub(super) fn token(&self, sub: &str) -> String {
        self.claiming(&claims(sub))
    }
}

/// Two parts of a token and the signature that this key and this algorithm make of them.
pub(super) fn signed_by(
    head: &str,
    claims: &str,
    key: &EncodingKey,
    algorithm: Algorithm,
) -> String {
    let signed = format!("{}.{}", part(head), part(claims));
    let signature = crypto::sign(signed.as_bytes(), key, algorithm).unwrap();
    format!("{signed}.{signature}")
}

/// A part of a token.
pub(super) fn part(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// What a good token says.
pub(super) fn claims(sub: &str) -> Value {
    json!({ "iss": ISSUER, "aud": "fencegate", "sub": sub, "exp": in_seconds(600), "jti": "one" })
}

/// So many seconds from now, as tokens say it.
pub(super) fn in_seconds(seconds: i64) -> i64 {
    Timestamp::now().as_second() + seconds
}

/// The set of these keys, as an issuer publishes it.
pub(super) fn set(signers: &[&Signer]) -> String {
    let keys: Vec<_> = signers.iter().map(|signer| &signer.public).collect();
    json!({ "keys": keys }).to_string()
}

/// Puts a set of keys in the place of the one that is there, as a whole.
pub(super) fn publish(file: &Path, signers: &[&Signer]) {
    let beside = file.with_extension("new");
    std::fs::write(&beside, set(signers)).unwrap();
    std::fs::rename(&beside, file).unwrap();
}

/// Rules for an issuer, and for principals who are named by the subjects that begin with `billing:`.
pub(super) fn trusted(name: &str, issuer: &str, keys: &str) -> String {
    format!(
        "[[issuers]]\nname = \"{name}\"\nissuer = \"{issuer}\"\naudience = \"fencegate\"\n\
         {keys}\nalgorithms = [\"ES256\"]\n\
         [[principals]]\nname = \"{name}/${{sub}}\"\nroles = [\"worker\"]\n\
         match = {{ issuer = \"{name}\", sub = \"billing:*\" }}\n"
    )
}

/// The same for the keys of a file.
pub(super) fn trusted_by_file(file: &Path) -> String {
    trusted("job", ISSUER, &format!("jwks_file = \"{}\"", file.display()))
}

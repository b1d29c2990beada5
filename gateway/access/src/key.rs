//! API keys: `fgk_<kid>_<secret>_<checksum>`.
//!
//! The secret has 256 random bits, so a fast hash of it is enough: there is nothing to guess. The prefix and the
//! checksum let scanners of source code find a key that leaked, and tell it from what only looks like one.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Deserializer};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

/// What every key begins with.
const PREFIX: &str = "fgk_";
/// Characters of an id that we make; rules may have shorter and longer ones.
const KID_LEN: usize = 10;
/// The longest id.
pub const KID_LEN_MAX: usize = 32;
/// Characters of a secret: 32 bytes in base64url without padding.
const SECRET_LEN: usize = 43;
/// Characters of a checksum: 32 bits with 62 digits.
const CHECKSUM_LEN: usize = 6;

const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// A key, in the hands of whoever made it or presents it. What it prints for debugging is not the secret.
#[derive(Clone)]
pub struct ApiKey {
    text: String,
    kid_len: usize,
}

impl ApiKey {
    /// Makes a new key, or fails as the system's source of random bytes does.
    pub fn generate() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; KID_LEN + 32];
        getrandom::fill(&mut bytes)?;
        let (kid, secret) = bytes.split_at(KID_LEN);
        // Of 256 values 32 are one letter: no remainder, so no letter is likelier than another.
        let kid: String = kid
            .iter()
            .map(|byte| char::from(b"abcdefghijklmnopqrstuvwxyz234567"[usize::from(byte % 32)]))
            .collect();
        Ok(Self::made_of(&kid, &URL_SAFE_NO_PAD.encode(secret)))
    }

    fn made_of(kid: &str, secret: &str) -> Self {
        let body = format!("{PREFIX}{kid}_{secret}");
        let text = format!("{body}_{}", checksum(&body));
        Self { text, kid_len: kid.len() }
    }

    /// Reads what a caller presents. A key with a character more, less or changed is none.
    pub fn parse(text: &str) -> Option<Self> {
        let (kid, rest) = text.strip_prefix(PREFIX)?.split_once('_')?;
        if !is_kid(kid) || rest.len() != SECRET_LEN + 1 + CHECKSUM_LEN || !rest.is_ascii() {
            return None;
        }
        let secret = &rest[..SECRET_LEN];
        // The decoder refuses spare bits that are set, so no two texts are one secret.
        let bytes = URL_SAFE_NO_PAD.decode(secret).ok()?;
        let key = Self::made_of(kid, secret);
        (bytes.len() == 32 && key.text == text).then_some(key)
    }

    /// The id, by which rules and logs name the key. It is no secret.
    pub fn kid(&self) -> &str {
        &self.text[PREFIX.len()..PREFIX.len() + self.kid_len]
    }

    /// The whole key, secret included: to be shown once, to whoever asked for it.
    pub fn reveal(&self) -> &str {
        &self.text
    }

    /// What rules keep of it.
    pub fn digest(&self) -> KeyDigest {
        KeyDigest(Sha256::digest(&self.text).into())
    }
}

/// Takes the same time wherever two keys of one length differ.
impl PartialEq for ApiKey {
    fn eq(&self, other: &Self) -> bool {
        self.text.as_bytes().ct_eq(other.text.as_bytes()).into()
    }
}

impl Eq for ApiKey {}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ApiKey({})", self.kid())
    }
}

/// Whether this may be the id of a key.
pub fn is_kid(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    (1..=KID_LEN_MAX).contains(&text.len()) && text.bytes().all(allowed)
}

fn checksum(body: &str) -> String {
    let mut rest = crc32fast::hash(body.as_bytes()) as usize;
    let mut digits = [b'0'; CHECKSUM_LEN];
    for digit in digits.iter_mut().rev() {
        *digit = DIGITS[rest % DIGITS.len()];
        rest /= DIGITS.len();
    }
    digits.map(char::from).iter().collect()
}

/// The SHA-256 of a whole key, in rules as 64 hexadecimal digits.
#[derive(Debug, Clone, Copy)]
pub struct KeyDigest([u8; 32]);

impl KeyDigest {
    /// Whether it is the digest of this key. Takes the same time wherever it differs.
    pub fn is_digest_of(&self, presented: &ApiKey) -> bool {
        self.0.ct_eq(&presented.digest().0).into()
    }

    /// As rules have it.
    pub fn to_hex(self) -> String {
        hex::encode(self.0)
    }
}

impl<'de> Deserialize<'de> for KeyDigest {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let mut bytes = [0; 32];
        let is_read = hex::decode_to_slice(&text, &mut bytes).is_ok();
        if !is_read || text.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return Err(serde::de::Error::custom(
                "a digest has 64 hexadecimal digits in lower case",
            ));
        }
        Ok(Self(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_key_is_read_again_and_no_other_has_its_digest() {
        let (one, other) =
            (ApiKey::generate().expect("random bytes"), ApiKey::generate().expect("random bytes"));
        assert_eq!(ApiKey::parse(one.reveal()), Some(one.clone()));
        assert_ne!(one, other);
        assert!(one.digest().is_digest_of(&one) && !one.digest().is_digest_of(&other));
        assert_eq!(one.kid().len(), KID_LEN);
        assert_eq!(one.digest().to_hex(), hex::encode(Sha256::digest(one.reveal())));
        assert_eq!(format!("{one:?}"), format!("ApiKey({})", one.kid()));
    }

    /// Worked out by hand with Python: `zlib.crc32`, six digits to the base 62.
    #[test]
    fn the_checksum_is_the_one_that_is_documented() {
        let secret = "A".repeat(SECRET_LEN);
        assert_eq!(ApiKey::made_of("a7", &secret).reveal(), format!("fgk_a7_{secret}_0gpdnW"));
    }

    #[test]
    fn a_key_with_any_change_is_none() {
        let key = ApiKey::generate().expect("random bytes");
        let text = key.reveal();
        for at in 0..text.len() {
            let mut changed = text.as_bytes().to_vec();
            changed[at] ^= 1;
            let changed = String::from_utf8(changed).expect("it is ASCII");
            assert_eq!(ApiKey::parse(&changed), None, "{at}");
            assert_eq!(ApiKey::parse(&text[..at]), None, "{at}");
        }
        let secret = &text[text.len() - SECRET_LEN - CHECKSUM_LEN - 1..][..SECRET_LEN];
        let upper = ApiKey::made_of("A7", secret);
        let none = ApiKey::made_of("", secret);
        let long = ApiKey::made_of(&"a".repeat(KID_LEN_MAX + 1), secret);
        let other_bits = ApiKey::made_of("a7", &format!("{}B", "A".repeat(SECRET_LEN - 1)));
        for bad in [
            &format!("{text} "),
            &format!(" {text}"),
            &text.to_uppercase(),
            &format!("{text}\0"),
            upper.reveal(),
            none.reveal(),
            long.reveal(),
            other_bits.reveal(),
            &"ä".repeat(40),
            "",
            "fgk_",
            "fgk__",
        ] {
            assert_eq!(ApiKey::parse(bad), None, "{bad:?}");
        }
    }
}

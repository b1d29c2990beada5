//! What a secret becomes for one day and region, and the signatures that it makes.

use std::fmt;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use subtle::ConstantTimeEq as _;

/// A signature as it is written.
pub(super) type SignatureText = [u8; 64];

/// What a secret becomes for one day and region: to be kept for that day, as making it costs four times what using it
/// does. It prints nothing of itself.
#[derive(Clone)]
pub struct SigningKey(Hmac<Sha256>);

impl SigningKey {
    /// Makes it. `day` is `yyyymmdd`, as [`super::Shown::day`] has it.
    pub fn of(secret: &str, day: &str, region: &str) -> Self {
        let prefixed = [b"AWS4", secret.as_bytes()].concat();
        let steps = [day, region, "s3", "aws4_request"];
        let made = steps.iter().fold(Self::new(&prefixed), |key, step| {
            let mut mac = key.0;
            mac.update(step.as_bytes());
            Self::new(&mac.finalize().into_bytes())
        });
        Self(made.0)
    }

    fn new(key: &[u8]) -> Self {
        // INVARIANT: HMAC takes keys of any length.
        Self(Hmac::new_from_slice(key).expect("HMAC takes this key"))
    }

    /// The signature of what these pieces make together.
    pub(super) fn sign(&self, pieces: &[&[u8]]) -> SignatureText {
        let mut mac = self.0.clone();
        pieces.iter().for_each(|piece| mac.update(piece));
        hex_of(&mac.finalize().into_bytes().into())
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningKey")
    }
}

/// Whether two signatures are the same. Takes the same time wherever they differ.
pub(super) fn is_same(one: &SignatureText, other: &SignatureText) -> bool {
    one.ct_eq(other).into()
}

/// A digest, written.
pub(super) fn hex_of(digest: &[u8; 32]) -> SignatureText {
    let mut text = [0; 64];
    // INVARIANT: 32 bytes have 64 digits.
    hex::encode_to_slice(digest, &mut text).expect("it fits");
    text
}

/// A signature as it was sent: 64 hexadecimal digits in lower case, so that each has one text.
pub(super) fn signature_of(text: &str) -> Option<SignatureText> {
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    text.as_bytes().try_into().ok().filter(|text: &SignatureText| text.iter().all(is_digit))
}

/// A digest as it was sent.
pub(super) fn digest_of_hex(text: &str) -> Option<[u8; 32]> {
    let mut digest = [0; 32];
    signature_of(text).and_then(|text| hex::decode_to_slice(text, &mut digest).ok())?;
    Some(digest)
}

//! What follows from one root: keys, and whose an id is.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use data_encoding::BASE32_NOPAD;
use fencegate_wire::{LockId, Token};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use subtle::ConstantTimeEq as _;
use uuid::Uuid;

use super::{AccessKey, NONCE_LEN, Named, Rights, Root, Secret, is_kid};
use crate::mutants::{self, Mutant};

/// Bytes of an authenticator: nobody makes up an id that is read, except once in 2^64 tries.
pub(super) const TAG_LEN: usize = 8;
/// Bytes of a token and the id of a lock.
pub(super) const LOCK_LEN: usize = 24;

/// What follows from one root: a key for each purpose, so that what is made for one is worth nothing for another.
#[derive(Clone)]
pub(super) struct Derived {
    pub(super) lock_tag: MacKey,
    lock_stream: MacKey,
    secret: MacKey,
    pub(super) principal_tag: MacKey,
    pub(super) anyone_tag: MacKey,
}

impl Derived {
    pub(super) fn of(root: &Root) -> Self {
        let root = MacKey::new(&root.0);
        let derive = |purpose: &str| MacKey::new(&root.of(&[purpose.as_bytes()]));
        Self {
            lock_tag: derive("fencegate s3 lock tag"),
            lock_stream: derive("fencegate s3 lock stream"),
            secret: derive("fencegate s3 secret"),
            principal_tag: derive("fencegate s3 principal tag"),
            anyone_tag: derive("fencegate s3 anyone tag"),
        }
    }

    /// Enciphers or deciphers a token and the id of a lock. The `iv` is their authenticator, so two different texts
    /// share a stream only where their authenticators are the same by chance.
    pub(super) fn cross(&self, iv: &[u8], text: &mut [u8]) {
        for (byte, of_stream) in text.iter_mut().zip(self.lock_stream.of(&[iv])) {
            *byte ^= of_stream;
        }
    }

    pub(super) fn key(&self, form: &str, bytes: &[u8]) -> AccessKey {
        let mut id = form.to_owned();
        BASE32_NOPAD.encode_append(bytes, &mut id);
        AccessKey { secret: self.secret(&id), id }
    }

    pub(super) fn secret(&self, id: &str) -> Secret {
        Secret(URL_SAFE_NO_PAD.encode(self.secret.of(&[id.as_bytes()])))
    }

    pub(super) fn lock(&self, bytes: &[u8]) -> Option<Named> {
        let (iv, enciphered) = bytes.split_at_checked(TAG_LEN)?;
        let mut text: [u8; LOCK_LEN] = enciphered.try_into().ok()?;
        self.cross(iv, &mut text);
        let is_ours = self.lock_tag.is_tag(iv, &[&text]) || mutants::is(Mutant::KeyUnchecked);
        let token = i64::from_be_bytes(*text.first_chunk()?);
        let lock = LockId(Uuid::from_bytes(*text.last_chunk()?));
        Token::new(token).filter(|_| is_ours).map(|token| Named::Lock { token, lock })
    }

    pub(super) fn principal(&self, bytes: &[u8]) -> Option<Named> {
        let (kid, tag) = bytes.split_at_checked(bytes.len().checked_sub(TAG_LEN)?)?;
        let is_ours = self.principal_tag.is_tag(tag, &[kid]);
        let kid = std::str::from_utf8(kid).ok().filter(|kid| is_kid(kid.as_bytes()))?;
        is_ours.then(|| Named::Principal { kid: kid.to_owned() })
    }

    pub(super) fn anyone(&self, bytes: &[u8]) -> Option<Named> {
        let bytes: &[u8; 1 + NONCE_LEN + TAG_LEN] = bytes.try_into().ok()?;
        let (said, tag) = bytes.split_at(1 + NONCE_LEN);
        let rights = match said.first()? {
            0 => Rights::Read,
            1 => Rights::Admin,
            _ => return None,
        };
        self.anyone_tag.is_tag(tag, &[said]).then_some(Named::Anyone(rights))
    }
}

/// HMAC-SHA256 whose key has already been taken in.
#[derive(Clone)]
pub(super) struct MacKey(Hmac<Sha256>);

impl MacKey {
    fn new(key: &[u8; 32]) -> Self {
        // INVARIANT: HMAC takes keys of any length.
        Self(Hmac::new_from_slice(key).expect("HMAC takes this key"))
    }

    pub(super) fn of(&self, text: &[&[u8]]) -> [u8; 32] {
        let mut mac = self.0.clone();
        text.iter().for_each(|piece| mac.update(piece));
        mac.finalize().into_bytes().into()
    }

    fn is_tag(&self, tag: &[u8], text: &[&[u8]]) -> bool {
        tag.len() == TAG_LEN && self.of(text)[..TAG_LEN].ct_eq(tag).into()
    }
}

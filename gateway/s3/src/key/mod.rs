//! Access keys that are derived and stored nowhere: the id says whose key it is, the secret follows from the id.
//!
//! | id | says | form, before base32 |
//! |---|---|---|
//! | `FG1...` | a token and a lock | `iv`, then both enciphered |
//! | `FG2...` | the id of a principal's key | that id, then its authenticator |
//! | `FG3...` | what anyone who has it may do, where there are no rules of access | a byte, a nonce, their authenticator |
//!
//! Ids are in logs and in presigned URLs, and whoever knows a token or a lock's id can use them: so these are enciphered.

mod derived;

use std::fmt;

use data_encoding::BASE32_NOPAD;
use fencegate_wire::{LockId, Token};

use derived::{Derived, LOCK_LEN, TAG_LEN};

/// How ids of keys of locks begin.
const OF_LOCK: &str = "FG1";
/// How ids of keys of principals begin.
const OF_PRINCIPAL: &str = "FG2";
/// How ids of keys of anyone begin.
const OF_ANYONE: &str = "FG3";
/// The longest id of a key, in characters: that of a principal's key with the longest `kid`.
pub const ID_LEN_MAX: usize = 3 + 64;
/// The longest name that rules of access may give a key, in characters.
const KID_LEN_MAX: usize = 32;
/// Bytes by which one key of anyone differs from another of the same rights.
pub const NONCE_LEN: usize = 11;
/// How many roots may be valid at once.
pub const ROOTS_MAX: usize = 4;

/// What all keys follow from: whoever knows it can make the key of any lock. It prints nothing of itself.
#[derive(Clone)]
pub struct Root([u8; 32]);

/// A text is not a root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a root of access keys has 64 hexadecimal digits in lower case")]
pub struct RootError;

impl Root {
    /// Makes a new root, or fails as the system's source of random bytes does.
    pub fn generate() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes)?;
        Ok(Self(bytes))
    }

    /// Reads 64 hexadecimal digits in lower case.
    pub fn parse(text: &str) -> Result<Self, RootError> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes).map_err(|_| RootError)?;
        let is_lower = !text.bytes().any(|byte| byte.is_ascii_uppercase());
        is_lower.then_some(Self(bytes)).ok_or(RootError)
    }

    /// As [`Root::parse`] reads it: to be kept where secrets are kept.
    pub fn reveal(&self) -> String {
        hex::encode(self.0)
    }
}

impl fmt::Debug for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Root")
    }
}

/// What a request is signed with. It prints nothing of itself.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    /// The 43 characters: to be shown to whoever may have the key, and to [`crate::sign::SigningKey`].
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// A key as S3 tools want it.
#[derive(Debug, Clone)]
pub struct AccessKey {
    /// Names the key; it is no secret. Letters `A-Z` and digits `2-7`, and one other digit in third place.
    pub id: String,
    /// What requests are signed with.
    pub secret: Secret,
}

/// What a key of anyone allows, where there are no rules of access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rights {
    /// To read everything.
    Read,
    /// To read everything, and to make and delete buckets. Not to write objects: that takes a lock.
    Admin,
}

/// Whose key an id is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Named {
    /// The key of one lock: what it writes, it writes under this token.
    Lock {
        /// The token of the lock.
        token: Token,
        /// The id of the lock.
        lock: LockId,
    },
    /// A key of a principal; the rules of access say whose.
    Principal {
        /// What the rules call it: `[a-z0-9]{1,32}`.
        kid: String,
    },
    /// A key of whoever has it.
    Anyone(Rights),
}

/// No keys can be made of these roots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("access keys need 1 to {ROOTS_MAX} roots")]
pub struct RootsError;

/// A text is not the id of a principal's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the id of a key has 1 to {KID_LEN_MAX} characters, a-z and 0-9")]
pub struct KidError;

/// Makes and reads keys.
#[derive(Clone)]
pub struct Keys {
    /// Never empty.
    roots: Vec<Derived>,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keys(of {} roots)", self.roots.len())
    }
}

impl Keys {
    /// Keys of these roots: the first makes keys, and keys of all of them are read. To change the root, put the new one
    /// before the old one, and take the old one away when nobody needs its keys any more.
    ///
    /// # Errors
    /// There is no root, or there are more than [`ROOTS_MAX`].
    pub fn new(roots: &[Root]) -> Result<Self, RootsError> {
        let wanted = (1..=ROOTS_MAX).contains(&roots.len());
        wanted.then(|| Self { roots: roots.iter().map(Derived::of).collect() }).ok_or(RootsError)
    }

    fn makes(&self) -> &Derived {
        // INVARIANT: `new` takes no empty list.
        self.roots.first().expect("there is a root")
    }

    /// The key of a lock. The same lock has the same key, whichever gateway is asked, as long as the first root stays.
    pub fn of_lock(&self, token: Token, lock: LockId) -> AccessKey {
        let root = self.makes();
        let mut bytes = [0; TAG_LEN + LOCK_LEN];
        let (iv, text) = bytes.split_at_mut(TAG_LEN);
        text[..8].copy_from_slice(&token.get().to_be_bytes());
        text[8..].copy_from_slice(lock.0.as_bytes());
        iv.copy_from_slice(&root.lock_tag.of(&[&text[..]])[..TAG_LEN]);
        root.cross(iv, text);
        root.key(OF_LOCK, &bytes)
    }

    /// The key that rules of access call `kid`.
    ///
    /// # Errors
    /// `kid` is no such name.
    pub fn of_principal(&self, kid: &str) -> Result<AccessKey, KidError> {
        if !is_kid(kid.as_bytes()) {
            return Err(KidError);
        }
        let root = self.makes();
        let tag = root.principal_tag.of(&[kid.as_bytes()]);
        Ok(root.key(OF_PRINCIPAL, &[kid.as_bytes(), &tag[..TAG_LEN]].concat()))
    }

    /// A key for a gateway without rules of access. Another nonce is another key of the same rights.
    pub fn of_anyone(&self, rights: Rights, nonce: [u8; NONCE_LEN]) -> AccessKey {
        let root = self.makes();
        let right = [match rights {
            Rights::Read => 0,
            Rights::Admin => 1,
        }];
        let tag = root.anyone_tag.of(&[&right, &nonce]);
        root.key(OF_ANYONE, &[&right[..], &nonce, &tag[..TAG_LEN]].concat())
    }

    /// Whose key this is, and its secret: a function of the id and nothing else, so an id names one token for ever (I18).
    /// Whether the lock still stands, the ledger says.
    ///
    /// 1. The id begins as one of the three, and the rest is base32 without padding and without spare bits that are set:
    ///    one sequence of bytes has one text.
    /// 2. Under each root: the authenticator is the one that this root makes. Compared in constant time.
    /// 3. What it says is a token, a `kid`, or a right.
    ///
    /// `None`: the id is nobody's. Nothing was looked up to find that out.
    pub fn read(&self, id: &str) -> Option<(Named, Secret)> {
        if id.len() > ID_LEN_MAX || !id.is_ascii() {
            return None;
        }
        let (form, rest) = id.split_at_checked(OF_LOCK.len())?;
        let bytes = BASE32_NOPAD.decode(rest.as_bytes()).ok()?;
        self.roots.iter().find_map(|root| {
            let named = match form {
                OF_LOCK => root.lock(&bytes),
                OF_PRINCIPAL => root.principal(&bytes),
                OF_ANYONE => root.anyone(&bytes),
                _ => None,
            }?;
            Some((named, root.secret(id)))
        })
    }
}

fn is_kid(text: &[u8]) -> bool {
    let allowed = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    (1..=KID_LEN_MAX).contains(&text.len()) && text.iter().all(allowed)
}

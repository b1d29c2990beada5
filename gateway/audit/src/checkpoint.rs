//! Checkpoints: what a log says of itself, signed. A note as C2SP `tlog-checkpoint` and `signed-note` have it, so that
//! witnesses of others read it.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use sha2::{Digest as _, Sha256};

use crate::tree::Hash;

/// The kind of a signature by the log itself, and of a witness.
const LOG: u8 = 1;
const WITNESS: u8 = 4;
/// A signed note that is longer is not read.
pub const NOTE_BYTES_MAX: usize = 16 * 1024;
/// More lines of signatures than this are not read.
const SIGNATURES_MAX: usize = 32;

/// What a log says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// Which log it is: `fencegate/<ledger>/audit`.
    pub origin: String,
    /// How many leaves it has.
    pub size: u64,
    /// Its root.
    pub root: Hash,
    /// The generation of the ledger.
    pub generation: i64,
}

/// A checkpoint and the signatures under it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedNote {
    text: String,
    signatures: Vec<Signature>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Signature {
    name: String,
    key: [u8; 4],
    bytes: Vec<u8>,
}

/// Why a text is no note, or no checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadNote {
    /// It is longer than a note may be.
    #[error("it is longer than {NOTE_BYTES_MAX} bytes")]
    TooLong,
    /// It has not the form of a signed note.
    #[error("it is no signed note")]
    Form,
    /// Its text is not that of a checkpoint of an audit.
    #[error("its text is not that of a checkpoint of an audit")]
    Text,
}

/// Why a text is no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a key is NAME+HASH+BASE64")]
pub struct BadKey;

impl Checkpoint {
    fn text(&self) -> String {
        let root = BASE64_STANDARD.encode(self.root);
        format!("{}\n{}\n{root}\ngeneration {}\n", self.origin, self.size, self.generation)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.strip_suffix('\n')?.split('\n');
        let (origin, size, root) = (lines.next()?, lines.next()?, lines.next()?);
        let generation = lines.next()?.strip_prefix("generation ")?;
        if origin.is_empty() || lines.next().is_some() {
            return None;
        }
        let checkpoint = Self {
            origin: origin.to_owned(),
            size: size.parse().ok()?,
            root: BASE64_STANDARD.decode(root).ok()?.try_into().ok()?,
            generation: generation.parse().ok()?,
        };
        // One checkpoint has one form: numbers without signs and zeros before them.
        (checkpoint.text() == text).then_some(checkpoint)
    }
}

impl SignedNote {
    /// A note that nobody has signed, where the log has no key.
    pub fn unsigned(checkpoint: &Checkpoint) -> Self {
        Self { text: checkpoint.text(), signatures: Vec::new() }
    }

    /// The checkpoint that it is about.
    ///
    /// # Errors
    /// `Text`.
    pub fn checkpoint(&self) -> Result<Checkpoint, BadNote> {
        Checkpoint::parse(&self.text).ok_or(BadNote::Text)
    }

    /// Whether the log has signed it with this key.
    pub fn is_signed_by(&self, key: &VerifierKey) -> bool {
        self.of(key).any(|signature| key.verifies(self.text.as_bytes(), &signature.bytes))
    }

    /// When a witness says that it saw this, in seconds since 1970; none if it did not sign.
    pub fn is_witnessed_by(&self, key: &VerifierKey) -> Option<u64> {
        self.of(key).find_map(|signature| {
            let (seconds, bytes) = signature.bytes.split_first_chunk::<8>()?;
            let seconds = u64::from_be_bytes(*seconds);
            key.verifies(witnessed(&self.text, seconds).as_bytes(), bytes).then_some(seconds)
        })
    }

    fn of<'s>(&'s self, key: &'s VerifierKey) -> impl Iterator<Item = &'s Signature> {
        self.signatures.iter().filter(|one| one.name == key.name && one.key == key.hash())
    }

    /// Adds the lines of a witness's answer, if they are signatures.
    ///
    /// # Errors
    /// `Form`.
    pub fn and_signed(mut self, lines: &str) -> Result<Self, BadNote> {
        for line in lines.lines() {
            let signature = Signature::parse(line).ok_or(BadNote::Form)?;
            if !self.signatures.contains(&signature) {
                self.signatures.push(signature);
            }
        }
        if self.signatures.len() > SIGNATURES_MAX { Err(BadNote::Form) } else { Ok(self) }
    }
}

impl FromStr for SignedNote {
    type Err = BadNote;

    fn from_str(note: &str) -> Result<Self, BadNote> {
        if note.len() > NOTE_BYTES_MAX {
            return Err(BadNote::TooLong);
        }
        let (text, signatures) = note.rsplit_once("\n\n").ok_or(BadNote::Form)?;
        let unsigned = Self { text: format!("{text}\n"), signatures: Vec::new() };
        match signatures {
            "" => Ok(unsigned),
            lines => unsigned.and_signed(lines.strip_suffix('\n').ok_or(BadNote::Form)?),
        }
    }
}

impl fmt::Display for SignedNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.text)?;
        for signature in &self.signatures {
            let bytes = [&signature.key[..], &signature.bytes].concat();
            writeln!(f, "\u{2014} {} {}", signature.name, BASE64_STANDARD.encode(bytes))?;
        }
        Ok(())
    }
}

impl Signature {
    fn parse(line: &str) -> Option<Self> {
        let (name, bytes) = line.strip_prefix("\u{2014} ")?.split_once(' ')?;
        let bytes = BASE64_STANDARD.decode(bytes).ok()?;
        let (key, bytes) = bytes.split_first_chunk::<4>()?;
        is_name(name).then(|| Self { name: name.to_owned(), key: *key, bytes: bytes.to_vec() })
    }
}

/// What a witness signs.
fn witnessed(text: &str, seconds: u64) -> String {
    format!("cosignature/v1\ntime {seconds}\n{text}")
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(|char: char| char.is_whitespace() || char == '+')
}

/// A key that signs checkpoints: of the log, or of a witness.
pub struct SigningKey {
    pair: Ed25519KeyPair,
    public: VerifierKey,
}

impl SigningKey {
    /// The key of a log, from 32 secret bytes.
    pub fn of_log(name: &str, secret: &[u8; 32]) -> Option<Self> {
        Self::new(name, LOG, secret)
    }

    /// The key of a witness.
    pub fn of_witness(name: &str, secret: &[u8; 32]) -> Option<Self> {
        Self::new(name, WITNESS, secret)
    }

    fn new(name: &str, kind: u8, secret: &[u8; 32]) -> Option<Self> {
        let pair = Ed25519KeyPair::from_seed_unchecked(secret).ok().filter(|_| is_name(name))?;
        let bytes = pair.public_key().as_ref().try_into().ok()?;
        Some(Self { pair, public: VerifierKey { name: name.to_owned(), kind, bytes } })
    }

    /// What others know it by.
    pub fn public(&self) -> &VerifierKey {
        &self.public
    }

    /// A checkpoint, signed by its log.
    pub fn sign(&self, checkpoint: &Checkpoint) -> SignedNote {
        let text = checkpoint.text();
        let bytes = self.pair.sign(text.as_bytes()).as_ref().to_vec();
        let signature =
            Signature { name: self.public.name.clone(), key: self.public.hash(), bytes };
        SignedNote { text, signatures: vec![signature] }
    }

    /// The line by which a witness says that it has seen this.
    pub fn witness(&self, note: &SignedNote, seconds: u64) -> String {
        let signed = self.pair.sign(witnessed(&note.text, seconds).as_bytes());
        let bytes = [&self.public.hash()[..], &seconds.to_be_bytes(), signed.as_ref()].concat();
        format!("\u{2014} {} {}\n", self.public.name, BASE64_STANDARD.encode(bytes))
    }
}

/// What a signature is held against: `NAME+HASH+BASE64`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifierKey {
    name: String,
    kind: u8,
    bytes: [u8; 32],
}

impl VerifierKey {
    fn hash(&self) -> [u8; 4] {
        let digest = Sha256::new()
            .chain_update(&self.name)
            .chain_update([b'\n', self.kind])
            .chain_update(self.bytes)
            .finalize();
        [digest[0], digest[1], digest[2], digest[3]]
    }

    fn verifies(&self, signed: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ED25519, self.bytes).verify(signed, signature).is_ok()
    }
}

impl FromStr for VerifierKey {
    type Err = BadKey;

    fn from_str(text: &str) -> Result<Self, BadKey> {
        let parse = || {
            let mut parts = text.splitn(3, '+');
            let (name, hash, key) = (parts.next()?, parts.next()?, parts.next()?);
            let key = BASE64_STANDARD.decode(key).ok()?;
            let (kind, bytes) = key.split_first()?;
            let name = Some(name).filter(|name| is_name(name))?.to_owned();
            let key = Self { name, kind: *kind, bytes: bytes.try_into().ok()? };
            ([LOG, WITNESS].contains(kind) && hex::encode(key.hash()) == hash).then_some(key)
        };
        parse().ok_or(BadKey)
    }
}

impl fmt::Display for VerifierKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = [&[self.kind][..], &self.bytes].concat();
        write!(f, "{}+{}+{}", self.name, hex::encode(self.hash()), BASE64_STANDARD.encode(key))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn checkpoint() -> Checkpoint {
        let origin = "fencegate/0198c0de-0000-7000-8000-000000000001/audit".to_owned();
        Checkpoint { origin, size: 1_204, root: [7; 32], generation: 2 }
    }

    #[test]
    fn the_key_of_the_notes_own_vectors_is_read() {
        // From the documentation of Go's `sumdb/note`, whose form C2SP took over.
        let key = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW";
        let key: VerifierKey = key.parse().expect("a key");
        let note = "If you think cryptography is the answer to your problem,\n\
                    then you don't know what your problem is.\n\n\
                    \u{2014} PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n";
        let note: SignedNote = note.parse().expect("a note");
        assert!(note.is_signed_by(&key));
        assert_eq!(note.checkpoint(), Err(BadNote::Text));
    }

    #[test]
    fn a_checkpoint_is_signed_by_its_log_and_seen_by_a_witness() {
        let log = SigningKey::of_log("fencegate/test", &[1; 32]).expect("a key");
        let other = SigningKey::of_log("fencegate/test", &[2; 32]).expect("a key");
        let witness = SigningKey::of_witness("witness.example", &[3; 32]).expect("a key");
        let note = log.sign(&checkpoint());
        let line = witness.witness(&note, 1_764_000_000);
        let text = note.and_signed(&line).expect("a line").to_string();
        let note: SignedNote = text.parse().expect("its own form");
        assert_eq!(note.checkpoint(), Ok(checkpoint()));
        let again: VerifierKey = log.public().to_string().parse().expect("its own form");
        assert!(note.is_signed_by(&again) && !note.is_signed_by(other.public()));
        assert!(!note.is_signed_by(witness.public()));
        assert_eq!(note.is_witnessed_by(witness.public()), Some(1_764_000_000));
        assert_eq!(note.is_witnessed_by(log.public()), None);
        for (from, to) in [("1204", "1205"), ("generation 2", "generation 3"), ("BwcH", "BwcI")] {
            let other: SignedNote = text.replacen(from, to, 1).parse().expect("a note");
            assert!(!other.is_signed_by(log.public()), "{to}");
            assert_eq!(other.is_witnessed_by(witness.public()), None, "{to}");
        }
    }

    proptest! {
        #[test]
        fn no_text_is_too_odd(text in "(\u{2014} |[a-z]+|[0-9]+|\n|\\+|=|.){0,60}") {
            if let Ok(note) = text.parse::<SignedNote>() {
                let _ = note.checkpoint();
                prop_assert_eq!(note.to_string().parse::<SignedNote>(), Ok(note));
            }
            if let Ok(key) = text.parse::<VerifierKey>() {
                prop_assert_eq!(key.to_string(), text);
            }
        }
    }
}

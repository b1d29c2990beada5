//! The chain of signatures over the chunks of one body.

use std::fmt;

use crate::sign::secret::{SignatureText, SigningKey, hex_of};
use crate::sign::time::SignedAt;

/// SHA-256 of nothing, which is signed with each chunk: there are no headers in it.
const OF_NOTHING: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// What the signatures of a body's chunks begin with: the key, the time and the signature of the request's head. It prints
/// nothing of the key.
#[derive(Clone)]
pub struct Seed {
    key: SigningKey,
    signed_at: SignedAt,
    scope: String,
    last: SignatureText,
}

impl Seed {
    pub(in crate::sign) fn new(
        key: SigningKey,
        signed_at: SignedAt,
        scope: &str,
        last: SignatureText,
    ) -> Self {
        Self { key, signed_at, scope: scope.to_owned(), last }
    }

    /// The signature of the next chunk, whose digest this is.
    pub(super) fn of_chunk(&mut self, digest: &[u8; 32]) -> SignatureText {
        self.next("AWS4-HMAC-SHA256-PAYLOAD", &[OF_NOTHING.as_bytes(), b"\n"], digest)
    }

    /// The signature of the trailers, whose digest this is.
    pub(super) fn of_trailers(&mut self, digest: &[u8; 32]) -> SignatureText {
        self.next("AWS4-HMAC-SHA256-TRAILER", &[b"", b""], digest)
    }

    fn next(&mut self, what: &str, between: &[&[u8]; 2], digest: &[u8; 32]) -> SignatureText {
        let digest = hex_of(digest);
        self.last = self.key.sign(&[
            what.as_bytes(),
            b"\n",
            self.signed_at.as_str().as_bytes(),
            b"\n",
            self.scope.as_bytes(),
            b"\n",
            &self.last,
            b"\n",
            between[0],
            between[1],
            &digest,
        ]);
        self.last
    }
}

impl fmt::Debug for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Seed({})", self.scope)
    }
}

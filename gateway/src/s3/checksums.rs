//! What a body is held against once all of it has come: the digest that was signed, the checksum that was sent, its MD5.

use axum::http::HeaderMap;
use bytes::Bytes;
use fencegate_s3::about::{ChecksumKind, StoredChecksum};
use fencegate_s3::checksum::{Algorithm, Checksum, ContentMd5, Digest, Sent};
use fencegate_s3::code::{S3Code, S3Error};
use fencegate_s3::sign::PayloadHash;
use fencegate_s3::sign::chunked::Trailers;
use md5::{Digest as _, Md5};

use super::failure::Failure;

/// What a body has to be.
pub struct Checks {
    signed: Option<[u8; 32]>,
    sent: Sent,
    digest: Option<Digest>,
    content_md5: Option<ContentMd5>,
    md5: Option<Md5>,
}

impl Checks {
    /// What the head of a request says of its body.
    ///
    /// # Errors
    /// It cannot be read, or says two things.
    pub fn of(payload: PayloadHash, headers: &HeaderMap) -> Result<Self, Failure> {
        let sent = Sent::of(headers)?;
        let content_md5 = ContentMd5::of(headers)?;
        let signed = match payload {
            PayloadHash::Sha256(digest) => Some(digest),
            PayloadHash::Unsigned | PayloadHash::Chunked { .. } => None,
        };
        Ok(Self {
            signed,
            digest: sent.algorithm().map(Digest::new),
            sent,
            md5: content_md5.is_some().then(Md5::new),
            content_md5,
        })
    }

    /// How the checksum that was sent or announced is made.
    pub fn algorithm(&self) -> Option<Algorithm> {
        self.sent.algorithm()
    }

    /// Takes in the next piece.
    pub fn update(&mut self, piece: &Bytes) {
        if let Some(digest) = &mut self.digest {
            digest.update(piece);
        }
        if let Some(md5) = &mut self.md5 {
            md5.update(piece);
        }
    }

    /// All of it has come. Returns the checksum that is kept with it, if one was sent.
    ///
    /// # Errors
    /// It is not what was signed or sent. Nothing of it may take effect.
    pub fn finish(
        self,
        sha256: &[u8; 32],
        trailers: Option<&Trailers>,
    ) -> Result<Option<Checksum>, Failure> {
        if self.signed.is_some_and(|signed| signed != *sha256) {
            return Err(S3Code::XAmzContentSha256Mismatch.into());
        }
        if let (Some(wanted), Some(md5)) = (self.content_md5, self.md5)
            && !wanted.matches(&md5.finalize().into())
        {
            let why = "The Content-MD5 that you gave is not that of the body that was received.";
            return Err(S3Error::new(S3Code::BadDigest, why).into());
        }
        let Some(found) = self.digest.map(Digest::finish) else { return Ok(None) };
        let wanted = match self.sent {
            Sent::Not => return Ok(None),
            Sent::Header(wanted) => wanted,
            Sent::Trailer(algorithm) => {
                let text = trailers.and_then(|trailers| trailers.get(algorithm.header()));
                Checksum::parse(algorithm, text.unwrap_or_default())?
            }
        };
        if wanted == found {
            return Ok(Some(found));
        }
        let name = found.algorithm().as_str();
        let why = format!("The {name} that you gave is not that of the body that was received.");
        Err(S3Error::new(S3Code::BadDigest, why).into())
    }
}

/// As it is kept with an object.
pub fn stored(checksum: &Checksum) -> StoredChecksum {
    StoredChecksum {
        algorithm: checksum.algorithm(),
        value: checksum.to_string(),
        kind: ChecksumKind::FullObject,
    }
}

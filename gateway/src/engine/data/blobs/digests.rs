//! Compares the bytes of blobs with the digests that the ledger has of them.

use fence_core::ports::{BlobError, BlobStream};
use futures::{StreamExt as _, TryStreamExt as _};
use sha2::{Digest as _, Sha256};

/// The bytes of a whole blob, but for the last chunk unless all of them are what was stored: whoever reads
/// them gets either these or a body that breaks off. `told` is called before it does.
pub(super) fn checked(
    stream: BlobStream,
    size: u64,
    sha256: [u8; 32],
    told: impl Fn() + Send + 'static,
) -> BlobStream {
    let (mut seen, mut digest) = (0, Sha256::new());
    let mut check = move |chunk: bytes::Bytes| {
        if chunk.is_empty() {
            return Ok(chunk);
        }
        seen += chunk.len() as u64;
        digest.update(&chunk);
        if seen >= size && digest.finalize_reset()[..] != sha256[..] {
            told();
            return Err(BlobError("the bytes are not those that were stored".into()));
        }
        Ok(chunk)
    };
    stream.map(move |chunk| chunk.and_then(&mut check)).boxed()
}

/// The digest of a blob as it is read.
///
/// # Errors
/// What does not answer; a blob that breaks off.
pub async fn digest_of(mut stream: BlobStream) -> Result<[u8; 32], BlobError> {
    let mut digest = Sha256::new();
    while let Some(chunk) = stream.try_next().await? {
        digest.update(&chunk);
    }
    Ok(digest.finalize().into())
}

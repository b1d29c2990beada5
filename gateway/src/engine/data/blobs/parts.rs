//! Reads objects that were uploaded in parts: one blob after the other, the next one opened while one is read.

use std::ops::Range;

use fence_core::ports::{BlobError, BlobId, BlobStream, Object, PARTS_MAX, Part};
use futures::{StreamExt as _, TryStreamExt as _, future::ready, stream};

use super::digests::checked;
use crate::engine::{Engine, EngineError, metrics};

/// Parts that are open at a time: the one that is read, and the next.
const OPEN_MAX: usize = 2;

/// Some bytes of a part.
struct Piece {
    blob: BlobId,
    range: Range<u64>,
    /// The number of bytes that are read before those that are given out.
    skipped: u64,
    /// The number of its bytes and their SHA-256, if it is read whole.
    whole: Option<(u64, [u8; 32])>,
}

/// Bytes of the parts that make up these bytes of the object; of a rest the part is read whole in which it begins.
fn pieces(parts: &[(i32, Part)], range: &Range<u64>, is_rest: bool) -> Vec<Piece> {
    let mut begins = 0;
    let mut pieces = Vec::new();
    for (_, part) in parts {
        let size = part.size.unsigned_abs();
        let ends = begins + size;
        let (from, to) = (range.start.max(begins), range.end.min(ends));
        if from < to {
            let skipped = if is_rest && to == ends { from - begins } else { 0 };
            let range = from - begins - skipped..to - begins;
            let whole = (range == (0..size)).then_some((size, part.sha256));
            pieces.push(Piece { blob: part.blob, range, skipped, whole });
        }
        begins = ends;
    }
    pieces
}

impl Engine {
    /// Opens an object in parts; `None` if its parts are not there (any more).
    pub(super) async fn open_parts(
        &self,
        upload: BlobId,
        object: &Object,
        (range, is_rest): (Range<u64>, bool),
    ) -> Result<Option<BlobStream>, EngineError> {
        let reader = self.inner.blobs.readers.enter(upload);
        let parts = self.parts(upload, 0, i64::from(PARTS_MAX)).await?;
        let there: u64 = parts.iter().map(|(_, part)| part.size.unsigned_abs()).sum();
        if there != object.size.unsigned_abs() {
            return Ok(None);
        }
        let mut pieces = pieces(&parts, &range, is_rest).into_iter();
        let Some(first) = pieces.next() else {
            return Ok(Some(stream::empty().boxed()));
        };
        let Some(first) = self.open_piece(first).await? else { return Ok(None) };
        let engine = self.clone();
        let others = stream::iter(pieces).map(move |piece| {
            let engine = engine.clone();
            async move {
                let opened = engine.open_piece(piece).await;
                let opened = opened.map_err(|error| BlobError(error.to_string()))?;
                opened.ok_or_else(|| BlobError("a part of the object is missing".into()))
            }
        });
        let stream = first.chain(others.buffered(OPEN_MAX - 1).try_flatten());
        let told = move |error: &BlobError| {
            tracing::warn!(%error, %upload, "the bytes of an object in parts broke off");
        };
        Ok(Some(reader.guard(stream.boxed()).inspect_err(told).boxed()))
    }

    async fn open_piece(&self, piece: Piece) -> Result<Option<BlobStream>, EngineError> {
        let Piece { blob, range, skipped, whole } = piece;
        let stream = self.inner.blobs.store.blobs()?.read(blob, range).await?;
        let told = move || {
            ::metrics::counter!(metrics::BLOBS_DAMAGED).increment(1);
            tracing::error!(%blob, "a part of an object is not what was stored");
        };
        Ok(stream.map(|stream| match whole {
            Some((size, sha256)) => behind(checked(stream, size, sha256, told), skipped),
            None => stream,
        }))
    }
}

/// The stream without so many of its first bytes.
fn behind(stream: BlobStream, mut skipped: u64) -> BlobStream {
    let rest = stream.map_ok(move |mut chunk| {
        let some = usize::try_from(skipped).unwrap_or(usize::MAX).min(chunk.len());
        skipped -= some as u64;
        chunk.split_off(some)
    });
    rest.try_filter(|chunk| ready(!chunk.is_empty())).boxed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;
    use uuid::Uuid;

    #[test]
    fn any_range_is_made_of_the_right_bytes_of_the_right_parts() {
        let sizes: [u64; 4] = [3, 1, 0, 5];
        let part = |(at, size): (usize, &u64)| {
            let part = Part {
                blob: BlobId(Uuid::from_u128(at as u128)),
                size: size.cast_signed(),
                sha256: [0; 32],
                checksum: None,
                begun_at: Timestamp::UNIX_EPOCH,
                stored_at: Timestamp::UNIX_EPOCH,
            };
            (at as i32 + 1, part)
        };
        let parts: Vec<_> = sizes.iter().enumerate().map(part).collect();
        let all: Vec<(u128, u64)> = sizes
            .iter()
            .enumerate()
            .flat_map(|(at, size)| (0..*size).map(move |byte| (at as u128, byte)))
            .collect();
        for (from, to) in (0..=9).flat_map(|from| (from..=9).map(move |to| (from, to))) {
            for is_rest in [false, true] {
                let pieces = pieces(&parts, &(from..to), is_rest);
                let given = pieces.iter().flat_map(|piece| {
                    let blob = piece.blob.0.as_u128();
                    let is_whole = piece.range == (0..sizes[blob as usize]);
                    assert_eq!(piece.whole.is_some(), is_whole, "{from}..{to}");
                    piece.range.clone().skip(piece.skipped as usize).map(move |byte| (blob, byte))
                });
                let given: Vec<(u128, u64)> = given.collect();
                assert_eq!(given, all[from as usize..to as usize], "{from}..{to}");
                // Of the rest of the object all is checked.
                let unchecked = pieces.iter().filter(|piece| piece.whole.is_none()).count();
                assert!(!is_rest || to < 9 || unchecked == 0, "{from}..{to}");
            }
        }
    }
}

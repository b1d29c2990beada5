//! What a command has written last, for the record of its run; or all of it.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use fencegate_client::jobs::Output;
use sha2::{Digest as _, Sha256};

use crate::terminal::say;

/// Keeps the last bytes of what comes by, counts all of them, and makes their digest. Clones are the same one.
#[derive(Debug, Clone)]
pub struct Tail(Arc<Mutex<Kept>>);

#[derive(Debug)]
struct Kept {
    last: VecDeque<u8>,
    most: usize,
    bytes: u64,
    digest: Sha256,
    all: Option<File>,
    /// Whether something is missing: not all of it came by, or the file did not take it.
    is_cut: bool,
}

impl Tail {
    /// Keeps so many bytes; with a file, also all of them there.
    pub fn new(most: usize, all: Option<File>) -> Self {
        let (last, digest) = (VecDeque::new(), Sha256::new());
        Self(Arc::new(Mutex::new(Kept { last, most, bytes: 0, digest, all, is_cut: false })))
    }

    /// More has come.
    pub fn add(&self, bytes: &[u8]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.bytes += bytes.len() as u64;
        kept.digest.update(bytes);
        let newest = bytes.get(bytes.len().saturating_sub(kept.most)..).unwrap_or_default();
        kept.last.extend(newest);
        let excess = kept.last.len().saturating_sub(kept.most);
        kept.last.drain(..excess);
        if let Some(Err(error)) = kept.all.as_mut().map(|file| file.write_all(bytes)) {
            say(&format!("the log is not kept whole: {error}"));
            (kept.all, kept.is_cut) = (None, true);
        }
    }

    /// Something is missing.
    pub fn cut(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_cut = true;
    }

    /// What is known of it so far, and its last bytes.
    pub fn so_far(&self) -> (Output, Vec<u8>) {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let digest = kept.digest.clone().finalize();
        let sha256: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let sha256 = Some(sha256).filter(|_| !kept.is_cut);
        let truncated = kept.is_cut || kept.all.is_none() && kept.bytes > kept.last.len() as u64;
        (Output { bytes: kept.bytes, truncated, sha256 }, kept.last.iter().copied().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_bytes_are_kept_and_all_are_counted() {
        let tail = Tail::new(4, None);
        for piece in ["ab", "", "cdefgh", "i"] {
            tail.add(piece.as_bytes());
        }
        let (output, last) = tail.so_far();
        assert_eq!((output.bytes, output.truncated, last.as_slice()), (9, true, &b"fghi"[..]));
        let whole = Sha256::digest(b"abcdefghi");
        let whole = whole.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(output.sha256, Some(whole));
        let none = Tail::new(0, None);
        none.add(b"x");
        tail.cut();
        let (cut, _) = tail.so_far();
        assert!(cut.truncated && cut.sha256.is_none());
        assert!(none.so_far().1.is_empty() && none.so_far().0.truncated);
    }
}

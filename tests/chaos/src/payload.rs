//! Values and the bytes that stand for them: a value that ends in `.N` stands for N bytes, of which each piece tells whose it
//! is.

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

/// How long the parts of an upload in parts are, but for the last one, in bytes: the least that S3 allows.
const PART_BYTES: usize = 5 << 20;

/// The bytes of a value.
pub fn bytes_of(value: &str) -> Bytes {
    let mut bytes = value.as_bytes().to_vec();
    if let Some(length) = value.rsplit_once('.').and_then(|(_, length)| length.parse().ok()) {
        bytes.push(b'\n');
        let line = bytes.clone();
        while bytes.len() < length {
            bytes.extend_from_slice(&line);
        }
        bytes.truncate(length);
    }
    bytes.into()
}

/// The parts of an upload that becomes these bytes.
pub fn parts_of(bytes: &Bytes) -> Vec<Bytes> {
    let ends = (PART_BYTES..bytes.len()).step_by(PART_BYTES).chain([bytes.len()]);
    let mut begin = 0;
    ends.map(|end| bytes.slice(std::mem::replace(&mut begin, end)..end)).collect()
}

/// What the ledger knows of bytes by: their SHA-256; and if they came in parts, that of the SHA-256s of these.
pub fn digests_of(bytes: &Bytes) -> [Vec<u8>; 2] {
    let mut of_parts = Sha256::new();
    parts_of(bytes).iter().for_each(|part| of_parts.update(Sha256::digest(part)));
    [Sha256::digest(bytes).to_vec(), of_parts.finalize().to_vec()]
}

/// The value that these bytes stand for; bytes that stand for none are a value that nobody ever put.
pub fn value_of(bytes: &[u8]) -> String {
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let value = String::from_utf8_lossy(line).into_owned();
    match bytes_of(&value) == bytes {
        true => value,
        false => format!("{} damaged bytes that begin with {value:?}", bytes.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_tell_their_value_and_whether_they_are_whole() {
        for value in ["1 2 3", "c1v2", "c1v2.5000", ""] {
            assert_eq!(value_of(&bytes_of(value)), value);
        }
        assert_eq!(bytes_of("c1v2.5000").len(), 5000);
        assert_eq!(parts_of(&bytes_of("c1v2.5000")).len(), 1);
        let large = bytes_of("c1v2.12000000");
        assert_eq!(
            parts_of(&large).iter().map(Bytes::len).collect::<Vec<_>>(),
            [PART_BYTES, PART_BYTES, 1_514_240]
        );
        assert_eq!(parts_of(&large).concat(), large);
        let other = bytes_of("c1v3.12000000");
        assert_ne!(parts_of(&large)[1], parts_of(&other)[1]);
        let cut = bytes_of("c1v2.5000").slice(..4999);
        assert_eq!(value_of(&cut), "4999 damaged bytes that begin with \"c1v2.5000\"");
    }
}

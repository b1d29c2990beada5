//! Values and the bytes that stand for them: a value that ends in `.N` stands for N bytes.

use bytes::Bytes;

/// The bytes of a value.
pub fn bytes_of(value: &str) -> Bytes {
    let mut bytes = value.as_bytes().to_vec();
    if let Some(length) = value.rsplit_once('.').and_then(|(_, length)| length.parse().ok()) {
        bytes.push(b'\n');
        bytes.resize(length, b'x');
    }
    bytes.into()
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
        let cut = bytes_of("c1v2.5000").slice(..4999);
        assert_eq!(value_of(&cut), "4999 damaged bytes that begin with \"c1v2.5000\"");
    }
}

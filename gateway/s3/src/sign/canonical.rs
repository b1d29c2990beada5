//! The canonical request: the one text that both sides make of a request, and whose digest is signed.
//!
//! Paths and queries have many spellings. Clients sign what they are in the strictest one: only `A-Z a-z 0-9 - . _ ~` as
//! they are, all else as `%XX` with digits in upper case; a path keeps its slashes. Nothing is tidied: `//` and `..` are
//! parts of a key.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use sha2::{Digest as _, Sha256};

use super::header::ALGORITHM;
use super::query::{Query, SIGNATURE};
use super::secret::{SignatureText, SigningKey, hex_of};

const IN_QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
const IN_PATH: &AsciiSet = &IN_QUERY.remove(b'/');

/// A path in its strictest spelling.
pub(super) fn strict_path(raw: &str) -> Cow<'_, str> {
    strict(raw, IN_PATH, |byte| byte == b'/')
}

/// A name or value of a query in its strictest spelling. A `+` is a space there, as forms have it: some clients send it so.
pub(super) fn strict_query(raw: &str) -> Cow<'_, str> {
    if raw.contains('+') {
        return Cow::Owned(strict(&raw.replace('+', "%20"), IN_QUERY, |_| false).into_owned());
    }
    strict(raw, IN_QUERY, |_| false)
}

/// A text as a value of a query, whatever is in it.
pub(super) fn as_value(text: &str) -> String {
    percent_encode(text.as_bytes(), IN_QUERY).to_string()
}

fn strict<'a>(raw: &'a str, encoded: &'static AsciiSet, is_kept: fn(u8) -> bool) -> Cow<'a, str> {
    let stays = |byte: u8| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') || is_kept(byte)
    };
    let mut bytes = raw.bytes();
    let mut is_strict = true;
    while let Some(byte) = bytes.next() {
        is_strict &= match byte {
            b'%' => match (bytes.next().and_then(digit), bytes.next().and_then(digit)) {
                (Some(high), Some(low)) => !stays(high * 16 + low),
                _ => false,
            },
            byte => stays(byte),
        };
    }
    if is_strict {
        return Cow::Borrowed(raw);
    }
    let decoded: Cow<'_, [u8]> = percent_decode_str(raw).into();
    Cow::Owned(percent_encode(&decoded, encoded).to_string())
}

/// The value of a hexadecimal digit in upper case.
fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

/// What is signed of a request.
#[derive(Clone, Copy)]
pub(super) struct Canonical<'a> {
    pub(super) method: &'a str,
    /// As it is to be signed.
    pub(super) path: &'a str,
    pub(super) query: &'a Query<'a>,
    /// Names of headers in order, with semicolons between them.
    pub(super) signed_headers: &'a str,
    /// Their values, in the same order.
    pub(super) values: &'a [&'a [u8]],
    pub(super) spaces: Spaces,
    /// The value of `x-amz-content-sha256`.
    pub(super) payload: &'a str,
}

/// What becomes of spaces inside the value of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spaces {
    /// Several are one, as AWS has it, and nearly all clients.
    Folded,
    /// They stay, as s3cmd has it.
    Kept,
}

impl Canonical<'_> {
    /// The signature of this request at a time and in a scope.
    pub(super) fn sign(&self, key: &SigningKey, time: &str, scope: &str) -> SignatureText {
        let digest = hex_of(&Sha256::digest(self.text()).into());
        let pieces = [ALGORITHM, "\n", time, "\n", scope, "\n"].map(str::as_bytes);
        let [algorithm, a, time, b, scope, c] = pieces;
        key.sign(&[algorithm, a, time, b, scope, c, &digest])
    }

    /// In one piece: many short ones would take longer to digest.
    fn text(&self) -> Vec<u8> {
        let of_query = self.query.0.iter().map(|(name, value)| name.len() + value.len() + 2);
        let of_values: usize = self.values.iter().map(|value| value.len() + 2).sum();
        let fixed = self.method.len()
            + self.path.len()
            + 2 * self.signed_headers.len()
            + self.payload.len()
            + 16;
        let mut text = Vec::with_capacity(fixed + of_values + of_query.sum::<usize>());
        [self.method, "\n", self.path, "\n"]
            .iter()
            .for_each(|piece| text.extend_from_slice(piece.as_bytes()));
        let signed = self.query.0.iter().filter(|(name, _)| name != SIGNATURE);
        for (place, (name, value)) in signed.enumerate() {
            text.extend_from_slice(if place == 0 { b"" } else { b"&" });
            text.extend_from_slice(name.as_bytes());
            text.push(b'=');
            text.extend_from_slice(value.as_bytes());
        }
        text.push(b'\n');
        for (name, value) in self.signed_headers.split(';').zip(self.values) {
            text.extend_from_slice(name.as_bytes());
            text.push(b':');
            match self.spaces {
                Spaces::Folded => push_folded(value, &mut text),
                Spaces::Kept => text.extend_from_slice(value.trim_ascii()),
            }
            text.push(b'\n');
        }
        let end = ["\n", self.signed_headers, "\n", self.payload];
        end.iter().for_each(|piece| text.extend_from_slice(piece.as_bytes()));
        text
    }
}

/// Whether folding would change a value, beyond its ends.
pub(super) fn has_spaces_to_fold(value: &[u8]) -> bool {
    let value = value.trim_ascii();
    value.contains(&b'\t') || value.windows(2).any(|pair| pair == b"  ")
}

/// A header's value without spaces around it, and with one in place of several.
fn push_folded(value: &[u8], text: &mut Vec<u8>) {
    if !has_spaces_to_fold(value) {
        return text.extend_from_slice(value.trim_ascii());
    }
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t');
    let words = value.split(is_space).filter(|word| !word.is_empty());
    for (place, word) in words.enumerate() {
        text.extend_from_slice(if place == 0 { b"" } else { b" " });
        text.extend_from_slice(word);
    }
}

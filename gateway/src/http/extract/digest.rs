//! `Content-MD5` and `Repr-Digest`: what a client says of its body, checked against what arrived.

use axum::http::HeaderMap;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fence_core::ErrorCode;
use md5::{Digest as _, Md5};
use sha2::{Sha256, Sha512};

use super::headers::single;
use crate::http::problem::Problem;

/// The digests that a client sent. Of algorithms that are not known nothing is checked (RFC 9530).
#[derive(Default)]
pub struct Digests {
    md5: Option<(Md5, Vec<u8>)>,
    sha256: Option<Vec<u8>>,
    sha512: Option<(Box<Sha512>, Vec<u8>)>,
}

impl Digests {
    /// Reads the headers.
    pub fn parse(headers: &HeaderMap) -> Result<Self, Problem> {
        let mut digests = Self::default();
        if let Some(value) = single(headers, "content-md5")? {
            let md5 = decode(value, 16).ok_or_else(|| {
                Problem::malformed("Content-MD5 is the 16 bytes of an MD5 in base64")
            })?;
            digests.md5 = Some((Md5::new(), md5));
        }
        let Some(value) = single(headers, "repr-digest")? else { return Ok(digests) };
        let wrong = || {
            Problem::malformed(
                "Repr-Digest is a list such as sha-256=:base64:, with sha-256 or sha-512",
            )
        };
        let text = std::str::from_utf8(value).map_err(|_| wrong())?;
        for member in text.split(',') {
            let (algorithm, value) = member.trim().split_once('=').ok_or_else(wrong)?;
            let value = value.strip_prefix(':').and_then(|value| value.strip_suffix(':'));
            let value = value.ok_or_else(wrong)?.as_bytes();
            match algorithm {
                "sha-256" => digests.sha256 = Some(decode(value, 32).ok_or_else(wrong)?),
                "sha-512" => {
                    let sha512 = decode(value, 64).ok_or_else(wrong)?;
                    digests.sha512 = Some((Box::default(), sha512));
                }
                _ => {}
            }
        }
        Ok(digests)
    }

    /// Takes more of the body.
    pub fn update(&mut self, bytes: &[u8]) {
        if let Some((md5, _)) = &mut self.md5 {
            md5.update(bytes);
        }
        if let Some((sha512, _)) = &mut self.sha512 {
            sha512.update(bytes);
        }
    }

    /// Checks a body that was streamed, whose SHA-256 is known.
    ///
    /// # Errors
    /// `digest-mismatch`, naming the digest.
    pub fn check(self, sha256: &[u8; 32]) -> Result<(), Problem> {
        let md5 = self.md5.is_none_or(|(md5, said)| *md5.finalize() == *said);
        let sha512 = self.sha512.is_none_or(|(sha512, said)| *sha512.finalize() == *said);
        let sha256 = self.sha256.is_none_or(|said| *sha256 == *said);
        let wrong = match (md5, sha256, sha512) {
            (true, true, true) => return Ok(()),
            (false, ..) => "Content-MD5",
            (_, false, _) => "the sha-256 of Repr-Digest",
            _ => "the sha-512 of Repr-Digest",
        };
        let why = format!("the body that arrived does not have {wrong}; nothing was applied");
        Err(Problem::new(ErrorCode::DigestMismatch, why))
    }

    /// Checks a body that is here.
    pub fn check_whole(mut self, body: &[u8]) -> Result<(), Problem> {
        self.update(body);
        let sha256 = match self.sha256 {
            Some(_) => Sha256::digest(body).into(),
            None => [0; 32],
        };
        self.check(&sha256)
    }
}

fn decode(text: &[u8], bytes: usize) -> Option<Vec<u8>> {
    STANDARD.decode(text.trim_ascii()).ok().filter(|decoded| decoded.len() == bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn parse(name: &'static str, value: &str) -> Result<Digests, Problem> {
        let mut headers = HeaderMap::new();
        headers.insert(name, HeaderValue::from_str(value).unwrap());
        Digests::parse(&headers)
    }

    const MD5: &str = "XUFAKrxLKna5cZ2REBfFkg==";
    const SHA_256: &str = "sha-256=:LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=:";

    #[test]
    fn bodies_are_checked_against_what_was_said() {
        for (name, value) in [
            ("content-md5", MD5.to_owned()),
            ("repr-digest", SHA_256.to_owned()),
            ("repr-digest", format!("crc32c=:aaaa:, {SHA_256}")),
        ] {
            assert!(parse(name, &value).unwrap().check_whole(b"hello").is_ok(), "{value}");
            let error = parse(name, &value).unwrap().check_whole(b"hello!").unwrap_err();
            assert_eq!(error.code(), ErrorCode::DigestMismatch);
        }
    }

    #[test]
    fn a_streamed_body_is_checked_in_passing() {
        let sha256 = Sha256::digest(b"hello").into();
        let mut digests = parse("content-md5", MD5).unwrap();
        digests.update(b"hel");
        digests.update(b"lo");
        assert!(digests.check(&sha256).is_ok());
        assert!(parse("content-md5", MD5).unwrap().check(&sha256).is_err());
    }

    #[test]
    fn what_is_no_digest_is_refused() {
        for (name, value) in [
            ("content-md5", "x"),
            ("content-md5", "aGVsbG8="),
            ("repr-digest", ""),
            ("repr-digest", "sha-256"),
            ("repr-digest", "sha-256=LPJN"),
            ("repr-digest", "sha-256=:LPJN:"),
            ("repr-digest", "sha-512=:LPJN:"),
        ] {
            assert!(parse(name, value).is_err(), "{name}: {value}");
        }
    }
}

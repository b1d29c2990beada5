//! `Content-MD5`, `Repr-Digest` and `Content-Digest`: what a client says of its body, checked against what
//! arrived; and what the gateway says of an object. Bodies come without an encoding, so the last two mean the same here.

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
        for name in ["repr-digest", "content-digest"] {
            if let Some(value) = single(headers, name)? {
                digests.listed(value).ok_or_else(|| {
                    Problem::malformed(format!(
                        "{name} is a list such as sha-256=:base64:, with sha-256 or sha-512, each \
                         once and in lower case; no other header may say otherwise"
                    ))
                })?;
            }
        }
        Ok(digests)
    }

    /// Reads a dictionary of digests (RFC 9530, RFC 8941); `None` if it is none, or contradicts another.
    fn listed(&mut self, value: &[u8]) -> Option<()> {
        let mut seen = Vec::new();
        for member in std::str::from_utf8(value).ok()?.split(',') {
            let (algorithm, value) = member.trim_matches([' ', '\t']).split_once('=')?;
            if !is_key(algorithm) || seen.contains(&algorithm) {
                return None;
            }
            seen.push(algorithm);
            let value = value.strip_prefix(':')?.strip_suffix(':')?.as_bytes();
            match algorithm {
                "sha-256" => {
                    let said = decode(value, 32)?;
                    if self.sha256.as_ref().is_some_and(|other| *other != said) {
                        return None;
                    }
                    self.sha256 = Some(said);
                }
                "sha-512" => {
                    let said = decode(value, 64)?;
                    if self.sha512.as_ref().is_some_and(|(_, other)| *other != said) {
                        return None;
                    }
                    self.sha512 = Some((Box::default(), said));
                }
                _ => {}
            }
        }
        Some(())
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
            (_, false, _) => "the sha-256 that was sent",
            _ => "the sha-512 that was sent",
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

/// `Repr-Digest` of an object, whatever part of it is sent.
pub fn repr_digest(sha256: &[u8; 32]) -> String {
    format!("sha-256=:{}:", STANDARD.encode(sha256))
}

/// Refuses digests where there is nothing to check them against.
///
/// # Errors
/// `request-malformed`
pub fn no_digest(headers: &HeaderMap) -> Result<(), Problem> {
    for name in ["content-md5", "repr-digest", "content-digest"] {
        if headers.contains_key(name) {
            let why = format!("{name} of the whole request is not checked: send it with the parts");
            return Err(Problem::malformed(why));
        }
    }
    Ok(())
}

/// The keys of dictionaries are in lower case.
fn is_key(text: &str) -> bool {
    let first = |byte: &u8| byte.is_ascii_lowercase() || *byte == b'*';
    let rest =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-.*".contains(&byte);
    text.as_bytes().first().is_some_and(first) && text.bytes().all(rest)
}

fn decode(text: &[u8], bytes: usize) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok().filter(|decoded| decoded.len() == bytes)
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
            ("content-digest", SHA_256.to_owned()),
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
    fn what_is_said_of_an_object_is_what_a_client_says() {
        assert_eq!(repr_digest(&Sha256::digest(b"hello").into()), SHA_256);
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
            ("content-digest", "sha-256=:LPJN:"),
            ("repr-digest", &SHA_256.replace("sha", "SHA")),
            ("repr-digest", &SHA_256.replace("sha", "Sha")),
            ("content-digest", &format!("{SHA_256}, {SHA_256}")),
            ("content-digest", &SHA_256.replace("=:", "= :")),
            ("content-digest", &format!("{SHA_256};a=b")),
            ("content-digest", &format!("{SHA_256},")),
        ] {
            assert!(parse(name, value).is_err(), "{name}: {value}");
        }
    }

    #[test]
    fn two_headers_say_the_same_or_are_refused() {
        let mut headers = HeaderMap::new();
        headers.insert("repr-digest", HeaderValue::from_static(SHA_256));
        headers.insert("content-digest", HeaderValue::from_static(SHA_256));
        assert!(Digests::parse(&headers).unwrap().check_whole(b"hello").is_ok());
        let other = format!("sha-256=:{}:", STANDARD.encode([0; 32]));
        headers.insert("content-digest", HeaderValue::from_str(&other).unwrap());
        assert!(Digests::parse(&headers).is_err());
        for name in ["content-md5", "repr-digest", "content-digest"] {
            assert!(no_digest(&HeaderMap::new()).is_ok());
            let value = HeaderValue::from_static("x");
            assert!(no_digest(&HeaderMap::from_iter([(name.parse().unwrap(), value)])).is_err());
        }
    }
}

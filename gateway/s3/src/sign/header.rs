//! Signatures in the header `Authorization`, and which header lines a signature has to cover.

use std::borrow::Cow;

use http::HeaderMap;
use http::header::AUTHORIZATION;

use super::SignError;
use super::scope::Credential;
use super::secret::{SignatureText, signature_of};
use crate::mutants::{self, Mutant};

/// The one algorithm.
pub(super) const ALGORITHM: &str = "AWS4-HMAC-SHA256";
/// How many names `SignedHeaders` may have.
const SIGNED_HEADERS_MAX: usize = 100;

/// The parts of `Authorization`.
pub(super) struct Authorization<'a> {
    pub(super) credential: Credential<'a>,
    pub(super) signed_headers: &'a str,
    pub(super) signature: SignatureText,
}

impl<'a> Authorization<'a> {
    /// Reads the header; `None` if there is none. Its three parts may come in any order, with spaces or without.
    pub(super) fn of(headers: &'a HeaderMap) -> Result<Option<Self>, SignError> {
        let Some(text) = only(headers, AUTHORIZATION.as_str())? else { return Ok(None) };
        let (algorithm, rest) = text.split_once(' ').unwrap_or((text, ""));
        if algorithm != ALGORITHM {
            return Err(not_supported(algorithm));
        }
        let (mut credential, mut signed_headers, mut signature) = (None, None, None);
        for part in rest.split(',') {
            let bad = SignError::MalformedHeader(
                "it has Credential=, SignedHeaders= and Signature=, each once, with commas between them",
            );
            let (name, value) = part.trim().split_once('=').ok_or(bad.clone())?;
            let place = match name {
                "Credential" => &mut credential,
                "SignedHeaders" => &mut signed_headers,
                "Signature" => &mut signature,
                _ => return Err(bad),
            };
            if place.replace(value).is_some() {
                return Err(bad);
            }
        }
        let missing = |what| SignError::MalformedHeader(what);
        let credential = credential.ok_or(missing("Credential is missing"))?;
        let signature = signature.ok_or(missing("Signature is missing"))?;
        Ok(Some(Self {
            credential: Credential::parse(Cow::Borrowed(credential))
                .map_err(SignError::MalformedHeader)?,
            signed_headers: signed_headers.ok_or(missing("SignedHeaders is missing"))?,
            signature: signature_of(signature)
                .ok_or(missing("Signature has 64 hexadecimal digits in lower case"))?,
        }))
    }
}

/// What to say of another algorithm.
pub(super) fn not_supported(algorithm: &str) -> SignError {
    SignError::NotSupported(match algorithm {
        "AWS" => "signature version 2 is not served: sign with version 4 (AWS4-HMAC-SHA256)",
        "AWS4-ECDSA-P256-SHA256" => {
            "signature version 4A is not served: sign with version 4 (AWS4-HMAC-SHA256)"
        }
        _ => {
            "this kind of authorization is not served here: sign with version 4 (AWS4-HMAC-SHA256)"
        }
    })
}

/// The value of a header that may be there once.
pub(super) fn only<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, SignError> {
    let mut values = headers.get_all(name).iter();
    let first = values.next();
    if values.next().is_some() {
        return Err(SignError::Twice(name.to_owned()));
    }
    const BAD: SignError =
        SignError::BadHeader("a header that is part of the signature is not printable ASCII");
    first.map(|value| value.to_str().map_err(|_| BAD)).transpose()
}

/// Why `SignedHeaders` is no good, unless it is: names in lower case, in order, each once, `host` among them.
pub(super) fn check_form(signed_headers: &str) -> Result<(), &'static str> {
    let mut last = "";
    let mut count = 0;
    let mut has_host = false;
    for name in signed_headers.split(';') {
        let is_name = |byte: u8| byte.is_ascii_graphic() && !byte.is_ascii_uppercase();
        if name.is_empty() || !name.bytes().all(is_name) {
            return Err("SignedHeaders has names in lower case with semicolons between them");
        }
        if last >= name {
            return Err("SignedHeaders has its names in order, each once");
        }
        count += 1;
        has_host |= name == "host";
        last = name;
    }
    if count > SIGNED_HEADERS_MAX {
        return Err("SignedHeaders has more than 100 names");
    }
    has_host.then_some(()).ok_or("SignedHeaders must have host")
}

/// Holds the header lines of a request against `SignedHeaders`, and gives the values of those that are named.
///
/// 1. Whatever is named is there, and once: of two lines one could be heeded and the other be signed.
/// 2. Whatever changes what a request means, and is there, is named: `x-amz-*`, `x-fence-*`, and with a signature in a
///    header also `content-md5`. A line that somebody added on the way would otherwise make another request of it. `host`
///    is always named, as [`check_form`] says. `amz-sdk-*` only tell of tries, and clients do not sign them.
///
/// Outcomes: all is covered; or `NotThere`, `Twice`, `NotSigned`.
pub(super) fn covered<'a>(
    headers: &'a HeaderMap,
    signed_headers: &str,
    presigned: bool,
) -> Result<Vec<&'a [u8]>, SignError> {
    let matters = |name: &str| {
        name.starts_with("x-amz-")
            || name.starts_with("x-fence-")
            || (name == "content-md5" && !presigned)
    };
    let mut values = Vec::with_capacity(headers.keys_len());
    for name in signed_headers.split(';') {
        let mut all = headers.get_all(name).iter();
        let value = all.next().ok_or_else(|| SignError::NotThere(name.to_owned()))?;
        if all.next().is_some() {
            return Err(SignError::Twice(name.to_owned()));
        }
        values.push(value.as_bytes());
    }
    // All that are named are there, each once: so if as many matter here as there, they are the same.
    let there = || headers.keys().map(http::HeaderName::as_str).filter(|name| matters(name));
    let named = signed_headers.split(';').filter(|name| matters(name)).count();
    if there().count() != named && !mutants::is(Mutant::UnsignedHeaderHeeded) {
        let is_named = |wanted: &str| signed_headers.split(';').any(|name| name == wanted);
        let unsigned = there().find(|name| !is_named(name)).unwrap_or_default();
        return Err(SignError::NotSigned(unsigned.to_owned()));
    }
    Ok(values)
}

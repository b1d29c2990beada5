//! The query as it is signed, and signatures in it: presigned URLs.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

use super::canonical::strict_query;
use super::header::{ALGORITHM, not_supported};
use super::scope::Credential;
use super::secret::{SignatureText, signature_of};
use super::shown::Payload;
use super::time::SignedAt;
use super::{PayloadHash, SignError};

/// How many parameters a signed query may have.
const PARAMETERS_MAX: usize = 100;
/// The longest time that a presigned URL is good, in seconds: 7 days.
pub(super) const EXPIRES_MAX_S: u32 = 604_800;

/// What is not signed, as it is what comes of signing.
pub(super) const SIGNATURE: &str = "X-Amz-Signature";
const OURS: [&str; 6] = [
    "X-Amz-Algorithm",
    "X-Amz-Credential",
    "X-Amz-Date",
    "X-Amz-Expires",
    "X-Amz-SignedHeaders",
    SIGNATURE,
];

/// The parameters of a query, strictly encoded and in order.
#[derive(Debug, Clone)]
pub(super) struct Query<'a>(pub(super) Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'a> Query<'a> {
    /// Reads a query. A parameter without a value has an empty one.
    pub(super) fn read(raw: &'a str) -> Self {
        let pairs = raw.split('&').filter(|pair| !pair.is_empty());
        let mut pairs: Vec<_> = pairs
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .map(|(name, value)| (strict_query(name), strict_query(value)))
            .collect();
        pairs.sort_unstable();
        Self(pairs)
    }

    /// Refuses what nobody has to sign: a parameter that is there twice has two meanings.
    pub(super) fn check(&self) -> Result<(), SignError> {
        let twice = self.0.windows(2).any(|pair| pair[0].0 == pair[1].0);
        if twice {
            return Err(SignError::Ambiguous("a parameter of the query is there twice"));
        }
        let too_many = self.0.len() > PARAMETERS_MAX;
        let error =
            SignError::Ambiguous("the query of a signed request has at most 100 parameters");
        (!too_many).then_some(()).ok_or(error)
    }

    /// Whether this is, or tries to be, a presigned URL of any version.
    ///
    /// # Errors
    /// Of a version that is not served.
    pub(super) fn is_presigned(&self) -> Result<bool, SignError> {
        let mut names = self.0.iter().map(|(name, _)| &**name);
        if names.clone().any(|name| OURS.iter().any(|ours| ours.eq_ignore_ascii_case(name))) {
            return Ok(true);
        }
        let second = names.any(|name| matches!(name, "AWSAccessKeyId" | "Signature"));
        if second { Err(not_supported("AWS")) } else { Ok(false) }
    }

    fn get(&self, wanted: &str) -> Option<Cow<'a, str>> {
        let (_, value) = self.0.iter().find(|(name, _)| name == wanted)?;
        Some(match value {
            Cow::Borrowed(value) => percent_decode_str(value).decode_utf8_lossy(),
            Cow::Owned(value) => Cow::Owned(percent_decode_str(value).decode_utf8_lossy().into()),
        })
    }
}

/// The parts of a presigned URL.
pub(super) struct Presigned<'a> {
    pub(super) credential: Credential<'a>,
    pub(super) signed_at: SignedAt,
    pub(super) expires_s: u32,
    pub(super) signed_headers: Cow<'a, str>,
    pub(super) signature: SignatureText,
    /// What `X-Amz-Content-Sha256` says, if it is there.
    pub(super) payload: Option<Payload<'a>>,
}

impl<'a> Presigned<'a> {
    /// Reads the six parameters.
    pub(super) fn of(query: &Query<'a>) -> Result<Self, SignError> {
        let bad = SignError::MalformedQuery;
        let get = |name, error| query.get(name).ok_or(bad(error));
        let algorithm = get("X-Amz-Algorithm", "X-Amz-Algorithm is missing")?;
        if algorithm != ALGORITHM {
            return Err(not_supported(&algorithm));
        }
        let credential = get("X-Amz-Credential", "X-Amz-Credential is missing")?;
        let signed_at = get("X-Amz-Date", "X-Amz-Date is missing")?;
        let expires = get("X-Amz-Expires", "X-Amz-Expires is missing")?;
        let signature = get(SIGNATURE, "X-Amz-Signature is missing")?;
        let payload = query.get("X-Amz-Content-Sha256").map(|text| {
            PayloadHash::parse(&text)
                .filter(|hash| !matches!(hash, PayloadHash::Chunked { .. }))
                .map(|hash| Payload { text, hash })
                .ok_or(bad("X-Amz-Content-Sha256 is a SHA-256 or UNSIGNED-PAYLOAD"))
        });
        let is_number = expires.bytes().all(|byte| byte.is_ascii_digit());
        let expires_s = expires.parse().ok().filter(|_| is_number);
        Ok(Self {
            credential: Credential::parse(credential).map_err(bad)?,
            signed_at: SignedAt::parse(&signed_at)
                .ok_or(bad("X-Amz-Date is a time such as 20130524T000000Z"))?,
            expires_s: expires_s
                .filter(|expires_s| (1..=EXPIRES_MAX_S).contains(expires_s))
                .ok_or(bad("X-Amz-Expires is a number of seconds from 1 to 604800"))?,
            signed_headers: get("X-Amz-SignedHeaders", "X-Amz-SignedHeaders is missing")?,
            signature: signature_of(&signature)
                .ok_or(bad("X-Amz-Signature has 64 hexadecimal digits in lower case"))?,
            payload: payload.transpose()?,
        })
    }
}

//! What a request shows of who signed it, and whether it is what was signed.

use std::borrow::Cow;

use jiff::{SignedDuration, Timestamp};

use super::canonical::{Canonical, Spaces, has_spaces_to_fold, strict_path};
use super::chunked::Seed;
use super::header::{Authorization, check_form, covered, only};
use super::query::{Presigned, Query};
use super::scope::Credential;
use super::secret::{SignatureText, is_same};
use super::time::SignedAt;
use super::{PayloadHash, RequestHead, SignError, SigningKey};

/// How far a client's clock may be from ours, either way.
const SKEW_MAX: SignedDuration = SignedDuration::from_mins(15);
/// The header that says what is signed of the body.
pub(super) const PAYLOAD_HEADER: &str = "x-amz-content-sha256";

/// What a request shows: nothing of it is proven before [`Shown::verify`].
#[derive(Debug, Clone)]
pub struct Shown<'a> {
    head: RequestHead<'a>,
    query: Query<'a>,
    credential: Credential<'a>,
    signed_at: SignedAt,
    /// How long a presigned URL is good, in seconds.
    expires_s: Option<u32>,
    signed_headers: Cow<'a, str>,
    /// Of the signed headers, in their order.
    values: Vec<&'a [u8]>,
    signature: SignatureText,
    payload: Payload<'a>,
}

/// What is signed of the body, as it was sent and as it was read.
#[derive(Debug, Clone)]
pub(super) struct Payload<'a> {
    pub(super) text: Cow<'a, str>,
    pub(super) hash: PayloadHash,
}

/// A request is what the owner of the key signed, at a time that is good.
#[derive(Debug, Clone)]
pub struct Verified {
    /// What was signed of the body. Whoever reads the body has to hold it against this.
    pub payload: PayloadHash,
    /// What the signatures of chunks begin with, if chunks are signed.
    pub seed: Option<Seed>,
}

impl<'a> Shown<'a> {
    /// Reads who a request says has signed it. `None`: it says nothing, and is anonymous.
    ///
    /// 1. One kind of signature: in a header, or in the query, of version 4.
    /// 2. Nothing that is signed is there twice.
    /// 3. All that changes what the request means is signed: `covered` says what that is.
    /// 4. What is signed of the body is said.
    ///
    /// # Errors
    /// The signature cannot be read, or would not cover the request, whoever has signed it.
    pub fn of(head: &RequestHead<'a>) -> Result<Option<Self>, SignError> {
        let query = Query::read(head.raw_query);
        let in_header = Authorization::of(head.headers)?;
        let in_query = query.is_presigned()?;
        match (in_header, in_query) {
            (None, false) => Ok(None),
            (Some(_), true) => Err(SignError::Ambiguous(
                "a request is signed in its header or in its query, not in both",
            )),
            (Some(header), false) => Self::of_header(*head, query, header).map(Some),
            (None, true) => Self::of_query(*head, query).map(Some),
        }
    }

    fn of_header(
        head: RequestHead<'a>,
        query: Query<'a>,
        shown: Authorization<'a>,
    ) -> Result<Self, SignError> {
        query.check()?;
        check_form(shown.signed_headers).map_err(SignError::MalformedHeader)?;
        let values = covered(head.headers, shown.signed_headers, false)?;
        let signed_at = SignedAt::of_headers(head.headers)?;
        if signed_at.day() != shown.credential.day() {
            return Err(SignError::MalformedHeader(
                "the day in Credential is not that of the date",
            ));
        }
        let payload = payload_of_header(&head)?
            .ok_or(SignError::BadHeader("a signed request has the header x-amz-content-sha256"))?;
        Ok(Self {
            head,
            query,
            credential: shown.credential,
            signed_at,
            expires_s: None,
            signed_headers: Cow::Borrowed(shown.signed_headers),
            values,
            signature: shown.signature,
            payload,
        })
    }

    fn of_query(head: RequestHead<'a>, query: Query<'a>) -> Result<Self, SignError> {
        query.check()?;
        let shown = Presigned::of(&query)?;
        check_form(&shown.signed_headers).map_err(SignError::MalformedQuery)?;
        let values = covered(head.headers, &shown.signed_headers, true)?;
        if shown.signed_at.day() != shown.credential.day() {
            return Err(SignError::MalformedQuery(
                "the day in Credential is not that of X-Amz-Date",
            ));
        }
        let payload = match (shown.payload, payload_of_header(&head)?) {
            (Some(one), Some(other)) if one.hash != other.hash => {
                return Err(SignError::Ambiguous(
                    "X-Amz-Content-Sha256 is one thing in the query and another in the header",
                ));
            }
            (_, Some(Payload { hash: PayloadHash::Chunked { .. }, .. })) => {
                return Err(SignError::NotSupported(
                    "a presigned URL takes no body in signed chunks",
                ));
            }
            (one, other) => one.or(other).unwrap_or(UNSIGNED),
        };
        Ok(Self {
            head,
            credential: shown.credential,
            signed_at: shown.signed_at,
            expires_s: Some(shown.expires_s),
            signed_headers: shown.signed_headers,
            values,
            signature: shown.signature,
            payload,
            query,
        })
    }

    /// The id of the key: [`crate::key::Keys::read`] says whose it is.
    pub fn id(&self) -> &str {
        self.credential.id()
    }

    /// The day of the signature, `yyyymmdd`.
    pub fn day(&self) -> &str {
        self.credential.day()
    }

    /// The region that it was signed for. Any is served.
    pub fn region(&self) -> &str {
        self.credential.region()
    }

    /// Whether it is a presigned URL.
    pub fn is_presigned(&self) -> bool {
        self.expires_s.is_some()
    }

    /// What is signed of the body.
    pub fn payload(&self) -> PayloadHash {
        self.payload.hash
    }

    /// Whether the request is what the owner of the key signed, and its time is good. `key` is that of [`Shown::id`]'s
    /// secret, [`Shown::day`] and [`Shown::region`]. The gateway's clock decides who is let in to ask, never a fence (I14).
    ///
    /// 1. The time: within 15 minutes of `now`; a presigned URL from then on until it ends. Else `TooSkewed`, `Expired`.
    /// 2. The signature over the path as it came, with spaces in header values folded, is the one that was sent. Compared in
    ///    constant time.
    /// 3. If not: that over the path in its strictest spelling (the C++ SDK signs one and sends another), or with the
    ///    spaces kept (s3cmd). None of these readings is another object or another header. Else `DoesNotMatch`.
    ///
    /// # Errors
    /// As named. A wrong key is a wrong signature.
    pub fn verify(&self, key: &SigningKey, now: Timestamp) -> Result<Verified, SignError> {
        self.check_time(now)?;
        let sent = self.canonical();
        let matches =
            self.matches(key, sent) || self.other_readings(sent, |other| self.matches(key, other));
        if !matches {
            return Err(SignError::DoesNotMatch);
        }
        let payload = self.payload.hash;
        let with_seed = matches!(payload, PayloadHash::Chunked { signed: true, .. });
        let seed = with_seed.then(|| {
            Seed::new(key.clone(), self.signed_at, self.credential.scope(), self.signature)
        });
        Ok(Verified { payload, seed })
    }

    /// The request as it was sent.
    fn canonical(&self) -> Canonical<'_> {
        Canonical {
            method: self.head.method.as_str(),
            path: self.head.raw_path,
            query: &self.query,
            signed_headers: &self.signed_headers,
            values: &self.values,
            spaces: Spaces::Folded,
            payload: &self.payload.text,
        }
    }

    fn matches(&self, key: &SigningKey, canonical: Canonical<'_>) -> bool {
        let ours = canonical.sign(key, self.signed_at.as_str(), self.credential.scope());
        is_same(&ours, &self.signature)
    }

    /// Whether one of the readings is it that some clients sign instead.
    fn other_readings(&self, sent: Canonical<'_>, is_it: impl Fn(Canonical<'_>) -> bool) -> bool {
        let strict = strict_path(sent.path);
        let path = Canonical { path: &strict, ..sent };
        let kept = |canonical| Canonical { spaces: Spaces::Kept, ..canonical };
        let has_path = strict != sent.path;
        let has_spaces = self.values.iter().any(|value| has_spaces_to_fold(value));
        (has_path && is_it(path))
            || (has_spaces && is_it(kept(sent)))
            || (has_path && has_spaces && is_it(kept(path)))
    }

    fn check_time(&self, now: Timestamp) -> Result<(), SignError> {
        let signed_at = self.signed_at.at;
        let age = now.duration_since(signed_at);
        let oldest = match self.expires_s {
            Some(expires_s) => SignedDuration::from_secs(expires_s.into()),
            None => SKEW_MAX,
        };
        if age < -SKEW_MAX || (age > oldest && self.expires_s.is_none()) {
            return Err(SignError::TooSkewed { signed_at, now });
        }
        if age > oldest {
            let until = signed_at.checked_add(oldest).unwrap_or(Timestamp::MAX);
            return Err(SignError::Expired { until });
        }
        Ok(())
    }
}

const UNSIGNED: Payload<'static> =
    Payload { text: Cow::Borrowed("UNSIGNED-PAYLOAD"), hash: PayloadHash::Unsigned };

fn payload_of_header<'a>(head: &RequestHead<'a>) -> Result<Option<Payload<'a>>, SignError> {
    let Some(text) = only(head.headers, PAYLOAD_HEADER)? else { return Ok(None) };
    if text.starts_with("STREAMING-AWS4-ECDSA-") {
        return Err(super::header::not_supported("AWS4-ECDSA-P256-SHA256"));
    }
    let hash = PayloadHash::parse(text).ok_or(SignError::BadHeader(
        "x-amz-content-sha256 is a SHA-256 in lower case, UNSIGNED-PAYLOAD, or one of the STREAMING-... values with HMAC-SHA256",
    ))?;
    Ok(Some(Payload { text: Cow::Borrowed(text), hash }))
}

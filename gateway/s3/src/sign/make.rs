//! The side that signs: for tests, and for tools of our own.

use http::header::{AUTHORIZATION, HOST};
use http::{HeaderMap, HeaderName, HeaderValue};
use jiff::Timestamp;

use super::canonical::{Canonical, Spaces, as_value};
use super::chunked::Seed;
use super::header::{ALGORITHM, covered};
use super::query::{EXPIRES_MAX_S, Query, SIGNATURE};
use super::shown::PAYLOAD_HEADER;
use super::time::SignedAt;
use super::{PayloadHash, RequestHead, SignError, SigningKey};

/// What is not signed although it is there: what servers in between change or take away.
const UNSIGNED: [&str; 7] = [
    "accept-encoding",
    "authorization",
    "connection",
    "content-length",
    "expect",
    "transfer-encoding",
    "user-agent",
];

/// Signs requests with one key.
#[derive(Debug, Clone, Copy)]
pub struct Signer<'a> {
    /// The id of the key.
    pub id: &'a str,
    /// Its secret.
    pub secret: &'a str,
    /// A region, such as `us-east-1`.
    pub region: &'a str,
}

impl Signer<'_> {
    /// The header lines to set for a request to be signed: `x-amz-date`, `x-amz-content-sha256`, `authorization`. All header
    /// lines that the request has are signed, but for those that change on the way; `host` must be among them.
    ///
    /// With them comes what the signatures of chunks begin with.
    ///
    /// # Errors
    /// The request has two meanings, has no `host`, or the time has no text.
    pub fn sign(
        &self,
        head: &RequestHead<'_>,
        payload: PayloadHash,
        at: Timestamp,
    ) -> Result<(HeaderMap, Seed), SignError> {
        let signed_at = time(at)?;
        let payload = payload.to_string();
        let mut headers = head.headers.clone();
        let mut more = HeaderMap::new();
        for (name, text) in [("x-amz-date", signed_at.as_str()), (PAYLOAD_HEADER, &payload)] {
            let value = value(text)?;
            headers.insert(HeaderName::from_static(name), value.clone());
            more.insert(HeaderName::from_static(name), value);
        }
        let query = Query::read(head.raw_query);
        query.check()?;
        let signed_headers = names(&headers)?;
        let scope = self.scope(&signed_at);
        let key = SigningKey::of(self.secret, signed_at.day(), self.region);
        let canonical = Canonical {
            method: head.method.as_str(),
            path: head.raw_path,
            query: &query,
            signed_headers: &signed_headers,
            values: &covered(&headers, &signed_headers, false)?,
            spaces: Spaces::Folded,
            payload: &payload,
        };
        let signature = canonical.sign(&key, signed_at.as_str(), &scope);
        let text = format!(
            "{ALGORITHM} Credential={}/{scope}, SignedHeaders={signed_headers}, Signature={}",
            self.id,
            String::from_utf8_lossy(&signature)
        );
        more.insert(AUTHORIZATION, value(&text)?);
        Ok((more, Seed::new(key, signed_at, &scope, signature)))
    }

    /// The query with which a request is good for `expires_s` seconds, for whoever has it. Nothing of the body is signed.
    ///
    /// # Errors
    /// As [`Signer::sign`]; `expires_s` is not from 1 to 604,800; the query has parameters of a signature already.
    pub fn presign(
        &self,
        head: &RequestHead<'_>,
        expires_s: u32,
        at: Timestamp,
    ) -> Result<String, SignError> {
        let signed_at = time(at)?;
        if !(1..=EXPIRES_MAX_S).contains(&expires_s) {
            return Err(SignError::MalformedQuery(
                "a presigned URL is good for 1 to 604800 seconds",
            ));
        }
        if Query::read(head.raw_query).is_presigned()? {
            return Err(SignError::Ambiguous("the query is signed already"));
        }
        let signed_headers = names(head.headers)?;
        let scope = self.scope(&signed_at);
        let credential = format!("{}/{scope}", self.id);
        let between = if head.raw_query.is_empty() { "" } else { "&" };
        let mut text = format!(
            "{}{between}X-Amz-Algorithm={ALGORITHM}&X-Amz-Credential={}&X-Amz-Date={}&X-Amz-Expires={expires_s}&X-Amz-SignedHeaders={}",
            head.raw_query,
            as_value(&credential),
            signed_at.as_str(),
            as_value(&signed_headers),
        );
        let query = Query::read(&text);
        query.check()?;
        let canonical = Canonical {
            method: head.method.as_str(),
            path: head.raw_path,
            query: &query,
            signed_headers: &signed_headers,
            values: &covered(head.headers, &signed_headers, true)?,
            spaces: Spaces::Folded,
            payload: &PayloadHash::Unsigned.to_string(),
        };
        let key = SigningKey::of(self.secret, signed_at.day(), self.region);
        let signature = canonical.sign(&key, signed_at.as_str(), &scope);
        text.push_str(&format!("&{SIGNATURE}={}", String::from_utf8_lossy(&signature)));
        Ok(text)
    }

    fn scope(&self, signed_at: &SignedAt) -> String {
        format!("{}/{}/s3/aws4_request", signed_at.day(), self.region)
    }
}

fn time(at: Timestamp) -> Result<SignedAt, SignError> {
    SignedAt::of(at).ok_or(SignError::BadHeader("this time has no text in a signature"))
}

fn value(text: &str) -> Result<HeaderValue, SignError> {
    const BAD: SignError =
        SignError::BadHeader("the id of the key or the region is no text for a header");
    HeaderValue::from_str(text).map_err(|_| BAD)
}

/// The names of the headers to sign, in order.
fn names(headers: &HeaderMap) -> Result<String, SignError> {
    if !headers.contains_key(HOST) {
        return Err(SignError::BadHeader("a request is signed with its Host header"));
    }
    let names = headers.keys().map(HeaderName::as_str);
    let mut names: Vec<_> = names.filter(|name| !UNSIGNED.contains(name)).collect();
    names.sort_unstable();
    Ok(names.join(";"))
}

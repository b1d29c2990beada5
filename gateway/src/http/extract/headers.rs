//! The headers of writes: the fence token and what else a writer may demand.

use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, header};
use fence_core::etag::ObjectCondition;
use fence_core::lock::DurationText;
use fence_core::wire::{KEY_KEPT_MAX, KEY_KEPT_MIN};
use fence_core::{ErrorCode, LockId, Token};
use humantime::format_duration;

use super::conditions::WriteConditions;
use crate::engine::metrics::count_rejection;
use crate::http::middleware::{Named, RequestId};
use crate::http::problem::Problem;
use crate::http::state::App;

const IDEMPOTENCY_KEY_BYTES_MAX: usize = 255;
const KEY_KEPT: &str = "x-fence-key-kept";
const CONTENT_TYPE_BYTES_MAX: usize = 255;

/// The one line of a header that may come only once.
pub fn single<'h>(headers: &'h HeaderMap, name: &str) -> Result<Option<&'h [u8]>, Problem> {
    let mut lines = headers.get_all(name).iter();
    let first = lines.next();
    if lines.next().is_some() {
        return Err(Problem::malformed(format!("{name} may be sent only once")));
    }
    Ok(first.map(|value| value.as_bytes()))
}

/// `X-Fence-Token`: exactly one line, a well-formed token, with `X-Lock-Id` where that is required.
pub struct Fenced(pub Token);

impl FromRequestParts<App> for Fenced {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        fence_token(&parts.headers, app.requires_lock_id()).map(Self)
    }
}

/// The token of a write.
///
/// # Errors
/// It is missing or malformed, or comes without the lock's id where that is required: counted with those
/// that the rule refuses.
pub fn fence_token(headers: &HeaderMap, requires_lock_id: bool) -> Result<Token, Problem> {
    let counted = |problem: Problem| {
        count_rejection(problem.code());
        problem
    };
    let token = read_token(headers).map_err(counted)?;
    if requires_lock_id && !headers.contains_key("x-lock-id") {
        return Err(counted(Problem::new(
            ErrorCode::LockIdMissing,
            "send the id of your lock as X-Lock-Id beside its token",
        )));
    }
    Ok(token)
}

fn read_token(headers: &HeaderMap) -> Result<Token, Problem> {
    let none = || {
        let why = "send the token of your lock as X-Fence-Token";
        Problem::new(ErrorCode::FenceTokenMissing, why)
    };
    token_of(headers)?.ok_or_else(none)
}

/// `X-Fence-Token`, if it is sent.
///
/// # Errors
/// It is not exactly one token.
pub fn token_of(headers: &HeaderMap) -> Result<Option<Token>, Problem> {
    let mut lines = headers.get_all("x-fence-token").iter();
    let Some(first) = lines.next() else { return Ok(None) };
    let malformed = |why: String| Problem::new(ErrorCode::FenceTokenMalformed, why);
    if lines.next().is_some() {
        return Err(malformed("X-Fence-Token may be sent only once".into()));
    }
    Token::parse(first.as_bytes()).map(Some).map_err(|error| malformed(error.to_string()))
}

/// What a writer may send beside its token for the fence, whatever it writes to.
pub struct FenceHeaders {
    /// `X-Lock-Id`
    pub lock: Option<LockId>,
    /// `X-Fence-Seq`
    pub sequence: Option<i64>,
    /// `X-If-Resource-Version`
    pub resource_version: Option<i64>,
    /// The request's id.
    pub request_id: String,
}

impl FenceHeaders {
    /// Reads the headers.
    ///
    /// # Errors
    /// One of them is malformed.
    pub fn parse(headers: &HeaderMap, extensions: &Extensions) -> Result<Self, Problem> {
        // Only passed on, but of a form that whoever keeps it can rely on.
        idempotency_key(headers)?;
        Ok(Self {
            lock: lock_id(headers)?,
            sequence: number(headers, "x-fence-seq")?,
            resource_version: number(headers, "x-if-resource-version")?,
            request_id: RequestId::of(extensions).to_owned(),
        })
    }
}

/// What a writer may send beside its token.
pub struct WriteHeaders {
    /// `X-Lock-Id`
    pub lock: Option<LockId>,
    /// `X-Fence-Seq`
    pub sequence: Option<i64>,
    /// `Idempotency-Key`
    pub idempotency_key: Option<String>,
    /// `X-Fence-Key-Kept`
    pub key_kept: Option<Duration>,
    /// `If-Match` or `If-None-Match: *`
    pub object_condition: Option<ObjectCondition>,
    /// `X-If-Resource-Version`
    pub resource_version: Option<i64>,
    /// The request's id.
    pub request_id: String,
    /// Where to note whose write it is.
    pub named: Named,
}

impl FromRequestParts<App> for WriteHeaders {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let headers = &parts.headers;
        Ok(Self {
            key_kept: key_kept(headers, || app.engine.keys_kept())?,
            lock: lock_id(headers)?,
            sequence: number(headers, "x-fence-seq")?,
            idempotency_key: idempotency_key(headers)?,
            object_condition: WriteConditions::parse(headers)?.0,
            resource_version: number(headers, "x-if-resource-version")?,
            request_id: RequestId::of(&parts.extensions).to_owned(),
            named: parts.extensions.get().cloned().unwrap_or_default(),
        })
    }
}

/// `X-Lock-Id`, if it is sent.
///
/// # Errors
/// It is not exactly one id.
pub fn lock_id(headers: &HeaderMap) -> Result<Option<LockId>, Problem> {
    let Some(value) = single(headers, "x-lock-id")? else {
        return Ok(None);
    };
    let id = LockId::parse(std::str::from_utf8(value).unwrap_or_default());
    id.map(Some).map_err(|why| Problem::malformed(format!("X-Lock-Id: {why}")))
}

/// A plain decimal from 0 to 2^63-1, without sign or leading zero, which `parse` alone would take.
fn number(headers: &HeaderMap, name: &str) -> Result<Option<i64>, Problem> {
    let Some(value) = single(headers, name)? else {
        return Ok(None);
    };
    let plain = value == b"0"
        || matches!(value, [b'1'..=b'9', rest @ ..] if rest.iter().all(u8::is_ascii_digit));
    std::str::from_utf8(value)
        .ok()
        .filter(|_| plain)
        .and_then(|digits| digits.parse().ok())
        .map(Some)
        .ok_or_else(|| {
            Problem::malformed(format!("{name} is a plain number from 0 to 9223372036854775807"))
        })
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let Some(value) = single(headers, "idempotency-key")? else {
        return Ok(None);
    };
    std::str::from_utf8(value)
        .ok()
        .filter(|key| is_idempotency_key(key))
        .map(|key| Some(key.to_owned()))
        .ok_or_else(|| {
            Problem::malformed("an Idempotency-Key has 1 to 255 visible ASCII characters")
        })
}

/// How long the key is to be remembered: at least a minute, so that a retry finds it, and no longer than any key
/// is, for which `GET /status` tells the gateway's own time.
fn key_kept(
    headers: &HeaderMap,
    most: impl FnOnce() -> Duration,
) -> Result<Option<Duration>, Problem> {
    let Some(value) = single(headers, KEY_KEPT)? else {
        return Ok(None);
    };
    if !headers.contains_key("idempotency-key") {
        let why = "X-Fence-Key-Kept says how long an Idempotency-Key is remembered: send one";
        return Err(Problem::malformed(why));
    }
    let text = std::str::from_utf8(value).unwrap_or_default();
    let kept = text.parse().map(|DurationText(kept)| kept);
    let kept = kept.map_err(|why| Problem::malformed(format!("X-Fence-Key-Kept: {why}")))?;
    if !(KEY_KEPT_MIN..=KEY_KEPT_MAX).contains(&kept) {
        let (least, most) = (format_duration(KEY_KEPT_MIN), format_duration(KEY_KEPT_MAX));
        let why = format!("X-Fence-Key-Kept: {text} is not from {least} to {most}");
        return Err(Problem::malformed(why));
    }
    Ok(Some(kept.min(most())))
}

/// 1 to 255 visible ASCII characters, no space.
pub fn is_idempotency_key(key: &str) -> bool {
    (1..=IDEMPOTENCY_KEY_BYTES_MAX).contains(&key.len())
        && key.bytes().all(|byte| byte.is_ascii_graphic())
}

/// The headers that describe the bytes of a put.
pub struct Payload {
    /// `Content-Type`, `application/octet-stream` by default.
    pub content_type: String,
}

impl<S: Sync> FromRequestParts<S> for Payload {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        not_encoded(&parts.headers)?;
        let content_type = content_type(&parts.headers)?;
        Ok(Self { content_type })
    }
}

/// Encoded bodies are refused: stored as they are they would be served without their encoding,
/// and inflating them would let a small request become a huge one.
pub(in crate::http) fn not_encoded(headers: &HeaderMap) -> Result<(), Problem> {
    match single(headers, header::CONTENT_ENCODING.as_str())? {
        None => Ok(()),
        Some(coding) if coding.eq_ignore_ascii_case(b"identity") => Ok(()),
        Some(_) => Err(Problem::new(
            ErrorCode::UnsupportedMediaType,
            "send the body without Content-Encoding",
        )),
    }
}

fn content_type(headers: &HeaderMap) -> Result<String, Problem> {
    let Some(value) = single(headers, header::CONTENT_TYPE.as_str())? else {
        return Ok("application/octet-stream".into());
    };
    std::str::from_utf8(value)
        .ok()
        .filter(|text| is_content_type(text))
        .map(str::to_owned)
        .ok_or_else(|| Problem::malformed("a Content-Type has 1 to 255 visible ASCII characters"))
}

/// 1 to 255 visible ASCII characters and spaces.
pub fn is_content_type(text: &str) -> bool {
    (1..=CONTENT_TYPE_BYTES_MAX).contains(&text.len())
        && text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::{HeaderName, HeaderValue};

    fn headers(lines: &[(&'static str, &[u8])]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in lines {
            map.append(HeaderName::from_static(name), HeaderValue::from_bytes(value).unwrap());
        }
        map
    }

    #[test]
    fn a_token_is_exactly_one_well_formed_line() {
        let token = |lines: &[&'static [u8]]| {
            let lines: Vec<_> = lines.iter().map(|line| ("x-fence-token", *line)).collect();
            read_token(&headers(&lines)).map_err(|problem| problem.code())
        };
        assert_eq!(token(&[b"5"]), Ok(Token::new(5).unwrap()));
        assert_eq!(token(&[]), Err(ErrorCode::FenceTokenMissing));
        for bad in [b"".as_slice(), b"0", b"-1", b"+5", b"007", b"5, 9", b"0x21", b"\xd9\xa3"] {
            assert_eq!(token(&[bad]), Err(ErrorCode::FenceTokenMalformed), "{bad:?}");
        }
        assert_eq!(token(&[b"5", b"5"]), Err(ErrorCode::FenceTokenMalformed));
    }

    #[test]
    fn sequences_are_plain_numbers() {
        let parse = |value: &[u8]| number(&headers(&[("x-fence-seq", value)]), "x-fence-seq");
        assert_eq!(parse(b"0").unwrap(), Some(0));
        assert_eq!(parse(b"9223372036854775807").unwrap(), Some(i64::MAX));
        for bad in [b"".as_slice(), b"-1", b"+1", b"01", b"1.0", b"9223372036854775808", b"1e3"] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
        let twice = headers(&[("x-fence-seq", b"1"), ("x-fence-seq", b"1")]);
        assert!(number(&twice, "x-fence-seq").is_err());
    }

    #[test]
    fn idempotency_keys_are_visible_ascii() {
        assert!(is_idempotency_key("order-17/a"));
        assert!(is_idempotency_key(&"k".repeat(255)));
        for bad in ["", "a b", "a\tb", "é", &"k".repeat(256)] {
            assert!(!is_idempotency_key(bad), "{bad:?}");
        }
    }

    #[test]
    fn keys_are_kept_for_a_minute_at_least_and_no_longer_than_others() {
        let most = || Duration::from_secs(7200);
        let parse = |kept: &'static str| {
            let lines = [("idempotency-key", b"k".as_slice()), (KEY_KEPT, kept.as_bytes())];
            key_kept(&headers(&lines), most)
        };
        assert_eq!(key_kept(&headers(&[]), most).unwrap(), None);
        for (good, seconds) in
            [("1m", 60), ("60000ms", 60), ("1h", 3600), ("120m", 7200), ("3h", 7200), ("7d", 7200)]
        {
            assert_eq!(parse(good).unwrap(), Some(Duration::from_secs(seconds)), "{good}");
        }
        for bad in ["", "1", "h", "1.5h", "1 h", "01h", "-1h", "59s", "0h", "9999d", "infinite"] {
            assert_eq!(parse(bad).unwrap_err().code(), ErrorCode::RequestMalformed, "{bad}");
        }
        let alone = headers(&[(KEY_KEPT, b"1h")]);
        assert_eq!(key_kept(&alone, most).unwrap_err().code(), ErrorCode::RequestMalformed);
        let twice = [("idempotency-key", b"k".as_slice()), (KEY_KEPT, b"1h"), (KEY_KEPT, b"1h")];
        assert!(key_kept(&headers(&twice), most).is_err());
    }

    #[test]
    fn content_types_have_a_default_and_a_limit() {
        assert_eq!(content_type(&headers(&[])).unwrap(), "application/octet-stream");
        let plain = headers(&[("content-type", b"text/plain; charset=utf-8")]);
        assert_eq!(content_type(&plain).unwrap(), "text/plain; charset=utf-8");
        assert!(content_type(&headers(&[("content-type", &[b'a'; 256])])).is_err());
        assert!(content_type(&headers(&[("content-type", b"te\xc3\xa9")])).is_err());
        assert!(not_encoded(&headers(&[("content-encoding", b"gzip")])).is_err());
        assert!(not_encoded(&headers(&[("content-encoding", b"Identity")])).is_ok());
    }
}

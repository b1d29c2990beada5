//! JSON bodies: `application/json`, bounded, no unknown fields, nothing after the value.

use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, header};
use bytes::Bytes;
use fence_core::ErrorCode;
use fence_core::names::{NO_OBJECT_KEY, NO_RESOURCE_NAME};
use serde::de::DeserializeOwned;

use super::body::{declared_length, read_body};
use super::digest::Digests;
use super::headers::{not_encoded, single};
use crate::http::peers::Counted;
use crate::http::problem::Problem;
use crate::http::state::App;

/// A body that must be there.
pub struct StrictJson<T>(pub T);

/// A body that must be there, and that may be larger than others: of at most `MAX` bytes.
pub struct WideJson<T, const MAX: usize>(pub T);

/// A body that may be left out.
pub struct OptionalJson<T>(pub T);

impl<T: DeserializeOwned> FromRequest<App> for StrictJson<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Self, Problem> {
        is_json(request.headers())?;
        let body = read(request, app, app.limits.json_bytes_max).await?;
        parse(&body).map(Self)
    }
}

impl<T: DeserializeOwned, const MAX: usize> FromRequest<App> for WideJson<T, MAX> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Self, Problem> {
        is_json(request.headers())?;
        let body = read(request, app, MAX).await?;
        parse(&body).map(Self)
    }
}

impl<T: DeserializeOwned + Default> FromRequest<App> for OptionalJson<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Self, Problem> {
        let json = is_json(request.headers());
        let body = read(request, app, app.limits.json_bytes_max).await?;
        if body.is_empty() {
            return Ok(Self(T::default()));
        }
        json?;
        parse(&body).map(Self)
    }
}

async fn read(request: Request, app: &App, max: usize) -> Result<Bytes, Problem> {
    declared_length(request.headers(), max)?;
    let digests = Digests::parse(request.headers())?;
    let counted = Counted::by(request.extensions());
    let purse = app.room.json.of(&counted);
    let body = read_body(request.into_body(), max, &app.limits, purse).await?;
    digests.check_whole(&body)?;
    Ok(body)
}

/// Whether the headers say so.
pub fn is_json(headers: &HeaderMap) -> Result<(), Problem> {
    not_encoded(headers)?;
    let content_type = single(headers, header::CONTENT_TYPE.as_str())?.unwrap_or_default();
    let essence = content_type.split(|byte| *byte == b';').next().unwrap_or_default();
    if essence.trim_ascii().eq_ignore_ascii_case(b"application/json") {
        return Ok(());
    }
    Err(Problem::new(ErrorCode::UnsupportedMediaType, "send Content-Type: application/json"))
}

/// Parses a body.
pub fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    // Fields by position would be taken, too.
    if body.trim_ascii_start().first() == Some(&b'[') {
        return Err(Problem::new(
            ErrorCode::BodyMalformed,
            "the body is a JSON object, not a list",
        ));
    }
    serde_json::from_slice(body).map_err(|error| {
        // Serde has one kind of error for whatever a type says of its text.
        let why = error.to_string();
        let code = match &why {
            why if why.starts_with(NO_RESOURCE_NAME) => ErrorCode::ResourceNameInvalid,
            why if why.starts_with(NO_OBJECT_KEY) => ErrorCode::ObjectKeyInvalid,
            _ => ErrorCode::BodyMalformed,
        };
        Problem::new(code, why)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;
    use fence_core::wire::{AcquireRequest, RenewRequest};

    #[test]
    fn only_json_is_json() {
        for (content_type, fits) in [
            ("application/json", true),
            ("Application/JSON; charset=utf-8", true),
            ("text/plain", false),
            ("application/jsonx", false),
            ("", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
            assert_eq!(is_json(&headers).is_ok(), fits, "{content_type}");
        }
        assert!(is_json(&HeaderMap::new()).is_err());
    }

    #[test]
    fn bodies_are_taken_literally() {
        assert!(parse::<AcquireRequest>(br#"{"resource":"a","ttl":"30s"}"#).is_ok());
        for bad in [
            r#"{"resource":"a","tll":"30s"}"#,
            r#"{"resource":"a","resource":"b"}"#,
            r#"{"resource":"a"} {}"#,
            r#"{"resource":"a/b"}"#,
            r#"{"resource":"a","ttl":30}"#,
            r#"{"resource":"a","ttl":"0s"}"#,
            r#"{"resource":"a","ttl":"-1s"}"#,
            r#"{"resource":"a","ttl":"25h"}"#,
            "",
        ] {
            assert!(parse::<AcquireRequest>(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(parse::<RenewRequest>(b"{}").is_ok());
    }
}

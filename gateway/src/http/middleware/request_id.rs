//! `X-Request-Id`: taken over from the caller if it is harmless, made up otherwise.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, HeaderValue};
use uuid::Uuid;

const REQUEST_ID_BYTES_MAX: usize = 128;

/// The id of a request, as in its answer, the log and the ledger's rejections.
#[derive(Debug, Clone)]
pub struct RequestId(HeaderValue);

impl RequestId {
    /// The caller's id if it is 1 to 128 visible ASCII characters on one line, else a new one.
    pub fn accept(headers: &HeaderMap) -> Self {
        let mut lines = headers.get_all("x-request-id").iter();
        match (lines.next(), lines.next()) {
            (Some(id), None) if harmless(id.as_bytes()) => Self(id.clone()),
            _ => Self::random(),
        }
    }

    /// A new id.
    #[expect(
        clippy::disallowed_methods,
        reason = "ids of requests are shown to people; nothing depends on them"
    )]
    pub fn random() -> Self {
        Self(crate::http::problem::text(Uuid::new_v4()))
    }

    /// The id of the request that carries these extensions; empty outside of the middleware.
    pub fn of(extensions: &Extensions) -> &str {
        extensions.get::<Self>().map_or("", Self::as_str)
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        self.0.to_str().unwrap_or_default()
    }

    /// As a header.
    pub fn as_header(&self) -> HeaderValue {
        self.0.clone()
    }
}

impl<S: Sync> FromRequestParts<S> for RequestId {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(parts.extensions.get().cloned().unwrap_or_else(Self::random))
    }
}

fn harmless(id: &[u8]) -> bool {
    (1..=REQUEST_ID_BYTES_MAX).contains(&id.len()) && id.iter().all(u8::is_ascii_graphic)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strange_ids_are_replaced() {
        for (id, kept) in [
            ("abc-1", true),
            ("", false),
            ("a b", false),
            (&"x".repeat(128), true),
            (&"x".repeat(129), false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert("x-request-id", HeaderValue::from_str(id).unwrap());
            assert_eq!(RequestId::accept(&headers).as_str() == id, kept, "{id}");
        }
        assert_eq!(RequestId::accept(&HeaderMap::new()).as_str().len(), 36);
    }
}

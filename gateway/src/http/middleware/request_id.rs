//! `X-Request-Id`: taken over from the caller if it is harmless, made up otherwise. A caller may use one id for many requests,
//! so that there is one of the gateway's own beside it.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, HeaderValue};
use uuid::Uuid;

const REQUEST_ID_BYTES_MAX: usize = 128;

/// The id of a request, as in its answer, the log and the ledger's rejections.
#[derive(Debug, Clone)]
pub struct RequestId {
    id: HeaderValue,
    /// The gateway's own, if that is the caller's.
    own: Option<Uuid>,
}

impl RequestId {
    /// The caller's id if it is 1 to 128 visible ASCII characters on one line, else a new one.
    pub fn accept(headers: &HeaderMap) -> Self {
        let mut lines = headers.get_all("x-request-id").iter();
        match (lines.next(), lines.next()) {
            (Some(id), None) if harmless(id.as_bytes()) => {
                Self { id: id.clone(), own: Some(new_id()) }
            }
            _ => Self::random(),
        }
    }

    /// A new id.
    pub fn random() -> Self {
        Self { id: crate::http::problem::text(new_id()), own: None }
    }

    /// The gateway's own id of a request whose caller named one.
    pub fn own(&self) -> Option<Uuid> {
        self.own
    }

    /// The id of the request that carries these extensions; empty outside of the middleware.
    pub fn of(extensions: &Extensions) -> &str {
        extensions.get::<Self>().map_or("", Self::as_str)
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        self.id.to_str().unwrap_or_default()
    }

    /// As a header.
    pub fn as_header(&self) -> HeaderValue {
        self.id.clone()
    }
}

impl<S: Sync> FromRequestParts<S> for RequestId {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(parts.extensions.get().cloned().unwrap_or_else(Self::random))
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "ids of requests are shown to people; nothing depends on them"
)]
fn new_id() -> Uuid {
    Uuid::new_v4()
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
            let accepted = RequestId::accept(&headers);
            assert_eq!((accepted.as_str() == id, accepted.own().is_some()), (kept, kept), "{id}");
        }
        assert_eq!(RequestId::accept(&HeaderMap::new()).as_str().len(), 36);
    }
}

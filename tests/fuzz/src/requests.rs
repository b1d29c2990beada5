//! Requests without a server: what the extractors see.

use axum::extract::FromRequestParts;
use axum::http::Request;
use fencegate::http::Problem;
use futures::FutureExt as _;
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// What an extractor makes of this path and query; `None` if they are no URI.
pub(crate) fn extracted<T>(target: &str) -> Option<Result<T, Problem>>
where
    T: FromRequestParts<(), Rejection = Problem>,
{
    let request = Request::builder().uri(target).body(()).ok()?;
    let (mut parts, ()) = request.into_parts();
    // Extractors of parts wait for nothing.
    Some(T::from_request_parts(&mut parts, &()).now_or_never().unwrap())
}

/// Percent-encodes everything that could have a meaning, a slash too.
pub(crate) fn encode(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

/// The same for a key: its slashes separate segments.
pub(crate) fn encode_key(text: &str) -> String {
    text.split('/').map(encode).collect::<Vec<_>>().join("/")
}

/// Decodes once, leaving what is no escape.
pub(crate) fn decode(text: &str) -> Vec<u8> {
    percent_decode_str(text).collect()
}

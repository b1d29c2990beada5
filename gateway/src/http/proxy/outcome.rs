//! The outcome of a forwarded request, as far as its answer tells.

use axum::http::StatusCode;

use crate::http::problem::Problem;

/// Why there is no whole answer.
pub(super) enum Outcome {
    /// Nothing was sent.
    Unsent(Problem),
    /// Something was sent; the upstream may have acted or not.
    Unknown(Problem),
}

/// Whether an answer with this status may be somebody's in between who has none of the upstream: those
/// with which load balancers, sidecars and (from 520) content delivery networks say that they waited in
/// vain, or lost the connection. `Retry-After` tells nothing: some send it with such a 503, too.
pub(super) fn may_be_of_another(status: StatusCode) -> bool {
    matches!(status.as_u16(), 502..=504 | 520..=530)
}

/// The class of a status, for the metrics.
pub(super) fn class(status: StatusCode) -> &'static str {
    match status.as_u16() {
        200..=299 => "2xx",
        300..=399 => "3xx",
        400..=499 => "4xx",
        _ => "5xx",
    }
}

/// An error and its causes, without the URL.
pub(super) fn chain(error: &reqwest::Error) -> String {
    let mut text = String::new();
    let mut cause = std::error::Error::source(error);
    while let Some(one) = cause {
        text = format!("{text}{}{one}", if text.is_empty() { "" } else { ": " });
        cause = one.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_some_statuses_may_be_of_another() {
        let may = |code| may_be_of_another(StatusCode::from_u16(code).unwrap());
        assert!([502, 503, 504, 520, 524, 530].into_iter().all(may));
        assert!(![200, 302, 404, 408, 429, 500, 501, 505, 507, 519, 531].into_iter().any(may));
    }
}

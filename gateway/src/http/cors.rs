//! What pages of other origins may send, and what they may read of the answers (CORS).

use std::time::Duration;

use axum::http::{HeaderName, Method, header};
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer, ExposeHeaders};

use super::middleware::Doors;

/// How long a browser goes by an answer before it asks again whether it may: each call would otherwise be two.
const MAX_AGE: Duration = Duration::from_secs(600);

/// Headers that clients read beside those that every page may.
const EXPOSED: [HeaderName; 17] = [
    header::ETAG,
    header::LOCATION,
    header::ALLOW,
    header::RETRY_AFTER,
    header::ACCEPT_RANGES,
    header::CONTENT_RANGE,
    header::CONTENT_LENGTH,
    header::DATE,
    HeaderName::from_static("repr-digest"),
    HeaderName::from_static("fencegate-version"),
    HeaderName::from_static("x-request-id"),
    HeaderName::from_static("x-operation-id"),
    HeaderName::from_static("x-resource-version"),
    HeaderName::from_static("x-fence-token"),
    HeaderName::from_static("x-fence-verdict"),
    HeaderName::from_static("x-fence-guarantee"),
    HeaderName::from_static("idempotent-replayed"),
];

/// Off unless origins are configured; without credentials, because there are none.
///
/// Any header may be sent: those of the API are many, and which ones an upstream takes only it knows. Methods are those
/// of the API and of upstreams.
pub(super) fn layer(doors: &Doors) -> Option<CorsLayer> {
    if doors.cors_origins.is_empty() {
        return None;
    }
    let methods = [
        Method::GET,
        Method::HEAD,
        Method::POST,
        Method::PUT,
        Method::PATCH,
        Method::DELETE,
        Method::OPTIONS,
    ];
    let layer = CorsLayer::new()
        .allow_origin(AllowOrigin::list(doors.cors_origins.clone()))
        .allow_methods(methods)
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers(ExposeHeaders::list(EXPOSED))
        .max_age(MAX_AGE);
    Some(layer)
}

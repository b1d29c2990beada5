//! The upstream that the gateways front, twice: once its intents wait for an operator, once for a time to pass.
//!
//! It is a service of its own, with no proxy before it, and does what requests ask for in their query: it acts
//! late, answers late, breaks off, never answers, or never acts.

use std::time::Duration;

use fence_tests::upstream::{Seen, Upstream};
use rand::RngExt as _;
use rand::rngs::StdRng;
use uuid::Uuid;

use crate::book::Book;

/// As the gateways know it, and what its resources begin with: for the operator, and by time.
pub const NAMES: [&str; 2] = ["crm", "later"];
/// How long a gateway waits for it.
const TIMEOUT: &str = "1s";
/// After this time a request has no effect any more: a gateway sends for a second, may stand still for some
/// more in the middle of it, and the upstream acts within two.
pub const OVER_AFTER: Duration = Duration::from_secs(20);

/// Starts it, and has written down on what it acts.
pub async fn start(book: &Book) -> Upstream {
    let book = book.clone();
    Upstream::watched(move |seen: &Seen| {
        if let (Some((resource, request)), Some(token)) = (about(&seen.target), seen.token()) {
            book.effect(resource, token, request);
        }
    })
    .await
}

/// Settings by which a gateway is told of it, with or without a longest delay. Which of its names a request was sent under, its path tells.
pub fn settings(upstream: &Upstream, is_over: bool) -> [String; 2] {
    let setting = |name: &str, more: &str| {
        let url = upstream.url();
        format!(
            "name={name},url={url}/{name},resource=/r/{{resource}},resource_form=digits,guarantee=drained,\
             timeout={TIMEOUT},connect_timeout=500ms{more}"
        )
    };
    let over = format!(",max_effect_delay={}s", OVER_AFTER.as_secs());
    [setting(NAMES[0], ""), setting(NAMES[1], if is_over { &over } else { "" })]
}

/// Where a request about a resource goes, and what it asks the upstream to do.
pub fn target(rng: &mut StdRng, resource: &str, request: Uuid) -> String {
    let (name, rest) = resource.split_once(':').expect("a resource of an upstream");
    let deed = match rng.random_range(0..100) {
        0..70 => String::new(),
        70..78 => format!("?delay={}", rng.random_range(500..2000)),
        78..84 => format!("?late={}", rng.random_range(500..2000)),
        84..88 => "?cut".to_owned(),
        88..93 => "?status=409".to_owned(),
        93..96 => "?status=503".to_owned(),
        _ => "?hang".to_owned(),
    };
    format!("/upstreams/{name}/r/{rest}/{request}{deed}")
}

/// The resource and the request that the upstream sees.
fn about(target: &str) -> Option<(String, Uuid)> {
    let (name, rest) = target.strip_prefix('/')?.split_once("/r/")?;
    Some((format!("{name}:{}", rest.split('/').next()?), request_of(target)?))
}

/// The request that a path is about.
pub fn request_of(target: &str) -> Option<Uuid> {
    target.split('?').next()?.rsplit('/').next()?.parse().ok()
}

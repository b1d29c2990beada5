//! The HTTP side: parses requests, asks the engine, answers.

pub mod budget;
mod cors;
mod description;
pub mod extract;
pub mod identify;
pub mod long_calls;
pub mod middleware;
pub(crate) mod mutants;
pub mod pages;
pub mod peers;
pub mod problem;
pub mod proxy;
mod rate;
pub mod receipt;
pub mod room;
pub mod routes;
pub mod serve;
pub mod spec;
pub mod state;
mod tap;
mod traced;
pub mod ui;

use std::any::Any;
use std::sync::{Arc, LazyLock};

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use fence_core::ErrorCode;
use tower_http::catch_panic::CatchPanicLayer;
use utoipa::OpenApi as _;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub use problem::Problem;
pub use rate::Pace;
pub use serve::{ClientFiles, Door, Ends, Listen, Secured, Tls, TlsFiles, listen_on, serve};
pub use state::{App, AppState, Limits, S3Told};
#[doc(hidden)]
pub use tap::{Watched, watched};

use routes::{
    access, audit, buckets, commits, feed, fences, health, intents, line, locks, objects,
    operations, operators, proof, rejections, resources, s3_keys, scrape, status, upstreams, usage,
    watching, writes,
};

/// All routes, each with its documentation.
fn api() -> OpenApiRouter<App> {
    OpenApiRouter::with_openapi(spec::Base::openapi())
        .routes(routes!(locks::acquire, locks::list))
        .routes(routes!(locks::renew_many))
        .routes(routes!(watching::get, locks::release))
        .routes(routes!(watching::events))
        .routes(routes!(s3_keys::of_lock))
        .routes(routes!(locks::renew))
        .routes(routes!(locks::transfer))
        .routes(routes!(resources::list))
        .routes(routes!(resources::get, writes::delete_all))
        .routes(routes!(line::waiters))
        .routes(routes!(resources::break_lock))
        .routes(routes!(operators::freeze))
        .routes(routes!(operators::unfreeze))
        .routes(routes!(operators::protect))
        .routes(routes!(operators::unprotect))
        .routes(routes!(fences::fence))
        .routes(routes!(objects::list))
        .routes(routes!(objects::get, objects::head, writes::put, writes::delete))
        .routes(routes!(feed::versions))
        .routes(routes!(feed::events))
        .routes(routes!(operations::get))
        .routes(routes!(operations::find))
        .routes(routes!(commits::commit))
        .routes(routes!(rejections::list))
        .routes(routes!(audit::list))
        .routes(routes!(proof::checkpoint))
        .routes(routes!(proof::proof))
        .routes(routes!(proof::export))
        .routes(routes!(usage::get))
        .routes(routes!(
            upstreams::get,
            upstreams::head,
            upstreams::options,
            upstreams::post,
            upstreams::put,
            upstreams::patch,
            upstreams::delete
        ))
        .routes(routes!(buckets::list))
        .routes(routes!(buckets::make, buckets::delete))
        .routes(routes!(s3_keys::make))
        .routes(routes!(access::own))
        .routes(routes!(access::get, access::put))
        .routes(routes!(access::explained))
        .routes(routes!(intents::list))
        .routes(routes!(intents::resolve))
        .routes(routes!(intents::resolve_doubts))
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
        .routes(routes!(status::status))
        .routes(routes!(scrape::metrics))
        .routes(routes!(health::openapi))
        .routes(routes!(health::error_page))
}

/// The routes with everything that happens to each request; and the page of operators, where it is served.
///
/// From the outside in: `answer` gives the request its id, and writes the problem document, the
/// log line and the metrics of whatever comes back, be it from a handler or from a layer; what a page of
/// the web sends ends there. CORS answers preflights. A panic becomes a problem. `check` refuses what is
/// malformed. `identify` finds out who asks. Then comes the route, which asks for what it is about to do.
pub fn router(app: impl Into<App>) -> Router {
    // Their documentation takes far longer to make than the routes: once is enough.
    static ROUTES: LazyLock<Router<App>> = LazyLock::new(|| api().split_for_parts().0);
    let app = app.into();
    let cors = cors::layer(&app.doors);
    let router = ROUTES
        .clone()
        .route("/resources/{resource}/objects/", axum::routing::any(empty_key))
        // Methods that have no name here, and the path that a wildcard does not match.
        .route("/upstreams/{name}/{*path}", axum::routing::any(upstreams::pass))
        .route("/upstreams/{name}/", axum::routing::any(upstreams::pass))
        .merge(ui::routes(&app))
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(from_fn_with_state(Arc::clone(&app), identify::identify))
        .layer(from_fn_with_state(Arc::clone(&app), middleware::check))
        .layer(CatchPanicLayer::custom(panicked));
    let router = match cors {
        Some(cors) => router.layer(cors),
        None => router,
    };
    router.layer(from_fn_with_state(Arc::clone(&app.doors), middleware::answer)).with_state(app)
}

/// The contract, as OpenAPI 3.2.
pub fn openapi() -> utoipa::openapi::OpenApi {
    description::finish(api().into_openapi())
}

/// The contract as YAML: what is committed as `openapi.yaml`.
pub fn openapi_yaml() -> String {
    // INVARIANT: the document is a tree of maps, lists and strings.
    openapi().to_yaml().expect("the contract is YAML")
}

async fn not_found() -> Problem {
    Problem::new(ErrorCode::RouteNotFound, "there is nothing at this path; see /openapi.yaml")
}

async fn method_not_allowed() -> Problem {
    Problem::new(ErrorCode::MethodNotAllowed, "the Allow header names the methods of this path")
}

/// The router takes a path that ends here for one without a key; it is a key that is empty.
async fn empty_key() -> Problem {
    Problem::new(ErrorCode::ObjectKeyInvalid, "the key is empty")
}

/// What is answered when a handler has panicked.
pub fn panicked(panic: Box<dyn Any + Send>) -> Response {
    let text = panic.downcast_ref::<&str>().copied().map(str::to_owned);
    let why = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
    tracing::error!(why, "a handler panicked");
    Problem::new(ErrorCode::Internal, "see the gateway's log under this request id").into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_contract_is_openapi_3_2_and_complete() {
        let document = openapi();
        let json: serde_json::Value = serde_json::from_str(&document.to_json().unwrap()).unwrap();
        assert_eq!(json["openapi"], "3.2.0");
        assert_eq!(json["info"]["title"], "Fencegate");
        let mut names = std::collections::HashSet::new();
        for (path, item) in json["paths"].as_object().unwrap() {
            assert!(!path.contains('*'), "{path}");
            for operation in item.as_object().unwrap().values() {
                let name = operation["operationId"].as_str().unwrap().to_owned();
                assert!(names.insert(name), "{path}");
                let responses = operation["responses"].as_object().unwrap();
                for status in ["400", "408", "414", "431", "500"] {
                    assert!(responses.contains_key(status), "{path} {status}");
                }
                for response in responses.values() {
                    let response = match response["$ref"].as_str() {
                        Some(to) => json.pointer(&to[1..]).unwrap(),
                        None => response,
                    };
                    assert!(response["headers"]["X-Request-Id"].is_object(), "{path}");
                }
            }
        }
        references(&json, &json);
        let license = &json["info"]["license"];
        assert_eq!(license["name"], "MIT OR Apache-2.0");
        assert_eq!(license["identifier"], "MIT OR Apache-2.0");
        let put = &json["paths"]["/resources/{resource}/objects/{key}"]["put"]["requestBody"];
        assert_eq!(put["content"], serde_json::json!({ "application/octet-stream": {} }));
        for (path, event) in [("/locks/{id}/events", "LockEvent"), ("/events", "WriteEvent")] {
            let answer = &json["paths"][path]["get"]["responses"]["200"]["content"];
            let data = &answer["text/event-stream"]["itemSchema"]["properties"]["data"];
            assert_eq!(data["contentMediaType"], "application/json", "{path}");
            assert_eq!(data["contentSchema"]["$ref"], format!("#/components/schemas/{event}"));
        }
        assert_eq!(openapi_yaml(), openapi_yaml());
    }

    /// Every reference leads somewhere.
    fn references(root: &serde_json::Value, at: &serde_json::Value) {
        match at {
            serde_json::Value::Object(map) => {
                if let Some(to) = map.get("$ref").and_then(|to| to.as_str()) {
                    assert!(root.pointer(&to[1..]).is_some(), "{to}");
                }
                map.values().for_each(|value| references(root, value));
            }
            serde_json::Value::Array(list) => list.iter().for_each(|v| references(root, v)),
            _ => {}
        }
    }
}

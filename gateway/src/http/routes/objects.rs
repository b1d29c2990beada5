//! Reading objects: no token needed.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use fence_core::ports::Object;
use fence_core::{ErrorCode, wire};

use super::views;
use crate::http::extract::{
    InObject, InResource, List, NoQuery, Query, ReadAnswer, ReadConditions, Selection,
    cursor_after, select,
};
use crate::http::problem::{Problem, text};
use crate::http::spec::{ReadParams, ReadProblems, ResourceProblems};
use crate::http::state::App;

/// Get an object
#[utoipa::path(
    get, path = "/resources/{resource}/objects/{*key}", operation_id = "getObject", tag = "data",
    params(
        ("resource" = String, Path, description = "The resource."),
        ("key" = String, Path, description = "The object's key; slashes are sent as they are."),
        ReadParams,
    ),
    responses(
        (status = 200, description = "The bytes, with the content type of the put.",
            content_type = "*/*", body = String, headers(
            ("ETag" = String, description = "The object's tag."),
            ("X-Resource-Version" = i64, description = "The version of the resource."),
            ("Accept-Ranges" = String, description = "`bytes`"),
        )),
        (status = 206, description = "The bytes of the range.",
            content_type = "*/*", body = String, headers(
            ("ETag" = String, description = "The object's tag."),
            ("X-Resource-Version" = i64, description = "The version of the resource."),
            ("Content-Range" = String, description = "Such as `bytes 0-99/1234`."),
        )),
        (status = 304, description = "The caller has the object already.", headers(
            ("ETag" = String, description = "The object's tag."),
            ("X-Resource-Version" = i64, description = "The version of the resource."),
        )),
        ReadProblems,
    )
)]
pub async fn get(
    State(app): State<App>,
    target: InObject,
    _: NoQuery,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let conditions = ReadConditions::parse(&headers)?;
    let InObject { resource, key } = target;
    let verdict = app
        .engine
        .read(resource.clone(), key)
        .await
        .map_err(|error| Problem::from(error).about(&resource))?;
    let Some(version) = verdict.resource_version else {
        let why = "this resource was never locked";
        return Err(Problem::new(ErrorCode::ResourceNotFound, why).about(&resource));
    };
    let Some(object) = verdict.object else {
        let why = "the resource has no object with this key";
        return Err(Problem::new(ErrorCode::ObjectNotFound, why).about(&resource));
    };
    let facts = facts(&object, version);
    match conditions.judge(object.tag) {
        ReadAnswer::Mismatch => {
            let why = "the object is not at a version that If-Match names";
            Err(Problem::new(ErrorCode::VersionMismatch, why).about(&resource))
        }
        ReadAnswer::NotModified => Ok((StatusCode::NOT_MODIFIED, facts).into_response()),
        ReadAnswer::Send => {
            // Ranges are defined for GET alone.
            let selection = match method {
                Method::GET => select(&headers, object.tag, object.body.len() as u64),
                _ => Selection::Whole,
            };
            send(object, facts, selection)
        }
    }
}

/// Look at an object without its bytes
#[utoipa::path(
    head, path = "/resources/{resource}/objects/{*key}", operation_id = "headObject", tag = "data",
    params(
        ("resource" = String, Path, description = "The resource."),
        ("key" = String, Path, description = "The object's key; slashes are sent as they are."),
        ReadParams,
    ),
    responses(
        (status = 200, description = "It is there; the headers are those of a get.", headers(
            ("ETag" = String, description = "The object's tag."),
            ("X-Resource-Version" = i64, description = "The version of the resource."),
            ("Accept-Ranges" = String, description = "`bytes`"),
        )),
        (status = 304, description = "The caller has the object already.", headers(
            ("ETag" = String, description = "The object's tag."),
            ("X-Resource-Version" = i64, description = "The version of the resource."),
        )),
        ReadProblems,
    )
)]
pub async fn head(
    state: State<App>,
    target: InObject,
    query: NoQuery,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    get(state, target, query, method, headers).await
}

/// The headers that come with and without the bytes.
///
/// Content is what a user stored: browsers must not guess that it is something else, and proxies
/// must not change it.
fn facts(object: &Object, resource_version: i64) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(8);
    headers.insert(header::ETAG, text(object.tag));
    headers.insert(HeaderName::from_static("x-resource-version"), resource_version.into());
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers
}

fn send(object: Object, mut headers: HeaderMap, selection: Selection) -> Result<Response, Problem> {
    let size = object.body.len();
    headers.insert(header::CONTENT_TYPE, text(&object.content_type));
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    let (status, body) = match selection {
        Selection::Whole => (StatusCode::OK, object.body),
        Selection::Part { first, last } => {
            let range = format_args!("bytes {first}-{last}/{size}");
            headers.insert(header::CONTENT_RANGE, text(range));
            // INVARIANT: `select` only names bytes inside the object, whose length is a usize.
            let at = |byte: u64| usize::try_from(byte).expect("the range lies inside");
            (StatusCode::PARTIAL_CONTENT, object.body.slice(at(first)..=at(last)))
        }
        Selection::Outside => {
            let why = format!("the object has {size} bytes");
            let problem = Problem::new(ErrorCode::RangeNotSatisfiable, why);
            return Err(problem.of_size(size as u64));
        }
    };
    Ok((status, headers, Body::from(body)).into_response())
}

/// List the objects of a resource
///
/// In byte order of their keys.
#[utoipa::path(
    get, path = "/resources/{resource}/objects", operation_id = "listObjects", tag = "data",
    params(("resource" = String, Path, description = "The resource."), List),
    responses((status = 200, description = "A page.", body = wire::ObjectList), ResourceProblems)
)]
pub async fn list(
    State(app): State<App>,
    InResource(resource): InResource,
    Query(query): Query<List>,
) -> Result<Json<wire::ObjectList>, Problem> {
    let page = query.page()?;
    let mut objects = app
        .engine
        .objects(resource.clone(), page.clone())
        .await
        .map_err(|error| Problem::from(error).about(&resource))?;
    let next_cursor = cursor_after(&mut objects, &page, |object| object.key.as_str());
    let items = objects.into_iter().map(views::object).collect();
    Ok(Json(wire::ObjectList { items, next_cursor }))
}

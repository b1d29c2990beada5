//! Reading objects: no token needed.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use fence_core::ports::Object;
use fence_core::{ErrorCode, wire};
use fencegate_access::Action;
use fencegate_s3::about::About;
use serde::Deserialize;

use super::views;
use crate::engine::access::{Asks, Want};
use crate::engine::{Content, Fetched, Standings, Wanted};
use crate::http::extract::{
    Asker, InObject, InResource, List, Query, ReadAnswer, ReadConditions, Selection, cursor_after,
    repr_digest, select,
};
use crate::http::problem::{Problem, text};
use crate::http::spec::{ReadParams, ReadProblems, ResourceProblems};
use crate::http::state::App;

/// Get an object
#[utoipa::path(
    get, path = "/resources/{resource}/objects/{*key}", operation_id = "getObject", tag = "data",
    params(
        ("resource" = fence_core::ResourceName, Path, description = "The resource."),
        ("key" = fence_core::ObjectKey, Path, description = "The object's key; slashes are sent as they are."),
        AtVersion, ReadParams,
    ),
    responses(
        (status = 200, description = "The bytes, with the content type of the put.",
            content_type = "*/*", body = String, headers(
            ("ETag" = String, description = "The object's tag."),
            ("X-Resource-Version" = i64, description = "The version of the resource."),
            ("Repr-Digest" = String, description = "The SHA-256 of the whole object."),
            ("Accept-Ranges" = String, description = "`bytes`"),
        )),
        (status = 206, description = "The bytes of the range.",
            content_type = "*/*", body = String, headers(
            ("ETag" = String, description = "The object's tag."),
            ("X-Resource-Version" = i64, description = "The version of the resource."),
            ("Repr-Digest" = String, description = "The SHA-256 of the whole object."),
            ("Content-Range" = String, description = "Such as `bytes 0-99/1234`."),
        )),
        (status = 304, description = "The caller has the object already.", headers(
            ("ETag" = String, description = "The object's tag."),
            ("X-Resource-Version" = i64, description = "The version of the resource."),
            ("Repr-Digest" = String, description = "The SHA-256 of the whole object."),
        )),
        ReadProblems,
    )
)]
pub async fn get(
    State(app): State<App>,
    asks: Asks,
    target: InObject,
    Query(query): Query<AtVersion>,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let conditions = ReadConditions::parse(&headers)?;
    let InObject { resource, key } = target;
    asks.may(Want::On(Action::Read, resource.clone())).await?;
    let mut answer = Answer::NotModified;
    let wanted = |object: &Object| {
        answer = Answer::to(&conditions, &method, &headers, object);
        answer.wanted(size(object), headers.contains_key(header::IF_RANGE))
    };
    let fetched = app.engine.fetch(resource.clone(), key, query.version()?, wanted).await;
    let fetched = fetched.map_err(|error| Problem::from(error).about(&resource))?;
    answer.send(fetched).map_err(|problem| problem.about(&resource))
}

/// The parameters of a read.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct AtVersion {
    /// The object as the write with this version left it, if that is still kept.
    #[param(minimum = 1)]
    version: Option<i64>,
}

impl AtVersion {
    fn version(&self) -> Result<Option<i64>, Problem> {
        match self.version {
            Some(..=0) => Err(Problem::new(ErrorCode::QueryMalformed, "version is 1 or more")),
            version => Ok(version),
        }
    }
}

/// Look at an object without its bytes
#[utoipa::path(
    head, path = "/resources/{resource}/objects/{*key}", operation_id = "headObject", tag = "data",
    params(
        ("resource" = fence_core::ResourceName, Path, description = "The resource."),
        ("key" = fence_core::ObjectKey, Path, description = "The object's key; slashes are sent as they are."),
        AtVersion, ReadParams,
    ),
    responses(
        (status = 200, description = "It is there; the headers are those of a get.", headers(
            ("ETag" = String, description = "The object's tag."),
            ("X-Resource-Version" = i64, description = "The version of the resource."),
            ("Repr-Digest" = String, description = "The SHA-256 of the whole object."),
            ("Accept-Ranges" = String, description = "`bytes`"),
        )),
        (status = 304, description = "The caller has the object already.", headers(
            ("ETag" = String, description = "The object's tag."),
            ("X-Resource-Version" = i64, description = "The version of the resource."),
            ("Repr-Digest" = String, description = "The SHA-256 of the whole object."),
        )),
        ReadProblems,
    )
)]
pub async fn head(
    state: State<App>,
    asks: Asks,
    target: InObject,
    query: Query<AtVersion>,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    get(state, asks, target, query, method, headers).await
}

/// What becomes of a read, once it is known what the object is like.
enum Answer {
    Mismatch,
    NotModified,
    /// Its headers alone.
    Facts,
    Bytes(Selection),
}

impl Answer {
    fn to(
        conditions: &ReadConditions,
        method: &Method,
        headers: &HeaderMap,
        object: &Object,
    ) -> Self {
        match conditions.judge(object.tag) {
            ReadAnswer::Mismatch => Self::Mismatch,
            ReadAnswer::NotModified => Self::NotModified,
            // Ranges are defined for GET alone.
            ReadAnswer::Send if *method == Method::GET => {
                Self::Bytes(select(headers, object.tag, size(object)))
            }
            ReadAnswer::Send => Self::Facts,
        }
    }

    /// The bytes that it needs of an object of this size. With `If-Range` they are the rest of a read that broke off.
    fn wanted(&self, size: u64, is_rest: bool) -> Wanted {
        match self {
            Self::Bytes(Selection::Whole) => Wanted::Bytes(0..size),
            Self::Bytes(Selection::Part { first, last }) if is_rest => {
                Wanted::Rest(*first..*last + 1)
            }
            Self::Bytes(Selection::Part { first, last }) => Wanted::Bytes(*first..*last + 1),
            Self::Bytes(Selection::Outside) | Self::Mismatch | Self::NotModified | Self::Facts => {
                Wanted::Nothing
            }
        }
    }

    fn send(
        self,
        Fetched { object, resource_version, content }: Fetched,
    ) -> Result<Response, Problem> {
        let mut headers = facts(&object, resource_version);
        let size = size(&object);
        let described = |headers: &mut HeaderMap, length: u64| {
            headers.insert(header::CONTENT_TYPE, text(&object.content_type));
            headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
            headers.insert(header::CONTENT_LENGTH, length.into());
        };
        let status = match self {
            Self::Mismatch => {
                let why = "the object is not at a version that If-Match names";
                let beside = Standings {
                    version: Some(resource_version),
                    tag: Some(object.tag),
                    reason: None,
                };
                return Err(Problem::new(ErrorCode::VersionMismatch, why).beside(beside));
            }
            Self::NotModified => return Ok((StatusCode::NOT_MODIFIED, headers).into_response()),
            Self::Bytes(Selection::Outside) => {
                let why = format!("the object has {size} bytes");
                return Err(Problem::new(ErrorCode::RangeNotSatisfiable, why).of_size(size));
            }
            Self::Facts => {
                described(&mut headers, size);
                return Ok((StatusCode::OK, headers, Body::empty()).into_response());
            }
            Self::Bytes(Selection::Whole) => {
                described(&mut headers, size);
                StatusCode::OK
            }
            Self::Bytes(Selection::Part { first, last }) => {
                described(&mut headers, last - first + 1);
                let range = format_args!("bytes {first}-{last}/{size}");
                headers.insert(header::CONTENT_RANGE, text(range));
                StatusCode::PARTIAL_CONTENT
            }
        };
        let body = match content {
            Content::Here(bytes) => Body::from(bytes),
            Content::Stream(stream) => Body::from_stream(stream),
        };
        Ok((status, headers, body).into_response())
    }
}

fn size(object: &Object) -> u64 {
    object.size.unsigned_abs()
}

/// The headers that come with and without the bytes.
///
/// Content is what a user stored: browsers must not guess that it is something else, and proxies
/// must not change it.
fn facts(object: &Object, resource_version: i64) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(8);
    headers.insert(header::ETAG, text(object.tag));
    // Of an object in parts nobody knows it.
    if let Some(sha256) = object.whole_sha256() {
        headers.insert(HeaderName::from_static("repr-digest"), text(repr_digest(&sha256)));
    }
    headers.insert(HeaderName::from_static("x-resource-version"), resource_version.into());
    // What was stored as encoded by S3 is that here, too.
    let about = About::from_json(object.about.as_deref()).unwrap_or_default();
    if let Some(coding) = about.content_encoding.and_then(|coding| coding.try_into().ok()) {
        headers.insert(header::CONTENT_ENCODING, coding);
    }
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers
}

/// List the objects of a resource
///
/// In byte order of their keys.
#[utoipa::path(
    get, path = "/resources/{resource}/objects", operation_id = "listObjects", tag = "data",
    params(("resource" = fence_core::ResourceName, Path, description = "The resource."), List),
    responses((status = 200, description = "A page.", body = wire::ObjectList), ResourceProblems)
)]
pub async fn list(
    asks: Asks,
    InResource(resource): InResource,
    Query(query): Query<List>,
    Asker(engine): Asker,
) -> Result<Json<wire::ObjectList>, Problem> {
    asks.may(Want::On(Action::List, resource.clone())).await?;
    let page = query.page()?;
    let mut objects = engine
        .objects(resource.clone(), page.clone())
        .await
        .map_err(|error| Problem::from(error).about(&resource))?;
    let next_cursor = cursor_after(&mut objects, &page, |object| object.key.as_str());
    let items = objects.into_iter().map(views::object).collect();
    Ok(Json(wire::ObjectList { items, next_cursor }))
}

//! Completes `openapi.yaml`: adds what every answer has, and what the derived types cannot say.

use std::collections::BTreeMap;

use fence_core::schema::{self, keywords};
use fence_core::{EntityTag, OperationId, Token};
use serde_json::{Value, json};
use utoipa::PartialSchema;
use utoipa::openapi::header::{Header, HeaderBuilder};
use utoipa::openapi::path::{Operation, Parameter, PathItem};
use utoipa::openapi::response::Response;
use utoipa::openapi::schema::{ObjectBuilder, Schema, SchemaType, Type};
use utoipa::openapi::{Components, Content, ContentBuilder, OpenApi, OpenApiVersion, Ref, RefOr};

use super::problem::PROBLEM_JSON;

const REQUEST_ID: &str = "X-Request-Id";
const VERSION: &str = "Fencegate-Version";
const VERDICT: &str = "X-Fence-Verdict";
const BYTES: &str = "application/octet-stream";
const EVENT_STREAM: &str = "text/event-stream";

/// Adds what every answer has, writes wildcards of the router as plain parameters, and says each problem
/// and each header once.
pub fn finish(mut document: OpenApi) -> OpenApi {
    // The first version that can describe the events of a stream.
    document.openapi = OpenApiVersion::Version32;
    let mut components = document.components.take().unwrap_or_default();
    let paths = std::mem::take(&mut document.paths.paths);
    for (path, mut item) in paths {
        let upstream = path.starts_with("/upstreams/");
        for (reads, operation) in operations(&mut item) {
            let verdict = Verdict { of_answers: !reads, of_problems: !reads || upstream };
            complete(operation, verdict, &mut components);
        }
        document.paths.paths.insert(path.replace("{*", "{"), item);
    }
    for (name, header) in headers() {
        components.headers.insert(name.into(), RefOr::T(header));
    }
    alternatives(&mut components.schemas);
    document.components = Some(components);
    document
}

/// All operations of a path, each with whether it only reads.
fn operations(item: &mut PathItem) -> impl Iterator<Item = (bool, &mut Operation)> {
    let PathItem { get, head, options, put, post, patch, delete, .. } = item;
    let reads = [get, head, options].into_iter().flatten().map(|operation| (true, operation));
    reads
        .chain([put, post, patch, delete].into_iter().flatten().map(|operation| (false, operation)))
}

/// Which answers about data say whether they are the fence's: none to reads, but problems of ours are told from
/// an upstream's there, too.
struct Verdict {
    of_answers: bool,
    of_problems: bool,
}

/// Every answer has an id; answers about data say whether they are the fence's.
fn complete(operation: &mut Operation, verdict: Verdict, components: &mut Components) {
    let data = operation.tags.iter().flatten().any(|tag| tag == "data");
    let is_token =
        |one: &RefOr<Parameter>| matches!(one, RefOr::T(one) if one.name == "X-Fence-Token");
    let fenced = operation.parameters.iter().flatten().any(is_token);
    let name = operation.operation_id.clone().unwrap_or_default();
    for parameter in operation.parameters.iter_mut().flatten() {
        if let RefOr::T(Parameter { schema: Some(schema), .. }) = parameter {
            not_null(schema);
        }
    }
    if let Some(RefOr::T(body)) = &mut operation.request_body {
        body.content.iter_mut().for_each(described);
    }
    for (status, response) in &mut operation.responses.responses {
        let RefOr::T(answer) = response else { continue };
        answer.content.iter_mut().for_each(described);
        let problem = answer.content.contains_key(PROBLEM_JSON);
        let wanted = [
            (true, REQUEST_ID),
            (true, VERSION),
            (data && if problem { verdict.of_problems } else { verdict.of_answers }, VERDICT),
            (problem && fenced, "X-Operation-Id"),
            (status == "416", "Content-Range"),
        ];
        for (_, name) in wanted.into_iter().filter(|(wanted, _)| *wanted) {
            answer.headers.entry(name.into()).or_insert_with(|| RefOr::T(Header::default()));
        }
        for (name, header) in &mut answer.headers {
            *header = RefOr::Ref(Ref::new(format!("#/components/headers/{name}")));
        }
        if let Some(stream) = answer.content.get_mut(EVENT_STREAM) {
            *stream = RefOr::T(ContentBuilder::new().item_schema(Some(event(&name))).build());
        }
        if problem {
            *response = shared(answer, &format!("{status}-{name}"), components);
        }
    }
}

/// What comes with any type is bytes, which no schema describes.
fn described((media_type, content): (&String, &mut RefOr<Content>)) {
    if ["*/*", BYTES].contains(&media_type.as_str()) {
        *content = RefOr::T(Content::default());
    } else if let RefOr::T(Content { schema: Some(schema), .. }) = content {
        not_null(schema);
    }
}

/// A parameter or a body may be left out, but there is no way to write that it is null.
fn not_null(schema: &mut RefOr<Schema>) {
    let is_null = |item: &RefOr<Schema>| {
        matches!(item, RefOr::T(Schema::Object(object))
            if object.schema_type == SchemaType::Type(Type::Null))
    };
    match schema {
        RefOr::T(Schema::OneOf(one_of)) => {
            let other = one_of.items.iter().find(|item| !is_null(item)).cloned();
            *schema = other.unwrap_or_else(|| schema.clone());
        }
        RefOr::T(Schema::Object(object)) => {
            if let SchemaType::Array(types) = &object.schema_type {
                let other = types.iter().find(|kind| **kind != Type::Null).cloned();
                object.schema_type = other.map_or(SchemaType::AnyValue, SchemaType::Type);
            }
        }
        _ => {}
    }
}

/// A problem that several calls answer with is described once, under the name of the first of them.
fn shared(answer: &Response, name: &str, components: &mut Components) -> RefOr<Response> {
    let same = |(_, known): &(&String, &RefOr<Response>)| **known == RefOr::T(answer.clone());
    let known = components.responses.iter().find(same).map(|(known, _)| known.clone());
    let name = known.unwrap_or_else(|| name.to_owned());
    components.responses.entry(name.clone()).or_insert_with(|| RefOr::T(answer.clone()));
    RefOr::Ref(Ref::from_response_name(name))
}

/// An event of a stream: its data is JSON.
fn event(operation: &str) -> RefOr<Schema> {
    let (names, data) = match operation {
        "watchLock" => {
            (vec!["expiring", "breaking", "frozen", "unfrozen", "lost", "released"], "LockEvent")
        }
        _ => (vec!["write"], "WriteEvent"),
    };
    let data = ObjectBuilder::new()
        .schema_type(SchemaType::Type(Type::String))
        .content_media_type("application/json")
        .content_schema(Some(Ref::from_schema_name(data)));
    let told = ObjectBuilder::new().property("event", schema::words(names)).property("data", data);
    match operation {
        "watchLock" => told.required("event").required("data").into(),
        // The first one has only the place at which the stream begins.
        _ => told.property("id", Ref::from_schema_name("EventPlace")).required("id").into(),
    }
}

/// A header that comes always, or only sometimes.
fn header(always: bool, description: &str, schema: impl Into<RefOr<Schema>>) -> Header {
    let header = HeaderBuilder::new().schema(Some(schema)).description(Some(description));
    header.extensions(always.then(|| keywords([("required", json!(true))])).flatten()).build()
}

/// All headers of answers. One of them says the same wherever it comes.
fn headers() -> BTreeMap<&'static str, Header> {
    let (text, number) = (schema::form, schema::Count::schema);
    BTreeMap::from([
        (
            REQUEST_ID,
            header(
                true,
                "The id of the request: the caller's, or a new one.",
                text("^[!-~]{1,128}$"),
            ),
        ),
        (
            VERSION,
            header(
                true,
                "The version of the gateway that answers.",
                text(r"^[0-9]+\.[0-9]+\.[0-9]+([-+][0-9A-Za-z.+-]+)?$"),
            ),
        ),
        (
            VERDICT,
            header(
                true,
                "Whose answer it is, and what became of the request; not with what was read.",
                schema::words(["admitted", "refused", "replayed", "unknown"]),
            ),
        ),
        (
            "Retry-After",
            header(false, "When to try again, in seconds, where that helps.", number()),
        ),
        (
            "Content-Range",
            header(
                true,
                "The range, and the size of the whole: `bytes 0-99/1234`; `bytes */1234` if the range lies outside.",
                text(r"^bytes (\*|[0-9]+-[0-9]+)/[0-9]+$"),
            ),
        ),
        ("X-Operation-Id", header(false, "The operation.", OperationId::schema())),
        ("X-Fence-Token", header(true, "The token.", Token::schema())),
        (
            "X-Fence-Guarantee",
            header(
                false,
                "What a 2xx promises.",
                schema::words(["strict", "drained", "admission"]),
            ),
        ),
        (
            "X-Resource-Version",
            header(
                false,
                "The version of the resource; with a write the one that it became, and absent if there was nothing to delete.",
                number(),
            ),
        ),
        (
            "Repr-Digest",
            header(
                false,
                "The SHA-256 of the whole object, also with a part of it (RFC 9530): `sha-256=:...:`, in base64; absent of an object that was uploaded in parts.",
                text("^sha-256=:[A-Za-z0-9+/]{43}=:$"),
            ),
        ),
        ("ETag", header(true, "The object's tag.", EntityTag::schema())),
        (
            "Fencegate-Audit-Key",
            header(
                false,
                "The key that this gateway signs with, as `NAME+HASH+BASE64`; absent if it has none.",
                text(r"^[^+ ]+\+[0-9a-f]{8}\+[A-Za-z0-9+/]+=*$"),
            ),
        ),
        (
            "Idempotent-Replayed",
            header(false, "`true` if it took effect earlier.", schema::words(["true"])),
        ),
        (
            "Location",
            header(
                true,
                "The lock: `/locks/{id}`.",
                text("^/locks/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"),
            ),
        ),
        (
            "Cache-Control",
            header(true, "That no cache keeps the answer.", schema::words(["no-store"])),
        ),
        ("Accept-Ranges", header(true, "That ranges are understood.", schema::words(["bytes"]))),
        (
            "X-Accel-Buffering",
            header(true, "That proxies pass events on at once.", schema::words(["no"])),
        ),
    ])
}

/// What depends on another field.
fn alternatives(schemas: &mut BTreeMap<String, RefOr<Schema>>) {
    let none = json!({ "type": "null" });
    let one_of = |schema: &mut RefOr<Schema>, ways: Value| {
        if let RefOr::T(Schema::Object(object)) = schema {
            object.extensions = keywords([("oneOf", ways)]);
        }
    };
    if let Some(acquire) = schemas.get_mut("AcquireRequest") {
        let way = |there: &str, kind: &str, absent: &str| json!({ "required": [there], "properties": { there: { "type": kind }, absent: none } });
        let ways = [way("resource", "string", "resources"), way("resources", "array", "resource")];
        one_of(acquire, json!(ways));
    }
    for (name, list) in [("AcquireRequest", "resources"), ("RenewManyRequest", "ids")] {
        if let Some(RefOr::T(Schema::Object(object))) = schemas.get_mut(name)
            && let Some(RefOr::T(Schema::Array(array))) = object.properties.get_mut(list)
        {
            array.unique_items = true;
        }
    }
    if let Some(RefOr::T(Schema::Object(form))) = schemas.get_mut("CommitForm")
        && let RefOr::T(Schema::Object(mut name)) = schema::PartName::schema()
    {
        name.description = Some("`operations`, or a name that an operation gives.".into());
        form.property_names = Some(Box::new(Schema::Object(name)));
    }
    if let Some(operation) = schemas.get_mut("CommitOperation") {
        let put = json!({
            "required": ["body"],
            "properties": { "op": { "const": "put" }, "body": { "type": "string" } },
        });
        let delete = json!({
            "properties": {
                "op": { "const": "delete" }, "body": none, "content_type": none, "if_none_match": none,
            },
        });
        one_of(operation, json!([put, delete]));
    }
}

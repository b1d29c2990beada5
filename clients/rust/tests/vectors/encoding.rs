//! Bytes: streams of events, and the body of a commit.

use base64::Engine as _;
use fencegate_client::encoding::{multipart, sse};
use fencegate_wire::json::{CommitOperation, CommitRequest, CommitVerb};
use fencegate_wire::{ObjectKey, ResourceName};
use serde::Deserialize;
use sha2::Digest as _;

use super::{Case, case, replay, same};

#[derive(Deserialize)]
#[serde(untagged, deny_unknown_fields)]
enum Chunk {
    Text(String),
    Bytes { base64: String },
}

#[derive(Deserialize, Debug, PartialEq)]
#[serde(deny_unknown_fields)]
struct SseEvent {
    event: String,
    data: String,
    id: String,
}

case!(SseCase {
    chunks: Vec<Chunk>,
    events: Vec<SseEvent>,
    retry: Option<u64>,
});

#[test]
fn sse() {
    replay("sse", |case: &SseCase, _| {
        let (mut parser, mut events, mut retry) = (sse::SseParser::default(), Vec::new(), None);
        for chunk in &case.chunks {
            let bytes = match chunk {
                Chunk::Text(text) => text.clone().into_bytes(),
                Chunk::Bytes { base64 } => {
                    base64::engine::general_purpose::STANDARD.decode(base64).unwrap()
                }
            };
            for item in parser.push(&bytes) {
                match item {
                    sse::SseItem::Event(event) => {
                        events.push(SseEvent {
                            event: event.event,
                            data: event.data,
                            id: event.id,
                        });
                    }
                    sse::SseItem::Retry(ms) => retry = Some(ms),
                    sse::SseItem::Id(_) => {}
                    sse::SseItem::TooLong => return Err("too long".into()),
                }
            }
        }
        same("events", &case.events, &events)?;
        same("retry", case.retry, retry)
    });
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Planned {
    op: String,
    resource: String,
    key: String,
    text: Option<String>,
    base64: Option<String>,
    content_type: Option<String>,
    if_match: Option<String>,
    #[serde(default)]
    if_absent: bool,
}

case!(MultipartCase {
    boundary: String,
    operations: Vec<Planned>,
    versions: std::collections::BTreeMap<String, i64>,
    body: Bytes,
});

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Bytes {
    text: Option<String>,
    base64: Option<String>,
}

fn decoded(text: Option<&String>, base64: Option<&String>) -> Vec<u8> {
    match (text, base64) {
        (Some(text), None) => text.clone().into_bytes(),
        (None, Some(encoded)) => {
            base64::engine::general_purpose::STANDARD.decode(encoded).expect("base64")
        }
        _ => panic!("text or base64"),
    }
}

#[test]
fn multipart() {
    replay("multipart", |case: &MultipartCase, _| {
        let (mut operations, mut bodies) = (Vec::new(), Vec::new());
        for planned in &case.operations {
            let mut body = None;
            if planned.op == "put" {
                let name = format!("b{}", bodies.len());
                let content_type = planned.content_type.clone();
                let content_type = content_type.unwrap_or("application/octet-stream".into());
                let bytes = decoded(planned.text.as_ref(), planned.base64.as_ref());
                bodies.push((name.clone(), content_type, bytes));
                body = Some(name);
            }
            operations.push(CommitOperation {
                op: if planned.op == "put" { CommitVerb::Put } else { CommitVerb::Delete },
                resource: ResourceName::new(planned.resource.clone()).unwrap(),
                key: ObjectKey::new(planned.key.clone()).unwrap(),
                body,
                content_type: planned.content_type.clone(),
                if_match: planned.if_match.clone(),
                if_none_match: planned.if_absent.then(|| "*".to_owned()),
            });
        }
        let versions = case.versions.iter();
        let versions =
            versions.map(|(name, version)| (ResourceName::new(name.clone()).unwrap(), *version));
        let list = CommitRequest { operations, versions: versions.collect() };
        let list = serde_json::to_vec(&list).unwrap();
        let head = |is_first, name: &str, content_type: &str, digest: Option<&str>| {
            multipart::head(&case.boundary, is_first, name, content_type, digest)
        };
        let mut whole = head(true, "operations", "application/json", None).to_vec();
        whole.extend(list);
        for (name, content_type, bytes) in bodies {
            let digest = sha2::Sha256::digest(&bytes);
            let digest = base64::engine::general_purpose::STANDARD.encode(digest);
            let digest = format!("sha-256=:{digest}:");
            whole.extend_from_slice(&head(false, &name, &content_type, Some(&digest)));
            whole.extend(bytes);
        }
        whole.extend_from_slice(&multipart::tail(&case.boundary));
        let expected = decoded(case.body.text.as_ref(), case.body.base64.as_ref());
        same("body", String::from_utf8_lossy(&expected), String::from_utf8_lossy(&whole))?;
        same("bytes", expected, whole)
    });
}

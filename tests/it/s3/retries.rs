//! An answer that is lost behind the commit: the SDK asks again, and is told what became of its call.

use serde_json::{Value, json};

use super::job::Job;
use super::site::{ORDERS, Site};
use super::tools::{self, Tool};
use super::wire::Seen;

/// The header that is the same in all attempts of one call.
const CALL: &str = "amz-sdk-invocation-id";

#[tokio::test]
async fn boto3() {
    each_retry_is_true(&tools::BOTO3).await;
}

#[tokio::test]
async fn sdk_for_javascript() {
    each_retry_is_true(&tools::JAVASCRIPT).await;
}

async fn each_retry_is_true(tool: &Tool) {
    let site = Site::start().await;
    let mut job = site.job(tool).await;
    job.ask(json!({ "do": "put", "key": "orders/first", "text": "there" })).await.ok();
    let first = site.etags().await["first"].clone();
    job.ask(json!({ "do": "begin", "key": "orders/upload" })).await.ok();
    let cases = [
        Case { of: ("PUT", "plain"), call: put("plain", json!({})), written: Some("plain") },
        Case {
            of: ("PUT", "new"),
            call: put("new", json!({ "IfNoneMatch": "*" })),
            written: Some("new"),
        },
        Case {
            of: ("PUT", "first"),
            call: put("first", json!({ "IfMatch": first })),
            written: Some("first"),
        },
        Case {
            of: ("POST", "uploadId"),
            call: json!({ "do": "complete" }),
            written: Some("upload"),
        },
        Case {
            of: ("POST", "delete"),
            call: json!({ "do": "delete_many", "keys": ["orders/plain"] }),
            written: None,
        },
    ];
    for case in cases {
        case.holds_true(&site, &mut job).await;
    }
    let call =
        json!({ "do": "delete", "key": "orders/first", "IfMatch": site.etags().await["first"] });
    Case { of: ("DELETE", "first"), call, written: None }.holds_true(&site, &mut job).await;
    assert!(site.etags().await.into_keys().eq(["new", "upload"]));
    assert_eq!(job.end().await, 0);
}

fn put(key: &str, conditions: Value) -> Value {
    let mut call = json!({ "do": "put", "key": format!("orders/{key}"), "text": "x" });
    let conditions = conditions.as_object().unwrap().clone();
    call.as_object_mut().unwrap().extend(conditions);
    call
}

/// A call whose first answer is lost.
struct Case {
    /// The method of the request, and what its path or query has.
    of: (&'static str, &'static str),
    call: Value,
    /// The object whose ETag is told.
    written: Option<&'static str>,
}

impl Case {
    async fn holds_true(self, site: &Site, job: &mut Job) {
        let Self { of: (method, part), call, written } = self;
        let before = site.client().version(ORDERS).await;
        site.wire.take();
        site.wire.lose_answer(method, part);
        let told = job.ask(call.clone()).await.ok();
        assert_same_call(&site.wire.take(), &call);
        // It took effect once, and that is what was told.
        assert_eq!(site.client().version(ORDERS).await, before + 1, "{call}");
        if let Some(key) = written {
            assert_eq!(told, site.etags().await[key], "{call}");
        }
    }
}

/// The tool has made one call, in two requests.
#[track_caller]
fn assert_same_call(seen: &[Seen], call: &Value) {
    let ids: Vec<_> = seen.iter().map(|seen| seen.header(CALL)).collect();
    assert_eq!(ids.len(), 2, "{call}: {seen:?}");
    assert!(ids[0].is_some() && ids[0] == ids[1], "{call}: {ids:?}");
    assert!(
        seen.iter().all(|seen| seen.status.is_some_and(|status| status < 300)),
        "{call}: {seen:?}"
    );
}

/// It has no id for its calls: what it sends again, it does again. An upload has an id of its own.
#[tokio::test]
async fn object_store() {
    let site = Site::start().await;
    let mut job = site.job(&tools::OBJECT_STORE).await;
    let put = json!({ "do": "put", "key": "orders/plain", "text": "x" });
    site.wire.lose_answer("PUT", "orders/plain");
    let etag = job.ask(put).await.text();
    assert_eq!((site.wire.take().len(), site.client().version(ORDERS).await), (2, 2));
    assert_eq!(site.etags().await["plain"], etag);
    job.ask(json!({ "do": "begin", "key": "orders/upload" })).await.ok();
    site.wire.lose_answer("POST", "uploadId");
    job.ask(json!({ "do": "complete" })).await.ok();
    assert_eq!(site.client().version(ORDERS).await, 3);
    assert!(site.etags().await.into_keys().eq(["plain", "upload"]));
    assert_eq!(job.end().await, 0);
}

//! Whatever tool a job writes with: once its lock is somebody else's, nothing that it does takes effect, and it is told.

use serde_json::json;

use super::site::Site;
use super::tools::{self, Tool, Write};
use super::wire::Seen;

#[tokio::test]
async fn boto3() {
    bounces(&tools::BOTO3).await;
}

#[tokio::test]
async fn aws_cli() {
    bounces(&tools::AWS_CLI).await;
}

#[tokio::test]
async fn sdk_for_javascript() {
    bounces(&tools::JAVASCRIPT).await;
}

#[tokio::test]
async fn object_store() {
    bounces(&tools::OBJECT_STORE).await;
}

#[tokio::test]
async fn s5cmd() {
    bounces(&tools::S5CMD).await;
}

/// Job A writes, and stands still until its lock has lapsed. Job B, which waited in line, has it and writes. A goes on, and
/// knows of nothing.
pub async fn bounces(tool: &Tool) {
    let site = Site::start().await;
    // 1. A writes, and begins an upload.
    let mut a = site.job(tool).await;
    a.ask(json!({ "do": "put", "key": "orders/total", "text": "from A" })).await.ok();
    if tool.writes.contains(&Write::Complete) {
        a.ask(json!({ "do": "begin", "key": "orders/upload" })).await.ok();
    }
    // 2. It stands still, and B takes over with the same tool.
    a.pause();
    let mut b = site.job(tool).await;
    b.ask(json!({ "do": "put", "key": "orders/total", "text": "from B" })).await.ok();
    let written = site.etags().await;
    // 3. Whatever A does now is refused, without being asked again and again, and it is told why.
    a.resume();
    for write in tool.writes {
        site.wire.take();
        let why = a.ask(write.call("orders/total")).await.failed();
        assert!(why.contains(tool.says), "{write:?}: {why}");
        assert_eq!(most_asked(&site.wire.take()), tool.asks, "{write:?}: {why}");
    }
    // 4. Readers see what B wrote, A among them, and nothing of A's.
    assert_eq!(a.ask(json!({ "do": "get", "key": "orders/total" })).await.text(), "from B");
    assert_eq!(site.etags().await, written);
    // 5. Neither tool nor job end as if all were well. B does.
    assert_eq!(a.end().await, 1, "that of the tool itself");
    assert_eq!(b.end().await, 0);
}

/// How often the request was sent that was refused most often. A tool may try to clear up behind a refusal, which is refused
/// as well.
fn most_asked(seen: &[Seen]) -> usize {
    let refused: Vec<_> = seen.iter().filter(|seen| seen.is_fenced()).collect();
    let same = |one: &Seen| refused.iter().filter(|seen| seen.is_same_as(one)).count();
    refused.iter().map(|seen| same(seen)).max().unwrap_or(0)
}

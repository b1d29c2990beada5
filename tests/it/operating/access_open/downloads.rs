//! Downloads of somebody who may not read any more by the time that they are half-way.

use std::net::SocketAddr;

use fence_core::wire::Lock;
use fence_tests::access::Key;
use fence_tests::process::eventually;
use fence_tests::s3::{self, Request};
use reqwest::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{Rules, put_rules};
use crate::s3::faults::rig::speaking_s3;
use crate::setup::{SetUp, on_both};

on_both!(a_download_ends_with_the_right_to_it);

const WORKS: &str = "allow = [\"lock\", \"write\", \"read\", \"list\"]\nresources = [\"lake:r\"]";
const LOOKS: &str = "allow = [\"observe\"]\nresources = [\"*\"]";
/// More than the system keeps of it on its way.
const SIZE: usize = 32 << 20;

/// A request that is answered with a large body, of which only the beginning is read.
async fn begun(address: SocketAddr, head: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(head).await.unwrap();
    let mut first = [0; 12];
    stream.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    stream
}

async fn a_download_ends_with_the_right_to_it(setup: SetUp) {
    let (settings, s3) = speaking_s3(setup.settings().await);
    let (rules, ann, bob) = (Rules::new().await, Key::new().await, Key::new().await);
    let gateway = setup.start_ruled(settings, &rules, &rules.text(WORKS, &[("ann", &ann)])).await;
    let client = gateway.client();
    let make = client.call(Method::PUT, "/buckets/lake");
    let make = make.header("content-type", "application/json");
    rules.admin.by(make.body(json!({ "depth": 1 }).to_string())).send().await.expect(201);
    let body = json!({ "resource": "lake:r", "ttl": "1h" });
    let lock: Lock = ann.by(client.lock(&body)).send().await.expect(201).parse();
    // Of the type of streams that end by themselves, which this one does not.
    let put = client.put("lake:r", "x", vec![7; SIZE]).under(&lock);
    ann.by(put.header("content-type", "text/event-stream")).send().await.expect(201);

    // 1. Both doors answer.
    let native = format!(
        "GET /resources/lake:r/objects/x HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\r\n",
        gateway.address(),
        ann.text
    );
    let by_s3 = Request::get("/lake/r/x").sign(s3, &s3::Key::of(&lock));
    let downloads =
        [begun(gateway.address(), native.as_bytes()).await, begun(s3, &by_s3.head(0)).await];
    // 2. The right is taken away, and the gateway has heard of it.
    let text = rules.text(LOOKS, &[("bob", &bob)]);
    let body = json!({ "rules": text, "reason": "the test says so" });
    let applied = rules.admin.by(put_rules(&client, &body)).send().await.expect(200).json();
    let known = format!("fencegate_access_generation {}", applied["generation"]);
    eventually("the gateway knows the newer rules", async || {
        let page = bob.by(client.get("/metrics")).send().await;
        page.text().lines().any(|line| line == known).then_some(())
    })
    .await;
    // 3. What is on its way comes, and no more.
    for mut download in downloads {
        let mut rest = Vec::new();
        let _ = download.read_to_end(&mut rest).await;
        assert!(rest.len() < SIZE, "{} bytes came", rest.len());
    }
}

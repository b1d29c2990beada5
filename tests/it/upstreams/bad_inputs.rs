//! Requests to upstreams that could get past the fence, or further than the settings say.

use fence_tests::process::eventually;
use fence_tests::raw::{RawConnection, exchange};
use reqwest::Method;

use crate::setup::{SetUp, random_id};
use crate::upstreams::requests::{fronted, through};

#[tokio::test]
async fn paths_that_could_be_read_two_ways_are_refused() {
    let (gateway, upstream) = fronted(SetUp::Embedded, "drained", "").await;
    let lock = gateway.client().acquire("u:1", "10m").await;
    let send = async |method: &str, path: &str| {
        let request = format!(
            "{method} /upstreams/u{path} HTTP/1.1\r\nHost: localhost\r\nX-Fence-Token: {}\r\n\
             Content-Length: 1\r\n\r\nx",
            lock.token
        );
        exchange(gateway.address(), request.as_bytes()).await.expect("an answer")
    };
    for method in ["POST", "GET", "MKCOL"] {
        for path in [
            "/r/../r/2",
            "/r/./1",
            "/r/1/..",
            "/r/%2e%2e/2",
            "/r/%2E/1",
            "/r/1%2f..%2f2",
            "/r/1%5c2",
            "//r/1",
            "/r//1",
            "/r/1//x",
            "/r/..;/2",
            "/r/.;a/1",
            "/r/1%00",
            "/r/1%0d%0aX:%20y",
            "/r/%252e%252e/2",
            "/r/1%",
            "/r/1%zz",
            "/r/1\\2",
            "/r/\"1\"",
            "/r/1%7f",
            "/r/1|2",
        ] {
            let answer = send(method, path).await;
            let told = (answer.status, answer.code());
            assert_eq!(told.0, 400, "{method} {path}: {}", answer.text());
            let codes = ["upstream-path-invalid", "request-malformed"];
            assert!(codes.contains(&told.1.as_str()), "{method} {path}: {}", answer.text());
        }
    }
    // Fine as paths, but none names a resource; reads need none.
    for path in ["/", "/r", "/r/", "/R/1", "/x/1", "/%72/1", "/r/a%20b", "/r/%C3%A9"] {
        let answer = send("POST", path).await;
        let told = (answer.status, answer.code());
        assert_eq!(told, (400, "upstream-path-invalid".to_owned()), "{path}: {}", answer.text());
    }
    assert_eq!(upstream.begun(), 0);
    // One resource has one name, however it is encoded.
    for path in ["/r/1", "/r/%31", "/r/1/", "/r/1/a;b=c/d,e", "/r/1/caf%C3%A9?q=%2e%2e/%2f"] {
        let answer = send("POST", path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        assert_eq!(upstream.seen().last().map(|one| one.target.clone()).as_deref(), Some(path));
    }
}

#[tokio::test]
async fn methods_that_are_not_forwarded_are_refused() {
    let (gateway, upstream) = fronted(SetUp::Embedded, "drained", "").await;
    let client = gateway.client();
    let lock = client.acquire("u:1", "10m").await;
    let token = lock.token;
    let raw = async |request: String| exchange(gateway.address(), request.as_bytes()).await;
    let trace = raw("TRACE /upstreams/u/r/1 HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned()).await;
    let trace = trace.expect("an answer");
    assert_eq!(trace.status, 405);
    assert_eq!(trace.header("allow"), Some("GET, HEAD, OPTIONS, POST, PUT, PATCH, DELETE"));
    let connect =
        raw("CONNECT 169.254.169.254:80 HTTP/1.1\r\nHost: 169.254.169.254:80\r\n\r\n".into());
    assert!(connect.await.is_none_or(|answer| (400..500).contains(&answer.status)));
    for header in [
        "Connection: Upgrade\r\nUpgrade: websocket\r\n",
        "Connection: keep-alive, upgrade\r\n",
        "Upgrade: h2c\r\n",
        "X-HTTP-Method-Override: DELETE\r\n",
        "X-Method-Override: DELETE\r\n",
        "X_HTTP_Method_Override: DELETE\r\n",
        "X-Original-URL: /r/2\r\n",
        "Content-Length: 1\r\n\r\nx",
        "Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n",
    ] {
        for method in ["GET", "HEAD", "OPTIONS"] {
            let request =
                format!("{method} /upstreams/u/r/1 HTTP/1.1\r\nHost: localhost\r\n{header}\r\n");
            let mut connection = RawConnection::open(gateway.address()).await;
            connection.send(request.as_bytes()).await;
            let told = match method {
                "HEAD" => connection.head_answer().await.map(|answer| (answer.status, None)),
                _ => connection.answer().await.map(|answer| (answer.status, Some(answer.code()))),
            };
            let code = (method != "HEAD").then(|| "request-malformed".to_owned());
            assert_eq!(told, Some((400, code)), "{method} {header}");
        }
    }
    // A body of nothing is none.
    for header in ["Content-Length: 0\r\n", "Transfer-Encoding: chunked\r\n\r\n0\r\n"] {
        let request = format!("GET /upstreams/u/r/1 HTTP/1.1\r\nHost: localhost\r\n{header}\r\n");
        assert_eq!(raw(request).await.map(|answer| answer.status), Some(200), "{header}");
    }
    let begun = upstream.begun();
    let elsewhere =
        "GET http://169.254.169.254/upstreams/u/r/1 HTTP/1.1\r\nHost: localhost\r\n\r\n";
    assert_eq!(raw(elsewhere.to_owned()).await.map(|answer| answer.status), Some(400));
    for header in [
        "X-Fence-Token: 1, 2\r\n".to_owned(),
        format!("X-Fence-Token: {token}\r\nX-Fence-Token: {token}\r\n"),
        format!("X-Fence-Token: {token}\r\nX-Fence-Seq: 1\r\nX-Fence-Seq: 2\r\n"),
        format!("X-Fence-Token: {token}\r\nIdempotency-Key: a b\r\n"),
        format!("X-Fence-Token: {token}\r\nX-Lock-Id: x\r\n"),
        format!("X-Fence-Token: {token}\r\nX_Fence_Token: 9\r\n"),
        format!("X-Fence-Token: {token}\r\nX-Original-URL: /r/2\r\n"),
        format!("X-Fence-Token: {token}\r\nX-Rewrite-URL: /r/2\r\n"),
        format!("X-Fence-Token: {token}\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n"),
    ] {
        let request = format!("PUT /upstreams/u/r/1 HTTP/1.1\r\nHost: localhost\r\n{header}\r\n");
        let answer = raw(request).await.expect("an answer");
        assert_eq!(answer.status, 400, "{header}: {}", answer.text());
    }
    assert_eq!(upstream.begun(), begun);
    // Methods without a name here are fenced like any write.
    let made = raw("MKCOL /upstreams/u/r/1 HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned()).await;
    assert_eq!(
        made.map(|answer| (answer.status, answer.code())),
        Some((428, "fence-token-missing".into()))
    );
    let made = format!(
        "MKCOL /upstreams/u/r/1 HTTP/1.1\r\nHost: localhost\r\nX-Fence-Token: {token}\r\n\r\n"
    );
    assert_eq!(raw(made).await.map(|answer| answer.status), Some(200));
    assert_eq!(upstream.seen()[begun].method.as_str(), "MKCOL");
}

#[tokio::test]
async fn bodies_that_arrive_too_slowly_are_ended() {
    let upstream = fence_tests::upstream::Upstream::start().await;
    let settings = SetUp::Embedded.settings().await.env("FENCEGATE_BODY_IDLE_TIMEOUT", "300ms");
    let gateway = settings.flag("--upstream", &upstream.setting("drained", "")).start().await;
    let client = gateway.client();
    let lock = client.acquire("u:1", "10m").await;
    let mut connection = RawConnection::open(gateway.address()).await;
    let head = format!(
        "PUT /upstreams/u/r/1 HTTP/1.1\r\nHost: localhost\r\nX-Fence-Token: {}\r\nContent-Length: 9\r\n\r\nxx",
        lock.token
    );
    connection.send(head.as_bytes()).await;
    let answer = connection.answer().await.expect("an answer");
    assert_eq!((answer.status, answer.code().as_str()), (408, "request-timeout"));
    assert_eq!(upstream.begun(), 0);
    // Nothing was forwarded, so nothing is in the way.
    client.release(&lock).send().await.expect(204);
    client.acquire("u:1", "10m").await;
}

#[tokio::test]
async fn an_answer_that_breaks_off_does_not_look_whole() {
    let (gateway, upstream) = fronted(SetUp::Embedded, "drained", ",timeout=2s").await;
    let client = gateway.client();
    let lock = client.acquire("u:1", "10m").await;
    let cut = through(&client, Method::PUT, "1", "size=200000&cut").under(&lock);
    cut.try_send().await.expect_err("half an answer");
    let slow = through(&client, Method::PUT, "1", "size=1000&late=10000&chunked").under(&lock);
    slow.try_send().await.expect_err("half an answer");
    eventually("both have an unknown fate", async || {
        let intents = crate::upstreams::draining::intents(&client).await;
        (intents.len() == 2 && intents.iter().all(|one| one["in_flight"] == false)).then_some(())
    })
    .await;
    assert_eq!(upstream.seen().len(), 2);
}

#[tokio::test]
async fn lists_and_resolutions_are_checked() {
    let (gateway, _upstream) = fronted(SetUp::Embedded, "drained", "").await;
    let client = gateway.client();
    let list = |name: &str, value: &str| client.get("/admin/intents").query(name, value).send();
    list("limit", "0").await.refused(400, "query-malformed");
    list("resource", "a/b").await.refused(400, "query-malformed");
    list("cursor", "x").await.refused(400, "query-malformed");
    list("token", "1").await.refused(400, "query-malformed");
    list("upstream", "none").await.expect(200);
    let post = |path: &str, body: serde_json::Value| client.post(path.to_owned(), &body).send();
    let resolve = "/admin/intents/resolve";
    post(resolve, serde_json::json!({ "upstream": "v", "reason": "x" }))
        .await
        .refused(404, "upstream-not-found");
    post(resolve, serde_json::json!({ "upstream": "u" })).await.refused(400, "body-malformed");
    let done =
        post(resolve, serde_json::json!({ "upstream": "u", "reason": "x" })).await.expect(200);
    assert_eq!(done.json()["resolved"], 0);
    let unknown = format!("/admin/intents/{}/resolve", random_id());
    post(&unknown, serde_json::json!({ "reason": "x" })).await.refused(404, "operation-not-found");
    post("/admin/intents/x/resolve", serde_json::json!({ "reason": "x" }))
        .await
        .refused(400, "request-malformed");
}

#[tokio::test]
async fn settings_that_cannot_be_used_end_the_gateway_at_once() {
    for (setting, why) in [
        (
            "name=u,url=ftp://x,resource=/r/{resource},resource_form=digits,guarantee=drained",
            "http",
        ),
        ("name=u,url=http://x/,resource=/r,resource_form=any,guarantee=drained", "{resource}"),
        ("name=u,url=http://x/,resource=/r/{resource},resource_form=digits", "guarantee"),
        ("name=u,url=http://x/,resource=/r/{resource},guarantee=drained", "resource_form"),
        (
            "name=u,url=http://x/,resource=/r/{resource},resource_form=digits,guarantee=strict",
            "strict",
        ),
    ] {
        let settings = SetUp::Embedded.settings().await.flag("--upstream", setting);
        let (status, log) = settings.start_refused().await;
        assert_eq!(status.code(), Some(2), "{setting}: {log}");
        assert!(log.contains("--upstream") && log.contains(why), "{setting}: {log}");
    }
}

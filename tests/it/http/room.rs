//! Room is kept for those who must get through, however many wait.
#![expect(clippy::disallowed_methods, reason = "a test waits on the real clock")]

use std::time::Duration;

use fence_core::ports::Ledger as _;
use fence_tests::client::Client;
use fence_tests::conformance::reopened_sqlite_ledger;
use fence_tests::gateway::Gateway;
use fence_tests::process::eventually;
use fence_tests::raw::RawConnection;
use futures::future::join_all;
use serde_json::json;
use tempfile::TempDir;
use tokio::task::JoinSet;

/// Connections that a gateway takes, and how many of them may wait.
const CONNECTIONS: usize = 60;
const WAITING: usize = 48;

/// Too large for the ledger.
const LARGE: usize = 1 << 20;

/// Callers who wait for a resource and come back at once when they are turned away, as many as there are
/// connections.
fn crowd(client: &Client) -> JoinSet<()> {
    let mut crowd = JoinSet::new();
    for number in 0..CONNECTIONS {
        let wish = json!({ "resource": "job:1", "owner": format!("w{number}"), "wait": "50s" });
        let call = client.lock(&wish);
        crowd.spawn(async move {
            loop {
                if let Ok(answer) = call.clone().try_send().await
                    && answer.status != 201
                {
                    answer.refused(503, "overloaded");
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
    }
    crowd
}

#[tokio::test]
async fn while_as_many_wait_as_there_are_connections_the_holder_gets_through() {
    let settings = Gateway::embedded().env("FENCEGATE_CONNECTIONS_MAX", &CONNECTIONS.to_string());
    let gateway = settings.start().await;
    let client = gateway.client();
    let lock = client.acquire("job:1", "10m").await;
    let other = client.acquire("job:2", "10m").await;
    let crowd = crowd(&client);
    // Each of these on a connection of its own, like any other caller's.
    let alone = || gateway.client();
    eventually("as many wait as may", async || {
        let metrics = alone().get("/metrics").send().await.expect(200).text();
        metrics.contains(&format!("\nfencegate_waiters {WAITING}\n")).then_some(())
    })
    .await;
    let wish = json!({ "resource": "job:1", "wait": "10s" });
    let refused = alone().lock(&wish).send().await.refused(503, "overloaded");
    assert_eq!(refused.header("connection"), Some("close"), "{refused:?}");
    assert!(refused.header("retry-after").is_some());
    alone().get("/healthz").send().await.expect(200);
    alone().renew(&lock, None).send().await.expect(200);
    alone().break_lock("job:2", &json!({ "reason": "x" })).send().await.expect(200);
    alone().put("job:2", "k", "x").under(&other).send().await.refused(412, "fence-token-broken");
    alone().release(&lock).send().await.expect(204);
    drop(crowd);
}

/// A payload that is announced and comes as slowly as a gateway takes it.
async fn dawdler(gateway: &Gateway, token: i64, lock: &str) -> RawConnection {
    let mut connection = RawConnection::open(gateway.address()).await;
    let head = format!(
        "PUT /resources/job:1/objects/slow HTTP/1.1\r\nhost: localhost\r\nx-fence-token: {token}\r\n\
         x-lock-id: {lock}\r\ncontent-length: {LARGE}\r\n\r\n"
    );
    connection.send(head.as_bytes()).await;
    connection.send(&[7; 1024]).await;
    connection
}

/// Who presents a token that nobody was given takes no place among the uploads.
#[tokio::test]
async fn made_up_tokens_keep_no_upload_out() {
    let gateway = Gateway::embedded().env("FENCEGATE_UPLOADS_MAX", "4").start().await;
    let client = gateway.client();
    let lock = client.acquire("job:1", "10m").await;
    let (made_up, id) = (lock.token.get() + 1_000, lock.id.to_string());
    let mut dawdlers = join_all((0..16).map(|_| dawdler(&gateway, made_up, &id))).await;
    for dawdler in &mut dawdlers {
        let refused = dawdler.answer().await.expect("an answer before the body");
        assert_eq!((refused.status, refused.code().as_str()), (403, "fence-token-unknown"));
    }
    let put = client.put("job:1", "k", vec![7; LARGE]).under(&lock);
    put.send().await.expect(201);
}

/// Nor does who has a good one and sends next to nothing, for ever.
#[tokio::test]
async fn an_upload_that_comes_too_slowly_gives_its_place_up() {
    let settings = Gateway::embedded().env("FENCEGATE_UPLOADS_MAX", "1");
    let gateway = settings.env("FENCEGATE_BODY_IDLE_TIMEOUT", "1m").start().await;
    let client = gateway.client();
    let lock = client.acquire("job:1", "10m").await;
    let (token, id) = (lock.token.get(), lock.id.to_string());
    let mut slow = dawdler(&gateway, token, &id).await;
    let crawl = async {
        loop {
            slow.send(&[7]).await;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    let put = client.put("job:1", "k", vec![7; LARGE]).under(&lock);
    let freed = eventually("its place is free again", async || {
        put.clone().send().await.status.is_success().then_some(())
    });
    tokio::select! {
        () = crawl => unreachable!("it goes on for ever"),
        () = freed => {}
    }
    let told = slow.answer().await.expect("an answer");
    assert_eq!((told.status, told.code().as_str()), (408, "request-timeout"));
}

/// However many read an embedded ledger at once, few connections to its file are opened, each of which has a thread.
#[tokio::test]
async fn many_readers_of_an_embedded_ledger_share_few_connections() {
    let home = TempDir::with_prefix("fence-readers-").expect("a directory");
    let path = home.path().join("ledger.db");
    let ledger = reopened_sqlite_ledger(&path).await;
    let reads = join_all((0..200).map(|_| ledger.place(None))).await;
    assert!(reads.iter().all(Result::is_ok));
    let open = || {
        let all = std::fs::read_dir("/proc/self/fd").expect("the descriptors").flatten();
        all.filter(|one| std::fs::read_link(one.path()).is_ok_and(|to| to == path)).count()
    };
    // Eight readers and the writer.
    assert!((2..=9).contains(&open()), "{} descriptors", open());
}

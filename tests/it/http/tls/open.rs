//! Open connections: they end when the certificate is not taken any more that they were opened with, and no others do.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

use fence_tests::gateway::Gateway;
use fence_tests::process::eventually;
use tokio_rustls::rustls::version;

use super::line::{Line, connects, connects_by, is_let_in};
use super::rig::{Authority, Files, Pair, is_ready, metric};

const CLOSED: &str = "fencegate_connections_closed_total{reason=\"certificate\"}";

/// A gateway whose own certificate is of one authority, and those of callers of another.
struct Site {
    ours: Authority,
    callers: Authority,
    files: Files,
    gateway: Gateway,
}

impl Site {
    /// What is revoked at first is nobody's.
    async fn new() -> Self {
        let (ours, callers) = (Authority::new("ours"), Authority::new("callers"));
        let files = Files::new(&ours.server(1));
        // A body that is kept back is waited for.
        let settings = files.gateway_for(&callers, &callers.revokes(1));
        let gateway = settings.env("FENCEGATE_BODY_IDLE_TIMEOUT", "1m").begin();
        is_ready(&gateway, &ours.caller(false, None)).await;
        Self { ours, callers, files, gateway }
    }

    /// A connection on which an answer has come.
    async fn line(&self, own: Option<&Pair>) -> Line {
        let mut line = Line::open(&self.gateway, &connects(&self.ours, own)).await.unwrap();
        let answer = line.get("/healthz").await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        line
    }

    async fn closed(&self) -> Option<String> {
        metric(&self.gateway, &self.ours.caller(false, None), CLOSED).await
    }
}

#[tokio::test]
async fn what_is_revoked_ends_its_open_connections_and_no_others() {
    let site = Site::new().await;
    let (bad, good) = (site.callers.client(8), site.callers.client(9));
    let mut idle = site.line(Some(&bad)).await;
    let mut others = [site.line(Some(&good)).await, site.line(None).await];
    // Half a head is no request: it is not waited for.
    let mut half = site.line(Some(&bad)).await;
    half.send("GET /healthz HTTP/1.1\r\nhost: loc").await;
    let mut events = site.line(Some(&bad)).await;
    events
        .send("GET /events HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n\r\n")
        .await;
    events.until("\n\n\r\n").await.unwrap();
    let mut writes = site.line(Some(&bad)).await;
    let request = "POST /locks HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    writes.send(&format!("{request}content-length: 17\r\n\r\n{{\"resource\":")).await;

    site.files.put("revoked.pem", &site.callers.revokes(8));
    site.gateway.hangup();
    assert_eq!(idle.rest().await, "");
    assert_eq!(half.rest().await, "");
    let end = events.rest().await;
    assert!(end.ends_with("0\r\n\r\n"), "the stream ends as a whole: {end:?}");
    eventually("all are counted", async || {
        (site.closed().await.as_deref() == Some("4")).then_some(())
    })
    .await;
    // The request that was under way is carried out, and is the last.
    writes.send("\"r1\"}").await;
    let answer = writes.answer().await.unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 201 ") && answer.contains("connection: close"),
        "{answer}"
    );
    assert_eq!(writes.rest().await, "");
    for line in &mut others {
        line.get("/healthz").await.unwrap();
    }
}

#[tokio::test]
async fn an_authority_that_is_trusted_no_longer_ends_the_connections_of_its_own() {
    let site = Site::new().await;
    let mut line = site.line(Some(&site.callers.client(8))).await;
    let others = Authority::new("others");
    // The list is of the authority that goes.
    site.files.put("revoked.pem", &others.revokes(1));
    site.files.put("callers.pem", &others.pem());
    assert_eq!(line.rest().await, "");
    assert!(is_let_in(&site.gateway, &connects(&site.ours, Some(&others.client(8)))).await);
}

#[tokio::test]
async fn a_certificate_that_ends_ends_its_connection() {
    let site = Site::new().await;
    let short = site.callers.client_until(12);
    let mut line = site.line(Some(&short)).await;
    let mut other = site.line(Some(&site.callers.client(9))).await;
    assert_eq!(line.rest().await, "");
    assert!(!is_let_in(&site.gateway, &connects(&site.ours, Some(&short))).await);
    assert_eq!(site.closed().await.as_deref(), Some("1"), "the others are not");
    other.get("/healthz").await.unwrap();
}

#[tokio::test]
async fn sessions_go_on_only_where_no_certificate_is_asked_for() {
    let site = Site::new().await;
    let free = Files::new(&site.ours.server(2));
    let free = free.gateway().begin();
    is_ready(&free, &site.ours.caller(false, None)).await;
    let own = site.callers.client(8);
    for one in [&version::TLS13, &version::TLS12] {
        let config = connects_by(&[one], &site.ours, Some(&own));
        for (gateway, resumes) in [(&free, true), (&site.gateway, false)] {
            Line::open(gateway, &config).await.unwrap().get("/healthz").await.unwrap();
            let again = Line::open(gateway, &config).await.unwrap();
            assert_eq!(again.is_resumed(), resumes, "{one:?}");
        }
    }
    let kept = connects(&site.ours, Some(&own));
    let mut line = Line::open(&site.gateway, &kept).await.unwrap();
    line.get("/healthz").await.unwrap();
    site.files.put("revoked.pem", &site.callers.revokes(8));
    line.rest().await;
    assert!(!is_let_in(&site.gateway, &kept).await, "what it has of the session is of no use");
}

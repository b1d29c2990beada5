//! A grant whose answer could not be written out is given back: at once, or with a proposed id when its
//! caller has not come back for 10 s.
//!
//! The caller here reads nothing: it sends one request after the other over one connection, each with
//! an answer of some kilobytes, until the socket of the gateway is full. The last lock that was granted
//! then has an answer that was written in part at the most.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]
#![expect(clippy::disallowed_methods, reason = "a test measures and sleeps on the real clock")]

use std::time::{Duration, Instant};

use fence_core::wire::Lock;
use fence_tests::client::Client;
use fence_tests::gateway::Gateway;
use fence_tests::process::eventually;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpSocket;
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::setup::{SetUp, on_both, random_id};

on_both!(
    an_undelivered_grant_is_given_back,
    an_undelivered_grant_under_a_proposed_id_is_given_back_after_a_while,
    an_undelivered_transfer_waits_for_its_caller,
    a_caller_that_takes_nothing_is_given_up,
);

const REQUESTS: usize = 1500;
const WAIT: Duration = Duration::from_secs(10);
/// Looks in which nothing has happened, although the gateway has answered each: then nothing more will.
const STABLE: usize = 100;

/// As many and as long names as a lock can have: they are in its answer.
fn names(prefix: &str, number: usize) -> Vec<String> {
    (0..32).map(|each| format!("{prefix}:{number}:{each}:{:x<220}", "")).collect()
}

fn post(path: &str, body: &Value) -> String {
    let body = body.to_string();
    format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn wish(prefix: &str, number: usize, id: Option<Uuid>) -> Value {
    json!({ "resources": names(prefix, number), "ttl": "1h", "owner": "deaf", "id": id })
}

/// A connection over which nothing is ever read.
struct Deaf(JoinHandle<()>);

impl Deaf {
    /// Sends these requests for as long as the gateway takes them. Most of the socket is filled with
    /// what costs the gateway little.
    async fn send(
        gateway: &Gateway,
        requests: impl Iterator<Item = String> + Send + 'static,
    ) -> Self {
        let filler = capacity(gateway).await * 6 / 10;
        Self::open(gateway, pages().take(filler).chain(requests)).await
    }

    async fn open(
        gateway: &Gateway,
        requests: impl Iterator<Item = String> + Send + 'static,
    ) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        let mut stream = socket.connect(gateway.address()).await.unwrap();
        stream.set_zero_linger().unwrap();
        Self(tokio::spawn(async move {
            for request in requests {
                if stream.write_all(request.as_bytes()).await.is_err() {
                    break;
                }
            }
            std::future::pending().await
        }))
    }

    /// Hangs up.
    fn reset(self) {
        self.0.abort();
    }
}

/// Endless requests for a page of many kilobytes.
fn pages() -> impl Iterator<Item = String> + Send + 'static {
    std::iter::repeat_with(|| "GET /openapi.yaml HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned())
}

/// How many such pages go into the sockets between a gateway and a caller that reads nothing.
async fn capacity(gateway: &Gateway) -> usize {
    let client = gateway.client();
    let answered = async || -> usize {
        let metrics = client.get("/metrics").send().await.expect(200).text();
        let is_count = |line: &&str| {
            line.starts_with("fencegate_http_request_duration_seconds_count")
                && line.contains("route=\"/openapi.yaml\"")
        };
        let line = metrics.lines().find(is_count);
        line.map_or(0, |line| line.rsplit(' ').next().unwrap().parse().unwrap())
    };
    let before = answered().await;
    let deaf = Deaf::open(gateway, pages().take(REQUESTS)).await;
    let (mut last, mut looks) = (before, 0);
    let full = eventually("the socket is full", async || {
        let now = answered().await;
        looks = if now == last { looks + 1 } else { 0 };
        last = now;
        (now > before && looks > STABLE).then_some(now - before)
    })
    .await;
    deaf.reset();
    full - 1
}

/// The number of the last lock that was granted, once no more are.
async fn last_granted(granted: impl AsyncFn(usize) -> bool) -> usize {
    let (mut next, mut looks) = (0, 0);
    let last = eventually("no more is granted", async || {
        looks += 1;
        while next < REQUESTS && granted(next).await {
            (next, looks) = (next + 1, 0);
        }
        (next > 0 && looks > STABLE).then(|| next - 1)
    })
    .await;
    assert!(last + 1 < REQUESTS, "the socket was never full");
    last
}

/// The state of a lock by the first of its resources; `None` before it was granted.
async fn state(client: &Client, prefix: &str, number: usize) -> Option<String> {
    let answer = client.get(format!("/resources/{}", names(prefix, number)[0])).send().await;
    if answer.status == StatusCode::NOT_FOUND {
        return None;
    }
    Some(answer.expect(200).json()["state"].as_str().unwrap().to_owned())
}

async fn until(client: &Client, prefix: &str, number: usize, wanted: &str) {
    eventually(&format!("{prefix}:{number} is {wanted}"), async || {
        (state(client, prefix, number).await? == wanted).then_some(())
    })
    .await;
}

/// Waits for a full socket; nothing else gives a caller up.
async fn patient(setup: SetUp) -> (Gateway, Client) {
    let settings = setup.settings().await.env("FENCEGATE_BODY_IDLE_TIMEOUT", "1h");
    let gateway = settings.start().await;
    let client = gateway.client();
    (gateway, client)
}

async fn an_undelivered_grant_is_given_back(setup: SetUp) {
    let (gateway, client) = patient(setup).await;
    let deaf =
        Deaf::send(&gateway, (0..REQUESTS).map(|n| post("/locks", &wish("own", n, None)))).await;
    let last = last_granted(async |n| state(&client, "own", n).await.is_some()).await;
    // While its connection is open it stays, whatever its caller reads.
    assert_eq!(state(&client, "own", last).await.unwrap(), "leased");
    deaf.reset();
    until(&client, "own", last, "released").await;
    let metrics = client.get("/metrics").send().await.expect(200).text();
    let counted = "fencegate_undelivered_grants_total{outcome=\"released\"} 1";
    assert!(metrics.contains(counted), "{metrics}");
}

async fn an_undelivered_grant_under_a_proposed_id_is_given_back_after_a_while(setup: SetUp) {
    let (gateway, client) = patient(setup).await;
    let ids: Vec<Uuid> = (0..REQUESTS).map(|_| random_id()).collect();
    let requests: Vec<_> =
        ids.iter().enumerate().map(|(n, id)| post("/locks", &wish("left", n, Some(*id)))).collect();
    let deaf = Deaf::send(&gateway, requests.into_iter()).await;
    let last = last_granted(async |n| state(&client, "left", n).await.is_some()).await;
    let hung_up = Instant::now();
    deaf.reset();
    until(&client, "left", last, "released").await;
    let took = hung_up.elapsed();
    eprintln!("{setup:?}: given back after {took:?}");
    assert!(took >= WAIT, "{took:?}");
    let again = client.lock(&wish("left", last, Some(ids[last]))).send().await;
    again.refused(409, "lock-released");
    // Those that were delivered stay, although nobody read them.
    assert_eq!(state(&client, "left", 0).await.unwrap(), "leased");
}

/// Hands a lock on, and on, and on; returns the ids, and the last of them that was reached.
async fn handed_on(gateway: &Gateway, client: &Client, prefix: &str) -> (Deaf, Vec<Uuid>, usize) {
    let mut body = wish(prefix, 0, None);
    body["owner"] = json!("first");
    let lock: Lock = client.lock(&body).send().await.expect(201).parse();
    let ids: Vec<Uuid> = (0..REQUESTS).map(|_| random_id()).collect();
    let from = std::iter::once(lock.id.0).chain(ids.clone());
    let hops: Vec<_> = from.zip(&ids).map(|(from, to)| hop(from, *to)).collect();
    let requests = hops.into_iter().map(|(path, body)| post(&path, &body));
    let deaf = Deaf::send(gateway, requests).await;
    let last = last_granted(async |n| {
        client.get(format!("/locks/{}", ids[n])).send().await.status == StatusCode::OK
    })
    .await;
    (deaf, ids, last)
}

fn hop(from: Uuid, to: Uuid) -> (String, Value) {
    (format!("/locks/{from}/transfer"), json!({ "owner": "next", "id": to }))
}

async fn an_undelivered_transfer_waits_for_its_caller(setup: SetUp) {
    let (gateway, client) = patient(setup).await;
    let (left, _, _) = handed_on(&gateway, &client, "left").await;
    let (back, ids, at) = handed_on(&gateway, &client, "back").await;
    // The same call again shows that somebody has the id. Before they hang up: afterwards it might come too late.
    let (path, body) = hop(ids[at - 1], ids[at]);
    client.post(path, &body).send().await.expect(200);
    let hung_up = Instant::now();
    left.reset();
    back.reset();
    until(&client, "left", 0, "released").await;
    assert!(hung_up.elapsed() >= WAIT, "given back after {:?}", hung_up.elapsed());
    eventually("it is counted that one was taken up", async || {
        let metrics = client.get("/metrics").send().await.expect(200).text();
        let counted = "fencegate_undelivered_grants_total{outcome=\"taken_up\"} 1";
        metrics.contains(counted).then_some(())
    })
    .await;
    assert_eq!(state(&client, "back", 0).await.unwrap(), "leased");
}

async fn a_caller_that_takes_nothing_is_given_up(setup: SetUp) {
    let settings = setup.settings().await.env("FENCEGATE_BODY_IDLE_TIMEOUT", "8s");
    let gateway = settings.start().await;
    let client = gateway.client();
    let deaf =
        Deaf::send(&gateway, (0..REQUESTS).map(|n| post("/locks", &wish("own", n, None)))).await;
    let last = last_granted(async |n| state(&client, "own", n).await.is_some()).await;
    // It never hangs up; it reads nothing for longer than the gateway bears.
    until(&client, "own", last, "released").await;
    deaf.reset();
}

//! A thousand clients that hang up in the middle of a request harm nobody.
#![expect(clippy::disallowed_methods, reason = "a test sleeps on the real clock")]

use std::time::Duration;

use fence_core::wire::Lock;
use fence_tests::client::Client;
use fence_tests::gateway::Gateway;
use fence_tests::process::eventually;
use fence_tests::raw::RawConnection;
use futures::{StreamExt, stream};
use serde_json::json;

use crate::setup::{SetUp, on_both};

on_both!(a_thousand_clients_that_hang_up_harm_nobody);

const HANGUPS: usize = 1000;
const TOGETHER: usize = 50;
const MIB: u64 = 1 << 20;

/// How far a client gets before it hangs up.
#[derive(Debug, Clone, Copy)]
enum Stage {
    AfterHeaders,
    MidBody,
    BeforeTheAnswer,
    MidLock,
    DuringLock,
}

const STAGES: [Stage; 5] = [
    Stage::AfterHeaders,
    Stage::MidBody,
    Stage::BeforeTheAnswer,
    Stage::MidLock,
    Stage::DuringLock,
];

fn wanted(number: usize) -> String {
    format!("wanted-{number}")
}

/// The bytes that a client sends before it hangs up.
fn request(stage: Stage, number: usize, lock: &Lock) -> Vec<u8> {
    let body = "x".repeat(1000);
    let put = format!(
        "PUT /resources/noise/objects/k{} HTTP/1.1\r\nHost: localhost\r\nX-Fence-Token: {}\r\n\
         Content-Length: 1000\r\n\r\n",
        number % 10,
        lock.token
    );
    let wish = json!({ "resource": wanted(number), "ttl": "1h", "owner": "gone" }).to_string();
    let post = format!(
        "POST /locks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n",
        wish.len()
    );
    let text = match stage {
        Stage::AfterHeaders => put,
        Stage::MidBody => put + &body[..500],
        Stage::BeforeTheAnswer => put + &body,
        Stage::MidLock => post + &wish[..wish.len() / 2],
        Stage::DuringLock => post + &wish,
    };
    text.into_bytes()
}

/// Whether an answer came before the gateway noticed.
async fn hang_up(gateway: &Gateway, number: usize, lock: &Lock) -> bool {
    let stage = STAGES[number % STAGES.len()];
    let mut connection = RawConnection::open(gateway.address()).await;
    connection.send(&request(stage, number, lock)).await;
    // At once, or in the middle of what the gateway does with it.
    if rand::random() {
        tokio::time::sleep(Duration::from_micros(rand::random_range(0..60_000))).await;
    }
    if matches!(stage, Stage::DuringLock) {
        // To the gateway this is no different, but it shows whether there was an answer.
        connection.finish().await;
        return connection.answer().await.is_some();
    }
    if rand::random() {
        connection.reset();
    }
    false
}

/// Connections to this port that the gateway has not closed yet.
fn connections_to(port: u16) -> usize {
    let table = std::fs::read_to_string("/proc/net/tcp").expect("the table of connections");
    let local = format!(":{port:04X}");
    let open = table.lines().skip(1).filter(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        // Neither listening (0A) nor waiting for the end of time (06), and owned by a process.
        fields[1].ends_with(&local) && !["0A", "06"].contains(&fields[3]) && fields[9] != "0"
    });
    open.count()
}

/// A client that behaves, while others do not; how many of its writes were acknowledged.
async fn behave(client: &Client, lock: &Lock, writes: usize) {
    for n in 0..writes {
        let put = client.put("good", &format!("k{n}"), format!("{n}")).under(lock);
        put.send().await.expect(201);
    }
}

async fn a_thousand_clients_that_hang_up_harm_nobody(setup: SetUp) {
    let settings = setup.settings().await;
    let mut gateway = settings.clone().start().await;
    let client = gateway.client();
    let noise = client.acquire("noise", "1h").await;
    let good = client.acquire("good", "1h").await;
    client.put("noise", "k0", "first").under(&noise).send().await.expect(201);
    let before = gateway.rss_bytes();

    let hangups = stream::iter(0..HANGUPS).map(|number| hang_up(&gateway, number, &noise));
    let hangups = hangups.buffered(TOGETHER).collect::<Vec<bool>>();
    let (answered, ()) = tokio::join!(hangups, behave(&client, &good, 200));

    // Nobody holds what nobody was told of.
    let untold: Vec<_> = (0..HANGUPS).filter(|&number| !answered[number]).collect();
    assert!(untold.len() > HANGUPS - HANGUPS / STAGES.len(), "all locks were answered");
    let lockable = untold.iter().map(|&number| {
        let client = client.clone();
        async move {
            eventually(&format!("{} is free", wanted(number)), async || {
                let wish = json!({ "resource": wanted(number), "ttl": "1h", "owner": "next" });
                let answer = client.lock(&wish).send().await;
                assert!([201, 409].contains(&answer.status.as_u16()), "{}", answer.text());
                (answer.status == 201).then_some(())
            })
            .await;
        }
    });
    stream::iter(lockable).buffer_unordered(16).collect::<Vec<()>>().await;

    // Writes still commit, and really do: F8 acknowledged them inside a forgotten transaction.
    let again = client.put("good", "k0", "again").under(&good);
    assert_eq!(again.send().await.expect(200).written().version, 201);
    let noisy = client.version("noise").await;
    assert!(noisy <= 1 + (HANGUPS / STAGES.len()) as i64, "{noisy}");
    let next = client.put("noise", "k0", "last").under(&noise).send().await.expect(200);
    assert_eq!(next.written().version, noisy + 1);

    drop(client);
    let port = gateway.address().port();
    eventually("all connections are closed", async || (connections_to(port) == 0).then_some(()))
        .await;
    let after = eventually("memory falls back", async || {
        let now = gateway.rss_bytes();
        (now < before + 64 * MIB).then_some(now)
    })
    .await;
    eprintln!(
        "{setup:?}: {HANGUPS} hang-ups, {} answered, {} writes of theirs applied; {} MiB before, \
         {} MiB after",
        HANGUPS - untold.len(),
        noisy - 1,
        before / MIB,
        after / MIB
    );

    // Read past the gateway that was hung up on.
    let second = match setup {
        SetUp::Embedded => {
            gateway.kill9();
            gateway.restart().await;
            None
        }
        SetUp::Clustered => Some(settings.start().await),
    };
    let reader = second.as_ref().unwrap_or(&gateway).client();
    assert_eq!(reader.version("good").await, 201);
    assert_eq!(reader.version("noise").await, noisy + 1);
    for n in 0..200 {
        let wanted = if n == 0 { "again".to_owned() } else { n.to_string() };
        let read = reader.read("good", &format!("k{n}")).send().await.expect(200);
        assert_eq!(read.text(), wanted);
    }
}

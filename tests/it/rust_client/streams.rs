//! Large objects: up and down in little memory, across cut connections, and whole or not at all.

use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use fence_tests::gateway::Gateway;
use fence_tests::process::eventually;
use fencegate_client::{Body, Client, Error, Event};
use futures::StreamExt as _;
use sha2::{Digest as _, Sha256};
use tokio::io::AsyncReadExt as _;

use super::child::{child, is_child};
use super::proxy::{Act, Proxy};
use super::{Dev, Told, builder, client, soon};

const MIB: usize = 1 << 20;

/// Bytes that are not the same everywhere.
fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at ^ (at >> 8) ^ (at >> 16)) as u8).collect()
}

#[tokio::test]
async fn sixty_four_mebibytes_go_up_and_down_in_little_memory() {
    if is_child() {
        return stream_a_large_file().await;
    }
    // In a process of its own, whose memory nobody else uses.
    let gateway = Gateway::embedded().start().await;
    let test = "streams::sixty_four_mebibytes_go_up_and_down_in_little_memory";
    let told = child(test, &[("TEST_URL", &gateway.url())]).await;
    let grown: i64 = told[0].parse().unwrap();
    assert!(grown < 40 * 1024, "grown by {grown} KiB");
}

/// The resident memory of this process at its highest, in KiB.
fn peak_kib() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

async fn stream_a_large_file() {
    const SIZE: usize = 64 * MIB;
    let client = client(&std::env::var("TEST_URL").unwrap());
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    let piece = bytes(MIB);
    let mut file = std::fs::File::create(&from).unwrap();
    for n in 0..SIZE / MIB {
        file.write_all(&[n as u8]).unwrap();
        file.write_all(&piece[1..]).unwrap();
    }
    let lock = client.lock("r").acquire().await.unwrap();
    lock.put("small", "x").await.unwrap();
    client.get("r", "small").await.unwrap();
    let before = peak_kib();
    let written = lock.put("large", Body::file(&from)).await.unwrap();
    let head = client.download("r", "large", &to).await.unwrap();
    let grown = peak_kib() - before;
    assert_eq!((written.size, head.size), (Some(SIZE as i64), SIZE as u64));
    assert_eq!(head.sha256.as_deref(), Some(&*sha256_of(&to)));
    assert_eq!(written.sha256, head.sha256);
    super::child::tell(grown);
}

fn sha256_of(path: &Path) -> String {
    Sha256::digest(std::fs::read(path).unwrap()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A gateway with an object of this size, behind a proxy.
async fn with_object(size: usize) -> (Dev, Proxy, Client, Told) {
    let (gateway, told) = (Dev::start().await, Told::default());
    let proxy = Proxy::start(gateway.address()).await;
    let client = builder(&proxy.url()).on_event(told.hook()).build().unwrap();
    let lock = client.lock("r").acquire().await.unwrap();
    lock.put("k", bytes(size)).await.unwrap();
    (gateway, proxy, client, told)
}

#[tokio::test]
async fn a_download_goes_on_where_it_was_cut() {
    let (_gateway, proxy, client, told) = with_object(2 * MIB).await;
    for cut in [MIB, 300_000, 1] {
        proxy.rule("GET", "/objects/k", 1, Act::CutAnswer(cut));
    }
    let mut read = Vec::new();
    client.open("r", "k").await.unwrap().read_to_end(&mut read).await.unwrap();
    assert!(read == bytes(2 * MIB), "{} bytes", read.len());
    assert!(told.count(|event| matches!(event, Event::Retry { call: "get", .. })) >= 3);
    let asked = proxy.seen("GET", "/objects/k");
    assert_eq!(asked[0].header("range"), None);
    for again in &asked[1..] {
        assert!(again.header("range").unwrap().starts_with("bytes="));
        assert!(again.header("if-range").is_some());
    }
    // The same into a file.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("k");
    proxy.rule("GET", "/objects/k", 1, Act::CutAnswer(MIB));
    client.download("r", "k", &path).await.unwrap();
    assert!(std::fs::read(&path).unwrap() == bytes(2 * MIB));
}

#[tokio::test]
async fn an_object_that_changed_after_the_cut_is_not_mixed() {
    let (_gateway, proxy, client, _) = with_object(2 * MIB).await;
    proxy.rule("GET", "/objects/k", 1, Act::CutAnswer(MIB));
    let mut reader = client.open("r", "k").await.unwrap();
    let first = reader.next().await.unwrap().unwrap();
    assert!(bytes(2 * MIB).starts_with(&first));
    let http = _gateway.http();
    let rival = super::take_over(&http, "r").await;
    http.put("r", "k", "another").under(&rival).send().await.expect(200);
    let ended = loop {
        match reader.next().await.expect("it does not end well") {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(matches!(ended, Error::Changed(_)), "{ended:?}");
    assert!(reader.next().await.is_none());
}

#[tokio::test]
async fn a_whole_read_of_an_object_that_changed_after_the_cut_is_that_of_the_new_one() {
    let (gateway, proxy, client, _) = with_object(2 * MIB).await;
    let http = gateway.http();
    let rival = super::take_over(&http, "r").await;
    proxy.rule("GET", "/objects/k", 1, Act::CutAnswer(MIB));
    // What asks for the rest comes after the change.
    proxy.rule("GET", "/objects/k", 1, Act::Late(Duration::from_secs(1)));
    let read = client.get("r", "k").into_future();
    let change = async {
        let again = async || (proxy.count("GET", "/objects/k") > 1).then_some(());
        eventually("the rest is asked for", again).await;
        http.put("r", "k", "another").under(&rival).send().await.expect(200);
    };
    let (read, ()) = tokio::join!(read, change);
    assert_eq!(read.unwrap().text().unwrap(), "another");
}

#[tokio::test]
async fn bytes_that_were_changed_on_the_way_are_noticed() {
    let (_gateway, proxy, client, _) = with_object(MIB).await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("k");
    std::fs::write(&path, "before").unwrap();
    proxy.rule("GET", "/objects/k", 3, Act::Flip(500_000));
    let whole = client.get("r", "k").await;
    assert!(matches!(whole, Err(Error::GatewayFault(_))), "{:?}", whole.map(|one| one.size));
    let file = client.download("r", "k", &path).await;
    assert!(matches!(file, Err(Error::GatewayFault(_))), "{file:?}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "before");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
    let mut read = Vec::new();
    let streamed = client.open("r", "k").await.unwrap().read_to_end(&mut read).await;
    assert!(streamed.is_err());
    client.download("r", "k", &path).await.unwrap();
    assert!(std::fs::read(&path).unwrap() == bytes(MIB));
}

#[tokio::test]
async fn an_upload_that_was_cut_in_the_middle_is_made_again() {
    let (_gateway, proxy, client, _) = with_object(1).await;
    let lock = client.lock("up").acquire().await.unwrap();
    proxy.rule("PUT", "up", 1, Act::CutRequest(MIB));
    let written = lock.put("k", bytes(2 * MIB)).await.unwrap();
    assert_eq!((written.version, written.receipt.attempts), (1, 2));
    let read = client.get("up", "k").await.unwrap();
    assert!(read.bytes == bytes(2 * MIB));
}

#[tokio::test]
async fn an_upload_outlives_a_restart_of_the_gateway_in_its_middle() {
    let mut gateway = Gateway::embedded().start().await;
    let client = client(&gateway.url());
    let lock = client.lock("r").acquire().await.unwrap();
    let (begun, goes_on) = (tokio::sync::Semaphore::new(0), tokio::sync::Semaphore::new(0));
    let gates = std::sync::Arc::new((begun, goes_on));
    let opened = gates.clone();
    // Each attempt sends a half, and the other once it may.
    let body = Body::from_fn(Some(2 * MIB as u64), move || {
        let gates = gates.clone();
        async move {
            let pieces = futures::stream::unfold(0, move |sent| {
                let gates = gates.clone();
                async move {
                    if sent == 1 {
                        gates.0.add_permits(1);
                        let _goes_on = gates.1.acquire().await.unwrap();
                    }
                    let piece = bytes::Bytes::from(bytes(2 * MIB)).slice(sent * MIB..);
                    (sent < 2).then(|| (Ok(piece.slice(..MIB)), sent + 1))
                }
            });
            let stream: fencegate_client::ByteStream = Box::pin(pieces);
            Ok(stream)
        }
    });
    let put = lock.put("k", body).into_future();
    let restart = async {
        let _begun = soon(opened.0.acquire()).await.unwrap();
        gateway.restart().await;
        opened.1.add_permits(100);
    };
    let (written, ()) = tokio::join!(put, restart);
    let written = written.unwrap();
    assert!(written.receipt.attempts > 1 && written.version == 1, "{written:?}");
    assert!(client.get("r", "k").await.unwrap().bytes == bytes(2 * MIB));
}

#[tokio::test]
async fn a_file_that_changes_between_two_attempts_is_not_sent_as_two() {
    let (_gateway, proxy, client, _) = with_object(1).await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("k");
    std::fs::write(&path, "one").unwrap();
    let lock = client.lock("up").acquire().await.unwrap();
    proxy.rule("PUT", "up", 1, Act::LateAnswer(Duration::from_millis(100)));
    lock.put("k", Body::file(&path)).await.unwrap();
    proxy.rule("PUT", "up", 1, Act::Keep);
    proxy.rule("PUT", "up", usize::MAX, Act::LoseRequest);
    let put = lock.put("k", Body::file(&path)).into_future();
    let change = async {
        let kept = async || (proxy.count("PUT", "up") > 1).then_some(());
        eventually("the first attempt is under way", kept).await;
        std::fs::write(&path, "something longer").unwrap();
    };
    let (put, ()) = tokio::join!(put, change);
    assert!(matches!(put, Err(Error::OutcomeUnknown(_))), "{put:?}");
    assert!(proxy.deliver().await[0].starts_with("HTTP/1.1 200"));
    assert_eq!(client.get("up", "k").await.unwrap().text().unwrap(), "one");
}

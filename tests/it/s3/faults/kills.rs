//! `kill -9` of the gateway while callers of S3 put objects and upload in parts: no object lacks a part, no acknowledged byte
//! is lost, and in the end the store has nothing that the ledger does not know.
#![expect(clippy::disallowed_methods, reason = "a test sleeps on the real clock")]

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use fence_tests::process::eventually;
use fence_tests::s3::{Key, Request, text_of, texts};
use fence_tests::stores::{Kind, Store};
use fence_tests::survey;
use futures::future::join_all;
use rand::RngExt as _;
use rand::seq::IndexedRandom as _;
use reqwest::header::HeaderMap;

use super::rig::{BUCKET, Site};
use crate::blobs::kills::blobs;
use crate::blobs::rig::{body, impatient, on_store, seed_of};
use crate::setup::SetUp;

const WRITERS: usize = 4;
const OBJECTS: [&str; 3] = ["a", "b/c", "d"];
/// How long parts are that are not the last, in bytes: the least that S3 allows.
const PART: usize = 5 << 20;

/// What an object may be: as of the last acknowledged write, or of one after it whose answer was lost.
#[derive(Debug, Default)]
struct Expected {
    acknowledged: Option<u64>,
    unknown: Vec<u64>,
}

/// What the writers have in common.
#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    seeds: AtomicU64,
    completed: AtomicUsize,
    put: AtomicUsize,
}

impl Shared {
    fn acknowledged(&self) -> usize {
        self.completed.load(Ordering::SeqCst) + self.put.load(Ordering::SeqCst)
    }
}

struct Writer {
    s3: std::net::SocketAddr,
    http: reqwest::Client,
    key: Key,
    at: String,
    shared: Arc<Shared>,
}

/// A whole answer.
struct Got {
    status: u16,
    headers: HeaderMap,
    text: String,
}

impl Writer {
    async fn ask(&self, request: Request) -> Option<Got> {
        let signed = request.sign(self.s3, &self.key);
        let sent = signed.request(&self.http, &format!("http://{}", self.s3)).send().await;
        let answer = match sent {
            Ok(answer) => answer,
            Err(_) => {
                tokio::time::sleep(Duration::from_millis(20)).await;
                return None;
            }
        };
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        let text = answer.text().await.ok()?;
        let fine = (200..300).contains(&status) || status == 503 || text.contains("NoSuchUpload");
        assert!(fine, "{status}: {text}");
        Some(Got { status, headers, text })
    }

    /// Begins an upload, and sends its parts; `None` if that did not come to an end.
    async fn upload(&self, path: &str, bytes: &Bytes) -> Option<(String, Vec<String>)> {
        let begun = self.ask(Request::begin(path)).await?;
        let id = text_of(&begun.text, "UploadId")?.to_owned();
        let mut tags = Vec::new();
        let mut left = bytes.clone();
        for number in 1.. {
            if left.is_empty() {
                break;
            }
            let part = left.split_to(left.len().min(PART));
            let mut tag = None;
            for _ in 0..3 {
                let sent = self.ask(Request::part(path, &id, number, part.clone())).await;
                tag = sent.and_then(|got| Some(got.headers.get("etag")?.to_str().ok()?.to_owned()));
                if tag.is_some() {
                    break;
                }
            }
            tags.push(tag?);
        }
        // Nobody will name this one.
        if rand::random_bool(0.3) {
            self.ask(Request::part(path, &id, 100, body(0, 10_000))).await;
        }
        Some((id, tags))
    }

    /// Writes an object in any way; what became of that.
    async fn write(&self, path: &str, seed: u64, length: usize, expected: &mut Expected) {
        let bytes = body(seed, length);
        let call = match rand::random_bool(0.7) {
            false => Request::put(path, bytes),
            true => {
                let Some((id, tags)) = self.upload(path, &bytes).await else { return };
                match rand::random_range(0..8) {
                    0 => return drop(self.ask(Request::abort(path, &id)).await),
                    1 => return,
                    _ => Request::complete(path, &id, &tags),
                }
            }
        };
        let is_in_parts = !call.query.is_empty();
        for _ in 0..if is_in_parts { 4 } else { 1 } {
            match self.ask(call.clone()).await {
                Some(got) if got.status == 200 => {
                    *expected = Expected { acknowledged: Some(seed), unknown: Vec::new() };
                    let count = if is_in_parts { &self.shared.completed } else { &self.shared.put };
                    count.fetch_add(1, Ordering::SeqCst);
                    return;
                }
                _ => expected.unknown.push(seed),
            }
        }
    }

    async fn work(self) -> (Self, HashMap<String, Expected>) {
        let mut expected: HashMap<String, Expected> = HashMap::new();
        while !self.shared.stop.load(Ordering::SeqCst) {
            let (object, length) = {
                let mut rng = rand::rng();
                let object = *OBJECTS.choose(&mut rng).expect("an object");
                (object, *[20_000, 300_000, PART + 70_000].choose(&mut rng).expect("a length"))
            };
            let path = format!("{}/{object}", self.at);
            let seed = 1 + self.shared.seeds.fetch_add(1, Ordering::SeqCst);
            let entry = expected.entry(path.clone()).or_default();
            self.write(&path, seed, length, entry).await;
        }
        (self, expected)
    }
}

/// How many blobs an object is.
async fn blobs_of(site: &Site, key: &Key, path: &str) -> usize {
    let first = site.ask(key, Request::get(path).query("partNumber", "1")).await;
    first.header("x-amz-mp-parts-count").expect("it says how many").parse().expect("a number")
}

/// Ends all uploads that go on, as their owners.
async fn abort_all(
    site: &Site,
    reader: &Key,
    writers: &[(Writer, HashMap<String, Expected>)],
) -> usize {
    let listed = Request::get(&format!("/{BUCKET}")).word("uploads");
    let listed = site.ask(reader, listed).await.text();
    let uploads: Vec<_> =
        texts(&listed, "Key").into_iter().zip(texts(&listed, "UploadId")).collect();
    for (key, id) in &uploads {
        let path = format!("/{BUCKET}/{key}");
        let owner = writers.iter().find(|(writer, _)| path.starts_with(&format!("{}/", writer.at)));
        let (owner, _) = owner.expect("an upload is somebody's");
        site.ask(&owner.key, Request::abort(&path, id)).await;
    }
    uploads.len()
}

async fn objects_in_parts_survive_kills(setup: SetUp, kind: Kind) {
    let store = Store::start(kind).await;
    let settings = impatient(on_store(setup.settings().await, &store));
    let mut site = Site::of(settings).await;
    let reader = site.reader().await;
    let shared = Arc::new(Shared::default());
    let mut writers = Vec::new();
    for number in 0..WRITERS {
        let (_lock, key) = site.lock(&format!("{BUCKET}:r{number}"), "24h").await;
        let http = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(20));
        let (http, at) = (http.build().expect("a client"), format!("/{BUCKET}/r{number}"));
        let writer = Writer { s3: site.s3, http, key, at, shared: Arc::clone(&shared) };
        writers.push(writer.work());
    }
    let kills = survey::size(6, 50);
    let killing = async {
        for _ in 0..kills {
            // Each of its lives has seen a write, however slow the machine.
            let before = shared.acknowledged();
            eventually("a write is acknowledged", async || {
                (shared.acknowledged() > before).then_some(())
            })
            .await;
            let pause = rand::rng().random_range(0..900);
            tokio::time::sleep(Duration::from_millis(pause)).await;
            site.gateway.kill9();
            site.gateway.restart().await;
        }
        // On a slow machine each life may be too short for one.
        eventually("an object in parts is completed", async || {
            (shared.completed.load(Ordering::SeqCst) > 0).then_some(())
        })
        .await;
        shared.stop.store(true, Ordering::SeqCst);
    };
    let (written, ()) = tokio::join!(join_all(writers), killing);
    let count = |count: &AtomicUsize| count.load(Ordering::SeqCst);
    let (completed, put) = (count(&shared.completed), count(&shared.put));

    site.gateway.set_env("FENCEGATE_UPLOAD_TIMEOUT", "1s");
    site.gateway.set_env("FENCEGATE_UPLOADS_KEPT", "1100ms");
    // What the store was told last may still be under way in it when the upload is given up.
    site.gateway.set_env("FENCEGATE_REDELETE_AFTER", "2s");
    if setup == SetUp::Clustered {
        site.gateway.agree().await;
    }
    site.gateway.kill9();
    site.gateway.restart().await;
    let mut wanted = 0;
    for (_, expected) in &written {
        for (path, expected) in expected {
            let found = site.bytes(&reader, path).await.map(|bytes| seed_of(&bytes));
            let possible = found == expected.acknowledged
                || found.is_some_and(|seed| expected.unknown.contains(&seed));
            assert!(possible, "{path} is {found:?}, not {expected:?}");
            if found.is_some() {
                wanted += blobs_of(&site, &reader, path).await;
            }
        }
    }
    let aborted = abort_all(&site, &reader, &written).await;
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let left = blobs(&store);
        if left.len() == wanted {
            break;
        }
        let what = format!("{wanted} blobs are objects' ({aborted} uploads were left): {left:#?}");
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    site.gateway.kill9();
    let (code, told, log) = site.gateway.run(&["scrub"]).await;
    assert_eq!(code, Some(0), "{told}{log}");
    for line in ["pointers without a blob:  0", "blobs unknown to the ledger: 0"] {
        assert!(told.contains(line), "{told}");
    }
    println!(
        "{kills} kills, {completed} objects in parts, {put} others, {aborted} uploads left behind"
    );
}

#[tokio::test]
async fn objects_in_parts_in_a_folder_survive_kills() {
    objects_in_parts_survive_kills(SetUp::Embedded, Kind::Folder).await;
}

#[tokio::test]
async fn objects_in_parts_on_s3_survive_kills() {
    objects_in_parts_survive_kills(SetUp::Clustered, Kind::S3).await;
}

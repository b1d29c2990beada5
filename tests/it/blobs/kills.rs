//! `kill -9` of the gateway, again and again while it uploads and while it sweeps: no pointer dangles, no
//! acknowledged byte is lost, and in the end no orphan is left.
#![expect(clippy::disallowed_methods, reason = "a test sleeps on the real clock")]

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fence_core::wire::Lock;
use fence_tests::client::Client;
use fence_tests::process::eventually;
use fence_tests::stores::{Kind, Store};
use fence_tests::survey;
use futures::future::join_all;
use rand::RngExt as _;
use rand::seq::IndexedRandom as _;

use crate::blobs::rig::{body, impatient, on_store, seed_of};
use crate::setup::SetUp;

const WRITERS: usize = 4;
const KEYS: [&str; 3] = ["a", "b", "c"];
const LENGTHS: [usize; 3] = [300_000, 1 << 20, 9 << 20];

/// What an object may be: as of the last acknowledged write, or of one after it whose answer was lost.
#[derive(Debug, Default)]
struct Expected {
    acknowledged: Option<u64>,
    unknown: Vec<u64>,
}

struct Writer {
    client: Client,
    lock: Lock,
    stop: Arc<AtomicBool>,
    seeds: Arc<AtomicU64>,
    acknowledged: Arc<AtomicUsize>,
}

impl Writer {
    async fn work(self) -> (Lock, HashMap<&'static str, Expected>) {
        let mut expected: HashMap<&str, Expected> = HashMap::new();
        while !self.stop.load(Ordering::SeqCst) {
            let (key, length) = {
                let mut rng = rand::rng();
                let key = *KEYS.choose(&mut rng).expect("a key");
                (key, *LENGTHS.choose(&mut rng).expect("a length"))
            };
            let seed = self.seeds.fetch_add(1, Ordering::SeqCst);
            let put = self.client.put(self.lock.resources[0].as_str(), key, body(seed, length));
            let entry = expected.entry(key).or_default();
            match put.under(&self.lock).unchecked().try_send().await {
                Ok(answer) if answer.status.is_success() => {
                    *entry = Expected { acknowledged: Some(seed), unknown: Vec::new() };
                    self.acknowledged.fetch_add(1, Ordering::SeqCst);
                }
                Ok(answer) => {
                    assert_eq!(answer.status, 503, "{}", answer.text());
                    entry.unknown.push(seed);
                }
                Err(_) => {
                    entry.unknown.push(seed);
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        }
        (self.lock, expected)
    }
}

/// The names of everything in the store but its mark and the notes of the S3 server, which are files,
/// too: blobs, and parts of uploads that it knows of. It forgets an upload before it has put its parts
/// together, and leaves them behind if its client is killed just then; and it leaves a temporary file if
/// it is opening one just then, and removes it when it starts again. Neither is in the store.
pub fn blobs(store: &Store) -> Vec<String> {
    let files = store.files();
    let name = |file: &Path| file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let names: HashSet<String> = files.iter().map(|file| name(file)).collect();
    let is_known = |part: &str| {
        let upload = part.strip_prefix(".upload_id-").and_then(|part| part.split_once(".part-"));
        upload.is_none_or(|(id, _)| names.contains(&format!(".upload-{id}.json")))
    };
    let is_temporary = |name: &str| name.starts_with(".tmp.") && name.ends_with(".internal.part");
    let is_note = |name: &str| name == "fencegate-store" || name.ends_with(".json");
    let counts = |name: &&String| !is_note(name) && !is_temporary(name) && is_known(name);
    names.iter().filter(counts).cloned().collect()
}

async fn acknowledged_payloads_survive_kills(setup: SetUp, kind: Kind) {
    let store = Store::start(kind).await;
    let settings = impatient(on_store(setup.settings().await, &store));
    let mut gateway = settings.start().await;
    let stop = Arc::new(AtomicBool::new(false));
    let seeds = Arc::new(AtomicU64::new(1));
    let acknowledged = Arc::new(AtomicUsize::new(0));
    let mut writers = Vec::new();
    for number in 0..WRITERS {
        let client = gateway.client();
        let lock = client.acquire(&format!("r{number}"), "24h").await;
        let (stop, seeds) = (Arc::clone(&stop), Arc::clone(&seeds));
        let acknowledged = Arc::clone(&acknowledged);
        writers.push(Writer { client, lock, stop, seeds, acknowledged }.work());
    }
    let kills = survey::size(8, 50);
    let killing = async {
        for _ in 0..kills {
            // Each of its lives has seen a write, however slow the machine.
            let before = acknowledged.load(Ordering::SeqCst);
            eventually("a write is acknowledged", async || {
                (acknowledged.load(Ordering::SeqCst) > before).then_some(())
            })
            .await;
            let pause = rand::rng().random_range(0..300);
            tokio::time::sleep(Duration::from_millis(pause)).await;
            gateway.kill9();
            gateway.restart().await;
        }
        stop.store(true, Ordering::SeqCst);
    };
    let (written, ()) = tokio::join!(join_all(writers), killing);

    gateway.set_env("FENCEGATE_UPLOAD_TIMEOUT", "1s");
    gateway.set_env("FENCEGATE_UPLOADS_KEPT", "1100ms");
    // What the store was told last may still be under way in it when the upload is given up.
    gateway.set_env("FENCEGATE_REDELETE_AFTER", "2s");
    if setup == SetUp::Clustered {
        gateway.agree().await;
    }
    gateway.kill9();
    gateway.restart().await;
    let client = gateway.client();
    let mut objects = 0;
    for (lock, expected) in &written {
        for (key, expected) in expected {
            let read = client.read(lock.resources[0].as_str(), key).send().await;
            let found = (read.status == 200).then(|| seed_of(&read.body));
            objects += usize::from(found.is_some());
            let possible = found == expected.acknowledged
                || found.is_some_and(|seed| expected.unknown.contains(&seed));
            assert!(possible, "{key} is {found:?} ({}), not {expected:?}", read.status);
        }
    }
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let left = blobs(&store);
        if left.len() == objects {
            break;
        }
        assert!(
            Instant::now() < deadline,
            "{objects} objects, but these blobs are left: {left:#?}"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    gateway.kill9();
    let (code, told, log) = gateway.run(&["scrub"]).await;
    assert_eq!(code, Some(0), "{told}{log}");
    for line in ["pointers without a blob:  0", "blobs unknown to the ledger: 0"] {
        assert!(told.contains(line), "{told}");
    }
}

#[tokio::test]
async fn acknowledged_payloads_in_a_folder_survive_kills() {
    acknowledged_payloads_survive_kills(SetUp::Embedded, Kind::Folder).await;
}

#[tokio::test]
async fn acknowledged_payloads_on_s3_survive_kills() {
    acknowledged_payloads_survive_kills(SetUp::Clustered, Kind::S3).await;
}

//! Parts of an upload that race with what ends their sender's right to send them: a newer token, rules that revoke its credential, the
//! completion. Once that is answered, no part is told `stored` that was not there.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fence_core::wire::S3Access;
use fence_tests::access::Key;
use fence_tests::conformance::pause;
use fence_tests::s3::{self, Request, text_of, texts};
use fence_tests::survey;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::credentials::{Lake, revoking};
use crate::setup::{SetUp, on_both, random_id};

on_both!(
    no_part_comes_after_a_newer_token,
    no_part_comes_after_rules_that_revoke_its_sender,
    no_part_comes_after_its_upload_was_completed,
);

/// Number of races of each kind.
fn rounds() -> u64 {
    survey::size(25, 1000)
}

/// Numbers and tags of parts.
type Parts = BTreeSet<(usize, String)>;

/// A part that was sent, and what was told of it.
struct Sent {
    began: Instant,
    number: usize,
    status: u16,
    tag: Option<String>,
}

/// An upload whose first part is there, and tasks that send others.
struct Race {
    s3: SocketAddr,
    path: String,
    upload: String,
    first: String,
    is_over: Arc<AtomicBool>,
    senders: Vec<JoinHandle<Vec<Sent>>>,
}

impl Race {
    /// Begins an upload under this key. Three tasks send parts under it from then on, each with numbers of its own.
    async fn begin(s3: SocketAddr, path: String, key: &s3::Key) -> Self {
        let begun = Request::begin(&path).sign(s3, key).send(s3).await.text();
        let upload = text_of(&begun, "UploadId").unwrap().to_owned();
        let first = Request::part(&path, &upload, 1, "first").sign(s3, key).send(s3).await;
        let first = first.header("etag").unwrap().to_owned();
        let is_over = Arc::new(AtomicBool::new(false));
        let mut race = Self { s3, path, upload, first, is_over, senders: Vec::new() };
        for sender in 0..3 {
            race.send(key, move |turn| (2 + 3 * turn + sender, format!("part {turn}")));
        }
        race
    }

    /// Lets a task send parts, one after the other until the race is over, and one more.
    fn send(&mut self, key: &s3::Key, part: impl Fn(usize) -> (usize, String) + Send + 'static) {
        let (s3, path, upload, key) =
            (self.s3, self.path.clone(), self.upload.clone(), key.clone());
        let is_over = Arc::clone(&self.is_over);
        self.senders.push(tokio::spawn(async move {
            let mut all = Vec::new();
            loop {
                let (is_last, (number, body)) = (is_over.load(Ordering::Acquire), part(all.len()));
                let request = Request::part(&path, &upload, number, body).sign(s3, &key);
                let began = Instant::now();
                let answer = request.send(s3).await;
                let tag = answer.header("etag").map(str::to_owned);
                all.push(Sent { began, number, status: answer.status, tag });
                if is_last {
                    return all;
                }
            }
        }));
    }

    /// The parts that are there; `None` if the upload is over.
    async fn parts(&self, key: &s3::Key) -> Option<Parts> {
        let list = Request::get(&self.path).query("uploadId", &self.upload);
        let answer = list.sign(self.s3, key).send(self.s3).await;
        let text = answer.text();
        if answer.status == 404 {
            return None;
        }
        assert_eq!((answer.status, text_of(&text, "IsTruncated")), (200, Some("false")), "{text}");
        let tags = texts(&text, "ETag").into_iter().map(|tag| tag.replace("&quot;", "\""));
        let numbers = texts(&text, "PartNumber").into_iter().map(|number| number.parse().unwrap());
        Some(numbers.zip(tags).collect())
    }

    /// Ends the race, which this time decided. What began later was refused, and each task was late at last. Returns the parts
    /// that were told `stored`.
    async fn ends(&mut self, decided: Instant) -> Parts {
        pause(10).await;
        self.is_over.store(true, Ordering::Release);
        let mut stored = Parts::new();
        for sender in self.senders.drain(..) {
            let all = sender.await.unwrap();
            assert!(all.last().is_some_and(|last| last.began > decided), "none was late");
            for Sent { began, number, status, tag } in all {
                assert!(status == 200 || (400..500).contains(&status), "{number}: {status}");
                assert!(
                    status != 200 || began <= decided,
                    "part {number} came late and was stored"
                );
                if status == 200 {
                    stored.insert((number, tag.unwrap()));
                }
            }
        }
        stored
    }

    /// Holds what the tasks were told against the parts that were there when it was decided, and that are there now.
    async fn loses(mut self, decided: Instant, key: &s3::Key) {
        let before = self.parts(key).await.unwrap();
        let mut stored = self.ends(decided).await;
        stored.insert((1, self.first.clone()));
        assert_eq!(stored, before, "told, and there when it was decided");
        assert_eq!(self.parts(key).await.unwrap(), before, "there afterwards");
    }
}

/// The key of a lock that nobody takes, to look with.
async fn looking(lake: &Lake, keeper: &Key) -> s3::Key {
    s3::Key::of(&lake.locked(keeper, "lake:looking").await)
}

async fn no_part_comes_after_a_newer_token(setup: SetUp) {
    let (ann, keeper) = (Key::new().await, Key::new().await);
    let lake = Lake::new(setup, &[&ann, &keeper]).await;
    let look = looking(&lake, &keeper).await;
    // A newer fence is sealed whoever had the one before.
    let fence = async |round: u64, order: u64| -> Value {
        let body = json!({ "id": random_id(), "order": order.to_string(), "owner": "ann" });
        let call = ann.by(lake.client.fence(&format!("lake:{round}"), &body));
        call.send().await.expect(201).json()
    };
    for round in 0..rounds() {
        let access: S3Access = serde_json::from_value(fence(round, 1).await["s3"].take()).unwrap();
        let race = Race::begin(lake.s3, format!("/lake/{round}/x"), &s3::Key::from(&access)).await;
        pause(round * 7 % 23).await;
        fence(round, 2).await;
        race.loses(Instant::now(), &look).await;
    }
}

async fn no_part_comes_after_rules_that_revoke_its_sender(setup: SetUp) {
    let (mut ann, keeper) = (Key::new().await, Key::new().await);
    let lake = Lake::new(setup, &[&ann, &keeper]).await;
    let look = looking(&lake, &keeper).await;
    for round in 0..rounds() {
        let key = s3::Key::of(&lake.locked(&ann, &format!("lake:{round}")).await);
        let race = Race::begin(lake.s3, format!("/lake/{round}/x"), &key).await;
        let next = Key::new().await;
        pause(round * 7 % 23).await;
        let head = if round % 2 == 0 { revoking(&ann) } else { String::new() };
        lake.apply(&head, &[&next, &keeper]).await;
        race.loses(Instant::now(), &look).await;
        ann = next;
    }
}

/// 1. The completion names the first part. Another one under its number is sent at the same time.
/// 2. Either that came first: then the completion is told so, and has no effect. Or it did not, and is not stored, ever.
async fn no_part_comes_after_its_upload_was_completed(setup: SetUp) {
    let (ann, keeper) = (Key::new().await, Key::new().await);
    let lake = Lake::new(setup, &[&ann, &keeper]).await;
    let look = looking(&lake, &keeper).await;
    let mut completed = 0;
    for round in 0..rounds() {
        // Step 1.
        let key = s3::Key::of(&lake.locked(&ann, &format!("lake:{round}")).await);
        let mut race = Race::begin(lake.s3, format!("/lake/{round}/x"), &key).await;
        let (s3, path, upload) = (race.s3, race.path.clone(), race.upload.clone());
        let complete = async |tag: &String| {
            let complete = Request::complete(&path, &upload, std::slice::from_ref(tag));
            complete.sign(s3, &key).send(s3).await.text()
        };
        let read = async || Request::get(&path).sign(s3, &look).send(s3).await.text();
        pause(round * 7 % 23).await;
        race.send(&key, |_| (1, "another".to_owned()));
        let told = complete(&race.first).await;
        let decided = Instant::now();
        // Step 2.
        if text_of(&told, "Code").is_none() {
            completed += 1;
            assert_eq!(read().await, "first", "round {round}");
            let stored = race.ends(decided).await;
            assert!(stored.iter().all(|(number, _)| *number != 1), "round {round}: {stored:?}");
            assert_eq!(read().await, "first", "round {round}");
            assert_eq!(race.parts(&look).await, None, "round {round}");
        } else {
            assert_eq!(text_of(&told, "Code"), Some("InvalidPart"), "round {round}: {told}");
            // It goes on until it is completed with what is there.
            let there = race.parts(&look).await.unwrap();
            let (_, tag) = there.iter().find(|(number, _)| *number == 1).unwrap();
            assert_ne!(*tag, race.first, "round {round}");
            // The same part that was sent once more is another one.
            loop {
                let told = complete(tag).await;
                match text_of(&told, "Code") {
                    None => break,
                    code => assert_eq!(code, Some("InvalidPart"), "round {round}: {told}"),
                }
            }
            race.ends(Instant::now()).await;
            assert_eq!(read().await, "another", "round {round}");
        }
    }
    assert!(completed > 0, "the other part was always first");
}

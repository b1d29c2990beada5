//! A gateway that stands still between any two steps of a call by S3, while another holder takes over and writes: when it
//! goes on, the old call is refused, and nobody ever sees anything of it.
#![expect(clippy::disallowed_methods, reason = "a test sleeps on the real clock")]

use std::time::Duration;

use bytes::Bytes;
use fence_core::wire::Lock;
use fence_tests::chaos::Direction;
use fence_tests::process::eventually;
use fence_tests::raw::{RawAnswer, RawConnection};
use fence_tests::s3::{Key, Request, Signed, text_of, texts};
use fence_tests::stores::Kind;
use serde_json::json;
use sqlx::{Executor as _, PgConnection};

use super::rig::{A, R, Site, speaking_s3};
use crate::blobs::rig::{Apart, body, seed_of};

const LARGE: usize = 12 << 20;
const OLD: u64 = 1;
const LATE: u64 = 2;
const NEW: u64 = 3;
/// A second object of the old holder.
const B: &str = "/lake/r/b";
/// And a third.
const C: &str = "/lake/r/c";

/// What the old holder asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    Put,
    Part,
    Complete,
    Copy,
    DeleteMany,
    Abort,
}

/// Where its gateway stands still.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Point {
    /// Nothing that it asks of the ledger has got there.
    Beginning,
    /// So many bytes of the body have come, after the upload was begun.
    Sent(usize),
    /// All of the body has come, and the store has not heard that the upload is whole.
    Finishing,
    /// All of the body has come, and what follows has not reached the ledger.
    Committing,
    /// The ledger has answered the statement with this in its text, which this one had kept waiting; nothing followed.
    After(&'static str, &'static str),
    /// The same, and what follows has not reached the ledger.
    Following(&'static str, &'static str),
}

/// The statements that calls wait in, each behind what keeps it waiting.
const UPLOAD: (&str, &str) =
    ("LOCK TABLE fencegate.uploads IN ACCESS EXCLUSIVE MODE", "WHERE u.id = $1");
const PARTS: (&str, &str) =
    ("LOCK TABLE fencegate.upload_parts IN ACCESS EXCLUSIVE MODE", "FROM fencegate.upload_parts p");
const INTENT: (&str, &str) =
    ("LOCK TABLE fencegate.blob_intents IN EXCLUSIVE MODE", ".begin_upload(");
/// The second of three deletes.
const DELETE: (&str, &str) = ("SELECT FROM fencegate.objects WHERE key = 'b' FOR UPDATE", ".write");

fn after((lock, text): (&'static str, &'static str)) -> Point {
    Point::After(lock, text)
}

fn following((lock, text): (&'static str, &'static str)) -> Point {
    Point::Following(lock, text)
}

/// Where each call may stand still.
fn points(call: Call) -> Vec<Point> {
    let bodies = [
        after(INTENT),
        Point::Sent(0),
        Point::Sent(LARGE / 2 + 1),
        Point::Sent(LARGE - 1),
        Point::Committing,
    ];
    let others = match call {
        Call::Put => bodies.to_vec(),
        Call::Part => [&[after(UPLOAD)], &bodies[..]].concat(),
        Call::Complete => vec![after(UPLOAD), after(PARTS), following(PARTS)],
        Call::Copy => vec![after(INTENT), following(INTENT)],
        Call::DeleteMany => vec![after(DELETE), following(DELETE)],
        Call::Abort => vec![after(UPLOAD), following(UPLOAD)],
    };
    [vec![Point::Beginning], others].concat()
}

/// Two gateways on one ledger and one store. What the first one says passes through proxies.
struct Ground {
    apart: Apart,
    freezing: Site,
    other: Site,
    reader: Key,
}

impl Ground {
    async fn new(kind: Kind) -> Self {
        let (apart, [freezing, other]) = Apart::new(kind).await;
        let (freezing, s3) = speaking_s3(freezing);
        let freezing = Site { gateway: freezing.start().await, s3 };
        let other = Site::of(other).await;
        let reader = other.reader().await;
        Self { apart, freezing, other, reader }
    }

    /// A transaction that has taken a lock.
    async fn lock(&self, lock: &str) -> PgConnection {
        let mut connection = self.apart.connect().await;
        let lock = format!("BEGIN; {lock}");
        connection.execute(sqlx::AssertSqlSafe(lock)).await.unwrap();
        connection
    }

    /// Waits until a statement with this in its text waits for a lock.
    async fn until_waiting(&self, text: &str) {
        let mut connection = self.apart.connect().await;
        eventually(&format!("a statement waits: {text}"), async || {
            let waiting: i64 = sqlx::query_scalar(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                 AND wait_event_type = 'Lock' AND position($1 IN query) > 0",
            )
            .bind(text)
            .fetch_one(&mut connection)
            .await
            .unwrap();
            (waiting > 0).then_some(())
        })
        .await;
    }

    /// Sends as much of a request as brings its gateway to this point, and freezes it there; returns what is still to be
    /// sent.
    async fn freeze_at(&self, point: Point, call: &Signed, wire: &mut RawConnection) -> usize {
        let head = call.head(call.body.len());
        let whole = [head.as_slice(), &call.body].concat();
        match point {
            Point::Beginning => {
                self.apart.to_postgres.block(Direction::ToTarget).await;
                let sent = sent_at_once(&head, &whole);
                wire.send(&whole[..sent]).await;
                settle().await;
                self.freezing.gateway.pause();
                whole.len() - sent
            }
            Point::After(lock, text) | Point::Following(lock, text) => {
                let held = self.lock(lock).await;
                let sent = sent_at_once(&head, &whole);
                wire.send(&whole[..sent]).await;
                self.until_waiting(text).await;
                if matches!(point, Point::Following(..)) {
                    self.apart.to_postgres.block(Direction::ToTarget).await;
                    drop(held);
                    settle().await;
                    self.freezing.gateway.pause();
                } else {
                    self.freezing.gateway.pause();
                    drop(held);
                    settle().await;
                }
                whole.len() - sent
            }
            Point::Sent(_) | Point::Finishing | Point::Committing => {
                let before = self.apart.intents().await;
                wire.send(&head).await;
                eventually("the upload is begun", async || {
                    (self.apart.intents().await > before).then_some(())
                })
                .await;
                let first = match point {
                    Point::Sent(bytes) => bytes,
                    _ => call.body.len() - 1,
                };
                wire.send(&call.body[..first]).await;
                settle().await;
                let mut left = call.body.len() - first;
                if !matches!(point, Point::Sent(_)) {
                    match (point, &self.apart.to_store) {
                        (Point::Finishing, Some(to_store)) => to_store.blackhole().await,
                        _ => self.apart.to_postgres.blackhole().await,
                    }
                    wire.send(&call.body[first..]).await;
                    settle().await;
                    left = 0;
                }
                self.freezing.gateway.pause();
                left
            }
        }
    }

    /// Everything goes on.
    async fn wake(&self) {
        self.apart.to_postgres.resume().await;
        if let Some(to_store) = &self.apart.to_store {
            to_store.resume().await;
        }
        self.freezing.gateway.resume();
    }

    /// Freezes the gateway of an old holder in a call, lets another holder take over and write, and wakes it.
    async fn run(&self, call: Call, point: Point) -> RawAnswer {
        let what = format!("{call:?}, {point:?}");
        let (here, there) = (&self.freezing, &self.other);
        let (_old, key) = here.lock(R, "1s").await;
        here.ask(&key, Request::put(A, body(OLD, 1 << 20))).await;
        here.ask(&key, Request::put(B, body(OLD, 1000))).await;
        here.ask(&key, Request::put(C, body(OLD, 1000))).await;
        let upload = here.begin(&key, A).await;
        let tags = here.send_parts(&key, A, &upload, &[body(LATE, 300_000)]).await;
        let request = match call {
            Call::Put => Request::put(A, body(LATE, LARGE)),
            Call::Part => Request::part(A, &upload, 1, body(LATE, LARGE)),
            Call::Complete => Request::complete(A, &upload, &tags),
            Call::Copy => Request::copy(B, A),
            Call::DeleteMany => Request::delete_many("lake", &["r/a", "r/b", "r/c"]),
            Call::Abort => Request::abort(A, &upload),
        };
        let signed = request.sign(here.s3, &key);
        let mut wire = RawConnection::open(here.s3).await;
        let left = self.freeze_at(point, &signed, &mut wire).await;

        let wanted = json!({ "resource": R, "ttl": "10m", "wait": "20s", "owner": "next" });
        let next: Lock = there.client().lock(&wanted).send().await.expect(201).parse();
        let key = Key::of(&next);
        there.ask(&key, Request::put(A, body(NEW, 300_000))).await;
        there.ask(&key, Request::put(B, body(NEW, 900))).await;
        there.ask(&key, Request::put(C, body(NEW, 900))).await;
        // It goes on with what its predecessor has begun, and means its own part.
        let parts: [Bytes; 1] = [body(NEW, 400_000)];
        let tags = there.send_parts(&key, A, &upload, &parts).await;
        let picture = there.picture(&self.reader).await;

        self.wake().await;
        let whole = [signed.head(signed.body.len()).as_slice(), &signed.body].concat();
        wire.send(&whole[whole.len() - left..]).await;
        let answer = wire.answer().await.unwrap_or_else(|| panic!("{what}: no answer"));
        assert_eq!(there.picture(&self.reader).await, picture, "{what}: {}", answer.text());
        let seen = here.bytes(&self.reader, A).await.unwrap();
        assert_eq!((seed_of(&seen), seen.len()), (NEW, 300_000), "{what}");
        there.ask(&key, Request::complete(A, &upload, &tags)).await;
        let seen = there.bytes(&self.reader, A).await.unwrap();
        assert_eq!((seed_of(&seen), seen.len()), (NEW, 400_000), "{what}");
        there.client().release(&next).send().await.expect(204);
        answer
    }

    async fn refuses(&self, call: Call, point: Point) {
        let answer = self.run(call, point).await;
        let text = answer.text();
        let code = text_of(&text, "Code").unwrap_or_default();
        let stale = "FenceTokenStale";
        let is_told = match call {
            // Each of many is refused for itself. The first was deleted before; so was the second, unless its statement
            // was given up before the pause, since it waited for long, and is refused when it is sent again.
            Call::DeleteMany if point != Point::Beginning => {
                let deleted: Vec<&str> = texts(&text, "Deleted")
                    .into_iter()
                    .filter_map(|it| text_of(it, "Key"))
                    .collect();
                let refused = texts(&text, "Code");
                (deleted == ["r/a", "r/b"] && refused == [stale])
                    || (deleted == ["r/a"] && refused == [stale; 2])
            }
            Call::DeleteMany => texts(&text, "Code") == [stale; 3],
            _ => (answer.status, code) == (403, stale),
        };
        // A ledger that did not answer for so long, before anything was begun, is given up.
        let is_given_up = point == Point::Beginning && answer.status == 503;
        assert!(is_told || is_given_up, "{call:?}, {point:?}: {} {text}", answer.status);
    }
}

/// How much of a request is sent before anything of it is waited for: of a large body next to nothing, since it is not read
/// before the upload is begun.
fn sent_at_once(head: &[u8], whole: &[u8]) -> usize {
    if whole.len() < 10_000 { whole.len() } else { head.len() + 1 }
}

/// Gives what was sent the time to get where it can get.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(500)).await;
}

async fn late_calls_are_refused(kind: Kind, calls: &[(Call, Vec<Point>)]) {
    let ground = Ground::new(kind).await;
    for (call, points) in calls {
        for point in points {
            ground.refuses(*call, *point).await;
        }
    }
}

#[tokio::test]
async fn late_puts_and_parts_are_refused() {
    let calls = [Call::Put, Call::Part].map(|call| (call, points(call)));
    late_calls_are_refused(Kind::Folder, &calls).await;
}

#[tokio::test]
async fn late_completions_and_aborts_are_refused() {
    let calls = [Call::Complete, Call::Abort].map(|call| (call, points(call)));
    late_calls_are_refused(Kind::Folder, &calls).await;
}

#[tokio::test]
async fn late_copies_and_deletes_are_refused() {
    let calls = [Call::Copy, Call::DeleteMany].map(|call| (call, points(call)));
    late_calls_are_refused(Kind::Folder, &calls).await;
}

/// Those calls that have steps in the store.
async fn late_calls_to_a_store_are_refused(kind: Kind) {
    let points = || vec![Point::Sent(LARGE / 2 + 1), Point::Finishing, Point::Committing];
    let calls = [
        (Call::Put, points()),
        (Call::Part, points()),
        (Call::Complete, vec![following(PARTS)]),
        (Call::Copy, vec![following(INTENT)]),
    ];
    late_calls_are_refused(kind, &calls).await;
}

#[tokio::test]
async fn late_calls_to_s3_are_refused() {
    late_calls_to_a_store_are_refused(Kind::S3).await;
}

#[tokio::test]
async fn late_calls_to_azure_are_refused() {
    late_calls_to_a_store_are_refused(Kind::Azure).await;
}

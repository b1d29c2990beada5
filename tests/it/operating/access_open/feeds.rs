//! The feed of what is written, and the events of a lock: long polls and streams.

use fence_core::wire::Lock;
use fence_tests::access::{Key, Rules, principal, role};
use fence_tests::client::{Call, Client};
use fence_tests::events::Events;
use fence_tests::feed::Feed;
use serde_json::json;

use super::{Site, begin};
use crate::setup::{SetUp, on_both};

const WORKS: &str = "allow = [\"lock\", \"write\"]\nresources = [\"a:*\", \"secret:*\"]";
const ALL: &str = "allow = [\"read\"]\nresources = [\"a:*\", \"secret:*\"]";
const LESS: &str = "allow = [\"read\"]\nresources = [\"a:*\"]";
const OWN: &str = "allow = [\"lock\", \"read\"]\nresources = [\"a:*\"]";

on_both!(
    a_poll_that_waits_shows_nothing_of_what_was_taken_away_meanwhile,
    a_stream_sends_nothing_of_what_was_taken_away_meanwhile,
    streams_end_when_the_key_does,
    streams_end_when_the_key_is_revoked,
);

/// `wil` writes to both, and `ann` reads.
struct Readers {
    site: Site,
    ann: Key,
    wil: Key,
    open: Lock,
    secret: Lock,
}

fn text(rules: &Rules, reads: &str, ann: &Key, wil: &Key) -> String {
    let readers = role("reader", reads) + &principal("ann", "reader", &[ann]);
    rules.text(WORKS, &[("wil", wil)]) + &readers
}

impl Readers {
    async fn new(setup: SetUp) -> Self {
        let [ann, wil] = [Key::new().await, Key::new().await];
        let site = Site::new(setup, |rules| text(rules, ALL, &ann, &wil)).await;
        let take = async |resource: &str, owner: &str| {
            let body = json!({ "resource": resource, "ttl": "1h", "owner": owner });
            wil.by(site.client().lock(&body)).send().await.expect(201).parse()
        };
        let (open, secret) = (take("a:x", "frank").await, take("secret:x", "sly").await);
        Self { site, ann, wil, open, secret }
    }

    fn events(&self) -> Call {
        self.ann.by(self.site.client().get("/events"))
    }

    /// Takes the secret ones from `ann`, through the gateway that `ann` does not ask.
    async fn take_away(&self) {
        self.site.put_in_force(&text(&self.site.rules, LESS, &self.ann, &self.wil)).await;
    }

    /// Writes to both through the first gateway: first what is secret.
    async fn write(&self) {
        let client = self.site.gateways[0].client();
        let secret = client.put("secret:x", "hush", "x").under(&self.secret);
        self.wil.by(secret).send().await.expect(201);
        let open = client.put("a:x", "plain", "x").under(&self.open);
        self.wil.by(open).send().await.expect(201);
    }
}

#[track_caller]
fn assert_tells_nothing(told: &str) {
    for word in ["secret", "hush", "sly"] {
        assert!(!told.contains(word), "{told}");
    }
}

async fn a_poll_that_waits_shows_nothing_of_what_was_taken_away_meanwhile(setup: SetUp) {
    let readers = Readers::new(setup).await;
    let polling = begin(readers.events().query("after", "now").query("wait", "30s"));
    // Behind it, so that it has most likely begun; if not, it says the same.
    readers.events().send().await.expect(200);
    readers.take_away().await;
    readers.write().await;
    let mut answer = polling.await.unwrap().expect(200);
    // The secret write alone may have ended it, with nothing to show.
    let seen = loop {
        assert_tells_nothing(&answer.text());
        let told = answer.json();
        let items = told["items"].as_array().unwrap();
        if let [first, ..] = items.as_slice() {
            break first["resource"].clone();
        }
        let next = told["next_cursor"].as_str().unwrap();
        answer =
            readers.events().query("after", next).query("wait", "30s").send().await.expect(200);
    };
    assert_eq!(seen, "a:x");
}

/// A gateway that stood still while the rules changed has let the poll in by the older ones.
#[tokio::test]
async fn a_poll_at_a_gateway_that_stood_still_shows_nothing_of_what_was_taken_away() {
    let readers = Readers::new(SetUp::Clustered).await;
    readers.events().send().await.expect(200);
    let stream = Feed::open(readers.events().query("after", "now")).await;
    readers.site.last().pause();
    let polling = begin(readers.events());
    readers.take_away().await;
    readers.write().await;
    readers.site.last().resume();
    let answer = polling.await.unwrap().expect(200);
    assert_tells_nothing(&answer.text());
    let items = answer.json()["items"].as_array().unwrap().len();
    assert_eq!(items, 1, "{}", answer.text());
    assert_shows_open_alone(&readers, stream).await;
}

async fn a_stream_sends_nothing_of_what_was_taken_away_meanwhile(setup: SetUp) {
    let readers = Readers::new(setup).await;
    let mut stream = Feed::open(readers.events().query("after", "now")).await;
    readers.write().await;
    let before = [stream.next().await.unwrap(), stream.next().await.unwrap()];
    assert_eq!(before.map(|event| event.resource), ["secret:x", "a:x"], "the stream is open");
    readers.take_away().await;
    let client = readers.site.gateways[0].client();
    for (resource, key, lock) in
        [("secret:x", "hush", &readers.secret), ("a:x", "plain", &readers.open)]
    {
        readers.wil.by(client.put(resource, key, "y").under(lock)).send().await.expect(200);
    }
    assert_shows_open_alone(&readers, stream).await;
}

/// Reads a stream to its end, and goes on where it was until the open write has come, which was the last.
async fn assert_shows_open_alone(readers: &Readers, mut stream: Feed) {
    loop {
        while let Some(event) = stream.next().await {
            assert_tells_nothing(&format!("{event:?}"));
            if event.resource == "a:x" {
                return;
            }
        }
        stream = Feed::open(readers.events().query("after", &stream.at)).await;
    }
}

/// `ann` has a lock under a key that stays good, and streams by another one.
struct Streams {
    site: Site,
    stays: Key,
    ends: Key,
    lock: Lock,
}

impl Streams {
    async fn new(setup: SetUp) -> Self {
        let [stays, ends] = [Key::new().await, Key::new().await];
        let site = Site::new(setup, |rules| own(rules, &[&stays, &ends])).await;
        let lock = site.locked(&stays, "a:1").await;
        Self { site, stays, ends, lock }
    }

    /// The feed and the events of the lock, by the key that ends; none if it has ended already.
    async fn open(&self) -> Option<(Feed, Events)> {
        let client = self.site.client();
        let known = self.ends.by(client.get("/events")).send().await;
        if known.status != 200 {
            return None;
        }
        let feed = Feed::open(self.ends.by(client.get("/events").query("after", "now"))).await;
        let path = format!("/locks/{}/events", self.lock.id);
        let events = Events::opened(self.ends.by(client.get(path.clone())), &path).await;
        Some((feed, events))
    }

    /// Both end, and neither is given again; by the other key all goes on.
    async fn assert_end(&self, (mut feed, mut events): (Feed, Events), code: &str) {
        assert!(feed.next().await.is_none(), "nothing was written");
        assert!(events.next().await.is_none(), "nothing happened to the lock");
        let client = self.site.client();
        for call in self.calls(&client) {
            self.ends.by(call).send().await.refused(401, code);
        }
        self.stays.by(client.renew(&self.lock, None)).send().await.expect(200);
    }

    fn calls(&self, client: &Client) -> [Call; 4] {
        let events = format!("/locks/{}/events", self.lock.id);
        let stream = || client.get("/events").header("accept", "text/event-stream");
        [client.get("/events"), stream(), client.get(events), client.lock_of(&self.lock)]
    }
}

fn own(rules: &Rules, keys: &[&Key]) -> String {
    rules.admin() + &role("own", OWN) + &principal("ann", "own", keys)
}

async fn streams_end_when_the_key_does(setup: SetUp) {
    let mut streams = Streams::new(setup).await;
    let whole = streams.ends.line.clone();
    let mut seconds = 3;
    // A machine that is so slow that the key has ended before the streams are open gets a longer one.
    let opened = loop {
        let ends = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(seconds);
        let ends = jiff::Timestamp::from_second(ends.as_second()).unwrap();
        let (before, _) = whole.split_once("expires = ").unwrap();
        streams.ends.line = format!("{before}expires = {ends} }}");
        let keys = [&streams.stays, &streams.ends];
        streams.site.put_in_force(&own(&streams.site.rules, &keys)).await;
        if let Some(opened) = streams.open().await {
            break opened;
        }
        seconds *= 2;
    };
    streams.assert_end(opened, "credential-expired").await;
}

async fn streams_end_when_the_key_is_revoked(setup: SetUp) {
    let streams = Streams::new(setup).await;
    let opened = streams.open().await.unwrap();
    let id = streams.ends.line.split('"').nth(1).unwrap();
    let text = own(&streams.site.rules, &[&streams.stays, &streams.ends]);
    streams.site.put_in_force(&format!("revoked = [\"key:{id}\"]\n{text}")).await;
    streams.assert_end(opened, "unauthenticated").await;
}

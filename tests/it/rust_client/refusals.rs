//! Bad input: what the gateway would refuse is refused before anything is sent, and in its words.

use std::time::Duration;

use fence_tests::process::eventually;
use fencegate_client::wire::ErrorCode;
use fencegate_client::{Client, Error, Handoff, Lock, On, Successor};
use reqwest::Method;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::proxy::Proxy;
use super::{Dev, client};

/// Names that are none, of resources.
fn bad_names() -> Vec<String> {
    let bad = ["", ".", "..", "a/b", "a b", "é", "a%20", "a\n", "a?b", "a\u{0}", "a*"];
    bad.map(str::to_owned).into_iter().chain(["x".repeat(257)]).collect()
}

/// Keys that are none, of objects.
fn bad_keys() -> Vec<String> {
    let bad = [
        "",
        "/",
        "/a",
        "a/",
        "a//b",
        ".",
        "..",
        "a/./b",
        "a/../b",
        "a\nb",
        "a\u{0}",
        "e\u{301}",
        "a\u{200b}",
        "a\u{2028}",
        "a\u{e000}\u{fdd0}",
    ];
    bad.map(str::to_owned).into_iter().chain(["x".repeat(1025)]).collect()
}

#[track_caller]
fn misuse<T>(what: &str, result: Result<T, Error>) -> String {
    match result {
        Err(Error::Misuse(details)) => {
            assert_eq!((details.code.as_deref(), details.attempts), (None, 0), "{what}");
            details.detail
        }
        Err(other) => panic!("{what:?} is refused as {other:?}"),
        Ok(_) => panic!("{what:?} is taken"),
    }
}

/// A client of nobody, and what is cancelled by the first connection to it.
async fn of_nobody() -> (Client, CancellationToken) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let connected = CancellationToken::new();
    let token = connected.clone();
    tokio::spawn(async move {
        let _connection = listener.accept().await;
        token.cancel();
    });
    (client(&url), connected)
}

/// That nothing was sent until now: the connection that is made now is the first.
async fn assert_silent(client: &Client, connected: &CancellationToken) {
    assert!(!connected.is_cancelled(), "something was sent");
    let asking = tokio::spawn(client.lock("good").acquire());
    eventually("a good one is sent", async || connected.is_cancelled().then_some(())).await;
    asking.abort();
}

#[tokio::test]
async fn names_that_are_none_are_refused_before_anything_is_sent() {
    let (client, connected) = of_nobody().await;
    for name in &bad_names() {
        let name = name.as_str();
        let told = misuse(name, client.lock(name).acquire().await);
        assert!(told.contains(ErrorCode::ResourceNameInvalid.title()), "{told}");
        misuse(name, client.lock(["good", name]).try_acquire().await);
        misuse(name, client.fence(name).set().await);
        misuse(name, client.elect(name).run(async |_| Ok::<_, Error>(())).await);
        misuse(name, client.observe(name).next().await.unwrap());
        misuse(name, client.get(name, "k").await);
        misuse(name, client.head(name, "k").await);
        misuse(name, client.open(name, "k").await);
        misuse(name, client.list(name).all().await);
        misuse(name, client.versions(name).all().await);
        misuse(name, client.resource(name).await);
        misuse(name, client.operation_by_key(name, "key").await);
        misuse(name, client.break_lock(name, "why").await);
        misuse(name, client.freeze(name, "why").await);
        misuse(name, client.protect(name, "why").await);
        misuse(name, client.audit().resource(name).all().await);
        misuse(name, client.rejections().resource(name).all().await);
        misuse(name, client.intents().resource(name).all().await);
        misuse(name, client.lent(name, "7", "0190f3a0-0000-7000-8000-000000000001"));
    }
    for key in &bad_keys() {
        let told = misuse(key, client.get("r", key).await);
        assert!(told.contains(ErrorCode::ObjectKeyInvalid.title()), "{told}");
        misuse(key, client.head("r", key).await);
        misuse(key, client.open("r", key).await);
        misuse(key, client.download("r", key, "/nowhere/at/all").await);
    }
    assert_silent(&client, &connected).await;
}

#[tokio::test]
async fn locks_that_make_no_sense_are_refused_before_anything_is_sent() {
    let (client, connected) = of_nobody().await;
    let ms = Duration::from_millis;
    let day = Duration::from_secs(86_400);
    let lock = || client.lock("r");
    let many: Vec<_> = (0..33).map(|n| format!("r{n}")).collect();
    let none: [&str; 0] = [];
    for (what, wish) in [
        ("a ttl of nothing", lock().ttl(ms(0))),
        ("a ttl that is too short", lock().ttl(ms(999))),
        ("a ttl that is too long", lock().ttl(day + ms(1))),
        ("half a millisecond", lock().ttl(Duration::from_micros(1_500_500))),
        ("too short a time to hold", lock().max_hold(ms(999))),
        ("too long a time to hold", lock().max_hold(30 * day + ms(1))),
        ("no patience with the work", lock().stall_after(ms(0))),
        ("an owner of two lines", lock().owner("a\nb")),
        ("an owner that is too long", lock().owner("x".repeat(257))),
        ("metadata without a name", lock().metadata("", "x")),
        ("metadata that is too long", lock().metadata("a", "x".repeat(5_000))),
        ("a writer without a name", lock().writer("")),
        ("a writer with a space", lock().writer("worker b")),
        ("a pattern of writers", lock().writer("worker-*")),
        ("a role without a name", lock().writer("role:")),
        ("too many writers", (0..17).fold(lock(), |lock, n| lock.writer(format!("w{n}")))),
        ("no resource", client.lock(none)),
        ("too many resources", client.lock(many)),
        ("a resource twice", client.lock(["a", "b", "a"])),
    ] {
        misuse(what, wish.acquire().await);
    }
    misuse("an order of 0", client.fence("r").order(0).set().await);
    misuse("an order below it", client.fence("r").order(-1).set().await);
    misuse("an owner", client.fence("r").owner("a\tb").set().await);
    misuse("no shards", client.shards("job", 0));
    misuse("too many shards", client.shards("job", 10_001));
    misuse("shards of nothing", client.shards("a b", 2));
    misuse("a name that is too long with its number", client.shards(&"x".repeat(255), 2));
    for token in ["", "0", "007", "+7", "1.5", "9999999999999999999", "x"] {
        misuse(token, client.lent("r", token, "0190f3a0-0000-7000-8000-000000000001"));
    }
    for id in ["", "x", "0190f3a0"] {
        misuse(id, client.lent("r", "7", id));
    }
    for text in ["", "fence1:", "fence1:!", "fence2:e30", "fence1:e30", "e30"] {
        misuse(text, Handoff::from_text(text));
    }
    assert_silent(&client, &connected).await;
}

#[tokio::test]
async fn what_operators_and_readers_say_is_checked_before_anything_is_sent() {
    let (client, connected) = of_nobody().await;
    let long = "x".repeat(1_025);
    for reason in ["", "two\nlines", &long] {
        misuse(reason, client.break_lock("r", reason).await);
        misuse(reason, client.freeze("r", reason).await);
        misuse(reason, client.unfreeze("r", reason).await);
        misuse(reason, client.protect("r", reason).await);
        misuse(reason, client.unprotect("r", reason).await);
        misuse(reason, client.resolve_doubts("u", reason).await);
    }
    let late = client.break_lock("r", "why").after(Duration::from_secs(86_401));
    misuse("a break that comes too late", late.await);
    let fine = client.break_lock("r", "why").after(Duration::from_nanos(1));
    misuse("a break that comes in a nanosecond", fine.await);
    misuse("a version of 0", client.get("r", "k").version(0).await);
    misuse("a version below it", client.head("r", "k").version(-1).await);
    misuse("a tag of two lines", client.get("r", "k").if_changed("a\nb").await);
    misuse("a prefix that is too long", client.list("r").prefix(&long).all().await);
    misuse("a prefix of two lines", client.resources().prefix("a\nb").all().await);
    for key in ["", "a b", "é", &"x".repeat(256)] {
        misuse(key, client.operation_by_key("r", key).await);
        misuse(key, client.already_done("r", key).await);
    }
    assert_silent(&client, &connected).await;
}

#[test]
fn clients_that_make_no_sense_are_not_built() {
    for url in [
        "",
        "localhost",
        "ftp://a",
        "http://",
        "http://a?b",
        "http://a#b",
        "http://a:b@c",
        "http://a,,http://b",
    ] {
        misuse(url, Client::builder(url).build());
    }
    let builder = || Client::builder("http://127.0.0.1:1");
    let long = Duration::from_secs(86_401);
    for (what, builder) in [
        ("a ttl that is too short", builder().ttl(Duration::from_millis(999))),
        ("a ttl that is too long", builder().ttl(long)),
        ("a ttl of half a millisecond", builder().ttl(Duration::from_micros(1_500_500))),
        ("an owner that is too long", builder().owner("x".repeat(257))),
        ("an owner of two lines", builder().owner("a\nb")),
        ("a header of our own", builder().header("X-Fence-Token", "7")),
        ("a header that is none", builder().header("a b", "x")),
        ("a header of two lines", builder().header("a", "x\ny")),
        ("no time to connect", builder().connect_timeout(Duration::ZERO)),
        ("no time to answer", builder().answer_timeout(Duration::ZERO)),
        ("no time for a call", builder().call_timeout(Duration::ZERO)),
        ("no time for a write", builder().write_timeout(Duration::ZERO)),
        ("too much time", builder().idle_timeout(long)),
    ] {
        misuse(what, builder.build());
    }
    misuse("certificates that are none", builder().root_certificates(b"x"));
    misuse("a key that is none", builder().certificate(b"x"));
}

/// All writes of a guard on a name of an object.
async fn write_all(on: On<'_>, lock: &Lock, key: &str) {
    misuse(key, on.put(key, "x").await);
    misuse(key, on.delete(key).await);
    misuse(key, on.update(key, |_| "x").await);
    misuse(key, lock.commit().put("r", key, "x").await);
    misuse(key, lock.commit().delete("r", key).await);
}

#[tokio::test]
async fn writes_that_make_no_sense_are_refused_before_anything_is_sent() {
    let gateway = Dev::start().await;
    let proxy = Proxy::start(gateway.address()).await;
    let client = client(&proxy.url());
    let lock = client.lock(["r", "s"]).unwatched().acquire().await.unwrap();
    let sent = proxy.count("", "");
    let on = lock.on("r");
    for key in &bad_keys() {
        write_all(on, &lock, key).await;
    }
    misuse("no resource named", lock.put("k", "x").await);
    misuse("a resource that is not covered", lock.on("t").put("k", "x").await);
    misuse("the same in a commit", lock.commit().put("t", "k", "x").await);
    misuse("the same as a version", lock.commit().delete("r", "k").expect_version("t", 1).await);
    for name in &bad_names() {
        misuse(name, lock.on(name).put("k", "x").await);
        misuse(name, lock.commit().put(name, "k", "x").await);
    }
    for tag in ["", "g0-v1", "\"", "\"\n\"", "W/", "\"é\""] {
        misuse(tag, on.put("k", "x").if_match(tag).await);
        misuse(tag, on.delete("k").if_match(tag).await);
    }
    misuse("a version below 0", on.put("k", "x").if_resource_version(-1).await);
    for key in ["", "a b", "é", &"x".repeat(256)] {
        misuse(key, on.put("k", "x").idempotency_key(key).await);
        misuse(key, lock.commit().delete("r", "k").idempotency_key(key).await);
        misuse(key, lock.once(key, async || Ok::<_, Error>(())).await);
    }
    for content_type in ["", "é", "a\nb", &"x".repeat(256)] {
        misuse(content_type, on.put("k", "x").content_type(content_type).await);
        misuse(content_type, lock.commit().put("r", "k", "x").content_type(content_type).await);
    }
    misuse("a tag for all objects", on.delete_all().if_match("*").await);
    misuse("an owner of two lines", lock.transfer("a\nb").await);
    misuse("an owner that is too long", lock.transfer(&"x".repeat(257)).await);
    for name in ["", "a b", "role:loader", &"x".repeat(129)] {
        let to = || Successor::named("second").principal(name);
        misuse(name, lock.transfer(to()).await);
        misuse(name, client.transfer_lock(lock.id(), to()).await);
    }
    misuse("a ttl that is too short", lock.renew_for(Duration::from_millis(999)).await);
    misuse("a ttl of half a millisecond", lock.renew_for(Duration::from_micros(1_000_500)).await);
    commits(&lock).await;
    upstreams(&lock).await;
    assert_eq!(proxy.count("", ""), sent, "something was sent");
    on.put("k", "x").await.unwrap();
}

async fn commits(lock: &Lock) {
    misuse("nothing to do", lock.commit().await);
    misuse("only a version", lock.commit().expect_version("r", 1).await);
    misuse("a version below 0", lock.commit().delete("r", "k").expect_version("r", -1).await);
    misuse("an object twice", lock.commit().put("r", "k", "x").delete("r", "k").await);
    misuse("a condition before all", lock.commit().if_absent().put("r", "k", "x").await);
    misuse("a delete of what is not there", lock.commit().delete("r", "k").if_absent().await);
    misuse("the type of nothing", lock.commit().delete("r", "k").content_type("text/plain").await);
    misuse("a tag that is none", lock.commit().put("r", "k", "x").if_match("g0-v1").await);
    let many = (0..1_001).fold(lock.commit(), |all, n| all.put("r", &format!("k{n}"), "x"));
    misuse("too many operations", many.await);
    let once = fencegate_client::Body::once(None, Box::pin(futures::stream::empty()));
    misuse("a stream that can be read once", lock.commit().put("r", "k", once).await);
}

async fn upstreams(lock: &Lock) {
    let to = |name: &str, method, path: &str| lock.upstream(name, method, path).into_future();
    misuse("a read", to("u", Method::GET, "/").await);
    misuse("another", to("u", Method::HEAD, "/").await);
    misuse("no upstream", to("", Method::POST, "/").await);
    misuse("a name that is none", to("a/b", Method::POST, "/").await);
    misuse("a path that is not encoded", to("u", Method::POST, "/a b").await);
    misuse("a path with a fragment", to("u", Method::POST, "/a#b").await);
    for (name, value) in [("X-Fence-Token", "7"), ("x-lock-id", "7"), ("a b", "x"), ("a", "x\ny")] {
        misuse(name, lock.upstream("u", Method::POST, "/").header(name, value).await);
    }
}

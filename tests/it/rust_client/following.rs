//! The feed of writes across restarts and behind proxies, and who leads.

use std::collections::HashSet;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fence_tests::gateway::Gateway;
use fence_tests::nginx::Nginx;
use fence_tests::process::eventually;
use fencegate_client::{Client, Error, EventStream, Lock, LossReason, Wait};

use super::proxy::{Act, Proxy};
use super::{Dev, client, soon, take_over, until_in_line};

/// Writes so many objects, one after the other.
async fn write(lock: &Lock, count: usize) {
    for _ in 0..count {
        lock.put("k", "x").await.unwrap();
    }
}

/// The versions of the next writes, as many as that.
async fn versions(events: &mut EventStream, count: usize) -> Vec<i64> {
    let mut found = Vec::new();
    while found.len() < count {
        let event = soon(events.next()).await.expect("it goes on").unwrap();
        found.push(event.write().expect("nothing is void").version);
    }
    found
}

#[tokio::test]
async fn each_write_is_told_once_across_restarts_of_the_gateway() {
    let mut gateway = Gateway::embedded().start().await;
    let client = client(&gateway.url());
    let lock = client.lock("r").ttl(Duration::from_secs(600)).acquire().await.unwrap();
    let mut events = client.events().stream();
    write(&lock, 5).await;
    assert_eq!(versions(&mut events, 3).await, [1, 2, 3]);
    for round in 0..2 {
        gateway.kill9();
        // The stream breaks while somebody listens, and again while nobody does.
        if round == 0 {
            assert_eq!(versions(&mut events, 2).await, [4, 5], "these had come already");
        }
        gateway.restart().await;
        write(&lock, 5).await;
    }
    assert_eq!(versions(&mut events, 10).await, (6..=15).collect::<Vec<_>>());
    // Another one goes on behind the cursor that was kept.
    let cursor = events.cursor();
    write(&lock, 2).await;
    let mut later = client.events().after(cursor).stream();
    assert_eq!(versions(&mut later, 2).await, [16, 17]);
}

#[tokio::test]
async fn each_write_is_told_once_over_connections_that_are_cut() {
    let gateway = Dev::start().await;
    let proxy = Proxy::start(gateway.address()).await;
    let client = client(&proxy.url());
    let lock = client.lock("r").acquire().await.unwrap();
    write(&lock, 20).await;
    proxy.rule("GET", "/events", 1, Act::LoseRequest);
    let mut events = client.events().stream();
    assert_eq!(versions(&mut events, 10).await, (1..=10).collect::<Vec<_>>());
    write(&lock, 5).await;
    assert_eq!(versions(&mut events, 15).await, (11..=25).collect::<Vec<_>>());
    // What is told from now on begins with now.
    let mut fresh = client.events().from_now().stream();
    let told = tokio::spawn(async move { versions(&mut fresh, 1).await });
    let asked = async || (proxy.count("GET", "after=now") > 0).then_some(());
    eventually("it is asked", asked).await;
    let mut at = 25;
    while !told.is_finished() {
        write(&lock, 1).await;
        at += 1;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let first = told.await.unwrap()[0];
    assert!((26..=at).contains(&first), "{first}");
}

#[tokio::test]
async fn a_feed_that_a_proxy_holds_back_is_asked_call_by_call() {
    // As nginx does by itself, if it is not told otherwise.
    const LOCATION: &str = "location / {
        proxy_pass http://fencegate;
        proxy_set_header Host $http_host;
        proxy_buffering on;
        proxy_ignore_headers X-Accel-Buffering;
        proxy_buffer_size 64k;
        proxy_buffers 4 64k;
        gzip on;
        gzip_proxied any;
        gzip_types text/event-stream;
    }";
    let gateway = Gateway::embedded().start().await;
    let nginx = Nginx::start(LOCATION, gateway.address()).await;
    let lock = client(&gateway.url()).lock("r").acquire().await.unwrap();
    let behind = client(&nginx.url());
    let mut events = behind.events().stream();
    write(&lock, 3).await;
    assert_eq!(versions(&mut events, 3).await, [1, 2, 3]);
    write(&lock, 2).await;
    assert_eq!(versions(&mut events, 2).await, [4, 5]);
    let asked = async || nginx.logs().0.contains("wait=25000ms").then_some(());
    eventually("it was asked call by call", asked).await;
}

/// How many lead at the moment, and who has.
#[derive(Default)]
struct Leading {
    now: AtomicI64,
    most: AtomicI64,
    turns: AtomicUsize,
    who: Mutex<Vec<String>>,
}

impl Leading {
    fn begin(self: &Arc<Self>, lock: &Lock) -> Turn {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        self.turns.fetch_add(1, Ordering::SeqCst);
        self.who.lock().unwrap().push(lock.owner().to_owned());
        Turn(self.clone())
    }

    async fn until(&self, turns: usize) -> String {
        let led = async || (self.turns.load(Ordering::SeqCst) >= turns).then_some(());
        eventually(&format!("{turns} turns"), led).await;
        self.who.lock().unwrap()[turns - 1].clone()
    }
}

struct Turn(Arc<Leading>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A candidate, in a task of its own, that leads until it is told otherwise.
fn stand(client: &Client, name: &str, leading: &Arc<Leading>) -> tokio::task::JoinHandle<()> {
    let election = client.elect("leader").owner(name).ttl(Duration::from_secs(3));
    let leading = leading.clone();
    tokio::spawn(async move {
        let lead = move |lock: Arc<Lock>| {
            let leading = leading.clone();
            async move {
                let _turn = leading.begin(&lock);
                lock.put("who", lock.owner().to_owned()).await?;
                lock.cancellation().cancelled().await;
                Err::<(), _>(Error::LockLost(lock.lost().await))
            }
        };
        election.run(lead).await.unwrap();
    })
}

#[tokio::test]
async fn of_three_candidates_one_leads_at_a_time() {
    let gateway = Dev::start().await;
    let leading = Arc::new(Leading::default());
    let names = ["a", "b", "c"];
    let clients: Vec<_> = names.iter().map(|_| client(gateway.url())).collect();
    let mut tasks: Vec<_> = names
        .iter()
        .zip(&clients)
        .map(|(name, client)| Some(stand(client, name, &leading)))
        .collect();
    let first = leading.until(1).await;
    // The leader's task dies: it gives back what it has, and another one leads.
    let died = names.iter().position(|name| *name == first).unwrap();
    tasks[died].take().unwrap().abort();
    let second = leading.until(2).await;
    assert_ne!(first, second);
    assert_eq!(leading.most.load(Ordering::SeqCst), 1, "never two at once");
    // An operator takes the leadership away: the next of the line leads at once, what the old leader writes
    // bounces until it hears of that, and then it stands again.
    gateway.client().break_lock("leader", "a test").await.unwrap();
    let third = leading.until(3).await;
    assert_ne!(second, third);
    until_in_line(&gateway.http(), "leader", 1).await;
    gateway.client().break_lock("leader", "a test").await.unwrap();
    assert_eq!(leading.until(4).await, second);
    for task in tasks.into_iter().flatten() {
        task.abort();
    }
}

#[tokio::test]
async fn a_leader_that_returns_resigns_and_one_that_fails_says_so() {
    let gateway = Dev::start().await;
    let client = gateway.client();
    let led = client.elect("leader").run(|lock| async move {
        lock.put("who", "I am").await?;
        Ok::<_, Error>(7)
    });
    assert_eq!(soon(led).await.unwrap(), 7);
    let failed = client
        .elect("leader")
        .run(|lock| async move { lock.put("who", "x").if_absent().await.map(|_| ()) });
    assert!(matches!(soon(failed).await, Err(Error::Changed(_))));
    // Both gave it back.
    assert!(client.lock("leader").try_acquire().await.unwrap().is_some());
    let http = gateway.http();
    let lost = client.elect("other").ttl(Duration::from_secs(3)).once().run(move |_lock| {
        let http = http.clone();
        async move {
            take_over(&http, "other").await;
            std::future::pending::<Result<(), Error>>().await
        }
    });
    let lost = soon(lost);
    // Work that does not listen is waited for, and then aborted.
    let reason = super::loss(lost.await);
    assert!([LossReason::Superseded, LossReason::Broken].contains(&reason));
}

#[tokio::test]
async fn whoever_looks_is_told_who_leads() {
    let gateway = Dev::start().await;
    let client = gateway.client();
    let mut leaders = client.observe("leader");
    let mut next = async || soon(leaders.next()).await.unwrap().unwrap();
    assert!(next().await.is_none(), "nobody ever did");
    let first = client.lock("leader").owner("first").acquire().await.unwrap();
    let seen = next().await.unwrap();
    assert_eq!((seen.owner.as_str(), seen.leads()), ("first", true));
    first.release().await;
    let seen = next().await.unwrap();
    assert_eq!((seen.owner.as_str(), seen.leads()), ("first", false));
    let second = client.lock("leader").owner("second").wait(Wait::Forever).acquire().await.unwrap();
    let seen = next().await.unwrap();
    assert_eq!((seen.owner.as_str(), seen.leads()), ("second", true));
    drop(second);
}

#[tokio::test]
async fn two_workers_divide_the_shards_of_a_job_between_them() {
    let gateway = Dev::start().await;
    let (one, other) = (gateway.client(), gateway.client());
    let mut left = [one.shards("job", 12).unwrap(), other.shards("job", 12).unwrap()];
    let mut held = Vec::new();
    while held.len() < 12 {
        let turn = held.len() % 2;
        held.push(left[turn].next().await.unwrap().expect("one is free"));
    }
    let indexes: HashSet<_> = held.iter().map(|shard| shard.index).collect();
    assert_eq!(indexes, (0..12).collect());
    for shard in &held {
        let name = format!("job@{:02}.12", shard.index);
        assert_eq!(shard.lock.resources()[0].as_str(), name);
        shard.lock.put("done", "x").await.unwrap();
    }
    assert!(one.shards("job", 12).unwrap().next().await.unwrap().is_none());
}

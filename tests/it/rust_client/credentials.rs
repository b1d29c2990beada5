//! Credentials that are missing, wrong, revoked, or replaced while a lock is held.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fence_core::ErrorCode;
use fence_tests::access::{Key, Rules, principal, role};
use fence_tests::gateway::Gateway;
use fence_tests::process::eventually;
use fencegate_client::{Body, Client, Credential, Error, Event, LockState};
use futures::StreamExt as _;

use super::proxy::Proxy;
use super::{Told, builder};
use crate::setup::SetUp;

/// A gateway whose rules know `ann` by keys that change.
struct Site {
    gateway: Gateway,
    rules: Rules,
}

impl Site {
    async fn start(keys: &[&Key]) -> Self {
        let rules = Rules::new().await;
        let (setup, text) = (SetUp::Clustered, text(&rules, keys));
        let gateway = setup.start_ruled(setup.settings().await, &rules, &text).await;
        Self { gateway, rules }
    }

    /// From now on these are her keys, and no others.
    async fn know(&self, keys: &[&Key]) {
        self.rules.put_in_force(&self.gateway, &text(&self.rules, keys)).await;
        for key in keys {
            eventually("the key is known", async || {
                let answer = key.by(self.gateway.client().get("/status")).send().await;
                (answer.status == 200).then_some(())
            })
            .await;
        }
    }

    fn client(&self, credential: Credential) -> Client {
        builder(&self.gateway.url()).credential(credential).build().unwrap()
    }
}

fn text(rules: &Rules, keys: &[&Key]) -> String {
    let may = "allow = [\"lock\", \"write\", \"read\"]\nresources = [\"job:*\"]";
    [rules.admin(), role("worker", may), principal("ann", "worker", keys)].concat()
}

#[track_caller]
fn denied<T: std::fmt::Debug>(result: Result<T, Error>, code: ErrorCode) {
    let Err(Error::Denied(details)) = result else { panic!("it is not denied: {result:?}") };
    assert_eq!((details.code.as_deref(), details.attempts), (Some(code.as_str()), 1), "{details}");
}

#[tokio::test]
async fn whoever_is_not_known_is_denied() {
    let (ann, stranger) = (Key::new().await, Key::new().await);
    let site = Site::start(&[&ann]).await;
    let nobody = builder(&site.gateway.url()).build().unwrap();
    let wrong =
        [&stranger.text, "secret", "fgk_x_y_z"].map(|text| site.client(Credential::text(text)));
    for client in wrong.iter().chain([&nobody]) {
        denied(client.lock("job:1").acquire().await, ErrorCode::Unauthenticated);
        denied(client.status().await, ErrorCode::Unauthenticated);
        denied(client.get("job:1", "k").await, ErrorCode::Unauthenticated);
    }
    let ann = site.client(Credential::text(&ann.text));
    denied(ann.lock("other:1").acquire().await, ErrorCode::PermissionDenied);
    ann.lock("job:1").acquire().await.unwrap().put("k", "x").await.unwrap();
}

#[tokio::test]
async fn a_file_that_says_nothing_is_named() {
    let key = Key::new().await;
    let site = Site::start(&[&key]).await;
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("token");
    let client = site.client(Credential::file(&file));
    for (contents, says) in [(None, "cannot read"), (Some(" \n"), "is empty")] {
        if let Some(contents) = contents {
            std::fs::write(&file, contents).unwrap();
        }
        let Err(Error::Denied(details)) = client.status().await else { panic!("it is denied") };
        let text = details.to_string();
        assert!(text.contains(says) && text.contains(file.to_str().unwrap()), "{text}");
    }
    key.store(&file);
    client.status().await.unwrap();
}

#[tokio::test]
async fn a_file_without_an_end_is_not_read_for_ever() {
    let site = Site::start(&[&Key::new().await]).await;
    let client = site.client(Credential::file("/dev/zero"));
    let Err(Error::Denied(details)) = client.status().await else { panic!("it is denied") };
    let text = details.to_string();
    assert!(text.contains("/dev/zero") && text.contains("it has more than 16384 bytes"), "{text}");
}

#[tokio::test]
async fn a_key_is_changed_while_a_lock_is_held() {
    let [old, new, newest] = [Key::new().await, Key::new().await, Key::new().await];
    let site = Site::start(&[&old]).await;
    let (home, told) = (tempfile::tempdir().unwrap(), Told::default());
    let file = home.path().join("token");
    old.store(&file);
    let client = builder(&site.gateway.url()).credential(Credential::file(&file));
    let client = client.on_event(told.hook()).build().unwrap();
    // Renewed every 3 s, so that a key that is gone is noticed long before the deadline.
    let lock = client.lock("job:1").ttl(Duration::from_secs(9)).acquire().await.unwrap();
    lock.put("k", "under the old key").await.unwrap();
    let is_renewed = |event: &Event| matches!(event, Event::Renewed { .. });
    let has_failed = |event: &Event| matches!(event, Event::RenewFailed { .. });

    // 1. By the book: a second key, the file, a renewal, and then the first is taken away.
    site.know(&[&old, &new]).await;
    new.store(&file);
    // One may be under way that showed the old key.
    told.until("it is renewed", told.count(is_renewed) + 2, is_renewed).await;
    site.know(&[&new]).await;
    lock.put("k", "under the new key").await.unwrap();
    told.until("it is renewed", told.count(is_renewed) + 1, is_renewed).await;
    assert_eq!((told.count(has_failed), lock.state()), (0, LockState::Held));
    let has_ended = |event: &Event| matches!(event, Event::Ended { .. } | Event::Revived { .. });
    assert_eq!(told.count(has_ended), 0);

    // 2. The key goes before a renewal has shown another one: the lock goes with it.
    site.know(&[&newest]).await;
    denied(lock.put("k", "meanwhile").await, ErrorCode::Unauthenticated);
    newest.store(&file);
    told.until("it has ended", 1, has_ended).await;
    assert!(lock.put("k", "late").await.is_err());
}

#[tokio::test]
async fn a_credential_is_asked_for_once_more_after_a_401() {
    let (old, new) = (Key::new().await, Key::new().await);
    let site = Site::start(&[&new]).await;
    let proxy = Proxy::start(site.gateway.address()).await;
    let asked = Arc::new(AtomicUsize::new(0));
    // The old one is what was read just before it was replaced.
    let texts = [old.text.clone(), new.text.clone()];
    let count = asked.clone();
    let credential = Credential::from_fn(move || {
        let text = texts[count.fetch_add(1, Ordering::SeqCst).min(1)].clone();
        async move { Ok(text) }
    });
    let client = builder(&proxy.url()).credential(credential).build().unwrap();
    let lock = client.lock("job:1").acquire().await.unwrap();
    assert_eq!(asked.load(Ordering::SeqCst), 2);
    let ids = proxy.seen("POST", "/locks");
    let ids: Vec<_> = ids.iter().map(|seen| seen.header("x-request-id").unwrap()).collect();
    assert_eq!((ids.len(), format!("{}.again", ids[0])), (2, ids[1].to_owned()));
    lock.put("k", "x").await.unwrap();
}

#[tokio::test]
async fn what_can_be_read_once_is_not_sent_again_for_another_credential() {
    let (old, new) = (Key::new().await, Key::new().await);
    let site = Site::start(&[&old]).await;
    let client = site.client(Credential::text(&old.text));
    let lock = client.lock("job:1").acquire().await.unwrap();
    site.know(&[&new]).await;
    let once = Body::once(None, futures::stream::iter([Ok("x".into())]).boxed());
    denied(lock.put("k", once).await, ErrorCode::Unauthenticated);
}

#[tokio::test]
async fn a_credential_that_is_always_the_same_is_shown_once() {
    let (ann, stranger) = (Key::new().await, Key::new().await);
    let site = Site::start(&[&ann]).await;
    let proxy = Proxy::start(site.gateway.address()).await;
    let credential = Credential::text(&stranger.text);
    let client = builder(&proxy.url()).credential(credential).build().unwrap();
    denied(client.get("job:1", "k").await, ErrorCode::Unauthenticated);
    assert_eq!(proxy.count("GET", "/resources"), 1);
}

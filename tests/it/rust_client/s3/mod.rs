//! What a guard tells of S3.

pub mod front;

use fencegate_client::{Client, Error, Handoff};

use self::front::{Front, key_of, secret_of};

#[tokio::test]
async fn a_guard_tells_the_key_of_its_lock_and_shows_no_secret() {
    let front = Front::at("http://127.0.0.1:9").await;
    let client = Client::builder(front.url()).build().unwrap();
    let lock = client.lock(["lake:orders", "other"]).acquire().await.unwrap();
    let id = lock.id().to_string();
    let access = lock.s3().unwrap().clone();
    assert_eq!((access.endpoint.as_str(), access.region.as_str()), ("http://127.0.0.1:9", "eu-1"));
    assert_eq!((&access.access_key_id, &access.secret_access_key), (&key_of(&id), &secret_of(&id)));
    assert!(client.s3_access(lock.id()).await.unwrap() == access, "whoever has the id may ask");
    let shown = format!("{lock:?} {:?}", lock.s3());
    assert!(shown.contains(&access.access_key_id) && !shown.contains(&access.secret_access_key));
    lock.renew().await.unwrap();
    assert!(lock.s3() == Some(&access), "a renewal changes nothing about it");
    lock.release().await;
    assert!(lock.s3() == Some(&access), "nor does the end");
    let error = client.s3_access(lock.id()).await.unwrap_err();
    assert!(matches!(error, Error::LockLost(_)), "{error}");
    let plain = client.lock("r").acquire().await.unwrap();
    assert!(plain.s3().is_none());
    plain.release().await;
}

#[tokio::test]
async fn a_successor_has_a_key_of_its_own() {
    let front = Front::at("http://127.0.0.1:9").await;
    let client = Client::builder(front.url()).build().unwrap();
    let lock = client.lock("lake:orders").acquire().await.unwrap();
    let before = lock.s3().unwrap().access_key_id.clone();
    let text = lock.transfer("you").await.unwrap().to_text();
    let next = client.adopt(&Handoff::from_text(&text).unwrap()).acquire().await.unwrap();
    assert!(next.s3().is_none(), "no grant told it");
    let asked = client.s3_access(next.id()).await.unwrap();
    assert_eq!(asked.access_key_id, key_of(&next.id().to_string()));
    assert_ne!(asked.access_key_id, before);
    next.release().await;
}

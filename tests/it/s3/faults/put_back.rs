//! A data directory that is put back together with the memory of its mint, so that nothing in it shows that it is older: the key of
//! the newest holder does, by its signature.

use std::path::Path;
use std::process::Command;

use fence_tests::client::Client;
use fence_tests::s3::{Key, Request, text_of};
use serde_json::json;

use super::rig::{A, R, Site};
use crate::setup::SetUp;

/// Number of good signatures under a token above all that were granted.
async fn keys_ahead(client: &Client) -> u32 {
    let page = client.get("/metrics").send().await.expect(200).text();
    let found = page.lines().find_map(|line| line.strip_prefix("fencegate_keys_ahead_total "));
    found.map_or(0, |count| count.parse().unwrap())
}

/// Puts an object; the code of the refusal, if it is refused.
async fn put(site: &Site, key: &Key) -> Option<String> {
    let answer = Request::put(A, "written").sign(site.s3, key).send(site.s3).await;
    let code = text_of(&answer.text(), "Code").map(str::to_owned);
    assert_eq!(answer.status == 200, code.is_none(), "{}", answer.text());
    code
}

async fn stop(site: &mut Site) {
    site.gateway.term();
    site.gateway.wait_for_exit().await;
}

fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").args([from, to]).status().unwrap();
    assert!(copied.success(), "{copied}");
}

#[tokio::test]
async fn a_good_signature_under_a_token_that_was_never_granted_shows_that_the_ledger_went_back() {
    let mut site = Site::start(SetUp::Embedded).await;
    let (ann_lock, ann) = site.lock(R, "10m").await;
    assert_eq!(put(&site, &ann).await, None);
    stop(&mut site).await;
    let (data, kept) = (site.gateway.data_dir(), site.gateway.data_dir().with_extension("kept"));
    copy(&data, &kept);
    site.gateway.restart().await;
    let breaks = site.client().break_lock(R, &json!({ "reason": "it stands still" }));
    breaks.send().await.expect(200);
    let (bob_lock, bob) = site.lock(R, "10m").await;
    assert!(bob_lock.token > ann_lock.token);
    assert_eq!(put(&site, &bob).await, None);
    assert_eq!(put(&site, &ann).await.as_deref(), Some("FenceTokenStale"));
    assert_eq!(keys_ahead(&site.client()).await, 0);

    // It is put back. Whoever was superseded is good again, and only bob's key shows it.
    stop(&mut site).await;
    std::fs::remove_dir_all(&data).unwrap();
    copy(&kept, &data);
    site.gateway.restart().await;
    assert_eq!(put(&site, &ann).await, None);
    let mut other = bob.id.clone();
    let letter = if other[9..].starts_with('A') { "B" } else { "A" };
    other.replace_range(9..10, letter);
    let made_up = [
        (Key { secret: ann.secret.clone(), ..bob.clone() }, "SignatureDoesNotMatch"),
        (Key { id: other, ..bob.clone() }, "InvalidAccessKeyId"),
    ];
    for (key, code) in &made_up {
        assert_eq!(put(&site, key).await.as_deref(), Some(*code));
    }
    assert_eq!(keys_ahead(&site.client()).await, 0, "anybody can make those up");
    for count in 1..=2 {
        assert_eq!(put(&site, &bob).await.as_deref(), Some("InvalidAccessKeyId"));
        assert_eq!(keys_ahead(&site.client()).await, count);
    }
    site.gateway.logged("the ledger went back").await;

    // From a re-fence on it is known that there were such tokens.
    stop(&mut site).await;
    let (code, told, log) = site.gateway.run(&["refence", "--force", "--reason", "test"]).await;
    assert_eq!(code, Some(0), "{told}{log}");
    site.gateway.restart().await;
    assert_eq!(put(&site, &bob).await.as_deref(), Some("InvalidAccessKeyId"));
    assert_eq!(put(&site, &ann).await.as_deref(), Some("FenceTokenVoid"));
    assert_eq!(keys_ahead(&site.client()).await, 0);
}

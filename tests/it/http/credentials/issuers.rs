//! The keys that issuers have now, in files: they change without a gap, and one that is withdrawn lets nobody in.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use fence_tests::access::Rules;
use fence_tests::gateway::Gateway;
use fence_tests::process::eventually;
use rustix::fs::{CWD, Mode, mkfifoat};
use serde_json::json;

use super::signer::{Signer, claims, in_seconds, publish, set, trusted_by_file};
use super::{MAY, let_in, told_to, unauthenticated};
use crate::setup::SetUp;

/// Waits until the gateway says this to whoever shows the token.
async fn until_told(gateway: &Gateway, token: &str, expected: (u16, String)) {
    eventually(&format!("it is told {expected:?}"), async || {
        (told_to(gateway, token).await == expected).then_some(())
    })
    .await;
}

/// A gateway that takes tokens by the keys of a file, which has these to begin with.
async fn by_file(signers: &[&Signer]) -> (Gateway, Rules, PathBuf) {
    let rules = Rules::new().await;
    let file = rules.home.path().join("jwks.json");
    publish(&file, signers);
    let gateway = SetUp::Embedded.start().await;
    rules.put_in_force(&gateway, &(rules.text(MAY, &[]) + &trusted_by_file(&file))).await;
    (gateway, rules, file)
}

/// Tokens of an issuer: each subject is a principal of its own; and the issuer's keys change without a gap.
#[tokio::test]
async fn tokens_are_taken_by_the_keys_that_their_issuer_has_now() {
    let rules = Rules::new().await;
    let (first, second) = (Signer::new("first"), Signer::new("second"));
    let file = rules.home.path().join("jwks.json");
    publish(&file, &[&first]);
    let gateway = SetUp::Clustered.start().await;
    let text = rules.text(MAY, &[]) + &trusted_by_file(&file);
    rules.put_in_force(&gateway, &text).await;
    let told = async |signer: &Signer, sub: &str| told_to(&gateway, &signer.token(sub)).await;
    assert_eq!(told(&first, "billing:a").await, let_in());
    assert_eq!(told(&second, "billing:a").await, unauthenticated());
    for sub in ["other:a", "billing", "billing:*", "billing:a b", ""] {
        assert_eq!(told(&first, sub).await, unauthenticated(), "{sub}");
    }
    // Whose lock it is, the token says.
    let body = json!({ "resource": "r", "ttl": "1h" });
    let lock = gateway.client().lock(&body);
    let lock = lock.header("authorization", format!("Bearer {}", first.token("billing:a")));
    assert_eq!(lock.send().await.expect(201).json()["principal"], "job/billing:a");

    // A key that the gateway has not seen is looked for at once; one that is gone is good no more.
    publish(&file, &[&first, &second]);
    assert_eq!(told(&second, "billing:a").await, let_in());
    publish(&file, &[&second]);
    eventually("the first key is gone", async || {
        (told(&first, "billing:a").await == unauthenticated()).then_some(())
    })
    .await;
    assert_eq!(told(&second, "billing:a").await, let_in());
    rules.put_in_force(&gateway, &format!("revoked = [\"jti:job#one\"]\n{text}")).await;
    assert_eq!(told(&second, "billing:a").await, unauthenticated());
}

/// The gateway remembers whom a token has let in; that ends with the key that signed it.
#[tokio::test]
async fn a_token_that_was_let_in_is_refused_once_its_key_is_withdrawn() {
    let (first, second) = (Signer::new("first"), Signer::new("second"));
    let (gateway, _rules, file) = by_file(&[&first, &second]).await;
    let (token, other) = (first.token("billing:a"), second.token("billing:b"));
    for _ in 0..2 {
        assert_eq!(told_to(&gateway, &token).await, let_in());
        assert_eq!(told_to(&gateway, &other).await, let_in());
    }
    // What is no set of keys withdraws none.
    fs::write(&file, "nothing").unwrap();
    eventually("it says that the file is no good", async || {
        assert_eq!(told_to(&gateway, &token).await, let_in());
        gateway.log().contains("the keys of an issuer cannot be read").then_some(())
    })
    .await;
    publish(&file, &[&second]);
    until_told(&gateway, &token, unauthenticated()).await;
    assert_eq!(told_to(&gateway, &token).await, unauthenticated());
    assert_eq!(told_to(&gateway, &other).await, let_in());
    // The issuer has it again: the token is good again.
    publish(&file, &[&first, &second]);
    assert_eq!(told_to(&gateway, &token).await, let_in());
}

/// An issuer that was broken into takes back all that it signed.
#[tokio::test]
async fn an_issuer_that_withdraws_all_its_keys_lets_nobody_in() {
    let signer = Signer::new("k");
    let (gateway, _rules, file) = by_file(&[&signer]).await;
    let token = signer.token("billing:a");
    for useless in [json!([]), json!([{ "kty": "odd", "kid": "k" }])] {
        publish(&file, &[&signer]);
        until_told(&gateway, &token, let_in()).await;
        let beside = file.with_extension("new");
        fs::write(&beside, json!({ "keys": useless }).to_string()).unwrap();
        fs::rename(&beside, &file).unwrap();
        until_told(&gateway, &token, unauthenticated()).await;
        assert_eq!(told_to(&gateway, &token).await, unauthenticated());
    }
    assert!(gateway.log().contains("the tokens of an issuer let nobody in"));
}

/// A token that names the issuer comes from anybody, so what stands at the path may neither hold the gateway up nor fill it.
#[tokio::test]
async fn what_is_no_file_or_has_no_end_is_not_read_for_keys() {
    let signer = Signer::new("k");
    let (gateway, _rules, file) = by_file(&[&signer]).await;
    let token = signer.token("billing:a");
    assert_eq!(told_to(&gateway, &token).await, let_in());
    let beside = file.with_extension("pipe");
    mkfifoat(CWD, &beside, Mode::RUSR | Mode::WUSR).unwrap();
    fs::rename(&beside, &file).unwrap();
    let told = || gateway.log().matches("it is no regular file").count();
    let refused = async |before: usize| {
        eventually("it says that this is no file", async || {
            // The keys that were read last go on.
            assert_eq!(told_to(&gateway, &token).await, let_in());
            (told() > before).then_some(())
        })
        .await;
    };
    refused(0).await;
    fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &file).unwrap();
    refused(told()).await;
    publish(&file, &[&signer]);
    assert_eq!(told_to(&gateway, &token).await, let_in());
}

/// A token ends by its own time although it was let in before, and however good its key is.
#[tokio::test]
async fn a_token_that_was_let_in_is_refused_once_it_has_ended() {
    let signer = Signer::new("k");
    let (gateway, _rules, _file) = by_file(&[&signer]).await;
    // Clocks may be a minute apart: it is good for some seconds yet.
    let mut soon = claims("billing:a");
    soon["exp"] = in_seconds(-50).into();
    let token = signer.claiming(&soon);
    assert_eq!(told_to(&gateway, &token).await, let_in());
    until_told(&gateway, &token, (401, "credential-expired".to_owned())).await;
}

/// Writes a text and then says that the file was changed at this time.
fn write_at(path: &Path, text: &str, time: SystemTime) {
    fs::write(path, text).unwrap();
    File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
}

/// Nothing else would have the file read again: the other key has the same id, so its tokens ask for no key that the gateway
/// does not have.
#[tokio::test]
async fn a_file_of_keys_that_looks_the_same_is_noticed() {
    let (one, other) = (Signer::new("k"), Signer::new("k"));
    let (gateway, _rules, file) = by_file(&[&one]).await;
    assert_eq!(set(&[&one]).len(), set(&[&other]).len());
    let time = fs::metadata(&file).unwrap().modified().unwrap() - Duration::from_secs(3600);
    write_at(&file, &set(&[&one]), time);
    let (token, others) = (one.token("billing:a"), other.token("billing:a"));
    until_told(&gateway, &token, let_in()).await;
    assert_eq!(told_to(&gateway, &others).await, unauthenticated());

    // Another file in its place.
    let beside = file.with_extension("new");
    write_at(&beside, &set(&[&other]), time);
    fs::rename(&beside, &file).unwrap();
    until_told(&gateway, &others, let_in()).await;
    assert_eq!(told_to(&gateway, &token).await, unauthenticated());

    // The same file with another text.
    write_at(&file, &set(&[&one]), time);
    until_told(&gateway, &token, let_in()).await;
    assert_eq!(told_to(&gateway, &others).await, unauthenticated());
    assert_eq!(fs::metadata(&file).unwrap().modified().unwrap(), time);
}

//! The front as a whole, in one process, on a ledger in memory: what it promises to whoever signs with the key of a lock.

mod keys;
mod rig;

use std::panic::catch_unwind;

use axum::http::{Method, StatusCode};

use crate::http::mutants::{Mutant, switch};
use rig::{Rig, played};

/// What a key writes, it writes under the token of its own lock, whoever holds the resource now; and a write that is fenced
/// is told as what no tool tries again.
#[test]
fn a_key_writes_under_its_own_token_alone() {
    played(async |rig: Rig| {
        rig.makes_bucket("lake").await;
        let ann = rig.locks("lake").await;
        let put = async |lock: &rig::Lock, text: &str| {
            rig.s3(Method::PUT, "/lake/a/k", &lock.key, &[], text.to_owned()).await
        };
        let first = put(&ann, "ann's").await;
        assert_eq!(first.status, StatusCode::OK, "{}", first.body);
        rig.releases(&ann).await;
        let bob = rig.locks("lake").await;
        let late = put(&ann, "ann's again").await;
        assert_ne!(late.status, StatusCode::OK, "a late write was admitted");
        assert!(late.body.contains("<Code>FenceTokenStale</Code>"), "{}", late.body);
        assert_eq!(late.status, StatusCode::FORBIDDEN);
        assert_eq!(put(&bob, "bob's").await.status, StatusCode::OK);
        assert_eq!(put(&ann, "ann's again").await.status, StatusCode::FORBIDDEN);
        let read = rig.s3(Method::GET, "/lake/a/k", &bob.key, &[], String::new()).await;
        assert_eq!(read.body, "bob's");
    });
}

/// Whoever asks for the key of a lock that has ended hears how it ended, whoever holds its resource now.
#[test]
fn a_lock_that_has_ended_has_no_key() {
    played(async |rig: Rig| {
        rig.makes_bucket("lake").await;
        let ann = rig.locks("lake").await;
        let ask = async |form: &str| {
            rig.native(Method::GET, &format!("/locks/{}/s3{form}", ann.id), None).await
        };
        let forms = ["", "?as=process", "?as=container"];
        for form in forms {
            assert!(ask(form).await.body.contains(&ann.key.id), "{form}");
        }
        rig.releases(&ann).await;
        for next in [false, true] {
            if next {
                rig.locks("lake").await;
            }
            for form in forms {
                let told = ask(form).await;
                assert!(!told.body.contains("FG1"), "it was given a key: {}", told.body);
                assert_eq!(told.status, StatusCode::CONFLICT, "{}", told.body);
            }
        }
    });
}

/// A call that is sent again took effect once: its retry has the answer of the first try, and a try that comes late takes
/// nothing back.
#[test]
fn a_call_that_is_sent_again_is_done_once() {
    played(async |rig: Rig| {
        rig.makes_bucket("lake").await;
        let ann = rig.locks("lake").await;
        let put = async |call: &str, headers: &[(&'static str, &str)], text: &str| {
            let id = ("amz-sdk-invocation-id", call);
            let headers = [&[id], headers].concat();
            rig.s3(Method::PUT, "/lake/k", &ann.key, &headers, text.to_owned()).await
        };
        let first = "6c2e6a4b-8d0e-4c58-9a5e-1f2d3c4b5a69";
        let absent = [("if-none-match", "*")];
        assert_eq!(put(first, &absent, "one").await.status, StatusCode::OK);
        let again = put(first, &absent, "one").await;
        assert_eq!(again.status, StatusCode::OK, "its own retry fails: {}", again.body);
        let verdict = again.headers.get("x-fence-verdict").map(|verdict| verdict.as_bytes());
        assert_eq!(verdict, Some(&b"replayed"[..]));
        let later = "0d9e8f7a-6b5c-4d3e-8f1a-0b9c8d7e6f5a";
        assert_eq!(put(later, &[], "two").await.status, StatusCode::OK);
        assert_eq!(put(first, &absent, "one").await.status, StatusCode::OK);
        let read = rig.s3(Method::GET, "/lake/k", &ann.key, &[], String::new()).await;
        assert_eq!(read.body, "two");
    });
}

/// What the test says with this mutant; none if it passes.
fn failure(mutant: Mutant, test: fn()) -> Option<String> {
    switch(Some(mutant));
    let ended = catch_unwind(test);
    switch(None);
    let said = ended.err()?;
    let text = said.downcast_ref::<String>().cloned();
    Some(text.or_else(|| said.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default())
}

#[test]
fn each_mutant_is_caught() {
    let caught_by: [(Mutant, fn(), &str); 6] = [
        (Mutant::TokenOfResource, a_key_writes_under_its_own_token_alone, "was admitted"),
        (Mutant::StaleIsPrecondition, a_key_writes_under_its_own_token_alone, "PreconditionFailed"),
        (Mutant::EndedLockHasKey, a_lock_that_has_ended_has_no_key, "it was given a key"),
        (Mutant::EndedLockHasNextKey, a_lock_that_has_ended_has_no_key, "it was given a key"),
        (
            Mutant::EndedLockHasNextKey,
            keys::a_key_names_one_lock_over_any_history,
            "the key of another lock",
        ),
        (Mutant::InvocationIgnored, a_call_that_is_sent_again_is_done_once, "its own retry fails"),
    ];
    for (mutant, test, says) in caught_by {
        let told = failure(mutant, test).unwrap_or_else(|| panic!("{mutant:?} is not caught"));
        assert!(told.contains(says), "{mutant:?}: {told}");
    }
}

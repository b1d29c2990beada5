//! An access key names one token for ever, whatever happens to locks, and a source of keys names one lock (I18).

use std::collections::BTreeMap;

use axum::http::{Method, StatusCode};
use fence_core::{LockId, Token};
use fencegate_s3::key::Named;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::{Value, json};

use super::rig::{Rig, Told, played};

const RESOURCES: [&str; 2] = ["lake", "sea"];

/// What happens.
#[derive(Debug, Clone)]
enum Step {
    /// Somebody asks for a lock on one resource or both, perhaps under an id that was asked for before.
    Acquire { both: bool, on: usize, again: Option<usize> },
    /// A fence is set without a lock.
    Fence { on: usize, again: Option<usize> },
    /// A lock is handed over.
    Transfer { from: usize },
    /// A lock is given back.
    Release { of: usize },
    /// A holder is fenced off.
    Break { on: usize },
    /// The ledger is re-fenced, and another gateway goes on.
    Refence,
}

fn step() -> impl Strategy<Value = Step> {
    let again = || proptest::option::weighted(0.3, 0..8_usize);
    prop_oneof![
        6 => (any::<bool>(), 0..2_usize, again())
            .prop_map(|(both, on, again)| Step::Acquire { both, on, again }),
        2 => (0..2_usize, again()).prop_map(|(on, again)| Step::Fence { on, again }),
        2 => (0..8_usize).prop_map(|from| Step::Transfer { from }),
        4 => (0..8_usize).prop_map(|of| Step::Release { of }),
        2 => (0..2_usize).prop_map(|on| Step::Break { on }),
        1 => Just(Step::Refence),
    ]
}

/// What is known of keys.
#[derive(Default)]
struct Known {
    /// Ids that locks and fences were asked for under, in order.
    asked: Vec<LockId>,
    /// The token that each of them was granted.
    tokens: BTreeMap<LockId, Token>,
    /// Whose each key is.
    keys: BTreeMap<String, LockId>,
}

impl Known {
    /// What was asked for as many calls ago.
    fn lately(&self, ago: usize) -> Option<LockId> {
        self.asked.iter().rev().nth(ago).copied()
    }

    fn id(&mut self, again: Option<usize>) -> LockId {
        again.and_then(|again| self.lately(again)).unwrap_or_else(|| {
            let number = self.asked.len() as u128;
            let id = LockId(uuid::Builder::from_random_bytes(number.to_be_bytes()).into_uuid());
            self.asked.push(id);
            id
        })
    }

    /// Holds what a call granted against what was granted before: a lock has one token, and a token one lock.
    fn granted(&mut self, rig: &Rig, id: LockId, told: &Told) {
        if !told.status.is_success() {
            return;
        }
        let json = told.json();
        let Ok(token) = serde_json::from_value::<Token>(json["token"].clone()) else { return };
        let first = *self.tokens.entry(id).or_insert(token);
        assert_eq!(first, token, "a lock has another token: {json}");
        let shared = self.tokens.iter().filter(|(_, other)| **other == token).count();
        assert_eq!(shared, 1, "two grants have one token");
        if json.get("s3").is_some_and(|s3| !s3.is_null()) {
            self.given(rig, id, &json["s3"]);
        }
    }

    /// Holds a key that was given for a lock against all others.
    fn given(&mut self, rig: &Rig, lock: LockId, key: &Value) {
        let names = ["access_key_id", "AccessKeyId"];
        let id = names.iter().find_map(|name| key[*name].as_str()).expect("a key").to_owned();
        let secrets = ["secret_access_key", "SecretAccessKey"];
        let secret = secrets.iter().find_map(|name| key[*name].as_str()).expect("a secret");
        let (named, its_secret) = rig.keys.read(&id).expect("it is read");
        let token = self.tokens[&lock];
        assert_eq!(named, Named::Lock { token, lock }, "the key of another lock");
        assert_eq!(its_secret.reveal(), secret);
        let first = *self.keys.entry(id).or_insert(lock);
        assert_eq!(first, lock, "two locks have one key");
    }
}

async fn take(rig: &mut Rig, known: &mut Known, step: &Step) {
    let (asked, told) = match *step {
        Step::Acquire { both, on, again } => {
            let resources = if both { RESOURCES.to_vec() } else { vec![RESOURCES[on]] };
            let id = known.id(again);
            let body = json!({ "resources": resources, "id": id, "ttl": "10m" });
            (id, rig.native(Method::POST, "/locks", Some(body)).await)
        }
        Step::Fence { on, again } => {
            let id = known.id(again);
            let path = format!("/resources/{}/fence", RESOURCES[on]);
            let body = json!({ "id": id, "owner": "f" });
            (id, rig.native(Method::POST, &path, Some(body)).await)
        }
        Step::Transfer { from } => {
            let Some(from) = known.lately(from) else { return };
            let id = known.id(None);
            let body = json!({ "owner": "next", "id": id });
            (id, rig.native(Method::POST, &format!("/locks/{from}/transfer"), Some(body)).await)
        }
        Step::Release { of } => {
            let Some(of) = known.lately(of) else { return };
            rig.native(Method::DELETE, &format!("/locks/{of}"), None).await;
            return;
        }
        Step::Break { on } => {
            let path = format!("/resources/{}/break", RESOURCES[on]);
            rig.native(Method::POST, &path, Some(json!({ "reason": "a test" }))).await;
            return;
        }
        Step::Refence => {
            rig.refenced().await;
            *rig = rig.another();
            return;
        }
    };
    known.granted(rig, asked, &told);
}

/// Asks for the keys of all locks, in all forms. Returns how many have one.
async fn ask_for_all(rig: &Rig, known: &mut Known) -> usize {
    let mut count = 0;
    for id in known.asked.clone() {
        for form in ["", "?as=process", "?as=container"] {
            let told = rig.native(Method::GET, &format!("/locks/{id}/s3{form}"), None).await;
            if told.status == StatusCode::OK {
                known.given(rig, id, &told.json());
                count += 1;
            }
        }
    }
    count
}

/// Over grants, transfers, releases, breaks, fences without a lock and re-fences: a key names one lock and its token; two
/// grants never share one; and what is told of a lock, by whatever route, is never the key of another.
#[test]
pub fn a_key_names_one_lock_over_any_history() {
    let config = Config { cases: 40, failure_persistence: None, ..Config::default() };
    let random = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let mut runner = TestRunner::new_with_rng(config, random);
    let histories = proptest::collection::vec(step(), 1..30);
    let given = std::cell::Cell::new(0);
    let ran = runner.run(&histories, |steps| {
        played(async |mut rig: Rig| {
            rig.makes_bucket("lake").await;
            let mut known = Known::default();
            for step in &steps {
                take(&mut rig, &mut known, step).await;
                given.set(given.get() + ask_for_all(&rig, &mut known).await);
            }
        });
        Ok(())
    });
    ran.unwrap_or_else(|error| panic!("{error}"));
    assert!(given.get() > 500, "keys were given {} times", given.get());
}

//! Calls that are under way for long while the rules of access change: they wait in line, are streams, or send a large
//! body. What counts for each of them in the end are the rules that are in force then.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]
#![expect(clippy::disallowed_methods, reason = "tests start what runs beside them")]

mod answers;
mod bodies;
mod copies;
mod credentials;
mod downloads;
mod feeds;
mod flight;
mod guarded;
mod lines;
mod part_races;
mod parts;
mod terms;

use fence_core::wire::{AccessApplied, Lock};
use fence_tests::access::{Key, Rules};
use fence_tests::client::{Answer, Call, Client, resource_path};
use fence_tests::gateway::{Gateway, Settings};
use fence_tests::postgres::database_in;
use fence_tests::process::eventually;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::setup::SetUp;

/// A call under way.
type Pending = JoinHandle<Answer>;

/// Gateways of one ledger: rules are changed through the first, calls are made through the last. On a data directory there
/// is only one.
struct Site {
    gateways: Vec<Gateway>,
    rules: Rules,
    settings: Settings,
}

impl Site {
    /// With the rules that `text` makes in force.
    async fn new(setup: SetUp, text: impl FnOnce(&Rules) -> String) -> Self {
        Self::on(setup, setup.settings().await, text).await
    }

    /// The same with these settings.
    async fn on(setup: SetUp, settings: Settings, text: impl FnOnce(&Rules) -> String) -> Self {
        let rules = Rules::new().await;
        let text = text(&rules);
        let mut gateways = vec![setup.start_ruled(settings.clone(), &rules, &text).await];
        if setup == SetUp::Clustered {
            gateways.push(settings.clone().start().await);
        }
        Self { gateways, rules, settings }
    }

    /// The gateway that hears of a change from the ledger alone, if there are two.
    fn last(&self) -> &Gateway {
        self.gateways.last().unwrap()
    }

    /// Where calls are made.
    fn client(&self) -> Client {
        self.last().client()
    }

    /// The database, on Postgres.
    fn database(&self) -> String {
        let flags = self.settings.flags();
        let postgres = flags.into_iter().find(|(flag, _)| flag == "--postgres");
        database_in(&postgres.unwrap().1).to_owned()
    }

    /// Puts rules in force through the first gateway, as the administrator.
    async fn put_in_force(&self, text: &str) -> AccessApplied {
        let body = json!({ "rules": text, "reason": "the test says so" });
        let put = put_rules(&self.gateways[0].client(), &body);
        self.rules.admin.by(put).send().await.expect(200).parse()
    }

    /// A lock of an hour.
    async fn locked(&self, key: &Key, resource: &str) -> Lock {
        let body = json!({ "resource": resource, "ttl": "1h", "owner": "holder" });
        key.by(self.client().lock(&body)).send().await.expect(201).parse()
    }

    /// Waits until so many stand in line, as somebody sees it who may read the resource.
    async fn until_in_line(&self, key: &Key, resource: &str, count: i64) {
        eventually(&format!("{count} wait for {resource}"), async || {
            let seen = key.by(self.client().get(resource_path(resource))).send().await.expect(200);
            (seen.json()["queue_length"] == count).then_some(())
        })
        .await;
    }
}

/// `PUT /admin/access`, by nobody yet.
pub fn put_rules(client: &Client, body: &Value) -> Call {
    let call = client.call(Method::PUT, "/admin/access");
    call.header("content-type", "application/json").body(body.to_string())
}

/// Sends a call in a task of its own.
fn begin(call: Call) -> Pending {
    tokio::spawn(call.send())
}

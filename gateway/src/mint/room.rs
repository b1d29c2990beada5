//! How much room the members of an etcd cluster have left. Each grant leaves something in etcd's history, which
//! only compaction removes: a member that is full takes nothing more, and then no lock is granted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use metrics::{Unit, describe_gauge};

use super::EtcdMint;
use crate::mint::members::Database;

/// How often the members are asked.
const INTERVAL: Duration = Duration::from_secs(30);

/// The size of a member's database, as it is on its disk.
const BYTES: &str = "fencegate_etcd_db_bytes";
/// How much of that is in use.
const BYTES_IN_USE: &str = "fencegate_etcd_db_in_use_bytes";
/// Whether a member has raised an alarm.
const ALARM: &str = "fencegate_etcd_alarm";

/// Tells the recorder what each metric means.
pub fn describe() {
    describe_gauge!(BYTES, Unit::Bytes, "The size of the database of each etcd member");
    describe_gauge!(BYTES_IN_USE, Unit::Bytes, "How much of it is in use, after compaction");
    describe_gauge!(ALARM, "1 while an etcd member has raised an alarm, such as NOSPACE");
}

/// Watches the members for ever, and logs each alarm once.
pub async fn watch(mint: Arc<EtcdMint>) {
    let mut said: BTreeMap<String, String> = BTreeMap::new();
    loop {
        for (member, database) in mint.members.databases().await {
            match database {
                Ok(database) => tell(&member, &database, &mut said),
                Err(why) => tracing::debug!(member, why, "an etcd member does not tell its size"),
            }
        }
        mint.clock.sleep(INTERVAL).await;
    }
}

fn tell(member: &str, database: &Database, said: &mut BTreeMap<String, String>) {
    let labels = [("member", member.to_owned())];
    metrics::gauge!(BYTES, &labels).set(database.bytes as f64);
    metrics::gauge!(BYTES_IN_USE, &labels).set(database.bytes_in_use as f64);
    metrics::gauge!(ALARM, &labels).set(if database.alarms.is_empty() { 0.0 } else { 1.0 });
    let before = said.insert(member.to_owned(), database.alarms.clone());
    if !database.alarms.is_empty() && before.as_ref() != Some(&database.alarms) {
        tracing::error!(
            member,
            alarms = database.alarms,
            "etcd has raised an alarm; see \"etcd fills up\" in the runbook"
        );
    }
}

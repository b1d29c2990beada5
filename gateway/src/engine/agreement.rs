//! What all gateways of a ledger have alike, and what one of them does while it runs with something else.
//!
//! A gateway starts only with what is agreed. While it runs, an operator may agree something else: until it is started
//! again it then keeps everything for the longer of the two times, so that of two gateways the one that keeps less
//! never decides.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fence_core::ports::{BlobTimes, Retention};

/// Whether the operators have declared that a failover of the ledger loses nothing.
pub const FAILOVER: &str = "failover";
/// The word for it.
pub const LOSSLESS: &str = "lossless";
/// Whether writers must name their lock beside its token.
pub const REQUIRE_LOCK_ID: &str = "require_lock_id";
const KEYS: &str = "keys_kept";
const ENDED_LOCKS: &str = "ended_locks_kept";
const BURIED: &str = "buried_kept";
const HISTORY: &str = "history_kept";
/// How what is never let go is agreed on.
const FOR_EVER: &str = "for ever";
const REJECTIONS: &str = "rejections_max";
const UPLOADS: &str = "uploads_kept";
const READERS: &str = "reader_grace";
const HORIZON: &str = "rollback_horizon";
const VERSIONS: &str = "versions_kept";
const REDELETE: &str = "redelete_after";
const MULTIPART: &str = "multipart_kept";
/// A digest of what keys of S3 are derived from.
pub const S3_ROOT: &str = "s3_root";

/// What this gateway would have agreed beside how long it keeps what.
#[derive(Debug, Clone)]
pub struct Others<'a> {
    /// Whether a failover loses nothing, in a word.
    pub failover: &'a str,
    /// Whether writers must name their lock.
    pub requires_lock_id: bool,
    /// A digest of what keys of S3 are derived from; none where S3 is off.
    pub s3_root: Option<String>,
}

/// The settings that are agreed, as text under their names: times as `7days`, truths as `on` and `off`.
pub fn terms(
    retention: &Retention,
    times: &BlobTimes,
    others: Others<'_>,
) -> BTreeMap<String, String> {
    let time = |time: Duration| humantime::format_duration(time).to_string();
    let Others { failover, requires_lock_id, s3_root } = others;
    let all = [
        (KEYS, time(retention.keys)),
        (ENDED_LOCKS, time(retention.ended_locks)),
        (BURIED, time(retention.buried)),
        (HISTORY, retention.history.map_or_else(|| FOR_EVER.to_owned(), time)),
        (REJECTIONS, retention.rejections_max.to_string()),
        (UPLOADS, time(times.upload)),
        (MULTIPART, time(times.multipart)),
        (READERS, time(times.reader_grace)),
        (HORIZON, time(times.rollback_horizon)),
        (VERSIONS, time(times.versions)),
        (REDELETE, time(times.redelete)),
        (FAILOVER, failover.to_owned()),
        (REQUIRE_LOCK_ID, if requires_lock_id { "on" } else { "off" }.to_owned()),
    ];
    let all = all.into_iter().chain(s3_root.map(|root| (S3_ROOT, root)));
    all.map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Each setting in which `ours` differs from what is agreed, in words. What is agreed and not known here is of a newer
/// gateway, and nothing to this one.
pub fn differences(
    ours: &BTreeMap<String, String>,
    agreed: &BTreeMap<String, String>,
) -> Vec<String> {
    let differs = |(name, ours): (&String, &String)| {
        let agreed = agreed.get(name).filter(|agreed| *agreed != ours)?;
        Some(format!("{name} is {ours} here and {agreed} by agreement"))
    };
    ours.iter().filter_map(differs).collect()
}

/// What this gateway keeps, given what is agreed.
#[derive(Debug)]
pub struct Agreement {
    retention: Retention,
    times: BlobTimes,
    /// What it was started with; empty where nothing is agreed, since there is but one gateway.
    ours: BTreeMap<String, String>,
    /// What the ledger said last.
    agreed: Mutex<BTreeMap<String, String>>,
    /// Whether it requires lock ids; kept apart because each write asks.
    lock_ids: AtomicBool,
}

impl Agreement {
    /// With these settings, which are agreed as far as is known.
    pub fn new(retention: Retention, times: BlobTimes, ours: BTreeMap<String, String>) -> Self {
        Self { retention, times, ours, agreed: Mutex::default(), lock_ids: AtomicBool::new(false) }
    }

    /// Takes note of what the ledger says, and says once in the log if that is something else than before.
    pub fn heard(&self, agreed: &BTreeMap<String, String>) {
        let mut known = self.agreed();
        if *known == *agreed {
            return;
        }
        let (before, now) = (differences(&self.ours, &known), differences(&self.ours, agreed));
        agreed.clone_into(&mut known);
        let lock_ids = agreed.get(REQUIRE_LOCK_ID).is_some_and(|value| value == "on");
        self.lock_ids.store(lock_ids, Ordering::Release);
        if !now.is_empty() {
            tracing::warn!(
                differences = now.join("; "),
                "the gateways of this ledger have agreed on other settings; the longer times are kept \
                 until this gateway is started with them"
            );
        } else if !before.is_empty() {
            tracing::info!("this gateway's settings are those that are agreed again");
        }
    }

    /// In what this gateway differs from what is agreed; `None` if in nothing.
    pub fn trouble(&self) -> Option<String> {
        let differences = differences(&self.ours, &self.agreed());
        (!differences.is_empty()).then(|| differences.join("; "))
    }

    /// How long the sweeper keeps what: never shorter than agreed.
    pub fn retention(&self) -> Retention {
        let agreed = self.agreed();
        let most = agreed.get(REJECTIONS).and_then(|text| text.parse().ok()).unwrap_or(0);
        Retention {
            keys: longer(&agreed, KEYS, self.retention.keys),
            ended_locks: longer(&agreed, ENDED_LOCKS, self.retention.ended_locks),
            buried: longer(&agreed, BURIED, self.retention.buried),
            history: match agreed.get(HISTORY) {
                Some(text) if text == FOR_EVER => None,
                _ => self.retention.history.map(|kept| longer(&agreed, HISTORY, kept)),
            },
            rejections_max: self.retention.rejections_max.max(most),
            rows_per_pass: self.retention.rows_per_pass,
        }
    }

    /// How long blobs are kept: never shorter than agreed.
    pub fn blob_times(&self) -> BlobTimes {
        let agreed = self.agreed();
        BlobTimes {
            upload: longer(&agreed, UPLOADS, self.times.upload),
            multipart: longer(&agreed, MULTIPART, self.times.multipart),
            reader_grace: longer(&agreed, READERS, self.times.reader_grace),
            rollback_horizon: longer(&agreed, HORIZON, self.times.rollback_horizon),
            versions: longer(&agreed, VERSIONS, self.times.versions),
            redelete: longer(&agreed, REDELETE, self.times.redelete),
        }
    }

    /// Whether it is agreed that writers name their lock.
    pub fn requires_lock_id(&self) -> bool {
        self.lock_ids.load(Ordering::Acquire)
    }

    fn agreed(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.agreed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The longer of what is agreed and this time.
fn longer(agreed: &BTreeMap<String, String>, name: &str, ours: Duration) -> Duration {
    let agreed = agreed.get(name).and_then(|text| humantime::parse_duration(text).ok());
    agreed.map_or(ours, |agreed| agreed.max(ours))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);
    const DAY: Duration = Duration::from_secs(24 * 3600);

    fn retention(keys: Duration, rejections_max: i64) -> Retention {
        Retention {
            keys,
            ended_locks: HOUR,
            buried: DAY,
            history: None,
            rejections_max,
            rows_per_pass: 10,
        }
    }

    fn times(rollback_horizon: Duration, versions: Duration, multipart: Duration) -> BlobTimes {
        let upload = 2 * HOUR;
        BlobTimes {
            upload,
            multipart,
            reader_grace: HOUR,
            rollback_horizon,
            versions,
            redelete: HOUR,
        }
    }

    #[test]
    fn whoever_keeps_less_than_is_agreed_keeps_what_is_agreed() {
        let (mine, my_times) = (retention(HOUR, 5), times(Duration::ZERO, 9 * DAY, 7 * DAY));
        let others = |failover, requires_lock_id, root: Option<&str>| Others {
            failover,
            requires_lock_id,
            s3_root: root.map(str::to_owned),
        };
        let ours = terms(&mine, &my_times, others("lossy", false, Some("a1")));
        let agreement = Agreement::new(mine, my_times, ours.clone());
        assert_eq!(agreement.trouble(), None);
        assert_eq!(agreement.retention().keys, HOUR);
        agreement.heard(&ours);
        assert_eq!((agreement.trouble(), agreement.requires_lock_id()), (None, false));

        let theirs = (retention(7 * DAY, 9), times(DAY, DAY, 9 * DAY));
        let mut agreed = terms(&theirs.0, &theirs.1, others("lossless", true, Some("a2,a1")));
        agreed.insert("of_a_newer_gateway".into(), "1".into());
        agreement.heard(&agreed);
        let kept = agreement.retention();
        assert_eq!((kept.keys, kept.ended_locks, kept.rejections_max), (7 * DAY, HOUR, 9));
        let kept = agreement.blob_times();
        // Of these the gateway itself keeps more than is agreed.
        assert_eq!((kept.rollback_horizon, kept.versions), (DAY, 9 * DAY));
        assert!(agreement.requires_lock_id());
        let trouble = agreement.trouble().unwrap();
        for told in [
            "keys_kept is 1h here and 7days by agreement",
            "rollback_horizon is 0s here and 1day by agreement",
            "versions_kept is 9days here and 1day by agreement",
            "rejections_max is 5 here and 9 by agreement",
            "failover is lossy here and lossless by agreement",
            "require_lock_id is off here and on by agreement",
            "multipart_kept is 7days here and 9days by agreement",
            "s3_root is a1 here and a2,a1 by agreement",
        ] {
            assert!(trouble.contains(told), "{trouble}");
        }
        assert_eq!(trouble.split("; ").count(), 8, "{trouble}");
        assert_eq!(kept.multipart, 9 * DAY);
        let off = terms(&theirs.0, &theirs.1, others("lossless", true, None));
        assert!(differences(&off, &agreed).is_empty(), "without S3 there is no root to agree on");
    }
}

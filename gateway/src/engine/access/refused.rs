//! Who was refused what, for the audit: the first refusal of each within a second, and all others of the same minute as one
//! entry. So whoever asks for what it may not have cannot fill the ledger.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fence_core::ports::{AuditAction, AuditEntry, By, Ledger, Request, Runtime};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::engine::metrics;

/// How often what is new is written down.
const INTERVAL: Duration = Duration::from_secs(1);
/// For how long further refusals of the same are only counted.
const COUNTED_FOR: Duration = Duration::from_secs(60);
/// Callers refused for one action that are counted apart; further ones are not written down. Each action has places of its
/// own, so that those who guess keep no principal's refusals out.
const COUNTED_MAX: usize = 256;
/// More of an explanation is not kept.
const DETAIL_CHARS_MAX: usize = 200;

/// Who was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// `Denied` or `AuthFailed`.
    pub action: AuditAction,
    /// The principal; of somebody unknown, the address or the network that counts as one peer.
    pub who: String,
    /// What they were told.
    pub detail: String,
    /// On whose behalf.
    pub by: By,
    /// The request.
    pub request: Request,
}

struct Counted {
    entry: AuditEntry,
    since: Duration,
    is_written: bool,
    /// How many were not written down yet.
    times: u64,
}

impl Counted {
    /// What is to be written down of it, which it then is.
    fn entry(&mut self) -> AuditEntry {
        let detail = self.entry.reason.as_deref().unwrap_or_default();
        let reason = match (self.is_written, self.times) {
            (false, 1) => detail.to_owned(),
            (false, times) => format!("{detail}; refused {times} times, for this first"),
            (true, 1) => format!("refused once more within a minute of: {detail}"),
            (true, times) => format!("refused {times} times more within a minute of: {detail}"),
        };
        (self.is_written, self.times) = (true, 0);
        AuditEntry { reason: Some(reason), ..self.entry.clone() }
    }
}

/// Those of the last minute.
#[derive(Default)]
pub(super) struct Refusals(Mutex<BTreeMap<(&'static str, String), Counted>>);

impl Refusals {
    pub(super) fn note(&self, refused: Refused, runtime: &Runtime) {
        let Refused { action, who, detail, by, request } = refused;
        let mut all = self.0.lock();
        let key = (action.as_str(), who);
        if let Some(counted) = all.get_mut(&key) {
            counted.times += 1;
            return;
        }
        if all.keys().filter(|(of, _)| *of == key.0).count() >= COUNTED_MAX {
            ::metrics::counter!(metrics::AUDIT_REFUSALS_DROPPED).increment(1);
            return;
        }
        let detail: String = detail.chars().take(DETAIL_CHARS_MAX).collect();
        let request_id = request.request_id.clone();
        let entry = AuditEntry {
            owner: by.principal().map(ToString::to_string),
            request_id: Some(request_id),
            asked: by.asked_by(Some(Arc::new(request))).asked(),
            ..AuditEntry::because(action, runtime.clock.now(), &detail)
        };
        let since = runtime.clock.elapsed();
        all.insert(key, Counted { entry, since, is_written: false, times: 1 });
    }

    /// What is to be written down now. With `all`, all that was counted.
    fn due(&self, now: Duration, all: bool) -> Vec<AuditEntry> {
        let mut due = Vec::new();
        self.0.lock().retain(|_, counted| {
            let is_over = all || now.saturating_sub(counted.since) >= COUNTED_FOR;
            if counted.times > 0 && (is_over || !counted.is_written) {
                due.push(counted.entry());
            }
            !is_over
        });
        due
    }

    /// Has them written down, until the gateway closes.
    pub(super) async fn write_down(
        self: Arc<Self>,
        ledger: Arc<dyn Ledger>,
        runtime: Runtime,
        closing: CancellationToken,
    ) {
        loop {
            let pause = runtime.clock.sleep(INTERVAL);
            let is_last = closing.run_until_cancelled(pause).await.is_none();
            let due = self.due(runtime.clock.elapsed(), is_last);
            let count = due.len() as u64;
            if count > 0
                && let Err(error) = ledger.record_refused(due.into()).await
            {
                tracing::warn!(%error, count, "who was refused is not in the audit");
                ::metrics::counter!(metrics::AUDIT_REFUSALS_DROPPED).increment(count);
            }
            if is_last {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::runtime;
    use tokio_util::task::TaskTracker;

    #[tokio::test]
    async fn the_first_is_written_at_once_and_the_rest_of_its_minute_together() {
        let (refusals, runtime) = (Refusals::default(), runtime(TaskTracker::new()));
        let refuse = |action: AuditAction, who: &str| {
            let (who, detail) = (who.to_owned(), format!("{who} may not"));
            let request = Request { peer: None, request_id: "r".into(), gateway_request_id: None };
            let by = By::default();
            refusals.note(Refused { action, who, detail, by, request }, &runtime);
        };
        let due = |seconds: u64, all: bool| -> Vec<String> {
            let now = runtime.clock.elapsed() + Duration::from_secs(seconds);
            refusals.due(now, all).into_iter().filter_map(|entry| entry.reason).collect()
        };
        refuse(AuditAction::Denied, "ann");
        refuse(AuditAction::Denied, "bob");
        refuse(AuditAction::Denied, "bob");
        assert_eq!(due(0, false), ["ann may not", "bob may not; refused 2 times, for this first"]);
        refuse(AuditAction::Denied, "ann");
        assert!(due(30, false).is_empty(), "it is only counted");
        assert_eq!(due(61, false), ["refused once more within a minute of: ann may not"]);
        refuse(AuditAction::Denied, "ann");
        assert_eq!(due(0, true), ["ann may not"], "anew, and at the end all");
        for number in 0..=COUNTED_MAX {
            refuse(AuditAction::AuthFailed, &number.to_string());
        }
        refuse(AuditAction::Denied, "ann");
        let due = due(0, true);
        assert_eq!(due.len(), COUNTED_MAX + 1, "those who guess have places of their own");
        assert!(due.iter().any(|reason| reason == "ann may not"), "{due:?}");
    }
}

//! The names of the engine's metrics, and what they mean.

use fence_core::{ErrorCode, LockEnd};
use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};

/// Items in a batch, by act.
pub(super) const BATCH_ITEMS: &str = "fencegate_batch_items";
/// Writes by outcome.
pub(super) const WRITES: &str = "fencegate_writes_total";
/// Refused writes by reason.
pub(super) const REJECTIONS: &str = "fencegate_rejections_total";
/// Refused writes that were counted but not kept.
pub(super) const REJECTIONS_DROPPED: &str = "fencegate_rejections_dropped_total";
/// Writes that were refused again without asking the ledger.
pub(super) const REFUSED_AGAIN: &str = "fencegate_refused_from_memory_total";
/// How many grants behind a refused token was.
pub(super) const TOKEN_LAG: &str = "fencegate_token_lag_grants";
/// How long ago a refused token had been superseded.
pub(super) const SUPERSEDED_SECONDS: &str = "fencegate_superseded_seconds";
/// From a write's arrival in the engine to its verdict.
pub(super) const COMMIT_SECONDS: &str = "fencegate_commit_seconds";
/// The generation of the rules of access that this gateway knows.
pub(super) const ACCESS_GENERATION: &str = "fencegate_access_generation";
/// How often the rules of access were read anew, and what came of it.
pub(super) const ACCESS_RELOADS: &str = "fencegate_access_reloads_total";
/// Calls that the rules of access refused, by action.
pub(super) const DENIED: &str = "fencegate_denied_total";
/// Refused callers who are not in the audit.
pub(super) const AUDIT_REFUSALS_DROPPED: &str = "fencegate_audit_refusals_dropped_total";
/// Entries of the audit that are in its tree.
pub(super) const AUDIT_SIZE: &str = "fencegate_audit_size";
/// How far the numbers of the audit are ahead of its tree.
pub(super) const AUDIT_UNSEALED: &str = "fencegate_audit_unsealed";
/// How often a checkpoint could not be kept at a place outside of the ledger.
pub(super) const AUDIT_KEEP_FAILURES: &str = "fencegate_audit_witness_failures_total";
/// How long such a place has not had the newest one.
pub(super) const AUDIT_CHECKPOINT_AGE: &str = "fencegate_audit_checkpoint_age_seconds";
/// Acquisitions by outcome.
pub(super) const ACQUISITIONS: &str = "fencegate_acquisitions_total";
/// Fences without a lock, by outcome.
pub(super) const FENCES: &str = "fencegate_fences_total";
/// From an acquisition's arrival in the engine to its answer.
pub(super) const ACQUIRE_SECONDS: &str = "fencegate_acquire_seconds";
/// Callers that wait for a lock at this gateway.
pub(super) const WAITERS: &str = "fencegate_waiters";
/// Renewals by outcome.
pub(super) const RENEWALS: &str = "fencegate_renewals_total";
/// Renewals that failed, by reason.
pub(super) const RENEW_FAILURES: &str = "fencegate_renew_failures_total";
/// Breaks.
pub(super) const BREAKS: &str = "fencegate_breaks_total";
/// Grants whose answers could not be written out, by what became of them.
pub(super) const UNDELIVERED: &str = "fencegate_undelivered_grants_total";
/// Marks that changed something.
pub(super) const MARKS: &str = "fencegate_marks_total";
/// How long locks were held, by how they ended.
pub(super) const HOLD_SECONDS: &str = "fencegate_lock_hold_seconds";
/// Requests forwarded, by upstream and class of status.
pub(super) const UPSTREAM_REQUESTS: &str = "fencegate_upstream_requests_total";
/// Intents that are open in the ledger.
pub(super) const INTENTS_OPEN: &str = "fencegate_upstream_intents_open";
/// For how long the oldest of them has been open.
pub(super) const INTENT_OLDEST: &str = "fencegate_upstream_intent_oldest_seconds";
/// From a seal to the lock being in force.
pub(super) const DRAIN_SECONDS: &str = "fencegate_drain_seconds";
/// New epochs begun by this gateway.
pub(super) const EPOCH_SWITCHES: &str = "fencegate_epoch_switches_total";
/// Refused tokens that were above all that were ever granted.
pub(super) const TOKENS_AHEAD: &str = "fencegate_tokens_ahead_total";
/// Good signatures under a token above all that were ever granted.
pub(super) const KEYS_AHEAD: &str = "fencegate_keys_ahead_total";
/// Re-fences by this gateway.
pub(super) const REFENCES: &str = "fencegate_refences_total";
/// Adoptions by this gateway.
pub(super) const ADOPTIONS: &str = "fencegate_adoptions_total";
/// Rows that the sweeper removed or settled.
pub(super) const SWEPT: &str = "fencegate_swept_rows_total";
/// For how long the sweeper has been at it without catching up.
pub(super) const SWEEP_BEHIND: &str = "fencegate_sweep_behind_seconds";

/// Lag of the ledger's own time behind its clock.
pub(super) const OWN_TIME_BEHIND: &str = "fencegate_own_time_behind_seconds";

/// Bytes uploaded into the blob store.
pub(super) const UPLOADED_BYTES: &str = "fencegate_blob_uploaded_bytes_total";
/// Uploads that were given up.
pub(super) const UPLOADS_GIVEN_UP: &str = "fencegate_blob_uploads_given_up_total";
/// Deletions of blobs; each blob is deleted twice.
pub(super) const BLOBS_DELETED: &str = "fencegate_blob_deletions_total";
/// Deletions that failed.
pub(super) const BLOB_DELETIONS_FAILED: &str = "fencegate_blob_deletions_failed_total";
/// Reads that found no blob where the ledger points.
pub(super) const BLOBS_MISSING: &str = "fencegate_blobs_missing_total";
/// Reads of blobs that were not what was stored.
pub(super) const BLOBS_DAMAGED: &str = "fencegate_blobs_damaged_total";

/// Counts a refused write.
pub fn count_rejection(reason: ErrorCode) {
    metrics::counter!(REJECTIONS, "reason" => reason.as_str()).increment(1);
}

/// Records how long a lock was held.
pub(super) fn record_hold(held_ms: i64, how: LockEnd) {
    let seconds = held_ms.max(0) as f64 / 1000.0;
    metrics::histogram!(HOLD_SECONDS, "end" => how.as_str()).record(seconds);
}

fn describe_audit() {
    describe_counter!(
        AUDIT_KEEP_FAILURES,
        "How often a checkpoint of the audit could not be kept outside of the ledger, by place"
    );
    describe_gauge!(
        AUDIT_CHECKPOINT_AGE,
        Unit::Seconds,
        "How long a place outside of the ledger has not had the newest checkpoint of the audit"
    );
    describe_gauge!(AUDIT_SIZE, "Entries of the audit that are in its tree");
    describe_gauge!(
        AUDIT_UNSEALED,
        "How far the numbers of the audit, some of which no entry has, are ahead of its tree"
    );
}

fn describe_upstreams() {
    describe_counter!(
        UPSTREAM_REQUESTS,
        "Requests forwarded, by upstream and class of status, or unreachable, timeout or failed"
    );
    describe_gauge!(INTENTS_OPEN, "Intents of drained upstreams that are open in the ledger");
    describe_gauge!(
        INTENT_OLDEST,
        Unit::Seconds,
        "For how long the oldest open intent has been open; one that stays open for long needs an operator"
    );
    describe_histogram!(
        DRAIN_SECONDS,
        Unit::Seconds,
        "How long callers waited for effects of older tokens after their lock was sealed"
    );
}

/// Tells the recorder what each metric means.
pub fn describe() {
    describe_audit();
    describe_upstreams();
    describe_histogram!(BATCH_ITEMS, Unit::Count, "Items in one batch to the ledger, by act");
    describe_counter!(WRITES, "Writes by outcome");
    describe_counter!(REJECTIONS, "Refused writes by reason (an error code)");
    describe_counter!(
        TOKENS_AHEAD,
        "Refused tokens above all that were ever granted: made up, or the ledger went back"
    );
    describe_counter!(
        KEYS_AHEAD,
        "Good signatures by S3 keys of locks whose tokens are above all that were ever granted: the ledger went back"
    );
    describe_counter!(
        REJECTIONS_DROPPED,
        "Refused writes counted here but not kept for /rejections"
    );
    describe_counter!(
        REFUSED_AGAIN,
        "Writes refused from memory, since the same token had been refused for good there before"
    );
    describe_histogram!(TOKEN_LAG, Unit::Count, "How many grants behind a refused token was");
    describe_histogram!(
        SUPERSEDED_SECONDS,
        Unit::Seconds,
        "How long ago a refused token had been superseded"
    );
    describe_histogram!(COMMIT_SECONDS, Unit::Seconds, "From a write's arrival to its verdict");
    describe_gauge!(
        ACCESS_GENERATION,
        "The generation of the rules of access that this gateway knows; 0: there are none"
    );
    describe_counter!(
        ACCESS_RELOADS,
        "How often this gateway read the rules of access anew, and what came of it"
    );
    describe_counter!(AUDIT_REFUSALS_DROPPED, "Refused callers who are not in the audit");
    describe_counter!(DENIED, "Calls that the rules of access refused, by action");
    describe_counter!(ACQUISITIONS, "Acquisitions by outcome; held means contention");
    describe_counter!(FENCES, "Fences set without a lock, by outcome");
    describe_histogram!(
        ACQUIRE_SECONDS,
        Unit::Seconds,
        "From an acquisition's arrival to its answer"
    );
    describe_gauge!(WAITERS, "Callers that wait for a lock at this gateway");
    describe_counter!(RENEWALS, "Renewals by outcome");
    describe_counter!(RENEW_FAILURES, "Renewals that failed, by reason (an error code)");
    describe_counter!(BREAKS, "Locks broken by an operator");
    describe_counter!(
        EPOCH_SWITCHES,
        "New epochs that this gateway began because the mint had lost its place"
    );
    describe_counter!(
        REFENCES,
        "Re-fences by this gateway, each of which voided all tokens granted before"
    );
    describe_counter!(
        ADOPTIONS,
        "New timelines of the ledger that this gateway took over, with all tokens"
    );
    describe_counter!(
        UNDELIVERED,
        "Grants whose answers could not be written out: released, ended, taken_up by their callers \
         after all, or left until it expires"
    );
    describe_counter!(
        SWEPT,
        "Rows that the sweeper removed, or settled, because their time was over"
    );
    describe_gauge!(
        SWEEP_BEHIND,
        Unit::Seconds,
        "For how long the sweeper has been removing rows without catching up; 0 once it has"
    );
    describe_gauge!(
        OWN_TIME_BEHIND,
        Unit::Seconds,
        "How far the ledger's own time, by which it forgets, is behind its clock"
    );
    describe_counter!(UPLOADED_BYTES, Unit::Bytes, "Bytes uploaded into the blob store");
    describe_counter!(
        UPLOADS_GIVEN_UP,
        "Uploads that were not committed in time and became garbage"
    );
    describe_counter!(BLOBS_DELETED, "Blobs deleted from the store; each is deleted twice");
    describe_counter!(
        BLOB_DELETIONS_FAILED,
        "Deletions that the blob store refused; tried again later"
    );
    describe_counter!(
        BLOBS_MISSING,
        "Reads that found no blob where the ledger points: alert on it"
    );
    describe_counter!(
        BLOBS_DAMAGED,
        "Whole reads of blobs whose bytes were not those that were stored, and that were cut off: alert on it"
    );
    describe_counter!(MARKS, "Resources frozen, unfrozen, protected or unprotected by an operator");
    describe_histogram!(HOLD_SECONDS, Unit::Seconds, "How long locks were held, by how they ended");
}

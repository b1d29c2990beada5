//! Mutants: ways to break the promise on purpose, so that tests can show that they would notice.
//!
//! Without the feature `mutants`, [`is`] is constantly `false` and leaves nothing in a binary. With it,
//! one mutant at a time can be switched on for a thread. A server that was built with it refuses to start.

/// A way to break the promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mutant {
    /// A token is given out before the fence is raised, which the first write under it does.
    SealAtFirstWrite,
    /// A token equal to the one that was sealed last is sealed again.
    SealEqualToken,
    /// Grants that are minted together get one number, and the ledger takes it.
    OneNumberForAll,
    /// A lock on several resources is given out although some are held by others.
    SealWhatIsFree,
    /// A new epoch of the mint begins with the old base.
    EpochKeepsBase,
    /// A token above the fence is admitted like the one that was sealed.
    TokenAtLeast,
    /// A token is admitted whoever presents it.
    NoPrincipal,
    /// Whoever may write under a lock may also renew it.
    WritersMayRenew,
    /// What was allowed under older rules still has its effect.
    StaleRulesAdmitted,
    /// What was read under older rules is sent without asking those that are in force.
    ReadsSkipGeneration,
    /// Who a caller is, and what it may do, is kept when the rules change.
    MemoAcrossGenerations,
    /// A sequence number that does not rise is admitted.
    NoSequence,
    /// The version that a write demands is not looked at.
    NoPrecondition,
    /// The token of a lock that was given back or broken is still admitted.
    EndedLockWrites,
    /// Tokens from before a re-fence are not void.
    NoFloor,
    /// A ledger that went back goes on without a re-fence.
    NoGuard,
    /// A server of the ledger that was started anew takes acts before anybody has looked at it.
    StartUnasked,
    /// A ledger that lacks the milestone that the mint knows is taken for the one that it was.
    MilestoneUnasked,
    /// All writes of a batch are judged on what was before the batch.
    BatchOnOldState,
    /// An idempotency key is not looked up under the fence's lock.
    NoReplay,
    /// A refusal is kept under the idempotency key of its write.
    KeepRefusals,
    /// An idempotency key gives the first answer for any payload.
    AnyPayload,
    /// An operation that was buried can still take effect.
    NoBurial,
    /// After a lost answer an operation that the ledger does not have (yet) is taken for not applied.
    AbsentIsNotApplied,
    /// After a lost answer a write is sent again under a new id.
    RerunUnderNewId,
    /// An unknown outcome is told as a refusal.
    UnknownIsRefused,
    /// A caller whose time is up takes back what has been sent already.
    TakeBackWhatIsSent,
    /// Reads are served from a copy that lags behind.
    ReadsLag,
    /// A blob is committed although its upload was given up.
    CommitWithoutIntent,
    /// Blobs are deleted whose upload takes long, and can still be committed.
    DeleteUploadsUnderWay,
    /// Replaced blobs are not kept for a ledger that goes back.
    NoRollbackHorizon,
    /// A lock is in force although something of older tokens is under way at an upstream.
    NoDraining,
    /// An intent is closed before its request is forwarded.
    CloseBeforeForward,
    /// A re-fence puts no upstream in doubt.
    NoDoubts,
    /// An intent that somebody has closed is taken for a request that was never sent.
    ClosedIsNotApplied,
    /// An upload in parts is completed without asking the rule.
    CompleteUnjudged,
    /// The intent of an upload in parts stays when it is completed.
    UploadNotConsumed,
    /// A part is stored although its upload is over.
    PartAfterTheEnd,
    /// The parts of an object are garbage once it is complete.
    PartsGoEarly,
    /// An upload becomes garbage without its parts.
    PartsStay,
    /// An upload in parts is ended without asking the rule.
    AbortUnjudged,
    /// A part that was begun earlier takes the place of a later one.
    EarlierPartCounts,
    /// Parts that were not named when an upload was completed stay the object's.
    UnnamedPartsKept,
    /// A part is stored without asking the rule.
    PartUnjudged,
    /// What an older copy of the ledger may have in an upload that goes on is deleted at once.
    PartsGoAtOnce,
    /// What S3 tells of an object is kept when another takes its place.
    AboutKept,
    /// Idempotency keys of two spaces meet.
    KeySpacesMeet,
    /// Stamps are by the clock, also by one that went back.
    StampsByClock,
    /// The clock tells what has been kept long enough, also one that is ahead.
    ForgetsByClock,
    /// The times that several gateways have known one pass add up.
    TimesAddUp,
    /// A rerun is applied or buried, although the ledger may have let go of what became of it.
    RerunPastHorizon,
}

impl Mutant {
    /// Those that random runs notice, and what each does.
    pub const ALL: &[(Self, &str)] = &[
        (
            Self::SealAtFirstWrite,
            "a token is given out before the fence is raised, which the first write under it does",
        ),
        (Self::SealEqualToken, "a token equal to the one that was sealed last is sealed again"),
        (
            Self::OneNumberForAll,
            "grants that are minted together get one number, and the ledger takes it",
        ),
        (
            Self::SealWhatIsFree,
            "a lock on several resources is given out although some are held by others",
        ),
        (Self::EpochKeepsBase, "a new epoch of the mint begins with the old base"),
        (Self::TokenAtLeast, "a token above the fence is admitted like the one that was sealed"),
        (Self::NoPrincipal, "a token is admitted whoever presents it"),
        (Self::WritersMayRenew, "whoever may write under a lock may also renew it"),
        (Self::StaleRulesAdmitted, "what was allowed under older rules still has its effect"),
        (
            Self::ReadsSkipGeneration,
            "what was read under older rules is sent without asking those that are in force",
        ),
        (
            Self::MemoAcrossGenerations,
            "who a caller is, and what it may do, is kept when the rules change",
        ),
        (Self::NoSequence, "a sequence number that does not rise is admitted"),
        (Self::NoPrecondition, "the version that a write demands is not looked at"),
        (
            Self::EndedLockWrites,
            "the token of a lock that was given back or broken is still admitted",
        ),
        (Self::NoFloor, "tokens from before a re-fence are not void"),
        (Self::NoGuard, "a ledger that went back goes on without a re-fence"),
        (
            Self::StartUnasked,
            "a server of the ledger that was started anew takes acts before anybody has looked at it",
        ),
        (
            Self::MilestoneUnasked,
            "a ledger that lacks the milestone that the mint knows is taken for the one that it was",
        ),
        (Self::BatchOnOldState, "all writes of a batch are judged on what was before the batch"),
        (Self::NoReplay, "an idempotency key is not looked up under the fence's lock"),
        (Self::KeepRefusals, "a refusal is kept under the idempotency key of its write"),
        (Self::AnyPayload, "an idempotency key gives the first answer for any payload"),
        (Self::NoBurial, "an operation that was buried can still take effect"),
        (
            Self::AbsentIsNotApplied,
            "after a lost answer an operation that the ledger does not have (yet) is taken for not applied",
        ),
        (Self::RerunUnderNewId, "after a lost answer a write is sent again under a new id"),
        (Self::UnknownIsRefused, "an unknown outcome is told as a refusal"),
        (
            Self::TakeBackWhatIsSent,
            "a caller whose time is up takes back what has been sent already",
        ),
        (Self::ReadsLag, "reads are served from a copy that lags behind"),
        (Self::CommitWithoutIntent, "a blob is committed although its upload was given up"),
        (
            Self::DeleteUploadsUnderWay,
            "blobs are deleted whose upload takes long, and can still be committed",
        ),
        (Self::NoRollbackHorizon, "replaced blobs are not kept for a ledger that goes back"),
        (
            Self::NoDraining,
            "a lock is in force although something of older tokens is under way at an upstream",
        ),
        (Self::CloseBeforeForward, "an intent is closed before its request is forwarded"),
        (Self::NoDoubts, "a re-fence puts no upstream in doubt"),
        (
            Self::ClosedIsNotApplied,
            "an intent that somebody has closed is taken for a request that was never sent",
        ),
        (Self::CompleteUnjudged, "an upload in parts is completed without asking the rule"),
        (Self::UploadNotConsumed, "the intent of an upload in parts stays when it is completed"),
        (Self::PartAfterTheEnd, "a part is stored although its upload is over"),
        (Self::PartsGoEarly, "the parts of an object are garbage once it is complete"),
        (Self::PartsStay, "an upload becomes garbage without its parts"),
        (Self::ForgetsByClock, "what makes an outcome known is forgotten by a clock that is ahead"),
        (
            Self::RerunPastHorizon,
            "a rerun is decided although the ledger may have let go of what became of it",
        ),
    ];

    /// Those that cases of the conformance suite notice, and what each does.
    pub const OF_CASES: &[(Self, &str)] = &[
        (Self::AbortUnjudged, "an upload in parts is ended without asking the rule"),
        (Self::EarlierPartCounts, "a part that was begun earlier takes the place of a later one"),
        (
            Self::UnnamedPartsKept,
            "parts that were not named when an upload was completed stay the object's",
        ),
        (Self::PartUnjudged, "a part is stored without asking the rule"),
        (
            Self::PartsGoAtOnce,
            "what an older copy of the ledger may have in an upload that goes on is deleted at once",
        ),
        (Self::AboutKept, "what S3 tells of an object is kept when another takes its place"),
        (Self::KeySpacesMeet, "idempotency keys of two spaces meet"),
        (Self::StampsByClock, "what is kept for a while is stamped by a clock that went back"),
        (Self::TimesAddUp, "the times that several gateways have known one pass add up"),
    ];
}

/// Whether mutants can be switched on in this build.
pub const COMPILED_IN: bool = cfg!(feature = "mutants");

#[cfg(feature = "mutants")]
thread_local! {
    static ON: std::cell::Cell<Option<Mutant>> = const { std::cell::Cell::new(None) };
}

/// Switches a mutant on, or all off, for this thread.
#[cfg(feature = "mutants")]
pub fn switch(on: Option<Mutant>) {
    ON.set(on);
}

/// Whether this mutant is on.
#[cfg(feature = "mutants")]
pub fn is(mutant: Mutant) -> bool {
    ON.get() == Some(mutant)
}

/// Whether this mutant is on: never.
#[cfg(not(feature = "mutants"))]
pub const fn is(_: Mutant) -> bool {
    false
}

//! Mutants: ways to break the promise on purpose, so that tests can show that they would notice.
//!
//! Without the feature `mutants`, [`is`] is constantly `false` and leaves nothing in a binary. With it,
//! one mutant at a time can be switched on for a thread. A server that was built with it refuses to start.

/// A way to break the promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mutant {
    /// A token is given out before the fence is raised, which the first write under it does.
    SealAtFirstWrite,
    /// A token above the fence is admitted like the one that was sealed.
    TokenAtLeast,
    /// A sequence number that does not rise is admitted.
    NoSequence,
    /// A broken or released lock's token is still admitted.
    EndedLockWrites,
    /// Tokens from before a re-fence are not void.
    NoFloor,
    /// A lock on several resources takes those that are free.
    SealWhatIsFree,
    /// A seal under a past epoch of the mint is taken.
    NoEpoch,
    /// A ledger that went back goes on without a re-fence.
    NoGuard,
    /// Two writes of one batch are both judged on what was before the batch.
    BatchOnOldState,
    /// An idempotency key is looked up, but not by a rerun.
    NoReplay,
    /// What a refused write was told is kept under its idempotency key.
    KeepRefusals,
    /// The same key for another payload gets the first one's answer.
    AnyPayload,
    /// A late first sending of an operation that was buried is applied.
    NoBurial,
    /// After a lost answer an operation that the ledger does not have is taken for not applied.
    AbsentIsNotApplied,
    /// After a lost connection a batch is sent again under new ids.
    RerunUnderNewId,
    /// A lost answer is told as a refusal.
    UnknownIsRefused,
    /// A caller whose time is up takes back what has been sent already.
    TakeBackWhatIsSent,
    /// A blob is committed although its intent was given up.
    CommitWithoutIntent,
    /// Uploads that take too long are deleted, and their intents stay.
    DeleteUploadsUnderWay,
    /// Replaced blobs are deleted at once.
    NoReaderGrace,
    /// Replaced blobs are not kept for a rollback.
    NoRollbackHorizon,
    /// Garbage is deleted once only.
    DeleteOnce,
    /// A lock is in force although something of older tokens is under way at an upstream.
    NoDraining,
    /// An intent is closed before its request is forwarded.
    CloseBeforeForward,
    /// Upstreams are not put in doubt by a re-fence.
    NoDoubts,
    /// A new epoch of the mint begins with the old base.
    EpochKeepsBase,
    /// A write under a token is admitted without looking at the version that it demands.
    NoPrecondition,
    /// A renewal revives a lock that was taken over.
    RenewWhatIsLost,
    /// A transfer leaves the old lock's token good.
    TransferKeepsOld,
}

impl Mutant {
    /// All.
    pub const ALL: &[Self] = &[
        Self::SealAtFirstWrite,
        Self::TokenAtLeast,
        Self::NoSequence,
        Self::EndedLockWrites,
        Self::NoFloor,
        Self::SealWhatIsFree,
        Self::NoEpoch,
        Self::NoGuard,
        Self::BatchOnOldState,
        Self::NoReplay,
        Self::KeepRefusals,
        Self::AnyPayload,
        Self::NoBurial,
        Self::AbsentIsNotApplied,
        Self::RerunUnderNewId,
        Self::UnknownIsRefused,
        Self::TakeBackWhatIsSent,
        Self::CommitWithoutIntent,
        Self::DeleteUploadsUnderWay,
        Self::NoReaderGrace,
        Self::NoRollbackHorizon,
        Self::DeleteOnce,
        Self::NoDraining,
        Self::CloseBeforeForward,
        Self::NoDoubts,
        Self::EpochKeepsBase,
        Self::NoPrecondition,
        Self::RenewWhatIsLost,
        Self::TransferKeepsOld,
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

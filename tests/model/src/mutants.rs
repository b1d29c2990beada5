//! Ways to break a model on purpose. A checker that never found anything proves nothing: each of these
//! must be caught, or the models are too weak.

/// One way to build Fencegate wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutant {
    /// The token is given out as it was minted, and sealed with the first write under it.
    SealAtFirstWrite,
    /// A token above the fence is admitted, too.
    AtLeastTheFence,
    /// The gateway asks the rule, and then writes, in two steps.
    CheckThenWrite,
    /// Sequence numbers are not looked at.
    NoSequence,
    /// The idempotency key is looked up before the fence is locked, and not after.
    KeyReadBeforeLock,
    /// After a lost connection an operation that is not there is told to have had no effect.
    AbsentIsNotApplied,
    /// A rerun that is refused leaves its id as it is.
    RefusedButNotBuried,
    /// A lock on two resources is sealed on each by itself.
    OneByOne,
    /// What is at or below the floor is admitted.
    NoFloor,
    /// Acts do not compare the timeline of the guard with the server's.
    NoTimelineGuard,
    /// The seal does not compare the epoch.
    NoEpoch,
    /// The mint numbers grants whatever its nonce is, and the seal takes any number.
    NumberMayFall,
    /// A re-fence goes to the highest token that anybody remembers, and no further.
    NoJump,
    /// A re-fence does not ask the calendar how far earlier ones may have gone.
    NoCalendar,
    /// Blobs are collected by looking for those that no object points at.
    NaiveCollector,
    /// The commit does not ask for the intent.
    IntentNotConsumed,
    /// A replaced blob is garbage at once.
    NoHorizon,
    /// Garbage is handed out right after a re-fence.
    NoPause,
    /// The collector does not ask the guard.
    CollectorUnguarded,
    /// Blobs that are being read from are collected.
    PinsIgnored,
    /// Garbage is deleted once.
    DeletedOnce,
    /// Open intents are read before the fence is locked.
    IntentsReadBeforeLock,
    /// The token is given out although the lock still drains.
    GivenWhileDraining,
    /// The intent is closed when the gateway is tired of waiting for the upstream.
    ClosedOnTimeout,
    /// An intent that was closed is not kept.
    ClosedAndForgotten,
    /// An intent that an operator has closed is taken for a request that was never sent.
    ClosedIsNotApplied,
    /// A re-fence does not put upstreams in doubt.
    NoDoubt,
    /// An operator says that nothing is under way, without knowing.
    OperatorGuesses,
    /// A token is admitted whoever presents it.
    NoPrincipal,
    /// Whoever may write under a lock may also renew it.
    WritersMayRenew,
    /// What was allowed under older rules still has its effect.
    StaleRulesAdmitted,
    /// A gateway allows by the rules that it knows, and reads the generation when it sends.
    GenerationReadApart,
    /// What older rules had allowed is sent again under newer ones without asking these.
    SentAgainUnasked,
    /// What newer rules deny is told to be denied although it was sent before and its answer lost.
    LostIsDenied,
    /// The generation of rules only counts on, also after a re-fence.
    RulesRecur,
    /// A part is stored although its upload is over.
    PartAfterTheEnd,
    /// Of two parts under one number the one counts whose statement came last.
    LastStatementCounts,
    /// The rule is not asked when an upload is completed.
    CompleteUnjudged,
    /// The rule is asked before an abort, and not by the act.
    AbortUnjudged,
    /// The rule is asked as a part is begun, and not as it is stored.
    PartUnjudged,
    /// The intent of an upload is not consumed with its completion.
    UploadNotConsumed,
    /// An upload that is completed again is not found by its key.
    NoReplay,
    /// Parts that were not named stay the object's.
    UnnamedKept,
    /// Parts that were named become garbage.
    NamedDiscarded,
    /// A completion that is refused since parts differ drops the parts.
    RefusedDropsParts,
    /// An upload becomes garbage without its parts.
    PartsStay,
    /// Parts that are nobody's any more are deleted at once, and not after the rollback horizon.
    PartsGoAtOnce,
}

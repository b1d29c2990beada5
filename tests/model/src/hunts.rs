//! Which model catches which mutant by which invariant.

use crate::catalogue::{Entry, models};
use crate::mutants::Mutant;

/// A mutant, and what must find it. Each mutant is hunted, and each invariant of each kind of model has one
/// that breaks it.
#[derive(Debug, Clone, Copy)]
pub struct Hunt {
    /// The mutant.
    pub mutant: Mutant,
    /// The model that catches it.
    pub model: &'static str,
    /// The invariant that it breaks.
    pub breaks: &'static str,
}

/// All mutants.
pub const HUNTS: &[Hunt] = &[
    hunt(Mutant::SealAtFirstWrite, "takeover", "I5 what a new holder reads is final"),
    hunt(Mutant::SealAtFirstWrite, "takeover", "I1 a token in a client's hand is a grant"),
    hunt(Mutant::AtLeastTheFence, "takeover", "I6 each write is fenced"),
    hunt(Mutant::CheckThenWrite, "takeover", "I3 tokens never fall"),
    hunt(Mutant::NoSequence, "takeover", "I4 sequences rise"),
    hunt(Mutant::KeyReadBeforeLock, "lost answers", "I7 a key has one effect"),
    hunt(Mutant::AbsentIsNotApplied, "lost answers", "I8 verdicts are true"),
    hunt(Mutant::RefusedButNotBuried, "lost answers", "I8 verdicts are true"),
    hunt(Mutant::OneByOne, "two resources", "all resources of a lock, or none"),
    hunt(Mutant::NoFloor, "ledger rolled back", "I3 nothing older takes effect"),
    hunt(Mutant::NoTimelineGuard, "ledger rolled back", "I3 nothing older takes effect"),
    hunt(
        Mutant::NoTimelineGuard,
        "ledger rolled back",
        "I12 a ledger that lost commits takes nothing",
    ),
    hunt(Mutant::NoEpoch, "etcd restored", "I11 no seal under a past epoch"),
    hunt(Mutant::NumberMayFall, "takeover", "I2 a fence never falls"),
    hunt(Mutant::NumberMayFall, "etcd restored", "I2 a fence never falls"),
    hunt(Mutant::NoJump, "both", "I2 a fence never falls"),
    hunt(Mutant::NoJump, "both", "I1 a token in a client's hand was sealed once"),
    hunt(Mutant::NoCalendar, "both, the ledger twice", "I2 a fence never falls"),
    hunt(Mutant::NaiveCollector, "blobs and readers", "I9 no pointer dangles"),
    hunt(Mutant::IntentNotConsumed, "blobs and readers", "I9 no pointer dangles"),
    hunt(Mutant::IntentNotConsumed, "blobs and readers", "I9 no reader finds a blob missing"),
    hunt(Mutant::NoHorizon, "blobs rolled back", "I9 no version that is kept dangles"),
    hunt(Mutant::NoHorizon, "blobs rolled back", "I9 no pointer dangles"),
    hunt(Mutant::NoPause, "blobs rolled back", "I9 no pointer dangles"),
    hunt(Mutant::CollectorUnguarded, "blobs rolled back", "I9 no pointer dangles"),
    hunt(Mutant::PinsIgnored, "blobs and readers", "what is pinned stays"),
    hunt(Mutant::DeletedOnce, "blobs and readers", "nothing in the store is forgotten"),
    hunt(Mutant::CompleteUnjudged, ENDS, "I6 parts, completions and aborts are fenced"),
    hunt(Mutant::AbortUnjudged, ENDS, "I6 parts, completions and aborts are fenced"),
    hunt(Mutant::PartUnjudged, ENDS, "I6 parts, completions and aborts are fenced"),
    hunt(Mutant::RefusedDropsParts, ENDS, "a refused completion changes nothing"),
    hunt(Mutant::NoReplay, ENDS, "I7 a repeated completion is a replay"),
    hunt(Mutant::PartAfterTheEnd, ENDS, "I19 an object has the parts that were named"),
    hunt(Mutant::LastStatementCounts, "parts rolled back", "the part that was begun last counts"),
    hunt(Mutant::UnnamedKept, ENDS, "I19 an object has the parts that were named"),
    hunt(Mutant::NamedDiscarded, ENDS, "I19 no part of an object is garbage"),
    hunt(Mutant::UploadNotConsumed, ENDS, "I19 an object has the parts that were named"),
    hunt(Mutant::PartsStay, "parts and readers", "I19 no part is forgotten"),
    hunt(Mutant::PinsIgnored, "parts and readers", "what is pinned stays"),
    hunt(Mutant::NamedDiscarded, "parts and readers", "I9 no reader finds a part missing"),
    hunt(Mutant::PartsGoAtOnce, "parts rolled back", "I9 no part of an object is missing"),
    hunt(Mutant::NoFloor, "parts rolled back", "I9 no part of an object is missing"),
    hunt(Mutant::IntentsReadBeforeLock, "drained upstream", "I13 nothing older has an effect"),
    hunt(Mutant::GivenWhileDraining, "drained upstream", "I13 nothing older has an effect"),
    hunt(Mutant::ClosedOnTimeout, "drained upstream", "I13 nothing older has an effect"),
    hunt(Mutant::ClosedOnTimeout, "drained upstream", "I13 nothing older is under way"),
    hunt(
        Mutant::ClosedAndForgotten,
        "intents and lost answers",
        "what is over is not opened again",
    ),
    hunt(
        Mutant::ClosedIsNotApplied,
        "drained upstream",
        "I8 what is said not to be applied has no effect",
    ),
    hunt(Mutant::NoDoubt, "intents rolled back", "I13 nothing older has an effect"),
    hunt(Mutant::OperatorGuesses, "drained upstream", "I13 nothing older has an effect"),
    hunt(
        Mutant::NoPrincipal,
        "principals and writers",
        "I16 only its principal and its writers write",
    ),
    hunt(
        Mutant::WritersMayRenew,
        "principals and writers",
        "I16 only its principal changes a lock",
    ),
    hunt(
        Mutant::StaleRulesAdmitted,
        "roles and lost answers",
        "I16 only its principal and its writers write",
    ),
    hunt(Mutant::StaleRulesAdmitted, "rules that change", "I17 nothing denied takes effect"),
    hunt(
        Mutant::StaleRulesAdmitted,
        "rules that change",
        "I17 nothing allowed before takes effect",
    ),
    hunt(Mutant::GenerationReadApart, "rules that change", "I17 nothing denied takes effect"),
    hunt(Mutant::SentAgainUnasked, "rules that change", "I17 nothing denied takes effect"),
    hunt(Mutant::LostIsDenied, "roles and lost answers", "I8 verdicts are true"),
    hunt(Mutant::RulesRecur, "rules rolled back", "I17 nothing allowed before takes effect"),
];

const ENDS: &str = "parts and their ends";

const fn hunt(mutant: Mutant, model: &'static str, breaks: &'static str) -> Hunt {
    Hunt { mutant, model, breaks }
}

impl Hunt {
    /// The broken model; `None` if no model has that name.
    pub fn prey(&self) -> Option<Entry> {
        let model = models().into_iter().find(|entry| entry.name == self.model)?;
        Some(model.broken(self.mutant))
    }
}

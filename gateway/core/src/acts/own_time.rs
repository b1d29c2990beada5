//! The ledger's own time: whatever decides how long something is kept is stamped and forgotten by it.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::now::Now;
use crate::mutants::{self, Mutant};
use crate::ports::{AuditAction, AuditEntry, Boot, ClockTrusted, Pass, Passed};

/// The most that one pass brings, about 31 years.
const PASS_MAX: Duration = Duration::from_secs(1_000_000_000);

/// The ledger's own time. No jump of a clock moves it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnTime {
    /// The time.
    pub at: Timestamp,
    /// The number of the last pass.
    pub pass: i64,
    /// The boot of the machine whose gateway made it.
    pub boot: Option<Boot>,
    /// Operations that were stored, or buried, before this may have been let go. Never falls.
    pub let_go_before: Timestamp,
}

impl OwnTime {
    /// A ledger that begins at this time.
    pub fn beginning(at: Timestamp) -> Self {
        Self { at, pass: 0, boot: None, let_go_before: Timestamp::UNIX_EPOCH }
    }

    /// The time to stamp with what is kept for a while from now on: never below the own time, so that what is stamped by a
    /// clock that went back is not forgotten early.
    pub fn stamp(&self, now: Now) -> Timestamp {
        match mutants::is(Mutant::StampsByClock) {
            true => now.wall,
            false => now.wall.max(self.at),
        }
    }

    /// The time by which is forgotten what has been kept long enough.
    pub fn to_forget_by(&self, now: Now) -> Timestamp {
        match mutants::is(Mutant::ForgetsByClock) {
            true => now.wall,
            false => self.at,
        }
    }

    /// The own time at which something is due that is to be kept for so long: counted from the stamp, so that no setting of the
    /// own time by the clock cuts it short. What is kept for no time is due at once.
    pub fn due(&self, now: Now, kept: Duration) -> Timestamp {
        match kept.is_zero() {
            true => self.to_forget_by(now),
            false => self.stamp(now).checked_add(kept).unwrap_or(Timestamp::MAX),
        }
    }

    /// Lets go of what was stored before this: in the act that removes it.
    pub fn let_go(&mut self, before: Timestamp) {
        self.let_go_before = self.let_go_before.max(before);
    }

    /// Whether what became of an operation may have been let go, that was taken at this own time and is not known. What took
    /// effect is stamped with its own time or a later one, so what was taken since is not gone.
    pub fn has_let_go(&self, taken_at: Timestamp) -> bool {
        taken_at < self.let_go_before && !mutants::is(Mutant::RerunPastHorizon)
    }

    /// A pass: goes on by what has passed since the last one, never by what a clock says.
    ///
    /// 1. By proof: the last pass was made on the same boot of the same machine.
    /// 2. Else by the time for which the gateway has known the last pass. Of several gateways that come at once, one makes the
    ///    pass: their times do not add up.
    /// 3. Else nothing: the gateway knows this pass from now on.
    pub fn go_on(&mut self, passed: &Passed) {
        let same = |boot: &&Boot| passed.boot.as_ref().is_some_and(|own| own.id == boot.id);
        let last_up = self.boot.as_ref().filter(same).map(|boot| boot.up);
        let is_known = passed.pass == self.pass || mutants::is(Mutant::TimesAddUp);
        let by = match (&passed.boot, last_up) {
            // Step 1.
            (Some(own), Some(before)) => own.up.saturating_sub(before),
            // Step 2.
            _ if is_known => passed.since,
            // Step 3.
            _ => return,
        };
        let by = SignedDuration::try_from(by.min(PASS_MAX)).unwrap_or(SignedDuration::ZERO);
        self.at = self.at.checked_add(by).unwrap_or(self.at);
        self.pass += 1;
        self.boot = passed.boot.clone().map(|own| {
            let up = last_up.map_or(own.up, |before| before.max(own.up));
            Boot { up, ..own }
        });
    }

    /// Sets it by the ledger's clock, at an operator's word that this is right: where no gateway ran for long, nothing else
    /// tells what has passed.
    ///
    /// 1. `NotAhead`: nothing changes, since the own time never falls.
    /// 2. `Set`: a pass that no gateway knows, and on no boot. What has passed until then nobody adds again.
    /// 3. Its entry in the audit says from when to when, in front: a long reason cuts nothing of that off.
    pub fn trust_clock(&mut self, now: Now, reason: &str) -> (ClockTrusted, Option<AuditEntry>) {
        let verdict = ClockTrusted::of(self.at, now.wall);
        // Step 1.
        let ClockTrusted::Set { from, to } = &verdict else { return (verdict, None) };
        // Step 2.
        (self.at, self.pass, self.boot) = (*to, self.pass + 1, None);
        // Step 3.
        let told = |at: &Timestamp| at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let why = format!("own time {} -> {}: {reason}", told(from), told(to));
        let entry = AuditEntry::because(AuditAction::Agree, now.wall, &why);
        (verdict, Some(entry))
    }

    /// The last pass, at this time of the ledger's clock.
    pub fn told(&self, now: Now) -> Pass {
        let behind = now.wall.duration_since(self.at);
        let behind = Duration::try_from(behind).unwrap_or(Duration::ZERO);
        Pass { number: self.pass, at: self.at, behind }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_counts_from_the_later_one_of_clock_and_own_time() {
        let at = |second| Timestamp::constant(second, 0);
        let due = |own, clock, kept| {
            let now = Now { wall: at(clock), elapsed_ms: 0 };
            OwnTime::beginning(at(own)).due(now, Duration::from_secs(kept))
        };
        assert_eq!(due(10, 1000, 5), at(1005), "setting the own time by the clock leaves it 5 s");
        assert_eq!(due(1000, 10, 5), at(1005), "a clock that went back cuts nothing short");
        assert_eq!(due(10, 1000, 0), at(10), "at once");
    }
}

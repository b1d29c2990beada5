//! The guard and its clock (CC30 to CC38): what state it is in, when to renew, when to give the signal.
//!
//! ```text
//!   held ──deadline──> uncertain ──(on_uncertain = stop)──> lost(unconfirmed)
//!     └──the gateway says so──> lost(reason)      released <── release, from any state but lost
//! ```

use super::backoff::portion;
use crate::class::LossReason;

/// What a guard does whose deadline has passed without a renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnUncertain {
    /// The guard is lost: the work stops.
    #[default]
    Stop,
    /// The guard holds on, until the gateway says that it is lost. For work all of whose effects go through
    /// the gateway: a late write bounces.
    Hold,
}

/// In what state a guard is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Its deadline lies ahead.
    Held,
    /// Its deadline has passed, and nobody has said that it is lost.
    Uncertain,
    /// Lost for good.
    Lost(LossReason),
    /// Given back.
    Released,
}

/// Something that a guard learns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    /// A renewal was answered.
    Renewed {
        /// When it was handed to the transport.
        sent_ms: u64,
        /// What is left until the deadline, by the answer; `None`: it does not expire.
        left_ms: Option<u64>,
        /// The lock's ttl; `None`: for ever.
        ttl_ms: Option<u64>,
    },
    /// A renewal was not answered, or by something that is no gateway.
    RenewFailed,
    /// A gateway said that the lock is over, or the client knows.
    Lost(LossReason),
    /// An operator's break is due in so many milliseconds.
    Breaking {
        /// When that was asked.
        sent_ms: u64,
        /// Until then, from that on.
        left_ms: u64,
    },
    /// The holder gives it back.
    Release,
    /// The work is alive (CC38).
    Beat,
}

/// What is told to hooks, and not to the work (CC36).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Warning {
    /// Half of the time in which the lock is renewed again and again has gone by.
    Expiring {
        /// What is left until the deadline.
        left_ms: u64,
    },
    /// An operator is about to break it.
    Breaking {
        /// What is left until then.
        left_ms: u64,
    },
    /// It was uncertain, and was confirmed.
    Revived {
        /// For how long it was uncertain.
        lapsed_ms: u64,
    },
}

/// What follows from an input.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Effects {
    /// The signal, given once in the life of a guard (CC35).
    pub signal: Option<LossReason>,
    /// For the hooks.
    pub warnings: Vec<Warning>,
}

/// How a guard is to behave.
#[derive(Debug, Clone, Copy, Default)]
pub struct Terms {
    /// After its deadline.
    pub on_uncertain: OnUncertain,
    /// Without a sign of life for so long, renewals stop.
    pub stall_after_ms: Option<u64>,
    /// Whether it is renewed at all.
    pub is_renewed: bool,
}

/// The state of one guard. It has no clock: the time comes with each call.
#[derive(Debug, Clone)]
pub struct Lease {
    terms: Terms,
    state: State,
    ttl_ms: Option<u64>,
    /// `None`: it does not expire.
    deadline_ms: Option<u64>,
    confirmed_ms: u64,
    /// When the next renewal is due; `None`: none is.
    due_ms: Option<u64>,
    breaks_ms: Option<u64>,
    /// A ttl that was asked for and may be in force or not: nothing longer counts.
    cap_ms: Option<u64>,
    beat_ms: u64,
    has_warned: bool,
}

/// What is taken off the ttl, for clocks that do not run alike (CC30): a hundredth, at least 20 ms.
fn margin_ms(ttl_ms: u64) -> u64 {
    (ttl_ms / 100).max(20)
}

impl Lease {
    /// A guard whose grant was asked for at `sent_ms`. `draw` (0 to 1) is the jitter of the first renewal.
    pub fn granted(
        now_ms: u64,
        sent_ms: u64,
        (left_ms, ttl_ms): (Option<u64>, Option<u64>),
        terms: Terms,
        draw: f64,
    ) -> Self {
        let (state, has_warned) = (State::Held, false);
        let (deadline_ms, due_ms, breaks_ms, cap_ms) = (None, None, None, None);
        let (confirmed_ms, beat_ms) = (sent_ms, now_ms);
        let mut lease = Self {
            terms,
            state,
            ttl_ms,
            deadline_ms,
            confirmed_ms,
            due_ms,
            breaks_ms,
            cap_ms,
            beat_ms,
            has_warned,
        };
        lease.confirm(sent_ms, left_ms, ttl_ms, draw);
        lease
    }

    /// A guard that is not given out before it was renewed: its time begins with that, and nothing is lost until then.
    /// Nobody works under it yet, so that no sign of life is missed before the first.
    pub fn unproven(now_ms: u64, ttl_ms: Option<u64>, terms: Terms, draw: f64) -> Self {
        let granted = Self::granted(now_ms, now_ms, (Some(60_000), ttl_ms), terms, draw);
        Self { beat_ms: u64::MAX, ..granted }
    }

    /// The state, as of the last call.
    pub fn state(&self) -> State {
        self.state
    }

    /// Until when it is surely held; `None`: it does not expire.
    pub fn deadline_ms(&self) -> Option<u64> {
        match (self.deadline_ms, self.breaks_ms) {
            (Some(deadline_ms), Some(breaks_ms)) => Some(deadline_ms.min(breaks_ms)),
            (deadline_ms, breaks_ms) => deadline_ms.or(breaks_ms),
        }
    }

    /// Whether there is time to begin work under it (CC19): more than the holder needs to end before the deadline, and
    /// than two more answers take that come as slowly as the last one.
    pub fn can_begin(&self, now_ms: u64, grace_ms: u64) -> bool {
        let took_ms = now_ms.saturating_sub(self.confirmed_ms);
        let needed_ms = grace_ms.saturating_add(2 * took_ms);
        self.deadline_ms().is_none_or(|at_ms| at_ms.saturating_sub(now_ms) > needed_ms)
    }

    /// The lock's ttl; `None`: for ever.
    pub fn ttl_ms(&self) -> Option<u64> {
        self.ttl_ms
    }

    /// When the last answered renewal, or the grant, was sent.
    pub fn confirmed_ms(&self) -> u64 {
        self.confirmed_ms
    }

    /// When an operator's break is due.
    pub fn breaks_ms(&self) -> Option<u64> {
        self.breaks_ms
    }

    /// When the next renewal is due; `None`: none is.
    pub fn due_ms(&self) -> Option<u64> {
        match self.state {
            State::Held | State::Uncertain => self.due_ms,
            State::Lost(_) | State::Released => None,
        }
    }

    /// How long one renewal may take (CC31).
    pub fn attempt_ms(&self) -> u64 {
        self.ttl_ms.map_or(5_000, |ttl_ms| (ttl_ms / 4).min(5_000))
    }

    /// Whether another's renewal takes this guard along (CC32).
    pub fn joins(&self, now_ms: u64) -> bool {
        let live = self.due_ms().is_some();
        let since_ms = now_ms.saturating_sub(self.confirmed_ms);
        live && self.ttl_ms.is_some_and(|ttl_ms| since_ms >= ttl_ms / 12)
    }

    /// A renewal is under way: the next is due when this one must be over.
    pub fn renewal_began(&mut self, now_ms: u64) {
        self.due_ms = self.due_ms.map(|_| now_ms + 2 * self.attempt_ms() + 1);
    }

    /// Renewals are refused from now on: an operator is about to break the lock.
    pub fn stop_renewing(&mut self) {
        self.due_ms = None;
    }

    /// The holder asks for another ttl (`None`: for ever), by a renewal sent at `sent_ms`. Until that is
    /// answered, and if it never is, the shorter of the two counts.
    pub fn ttl_asked(&mut self, sent_ms: u64, ttl_ms: Option<u64>) {
        let Some(ttl_ms) = ttl_ms else { return };
        self.cap_ms = Some(self.cap_ms.map_or(ttl_ms, |cap_ms| cap_ms.min(ttl_ms)));
        let capped_ms = sent_ms + ttl_ms.saturating_sub(margin_ms(ttl_ms));
        self.deadline_ms = Some(self.deadline_ms.map_or(capped_ms, |at_ms| at_ms.min(capped_ms)));
        // Nearer, it has to be renewed sooner.
        if self.terms.is_renewed && self.breaks_ms.is_none() {
            let third_ms = sent_ms + ttl_ms / 3;
            self.due_ms = Some(self.due_ms.map_or(third_ms, |due_ms| due_ms.min(third_ms)));
        }
    }

    /// The gateway has answered with the ttl that was asked for: it is in force.
    pub fn ttl_known(&mut self, ttl_ms: Option<u64>) {
        self.cap_ms = self.cap_ms.filter(|cap_ms| ttl_ms.is_some_and(|ttl_ms| *cap_ms < ttl_ms));
    }

    /// Whether a large upload is worth a renewal first (CC27).
    pub fn is_stale_for_upload(&self, now_ms: u64) -> bool {
        let since_ms = now_ms.saturating_sub(self.confirmed_ms);
        self.due_ms().is_some() && self.ttl_ms.is_some_and(|ttl_ms| since_ms > ttl_ms / 6)
    }

    /// When to look again, at the latest, if nothing happens.
    pub fn wake_ms(&self) -> Option<u64> {
        let stalls_ms =
            self.terms.stall_after_ms.map(|after_ms| self.beat_ms.saturating_add(after_ms));
        let times = match self.state {
            State::Held => [self.deadline_ms(), self.due_ms, stalls_ms, self.warns_ms()],
            State::Uncertain => [self.due_ms, stalls_ms, self.breaks_ms, None],
            State::Lost(_) | State::Released => [None; 4],
        };
        times.into_iter().flatten().min()
    }

    /// What follows from the time alone. It comes first after each wake-up (CC37).
    pub fn tick(&mut self, now_ms: u64) -> Effects {
        let mut effects = Effects::default();
        if !matches!(self.state, State::Held | State::Uncertain) {
            return effects;
        }
        if self.breaks_ms.is_some_and(|breaks_ms| breaks_ms <= now_ms) {
            self.lose(LossReason::Broken, &mut effects);
        } else if self
            .terms
            .stall_after_ms
            .is_some_and(|after_ms| self.beat_ms.saturating_add(after_ms) <= now_ms)
        {
            self.lose(LossReason::Stalled, &mut effects);
        } else if self.deadline_ms.is_some_and(|deadline_ms| deadline_ms <= now_ms) {
            match self.terms.on_uncertain {
                OnUncertain::Stop => self.lose(LossReason::Unconfirmed, &mut effects),
                OnUncertain::Hold => self.state = State::Uncertain,
            }
        } else if self.warns_ms().is_some_and(|warns_ms| warns_ms <= now_ms) {
            self.has_warned = true;
            let left_ms = self.deadline_ms.map_or(0, |deadline_ms| deadline_ms - now_ms);
            effects.warnings.push(Warning::Expiring { left_ms });
        }
        effects
    }

    /// What follows from something that was learnt. `draw` (0 to 1) is the jitter of the next renewal.
    pub fn on(&mut self, now_ms: u64, input: Input, draw: f64) -> Effects {
        // 1. The clock comes first: what is over by now does not come back.
        let mut effects = self.tick(now_ms);
        if !matches!(self.state, State::Held | State::Uncertain) {
            return effects;
        }
        // 2. Then what was learnt.
        match input {
            Input::Renewed { sent_ms, left_ms, ttl_ms } => {
                self.renewed(now_ms, (sent_ms, left_ms, ttl_ms), draw, &mut effects);
            }
            Input::RenewFailed => self.again(now_ms, draw),
            Input::Lost(reason) => self.lose(reason, &mut effects),
            Input::Breaking { sent_ms, left_ms } => {
                // Of several answers, the soonest time counts: the latest may be the oldest.
                let breaks_ms = sent_ms.saturating_add(left_ms);
                let breaks_ms =
                    self.breaks_ms.map_or(breaks_ms, |known_ms| known_ms.min(breaks_ms));
                self.breaks_ms = Some(breaks_ms);
                self.due_ms = None;
                let left_ms = breaks_ms.saturating_sub(now_ms);
                effects.warnings.push(Warning::Breaking { left_ms });
            }
            Input::Release => self.state = State::Released,
            Input::Beat => self.beat_ms = now_ms,
        }
        effects
    }

    fn renewed(
        &mut self,
        now_ms: u64,
        (sent_ms, left_ms, ttl_ms): (u64, Option<u64>, Option<u64>),
        draw: f64,
        effects: &mut Effects,
    ) {
        // An answer that was overtaken by a later one says nothing new.
        if sent_ms < self.confirmed_ms {
            return self.again(now_ms, draw);
        }
        let ended_ms = self.deadline_ms;
        self.confirm(sent_ms, left_ms, ttl_ms, draw);
        // Answered too late: what it says is over already.
        if self.deadline_ms.is_some_and(|deadline_ms| deadline_ms <= now_ms) {
            let late = self.tick(now_ms);
            effects.signal = effects.signal.or(late.signal);
            return self.again(now_ms, draw);
        }
        if self.state == State::Uncertain {
            self.state = State::Held;
            let lapsed_ms = now_ms.saturating_sub(ended_ms.unwrap_or(now_ms));
            effects.warnings.push(Warning::Revived { lapsed_ms });
        }
    }

    fn confirm(&mut self, sent_ms: u64, left_ms: Option<u64>, ttl_ms: Option<u64>, draw: f64) {
        let left_ms = [left_ms, self.cap_ms].into_iter().flatten().min();
        let shortest_ms = [ttl_ms, self.cap_ms].into_iter().flatten().min();
        let margin_ms = margin_ms(shortest_ms.unwrap_or(60_000));
        self.ttl_ms = ttl_ms;
        self.confirmed_ms = sent_ms;
        self.deadline_ms = left_ms.map(|left_ms| sent_ms + left_ms.saturating_sub(margin_ms));
        self.has_warned = false;
        // A third of what is there, a tenth more or less.
        let third_ms = [left_ms, ttl_ms].into_iter().flatten().min().map(|ms| ms / 3);
        let jittered_ms = third_ms.map(|ms| ms - ms / 10 + portion(ms / 5, draw));
        let renews = self.terms.is_renewed && self.breaks_ms.is_none();
        self.due_ms = jittered_ms.filter(|_| renews).map(|ms| sent_ms + ms);
    }

    /// After an attempt that failed: again soon (CC31).
    fn again(&mut self, now_ms: u64, draw: f64) {
        if self.due_ms.is_some() {
            let every_ms = self.ttl_ms.map_or(2_000, |ttl_ms| (ttl_ms / 10).min(2_000));
            self.due_ms = Some(now_ms + every_ms / 2 + portion(every_ms, draw));
        }
    }

    /// A sixth of the ttl before the deadline, nobody having answered for half of the time.
    fn warns_ms(&self) -> Option<u64> {
        let ttl_ms = self.ttl_ms.filter(|_| !self.has_warned && self.terms.is_renewed)?;
        self.deadline_ms.map(|deadline_ms| deadline_ms.saturating_sub(ttl_ms / 3))
    }

    fn lose(&mut self, reason: LossReason, effects: &mut Effects) {
        self.state = State::Lost(reason);
        // Whoever hands a lock over knows that it is gone (CC50).
        if reason != LossReason::Transferred {
            effects.signal = Some(reason);
        }
    }
}

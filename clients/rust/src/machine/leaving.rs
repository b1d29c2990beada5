//! How a scope ends (CC43 to CC46): whose result counts, and whether a release is due.

use crate::class::LossReason;

/// How the body of a scope ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body {
    /// With a value.
    Returned,
    /// With an error of its own.
    Failed,
    /// It was cancelled, since the guard gave the signal.
    Cancelled,
    /// It was cancelled from outside.
    Dropped,
}

/// What a scope does with a loss during a body that ended well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnLost {
    /// The scope fails.
    #[default]
    Fail,
    /// The value counts: all effects of the body were fenced.
    Ignore,
}

/// What the scope gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The body's value.
    Value,
    /// The body's own error.
    OwnError,
    /// That the lock was lost.
    Lost(LossReason),
    /// Nothing: nobody waits for it.
    Nothing,
}

/// When the lock is given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// Before the scope returns, within bounds.
    Awaited,
    /// In the background.
    Background,
    /// Not at all: the gateway said itself that the lock is over.
    None,
}

/// How a scope ends, from how its body ended and whether the guard was lost by then.
pub fn leave(body: Body, lost: Option<LossReason>, on_lost: OnLost) -> (Outcome, Release) {
    let outcome = match (body, lost) {
        (Body::Dropped, _) => Outcome::Nothing,
        (Body::Failed, _) => Outcome::OwnError,
        (Body::Cancelled, Some(reason)) => Outcome::Lost(reason),
        (Body::Cancelled, None) => Outcome::Nothing,
        (Body::Returned, Some(LossReason::Transferred | LossReason::Released)) => Outcome::Value,
        (Body::Returned, Some(reason)) if on_lost == OnLost::Fail => Outcome::Lost(reason),
        (Body::Returned, _) => Outcome::Value,
    };
    let release = match lost {
        None if body == Body::Dropped => Release::Background,
        None => Release::Awaited,
        Some(LossReason::Released) => Release::None,
        // Of a lock on several resources the rest is given back where the loss is learnt.
        Some(reason) if reason.is_dead_everywhere(1) => Release::None,
        Some(_) => Release::Background,
    };
    (outcome, release)
}

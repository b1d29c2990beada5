//! Ways to break what the front of S3 promises on purpose, so that its tests can show that they would notice. Outside of tests
//! there are none: [`is`] is constantly `false`, and leaves nothing in a binary.

use fence_core::ports::LockRecord;
use fence_core::{LockId, LockState, ResourceName, Token};

use super::state::AppState;

/// A way to break what the front promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutant {
    /// The token is looked up by the resource, and not by the key that signed.
    TokenOfResource,
    /// A lock that has ended has a key as before.
    EndedLockHasKey,
    /// A lock that has ended has a key with the token of whoever holds its resource now.
    EndedLockHasNextKey,
    /// A write that is fenced is told as a condition that was not met.
    StaleIsPrecondition,
    /// The id of a call of the SDKs is not looked at.
    InvocationIgnored,
}

/// Whether this one is switched on.
#[cfg(not(test))]
pub const fn is(_: Mutant) -> bool {
    false
}

#[cfg(test)]
pub use on::{is, switch};

/// What a call writes under in place of what its key says: with [`Mutant::TokenOfResource`] the token of the resource.
pub async fn fence_of(app: &AppState, resource: &ResourceName) -> Option<(Token, Option<LockId>)> {
    if !is(Mutant::TokenOfResource) {
        return None;
    }
    let view = app.engine.resource(resource.clone()).await.ok()?;
    Some((view.token, None))
}

/// A lock whose key is asked for: with [`Mutant::EndedLockHasNextKey`] one that has ended goes on, under the token of the
/// next.
pub async fn record_of(app: &AppState, record: LockRecord) -> LockRecord {
    if !is(Mutant::EndedLockHasNextKey) {
        return record;
    }
    let Some(resource) = record.grant.resources.first().cloned() else { return record };
    let Ok(view) = app.engine.resource(resource).await else { return record };
    let mut record = LockRecord { ended: None, ..record };
    (record.grant.token, record.grant.state) = (view.token, LockState::Leased);
    record
}

#[cfg(test)]
mod on {
    use std::cell::Cell;

    use super::Mutant;

    thread_local! {
        static ON: Cell<Option<Mutant>> = const { Cell::new(None) };
    }

    /// Whether this one is switched on, for this thread.
    pub fn is(mutant: Mutant) -> bool {
        ON.get() == Some(mutant)
    }

    /// Switches one on, or all off, for this thread.
    pub fn switch(on: Option<Mutant>) {
        ON.set(on);
    }
}

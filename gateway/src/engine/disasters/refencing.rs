//! The re-fence: takes a ledger that may have lost commits as it is, and voids all earlier tokens.

use std::sync::Arc;

use fence_core::ports::{Ledger, Mint, Place, Reached, Refence, Runtime, Witness};

use super::epochs::Epochs;
use crate::engine::{EngineError, metrics};

/// What a re-fence came to.
#[derive(Debug, Clone)]
pub struct Refenced {
    /// How the ledger stood before.
    pub before: Place,
    /// How it stands now.
    pub after: Place,
    /// Whether it was this call that did it; else nothing called for it (any more).
    pub done: bool,
}

/// Re-fences the ledger if something calls for it, or if it is forced, and opens the new epoch.
///
/// 1. Where the ledger stands, and then the mint's head: how far its numbers are, and what it has seen of
///    the ledger. Without it nothing is done, since nobody else knows what the ledger has forgotten.
/// 2. One act on the ledger, if it still stands there: a head that was read before somebody else's re-fence
///    says nothing of that, should the ledger have gone back once more. From here on all earlier tokens
///    are void.
/// 3. The new nonce in the mint, the epoch opened. If this is interrupted, any gateway goes on with it.
pub(super) async fn refence(
    ledger: &Arc<dyn Ledger>,
    mint: &Arc<dyn Mint>,
    epochs: &Epochs,
    runtime: &Runtime,
    why: Option<&str>,
    forced: bool,
) -> Result<Refenced, EngineError> {
    let seen = ledger.place(None).await?.stand();
    let head = mint.head().await?;
    let mut before = ledger.place(head.milestone()).await?;
    head.check_owner(before.epoch.ledger)?;
    if before.called_for.is_none()
        && let Some(lost) = Witness::against(head.witness.as_ref(), &before)
    {
        ledger.halt(before.line(), &lost).await?;
        before.called_for = Some(lost);
    }
    let nonce = runtime.ids.uuid();
    let reached = Reached::by(runtime.clock.now());
    let epoch = ledger
        .refence(Refence {
            nonce,
            number: head.number,
            known_base: head.witness.as_ref().map_or(0, |one| one.base).max(reached.token),
            known_generation: head
                .witness
                .as_ref()
                .map_or(0, |one| one.generation)
                .max(reached.generation),
            why: why.or(before.called_for.as_deref()).unwrap_or("asked for").to_owned(),
            forced,
            seen: Some(seen),
        })
        .await?;
    let after = ledger.place(None).await?;
    let done = epoch.nonce == nonce;
    if done {
        ::metrics::counter!(metrics::REFENCES).increment(1);
        tracing::warn!(
            why = why.or(before.called_for.as_deref()),
            generation = after.generation,
            floor = after.floor,
            "the ledger was re-fenced: all tokens up to the floor are void"
        );
    }
    epochs.forget();
    epochs.read().await?;
    Ok(Refenced { before, after, done })
}

/// Re-fences a ledger that no gateway of this process works on.
pub async fn refence_now(
    ledger: Arc<dyn Ledger>,
    mint: Arc<dyn Mint>,
    runtime: Runtime,
    why: &str,
    forced: bool,
) -> Result<Refenced, EngineError> {
    let epochs = Epochs::new(Arc::clone(&ledger), Arc::clone(&mint), runtime.clone());
    refence(&ledger, &mint, &epochs, &runtime, Some(why), forced).await
}

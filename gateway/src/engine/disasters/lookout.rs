//! The lookout: about once a second, it compares ledger and mint with what each remembers of the other.
//!
//! It notices what no act would: a ledger that went back while no gateway ran, a mint that went back while
//! nobody asked for a lock, a re-fence by somebody else. The safety of no answer rests on it: whatever an act can
//! notice, the act itself refuses. Only after a start of Postgres do acts wait for the lookout: it holds the ledger
//! against the newest milestone that the mint knows.

use std::sync::Arc;
use std::time::Duration;

use fence_core::ErrorCode;
use fence_core::ports::{
    Adopted, DrainedUpstream, Head, Ledger, Mint, MintError, Place, Runtime, Start, Witness,
};
use tokio_util::sync::CancellationToken;

use super::epochs::Epochs;
use super::{adopting, refencing};
use crate::engine::agreement::Agreement;
use crate::engine::data::Refusals;
use crate::engine::trials::Trials;
use crate::engine::{Base, EngineError};

/// How often.
const INTERVAL: Duration = Duration::from_secs(1);

/// Who re-fences a ledger that may have lost commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refencing {
    /// Any gateway that notices.
    Auto,
    /// An operator, with `fencegate refence`.
    Manual,
}

/// The lookout of one gateway.
pub(in crate::engine) struct Lookout {
    ledger: Arc<dyn Ledger>,
    mint: Arc<dyn Mint>,
    epochs: Arc<Epochs>,
    runtime: Runtime,
    refencing: Refencing,
    /// To be forgotten when the ledger is not what it was.
    refusals: Arc<Refusals>,
    /// What all gateways have agreed on.
    agreement: Arc<Agreement>,
    /// The upstreams that a re-fence puts in doubt.
    drained: Arc<[DrainedUpstream]>,
    /// Told of each witness: whoever can raise it can put keys for grants.
    can_grant: Arc<Trials>,
    /// Where the ledger stood a moment ago.
    last: Option<Place>,
    /// Why the ledger could not be adopted, as it was logged last.
    unproven: Option<String>,
    /// What trouble was logged last, so that it is logged once.
    said: Option<ErrorCode>,
}

impl Lookout {
    /// Starts the lookout of a ledger that is looked after. `looked` tells that ledger and mint were held against each
    /// other once, or need not be.
    pub(in crate::engine) fn start(
        base: &Base,
        epochs: Arc<Epochs>,
        refusals: Arc<Refusals>,
        agreement: Arc<Agreement>,
        looked: CancellationToken,
    ) {
        let Some(refencing) = base.settings.refencing else { return looked.cancel() };
        let lookout = Self {
            ledger: Arc::clone(&base.ledger),
            mint: Arc::clone(&base.mint),
            epochs,
            runtime: base.runtime.clone(),
            refencing,
            refusals,
            agreement,
            drained: Arc::clone(&base.settings.drained),
            can_grant: Arc::clone(&base.grants),
            last: None,
            unproven: None,
            said: None,
        };
        lookout.begin(looked, base.closing.clone());
    }

    /// Looks around at once, which `looked` tells, and then now and then until `closing`.
    fn begin(mut self, looked: CancellationToken, closing: CancellationToken) {
        let runtime = self.runtime.clone();
        let task = async move {
            let clock = Arc::clone(&self.runtime.clock);
            loop {
                let found = self.look().await;
                looked.cancel();
                self.say(found);
                if closing.run_until_cancelled(clock.sleep(INTERVAL)).await.is_none() {
                    break;
                }
            }
            // Behind the last answer of this gateway.
            let found = self.leave_last_milestone().await;
            self.say(found);
        };
        runtime.spawn.spawn_lasting("lookout", Box::pin(task));
    }

    fn say(&mut self, found: Result<(), EngineError>) {
        let trouble = found.as_ref().err().map(EngineError::code);
        if let Err(error) = found
            && trouble != self.said
        {
            tracing::warn!(%error, "ledger and mint cannot be compared");
        }
        self.said = trouble;
    }

    /// 1. The mint, then the ledger: what the mint has seen of the ledger, the ledger must have.
    /// 2. The ledger has lost commits: that is stored, so that every gateway refuses, and leads to a
    ///    re-fence.
    /// 3. The ledger is on a new timeline: it is adopted, if it is declared and proven that nothing was lost; else it
    ///    is re-fenced.
    /// 4. Its server was started anew and has the milestone that the mint knows: acts go on.
    /// 5. Otherwise: record the ledger's position in the mint, and check the mint's numbers against the ledger.
    async fn look(&mut self) -> Result<(), EngineError> {
        let head = self.mint.head().await;
        let known = head.as_ref().ok().and_then(Head::milestone);
        let mut place = self.ledger.place(known).await?;
        self.agreement.heard(&place.agreed);
        let last = self.last.replace(place.clone());
        if place.called_for.is_some()
            || last.as_ref().is_none_or(|last| last.line() != place.line())
        {
            self.refusals.forget();
        }
        if let Ok(head) = &head
            && head.check_owner(place.epoch.ledger).is_ok()
            && let Some(why) = Witness::against(head.witness.as_ref(), &place)
            // What calls for a re-fence here does not say yet that another server is the ledger by now.
            && (place.called_for.is_none()
                || (head.witness.as_ref().is_some_and(|witness| witness.line() > place.line())
                    && place.called_for.as_ref() != Some(&why)))
        {
            tracing::error!(why, "the ledger lost commits; nothing is sealed or written any more");
            self.refusals.forget();
            self.ledger.halt(place.line(), &why).await?;
            place.called_for = Some(why);
        }
        if let Some(why) = &place.called_for {
            if last.is_none_or(|last| last.called_for.is_none()) {
                tracing::warn!(why, how = ?self.refencing, "the ledger must be re-fenced");
            }
            if adopting::may_be_adopted(&place) && self.adopt().await? {
                return Ok(());
            }
            return self.refence(head).await;
        }
        self.unproven = None;
        if last.as_ref().is_none_or(|last| last.generation < place.generation) {
            // Somebody else re-fenced, and may not have known of them.
            self.ledger.register_upstreams(&self.drained).await?;
        }
        let head = head?;
        head.check_owner(place.epoch.ledger)?;
        if place.restarted && !self.confirm(place.started_us).await? {
            self.last = None;
            return Ok(());
        }
        self.raise(&head, last.as_ref(), &place, false).await?;
        self.compare(&head, last.as_ref(), &place).await
    }

    /// Has the guards know the start of a server that has lost nothing; says whether they do.
    ///
    /// 1. The mint is read *after* the start was seen: what it knew before that says nothing, since others may have gone on
    ///    and a copy may have been put back while this gateway stood still.
    /// 2. The ledger is looked at once more. If the start is another one by now, or something speaks against it, nothing is
    ///    confirmed, and the next look goes on from there.
    /// 3. One act on the ledger, if it still is the server that was looked at.
    async fn confirm(&self, started_us: i64) -> Result<bool, EngineError> {
        // Step 1.
        let head = self.mint.head().await?;
        // Step 2.
        let place = self.ledger.place(head.milestone()).await?;
        head.check_owner(place.epoch.ledger)?;
        if place.started_us != started_us
            || place.called_for.is_some()
            || Witness::against(head.witness.as_ref(), &place).is_some()
        {
            return Ok(false);
        }
        // Step 3.
        let start = Start {
            line: place.line(),
            system_id: place.system_id,
            timeline: place.timeline.clone(),
            started_us: place.started_us,
            milestone: Witness::milestone_of(head.witness.as_ref(), &place),
        };
        let is_known = self.ledger.confirm_start(&start).await?;
        if is_known {
            tracing::info!(
                milestone = start.milestone.map(|one| one.number),
                "the Postgres server was started anew, and has lost nothing that is known"
            );
        }
        Ok(is_known)
    }

    /// Has the mint know all that this gateway has answered for.
    async fn leave_last_milestone(&self) -> Result<(), EngineError> {
        let head = self.mint.head().await?;
        let place = self.ledger.place(head.milestone()).await?;
        head.check_owner(place.epoch.ledger)?;
        let speaks = Witness::against(head.witness.as_ref(), &place).is_some();
        if speaks || place.restarted || place.called_for.is_some() {
            return Ok(());
        }
        self.raise(&head, None, &place, true).await
    }

    /// Adopts the ledger's new timeline if that is proven to have lost nothing; says whether there is nothing left
    /// to do. Also where an operator is to re-fence: nothing is voided by it.
    async fn adopt(&mut self) -> Result<bool, EngineError> {
        match adopting::adopt(&self.ledger, &self.mint).await? {
            Adopted::Done | Adopted::Moved => {
                self.last = None;
                Ok(true)
            }
            Adopted::Unproven(why) => {
                if self.unproven.as_ref() != Some(&why) {
                    tracing::warn!(
                        why,
                        "the new timeline is not adopted: it is not proven that nothing was lost"
                    );
                    self.unproven = Some(why);
                }
                Ok(false)
            }
        }
    }

    /// Re-fences if that is this gateway's to do.
    ///
    /// Not where the mint has seen a later line: most likely this is an old primary, and another
    /// server was re-fenced in its place. Gateways on either would take turns in voiding each other's
    /// tokens.
    async fn refence(&mut self, head: Result<Head, MintError>) -> Result<(), EngineError> {
        if self.refencing == Refencing::Manual {
            return Ok(());
        }
        let (known, place) = (head?.witness, self.ledger.place(None).await?);
        if let Some(known) = known.filter(|witness| witness.line() > place.line()) {
            let how = match known.generation > place.generation {
                true => "re-fenced",
                false => "adopted",
            };
            return Err(EngineError::RefenceRequired(format!(
                "another server was {how} since; if this is the right one, run fencegate refence"
            )));
        }
        // A ledger that went back may have lost them, and what it does not know it would not doubt.
        self.ledger.register_upstreams(&self.drained).await?;
        let (ledger, mint) = (&self.ledger, &self.mint);
        refencing::refence(ledger, mint, &self.epochs, &self.runtime, None, false).await?;
        self.last = None;
        self.refusals.forget();
        Ok(())
    }

    /// Raises the witness to a milestone that is left now, and to what has been inserted a moment ago and is flushed now. Of
    /// gateways that do so at once, one does; the others have nothing to add.
    async fn raise(
        &self,
        head: &Head,
        last: Option<&Place>,
        place: &Place,
        is_last: bool,
    ) -> Result<(), EngineError> {
        if head.ledger.is_none() {
            return Ok(());
        }
        let known = Witness::milestone_of(head.witness.as_ref(), place).map_or(0, |one| one.number);
        // A ledger that takes nothing just now says so to all who ask; what the mint knows is as old as its last answer.
        let milestone = self.ledger.leave_milestone(known, is_last).await.unwrap_or(None);
        let mut witness = Witness::following(head.witness.as_ref(), place, milestone);
        let inserted = last.filter(|last| {
            (last.line(), last.system_id, &last.timeline)
                == (place.line(), place.system_id, &place.timeline)
        });
        if let Some(last) = inserted
            && last.inserted <= place.flushed
        {
            witness.flushed = witness.flushed.max(last.inserted);
        }
        if head.witness.as_ref() != Some(&witness) {
            let raised = self.mint.raise(head, place.epoch.ledger, &witness).await;
            self.can_grant.tried(raised)?;
        }
        Ok(())
    }

    /// Begins a new epoch if the mint has lost its place, and completes one that somebody else began.
    /// The mint was read between two looks at the ledger that found the same epoch, so it is not just
    /// that the epoch has moved.
    async fn compare(
        &self,
        head: &Head,
        last: Option<&Place>,
        place: &Place,
    ) -> Result<(), EngineError> {
        if !place.epoch.open {
            self.epochs.read().await?;
            // The mint knows a milestone before anything is granted by it.
            let head = self.mint.head().await?;
            return self.raise(&head, None, &self.ledger.place(None).await?, false).await;
        }
        let Some(last) = last.filter(|last| last.epoch == place.epoch) else { return Ok(()) };
        let why = if head.incarnation != Some(place.epoch.nonce) {
            MintError::OtherIncarnation { found: head.incarnation }.to_string()
        } else if place.epoch.base + head.number < last.highest {
            format!("the mint is at number {}, below one that was sealed", head.number)
        } else {
            return Ok(());
        };
        self.epochs.switch(place.epoch.number, &why).await.map(drop)
    }
}

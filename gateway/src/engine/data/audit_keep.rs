//! Checkpoints of the audit go to places outside of the ledger: whoever changes the ledger cannot change what those have seen.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use fence_core::ports::{
    CheckpointKept, CheckpointPlace, KeepCheckpoint, Ledger, LedgerError, TreeHead,
};
use fencegate_audit::{Former, SignedNote};

use super::audit_tree::{consistency, origin};
use crate::engine::{Base, EngineError, metrics};

/// How soon a place is told again that could not be told.
const RETRY: Duration = Duration::from_secs(10);
/// How often a witness may say that it has seen something else than it was said to have.
const TRIES: usize = 3;

/// The places that checkpoints go to.
#[derive(Clone, Default)]
pub struct AuditPlaces(pub Vec<Arc<dyn CheckpointPlace>>);

impl fmt::Debug for AuditPlaces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|place| place.name())).finish()
    }
}

impl AuditPlaces {
    /// The newest checkpoint of an earlier generation of this audit that any of them has.
    pub(super) async fn former(&self, head: &TreeHead) -> Result<Option<Former>, EngineError> {
        let mut former: Option<Former> = None;
        for place in &self.0 {
            let away = |why| {
                LedgerError::Unavailable(format!("{} has to be asked first: {why}", place.name()))
            };
            let note = place.newest().await.map_err(away)?;
            let checkpoint =
                note.and_then(|note| note.parse::<SignedNote>().ok()?.checkpoint().ok());
            let is_former = |it: &fencegate_audit::Checkpoint| {
                it.origin == origin(head) && it.generation < head.generation
            };
            let found = checkpoint.filter(is_former).map(|it| Former::from(&it));
            former = former.into_iter().chain(found).max_by_key(|it| (it.generation, it.size));
        }
        Ok(former)
    }
}

/// Starts a task for each place.
pub(in crate::engine) fn start(base: &Base) {
    for place in &base.settings.audit_places.0 {
        let (place, ledger) = (Arc::clone(place), Arc::clone(&base.ledger));
        let (clock, closing) = (Arc::clone(&base.runtime.clock), base.closing.clone());
        let task = async move {
            let mut keeper = Keeper { place, kept: None, from: 0, is_away: false };
            let mut kept_at = clock.elapsed();
            loop {
                let is_kept = keeper.keep(&*ledger).await;
                if is_kept {
                    kept_at = clock.elapsed();
                }
                keeper.tell_age(clock.elapsed().saturating_sub(kept_at));
                let interval = keeper.place.interval();
                let pause = clock.sleep(if is_kept { interval } else { interval.min(RETRY) });
                if closing.run_until_cancelled(pause).await.is_none() {
                    return;
                }
            }
        };
        base.runtime.spawn.spawn_lasting("audit_keep", Box::pin(task));
    }
}

/// What is known of a place.
struct Keeper {
    place: Arc<dyn CheckpointPlace>,
    /// Generation and size of what it has.
    kept: Option<(i64, i64)>,
    /// What it has seen, for the proof.
    from: i64,
    is_away: bool,
}

impl Keeper {
    /// Says whether the place has the newest checkpoint.
    async fn keep(&mut self, ledger: &dyn Ledger) -> bool {
        let name = self.place.name();
        match self.step(ledger).await {
            Ok(false) => false,
            Ok(true) => {
                if std::mem::take(&mut self.is_away) {
                    tracing::info!(place = name, "it has the newest checkpoint of the audit again");
                }
                true
            }
            Err(why) => {
                ::metrics::counter!(metrics::AUDIT_KEEP_FAILURES, "place" => name.clone())
                    .increment(1);
                if !std::mem::replace(&mut self.is_away, true) {
                    tracing::warn!(
                        place = name,
                        why,
                        "a checkpoint of the audit is not kept there"
                    );
                }
                false
            }
        }
    }

    fn tell_age(&self, age: Duration) {
        ::metrics::gauge!(metrics::AUDIT_CHECKPOINT_AGE, "place" => self.place.name())
            .set(age.as_secs_f64());
    }

    /// Says whether the place has it by now. Another gateway may tell it of more meanwhile: each try looks anew.
    async fn step(&mut self, ledger: &dyn Ledger) -> Result<bool, String> {
        for _ in 0..TRIES {
            let head = ledger.tree_head().await.map_err(|error| error.to_string())?;
            let Some(note) = head.note.clone() else { return Ok(false) };
            if self.kept == Some((head.generation, head.size)) {
                return Ok(true);
            }
            if self.from > head.size {
                let (seen, size) = (std::mem::take(&mut self.from), head.size);
                return Err(format!("it has seen {seen} leaves, and there are {size}"));
            }
            let checkpoint = self.offer(ledger, &head, note.clone()).await?;
            match self.place.keep(&checkpoint).await? {
                CheckpointKept::Kept => {}
                CheckpointKept::Underway => return Ok(false),
                CheckpointKept::Signed(lines) => keep_signed(ledger, &note, &lines).await?,
                CheckpointKept::Behind(seen) => {
                    self.from = seen;
                    continue;
                }
                CheckpointKept::Beyond(seen) => {
                    self.look_for(ledger, head.size, seen).await?;
                    continue;
                }
            }
            (self.kept, self.from) = (Some((head.generation, head.size)), head.size);
            return Ok(true);
        }
        Err("it says something else each time of what it has seen".into())
    }

    /// Refuses to go on beside a place that has seen leaves of this very generation which the ledger does not have.
    /// Another gateway may have added them since `offered` was read. What calls for a re-fence is for the lookout to find.
    async fn look_for(&self, ledger: &dyn Ledger, offered: i64, seen: i64) -> Result<(), String> {
        let head = ledger.tree_head().await.map_err(|error| error.to_string())?;
        match seen > offered && head.size >= seen {
            true => Ok(()),
            false => Err(format!(
                "it has seen {seen} leaves of this generation that the ledger does not have: it has lost commits, or was changed"
            )),
        }
    }

    async fn offer(
        &self,
        ledger: &dyn Ledger,
        head: &TreeHead,
        note: String,
    ) -> Result<KeepCheckpoint, String> {
        let proof = match self.from {
            0 => Some(Vec::new()),
            from => {
                let proof = consistency(ledger, head, from, head.size).await;
                proof.map_err(|error| error.to_string())?
            }
        };
        Ok(KeepCheckpoint {
            note,
            size: head.size,
            generation: head.generation,
            from: self.from,
            proof: proof.unwrap_or_default(),
        })
    }
}

/// Keeps what a witness has signed, if those are signatures, and nothing newer is kept.
async fn keep_signed(ledger: &dyn Ledger, note: &str, lines: &str) -> Result<(), String> {
    let note: SignedNote = note.parse().map_err(|error| format!("the ledger's own: {error}"))?;
    let signed = note.and_signed(lines).map_err(|error| format!("what it signs: {error}"))?;
    let head = ledger.tree_head().await.map_err(|error| error.to_string())?;
    let kept = head.witnessed.as_deref().and_then(rank);
    if kept >= rank(&signed.to_string()) {
        return Ok(());
    }
    ledger.keep_witnessed(&signed.to_string()).await.map_err(|error| error.to_string())
}

/// Generation and size of a checkpoint, by which the newest is known.
fn rank(note: &str) -> Option<(i64, u64)> {
    let checkpoint = note.parse::<SignedNote>().ok()?.checkpoint().ok()?;
    Some((checkpoint.generation, checkpoint.size))
}

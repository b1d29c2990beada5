//! A line for each principal or peer: a few of its requests have their turn at a time, a few more wait, and further ones
//! are turned away. So whoever asks a lot waits for themselves, and keeps nobody else waiting.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use fencegate_access::Quota;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::{Counted, Holder};

/// How many requests of one may wait for their turn or have it.
const IN_LINE_MAX: usize = 32;
/// How long one may wait for its turn.
const WAIT_MAX: Duration = Duration::from_secs(2);

/// The lines of all.
#[derive(Clone)]
pub struct Turns(Arc<Inner>);

struct Inner {
    quota: Option<Quota>,
    /// How many requests of one have their turn at a time, unless its roles say otherwise.
    at_a_time: usize,
    /// How many may wait for their turn or have it.
    in_line_max: usize,
    wait_max: Duration,
    lines: Mutex<HashMap<Holder, Line>>,
}

struct Line {
    turns: Arc<Semaphore>,
    /// Who waits in it or has a turn. A line with nobody is forgotten.
    members: usize,
}

/// A turn, for as long as it lasts. The permit goes first: a line is forgotten only with its last member.
pub struct Turn(
    #[expect(dead_code, reason = "held, not used")] Option<(OwnedSemaphorePermit, Member)>,
);

struct Member {
    of: Turns,
    holder: Holder,
}

impl Turns {
    /// So many turns of this at a time for each.
    pub fn of(quota: Quota, at_a_time: usize) -> Self {
        Self::in_line(Some(quota), at_a_time, IN_LINE_MAX, WAIT_MAX)
    }

    /// The same for what waits in lines of this length, for this long.
    pub fn in_line(
        quota: Option<Quota>,
        at_a_time: usize,
        in_line_max: usize,
        wait_max: Duration,
    ) -> Self {
        Self(Arc::new(Inner { quota, at_a_time, in_line_max, wait_max, lines: Mutex::default() }))
    }

    fn lines(&self) -> MutexGuard<'_, HashMap<Holder, Line>> {
        self.0.lines.lock()
    }

    /// Waits for a turn; who is not counted has one at once. `None` if the line is full, or does not move.
    pub async fn take(&self, counted: &Counted) -> Option<Turn> {
        let Some(holder) = counted.holder() else { return Some(Turn(None)) };
        let at_a_time = counted.most(self.0.quota, self.0.at_a_time).unwrap_or(self.0.at_a_time);
        let (turns, member) = self.join(holder, at_a_time)?;
        let permit = timeout(self.0.wait_max, turns.acquire_owned()).await.ok()?.ok()?;
        Some(Turn(Some((permit, member))))
    }

    /// A line that has somebody in it has as many turns as when it began.
    fn join(&self, holder: Holder, at_a_time: usize) -> Option<(Arc<Semaphore>, Member)> {
        let mut lines = self.lines();
        let line = lines.entry(holder.clone()).or_insert_with(|| Line {
            turns: Arc::new(Semaphore::new(at_a_time.min(Semaphore::MAX_PERMITS))),
            members: 0,
        });
        if line.members >= self.0.in_line_max {
            return None;
        }
        line.members += 1;
        Some((Arc::clone(&line.turns), Member { of: self.clone(), holder }))
    }

    /// How many lines there are.
    #[cfg(test)]
    pub(in crate::http) fn len(&self) -> usize {
        self.lines().len()
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let mut lines = self.of.lines();
        if let Some(line) = lines.get_mut(&self.holder) {
            line.members -= 1;
            if line.members == 0 {
                lines.remove(&self.holder);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::peers::tests::peers;
    use futures::FutureExt as _;

    #[tokio::test]
    async fn a_peer_waits_for_itself_alone() {
        let turns = Turns::of(Quota::Queries, 1);
        let [one, other] = &peers();
        let first = turns.take(one).await.unwrap();
        let mut waiting: Vec<_> = (1..IN_LINE_MAX).map(|_| Box::pin(turns.take(one))).collect();
        for one in &mut waiting {
            assert!(one.now_or_never().is_none(), "it stands behind the first");
        }
        assert!(turns.take(one).await.is_none(), "the line is full");
        assert!(turns.take(other).await.is_some(), "another peer does not wait");
        assert!(turns.take(&Counted::Nobody).now_or_never().flatten().is_some());
        drop(first);
        assert!(waiting.remove(0).await.is_some(), "the next has its turn");
        drop(waiting);
        assert_eq!(turns.len(), 0);
    }
}

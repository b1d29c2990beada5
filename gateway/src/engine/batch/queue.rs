//! The queue of a batcher: a line for each principal, served one item each in turn, so that whoever asks a lot waits for
//! themselves. Where no rules are in force all stand in one line.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use fence_core::PrincipalName;
use parking_lot::Mutex;
use slab::Slab;
use tokio::sync::Notify;

use super::entry::Entry;
use super::{Act, Failure};

/// The part of the queue, and of what waits on lanes, that one principal may fill.
const SHARE: usize = 2;
/// With no more lines than this the empty ones are kept, too: most principals come back.
const LINES_KEPT: usize = 256;

/// Share of so many that one principal may have.
pub(super) fn share(max: usize) -> usize {
    (max / SHARE).max(1)
}

/// One end for many callers, one for the task that empties it.
pub(super) struct Queue<A: Act> {
    max: usize,
    lines: Mutex<Lines<A>>,
    came: Notify,
}

struct Lines<A: Act> {
    all: Slab<Line<A>>,
    /// The line where nobody in particular stands.
    nobodys: usize,
    of: HashMap<PrincipalName, usize>,
    /// The lines that have somebody in them, in the order of their turns.
    turns: VecDeque<usize>,
    len: usize,
    is_closed: bool,
}

struct Line<A: Act> {
    of: Option<PrincipalName>,
    entries: VecDeque<Entry<A>>,
}

impl<A: Act> Lines<A> {
    fn new() -> Self {
        let (mut all, of, turns) = (Slab::new(), HashMap::new(), VecDeque::new());
        let nobodys = all.insert(Line { of: None, entries: VecDeque::new() });
        Self { all, nobodys, of, turns, len: 0, is_closed: false }
    }

    /// The line of a principal, and how much of the queue it may fill.
    fn line(&mut self, principal: Option<&PrincipalName>, max: usize) -> (usize, usize) {
        let Some(principal) = principal else { return (self.nobodys, max) };
        let share = share(max);
        if let Some(at) = self.of.get(principal) {
            return (*at, share);
        }
        let line = Line { of: Some(principal.clone()), entries: VecDeque::new() };
        let at = self.all.insert(line);
        self.of.insert(principal.clone(), at);
        (at, share)
    }

    /// Forgets a line that nobody stands in, if there are many.
    fn tidy(&mut self, at: usize) {
        if self.all.len() > LINES_KEPT
            && self.all[at].entries.is_empty()
            && let Some(principal) = &self.all[at].of
        {
            self.of.remove(principal);
            self.all.remove(at);
        }
    }
}

impl<A: Act> Queue<A> {
    /// A queue that holds so many items.
    pub(super) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max, lines: Mutex::new(Lines::new()), came: Notify::new() })
    }

    /// Hands in an item, unless it `comes_too_late` behind so many: whoever has hardly any in its line waits for as many of
    /// each other line, and for no more.
    ///
    /// # Errors
    /// `Full`: there is no room, or its principal has half of it, or it would come too late. `Closed`.
    pub(super) fn push(
        &self,
        entry: Entry<A>,
        comes_too_late: impl FnOnce(usize) -> bool,
    ) -> Result<(), Failure> {
        let mut lines = self.lines.lock();
        if lines.is_closed {
            return Err(Failure::Closed);
        }
        let (at, share) = lines.line(A::principal(&entry.item), self.max);
        let own = lines.all[at].entries.len();
        let ahead = lines.len.min((own + 1).saturating_mul(lines.turns.len()));
        if lines.len >= self.max || own >= share || comes_too_late(ahead) {
            lines.tidy(at);
            return Err(Failure::Full);
        }
        lines.len += 1;
        if own == 0 {
            lines.turns.push_back(at);
        }
        lines.all[at].entries.push_back(entry);
        drop(lines);
        self.came.notify_one();
        Ok(())
    }

    /// The next item, if there is one: the first of whoever's turn it is.
    pub(super) fn pop(&self) -> Option<Entry<A>> {
        let mut lines = self.lines.lock();
        let at = lines.turns.pop_front()?;
        let line = &mut lines.all[at].entries;
        let entry = line.pop_front();
        match line.is_empty() {
            false => lines.turns.push_back(at),
            true => lines.tidy(at),
        }
        lines.len -= 1;
        entry
    }

    /// The next item, once there is one; `None` once there is none and never will be. Only one task may wait.
    pub(super) async fn next(&self) -> Option<Entry<A>> {
        loop {
            if let Some(entry) = self.pop() {
                return Some(entry);
            }
            if self.lines.lock().is_closed {
                return None;
            }
            self.came.notified().await;
        }
    }

    /// No more items are taken; those that are there still come.
    pub(super) fn close(&self) {
        self.lines.lock().is_closed = true;
        self.came.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU8;
    use std::time::Duration;

    use async_trait::async_trait;
    use fence_core::ports::{LedgerError, Patience};
    use futures::FutureExt as _;
    use tokio::sync::oneshot;

    use super::*;

    struct Numbers;

    #[async_trait]
    impl Act for Numbers {
        type Item = (Option<PrincipalName>, u32);
        type Verdict = ();
        type Lane = ();

        const NAME: &'static str = "numbers";

        fn lane(_: &Self::Item) {}

        fn principal(item: &Self::Item) -> Option<&PrincipalName> {
            item.0.as_ref()
        }

        async fn run(&self, items: Arc<[Self::Item]>, _: Patience) -> Result<Vec<()>, LedgerError> {
            Ok(vec![(); items.len()])
        }
    }

    fn push(queue: &Queue<Numbers>, whose: Option<&str>, number: u32) -> Result<(), Failure> {
        hand_in(queue, whose, number, |_| false)
    }

    fn hand_in(
        queue: &Queue<Numbers>,
        whose: Option<&str>,
        number: u32,
        comes_too_late: impl FnOnce(usize) -> bool,
    ) -> Result<(), Failure> {
        let whose = whose.map(|name| PrincipalName::new(name).expect("a name"));
        let state = Arc::new(AtomicU8::new(super::super::entry::QUEUED));
        let (answer, _) = oneshot::channel();
        let item = (whose, number);
        let entry = Entry { item, state, answer, until: Duration::MAX, lost: false, asked: None };
        queue.push(entry, comes_too_late)
    }

    fn popped(queue: &Queue<Numbers>) -> Vec<u32> {
        std::iter::from_fn(|| queue.pop()).map(|entry| entry.item.1).collect()
    }

    #[test]
    fn each_principal_has_its_turn_and_its_own_order() {
        let queue = Queue::new(100);
        for number in 1..=4 {
            push(&queue, Some("greedy"), number).expect("room");
        }
        push(&queue, Some("ann"), 10).expect("room");
        push(&queue, None, 20).expect("room");
        push(&queue, Some("ann"), 11).expect("room");
        assert_eq!(popped(&queue), [1, 10, 20, 2, 11, 3, 4]);
        assert!(queue.lines.lock().turns.is_empty() && queue.lines.lock().len == 0);
    }

    #[test]
    fn one_principal_fills_half_of_it() {
        let queue = Queue::new(4);
        for number in 1..=2 {
            push(&queue, Some("greedy"), number).expect("room");
        }
        assert!(matches!(push(&queue, Some("greedy"), 3), Err(Failure::Full)));
        push(&queue, Some("ann"), 4).expect("room for others");
        push(&queue, None, 5).expect("room for others");
        assert!(matches!(push(&queue, None, 6), Err(Failure::Full)), "all of it");
        assert_eq!(popped(&queue).len(), 4);
        push(&queue, Some("greedy"), 7).expect("room again");
    }

    #[test]
    fn whoever_has_few_comes_before_the_many_of_another() {
        let queue = Queue::new(100);
        for number in 1..=40 {
            push(&queue, Some("greedy"), number).expect("room");
        }
        let ahead_of = |whose: Option<&str>| {
            let mut seen = 0;
            let refused = hand_in(&queue, whose, 0, |ahead| {
                seen = ahead;
                true
            });
            assert!(matches!(refused, Err(Failure::Full)));
            seen
        };
        assert_eq!((ahead_of(Some("ann")), ahead_of(Some("greedy"))), (1, 40));
        push(&queue, Some("ann"), 50).expect("room");
        assert_eq!((ahead_of(Some("ann")), ahead_of(Some("bob"))), (4, 2));
    }

    #[test]
    fn lines_that_nobody_stands_in_are_forgotten_where_there_are_many() {
        let queue = Queue::new(10);
        for number in 0..3 * LINES_KEPT {
            let name = format!("p{number}");
            push(&queue, Some(&name), 0).expect("room");
            assert!(hand_in(&queue, Some(&format!("late{number}")), 0, |_| true).is_err());
            assert_eq!(popped(&queue), [0]);
        }
        let lines = queue.lines.lock();
        assert_eq!((lines.all.len(), lines.of.len()), (LINES_KEPT, LINES_KEPT - 1));
    }

    #[tokio::test]
    async fn what_is_there_still_comes_when_it_is_closed() {
        let queue = Queue::new(4);
        push(&queue, None, 1).expect("room");
        queue.close();
        assert!(matches!(push(&queue, None, 2), Err(Failure::Closed)));
        assert_eq!(queue.next().await.map(|entry| entry.item.1), Some(1));
        assert!(queue.next().now_or_never().expect("it ends").is_none());
    }
}

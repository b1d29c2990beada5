//! The search for an order of steps that explains all answers.

use std::collections::HashSet;

use super::Verdict;
use super::model::{State, Step};

/// A step, and between which moments it is taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Timed {
    pub(super) call: u64,
    pub(super) begun_at: u64,
    /// By when it was taken; `None` if at any time or never.
    pub(super) at: Option<u64>,
    pub(super) step: Step,
}

/// Begins and ends of steps in the order of time, as a list from which steps are taken out and put
/// back in reverse order. The last entry is the head.
struct Line {
    entries: Vec<Entry>,
    next: Vec<usize>,
    previous: Vec<usize>,
    /// Of each step where its end stands.
    ends: Vec<Option<usize>>,
    /// How many ends there are.
    open: usize,
}

#[derive(Clone, Copy)]
enum Entry {
    Begin(usize),
    End(usize),
    Head,
}

impl Line {
    fn of(steps: &[Timed]) -> Self {
        let mut moments = Vec::new();
        for (index, step) in steps.iter().enumerate() {
            // Of one call the begins stand before the ends, also where it ends when another begins.
            moments.push((step.begun_at, 0, Entry::Begin(index)));
            moments.extend(step.at.map(|at| (at, 1, Entry::End(index))));
        }
        moments.sort_by_key(|(at, kind, _)| (*at, *kind));
        let mut entries: Vec<Entry> = moments.into_iter().map(|(_, _, entry)| entry).collect();
        entries.push(Entry::Head);
        let mut ends = vec![None; steps.len()];
        for (at, entry) in entries.iter().enumerate() {
            if let Entry::End(step) = entry {
                ends[*step] = Some(at);
            }
        }
        let all = entries.len();
        let next = (0..all).map(|at| (at + 1) % all).collect();
        let previous = (0..all).map(|at| (at + all - 1) % all).collect();
        let open = ends.iter().flatten().count();
        Self { entries, next, previous, ends, open }
    }

    fn first(&self) -> usize {
        self.next[self.entries.len() - 1]
    }

    /// The first step of this kind among those that can be taken now, and where it begins.
    fn find(&self, steps: &[Timed], is_it: impl Fn(&Timed) -> bool) -> Option<(usize, usize)> {
        let mut here = self.first();
        while let Entry::Begin(step) = self.entries[here] {
            if is_it(&steps[step]) {
                return Some((here, step));
            }
            here = self.next[here];
        }
        None
    }

    fn take(&mut self, begin: usize, step: usize) {
        self.unlink(begin);
        if let Some(end) = self.ends[step] {
            self.unlink(end);
            self.open -= 1;
        }
    }

    fn put_back(&mut self, begin: usize, step: usize) {
        if let Some(end) = self.ends[step] {
            self.link(end);
            self.open += 1;
        }
        self.link(begin);
    }

    fn unlink(&mut self, at: usize) {
        let (previous, next) = (self.previous[at], self.next[at]);
        self.next[previous] = next;
        self.previous[next] = previous;
    }

    fn link(&mut self, at: usize) {
        let (previous, next) = (self.previous[at], self.next[at]);
        self.next[previous] = at;
        self.previous[next] = at;
    }
}

/// A step that was taken, and the state before it.
struct Taken {
    begin: usize,
    step: usize,
    before: State,
    /// Nothing else needs to be tried in its place.
    forced: bool,
}

/// The steps of one resource, within a budget of steps tried.
pub(super) fn search(steps: &[Timed], budget: usize) -> Verdict {
    let mut line = Line::of(steps);
    let mut state = State::default();
    let mut set = vec![0_u64; steps.len().div_ceil(64)];
    let mut tried: HashSet<(Vec<u64>, State)> = HashSet::new();
    let mut taken: Vec<Taken> = Vec::new();
    let (mut tries, mut furthest) = (0, (0, 0));
    let mut here = line.first();
    let mut fresh = true;
    while line.open > 0 {
        if fresh && let Some((begin, step)) = looker(&line, steps, &state) {
            line.take(begin, step);
            flip(&mut set, step);
            taken.push(Taken { begin, step, before: state.clone(), forced: true });
            here = line.first();
            continue;
        }
        fresh = false;
        match line.entries[here] {
            Entry::Begin(step) => {
                tries += 1;
                if tries > budget {
                    return Verdict::GaveUp;
                }
                if let Some(next) = takes(&line, steps, here, &state) {
                    flip(&mut set, step);
                    if tried.insert((key(&set, steps, &next), next.clone())) {
                        line.take(here, step);
                        let before = std::mem::replace(&mut state, next);
                        taken.push(Taken { begin: here, step, before, forced: false });
                        here = line.first();
                        fresh = true;
                        continue;
                    }
                    flip(&mut set, step);
                }
                here = line.next[here];
            }
            Entry::End(step) => {
                furthest = furthest.max((here, steps[step].call));
                let Some(back) = go_back(&mut line, &mut set, &mut taken, &mut state) else {
                    return Verdict::NotLinearizable { stuck_at: furthest.1 };
                };
                here = line.next[back];
            }
            // Before the head there is an end that is open, so that this is not reached.
            Entry::Head => return Verdict::NotLinearizable { stuck_at: furthest.1 },
        }
    }
    Verdict::Linearizable
}

/// The first step that only looks, and finds what it looks for. It can be taken here if anywhere: it
/// changes nothing, and all that ended before it began is taken.
fn looker(line: &Line, steps: &[Timed], state: &State) -> Option<(usize, usize)> {
    line.find(steps, |timed| timed.step.only_looks() && state.after(&timed.step).is_some())
}

/// The state after the step that begins here, if it can be taken and it is of any use. One that may be
/// left out is left out where it changes nothing. A hidden token is sealed where somebody finds a token
/// superseded by it, since nothing else depends on it; all of them do the same, so the first is taken.
fn takes(line: &Line, steps: &[Timed], here: usize, state: &State) -> Option<State> {
    let Entry::Begin(step) = line.entries[here] else { return None };
    let timed = &steps[step];
    let is_hidden = |it: &Timed| it.step == Step::RaiseHidden;
    let is_waiting = |it: &Timed| state.waits_for_hidden(&it.step);
    if is_hidden(timed)
        && (line.find(steps, is_hidden) != Some((here, step))
            || line.find(steps, is_waiting).is_none())
    {
        return None;
    }
    let next = state.after(&timed.step)?;
    (timed.at.is_some() || next != *state).then_some(next)
}

/// Undoes the last choice, and says where it was made.
fn go_back(
    line: &mut Line,
    set: &mut [u64],
    taken: &mut Vec<Taken>,
    state: &mut State,
) -> Option<usize> {
    while let Some(Taken { begin, step, before, forced }) = taken.pop() {
        line.put_back(begin, step);
        flip(set, step);
        *state = before;
        if !forced {
            return Some(begin);
        }
    }
    None
}

fn flip(set: &mut [u64], step: usize) {
    set[step / 64] ^= 1 << (step % 64);
}

/// The steps taken so far; those that need not be taken and never can be any more count as taken, so
/// that it does not matter whether they were.
fn key(set: &[u64], steps: &[Timed], state: &State) -> Vec<u64> {
    let mut key = set.to_vec();
    for (index, timed) in steps.iter().enumerate() {
        if timed.at.is_none() && state.is_past(&timed.step) {
            key[index / 64] |= 1 << (index % 64);
        }
    }
    key
}

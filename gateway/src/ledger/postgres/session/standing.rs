//! What this gateway knows that speaks against the server of its ledger, and on which line of the ledger it
//! knows it.

use fence_core::ports::{LedgerError, Line, Unwritable};

/// What this gateway knows that speaks against the server.
#[derive(Debug, Default)]
pub(super) struct Standing {
    /// The line of the ledger, once it was read. What speaks against the server in one generation does not
    /// count in the next: the ledger was re-fenced in between.
    line: Option<Line>,
    /// The highest position that was seen flushed on it: a server that is behind it has lost commits.
    flushed: i64,
    /// The timeline that the ledger's guards know on this line; empty before it was read.
    timeline: String,
    /// Where the timeline of the line before ended, if this gateway saw that one, too.
    left_at: Option<i64>,
    /// Why this server must not be acted on any more on this line.
    halted: Option<String>,
    /// Why nothing is read from it as the present, on this line: the ledger or the mint says that it lost
    /// commits, or was replaced. Acts ask the ledger each time.
    doubted: Option<String>,
    /// Why the server that was asked last says of itself that it must be re-fenced. Another one that the address
    /// leads to later may be good.
    told: Option<String>,
    /// The start of the server to which the newest connection leads, in microseconds of Unix time.
    started_us: Option<i64>,
    /// Set while no gateway has looked yet whether that server lost anything.
    restarted: bool,
    /// Which standbys the server's commits waited for when it was asked last.
    standbys: Option<String>,
}

impl Standing {
    /// Takes note of where the ledger stands, and of whether it calls for a re-fence itself.
    ///
    /// 1. If its line is older than what was seen `before` the ledger was asked, the ledger went back. If its
    ///    line is only older than what is known by now, the answer was overtaken by another one.
    /// 2. In a generation that is new to this gateway, nothing speaks against the server any more, and the
    ///    position may be a lower one.
    /// 3. After an adoption, what was seen of the previous timeline must lie before the position at which that
    ///    timeline ended; otherwise the server lacks what this gateway knows to have been acknowledged.
    ///
    /// Says whether the line is new to this gateway: older connections may then lead elsewhere.
    pub(super) fn stands(&mut self, before: Option<Line>, stand: &Stood<'_>) -> bool {
        let line = stand.line;
        let known = self.line;
        let newer = known.is_none_or(|known| line > known);
        self.line = known.max(Some(line));
        if let Some(known) = before.filter(|before| *before > line) {
            self.halted
                .get_or_insert_with(|| format!("the ledger is in {line}, but {known} was seen"));
        }
        if newer {
            let adopted = known.filter(|known| known.generation == line.generation);
            self.halted = None;
            match adopted {
                None => self.flushed = 0,
                Some(_) => self.halted = lost_at(stand.left_at, self.flushed),
            }
            self.left_at = stand.left_at.filter(|_| adopted.is_some());
            self.doubted = None;
            self.told = None;
            match (known, adopted) {
                (None, _) => {}
                (_, None) => tracing::warn!(
                    generation = line.generation,
                    "the ledger was re-fenced; what was held against it is over"
                ),
                (_, Some(_)) => tracing::warn!(
                    timeline = stand.timeline,
                    "the ledger was adopted on a new timeline; all tokens stay good"
                ),
            }
        }
        if self.line == Some(line) {
            stand.timeline.clone_into(&mut self.timeline);
        }
        newer
    }

    /// Holds it against the server that it has lost commits, on this line; says whether that is the line, and
    /// whether it was not known.
    pub(super) fn halt(&mut self, line: Option<Line>, why: &str) -> Halted {
        match (self.line == line, &self.halted) {
            (false, _) => Halted::Passed,
            (true, Some(_)) => Halted::Again,
            (true, None) => {
                self.halted = Some(why.to_owned());
                Halted::First
            }
        }
    }

    /// Holds it against the server that it lost commits, or was replaced, unless it was re-fenced or adopted since.
    pub(super) fn doubt(&mut self, line: Line, why: &str) {
        if self.line == Some(line) {
            self.doubted = Some(why.to_owned());
        }
    }

    /// Takes note of whether the server that was asked just now says on this line that it must be re-fenced.
    pub(super) fn tells(&mut self, line: Line, halted: Option<String>) {
        if self.line == Some(line) {
            self.told = halted;
        }
    }

    /// Takes note of whether a server with this start waits for a look. A late answer of the server before says nothing of
    /// the one to which connections lead by now.
    pub(super) fn started(&mut self, started_us: i64, restarted: bool) {
        if self.started_us.is_none_or(|newest| newest == started_us) {
            (self.started_us, self.restarted) = (Some(started_us), restarted);
        }
    }

    /// Takes note of the start of a server to which a connection was made. Another one than the one that is known waits for a
    /// look.
    pub(super) fn connected(&mut self, started_us: i64) {
        let before = self.started_us.replace(started_us);
        self.restarted |= before.is_some_and(|before| before != started_us);
    }

    /// Takes note of which standbys the server's commits wait for: a setting that a reload changes without a word.
    pub(super) fn waits_for(&mut self, standbys: String) {
        let before = self.standbys.replace(standbys.clone());
        if let Some(before) = before.filter(|before| *before != standbys) {
            tracing::warn!(
                before,
                now = standbys,
                "synchronous_standby_names was changed on the Postgres server"
            );
        }
    }

    /// Remembers a position that the server says is flushed, in a session of this line. An answer that is only read
    /// after the ledger was adopted counts as what was seen before does; after a re-fence, it says nothing.
    pub(super) fn saw(&mut self, line: Option<Line>, flushed: i64) {
        if self.line == line || self.line.is_none() {
            self.flushed = self.flushed.max(flushed);
        } else if self.line.map(|line| line.generation) == line.map(|line| line.generation)
            && self.halted.is_none()
        {
            self.halted = lost_at(self.left_at, flushed);
        }
    }

    /// Why nothing is read from this server as the present.
    pub(super) fn held_against(&self) -> Option<LedgerError> {
        let Self { halted, doubted, told, .. } = self;
        let why = halted.clone().or_else(|| doubted.clone()).or_else(|| told.clone());
        let restarted = self.restarted.then_some(LedgerError::Unwritable(Unwritable::Restarted));
        why.map(LedgerError::RefenceRequired).or(restarted)
    }

    /// Why this server must not be acted on any more.
    pub(super) fn halted(&self) -> Option<String> {
        self.halted.clone()
    }

    /// The latest line that this gateway has seen.
    pub(super) fn line(&self) -> Option<Line> {
        self.line
    }

    /// The highest position that this gateway has seen flushed on it.
    pub(super) fn flushed(&self) -> i64 {
        self.flushed
    }

    /// The timeline that the ledger's guards know on it.
    pub(super) fn timeline(&self) -> &str {
        &self.timeline
    }
}

/// What came of holding it against the server that it has lost commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Halted {
    /// Nobody has known.
    First,
    /// This gateway knew it already.
    Again,
    /// The ledger was re-fenced or adopted meanwhile: it is not this server any more.
    Passed,
}

/// What a look at the ledger has found.
pub struct Stood<'a> {
    /// On which line it is.
    pub line: Line,
    /// The timeline that its guards know.
    pub timeline: &'a str,
    /// Where the timeline ended that this gateway knew when it asked, if the ledger was adopted since.
    pub left_at: Option<i64>,
    /// Whether it says itself that it must be re-fenced.
    pub called_for: bool,
}

/// Why a ledger has lost commits whose timeline before ended there, if it has. What is not known of it is no reason:
/// who saw more than one adoption pass unseen has been told the first of them.
fn lost_at(left_at: Option<i64>, seen: i64) -> Option<String> {
    let left_at = left_at.filter(|left_at| seen > *left_at)?;
    Some(format!(
        "the ledger was adopted at position {left_at}, but {seen} was seen flushed before: it has lost commits"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(generation: i64, adoptions: i64) -> Option<Line> {
        Some(Line { generation, adoptions })
    }

    fn stood(generation: i64, adoptions: i64, left_at: Option<i64>) -> Stood<'static> {
        let line = Line { generation, adoptions };
        Stood { line, timeline: "00000002", left_at, called_for: false }
    }

    /// Answers of the ledger may come in another order than they were given.
    #[test]
    fn an_answer_that_was_overtaken_does_not_say_that_the_ledger_went_back() {
        let mut standing = Standing::default();
        let mut stands = |before: Option<i64>, generation| {
            let before = before.and_then(|generation| line(generation, 0));
            standing.stands(before, &stood(generation, 0, None));
            (standing.halted(), standing.line())
        };
        assert_eq!(stands(None, 1), (None, line(1, 0)));
        assert_eq!(stands(Some(1), 2), (None, line(2, 0)));
        assert_eq!(stands(Some(1), 1), (None, line(2, 0)));
        let told = "the ledger is in generation 1, but generation 2 was seen";
        assert_eq!(stands(Some(2), 1), (Some(told.to_owned()), line(2, 0)));
    }

    #[test]
    fn a_late_answer_of_the_server_before_vouches_for_no_other() {
        let mut standing = Standing::default();
        standing.connected(1);
        standing.started(1, false);
        assert_eq!(standing.held_against(), None);
        standing.connected(2);
        standing.started(1, false);
        let restarted = LedgerError::Unwritable(Unwritable::Restarted);
        assert_eq!(standing.held_against(), Some(restarted));
        standing.started(2, true);
        assert!(standing.held_against().is_some());
        standing.started(2, false);
        assert_eq!(standing.held_against(), None);
    }

    /// What an act has seen must be there after an adoption, whenever its answer is read.
    #[test]
    fn an_adoption_that_lacks_what_was_seen_is_held_against_the_server() {
        let why = |known: i64, late: Option<i64>| {
            let mut standing = Standing::default();
            standing.stands(None, &stood(1, 0, None));
            standing.saw(line(1, 0), known);
            standing.stands(line(1, 0), &stood(1, 1, Some(100)));
            late.into_iter().for_each(|flushed| standing.saw(line(1, 0), flushed));
            standing.held_against().map(|error| error.to_string())
        };
        assert_eq!(why(100, None), None);
        assert_eq!(why(100, Some(100)), None);
        assert!(why(101, None).is_some_and(|why| why.contains("100, but 101 was seen")));
        assert!(why(5, Some(101)).is_some_and(|why| why.contains("100, but 101 was seen")));
    }
}

//! The history of a resource, and the feed of committed writes.

use std::fmt;

use super::Applied;

/// A place in the feed: just behind the event with this number.
///
/// `g<generation>-<number>`. Numbers start at 1 and have no gaps. The generation of the ledger rises
/// with each re-fence, after which the numbers of writes that were lost are given to other ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventCursor {
    /// The ledger's generation.
    pub generation: i64,
    /// The number of the event; 0 before the first.
    pub number: i64,
}

impl EventCursor {
    /// Parses the exact form that [`fmt::Display`] writes.
    pub fn parse(text: &str) -> Option<Self> {
        let (generation, number) = text.strip_prefix('g')?.split_once('-')?;
        let cursor = Self { generation: generation.parse().ok()?, number: number.parse().ok()? };
        let positive = cursor.generation >= 0 && cursor.number >= 0;
        (positive && cursor.to_string() == text).then_some(cursor)
    }
}

impl fmt::Display for EventCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "g{}-{}", self.generation, self.number)
    }
}

/// How far the numbering has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventsHead {
    /// The last event.
    pub last: EventCursor,
    /// Whether everything that had been committed when the step began is numbered now; otherwise
    /// another gateway was at it.
    pub whole: bool,
}

/// Events behind a place, and how that place stands to the ledger; all from one snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventsPage {
    /// The last event that there is, in the ledger's generation.
    pub last: EventCursor,
    /// The number up to which events were let go; 0 if none were.
    pub gone: i64,
    /// The lowest number at which a generation after the one asked about began.
    pub rewound: Option<i64>,
    /// The events in their order, each with its number.
    pub events: Vec<(i64, Applied)>,
}

impl EventsPage {
    /// Where to begin again, if a reader that is at this place has seen what may have been lost, cannot know
    /// whether it has, or has not seen what was let go since.
    pub fn void(&self, at: EventCursor) -> Option<EventCursor> {
        let number = if at.generation < self.last.generation {
            at.number.min(self.rewound.unwrap_or(0))
        } else if at > self.last {
            // From a ledger that was ahead of this one.
            0
        } else if at.number < self.gone {
            self.gone
        } else {
            return None;
        };
        Some(EventCursor { generation: self.last.generation, number: number.max(self.gone) })
    }
}

/// Which writes of a resource to list, newest first.
#[derive(Debug, Clone, Default)]
pub struct VersionsFilter {
    /// Only of objects whose keys begin with this, deletions of all objects, and commits.
    pub prefix: String,
    /// Only versions below this.
    pub before: Option<i64>,
    /// Only versions from this on.
    pub from: i64,
    /// At most this many.
    pub limit: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_exact_form_is_a_cursor() {
        let cursor = EventCursor { generation: 1, number: 17 };
        assert_eq!(cursor.to_string(), "g1-17");
        assert_eq!(EventCursor::parse("g1-17"), Some(cursor));
        for other in
            ["", "17", "g1", "g-1-7", "g1--7", "g1-017", "g1-+7", "g1-7 ", "G1-7", "g1-17-2"]
        {
            assert_eq!(EventCursor::parse(other), None, "{other}");
        }
    }

    #[test]
    fn a_cursor_of_another_generation_is_void_beyond_where_that_parted() {
        let at = |generation, number| EventCursor { generation, number };
        let page = |rewound| EventsPage { last: at(2, 100), gone: 0, rewound, events: Vec::new() };
        assert_eq!(page(None).void(at(2, 0)), None);
        assert_eq!(page(None).void(at(2, 100)), None);
        assert_eq!(page(None).void(at(2, 101)), Some(at(2, 0)));
        assert_eq!(page(None).void(at(3, 1)), Some(at(2, 0)));
        assert_eq!(page(Some(70)).void(at(1, 90)), Some(at(2, 70)));
        assert_eq!(page(Some(70)).void(at(0, 60)), Some(at(2, 60)));
    }

    #[test]
    fn a_cursor_behind_the_first_event_that_is_kept_is_void() {
        let at = |generation, number| EventCursor { generation, number };
        let page = |rewound| EventsPage { last: at(2, 100), gone: 50, rewound, events: Vec::new() };
        assert_eq!(page(None).void(at(2, 50)), None);
        assert_eq!(page(None).void(at(2, 49)), Some(at(2, 50)));
        assert_eq!(page(None).void(at(2, 0)), Some(at(2, 50)));
        assert_eq!(page(Some(70)).void(at(1, 90)), Some(at(2, 70)));
        assert_eq!(page(Some(30)).void(at(1, 90)), Some(at(2, 50)));
        assert_eq!(page(None).void(at(2, 101)), Some(at(2, 50)));
    }
}

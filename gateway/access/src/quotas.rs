//! How much one principal may have of what all share: so that nobody who is let in keeps the others out.

/// Requests in a second, and at once, of whoever no role says more or less of.
const RATE: u32 = 2_000;
const BURST: u32 = 4_000;
/// The same of streams, of queries at a time, and of places in one line.
const STREAMS: usize = 100;
const QUERIES: usize = 2;
const LINE_PLACES: usize = 100;
/// How many times its rate a principal may ask at once whose role says nothing of that.
const BURST_OF_RATE: u32 = 2;

/// How much one principal may have, at each gateway by itself. None: the share that the gateway gives to each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quotas {
    /// Requests in a second.
    pub rate: u32,
    /// Requests at once, after a pause.
    pub burst: u32,
    /// Connections.
    pub connections: Option<usize>,
    /// Event streams, and calls that wait for a change.
    pub streams: usize,
    /// Uploads under way.
    pub uploads: Option<usize>,
    /// Questions of the ledger at a time: lists, the audit, outcomes.
    pub queries: usize,
    /// Bytes of bodies in memory.
    pub body_bytes: Option<usize>,
    /// Places in the line of one resource.
    pub line_places: usize,
}

/// What a role says of it; each at least 1, since `allow` says who may do a thing at all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Stated {
    pub(crate) rate: Option<u32>,
    pub(crate) burst: Option<u32>,
    pub(crate) connections: Option<usize>,
    pub(crate) streams: Option<usize>,
    pub(crate) uploads: Option<usize>,
    pub(crate) queries: Option<usize>,
    pub(crate) body_bytes: Option<usize>,
    pub(crate) line_places: Option<usize>,
}

/// The most that any of these may be.
pub(crate) const QUOTA_MAX: usize = 1 << 40;

impl Stated {
    /// Each by its name, as far as they are stated.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&'static str, usize)> {
        let rates = [("rate", self.rate), ("burst", self.burst)];
        let rates = rates.map(|(name, rate)| (name, rate.map(|rate| rate as usize)));
        let others = [
            ("connections", self.connections),
            ("streams", self.streams),
            ("uploads", self.uploads),
            ("queries", self.queries),
            ("body_bytes", self.body_bytes),
            ("line_places", self.line_places),
        ];
        rates.into_iter().chain(others).filter_map(|(name, stated)| Some((name, stated?)))
    }

    /// Of two roles the greater counts; one that is silent takes nothing away.
    pub(crate) fn or_more(self, other: Self) -> Self {
        Self {
            rate: self.rate.max(other.rate),
            burst: self.burst.max(other.burst),
            connections: self.connections.max(other.connections),
            streams: self.streams.max(other.streams),
            uploads: self.uploads.max(other.uploads),
            queries: self.queries.max(other.queries),
            body_bytes: self.body_bytes.max(other.body_bytes),
            line_places: self.line_places.max(other.line_places),
        }
    }
}

impl From<Stated> for Quotas {
    fn from(stated: Stated) -> Self {
        let burst = match stated.rate {
            Some(rate) => rate.saturating_mul(BURST_OF_RATE),
            None => BURST,
        };
        Self {
            rate: stated.rate.unwrap_or(RATE),
            burst: stated.burst.unwrap_or(burst),
            connections: stated.connections,
            streams: stated.streams.unwrap_or(STREAMS),
            uploads: stated.uploads,
            queries: stated.queries.unwrap_or(QUERIES),
            body_bytes: stated.body_bytes,
            line_places: stated.line_places.unwrap_or(LINE_PLACES),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greater_counts_and_silence_takes_nothing_away() {
        let stated = |rate, streams| Stated { rate, streams, ..Stated::default() };
        let quotas: Quotas = stated(None, None).into();
        assert_eq!((quotas.rate, quotas.burst, quotas.streams), (RATE, BURST, STREAMS));
        let quotas: Quotas = stated(Some(10), None).or_more(stated(None, Some(5))).into();
        assert_eq!((quotas.rate, quotas.burst, quotas.streams), (10, 20, 5));
        let quotas: Quotas = stated(Some(10), Some(5)).or_more(stated(Some(9), Some(6))).into();
        assert_eq!((quotas.rate, quotas.streams), (10, 6));
    }
}

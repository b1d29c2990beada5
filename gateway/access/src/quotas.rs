//! How much one principal may have of what all share: so that nobody who is let in keeps the others out.

/// What a principal has a share of, by the name that roles use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quota {
    /// Requests in a second.
    Rate,
    /// Requests at once, after a pause.
    Burst,
    /// Connections.
    Connections,
    /// Event streams, and calls that wait for news.
    Streams,
    /// Uploads under way.
    Uploads,
    /// Questions of the ledger at a time: lists, the audit, outcomes.
    Queries,
    /// Bytes of bodies in memory.
    BodyBytes,
    /// Places in the line of one resource.
    LinePlaces,
    /// Locks in force.
    Locks,
    /// Resources that it was the first to lock.
    NewResources,
    /// Objects that it put.
    Keys,
    /// Their bytes.
    Bytes,
}

/// How many there are.
const COUNT: usize = Quota::ALL.len();
/// Requests in a second of whoever no role says more or less of.
const RATE: u64 = 2_000;
/// How many times its rate a principal may ask at once whose roles say nothing of that.
const BURST_OF_RATE: u64 = 2;
/// The most that any of them may be.
const MAX: u64 = 1 << 53;

impl Quota {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Rate,
        Self::Burst,
        Self::Connections,
        Self::Streams,
        Self::Uploads,
        Self::Queries,
        Self::BodyBytes,
        Self::LinePlaces,
        Self::Locks,
        Self::NewResources,
        Self::Keys,
        Self::Bytes,
    ];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Burst => "burst",
            Self::Connections => "connections",
            Self::Streams => "streams",
            Self::Uploads => "uploads",
            Self::Queries => "queries",
            Self::BodyBytes => "body_bytes",
            Self::LinePlaces => "line_places",
            Self::Locks => "locks",
            Self::NewResources => "new_resources",
            Self::Keys => "keys",
            Self::Bytes => "bytes",
        }
    }
}

/// How much one principal may have, as far as its roles say: at each gateway by itself, or in the ledger, through all of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Quotas([Option<u64>; COUNT]);

impl Quotas {
    /// What a role says.
    ///
    /// # Errors
    /// One is too small or too large, with why. Each is at least 1: `allow` says who may do a thing at all.
    pub(crate) fn stated(stated: [(Quota, Option<u64>); COUNT]) -> Result<Self, String> {
        let mut quotas = Self::default();
        for (quota, amount) in stated {
            if amount.is_some_and(|amount| !(1..=MAX).contains(&amount)) {
                return Err(format!("`{}` is between 1 and {MAX}", quota.as_str()));
            }
            quotas.0[quota as usize] = amount;
        }
        Ok(quotas)
    }

    /// Of two roles the greater counts; one that is silent takes nothing away.
    pub(crate) fn or_more(self, other: Self) -> Self {
        Self(std::array::from_fn(|at| self.0[at].max(other.0[at])))
    }

    /// How much it is; none where each principal has the share that the gateway gives, or as much as there is.
    pub fn get(&self, quota: Quota) -> Option<u64> {
        let unless_stated = match quota {
            Quota::Rate => Some(RATE),
            Quota::Burst => self.get(Quota::Rate).map(|rate| rate * BURST_OF_RATE),
            Quota::Streams | Quota::LinePlaces => Some(100),
            Quota::Queries => Some(2),
            Quota::Locks => Some(10_000),
            Quota::NewResources => Some(100_000),
            Quota::Keys => Some(1_000_000),
            Quota::Connections | Quota::Uploads | Quota::BodyBytes | Quota::Bytes => None,
        };
        self.0[quota as usize].or(unless_stated)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stated(some: &[(Quota, u64)]) -> Result<Quotas, String> {
        let of = |quota| some.iter().find(|(of, _)| *of == quota).map(|(_, amount)| *amount);
        Quotas::stated(Quota::ALL.map(|quota| (quota, of(quota))))
    }

    #[test]
    fn the_greater_counts_and_silence_takes_nothing_away() {
        let [rate, burst, streams] = [Quota::Rate, Quota::Burst, Quota::Streams];
        let none = Quotas::default();
        assert_eq!([rate, burst, streams].map(|it| none.get(it)), [2_000, 4_000, 100].map(Some));
        assert_eq!(none.get(Quota::Connections), None);
        let slow = stated(&[(rate, 10)]).unwrap();
        let both = slow.or_more(stated(&[(streams, 5)]).unwrap());
        assert_eq!([rate, burst, streams].map(|it| both.get(it)), [10, 20, 5].map(Some));
        let more = both.or_more(stated(&[(rate, 9), (burst, 7), (streams, 6)]).unwrap());
        assert_eq!([rate, burst, streams].map(|it| more.get(it)), [10, 7, 6].map(Some));
    }

    #[test]
    fn each_is_between_one_and_a_limit() {
        for quota in Quota::ALL {
            assert!(stated(&[(quota, 1)]).is_ok() && stated(&[(quota, MAX)]).is_ok());
            for amount in [0, MAX + 1, u64::MAX] {
                let refused = stated(&[(quota, amount)]).unwrap_err();
                assert!(refused.contains(quota.as_str()), "{refused}");
            }
        }
    }
}

//! What happened in a run, as somebody knows it who sees everything, and the invariants over it. No
//! decision of a model reads it.

/// A write that took effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Written {
    /// The operation.
    pub operation: u8,
    /// The resource.
    pub resource: u8,
    /// The version that it took; 0 for none.
    pub version: i64,
    /// The token that it presented.
    pub token: i64,
    /// The token that was sealed last at that moment.
    pub sealed: i64,
    /// The sequence number that its client gave it.
    pub sequence: Option<i64>,
    /// Whether it carried the idempotency key.
    pub keyed: bool,
}

/// A token that was given out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Given {
    /// The resource.
    pub resource: u8,
    /// The token.
    pub token: i64,
    /// The version in the answer, which is what its holder reads.
    pub version: i64,
}

/// A run so far.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct History {
    /// Writes in the order in which they took effect.
    pub written: Vec<Written>,
    /// Tokens in the order in which they were given out.
    pub given: Vec<Given>,
}

impl History {
    /// I3: in version order, tokens never fall.
    pub fn tokens_never_fall(&self) -> bool {
        self.pairs().all(|(earlier, later)| earlier.token <= later.token)
    }

    /// I4: under one token, sequence numbers rise in version order.
    pub fn sequences_rise(&self) -> bool {
        let same = |(earlier, later): &(&Written, &Written)| earlier.token == later.token;
        self.pairs().filter(same).all(|(earlier, later)| match (earlier.sequence, later.sequence) {
            (Some(before), Some(after)) => before < after,
            _ => true,
        })
    }

    /// I5: what the holder of a new token has read is final: no write under an older token comes after.
    pub fn reads_are_final(&self) -> bool {
        self.given.iter().all(|given| {
            let older = |one: &&Written| one.resource == given.resource && one.token < given.token;
            self.written.iter().filter(older).all(|one| one.version <= given.version)
        })
    }

    /// I6: each write was made under the token that was sealed last, and each version belongs to one.
    pub fn writes_are_fenced(&self) -> bool {
        let once = self.pairs().all(|(earlier, later)| earlier.version < later.version);
        once && self.written.iter().all(|one| one.token == one.sealed)
    }

    /// I7: the idempotency key had at most one effect.
    pub fn key_had_one_effect(&self) -> bool {
        self.written.iter().filter(|one| one.keyed).count() <= 1
    }

    /// Whether an operation took effect.
    pub fn has(&self, operation: u8) -> bool {
        self.written.iter().any(|one| one.operation == operation)
    }

    /// Two writes on one resource, in the order in which they took effect.
    fn pairs(&self) -> impl Iterator<Item = (&Written, &Written)> {
        let later = |at: usize| self.written.iter().skip(at + 1);
        let pairs = self
            .written
            .iter()
            .enumerate()
            .flat_map(move |(at, one)| later(at).map(move |other| (one, other)));
        pairs.filter(|(one, other)| one.resource == other.resource)
    }
}

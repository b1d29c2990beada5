//! A mint in memory: a counter and a nonce.

use std::sync::Mutex;

use async_trait::async_trait;
use uuid::Uuid;

use crate::mutants::{self, Mutant};
use crate::ports::{Carry, Ended, Head, Mint, MintError, MintItem, Witness};

#[derive(Debug, Clone, Default)]
struct State {
    nonce: Option<Uuid>,
    number: i64,
    ledger: Option<Uuid>,
    witness: Option<Witness>,
    witness_revision: i64,
    available: bool,
}

impl State {
    fn head(&self) -> Head {
        Head {
            number: self.number,
            incarnation: self.nonce,
            ledger: self.ledger,
            witness: self.witness.clone(),
            witness_revision: self.witness_revision,
        }
    }

    /// Each change has a number of its own, as in etcd.
    fn witness(&mut self, witness: &Witness) {
        self.number += 1;
        self.witness_revision = self.number;
        self.witness = Some(witness.clone());
    }
}

/// A mint that forgets everything with the process. It can be made unavailable, and put back to an
/// older number, as a restored etcd would be.
#[derive(Debug)]
pub struct MemoryMint {
    state: Mutex<State>,
}

impl Default for MemoryMint {
    fn default() -> Self {
        Self { state: Mutex::new(State { available: true, ..State::default() }) }
    }
}

impl MemoryMint {
    /// Answers from now on, or fails.
    pub fn set_available(&self, available: bool) {
        self.lock().available = available;
    }

    /// Goes back, or ahead, to `number`; the nonce stays, as in a restored snapshot.
    pub fn set_number(&self, number: i64) {
        self.lock().number = number;
    }

    /// A mint of its own that holds what this one holds now, as a snapshot does.
    pub fn copy(&self) -> Self {
        Self { state: Mutex::new(self.lock().clone()) }
    }

    /// Forgets all it has, as an etcd that was wiped.
    pub fn wipe(&self) {
        let mut state = self.lock();
        *state = State { available: state.available, ..State::default() };
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn reach(&self) -> Result<std::sync::MutexGuard<'_, State>, MintError> {
        let state = self.lock();
        if state.available {
            Ok(state)
        } else {
            Err(MintError::Unavailable("the mint is switched off".into()))
        }
    }
}

#[async_trait]
impl Mint for MemoryMint {
    async fn mint(
        &self,
        nonce: Uuid,
        items: &[MintItem],
        _: &[Ended],
    ) -> Result<Vec<i64>, MintError> {
        let mut state = self.reach()?;
        if state.nonce != Some(nonce) {
            return Err(MintError::OtherIncarnation { found: state.nonce });
        }
        if mutants::is(Mutant::OneNumberForAll) {
            state.number += 1;
            return Ok(vec![state.number; items.len()]);
        }
        let mut next = || {
            state.number += 1;
            state.number
        };
        Ok(items.iter().map(|_| next()).collect())
    }

    async fn adopt(&self, nonce: Uuid, ledger: Uuid) -> Result<Uuid, MintError> {
        let mut state = self.reach()?;
        state.head().check_owner(ledger)?;
        state.ledger = Some(ledger);
        Ok(*state.nonce.get_or_insert(nonce))
    }

    async fn head(&self) -> Result<Head, MintError> {
        Ok(self.reach()?.head())
    }

    async fn replace(&self, seen: &Head, carry: &Carry) -> Result<bool, MintError> {
        let mut state = self.reach()?;
        seen.check_owner(carry.ledger)?;
        let same = state.nonce == seen.incarnation
            && state.ledger == seen.ledger
            && state.witness_revision == seen.witness_revision;
        if same {
            state.nonce = Some(carry.nonce);
            state.ledger = Some(carry.ledger);
            state.witness(&carry.witness);
        }
        Ok(same)
    }

    async fn raise(&self, seen: &Head, ledger: Uuid, witness: &Witness) -> Result<bool, MintError> {
        let mut state = self.reach()?;
        let same = state.ledger == Some(ledger) && state.witness_revision == seen.witness_revision;
        if same {
            state.witness(witness);
        }
        Ok(same)
    }

    async fn incarnation(&self) -> Result<Option<Uuid>, MintError> {
        Ok(self.reach()?.nonce)
    }
}

//! A mint in memory: a counter and a nonce.

use std::sync::Mutex;

use async_trait::async_trait;
use uuid::Uuid;

use crate::ports::{Ended, Mint, MintError, MintItem};

#[derive(Debug, Default)]
struct State {
    nonce: Option<Uuid>,
    number: i64,
    available: bool,
}

/// A mint that forgets everything with the process. It can be made unavailable, and put back to an
/// older number, as a restored etcd would be.
#[derive(Debug)]
pub struct MemoryMint {
    state: Mutex<State>,
}

impl Default for MemoryMint {
    fn default() -> Self {
        Self { state: Mutex::new(State { nonce: None, number: 0, available: true }) }
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

    /// Forgets its nonce, as an etcd that was wiped.
    pub fn wipe(&self) {
        let mut state = self.lock();
        state.nonce = None;
        state.number = 0;
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
    async fn mint(&self, nonce: Uuid, _: &[MintItem], _: &[Ended]) -> Result<i64, MintError> {
        let mut state = self.reach()?;
        if state.nonce != Some(nonce) {
            return Err(MintError::OtherIncarnation { found: state.nonce });
        }
        state.number += 1;
        Ok(state.number)
    }

    async fn adopt(&self, nonce: Uuid) -> Result<Uuid, MintError> {
        Ok(*self.reach()?.nonce.get_or_insert(nonce))
    }

    async fn incarnation(&self) -> Result<Option<Uuid>, MintError> {
        Ok(self.reach()?.nonce)
    }
}

//! A lock that another process holds and renews, and whose token this one may use: the child of a program
//! that holds it, for instance, or a writer whom the holder has named (CC14a, CC40).

use std::sync::Arc;

use fencegate_wire::{LockId, Token};

use super::fence::{Fence, without_renewals};
use crate::client::Client;
use crate::error::Error;
use crate::guard::held::Held;
use crate::names::Resources;

impl Client {
    /// A guard for a token that another process holds. It is neither renewed nor given back, and its writes
    /// have no numbers, since the holder writes, too. A holder that lends its token takes the lock with
    /// [`LockBuilder::unnumbered`](crate::LockBuilder::unnumbered): numbers order the writes of one process. Where
    /// rules of access are in force, the other process is of the same principal, or has named this one with
    /// [`LockBuilder::writer`](crate::LockBuilder::writer).
    ///
    /// # Errors
    /// [`Error::Misuse`]: a name, the token or the id is none.
    pub fn lent(
        &self,
        resources: impl Into<Resources>,
        token: &str,
        id: &str,
    ) -> Result<Fence, Error> {
        let resources = resources.into().checked().map_err(Error::misuse)?;
        if resources.is_empty() {
            return Err(Error::misuse("a guard covers at least one resource"));
        }
        let token = Token::parse(token.as_bytes()).map_err(Error::misuse)?;
        let id = LockId::parse(id).map_err(Error::misuse)?;
        let owner = self.inner.owner.clone();
        let held: Arc<Held> =
            Held::new(self.inner.clone(), without_renewals(id, token, resources, owner, false));
        Ok(Fence { held, version: None })
    }
}

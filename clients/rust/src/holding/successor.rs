//! Who gets a lock that is handed over: a name for all to see, and the principal whose it will be (CC50).

use fencegate_wire::LockId;
use fencegate_wire::json::TransferRequest;

use crate::client::builder::check_owner;
use crate::error::Error;
use crate::names;

/// Who gets a lock that is handed over. A text alone is what the successor calls itself.
///
/// # Examples
/// ```
/// use fencegate_client::Successor;
///
/// let own = Successor::from("second-stage");
/// let other = Successor::named("second-stage").principal("worker-b");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Successor {
    owner: String,
    principal: Option<String>,
}

impl Successor {
    /// One that calls itself so, shown to everybody; at most 256 bytes.
    pub fn named(owner: impl Into<String>) -> Self {
        Self { owner: owner.into(), principal: None }
    }

    /// The principal whose the lock will be; by default it stays that of the caller. Another one is for callers who
    /// may `delegate`, where rules of access are in force: they cannot use the lock themselves any more.
    #[must_use]
    pub fn principal(mut self, name: impl Into<String>) -> Self {
        self.principal = Some(name.into());
        self
    }

    /// What is sent, with this id for the new lock, if the names are good.
    pub(super) fn request(self, id: LockId) -> Result<TransferRequest, Error> {
        check_owner(&self.owner)?;
        let principal = self.principal.as_deref().map(names::principal).transpose()?;
        Ok(TransferRequest { owner: self.owner, id: Some(id), principal })
    }
}

impl From<&str> for Successor {
    fn from(owner: &str) -> Self {
        Self::named(owner)
    }
}

impl From<&String> for Successor {
    fn from(owner: &String) -> Self {
        Self::named(owner)
    }
}

impl From<String> for Successor {
    fn from(owner: String) -> Self {
        Self::named(owner)
    }
}

//! The end of the lock of a run that has no end on record, as the audit tells it.

use std::fmt;

use fencegate_wire::json::{AuditEntry, Resource};
use fencegate_wire::{AuditAction, GrantEnd};
use jiff::Timestamp;

use super::record::{Run, RunStatus};
use crate::client::Client;
use crate::error::Error;

/// So many of the newest entries are looked through.
const ENTRIES: u32 = 50;

/// The end of a run's lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// How.
    pub how: GrantEnd,
    /// The operator who broke it: the principal, or where there are no rules of access the address that it came from.
    pub by: Option<String>,
    /// Why, in the operator's words.
    pub reason: Option<String>,
}

impl Cut {
    /// The status of the run: somebody has ended it on purpose, or nobody knows what became of it.
    pub(crate) fn status(&self) -> RunStatus {
        match self.how {
            GrantEnd::Broken => RunStatus::Cancelled,
            _ => RunStatus::Abandoned,
        }
    }
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.how {
            GrantEnd::Broken => {
                write!(f, "{} broke its lock", self.by.as_deref().unwrap_or("an operator"))?;
                self.reason.as_ref().map_or(Ok(()), |reason| write!(f, ": {reason}"))
            }
            GrantEnd::Released => f.write_str("its lock was given back before it ended"),
            GrantEnd::Transferred => f.write_str("its lock was handed over before it ended"),
            GrantEnd::Fenced => f.write_str("a fence was set over its lock"),
            GrantEnd::Lapsed => f.write_str("its lock lapsed before it ended"),
            GrantEnd::Void => f.write_str("its lock was void since a re-fence"),
        }
    }
}

impl Client {
    /// Finds the end of a run's lock; `None`: it has not ended, or the audit does not say it, or not to us.
    ///
    /// # Errors
    /// The gateway cannot be asked.
    pub async fn job_cut(&self, run: &Run, resource: &Resource) -> Result<Option<Cut>, Error> {
        let Some(acquired_at) = run.acquired_at else { return Ok(None) };
        let list = self.audit().resource(resource.resource.as_str()).page_size(ENTRIES);
        match list.page(None).await {
            Ok(page) => Ok(cut(&page.items, acquired_at, resource)),
            Err(Error::Denied(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn operator(entry: &AuditEntry) -> Option<String> {
    let at = |peer: &String| format!("an operator at {peer}");
    entry.principal.clone().or_else(|| entry.peer.as_ref().map(at))
}

/// Finds the end of the grant of that time in these entries, newest first: the next grant says it, or the resource.
fn cut(entries: &[AuditEntry], acquired_at: Timestamp, resource: &Resource) -> Option<Cut> {
    let is_grant = |entry: &&AuditEntry| {
        AuditAction::parse(&entry.action).is_some_and(AuditAction::is_of_grant)
    };
    let since: Vec<&AuditEntry> =
        entries.iter().take_while(|entry| entry.at >= acquired_at).collect();
    let next = since.iter().rev().find(|entry| is_grant(entry) && entry.at > acquired_at);
    let word = match next {
        Some(next) => next.previous_end.as_ref()?.as_str(),
        None if resource.acquired_at == acquired_at => resource.state.as_str(),
        None => return None,
    };
    let how = GrantEnd::parse(word)?;
    let until = next.map_or(Timestamp::MAX, |next| next.at);
    let broke = |entry: &&&AuditEntry| entry.action == "break" && entry.at <= until;
    let broke = since.iter().find(broke).filter(|_| how == GrantEnd::Broken);
    Some(Cut {
        how,
        by: broke.and_then(|entry| operator(entry)),
        reason: broke.and_then(|entry| entry.reason.clone()),
    })
}

//! What an acquire asks for, checked before anything is sent.

use fencegate_wire::json::LOCK_RESOURCES_MAX;
use fencegate_wire::{MaxHold, Metadata, ResourceName, Ttl, WriterName};

use super::{LockBuilder, Wait};
use crate::client::builder::check_owner;
use crate::clock::ms;
use crate::error::Error;
use crate::machine::acquiring::Patience;
use crate::machine::lease::Terms;
use crate::names;

/// What is asked for, checked.
pub(super) struct Wish {
    pub(super) resources: Vec<ResourceName>,
    pub(super) owner: String,
    pub(super) ttl: Ttl,
    pub(super) max_hold: Option<MaxHold>,
    pub(super) metadata: Option<Metadata>,
    pub(super) writers: Vec<WriterName>,
    pub(super) only_if_exists: bool,
    pub(super) patience: Patience,
    pub(super) terms: Terms,
    pub(super) grace_ms: u64,
    pub(super) is_watched: bool,
    pub(super) is_ordered: bool,
    pub(super) is_numbered: bool,
}

impl Wish {
    pub(super) fn of(builder: &LockBuilder) -> Result<Self, Error> {
        let inner = &builder.client.inner;
        let resources = builder.resources.clone().map_err(Error::misuse)?;
        if resources.is_empty() || resources.len() > LOCK_RESOURCES_MAX {
            let text = format!("a lock is on 1 to {LOCK_RESOURCES_MAX} resources");
            return Err(Error::misuse(text));
        }
        let owner = builder.owner.clone().unwrap_or_else(|| inner.owner.clone());
        check_owner(&owner)?;
        let ttl = match (builder.is_infinite, builder.ttl) {
            (true, _) => Ttl::INFINITE,
            (false, None) => inner.ttl,
            (false, Some(ttl)) => Ttl::new(names::whole_ms(ttl)?).map_err(Error::misuse)?,
        };
        let max_hold = builder.max_hold.map(names::whole_ms).transpose()?;
        let max_hold = max_hold.map(MaxHold::new).transpose().map_err(Error::misuse)?;
        let metadata = match &builder.metadata[..] {
            [] => None,
            words => Some(Metadata::new(words.iter().cloned().collect()).map_err(Error::misuse)?),
        };
        let writers = names::writers(&builder.writers)?;
        if builder.stall_after.is_some_and(|after| after.is_zero()) {
            return Err(Error::misuse("stall_after is more than nothing"));
        }
        let patience = match builder.wait {
            None => Patience::None,
            Some(Wait::UpTo(wait)) if wait.is_zero() => Patience::None,
            Some(Wait::UpTo(wait)) => Patience::UpTo(ms(wait)),
            Some(Wait::Forever) => Patience::Forever,
        };
        let terms = Terms {
            on_uncertain: builder.on_uncertain,
            stall_after_ms: builder.stall_after.map(ms),
            is_renewed: true,
        };
        Ok(Self {
            resources,
            owner,
            ttl,
            max_hold,
            metadata,
            // What others write under the token has no numbers, so that ours would prove nothing (CC24a).
            is_numbered: builder.is_numbered && writers.is_empty(),
            writers,
            only_if_exists: builder.only_if_exists,
            patience,
            terms,
            grace_ms: ms(builder.grace),
            is_watched: builder.is_watched,
            is_ordered: builder.is_ordered,
        })
    }
}

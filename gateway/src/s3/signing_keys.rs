//! Signing keys that were made already: to make one costs four times what it costs to use it.

use std::collections::HashMap;
use std::sync::Arc;

use fencegate_s3::key::{Keys, Named};
use fencegate_s3::sign::{Shown, SigningKey};
use parking_lot::RwLock;

/// Keys that are kept; beyond that all are forgotten.
const KEPT_MAX: usize = 4096;

/// What is kept of a key for a day and a region.
#[derive(Clone)]
pub struct Kept {
    /// What the key names.
    pub named: Named,
    /// What its owner signs with on that day.
    pub key: Arc<SigningKey>,
}

/// Which key, day and region.
type Id = (String, String, String);

/// Keys by their ids.
#[derive(Default)]
pub struct SigningKeys {
    kept: RwLock<HashMap<Id, Kept>>,
}

impl SigningKeys {
    /// What the key of a request names, and what it is signed with; `None` if it is no key. What is kept is a function of
    /// the key's id and of the roots, so nothing that ends a lock has to be heard of here.
    pub fn of(&self, keys: &Keys, shown: &Shown<'_>) -> Option<Kept> {
        let id = (shown.id().to_owned(), shown.day().to_owned(), shown.region().to_owned());
        if let Some(kept) = self.kept.read().get(&id) {
            return Some(kept.clone());
        }
        let (named, secret) = keys.read(shown.id())?;
        let key = Arc::new(SigningKey::of(secret.reveal(), shown.day(), shown.region()));
        let made = Kept { named, key };
        let mut kept = self.kept.write();
        if kept.len() >= KEPT_MAX {
            kept.clear();
        }
        kept.insert(id, made.clone());
        Some(made)
    }
}

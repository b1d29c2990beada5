//! Which rows an act may look at.

use std::collections::BTreeSet;

use fence_core::ports::{
    AbortItem, BlobId, CommitItem, IntentItem, JoinItem, PartItem, SealItem, UploadItem, WriteItem,
};
use fence_core::{LockId, ObjectKey, OperationId, ResourceName, Token};

/// The rows that an act may look at.
#[derive(Default)]
pub(super) struct Needs {
    pub(super) locks: BTreeSet<LockId>,
    pub(super) resources: BTreeSet<ResourceName>,
    /// Grants besides those of the current tokens.
    pub(super) grants: BTreeSet<(ResourceName, Token)>,
    /// Numbers that are to name a grant: whether they name one already.
    pub(super) numbers: BTreeSet<i64>,
    pub(super) operations: BTreeSet<OperationId>,
    pub(super) keys: BTreeSet<(ResourceName, String)>,
    pub(super) objects: BTreeSet<(ResourceName, ObjectKey)>,
    pub(super) intents: BTreeSet<BlobId>,
    /// Uploads whose parts are needed, beside their intents.
    pub(super) uploads: BTreeSet<BlobId>,
    /// Whether the locks and grants of the current tokens are needed.
    pub(super) holders: bool,
    /// Whether it matters what is under way at upstreams.
    pub(super) upstreams: bool,
    /// Whether it matters who is in line.
    pub(super) line: bool,
}

impl Needs {
    pub(super) fn of_seals(items: &[SealItem]) -> Self {
        Self {
            locks: items.iter().flat_map(|item| [Some(item.lock), item.from()]).flatten().collect(),
            resources: items.iter().flat_map(|item| item.resources.iter().cloned()).collect(),
            numbers: items.iter().filter_map(|item| item.number).collect(),
            holders: true,
            upstreams: true,
            line: true,
            ..Self::default()
        }
    }

    pub(super) fn of_joins(items: &[JoinItem]) -> Self {
        Self {
            locks: items.iter().map(|item| item.lock).collect(),
            resources: items.iter().flat_map(|item| item.resources.iter().cloned()).collect(),
            line: true,
            ..Self::default()
        }
    }

    pub(super) fn of_locks(locks: impl Iterator<Item = LockId>) -> Self {
        Self { locks: locks.collect(), holders: true, ..Self::default() }
    }

    pub(super) fn of_resources(resources: impl Iterator<Item = ResourceName>) -> Self {
        Self { resources: resources.collect(), holders: true, ..Self::default() }
    }

    pub(super) fn of_upstreams(
        operations: impl IntoIterator<Item = OperationId>,
        resources: impl IntoIterator<Item = ResourceName>,
    ) -> Self {
        let (operations, resources) =
            (operations.into_iter().collect(), resources.into_iter().collect());
        Self { operations, resources, upstreams: true, ..Self::default() }
    }

    pub(super) fn of_intents(items: &[IntentItem]) -> Self {
        let at = |item: &IntentItem| item.resource.clone();
        Self {
            resources: items.iter().map(at).collect(),
            grants: items.iter().map(|item| (at(item), item.token)).collect(),
            operations: items.iter().map(|item| item.operation).collect(),
            upstreams: true,
            ..Self::default()
        }
    }

    pub(super) fn of_writes(items: &[WriteItem]) -> Self {
        let mut needs = Self::default();
        for item in items {
            let at = || item.resource.clone();
            needs.resources.insert(at());
            needs.grants.insert((at(), item.token));
            needs.operations.insert(item.operation);
            needs.keys.extend(item.idempotency.iter().map(|key| (at(), key.key.clone())));
            needs.objects.extend(item.effect.key().map(|key| (at(), key.clone())));
            needs.intents.extend(item.effect.blob());
            needs.uploads.extend(item.effect.parts().and(item.effect.blob()));
        }
        needs
    }

    pub(super) fn of_part(item: &PartItem) -> Self {
        Self {
            resources: BTreeSet::from([item.resource.clone()]),
            grants: BTreeSet::from([(item.resource.clone(), item.token)]),
            intents: BTreeSet::from([item.upload, item.blob]),
            uploads: BTreeSet::from([item.upload]),
            holders: true,
            ..Self::default()
        }
    }

    pub(super) fn of_abort(item: &AbortItem) -> Self {
        let uploads = BTreeSet::from([item.upload]);
        Self {
            resources: BTreeSet::from([item.resource.clone()]),
            grants: BTreeSet::from([(item.resource.clone(), item.token)]),
            intents: uploads.clone(),
            uploads,
            holders: true,
            ..Self::default()
        }
    }

    pub(super) fn of_commit(item: &CommitItem) -> Self {
        let mut needs = Self::default();
        for at in item.resources.iter() {
            needs.resources.insert(at.resource.clone());
            needs.grants.insert((at.resource.clone(), item.token));
            let key = item.idempotency.iter().map(|key| (at.resource.clone(), key.key.clone()));
            needs.keys.extend(key);
        }
        needs.operations.insert(item.operation);
        for step in item.steps.iter() {
            needs.objects.extend(step.key().map(|key| (step.resource.clone(), key.clone())));
            needs.intents.extend(step.effect.blob());
        }
        needs
    }

    pub(super) fn of_upload(item: &UploadItem) -> Self {
        Self {
            resources: BTreeSet::from([item.resource.clone()]),
            grants: BTreeSet::from([(item.resource.clone(), item.token)]),
            keys: item.key.iter().map(|key| (item.resource.clone(), key.clone())).collect(),
            ..Self::default()
        }
    }
}

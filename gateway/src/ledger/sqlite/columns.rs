//! Rows as SQLite has them, and as the acts do.

use std::time::Duration;

use bytes::Bytes;
use fence_core::acts::{FenceRow, GrantRow, Guard, IntentRow, KeyRow, LockRow, ObjectRow, OwnTime};
use fence_core::etag::EntityTag;
use fence_core::ports::{Applied, BlobId, Boot, Credential, LedgerError, Object, Payload};
use fence_core::rule::Hold;
use fence_core::{
    LockId, ObjectKey, OperationId, ResourceName, Supersession, Token, Ttl, WriterName,
};
use serde::Deserialize;
use uuid::Uuid;

use crate::ledger::{
    did, digest, end, metadata, object_key, principal, resource_name, time, token,
};

row! {
    pub(super) struct GuardColumns {
        epoch: i64,
        nonce: String,
        open: bool,
        base: i64,
        floor: i64,
        generation: i64,
        ledger: String,
        access: i64,
        own_time: i64,
        pass: i64,
        boot: Option<String>,
        up_us: Option<i64>,
        let_go_before: i64,
    }
}

impl GuardColumns {
    pub(super) fn guard(self) -> Result<Guard, LedgerError> {
        Ok(Guard {
            epoch: self.epoch,
            nonce: id(&self.nonce)?,
            open: self.open,
            base: self.base,
            floor: self.floor,
            generation: self.generation,
            ledger: id(&self.ledger)?,
            rules: self.access,
            time: OwnTime {
                at: time(self.own_time),
                pass: self.pass,
                boot: self.boot.zip(self.up_us).map(|(id, up_us)| {
                    let up = Duration::from_micros(up_us.unsigned_abs());
                    Boot { id, up }
                }),
                let_go_before: time(self.let_go_before),
            },
        })
    }
}

pub(super) fn id(text: &str) -> Result<Uuid, LedgerError> {
    text.parse().map_err(|_| LedgerError::Defect(format!("{text:?} is stored as an id")))
}

/// Writers read back; none are not stored.
fn writers(list: Option<&str>) -> Result<Vec<WriterName>, LedgerError> {
    let Some(list) = list else { return Ok(Vec::new()) };
    serde_json::from_str(list).map_err(|why| LedgerError::Defect(format!("stored writers: {why}")))
}

row! {
    /// A fence, by column or, in this order, from a JSON list.
    #[derive(Deserialize)]
    pub(super) struct FenceColumns {
        resource: String,
        token: i64,
        lock_id: String,
        owner: String,
        hold: String,
        ttl_ms: i64,
        deadline_ms: i64,
        acquired_at: i64,
        renewed_at: i64,
        break_due: Option<i64>,
        frozen: Option<String>,
        protected: Option<String>,
        version: i64,
        last_seq: i64,
        objects: i64,
        grants: i64,
        fence_order: Option<i64>,
        live_token: i64,
        principal: Option<String>,
        writers: Option<String>,
        ended_at: Option<i64>,
    }
}

impl FenceColumns {
    pub(super) fn fence(self) -> Result<(ResourceName, FenceRow), LedgerError> {
        let fence = FenceRow {
            token: token(self.token)?,
            lock: LockId(id(&self.lock_id)?),
            owner: self.owner,
            hold: match self.hold.as_str() {
                "draining" => Hold::Draining,
                "released" => Hold::Released,
                "broken" => Hold::Broken,
                _ => Hold::Held,
            },
            ttl: Ttl::from_ms(self.ttl_ms),
            deadline_ms: self.deadline_ms,
            acquired_at: time(self.acquired_at),
            renewed_at: time(self.renewed_at),
            break_due: self.break_due.map(time),
            ended_at: self.ended_at.map(time),
            frozen: self.frozen,
            protected: self.protected,
            version: self.version,
            last_sequence: self.last_seq,
            objects: self.objects,
            grants: self.grants,
            order: self.fence_order,
            live_token: self.live_token,
            principal: self.principal.as_deref().map(principal).transpose()?,
            writers: writers(self.writers.as_deref())?,
        };
        Ok((resource_name(self.resource)?, fence))
    }
}

/// A lock, in this order from a JSON list.
#[derive(Deserialize)]
pub(super) struct LockColumns {
    id: Uuid,
    resources: String,
    token: i64,
    owner: String,
    ttl_ms: i64,
    acquired_at: i64,
    hold_until: Option<i64>,
    metadata: String,
    fence: i64,
    ended: Option<String>,
    ended_at: Option<i64>,
    principal: Option<String>,
    writers: Option<String>,
    credential: Option<String>,
    credential_ends: Option<i64>,
}

impl LockColumns {
    pub(super) fn lock(self) -> Result<(LockId, LockRow), LedgerError> {
        let resources = serde_json::from_str(&self.resources)
            .map_err(|why| LedgerError::Defect(format!("the resources of a lock: {why}")))?;
        let ended = self.ended.as_deref().map(end).transpose()?;
        let lock = LockRow {
            resources,
            token: token(self.token)?,
            owner: self.owner,
            ttl: Ttl::from_ms(self.ttl_ms),
            acquired_at: time(self.acquired_at),
            hold_until: self.hold_until.map(time),
            metadata: metadata(&self.metadata)?,
            fence: self.fence != 0,
            ended: ended.zip(self.ended_at.map(time)),
            principal: self.principal.as_deref().map(principal).transpose()?,
            writers: writers(self.writers.as_deref())?,
            credential: self.credential.map(|name| {
                let ends = self.credential_ends.map(time);
                Credential { name, ends }
            }),
        };
        Ok((LockId(self.id), lock))
    }
}

/// A grant, in this order from a JSON list.
#[derive(Deserialize)]
pub(super) struct GrantColumns {
    resource: String,
    token: i64,
    lock_id: Uuid,
    owner: String,
    ordinal: i64,
    superseded_by: Option<String>,
    superseded_at: Option<i64>,
    principal: Option<String>,
    writers: Option<String>,
}

impl GrantColumns {
    pub(super) fn grant(self) -> Result<((ResourceName, Token), GrantRow), LedgerError> {
        let grant = GrantRow {
            lock: LockId(self.lock_id),
            owner: self.owner,
            ordinal: self.ordinal,
            by: self.superseded_by.as_deref().and_then(Supersession::parse),
            at: self.superseded_at.map(time),
            principal: self.principal.as_deref().map(principal).transpose()?,
            writers: writers(self.writers.as_deref())?,
        };
        Ok(((resource_name(self.resource)?, token(self.token)?), grant))
    }
}

/// An idempotency key, in this order from a JSON list.
#[derive(Deserialize)]
pub(super) struct KeyColumns {
    resource: String,
    key: String,
    fingerprint: String,
    operation: Uuid,
    stored_at: i64,
    kept_until: Option<i64>,
}

impl KeyColumns {
    pub(super) fn key(self) -> Result<((ResourceName, String), KeyRow), LedgerError> {
        let row = KeyRow {
            fingerprint: digest_of(&self.fingerprint)?,
            operation: OperationId(self.operation),
            at: time(self.stored_at),
            kept_until: self.kept_until.map(time),
        };
        Ok(((resource_name(self.resource)?, self.key), row))
    }
}

/// The intent of a blob, in this order from a JSON list; what it becomes if it comes in parts is read apart.
#[derive(Deserialize)]
pub(super) struct IntentColumns {
    blob: Uuid,
    begun_at: i64,
    handle: Option<String>,
}

impl IntentColumns {
    pub(super) fn intent(self) -> (BlobId, IntentRow) {
        let row = IntentRow { begun_at: time(self.begun_at), handle: self.handle, upload: None };
        (BlobId(self.blob), row)
    }
}

/// An object without its bytes, which no act looks at, in this order from a JSON list.
#[derive(Deserialize)]
pub(super) struct HeadColumns {
    resource: String,
    key: String,
    version: i64,
    generation: i64,
    content_type: String,
    size: i64,
    sha256: String,
    written_at: i64,
    blob: Option<Uuid>,
    principal: Option<String>,
    about: Option<String>,
    parts: Option<i32>,
}

impl HeadColumns {
    pub(super) fn object(self) -> Result<((ResourceName, ObjectKey), ObjectRow), LedgerError> {
        let key = object_key(self.key)?;
        let object = Object {
            key: key.clone(),
            tag: EntityTag { generation: self.generation, version: self.version },
            content_type: self.content_type,
            size: self.size,
            sha256: digest_of(&self.sha256)?,
            written_at: time(self.written_at),
            about: self.about.map(Into::into),
            parts: self.parts,
            payload: match self.blob {
                Some(blob) => Payload::Blob(BlobId(blob)),
                None => Payload::Inline(Bytes::new()),
            },
        };
        let principal = self.principal.as_deref().map(principal).transpose()?;
        Ok(((resource_name(self.resource)?, key), ObjectRow { object, principal }))
    }
}

fn digest_of(text: &str) -> Result<[u8; 32], LedgerError> {
    let bytes = hex::decode(text);
    digest(bytes.map_err(|_| LedgerError::Defect(format!("{text:?} is read as a digest")))?)
}

row! {
    pub(super) struct OperationColumns {
        id: String,
        resource: String,
        version: Option<i64>,
        kind: String,
        key: Option<String>,
        generation: i64,
        created: bool,
        size: i64,
        sha256: Option<Vec<u8>>,
        owner: String,
        committed_at: i64,
        did: Option<String>,
    }
}

impl OperationColumns {
    pub(super) fn applied(self) -> Result<Applied, LedgerError> {
        Ok(Applied {
            operation: OperationId(id(&self.id)?),
            resource: resource_name(self.resource)?,
            kind: self.kind,
            key: self.key.map(object_key).transpose()?,
            version: self.version,
            generation: self.generation,
            created: self.created,
            size: self.size,
            sha256: self.sha256.map(digest).transpose()?,
            owner: self.owner,
            committed_at: time(self.committed_at),
            did: did(self.did.as_deref())?,
        })
    }
}

row! {
    pub(super) struct ObjectColumns {
        key: String,
        version: i64,
        generation: i64,
        content_type: String,
        size: i64,
        sha256: Vec<u8>,
        written_at: i64,
        body: Option<Vec<u8>>,
        blob: Option<String>,
        about: Option<String>,
        parts: Option<i32>,
    }
}

impl ObjectColumns {
    pub(super) fn object(self) -> Result<Object, LedgerError> {
        Ok(Object {
            key: object_key(self.key)?,
            tag: EntityTag { generation: self.generation, version: self.version },
            content_type: self.content_type,
            size: self.size,
            sha256: digest(self.sha256)?,
            written_at: time(self.written_at),
            about: self.about.map(Into::into),
            parts: self.parts,
            payload: match self.blob {
                Some(blob) => Payload::Blob(BlobId(id(&blob)?)),
                None => Payload::Inline(Bytes::from(self.body.unwrap_or_default())),
            },
        })
    }
}

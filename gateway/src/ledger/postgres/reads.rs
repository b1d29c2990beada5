//! What the ledger shows, and the operator's record of refused writes. Nothing here decides.

use std::collections::HashMap;

use bytes::Bytes;
use fence_core::etag::EntityTag;
use fence_core::ports::{
    Applied, BlobId, BreakDue, Credential, Grant, KeySpace, LedgerError, LockRecord, Object,
    OperationRecord, Page, Payload, ReadItem, ReadVerdict, Rejection, ResourceView, Which,
};
use fence_core::{
    LockEnd, LockId, LockState, Metadata, OperationId, ResourceName, Supersession, Token, Ttl,
};
use uuid::Uuid;

use super::locks::writers;
use super::session::{Sessions, harmless};
use crate::ledger::rows::ForwardedRow;
use crate::ledger::{
    did, digest, end, metadata, object_key, principal, resource_name, span, time, token,
};

/// Runs a query that only reads, on a session of its own, for an answer that is taken for the present.
macro_rules! fetch {
    ($sessions:expr, $method:ident, $query:expr) => {{
        let session = $sessions.take_for_read().await?;
        let line = session.line;
        let read = $crate::ledger::postgres::reads::fetch_on!($sessions, session, $method, $query);
        match read {
            Ok(read) => $sessions.still_present(line).map(|()| read),
            Err(error) => Err(error),
        }
    }};
}
pub(super) use fetch;

/// The same, also on a server that this gateway holds something against: for what is no answer about
/// resources, such as the upkeep of queues and blobs, and for the records of operators, who look there for
/// what went wrong.
macro_rules! fetch_anyway {
    ($sessions:expr, $method:ident, $query:expr) => {{
        let session = $sessions.take().await?;
        $crate::ledger::postgres::reads::fetch_on!($sessions, session, $method, $query)
    }};
}
pub(super) use fetch_anyway;

macro_rules! fetch_on {
    ($sessions:expr, $session:ident, $method:ident, $query:expr) => {{
        let mut session = $session;
        let call = $query.$method(&mut session.connection);
        let answer = $sessions.answer(call).await;
        $sessions.settle(session, answer).map_err(harmless)
    }};
}
pub(super) use fetch_on;

row! {
    struct ObjectRow {
        /// Which of the objects asked for.
        i: i64,
        resource_version: Option<i64>,
        key: Option<String>,
        version: Option<i64>,
        generation: Option<i64>,
        content_type: Option<String>,
        size: Option<i64>,
        sha256: Option<Vec<u8>>,
        written_us: Option<i64>,
        body: Option<Vec<u8>>,
        blob: Option<Uuid>,
        about: Option<String>,
        parts: Option<i32>,
    }
}

impl ObjectRow {
    fn object(self) -> Result<Option<Object>, LedgerError> {
        let Some(name) = self.key else { return Ok(None) };
        Ok(Some(Object {
            key: object_key(name)?,
            tag: EntityTag {
                generation: self.generation.unwrap_or(0),
                version: self.version.unwrap_or(0),
            },
            content_type: self.content_type.unwrap_or_default(),
            size: self.size.unwrap_or(0),
            sha256: digest(self.sha256.unwrap_or_default())?,
            written_at: time(self.written_us.unwrap_or(0)),
            about: self.about.map(Into::into),
            parts: self.parts,
            payload: match self.blob {
                Some(blob) => Payload::Blob(BlobId(blob)),
                None => Payload::Inline(Bytes::from(self.body.unwrap_or_default())),
            },
        }))
    }
}

/// The version of the resource `r`: that of its newest operation; none without a fence. It is not below that of the
/// object `b`: the search ends there, and need not read a page of the index.
macro_rules! resource_version {
    () => {
        "coalesce((SELECT o.version FROM fencegate.operations o
                   WHERE o.resource = r.resource AND o.version >= coalesce(b.version, 1)
                   ORDER BY o.version DESC LIMIT 1),
                  (SELECT 0 FROM fencegate.fences f WHERE f.resource = r.resource AND f.hold <> 'none'))
             AS resource_version"
    };
}

pub(super) async fn read(
    sessions: &Sessions,
    items: &[ReadItem],
) -> Result<Vec<ReadVerdict>, LedgerError> {
    let resources: Vec<&str> = items.iter().map(|item| item.resource.as_str()).collect();
    let keys: Vec<&str> = items.iter().map(|item| item.key.as_str()).collect();
    let versions: Vec<Option<i64>> = items.iter().map(|item| item.version).collect();
    let query = sqlx::query_as::<_, ObjectRow>(concat!(
        "SELECT r.i, ",
        resource_version!(),
        ", b.key, b.version, b.generation, b.content_type, b.size, b.sha256,
                fencegate.micros(b.written_at) AS written_us, b.body, b.blob, b.about, b.parts
         FROM unnest($1::text[], $2::text[]) WITH ORDINALITY r (resource, key, i)
         LEFT JOIN fencegate.objects b ON b.resource = r.resource AND b.key = r.key",
    ))
    .bind(&resources)
    .bind(&keys);
    let verdict = |row: ObjectRow| {
        let resource_version = row.resource_version;
        Ok(ReadVerdict { object: row.object()?, resource_version })
    };
    let mut rows: Vec<ObjectRow> = if versions.iter().all(Option::is_none) {
        fetch!(sessions, fetch_all, query)?
    } else {
        let query =
            sqlx::query_as::<_, ObjectRow>(VERSIONS).bind(&resources).bind(&keys).bind(versions);
        fetch!(sessions, fetch_all, query)?
    };
    // Here, where no bytes have to be moved for it.
    rows.sort_unstable_by_key(|row| row.i);
    rows.into_iter().map(verdict).collect()
}

/// Objects as some version wrote them, or as they are. If a re-fence made a version possible twice, the newer
/// one.
const VERSIONS: &str = concat!(
    "SELECT r.i, ",
    resource_version!(),
    ", b.key, b.version, b.generation, b.content_type, b.size, b.sha256,
           fencegate.micros(b.written_at) AS written_us, b.body, b.blob, b.about, b.parts
    FROM unnest($1::text[], $2::text[], $3::bigint[]) WITH ORDINALITY r (resource, key, version, i)
    LEFT JOIN LATERAL (
        SELECT o.key, o.version, o.generation, o.content_type, o.size, o.sha256, o.written_at, o.body,
               o.blob, o.about, o.parts
        FROM fencegate.objects o
        WHERE o.resource = r.resource AND o.key = r.key AND coalesce(r.version, o.version) = o.version
        UNION ALL
        SELECT v.key, v.version, v.generation, v.content_type, v.size, v.sha256, v.written_at, v.body,
               v.blob, v.about, v.parts
        FROM fencegate.replaced_versions v
        WHERE v.resource = r.resource AND v.key = r.key AND v.version = r.version
        ORDER BY 3 DESC LIMIT 1) b ON true"
);

pub(super) async fn objects(
    sessions: &Sessions,
    name: &ResourceName,
    page: &Page,
) -> Result<Vec<Object>, LedgerError> {
    let (from, end) = span(page);
    let query = sqlx::query_as::<_, ObjectRow>(
        "SELECT 0::bigint AS i, NULL::bigint AS resource_version, b.key, b.version, b.generation, b.content_type,
                b.size, b.sha256, fencegate.micros(b.written_at) AS written_us, NULL::bytea AS body,
                NULL::uuid AS blob, b.about, b.parts
         FROM fencegate.objects b
         WHERE b.resource = $1 AND b.key >= $2 AND b.key < $3 AND b.key IS DISTINCT FROM $4
         ORDER BY b.key LIMIT $5",
    )
    .bind(name.as_str())
    .bind(from)
    .bind(end)
    .bind(&page.after)
    .bind(page.limit);
    let rows: Vec<ObjectRow> = fetch!(sessions, fetch_all, query)?;
    rows.into_iter().filter_map(|row| row.object().transpose()).collect()
}

row! {
    struct ViewRow {
        resource: String,
        state: String,
        owner: String,
        principal: Option<String>,
        lock_id: Option<Uuid>,
        acquired_us: i64,
        renewed_us: i64,
        ended_us: Option<i64>,
        age_ms: i64,
        renewed_ms: i64,
        ttl_ms: i64,
        remaining_ms: i64,
        breaks_in_ms: Option<i64>,
        version: i64,
        objects: i64,
        grants: i64,
        token: i64,
        frozen: Option<String>,
        protected: Option<String>,
        waiting: i64,
    }
}

impl ViewRow {
    fn view(self) -> Result<ResourceView, LedgerError> {
        let state = state(&self.state)?;
        Ok(ResourceView {
            resource: resource_name(self.resource)?,
            state,
            owner: self.owner,
            principal: self.principal.as_deref().map(principal).transpose()?,
            lock: LockId(self.lock_id.unwrap_or_default()),
            acquired_at: time(self.acquired_us),
            renewed_at: time(self.renewed_us),
            ended_at: self.ended_us.map(time),
            age_ms: self.age_ms.max(0),
            renewed_ms: self.renewed_ms.max(0),
            ttl: Ttl::from_ms(self.ttl_ms),
            remaining_ms: self.remaining_ms,
            breaks_in_ms: self.breaks_in_ms.filter(|_| state == LockState::Breaking),
            version: self.version,
            objects: self.objects,
            frozen: self.frozen,
            protected: self.protected,
            waiting: self.waiting,
            grants: self.grants,
            token: token(self.token)?,
        })
    }
}

pub(super) fn state(word: &str) -> Result<LockState, LedgerError> {
    [
        LockState::Leased,
        LockState::Breaking,
        LockState::Draining,
        LockState::Broken,
        LockState::Expired,
        LockState::Released,
    ]
    .into_iter()
    .find(|state| state.as_str() == word)
    .ok_or_else(|| LedgerError::Defect(format!("the schema answered {word:?} as a state")))
}

pub(super) async fn resources(
    sessions: &Sessions,
    page: &Page,
    which: Which,
) -> Result<Vec<ResourceView>, LedgerError> {
    // The names of the page first, from an index alone: the view says of each row what time it is, so no limit
    // reaches into it.
    macro_rules! page_of {
        ($($which:tt)+) => {
            concat!(
                "SELECT v.* FROM (
                     SELECT f.resource FROM fencegate.fences f
                     WHERE f.resource >= $1 AND f.resource < $2 AND f.resource IS DISTINCT FROM $3 AND ",
                $($which)+,
                concat!("    ORDER BY f.resource LIMIT $4) p
                 CROSS JOIN LATERAL (
                     SELECT * FROM ", acts!(), ".views v WHERE v.resource = p.resource LIMIT 1) v
                 ORDER BY v.resource")
            )
        };
    }
    let (from, end) = span(page);
    let page_of = match which {
        Which::All => page_of!("f.hold <> 'none'"),
        Which::Taken => page_of!("f.hold <> 'released' AND f.hold <> 'none'"),
        Which::Held => page_of!(concat!(
            "f.hold <> 'released' AND f.hold <> 'none' AND ",
            acts!(),
            ".keeps_out(f.hold, f.token, f.deadline, (SELECT g.floor FROM fencegate.seal_guard g),
                        statement_timestamp())"
        )),
    };
    let query = sqlx::query_as::<_, ViewRow>(page_of)
        .bind(from)
        .bind(end)
        .bind(&page.after)
        .bind(page.limit);
    let rows: Vec<ViewRow> = fetch!(sessions, fetch_all, query)?;
    rows.into_iter().map(ViewRow::view).collect()
}

async fn resource_rows(
    sessions: &Sessions,
    names: &[&str],
) -> Result<Vec<ResourceView>, LedgerError> {
    let query = sqlx::query_as::<_, ViewRow>(concat!(
        "SELECT * FROM ",
        acts!(),
        ".views v WHERE v.resource = ANY ($1)"
    ))
    .bind(names);
    let rows: Vec<ViewRow> = fetch!(sessions, fetch_all, query)?;
    rows.into_iter().map(ViewRow::view).collect()
}

pub(super) async fn resource(
    sessions: &Sessions,
    name: &ResourceName,
) -> Result<Option<ResourceView>, LedgerError> {
    Ok(resource_rows(sessions, &[name.as_str()]).await?.pop())
}

pub(super) async fn views(
    sessions: &Sessions,
    names: &[ResourceName],
) -> Result<Vec<Option<ResourceView>>, LedgerError> {
    let asked: Vec<&str> = names.iter().map(ResourceName::as_str).collect();
    let views = resource_rows(sessions, &asked).await?;
    let views: HashMap<_, _> =
        views.into_iter().map(|view| (view.resource.clone(), view)).collect();
    Ok(names.iter().map(|name| views.get(name).cloned()).collect())
}

row! {
    struct LockRow {
        resources: Vec<String>,
        token: i64,
        owner: String,
        ttl_ms: i64,
        unconfirmed: Option<bool>,
        acquired_us: i64,
        hold_until_us: Option<i64>,
        metadata: Option<String>,
        ended: Option<String>,
        ended_us: Option<i64>,
        state: Option<String>,
        remaining_ms: Option<i64>,
        versions: Vec<i64>,
        id: Uuid,
        superseded_by: Option<String>,
        renewed_us: i64,
        break_due_us: Option<i64>,
        break_in_ms: Option<i64>,
        frozen: Option<String>,
        principal: Option<String>,
        writers: Option<Vec<String>>,
        credential: Option<String>,
        credential_ends_us: Option<i64>,
    }
}

impl LockRow {
    fn record(self) -> Result<LockRecord, LedgerError> {
        let ended = match (self.ended.as_deref().map(end).transpose()?, self.ended_us) {
            (Some(how), Some(at)) => Some((how, time(at))),
            _ => None,
        };
        let state = match ended {
            Some((LockEnd::Broken, _)) => LockState::Broken,
            Some((LockEnd::Released, _)) => LockState::Released,
            Some(_) => LockState::Expired,
            None => self.state.as_deref().map_or(Ok(LockState::Expired), state)?,
        };
        let break_due = self.break_due_us.zip(self.break_in_ms).filter(|_| ended.is_none());
        Ok(LockRecord {
            grant: Grant {
                lock: LockId(self.id),
                resources: self
                    .resources
                    .into_iter()
                    .map(resource_name)
                    .collect::<Result<_, _>>()?,
                token: token(self.token)?,
                owner: self.owner,
                principal: self.principal.as_deref().map(principal).transpose()?,
                writers: writers(self.writers)?,
                metadata: self.metadata.as_deref().map_or(Ok(Metadata::default()), metadata)?,
                hold_until: self.hold_until_us.map(time),
                state,
                ttl: Ttl::from_ms(self.ttl_ms),
                unconfirmed: self.unconfirmed.unwrap_or(false),
                remaining_ms: if ended.is_some() { 0 } else { self.remaining_ms.unwrap_or(0) },
                acquired_at: time(self.acquired_us),
                versions: self.versions,
            },
            superseded_by: match ended {
                Some((LockEnd::Superseded, _)) => {
                    self.superseded_by.as_deref().and_then(Supersession::parse)
                }
                _ => None,
            },
            ended,
            renewed_at: time(self.renewed_us),
            break_due: break_due.map(|(at, in_ms)| BreakDue { at: time(at), in_ms }),
            frozen: self.frozen,
            credential: self.credential.map(|name| {
                let ends = self.credential_ends_us.map(time);
                Credential { name, ends }
            }),
        })
    }
}

pub(super) async fn locks(
    sessions: &Sessions,
    ids: &[LockId],
) -> Result<Vec<Option<LockRecord>>, LedgerError> {
    let query =
        sqlx::query_as::<_, LockRow>(concat!("SELECT * FROM ", acts!(), ".lock_records($1)"))
            .bind(ids.iter().map(|id| id.0).collect::<Vec<_>>());
    let rows: Vec<LockRow> = fetch!(sessions, fetch_all, query)?;
    let mut records = HashMap::new();
    for row in rows {
        records.insert(LockId(row.id), row.record()?);
    }
    Ok(ids.iter().map(|id| records.get(id).cloned()).collect())
}

row! {
    pub(super) struct OperationRow {
        id: Uuid,
        resource: String,
        version: Option<i64>,
        kind: String,
        key: Option<String>,
        generation: i64,
        created: bool,
        size: i64,
        sha256: Option<Vec<u8>>,
        owner: String,
        committed_us: i64,
        did: Option<String>,
    }
}

impl OperationRow {
    pub(super) fn applied(self) -> Result<Applied, LedgerError> {
        Ok(Applied {
            operation: OperationId(self.id),
            resource: resource_name(self.resource)?,
            kind: self.kind,
            key: self.key.map(object_key).transpose()?,
            version: self.version,
            generation: self.generation,
            created: self.created,
            size: self.size,
            sha256: self.sha256.map(digest).transpose()?,
            owner: self.owner,
            committed_at: time(self.committed_us),
            did: did(self.did.as_deref())?,
        })
    }
}

pub(super) async fn operations(
    sessions: &Sessions,
    ids: &[Uuid],
) -> Result<Vec<Applied>, LedgerError> {
    let query = sqlx::query_as::<_, OperationRow>(
        "SELECT o.*, fencegate.micros(o.committed_at) AS committed_us
         FROM fencegate.operations o WHERE o.id = ANY ($1) AND o.kind <> 'buried'
         ORDER BY o.id, o.resource",
    )
    .bind(ids);
    let rows: Vec<OperationRow> = fetch!(sessions, fetch_all, query)?;
    rows.into_iter().map(OperationRow::applied).collect()
}

/// An intent, open or closed. That its time is over is so before the sweeper has stored it.
const FORWARDED: &str = "SELECT u.operation, u.resource, u.owner, u.upstream, u.status, u.reason,
            fencegate.micros(u.opened_at) AS opened_us,
            coalesce(u.closed, CASE WHEN u.closes_at <= clock_timestamp() THEN 'elapsed' END) AS closed,
            fencegate.micros(coalesce(u.closed_at, u.closes_at)) AS closed_us
     FROM fencegate.upstream_intents u WHERE u.operation = $1";

/// Returns once all that was seen committed is where it must be before it is acknowledged. A commit whose wait for
/// the synchronous standby was cancelled is seen before that; a commit after it waits for it, too.
async fn settled(sessions: &Sessions) -> Result<(), LedgerError> {
    let query = sqlx::query(
        "SELECT CASE WHEN current_setting('synchronous_standby_names') <> ''
                THEN pg_logical_emit_message(true, 'fencegate', '') END",
    );
    fetch!(sessions, execute, query).map(drop)
}

/// An operation, however it came out: told once that is where it must be before it is acknowledged.
pub(super) async fn operation(
    sessions: &Sessions,
    id: OperationId,
) -> Result<Option<OperationRecord>, LedgerError> {
    let record = seen_operation(sessions, id).await?;
    if record.is_some() {
        settled(sessions).await?;
    }
    Ok(record)
}

async fn seen_operation(
    sessions: &Sessions,
    id: OperationId,
) -> Result<Option<OperationRecord>, LedgerError> {
    if let Some(record) = OperationRecord::of(operations(sessions, &[id.0]).await?) {
        return Ok(Some(record));
    }
    let query = sqlx::query_as::<_, ForwardedRow>(FORWARDED).bind(id.0);
    let row: Option<ForwardedRow> = fetch!(sessions, fetch_optional, query)?;
    if let Some(row) = row {
        return row.record().map(|record| Some(OperationRecord::Forwarded(record)));
    }
    let query = sqlx::query_scalar::<_, bool>(
        "SELECT EXISTS (SELECT FROM fencegate.operations o WHERE o.id = $1 AND o.kind = 'buried')
             OR EXISTS (SELECT FROM fencegate.buried WHERE kind = 'operation' AND id = $1)",
    )
    .bind(id.0);
    let buried: bool = fetch!(sessions, fetch_one, query)?;
    Ok(buried.then_some(OperationRecord::Buried))
}

pub(super) async fn operation_by_key(
    sessions: &Sessions,
    name: &ResourceName,
    idempotency_key: &str,
) -> Result<Option<Applied>, LedgerError> {
    let (space, key) = KeySpace::of(idempotency_key);
    let query = sqlx::query_as::<_, OperationRow>(
        "SELECT o.*, fencegate.micros(o.committed_at) AS committed_us
         FROM fencegate.idempotency_keys k JOIN fencegate.operations o
             ON o.id = k.operation AND o.resource = k.resource
         WHERE k.resource = $1 AND k.key = $2 AND k.space = $3",
    )
    .bind(name.as_str())
    .bind(key)
    .bind(space.word());
    let row: Option<OperationRow> = fetch!(sessions, fetch_optional, query)?;
    if row.is_some() {
        settled(sessions).await?;
    }
    row.map(OperationRow::applied).transpose()
}

pub(super) async fn known_keys(
    sessions: &Sessions,
    keys: &[(ResourceName, String)],
) -> Result<Vec<bool>, LedgerError> {
    let resources: Vec<&str> = keys.iter().map(|(resource, _)| resource.as_str()).collect();
    let (spaces, keys): (Vec<&str>, Vec<&str>) = keys
        .iter()
        .map(|(_, key)| KeySpace::of(key))
        .map(|(space, key)| (space.word(), key))
        .unzip();
    let query = sqlx::query_scalar::<_, bool>(
        "SELECT EXISTS (SELECT FROM fencegate.idempotency_keys k
                        WHERE k.resource = w.resource AND k.key = w.key AND k.space = w.space)
         FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY w (resource, key, space, i) ORDER BY w.i",
    )
    .bind(resources)
    .bind(keys)
    .bind(spaces);
    fetch!(sessions, fetch_all, query)
}

pub(super) async fn record_rejections(
    sessions: &Sessions,
    rejections: &[Rejection],
) -> Result<(), LedgerError> {
    fn column<T>(rejections: &[Rejection], value: impl Fn(&Rejection) -> T) -> Vec<T> {
        rejections.iter().map(value).collect()
    }
    let rejections = &Rejection::gathered(rejections);
    let query = sqlx::query(
        "INSERT INTO fencegate.rejections AS kept (
             at, resource, key, reason, token, grants_behind, superseded_ms, owner, request_id, times,
             minute)
         SELECT to_timestamp(r.us / 1000000.0), r.resource, r.key, r.reason, r.token, r.behind, r.ms,
                r.owner, r.request, r.times, r.minute
         FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[],
                     $7::bigint[], $8::text[], $9::text[], $10::bigint[], $11::bigint[])
              r (us, resource, key, reason, token, behind, ms, owner, request, times, minute)
         ON CONFLICT (resource, minute) WHERE minute IS NOT NULL
         DO UPDATE SET times = kept.times + excluded.times",
    )
    .bind(column(rejections, |r| r.at.as_microsecond()))
    .bind(column(rejections, |r| r.resource.to_string()))
    .bind(column(rejections, |r| r.key.as_ref().map(ToString::to_string)))
    .bind(column(rejections, |r| r.reason.clone()))
    .bind(column(rejections, |r| r.token.map(Token::get)))
    .bind(column(rejections, |r| r.grants_behind))
    .bind(column(rejections, |r| r.superseded_ms))
    .bind(column(rejections, |r| r.owner.clone()))
    .bind(column(rejections, |r| r.request_id.clone()))
    .bind(column(rejections, |r| r.times))
    .bind(column(rejections, Rejection::minute));
    fetch_anyway!(sessions, execute, query)?;
    Ok(())
}

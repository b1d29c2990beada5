//! What shows that nobody has changed the audit: its checkpoint, proofs of it, and all that they are about.

use axum::Json;
use axum::extract::State;
use axum::http::{Extensions, HeaderName, header};
use axum::response::IntoResponse;
use fence_core::{ErrorCode, wire};
use fencegate_access::Action;
use serde::Deserialize;

use super::access::is_at_socket;
use crate::engine::access::{Asks, Want};
use crate::engine::{Exported, Inclusion, hashed};
use crate::http::extract::{Asker, Query};
use crate::http::peers::Counted;
use crate::http::problem::Problem;
use crate::http::spec::ListProblems;
use crate::http::state::App;

/// The key that signs, beside a checkpoint.
const KEY: HeaderName = HeaderName::from_static("fencegate-audit-key");

fn observe() -> Want {
    Want::All(Action::Observe, String::new())
}

fn none_yet() -> Problem {
    let why = "there is no checkpoint yet: the first one comes within two seconds";
    Problem::new(ErrorCode::LedgerUnavailable, why)
}

/// Which checkpoint.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct Which {
    /// `true`: the newest that an outside witness has signed, too, if one has.
    witnessed: Option<bool>,
}

/// Read the checkpoint of the audit
///
/// A signed note, as C2SP `tlog-checkpoint` has it: which audit it is, how many entries it has, and the root of the Merkle
/// tree over them. Whoever keeps one can tell ever after whether an entry before it was changed or removed. It grows
/// within two seconds of an entry. `Fencegate-Audit-Key` has the key that this gateway signs with.
#[utoipa::path(
    get, path = "/audit/checkpoint", operation_id = "getAuditCheckpoint", tag = "seeing", params(Which),
    responses(
        (
            status = 200, description = "The note.", body = String, content_type = "text/plain",
            headers(("Fencegate-Audit-Key"))
        ),
        ListProblems,
    )
)]
pub async fn checkpoint(
    State(app): State<App>,
    asks: Asks,
    Query(query): Query<Which>,
) -> Result<impl IntoResponse, Problem> {
    asks.may(observe()).await?;
    let sealed = app.engine.audit_sealed().await?.ok_or_else(none_yet)?;
    let witnessed = sealed.witnessed.filter(|_| query.witnessed == Some(true));
    let note = witnessed.unwrap_or(sealed.note);
    let key = sealed.key.map(|key| [(KEY, key)]);
    Ok(([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], key.into_iter().next(), note))
}

/// What is to be proven: `number`, or `from` and `to`.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct Asked {
    /// That the entry with this number is in the tree of the checkpoint.
    #[param(minimum = 1)]
    number: Option<i64>,
    /// With `to`: that the tree of so many entries is the beginning
    #[param(minimum = 1)]
    from: Option<i64>,
    /// of the tree of so many.
    #[param(minimum = 1)]
    to: Option<i64>,
}

/// Prove what the audit says
///
/// By the hashes of RFC 6962: that an entry is in it, or that it has only grown between two checkpoints.
#[utoipa::path(
    get, path = "/audit/proof", operation_id = "getAuditProof", tag = "seeing", params(Asked),
    responses((status = 200, description = "The proof.", body = wire::AuditProof), ListProblems)
)]
pub async fn proof(
    State(app): State<App>,
    asks: Asks,
    Query(query): Query<Asked>,
    counted: Counted,
) -> Result<Json<wire::AuditProof>, Problem> {
    asks.may(observe()).await?;
    let malformed = |why: &str| Problem::new(ErrorCode::QueryMalformed, why);
    let engine = Asker::take(&app, &counted).await?.0;
    let hex = |hashes: Vec<[u8; 32]>| hashes.iter().map(hex::encode).collect();
    match (query.number, query.from, query.to) {
        (Some(number), None, None) => {
            let found = engine.audit_inclusion(number).await?;
            let why = "no entry with this number has a leaf: one gets it within two seconds";
            let Inclusion { leaf, index, hashes, sealed } = found.ok_or_else(|| malformed(why))?;
            Ok(Json(wire::AuditProof {
                leaf: Some(wire::AuditLeaf {
                    index,
                    number: leaf.number,
                    is_grant: leaf.is_grant,
                    digest: hex::encode(leaf.digest),
                }),
                hashes: hex(hashes),
                checkpoint: Some(sealed.note),
            }))
        }
        (None, Some(from), Some(to)) => {
            let found = engine.audit_consistency(from, to).await?;
            let why = "from is at least 1, to at least as many, and there are so many entries";
            let hashes = hex(found.ok_or_else(|| malformed(why))?);
            Ok(Json(wire::AuditProof { leaf: None, hashes, checkpoint: None }))
        }
        _ => Err(malformed("say number, or from and to")),
    }
}

/// Where a page begins.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct From {
    /// `next` of the page before.
    #[param(minimum = 0)]
    from: Option<i64>,
}

/// Read the audit with its leaves
///
/// Page by page, each entry as it was hashed, and what the tree keeps of it; `fencegate audit verify` and `export` ask for
/// this. Entries have tokens in them: where no rules of access are in force, only whoever is at a Unix socket of
/// `admin_listen` sees them.
#[utoipa::path(
    get, path = "/audit/export", operation_id = "exportAudit", tag = "seeing", params(From),
    responses((status = 200, description = "A page.", body = wire::AuditExport), ListProblems)
)]
pub async fn export(
    State(app): State<App>,
    asks: Asks,
    Query(query): Query<From>,
    (counted, extensions): (Counted, Extensions),
) -> Result<Json<wire::AuditExport>, Problem> {
    asks.may(observe()).await?;
    if !asks.is_ruled() && !is_at_socket(&extensions) {
        let why = "entries have tokens in them: put rules of access in force, or ask at a Unix socket of admin_listen";
        return Err(Problem::new(ErrorCode::PermissionDenied, why));
    }
    let from = query.from.unwrap_or(0);
    let tile = wire::AUDIT_TILE;
    if from < 0 || from % tile != 0 {
        return Err(Problem::new(ErrorCode::QueryMalformed, "from is the next of a page before"));
    }
    let engine = Asker::take(&app, &counted).await?.0;
    let page = engine.audit_export(from / tile).await?.ok_or_else(none_yet)?;
    Ok(Json(page.into()))
}

impl std::convert::From<Exported> for wire::AuditExport {
    fn from(page: Exported) -> Self {
        let line =
            |(number, leaf, entry): (i64, Option<fence_core::ports::TreeLeaf>, Option<_>)| {
                let is_of_grant =
                    |entry: &fence_core::ports::AuditEntry| entry.action.is_of_grant();
                wire::AuditLine {
                    number,
                    is_grant: leaf.map_or_else(
                        || entry.as_ref().is_some_and(is_of_grant),
                        |leaf| leaf.is_grant,
                    ),
                    digest: leaf.map(|leaf| hex::encode(leaf.digest)),
                    entry: entry.as_ref().map(|entry| hashed(entry).into_fields()),
                }
            };
        Self {
            checkpoint: page.sealed.note,
            witnessed: page.sealed.witnessed,
            key: page.sealed.key,
            let_go: page.let_go,
            lines: page.lines.into_iter().map(line).collect(),
            next: page.next.map(|tile| tile * wire::AUDIT_TILE),
        }
    }
}

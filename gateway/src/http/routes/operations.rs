//! What became of a write, by its id or by its idempotency key.

use axum::Json;
use fence_core::ports::OperationRecord;
use fence_core::{ErrorCode, ResourceName, wire};
use serde::Deserialize;

use super::views;
use crate::engine::access::{Asks, Want};
use crate::http::extract::{Asker, InOperation, InResource, NoQuery, Query, is_idempotency_key};
use crate::http::problem::Problem;
use crate::http::spec::{OperationProblems, OperationsProblems};

/// Look at an operation
///
/// Ask here after an answer with `outcome: unknown`: the id is in its `X-Operation-Id`. Whoever got no answer
/// has no id. A write to the gateway's own storage is found by its `Idempotency-Key` then, see
/// `findOperations`; a request to an upstream only by asking the upstream.
///
/// 404 is no answer to what became of it: it may be under way. A write that was sent once and refused leaves no record, and
/// neither does any request to an upstream whose guarantee is `admission`, whether it took effect or not. One that was sent
/// again after a lost answer, and then refused or given up, is told as `not_applied` for `buried_kept`.
#[utoipa::path(
    get, path = "/operations/{id}", operation_id = "getOperation", tag = "operations",
    params(("id" = fence_core::OperationId, Path, description = "`X-Operation-Id` of the write.")),
    responses(
        (status = 200, description = "What became of it.", body = wire::Operation),
        OperationProblems,
    )
)]
pub async fn get(
    asks: Asks,
    InOperation(id): InOperation,
    _: NoQuery,
    Asker(engine): Asker,
) -> Result<Json<wire::Operation>, Problem> {
    asks.may(Want::Nothing).await?;
    let not_found = || {
        Problem::new(
            ErrorCode::OperationNotFound,
            "the ledger has no record of this operation: it may still be under way, it was refused, it went \
             to an upstream of which no records are kept, or it is older than the history that is kept",
        )
    };
    let record = engine.operation(id).await?.ok_or_else(not_found)?;
    // Of what the caller may neither read nor write nothing is told, not even that it is there.
    for name in resources(&record) {
        asks.may(Want::Outcome(name)).await.map_err(|_| not_found())?;
    }
    Ok(Json(views::operation(id, record)))
}

/// The parameters of a search for operations.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct ByKey {
    /// The `Idempotency-Key` of the write.
    #[param(value_type = fence_core::schema::IdempotencyKey)]
    idempotency_key: String,
}

/// Has a write with this idempotency key taken effect?
///
/// Ask before work that is costly to do twice.
#[utoipa::path(
    get, path = "/resources/{resource}/operations", operation_id = "findOperations",
    tag = "operations",
    params(("resource" = fence_core::ResourceName, Path, description = "The resource."), ByKey),
    responses(
        (status = 200, description = "The operation that used the key, or none.",
            body = wire::OperationList),
        OperationsProblems,
    )
)]
pub async fn find(
    asks: Asks,
    InResource(resource): InResource,
    Query(query): Query<ByKey>,
    Asker(engine): Asker,
) -> Result<Json<wire::OperationList>, Problem> {
    asks.may(Want::Outcome(resource.clone())).await?;
    if !is_idempotency_key(&query.idempotency_key) {
        let why = "idempotency_key has 1 to 255 visible ASCII characters";
        return Err(Problem::new(ErrorCode::QueryMalformed, why));
    }
    let found = engine.operation_by_key(resource, query.idempotency_key).await?;
    let items = found.into_iter().map(views::applied).collect();
    Ok(Json(wire::OperationList { items }))
}

/// What an operation was to.
fn resources(record: &OperationRecord) -> impl Iterator<Item = ResourceName> {
    let names: Vec<ResourceName> = match record {
        OperationRecord::Applied(applied) => vec![applied.resource.clone()],
        OperationRecord::Committed(rows) => rows.iter().map(|row| row.resource.clone()).collect(),
        OperationRecord::Forwarded(record) => vec![record.resource.clone()],
        OperationRecord::Buried => Vec::new(),
    };
    names.into_iter()
}

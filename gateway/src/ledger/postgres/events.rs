//! The history of a resource, and the feed of committed writes, which `acts/events.sql` numbers.

use fence_core::ResourceName;
use fence_core::ports::{
    Applied, EventCursor, EventsHead, EventsPage, LedgerError, VersionsFilter,
};
use sqlx::postgres::PgRow;
use sqlx::{FromRow as _, Row};

use super::reads::{OperationRow, fetch};
use super::session::{Sessions, harmless};

/// How long the server may take for one step. Longer than the gateway waits for it: a step that was
/// too large to be waited for is carried through all the same, and the next one is small again.
const STEP_MS_MAX: &str = "600000";

pub(super) async fn versions(
    sessions: &Sessions,
    resource: &ResourceName,
    filter: &VersionsFilter,
) -> Result<Vec<Applied>, LedgerError> {
    let query = sqlx::query_as::<_, OperationRow>(
        "SELECT o.*, fencegate.micros(o.committed_at) AS committed_us
         FROM fencegate.operations o
         WHERE o.resource = $1 AND o.version >= $5 AND o.version < $2
           AND (o.key IS NULL OR starts_with(o.key, $3))
         ORDER BY o.version DESC LIMIT $4",
    )
    .bind(resource.as_str())
    .bind(filter.before.unwrap_or(i64::MAX))
    .bind(&filter.prefix)
    .bind(filter.limit)
    .bind(filter.from);
    let rows: Vec<OperationRow> = fetch!(sessions, fetch_all, query)?;
    rows.into_iter().map(OperationRow::applied).collect()
}

row! {
    struct HeadRow {
        generation: i64,
        last: i64,
        whole: bool,
    }
}

pub(super) async fn number(sessions: &Sessions) -> Result<EventsHead, LedgerError> {
    let mut session = sessions.take_for_act().await?;
    let call = async {
        let connection = &mut session.connection;
        let before: String = sqlx::query_scalar(
            "WITH b AS MATERIALIZED (SELECT current_setting('statement_timeout') AS ms)
             SELECT b.ms FROM b WHERE set_config('statement_timeout', $1, false) IS NOT NULL",
        )
        .bind(STEP_MS_MAX)
        .fetch_one(&mut *connection)
        .await?;
        let step =
            sqlx::query_as::<_, HeadRow>(concat!("SELECT * FROM ", acts!(), ".number_events($1)"))
                .bind(session.seen)
                .fetch_one(&mut *connection)
                .await;
        sqlx::query("SELECT set_config('statement_timeout', $1, false)")
            .bind(before)
            .execute(&mut *connection)
            .await?;
        step
    };
    let answer = sessions.answer(call).await;
    let row = sessions.settle_act(session, answer).await.map_err(harmless)?;
    let row = row.ok_or_else(super::locks::busy)?;
    let last = EventCursor { generation: row.generation, number: row.last };
    Ok(EventsHead { last, whole: row.whole })
}

/// One statement, so that head and events are of one snapshot. The page is found by number alone, and
/// then each operation by its id, whatever the planner thinks of the size of the tables.
pub(super) async fn events(
    sessions: &Sessions,
    after: EventCursor,
    limit: i64,
) -> Result<EventsPage, LedgerError> {
    let query = sqlx::query(
        "WITH page AS MATERIALIZED (
             SELECT e.number, e.operation, e.resource FROM fencegate.events e
             WHERE e.number > $2 AND e.number <= $2 + $3 ORDER BY e.number)
         SELECT m.generation AS last_generation, m.number AS last_number,
                (SELECT h.events FROM fencegate.history h) AS gone,
                (SELECT min(r.number) FROM fencegate.events_rewound r WHERE r.generation > $1)
                    AS rewound,
                p.number AS event, o.*, fencegate.micros(o.committed_at) AS committed_us
         FROM fencegate.events_mark m
         LEFT JOIN page p ON true
         LEFT JOIN LATERAL (
             SELECT * FROM fencegate.operations o
             WHERE o.id = p.operation AND (p.resource IS NULL OR o.resource = p.resource)
             LIMIT 1) o ON true
         ORDER BY p.number",
    )
    .bind(after.generation)
    .bind(after.number.min(i64::MAX - limit))
    .bind(limit);
    let rows: Vec<PgRow> = fetch!(sessions, fetch_all, query)?;
    let unreadable = |error: sqlx::Error| LedgerError::Defect(error.to_string());
    let first = rows.first().ok_or_else(|| LedgerError::Defect("no mark of the events".into()))?;
    let last = EventCursor {
        generation: first.try_get("last_generation").map_err(unreadable)?,
        number: first.try_get("last_number").map_err(unreadable)?,
    };
    let gone = first.try_get("gone").map_err(unreadable)?;
    let rewound = first.try_get("rewound").map_err(unreadable)?;
    let mut events = Vec::with_capacity(rows.len());
    for row in &rows {
        let number: Option<i64> = row.try_get("event").map_err(unreadable)?;
        if let Some(number) = number {
            let operation = OperationRow::from_row(row).map_err(unreadable)?;
            events.push((number, operation.applied()?));
        }
    }
    Ok(EventsPage { last, gone, rewound, events })
}

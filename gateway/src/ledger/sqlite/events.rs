//! The history of a resource, and the feed of committed writes: numbered by the acts themselves, for
//! there is one writer.

use fence_core::acts::Rows;
use fence_core::ports::{
    Applied, COMMIT_KIND, EventCursor, EventsHead, EventsPage, LedgerError, VersionsFilter,
};
use fence_core::{OperationId, ResourceName};
use sqlx::SqliteConnection;

use super::bulk::Script;
use super::columns::OperationColumns;
use super::{SqliteLedger, rolled_back};

/// Numbers what an act has written, in the order in which it was.
pub(super) fn append(script: &mut Script, rows: &Rows) {
    let event = |(operation, resource): &(OperationId, ResourceName)| {
        let is_commit = rows.operation(*operation, resource).is_some_and(|a| a.kind == COMMIT_KIND);
        (*operation, is_commit.then(|| resource.clone()))
    };
    let written: Vec<_> = rows.written.iter().map(event).collect();
    script.list(
        "INSERT INTO events (operation, resource)
         SELECT value ->> 0, value ->> 1 FROM json_each(?) ORDER BY key",
        &written,
    );
}

row! {
    struct HeadColumns {
        last_generation: i64,
        last_number: i64,
        gone: i64,
        rewound: Option<i64>,
    }
}

impl HeadColumns {
    fn last(&self) -> EventCursor {
        EventCursor { generation: self.last_generation, number: self.last_number }
    }
}

row! {
    struct EventColumns {
        number: i64,
        ..operation: OperationColumns,
    }
}

impl SqliteLedger {
    pub(super) async fn list_versions(
        &self,
        resource: &ResourceName,
        filter: &VersionsFilter,
    ) -> Result<Vec<Applied>, LedgerError> {
        let mut reader = self.reader().await?;
        let rows: Result<Vec<OperationColumns>, _> = sqlx::query_as(
            "SELECT * FROM operations
             WHERE resource = ?1 AND version >= ?5 AND version < ?2
               AND (key IS NULL OR substr(key, 1, length(?3)) = ?3)
             ORDER BY version DESC LIMIT ?4",
        )
        .bind(resource.as_str())
        .bind(filter.before.unwrap_or(i64::MAX))
        .bind(&filter.prefix)
        .bind(filter.limit)
        .bind(filter.from)
        .fetch_all(&mut *reader)
        .await;
        self.keep(reader, rows)?.into_iter().map(OperationColumns::applied).collect()
    }

    pub(super) async fn events_head(&self) -> Result<EventsHead, LedgerError> {
        let mut reader = self.reader().await?;
        let head = head(&mut reader, i64::MAX).await;
        Ok(EventsHead { last: self.keep(reader, head)?.last(), whole: true })
    }

    /// The head is read last: it then says of all events that are missing that they were let go.
    pub(super) async fn list_events(
        &self,
        after: EventCursor,
        limit: i64,
    ) -> Result<EventsPage, LedgerError> {
        self.with_reader(async |reader| {
            let rows: Vec<EventColumns> = sqlx::query_as(
                "SELECT e.number, o.* FROM events e JOIN operations o
                     ON o.id = e.operation AND (e.resource IS NULL OR o.resource = e.resource)
                 WHERE e.number > ?1 ORDER BY e.number LIMIT ?2",
            )
            .bind(after.number)
            .bind(limit)
            .fetch_all(&mut *reader)
            .await
            .map_err(rolled_back)?;
            let head = head(reader, after.generation).await.map_err(rolled_back)?;
            let event = |row: EventColumns| Ok((row.number, row.operation.applied()?));
            Ok(EventsPage {
                last: head.last(),
                gone: head.gone,
                rewound: head.rewound,
                events: rows.into_iter().map(event).collect::<Result<_, LedgerError>>()?,
            })
        })
        .await
    }
}

async fn head(
    connection: &mut SqliteConnection,
    generation: i64,
) -> Result<HeadColumns, sqlx::Error> {
    sqlx::query_as(
        "SELECT g.generation AS last_generation,
                max(h.events, (SELECT coalesce(max(number), 0) FROM events)) AS last_number,
                h.events AS gone,
                (SELECT min(r.number) FROM events_rewound r WHERE r.generation > ?1) AS rewound
         FROM guard g CROSS JOIN history h",
    )
    .bind(generation)
    .fetch_one(connection)
    .await
}

//! Sends many rows in one trip: each statement that is sent by itself is a trip to the thread of the connection
//! and back, and waits there in line behind whatever else the gateway is doing.

use sqlx::sqlite::SqliteArguments;
use sqlx::{Arguments as _, AssertSqlSafe, Encode, Row as _, Sqlite, SqliteConnection, Type};

/// The most rows in a statement.
const ROWS_MAX: usize = 64;

/// How rows of a table are stored.
pub(super) struct Bulk {
    /// The table and its columns; the first one is never null.
    pub(super) into: &'static str,
    /// How many columns.
    pub(super) columns: usize,
    /// What becomes of a row that is there already.
    pub(super) conflict: &'static str,
}

/// Statements that run one after the other, with their values.
pub(super) struct Script {
    sql: String,
    values: SqliteArguments,
    error: Option<sqlx::Error>,
    /// How many rows a statement has room for.
    room: usize,
}

impl Script {
    /// A script that stores up to so many rows of a table.
    ///
    /// Each statement has room for a power of two, so that few scripts are prepared and kept.
    pub(super) fn new(rows: usize) -> Self {
        let room = rows.clamp(1, ROWS_MAX).next_power_of_two();
        Self { sql: String::new(), values: SqliteArguments::default(), error: None, room }
    }

    /// The value of the next parameter.
    pub(super) fn bind<'t, T: Encode<'t, Sqlite> + Type<Sqlite>>(&mut self, value: T) -> &mut Self {
        if let Err(error) = self.values.add(value) {
            self.error.get_or_insert(sqlx::Error::Encode(error));
        }
        self
    }

    /// Stores rows, in their order. Rows for which there is room but no values are null, and left out.
    pub(super) fn store<T>(&mut self, bulk: &Bulk, rows: &[T], bind: impl Fn(&mut Self, &T)) {
        let Bulk { into, columns, conflict } = bulk;
        for rows in rows.chunks(self.room) {
            let row = format!("({})", vec!["?"; *columns].join(","));
            let list = vec![row; self.room].join(",");
            self.sql += &format!(
                "INSERT INTO {into} SELECT * FROM (VALUES {list}) WHERE column1 IS NOT NULL {conflict};"
            );
            rows.iter().for_each(|row| bind(self, row));
            for _ in 0..(self.room - rows.len()) * columns {
                self.bind(None::<i64>);
            }
        }
    }

    /// Runs a statement on a list, unless that is empty: the statement's one parameter, as JSON.
    pub(super) fn list<T: serde::Serialize>(&mut self, statement: &'static str, list: &[T]) {
        if !list.is_empty() {
            self.sql += statement;
            self.sql.push(';');
            self.bind(super::load::json(list));
        }
    }

    /// Ends the transaction after it, and says so in a row: a connection whose thread has died ends its answer
    /// early, and not with an error.
    pub(super) async fn commit(self, connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
        match self.error {
            Some(error) => Err(error),
            None => {
                let sql = AssertSqlSafe(self.sql + "COMMIT; SELECT 'done' AS committed");
                let row = sqlx::query_with(sql, self.values).fetch_one(connection).await?;
                row.try_get::<String, _>("committed").map(drop)
            }
        }
    }

    /// Runs it, if there is anything in it. An error leaves the rest undone.
    pub(super) async fn run(self, connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
        match self.error {
            Some(error) => Err(error),
            None if self.sql.is_empty() => Ok(()),
            None => {
                let query = sqlx::query_with(AssertSqlSafe(self.sql), self.values);
                query.execute(connection).await.map(drop)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use sqlx::{Connection as _, SqliteConnection};

    use super::{Bulk, Script};

    const SQUARES: Bulk = Bulk {
        into: "squares (number, square)",
        columns: 2,
        conflict: "ON CONFLICT (number) DO UPDATE SET square = excluded.square",
    };

    /// What comes after a statement that fails is left undone, the commit above all.
    #[tokio::test]
    async fn a_script_that_fails_commits_nothing() {
        let mut connection = SqliteConnection::connect(":memory:").await.expect("opened");
        let table = "CREATE TABLE squares (number INTEGER UNIQUE, square INTEGER CHECK (square < 50)) STRICT";
        sqlx::query(table).execute(&mut connection).await.expect("made");
        for (rows, stored) in [(vec![1, 9, 2], 0), (vec![1, 2], 2)] {
            sqlx::query("BEGIN IMMEDIATE").execute(&mut connection).await.expect("begun");
            // A statement for each row.
            let mut script = Script::new(1);
            script.store(&SQUARES, &rows, |script, row| {
                script.bind(*row).bind(row * row);
            });
            let committed = script.commit(&mut connection).await;
            assert_eq!(committed.is_ok(), stored > 0, "{committed:?}");
            if let Err(error) = committed {
                assert_eq!(super::super::code(&error), Some(19), "{error}");
                sqlx::query("ROLLBACK").execute(&mut connection).await.expect("still open");
            }
            let count = sqlx::query_scalar("SELECT count(*) FROM squares");
            let count: i64 = count.fetch_one(&mut connection).await.expect("read");
            assert_eq!(count, stored);
        }
    }

    /// As many as there are, in their order, whatever the room; what is listed comes after them.
    #[tokio::test]
    async fn stores_every_row_and_no_other() {
        for count in [0, 1, 2, 3, 63, 64, 65, 200] {
            let mut connection = SqliteConnection::connect(":memory:").await.expect("opened");
            let table = "CREATE TABLE squares (number INTEGER UNIQUE, square INTEGER) STRICT";
            sqlx::query(table).execute(&mut connection).await.expect("made");
            let rows: Vec<i64> = (1..=count).rev().collect();
            for (room, factor) in [(count, 1), (1, 2), (9, 1)] {
                let mut script = Script::new(usize::try_from(room).expect("a number"));
                script.store(&SQUARES, &rows, |script, row| {
                    script.bind(*row).bind(row * row * factor);
                });
                script.list(
                    "INSERT INTO squares SELECT 0, value FROM json_each(?) WHERE true
                             ON CONFLICT (number) DO UPDATE SET square = excluded.square",
                    &[factor],
                );
                script.run(&mut connection).await.expect("stored");
                let found: Vec<(i64, i64)> = sqlx::query_as("SELECT * FROM squares ORDER BY rowid")
                    .fetch_all(&mut connection)
                    .await
                    .expect("read");
                let wanted = rows.iter().map(|row| (*row, row * row * factor)).chain([(0, factor)]);
                assert_eq!(found, wanted.collect::<Vec<_>>(), "{count} rows, room for {room}");
            }
        }
    }
}

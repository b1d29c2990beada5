//! Mutants of the SQL: edits of the functions of `schema/postgres` in test databases, so that it is seen
//! which tests notice a function that is wrong.

pub mod shared;

use std::cell::Cell;
use std::thread;

use fencegate::ledger::postgres::acts::named;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};

/// An edit of the text of a function.
#[derive(Debug, Clone, Copy)]
pub struct Edit {
    /// The function, of the acts or else of schema `fencegate`.
    pub function: &'static str,
    /// What must occur in it exactly once.
    pub from: &'static str,
    /// What is put in its place.
    pub to: &'static str,
}

/// A function that is wrong.
#[derive(Debug, Clone, Copy)]
pub struct Mutant {
    /// Its name.
    pub name: &'static str,
    /// What is wrong.
    pub what: &'static str,
    /// The edits that make it so.
    pub edits: &'static [Edit],
}

thread_local! {
    /// The edits of the databases that this thread makes, and in how many they were made.
    static ASKED: Cell<(&'static [Edit], usize)> = const { Cell::new((&[], 0)) };
}

/// Changes a function in this database. Panics unless `from` occurs exactly once, so that no mutant
/// outlives the text that it is about.
pub async fn mutate(connection: &mut PgConnection, edit: Edit) {
    let Edit { function, from, to } = edit;
    let [from, to] = [from, to].map(named);
    let found = "SELECT pg_get_functiondef(coalesce(to_regproc($1), to_regproc($2)))";
    let source: String = sqlx::query_scalar(found)
        .bind(named(&format!("acts.{function}")))
        .bind(format!("fencegate.{function}"))
        .fetch_one(&mut *connection)
        .await
        .unwrap_or_else(|error| panic!("{function} cannot be mutated: {error}"));
    let count = source.matches(&from).count();
    assert_eq!(count, 1, "{function} cannot be mutated: it has {count} times {from:?}");
    connection
        .execute(AssertSqlSafe(source.replacen(&from, &to, 1)))
        .await
        .unwrap_or_else(|error| panic!("{function} cannot be mutated: {to:?}: {error}"));
}

/// Makes the edits that the thread asks for. Called for each database of a schedule, once it has its
/// schema.
pub async fn apply(url: &str) {
    let (edits, databases) = ASKED.get();
    if edits.is_empty() {
        return;
    }
    let mut connection = PgConnection::connect(url).await.expect("Postgres takes a connection");
    for edit in edits {
        mutate(&mut connection, *edit).await;
    }
    connection.close().await.expect("the connection closes");
    ASKED.set((edits, databases + 1));
}

/// Runs a test whose databases have these edits; what it says when it fails, `None` if it passes. An error
/// if an edit cannot be made, or none was. The test must run all of itself on the thread that calls it, as
/// `#[tokio::test]` does by default.
pub fn failure_of(test: fn(), edits: &'static [Edit]) -> Result<Option<String>, String> {
    let run = thread::spawn(move || {
        ASKED.set((edits, 0));
        let outcome = std::panic::catch_unwind(test);
        (outcome, ASKED.get().1)
    });
    let (outcome, databases) = run.join().expect("a panic of the test is caught");
    let said = outcome.err().map(|panic| match panic.downcast::<String>() {
        Ok(said) => *said,
        Err(panic) => panic.downcast_ref::<&str>().copied().unwrap_or("it did not say").to_owned(),
    });
    match said {
        Some(said) if said.contains("cannot be mutated") => Err(said),
        said if databases == 0 => Err(format!("no database was mutated: {said:?}")),
        said => Ok(said),
    }
}

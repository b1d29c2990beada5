//! The migrations of both ledgers, as `sqlx::migrate!` would make them: ledgers have kept version, description and checksum of
//! each, and must find them again.

use sqlx::SqlSafeStr as _;
use sqlx::migrate::{Migration, MigrationType, Migrator};

/// A file of a folder of the schema: its number, the rest of its name in words, and its text.
pub(super) type File = (i64, &'static str, &'static str);

/// The migrator of these files.
pub(super) fn migrator(files: &[File]) -> Migrator {
    let migration = |(version, description, sql): &File| {
        let (description, sql) = ((*description).into(), (*sql).into_sql_str());
        Migration::new(*version, description, MigrationType::Simple, sql, false)
    };
    Migrator::with_migrations(files.iter().map(migration).collect())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::ledger::{postgres, sqlite};

    /// What ledgers keep of each, and what is run.
    fn kept(migrator: &Migrator) -> Vec<(i64, String, String, String, bool)> {
        let kept = |one: &Migration| {
            let (description, sql) = (one.description.to_string(), one.sql.as_str().to_owned());
            (one.version, description, hex::encode(&one.checksum), sql, one.no_tx)
        };
        migrator.iter().map(kept).collect()
    }

    #[tokio::test]
    async fn all_files_are_there_as_sqlx_finds_them() {
        let schema = Path::new(env!("CARGO_MANIFEST_DIR")).join("../schema");
        for (folder, files) in
            [("postgres/tables", &postgres::TABLES[..]), ("sqlite", &sqlite::TABLES[..])]
        {
            let path = schema.join(folder);
            let found = Migrator::new(path.as_path()).await.expect("the folder is read");
            assert_eq!(kept(&migrator(files)), kept(&found), "{folder}");
            let count = std::fs::read_dir(&path).expect("the folder is read").count();
            assert_eq!(files.len(), count, "{folder} has a file that is no migration");
        }
    }

    #[test]
    fn checksums_are_those_that_ledgers_have() {
        let first = |files| kept(&migrator(files)).remove(0).2;
        assert_eq!(first(&postgres::TABLES[..]), POSTGRES);
        assert_eq!(first(&sqlite::TABLES[..]), SQLITE);
    }

    /// Of `0001_fences.sql`.
    const POSTGRES: &str = "74ed1e0c2757d96c0a57c57e3e9ef5cab114b4aae30764a810bc6d7270126b99\
         ea9c55593338644230b672a6cd0b2c07";
    /// Of `0001_tables.sql`.
    const SQLITE: &str = "13278e209b02020fe984b98a10f85314182e06547e0244cc712eca2728e93a43\
         8e5c0e97b4fb75a00af3fc75019d13a1";
}

//! The tables and their migrations: in order, forward only.
//!
//! Must never change a released migration, and never touch a database that a newer program has migrated.

use onward_store::StoreError;

use crate::connection::sql::{Db, Sql};
use crate::connection::timeout::TimeLimit;
use crate::error::{ErrorClass, classify, refusal};

/// Migrations in order, each as it was released.
const MIGRATIONS: &[&str] =
    &[include_str!("../migrations/0001.sql"), include_str!("../migrations/0002.sql"), include_str!("../migrations/0003.sql")];

/// The schema version of this program.
pub(crate) const VERSION: i32 = MIGRATIONS.len() as i32;

/// Maximum number of attempts if several programs migrate at the same time.
const TRIES_MAX: u32 = 20;

/// Migrates the database to this program's version. Fails if it is newer, or if it has no tables and `make_tables` is false.
pub(crate) async fn migrate(db: &Db, make_tables: bool) -> Result<(), StoreError> {
    check_encoding(db).await?;
    if !make_tables && matches!(current(db).await, Ok(0)) {
        return Err(StoreError::DatabaseUnusable { why: "it has no Onward tables".to_owned() });
    }
    for attempt in 1.. {
        match try_migrate(db).await {
            Err(MigrationError::Sql(error)) if classify(&error) == ErrorClass::Again && attempt < TRIES_MAX => {
                rollback(db).await;
                tokio::time::sleep(std::time::Duration::from_millis(10 * u64::from(attempt))).await;
            }
            Err(MigrationError::Sql(error)) => {
                rollback(db).await;
                return Err(refusal(&error));
            }
            Err(MigrationError::Newer(found)) => {
                rollback(db).await;
                return Err(StoreError::DatabaseNewer { found: found as u32, supported: VERSION as u32 });
            }
            Ok(()) => break,
        }
    }
    Ok(())
}

/// Checks that the encoding is UTF-8: with another one, the database would reject some names.
async fn check_encoding(db: &Db) -> Result<(), StoreError> {
    let rows = db.query(&Sql::new("SELECT current_setting('server_encoding')")).await.map_err(|error| refusal(&error))?;
    let encoding: String = rows.first().map(|row| row.get(0)).unwrap_or_default();
    if encoding == "UTF8" {
        return Ok(());
    }
    let why = format!("its encoding is {encoding}; create it with `createdb --encoding UTF8 --template template0`");
    Err(StoreError::DatabaseUnusable { why })
}

async fn rollback(db: &Db) {
    // Without an open transaction, the server only warns.
    let _ = db.execute("ROLLBACK").await;
}

enum MigrationError {
    Sql(tokio_postgres::Error),
    Newer(i32),
}

impl From<tokio_postgres::Error> for MigrationError {
    fn from(error: tokio_postgres::Error) -> MigrationError {
        MigrationError::Sql(error)
    }
}

async fn try_migrate(db: &Db) -> Result<(), MigrationError> {
    // Usually nothing is left to do; then nothing is locked.
    if current(db).await? == VERSION {
        return Ok(());
    }
    db.with(TimeLimit::Unlimited, catch_up(db)).await
}

/// Applies the missing migrations. Takes as long as large tables and concurrent migrations need.
async fn catch_up(db: &Db) -> Result<(), MigrationError> {
    db.execute("BEGIN").await?;
    // A concurrent migration waits for this lock, or fails because the other one created the same object, and is retried.
    db.execute(
        "CREATE SCHEMA IF NOT EXISTS onward;
         CREATE TABLE IF NOT EXISTS onward.schema_version (version int PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT clock_timestamp());
         LOCK TABLE onward.schema_version IN ACCESS EXCLUSIVE MODE",
    )
    .await?;
    let applied = current(db).await?;
    for (migration, version) in MIGRATIONS.iter().zip(1..).skip(applied.max(0) as usize) {
        db.execute(migration).await?;
        db.query(&Sql::new("INSERT INTO onward.schema_version(version) VALUES ($1)").int(version)).await?;
    }
    db.execute("COMMIT").await?;
    Ok(())
}

/// Returns the version of the database, 0 if it has no Onward tables.
async fn current(db: &Db) -> Result<i32, MigrationError> {
    let there = db.query(&Sql::new("SELECT to_regclass('onward.schema_version') IS NOT NULL")).await?;
    if !there.first().is_some_and(|row| row.get(0)) {
        return Ok(0);
    }
    let rows = db.query(&Sql::new("SELECT coalesce(max(version), 0) FROM onward.schema_version")).await?;
    let found = rows.first().map_or(0, |row| row.get(0));
    if found > VERSION { Err(MigrationError::Newer(found)) } else { Ok(found) }
}

//! The tables, and how a database comes to have them: migrations in order, forward only.
//!
//! Must never change a migration that somebody may have applied, and never touch a database that a newer program has changed.

use onward_store::StoreError;

use crate::connection::sql::{Db, Sql};
use crate::connection::timeout::Patience;
use crate::error::{Meaning, meaning, refusal};

/// Each as it was when it was first released, in order.
const MIGRATIONS: &[&str] = &[
    include_str!("../migrations/0001.sql"),
    include_str!("../migrations/0002.sql"),
    include_str!("../migrations/0003.sql"),
    include_str!("../migrations/0004.sql"),
    include_str!("../migrations/0005.sql"),
];

/// What this program knows.
pub(crate) const VERSION: i32 = MIGRATIONS.len() as i32;

/// How often two programs that start at once get in each other's way before one of them gives up.
const TRIES_MAX: u32 = 20;

/// Brings the database to this program's version, or refuses it; one that has nothing of ours only if it is to be made.
pub(crate) async fn migrate(db: &Db, make_tables: bool) -> Result<(), StoreError> {
    check_encoding(db).await?;
    if !make_tables && matches!(current(db).await, Ok(0)) {
        return Err(StoreError::DatabaseUnusable { why: "it has no tables of Onward".to_owned() });
    }
    for attempt in 1.. {
        match try_migrate(db).await {
            Err(Halted::Sql(error)) if meaning(&error) == Meaning::Again && attempt < TRIES_MAX => {
                rollback(db).await;
                tokio::time::sleep(std::time::Duration::from_millis(10 * u64::from(attempt))).await;
            }
            Err(Halted::Sql(error)) => {
                rollback(db).await;
                return Err(refusal(&error));
            }
            Err(Halted::Newer(found)) => {
                rollback(db).await;
                return Err(StoreError::DatabaseNewer { found: found as u32, supported: VERSION as u32 });
            }
            Ok(()) => break,
        }
    }
    Ok(())
}

/// Names may have any character: a database that cannot keep some of them would refuse what all others take.
async fn check_encoding(db: &Db) -> Result<(), StoreError> {
    let rows = db.query(&Sql::new("SELECT current_setting('server_encoding')")).await.map_err(|error| refusal(&error))?;
    let encoding: String = rows.first().map(|row| row.get(0)).unwrap_or_default();
    if encoding == "UTF8" {
        return Ok(());
    }
    let why = format!("its encoding is {encoding}: make one with `createdb --encoding UTF8 --template template0`");
    Err(StoreError::DatabaseUnusable { why })
}

async fn rollback(db: &Db) {
    // Where there is nothing to undo, the server only warns.
    let _ = db.execute("ROLLBACK").await;
}

enum Halted {
    Sql(tokio_postgres::Error),
    Newer(i32),
}

impl From<tokio_postgres::Error> for Halted {
    fn from(error: tokio_postgres::Error) -> Halted {
        Halted::Sql(error)
    }
}

async fn try_migrate(db: &Db) -> Result<(), Halted> {
    // Most starts find everything done, and then nothing is locked.
    if current(db).await? == VERSION {
        return Ok(());
    }
    db.with(Patience::Endless, catch_up(db)).await
}

/// Takes as long as large tables and those who came first need.
async fn catch_up(db: &Db) -> Result<(), Halted> {
    db.execute("BEGIN").await?;
    // Whoever comes second waits at the lock, or fails because the first has made the same thing meanwhile, and looks again.
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

/// The version that the database has; 0 if it has none of ours.
async fn current(db: &Db) -> Result<i32, Halted> {
    let there = db.query(&Sql::new("SELECT to_regclass('onward.schema_version') IS NOT NULL")).await?;
    if !there.first().is_some_and(|row| row.get(0)) {
        return Ok(0);
    }
    let rows = db.query(&Sql::new("SELECT coalesce(max(version), 0) FROM onward.schema_version")).await?;
    let found = rows.first().map_or(0, |row| row.get(0));
    if found > VERSION { Err(Halted::Newer(found)) } else { Ok(found) }
}

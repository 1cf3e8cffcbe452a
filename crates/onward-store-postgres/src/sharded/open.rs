//! Opening of several databases: which ones belong join_all, and in which order.
//!
//! Each database records its shard: cluster id, position and number of databases. The first open writes it, every later one
//! compares. A database that is down at a later open is verified before its first use (SD5), so servers can start without it.

use std::sync::Arc;

use onward_store::{Clock, Shard, Store, StoreError};

use crate::sharded::database::{Common, ShardDatabase};
use crate::sharded::merge::{Request, join_all};
use crate::sharded::routing::ShardedStore;
use crate::sharded::time::{Pace, Time};

/// A database and its display name, which must contain no password.
#[derive(Clone)]
pub struct Database {
    pub name: String,
    pub store: Arc<dyn Store>,
}

impl ShardedStore {
    /// Opens databases that record their shard. `new_cluster` is a new unique id for databases that are opened for the first
    /// time; this needs all of them, any later open at least one. Without it nothing is written, and databases without a recorded
    /// shard are refused.
    pub async fn open(
        databases: Vec<Database>,
        new_cluster: Option<String>,
        clock: Arc<dyn Clock>,
        pace: Pace,
    ) -> Result<ShardedStore, StoreError> {
        let requests = databases.iter().map(|database| -> Request<'_, _> { database.store.read_shard() }).collect();
        let answers: Vec<Result<Option<Shard>, StoreError>> = join_all(requests).await;
        let (count, common) = (databases.len(), Common { clock, time: Arc::new(Time::start()), pace });
        let known = answers.iter().filter_map(|answer| answer.as_ref().ok()).flatten().next();
        let marks = new_cluster.is_some();
        let mut cluster = known.map_or(new_cluster.unwrap_or_default(), |share| share.cluster.clone());
        let is_first = answers.iter().any(|answer| matches!(answer, Ok(None)));
        // Shards are recorded in order: a database without one before a database that has one was replaced.
        let last_marked = answers.iter().rposition(|answer| matches!(answer, Ok(Some(_))));
        let share =
            |cluster: &str, position| Shard { cluster: cluster.to_owned(), position: position as u32, count: count as u32 };
        let (mut shards, mut unmarked) = (Vec::new(), Vec::new());
        for (position, (Database { name, store }, answer)) in databases.into_iter().zip(answers).enumerate() {
            let (database, expected) =
                (ShardDatabase::new(name, position, count, store, common.clone()), share(&cluster, position));
            shards.push(match answer {
                Ok(None) if marks && last_marked < Some(position) => {
                    unmarked.push(position);
                    Arc::new(database)
                }
                Ok(found) => named(&database, check_share(&expected, found.as_ref())).map(|()| Arc::new(database))?,
                Err(error) if is_first => return Arc::new(database).noted(Err(error)),
                Err(error) => database.unchecked(expected, &error),
            });
        }
        for position in unmarked {
            let database = &shards[position];
            let taken = database.noted(database.store.record_shard(share(&cluster, position)).await)?;
            // Of two concurrent first opens, the one counts that came first at the first database.
            if position == 0 {
                cluster = taken.cluster.clone();
            }
            named(database, check_share(&share(&cluster, position), Some(&taken)))?;
        }
        match shards.iter().any(|database| database.is_up()) {
            true => Ok(ShardedStore::of(shards, common)),
            // The cluster id is unknown, so later databases could not be compared with it.
            false => Err(StoreError::Unavailable { why: "no database is up".to_owned() }),
        }
    }
}

/// Adds the name of the database to the error.
fn named(database: &ShardDatabase, checked: Result<(), StoreError>) -> Result<(), StoreError> {
    checked.map_err(|error| match error {
        StoreError::DatabasesDiffer { why } => StoreError::DatabasesDiffer { why: format!("{} {why}", database.title) },
        error => error,
    })
}

pub fn check_share(expected: &Shard, found: Option<&Shard>) -> Result<(), StoreError> {
    let why = match found {
        Some(found) if found == expected => return Ok(()),
        None => "has no recorded shard".to_owned(),
        Some(found) if (found.position, found.count) == (expected.position, expected.count) => {
            "belongs to another cluster".to_owned()
        }
        Some(found) if found.count == 1 => "was used as a single database".to_owned(),
        Some(found) => format!("is recorded as database {} of {}", found.position + 1, found.count),
    };
    Err(StoreError::DatabasesDiffer { why })
}

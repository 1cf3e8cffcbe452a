//! Which databases belong together, and in which order.
//!
//! Each database remembers its share: which one of how many it is, and of which cluster. The first opening tells them; every later one
//! compares. One that cannot be reached at a later opening is asked before it is used (SD5), so that servers start while it is down.

use std::sync::Arc;

use onward_store::{Clock, Share, Store, StoreError};

use crate::sharded::database::{Common, Place};
use crate::sharded::spread::ShardedStore;
use crate::sharded::time::{Pace, Time};
use crate::sharded::together::{Asked, together};

/// A database by the name that people know it by, which must hold no password.
#[derive(Clone)]
pub struct Database {
    pub name: String,
    pub store: Arc<dyn Store>,
}

impl ShardedStore {
    /// Opens databases that remember their share. `new_cluster` is an id that nobody had before, for databases that are opened for the
    /// first time; this needs all of them, and any later opening at least one. Without it, nothing is told to anybody: databases that do
    /// not know their share are refused.
    pub async fn open(
        databases: Vec<Database>,
        new_cluster: Option<String>,
        clock: Arc<dyn Clock>,
        pace: Pace,
    ) -> Result<ShardedStore, StoreError> {
        let asked = databases.iter().map(|database| -> Asked<'_, _> { database.store.read_share() }).collect();
        let answers: Vec<Result<Option<Share>, StoreError>> = together(asked).await;
        let (count, common) = (databases.len(), Common { clock, time: Arc::new(Time::start()), pace });
        let known = answers.iter().filter_map(|answer| answer.as_ref().ok()).flatten().next();
        let tells = new_cluster.is_some();
        let mut cluster = known.map_or(new_cluster.unwrap_or_default(), |share| share.cluster.clone());
        let is_first = answers.iter().any(|answer| matches!(answer, Ok(None)));
        // They are told in order: one that knows nothing and stands before one that does has been replaced.
        let last_told = answers.iter().rposition(|answer| matches!(answer, Ok(Some(_))));
        let share =
            |cluster: &str, position| Share { cluster: cluster.to_owned(), position: position as u32, count: count as u32 };
        let (mut places, mut untold) = (Vec::new(), Vec::new());
        for (position, (Database { name, store }, answer)) in databases.into_iter().zip(answers).enumerate() {
            let (place, expected) = (Place::new(name, position, count, store, common.clone()), share(&cluster, position));
            places.push(match answer {
                Ok(None) if tells && last_told < Some(position) => {
                    untold.push(position);
                    Arc::new(place)
                }
                Ok(found) => named(&place, check_share(&expected, found.as_ref())).map(|()| Arc::new(place))?,
                Err(error) if is_first => return Arc::new(place).noted(Err(error)),
                Err(error) => place.unchecked(expected, &error),
            });
        }
        for position in untold {
            let place = &places[position];
            let taken = place.noted(place.store().take_share(share(&cluster, position)).await)?;
            // Of two who open them first at the same time, the one counts that was first at the first database.
            if position == 0 {
                cluster = taken.cluster.clone();
            }
            named(place, check_share(&share(&cluster, position), Some(&taken)))?;
        }
        match places.iter().any(|place| place.is_up()) {
            true => Ok(ShardedStore::of(places, common)),
            // Nobody has said which cluster it is: there is nothing to hold the rest against.
            false => Err(StoreError::Unavailable { why: "no database answers".to_owned() }),
        }
    }
}

/// Says which database it is about.
fn named(place: &Place, checked: Result<(), StoreError>) -> Result<(), StoreError> {
    checked.map_err(|error| match error {
        StoreError::DatabasesDiffer { why } => StoreError::DatabasesDiffer { why: format!("{} {why}", place.title()) },
        error => error,
    })
}

pub fn check_share(expected: &Share, found: Option<&Share>) -> Result<(), StoreError> {
    let why = match found {
        Some(found) if found == expected => return Ok(()),
        None => "does not know which one it is".to_owned(),
        Some(found) if (found.position, found.count) == (expected.position, expected.count) => {
            "belongs to other databases than the ones before it".to_owned()
        }
        Some(found) if found.count == 1 => "has been used alone and keeps all its runs".to_owned(),
        Some(found) => format!("says that it is database {} of {}", found.position + 1, found.count),
    };
    Err(StoreError::DatabasesDiffer { why })
}

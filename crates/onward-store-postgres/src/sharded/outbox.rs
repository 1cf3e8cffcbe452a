//! Outbox messages between runs, and broadcasts between servers.

use std::collections::BTreeMap;
use std::sync::Arc;

use onward_core::run::OutboxMessage;
use onward_store::{KnownRun, OutboxId, RunUpdate, Store, StoreError, StoreFuture};

use crate::sharded::merge::take_turns;
use crate::sharded::routing::{ShardedStore, all_answers, position, some_answers};

/// Maximum number of outbox messages of one database to search for some whose receiver is reachable.
const SCANNED_MAX: usize = 65_536;

impl ShardedStore {
    /// Returns the oldest outbox messages, one of each database in turn.
    pub(crate) async fn deliveries_of_all(&self, limit: usize) -> Result<Vec<(OutboxId, OutboxMessage)>, StoreError> {
        let down: Vec<bool> = self.databases.iter().map(|database| !database.is_up()).collect();
        let (down, count) = (Arc::new(down), self.databases.len());
        let answers = self.request_some(self.rotated(), |_, store| to_those_up(store, down.clone(), limit)).await;
        let mut lists = Vec::new();
        for (position, messages) in some_answers(answers)? {
            let renamed = messages.into_iter().map(|(id, message)| Ok((outer(id, position, count)?, message)));
            lists.push(renamed.collect::<Result<Vec<_>, StoreError>>()?);
        }
        Ok(take_turns(lists, limit))
    }

    /// Removes delivered messages. Fails if one database fails: its messages will be delivered again, so the dispatcher should
    /// wait.
    pub(crate) async fn finish_deliveries_of_all(&self, done: Vec<OutboxId>) -> Result<(), StoreError> {
        let mut by_position: BTreeMap<usize, Vec<OutboxId>> = BTreeMap::new();
        for id in done {
            let (position, id) = inner(id, self.databases.len());
            by_position.entry(position).or_default().push(id);
        }
        let positions = by_position.keys().copied().collect();
        let answers =
            self.request_some(positions, |position, store| store.finish_deliveries(by_position[&position].clone())).await;
        all_answers(answers).map(drop)
    }

    /// Reads new records of runs; those in a database that is down have none.
    pub(crate) async fn read_since_of_all(&self, known: Vec<KnownRun>) -> Result<Vec<RunUpdate>, StoreError> {
        let mut by_position: BTreeMap<usize, Vec<KnownRun>> = BTreeMap::new();
        for known in known {
            by_position.entry(position(&known.run, self.databases.len())).or_default().push(known);
        }
        let positions = by_position.keys().copied().collect();
        let answers = self.request_some(positions, |position, store| store.read_since(by_position[&position].clone())).await;
        Ok(some_answers(answers)?.into_iter().flat_map(|(_, messages)| messages).collect())
    }

    /// Sends a broadcast through one database: all servers listen at all of them, so each message arrives once.
    pub(crate) async fn broadcast_once(&self, message: Vec<u8>) -> Result<(), StoreError> {
        let mut down = None;
        for database in &self.databases {
            match database.refusal() {
                None => return database.request(|store| store.broadcast(message)).await,
                Some(error) => down = down.or(Some(error)),
            }
        }
        down.map_or(Ok(()), Err)
    }
}

/// Returns the oldest messages whose receivers are in databases that are up. Messages for the others must not hide the rest
/// (SD7).
fn to_those_up(store: &dyn Store, down: Arc<Vec<bool>>, limit: usize) -> StoreFuture<'_, Vec<(OutboxId, OutboxMessage)>> {
    Box::pin(async move {
        let mut wanted = limit;
        loop {
            let mut messages = store.outbox_messages(wanted).await?;
            let is_all = messages.len() < wanted || wanted >= SCANNED_MAX;
            messages.retain(|(_, message)| !down[position(message.receiver(), down.len())]);
            if is_all || messages.len() >= limit {
                messages.truncate(limit);
                return Ok(messages);
            }
            wanted = wanted.saturating_mul(4);
        }
    })
}

/// Returns the number of a message across all databases.
fn outer(id: OutboxId, position: usize, count: usize) -> Result<OutboxId, StoreError> {
    let number = id.0.checked_mul(count as u64).and_then(|number| number.checked_add(position as u64));
    number.map(OutboxId).ok_or_else(|| StoreError::Corrupt { why: format!("outbox message number {} is out of range", id.0) })
}

fn inner(id: OutboxId, count: usize) -> (usize, OutboxId) {
    ((id.0 % count as u64) as usize, OutboxId(id.0 / count as u64))
}

#[cfg(test)]
mod tests;

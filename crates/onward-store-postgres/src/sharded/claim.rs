//! Limits that are divided: every database gets a part of the limit at once, and those with more get the rest.

use std::collections::BTreeMap;
use std::sync::Arc;

use onward_store::{Store, StoreError, StoreFuture};

use crate::sharded::database::ShardDatabase;
use crate::sharded::merge::{Request, join_all, parts};
use crate::sharded::routing::{Answers, ShardedStore, some_answers};

/// Result of a divided limit.
pub struct Round<T> {
    pub answers: Vec<(usize, T)>,
    /// The limit was exhausted before all databases had returned everything.
    pub is_cut: bool,
}

/// How much of its part a database has used, and whether it may have more.
pub struct Used {
    pub count: usize,
    pub may_have_more: bool,
}

impl ShardedStore {
    /// Sends requests with at most `limit` in total. The order changes every time, so that no database always gets the rest.
    pub(crate) async fn share_out<T: Send>(
        &self,
        limit: usize,
        question: impl for<'a> Fn(usize, &'a dyn Store) -> StoreFuture<'a, T> + Sync,
        used: impl Fn(&T, usize) -> Used,
    ) -> Result<Round<T>, StoreError> {
        let question = &question;
        self.share_out_by(limit, |database, part| Box::pin(database.request(move |store| question(part, store))), used).await
    }

    /// Works like `share_out`, with a custom way to send the request.
    pub(crate) async fn share_out_by<'s, T: Send>(
        &'s self,
        limit: usize,
        send: impl Fn(&'s Arc<ShardDatabase>, usize) -> Request<'s, Result<T, StoreError>>,
        used: impl Fn(&T, usize) -> Used,
    ) -> Result<Round<T>, StoreError> {
        let order = self.rotated();
        let parts: BTreeMap<usize, usize> = order.iter().copied().zip(parts(limit, order.len())).collect();
        let (first, mut rest): (Vec<usize>, Vec<usize>) = order.iter().partition(|position| parts[*position] > 0);
        let requests = first.iter().map(|position| send(&self.databases[*position], parts[position])).collect();
        let mut answers: Answers<T> = first.into_iter().zip(join_all(requests).await).collect();
        let mut remaining = limit;
        for (position, answer) in answers.iter().filter_map(|(position, answer)| Some((*position, answer.as_ref().ok()?))) {
            let used = used(answer, parts[&position]);
            remaining = remaining.saturating_sub(used.count);
            rest.extend(used.may_have_more.then_some(position));
        }
        for position in rest {
            if remaining == 0 {
                break;
            }
            let more = send(&self.databases[position], remaining).await;
            remaining = remaining.saturating_sub(more.as_ref().map_or(0, |more| used(more, remaining).count));
            answers.push((position, more));
        }
        let is_cut = limit > 0 && remaining == 0;
        Ok(Round { answers: some_answers(answers)?, is_cut })
    }
}

/// Reports that a database that returned its full part may have more.
pub fn full(count: usize, part: usize) -> Used {
    Used { count, may_have_more: count >= part }
}

/// Joins what one database returned in two rounds into one list.
pub fn by_position<T>(answers: Vec<(usize, Vec<T>)>) -> Vec<Vec<T>> {
    let mut lists: BTreeMap<usize, Vec<T>> = BTreeMap::new();
    for (position, rows) in answers {
        lists.entry(position).or_default().extend(rows);
    }
    lists.into_values().collect()
}

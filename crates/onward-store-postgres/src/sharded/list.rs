//! Lists and counts over all databases (SD4), in the order that the store port defines. A list without the rows of a database
//! that is down is shorter; a sum would be wrong.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use onward_core::ledger::{self, SpendBy, SpendQuery, SpendRow};
use onward_core::run::Wait;
use onward_core::task::{Task, TaskCount};
use onward_core::{KindSchemas, Name, Namespace};
use onward_store::{
    DeletedQuery, DeletedRun, RunPage, RunQuery, ServerInfo, StoreError, TaskQuery, VersionCount, WaitQuery, cursor_after,
};

use crate::sharded::merge::{merge, page};
use crate::sharded::routing::{ShardedStore, all_answers, listed, some_answers};

impl ShardedStore {
    /// Lists runs. The cursor is the position of the last run in the common order, from which every database continues.
    pub(crate) async fn list_runs_of_all(&self, query: RunQuery) -> Result<RunPage, StoreError> {
        let limit = page(query.limit);
        let pages = listed(self, self.ask_all(|store| store.list_runs(query.clone())).await, query.gaps.as_ref())?;
        let count: usize = pages.iter().map(|page| page.runs.len()).sum();
        let more = count > limit || pages.iter().any(|page| page.next.is_some());
        let lists = pages.into_iter().map(|page| page.runs).collect();
        let runs = merge(lists, limit, |head| Reverse((head.created_at, head.key.id.clone())));
        let next = runs.last().filter(|_| more).map(cursor_after);
        Ok(RunPage { runs, next })
    }

    pub(crate) async fn list_waits_of_all(&self, query: WaitQuery) -> Result<Vec<Wait>, StoreError> {
        let lists = listed(self, self.ask_all(|store| store.list_waits(query.clone())).await, query.gaps.as_ref())?;
        Ok(merge(lists, page(query.limit), |wait| (wait.requested_at, wait.run.clone(), wait.call_id.clone())))
    }

    pub(crate) async fn list_tasks_of_all(&self, query: TaskQuery) -> Result<Vec<Task>, StoreError> {
        let lists = listed(self, self.ask_all(|store| store.list_tasks(query.clone())).await, query.gaps.as_ref())?;
        Ok(merge(lists, page(query.limit), |task| task.scheduled_at))
    }

    pub(crate) async fn list_deleted_of_all(&self, query: DeletedQuery) -> Result<Vec<DeletedRun>, StoreError> {
        let lists = listed(self, self.ask_all(|store| store.list_deleted(query.clone())).await, query.gaps.as_ref())?;
        Ok(merge(lists, page(query.limit), |deleted| Reverse(deleted.deleted_at)))
    }

    /// Sums spend. A tree of runs is in one database; the spend of a model or a day may be in all of them.
    pub(crate) async fn spend_of_all(&self, query: SpendQuery) -> Result<Vec<SpendRow>, StoreError> {
        let limit = match query.by {
            SpendBy::Run | SpendBy::Tree => page(query.limit),
            SpendBy::Model | SpendBy::Day => usize::MAX,
        };
        let asked = SpendQuery { limit, ..query.clone() };
        let lists = all_answers(self.ask_all(|store| store.spend(asked.clone())).await)?;
        Ok(ledger::merge(query.by, lists.into_iter().flatten(), page(query.limit)))
    }

    pub(crate) async fn count_versions_of_all(&self, namespace: Namespace) -> Result<Vec<VersionCount>, StoreError> {
        let lists = all_answers(self.ask_all(|store| store.count_versions(namespace.clone())).await)?;
        let mut counts: BTreeMap<(Name, Option<Name>), u64> = BTreeMap::new();
        for VersionCount { kind, version, open } in lists.into_iter().flatten() {
            *counts.entry((kind, version)).or_default() += open;
        }
        Ok(counts.into_iter().map(|((kind, version), open)| VersionCount { kind, version, open }).collect())
    }

    pub(crate) async fn count_tasks_of_all(&self, namespace: Namespace) -> Result<Vec<TaskCount>, StoreError> {
        let lists = all_answers(self.ask_all(|store| store.count_tasks(namespace.clone())).await)?;
        let mut counts: BTreeMap<(Option<Name>, Name), TaskCount> = BTreeMap::new();
        for count in lists.into_iter().flatten() {
            let key = (count.queue.clone(), count.kind.clone());
            let sum = match counts.remove(&key) {
                None => count,
                Some(other) => TaskCount {
                    queued: other.queued + count.queued,
                    running: other.running + count.running,
                    quarantined: other.quarantined + count.quarantined,
                    oldest_at: [other.oldest_at, count.oldest_at].into_iter().flatten().min(),
                    ..other
                },
            };
            counts.insert(key, sum);
        }
        Ok(counts.into_values().collect())
    }

    /// Lists kinds. Every database has all of them, so that runs can be started while one is down; the newest registration
    /// counts.
    pub(crate) async fn list_kinds_of_all(&self, namespace: Namespace) -> Result<Vec<KindSchemas>, StoreError> {
        let answers = some_answers(self.ask_all(|store| store.list_kinds(namespace.clone())).await)?;
        let mut kinds: Vec<KindSchemas> = answers.into_iter().flat_map(|(_, kinds)| kinds).collect();
        kinds.sort_by(|a, b| a.key().cmp(&b.key()).then(b.registered_at.cmp(&a.registered_at)));
        kinds.dedup_by(|later, first| later.key() == first.key());
        Ok(kinds)
    }

    /// Lists servers, which announce themselves in every database.
    pub(crate) async fn list_servers_of_all(&self) -> Result<Vec<ServerInfo>, StoreError> {
        let answers = some_answers(self.ask_all(|store| store.list_servers()).await)?;
        let mut servers: Vec<ServerInfo> = answers.into_iter().flat_map(|(_, servers)| servers).collect();
        servers.sort_by(|a, b| a.id.cmp(&b.id).then(b.heard_at.cmp(&a.heard_at)));
        servers.dedup_by(|later, first| later.id == first.id);
        Ok(servers)
    }
}

//! Reading, listing and deleting.

use std::collections::{BTreeMap, BTreeSet};

use onward_core::internal::InternalRuns;
use onward_core::ledger::{SpendQuery, SpendRow, SpendTally};
use onward_core::queue::load::KeyLoad;
use onward_core::queue::{KeyUse, QueueUse};
use onward_core::run::Wait;
use onward_core::task::{Task, TaskCount, TaskState};
use onward_core::{Index, KindSchemas, Name, Namespace, Record, RunHead, RunKey, Timestamp};

use super::state::{Generation, MemoryState, StoredRun};
use crate::unit_of_work::QueuedTask;
use crate::{
    Delete, DeletedQuery, DeletedRun, OpenCounts, Registration, RunPage, RunQuery, StoreError, TaskQuery, VersionCount,
    WaitQuery, is_behind, page_limit, parse_cursor, payloads, sum_tasks,
};

impl MemoryState {
    pub fn find_head(&self, key: &RunKey, generation: Option<u32>) -> Option<RunHead> {
        let run = self.runs.get(key)?;
        match generation {
            Some(generation) if generation != run.head().generation => {
                Some(run.generations.get(generation as usize)?.head.clone())
            }
            _ => Some(run.shown_head()),
        }
    }

    pub fn find_records(
        &self,
        key: &RunKey,
        generation: Option<u32>,
        from: Index,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        let run = self.runs.get(key);
        let found: Option<&Generation> = match generation {
            Some(generation) => run.and_then(|run| run.generations.get(generation as usize)),
            None => run.map(StoredRun::current),
        };
        let records = &found.ok_or_else(|| StoreError::RunNotFound { key: key.clone() })?.records;
        let mut found = records.iter().filter(|record| record.next_index() > from).take(limit).cloned().collect();
        payloads::shorten(&mut found);
        Ok(found)
    }

    pub fn find_runs(&self, query: &RunQuery) -> Result<RunPage, StoreError> {
        let before = query.cursor.as_deref().map(parse_cursor).transpose()?;
        let heads = self.runs.values().map(StoredRun::shown_head);
        let found = heads.filter(|head| query.matches(head) && is_behind(head, before)).collect();
        Ok(RunPage::of(found, page_limit(query.limit)))
    }

    pub fn open_versions(&self, namespace: &Namespace) -> Vec<VersionCount> {
        let mut counts: BTreeMap<(Name, Option<Name>), u64> = BTreeMap::new();
        for head in self.open_heads().filter(|head| head.key.namespace == *namespace) {
            *counts.entry((head.kind.clone(), head.version.clone())).or_default() += 1;
        }
        counts.into_iter().map(|((kind, version), open)| VersionCount { kind, version, open }).collect()
    }

    pub fn find_waits(&self, query: &WaitQuery) -> Vec<Wait> {
        let mut found: Vec<&Wait> =
            self.open_runs().flat_map(|run| run.waits.values()).filter(|wait| query.matches(wait)).collect();
        found.sort_by_key(|wait| (wait.requested_at, &wait.run, &wait.call_id));
        found.into_iter().take(page_limit(query.limit)).cloned().collect()
    }

    pub fn find_tasks(&self, query: &TaskQuery) -> Vec<Task> {
        let mut found: Vec<&QueuedTask> = self.open_tasks().filter(|queued| query.matches(&queued.task)).collect();
        found.sort_by_key(|queued| queued.order);
        found.into_iter().take(page_limit(query.limit)).map(|queued| queued.task.clone()).collect()
    }

    pub fn open_task_counts(&self, namespace: &Namespace) -> Vec<TaskCount> {
        let mut counts: BTreeMap<(Option<Name>, Name), TaskCount> = BTreeMap::new();
        for QueuedTask { task, .. } in self.open_tasks().filter(|queued| queued.task.id.run.namespace == *namespace) {
            let (queue, kind) = (task.options.queue.clone(), task.kind.clone());
            let new = || TaskCount { queue, kind, queued: 0, running: 0, quarantined: 0, oldest_at: None };
            let count = counts.entry((task.options.queue.clone(), task.kind.clone())).or_insert_with(new);
            match task.state {
                TaskState::Queued => {
                    count.queued += 1;
                    count.oldest_at = Some(count.oldest_at.map_or(task.visible_at, |oldest| oldest.min(task.visible_at)));
                }
                TaskState::Leased => count.running += 1,
                TaskState::Quarantined => count.quarantined += 1,
            }
        }
        counts.into_values().collect()
    }

    pub fn queue_keys(&self, namespace: &Namespace, queue: Option<&Name>, limit: usize, now: Timestamp) -> Vec<KeyLoad> {
        let mut loads: BTreeMap<Option<Name>, KeyLoad> = BTreeMap::new();
        for QueuedTask { task, .. } in self.tasks_of_queue(namespace, queue) {
            let key = task.options.key.clone();
            let starts = key.as_ref().and_then(|_| self.starts.get(&((namespace.clone(), queue.cloned()), key.clone())));
            let new = || KeyLoad { key: key.clone(), waiting: 0, running: 0, oldest_at: None, starts: starts.cloned(), held: 0 };
            let load = loads.entry(key.clone()).or_insert_with(new);
            if task.may_be_claimed(now) {
                load.waiting += 1;
                load.oldest_at = [load.oldest_at, Some(task.visible_at)].into_iter().flatten().min();
            }
            if task.state == TaskState::Leased {
                load.running += 1;
                load.held += u64::from(task.options.slots());
            }
        }
        let mut loads: Vec<KeyLoad> = loads.into_values().filter(|load| load.waiting + load.running > 0).collect();
        loads.sort_by_key(|load| (load.oldest_at.is_none(), load.oldest_at));
        loads.truncate(limit);
        loads
    }

    pub fn queue_use(&self, namespace: &Namespace, queue: Option<&Name>, keys: Vec<Name>) -> QueueUse {
        let leased = || self.tasks_of_queue(namespace, queue).filter(|of| of.task.state == TaskState::Leased);
        let slots = |of: &QueuedTask| u64::from(of.task.options.slots());
        let starts = |key: Option<&Name>| self.starts.get(&((namespace.clone(), queue.cloned()), key.cloned())).cloned();
        let of_key = |key: Name| {
            let held = leased().filter(|of| of.task.options.key.as_ref() == Some(&key)).map(slots).sum();
            KeyUse { held, starts: starts(Some(&key)), key }
        };
        QueueUse { held: leased().map(slots).sum(), starts: starts(None), keys: keys.into_iter().map(of_key).collect() }
    }

    pub fn open_counts(&self) -> OpenCounts {
        let namespaces: BTreeSet<&Namespace> = self.open_runs().map(|run| &run.head().key.namespace).collect();
        let tasks = sum_tasks(namespaces.into_iter().flat_map(|namespace| self.open_task_counts(namespace)));
        let mut runs = BTreeMap::new();
        for head in self.open_runs().map(StoredRun::shown_head) {
            *runs.entry((head.kind, head.status)).or_default() += 1;
        }
        let settings = self.kinds.iter().filter(|kind| kind.queue.is_some()).cloned().collect();
        OpenCounts { runs, tasks, settings }
    }

    pub fn put_kinds(
        &mut self,
        kinds: Vec<KindSchemas>,
        registration: &Registration,
        now: Timestamp,
    ) -> Result<Timestamp, StoreError> {
        let (kinds, at) = registration.decide(kinds, &self.kinds, now)?;
        for kind in kinds {
            self.kinds.retain(|other| other.key() != kind.key());
            if kind.has_schemas() {
                self.kinds.push(kind);
            }
        }
        self.kinds.sort_by(|a, b| a.key().cmp(&b.key()));
        Ok(at)
    }

    pub fn delete(&mut self, delete: &Delete, now: Timestamp) -> Result<u64, StoreError> {
        match delete {
            Delete::Run { key, reason } => {
                let run = self.runs.get(key).ok_or_else(|| StoreError::RunNotFound { key: key.clone() })?;
                if let Some(why) = self.blocked_reason(run) {
                    return Err(StoreError::RunBusy { key: key.clone(), why: why.to_owned() });
                }
                let (kind, reason) = (run.head().kind.clone(), reason.clone());
                self.remove_run(key);
                if InternalRuns::of(&key.id).is_none() {
                    self.deleted.push(DeletedRun { key: key.clone(), kind, reason, deleted_at: now });
                }
                Ok(1)
            }
            Delete::Expired { retention, limit } => {
                let over = |head: &RunHead| Some((head.ended_at?, head.key.clone()));
                let mut found: Vec<(Timestamp, RunKey)> = self
                    .runs
                    .values()
                    .filter(|run| run.head().ended_at.is_some_and(|ended| ended.after(retention.of(&run.head().kind)) <= now))
                    .filter(|run| self.blocked_reason(run).is_none())
                    .filter_map(|run| over(run.head()))
                    .collect();
                found.sort();
                found.truncate(*limit);
                found.iter().for_each(|(_, key)| self.remove_run(key));
                self.deleted.retain(|deleted| deleted.deleted_at.after(retention.of(&deleted.kind)) > now);
                Ok(found.len() as u64)
            }
        }
    }

    fn remove_run(&mut self, key: &RunKey) {
        self.runs.remove(key);
        self.open.remove(key);
    }

    pub fn sum_ledger(&self, query: &SpendQuery) -> Vec<SpendRow> {
        let mut tally = SpendTally::new(query.by);
        self.ledger.iter().filter(|(row, _)| query.matches(row)).for_each(|(row, sum)| tally.add(row, sum));
        tally.finish(page_limit(query.limit))
    }

    pub fn find_deleted(&self, query: &DeletedQuery) -> Vec<DeletedRun> {
        let namespace = |deleted: &&DeletedRun| deleted.key.namespace == query.namespace;
        let run = |deleted: &&DeletedRun| query.run.as_ref().is_none_or(|run| *run == deleted.key);
        self.deleted.iter().rev().filter(namespace).filter(run).take(page_limit(query.limit)).cloned().collect()
    }

    /// Returns why a run cannot be deleted yet (L20).
    fn blocked_reason(&self, run: &StoredRun) -> Option<&'static str> {
        let key = &run.head().key;
        if !run.head().may_be_deleted() {
            Some("it is not closed")
        } else if InternalRuns::holds_children(&key.id) && self.children(key).next().is_some() {
            Some("it has an open child")
        } else if self.outbox.values().any(|(from, _)| from == key) {
            Some("it has undelivered outbox messages")
        } else {
            None
        }
    }
}

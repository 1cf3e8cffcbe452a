//! The rows of the memory store: copies of what is in its maps, written back when an operation has decided.
//!
//! An operation that is refused or panics drops its copies, so that the maps are unchanged.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use onward_core::queue::settings::settings_kind;
use onward_core::queue::{QueueSettings, QueueStarts, Turn, WaitingKey};
use onward_core::quota::QuotaSettings;
use onward_core::spend::PicoDollars;
use onward_core::task::{Task, TaskState};
use onward_core::transfer::is_same_log;
use onward_core::{CallId, Epoch, Hash, Name, Namespace, Record, RunHead, RunKey, Timestamp};

use super::state::{Generation, MemoryState};
use crate::unit_of_work::{
    Due, KEYS_MAX, KeyPage, LoadedRun, QueuedTask, RowRequest, Rows, RunRef, SharedQueue, Table, WorkingSet,
};
use crate::{Change, ClaimRuns, ClaimTasks, OutboxId, StoreError};

/// One operation on the maps.
pub struct MemoryRows<'s> {
    pub state: &'s mut MemoryState,
    set: WorkingSet<(), Record>,
}

impl<'s> MemoryRows<'s> {
    pub fn begin(state: &'s mut MemoryState, now: Timestamp) -> MemoryRows<'s> {
        let mut set = WorkingSet::new(now);
        set.order = state.last_number;
        MemoryRows { state, set }
    }

    /// Returns the stored run of a loaded one.
    fn stored(&self, run: RunRef) -> Option<&super::state::StoredRun> {
        self.state.runs.get(&self.set.runs[run].head.key)
    }

    fn load_key(&mut self, key: &RunKey) -> Option<RunRef> {
        if let Some(run) = self.set.runs.get(key) {
            return Some(run);
        }
        let stored = self.state.runs.get(key)?;
        let loaded = LoadedRun::stored((), stored.head().clone(), stored.lease.clone(), stored.ready);
        Some(self.set.runs.insert(loaded))
    }

    /// Returns the tasks that a worker may claim now.
    fn claimable<'a>(&'a self, request: &'a ClaimTasks) -> impl Iterator<Item = &'a QueuedTask> {
        self.state.open_tasks().filter(|queued| {
            let task = &queued.task;
            task.may_be_claimed(self.set.now)
                && task.id.run.namespace == request.namespace // S6
                && request.kinds.contains(&task.kind)
                && request.queues.contains(&task.options.queue)
        })
    }

    fn settings_of(&self, namespace: &Namespace, queue: Option<&Name>) -> Option<QueueSettings> {
        let kind = settings_kind(queue).ok()?;
        let row = self.state.kinds.iter().find(|row| row.namespace == *namespace && row.kind == kind)?;
        row.queue.as_deref().cloned()
    }

    fn save_run(&mut self, mut loaded: Box<LoadedRun<(), Record>>) {
        let key = loaded.head.key.clone();
        let run = self.state.runs.entry(key.clone()).or_default();
        let heads = loaded.past.drain(..).chain([loaded.head]);
        for head in heads {
            match run.generations.get_mut(head.generation as usize) {
                Some(generation) => generation.head = head,
                None => run.generations.push(Generation { head, records: Vec::new() }),
            }
        }
        for record in loaded.records {
            run.generations[record.generation as usize].records.push(record.body);
        }
        (run.lease, run.ready) = (loaded.lease, loaded.ready);
        apply(&loaded.slots, &mut run.slots);
        apply(&loaded.waits, &mut run.waits);
        apply(&loaded.timers, &mut run.timers);
        apply(&loaded.tasks, &mut run.tasks);
        apply(&loaded.ledger, &mut self.state.ledger);
        for (call_id, queued) in loaded.tasks.changes() {
            if let Some(QueuedTask { task, .. }) = queued
                && task.waits_its_turn()
                && !task.may_be_claimed(self.set.now)
            {
                self.state.delayed.insert((task.visible_at, key.clone(), call_id.clone()));
            }
        }
        let is_closed = run.head().status.is_closed();
        if is_closed {
            self.state.open.remove(&key)
        } else {
            self.state.open.insert(key)
        };
    }
}

fn key_text(key: &Option<Name>) -> &str {
    key.as_ref().map_or("", Name::as_str)
}

/// Writes the changes of a table into a map.
fn apply<K: Ord + Clone, V: Clone>(table: &Table<K, V>, map: &mut std::collections::BTreeMap<K, V>) {
    if table.is_cleared() {
        map.clear();
    }
    for (key, row) in table.changes() {
        match row {
            Some(row) => drop(map.insert(key.clone(), row.clone())),
            None => drop(map.remove(key)),
        }
    }
}

impl Rows for MemoryRows<'_> {
    type Error = StoreError;
    type Own = ();
    type Body = Record;
    type TaskPlace = QueuedTask;

    fn set(&mut self) -> &mut WorkingSet<(), Record> {
        &mut self.set
    }

    async fn load_run(&mut self, key: &RunKey) -> Result<Option<RunRef>, StoreError> {
        Ok(self.load_key(key))
    }

    async fn load(&mut self, run: RunRef, wanted: RowRequest<'_>) -> Result<(), StoreError> {
        let loaded = &mut self.set.runs[run];
        if let RowRequest::Ledger(row) = wanted {
            loaded.ledger.learn(row.clone(), self.state.ledger.get(row).copied());
            return Ok(());
        }
        let Some(stored) = self.state.runs.get(&loaded.head.key) else { return Ok(()) };
        match wanted {
            RowRequest::Slots(keys) => keys.into_iter().for_each(|key| {
                let slot = stored.slots.get(&key).cloned();
                loaded.slots.learn(key, slot);
            }),
            RowRequest::Wait(call_id) => loaded.waits.learn(call_id.clone(), stored.waits.get(call_id).cloned()),
            RowRequest::Task(call_id) => loaded.tasks.learn(call_id.clone(), stored.tasks.get(call_id).cloned()),
            RowRequest::TimersAndTasks => {
                stored.timers.iter().for_each(|(call_id, timer)| loaded.timers.learn(call_id.clone(), Some(*timer)));
                loaded.timers.learn_all();
                stored.tasks.iter().for_each(|(call_id, task)| loaded.tasks.learn(call_id.clone(), Some(task.clone())));
                loaded.tasks.learn_all();
            }
            RowRequest::InputHash => {
                let started = stored.generations[0].records[0].started().expect("H2");
                loaded.input_hash = Some(Hash::of(&started.input));
            }
            RowRequest::PastHead(generation) => {
                let past = stored.generations.get(generation as usize);
                loaded.past_head = past.map(|past| past.head.clone());
            }
            RowRequest::Children(_) => loaded.children = self.state.children(&loaded.head.key).cloned().collect(),
            RowRequest::Ledger(_) => {}
        }
        Ok(())
    }

    async fn has_logs(&mut self, run: RunRef, logs: &[Vec<Record>]) -> Result<bool, StoreError> {
        let own = self.stored(run).map_or(&[][..], |run| &run.generations);
        Ok(own.len() == logs.len() && own.iter().zip(logs).all(|(own, log)| is_same_log(&own.records, log)))
    }

    fn new_run(&mut self, floor: Epoch) -> Result<((), Epoch), StoreError> {
        Ok(((), floor))
    }

    fn next_epoch(&mut self, last: Epoch) -> Epoch {
        // The number is new, even for a run whose id a deleted run had before (L7).
        Epoch((self.set.next_order() as u64).max(last.0 + 1))
    }

    async fn ready_runs(&mut self, request: &ClaimRuns) -> Result<Vec<RunRef>, StoreError> {
        let is_known = |head: &RunHead| {
            head.key.namespace == request.namespace // S6
                && request.knows.get(&head.kind).is_some_and(|versions| versions.contains(&head.version)) // L14
        };
        let open = self.state.open_runs().filter(|run| is_known(run.head()));
        let mut found: Vec<(i64, RunKey)> = open.filter_map(|run| Some((run.ready?, run.head().key.clone()))).collect();
        found.sort();
        found.truncate(request.limit);
        Ok(found.iter().filter_map(|(_, key)| self.load_key(key)).collect())
    }

    async fn log_at_hand(&mut self, run: RunRef) -> Result<Option<Vec<Record>>, StoreError> {
        Ok(self.stored(run).map(|run| run.current().records.clone()))
    }

    async fn ready_tasks(&mut self, request: &ClaimTasks) -> Result<Vec<(QueuedTask, Task)>, StoreError> {
        let mut found: Vec<&QueuedTask> = self.claimable(request).filter(|queued| queued.task.options.key.is_none()).collect();
        found.sort_by_key(|queued| (queued.task.rank(), queued.order)); // L21
        Ok(found.into_iter().take(request.limit).map(|queued| (queued.clone(), queued.task.clone())).collect())
    }

    async fn shared_queues(&mut self, request: &ClaimTasks) -> Result<Vec<SharedQueue>, StoreError> {
        let mut shared = Vec::new();
        for queue in &request.queues {
            let settings = self.settings_of(&request.namespace, queue.as_ref());
            let mut keyed = self.claimable(request).filter(|queued| queued.task.options.key.is_some());
            if settings.is_some() || keyed.any(|queued| queued.task.options.queue == *queue) {
                let (namespace, queue) = (request.namespace.clone(), queue.clone());
                shared.push(SharedQueue { namespace, queue, settings: settings.unwrap_or_default() });
            }
        }
        Ok(shared)
    }

    async fn queue_settings(&mut self, namespace: &Namespace, queue: Option<&Name>) -> Result<Option<QueueSettings>, StoreError> {
        Ok(self.settings_of(namespace, queue))
    }

    async fn count_waiting(&mut self, namespace: &Namespace, queue: Option<&Name>, limit: u64) -> Result<u64, StoreError> {
        let of_queue = self.state.tasks_of_queue(namespace, queue).filter(|queued| queued.task.may_be_claimed(self.set.now));
        Ok((of_queue.count() as u64).min(limit))
    }

    async fn count_held(&mut self, shared: &SharedQueue, limit: u32) -> Result<u32, StoreError> {
        let of_queue = self.state.tasks_of_queue(&shared.namespace, shared.queue.as_ref());
        Ok(of_queue.filter(|queued| queued.task.state == TaskState::Leased).count().min(limit as usize) as u32)
    }

    async fn waiting_keys(
        &mut self,
        request: &ClaimTasks,
        shared: &SharedQueue,
        page: &KeyPage,
    ) -> Result<Vec<WaitingKey>, StoreError> {
        let mut keys: BTreeMap<Option<Name>, WaitingKey> = BTreeMap::new();
        let of_queue = self.claimable(request).filter(|queued| queued.task.options.queue == shared.queue);
        for key in of_queue.map(|queued| &queued.task.options.key).filter(|key| page.has(key_text(key))) {
            let starts = || self.state.starts.get(&(shared.name(), key.clone())).cloned();
            let new = || WaitingKey { key: key.clone(), waiting: 0, held: self.state.held(shared, key), starts: starts() };
            keys.entry(key.clone()).or_insert_with(new).waiting += 1;
        }
        Ok(keys.into_values().take(KEYS_MAX).collect())
    }

    async fn tasks_of_keys(
        &mut self,
        request: &ClaimTasks,
        shared: &SharedQueue,
        wanted: &[(Option<Name>, u32)],
    ) -> Result<Vec<(QueuedTask, Task)>, StoreError> {
        let mut tasks = Vec::new();
        for (key, count) in wanted {
            let is_wanted = |of: &&QueuedTask| of.task.options.queue == shared.queue && of.task.options.key == *key;
            let mut found: Vec<&QueuedTask> = self.claimable(request).filter(is_wanted).collect();
            found.sort_by_key(|queued| (queued.task.rank(), queued.order)); // QL6
            tasks.extend(found.into_iter().take(*count as usize).map(|queued| (queued.clone(), queued.task.clone())));
        }
        Ok(tasks)
    }

    async fn load_starts(&mut self, shared: &SharedQueue) -> Result<Option<QueueStarts>, StoreError> {
        Ok(self.state.starts.get(&(shared.name(), None)).cloned())
    }

    async fn put_starts(&mut self, changed: Vec<QueueStarts>) -> Result<(), StoreError> {
        self.state.starts.retain(|_, starts| starts.until > self.set.now);
        for starts in changed {
            self.state.starts.insert(((starts.namespace.clone(), starts.queue.clone()), starts.key.clone()), starts);
        }
        Ok(())
    }

    fn turn(&mut self, shared: &SharedQueue) -> Turn {
        self.state.turns.get(&shared.name()).cloned().unwrap_or_default()
    }

    fn put_turn(&mut self, shared: &SharedQueue, turn: Turn) {
        self.state.turns.insert(shared.name(), turn);
    }

    async fn quota(&mut self, namespace: &Namespace) -> Result<Option<QuotaSettings>, StoreError> {
        Ok(self.state.quota_of(namespace).cloned())
    }

    async fn count_open_runs(&mut self, namespace: &Namespace, limit: u64) -> Result<u64, StoreError> {
        Ok(self.state.count_open_runs(namespace).min(limit))
    }

    async fn count_leases(&mut self, namespace: &Namespace, limit: u32) -> Result<u32, StoreError> {
        Ok(self.state.count_leases(namespace).min(u64::from(limit)) as u32)
    }

    async fn spent_on(&mut self, namespace: &Namespace, day: u32) -> Result<PicoDollars, StoreError> {
        Ok(self.state.spent_on(namespace, day))
    }

    async fn put_claimed(&mut self, place: QueuedTask, task: Task) -> Result<(), StoreError> {
        if let Some(run) = self.state.runs.get_mut(&task.id.run) {
            run.tasks.insert(task.id.call_id.clone(), QueuedTask { task, ..place });
        }
        Ok(())
    }

    async fn show_delayed_tasks(&mut self) -> Result<bool, StoreError> {
        while let Some((at, key, call_id)) = self.state.delayed.first().cloned()
            && at <= self.set.now
        {
            self.state.delayed.pop_first();
            let queued = self.state.runs.get(&key).and_then(|run| run.tasks.get(&call_id));
            if let Some(queued) = queued.filter(|queued| queued.task.may_be_claimed(self.set.now)) {
                self.state.changes.push(Change::TaskQueued { task: Box::new(queued.task.clone()) });
            }
        }
        Ok(false)
    }

    async fn due_timers(&mut self, limit: usize) -> Result<Due<(RunRef, CallId)>, StoreError> {
        let now = self.set.now;
        let due = self.state.open_runs().flat_map(|run| {
            let armed = run.timers.iter().filter(|(_, timer)| !timer.is_frozen && timer.due_at <= now);
            armed.map(|(call_id, timer)| (timer.due_at, run.head().key.clone(), call_id.clone()))
        });
        let (due, more) = first(limit, due.collect());
        let found = due.into_iter().filter_map(|(_, key, call_id)| Some((self.load_key(&key)?, call_id))).collect();
        Ok(Due { found, more })
    }

    async fn due_tasks(&mut self, limit: usize) -> Result<Due<(RunRef, QueuedTask)>, StoreError> {
        let now = self.set.now;
        let due = self.state.open_tasks().filter_map(|queued| {
            let due = queued.task.due_at().filter(|due| *due <= now)?;
            Some((due, queued.order, queued.task.id.run.clone(), queued.task.id.call_id.clone()))
        });
        let (due, more) = first(limit, due.collect());
        let task = |state: &MemoryState, key: &RunKey, call_id: &CallId| state.runs.get(key)?.tasks.get(call_id).cloned();
        let found =
            due.into_iter().filter_map(|(_, _, key, call_id)| Some((self.load_key(&key)?, task(self.state, &key, &call_id)?)));
        Ok(Due { found: found.collect(), more })
    }

    async fn end_sessions(&mut self, limit: usize) -> Result<(Due<RunRef>, usize), StoreError> {
        let now = self.set.now;
        let over = self.state.sessions.iter().filter(|(_, until)| **until <= now);
        let (over, more) = first(limit, over.map(|(worker, until)| (*until, worker.clone())).collect());
        let mut found = Vec::new();
        for (_, worker) in &over {
            self.state.sessions.remove(worker);
            let held = self.state.open_runs().filter(|run| run.lease.as_ref() == Some(worker));
            let held: Vec<RunKey> = held.map(|run| run.head().key.clone()).collect();
            found.extend(held.iter().filter_map(|key| self.load_key(key)));
        }
        Ok((Due { found, more }, over.len()))
    }

    async fn save(&mut self) -> Result<(), StoreError> {
        let senders: Vec<RunKey> = self.set.outbox.iter().map(|(from, _)| self.set.runs[*from].head.key.clone()).collect();
        for (from, (_, message)) in senders.into_iter().zip(std::mem::take(&mut self.set.outbox)) {
            let id = OutboxId(self.set.next_order() as u64);
            self.state.outbox.insert(id, (from, message));
        }
        for run in std::mem::take(&mut self.set.touched) {
            let loaded = &mut self.set.runs[run];
            let fresh = LoadedRun::stored((), loaded.head.clone(), loaded.lease.clone(), loaded.ready);
            let loaded = std::mem::replace(loaded, *fresh);
            if loaded.is_changed {
                self.save_run(Box::new(loaded));
            }
        }
        self.state.last_number = self.set.order;
        self.state.changes.append(&mut self.set.changes);
        for (worker, until) in std::mem::take(&mut self.set.sessions) {
            if let Entry::Vacant(session) = self.state.sessions.entry(worker) {
                session.insert(until);
                self.set.announce_due(until);
            }
        }
        if let Some(at) = self.set.due.take() {
            self.state.announce(at);
        }
        Ok(())
    }
}

/// Returns the first `limit` items in order, and whether there were more.
fn first<T: Ord>(limit: usize, mut due: Vec<T>) -> (Vec<T>, bool) {
    due.sort();
    let more = due.len() > limit;
    due.truncate(limit);
    (due, more)
}

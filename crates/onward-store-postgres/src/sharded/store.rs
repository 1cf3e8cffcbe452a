//! The store port: operations on one run go to its database, the rest to all.
//!
//! Lists and counts over all databases are in the order that the store port defines (SD4). A list without the rows of a database
//! that is down is shorter; a sum would be wrong.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use onward_core::ledger::{self, SpendBy, SpendQuery, SpendRow};
use onward_core::queue::QueueSettings;
use onward_core::queue::load::KeyLoad;
use onward_core::queue::settings::settings_queue;
use onward_core::quota::{QuotaSettings, QuotaUse};
use onward_core::run::{Commit, Committed, Input, NewRun, OutboxMessage, Wait};
use onward_core::task::{Task, TaskCount, TaskId, TaskReport};
use onward_core::{Epoch, Index, KindSchemas, Name, Namespace, Record, RunHead, RunKey, WorkerId};
use onward_store::durable::limits::is_quota;
use onward_store::{
    Appended, ClaimRuns, ClaimTasks, ClaimedOne, ClaimedRun, Delete, DeletedQuery, DeletedRun, Expired, KnownRun, Listener,
    OpenCounts, OutboxId, PAYLOAD_BYTES_MAX, Restore, RestoreRun, Restored, RunPage, RunQuery, RunUpdate, ServerInfo, Started,
    Store, StoreError, StoreFuture, TaskQuery, VersionCount, WaitQuery, cursor_after, page_limit, refuse, sum_tasks,
};

use crate::sharded::claim::{by_position, full};
use crate::sharded::merge::{Request, join_all, merge};
use crate::sharded::routing::{ShardedStore, all_answers, listed, some_answers};

impl Store for ShardedStore {
    fn start_run(&self, run: NewRun, claim: Option<WorkerId>) -> StoreFuture<'_, Started> {
        match self.check_root_run(&run.key, run.started.parent.as_ref()) {
            Ok(()) => self.request_one(&run.key.clone(), |store| store.start_run(run, claim)),
            Err(error) => refuse(error),
        }
    }

    fn restore_run(&self, restore: RestoreRun) -> StoreFuture<'_, Restored> {
        match self.check_root_run(&restore.key, open_log(&restore.what).and_then(parent_of)) {
            Ok(()) => self.request_one(&restore.key.clone(), |store| store.restore_run(restore)),
            Err(error) => refuse(error),
        }
    }

    fn append_input(&self, run: RunKey, input: Input) -> StoreFuture<'_, Appended> {
        self.request_one(&run.clone(), |store| store.append_input(run, input))
    }

    fn claim_runs(&self, request: ClaimRuns) -> StoreFuture<'_, Vec<ClaimedRun>> {
        Box::pin(async move {
            let claim = |limit| ClaimRuns { limit, ..request.clone() };
            let round = self
                .share_out(request.limit, |limit, store| store.claim_runs(claim(limit)), |runs, part| full(runs.len(), part))
                .await?;
            // The time since which a run is claimable is not returned; its creation time is.
            Ok(merge(by_position(round.answers), usize::MAX, |run| run.head.created_at))
        })
    }

    fn claim_run(&self, run: RunKey, worker: WorkerId, input: Option<Input>) -> StoreFuture<'_, ClaimedOne> {
        self.request_one(&run.clone(), |store| store.claim_run(run, worker, input))
    }

    /// Submits at once, as every store does, so that commits of one caller keep their order.
    fn commit(&self, commit: Commit) -> StoreFuture<'static, Committed> {
        let database = self.of_run(&commit.key).clone();
        if let Some(error) = database.refusal() {
            return refuse(error);
        }
        let answer = database.store.commit(commit);
        Box::pin(async move { database.noted(answer.await) })
    }

    fn release_run(&self, run: RunKey, epoch: Epoch) -> StoreFuture<'_, ()> {
        self.request_one(&run.clone(), move |store| store.release_run(run, epoch))
    }

    fn lose_run(&self, run: RunKey, epoch: Epoch) -> StoreFuture<'_, ()> {
        self.request_one(&run.clone(), move |store| store.lose_run(run, epoch))
    }

    fn claim_tasks(&self, request: ClaimTasks) -> StoreFuture<'_, Vec<Task>> {
        Box::pin(async move {
            let claim = |limit| ClaimTasks { limit, ..request.clone() };
            let round = self
                .share_out(request.limit, |limit, store| store.claim_tasks(claim(limit)), |tasks, part| full(tasks.len(), part))
                .await?;
            Ok(merge(by_position(round.answers), usize::MAX, |task| (Reverse(task.options.priority()), task.visible_at)))
        })
    }

    fn report_task(&self, task: TaskId, claim: u64, report: TaskReport, lease: Duration) -> StoreFuture<'_, ()> {
        self.request_one(&task.run.clone(), move |store| store.report_task(task, claim, report, lease))
    }

    fn retry_task(&self, task: TaskId) -> StoreFuture<'_, ()> {
        self.request_one(&task.run.clone(), |store| store.retry_task(task))
    }

    fn heartbeat(&self, worker: WorkerId, lease: Duration) -> StoreFuture<'_, bool> {
        Box::pin(self.heartbeat_to_all(worker, lease))
    }

    fn list_leases(&self, worker: WorkerId) -> StoreFuture<'_, Vec<(RunKey, Epoch)>> {
        Box::pin(async move {
            let answers = some_answers(self.request_all(|store| store.list_leases(worker.clone())).await)?;
            Ok(answers.into_iter().flat_map(|(_, leases)| leases).collect())
        })
    }

    fn expire(&self, limit: usize) -> StoreFuture<'_, Expired> {
        Box::pin(self.expire_all(limit))
    }

    fn outbox_messages(&self, limit: usize) -> StoreFuture<'_, Vec<(OutboxId, OutboxMessage)>> {
        Box::pin(self.deliveries_of_all(limit))
    }

    fn finish_deliveries(&self, done: Vec<OutboxId>) -> StoreFuture<'_, ()> {
        Box::pin(self.finish_deliveries_of_all(done))
    }

    fn read_run(&self, run: RunKey, generation: Option<u32>) -> StoreFuture<'_, Option<RunHead>> {
        self.request_one(&run.clone(), move |store| store.read_run(run, generation))
    }

    fn read_log(&self, run: RunKey, generation: Option<u32>, from: Index, limit: usize) -> StoreFuture<'_, Vec<Record>> {
        self.request_one(&run.clone(), move |store| store.read_log(run, generation, from, limit))
    }

    fn read_since(&self, known: Vec<KnownRun>) -> StoreFuture<'_, Vec<RunUpdate>> {
        Box::pin(self.read_since_of_all(known))
    }

    fn is_shared(&self) -> bool {
        self.databases.iter().any(|database| database.store.is_shared())
    }

    fn broadcast(&self, message: Vec<u8>) -> StoreFuture<'_, ()> {
        Box::pin(self.broadcast_once(message))
    }

    fn announce_server(&self, server: ServerInfo, lease: Option<Duration>) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let answers = self.request_all(|store| store.announce_server(server.clone(), lease)).await;
            some_answers(answers).map(drop)
        })
    }

    /// Lists servers, which announce themselves in every database.
    fn list_servers(&self) -> StoreFuture<'_, Vec<ServerInfo>> {
        Box::pin(async move {
            let answers = some_answers(self.request_all(|store| store.list_servers()).await)?;
            let mut servers: Vec<ServerInfo> = answers.into_iter().flat_map(|(_, servers)| servers).collect();
            servers.sort_by(|a, b| a.id.cmp(&b.id).then(b.last_seen_at.cmp(&a.last_seen_at)));
            servers.dedup_by(|later, first| later.id == first.id);
            Ok(servers)
        })
    }

    /// Lists runs. The cursor is the position of the last run in the common order, from which every database continues.
    fn list_runs(&self, query: RunQuery) -> StoreFuture<'_, RunPage> {
        Box::pin(async move {
            let limit = page_limit(query.limit);
            let pages = listed(self, self.request_all(|store| store.list_runs(query.clone())).await, query.gaps.as_ref())?;
            let count: usize = pages.iter().map(|page| page.runs.len()).sum();
            let more = count > limit || pages.iter().any(|page| page.next.is_some());
            let lists = pages.into_iter().map(|page| page.runs).collect();
            let runs = merge(lists, limit, |head| Reverse((head.created_at, head.key.id.clone())));
            let next = runs.last().filter(|_| more).map(cursor_after);
            Ok(RunPage { runs, next })
        })
    }

    fn count_versions(&self, namespace: Namespace) -> StoreFuture<'_, Vec<VersionCount>> {
        Box::pin(async move {
            let lists = all_answers(self.request_all(|store| store.count_versions(namespace.clone())).await)?;
            let mut counts: BTreeMap<(Name, Option<Name>), u64> = BTreeMap::new();
            for VersionCount { kind, version, open } in lists.into_iter().flatten() {
                *counts.entry((kind, version)).or_default() += open;
            }
            Ok(counts.into_iter().map(|((kind, version), open)| VersionCount { kind, version, open }).collect())
        })
    }

    fn list_waits(&self, query: WaitQuery) -> StoreFuture<'_, Vec<Wait>> {
        match query.run.clone() {
            Some(run) => self.request_one(&run, |store| store.list_waits(query)),
            None => Box::pin(async move {
                let lists = listed(self, self.request_all(|store| store.list_waits(query.clone())).await, query.gaps.as_ref())?;
                Ok(merge(lists, page_limit(query.limit), |wait| (wait.requested_at, wait.run.clone(), wait.call_id.clone())))
            }),
        }
    }

    fn list_tasks(&self, query: TaskQuery) -> StoreFuture<'_, Vec<Task>> {
        match query.run.clone() {
            Some(run) => self.request_one(&run, |store| store.list_tasks(query)),
            None => Box::pin(async move {
                let lists = listed(self, self.request_all(|store| store.list_tasks(query.clone())).await, query.gaps.as_ref())?;
                Ok(merge(lists, page_limit(query.limit), |task| task.scheduled_at))
            }),
        }
    }

    fn count_tasks(&self, namespace: Namespace) -> StoreFuture<'_, Vec<TaskCount>> {
        Box::pin(async move {
            let lists = all_answers(self.request_all(|store| store.count_tasks(namespace.clone())).await)?;
            Ok(sum_tasks(lists.into_iter().flatten()))
        })
    }

    fn list_queue_keys(&self, namespace: Namespace, queue: Option<Name>, limit: usize) -> StoreFuture<'_, Vec<KeyLoad>> {
        Box::pin(async move {
            let lists = self.request_all(|store| store.list_queue_keys(namespace.clone(), queue.clone(), limit)).await;
            let mut loads: BTreeMap<Option<Name>, KeyLoad> = BTreeMap::new();
            for load in all_answers(lists)?.into_iter().flatten() {
                match loads.entry(load.key.clone()) {
                    Entry::Vacant(vacant) => drop(vacant.insert(load)),
                    Entry::Occupied(mut sum) => sum.get_mut().add(load),
                }
            }
            let mut loads: Vec<KeyLoad> = loads.into_values().collect();
            loads.sort_by_key(|load| (load.oldest_at.is_none(), load.oldest_at));
            loads.truncate(limit);
            Ok(loads)
        })
    }

    fn quota_use(&self, namespace: Namespace) -> StoreFuture<'_, QuotaUse> {
        Box::pin(async move {
            let mut all = QuotaUse::default();
            let answers = all_answers(self.request_all(|store| store.quota_use(namespace.clone())).await)?;
            answers.into_iter().for_each(|used| all.add(used));
            Ok(all)
        })
    }

    fn count_open(&self) -> StoreFuture<'_, OpenCounts> {
        Box::pin(async move {
            let mut all = OpenCounts::default();
            all_answers(self.request_all(|store| store.count_open()).await)?.into_iter().for_each(|counts| all.add(counts));
            Ok(all)
        })
    }

    fn delete_runs(&self, delete: Delete) -> StoreFuture<'_, u64> {
        match delete {
            Delete::Run { ref key, .. } => self.request_one(&key.clone(), |store| store.delete_runs(delete)),
            Delete::Expired { retention, limit } => Box::pin(self.delete_expired(retention, limit)),
        }
    }

    /// Sums spend. A tree of runs is in one database; the spend of a model or a day may be in all of them.
    fn spend(&self, query: SpendQuery) -> StoreFuture<'_, Vec<SpendRow>> {
        match query.tree.clone() {
            Some(tree) => self.request_one(&RunKey::new(query.namespace.clone(), tree), |store| store.spend(query)),
            None => Box::pin(async move {
                let limit = match query.by {
                    SpendBy::Run | SpendBy::Tree => page_limit(query.limit),
                    SpendBy::Model | SpendBy::Day => usize::MAX,
                };
                let limited = SpendQuery { limit, ..query.clone() };
                let lists = all_answers(self.request_all(|store| store.spend(limited.clone())).await)?;
                Ok(ledger::merge(query.by, lists.into_iter().flatten(), page_limit(query.limit)))
            }),
        }
    }

    fn list_deleted(&self, query: DeletedQuery) -> StoreFuture<'_, Vec<DeletedRun>> {
        match query.run.clone() {
            Some(run) => self.request_one(&run, |store| store.list_deleted(query)),
            None => Box::pin(async move {
                let lists = listed(self, self.request_all(|store| store.list_deleted(query.clone())).await, query.gaps.as_ref())?;
                Ok(merge(lists, page_limit(query.limit), |deleted| Reverse(deleted.deleted_at)))
            }),
        }
    }

    /// Registers in every database that responds; one that missed a kind gets it with the next change. Settings of queues
    /// and quotas must reach all of them, each with its part of the limits.
    fn register_kinds(&self, kinds: Vec<KindSchemas>) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let is_limited = kinds.iter().any(|kind| settings_queue(&kind.kind).is_some() || is_quota(kind));
            if !is_limited {
                return some_answers(self.request_all(|store| store.register_kinds(kinds.clone())).await).map(drop);
            }
            let count = self.databases.len() as u32;
            let parts = (0..count).map(|position| kinds.iter().map(|kind| limit_part(kind, position, count)).collect());
            let parts: Vec<Vec<KindSchemas>> = parts.collect::<Result<_, StoreError>>()?;
            let requests = self.databases.iter().zip(parts);
            let requests = requests.map(|(database, kinds)| {
                let answer = database.request(move |store| store.register_kinds(kinds));
                Box::pin(answer) as Request<'_, Result<(), StoreError>>
            });
            join_all(requests.collect()).await.into_iter().collect()
        })
    }

    /// Lists kinds. Every database has all of them, so that runs can be started while one is down; the newest registration
    /// counts.
    fn list_kinds(&self, namespace: Namespace) -> StoreFuture<'_, Vec<KindSchemas>> {
        Box::pin(async move {
            let answers = some_answers(self.request_all(|store| store.list_kinds(namespace.clone())).await)?;
            let mut kinds: Vec<KindSchemas> = answers.into_iter().flat_map(|(_, kinds)| kinds).collect();
            kinds.sort_by(|a, b| a.key().cmp(&b.key()).then(b.registered_at.cmp(&a.registered_at)));
            kinds.dedup_by(|later, first| later.key() == first.key());
            Ok(kinds)
        })
    }

    fn payload_bytes_max(&self) -> usize {
        self.databases.iter().map(|database| database.store.payload_bytes_max()).min().unwrap_or(PAYLOAD_BYTES_MAX)
    }

    fn subscribe(&self, listener: Arc<dyn Listener>) {
        self.listen(listener);
    }
}

/// Returns the row that one database stores: settings of a queue, or a quota, with its part of the limits.
fn limit_part(kind: &KindSchemas, position: u32, count: u32) -> Result<KindSchemas, StoreError> {
    let part = |settings: &QueueSettings| settings.part(position, count).map(Box::new);
    let queue = kind.queue.as_deref().map(part).transpose();
    let queue = queue.map_err(|field| StoreError::LimitTooSmall { field, count })?;
    let quota = kind.quota.as_deref().map(|quota: &QuotaSettings| quota.part(position, count).map(Box::new)).transpose();
    let quota = quota.map_err(|field| StoreError::QuotaTooSmall { field, count })?;
    Ok(KindSchemas { queue, quota, ..kind.clone() })
}

/// Returns the log of the last generation if the run is open after the restore.
fn open_log(what: &Restore) -> Option<&[Record]> {
    let log = match what {
        Restore::Run { logs } => logs.last()?,
        Restore::Retry { log, .. } => log,
    };
    (!log.last()?.ends_log()).then_some(log)
}

fn parent_of(log: &[Record]) -> Option<&onward_core::event::ParentLink> {
    log.first()?.started()?.parent.as_ref()
}

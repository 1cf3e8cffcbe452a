//! The worker's side inside one process: claims of runs and tasks, commits and reports.
//!
//! A worker that has joined receives the runs it can take as they are started. All other work it claims after a notification.
//! It decides nothing about a run: commits go to the store unchanged.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use onward_core::event::{RunPaused, TaskAttemptEnded};
use onward_core::live::StepsReport;
use onward_core::run::{Commit, Committed, Input};
use onward_core::stream::TaskFrames;
use onward_core::task::{Task, TaskId, TaskReport, TaskState};
use onward_core::{Epoch, Index, Name, Record, RunKey, WorkerId};
use onward_store::sync::lock;
use onward_store::{ClaimRuns, ClaimTasks, ClaimedOne, ClaimedRun, Consequence, StoreError, StoreFuture, TaskQuery};

use crate::counts::{DURATION_BOUNDS, is_empty_answer};
use crate::schemas::defaults::schedules_tasks;
use crate::stream::live::LiveNotice;
use crate::worker::connection::{ConnectionFuture, Question, WorkerConnection};
use crate::worker::inbox::Inbox;
use crate::worker::profile::{Permit, Worker, WorkerProfile};
use crate::worker::rate_limits::{RateLimited, closes_for};
use crate::worker::supply::ClaimInProgress;
use crate::{DriveInput, Emitted, Runtime, RuntimeError};

/// A worker's connection to the runtime. Cheap to clone; when the last clone is dropped, the worker leaves.
#[derive(Clone)]
pub struct LocalConnection {
    membership: Arc<Membership>,
}

/// The result of [`LocalConnection::adopt_task`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Adoption {
    Adopted,
    /// The attempt has ended.
    Over,
    /// The claim belongs to another worker.
    OfAnother,
}

struct Membership {
    runtime: Runtime,
    worker: Arc<Worker>,
}

impl Runtime {
    /// Adds a worker of this process. It receives runs and tasks until it leaves; [`Runtime::spawn`] or [`Runtime::tick`] keep
    /// its session alive.
    pub fn join_worker(&self, profile: WorkerProfile) -> LocalConnection {
        let worker = Arc::new(Worker::new(profile, self.clock().steady()));
        self.plan_comparison(&worker);
        self.hub().workers.add(worker.clone());
        self.hub().alarm.joined.notify_one(); // it needs a session
        LocalConnection { membership: Arc::new(Membership { runtime: self.clone(), worker }) }
    }
}

impl LocalConnection {
    pub fn id(&self) -> &WorkerId {
        &self.worker().profile.id
    }

    /// Returns whether the worker has code for the kind.
    pub fn has_code_for(&self, kind: &Name) -> bool {
        self.worker().profile.knows.contains_key(kind)
    }

    pub fn runtime(&self) -> &Runtime {
        &self.membership.runtime
    }

    /// Records a sign of life of a remote worker, which extends its lease.
    pub fn mark_seen(&self) {
        let (worker, now) = (self.worker(), self.runtime().clock().steady());
        if let Some(last_seen_at) = &worker.last_seen_at {
            *lock(last_seen_at) = now;
        }
        if worker.away.load(Ordering::SeqCst) && !worker.has_left.load(Ordering::SeqCst) {
            lock(&worker.session).beat_at(now); // it is back: renew the session at once
            self.runtime().hub().alarm.joined.notify_one();
        }
    }

    /// Waits until a remote worker was silent for its whole lease: everything it held is lost.
    pub async fn lease_expired(&self) {
        let worker = self.worker();
        loop {
            let mut notified = std::pin::pin!(worker.lease_expired.notified());
            notified.as_mut().enable();
            if worker.is_silent(self.runtime().clock().steady(), self.runtime().options().lease) {
                return;
            }
            notified.await;
        }
    }

    /// Sets whether a remote worker is connected. Without a connection it gets no work, and work on its way goes to other
    /// workers.
    pub fn set_present(&self, present: bool) {
        let worker = self.worker();
        worker.absent.store(!present, Ordering::SeqCst);
        if present {
            worker.runs.want();
            worker.tasks.want();
        } else {
            self.membership.give_back_later();
        }
    }

    /// Reports the state of a task on behalf of this session, without a report of the worker. It has no effect once the worker
    /// has moved the task to another session (K10).
    pub async fn report_for_worker(&self, id: TaskId, claim: u64, report: TaskReport) -> Result<(), StoreError> {
        let session = self.worker().profile.id.clone();
        self.report_task(id, claim, report.by_session(session)).await
    }

    /// Ends the claim of a run: releases it if the worker is alive, and reports the worker as lost if it was silent for its whole
    /// lease (CW1).
    pub async fn end_claim(&self, key: RunKey, epoch: Epoch) {
        let runtime = self.runtime();
        if !self.worker().is_silent(runtime.clock().steady(), runtime.options().lease) {
            return drop(self.release(key, epoch).await);
        }
        self.close_inbox(&key, epoch);
        let lost = runtime.store().lose_run(key.clone(), epoch).await;
        runtime.lease_changed(&key);
        drop(self.worker().leases.noted(lost, runtime.clock().now()));
    }

    /// Gives back a task whose code was never called.
    pub async fn give_back_task(&self, id: TaskId, claim: u64) -> Result<(), StoreError> {
        let about = self.worker().held.about(&id, claim);
        let released = about.map_or(TaskReport::NotStarted, |about| about.of_unbegun(TaskReport::NotStarted));
        self.report_for_worker(id, claim, released).await
    }

    /// Records the cost of an attempt that has ended already; the rest of the report is ignored.
    pub async fn report_late(&self, id: &TaskId, claim: u64, report: &TaskReport) -> Result<(), StoreError> {
        match report.attempt_ended(id, claim) {
            Some(ended) => self.record_late(id, ended).await,
            None => Ok(()),
        }
    }

    /// Records the cost of an attempt that has ended already in its run, if that is still open (LG1). A cost that was recorded
    /// with the outcome is not recorded again.
    async fn record_late(&self, id: &TaskId, ended: TaskAttemptEnded) -> Result<(), StoreError> {
        if id.run.namespace != self.worker().profile.namespace {
            return Ok(()); // W3
        }
        let recorded = self.runtime().store().append_input(id.run.clone(), Input::attempt_ended(ended)).await;
        match recorded {
            Err(error) if error.consequence() == Consequence::Retry => Err(error),
            _ => Ok(()),
        }
    }

    /// Takes over a task that the worker claimed in another session, at this server or another one. It succeeds if the store
    /// still has that claim and `is_own` accepts the worker id of that session. Reports of the other session then have no
    /// effect (K10).
    pub async fn adopt_task(&self, id: &TaskId, claim: u64, is_own: impl Fn(&WorkerId) -> bool) -> Result<Adoption, StoreError> {
        let profile = &self.worker().profile;
        let (namespace, run, state) = (profile.namespace.clone(), Some(id.run.clone()), Some(TaskState::Leased));
        if id.run.namespace != namespace {
            return Ok(Adoption::Over); // W3
        }
        let adoption = self.worker().held.begin_claim();
        let tasks = self
            .runtime()
            .store()
            .list_tasks(TaskQuery { namespace, state, run, limit: usize::MAX, ..TaskQuery::default() })
            .await?;
        let is_ours = |task: &&Task| task.id.is_same_task(id) && task.claim == claim;
        let Some(task) = tasks.iter().find(is_ours) else { return Ok(Adoption::Over) };
        if !task.worker.as_ref().is_some_and(is_own) {
            return Ok(Adoption::OfAnother);
        }
        if !adoption.add(task) {
            return Ok(Adoption::Over); // W5
        }
        drop(adoption);
        if task.worker.as_ref() == Some(&profile.id) {
            return Ok(Adoption::Adopted); // this session has it already
        }
        self.worker().held.set_being_adopted(id, claim, true);
        match self.report_task(id.clone(), claim, TaskReport::Adopted { session: profile.id.clone() }).await {
            Ok(()) => {
                self.worker().held.set_being_adopted(id, claim, false);
                Ok(Adoption::Adopted)
            }
            Err(StoreError::TaskAttemptOver(_)) => Ok(Adoption::Over),
            Err(error) => {
                self.worker().held.end(id, claim);
                Err(error)
            }
        }
    }

    pub(crate) fn worker(&self) -> &Arc<Worker> {
        &self.membership.worker
    }

    fn start_run_claim(&self, limit: usize) {
        let (runtime, worker) = (self.runtime().clone(), self.worker().clone());
        let permits = if worker.takes_work() { worker.take_permits(limit.max(1)) } else { Vec::new() };
        if permits.is_empty() && !worker.leases.is_due(runtime.clock().now()) {
            return; // a released permit wakes the worker
        }
        if let Some(claiming) = worker.runs.begin_claim() {
            tokio::spawn(claim_runs(runtime, worker, permits, claiming));
        }
    }

    fn start_task_claim(&self, limit: usize) {
        let (runtime, worker) = (self.runtime().clone(), self.worker().clone());
        if worker.profile.task_kinds.is_empty() || !worker.takes_work() {
            return;
        }
        if let Some(claiming) = worker.tasks.begin_claim() {
            tokio::spawn(claim_tasks(runtime, worker, limit.max(1), claiming));
        }
    }
}

impl WorkerConnection for LocalConnection {
    fn next_runs(&self, limit: usize) -> ConnectionFuture<'_, Vec<ClaimedRun>> {
        let fallback = self.runtime().options().fallback;
        Box::pin(self.worker().runs.next(limit, move || fallback, move || self.start_run_claim(limit)))
    }

    fn claim_run(&self, key: RunKey, delivery: DriveInput) -> ConnectionFuture<'_, Result<ClaimedOne, RuntimeError>> {
        Box::pin(self.claim_one(key, delivery))
    }

    fn next_tasks(&self, limit: usize) -> ConnectionFuture<'_, Vec<Task>> {
        let (hub, fallback) = (self.runtime().hub(), self.runtime().options().fallback);
        let pause = move || hub.closed.opens_in().unwrap_or(fallback).min(fallback);
        Box::pin(self.worker().tasks.next(limit, pause, move || self.start_task_claim(limit)))
    }

    fn next_questions(&self) -> ConnectionFuture<'_, Vec<Question>> {
        let fallback = self.runtime().options().fallback;
        Box::pin(self.worker().questions.next(usize::MAX, move || fallback * 60, || {}))
    }

    fn open_inbox(&self, key: &RunKey, epoch: Epoch, inbox: Arc<dyn Inbox>) {
        let hub = self.runtime().hub();
        hub.inboxes.open(key, epoch, inbox);
        if hub.live.is_watched(key) {
            hub.inboxes.watch(key, true);
            if !hub.live.is_watched(key) {
                hub.inboxes.watch(key, false); // the last reader left in between (LW2)
            }
        }
    }

    fn close_inbox(&self, key: &RunKey, epoch: Epoch) {
        self.runtime().hub().inboxes.close(key, epoch);
        self.runtime().hub().replays.abandoned(key, epoch);
    }

    fn read_log(&self, key: RunKey, generation: Option<u32>, from: Index, limit: usize) -> StoreFuture<'static, Vec<Record>> {
        let runtime = self.runtime().clone();
        Box::pin(async move {
            let records = runtime.store().read_log(key.clone(), generation, from, limit).await?;
            runtime.hub().replays.read(&key, generation, &records);
            Ok(records)
        })
    }

    fn commit(&self, commit: Commit) -> StoreFuture<'static, Committed> {
        let (runtime, key, epoch) = (self.runtime().clone(), commit.key.clone(), commit.epoch);
        let is_replayed = runtime.hub().replays.is_open(&key, epoch);
        let is_filled = !schedules_tasks(&commit);
        if is_filled && !is_replayed {
            return runtime.store().commit(commit);
        }
        let mut commit = commit;
        Box::pin(async move {
            if !is_filled {
                runtime.fill_tasks(&mut commit).await;
            }
            let committed = runtime.store().commit(commit).await?;
            if is_replayed {
                runtime.hub().replays.agreed(&key, epoch);
            }
            Ok(committed)
        })
    }

    fn release(&self, key: RunKey, epoch: Epoch) -> StoreFuture<'static, ()> {
        let port = self.clone();
        Box::pin(async move {
            port.close_inbox(&key, epoch);
            let released = port.runtime().store().release_run(key.clone(), epoch).await;
            port.runtime().lease_changed(&key);
            port.worker().leases.noted(released, port.runtime().clock().now())
        })
    }

    fn pause(&self, key: RunKey, generation: u32, epoch: Epoch, report: RunPaused) -> StoreFuture<'static, ()> {
        let store = self.runtime().store().clone();
        Box::pin(async move { store.append_input(key, Input::by_holder(report, generation, epoch)).await.map(drop) })
    }

    fn report_task(&self, id: TaskId, claim: u64, report: TaskReport) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let held = &self.worker().held;
            let (ends, ended) = (report.ends(), report.attempt_ended(&id, claim));
            let releases_attempt = report.releases_attempt();
            let lease = held.lease(&id, self.runtime().options().lease);
            if let TaskReport::Failed(failure) = report.without_cost() {
                self.runtime().publish_failed_attempt(&id, claim, held, failure);
            }
            if ends {
                self.runtime().send_forwarded().await; // frames become visible before the result
            }
            if let (Some(span_ms), Some(kind)) = (closes_for(&report), held.kind(&id, claim)) {
                let limit = self.worker().profile.task_limits.get(&kind).cloned();
                let limited = RateLimited { namespace: id.run.namespace.clone(), kind, limit, span_ms };
                self.runtime().close_limit(limited).await; // before the next task is claimed
            }
            let progress = match report.without_cost() {
                TaskReport::Heartbeat { progress: Some(progress) } if self.runtime().is_watched(&id.run) => {
                    Some(progress.clone())
                }
                _ => None,
            };
            let is_empty = is_empty_answer(&report);
            let has_result = matches!(report.without_cost(), TaskReport::Completed(_) | TaskReport::Failed(_));
            let began_at = held.about(&id, claim).filter(|_| has_result).map(|about| about.began_at);
            let answer = self.runtime().store().report_task(id.clone(), claim, report, lease).await;
            if let (Some(began_at), Ok(())) = (began_at, &answer) {
                let took = self.runtime().clock().now().0.saturating_sub(began_at.0);
                self.runtime().counts().task_durations.observe(DURATION_BOUNDS, took);
            }
            if ends && self.runtime().hub().held_back.take(&id.run.namespace) {
                self.runtime().hub().workers.wake_for_tasks(&id.run.namespace);
            }
            if is_empty && answer.is_ok() {
                self.runtime().counts().empty_answers.one(); // a repeated report is counted once
            }
            if let (Ok(()), Some(progress)) = (&answer, progress) {
                self.runtime().publish_progress(&id, claim, held, progress);
            }
            if let (Err(StoreError::TaskAttemptOver(_)), Some(ended)) = (&answer, ended) {
                self.record_late(&id, ended).await?;
            }
            if releases_attempt || matches!((&answer, ends), (Ok(()), true) | (Err(StoreError::TaskAttemptOver(_)), _)) {
                held.end(&id, claim);
            }
            answer
        })
    }

    fn task_over(&self, id: TaskId, claim: u64) -> ConnectionFuture<'_, ()> {
        Box::pin(async move { self.worker().held.over(&id, claim).await })
    }

    fn emit(&self, key: &RunKey, emitted: Emitted) {
        self.runtime().emit(key, emitted);
    }

    fn report_steps(&self, report: StepsReport) {
        let run = report.run.clone();
        self.runtime().send_notice(&run, || LiveNotice::Steps(report));
    }

    fn push_frames(&self, task_frames: TaskFrames) -> Option<TaskFrames> {
        self.runtime().push_frames(task_frames);
        None
    }

    fn payload_bytes_max(&self) -> usize {
        self.runtime().store().payload_bytes_max()
    }

    fn leave(&self) -> ConnectionFuture<'_, ()> {
        Box::pin(async move {
            self.membership.go();
            let (runs, tasks) = (self.worker().runs.drain(), self.worker().tasks.drain());
            give_back(self.runtime(), self.worker(), runs, tasks).await;
        })
    }
}

async fn claim_runs(runtime: Runtime, worker: Arc<Worker>, permits: Vec<Permit>, claiming: ClaimInProgress<ClaimedRun>) {
    let store = runtime.store();
    runtime.settle_leases(&worker).await;
    let limit = permits.len();
    if limit == 0 {
        claiming.postpone();
        if worker.has_capacity() {
            worker.runs.wake_if_wanted();
        }
        return;
    }
    let (id, namespace, knows) = (worker.profile.id.clone(), worker.profile.namespace.clone(), worker.profile.knows.clone());
    let request = ClaimRuns { worker: id, namespace, knows, limit };
    let window = runtime.hub().inboxes.begin_claim();
    let claimed = worker.leases.noted(store.claim_runs(request).await, runtime.clock().now());
    // Errors are ignored: the next claim comes with the fallback, and heartbeats detect a store that stays unavailable.
    let Ok(mut runs) = claimed else { return };
    window.end(&mut runs, permits);
    runs.iter().for_each(|run| runtime.hub().replays.claimed(&run.head, run.records.as_deref()));
    runs.iter().for_each(|run| runtime.lease_changed(&run.head.key));
    let more = runs.len() == limit;
    claiming.found(runs, more);
    if worker.has_left.load(Ordering::SeqCst) || worker.absent.load(Ordering::SeqCst) {
        give_back(&runtime, &worker, worker.runs.drain(), Vec::new()).await;
    }
}

async fn claim_tasks(runtime: Runtime, worker: Arc<Worker>, limit: usize, claiming: ClaimInProgress<Task>) {
    let lease = runtime.options().lease;
    let (mut tasks, held) = (Vec::new(), worker.held.begin_claim());
    // A rate-limited key splits the kinds into several portions, or leaves none; then the next claim comes when the limit ends.
    for portion in runtime.hub().closed.portions(&worker.profile, limit) {
        let room = portion.limit.min(limit - tasks.len());
        let found = claim_portion(&runtime, &worker, &portion.kinds, room).await;
        runtime.hub().closed.used(&portion, found.len());
        tasks.extend(found);
    }
    let more = tasks.len() == limit;
    tasks.retain(|task| held.add(task)); // the store has removed the others (W5)
    drop(held);
    for task in &tasks {
        let waited = task.started_at.map_or(0, |at| at.0.saturating_sub(task.visible_at.0));
        runtime.counts().task_waits.observe(DURATION_BOUNDS, waited);
        runtime.publish_task_start(task);
        let long = worker.held.lease(&task.id, lease);
        if long > lease {
            // The lease must cover the task's own heartbeat timeout. If this write is lost, the task is only given back early.
            let beat = TaskReport::Heartbeat { progress: None };
            drop(runtime.store().report_task(task.id.clone(), task.claim, beat, long).await);
        }
    }
    claiming.found(tasks, more);
    if worker.has_left.load(Ordering::SeqCst) || worker.absent.load(Ordering::SeqCst) {
        give_back(&runtime, &worker, Vec::new(), worker.tasks.drain()).await;
    }
}

/// Claims up to `limit` tasks of these kinds.
async fn claim_portion(runtime: &Runtime, worker: &Worker, kinds: &Arc<Vec<Name>>, limit: usize) -> Vec<Task> {
    let (profile, lease) = (&worker.profile, runtime.options().lease);
    let (id, namespace) = (profile.id.clone(), profile.namespace.clone());
    if kinds.is_empty() || limit == 0 {
        return Vec::new();
    }
    let request = ClaimTasks { worker: id, namespace, queues: profile.queues.clone(), kinds: kinds.clone(), limit, lease };
    // Errors are ignored, as for runs.
    runtime.store().claim_tasks(request).await.unwrap_or_default()
}

/// Releases work that was leased to a worker but not delivered; no code ran for it. A run that cannot be released is found by
/// the lease comparison or lost with the worker's session; the lease of a task expires (W4).
pub(crate) async fn give_back(runtime: &Runtime, worker: &Worker, runs: Vec<ClaimedRun>, tasks: Vec<Task>) {
    for run in runs {
        let head = run.head;
        runtime.hub().inboxes.close(&head.key, head.epoch);
        let released = runtime.store().release_run(head.key, head.epoch).await;
        drop(worker.leases.noted(released, runtime.clock().now()));
    }
    for task in tasks {
        worker.held.end(&task.id, task.claim);
        let not_started = task.not_started();
        drop(runtime.store().report_task(task.id, task.claim, not_started, runtime.options().lease).await);
    }
}

impl Membership {
    fn go(&self) {
        self.worker.has_left.store(true, Ordering::SeqCst);
        self.worker.away.store(true, Ordering::SeqCst);
        self.runtime.hub().workers.remove(&self.worker);
        drop(self.worker.questions.drain()); // they are retried elsewhere
    }

    /// Releases the work that waits for the worker.
    fn give_back_later(&self) {
        let (runs, tasks) = (self.worker.runs.drain(), self.worker.tasks.drain());
        let nothing = runs.is_empty() && tasks.is_empty();
        if let (false, Ok(tokio)) = (nothing, tokio::runtime::Handle::try_current()) {
            let (runtime, worker) = (self.runtime.clone(), self.worker.clone());
            tokio.spawn(async move { give_back(&runtime, &worker, runs, tasks).await });
        }
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.go();
        self.give_back_later();
    }
}

impl Runtime {
    /// Delivers a run that was created and claimed in one write to its worker.
    pub(crate) async fn hand_over(&self, worker: &Arc<Worker>, run: ClaimedRun) {
        worker.runs.put([run]);
        if worker.has_left.load(Ordering::SeqCst) || worker.absent.load(Ordering::SeqCst) {
            give_back(self, worker, worker.runs.drain(), Vec::new()).await;
        }
    }
}

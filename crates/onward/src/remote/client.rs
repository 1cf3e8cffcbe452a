//! The client over gRPC.

use std::sync::Arc;
use std::time::Duration;

use onward_core::budget::Budget;
use onward_core::conversation::EntryCursor;
use onward_core::event::RunPaused;
use onward_core::ledger::{SpendQuery, SpendRow};
use onward_core::reopen::Retry;
use onward_core::run::Wait;
use onward_core::task::Task;
use onward_core::{Failure, Index, Name, Namespace, Payload, Record, RunHead, RunKey};
use onward_runtime::{
    AppendEntry, AppendedEntry, BlockReason, Blocker, BranchRun, Bulk, BulkDone, BulkVerb, CallRef, Changes, Client,
    ClientFuture, Decide, Emitted, EntryPage, EntryQuery, ForkRun, Outcome, PendingReason, QueueInfo, RuntimeError, SendSignal,
    StartRun, StartTask, StreamPage, TaskView, TaskWord, WorkerInfo,
};
use onward_store::{
    Appended, Consequence, DeletedQuery, DeletedRun, Gaps, Restored, RunPage, RunQuery, Started, TaskQuery, VersionCount,
    WaitQuery,
};
use onward_wire::api;
use tokio::sync::broadcast;

use super::ends::Ends;
use super::{Channel, RETRY_DELAY};

/// Long-poll timeout at the server.
const WAIT_MS: u64 = 20_000;

/// Number of emitted values that a slow listener may fall behind.
const BEHIND_MAX: usize = 256;

#[derive(Clone)]
pub(crate) struct RemoteClient {
    channel: Channel,
    ends: Ends,
}

struct RemoteOutcome {
    ends: Ends,
    key: RunKey,
}

struct RemoteChanges {
    client: RemoteClient,
    key: RunKey,
    generation: u32,
    next: Index,
}

impl RemoteClient {
    pub fn new(channel: Channel) -> RemoteClient {
        RemoteClient { ends: Ends::new(channel.clone()), channel }
    }

    /// Waits for changes past `generation` and `next`. Retries while the server is unreachable, because a wait may last for
    /// months.
    async fn watch(&self, key: &RunKey, generation: u32, next: Index) -> Result<api::WatchReply, RuntimeError> {
        loop {
            let request = api::WatchRequest { run: key.clone(), generation, next_index: next, wait_ms: WAIT_MS };
            match self.channel.call::<api::WatchRun>(request).await {
                Err(error) if error.consequence() == Consequence::Retry => tokio::time::sleep(RETRY_DELAY).await,
                reply => return reply,
            }
        }
    }

    async fn send_entry(&self, run: RunKey, append: AppendEntry, is_looked_up: bool) -> Result<AppendedEntry, RuntimeError> {
        let AppendEntry { role, content, idempotency_key } = append;
        let request = api::AppendEntryRequest { run, role, content, idempotency_key, is_looked_up };
        let reply = self.channel.call::<api::AppendEntry>(request).await?;
        let api::AppendEntryReply { already_existed, woke, entry, index, at } = reply;
        Ok(AppendedEntry { already_existed, woke, entry, index, at })
    }

    async fn read_page(
        &self,
        key: &RunKey,
        generation: Option<u32>,
        from: Index,
        limit: usize,
    ) -> Result<Vec<Record>, RuntimeError> {
        let (mut records, mut from): (Vec<Record>, Index) = (Vec::new(), from);
        loop {
            let limit = u32::try_from(limit - records.len()).unwrap_or(u32::MAX);
            let request = api::LogRequest { run: key.clone(), generation, from, limit };
            let api::LogReply { records: page, more } = self.channel.call::<api::ReadLog>(request).await?;
            records.extend(page);
            match records.last() {
                Some(last) if more => from = last.next_index(),
                _ => return Ok(records),
            }
        }
    }
}

impl Outcome for RemoteOutcome {
    fn outcome(&self) -> ClientFuture<'_, Result<Payload, Failure>> {
        Box::pin(self.ends.outcome(&self.key))
    }
}

impl Changes for RemoteChanges {
    fn changed(&mut self) -> ClientFuture<'_, ()> {
        Box::pin(async move {
            loop {
                let reply = self.client.watch(&self.key, self.generation, self.next).await?;
                let seen = (reply.generation, reply.next_index);
                if seen > (self.generation, self.next) {
                    (self.generation, self.next) = seen;
                    return Ok(());
                }
            }
        })
    }

    fn generation(&self) -> u32 {
        self.generation
    }
}

fn signal(signal: SendSignal) -> api::Signal {
    let SendSignal { name, payload, signal_id, sender: _ } = signal;
    api::Signal { name, payload, signal_id }
}

fn appended(reply: api::AppendReply) -> Appended {
    let api::AppendReply { index, at, repeated, woke } = reply;
    Appended { index, at, repeated, woke }
}

fn list_request(query: RunQuery) -> api::ListRequest {
    let RunQuery { namespace, kind, versions, statuses, attributes, created_from, created_until, limit, cursor, gaps } = query;
    let version = versions.into_iter().map(|version| api::VersionMatch { version }).collect();
    let limit = u32::try_from(limit).unwrap_or(u32::MAX);
    let partly = gaps.is_some();
    api::ListRequest {
        namespace,
        kind,
        status: statuses,
        created_from,
        created_until,
        limit,
        cursor,
        version,
        attributes,
        partly,
    }
}

/// Returns the static text of an error code; a code that this build does not know becomes `refused`.
fn known_code(code: &str) -> &'static str {
    [
        "run_closed",
        "run_not_paused",
        "run_paused",
        "budget_exhausted",
        "approval_needed",
        "child_behind_approval",
        "outcome_unknown",
        "run_not_failed",
        "run_reset",
        "failure_handled",
        "run_not_found",
        "run_busy",
        "run_continued",
    ]
    .into_iter()
    .find(|known| *known == code)
    .unwrap_or("refused")
}

fn restored(reply: api::ReopenReply) -> Restored {
    let api::ReopenReply { created, head } = reply;
    Restored { created, head }
}

impl Client for RemoteClient {
    fn start_and_watch(&self, start: StartRun) -> ClientFuture<'_, (Started, Arc<dyn Outcome>)> {
        Box::pin(async move {
            let StartRun { key, kind, version, input, seed, signal: with, attributes, trace, budget } = start;
            // The server grants at most what the API key allows.
            let budget = budget.map(|budget| budget.limit);
            let (run, signal) = (key.clone(), with.map(signal));
            let request = api::StartRequest { run, kind, version, input, seed, signal, attributes, trace, budget };
            let api::StartReply { created, head, signal } = self.channel.call::<api::StartRun>(request).await?;
            let started = Started { created, head, signal: signal.map(appended), claimed: None };
            Ok((started, Arc::new(RemoteOutcome { ends: self.ends.clone(), key }) as Arc<dyn Outcome>))
        })
    }

    fn start_task(&self, start: StartTask) -> ClientFuture<'_, (Started, Arc<dyn Outcome>)> {
        Box::pin(async move {
            let StartTask { key, kind, input, options, trace } = start;
            let request = api::StartTaskRequest { task: key.clone(), kind, input, options, trace };
            let api::StartReply { created, head, .. } = self.channel.call::<api::StartTask>(request).await?;
            let started = Started { created, head, signal: None, claimed: None };
            Ok((started, Arc::new(RemoteOutcome { ends: self.ends.clone(), key }) as Arc<dyn Outcome>))
        })
    }

    fn read_task(&self, key: RunKey) -> ClientFuture<'_, TaskView> {
        Box::pin(async move {
            let reply = self.channel.call::<api::ReadTask>(api::RunRequest { run: key }).await?;
            let api::TaskReply { head, kind, input, options, state, attempts, last_failure, progress, outcome } = reply;
            // A newer server may have other states.
            let state = TaskWord::from_word(&state).unwrap_or(TaskWord::Queued);
            Ok(TaskView { head, kind, input, options, state, attempts, last_failure, progress, outcome })
        })
    }

    fn cancel_task(&self, run: RunKey, reason: String) -> ClientFuture<'_, Appended> {
        Box::pin(async move { self.channel.call::<api::CancelTask>(api::ReasonRequest { run, reason }).await.map(appended) })
    }

    fn wait_for_outcome(&self, key: RunKey) -> ClientFuture<'_, Result<Payload, Failure>> {
        Box::pin(async move { self.ends.outcome(&key).await })
    }

    fn watch_run(&self, key: RunKey) -> ClientFuture<'_, Box<dyn Changes>> {
        Box::pin(async move {
            let head = Client::read_head(self, key.clone()).await?;
            let (generation, next) = (head.generation, head.next_index);
            Ok(Box::new(RemoteChanges { client: self.clone(), key, generation, next }) as Box<dyn Changes>)
        })
    }

    fn read_stream(&self, key: RunKey, from: Option<String>, wait: Duration) -> ClientFuture<'_, StreamPage> {
        Box::pin(async move {
            let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
            let request = api::StreamRequest { run: key, offset: from, wait_ms };
            let api::StreamReply { frames, next } = self.channel.call::<api::ReadStream>(request).await?;
            Ok(StreamPage { frames, next })
        })
    }

    fn read_head(&self, key: RunKey) -> ClientFuture<'_, RunHead> {
        Box::pin(async move { Ok(self.channel.call::<api::ReadRun>(api::RunRequest { run: key }).await?.head) })
    }

    fn why_pending(&self, key: RunKey) -> ClientFuture<'_, Option<PendingReason>> {
        Box::pin(async move {
            let reply = self.channel.call::<api::PendingReason>(api::RunRequest { run: key }).await?;
            Ok(reply.why.and_then(|why| PendingReason::from_word(&why)))
        })
    }

    fn blocked_on(&self, key: RunKey) -> ClientFuture<'_, Vec<Blocker>> {
        Box::pin(async move {
            let namespace = key.namespace.clone();
            let reply = self.channel.call::<api::ReadBlockedOn>(api::RunRequest { run: key }).await?;
            let lines = reply.blocked_on.into_iter();
            Ok(lines.filter_map(|line| blocker(&namespace, line)).collect())
        })
    }

    fn list_deleted(&self, query: DeletedQuery) -> ClientFuture<'_, Vec<DeletedRun>> {
        Box::pin(async move {
            let limit = u32::try_from(query.limit).unwrap_or(u32::MAX);
            let partly = query.gaps.is_some();
            let request = api::DeletedRequest { namespace: query.namespace, run: query.run, limit, partly };
            let deleted = |api::Deleted { run, kind, reason, deleted_at }| DeletedRun { key: run, kind, reason, deleted_at };
            let reply = self.channel.call::<api::ListDeleted>(request).await?;
            note(query.gaps, reply.missing);
            Ok(reply.runs.into_iter().map(deleted).collect())
        })
    }

    fn read_log(&self, key: RunKey, generation: Option<u32>, from: Index, limit: usize) -> ClientFuture<'_, Vec<Record>> {
        Box::pin(async move { self.read_page(&key, generation, from, limit).await })
    }

    /// Lets the server look up the idempotency key, because an API key with the scope to signal may not read.
    fn append_entry(&self, key: RunKey, append: AppendEntry) -> ClientFuture<'_, AppendedEntry> {
        Box::pin(self.send_entry(key, append, false))
    }

    fn put_entry(&self, key: RunKey, append: AppendEntry) -> ClientFuture<'_, AppendedEntry> {
        Box::pin(self.send_entry(key, append, true))
    }

    fn read_entries(&self, key: RunKey, query: EntryQuery) -> ClientFuture<'_, EntryPage> {
        Box::pin(async move {
            let text = |cursor: EntryCursor| cursor.to_string();
            let limit = u32::try_from(query.limit).unwrap_or(u32::MAX);
            let request = api::EntriesRequest { run: key, leaf: query.leaf.map(text), before: query.before.map(text), limit };
            let reply = self.channel.call::<api::ReadEntries>(request).await?;
            let api::EntriesReply { entries, before, leaf, depth, pending } = reply;
            let before = before.and_then(|before| before.parse().ok());
            Ok(EntryPage { entries, before, leaf, depth, pending })
        })
    }

    fn branch_run(&self, key: RunKey, branch: BranchRun) -> ClientFuture<'_, Appended> {
        Box::pin(async move {
            let BranchRun { from, entry, idempotency_key } = branch;
            let (role, content) = entry.map(|entry| (entry.role, entry.content)).unzip();
            let from = from.map(|from| from.to_string());
            let request = api::BranchRunRequest { run: key, from, role, content, idempotency_key };
            self.channel.call::<api::BranchRun>(request).await.map(appended)
        })
    }

    fn list_runs(&self, query: RunQuery) -> ClientFuture<'_, RunPage> {
        Box::pin(async move {
            let gaps = query.gaps.clone();
            let request = list_request(query);
            let api::ListReply { runs, next, missing } = self.channel.call::<api::ListRuns>(request).await?;
            note(gaps, missing);
            Ok(RunPage { runs, next })
        })
    }

    fn list_versions(&self, namespace: Namespace) -> ClientFuture<'_, Vec<VersionCount>> {
        Box::pin(async move {
            let reply = self.channel.call::<api::ListVersions>(api::VersionsRequest { namespace }).await?;
            let count = |api::OpenRuns { kind, version, open }| VersionCount { kind, version, open };
            Ok(reply.versions.into_iter().map(count).collect())
        })
    }

    fn read_spend(&self, query: SpendQuery) -> ClientFuture<'_, Vec<SpendRow>> {
        Box::pin(async move {
            let SpendQuery { namespace, by, from, until, tree, limit } = query;
            let limit = u32::try_from(limit).unwrap_or(u32::MAX);
            let request = api::SpendRequest { namespace, by, from, until, tree, limit };
            Ok(self.channel.call::<api::ReadSpend>(request).await?.rows)
        })
    }

    fn signal_run(&self, key: RunKey, with: SendSignal) -> ClientFuture<'_, Appended> {
        Box::pin(async move {
            let request = api::SignalRequest { run: key, signal: signal(with) };
            self.channel.call::<api::SignalRun>(request).await.map(appended)
        })
    }

    fn cancel_run(&self, run: RunKey, reason: String) -> ClientFuture<'_, Appended> {
        Box::pin(async move { self.channel.call::<api::CancelRun>(api::ReasonRequest { run, reason }).await.map(appended) })
    }

    fn terminate_run(&self, run: RunKey, reason: String) -> ClientFuture<'_, Appended> {
        Box::pin(async move { self.channel.call::<api::TerminateRun>(api::ReasonRequest { run, reason }).await.map(appended) })
    }

    fn pause_run(&self, run: RunKey, pause: RunPaused) -> ClientFuture<'_, Appended> {
        let reason = pause.message;
        Box::pin(async move { self.channel.call::<api::PauseRun>(api::ReasonRequest { run, reason }).await.map(appended) })
    }

    fn resume_run(&self, run: RunKey, budget: Option<Budget>) -> ClientFuture<'_, Appended> {
        Box::pin(async move { self.channel.call::<api::ResumeRun>(api::ResumeRequest { run, budget }).await.map(appended) })
    }

    fn retry_run(&self, run: RunKey, retry: Retry) -> ClientFuture<'_, Restored> {
        Box::pin(async move {
            // The server knows the caller and the budget ceiling.
            let Retry { request_id, reason, include_outcome_unknown, caller: _, budget_max: _ } = retry;
            let request = api::RetryRequest { run, request_id, reason, include_outcome_unknown };
            self.channel.call::<api::RetryRun>(request).await.map(restored)
        })
    }

    fn fork_run(&self, run: RunKey, fork: ForkRun) -> ClientFuture<'_, Restored> {
        Box::pin(async move {
            let (drop_signals, include_outcome_unknown) = (!fork.keep_signals, fork.include_outcome_unknown);
            let ForkRun { id, generation, index, is_reset, restart_children, version, seed, reason, .. } = fork;
            let request = api::ForkRequest {
                run,
                id,
                generation,
                index,
                drop_signals,
                restart_children,
                version,
                seed,
                reason,
                include_outcome_unknown,
            };
            let reply = match is_reset {
                false => self.channel.call::<api::ForkRun>(request).await,
                true => self.channel.call::<api::ResetRun>(request).await,
            };
            reply.map(restored)
        })
    }

    fn bulk_runs(&self, bulk: Bulk) -> ClientFuture<'_, BulkDone> {
        Box::pin(async move {
            let Bulk { verb, filter, all, dry_run, bulk_id, reason, include_outcome_unknown, .. } = bulk;
            let (filter, word) = (list_request(filter), verb.as_str().to_owned());
            let request = api::BulkRequest { verb: word, filter, all, dry_run, bulk_id, reason, include_outcome_unknown };
            let reply = match verb {
                BulkVerb::Delete => self.channel.call::<api::BulkDelete>(request).await?,
                _ => self.channel.call::<api::BulkRuns>(request).await?,
            };
            let refused = reply.refused.into_iter().map(|refused| (refused.run, known_code(&refused.code)));
            let (matched, done, sample, next) = (reply.matched, reply.done, reply.sample, reply.next);
            Ok(BulkDone { matched, done, refused: refused.collect(), sample, next })
        })
    }

    fn delete_run(&self, run: RunKey, reason: String) -> ClientFuture<'_, ()> {
        Box::pin(async move { self.channel.call::<api::DeleteRun>(api::ReasonRequest { run, reason }).await.map(drop) })
    }

    fn update_run(
        &self,
        run: RunKey,
        update_id: String,
        name: Name,
        payload: Payload,
    ) -> ClientFuture<'_, Result<Payload, Failure>> {
        Box::pin(async move {
            // Retries with the same id are the same update, also when the result takes longer than one request may wait.
            loop {
                let (run, name, payload) = (run.clone(), name.clone(), payload.clone());
                let request = api::AskRequest { run, name, payload, update_id: update_id.clone() };
                match self.channel.call::<api::UpdateRun>(request).await {
                    Ok(api::AnswerReply { answer: Some(answer) }) => return Ok(answer),
                    Ok(api::AnswerReply { answer: None }) => {}
                    Err(error) if error.consequence() == Consequence::Retry => tokio::time::sleep(RETRY_DELAY).await,
                    Err(error) => return Err(error),
                }
            }
        })
    }

    fn query_run(&self, run: RunKey, name: Name, payload: Payload) -> ClientFuture<'_, Option<Result<Payload, Failure>>> {
        Box::pin(async move {
            let request = api::AskRequest { run, name, payload, update_id: String::new() };
            Ok(self.channel.call::<api::QueryRun>(request).await?.answer)
        })
    }

    fn listen(&self, key: &RunKey) -> broadcast::Receiver<Emitted> {
        let (sender, receiver) = broadcast::channel(BEHIND_MAX);
        let (channel, run) = (self.channel.clone(), key.clone());
        tokio::spawn(async move {
            while sender.receiver_count() > 0 {
                match channel.listen(run.clone()).await {
                    Ok(mut stream) => {
                        while let Ok(Some(api::EmittedValue { name, value })) = stream.message().await {
                            drop(sender.send(Emitted { name, value })); // no listener is left
                        }
                    }
                    Err(error) if error.consequence() != Consequence::Retry => return,
                    Err(_) => {}
                }
                tokio::time::sleep(RETRY_DELAY).await;
            }
        });
        receiver
    }

    fn list_approvals(&self, query: WaitQuery) -> ClientFuture<'_, Vec<Wait>> {
        Box::pin(async move {
            let limit = u32::try_from(query.limit).unwrap_or(u32::MAX);
            let partly = query.gaps.is_some();
            let (namespace, run, below) = (query.namespace, query.run, query.below);
            let request = api::WaitsRequest { namespace, run, limit, partly, below };
            let api::WaitsReply { waits, missing } = self.channel.call::<api::ListApprovals>(request).await?;
            note(query.gaps, missing);
            Ok(waits)
        })
    }

    fn decide_approval(&self, call: CallRef, decide: Decide) -> ClientFuture<'_, Appended> {
        Box::pin(async move {
            let Decide { approved, feedback, decided_by, decision_id } = decide;
            let (namespace, approval) = (call.run.namespace.clone(), call.to_string());
            let request = api::DecideRequest { namespace, approval, approved, feedback, decided_by, decision_id };
            self.channel.call::<api::DecideApproval>(request).await.map(appended)
        })
    }

    fn resolve_promise(
        &self,
        call: CallRef,
        result: Result<Payload, Failure>,
        resolution_id: String,
    ) -> ClientFuture<'_, Appended> {
        Box::pin(async move {
            let (namespace, promise) = (call.run.namespace.clone(), call.to_string());
            let request = api::ResolveRequest { namespace, promise, result, resolution_id };
            self.channel.call::<api::ResolvePromise>(request).await.map(appended)
        })
    }

    fn list_workers(&self, namespace: Namespace) -> ClientFuture<'_, Vec<WorkerInfo>> {
        Box::pin(async move {
            let reply = self.channel.call::<api::ListWorkers>(api::NamespaceRequest { namespace }).await?;
            Ok(reply.workers.into_iter().map(worker).collect())
        })
    }

    fn list_queues(&self, namespace: Namespace) -> ClientFuture<'_, Vec<QueueInfo>> {
        Box::pin(async move {
            let reply = self.channel.call::<api::ListQueues>(api::NamespaceRequest { namespace }).await?;
            Ok(reply.queues.into_iter().map(|api::QueueLine { count, workers }| QueueInfo { count, workers }).collect())
        })
    }

    fn retry_task(&self, call: CallRef) -> ClientFuture<'_, ()> {
        Box::pin(async move {
            let (namespace, task) = (call.run.namespace.clone(), call.to_string());
            self.channel.call::<api::RetryTask>(api::TaskRequest { namespace, task }).await?;
            Ok(())
        })
    }

    fn list_quarantined(&self, query: TaskQuery) -> ClientFuture<'_, Vec<Task>> {
        Box::pin(async move {
            let limit = u32::try_from(query.limit).unwrap_or(u32::MAX);
            let partly = query.gaps.is_some();
            let request = api::WaitsRequest { namespace: query.namespace, run: query.run, limit, partly, below: false };
            let api::TasksReply { tasks, missing } = self.channel.call::<api::ListQuarantined>(request).await?;
            note(query.gaps, missing);
            Ok(tasks)
        })
    }
}

/// Passes on which databases are missing from a list.
fn note(gaps: Option<Gaps>, missing: Vec<String>) {
    if let Some(gaps) = gaps {
        missing.into_iter().for_each(|database| gaps.note(database));
    }
}

/// Converts a line of the reply; `None` for a reason that only a newer version has.
fn blocker(namespace: &Namespace, line: api::BlockerLine) -> Option<Blocker> {
    let api::BlockerLine { task, kind, why, since, until, lost_workers, failure_code } = line;
    let (task, why) = (CallRef::parse(namespace, &task).ok()?, BlockReason::from_word(&why)?);
    Some(Blocker { task, kind, why, since, until, lost_workers, failure_code })
}

fn worker(line: api::WorkerLine) -> WorkerInfo {
    let api::WorkerLine { id, kinds, task_kinds, queues, default_queue, runs, runs_max, heard_at } = line;
    let kinds = kinds.into_iter().map(|api::KnownKind { kind, version }| (kind, version)).collect();
    let queues = default_queue.then_some(None).into_iter().chain(queues.into_iter().map(Some)).collect();
    WorkerInfo { id, kinds, task_kinds, task_limits: Default::default(), queues, runs, runs_max, heard_at }
}

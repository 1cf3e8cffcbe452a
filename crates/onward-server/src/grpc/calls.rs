//! The verbs over gRPC, one function each.

use std::time::Duration;

use onward_core::event::{PauseReason, RunPaused};
use onward_core::ledger::SpendQuery;
use onward_core::reopen::Retry;
use onward_core::{Namespace, RunKey};
use onward_runtime::{
    Blocker, Bulk, BulkVerb, CallRef, Decide, ForkRun, RuntimeError, SendSignal, StartRun, StreamPage, WorkerInfo,
};
use onward_store::{Appended, DeletedQuery, Gaps, Restored, RunQuery, StoreError, TaskQuery, VersionCount, WaitQuery, payloads};
use onward_wire::api;
use tonic::Status;

use super::Asker;
use super::problem::{of_runtime, status_of};
use crate::auth::AuthRefusal;
use crate::http::limits::LIMIT_MAX;
use crate::http::problem::RequestError;
use crate::{Scope, Server, WAIT_MAX, auth::bounds, auth::ceilings, handlers::approvals, http::diagnosis, http::request};

pub(super) type Answer<T> = Result<T, Status>;

/// Maximum number of records on a page of a log.
const PAGE_MAX: usize = 1_000;

/// Payload size after which a page of a log ends.
const PAGE_BYTES: usize = 4 * 1024 * 1024;

/// Returns the page size, limited as over HTTP; 0 is the store's default.
fn page(limit: u32) -> usize {
    (limit as usize).min(LIMIT_MAX)
}

/// Returns the status for a message that can be decoded but is not valid.
pub(super) fn malformed(why: String) -> Status {
    status_of(&RequestError::MessageInvalid { why }.into())
}

pub(super) fn told(error: RuntimeError) -> Status {
    of_runtime(&error)
}

/// Returns the key if it is in the caller's namespace; otherwise fails as if the run did not exist (S6).
pub(super) fn own(asker: &Asker, key: RunKey) -> Answer<RunKey> {
    if key.namespace == asker.namespace {
        return Ok(key);
    }
    Err(told(StoreError::RunNotFound { key }.into()))
}

/// Returns the key if the caller may act on the run: it is in the caller's namespace, and its kind is within the key's bounds.
pub(super) async fn acted_on(server: &Server, asker: &Asker, key: RunKey) -> Answer<RunKey> {
    let key = own(asker, key)?;
    bounds::check_run(server, asker.pass.scope, &asker.caller, &key).await.map_err(|problem| status_of(&problem))?;
    Ok(key)
}

/// Returns the call that `id` names if the caller may act on its run.
pub(super) async fn call_acted_on(server: &Server, asker: &Asker, id: &str) -> Answer<CallRef> {
    let call = CallRef::parse(&asker.namespace, id).map_err(told)?;
    acted_on(server, asker, call.run.clone()).await?;
    Ok(call)
}

/// Converts a refusal by the key's bounds to a status.
pub(super) fn bound(checked: Result<(), AuthRefusal>) -> Answer<()> {
    checked.map_err(|refusal| status_of(&refusal.into()))
}

pub(super) fn appended(appended: Appended) -> api::AppendReply {
    let Appended { index, at, repeated, woke } = appended;
    api::AppendReply { index, at, repeated, woke }
}

pub(super) fn signal(signal: api::Signal) -> SendSignal {
    let api::Signal { name, payload, signal_id } = signal;
    SendSignal { name, payload, signal_id, sender: None }
}

pub(super) async fn start_run(server: Server, asker: Asker, request: api::StartRequest) -> Answer<api::StartReply> {
    let api::StartRequest { run, kind, version, input, seed, signal: with, attributes, trace, budget } = request;
    bound(asker.caller.bounds.check_kind(&kind))?;
    if with.is_some() {
        // The run may exist already.
        asker.pass.check_also(Scope::Signal, &server).await.map_err(|refusal| status_of(&refusal.into()))?;
    }
    let budget = ceilings::of_start(budget, &asker.namespace, &asker.caller, Some(&asker.pass), &server).await;
    let budget = budget.map_err(|problem| status_of(&problem))?;
    let (signal, trace) = (with.map(signal), trace.or_else(|| request::trace(&asker.pass.headers)));
    let start = StartRun { key: own(&asker, run)?, kind, version, input, seed, signal, attributes, trace, budget };
    let started = server.runtime().start_run_for(asker.caller.name, start).await.map_err(told)?;
    Ok(api::StartReply { created: started.created, head: started.head, signal: started.signal.map(appended) })
}

pub(super) async fn read_run(server: Server, asker: Asker, request: api::RunRequest) -> Answer<api::RunReply> {
    let head = server.runtime().read_head(&own(&asker, request.run)?).await.map_err(told)?;
    Ok(api::RunReply { head })
}

pub(super) async fn why_pending(server: Server, asker: Asker, request: api::RunRequest) -> Answer<api::WhyPendingReply> {
    let head = server.runtime().read_head(&own(&asker, request.run)?).await.map_err(told)?;
    Ok(api::WhyPendingReply { why: server.runtime().why_pending_anywhere(&head).await.map(|why| why.as_str().to_owned()) })
}

pub(super) async fn read_blocked_on(server: Server, asker: Asker, request: api::RunRequest) -> Answer<api::BlockersReply> {
    let found = server.runtime().blocked_on(&own(&asker, request.run)?).await.map_err(told)?;
    let line = |blocker: Blocker| {
        let Blocker { task, kind, why, since, until, lost_workers, failure_code } = blocker;
        let (task, why) = (task.to_string(), why.as_str().to_owned());
        api::BlockerLine { task, kind, why, since, until, lost_workers, failure_code }
    };
    Ok(api::BlockersReply { blocked_on: found.into_iter().map(line).collect() })
}

pub(super) async fn list_deleted(server: Server, asker: Asker, request: api::DeletedRequest) -> Answer<api::DeletedReply> {
    let api::DeletedRequest { namespace: _, run, limit, partly } = request;
    let (run, gaps) = (run.map(|run| own(&asker, run)).transpose()?, partly.then(Gaps::default));
    let query = DeletedQuery { namespace: asker.namespace, run, limit: page(limit), gaps: gaps.clone() };
    let deleted = server.runtime().list_deleted(query).await.map_err(told)?;
    let runs = deleted.into_iter().map(|deleted| api::Deleted {
        run: deleted.key,
        kind: deleted.kind,
        reason: deleted.reason,
        deleted_at: deleted.deleted_at,
    });
    Ok(api::DeletedReply { runs: runs.collect(), missing: missing(gaps) })
}

pub(super) async fn read_log(server: Server, asker: Asker, request: api::LogRequest) -> Answer<api::LogReply> {
    let api::LogRequest { run, generation, from, limit } = request;
    let limit = (limit as usize).clamp(1, PAGE_MAX);
    let mut records = server.runtime().read_log(&own(&asker, run)?, generation, from, limit).await.map_err(told)?;
    let more = payloads::is_long(&records) | payloads::fit(&mut records, PAGE_BYTES);
    if asker.pass.check_also(Scope::Operate, &server).await.is_err() {
        diagnosis::hide_in_records(&mut records); // DG1
    }
    Ok(api::LogReply { records, more })
}

/// Waits for new events, at most `wait_ms` and the server's limit.
pub(super) async fn watch_run(server: Server, asker: Asker, request: api::WatchRequest) -> Answer<api::WatchReply> {
    let api::WatchRequest { run, generation, next_index, wait_ms } = request;
    let key = own(&asker, run)?;
    let wait = Duration::from_millis(wait_ms).min(WAIT_MAX);
    let runtime = server.runtime();
    let news = async {
        let mut watch = runtime.watch_run(&key).await?;
        loop {
            let head = runtime.read_head(&key).await?;
            if (head.generation, head.next_index) > (generation, next_index) || head.status.is_closed() {
                return Ok(());
            }
            watch.changed().await?;
        }
    };
    tokio::select! {
        news = tokio::time::timeout(wait, news) => news.unwrap_or(Ok(())).map_err(told)?,
        () = server.closed() => {}
    }
    let head = runtime.read_head(&key).await.map_err(told)?;
    let mut outcome = if head.status.is_closed() { runtime.read_outcome(&key).await.map_err(told)? } else { None };
    outcome.iter_mut().for_each(diagnosis::hide_in_outcome);
    Ok(api::WatchReply { generation: head.generation, next_index: head.next_index, status: head.status, outcome })
}

/// Waits for the next frames, at most `wait_ms` and the server's limit.
pub(super) async fn read_stream(server: Server, asker: Asker, request: api::StreamRequest) -> Answer<api::StreamReply> {
    let api::StreamRequest { run, offset, wait_ms } = request;
    let key = own(&asker, run)?;
    let wait = Duration::from_millis(wait_ms).min(WAIT_MAX);
    let mut page = tokio::select! {
        page = server.runtime().read_stream(&key, offset.as_deref(), wait) => page.map_err(told)?,
        () = server.closed() => StreamPage { frames: Vec::new(), next: offset.unwrap_or_default() },
    };
    for frame in &mut page.frames {
        if let onward_core::stream::StreamSaid::AttemptFailed(failed) = &mut frame.said {
            diagnosis::hide(&mut failed.failure);
        }
    }
    Ok(api::StreamReply { frames: page.frames, next: page.next })
}

pub(super) async fn list_runs(server: Server, asker: Asker, request: api::ListRequest) -> Answer<api::ListReply> {
    let gaps = request.partly.then(Gaps::default);
    let query = RunQuery { gaps: gaps.clone(), ..run_query(asker.namespace, request) };
    let page = server.runtime().list_runs(query).await.map_err(told)?;
    Ok(api::ListReply { runs: page.runs, next: page.next, missing: missing(gaps) })
}

fn missing(gaps: Option<Gaps>) -> Vec<String> {
    gaps.map(|gaps| gaps.names()).unwrap_or_default()
}

fn run_query(namespace: Namespace, request: api::ListRequest) -> RunQuery {
    let api::ListRequest { kind, status: statuses, created_from, created_until, limit, cursor, version, attributes, .. } =
        request;
    let (versions, limit) = (version.into_iter().map(|wanted| wanted.version).collect(), page(limit));
    RunQuery { namespace, kind, versions, statuses, attributes, created_from, created_until, limit, cursor, gaps: None }
}

pub(super) async fn list_versions(server: Server, asker: Asker, _: api::VersionsRequest) -> Answer<api::VersionsReply> {
    let counts = server.runtime().list_versions(asker.namespace).await.map_err(told)?;
    let open = |count: VersionCount| api::OpenRuns { kind: count.kind, version: count.version, open: count.open };
    Ok(api::VersionsReply { versions: counts.into_iter().map(open).collect() })
}

pub(super) async fn read_spend(server: Server, asker: Asker, request: api::SpendRequest) -> Answer<api::SpendReply> {
    let api::SpendRequest { namespace: _, by, from, until, tree, limit } = request;
    let query = SpendQuery { namespace: asker.namespace, by, from, until, tree, limit: page(limit) };
    Ok(api::SpendReply { rows: server.runtime().read_spend(query).await.map_err(told)? })
}

pub(super) async fn signal_run(server: Server, asker: Asker, request: api::SignalRequest) -> Answer<api::AppendReply> {
    let key = acted_on(&server, &asker, request.run).await?;
    server.runtime().signal_run(&key, signal(request.signal)).await.map(appended).map_err(told)
}

pub(super) async fn cancel_run(server: Server, asker: Asker, request: api::ReasonRequest) -> Answer<api::AppendReply> {
    let key = acted_on(&server, &asker, request.run).await?;
    server.runtime().cancel_run(&key, &request.reason).await.map(appended).map_err(told)
}

pub(super) async fn terminate_run(server: Server, asker: Asker, request: api::ReasonRequest) -> Answer<api::AppendReply> {
    let key = acted_on(&server, &asker, request.run).await?;
    server.runtime().terminate_run(&key, &request.reason).await.map(appended).map_err(told)
}

pub(super) async fn pause_run(server: Server, asker: Asker, request: api::ReasonRequest) -> Answer<api::AppendReply> {
    let key = acted_on(&server, &asker, request.run).await?;
    let pause = RunPaused::because(PauseReason::Requested, request.reason);
    server.runtime().pause_run(&key, pause).await.map(appended).map_err(told)
}

pub(super) async fn resume_run(server: Server, asker: Asker, request: api::ResumeRequest) -> Answer<api::AppendReply> {
    let key = acted_on(&server, &asker, request.run).await?;
    let budget = ceilings::of_resume(request.budget, &asker.namespace, &asker.caller, &server);
    let budget = budget.map_err(|problem| status_of(&problem))?;
    server.runtime().resume_run(&key, budget).await.map(appended).map_err(told)
}

pub(super) async fn retry_run(server: Server, asker: Asker, request: api::RetryRequest) -> Answer<api::ReopenReply> {
    let api::RetryRequest { run, request_id, reason, include_outcome_unknown } = request;
    let key = acted_on(&server, &asker, run).await?;
    let budget_max = ceilings::of_copy(&asker.namespace, &asker.caller, &server);
    let caller = asker.caller.name.clone();
    let retry = Retry { request_id, reason, include_outcome_unknown, caller, budget_max };
    server.runtime().retry_run(&key, &retry).await.map(reopened).map_err(told)
}

pub(super) async fn fork_run(server: Server, asker: Asker, request: api::ForkRequest) -> Answer<api::ReopenReply> {
    fork(server, asker, request, false).await
}

pub(super) async fn reset_run(server: Server, asker: Asker, request: api::ForkRequest) -> Answer<api::ReopenReply> {
    fork(server, asker, request, true).await
}

async fn fork(server: Server, asker: Asker, request: api::ForkRequest, is_reset: bool) -> Answer<api::ReopenReply> {
    let api::ForkRequest { run, id, generation, index, drop_signals, restart_children, version, seed, reason, .. } = request;
    let include_outcome_unknown = request.include_outcome_unknown;
    let keep_signals = !drop_signals;
    let budget_max = ceilings::of_copy(&asker.namespace, &asker.caller, &server);
    let caller = asker.caller.name.clone();
    let fork = ForkRun {
        id,
        generation,
        index,
        is_reset,
        keep_signals,
        restart_children,
        version,
        seed,
        reason,
        include_outcome_unknown,
        caller,
        budget_max,
    };
    let key = acted_on(&server, &asker, run).await?;
    server.runtime().fork_run(&key, fork).await.map(reopened).map_err(told)
}

fn reopened(restored: Restored) -> api::ReopenReply {
    api::ReopenReply { created: restored.created, head: restored.head }
}

pub(super) async fn bulk_runs(server: Server, asker: Asker, request: api::BulkRequest) -> Answer<api::BulkReply> {
    bulk(server, asker, request, |verb| verb != BulkVerb::Delete).await
}

/// Deletes runs; a separate method because it needs another scope.
pub(super) async fn bulk_delete(server: Server, asker: Asker, request: api::BulkRequest) -> Answer<api::BulkReply> {
    bulk(server, asker, request, |verb| verb == BulkVerb::Delete).await
}

async fn bulk(server: Server, asker: Asker, request: api::BulkRequest, may: fn(BulkVerb) -> bool) -> Answer<api::BulkReply> {
    let api::BulkRequest { verb, filter, all, dry_run, bulk_id, reason, include_outcome_unknown } = request;
    let budget_max = ceilings::of_copy(&asker.namespace, &asker.caller, &server);
    let known = BulkVerb::from_word(&verb).filter(|verb| may(*verb));
    let verb = known.ok_or_else(|| malformed(format!("`{verb}` is not a verb of this method")))?;
    let filter = run_query(asker.namespace, filter);
    bound(asker.caller.bounds.check_filter(filter.kind.as_ref()))?;
    let caller = asker.caller.name.clone();
    let bulk = Bulk { verb, filter, all, dry_run, bulk_id, reason, include_outcome_unknown, caller, budget_max };
    let done = server.runtime().bulk_runs(bulk).await.map_err(told)?;
    let refused = done.refused.into_iter().map(|(run, code)| api::Refused { run, code: code.to_owned() });
    Ok(api::BulkReply {
        matched: done.matched,
        done: done.done,
        refused: refused.collect(),
        sample: done.sample,
        next: done.next,
    })
}

pub(super) async fn delete_run(server: Server, asker: Asker, request: api::ReasonRequest) -> Answer<api::DoneReply> {
    let key = acted_on(&server, &asker, request.run).await?;
    server.runtime().delete_run(&key, &request.reason).await.map_err(told)?;
    Ok(api::DoneReply {})
}

/// Sends an update. Replies without a result after the longest wait; the caller repeats the request with the same id.
pub(super) async fn update_run(server: Server, asker: Asker, request: api::AskRequest) -> Answer<api::AnswerReply> {
    let api::AskRequest { run, name, payload, update_id } = request;
    let key = acted_on(&server, &asker, run).await?;
    let answered = server.runtime().update_run(&key, &update_id, name, payload);
    let answer = tokio::select! {
        answer = tokio::time::timeout(WAIT_MAX, answered) => answer.ok().transpose().map_err(told)?,
        () = server.closed() => None,
    };
    let mut answer = answer;
    answer.iter_mut().for_each(diagnosis::hide_in_outcome);
    Ok(api::AnswerReply { answer })
}

pub(super) async fn query_run(server: Server, asker: Asker, request: api::AskRequest) -> Answer<api::AnswerReply> {
    let api::AskRequest { run, name, payload, update_id: _ } = request;
    let key = own(&asker, run)?;
    let answer = tokio::time::timeout(WAIT_MAX, server.runtime().query_run(&key, name.clone(), payload)).await;
    let answer = answer.unwrap_or(Err(RuntimeError::Unanswered { key, name })).map_err(told)?;
    let mut answer = answer;
    answer.iter_mut().for_each(diagnosis::hide_in_outcome);
    Ok(api::AnswerReply { answer })
}

pub(super) async fn list_approvals(server: Server, asker: Asker, request: api::WaitsRequest) -> Answer<api::WaitsReply> {
    let run = request.run.map(|run| own(&asker, run)).transpose()?;
    let gaps = request.partly.then(Gaps::default);
    let (limit, below) = (page(request.limit), request.below);
    let query = WaitQuery { namespace: asker.namespace, run, below, limit, kind: None, gaps: gaps.clone() };
    let waits = server.runtime().list_approvals(query).await.map_err(told)?;
    Ok(api::WaitsReply { waits, missing: missing(gaps) })
}

pub(super) async fn decide_approval(server: Server, asker: Asker, request: api::DecideRequest) -> Answer<api::AppendReply> {
    let api::DecideRequest { namespace: _, approval, approved, feedback, decided_by, decision_id } = request;
    let call = call_acted_on(&server, &asker, &approval).await?;
    // The name of the credential, if it has one, is recorded as the decider (S8).
    let decided_by = asker.caller.name.or(decided_by);
    let decide = Decide { approved, feedback, decided_by, decision_id };
    approvals::carry_out(&server, &call, decide).await.map(appended).map_err(told)
}

pub(super) async fn resolve_promise(server: Server, asker: Asker, request: api::ResolveRequest) -> Answer<api::AppendReply> {
    let api::ResolveRequest { namespace: _, promise, result, resolution_id } = request;
    let call = call_acted_on(&server, &asker, &promise).await?;
    server.runtime().resolve_promise(&call, result, &resolution_id).await.map(appended).map_err(told)
}

pub(super) async fn list_workers(server: Server, asker: Asker, _: api::NamespaceRequest) -> Answer<api::WorkersReply> {
    let line = |worker: WorkerInfo| {
        let WorkerInfo { id, kinds, task_kinds, task_limits: _, queues, runs, runs_max, heard_at } = worker;
        let kinds = kinds.into_iter().map(|(kind, version)| api::KnownKind { kind, version }).collect();
        let default_queue = queues.contains(&None);
        let queues = queues.into_iter().flatten().collect();
        api::WorkerLine { id, kinds, task_kinds, queues, default_queue, runs, runs_max, heard_at }
    };
    let workers = server.sessions().list(server.runtime(), &asker.namespace).await.map_err(told)?;
    Ok(api::WorkersReply { workers: workers.into_iter().map(line).collect() })
}

pub(super) async fn list_quarantined(server: Server, asker: Asker, request: api::WaitsRequest) -> Answer<api::TasksReply> {
    let run = request.run.map(|run| own(&asker, run)).transpose()?;
    let gaps = request.partly.then(Gaps::default);
    let query = TaskQuery { namespace: asker.namespace, run, limit: page(request.limit), state: None, gaps: gaps.clone() };
    let mut tasks = server.runtime().list_quarantined(query).await.map_err(told)?;
    tasks.iter_mut().filter_map(|task| task.last_failure.as_mut()).for_each(diagnosis::hide);
    Ok(api::TasksReply { tasks, missing: missing(gaps) })
}

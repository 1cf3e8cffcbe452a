//! Authorization of verbs: scope, namespace, bounds of kinds, budget ceilings and page sizes, before the runtime is called.

use onward_core::api::{Call, PutQueueRequest, QueueRequest, Target, verb};
use onward_core::conversation::is_callers_role;
use onward_core::{Name, RunKey};
use onward_runtime::{CallContext, CallRef, RuntimeError};
use onward_store::StoreError;

use super::Principal;
use crate::auth::{AuthRefusal, Scope, bounds, ceilings};
use crate::http::limits::LIMIT_MAX;
use crate::http::problem::{Problem, RequestError};
use crate::http::request;
use crate::{Server, WAIT_MAX};

/// Maximum number of kinds of a count or an activity.
const KINDS_MAX: usize = 100;

/// Maximum number of records on a page of a log.
const PAGE_MAX: usize = 1_000;

/// Longest time that a request may wait, in milliseconds.
const WAIT_MAX_MS: u64 = WAIT_MAX.as_secs() * 1_000;

/// The scope that a verb needs, over every API.
pub(crate) trait VerbScope {
    const SCOPE: Scope;
}

macro_rules! scopes {
    ($($(#[$meta:meta])* $method:ident $name:ident($request:ident) -> $reply:ident, $scope:ident;)*) => {
        $(impl VerbScope for verb::$name {
            const SCOPE: Scope = Scope::$scope;
        })*

        /// Returns the scope that a call needs.
        fn scope_of(call: &Call) -> Scope {
            match call { $(Call::$name(_) => verb::$name::SCOPE,)* }
        }
    };
}

onward_core::with_verbs!(scopes);

/// Checks that the caller may execute the verb, and limits its request. Returns what the runtime records about the caller.
pub(super) async fn authorize(server: &Server, by: &Principal, call: &mut Call) -> Result<CallContext, Problem> {
    let scope = scope_of(call);
    by.check_also(scope, server).await?;
    check_target(server, by, scope, call).await?;
    let mut context = CallContext { caller: by.caller.name.clone(), ..CallContext::default() };
    let trace = || by.pass.as_ref().and_then(|pass| request::trace(&pass.headers));
    match call {
        Call::StartRun(start) => {
            by.caller.bounds.check_kind(&start.kind)?;
            if start.signal.is_some() {
                // The run may exist already, with another kind since a handoff.
                by.check_also(Scope::Signal, server).await?;
                bounds::check_existing(server, &by.caller, &start.run).await?;
            }
            context.allowance = ceilings::of_start(start.budget, by, server).await?;
            start.budget = None;
            start.trace = start.trace.take().or_else(trace);
        }
        Call::StartTask(start) => {
            by.caller.bounds.check_kind(&start.kind)?;
            by.caller.bounds.check_queue(start.options.queue.as_ref().map_or("", Name::as_str))?;
            start.trace = start.trace.take().or_else(trace);
        }
        Call::ReadQueue(of) => by.caller.bounds.check_queue(of.queue.as_ref().map_or("", Name::as_str))?,
        // Settings concern tasks of every kind.
        Call::PutQueue(PutQueueRequest { queue, .. }) | Call::DeleteQueue(QueueRequest { queue, .. }) => {
            by.caller.bounds.check_queue(queue.as_ref().map_or("", Name::as_str))?;
            by.caller.bounds.check_filter(None)?;
        }
        // A tenant must not raise its own quota.
        Call::PutQuota(_) | Call::DeleteQuota(_) => {
            by.check_all_namespaces(server).await?;
            by.caller.bounds.check_filter(None)?;
        }
        // A memo may have results of every kind.
        Call::InvalidateMemos(_) => by.caller.bounds.check_filter(None)?,
        Call::PutFlow(put) => by.caller.bounds.check_kind(&put.flow)?,
        Call::PutSchedule(put) => {
            // Its runs are started in the name of the caller, also when the key is revoked.
            by.check_also(Scope::Start, server).await?;
            by.caller.bounds.check_kind(&put.definition.target.kind)?;
            bounds::check_schedule(server, &by.caller, &put.namespace, &put.schedule).await?;
            context.allowance = ceilings::of_start(put.budget, by, server).await?;
            put.budget = None;
        }
        Call::DeleteSchedule(of) => bounds::check_schedule(server, &by.caller, &of.namespace, &of.schedule).await?,
        Call::PauseSchedule(of) | Call::ResumeSchedule(of) => {
            bounds::check_schedule(server, &by.caller, &of.namespace, &of.schedule).await?;
        }
        Call::TriggerSchedule(of) => check_starts_of(server, by, &of.schedule).await?,
        Call::BackfillSchedule(of) => check_starts_of(server, by, &of.schedule).await?,
        Call::ListSchedules(query) => limit(&mut query.limit),
        Call::ResumeRun(resume) => ceilings::check_resume(resume.budget, by, server)?,
        Call::RetryRun(_) => context.budget_max = ceilings::of_copy(by, server),
        Call::ForkRun(fork) | Call::ResetRun(fork) => {
            if let Some(generation) = fork.generation {
                bounds::check_generation(server, &by.caller, &fork.run, generation).await?;
            }
            context.budget_max = ceilings::of_copy(by, server);
        }
        Call::BulkRuns(bulk) | Call::BulkDelete(bulk) => {
            by.caller.bounds.check_filter(bulk.filter.kind.as_ref())?;
            context.budget_max = ceilings::of_copy(by, server);
            limit(&mut bulk.filter.limit);
        }
        Call::AppendEntry(append) => check_role(&append.entry.role, by, server).await?,
        Call::BranchRun(request) => {
            if let Some(entry) = &request.branch.entry {
                check_role(&entry.role, by, server).await?;
            }
        }
        Call::DriveRun(drive) => {
            if drive.signal.is_some() {
                by.check_also(Scope::Signal, server).await?;
            }
            if let Some(decision) = &drive.decision {
                by.check_also(Scope::Approve, server).await?;
                let decided = CallRef::parse(&by.namespace, &decision.approval)?.run;
                bounds::check_run(server, Scope::Approve, &by.caller, &decided).await?;
            }
        }
        Call::ResumeAgent(resume) if resume.signal.is_some() => by.check_also(Scope::Signal, server).await?,
        Call::ReadLog(read) => read.limit = read.limit.clamp(1, PAGE_MAX),
        Call::AwaitChange(change) => change.wait_ms = change.wait_ms.min(WAIT_MAX_MS),
        Call::ReadStream(read) => read.wait_ms = read.wait_ms.min(WAIT_MAX_MS),
        Call::ReadActive(request) => bounds::check_live(server, &by.caller, &request.run).await?,
        Call::CountRuns(query) => limit_kinds(by, &mut query.kinds)?,
        Call::ReadActivity(query) => limit_kinds(by, &mut query.kinds)?,
        Call::ListRuns(query) => limit(&mut query.limit),
        Call::ListChildren(query) => limit(&mut query.limit),
        Call::ListDeleted(query) => limit(&mut query.limit),
        Call::ListApprovals(query) => limit(&mut query.limit),
        Call::ListQuarantined(query) => limit(&mut query.limit),
        Call::ReadSpend(query) => limit(&mut query.limit),
        _ => {}
    }
    Ok(context)
}

/// Checks that the caller may start runs of a schedule: with its kind, and with its budget, which may be higher than the caller's.
async fn check_starts_of(server: &Server, by: &Principal, schedule: &Name) -> Result<(), Problem> {
    let definition = server.runtime().schedule_definition(&by.namespace, schedule).await?;
    by.check_also(Scope::Start, server).await?;
    by.caller.bounds.check_kind(&definition.target.kind)?;
    ceilings::check_granted(definition.granted.as_ref().map(|granted| granted.limit), by, server)
}

/// Limits a page size; 0 is the default.
fn limit(limit: &mut usize) {
    *limit = (*limit).min(LIMIT_MAX);
}

/// Restricts a query over kinds to those of the key. Each kind is a query of its own, so their number is limited.
fn limit_kinds(by: &Principal, kinds: &mut Vec<Name>) -> Result<(), Problem> {
    if kinds.len() > KINDS_MAX {
        return Err(RequestError::MessageInvalid { why: format!("more than {KINDS_MAX} kinds") }.into());
    }
    Ok(by.caller.bounds.limit_kinds(kinds)?)
}

/// Checks that the target is in the caller's namespace and its kind is within the bounds of the key. A run of another namespace
/// is not found (S6).
async fn check_target(server: &Server, by: &Principal, scope: Scope, call: &mut Call) -> Result<(), Problem> {
    let is_start = matches!(call, Call::StartRun(_) | Call::StartTask(_));
    let acted_on = match call.target() {
        Target::Run(run) => {
            own(by, run)?;
            Some(run.clone()).filter(|_| !is_start)
        }
        Target::Call(namespace, id) => {
            *namespace = by.namespace.clone();
            Some(CallRef::parse(&by.namespace, id)?.run)
        }
        Target::Namespace(namespace, run) => {
            *namespace = by.namespace.clone();
            run.map_or(Ok(()), |run| own(by, run))?;
            None
        }
        Target::Nothing => None,
    };
    match acted_on {
        Some(run) => bounds::check_run(server, scope, &by.caller, &run).await,
        None => Ok(()),
    }
}

fn own(by: &Principal, run: &RunKey) -> Result<(), Problem> {
    if run.namespace == by.namespace {
        return Ok(());
    }
    Err(RuntimeError::from(StoreError::RunNotFound { key: run.clone() }).into())
}

/// Checks the scope that an entry of this role needs: `signal` is enough for the role of a user, other roles need `operate`.
async fn check_role(role: &Name, by: &Principal, server: &Server) -> Result<(), Problem> {
    if is_callers_role(role) {
        return Ok(());
    }
    match by.check_also(Scope::Operate, server).await {
        Err(AuthRefusal::Scope { scope }) => {
            let what = format!("the scope `{scope}`, which an entry of the role `{role}` needs");
            Err(RequestError::NotAllowed { what }.into())
        }
        checked => Ok(checked?),
    }
}

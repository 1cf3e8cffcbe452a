//! Execution of verbs for callers of the HTTP and gRPC APIs: authorization, then the runtime, then the removal of what the caller
//! may not see.
//!
//! Both APIs call [`execute`], so that a verb has the same checks in both. Makes no decisions about runs.

mod authorize;
mod live;

use onward_core::api::{
    ActiveReply, AskReply, Call, ChangeRequest, DecideRequest, DriveReply, DriveRequest, LogPage, Reply, ResumeAgentReply,
    ResumeAgentRequest, Signal, StreamPage, WorkersReply,
};
use onward_core::{ErrorCode, Name, Namespace, RunKey};
use onward_runtime::{CallContext, CallRef, Decide, DriveInput, RuntimeError};
use onward_store::payloads;
use onward_wire::worker::ServerFrame;

use crate::auth::{AuthRefusal, Caller, Pass, Scope, bounds};
use crate::handlers::attachments;
use crate::http::diagnosis;
use crate::http::problem::{Problem, RequestError};
use crate::trace::Level;
use crate::workers::{ClaimPurpose, ClaimResult};
use crate::{Server, WAIT_MAX};

pub(crate) use authorize::VerbScope;
pub(crate) use live::{LiveView, may_see};

/// Payload size after which a page of a log ends.
const PAGE_BYTES: usize = 4 * 1024 * 1024;

/// The caller of a verb, with the namespace of the request.
#[derive(Debug, Clone)]
pub(crate) struct Principal {
    pub namespace: Namespace,
    pub caller: Caller,
    /// The credential; `None` for a route without a scope.
    pub pass: Option<Pass>,
}

impl Principal {
    /// Checks that the credential has a scope besides that of the route or method (S7).
    pub async fn check_also(&self, scope: Scope, server: &Server) -> Result<(), AuthRefusal> {
        match &self.pass {
            Some(pass) if pass.scope != scope => pass.check_also(scope, server).await.map(drop),
            _ => Ok(()),
        }
    }

    /// Checks that the credential is for all namespaces.
    pub async fn check_all_namespaces(&self, server: &Server) -> Result<(), AuthRefusal> {
        match &self.pass {
            Some(pass) => Pass { server_wide: true, ..pass.clone() }.check(server).await.map(drop),
            None => Ok(()),
        }
    }
}

/// Executes a verb for a caller.
pub(crate) async fn execute(server: &Server, by: &Principal, mut call: Call) -> Result<Reply, Problem> {
    let context = authorize::authorize(server, by, &mut call).await?;
    let log_of = if let Call::ReadLog(read) = &call { Some((read.run.clone(), read.generation)) } else { None };
    let mut reply = carry_out(server, by, call, context).await?;
    let may_see_all = match log_of {
        Some((run, generation)) => may_operate(server, by, &run, generation).await,
        None => false,
    };
    if let Reply::ListQueues(list) = &mut reply {
        list.settings.retain(|of| by.caller.bounds.check_queue(of.queue.as_ref().map_or("", Name::as_str)).is_ok()); // BK2
    }
    if !may_see_all {
        diagnosis::hide_in_reply(&mut reply); // DG1
    }
    Ok(reply)
}

/// Returns whether the caller may operate the run, and might have operated this generation of it.
async fn may_operate(server: &Server, by: &Principal, run: &RunKey, generation: Option<u32>) -> bool {
    if by.check_also(Scope::Operate, server).await.is_err() {
        return false;
    }
    let of_generation = match generation {
        Some(generation) => bounds::check_generation(server, &by.caller, run, generation).await,
        None => Ok(()),
    };
    of_generation.is_ok() && bounds::check_run(server, Scope::Operate, &by.caller, run).await.is_ok()
}

/// Executes an authorized verb: by the runtime, within the server's time limits, or by the server itself.
async fn carry_out(server: &Server, by: &Principal, call: Call, context: CallContext) -> Result<Reply, Problem> {
    let runtime = server.runtime();
    match call {
        Call::ListWorkers(request) => {
            let workers = server.sessions().list(runtime, &request.namespace).await?;
            Ok(Reply::ListWorkers(WorkersReply { workers }))
        }
        Call::PutAttachment(request) => {
            Ok(Reply::PutAttachment(attachments::keep(server, request.content.data().clone()).await?))
        }
        Call::DriveRun(request) => {
            let ClaimResult { head, is_given, appended, .. } = claim(server, by, ClaimPurpose::ToDrive, request).await?;
            Ok(Reply::DriveRun(DriveReply { head, is_given, appended }))
        }
        Call::ResumeAgent(ResumeAgentRequest { run, worker, signal }) => {
            let request = DriveRequest { run, worker, signal, decision: None };
            Ok(Reply::ResumeAgent(claim(server, by, ClaimPurpose::ToResume, request).await?.into()))
        }
        Call::ReadLog(request) => {
            let reply = runtime.execute(Call::ReadLog(request), context).await?;
            let Reply::ReadLog(LogPage { mut records, .. }) = reply else { return Ok(reply) };
            let more = payloads::is_long(&records) | payloads::fit(&mut records, PAGE_BYTES);
            Ok(Reply::ReadLog(LogPage { records, more }))
        }
        Call::ReadActive(request) => {
            let mut active = runtime.active(&request.run).await?;
            active.iter_mut().filter_map(|call| call.worker.as_mut()).for_each(|worker| *worker = worker.chosen_name());
            Ok(Reply::ReadActive(ActiveReply { active }))
        }
        Call::ReadTimeline(request) => {
            let sees_active = bounds::check_live(server, &by.caller, &request.run).await.is_ok();
            let mut reply = runtime.execute(Call::ReadTimeline(request), context).await?;
            if let Reply::ReadTimeline(timeline) = &mut reply {
                timeline.calls.retain(|call| sees_active || call.first_index.is_some()); // BK1
                let attempts = timeline.calls.iter_mut().flat_map(|call| &mut call.attempts);
                attempts.filter_map(|attempt| attempt.worker.as_mut()).for_each(|worker| *worker = worker.chosen_name());
            }
            Ok(reply)
        }
        Call::AwaitChange(request) => {
            let now = Call::AwaitChange(ChangeRequest { wait_ms: 0, ..request.clone() });
            tokio::select! {
                reply = runtime.execute(Call::AwaitChange(request), context.clone()) => Ok(reply?),
                () = server.closed() => Ok(runtime.execute(now, context).await?),
            }
        }
        Call::ReadStream(request) => {
            let next = request.offset.clone().unwrap_or_default();
            tokio::select! {
                reply = runtime.execute(Call::ReadStream(request), context) => Ok(reply?),
                () = server.closed() => Ok(Reply::ReadStream(StreamPage { frames: Vec::new(), next })),
            }
        }
        // The caller repeats an update without a result, with the same id.
        Call::UpdateRun(request) => tokio::select! {
            reply = runtime.execute(Call::UpdateRun(request), context) => Ok(reply?),
            () = tokio::time::sleep(WAIT_MAX) => Ok(Reply::UpdateRun(AskReply { answer: None })),
            () = server.closed() => Ok(Reply::UpdateRun(AskReply { answer: None })),
        },
        Call::QueryRun(request) => {
            let unanswered = RuntimeError::Unanswered { key: request.run.clone(), name: request.name.clone() };
            let query = runtime.execute(Call::QueryRun(request), context);
            Ok(tokio::time::timeout(WAIT_MAX, query).await.unwrap_or(Err(unanswered))?)
        }
        Call::DecideApproval(request) => decide_approval(server, request, context).await,
        call => Ok(runtime.execute(call, context).await?),
    }
}

/// Decides an approval. A decision that came too late is in no log of a run, so it is traced with its id and decider.
async fn decide_approval(server: &Server, request: DecideRequest, context: CallContext) -> Result<Reply, Problem> {
    let (approval, decide) = (request.approval.clone(), request.decide.clone());
    let decided_by = context.caller.clone().or(decide.decided_by).unwrap_or_default();
    let decided = server.runtime().execute(Call::DecideApproval(request), context).await;
    if let Err(error) = &decided
        && error.code() == ErrorCode::SignalLost
    {
        let fields: [(&str, &dyn std::fmt::Display); 5] = [
            ("approval", &approval),
            ("decision_id", &decide.decision_id),
            ("decided_by", &decided_by),
            ("approved", &decide.approved),
            ("error", error),
        ];
        server.trace().log(Level::Warn, "a decision came too late", &fields);
    }
    Ok(decided?)
}

/// Claims a run for a connected worker and delivers an input to it.
async fn claim(server: &Server, by: &Principal, purpose: ClaimPurpose, request: DriveRequest) -> Result<ClaimResult, Problem> {
    let DriveRequest { run, worker, signal, decision } = request;
    let input = input(by, signal, decision)?;
    let session = server.sessions().connected(by, &worker)?;
    Ok(session.take_up(&run, purpose, input).await?)
}

/// Authorizes and executes a claim for a worker whose session is created for this run. Returns the first frames of the session.
pub(crate) async fn claim_polled(
    server: &Server,
    by: &Principal,
    purpose: ClaimPurpose,
    request: DriveRequest,
) -> Result<(ClaimResult, Vec<ServerFrame>), Problem> {
    authorize::authorize(server, by, &mut Call::DriveRun(request.clone())).await?;
    let DriveRequest { run, worker, signal, decision } = request;
    let input = input(by, signal, decision)?;
    server.sessions().drive_polled(server, by, worker, &run, (purpose, input)).await
}

/// Returns the input that a claim delivers. The name of the credential, if it has one, is recorded as the decider (S8).
fn input(by: &Principal, signal: Option<Signal>, decision: Option<DecideRequest>) -> Result<DriveInput, Problem> {
    match (signal, decision) {
        (None, None) => Ok(DriveInput::Nothing),
        (Some(signal), None) => Ok(DriveInput::Signal(signal)),
        (None, Some(DecideRequest { approval, decide, .. })) => {
            let decided_by = by.caller.name.clone().or(decide.decided_by);
            Ok(DriveInput::Decision(CallRef::parse(&by.namespace, &approval)?, Decide { decided_by, ..decide }))
        }
        _ => Err(RequestError::MessageInvalid { why: "send a signal or a decision, not both".to_owned() }.into()),
    }
}

impl From<ClaimResult> for ResumeAgentReply {
    fn from(claimed: ClaimResult) -> ResumeAgentReply {
        let ClaimResult { head, is_given, appended, why } = claimed;
        ResumeAgentReply { success: is_given, why: why.map(|why| why.as_str().to_owned()), head, appended }
    }
}

//! What a verb acts on: a run, a call of a run, or a namespace.

use super::*;
use crate::{CallId, Namespace, RunId, RunKey};

/// The part of a request that authorization checks.
#[derive(Debug, PartialEq)]
pub enum Target<'a> {
    /// One run.
    Run(&'a RunKey),
    /// A call of a run, as `RUN~GENERATION~CALL` in a namespace.
    Call(&'a mut Namespace, &'a str),
    /// All runs of a namespace, or the given one.
    Namespace(&'a mut Namespace, Option<&'a RunKey>),
    /// Nothing that exists in a namespace.
    Nothing,
}

/// A request with a target.
pub trait HasTarget {
    fn target(&mut self) -> Target<'_>;
}

macro_rules! targets {
    ($(|$of:ident| $target:expr => $($request:ident),*;)*) => {$($(
        impl HasTarget for $request {
            fn target(&mut self) -> Target<'_> {
                let $of = self;
                $target
            }
        }
    )*)*};
}

targets! {
    |of| Target::Run(&of.run) =>
        StartRequest, RunRequest, ReasonRequest, LogRequest, EntriesRequest, AppendEntryRequest, BranchRequest, MessageRequest,
        ResumeAgentRequest, ChangeRequest, StreamRequest, SignalRequest, ResumeRequest, RetryRequest, ForkRequest, AskRequest,
        DriveRequest, ChildrenQuery, TimelineRequest, MomentRequest;
    |of| Target::Run(&of.task) => StartTaskRequest;
    |of| Target::Call(&mut of.namespace, &of.approval) => DecideRequest;
    |of| Target::Call(&mut of.namespace, &of.promise) => ResolveRequest;
    |of| Target::Call(&mut of.namespace, &of.task) => TaskRequest;
    |of| Target::Namespace(&mut of.namespace, of.run.as_ref()) => DeletedQuery, WaitQuery, TaskQuery, InvalidateMemosRequest;
    |of| Target::Namespace(&mut of.namespace, None) => RunQuery, NamespaceRequest, PutDefaultsRequest, DefaultsQuery, PutQueueRequest, QueueRequest, PutQuotaRequest, QuotaRequest, SpendQuery, CountQuery, ActivityQuery,
        PutFlowRequest, FlowQuery, DeleteFlowRequest, PutScheduleRequest, ScheduleRequest, ScheduleQuery, PauseScheduleRequest,
        TriggerScheduleRequest, BackfillScheduleRequest, SlotsRequest;
    |of| Target::Namespace(&mut of.filter.namespace, None) => BulkRequest;
    |_of| Target::Nothing => PutAttachmentRequest;
}

/// Splits `RUN~GENERATION~CALL` from the right, because a run's id may contain `~`.
pub fn split_call_ref(text: &str) -> Option<(RunId, u32, CallId)> {
    let mut parts = text.rsplitn(3, '~');
    let call_id = parts.next().and_then(CallId::parse)?;
    let generation = parts.next().and_then(|part| part.parse().ok())?;
    Some((parts.next().and_then(|part| RunId::new(part).ok())?, generation, call_id))
}

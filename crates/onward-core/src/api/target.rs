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
    ($($request:ident: |$of:ident| $target:expr;)*) => {$(
        impl HasTarget for $request {
            fn target(&mut self) -> Target<'_> {
                let $of = self;
                $target
            }
        }
    )*};
}

targets! {
    StartRequest: |of| Target::Run(&of.run);
    StartTaskRequest: |of| Target::Run(&of.task);
    RunRequest: |of| Target::Run(&of.run);
    ReasonRequest: |of| Target::Run(&of.run);
    LogRequest: |of| Target::Run(&of.run);
    EntriesRequest: |of| Target::Run(&of.run);
    AppendEntryRequest: |of| Target::Run(&of.run);
    BranchRequest: |of| Target::Run(&of.run);
    MessageRequest: |of| Target::Run(&of.run);
    ResumeAgentRequest: |of| Target::Run(&of.run);
    WatchRequest: |of| Target::Run(&of.run);
    StreamRequest: |of| Target::Run(&of.run);
    SignalRequest: |of| Target::Run(&of.run);
    ResumeRequest: |of| Target::Run(&of.run);
    RetryRequest: |of| Target::Run(&of.run);
    ForkRequest: |of| Target::Run(&of.run);
    AskRequest: |of| Target::Run(&of.run);
    DriveRequest: |of| Target::Run(&of.run);
    DecideRequest: |of| Target::Call(&mut of.namespace, &of.approval);
    ResolveRequest: |of| Target::Call(&mut of.namespace, &of.promise);
    TaskRequest: |of| Target::Call(&mut of.namespace, &of.task);
    DeletedQuery: |of| Target::Namespace(&mut of.namespace, of.run.as_ref());
    WaitQuery: |of| Target::Namespace(&mut of.namespace, of.run.as_ref());
    TaskQuery: |of| Target::Namespace(&mut of.namespace, of.run.as_ref());
    ChildrenQuery: |of| Target::Run(&of.run);
    RunQuery: |of| Target::Namespace(&mut of.namespace, None);
    NamespaceRequest: |of| Target::Namespace(&mut of.namespace, None);
    SpendQuery: |of| Target::Namespace(&mut of.namespace, None);
    BulkRequest: |of| Target::Namespace(&mut of.filter.namespace, None);
    PutAttachmentRequest: |_of| Target::Nothing;
}

/// Splits `RUN~GENERATION~CALL` from the right, because a run's id may contain `~`.
pub fn split_call_ref(text: &str) -> Option<(RunId, u32, CallId)> {
    let mut parts = text.rsplitn(3, '~');
    let call_id = parts.next().and_then(CallId::parse)?;
    let generation = parts.next().and_then(|part| part.parse().ok())?;
    Some((parts.next().and_then(|part| RunId::new(part).ok())?, generation, call_id))
}

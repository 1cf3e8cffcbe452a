//! Approvals: a question to a person with exactly one decision.

use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use onward_core::engine::Decision;
use onward_core::event::ApprovalRequested;
use onward_core::{ErrorCode, Event, Failure, Index, Payload};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::call::{Durable, PendingCall};
use super::{Ctx, name_or_misuse, payload_or_misuse, small};
use crate::Result;

impl Ctx {
    /// Requests an approval from a person. Dropping the future withdraws it.
    pub fn approval(&self, name: &str, title: impl Into<String>) -> Approval {
        let name = name_or_misuse(&self.cell, "approval", name);
        let call_id = self.cell.call("approval").engine.request_approval(name, title.into());
        let call = PendingCall::new(self.cell.clone(), "approval", call_id);
        Approval { call, answer_schema: None, decision: PhantomData }
    }
}

/// A requested approval, and the future of its decision. The decision of [`Approval::answer_schema`] has a structured answer.
#[must_use = "the decision is received when the future is awaited"]
pub struct Approval<D = Decision> {
    call: PendingCall<Decision>,
    /// The schema of the answer, if the approval requires one.
    answer_schema: Option<Payload>,
    decision: PhantomData<fn() -> D>,
}

/// The decision of an approval that requires a structured answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answered<T> {
    pub approved: bool,
    /// The answer. It is present if and only if the approval was approved.
    pub answer: Option<T>,
    pub feedback: Option<String>,
    pub decided_by: Option<String>,
    /// The deadline has passed without a decision.
    pub expired: bool,
}

/// What an approval returns: a [`Decision`], or one with a typed answer.
pub trait ApprovalDecision: sealed::OfDecision {}

mod sealed {
    pub trait OfDecision: Sized {
        fn of_decision(decision: super::Decision) -> crate::Result<Self>;
    }
}

impl ApprovalDecision for Decision {}

impl sealed::OfDecision for Decision {
    fn of_decision(decision: Decision) -> Result<Decision> {
        Ok(decision)
    }
}

impl<T: DeserializeOwned> ApprovalDecision for Answered<T> {}

impl<T: DeserializeOwned> sealed::OfDecision for Answered<T> {
    fn of_decision(decision: Decision) -> Result<Answered<T>> {
        let Decision { approved, feedback, decided_by, expired, answer } = decision;
        let answer = answer.map(|answer| answer.read()).transpose().map_err(|error| invalid_answer(&error))?;
        Ok(Answered { approved, answer, feedback, decided_by, expired })
    }
}

/// Returns the failure of an approval whose answer cannot be given to the code.
fn invalid_answer(why: &dyn std::fmt::Display) -> Failure {
    Failure::fatal(format!("the answer of the approval does not fit: {why}")).with_code(ErrorCode::AnswerInvalid)
}

impl<D: ApprovalDecision> Future for Approval<D> {
    type Output = Result<D>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<D>> {
        let decision = std::task::ready!(Pin::new(&mut self.call).poll(cx));
        Poll::Ready(decision.and_then(|decision| self.check(&decision).and_then(|()| D::of_decision(decision))))
    }
}

impl<D: ApprovalDecision> Durable for Approval<D> {
    fn ready_at(&self) -> Option<Index> {
        self.call.ready_at()
    }
}

impl<D> Approval<D> {
    fn option(self, set: impl Fn(&mut ApprovalRequested)) -> Self {
        self.call.configure(|event| {
            if let Event::ApprovalRequested(event) = event {
                set(event);
            }
        });
        self
    }

    /// Requires a structured answer: approving needs one that fits the JSON schema, and rejecting needs none. The answer is checked
    /// where it enters, and the decision refused with `answer_invalid` if it does not fit; an encrypted one is checked by the client
    /// that sends it and again here, where the approval fails with `answer_invalid`. An unusable schema fails it with
    /// `schema_invalid`. Both need the cargo feature `schema`.
    ///
    /// The schema is an option of the approval: code may change it while the approval is open, and the recorded one applies.
    pub fn answer_schema<T: DeserializeOwned>(self, schema: &impl Serialize) -> Approval<Answered<T>> {
        let cell = self.call.cell();
        let schema = payload_or_misuse(cell, "approval", schema);
        let usable = small(cell.shared.payload_bytes_max, "the schema of an answer", schema);
        let usable = usable.and_then(|schema| match onward_runtime::schema_problem(&schema) {
            None => Ok(schema),
            Some(why) => {
                Err(Failure::fatal(format!("the schema of the answer is invalid: {why}")).with_code(ErrorCode::SchemaInvalid))
            }
        });
        let approval = match &usable {
            Ok(schema) => self.option(|event| event.answer_schema = Some(schema.clone())),
            Err(failure) => {
                cell.lock().engine.withdraw_call(self.call.call_id(), failure.clone());
                self
            }
        };
        Approval { call: approval.call, answer_schema: usable.ok(), decision: PhantomData }
    }

    /// Requires a structured answer of this type; see [`Approval::answer_schema`].
    #[cfg(any(feature = "schema", feature = "agents"))]
    pub fn answer<T: DeserializeOwned + schemars::JsonSchema>(self) -> Approval<Answered<T>> {
        let settings = schemars::generate::SchemaSettings::draft2020_12().for_deserialize();
        self.answer_schema(settings.into_generator().into_root_schema_for::<T>().as_value())
    }

    /// Checks an answer that the process that recorded it could not read (AN3).
    fn check(&self, decision: &Decision) -> Result<()> {
        let Some(schema) = &self.answer_schema else { return Ok(()) };
        if !decision.approved || !self.call.cell().shared.checks_answers {
            return Ok(());
        }
        let Some(answer) = &decision.answer else { return Err(invalid_answer(&"there is none")) };
        match onward_runtime::violations_now(schema, answer) {
            Ok(violations) => violations
                .first()
                .map_or(Ok(()), |violation| Err(invalid_answer(&format_args!("{} {}", violation.path, violation.message)))),
            Err(why) => Err(invalid_answer(&why)),
        }
    }

    /// Sets a longer description for the decider.
    pub fn describe(self, description: impl Into<String>) -> Self {
        let description = description.into();
        self.option(|event| event.description = Some(description.clone()))
    }

    /// Attaches data that the decider sees. If it is too large, no approval is requested, and awaiting it fails with
    /// `payload_too_large`.
    pub fn show(self, value: &impl Serialize) -> Self {
        let cell = self.call.cell();
        let value = payload_or_misuse(cell, "approval", value);
        match small(cell.shared.payload_bytes_max, "what an approval shows", value) {
            Ok(value) => self.option(|event| event.show = Some(value.clone())),
            Err(failure) => {
                cell.lock().engine.withdraw_call(self.call.call_id(), failure);
                self
            }
        }
    }

    /// Binds the decision to a hash that is not shown. With another hash the approval is requested again.
    #[cfg(feature = "agents")]
    pub(crate) fn bound_to(self, hash: onward_core::Hash) -> Self {
        self.option(|event| event.bound_to = Some(hash))
    }

    /// Restricts who may decide; default everyone.
    pub fn deciders<S: Into<String>>(self, deciders: impl IntoIterator<Item = S>) -> Self {
        let deciders: Vec<String> = deciders.into_iter().map(Into::into).collect();
        self.option(|event| event.deciders = deciders.clone())
    }

    /// Excludes the identity that started the run, or the run above it, from deciding. Identities are names of API keys; without
    /// keys they are what callers claim.
    pub fn not_by_requester(self) -> Self {
        self.option(|event| event.not_by_requester = true)
    }

    /// Sets how long the question stays open. Afterwards the decision is not approved, with `expired` set.
    pub fn within(self, span: Duration) -> Self {
        let deadline = self.call.cell().lock().engine.now().after(span);
        self.option(|event| event.deadline = Some(deadline))
    }

    /// Returns the id under which it is decided from outside.
    pub fn id(&self) -> String {
        self.call.id()
    }
}

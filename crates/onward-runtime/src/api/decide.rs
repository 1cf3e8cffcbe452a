//! Approvals and promises: calls that accept one result from outside.
//!
//! Checks that the call exists, that its type fits, that the caller may decide it, and that a structured answer fits its schema. The store accepts the first result and
//! treats a repeat of it as success (L12).

use std::collections::BTreeMap;

use onward_core::event::{ApprovalDecided, PauseReason, PromiseResolved};
use onward_core::memo::KEY_TAKEN;
use onward_core::run::{Input, Wait, WaitKind};
use onward_core::view::{AwaitedKind, RunView};
use onward_core::{ErrorCode, Event, Failure, Index, Payload, RunKey, Status};
use onward_store::{Appended, StoreError, WaitQuery};

use crate::api::client::PAGE;
use crate::api::runs::{check_id, check_text};
use crate::schemas::answers::check_answer;
use crate::schemas::depth::check_payload;
use crate::{CallRef, Decide, Runtime, RuntimeError};

/// Ids of the results that no caller sends: when the deadline passes, when the code withdraws the call, and when the key of a
/// promise is taken.
const RESERVED_IDS: [&str; 3] = ["expired", "withdrawn", KEY_TAKEN];

/// The restrictions on who may decide an approval.
#[derive(Default)]
struct Deciders {
    /// Empty if anyone may decide.
    named: Vec<String>,
    not_by_requester: bool,
}

/// What decisions of a call must comply with.
#[derive(Default)]
struct CallRules {
    deciders: Deciders,
    /// The schema of the answer of an open approval; the outer `None` if the call is decided already.
    answer_schema: Option<Option<Payload>>,
}

impl Runtime {
    /// Decides an approval. Fails with `signal_lost` if another decision or the deadline came first.
    pub async fn decide_approval(&self, call: &CallRef, decide: Decide) -> Result<Appended, RuntimeError> {
        let approved = decide.approved;
        let input = self.decision(call, decide).await?;
        let appended = self.append(&call.run, input).await?;
        if approved {
            self.go_on_if_approved(&call.run).await?;
        }
        Ok(appended)
    }

    /// Resumes a run that was paused for renewed approvals (Z8) once all of them are approved. A repeated decision completes
    /// the resume that an earlier one left undone.
    async fn go_on_if_approved(&self, key: &RunKey) -> Result<(), RuntimeError> {
        let head = self.read_head(key).await?;
        if head.status != Status::Paused || !head.asks.is_empty() {
            return Ok(());
        }
        let pause = self.read_run(key).await?.pause;
        if pause.is_some_and(|pause| pause.reason == PauseReason::ApprovalNeeded) {
            match self.resume_run(key, None).await {
                Err(error) if error.code() == ErrorCode::RunNotPaused => {}
                resumed => drop(resumed?),
            }
        }
        Ok(())
    }

    /// Checks a decision and returns it as an input.
    pub(crate) async fn decision(&self, call: &CallRef, decide: Decide) -> Result<Input, RuntimeError> {
        let Decide { approved, feedback, decided_by, decision_id, answer } = decide;
        check_answer_id("decision id", &decision_id)?;
        check_text("feedback", feedback.as_deref().unwrap_or_default())?;
        decided_by.as_deref().map_or(Ok(()), |who| check_id("decider", who))?;
        answer.as_ref().map_or(Ok(()), check_payload)?;
        let CallRules { deciders: Deciders { named, not_by_requester }, answer_schema } =
            self.rules(call, WaitKind::Approval).await?;
        if !named.is_empty() && !decided_by.as_ref().is_some_and(|who| named.contains(who)) {
            return Err(RuntimeError::NotADecider { call: call.clone(), decided_by });
        }
        if not_by_requester {
            let head = self.read_head(&call.run).await?;
            // An unknown decider may be the requester.
            if decided_by.as_deref().is_none_or(|who| head.is_requested_by(who)) {
                return Err(RuntimeError::DecidedByRequester { call: call.clone() });
            }
        }
        // The store compares a repeated decision with the first one.
        if let Some(schema) = answer_schema {
            check_answer(call, schema.as_ref(), approved, answer.as_ref()).await?; // AN1, AN2
        }
        let call_id = call.call_id.clone();
        let event = ApprovalDecided { call_id, approved, feedback, decided_by, decision_id: decision_id.clone(), answer };
        Ok(Input::answer(event, call.generation, &call.call_id, &decision_id))
    }

    /// Resolves a promise. Fails with `signal_lost` if another resolution or the deadline came first.
    pub async fn resolve_promise(
        &self,
        call: &CallRef,
        result: Result<Payload, Failure>,
        resolution_id: &str,
    ) -> Result<Appended, RuntimeError> {
        check_answer_id("resolution id", resolution_id)?;
        result.as_ref().map_or(Ok(()), check_payload)?;
        self.rules(call, WaitKind::Promise).await?;
        let (call_id, result) = (call.call_id.clone(), result.map_err(Failure::bounded));
        let event = PromiseResolved { call_id, result, resolution_id: resolution_id.to_owned() };
        self.append(&call.run, Input::answer(event, call.generation, &call.call_id, resolution_id)).await
    }

    /// Returns true if an approval is open but abandoned: the code diverged and no longer waits for it. It stays open until the
    /// turn ends, because the code may request it again.
    async fn is_left(&self, wait: &Wait) -> Result<bool, RuntimeError> {
        if is_requested(&self.read_run(&wait.run).await?, wait) {
            return Ok(false);
        }
        // A decision may have arrived meanwhile; then the store reports that one.
        Ok(self.open_waits(&wait.run, wait.kind).await?.contains(wait))
    }

    async fn open_waits(&self, run: &RunKey, kind: WaitKind) -> Result<Vec<Wait>, StoreError> {
        let (namespace, run) = (run.namespace.clone(), Some(run.clone()));
        self.store().list_waits(WaitQuery { namespace, kind: Some(kind), run, ..WaitQuery::default() }).await
    }

    /// Returns who may decide the call, and with which answer.
    ///
    /// An open call is among the waits. Any other call may be decided already, and a repeat of that decision is no error, so
    /// the log is searched for the request.
    async fn rules(&self, call: &CallRef, kind: WaitKind) -> Result<CallRules, RuntimeError> {
        if let Some(wait) = self.open_waits(&call.run, kind).await?.into_iter().find(|wait| CallRef::from(wait) == *call) {
            if kind == WaitKind::Approval && self.is_left(&wait).await? {
                return Err(RuntimeError::WaitAbandoned { call: call.clone() });
            }
            let deciders = Deciders { named: wait.deciders, not_by_requester: wait.not_by_requester };
            return Ok(CallRules { deciders, answer_schema: Some(wait.answer_schema) });
        }
        let mut from = Index(0);
        loop {
            let records = self.store().read_log(call.run.clone(), Some(call.generation), from, PAGE).await?;
            let Some(last) = records.last() else {
                let (key, call_id) = (call.run.clone(), call.call_id.to_string());
                return Err(StoreError::WaitNotFound { key, call_id }.into());
            };
            from = last.next_index();
            for event in records.into_iter().flat_map(|record| record.events) {
                match (event, kind) {
                    (Event::ApprovalRequested(event), WaitKind::Approval) if event.call_id == call.call_id => {
                        let deciders = Deciders { named: event.deciders, not_by_requester: event.not_by_requester };
                        return Ok(CallRules { deciders, answer_schema: None });
                    }
                    (Event::PromiseCreated(event), WaitKind::Promise) if event.call_id == call.call_id => {
                        return Ok(CallRules::default());
                    }
                    _ => {}
                }
            }
        }
    }
}

/// Filter of open approvals: keeps those that the code of their run still waits for.
#[derive(Default)]
pub(crate) struct AwaitedApprovals {
    /// The runs read so far; `None` for a run whose code cannot abandon calls.
    views: BTreeMap<RunKey, Option<RunView>>,
}

impl AwaitedApprovals {
    /// Returns true if the code of the run still waits for the approval.
    pub async fn contains(&mut self, runtime: &Runtime, wait: &Wait) -> Result<bool, RuntimeError> {
        if !self.views.contains_key(&wait.run) {
            match AwaitedApprovals::read_view(runtime, &wait.run).await {
                // The run was deleted meanwhile.
                Err(RuntimeError::Store(StoreError::RunNotFound { .. })) => return Ok(false),
                view => self.views.insert(wait.run.clone(), view?),
            };
        }
        Ok(self.views[&wait.run].as_ref().is_none_or(|view| is_requested(view, wait)))
    }

    /// Reads the run only if a checkpoint precedes it. Without one it is replayed strictly and cannot abandon calls, and its
    /// log may be long.
    async fn read_view(runtime: &Runtime, run: &RunKey) -> Result<Option<RunView>, RuntimeError> {
        let first = runtime.store().read_log(run.clone(), None, Index(0), 1).await?;
        let started = first.first().and_then(|record| record.started());
        if started.is_some_and(|started| started.checkpoint.is_some()) { runtime.read_run(run).await.map(Some) } else { Ok(None) }
    }
}

/// Returns true if the run waits for the approval.
fn is_requested(view: &RunView, wait: &Wait) -> bool {
    view.awaiting.iter().any(|awaited| awaited.kind == AwaitedKind::Approval && awaited.call_id.as_ref() == Some(&wait.call_id))
}

fn check_answer_id(what: &'static str, id: &str) -> Result<(), RuntimeError> {
    check_id(what, id)?;
    if RESERVED_IDS.contains(&id) {
        return Err(RuntimeError::IdReserved { what, id: id.to_owned() });
    }
    Ok(())
}

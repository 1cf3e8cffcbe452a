//! Answers to questions that are answered exactly once: approvals and promises.
//!
//! Checks that the question exists, is of the right kind, and may be answered by this person; the store sees to it that the first
//! answer wins and that a repeat of it is no error (L12).

use std::collections::BTreeMap;

use onward_core::event::{ApprovalDecided, PauseReason, PromiseResolved};
use onward_core::run::{Input, Wait, WaitKind};
use onward_core::view::{AwaitedKind, RunView};
use onward_core::{Event, Failure, Index, Payload, RunKey, Status};
use onward_store::{Appended, StoreError, WaitQuery};

use crate::api::runs::{check_id, check_text};
use crate::schemas::depth::check_payload;
use crate::{CallId, Runtime, RuntimeError};

/// Who fills a question's slot when nobody answers: its deadline, or the code that gave it up.
const RESERVED_IDS: [&str; 2] = ["expired", "withdrawn"];

/// How many records are read at a time.
const PAGE: usize = 1_000;

/// A person's decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decide {
    pub approved: bool,
    pub feedback: Option<String>,
    /// Must be one of the deciders, where the approval names any.
    pub decided_by: Option<String>,
    /// The same id again is the same decision; another one has lost.
    pub decision_id: String,
}

/// Who may answer a question.
#[derive(Default)]
struct Deciders {
    /// None named means anybody.
    named: Vec<String>,
    not_by_requester: bool,
}

impl Runtime {
    /// Decides an approval. Fails with `signal_lost` when another decision, or the deadline, came first.
    pub async fn decide_approval(&self, call: &CallId, decide: Decide) -> Result<Appended, RuntimeError> {
        let approved = decide.approved;
        let input = self.decision(call, decide).await?;
        let appended = self.append(&call.run, input).await?;
        if approved {
            self.go_on_if_approved(&call.run).await?;
        }
        Ok(appended)
    }

    /// Resumes a run that was paused to ask again for what was approved before (Z8), once all of it is approved. A decision that is repeated
    /// finishes what one before it has not.
    async fn go_on_if_approved(&self, key: &RunKey) -> Result<(), RuntimeError> {
        let head = self.read_head(key).await?;
        if head.status != Status::Paused || !head.asks.is_empty() {
            return Ok(());
        }
        let pause = self.read_run(key).await?.pause;
        if pause.is_some_and(|pause| pause.reason == PauseReason::ApprovalNeeded) {
            match self.resume_run(key, None).await {
                Err(error) if error.code() == "run_not_paused" => {}
                resumed => drop(resumed?),
            }
        }
        Ok(())
    }

    /// The input that a decision is, checked.
    pub(crate) async fn decision(&self, call: &CallId, decide: Decide) -> Result<Input, RuntimeError> {
        let Decide { approved, feedback, decided_by, decision_id } = decide;
        check_answer_id("decision id", &decision_id)?;
        check_text("feedback", feedback.as_deref().unwrap_or_default())?;
        decided_by.as_deref().map_or(Ok(()), |who| check_id("decider", who))?;
        let Deciders { named, not_by_requester } = self.deciders(call, WaitKind::Approval).await?;
        if !named.is_empty() && !decided_by.as_ref().is_some_and(|who| named.contains(who)) {
            return Err(RuntimeError::NotADecider { call: call.clone(), decided_by });
        }
        if not_by_requester {
            let requester = self.read_head(&call.run).await?.requester;
            // Who is not known may be the requester.
            if decided_by.is_none() || decided_by == requester {
                return Err(RuntimeError::DecidedByRequester { call: call.clone() });
            }
        }
        let place = call.place.clone();
        let event = ApprovalDecided { place, approved, feedback, decided_by, decision_id: decision_id.clone() };
        Ok(Input::answer(event, call.generation, &call.place, &decision_id))
    }

    /// Resolves a promise. Fails with `signal_lost` when another resolution, or the deadline, came first.
    pub async fn resolve_promise(
        &self,
        call: &CallId,
        result: Result<Payload, Failure>,
        resolution_id: &str,
    ) -> Result<Appended, RuntimeError> {
        check_answer_id("resolution id", resolution_id)?;
        result.as_ref().map_or(Ok(()), check_payload)?;
        self.deciders(call, WaitKind::Promise).await?;
        let (place, result) = (call.place.clone(), result.map_err(Failure::bounded));
        let event = PromiseResolved { place, result, resolution_id: resolution_id.to_owned() };
        self.append(&call.run, Input::answer(event, call.generation, &call.place, resolution_id)).await
    }

    /// Whether the code has left an open question behind, on another way than the one it goes: an answer would go to nobody. It is open until
    /// its turn ends, because the code may come to ask it again.
    async fn is_left(&self, wait: &Wait) -> Result<bool, RuntimeError> {
        if is_asked(&self.read_run(&wait.run).await?, wait) {
            return Ok(false);
        }
        // Somebody may have answered it meanwhile, and then that is what is told.
        let (namespace, run) = (wait.run.namespace.clone(), Some(wait.run.clone()));
        let open = self.store().list_waits(WaitQuery { namespace, kind: Some(wait.kind), run, ..WaitQuery::default() }).await?;
        Ok(open.contains(wait))
    }

    /// Returns who may answer the question.
    ///
    /// A question that is open is found among the waits. One that is not may be answered already, and then its repeat is no error; so the
    /// log is asked, which never forgets and in which a question never changes.
    async fn deciders(&self, call: &CallId, kind: WaitKind) -> Result<Deciders, RuntimeError> {
        let (namespace, run) = (call.run.namespace.clone(), Some(call.run.clone()));
        let open = self.store().list_waits(WaitQuery { namespace, kind: Some(kind), run, ..WaitQuery::default() }).await?;
        if let Some(wait) = open.into_iter().find(|wait| CallId::from(wait) == *call) {
            if kind == WaitKind::Approval && self.is_left(&wait).await? {
                return Err(RuntimeError::QuestionLeft { call: call.clone() });
            }
            return Ok(Deciders { named: wait.deciders, not_by_requester: wait.not_by_requester });
        }
        let mut from = Index(0);
        loop {
            let records = self.store().read_log(call.run.clone(), Some(call.generation), from, PAGE).await?;
            let Some(last) = records.last() else {
                let (key, place) = (call.run.clone(), call.place.to_string());
                return Err(StoreError::WaitNotFound { key, place }.into());
            };
            from = last.next_index();
            for event in records.into_iter().flat_map(|record| record.events) {
                match (event, kind) {
                    (Event::ApprovalRequested(event), WaitKind::Approval) if event.place == call.place => {
                        return Ok(Deciders { named: event.deciders, not_by_requester: event.not_by_requester });
                    }
                    (Event::PromiseCreated(event), WaitKind::Promise) if event.place == call.place => {
                        return Ok(Deciders::default());
                    }
                    _ => {}
                }
            }
        }
    }
}

/// Which questions the runs that have asked them still wait for: what nobody could answer, nobody is asked.
#[derive(Default)]
pub(crate) struct Asking {
    /// The runs that were looked at; `None` where the code can leave nothing behind.
    views: BTreeMap<RunKey, Option<RunView>>,
}

impl Asking {
    /// Whether the code that has asked it waits for the answer: it may have gone another way since.
    pub async fn asks(&mut self, runtime: &Runtime, wait: &Wait) -> Result<bool, RuntimeError> {
        if !self.views.contains_key(&wait.run) {
            match Asking::look(runtime, &wait.run).await {
                // It was deleted meanwhile.
                Err(RuntimeError::Store(StoreError::RunNotFound { .. })) => return Ok(false),
                view => self.views.insert(wait.run.clone(), view?),
            };
        }
        Ok(self.views[&wait.run].as_ref().is_none_or(|view| is_asked(view, wait)))
    }

    /// Code that has no checkpoint behind it is replayed strictly: its log, which may be long, need not be read.
    async fn look(runtime: &Runtime, run: &RunKey) -> Result<Option<RunView>, RuntimeError> {
        let first = runtime.store().read_log(run.clone(), None, Index(0), 1).await?;
        let started = first.first().and_then(|record| record.started());
        if started.is_some_and(|started| started.checkpoint.is_some()) { runtime.read_run(run).await.map(Some) } else { Ok(None) }
    }
}

/// Whether the run waits for the answer.
fn is_asked(view: &RunView, wait: &Wait) -> bool {
    view.awaiting.iter().any(|awaited| awaited.kind == AwaitedKind::Approval && awaited.place.as_ref() == Some(&wait.place))
}

fn check_answer_id(what: &'static str, id: &str) -> Result<(), RuntimeError> {
    check_id(what, id)?;
    if RESERVED_IDS.contains(&id) {
        return Err(RuntimeError::IdReserved { what, id: id.to_owned() });
    }
    Ok(())
}

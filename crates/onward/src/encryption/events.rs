//! The payloads of events, and the context of each.
//!
//! A payload that is sent from one run to another is encoded for the context in which it is read: a child's input for the child,
//! a signal for its receiver, an outcome for the run and for the call of its parent.

use onward_core::event::{CarriedSignal, Checkpoint, ChildCompleted, ChildFailed, MemoRequested, ParentLink, UpdateReceived};
use onward_core::memo::keyed;
use onward_core::run::Commit;
use onward_core::schedule_run::schedule_of;
use onward_core::start_policy::context_of;
use onward_core::task::TaskReport;
use onward_core::{CallId, Event, Failure, Hash, Payload, Record, RunKey};

use super::{CodecError, Direction, EncryptionBoundary, Passed, PayloadContext, PayloadRuns, outcome_homes};

/// Returns the contexts of the input of a run. All runs of a schedule have the input of the schedule, and a start with a policy is
/// encrypted before its run has an id.
pub(super) fn input_contexts(runs: &[RunKey], parent: Option<&ParentLink>) -> Vec<PayloadContext> {
    let started_by = parent.and_then(|parent| match context_of(&parent.run.id) {
        Some(cell) => Some(sibling(&parent.run, &cell)),
        None => schedule_of(&parent.run.id).map(|_| parent.run.clone()),
    });
    let all: Vec<RunKey> = runs.iter().cloned().chain(started_by).collect();
    PayloadContext::of_all(&all, "input")
}

impl EncryptionBoundary {
    /// Encodes the payloads of a commit.
    pub(super) fn commit_out(&self, commit: &mut Commit, parent: Option<&ParentLink>) -> Passed {
        for event in &mut commit.events {
            self.event(Direction::Out, event, std::slice::from_ref(&commit.key), parent)?;
            self.mask(event, &commit.key);
        }
        let context = |what: &str| PayloadContext::of_all(std::slice::from_ref(&commit.key), what);
        self.signals(Direction::Out, &mut commit.carries.signals, &context("signal"))?;
        self.updates(Direction::Out, &mut commit.carries.updates, &context("update"))
    }

    /// Encodes the payloads of a task report. Costs stay plain, for the ledger.
    pub(super) fn report_out(&self, report: &mut TaskReport, contexts: &[PayloadContext]) -> Passed {
        match report {
            TaskReport::Completed(output) => self.payload(Direction::Out, output, contexts),
            TaskReport::Failed(failure) => self.failure(Direction::Out, failure, contexts),
            TaskReport::Heartbeat { progress } => self.maybe(Direction::Out, progress, contexts),
            TaskReport::Interrupted | TaskReport::NotStarted | TaskReport::WorkerLost | TaskReport::Adopted { .. } => Ok(()),
            TaskReport::Spent { report, .. } | TaskReport::BySession { report, .. } => self.report_out(report, contexts),
        }
    }

    /// Decodes the payloads of a record.
    pub(crate) fn record_in(&self, record: &mut Record, payload_runs: &PayloadRuns) -> Passed {
        let runs = payload_runs.of_record(record);
        for event in &mut record.events {
            self.mask(event, &runs[0]);
            self.event(Direction::In, event, &runs, None)?;
        }
        Ok(())
    }

    /// Encodes or decodes the payloads of an event. `runs` are the runs under which it was encoded or, if that is not known, the
    /// candidates.
    fn event(&self, direction: Direction, event: &mut Event, runs: &[RunKey], parent: Option<&ParentLink>) -> Passed {
        let run = &runs[0];
        let context = |what: &str| PayloadContext::of_all(runs, what);
        let call =
            |call_id: &CallId| -> Vec<PayloadContext> { runs.iter().map(|run| PayloadContext::of_call(run, call_id)).collect() };
        match event {
            Event::RunStarted(event) => {
                let contexts = input_contexts(runs, event.parent.as_ref());
                self.payload(direction, &mut event.input, &contexts)?;
                self.signals(direction, &mut event.mailbox, &context("signal"))?;
                self.updates(direction, &mut event.updates, &context("update"))?;
                self.checkpoint(direction, &mut event.checkpoint, &context("checkpoint"))
            }
            Event::SignalReceived(event) => self.signal(direction, &event.name, &mut event.payload, &context("signal")),
            Event::PromiseResolved(event) => self.result(direction, &mut event.result, &context("promise")),
            Event::UpdateReceived(event) => self.payload(direction, &mut event.payload, &context("update")),
            Event::UpdateAnswered(event) => self.result(direction, &mut event.result, &context("answer")),
            Event::TaskScheduled(event) => self.payload(direction, &mut event.input, &context("task")),
            Event::TaskCompleted(event) => self.payload(direction, &mut event.output, &context("report")),
            Event::TaskFailed(event) => self.failure(direction, &mut event.failure, &context("report")),
            Event::ChildStarted(event) => {
                self.payload(direction, &mut event.input, &[PayloadContext::of(&sibling(run, &event.child), "input")])
            }
            Event::ChildCompleted(ChildCompleted { child: Some(child), output, .. }) => {
                self.payload(direction, output, &[PayloadContext::of(&sibling(run, child), "outcome")])
            }
            Event::ChildFailed(ChildFailed { child: Some(child), failure, .. }) => {
                self.failure(direction, failure, &[PayloadContext::of(&sibling(run, child), "outcome")])
            }
            Event::ChildCompleted(event) => self.payload(direction, &mut event.output, &call(&event.call_id)),
            Event::ChildFailed(event) => self.failure(direction, &mut event.failure, &call(&event.call_id)),
            Event::SignalSent(event) => {
                self.payload(direction, &mut event.payload, &[PayloadContext::of(&sibling(run, &event.to), "signal")])
            }
            Event::StepCompleted(event) => {
                self.maybe(direction, &mut event.input, &context("step input"))?;
                self.payload(direction, &mut event.output, &context("step"))
            }
            Event::StepFailed(event) => {
                self.maybe(direction, &mut event.input, &context("step input"))?;
                self.failure(direction, &mut event.failure, &context("step"))
            }
            Event::MemoRequested(event) => self.memo_key(direction, event, runs),
            Event::MemoStored(event) => {
                self.payload(direction, &mut event.output, &[PayloadContext::of(&sibling(run, &event.cell), "memo")])
            }
            Event::MemoAnswered(event) => {
                let contexts = [PayloadContext::of(&sibling(run, &event.cell), "memo")];
                event.hit.iter_mut().try_for_each(|hit| self.payload(direction, &mut hit.output, &contexts))
            }
            Event::ApprovalRequested(event) => {
                self.maybe(direction, &mut event.show, &context("show"))?;
                self.maybe(direction, &mut event.answer_schema, &context("answer schema"))
            }
            Event::ApprovalDecided(event) => self.maybe(direction, &mut event.answer, &context("decision")),
            Event::StateSet(event) => self.payload(direction, &mut event.value, &context("state")),
            Event::RunContinued(event) => {
                self.payload(direction, &mut event.input, &context("input"))?;
                self.checkpoint(direction, &mut event.checkpoint, &context("checkpoint"))
            }
            Event::BranchRequested(event) => {
                event.entry.iter_mut().try_for_each(|entry| self.payload(direction, &mut entry.content, &context("entry")))?;
                self.payload(direction, &mut event.checkpoint.state, &context("checkpoint"))?;
                self.payload(direction, &mut event.input, &context("input"))
            }
            Event::EntryAppended(event) if event.quote.is_some() => Ok(()),
            Event::EntryAppended(event) => self.payload(direction, &mut event.content, &context("entry")),
            Event::RunCompleted(event) => self.payload(direction, &mut event.output, &outcome_homes(run, parent)),
            Event::RunFailed(event) => self.failure(direction, &mut event.failure, &outcome_homes(run, parent)),
            Event::RunCanceled(event) => self.failure(direction, &mut event.failure, &outcome_homes(run, parent)),
            Event::RunPaused(event) => self.pause(direction, runs, event),
            // Payloads of external engines stay as their engine wrote them.
            Event::ExternalAppended(_) => Ok(()),
            // Names, ids, times and texts for people: titles, reasons, feedback.
            other => {
                let mut payloads = 0;
                other.visit_payloads(&mut |_| payloads += 1);
                if payloads == 0 { Ok(()) } else { Err(CodecError::new(format!("payload of {} without context", other.name()))) }
            }
        }
    }

    /// Replaces the hash in a derived key by a keyed one, because small inputs could be guessed from it. Equal calls of all runs
    /// have the same keyed hash: the identity of the encrypted key, which does not depend on the run.
    fn memo_key(&self, direction: Direction, event: &mut MemoRequested, runs: &[RunKey]) -> Passed {
        let contexts = PayloadContext::of_all(runs, "memo key");
        match (direction, event.sealed_key.take()) {
            (Direction::Out, _) if event.is_derived => {
                let plain = Payload::json(&event.key).map_err(|error| CodecError::new(error.to_string()))?;
                let shared = self.codec.encode(&plain, &[PayloadContext::of_namespace(&runs[0], "memo key")])?;
                if shared.sealed_with().is_some() {
                    event.sealed_key = Some(self.codec.encode(&plain, &contexts)?);
                    event.key = keyed(&event.key, Hash::of(&shared));
                }
            }
            (Direction::In, Some(sealed)) => {
                let plain = self.open(&sealed, &contexts)?;
                event.key = plain.read().map_err(|error| CodecError::new(error.to_string()))?;
            }
            _ => {}
        }
        Ok(())
    }

    fn checkpoint(&self, direction: Direction, checkpoint: &mut Option<Box<Checkpoint>>, contexts: &[PayloadContext]) -> Passed {
        checkpoint.iter_mut().try_for_each(|checkpoint| self.payload(direction, &mut checkpoint.state, contexts))
    }

    fn signals(&self, direction: Direction, signals: &mut [CarriedSignal], contexts: &[PayloadContext]) -> Passed {
        signals.iter_mut().try_for_each(|signal| self.signal(direction, &signal.name, &mut signal.payload, contexts))
    }

    fn updates(&self, direction: Direction, updates: &mut [UpdateReceived], contexts: &[PayloadContext]) -> Passed {
        updates.iter_mut().try_for_each(|update| self.payload(direction, &mut update.payload, contexts))
    }

    /// Masks or unmasks the input hashes of calls and the hashes that decisions are bound to, each with the encoded payload of
    /// its event.
    fn mask(&self, event: &mut Event, run: &RunKey) {
        match event {
            Event::StepCompleted(event) => self.mask_one(event.input_hash.as_mut(), Some(&event.output), run, &event.call_id),
            Event::StepFailed(event) => self.mask_one(event.input_hash.as_mut(), beside(&event.failure), run, &event.call_id),
            Event::TaskScheduled(event) => self.mask_one(Some(&mut event.input_hash), Some(&event.input), run, &event.call_id),
            Event::ChildStarted(event) => self.mask_one(Some(&mut event.input_hash), Some(&event.input), run, &event.call_id),
            Event::ApprovalRequested(event) => self.mask_one(event.bound_to.as_mut(), event.show.as_ref(), run, &event.call_id),
            _ => {}
        }
    }

    fn mask_one(&self, hash: Option<&mut Hash>, beside: Option<&Payload>, run: &RunKey, call_id: &CallId) {
        if let (Some(hash), Some(beside)) = (hash, beside) {
            self.codec.mask(beside, &PayloadContext::of(run, &format!("hash {call_id}")), hash);
        }
    }
}

fn beside(failure: &Failure) -> Option<&Payload> {
    failure.details.as_deref()
}

/// Returns the key of another run; runs only exchange payloads within a namespace.
fn sibling(run: &RunKey, id: &onward_core::RunId) -> RunKey {
    RunKey::new(run.namespace.clone(), id.clone())
}

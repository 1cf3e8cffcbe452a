//! The payloads of events, and the context of each.
//!
//! A payload that is sent from one run to another is encoded for the context in which it is read: a child's input for the child,
//! a signal for its receiver, an outcome for the run and for the call of its parent.

use onward_core::event::{CarriedSignal, Checkpoint, ChildCompleted, ChildFailed, ParentLink, UpdateReceived};
use onward_core::run::Commit;
use onward_core::task::TaskReport;
use onward_core::{Event, Failure, Hash, Payload, Place, Record, RunKey};

use super::{Border, Home, Makers, Passed, Way, outcome_homes};

impl Border {
    /// Encodes the payloads of a commit.
    pub(super) fn commit_out(&self, commit: &mut Commit, parent: Option<&ParentLink>) -> Passed {
        for event in &mut commit.events {
            self.event(Way::Out, event, std::slice::from_ref(&commit.key), parent)?;
            self.mask(event, &commit.key);
        }
        let home = |what: &str| Home::of_all(std::slice::from_ref(&commit.key), what);
        self.signals(Way::Out, &mut commit.carries.signals, &home("signal"))?;
        self.updates(Way::Out, &mut commit.carries.updates, &home("update"))
    }

    /// Encodes the payloads of a task report. Costs stay plain, for the ledger.
    pub(super) fn report_out(&self, report: &mut TaskReport, homes: &[Home]) -> Passed {
        match report {
            TaskReport::Completed(output) => self.payload(Way::Out, output, homes),
            TaskReport::Failed(failure) => self.failure(Way::Out, failure, homes),
            TaskReport::Heartbeat { progress } => self.maybe(Way::Out, progress, homes),
            TaskReport::Interrupted | TaskReport::NotStarted | TaskReport::WorkerLost | TaskReport::Adopted { .. } => Ok(()),
            TaskReport::Spent { report, .. } | TaskReport::BySession { report, .. } => self.report_out(report, homes),
        }
    }

    /// Decodes the payloads of a record.
    pub(crate) fn record_in(&self, record: &mut Record, makers: &Makers) -> Passed {
        let runs = makers.of_record(record);
        for event in &mut record.events {
            self.mask(event, &runs[0]);
            self.event(Way::In, event, &runs, None)?;
        }
        Ok(())
    }

    /// Encodes or decodes the payloads of an event. `runs` are the runs under which it was encoded or, if that is not known, the
    /// candidates.
    fn event(&self, way: Way, event: &mut Event, runs: &[RunKey], parent: Option<&ParentLink>) -> Passed {
        let run = &runs[0];
        let home = |what: &str| Home::of_all(runs, what);
        let call = |place: &Place| -> Vec<Home> { runs.iter().map(|run| Home::of_call(run, place)).collect() };
        match event {
            Event::RunStarted(event) => {
                self.payload(way, &mut event.input, &home("input"))?;
                self.signals(way, &mut event.mailbox, &home("signal"))?;
                self.updates(way, &mut event.updates, &home("update"))?;
                self.checkpoint(way, &mut event.checkpoint, &home("checkpoint"))
            }
            Event::SignalReceived(event) => self.signal(way, &event.name, &mut event.payload, &home("signal")),
            Event::PromiseResolved(event) => self.result(way, &mut event.result, &home("promise")),
            Event::UpdateReceived(event) => self.payload(way, &mut event.payload, &home("update")),
            Event::UpdateAnswered(event) => self.result(way, &mut event.result, &home("answer")),
            Event::TaskScheduled(event) => self.payload(way, &mut event.input, &home("task")),
            Event::TaskCompleted(event) => self.payload(way, &mut event.output, &home("report")),
            Event::TaskFailed(event) => self.failure(way, &mut event.failure, &home("report")),
            Event::ChildStarted(event) => self.payload(way, &mut event.input, &[Home::of(&sibling(run, &event.child), "input")]),
            Event::ChildCompleted(ChildCompleted { child: Some(child), output, .. }) => {
                self.payload(way, output, &[Home::of(&sibling(run, child), "outcome")])
            }
            Event::ChildFailed(ChildFailed { child: Some(child), failure, .. }) => {
                self.failure(way, failure, &[Home::of(&sibling(run, child), "outcome")])
            }
            Event::ChildCompleted(event) => self.payload(way, &mut event.output, &call(&event.place)),
            Event::ChildFailed(event) => self.failure(way, &mut event.failure, &call(&event.place)),
            Event::SignalSent(event) => self.payload(way, &mut event.payload, &[Home::of(&sibling(run, &event.to), "signal")]),
            Event::StepCompleted(event) => self.payload(way, &mut event.output, &home("step")),
            Event::StepFailed(event) => self.failure(way, &mut event.failure, &home("step")),
            Event::ApprovalRequested(event) => self.maybe(way, &mut event.show, &home("show")),
            Event::StateSet(event) => self.payload(way, &mut event.value, &home("state")),
            Event::RunContinued(event) => {
                self.payload(way, &mut event.input, &home("input"))?;
                self.checkpoint(way, &mut event.checkpoint, &home("checkpoint"))
            }
            Event::BranchRequested(event) => {
                event.entry.iter_mut().try_for_each(|entry| self.payload(way, &mut entry.content, &home("entry")))?;
                self.payload(way, &mut event.checkpoint.state, &home("checkpoint"))?;
                self.payload(way, &mut event.input, &home("input"))
            }
            Event::EntryAppended(event) if event.quote.is_some() => Ok(()),
            Event::EntryAppended(event) => self.payload(way, &mut event.content, &home("entry")),
            Event::RunCompleted(event) => self.payload(way, &mut event.output, &outcome_homes(run, parent)),
            Event::RunFailed(event) => self.failure(way, &mut event.failure, &outcome_homes(run, parent)),
            Event::RunCanceled(event) => self.failure(way, &mut event.failure, &outcome_homes(run, parent)),
            Event::RunPaused(event) => self.pause(way, runs, event),
            // Names, ids, times, texts of people for people (titles, reasons, feedback), and events of external engines.
            Event::ExternalAppended(_)
            | Event::ApprovalDecided(_)
            | Event::TimerFired(_)
            | Event::CancelRequested(_)
            | Event::TerminateRequested(_)
            | Event::RunResumed(_)
            | Event::RetryRequested(_)
            | Event::RunForked(_)
            | Event::ResultRequested(_)
            | Event::AttributeSet(_)
            | Event::BudgetSet(_)
            | Event::TaskCanceled(_)
            | Event::TimerStarted(_)
            | Event::SignalAwaited(_)
            | Event::SignalConsumed(_)
            | Event::PromiseCreated(_)
            | Event::WaitCanceled(_)
            | Event::StateCleared(_)
            | Event::ChildCanceled(_)
            | Event::ChildAwaited(_)
            | Event::VersionChosen(_)
            | Event::TaskAttempted(_)
            | Event::TaskAttemptEnded(_)
            | Event::ChildSettled(_)
            | Event::SegmentAbandoned(_)
            | Event::CallAdopted(_)
            | Event::RunSuspended(_) => Ok(()),
        }
    }

    fn checkpoint(&self, way: Way, checkpoint: &mut Option<Box<Checkpoint>>, homes: &[Home]) -> Passed {
        checkpoint.iter_mut().try_for_each(|checkpoint| self.payload(way, &mut checkpoint.state, homes))
    }

    fn signals(&self, way: Way, signals: &mut [CarriedSignal], homes: &[Home]) -> Passed {
        signals.iter_mut().try_for_each(|signal| self.signal(way, &signal.name, &mut signal.payload, homes))
    }

    fn updates(&self, way: Way, updates: &mut [UpdateReceived], homes: &[Home]) -> Passed {
        updates.iter_mut().try_for_each(|update| self.payload(way, &mut update.payload, homes))
    }

    /// Masks or unmasks the input hashes of calls and the hashes that decisions are bound to, each with the encoded payload of
    /// its event.
    fn mask(&self, event: &mut Event, run: &RunKey) {
        match event {
            Event::StepCompleted(event) => self.mask_one(event.input_hash.as_mut(), Some(&event.output), run, &event.place),
            Event::StepFailed(event) => self.mask_one(event.input_hash.as_mut(), beside(&event.failure), run, &event.place),
            Event::TaskScheduled(event) => self.mask_one(Some(&mut event.input_hash), Some(&event.input), run, &event.place),
            Event::ChildStarted(event) => self.mask_one(Some(&mut event.input_hash), Some(&event.input), run, &event.place),
            Event::ApprovalRequested(event) => self.mask_one(event.bound_to.as_mut(), event.show.as_ref(), run, &event.place),
            _ => {}
        }
    }

    fn mask_one(&self, hash: Option<&mut Hash>, beside: Option<&Payload>, run: &RunKey, place: &Place) {
        if let (Some(hash), Some(beside)) = (hash, beside) {
            self.codec.mask(beside, &Home::of(run, &format!("hash {place}")), hash);
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

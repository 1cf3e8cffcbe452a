//! The parts of requests and replies that hold data of users, with the context in which each is read.
//!
//! A client that encrypts visits them: everything else in a message stays readable for the server. The match over the verbs is
//! exhaustive, so that a new verb cannot send plain data by omission.

use super::*;
use crate::live::{ActiveCall, LiveContent, LiveFrame};
use crate::run::schedule::schedule_key;
use crate::timeline::{CallType, TimelineCall};
use crate::{Failure, Payload, RunKey};

/// A part of a message that holds data of users.
pub enum PayloadMut<'a> {
    Payload(&'a mut Payload),
    Failure(&'a mut Failure),
}

/// Is called with each payload, its run, the generation of the log that has it if it may be copied from another run, and the
/// contexts in which it is read.
pub type Visit<'v, E> = dyn FnMut(PayloadMut<'_>, &RunKey, Option<u32>, &[&str]) -> Result<(), E> + 'v;

fn of_result<'a>(result: &'a mut Result<Payload, Failure>) -> PayloadMut<'a> {
    match result {
        Ok(payload) => PayloadMut::Payload(payload),
        Err(failure) => PayloadMut::Failure(failure),
    }
}

impl Call {
    /// Visits the payloads of the request.
    ///
    /// # Errors
    /// Those of `visit`, and `E` from a text if the request does not name its run.
    pub fn visit_payloads<E: From<String>>(&mut self, visit: &mut Visit<'_, E>) -> Result<(), E> {
        let signal = |signal: &mut Signal, run: &RunKey, visit: &mut Visit<'_, E>| {
            visit(PayloadMut::Payload(&mut signal.payload), run, None, &["signal"])
        };
        use Call::*;
        match self {
            StartRun(request) => {
                visit(PayloadMut::Payload(&mut request.input), &request.run, None, &["input"])?;
                request.signal.iter_mut().try_for_each(|with| signal(with, &request.run, visit))
            }
            // Read by clients of the run and by the worker that executes the task.
            StartTask(request) => visit(PayloadMut::Payload(&mut request.input), &request.task, None, &["input", "task"]),
            AppendEntry(request) => visit(PayloadMut::Payload(&mut request.entry.content), &request.run, None, &["signal"]),
            BranchRun(request) => {
                let entry = request.branch.entry.as_mut();
                entry.map_or(Ok(()), |entry| visit(PayloadMut::Payload(&mut entry.content), &request.run, None, &["entry"]))
            }
            SendMessage(request) => visit(PayloadMut::Payload(&mut request.content), &request.run, None, &["signal"]),
            SignalRun(request) => signal(&mut request.signal, &request.run, visit),
            DriveRun(request) => {
                request.signal.iter_mut().try_for_each(|with| signal(with, &request.run, visit))?;
                request.decision.iter_mut().try_for_each(|decision| visit_decision(decision, visit))
            }
            DecideApproval(request) => visit_decision(request, visit),
            ResumeAgent(request) => request.signal.iter_mut().try_for_each(|with| signal(with, &request.run, visit)),
            UpdateRun(request) => visit(PayloadMut::Payload(&mut request.payload), &request.run, None, &["update"]),
            QueryRun(request) => visit(PayloadMut::Payload(&mut request.payload), &request.run, None, &["query"]),
            ResolvePromise(request) => {
                let (id, ..) = split_call_ref(&request.promise)
                    .ok_or_else(|| E::from(format!("`{}` is not the id of a promise", request.promise)))?;
                let run = RunKey::new(request.namespace.clone(), id);
                visit(of_result(&mut request.result), &run, None, &["promise"])
            }
            PutSchedule(request) => match schedule_key(request.namespace.clone(), &request.schedule) {
                // A template, too: the server refuses it then, instead of storing what the caller expects to be encrypted.
                Some(run) => visit(PayloadMut::Payload(&mut request.definition.target.input), &run, None, &["input"]),
                None => Ok(()),
            },
            // Attachments are read by the server, which passes them to models; flows are executed by it.
            PutAttachment(_) | ReadRun(_) | ReadTask(_) | CancelTask(_) | ReadBlockers(_) | ListDeleted(_) | ReadLog(_)
            | ReadEntries(_) | AwaitChange(_) | ReadActive(_) | ReadStream(_) | ListRuns(_) | ListChildren(_)
            | ListVersions(_) | ReadSpend(_) | CancelRun(_) | TerminateRun(_) | PauseRun(_) | ResumeRun(_) | RetryRun(_)
            | ForkRun(_) | ResetRun(_) | BulkRuns(_) | BulkDelete(_) | DeleteRun(_) | ListApprovals(_) | ListWorkers(_)
            | ListQuarantined(_) | RetryTask(_) | ListQueues(_) | ReadTimeline(_) | ReadAt(_) | CountRuns(_)
            | ReadActivity(_) | PutFlow(_) | ListFlows(_) | DeleteFlow(_) | PutDefaults(_) | ListDefaults(_)
            | InvalidateMemos(_) | ReadQueue(_) | PutQueue(_) | DeleteQueue(_) | ReadQuota(_) | PutQuota(_) | DeleteQuota(_)
            | ReadSchedule(_) | ListSchedules(_) | DeleteSchedule(_) | PauseSchedule(_) | ResumeSchedule(_)
            | TriggerSchedule(_) | BackfillSchedule(_) | ListSlots(_) => Ok(()),
        }
    }
}

/// Visits the answer of a decision.
fn visit_decision<E: From<String>>(request: &mut DecideRequest, visit: &mut Visit<'_, E>) -> Result<(), E> {
    let Some(answer) = &mut request.decide.answer else { return Ok(()) };
    let (id, ..) = split_call_ref(&request.approval)
        .ok_or_else(|| E::from(format!("`{}` is not the id of an approval", request.approval)))?;
    visit(PayloadMut::Payload(answer), &RunKey::new(request.namespace.clone(), id), None, &["decision"])
}

/// Visits the payloads of a call that is under way.
fn visit_active<E>(call: &mut ActiveCall, run: &RunKey, visit: &mut Visit<'_, E>) -> Result<(), E> {
    let generation = Some(call.generation);
    call.input.iter_mut().try_for_each(|part| visit(PayloadMut::Payload(part), run, generation, &["step"]))?;
    call.progress.iter_mut().try_for_each(|part| visit(PayloadMut::Payload(part), run, generation, &["report"]))
}

impl LiveFrame {
    /// Visits the payloads of the frame about `run`. Records are not visited: their events list their own payloads.
    pub fn visit_payloads<E>(&mut self, run: &RunKey, visit: &mut Visit<'_, E>) -> Result<(), E> {
        if let LiveContent::Snapshot(snapshot) = &mut self.content {
            return snapshot.active.iter_mut().try_for_each(|call| visit_active(call, run, visit));
        }
        let mut one = |part: PayloadMut<'_>, generation, name| visit(part, run, generation, &[name]);
        match &mut self.content {
            LiveContent::StepStarted(started) => {
                let generation = Some(started.generation);
                started.step.input.iter_mut().try_for_each(|part| one(PayloadMut::Payload(part), generation, "step"))
            }
            LiveContent::StepAttemptFailed(failed) => {
                one(PayloadMut::Failure(&mut failed.failure), Some(failed.generation), "step")
            }
            LiveContent::StateChanged(changed) => {
                let generation = Some(changed.generation);
                changed.value.iter_mut().try_for_each(|part| one(PayloadMut::Payload(part), generation, "state"))
            }
            LiveContent::TaskProgress(progress) => {
                one(PayloadMut::Payload(&mut progress.progress), Some(progress.generation), "report")
            }
            LiveContent::Emitted(emitted) => {
                one(PayloadMut::Payload(&mut emitted.value), None, "emitted")?;
                emitted.meta.iter_mut().try_for_each(|part| one(PayloadMut::Payload(part), None, "emitted"))
            }
            LiveContent::End(end) => end.outcome.iter_mut().try_for_each(|part| one(of_result(part), None, "outcome")),
            LiveContent::Snapshot(_)
            | LiveContent::Log(_)
            | LiveContent::TaskStarted(_)
            | LiveContent::Blocked(_)
            | LiveContent::Dropped(_) => Ok(()),
        }
    }
}

impl Reply {
    /// Visits the payloads of the reply to a call about `run`. Records, entries and frames are not visited: their events list
    /// their own payloads.
    pub fn visit_payloads<E>(&mut self, run: Option<&RunKey>, visit: &mut Visit<'_, E>) -> Result<(), E> {
        match (self, run) {
            (Reply::ReadTask(view), _) => {
                let run = view.head.key.clone();
                visit(PayloadMut::Payload(&mut view.input), &run, None, &["input"])?;
                view.progress.iter_mut().try_for_each(|part| visit(PayloadMut::Payload(part), &run, None, &["report"]))?;
                view.last_failure.iter_mut().try_for_each(|part| visit(PayloadMut::Failure(part), &run, None, &["report"]))?;
                view.outcome.iter_mut().try_for_each(|part| visit(of_result(part), &run, None, &["outcome"]))
            }
            (Reply::ReadActive(reply), Some(run)) => reply.active.iter_mut().try_for_each(|call| visit_active(call, run, visit)),
            (Reply::AwaitChange(reply), Some(run)) => {
                reply.outcome.iter_mut().try_for_each(|part| visit(of_result(part), run, None, &["outcome"]))
            }
            (Reply::UpdateRun(reply), Some(run)) => {
                reply.answer.iter_mut().try_for_each(|part| visit(of_result(part), run, None, &["answer"]))
            }
            (Reply::QueryRun(reply), Some(run)) => {
                reply.answer.iter_mut().try_for_each(|part| visit(of_result(part), run, None, &["query"]))
            }
            (Reply::ReadTimeline(timeline), Some(run)) => {
                let generation = timeline.generation;
                timeline.calls.iter_mut().try_for_each(|call| visit_call(call, run, generation, visit))
            }
            (Reply::ListApprovals(reply), _) => reply.waits.iter_mut().try_for_each(|wait| {
                let (run, generation) = (wait.run.clone(), wait.generation);
                let parts = [(&mut wait.show, "show"), (&mut wait.answer_schema, "answer schema")];
                parts
                    .into_iter()
                    .filter_map(|(part, context)| Some((part.as_mut()?, context)))
                    .try_for_each(|(part, context)| visit(PayloadMut::Payload(part), &run, Some(generation), &[context]))
            }),
            (Reply::PutSchedule(reply), _) => visit_schedule(&mut reply.schedule, visit),
            (Reply::ReadSchedule(view) | Reply::PauseSchedule(view) | Reply::ResumeSchedule(view), _) => {
                visit_schedule(view, visit)
            }
            (Reply::BackfillSchedule(view), _) => visit_schedule(view, visit),
            (Reply::ListSchedules(reply), _) => reply.schedules.iter_mut().try_for_each(|view| visit_schedule(view, visit)),
            (Reply::ListQuarantined(reply), _) => reply.tasks.iter_mut().try_for_each(|task| {
                let (run, generation) = (task.id.run.clone(), task.id.generation);
                visit(PayloadMut::Payload(&mut task.input), &run, Some(generation), &["task"])
            }),
            _ => Ok(()),
        }
    }
}

/// Visits the input of the runs of a schedule.
fn visit_schedule<E>(view: &mut ScheduleView, visit: &mut Visit<'_, E>) -> Result<(), E> {
    let run = view.run();
    visit(PayloadMut::Payload(&mut view.definition.target.input), &run, None, &["input"])
}

/// Visits the payloads of a call. Those of a child are read in the context of its run.
fn visit_call<E>(call: &mut TimelineCall, run: &RunKey, generation: u32, visit: &mut Visit<'_, E>) -> Result<(), E> {
    let child = call.child.clone().map(|id| RunKey::new(run.namespace.clone(), id));
    let (of, generation) = child.as_ref().map_or((run, Some(generation)), |child| (child, None));
    if let Some(input) = &mut call.input {
        let context = match call.r#type {
            CallType::Child => "input",
            CallType::Step => "step input",
            _ => "task",
        };
        visit(PayloadMut::Payload(input), of, generation, &[context])?;
    }
    let context = match call.r#type {
        CallType::Child => "outcome",
        CallType::Step => "step",
        CallType::Promise => "promise",
        CallType::Update => "answer",
        _ => "report",
    };
    let mut failures = call.attempts.iter_mut().filter_map(|attempt| attempt.failure.as_mut());
    failures.try_for_each(|failure| visit(PayloadMut::Failure(failure), of, generation, &[context]))
}

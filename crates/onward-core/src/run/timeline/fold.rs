//! The fold from records to the lines of a timeline.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{CallStatus, CallType, Calls, INPUT_BYTES_MAX, TimelineCall};
use crate::log::event::{
    AttemptRan, ChildAgain, MemoAnswered, RunStarted, StepCompleted, StepFailed, TaskAttemptEnded, TaskScheduled, UpdateReceived,
};
use crate::run::ancestry::Ancestry;
use crate::run::memo::MemoCallType;
use crate::run::view::AbandonedCommits;
use crate::{CallId, Event, Failure, Index, Name, Payload, Record, RunId, RunKey, Timestamp};

/// Collects the calls of a log.
pub(super) fn fold(key: &RunKey, records: &[Record]) -> Calls {
    let abandoned = AbandonedCommits::of(records.iter());
    let started = records.first().and_then(Record::started).filter(|started| !started.origins.is_empty());
    let mut fold = Fold { ancestry: started.map(|started| Ancestry::new(key, started)), ..Fold::default() };
    for record in records {
        fold.is_abandoned = abandoned.has(record);
        fold.at = record.at;
        for (index, event) in record.indexed() {
            fold.index = index;
            fold.take(event);
        }
        fold.last_at = record.at;
    }
    fold.finish()
}

#[derive(Default)]
struct Fold {
    calls: Vec<TimelineCall>,
    lines: BTreeMap<CallId, usize>,
    updates: BTreeMap<String, usize>,
    /// The lines of spawned children, which outlive the generation.
    spawned: BTreeMap<RunId, usize>,
    ancestry: Option<Ancestry>,
    generation: u32,
    is_task: bool,
    paused_at: Option<Timestamp>,
    /// The current event is in an abandoned commit.
    is_abandoned: bool,
    index: Index,
    at: Timestamp,
    /// The time of the record before.
    last_at: Timestamp,
}

impl Fold {
    fn take(&mut self, event: &Event) {
        match event {
            Event::RunStarted(event) => self.start(event),
            Event::UpdateReceived(event) => self.receive_update(event),
            Event::RunPaused(event) => {
                self.paused_at.get_or_insert(self.at);
                for call_id in &event.asks {
                    if let Some(line) = self.line(call_id) {
                        (line.status, line.ended_at, line.deadline) = (CallStatus::Waiting, None, None);
                    }
                }
            }
            Event::RunResumed(_) => {
                let pause = self.paused_at.take().map(|paused| self.at.since(paused)).unwrap_or_default();
                self.calls.iter_mut().for_each(|line| line.shift(pause));
            }
            Event::RetryRequested(event) => self.go_on(&event.children),
            Event::RunForked(event) => self.go_on(&event.children),
            Event::CallAdopted(event) if !self.is_abandoned => {
                let Some(&line) = self.lines.get(&event.from) else { return };
                self.lines.insert(event.call_id.clone(), line); // TI1
                let line = &mut self.calls[line];
                (line.call_id, line.abandoned) = (event.call_id.to_string(), false);
            }
            event if event.ends_log() => self.end_log(event),
            event => {
                self.take_request(event);
                self.take_answer(event);
            }
        }
    }

    /// Takes an event that opens a call.
    fn take_request(&mut self, event: &Event) {
        use CallStatus::{Running, Waiting};
        match event {
            Event::MemoRequested(event) => {
                let of_type = match event.of_type {
                    MemoCallType::Step => CallType::Step,
                    MemoCallType::Task => CallType::of_task(&event.name),
                    MemoCallType::Promise => CallType::Promise,
                };
                self.open(&event.call_id, of_type, Some(&event.name), Waiting);
            }
            Event::TaskScheduled(event) => {
                self.queue_task(event);
                self.set_input(&event.call_id, Some(&event.input));
            }
            Event::TimerStarted(event) => self.wait(&event.call_id, CallType::Timer, None, Some(event.due_at)),
            Event::SignalAwaited(event) => self.wait(&event.call_id, CallType::Signal, Some(&event.name), event.deadline),
            Event::ApprovalRequested(event) => self.wait(&event.call_id, CallType::Approval, Some(&event.name), event.deadline),
            Event::PromiseCreated(event) => self.wait(&event.call_id, CallType::Promise, Some(&event.name), event.deadline),
            Event::SignalConsumed(event) if !self.lines.contains_key(&event.call_id) => {
                self.open(&event.call_id, CallType::Signal, Some(&event.name), Waiting); // it was in the mailbox already
            }
            Event::ChildStarted(event) => {
                self.open(&event.call_id, CallType::Child, Some(&event.kind), Running);
                self.set_input(&event.call_id, Some(&event.input));
                self.name_child(&event.call_id, &event.child);
                if let Some(line) = self.lines.get(&event.call_id).filter(|_| event.is_spawned) {
                    self.spawned.insert(event.child.clone(), *line);
                }
            }
            Event::ChildAwaited(event) => {
                let kind = self.spawned.get(&event.child).and_then(|line| self.calls[*line].name.clone());
                self.open(&event.call_id, CallType::Child, kind.as_ref(), Waiting);
                self.name_child(&event.call_id, &event.child);
            }
            _ => {}
        }
    }

    /// Takes an event about a call that is open.
    fn take_answer(&mut self, event: &Event) {
        use CallStatus::{Canceled, Completed};
        match event {
            Event::StepCompleted(event) => self.step_completed(event),
            Event::StepFailed(event) => self.step_failed(event),
            Event::TaskAttempted(event) => {
                let at = event.began_at.unwrap_or(self.at);
                if let Some(line) = self.line(&event.call_id) {
                    line.started_at.get_or_insert(at);
                    line.status = CallStatus::Running;
                    line.attempt(event.attempt).started_at.get_or_insert(at);
                }
            }
            Event::TaskAttemptEnded(event) => self.attempt_ended(event),
            Event::TaskCompleted(event) => {
                self.task_ran(&event.call_id, event.attempts, event.ran.as_ref());
                self.end(&event.call_id, Completed);
            }
            Event::TaskFailed(event) => {
                self.task_ran(&event.call_id, event.attempts, event.ran.as_ref());
                self.fail(&event.call_id, event.attempts, &event.failure);
            }
            Event::TimerFired(event) => self.timer_fired(&event.call_id),
            Event::MemoAnswered(event) => self.memo_answered(event),
            Event::MemoReleased(event) => self.memo_released(&event.call_id),
            Event::SignalConsumed(event) => self.end(&event.call_id, Completed),
            Event::ApprovalDecided(event) => self.end(&event.call_id, Completed),
            Event::PromiseResolved(event) => self.settle(&event.call_id, event.result.as_ref().err()),
            Event::ChildCompleted(event) => self.child_ended(&event.call_id, event.child.as_ref(), None),
            Event::ChildFailed(event) => self.child_ended(&event.call_id, event.child.as_ref(), Some(&event.failure)),
            Event::ChildSettled(event) => self.spawned_ended(&event.child, Completed),
            Event::TaskCanceled(event) => self.end(&event.call_id, Canceled),
            Event::ChildCanceled(event) => self.end(&event.call_id, Canceled),
            Event::WaitCanceled(event) => self.end(&event.call_id, Canceled),
            Event::UpdateAnswered(event) => {
                let Some(line) = self.updates.get(&event.update_id).copied() else { return };
                self.end_line(line, event.result.as_ref().err());
            }
            _ => {}
        }
    }

    fn start(&mut self, started: &RunStarted) {
        self.generation = started.generation;
        started.updates.iter().for_each(|update| self.receive_update(update));
        if let Some(task) = &started.task {
            self.is_task = true;
            self.open(&CallId::root(0), CallType::of_task(&task.kind), Some(&task.kind), CallStatus::Queued);
        }
    }

    fn add(&mut self, call_id: String, r#type: CallType, name: Option<&Name>, status: CallStatus) -> usize {
        let started_at = (status != CallStatus::Queued).then_some(self.at);
        self.calls.push(TimelineCall {
            call_id,
            r#type,
            name: name.cloned(),
            status,
            queued_at: (status == CallStatus::Queued).then_some(self.at),
            started_at,
            ended_at: None,
            attempts: Vec::new(),
            first_index: Some(self.index),
            last_index: Some(self.index),
            child: None,
            deadline: None,
            input: None,
            abandoned: self.is_abandoned,
            memo_from: None,
        });
        self.calls.len() - 1
    }

    fn open(&mut self, call_id: &CallId, r#type: CallType, name: Option<&Name>, status: CallStatus) {
        let line = self.add(call_id.to_string(), r#type, name, status);
        self.lines.insert(call_id.clone(), line);
    }

    fn wait(&mut self, call_id: &CallId, r#type: CallType, name: Option<&Name>, deadline: Option<Timestamp>) {
        self.open(call_id, r#type, name, CallStatus::Waiting);
        if let Some(line) = self.line(call_id) {
            line.deadline = deadline;
        }
    }

    fn receive_update(&mut self, update: &UpdateReceived) {
        let line = self.add(update.update_id.clone(), CallType::Update, Some(&update.name), CallStatus::Waiting);
        self.updates.insert(update.update_id.clone(), line);
    }

    /// Returns the line of the call that the current event is about. An abandoned event does not change calls before it.
    fn line(&mut self, call_id: &CallId) -> Option<&mut TimelineCall> {
        let line = self.lines.get(call_id).map(|line| &mut self.calls[*line])?;
        let line = Some(line).filter(|line| line.abandoned || !self.is_abandoned)?;
        line.last_index = Some(self.index);
        Some(line)
    }

    fn set_input(&mut self, call_id: &CallId, input: Option<&Payload>) {
        let input = input.filter(|input| input.data().len() <= INPUT_BYTES_MAX);
        if let Some((line, input)) = self.line(call_id).zip(input) {
            line.input = Some(input.clone());
        }
    }

    fn name_child(&mut self, call_id: &CallId, child: &RunId) {
        if let Some(line) = self.line(call_id) {
            line.child = Some(child.clone());
        }
    }

    fn end(&mut self, call_id: &CallId, status: CallStatus) {
        let at = self.at;
        if let Some(line) = self.line(call_id) {
            line.end(status, at);
        }
    }

    /// Records a failed attempt, which is final unless it was set aside.
    fn fail(&mut self, call_id: &CallId, attempt: u32, failure: &Failure) {
        let (at, is_set_aside) = (self.at, self.is_set_aside());
        let Some(line) = self.line(call_id) else { return };
        let failed = line.attempt(attempt);
        (failed.ended_at, failed.failure) = (Some(at), Some(failure.clone()));
        match is_set_aside {
            true => line.status = CallStatus::Retrying,
            false => line.end(CallStatus::Failed, at),
        }
    }

    fn settle(&mut self, call_id: &CallId, failure: Option<&Failure>) {
        match failure {
            Some(failure) => self.fail(call_id, 1, failure),
            None => self.end(call_id, CallStatus::Completed),
        }
    }

    fn end_line(&mut self, line: usize, failure: Option<&Failure>) {
        let line = &mut self.calls[line];
        line.last_index = Some(self.index);
        if let Some(failure) = failure {
            line.attempt(1).failure = Some(failure.clone());
        }
        line.end(if failure.is_some() { CallStatus::Failed } else { CallStatus::Completed }, self.at);
    }

    /// Returns true if the current event is a failure that a retry has set aside: its call is executed again.
    fn is_set_aside(&self) -> bool {
        self.ancestry.as_ref().is_some_and(|ancestry| ancestry.is_set_aside(self.index))
    }

    /// Adds an attempt to the line of a step, which begins with its first result.
    fn step_line(&mut self, call_id: &CallId, name: &Name, input: Option<&Payload>, attempt: u32, took_ms: u64) {
        let (at, began) = (self.at, self.at.before(Duration::from_millis(took_ms)));
        if !self.lines.contains_key(call_id) {
            self.open(call_id, CallType::Step, Some(name), CallStatus::Running);
            if let Some(line) = self.calls.last_mut() {
                line.started_at = Some(began);
            }
        }
        self.set_input(call_id, input);
        if let Some(line) = self.line(call_id) {
            let attempt = line.add_attempt(attempt);
            (attempt.started_at, attempt.ended_at) = (Some(began), Some(at));
        }
    }

    fn step_completed(&mut self, event: &StepCompleted) {
        self.step_line(&event.call_id, &event.name, event.input.as_ref(), event.attempt, event.took_ms);
        self.end(&event.call_id, CallStatus::Completed);
    }

    fn step_failed(&mut self, event: &StepFailed) {
        self.step_line(&event.call_id, &event.name, event.input.as_ref(), event.attempt, event.took_ms);
        let Some(retry_at) = event.retry_at else { return self.fail(&event.call_id, event.attempt, &event.failure) };
        if let Some(line) = self.line(&event.call_id) {
            line.attempt(event.attempt).failure = Some(event.failure.clone());
            (line.status, line.deadline) = (CallStatus::Retrying, Some(retry_at));
        }
    }

    /// Queues a task, on the line of its memo if it has one.
    fn queue_task(&mut self, event: &TaskScheduled) {
        let at = self.at;
        match self.line(&event.call_id) {
            Some(line) => (line.status, line.queued_at, line.started_at) = (CallStatus::Queued, Some(at), None),
            None => self.open(&event.call_id, CallType::of_task(&event.kind), Some(&event.kind), CallStatus::Queued),
        }
    }

    fn memo_answered(&mut self, event: &MemoAnswered) {
        let at = self.at;
        let Some(line) = self.line(&event.call_id).filter(|line| line.status.is_open()) else { return };
        match &event.hit {
            Some(hit) => {
                line.memo_from = Some(hit.from.clone());
                line.end(CallStatus::Completed, at);
            }
            None if line.r#type == CallType::Step => line.status = CallStatus::Running,
            None if line.r#type == CallType::Promise => {} // it has its key
            None => line.status = CallStatus::Queued,
        }
    }

    /// Ends a call that was dropped while it waited for its memo.
    fn memo_released(&mut self, call_id: &CallId) {
        let at = self.at;
        if let Some(line) = self.line(call_id).filter(|line| line.status == CallStatus::Waiting) {
            line.end(CallStatus::Canceled, at);
        }
    }

    fn timer_fired(&mut self, call_id: &CallId) {
        let at = self.at;
        let Some(line) = self.line(call_id) else { return };
        match line.r#type {
            CallType::Timer => line.end(CallStatus::Completed, at),
            CallType::Step => (line.status, line.deadline) = (CallStatus::Running, None),
            _ => line.end(CallStatus::Failed, at),
        }
    }

    fn task_ran(&mut self, call_id: &CallId, attempt: u32, ran: Option<&AttemptRan>) {
        let at = self.at;
        let Some(line) = self.line(call_id) else { return };
        if let Some(ran) = ran {
            line.started_at.get_or_insert(ran.started_at);
            let attempt = line.attempt(attempt);
            (attempt.started_at, attempt.worker) = (Some(ran.started_at), ran.worker.clone());
        }
        line.attempt(attempt).ended_at = Some(at);
    }

    /// Takes the cost of an attempt. Alone in its record, it is that of a failed or lost attempt.
    fn attempt_ended(&mut self, event: &TaskAttemptEnded) {
        let (at, is_own) = (self.at, event.generation == self.generation);
        let Some(line) = self.line(&event.call_id).filter(|line| is_own && line.status.is_open()) else { return };
        line.started_at.get_or_insert(event.began_at);
        let attempt = line.attempt(event.attempt);
        (attempt.started_at, attempt.ended_at) = (Some(event.began_at), Some(at));
        if let Some(code) = &event.failure_code {
            attempt.failure = Some(Failure::new(code.as_str(), "the attempt failed"));
        }
        line.status = CallStatus::Retrying;
    }

    fn child_ended(&mut self, call_id: &CallId, child: Option<&RunId>, failure: Option<&Failure>) {
        self.settle(call_id, failure);
        if let Some(child) = child {
            self.spawned_ended(child, if failure.is_some() { CallStatus::Failed } else { CallStatus::Completed });
        }
    }

    fn spawned_ended(&mut self, child: &RunId, status: CallStatus) {
        if let Some(line) = self.spawned.get(child).map(|line| &mut self.calls[*line]).filter(|line| line.status.is_open()) {
            line.end(status, self.at);
        }
    }

    /// Continues the log after a gap: deadlines move by its length.
    fn go_on(&mut self, children: &[ChildAgain]) {
        let gap = self.at.since(self.last_at);
        self.calls.iter_mut().for_each(|line| line.shift(gap));
        children.iter().for_each(|again| self.name_child(&again.call_id, &again.child));
    }

    /// Ends the calls that are open at the end of the log (TI2). The end of a standalone task is that of its run.
    fn end_log(&mut self, event: &Event) {
        let task = CallId::root(0);
        match event {
            Event::RunCompleted(event) if self.is_task => {
                self.task_ran(&task, event.attempts.unwrap_or(1), None);
                self.end(&task, CallStatus::Completed);
            }
            Event::RunFailed(event) if self.is_task => self.fail(&task, event.attempts.unwrap_or(1), &event.failure),
            _ => {}
        }
        let spawned: BTreeSet<usize> = self.spawned.values().copied().collect();
        for (number, line) in self.calls.iter_mut().enumerate() {
            if line.status.is_open() && !line.abandoned && !spawned.contains(&number) {
                line.end(CallStatus::Canceled, self.at);
            }
        }
    }

    fn finish(mut self) -> Calls {
        for line in self.calls.iter_mut().filter(|line| line.abandoned && line.status.is_open()) {
            line.status = CallStatus::Abandoned;
        }
        Calls { calls: self.calls, lines: self.lines }
    }
}

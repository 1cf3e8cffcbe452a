//! A readable view of a run: its status, what it waits for, its result.
//!
//! Owns the fold from records to a [`RunView`]. Must never contain more than the log does (L16): a view can be dropped and
//! rebuilt at any time. Only the head comes from the store, because only the store knows the lease.
//!
//! Invariants:
//! - VI1: a fold stops where its head stops, so a view shows the run at one moment, even while its log grows.
//! - VI2 (L13): in a closed run, every received signal was consumed, was carried into the next generation, or is undelivered.
//! - VI3: a closed run awaits nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::agent::conversation::{AGENT_STOP, DONE};
use crate::log::event::{CarriedSignal, ChildAgain, RunPaused, UpdateReceived};
use crate::run::ancestry::Ancestry;
use crate::run::delayed_start::start_call;
use crate::{AttributeValue, CallId, Event, Failure, Index, Name, Payload, Record, RunHead, RunId, RunKey, Status, Timestamp};
use crate::{message, numbered};

/// The public view of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunView {
    pub head: RunHead,
    pub input: Payload,
    /// The open waits of the code, oldest first.
    pub awaiting: Vec<Awaited>,
    /// The current state values.
    pub state: BTreeMap<Name, Payload>,
    /// `None` while the run is open, and for a generation that continued as the next one.
    pub outcome: Option<Result<Payload, Failure>>,
    /// Signals that a closed run received and never consumed.
    pub undelivered: Vec<Undelivered>,
    /// The reason of the pause.
    pub pause: Option<RunPaused>,
    /// The reason of the first cancellation request.
    pub cancel_reason: Option<String>,
    pub counts: RunCounts,
    /// The run of whose log this one is a copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forked_from: Option<ForkedFrom>,
    /// The run to which this one was reset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reset_to: Option<RunId>,
}

message! {
    /// The origin of a fork.
    #[derive(Eq)]
    pub struct ForkedFrom {
        1 => run: RunId,
        2 => generation: u32,
        /// The last copied event.
        3 => index: Index,
        /// The original was ended in favor of this run.
        4 => is_reset: bool,
    }

    /// Something that a run waits for.
    pub struct Awaited {
        1 => kind: AwaitedKind,
        /// The signal, approval or promise, the kind of the task or child, or the step to retry; absent for a plain timer.
        2 => name: Option<Name>,
        /// `RUN~GENERATION~CALL` for a call of the code, the update's own id for an update.
        3 => id: String,
        4 => call_id: Option<CallId>,
        5 => since: Timestamp,
        6 => deadline: Option<Timestamp>,
        /// The child run.
        7 => child: Option<RunId>,
    }

    /// A signal that a closed run received and never consumed.
    pub struct Undelivered {
        /// The event with the signal.
        1 => index: Index,
        2 => at: Timestamp,
        3 => name: Name,
        4 => payload: Payload,
        5 => signal_id: Option<String>,
        6 => sender: Option<RunKey>,
    }

    /// Counters of a run.
    #[derive(Copy, Eq, Default)]
    pub struct RunCounts {
        1 => commits: u64,
        2 => steps_completed: u64,
        /// Failed attempts, not steps: a step that failed twice and then succeeded counts two.
        3 => step_attempts_failed: u64,
        4 => tasks_scheduled: u64,
        5 => children_started: u64,
        6 => signals_received: u64,
        7 => signals_consumed: u64,
    }
}

numbered! {
    pub enum AwaitedKind {
        0 => Signal / "signal",
        1 => Approval / "approval",
        2 => Promise / "promise",
        /// A sleep, or the delay before a step's next attempt.
        3 => Timer / "timer",
        4 => Task / "task",
        5 => Child / "child",
        /// An update that the code has not answered.
        6 => Update / "update",
        /// A result that another call may have, or computes.
        7 => Memo / "memo",
        /// The time at which its code begins, or the queue that lets it begin.
        8 => Start / "start",
    }
}

impl RunView {
    /// Returns whether the run waits for something of this kind.
    pub fn awaits(&self, kind: AwaitedKind) -> bool {
        self.awaiting.iter().any(|awaited| awaited.kind == kind)
    }

    /// Returns why an agent waits for the next message, unless its model was done.
    pub fn agent_stop(&self) -> Option<&str> {
        let waits_for_input = |awaited: &Awaited| matches!(awaited.kind, AwaitedKind::Signal | AwaitedKind::Update);
        let waits = self.head.status == Status::Waiting && !self.awaiting.is_empty() && self.awaiting.iter().all(waits_for_input);
        let stop = self.head.attributes.iter().find(|attribute| attribute.name.as_str() == AGENT_STOP).filter(|_| waits)?;
        match &stop.value {
            AttributeValue::Text(stop) if stop != DONE => Some(stop),
            _ => None,
        }
    }

    /// Builds the view from the log; `records` are a prefix of the log and may extend past the head.
    pub fn fold(head: RunHead, records: &[Record]) -> RunView {
        let end = head.next_index;
        let mut fold = Fold::new(head);
        let records = records.iter().take_while(|record| record.index < end);
        let abandoned = AbandonedCommits::of(records.clone());
        for record in records {
            match abandoned.has(record) {
                false => fold.take_record(record), // VI1
                true => fold.leave(record),
            }
        }
        fold.finish()
    }
}

/// Returns the creation time of the run: the start of its first generation, or the time of its fork.
pub fn created_at(records: &[Record]) -> Option<Timestamp> {
    let forked = |record: &&Record| matches!(record.events.first(), Some(Event::RunForked(_)));
    if let Some(forked) = records.iter().rev().find(forked) {
        return Some(forked.at);
    }
    let first = records.first()?;
    Some(first.started().and_then(|started| started.created_at).unwrap_or(first.at))
}

/// Returns the result of the run if this record ends it; `None` for any other record, and if the run continues as its next
/// generation.
pub fn outcome(record: &Record) -> Option<Result<Payload, Failure>> {
    record.events.last()?.outcome()
}

/// The abandoned commits of an agent's log.
pub(crate) struct AbandonedCommits(Vec<std::ops::Range<Index>>);

impl AbandonedCommits {
    pub(crate) fn of<'a>(records: impl Iterator<Item = &'a Record>) -> AbandonedCommits {
        let range = |record: &Record| match record.events.first() {
            Some(Event::SegmentAbandoned(marker)) => Some(marker.from..record.index),
            _ => None,
        };
        AbandonedCommits(records.filter_map(range).collect())
    }

    pub(crate) fn has(&self, record: &Record) -> bool {
        record.commit.is_some() && self.0.iter().any(|range| range.contains(&record.index))
    }
}

struct Fold {
    view: RunView,
    open: BTreeMap<CallId, Awaited>,
    /// Calls of abandoned commits, which may be taken over.
    abandoned: BTreeMap<CallId, Awaited>,
    /// The call that has taken over each of them.
    adopters: BTreeMap<CallId, CallId>,
    /// Decided approvals by the call id of the decision, with the waiting call.
    decided: BTreeMap<CallId, (CallId, Awaited)>,
    updates: BTreeMap<String, Awaited>,
    /// In order of arrival.
    mailbox: Vec<Undelivered>,
    paused_at: Option<Timestamp>,
    continued: bool,
    ancestry: Option<Ancestry>,
    /// The number of the current commit.
    n: u64,
    last_at: Timestamp,
}

impl Fold {
    fn new(head: RunHead) -> Fold {
        let view = RunView {
            head,
            input: Payload::null(),
            awaiting: Vec::new(),
            state: BTreeMap::new(),
            outcome: None,
            undelivered: Vec::new(),
            pause: None,
            cancel_reason: None,
            counts: RunCounts::default(),
            forked_from: None,
            reset_to: None,
        };
        Fold {
            view,
            open: BTreeMap::new(),
            abandoned: BTreeMap::new(),
            adopters: BTreeMap::new(),
            decided: BTreeMap::new(),
            updates: BTreeMap::new(),
            mailbox: Vec::new(),
            paused_at: None,
            continued: false,
            ancestry: None,
            n: 0,
            last_at: Timestamp(0),
        }
    }

    fn take_record(&mut self, record: &Record) {
        self.view.counts.commits += u64::from(record.commit.is_some());
        self.n = record.commit.map_or(self.n, |commit| commit.n);
        for (index, event) in record.indexed() {
            if event.is_input() {
                self.take_input(index, record.at, event);
            } else {
                self.take_commit_event(record.at, event);
            }
        }
        self.view.outcome = outcome(record);
        self.last_at = record.at;
    }

    /// Collects the calls of an abandoned commit.
    fn leave(&mut self, record: &Record) {
        let path = std::mem::take(&mut self.open);
        let (counts, state) = (self.view.counts, self.view.state.clone());
        let mailbox = self.mailbox.clone();
        self.take_record(record);
        let open = std::mem::replace(&mut self.open, path);
        self.abandoned.extend(open);
        (self.view.counts, self.view.state, self.mailbox) = (counts, state, mailbox);
    }

    fn await_answer(&mut self, update: &UpdateReceived, at: Timestamp) {
        let awaited = Awaited {
            kind: AwaitedKind::Update,
            name: Some(update.name.clone()),
            id: update.update_id.clone(),
            call_id: None,
            since: at,
            deadline: None,
            child: None,
        };
        self.updates.insert(update.update_id.clone(), awaited);
    }

    fn take_input(&mut self, index: Index, at: Timestamp, event: &Event) {
        match event {
            Event::RunStarted(event) => {
                self.ancestry = (!event.origins.is_empty()).then(|| Ancestry::new(&self.view.head.key, event));
                self.view.input = event.input.clone();
                self.view.cancel_reason.clone_from(&event.cancel_reason);
                event.mailbox.iter().for_each(|signal| self.receive(index, at, signal.clone()));
                event.updates.iter().for_each(|update| self.await_answer(update, at));
                if let Some(task) = &event.task {
                    self.view.counts.tasks_scheduled += 1;
                    self.open(AwaitedKind::Task, &CallId::root(0), Some(&task.kind), at, None);
                }
            }
            Event::SignalReceived(event) => {
                self.view.counts.signals_received += 1;
                let (name, payload) = (event.name.clone(), event.payload.clone());
                let (signal_id, sender) = (event.signal_id.clone(), event.sender.clone());
                self.receive(index, at, CarriedSignal { name, payload, signal_id, sender });
            }
            Event::UpdateReceived(event) => self.await_answer(event, at),
            Event::ApprovalDecided(event) => {
                let asker = self.adopters.get(&event.call_id).unwrap_or(&event.call_id).clone();
                if let Some(awaited) = self.open.get(&asker).filter(|awaited| awaited.kind == AwaitedKind::Approval) {
                    self.decided.insert(event.call_id.clone(), (asker, awaited.clone()));
                }
                self.close(&event.call_id);
            }
            Event::PromiseResolved(event) => self.close(&event.call_id),
            Event::TaskCompleted(event) => self.close(&event.call_id),
            Event::TaskFailed(_) | Event::ChildFailed(_) if self.is_set_aside(index) => {}
            Event::TaskFailed(event) => self.close(&event.call_id),
            Event::TimerFired(event) => self.close(&event.call_id),
            Event::MemoAnswered(event) => self.close(&event.call_id),
            Event::ChildCompleted(event) => self.close(&event.call_id),
            Event::ChildFailed(event) => self.close(&event.call_id),
            Event::CancelRequested(event) => {
                self.view.cancel_reason.get_or_insert_with(|| event.reason.clone());
            }
            Event::RunPaused(event) => {
                self.view.pause = Some(event.clone());
                self.paused_at.get_or_insert(at);
                for call_id in &event.asks {
                    if let Some((asker, awaited)) = self.decided.remove(call_id) {
                        let id = format!("{}~{}~{call_id}", self.view.head.key.id, self.view.head.generation);
                        self.open.insert(asker, Awaited { id, since: at, deadline: None, ..awaited });
                    }
                }
            }
            Event::RunResumed(_) => self.resume(at),
            Event::RetryRequested(event) => self.go_on(at, &event.children),
            Event::RunForked(event) => {
                self.go_on(at, &event.children);
                let (run, generation, index) = (event.from.id.clone(), event.generation, event.index);
                self.view.forked_from = Some(ForkedFrom { run, generation, index, is_reset: event.is_reset });
            }
            Event::TerminateRequested(event) => self.view.reset_to.clone_from(&event.reset_to),
            _ => {}
        }
    }

    fn take_commit_event(&mut self, at: Timestamp, event: &Event) {
        use AwaitedKind::*;
        let counts = &mut self.view.counts;
        match event {
            Event::StepCompleted(event) => {
                counts.steps_completed += 1;
                self.close(&event.call_id);
            }
            Event::StepFailed(event) => {
                counts.step_attempts_failed += 1;
                self.close(&event.call_id);
                if event.retry_at.is_some() {
                    self.open(Timer, &event.call_id, Some(&event.name), at, event.retry_at);
                }
            }
            Event::TaskScheduled(event) => {
                counts.tasks_scheduled += 1;
                self.open(Task, &event.call_id, Some(&event.kind), at, None);
            }
            Event::TimerStarted(event) => self.open(Timer, &event.call_id, None, at, Some(event.due_at)),
            Event::SignalAwaited(event) => self.open(Signal, &event.call_id, Some(&event.name), at, event.deadline),
            Event::ApprovalRequested(event) => self.open(Approval, &event.call_id, Some(&event.name), at, event.deadline),
            Event::PromiseCreated(event) => self.open(Promise, &event.call_id, Some(&event.name), at, event.deadline),
            Event::ChildStarted(event) => {
                counts.children_started += 1;
                if event.is_spawned {
                    return;
                }
                self.open(Child, &event.call_id, Some(&event.kind), at, None);
                self.name_child(&event.call_id, &event.child);
            }
            Event::ChildAwaited(event) => {
                self.open(Child, &event.call_id, None, at, None);
                self.name_child(&event.call_id, &event.child);
            }
            Event::SignalConsumed(event) => {
                counts.signals_consumed += 1;
                self.close(&event.call_id);
                self.consume(event.index, &event.name);
            }
            Event::TaskCanceled(event) => self.close(&event.call_id),
            Event::ChildCanceled(event) => self.close(&event.call_id),
            Event::WaitCanceled(event) => self.close(&event.call_id),
            Event::MemoRequested(event) => self.open(Memo, &event.call_id, Some(&event.name), at, None),
            Event::MemoReleased(event) => self.close_memo(&event.call_id),
            Event::StateSet(event) => drop(self.view.state.insert(event.key.clone(), event.value.clone())),
            Event::StateCleared(event) => drop(self.view.state.remove(&event.key)),
            Event::UpdateAnswered(event) => drop(self.updates.remove(&event.update_id)),
            Event::RunContinued(_) => self.continued = true,
            Event::CallAdopted(event) => {
                self.adopters.insert(event.from.clone(), event.call_id.clone());
                if let Some(awaited) = self.abandoned.remove(&event.from) {
                    self.open.insert(event.call_id.clone(), awaited);
                }
            }
            _ => {}
        }
    }

    fn open(&mut self, kind: AwaitedKind, call_id: &CallId, name: Option<&Name>, since: Timestamp, deadline: Option<Timestamp>) {
        let head = &self.view.head;
        let known = self.ancestry.as_ref().map(|ancestry| ancestry.known_as(ancestry.at_commit(self.n), ancestry.own()));
        // A task has a new id in every generation; other waits keep theirs.
        let known = known.filter(|_| kind != AwaitedKind::Task);
        let id = format!("{}~{}~{call_id}", head.key.id, known.map_or(head.generation, |known| known.generation));
        let awaited = Awaited { kind, name: name.cloned(), id, call_id: Some(call_id.clone()), since, deadline, child: None };
        self.open.insert(call_id.clone(), awaited);
    }

    fn close(&mut self, call_id: &CallId) {
        self.abandoned.remove(call_id);
        let adopter = self.adopters.get(call_id).unwrap_or(call_id);
        self.open.remove(adopter);
    }

    /// Ends the wait for a memo; a task that computes one continues.
    fn close_memo(&mut self, call_id: &CallId) {
        if self.open.get(call_id).is_some_and(|awaited| awaited.kind == AwaitedKind::Memo) {
            self.open.remove(call_id);
        }
    }

    fn receive(&mut self, index: Index, at: Timestamp, signal: CarriedSignal) {
        let CarriedSignal { name, payload, signal_id, sender } = signal;
        self.mailbox.push(Undelivered { index, at, name, payload, signal_id, sender });
    }

    /// Removes a consumed signal. Carried signals share the index of their `run_started`: the first of a name goes first.
    fn consume(&mut self, index: Index, name: &Name) {
        if let Some(position) = self.mailbox.iter().position(|signal| signal.index == index && signal.name == *name) {
            self.mailbox.remove(position);
        }
    }

    /// Ends the pause: deadlines move by its length.
    fn resume(&mut self, at: Timestamp) {
        self.view.pause = None;
        let shift = self.paused_at.take().map_or(Duration::ZERO, |paused| at.since(paused));
        for awaited in self.open.values_mut() {
            awaited.deadline = awaited.deadline.map(|deadline| deadline.after(shift));
        }
    }

    fn is_set_aside(&self, index: Index) -> bool {
        self.ancestry.as_ref().is_some_and(|ancestry| ancestry.is_set_aside(index))
    }

    /// Continues the log after a gap: deadlines move by its length.
    fn go_on(&mut self, at: Timestamp, children: &[ChildAgain]) {
        let gap = at.since(self.last_at);
        for awaited in self.open.values_mut() {
            awaited.deadline = awaited.deadline.map(|deadline| deadline.after(gap));
        }
        children.iter().for_each(|again| self.name_child(&again.call_id, &again.child));
    }

    fn name_child(&mut self, call_id: &CallId, child: &RunId) {
        if let Some(awaited) = self.open.get_mut(call_id) {
            awaited.child = Some(child.clone());
        }
    }

    fn finish(self) -> RunView {
        let mut view = self.view;
        if view.outcome.is_some() {
            view.undelivered = self.mailbox; // VI2
        } else if !self.continued {
            let start = view.head.starts_at.map(|due_at| awaited_start(&view.head, due_at));
            view.awaiting = start.into_iter().chain(self.open.into_values()).chain(self.updates.into_values()).collect(); // VI3
            view.awaiting.sort_by_key(|awaited| awaited.since);
        }
        view
    }
}

/// Returns the wait of a run that has not begun.
fn awaited_start(head: &RunHead, due_at: Timestamp) -> Awaited {
    // The time at which it was queued, unless that is the time of its start.
    let (is_later, queue) = (due_at > head.updated_at, head.queue.as_ref());
    Awaited {
        kind: AwaitedKind::Start,
        name: queue.map(|queue| queue.name.clone()),
        id: format!("{}~{}~{}", head.key.id, head.generation, start_call()),
        call_id: None,
        since: if is_later || queue.is_none() { head.created_at } else { due_at },
        deadline: Some(due_at).filter(|_| is_later || queue.is_none()),
        child: None,
    }
}

#[cfg(test)]
pub(super) mod tests;

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
use crate::log::event::{CarriedSignal, ChildAgain, RunPaused, TerminateRequested, UpdateReceived};
use crate::run::ancestry::Ancestry;
use crate::{AttributeValue, CallId, Event, Failure, Index, Name, Payload, Record, RunHead, RunId, RunKey, Status, Timestamp};

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
    pub counts: Counts,
    /// The run of whose log this one is a copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forked_from: Option<ForkedFrom>,
    /// The run to which this one was reset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reset_to: Option<RunId>,
}

/// The origin of a fork.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForkedFrom {
    pub run: RunId,
    pub generation: u32,
    /// The last copied event.
    pub index: Index,
    /// The original was ended in favor of this run.
    pub is_reset: bool,
}

/// Something that a run waits for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Awaited {
    pub kind: AwaitedKind,
    /// The signal, approval or promise, the kind of the task or child, or the step to retry; `None` for a plain timer.
    pub name: Option<Name>,
    /// `RUN~GENERATION~CALL` for a call of the code, the update's own id for an update.
    pub id: String,
    pub call_id: Option<CallId>,
    pub since: Timestamp,
    pub deadline: Option<Timestamp>,
    /// The child run.
    pub child: Option<RunId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AwaitedKind {
    Signal,
    Approval,
    Promise,
    /// A sleep, or the delay before a step's next attempt.
    Timer,
    Task,
    Child,
    /// An update that the code has not answered.
    Update,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Undelivered {
    /// The event with the signal.
    pub index: Index,
    pub at: Timestamp,
    pub name: Name,
    pub payload: Payload,
    pub signal_id: Option<String>,
    pub sender: Option<RunKey>,
}

/// Counters of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counts {
    pub commits: u64,
    pub steps_completed: u64,
    /// Failed attempts, not steps: a step that failed twice and then succeeded counts two.
    pub step_attempts_failed: u64,
    pub tasks_scheduled: u64,
    pub children_started: u64,
    pub signals_received: u64,
    pub signals_consumed: u64,
}

impl RunView {
    /// Returns why an agent waits for the next message, unless its model was done.
    pub fn agent_stop(&self) -> Option<&str> {
        let is_at_rest = |awaited: &Awaited| matches!(awaited.kind, AwaitedKind::Signal | AwaitedKind::Update);
        let waits = self.head.status == Status::Waiting && !self.awaiting.is_empty() && self.awaiting.iter().all(is_at_rest);
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
        let left = Left::of(records.clone());
        for record in records {
            match left.has(record) {
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
    match record.events.last()? {
        Event::RunCompleted(event) => Some(Ok(event.output.clone())),
        Event::RunFailed(event) => Some(Err(event.failure.clone())),
        Event::RunCanceled(event) => Some(Err(event.failure.clone())),
        Event::TerminateRequested(event) => Some(Err(terminated(event))),
        _ => None,
    }
}

/// Returns the failure of a terminated run, for its parent and its caller.
fn terminated(event: &TerminateRequested) -> Failure {
    let colon = if event.reason.is_empty() { "" } else { ": " };
    Failure { retryable: false, ..Failure::new("terminated", format!("the run was terminated{colon}{}", event.reason)) }
}

/// The abandoned commits of an agent's log.
pub(crate) struct Left(Vec<std::ops::Range<Index>>);

impl Left {
    pub(crate) fn of<'a>(records: impl Iterator<Item = &'a Record>) -> Left {
        let range = |record: &Record| match record.events.first() {
            Some(Event::SegmentAbandoned(marker)) => Some(marker.from..record.index),
            _ => None,
        };
        Left(records.filter_map(range).collect())
    }

    pub(crate) fn has(&self, record: &Record) -> bool {
        record.commit.is_some() && self.0.iter().any(|range| range.contains(&record.index))
    }
}

struct Fold {
    view: RunView,
    open: BTreeMap<CallId, Awaited>,
    /// Calls of abandoned commits, which may be taken over.
    left: BTreeMap<CallId, Awaited>,
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
            counts: Counts::default(),
            forked_from: None,
            reset_to: None,
        };
        let (open, updates) = (BTreeMap::new(), BTreeMap::new());
        let (left, adopters) = (BTreeMap::new(), BTreeMap::new());
        let (ancestry, n, last_at) = (None, 0, Timestamp(0));
        Fold {
            view,
            open,
            left,
            adopters,
            decided: BTreeMap::new(),
            updates,
            mailbox: Vec::new(),
            paused_at: None,
            continued: false,
            ancestry,
            n,
            last_at,
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
        let asked = std::mem::replace(&mut self.open, path);
        self.left.extend(asked);
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
                if let Some(awaited) = self.open.get_mut(&event.call_id) {
                    awaited.child = Some(event.child.clone());
                }
            }
            Event::ChildAwaited(event) => {
                self.open(Child, &event.call_id, None, at, None);
                if let Some(awaited) = self.open.get_mut(&event.call_id) {
                    awaited.child = Some(event.child.clone());
                }
            }
            Event::SignalConsumed(event) => {
                counts.signals_consumed += 1;
                self.close(&event.call_id);
                self.consume(event.index, &event.name);
            }
            Event::TaskCanceled(event) => self.close(&event.call_id),
            Event::ChildCanceled(event) => self.close(&event.call_id),
            Event::WaitCanceled(event) => self.close(&event.call_id),
            Event::StateSet(event) => drop(self.view.state.insert(event.key.clone(), event.value.clone())),
            Event::StateCleared(event) => drop(self.view.state.remove(&event.key)),
            Event::UpdateAnswered(event) => drop(self.updates.remove(&event.update_id)),
            Event::RunContinued(_) => self.continued = true,
            Event::CallAdopted(event) => {
                self.adopters.insert(event.from.clone(), event.call_id.clone());
                if let Some(awaited) = self.left.remove(&event.from) {
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
        self.left.remove(call_id);
        let adopter = self.adopters.get(call_id).unwrap_or(call_id);
        self.open.remove(adopter);
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
        let stood = at.since(self.last_at);
        for awaited in self.open.values_mut() {
            awaited.deadline = awaited.deadline.map(|deadline| deadline.after(stood));
        }
        for again in children {
            if let Some(awaited) = self.open.get_mut(&again.call_id) {
                awaited.child = Some(again.child.clone());
            }
        }
    }

    fn finish(self) -> RunView {
        let mut view = self.view;
        if view.outcome.is_some() {
            view.undelivered = self.mailbox; // VI2
        } else if !self.continued {
            view.awaiting = self.open.into_values().chain(self.updates.into_values()).collect(); // VI3
            view.awaiting.sort_by_key(|awaited| awaited.since);
        }
        view
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Namespace;
    use crate::log::event::*;
    use crate::log::{CommitHeader, CommitId};
    use crate::run::{Effect, Input};
    use crate::{Epoch, Status};

    /// A run whose log grows one record per millisecond.
    struct Script {
        head: RunHead,
        records: Vec<Record>,
    }

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    fn at(call_id: u32) -> CallId {
        CallId::root(call_id)
    }

    fn text(value: &str) -> Payload {
        Payload::json(value).unwrap()
    }

    fn script(mailbox: Vec<CarriedSignal>) -> Script {
        let key = RunKey::new(Namespace::default(), RunId::new("order-1").unwrap());
        let (kind, input) = (name("order"), text("in"));
        let started = RunStarted { mailbox, ..RunStarted::new(kind, input, 1) };
        let (head, first) = RunHead::start(key, started, Timestamp(1_000));
        Script { head, records: vec![first] }
    }

    impl Script {
        fn now(&self) -> Timestamp {
            Timestamp(1_000 + self.records.len() as u64)
        }

        fn input(mut self, event: impl Into<Event>) -> Script {
            let admitted = self.head.admit_input(Input::new(event), self.now()).unwrap();
            self.records.push(admitted.record);
            self
        }

        fn commit(mut self, events: Vec<Event>) -> Script {
            let (index, n) = (self.head.next_index, self.head.next_commit);
            let horizon = Index(index.0 - 1);
            let header = CommitHeader { n, epoch: Epoch(0), commit_id: CommitId(n), horizon, waits: true, is_standing: false };
            self.records.push(Record { index, at: self.now(), commit: Some(header), events });
            self.head = RunHead::rebuild(self.head.key.clone(), &self.records).unwrap();
            self
        }

        fn view(&self) -> RunView {
            RunView::fold(self.head.clone(), &self.records)
        }

        fn awaits(&self) -> Vec<(AwaitedKind, String)> {
            self.view().awaiting.into_iter().map(|awaited| (awaited.kind, awaited.id)).collect()
        }
    }

    fn signal(text: &str) -> SignalReceived {
        SignalReceived { name: name(text), payload: Payload::null(), signal_id: None, sender: None }
    }

    fn awaited(call_id: u32, text: &str) -> Event {
        SignalAwaited { call_id: at(call_id), name: name(text), deadline: None, is_pattern: false }.into()
    }

    fn task(call_id: u32) -> Event {
        let (input, options) = (Payload::null(), Default::default());
        TaskScheduled { call_id: at(call_id), kind: name("mail"), input_hash: crate::Hash::of(&input), input, options }.into()
    }

    fn completed() -> Event {
        RunCompleted { output: text("out"), attempts: None }.into()
    }

    #[test]
    fn a_new_run_awaits_nothing_and_shows_its_input() {
        let view = script(vec![]).view();
        assert_eq!((view.input, view.awaiting, view.outcome), (text("in"), vec![], None));
    }

    #[test]
    fn a_wait_is_shown_until_it_is_answered() {
        let script = script(vec![]).commit(vec![awaited(0, "paid"), task(1)]);
        let both = [(AwaitedKind::Signal, "order-1~0~0".to_owned()), (AwaitedKind::Task, "order-1~0~1".to_owned())];
        assert_eq!(script.awaits(), both);
        let script = script.input(TaskCompleted { call_id: at(1), output: Payload::null(), attempts: 1 });
        assert_eq!(script.awaits(), both[..1]);
        let script = script.input(signal("paid"));
        assert_eq!(script.awaits(), both[..1], "received is not consumed");
        let consumed = SignalConsumed { call_id: at(0), name: name("paid"), index: Index(4) };
        assert_eq!(script.commit(vec![consumed.into()]).awaits(), []);
    }

    #[test]
    fn a_question_that_expired_or_was_withdrawn_is_no_longer_awaited() {
        let ask =
            |call_id| PromiseCreated { call_id: at(call_id), name: name("callback"), deadline: Some(Timestamp(9_000)) }.into();
        let script = script(vec![]).commit(vec![ask(0), ask(1), ask(2)]);
        let script = script.input(TimerFired { call_id: at(0) }).commit(vec![WaitCanceled { call_id: at(1) }.into()]);
        assert_eq!(script.awaits(), [(AwaitedKind::Promise, "order-1~0~2".to_owned())]);
    }

    #[test]
    fn the_pause_of_a_step_is_a_timer_with_the_steps_name() {
        let failed = StepFailed {
            call_id: at(0),
            name: name("charge"),
            input_hash: None,
            failure: Failure::retryable("busy"),
            attempt: 1,
            took_ms: 3,
            retry_at: Some(Timestamp(2_000)),
        };
        let view = script(vec![]).commit(vec![failed.into()]).view();
        let [pause] = &view.awaiting[..] else { panic!("{:?}", view.awaiting) };
        assert_eq!((pause.kind, pause.deadline), (AwaitedKind::Timer, Some(Timestamp(2_000))));
        assert_eq!(pause.name, Some(name("charge")));
        assert_eq!(view.counts.step_attempts_failed, 1);
    }

    #[test]
    fn a_pause_moves_deadlines_by_its_length() {
        let timer = TimerStarted { call_id: at(0), due_at: Timestamp(5_000) };
        let script = script(vec![]).commit(vec![timer.into()]);
        let paused = RunPaused::because(PauseReason::Requested, "lunch");
        let script = script.input(paused.clone()).input(signal("x"));
        assert_eq!(script.view().pause, Some(paused));
        let view = script.input(RunResumed::default()).view();
        assert_eq!((view.pause, view.awaiting[0].deadline), (None, Some(Timestamp(5_002))));
    }

    #[test]
    fn an_update_is_awaited_by_its_own_id_until_it_is_answered() {
        let update = UpdateReceived { update_id: "u1".into(), name: name("address"), payload: Payload::null() };
        let script = script(vec![]).input(update);
        assert_eq!(script.awaits(), [(AwaitedKind::Update, "u1".to_owned())]);
        let answered = UpdateAnswered { update_id: "u1".into(), result: Ok(Payload::null()) };
        assert_eq!(script.commit(vec![answered.into()]).awaits(), []);
    }

    #[test]
    fn an_update_that_went_along_is_awaited_in_the_generation_that_has_it() {
        let update = UpdateReceived { update_id: "u1".into(), name: name("address"), payload: Payload::null() };
        let started = RunStarted { updates: vec![update], ..RunStarted::new(name("order"), text("in"), 1) };
        let key = RunKey::new(Namespace::default(), RunId::new("order-1").unwrap());
        let (head, first) = RunHead::start(key, started, Timestamp(1_000));
        let script = Script { head, records: vec![first] };
        assert_eq!(script.awaits(), [(AwaitedKind::Update, "u1".to_owned())]);
    }

    #[test]
    fn state_is_what_was_set_last() {
        let set = |value| StateSet { call_id: at(0), key: name("stage"), value: text(value) }.into();
        let script = script(vec![]).commit(vec![set("a"), set("b")]);
        assert_eq!(script.view().state, BTreeMap::from([(name("stage"), text("b"))]));
        let cleared = StateCleared { call_id: at(1), key: name("stage") };
        assert_eq!(script.commit(vec![cleared.into()]).view().state, BTreeMap::new());
    }

    #[test]
    fn signals_a_closed_run_never_consumed_are_undelivered() {
        let carried = |payload| CarriedSignal { name: name("a"), payload: text(payload), signal_id: None, sender: None };
        let script = script(vec![carried("1"), carried("2")]).input(signal("a")).input(signal("b"));
        assert_eq!(script.view().undelivered, [], "an open run may still consume them");
        let consumed = SignalConsumed { call_id: at(0), name: name("a"), index: Index(0) };
        let view = script.commit(vec![consumed.into(), completed()]).view();
        let left: Vec<_> = view.undelivered.iter().map(|signal| (signal.index.0, signal.name.as_str())).collect();
        assert_eq!(left, [(0, "a"), (1, "a"), (2, "b")]);
        assert_eq!(view.undelivered[0].payload, text("2"), "first in, first out");
        assert_eq!((view.counts.signals_received, view.counts.signals_consumed), (2, 1));
    }

    #[test]
    fn a_generation_that_continued_has_no_outcome_and_took_its_signals_along() {
        let view =
            script(vec![]).input(signal("a")).commit(vec![RunContinued { input: text("next"), checkpoint: None }.into()]).view();
        assert_eq!((view.outcome, view.undelivered, view.awaiting), (None, vec![], vec![]));
        assert_eq!(view.head.status, Status::Completed);
    }

    #[test]
    fn a_closed_run_awaits_nothing() {
        let view = script(vec![]).commit(vec![task(0), awaited(1, "x"), completed()]).view();
        assert_eq!((view.awaiting, view.outcome), (vec![], Some(Ok(text("out")))));
    }

    #[test]
    fn a_terminated_run_fails_as_its_parent_is_told() {
        for reason in ["", "too slow"] {
            let mut script = script(vec![]);
            let (run, call_id) = (script.head.key.clone(), at(3));
            script.head.parent = Some(ParentLink {
                run,
                generation: 0,
                call_id,
                on_parent_close: OnParentClose::Cancel,
                incarnation: None,
                is_spawned: false,
            });
            let asked = TerminateRequested { reason: reason.to_owned(), reset_to: None };
            let admitted = script.head.admit_input(Input::new(asked), Timestamp(2_000)).unwrap();
            script.records.push(admitted.record);
            let told = admitted.effects.into_iter().find_map(|effect| match effect {
                Effect::Send(delivery) => match *delivery {
                    crate::run::OutboxMessage::Input { input: Input { event: Event::ChildFailed(event), .. }, .. } => {
                        Some(event.failure)
                    }
                    _ => None,
                },
                _ => None,
            });
            assert_eq!(script.view().outcome, told.map(Err));
        }
    }

    #[test]
    fn a_view_ends_where_its_head_ends() {
        let script = script(vec![]).commit(vec![awaited(0, "paid")]);
        let earlier = script.head.clone();
        let script = script.commit(vec![WaitCanceled { call_id: at(0) }.into(), completed()]);
        let view = RunView::fold(earlier, &script.records);
        assert_eq!((view.awaiting.len(), view.outcome), (1, None));
    }

    #[test]
    fn a_view_reads_back_from_its_json() {
        let view = script(vec![]).commit(vec![awaited(0, "paid"), task(1)]).input(signal("x")).view();
        let json = serde_json::to_string(&view).unwrap();
        assert!(json.contains(r#""kind":"signal","name":"paid","id":"order-1~0~0","call_id":"0""#), "{json}");
        assert_eq!(serde_json::from_str::<RunView>(&json).unwrap(), view);
    }
}

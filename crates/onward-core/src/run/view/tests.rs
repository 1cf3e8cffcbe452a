//! Tests of the parent module.

use super::*;
use crate::Namespace;
use crate::log::event::*;
use crate::log::{CommitHeader, CommitId};
use crate::run::{Effect, Input};
use crate::{Epoch, Status};

/// A run whose log grows one record per millisecond.
pub(in crate::run) struct Script {
    pub head: RunHead,
    pub records: Vec<Record>,
}

pub(in crate::run) fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

pub(in crate::run) fn at(call_id: u32) -> CallId {
    CallId::root(call_id)
}

pub(in crate::run) fn text(value: &str) -> Payload {
    Payload::json(value).unwrap()
}

pub(in crate::run) fn script(mailbox: Vec<CarriedSignal>) -> Script {
    let key = RunKey::new(Namespace::default(), RunId::new("order-1").unwrap());
    let (kind, input) = (name("order"), text("in"));
    let started = RunStarted { mailbox, ..RunStarted::new(kind, input, 1) };
    let (head, first) = RunHead::start(key, started, Timestamp(1_000));
    Script { head, records: vec![first] }
}

impl Script {
    pub fn now(&self) -> Timestamp {
        Timestamp(1_000 + self.records.len() as u64)
    }

    pub fn input(mut self, event: impl Into<Event>) -> Script {
        let admitted = self.head.admit_input(Input::new(event), None, self.now()).unwrap();
        self.records.push(admitted.record);
        self
    }

    pub fn commit(mut self, events: Vec<Event>) -> Script {
        let (index, n) = (self.head.next_index, self.head.next_commit);
        let horizon = Index(index.0 - 1);
        let header = CommitHeader { n, epoch: Epoch(0), commit_id: CommitId(n), horizon, waits: true, is_while_paused: false };
        self.records.push(Record { index, at: self.now(), commit: Some(header), events });
        self.head = RunHead::rebuild(self.head.key.clone(), &self.records).unwrap();
        self
    }

    pub fn view(&self) -> RunView {
        RunView::fold(self.head.clone(), &self.records)
    }

    fn awaits(&self) -> Vec<(AwaitedKind, String)> {
        self.view().awaiting.into_iter().map(|awaited| (awaited.kind, awaited.id)).collect()
    }
}

pub(in crate::run) fn signal(text: &str) -> SignalReceived {
    SignalReceived { name: name(text), payload: Payload::null(), signal_id: None, sender: None }
}

pub(in crate::run) fn awaited(call_id: u32, text: &str) -> Event {
    SignalAwaited { call_id: at(call_id), name: name(text), deadline: None, is_pattern: false }.into()
}

pub(in crate::run) fn task(call_id: u32) -> Event {
    let (input, options) = (Payload::null(), Default::default());
    TaskScheduled { call_id: at(call_id), kind: name("mail"), input_hash: crate::Hash::of(&input), input, options }.into()
}

pub(in crate::run) fn completed() -> Event {
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
    let script = script.input(TaskCompleted { call_id: at(1), output: Payload::null(), attempts: 1, ran: None });
    assert_eq!(script.awaits(), both[..1]);
    let script = script.input(signal("paid"));
    assert_eq!(script.awaits(), both[..1], "received is not consumed");
    let consumed = SignalConsumed { call_id: at(0), name: name("paid"), index: Index(4) };
    assert_eq!(script.commit(vec![consumed.into()]).awaits(), []);
}

#[test]
fn a_question_that_expired_or_was_withdrawn_is_no_longer_awaited() {
    let promise = |call_id| {
        PromiseCreated { call_id: at(call_id), name: name("callback"), deadline: Some(Timestamp(9_000)), key: None }.into()
    };
    let script = script(vec![]).commit(vec![promise(0), promise(1), promise(2)]);
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
        input: None,
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
fn a_terminated_run_fails_with_the_failure_that_its_parent_gets() {
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
        let request = TerminateRequested { reason: reason.to_owned(), reset_to: None };
        let admitted = script.head.admit_input(Input::new(request), None, Timestamp(2_000)).unwrap();
        script.records.push(admitted.record);
        let sent = admitted.effects.into_iter().find_map(|effect| match effect {
            Effect::Send(delivery) => match *delivery {
                crate::run::OutboxMessage::Input { input: Input { event: Event::ChildFailed(event), .. }, .. } => {
                    Some(event.failure)
                }
                _ => None,
            },
            _ => None,
        });
        assert_eq!(script.view().outcome, sent.map(Err));
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

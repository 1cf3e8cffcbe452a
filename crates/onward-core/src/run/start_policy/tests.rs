//! Tests of the parent module.

mod plain;
mod world;

use super::*;
use crate::projection::Projection;
use crate::start_policy::{Batch, Debounce, OnConflict, RunOptions, Singleton, StartPolicy};
use crate::{Log, Namespace, RunId};

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn ask(policy: StartPolicy, run: &str) -> PolicyAsk {
    let input = Payload::from_json_text(format!("\"{run}\""));
    PolicyAsk { policy, run: RunId::new(run).unwrap(), options: RunOptions::default(), input, request_id: None }
}

fn singleton(on_conflict: OnConflict) -> StartPolicy {
    StartPolicy::Singleton(Singleton { key: "k".to_owned(), on_conflict })
}

fn batch() -> StartPolicy {
    StartPolicy::Batch(Batch { key: "k".to_owned(), size_max: 2, window_ms: 100 })
}

/// Returns the head of a cell after its first start, with the effects.
fn started(policy: &StartPolicy) -> (RunHead, Vec<Effect>) {
    let cell = PolicyCell::of(policy, &name("report"), None);
    let [id, _] = cell.ids();
    let new = start_cell(RunKey::new(Namespace::default(), id), cell, ask(policy.clone(), "a"), 7);
    let (mut head, _) = RunHead::start(new.key, new.started, Timestamp(0));
    let admitted = head.admit_input(*new.signal.unwrap(), None, Timestamp(0)).unwrap();
    (head, admitted.effects)
}

fn messages(effects: &[Effect]) -> Vec<&OutboxMessage> {
    effects.iter().filter_map(|effect| if let Effect::Send(message) = effect { Some(&**message) } else { None }).collect()
}

fn input(ask: PolicyAsk) -> Input {
    PolicyInput::Ask(Box::new(ask)).into()
}

#[test]
fn a_run_is_a_child_that_outlives_its_cell_and_has_the_options_of_its_start() {
    let (mut head, _) = started(&batch());
    let effects = head.admit_input(input(ask(batch(), "b")), None, Timestamp(1)).unwrap().effects;
    let [OutboxMessage::Start(run)] = messages(&effects)[..] else { panic!("{effects:?}") };
    assert_eq!((run.key.id.as_str(), &run.started.input), ("a", &Payload::from_json_text("[\"a\",\"b\"]")));
    let parent = run.started.parent.as_ref().unwrap();
    assert_eq!((&parent.run, parent.on_parent_close, parent.call_id.ordinal()), (&head.key, OnParentClose::Abandon, 0));
    let message = effects.iter().find(|effect| matches!(effect, Effect::Send(_)));
    let Some(Effect::Send(message)) = message else { panic!("{effects:?}") };
    assert_eq!(OutboxMessage::from_bytes(&message.to_bytes()).unwrap(), **message);
}

#[test]
fn a_singleton_cancels_its_run_once_and_starts_the_next_after_its_end() {
    let (mut head, effects) = started(&singleton(OnConflict::Skip));
    let [OutboxMessage::Start(first)] = messages(&effects)[..] else { panic!("{effects:?}") };
    let (mut run, _) = RunHead::start(first.key.clone(), first.started.clone(), Timestamp(1));
    let cancel = || singleton(OnConflict::Cancel);
    let effects = head.admit_input(input(ask(cancel(), "b")), None, Timestamp(2)).unwrap().effects;
    let [OutboxMessage::Input { to, input: request }] = messages(&effects)[..] else { panic!("{effects:?}") };
    assert_eq!((to, request.child_of.as_ref()), (&first.key, Some(&head.key)));
    assert!(matches!(request.event, Event::CancelRequested(_)));
    let effects = head.admit_input(input(ask(cancel(), "c")), None, Timestamp(3)).unwrap().effects;
    assert_eq!(messages(&effects), [] as [&OutboxMessage; 0], "the run is canceled already");
    let end = crate::event::TerminateRequested { reason: String::new(), reset_to: None };
    let effects = run.admit_input(Input::new(end), None, Timestamp(4)).unwrap().effects;
    let [OutboxMessage::Input { to, input: ended }] = messages(&effects)[..] else { panic!("{effects:?}") };
    assert_eq!(to, &head.key);
    let effects = head.admit_input(ended.clone(), None, Timestamp(5)).unwrap().effects;
    let [OutboxMessage::Start(next)] = messages(&effects)[..] else { panic!("{effects:?}") };
    assert_eq!((next.key.id.as_str(), &next.started.input), ("b", &Payload::from_json_text("\"c\"")), "SP2");
}

#[test]
fn only_a_singleton_learns_of_the_end_of_its_run() {
    let (mut head, _) = started(&batch());
    let effects = head.admit_input(input(ask(batch(), "b")), None, Timestamp(1)).unwrap().effects;
    let [OutboxMessage::Start(new)] = messages(&effects)[..] else { panic!("{effects:?}") };
    let (mut run, _) = RunHead::start(new.key.clone(), new.started.clone(), Timestamp(1));
    let end = crate::event::TerminateRequested { reason: String::new(), reset_to: None };
    let effects = run.admit_input(Input::new(end), None, Timestamp(4)).unwrap().effects;
    assert_eq!(messages(&effects), [] as [&OutboxMessage; 0], "SS3");
    // A run that cannot be started is recorded, and changes nothing.
    let failure = Failure::new("run_exists", "it is there");
    let answer = crate::run::answer_to(new.started.parent.as_ref().unwrap(), &new.key.id, Err(failure));
    let OutboxMessage::Input { input, .. } = answer else { panic!("{answer:?}") };
    let before = head.start_policy.clone();
    head.admit_input(input, None, Timestamp(5)).unwrap();
    assert_eq!(head.start_policy, before, "SP7");
}

#[test]
fn a_cell_accepts_nothing_else_and_other_runs_no_starts() {
    let (mut head, _) = started(&batch());
    let malformed = |refused: Result<Admitted, Refusal>| assert_eq!(refused.unwrap_err().code(), "commit_malformed");
    let end = crate::event::TerminateRequested { reason: String::new(), reset_to: None };
    malformed(head.admit_input(Input::new(end), None, Timestamp(1)));
    malformed(head.admit_input(input(ask(singleton(OnConflict::Skip), "b")), None, Timestamp(1)));
    let (mut run, _) = RunHead::start(
        RunKey::new(Namespace::default(), RunId::new("r").unwrap()),
        RunStarted::new(name("report"), Payload::null(), 1),
        Timestamp(0),
    );
    malformed(run.admit_input(input(ask(batch(), "b")), None, Timestamp(1)));
    let stale = Input { incarnation: Some(8), ..input(ask(batch(), "b")) };
    assert_eq!(head.admit_input(stale, None, Timestamp(1)).unwrap_err().code(), "run_continued");
    let wrong = ask(StartPolicy::Batch(Batch { key: String::new(), size_max: 2, window_ms: 100 }), "b");
    let before = head.clone();
    assert_eq!(head.admit_input(input(wrong), None, Timestamp(1)).unwrap_err().code(), "start_policy_invalid");
    assert_eq!(head, before);
}

#[test]
fn a_start_goes_to_the_open_cell_and_a_new_one_has_the_other_id() {
    let cell = |created: u64, ended: Option<u64>| {
        let (mut head, _) = started(&batch());
        (head.created_at, head.ended_at) = (Timestamp(created), ended.map(Timestamp));
        head.status = if ended.is_some() { Status::Completed } else { Status::Waiting };
        head
    };
    let (open, ended, older) = (cell(30, None), cell(20, Some(25)), cell(1, Some(5)));
    let route_of = |current, is_open, ended, outdated| Route { current, is_open, ended, outdated };
    assert_eq!(route([None, None]), route_of(0, false, None, false));
    assert_eq!(route([Some(&open), None]), route_of(0, true, None, false));
    assert_eq!(route([Some(&ended), Some(&open)]), route_of(1, true, Some(0), false));
    assert_eq!(route([Some(&open), Some(&ended)]), route_of(0, true, Some(1), false));
    assert_eq!(route([Some(&ended), None]), route_of(1, false, Some(0), false));
    assert_eq!(route([None, Some(&ended)]), route_of(0, false, Some(1), false));
    assert_eq!(route([Some(&ended), Some(&older)]), route_of(1, false, Some(0), true));
    assert_eq!(route([Some(&older), Some(&ended)]), route_of(0, false, Some(1), true));
}

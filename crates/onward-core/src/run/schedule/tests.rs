//! Tests of the parent module.

use super::*;
use crate::log::event::{ChildStarted, RunCanceled, RunCompleted, RunFailed, RunSuspended, SuspendReason};
use crate::projection::Projection;
use crate::run::answer_to;
use crate::schedule::{Interval, Overlap, PauseSchedule, ScheduleOptions, ScheduleSpec, ScheduleTarget, TriggerSchedule};
use crate::{CommitId, Epoch, ErrorCode, Hash, Index, Log};

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn key() -> RunKey {
    schedule_key(Namespace::default(), &name("s")).unwrap()
}

fn definition(overlap: Overlap) -> ScheduleDefinition {
    let target = ScheduleTarget {
        kind: name("report"),
        input: Payload::null(),
        is_template: false,
        version: None,
        attributes: Vec::new(),
        deadline_ms: None,
    };
    let every = vec![Interval { every_ms: 60_000, offset_ms: 0 }];
    let options = ScheduleOptions { overlap, ..ScheduleOptions::default() };
    let spec = ScheduleSpec { every, ..ScheduleSpec::default() };
    ScheduleDefinition { target, spec, options, requester: None, granted: None }
}

/// A schedule with its log and the effects of the last input.
struct Played {
    head: RunHead,
    logs: Vec<Vec<Record>>,
    effects: Vec<Effect>,
}

impl Played {
    /// Starts a schedule with a slot every minute, ten minutes after 1970.
    fn new(overlap: Overlap) -> Played {
        let start = start_schedule(key(), definition(overlap), 7);
        let (head, first) = RunHead::start(start.key, start.started, Timestamp(600_000));
        let mut played = Played { head, logs: vec![vec![first]], effects: Vec::new() };
        played.input(*start.signal.unwrap(), 600_000).unwrap();
        played
    }

    fn input(&mut self, input: impl Into<Input>, at: u64) -> Result<(), Refusal> {
        let Admitted { record, effects, successor } = self.head.admit_input(input.into(), None, Timestamp(at))?;
        self.logs.last_mut().unwrap().push(record);
        self.effects = effects;
        if let Some(next) = successor {
            let (head, first) = RunHead::start(next.key, next.started, Timestamp(at));
            self.effects.extend(head.start_effects(&first));
            (self.head, _) = (head, self.logs.push(vec![first]));
        }
        Ok(())
    }

    fn due(&mut self, at: u64) {
        let due = self.head.timer_input(wake_call());
        self.input(due, at).unwrap();
    }

    /// Returns the time of the timer that is set by the effects; none if it is removed or not touched.
    fn timer(&self) -> Option<u64> {
        let timers = self.effects.iter().filter_map(|effect| match effect {
            Effect::StartTimer { call_id, due_at } if *call_id == wake_call() => Some(Some(due_at.0)),
            Effect::StopTimer { .. } | Effect::EndRun { .. } => Some(None),
            _ => None,
        });
        timers.collect::<Vec<_>>().pop().flatten()
    }

    fn sent(&self) -> Vec<&OutboxMessage> {
        self.effects
            .iter()
            .filter_map(|effect| if let Effect::Send(message) = effect { Some(&**message) } else { None })
            .collect()
    }
}

#[test]
fn every_input_sets_the_timer_to_the_wake_time() {
    let mut played = Played::new(Overlap::AllowAll);
    assert_eq!(played.timer(), Some(660_000), "SR2");
    played.due(660_000);
    assert_eq!((played.timer(), played.sent().len()), (Some(720_000), 1));
    // The timer row is gone when it fires, also if nothing is decided then.
    played.due(660_000);
    assert_eq!((played.timer(), played.sent().len()), (Some(720_000), 0));
    played.input(ScheduleInput::Pause(PauseSchedule { note: String::new() }), 700_000).unwrap();
    assert_eq!(played.timer(), None);
    assert!(played.effects.contains(&Effect::StopTimer { call_id: wake_call() }));
}

#[test]
fn a_log_gives_the_rows_of_its_schedule_in_every_generation() {
    let mut played = Played::new(Overlap::AllowAll);
    for minute in 11..1_100 {
        played.due(minute * 60_000);
    }
    assert_eq!((played.logs.len(), played.head.generation), (2, 1));
    for log in &played.logs {
        Log::load(log.clone()).unwrap();
    }
    let projection = Projection::of(key(), played.logs.last().unwrap()).unwrap();
    assert_eq!(projection.head, played.head);
    let timers: Vec<_> = projection.timers.iter().map(|(call_id, timer)| (call_id.clone(), timer.due_at)).collect();
    assert_eq!(timers, [(wake_call(), played.head.schedule.as_ref().unwrap().wake_at.unwrap())], "SR2");
}

#[test]
fn the_end_of_a_run_is_an_input_without_its_output() {
    let mut played = Played::new(Overlap::BufferOne);
    played.due(660_000);
    let [OutboxMessage::Start(run)] = played.sent()[..] else { panic!("the slot starts a run") };
    let (parent, child) = (run.started.parent.clone().unwrap(), run.key.id.clone());
    let ended = |message| match message {
        OutboxMessage::Input { to, input } => {
            assert_eq!((to, input.once.is_none()), (key(), true), "SR3");
            let Event::ScheduleDecided(decided) = input.event else { panic!("an input of a schedule") };
            let ScheduleInput::Ended(ended) = decided.input else { panic!("the end of a run") };
            (ended.number, ended.ending, ended.code)
        }
        _ => panic!("the schedule gets an input"),
    };
    let end = |event: Event| {
        let result = event.outcome().unwrap();
        ended(ended_by(&parent, &event, result))
    };
    assert_eq!(end(RunCompleted { output: Payload::from_json_text("42"), attempts: None }.into()), (0, Ending::Completed, None));
    // The code is the run's own.
    let failure = |code: &str| Failure::new(code, "no");
    assert_eq!(
        end(RunFailed { failure: failure("canceled"), attempts: None }.into()),
        (0, Ending::Failed, Some("canceled".to_owned()))
    );
    assert_eq!(end(RunCanceled { failure: failure("x") }.into()).1, Ending::Canceled);
    assert_eq!(end(TerminateRequested { reason: String::new(), reset_to: None }.into()).1, Ending::Terminated);
    let not_started = |code: &str| ended(answer_to(&parent, &child, Err(failure(code)))).1;
    let exists = ErrorCode::RunExists.as_str();
    assert_eq!([not_started("x"), not_started(exists)], [Ending::Failed, Ending::Existed]);
}

#[test]
fn the_end_of_a_run_of_another_schedule_with_that_id_is_refused() {
    let mut played = Played::new(Overlap::Skip);
    let ended = Ended { number: 0, ending: Ending::Completed, code: None };
    let foreign = Input { incarnation: Some(8), ..ScheduleInput::Ended(ended).into() };
    assert!(matches!(played.input(foreign, 600_000), Err(Refusal::OtherGeneration { .. })), "R10");
}

#[test]
fn a_later_slot_cancels_only_a_run_of_the_schedule() {
    let mut played = Played::new(Overlap::CancelOther);
    played.due(660_000);
    played.due(720_000);
    let [OutboxMessage::Input { to, input }] = played.sent()[..] else { panic!("the run is canceled") };
    assert_eq!((to.id.as_str(), &input.child_of), ("s@1970-01-01T00:11:00Z", &Some(key())));
    assert!(matches!(&input.event, Event::CancelRequested(_)) && input.once.is_some());
}

#[test]
fn a_run_that_is_triggered_has_both_credentials() {
    let mut played = Played::new(Overlap::Skip);
    let mut theirs = definition(Overlap::Skip);
    theirs.requester = Some("ada".to_owned());
    theirs.options.pause_on_failure = true;
    played.input(ScheduleInput::Define(Box::new(theirs)), 600_000).unwrap();
    let trigger = TriggerSchedule { request_id: name("now"), overlap: None, requested_by: Some("bob".to_owned()) };
    played.input(ScheduleInput::Trigger(trigger), 600_000).unwrap();
    let [OutboxMessage::Start(run)] = played.sent()[..] else { panic!("a run is started") };
    assert_eq!((run.started.requester.as_deref(), &run.started.copied_by[..]), (Some("ada"), &["bob".to_owned()][..]));
}

#[test]
fn no_commit_starts_a_child_with_the_id_of_a_schedule() {
    let start = crate::log::event::RunStarted::new(name("order"), Payload::null(), 1);
    let run = RunKey::new(Namespace::default(), RunId::new("r").unwrap());
    let (mut head, _) = RunHead::start(run.clone(), start, Timestamp(0));
    head.epoch = Epoch(1);
    let child = ChildStarted {
        call_id: CallId::root(0),
        kind: name("order"),
        child: key().id,
        input: Payload::null(),
        input_hash: Hash::of(&Payload::null()),
        on_parent_close: OnParentClose::Abandon,
        version: None,
        is_spawned: false,
        budget: None,
        queue: None,
    };
    let commit = |events| crate::run::Commit {
        key: run.clone(),
        generation: 0,
        epoch: Epoch(1),
        n: 0,
        commit_id: CommitId(1),
        horizon: Index(0),
        events,
        waits: true,
        end_over_unread: false,
        is_while_paused: false,
        carries: crate::run::Carries::default(),
    };
    assert!(head.clone().admit_commit(commit(vec![child.into()]), Timestamp(1)).is_err(), "SR4");
    assert!(head.admit_commit(commit(vec![RunSuspended { reason: SuspendReason::Settled }.into()]), Timestamp(1)).is_ok());
}

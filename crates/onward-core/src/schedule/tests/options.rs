//! Decisions by hand: one test for each rule that a user reads about.

use super::*;

const START: u64 = 1_800_000_000_000;
const HOUR: u64 = 3_600_000;

/// A schedule of every hour, and its decisions.
struct Script {
    head: ScheduleHead,
    effects: Vec<ScheduleEffect>,
}

impl Script {
    fn new(options: ScheduleOptions) -> Script {
        let created = ScheduleHead::create(name("hourly"), definition(every(60), options), Timestamp(START)).unwrap();
        Script { head: created.head, effects: ScheduleHead::effects(&created.changes) }
    }

    fn overlap(overlap: Overlap) -> Script {
        Script::new(ScheduleOptions { overlap, ..ScheduleOptions::default() })
    }

    fn input(mut self, input: &ScheduleInput, hours: f64) -> Script {
        let decision = self.head.decide(input, Timestamp(START + (hours * HOUR as f64) as u64)).unwrap();
        self.effects.extend(ScheduleHead::effects(&decision.changes));
        self.head = decision.head;
        self
    }

    fn due(self, hours: f64) -> Script {
        self.input(&ScheduleInput::Due(ScheduleDue {}), hours)
    }

    fn ended(self, number: u32, ending: Ending, hours: f64) -> Script {
        self.input(&ScheduleInput::Ended(Ended::new(number, ending, None)), hours)
    }

    /// Returns the hours of the slots that were started, and which were stopped.
    fn started(&self) -> Vec<u64> {
        let hour = |effect: &ScheduleEffect| match effect {
            ScheduleEffect::Start(firing) => Some((firing.slot.0 - START) / HOUR),
            _ => None,
        };
        self.effects.iter().filter_map(hour).collect()
    }

    fn reasons(&self) -> Vec<(SkipReason, u64)> {
        self.head
            .history
            .iter()
            .filter_map(|entry| entry.skipped.as_ref())
            .map(|skipped| (skipped.reason, skipped.count))
            .collect()
    }
}

#[test]
fn a_slot_starts_a_run_under_its_own_id_and_sets_the_next_timer() {
    let script = Script::overlap(Overlap::Skip).due(1.0);
    let [ScheduleEffect::Wake(Some(first)), ScheduleEffect::Start(firing), ScheduleEffect::Wake(Some(second))] =
        script.effects.as_slice()
    else {
        panic!("{:?}", script.effects)
    };
    assert_eq!((first.0, second.0), (START + HOUR, START + 2 * HOUR));
    assert_eq!(firing.run.as_str(), "hourly@2027-01-15T09:00:00Z");
}

/// SC3
#[test]
fn each_policy_decides_on_slots_that_overlap() {
    let run = |overlap| Script::overlap(overlap).due(1.0).due(2.0).due(3.0).due(4.0);
    let skip = run(Overlap::Skip).ended(0, Ending::Completed, 4.5).due(5.0);
    assert_eq!((skip.started(), skip.reasons()), (vec![1, 5], vec![(SkipReason::Overlap, 3)]));
    let one = run(Overlap::BufferOne).ended(0, Ending::Completed, 4.5);
    assert_eq!((one.started(), one.reasons()), (vec![1, 2], vec![(SkipReason::BufferFull, 2)]));
    let all = run(Overlap::BufferAll).ended(0, Ending::Failed, 4.5).ended(1, Ending::Completed, 4.6);
    assert_eq!((all.started(), all.reasons()), (vec![1, 2, 3], vec![]));
    let beside = run(Overlap::AllowAll);
    assert_eq!((beside.started(), beside.reasons()), (vec![1, 2, 3, 4], vec![]));
}

/// SC3: the run is stopped once, and the last slot starts when it has ended.
#[test]
fn cancel_other_and_terminate_other_wait_for_the_end() {
    for (overlap, is_cancel) in [(Overlap::CancelOther, true), (Overlap::TerminateOther, false)] {
        let script = Script::overlap(overlap).due(1.0).due(2.0).due(3.0);
        let stops = script.effects.iter().filter(|effect| match effect {
            ScheduleEffect::Cancel { number: 0, .. } => is_cancel,
            ScheduleEffect::Terminate { number: 0, .. } => !is_cancel,
            _ => false,
        });
        assert_eq!(stops.count(), 1);
        assert_eq!(script.started(), [1]);
        let script = script.ended(0, Ending::Canceled, 3.5);
        assert_eq!((script.started(), script.reasons()), (vec![1, 3], vec![(SkipReason::Superseded, 1)]));
    }
}

#[test]
fn slots_that_are_older_than_the_catch_up_window_are_missed() {
    let options = ScheduleOptions { overlap: Overlap::AllowAll, catch_up_ms: Some(2 * HOUR), ..ScheduleOptions::default() };
    let script = Script::new(options).due(10.5);
    assert_eq!((script.started(), script.reasons()), (vec![9, 10], vec![(SkipReason::Missed, 8)]));
    assert_eq!((script.head.totals.missed, script.head.totals.started), (8, 2));
}

/// SC8
#[test]
fn a_paused_schedule_starts_what_people_request_and_skips_the_rest() {
    let pause = ScheduleInput::Pause(PauseSchedule { note: "holidays".to_owned() });
    let script = Script::overlap(Overlap::Skip).input(&pause, 0.5);
    assert_eq!(script.effects.last(), Some(&ScheduleEffect::Wake(None)));
    let trigger = ScheduleInput::Trigger(TriggerSchedule { request_id: name("now"), overlap: None, requested_by: None });
    let script = script.due(3.0).input(&trigger, 3.0);
    assert_eq!(script.head.running[0].firing.run.as_str(), "hourly@now:now");
    let resume = ScheduleInput::Resume(ResumeSchedule { note: String::new() });
    let script = script.ended(0, Ending::Completed, 3.2).input(&resume, 3.5).due(4.0);
    assert_eq!((script.started(), script.reasons()), (vec![3, 4], vec![(SkipReason::Paused, 3)]));
}

#[test]
fn a_failure_pauses_the_schedule_if_it_should() {
    let options = ScheduleOptions { pause_on_failure: true, ..ScheduleOptions::default() };
    let script = Script::new(options).due(1.0).ended(0, Ending::Canceled, 1.1).due(2.0).ended(1, Ending::Failed, 2.1).due(3.0);
    let paused = script.head.paused.as_ref().unwrap();
    assert_eq!(paused.after, Some(run_of(&name("hourly"), Timestamp(START + 2 * HOUR))));
    assert_eq!(script.started(), [1, 2]);
}

/// SC1, SC11: a slot that was started before is not started again, also if its run was deleted.
#[test]
fn a_backfill_runs_slots_of_the_past_in_order() {
    let backfill = |from: u64, until: u64| {
        let (from, until) = (Timestamp(START + from * HOUR), Timestamp(START + until * HOUR));
        ScheduleInput::Backfill(BackfillSchedule { request_id: name("b"), from, until, overlap: None, requested_by: None })
    };
    let script = Script::overlap(Overlap::Skip).due(1.0).ended(0, Ending::Completed, 1.5);
    let script = script.input(&backfill(0, 2), 2.5).ended(1, Ending::Completed, 2.6);
    assert_eq!(
        (script.started(), script.reasons()),
        (vec![1, 0], vec![(SkipReason::AlreadyStarted, 1), (SkipReason::Overlap, 1)])
    );
    assert_eq!((script.head.totals.started, script.head.totals.skipped), (2, 1));
    let runs: Vec<_> = script
        .effects
        .iter()
        .filter_map(|effect| if let ScheduleEffect::Start(firing) = effect { Some(&firing.run) } else { None })
        .collect();
    assert_eq!(runs[1].as_str(), "hourly@2027-01-15T08:00:00Z");
    assert!(script.head.backfills.is_empty());
    assert_eq!(script.head.decide(&backfill(2, 9), Timestamp(START + 3 * HOUR)), Err(ScheduleRefusal::Range));
}

/// SC7
#[test]
fn an_equal_definition_changes_nothing_and_another_one_starts_nothing_of_the_past() {
    let script = Script::overlap(Overlap::Skip);
    let same = ScheduleInput::Define(Box::new(script.head.definition.clone()));
    let unchanged = script.head.decide(&same, Timestamp(START + HOUR / 2)).unwrap();
    assert_eq!((unchanged.changes, &unchanged.head), (vec![], &script.head));
    let other = ScheduleInput::Define(Box::new(definition(every(30), ScheduleOptions::default())));
    let script = script.input(&other, 0.75).due(1.0);
    assert_eq!((script.started(), script.head.revision), (vec![1], 1));
    let wrong = ScheduleInput::Define(Box::new(definition(cron("0 0 31 2 *", "UTC"), ScheduleOptions::default())));
    assert!(matches!(script.head.decide(&wrong, Timestamp(START)), Err(ScheduleRefusal::Spec(_))));
}

#[test]
fn ids_and_options_have_limits() {
    let create = |id: &str, options| ScheduleHead::create(name(id), definition(every(60), options), Timestamp(START)).map(drop);
    for id in ["a/b", "a@b", &"x".repeat(151)] {
        assert_eq!(create(id, ScheduleOptions::default()), Err(ScheduleRefusal::Id), "{id}");
    }
    assert_eq!(create(&"x".repeat(150), ScheduleOptions::default()), Ok(()));
    for options in [
        ScheduleOptions { buffer_max: Some(0), ..ScheduleOptions::default() },
        ScheduleOptions { buffer_max: Some(BUFFER_MAX + 1), ..ScheduleOptions::default() },
        ScheduleOptions { catch_up_ms: Some(999), ..ScheduleOptions::default() },
    ] {
        let refusal = create("a", options).unwrap_err();
        assert_eq!((refusal.code(), refusal.to_string().starts_with("options.")), ("schedule_invalid", true), "{refusal}");
    }
    let long = ScheduleInput::Trigger(TriggerSchedule { request_id: name(&"x".repeat(65)), overlap: None, requested_by: None });
    assert_eq!(Script::overlap(Overlap::Skip).head.decide(&long, Timestamp(START)), Err(ScheduleRefusal::RequestId));
}

fn backfill_of(id: &str, from: f64, until: f64, overlap: Overlap) -> ScheduleInput {
    let at = |hours: f64| Timestamp((START as f64 + hours * HOUR as f64) as u64);
    let (request_id, overlap) = (name(id), Some(overlap));
    ScheduleInput::Backfill(BackfillSchedule { request_id, from: at(from), until: at(until), overlap, requested_by: None })
}

fn cancel(id: Option<&str>) -> ScheduleInput {
    ScheduleInput::CancelBackfill(CancelBackfill { request_id: id.map(name) })
}

/// SC10: the id of a slot belongs to a run of a caller.
#[test]
fn a_slot_whose_id_is_taken_is_in_the_history_and_not_counted_and_can_be_filled_in_later() {
    let script = Script::overlap(Overlap::Skip).due(1.0).ended(0, Ending::Existed, 1.1);
    let line = script.head.history.last().unwrap();
    assert_eq!(line.ended.as_ref().map(|ended| ended.ending), Some(Ending::Existed));
    assert_eq!((script.head.totals.started, script.head.totals.failed), (0, 0));
    // The run of the caller was deleted.
    let script = script.input(&backfill_of("b", 1.0, 1.5, Overlap::Skip), 1.6);
    assert_eq!((script.started(), script.head.totals.started), (vec![1, 1], 1));
}

/// SC11: a start that was refused had no run.
#[test]
fn a_slot_whose_start_was_refused_can_be_filled_in() {
    let refused = Ended { was_refused: true, ..Ended::new(0, Ending::Failed, Some("input_invalid".to_owned())) };
    let script = Script::overlap(Overlap::Skip).due(1.0).input(&ScheduleInput::Ended(refused), 1.1);
    let script = script.input(&backfill_of("b", 1.0, 1.5, Overlap::Skip), 1.6);
    assert_eq!((script.started(), script.head.totals.failed), (vec![1, 1], 1));
}

/// SC11: the bound of the history.
#[test]
fn a_slot_is_known_as_long_as_the_history_has_it() {
    let options = ScheduleOptions { overlap: Overlap::AllowAll, ..ScheduleOptions::default() };
    let mut script = Script::new(options);
    for hour in 1..=51 {
        script = script.due(f64::from(hour)).ended(hour as u32 - 1, Ending::Completed, f64::from(hour) + 0.5);
    }
    let script = script.input(&backfill_of("known", 2.0, 2.5, Overlap::AllowAll), 51.6);
    assert_eq!((script.started().len(), script.reasons()), (51, vec![(SkipReason::AlreadyStarted, 1)]));
    let script = script.input(&backfill_of("forgotten", 1.0, 1.5, Overlap::AllowAll), 51.7);
    assert_eq!(script.started().last(), Some(&1), "its run, if it is there, ends this one as `existed`");
}

/// SC5
#[test]
fn a_backfill_has_a_maximum_of_slots() {
    let most = f64::from(BACKFILL_SLOTS_MAX);
    let script = Script::overlap(Overlap::Skip);
    let now = Timestamp(START + 20_000 * HOUR);
    assert_eq!(script.head.decide(&backfill_of("b", 0.0, most + 0.5, Overlap::Skip), now), Err(ScheduleRefusal::TooManySlots));
    assert!(script.head.decide(&backfill_of("b", 0.0, most - 0.5, Overlap::Skip), now).is_ok());
    // A definition with more slots does not enlarge the backfill.
    let mut head = script.head.clone();
    head.backfills = vec![BackfillRange {
        request_id: name("small"),
        after: Timestamp(START - 20 * HOUR),
        until: Timestamp(START),
        overlap: Overlap::AllowAll,
        is_done: false,
        requested_by: None,
        left: Some(3),
    }];
    let decided = head.decide(&ScheduleInput::Due(ScheduleDue {}), Timestamp(START + HOUR / 2)).unwrap();
    assert_eq!((decided.head.running.len(), decided.head.backfills), (3, vec![]));
}

/// A canceled backfill starts nothing more; what is running, other backfills and slots of the clock continue.
#[test]
fn a_canceled_backfill_starts_nothing_more() {
    let options = ScheduleOptions { overlap: Overlap::BufferAll, buffer_max: Some(4), ..ScheduleOptions::default() };
    let script = Script::new(options).input(&backfill_of("a", -3.0, -1.0, Overlap::BufferAll), 0.1);
    let script = script.input(&backfill_of("b", -100.0, -50.0, Overlap::BufferAll), 0.2);
    assert_eq!((script.head.running.len(), script.head.buffered.len(), script.head.backfills.len()), (1, 4, 1));
    let script = script.input(&cancel(Some("b")), 0.3);
    assert_eq!((script.head.running.len(), script.head.buffered.len(), script.head.backfills.len()), (1, 1, 0));
    assert_eq!(script.reasons(), [(SkipReason::Canceled, 3)]);
    let at = Timestamp(START + HOUR / 2);
    let missing = |id| matches!(script.head.decide(&cancel(id), at), Err(ScheduleRefusal::NoBackfill { .. }));
    assert!(missing(Some("b")) && missing(Some("c")));
    let script = script.input(&cancel(None), 0.4).ended(0, Ending::Completed, 0.5).due(1.0);
    assert!(script.head.buffered.is_empty());
    assert_eq!(script.started().last(), Some(&1), "the clock continues");
}

//! The golden log of a schedule: every input, and changes of every type.

use onward_core::event::RunPaused;
use onward_core::run::Input;
use onward_core::schedule::{
    BackfillSchedule, Calendar, CancelBackfill, Ended, Ending, Interval, Overlap, PauseSchedule, ResumeSchedule,
    ScheduleDefinition, ScheduleDue, ScheduleInput, ScheduleOptions, ScheduleSpec, ScheduleTarget, TriggerSchedule,
};
use onward_core::schedule_run::{schedule_key, start_schedule};
use onward_core::{Attribute, AttributeValue, Log, Name, Namespace, Payload, RunHead, RunKey, Timestamp};

/// 2027-01-15T08:00:00Z.
const START: u64 = 1_800_000_000_000;

fn key() -> RunKey {
    schedule_key(Namespace::default(), &name("nightly")).expect("the id is valid")
}

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

fn definition(overlap: Overlap) -> ScheduleDefinition {
    let target = ScheduleTarget {
        kind: name("report"),
        input: Payload::from_json_text("{\"day\":\"{{ slot.date }}\"}"),
        is_template: true,
        version: Some(name("v2")),
        attributes: vec![Attribute { name: name("team"), value: AttributeValue::Text("a".to_owned()) }],
        deadline_ms: Some(3_600_000),
    };
    let spec = ScheduleSpec {
        every: vec![Interval { every_ms: 60_000, offset_ms: 1_000 }],
        except: vec![Calendar { hour: Some("3".to_owned()), minute: Some("*".to_owned()), ..Calendar::default() }],
        time_zone: Some("Europe/Berlin".to_owned()),
        jitter_ms: 500,
        ..ScheduleSpec::default()
    };
    let options = ScheduleOptions { overlap, pause_on_failure: true, ..ScheduleOptions::default() };
    ScheduleDefinition { target, spec, options, requester: Some("ada".to_owned()), granted: None }
}

/// Records a schedule that buffers, replaces, fills in, triggers, pauses, resumes and ends runs.
pub fn schedule() -> Log {
    let start = start_schedule(key(), definition(Overlap::BufferAll), 3);
    let (mut head, first) = RunHead::start(key(), start.started, Timestamp(START));
    let mut log = Log::load(vec![first]).expect("a log begins so");
    let due = || ScheduleInput::Due(ScheduleDue {});
    let ended = |number, ending, code: Option<&str>| ScheduleInput::Ended(Ended::new(number, ending, code.map(str::to_owned)));
    let (from, until) = (Timestamp(START - 120_000), Timestamp(START - 1));
    let backfill = BackfillSchedule {
        request_id: name("b"),
        from,
        until,
        overlap: Some(Overlap::BufferOne),
        requested_by: Some("bob".to_owned()),
    };
    let inputs = [
        (0, due()),
        (62_000, due()),
        (122_000, due()),
        (123_000, ScheduleInput::Define(Box::new(definition(Overlap::TerminateOther)))),
        (182_000, due()),
        (183_000, ended(0, Ending::Terminated, Some("terminated"))),
        (184_000, ScheduleInput::Backfill(backfill)),
        (185_000, ScheduleInput::Trigger(TriggerSchedule { request_id: name("t"), overlap: None, requested_by: None })),
        (186_000, ScheduleInput::Pause(PauseSchedule { note: "for a while".to_owned() })),
        (400_000, ScheduleInput::Resume(ResumeSchedule { note: String::new() })),
        (401_000, ended(3, Ending::Canceled, Some("canceled"))),
        (402_000, ended(5, Ending::Failed, Some("boom"))),
    ];
    for (offset, input) in inputs {
        let admitted = head.admit_input(Input::from(input), None, Timestamp(START + offset)).expect("a schedule takes it");
        log.push(admitted.record).expect("it follows");
    }
    log
}

/// Checks the log, which has no code: the store derives its head from it.
pub fn read_schedule(log: &Log) -> Result<(), Box<RunPaused>> {
    let head = RunHead::rebuild(key(), log.records()).expect("the log begins with a start");
    let schedule = head.schedule.expect("it is a schedule");
    let totals = schedule.totals;
    assert_eq!((totals.started, totals.failed, schedule.revision), (4, 1, 1), "{totals:?}");
    assert!(schedule.paused.is_some() && totals.skipped > 0);
    Ok(())
}

/// Records a schedule whose backfills meet a slot that was started, one that is taken and one that was refused, and are canceled.
pub fn filled() -> Log {
    let start = start_schedule(key(), definition(Overlap::Skip), 3);
    let (mut head, first) = RunHead::start(key(), start.started, Timestamp(START));
    let mut log = Log::load(vec![first]).expect("a log begins so");
    let backfill = |id: &str, from: u64, until: u64| {
        ScheduleInput::Backfill(BackfillSchedule {
            request_id: name(id),
            from: Timestamp(from),
            until: Timestamp(until),
            overlap: Some(Overlap::BufferAll),
            requested_by: None,
        })
    };
    let refused = Ended { was_refused: true, ..Ended::new(1, Ending::Failed, Some("input_invalid".to_owned())) };
    let cancel = |id: Option<&str>| ScheduleInput::CancelBackfill(CancelBackfill { request_id: id.map(name) });
    let inputs = [
        (62_000, ScheduleInput::Due(ScheduleDue {})),
        (63_000, ScheduleInput::Ended(Ended::new(0, Ending::Completed, None))),
        (64_000, backfill("known", START - 60_000, START + 62_000)),
        (65_000, ScheduleInput::Ended(refused)),
        (66_000, backfill("long", START - 86_400_000, START - 3_600_000)),
        (67_000, cancel(Some("long"))),
        (68_000, ScheduleInput::Ended(Ended::new(2, Ending::Existed, Some("run_exists".to_owned())))),
    ];
    for (offset, input) in inputs {
        let admitted = head.admit_input(Input::from(input), None, Timestamp(START + offset)).expect("a schedule takes it");
        log.push(admitted.record).expect("it follows");
    }
    log
}

/// Checks the log, which has no code: the store derives its head from it.
pub fn read_filled(log: &Log) -> Result<(), Box<RunPaused>> {
    let head = RunHead::rebuild(key(), log.records()).expect("the log begins with a start");
    let schedule = head.schedule.expect("it is a schedule");
    let reasons: Vec<&str> = schedule.history.iter().filter_map(|line| Some(line.skipped.as_ref()?.reason.as_str())).collect();
    assert!(reasons.contains(&"already_started") && reasons.contains(&"canceled"), "{reasons:?}");
    assert!(schedule.backfills.is_empty() && schedule.buffered.is_empty(), "{schedule:?}");
    Ok(())
}

use super::*;
use crate::log::event::{StateSet, StepCompleted, StepFailed};

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn step(call: u32, attempt: u32) -> RunningStep {
    let (call_id, name, started_at) = (CallId::root(call), name("charge"), Timestamp(5));
    RunningStep { call_id, name, attempt, started_at, input: None }
}

fn active(generation: u32, call: u32, attempt: u32) -> ActiveCall {
    ActiveCall::of_step(generation, step(call, attempt))
}

fn failed(call: u32, attempt: u32, retry_at: Option<Timestamp>) -> Record {
    let (call_id, failure) = (CallId::root(call), Failure::new("declined", "no"));
    let event =
        StepFailed { call_id, name: name("charge"), input_hash: None, input: None, failure, attempt, took_ms: 1, retry_at };
    Record::input(Index(7), Timestamp(9), event.into())
}

fn completed(call: u32) -> Record {
    let (call_id, output) = (CallId::root(call), Payload::null());
    let event = StepCompleted { call_id, name: name("charge"), input_hash: None, input: None, output, attempt: 1, took_ms: 1 };
    Record::input(Index(7), Timestamp(9), event.into())
}

#[test]
fn a_notice_about_an_attempt_that_the_log_has_ended_is_ignored() {
    let mut table = ActiveTable::default();
    assert!(table.start(active(0, 1, 1)));
    assert!(!table.start(active(0, 1, 1)), "the same notice came before");
    table.appended(0, &failed(1, 1, Some(Timestamp(20))));
    assert!(!table.start(active(0, 1, 1)), "LV3");
    assert!(table.start(active(0, 1, 2)), "the next attempt is another");
    table.appended(0, &completed(1));
    assert!(!table.start(active(0, 1, 2)) && table.calls().is_empty(), "LV3");
}

#[test]
fn a_complete_report_removes_steps_that_the_code_has_dropped() {
    let mut table = ActiveTable::default();
    assert!(table.start(active(0, 1, 1)) && table.start(active(0, 2, 1)));
    let run = RunKey::new(crate::Namespace::default(), crate::RunId::new("r").unwrap());
    let report = StepsReport { run, generation: 0, is_complete: true, steps: vec![step(2, 1)] };
    table.retain_steps(&report);
    assert_eq!(table.calls(), [active(0, 2, 1)]);
}

#[test]
fn a_later_generation_begins_with_an_empty_table() {
    let mut table = ActiveTable::default();
    assert!(table.start(active(0, 1, 1)) && table.start(active(1, 1, 1)));
    assert_eq!(table.calls(), [active(1, 1, 1)]);
    assert!(!table.start(active(0, 2, 1)), "a late notice of the generation before");
}

#[test]
fn failed_attempts_and_state_follow_from_the_log() {
    let frames = derived(3, &failed(1, 2, Some(Timestamp(20))));
    let [LiveFrame { at: Timestamp(9), content: LiveContent::StepAttemptFailed(frame) }] = &frames[..] else {
        panic!("LV2: {frames:?}")
    };
    assert_eq!((frame.generation, frame.attempt, frame.next_attempt_at), (3, 2, Some(Timestamp(20))));
    let set = StateSet { call_id: CallId::root(0), key: name("total"), value: Payload::json(&5).unwrap() };
    let frames = derived(0, &Record::input(Index(1), Timestamp(2), set.into()));
    assert!(matches!(&frames[0].content, LiveContent::StateChanged(changed) if changed.name.as_str() == "total"), "LV2");
    assert!(derived(0, &completed(1)).is_empty());
}

#[test]
fn every_live_frame_survives_its_encoding() {
    use crate::codec::Message;
    let record = completed(1);
    let contents = [
        LiveContent::StepStarted(StepStarted { generation: 1, step: step(1, 2) }),
        LiveContent::Log(LiveRecord { generation: 1, record }),
        LiveContent::Dropped(ReaderDropped { cursor: Some(LogCursor { generation: 1, index: Index(0) }) }),
        LiveContent::End(RunEnd { status: Status::Failed, outcome: Some(Err(Failure::new("declined", "no"))) }),
        LiveContent::Emitted(Emitted { audience: Audience::Internal, ..Emitted::new("x", Payload::null()) }),
    ];
    for content in contents {
        let frame = LiveFrame { at: Timestamp(4), content };
        assert_eq!(LiveFrame::decode_fields(&frame.to_bytes()).unwrap(), frame, "C1");
    }
}

//! Tests of the parent module.

use onward_core::{Namespace, RunId};

use super::*;

const ORDER: &str = r#"
{"index":0,"at":"2026-11-15T11:57:15.216Z","events":[{"type":"run_started","kind":"order","version":null,"input":{"json":"a teapot"},"seed":1,"parent":null,"generation":0,"mailbox":[]}]}
{"index":1,"at":"2026-11-15T11:57:15.370Z","commit":{"n":0,"epoch":1,"commit_id":6,"horizon":0,"waits":false},"events":[{"type":"step_completed","call_id":"0","name":"charge","input_hash":null,"output":{"json":42},"attempt":1,"took_ms":151}]}
{"index":2,"at":"2026-11-15T11:57:15.380Z","commit":{"n":1,"epoch":1,"commit_id":7,"horizon":1,"waits":true},"events":[{"type":"state_set","call_id":"1","key":"stage","value":{"json":"charged"}},{"type":"signal_awaited","call_id":"2","name":"payment","deadline":null,"is_pattern":false}]}
{"index":4,"at":"2026-11-15T11:57:16.380Z","events":[{"type":"signal_received","name":"payment","payload":{"json":7},"signal_id":null,"sender":null}]}
{"index":5,"at":"2026-11-15T11:57:16.390Z","commit":{"n":2,"epoch":1,"commit_id":8,"horizon":4,"waits":true},"events":[{"type":"signal_consumed","call_id":"2","name":"payment","index":4},{"type":"run_completed","output":{"json":"shipped"}}]}
"#;

pub fn order() -> Timeline {
    let lines = ORDER.lines().filter(|line| !line.is_empty());
    let records = lines.map(|line| serde_json::from_str(line).unwrap()).collect();
    Timeline::new(RunKey::new(Namespace::default(), RunId::new("order-1").unwrap()), records).unwrap()
}

#[test]
fn a_moment_is_the_run_as_it_was() {
    let timeline = order();
    let status = |at: usize| timeline.moment(at).view.head.status;
    let statuses: Vec<&str> = (0..=timeline.last()).map(|at| status(at).as_str()).collect();
    assert_eq!(statuses, ["pending", "pending", "running", "waiting", "pending", "running", "completed"]);
    let waits: Vec<usize> = (0..=timeline.last()).map(|at| timeline.moment(at).view.awaiting.len()).collect();
    assert_eq!(waits, [0, 0, 0, 1, 1, 0, 0]);
    assert_eq!(timeline.moment(3).calls, [2, 3]);
    assert_eq!(timeline.moment(4).calls, [0; 0], "an input is not a call of the code");
    assert!(timeline.moment(3).record.starts_with("event 2 of 2 in commit 1: the code had seen events up to #1"));
}

#[test]
fn records_are_stepped_over_whole() {
    let timeline = order();
    assert_eq!((timeline.next_record(2), timeline.next_record(3), timeline.next_record(6)), (4, 4, 6));
    assert_eq!((timeline.previous_record(4), timeline.previous_record(3), timeline.previous_record(0)), (2, 2, 0));
}

#[test]
fn what_does_not_begin_with_a_start_is_no_log() {
    let timeline = order();
    assert!(Timeline::new(timeline.key.clone(), timeline.records[1..].to_vec()).is_none());
    assert!(Timeline::new(timeline.key.clone(), Vec::new()).is_none());
}

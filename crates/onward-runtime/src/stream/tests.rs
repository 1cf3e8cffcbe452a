//! Tests of the parent module.

use onward_core::stream::SequencedFrame;
use onward_core::{CallId, Namespace, Payload, RunId};

use super::*;

fn task_frames(run: u32, seq: u64, frame: &Payload) -> TaskFrames {
    let run = RunKey::new(Namespace::default(), RunId::new(format!("r{run}")).unwrap());
    let task = TaskId { run, generation: 0, call_id: CallId::root(0), incarnation: None };
    TaskFrames { task, claim: 1, attempt: 1, frames: vec![SequencedFrame { seq, frame: frame.clone() }] }
}

#[test]
fn however_many_frames_in_however_many_runs_the_bound_holds() {
    let streams = Streams::default();
    let frame = Payload::binary("text/plain", vec![b'x'; 64 * 1024]);
    // 1,000 runs with half a megabyte each would be half a gigabyte.
    for run in 0..1_000 {
        for seq in 0..8 {
            streams.push_frames(task_frames(run, seq, &frame), Timestamp(u64::from(run) + 1));
        }
        assert!(streams.bytes.load(Ordering::SeqCst) <= BYTES_MAX_OF_ALL + 64 * 1024 * 2); // ST1
    }
    let mut bytes = 0;
    streams.buffers.each(|_, buffer| bytes += buffer.bytes());
    assert_eq!(bytes, streams.bytes.load(Ordering::SeqCst), "what is counted is what is there");
    let last = task_frames(999, 8, &frame);
    assert!(streams.update(&last.task.run, |_| ()).is_some(), "the last to speak is the last to go");
}

#[test]
fn an_unread_stream_is_dropped_and_a_read_one_stays() {
    let streams = Streams::default();
    for run in 0..3 {
        streams.push_frames(task_frames(run, 0, &Payload::null()), Timestamp(1));
    }
    let read = task_frames(1, 0, &Payload::null()).task.run;
    streams.update(&read, |buffer| buffer.readers += 1);
    streams.sweep_at(Timestamp(1).after(AGE_MAX * 2));
    assert_eq!(streams.runs(), [read]);
}

//! Tests of the parent module.

use super::*;
use serde_json::json;

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn take_frames(outbox: &Outbox) -> Vec<(u64, Value)> {
    outbox.take().into_iter().map(|frame| (frame.seq, frame.frame.read().unwrap())).collect()
}

#[test]
fn pieces_of_one_sort_become_one_while_they_wait() {
    let outbox = Outbox::default();
    let arguments = |call: u32, text: &str| json!({"type": "tool_call_arguments", "call": call, "text": text});
    let usage = |tokens: u32| json!({"type": "usage", "input_tokens": tokens});
    for frame in [text("a"), text("b"), arguments(0, "{"), arguments(0, "}"), arguments(1, "[]"), usage(1), usage(2), text("c")] {
        outbox.put(frame);
    }
    let expected = [text("ab"), arguments(0, "{}"), arguments(1, "[]"), usage(2), text("c")];
    assert_eq!(take_frames(&outbox), (0..).zip(expected).collect::<Vec<_>>());
    outbox.put(text("d"));
    assert_eq!(take_frames(&outbox), [(5, text("d"))]);
    outbox.put(json!({"type": "log", "text": "one"}));
    outbox.put(json!({"type": "log", "text": "two"}));
    assert_eq!(take_frames(&outbox).len(), 2, "what is no piece of an answer stays what it is");
}

#[test]
fn what_there_is_no_room_for_shows_as_a_gap_and_the_rest_is_bounded() {
    let outbox = Outbox::default();
    let piece = "x".repeat(4 * 1024);
    for _ in 0..1_000 {
        outbox.put(text(&piece));
    }
    let first = take_frames(&outbox);
    let bytes: usize = first.iter().map(|(_, frame)| frame["text"].as_str().unwrap().len()).sum();
    assert!((BYTES_MAX - 64 * 1024..=BYTES_MAX).contains(&bytes), "{bytes}");
    outbox.put(text("on"));
    let (last, next) = (first.last().unwrap().0, take_frames(&outbox)[0].0);
    assert!(next > last + 1, "{last} and then {next}");
    outbox.put(text(&"x".repeat(FRAME_BYTES_MAX)));
    assert!(take_frames(&outbox).is_empty());
}

#[test]
fn frames_that_come_back_are_sent_first() {
    let outbox = Outbox::default();
    outbox.put(text("a"));
    let sent = outbox.take();
    outbox.put(text("b"));
    outbox.put_back(sent);
    outbox.put(text("c"));
    assert_eq!(take_frames(&outbox), [(0, text("a")), (1, text("bc"))]);
}

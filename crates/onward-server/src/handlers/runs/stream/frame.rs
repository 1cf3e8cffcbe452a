//! Frames of a stream as JSON: flat objects with a `type`.

use onward_core::stream::{Spoken, StreamFrame, StreamSaid};
use onward_core::{CallId, Payload, RunKey};
use onward_runtime::CallRef;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

/// Returns the frame as JSON.
pub(crate) fn document(key: &RunKey, frame: &StreamFrame) -> Box<RawValue> {
    let mut document = said(key, &frame.said);
    document.insert("offset".to_owned(), json!(frame.offset));
    document.insert("at".to_owned(), json!(frame.at));
    to_raw_value(&document).expect("frames serialize")
}

fn said(key: &RunKey, said: &StreamSaid) -> Map<String, Value> {
    let task = |generation: u32, call_id: &CallId| call(key, generation, call_id);
    let (kind, mut rest) = match said {
        StreamSaid::Spoken(said) => return spoken(key, said),
        StreamSaid::AttemptReset(said) => {
            ("attempt_reset", json!({"task": task(said.generation, &said.task), "attempt": said.attempt}))
        }
        StreamSaid::AttemptFailed(said) => (
            "attempt_failed",
            json!({
                "task": task(said.generation, &said.task), "attempt": said.attempt, "attempts_max": said.attempts_max,
                "code": said.failure.code, "message": said.failure.message, "failure": said.failure,
                "next_delay_ms": said.next_delay_ms,
            }),
        ),
        StreamSaid::TaskEnd(said) => ("task_end", json!({"task": task(said.generation, &said.task), "outcome": said.outcome})),
        StreamSaid::Entry(said) => (
            "entry",
            json!({"generation": said.generation, "index": said.index, "id": said.id, "parent": said.parent, "role": said.role}),
        ),
        StreamSaid::BranchReset(said) => ("branch_reset", json!({"generation": said.generation, "leaf": said.leaf})),
        StreamSaid::ApprovalRequested(said) => {
            let asked = &said.requested;
            (
                "approval_requested",
                json!({
                    "id": call(key, said.generation, &asked.call_id), "name": asked.name, "title": asked.title,
                    "description": asked.description, "show": asked.show, "deciders": asked.deciders,
                    "not_by_requester": asked.not_by_requester, "deadline": asked.deadline,
                }),
            )
        }
        StreamSaid::Paused(pause) => ("paused", json!({"reason": pause.reason, "message": pause.message})),
        StreamSaid::Resumed(_) => ("resumed", json!({})),
        StreamSaid::End(end) => ("end", json!({"status": end.status})),
        StreamSaid::StreamReset(reset) => ("stream_reset", json!({"generation": reset.generation, "leaf": reset.leaf})),
    };
    rest["type"] = json!(kind);
    as_object(rest)
}

/// Returns the object that a task emitted, with our fields, which win over fields of the same name.
fn spoken(key: &RunKey, said: &Spoken) -> Map<String, Value> {
    let mut document = match said.frame.read::<Value>() {
        Ok(Value::Object(object)) if object.get("type").is_some_and(Value::is_string) => object,
        _ => as_object(json!({"type": "value", "value": shown(&said.frame)})),
    };
    let ours = json!({
        "task": call(key, said.generation, &said.task), "generation": said.generation, "attempt": said.attempt, "seq": said.seq,
    });
    document.extend(as_object(ours));
    document
}

/// Returns a payload that is not an object with a `type`, in the form that payloads have elsewhere.
fn shown(payload: &Payload) -> Value {
    json!(payload)
}

fn call(key: &RunKey, generation: u32, call_id: &CallId) -> String {
    CallRef { run: key.clone(), generation, call_id: call_id.clone() }.to_string()
}

fn as_object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        other => Map::from_iter([("value".to_owned(), other)]),
    }
}

//! Random answers of the world outside.

use onward_flow::machine::{CallRequest, FlowFailure};
use serde_json::{Value, json};

use super::random::Random;

pub type Answer = Result<Value, FlowFailure>;

/// Answers a call; it fails in `failures` of 100 cases.
pub fn answer(random: &mut Random, request: &CallRequest, failures: usize) -> Answer {
    if !matches!(request, CallRequest::Sleep { .. }) && random.chance(failures) {
        let (code, retryable) = [("boom", true), ("boom", true), ("fatal", false), ("timed_out", true)][random.below(4)];
        let details = random.chance(30).then(|| if random.chance(50) { json!({ "why": 1 }) } else { json!("text") });
        return Err(FlowFailure { retryable, details, ..FlowFailure::permanent(code, format!("it failed: {code}")) });
    }
    Ok(match request {
        CallRequest::Sleep { .. } => Value::Null,
        CallRequest::Approval { answer, .. } => {
            let mut decision = json!({ "approved": random.chance(50), "decider": "ann", "feedback": null });
            if answer.is_some() && decision["approved"] == true {
                decision["answer"] = json!(random.below(10));
            }
            decision
        }
        CallRequest::Model { .. } => model_answer(random),
        CallRequest::Child { is_agent: true, .. } => agent_answer(random),
        _ => value(random),
    })
}

fn model_answer(random: &mut Random) -> Value {
    json!(random.pick(&["7", "12", "[1, 2]", "```json\n3\n```", "a text", "{\"a\": [1]}", "```\n[5]\n```", "[1, \"x\"]", ""]))
}

fn agent_answer(random: &mut Random) -> Value {
    match random.below(4) {
        0 => value(random),
        1 => json!({ "text": 5 }),
        _ => json!({ "text": model_answer(random), "turns": 2 }),
    }
}

/// Returns any small value.
pub fn value(random: &mut Random) -> Value {
    match random.below(8) {
        0 => Value::Null,
        1 => json!("text"),
        2 => json!({ "a": random.below(10), "b": [1] }),
        3 => json!([random.below(3), random.below(3), 2]),
        4 => json!(true),
        _ => json!(random.below(10)),
    }
}

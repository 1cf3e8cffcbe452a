//! The last event of a turn: its outcome and the open approvals.
//!
//! Invariant AG4: what a person is asked to approve is sent byte for byte, and once more as a text: a JSON parser of a client may
//! change numbers and drop duplicate names.

use onward_core::run::Wait;
use onward_core::{Name, Payload, RunKey};
use onward_runtime::CallRef;
use serde::Serialize;
use serde_json::{Value, json};

#[derive(Serialize)]
#[serde(tag = "type", rename = "RUN_FINISHED", rename_all = "camelCase")]
pub(super) struct Finished<'a> {
    pub thread_id: &'a str,
    pub run_id: &'a str,
    pub outcome: FinishOutcome<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub usage: Vec<Value>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum FinishOutcome<'a> {
    Success,
    Cancelled,
    Interrupt { interrupts: Vec<Interrupt<'a>> },
}

/// Open approval as an AG-UI interrupt.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Interrupt<'a> {
    id: String,
    reason: &'static str,
    message: String,
    response_schema: Value,
    metadata: ApprovalMetadata<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
}

#[derive(Serialize)]
struct ApprovalMetadata<'a> {
    name: &'a str,
    /// Kind of the run that asks.
    agent: &'a str,
    run: &'a str,
    description: Option<&'a str>,
    show: Option<&'a Payload>,
    show_text: Option<&'a str>,
}

impl Finished<'_> {
    pub fn event(&self) -> String {
        serde_json::to_string(self).expect("the event serializes")
    }
}

impl FinishOutcome<'_> {
    /// Returns an interrupt with the open approvals, each with the kind of its run. `key` is the run of the thread.
    pub fn asking<'a>(key: &RunKey, questions: &'a [(Name, Wait)]) -> FinishOutcome<'a> {
        FinishOutcome::Interrupt { interrupts: questions.iter().map(|(agent, wait)| Interrupt::new(key, agent, wait)).collect() }
    }
}

impl<'a> Interrupt<'a> {
    fn new(key: &RunKey, agent: &'a Name, wait: &'a Wait) -> Interrupt<'a> {
        let show_text = wait.show.as_ref().and_then(|show| std::str::from_utf8(show.data()).ok());
        Interrupt {
            id: CallRef::from(wait).to_string(),
            reason: "approval",
            // The approval of a run below names its agent.
            message: if wait.run == *key { wait.title.clone() } else { format!("{agent} asks: {}", wait.title) },
            response_schema: response_schema(wait.answer_schema.as_ref()),
            metadata: ApprovalMetadata {
                name: wait.name.as_str(),
                agent: agent.as_str(),
                run: wait.run.id.as_str(),
                description: wait.description.as_deref(),
                show: wait.show.as_ref(),
                show_text,
            }, // AG4
            expires_at: wait.deadline.map(|deadline| deadline.to_string()),
        }
    }
}

/// Returns the schema of a response, with that of the structured answer.
fn response_schema(answer: Option<&Payload>) -> Value {
    let mut schema = json!({
        "type": "object",
        "properties": {"approved": {"type": "boolean"}, "feedback": {"type": "string"}},
        "required": ["approved"],
    });
    // An encrypted schema cannot be read here.
    if let Some(Ok(mut answer)) = answer.map(Payload::read::<Value>) {
        move_references(&mut answer);
        schema["properties"]["answer"] = answer;
    }
    schema
}

/// Adjusts the references of a schema that becomes `properties/answer` of another one.
fn move_references(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if let Some(Value::String(reference)) = fields.get_mut("$ref")
                && let Some(pointer) = reference.strip_prefix('#')
            {
                *reference = format!("#/properties/answer{pointer}");
            }
            fields.values_mut().for_each(move_references);
        }
        Value::Array(items) => items.iter_mut().for_each(move_references),
        _ => {}
    }
}

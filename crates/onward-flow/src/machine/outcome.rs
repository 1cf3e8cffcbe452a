//! What becomes of the answer of a call: the result of a step, checked against the schema of `output`.

use serde_json::{Value, json};

use super::plan::{KindPlan, StepPlan};
use super::schema::Schema;
use super::turn::FlowFailure;

/// The maximum number of calls of a model until its answer fits.
const QUESTIONS_MAX: u32 = 3;

/// An answer that is no failure.
#[derive(Debug)]
pub enum Accepted {
    Result(Value),
    /// The answer of a model does not fit.
    AskAgain {
        answer: Value,
        problems: Vec<String>,
    },
}

/// Returns the result of a step for the answer of its call, after the given number of calls.
pub fn accepted(step: &StepPlan, answer: Value, questions: u32) -> Result<Accepted, FlowFailure> {
    let answer = match &step.kind {
        KindPlan::Sleep(_) => return Ok(Accepted::Result(Value::Null)),
        KindPlan::Agent { .. } => text_of(answer),
        _ => answer,
    };
    let Some(schema) = &step.output else { return Ok(Accepted::Result(answer)) };
    let checked = match &step.kind {
        KindPlan::Prompt { .. } | KindPlan::Agent { .. } => parsed(&answer).and_then(|value| checked(schema, value)),
        _ => checked(schema, answer.clone()),
    };
    match checked {
        Ok(result) => Ok(Accepted::Result(result)),
        Err(problems) if matches!(step.kind, KindPlan::Prompt { .. }) && questions < QUESTIONS_MAX => {
            Ok(Accepted::AskAgain { answer, problems })
        }
        Err(problems) => Err(invalid(problems)),
    }
}

/// Returns the text of the outcome of an agent, or the outcome itself.
fn text_of(outcome: Value) -> Value {
    match outcome {
        Value::Object(mut fields) if fields.get("text").is_some_and(Value::is_string) => {
            fields.remove("text").unwrap_or_default()
        }
        outcome => outcome,
    }
}

/// Parses a text as JSON, also in a fenced block of Markdown. Other values stay as they are.
fn parsed(answer: &Value) -> Result<Value, Vec<String>> {
    let Value::String(text) = answer else { return Ok(answer.clone()) };
    let text = text.trim();
    let fenced = text.strip_prefix("```").and_then(|text| text.strip_suffix("```"));
    let text = fenced.and_then(|text| text.split_once('\n')).map_or(text, |(_language, text)| text);
    let problem = |error: serde_json::Error| format!("it is not JSON (line {}, column {})", error.line(), error.column());
    serde_json::from_str(text).map_err(|error| vec![problem(error)])
}

fn checked(schema: &Schema, value: Value) -> Result<Value, Vec<String>> {
    let problems = schema.problems("output", &value);
    if problems.is_empty() { Ok(value) } else { Err(problems) }
}

fn invalid(problems: Vec<String>) -> FlowFailure {
    let mut failure =
        FlowFailure::permanent("output_invalid", format!("the result does not fit the schema: {}", problems.join("; ")));
    failure.details = Some(json!({ "problems": problems }));
    failure
}

//! Failures of the engine as those of flows, and back.

use onward_core::{Failure, Payload};
use onward_flow::machine::FlowFailure;
use serde_json::{Value, json};

/// The code of a failure for which there is no better one.
const FAILED: &str = "failed";

/// The code of an expression or template that failed.
const EXPRESSION_FAILED: &str = "expression_failed";

pub(super) fn from_failure(failure: &Failure) -> FlowFailure {
    let details = failure.details.as_ref().and_then(|details| details.read().ok());
    let code = if failure.code.is_empty() { FAILED.to_owned() } else { failure.code.clone() };
    FlowFailure { code, message: failure.to_string(), retryable: failure.retryable, details, step: None }
}

/// Converts the failure of a flow; the step becomes a part of the details.
pub(super) fn to_failure(failure: FlowFailure) -> Failure {
    let FlowFailure { code, message, retryable, details, step } = failure;
    // Other messages come from work that the step names in the log; an expression has only its source.
    let message = match &step {
        Some(step) if code == EXPRESSION_FAILED => format!("step `{step}`: {message}"),
        _ => message,
    };
    let details = match (details, step) {
        (details, None) => details,
        (None, Some(step)) => Some(json!({"step": step})),
        (Some(Value::Object(mut details)), Some(step)) => {
            details.entry("step").or_insert(step.into());
            Some(Value::Object(details))
        }
        (Some(details), Some(step)) => Some(json!({"step": step, "details": details})),
    };
    let failure = Failure { retryable, ..Failure::new(code, message) };
    let details = details.and_then(|details| Payload::json(&details).ok());
    details.into_iter().fold(failure, Failure::with_details)
}

/// Returns the failure of a step whose arguments the engine does not accept.
pub(super) fn refused(message: String) -> FlowFailure {
    FlowFailure { code: "invalid_arguments".to_owned(), message, retryable: false, details: None, step: None }
}

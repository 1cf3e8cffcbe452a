//! Failures: how they are made, matched by `catch` and `retry`, and shown to expressions.

use serde_json::{Value, json};

use super::turn::FlowFailure;
use crate::expression::ExpressionError;

/// The failure of a call whose run was canceled.
pub const CANCELED: &str = "canceled";

impl FlowFailure {
    /// Returns a failure that another attempt would not help.
    pub fn permanent(code: &str, message: impl Into<String>) -> FlowFailure {
        FlowFailure { code: code.to_owned(), message: message.into(), retryable: false, details: None, step: None }
    }

    pub(super) fn of_expression(error: ExpressionError) -> FlowFailure {
        let mut failure = FlowFailure::permanent("expression_failed", error.to_string());
        failure.details = Some(json!({ "expression": error.source }));
        failure
    }

    pub(super) fn timed_out(ms: u64) -> FlowFailure {
        let message = format!("no result within {}", crate::document::Span::from_ms(ms));
        FlowFailure { retryable: true, ..FlowFailure::permanent("timed_out", message) }
    }

    /// Returns the failure with this step, unless it names one.
    pub(super) fn in_step(mut self, step: &str) -> FlowFailure {
        self.step.get_or_insert_with(|| step.to_owned());
        self
    }

    pub(super) fn is_canceled(&self) -> bool {
        self.code == CANCELED
    }

    /// Returns whether another attempt is made: if it may help, and `on` names the failure or nothing.
    pub(super) fn is_attempted_again(&self, on: &[String]) -> bool {
        self.retryable && !self.is_canceled() && (on.is_empty() || self.is_one_of(on))
    }

    /// Returns whether one of the words is the code of the failure or a class that it belongs to.
    pub(super) fn is_one_of(&self, words: &[String]) -> bool {
        words.iter().any(|word| {
            *word == self.code
                || match word.as_str() {
                    "any" => !self.is_canceled(),
                    "timeout" => self.code == "timed_out",
                    _ => false,
                }
        })
    }

    /// Returns what expressions see of the failure.
    pub(super) fn to_value(&self) -> Value {
        json!({ "code": self.code, "message": self.message, "step": self.step, "details": self.details })
    }
}

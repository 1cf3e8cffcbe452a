//! Removes values from what is recorded and from what is sent to models.
//!
//! Owns which parts of a payload are replaced. Must never change another byte of it (P3): what has nothing to replace is returned as
//! it is, and numbers keep their digits.

mod rewrite;

use std::sync::Arc;

use onward_core::{Failure, Payload};

use super::{AttemptCall, AttemptKind, Middleware, MiddlewareFuture, NextAttempt, NextRun, RunCall};
use crate::Result;
use rewrite::rewrite;

/// The default replacement.
const REPLACEMENT: &str = "[redacted]";

type Replace = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Replaces the values of named fields, and parts of texts.
///
/// It applies to results and failures of attempts before they are recorded, to requests before they go to a model, to recorded
/// inputs of steps, and to outputs and failures of runs. The code sees the replaced value, too, live and on every replay.
///
/// Inputs that the code needs are recorded as the caller sent them: those of runs, tasks and children, signals and state. Use
/// encryption for these ([`crate::Builder::codec`]). Streams of attempts are muted, because a part of a text cannot be checked.
pub struct Redaction {
    /// Names of fields in lower case.
    fields: Vec<String>,
    texts: Vec<Replace>,
    replacement: String,
}

impl Redaction {
    /// Creates a redaction that replaces nothing yet.
    #[expect(clippy::new_without_default, reason = "a redaction that replaces nothing is a mistake")]
    pub fn new() -> Redaction {
        Redaction { fields: Vec::new(), texts: Vec::new(), replacement: REPLACEMENT.to_owned() }
    }

    /// Replaces the whole value of object fields with this name, at any depth and in any case.
    pub fn field(mut self, name: &str) -> Redaction {
        self.fields.push(name.to_lowercase());
        self
    }

    /// Replaces texts: `replace` returns the new text, or `None` to keep it. It gets every text of a value and the message and causes
    /// of a failure, and must be deterministic.
    pub fn text(mut self, replace: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Redaction {
        self.texts.push(Arc::new(replace));
        self
    }

    /// Sets what stands in place of the values of fields; default `[redacted]`.
    pub fn replacement(self, replacement: &str) -> Redaction {
        Redaction { replacement: replacement.to_owned(), ..self }
    }

    fn is_field(&self, name: &str) -> bool {
        self.fields.iter().any(|field| *field == name.to_lowercase())
    }

    /// Returns the text with all replacements, or `None` if there are none.
    fn replaced(&self, text: &str) -> Option<String> {
        let mut changed: Option<String> = None;
        for replace in &self.texts {
            changed = replace(changed.as_deref().unwrap_or(text)).or(changed);
        }
        changed
    }

    fn payload(&self, payload: Payload) -> Payload {
        let Ok(text) = std::str::from_utf8(payload.data()) else { return payload };
        if !payload.is_json() {
            return payload;
        }
        rewrite(self, text).map_or_else(|| payload.clone(), Payload::from_json_text)
    }

    fn failure(&self, mut failure: Failure) -> Failure {
        let texts = [&mut failure.message].into_iter().chain(&mut failure.causes).chain(failure.diagnosis.as_deref_mut());
        for text in texts {
            if let Some(replaced) = self.replaced(text) {
                *text = replaced;
            }
        }
        if let Some(details) = failure.details.take() {
            failure.details = Some(Box::new(self.payload(*details)));
        }
        failure
    }

    fn result(&self, result: Result<Payload>) -> Result<Payload> {
        result.map(|output| self.payload(output)).map_err(|failure| self.failure(failure))
    }
}

impl Middleware for Redaction {
    fn run<'a>(&'a self, call: RunCall, next: NextRun<'a>) -> MiddlewareFuture<'a> {
        Box::pin(async move { self.result(next.run(call).await) })
    }

    fn attempt<'a>(&'a self, mut call: AttemptCall, next: NextAttempt<'a>) -> MiddlewareFuture<'a> {
        Box::pin(async move {
            call.mute();
            if call.kind == AttemptKind::ModelCall {
                call.input = self.payload(call.input);
            }
            self.result(next.run(call).await)
        })
    }

    fn recorded_input(&self, _: &str, input: Payload) -> Payload {
        self.payload(input)
    }
}

#[cfg(test)]
mod tests;

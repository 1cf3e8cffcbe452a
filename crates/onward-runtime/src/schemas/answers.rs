//! Structured answers of approvals.
//!
//! Checks an answer where it enters: in the process that decides for callers, and in the process that can read it.
//!
//! Invariants:
//! - AN1: an approval that requires an answer is approved only with one that fits its schema; a refused decision writes nothing.
//! - AN2: no other decision has an answer: neither a rejection, nor one of an approval that takes none.
//! - AN3: an answer or schema that this process cannot read, because it is encrypted, is checked by those that can: by the client
//!   before it is sent, and by the worker before the code gets it.
//! - AN4: an approval that a copied log requests again takes no answer, because the code continues with the copied one.

use onward_core::Payload;

use super::check::{ValueSchema, Violation};
use crate::{CallRef, RuntimeError};

/// Fails if `answer` is not what an approval with `schema` needs to be decided like this (AN1, AN2).
pub async fn check_answer(
    call: &CallRef,
    schema: Option<&Payload>,
    approved: bool,
    answer: Option<&Payload>,
) -> Result<(), RuntimeError> {
    let refused = |violations| Err(RuntimeError::AnswerInvalid { call: call.clone(), violations });
    let (schema, answer) = match (schema, answer) {
        (_, None) if !approved => return Ok(()),
        (None, None) => return Ok(()),
        (None, Some(_)) => return refused(vec![Violation::of_all("answer", "the approval takes no answer")]),
        (Some(_), Some(_)) if !approved => return refused(vec![Violation::of_all("answer", "a rejection has no answer")]),
        (Some(_), None) => return refused(vec![Violation::of_all("answer", "the approval requires an answer")]),
        (Some(schema), Some(answer)) => (schema, answer),
    };
    match ValueSchema::new(schema.clone()).violations(answer).await {
        Ok(violations) if violations.is_empty() => Ok(()),
        Ok(violations) => refused(violations),
        Err(why) => Err(RuntimeError::AnswerSchemaInvalid { call: call.clone(), why }),
    }
}

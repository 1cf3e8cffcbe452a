//! The public id of an approval, a promise or a task: run, generation and call id.
//!
//! Owns the text form `RUN~GENERATION~CALL`. The namespace is not part of it. It comes from the request, so an id of one
//! namespace can never refer to another.

use std::fmt;

use onward_core::api::split_call_ref;
use onward_core::run::Wait;
use onward_core::task::TaskId;
use onward_core::{CallId, Namespace, RunKey};

use crate::RuntimeError;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallRef {
    pub run: RunKey,
    pub generation: u32,
    pub call_id: CallId,
}

impl CallRef {
    /// Parses the text form.
    pub fn parse(namespace: &Namespace, text: &str) -> Result<CallRef, RuntimeError> {
        let invalid = || RuntimeError::CallIdInvalid { text: text.chars().take(300).collect() };
        let (id, generation, call_id) = split_call_ref(text).ok_or_else(invalid)?;
        Ok(CallRef { run: RunKey::new(namespace.clone(), id), generation, call_id })
    }
}

impl fmt::Display for CallRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}~{}~{}", self.run.id, self.generation, self.call_id)
    }
}

impl From<TaskId> for CallRef {
    fn from(id: TaskId) -> CallRef {
        CallRef { run: id.run, generation: id.generation, call_id: id.call_id }
    }
}

impl From<CallRef> for TaskId {
    fn from(id: CallRef) -> TaskId {
        TaskId { run: id.run, generation: id.generation, call_id: id.call_id, incarnation: None }
    }
}

impl From<&Wait> for CallRef {
    fn from(wait: &Wait) -> CallRef {
        CallRef { run: wait.run.clone(), generation: wait.generation, call_id: wait.call_id.clone() }
    }
}

#[cfg(test)]
mod tests;

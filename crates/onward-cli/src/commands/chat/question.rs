//! Open approvals of the run and of its descendants, decided inside the chat.

use onward_core::run::Wait;
use onward_core::stream::StreamApproval;
use onward_core::{Name, Payload, RunKey};
use onward_runtime::{CallRef, Decide};
use serde_json::{Value, json};

use crate::new_id;

#[derive(Debug, Clone)]
pub struct ApprovalQuestion {
    pub call: CallRef,
    /// Kind of the descendant that requested the approval; `None` for the run of the chat.
    pub agent: Option<Name>,
    pub title: String,
    pub description: Option<String>,
    show: Option<Payload>,
    /// The schema of the answer that an approving decision needs.
    answer_schema: Option<Payload>,
}

impl ApprovalQuestion {
    pub fn of(key: &RunKey, approval: &StreamApproval) -> ApprovalQuestion {
        let request = &approval.requested;
        let call = CallRef { run: key.clone(), generation: approval.generation, call_id: request.call_id.clone() };
        let (title, description, show) = (request.title.clone(), request.description.clone(), request.show.clone());
        ApprovalQuestion { call, agent: None, title, description, show, answer_schema: request.answer_schema.clone() }
    }

    /// Returns the schema of the answer as text, if the approval requires one.
    pub fn schema(&self) -> Option<String> {
        self.answer_schema.as_ref().map(|schema| format!("{schema:?}"))
    }

    /// Parses a decision; see [`answer`].
    pub fn decision(&self, line: &str, decided_by: Option<&str>) -> Option<Decide> {
        answer(line, decided_by, self.answer_schema.is_some())
    }

    /// Returns the title, with the agent that asks if it is another one.
    pub fn headline(&self) -> String {
        match &self.agent {
            Some(agent) => format!("{agent} asks: {}", self.title),
            None => self.title.clone(),
        }
    }

    /// Returns the exact bytes that the decision covers.
    pub fn bytes(&self) -> Option<String> {
        self.show.as_ref().map(|show| match std::str::from_utf8(show.data()) {
            Ok(text) => text.to_owned(),
            Err(_) => format!("{show:?}"),
        })
    }

    pub fn document(&self) -> Value {
        json!({
            "type": "approval_requested", "id": self.call.to_string(), "run": self.call.run.id, "agent": self.agent,
            "title": self.title, "description": self.description, "show": self.show,
            "answer_schema": self.answer_schema,
        })
    }
}

impl From<&Wait> for ApprovalQuestion {
    fn from(wait: &Wait) -> ApprovalQuestion {
        let (title, description, show) = (wait.title.clone(), wait.description.clone(), wait.show.clone());
        let (call, answer_schema) = (CallRef::from(wait), wait.answer_schema.clone());
        ApprovalQuestion { call, agent: None, title, description, show, answer_schema }
    }
}

/// Parses a decision: y or n with optional feedback, or y with an answer as JSON if the approval requires one. Returns `None` for any
/// other text.
fn answer(line: &str, decided_by: Option<&str>, needs_answer: bool) -> Option<Decide> {
    let line = line.trim();
    let (word, rest) = line.split_once([' ', ',', ':']).unwrap_or((line, ""));
    let approved = match word.to_lowercase().as_str() {
        "y" | "yes" => true,
        "n" | "no" => false,
        _ => return None,
    };
    let rest = Some(rest.trim_start_matches([' ', ',', ':']).to_owned()).filter(|rest| !rest.is_empty());
    let (answer, feedback) = match rest {
        // Text that is not JSON is refused by the server, with the reason.
        Some(answer) if approved && needs_answer => (Some(Payload::from_json_text(answer)), None),
        feedback => (None, feedback),
    };
    Some(Decide { approved, feedback, decided_by: decided_by.map(str::to_owned), answer, decision_id: new_id::unique() })
}

#[cfg(test)]
mod tests;

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
}

impl ApprovalQuestion {
    pub fn of(key: &RunKey, approval: &StreamApproval) -> ApprovalQuestion {
        let request = &approval.requested;
        let call = CallRef { run: key.clone(), generation: approval.generation, call_id: request.call_id.clone() };
        let (title, description, show) = (request.title.clone(), request.description.clone(), request.show.clone());
        ApprovalQuestion { call, agent: None, title, description, show }
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
        })
    }
}

impl From<&Wait> for ApprovalQuestion {
    fn from(wait: &Wait) -> ApprovalQuestion {
        let (title, description, show) = (wait.title.clone(), wait.description.clone(), wait.show.clone());
        ApprovalQuestion { call: CallRef::from(wait), agent: None, title, description, show }
    }
}

/// Parses a decision: y or n with optional feedback. Returns `None` for any other text.
pub fn answer(line: &str, decided_by: Option<&str>) -> Option<Decide> {
    let line = line.trim();
    let (word, rest) = line.split_once([' ', ',', ':']).unwrap_or((line, ""));
    let approved = match word.to_lowercase().as_str() {
        "y" | "yes" => true,
        "n" | "no" => false,
        _ => return None,
    };
    let feedback = Some(rest.trim_start_matches([' ', ',', ':']).to_owned()).filter(|rest| !rest.is_empty());
    Some(Decide { approved, feedback, decided_by: decided_by.map(str::to_owned), decision_id: new_id::unique() })
}

#[cfg(test)]
mod tests;

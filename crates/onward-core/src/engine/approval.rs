//! Approvals: questions to a person, decided exactly once.

use super::call::CallDetails;
use super::{Engine, Wake};
use crate::log::event::{ApprovalDecided, ApprovalRequested};
use crate::message;
use crate::{CallId, Index, Name, Payload};

message! {
    /// The decision of a person, or its absence at the deadline.
    pub struct Decision {
        1 => approved: bool,
        2 => feedback: Option<String>,
        3 => decided_by: Option<String>,
        /// The deadline has passed without a decision; an expired approval is not approved.
        4 => expired: bool,
        /// The structured answer, if the approval requires one and was approved.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        5 => answer: Option<Payload>,
    }
}

impl Engine {
    pub fn request_approval(&mut self, name: Name, title: String) -> CallId {
        // The approval may be decided at once, so it must be durable before a step hands out its id.
        self.polled = true;
        let call_id = self.next_call_id();
        let event = ApprovalRequested {
            call_id: call_id.clone(),
            name: name.clone(),
            title,
            description: None,
            show: None,
            deciders: Vec::new(),
            deadline: None,
            bound_to: None,
            not_by_requester: false,
            answer_schema: None,
        };
        self.open(call_id.clone(), CallDetails::Approval { name }, Some(event.into()));
        call_id
    }

    pub(super) fn approval_decided(&mut self, index: Index, event: ApprovalDecided) -> Option<Wake> {
        let ApprovalDecided { call_id, approved, feedback, decided_by, answer, .. } = event;
        self.decide(&call_id, index, Decision { approved, feedback, decided_by, expired: false, answer })
    }

    pub(super) fn approval_expired(&mut self, call_id: &CallId, index: Index) -> Option<Wake> {
        let expired = Decision { approved: false, feedback: None, decided_by: None, expired: true, answer: None };
        self.decide(call_id, index, expired)
    }

    fn decide(&mut self, call_id: &CallId, index: Index, decision: Decision) -> Option<Wake> {
        let payload = Payload::json(&decision).expect("a decision is plain data");
        self.answer(call_id, index, Ok(payload))
    }
}

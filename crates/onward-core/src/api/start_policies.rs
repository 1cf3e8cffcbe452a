//! Starts with a policy (see [`crate::start_policy`]).

use crate::budget::Budget;
use crate::start_policy::{PolicyCell, StartOutcome, StartPolicy};
use crate::{Attribute, Name, Namespace, Payload, RunId, RunKey, Timestamp, message};

message! {
    /// A start that is combined with others of its kind and key. The engine chooses the id of the run.
    pub struct StartWithPolicyRequest {
        1 => namespace: Namespace,
        2 => kind: Name,
        3 => policy: StartPolicy,
        /// One input, also for a batch: its run gets the list of them.
        4 => input: Payload,
        /// The code version that the run is pinned to; the current one when the run starts if absent.
        5 => version: Option<Name>,
        /// Search attributes of the run.
        6 => attributes: Vec<Attribute>,
        /// Budget of the run and its children.
        7 => budget: Option<Budget>,
        /// Cancel the run after this time, pauses not counted.
        8 => deadline_ms: Option<u64>,
        /// Trace context of the caller, as a `traceparent`; by default the header of this name. An invalid value is ignored.
        9 => trace: Option<String>,
        /// Idempotency key: a repeat with the same id, policy and input within a day is the same start.
        10 => request_id: Option<Name>,
    }

    pub struct StartWithPolicyReply {
        /// The run of this start, or the one that it was skipped for.
        1 => run: RunId,
        2 => outcome: StartOutcome,
        /// The time at which a held run starts, if no later start changes it; absent if it waits for the end of another run.
        3 => due_at: Option<Timestamp>,
        /// The same request was accepted before; this is its first answer.
        4 => repeated: bool,
    }
}

impl StartWithPolicyRequest {
    /// Returns a start of the current version, without any option.
    pub fn new(namespace: Namespace, kind: Name, policy: StartPolicy, input: Payload) -> StartWithPolicyRequest {
        let (version, budget, deadline_ms, trace, request_id) = (None, None, None, None, None);
        let attributes = Vec::new();
        StartWithPolicyRequest { namespace, kind, policy, input, version, attributes, budget, deadline_ms, trace, request_id }
    }

    /// Returns the key for which the input is encrypted, before its run has an id.
    pub fn context(&self) -> RunKey {
        RunKey::new(self.namespace.clone(), PolicyCell::of(&self.policy, &self.kind, None).context())
    }
}

//! The events of agents: entries of the conversation, and abandoned parts of the log.

use super::Divergence;
use crate::{CallId, Hash, Index, Name, Payload, message};

message! {
    /// An entry of an agent's conversation.
    pub struct EntryAppended {
        1 => call_id: CallId,
        /// Identifies the whole conversation up to this entry: a hash of the parent's id, the role and the content.
        2 => id: Hash,
        3 => parent: Option<Hash>,
        4 => role: Name,
        /// Empty if the content is quoted.
        5 => content: Payload,
        /// The location of the content, if this log has it already.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        6 => quote: Option<Quote>,
        /// The entry is stored beside the conversation, to be read by its id: no entry follows it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        7 => is_aside: bool,
        /// The idempotency key of the append.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        8 => idempotency_key: Option<String>,
    }
}

message! {
    /// A reference to the payload of an input in the same log.
    #[derive(Copy, Eq)]
    pub struct Quote {
        1 => index: Index,
        /// The position, for an event with several payloads: a signal that `run_started` carries.
        2 => item: u32,
    }
}

message! {
    /// The code of an agent diverged from the log: the commits in this range are abandoned. They stay in the log, and an equal
    /// call takes over the result of an abandoned one.
    pub struct SegmentAbandoned {
        /// The first abandoned commit.
        1 => from: Index,
        /// The last event of the log at that time.
        2 => to: Index,
        /// Distinguishes later calls from abandoned ones, which may have the same call ids.
        3 => attempt: u32,
        /// Tasks of the range that no worker had begun: withdrawn.
        4 => withdrawn: Vec<CallId>,
        /// The point at which code and log disagreed.
        5 => divergence: Divergence,
    }
}

message! {
    /// The call at `call_id` takes over the abandoned call at `from`: nothing new is started for it.
    pub struct CallAdopted {
        1 => call_id: CallId,
        2 => from: CallId,
    }
}

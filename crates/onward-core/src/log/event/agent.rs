//! The events of agents: entries of the conversation, and parts of the log that the code has left.

use super::Divergence;
use crate::{Hash, Index, Name, Payload, Place, message};

message! {
    /// An entry of an agent's conversation.
    pub struct EntryAppended {
        1 => place: Place,
        /// Names the whole conversation up to this entry: a hash over the parent's, the role and the content.
        2 => id: Hash,
        3 => parent: Option<Hash>,
        4 => role: Name,
        /// Nothing where the content is quoted.
        5 => content: Payload,
        /// The content stands in this log already.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        6 => quote: Option<Quote>,
        /// Kept beside the conversation, to be found by its id: no entry follows it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        7 => is_aside: bool,
        /// The idempotency key it was appended under.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        8 => idempotency_key: Option<String>,
    }
}

message! {
    /// The payload of an input of the same log.
    #[derive(Copy, Eq)]
    pub struct Quote {
        1 => index: Index,
        /// Which one, where an event has several: a signal that `run_started` carries.
        2 => item: u32,
    }
}

message! {
    /// The code of an agent has asked for something else than what is recorded: commits in this range are left behind. They stay in the
    /// log; what they asked for is found again by its content.
    pub struct SegmentAbandoned {
        /// The first commit that is left.
        1 => from: Index,
        /// The last event there was.
        2 => to: Index,
        /// Tells what is asked for from here on from what was asked for before, which may stand at the same place of the code.
        3 => attempt: u32,
        /// Tasks of the range that nobody has ever begun: taken back.
        4 => withdrawn: Vec<Place>,
        /// Where code and log disagreed.
        5 => divergence: Divergence,
    }
}

message! {
    /// The call at `place` is the one that an abandoned part of the log made at `from`: nothing new is begun for it.
    pub struct CallAdopted {
        1 => place: Place,
        2 => from: Place,
    }
}

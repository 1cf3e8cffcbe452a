//! The events of agents: entries of the conversation, abandoned parts of the log, and checkpoints, which pass the state of one
//! segment to the next.

use super::Divergence;
use crate::{CallId, Hash, Index, Name, Payload, RunId, message};

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

    /// A reference to the payload of an input in the same log.
    #[derive(Copy, Eq)]
    pub struct Quote {
        1 => index: Index,
        /// The position, for an event with several payloads: a signal that `run_started` carries.
        2 => item: u32,
    }

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

    /// The call at `call_id` takes over the abandoned call at `from`: nothing new is started for it.
    pub struct CallAdopted { 1 => call_id: CallId, 2 => from: CallId }

    /// The state that closes a segment of an agent's log and begins the next one.
    pub struct Checkpoint {
        1 => state: Payload,
        /// The generation whose log the code replays to its end first; `None` for code that restores itself from the state.
        2 => prelude: Option<u32>,
        /// The signal name or pattern for which the next turn waits before it begins.
        3 => awaits: Option<Name>,
        /// The last entry of the conversation.
        4 => leaf: Option<Hash>,
        /// The number of entries in the conversation.
        #[serde(default)]
        5 => depth: u64,
        /// Entries that earlier segments stored beside the conversation, latest use last.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        6 => kept: Vec<EntryLocation>,
        /// The entries that were appended under an idempotency key, latest use last.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        9 => keys: Vec<EntryKey>,
        /// Abandoned children: their results and signals are not delivered.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        10 => abandoned_children: Vec<RunId>,
        /// The kind that takes over the conversation: its code begins from its start, without a state.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        11 => handoff: Option<Name>,
        /// Counters since the last received signal; `None` if they are zero.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        12 => tally: Option<Tally>,
    }

    /// Counters of a conversation since the code of one of its agents last received a signal.
    #[derive(Copy, Default, Eq)]
    pub struct Tally {
        /// The number of handoffs.
        1 => handoffs: u32,
        /// The number of turns. An agent that does not count turns passes the number on unchanged.
        2 => turns: u32,
    }

    /// An entry that was appended under an idempotency key.
    #[derive(Eq)]
    pub struct EntryKey {
        1 => key: String,
        2 => id: Hash,
        /// Needed to check whether a repeated append is the same entry.
        3 => parent: Option<Hash>,
    }

    /// The location of an entry that is stored beside the conversation.
    #[derive(Copy, Eq)]
    pub struct EntryLocation { 1 => id: Hash, 2 => generation: u32 }
}

//! Checkpoints of agents: the state that one segment passes to the next.

use crate::{Hash, Name, Payload, RunId, message};

message! {
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
        10 => left: Vec<RunId>,
        /// The kind that takes over the conversation: its code begins from its start, without a state.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        11 => handoff: Option<Name>,
        /// Counters since the last received signal; `None` if they are zero.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        12 => tally: Option<Tally>,
    }
}

message! {
    /// Counters of a conversation since the code of one of its agents last received a signal.
    #[derive(Copy, Default, Eq)]
    pub struct Tally {
        /// The number of handoffs.
        1 => handoffs: u32,
        /// The number of turns. An agent that does not count turns passes the number on unchanged.
        2 => turns: u32,
    }
}

message! {
    /// An entry that was appended under an idempotency key.
    #[derive(Eq)]
    pub struct EntryKey {
        1 => key: String,
        2 => id: Hash,
        /// Needed to check whether a repeated append is the same entry.
        3 => parent: Option<Hash>,
    }
}

message! {
    /// The location of an entry that is stored beside the conversation.
    #[derive(Copy, Eq)]
    pub struct EntryLocation {
        1 => id: Hash,
        2 => generation: u32,
    }
}

//! Checkpoints of agents: what one segment leaves to the next.

use crate::{Hash, Name, Payload, RunId, message};

message! {
    /// What closes a segment of an agent's log and begins the next one.
    pub struct Checkpoint {
        1 => state: Payload,
        /// The generation whose log the code replays to its end before it gets here; none for code that looks at the state by itself.
        2 => prelude: Option<u32>,
        /// The signal, or the pattern, for which the next turn waits before it begins.
        3 => awaits: Option<Name>,
        /// The last entry of the conversation.
        4 => leaf: Option<Hash>,
        /// How many entries the conversation has.
        #[serde(default)]
        5 => depth: u64,
        /// What earlier segments keep beside the conversation, latest use last.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        6 => kept: Vec<Kept>,
        /// The entries that were appended under a key, latest use last.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        9 => keys: Vec<EntryKey>,
        /// Children that the code has left behind: what they say is heard by nobody.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        10 => left: Vec<RunId>,
        /// The kind that takes the conversation over: its code begins from its start, and there is no state for it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        11 => handoff: Option<Name>,
        /// What agents have done with the conversation since anybody was heard; none if that is nothing.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        12 => tally: Option<Tally>,
    }
}

message! {
    /// What agents have done with a conversation since the code of any of them has heard a signal.
    #[derive(Copy, Default, Eq)]
    pub struct Tally {
        /// How often it was handed over.
        1 => handoffs: u32,
        /// How many turns were taken, as far as they are counted: whoever does not count them passes on what was.
        2 => turns: u32,
    }
}

message! {
    /// An entry that was appended under a key.
    #[derive(Eq)]
    pub struct EntryKey {
        1 => key: String,
        2 => id: Hash,
        /// With it one can tell whether something else is the same entry.
        3 => parent: Option<Hash>,
    }
}

message! {
    /// Where something is that was kept beside the conversation.
    #[derive(Copy, Eq)]
    pub struct Kept {
        1 => id: Hash,
        2 => generation: u32,
    }
}

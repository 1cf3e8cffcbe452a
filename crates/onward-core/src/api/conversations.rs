//! Requests and replies about the conversation of an agent.

use crate::conversation::{Entry, EntryCursor, PendingEntry};
use crate::{Hash, Index, Name, Payload, RunHead, RunKey, Timestamp, WorkerId, message};

use super::{Appended, Signal};

message! {
    pub struct EntriesRequest { 1 => run: RunKey, 2 => query: EntryQuery }

    /// A query for entries of a conversation.
    #[derive(Copy, Eq, Default)]
    pub struct EntryQuery {
        /// The last entry of the conversation to read, which may be abandoned; absent for the current conversation.
        1 => leaf: Option<EntryCursor>,
        /// The `before` of the page that was read last: this page ends with that entry.
        2 => before: Option<EntryCursor>,
        /// 0 means the default.
        3 => limit: usize,
    }

    /// A page of a conversation.
    #[derive(Default)]
    pub struct EntryPage {
        /// Oldest first.
        1 => entries: Vec<Entry>,
        /// The cursor of the next page: the entry before the first one. Absent at the beginning of the conversation.
        2 => before: Option<EntryCursor>,
        /// The last entry of the requested conversation; for the current one, as of now.
        3 => leaf: Option<Hash>,
        /// Number of entries of the current conversation; only on its last page.
        4 => depth: Option<u64>,
        /// Entries from outside that the code has not taken in yet; only on the last page of the current conversation.
        5 => pending: Vec<PendingEntry>,
    }

    pub struct AppendEntryRequest {
        1 => run: RunKey,
        2 => entry: AppendEntry,
        /// The caller has searched the conversation for the key, because only the caller can decrypt it.
        3 => is_looked_up: bool,
    }

    /// An entry from outside.
    pub struct AppendEntry {
        1 => role: Name,
        2 => content: Payload,
        /// A repeat with the same key is the same entry; with another role or content it fails with `entry_key_taken`.
        3 => idempotency_key: Option<String>,
    }

    /// The receipt of an appended entry.
    #[derive(Copy, Eq)]
    pub struct AppendedEntry {
        /// An entry with this key, role and content existed before.
        1 => already_existed: bool,
        /// The run was waiting and was woken. Code that waits for a signal of another name continues to wait.
        2 => woke: bool,
        /// The entry's id, if the code has taken it in already.
        3 => entry: Option<Hash>,
        /// The position of the entry as an input, until the code takes it in.
        4 => index: Option<Index>,
        5 => at: Option<Timestamp>,
    }

    pub struct BranchRequest { 1 => run: RunKey, 2 => branch: BranchRun }

    /// A request to continue from an earlier entry.
    pub struct BranchRun {
        /// The entry after which the conversation continues; its beginning if absent.
        1 => from: Option<EntryCursor>,
        /// The first entry of the branch. An edit is a branch from the entry's parent with another content.
        2 => entry: Option<BranchEntry>,
        /// A repeat with the same key is the same branch.
        3 => idempotency_key: Option<String>,
    }

    /// The first entry of a branch.
    pub struct BranchEntry { 1 => role: Name, 2 => content: Payload }

    pub struct MessageRequest {
        1 => run: RunKey,
        /// A text, or an object with `text` or `blocks`.
        2 => content: Payload,
        /// Idempotency key: a repeat with the same id is the same message.
        3 => message_id: Option<String>,
        /// The signal that the agent waits for; `message` if absent.
        4 => signal: Option<Name>,
    }

    pub struct PutAttachmentRequest {
        /// The bytes; their media type is ignored, because each message that refers to them has one.
        1 => content: Payload,
    }

    pub struct PutAttachmentReply {
        /// The SHA-256 of the bytes in hex, by which messages refer to them.
        1 => hash: String,
        2 => bytes: u64,
    }

    pub struct ResumeAgentRequest {
        1 => run: RunKey,
        /// The worker that resumes the agent, by the id in its `hello`.
        2 => worker: WorkerId,
        /// A signal that wakes a waiting agent.
        3 => signal: Option<Signal>,
    }

    pub struct ResumeAgentReply {
        /// The run is on its way to the worker. False, without an error, if another worker got it.
        1 => success: bool,
        /// The reason if not: `held`, `waiting`, `paused` or `closed`.
        2 => why: Option<String>,
        3 => head: RunHead,
        /// The receipt of the signal.
        4 => appended: Option<Appended>,
    }
}

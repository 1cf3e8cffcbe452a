//! Events of memos (see [`crate::run::memo`]).

use crate::run::memo::{MemoCallType, MemoCaller, MemoCell, MemoScope};
use crate::{CallId, Name, Payload, RunId, Timestamp, message};

message! {
    /// A call whose result may be that of an equal call of another run. The step or task follows if it is not.
    pub struct MemoRequested {
        1 => call_id: CallId,
        2 => of_type: MemoCallType,
        /// The name of the step or the kind of the task.
        3 => name: Name,
        4 => scope: MemoScope,
        5 => key: String,
        /// The time for which a result is used.
        6 => ttl_ms: u64,
        /// The key was derived from the content of the call. Outside the encryption boundary its hash is a keyed one.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        7 => is_derived: bool,
        /// The key as the code derived it, if payloads are encrypted.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        8 => sealed_key: Option<Payload>,
    }

    /// The answer of a cell: a recorded result, or the request to compute it.
    pub struct MemoAnswered {
        1 => call_id: CallId,
        2 => cell: RunId,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        3 => hit: Option<MemoHit>,
        /// The incarnation of the cell that the call computes for; without it and without a hit, the call computes for itself.
        #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::log::text_number")]
        4 => grant: Option<u64>,
    }

    /// A recorded result.
    pub struct MemoHit {
        1 => output: Payload,
        /// The run that recorded it, and its call.
        2 => from: RunId,
        3 => from_call: CallId,
        4 => computed_at: Timestamp,
    }

    /// The result of a call that computed for a cell.
    pub struct MemoStored { 1 => call_id: CallId, 2 => cell: RunId, 3 => output: Payload }

    /// The code no longer waits for the memo, or has dropped the call that computes it.
    pub struct MemoReleased { 1 => call_id: CallId }

    /// At a cell: a call requests the value.
    pub struct MemoAsked {
        1 => by: MemoCaller,
        2 => cell: MemoCell,
        3 => ttl_ms: u64,
        /// The incarnation of the cell for whose value the call has waited: it has that value, however old it is.
        #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::log::text_number")]
        4 => waited_for: Option<u64>,
    }

    /// At a cell: the owner has a value. The log has it in the following event only.
    pub struct MemoSettled {
        1 => by: MemoCaller,
        2 => ttl_ms: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        3 => output: Option<Payload>,
        /// When the owner recorded it.
        4 => computed_at: Timestamp,
    }

    /// At a cell: the call no longer waits, or ends without a value.
    pub struct MemoReturned { 1 => by: MemoCaller }

    /// At a cell: the value that is being computed is not to be used again.
    pub struct MemoInvalidated { 1 => reason: String }
}

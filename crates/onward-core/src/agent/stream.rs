//! What is said about a run while it goes on: the words of its stream, and what a log adds to it.
//!
//! A stream has two tiers. What an attempt of a task says as it works is for whoever reads at that moment, and counts for nothing; what has
//! become final stands in the log, and the stream only says that it does. Must never be needed to know what a run did.
//!
//! Invariants:
//! - SY1: what another attempt of a task has said is taken back ([`StreamSaid::AttemptReset`]) before anything of the next one is said.
//! - SY2: an attempt says nothing behind the end of its task, and nothing that a later attempt has begun to say anew.

use crate::log::event::{ApprovalRequested, RunPaused};
use crate::task::TaskId;
use crate::{Event, Failure, Hash, Index, Name, Payload, Place, Record, Status, Timestamp, choice, message, numbered};

message! {
    /// What one attempt of a task says.
    pub struct Speech {
        1 => task: TaskId,
        /// Which claim of the task it is: a later one takes back what this one has said.
        2 => claim: u64,
        3 => attempt: u32,
        4 => frames: Vec<SpokenFrame>,
    }
}

message! {
    pub struct SpokenFrame {
        /// Counts what the attempt has said, from 0; what got lost on the way is missing.
        1 => seq: u64,
        2 => frame: Payload,
    }
}

message! {
    /// One thing in a run's stream, and where it stands there.
    pub struct StreamFrame {
        /// Whoever comes back with it goes on behind this frame.
        1 => offset: String,
        2 => at: Timestamp,
        3 => said: StreamSaid,
    }
}

choice! {
    /// What a stream says.
    pub enum StreamSaid {
        /// An attempt of a task said something.
        1 => Spoken / "spoken": Spoken,
        /// What the task has said so far is void: another attempt begins.
        2 => AttemptReset / "attempt_reset": AttemptReset,
        3 => AttemptFailed / "attempt_failed": AttemptFailed,
        /// The task says nothing more: it is over, and how is in the log.
        4 => TaskEnd / "task_end": TaskEnd,
        /// An entry of the conversation is final.
        5 => Entry / "entry": EntrySaid,
        /// The code has left a part of its log: the conversation goes on behind this entry.
        6 => BranchReset / "branch_reset": BranchReset,
        7 => ApprovalRequested / "approval_requested": ApprovalSaid,
        8 => Paused / "paused": RunPaused,
        9 => Resumed / "resumed": StreamResumed,
        /// The run is closed.
        10 => End / "end": StreamEnd,
        /// There is nothing between what the reader knew and what follows but what the log says.
        11 => StreamReset / "stream_reset": StreamReset,
    }
}

message! {
    pub struct Spoken {
        1 => generation: u32,
        2 => task: Place,
        3 => attempt: u32,
        4 => seq: u64,
        5 => frame: Payload,
    }
}

message! {
    pub struct AttemptReset {
        1 => generation: u32,
        2 => task: Place,
        /// The one that begins.
        3 => attempt: u32,
    }
}

message! {
    pub struct AttemptFailed {
        1 => generation: u32,
        2 => task: Place,
        3 => attempt: u32,
        /// 0 = no limit.
        4 => attempts_max: u32,
        5 => failure: Failure,
        /// How long it is until the next attempt; absent if there is none.
        6 => next_delay_ms: Option<u64>,
    }
}

numbered! {
    pub enum TaskOutcome {
        0 => Completed,
        1 => Failed,
        2 => Canceled,
    }
}

message! {
    pub struct TaskEnd {
        1 => generation: u32,
        2 => task: Place,
        3 => outcome: TaskOutcome,
    }
}

message! {
    pub struct EntrySaid {
        1 => generation: u32,
        2 => index: Index,
        3 => id: Hash,
        4 => parent: Option<Hash>,
        5 => role: Name,
    }
}

message! {
    pub struct BranchReset {
        1 => generation: u32,
        /// The last entry that still counts; absent before the first, and where nobody here knows it.
        2 => leaf: Option<Hash>,
    }
}

message! {
    pub struct ApprovalSaid {
        1 => generation: u32,
        2 => requested: ApprovalRequested,
    }
}

message! {
    pub struct StreamResumed {}
}

message! {
    pub struct StreamEnd {
        1 => status: Status,
    }
}

message! {
    pub struct StreamReset {
        1 => generation: u32,
        /// Everything up to this entry is final and can be read; absent if the run has no conversation.
        2 => leaf: Option<Hash>,
    }
}

impl StreamSaid {
    /// Roughly how much memory it takes.
    pub fn weigh(&self) -> usize {
        let held = match self {
            StreamSaid::Spoken(spoken) => spoken.frame.data().len(),
            StreamSaid::AttemptFailed(failed) => {
                failed.failure.message.len() + failed.failure.details.as_ref().map_or(0, |details| details.data().len())
            }
            StreamSaid::ApprovalRequested(ApprovalSaid { requested, .. }) => {
                requested.title.len() + requested.show.as_ref().map_or(0, |show| show.data().len())
            }
            StreamSaid::Paused(pause) => pause.message.len(),
            _ => 0,
        };
        held + 160
    }
}

/// What a record of the generation's log adds to the stream, but for what is known only from the records before it.
pub fn said_by(generation: u32, record: &Record) -> Vec<StreamSaid> {
    record.indexed().filter_map(|(index, event)| said_by_event(generation, index, event)).collect()
}

fn said_by_event(generation: u32, index: Index, event: &Event) -> Option<StreamSaid> {
    let task_end = |task: &Place, outcome| StreamSaid::TaskEnd(TaskEnd { generation, task: task.clone(), outcome });
    let end = |status| StreamSaid::End(StreamEnd { status });
    Some(match event {
        Event::EntryAppended(entry) if !entry.is_aside => {
            let (id, parent, role) = (entry.id, entry.parent, entry.role.clone());
            StreamSaid::Entry(EntrySaid { generation, index, id, parent, role })
        }
        Event::TaskCompleted(event) => task_end(&event.place, TaskOutcome::Completed),
        Event::TaskFailed(event) => task_end(&event.place, TaskOutcome::Failed),
        Event::TaskCanceled(event) => task_end(&event.place, TaskOutcome::Canceled),
        Event::ApprovalRequested(event) => StreamSaid::ApprovalRequested(ApprovalSaid { generation, requested: event.clone() }),
        Event::RunPaused(event) => StreamSaid::Paused(event.clone()),
        Event::RunResumed(_) => StreamSaid::Resumed(StreamResumed {}),
        Event::RunCompleted(_) => end(Status::Completed),
        Event::RunFailed(_) => end(Status::Failed),
        Event::RunCanceled(_) => end(Status::Canceled),
        Event::TerminateRequested(_) => end(Status::Terminated),
        _ => return None,
    })
}

//! The live stream of a run: output of its tasks, and notices about its log.
//!
//! A stream has two tiers. Output of a running attempt is for live readers and has no effect on the run; final results are in the
//! log, and the stream only refers to them. Must never be needed to know what a run did.
//!
//! Invariants:
//! - SY1: the output of an attempt is voided ([`StreamContent::AttemptReset`]) before the stream has output of the next one.
//! - SY2: an attempt has no output after the end of its task, and none after output of a later attempt.

use crate::log::event::{ApprovalRequested, RunPaused};
use crate::task::TaskId;
use crate::{CallId, Event, Failure, Hash, Index, Name, Payload, Record, Status, Timestamp, choice, message, numbered};

message! {
    /// Output of one attempt of a task.
    pub struct TaskFrames {
        1 => task: TaskId,
        /// The claim of the task: a later one voids the output of this one.
        2 => claim: u64,
        3 => attempt: u32,
        4 => frames: Vec<SequencedFrame>,
    }

    pub struct SequencedFrame {
        /// The number of the frame in its attempt, from 0; lost frames leave gaps.
        1 => seq: u64,
        2 => frame: Payload,
    }

    /// One frame of a run's stream.
    pub struct StreamFrame {
        /// A cursor: reading from it continues after this frame.
        1 => offset: String,
        2 => at: Timestamp,
        3 => content: StreamContent,
    }
}

choice! {
    /// The content of a stream frame.
    pub enum StreamContent {
        /// Output of an attempt of a task.
        1 => TaskFrame / "task_frame": TaskFrame,
        /// The output of the task so far is void: another attempt begins.
        2 => AttemptReset / "attempt_reset": AttemptReset,
        3 => AttemptFailed / "attempt_failed": AttemptFailed,
        /// The task has ended, with its result in the log: no more output.
        4 => TaskEnd / "task_end": TaskEnd,
        /// An entry of the conversation is final.
        5 => Entry / "entry": StreamEntry,
        /// The code has abandoned a part of its log: the conversation continues after this entry.
        6 => BranchReset / "branch_reset": BranchReset,
        7 => ApprovalRequested / "approval_requested": StreamApproval,
        8 => Paused / "paused": RunPaused,
        9 => Resumed / "resumed": StreamResumed,
        /// The run is closed.
        10 => End / "end": StreamEnd,
        /// Frames between the reader's position and the next frame were lost; only the log has their content.
        11 => StreamReset / "stream_reset": StreamReset,
    }
}

message! {
    pub struct TaskFrame { 1 => generation: u32, 2 => task: CallId, 3 => attempt: u32, 4 => seq: u64, 5 => frame: Payload }

    pub struct AttemptReset {
        1 => generation: u32,
        2 => task: CallId,
        /// The attempt that begins.
        3 => attempt: u32,
    }

    pub struct AttemptFailed {
        1 => generation: u32,
        2 => task: CallId,
        3 => attempt: u32,
        /// 0 = no limit.
        4 => attempts_max: u32,
        5 => failure: Failure,
        /// The delay until the next attempt; absent if there is none.
        6 => next_delay_ms: Option<u64>,
    }
}

numbered! {
    pub enum TaskOutcome {
        0 => Completed / "completed",
        1 => Failed / "failed",
        2 => Canceled / "canceled",
    }
}

message! {
    pub struct TaskEnd { 1 => generation: u32, 2 => task: CallId, 3 => outcome: TaskOutcome }
    pub struct StreamEntry { 1 => generation: u32, 2 => index: Index, 3 => id: Hash, 4 => parent: Option<Hash>, 5 => role: Name }

    pub struct BranchReset {
        1 => generation: u32,
        /// The last valid entry; absent before the first one, and if this process does not know it.
        2 => leaf: Option<Hash>,
    }

    pub struct StreamApproval { 1 => generation: u32, 2 => requested: ApprovalRequested }
    pub struct StreamResumed {}
    pub struct StreamEnd { 1 => status: Status }

    pub struct StreamReset {
        1 => generation: u32,
        /// Everything up to this entry is final and can be read; absent if the run has no conversation.
        2 => leaf: Option<Hash>,
    }
}

impl StreamContent {
    /// Estimates the memory that it takes.
    pub fn memory_size(&self) -> usize {
        let held = match self {
            StreamContent::TaskFrame(task_frame) => task_frame.frame.data().len(),
            StreamContent::AttemptFailed(failed) => {
                failed.failure.message.len() + failed.failure.details.as_ref().map_or(0, |details| details.data().len())
            }
            StreamContent::ApprovalRequested(StreamApproval { requested, .. }) => {
                let payloads = requested.show.iter().chain(&requested.answer_schema);
                requested.title.len() + payloads.map(|payload| payload.data().len()).sum::<usize>()
            }
            StreamContent::Paused(pause) => pause.message.len(),
            _ => 0,
        };
        held + 160
    }
}

/// Returns the frames for a record of the generation's log, except for those that depend on earlier records.
pub fn contents_of(generation: u32, record: &Record) -> Vec<StreamContent> {
    record.indexed().filter_map(|(index, event)| content_of(generation, index, event)).collect()
}

fn content_of(generation: u32, index: Index, event: &Event) -> Option<StreamContent> {
    let task_end = |task: &CallId, outcome| StreamContent::TaskEnd(TaskEnd { generation, task: task.clone(), outcome });
    let end = |status| StreamContent::End(StreamEnd { status });
    Some(match event {
        Event::EntryAppended(entry) if !entry.is_aside => {
            let (id, parent, role) = (entry.id, entry.parent, entry.role.clone());
            StreamContent::Entry(StreamEntry { generation, index, id, parent, role })
        }
        Event::TaskCompleted(event) => task_end(&event.call_id, TaskOutcome::Completed),
        Event::TaskFailed(event) => task_end(&event.call_id, TaskOutcome::Failed),
        Event::TaskCanceled(event) => task_end(&event.call_id, TaskOutcome::Canceled),
        Event::ApprovalRequested(event) => {
            StreamContent::ApprovalRequested(StreamApproval { generation, requested: event.clone() })
        }
        Event::RunPaused(event) => StreamContent::Paused(event.clone()),
        Event::RunResumed(_) => StreamContent::Resumed(StreamResumed {}),
        Event::RunCompleted(_) => end(Status::Completed),
        Event::RunFailed(_) => end(Status::Failed),
        Event::RunCanceled(_) => end(Status::Canceled),
        Event::TerminateRequested(_) => end(Status::Terminated),
        _ => return None,
    })
}

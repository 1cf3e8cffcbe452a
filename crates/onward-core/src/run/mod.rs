//! Runs as stores see them, and the admission of every append to their logs.
//!
//! Owns admission: which inputs and commits are accepted, at which index, and their effects. Every store keeps a [`RunHead`] per
//! run, calls it while holding the run's lock, and carries out the decision in one atomic write; so all stores decide alike. Must
//! never do I/O or read a clock.
//!
//! Invariants:
//! - R1 (L3, L7): a commit is accepted only with the current epoch and the next commit number.
//! - R2 (L5): a repeat of the last commit, with its id, gets the first reply.
//! - R3 (CE8): a commit that waits while inputs are unread leaves the run pending; this is decided here only. Quiet inputs do not
//!   count: no later commit would make the run waiting again.
//! - R4 (L17): exactly one event ends a log, and nothing is accepted after it.
//! - R5 (CE12): a run does not end while inputs are unread unless the worker declares that it knows of them. It never continues
//!   as new over unread inputs, because the worker could not carry them over.
//! - R6 (CE15): inputs are accepted regardless of what the worker is doing.
//! - R7: a commit to a paused run is accepted only if it has nothing but step results: completed work is recorded, nothing new
//!   begins, and no attempt of a task either (K4).
//! - R8 (L7): an input from the worker that holds a run is accepted only with the current epoch, like a commit.
//! - R9: a standalone task's run waits for the task and accepts only its end, a cancellation and a termination, each of which
//!   closes the run in the same write.
//! - R10: a run that was deleted and started again under its id is another incarnation: it does not receive answers to calls of
//!   the earlier one, and its messages are not taken for repeats of the earlier one's.
//! - R11: a commit that abandons a part of its log is accepted only if its worker has seen every input: a task that began
//!   meanwhile must not be withdrawn as not begun.
//! - R12 (LG1): the cost of a run is that of its own attempts, in all its generations; copied events do not count.
//! - R13 (BG1): an attempt with a cost is neither recorded nor handed out when a limit of the run's budget is reached.
//! - R14: a generation keeps the version that it began with; after a checkpoint, an agent continues with its worker's current
//!   version.
//! - R15 (BR1): a generation accepts one branch request. It ends by executing it, and the next generation accepts another.

mod admit;
pub mod ancestry;
pub mod attribute;
pub mod deadline;
pub mod delayed_start;
pub mod doing;
mod effects;
mod idempotency;
mod input;
pub mod internal;
pub mod live;
pub mod lost_workers;
pub mod memo;
pub mod moment;
pub mod reopen;
pub mod root;
pub mod run_queue;
pub mod schedule;
pub mod timeline;
pub mod view;

pub use admit::{Admitted, CommitRefusal, Refusal};
pub use effects::{Effect, OutboxMessage, answer_to};
pub use idempotency::{Again, IdempotencyRecord};
pub use input::wait_key;
pub use run_queue::RunQueue;

use std::time::Duration;

use serde::Deserialize;

use crate::log::event::{Attribute, CarriedSignal, LostWorkers, ParentLink, RunStarted, UpdateReceived};
use crate::log::external::ExternalHead;
use crate::log::{CommitHeader, CommitId};
use crate::run::memo::{CellHead, OpenMemo};
use crate::schedule::ScheduleHead;
use crate::spend::SpendTotals;
use crate::spend::budget::{self, BudgetHead, SpendState};
use crate::{CallId, Epoch, Event, Hash, Index, Name, Payload, Record, RunKey, Timestamp, message, numbered};

numbered! {
    /// The status of a run.
    pub enum Status {
        /// Ready for a worker.
        0 => Pending / "pending",
        /// Claimed by a worker: a pending run with a lease. Stored only for external runs, whose engines set it.
        1 => Running / "running",
        /// Waits for an input.
        2 => Waiting / "waiting",
        /// Stopped until it is resumed.
        3 => Paused / "paused",
        4 => Completed / "completed",
        5 => Failed / "failed",
        6 => Canceled / "canceled",
        7 => Terminated / "terminated",
    }
}

impl Status {
    pub fn is_closed(self) -> bool {
        matches!(self, Status::Completed | Status::Failed | Status::Canceled | Status::Terminated)
    }
}

message! {
    /// The last commit, kept to repeat its reply.
    #[derive(Copy, Eq)]
    pub struct LastCommit { 1 => commit_id: CommitId, 2 => index: Index, 3 => at: Timestamp, 4 => horizon: Index }
}

impl LastCommit {
    pub fn new(header: &CommitHeader, index: Index, at: Timestamp) -> LastCommit {
        LastCommit { commit_id: header.commit_id, index, at, horizon: header.horizon }
    }
}

message! {
    /// The data about a run that admission needs. Derived from the log, except for the epoch and the lost workers.
    pub struct RunHead {
        1 => key: RunKey,
        2 => generation: u32,
        3 => kind: Name,
        4 => version: Option<Name>,
        5 => status: Status,
        6 => next_index: Index,
        7 => next_commit: u64,
        8 => last_commit: Option<LastCommit>,
        9 => epoch: Epoch,
        10 => parent: Option<ParentLink>,
        /// The start of its first generation, or the time of its fork.
        11 => created_at: Timestamp,
        12 => updated_at: Timestamp,
        13 => ended_at: Option<Timestamp>,
        14 => paused_at: Option<Timestamp>,
        /// The log continues one of a failed generation: open waits keep the ids they had there.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        15 => is_retried: bool,
        /// The attributes, sorted by name.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        16 => attributes: Vec<Attribute>,
        /// Other calls that receive the run's result, beside its parent's.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        17 => listeners: Vec<ParentLink>,
        /// The run is a standalone task.
        #[serde(default)]
        18 => is_task: bool,
        /// Set for an external run only.
        20 => external: Option<ExternalHead>,
        /// The incarnation: the seed of the log, which distinguishes the run from earlier ones with its id. `None` in older
        /// heads.
        #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::log::text_number")]
        21 => incarnation: Option<u64>,
        /// The cost of the run, in all its generations.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        22 => spend: Option<Box<SpendTotals>>,
        /// The quiet inputs at the end of the log, if any: the run need not be woken to read them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        23 => quiet: Option<QuietTail>,
        /// The budget of the run, and its use beside the cost of its own attempts.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        24 => budget: Option<Box<BudgetHead>>,
        /// The kind that the run was started as, if it was handed over to another one since.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        30 => first_kind: Option<Name>,
        /// The number of ancestors.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        31 => nesting: Option<u32>,
        /// The incarnation of the run's first generation, if this is a later one; see [`RunHead::origin_incarnation`].
        #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::log::text_number")]
        32 => first_incarnation: Option<u64>,
        /// The event of a branch request that is not executed yet: this generation ends with it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        33 => branch_at: Option<Index>,
        /// Approvals of a copied log that must be given again: the run is paused until then.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        34 => asks: Vec<CallId>,
        /// The name of the credential that started the run or its root run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        35 => requester: Option<String>,
        /// The names of the credentials that forked, reset or retried it (see [`RunStarted::copied_by`]).
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        36 => copied_by: Vec<String>,
        /// The time at which the run is canceled (see [`deadline`]); later by each pause.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        37 => deadline_at: Option<Timestamp>,
        /// Set for the cell of a memo only (see [`memo`]).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        38 => cell: Option<Box<CellHead>>,
        /// The calls that wait for a memo or compute it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        39 => memos: Vec<OpenMemo>,
        /// Set for a schedule only (see [`schedule`]).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        40 => schedule: Option<Box<ScheduleHead>>,
        /// The workers that were lost since the last commit, while they executed the run (see [`lost_workers`]).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        41 => lost_workers: Option<Box<LostWorkers>>,
        /// The time at which the code begins, until it has begun (see [`delayed_start`]).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        42 => starts_at: Option<Timestamp>,
        /// The queue whose slot the run waits for or holds (see [`run_queue`]).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        50 => queue: Option<Box<RunQueue>>,
    }

    /// The key of a log: run and generation. A head begins with the same fields.
    #[derive(Eq)]
    pub struct LogKey { 1 => key: RunKey, 2 => generation: u32 }

    /// A range of quiet inputs. It is valid only while the log ends where the range does.
    #[derive(Copy, Eq)]
    pub struct QuietTail {
        1 => from: Index,
        /// The index after the last of them.
        2 => to: Index,
    }

    /// A run to start.
    pub struct NewRun {
        1 => key: RunKey,
        2 => started: RunStarted,
        /// Signal with start: delivered right after `run_started` (rule 11), also if the run exists already.
        3 => signal: Option<Box<Input>>,
    }

    /// An event from outside, with its idempotency record.
    pub struct Input {
        1 => event: Event,
        2 => once: Option<IdempotencyRecord>,
        /// The generation that the event answers; the event is dropped if the run has continued as new since.
        3 => generation: Option<u32>,
        /// The event is for a child of this run; a run with that id and another parent is not affected.
        4 => child_of: Option<RunKey>,
        /// The epoch of the worker that sends it; rejected if another worker has claimed the run since.
        5 => epoch: Option<Epoch>,
        /// The incarnation that the event answers; the event is dropped if the run was deleted and started again since.
        #[serde(default, with = "crate::log::text_number")]
        6 => incarnation: Option<u64>,
    }
}

/// The number of times that an ending commit is rejected over unread inputs before its worker ends the run anyway (rule 9).
pub const END_REFUSALS_MAX: u32 = 3;

message! {
    /// An append by the worker that holds the run.
    pub struct Commit {
        1 => key: RunKey,
        2 => generation: u32,
        3 => epoch: Epoch,
        4 => n: u64,
        5 => commit_id: CommitId,
        6 => horizon: Index,
        #[serde(deserialize_with = "with_input_hashes")]
        7 => events: Vec<Event>,
        /// The code needs an input to continue: no step is running, and nothing of this commit is left to deliver.
        #[serde(default)]
        8 => waits: bool,
        /// End the run although inputs are unread: the worker has retried often enough (rule 9).
        #[serde(default)]
        9 => end_over_unread: bool,
        /// A commit while paused (see [`CommitHeader::is_while_paused`]).
        #[serde(default)]
        10 => is_while_paused: bool,
        /// The data for the next generation of a run that continues as new; empty in any other commit.
        #[serde(default)]
        11 => carries: Carries,
    }

    /// The data that one generation of a run passes to the next.
    #[derive(Default)]
    #[serde(default)]
    pub struct Carries {
        /// The unconsumed signals.
        1 => signals: Vec<CarriedSignal>,
        /// The reason of a cancellation request that the code has not observed.
        2 => cancel_reason: Option<String>,
        /// The unanswered updates, oldest first.
        3 => updates: Vec<UpdateReceived>,
        /// The version with which an agent continues after a checkpoint, set by the worker that made it; `None` keeps the current
        /// one.
        #[serde(skip_serializing_if = "Option::is_none")]
        4 => version: Option<Name>,
    }
}

/// Reads events from JSON and hashes the inputs for which the worker sent no hash.
fn with_input_hashes<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<Event>, D::Error> {
    let mut events = Vec::<Event>::deserialize(deserializer)?;
    for event in &mut events {
        let (hash, input) = match event {
            Event::TaskScheduled(event) => (&mut event.input_hash, &event.input),
            Event::ChildStarted(event) => (&mut event.input_hash, &event.input),
            _ => continue,
        };
        if *hash == Hash::default() {
            *hash = Hash::of(input);
        }
    }
    Ok(events)
}

impl Commit {
    /// Returns the header for the log.
    pub fn header(&self) -> CommitHeader {
        let Commit { n, epoch, commit_id, horizon, waits, is_while_paused, .. } = *self;
        CommitHeader { n, epoch, commit_id, horizon, waits, is_while_paused }
    }
}

message! {
    /// The reply to an accepted commit.
    #[derive(Copy, Eq)]
    pub struct Committed { 1 => index: Index, 2 => at: Timestamp, 3 => status: Status }
}
numbered! {
    pub enum WaitKind {
        0 => Approval / "approval",
        1 => Promise / "promise",
    }
}

message! {
    /// An approval or promise: a wait that is answered from outside exactly once.
    pub struct Wait {
        1 => run: RunKey,
        2 => generation: u32,
        3 => call_id: CallId,
        4 => kind: WaitKind,
        5 => name: Name,
        6 => title: String,
        7 => description: Option<String>,
        8 => show: Option<Payload>,
        9 => deciders: Vec<String>,
        10 => requested_at: Timestamp,
        11 => deadline: Option<Timestamp>,
        /// The requester of the run may not decide.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        12 => not_by_requester: bool,
        /// The JSON schema of the answer that an approving decision needs; `None` if it needs none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        13 => answer_schema: Option<Payload>,
    }
}

impl RunHead {
    /// Returns the head of a new run and the first record of its log.
    pub fn start(key: RunKey, started: RunStarted, at: Timestamp) -> (RunHead, Record) {
        let schedule = started.schedule.as_ref().map(|start| Box::new(start.head(schedule::schedule_of(&key.id), at)));
        let is_retried = started.origins.last().is_some_and(|origin| origin.run == key);
        let SpendState { spend, budget } = budget::begin(&started, at);
        let mut attributes = started.attributes.clone();
        attributes.sort_by(|a, b| a.name.cmp(&b.name));
        let starts_at = started.begins_at(at);
        let head = RunHead {
            key,
            generation: started.generation,
            kind: started.kind.clone(),
            version: started.version.clone(),
            status: match &started {
                RunStarted { is_external: true, .. } => Status::Running, // X4
                // R9
                RunStarted { task: Some(_), .. } | RunStarted { cell: Some(_), .. } | RunStarted { schedule: Some(_), .. } => {
                    Status::Waiting
                }
                _ if starts_at.is_some() => Status::Waiting, // DS1
                _ => Status::Pending,
            },
            next_index: Index(1),
            next_commit: 0,
            last_commit: None,
            epoch: Epoch(0),
            parent: started.parent.clone(),
            created_at: started.created_at.unwrap_or(at),
            updated_at: at,
            ended_at: None,
            paused_at: None,
            is_task: started.task.is_some(),
            is_retried,
            attributes,
            listeners: Vec::new(),
            external: started.is_external.then(ExternalHead::default),
            incarnation: Some(started.seed),
            spend,
            quiet: None,
            budget,
            first_kind: started.first_kind.clone(),
            nesting: started.nesting,
            first_incarnation: started.first_seed,
            branch_at: None,
            asks: Vec::new(),
            requester: started.requester.clone(),
            copied_by: started.copied_by.clone(),
            deadline_at: started.deadline_ms.map(|limit| starts_at.unwrap_or(at).after(Duration::from_millis(limit))),
            cell: started.cell.clone().map(|memo| Box::new(CellHead::new(*memo))),
            memos: Vec::new(),
            schedule,
            lost_workers: None,
            starts_at,
            queue: started.queue.clone(),
        };
        (head, Record::input(Index(0), at, started.into()))
    }

    /// Returns the incarnation of the run's first generation, which identifies the run in the ledger; unknown in later
    /// generations of older runs.
    pub fn origin_incarnation(&self) -> Option<u64> {
        self.first_incarnation.or(self.incarnation.filter(|_| self.generation == 0))
    }

    /// Returns true if that credential started the run, or made the copy that it continues from (Z10).
    pub fn is_requested_by(&self, name: &str) -> bool {
        self.requester.as_deref() == Some(name) || self.copied_by.iter().any(|copier| copier == name)
    }

    /// Rebuilds the head from a log, except for the epoch and the lost workers (L16, CW4).
    pub fn rebuild(key: RunKey, records: &[Record]) -> Option<RunHead> {
        let (first, rest) = records.split_first()?;
        let (mut head, _) = RunHead::start(key, first.started()?.clone(), first.at);
        rest.iter().for_each(|record| head.follow(record));
        Some(head)
    }

    /// Updates the head by a record that was admitted before.
    pub(crate) fn follow(&mut self, record: &Record) {
        if self.external.is_some() {
            return self.take_external(record);
        }
        if self.cell.is_some() {
            return self.take_cell_record(record);
        }
        if self.schedule.is_some() {
            return self.take_schedule_record(record);
        }
        match record.commit {
            Some(commit) => {
                self.status = self.status_after(commit.horizon, &record.events, commit.waits);
                self.next_commit = commit.n.saturating_add(1);
                self.last_commit = Some(LastCommit::new(&commit, record.index, record.at));
            }
            None => record.events.iter().for_each(|event| self.take_input_status(event, record.at)),
        }
        self.advance(record);
    }

    fn take_input_status(&mut self, event: &Event, at: Timestamp) {
        self.follow_deadline(event, at);
        self.follow_start(event, at);
        if matches!(event, Event::RunForked(_) | Event::RetryRequested(_)) {
            self.queue_again(at);
        }
        match event {
            Event::ResultRequested(event) => {
                // Calls of an earlier generation of the requester cannot receive the result any more.
                let is_past = |link: &ParentLink| link.run == event.by.run && link.generation < event.by.generation;
                self.listeners.retain(|link| !(event.by.is_spawned && is_past(link)));
                self.listeners.push(event.by.clone());
            }
            Event::RunForked(_) => self.created_at = at,
            Event::RunPaused(event) if !event.asks.is_empty() => self.asks.clone_from(&event.asks),
            Event::ApprovalDecided(event) if event.approved => self.asks.retain(|call_id| *call_id != event.call_id),
            _ => {}
        }
        match event {
            Event::RunPaused(event) => {
                self.status = Status::Paused;
                self.paused_at.get_or_insert(at);
                self.lost_workers = event.lost_workers.clone().map(Box::new); // CW4
            }
            Event::RunResumed(_) if self.status == Status::Paused => {
                self.status = if self.starts_at.is_some() { Status::Waiting } else { Status::Pending };
                self.paused_at = None;
                self.lost_workers = None; // CW1
            }
            Event::TerminateRequested(_) => self.status = Status::Terminated,
            Event::RunCompleted(_) => self.status = Status::Completed,
            Event::RunFailed(_) => self.status = Status::Failed,
            Event::RunCanceled(_) => self.status = Status::Canceled,
            event if event.is_quiet() => {}
            _ if self.starts_at.is_some() => {} // DS4
            _ if self.status == Status::Waiting => self.status = Status::Pending,
            _ => {}
        }
    }
}

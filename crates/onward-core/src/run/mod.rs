//! A run as a store knows it, and every decision about what may be appended to its log.
//!
//! Owns admission: which inputs and commits are taken, at which index, and what follows from them. Every store keeps a
//! [`RunHead`] per run, asks it under the run's lock, and carries out the answer in one atomic write; so all stores decide
//! alike. Must never do I/O or read a clock.
//!
//! Invariants:
//! - R1 (L3, L7): a commit is taken only with the current epoch and the next commit number.
//! - R2 (L5): the last commit repeated with its id gets its first answer.
//! - R3 (CE8): a commit that waits while inputs are unread leaves the run pending, decided here and nowhere else. Quiet inputs do not
//!   count: nobody would settle the run again.
//! - R4 (L17): exactly one event ends a log, and after it nothing is taken.
//! - R5 (CE12): a run does not end over unread inputs unless the worker says it knows of them; it never continues as new over them,
//!   because what its worker has not seen could not go along.
//! - R6 (CE15): inputs are taken whatever the worker is doing.
//! - R7: of a run that is paused, results of steps are taken and nothing else: what has happened is recorded, nothing new begins, no
//!   attempt of a task either (K4).
//! - R8 (L7): what a worker says as the holder of a run is taken only with the current epoch, as a commit is.
//! - R9: a run that is a standalone task waits for it and takes nothing but its end, a cancellation and a termination, each of which
//!   closes it in the same write.
//! - R10: a run that was deleted and started again under its id is another run: it is not answered by what its namesake asked for, and what
//!   it sends is not taken for what its namesake sent.
//! - R11: a commit that leaves a part of its log behind is taken only if its worker has seen every input: what has begun meanwhile must not
//!   be taken for something that has not.
//! - R12 (LG1): what a run has cost is what its own attempts have, in all its generations: a copy of a log counts nothing of what it copied.
//! - R13 (BG1): an attempt that costs something is not recorded, and so not handed out, when a limit of the run's budget is reached.
//! - R14: a generation keeps the version that it began with; an agent goes on after a checkpoint with the one that its worker says is current.
//! - R15 (BR1): a generation takes one request for a branch. It ends by carrying that out, and the next generation takes another.

mod admit;
pub mod ancestry;
pub mod attribute;
mod effects;
mod input;
mod once;
pub mod reopen;
pub mod root;
pub mod view;

use std::fmt;

pub use admit::{Admitted, CommitRefusal, Refusal};
pub use effects::{Delivery, Effect, answer_to};
pub use input::wait_key;
pub use once::{Again, Once};

use crate::log::event::{Attribute, CarriedSignal, ParentLink, RunStarted, UpdateReceived};
use crate::log::external::ExternalHead;
use crate::log::{CommitHeader, CommitId};
use crate::spend::SpendTotals;
use crate::spend::budget::{self, BudgetHead, Purse};
use crate::{Epoch, Event, Index, Name, Payload, Place, Record, RunKey, Timestamp, message, numbered};

numbered! {
    /// Where a run stands.
    pub enum Status {
        /// Has something to do and waits for a worker.
        0 => Pending,
        /// A worker is at it: a pending run whose lease somebody holds. Stored only of external runs, whose engines say so.
        1 => Running,
        /// Waits for an input.
        2 => Waiting,
        /// Stands still until somebody resumes it.
        3 => Paused,
        4 => Completed,
        5 => Failed,
        6 => Canceled,
        7 => Terminated,
    }
}

impl Status {
    pub fn is_closed(self) -> bool {
        matches!(self, Status::Completed | Status::Failed | Status::Canceled | Status::Terminated)
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Status::Pending => "pending",
            Status::Running => "running",
            Status::Waiting => "waiting",
            Status::Paused => "paused",
            Status::Completed => "completed",
            Status::Failed => "failed",
            Status::Canceled => "canceled",
            Status::Terminated => "terminated",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

message! {
    /// The last commit, so that its repeat gets the same answer.
    #[derive(Copy, Eq)]
    pub struct LastCommit {
        1 => commit_id: CommitId,
        2 => index: Index,
        3 => at: Timestamp,
        4 => horizon: Index,
    }
}

impl LastCommit {
    pub fn new(header: &CommitHeader, index: Index, at: Timestamp) -> LastCommit {
        LastCommit { commit_id: header.commit_id, index, at, horizon: header.horizon }
    }
}

message! {
    /// What a store must know of a run to decide the next append. A view of the log, but for the epoch.
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
        /// When its first generation began, or when it was forked.
        11 => created_at: Timestamp,
        12 => updated_at: Timestamp,
        13 => ended_at: Option<Timestamp>,
        14 => paused_at: Option<Timestamp>,
        /// Its log goes on from a generation that failed: open questions are still known by the ids they had there.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        15 => is_retried: bool,
        /// What the run is found by, in the order of names.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        16 => attributes: Vec<Attribute>,
        /// Who wants to hear how the run ends, beside its parent.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        17 => listeners: Vec<ParentLink>,
        /// The run is a standalone task.
        #[serde(default)]
        18 => is_task: bool,
        /// Of a run whose log an outside engine keeps here; `None` for every other run.
        20 => external: Option<ExternalHead>,
        /// Tells a run from others that had its id before: the seed of its log. `None` if the head was written before there were lives.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        21 => life: Option<u64>,
        /// What the run has cost, in all its generations.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        22 => spend: Option<Box<SpendTotals>>,
        /// The quiet inputs that the log ends with, if it does: a run need not be woken to read them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        23 => quiet: Option<QuietTail>,
        /// What the run may spend, and what of it is gone beside what its own attempts have cost.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        24 => budget: Option<Box<BudgetHead>>,
        /// What the run was started as, where it was handed over to another kind since.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        30 => first_kind: Option<Name>,
        /// How many runs are above this one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        31 => nesting: Option<u32>,
        /// The life of the run's first generation, where this is a later one; see [`RunHead::origin_life`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        32 => first_life: Option<u64>,
        /// Where somebody has asked for a branch, which nobody has carried out: this generation ends with it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        33 => branch_at: Option<Index>,
        /// Approvals that are asked again because the log goes on from a copy: the run is paused until each of them was given.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        34 => asks: Vec<Place>,
        /// Who has started the run, or the run above it: the name of a credential.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        35 => requester: Option<String>,
    }
}

message! {
    /// Which log: of which run, and which of its generations. A head begins with the same.
    #[derive(Eq)]
    pub struct LogKey {
        1 => key: RunKey,
        2 => generation: u32,
    }
}

message! {
    /// A stretch of quiet inputs. It says something of a log only while that ends where the stretch does.
    #[derive(Copy, Eq)]
    pub struct QuietTail {
        1 => from: Index,
        /// The index behind the last of them.
        2 => to: Index,
    }
}

message! {
    /// A run to be.
    pub struct NewRun {
        1 => key: RunKey,
        2 => started: RunStarted,
        /// Signal with start: delivered right behind `run_started` (rule 11), also when the run exists already.
        3 => signal: Option<Box<Input>>,
    }
}

message! {
    /// An event from outside, with what makes it once.
    pub struct Input {
        1 => event: Event,
        2 => once: Option<Once>,
        /// The generation the event answers; it is dropped when the run has continued as new since.
        3 => generation: Option<u32>,
        /// Meant for a child of this run; somebody else's run of that id is left alone.
        4 => child_of: Option<RunKey>,
        /// Said by the worker that claimed the run with this epoch; refused when somebody has claimed it since.
        5 => epoch: Option<Epoch>,
        /// The life of the run that the event answers; it is dropped when the run was deleted and started again since.
        6 => life: Option<u64>,
    }
}

/// How often an ending commit is refused over unread inputs before its worker ends the run all the same (rule 9).
pub const END_REFUSALS_MAX: u32 = 3;

message! {
    /// What a worker asks a store to append.
    pub struct Commit {
        1 => key: RunKey,
        2 => generation: u32,
        3 => epoch: Epoch,
        4 => n: u64,
        5 => commit_id: CommitId,
        6 => horizon: Index,
        7 => events: Vec<Event>,
        /// The code can go on only when an input arrives: no step runs, nothing of this commit is left to deliver.
        8 => waits: bool,
        /// End the run although inputs are unread: the worker has tried often enough (rule 9).
        9 => end_over_unread: bool,
        /// Results of steps that ran on while the run was paused (see [`CommitHeader::is_standing`]).
        10 => is_standing: bool,
        /// What a run that continues as new takes with it; nothing in any other commit.
        11 => carries: Carries,
    }
}

message! {
    /// What goes from one generation of a run to the next.
    #[derive(Default)]
    pub struct Carries {
        /// The signals that were not consumed.
        1 => signals: Vec<CarriedSignal>,
        /// Why the run is to stop, if it was asked to and its code has not seen it.
        2 => cancel_reason: Option<String>,
        /// The updates that nobody has answered, oldest first.
        #[serde(default)]
        3 => updates: Vec<UpdateReceived>,
        /// The version that an agent goes on with after a checkpoint, as the worker says it whose code made that; nothing if it stays with
        /// its own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        4 => version: Option<Name>,
    }
}

impl Commit {
    /// What the log will say about it.
    pub fn header(&self) -> CommitHeader {
        let Commit { n, epoch, commit_id, horizon, waits, is_standing, .. } = *self;
        CommitHeader { n, epoch, commit_id, horizon, waits, is_standing }
    }
}

message! {
    /// The answer to a commit that was taken.
    #[derive(Copy, Eq)]
    pub struct Committed {
        1 => index: Index,
        2 => at: Timestamp,
        3 => status: Status,
    }
}
numbered! {
    pub enum WaitKind {
        0 => Approval,
        1 => Promise,
    }
}

message! {
    /// A question that somebody outside answers exactly once.
    pub struct Wait {
        1 => run: RunKey,
        2 => generation: u32,
        3 => place: Place,
        4 => kind: WaitKind,
        5 => name: Name,
        6 => title: String,
        7 => description: Option<String>,
        8 => show: Option<Payload>,
        9 => deciders: Vec<String>,
        10 => requested_at: Timestamp,
        11 => deadline: Option<Timestamp>,
        /// Whether the requester of the run may not decide it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        12 => not_by_requester: bool,
    }
}

impl RunHead {
    /// A new run and the first record of its log.
    pub fn start(key: RunKey, started: RunStarted, at: Timestamp) -> (RunHead, Record) {
        let is_retried = started.origins.last().is_some_and(|origin| origin.run == key);
        let Purse { spend, budget } = budget::begin(&started, at);
        let mut attributes = started.attributes.clone();
        attributes.sort_by(|a, b| a.name.cmp(&b.name));
        let head = RunHead {
            key,
            generation: started.generation,
            kind: started.kind.clone(),
            version: started.version.clone(),
            status: match &started {
                RunStarted { is_external: true, .. } => Status::Running, // X4
                RunStarted { task: Some(_), .. } => Status::Waiting,     // R9
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
            life: Some(started.seed),
            spend,
            quiet: None,
            budget,
            first_kind: started.first_kind.clone(),
            nesting: started.nesting,
            first_life: started.first_seed,
            branch_at: None,
            asks: Vec::new(),
            requester: started.requester.clone(),
        };
        (head, Record::input(Index(0), at, started.into()))
    }

    /// The life of the run's first generation, by which the ledger knows the run; later generations of older runs do not know it.
    pub fn origin_life(&self) -> Option<u64> {
        self.first_life.or(self.life.filter(|_| self.generation == 0))
    }

    /// Rebuilds the head from a log, the epoch apart (L16).
    pub fn rebuild(key: RunKey, records: &[Record]) -> Option<RunHead> {
        let (first, rest) = records.split_first()?;
        let (mut head, _) = RunHead::start(key, first.started()?.clone(), first.at);
        rest.iter().for_each(|record| head.follow(record));
        Some(head)
    }

    /// Takes in a record that was admitted before.
    pub(crate) fn follow(&mut self, record: &Record) {
        if self.external.is_some() {
            return self.take_external(record);
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
        match event {
            Event::ResultRequested(event) => {
                // An earlier generation of who asks cannot be answered any more.
                let is_past = |link: &ParentLink| link.run == event.by.run && link.generation < event.by.generation;
                self.listeners.retain(|link| !(event.by.is_spawned && is_past(link)));
                self.listeners.push(event.by.clone());
            }
            Event::RunForked(_) => self.created_at = at,
            Event::RunPaused(event) if !event.asks.is_empty() => self.asks.clone_from(&event.asks),
            Event::ApprovalDecided(event) if event.approved => self.asks.retain(|place| *place != event.place),
            _ => {}
        }
        match event {
            Event::RunPaused(_) => {
                self.status = Status::Paused;
                self.paused_at.get_or_insert(at);
            }
            Event::RunResumed(_) if self.status == Status::Paused => {
                self.status = Status::Pending;
                self.paused_at = None;
            }
            Event::TerminateRequested(_) => self.status = Status::Terminated,
            Event::RunCompleted(_) => self.status = Status::Completed,
            Event::RunFailed(_) => self.status = Status::Failed,
            Event::RunCanceled(_) => self.status = Status::Canceled,
            event if event.is_quiet() => {}
            _ if self.status == Status::Waiting => self.status = Status::Pending,
            _ => {}
        }
    }
}

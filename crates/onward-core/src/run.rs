//! A run as a store knows it, and every decision about what may be appended to its log.
//!
//! Owns admission: which inputs and commits are taken, at which index, and what follows from them. Every store keeps a
//! [`RunHead`] per run, asks it under the run's lock, and carries out the answer in one atomic write; so all stores decide
//! alike. Must never do I/O or read a clock.
//!
//! Invariants:
//! - R1 (L3, L7): a commit is taken only with the current epoch and the next commit number.
//! - R2 (L5): the last commit repeated with its id gets its first answer.
//! - R3 (CE8): a commit that waits while inputs are unread leaves the run pending, decided here and nowhere else.
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

mod once;

use std::fmt;
use std::time::Duration;

pub use once::{Again, Once};

use crate::attribute;
use crate::codec::{DecodeError, Field, Reader};
use crate::event::{
    Attribute, CarriedSignal, ChildCompleted, ChildFailed, ChildStarted, OnParentClose, ParentLink, RunStarted, SignalReceived,
    TerminateRequested, UpdateReceived, is_same_life,
};
use crate::external::ExternalHead;
use crate::lineage::Origin;
use crate::log::{CommitHeader, CommitId};
use crate::task::{Task, TaskId};
use crate::{Epoch, Event, Failure, Index, Name, Payload, Place, Record, RunId, RunKey, Timestamp, message, numbered};

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

impl Input {
    pub fn new(event: impl Into<Event>) -> Input {
        Input { event: event.into(), once: None, generation: None, child_of: None, epoch: None, life: None }
    }

    /// A signal; with an id it is taken once (L11).
    pub fn signal(signal: SignalReceived) -> Input {
        Input { once: Once::signal(&signal), ..Input::new(signal) }
    }

    /// An update, which is taken once.
    pub fn update(update: UpdateReceived) -> Input {
        Input { once: Some(Once::update(&update)), ..Input::new(update) }
    }

    /// The answer of `who` to the single-assignment wait at `place` (L12).
    pub fn answer(event: impl Into<Event>, generation: u32, place: &Place, who: &str) -> Input {
        let event = event.into();
        let once = Some(Once::answer(&event, generation, place, who));
        Input { once, generation: Some(generation), ..Input::new(event) }
    }

    /// The input that answers the task, timer or child at `place` of `generation`.
    pub fn result(event: Event, generation: u32, what: &str, place: &Place) -> Input {
        let once = Once::new(format!("{what}:{generation}:{place}"));
        Input { once: Some(once), generation: Some(generation), ..Input::new(event) }
    }

    /// What the worker that holds a run says about it.
    pub fn by_holder(event: impl Into<Event>, generation: u32, epoch: Epoch) -> Input {
        Input { generation: Some(generation), epoch: Some(epoch), ..Input::new(event) }
    }

    /// The place of the wait that must be open for this input to be taken; that the answer fits its kind is the caller's to check.
    pub fn needs_wait(&self) -> Option<&Place> {
        match &self.event {
            Event::ApprovalDecided(event) => Some(&event.place),
            Event::PromiseResolved(event) => Some(&event.place),
            _ => None,
        }
    }
}

/// The slot of the single-assignment wait at `place`.
pub fn wait_key(generation: u32, place: &Place) -> String {
    format!("wait:{generation}:{place}")
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

/// Why an append was not taken. Nothing was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("run {key} is {status}")]
    Closed { key: RunKey, status: Status },
    #[error("the lease on run {key} is lost: epoch {} is not {}, or commit {n} is not {next}", epoch.0, current.0)]
    Fenced { key: RunKey, epoch: Epoch, current: Epoch, n: u64, next: u64 },
    #[error("run {key} has inputs up to {tail} that its last commit has not seen")]
    Unread { key: RunKey, tail: Index },
    #[error("run {key} is paused")]
    Paused { key: RunKey },
    #[error("run {key} has continued as new since, or was deleted and started again")]
    OtherGeneration { key: RunKey },
    #[error("run {key} is not paused")]
    NotPaused { key: RunKey },
    #[error("run {key} is a standalone task, which only runs to its end or is canceled")]
    IsTask { key: RunKey },
    #[error("run {key} is {status}: only a failed run can be retried")]
    NotFailed { key: RunKey, status: Status },
    #[error("run {key} cannot be retried: after its failure at event {failed} the code went on with event {next}")]
    FailureHandled { key: RunKey, failed: Index, next: Index },
    #[error("run {key} cannot be copied up to event {index}: {why}")]
    NoForkPoint { key: RunKey, index: Index, why: String },
    #[error("run {key} belongs to an outside engine, which alone can do that")]
    External { key: RunKey },
    #[error("run {key} is not of an outside engine")]
    NotExternal { key: RunKey },
    #[error("the log of run {key} goes on at event {next}, not at {expected}")]
    LogConflict { key: RunKey, expected: Index, next: Index },
    #[error("what was to be appended to run {key} is malformed: {why}")]
    Malformed { key: RunKey, why: &'static str },
}

/// What follows from an append, for the store to carry out in the same atomic write.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    StartTimer {
        place: Place,
        due_at: Timestamp,
    },
    StopTimer {
        place: Place,
    },
    AddTask(Box<Task>),
    CancelTask {
        place: Place,
    },
    OpenWait(Box<Wait>),
    /// Removes the wait, if one is open, and then fills its slot: who comes later has lost.
    CloseWait {
        place: Place,
        token: String,
    },
    /// To be handed to another run by an at-least-once courier; the receiver takes it once.
    Send(Box<Delivery>),
    /// The run is paused since `at`: its timers and tasks keep their remaining time, and no attempt of a task begins (K4).
    Freeze {
        at: Timestamp,
    },
    /// It goes on after it was paused for `shift`.
    Thaw {
        shift: Duration,
    },
    /// Every timer, task and wait of the run goes, and each open child gets what its `on_parent_close` says.
    EndRun,
}

/// News for another run.
#[derive(Debug, Clone, PartialEq)]
pub enum Delivery {
    Start(NewRun),
    Input { to: RunKey, input: Input },
}

impl Delivery {
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Delivery::Start(run) => run.encode(1, &mut out),
            Delivery::Input { to, input } => {
                to.encode(2, &mut out);
                input.encode(3, &mut out);
            }
        }
        out
    }

    pub fn from_bytes(bytes: &[u8]) -> Result<Delivery, DecodeError> {
        let mut reader = Reader::new(bytes);
        let (mut receiver, mut input) = (None, None);
        while let Some((number, raw)) = reader.field()? {
            match number {
                1 => return Ok(Delivery::Start(NewRun::decode(raw)?)),
                2 => receiver = Some(RunKey::decode(raw)?),
                3 => input = Some(Input::decode(raw)?),
                _ => {}
            }
        }
        match (receiver, input) {
            (Some(to), Some(input)) => Ok(Delivery::Input { to, input }),
            _ => Err(DecodeError::Missing { message: "Delivery", field: "to or input" }),
        }
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
    }
}

/// An append that was taken: write `record`, carry out `effects`, keep the changed head.
#[derive(Debug, Clone, PartialEq)]
pub struct Admitted {
    pub record: Record,
    pub effects: Vec<Effect>,
    /// The run's next generation, when it continues as new.
    pub successor: Option<Box<NewRun>>,
}

impl RunHead {
    /// A new run and the first record of its log.
    pub fn start(key: RunKey, started: RunStarted, at: Timestamp) -> (RunHead, Record) {
        let is_retried = started.origins.last().is_some_and(|origin| origin.run == key);
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
            created_at: at,
            updated_at: at,
            ended_at: None,
            paused_at: None,
            is_task: started.task.is_some(),
            is_retried,
            attributes,
            listeners: Vec::new(),
            external: started.is_external.then(ExternalHead::default),
            life: Some(started.seed),
        };
        (head, Record::input(Index(0), at, started.into()))
    }

    /// What follows from the first record of a log: a standalone task is scheduled with it.
    pub fn start_effects(&self, first: &Record) -> Vec<Effect> {
        let Some(RunStarted { task: Some(task), input, .. }) = first.started() else { return Vec::new() };
        let id = TaskId { run: self.key.clone(), generation: self.generation, place: Place::root(0) };
        let task = Task::new(id, task.kind.clone(), input.clone(), task.options.clone(), first.at);
        vec![Effect::AddTask(Box::new(Task { ends_run: true, ..task }))]
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

    /// What followed from a record, as the head was before it.
    pub(crate) fn effects_of(&self, record: &Record) -> Vec<Effect> {
        match record.commit {
            _ if self.external.is_some() => Vec::new(),
            Some(_) => self.commit_effects(&record.events, record.at),
            None => record.events.iter().flat_map(|event| self.input_effects(event, record.at)).collect(),
        }
    }

    /// Decides about an input. On success the head has moved on.
    pub fn admit_input(&mut self, input: Input, at: Timestamp) -> Result<Admitted, Refusal> {
        let needs_wait = input.needs_wait().is_some();
        let Input { event, generation, epoch, life, .. } = input;
        self.check_form(&event)?;
        if let Event::ExternalAppended(event) = event {
            return self.admit_external(event, at);
        }
        if self.status.is_closed() {
            return Err(Refusal::Closed { key: self.key.clone(), status: self.status }); // R4
        }
        let keeps_questions = self.is_retried && needs_wait;
        if generation.is_some_and(|generation| generation != self.generation) && !keeps_questions {
            return Err(Refusal::OtherGeneration { key: self.key.clone() });
        }
        if !is_same_life(life, self.life) {
            return Err(Refusal::OtherGeneration { key: self.key.clone() }); // R10
        }
        if let Some(epoch) = epoch.filter(|epoch| *epoch != self.epoch) {
            let (current, next) = (self.epoch, self.next_commit);
            return Err(Refusal::Fenced { key: self.key.clone(), epoch, current, n: next, next }); // R8
        }
        if self.is_task && !ends_task_run(&event) {
            return Err(Refusal::IsTask { key: self.key.clone() }); // R9
        }
        if !self.is_task && !event.is_input() {
            return Err(Refusal::Malformed { key: self.key.clone(), why: "it is not an input" });
        }
        if matches!(event, Event::RunResumed(_)) && self.status != Status::Paused {
            return Err(Refusal::NotPaused { key: self.key.clone() });
        }
        let effects = self.input_effects(&event, at);
        self.take_input_status(&event, at);
        let record = Record::input(self.next_index, at, event);
        self.advance(&record);
        Ok(Admitted { record, effects, successor: None })
    }

    /// Decides whether the run may go on as its next generation, from a copy of the log of generation `after`.
    pub fn admit_retry(&self, after: u32) -> Result<(), Refusal> {
        if self.generation != after {
            return Err(Refusal::OtherGeneration { key: self.key.clone() });
        }
        if self.status != Status::Failed {
            return Err(Refusal::NotFailed { key: self.key.clone(), status: self.status });
        }
        Ok(())
    }

    fn take_input_status(&mut self, event: &Event, at: Timestamp) {
        match event {
            Event::ResultRequested(event) => self.listeners.push(event.by.clone()),
            // A copy is a run of its own from here on.
            Event::RunForked(_) => self.created_at = at,
            _ => {}
        }
        match event {
            Event::RunPaused(_) => {
                self.status = Status::Paused;
                self.paused_at.get_or_insert(at);
            }
            Event::RunResumed(_) => {
                self.status = Status::Pending;
                self.paused_at = None;
            }
            Event::TerminateRequested(_) => self.status = Status::Terminated,
            Event::RunCompleted(_) => self.status = Status::Completed,
            Event::RunFailed(_) => self.status = Status::Failed,
            Event::RunCanceled(_) => self.status = Status::Canceled,
            _ if self.status == Status::Waiting => self.status = Status::Pending,
            _ => {}
        }
    }

    pub(crate) fn input_effects(&self, event: &Event, at: Timestamp) -> Vec<Effect> {
        match event {
            Event::ApprovalDecided(event) => close_wait(&event.place, &event.decision_id),
            Event::PromiseResolved(event) => close_wait(&event.place, &event.resolution_id),
            Event::TimerFired(event) => vec![Effect::CloseWait { place: event.place.clone(), token: "expired".to_owned() }],
            Event::RunPaused(_) if self.paused_at.is_none() => vec![Effect::Freeze { at }],
            Event::RunResumed(_) => {
                let shift = self.paused_at.map_or(Duration::ZERO, |paused| at.since(paused));
                vec![Effect::Thaw { shift }]
            }
            Event::TerminateRequested(event) => {
                let failure = Failure { retryable: false, ..Failure::new("terminated", terminated(event)) };
                self.end_effects(Err(failure))
            }
            Event::RunCompleted(event) => self.end_effects(Ok(event.output.clone())),
            Event::RunFailed(event) => self.end_effects(Err(event.failure.clone())),
            Event::RunCanceled(event) => self.end_effects(Err(event.failure.clone())),
            _ => Vec::new(),
        }
    }

    /// Decides about a commit. On success the head has moved on; on refusal nothing has changed.
    pub fn admit_commit(&mut self, commit: Commit, at: Timestamp) -> Result<Admitted, CommitRefusal> {
        if let Some(last) = self.last_commit
            && commit.n.checked_add(1) == Some(self.next_commit)
            && last.commit_id == commit.commit_id
            && commit.generation == self.generation
        {
            return Err(CommitRefusal::Repeated(Committed { index: last.index, at: last.at, status: self.status })); // R2
        }
        self.check_commit(&commit)?;
        let effects = self.commit_effects(&commit.events, at);
        let successor = self.successor(&commit);
        self.status = self.status_after(commit.horizon, &commit.events, commit.waits);
        let index = self.next_index;
        let header = commit.header();
        let record = Record { index, at, commit: Some(header), events: commit.events };
        self.next_commit += 1;
        self.last_commit = Some(LastCommit::new(&header, index, at));
        self.advance(&record);
        Ok(Admitted { record, effects, successor })
    }

    fn check_commit(&self, commit: &Commit) -> Result<(), Refusal> {
        let key = || self.key.clone();
        if self.external.is_some() {
            return Err(Refusal::External { key: key() }); // X3
        }
        if commit.generation != self.generation || commit.epoch != self.epoch || commit.n != self.next_commit {
            let (epoch, current, n, next) = (commit.epoch, self.epoch, commit.n, self.next_commit);
            return Err(Refusal::Fenced { key: key(), epoch, current, n, next }); // R1
        }
        if self.status.is_closed() {
            return Err(Refusal::Closed { key: key(), status: self.status }); // R4
        }
        if self.status == Status::Paused && !commit.events.iter().all(Event::is_step_result) {
            return Err(Refusal::Paused { key: key() }); // R7
        }
        let ends = commit.events.last().is_some_and(Event::ends_log);
        // A run that continues as new never ends over unread inputs: its successor could not get them.
        let continues = matches!(commit.events.last(), Some(Event::RunContinued(_)));
        let over_unread = commit.end_over_unread && !continues;
        if ends && !over_unread && self.has_unread(commit.horizon) {
            let tail = Index(self.next_index.0 - 1);
            return Err(Refusal::Unread { key: key(), tail }); // R5
        }
        self.check_shape(commit).map_or(Ok(()), |why| Err(Refusal::Malformed { key: key(), why }))
    }

    /// What no correct worker sends; a worker may be another program, so this is checked and not asserted.
    fn check_shape(&self, commit: &Commit) -> Option<&'static str> {
        let Some((_, before_last)) = commit.events.split_last() else { return Some("it has no event") };
        if commit.horizon >= self.next_index {
            return Some("its horizon lies in the future");
        }
        if commit.is_standing && !commit.events.iter().all(Event::is_step_result) {
            return Some("it is a standing commit and has more than step results");
        }
        if commit.is_standing && self.last_commit.is_some_and(|last| last.horizon > commit.horizon) {
            return Some("its horizon lies behind that of the commit before it"); // H3
        }
        if !commit.is_standing && self.last_commit.is_some_and(|last| last.index > commit.horizon) {
            return Some("it has not seen the commit before it"); // H4
        }
        if commit.events.iter().any(Event::is_input) {
            return Some("it contains an input");
        }
        if !self.has_room_for_attributes(&commit.events) {
            return Some("it sets an attribute that is too long, or one too many"); // AT1
        }
        before_last.iter().any(Event::ends_log).then_some("something follows the end of the log") // H2
    }

    fn has_room_for_attributes(&self, events: &[Event]) -> bool {
        if !events.iter().any(|event| matches!(event, Event::AttributeSet(_))) {
            return true;
        }
        let mut attributes = self.attributes.clone();
        set_attributes(&mut attributes, events);
        attribute::check(&attributes).is_ok()
    }

    fn has_unread(&self, horizon: Index) -> bool {
        self.next_index > horizon.plus(1)
    }

    fn status_after(&self, horizon: Index, events: &[Event], waits: bool) -> Status {
        match events.last() {
            _ if self.status == Status::Paused => Status::Paused, // R7
            Some(Event::RunCompleted(_)) => Status::Completed,
            Some(Event::RunFailed(_)) => Status::Failed,
            Some(Event::RunCanceled(_)) => Status::Canceled,
            Some(Event::RunContinued(_)) => Status::Completed,
            _ if waits && !self.has_unread(horizon) => Status::Waiting, // R3
            _ => Status::Pending,
        }
    }

    fn advance(&mut self, record: &Record) {
        set_attributes(&mut self.attributes, &record.events);
        self.next_index = record.next_index();
        self.updated_at = record.at;
        if self.status.is_closed() {
            self.ended_at = Some(record.at);
        }
    }

    fn successor(&self, commit: &Commit) -> Option<Box<NewRun>> {
        let Some(Event::RunContinued(continued)) = commit.events.last() else { return None };
        let generation = self.generation + 1;
        let mut attributes = self.attributes.clone();
        set_attributes(&mut attributes, &commit.events);
        let started = RunStarted {
            kind: self.kind.clone(),
            version: self.version.clone(),
            input: continued.input.clone(),
            // Any number does that differs between generations and is the same on every store.
            seed: commit.commit_id.0,
            parent: self.parent.clone(),
            generation,
            mailbox: commit.carries.signals.clone(),
            cancel_reason: commit.carries.cancel_reason.clone(),
            updates: commit.carries.updates.clone(),
            task: None,
            origins: Vec::new(),
            attributes,
            is_external: false,
            trace: None,
        };
        Some(Box::new(NewRun { key: self.key.clone(), started, signal: None }))
    }

    fn commit_effects(&self, events: &[Event], at: Timestamp) -> Vec<Effect> {
        let mut effects = Vec::new();
        events.iter().for_each(|event| self.event_effects(event, at, &mut effects));
        if let Some(paused_at) = self.paused_at {
            freeze_new_timers(&mut effects, paused_at, at);
        }
        effects
    }

    fn event_effects(&self, event: &Event, at: Timestamp, effects: &mut Vec<Effect>) {
        let timer = |place: &Place, due_at: Timestamp| Effect::StartTimer { place: place.clone(), due_at };
        match event {
            Event::StepFailed(event) => effects.extend(event.retry_at.map(|due_at| timer(&event.place, due_at))),
            Event::TimerStarted(event) => effects.push(timer(&event.place, event.due_at)),
            Event::WaitCanceled(event) => effects.extend([
                Effect::StopTimer { place: event.place.clone() },
                Effect::CloseWait { place: event.place.clone(), token: "withdrawn".to_owned() },
            ]),
            Event::TaskScheduled(event) => {
                let id = TaskId { run: self.key.clone(), generation: self.generation, place: event.place.clone() };
                let task = Task::new(id, event.kind.clone(), event.input.clone(), event.options.clone(), at);
                effects.push(Effect::AddTask(Box::new(task)));
            }
            Event::TaskCanceled(event) => effects.push(Effect::CancelTask { place: event.place.clone() }),
            Event::ApprovalRequested(event) => {
                effects.push(Effect::OpenWait(Box::new(Wait {
                    run: self.key.clone(),
                    generation: self.generation,
                    place: event.place.clone(),
                    kind: WaitKind::Approval,
                    name: event.name.clone(),
                    title: event.title.clone(),
                    description: event.description.clone(),
                    show: event.show.clone(),
                    deciders: event.deciders.clone(),
                    requested_at: at,
                    deadline: event.deadline,
                })));
                effects.extend(event.deadline.map(|due_at| timer(&event.place, due_at)));
            }
            Event::PromiseCreated(event) => {
                effects.push(Effect::OpenWait(Box::new(Wait {
                    run: self.key.clone(),
                    generation: self.generation,
                    place: event.place.clone(),
                    kind: WaitKind::Promise,
                    name: event.name.clone(),
                    title: String::new(),
                    description: None,
                    show: None,
                    deciders: Vec::new(),
                    requested_at: at,
                    deadline: event.deadline,
                })));
                effects.extend(event.deadline.map(|due_at| timer(&event.place, due_at)));
            }
            Event::ChildStarted(event) => effects.push(Effect::Send(Box::new(self.start_child(event, &event.child)))),
            Event::ChildCanceled(event) => {
                let to = RunKey::new(self.key.namespace.clone(), event.child.clone());
                effects.push(Effect::Send(Box::new(Delivery::Input { to, input: cancel_by_parent(&self.key) })));
            }
            Event::SignalSent(event) => {
                let to = RunKey::new(self.key.namespace.clone(), event.to.clone());
                let life = self.life.map(|life| format!("~{life:016x}")).unwrap_or_default(); // R10
                let signal_id = Some(format!("{}~{}~{}{life}", self.key.id, self.generation, event.place));
                let signal = SignalReceived {
                    name: event.name.clone(),
                    payload: event.payload.clone(),
                    signal_id,
                    sender: Some(self.key.clone()),
                };
                effects.push(Effect::Send(Box::new(Delivery::Input { to, input: Input::signal(signal) })));
            }
            Event::RunCompleted(event) => effects.extend(self.end_effects(Ok(event.output.clone()))),
            Event::RunFailed(event) => effects.extend(self.end_effects(Err(event.failure.clone()))),
            Event::RunCanceled(event) => effects.extend(self.end_effects(Err(event.failure.clone()))),
            // The parent goes on waiting: the successor answers it. Open children do not survive the old log.
            Event::RunContinued(_) => effects.push(Effect::EndRun),
            _ => {}
        }
    }

    /// The start of a child that the code asked for, under `id`: another one than it was asked for if it is started again.
    pub fn start_child(&self, event: &ChildStarted, id: &RunId) -> Delivery {
        let parent = ParentLink {
            run: self.key.clone(),
            generation: self.generation,
            place: event.place.clone(),
            on_parent_close: event.on_parent_close,
            life: self.life,
        };
        // Started again, it has the start of the one before and nothing else of it.
        let first = RunKey::new(self.key.namespace.clone(), event.child.clone());
        let origins = if first.id == *id { Vec::new() } else { vec![Origin::of_start(first)] };
        let started = RunStarted {
            version: event.version.clone(),
            parent: Some(parent),
            origins,
            ..RunStarted::new(event.kind.clone(), event.input.clone(), self.child_seed(&event.place))
        };
        let key = RunKey::new(self.key.namespace.clone(), id.clone());
        Delivery::Start(NewRun { key, started, signal: None })
    }

    /// Two runs that were started in one millisecond have children with different chance.
    fn child_seed(&self, place: &Place) -> u64 {
        let (key, at) = (self.key.to_string(), self.created_at.0.to_le_bytes());
        let life = self.life.map(u64::to_le_bytes);
        let life: &[u8] = life.as_ref().map_or(&[], |life| life);
        let own = crate::Hash::of_parts(&[key.as_bytes(), &self.generation.to_le_bytes(), &at, life]);
        let (low, _) = own.0.split_at(8);
        crate::random::derive(u64::from_le_bytes(low.try_into().expect("8 of 16 bytes")), place, 0)
    }

    /// The run is over: it cleans up and tells whoever waits for it.
    fn end_effects(&self, result: Result<Payload, Failure>) -> Vec<Effect> {
        let mut effects = vec![Effect::EndRun];
        effects.extend(self.awaited_by().map(|link| Effect::Send(Box::new(answer_to(link, result.clone())))));
        effects
    }

    /// Who wants to hear how the run ends: its parent and the copies of that. Nobody of another namespace is told (U3).
    pub fn awaited_by(&self) -> impl Iterator<Item = &ParentLink> {
        let links = self.parent.iter().chain(&self.listeners);
        links.filter(|link| link.run.namespace == self.key.namespace)
    }

    /// What this open child gets when its parent has ended; `None` lets it go on.
    pub fn parent_closed(&self) -> Option<Delivery> {
        let parent = self.parent.as_ref()?;
        let input = match parent.on_parent_close {
            OnParentClose::Abandon => return None,
            OnParentClose::Cancel => cancel_by_parent(&parent.run),
            OnParentClose::Terminate => {
                let reason = format!("its parent {} ended", parent.run.id);
                Input { child_of: Some(parent.run.clone()), ..Input::new(TerminateRequested { reason, reset_to: None }) }
            }
        };
        Some(Delivery::Input { to: self.key.clone(), input })
    }
}

/// Whether the event ends a run that is a standalone task (R9).
fn ends_task_run(event: &Event) -> bool {
    matches!(event, Event::RunCompleted(_) | Event::RunFailed(_) | Event::RunCanceled(_) | Event::TerminateRequested(_))
}

fn set_attributes(attributes: &mut Vec<Attribute>, events: &[Event]) {
    for event in events {
        if let Event::AttributeSet(event) = event {
            attribute::set(attributes, &event.name, event.value.as_ref());
        }
    }
}

/// How a child's end is told to who waits for it.
pub fn answer_to(parent: &ParentLink, result: Result<Payload, Failure>) -> Delivery {
    let place = parent.place.clone();
    let event = match result {
        Ok(output) => ChildCompleted { place, output }.into(),
        Err(failure) => ChildFailed { place, failure }.into(),
    };
    let input = Input { life: parent.life, ..Input::result(event, parent.generation, "child", &parent.place) };
    Delivery::Input { to: parent.run.clone(), input }
}

/// A timer that begins while the run is paused keeps its whole time: thawing adds the whole pause to it, also what was over by now.
fn freeze_new_timers(effects: &mut Vec<Effect>, paused_at: Timestamp, at: Timestamp) {
    let mut started = false;
    for effect in effects.iter_mut() {
        if let Effect::StartTimer { due_at, .. } = effect {
            *due_at = due_at.before(at.since(paused_at));
            started = true;
        }
    }
    effects.extend(started.then_some(Effect::Freeze { at: paused_at }));
}

fn close_wait(place: &Place, token: &str) -> Vec<Effect> {
    let stop = Effect::StopTimer { place: place.clone() };
    vec![stop, Effect::CloseWait { place: place.clone(), token: token.to_owned() }]
}

fn cancel_by_parent(parent: &RunKey) -> Input {
    let reason = format!("its parent {} asked for it", parent.id);
    let once = Once::new("cancel:parent".to_owned());
    Input { once: Some(once), child_of: Some(parent.clone()), ..Input::new(crate::event::CancelRequested { reason }) }
}

fn terminated(event: &TerminateRequested) -> String {
    if event.reason.is_empty() {
        "the run was terminated".to_owned()
    } else {
        format!("the run was terminated: {}", event.reason)
    }
}

/// Why a commit was not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommitRefusal {
    /// It was taken before; this is the first answer.
    Repeated(Committed),
    Refused(Refusal),
}

impl From<Refusal> for CommitRefusal {
    fn from(refusal: Refusal) -> CommitRefusal {
        CommitRefusal::Refused(refusal)
    }
}

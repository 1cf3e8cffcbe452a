//! The rows that the model's database has for its one run. `onward-core` decides about them, as in every store.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use onward_core::run::Commit;
use onward_core::task::Task;
use onward_core::{CommitId, Epoch, Event, RunHead, Status, Timestamp};
use onward_store::admission::TakenSlot;

/// Step by which time advances: half a lease.
pub const TICK: Duration = Duration::from_secs(15);
pub const LEASE: Duration = Duration::from_secs(30);

/// An incarnation of a worker; those of server 0 are even, those of server 1 odd.
pub type Id = u8;

/// The content of a record that matters to the run's code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fact {
    Started,
    Signaled,
    CancelRequested,
    TaskDone,
    TimerFired,
    /// The code made the calls of the scenario.
    Called,
    /// The code has seen an input and waits for more.
    Noted,
    Ended,
}

impl Fact {
    pub fn of(event: &Event) -> Fact {
        match event {
            Event::SignalReceived(_) => Fact::Signaled,
            Event::CancelRequested(_) => Fact::CancelRequested,
            Event::TaskCompleted(_) | Event::TaskFailed(_) => Fact::TaskDone,
            Event::TimerFired(_) => Fact::TimerFired,
            other => unreachable!("unexpected input {}", other.name()),
        }
    }
}

/// The author of a commit. The model counts claims itself, independent of epochs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct By {
    pub commit: CommitId,
    pub claim: u64,
    pub horizon: u64,
}

#[derive(Debug, Clone, Copy)]
pub struct Entry {
    pub index: u64,
    pub fact: Fact,
    pub by: Option<By>,
}

#[derive(Debug, Clone)]
pub struct Run {
    pub head: RunHead,
    pub worker: Option<Id>,
    /// The run may be claimed.
    pub ready: bool,
    pub slot: Option<TakenSlot>,
    pub log: Vec<Entry>,
    /// Number of claims.
    pub claims: u64,
}

impl Run {
    pub fn count(&self, fact: Fact) -> usize {
        self.log.iter().filter(|entry| entry.fact == fact).count()
    }

    pub fn last_commit(&self) -> Option<By> {
        self.log.iter().rev().find_map(|entry| entry.by)
    }

    /// Updates everything derived from the run, as the last step of every change.
    pub fn settle(&mut self) {
        if self.head.status.is_closed() {
            self.worker = None;
        }
        self.ready = self.head.status == Status::Pending && self.worker.is_none();
    }
}

/// The committed rows.
#[derive(Debug, Clone, Default)]
pub struct Database {
    pub run: Option<Rc<Run>>,
    pub timer: Option<Timestamp>,
    pub task: Option<Task>,
    /// The worker whose server is responsible for the task, as the model counts it.
    pub holder: Option<Id>,
    pub sessions: BTreeMap<Id, Timestamp>,
}

/// A commit in flight.
#[derive(Debug, Clone)]
pub struct Sent {
    pub commit: Commit,
    pub claim: u64,
    pub fact: Fact,
}

/// An operation for a server's appender.
#[derive(Debug, Clone)]
pub enum Op {
    /// Starts the run, leased to a worker that has capacity.
    Start {
        claim: Option<Id>,
    },
    Signal,
    Cancel,
    Commit(Rc<Sent>),
    Release {
        epoch: Epoch,
        claim: u64,
    },
    Report {
        claim: u64,
        report_kind: ReportKind,
        /// The worker whose server sends the report.
        by: Id,
    },
}

/// The content of a report about an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReportKind {
    Completed,
    NotStarted,
    Interrupted,
    WorkerLost,
    /// The worker has moved here from the other server with the attempt.
    Adopted,
}

/// The reply to an operation once its transaction is committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    Done,
    Leased {
        epoch: Epoch,
        claim: u64,
    },
    Committed {
        is_closed: bool,
    },
    /// Refused with this code.
    Refused(&'static str),
}

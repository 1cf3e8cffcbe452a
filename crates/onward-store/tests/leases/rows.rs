//! The rows that the model's database has of its one run. What is decided about them is asked of `onward-core`, as every store does.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use onward_core::run::Commit;
use onward_core::task::Task;
use onward_core::{CommitId, Epoch, Event, RunHead, Status, Timestamp};
use onward_store::judged::TakenSlot;

/// How far time goes at once: half a lease.
pub const TICK: Duration = Duration::from_secs(15);
pub const LEASE: Duration = Duration::from_secs(30);

/// A life of a worker; server 0 has the even ones, server 1 the odd ones.
pub type Id = u8;

/// What a record says, as far as the code of the run cares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fact {
    Started,
    Signaled,
    CancelAsked,
    TaskDone,
    TimerFired,
    /// The code asked for what the story needs.
    Asked,
    /// The code has seen an input and waits for more.
    Noted,
    Ended,
}

impl Fact {
    pub fn of(event: &Event) -> Fact {
        match event {
            Event::SignalReceived(_) => Fact::Signaled,
            Event::CancelRequested(_) => Fact::CancelAsked,
            Event::TaskCompleted(_) | Event::TaskFailed(_) => Fact::TaskDone,
            Event::TimerFired(_) => Fact::TimerFired,
            other => unreachable!("nobody sends {}", other.name()),
        }
    }
}

/// Who wrote a commit. Claims are counted by the model itself, whatever the epochs say.
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
    /// How often it was claimed.
    pub claims: u64,
}

impl Run {
    pub fn count(&self, fact: Fact) -> usize {
        self.log.iter().filter(|entry| entry.fact == fact).count()
    }

    pub fn last_commit(&self) -> Option<By> {
        self.log.iter().rev().find_map(|entry| entry.by)
    }

    /// Brings what derives from the run up to date with it, as the last act of every change.
    pub fn settle(&mut self) {
        if self.head.status.is_closed() {
            self.worker = None;
        }
        self.ready = self.head.status == Status::Pending && self.worker.is_none();
    }
}

/// What is committed.
#[derive(Debug, Clone, Default)]
pub struct Database {
    pub run: Option<Rc<Run>>,
    pub timer: Option<Timestamp>,
    pub task: Option<Task>,
    /// Whose server answers for the worker that has the task, as the model itself counts it.
    pub holder: Option<Id>,
    pub sessions: BTreeMap<Id, Timestamp>,
}

/// A commit on its way.
#[derive(Debug, Clone)]
pub struct Sent {
    pub commit: Commit,
    pub claim: u64,
    pub fact: Fact,
}

/// What is asked of a server's appender.
#[derive(Debug, Clone)]
pub enum Op {
    /// Starts the run, leased to a worker with room for it.
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
        says: Says,
        /// Whose server reports it.
        by: Id,
    },
}

/// What a report says of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Says {
    Completed,
    NotStarted,
    Interrupted,
    WorkerLost,
    /// The worker has come from the other server with the attempt.
    Adopted,
}

/// What becomes of it, if its transaction does.
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
    /// Not taken: the code of the refusal.
    Refused(&'static str),
}

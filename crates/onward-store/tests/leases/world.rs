//! The state of the model: two servers with a worker each, one client, one database with one run, and a clock.

use std::rc::Rc;

use onward_core::event::{RunCanceled, RunCompleted, RunSuspended, SuspendReason, TaskScheduled, TimerStarted};
use onward_core::log::CommitId;
use onward_core::run::Commit;
use onward_core::task::{EffectClass, TaskOptions, TaskState};
use onward_core::{Epoch, Event, Failure, Hash, Index, Payload, Timestamp};

use crate::decide::{Kind, Tx, Violation, key, name, task_call_id, timer_call_id};
use crate::guards::{Guard, Rules};
use crate::rows::{Database, Fact, Id, Op, ReportKind, Sent, TICK};

/// The inputs that the run needs to end, and the number of faults.
#[derive(Debug, Clone, Copy)]
pub struct Scenario {
    pub signal: bool,
    pub timer: bool,
    pub task: bool,
    pub cancel: bool,
    /// The task is `at_most_once`.
    pub once: bool,
    /// Workers are remote: offers of tasks are sent, sessions end, workers are stopped.
    pub remote: bool,
    pub faults: u8,
}

impl Scenario {
    pub const PLAIN: Scenario =
        Scenario { signal: false, timer: false, task: false, cancel: false, once: false, remote: false, faults: 0 };
}

#[derive(Debug, Clone)]
pub struct World {
    pub now: Timestamp,
    pub db: Database,
    pub servers: [Server; 2],
    /// Transactions that lost their server: the database commits or undoes them at any time.
    pub cut_off: Vec<Tx>,
    pub client: Client,
    pub faults: u8,
    pub commit_ids: u64,
    /// Attempt numbers of all executions of the task.
    pub executed: Vec<u32>,
}

#[derive(Debug, Clone)]
pub struct Server {
    pub up: bool,
    pub worker: Id,
    /// Operations that wait for the one appending connection.
    pub queue: Vec<Op>,
    pub append: Option<Tx>,
    /// A connection that claims and sends heartbeats.
    pub pool: Option<Tx>,
    pub hold: Option<Hold>,
    pub task: Option<TaskHold>,
    /// Time until which a lease may turn up that the worker does not know of.
    pub doubt: Option<Timestamp>,
    /// The store has received a heartbeat of the worker.
    pub met: bool,
}

/// A run in a worker's memory.
#[derive(Debug, Clone)]
pub struct Hold {
    pub epoch: Epoch,
    pub claim: u64,
    /// Index up to which the worker has read the log.
    pub seen: u64,
    pub flight: Option<Rc<Sent>>,
    /// The commit was sent and has no reply yet.
    pub is_sent: bool,
}

#[derive(Debug, Clone, Copy)]
pub struct TaskHold {
    pub claim: u64,
    pub attempt: u32,
    pub stage: Stage,
    /// The content of the report, once there is one.
    pub report_kind: Option<ReportKind>,
    /// The report was sent and has no reply yet.
    pub is_sent: bool,
}

/// Progress of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    /// The server has the task for its worker, and has not sent it.
    Unsent,
    /// In flight, or received and not started.
    Sent,
    Started,
    /// Not started, and never will be.
    Dropped,
    /// The worker moved it to the other server, unknown to this one.
    Left,
}

impl TaskHold {
    /// Returns whether its server extends the lease.
    pub fn is_kept(&self) -> bool {
        self.stage != Stage::Left
            && self.report_kind.is_none_or(|report_kind| matches!(report_kind, ReportKind::Completed | ReportKind::Adopted))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RequestState {
    Not,
    /// Sent to a server.
    Sent,
    /// The outcome is unknown.
    Unknown,
    Acknowledged,
    /// The client gave up, or was refused.
    Over,
}

#[derive(Debug, Clone)]
pub struct Client {
    pub start: RequestState,
    pub signal: RequestState,
    pub cancel: RequestState,
}

impl World {
    pub fn new(scenario: Scenario) -> World {
        let server = |worker| Server {
            up: true,
            worker,
            queue: Vec::new(),
            append: None,
            pool: None,
            hold: None,
            task: None,
            doubt: None,
            met: false,
        };
        World {
            now: Timestamp(1_800_000_000_000),
            db: Database::default(),
            servers: [server(0), server(1)],
            cut_off: Vec::new(),
            client: Client { start: RequestState::Not, signal: RequestState::Not, cancel: RequestState::Not },
            faults: scenario.faults,
            commit_ids: 0,
            executed: Vec::new(),
        }
    }

    /// Returns the time by which a server's transactions decide.
    pub fn admit(&self, rules: Rules, server: usize) -> Timestamp {
        match rules.has(Guard::DatabaseClock) {
            true => self.now,
            false => ahead(self.now, server),
        }
    }

    /// Returns the time by which it decides about timers.
    pub fn judge_of_timers(&self, rules: Rules, server: usize) -> Timestamp {
        match rules.has(Guard::TimerClock) {
            true => self.admit(rules, server),
            false => ahead(self.now, server),
        }
    }

    /// Returns every open transaction.
    pub fn open(&self) -> impl Iterator<Item = &Tx> {
        self.servers.iter().flat_map(|server| server.append.iter().chain(&server.pool)).chain(&self.cut_off)
    }

    pub fn is_run_locked(&self) -> bool {
        self.open().any(|tx| tx.holds_run)
    }

    pub fn is_task_locked(&self) -> bool {
        self.open().any(|tx| tx.holds_task)
    }

    pub fn is_session_locked(&self, rules: Rules, worker: Id) -> bool {
        rules.has(Guard::SessionLock) && self.open().any(|tx| tx.sessions.contains(&worker))
    }

    /// Returns whether the transaction has decided and waits for no lock.
    pub fn may_end(&self, rules: Rules, tx: &Tx) -> bool {
        let decided = !matches!(tx.kind, Kind::DueLook | Kind::DueLocked | Kind::ClaimLook | Kind::TaskLook);
        let free_task = tx.task.is_none() || tx.holds_task || !self.is_task_locked();
        decided && free_task && tx.greets.is_none_or(|worker| !self.is_session_locked(rules, worker))
    }

    pub fn is_over(&self) -> bool {
        self.db.run.as_ref().is_some_and(|run| run.head.status.is_closed())
    }

    /// Returns whether this incarnation of a worker is the current one and running.
    pub fn is_alive(&self, worker: Id) -> bool {
        let server = &self.servers[usize::from(worker % 2)];
        server.up && server.worker == worker
    }

    /// Returns whether the worker has the run, by its own state or the database's, or is about to get it. Otherwise its session
    /// does not matter.
    pub fn has_run(&self, worker: Id) -> bool {
        let holds = self.servers.iter().any(|server| server.worker == worker && server.hold.is_some());
        let leased = self.db.run.as_ref().is_some_and(|run| run.worker == Some(worker));
        holds || leased || self.open().any(|tx| tx.greets == Some(worker))
    }

    /// Executes the task's code; fails if that violates K6 or K9.
    pub fn execute(&mut self, scenario: Scenario, attempt: u32) -> Result<(), Violation> {
        if scenario.once && !self.executed.is_empty() {
            return Err("an `at_most_once` task was executed twice".to_owned());
        }
        if self.executed.contains(&attempt) {
            return Err(format!("two executions have the attempt number {attempt}"));
        }
        self.executed.push(attempt);
        Ok(())
    }

    /// Checks the properties of every state.
    pub fn check(&self) -> Result<(), Violation> {
        let Some(run) = &self.db.run else {
            return (self.client.start != RequestState::Acknowledged)
                .then_some(())
                .ok_or("a start was acknowledged and lost".to_owned());
        };
        if let Some(worker) = run.worker.filter(|worker| !self.db.sessions.contains_key(worker)) {
            return Err(format!("worker {worker} has a lease without a session: nothing ends it"));
        }
        let acknowledged = [(self.client.signal, Fact::Signaled), (self.client.cancel, Fact::CancelRequested)];
        for (state, fact) in acknowledged {
            if state == RequestState::Acknowledged && run.count(fact) != 1 {
                return Err(format!("{fact:?} was acknowledged and lost"));
            }
        }
        let read_to = run.last_commit().map_or(0, |last| last.horizon);
        let unread = run.log.iter().any(|entry| entry.by.is_none() && entry.index > read_to);
        if run.head.status == onward_core::Status::Waiting && unread {
            return Err("the run waits with an unread input".to_owned());
        }
        Ok(())
    }

    /// Returns what the code records next after reading the log up to `seen`; `None` if it waits.
    pub fn next_fact(&self, scenario: Scenario, seen: u64) -> Option<Fact> {
        let log: Vec<_> = self.db.run.as_ref()?.log.iter().filter(|entry| entry.index < seen).collect();
        let has = |fact| log.iter().any(|entry| entry.fact == fact);
        if log.is_empty() || has(Fact::Ended) {
            return None;
        }
        if !has(Fact::Called) {
            return Some(Fact::Called);
        }
        if self.may_end_run(scenario, seen) {
            return Some(Fact::Ended);
        }
        let read_to = log.iter().rev().find_map(|entry| entry.by).map_or(0, |by| by.horizon);
        log.iter().any(|entry| entry.by.is_none() && entry.index > read_to).then_some(Fact::Noted)
    }

    /// Returns whether the code has all it waits for.
    fn may_end_run(&self, scenario: Scenario, seen: u64) -> bool {
        let log = self.db.run.as_ref().map_or(&[][..], |run| &run.log);
        let has = |fact| log.iter().any(|entry| entry.index < seen && entry.fact == fact);
        let needs = [(scenario.signal, Fact::Signaled), (scenario.timer, Fact::TimerFired), (scenario.task, Fact::TaskDone)];
        has(Fact::CancelRequested) || needs.iter().all(|(needed, fact)| !needed || has(*fact))
    }

    /// Returns the commit that records `fact`.
    pub fn commit_of(&self, scenario: Scenario, hold: &Hold, fact: Fact) -> Rc<Sent> {
        let log = &self.db.run.as_ref().expect("it is leased").log;
        let n = log.iter().filter(|entry| entry.index < hold.seen && entry.by.is_some()).count() as u64;
        let is_canceled = log.iter().any(|entry| entry.index < hold.seen && entry.fact == Fact::CancelRequested);
        let commit = Commit {
            key: key(),
            generation: 0,
            epoch: hold.epoch,
            n,
            commit_id: CommitId(self.commit_ids),
            horizon: Index(hold.seen - 1),
            events: self.events_of(scenario, fact, is_canceled),
            waits: !self.may_end_run(scenario, hold.seen),
            end_over_unread: false,
            is_while_paused: false,
            carries: onward_core::run::Carries::default(),
        };
        Rc::new(Sent { commit, claim: hold.claim, fact })
    }

    fn events_of(&self, scenario: Scenario, fact: Fact, is_canceled: bool) -> Vec<Event> {
        let settled = RunSuspended { reason: SuspendReason::Settled }.into();
        match fact {
            Fact::Called => {
                let (kind, input) = (name("mail"), Payload::null());
                let class = if scenario.once { EffectClass::AtMostOnce } else { EffectClass::AtLeastOnce };
                let options = TaskOptions { class: scenario.remote.then_some(class), ..TaskOptions::default() };
                let task = TaskScheduled { call_id: task_call_id(), kind, input_hash: Hash::of(&input), input, options };
                let timer = TimerStarted { call_id: timer_call_id(), due_at: self.now.after(TICK) };
                let calls = [scenario.task.then(|| task.into()), scenario.timer.then(|| timer.into())].into_iter().flatten();
                calls.chain([settled]).collect()
            }
            Fact::Ended if is_canceled => vec![RunCanceled { failure: Failure::new("canceled", "asked for") }.into()],
            Fact::Ended => vec![RunCompleted { output: Payload::null(), attempts: None }.into()],
            _ => vec![settled],
        }
    }

    /// Returns whether advancing time by one step ends the lease of a live worker.
    pub fn tick_is_slow(&self) -> bool {
        let later = self.now.after(TICK);
        let ends = |until: Timestamp| until <= later;
        let session =
            self.db.sessions.iter().any(|(worker, until)| ends(*until) && self.is_alive(*worker) && self.has_run(*worker));
        let task = self.db.task.as_ref().filter(|task| task.state == TaskState::Leased && ends(task.lease_until));
        session
            || task.is_some_and(|task| {
                self.servers.iter().any(|server| server.task.is_some_and(|own| own.claim == task.claim && own.is_kept()))
            })
    }

    /// Returns whether advancing time brings anything due; no transaction takes longer than one step.
    pub fn may_tick(&self) -> bool {
        let doubts = self.servers.iter().filter_map(|server| server.doubt);
        let task = self.db.task.as_ref();
        let task_due = task.and_then(onward_core::task::Task::due_at).into_iter().chain(task.map(|task| task.visible_at));
        let mut times = self.db.sessions.values().copied().chain(self.db.timer).chain(task_due).chain(doubts);
        let soon = self.open().all(|tx| self.now.since(tx.clock) < TICK);
        soon && self.cut_off.is_empty() && times.any(|at| at > self.now)
    }
}

/// Returns the clock of a server; that of server 1 is two leases ahead.
fn ahead(now: Timestamp, server: usize) -> Timestamp {
    if server == 1 { now.after(TICK * 4) } else { now }
}

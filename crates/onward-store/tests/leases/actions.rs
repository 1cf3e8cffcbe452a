//! The actions that are possible in a state.

use crate::decide::Kind;
use crate::guards::{Guard, Rules};
use crate::rows::{LEASE, Op};
use crate::world::{RequestState, Scenario, Server, Stage, World};

/// One step of the model. The number is the server's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    ClientStarts(usize),
    ClientSignals(usize),
    ClientCancels(usize),
    /// The appender takes the queue, locks the run, reads the clock and decides.
    BatchDecides(usize),
    BatchCommits(usize),
    LooksForDue(usize),
    LocksDue(usize),
    FreesRunsOfSilentWorkers(usize),
    LooksForRun(usize),
    LocksRun(usize),
    LooksForTask(usize),
    LocksTask(usize),
    SendsHeartbeat(usize),
    PoolCommits(usize),
    WorkerReads(usize),
    WorkerCommits(usize),
    WorkerRests(usize),
    OfferIsSent(usize),
    WorkerStartsTask(usize),
    /// The worker has moved to the other server, and its lease at this one has run out.
    WorkerIsMissed(usize),
    WorkerReports(usize),
    WorkerComparesLeases(usize),
    Restarts(usize),
    TimePasses,
    /// A transaction whose server lost its connection is committed, or undone.
    CutOffCommits(usize),
    CutOffIsUndone(usize),
    /// Faults.
    BatchLosesConnectionBeforeCommit(usize),
    BatchIsGivenUp(usize),
    BatchLosesConnectionAtCommit(usize),
    PoolLosesConnectionBeforeCommit(usize),
    PoolLosesConnectionAtCommit(usize),
    Crashes(usize),
    /// The worker is shut down and reports what it knows of its task.
    WorkerStops(usize),
    /// The worker connects to the other server with its task; the server that it left is not notified.
    WorkerMoves(usize),
    /// The worker is silent or its key is revoked: its server ends the session, and the worker continues without knowing.
    SessionEnds(usize),
    TimePassesBySomebodysLease,
}

use Action as A;

/// Number of queued operations at which a worker claims nothing more.
const WAITING_MAX: usize = 2;

impl Action {
    pub fn is_fault(self) -> bool {
        let server = |server| {
            [
                A::BatchLosesConnectionBeforeCommit(server),
                A::BatchIsGivenUp(server),
                A::BatchLosesConnectionAtCommit(server),
                A::PoolLosesConnectionBeforeCommit(server),
                A::PoolLosesConnectionAtCommit(server),
                A::Crashes(server),
                A::WorkerStops(server),
                A::WorkerMoves(server),
                A::SessionEnds(server),
            ]
        };
        self == A::TimePassesBySomebodysLease || (0..2).any(|number| server(number).contains(&self))
    }
}

impl World {
    pub fn actions(&self, rules: Rules, scenario: Scenario) -> Vec<Action> {
        let mut found = Vec::new();
        for (number, server) in self.servers.iter().enumerate() {
            match server.up {
                true => self.actions_of(rules, scenario, number, server, &mut found),
                false => found.push(A::Restarts(number)),
            }
        }
        for (number, tx) in self.cut_off.iter().enumerate() {
            found.push(A::CutOffIsUndone(number));
            found.extend(self.may_end(rules, tx).then_some(A::CutOffCommits(number)));
        }
        if self.may_tick() {
            match self.tick_is_slow() {
                false => found.push(A::TimePasses),
                true if self.faults > 0 => found.push(A::TimePassesBySomebodysLease),
                true => {}
            }
        }
        found
    }

    fn actions_of(&self, rules: Rules, scenario: Scenario, at: usize, server: &Server, found: &mut Vec<Action>) {
        self.client_actions(scenario, at, found);
        match &server.append {
            None => {
                let free = !self.is_run_locked() && (!server.reports() || !self.is_task_locked());
                found.extend((!server.queue.is_empty() && free).then_some(A::BatchDecides(at)));
                found.extend(self.is_due(rules, at).then_some(A::LooksForDue(at)));
            }
            Some(tx) => {
                match tx.kind {
                    Kind::DueLook => found.push(A::LocksDue(at)),
                    Kind::DueLocked => found.push(A::FreesRunsOfSilentWorkers(at)),
                    _ if self.may_end(rules, tx) => found.push(A::BatchCommits(at)),
                    _ => {}
                }
                if self.faults > 0 {
                    found.push(A::BatchLosesConnectionBeforeCommit(at));
                    if tx.kind == Kind::Batch {
                        found.extend([A::BatchIsGivenUp(at), A::BatchLosesConnectionAtCommit(at)]);
                    }
                }
            }
        }
        self.pool_actions(rules, at, server, found);
        self.worker_actions(rules, scenario, at, server, found);
        found.extend((self.faults > 0).then_some(A::Crashes(at)));
    }

    fn client_actions(&self, scenario: Scenario, at: usize, found: &mut Vec<Action>) {
        let RequestState::Acknowledged = self.client.start else {
            let may_request = matches!(self.client.start, RequestState::Not | RequestState::Unknown);
            return found.extend(may_request.then_some(A::ClientStarts(at)));
        };
        let may_request = matches!(self.client.signal, RequestState::Not | RequestState::Unknown);
        found.extend((scenario.signal && may_request).then_some(A::ClientSignals(at)));
        found.extend((scenario.cancel && self.client.cancel == RequestState::Not).then_some(A::ClientCancels(at)));
    }

    fn pool_actions(&self, rules: Rules, at: usize, server: &Server, found: &mut Vec<Action>) {
        let Some(tx) = &server.pool else {
            let run = self.db.run.as_ref();
            let is_ready = run.is_some_and(|run| run.ready) && server.hold.is_none() && server.queue.len() < WAITING_MAX;
            let may_claim = self.db.task.as_ref().is_some_and(|task| task.may_be_claimed(self.admit(rules, at)));
            // The session of a worker without a run has no effect.
            let has = self.has_run(server.worker);
            let session = self.db.sessions.get(&server.worker);
            let beats = has && session.is_none_or(|until| *until < self.now.after(LEASE));
            let beats = beats && !self.is_session_locked(rules, server.worker);
            found.extend(is_ready.then_some(A::LooksForRun(at)));
            found.extend((may_claim && server.task.is_none()).then_some(A::LooksForTask(at)));
            found.extend(beats.then_some(A::SendsHeartbeat(at)));
            return;
        };
        match tx.kind {
            Kind::ClaimLook => found.push(A::LocksRun(at)),
            Kind::TaskLook => found.push(A::LocksTask(at)),
            _ if self.may_end(rules, tx) => found.push(A::PoolCommits(at)),
            _ => {}
        }
        if self.faults > 0 && !matches!(tx.kind, Kind::ClaimLook | Kind::TaskLook) {
            found.extend([A::PoolLosesConnectionBeforeCommit(at), A::PoolLosesConnectionAtCommit(at)]);
        }
    }

    fn worker_actions(&self, rules: Rules, scenario: Scenario, at: usize, server: &Server, found: &mut Vec<Action>) {
        if let (Some(hold), Some(run)) = (&server.hold, &self.db.run) {
            found.extend((hold.seen < run.head.next_index.0).then_some(A::WorkerReads(at)));
            let again = hold.flight.is_some() && !hold.is_sent;
            let fresh = hold.flight.is_none() && self.next_fact(scenario, hold.seen).is_some();
            found.extend((again || fresh).then_some(A::WorkerCommits(at)));
            let rests = hold.flight.is_none() && hold.seen > 0 && !fresh;
            found.extend(rests.then_some(A::WorkerRests(at)));
        }
        if let Some(task) = &server.task {
            found.extend((task.stage == Stage::Unsent).then_some(A::OfferIsSent(at)));
            found.extend((task.stage == Stage::Sent).then_some(A::WorkerStartsTask(at)));
            let reports = task.report_kind.is_some() || task.stage == Stage::Started;
            found.extend((reports && !task.is_sent).then_some(A::WorkerReports(at)));
            // A worker that moved sends no heartbeats to its old server.
            found.extend((task.stage == Stage::Left && task.report_kind.is_none()).then_some(A::WorkerIsMissed(at)));
            if self.faults > 0 && scenario.remote && task.report_kind.is_none() && task.stage != Stage::Left {
                let other = &self.servers[1 - at];
                let moves = other.up && other.task.is_none() && task.stage != Stage::Unsent;
                found.extend(moves.then_some(A::WorkerMoves(at)));
                found.push(A::SessionEnds(at));
                found.extend((task.stage != Stage::Unsent).then_some(A::WorkerStops(at)));
            }
        }
        let compares = server.doubt.is_some() && rules.has(Guard::LeasesCompared) && !server.may_be_leased();
        found.extend(compares.then_some(A::WorkerComparesLeases(at)));
    }

    fn is_due(&self, rules: Rules, at: usize) -> bool {
        let now = self.admit(rules, at);
        let task = self.db.task.as_ref().and_then(onward_core::task::Task::due_at);
        let mut times = self.db.sessions.values().copied().chain(task);
        self.is_timer_due(rules, at) || times.any(|due| due <= now)
    }

    pub fn is_timer_due(&self, rules: Rules, at: usize) -> bool {
        self.db.timer.is_some_and(|due| due <= self.judge_of_timers(rules, at))
    }
}

impl Server {
    pub fn reports(&self) -> bool {
        self.queue.iter().any(|op| matches!(op, Op::Report { .. }))
    }

    /// Returns whether a lease may be on its way to the worker, or back.
    fn may_be_leased(&self) -> bool {
        let is_start = |op: &Op| matches!(op, Op::Start { claim: Some(_) } | Op::Release { .. });
        let under_way = self.append.as_ref().is_some_and(|tx| tx.ops.iter().any(|(op, _)| is_start(op)));
        under_way || self.queue.iter().any(is_start) || self.pool.as_ref().is_some_and(|tx| tx.kind == Kind::Claim)
    }
}

//! The effects of actions on the database, the servers and their workers, and the client.

use onward_core::Timestamp;

use crate::actions::Action as A;
use crate::decide::{Kind, Tx, Violation};
use crate::guards::{Guard, Rules};
use crate::rows::{Answer, Id, LEASE, Op, ReportKind, TICK};
use crate::world::{Hold, RequestState, Scenario, Server, Stage, TaskHold, World};

impl World {
    /// Performs an action; `Err` describes the property it violates.
    pub fn after(&self, rules: Rules, scenario: Scenario, action: A) -> Result<World, Violation> {
        let mut next = self.clone();
        next.faults -= u8::from(action.is_fault());
        next.act(rules, scenario, action)?;
        next.check()?;
        Ok(next)
    }

    fn act(&mut self, rules: Rules, scenario: Scenario, action: A) -> Result<(), Violation> {
        match action {
            A::ClientStarts(at) => {
                let server = &mut self.servers[at];
                let claim = server.hold.is_none().then_some(server.worker);
                server.queue.push(Op::Start { claim });
                self.client.start = RequestState::Sent;
            }
            A::ClientSignals(at) => {
                self.servers[at].queue.push(Op::Signal);
                self.client.signal = RequestState::Sent;
            }
            A::ClientCancels(at) => {
                self.servers[at].queue.push(Op::Cancel);
                self.client.cancel = RequestState::Sent;
            }
            A::TimePasses | A::TimePassesBySomebodysLease => self.pass_time(rules),
            A::Restarts(at) => {
                let server = &mut self.servers[at];
                *server = Server { up: true, worker: server.worker + 2, ..World::new(scenario).servers[at].clone() };
            }
            A::WorkerReads(_) | A::WorkerCommits(_) | A::WorkerRests(_) | A::WorkerReports(_) | A::WorkerComparesLeases(_) => {
                self.act_as_worker(scenario, action)
            }
            A::OfferIsSent(_) | A::WorkerStartsTask(_) | A::WorkerStops(_) | A::SessionEnds(_) | A::WorkerIsMissed(_) => {
                self.act_on_task(rules, scenario, action)?;
            }
            A::WorkerMoves(at) => self.move_worker(at),
            fault if fault.is_fault() => self.fail(fault),
            statement => self.act_in_database(rules, statement)?,
        }
        Ok(())
    }

    fn act_in_database(&mut self, rules: Rules, action: A) -> Result<(), Violation> {
        match action {
            A::BatchDecides(at) => self.decide_batch(rules, at)?,
            A::LooksForDue(at) => self.look_for_due(rules, at)?,
            A::LocksDue(at) => self.lock_due(rules, at)?,
            A::FreesRunsOfSilentWorkers(at) => self.free_runs(rules, at)?,
            A::LooksForRun(at) => {
                self.servers[at].pool = Some(self.begin(rules, at, Kind::ClaimLook));
                if rules.has(Guard::LeaseCheck) {
                    self.lock_ready(rules, at)?;
                }
            }
            A::LooksForTask(at) => {
                self.servers[at].pool = Some(self.begin(rules, at, Kind::TaskLook));
                if rules.has(Guard::TaskLease) {
                    self.lock_task(rules, at)?;
                }
            }
            A::LocksRun(at) => self.lock_ready(rules, at)?,
            A::LocksTask(at) => self.lock_task(rules, at)?,
            A::SendsHeartbeat(at) => {
                let tx = self.begin(rules, at, Kind::Beat);
                let known = tx.apply(&mut self.db);
                self.servers[at].receive_pool_result(&tx, known);
            }
            A::BatchCommits(at) => {
                let tx = self.servers[at].append.take().expect("a transaction is open");
                tx.apply(&mut self.db);
                self.deliver_answers(at, tx.ops);
            }
            A::PoolCommits(at) => {
                let tx = self.servers[at].pool.take().expect("a transaction is open");
                let known = tx.apply(&mut self.db);
                self.servers[at].receive_pool_result(&tx, known);
            }
            A::CutOffCommits(number) => drop(self.cut_off.remove(number).apply(&mut self.db)),
            A::CutOffIsUndone(number) => drop(self.cut_off.remove(number)),
            other => unreachable!("{other:?} is handled elsewhere"),
        }
        Ok(())
    }

    fn act_as_worker(&mut self, scenario: Scenario, action: A) {
        match action {
            A::WorkerReads(at) => {
                let next = self.db.run.as_ref().map_or(0, |run| run.head.next_index.0);
                self.servers[at].hold.as_mut().expect("it holds the run").seen = next;
            }
            A::WorkerCommits(at) => self.send_commit(scenario, at),
            A::WorkerRests(at) => self.servers[at].let_go(),
            A::WorkerReports(at) => {
                let task = self.servers[at].task.as_mut().expect("it has the task");
                task.is_sent = true;
                let (claim, report_kind) = (task.claim, *task.report_kind.get_or_insert(ReportKind::Completed));
                let by = self.servers[at].worker;
                self.servers[at].queue.push(Op::Report { claim, report_kind, by });
            }
            A::WorkerComparesLeases(at) => self.compare(at),
            other => unreachable!("{other:?} is no action of a worker"),
        }
    }

    fn act_on_task(&mut self, rules: Rules, scenario: Scenario, action: A) -> Result<(), Violation> {
        let (A::OfferIsSent(at) | A::WorkerStartsTask(at) | A::WorkerStops(at) | A::SessionEnds(at) | A::WorkerIsMissed(at)) =
            action
        else {
            unreachable!("{action:?} is not about a task")
        };
        let mut task = self.servers[at].task.expect("it has the task");
        match action {
            A::OfferIsSent(_) => task.stage = Stage::Sent,
            A::WorkerStartsTask(_) => {
                task.stage = Stage::Started;
                self.execute(scenario, task.attempt)?;
            }
            // The worker knows what it has started. An offer that has not arrived is identified by its number (V7).
            A::WorkerStops(_) if task.stage == Stage::Started => task.report_kind = Some(ReportKind::Interrupted),
            A::WorkerStops(_) => (task.report_kind, task.stage) = (Some(ReportKind::NotStarted), Stage::Dropped),
            _ if task.stage == Stage::Unsent => (task.report_kind, task.stage) = (Some(ReportKind::NotStarted), Stage::Dropped),
            // The server knows only that the worker may have started it, or may do so later.
            A::SessionEnds(_) if !rules.has(Guard::StartAssumed) => task.report_kind = Some(ReportKind::NotStarted),
            _ => task.report_kind = Some(ReportKind::WorkerLost),
        }
        self.servers[at].task = Some(task);
        Ok(())
    }

    /// Connects the worker to the other server with its task, which that server owns once the report is written.
    fn move_worker(&mut self, at: usize) {
        let task = self.servers[at].task.as_mut().expect("it has the task");
        let moved = TaskHold { report_kind: Some(ReportKind::Adopted), is_sent: true, ..*task };
        task.stage = Stage::Left;
        let other = &mut self.servers[1 - at];
        other.queue.push(Op::Report { claim: moved.claim, report_kind: ReportKind::Adopted, by: other.worker });
        other.task = Some(moved);
    }

    fn fail(&mut self, action: A) {
        let until = self.now.after(LEASE);
        match action {
            A::BatchLosesConnectionBeforeCommit(at) => {
                let tx = self.servers[at].append.take().expect("a transaction is open");
                let again = tx.ops.into_iter().map(|(op, _)| op);
                self.servers[at].queue.splice(0..0, again);
            }
            A::BatchIsGivenUp(at) | A::BatchLosesConnectionAtCommit(at) => {
                let tx = self.servers[at].append.take().expect("a transaction is open");
                let ops: Vec<Op> = tx.ops.iter().map(|(op, _)| op.clone()).collect();
                self.lose_answers(at, ops, until);
                if action == A::BatchLosesConnectionAtCommit(at) {
                    self.cut_off.push(tx);
                }
            }
            A::PoolLosesConnectionBeforeCommit(at) => self.servers[at].pool = None,
            A::PoolLosesConnectionAtCommit(at) => {
                let tx = self.servers[at].pool.take().expect("a transaction is open");
                if tx.kind == Kind::Claim {
                    self.servers[at].doubt = Some(until);
                }
                self.cut_off.push(tx);
            }
            A::Crashes(at) => self.crash(at, until),
            other => unreachable!("{other:?} is no fault"),
        }
    }

    /// Reads what is due; it is checked again under the locks, so both may be one step.
    fn look_for_due(&mut self, rules: Rules, at: usize) -> Result<(), Violation> {
        let mut tx = self.begin(rules, at, Kind::DueLook);
        tx.timer_due = self.is_timer_due(rules, at);
        self.servers[at].append = Some(tx);
        if rules.has(Guard::TimerUnderLock) { self.lock_due(rules, at) } else { Ok(()) }
    }

    fn begin(&self, rules: Rules, at: usize, kind: Kind) -> Tx {
        Tx::new(kind, self.servers[at].worker, self.admit(rules, at), self.now)
    }

    /// Advances time. Live workers without a run send their heartbeats without a step of their own.
    fn pass_time(&mut self, rules: Rules) {
        self.now = self.now.after(TICK);
        for server in &self.servers {
            let worker = server.worker;
            let beats = server.up && !self.has_run(worker) && !self.is_session_locked(rules, worker);
            if let Some(until) = self.db.sessions.get_mut(&worker).filter(|_| beats) {
                *until = self.now.after(LEASE);
            }
        }
    }

    fn decide_batch(&mut self, rules: Rules, at: usize) -> Result<(), Violation> {
        let mut tx = self.begin(rules, at, Kind::Batch);
        tx.lock_run(&self.db);
        let server = &mut self.servers[at];
        tx.holds_task = server.reports() && self.db.task.is_some();
        for op in std::mem::take(&mut server.queue) {
            tx.run_op(rules, &self.db, op)?;
        }
        if !rules.has(Guard::AnswerBehindCommit) {
            let client = tx.ops.iter().filter(|(op, _)| matches!(op, Op::Start { .. } | Op::Signal | Op::Cancel)).cloned();
            self.deliver_answers(at, client.collect());
        }
        self.servers[at].append = Some(tx);
        Ok(())
    }

    /// Locks what is due and not locked by another transaction, and checks it again.
    fn lock_due(&mut self, rules: Rules, at: usize) -> Result<(), Violation> {
        let mut tx = self.servers[at].append.take().expect("a transaction is open");
        tx.kind = Kind::DueLocked;
        let task_due = self.db.task.as_ref().and_then(onward_core::task::Task::due_at).is_some_and(|due| due <= tx.now);
        if (tx.timer_due || task_due) && self.db.run.is_some() && !self.is_run_locked() {
            tx.lock_run(&self.db);
            if tx.timer_due {
                tx.fire_timer(rules, &self.db, self.judge_of_timers(rules, at))?;
            }
            if task_due && !self.is_task_locked() {
                tx.holds_task = true;
                tx.expire_task(rules, &self.db)?;
            }
        }
        let due = self.db.sessions.iter().filter(|(_, until)| **until <= tx.now).map(|(worker, _)| *worker);
        let taken: Vec<Id> = self.open().flat_map(|other| other.sessions.clone()).collect();
        tx.sessions = due.filter(|worker| !taken.contains(worker)).collect();
        let ends = !tx.sessions.is_empty();
        self.servers[at].append = Some(tx);
        if ends { Ok(()) } else { self.free_runs(rules, at) }
    }

    fn free_runs(&mut self, rules: Rules, at: usize) -> Result<(), Violation> {
        let mut tx = self.servers[at].append.take().expect("a transaction is open");
        tx.kind = Kind::Due;
        tx.end_sessions(rules, &self.db, self.is_run_locked())?;
        self.servers[at].append = Some(tx);
        Ok(())
    }

    /// Locks the run that was found, unless it is locked, and claims it if it is still free.
    fn lock_ready(&mut self, rules: Rules, at: usize) -> Result<(), Violation> {
        let mut tx = self.servers[at].pool.take().expect("a transaction is open");
        if self.is_run_locked() || self.db.run.is_none() {
            return Ok(());
        }
        tx.lock_run(&self.db);
        let answer = tx.claim(rules, tx.worker)?;
        if let Answer::Leased { .. } = answer {
            tx.kind = Kind::Claim;
            tx.leased = Some(answer);
            self.servers[at].pool = Some(tx);
        }
        Ok(())
    }

    fn lock_task(&mut self, rules: Rules, at: usize) -> Result<(), Violation> {
        let mut tx = self.servers[at].pool.take().expect("a transaction is open");
        if self.is_task_locked() {
            return Ok(());
        }
        tx.claim_task(rules, &self.db)?;
        if tx.leased.is_some() {
            (tx.kind, tx.holds_task) = (Kind::TaskClaim, true);
            self.servers[at].pool = Some(tx);
        }
        Ok(())
    }

    fn send_commit(&mut self, scenario: Scenario, at: usize) {
        let mut hold = self.servers[at].hold.clone().expect("it holds the run");
        let sent = match hold.flight.take() {
            Some(sent) => sent,
            None => {
                let fact = self.next_fact(scenario, hold.seen).expect("there is something to record");
                let sent = self.commit_of(scenario, &hold, fact);
                self.commit_ids += 1;
                sent
            }
        };
        hold.flight = Some(sent.clone());
        hold.is_sent = true;
        self.servers[at].hold = Some(hold);
        self.servers[at].queue.push(Op::Commit(sent));
    }

    /// Releases a run that the store leased to the worker without its knowledge.
    fn compare(&mut self, at: usize) {
        let server = &mut self.servers[at];
        let own = self.db.run.as_ref().filter(|run| run.worker == Some(server.worker));
        match own.filter(|run| server.hold.as_ref().is_none_or(|hold| hold.epoch != run.head.epoch)) {
            Some(run) => server.queue.push(Op::Release { epoch: run.head.epoch, claim: run.claims }),
            None if server.doubt.is_some_and(|until| until <= self.now) => server.doubt = None,
            None => {}
        }
    }

    fn crash(&mut self, at: usize, until: Timestamp) {
        let server = &mut self.servers[at];
        let waiting = std::mem::take(&mut server.queue);
        let open = [server.append.take(), server.pool.take()].into_iter().flatten();
        // A transaction without locks has nothing to commit.
        let open: Vec<Tx> = open.filter(|tx| tx.holds_run || tx.holds_task).collect();
        let ops = open.iter().flat_map(|tx| tx.ops.iter().map(|(op, _)| op.clone())).chain(waiting).collect();
        self.lose_answers(at, ops, until);
        let undecided = |tx: &Tx| matches!(tx.kind, Kind::DueLocked);
        self.cut_off.extend(open.into_iter().filter(|tx| !undecided(tx)));
        let server = &mut self.servers[at];
        (server.up, server.hold, server.task, server.doubt, server.met) = (false, None, None, None, false);
    }

    fn deliver_answers(&mut self, at: usize, answers: Vec<(Op, Answer)>) {
        for (op, answer) in answers {
            let state = if matches!(answer, Answer::Refused(_)) { RequestState::Over } else { RequestState::Acknowledged };
            match &op {
                Op::Start { .. } => self.client.start = state,
                Op::Signal => self.client.signal = state,
                Op::Cancel => self.client.cancel = state,
                _ => {}
            }
            self.servers[at].receive_answer(&op, answer);
        }
    }

    /// Leaves the outcome of operations unknown to their callers.
    fn lose_answers(&mut self, at: usize, ops: Vec<Op>, until: Timestamp) {
        for op in ops {
            let server = &mut self.servers[at];
            match op {
                Op::Start { claim } => {
                    self.client.start = RequestState::Unknown;
                    server.doubt = claim.map(|_| until).or(server.doubt);
                }
                Op::Signal => self.client.signal = RequestState::Unknown,
                Op::Cancel => self.client.cancel = RequestState::Over,
                Op::Release { .. } => server.doubt = Some(until),
                Op::Commit(_) => server.hold.iter_mut().for_each(|hold| hold.is_sent = false),
                Op::Report { .. } => server.task.iter_mut().for_each(|task| task.is_sent = false),
            }
        }
    }
}

impl Server {
    /// Drops the run and releases its lease.
    fn let_go(&mut self) {
        if let Some(hold) = self.hold.take() {
            self.queue.push(Op::Release { epoch: hold.epoch, claim: hold.claim });
        }
    }

    fn receive_answer(&mut self, op: &Op, answer: Answer) {
        match (op, answer) {
            (Op::Start { .. }, Answer::Leased { epoch, claim }) => self.take_run(epoch, claim),
            (Op::Commit(sent), answer) => {
                let own = self.hold.as_mut().filter(|hold| hold.claim == sent.claim);
                let Some(hold) = own else { return };
                // The worker has to read the log again, at least its own commit.
                (hold.flight, hold.is_sent, hold.seen) = (None, false, 0);
                let goes_on = matches!(answer, Answer::Committed { is_closed: false } | Answer::Refused("inputs_unread"));
                if !goes_on {
                    self.hold = None;
                }
            }
            // The worker has moved its task to this server and continues with it.
            (Op::Report { report_kind: ReportKind::Adopted, .. }, Answer::Done) => {
                self.task.iter_mut().for_each(|task| (task.report_kind, task.is_sent) = (None, false));
            }
            (Op::Report { claim, .. }, _) => self.task = self.task.filter(|task| task.claim != *claim),
            _ => {}
        }
    }

    fn receive_pool_result(&mut self, tx: &Tx, known: bool) {
        match (tx.kind, tx.leased) {
            (Kind::Claim, Some(Answer::Leased { epoch, claim })) => self.take_run(epoch, claim),
            (Kind::TaskClaim, Some(Answer::Leased { claim, .. })) => {
                let stage = if tx.is_remote() { Stage::Unsent } else { Stage::Started };
                self.task = Some(TaskHold { claim, attempt: tx.attempt, stage, report_kind: None, is_sent: false });
            }
            // The store had ended the session: the worker's leases are lost.
            (Kind::Beat, _) if std::mem::replace(&mut self.met, true) && !known => self.let_go(),
            _ => {}
        }
    }

    fn take_run(&mut self, epoch: onward_core::Epoch, claim: u64) {
        self.hold = Some(Hold { epoch, claim, seen: 0, flight: None, is_sent: false });
    }
}

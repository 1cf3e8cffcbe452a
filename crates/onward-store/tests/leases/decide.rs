//! One transaction: what it has read, locked and is about to change, and its decisions. The steps and their order are those of
//! the unit of work of the PostgreSQL store, with the same core.
//!
//! Every decision is made under the transaction's locks, so a wrong decision is a violation at once: only the loss of the
//! connection can come between it and its COMMIT.

use std::rc::Rc;

use onward_core::event::{CancelRequested, RunStarted, SignalReceived};
use onward_core::run::{Admitted, CommitRefusal, Effect, Input};
use onward_core::task::{EffectClass, Task, TaskReport, TaskTransition};
use onward_core::{
    CallId, CommitId, Epoch, Event, Name, Namespace, Payload, RunHead, RunId, RunKey, Status, Timestamp, WorkerId,
};
use onward_store::admission::{Admission, TakenSlot, admit};
use onward_store::unit_of_work::Table;
use onward_store::{SESSION_DEFAULT, StoreError};

use crate::guards::{Guard, Rules};
use crate::rows::{Answer, By, Database, Entry, Fact, Id, LEASE, Op, ReportKind, Run, Sent};

/// Description of a violated property.
pub type Violation = String;
pub type Decided<T> = Result<T, Violation>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    Batch,
    /// Has read what is due, and locked nothing yet.
    DueLook,
    /// Has locked what is due, and not yet read the runs of expired sessions.
    DueLocked,
    Due,
    ClaimLook,
    Claim,
    TaskLook,
    TaskClaim,
    Beat,
}

#[derive(Debug, Clone)]
pub struct Tx {
    pub kind: Kind,
    /// The time by which it decides, and the time of the database clock.
    pub now: Timestamp,
    pub clock: Timestamp,
    pub worker: Id,
    pub holds_run: bool,
    pub run: Option<Rc<Run>>,
    pub timer: Option<Option<Timestamp>>,
    pub holds_task: bool,
    pub task: Option<Option<Task>>,
    pub holder: Option<Id>,
    /// Sessions whose rows it has locked, and those of them that it ends.
    pub sessions: Vec<Id>,
    pub ends: Vec<Id>,
    pub greets: Option<Id>,
    pub timer_due: bool,
    pub ops: Vec<(Op, Answer)>,
    pub leased: Option<Answer>,
    /// Attempt number that a claim of the task hands out.
    pub attempt: u32,
}

pub fn key() -> RunKey {
    RunKey::new(Namespace::default(), RunId::new("r").expect("a name"))
}

pub fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

/// Returns the store's id of a worker.
pub fn worker_id(worker: Id) -> WorkerId {
    WorkerId::new(format!("w{worker}")).expect("a name")
}

pub fn task_call_id() -> CallId {
    CallId::root(0)
}

pub fn timer_call_id() -> CallId {
    CallId::root(1)
}

impl Tx {
    pub fn new(kind: Kind, worker: Id, now: Timestamp, clock: Timestamp) -> Tx {
        Tx {
            kind,
            now,
            clock,
            worker,
            holds_run: false,
            run: None,
            timer: None,
            holds_task: false,
            task: None,
            holder: None,
            sessions: Vec::new(),
            ends: Vec::new(),
            greets: None,
            timer_due: false,
            ops: Vec::new(),
            leased: None,
            attempt: 0,
        }
    }

    /// Returns whether the claimed task goes to a remote worker: only tasks of those stories have a class.
    pub fn is_remote(&self) -> bool {
        self.task.as_ref().is_some_and(|task| task.as_ref().is_some_and(|task| task.options.class.is_some()))
    }

    pub fn lock_run(&mut self, db: &Database) {
        self.holds_run = true;
        self.run = db.run.clone();
    }

    pub fn run_op(&mut self, rules: Rules, db: &Database, op: Op) -> Decided<()> {
        let answer = match &op {
            Op::Start { claim } => self.start(rules, *claim)?,
            Op::Signal => self.input(rules, signal())?,
            Op::Cancel => self.input(rules, Input::new(CancelRequested::new(String::new())))?,
            Op::Commit(sent) => self.commit(rules, sent)?,
            Op::Release { epoch, claim } => self.release(rules, *epoch, *claim)?,
            Op::Report { claim, report_kind, by } => self.report(rules, db, *claim, *report_kind, *by)?,
        };
        self.ops.push((op, answer));
        Ok(())
    }

    fn start(&mut self, rules: Rules, claim: Option<Id>) -> Decided<Answer> {
        if self.run.is_some() {
            return Ok(Answer::Done);
        }
        let started = RunStarted::new(name("order"), Payload::null(), 7);
        let (mut head, first) = RunHead::start(key(), started, self.now);
        head.epoch = Epoch(1 << 24);
        let entry = Entry { index: first.index.0, fact: Fact::Started, by: None };
        let mut run = Run { head, worker: None, ready: false, slot: None, log: vec![entry], claims: 0 };
        run.settle();
        self.run = Some(Rc::new(run));
        claim.map_or(Ok(Answer::Done), |worker| self.claim(rules, worker))
    }

    /// Leases the run to a worker.
    pub fn claim(&mut self, rules: Rules, worker: Id) -> Decided<Answer> {
        let run = Rc::make_mut(self.run.as_mut().expect("a run that was found exists"));
        let is_free = run.head.status == Status::Pending && run.worker.is_none();
        if !is_free && rules.has(Guard::LeaseCheck) {
            return Ok(Answer::Refused("run_held"));
        }
        if let Some(holder) = run.worker {
            return Err(format!("two live leases: worker {worker} gets the run that worker {holder} has"));
        }
        let before = run.head.epoch;
        if rules.has(Guard::EpochGrowth) {
            run.head.epoch = Epoch(before.0 + 1);
        }
        run.claims += 1;
        run.worker = Some(worker);
        run.settle();
        if rules.has(Guard::SessionWithLease) {
            self.greets = Some(worker);
        }
        if run.head.epoch <= before {
            return Err("an epoch was given twice".to_owned());
        }
        Ok(Answer::Leased { epoch: run.head.epoch, claim: run.claims })
    }

    fn release(&mut self, rules: Rules, epoch: Epoch, claim: u64) -> Decided<Answer> {
        let Some(run) = self.run.as_mut().map(Rc::make_mut) else { return Ok(Answer::Done) };
        let is_fenced = run.head.epoch != epoch && rules.has(Guard::ReleaseEpoch);
        if !is_fenced {
            if run.worker.is_some() && claim != run.claims {
                return Err(format!("the holder of claim {claim} released the lease of claim {}", run.claims));
            }
            run.worker = None;
            run.settle();
        }
        Ok(Answer::Done)
    }

    pub fn input(&mut self, rules: Rules, input: Input) -> Decided<Answer> {
        let Some(run) = &self.run else { return Ok(Answer::Refused("run_not_found")) };
        let slot = run.slot.clone().filter(|_| rules.has(Guard::SignalSlot));
        let (mut slots, waits) = (Table::empty(), Table::empty());
        input.once.iter().for_each(|once| slots.learn(once.key.clone(), slot.clone()));
        match admit(&run.head, input, None, self.now, &slots, &waits) {
            Err(error) => Ok(Answer::Refused(error.code())),
            Ok(Admission::Repeated(_)) => Ok(Answer::Done),
            Ok(Admission::Taken { head, admitted, slots, .. }) => {
                let run = Rc::make_mut(self.run.as_mut().expect("it was just read"));
                for once in slots {
                    let slot = TakenSlot { token: once.token, index: admitted.record.index, at: admitted.record.at };
                    run.slot = Some(slot);
                }
                let fact = Fact::of(&admitted.record.events[0]);
                self.take(*head, &admitted, fact, None)?;
                Ok(Answer::Done)
            }
        }
    }

    fn commit(&mut self, rules: Rules, sent: &Sent) -> Decided<Answer> {
        let Some(run) = &self.run else { return Ok(Answer::Refused("run_not_found")) };
        let mut commit = sent.commit.clone();
        if !rules.has(Guard::Fence) {
            commit.epoch = run.head.epoch;
        }
        if !rules.has(Guard::CommitId) || !rules.has(Guard::CommitNumber) {
            commit.commit_id = CommitId(u64::MAX - run.log.len() as u64);
        }
        if !rules.has(Guard::CommitNumber) {
            commit.n = run.head.next_commit;
            commit.horizon = run.head.last_commit.map_or(commit.horizon, |last| last.index.max(commit.horizon));
        }
        let (waits, horizon) = (commit.waits, commit.horizon.0);
        let mut head = run.head.clone();
        let admitted = match head.admit_commit(commit, self.now) {
            Ok(admitted) => admitted,
            Err(CommitRefusal::Repeated(first)) => return Ok(Answer::Committed { is_closed: first.status.is_closed() }),
            Err(CommitRefusal::Refused(refusal)) => {
                let code = StoreError::from(refusal).code();
                let is_recorded = run.last_commit().is_some_and(|last| last.commit == sent.commit.commit_id);
                return match is_recorded {
                    true => Err(format!("a commit that is the last one in the log was refused as `{code}`")),
                    false => Ok(Answer::Refused(code)),
                };
            }
        };
        if !rules.has(Guard::WakeOverUnread) && waits && !head.status.is_closed() {
            head.status = Status::Waiting;
        }
        let is_closed = head.status.is_closed();
        if sent.claim != run.claims {
            return Err(format!("claim {} wrote a commit after claim {} was given", sent.claim, run.claims));
        }
        let by = By { commit: sent.commit.commit_id, claim: sent.claim, horizon };
        self.take(head, &admitted, sent.fact, Some(by))?;
        Ok(Answer::Committed { is_closed })
    }

    /// Applies an admitted append with its effects.
    fn take(&mut self, head: RunHead, admitted: &Admitted, fact: Fact, by: Option<By>) -> Decided<()> {
        let run = Rc::make_mut(self.run.as_mut().expect("the caller has seen the run"));
        if run.head.next_index != admitted.record.index || run.count(Fact::Ended) > 0 {
            return Err("the log has a gap, a repeat or something behind its end".to_owned());
        }
        let is_once = !matches!(fact, Fact::Noted);
        if is_once && run.count(fact) > 0 {
            return Err(format!("{fact:?} was recorded twice"));
        }
        if by.is_some_and(|by| run.log.iter().any(|entry| entry.by.is_some_and(|own| own.commit == by.commit))) {
            return Err("one commit was taken twice".to_owned());
        }
        run.log.push(Entry { index: admitted.record.index.0, fact, by });
        run.head = head;
        run.settle();
        for effect in &admitted.effects {
            match effect {
                Effect::StartTimer { due_at, .. } => self.timer = Some(Some(*due_at)),
                Effect::AddTask(task) => self.task = Some(Some((**task).clone())),
                Effect::EndRun { .. } => (self.timer, self.task) = (Some(None), Some(None)),
                Effect::CloseWait { .. } => {}
                other => unreachable!("nothing in the scenario has the effect {other:?}"),
            }
        }
        Ok(())
    }

    /// Returns the task as this transaction sees it.
    pub fn known_task(&self, db: &Database) -> Option<Task> {
        self.task.clone().unwrap_or_else(|| db.task.clone())
    }

    fn report(&mut self, rules: Rules, db: &Database, claim: u64, report_kind: ReportKind, by: Id) -> Decided<Answer> {
        let output = Payload::null();
        let Some(mut task) = self.known_task(db) else {
            let is_completed = report_kind == ReportKind::Completed;
            if is_completed && !rules.has(Guard::TaskRow) && self.run.is_some() {
                let event = onward_core::event::TaskCompleted { call_id: task_call_id(), output, attempts: 1, ran: None };
                return self.outcome(rules, event.into());
            }
            return Ok(Answer::Refused("task_attempt_over"));
        };
        let shown = if rules.has(Guard::TaskClaim) { claim } else { task.claim };
        let (attempt, is_once) = (task.attempt, task.options.class == Some(EffectClass::AtMostOnce));
        let report = match report_kind {
            ReportKind::Completed => TaskReport::Completed(output),
            ReportKind::Interrupted if is_once && !rules.has(Guard::EndsOnce) => TaskReport::NotStarted,
            ReportKind::WorkerLost if is_once && !rules.has(Guard::EndsOnce) => TaskReport::NotStarted.by_session(worker_id(by)),
            ReportKind::NotStarted => TaskReport::NotStarted,
            ReportKind::Interrupted => TaskReport::Interrupted,
            ReportKind::WorkerLost if !rules.has(Guard::SessionFence) => TaskReport::WorkerLost,
            ReportKind::WorkerLost => TaskReport::WorkerLost.by_session(worker_id(by)),
            ReportKind::Adopted => TaskReport::Adopted { session: worker_id(by) },
        };
        let reported = task.report(shown, report, LEASE, self.now);
        if !rules.has(Guard::AttemptNumbers) {
            task.attempt = attempt;
        }
        match reported {
            Err(_) => Ok(Answer::Refused("task_attempt_over")),
            Ok(_) if task.claim != claim => Err(format!("claim {claim} of a task reported when claim {} had it", task.claim)),
            Ok(_) if report_kind == ReportKind::WorkerLost && self.holder.or(db.holder) != Some(by) => {
                Err(format!("server of worker {by} took a task from a worker that it did not have any more"))
            }
            Ok(transition) => {
                if report_kind == ReportKind::Adopted {
                    self.holder = Some(by);
                }
                self.seal(rules, task, transition)
            }
        }
    }

    pub fn seal(&mut self, rules: Rules, task: Task, transition: TaskTransition) -> Decided<Answer> {
        match transition {
            TaskTransition::Open => {
                self.task = Some(Some(task));
                Ok(Answer::Done)
            }
            TaskTransition::Ended(event) => {
                self.task = Some(None);
                self.outcome(rules, *event)
            }
        }
    }

    /// Appends an outcome; a closed run refuses it.
    pub fn outcome(&mut self, rules: Rules, event: Event) -> Decided<Answer> {
        self.input(rules, Input { generation: Some(0), ..Input::new(event) })?;
        Ok(Answer::Done)
    }

    /// Writes all changes. Returns whether a worker that sent a heartbeat had a session.
    pub fn apply(&self, db: &mut Database) -> bool {
        if self.holds_run && self.run.is_some() {
            db.run = self.run.clone();
        }
        if let Some(timer) = self.timer {
            db.timer = timer;
        }
        if let Some(task) = &self.task {
            db.task = task.clone();
            db.holder = self.holder.or(db.holder);
        }
        if let Some(worker) = self.greets {
            db.sessions.entry(worker).or_insert(self.now.after(SESSION_DEFAULT));
        }
        db.sessions.retain(|worker, _| !self.ends.contains(worker));
        self.kind == Kind::Beat && db.sessions.insert(self.worker, self.now.after(LEASE)).is_some()
    }
}

fn signal() -> Input {
    let signal_id = Some("once".to_owned());
    Input::signal(SignalReceived { name: name("paid"), payload: Payload::null(), signal_id, sender: None })
}

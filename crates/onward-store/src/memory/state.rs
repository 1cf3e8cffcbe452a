//! The maps of the memory store, and the appends that change them.
//!
//! Every change of a run ends with [`State::settle`], which derives from the run whether it is open, leased and claimable, so
//! that no operation tracks this itself.

use std::collections::{BTreeMap, BTreeSet};

use onward_core::event::TaskAttemptEnded;
use onward_core::ledger::{LedgerKey, LedgerSum};
use onward_core::run::{
    Admitted, Commit, CommitRefusal, Committed, Effect, Input, NewRun, OutboxMessage, Refusal, Wait, wait_key,
};
use onward_core::{CallId, Hash, KindSchemas, Record, RunHead, RunKey, Status, Timestamp, WorkerId};

use super::Answer;
use super::due::Timer;
use super::task::QueuedTask;
use crate::admission::{self, Admission, TakenSlot};
use crate::durable::OwnedChange;
use crate::{Appended, DeletedRun, OutboxId, Started, StoreError};

#[derive(Default)]
pub struct State {
    pub runs: BTreeMap<RunKey, Run>,
    /// The runs that are not closed. Only these have timers, tasks and waits.
    pub open: BTreeSet<RunKey>,
    /// End of each worker's session.
    pub sessions: BTreeMap<WorkerId, Timestamp>,
    /// With the run that sent each message.
    pub outbox_messages: BTreeMap<OutboxId, (RunKey, OutboxMessage)>,
    /// Oldest first.
    pub deleted: Vec<DeletedRun>,
    /// In list order.
    pub kinds: Vec<KindSchemas>,
    pub ledger: BTreeMap<LedgerKey, LedgerSum>,
    /// Changes not yet delivered to listeners.
    pub news: Vec<OwnedChange>,
    /// The earliest due time announced to listeners.
    pub announced_due: Option<Timestamp>,
    /// Sequence number for everything that must keep its order of arrival.
    counter: u64,
}

#[derive(Default)]
pub struct Run {
    /// By generation number; the last one is current.
    pub generations: Vec<Generation>,
    /// Idempotency records, kept over all generations (L11).
    pub slots: BTreeMap<String, TakenSlot>,
    pub lease: Option<WorkerId>,
    /// Counter value since which the run is claimable.
    pub claimable_since: Option<u64>,
    pub timers: BTreeMap<CallId, Timer>,
    pub tasks: BTreeMap<CallId, QueuedTask>,
    pub waits: BTreeMap<CallId, Wait>,
}

pub struct Generation {
    pub head: RunHead,
    pub records: Vec<Record>,
}

impl Run {
    fn new(head: RunHead, first: Record) -> Run {
        Run { generations: vec![Generation { head, records: vec![first] }], ..Run::default() }
    }

    pub fn current(&self) -> &Generation {
        self.generations.last().expect("a run has at least one generation")
    }

    pub fn current_mut(&mut self) -> &mut Generation {
        self.generations.last_mut().expect("a run has at least one generation")
    }

    pub fn head(&self) -> &RunHead {
        &self.current().head
    }

    /// Returns the head as callers see it: a pending run that is leased has the status `running`.
    pub fn shown_head(&self) -> RunHead {
        let mut head = self.head().clone();
        if head.status == Status::Pending && self.lease.is_some() {
            head.status = Status::Running;
        }
        head
    }

    /// Compares with the start of the first generation: later generations have other inputs.
    fn is_started_by(&self, run: &NewRun) -> Result<bool, Refusal> {
        let first = &self.generations[0];
        let started = first.records[0].started().expect("H2");
        first.head.is_started_by(&run.started, || Hash::of(&started.input) == Hash::of(&run.started.input))
    }
}

fn admit(run: &Run, input: Input, cost: Option<TaskAttemptEnded>, now: Timestamp) -> Answer<Admission> {
    let slot = |key: &str| Ok(run.slots.get(key).cloned());
    admission::admit(run.head(), input, cost, now, slot, |call_id| Ok(run.waits.get(call_id).map(|wait| wait.generation)))
}

impl State {
    pub fn start_run(&mut self, run: NewRun, claim: Option<WorkerId>, now: Timestamp) -> Answer<Started> {
        if self.runs.contains_key(&run.key) {
            return self.find_run(run, now);
        }
        let key = run.key.clone();
        let (head, first) = RunHead::start(key.clone(), run.started, now);
        let fresh = Run::new(head, first.clone());
        let admission = run.signal.map(|signal| admit(&fresh, *signal, None, now)).transpose()?;

        let signal = admission.as_ref().map(Admission::answer);
        let effects = fresh.head().start_effects(&first);
        self.news.push(OwnedChange::Appended { head: fresh.head().clone(), record: first.clone() });
        self.runs.insert(key.clone(), fresh);
        effects.into_iter().for_each(|effect| self.carry_out(&key, effect, &first));
        self.apply_parent_close(&key);
        if let Some(admission) = admission {
            self.take_input(&key, admission);
        }
        let claimed = claim.and_then(|worker| self.claim_run(&key, &worker, now));
        self.settle(&key);
        Ok(Started { created: true, head: self.run(&key).shown_head(), signal, claimed })
    }

    /// Returns an existing run and appends the signal of the start, if any.
    fn find_run(&mut self, run: NewRun, now: Timestamp) -> Answer<Started> {
        if !self.run(&run.key).is_started_by(&run)? {
            return Err(StoreError::RunExists { key: run.key }); // L18
        }
        let signal = run.signal.map(|signal| self.append_input(&run.key, *signal, now)).transpose()?;
        Ok(Started { created: false, head: self.run(&run.key).shown_head(), signal, claimed: None })
    }

    /// Sends a child its `on_parent_close` action if its parent closed before the child was created.
    fn apply_parent_close(&mut self, key: &RunKey) {
        let child = self.run(key).head();
        let Some(link) = &child.parent else { return };
        let Some(parent) = self.runs.get(&link.run) else { return };
        if let Some(delivery) = child.parent_is_closed(parent.head()) {
            let from = link.run.clone();
            self.send(from, delivery);
        }
    }

    pub fn append_input(&mut self, key: &RunKey, input: Input, now: Timestamp) -> Answer<Appended> {
        self.append_with_cost(key, input, None, now)
    }

    fn append_with_cost(
        &mut self,
        key: &RunKey,
        input: Input,
        cost: Option<TaskAttemptEnded>,
        now: Timestamp,
    ) -> Answer<Appended> {
        let run = self.runs.get(key).ok_or_else(|| StoreError::RunNotFound { key: key.clone() })?;
        let admission = admit(run, input, cost, now)?;
        let answer = admission.answer();
        self.take_input(key, admission);
        self.settle(key);
        Ok(answer)
    }

    /// Carries out what [`admit`] decided; the caller settles the run.
    fn take_input(&mut self, key: &RunKey, admission: Admission) {
        let Admission::Taken { head, admitted, slots, .. } = admission else { return };
        for once in slots {
            let slot = TakenSlot { token: once.token, index: admitted.record.index, at: admitted.record.at };
            self.run_mut(key).slots.insert(once.key, slot);
        }
        self.take(key, *head, admitted);
    }

    /// Appends the outcome of a timer or task, with the cost of its last attempt. Returns false if the run is gone or refuses it.
    pub fn append_outcome(&mut self, key: &RunKey, input: Input, cost: Option<TaskAttemptEnded>, now: Timestamp) -> bool {
        match self.append_with_cost(key, input, cost, now) {
            Ok(_) => true,
            Err(StoreError::RunNotFound { .. } | StoreError::Refused(_)) => false,
            Err(error) => unreachable!("an outcome answers no wait, and no other input has its idempotency key: {error}"),
        }
    }

    pub fn commit(&mut self, commit: Commit, now: Timestamp) -> Answer<Committed> {
        let key = commit.key.clone();
        let run = self.runs.get(&key).ok_or_else(|| StoreError::RunNotFound { key: key.clone() })?;
        // A repeat of the commit that continued the run as new is checked against the generation it ended.
        let own = run.generations.get(commit.generation as usize).map(|generation| generation.head.clone());
        if let Some(mut own) = own.filter(|own| own.generation != run.head().generation)
            && let Err(CommitRefusal::Repeated(first)) = own.admit_commit(commit.clone(), now)
        {
            return Ok(first);
        }
        let mut head = run.head().clone();
        let mut admitted = match head.admit_commit(commit, now) {
            Ok(admitted) => admitted,
            Err(CommitRefusal::Repeated(first)) => return Ok(first),
            Err(CommitRefusal::Refused(refusal)) => return Err(refusal.into()),
        };

        let answer = Committed { index: admitted.record.index, at: now, status: head.status };
        let successor = admitted.successor.take();
        self.take(&key, head, admitted);
        if let Some(successor) = successor {
            self.succeed(*successor, now);
        }
        self.settle(&key);
        Ok(answer)
    }

    /// Begins the run's next generation, unleased.
    fn succeed(&mut self, successor: NewRun, now: Timestamp) {
        let (mut head, first) = RunHead::start(successor.key, successor.started, now);
        let run = self.run_mut(&head.key);
        // Epochs continue over generations.
        head.epoch = run.head().epoch;
        run.lease = None;
        self.news.push(OwnedChange::Appended { head: head.clone(), record: first.clone() });
        self.run_mut(&head.key.clone()).generations.push(Generation { head, records: vec![first] });
    }

    /// Writes an admitted append with its effects; the caller settles the run.
    fn take(&mut self, key: &RunKey, head: RunHead, admitted: Admitted) {
        let record = admitted.record;
        let run = self.run_mut(key);
        let current = run.current_mut();
        current.head = head;
        current.records.push(record.clone());
        let head = run.shown_head();
        self.news.push(OwnedChange::Appended { head, record: record.clone() });
        for effect in admitted.effects {
            self.carry_out(key, effect, &record);
        }
    }

    fn carry_out(&mut self, key: &RunKey, effect: Effect, record: &Record) {
        match effect {
            Effect::StartTimer { call_id, due_at } => self.start_timer(key, call_id, due_at),
            Effect::StopTimer { call_id } => {
                self.run_mut(key).timers.remove(&call_id);
            }
            Effect::AddTask(task) => self.add_task(*task),
            Effect::CancelTask { call_id } => {
                self.run_mut(key).tasks.remove(&call_id);
            }
            Effect::OpenWait(wait) => {
                self.run_mut(key).waits.insert(wait.call_id.clone(), *wait);
            }
            Effect::CloseWait { call_id, token } => self.close_wait(key, &call_id, token, record),
            Effect::Send(delivery) => self.send(key.clone(), *delivery),
            Effect::Freeze { at } => self.freeze(key, at),
            Effect::Thaw { shift } => self.thaw(key, shift, record.at),
            Effect::Charge { row, sum } => {
                let known = self.ledger.entry(*row).or_default();
                *known = known.plus(&sum);
            }
            Effect::EndRun { goes_on } => self.end_run(key, goes_on),
        }
    }

    /// Closes a wait, if one is open, and records its answer: a plain timer has no wait, and an earlier answer keeps its record.
    fn close_wait(&mut self, key: &RunKey, call_id: &CallId, token: String, record: &Record) {
        let run = self.run_mut(key);
        if let Some(wait) = run.waits.remove(call_id) {
            let slot = TakenSlot { token, index: record.index, at: record.at };
            run.slots.entry(wait_key(wait.generation, call_id)).or_insert(slot);
        }
    }

    pub fn send(&mut self, from: RunKey, delivery: OutboxMessage) {
        let id = OutboxId(self.next_number());
        self.outbox_messages.insert(id, (from, delivery));
        self.news.push(OwnedChange::OutboxGrew);
    }

    fn end_run(&mut self, key: &RunKey, goes_on: bool) {
        let run = self.run_mut(key);
        run.timers.clear();
        run.tasks.clear();
        run.waits.clear();
        let generation = run.head().generation;
        let news: Vec<OutboxMessage> = self
            .open_heads()
            .filter(|child| child.parent.as_ref().is_some_and(|parent| parent.run == *key))
            .filter_map(|child| child.parent_closed(generation, goes_on))
            .collect();
        news.into_iter().for_each(|delivery| self.send(key.clone(), delivery));
    }

    /// Updates everything derived from a run. The last step of every change.
    pub fn settle(&mut self, key: &RunKey) {
        let run = self.runs.get_mut(key).expect("only a run that exists is settled");
        let status = run.head().status;
        if status.is_closed() {
            self.open.remove(key);
            run.lease = None;
        } else {
            self.open.insert(key.clone());
        }
        let claimable = status == Status::Pending && run.lease.is_none();
        if !claimable {
            run.claimable_since = None;
        } else if run.claimable_since.is_none() {
            self.counter += 1;
            run.claimable_since = Some(self.counter);
            self.news.push(OwnedChange::RunPending { head: run.head().clone() });
        }
    }

    pub fn run(&self, key: &RunKey) -> &Run {
        self.runs.get(key).expect("the caller has seen the run")
    }

    pub fn run_mut(&mut self, key: &RunKey) -> &mut Run {
        self.runs.get_mut(key).expect("the caller has seen the run")
    }

    pub fn open_runs(&self) -> impl Iterator<Item = &Run> {
        self.open.iter().map(|key| self.run(key))
    }

    pub fn open_heads(&self) -> impl Iterator<Item = &RunHead> {
        self.open_runs().map(Run::head)
    }

    pub fn next_number(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }
}

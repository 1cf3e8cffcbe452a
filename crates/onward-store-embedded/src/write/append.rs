//! Starts, inputs and commits: everything that appends a row to a log.

use onward_core::event::{RunStarted, TaskAttemptEnded};
use onward_core::run::{Admitted, Commit, CommitRefusal, Committed, Input, NewRun, Wait};
use onward_core::{CallId, Event, Hash, Index, Record, RunHead, RunKey, Status, Timestamp};
use onward_store::admission::{Admission, TakenSlot, admit};
use onward_store::durable::{Body, OwnedChange, StartRun};
use onward_store::{Appended, Started, StoreError};
use rusqlite::{Connection, OptionalExtension, Statement, params};

use crate::error::{Outcome, Trouble, damaged_row, read_error};
use crate::read::blobs;
use crate::read::heads::{self, CachedRun, Loaded};
use crate::read::past;
use crate::row::{call_id_key, event_crc, unseal};
use crate::shared::Counters;
use crate::write::counted;
use crate::write::effects::Owner;
use crate::write::writer::Writer;

impl Writer<'_> {
    pub(crate) fn commit(&mut self, commit: Commit, body: Body) -> Outcome<Committed> {
        let key = commit.key.clone();
        let now = self.batch.now;
        let cached = self.heads.require(self.db, &self.shared.leases, &key)?;
        let hot = &mut self.heads[cached];
        // A repeat of the commit that continued the run as new is checked against the generation it ended.
        if commit.generation != hot.head.generation
            && let Some(Loaded { head: mut own, .. }) = heads::load(self.db, &key, Some(commit.generation))?
            && let Err(CommitRefusal::Repeated(first)) = own.admit_commit(commit.clone(), now)
        {
            return Ok(first);
        }
        let before = hot.head.status;
        let admitted = match hot.head.admit_commit(commit, now) {
            Ok(admitted) => admitted,
            Err(CommitRefusal::Repeated(first)) => return Ok(first),
            Err(CommitRefusal::Refused(refusal)) => return Err(refusal.into()),
        };
        let answer = Committed { index: admitted.record.index, at: now, status: hot.head.status };
        let Admitted { record, effects, successor } = admitted;
        let (rk, root) = (hot.rk, hot.root);
        insert_event(&mut self.insert_event, self.db, rk, &hot.head, &record, &body)?;
        self.count_event(&body);
        self.after_append(cached, before, record, effects)?;
        if let Some(successor) = successor {
            self.succeed(*successor, rk, root)?;
        }
        Ok(answer)
    }

    /// Begins the run's next generation, unleased.
    fn succeed(&mut self, successor: NewRun, old: i64, root: i64) -> Outcome<()> {
        let epoch = self.heads.cached(&successor.key).map(|hot| hot.head.epoch);
        let input_hash = self.retire(old, root, &successor.key, &successor.started)?;
        let body = Body::of_start(&successor.started);
        let (mut head, first) = RunHead::start(successor.key, successor.started, self.batch.now);
        // Epochs continue over generations: a late release of the old lease must not release the new one (L7).
        head.epoch = epoch.unwrap_or(head.epoch);
        self.create(head, Some(root), input_hash, first, &body)
    }

    /// Retires a generation that a later one replaces; returns the hash of the run's first input.
    pub(super) fn retire(&mut self, rk: i64, root: i64, key: &RunKey, successor: &RunStarted) -> Outcome<Hash> {
        let generation = successor.generation - 1;
        // Only the attributes of the current generation are searched.
        self.db.prepare_cached("DELETE FROM attributes WHERE rk = ?1")?.execute([rk])?;
        // A row of `past` can be rebuilt only if the logs identify their run.
        if rk == root || successor.origin_seed().is_none() {
            let mut retire =
                self.db.prepare_cached("UPDATE runs SET current = 0, head = ?2 WHERE rk = ?1 RETURNING input_hash")?;
            return Ok(Hash(retire.query_row(params![rk, heads::retired(key, generation)], |row| row.get(0))?));
        }
        past::put(self.db, rk, root, generation)?;
        let mut remove = self.db.prepare_cached("DELETE FROM runs WHERE rk = ?1 RETURNING input_hash")?;
        Ok(Hash(remove.query_row([rk], |row| row.get(0))?))
    }

    /// Writes a run's row and its first record.
    fn create(&mut self, head: RunHead, root: Option<i64>, input_hash: Hash, first: Record, body: &Body) -> Outcome<()> {
        let rk = self.next_rk;
        self.next_rk += 1;
        let root = root.unwrap_or(rk);
        self.put_row(rk, root, input_hash, true, &head)?;
        insert_event(&mut self.insert_event, self.db, rk, &head, &first, body)?;
        self.count_event(body);
        let effects = head.start_effects(&first);
        let key = head.key.clone();
        let owner = Owner { rk, root, key: &key, generation: head.generation, index: first.index };
        if self.batch.heard {
            self.batch.news.push(OwnedChange::Appended { head: head.clone(), record: first });
        }
        let cached = self.heads.insert(rk, root, head);
        // An earlier generation may have spawned children.
        self.heads[cached].is_bare = effects.is_empty() && owner.generation == 0;
        effects.into_iter().try_for_each(|effect| self.carry_out(owner, effect))?;
        self.settle_run(cached, false)
    }

    pub(crate) fn start_run(&mut self, start: StartRun) -> Outcome<Started> {
        let StartRun { run, claim, input_hash, body, signal_body } = start;
        let key = run.key.clone();
        if let Some(found) = heads::load(self.db, &key, None)? {
            return self.find_run(run, found, input_hash, signal_body);
        }
        let (head, first) = RunHead::start(key.clone(), run.started, self.batch.now);
        let claim = claim.filter(|_| head.status == Status::Pending);
        // Decided on a copy: a refused signal refuses the whole call before anything is written.
        if let Some(signal) = &run.signal {
            let mut trial = head.clone();
            trial.admit_input((**signal).clone(), self.batch.now)?;
            if let Some(call_id) = signal.needs_wait() {
                return Err(StoreError::WaitNotFound { key, call_id: call_id.to_string() }.into());
            }
        }
        let mut records = claim.is_some().then(|| vec![first.clone()]);
        // The lease is granted before the run is created, so that it is never announced as pending.
        let rk = self.next_rk;
        let claimed = claim.is_some();
        if let Some(worker) = &claim {
            self.grant(&key, rk, worker);
        }
        self.create(head, None, input_hash, first, &body)?;
        if claimed {
            let cached = self.heads.require(self.db, &self.shared.leases, &key)?;
            self.heads[cached].head.epoch = self.last_epoch;
        }
        self.apply_parent_close(&key)?;
        let signal = match run.signal {
            None => None,
            Some(signal) => {
                if let Some(records) = &mut records {
                    let index = Index(records.len() as u64);
                    records.push(Record::input(index, self.batch.now, signal.event.clone()));
                }
                Some(self.append_input(&key, *signal, signal_body)?)
            }
        };
        let head = self.shown(&key)?;
        let claimed = claimed.then(|| onward_store::ClaimedRun { head: head.clone(), records });
        Ok(Started { created: true, head, signal, claimed })
    }

    /// Returns an existing run and appends the signal of the start, if any.
    fn find_run(&mut self, run: NewRun, found: Loaded, input_hash: Hash, signal_body: Body) -> Outcome<Started> {
        if !found.head.is_started_by(&run.started, || found.input_hash == input_hash)? {
            return Err(StoreError::RunExists { key: run.key }.into()); // L18
        }
        let signal = run.signal.map(|signal| self.append_input(&run.key, *signal, signal_body)).transpose()?;
        Ok(Started { created: false, head: self.shown(&run.key)?, signal, claimed: None })
    }

    /// Sends a child its `on_parent_close` action if its parent closed before the child was created.
    fn apply_parent_close(&mut self, key: &RunKey) -> Outcome<()> {
        let cached = self.heads.require(self.db, &self.shared.leases, key)?;
        let child = self.heads[cached].head.clone();
        let Some(link) = &child.parent else { return Ok(()) };
        let Some(parent) = heads::load(self.db, &link.run, None)? else { return Ok(()) };
        match child.parent_is_closed(&parent.head) {
            Some(delivery) => self.send(parent.root, delivery),
            None => Ok(()),
        }
    }

    pub(crate) fn append_input(&mut self, key: &RunKey, input: Input, body: Body) -> Outcome<Appended> {
        let cached = self.heads.require(self.db, &self.shared.leases, key)?;
        if let Event::TaskAttemptEnded(attempt) = &input.event
            && let Some(Record { index, at, .. }) = counted::find(self.db, key, attempt)?
        {
            return Ok(Appended { index, at, repeated: true, woke: false }); // I5
        }
        let admission = self.admit(cached, input, None)?;
        let answer = admission.answer();
        self.take_input(cached, admission, |_| body)?;
        Ok(answer)
    }

    /// Appends an input of the store itself; the outcome of a task comes with the cost of its last attempt.
    pub(super) fn append_own(&mut self, key: &RunKey, input: Input, cost: Option<TaskAttemptEnded>) -> Outcome<()> {
        let cached = self.heads.require(self.db, &self.shared.leases, key)?;
        let admission = self.admit(cached, input, cost)?;
        self.take_input(cached, admission, Body::of_record)
    }

    /// Carries out what [`admit`] decided.
    fn take_input(&mut self, cached: CachedRun, admission: Admission, body: impl FnOnce(&Record) -> Body) -> Outcome<()> {
        let Admission::Taken { head, admitted, slots, .. } = admission else { return Ok(()) };
        let body = body(&admitted.record);
        let hot = &mut self.heads[cached];
        let before = std::mem::replace(&mut hot.head, *head).status;
        let root = hot.root;
        insert_event(&mut self.insert_event, self.db, hot.rk, &hot.head, &admitted.record, &body)?;
        self.count_event(&body);
        let in_log = admitted.record.cost().map(TaskAttemptEnded::once); // I5
        for once in slots.iter().filter(|once| in_log.as_ref() != Some(once)) {
            self.fill_slot(root, &once.key, &once.token, admitted.record.index)?;
        }
        self.after_append(cached, before, admitted.record, admitted.effects)
    }

    fn admit(&self, cached: CachedRun, input: Input, cost: Option<TaskAttemptEnded>) -> Outcome<Admission> {
        let hot = &self.heads[cached];
        let slot = |key: &str| read_slot(self.db, &hot.head.key, hot.root, key);
        let wait = |call_id: &CallId| wait_generation(self.db, hot.rk, &call_id_key(call_id));
        admit(&hot.head, input, cost, self.batch.now, slot, wait)
    }

    /// Returns the head as callers see it.
    pub(crate) fn shown(&mut self, key: &RunKey) -> Outcome<RunHead> {
        let cached = self.heads.require(self.db, &self.shared.leases, key)?;
        let hot = &self.heads[cached];
        let mut head = hot.head.clone();
        self.shared.leases.show(hot.rk, &mut head);
        Ok(head)
    }

    pub(super) fn count_event(&self, body: &Body) {
        Counters::add(&self.shared.counters.events, 1);
        Counters::add(&self.shared.counters.event_bytes, body.bytes.len() as u64);
    }
}

/// Inserts an event row, the only insert of a plain step.
pub(super) fn insert_event(
    insert: &mut Statement<'_>,
    db: &Connection,
    rk: i64,
    head: &RunHead,
    record: &Record,
    body: &Body,
) -> Outcome<()> {
    let last = head.last_commit.map(|last| last.index);
    let crc = event_crc(rk, record.index, record.at, head.next_commit, last, &body.bytes);
    blobs::write(&body.blobs, db)?;
    insert.execute(params![
        rk,
        record.index.0 as i64,
        record.at.0 as i64,
        head.next_commit as i64,
        last.map(|index| index.0 as i64),
        i64::from(crc),
        body.bytes,
        blobs::column(&body.blobs),
    ])?;
    Ok(())
}

/// Returns the idempotency record with this key, if any; fails if it is damaged.
pub(super) fn read_slot(db: &Connection, run: &RunKey, root: i64, key: &str) -> Outcome<Option<TakenSlot>> {
    let sql = "SELECT token, idx, at, crc IS row_crc(root, key, token, idx, at) FROM slots WHERE root = ?1 AND key = ?2";
    let read = |row: &rusqlite::Row<'_>| match row.get(3)? {
        true => {
            let (index, at) = (Index(row.get::<_, i64>(1)? as u64), Timestamp(row.get::<_, i64>(2)? as u64));
            Ok(Some(TakenSlot { token: row.get(0)?, index, at }))
        }
        false => Ok(None),
    };
    let found = db.prepare_cached(sql).and_then(|mut statement| statement.query_row(params![root, key], read).optional());
    match found.map_err(read_error)? {
        None => Ok(None),
        Some(Some(slot)) => Ok(Some(slot)),
        Some(None) => Err(damaged_row(run, "an idempotency record").into()),
    }
}

/// Returns the generation that opened the wait at `call_id`.
pub(super) fn wait_generation(db: &Connection, rk: i64, call_id: &[u8]) -> Outcome<Option<u32>> {
    let data = db
        .prepare_cached("SELECT data FROM waits WHERE rk = ?1 AND call_id = ?2")
        .and_then(|mut statement| statement.query_row(params![rk, call_id], |row| row.get::<_, Vec<u8>>(0)).optional())
        .map_err(read_error)?;
    data.map(|data| unseal::<Wait>("a wait", &data).map(|wait| wait.generation).map_err(Trouble::Damaged)).transpose()
}

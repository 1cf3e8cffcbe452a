//! Starts, inputs and commits: everything that adds a record to a log.

use onward_core::event::TaskAttemptEnded;
use onward_core::run::{Admitted, Commit, CommitRefusal, Committed, Input, NewRun};
use onward_core::{RunHead, RunKey};
use onward_store::admission::{self, Admission, TakenSlot};
use onward_store::durable::StartRun;
use onward_store::durable::{Body, OwnedChange};
use onward_store::{Appended, Started, StoreError};

use crate::connection::sql::Sql;
use crate::error::{Outcome, Trouble};
use crate::row::unseal_head;
use crate::write::unit::{LockedRun, UnitOfWork};

impl UnitOfWork<'_> {
    pub async fn commit(&mut self, commit: Commit, body: &Body) -> Outcome<Committed> {
        let key = commit.key.clone();
        let now = self.now;
        let current = self.require(&key)?.head.generation;
        // A repeated commit that ended its generation is found in that generation.
        if commit.generation != current
            && let Some(mut own) = self.past_head(&key, commit.generation).await?
            && let Err(CommitRefusal::Repeated(first)) = own.admit_commit(commit.clone(), now)
        {
            return Ok(first);
        }
        let mut head = self.locked(&key).head.clone();
        let mut admitted = match head.admit_commit(commit, now) {
            Ok(admitted) => admitted,
            Err(CommitRefusal::Repeated(first)) => return Ok(first),
            Err(CommitRefusal::Refused(refusal)) => return Err(refusal.into()),
        };
        let answer = Committed { index: admitted.record.index, at: now, status: head.status };
        let successor = admitted.successor.take();
        self.take(&key, head, admitted, body).await?;
        if let Some(successor) = successor {
            self.succeed(*successor);
        }
        self.settle(&key);
        Ok(answer)
    }

    /// Returns the final head of an earlier generation.
    async fn past_head(&mut self, key: &RunKey, generation: u32) -> Outcome<Option<RunHead>> {
        let locked = self.locked(key);
        if let Some(head) = locked.past.iter().find(|head| head.generation == generation) {
            return Ok(Some(head.clone()));
        }
        let sql =
            Sql::new("SELECT head FROM onward.past WHERE rk = $1 AND generation = $2").number(locked.rk).int(generation as i32);
        let rows = self.db.query(&sql).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        Ok(Some(unseal_head(key, row.get(0))?.0))
    }

    /// Begins the next generation of the run, without a holder.
    fn succeed(&mut self, successor: NewRun) {
        let body = Body::of_start(&successor.started);
        let (mut head, first) = RunHead::start(successor.key, successor.started, self.now);
        let key = head.key.clone();
        let locked = self.locked(&key);
        // Epochs continue over generations: a late release of the old lease must not match the new one (L7).
        head.epoch = locked.head.epoch;
        locked.worker = None;
        let ended = std::mem::replace(&mut locked.head, head.clone());
        locked.past.push(ended);
        self.put_event(&key, first.index, first.at, &body);
        self.news.push(OwnedChange::Appended { head, record: first });
    }

    pub async fn start_run(&mut self, start: &StartRun) -> Outcome<Started> {
        let StartRun { run, claim, input_hash, body, signal_body } = start;
        let key = run.key.clone();
        self.check(&key)?;
        if let Some(found) = self.find(&key) {
            if !found.head.is_started_by(&run.started, || found.input_hash == *input_hash)? {
                return Err(StoreError::RunExists { key }.into()); // L18
            }
            let signal = match &run.signal {
                Some(signal) => Some(self.append_input(&key, (**signal).clone(), signal_body).await?),
                None => None,
            };
            return Ok(Started { created: false, head: self.locked(&key).shown(), signal, claimed: None });
        }
        let (head, first) = RunHead::start(key.clone(), run.started.clone(), self.now);
        let effects = head.start_effects(&first);
        let rk = self.fresh.pop_front().expect("a number was drawn for each run that may be made");
        let mut fresh = LockedRun::new(rk, head, *input_hash);
        fresh.head.epoch = self.epoch_after(fresh.head.epoch); // L7
        let head = fresh.head.clone();
        // Decided before anything is changed: if the signal is refused, the whole call is.
        let admission = match &run.signal {
            Some(signal) => Some(admit(&fresh, (**signal).clone(), None, self.now)?),
            None => None,
        };
        let signal = admission.as_ref().map(Admission::answer);
        let mut records = vec![first.clone()];
        self.add(fresh);
        self.put_event(&key, first.index, first.at, body);
        self.news.push(OwnedChange::Appended { head, record: first.clone() });
        for effect in effects {
            self.carry_out(&key, effect, &first).await?;
        }
        self.apply_parent_close(&key);
        if let Some(admission) = admission {
            if let Admission::Taken { admitted, .. } = &admission {
                records.push(admitted.record.clone());
            }
            self.take_input(&key, admission, signal_body).await?;
        }
        let claimed = claim.as_ref().and_then(|worker| self.claim(&key, worker, Some(records)));
        self.settle(&key);
        Ok(Started { created: true, head: self.locked(&key).shown(), signal, claimed })
    }

    /// Sends the effect of a closed parent to a child that started late: no other operation would find the child.
    fn apply_parent_close(&mut self, key: &RunKey) {
        let child = self.locked(key).head.clone();
        let Some(link) = &child.parent else { return };
        let Some(parent) = self.find(&link.run) else { return };
        if let Some(delivery) = child.parent_is_closed(&parent.head) {
            let from = link.run.clone();
            self.send(&from, delivery);
        }
    }

    pub async fn append_input(&mut self, key: &RunKey, input: Input, body: &Body) -> Outcome<Appended> {
        let admission = self.admit(key, input, None).await?;
        let answer = admission.answer();
        self.take_input(key, admission, body).await?;
        if !answer.repeated {
            self.settle(key);
        }
        Ok(answer)
    }

    /// Reads what the decision about an input needs, and decides.
    async fn admit(&mut self, key: &RunKey, input: Input, cost: Option<TaskAttemptEnded>) -> Outcome<Admission> {
        self.require(key)?;
        let slots = cost.iter().map(TaskAttemptEnded::once).chain(input.once.clone());
        let slots: Vec<_> = slots.map(|once| (key.clone(), once.key)).collect();
        if !slots.is_empty() {
            self.need_slots(slots).await?;
        }
        if let Some(call_id) = input.needs_wait() {
            self.need_waits(vec![(key.clone(), call_id.clone())]).await?;
        }
        admit(self.require(key)?, input, cost, self.now)
    }

    /// Applies what [`admit`] decided; the caller settles the run.
    async fn take_input(&mut self, key: &RunKey, admission: Admission, body: &Body) -> Outcome<()> {
        let Admission::Taken { head, admitted, slots, .. } = admission else { return Ok(()) };
        let locked = self.locked(key);
        for once in slots {
            let taken = TakenSlot { token: once.token, index: admitted.record.index, at: admitted.record.at };
            locked.slots.put(once.key, taken);
        }
        self.take(key, *head, admitted, body).await
    }

    /// Appends the outcome of a timer or task, and the cost of its last attempt. Returns false if the run has ended or is gone.
    pub async fn append_outcome(&mut self, key: &RunKey, input: Input, cost: Option<TaskAttemptEnded>) -> Outcome<bool> {
        let admission = match self.admit(key, input, cost).await {
            Err(Trouble::Refused(StoreError::RunNotFound { .. } | StoreError::Refused(_))) => return Ok(false),
            admission => admission?,
        };
        if let Admission::Taken { admitted, .. } = &admission {
            let body = Body::of_record(&admitted.record);
            self.take_input(key, admission, &body).await?;
            self.settle(key);
        }
        Ok(true)
    }

    /// Writes an admitted append with its effects; the caller settles the run.
    async fn take(&mut self, key: &RunKey, head: RunHead, admitted: Admitted, body: &Body) -> Outcome<()> {
        let record = admitted.record;
        let locked = self.locked(key);
        locked.head = head;
        locked.is_changed = true;
        let shown = locked.shown();
        self.put_event(key, record.index, record.at, body);
        for effect in admitted.effects {
            self.carry_out(key, effect, &record).await?;
        }
        self.news.push(OwnedChange::Appended { head: shown, record });
        Ok(())
    }
}

/// Decides about an input before anything is changed (DB2).
fn admit(locked: &LockedRun, input: Input, cost: Option<TaskAttemptEnded>, now: onward_core::Timestamp) -> Outcome<Admission> {
    // Expiry reads the clock before it has the locks: times in a log must not go back because of that.
    let now = now.max(locked.head.updated_at);
    let slot = |key: &str| Ok(locked.slots.get(&key.to_owned()).cloned());
    admission::admit(&locked.head, input, cost, now, slot, |call_id| Ok(locked.waits.get(call_id).map(|wait| wait.generation)))
}

//! Restores of runs from their logs: every record unchanged, and the rows derived from them.

use onward_core::projection::{ProjectedTimer, Projection, retry_key};
use onward_core::run::wait_key;
use onward_core::transfer::is_same_log;
use onward_core::{Attribute, Epoch, Hash, Index, Record, RunHead, RunKey};
use onward_store::durable::{Body, OwnedChange, RestoreWork};
use onward_store::{Restore, RestoreRun, Restored, StoreError};
use rusqlite::{Connection, params};

use super::append::{insert_event, read_slot};
use super::effects::{put_timer, put_wait};
use crate::error::Outcome;
use crate::file::schema::write_boot;
use crate::read::heads;
use crate::read::past;
use crate::read::reader::read_records;
use crate::row::{NEVER, due_number};
use crate::write::writer::{Undo, Writer};

impl Writer<'_> {
    pub(crate) fn restore_run(&mut self, work: RestoreWork) -> Outcome<Restored> {
        let RestoreWork { restore: RestoreRun { key, what, news }, projections } = work;
        let root = match what {
            Restore::Run { logs } => {
                if heads::find(self.db, &key, None)?.is_some() {
                    return self.find_restored(key, &logs);
                }
                self.put_run(&logs, projections)?
            }
            Restore::Retry { after, log, request_id } => {
                let cached = self.heads.require(self.db, &self.shared.leases, &key)?;
                let hot = &self.heads[cached];
                let (rk, root, epoch) = (hot.rk, hot.root, hot.head.epoch);
                if read_slot(self.db, &key, root, &retry_key(&request_id))?.is_some() {
                    return Ok(Restored { created: false, head: self.shown(&key)? });
                }
                hot.head.admit_retry(after)?;
                let started = log[0].started().expect("checked before it came here");
                let input_hash = self.retire(rk, root, &key, started)?;
                for projection in projections {
                    self.put_generation(root, input_hash, true, &log, projection, epoch)?;
                }
                root
            }
        };
        for delivery in news {
            self.send(root, delivery)?;
        }
        Ok(Restored { created: true, head: self.shown(&key)? })
    }

    /// Returns the existing run if it has exactly these logs.
    fn find_restored(&mut self, key: RunKey, logs: &[Vec<Record>]) -> Outcome<Restored> {
        let head = self.shown(&key)?;
        let mut same = head.generation as usize + 1 == logs.len();
        for (log, generation) in logs.iter().zip(0..) {
            let Some(found) = heads::find(self.db, &key, Some(generation))?.filter(|_| same) else { break };
            same = is_same_log(&read_records(self.db, &key, found.rk, Index(0), usize::MAX)?, log);
        }
        if same { Ok(Restored { created: false, head }) } else { Err(StoreError::RunExists { key }.into()) }
    }

    fn put_run(&mut self, logs: &[Vec<Record>], projections: Vec<Projection>) -> Outcome<i64> {
        let root = self.next_rk;
        let started = logs[0][0].started().expect("checked before it came here");
        let input_hash = Hash::of(&started.input);
        let last = logs.len() - 1;
        for (position, (log, projection)) in logs.iter().zip(projections).enumerate() {
            self.raise_epochs(projection.head.epoch)?;
            self.put_generation(root, input_hash, position == last, log, projection, Epoch(0))?;
        }
        Ok(root)
    }

    /// Makes every later epoch exceed this one, also after a restart (L7).
    fn raise_epochs(&mut self, floor: Epoch) -> Outcome<()> {
        if self.last_epoch >= floor {
            return Ok(());
        }
        let boot = (floor.0 >> 32) + 1;
        write_boot(self.db, boot.cast_signed())?;
        self.undo_later(Undo::Raised(self.last_epoch));
        self.last_epoch = Epoch(boot << 32);
        Ok(())
    }

    fn put_generation(
        &mut self,
        root: i64,
        input_hash: Hash,
        current: bool,
        log: &[Record],
        projection: Projection,
        epoch: Epoch,
    ) -> Outcome<()> {
        let rk = self.next_rk;
        self.next_rk += 1;
        let Projection { mut head, timers, tasks, waits, slots, ledger, .. } = projection;
        head.epoch = epoch;
        if current || rk == root || head.origin_incarnation().is_none() {
            self.put_row(rk, root, input_hash, current, &head)?;
        } else {
            past::put(self.db, rk, root, head.generation)?;
        }
        self.put_records(rk, log, &head)?;
        crate::read::ledger::restore(self.db, &ledger)?;
        for (key, slot) in slots {
            self.put_slot(root, &key, &slot.token, slot.index, slot.at)?;
        }
        for (call_id, timer) in timers {
            put_timer(self.db, rk, &call_id, timer_number(timer))?;
            if !timer.is_frozen {
                self.announce_due(timer.due_at);
            }
        }
        for mut task in tasks.into_values() {
            task.claim_after(self.batch.now); // K8
            self.put_task(rk, task)?;
        }
        for wait in waits.into_values() {
            // A wait that the end of an earlier generation withdrew is open again.
            self.db
                .prepare_cached("DELETE FROM slots WHERE root = ?1 AND key = ?2")?
                .execute(params![root, wait_key(wait.generation, &wait.call_id)])?;
            put_wait(self.db, rk, wait)?;
        }
        if !current {
            return Ok(());
        }
        if self.batch.heard {
            let record = log.last().expect("a log has records").clone();
            self.batch.news.push(OwnedChange::Appended { head: head.clone(), record });
        }
        let cached = self.heads.insert(rk, root, head);
        self.settle_run(cached, false)
    }

    /// Writes the records of a log. Each row has the number of commits up to it, which a projection tracks.
    fn put_records(&mut self, rk: i64, log: &[Record], head: &RunHead) -> Outcome<()> {
        let mut follow = Projection::begin(head.key.clone(), &log[0]).expect("checked before it came here");
        for (position, record) in log.iter().enumerate() {
            if position > 0 {
                follow.push(record);
            }
            let body = Body::of_record(record);
            insert_event(&mut self.insert_event, self.db, rk, &follow.head, record, &body)?;
            self.count_event(&body);
        }
        Ok(())
    }

    pub(super) fn put_row(&mut self, rk: i64, root: i64, input_hash: Hash, current: bool, head: &RunHead) -> Outcome<()> {
        let mut insert = self.db.prepare_cached(heads::insert_run!(""))?;
        heads::write_row(&mut insert, rk, root, input_hash, current, head)?;
        drop(insert);
        if head.attributes.is_empty() || !current { Ok(()) } else { self.put_attributes(rk, &head.attributes) }
    }

    /// Replaces the attributes by which the run is found.
    pub(super) fn put_attributes(&mut self, rk: i64, attributes: &[Attribute]) -> Outcome<()> {
        self.db.prepare_cached("DELETE FROM attributes WHERE rk = ?1")?.execute(params![rk])?;
        Ok(put_attributes(self.db, rk, attributes)?)
    }
}

/// Returns the due time of a timer as its row has it.
pub(crate) fn timer_number(timer: ProjectedTimer) -> i64 {
    due_number(timer.due_at) + if timer.is_frozen { NEVER } else { 0 }
}

pub(crate) fn put_attributes(db: &Connection, rk: i64, attributes: &[Attribute]) -> rusqlite::Result<()> {
    let mut insert =
        db.prepare_cached("INSERT INTO attributes(rk, name, value, crc) VALUES (?1, ?2, ?3, row_crc(?1, ?2, ?3))")?;
    for attribute in attributes {
        insert.execute(params![rk, attribute.name.as_str(), attribute.value.to_key()])?;
    }
    Ok(())
}

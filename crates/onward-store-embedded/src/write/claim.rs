//! Claims and releases. They write nothing, since leases are in memory.

use onward_core::run::Input;
use onward_core::{Epoch, RunKey, Status, WorkerId};
use onward_store::durable::Body;
use onward_store::{ClaimRuns, ClaimedOne, ClaimedRun, SESSION_DEFAULT, StoreError};

use crate::error::{Outcome, Trouble, may_be_mended};
use crate::read::heads::{self, CachedRun};
use crate::write::writer::{Undo, Writer};

impl Writer<'_> {
    pub(crate) fn claim_runs(&mut self, request: &ClaimRuns) -> Outcome<Vec<ClaimedRun>> {
        let mut claimed = Vec::new();
        while claimed.len() < request.limit {
            let Some(rk) = self.ready.pop(self.db, request)? else { break };
            if let Some(run) = self.claim_entry(rk, &request.worker)? {
                claimed.push(run);
            }
        }
        Ok(claimed)
    }

    /// Appends an input to an unleased run and leases the run if it is pending.
    pub(crate) fn claim_run(&mut self, key: &RunKey, worker: &WorkerId, input: Option<(Input, Body)>) -> Outcome<ClaimedOne> {
        let cached = self.heads.require(self.db, &self.shared.leases, key)?;
        let rk = self.heads[cached].rk;
        if self.shared.leases.is_held(rk) {
            return Err(StoreError::RunHeld { key: key.clone() }.into());
        }
        let appended = input.map(|(input, body)| self.append_input(key, input, body)).transpose()?;
        let claimed = self.claim_entry(rk, worker)?;
        Ok(ClaimedOne { appended, head: self.shown(key)?, claimed })
    }

    /// Leases the run of a queue entry if it is still pending and unleased.
    fn claim_entry(&mut self, rk: i64, worker: &WorkerId) -> Outcome<Option<ClaimedRun>> {
        if self.shared.leases.is_held(rk) {
            return Ok(None);
        }
        let found = self.key_of(rk).and_then(|key| {
            let cached = key.as_ref().map(|key| self.heads.get(self.db, &self.shared.leases, key)).transpose()?;
            Ok(key.zip(cached.flatten()))
        });
        let (key, cached) = match found {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(None),
            // A damaged run is skipped, so that it does not block the others.
            Err(Trouble::Refused(error @ (StoreError::LogCorrupt { .. } | StoreError::Corrupt { .. }))) => {
                self.mend_wanted |= may_be_mended(&error);
                return Ok(None);
            }
            Err(trouble) => return Err(trouble),
        };
        let claimable = |cached: &CachedRun| self.heads[*cached].rk == rk && self.heads[*cached].head.status == Status::Pending;
        let Some(cached) = Some(cached).filter(claimable) else { return Ok(None) };
        self.grant(&key, rk, worker);
        let hot = &mut self.heads[cached];
        hot.head.epoch = self.last_epoch; // L7
        // The log of a run without further events is a single row.
        let records = match hot.head.next_index.0 {
            1 => crate::read::reader::read_records(self.db, &key, rk, onward_core::Index(0), 1).ok(),
            _ => None,
        };
        Ok(Some(ClaimedRun { head: self.shown(&key)?, records }))
    }

    /// Leases a run to a worker, with an epoch that was never used.
    pub(crate) fn grant(&mut self, key: &RunKey, rk: i64, worker: &WorkerId) {
        self.last_epoch = Epoch(self.last_epoch.0 + 1);
        self.shared.leases.grant(rk, self.last_epoch, worker);
        self.undo_later(Undo::Granted(key.clone(), rk));
        if self.shared.leases.greet(worker, self.batch.steady.after(SESSION_DEFAULT)) {
            self.announce_due(self.batch.now.after(SESSION_DEFAULT));
        }
    }

    pub(crate) fn release_run(&mut self, key: &RunKey, epoch: Epoch) -> Outcome<()> {
        let Some(cached) = self.heads.get(self.db, &self.shared.leases, key)? else { return Ok(()) };
        let rk = self.heads[cached].rk;
        if let Some(lease) = self.shared.leases.drop(rk, Some(epoch)) {
            self.undo_later(Undo::Dropped(key.clone(), rk, lease));
            self.settle_run(cached, false)?;
        }
        Ok(())
    }

    /// Returns the key of a run by its number.
    pub(crate) fn key_of(&mut self, rk: i64) -> Outcome<Option<RunKey>> {
        Ok(heads::key_of(self.db, rk)?)
    }
}

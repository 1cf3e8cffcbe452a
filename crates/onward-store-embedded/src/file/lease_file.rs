//! The leases of workers inside of the process: which runs they had when the process died.
//!
//! Owns the file `onward.leases`, one slot for each lease. Slots are written without a sync: they survive the death of the process
//! and not that of the machine, for which no run is to blame (CW2). It is evidence only: a missing or damaged slot makes no
//! directory unusable, and a directory without such workers has no file. Must never be needed to fence a worker.
//!
//! Invariants:
//! - LF1: while a lease is held, its run, epoch and worker are in a slot; a process that closes the store leaves none.
//! - LF2: slots of a process that died stay until its losses are durable (CW5).
//! - LF3: a slot names its run twice, by number and by the checksum of its key: a number of another database is no evidence.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use onward_core::{Epoch, RunKey, WorkerId};
use onward_store::StoreError;

use crate::file::directory::OWNER_ONLY;
use crate::file::schema::unusable;
use crate::store::WorkersInside;

pub(crate) const LEASES: &str = "onward.leases";
const BYTES: usize = 128;
const NAME_AT: usize = 24;
const NAME_BYTES_MAX: usize = BYTES - NAME_AT - 4;

/// A lease of a process that has died.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LostLease {
    pub rk: i64,
    pub epoch: Epoch,
    pub worker: WorkerId,
    key_crc: u32,
}

impl LostLease {
    /// Returns whether this was a lease of the run.
    pub fn is_of(&self, key: &RunKey) -> bool {
        self.key_crc == key_crc(key)
    }

    fn read(slot: &[u8]) -> Option<LostLease> {
        let (slot, crc) = slot.split_last_chunk::<4>()?;
        let word = |at: usize| slot.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
        let (rk, epoch, crc_and_length) = (word(0)?, word(8)?, word(16)?);
        let (key_crc, length) = (crc_and_length as u32, (crc_and_length >> 32) as usize);
        let name = std::str::from_utf8(slot.get(NAME_AT..NAME_AT.checked_add(length)?)?).ok()?;
        let is_sound = crc32fast::hash(slot) == u32::from_le_bytes(*crc);
        let worker = WorkerId::new(name).ok().filter(|_| is_sound)?;
        Some(LostLease { rk: rk.cast_signed(), epoch: Epoch(epoch), worker, key_crc })
    }

    fn bytes(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        let name = self.worker.as_str();
        let name = &name[..name.floor_char_boundary(NAME_BYTES_MAX)];
        bytes[..8].copy_from_slice(&self.rk.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.epoch.0.to_le_bytes());
        bytes[16..24].copy_from_slice(&(u64::from(self.key_crc) | (name.len() as u64) << 32).to_le_bytes());
        bytes[NAME_AT..NAME_AT + name.len()].copy_from_slice(name.as_bytes());
        let crc = crc32fast::hash(&bytes[..BYTES - 4]);
        bytes[BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }
}

fn key_crc(key: &RunKey) -> u32 {
    crc32fast::hash(key.to_string().as_bytes())
}

/// The file of the process that has the directory.
pub(crate) struct LeaseFile {
    file: File,
    inside: WorkersInside,
    /// The slot of each lease, by run number.
    slots: HashMap<i64, u64>,
    free: Vec<u64>,
    /// Number of slots that have been used.
    end: u64,
    /// Number of slots of the process before (LF2).
    before: u64,
}

impl LeaseFile {
    /// Opens the file and reads the leases of a process that died.
    pub fn open(directory: &Path, inside: WorkersInside) -> Result<(LeaseFile, Vec<LostLease>), StoreError> {
        let path = directory.join(LEASES);
        let open = || -> std::io::Result<(File, Vec<u8>)> {
            let mut options = OpenOptions::new();
            let file = options.create(true).truncate(false).read(true).write(true).mode(OWNER_ONLY).open(&path)?;
            let mut bytes = Vec::new();
            std::io::Read::read_to_end(&mut &file, &mut bytes)?;
            Ok((file, bytes))
        };
        let (file, bytes) = open().map_err(|error| unusable(&path, &error))?;
        let before = bytes.len().div_ceil(BYTES) as u64;
        let lost = bytes.chunks_exact(BYTES).filter_map(LostLease::read).collect();
        Ok((LeaseFile { file, inside, slots: HashMap::new(), free: Vec::new(), end: before, before }, lost))
    }

    /// Records a lease, unless its worker is outside of the process. If the slot cannot be written, the death of the process casts
    /// no suspicion on the run.
    pub fn grant(&mut self, rk: i64, key: &RunKey, epoch: Epoch, worker: &WorkerId) {
        if !self.inside.includes(worker) {
            return;
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.end += 1;
            self.end - 1
        });
        let lease = LostLease { rk, epoch, worker: worker.clone(), key_crc: key_crc(key) };
        let _ = self.file.write_all_at(&lease.bytes(), slot * BYTES as u64);
        self.slots.insert(rk, slot);
    }

    /// Removes a lease, if it is here.
    pub fn drop(&mut self, rk: i64) {
        if let Some(slot) = self.slots.remove(&rk) {
            let _ = self.file.write_all_at(&[0; BYTES], slot * BYTES as u64);
            self.free.push(slot);
        }
    }

    /// Removes the leases of the process before, once their losses are durable (LF2).
    pub fn forget_before(&mut self) {
        for slot in 0..std::mem::take(&mut self.before) {
            let _ = self.file.write_all_at(&[0; BYTES], slot * BYTES as u64);
            self.free.push(slot);
        }
    }

    /// Removes all leases: the process closes the store, so no run has killed it. Those of the process before stay if their
    /// losses are not durable.
    pub fn close(&mut self) {
        let _ = self.file.set_len(self.before * BYTES as u64);
    }
}

#[cfg(test)]
mod tests;

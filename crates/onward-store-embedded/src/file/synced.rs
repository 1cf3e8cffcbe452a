//! The sync mark: the position of the last synced commit.
//!
//! Owns the file `onward.synced`, 64 bytes in one sector. The writer overwrites it after each sync of the write-ahead log and
//! before it replies, without a sync of its own: its content was true before it was written. After a kill it therefore names the
//! last acknowledged commit, and after a power loss that one or an earlier one. It is evidence only: a missing or damaged mark
//! makes no directory unusable. Must never be ahead of the log.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use onward_store::StoreError;

use crate::file::schema::unusable;
use crate::file::wal::{self, FRAME_BYTES, HEADER_BYTES};

pub(crate) const SYNCED: &str = "onward.synced";
const MAGIC: &[u8; 8] = b"onwdsyn1";
const BYTES: usize = 64;

/// The end of the write-ahead log at its last sync.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SyncMark {
    pub salts: [u8; 8],
    pub frames: u64,
    /// The database has all of the log, synced.
    pub is_closed: bool,
}

impl SyncMark {
    pub fn read(directory: &Path) -> Option<SyncMark> {
        let bytes = std::fs::read(directory.join(SYNCED)).ok()?;
        let (mark, crc) = bytes.get(..BYTES)?.split_last_chunk::<4>()?;
        if !mark.starts_with(MAGIC) || crc32fast::hash(mark) != u32::from_le_bytes(*crc) {
            return None;
        }
        let word = |at: usize| u32::from_le_bytes([mark[at], mark[at + 1], mark[at + 2], mark[at + 3]]);
        let mut salts = [0; 8];
        salts.copy_from_slice(&mark[8..16]);
        let frames = u64::from(word(16)) | u64::from(word(20)) << 32;
        Some(SyncMark { salts, frames, is_closed: mark[24] == 1 })
    }

    /// Returns whether a directory has a mark with a wrong checksum. A mark that was never written is all zeros.
    pub fn is_damaged(directory: &Path) -> bool {
        let bytes = std::fs::read(directory.join(SYNCED)).unwrap_or_default();
        bytes.iter().any(|byte| *byte != 0) && SyncMark::read(directory).is_none()
    }

    fn bytes(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..16].copy_from_slice(&self.salts);
        bytes[16..24].copy_from_slice(&self.frames.to_le_bytes());
        bytes[24] = u8::from(self.is_closed);
        let crc = crc32fast::hash(&bytes[..BYTES - 4]);
        bytes[BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Returns whether a log with these salts was begun later: SQLite increments the first salt when it restarts the file, which
    /// it does only after copying all of it into the database.
    pub fn is_before(&self, salts: [u8; 8]) -> bool {
        let first = |salts: [u8; 8]| u32::from_be_bytes([salts[0], salts[1], salts[2], salts[3]]);
        (1..1 << 31).contains(&first(salts).wrapping_sub(first(self.salts)))
    }
}

/// The mark of a directory that this process writes to.
pub(crate) struct MarkFile {
    file: File,
    log: Option<File>,
    log_path: PathBuf,
    /// Commit counter at the last write of the mark: a batch without writes leaves the mark as it is.
    commits: u64,
}

impl MarkFile {
    pub fn open(directory: &Path) -> Result<MarkFile, StoreError> {
        let path = directory.join(SYNCED);
        let open = || -> std::io::Result<File> {
            let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path)?;
            if file.metadata()?.len() < BYTES as u64 {
                file.write_all_at(&[0; BYTES], 0)?; // reserves the space for later writes
            }
            Ok(file)
        };
        let file = open().map_err(|error| unusable(&path, &error))?;
        Ok(MarkFile { file, log: None, log_path: wal::path(directory), commits: 0 })
    }

    /// Returns whether the log has grown since it was last recorded.
    pub fn has_grown(&self, commits: u64) -> bool {
        self.commits != commits
    }

    /// Records that the log was synced with `frames` frames. If the mark cannot be written, the old one stays, which is still
    /// true.
    pub fn note(&mut self, commits: u64, frames: u64) {
        if std::mem::replace(&mut self.commits, commits) != commits && frames > 0 {
            let _ = self.write(frames);
        }
    }

    fn write(&mut self, frames: u64) -> std::io::Result<()> {
        if self.log.is_none() {
            self.log = Some(File::open(&self.log_path)?);
        }
        let Some(log) = &self.log else { return Ok(()) };
        let mut salts = [0; 8];
        log.read_exact_at(&mut salts, HEADER_BYTES + (frames - 1) * FRAME_BYTES + 8)?;
        self.file.write_all_at(&SyncMark { salts, frames, is_closed: false }.bytes(), 0)
    }

    /// Records durably that the database has everything, so that the log may be removed. Returns whether that succeeded.
    pub fn close(&self) -> bool {
        let closed = SyncMark { is_closed: true, ..SyncMark::default() };
        self.file.write_all_at(&closed.bytes(), 0).and_then(|()| self.file.sync_all()).is_ok()
    }
}

#[cfg(test)]
mod tests;

//! Examination of the write-ahead log before SQLite opens it.
//!
//! Owns the parser of `onward.db-wal` and the decision whether its end is a torn tail or damage. SQLite takes the first frame
//! with a wrong checksum for the end of the log, so one changed byte would lose every commit after it. Must never run after
//! SQLite has opened the directory for writing, since SQLite may copy, truncate or overwrite the log. ADR 0013 has the argument.
//!
//! Invariants:
//! - I6: a log is damaged if a synced commit cannot be read from it: the mark of the last synced commit is behind the end that
//!   SQLite would find ([`crate::file::synced`]), or a transaction that was begun after a later commit is. A crash or a power
//!   loss leaves neither: each commit is synced before the next frame and the mark are written.
//! - I7: before a store writes, the log holds nothing behind its last commit, and its content is synced. Frames of an uncommitted
//!   transaction are thus never taken for evidence (I6) by a later opening.

use std::fs::{File, OpenOptions};
use std::io::{BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};

use onward_store::StoreError;

use crate::file::pages::PAGE_BYTES;
use crate::file::schema::{self, DATABASE, unusable};
use crate::file::synced::SyncMark;

pub(crate) const HEADER_BYTES: u64 = 32;
const FRAME_HEADER_BYTES: usize = 24;
pub(crate) const FRAME_BYTES: u64 = (FRAME_HEADER_BYTES + PAGE_BYTES) as u64;
const MAGIC: u32 = 0x377f_0682;
const VERSION: u32 = 3_007_000;

type Sum = [u32; 2];

/// The header of a frame, and whether the frame verifies from the checksum stored in the previous frame.
#[derive(Debug, Clone)]
pub(crate) struct WalFrame {
    pub page: u32,
    /// The size of the database in pages if the frame ends a transaction, else zero.
    pub commit_pages: u32,
    pub salts: [u8; 8],
    /// The running checksum is seeded with that of the previous frame, so eight bytes suffice to verify a frame behind a bad one.
    pub follows: bool,
    /// The content of the frame is known: it verifies, or does so after the correction of one byte.
    pub is_known: bool,
    /// The word to correct before the frame is used.
    pub correction: Option<Correction>,
}

/// The original value of a damaged word of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Correction {
    /// Offset in the frame, which begins with its header.
    at: usize,
    word: [u8; 4],
}

impl Correction {
    /// Corrects the word in the page of a frame; does nothing for a word of the header.
    pub fn apply(self, page: &mut [u8]) {
        if let Some(at) = self.at.checked_sub(FRAME_HEADER_BYTES) {
            page[at..at + 4].copy_from_slice(&self.word);
        }
    }

    fn apply_to_header(self, header: &mut [u8; 8]) {
        if self.at < header.len() {
            header[self.at..self.at + 4].copy_from_slice(&self.word);
        }
    }
}

impl WalFrame {
    fn is_commit(&self) -> bool {
        self.commit_pages > 0
    }
}

/// A write-ahead log as it is in the file.
#[derive(Debug, Default)]
pub(crate) struct WalContents {
    pub bytes: u64,
    /// `None` if the header has a wrong checksum or is foreign.
    pub salts: Option<[u8; 8]>,
    /// True if the header is all zeros, as in a file that was created and never synced.
    is_blank: bool,
    pub frames: Vec<WalFrame>,
}

impl WalContents {
    /// Reads the log of a directory. A missing log is empty.
    pub fn read(directory: &Path) -> Result<WalContents, StoreError> {
        let path = path(directory);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(WalContents::default()),
            Err(error) => return Err(unusable(&path, &error)),
        };
        WalContents::parse(BufReader::with_capacity(1 << 17, file)).map_err(|error| unusable(&path, &error))
    }

    fn parse(mut file: impl Read) -> std::io::Result<WalContents> {
        let mut header = [0; HEADER_BYTES as usize];
        let read = read_up_to(&mut file, &mut header)?;
        let is_blank = header.iter().all(|byte| *byte == 0);
        let mut log = WalContents { bytes: read as u64, is_blank, ..WalContents::default() };
        if read < header.len() {
            return Ok(log);
        }
        let magic = number(&header, 0);
        let is_sound = magic & !1 == MAGIC
            && number(&header, 4) == VERSION
            && number(&header, 8) as usize == PAGE_BYTES
            && header[24..32] == stored(sum(is_big_endian(magic), [0, 0], &header[..24]));
        log.salts = is_sound.then(|| eight(&header, 16));
        // Without a header the frames are compared with each other, in the byte order of this machine.
        let is_big = if is_sound { is_big_endian(magic) } else { cfg!(target_endian = "big") };
        let mut before = eight(&header, 24);
        // The checksum that the previous frame was written with, even if one of its bytes is damaged.
        let mut seed = before;
        let mut salts = log.salts.unwrap_or_default();
        let mut frame = vec![0; FRAME_BYTES as usize];
        loop {
            let read = read_up_to(&mut file, &mut frame)?;
            log.bytes += read as u64;
            if read < frame.len() {
                return Ok(log);
            }
            let found = eight(&frame, 8);
            if !is_sound && log.frames.is_empty() {
                salts = found;
            }
            let follows = number(&frame, 0) != 0 && found == salts && running(is_big, before, &frame) == frame[16..24];
            let (known, correction) = match follows {
                true => (Some(eight(&frame, 16)), None),
                false => correct(is_big, seed, salts, &frame),
            };
            let mut head = eight(&frame, 0);
            correction.into_iter().for_each(|correction: Correction| correction.apply_to_header(&mut head));
            before = eight(&frame, 16);
            seed = known.unwrap_or(before);
            if !is_sound {
                salts = found;
            }
            let (page, commit_pages) = (number(&head, 0), number(&frame, 4));
            log.frames.push(WalFrame { page, commit_pages, salts: found, follows, is_known: known.is_some(), correction });
        }
    }

    /// Returns the number of frames that SQLite would use: up to the last commit before the first frame that does not verify.
    pub fn committed(&self) -> usize {
        if self.salts.is_some() { self.last_commit_in_a_row() as usize } else { 0 }
    }

    fn last_commit_in_a_row(&self) -> u64 {
        let sound = self.frames.iter().take_while(|frame| frame.follows);
        sound.enumerate().filter(|(_, frame)| frame.is_commit()).last().map_or(0, |(at, _)| at as u64 + 1)
    }

    /// Returns the last commit, behind the first bad frame, that verifies and is followed by a frame of the next transaction.
    fn synced_behind_bad(&self) -> Option<usize> {
        let bad = self.frames.iter().position(|frame| !frame.follows)?;
        let mut pairs = self.frames.windows(2).enumerate().skip(bad);
        pairs.rfind(|(_, pair)| pair[0].follows && pair[0].is_commit() && pair[1].follows).map(|(at, _)| at + 1)
    }
}

fn is_big_endian(magic: u32) -> bool {
    magic & 1 == 1
}

fn read_up_to(file: &mut impl Read, into: &mut [u8]) -> std::io::Result<usize> {
    let mut filled = 0;
    while filled < into.len() {
        match file.read(&mut into[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn eight(bytes: &[u8], at: usize) -> [u8; 8] {
    let mut taken = [0; 8];
    taken.copy_from_slice(&bytes[at..at + 8]);
    taken
}

fn stored(sum: Sum) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&sum[0].to_be_bytes());
    bytes[4..].copy_from_slice(&sum[1].to_be_bytes());
    bytes
}

/// Computes SQLite's running checksum: pairs of words, each mixed into the other.
fn sum(is_big_endian: bool, seed: Sum, bytes: &[u8]) -> Sum {
    let word = |word: &[u8]| {
        let word = [word[0], word[1], word[2], word[3]];
        if is_big_endian { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) }
    };
    bytes.chunks_exact(8).fold(seed, |[first, second], pair| {
        let first = first.wrapping_add(word(&pair[..4])).wrapping_add(second);
        [first, second.wrapping_add(word(&pair[4..])).wrapping_add(first)]
    })
}

/// Returns the checksum of a frame that follows one with the checksum `seed`.
fn running(is_big_endian: bool, seed: [u8; 8], frame: &[u8]) -> [u8; 8] {
    let seed = [number(&seed, 0), number(&seed, 4)];
    stored(sum(is_big_endian, sum(is_big_endian, seed, &frame[..8]), &frame[FRAME_HEADER_BYTES..]))
}

/// Finds the single changed byte of a frame. Returns the checksum that the frame was written with if there is such a byte, and
/// the corrected word unless the byte is in the salts or the checksum itself.
///
/// The checksum has 64 bits, and there are two million ways to change one byte of a frame, so other damage is not mistaken for
/// one byte.
fn correct(is_big_endian: bool, seed: [u8; 8], salts: [u8; 8], frame: &[u8]) -> (Option<[u8; 8]>, Option<Correction>) {
    let (computed, found) = (running(is_big_endian, seed, frame), eight(frame, 16));
    match (changed_bytes(&eight(frame, 8), &salts), changed_bytes(&computed, &found)) {
        (0, 0 | 1) | (1, 0) if number(frame, 0) != 0 => return (Some(computed), None),
        (0, _) => {}
        _ => return (None, None),
    }
    // A change of `by` in the first word of a pair adds (by, by) to the two sums, one in the second word (0, by). Each later pair
    // turns (a, b) into (a + b, a + 2b), which is undone here from the last pair to the first.
    let mut first = number(&found, 0).wrapping_sub(number(&computed, 0));
    let mut second = number(&found, 4).wrapping_sub(number(&computed, 4));
    let pairs = (FRAME_HEADER_BYTES..frame.len()).step_by(8).rev().chain([0]);
    for pair in pairs {
        let at = if first == second { Some(pair) } else { (first == 0).then_some(pair + 4) };
        if let Some(at) = at {
            let damaged = [frame[at], frame[at + 1], frame[at + 2], frame[at + 3]];
            let word = match is_big_endian {
                true => u32::from_be_bytes(damaged).wrapping_add(second).to_be_bytes(),
                false => u32::from_le_bytes(damaged).wrapping_add(second).to_le_bytes(),
            };
            if changed_bytes(&word, &damaged) == 1 {
                return (Some(found), Some(Correction { at, word }));
            }
        }
        (first, second) = (first.wrapping_mul(2).wrapping_sub(second), second.wrapping_sub(first));
    }
    (None, None)
}

fn changed_bytes(left: &[u8], right: &[u8]) -> usize {
    left.iter().zip(right).filter(|(left, right)| left != right).count()
}

/// Loss of acknowledged commits in the write-ahead log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogDamage {
    /// The first unreadable frame, from 1; zero is the header of the log, or the whole file.
    pub frame: u64,
    /// Number of synced frames that cannot be read in order, as far as it is known. Frames are pages, not events.
    pub frames_lost: u64,
    /// Frame up to which transactions are known to be synced; those that verify can be recovered.
    pub(crate) synced: u64,
    pub why: String,
}

impl std::fmt::Display for LogDamage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.why)
    }
}

/// Compares the log of a directory with what is known to be synced (I6). Changes nothing.
pub(crate) fn examine(directory: &Path) -> Result<(WalContents, Option<LogDamage>), StoreError> {
    let mark = SyncMark::read(directory);
    let log = WalContents::read(directory)?;
    let damage = find_damage(&log, mark.as_ref());
    Ok((log, damage))
}

fn find_damage(log: &WalContents, mark: Option<&SyncMark>) -> Option<LogDamage> {
    let committed = log.committed() as u64;
    let mark = mark.filter(|mark| !mark.is_closed);
    let name = format!("{DATABASE}-wal");
    let Some(salts) = log.salts else {
        let marked = mark.map_or(0, |mark| mark.frames);
        let follow = log.frames.iter().filter(|frame| frame.follows).count();
        if log.bytes == 0 || (log.is_blank && follow == 0) {
            let why = format!("{name} is missing or empty, and {marked} frames in it were acknowledged");
            return mark.map(|_| LogDamage { frame: 0, frames_lost: marked, synced: marked, why });
        }
        let why = format!("the header of {name} has a wrong checksum, and {follow} frames follow it");
        let synced = marked.max(log.last_commit_in_a_row()).max(log.synced_behind_bad().unwrap_or(0) as u64);
        return (synced > 0).then_some(LogDamage { frame: 0, frames_lost: synced, synced, why });
    };
    let marked = match mark {
        Some(mark) if mark.salts == salts => mark.frames,
        Some(mark) if !mark.is_before(salts) => {
            let why = format!("{name} is not the one in which {} frames were acknowledged", mark.frames);
            return Some(LogDamage { frame: 0, frames_lost: mark.frames, synced: committed, why });
        }
        _ => 0,
    };
    let synced = marked.max(log.synced_behind_bad().unwrap_or(0) as u64);
    (synced > committed).then(|| {
        let bad = log.frames.iter().position(|frame| !frame.follows).map_or(log.frames.len() as u64, |at| at as u64) + 1;
        let frames_lost = synced - committed;
        let why = format!(
            "frame {bad} of {name} does not have its checksum or is missing; the {frames_lost} frames from frame {} on were synced and \
             cannot be read in order",
            committed + 1
        );
        LogDamage { frame: bad, frames_lost, synced, why }
    })
}

/// Returns whether the log of a database contains a page: then the page in the file, which a copy may have left incomplete, is
/// not read.
pub(crate) fn has_page(database: &Path, page: u32) -> Result<bool, StoreError> {
    let log = WalContents::read(database.parent().unwrap_or(database))?;
    Ok(log.frames[..log.committed()].iter().any(|frame| frame.page == page))
}

/// Truncates uncommitted frames of the log and syncs the rest (I7). Only under the directory lock, and before SQLite opens it.
pub(crate) fn settle(directory: &Path, log: &WalContents) -> Result<(), StoreError> {
    let Some(salts) = log.salts else { return Ok(()) };
    let committed = log.committed();
    let has_tail = log.frames[committed..].iter().any(|frame| frame.salts == salts);
    if log.frames.is_empty() || (committed == 0 && !has_tail) {
        return Ok(());
    }
    let path = path(directory);
    let work = || -> std::io::Result<()> {
        let file = OpenOptions::new().write(true).open(&path)?;
        if has_tail {
            file.set_len(HEADER_BYTES + committed as u64 * FRAME_BYTES)?;
        }
        file.sync_all()
    };
    work().map_err(|error| unusable(&path, &error))
}

pub(crate) fn path(directory: &Path) -> PathBuf {
    directory.join(format!("{}-wal", schema::DATABASE))
}

#[cfg(test)]
mod tests;

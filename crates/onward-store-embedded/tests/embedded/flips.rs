//! Bytes of the write-ahead log that change after a kill: acknowledged writes survive, or their loss is reported (I6, F5).

use std::path::{Path, PathBuf};

use onward_core::Index;
use onward_store::Store;
use onward_store::conformance::block_on;
use onward_store_embedded::{EmbeddedStore, Options};

use crate::crash::run_child;
use crate::damage::copy;
use crate::random::{Random, rounds};
use crate::workload::{expected, key, new_run, open, remember};

/// Returns the directory of a killed process, with the number of steps that it had acknowledged.
pub fn killed(point: &str) -> (tempfile::TempDir, u64) {
    let directory = tempfile::tempdir().unwrap();
    let ended = run_child("write", directory.path(), &[("ONWARD_FAILPOINT", point)]);
    assert!(ended.answered > 5, "{point}: {}", ended.last_line);
    (directory, ended.answered)
}

pub fn flip(file: &Path, at: usize, bits: u8) {
    let mut bytes = std::fs::read(file).unwrap();
    bytes[at] ^= bits;
    std::fs::write(file, bytes).unwrap();
}

fn log(directory: &Path) -> PathBuf {
    directory.join("onward.db-wal")
}

/// Returns the end of the last frame of the log: behind it is what an earlier round of the file left.
fn log_end(directory: &Path) -> usize {
    let bytes = std::fs::read(log(directory)).unwrap();
    let frames = bytes[32..].chunks_exact(8_216).take_while(|frame| frame[8..16] == bytes[16..24]).count();
    assert!(frames > 3, "{frames}");
    32 + frames * 8_216
}

/// Opens a damaged directory: it reports the damage, refuses writes and can be read.
#[track_caller]
fn assert_damaged(directory: &Path) {
    for store in [EmbeddedStore::open(directory, Options::default()), EmbeddedStore::open_read_only(directory)] {
        let store = store.unwrap();
        let damage = store.damage().expect("the damage is reported").clone();
        assert!(damage.frames_lost > 0, "{damage}");
        let refused = block_on(store.start_run(new_run("new"), None)).unwrap_err();
        assert_eq!(refused.code(), "store_damaged");
        assert!(refused.to_string().contains(&damage.why), "{refused}");
        assert!(refused.hint().unwrap().contains("onward doctor --repair"));
        assert_eq!(store.stopped(), Some(damage.why));
        // Reads return what is readable; nothing panics.
        if let Err(error) = block_on(store.read_log(key("r0"), None, Index(0), 10)) {
            assert!(["run_not_found", "log_corrupt", "store_corrupt"].contains(&error.code()), "{error}");
        }
    }
    assert!(EmbeddedStore::examine(directory).unwrap().is_some());
}

fn contents(directory: &Path) -> [Vec<u8>; 2] {
    ["onward.db", "onward.db-wal"].map(|name| std::fs::read(directory.join(name)).unwrap_or_default())
}

#[test]
fn a_flipped_byte_in_the_log_of_a_killed_process_is_never_a_shorter_history() {
    let mut random = Random::seeded("flips of the write-ahead log");
    let points = ["after_reply:58", "before_reply:61", "before_checkpoint:3", "after_checkpoint:3"];
    let killed: Vec<_> = points.map(killed).into();
    for round in 0..rounds(40, 600) {
        let (original, answered) = &killed[round as usize % killed.len()];
        let directory = copy(original.path());
        let file = log(directory.path());
        let length = std::fs::metadata(&file).unwrap().len();
        let at = random.below(length) as usize;
        flip(&file, at, 1 << random.below(8));
        let before = contents(directory.path());
        if EmbeddedStore::examine(directory.path()).unwrap().is_some() {
            assert_damaged(directory.path());
            assert_eq!(contents(directory.path()), before, "a damaged directory is not changed");
            if round % 4 == 0 {
                crate::repair::assert_repaired(directory.path(), &[expected(*answered), expected(answered + 1)]);
            }
            continue;
        }
        // Unused bytes: frames of an earlier round of the log, or of an unacknowledged commit.
        let found = remember(&open(directory.path()));
        assert!(found == expected(*answered) || found == expected(answered + 1), "round {round}: byte {at} of {length}");
    }
}

/// Only the mark shows it: nothing follows the last commit.
#[test]
fn a_flipped_byte_in_the_last_acknowledged_commit_is_damage() {
    let (original, _) = killed("after_reply:58");
    let end = log_end(original.path());
    for back in [1, 4_000, 8_100, 8_192, 8_200, 8_216] {
        let directory = copy(original.path());
        flip(&log(directory.path()), end - back, 0x10);
        assert_damaged(directory.path());
    }
}

#[test]
fn a_log_that_is_gone_cut_or_begins_with_other_bytes_is_damage() {
    let (original, answered) = killed("after_reply:58");
    let end = log_end(original.path());
    for kept in [0, 31, 32, 4_000, 32 + 8_216, end - 8_216, end - 1] {
        let directory = copy(original.path());
        std::fs::OpenOptions::new().write(true).open(log(directory.path())).unwrap().set_len(kept as u64).unwrap();
        assert_damaged(directory.path());
    }
    let directory = copy(original.path());
    std::fs::remove_file(log(directory.path())).unwrap();
    assert_damaged(directory.path());
    for at in [0, 5, 11, 17, 22, 29] {
        let directory = copy(original.path());
        flip(&log(directory.path()), at, 1);
        assert_damaged(directory.path());
    }
    // Files that SQLite recreates, or that are only evidence.
    for name in ["onward.db-shm", "onward.synced"] {
        let directory = copy(original.path());
        flip(&directory.path().join(name), 20, 1);
        assert_eq!(remember(&open(directory.path())), expected(answered), "{name}");
        let directory = copy(original.path());
        std::fs::remove_file(directory.path().join(name)).unwrap();
        assert_eq!(remember(&open(directory.path())), expected(answered), "{name}");
    }
}

/// Without the mark, a flip before the last two commits is still detected by the frames that follow.
#[test]
fn a_flipped_byte_is_found_without_the_mark_if_later_commits_follow() {
    let (original, _) = killed("after_reply:58");
    std::fs::remove_file(original.path().join("onward.synced")).unwrap();
    let end = log_end(original.path());
    for part in 0..4 {
        let directory = copy(original.path());
        flip(&log(directory.path()), 32 + (end - 32) / 12 * part + 77, 0x10);
        assert_damaged(directory.path());
    }
}

/// A store that is closed while another process reads keeps its log; one that is killed while closing is complete.
#[test]
fn a_log_that_a_reader_held_back_is_there_at_the_next_opening() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    block_on(store.start_run(new_run("r"), None)).unwrap();
    let reader = rusqlite::Connection::open(directory.path().join("onward.db")).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM runs;").unwrap();
    block_on(store.start_run(new_run("s"), None)).unwrap();
    drop(store);
    assert!(log(directory.path()).exists());
    let store = open(directory.path());
    assert_eq!(remember(&store).runs.len(), 2);
    drop(reader);
    drop(store);
    assert!(!log(directory.path()).exists());
    assert_eq!(remember(&open(directory.path())).runs.len(), 2);
}

/// A frame has a 64-bit checksum, by which a single changed byte is found and corrected.
#[test]
fn one_flipped_byte_in_a_frame_costs_nothing_after_a_repair() {
    let (original, answered) = killed("after_reply:58");
    let frames = (log_end(original.path()) - 32) / 8_216;
    // Page number, commit, salts, checksum, and bytes of the page.
    for (turn, offset) in [0, 3, 7, 8, 13, 16, 19, 20, 23, 24, 28, 31, 100, 4_000, 8_191, 8_215].into_iter().enumerate() {
        for frame in [turn % 3, turn * 7 % frames, frames - 1] {
            let directory = copy(original.path());
            flip(&log(directory.path()), 32 + frame * 8_216 + offset, 0x81);
            assert_damaged(directory.path());
            let repaired = EmbeddedStore::repair(directory.path()).unwrap();
            assert!(repaired.lost.is_empty(), "byte {offset} of frame {frame}: {:?}", repaired.lost);
            assert!(repaired.is_log_restored, "byte {offset} of frame {frame}");
            let found = remember(&open(directory.path()));
            assert_eq!(found, expected(answered), "byte {offset} of frame {frame} of {frames}");
        }
    }
}

/// More than one changed byte of a frame cannot be corrected: the rows of the page that verify are kept, and an earlier frame has
/// the others.
#[test]
fn rows_of_a_damaged_frame_that_verify_are_kept() {
    let original = tempfile::tempdir().unwrap();
    let store = open(original.path());
    let started = 30;
    (0..started).for_each(|run| drop(block_on(store.start_run(new_run(&format!("only-{run:02}")), None)).unwrap()));
    let directory = copy(original.path());
    drop(store);
    // The last frame of each leaf of a table has rows that no other frame has.
    let bytes = std::fs::read(log(directory.path())).unwrap();
    let mut last = std::collections::BTreeMap::new();
    for (number, frame) in bytes[32..].chunks_exact(8_216).enumerate().take_while(|(_, frame)| frame[8..16] == bytes[16..24]) {
        if frame[24] == 0x0d && u16::from_be_bytes([frame[27], frame[28]]) > 20 {
            last.insert(frame[..4].to_vec(), number);
        }
    }
    assert!(last.len() >= 2, "{last:?}");
    for number in last.into_values() {
        let frame = 32 + number * 8_216;
        // In the row that was written first, at the end of the page.
        flip(&log(directory.path()), frame + 24 + 8_180, 0x55);
        flip(&log(directory.path()), frame + 24 + 8_170, 0x55);
    }
    let repaired = EmbeddedStore::repair(directory.path()).unwrap();
    assert!(repaired.lost.is_empty(), "{:?}", repaired.lost);
    assert!(!repaired.is_log_restored, "two frames have unknown bytes");
    assert_eq!(remember(&open(directory.path())).runs.len(), started);
}

//! Tests of the parent module.

use super::*;

const SALTS: [u8; 8] = [0, 0, 0, 7, 1, 2, 3, 4];

fn header() -> Vec<u8> {
    let mut header = Vec::new();
    for word in [MAGIC, VERSION, PAGE_BYTES as u32, 0] {
        header.extend_from_slice(&word.to_be_bytes());
    }
    header.extend_from_slice(&SALTS);
    let sum = sum(false, [0, 0], &header);
    header.extend_from_slice(&stored(sum));
    header
}

/// Appends a transaction of `count` frames.
fn append(log: &mut Vec<u8>, count: usize) {
    for at in 0..count {
        let before = eight(log, if log.len() == 32 { 24 } else { log.len() - FRAME_BYTES as usize + 16 });
        let mut frame = vec![0; 8];
        frame[..4].copy_from_slice(&(at as u32 + 3).to_be_bytes());
        frame[4..].copy_from_slice(&(if at + 1 == count { 9u32 } else { 0 }).to_be_bytes());
        let data = vec![log.len() as u8; PAGE_BYTES];
        let sum = sum(false, sum(false, [number(&before, 0), number(&before, 4)], &frame), &data);
        frame.extend_from_slice(&SALTS);
        frame.extend_from_slice(&stored(sum));
        frame.extend_from_slice(&data);
        log.extend_from_slice(&frame);
    }
}

fn admission(bytes: &[u8], mark: Option<SyncMark>) -> (usize, Option<LogDamage>) {
    let log = WalContents::parse(bytes).unwrap();
    (log.committed(), find_damage(&log, mark.as_ref()))
}

fn marked(frames: u64) -> Option<SyncMark> {
    Some(SyncMark { salts: SALTS, frames, ..SyncMark::default() })
}

fn three_transactions() -> Vec<u8> {
    let mut log = header();
    [3, 2, 4].into_iter().for_each(|count| append(&mut log, count));
    log
}

fn frame_at(frame: usize) -> usize {
    HEADER_BYTES as usize + frame * FRAME_BYTES as usize
}

/// S35: whatever the file contains, no more frames are counted than there are.
#[test]
fn a_mutated_log_is_judged_and_never_panics() {
    let counts = onward_testkit::mutate_times("write-ahead logs", 500, &[three_transactions(), header()], |bytes| {
        let log = WalContents::parse(bytes).unwrap();
        assert!(log.committed() <= log.frames.len() && log.frames.len() <= bytes.len() / FRAME_BYTES as usize);
        for mark in [None, marked(9), marked(u64::MAX)] {
            find_damage(&log, mark.as_ref());
        }
        log.salts.is_some()
    });
    assert!(counts.refused > 0, "{counts:?}");
}

#[test]
fn a_whole_log_ends_with_its_last_commit() {
    assert_eq!(admission(&three_transactions(), marked(9)), (9, None));
    let mut torn = three_transactions();
    append(&mut torn, 5);
    torn.truncate(torn.len() - 1);
    assert_eq!(admission(&torn, marked(9)), (9, None));
}

#[test]
fn any_changed_byte_before_the_mark_is_damage() {
    let whole = three_transactions();
    for at in (0..whole.len()).step_by(97).chain(0..32).chain(frame_at(8)..frame_at(8) + 24) {
        let mut changed = whole.clone();
        changed[at] ^= 0x40;
        let damage = admission(&changed, marked(9)).1.unwrap_or_else(|| panic!("byte {at}"));
        assert_eq!(damage.frame, if at < 32 { 0 } else { (at as u64 - 32) / FRAME_BYTES + 1 });
    }
}

/// Without a mark, the evidence is a transaction that was begun after the damaged one.
#[test]
fn a_transaction_behind_the_damaged_one_is_evidence_without_a_mark() {
    for (frame, is_damage) in [(0, true), (1, true), (3, true), (4, false), (5, false), (8, false)] {
        let mut changed = three_transactions();
        changed[frame_at(frame) + 500] ^= 1;
        assert_eq!(admission(&changed, None).1.is_some(), is_damage, "frame {frame}");
    }
}

/// Power loss: the last transaction was written but not synced, and any of its sectors may be missing.
#[test]
fn holes_in_the_last_transaction_are_a_torn_tail() {
    for frame in 5..9 {
        let mut torn = three_transactions();
        torn[frame_at(frame)..frame_at(frame) + 512].fill(0);
        assert_eq!(admission(&torn, marked(5)), (5, None), "frame {frame}");
    }
}

#[test]
fn a_log_that_is_missing_cut_or_of_another_time_is_damage_if_it_was_acknowledged() {
    assert!(admission(&[], None).1.is_none());
    assert!(admission(&[], marked(9)).1.is_some());
    assert!(admission(&[0; 32], marked(9)).1.is_some());
    assert!(admission(&three_transactions()[..frame_at(7)], marked(9)).1.is_some());
    assert!(admission(&three_transactions()[..frame_at(7)], marked(5)).1.is_none());
    let of = |first: u8| Some(SyncMark { salts: [0, 0, 0, first, 9, 9, 9, 9], frames: 2, ..SyncMark::default() });
    assert!(admission(&three_transactions(), of(6)).1.is_none(), "the log was begun again since");
    assert!(admission(&three_transactions(), of(8)).1.is_some(), "the log is from before the mark");
}

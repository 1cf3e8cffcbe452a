//! A buffer in examples, and with random readers against a plain list.

use onward_core::event::{EntryAppended, RunStarted, TaskCompleted};
use onward_core::stream::{AttemptFailed, SequencedFrame};
use onward_core::{Failure, Name, Namespace, Payload, RunId};

use super::*;

fn run() -> RunKey {
    RunKey { namespace: Namespace::default(), id: RunId::new("r").unwrap() }
}

fn task_frames(call_id: u32, claim: u64, seqs: std::ops::Range<u64>) -> TaskFrames {
    let task = TaskId { run: run(), generation: 0, call_id: CallId::root(call_id), incarnation: None };
    let frame = |seq| SequencedFrame { seq, frame: Payload::json(&format!("{call_id}/{claim}/{seq}")).unwrap() };
    TaskFrames { task, claim, attempt: claim as u32, frames: seqs.map(frame).collect() }
}

fn buffer() -> Buffer {
    Buffer::new(7, Timestamp(0))
}

fn words(frames: &[StreamFrame]) -> Vec<String> {
    let word = |frame: &StreamFrame| match &frame.content {
        StreamContent::TaskFrame(task_frame) => task_frame.frame.read().unwrap(),
        StreamContent::AttemptReset(reset) => format!("reset {}", reset.attempt),
        StreamContent::AttemptFailed(failed) => format!("failed {}", failed.attempt),
        StreamContent::TaskEnd(_) => "over".to_owned(),
        StreamContent::Entry(_) => "entry".to_owned(),
        other => format!("{other:?}"),
    };
    frames.iter().map(word).collect()
}

fn all(buffer: &Buffer) -> Vec<String> {
    words(&buffer.read(Offset { incarnation: 7, next: buffer.first }, usize::MAX))
}

fn input(index: u64, event: impl Into<Event>) -> Record {
    Record::input(Index(index), Timestamp(index), event.into())
}

fn completed(index: u64, call_id: u32) -> Record {
    input(index, TaskCompleted { call_id: CallId::root(call_id), output: Payload::null(), attempts: 1, ran: None })
}

fn entry(index: u64) -> Record {
    let (role, content) = (Name::new("assistant").unwrap(), Payload::null());
    let id = onward_core::conversation::entry_id(None, &role, &content);
    input(
        index,
        EntryAppended {
            call_id: CallId::root(9),
            id,
            parent: None,
            role,
            content,
            quote: None,
            is_aside: false,
            idempotency_key: None,
        },
    )
}

fn started() -> Record {
    input(0, RunStarted::new(Name::new("k").unwrap(), Payload::null(), 1))
}

#[test]
fn a_later_claim_resets_and_frames_of_an_earlier_one_are_dropped() {
    let mut buffer = buffer();
    assert!(buffer.push_frames(task_frames(0, 1, 0..2), Timestamp(1), true));
    assert!(buffer.push_frames(task_frames(0, 3, 0..1), Timestamp(1), true));
    assert!(!buffer.push_frames(task_frames(0, 1, 2..3), Timestamp(1), true), "SB3");
    assert!(!buffer.push_frames(task_frames(0, 3, 0..1), Timestamp(1), true), "known already");
    assert!(buffer.push_frames(task_frames(0, 3, 0..2), Timestamp(1), true), "one of them is new");
    assert_eq!(all(&buffer), ["0/1/0", "0/1/1", "reset 3", "0/3/0", "0/3/1"]);
}

#[test]
fn who_speaks_first_takes_nothing_back_whatever_its_claim_is() {
    let mut buffer = buffer();
    // The task was restored, or copied with its run.
    assert!(buffer.push_frames(task_frames(0, 5, 0..1), Timestamp(1), true));
    assert_eq!(all(&buffer), ["0/5/0"]);
    assert!(buffer.push_frames(task_frames(0, 6, 0..1), Timestamp(1), true));
    assert_eq!(all(&buffer), ["0/5/0", "reset 6", "0/6/0"]);
    // An unknown task may have emitted frames that were forgotten.
    for call_id in 1..=TASKS_MAX as u32 {
        buffer.push_frames(task_frames(call_id, 1, 0..1), Timestamp(1), true);
    }
    assert!(buffer.push_frames(task_frames(0, 7, 0..1), Timestamp(1), true));
    assert_eq!(all(&buffer)[TASKS_MAX + 3..], ["reset 7", "0/7/0"]);
}

#[test]
fn a_finished_task_takes_no_frames_and_the_end_of_one_without_frames_is_not_streamed() {
    let mut buffer = buffer();
    buffer.append(0, &started());
    buffer.push_frames(task_frames(0, 1, 0..1), Timestamp(1), true);
    assert!(buffer.append(0, &completed(1, 0)) && buffer.append(0, &completed(2, 1)));
    assert!(!buffer.push_frames(task_frames(0, 2, 0..1), Timestamp(1), true));
    assert_eq!(all(&buffer), ["0/1/0", "over"]);
    // The same record again, as read from the log, and one after a gap.
    assert!(buffer.append(0, &completed(1, 0)));
    assert!(!buffer.append(0, &completed(5, 0)), "there is a gap before it");
    assert_eq!(all(&buffer).len(), 2);
}

/// SB3: another server forwards the frames of an attempt, and the end of the task may be read from the log before they arrive.
#[test]
fn words_that_arrive_after_the_end_of_their_task_are_dropped() {
    let mut buffer = buffer();
    buffer.append(0, &started());
    assert!(buffer.append(0, &completed(1, 0)) && buffer.append(0, &entry(2)));
    assert!(!buffer.push_frames(task_frames(0, 1, 0..2), Timestamp(3), false));
    assert_eq!(all(&buffer), ["entry"]);
}

#[test]
fn an_attempt_fails_once() {
    let mut buffer = buffer();
    let failed = |attempt| AttemptFailed {
        generation: 0,
        task: CallId::root(0),
        attempt,
        attempts_max: 3,
        failure: Failure::retryable("no"),
        next_delay_ms: None,
    };
    for claim in [1, 1, 2, 2] {
        buffer.fail(claim, failed(claim as u32), Timestamp(1));
    }
    buffer.push_frames(task_frames(0, 3, 0..1), Timestamp(1), true);
    buffer.fail(2, failed(2), Timestamp(1));
    // An attempt that fails without frames causes no reset; the next one does.
    buffer.fail(4, failed(4), Timestamp(1));
    buffer.push_frames(task_frames(0, 5, 0..1), Timestamp(1), true);
    assert_eq!(all(&buffer), ["failed 1", "failed 2", "0/3/0", "failed 4", "reset 5", "0/5/0"]);
}

#[test]
fn a_newcomer_begins_behind_what_is_final() {
    let mut buffer = buffer();
    buffer.append(0, &started());
    buffer.push_frames(task_frames(0, 1, 0..2), Timestamp(1), true);
    buffer.append(0, &completed(1, 0));
    buffer.append(0, &entry(2));
    buffer.push_frames(task_frames(1, 1, 0..2), Timestamp(3), true);
    assert_eq!(words(&buffer.read(buffer.beginning(), 10)), ["1/1/0", "1/1/1"]);
}

#[test]
fn what_is_old_or_too_much_is_let_go() {
    let mut buffer = buffer();
    buffer.push_frames(task_frames(0, 1, 0..3), Timestamp(1), true);
    let late = Timestamp(1).after(AGE_MAX * 2);
    buffer.push_frames(task_frames(1, 1, 0..1), late, true);
    assert_eq!(all(&buffer), ["1/1/0"]);
    for n in 0..10_000 {
        buffer.push_frames(task_frames(2, 1, n..n + 1), late, true);
        assert!(buffer.bytes() <= BYTES_MAX); // SB2
    }
    assert!(buffer.frames.len() < 10_000 && !buffer.has(Offset { incarnation: 7, next: 0 }));
    assert!(!buffer.has(Offset { incarnation: 8, next: buffer.next() }), "of another life");
    assert!(!buffer.has(Offset { incarnation: 7, next: buffer.next() + 1 }), "of a future");
}

/// Readers that come and go at random get the frames that a list of all frames has from their position on (SB1).
#[test]
fn readers_that_come_and_go_receive_everything_once() {
    let seed = std::env::var("ONWARD_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0x5eed);
    println!("reproduce with ONWARD_SEED={seed}");
    let mut drawn = 0;
    let mut random = || {
        drawn += 1;
        onward_core::random::derive(seed, &CallId::root(0), drawn)
    };
    for _ in 0..200 {
        let (mut buffer, mut pushed, mut now) = (buffer(), Vec::new(), Timestamp(1));
        let mut readers: Vec<(Offset, usize)> = vec![(buffer.beginning(), 0); 5];
        for seq in 0..300u64 {
            now = now.after(Duration::from_secs(random() % 20));
            buffer.push_frames(task_frames(0, 1, seq..seq + 1), now, true);
            pushed.push(format!("0/1/{seq}"));
            let (offset, position) = &mut readers[(random() % 5) as usize];
            if !buffer.has(*offset) {
                assert!((offset.next as usize) < pushed.len() - buffer.frames.len(), "only a reader that missed frames is reset");
                *offset = buffer.beginning();
                *position = offset.next as usize;
            }
            let limit = (random() % 40) as usize;
            let page = buffer.read(*offset, limit);
            assert_eq!(words(&page), pushed[*position..].iter().take(limit).cloned().collect::<Vec<_>>());
            *position += page.len();
            if let Some(last) = page.last() {
                *offset = Offset::parse(&last.offset).unwrap();
            }
        }
    }
}

fn entry_of(index: u64, parent: Option<Hash>, text: &str) -> (Record, Hash) {
    let (role, content) = (Name::new("assistant").unwrap(), Payload::json(text).unwrap());
    let id = onward_core::conversation::entry_id(parent, &role, &content);
    (
        input(
            index,
            EntryAppended {
                call_id: CallId::root(9),
                id,
                parent,
                role,
                content,
                quote: None,
                is_aside: false,
                idempotency_key: None,
            },
        ),
        id,
    )
}

fn abandoned(index: u64, from: u64) -> Record {
    let divergence = onward_core::event::Divergence {
        index: Index(from),
        recorded: String::new(),
        attempted: String::new(),
        nearest: None,
        hint: String::new(),
    };
    let (to, withdrawn) = (Index(index - 1), Vec::new());
    let event = onward_core::event::SegmentAbandoned { from: Index(from), to, attempt: 1, withdrawn, divergence };
    input(index, event)
}

#[test]
fn an_abandoned_part_of_the_log_names_the_entry_that_it_continues_after() {
    let (first, kept) = entry_of(1, None, "kept");
    let (second, _) = entry_of(2, Some(kept), "left");
    let leaf = |buffer: &Buffer| match &buffer.frames.back().unwrap().content {
        StreamContent::BranchReset(reset) => reset.leaf,
        other => panic!("{other:?}"),
    };
    let mut live = buffer();
    for record in [&started(), &first, &second, &abandoned(3, 2)] {
        assert!(live.append(0, record));
    }
    assert_eq!(leaf(&live), Some(kept));
    // A stream that was created in between learns the rest from a reader of the log.
    let mut late = buffer();
    late.append(0, &second);
    late.learn(0, &[started(), first, second]);
    late.append(0, &abandoned(3, 2));
    assert_eq!(leaf(&late), Some(kept));
}

/// Only the server where an attempt runs has all its frames.
#[test]
fn frames_that_another_server_forwarded_are_not_sent_again_from_here() {
    let mut buffer = Buffer::new(1, Timestamp(0));
    assert!(buffer.push_frames(task_frames(0, 1, 0..3), Timestamp(1), false));
    assert!(buffer.push_frames(task_frames(1, 1, 0..2), Timestamp(1), true));
    let open_attempts: Vec<_> = buffer
        .open_attempts(&run())
        .into_iter()
        .map(|task_frames| (task_frames.task.call_id, task_frames.frames.len()))
        .collect();
    assert_eq!(open_attempts, [(CallId::root(1), 2)]);
}

/// S35.
#[test]
fn mutated_offsets_are_refused_or_read_back_and_never_panic() {
    let samples = [Offset { incarnation: 9, next: 7 }.to_string().into_bytes()];
    let counts = onward_testkit::mutate("offsets", &samples, |bytes| {
        let Some(offset) = std::str::from_utf8(bytes).ok().and_then(Offset::parse) else { return false };
        assert_eq!(Offset::parse(&offset.to_string()), Some(offset));
        true
    });
    counts.assert_refuses();
}

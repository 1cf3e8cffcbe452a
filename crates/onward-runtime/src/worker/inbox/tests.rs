//! Inputs that arrive too late for a slot.

use std::sync::atomic::AtomicUsize;

use onward_core::event::{RunStarted, SignalReceived};
use onward_core::run::Input;
use onward_core::{Name, Namespace, Payload, RunId, Timestamp, WorkerId};

use super::*;
use crate::worker::profile::WorkerProfile;

#[derive(Default)]
struct RecordingInbox {
    records: Mutex<Vec<Record>>,
    lost: AtomicUsize,
}

impl Inbox for RecordingInbox {
    fn push(&self, record: Record) {
        lock(&self.records).push(record);
    }

    fn lost(&self) {
        self.lost.fetch_add(1, Ordering::SeqCst);
    }

    fn ask(&self, question: Question) -> Result<(), Question> {
        Err(question)
    }
}

fn worker() -> Arc<Worker> {
    let profile = WorkerProfile {
        id: WorkerId::new("w").unwrap(),
        namespace: Namespace::default(),
        knows: Arc::default(),
        current: Arc::default(),
        task_kinds: Arc::default(),
        task_limits: Arc::default(),
        queues: Vec::new(),
        runs_max: 10,
        is_remote: false,
    };
    Arc::new(Worker::new(profile, Timestamp(0)))
}

/// Returns a run at the start of a generation, and its first record.
fn claimed(generation: u32, epoch: u64) -> ClaimedRun {
    let key = RunKey::new(Namespace::default(), RunId::new("r").unwrap());
    let started = RunStarted::new(Name::new("k").unwrap(), Payload::from_json_text("1".to_owned()), 7);
    let (head, first) = RunHead::start(key, started, Timestamp(0));
    ClaimedRun { head: RunHead { generation, epoch: Epoch(epoch), ..head }, records: Some(vec![first]) }
}

/// Returns the records of `count` signals that follow.
fn signals(head: &RunHead, count: usize) -> Vec<Record> {
    let mut head = head.clone();
    let signal = || {
        let (name, payload) = (Name::new("s").unwrap(), Payload::from_json_text("1".to_owned()));
        Input::signal(SignalReceived { name, payload, signal_id: None, sender: None })
    };
    (0..count).map(|_| head.admit_input(signal(), None, Timestamp(0)).unwrap().record).collect()
}

fn admit(inboxes: &Inboxes, worker: &Arc<Worker>, run: &ClaimedRun) -> Arc<RecordingInbox> {
    inboxes.begin_claim().end(&mut [run.clone()], worker.take_permits(1));
    let inbox = Arc::new(RecordingInbox::default());
    inboxes.open(&run.head.key, run.head.epoch, inbox.clone());
    inbox
}

/// Between a read and its reply the run continued in its next generation at the same worker: the records belong to another log
/// than the one in memory.
#[test]
fn what_was_read_of_an_earlier_generation_is_not_pushed_to_the_next_one() {
    let (inboxes, worker) = (Inboxes::default(), worker());
    let (before, after) = (claimed(0, 1), claimed(1, 2));
    let since = RunUpdate { generation: 0, head: after.head.clone(), records: signals(&before.head, 3) };
    admit(&inboxes, &worker, &before);
    let inbox = admit(&inboxes, &worker, &after);
    inboxes.caught_up(&since);
    assert_eq!(lock(&inbox.records).len(), 0, "B2");
    let own = RunUpdate { generation: 1, head: after.head.clone(), records: signals(&after.head, 2) };
    inboxes.caught_up(&own);
    assert_eq!(*lock(&inbox.records), own.records);
}

/// Records of this process without a gap are not read again; after a record of another process, everything is until it was read
/// (B4).
#[test]
fn only_what_others_may_have_written_is_read() {
    let (inboxes, worker) = (Inboxes::default(), worker());
    let run = claimed(0, 1);
    let inbox = admit(&inboxes, &worker, &run);
    let records = signals(&run.head, 5);
    let next_index = || inboxes.known(None)[0].next;
    inboxes.committed(&run.head, &records[0]);
    inboxes.appended(&run.head, &records[1]);
    assert_eq!(next_index(), records[2].index);
    // The third one was appended elsewhere without a notification.
    inboxes.committed(&run.head, &records[3]);
    assert_eq!(next_index(), records[2].index);
    let (other, later) = (RunHead { generation: 1, ..run.head.clone() }, RunHead { epoch: Epoch(2), ..run.head.clone() });
    for head in [other, later] {
        inboxes.committed(&head, &records[2]);
        assert_eq!(next_index(), records[2].index, "another log, or another claim");
    }
    inboxes.caught_up(&RunUpdate { generation: 0, head: run.head.clone(), records: records[2..4].to_vec() });
    inboxes.committed(&run.head, &records[4]);
    assert_eq!(next_index(), records[4].next_index());
    assert_eq!(*lock(&inbox.records), records[1..4].to_vec());
}

/// An input that is notified after the commit that followed it still has to be pushed.
#[test]
fn an_input_that_was_overtaken_is_read_or_pushed() {
    let (inboxes, worker) = (Inboxes::default(), worker());
    let run = claimed(0, 1);
    let inbox = admit(&inboxes, &worker, &run);
    let records = signals(&run.head, 3);
    inboxes.appended(&run.head, &records[1]);
    inboxes.appended(&run.head, &records[0]);
    assert_eq!(inboxes.known(None)[0].next, records[0].index);
    inboxes.caught_up(&RunUpdate { generation: 0, head: run.head.clone(), records: records.clone() });
    assert_eq!(*lock(&inbox.records), [&records[1], &records[0], &records[1], &records[2]].map(Clone::clone));
}

/// A reply that arrives after a later one is ignored.
#[test]
fn what_was_read_earlier_and_comes_later_is_not_pushed_again() {
    let (inboxes, worker) = (Inboxes::default(), worker());
    let run = claimed(0, 1);
    let inbox = admit(&inboxes, &worker, &run);
    let since = |count| RunUpdate { generation: 0, head: run.head.clone(), records: signals(&run.head, count) };
    for count in [3, 1, 3] {
        inboxes.caught_up(&since(count));
    }
    assert_eq!(*lock(&inbox.records), since(3).records);
}

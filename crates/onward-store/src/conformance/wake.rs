//! CE8, CE14, CE15: inputs that arrive while a worker is busy are neither lost nor do they block it.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use onward_core::task::TaskOptions;
use onward_core::{Index, Status};

use super::harness::{Harness, completed, key, seconds, send_many, settled, signal, task, timer};
use crate::{Change, Listener};

pub async fn a_commit_that_waits_over_an_unread_input_leaves_the_run_pending(mut harness: Harness) {
    let mut held = harness.start_held("r").await;
    harness.append("r", signal(None)).await.unwrap();
    assert_eq!(harness.commit(&mut held, vec![settled()]).await.status, Status::Pending);
    harness.store().release_run(key("r"), held.head.epoch).await.unwrap();
    harness.reopen();
    harness.claim_one("v").await;
}

pub async fn a_commit_that_waits_with_everything_read_waits(harness: Harness) {
    let mut held = harness.start_held("r").await;
    harness.append("r", signal(None)).await.unwrap();
    harness.read_on(&mut held).await;
    assert_eq!(harness.commit(&mut held, vec![settled()]).await.status, Status::Waiting);
    harness.store().release_run(key("r"), held.head.epoch).await.unwrap();
    assert_eq!(harness.claim("v").await, []);
}

pub async fn an_input_wakes_a_waiting_run(mut harness: Harness) {
    let mut held = harness.start_held("r").await;
    harness.commit(&mut held, vec![settled()]).await;
    harness.store().release_run(key("r"), held.head.epoch).await.unwrap();
    harness.reopen();
    assert!(harness.append("r", signal(None)).await.unwrap().woke);
    assert!(!harness.append("r", signal(None)).await.unwrap().woke);
    harness.claim_one("v").await;
}

pub async fn a_storm_of_signals_starves_no_commit(harness: Harness) {
    let mut held = harness.start_held("r").await;
    for _ in 0..20 {
        harness.append("r", signal(None)).await.unwrap();
        harness.append("r", signal(None)).await.unwrap();
        harness.commit(&mut held, vec![settled()]).await;
    }
    harness.read_on(&mut held).await;
    harness.commit(&mut held, vec![completed()]).await;
    let log = harness.log("r").await;
    assert_eq!(log.iter().filter(|event| **event == "signal_received").count(), 40);
}

pub async fn listeners_hear_of_records_in_order(harness: Harness) {
    let received = Arc::new(Recorder::default());
    harness.store().subscribe(received.clone());
    harness.start("r").await;
    let senders: Vec<_> = (0..4)
        .map(|_| {
            let store = harness.store();
            std::thread::spawn(move || send_many(&*store, 25))
        })
        .collect();
    senders.into_iter().for_each(|sender| sender.join().unwrap());
    let received = received.wait_for(|received| received.indexes.len() == 101);
    assert_eq!(received.indexes, (0..101).map(Index).collect::<Vec<_>>());
}

pub async fn listeners_hear_of_pending_runs_queued_tasks_due_times_and_deliveries(harness: Harness) {
    let recorder = Arc::new(Recorder::default());
    harness.store().subscribe(recorder.clone());
    harness.start("r").await;
    recorder.wait_for(|received| received.pending == 1);
    let mut held = harness.claim_one("w").await;
    // Before the end of the worker's session.
    let due = harness.now().after(seconds(5));
    harness.commit(&mut held, vec![task(0, TaskOptions::default()), timer(1, due), child(2)]).await;
    recorder.wait_for(|received| received.queued == 1 && received.due.contains(&due) && received.outbox_messages == 1);
    harness.append("r", signal(None)).await.unwrap();
    harness.store().release_run(key("r"), held.head.epoch).await.unwrap();
    recorder.wait_for(|received| received.pending == 2);
}

fn child(ordinal: u32) -> onward_core::Event {
    super::harness::child("r/c", ordinal, onward_core::event::OnParentClose::Cancel)
}

#[derive(Clone, Default)]
struct ReceivedChanges {
    indexes: Vec<Index>,
    pending: usize,
    queued: usize,
    due: Vec<onward_core::Timestamp>,
    outbox_messages: usize,
}

#[derive(Default)]
struct Recorder {
    received: Mutex<ReceivedChanges>,
    changed: Condvar,
}

impl Recorder {
    /// Waits for notifications, which a store sends on its own thread. The timeout only ends a failing test.
    fn wait_for(&self, done: impl Fn(&ReceivedChanges) -> bool) -> ReceivedChanges {
        let received = self.received.lock().unwrap();
        let (received, limit) =
            self.changed.wait_timeout_while(received, Duration::from_secs(300), |received| !done(received)).unwrap();
        assert!(!limit.timed_out(), "listeners received {} records, {} runs", received.indexes.len(), received.pending);
        received.clone()
    }
}

impl Listener for Recorder {
    fn changed(&self, change: &Change) {
        let mut received = self.received.lock().unwrap();
        match change {
            Change::Appended { record, .. } => received.indexes.push(record.index),
            Change::RunPending { .. } => received.pending += 1,
            Change::TaskQueued { .. } => received.queued += 1,
            Change::DueAt(at) => received.due.push(*at),
            Change::OutboxGrew => received.outbox_messages += 1,
            Change::HeldBack { .. } => {}
            // Remote changes.
            Change::Elsewhere { .. } | Change::WorkElsewhere { .. } | Change::Broadcast { .. } | Change::Missed => {}
        }
        self.changed.notify_all();
    }
}

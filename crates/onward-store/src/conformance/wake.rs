//! CE8, CE14, CE15: inputs that arrive while a worker is busy are neither lost nor do they block it.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use onward_core::task::TaskOptions;
use onward_core::{Index, Status};

use super::kit::{Kit, send_many, completed, key, seconds, settled, signal, task, timer};
use crate::{Change, Listener};

pub async fn a_commit_that_waits_over_an_unread_input_leaves_the_run_pending(mut kit: Kit) {
    let mut held = kit.start_held("r").await;
    kit.append("r", signal(None)).await.unwrap();
    assert_eq!(kit.commit(&mut held, vec![settled()]).await.status, Status::Pending);
    kit.store().release_run(key("r"), held.head.epoch).await.unwrap();
    kit.reopen();
    kit.claim_one("v").await;
}

pub async fn a_commit_that_waits_with_everything_read_waits(kit: Kit) {
    let mut held = kit.start_held("r").await;
    kit.append("r", signal(None)).await.unwrap();
    kit.read_on(&mut held).await;
    assert_eq!(kit.commit(&mut held, vec![settled()]).await.status, Status::Waiting);
    kit.store().release_run(key("r"), held.head.epoch).await.unwrap();
    assert_eq!(kit.claim("v").await, []);
}

pub async fn an_input_wakes_a_waiting_run(mut kit: Kit) {
    let mut held = kit.start_held("r").await;
    kit.commit(&mut held, vec![settled()]).await;
    kit.store().release_run(key("r"), held.head.epoch).await.unwrap();
    kit.reopen();
    assert!(kit.append("r", signal(None)).await.unwrap().woke);
    assert!(!kit.append("r", signal(None)).await.unwrap().woke);
    kit.claim_one("v").await;
}

pub async fn a_storm_of_signals_starves_no_commit(kit: Kit) {
    let mut held = kit.start_held("r").await;
    for _ in 0..20 {
        kit.append("r", signal(None)).await.unwrap();
        kit.append("r", signal(None)).await.unwrap();
        kit.commit(&mut held, vec![settled()]).await;
    }
    kit.read_on(&mut held).await;
    kit.commit(&mut held, vec![completed()]).await;
    let log = kit.log("r").await;
    assert_eq!(log.iter().filter(|event| **event == "signal_received").count(), 40);
}

pub async fn listeners_hear_of_records_in_order(kit: Kit) {
    let heard = Arc::new(Recorder::default());
    kit.store().subscribe(heard.clone());
    kit.start("r").await;
    let senders: Vec<_> = (0..4)
        .map(|_| {
            let store = kit.store();
            std::thread::spawn(move || send_many(&*store, 25))
        })
        .collect();
    senders.into_iter().for_each(|sender| sender.join().unwrap());
    let heard = heard.wait_for(|heard| heard.indexes.len() == 101);
    assert_eq!(heard.indexes, (0..101).map(Index).collect::<Vec<_>>());
}

pub async fn listeners_hear_of_pending_runs_queued_tasks_due_times_and_deliveries(kit: Kit) {
    let recorder = Arc::new(Recorder::default());
    kit.store().subscribe(recorder.clone());
    kit.start("r").await;
    recorder.wait_for(|heard| heard.pending == 1);
    let mut held = kit.claim_one("w").await;
    // Before the end of the worker's session.
    let due = kit.now().after(seconds(5));
    kit.commit(&mut held, vec![task(0, TaskOptions::default()), timer(1, due), child(2)]).await;
    recorder.wait_for(|heard| heard.queued == 1 && heard.due.contains(&due) && heard.outbox_messages == 1);
    kit.append("r", signal(None)).await.unwrap();
    kit.store().release_run(key("r"), held.head.epoch).await.unwrap();
    recorder.wait_for(|heard| heard.pending == 2);
}

fn child(ordinal: u32) -> onward_core::Event {
    super::kit::child("r/c", ordinal, onward_core::event::OnParentClose::Cancel)
}

#[derive(Clone, Default)]
struct Heard {
    indexes: Vec<Index>,
    pending: usize,
    queued: usize,
    due: Vec<onward_core::Timestamp>,
    outbox_messages: usize,
}

#[derive(Default)]
struct Recorder {
    heard: Mutex<Heard>,
    changed: Condvar,
}

impl Recorder {
    /// Waits for notifications, which a store sends on its own thread. The timeout only ends a failing test.
    fn wait_for(&self, done: impl Fn(&Heard) -> bool) -> Heard {
        let heard = self.heard.lock().unwrap();
        let (heard, limit) = self.changed.wait_timeout_while(heard, Duration::from_secs(300), |heard| !done(heard)).unwrap();
        assert!(!limit.timed_out(), "listeners received {} records, {} runs", heard.indexes.len(), heard.pending);
        heard.clone()
    }
}

impl Listener for Recorder {
    fn changed(&self, change: &Change) {
        let mut heard = self.heard.lock().unwrap();
        match change {
            Change::Appended { record, .. } => heard.indexes.push(record.index),
            Change::RunPending { .. } => heard.pending += 1,
            Change::TaskQueued { .. } => heard.queued += 1,
            Change::DueAt(at) => heard.due.push(*at),
            Change::OutboxGrew => heard.outbox_messages += 1,
            Change::Elsewhere { .. } | Change::WorkElsewhere { .. } | Change::Broadcast { .. } | Change::Missed => {} // remote changes
        }
        self.changed.notify_all();
    }
}

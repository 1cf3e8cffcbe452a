//! The system clock is set while workers hold runs and tasks (F9).

use std::sync::Arc;
use std::time::Duration;

use onward_core::event::{TaskScheduled, TimerStarted};
use onward_core::run::Commit;
use onward_core::task::{Task, TaskOptions, TaskReport};
use onward_core::{CallId, Hash, WorkerId};
use onward_store::conformance::{HeldRun, block_on};
use onward_store::{ClaimTasks, Clock, ManualClock, Store};
use onward_store_embedded::{EmbeddedStore, Options};

use crate::workload::{json, name};

const DAY_MS: i64 = 86_400_000;
const LEASE: Duration = Duration::from_secs(30);

struct Site {
    clock: Arc<ManualClock>,
    store: EmbeddedStore,
    task: Task,
    _directory: tempfile::TempDir,
}

fn worker() -> WorkerId {
    WorkerId::new("w").unwrap()
}

/// Returns a store with a worker that holds a run with a timer of one hour, and a task of that run.
fn site() -> Site {
    let (directory, clock) = (tempfile::tempdir().unwrap(), Arc::new(ManualClock::default()));
    let store = EmbeddedStore::open(directory.path(), Options { clock: clock.clone(), ..Options::default() }).unwrap();
    block_on(store.heartbeat(worker(), LEASE)).unwrap();
    let started = block_on(store.start_run(crate::workload::new_run("r"), Some(worker()))).unwrap();
    let held = HeldRun::new(&started.claimed.unwrap());
    let input = json("1");
    let task = TaskScheduled {
        call_id: CallId::root(0),
        kind: name("mail"),
        input_hash: Hash::of(&input),
        input,
        options: TaskOptions::default(),
    };
    let timer = TimerStarted { call_id: CallId::root(1), due_at: clock.now().after(Duration::from_secs(3_600)) };
    let commit = held.commit(vec![task.into(), timer.into()]);
    block_on(store.commit(Commit { waits: false, ..commit })).unwrap();
    let (queues, kinds) = (vec![None], Arc::new(vec![name("mail")]));
    let request = ClaimTasks { worker: worker(), namespace: Default::default(), queues, kinds, limit: 1, lease: LEASE };
    let task = block_on(store.claim_tasks(request)).unwrap().pop().unwrap();
    Site { clock, store, task, _directory: directory }
}

impl Site {
    /// Expires what is due; returns the numbers of fired timers, expired tasks and lost workers.
    fn expire(&self) -> (u64, u64, u64) {
        let expired = block_on(self.store.expire(100)).unwrap();
        let due = expired.next_due.map(|due| due.since(self.clock.now()));
        assert!(due.is_none_or(|due| !due.is_zero()), "nothing is due at once");
        (expired.timers_fired, expired.tasks_expired, expired.workers_lost)
    }

    fn beat(&self) {
        assert!(block_on(self.store.heartbeat(worker(), LEASE)).unwrap(), "the worker is known");
        let beat = TaskReport::Heartbeat { progress: None };
        block_on(self.store.report_task(self.task.id.clone(), self.task.claim, beat, LEASE)).unwrap();
    }
}

#[test]
fn a_clock_that_is_set_forward_fires_timers_and_takes_no_lease() {
    let site = site();
    site.clock.jump(DAY_MS);
    assert_eq!(site.expire(), (1, 0, 0), "the timer is due, and the session has not ended");
    for _ in 0..10 {
        site.clock.advance(LEASE / 3);
        assert_eq!(site.expire(), (0, 0, 0));
        site.beat();
    }
    // A silent worker is lost after its lease, with everything it held.
    site.clock.advance(LEASE + Duration::from_secs(1));
    assert_eq!(site.expire(), (0, 1, 1));
}

#[test]
fn a_worker_that_dies_when_the_clock_is_set_forward_is_noticed_after_its_lease() {
    let site = site();
    site.clock.jump(DAY_MS);
    assert_eq!(site.expire(), (1, 0, 0));
    site.clock.advance(LEASE + Duration::from_secs(1));
    assert_eq!(site.expire(), (0, 1, 1));
}

#[test]
fn a_clock_that_is_set_back_keeps_no_dead_worker_alive() {
    let site = site();
    site.clock.jump(-3_600_000);
    site.clock.advance(LEASE + Duration::from_secs(1));
    let expired = block_on(site.store.expire(100)).unwrap();
    assert_eq!((expired.timers_fired, expired.workers_lost), (0, 1), "its runs are free; the timer is not due");
}

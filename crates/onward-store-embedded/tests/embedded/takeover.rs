//! Tasks that a dead process held are free at once at the next opening, if none of its workers can have survived.

use std::sync::Arc;
use std::time::Duration;

use onward_core::WorkerId;
use onward_core::task::{LOST_WORKERS_MAX, Task, TaskReport};
use onward_store::conformance::block_on;
use onward_store::{ClaimTasks, ManualClock, Store};
use onward_store_embedded::{EmbeddedStore, Options, WorkersInside};

use crate::workload::{Workload, json, name};

/// Performs the workload until a task was claimed, and closes the store.
fn claimed_and_left() -> (tempfile::TempDir, Options, Arc<ManualClock>) {
    let directory = tempfile::tempdir().unwrap();
    let mut workload = Workload::default();
    let options = Options { clock: workload.clock(), workers_inside: WorkersInside::All, ..Options::default() };
    let store = EmbeddedStore::open(directory.path(), options.clone()).unwrap();
    (0..6).for_each(|step| workload.perform(&store, step).unwrap());
    (directory, options, workload.clock())
}

fn claim(store: &EmbeddedStore) -> Option<Task> {
    let (queues, kinds) = (vec![None], Arc::new(vec![name("mail")]));
    let worker = WorkerId::new("next").unwrap();
    let request = ClaimTasks { worker, namespace: Default::default(), queues, kinds, limit: 1, lease: Duration::from_secs(30) };
    block_on(store.claim_tasks(request)).unwrap().pop()
}

#[test]
fn a_task_whose_process_died_is_free_at_once_and_burns_no_attempt() {
    let (directory, options, _) = claimed_and_left();
    let store = EmbeddedStore::open(directory.path(), options).unwrap();
    let task = claim(&store).expect("no lease outlives the process that held it");
    assert_eq!((task.attempt, task.counted_attempt(), task.lost_workers), (2, 1, 1));
    let report = |claim| block_on(store.report_task(task.id.clone(), claim, TaskReport::Completed(json("1")), Duration::ZERO));
    assert_eq!(report(task.claim - 1).unwrap_err().code(), "task_attempt_over");
    report(task.claim).unwrap();
}

#[test]
fn a_task_that_keeps_killing_its_process_is_taken_off_its_queue() {
    let (directory, options, clock) = claimed_and_left();
    for _ in 0..LOST_WORKERS_MAX {
        let store = EmbeddedStore::open(directory.path(), options.clone()).unwrap();
        // The delay after a lost worker (K5).
        clock.advance(Duration::from_secs(10));
        block_on(store.expire(100)).unwrap();
        claim(&store).expect("it is still on its queue");
    }
    let store = EmbeddedStore::open(directory.path(), options).unwrap();
    clock.advance(Duration::from_secs(10));
    block_on(store.expire(100)).unwrap();
    assert_eq!(claim(&store), None);
}

#[test]
fn a_server_takes_back_what_its_own_workers_had_and_nothing_else() {
    let (directory, options, clock) = claimed_and_left(); // by `w`
    let named = |begin| Options { workers_inside: WorkersInside::Named(begin), ..options.clone() };
    let lost = |begin| {
        let store = EmbeddedStore::open(directory.path(), named(begin)).unwrap();
        clock.advance(Duration::from_secs(1)); // a lease lasts thirty seconds
        block_on(store.expire(100)).unwrap();
        claim(&store).map(|task| task.lost_workers)
    };
    assert_eq!(lost("within-"), None, "its worker may be alive");
    assert_eq!(lost("w"), Some(1)); // now `next` has it
    assert_eq!(lost("w"), None);
    assert_eq!(lost("ne"), Some(2));
}

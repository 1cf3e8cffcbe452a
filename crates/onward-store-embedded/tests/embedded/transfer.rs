//! Transfer of runs between the memory store and a directory, in both directions.

use std::sync::Arc;

use onward_core::event::{ApprovalRequested, RunCompleted, SignalReceived, TimerStarted};
use onward_core::projection::Projection;
use onward_core::run::{Commit, Input};
use onward_core::transfer::{self, ExportedRun};
use onward_core::{CallId, CommitId, Event, Index, Name, Payload, RunKey, Status};
use onward_store::conformance::block_on;
use onward_store::{ManualClock, MemoryStore, Restore, RestoreRun, Store};
use onward_store_embedded::{EmbeddedStore, Options};

use crate::workload::new_run;

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn export(store: &dyn Store, key: &RunKey) -> String {
    let log = block_on(store.read_log(key.clone(), None, Index(0), usize::MAX)).unwrap();
    transfer::write(&[ExportedRun { key: key.clone(), logs: vec![log], flows: Vec::new() }])
}

fn import(store: &dyn Store, text: &str) -> bool {
    let mut created = false;
    for run in transfer::read(text).unwrap() {
        let restore = RestoreRun { key: run.key, what: Restore::Run { logs: run.logs }, outbox: Vec::new() };
        created |= block_on(store.restore_run(restore)).unwrap().created;
    }
    created
}

fn commit(store: &dyn Store, key: &RunKey, events: Vec<Event>, worker: &str) {
    let head = block_on(store.read_run(key.clone(), None)).unwrap().unwrap();
    let claimed = block_on(store.claim_runs(onward_store::ClaimRuns {
        worker: onward_core::WorkerId::new(worker).unwrap(),
        namespace: key.namespace.clone(),
        knows: Arc::new([(head.kind.clone(), vec![None])].into()),
        limit: 10,
    }))
    .unwrap();
    let epoch = claimed.iter().find(|run| run.head.key == *key).map_or(head.epoch, |run| run.head.epoch);
    let commit = Commit {
        key: key.clone(),
        generation: 0,
        epoch,
        n: head.next_commit,
        commit_id: CommitId(head.next_commit + 100),
        horizon: Index(head.next_index.0 - 1),
        events,
        waits: true,
        end_over_unread: false,
        is_while_paused: false,
        carries: Default::default(),
    };
    block_on(store.commit(commit)).unwrap();
}

/// Creates a run with a timer, an approval, a large payload, bytes that are not JSON, and a signal with an id.
fn create_run(store: &dyn Store, clock: &ManualClock) -> RunKey {
    let key = block_on(store.start_run(new_run("moving"), None)).unwrap().head.key;
    let due_at = onward_store::Clock::now(clock).after(std::time::Duration::from_secs(60));
    let show = Some(Payload::json(&"x".repeat(100_000)).unwrap());
    let approval = ApprovalRequested {
        call_id: CallId::root(1),
        name: name("a"),
        title: "May I?".to_owned(),
        description: None,
        show,
        deciders: Vec::new(),
        deadline: None,
        bound_to: None,
        not_by_requester: false,
        answer_schema: None,
    };
    commit(store, &key, vec![TimerStarted { call_id: CallId::root(0), due_at }.into(), approval.into()], "w");
    block_on(store.append_input(key.clone(), Input::signal(signal()))).unwrap();
    key
}

fn signal() -> SignalReceived {
    let payload = Payload::binary("application/octet-stream", vec![0u8, 255, 10, 13]);
    SignalReceived { name: name("s"), payload, signal_id: Some("once".to_owned()), sender: None }
}

#[test]
fn a_run_moves_between_stores_and_back_byte_for_byte_and_ends_there() {
    let clock = Arc::new(ManualClock::default());
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let open =
        |path: &std::path::Path| EmbeddedStore::open(path, Options { clock: clock.clone(), ..Options::default() }).unwrap();
    let (memory, embedded, last) = (MemoryStore::new(clock.clone()), open(first.path()), open(second.path()));
    let key = create_run(&memory, &clock);
    let text = export(&memory, &key);
    let stores: [&dyn Store; 3] = [&embedded, &last, &MemoryStore::new(clock.clone())];
    for store in stores {
        assert!(import(store, &text));
        assert!(!import(store, &text), "a repeat is a no-op");
        assert_eq!(export(store, &key), text);
        assert!(block_on(store.append_input(key.clone(), Input::signal(signal()))).unwrap().repeated);
        let log = block_on(store.read_log(key.clone(), None, Index(0), usize::MAX)).unwrap();
        let projection = Projection::of(key.clone(), &log).unwrap();
        let waits = block_on(store.list_waits(Default::default())).unwrap();
        assert_eq!(waits, projection.waits.into_values().collect::<Vec<_>>());
        commit(store, &key, vec![RunCompleted { output: Payload::null(), attempts: None }.into()], "v");
        assert_eq!(block_on(store.read_run(key.clone(), None)).unwrap().unwrap().status, Status::Completed);
    }
}

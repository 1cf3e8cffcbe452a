//! Several workers that want to resume one agent: exactly one does.

use std::collections::BTreeMap;
use std::sync::Arc;

use onward_core::event::SignalAwaited;
use onward_core::run::Commit;
use onward_core::{CallId, CommitId, Event, Name, Namespace, Payload, RunId, RunKey, WorkerId};
use onward_runtime::{DriveInput, LocalConnection, NotResumed, Options, Resumed, Runtime, Signal, StartRequest, WorkerProfile};
use onward_store::{ManualClock, MemoryStore, Store};
use onward_store_embedded::EmbeddedStore;
use tokio::sync::Barrier;

const RACES: u32 = 200;

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn key(id: &str) -> RunKey {
    RunKey::new(Namespace::default(), RunId::new(id).unwrap())
}

/// Creates a worker with its own runtime: two of them share only the store.
fn worker(store: &Arc<dyn Store>, clock: &Arc<ManualClock>, id: &str) -> (Runtime, LocalConnection) {
    let runtime = Runtime::new(store.clone(), clock.clone(), Options::default());
    let port = runtime.join_worker(WorkerProfile {
        id: WorkerId::new(id).unwrap(),
        namespace: Namespace::default(),
        knows: Arc::new(BTreeMap::new()),
        current: Arc::default(),
        task_kinds: Arc::default(),
        task_limits: Arc::default(),
        queues: Vec::new(),
        runs_max: 10_000,
        is_remote: false,
    });
    (runtime, port)
}

async fn start(runtime: &Runtime, id: &str) {
    runtime.start_run(StartRequest::new(key(id), name("agent"), Payload::null(), 1)).await.unwrap();
}

fn message(id: &str) -> DriveInput {
    DriveInput::Signal(Signal { name: name("message"), payload: Payload::null(), signal_id: Some(id.to_owned()) })
}

/// Makes the agent wait for a message, as its worker would.
async fn wait_for_message(store: &Arc<dyn Store>, port: &LocalConnection, id: &str) {
    let claimed = port.resume_agent(&key(id), DriveInput::Nothing).await.unwrap().claimed.unwrap();
    let awaits = SignalAwaited { call_id: CallId::root(0), name: name("message"), deadline: None, is_pattern: false };
    let head = &claimed.head;
    let commit = Commit {
        key: head.key.clone(),
        generation: 0,
        epoch: head.epoch,
        n: 0,
        commit_id: CommitId(1),
        horizon: onward_core::Index(0),
        events: vec![Event::from(awaits)],
        waits: true,
        end_over_unread: false,
        is_while_paused: false,
        carries: Default::default(),
    };
    store.commit(commit).await.unwrap();
    store.release_run(head.key.clone(), head.epoch).await.unwrap();
}

/// Resumes on two threads at once.
async fn race(ports: [&LocalConnection; 2], id: &str, bring: impl Fn(usize) -> DriveInput) -> [Resumed; 2] {
    let barrier = Arc::new(Barrier::new(2));
    let run = |number: usize| {
        let (port, barrier, id, delivery) = (ports[number].clone(), barrier.clone(), id.to_owned(), bring(number));
        tokio::spawn(async move {
            barrier.wait().await;
            port.resume_agent(&key(&id), delivery).await.expect("losing is not an error")
        })
    };
    let (one, two) = (run(0), run(1));
    [one.await.unwrap(), two.await.unwrap()]
}

async fn races(store: Arc<dyn Store>, clock: Arc<ManualClock>) {
    let (first, one) = worker(&store, &clock, "one");
    let (second, two) = worker(&store, &clock, "two");
    let mut won = [0, 0];
    for number in 0..RACES {
        let id = format!("agent-{number}");
        start(&first, &id).await;
        // Half of them wait, and are woken by the input.
        let is_waiting = number % 2 == 1;
        if is_waiting {
            wait_for_message(&store, &one, &id).await;
        }
        let bring = |worker: usize| if is_waiting { message(&format!("m{worker}")) } else { DriveInput::Nothing };
        let answers = race([&one, &two], &id, bring).await;
        let winners: Vec<usize> = (0..2).filter(|worker| answers[*worker].claimed.is_ok()).collect();
        assert_eq!(winners.len(), 1, "{id}: {answers:?}");
        won[winners[0]] += 1;
        let loser = &answers[1 - winners[0]];
        assert_eq!(loser.claimed.as_ref().unwrap_err(), &NotResumed::Held);
        assert!(loser.appended.is_none(), "what the loser brought is not recorded");
        let log = first.read_log(&key(&id), None, onward_core::Index(0), 10).await.unwrap();
        let signals = log.iter().filter(|record| matches!(record.events[0], Event::SignalReceived(_))).count();
        assert_eq!(signals, usize::from(is_waiting));
    }
    println!("{won:?}");
    assert_eq!(won[0] + won[1], RACES);
    let lost = [&first, &second].map(|runtime| runtime.counts().resumes_lost.value());
    assert_eq!(lost, [won[1], won[0]].map(u64::from), "who did not win was counted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_workers_race_for_an_agent_and_one_wins_in_memory() {
    let clock = Arc::new(ManualClock::default());
    races(Arc::new(MemoryStore::new(clock.clone())), clock).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_workers_race_for_an_agent_and_one_wins_in_a_directory() {
    let (clock, directory) = (Arc::new(ManualClock::default()), tempfile::tempdir().unwrap());
    let options = onward_store_embedded::Options { clock: clock.clone(), ..Default::default() };
    races(Arc::new(EmbeddedStore::open(directory.path(), options).unwrap()), clock).await;
}

#[tokio::test]
async fn an_unserved_agent_reports_why() {
    let clock = Arc::new(ManualClock::default());
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(clock.clone()));
    let (runtime, port) = worker(&store, &clock, "w");
    start(&runtime, "a").await;
    wait_for_message(&store, &port, "a").await;
    let why = async |delivery| port.resume_agent(&key("a"), delivery).await.unwrap().claimed.unwrap_err();
    assert_eq!(why(DriveInput::Nothing).await, NotResumed::Waiting);
    let pause = onward_core::event::RunPaused::because(onward_core::event::PauseReason::Requested, "");
    runtime.pause_run(&key("a"), pause).await.unwrap();
    assert_eq!(why(message("m")).await, NotResumed::Paused);
    runtime.terminate_run(&key("a"), "").await.unwrap();
    assert_eq!([why(DriveInput::Nothing).await, why(message("n")).await], [NotResumed::Closed; 2]);
    assert_eq!(port.resume_agent(&key("nobody"), DriveInput::Nothing).await.unwrap_err().code(), "run_not_found");
}

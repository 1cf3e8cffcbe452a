//! A database with tables for each test, and short helpers for long requests.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use onward_core::event::{ApprovalRequested, RunStarted, SignalReceived, StepCompleted};
use onward_core::run::{Input, NewRun};
use onward_core::{CallId, Event, Index, Name, Namespace, Payload, RunId, RunKey, WorkerId};
use onward_store::conformance::{HeldRun, block_on};
use onward_store::{ClaimRuns, Clock, Store};
use onward_store_postgres::{Options, PostgresStore};
use onward_testkit::{Cluster, Database};

/// Creates a database with tables for one test.
pub fn database() -> Database<'static> {
    static TEMPLATE: OnceLock<Database<'static>> = OnceLock::new();
    let template = TEMPLATE.get_or_init(|| {
        let template = Cluster::shared().database(None).unwrap();
        drop(connect(&template, Options::default()));
        template
    });
    Cluster::shared().database(Some(template.name())).unwrap()
}

pub fn connect(database: &Database<'_>, options: Options) -> Arc<PostgresStore> {
    Arc::new(block_on(PostgresStore::connect(&database.socket_url(), options)).unwrap())
}

/// Connects a store with the clock of the test.
pub fn connect_at(database: &Database<'_>, clock: Arc<dyn Clock>) -> Arc<PostgresStore> {
    connect(database, Options { clock: Some(clock), ..Options::default() })
}

pub fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

pub fn key(id: &str) -> RunKey {
    RunKey::new(Namespace::default(), RunId::new(id).unwrap())
}

pub fn worker(id: &str) -> WorkerId {
    WorkerId::new(id).unwrap()
}

pub fn json(text: &str) -> Payload {
    Payload::from_json_text(text.to_owned())
}

/// Time after which a test counts as stuck: minutes, because the machine may be slow. Nothing is measured by it.
pub const PATIENCE: Duration = Duration::from_secs(300);

pub fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

pub fn new_run(id: &str) -> NewRun {
    NewRun { key: key(id), started: RunStarted::new(name("order"), json("{}"), 7), signal: None }
}

pub fn signal(id: Option<&str>) -> Input {
    Input::signal(SignalReceived { name: name("paid"), payload: json("1"), signal_id: id.map(str::to_owned), sender: None })
}

/// Returns the result of the step with this call id.
pub fn step(ordinal: u32) -> Event {
    StepCompleted {
        call_id: CallId::root(ordinal),
        name: name("step"),
        input_hash: None,
        output: json("1"),
        attempt: 1,
        took_ms: 0,
        input: None,
    }
    .into()
}

/// Starts a run that a worker holds.
pub fn start_held(store: &dyn Store, id: &str, by: &str) -> HeldRun {
    let started = block_on(store.start_run(new_run(id), Some(worker(by)))).unwrap();
    HeldRun::new(&started.claimed.expect("a new run is leased"))
}

pub fn claim(store: &dyn Store, by: &str, limit: usize) -> Vec<HeldRun> {
    let knows = Arc::new(BTreeMap::from([(name("order"), vec![None])]));
    let request = ClaimRuns { worker: worker(by), namespace: Namespace::default(), knows, limit };
    block_on(store.claim_runs(request)).unwrap().iter().map(HeldRun::new).collect()
}

/// Commits; the commit must be accepted.
pub fn commit(store: &dyn Store, held: &mut HeldRun, events: Vec<Event>) {
    let count = events.len();
    let committed = block_on(store.commit(held.commit(events))).unwrap();
    held.advance(count, committed);
}

/// Returns the names of a run's events.
pub fn log(store: &dyn Store, id: &str) -> Vec<&'static str> {
    let records = block_on(store.read_log(key(id), None, Index(0), usize::MAX)).unwrap();
    records.iter().flat_map(|record| &record.events).map(Event::name).collect()
}

/// Returns an approval request, the first call of a run.
pub fn question() -> ApprovalRequested {
    ApprovalRequested {
        call_id: CallId::root(0),
        name: name("refund"),
        title: "Refund?".to_owned(),
        description: None,
        show: None,
        deciders: Vec::new(),
        deadline: None,
        bound_to: None,
        not_by_requester: false,
        answer_schema: None,
    }
}

//! Quotas that are divided among databases: together the parts are the quota.

use std::sync::Arc;

use onward_core::event::RunStarted;
use onward_core::quota::QuotaSettings;
use onward_core::quota::settings::settings_row;
use onward_core::run::NewRun;
use onward_core::{Name, Namespace, Payload, RunId, RunKey};
use onward_store::conformance::block_on;
use onward_store::{ManualClock, MemoryStore, Store};
use onward_store_postgres::sharded::{Database, Pace, ShardedStore};

fn three() -> ShardedStore {
    let clock = Arc::new(ManualClock::default());
    let database = |number: usize| Database { name: number.to_string(), store: Arc::new(MemoryStore::new(clock.clone())) };
    ShardedStore::new((0..3).map(database).collect(), clock.clone(), Pace::default())
}

fn start(store: &ShardedStore, id: usize) -> Result<bool, &'static str> {
    let started = RunStarted::new(Name::new("order").unwrap(), Payload::from_json_text("1"), 0);
    let key = RunKey::new(Namespace::default(), RunId::new(format!("r{id}")).unwrap());
    let started = block_on(store.start_run(NewRun { key, started, signal: None }, None));
    started.map(|started| started.created).map_err(|error| error.code())
}

fn set(store: &ShardedStore, runs_open_max: u64) -> Result<(), &'static str> {
    let quota = QuotaSettings { runs_open_max: Some(runs_open_max), ..QuotaSettings::default() };
    let row = settings_row(Namespace::default(), Some(quota)).unwrap();
    block_on(store.register_kinds(vec![row])).map_err(|error| error.code())
}

/// NQ1 over several databases: never more than the quota, and all of it if there are enough runs for each database.
#[test]
fn databases_share_a_quota_of_open_runs() {
    let store = three();
    set(&store, 10).unwrap();
    let begun = (0..400).filter(|id| start(&store, *id).is_ok()).count();
    assert_eq!(begun, 10, "4, 3 and 3");
    assert_eq!(start(&store, 1_000), Err("quota_exceeded"));
    assert_eq!(block_on(store.quota_use(Namespace::default())).unwrap().runs_open, 10);
    set(&store, 13).unwrap();
    assert_eq!((1_000..1_400).filter(|id| start(&store, *id).is_ok()).count(), 3);
    set(&store, 0).unwrap();
    assert_eq!(start(&store, 2_000), Err("quota_exceeded"));
}

#[test]
fn a_quota_that_cannot_be_divided_is_refused() {
    let store = three();
    assert_eq!(set(&store, 2), Err("quota_invalid"));
    assert_eq!(start(&store, 1), Ok(true), "nothing was stored");
}

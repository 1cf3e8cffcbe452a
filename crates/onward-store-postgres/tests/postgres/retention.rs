//! Retention: many finished runs at once, and the costs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use onward_core::event::{ApprovalRequested, AttributeSet, RunCompleted, RunFailed, SignalReceived, TaskScheduled};
use onward_core::run::Input;
use onward_core::task::TaskOptions;
use onward_core::{AttributeValue, CallId, Failure, Hash};
use onward_store::conformance::{HeldRun, block_on};
use onward_store::{Delete, ManualClock, Retention, Store};
use onward_store_postgres::PostgresStore;

use crate::kit::{commit, connect_at, database, json, key, name, new_run, question, worker};

/// Starts runs and ends them.
pub fn finish(store: &Arc<PostgresStore>, runs: std::ops::Range<usize>) {
    for chunk in runs.collect::<Vec<_>>().chunks(500) {
        let starts: Vec<_> =
            chunk.iter().map(|run| store.start_run(new_run(&format!("done-{run}")), Some(worker("w")))).collect();
        let held: Vec<HeldRun> =
            starts.into_iter().map(|start| HeldRun::new(&block_on(start).unwrap().claimed.unwrap())).collect();
        let ended = || RunCompleted { output: json("1"), attempts: None }.into();
        let ends: Vec<_> = held.iter().map(|held| store.commit(held.commit(vec![ended()]))).collect();
        for end in ends {
            block_on(end).unwrap();
        }
    }
}

fn expired(limit: usize) -> Delete {
    Delete::Expired { retention: Retention { default: Duration::from_secs(1), ..Retention::default() }, limit }
}

#[test]
fn finished_runs_go_by_the_limit_and_leave_no_row_behind() {
    let (database, clock) = (database(), Arc::new(ManualClock::default()));
    let store = connect_at(&database, clock.clone());
    finish(&store, 0..250);
    clock.advance(Duration::from_secs(2));
    finish(&store, 250..260);
    let left: Vec<u64> = (0..4).map(|_| block_on(store.delete_runs(expired(100))).unwrap()).collect();
    assert_eq!(left, [100, 100, 50, 0]);
    assert!(block_on(store.read_run(key("done-249"), None)).unwrap().is_none());
    assert!(block_on(store.read_run(key("done-250"), None)).unwrap().is_some());
    let rows = "SELECT (SELECT count(*) FROM onward.runs), (SELECT count(DISTINCT rk) FROM onward.events)";
    assert_eq!(database.psql(rows).unwrap(), "10|10");
}

/// Returns the tables that contain the text in a row, as text or bytes.
fn tables_with(database: &onward_testkit::Database<'_>, text: &str) -> String {
    let rows = format!(
        "SET bytea_output = 'escape'; SELECT coalesce(string_agg(table_name, ',' ORDER BY table_name), 'none')
         FROM information_schema.tables WHERE table_schema = 'onward' AND table_type = 'BASE TABLE'
         AND position('{text}' in query_to_xml(format('SELECT t::text FROM onward.%I t', table_name), true, true, '')::text) > 0"
    );
    database.psql(&rows).unwrap().lines().last().unwrap_or_default().to_owned()
}

/// S40: the data of a deleted run is gone from every table.
#[test]
fn no_row_of_any_table_has_what_a_deleted_run_held() {
    const CANARY: &str = "canary-4711";
    let database = database();
    let store = connect_at(&database, Arc::new(ManualClock::default()));
    for bytes in [10, 5_000, 300_000] {
        let payload = |what: &str| json(&format!(r#"{{"what":"{what}","canary":"{CANARY}","fill":"{}"}}"#, "x".repeat(bytes)));
        let id = format!("r-{bytes}");
        let mut new = new_run(&id);
        new.started.input = payload("input");
        let mut held = HeldRun::new(&block_on(store.start_run(new, Some(worker("w")))).unwrap().claimed.unwrap());
        let (call_id, value) = (CallId::root(1), Some(AttributeValue::Text(CANARY.to_owned())));
        let input_hash = Hash::of(&payload("task"));
        let (kind, input, options) = (name("mail"), payload("task"), TaskOptions::default());
        let scheduled = TaskScheduled { call_id: CallId::root(0), kind, input_hash, input, options };
        let attribute = AttributeSet { call_id, name: name("attribute"), value };
        let approval = ApprovalRequested { call_id: CallId::root(2), show: Some(payload("show")), ..question() };
        commit(&*store, &mut held, vec![scheduled.into(), attribute.into(), approval.into()]);
        let signal =
            SignalReceived { name: name("s"), payload: payload("signal"), signal_id: Some(CANARY.to_owned()), sender: None };
        block_on(store.append_input(key(&id), Input::signal(signal))).unwrap();
        let failure = Failure::fatal(CANARY).with_details(payload("details"));
        let mut end = held.commit(vec![RunFailed { failure, attempts: None }.into()]);
        end.end_over_unread = true;
        block_on(store.commit(end)).unwrap();
    }
    let before = tables_with(&database, CANARY);
    assert!(before.contains("events") && before.contains("attributes"), "the canary can be found at all: {before}");
    for bytes in [10, 5_000, 300_000] {
        let delete = Delete::Run { key: key(&format!("r-{bytes}")), reason: "asked for".to_owned() };
        assert_eq!(block_on(store.delete_runs(delete)).unwrap(), 1);
    }
    assert_eq!(tables_with(&database, CANARY), "none");
}

/// `ONWARD_SLOW=1 cargo test -p onward-store-postgres --test postgres retention -- --nocapture`: the figures of ADR 0014.
#[test]
fn what_a_hundred_thousand_finished_runs_cost() {
    let runs = if std::env::var_os("ONWARD_SLOW").is_some() { 100_000 } else { 1_000 };
    let (database, clock) = (database(), Arc::new(ManualClock::default()));
    let store = connect_at(&database, clock.clone());
    finish(&store, 0..runs);
    clock.advance(Duration::from_secs(2));
    let size = || database.psql("SELECT pg_size_pretty(pg_database_size(current_database()))").unwrap();
    let (before, begun, mut deleted, mut longest) = (size(), Instant::now(), 0, Duration::ZERO);
    loop {
        let one = Instant::now();
        let count = block_on(store.delete_runs(expired(256))).unwrap();
        longest = longest.max(one.elapsed());
        deleted += count as usize;
        if count == 0 {
            break;
        }
    }
    assert_eq!(deleted, runs);
    let took = begun.elapsed();
    let vacuum = Instant::now();
    database.psql("VACUUM onward.runs, onward.events").unwrap();
    println!(
        "{runs} runs of two records in {took:?}: {:.0}/s, the longest of 256 in {longest:?}; vacuum {:?}; {before}",
        runs as f64 / took.as_secs_f64(),
        vacuum.elapsed()
    );
    // The freed space is used again.
    finish(&store, runs..2 * runs);
    println!("{} after as many again", size());
}

//! Read errors of the disk: callers get an error and never other data (F8).

use std::collections::BTreeMap;
use std::path::Path;

use onward_core::event::SignalReceived;
use onward_core::run::Input;
use onward_core::{Hash, Index};
use onward_store::conformance::block_on;
use onward_store::{RunQuery, Store, StoreError};
use onward_store_embedded::EmbeddedStore;

use crate::crash::run_child;
use crate::damage::{copy, prepare_directory};
use crate::shim;
use crate::workload::{json, key, name, open, remember};

/// The error codes that are allowed for an unreadable disk.
const NAMED: [&str; 5] = ["store_unavailable", "store_corrupt", "log_corrupt", "store_stopped", "directory_unusable"];

const RUNS: [&str; 4] = ["r0", "r0-child", "r1", "r2"];

/// Returns a hash of the log of a run, or the code of the error.
fn log_of(store: &EmbeddedStore, id: &str) -> String {
    match block_on(store.read_log(key(id), None, Index(0), 1_000)) {
        Ok(records) => Hash::of_parts(&[format!("{records:?}").as_bytes()]).to_string(),
        Err(error) => error.code().to_owned(),
    }
}

fn mark(id: &str) -> Input {
    let signal_id = Some(format!("mark-{id}"));
    Input::signal(SignalReceived { name: name("mark"), payload: json("1"), signal_id, sender: None })
}

/// Reads every run, then writes to it, and prints the results, in the other process.
pub fn read_and_write_runs(store: &EmbeddedStore) {
    for id in RUNS {
        println!("result log {id} {}", log_of(store, id));
        let code_of = |answer: Result<(), StoreError>| answer.map_or_else(|error| error.code(), |()| "ok");
        println!("result list {id} {}", code_of(block_on(store.list_runs(RunQuery::default())).map(drop)));
        println!("result signal {id} {}", code_of(block_on(store.append_input(key(id), mark(id))).map(drop)));
    }
    println!("child finished");
}

/// Returns every run's log without a fault.
fn truth(directory: &Path) -> BTreeMap<&'static str, String> {
    let store = open(directory);
    RUNS.iter().map(|id| (*id, log_of(&store, id))).collect()
}

fn takes_signals(id: &str, results: &[String]) -> bool {
    results.contains(&format!("signal {id} ok"))
}

#[test]
fn a_read_that_fails_or_ends_early_is_an_error_and_never_other_data() {
    let library = shim::library();
    let original = prepare_directory();
    let truth = truth(original.path());
    let (mut met, mut whole) = (0, 0);
    for fault in ["SHIM_READ_FAILS", "SHIM_READ_BROKEN", "SHIM_READ_SHORT"] {
        for number in [1, 2, 3, 4, 6, 9, 13, 18, 24, 31, 39, 48] {
            let directory = copy(original.path());
            let number = number.to_string();
            let environment = [("LD_PRELOAD", library.to_str().unwrap()), (fault, &number)];
            let ended = run_child("read", directory.path(), &environment);
            let what = format!("{fault}={number}: {} {:?}", ended.last_line, ended.results);
            assert!(ended.status.success(), "{what}");
            let mut troubled = false;
            if let Some(code) = ended.last_line.strip_prefix("child refused ") {
                assert!(NAMED.contains(&code) || (fault == "SHIM_READ_SHORT" && code == "directory_foreign"), "{what}");
                troubled = true;
            }
            for line in &ended.results {
                let [about, id, answer] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{what}") };
                let right = match about {
                    "log" => truth[id] == answer,
                    "list" => answer == "ok",
                    _ => ["ok", "run_closed"].contains(&answer),
                };
                assert!(right || NAMED.contains(&answer), "{what}");
                troubled |= !right;
            }
            met += u32::from(troubled);
            whole += u32::from(!troubled);
            // Once the disk is readable again, everything is there, including what was acknowledged.
            let store = open(directory.path());
            let memory = remember(&store);
            for id in RUNS.into_iter().filter(|id| takes_signals(id, &ended.results)) {
                let (_, records) = memory.runs.iter().find(|(head, _)| head.key == key(id)).unwrap();
                let events = records.iter().flat_map(|record| &record.events);
                assert!(events.into_iter().any(|event| format!("{event:?}").contains("mark-")), "{what}: {id}");
            }
        }
    }
    println!("the fault occurred {met} times and came too late {whole} times");
    assert!(met >= 15, "{met} of {}", met + whole);
}

//! X1 to X5, L3, L11, L20: logs of external engines, appended under compare-and-set on the index.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use onward_core::external::{ExternalAppended, ExternalState};
use onward_core::run::{NewRun, Refusal};
use onward_core::{CommitId, Event, Index, Payload, RunKey, Status};

use super::block_on;
use super::harness::{
    Harness, HeldRun, completed, json, key, name, namespaces, new_run, pause, refused, resume, seconds, signal, terminate, worker,
};
use crate::{ClaimedRun, Delete, INLINE_BYTES_MAX, Retention, RunQuery, Started, StoreError};

fn events(expected: u64, texts: &[&str]) -> ExternalAppended {
    ExternalAppended { expected: Some(Index(expected)), events: texts.iter().map(|text| json(text)).collect(), state: None }
}

fn state_of(kind: &str, status: Status) -> ExternalAppended {
    let state = ExternalState { kind: name(kind), version: Some(name("v1")), status, data: json("{\"n\":1}") };
    ExternalAppended { expected: None, events: Vec::new(), state: Some(state) }
}

fn state(status: Status) -> ExternalAppended {
    state_of("order", status)
}

async fn append_to(harness: &Harness, key: RunKey, appended: ExternalAppended, id: Option<&str>) -> Result<Started, StoreError> {
    harness.store().start_run(NewRun::external(key, appended, id), None).await
}

async fn append(harness: &Harness, appended: ExternalAppended) -> Result<Started, StoreError> {
    append_to(harness, key("r"), appended, None).await
}

/// Returns the external engine's events, each with its index.
async fn kept(harness: &Harness, run: &RunKey) -> Vec<(u64, Payload)> {
    let log = harness.check_run(run).await;
    let mut kept = Vec::new();
    for (_, event) in log.events() {
        if let Event::ExternalAppended(event) = event {
            kept.extend(event.indexed().map(|(index, event)| (index.0, event.clone())));
        }
    }
    kept
}

async fn next_index(harness: &Harness, id: &str) -> u64 {
    harness.head(id).await.external.expect("it is external").next_index.0
}

pub async fn of_two_appends_at_one_index_one_is_taken(mut harness: Harness) {
    let first = append(&harness, events(0, &["1"])).await.unwrap();
    assert!(first.created);
    harness.reopen();
    match refused(append(&harness, events(0, &["2"])).await, "log_conflict") {
        StoreError::Refused(Refusal::LogConflict { expected, next, .. }) => assert_eq!((expected.0, next.0), (0, 1)),
        other => unreachable!("{other}"),
    }
    refused(append(&harness, events(2, &["2"])).await, "log_conflict");
    append(&harness, events(1, &["2", "3"])).await.unwrap();
    harness.reopen();
    assert_eq!(kept(&harness, &key("r")).await, [(0, json("1")), (1, json("2")), (2, json("3"))]);
    assert_eq!(next_index(&harness, "r").await, 3);
}

pub async fn of_concurrent_appends_each_index_is_taken_once(mut harness: Harness) {
    let taken = Arc::new(AtomicUsize::new(0));
    let appenders: Vec<_> = (0..4)
        .map(|_| {
            let (store, taken) = (harness.store(), taken.clone());
            std::thread::spawn(move || {
                for index in 0..20 {
                    let run = NewRun::external(key("r"), events(index, &["1"]), None);
                    match block_on(store.start_run(run, None)) {
                        Ok(_) => drop(taken.fetch_add(1, Ordering::SeqCst)),
                        Err(error) => assert_eq!(error.code(), "log_conflict"),
                    }
                }
            })
        })
        .collect();
    appenders.into_iter().for_each(|appender| appender.join().unwrap());
    harness.reopen();
    let indexes: Vec<u64> = kept(&harness, &key("r")).await.into_iter().map(|(index, _)| index).collect();
    assert_eq!(indexes, (0..indexes.len() as u64).collect::<Vec<_>>(), "L1");
    assert_eq!(taken.load(Ordering::SeqCst), indexes.len(), "L3");
    assert!(indexes.len() >= 20, "the first append at an index is taken");
}

pub async fn a_repeated_append_gets_its_first_answer(mut harness: Harness) {
    let first = append_to(&harness, key("r"), events(0, &["1"]), Some("a")).await.unwrap();
    append(&harness, events(1, &["2"])).await.unwrap();
    append(&harness, state(Status::Completed)).await.unwrap();
    harness.pass(seconds(5));
    harness.reopen();
    let again = append_to(&harness, key("r"), events(0, &["1"]), Some("a")).await.unwrap();
    let (first, again) = (first.signal.unwrap(), again.signal.unwrap());
    assert_eq!((again.index, again.at, again.repeated, again.woke), (first.index, first.at, true, false));
    assert_eq!(kept(&harness, &key("r")).await, [(0, json("1")), (1, json("2"))]);
    // A refused append has not used up the id.
    refused(append_to(&harness, key("r"), events(9, &["3"]), Some("b")).await, "log_conflict");
    assert!(!append_to(&harness, key("r"), events(2, &["3"]), Some("b")).await.unwrap().signal.unwrap().repeated);
}

pub async fn a_refused_append_leaves_nothing_behind(mut harness: Harness) {
    refused(append(&harness, events(1, &["1"])).await, "log_conflict");
    refused(append(&harness, state(Status::Pending)).await, "commit_malformed");
    assert_eq!(harness.store().read_run(key("r"), None).await.unwrap(), None);
    append(&harness, events(0, &["1"])).await.unwrap();
    let before = harness.head("r").await;
    let late = ExternalAppended { state: state(Status::Completed).state, ..events(0, &["2"]) };
    refused(append(&harness, late).await, "log_conflict");
    harness.reopen();
    assert_eq!(harness.head("r").await.status, Status::Running);
    assert_eq!((kept(&harness, &key("r")).await.len(), harness.head("r").await.next_index), (1, before.next_index));
}

pub async fn events_and_state_are_one_write(mut harness: Harness) {
    let both = ExternalAppended { state: state(Status::Waiting).state, ..events(0, &["1", "2"]) };
    append(&harness, both).await.unwrap();
    append(&harness, events(2, &["3"])).await.unwrap();
    harness.reopen();
    let head = harness.head("r").await;
    assert_eq!((head.status, head.kind.as_str(), head.version), (Status::Waiting, "order", Some(name("v1"))));
    let external = head.external.unwrap();
    assert_eq!(external.next_index, Index(3));
    let at = external.state_at.unwrap();
    let records = harness.store().read_log(key("r"), None, at, 1).await.unwrap();
    let Event::ExternalAppended(found) = &records[0].events[0] else { panic!("{records:?}") };
    assert_eq!(found.state.as_ref().unwrap().data, json("{\"n\":1}"));
    assert_eq!(harness.log("r").await, ["run_started", "external_appended", "external_appended"]);
}

pub async fn the_log_of_a_closed_run_goes_on(mut harness: Harness) {
    append(&harness, state(Status::Completed)).await.unwrap();
    let ended = harness.head("r").await.ended_at;
    assert_eq!(ended, Some(harness.now()));
    harness.pass(seconds(1));
    append(&harness, events(0, &["\"over\""])).await.unwrap();
    harness.reopen();
    let head = harness.check_run(&key("r")).await.next_index();
    assert_eq!(head, Index(3));
    refused(append(&harness, events(0, &["2"])).await, "log_conflict");
    assert_eq!((harness.head("r").await.ended_at, next_index(&harness, "r").await), (ended, 1));
    append(&harness, state(Status::Running)).await.unwrap();
    harness.reopen();
    assert_eq!((harness.head("r").await.status, harness.head("r").await.ended_at), (Status::Running, None));
    append(&harness, events(1, &["2"])).await.unwrap();
    assert_eq!(harness.log("r").await.len(), 5);
}

pub async fn an_external_run_takes_nothing_else(mut harness: Harness) {
    append(&harness, events(0, &["1"])).await.unwrap();
    harness.reopen();
    for input in [signal(Some("a")), pause(), resume(), terminate()] {
        refused(harness.append("r", input).await, "run_external");
    }
    refused(harness.store().start_run(new_run("r"), Some(worker("w"))).await, "run_exists");
    let mut head = harness.head("r").await;
    head.epoch = onward_core::Epoch(0);
    let mut commit = HeldRun::new(&ClaimedRun { head, records: None }).commit(vec![completed()]);
    commit.commit_id = CommitId(1);
    refused(harness.store().commit(commit).await, "run_external");
    assert_eq!(harness.log("r").await, ["run_started", "external_appended"]);
}

pub async fn an_ordinary_run_takes_no_external_append(harness: Harness) {
    harness.start("r").await;
    refused(append(&harness, events(0, &["1"])).await, "run_not_external");
    refused(append(&harness, state(Status::Completed)).await, "run_not_external");
    let input = NewRun::external(key("r"), events(0, &["1"]), None).signal.unwrap();
    refused(harness.append("r", *input).await, "run_not_external");
    assert_eq!(harness.log("r").await, ["run_started"]);
}

pub async fn no_worker_is_offered_an_external_run(mut harness: Harness) {
    let run = NewRun::external(key("r"), state(Status::Running), None);
    let started = harness.store().start_run(run, Some(worker("w"))).await.unwrap();
    assert_eq!((started.created, started.claimed), (true, None));
    for status in [Status::Waiting, Status::Completed, Status::Running] {
        append(&harness, state(status)).await.unwrap();
        assert_eq!(harness.claim("w").await, []);
        harness.reopen();
        assert_eq!(harness.claim("w").await, []);
        assert_eq!(harness.head("r").await.status, status);
    }
}

pub async fn external_runs_are_listed_as_their_engine_says(mut harness: Harness) {
    append_to(&harness, key("bare"), events(0, &["1"]), None).await.unwrap();
    for (id, status) in [("a", Status::Running), ("b", Status::Waiting), ("c", Status::Failed), ("d", Status::Canceled)] {
        harness.pass(seconds(1));
        append_to(&harness, key(id), state_of("pipeline", status), None).await.unwrap();
    }
    harness.pass(seconds(1));
    harness.start_held("held").await;
    let listed = |harness: &Harness, statuses: &[Status], kind: Option<&str>| {
        let query = RunQuery { statuses: statuses.to_vec(), kind: kind.map(name), ..Default::default() };
        let store = harness.store();
        async move { store.list_runs(query).await.unwrap().runs.iter().map(|head| head.key.id.to_string()).collect::<Vec<_>>() }
    };
    assert_eq!(listed(&harness, &[Status::Running], None).await, ["held", "a", "bare"]);
    assert_eq!(listed(&harness, &[Status::Running, Status::Failed], None).await, ["held", "c", "a", "bare"]);
    assert_eq!(listed(&harness, &[Status::Pending], None).await, [] as [&str; 0]);
    assert_eq!(listed(&harness, &[Status::Waiting, Status::Canceled], None).await, ["d", "b"]);
    // The engine sets its kind and status later.
    append_to(&harness, key("bare"), state_of("pipeline", Status::Running), None).await.unwrap();
    harness.reopen();
    assert_eq!(listed(&harness, &[], Some("pipeline")).await, ["d", "c", "b", "a", "bare"]);
    let page = |cursor: Option<String>| {
        let query =
            RunQuery { statuses: vec![Status::Running], limit: 1, cursor, kind: Some(name("pipeline")), ..Default::default() };
        let store = harness.store();
        async move { store.list_runs(query).await.unwrap() }
    };
    let first = page(None).await;
    let second = page(first.next.clone()).await;
    let id = |page: &crate::RunPage| page.runs.iter().map(|head| head.key.id.to_string()).collect::<Vec<_>>();
    assert_eq!((id(&first), id(&second), second.next), (vec!["a".to_owned()], vec!["bare".to_owned()], None));
}

pub async fn an_open_external_run_can_be_deleted(mut harness: Harness) {
    append_to(&harness, key("r"), events(0, &["1"]), Some("a")).await.unwrap();
    append(&harness, state(Status::Waiting)).await.unwrap();
    harness.reopen();
    let delete = Delete::Run { key: key("r"), reason: "aborted".to_owned() };
    assert_eq!(harness.store().delete_runs(delete.clone()).await.unwrap(), 1);
    refused(harness.store().delete_runs(delete).await, "run_not_found");
    harness.reopen();
    assert_eq!(harness.store().list_runs(RunQuery::default()).await.unwrap().runs, []);
    let deleted = harness.store().list_deleted(Default::default()).await.unwrap();
    assert_eq!((deleted[0].kind.as_str(), deleted[0].reason.as_str()), ("order", "aborted"));
    // The id is free again, and nothing of the old run is left.
    refused(append(&harness, events(1, &["2"])).await, "log_conflict");
    assert!(!append_to(&harness, key("r"), events(0, &["2"]), Some("a")).await.unwrap().signal.unwrap().repeated);
    assert_eq!(kept(&harness, &key("r")).await, [(0, json("2"))]);
    // An ordinary run may use it, too.
    harness.store().delete_runs(Delete::Run { key: key("r"), reason: String::new() }).await.unwrap();
    harness.start("r").await;
    assert_eq!(harness.claim("w").await.len(), 1);
    assert_eq!(harness.expire().await.timers_fired, 0);
}

pub async fn closed_external_runs_go_when_their_time_is_over(mut harness: Harness) {
    for (id, status) in [("over", Status::Completed), ("again", Status::Failed), ("open", Status::Waiting)] {
        append_to(&harness, key(id), state(status), None).await.unwrap();
    }
    append_to(&harness, key("again"), state(Status::Running), None).await.unwrap();
    harness.pass(seconds(9));
    // Appends after the end do not extend the retention.
    append_to(&harness, key("over"), events(0, &["\"over\""]), None).await.unwrap();
    harness.reopen();
    let delete = |harness: &Harness| {
        let (store, retention) = (harness.store(), Retention { default: seconds(10), ..Default::default() });
        async move { store.delete_runs(Delete::Expired { retention, limit: 10 }).await.unwrap() }
    };
    assert_eq!(delete(&harness).await, 0);
    harness.pass(seconds(1));
    assert_eq!(delete(&harness).await, 1);
    assert_eq!(harness.store().read_run(key("over"), None).await.unwrap(), None);
    assert_eq!(harness.head("again").await.status, Status::Running);
}

pub async fn large_events_come_back_as_they_went_in(mut harness: Harness) {
    let large = format!("\"{}\"", "x".repeat(INLINE_BYTES_MAX + 1));
    let text = "{ \"a\" : 1e400,\t\"\\u0000\": -0 }";
    let mut both = events(0, &[&large, text]);
    both.state = state(Status::Waiting).state.map(|state| ExternalState { data: json(&large), ..state });
    append(&harness, both.clone()).await.unwrap();
    harness.reopen();
    let records = harness.records("r").await;
    assert_eq!(records[1].events[0], both.into());
    append(&harness, events(2, &["3"])).await.unwrap();
    assert_eq!(kept(&harness, &key("r")).await.len(), 3);
    harness.store().delete_runs(Delete::Run { key: key("r"), reason: String::new() }).await.unwrap();
    refused(harness.store().read_log(key("r"), None, Index(0), 1).await, "run_not_found");
}

pub async fn namespaces_keep_their_external_runs_apart(harness: Harness) {
    for namespace in namespaces() {
        let run = RunKey { namespace, ..key("r") };
        append_to(&harness, run.clone(), events(0, &["1"]), Some("a")).await.unwrap();
        assert_eq!(kept(&harness, &run).await, [(0, json("1"))]);
    }
}

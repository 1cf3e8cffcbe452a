//! X1 to X5, L3, L11, L20: logs of external engines, appended under compare-and-set on the index.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use onward_core::external::{ExternalAppended, ExternalState};
use onward_core::run::{NewRun, Refusal};
use onward_core::{CommitId, Event, Index, Payload, RunKey, Status};

use super::block_on;
use super::kit::{HeldRun, Kit, completed, json, key, name, namespaces, new_run, pause, refused, resume, seconds, signal, terminate, worker};
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

async fn append_to(kit: &Kit, key: RunKey, appended: ExternalAppended, id: Option<&str>) -> Result<Started, StoreError> {
    kit.store().start_run(NewRun::external(key, appended, id), None).await
}

async fn append(kit: &Kit, appended: ExternalAppended) -> Result<Started, StoreError> {
    append_to(kit, key("r"), appended, None).await
}

/// Returns the external engine's events, each with its index.
async fn kept(kit: &Kit, run: &RunKey) -> Vec<(u64, Payload)> {
    let log = kit.check_run(run).await;
    let mut kept = Vec::new();
    for (_, event) in log.events() {
        if let Event::ExternalAppended(event) = event {
            kept.extend(event.indexed().map(|(index, event)| (index.0, event.clone())));
        }
    }
    kept
}

async fn next_index(kit: &Kit, id: &str) -> u64 {
    kit.head(id).await.external.expect("it is external").next_index.0
}

pub async fn of_two_appends_at_one_index_one_is_taken(mut kit: Kit) {
    let first = append(&kit, events(0, &["1"])).await.unwrap();
    assert!(first.created);
    kit.reopen();
    match refused(append(&kit, events(0, &["2"])).await, "log_conflict") {
        StoreError::Refused(Refusal::LogConflict { expected, next, .. }) => assert_eq!((expected.0, next.0), (0, 1)),
        other => unreachable!("{other}"),
    }
    refused(append(&kit, events(2, &["2"])).await, "log_conflict");
    append(&kit, events(1, &["2", "3"])).await.unwrap();
    kit.reopen();
    assert_eq!(kept(&kit, &key("r")).await, [(0, json("1")), (1, json("2")), (2, json("3"))]);
    assert_eq!(next_index(&kit, "r").await, 3);
}

pub async fn of_concurrent_appends_each_index_is_taken_once(mut kit: Kit) {
    let taken = Arc::new(AtomicUsize::new(0));
    let appenders: Vec<_> = (0..4)
        .map(|_| {
            let (store, taken) = (kit.store(), taken.clone());
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
    kit.reopen();
    let indexes: Vec<u64> = kept(&kit, &key("r")).await.into_iter().map(|(index, _)| index).collect();
    assert_eq!(indexes, (0..indexes.len() as u64).collect::<Vec<_>>(), "L1");
    assert_eq!(taken.load(Ordering::SeqCst), indexes.len(), "L3");
    assert!(indexes.len() >= 20, "the first append at an index is taken");
}

pub async fn a_repeated_append_gets_its_first_answer(mut kit: Kit) {
    let first = append_to(&kit, key("r"), events(0, &["1"]), Some("a")).await.unwrap();
    append(&kit, events(1, &["2"])).await.unwrap();
    append(&kit, state(Status::Completed)).await.unwrap();
    kit.pass(seconds(5));
    kit.reopen();
    let again = append_to(&kit, key("r"), events(0, &["1"]), Some("a")).await.unwrap();
    let (first, again) = (first.signal.unwrap(), again.signal.unwrap());
    assert_eq!((again.index, again.at, again.repeated, again.woke), (first.index, first.at, true, false));
    assert_eq!(kept(&kit, &key("r")).await, [(0, json("1")), (1, json("2"))]);
    // A refused append has not used up the id.
    refused(append_to(&kit, key("r"), events(9, &["3"]), Some("b")).await, "log_conflict");
    assert!(!append_to(&kit, key("r"), events(2, &["3"]), Some("b")).await.unwrap().signal.unwrap().repeated);
}

pub async fn a_refused_append_leaves_nothing_behind(mut kit: Kit) {
    refused(append(&kit, events(1, &["1"])).await, "log_conflict");
    refused(append(&kit, state(Status::Pending)).await, "commit_malformed");
    assert_eq!(kit.store().read_run(key("r"), None).await.unwrap(), None);
    append(&kit, events(0, &["1"])).await.unwrap();
    let before = kit.head("r").await;
    let late = ExternalAppended { state: state(Status::Completed).state, ..events(0, &["2"]) };
    refused(append(&kit, late).await, "log_conflict");
    kit.reopen();
    assert_eq!(kit.head("r").await.status, Status::Running);
    assert_eq!((kept(&kit, &key("r")).await.len(), kit.head("r").await.next_index), (1, before.next_index));
}

pub async fn events_and_state_are_one_write(mut kit: Kit) {
    let both = ExternalAppended { state: state(Status::Waiting).state, ..events(0, &["1", "2"]) };
    append(&kit, both).await.unwrap();
    append(&kit, events(2, &["3"])).await.unwrap();
    kit.reopen();
    let head = kit.head("r").await;
    assert_eq!((head.status, head.kind.as_str(), head.version), (Status::Waiting, "order", Some(name("v1"))));
    let external = head.external.unwrap();
    assert_eq!(external.next_index, Index(3));
    let at = external.state_at.unwrap();
    let records = kit.store().read_log(key("r"), None, at, 1).await.unwrap();
    let Event::ExternalAppended(found) = &records[0].events[0] else { panic!("{records:?}") };
    assert_eq!(found.state.as_ref().unwrap().data, json("{\"n\":1}"));
    assert_eq!(kit.log("r").await, ["run_started", "external_appended", "external_appended"]);
}

pub async fn the_log_of_a_closed_run_goes_on(mut kit: Kit) {
    append(&kit, state(Status::Completed)).await.unwrap();
    let ended = kit.head("r").await.ended_at;
    assert_eq!(ended, Some(kit.now()));
    kit.pass(seconds(1));
    append(&kit, events(0, &["\"over\""])).await.unwrap();
    kit.reopen();
    let head = kit.check_run(&key("r")).await.next_index();
    assert_eq!(head, Index(3));
    refused(append(&kit, events(0, &["2"])).await, "log_conflict");
    assert_eq!((kit.head("r").await.ended_at, next_index(&kit, "r").await), (ended, 1));
    append(&kit, state(Status::Running)).await.unwrap();
    kit.reopen();
    assert_eq!((kit.head("r").await.status, kit.head("r").await.ended_at), (Status::Running, None));
    append(&kit, events(1, &["2"])).await.unwrap();
    assert_eq!(kit.log("r").await.len(), 5);
}

pub async fn an_external_run_takes_nothing_else(mut kit: Kit) {
    append(&kit, events(0, &["1"])).await.unwrap();
    kit.reopen();
    for input in [signal(Some("a")), pause(), resume(), terminate()] {
        refused(kit.append("r", input).await, "run_external");
    }
    refused(kit.store().start_run(new_run("r"), Some(worker("w"))).await, "run_exists");
    let mut head = kit.head("r").await;
    head.epoch = onward_core::Epoch(0);
    let mut commit = HeldRun::new(&ClaimedRun { head, records: None }).commit(vec![completed()]);
    commit.commit_id = CommitId(1);
    refused(kit.store().commit(commit).await, "run_external");
    assert_eq!(kit.log("r").await, ["run_started", "external_appended"]);
}

pub async fn an_ordinary_run_takes_no_external_append(kit: Kit) {
    kit.start("r").await;
    refused(append(&kit, events(0, &["1"])).await, "run_not_external");
    refused(append(&kit, state(Status::Completed)).await, "run_not_external");
    let input = NewRun::external(key("r"), events(0, &["1"]), None).signal.unwrap();
    refused(kit.append("r", *input).await, "run_not_external");
    assert_eq!(kit.log("r").await, ["run_started"]);
}

pub async fn no_worker_is_offered_an_external_run(mut kit: Kit) {
    let run = NewRun::external(key("r"), state(Status::Running), None);
    let started = kit.store().start_run(run, Some(worker("w"))).await.unwrap();
    assert_eq!((started.created, started.claimed), (true, None));
    for status in [Status::Waiting, Status::Completed, Status::Running] {
        append(&kit, state(status)).await.unwrap();
        assert_eq!(kit.claim("w").await, []);
        kit.reopen();
        assert_eq!(kit.claim("w").await, []);
        assert_eq!(kit.head("r").await.status, status);
    }
}

pub async fn external_runs_are_listed_as_their_engine_says(mut kit: Kit) {
    append_to(&kit, key("bare"), events(0, &["1"]), None).await.unwrap();
    for (id, status) in [("a", Status::Running), ("b", Status::Waiting), ("c", Status::Failed), ("d", Status::Canceled)] {
        kit.pass(seconds(1));
        append_to(&kit, key(id), state_of("pipeline", status), None).await.unwrap();
    }
    kit.pass(seconds(1));
    kit.start_held("held").await;
    let listed = |kit: &Kit, statuses: &[Status], kind: Option<&str>| {
        let query = RunQuery { statuses: statuses.to_vec(), kind: kind.map(name), ..Default::default() };
        let store = kit.store();
        async move { store.list_runs(query).await.unwrap().runs.iter().map(|head| head.key.id.to_string()).collect::<Vec<_>>() }
    };
    assert_eq!(listed(&kit, &[Status::Running], None).await, ["held", "a", "bare"]);
    assert_eq!(listed(&kit, &[Status::Running, Status::Failed], None).await, ["held", "c", "a", "bare"]);
    assert_eq!(listed(&kit, &[Status::Pending], None).await, [] as [&str; 0]);
    assert_eq!(listed(&kit, &[Status::Waiting, Status::Canceled], None).await, ["d", "b"]);
    // The engine sets its kind and status later.
    append_to(&kit, key("bare"), state_of("pipeline", Status::Running), None).await.unwrap();
    kit.reopen();
    assert_eq!(listed(&kit, &[], Some("pipeline")).await, ["d", "c", "b", "a", "bare"]);
    let page = |cursor: Option<String>| {
        let query = RunQuery { statuses: vec![Status::Running], limit: 1, cursor, kind: Some(name("pipeline")), ..Default::default() };
        let store = kit.store();
        async move { store.list_runs(query).await.unwrap() }
    };
    let first = page(None).await;
    let second = page(first.next.clone()).await;
    let id = |page: &crate::RunPage| page.runs.iter().map(|head| head.key.id.to_string()).collect::<Vec<_>>();
    assert_eq!((id(&first), id(&second), second.next), (vec!["a".to_owned()], vec!["bare".to_owned()], None));
}

pub async fn an_open_external_run_can_be_deleted(mut kit: Kit) {
    append_to(&kit, key("r"), events(0, &["1"]), Some("a")).await.unwrap();
    append(&kit, state(Status::Waiting)).await.unwrap();
    kit.reopen();
    let delete = Delete::Run { key: key("r"), reason: "aborted".to_owned() };
    assert_eq!(kit.store().delete_runs(delete.clone()).await.unwrap(), 1);
    refused(kit.store().delete_runs(delete).await, "run_not_found");
    kit.reopen();
    assert_eq!(kit.store().list_runs(RunQuery::default()).await.unwrap().runs, []);
    let deleted = kit.store().list_deleted(Default::default()).await.unwrap();
    assert_eq!((deleted[0].kind.as_str(), deleted[0].reason.as_str()), ("order", "aborted"));
    // The id is free again, and nothing of the old run is left.
    refused(append(&kit, events(1, &["2"])).await, "log_conflict");
    assert!(!append_to(&kit, key("r"), events(0, &["2"]), Some("a")).await.unwrap().signal.unwrap().repeated);
    assert_eq!(kept(&kit, &key("r")).await, [(0, json("2"))]);
    // An ordinary run may use it, too.
    kit.store().delete_runs(Delete::Run { key: key("r"), reason: String::new() }).await.unwrap();
    kit.start("r").await;
    assert_eq!(kit.claim("w").await.len(), 1);
    assert_eq!(kit.expire().await.timers_fired, 0);
}

pub async fn closed_external_runs_go_when_their_time_is_over(mut kit: Kit) {
    for (id, status) in [("over", Status::Completed), ("again", Status::Failed), ("open", Status::Waiting)] {
        append_to(&kit, key(id), state(status), None).await.unwrap();
    }
    append_to(&kit, key("again"), state(Status::Running), None).await.unwrap();
    kit.pass(seconds(9));
    // Appends after the end do not extend the retention.
    append_to(&kit, key("over"), events(0, &["\"over\""]), None).await.unwrap();
    kit.reopen();
    let delete = |kit: &Kit| {
        let (store, retention) = (kit.store(), Retention { default: seconds(10), ..Default::default() });
        async move { store.delete_runs(Delete::Expired { retention, limit: 10 }).await.unwrap() }
    };
    assert_eq!(delete(&kit).await, 0);
    kit.pass(seconds(1));
    assert_eq!(delete(&kit).await, 1);
    assert_eq!(kit.store().read_run(key("over"), None).await.unwrap(), None);
    assert_eq!(kit.head("again").await.status, Status::Running);
}

pub async fn large_events_come_back_as_they_went_in(mut kit: Kit) {
    let large = format!("\"{}\"", "x".repeat(INLINE_BYTES_MAX + 1));
    let text = "{ \"a\" : 1e400,\t\"\\u0000\": -0 }";
    let mut both = events(0, &[&large, text]);
    both.state = state(Status::Waiting).state.map(|state| ExternalState { data: json(&large), ..state });
    append(&kit, both.clone()).await.unwrap();
    kit.reopen();
    let records = kit.records("r").await;
    assert_eq!(records[1].events[0], both.into());
    append(&kit, events(2, &["3"])).await.unwrap();
    assert_eq!(kept(&kit, &key("r")).await.len(), 3);
    kit.store().delete_runs(Delete::Run { key: key("r"), reason: String::new() }).await.unwrap();
    refused(kit.store().read_log(key("r"), None, Index(0), 1).await, "run_not_found");
}

pub async fn namespaces_keep_their_external_runs_apart(kit: Kit) {
    for namespace in namespaces() {
        let run = RunKey { namespace, ..key("r") };
        append_to(&kit, run.clone(), events(0, &["1"]), Some("a")).await.unwrap();
        assert_eq!(kept(&kit, &run).await, [(0, json("1"))]);
    }
}

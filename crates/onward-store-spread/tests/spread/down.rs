//! SD3, SD4: one database is down, for every operation.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use onward_core::event::{SignalReceived, TerminateRequested};
use onward_core::run::Input;
use onward_core::task::{TaskId, TaskReport};
use onward_core::{Epoch, Index, KindSchemas, Name, Namespace, Payload, Place, RunKey, Timestamp, WorkerId};
use onward_store::conformance::block_on;
use onward_store::{
    ClaimRuns, ClaimTasks, Delete, DeletedQuery, Known, Restore, RestoreRun, Retention, RunQuery, ServerInfo, Store, StoreError,
    TaskQuery, WaitQuery,
};

use crate::faulty::{Site, id_in, key};
use crate::placement::new_run;

fn worker() -> WorkerId {
    WorkerId::new("w").unwrap()
}

fn code<T>(answer: Result<T, StoreError>) -> &'static str {
    match answer {
        Ok(_) => "ok",
        Err(error) => {
            if error.code() == "store_unavailable" {
                assert!(error.to_string().contains("database 2 of 3 (b): connection refused"), "{error}");
            }
            error.code()
        }
    }
}

/// The answers of everything that concerns one run.
async fn ask_about(site: &Site, run: &RunKey) -> Vec<(&'static str, &'static str)> {
    let store = &site.store;
    let task = || TaskId { run: run.clone(), generation: 0, place: Place::root(0), life: None };
    let signal = || {
        let name = Name::new("paid").unwrap();
        Input::signal(SignalReceived { name, payload: Payload::null(), signal_id: None, sender: None })
    };
    let commit = onward_core::run::Commit {
        key: run.clone(),
        generation: 0,
        epoch: Epoch(0),
        n: 0,
        commit_id: onward_core::CommitId(1),
        horizon: Index(0),
        waits: true,
        events: Vec::new(),
        end_over_unread: false,
        is_standing: false,
        carries: Default::default(),
    };
    let restore = RestoreRun { key: run.clone(), what: Restore::Run { logs: Vec::new() }, news: Vec::new() };
    let of_run = Some(run.clone());
    vec![
        ("start_run", code(store.start_run(new_run(run.id.as_str()), None).await)),
        ("restore_run", code(store.restore_run(restore).await)),
        ("append_input", code(store.append_input(run.clone(), signal()).await)),
        ("claim_run", code(store.claim_run(run.clone(), worker(), None).await)),
        ("commit", code(store.commit(commit).await)),
        ("release_run", code(store.release_run(run.clone(), Epoch(1)).await)),
        ("report_task", code(store.report_task(task(), 1, TaskReport::Released, Duration::ZERO).await)),
        ("retry_task", code(store.retry_task(task()).await)),
        ("read_run", code(store.read_run(run.clone(), None).await)),
        ("read_log", code(store.read_log(run.clone(), None, Index(0), 9).await)),
        ("list_waits", code(store.list_waits(WaitQuery { run: of_run.clone(), ..WaitQuery::default() }).await)),
        ("list_tasks", code(store.list_tasks(TaskQuery { run: of_run.clone(), ..TaskQuery::default() }).await)),
        ("list_deleted", code(store.list_deleted(DeletedQuery { run: of_run, ..DeletedQuery::default() }).await)),
        ("delete_runs", code(store.delete_runs(Delete::Run { key: run.clone(), reason: String::new() }).await)),
    ]
}

/// The answers of everything that goes on with the databases that are there.
async fn work(site: &Site) -> Vec<(&'static str, &'static str)> {
    let store = &site.store;
    let namespace = Namespace::default;
    let runs = ClaimRuns { worker: worker(), namespace: namespace(), knows: Default::default(), limit: 9 };
    let lease = Duration::from_secs(9);
    let tasks =
        ClaimTasks { worker: worker(), namespace: namespace(), queues: vec![None], kinds: Default::default(), limit: 9, lease };
    let known = |id: String| Known { run: key(&id), generation: 0, next: Index(0) };
    let server = ServerInfo {
        id: Name::new("s").unwrap(),
        url: String::new(),
        version: String::new(),
        started_at: Timestamp(0),
        heard_at: Timestamp(0),
        roster: vec![1, 2, 3],
    };
    let kind = KindSchemas {
        namespace: namespace(),
        is_task: false,
        kind: Name::new("order").unwrap(),
        version: None,
        input: Some(Payload::null()),
        output: None,
        registered_at: Timestamp(0),
    };
    vec![
        ("claim_runs", code(store.claim_runs(runs).await)),
        ("claim_tasks", code(store.claim_tasks(tasks).await)),
        ("heartbeat", code(store.heartbeat(worker(), lease).await)),
        ("expire", code(store.expire(9).await)),
        ("deliveries", code(store.deliveries(9).await)),
        ("finish_deliveries", code(store.finish_deliveries(Vec::new()).await)),
        ("read_since", code(store.read_since(vec![known(id_in(0, 0)), known(id_in(1, 0))]).await)),
        ("announce_server", code(store.announce_server(server, Some(lease)).await)),
        ("list_servers", code(store.list_servers().await)),
        ("register_kinds", code(store.register_kinds(vec![kind]).await)),
        ("list_kinds", code(store.list_kinds(namespace()).await)),
        ("delete_runs", code(store.delete_runs(Delete::Expired { retention: Retention::default(), limit: 9 }).await)),
    ]
}

async fn list(site: &Site) -> Vec<(&'static str, &'static str)> {
    let store = &site.store;
    vec![
        ("list_runs", code(store.list_runs(RunQuery::default()).await)),
        ("list_waits", code(store.list_waits(WaitQuery::default()).await)),
        ("list_tasks", code(store.list_tasks(TaskQuery::default()).await)),
        ("list_deleted", code(store.list_deleted(DeletedQuery::default()).await)),
        ("count_versions", code(store.count_versions(Namespace::default()).await)),
        ("count_tasks", code(store.count_tasks(Namespace::default()).await)),
    ]
}

fn site() -> Site {
    let site = Site::new();
    for database in 0..3 {
        let id = id_in(database, 0);
        block_on(site.store.start_run(new_run(&id), None)).unwrap();
        let end = Input::new(TerminateRequested { reason: String::new(), reset_to: None });
        block_on(site.store.append_input(key(&id), end)).unwrap();
    }
    site
}

#[test]
fn a_database_that_is_down_takes_only_its_own_runs_with_it() {
    let site = site();
    site.databases[1].refuse(true);
    // Before anybody knows, and when it is known.
    for _ in 0..2 {
        block_on(async {
            for (what, code) in ask_about(&site, &key(&id_in(1, 1))).await {
                assert_eq!(code, "store_unavailable", "{what}");
            }
            for (what, code) in ask_about(&site, &key(&id_in(0, 1))).await {
                assert_ne!(code, "store_unavailable", "{what}");
            }
            for (what, code) in work(&site).await {
                assert_eq!(code, "ok", "{what}");
            }
            for (what, code) in list(&site).await {
                assert_eq!(code, "store_unavailable", "{what} does not leave out what it cannot see");
            }
        });
    }
    let health = site.store.health();
    assert_eq!(health.iter().map(|health| health.down.is_some()).collect::<Vec<_>>(), [false, true, false]);
    assert_eq!((health[1].name.as_str(), health[1].down.clone().unwrap().1.as_str()), ("b", "connection refused"));
}

#[test]
fn each_operation_that_meets_the_outage_first_goes_on() {
    for number in 0..12 {
        let site = site();
        site.databases[1].refuse(true);
        let (what, answer) = block_on(work(&site))[number];
        assert_eq!(answer, "ok", "{what}");
    }
}

#[test]
fn when_all_are_down_everything_fails() {
    let site = site();
    site.databases.iter().for_each(|database| database.refuse(true));
    block_on(async {
        assert_eq!(site.store.expire(9).await.unwrap_err().code(), "store_unavailable");
        assert_eq!(site.store.heartbeat(worker(), Duration::ZERO).await.unwrap_err().code(), "store_unavailable");
        assert_eq!(site.store.deliveries(9).await.unwrap_err().code(), "store_unavailable");
    });
}

#[test]
fn a_database_that_comes_back_is_asked_again_within_a_second() {
    let site = site();
    site.databases[1].refuse(true);
    block_on(async {
        site.store.expire(9).await.unwrap();
        site.databases[1].refuse(false);
        assert_eq!(code(site.store.list_runs(RunQuery::default()).await), "store_unavailable", "nobody has asked it yet");
        site.pass(Duration::from_secs(1));
        assert_eq!(site.store.list_runs(RunQuery::default()).await.unwrap().runs.len(), 3);
        assert!(site.store.health().iter().all(|health| health.down.is_none()));
        // Whoever wants one of its runs does not wait for that.
        site.databases[1].refuse(true);
        site.store.expire(9).await.unwrap();
        site.databases[1].refuse(false);
        site.store.read_run(key(&id_in(1, 0)), None).await.unwrap();
        assert!(site.store.health().iter().all(|health| health.down.is_none()));
    });
}

/// One question, which never gets an answer: the caller gives up, as the runtime does after a third of the lease.
fn give_up<T>(question: impl Future<Output = T>) {
    let mut question = pin!(question);
    assert!(matches!(question.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Pending));
}

#[test]
fn a_database_that_never_answers_keeps_no_worker_from_being_heard_by_the_others() {
    let site = site();
    let lease = Duration::from_secs(9);
    block_on(async {
        site.store.heartbeat(worker(), lease).await.unwrap();
        site.databases[1].be_silent(true);
        give_up(site.store.heartbeat(worker(), lease));
        for _ in 0..5 {
            site.pass(lease / 2);
            assert!(site.store.heartbeat(worker(), lease).await.unwrap());
            site.store.expire(9).await.unwrap();
            assert_eq!(site.store.list_runs(RunQuery::default()).await.unwrap_err().code(), "store_unavailable");
        }
        assert_eq!(site.store.health()[1].down.clone().unwrap().1, "it does not answer");
    });
}

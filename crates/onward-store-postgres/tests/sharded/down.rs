//! SD3, SD4: one database is down, for every operation.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use onward_core::event::{SignalReceived, TerminateRequested};
use onward_core::ledger::{SpendBy, SpendQuery};
use onward_core::run::Input;
use onward_core::task::{TaskId, TaskReport};
use onward_core::{CallId, Epoch, Index, KindSchemas, Name, Namespace, Payload, RunKey, Timestamp, WorkerId};
use onward_store::conformance::block_on;
use onward_store::{
    ClaimRuns, ClaimTasks, Delete, DeletedQuery, Gaps, KindCondition, KnownRun, Registration, Restore, RestoreRun, Retention,
    RunQuery, ServerInfo, Store, StoreError, TaskQuery, WaitQuery,
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
                assert!(error.to_string().contains("database 2 of 3 (b): "), "{error}");
            }
            error.code()
        }
    }
}

/// Returns the result codes of all operations on one run.
async fn call_all_operations(site: &Site, run: &RunKey) -> Vec<(&'static str, &'static str)> {
    let store = &site.store;
    let task = || TaskId { run: run.clone(), generation: 0, call_id: CallId::root(0), incarnation: None };
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
        is_while_paused: false,
        carries: Default::default(),
    };
    let restore = RestoreRun { key: run.clone(), what: Restore::Run { logs: Vec::new() }, outbox: Vec::new() };
    let of_run = Some(run.clone());
    vec![
        ("start_run", code(store.start_run(new_run(run.id.as_str()), None).await)),
        ("restore_run", code(store.restore_run(restore).await)),
        ("append_input", code(store.append_input(run.clone(), signal()).await)),
        ("claim_run", code(store.claim_run(run.clone(), worker(), None).await)),
        ("commit", code(store.commit(commit).await)),
        ("release_run", code(store.release_run(run.clone(), Epoch(1)).await)),
        ("report_task", code(store.report_task(task(), 1, TaskReport::Interrupted, Duration::ZERO).await)),
        ("retry_task", code(store.retry_task(task()).await)),
        ("read_run", code(store.read_run(run.clone(), None).await)),
        ("read_log", code(store.read_log(run.clone(), None, Index(0), 9).await)),
        ("list_waits", code(store.list_waits(WaitQuery { run: of_run.clone(), ..WaitQuery::default() }).await)),
        ("list_tasks", code(store.list_tasks(TaskQuery { run: of_run.clone(), ..TaskQuery::default() }).await)),
        ("list_deleted", code(store.list_deleted(DeletedQuery { run: of_run, ..DeletedQuery::default() }).await)),
        ("delete_runs", code(store.delete_runs(Delete::Run { key: run.clone(), reason: String::new() }).await)),
    ]
}

/// Returns the result codes of the operations that continue with the databases that are up.
async fn work(site: &Site) -> Vec<(&'static str, &'static str)> {
    let store = &site.store;
    let namespace = Namespace::default;
    let runs = ClaimRuns { worker: worker(), namespace: namespace(), knows: Default::default(), limit: 9 };
    let lease = Duration::from_secs(9);
    let tasks =
        ClaimTasks { worker: worker(), namespace: namespace(), queues: vec![None], kinds: Default::default(), limit: 9, lease };
    let known = |id: String| KnownRun { run: key(&id), generation: 0, next: Index(0) };
    let server = ServerInfo {
        id: Name::new("s").unwrap(),
        url: String::new(),
        version: String::new(),
        started_at: Timestamp(0),
        last_seen_at: Timestamp(0),
        workers: vec![1, 2, 3],
    };
    let empty = KindSchemas::empty(namespace(), Name::new("order").unwrap(), None);
    let kind = KindSchemas { input: Some(Payload::null()), ..empty };
    vec![
        ("claim_runs", code(store.claim_runs(runs).await)),
        ("claim_tasks", code(store.claim_tasks(tasks).await)),
        ("heartbeat", code(store.heartbeat(worker(), lease).await)),
        ("expire", code(store.expire(9).await)),
        ("deliveries", code(store.outbox_messages(9).await)),
        ("finish_deliveries", code(store.finish_deliveries(Vec::new()).await)),
        ("read_since", code(store.read_since(vec![known(id_in(0, 0)), known(id_in(1, 0))]).await)),
        ("announce_server", code(store.announce_server(server, Some(lease)).await)),
        ("list_servers", code(store.list_servers().await)),
        ("register_kinds", code(store.register_kinds(vec![kind], Registration::Always).await)),
        ("list_kinds", code(store.list_kinds(namespace()).await)),
        ("delete_runs", code(store.delete_runs(Delete::Expired { retention: Retention::default(), limit: 9 }).await)),
    ]
}

/// Returns the result codes of all lists; with `gaps` they may be partial.
async fn list(site: &Site, gaps: Option<&Gaps>) -> Vec<(&'static str, &'static str)> {
    let (store, gaps) = (&site.store, || gaps.cloned());
    vec![
        ("list_runs", code(store.list_runs(RunQuery { gaps: gaps(), ..RunQuery::default() }).await)),
        ("list_waits", code(store.list_waits(WaitQuery { gaps: gaps(), ..WaitQuery::default() }).await)),
        ("list_tasks", code(store.list_tasks(TaskQuery { gaps: gaps(), ..TaskQuery::default() }).await)),
        ("list_deleted", code(store.list_deleted(DeletedQuery { gaps: gaps(), ..DeletedQuery::default() }).await)),
    ]
}

/// Returns the result codes of all sums, which are never partial.
async fn sum(site: &Site) -> Vec<(&'static str, &'static str)> {
    let store = &site.store;
    vec![
        ("count_versions", code(store.count_versions(Namespace::default()).await)),
        ("count_tasks", code(store.count_tasks(Namespace::default()).await)),
        ("count_open", code(store.count_open().await)),
        ("spend", code(store.spend(SpendQuery::by(SpendBy::Model)).await)),
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
    // Before it is known to be down, and after.
    for _ in 0..2 {
        block_on(async {
            for (what, code) in call_all_operations(&site, &key(&id_in(1, 1))).await {
                assert_eq!(code, "store_unavailable", "{what}");
            }
            for (what, code) in call_all_operations(&site, &key(&id_in(0, 1))).await {
                assert_ne!(code, "store_unavailable", "{what}");
            }
            for (what, code) in work(&site).await {
                assert_eq!(code, "ok", "{what}");
            }
            for (what, code) in list(&site, None).await.into_iter().chain(sum(&site).await) {
                assert_eq!(code, "store_unavailable", "{what} does not leave out what it cannot see");
            }
            // SD4: a partial list reports what is missing.
            let gaps = Gaps::default();
            for (what, code) in list(&site, Some(&gaps)).await {
                assert_eq!(code, "ok", "{what}");
                assert_eq!(gaps.names(), ["b"], "{what}");
            }
            let mut query = RunQuery { limit: 1, gaps: Some(gaps.clone()), ..RunQuery::default() };
            let mut found = Vec::new();
            loop {
                let page = site.store.list_runs(query.clone()).await.unwrap();
                found.extend(page.runs.into_iter().map(|head| head.key.id.to_string()));
                query.cursor = page.next;
                if query.cursor.is_none() {
                    break;
                }
            }
            assert!(found.contains(&id_in(0, 0)) && found.contains(&id_in(2, 0)) && !found.contains(&id_in(1, 0)), "{found:?}");
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
        assert_eq!(site.store.outbox_messages(9).await.unwrap_err().code(), "store_unavailable");
        let part = RunQuery { gaps: Some(Gaps::default()), ..RunQuery::default() };
        assert_eq!(site.store.list_runs(part).await.unwrap_err().code(), "store_unavailable", "nothing is no part");
    });
}

/// SD3: a database that is known to be down gets no requests but the background probe.
#[test]
fn a_database_that_is_known_to_be_down_gets_no_requests() {
    let site = site();
    site.databases[1].be_silent(true);
    block_on(async {
        assert_eq!(site.store.read_run(key(&id_in(1, 0)), None).await.unwrap_err().code(), "store_unavailable");
        site.until([true, false, true]);
        let before = site.databases[1].request_count();
        for _ in 0..100 {
            for (what, code) in call_all_operations(&site, &key(&id_in(1, 1))).await {
                assert_eq!(code, "store_unavailable", "{what}");
            }
            work(&site).await;
        }
        assert_eq!(site.databases[1].request_count(), before, "the probe is under way");
    });
}

#[test]
fn a_database_that_comes_back_gets_requests_again() {
    let site = site();
    for is_silent in [false, true] {
        site.databases[1].refuse(!is_silent);
        site.databases[1].be_silent(is_silent);
        block_on(async {
            site.store.list_runs(RunQuery::default()).await.unwrap_err();
            site.until([true, false, true]);
            // The background probe finds it without further requests.
            site.databases[1].refuse(false);
            site.databases[1].be_silent(false);
            site.until([true; 3]);
            assert_eq!(site.store.list_runs(RunQuery::default()).await.unwrap().runs.len(), 3);
            site.store.read_run(key(&id_in(1, 0)), None).await.unwrap();
        });
    }
}

/// A busy database is not down: any response counts while the probe has none.
#[test]
fn a_database_that_answers_something_is_not_down() {
    let site = site();
    let slow = site.databases[1].clone();
    slow.be_slow(true);
    block_on(async {
        let list = list_elsewhere(site.store.clone());
        for _ in 0..20 {
            site.store.read_run(key(&id_in(1, 0)), None).await.unwrap();
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(site.store.health().iter().all(|health| health.down.is_none()));
        slow.be_slow(false);
        assert_eq!(list.join().unwrap(), 3);
    });
}

/// Lists runs in another thread.
fn list_elsewhere(store: std::sync::Arc<onward_store_postgres::sharded::ShardedStore>) -> std::thread::JoinHandle<usize> {
    std::thread::spawn(move || block_on(store.list_runs(RunQuery::default())).unwrap().runs.len())
}

/// Sends a request that is never answered and gives up, as the runtime does after a third of the lease.
fn give_up<T>(question: impl Future<Output = T>) {
    let mut question = pin!(question);
    assert!(matches!(question.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Pending));
}

#[test]
fn a_database_that_never_answers_delays_no_heartbeat_to_the_others() {
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
        }
        site.until([true, false, true]);
        assert_eq!(site.store.list_runs(RunQuery::default()).await.unwrap_err().code(), "store_unavailable");
        assert_eq!(site.store.health()[1].down.clone().unwrap().1, "it does not respond");
    });
}

/// Timers of the other databases fire from the first pass on, without waiting.
#[test]
fn a_database_that_stands_still_holds_up_no_timer_of_the_others() {
    let site = Site::new();
    let worker = worker();
    block_on(async {
        for database in 0..3 {
            let started = site.store.start_run(new_run(&id_in(database, 0)), Some(worker.clone())).await.unwrap();
            let head = started.claimed.unwrap().head;
            for ordinal in 0..3 {
                site.store.commit(timer(&head, ordinal)).await.unwrap();
            }
        }
        site.databases[1].be_silent(true);
        let mut fired = 0;
        for _ in 0..3 {
            site.pass(Duration::from_secs(1));
            let begun = std::time::Instant::now();
            fired += site.store.expire(100).await.unwrap().timers_fired;
            assert!(begun.elapsed() < Duration::from_secs(300));
        }
        assert_eq!(fired, 6);
        site.databases[1].be_silent(false);
        site.until([true; 3]);
        while fired < 9 {
            fired += site.store.expire(100).await.unwrap().timers_fired;
        }
    });
}

/// Creates a commit with the `ordinal`th timer of a run, due after as many seconds.
fn timer(head: &onward_core::RunHead, ordinal: u32) -> onward_core::run::Commit {
    let due_at = head.created_at.after(Duration::from_secs(u64::from(ordinal) + 1));
    onward_core::run::Commit {
        key: head.key.clone(),
        generation: 0,
        epoch: head.epoch,
        n: ordinal.into(),
        commit_id: onward_core::CommitId(u64::from(ordinal) + 1),
        horizon: Index(ordinal.into()),
        waits: true,
        events: vec![onward_core::event::TimerStarted { call_id: CallId::root(ordinal), due_at }.into()],
        end_over_unread: false,
        is_while_paused: false,
        carries: Default::default(),
    }
}

/// Registers a version of a kind if another one is current.
fn register(site: &Site, kind: &str, version: &str, expected: Option<&str>) -> Result<Timestamp, StoreError> {
    let name = |text: &str| Name::new(text).unwrap();
    let row = KindSchemas::empty(Namespace::default(), name(kind), Some(name(version)));
    let condition = KindCondition { namespace: Namespace::default(), kind: name(kind), version: expected.map(name) };
    let rows = vec![KindSchemas { input: Some(Payload::null()), ..row }];
    block_on(site.store.register_kinds(rows, Registration::If(condition)))
}

/// The database that decides was down when a version was registered, or its disk is an older one.
#[test]
fn the_database_that_decides_learns_a_registration_that_it_has_missed() {
    let site = site();
    let kind = id_in(1, 7);
    site.databases[1].refuse(true);
    let name = |text: &str| Name::new(text).unwrap();
    let row = KindSchemas::empty(Namespace::default(), name(&kind), Some(name("v1")));
    let rows = vec![KindSchemas { input: Some(Payload::null()), ..row }];
    block_on(site.store.register_kinds(rows, Registration::Always)).unwrap();
    site.databases[1].refuse(false);
    site.until([true, true, true]);
    register(&site, &kind, "v2", Some("v1")).unwrap();
    assert_eq!(register(&site, &kind, "v3", Some("v1")).unwrap_err().code(), "flow_changed");
}

/// RK1, SD3: one database decides, and the others copy what it has decided, also later.
#[test]
fn a_registration_on_a_condition_needs_the_database_of_its_kind_only() {
    let site = site();
    let kind = id_in(1, 7);
    register(&site, &kind, "v1", None).unwrap();
    site.databases[0].refuse(true);
    register(&site, &kind, "v2", Some("v1")).unwrap();
    site.databases[0].refuse(false);
    site.until([true, true, true]);
    assert_eq!(register(&site, &kind, "v3", Some("v1")).unwrap_err().code(), "flow_changed");
    site.databases[1].refuse(true);
    assert_eq!(register(&site, &kind, "v3", Some("v2")).unwrap_err().code(), "store_unavailable");
    let versions = || {
        let kept = block_on(site.store.list_kinds(Namespace::default())).unwrap();
        kept.iter().filter_map(|row| row.version.as_ref().map(ToString::to_string)).collect::<Vec<_>>()
    };
    assert_eq!(versions(), ["v1", "v2"], "nothing is written");
    site.databases[1].refuse(false);
    site.until([true, true, true]);
    register(&site, &kind, "v3", Some("v2")).unwrap();
    assert_eq!(versions(), ["v1", "v2", "v3"]);
}

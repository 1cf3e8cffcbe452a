//! Quotas of namespaces over several servers (NQ1 to NQ4, DB14).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use onward_core::event::{StandaloneTask, TaskScheduled, TerminateRequested};
use onward_core::queue::QueueRate;
use onward_core::quota::settings::settings_row;
use onward_core::quota::{QuotaSettings, QuotaUse};
use onward_core::run::{Input, NewRun};
use onward_core::spend::{PicoDollars, Spend};
use onward_core::task::{Task, TaskOptions, TaskReport};
use onward_core::{CallId, Event, Hash, Namespace, RunKey};
use onward_store::conformance::block_on;
use onward_store::{ClaimTasks, Store};
use onward_store_postgres::Options;

use crate::kit::{commit, connect, database, json, key, name, new_run, seconds, start_held, worker};

fn standalone(id: &str) -> NewRun {
    let mut run = new_run(id);
    run.started.kind = name("task:mail");
    run.started.task = Some(StandaloneTask { kind: name("mail"), options: TaskOptions::default() });
    run
}

fn claim(store: &dyn Store, by: &str, limit: usize, lease: u64) -> Vec<Task> {
    let kinds = Arc::new(vec![name("mail"), name("llm.small")]);
    let (namespace, queues) = (Namespace::default(), vec![None]);
    let request = ClaimTasks { worker: worker(by), namespace, queues, kinds, limit, lease: seconds(lease) };
    block_on(store.claim_tasks(request)).unwrap()
}

fn set(store: &dyn Store, quota: QuotaSettings) {
    block_on(store.register_kinds(vec![settings_row(Namespace::default(), Some(quota)).unwrap()])).unwrap();
}

fn used(store: &dyn Store) -> QuotaUse {
    block_on(store.quota_use(Namespace::default())).unwrap()
}

/// Ends standalone tasks, some well, some with their run; the leases of others are left to a dead worker. Returns what was handed
/// out.
fn work(store: &dyn Store, by: &str) -> usize {
    let tasks = claim(store, by, 2, 1);
    for (at, task) in tasks.iter().enumerate() {
        match at % 3 {
            0 => {
                let done = TaskReport::Completed(json("1"));
                // The lease may have ended meanwhile.
                drop(block_on(store.report_task(task.id.clone(), task.claim, done, seconds(1))));
            }
            1 => {
                let end = Input::new(TerminateRequested { reason: String::new(), reset_to: None });
                drop(block_on(store.append_input(task.id.run.clone(), end)));
            }
            _ => {}
        }
    }
    tasks.len()
}

#[test]
fn servers_never_exceed_a_quota_together_whoever_dies() {
    let database = database();
    let stores: Vec<_> = (0..2).map(|_| connect(&database, Options::default())).collect();
    set(&*stores[0], QuotaSettings { runs_open_max: Some(7), tasks_running_max: Some(3), ..QuotaSettings::default() });
    let watcher = connect(&database, Options::default());
    let (is_over, begun, refused, handed_out) =
        (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for id in 0..4 {
            let (store, begun, refused, is_over) = (&stores[id % 2], &begun, &refused, &is_over);
            scope.spawn(move || {
                for number in 0.. {
                    if is_over.load(Ordering::SeqCst) {
                        break;
                    }
                    let starts: Vec<_> =
                        (0..5).map(|at| store.start_run(standalone(&format!("t{id}-{number}-{at}")), None)).collect();
                    for start in starts {
                        match block_on(start) {
                            Ok(_) => begun.fetch_add(1, Ordering::SeqCst),
                            Err(error) => {
                                assert_eq!(error.code(), "quota_exceeded", "{error}");
                                refused.fetch_add(1, Ordering::SeqCst)
                            }
                        };
                    }
                }
            });
        }
        for id in 0..4 {
            let (store, handed_out, is_over) = (&stores[id % 2], &handed_out, &is_over);
            scope.spawn(move || {
                while !is_over.load(Ordering::SeqCst) {
                    // Each worker is another one: those before are dead.
                    let by = format!("w{id}-{}", handed_out.load(Ordering::SeqCst));
                    handed_out.fetch_add(work(&**store, &by), Ordering::SeqCst);
                    block_on(store.expire(100)).unwrap();
                }
            });
        }
        while handed_out.load(Ordering::SeqCst) < 150 {
            let used = used(&*watcher);
            assert!(used.runs_open <= 7, "NQ1: {} runs are open", used.runs_open);
            assert!(used.tasks_running <= 3, "NQ3: {} tasks run", used.tasks_running);
        }
        is_over.store(true, Ordering::SeqCst);
    });
    assert!(begun.load(Ordering::SeqCst) > 100 && refused.load(Ordering::SeqCst) > 0, "{begun:?} {refused:?}");
}

#[test]
fn a_start_rate_is_shared_by_servers() {
    let database = database();
    let stores: Vec<_> = (0..2).map(|_| connect(&database, Options::default())).collect();
    let rate = QueueRate { starts_max: 10, period_ms: 3_600_000 };
    set(&*stores[0], QuotaSettings { start_rate: Some(rate), ..QuotaSettings::default() });
    let begun = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for id in 0..4 {
            let (store, begun) = (&stores[id % 2], &begun);
            scope.spawn(move || {
                for at in 0..10 {
                    let started = block_on(store.start_run(new_run(&format!("r{id}-{at}")), None));
                    begun.fetch_add(usize::from(started.is_ok()), Ordering::SeqCst);
                }
            });
        }
    });
    assert_eq!(begun.load(Ordering::SeqCst), 10, "NQ2");
}

/// NQ4: what one server records counts in the claims of another, at once.
#[test]
fn a_day_is_spent_by_all_servers() {
    let database = database();
    let (one, other) = (connect(&database, Options::default()), connect(&database, Options::default()));
    set(&*one, QuotaSettings { spend_per_day_max: Some(PicoDollars(100)), ..QuotaSettings::default() });
    let mut held = start_held(&*one, "r", "w");
    let call = |ordinal| {
        let (input, call_id) = (json("1"), CallId::root(ordinal));
        let (kind, options) = (name("llm.small"), TaskOptions::default());
        Event::from(TaskScheduled { call_id, kind, input_hash: Hash::of(&input), input, options })
    };
    commit(&*one, &mut held, (0..4).map(call).collect());
    for (store, cost) in [(&one, 60), (&other, 40)] {
        let task = claim(&**store, "t", 1, 60).remove(0);
        let spent = task.attempt_spend(vec![Spend::on("small").cost(PicoDollars(cost))]);
        let done = TaskReport::Completed(json("1")).with_spend(spent);
        block_on(store.report_task(task.id.clone(), task.claim, done, seconds(60))).unwrap();
    }
    assert_eq!((claim(&*one, "t", 1, 60).len(), claim(&*other, "t", 1, 60).len()), (0, 0), "NQ4");
    assert_eq!(used(&*one).spent_today, PicoDollars(100));
    let rows = database.psql("SELECT sum(cost) FROM onward.spent_days").unwrap();
    assert_eq!(rows.trim(), "100");
}

/// NQ6: a limit of payloads that another server has set counts from the write on that follows the first one after a second.
#[test]
fn a_limit_of_payloads_reaches_other_servers() {
    let database = database();
    let (one, other) = (connect(&database, Options::default()), connect(&database, Options::default()));
    set(&*one, QuotaSettings { payload_bytes_max: Some(2_000), ..QuotaSettings::default() });
    let large = |id: &str| {
        let mut run = new_run(id);
        run.started.input = json(&format!("\"{}\"", "x".repeat(3_000)));
        run
    };
    let refused = block_on(one.start_run(large("a"), None)).unwrap_err();
    assert_eq!(refused.code(), "payload_too_large");
    for number in 0.. {
        match block_on(other.start_run(large(&format!("b{number}")), None)) {
            Ok(_) => std::thread::yield_now(),
            Err(refused) => {
                assert_eq!(refused.code(), "payload_too_large");
                break;
            }
        }
    }
    let later = connect(&database, Options::default());
    assert!(block_on(later.start_run(large("c"), None)).is_err(), "a new server knows it from the beginning");
    assert_eq!(block_on(later.read_run(RunKey { ..key("c") }, None)).unwrap(), None);
}

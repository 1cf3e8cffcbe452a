//! Damaged rows that derive from the log are repaired when an operation finds them; nothing is invented.

use std::time::{Duration, Instant};

use onward_core::event::{ApprovalDecided, PauseReason, RunCompleted, RunPaused, TaskAttemptEnded, TaskScheduled, TimerStarted};
use onward_core::ledger::{SpendBy, SpendQuery};
use onward_core::run::Input;
use onward_core::spend::{Spend, Tokens};
use onward_core::task::TaskOptions;
use onward_core::{CallId, Hash, Index, RunHead, Timestamp};
use onward_store::conformance::{HeldRun, block_on};
use onward_store::{ClaimTasks, Delete, Store, StoreError, TaskQuery, WaitQuery};
use onward_store_postgres::{Options, PostgresStore};
use onward_testkit::Database;

use crate::damage::flip;
use crate::kit::{PATIENCE, claim, commit, connect, database, json, key, name, question, signal, start_held, step, worker};

/// Starts a run with rows in every table.
fn busy(store: &PostgresStore) -> HeldRun {
    let mut held = start_held(store, "r", "w");
    let input = json("[]");
    let input_hash = Hash::of(&input);
    let approval = question();
    let task = TaskScheduled { call_id: CallId::root(1), kind: name("mail"), input_hash, input, options: TaskOptions::default() };
    let timer = TimerStarted { call_id: CallId::root(2), due_at: Timestamp(u64::MAX >> 8) };
    commit(store, &mut held, vec![approval.into(), task.into(), timer.into()]);
    let (queues, kinds) = (vec![None], std::sync::Arc::new(vec![name("mail")]));
    let leased = ClaimTasks {
        worker: worker("t"),
        namespace: Default::default(),
        queues,
        kinds,
        limit: 1,
        lease: Duration::from_secs(600),
    };
    assert_eq!(block_on(store.claim_tasks(leased)).unwrap().len(), 1);
    block_on(store.append_input(key("r"), signal(Some("s")))).unwrap();
    held
}

fn decision() -> Input {
    let call_id = CallId::root(0);
    let decision_id = "d".to_owned();
    let decided =
        ApprovalDecided { call_id: call_id.clone(), approved: true, feedback: None, decided_by: None, answer: None, decision_id };
    Input::answer(decided, 0, &call_id, "d")
}

fn pause() -> Input {
    Input::new(RunPaused::because(PauseReason::Requested, ""))
}

/// Renders everything that is known of the run, except its epoch.
fn known(store: &PostgresStore, database: &Database<'_>) -> String {
    let mut head: RunHead = block_on(store.read_run(key("r"), None)).unwrap().unwrap();
    head.epoch = Default::default();
    let (waits, tasks) = (block_on(store.list_waits(WaitQuery::default())), block_on(store.list_tasks(TaskQuery::default())));
    let rows = "SELECT call_id, due, frozen, crc FROM onward.timers";
    let slots = "SELECT key, token, idx, at, crc FROM onward.idempotency ORDER BY key";
    let (timers, slots) = (database.psql(rows).unwrap(), database.psql(slots).unwrap());
    format!("{head:?} {:?} {:?} {timers} {slots}", waits.unwrap(), tasks.unwrap())
}

fn until<T>(what: &str, look: impl Fn() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Runs an operation that finds the damage: refused once, and accepted after the repair.
fn meet(what: &str, act: impl Fn() -> Result<(), StoreError>) {
    let first = act().unwrap_err();
    assert_eq!(first.code(), "log_corrupt", "{what}: {first}");
    until(what, || match act() {
        Ok(()) => Some(()),
        Err(error) => {
            assert_eq!(error.code(), "log_corrupt", "{what}: {error}");
            None
        }
    });
}

#[test]
fn a_damaged_head_is_rebuilt_and_the_holder_is_fenced() {
    let database = database();
    let store = connect(&database, Options::default());
    let old = busy(&store);
    let before = known(&store, &database);
    database.psql(&flip("head", "runs")).unwrap();
    meet("the head", || block_on(store.read_run(key("r"), None)).map(drop));
    assert_eq!(known(&store, &database).replace("Running", "Pending"), before.replace("Running", "Pending"));
    let claimed = until("it can be claimed", || claim(&*store, "v", 1).pop());
    assert!(claimed.head.epoch > old.head.epoch, "{:?} {:?}", claimed.head.epoch, old.head.epoch);
    let late = block_on(store.commit(old.commit(vec![step(9)]))).unwrap_err();
    assert_eq!(late.code(), "lease_lost", "{late}");
    let mut new = claimed;
    new.horizon = Index(new.head.next_index.0 - 1);
    commit(&*store, &mut new, vec![step(9)]);
}

#[test]
fn damaged_slots_timers_questions_and_tasks_are_made_again_and_the_holder_keeps_the_run() {
    for (what, sql) in [
        ("idempotency", flip("token", "idempotency")),
        ("waits", flip("data", "waits")),
        ("tasks", flip("data", "tasks")),
        ("timers", "UPDATE onward.timers SET due = due + 1".to_owned()),
        ("timers", "UPDATE onward.timers SET crc = crc + 1".to_owned()),
    ] {
        let database = database();
        let store = connect(&database, Options::default());
        let mut held = busy(&store);
        let before = known(&store, &database);
        database.psql(&sql).unwrap();
        let act = || match what {
            "idempotency" => block_on(store.append_input(key("r"), signal(Some("s")))).map(drop),
            "waits" => block_on(store.append_input(key("r"), decision())).map(drop),
            _ => block_on(store.append_input(key("r"), pause())).map(drop),
        };
        meet(what, act);
        if what == "idempotency" {
            // The claimed task is unchanged, with its attempts.
            assert_eq!(known(&store, &database), before);
        }
        // The holder continues.
        if what == "idempotency" || what == "waits" {
            held.horizon = Index(block_on(store.read_run(key("r"), None)).unwrap().unwrap().next_index.0 - 1);
            commit(&*store, &mut held, vec![step(9)]);
        }
    }
}

/// The spend of a run is rebuilt from its log; queries for the spend of a deleted run report the damage.
#[test]
fn damaged_rows_of_the_ledger_are_made_again_as_long_as_their_log_is_there() {
    for harm in [flip("data", "ledger"), "UPDATE onward.ledger SET day = day + 1".to_owned()] {
        let database = database();
        let store = connect(&database, Options::default());
        let mut held = start_held(&*store, "r", "w");
        let line = Spend::on("small").tokens(Tokens { input: 7, ..Tokens::default() });
        let ended = TaskAttemptEnded {
            call_id: CallId::root(0),
            generation: 0,
            attempt: 1,
            claim: 1,
            began_at: Timestamp(5),
            ledger_name: None,
            failure_code: None,
            spend: vec![line],
        };
        block_on(store.append_input(key("r"), Input::attempt_ended(ended))).unwrap();
        let spend = || block_on(store.spend(SpendQuery::by(SpendBy::Day)));
        let before = spend().unwrap();
        assert_eq!((before.len(), before[0].totals.tokens.total()), (1, 7));
        database.psql(&harm).unwrap();
        meet("the ledger", || spend().map(drop));
        assert_eq!(spend().unwrap(), before);
        held.horizon = Index(1);
        commit(&*store, &mut held, vec![RunCompleted { output: json("1"), attempts: None }.into()]);
        block_on(store.delete_runs(Delete::Run { key: key("r"), reason: String::new() })).unwrap();
        assert_eq!(spend().unwrap(), before, "LG4");
        database.psql(&harm).unwrap();
        assert_eq!(spend().unwrap_err().code(), "log_corrupt");
    }
}

/// A log without its end, or with a damaged record, is not used for a repair.
#[test]
fn nothing_is_made_again_from_a_log_that_is_damaged_too() {
    for harm in ["DELETE FROM onward.events WHERE idx = 4".to_owned(), format!("{} WHERE idx = 1", flip("body", "events"))] {
        let database = database();
        let store = connect(&database, Options::default());
        busy(&store);
        database.psql(&harm).unwrap();
        database.psql(&flip("head", "runs")).unwrap();
        let head = || database.psql("SELECT head FROM onward.runs").unwrap();
        let before = head();
        for _ in 0..3 {
            assert_eq!(block_on(store.read_run(key("r"), None)).unwrap_err().code(), "log_corrupt");
            std::thread::sleep(Duration::from_millis(200));
        }
        assert_eq!(head(), before);
    }
}

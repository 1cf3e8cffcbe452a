//! Bytes that were changed behind the store are reported as damage and never used.

use onward_core::event::{ApprovalRequested, TaskScheduled, TimerStarted};
use onward_core::task::TaskOptions;
use onward_core::{CallId, Hash, Index, Timestamp};
use onward_store::conformance::block_on;
use onward_store::{Delete, Store, StoreError, WaitQuery};
use onward_store_postgres::Options;

use crate::kit::{commit, connect, database, json, key, log, name, new_run, question, seconds, signal, start_held, step};

/// Changes the last byte of a column in every row.
pub fn flip(column: &str, table: &str) -> String {
    format!(
        "UPDATE onward.{table} SET {column} = set_byte({column}, length({column}) - 1, get_byte({column}, length({column}) - 1) # 4)"
    )
}

/// Options without repair, which has its own tests.
fn left_alone() -> Options {
    Options { repair: false, ..Options::default() }
}

#[test]
fn a_changed_record_is_named_and_its_neighbors_go_on() {
    let database = database();
    let store = connect(&database, left_alone());
    let mut held = start_held(&*store, "r", "w");
    (0..3).for_each(|ordinal| commit(&*store, &mut held, vec![step(ordinal)]));
    start_held(&*store, "other", "w");
    database.psql(&format!("{} WHERE idx = 2", flip("body", "events"))).unwrap();
    match block_on(store.read_log(key("r"), None, Index(0), 100)) {
        Err(StoreError::LogCorrupt { key: run, index: Index(2), .. }) => assert_eq!(run, key("r")),
        other => panic!("{other:?}"),
    }
    assert_eq!(log(&*store, "other"), ["run_started"]);
    // A record at another index is damage, too, and so is a missing one.
    database.psql("UPDATE onward.events SET idx = 20 WHERE idx = 3").unwrap();
    let tail = block_on(store.read_log(key("r"), None, Index(3), 100)).unwrap_err();
    assert_eq!(tail.code(), "log_corrupt");
}

#[test]
fn a_changed_row_of_a_run_is_named_and_the_run_can_still_be_listed_and_deleted() {
    let database = database();
    let store = connect(&database, left_alone());
    let mut held = start_held(&*store, "r", "w");
    commit(&*store, &mut held, vec![onward_core::event::RunCompleted { output: json("1"), attempts: None }.into()]);
    block_on(store.start_run(new_run("sound"), None)).unwrap();
    database.psql(&format!("{} WHERE id = 'r'", flip("head", "runs"))).unwrap();
    let errors = [
        block_on(store.read_run(key("r"), None)).map(drop),
        block_on(store.append_input(key("r"), signal(None))).map(drop),
        block_on(store.start_run(new_run("r"), None)).map(drop),
        block_on(store.commit(held.commit(vec![step(9)]))).map(drop),
    ];
    for error in errors {
        assert_eq!(error.unwrap_err().code(), "log_corrupt");
    }
    let listed = block_on(store.list_runs(Default::default())).unwrap().runs;
    assert_eq!(listed.len(), 2, "its log is shown");
    let delete = Delete::Run { key: key("r"), reason: "damaged".to_owned() };
    assert_eq!(block_on(store.delete_runs(delete)).unwrap(), 1);
}

#[test]
fn changed_slots_questions_and_tasks_are_named() {
    let database = database();
    let store = connect(&database, left_alone());
    let mut held = start_held(&*store, "r", "w");
    let approval = question();
    let input = json("[]");
    let input_hash = Hash::of(&input);
    let task = TaskScheduled { call_id: CallId::root(1), kind: name("mail"), input_hash, input, options: TaskOptions::default() };
    let timer = TimerStarted { call_id: CallId::root(2), due_at: Timestamp(u64::MAX >> 8) };
    commit(&*store, &mut held, vec![approval.into(), task.into(), timer.into()]);
    block_on(store.append_input(key("r"), signal(Some("s")))).unwrap();
    for sql in [
        flip("token", "idempotency"),
        flip("data", "waits"),
        flip("data", "tasks"),
        "UPDATE onward.timers SET due = due + 1".into(),
    ] {
        database.psql(&sql).unwrap();
    }
    let again = block_on(store.append_input(key("r"), signal(Some("s")))).unwrap_err();
    assert_eq!(again.code(), "log_corrupt", "{again}");
    assert_eq!(block_on(store.list_waits(WaitQuery::default())).unwrap_err().code(), "store_corrupt");
    let pause = onward_core::event::PauseReason::Requested;
    let pause = onward_core::event::RunPaused::because(pause, "");
    let paused = block_on(store.append_input(key("r"), onward_core::run::Input::new(pause))).unwrap_err();
    assert_eq!(paused.code(), "log_corrupt", "a timer that was changed is not moved: {paused}");
    assert_eq!(log(&*store, "r").len(), 5, "nothing was written");
}

/// Timers and tasks with damaged rows would be due forever and must not block the others.
#[test]
fn damaged_rows_do_not_keep_other_timers_from_firing() {
    let clock = std::sync::Arc::new(onward_store::ManualClock::default());
    let database = database();
    let store = connect(&database, Options { clock: Some(clock.clone()), ..left_alone() });
    let soon = onward_store::Clock::now(&*clock).after(seconds(10));
    let deadline = |ordinal: u32| ApprovalRequested {
        call_id: CallId::root(ordinal),
        name: name("refund"),
        title: String::new(),
        description: None,
        show: None,
        deciders: Vec::new(),
        deadline: Some(soon),
        bound_to: None,
        not_by_requester: false,
        answer_schema: None,
    };
    for id in ["head", "wait", "task", "timer", "sound"] {
        let mut held = start_held(&*store, id, "w");
        let (input, options) = (json("[]"), TaskOptions { queued_timeout_ms: Some(10_000), ..TaskOptions::default() });
        let task = TaskScheduled { call_id: CallId::root(1), kind: name("mail"), input_hash: Hash::of(&input), input, options };
        commit(&*store, &mut held, vec![deadline(0).into(), task.into()]);
    }
    let of = |id: &str| format!(" WHERE rk = (SELECT rk FROM onward.runs WHERE id = '{id}')");
    database.psql(&(flip("data", "waits") + &of("wait"))).unwrap();
    database.psql(&(flip("data", "tasks") + &of("task"))).unwrap();
    database.psql(&("UPDATE onward.timers SET due = due - 1".to_owned() + &of("timer"))).unwrap();
    database.psql(&(flip("head", "runs") + " WHERE id = 'head'")).unwrap();
    clock.advance(seconds(10));
    let expired = block_on(store.expire(100)).unwrap();
    assert_eq!((expired.timers_fired, expired.tasks_expired), (2, 3), "all but the damaged ones");
    assert_eq!(log(&*store, "sound"), ["run_started", "approval_requested", "task_scheduled", "timer_fired", "task_failed"]);
    assert_eq!(database.psql("SELECT count(*) FROM onward.timers WHERE NOT frozen").unwrap(), "0", "the others sleep");
}

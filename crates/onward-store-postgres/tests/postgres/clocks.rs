//! Servers whose clocks are an hour apart: the database clock decides.

use std::process::Command;
use std::time::{Duration, SystemTime};

use onward_core::event::TimerStarted;
use onward_core::{CallId, Timestamp};
use onward_store::Store;
use onward_store::conformance::block_on;
use onward_store_postgres::{Options, PostgresStore};
use onward_testkit::WrongClock;

use crate::kit::{commit, connect, database, key, log, seconds, start_held, step, worker};

/// Address of the database, set in the process whose clock is ahead.
const URL: &str = "ONWARD_TEST_URL";

fn millis_now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis() as u64
}

#[test]
fn a_server_whose_clock_is_an_hour_ahead_takes_nothing_away_and_fires_nothing_early() {
    if let Ok(url) = std::env::var(URL) {
        return be_ahead(&url);
    }
    let clock = WrongClock::build().unwrap();
    let database = database();
    let store = connect(&database, Options::default());
    let mut held = start_held(&*store, "r", "w");
    block_on(store.heartbeat(worker("w"), seconds(60))).unwrap();
    let due_at = held.head.created_at.after(Duration::from_secs(600));
    commit(&*store, &mut held, vec![TimerStarted { call_id: CallId::root(0), due_at }.into()]);
    let begun = millis_now();
    let mut ahead = Command::new(std::env::current_exe().unwrap());
    ahead.args([
        "--exact",
        "clocks::a_server_whose_clock_is_an_hour_ahead_takes_nothing_away_and_fires_nothing_early",
        "--nocapture",
    ]);
    let child = clock.set(&mut ahead, 3_600).env(URL, database.socket_url()).output().unwrap();
    let stdout = String::from_utf8_lossy(&child.stdout).into_owned();
    assert!(child.status.success(), "{stdout}{}", String::from_utf8_lossy(&child.stderr));
    let its_clock: u64 = stdout.lines().find_map(|line| line.strip_prefix("clock ")).unwrap().parse().unwrap();
    assert!(its_clock > begun + 3_500_000, "the other clock was ahead");
    let theirs = block_on(store.read_run(key("ahead"), None)).unwrap().unwrap();
    assert!((Timestamp(begun - 1_000)..Timestamp(millis_now() + 1_000)).contains(&theirs.created_at), "{theirs:?}");
    let expired = block_on(store.expire(100)).unwrap();
    assert_eq!((expired.workers_lost, expired.timers_fired), (0, 0));
    commit(&*store, &mut held, vec![step(1)]);
    assert_eq!(log(&*store, "r"), ["run_started", "timer_started", "step_completed"]);
}

fn be_ahead(url: &str) {
    println!("\nclock {}", millis_now());
    let store = block_on(PostgresStore::connect(url, Options::default())).unwrap();
    let mut held = start_held(&store, "ahead", "v");
    block_on(store.heartbeat(worker("v"), seconds(60))).unwrap();
    commit(&store, &mut held, vec![step(0)]);
    let expired = block_on(store.expire(100)).unwrap();
    assert_eq!((expired.workers_lost, expired.timers_fired, expired.tasks_expired), (0, 0, 0));
}

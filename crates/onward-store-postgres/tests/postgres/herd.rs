//! Thousands of timers that became due during an outage fire in passes, the oldest first, and other requests proceed (F26).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use onward_core::event::{TaskScheduled, TimerStarted};
use onward_core::run::Commit;
use onward_core::task::{RetryPolicy, TaskOptions, TaskReport};
use onward_core::{CallId, Event, Failure, Hash, Index, Namespace, Timestamp};
use onward_store::conformance::{HeldRun, block_on};
use onward_store::{ClaimRuns, ClaimTasks, ClaimedRun, ManualClock, Store};

use crate::kit::{commit, connect_at, database, json, key, name, new_run, seconds, signal, start_held, worker};

const TIMERS: u64 = 5_000;
const PASS: usize = 256;

/// Starts runs that sleep, the last one for the shortest time. They have no holder: its session would expire meanwhile and free
/// all of them at once.
fn put_to_sleep(store: &dyn Store, now: Timestamp) {
    let starts: Vec<_> = (0..TIMERS).map(|number| store.start_run(new_run(&format!("r{number}")), Some(worker("w")))).collect();
    let mut commits = Vec::new();
    for (start, number) in starts.into_iter().zip(0..) {
        let held = HeldRun::new(&block_on(start).unwrap().claimed.unwrap());
        let due_at = now.after(Duration::from_millis(1_000 + TIMERS - number));
        let timer = held.commit(vec![TimerStarted { call_id: CallId::root(0), due_at }.into()]);
        commits.push((store.commit(Commit { waits: true, ..timer }), held));
    }
    let mut releases = Vec::new();
    for (commit, held) in commits {
        block_on(commit).unwrap();
        releases.push(store.release_run(held.key(), held.head.epoch));
    }
    releases.into_iter().for_each(|release| block_on(release).unwrap());
}

#[test]
fn timers_that_are_due_at_once_fire_in_passes_oldest_first_without_delaying_others() {
    let (clock, database) = (Arc::new(ManualClock::default()), database());
    let store = connect_at(&database, clock.clone());
    let other = connect_at(&database, clock.clone());
    block_on(store.start_run(new_run("talk"), None)).unwrap();
    put_to_sleep(&*store, onward_store::Clock::now(&*clock));
    clock.advance(seconds(100_000));
    let (is_over, all) = (AtomicBool::new(false), Instant::now());
    let slowest = std::thread::scope(|scope| {
        let talking = scope.spawn(|| {
            let mut slowest = Duration::ZERO;
            while !is_over.load(Ordering::Relaxed) {
                let begun = Instant::now();
                block_on(store.append_input(key("talk"), signal(None))).unwrap();
                slowest = slowest.max(begun.elapsed());
            }
            slowest
        });
        // Another server does the same; each pass is small, and the slower one finds less.
        let firing = scope.spawn(|| fire_all(&*other));
        let (mine, theirs) = (fire_all(&*store), firing.join().unwrap());
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(mine + theirs, TIMERS, "each fired once");
        talking.join().unwrap()
    });
    let all = all.elapsed();
    eprintln!("the slowest of the others took {slowest:?} of {all:?}");
    assert!(slowest * 3 < all, "a request took {slowest:?} while timers fired for {all:?}");
    let fired = |number: u64| {
        let log = block_on(store.read_log(key(&format!("r{number}")), None, Index(0), usize::MAX)).unwrap();
        log.iter().filter(|record| record.events.iter().any(|event| matches!(event, Event::TimerFired(_)))).count()
    };
    assert!((0..TIMERS).step_by(500).all(|number| fired(number) == 1));
    // The run that was due first is claimable first.
    let order = database.psql("SELECT id FROM onward.runs WHERE ready IS NOT NULL AND id <> 'talk' ORDER BY ready").unwrap();
    let order: Vec<u64> = order.lines().map(|id| id[1..].parse().unwrap()).collect();
    let late = order.iter().enumerate().filter(|(at, number)| (TIMERS - **number).abs_diff(*at as u64) > 4 * PASS as u64).count();
    assert_eq!((order.len() as u64, late), (TIMERS, 0), "oldest first, but for what two servers do at the same time");
    come_with_their_logs(&*store);
}

/// A worker that claims many runs gets their logs with them and does not read each one.
fn come_with_their_logs(store: &dyn Store) {
    let knows = Arc::new(BTreeMap::from([(name("order"), vec![None])]));
    let request = ClaimRuns { worker: worker("next"), namespace: Namespace::default(), knows, limit: 300 };
    let claimed = block_on(store.claim_runs(request)).unwrap();
    assert_eq!(claimed.len(), 300);
    let short = |run: &&ClaimedRun| run.head.next_index.0 <= 64;
    assert!(claimed.iter().filter(short).count() >= 299, "all but the one that was talked to");
    for run in claimed.iter().filter(short) {
        let log = block_on(store.read_log(run.head.key.clone(), None, Index(0), usize::MAX)).unwrap();
        assert_eq!(run.records.as_ref(), Some(&log), "{}", run.head.key);
    }
}

fn fire_all(store: &dyn Store) -> u64 {
    let mut count = 0;
    loop {
        let expired = block_on(store.expire(PASS)).unwrap();
        assert!(expired.timers_fired <= PASS as u64);
        count += expired.timers_fired;
        if !expired.more {
            return count;
        }
    }
}

/// Tasks whose delays ended during an outage become claimable in passes, too.
#[test]
fn thousands_of_tasks_that_may_be_tried_again_come_back_in_passes() {
    const TASKS: u32 = 2_500;
    let (database, clock) = (database(), Arc::new(ManualClock::default()));
    let store = connect_at(&database, clock.clone());
    let mut held = start_held(&*store, "r", "w");
    let scheduled = |ordinal| -> Event {
        let (input, options) = (json("[]"), TaskOptions { retry: Some(RetryPolicy::attempts(2)), ..TaskOptions::default() });
        TaskScheduled { call_id: CallId::root(ordinal), kind: name("mail"), input_hash: Hash::of(&input), input, options }.into()
    };
    commit(&*store, &mut held, (0..TASKS).map(scheduled).collect());
    let claim = |limit| {
        let kinds = Arc::new([name("mail")].into());
        let (worker, namespace) = (worker("t"), Namespace::default());
        block_on(store.claim_tasks(ClaimTasks { worker, namespace, queues: vec![None], kinds, limit, lease: seconds(90) }))
            .unwrap()
    };
    let failed = || TaskReport::Failed(Failure::retryable("busy"));
    let reports: Vec<_> =
        claim(TASKS as usize).into_iter().map(|task| store.report_task(task.id, task.claim, failed(), seconds(90))).collect();
    reports.into_iter().for_each(|report| block_on(report).unwrap());
    clock.advance(seconds(70));
    let ready = || database.psql("SELECT count(*) FROM onward.tasks WHERE state = 0").unwrap().parse::<u32>().unwrap();
    let first = block_on(store.expire(PASS)).unwrap();
    assert!(first.more && ready() < TASKS / 2, "{}", ready());
    while block_on(store.expire(PASS)).unwrap().more {}
    assert_eq!(ready(), TASKS);
}

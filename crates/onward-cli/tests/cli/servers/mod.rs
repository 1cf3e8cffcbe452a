//! Several real servers on one PostgreSQL, with real workers and seeded faults (F9, F14 to F16, F20).
//!
//! Servers and workers are killed, or stopped for longer than their leases; the database is restarted, crashed and killed; its
//! connections are cut around COMMIT; the clocks of the servers are an hour apart. Then the faults stop, all work must finish,
//! and the [`oracle`] checks the result. The default run takes half a minute. `ONWARD_TORTURE_MINUTES=n` continues for that long
//! with a new seed for each round, `ONWARD_TORTURE_SEED=n` repeats one.

mod callers;
mod fleet;
mod oracle;
mod schedules;
mod storm;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use onward_core::Timestamp;
use onward_testkit::{Cluster, OWNER, Proxy, Settings};

use crate::crash::{Chance, fresh_seed};
use callers::Ledger;
use fleet::Fleet;
use oracle::{Oracle, check_nothing_is_left, what_is_left};
use storm::Storm;

/// Duration of the faults by default, and in each round of a long run.
const SHORT: Duration = Duration::from_secs(8);
const LONG: Duration = Duration::from_secs(40);

/// Time to finish all work after the faults.
const PEACE: Duration = Duration::from_secs(600);

#[test]
fn servers_on_one_database_finish_everything_once_whatever_fails() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let (seed, minutes) = (number("ONWARD_TORTURE_SEED"), number("ONWARD_TORTURE_MINUTES"));
    let end = Instant::now() + Duration::from_secs(60 * minutes.unwrap_or(0));
    let mut seeds = Chance::new(seed.unwrap_or_else(fresh_seed));
    let mut round_seed = seed.unwrap_or_else(|| seeds.below(u64::MAX));
    loop {
        round(round_seed, if minutes.is_some() { LONG } else { SHORT });
        if Instant::now() >= end {
            return;
        }
        round_seed = seeds.below(u64::MAX);
    }
}

/// Runs one round: faults, recovery, checks.
fn round(seed: u64, span: Duration) {
    let mut chance = Chance::new(seed);
    let servers = 2 + chance.below(2) as usize;
    println!("ONWARD_TORTURE_SEED={seed}: {servers} servers, faults for {span:?}");
    let mut directory = tempfile::tempdir().unwrap();
    directory.disable_cleanup(true); // kept for debugging
    println!("kept on failure: {}", directory.path().display());
    let begun = now();
    let cluster = Cluster::start(Settings::default()).unwrap();
    let proxy = Proxy::start(cluster.port(), seed, 0).unwrap();
    let url = format!("postgres://{OWNER}@127.0.0.1:{}/postgres", proxy.port);
    let fleet = Fleet::start(servers, &url, directory.path());
    let ledger = Arc::new(Ledger::default());
    let calling = callers::spawn(fleet.urls(), seed, Duration::from_millis(250), ledger.clone());
    let mut storm = Storm::new(fleet, cluster, proxy, chance);
    storm.rage(span);
    ledger.no_more.store(true, Ordering::Relaxed);
    let calmed = Instant::now();
    while !calling.is_finished() {
        if calmed.elapsed() > PEACE {
            panic!("not everything was done {PEACE:?} after the faults:\n{}", what_is_left(&storm.cluster));
        }
        storm.fleet.tend();
        std::thread::sleep(Duration::from_millis(20));
    }
    calling.join().unwrap();
    let took = calmed.elapsed();
    let Storm { fleet, cluster, proxy, met, .. } = storm;
    let (before, behind) = proxy.cuts();
    let unanswered = ledger.unanswered.load(Ordering::Relaxed);
    println!("{met:?}; {before} cuts before and {behind} behind a COMMIT; {unanswered} calls were repeated; done {took:?} later");
    check_nothing_is_left(&cluster);
    let acknowledged = ledger.acknowledged.lock().unwrap();
    Oracle::read(&cluster, &directory.path().join("side")).check(&acknowledged, begun..now());
    println!("{} runs, {} signals", acknowledged.loads.len() + acknowledged.gathers.len(), acknowledged.signals.len());
    drop(fleet);
    directory.disable_cleanup(false);
}

/// Returns the clock of this machine, which is that of the database.
fn now() -> Timestamp {
    Timestamp(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis() as u64)
}

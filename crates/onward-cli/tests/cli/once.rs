//! K6, K9: effects are counted from outside while workers and servers fail in the middle of them.
//!
//! A worker writes the effect of each attempt to a file and keeps the attempt open. Then it is killed, terminated, its key is
//! revoked, or it is killed and its server is frozen for longer than the leases. Another worker takes over. No `at_most_once`
//! task may have two effects, and two effects of any task have two attempt numbers, each recorded before its effect. Every run
//! ends, and interrupted `at_most_once` tasks end as `outcome_unknown`.
//!
//! The default run has one round of each fault. `ONWARD_TORTURE_MINUTES=n` continues for that long.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use onward_testkit::{Cluster, Settings};
use serde_json::Value;

use crate::crash::{Chance, fresh_seed};
use crate::dev::{Served, serve};
use crate::kit::{onward, run};
use crate::torture::{TortureWorker, Work};

/// Lease duration: short, so that the end of a session and of its leases coincide.
const LEASE: Duration = Duration::from_secs(1);

/// Runs per round: half of them with `at_most_once` tasks.
const RUNS: usize = 8;

/// Timeout against hanging.
const PATIENCE: Duration = Duration::from_secs(180);

#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    /// kill -9 of the worker.
    Killed,
    /// SIGTERM of the worker, whose attempts last longer than its shutdown.
    Terminated,
    /// The worker's key is revoked.
    Revoked,
    /// kill -9 of the worker, and the server is stopped while the leases end.
    Frozen,
}

struct Site {
    directory: tempfile::TempDir,
    served: Served,
    /// API key of the client; set if a worker's key is to be revoked.
    key: Option<String>,
}

impl Site {
    fn start(store: Option<&str>, with_keys: bool) -> Site {
        let directory = tempfile::tempdir().unwrap();
        let key = with_keys.then(|| create_key(directory.path(), "read,start,work").0);
        let mut server = onward();
        server.args(["server", "--listen", "127.0.0.1:0"]).env("ONWARD_SERVER__LEASE", format!("{}s", LEASE.as_secs()));
        match store {
            Some(url) => server.env("ONWARD_SERVER__STORE", url),
            None => server.arg("--data").arg(directory.path()),
        };
        let served = serve(server.env("ONWARD_LOG__LEVEL", "error"));
        Site { directory, served, key }
    }

    fn side(&self) -> PathBuf {
        self.directory.path().join("side")
    }

    fn request(&self, method: &str, path: &str, body: &str) -> Value {
        let headers = self.key.as_ref().map(|key| format!("Authorization: Bearer {key}\r\n")).unwrap_or_default();
        let (status, answer) = self.served.request_with(&headers, method, path, body);
        assert!((200..300).contains(&status), "{method} {path}: {status} {answer}");
        answer
    }

    fn knows(&self, key: &str) -> bool {
        self.served.request_with(&format!("Authorization: Bearer {key}\r\n"), "GET", "/v1/runs", "").0 == 200
    }

    fn worker(&self, key: Option<&str>, hold: Duration) -> Worker {
        let worker = TortureWorker::new(Work::Server(self.served.url.clone()), self.side());
        let mut worker = TortureWorker { hold, shutdown: Duration::from_millis(300), ..worker }.command();
        worker.envs(key.map(|key| ("ONWARD_KEY", key)));
        Worker(worker.stdin(Stdio::piped()).spawn().unwrap())
    }

    /// Returns the attempt numbers of the effects, by run.
    fn effects(&self) -> BTreeMap<String, Vec<u64>> {
        let mut effects: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for line in std::fs::read_to_string(self.side()).unwrap_or_default().lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let ["did", run, "0", "once", attempt, _] = words[..] else { panic!("not an effect: {line}") };
            effects.entry(run.to_owned()).or_default().push(attempt.parse().unwrap());
        }
        effects
    }

    /// Returns the attempt numbers in the run's log, and the result of the workflow if it has completed.
    fn read_log(&self, run: &str) -> (Vec<u64>, Option<String>) {
        let log = self.request("GET", &format!("/v1/runs/{run}/events"), "");
        let events: Vec<&Value> = log["events"].as_array().unwrap().iter().map(|event| &event["event"]).collect();
        let attempts = events.iter().filter(|event| event["type"] == "task_attempted");
        let attempts = attempts.map(|event| event["attempt"].as_u64().unwrap()).collect();
        let end = events.iter().find(|event| event["type"] == "run_completed").map(|event| event["output"]["json"].to_string());
        (attempts, end)
    }

    fn round(&self, number: u64, fault: Fault, chance: &mut Chance) -> Counts {
        let created = self.key.as_ref().map(|_| create_key(self.directory.path(), "read,work"));
        let (key, id) = created.unzip();
        until("the new key", || key.as_ref().is_none_or(|key| self.knows(key)));
        let mut worker = self.worker(key.as_deref(), PATIENCE);
        let runs: Vec<String> =
            (0..RUNS).map(|run| format!("{number}-{run}-{}", if run % 2 == 0 { "once" } else { "again" })).collect();
        for run in &runs {
            let input = format!(r#"{{"is_at_most_once": {}}}"#, run.ends_with("once"));
            self.request("POST", "/v1/runs", &format!(r#"{{"kind": "once", "id": "{run}", "input": {input}}}"#));
        }
        // Waits for some or all effects, at least one of an `at_most_once` task.
        let enough = 1 + chance.below(RUNS as u64) as usize;
        until("the effects", || {
            let effects = self.effects();
            let begun: Vec<&String> = runs.iter().filter(|run| effects.contains_key(*run)).collect();
            begun.len() >= enough && begun.iter().any(|run| run.ends_with("once"))
        });
        std::thread::sleep(Duration::from_millis(chance.below(20)));
        match fault {
            Fault::Killed => worker.kill(),
            Fault::Terminated => worker.signal("-TERM"),
            Fault::Revoked => assert_eq!(run(self.directory.path(), ["key", "revoke", &id.unwrap()]).code, 0),
            Fault::Frozen => {
                worker.kill();
                std::thread::sleep(Duration::from_millis(chance.below(1_000)));
                self.served.signal("-STOP");
                std::thread::sleep(LEASE + Duration::from_millis(chance.below(500)));
                self.served.signal("-CONT");
            }
        }
        let _other = self.worker(self.key.as_deref(), Duration::ZERO);
        let mut ends = BTreeMap::new();
        until("the ends of the runs", || {
            for run in &runs {
                if let (false, Some(end)) = (ends.contains_key(run), self.read_log(run).1) {
                    ends.insert(run.clone(), end);
                }
            }
            ends.len() == RUNS
        });
        self.check(&runs, &ends)
    }

    fn check(&self, runs: &[String], ends: &BTreeMap<String, String>) -> Counts {
        let effects = self.effects();
        let mut counts = Counts::default();
        for run in runs {
            let (own, (mut recorded, _), end) = (effects.get(run).cloned().unwrap_or_default(), self.read_log(run), &ends[run]);
            let what = format!("{run}: effects in attempts {own:?}, recorded were {recorded:?}, the end is {end}");
            recorded.dedup(); // an attempt that was returned before it started keeps its number
            let mut different = own.clone();
            different.sort_unstable();
            different.dedup();
            assert_eq!(different.len(), own.len(), "two executions have one number: {what}");
            assert!(own.iter().all(|attempt| recorded.contains(attempt)), "an execution is not recorded: {what}");
            if run.ends_with("once") {
                assert!(own.len() <= 1, "executed twice: {what}");
                assert_eq!(recorded.len(), 1, "attempted again: {what}");
                assert!(end == "\"outcome_unknown\"" || (end == "\"completed\"" && own.len() == 1), "{what}");
                counts.unknown += u64::from(end == "\"outcome_unknown\"");
            } else {
                assert!(end == "\"completed\"" && !own.is_empty(), "{what}");
                counts.again += own.len() as u64 - 1;
            }
        }
        counts
    }
}

/// Result of a round.
#[derive(Debug, Default)]
struct Counts {
    /// `at_most_once` tasks that ended as `outcome_unknown`.
    unknown: u64,
    /// Repeated executions of other tasks.
    again: u64,
}

struct Worker(Child);

impl Worker {
    fn signal(&self, signal: &str) {
        assert!(Command::new("kill").args([signal, &self.0.id().to_string()]).status().unwrap().success());
    }

    fn kill(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Creates a key and returns it with its id.
fn create_key(directory: &Path, scopes: &str) -> (String, String) {
    let made = run(directory, ["key", "create", "--name", "worker", "--scope", scopes]);
    assert_eq!(made.code, 0, "{}", made.err);
    let key = made.out.trim().to_owned();
    let id = key.split('_').nth(1).unwrap().to_owned();
    (key, id)
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "{what} did not come");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn play(store: Option<&str>, fault: Fault) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let (seed, minutes) = (number("ONWARD_TORTURE_SEED"), number("ONWARD_TORTURE_MINUTES"));
    let (seed, end) = (seed.unwrap_or_else(fresh_seed), Instant::now() + Duration::from_secs(60 * minutes.unwrap_or(0)));
    println!("ONWARD_TORTURE_SEED={seed}: {fault:?}");
    let mut chance = Chance::new(seed);
    let site = Site::start(store, fault == Fault::Revoked);
    let (mut rounds, mut total) = (0, Counts::default());
    loop {
        let counts = site.round(rounds, fault, &mut chance);
        (rounds, total.unknown, total.again) = (rounds + 1, total.unknown + counts.unknown, total.again + counts.again);
        if Instant::now() >= end {
            break;
        }
    }
    println!("{fault:?}: {rounds} rounds, {total:?}");
    assert!(total.unknown > 0, "no attempt was interrupted");
}

#[test]
fn a_killed_worker_has_executed_its_task_once() {
    play(None, Fault::Killed);
}

#[test]
fn a_terminated_worker_has_executed_its_task_once() {
    play(None, Fault::Terminated);
}

#[test]
fn a_worker_whose_key_is_revoked_has_executed_its_task_once() {
    play(None, Fault::Revoked);
}

#[test]
fn a_worker_of_a_frozen_server_has_executed_its_task_once() {
    play(None, Fault::Frozen);
}

/// The long run includes the other faults.
#[test]
fn on_postgres_a_worker_has_executed_its_task_once() {
    let cluster = Cluster::start(Settings::default()).unwrap();
    let is_long = std::env::var_os("ONWARD_TORTURE_MINUTES").is_some();
    let faults = if is_long { &[Fault::Killed, Fault::Terminated, Fault::Frozen][..] } else { &[Fault::Killed] };
    faults.iter().for_each(|fault| play(Some(&cluster.url("postgres")), *fault));
}

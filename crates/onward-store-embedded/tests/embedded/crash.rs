//! Another process performs the workload and is killed midway; every acknowledged write must survive (F1, F2, F4, F7, F33).

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use onward_core::Index;
use onward_store::conformance::block_on;
use onward_store::{Store, StoreError};
use onward_store_embedded::{EmbeddedStore, FAILPOINTS, Options};

use crate::random::{Random, is_torture};
use crate::shim;
use crate::workload::{RunOfSteps, STEPS_PER_RUN, Workload, check_survivors, key, new_run};

/// Role of the other process, for which this test binary is started again.
const ROLE: &str = "ONWARD_TEST_ROLE";
const STEPS: u64 = 6 * STEPS_PER_RUN;

pub struct Ended {
    pub status: ExitStatus,
    /// Number of acknowledged steps.
    pub answered: u64,
    pub last_line: String,
    /// Its reports about single runs.
    pub results: Vec<String>,
}

fn other_process(role: &str, directory: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "crash::the_other_process", "--nocapture", "--test-threads=1"]);
    command.env(ROLE, role).env("ONWARD_TEST_DIRECTORY", directory).stdout(Stdio::piped()).stderr(Stdio::null());
    command
}

/// Starts the other process and returns once it has begun.
pub fn start_child(role: &str, directory: &Path) -> Child {
    let mut child = other_process(role, directory).spawn().unwrap();
    let lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line == format!("child begins {role}")));
    child
}

/// Runs the other process to its end.
pub fn run_child(role: &str, directory: &Path, environment: &[(&str, &str)]) -> Ended {
    let mut child = other_process(role, directory).envs(environment.iter().copied()).spawn().unwrap();
    let (mut answered, mut last_line, mut results) = (0, String::new(), Vec::new());
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let Ok(line) = line else { break };
        if let Some(step) = line.strip_prefix("answered ") {
            answered = step.parse::<u64>().unwrap() + 1;
        }
        if line.starts_with("child ") {
            last_line = line;
        } else if let Some(line) = line.strip_prefix("result ") {
            results.push(line.to_owned());
        }
    }
    Ended { status: child.wait().unwrap(), answered, last_line, results }
}

/// Entry point of the other process; does nothing unless one of the tests below started it.
#[test]
fn the_other_process() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let directory = std::env::var("ONWARD_TEST_DIRECTORY").unwrap();
    let mut workload = Workload::default();
    let options = Options { clock: workload.clock(), checkpoint_pages: 50, ..Options::default() };
    let store = match EmbeddedStore::open(&directory, options) {
        Ok(store) => store,
        Err(error) => return println!("\nchild refused {}", error.code()),
    };
    // Starts a new line: the test harness has written its own without ending it.
    println!("\nchild opened");
    if role == "hold" {
        std::io::stdout().flush().unwrap();
        std::thread::sleep(std::time::Duration::from_secs(600));
    }
    if role == "crowd" {
        return commit_concurrently(&store);
    }
    if role == "fork" {
        return crate::forks::write_fork(&store);
    }
    if role == "read" {
        return crate::reads::read_and_write_runs(&store);
    }
    for step in 0..STEPS {
        match workload.perform(&store, step) {
            Ok(()) => println!("answered {step}"),
            Err(error) => return report_failure(&store, &error),
        }
    }
    drop(store);
    println!("child finished");
}

/// Commits on many runs at once, so that batches are large; prints every acknowledgment immediately.
fn commit_concurrently(store: &EmbeddedStore) {
    std::thread::scope(|scope| {
        for id in 0..CROWD {
            scope.spawn(move || {
                let mut run = RunOfSteps::start(store, &format!("c{id}")).unwrap();
                for n in 0..CROWD_COMMITS {
                    run.step(store, 1).unwrap();
                    // One write each, so that lines of several threads do not mix.
                    std::io::stdout().write_all(format!("committed c{id} {n}\n").as_bytes()).unwrap();
                }
            });
        }
    });
}

const CROWD: usize = 24;
const CROWD_COMMITS: u64 = 60;

#[test]
fn a_crowd_of_writers_that_is_killed_loses_no_answer() {
    for (point, hit) in
        [("before_commit", 30), ("after_commit", 31), ("before_reply", 32), ("after_operation", 400), ("after_reply", 33)]
    {
        let directory = tempfile::tempdir().unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "crash::the_other_process", "--nocapture", "--test-threads=1"]);
        command.env(ROLE, "crowd").env("ONWARD_TEST_DIRECTORY", directory.path());
        command.env("ONWARD_FAILPOINT", format!("{point}:{hit}"));
        let output = command.stderr(Stdio::null()).output().unwrap();
        assert_eq!(output.status.signal(), Some(9), "{point}:{hit}");
        let mut answered = std::collections::BTreeMap::new();
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            if let Some((id, n)) = line.strip_prefix("committed ").and_then(|rest| rest.split_once(' ')) {
                answered.insert(id.to_owned(), n.parse::<u64>().unwrap());
            }
        }
        assert!(answered.len() > 1, "{point}:{hit} {answered:?}");
        let store = crate::workload::open(directory.path());
        // `remember` checks that every log is complete and every head agrees with its log.
        let found = crate::workload::remember(&store);
        for (id, n) in answered {
            let (head, _) = found.runs.iter().find(|(head, _)| head.key == key(&id)).expect("the run is there");
            assert!(
                (n + 1..=n + 2).contains(&head.next_commit),
                "{point}:{hit} {id}: answered {n}, next is {}",
                head.next_commit
            );
        }
    }
}

/// Prints whether, after a failure, writes are still refused and reads still work.
fn report_failure(store: &EmbeddedStore, error: &StoreError) {
    let again = block_on(store.start_run(new_run("again"), None)).unwrap_err();
    let read = block_on(store.read_log(key("r0"), None, Index(0), 100)).is_ok();
    println!("child failed {} {} {}", error.code(), again.code(), if read { "readable" } else { "unreadable" });
}

#[test]
fn the_story_without_a_fault_is_the_one_of_the_reference() {
    let directory = tempfile::tempdir().unwrap();
    let ended = run_child("write", directory.path(), &[]);
    assert!(ended.status.success());
    assert_eq!((ended.answered, ended.last_line.as_str()), (STEPS, "child finished"));
    check_survivors(directory.path(), STEPS);
}

#[test]
fn a_process_killed_at_any_failpoint_loses_nothing_it_was_answered() {
    for point in FAILPOINTS {
        let mut killed = 0;
        // Early, midway and late; some points are reached only once or twice.
        for hit in [1, 2, 9, 40] {
            let directory = tempfile::tempdir().unwrap();
            let ended = run_child("write", directory.path(), &[("ONWARD_FAILPOINT", &format!("{point}:{hit}"))]);
            if ended.status.signal() == Some(9) {
                killed += 1;
            } else {
                assert!(ended.status.success() && ended.answered == STEPS, "{point}:{hit} {}", ended.last_line);
            }
            check_survivors(directory.path(), ended.answered);
        }
        assert!(killed > 0, "{point} was never reached");
    }
}

#[test]
fn every_failpoint_is_met() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("met");
    let data = directory.path().join("data");
    run_child("write", &data, &[("ONWARD_FAILPOINT_LOG", log.to_str().unwrap())]);
    let met = std::fs::read_to_string(log).unwrap();
    for point in FAILPOINTS {
        assert!(met.lines().any(|line| line == *point), "{point} was not reached");
    }
}

#[test]
fn a_failed_sync_stops_the_store_and_loses_no_acknowledged_write() {
    let library = shim::library();
    let mut failed = 0;
    for count in [1, 2, 3, 5, 8, 13, 21, 34, 55] {
        let directory = tempfile::tempdir().unwrap();
        let environment = [("LD_PRELOAD", library.to_str().unwrap()), ("SHIM_SYNC_FAILS", &count.to_string())];
        let ended = run_child("write", directory.path(), &environment);
        assert!(ended.status.success(), "the {count}. sync: {}", ended.status);
        if ended.last_line == "child failed store_stopped store_stopped readable" {
            failed += 1;
        } else {
            // The first syncs belong to opening; the last may belong to closing, which promises nothing.
            let harmless = ended.answered == 0 || ended.answered == STEPS;
            assert!(harmless, "the {count}. sync, after {} answers: {}", ended.answered, ended.last_line);
        }
        check_survivors(directory.path(), ended.answered);
    }
    assert!(failed >= 5, "only {failed} syncs failed midway");
}

#[test]
fn a_process_killed_in_the_middle_of_a_page_loses_nothing_it_was_answered() {
    let library = shim::library();
    let mut torn = 0;
    for count in [1, 2, 3, 4, 7, 11, 18, 29, 47, 76, 123] {
        let directory = tempfile::tempdir().unwrap();
        let environment = [("LD_PRELOAD", library.to_str().unwrap()), ("SHIM_TEAR", &count.to_string())];
        let ended = run_child("write", directory.path(), &environment);
        torn += u32::from(ended.status.signal() == Some(9));
        check_survivors(directory.path(), ended.answered);
    }
    assert!(torn >= 8, "only {torn} pages were torn");
}

/// F2. `cargo xtask torture` tries all of them, this test a random sample.
#[test]
fn a_process_killed_at_any_write_or_sync_loses_nothing_it_was_answered() {
    let library = shim::library();
    let count = crate::power::record(&[]).iter().filter(|entry| [b'W', b'T', b'S'].contains(&entry.what)).count() as u64;
    assert!(count > 4 * STEPS, "{count}");
    let mut random = Random::seeded("kill at a write or sync");
    let chosen: Vec<u64> = if is_torture() { (1..=count).collect() } else { (0..12).map(|_| 1 + random.below(count)).collect() };
    for at in chosen {
        let directory = tempfile::tempdir().unwrap();
        let environment = [("LD_PRELOAD", library.to_str().unwrap()), ("SHIM_KILL", &at.to_string())];
        let ended = run_child("write", directory.path(), &environment);
        // Closing may take a write or two less than when they were counted.
        let is_killed = ended.status.signal() == Some(9);
        assert!(is_killed || (ended.status.success() && at + 4 > count), "write or sync {at} of {count}: {}", ended.last_line);
        check_survivors(directory.path(), ended.answered);
    }
}

#[test]
fn a_directory_is_refused_to_a_second_process_until_the_first_is_killed() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "crash::the_other_process", "--nocapture", "--test-threads=1"]);
    command.env(ROLE, "hold").env("ONWARD_TEST_DIRECTORY", directory.path());
    let mut holder = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(holder.stdout.take().unwrap()).lines();
    lines.find(|line| line.as_ref().is_ok_and(|line| line == "child opened")).unwrap().unwrap();

    let refused = EmbeddedStore::open(directory.path(), Options::default()).unwrap_err();
    assert_eq!(refused.code(), "directory_locked");
    assert_eq!(run_child("write", directory.path(), &[]).last_line, "child refused directory_locked");
    EmbeddedStore::open_read_only(directory.path()).unwrap();

    holder.kill().unwrap();
    holder.wait().unwrap();
    check_survivors(directory.path(), 0);
}

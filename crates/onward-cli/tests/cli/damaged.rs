//! Directories that are damaged, full or readable by others, and overdue timers: what servers and `onward doctor` report.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use onward_core::event::{RunStarted, TimerStarted};
use onward_core::run::{Commit, NewRun};
use onward_core::{CallId, CommitId, Index, Name, Namespace, Payload, RunId, RunKey, Timestamp, WorkerId};
use onward_store::Store;
use onward_store::conformance::block_on;
use onward_store_embedded::EmbeddedStore;
use serde_json::Value;

use crate::dev::{Served, dev};
use crate::kit::{Ran, onward, ran, run};

/// Timeout against hanging, for slow machines.
const PATIENCE: Duration = Duration::from_secs(120);

fn check(ran: &Ran, name: &str) -> (String, String) {
    let found: Value = serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{}{}", ran.out, ran.err));
    let check = found["checks"].as_array().unwrap().iter().find(|check| check["check"] == name).unwrap_or(&Value::Null).clone();
    let text = |field: &str| check[field].as_str().unwrap_or_default().to_owned();
    (text("state"), format!("{} {}", text("detail"), text("advice")))
}

fn start_runs(served: &Served, runs: std::ops::Range<u32>) {
    for number in runs {
        assert_eq!(served.request("POST", "/v1/runs", &format!(r#"{{"kind": "hello", "id": "run-{number}"}}"#)).0, 201);
    }
}

/// Kills a server and returns its stderr.
fn kill_and_read_stderr(mut served: Served) -> String {
    served.child.kill().unwrap();
    let mut stderr = String::new();
    served.child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    stderr
}

/// Returns the directory of a killed server with twenty runs, and changes the second half of its write-ahead log.
fn with_changed_log(change: impl FnOnce(&mut [u8])) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let served = dev(directory.path());
    start_runs(&served, 0..20);
    drop(kill_and_read_stderr(served)); // SIGKILL
    let log = directory.path().join("onward.db-wal");
    let mut bytes = std::fs::read(&log).unwrap();
    let half = bytes.len() / 2;
    change(&mut bytes[half..]);
    std::fs::write(&log, bytes).unwrap();
    directory
}

#[test]
fn a_changed_byte_in_the_write_ahead_log_is_reported_and_repaired() {
    let directory = with_changed_log(|bytes| bytes[0] ^= 1);
    let doctor = run(directory.path(), ["doctor", "--json"]);
    assert_eq!((doctor.code, check(&doctor, "log").0.as_str()), (1, "fail"), "{}", doctor.out);
    assert!(check(&doctor, "log").1.contains("frame ") && check(&doctor, "log").1.contains("--repair"), "{}", doctor.out);
    let listed = run(directory.path(), ["run", "list", "--json"]);
    assert_eq!(listed.code, 0, "{}", listed.err);
    assert!(listed.err.contains("the directory is damaged, and every acknowledged write can be read"), "{}", listed.err);
    let exported = run(directory.path(), ["export"]);
    assert!(exported.code == 0 && exported.err.contains("damaged") && exported.out.contains("run-0"), "{}", exported.err);

    let served = dev(directory.path());
    let (status, problem) = served.request("POST", "/v1/runs", r#"{"kind": "hello", "id": "new"}"#);
    assert_eq!((status, problem["code"].as_str()), (503, Some("store_damaged")), "{problem}");
    assert!(problem["hint"].as_str().unwrap().contains("onward doctor --repair"), "{problem}");
    let (status, problem) = served.request("GET", "/readyz", "");
    assert_eq!((status, problem["code"].as_str()), (503, Some("not_ready")), "{problem}");
    assert_eq!(served.request("GET", "/v1/runs/run-0", "").0, 200);
    let stderr = kill_and_read_stderr(served);
    assert!(stderr.contains("the store accepts no writes"), "{stderr}");

    let repaired = run(directory.path(), ["doctor", "--repair", "--json"]);
    assert_eq!(check(&repaired, "repair").0, "ok", "{}", repaired.out);
    assert_eq!((repaired.code, check(&repaired, "log").0.as_str()), (0, "ok"), "nothing was lost: {}", repaired.out);
    let doctor = run(directory.path(), ["doctor", "--json"]);
    assert_eq!((doctor.code, check(&doctor, "log").0.as_str()), (0, "ok"), "{}", doctor.out);
    let served = dev(directory.path());
    start_runs(&served, 100..101);
    let found = (0..20).filter(|number| served.request("GET", &format!("/v1/runs/run-{number}"), "").0 == 200).count();
    assert_eq!(found, 20, "one changed byte is corrected");
}

#[test]
fn an_unreadable_part_of_the_write_ahead_log_makes_exports_and_repairs_fail() {
    let directory = with_changed_log(|bytes| bytes[..10_000].fill(0xa5));
    let exported = run(directory.path(), ["export"]);
    assert!(exported.code == 1 && exported.err.contains("acknowledged writes may be missing"), "{}", exported.err);
    let repaired = run(directory.path(), ["doctor", "--repair", "--json"]);
    assert_eq!((repaired.code, check(&repaired, "log").0.as_str()), (1, "fail"), "{}", repaired.out);
}

#[test]
fn a_page_without_its_checksum_is_found_and_repaired() {
    let directory = tempfile::tempdir().unwrap();
    let mut served = dev(directory.path());
    start_runs(&served, 0..5);
    served.signal("-TERM");
    assert_eq!(served.end(), Some(0));
    let file = directory.path().join("onward.db");
    let mut bytes = std::fs::read(&file).unwrap();
    // A page of an index: reading the logs does not find this damage.
    let page = (1..bytes.len() / 8_192).rev().find(|page| bytes[page * 8_192] == 0x0a).unwrap();
    bytes[page * 8_192 + 4_000] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let doctor = run(directory.path(), ["doctor", "--json"]);
    assert_eq!((doctor.code, check(&doctor, "pages").0.as_str()), (1, "fail"), "{}", doctor.out);
    let held = dev(directory.path());
    let refused = run(directory.path(), ["doctor", "--repair", "--json"]);
    assert_eq!((refused.code, check(&refused, "repair").0.as_str()), (1, "fail"), "{}", refused.out);
    drop(held);
    let repaired = run(directory.path(), ["doctor", "--repair", "--json"]);
    assert_eq!((repaired.code, check(&repaired, "lost").0.as_str()), (0, "ok"), "{}", repaired.out);
    assert_eq!(run(directory.path(), ["doctor", "--json"]).code, 0);
    let again = run(directory.path(), ["doctor", "--repair", "--json"]);
    assert!(check(&again, "repair").1.starts_with("nothing is damaged: 5 events of 5 runs"), "{}", again.out);
    let mark = directory.path().join("onward.synced");
    let mut bytes = std::fs::read(&mark).unwrap_or_default();
    bytes.resize(64, 7);
    bytes[20] ^= 1;
    std::fs::write(&mark, bytes).unwrap();
    let doctor = run(directory.path(), ["doctor", "--json"]);
    assert_eq!((doctor.code, check(&doctor, "mark").0.as_str()), (1, "fail"), "{}", doctor.out);
    let over = ran(onward().args(["doctor", "--repair", "--server", "http://127.0.0.1:1"]));
    assert_eq!(over.code, 2, "{}", over.err);
}

struct Mount(tempfile::TempDir);

impl Mount {
    fn sized(size: &str) -> Mount {
        let directory = tempfile::tempdir().unwrap();
        let options = format!("size={size}");
        let done = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(directory.path()).status();
        assert!(done.is_ok_and(|status| status.success()), "this test mounts a small tmpfs: run it as root");
        Mount(directory)
    }

    fn grow(&self, size: &str) {
        let done = Command::new("mount").args(["-o", &format!("remount,size={size}")]).arg(self.0.path()).status();
        assert!(done.unwrap().success());
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[test]
fn a_server_on_a_full_disk_is_not_ready_until_there_is_space() {
    let mount = Mount::sized("5m");
    let mut served = dev(&mount.0.path().join("data"));
    let log = lines_of(&mut served);
    let start = |number: u32| {
        let input = "x".repeat(50_000);
        let status =
            served.request("POST", "/v1/runs", &format!(r#"{{"kind": "hello", "id": "run-{number}", "input": "{input}"}}"#)).0;
        assert!([201, 507].contains(&status), "{status}");
        status
    };
    assert_eq!(served.request("GET", "/readyz", "").0, 200);
    assert!((0..1_000).any(|number| start(number) == 507), "the disk was never full");
    let (status, problem) = served.request("GET", "/readyz", "");
    assert_eq!((status, problem["code"].as_str()), (503, Some("not_ready")), "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("the disk is full"), "{problem}");
    wait_for(&log, "the store accepts no writes");
    mount.grow("64m");
    assert_eq!(served.request("GET", "/readyz", "").0, 200, "readiness needs no write");
    assert_eq!(start(5_000), 201);
    wait_for(&log, "the store accepts writes again");
}

/// Fails every sync once the file in `FAIL_WHEN` exists.
const FAILING_SYNCS: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>
static int fails(void) { const char *when = getenv("FAIL_WHEN"); if (!when || access(when, F_OK)) return 0; errno = EIO; return 1; }
int fsync(int fd) { return fails() ? -1 : ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd); }
int fdatasync(int fd) { return fails() ? -1 : ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(fd); }
"#;

#[test]
fn a_store_that_stops_after_a_failed_sync_is_in_the_log() {
    let directory = tempfile::tempdir().unwrap();
    let [source, library, when] = ["syncs.c", "syncs.so", "fail"].map(|name| directory.path().join(name));
    std::fs::write(&source, FAILING_SYNCS).unwrap();
    let done = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).arg("-ldl").status();
    assert!(done.expect("the tests need a C compiler named `cc`").success());
    let mut command = onward();
    command.args(["dev", "--port", "0", "--data"]).arg(directory.path().join("data"));
    let mut served = crate::dev::serve(command.env("LD_PRELOAD", &library).env("FAIL_WHEN", &when));
    let log = lines_of(&mut served);
    start_runs(&served, 0..1);
    std::fs::write(&when, "").unwrap();
    let (status, problem) = served.request("POST", "/v1/runs", r#"{"kind": "hello", "id": "lost"}"#);
    assert_eq!((status, problem["code"].as_str()), (503, Some("store_stopped")), "{problem}");
    wait_for(&log, "the store accepts no writes");
    assert_eq!(served.request("GET", "/readyz", "").0, 503);
}

/// Returns the log lines of a server as they are written.
fn lines_of(served: &mut Served) -> mpsc::Receiver<String> {
    let stderr = served.child.stderr.take().unwrap();
    let (to, lines) = mpsc::channel();
    std::thread::spawn(move || BufReader::new(stderr).lines().map_while(Result::ok).try_for_each(|line| to.send(line)));
    lines
}

fn wait_for(lines: &mpsc::Receiver<String>, words: &str) {
    while !lines.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("the log never says `{words}`")).contains(words) {}
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn files_are_readable_by_their_owner_only_and_open_directories_are_reported() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new("sh");
    let binary = env!("CARGO_BIN_EXE_onward");
    command.args(["-c", &format!("umask 000; exec {binary} dev --port 0 --data \"$0\" \"$@\"")]).arg(&data);
    let served = crate::dev::serve(&mut command);
    start_runs(&served, 0..2);
    for entry in std::fs::read_dir(&data).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
    assert!(data.join("onward.db-wal").exists() && data.join("onward.db-shm").exists());
    let stderr = kill_and_read_stderr(served);
    assert!(stderr.contains("other users of this machine can read a secret") && stderr.contains("chmod 700"), "{stderr}");
    let doctor = run(&data, ["doctor", "--json"]);
    assert_eq!((doctor.code, check(&doctor, "modes").0.as_str()), (0, "warn"), "{}", doctor.out);
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(check(&run(&data, ["doctor", "--json"]), "modes").0, "ok");
    let key = directory.path().join("key.pem");
    std::fs::write(&key, "secret").unwrap();
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    let doctor = ran(onward().args(["doctor", "--json", "--data"]).arg(&data).env("ONWARD_TLS_KEY", &key));
    assert!(check(&doctor, "modes").1.contains("key.pem"), "{}", doctor.out);
    // Opening the directory restores the modes of its files.
    for name in ["onward.db", "onward.lock", "onward.synced"] {
        std::fs::set_permissions(data.join(name), std::fs::Permissions::from_mode(0o644)).unwrap();
    }
    assert_eq!(check(&run(&data, ["doctor", "--json"]), "modes").0, "warn");
    let _served = dev(&data);
    for name in ["onward.db", "onward.lock", "onward.synced"] {
        assert_eq!(mode(&data.join(name)), 0o600, "{name}");
    }
}

/// Timers that became due while no server ran are counted by the server that fires them.
#[test]
fn timers_that_fire_when_a_server_comes_up_are_counted() {
    let directory = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(directory.path(), Default::default()).unwrap();
    let key = RunKey::new(Namespace::default(), RunId::new("late").unwrap());
    let started = RunStarted::new(Name::new("nobody-has-it").unwrap(), Payload::from_json_text("1".to_owned()), 7);
    let run = NewRun { key: key.clone(), started, signal: None };
    let claimed = block_on(store.start_run(run, Some(WorkerId::new("w").unwrap()))).unwrap().claimed.unwrap();
    let timer = TimerStarted { call_id: CallId::root(0), due_at: Timestamp(1) };
    let commit = Commit {
        key,
        generation: 0,
        epoch: claimed.head.epoch,
        n: 0,
        commit_id: CommitId(1),
        horizon: Index(0),
        events: vec![timer.into()],
        waits: true,
        end_over_unread: false,
        is_while_paused: false,
        carries: Default::default(),
    };
    block_on(store.commit(commit)).unwrap();
    drop(store);
    let served = dev(directory.path());
    let begun = std::time::Instant::now();
    loop {
        let page = run_metrics(&served);
        let log = served.request("GET", "/v1/runs/late/events", "").1.to_string();
        if log.contains("timer_fired") {
            let page = if page.contains("timer_fired") { page } else { run_metrics(&served) };
            assert!(page.contains("onward_inputs_total{event=\"timer_fired\"} 1"), "{page}");
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{log}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn run_metrics(served: &Served) -> String {
    crate::kit::run_over(&served.url, ["api", "get", "/metrics"]).out
}

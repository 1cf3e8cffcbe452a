//! The cluster starts, separates databases, survives a restart, and is removed with its process.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use onward_testkit::{Cluster, Settings};

/// Set in the process that is killed.
const CHILD: &str = "ONWARD_PG_CHILD";

#[test]
fn databases_are_copies_of_a_template_and_go_when_dropped() {
    let cluster = Cluster::shared();
    let template = cluster.database(None).unwrap();
    template.psql("CREATE TABLE t(n int); INSERT INTO t VALUES (7)").unwrap();
    let copy = cluster.database(Some(template.name())).unwrap();
    copy.psql("UPDATE t SET n = 8").unwrap();
    assert_eq!(template.psql("SELECT n FROM t").unwrap(), "7");
    let name = copy.name().to_owned();
    drop(copy);
    let left = cluster.psql("postgres", &format!("SELECT count(*) FROM pg_database WHERE datname = '{name}'")).unwrap();
    assert_eq!(left, "0");
}

#[test]
fn what_was_committed_survives_a_crash_of_the_server() {
    let mut cluster = Cluster::start(Settings::default()).unwrap();
    assert_eq!(cluster.psql("postgres", "SHOW fsync").unwrap(), "on");
    cluster.psql("postgres", "CREATE TABLE t(n int)").unwrap();
    // SIGKILL, SIGQUIT, SIGINT.
    for signal in [9, 3, 2] {
        cluster.restart(signal).unwrap();
        cluster.psql("postgres", "INSERT INTO t VALUES (1)").unwrap();
    }
    assert_eq!(cluster.psql("postgres", "SELECT count(*) FROM t").unwrap(), "3");
}

#[test]
fn a_killed_process_takes_its_cluster_along() {
    if std::env::var_os(CHILD).is_some() {
        let cluster = Cluster::shared();
        println!("\nserver {}", cluster.server_pid().unwrap());
        std::thread::sleep(Duration::from_secs(600));
    }
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_killed_process_takes_its_cluster_along", "--nocapture"])
        .env(CHILD, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    let server = lines.map_while(Result::ok).find_map(|line| line.strip_prefix("server ").map(str::to_owned)).unwrap();
    let directory = std::env::temp_dir().join(format!("onward-pg-{}-0", child.id()));
    assert!(directory.exists());
    child.kill().unwrap();
    child.wait().unwrap();
    let until = Instant::now() + Duration::from_secs(300);
    while directory.exists() {
        assert!(Instant::now() < until, "server {server} or its files are still there");
        std::thread::sleep(Duration::from_millis(20));
    }
}

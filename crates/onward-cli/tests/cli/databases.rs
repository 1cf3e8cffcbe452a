//! A server on several databases of which some are down.

use std::time::{Duration, Instant};

use onward_testkit::{Cluster, Settings};

use crate::dev::{Served, serve};
use crate::kit::{PATIENCE, onward, run_over};

/// SIGINT: PostgreSQL ends without waiting for its clients.
const FAST: i32 = 2;

const RUNS: usize = 12;

/// Default time without a response after which a database counts as down.
const SILENCE: Duration = Duration::from_secs(15);

fn cluster() -> Cluster {
    Cluster::start(Settings { is_forgetful: true, ..Settings::default() }).unwrap()
}

/// Returns a URL with a password, which must never be printed.
fn url(cluster: &Cluster) -> String {
    format!("postgres://onward:hidden-word@127.0.0.1:{}/postgres", cluster.port())
}

/// Returns the name of the database without its password.
fn shown(cluster: &Cluster) -> String {
    format!("postgres://127.0.0.1:{}/postgres", cluster.port())
}

fn server(clusters: &[&Cluster]) -> Served {
    let store = clusters.iter().map(|cluster| url(cluster)).collect::<Vec<_>>().join(",");
    serve(onward().args(["server", "--listen", "127.0.0.1:0"]).env("ONWARD_SERVER__STORE", store))
}

fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Waits until `/readyz` contains `what` and returns its response.
fn until_ready(served: &Served, what: &str) -> String {
    let mut last = String::new();
    let page = || {
        let output = run_over(&served.url, ["api", "get", "/readyz"]);
        last = format!("{}{}", output.out, output.err);
        assert!(!last.contains("hidden-word"), "{last}");
        last.contains(what).then(|| last.clone())
    };
    until(what, page)
}

fn metrics(served: &Served) -> String {
    let page = run_over(&served.url, ["api", "get", "/metrics"]).out;
    assert!(!page.contains("hidden-word"), "{page}");
    page
}

/// Returns the readable runs, and the errors of the others.
fn reachable(served: &Served) -> (Vec<usize>, Vec<String>) {
    let (mut found, mut refused) = (Vec::new(), Vec::new());
    for number in 0..RUNS {
        let output = run_over(&served.url, ["run", "show", &format!("run-{number}")]);
        match output.code {
            0 => found.push(number),
            _ => refused.push(output.err),
        }
    }
    (found, refused)
}

fn start_runs(served: &Served) {
    for number in 0..RUNS {
        let output = run_over(&served.url, ["run", "start", "order", "--id", &format!("run-{number}")]);
        assert_eq!(output.code, 0, "{}", output.err);
    }
}

/// SD4: lists name missing databases, over HTTP and gRPC, as text and as JSON; commands that need all databases fail.
fn assert_lists_name_missing(served: &Served, found: usize, missing: &str) {
    let parsed =
        |text: &str| -> serde_json::Value { serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}")) };
    let warning = format!("{missing} is down: its data is missing from this list");
    for options in [&["run", "list"][..], &["run", "list", "--all"]] {
        let people = run_over(&served.url, options.iter().copied());
        assert_eq!((people.code, people.out.matches("run-").count()), (0, found), "{}{}", people.out, people.err);
        assert!(people.err.contains(&warning), "{}", people.err);
        let program = run_over(&served.url, options.iter().copied().chain(["--json"]));
        let page = parsed(&program.out);
        assert_eq!(page["runs"].as_array().map(Vec::len), Some(found), "{page}");
        assert_eq!(page["missing_databases"], serde_json::json!([missing]), "{page}");
    }
    for (path, rows) in [("/v1/runs", "runs"), ("/v1/approvals", "approvals"), ("/v1/tasks", "tasks"), ("/v1/deleted", "deleted")]
    {
        let page = parsed(&run_over(&served.url, ["api", "get", path]).out);
        assert!(page[rows].is_array(), "{page}");
        assert_eq!(page["missing_databases"], serde_json::json!([missing]), "{page}");
    }
    for options in [&["approval", "list"][..], &["run", "deleted"], &["queue", "quarantined"]] {
        let output = run_over(&served.url, options.iter().copied());
        assert!(output.code == 0 && output.err.contains(&warning), "{options:?}: {}", output.err);
    }
    for options in [&["export"][..], &["queue", "list"]] {
        let output = run_over(&served.url, options.iter().copied());
        assert!(output.code != 0 && output.err.contains("store_unavailable"), "{options:?}: {}", output.err);
    }
}

#[test]
fn a_database_that_is_down_takes_only_its_own_runs_with_it_and_is_named() {
    let (here, mut there) = (cluster(), cluster());
    let served = server(&[&here, &there]);
    assert_eq!(until_ready(&served, "ready"), "ready\n");
    start_runs(&served);
    assert_eq!(reachable(&served).0.len(), RUNS);

    there.stop(FAST).unwrap();
    let readiness = until_ready(&served, "degraded");
    let (first, degraded) = readiness.split_once('\n').unwrap();
    assert_eq!(first, "ready");
    assert!(degraded.starts_with(&format!("degraded: {} is down: ", shown(&there))), "{readiness}");
    assert_eq!(degraded.lines().count(), 1, "{readiness}");
    let (found, refused) = reachable(&served);
    assert!(!found.is_empty() && !refused.is_empty(), "{found:?}");
    for error in refused {
        assert!(
            error.contains("store_unavailable") && error.contains(&shown(&there)) && !error.contains("hidden-word"),
            "{error}"
        );
    }
    let signaled = run_over(&served.url, ["run", "signal", &format!("run-{}", found[0]), "go", "1"]);
    assert_eq!(signaled.code, 0, "{}", signaled.err);
    let page = metrics(&served);
    for (cluster, up) in [(&here, 1), (&there, 0)] {
        let line = format!("onward_database_up{{database=\"{}\"}} {up}\n", shown(cluster));
        assert!(page.contains(&line), "no {line} in\n{page}");
    }
    assert_lists_name_missing(&served, found.len(), &shown(&there));
    let doctor = run_over(&served.url, ["doctor"]);
    let warned = format!("warn  ready         {} is down: ", shown(&there));
    assert!(doctor.out.contains(&warned), "{}", doctor.out);
    for check in ["ok    key", "warn  workers", "warn  kinds", "ok    tasks"] {
        assert!(doctor.out.contains(check), "no {check} in\n{}", doctor.out);
    }
    assert_eq!(doctor.code, 0, "{}", doctor.out);

    there.go_on().unwrap();
    until("it is whole again", || (until_ready(&served, "ready") == "ready\n").then_some(()));
    assert_eq!(reachable(&served).0.len(), RUNS);
}

#[test]
fn a_server_starts_while_one_of_several_databases_is_down_and_joins_it_when_it_comes() {
    let (mut here, mut there) = (cluster(), cluster());
    let first = server(&[&here, &there]);
    start_runs(&first);
    drop(first);

    there.stop(FAST).unwrap();
    let served = server(&[&here, &there]);
    until_ready(&served, "degraded");
    let (found, refused) = reachable(&served);
    assert!(!found.is_empty() && !refused.is_empty());
    there.go_on().unwrap();
    until("it has joined", || (until_ready(&served, "ready") == "ready\n").then_some(()));
    assert_eq!(reachable(&served).0.len(), RUNS);

    // Without any database the server is not ready, and a new one does not start.
    there.stop(FAST).unwrap();
    here.stop(FAST).unwrap();
    let readiness = until_ready(&served, "not_ready");
    assert!(readiness.contains(&shown(&here)) && readiness.contains(&shown(&there)), "{readiness}");
    drop(served);
    let store = format!("{},{}", url(&here), url(&there));
    let none = onward().args(["server", "--listen", "127.0.0.1:0"]).env("ONWARD_SERVER__STORE", store).output().unwrap();
    let stderr = String::from_utf8(none.stderr).unwrap();
    assert!(none.status.code() == Some(1) && stderr.contains("no database is up") && !stderr.contains("hidden-word"), "{stderr}");
}

/// A database that accepts connections and does not answer counts as down, for a running and for a starting server.
#[test]
fn a_database_that_stands_still_takes_only_its_own_runs_with_it() {
    let (here, there) = (cluster(), cluster());
    let served = server(&[&here, &there]);
    assert_eq!(until_ready(&served, "ready"), "ready\n");
    start_runs(&served);

    let frozen = there.freeze().unwrap();
    let readiness = until_ready(&served, "degraded");
    assert!(
        readiness.starts_with("ready\n") && readiness.contains(&format!("degraded: {} is down: ", shown(&there))),
        "{readiness}"
    );
    let (found, refused) = reachable(&served);
    assert!(!found.is_empty() && !refused.is_empty(), "{found:?}");
    assert!(refused.iter().all(|error| error.contains("store_unavailable") && error.contains(&shown(&there))), "{refused:?}");
    // Requests do not wait for a database that is known to be down.
    let begun = Instant::now();
    assert_eq!(reachable(&served).0, found);
    let taken = begun.elapsed();
    let waited_for_each = SILENCE * u32::try_from(refused.len()).unwrap();
    assert!(taken < waited_for_each / 2, "{RUNS} runs took {taken:?}");
    let signaled = run_over(&served.url, ["run", "signal", &format!("run-{}", found[0]), "go", "1"]);
    assert_eq!(signaled.code, 0, "{}", signaled.err);
    drop(served);

    let late = server(&[&here, &there]);
    let readiness = until_ready(&late, "degraded");
    assert!(readiness.contains(&shown(&there)), "{readiness}");
    assert_eq!(reachable(&late).0, found);
    drop(frozen);
    until("it has joined", || (until_ready(&late, "ready") == "ready\n").then_some(()));
    assert_eq!(reachable(&late).0.len(), RUNS);
}

/// SD5: the identity of a database that comes up late is checked before it is used.
#[test]
fn a_database_that_comes_late_and_is_another_one_is_not_used() {
    let (here, mut there) = (cluster(), cluster());
    let first = server(&[&here, &there]);
    start_runs(&first);
    drop(first);
    // An empty database in place of the old one, and not up yet.
    there.psql("postgres", "DROP SCHEMA onward CASCADE").unwrap();
    there.stop(FAST).unwrap();
    let served = server(&[&here, &there]);
    let before = reachable(&served).0;
    until_ready(&served, "degraded");
    there.go_on().unwrap();
    let readiness = until_ready(&served, "has no recorded shard");
    assert!(readiness.starts_with("ready\n"), "{readiness}");
    assert_eq!(reachable(&served).0, before);
    // No run is started in it.
    for number in 0..RUNS {
        let id = format!("late-{number}");
        drop(run_over(&served.url, ["run", "start", "order", "--id", &id]));
    }
    let runs = there.psql("postgres", "SELECT count(*) FROM onward.runs").unwrap();
    assert_eq!(runs, "0");
}

/// An export does not change an empty database, with or without tables: it may become one of several shards later.
#[test]
fn an_export_of_an_empty_database_changes_nothing() {
    let (here, there) = (cluster(), cluster());
    let export = |clusters: &[&Cluster]| {
        let store = clusters.iter().map(|cluster| url(cluster)).collect::<Vec<_>>().join(",");
        let output = onward().args(["export", "--store"]).env("ONWARD_SERVER__STORE", store).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    for clusters in [&[&here][..], &[&here, &there]] {
        let (code, stderr) = export(clusters);
        assert!(code == Some(1) && stderr.contains("it has no Onward tables"), "{stderr}");
        assert_eq!(here.psql("postgres", "SELECT to_regclass('onward.runs') IS NULL").unwrap(), "t");
    }
    // With tables, but without a shard assignment.
    drop(server(&[&here]));
    here.psql("postgres", "DELETE FROM onward.shard").unwrap();
    assert_eq!(export(&[&here]).0, Some(0));
    assert_eq!(here.psql("postgres", "SELECT count(*) FROM onward.shard").unwrap(), "0");
    drop(server(&[&here, &there]));
    assert_eq!(export(&[&here, &there]).0, Some(0));
}

#[test]
fn the_figures_of_a_database_are_counted_for_prometheus() {
    let here = cluster();
    let served = server(&[&here]);
    assert_eq!(until_ready(&served, "ready"), "ready\n");
    start_runs(&served);
    let page = metrics(&served);
    let value = |name: &str| -> f64 {
        let start = format!("{name}{{database=\"{}\"", shown(&here));
        let line = page.lines().find(|line| line.starts_with(&start)).unwrap_or_else(|| panic!("no {name} in\n{page}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    assert_eq!(value("onward_database_up"), 1.0);
    assert!(value("onward_store_connections") >= 2.0);
    assert!(value("onward_store_operations_total") >= RUNS as f64);
    assert!((1.0..=value("onward_store_operations_total")).contains(&value("onward_store_batches_total")));
    assert_eq!(value("onward_store_commit_seconds_count"), value("onward_store_batches_total"));
    assert!(value("onward_store_commit_seconds_sum") > 0.0);
    assert_eq!((value("onward_store_retries_total"), value("onward_store_unknown_total")), (0.0, 0.0));
    let last = format!("onward_store_commit_seconds_bucket{{database=\"{}\",le=\"+Inf\"}} ", shown(&here));
    assert!(page.contains(&last), "{page}");
}

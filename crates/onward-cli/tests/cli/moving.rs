//! Forks, resets, bulk actions, export and import.

use crate::dev::{dev, serve};
use crate::doctor::damage;
use crate::kit::{one_order, onward, ran, run, run_over, run_with_stdin, until};

#[test]
fn a_run_is_forked_and_reset_from_the_command_line() {
    let directory = one_order("order-1");
    run(directory.path(), ["run", "fork", "order-1", "--from", "3", "--new-id", "copy"])
        .assert_output(0, "order-1 was forked as run copy; the run continues when a worker is available");
    run(directory.path(), ["run", "fork", "order-1", "--from", "3", "--new-id", "copy"])
        .assert_output(0, "order-1 was forked as run copy by an earlier request");
    let shown = run(directory.path(), ["run", "show", "copy", "--json"]).json();
    assert_eq!((&shown["forked_from"]["run"], &shown["forked_from"]["index"]), (&"order-1".into(), &3.into()));
    let retried = run(directory.path(), ["run", "retry", "order-1"]);
    assert_eq!(retried.code, 6);
    assert!(retried.err.contains("run_not_failed"), "{}", retried.err);
}

#[test]
fn runs_move_to_another_directory_and_go_on_there() {
    let (from, to) = (one_order("order-1"), one_order("order-2"));
    let lines = run(from.path(), ["export", "--kind", "order"]);
    assert_eq!(lines.code, 0);
    run_with_stdin(to.path(), &["import", "-"], &lines.out).assert_output(0, "1 runs imported, 0 already existed");
    run_with_stdin(to.path(), &["import", "-"], &lines.out).assert_output(0, "0 runs imported, 1 already existed");
    assert_eq!(run(to.path(), ["export", "order-1"]).out, lines.out);
    run(to.path(), ["run", "signal", "order-1", "payment", "1"]);
    until(to.path(), "order-1", "ship");
    let broken = run_with_stdin(to.path(), &["import", "-"], "nonsense");
    assert!(broken.code == 1 && broken.err.contains("import_invalid"), "{}", broken.err);
}

#[test]
fn runs_are_imported_into_a_directory_that_was_not_there() {
    let (from, to) = (one_order("order-1"), tempfile::tempdir().unwrap());
    let lines = run(from.path(), ["export"]).out;
    let (fresh, empty) = (to.path().join("fresh"), to.path().join("empty"));
    std::fs::create_dir(&empty).unwrap();
    for directory in [&fresh, &empty] {
        run_with_stdin(directory, &["import", "-"], &lines).assert_output(0, "1 runs imported, 0 already existed");
        assert_eq!(run(directory, ["export"]).out, lines);
    }
    // An invalid file creates no directory.
    let nothing = to.path().join("nothing");
    assert_eq!(run_with_stdin(&nothing, &["import", "-"], "nonsense").code, 1);
    assert!(!nothing.exists());
}

#[test]
fn an_export_that_was_cut_is_not_imported() {
    let (from, to) = (one_order("order-1"), tempfile::tempdir().unwrap());
    let lines = run(from.path(), ["export"]).out;
    let cut: String = lines.split_inclusive('\n').take(4).collect();
    let refused = run_with_stdin(&to.path().join("new"), &["import", "-"], &cut);
    assert!(refused.code == 1 && refused.err.contains("import_invalid") && refused.err.contains("incomplete"), "{}", refused.err);
    assert!(!to.path().join("new").exists());
}

#[test]
fn runs_move_over_servers_as_they_do_between_directories() {
    let (from, to) = (one_order("order-1"), tempfile::tempdir().unwrap());
    let lines = run(from.path(), ["export"]).out;
    let file = to.path().join("runs.jsonl");
    std::fs::write(&file, &lines).unwrap();
    let file = file.to_str().unwrap();
    let target = dev(&to.path().join("data"));
    run_over(&target.url, ["import", file]).assert_output(0, "1 runs imported, 0 already existed");
    run_over(&target.url, ["import", file]).assert_output(0, "0 runs imported, 1 already existed");
    assert_eq!(run_over(&target.url, ["export"]).out, lines);
    assert_eq!(run_over(&target.url, ["export", "order-1", "--kind", "order"]).out, lines);
    assert_eq!(ran(onward().args(["export", "order-1"]).env("ONWARD_URL", &target.url)).out, lines);
    run_over(&target.url, ["export", "nope"]).assert_output(
        4,
        "! error[run_not_found]: run nope not found\n! hint: list the runs of this store with `onward run list`",
    );
    for target in [["--server", target.url.as_str()], ["--data", from.path().to_str().unwrap()]] {
        let foreign = ran(onward().args(["import", file, "--namespace", "elsewhere"]).args(target));
        assert!(foreign.code == 7 && foreign.err.contains("not_allowed"), "{}", foreign.err);
        let none = ran(onward().args(["export", "--namespace", "elsewhere"]).args(target));
        assert_eq!(none.out, "{\"onward_export\":1}\n{\"runs\":0}\n");
    }
}

#[test]
fn a_run_that_is_too_large_for_a_server_is_named_and_the_others_come_in() {
    let (from, to) = (one_order("order-1"), tempfile::tempdir().unwrap());
    let large = format!("[\"{}\"]", "x".repeat(20_000));
    let mut start = vec!["run", "start", "order", "--id", "large", "--input", &large];
    assert_eq!(run(from.path(), &start).code, 0);
    for id in ["b", "c"] {
        start[4] = id;
        start[6] = "[1]";
        assert_eq!(run(from.path(), &start).code, 0);
    }
    let file = to.path().join("runs.jsonl");
    std::fs::write(&file, run(from.path(), ["export"]).out).unwrap();
    let mut server = onward();
    server.args(["dev", "--port", "0", "--data"]).arg(to.path().join("data")).env("ONWARD_LIMITS__BODY_BYTES_MAX", "10000");
    let target = serve(&mut server);
    run_over(&target.url, ["import", file.to_str().unwrap()]).assert_output(
        1,
        "3 runs imported, 0 already existed\n! large was refused: body_too_large\n! hint: stop the server and import with `onward --data DIR import FILE`, or into its databases with `--store`",
    );
}

#[test]
fn a_damaged_run_is_named_and_the_others_are_exported() {
    let directory = one_order("order-1");
    assert_eq!(run(directory.path(), ["run", "start", "order", "--id", "whole", "--input", "[1]"]).code, 0);
    damage(directory.path());
    let left_out = "{\"left_out\":{\"namespace\":\"default\",\"id\":\"order-1\"},\"code\":\"log_corrupt\"}\n";
    let check = |output: crate::kit::Ran| {
        assert!(
            output.code == 1 && output.err.contains("error[log_corrupt]") && output.err.contains("order-1"),
            "{}",
            output.err
        );
        assert!(output.out.contains("\"id\":\"whole\"") && output.out.contains(left_out), "{}", output.out);
        assert!(output.out.ends_with("{\"runs\":1}\n"), "{}", output.out);
    };
    check(run(directory.path(), ["export"]));
    let served = dev(directory.path());
    check(run_over(&served.url, ["export"]));
    let page = run_over(&served.url, ["api", "get", "/v1/export"]);
    assert!(page.code == 0 && page.out.contains(left_out) && page.out.ends_with("{\"runs\":1}\n"), "{}", page.out);
}

/// Returns an export with `count` copies of a pending run.
fn many(count: usize) -> String {
    let from = tempfile::tempdir().unwrap();
    let mut served = dev(&from.path().join("data"));
    assert_eq!(run_over(&served.url, ["run", "start", "k", "--id", "IT"]).code, 0);
    let lines = run_over(&served.url, ["export"]).out;
    served.signal("-TERM");
    served.end();
    let run: String = lines.split_inclusive('\n').skip(1).take(2).collect();
    let runs: String = (0..count).map(|number| run.replace("\"IT\"", &format!("\"r{number}\""))).collect();
    format!("{{\"onward_export\":1}}\n{runs}{{\"runs\":{count}}}\n")
}

#[test]
fn a_page_of_several_is_imported_with_a_warning_and_an_export_has_all_of_them() {
    let to = tempfile::tempdir().unwrap();
    let (data, file) = (to.path().join("data"), to.path().join("page.jsonl"));
    run_with_stdin(&data, &["import", "-"], &many(3)).assert_output(0, "3 runs imported, 0 already existed");
    let served = dev(&data);
    let page = run_over(&served.url, ["api", "get", "/v1/export?limit=2"]).out;
    assert!(page.lines().last().unwrap().starts_with("{\"runs\":2,\"next\":\""), "{page}");
    std::fs::write(&file, &page).unwrap();
    let fresh = to.path().join("fresh");
    let output = run(&fresh, ["import", file.to_str().unwrap()]);
    assert_eq!((output.code, output.out.as_str()), (0, "2 runs imported, 0 already existed\n"), "{}", output.err);
    assert!(output.err.starts_with("warning: this file is one page of several"), "{}", output.err);
    let all = run_over(&served.url, ["export"]).out;
    assert!(all.ends_with("{\"runs\":3}\n"), "{all}");
}

#[test]
fn a_list_has_as_many_runs_as_requested_wherever_they_are() {
    let to = tempfile::tempdir().unwrap();
    assert_eq!(run_with_stdin(to.path(), &["import", "-"], &many(1_100)).code, 0);
    let served = dev(to.path());
    for (limit, runs) in [("1050", 1_050), ("5000", 1_100)] {
        let list = ["run", "list", "--json", "--limit", limit];
        let (near, far) = (run(to.path(), list).json(), run_over(&served.url, list).json());
        assert_eq!((near["runs"].as_array().unwrap().len(), far["runs"].as_array().unwrap().len()), (runs, runs));
        assert_eq!(near, far);
        assert_eq!(near["next"].is_null(), runs == 1_100);
    }
}

#[test]
fn many_runs_are_counted_before_they_are_ended() {
    let directory = one_order("order-1");
    let counted = run(directory.path(), ["run", "bulk", "terminate", "--kind", "order", "--dry-run", "--json"]).json();
    assert_eq!((&counted["matched"], &counted["sample"][0]), (&1.into(), &"order-1".into()));
    let unconfirmed = run_with_stdin(directory.path(), &["run", "bulk", "terminate", "--kind", "order"], "");
    assert!(unconfirmed.code == 1 && unconfirmed.err.contains("not_confirmed"), "{}", unconfirmed.err);
    let all = run(directory.path(), ["run", "bulk", "terminate", "--yes"]);
    assert!(all.code == 2 && all.err.contains("filter_empty"), "{}", all.err);
    run(directory.path(), ["run", "bulk", "terminate", "--kind", "order", "--yes"])
        .assert_output(0, "terminate: 1 runs, 0 refused");
    let listed = run(directory.path(), ["run", "list", "--json"]).json();
    assert_eq!(listed["runs"][0]["status"], "terminated");
}

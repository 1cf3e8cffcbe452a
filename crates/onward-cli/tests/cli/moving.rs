//! Going on from a point, acting on many runs, and moving runs between directories.

use crate::kit::{one_order, run, run_with_stdin, until};

#[test]
fn a_run_is_forked_and_reset_from_the_command_line() {
    let directory = one_order("order-1");
    run(directory.path(), ["run", "fork", "order-1", "--from", "3", "--new-id", "copy"])
        .says(0, "order-1 was forked as run copy; it goes on when a worker runs");
    run(directory.path(), ["run", "fork", "order-1", "--from", "3", "--new-id", "copy"])
        .says(0, "order-1 was forked as run copy, before");
    let shown = run(directory.path(), ["run", "show", "copy", "--json"]).json();
    assert_eq!((&shown["forked_from"]["run"], &shown["forked_from"]["index"]), (&"order-1".into(), &3.into()));
    let retried = run(directory.path(), ["run", "retry", "order-1"]);
    assert_eq!(retried.code, 1);
    assert!(retried.err.contains("run_not_failed"), "{}", retried.err);
}

#[test]
fn runs_move_to_another_directory_and_go_on_there() {
    let (from, to) = (one_order("order-1"), one_order("order-2"));
    let lines = run(from.path(), ["export", "--kind", "order"]);
    assert_eq!(lines.code, 0);
    run_with_stdin(to.path(), &["import", "-"], &lines.out).says(0, "1 runs imported, 0 were there already");
    run_with_stdin(to.path(), &["import", "-"], &lines.out).says(0, "0 runs imported, 1 were there already");
    assert_eq!(run(to.path(), ["export", "order-1"]).out, lines.out);
    run(to.path(), ["run", "signal", "order-1", "payment", "1"]);
    until(to.path(), "order-1", "ship");
    let broken = run_with_stdin(to.path(), &["import", "-"], "nonsense");
    assert!(broken.code == 1 && broken.err.contains("import_invalid"), "{}", broken.err);
}

#[test]
fn many_runs_are_counted_before_they_are_ended() {
    let directory = one_order("order-1");
    let counted = run(directory.path(), ["run", "bulk", "terminate", "--kind", "order", "--dry-run", "--json"]).json();
    assert_eq!((&counted["matched"], &counted["sample"][0]), (&1.into(), &"order-1".into()));
    let asked = run_with_stdin(directory.path(), &["run", "bulk", "terminate", "--kind", "order"], "");
    assert!(asked.code == 1 && asked.err.contains("not_confirmed"), "{}", asked.err);
    let all = run(directory.path(), ["run", "bulk", "terminate", "--yes"]);
    assert!(all.code == 1 && all.err.contains("filter_empty"), "{}", all.err);
    run(directory.path(), ["run", "bulk", "terminate", "--kind", "order", "--yes"]).says(0, "terminate: 1 runs, 0 refused");
    let listed = run(directory.path(), ["run", "list", "--json"]).json();
    assert_eq!(listed["runs"][0]["status"], "terminated");
}

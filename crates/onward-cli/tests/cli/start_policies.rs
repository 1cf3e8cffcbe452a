//! `onward run start` with a policy.

use crate::kit::run;

#[test]
fn a_start_with_a_policy_prints_its_run_and_what_happens_to_it() {
    let directory = tempfile::tempdir().unwrap();
    let start = |args: &[&str]| run(directory.path(), &[&["run", "start", "order"], args].concat());
    let first = start(&["--singleton", "u7", "--json"]).json();
    assert_eq!((&first["outcome"], &first["repeated"]), (&"started".into(), &false.into()), "{first}");
    let second = start(&["--singleton", "u7"]);
    assert_eq!(second.out, format!("{}: is open; the start was skipped\n", first["id"].as_str().unwrap()));
    let replaced = start(&["--singleton", "u7", "--on-conflict", "cancel"]);
    assert!(replaced.out.ends_with(": starts when the canceled run has ended\n"), "{}", replaced.out);
    let held = start(&["--debounce", "p3", "--window", "1h", "--max-wait", "2h", "--request-id", "q"]);
    assert!(held.out.contains(": starts at "), "{}", held.out);
    let again = start(&["--debounce", "p3", "--window", "1h", "--max-wait", "2h", "--request-id", "q"]);
    assert_eq!(again.out, held.out.replace('\n', " by an earlier request\n"));
    let batch = ["--batch", "mails", "--size-max", "2", "--window", "1h", "--json"];
    let (one, two) = (start(&batch).json(), start(&batch).json());
    assert_eq!((&one["outcome"], &two["outcome"], &one["id"]), (&"held".into(), &"started".into(), &two["id"]));
}

#[test]
fn options_that_do_not_go_together_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    for args in [
        &["--singleton", "k", "--id", "mine"][..],
        &["--singleton", "k", "--signal", "paid=1"],
        &["--singleton", "k", "--batch", "k", "--size-max", "1", "--window", "1s"],
        &["--debounce", "k"],
        &["--on-conflict", "skip"],
        &["--request-id", "q"],
        &["--singleton", ""],
    ] {
        let refused = run(directory.path(), &[&["run", "start", "order"], args].concat());
        assert!(refused.code != 0 && refused.err.contains("error"), "{args:?}: {}", refused.err);
    }
}

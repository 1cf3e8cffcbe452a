//! The output of every command when it succeeds.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use onward::Onward;
use onward::prelude::*;

use crate::kit::{self, one_order, onward, ran, run, run_with_stdin, steady, until, until_diverged, until_end, with_code};

#[test]
fn a_run_is_listed_and_shown() {
    let directory = one_order("order-1");
    run(directory.path(), ["run", "list"]).assert_output(
        0,
        "
ID KIND STATUS EVENTS CREATED CHANGED
order-1 order waiting 4 AGO AGO
",
    );
    run(directory.path(), ["run", "show", "order-1"]).assert_output(
        0,
        "
run order-1
kind order
status waiting
created TIME (AGO)
changed TIME (AGO)
input \"a teapot\"
log 4 events, 1 step

awaiting
  KIND NAME SINCE DEADLINE ID
  signal payment AGO order-1~0~2

state
  stage \"charged\"
",
    );
}

#[test]
fn a_run_is_shown_as_of_an_event_as_a_waterfall_and_in_numbers() {
    let directory = one_order("order-1");
    let data = directory.path();
    run(data, ["run", "show", "order-1", "--at", "1"]).assert_output(
        0,
        "
run order-1
event #1 of generation 0, TIME
        step_completed charge -> 42
status pending
",
    );
    let at = run(data, ["run", "show", "order-1", "--at", "3", "--json"]).json();
    assert_eq!((&at["status"], &at["open_calls"][0]), (&"waiting".into(), &"2".into()));
    let timeline = run(data, ["run", "timeline", "order-1"]).out;
    let lines: Vec<&str> = timeline.lines().collect();
    assert!(lines[0].starts_with("CALL  TYPE") && lines[0].ends_with("TIMELINE"), "{timeline}");
    assert!(lines[1].contains("step") && lines[1].contains("charge") && lines[1].contains('█'), "{timeline}");
    assert!(lines[2].contains("signal") && lines[2].contains("waiting") && lines[2].contains('░'), "{timeline}");
    assert_eq!(run(data, ["run", "timeline", "order-1", "--json"]).json()["calls"].as_array().unwrap().len(), 2);
    let counts = run(data, ["run", "counts", "--kind", "order"]);
    assert!(steady(&counts.out).contains("waiting 1\n"), "{}", counts.out);
}

#[test]
fn a_log_is_printed_in_words() {
    let directory = one_order("order-1");
    run(directory.path(), ["run", "events", "order-1"]).assert_output(
        0,
        "
# AFTER EVENT WHAT
0 +T run_started order \"a teapot\"
1 +T step_completed charge -> 42
2 +T state_set stage = \"charged\"
3 +T signal_awaited payment
",
    );
    run(directory.path(), ["run", "events", "order-1", "--from", "3"])
        .assert_output(0, "# AFTER EVENT WHAT\n3 +T signal_awaited payment");
}

#[test]
fn a_budget_is_given_shown_and_changed() {
    let directory = one_order("order-1");
    let data = directory.path();
    run(data, ["run", "start", "tea", "--id", "t", "--budget", "tokens=10", "--budget", "cost=2.50"])
        .assert_output(0, "t: started");
    let budget = || {
        let shown = run(data, ["run", "show", "t"]);
        shown.out.lines().find(|line| line.starts_with("budget")).map(|line| line.trim_start_matches("budget").trim().to_owned())
    };
    assert_eq!(budget().as_deref(), Some("tokens=10 cost=2.5; left: tokens=10 cost=2.5"));
    assert_eq!(run(data, ["run", "pause", "t"]).code, 0);
    assert_eq!(run(data, ["run", "resume", "t", "--budget", "tokens=20", "--budget", "turns=3"]).code, 0);
    assert_eq!(budget().as_deref(), Some("tokens=20 cost=2.5 turns=3; left: tokens=20 cost=2.5 turns=3"));
    let events = run(data, ["run", "events", "t"]).out;
    assert!(events.contains("with tokens=20 turns=3"), "{events}");
    assert_eq!(run(data, ["run", "show", "t", "--json"]).json()["budget"]["cost"], "2.5");
}

#[test]
fn json_is_one_document_and_a_log_one_record_per_line() {
    let directory = one_order("order-1");
    let list = run(directory.path(), ["run", "list", "--json"]).json();
    assert_eq!(
        (&list["runs"][0]["id"], &list["runs"][0]["status"], &list["next"]),
        (&"order-1".into(), &"waiting".into(), &serde_json::Value::Null)
    );
    let all = run(directory.path(), ["run", "list", "--all", "--json"]).json();
    assert_eq!(all, list);
    let show = run(directory.path(), ["run", "show", "order-1", "--json"]).json();
    assert_eq!(show["awaiting"][0]["kind"], "signal");
    assert_eq!(show["input"]["json"], "a teapot");
    let events = run(directory.path(), ["run", "events", "order-1", "--json"]);
    let names: Vec<String> = events
        .out
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .map(|record| record["events"][0]["type"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(names, ["run_started", "step_completed", "state_set"]);
    assert_eq!(run(directory.path(), ["approval", "list", "--json"]).json(), serde_json::json!({"approvals": []}));
}

#[test]
fn an_order_is_led_to_its_end_by_hand() {
    let directory = one_order("order-1");
    let data = directory.path();
    run(data, ["run", "signal", "order-1", "payment", "7", "--signal-id", "p1"])
        .assert_output(0, "order-1: signal received at event #4; the run continues when a worker is available");
    run(data, ["run", "signal", "order-1", "payment", "7", "--signal-id", "p1"])
        .assert_output(0, "order-1: signal received at event #4 by an earlier request with the same id");
    until(data, "order-1", "ship");
    run(data, ["approval", "list"])
        .assert_output(0, "ID SINCE DEADLINE DECIDERS QUESTION\norder-1~0~3 AGO ada, bob Ship a teapot?");
    run(data, ["approval", "decide", "order-1~0~3", "--approve", "--by", "ada", "--feedback", "fine", "--decision-id", "d1"])
        .assert_output(0, "order-1: approved at event #7; the run continues when a worker is available");
    run(data, ["approval", "decide", "order-1~0~3", "--approve", "--by", "ada", "--feedback", "fine", "--decision-id", "d1"])
        .assert_output(0, "order-1: approved at event #7 by an earlier request with the same id");
    until_end(data, "order-1");
    run(data, ["run", "wait", "order-1"]).assert_output(0, "\"a teapot shipped for 7\"");
    run(data, ["run", "show", "order-1"]).assert_output(
        0,
        "
run order-1
kind order
status completed
created TIME (AGO)
ended TIME (after SPAN)
input \"a teapot\"
log 9 events, 1 step, 1 signal

state
  stage \"charged\"

outcome
  output \"a teapot shipped for 7\"
",
    );
    run(data, ["run", "events", "order-1", "--from", "5", "--follow"]).assert_output(
        0,
        "
# AFTER EVENT WHAT
5 +T signal_consumed payment of event #4
6 +T approval_requested ship: Ship a teapot?
7 +T approval_decided ship approved by ada: fine
8 +T run_completed \"a teapot shipped for 7\"
",
    );
    run(data, ["run", "delete", "order-1", "--reason", "test"]).assert_output(0, "order-1: deleted");
    run(data, ["run", "list"]).assert_output(0, "! no runs");
    run(data, ["run", "deleted"]).assert_output(0, "ID KIND DELETED REASON\norder-1 order AGO test");
    assert_eq!(run(data, ["run", "deleted", "order-1", "--json"]).json()["deleted"][0]["reason"], "test");
    run(data, ["run", "deleted", "order-2"]).assert_output(0, "! no deleted runs");
}

#[test]
fn payloads_come_from_files_and_stdin_too() {
    let directory = one_order("order-1");
    let file = directory.path().join("payload.json");
    std::fs::write(&file, "{\"a\": 1}\n").unwrap();
    assert_eq!(run(directory.path(), ["run", "signal", "order-1", "x", &format!("@{}", file.display())]).code, 0);
    assert_eq!(run_with_stdin(directory.path(), &["run", "signal", "order-1", "x", "-"], " [2] ").code, 0);
    assert_eq!(run(directory.path(), ["run", "signal", "order-1", "x"]).code, 0);
    run(directory.path(), ["run", "events", "order-1", "--from", "4"]).assert_output(
        0,
        "
# AFTER EVENT WHAT
4 +T signal_received x {\"a\": 1}
5 +T signal_received x [2]
6 +T signal_received x null
",
    );
}

#[test]
fn a_rejected_order_fails_and_waiting_for_it_reports_that() {
    let directory = one_order("order-1");
    let data = directory.path();
    assert_eq!(run(data, ["run", "signal", "order-1", "payment", "7"]).code, 0);
    until(data, "order-1", "ship");
    assert_eq!(run(data, ["approval", "decide", "order-1~0~3", "--reject", "--by", "bob"]).code, 0);
    until_end(data, "order-1");
    run(data, ["run", "wait", "order-1"]).assert_output(3, "! error[run_failed]: run order-1 failed: [rejected] rejected");
    let shown = run(data, ["run", "show", "order-1"]).out;
    assert!(shown.ends_with("outcome\n  code     rejected\n  message  rejected\n"), "{shown}");
    let json: serde_json::Value = serde_json::from_str(&run(data, ["run", "wait", "order-1", "--json"]).out).unwrap();
    assert_eq!(json["failure"]["code"], "rejected");
}

#[test]
fn a_run_is_paused_resumed_canceled_and_terminated() {
    let directory = one_order("order-1");
    let data = directory.path();
    run(data, ["run", "pause", "order-1", "--reason", "audit"]).assert_output(0, "order-1: paused at event #4");
    let shown = run(data, ["run", "show", "order-1"]).out;
    assert!(shown.contains("paused\n  why      requested\n  message  audit\n"), "{shown}");
    run(data, ["run", "resume", "order-1"]).assert_output(0, "order-1: resumed at event #5");
    let shown = run(data, ["run", "show", "order-1"]).out;
    assert!(shown.contains("a worker that serves `order`"), "{shown}");
    run(data, ["run", "cancel", "order-1", "--reason", "no stock"]).assert_output(0, "order-1: cancel requested at event #6");
    run(data, ["run", "terminate", "order-1", "--reason", "enough"]).assert_output(0, "order-1: terminated at event #7");
    run(data, ["run", "list", "--status", "terminated,failed", "--kind", "order"])
        .assert_output(0, "ID KIND STATUS EVENTS CREATED CHANGED\norder-1 order terminated 8 AGO AGO");
    run(data, ["run", "list", "--status", "waiting"]).assert_output(0, "! no runs");
}

#[test]
fn a_divergence_is_shown_as_recorded_against_attempted() {
    let directory = one_order("order-1");
    let data = directory.path();
    assert_eq!(run(data, ["run", "signal", "order-1", "payment", "7"]).code, 0);
    until_diverged(data, "order-1");
    let shown = run(data, ["run", "show", "order-1"]);
    let paused = shown.out.split("\n\n").find(|part| part.starts_with("paused")).unwrap().to_owned();
    kit::Ran { out: paused, ..shown }.assert_output(
        0,
        "
paused
  why the code diverged from the log
  at event #1
  recorded step `charge` at 0
  attempted step `refund` at 0
  hint the code changed while this run was open, or it depends on something that is not recorded (time, randomness, environment, map order); deploy the change under `ctx.version` or as a new version, then `onward run resume order-1`
",
    );
}

#[test]
fn lists_go_on_where_the_page_before_ended() {
    let directory = one_order("order-1");
    let data = directory.path();
    kit::with_worker(data, async |onward| {
        for n in 2..=5 {
            drop(onward.start::<String, _>("order", "x").id(format!("order-{n}")).await.unwrap());
        }
    });
    let (mut seen, mut cursor) = (Vec::new(), None::<String>);
    loop {
        let mut args = vec!["run".to_owned(), "list".to_owned(), "--json".to_owned(), "--limit".to_owned(), "2".to_owned()];
        args.extend(cursor.iter().flat_map(|cursor| ["--cursor".to_owned(), cursor.clone()]));
        let page = run(data, &args).json();
        seen.extend(page["runs"].as_array().unwrap().iter().map(|run| run["id"].as_str().unwrap().to_owned()));
        match page["next"].as_str() {
            Some(next) => cursor = Some(next.to_owned()),
            None => break,
        }
    }
    seen.sort();
    assert_eq!(seen, ["order-1", "order-2", "order-3", "order-4", "order-5"]);
    let page = run(data, ["run", "list", "--limit", "2"]);
    assert_eq!((page.out.lines().count(), page.err.contains("for more runs: --cursor ")), (3, true));
    assert_eq!(run(data, ["run", "list", "--all"]).out.lines().count(), 6);
}

#[test]
fn reading_works_beside_a_worker_and_follows_what_comes() {
    let directory = one_order("order-1");
    let data = directory.path().to_owned();
    kit::with_worker(&data.clone(), async |engine| {
        let mut follow = onward();
        follow.args(["run", "events", "order-1", "--follow", "--json", "--data"]).arg(&data).stdout(Stdio::piped());
        let mut follow = follow.spawn().unwrap();
        let mut lines = BufReader::new(follow.stdout.take().unwrap()).lines();
        assert!(lines.next().unwrap().unwrap().contains("run_started"));
        assert_eq!(run(&data, ["run", "show", "order-1"]).code, 0);
        let handle = engine.run::<String>("order-1").unwrap();
        handle.terminate("enough").await.unwrap();
        assert!(lines.map(Result::unwrap).last().unwrap().contains("terminate_requested"));
        assert!(follow.wait().unwrap().success());
    });
}

#[test]
fn the_directory_may_come_from_the_environment() {
    let directory = one_order("order-1");
    assert!(ran(onward().args(["run", "list"]).env("ONWARD_DATA", directory.path())).out.contains("order-1"));
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let directory = one_order("order-1");
    let mut list = onward();
    list.args(["run", "events", "order-1", "--data"]).arg(directory.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut list = list.spawn().unwrap();
    drop(list.stdout.take());
    let output = list.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), b"".as_slice()));
}

#[test]
fn the_version_is_printed() {
    ran(onward().arg("--version")).assert_output(0, &format!("onward {}", env!("CARGO_PKG_VERSION")));
}

#[test]
fn help_begins_with_what_this_is() {
    let help = ran(onward().arg("--help"));
    assert!(help.out.starts_with("Durable execution: "), "{}", help.out);
    assert!(help.code == 0 && help.err.is_empty());
}

#[test]
fn the_log_of_a_generation_names_the_earlier_ones_and_all_can_be_printed() {
    async fn count(ctx: Ctx, number: u32) -> Result<u32> {
        if number < 2 { ctx.continue_as_new(&(number + 1)).await } else { Ok(number) }
    }
    let directory = tempfile::tempdir().unwrap();
    with_code(Onward::embedded(directory.path()).workflow("count", count), async |onward| {
        onward.start::<u32, _>("count", &0).id("c").await.unwrap().result().await.unwrap();
    });
    let events = |args: &[&str]| run(directory.path(), [&["run", "events", "c"][..], args].concat());
    let latest = events(&[]);
    assert_eq!((latest.out.matches("run_started").count(), latest.code), (1, 0), "{}", latest.out);
    assert_eq!(latest.err, "generation 2; earlier ones: `--generation` with 0 to 1, or `--all-generations`\n");
    let first = events(&["--generation", "0"]);
    assert!(first.out.contains("run_continued") && first.err.is_empty(), "{}", first.err);
    let all = events(&["--all-generations"]);
    let counted = |name: &str| all.out.matches(name).count();
    assert_eq!((counted("run_started"), counted("run_continued"), counted("run_completed")), (3, 2, 1), "{}", all.out);
    assert_eq!(all.err, "continued as generation 1\ncontinued as generation 2\n");
    assert_eq!(events(&["--all-generations", "--generation", "1"]).code, 2);
}

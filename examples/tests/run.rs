//! Runs every example once and checks what it prints.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Returns the path of an example; Cargo builds examples beside the tests.
fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test knows where it is");
    let profile = test.ancestors().nth(2).expect("tests lie in <profile>/deps");
    profile.join("examples").join(format!("{name}{}", std::env::consts::EXE_SUFFIX))
}

/// Runs the example until it ends, successfully and in time, and returns its output.
#[track_caller]
fn output_of(name: &str) -> String {
    let spawned = Command::new(example(name)).stdout(Stdio::piped()).spawn();
    let mut child = spawned.expect("`cargo build --examples` comes first, as in `cargo xtask test`");
    let mut stdout = child.stdout.take().expect("stdout is a pipe");
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        stdout.read_to_string(&mut text).map(|_| text)
    });
    let deadline = Instant::now() + Duration::from_secs(600);
    let status = loop {
        match child.try_wait().expect("a child can be waited for") {
            Some(status) => break status,
            None if Instant::now() > deadline => {
                child.kill().expect("a child can be killed");
                panic!("{name} did not end by itself");
            }
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    };
    let text = reader.join().expect("reading does not panic").expect("examples print text");
    assert!(status.success(), "{name}: {status}\n{text}");
    text
}

/// Checks that the example prints these lines in this order, perhaps with others between them.
#[track_caller]
fn check(name: &str, expected: &[&str]) {
    let text = output_of(name);
    let mut lines = text.lines();
    for line in expected {
        assert!(lines.any(|printed| printed.contains(line)), "{name} did not print `{line}` in its place:\n{text}");
    }
}

#[test]
fn hello_prints_it_once() {
    check("hello", &["the run says: Hello, Ada!", "result: Hello, Ada!", "once more: Hello, Ada!", "#5 run_completed"]);
    assert_eq!(output_of("hello").matches("the run says").count(), 1);
}

#[test]
fn killed_process_is_followed_by_one_that_goes_on() {
    let expected = [
        "process 1: booking a flight",
        "process 1: key of the hotel booking",
        "process 1: booking a hotel",
        "process 1 ended: signal: 9",
        "process 2: key of the hotel booking",
        "process 2: booking a hotel",
        "process 2: booking a train",
        "process 2: result: flight to Lisbon, hotel to Lisbon, train to Lisbon",
    ];
    check("crash-and-resume", &expected);
}

#[test]
fn saga_undoes_latest_first() {
    check("saga", &["all booked", "canceled the hotel in Venice", "canceled the flight in Venice", "error[no_cars]"]);
}

#[test]
fn middleware_limits_redacts_and_measures() {
    let expected = [
        "the code sees the card `[redacted]`",
        "mailed ada about card **** 1111",
        "ada paid 2100 cents",
        "the third charge waited: true",
        "the log has the card: false",
        "attempts measured: 4",
    ];
    check("middleware", &expected);
}

#[test]
fn fan_out_keeps_the_order_of_the_calls() {
    check("fan-out", &["1 of 20 checks failed", "first: city-1: 6 letters, last: city-20: 7 letters"]);
}

#[test]
fn approval_is_decided_once_or_expires() {
    check("approval", &["paid 500 cents by ada", "error[signal_lost]", "error[not_a_decider]", "nobody decided in time"]);
}

#[test]
fn signals_steer_and_are_taken_once() {
    check("signals", &["repeated: true", r#"book: ["1. dogs", "2. birds"]"#, "signals left: 0"]);
}

#[test]
fn children_answer_their_parent() {
    let expected =
        ["resized slow at double pace", "album: 200 bytes, then 100", "album-1 album completed", "photo-broken photo failed"];
    check("children", &expected);
}

#[test]
fn a_schedule_backfills_past_days_and_starts_a_run_on_request() {
    let expected = [
        "nightly@2026-03-28T01:00:00Z: the orders of 2026-03-28",
        "nightly@2026-03-29T01:00:00Z: the orders of 2026-03-29",
        "nightly@2026-03-30T00:00:00Z: the orders of 2026-03-30",
        "triggered nightly@now:by-hand",
        "started 4, next: []",
        "next after the holidays: 5",
    ];
    check("schedule", &expected);
}

#[test]
fn runs_stay_with_the_code_they_began_with() {
    let expected =
        ["invoice-Monday: v1 with discount version 1: 119", "invoice-Tuesday: v1 with discount version 2: 107", "v2: 96"];
    check("versions", &expected);
}

#[test]
fn a_host_without_a_worker_drives_a_run_with_each_request() {
    let expected = [
        "POST /orders/42: waits for payment",
        "POST /orders/42: waits for payment",
        "POST /orders/42/payment: order 42 is paid",
        "POST /orders/43/payment: run_not_found",
    ];
    check("drive", &expected);
}

#[test]
fn an_agent_answers_once() {
    check("agent-hello", &["Done after 1 turn: You said: Good morning!", "once more: You said: Good morning!"]);
}

#[test]
fn an_agent_uses_its_tools() {
    check("agent-tools", &["(looking out of a window in Ulm)", "weather says: 18 degrees and sunny in Ulm"]);
}

#[test]
fn an_agent_asks_before_it_pays() {
    let expected = [
        r#"first: Call the tool `refund`? {"tool":"refund","arguments":{"order": "A-17", "cents": 1900}}"#,
        "(paying 1900 cents back for A-17)",
        "first: refund says: refunded 1900 cents",
        "second: Call the tool",
        "second: refund says: error: a person has declined this call: over the limit",
    ];
    check("agent-approval", &expected);
    assert_eq!(output_of("agent-approval").matches("(paying").count(), 1);
}

#[test]
fn an_agent_uses_the_tools_of_a_server() {
    check("agent-mcp", &["the server has echo: true", "echo says: echo: hello"]);
}

#[test]
fn agents_work_together() {
    let left = "of tokens=20000 seconds=600 there are left: tokens=19";
    check("agent-research", &["About ferries: library says: three books about ferries", "the editor's own calls: 1", left]);
}

#[test]
fn a_long_conversation_is_summarized() {
    check("agent-long", &["said: 16 by the user, 16 by the model", "summaries: yes", "sent with the last call: a part of it"]);
}

#[test]
fn an_agent_and_a_workflow_use_each_other() {
    check("agent-workflow", &["(charging for a teapot)", "filed as Done: place_order says: ordered a teapot: paid 12.50"]);
}

#[test]
fn a_flow_searches_in_parallel_and_publishes_what_a_person_approves() {
    check("flow-research", &["(searching for", "(searching for", "a person decides: review", "published: \"Tea grows on hills"]);
}

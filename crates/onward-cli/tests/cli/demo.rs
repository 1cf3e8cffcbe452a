//! The demo without a terminal: it ends by itself, and its counts are right.

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::kit::{PATIENCE, onward, ran, run};

#[test]
fn in_a_pipe_it_decides_by_itself_and_what_was_recorded_ran_once() {
    let directory = tempfile::tempdir().unwrap();
    let demo = run(directory.path(), ["demo", "--fast"]);
    assert_eq!((demo.code, demo.err.as_str()), (0, ""), "{}", demo.out);
    assert!(demo.out.lines().all(|line| line.starts_with("  ") || line.chars().count() <= 80), "{}", demo.out);
    assert_eq!(table(&demo.out), [("charge", "1"), ("reserve", "2"), ("print-label", "1"), ("ship", "1")]);
    assert_eq!(demo.out.matches("kill -9   pid").count(), 2, "{}", demo.out);
    assert!(demo.out.contains("There is no answer from a terminal"), "{}", demo.out);
}

/// On a terminal it asks until it gets an answer; `script` provides the terminal.
#[test]
fn on_a_terminal_it_asks_and_a_no_is_a_refund() {
    let directory = tempfile::tempdir().unwrap();
    let command = format!("{} demo --fast --data {}", env!("CARGO_BIN_EXE_onward"), directory.path().display());
    let mut script = Command::new("script");
    script.args(["-qec", &command, "/dev/null"]).env("NO_COLOR", "1").stdin(Stdio::piped()).stdout(Stdio::piped());
    let Ok(mut script) = script.spawn() else { return eprintln!("skipped: there is no `script` here") };
    script.stdin.as_mut().unwrap().write_all(b"maybe\nn\n").unwrap();
    let output = script.wait_with_output().unwrap();
    let out = String::from_utf8(output.stdout).unwrap().replace('\r', "");
    assert!(output.status.success(), "{out}");
    assert_eq!(out.matches("Ship a teapot? [y/n]").count(), 2, "{out}");
    assert!(out.contains("ship rejected"), "{out}");
    let rows: Vec<(&str, &str)> = table(&out);
    assert_eq!(rows, [("charge", "1"), ("reserve", "2"), ("print-label", "1"), ("refund", "1")]);
}

/// Returns step and count of each row of the summary.
fn table(out: &str) -> Vec<(&str, &str)> {
    let rows = out.lines().skip_while(|line| !line.contains("TIMES RUN")).skip(1).take_while(|line| !line.is_empty());
    let words = rows.map(|row| row.split_whitespace());
    words.map(|mut words| (words.next().unwrap(), words.next().unwrap())).collect()
}

#[test]
fn the_commands_it_names_work_on_its_directory() {
    let directory = tempfile::tempdir().unwrap();
    let demo = run(directory.path(), ["demo", "--fast"]);
    let commands: Vec<&str> =
        demo.out.lines().skip_while(|line| *line != "Try next:").filter(|line| line.starts_with("  ")).collect();
    assert_eq!(commands.len(), 3, "{}", demo.out);
    for command in commands {
        let words: Vec<&str> = command.split_whitespace().skip(1).collect();
        let next = ran(onward().args(&words));
        assert_eq!((next.code, next.err.as_str()), (0, ""), "{command}");
        assert!(next.out.contains("charge") || next.out.contains("completed"), "{command}: {}", next.out);
    }
}

#[test]
fn a_demo_in_a_directory_that_is_in_use_reports_it() {
    let directory = tempfile::tempdir().unwrap();
    let _holder = onward_store_embedded::EmbeddedStore::open(directory.path(), Default::default()).unwrap();
    let demo = run(directory.path(), ["demo", "--fast"]);
    assert_eq!(demo.code, 1, "{}", demo.err);
    assert!(demo.err.contains("error[directory_locked]"), "{}", demo.err);
}

/// After Ctrl-C or SIGKILL of the demo, its worker exits too.
#[test]
fn an_interrupted_demo_leaves_no_worker_behind() {
    for signal in ["INT", "KILL"] {
        let directory = tempfile::tempdir().unwrap();
        let mut demo = onward();
        demo.args(["demo", "--data"]).arg(directory.path()).stdout(Stdio::piped());
        let mut demo = demo.spawn().unwrap();
        let worker = first_worker(demo.stdout.take().unwrap());
        let killed = Command::new("kill").args([&format!("-{signal}"), &demo.id().to_string()]).status().unwrap();
        assert!(killed.success());
        let status = demo.wait().unwrap();
        assert_eq!(status.code(), (signal == "INT").then_some(130));
        until(|| !is_alive(&worker));
    }
}

/// Returns the process id of the first worker in the output.
fn first_worker(mut out: impl Read) -> String {
    let mut text = String::new();
    let mut byte = [0];
    loop {
        assert_eq!(out.read(&mut byte).unwrap(), 1, "{text}");
        text.push(char::from(byte[0]));
        if let Some((_, rest)) = text.split_once("worker 1  pid ")
            && let Some((pid, _)) = rest.split_once(' ')
        {
            return pid.to_owned();
        }
    }
}

/// Returns whether the process runs; a zombie does not.
fn is_alive(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

#[track_caller]
fn until(condition: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline);
        std::thread::yield_now();
    }
}

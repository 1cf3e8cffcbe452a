//! `onward replay`: the same output from a directory, a server and a file; keys in a terminal.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::dev::dev;
use crate::kit::{PATIENCE, one_order, onward, ran, run, run_over, run_with_stdin};

const OUTPUT: &str = "
-- input
0 +T run_started order \"a teapot\"
-- the code had seen events up to #0; then the code could continue
1 +T step_completed charge -> 42
-- the code had seen events up to #1; then the code waited
2 +T state_set stage = \"charged\"
3 +T signal_awaited payment
       waits for: signal payment
       state: stage = \"charged\"
-- input
4 +T signal_received payment 7
";

#[test]
fn a_replay_is_the_same_from_a_directory_a_server_and_a_file() {
    let directory = one_order("order-1");
    let data = directory.path();
    assert_eq!(run(data, ["run", "signal", "order-1", "payment", "7"]).code, 0);
    run(data, ["replay", "order-1"]).assert_output(0, OUTPUT);
    let printed = run(data, ["run", "events", "order-1", "--json"]).out;
    let file = data.join("log.jsonl");
    std::fs::write(&file, &printed).unwrap();
    ran(onward().args(["replay", "order-1", "--plain", "--file"]).arg(&file)).assert_output(0, OUTPUT);
    run_with_stdin(data, &["replay", "order-1", "--file", "-"], &printed).assert_output(0, OUTPUT);
    let served = dev(data);
    run_over(&served.url, ["replay", "order-1"]).assert_output(0, OUTPUT);
    run_over(&served.url, ["replay", "order-1", "--at", "4"]).assert_output(0, "-- input\n4 +T signal_received payment 7");
}

#[test]
fn as_json_each_event_comes_with_the_run_behind_it() {
    let directory = one_order("order-1");
    let output = run(directory.path(), ["replay", "order-1", "--json", "--at", "2"]);
    let steps: Vec<serde_json::Value> = output.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(steps.len(), 2);
    assert_eq!(
        (&steps[0]["event"]["type"], &steps[0]["run"]["state"]["stage"]["json"]),
        (&"state_set".into(), &"charged".into())
    );
    assert_eq!(steps[0]["run"]["awaiting"].as_array().unwrap().len(), 0, "not yet");
    assert_eq!((&steps[1]["run"]["awaiting"][0]["name"], &steps[1]["commit"]), (&"payment".into(), &1.into()));
}

#[test]
fn an_unreadable_log_is_reported() {
    let directory = one_order("order-1");
    let data = directory.path();
    assert_eq!(run(data, ["replay", "nope"]).code, 4);
    assert_eq!(run(data, ["replay", "order-1", "--generation", "7"]).code, 4);
    let output = run_with_stdin(data, &["replay", "x", "--file", "-"], "nonsense\n");
    assert!(output.code == 1 && output.err.starts_with("error[log_unreadable]: -:1: "), "{}", output.err);
    let printed = run(data, ["run", "events", "order-1", "--json", "--from", "1"]).out;
    let output = run_with_stdin(data, &["replay", "x", "--file", "-"], &printed);
    assert!(output.err.contains("events are missing before this line"), "{}", output.err);
}

/// Starts a command in a pseudo-terminal; returns its process, a file for keys, and its output.
pub fn in_terminal(command: &mut Command) -> (std::process::Child, File, mpsc::Receiver<String>) {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let other = || File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    let child = command.stdin(Stdio::from(other())).stdout(Stdio::from(other())).spawn().unwrap();
    let keys = File::from(terminal);
    let mut screen = keys.try_clone().unwrap();
    let (sender, shown) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = [0; 65_536];
        while let Ok(count @ 1..) = screen.read(&mut bytes) {
            if sender.send(String::from_utf8_lossy(&bytes[..count]).into_owned()).is_err() {
                return;
            }
        }
    });
    (child, keys, shown)
}

/// Reads the output until it contains `text`.
pub fn until(shown: &mpsc::Receiver<String>, text: &str) {
    let mut all = String::new();
    while !all.contains(text) {
        match shown.recv_timeout(PATIENCE) {
            Ok(more) => all.push_str(&more),
            Err(_) => panic!("`{text}` does not come:\n{all}"),
        }
    }
}

#[test]
fn keys_go_forward_and_back_and_leave_the_terminal_as_it_was() {
    let directory = one_order("order-1");
    let mut command = onward();
    let (mut child, mut keys, shown) = in_terminal(command.args(["replay", "order-1", "--data"]).arg(directory.path()));
    until(&shown, "event 0 of 3");
    keys.write_all(b"l").unwrap();
    until(&shown, "event 1 of 3");
    keys.write_all(b"\x1b[F").unwrap();
    until(&shown, "waiting  event 3 of 3");
    keys.write_all(b"\x1b[D").unwrap();
    until(&shown, "running  event 2 of 3");
    keys.write_all(b"l\x1b[C\x1b[C").unwrap();
    until(&shown, "event 3 of 3");
    keys.write_all(b"q").unwrap();
    until(&shown, "\u{1b}[?1049l");
    assert!(child.wait().unwrap().success());
}

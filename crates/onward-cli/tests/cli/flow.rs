//! `onward flow`: checking, drawing and running workflows that are documents.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};

use onward_llm_scripted::ScriptedReply;
use serde_json::{Value, json};

use crate::dev::dev;
use crate::kit::{Ran, onward, ran, run_with_stdin};
use crate::models::{model, settings};

const GREETING: &str = "\
flow: greeting
inputs:
  name: { type: string }
  times: { type: integer, default: 2 }
steps:
  - name: greet
    each: { in: range(inputs.times), as: number }
    action: print
    with: { message: \"Hello {{ inputs.name }} {{ number }}\" }
  - name: never
    when: inputs.times > 5
    set: { many: true }
  - name: answer
    set: { text: \"{{ inputs.name }}, {{ inputs.times }}\" }
output: { text: \"{{ state.text }}\" }
";

const REVIEW: &str = "\
flow: review
steps:
  - name: ask
    approval: Publish it?
    show: the page
    next:
      - { when: result.approved, goto: publish }
      - { goto: end }
  - name: publish
    set: { published: true }
";

const WAITING: &str = "\
flow: waiting
steps:
  - { name: first, set: { a: 1 } }
  - { name: news, wait: news, store: news }
output: \"{{ state.news }}\"
";

fn file(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path
}

/// Runs `onward flow ARGS` in a folder.
fn flow(folder: &Path, args: &[&str]) -> Ran {
    ran(onward().current_dir(folder).arg("flow").args(args))
}

#[test]
fn all_problems_are_shown_with_their_lines() {
    let folder = tempfile::tempdir().unwrap();
    let text = "flow: broken\nsteps:\n  - name: a\n    task: t\n    next: bb\n  - name: b\n    taks: t\n";
    file(folder.path(), "broken.yaml", text);
    file(folder.path(), "good.yaml", GREETING);
    let broken = flow(folder.path(), &["validate", "broken.yaml"]);
    assert_eq!(broken.code, 1, "{}", broken.out);
    assert!(broken.out.contains("broken.yaml:7:5: error["), "{}", broken.out);
    assert!(broken.out.contains("\n  7 |     taks: t\n    |     ^\n"), "{}", broken.out);
    assert!(broken.err.starts_with("1 file: ") && broken.err.contains("error"), "{}", broken.err);
    let all = flow(folder.path(), &["validate", "."]);
    assert_eq!((all.code, all.out == broken.out.replace("broken.yaml", "./broken.yaml")), (1, true), "{}", all.out);
    assert!(all.err.starts_with("2 files: "), "{}", all.err);
    let listed = flow(folder.path(), &["validate", "broken.yaml", "--json"]);
    let problems: Vec<Value> = serde_json::from_str(&listed.out).unwrap();
    assert_eq!((listed.code, listed.err.as_str()), (1, ""));
    assert!(problems.iter().any(|problem| problem["line"] == 7 && problem["severity"] == "error"), "{problems:?}");
    assert!(problems.iter().all(|problem| problem["file"] == "broken.yaml" && problem["code"].is_string()), "{problems:?}");
    flow(folder.path(), &["validate", "good.yaml"]).assert_output(0, "! 1 file: no problems");
    flow(folder.path(), &["validate", "good.yaml", "--json"]).assert_output(0, "[]");
    let missing = flow(folder.path(), &["validate", "none.yaml"]);
    assert_eq!(missing.code, 1);
    assert!(missing.err.starts_with("error[io]: cannot read the flow in none.yaml: "), "{}", missing.err);
    let piped = run_with_stdin(folder.path(), &["flow", "validate", "-"], text);
    assert!(piped.code == 1 && piped.out.contains("stdin:7:5: "), "{}", piped.out);
    file(folder.path(), "latin.yaml", "");
    std::fs::write(folder.path().join("latin.yaml"), b"flow: \xff\n").unwrap();
    assert_ne!(flow(folder.path(), &["validate", "latin.yaml"]).code, 0);
}

#[test]
fn a_flow_is_drawn_to_stdout_or_a_file() {
    let folder = tempfile::tempdir().unwrap();
    file(folder.path(), "greeting.yaml", GREETING);
    let svg = flow(folder.path(), &["graph", "greeting.yaml"]);
    assert!(svg.code == 0 && svg.out.starts_with("<svg ") && svg.out.contains("data-step=\"never\""), "{}", svg.err);
    let mermaid = flow(folder.path(), &["graph", "greeting.yaml", "--format", "mermaid"]);
    assert!(mermaid.code == 0 && mermaid.out.starts_with("flowchart TD\n"), "{}", mermaid.err);
    flow(folder.path(), &["graph", "greeting.yaml", "-o", "g.mmd"]).assert_output(0, "");
    assert_eq!(std::fs::read_to_string(folder.path().join("g.mmd")).unwrap(), mermaid.out);
    file(folder.path(), "broken.yaml", "flow: broken\nsteps: 7\n");
    let broken = flow(folder.path(), &["graph", "broken.yaml"]);
    assert!(broken.code == 1 && broken.out.is_empty() && broken.err.contains("broken.yaml:2:8: error["), "{}", broken.err);
}

#[test]
fn a_new_flow_is_written_once_and_is_valid() {
    let folder = tempfile::tempdir().unwrap();
    flow(folder.path(), &["new", "mine", "--template", "parallel", "--json"])
        .assert_output(0, r#"{"file":"mine.yaml","template":"parallel"}"#);
    let text = std::fs::read_to_string(folder.path().join("mine.yaml")).unwrap();
    assert!(text.contains("\nflow: mine\n"), "{text}");
    flow(folder.path(), &["validate", "mine.yaml"]).assert_output(0, "! 1 file: no problems");
    flow(folder.path(), &["new", "mine"])
        .assert_output(2, "! error[usage]: mine.yaml exists\n! hint: choose another name, or another file with `-o FILE`");
    assert_eq!(std::fs::read_to_string(folder.path().join("mine.yaml")).unwrap(), text);
    assert_eq!(flow(folder.path(), &["new", "../mine"]).code, 2);
    let other = flow(folder.path(), &["new", "other"]);
    assert!(other.err.trim_end().ends_with(" flow run other.yaml --input text=.."), "{}", other.err);
}

#[test]
fn the_schema_is_printed_with_the_line_for_editors() {
    let folder = tempfile::tempdir().unwrap();
    let schema = flow(folder.path(), &["schema"]);
    let document: Value = serde_json::from_str(&schema.out).unwrap();
    assert!(schema.code == 0 && document["properties"]["steps"].is_object(), "{}", schema.out);
    assert!(schema.err.contains("# yaml-language-server: $schema=onward-flow.schema.json"), "{}", schema.err);
    assert_eq!(flow(folder.path(), &["schema", "-o", "s.json", "--json"]).err, "");
    assert_eq!(std::fs::read_to_string(folder.path().join("s.json")).unwrap(), schema.out);
}

#[test]
fn a_dive_file_becomes_flows_and_a_list_of_what_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let dive = "Name: Sales\nWorkflows:\n  - Name: Weekly Report\n    Steps:\n      - Name: Write\n        Prompt: Summarize the week\n        Teleport: yes\n";
    file(folder.path(), "dive.yaml", dive);
    let imported = flow(folder.path(), &["import", "dive", "dive.yaml", "-o", "flows", "--json"]);
    let report = imported.json();
    let files: Vec<&str> = report["files"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert_eq!(files[0], "flows/weekly-report.yaml", "{report}");
    assert!(report["unmapped"].to_string().contains("Teleport"), "{report}");
    assert_eq!(flow(folder.path(), &["validate", files[0]]).code, 0);
    let again = flow(folder.path(), &["import", "dive", "dive.yaml", "-o", "flows"]);
    assert!(again.code == 2 && again.err.contains("error[usage]: flows/weekly-report.yaml exists"), "{}", again.err);
    let listed = flow(folder.path(), &["import", "dive", "dive.yaml", "-o", "more"]);
    assert!(listed.code == 0 && listed.err.contains("not translated: ") && listed.err.contains("Teleport"), "{}", listed.err);
    file(folder.path(), "no.yaml", "[1, ");
    assert_eq!(flow(folder.path(), &["import", "dive", "no.yaml"]).code, 1);
}

#[test]
fn a_run_shows_its_steps_and_prints_its_output() {
    let folder = tempfile::tempdir().unwrap();
    file(folder.path(), "greeting.yaml", GREETING);
    let done = flow(folder.path(), &["run", "greeting.yaml", "--input", "name=Ada"]);
    assert_eq!((done.code, done.out.as_str()), (0, "{\"text\":\"Ada, 2\"}\n"), "{}", done.err);
    for line in [
        "started run_",
        "greet: running\n",
        "Hello Ada 0\n",
        "Hello Ada 1\n",
        "greet: done (after ",
        "never: skipped\n",
        "completed (after ",
    ] {
        assert!(done.err.contains(line), "{line}: {}", done.err);
    }
    let temporary = tempfile::tempdir().unwrap();
    let missing = ran(onward().current_dir(folder.path()).env("TMPDIR", temporary.path()).args(["flow", "run", "greeting.yaml"]));
    assert_eq!(std::fs::read_dir(temporary.path()).unwrap().count(), 0, "a mistake leaves no directory");
    assert!(missing.code == 2 && missing.err.contains("error[usage]: the input `name` is missing"), "{}", missing.err);
    let wrong = flow(folder.path(), &["run", "greeting.yaml", "--input", "naem=x"]);
    assert!(wrong.code == 2 && wrong.err.contains("hint: the flow has the inputs name, times"), "{}", wrong.err);
    file(folder.path(), "broken.yaml", "flow: broken\nsteps: []\nstep: 1\n");
    let broken = flow(folder.path(), &["run", "broken.yaml"]);
    assert!(broken.code == 1 && broken.err.contains("broken.yaml:3:1: error["), "{}", broken.err);
}

#[test]
fn a_run_uses_the_models_of_the_settings_and_shows_the_cost() {
    let (folder, model) = (tempfile::tempdir().unwrap(), model());
    model.scripted.next(ScriptedReply::text("Four."));
    file(folder.path(), "ask.yaml", "flow: ask\nsteps:\n  - { name: ask, prompt: 2 + 2?, model: small, store: text }\n");
    let config = settings(folder.path(), &model, "");
    let args = ["flow", "run", "ask.yaml", "--config", config.to_str().unwrap()];
    let done = ran(onward().current_dir(folder.path()).env("LOCAL_KEY", "k").args(args));
    assert_eq!((done.code, done.out.as_str()), (0, "{\"text\":\"Four.\"}\n"), "{}", done.err);
    assert!(done.err.contains("; spent 0.") && done.err.contains("1 attempt"), "{}", done.err);
}

#[test]
fn a_failed_run_is_3_and_can_be_looked_at() {
    let folder = tempfile::tempdir().unwrap();
    file(
        folder.path(),
        "fail.yaml",
        "flow: fail\nsteps:\n  - { name: no, action: fail, with: { code: bad, message: it is bad } }\n",
    );
    let failed = flow(folder.path(), &["run", "fail.yaml", "--data", "data", "--id", "f"]);
    assert_eq!((failed.code, failed.out.as_str()), (3, ""), "{}", failed.err);
    for part in
        ["no: failed (after ", "failed (after ", "error[run_failed]: run f failed: [bad] it is bad", "run show f --data data"]
    {
        assert!(failed.err.contains(part), "{part}: {}", failed.err);
    }
    let document = flow(folder.path(), &["run", "fail.yaml", "--json", "--data", "more"]);
    let outcome: Value = serde_json::from_str(&document.out).unwrap();
    assert_eq!((document.code, &outcome["failure"]["code"]), (3, &json!("bad")), "{outcome}");
}

/// A run in the background, with the lines of its stderr.
struct Running {
    child: Child,
    lines: BufReader<ChildStderr>,
    read: String,
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Running {
    fn start(folder: &Path, args: &[&str]) -> Running {
        let mut command = onward();
        let command = command.current_dir(folder).args(["flow", "run"]).args(args);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap());
        Running { child, lines, read: String::new() }
    }

    /// Returns what follows `prefix` in the next line that begins with it.
    fn line(&mut self, prefix: &str) -> String {
        loop {
            let mut line = String::new();
            assert_ne!(self.lines.read_line(&mut line).unwrap(), 0, "no `{prefix}` in {}", self.read);
            self.read.push_str(&line);
            if let Some(rest) = line.strip_prefix(prefix) {
                return rest.trim_end().to_owned();
            }
        }
    }

    /// Waits for the end and returns the exit code, stdout and all of stderr.
    fn end(mut self) -> Ran {
        let mut out = String::new();
        self.lines.read_to_string(&mut self.read).unwrap();
        self.child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        let code = self.child.wait().unwrap().code().unwrap_or(-1);
        Ran { code, out, err: std::mem::take(&mut self.read) }
    }
}

/// Executes a command that the program has printed.
fn printed(folder: &Path, command: &str) -> Ran {
    let words: Vec<&str> = command.split_whitespace().skip(1).collect();
    ran(onward().current_dir(folder).args(words))
}

#[test]
fn without_a_terminal_the_command_that_decides_is_printed_and_works() {
    let folder = tempfile::tempdir().unwrap();
    file(folder.path(), "review.yaml", REVIEW);
    let mut running = Running::start(folder.path(), &["review.yaml"]);
    assert_eq!(running.line("waits for approval: "), "Publish it?");
    let command = running.line("decide with: ");
    let decided = printed(folder.path(), &command);
    assert_eq!(decided.code, 0, "{command}: {}", decided.err);
    let done = running.end();
    assert_eq!((done.code, done.out.as_str()), (0, "{\"published\":true}\n"), "{}", done.err);
}

#[test]
fn an_interrupted_run_is_resumed_by_the_printed_command() {
    let folder = tempfile::tempdir().unwrap();
    file(folder.path(), "waiting.yaml", WAITING);
    let mut running = Running::start(folder.path(), &["waiting.yaml"]);
    running.line("news: running");
    let pid = rustix::process::Pid::from_child(&running.child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let stopped = running.end();
    assert_eq!((stopped.code, stopped.out.as_str()), (130, ""), "{}", stopped.err);
    let resume = stopped.err.lines().find_map(|line| line.strip_prefix("resume it with: ")).unwrap();
    let words: Vec<&str> = resume.split_whitespace().collect();
    let [id, data] = ["--id", "--data"].map(|name| words[words.iter().position(|word| *word == name).unwrap() + 1]);
    let signal = ran(onward().args(["run", "signal", id, "news", "\"good\"", "--data", data]));
    assert_eq!(signal.code, 0, "{}", signal.err);
    let done = printed(folder.path(), resume);
    assert_eq!((done.code, done.out.as_str()), (0, "\"good\"\n"), "{}", done.err);
    assert!(done.err.contains(&format!("resumed {id}")) && done.err.contains("first: done"), "{}", done.err);
    file(folder.path(), "waiting.yaml", &WAITING.replace("a: 1", "a: 2"));
    let other = ["waiting.yaml", "--data", "own", "--id", "w"];
    let mut running = Running::start(folder.path(), &other);
    running.line("news: running");
    rustix::process::kill_process(rustix::process::Pid::from_child(&running.child), rustix::process::Signal::INT).unwrap();
    assert_eq!(running.end().code, 130);
    file(folder.path(), "waiting.yaml", WAITING);
    let changed = flow(folder.path(), &[&["run"], &other[..]].concat());
    assert!(
        changed.code == 2 && changed.err.contains("run w began with another version of the flow `waiting`"),
        "{}",
        changed.err
    );
    drop(std::fs::remove_dir_all(data));
}

#[test]
fn a_server_runs_only_documents_that_it_has() {
    let (data, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let served = dev(data.path());
    file(folder.path(), "greeting.yaml", GREETING);
    let over = |args: &[&str]| flow(folder.path(), &[args, &["--server", &served.url]].concat());
    let run = ["run", "greeting.yaml", "--input", "name=Ada"];
    let unknown = over(&run);
    let message = "error[flow_not_found]: the server has no flow `greeting`\nhint: store it first: ";
    assert!(unknown.code == 2 && unknown.err.starts_with(message), "{}", unknown.err);
    assert!(unknown.err.contains(" flow apply greeting.yaml`"), "{}", unknown.err);
    assert_eq!(over(&["apply", "greeting.yaml"]).code, 0);
    let done = over(&run);
    assert_eq!((done.code, done.out.as_str()), (0, "{\"text\":\"Ada, 2\"}\n"), "{}", done.err);
    file(folder.path(), "greeting.yaml", &GREETING.replace("default: 2", "default: 3"));
    let changed = over(&run);
    assert!(changed.code == 2 && changed.err.contains("but not the version "), "{}", changed.err);
    for option in [["--model", "small"], ["--allow-http", "a.test"], ["--documents", "."]] {
        let refused = over(&[&run[..], &option].concat());
        let message = format!("error[usage]: `{}` is an option of this process", option[0]);
        assert!(refused.code == 2 && refused.err.starts_with(&message), "{}", refused.err);
    }
    assert_eq!(served.request("GET", "/v1/runs", "").1["runs"].as_array().map(Vec::len), Some(1), "only one run was started");
}

/// `script` provides the terminal.
#[test]
fn on_a_terminal_approvals_are_asked() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "review.yaml", REVIEW);
    let command = format!("{} flow run {}", env!("CARGO_BIN_EXE_onward"), path.display());
    let mut script = Command::new("script");
    script.args(["-qec", &command, "/dev/null"]).env("NO_COLOR", "1").stdin(Stdio::piped()).stdout(Stdio::piped());
    let Ok(mut script) = script.spawn() else { return eprintln!("skipped: there is no `script` here") };
    let (mut input, mut output) = (script.stdin.take().unwrap(), script.stdout.take().unwrap());
    let mut shown = String::new();
    for (answer, prompts) in [("maybe\n", 1), ("y fine\n", 2)] {
        while shown.matches("feedback after it:").count() < prompts {
            let mut bytes = [0; 1024];
            let count = output.read(&mut bytes).unwrap();
            assert_ne!(count, 0, "{shown}");
            shown.push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
        input.write_all(answer.as_bytes()).unwrap();
    }
    output.read_to_string(&mut shown).unwrap();
    assert!(script.wait().unwrap().success(), "{shown}");
    assert!(shown.contains("? Publish it?") && shown.contains("| the page"), "{shown}");
    assert!(shown.contains("✓ publish") && shown.contains("{\"published\":true}"), "{shown}");
}

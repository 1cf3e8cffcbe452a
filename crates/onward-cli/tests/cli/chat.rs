//! `onward chat` through pipes and in a terminal: a real process, a real server, a scripted model.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Instant;

use onward_llm_scripted::{Fault, Rule, ScriptedReply};
use serde_json::Value;

use crate::dev::{Served, serve};
use crate::kit::{PATIENCE, onward, ran, run_over};
use crate::models::{Model, TOOLS, dev_with, model, settings};
use crate::replay::{in_terminal, until as until_shown};

const AGENT: &str = "[agents.support]\nmodel = \"small\"\nconverse = true\n";

#[derive(Default)]
struct Output {
    out: String,
    err: String,
}

/// A chat process; killed on drop.
struct Chat {
    child: Child,
    stdin: Option<ChildStdin>,
    output: Arc<(Mutex<Output>, Condvar)>,
    readers: Vec<std::thread::JoinHandle<()>>,
}

impl Drop for Chat {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn begin(command: &mut Command) -> Chat {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let output = Arc::new((Mutex::new(Output::default()), Condvar::new()));
    let out = read_output(child.stdout.take().unwrap(), output.clone(), |output, text| output.out.push_str(text));
    let err = read_output(child.stderr.take().unwrap(), output.clone(), |output, text| output.err.push_str(text));
    Chat { stdin: child.stdin.take(), child, output, readers: vec![out, err] }
}

fn read_output(
    mut from: impl Read + Send + 'static,
    output: Arc<(Mutex<Output>, Condvar)>,
    add: impl Fn(&mut Output, &str) + Send + 'static,
) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        let (mut bytes, mut rest) = ([0; 4096], Vec::new());
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            rest.extend_from_slice(&bytes[..count]);
            let whole = std::str::from_utf8(&rest).map_or_else(|error| error.valid_up_to(), str::len);
            let text = String::from_utf8(rest.drain(..whole).collect()).unwrap();
            add(&mut output.0.lock().unwrap(), &text);
            output.1.notify_all();
        }
    })
}

impl Chat {
    fn send_line(&mut self, line: &str) {
        writeln!(self.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Waits until stdout and stderr contain these texts.
    #[track_caller]
    fn until(&self, out: &str, err: &str) {
        let deadline = Instant::now() + PATIENCE;
        let mut output = self.output.0.lock().unwrap();
        while !output.out.contains(out) || !output.err.contains(err) {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "no `{out}` with `{err}`:\n{}---\n{}", output.out, output.err);
            output = self.output.1.wait_timeout(output, left).unwrap().0;
        }
    }

    fn signal(&self, signal: &str) {
        assert!(Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap().success());
    }

    /// Closes stdin, waits for the exit, and returns stdout, stderr and the exit code.
    fn end(mut self) -> (String, String, Option<i32>) {
        drop(self.stdin.take());
        let code = self.child.wait().unwrap().code();
        self.readers.drain(..).for_each(|reader| reader.join().unwrap());
        let output = self.output.0.lock().unwrap();
        (output.out.clone(), output.err.clone(), code)
    }
}

fn chat(url: &str, args: &[&str]) -> Chat {
    begin(onward().arg("chat").args(args).args(["--server", url]))
}

fn served(more: &str) -> (tempfile::TempDir, Model, Served) {
    let (folder, model) = (tempfile::tempdir().unwrap(), model());
    let file = settings(folder.path(), &model, &format!("{AGENT}{more}"));
    let served = dev_with(folder.path(), &file);
    (folder, model, served)
}

/// Joins the indented lines, without the lines of the chat between them.
fn words(out: &str) -> String {
    out.lines().filter_map(|line| line.strip_prefix("  ")).collect()
}

#[test]
fn words_are_streamed_and_an_attempt_that_breaks_shows_none_twice() {
    const TEXT: &str = "It is seven o'clock, and all is well in the town.";
    let (_folder, model, served) = served("");
    model.scripted.next(ScriptedReply::text(TEXT).with_fault(Fault::BreakAfter { chunks: 4 }));
    model.scripted.next(ScriptedReply::text(TEXT));
    let mut chat = chat(&served.url, &["--agent", "support"]);
    chat.send_line("What time is it?");
    chat.until("  It is", "· attempt 1 failed: ");
    chat.until("in the town.", "; next attempt in ");
    let (out, err, code) = chat.end();
    assert_eq!((words(&out).as_str(), code), (TEXT, Some(0)), "{out}---\n{err}");
    assert!(!out.contains("What time is it?"), "typed text is not printed again: {out}");
    assert!(err.contains("the run continues; return to the chat with: "), "{err}");
}

#[test]
fn an_attempt_with_another_text_is_shown_to_begin_anew() {
    let (_folder, model, served) = served("");
    model.scripted.next(ScriptedReply::text("Once upon a time").with_fault(Fault::BreakAfter { chunks: 3 }));
    model.scripted.next(ScriptedReply::text("There was a king."));
    let mut chat = chat(&served.url, &["--agent", "support"]);
    chat.send_line("A story!");
    let (out, err, _) = chat.end();
    assert!(err.contains("· the answer starts again; ignore the text above"), "{err}");
    assert!(out.ends_with("  There was a king.\n") && out.starts_with("  Once"), "{out}");
}

#[test]
fn a_question_shows_the_exact_bytes_and_is_answered_in_line() {
    let (folder, model) = (tempfile::tempdir().unwrap(), model());
    std::fs::write(folder.path().join("tools.js"), TOOLS).unwrap();
    let more = "[mcp.loud]\ncommand = \"node\"\narguments = [\"tools.js\"]\nfolder = \".\"\nneeds_approval = [\"shout\"]\n\
                [agents.caller]\nmodel = \"small\"\nmcp = [\"loud\"]\nconverse = true\n";
    let served = dev_with(folder.path(), &settings(folder.path(), &model, more));
    let mut chat = chat(&served.url, &["--agent", "caller"]);
    chat.send_line(r#"Please shout {"word":  "fish"}"#);
    chat.until("? y or n, with an optional reason\n", "");
    chat.send_line("y");
    chat.until("  shout says: FISH\n", "");
    chat.send_line(r#"Please shout {"word": "ham"} again"#);
    chat.until("{\"word\": \"ham\"}}\n? y or n, with an optional reason\n", "");
    chat.send_line("what is that?");
    chat.until("", "· sent to the agent; the question is still open: y or n");
    chat.send_line("n, too loud");
    chat.until("← shout failed: a person has declined this call: too loud (tool_declined)\n", "");
    chat.send_line(r#"Please shout {"word": "egg"}"#);
    chat.until("{\"word\": \"egg\"}}\n? y or n, with an optional reason\n", "");
    let open = run_over(&served.url, ["approval", "list", "--json"]).json();
    let id = open["approvals"][0]["id"].as_str().unwrap();
    assert_eq!(run_over(&served.url, ["approval", "decide", id, "--approve"]).code, 0);
    chat.until("  shout says: EGG\n", "· the question was decided elsewhere\n");
    let (out, err, code) = chat.end();
    let expected = "  Let me see.\n→ shout {\"word\": \"fish\"}\n? Call the tool `shout`?\n  \
                    {\"tool\":\"shout\",\"arguments\":{\"word\":  \"fish\"}}\n? y or n, with an optional reason\n← shout: FISH\n  \
                    shout says: FISH\n";
    assert!(out.starts_with(expected), "{out}---\n{err}");
    assert!(out.contains("  You said: what is that?\n"), "a message during the question is answered: {out}");
    assert_eq!(code, Some(0));
}

/// Approvals of descendants appear in the chat of the root agent.
#[test]
fn what_an_agent_below_asks_is_shown_to_the_byte_with_its_name_and_answered_in_line() {
    use onward::agent::{Agent, Tool};
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Payment {
        cents: u64,
    }
    let (folder, model) = (tempfile::tempdir().unwrap(), model());
    let served = dev_with(folder.path(), &settings(folder.path(), &model, AGENT));
    let pay = |Payment { cents }| async move { Ok::<_, onward::Failure>(format!("{cents} are paid")) };
    let teller = Agent::new("teller").model("small").tool(Tool::new("pay", "Pays", pay).needs_approval());
    let boss = Agent::new("boss").model("small").tool(Tool::agent("bank", "Pays bills", "teller")).converse();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let builder = onward::Onward::connect(&served.url).register(boss).register(teller);
    let worker = runtime.block_on(builder.start()).unwrap();
    for (number, (answer, expected)) in
        [("y", "20 are paid"), ("n, too much", "declined this call: too much")].into_iter().enumerate()
    {
        model.scripted.next(ScriptedReply::call("bank", r#"{"task":"pay it"}"#));
        model.scripted.next(ScriptedReply::call("pay", r#"{ "cents" : 20 }"#));
        let run = format!("b{number}");
        let mut chat = chat(&served.url, &["--agent", "boss", "--run", &run]);
        chat.send_line("pay the bill");
        let question = "? teller asks: Call the tool `pay`?\n  {\"tool\":\"pay\",\"arguments\":{ \"cents\" : 20 }}\n? y or n";
        chat.until(question, "");
        let listed = run_over(&served.url, ["approval", "list", "--below", &run, "--json"]).json();
        assert_eq!(listed["approvals"].as_array().unwrap().len(), 1, "{listed}");
        let own = run_over(&served.url, ["approval", "list", "--run", &run, "--json"]).json();
        assert_eq!(own["approvals"].as_array().unwrap().len(), 0, "{own}");
        chat.send_line(answer);
        chat.until("  bank says: pay says: ", "");
        let (out, err, code) = chat.end();
        assert!(out.contains(expected) && !err.contains("decided elsewhere"), "{out}---\n{err}");
        assert_eq!(code, Some(0));
    }
    // In scripts, the chat exits when only a decision can continue the run; the next chat shows the question again.
    model.scripted.next(ScriptedReply::call("bank", r#"{"task":"pay it"}"#));
    model.scripted.next(ScriptedReply::call("pay", r#"{"cents":7}"#));
    let mut first = chat(&served.url, &["--agent", "boss", "--run", "s", "--json"]);
    first.send_line("pay the bill");
    let (out, err, _) = first.end();
    let request =
        out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()).find(|line| line["type"] == "approval_requested");
    assert_eq!(request.expect(&err)["agent"], "teller");
    let mut second = chat(&served.url, &["--run", "s"]);
    second.send_line("y");
    second.until("  bank says: pay says: 7 are paid\n", "");
    runtime.block_on(worker.shutdown());
}

/// A stopped conversation waits like a finished one; the chat prints the reason.
#[test]
fn a_stopped_agent_shows_the_reason_and_a_finished_one_does_not() {
    let (_folder, model, served) = served("");
    model.scripted.next(ScriptedReply { cut: true, ..ScriptedReply::text("I could say") });
    let mut first = chat(&served.url, &["--agent", "support", "--run", "s"]);
    first.send_line("");
    first.send_line("   ");
    first.send_line("tell me");
    let stopped = "stopped: max_tokens (the answer was cut off by a token limit)";
    first.until("I could say", &format!("· {stopped}; send a message to continue\n"));
    let show = || ran(onward().args(["run", "show", "s", "--server", &served.url])).out;
    assert!(show().contains("stopped     max_tokens (the answer was"), "{}", show());
    model.scripted.next(ScriptedReply::text("That is all."));
    first.send_line("go on");
    let (out, err, _) = first.end();
    assert!(out.ends_with("  That is all.\n"), "{out}");
    assert_eq!(err.matches("stopped").count(), 1, "{err}");
    assert!(!show().contains("stopped"), "{}", show());
    model.scripted.next(ScriptedReply::refusal("No."));
    let mut second = chat(&served.url, &["--run", "s", "--json"]);
    second.send_line("once more");
    let (out, _, _) = second.end();
    assert!(out.contains(r#"{"stop":"refused","type":"stopped"}"#), "{out}");
    let refused = run_over(&served.url, ["run", "message", "s", " "]);
    assert!(
        refused.code == 2 && refused.err.starts_with("error[message_empty]: the message is empty\nhint: "),
        "{}",
        refused.err
    );
    let (_, err, _) = chat(&served.url, &["--run", "s"]).end();
    assert!(err.contains("· stopped: refused (the model refused to answer)"), "{err}");
}

#[test]
fn a_message_while_the_agent_works_is_answered_next() {
    let (_folder, model, served) = served("");
    let slow =
        ScriptedReply { chunk_delay_ms: 40, ..ScriptedReply::text("A long answer that takes its time, word by word by word.") };
    model.scripted.rule(Rule { times: Some(1), ..Rule::when_user_says("first", slow) });
    let mut chat = chat(&served.url, &["--agent", "support"]);
    chat.send_line("first");
    chat.until("  A long", "");
    assert_eq!(model.scripted.request_count(), 1);
    chat.send_line("second");
    chat.until("  You said: second\n", "");
    let (out, _, code) = chat.end();
    assert_eq!(out, "  A long answer that takes its time, word by word by word.\n  You said: second\n");
    assert_eq!(code, Some(0));
}

/// Returns the arguments of the command that the chat printed.
fn named(err: &str) -> Vec<String> {
    let command = err.split("return to the chat with: ").nth(1).unwrap().lines().next().unwrap();
    command.split(' ').skip(1).map(str::to_owned).collect()
}

#[test]
fn an_interrupted_chat_resumes_the_same_conversation() {
    let (_folder, model, served) = served("");
    model.scripted.next(ScriptedReply::text("I was about to say").with_fault(Fault::StallAfter { chunks: 3 }));
    let mut first = chat(&served.url, &["--agent", "support", "--run", "talk"]);
    first.send_line("hello");
    first.until("  I was", "");
    first.signal("-INT");
    let (_, err, code) = first.end();
    assert_eq!(code, Some(130));
    let status = run_over(&served.url, ["run", "show", "talk", "--json"]).json()["status"].clone();
    assert!(status == "waiting" || status == "running", "nothing was canceled: {status}");
    let args = named(&err);
    assert_eq!(args, ["chat", "--server", &served.url, "--run", "talk"]);
    let mut second = begin(onward().args(&args));
    second.until("> hello\n  I was", "");
    second.send_line("/cancel");
    second.until("", "· the run was canceled");
    assert_eq!(second.end().2, Some(0));
}

#[test]
fn a_server_that_is_killed_in_the_middle_is_waited_for_and_nothing_is_shown_twice() {
    const TEXT: &str = "Everything that was said stands in the log, and goes on from there.";
    let (folder, model) = (tempfile::tempdir().unwrap(), model());
    let file = settings(folder.path(), &model, &format!("{AGENT}[server]\nlease = \"1s\"\n"));
    let first = dev_with(folder.path(), &file);
    model.scripted.next(ScriptedReply::text(TEXT).with_fault(Fault::StallAfter { chunks: 4 }));
    model.scripted.rule(Rule { times: Some(1), ..Rule::when_user_says("go", ScriptedReply::text(TEXT)) });
    let mut chat = chat(&first.url, &["--agent", "support"]);
    chat.send_line("go");
    chat.until("  Every", "");
    let port = first.address.rsplit(':').next().unwrap().to_owned();
    first.signal("-KILL");
    chat.until("", "· the server is unreachable; waiting for it\n");
    chat.send_line("meanwhile");
    drop(first);
    let mut again = onward();
    again.args(["dev", "--port", &port, "--config"]).arg(&file).arg("--data").arg(folder.path().join("data"));
    let _second = serve(again.env("LOCAL_KEY", "sk-secret"));
    chat.until("goes on from there.", "· the server is reachable again\n");
    chat.until("  You said: meanwhile\n", "");
    let (out, err, code) = chat.end();
    assert_eq!(words(&out), format!("{TEXT}You said: meanwhile"), "{out}---\n{err}");
    assert_eq!((err.matches("unreachable").count(), err.matches("reachable again").count(), code), (1, 1, Some(0)), "{err}");
}

#[test]
fn a_resumed_conversation_shows_its_end_and_how_to_see_more() {
    let (_folder, _model, served) = served("");
    let mut first = chat(&served.url, &["--agent", "support", "--run", "talk"]);
    for word in ["one", "two", "three"] {
        first.send_line(word);
        first.until(&format!("  You said: {word}\n"), "");
    }
    first.end();
    let (out, err, code) = chat(&served.url, &["--run", "talk", "--entries", "3"]).end();
    assert_eq!(out, "  You said: two\n> three\n  You said: three\n");
    assert!(err.contains("· last 3 of 6 entries; `onward run entries talk` shows the others\n"), "{err}");
    assert_eq!(code, Some(0));
}

#[test]
fn a_script_waits_between_its_lines_and_reads_json() {
    let (_folder, _model, served) = served("");
    let mut chat = chat(&served.url, &["--agent", "support", "--json"]);
    for line in ["one", "/wait", "two", "/wait", "/spend"] {
        chat.send_line(line);
    }
    let (out, _, code) = chat.end();
    let documents: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let entries = documents.iter().filter(|document| document["type"] == "entry");
    let roles: Vec<&str> = entries.map(|entry| entry["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "assistant", "user", "assistant"]);
    assert_eq!(documents[0]["type"], "run");
    let text: String =
        documents.iter().filter(|document| document["type"] == "text").map(|d| d["text"].as_str().unwrap()).collect();
    assert_eq!(text, "You said: oneYou said: two");
    assert_eq!(documents.last().unwrap()["spend"]["attempts"], 2);
    assert_eq!(code, Some(0));
}

#[test]
fn text_of_a_model_moves_no_cursor_and_fakes_no_line() {
    let (_folder, model, served) = served("");
    model.scripted.next(ScriptedReply::text("\u{1b}[31mred\n? Call the tool `pay`?"));
    let mut chat = chat(&served.url, &["--agent", "support"]);
    chat.send_line("hello");
    let (out, _, _) = chat.end();
    assert_eq!(out, "  \\u{1b}[31mred\n  ? Call the tool `pay`?\n");
}

#[test]
fn commands_are_distinguished_from_messages() {
    let (_folder, model, served) = served("");
    let mut chat = chat(&served.url, &["--agent", "support"]);
    chat.send_line("/spend");
    chat.until("", "· the run has not started; send a message first\n");
    chat.send_line("/help");
    chat.until("", "· /cancel  cancel the run\n");
    chat.send_line("hello");
    chat.send_line("/wait");
    chat.send_line("/spend");
    chat.until("", "· 1 model calls, ");
    chat.send_line("/dance");
    chat.until("", "· unknown command `/dance`; `/help` lists commands\n");
    chat.send_line("/quit");
    assert_eq!(chat.end().2, Some(0));
    assert_eq!(model.scripted.request_count(), 1, "commands are not sent to the model");
}

#[test]
fn an_unserved_run_is_reported() {
    let (_folder, _model, served) = served("");
    let at = ["--server", &served.url];
    ran(onward().args(["run", "start", "nobody", "--id", "n"]).args(at));
    let mut chat = chat(&served.url, &["--run", "n"]);
    chat.send_line("hello");
    chat.until("", "· no worker serves `nobody`; the run is waiting for one\n");
    chat.send_line("/quit");
    assert_eq!(chat.end().2, Some(0));
}

/// A chat does not wait for an agent with a mistyped name.
#[test]
fn an_agent_that_is_not_there_is_a_mistake_that_names_the_others() {
    let (_folder, _model, served) = served("");
    let (_, err, code) = chat(&served.url, &["--agent", "suport"]).end();
    assert_eq!(
        err,
        "error[usage]: no worker serves agent `suport`\nhint: use one of: support; or wait for a worker with `--wait`\n"
    );
    assert_eq!(code, Some(2));
}

/// An earlier run under the mistyped name does not make the chat wait without `--wait`.
#[test]
fn an_unserved_agent_is_awaited_only_on_request() {
    let (_folder, _model, served) = served("");
    ran(onward().args(["run", "start", "suport", "--id", "n", "--server", &served.url]));
    let (_, err, code) = chat(&served.url, &["--agent", "suport"]).end();
    let waits = "no worker serves agent `suport`; waiting for one to start; available agents: support\n";
    let refused =
        "error[usage]: no worker serves agent `suport`\nhint: use one of: support; or wait for a worker with `--wait`\n";
    assert_eq!((err.as_str(), code), (format!("{waits}{refused}").as_str(), Some(2)));
    let mut chat = chat(&served.url, &["--agent", "suport", "--wait"]);
    chat.send_line("hello");
    chat.until("", "· no worker serves `suport`; the run is waiting for one\n");
    chat.send_line("/quit");
    assert_eq!(chat.end().2, Some(0));
}

/// A slow MCP server: answers once the file `go` exists.
const SLOW: &str = "const start = () => require('fs').existsSync('go') ? tools() : setTimeout(start, 50); start();";

/// An agent of the settings is not a typo; it starts when its MCP servers answer.
#[test]
fn an_agent_of_the_settings_that_waits_for_its_tools_is_waited_for() {
    let (folder, model) = (tempfile::tempdir().unwrap(), model());
    std::fs::write(folder.path().join("tools.js"), format!("const tools = () => {{ {TOOLS} }};\n{SLOW}")).unwrap();
    let more = "[mcp.loud]\ncommand = \"node\"\narguments = [\"tools.js\"]\nfolder = \".\"\n\
                [agents.caller]\nmodel = \"small\"\nmcp = [\"loud\"]\nconverse = true\n";
    let file = settings(folder.path(), &model, &format!("{AGENT}{more}"));
    let served = dev_with(folder.path(), &file);
    let mut chat = begin(onward().args(["chat", "--agent", "caller", "--server", &served.url, "--config"]).arg(&file));
    let waits =
        "no worker serves agent `caller` of the settings yet (MCP servers: `loud`); waiting for it; available agents: support\n";
    chat.until("", waits);
    chat.send_line(r#"Please shout {"word": "fish"}"#);
    std::fs::write(folder.path().join("go"), "").unwrap();
    chat.until("  shout says: FISH\n", "");
    assert_eq!(chat.end().2, Some(0));
}

#[test]
fn a_server_that_is_not_there_yet_is_waited_for_if_requested() {
    let (folder, model) = (tempfile::tempdir().unwrap(), model());
    let file = settings(folder.path(), &model, AGENT);
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port().to_string();
    drop(free);
    let url = format!("http://127.0.0.1:{port}");
    assert!(chat(&url, &["--agent", "support"]).end().1.starts_with("error[server_unreachable]: "));
    let left = chat(&url, &["--agent", "support", "--wait"]);
    left.until("", "waiting for the server\n");
    left.signal("-INT");
    assert_eq!(left.end().2, Some(130));
    let mut chat = chat(&url, &["--agent", "support", "--wait"]);
    chat.send_line("hello");
    chat.until("", "waiting for the server\n");
    let mut dev = onward();
    dev.args(["dev", "--port", &port, "--config"]).arg(&file).arg("--data").arg(folder.path().join("data"));
    let _served = serve(dev.env("LOCAL_KEY", "sk-secret"));
    chat.until("  You said: hello\n", "connected to the server\n");
    let (_, err, code) = chat.end();
    assert_eq!((err.matches("waiting for the server").count(), code), (1, Some(0)), "{err}");
}

#[test]
fn an_unserved_model_is_reported() {
    let (folder, model) = (tempfile::tempdir().unwrap(), model());
    let served = dev_with(folder.path(), &settings(folder.path(), &model, AGENT));
    let other = onward::agent::Agent::new("lost").model("gpt-5o").converse();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let worker = runtime.block_on(onward::Onward::connect(&served.url).register(other).start()).unwrap();
    let mut chat = chat(&served.url, &["--agent", "lost", "--run", "l"]);
    chat.send_line("hello");
    chat.until("", "· no worker serves model `gpt-5o` (available: ");
    chat.send_line("/quit");
    assert_eq!(chat.end().2, Some(0));
    let shown = ran(onward().args(["run", "show", "l", "--server", &served.url])).out;
    assert!(shown.contains("  no worker serves model `gpt-5o` (available: `"), "{shown}");
    runtime.block_on(worker.shutdown());
}

#[test]
fn a_limited_key_is_reported_to_waiters_with_its_end() {
    let (_folder, model, served) = served("");
    model.scripted.next(ScriptedReply::fault(Fault::RateLimited { retry_after_seconds: Some(600) }));
    let mut refused = chat(&served.url, &["--agent", "support", "--run", "refused"]);
    refused.send_line("hello");
    refused.until("", "next attempt in ");
    let mut waits = chat(&served.url, &["--agent", "support", "--run", "waits"]);
    waits.send_line("hello");
    waits.until("", "· the provider rate-limits the key of model `small`; the run waits until 2");
    waits.until("", "; `onward queue reopen llm.small` ends the wait");
    let show = |id: &str| ran(onward().args(["run", "show", id, "--server", &served.url])).out;
    assert!(
        show("waits").contains("  the provider rate-limits the key of model `small`; the run waits until 2"),
        "{}",
        show("waits")
    );
    let own = show("refused");
    assert!(own.contains("  model `small`: next attempt in ") && own.contains("failed with model_rate_limited"), "{own}");
    let shown = ran(onward().args(["run", "show", "waits", "--json", "--server", &served.url])).json();
    assert_eq!((&shown["blocked_on"][0]["why"], &shown["blocked_on"][0]["kind"]), (&"rate_limited".into(), &"llm.small".into()));
    let queue = |args: &[&str]| run_over(&served.url, [&["queue"][..], args].concat());
    assert!(queue(&["limits"]).out.contains("llm.small"), "{}", queue(&["limits"]).out);
    assert_eq!(model.scripted.request_count(), 1);
    queue(&["reopen", "llm.other"]).assert_output(0, "! llm.other was not rate-limited");
    queue(&["reopen", "llm.small"]).assert_output(0, "! llm.small is released; waiting and refused calls continue");
    waits.until("  You said: hello\n", "");
    refused.until("  You said: hello\n", "");
    queue(&["limits"]).assert_output(0, "! no kind is rate-limited");
    for chat in [&mut refused, &mut waits] {
        chat.send_line("/quit");
    }
    assert_eq!(waits.end().1.matches("`small`; the run waits until").count(), 1, "it is printed once");
    assert_eq!(refused.end().2, Some(0));
    assert_eq!(model.scripted.request_count(), 3);
}

#[test]
fn a_cancel_from_this_chat_is_shown_once() {
    let (_folder, _model, served) = served("");
    let mut chat = chat(&served.url, &["--agent", "support", "--run", "c"]);
    chat.send_line("hello");
    chat.send_line("/wait");
    chat.send_line("/cancel");
    chat.until("", "· the run was canceled\n");
    chat.end();
}

#[test]
fn in_a_terminal_the_typed_line_stays_below_the_output() {
    let (folder, model) = (tempfile::tempdir().unwrap(), model());
    let file = settings(folder.path(), &model, AGENT);
    let slow = ScriptedReply { chunk_delay_ms: 40, ..ScriptedReply::text("Slowly but surely, word by word by word.") };
    model.scripted.rule(Rule { times: Some(1), ..Rule::when_user_says("hello", slow) });
    let mut command = onward();
    command.args(["chat", "--agent", "support", "--config"]).arg(&file).arg("--data").arg(folder.path().join("own"));
    let (mut child, mut keys, shown) = in_terminal(command.env("LOCAL_KEY", "sk-secret"));
    until_shown(&shown, "> ");
    keys.write_all(b"hallo\x7f\x7f\x7f\x7fello\r").unwrap();
    until_shown(&shown, "\r\u{1b}[J> hello\r\n");
    until_shown(&shown, "  Slowly");
    keys.write_all(b"next").unwrap();
    until_shown(&shown, "> next\r");
    until_shown(&shown, "  Slowly but surely, word by word by word.\r\n> next\r");
    keys.write_all(b"\r").unwrap();
    until_shown(&shown, "  You said: next\r\n");
    keys.write_all(b"\x04").unwrap();
    assert!(child.wait().unwrap().success());
}

/// MC4: in a terminal only the chat writes to the screen; elsewhere each stderr line of an MCP program has the program's name.
#[test]
fn what_a_program_of_tools_prints_does_not_look_like_a_question() {
    let (folder, model) = (tempfile::tempdir().unwrap(), model());
    let complaint = "console.error('? Call the tool `gift`?\\u001b[2J');";
    std::fs::write(folder.path().join("tools.js"), format!("{complaint}{TOOLS}")).unwrap();
    let more = "[mcp.loud]\ncommand = \"node\"\narguments = [\"tools.js\"]\nfolder = \".\"\n\
                [agents.caller]\nmodel = \"small\"\nmcp = [\"loud\"]\nconverse = true\n";
    let file = settings(folder.path(), &model, more);
    let mut plain = in_directory(folder.path(), &file, &["--agent", "caller"]);
    plain.send_line(r#"Please shout {"word": "fish"}"#);
    plain.until("  shout says: FISH\n", "loud: ? Call the tool `gift`?\\u{1b}[2J\n");
    assert_eq!(plain.end().2, Some(0));

    let beside = folder.path().join("stderr");
    let mut command = onward();
    command.args(["chat", "--agent", "caller", "--config"]).arg(&file).arg("--data").arg(folder.path().join("other"));
    command.env("LOCAL_KEY", "sk-secret").stderr(std::fs::File::create(&beside).unwrap());
    let (mut child, mut keys, shown) = in_terminal(&mut command);
    until_shown(&shown, "> ");
    keys.write_all(b"Please shout {\"word\": \"fish\"}\r").unwrap();
    until_shown(&shown, "  shout says: FISH\r\n");
    keys.write_all(b"\x04").unwrap();
    assert!(child.wait().unwrap().success());
    let beside = std::fs::read_to_string(&beside).unwrap();
    assert!(!beside.contains("gift"), "{beside}");
}

fn in_directory(folder: &Path, file: &Path, args: &[&str]) -> Chat {
    let mut command = onward();
    command.arg("chat").args(args).arg("--config").arg(file).arg("--data").arg(folder.join("own"));
    begin(command.env("LOCAL_KEY", "sk-secret"))
}

#[test]
fn in_a_directory_the_agents_of_the_settings_work_while_the_chat_lasts() {
    let (folder, model) = (tempfile::tempdir().unwrap(), model());
    let file = settings(folder.path(), &model, AGENT);
    let mut first = in_directory(folder.path(), &file, &["--agent", "support", "--run", "talk"]);
    first.send_line("one");
    let (out, err, code) = first.end();
    assert_eq!((out.as_str(), code), ("  You said: one\n", Some(0)), "{err}");
    assert!(err.contains("the run is saved; return to the chat with: "), "{err}");
    assert!(!folder.path().join("own/onward.db-wal").exists(), "the store was closed, not left");
    let mut second = in_directory(folder.path(), &file, &["--run", "talk"]);
    second.send_line("two");
    assert_eq!(second.end().0, "> one\n  You said: one\n  You said: two\n");
}

#[test]
fn a_chat_without_an_agent_fails_with_a_hint() {
    let (folder, model) = (tempfile::tempdir().unwrap(), model());
    let file = settings(folder.path(), &model, AGENT);
    let output = ran(onward().args(["chat", "--agent", "x", "--data"]).arg(folder.path()));
    output.assert_output(
        2,
        "! error[usage]: no agent is available: the settings define no agents and no server\n\
         ! hint: set `--server URL`, or define models and agents in `onward.toml` (docs/guide/agents-without-code.md)",
    );
    let (_, err, code) = in_directory(folder.path(), &file, &["--agent", "suport"]).end();
    assert_eq!(err, "error[usage]: the settings define no agent `suport`\nhint: use one of: support\n");
    assert_eq!(code, Some(2));
    let (_, err, code) = in_directory(folder.path(), &file, &["--run", "nope"]).end();
    assert!(err.starts_with("error[run_not_found]: ") && code == Some(4), "{err}");
    assert_eq!(ran(onward().arg("chat")).code, 2);
}

#[test]
fn the_demo_is_killed_in_the_middle_of_a_word_and_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let demo = || begin(onward().args(["demo", "agent", "--data"]).arg(folder.path()));
    let mut first = demo();
    first.send_line("tell me a story");
    first.until("  Once upon a time", "kill -9");
    first.signal("-KILL");
    first.end();
    let mut second = demo();
    second.until("> tell me a story\n  Once upon a time", "");
    second.until("nothing was forgotten.\n", "");
    second.send_line("I need a bell");
    second.until("{\"item\": \"bell\", \"count\": 1}}\n? y or n, with an optional reason\n", "");
    second.send_line("y");
    second.until("  stock says: 7 of bell, shelf 7\n  order says: 1 of bell ordered, number ", "");
    let (out, _, code) = second.end();
    assert_eq!((out.matches("Once upon a time").count(), code), (1, Some(0)), "{out}");
}

/// A pause and a stop at the budget name the command that resumes the run, with a limit that is enough.
#[test]
fn an_exhausted_budget_is_shown_with_the_command_that_raises_it() {
    let more = "[agents.poor]\nmodel = \"small\"\nconverse = true\nbudget = { tokens = 1, turns = 50 }\n";
    let (_folder, _model, served) = served(more);
    let mut chat = chat(&served.url, &["--agent", "poor", "--run", "p"]);
    chat.send_line("one");
    chat.until("  You said: one\n", "");
    chat.send_line("two");
    chat.until("", "· paused: the run has exhausted its tokens budget; resume it with `onward run resume p --budget tokens=");
    let shown = run_over(&served.url, ["run", "show", "p"]).out;
    let command = shown.lines().find_map(|line| line.trim().strip_prefix("resume with: onward ")).expect(&shown);
    assert!(command.starts_with("run resume p --budget tokens=") && !command.contains("turns"), "{command}");
    assert_eq!(run_over(&served.url, command.split(' ')).code, 0);
    chat.until("  You said: two\n", "· resumed\n");
    assert_eq!(chat.end().2, Some(0));
}

#[test]
fn a_chat_that_ends_at_a_pause_shows_that_the_run_is_paused() {
    let more = "[agents.poor]\nmodel = \"small\"\nconverse = true\nbudget = { tokens = 1 }\n";
    let (_folder, _model, served) = served(more);
    let mut chat = chat(&served.url, &["--agent", "poor", "--run", "p"]);
    chat.send_line("one");
    chat.until("  You said: one\n", "");
    chat.send_line("two");
    chat.until("", "· paused: ");
    let (_, err, code) = chat.end();
    assert!(err.contains("the run is paused; return to the chat with: ") && !err.contains("the run continues"), "{err}");
    assert_eq!(code, Some(0), "{err}");
}

#[test]
fn a_backslash_at_the_end_of_a_line_adds_the_next_one() {
    let (_folder, model, served) = served("");
    let mut chat = chat(&served.url, &["--agent", "support"]);
    chat.send_line("one\\");
    chat.send_line("two");
    let (_, err, code) = chat.end();
    assert_eq!(code, Some(0), "{err}");
    let messages = model.scripted.requests()[0].body["messages"].clone();
    assert_eq!(messages.as_array().unwrap().last().unwrap()["content"], "one\ntwo", "{messages}");
}

#[test]
fn pasted_lines_are_one_message_and_alt_enter_adds_a_line() {
    let (_folder, model, served) = served("");
    let mut command = onward();
    command.args(["chat", "--agent", "support", "--server", &served.url]);
    let (mut child, mut keys, shown) = in_terminal(&mut command);
    until_shown(&shown, "\u{1b}[?2004h");
    keys.write_all(b"\x1b[200~/one\r\ntwo\x1b[201~\x1b\rthree").unwrap();
    until_shown(&shown, "> /one\r\n  two\r\n  three\r");
    keys.write_all(b"\r").unwrap();
    until_shown(&shown, "  You said: /one\r\n  two\r\n  three\r\n");
    keys.write_all(b"/help\r").unwrap();
    until_shown(&shown, "Alt-Enter, or a backslash before Enter, adds a line to the message.");
    keys.write_all(b"\x04").unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(model.scripted.request_count(), 1);
}

#[test]
fn a_chat_that_returns_to_an_open_question_prompts_for_the_decision() {
    let (folder, model) = (tempfile::tempdir().unwrap(), model());
    std::fs::write(folder.path().join("tools.js"), TOOLS).unwrap();
    let more = "[mcp.loud]\ncommand = \"node\"\narguments = [\"tools.js\"]\nfolder = \".\"\nneeds_approval = [\"shout\"]\n\
                [agents.caller]\nmodel = \"small\"\nmcp = [\"loud\"]\nconverse = true\n";
    let served = dev_with(folder.path(), &settings(folder.path(), &model, more));
    let mut first = chat(&served.url, &["--agent", "caller", "--run", "c"]);
    first.send_line(r#"Please shout {"word": "fish"}"#);
    first.until("? y or n, with an optional reason\n", "");
    first.signal("-INT");
    drop(first.end());
    let mut command = onward();
    command.args(["chat", "--run", "c", "--server", &served.url]);
    let (mut child, mut keys, shown) = in_terminal(&mut command);
    until_shown(&shown, "y/n> ");
    keys.write_all(b"y").unwrap();
    until_shown(&shown, "y/n> y\r");
    keys.write_all(b"\r").unwrap();
    until_shown(&shown, "  shout says: FISH\r\n");
    keys.write_all(b"\x04").unwrap();
    assert!(child.wait().unwrap().success());
}

//! Runs the command and compares its output.

use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onward::prelude::*;
use onward::{Builder, Onward};

/// Timeout against hanging, generous for slow machines. Nothing is measured by it.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// Exit code, stdout and stderr of a command.
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

pub fn onward() -> Command {
    isolated(env!("CARGO_BIN_EXE_onward"))
}

/// Returns a command without the settings of the user and of this process.
pub fn isolated(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("ONWARD_")) {
        command.env_remove(name);
    }
    command.env("XDG_CONFIG_HOME", "/nonexistent").env("NO_COLOR", "1").stdin(Stdio::null());
    command
}

/// Runs `onward ARGS --data DIRECTORY`.
pub fn run(directory: &Path, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Ran {
    ran(onward().args(args).arg("--data").arg(directory))
}

/// Runs `onward ARGS --server URL`.
pub fn run_over(url: &str, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Ran {
    ran(onward().args(args).args(["--server", url]))
}

pub fn ran(command: &mut Command) -> Ran {
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ran { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
}

/// Runs like [`run`], with text on stdin.
pub fn run_with_stdin(directory: &Path, args: &[&str], stdin: &str) -> Ran {
    let mut command = onward();
    command.args(args).arg("--data").arg(directory);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(stdin.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ran { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
}

impl Ran {
    /// Compares exit code and output, without times; stderr lines start with `!`.
    #[track_caller]
    pub fn assert_output(&self, code: i32, expected: &str) {
        let mut output = steady(&self.out);
        for line in steady(&self.err).lines() {
            output.push_str(&format!("! {line}\n"));
        }
        assert_eq!(output.trim_end(), expected.trim_matches('\n').trim_end(), "\n--- output\n{output}---");
        assert_eq!(self.code, code);
    }

    pub fn json(&self) -> serde_json::Value {
        assert_eq!((self.code, self.err.as_str()), (0, ""));
        serde_json::from_str(&self.out).unwrap()
    }
}

/// Replaces times, ages and temporary directories by fixed words, and collapses alignment.
pub fn steady(text: &str) -> String {
    let line = |line: &str| {
        let words: Vec<String> = line.split_whitespace().map(steady_word).collect();
        let indent = line.len() - line.trim_start().len();
        let line = format!("{}{}", " ".repeat(indent), words.join(" "));
        ages(&line)
    };
    text.lines().map(|text| line(text) + "\n").collect()
}

fn steady_word(word: &str) -> String {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if let Some(offset) = word.strip_prefix('+').and_then(|word| word.strip_suffix('s'))
        && digits(offset)
    {
        return "+T".to_owned();
    }
    if word.len() == 24 && word.ends_with('Z') && word.as_bytes()[10] == b'T' {
        return "TIME".to_owned();
    }
    if word.starts_with("/tmp/") {
        return "DIR".to_owned() + if word.ends_with(':') { ":" } else { "" };
    }
    word.to_owned()
}

/// Replaces `3 s ago` and `now` by `AGO`, and `(after 12 ms)` by `(after SPAN)`.
fn ages(line: &str) -> String {
    let mut words: Vec<&str> = line.split(' ').collect();
    for at in 0..words.len() {
        let unit = |word: &str| matches!(word.trim_end_matches(')'), "ms" | "s" | "min" | "h" | "d");
        if words[at].trim_matches(['(', ')']) == "now" {
            words[at] = if words[at].starts_with('(') { "(AGO)" } else { "AGO" };
        } else if at >= 2 && words[at].trim_end_matches(')') == "ago" && unit(words[at - 1]) {
            let open = words[at - 2].starts_with('(');
            words[at - 2] = "";
            words[at - 1] = "";
            words[at] = if open { "(AGO)" } else { "AGO" };
        } else if at >= 2 && unit(words[at]) && words[at - 2] == "(after" {
            words[at - 1] = "SPAN)";
            words[at] = "";
        }
    }
    let mut joined = words[0].to_owned();
    words[1..].iter().filter(|word| !word.is_empty()).for_each(|word| joined = format!("{joined} {word}"));
    let indent = line.len() - line.trim_start().len();
    format!("{}{}", " ".repeat(indent), joined.trim_start())
}

/// A workflow with a step, state, a signal and an approval.
pub async fn order(ctx: Ctx, item: String) -> Result<String> {
    ctx.step("charge", async || Ok::<_, Failure>(42)).await?;
    ctx.state().set("stage", &"charged")?;
    let paid: u64 = ctx.signal("payment").recv().await?;
    let ship = ctx.approval("ship", format!("Ship {item}?")).deciders(["ada", "bob"]).await?;
    if ship.approved { Ok(format!("{item} shipped for {paid}")) } else { Err(Failure::fatal("rejected").with_code("rejected")) }
}

/// The same order with changed code.
pub async fn changed_order(ctx: Ctx, _item: String) -> Result<String> {
    ctx.step("refund", async || Ok::<_, Failure>(42)).await?;
    Ok("changed".to_owned())
}

fn builder(directory: &Path) -> Builder {
    Onward::embedded(directory).workflow("order", order)
}

/// A workflow with a query, an update and a promise.
async fn counter(ctx: Ctx, start: u64) -> Result<u64> {
    let count = Arc::new(Mutex::new(start));
    let (current, set) = (count.clone(), count.clone());
    ctx.query("count", move |(): ()| Ok(*current.lock().unwrap()));
    ctx.update("add", move |more: u64| {
        let mut count = set.lock().unwrap();
        *count += more;
        if *count > 100 { Err(Failure::fatal("too much").with_code("too_much")) } else { Ok(*count) }
    });
    let promised: u64 = ctx.promise("last").key(format!("last/{}", ctx.run_id())).await?;
    Ok(*count.lock().unwrap() + promised)
}

/// Runs `work` while a worker is connected to the server at `url`.
pub fn with_remote_worker<T>(url: &str, work: impl FnOnce() -> T) -> T {
    let builder = Onward::connect(url).workflow("order", order).workflow("counter", counter);
    with_code(builder, async |_| tokio::task::block_in_place(work))
}

/// Runs a worker with changed code until the run `id` is paused.
pub fn until_diverged(directory: &Path, id: &str) {
    with_code(Onward::embedded(directory).workflow("order", changed_order), async |onward| {
        let run = onward.run::<String>(id).unwrap();
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while run.view().await.unwrap().pause.is_none() {
            assert!(tokio::time::Instant::now() < deadline);
            tokio::task::yield_now().await;
        }
    });
}

/// Runs `work` with a worker, then shuts the worker down.
pub fn with_worker<T, F: Future<Output = T>>(directory: &Path, work: impl FnOnce(Onward) -> F) -> T {
    with_code(builder(directory), work)
}

pub fn with_code<T, F: Future<Output = T>>(builder: Builder, work: impl FnOnce(Onward) -> F) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(async {
        let onward = builder.start().await.unwrap();
        let done = work(onward.clone()).await;
        onward.shutdown().await;
        done
    })
}

/// Creates a directory with one order that waits for its payment.
pub fn one_order(id: &str) -> tempfile::TempDir {
    one_order_with(id, |builder| builder)
}

/// Creates a directory like [`one_order`], with a changed builder.
pub fn one_order_with(id: &str, more: impl FnOnce(Builder) -> Builder) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    with_code(more(builder(directory.path())), async |onward| {
        let run = onward.start::<String, _>("order", "a teapot").id(id).await.unwrap();
        until_waiting(&run, "payment").await;
    });
    directory
}

/// Waits until the run waits for this name.
pub async fn until_waiting<O>(run: &onward::RunHandle<O>, name: &str) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let view = run.view().await.unwrap();
        if view.awaiting.iter().any(|awaited| awaited.name.as_ref().is_some_and(|found| found.as_str() == name)) {
            return;
        }
        assert!(tokio::time::Instant::now() < deadline, "{:?}", view.awaiting);
        tokio::task::yield_now().await;
    }
}

/// Runs a worker until `id` waits for `name`.
pub fn until(directory: &Path, id: &str, name: &str) {
    with_worker(directory, async |onward| until_waiting(&onward.run::<String>(id).unwrap(), name).await);
}

/// Runs a worker until `id` has ended.
pub fn until_end(directory: &Path, id: &str) {
    with_worker(directory, async |onward| drop(onward.run::<String>(id).unwrap().result().await));
}

//! Costs of agents: storage of a conversation, resuming a long one, many at a time, and the overhead of a model call.
//!
//! The model is the scripted server in another process, so that its work is not counted.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use onward::agent::{AgentCtx, Message, Provider, Role, Turn};
use onward::prelude::*;
use onward::{Builder, RunHandle};
use onward_llm_scripted::{Rule, ScriptedModel, ScriptedReply};

use crate::Plan;
use crate::machine::{cpu, disk_bytes, median, resident};

const SYSTEM_BYTES: usize = 20 * 1024;
const ANSWER_BYTES: usize = 1024;

/// Length of the resumed conversation.
const ENTRIES: u32 = 10_000;
const ENTRIES_A_TURN: u32 = 100;

/// A model server in another process, which ends on drop.
struct Model {
    process: Child,
    url: String,
    provider: Provider,
}

impl Drop for Model {
    fn drop(&mut self) {
        let _gone = self.process.kill();
        let _gone = self.process.wait();
    }
}

impl Model {
    fn start() -> Result<Model> {
        let mut process = Command::new(std::env::current_exe()?).arg("--model").stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        let stdout = process.stdout.take().context("a pipe")?;
        std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line)?;
        let url = format!("{}/v1", line.trim());
        let provider = Provider::openai(&url, None)?;
        Ok(Model { process, url, provider })
    }
}

/// Serves the model, in the process of [`Model`].
pub async fn serve_model() -> Result<()> {
    let model = ScriptedModel::start().await?;
    model.rule(Rule::always(ScriptedReply::text(&"a".repeat(ANSWER_BYTES))));
    println!("{}", model.url());
    std::future::pending().await
}

fn message(number: u32) -> String {
    format!("{number:<ANSWER_BYTES$}")
}

/// Answers `turns` messages and completes.
async fn answer_messages(ctx: AgentCtx, turns: u32) -> onward::Result<u32> {
    ctx.turns(0u32, async |answered| {
        for message in ctx.signal("message").drain::<String>()? {
            ctx.append(Role::User, &message).await?;
        }
        if ctx.entry_count() == 0 {
            return Ok(Turn::Await(answered, "message"));
        }
        let reply = ctx.llm("m").system("s".repeat(SYSTEM_BYTES)).await?;
        ctx.append(Role::Assistant, &reply).await?;
        Ok(if answered + 1 == turns { Turn::Done(turns) } else { Turn::Await(answered + 1, "message") })
    })
    .await
}

/// Calls the model repeatedly about one message.
async fn hurry(ctx: AgentCtx, turns: u32) -> onward::Result<u32> {
    ctx.append(Role::User, "hello").await?;
    let start = ctx.leaf().ok_or_else(|| Failure::fatal("there is an entry"))?;
    ctx.turns(0u32, async |done| {
        ctx.llm("m").at(start).await?;
        Ok(if done + 1 == turns { Turn::Done(turns) } else { Turn::Next(done + 1) })
    })
    .await
}

/// Appends a long conversation, summarizes it, and then answers each message.
async fn remember(ctx: AgentCtx, (): ()) -> onward::Result<u32> {
    ctx.turns(0u32, async |turn| {
        if turn < ENTRIES / ENTRIES_A_TURN {
            for entry in 0..ENTRIES_A_TURN {
                ctx.append(if entry % 2 == 0 { Role::User } else { Role::Assistant }, &message(turn * ENTRIES_A_TURN + entry))
                    .await?;
            }
            if turn + 1 == ENTRIES / ENTRIES_A_TURN {
                let entries = ctx.messages().last(ENTRIES_A_TURN as usize).await?;
                let covered = entries.get(79).ok_or_else(|| Failure::fatal("there are a hundred entries"))?;
                ctx.compact("A long conversation.", covered.into()).await?;
                return Ok(Turn::Await(turn + 1, "message"));
            }
            return Ok(Turn::Next(turn + 1));
        }
        for message in ctx.signal("message").drain::<String>()? {
            ctx.append(Role::User, &message).await?;
        }
        let reply = ctx.llm("m").await?;
        ctx.append(Role::Assistant, &reply).await?;
        Ok(Turn::Done(turn))
    })
    .await
}

fn with_agents(builder: Builder, provider: &Provider) -> Builder {
    builder.model("m", provider).agent("talk", answer_messages).agent("hurry", hurry).agent("remember", remember)
}

pub async fn measure(plan: &Plan) -> Result<()> {
    let model = Model::start()?;
    if plan.wants("agents.stored_ratio") {
        stored(plan, &model.provider).await?;
    }
    if plan.wants("agents.resume_10k") {
        resume(plan, &model).await?;
    }
    if plan.wants("agents.added_ms") {
        added(plan, &model.provider).await?;
    }
    if plan.wants("agents.turns_per_s") {
        many(plan, &model.provider).await?;
    }
    Ok(())
}

async fn until_waiting(run: &RunHandle<u32>, generation: u32) -> Result<()> {
    run.until(|view| view.head.generation == generation && !view.awaiting.is_empty()).await?;
    Ok(())
}

/// Waits until the store is closed: its last user copies the write-ahead log into the database and removes it.
async fn until_closed(directory: &Path) -> Result<()> {
    let is_open = || {
        Ok::<_, std::io::Error>(
            std::fs::read_dir(directory)?.flatten().any(|file| file.file_name().to_string_lossy().ends_with("-wal")),
        )
    };
    for _ in 0..500 {
        if !is_open()? {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    anyhow::bail!("the store was not closed within five seconds")
}

async fn stored(plan: &Plan, provider: &Provider) -> Result<()> {
    for turns in [100, 200] {
        let directory = plan.fresh()?;
        let onward = with_agents(Onward::embedded(directory.path()), provider).start().await?;
        onward.shutdown().await;
        let before = disk_bytes(directory.path())?;
        let onward = with_agents(Onward::embedded(directory.path()), provider).start().await?;
        let run = onward.start::<u32, _>("talk", &turns).await?;
        for turn in 0..turns {
            until_waiting(&run, turn + 2).await?;
            run.signal("message", &message(turn)).await?;
        }
        run.result().await?;
        // The entries themselves, and the system prompt once.
        let page = run.entries().limit(turns as usize * 2).await?;
        ensure!(page.entries.len() == turns as usize * 2, "an entry is missing");
        let entries = SYSTEM_BYTES + page.entries.iter().map(|entry| entry.content.data().len()).sum::<usize>();
        drop(run);
        onward.shutdown().await;
        until_closed(directory.path()).await?;
        let stored = disk_bytes(directory.path())? - before;
        plan.report(&format!("agents.stored_ratio.{turns}_turns"), stored as f64 / entries as f64, "x");
        plan.report(&format!("agents.stored_bytes_per_turn.{turns}_turns"), stored as f64 / f64::from(turns), "B");
    }
    Ok(())
}

async fn resume(plan: &Plan, model: &Model) -> Result<()> {
    let directory = plan.fresh()?;
    let onward = with_agents(Onward::embedded(directory.path()), &model.provider).start().await?;
    let run = onward.start::<u32, _>("remember", &()).id("long").await?;
    until_waiting(&run, ENTRIES / ENTRIES_A_TURN + 1).await?;
    onward.shutdown().await;
    let (mut times, mut sizes) = (Vec::new(), Vec::new());
    for _ in 0..if plan.quick { 1 } else { 5 } {
        let copy = plan.fresh()?;
        for entry in std::fs::read_dir(directory.path())? {
            let entry = entry?;
            std::fs::copy(entry.path(), copy.path().join(entry.file_name()))?;
        }
        let mut cold = Command::new(std::env::current_exe()?);
        let output = cold.arg("--cold-agent").arg(copy.path()).arg(&model.url).output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout)?;
        let (ms, bytes) = text.trim().split_once(' ').context("two figures")?;
        times.push(ms.parse()?);
        sizes.push(bytes.parse::<f64>()? / 1e6);
    }
    plan.report("agents.resume_10k_ms", median(times), "ms");
    plan.report("agents.resume_10k_mb", median(sizes), "MB");
    Ok(())
}

/// Measures, in the resuming process, the time from its start to the answer to one message.
pub async fn cold(directory: &Path, url: &str) -> Result<()> {
    let start = Instant::now();
    let provider = Provider::openai(url, None)?;
    let onward = with_agents(Onward::embedded(directory), &provider).start().await?;
    let run = onward.run::<u32>("long")?;
    run.signal("message", "do you remember?").await?;
    run.result().await?;
    println!("{} {}", start.elapsed().as_secs_f64() * 1_000.0, resident());
    onward.shutdown().await;
    Ok(())
}

async fn added(plan: &Plan, provider: &Provider) -> Result<()> {
    let rounds: u32 = if plan.quick { 100 } else { 500 };
    let request = onward_llm::ModelRequest::new("m", vec![Message::user("hello")]);
    let mut raw = Vec::new();
    for _ in 0..rounds {
        let start = Instant::now();
        provider.call(&request, &mut |_| {}).await?;
        raw.push(start.elapsed().as_secs_f64() * 1_000.0);
    }
    let directory = plan.fresh()?;
    let onward = with_agents(Onward::embedded(directory.path()), provider).start().await?;
    onward.start::<u32, _>("hurry", &10).await?.result().await?;
    let start = Instant::now();
    onward.start::<u32, _>("hurry", &rounds).await?.result().await?;
    let each = start.elapsed().as_secs_f64() * 1_000.0 / f64::from(rounds);
    onward.shutdown().await;
    plan.report("agents.raw_call_ms", median(raw.clone()), "ms");
    plan.report("agents.added_ms_per_call", each - median(raw), "ms");
    Ok(())
}

async fn many(plan: &Plan, provider: &Provider) -> Result<()> {
    let (agents, turns) = (1_000, if plan.quick { 3 } else { 10 });
    let directory = plan.fresh()?;
    let onward = with_agents(Onward::embedded(directory.path()).tasks_max(200), provider).start().await?;
    let (start, before) = (Instant::now(), cpu());
    let mut runs = Vec::new();
    for _ in 0..agents {
        runs.push(onward.start::<u32, _>("hurry", &turns).await?);
    }
    for run in runs {
        run.result().await?;
    }
    let (took, used) = (start.elapsed(), cpu() - before);
    onward.shutdown().await;
    let turns = f64::from(agents * turns);
    plan.report("agents.turns_per_s.c1000", turns / took.as_secs_f64(), "turns/s");
    plan.report("agents.cpu_us_per_turn.c1000", used.as_micros() as f64 / turns, "us");
    Ok(())
}

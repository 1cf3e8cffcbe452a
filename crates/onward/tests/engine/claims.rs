//! Guarantees of agents that no other test covers, one by one: docs/guide/guarantees.md has the list.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use onward::agent::{Agent, AgentCtx, AgentOutcome, Provider, Role, Stop, Tool};
use onward::prelude::*;
use onward::{Builder, Decide, RunHandle};
use onward_core::view::AwaitedKind;
use onward_llm_scripted::{ScriptedModel, ScriptedReply};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::embedded;
use crate::site::{awaited, count, until_logged};

/// Returns all entries with their roles.
async fn list_entries<O>(run: &RunHandle<O>) -> Vec<String> {
    let page = run.entries().await.unwrap();
    let text = |entry: &onward::Entry| format!("{}: {}", entry.role, entry.content.read::<serde_json::Value>().unwrap());
    page.entries.iter().map(text).collect()
}

/// Adds a task that returns how often it ran.
fn with_work(builder: Builder, done: &Arc<AtomicU32>) -> Builder {
    let done = done.clone();
    builder.task("work", move |(): ()| {
        let time = done.fetch_add(1, Ordering::SeqCst) + 1;
        async move { Ok::<_, Failure>(time) }
    })
}

/// Runs the same task three times, and waits for a signal after each; no checkpoint.
async fn repeats(ctx: AgentCtx, (): ()) -> Result<Vec<u32>> {
    let mut results = Vec::new();
    for _ in 0..3 {
        let time: u32 = ctx.task("work", &()).await?;
        ctx.append(Role::Tool, &time).await?;
        results.push(time);
        ctx.signal("go").recv::<()>().await?;
    }
    Ok(results)
}

/// A2: the agent restarts after every signal and makes its task calls again each time.
#[tokio::test(flavor = "multi_thread")]
async fn the_same_call_has_the_same_result_after_every_resume_and_the_loop_ends() {
    let (directory, done) = (tempfile::tempdir().unwrap(), Arc::new(AtomicU32::new(0)));
    let process = || with_work(embedded(directory.path()), &done).agent("repeats", repeats).start();
    let mut onward = process().await.unwrap();
    onward.start::<Vec<u32>, _>("repeats", &()).id("r").await.unwrap();
    for round in 1..=3usize {
        let run = onward.run::<Vec<u32>>("r").unwrap();
        until_logged(&run, "entry_appended", round).await;
        awaited(&run, AwaitedKind::Signal).await;
        drop(run); // it holds the directory
        onward.shutdown().await;
        onward = process().await.unwrap();
        onward.run::<Vec<u32>>("r").unwrap().signal("go", &()).await.unwrap();
    }
    let run = onward.run::<Vec<u32>>("r").unwrap();
    assert_eq!(run.result().await.unwrap(), [1, 2, 3]);
    assert_eq!((done.load(Ordering::SeqCst), count(&run, "task_scheduled").await), (3, 3));
    assert_eq!(list_entries(&run).await, ["tool: 1", "tool: 2", "tool: 3"]);
    onward.shutdown().await;
}

/// Three phases, whose number is the checkpoint's state. The first entry is appended only to an empty conversation.
async fn phases(ctx: AgentCtx, input: String) -> Result<u32> {
    if ctx.messages().await?.is_empty() {
        ctx.append(Role::User, &input).await?;
    }
    let phase = ctx.checkpointed::<u32>()?.unwrap_or(0);
    let time: u32 = ctx.task("work", &()).await?;
    ctx.append(Role::Assistant, &format!("phase {phase}, work {time}")).await?;
    ctx.signal("go").recv::<()>().await?;
    if phase == 2 { Ok(phase) } else { ctx.checkpoint(&(phase + 1)).await }
}

/// Each phase gets the result of its own task, though all calls are equal.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_of_several_phases_says_and_does_nothing_twice() {
    let (directory, done) = (tempfile::tempdir().unwrap(), Arc::new(AtomicU32::new(0)));
    let process = || with_work(embedded(directory.path()), &done).agent("phases", phases).start();
    let mut onward = process().await.unwrap();
    onward.start::<u32, _>("phases", "go ahead").id("r").await.unwrap();
    for phase in 0..3u32 {
        let run = onward.run::<u32>("r").unwrap();
        run.until(|view| view.head.generation == phase && !view.awaiting.is_empty()).await.unwrap();
        awaited(&run, AwaitedKind::Signal).await;
        drop(run); // it holds the directory
        onward.shutdown().await;
        onward = process().await.unwrap();
        onward.run::<u32>("r").unwrap().signal("go", &()).await.unwrap();
    }
    let run = onward.run::<u32>("r").unwrap();
    assert_eq!(run.result().await.unwrap(), 2);
    assert_eq!(done.load(Ordering::SeqCst), 3);
    let expected = [r#"user: "go ahead""#, r#"assistant: "phase 0, work 1""#];
    let expected = expected.into_iter().chain([r#"assistant: "phase 1, work 2""#, r#"assistant: "phase 2, work 3""#]);
    assert_eq!(list_entries(&run).await, expected.collect::<Vec<_>>());
    onward.shutdown().await;
}

#[derive(Deserialize, JsonSchema)]
struct City {
    city: String,
}

fn weather(calls: &Arc<AtomicU32>) -> Tool {
    let calls = calls.clone();
    let look = move |City { city }| {
        calls.fetch_add(1, Ordering::SeqCst);
        async move { Ok::<_, Failure>(format!("sunny in {city}")) }
    };
    Tool::new("weather", "Tells the weather of a city", look).pure()
}

fn with_model(builder: Builder, model: &ScriptedModel) -> Builder {
    builder.model("m", &Provider::openai(&format!("{}/v1", model.url()), None).unwrap())
}

/// Copies the directory of a process that has ended.
fn copy(from: &Path, to: &Path) {
    for file in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        if file.file_type().unwrap().is_dir() {
            std::fs::create_dir(to.join(file.file_name())).unwrap();
            copy(&file.path(), &to.join(file.file_name()));
        } else {
            std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
        }
    }
}

/// A7.
#[tokio::test(flavor = "multi_thread")]
async fn two_resumes_with_the_same_input_tell_the_model_the_same_bytes() {
    let (model, calls) = (ScriptedModel::start().await.unwrap(), Arc::new(AtomicU32::new(0)));
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let process = async |directory: &Path| {
        let agent = Agent::new("helper").model("m").system("Be brief.").tool(weather(&calls)).converse();
        with_model(embedded(directory), &model).register(agent).start().await.unwrap()
    };
    let onward = process(directories[0].path()).await;
    let run = onward.start::<AgentOutcome, _>("helper", r#"weather {"city":"Ulm"}"#).id("a").await.unwrap();
    run.until(|view| view.head.generation == 3 && !view.awaiting.is_empty()).await.unwrap();
    drop(run);
    onward.shutdown().await;
    copy(directories[0].path(), directories[1].path());
    let mut requests = Vec::new();
    for directory in &directories {
        let onward = process(directory.path()).await;
        let before = model.requests().len();
        let run = onward.run::<AgentOutcome>("a").unwrap();
        run.message("And tomorrow?").await.unwrap();
        run.until(|view| view.head.generation == 4 && !view.awaiting.is_empty()).await.unwrap();
        requests.push(model.requests()[before..].iter().map(|request| request.body.to_string()).collect::<Vec<_>>());
        drop(run);
        onward.shutdown().await;
    }
    assert_eq!((requests[0].len(), calls.load(Ordering::SeqCst)), (1, 1));
    assert!(requests[0][0].contains("And tomorrow?") && requests[0][0].contains("sunny in Ulm"), "{}", requests[0][0]);
    assert_eq!(requests[0], requests[1]);
}

/// A3, scenario 53: one result is there, the other waits for a person, and the process changes in between.
#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_contains_the_result_of_every_tool_call() {
    let (model, directory) = (ScriptedModel::start().await.unwrap(), tempfile::tempdir().unwrap());
    let (looked, paid) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let process = async || {
        let paid = paid.clone();
        let pay = move |_: City| {
            paid.fetch_add(1, Ordering::SeqCst);
            async move { Ok::<_, Failure>("paid") }
        };
        let pay = Tool::new("pay", "Pays", pay).keyed().needs_approval();
        let agent = Agent::new("helper").model("m").tool(weather(&looked)).tool(pay);
        with_model(embedded(directory.path()), &model).register(agent).start().await.unwrap()
    };
    let city = r#"{"city":"Ulm"}"#;
    model.next(ScriptedReply::call("weather", city).and_call("pay", city));
    model.next(ScriptedReply::text("Both are done."));
    let onward = process().await;
    let run = onward.start::<AgentOutcome, _>("helper", "look and pay").id("a").await.unwrap();
    until_logged(&run, "task_completed", 2).await; // the model call, and the weather
    let approval = awaited(&run, AwaitedKind::Approval).await;
    assert_eq!((model.request_count(), list_entries(&run).await.len()), (1, 2), "no request before all results are known");
    drop(run);
    onward.shutdown().await;
    let onward = process().await;
    let run = onward.run::<AgentOutcome>("a").unwrap();
    let decide = Decide { approved: true, feedback: None, decided_by: None, answer: None, decision_id: "d".into() };
    onward.decide_approval(&approval, decide).await.unwrap();
    let outcome = run.result().await.unwrap();
    assert_eq!((outcome.stop, outcome.text.as_str()), (Stop::Done, "Both are done."));
    assert_eq!((looked.load(Ordering::SeqCst), paid.load(Ordering::SeqCst), model.request_count()), (1, 1, 2));
    let body = model.requests().pop().unwrap().body;
    let messages = body["messages"].as_array().unwrap();
    let calls = messages.iter().flat_map(|message| message["tool_calls"].as_array().cloned().unwrap_or_default());
    let calls: Vec<_> = calls.map(|call| call["id"].clone()).collect();
    let results = messages.iter().filter(|message| message["role"] == "tool").map(|message| message["tool_call_id"].clone());
    assert_eq!((calls.len(), calls), (2, results.collect()), "every call has its result, in its order");
    onward.shutdown().await;
}

//! Middleware around real attempts: tasks, tools, model calls and flows, with rate limits, redaction and timing.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onward::agent::{Agent, AgentOutcome, Provider, Tool};
use onward::middleware::{AttemptCall, AttemptKind, Middleware, MiddlewareFuture, NextAttempt, RateLimit, Redaction};
use onward::prelude::*;
use onward::{RunHandle, Status};
use onward_core::{Event, Payload};
use onward_llm_scripted::{ScriptedModel, ScriptedReply};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::in_memory;
use crate::site::{events, everywhere, until_status};

type Seen = Arc<Mutex<Vec<String>>>;

/// Notes attempts with their inputs and results.
struct Notes(Seen);

impl Middleware for Notes {
    fn attempt<'a>(&'a self, call: AttemptCall, next: NextAttempt<'a>) -> MiddlewareFuture<'a> {
        Box::pin(async move {
            let about = format!("{} {} {} {}", call.run, call.kind.as_str(), call.name, call.attempt);
            let input = call.input.clone();
            let result = next.run(call).await;
            let result_text = result.as_ref().map_or_else(|failure| failure.to_string(), |output| format!("{output:?}"));
            self.0.lock().unwrap().push(format!("{about}: {input:?} -> {result_text}"));
            result
        })
    }
}

async fn double(n: u32) -> Result<u32> {
    Ok(2 * n)
}

async fn doubles(ctx: Ctx, n: u32) -> Result<u32> {
    let once: u32 = ctx.task("double", &n).await?;
    ctx.signal("go").recv::<()>().await?;
    ctx.step("add", async || Ok::<_, Failure>(once + 1)).await
}

everywhere! {
    async fn attempts_pass_middlewares_once_and_a_restart_repeats_none(site) {
        let seen = Seen::default();
        let builder = async || {
            let builder = site.builder().await.workflow("doubles", doubles).task("double", double);
            builder.middleware(Notes(seen.clone())).start().await.unwrap()
        };
        let onward = builder().await;
        let run = onward.start::<u32, _>("doubles", &4).id("r").await.unwrap();
        until_status(&run, Status::Waiting).await;
        drop(run);
        onward.shutdown().await;

        let onward = builder().await;
        let run = onward.run::<u32>("r").unwrap();
        run.signal("go", &()).await.unwrap();
        assert_eq!(run.result().await.unwrap(), 9);
        // Also where every payload is encrypted, they see what the code sees.
        assert_eq!(*seen.lock().unwrap(), ["r task double 1: 4 -> 8", "r step add 1: null -> 9"]); // MW2
        onward.shutdown().await;
    }
}

/// Doubles the input of tasks and adds one to their result.
struct Changes;

impl Middleware for Changes {
    fn attempt<'a>(&'a self, mut call: AttemptCall, next: NextAttempt<'a>) -> MiddlewareFuture<'a> {
        Box::pin(async move {
            if call.kind != AttemptKind::Task {
                return next.run(call).await;
            }
            call.input = Payload::json(&(2 * call.input.read::<u32>()?))?;
            Ok(Payload::json(&(1 + next.run(call).await?.read::<u32>()?))?)
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_middleware_changes_the_input_and_the_recorded_result_of_a_task() {
    let code = async |ctx: Ctx, (): ()| ctx.task::<u32>("double", &1).await;
    let onward = in_memory().workflow("w", code).task("double", double).middleware(Changes).start().await.unwrap();
    let run: RunHandle<u32> = onward.start("w", &()).await.unwrap();
    assert_eq!(run.result().await.unwrap(), 5);
    let outputs: Vec<_> = events(&run)
        .await
        .into_iter()
        .filter_map(|event| match event {
            Event::TaskCompleted(task) => Some(format!("{:?}", task.output)),
            _ => None,
        })
        .collect();
    assert_eq!(outputs, ["5"]); // MW3
    onward.shutdown().await;
}

/// Panics in the first attempt.
struct Panics;

impl Middleware for Panics {
    fn attempt<'a>(&'a self, call: AttemptCall, next: NextAttempt<'a>) -> MiddlewareFuture<'a> {
        assert!(call.attempt > 1, "the middleware broke");
        next.run(call)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_whose_middleware_panics_is_attempted_again() {
    let code = async |ctx: Ctx, (): ()| ctx.task::<u32>("double", &1).retry(3).await;
    let onward = in_memory().workflow("w", code).task("double", double).middleware(Panics).start().await.unwrap();
    let run: RunHandle<u32> = onward.start("w", &()).await.unwrap();
    assert_eq!(run.result().await.unwrap(), 2);
    onward.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_attempt_does_not_run_and_is_retried_when_its_turn_comes() {
    let ran = Arc::new(AtomicU32::new(0));
    let count = ran.clone();
    let task = move |n: u32| {
        count.fetch_add(1, Ordering::SeqCst);
        async move { Ok::<_, Failure>(n) }
    };
    let tenant = |call: &AttemptCall| (call.name == "call").then(|| format!("{:?}", call.input));
    let limit = RateLimit::new(1, Duration::from_millis(200)).key(tenant).wait_max(Duration::ZERO);
    let code = async |ctx: Ctx, (): ()| {
        let first: u32 = ctx.task("call", &7).await?;
        let other: u32 = ctx.task("call", &8).await?; // another key
        let refused = ctx.task::<u32>("call", &7).retry(1).await.unwrap_err();
        assert_eq!((refused.code.as_str(), refused.retryable), ("attempt_rate_limited", true));
        assert!(refused.retry_after_ms.is_some_and(|ms| ms <= 200), "{refused:?}");
        let again: u32 = ctx.task("call", &7).retry(5).await?;
        Ok(first + other + again)
    };
    let onward = in_memory().workflow("w", code).task("call", task).middleware(limit).start().await.unwrap();
    let run: RunHandle<u32> = onward.start("w", &()).await.unwrap();
    assert_eq!(run.result().await.unwrap(), 22);
    assert_eq!(ran.load(Ordering::SeqCst), 3, "the refused attempts did not run");
    onward.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_over_the_limit_waits_for_its_turn_within_its_timeout() {
    let code = async |ctx: Ctx, (): ()| {
        for n in 0..3u32 {
            ctx.step("call", async || Ok::<_, Failure>(n)).await?;
        }
        let late = ctx.step("call", async || Ok::<_, Failure>(3)).timeout(Duration::from_millis(1)).await;
        Ok(late.unwrap_err().code)
    };
    let limit = RateLimit::new(1, Duration::from_millis(100));
    let onward = in_memory().workflow("w", code).middleware(limit).start().await.unwrap();
    let began = std::time::Instant::now();
    let run: RunHandle<String> = onward.start("w", &()).await.unwrap();
    assert_eq!(run.result().await.unwrap(), "timed_out");
    assert!(began.elapsed() >= Duration::from_millis(200), "{:?}", began.elapsed());
    onward.shutdown().await;
}

#[derive(Deserialize, JsonSchema)]
struct City {
    city: String,
}

/// The whole agent: what leaves for the model, what comes back, and its tools.
#[tokio::test(flavor = "multi_thread")]
async fn model_calls_and_tools_pass_middlewares_and_redaction_applies_before_a_request_leaves() {
    let model = ScriptedModel::start().await.unwrap();
    let seen = Seen::default();
    let hide = |text: &str| text.contains("4111").then(|| text.replace("4111", "****"));
    let tool = Tool::new("weather", "Tells the weather", |City { city }: City| async move {
        Ok::<_, Failure>(format!("sunny in {city}, card 4111"))
    });
    let agent = Agent::new("a").model("m").system("Never say 4111.").tool(tool);
    let provider = Provider::openai(&format!("{}/v1", model.url()), None).unwrap();
    let builder = in_memory().model("m", &provider).register(agent);
    let onward = builder.middleware(Notes(seen.clone())).middleware(Redaction::new().text(hide)).start().await.unwrap();
    model.next(ScriptedReply::call("weather", r#"{"city":"Ulm"}"#));
    model.next(ScriptedReply::text("The card is 4111."));
    let run: RunHandle<AgentOutcome> = onward.start("a", "my card is 4111").id("r").await.unwrap();
    assert_eq!(run.result().await.unwrap().text, "The card is ****.");
    for request in model.requests() {
        let body = request.body.to_string();
        assert!(!body.contains("4111") && body.contains("my card is ****"), "{body}");
    }
    let kinds: Vec<String> = seen.lock().unwrap().iter().map(|note| note.split(':').next().unwrap().to_owned()).collect();
    assert_eq!(kinds, ["r model_call m 1", "r tool tool.a.weather 1", "r model_call m 1"]);
    let recorded = serde_json::to_string(&events(&run).await.split_off(1)).unwrap();
    assert!(!recorded.contains("sunny in Ulm, card 4111"), "{recorded}");
    onward.shutdown().await;
}

/// Refuses every second attempt of a model call, and mutes none.
struct Refuses(AtomicU32);

impl Middleware for Refuses {
    fn attempt<'a>(&'a self, call: AttemptCall, next: NextAttempt<'a>) -> MiddlewareFuture<'a> {
        if self.0.fetch_add(1, Ordering::SeqCst).is_multiple_of(2) {
            return Box::pin(std::future::ready(Err(Failure::retryable("not now"))));
        }
        next.run(call)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_call_that_a_middleware_refuses_is_attempted_again_and_costs_nothing() {
    let model = ScriptedModel::start().await.unwrap();
    let provider = Provider::openai(&format!("{}/v1", model.url()), None).unwrap();
    let builder = in_memory().model("m", &provider).register(Agent::new("a").model("m"));
    let onward = builder.middleware(Refuses(AtomicU32::new(0))).start().await.unwrap();
    model.next(ScriptedReply::text("yes"));
    let run: RunHandle<AgentOutcome> = onward.start("a", "well?").await.unwrap();
    assert_eq!(run.result().await.unwrap().text, "yes");
    assert_eq!(model.request_count(), 1);
    onward.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn steps_and_actions_of_a_flow_pass_middlewares() {
    let text = "flow: f\ninputs: { n: { type: integer } }\nsteps:\n  - { name: twice, task: double, with: \"{{ inputs.n }}\", store: twice }\n  \
                - { name: parse, action: json, with: { text: \"[1]\" }, store: parsed }\noutput: \"{{ state.twice }}\"\n";
    let seen = Seen::default();
    let builder = in_memory().flow_text(text).task("double", double).middleware(Notes(seen.clone()));
    let onward = builder.start().await.unwrap();
    let run: RunHandle<Value> = onward.start("f", &json!({"n": 3})).id("r").await.unwrap();
    assert_eq!(run.result().await.unwrap(), json!(6));
    let seen = seen.lock().unwrap().clone();
    assert_eq!(seen.len(), 2, "{seen:?}");
    assert!(seen[0].starts_with("r task double 1: 3 -> 6"), "{seen:?}");
    assert!(seen[1].starts_with("r step parse 1: ") && seen[1].ends_with("-> [1]"), "{seen:?}");
    onward.shutdown().await;
}

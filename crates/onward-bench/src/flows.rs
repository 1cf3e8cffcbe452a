//! Flows: a flow of ten tasks beside the same workflow in Rust, and the check of a long document.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use onward::flow::document::{Known, Severity, check, parse};
use onward::prelude::*;
use serde_json::{Value, json};

use crate::Plan;
use crate::machine::median;

/// The name of the flow.
const FLOW: &str = "ten-tasks-flow";
/// The name of the workflow in Rust.
const CODE: &str = "ten-tasks";

const CONCURRENCY: usize = 512;

/// How often the long document is checked.
const CHECKS: usize = 9;

async fn ten_tasks(ctx: Ctx, input: Value) -> onward::Result<Value> {
    let mut last = input;
    for step in 0..10u64 {
        last = ctx.task("echo", &json!({"step": step, "text": "x".repeat(180)})).await?;
    }
    Ok(last)
}

/// Returns a document with so many steps, one after the other, each with an input, a result and a condition.
fn document(name: &str, steps: usize, with: &str) -> String {
    let mut text = format!("flow: {name}\nsteps:\n");
    for step in 0..steps {
        let with = format!("{{ step: {step}, text: \"{with}\" }}");
        text += &format!("  - name: s{step}\n    task: echo\n    with: {with}\n    store: last\n");
    }
    text + "output: \"{{ state.last }}\"\n"
}

pub async fn measure(plan: &Plan) -> anyhow::Result<()> {
    let directory = plan.fresh()?;
    let echo = async |input: Value| Ok::<_, Failure>(input);
    let builder = Onward::embedded(directory.path()).workflow(CODE, ten_tasks).task("echo", echo).tasks_max(1_000);
    let onward = builder.flow_text(&document(FLOW, 10, &"x".repeat(180))).start().await?;
    let code = throughput(plan, &onward, CODE).await?;
    let flow = throughput(plan, &onward, FLOW).await?;
    onward.shutdown().await;
    plan.report("flows.code_steps_per_s.c512", code, "1/s");
    plan.report("flows.steps_per_s.c512", flow, "1/s");
    plan.report("flows.ratio_to_code", flow / code, "");
    plan.report("memo.hit_ms.p50", hits(plan).await?, "ms");
    validation(plan)
}

/// Keeps runs of this kind active for a while; returns steps per second.
async fn throughput(plan: &Plan, onward: &Onward, kind: &'static str) -> anyhow::Result<f64> {
    let span = Duration::from_secs(if plan.quick { 3 } else { 8 });
    let warm_up = Duration::from_millis(500);
    let begin = Instant::now();
    let workers: Vec<_> = (0..CONCURRENCY)
        .map(|_| {
            let onward = onward.clone();
            tokio::spawn(async move {
                let mut runs = 0u32;
                loop {
                    let is_measured = begin.elapsed() >= warm_up;
                    if begin.elapsed() >= warm_up + span {
                        return anyhow::Ok(runs);
                    }
                    onward.start::<Value, _>(kind, &json!({})).await?.result().await?;
                    runs += u32::from(is_measured);
                }
            })
        })
        .collect();
    let mut runs = 0;
    for worker in workers {
        runs += worker.await??;
    }
    Ok(f64::from(runs) * 10.0 / (begin.elapsed() - warm_up).as_secs_f64())
}

/// Runs one call with a memo many times, each in a run of its own; returns the median time from the request to the hit, by the
/// code's own clock, in milliseconds.
async fn hits(plan: &Plan) -> anyhow::Result<f64> {
    async fn remembered(ctx: Ctx, (): ()) -> onward::Result<f64> {
        let began = Instant::now();
        let value: Value = ctx.task("echo", &json!("x".repeat(180))).memo(hours(1)).await?;
        drop(value);
        Ok(began.elapsed().as_secs_f64() * 1_000.0)
    }
    let directory = plan.fresh()?;
    let echo = async |input: Value| Ok::<_, Failure>(input);
    let onward = Onward::embedded(directory.path()).workflow("remembered", remembered).task("echo", echo).start().await?;
    onward.start::<f64, _>("remembered", &()).await?.result().await?;
    let mut spans = Vec::new();
    for _ in 0..if plan.quick { 200 } else { 1_000 } {
        spans.push(onward.start::<f64, _>("remembered", &()).await?.result().await?);
    }
    onward.shutdown().await;
    Ok(median(spans))
}

/// Reads and checks a document of 1,000 steps.
fn validation(plan: &Plan) -> anyhow::Result<()> {
    let text = document("long", 1_000, "{{ state.last | default('none') }}");
    let mut spans = Vec::new();
    for _ in 0..CHECKS {
        let began = Instant::now();
        let parsed = parse(&text, "long.yaml");
        let problems = check(&parsed, &Known::default());
        spans.push(began.elapsed().as_secs_f64() * 1_000.0);
        let error = problems.iter().find(|problem| problem.severity == Severity::Error);
        ensure!(error.is_none(), "the document is valid: {error:?}");
        parsed.flow.context("the document is a flow")?;
    }
    plan.report("flows.validate_1000_steps_ms", median(spans), "ms");
    Ok(())
}

//! The reference load: every primitive once, with predictable results.
//!
//! Each part returns the run's number `n`, so the result of a run is `n` times the number of parts.

use std::time::Duration;

use onward::prelude::*;
use onward::try_join;
use serde::{Deserialize, Serialize};

use super::side::Side;

/// Duration of a step: long enough to be killed in the middle.
const WORK: Duration = Duration::from_millis(2);

/// Duration of the step after a mailbox poll, so that a signal may arrive during it.
const LOOK_WORK: Duration = Duration::from_millis(10);

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Load {
    pub n: u64,
    pub large: usize,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ForChild {
    parent: String,
    n: u64,
    round: u32,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ForTask {
    run: String,
    n: u64,
}

pub async fn load(ctx: Ctx, load: Load) -> Result<u64> {
    let n = load.n;
    let mut sum = work(&ctx, "first", n).await?;
    let (left, right, flaky) = try_join!(work(&ctx, "left", n), work(&ctx, "right", n), work_flaky(&ctx, n))?;
    sum += left + right + flaky;
    ctx.sleep(Duration::from_millis(5)).await?;
    let for_task = ForTask { run: ctx.run_id().to_string(), n };
    sum += ctx.task::<u64>("flaky", &for_task).retry(soon()).await?;
    sum += look_and_receive(&ctx, n).await?;
    sum += with_child(&ctx, n).await?;
    let decision = ctx.approval("ok", format!("May {} end?", ctx.run_id())).await?;
    sum += if decision.approved { n } else { 0 };
    ctx.state().set("sum", &sum)?;
    let large = large(&ctx, load.large).await?;
    sum += if large == load.large { n } else { 0 };
    sum += work(&ctx, "last", n).await?;
    Ok(sum)
}

/// Runs in two generations.
pub async fn child(ctx: Ctx, input: ForChild) -> Result<u64> {
    let done = work(&ctx, "child", input.n).await?;
    if input.round == 0 {
        let go: u64 = ctx.signal("go").recv().await?;
        ctx.send_signal(&input.parent, "from-child", &go)?;
        return ctx.continue_as_new(&ForChild { round: 1, ..input }).await;
    }
    Ok(done)
}

pub async fn flaky(ctx: TaskCtx, input: ForTask) -> Result<u64> {
    ctx.dep::<Side>().did(&input.run, 0, "task", ctx.attempt(), ctx.idempotency_key())?;
    tokio::time::sleep(WORK).await;
    if ctx.attempt() == 1 { Err(Failure::retryable("the first attempt always fails")) } else { Ok(input.n) }
}

/// Duration of an attempt of `once` after its effect.
pub struct Hold(pub Duration);

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Once {
    /// Uses `at_most_once`; otherwise `keyed`, which may execute again.
    is_at_most_once: bool,
}

/// Runs one task with an effect, and returns `completed` or the failure code.
pub async fn once(ctx: Ctx, input: Once) -> Result<String> {
    let task = ctx.task::<u64>("once", &ForTask { run: ctx.run_id().to_string(), n: 1 }).retry(soon());
    let task = if input.is_at_most_once { task.at_most_once() } else { task.keyed() };
    Ok(match task.await {
        Ok(_) => "completed".to_owned(),
        Err(failure) => failure.code,
    })
}

/// Executes the effect: appends a line to the side file.
pub async fn effect(ctx: TaskCtx, input: ForTask) -> Result<u64> {
    ctx.dep::<Side>().did(&input.run, 0, "once", ctx.attempt(), ctx.idempotency_key())?;
    tokio::time::sleep(ctx.dep::<Hold>().0).await;
    Ok(input.n)
}

async fn work(ctx: &Ctx, name: &str, n: u64) -> Result<u64> {
    work_for(ctx, name, n, WORK).await
}

async fn work_for(ctx: &Ctx, name: &str, n: u64, span: Duration) -> Result<u64> {
    let side = ctx.dep::<Side>();
    ctx.step_with(name, async |attempt: Attempt| {
        side.did_in(ctx, name, &attempt)?;
        tokio::time::sleep(span).await;
        Ok::<_, Failure>(n)
    })
    .await
}

async fn work_flaky(ctx: &Ctx, n: u64) -> Result<u64> {
    let side = ctx.dep::<Side>();
    let step = ctx.step_with("flaky", async |attempt: Attempt| {
        side.did_in(ctx, "flaky", &attempt)?;
        tokio::time::sleep(WORK).await;
        if attempt.number < 3 { Err(Failure::retryable("not yet")) } else { Ok(n) }
    });
    step.retry(soon()).await
}

/// Polls the mailbox and runs one of two steps, depending on the result: only one of them may ever run.
async fn look_and_receive(ctx: &Ctx, n: u64) -> Result<u64> {
    let seen = ctx.signal("outside").has();
    let looked = work_for(ctx, if seen { "saw" } else { "missed" }, n, LOOK_WORK).await?;
    let outside: u64 = ctx.signal("outside").recv().await?;
    ctx.send_signal(ctx.run_id().as_str(), "to-self", &n)?;
    let to_self: u64 = ctx.signal("to-self").recv().await?;
    Ok(looked + outside + to_self)
}

async fn with_child(ctx: &Ctx, n: u64) -> Result<u64> {
    let child = ctx.child::<u64>("child", &ForChild { parent: ctx.run_id().to_string(), n, round: 0 });
    child.signal("go", &n)?;
    let from_child: u64 = ctx.signal("from-child").recv().await?;
    Ok(from_child + child.await?)
}

/// Records a payload of `bytes` bytes.
async fn large(ctx: &Ctx, bytes: usize) -> Result<usize> {
    let side = ctx.dep::<Side>();
    let run = ctx.run_id();
    let text: String = ctx
        .step_with("large", async |attempt: Attempt| {
            side.did_in(ctx, "large", &attempt)?;
            // Different for each run: equal payloads are stored once.
            Ok::<_, Failure>(run.as_str().chars().cycle().take(bytes).collect::<String>())
        })
        .await?;
    Ok(text.len())
}

/// Receives `count` signals, with a timer after each that must fire once and not early.
pub async fn gather(ctx: Ctx, count: u64) -> Result<u64> {
    let mut sum = 0;
    for _ in 0..count {
        sum += ctx.signal("item").recv::<u64>().await?;
        ctx.sleep(Duration::from_millis(20)).await?;
    }
    Ok(sum + work(&ctx, "gathered", 1).await?)
}

fn soon() -> RetryPolicy {
    RetryPolicy::attempts(5).delay(Duration::from_millis(3))
}

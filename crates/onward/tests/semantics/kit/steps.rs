//! Which steps ran, and which the script answered.

use onward::prelude::*;
use onward::testing::Script;

async fn two(ctx: Ctx, _: ()) -> Result<u32> {
    let charged: u32 = ctx.step("charge", async || Ok::<_, Failure>(1)).retry(3).await?;
    let mailed: u32 = ctx.step("mail", async || Ok::<_, Failure>(10)).await?;
    Ok(charged + mailed)
}

#[test]
fn a_scripted_step_is_not_listed_as_run() {
    let outcome = Script::new(two, &()).step("charge", &5u32).run();
    assert_eq!(outcome.output::<u32>(), 15);
    assert_eq!(outcome.steps_run(), ["mail"]);
    assert_eq!(outcome.steps_scripted(), ["charge"]);
}

#[test]
fn every_attempt_of_a_scripted_step_is_listed() {
    let busy = || Failure::retryable("busy");
    let outcome = Script::new(two, &()).step_fails("charge", busy()).step_fails("charge", busy()).step("charge", &7u32).run();
    assert_eq!(outcome.output::<u32>(), 17);
    assert_eq!(outcome.steps_scripted(), ["charge", "charge", "charge"]);
    assert_eq!(outcome.elapsed(), secs(1 + 2), "the pauses between attempts, and nothing else");
}

#[test]
fn a_step_that_runs_takes_no_virtual_time() {
    async fn slow(ctx: Ctx, _: ()) -> Result<()> {
        let attempt = async |attempt: Attempt| {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            if attempt.number < 2 { Err(Failure::retryable("not yet")) } else { Ok(()) }
        };
        ctx.step_with("slow", attempt).retry(2).await
    }
    let outcome = Script::new(slow, &()).run();
    outcome.output::<()>();
    assert_eq!(outcome.elapsed(), secs(1));
    assert_eq!(outcome.steps_run(), ["slow", "slow"]);
}

//! A simulated crash loses the memory of the run, and no input of its environment.

use onward::prelude::*;
use onward::testing::Script;

fn busy() -> Failure {
    Failure::retryable("busy")
}

#[test]
fn a_crash_does_not_use_up_the_scripted_attempts_of_a_step() {
    async fn code(ctx: Ctx, _: ()) -> Result<(u32, u32)> {
        let tries: u32 = ctx.step("try", async || Ok::<_, Failure>(0)).retry(3).await?;
        let again: u32 = ctx.step("try", async || Ok::<_, Failure>(0)).retry(3).await?;
        Ok((tries, again))
    }
    let script = Script::new(code, &()).step_fails("try", busy()).step("try", &1u32).step_fails("try", busy()).step("try", &2u32);
    assert_eq!(script.run().output::<(u32, u32)>(), (1, 2));
    script.crash_everywhere();
    script.schedules(50);
}

#[test]
fn steps_of_one_name_that_run_together_keep_their_answers() {
    async fn code(ctx: Ctx, _: ()) -> Result<Vec<u32>> {
        let steps = (0..3).map(|_| ctx.step("fetch", async || Ok::<_, Failure>(0)));
        let mut fetched = join_all(steps).await?;
        ctx.sleep(secs(1)).await?;
        fetched.push(ctx.step("fetch", async || Ok::<_, Failure>(0)).await?);
        Ok(fetched)
    }
    let script = Script::new(code, &()).step("fetch", &1u32).step("fetch", &2u32).step("fetch", &3u32).step("fetch", &4u32);
    assert_eq!(script.run().output::<Vec<u32>>(), [1, 2, 3, 4]);
    script.crash_everywhere();
}

#[test]
fn a_step_that_lost_a_select_keeps_the_answer_it_was_given() {
    async fn code(ctx: Ctx, _: ()) -> Result<u32> {
        onward::select! {
            first = ctx.step("quick", async || Ok::<_, Failure>(0)) => drop::<u32>(first?),
            second = ctx.step("quick", async || Ok::<_, Failure>(0)) => drop::<u32>(second?),
        }
        ctx.step("quick", async || Ok::<_, Failure>(0)).await
    }
    let script = Script::new(code, &()).step("quick", &1u32).step("quick", &2u32).step("quick", &3u32);
    assert_eq!(script.run().output::<u32>(), 3);
    script.crash_everywhere();
}

#[test]
fn a_crash_loses_no_answer_of_a_task_child_approval_promise_update_or_signal() {
    async fn code(ctx: Ctx, _: ()) -> Result<String> {
        let mut rounds = Vec::new();
        ctx.update("note", |text: String| Ok(text.len()));
        for round in 0..2u32 {
            let task: u32 = ctx.task("work", &round).retry(3).await?;
            let child: u32 = ctx.child("child", &round).await?;
            let approval = ctx.approval("ship", "Ship?").await?;
            let promise: u32 = ctx.promise("paid").await?;
            let signal: u32 = ctx.signal("go").recv().await?;
            rounds.push(format!("{task} {child} {} {promise} {signal}", approval.approved));
        }
        Ok(rounds.join(", "))
    }
    let work = |round: u32, attempt| if attempt <= round { Err(busy()) } else { Ok(round * 10 + attempt) };
    let script = Script::new(code, &())
        .task_with("work", work)
        .child("child", |round: u32| Ok(round + 7))
        .approve("ship")
        .reject_after(hours(1), "ship", "no")
        .resolve("paid", &5u32)
        .update(secs(1), "note", "hello")
        .signal(secs(10), "go", &1u32)
        .signal(hours(3), "go", &2u32);
    assert_eq!(script.run().output::<String>(), "1 7 true 5 1, 12 8 false 5 2");
    script.crash_everywhere();
    script.schedules(50);
}

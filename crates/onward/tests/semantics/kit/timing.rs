//! Retries, timers and timeouts of one script share one clock.

use onward::prelude::*;
use onward::testing::Script;

/// The task fails at first; its second attempt comes after a minute, and the timer is due in half of that.
async fn retry_or_timer(ctx: Ctx, _: ()) -> Result<String> {
    let policy = RetryPolicy::attempts(3).delay(secs(60)).delay_max(secs(60));
    let mut task = ctx.task::<String>("slow", &()).retry(policy);
    let first = onward::select! {
        done = &mut task => done?,
        _ = ctx.sleep(secs(30)) => "timer".to_owned(),
    };
    Ok(format!("{first}, then {}", task.await?))
}

fn busy_twice() -> Script {
    let answer = |(), attempt| if attempt < 3 { Err(Failure::retryable("busy")) } else { Ok("task") };
    Script::new(retry_or_timer, &()).task_with("slow", answer)
}

#[test]
fn a_timer_that_is_due_before_the_next_attempt_of_a_task_wins() {
    let outcome = busy_twice().run();
    assert_eq!(outcome.output::<String>(), "timer, then task");
    assert_eq!(outcome.elapsed(), secs(120));
}

#[test]
fn a_signal_that_comes_before_the_next_attempt_of_a_task_comes_first() {
    async fn code(ctx: Ctx, _: ()) -> Result<Vec<u64>> {
        let mut task = ctx.task::<u64>("slow", &()).retry(2); // one second later
        let signal = ctx.signal("now").recv::<u64>();
        onward::select! {
            done = &mut task => Ok(vec![done?]),
            now = signal => Ok(vec![now?, task.await?]),
        }
    }
    let answer = |(), attempt| if attempt == 1 { Err(Failure::retryable("busy")) } else { Ok(2u64) };
    let script = Script::new(code, &()).task_with("slow", answer);
    let half = std::time::Duration::from_millis(500);
    assert_eq!(script.clone().signal(half, "now", &1u64).run().output::<Vec<u64>>(), [1, 2]);
    assert_eq!(script.signal(secs(2), "now", &1u64).run().output::<Vec<u64>>(), [2]);
}

#[test]
fn the_winner_is_the_same_after_every_crash_and_under_every_schedule() {
    busy_twice().crash_everywhere();
    busy_twice().schedules(50);
}

#[test]
fn an_unclaimed_task_times_out_in_the_queue() {
    async fn patient(ctx: Ctx, _: ()) -> Result<String> {
        let task = ctx.task::<()>("nobody's", &()).queued_timeout(hours(2)).await;
        Ok(task.unwrap_err().message)
    }
    let script = Script::new(patient, &());
    let outcome = script.run();
    assert_eq!(outcome.output::<String>(), "waiting for a worker timed out");
    assert_eq!(outcome.elapsed(), hours(2));
    script.crash_everywhere();
}

#[test]
fn a_claimed_task_does_not_time_out_in_the_queue() {
    async fn patient(ctx: Ctx, _: ()) -> Result<u32> {
        // The pause between the attempts is longer than the queue timeout of the first one.
        ctx.task("work", &()).queued_timeout(secs(1)).retry(RetryPolicy::attempts(2).delay(secs(50))).await
    }
    let answer = |(), attempt| if attempt == 1 { Err(Failure::retryable("busy")) } else { Ok(attempt) };
    let outcome = Script::new(patient, &()).task_with("work", answer).run();
    assert_eq!((outcome.output::<u32>(), outcome.elapsed()), (2, secs(50)));
}

#[test]
fn all_attempts_together_have_a_timeout() {
    async fn impatient(ctx: Ctx, _: ()) -> Result<String> {
        let policy = RetryPolicy::forever().delay(secs(10));
        let task = ctx.task::<()>("work", &()).total_timeout(secs(25)).retry(policy).await;
        Ok(task.unwrap_err().code)
    }
    let outcome = Script::new(impatient, &()).task("work", |()| Err::<(), _>(Failure::retryable("busy"))).run();
    assert_eq!((outcome.output::<String>(), outcome.elapsed()), ("timed_out".to_owned(), secs(25)));
}

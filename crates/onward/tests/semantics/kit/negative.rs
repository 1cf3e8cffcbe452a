//! The checks of the test kit fail for code that breaks the rule they check, and name the position.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};

use onward::prelude::*;
use onward::testing::Script;

/// Returns the message with which `check` panics.
#[track_caller]
fn message_of(check: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(check)).expect_err("the check passes code that breaks its rule");
    match panic.downcast::<String>() {
        Ok(message) => *message,
        Err(panic) => panic.downcast_ref::<&str>().expect("a panic has a message").to_string(),
    }
}

#[track_caller]
fn assert_names(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "`{part}` is not in: {message}");
    }
}

/// Something that test code must not depend on: a number that grows whenever it is read.
#[derive(Default)]
struct Outside(AtomicU32);

impl Outside {
    fn next(&self) -> u32 {
        self.0.fetch_add(1, Ordering::SeqCst)
    }

    fn reset(&self) -> Result<()> {
        self.0.store(0, Ordering::SeqCst);
        Ok(())
    }
}

#[test]
fn code_that_schedules_another_task_in_the_second_run_is_not_deterministic() {
    async fn kind(ctx: Ctx, _: ()) -> Result<u32> {
        let kind = format!("kind-{}", ctx.dep::<Outside>().next() % 2);
        ctx.task(&kind, &()).await
    }
    // Replaying the log after every commit finds this, too; here the comparison of two runs does.
    let script = Script::new(kind, &()).dep(Outside::default()).without_shadow_replay();
    let script = script.task("kind-0", |()| Ok(1)).task("kind-1", |()| Ok(1));
    let message = message_of(|| script.assert_deterministic());
    assert_names(&message, &["call 0 differs between two runs", "kind-0", "kind-1"]);
    let replayed = Script::new(kind, &()).dep(Outside::default()).task("kind-0", |()| Ok(1)).task("kind-1", |()| Ok(1));
    assert_names(&message_of(|| drop(replayed.run())), &["does not replay"]);
}

/// Every payload is compared as a whole, also if its description is truncated in the message.
#[test]
fn code_that_hands_over_another_value_in_the_second_run_is_not_deterministic() {
    async fn value(ctx: Ctx, what: String) -> Result<u32> {
        let value = format!("{}{}", "x".repeat(100), ctx.dep::<Outside>().next());
        match &*what {
            "state" => ctx.state().set("s", &value)?,
            "signal" => ctx.send_signal("other", "s", &value)?,
            "attribute" => ctx.attributes().set("s", value.as_str()),
            "child" => drop(ctx.child::<()>("c", &value)),
            "step" => ctx.step("s", async || Ok::<_, Failure>(())).input(&value).await?,
            _ => ctx.task("t", &value).await?,
        }
        Ok(1)
    }
    for what in ["state", "signal", "attribute", "child", "step", "task"] {
        let script = Script::new(value, what).dep(Outside::default()).without_shadow_replay().task("t", |_: String| Ok(()));
        assert_names(&message_of(|| script.assert_deterministic()), &["differs between two runs"]);
    }
}

#[test]
fn code_that_makes_more_calls_in_the_second_run_is_not_deterministic() {
    async fn more(ctx: Ctx, _: ()) -> Result<u32> {
        ctx.task::<()>("t", &()).await?;
        if ctx.dep::<Outside>().next() > 0 {
            ctx.task::<()>("t", &()).await?;
        }
        ctx.signal("never").recv().await
    }
    let script = Script::new(more, &()).dep(Outside::default()).without_shadow_replay().task("t", |()| Ok(()));
    message_of(|| script.assert_deterministic());
}

/// The effect happens, the process dies before it is recorded, and the effect happens again.
#[test]
fn a_crash_finds_a_step_whose_effect_counts_twice() {
    async fn pay(ctx: Ctx, _: ()) -> Result<u32> {
        let account = ctx.dep::<Outside>();
        ctx.step("reset", async || account.reset()).await?;
        ctx.step("pay", async || Ok::<_, Failure>(account.next())).await
    }
    let script = Script::new(pay, &()).dep(Outside::default());
    assert_eq!(script.run().output::<u32>(), 0, "without a crash it is right");
    script.assert_deterministic();
    assert_names(&message_of(|| script.crash_everywhere()), &["after a crash before commit 1", "the run ends differently"]);
}

#[test]
fn a_crash_finds_a_step_that_is_recorded_with_another_result() {
    async fn pay(ctx: Ctx, _: ()) -> Result<()> {
        let account = ctx.dep::<Outside>();
        ctx.step("reset", async || account.reset()).await?;
        ctx.step("pay", async || Ok::<_, Failure>(account.next())).await?;
        Ok(())
    }
    let message = message_of(|| Script::new(pay, &()).dep(Outside::default()).crash_everywhere());
    assert_names(&message, &["after a crash before commit 1", "other steps are recorded"]);
}

/// State in memory outside of the run is lost with the process, or counted twice.
#[test]
fn a_crash_finds_code_that_keeps_its_progress_outside_of_the_run() {
    async fn twice(ctx: Ctx, _: ()) -> Result<()> {
        let name = format!("step {}", ctx.dep::<Outside>().next());
        ctx.step(&name, async || Ok::<_, Failure>(())).await?;
        ctx.sleep(secs(1)).await
    }
    let script = Script::new(twice, &()).dep(Outside::default()).without_shadow_replay();
    script.run().output::<()>();
    assert_names(
        &message_of(|| script.crash_everywhere()),
        &["after a crash before commit 0 other steps are recorded", "step 3"],
    );
}

/// Both signals come in the same second: the schedule decides which one is first.
#[test]
fn schedules_find_a_race_whose_winner_depends_on_the_order() {
    async fn first(ctx: Ctx, _: ()) -> Result<String> {
        onward::select! {
            pay = ctx.task::<String>("pay", &()) => pay,
            cancel = ctx.task::<String>("cancel", &()) => cancel,
        }
    }
    let script = Script::new(first, &()).task("pay", |()| Ok("paid")).task("cancel", |()| Ok("canceled"));
    script.crash_everywhere();
    script.assert_deterministic();
    let message = message_of(|| script.schedules(50));
    assert_names(
        &message,
        &["schedule ", "the run returns \"canceled\"", "the run returns \"paid\"", "reproduce it with `.schedule("],
    );
    // Where both are right, the test says so.
    script.schedules_with(50, |outcome| assert!(["paid", "canceled"].contains(&&*outcome.output::<String>())));
    let message = message_of(|| script.schedules_with(50, |outcome| assert_eq!(outcome.output::<String>(), "paid")));
    assert_names(&message, &["schedule ", "canceled", "reproduce it with `.schedule("]);
}

#[test]
fn schedules_find_a_run_that_waits_or_fails_in_another_order() {
    async fn waits(ctx: Ctx, fails: bool) -> Result<()> {
        ctx.signal("go").recv::<()>().await?;
        match ctx.signal("stop").try_recv::<()>()? {
            Some(()) if fails => Err(Failure::fatal("stopped")),
            Some(()) => ctx.signal("never").recv().await,
            None => Ok(()),
        }
    }
    for (fails, end) in [(true, "the run fails: "), (false, "the run waits for ")] {
        let task = Script::new(waits, &fails).signal(secs(1), "go", &()).update(secs(1), "u", &()).signal(secs(1), "stop", &());
        assert_names(&message_of(|| task.schedules(100)), &["schedule ", end]);
    }
}

//! Code that no longer makes the calls of its log: a report that a person can act on, and nothing committed.

use onward::prelude::*;
use onward::testing::{Replay, World};
use onward_core::event::{Divergence, PauseReason};
use onward_core::reopen::child_id;
use onward_core::{CallId, Event, Log, RunId};

use crate::{complete_last, crash_and_pump};

async fn recorded(ctx: Ctx, _: ()) -> Result<u32> {
    ctx.step("reserve", async || Ok::<_, Failure>(1)).await?;
    ctx.task::<u32>("charge", &7).await?;
    ctx.step("mail", async || Ok::<_, Failure>(2)).await?;
    ctx.child::<()>("audit", &"x").await?;
    Ok(0)
}

/// Returns the log of a run that waits for its child.
fn recorded_log() -> Log {
    let mut world = World::new(recorded, &());
    world.run_until_idle().unwrap();
    complete_last(&mut world, "1");
    crash_and_pump(&mut world);
    world.log().clone()
}

#[track_caller]
fn diverges<F, Fut>(code: F) -> Divergence
where
    F: Fn(Ctx, ()) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<u32>> + Send + 'static,
{
    let pause = Replay::new("test", &recorded_log()).against(code).expect_err("the code and the log disagree");
    assert_eq!(pause.reason, PauseReason::Diverged);
    let report = pause.divergence.expect("a divergence comes with its report");
    assert!(report.hint.contains("ctx.version") && report.hint.contains("onward run resume test"), "{}", report.hint);
    assert!(pause.message.contains(&report.recorded) && pause.message.contains(&report.attempted), "{}", pause.message);
    report
}

#[track_caller]
fn index_of(name: &str) -> u64 {
    let log = recorded_log();
    log.events().find(|(_, event)| event.name() == name).map(|(index, _)| index.0).unwrap()
}

#[test]
fn unchanged_code_agrees_with_its_log() {
    Replay::new("test", &recorded_log()).against(recorded).unwrap();
}

/// Scenario 25.
#[test]
fn another_task_kind_is_reported_with_the_recorded_and_the_attempted_call() {
    let report = diverges(|ctx: Ctx, ()| async move {
        ctx.step("reserve", async || Ok::<_, Failure>(1)).await?;
        ctx.task("refund", &7).await
    });
    assert_eq!(report.index.0, index_of("task_scheduled"));
    assert_eq!(report.recorded, "task `charge` at 1 with input 7");
    assert_eq!(report.attempted, "task `refund` at 1 with input 7");
    assert_eq!(report.nearest.as_deref(), Some("step `reserve` at 0"));
}

/// Scenario 25: a change in values is a divergence, too.
#[test]
fn another_task_input_is_reported() {
    let report = diverges(|ctx: Ctx, ()| async move {
        ctx.step("reserve", async || Ok::<_, Failure>(1)).await?;
        ctx.task("charge", &8).await
    });
    assert_eq!((&*report.recorded, &*report.attempted), ("task `charge` at 1 with input 7", "task `charge` at 1 with input 8"));
}

/// Scenario 26.
#[test]
fn another_child_kind_or_id_is_reported() {
    async fn until_child(ctx: &Ctx) -> Result<()> {
        ctx.step("reserve", async || Ok::<_, Failure>(1)).await?;
        ctx.task::<u32>("charge", &7).await?;
        ctx.step("mail", async || Ok::<_, Failure>(2)).await?;
        Ok(())
    }
    let kind = diverges(|ctx: Ctx, ()| async move {
        until_child(&ctx).await?;
        ctx.child("review", &"x").await
    });
    assert_eq!(kind.index.0, index_of("child_started"));
    assert_eq!(kind.recorded, r#"child `audit` (test/3) at 3 with input "x""#);
    assert_eq!(kind.attempted, r#"child `review` (test/3) at 3 with input "x""#);
    let id = diverges(|ctx: Ctx, ()| async move {
        until_child(&ctx).await?;
        ctx.child("audit", &"x").id("my-audit").await
    });
    assert_eq!(id.attempted, r#"child `audit` (my-audit) at 3 with input "x""#);
}

/// A parent with an id too long to be extended derives the id of its child from a hash.
#[test]
fn a_child_of_a_run_with_a_long_id_has_a_derived_id() {
    async fn waits(ctx: Ctx, _: ()) -> Result<String> {
        ctx.child::<()>("audit", &()).await?;
        Ok(String::new())
    }
    let run = RunId::new("a".repeat(255)).unwrap();
    let mut world = World::new(waits, &());
    world.run_until_idle().unwrap();
    let with_child = |id: &RunId| {
        let mut records = world.log().records().to_vec();
        for event in records.iter_mut().flat_map(|record| &mut record.events) {
            if let Event::ChildStarted(event) = event {
                event.child = id.clone();
            }
        }
        Log::load(records).unwrap()
    };
    let derived = child_id(&run, 0, &CallId::root(0));
    assert!(derived.as_str().starts_with("aaa"), "{derived}");
    Replay::new(run.as_str(), &with_child(&derived)).against(waits).unwrap();
    let other = with_child(&RunId::new("another").unwrap());
    assert_eq!(Replay::new(run.as_str(), &other).against(waits).unwrap_err().reason, PauseReason::Diverged);
}

/// Scenario 27.
#[test]
fn another_step_name_is_reported() {
    let report = diverges(|ctx: Ctx, ()| async move {
        ctx.step("reserve", async || Ok::<_, Failure>(1)).await?;
        ctx.task::<u32>("charge", &7).await?;
        ctx.step("letter", async || Ok::<_, Failure>(2)).await
    });
    assert_eq!((&*report.recorded, &*report.attempted), ("step `mail` at 2", "step `letter` at 2"));
    assert_eq!(report.nearest.as_deref(), Some("task `charge` at 1 with input 7"));
}

/// Scenario 27: what a step's `.input(..)` names is compared, what its closure captures is not.
#[test]
fn another_step_input_is_reported() {
    async fn with_input(ctx: Ctx, cents: u32) -> Result<u32> {
        let charged = ctx.step("charge", async || Ok::<_, Failure>(cents)).input(&cents).await?;
        ctx.signal("end").recv::<()>().await?;
        Ok(charged)
    }
    let mut world = World::new(|ctx, ()| with_input(ctx, 5), &());
    world.run_until_idle().unwrap();
    Replay::new("test", world.log()).against(|ctx, ()| with_input(ctx, 5)).unwrap();
    let pause = Replay::new("test", world.log()).against(|ctx, ()| with_input(ctx, 6)).unwrap_err();
    let report = pause.divergence.unwrap();
    assert!(report.recorded.starts_with("step `charge` at 0 with input "), "{}", report.recorded);
    assert_ne!(report.recorded, report.attempted);
}

/// Scenario 28.
#[test]
fn a_step_appended_after_the_recorded_history_is_allowed() {
    async fn build(ctx: Ctx, with_more: bool) -> Result<u32> {
        ctx.step("first", async || Ok::<_, Failure>(1)).await?;
        ctx.signal("go").recv::<()>().await?;
        if with_more {
            ctx.step("second", async || Ok::<_, Failure>(2)).await?;
        }
        Ok(3)
    }
    let newer = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let in_run = newer.clone();
    let mut world = World::new(move |ctx, ()| build(ctx, in_run.load(std::sync::atomic::Ordering::SeqCst)), &());
    world.run_until_idle().unwrap();
    newer.store(true, std::sync::atomic::Ordering::SeqCst);
    world.signal("go", &());
    crash_and_pump(&mut world);
    assert_eq!(world.output(), "3");
    let steps = world.event_names().iter().filter(|name| **name == "step_completed").count();
    assert_eq!(steps, 2);
}

/// Scenario 28.
#[test]
fn a_recorded_step_that_was_removed_is_reported() {
    let in_the_middle = diverges(|ctx: Ctx, ()| async move { ctx.task("charge", &7).await });
    assert_eq!(in_the_middle.recorded, "step `reserve` at 0");
    let at_the_end = diverges(|ctx: Ctx, ()| async move {
        ctx.step("reserve", async || Ok::<_, Failure>(1)).await?;
        ctx.task::<u32>("charge", &7).await?;
        Ok(0)
    });
    assert_eq!(at_the_end.recorded, "step `mail` at 2");
    assert_eq!(at_the_end.attempted, "the end of the run with 0");
}

#[test]
fn code_that_makes_more_calls_than_recorded_is_reported_where_it_does() {
    let report = diverges(|ctx: Ctx, ()| async move {
        ctx.state().set("phase", "begun")?;
        recorded(ctx, ()).await
    });
    assert_eq!(report.attempted, r#"state `phase` = "begun" at 0"#);
}

/// Keys alone are not enough: code that sets another value has diverged.
#[test]
fn another_value_of_state_an_attribute_or_a_sent_signal_is_reported() {
    async fn with_value(ctx: Ctx, (what, value): (&str, u32)) -> Result<u32> {
        match what {
            "state" => ctx.state().set("phase", &value)?,
            "signal" => ctx.send_signal("other", "phase", &value)?,
            _ => ctx.attributes().set("phase", i64::from(value)),
        }
        ctx.signal("end").recv::<u32>().await
    }
    for what in ["state", "signal", "attribute"] {
        let mut world = World::new(move |ctx, ()| with_value(ctx, (what, 1)), &());
        world.run_until_idle().unwrap();
        Replay::new("test", world.log()).against(move |ctx, ()| with_value(ctx, (what, 1))).unwrap();
        let pause = Replay::new("test", world.log()).against(move |ctx, ()| with_value(ctx, (what, 2))).unwrap_err();
        assert_eq!(pause.reason, PauseReason::Diverged);
        let report = pause.divergence.unwrap();
        assert!(report.recorded.contains("phase") && report.recorded.contains('1'), "{what}: {}", report.recorded);
        assert!(report.attempted.contains("phase") && report.attempted.contains('2'), "{what}: {}", report.attempted);
    }
}

#[test]
fn a_divergence_commits_nothing() {
    let newer = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let in_run = newer.clone();
    let code = move |ctx: Ctx, ()| {
        let kind = if in_run.load(std::sync::atomic::Ordering::SeqCst) { "refund" } else { "charge" };
        async move { ctx.task::<u32>(kind, &7).await }
    };
    let mut world = World::new(code, &());
    world.run_until_idle().unwrap();
    let before = world.log().clone();
    newer.store(true, std::sync::atomic::Ordering::SeqCst);
    world.crash();
    world.run_until_idle().unwrap_err();
    assert_eq!(world.log(), &before);
}

#[test]
fn options_may_change_between_builds() {
    async fn with_options(ctx: Ctx, patient: bool) -> Result<u32> {
        let task = ctx.task::<u32>("charge", &7);
        let task = if patient { task.retry(9).timeout(mins(9)).queue("slow").priority(3) } else { task };
        task.await
    }
    let mut world = World::new(|ctx, ()| with_options(ctx, false), &());
    world.run_until_idle().unwrap();
    Replay::new("test", world.log()).against(|ctx, ()| with_options(ctx, true)).unwrap();
}

#[test]
fn the_order_of_a_maps_keys_is_no_divergence() {
    async fn with_text(ctx: Ctx, text: &'static str) -> Result<u32> {
        ctx.task("t", &serde_json::value::RawValue::from_string(text.to_owned())?).await
    }
    let mut world = World::new(|ctx, ()| with_text(ctx, r#"{"a":1,"b":2}"#), &());
    world.run_until_idle().unwrap();
    Replay::new("test", world.log()).against(|ctx, ()| with_text(ctx, r#"{ "b": 2, "a": 1 }"#)).unwrap();
    Replay::new("test", world.log()).against(|ctx, ()| with_text(ctx, r#"{"a":1,"b":3}"#)).unwrap_err();
}

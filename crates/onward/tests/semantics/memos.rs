//! Memos: a call that looks for a recorded result first, live and on every replay.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use onward::prelude::*;
use onward::select;
use onward::testing::World;
use onward_core::event::{CancelRequested, MemoAnswered, MemoHit, TaskFailed};
use onward_core::{CallId, Event, Payload, RunId, Status};

use crate::{complete_last, count, crash_and_pump};

/// Answers the memo at `call_id` with a recorded value, or lets the call compute.
fn answer(world: &mut World, call_id: &str, value: Option<&str>) {
    let hit = value.map(|value| MemoHit {
        output: Payload::from_json_text(value.to_owned()),
        from: RunId::new("other").unwrap(),
        from_call: CallId::root(3),
        computed_at: world.now(),
    });
    let grant = hit.is_none().then_some(9);
    let cell = RunId::new("memo:0").unwrap();
    world.input(MemoAnswered { call_id: CallId::parse(call_id).unwrap(), cell, hit, grant }).unwrap();
}

async fn resized(ctx: Ctx, _: ()) -> Result<u32> {
    ctx.task::<u32>("resize", &[3, 4]).memo(hours(1)).await
}

async fn measured(ctx: Ctx, ran: Arc<AtomicU32>) -> Result<u32> {
    let measure = async || Ok::<_, Failure>(ran.fetch_add(1, Ordering::SeqCst) + 40);
    ctx.step("measure", measure).input(&"x").memo(hours(1)).await
}

fn measuring() -> (World, Arc<AtomicU32>) {
    let ran = Arc::new(AtomicU32::new(0));
    let inner = ran.clone();
    let mut world = World::new(move |ctx: Ctx, (): ()| measured(ctx, inner.clone()), &());
    world.run_until_idle().unwrap();
    (world, ran)
}

#[test]
fn a_hit_answers_a_task_that_is_never_scheduled() {
    let mut world = World::new(resized, &());
    world.run_until_idle().unwrap();
    assert_eq!((count(&world, "memo_requested"), count(&world, "task_scheduled"), world.status()), (1, 0, Status::Waiting));
    answer(&mut world, "0", Some("12"));
    crash_and_pump(&mut world);
    assert_eq!((world.output().as_str(), count(&world, "task_scheduled"), count(&world, "memo_stored")), ("12", 0, 0));
}

#[test]
fn an_owner_schedules_its_task_and_records_the_result_for_the_memo() {
    let mut world = World::new(resized, &());
    world.run_until_idle().unwrap();
    answer(&mut world, "0", None);
    crash_and_pump(&mut world);
    assert_eq!((count(&world, "task_scheduled"), world.status()), (1, Status::Waiting));
    complete_last(&mut world, "12");
    crash_and_pump(&mut world);
    assert_eq!((world.output().as_str(), count(&world, "memo_stored")), ("12", 1));
}

#[test]
fn a_step_runs_only_as_the_owner_of_its_memo() {
    let (mut world, ran) = measuring();
    crash_and_pump(&mut world);
    assert_eq!((ran.load(Ordering::SeqCst), world.status()), (0, Status::Waiting));
    answer(&mut world, "0", Some("7"));
    crash_and_pump(&mut world);
    assert_eq!((world.output().as_str(), ran.load(Ordering::SeqCst)), ("7", 0));

    let (mut world, ran) = measuring();
    answer(&mut world, "0", None);
    crash_and_pump(&mut world);
    assert_eq!((world.output().as_str(), ran.load(Ordering::SeqCst), count(&world, "memo_stored")), ("40", 1, 1));
}

#[test]
fn a_canceled_call_gives_its_memo_up_and_computes_nothing() {
    let (mut world, ran) = measuring();
    world.input(CancelRequested::new("enough".to_owned())).unwrap();
    crash_and_pump(&mut world);
    assert_eq!((count(&world, "memo_released"), count(&world, "step_completed"), world.status()), (1, 0, Status::Canceled));
    assert_eq!(ran.load(Ordering::SeqCst), 0);

    let mut world = World::new(resized, &());
    world.run_until_idle().unwrap();
    answer(&mut world, "0", None);
    world.run_until_idle().unwrap();
    world.input(CancelRequested::new("enough".to_owned())).unwrap();
    crash_and_pump(&mut world);
    assert_eq!((count(&world, "memo_released"), count(&world, "task_canceled"), world.status()), (1, 1, Status::Canceled));
}

#[test]
fn a_dropped_call_gives_its_memo_up() {
    async fn impatient(ctx: Ctx, _: ()) -> Result<bool> {
        select! {
            _ = ctx.task::<u32>("resize", &1).memo(hours(1)) => Ok(true),
            _ = ctx.signal("stop").recv::<()>() => Ok(false),
        }
    }
    for granted in [false, true] {
        let mut world = World::new(impatient, &());
        world.run_until_idle().unwrap();
        if granted {
            let asked = |event: &Event| matches!(event, Event::MemoRequested(_)).then(|| event.call_id().unwrap().to_string());
            let call_id = world.log().events().find_map(|(_, event)| asked(event)).unwrap();
            answer(&mut world, &call_id, None);
            world.run_until_idle().unwrap();
        }
        world.signal("stop", &());
        crash_and_pump(&mut world);
        let (released, scheduled) = (count(&world, "memo_released"), count(&world, "task_scheduled"));
        assert_eq!((world.output().as_str(), released, scheduled), ("false", 1, usize::from(granted)));
    }
}

/// MM7: the failure is set aside, and the repeated task is not an owner any more.
#[test]
fn a_retried_run_repeats_the_failed_task_of_a_memo() {
    let mut world = World::new(resized, &());
    world.run_until_idle().unwrap();
    answer(&mut world, "0", None);
    world.run_until_idle().unwrap();
    let failure = Failure { retryable: false, ..Failure::new("broken", "no") };
    world.input(TaskFailed { call_id: CallId::root(0), failure, attempts: 1, ran: None }).unwrap();
    world.run_until_idle().unwrap();
    assert_eq!(world.status(), Status::Failed);
    world.retry().unwrap();
    crash_and_pump(&mut world);
    complete_last(&mut world, "12");
    crash_and_pump(&mut world);
    assert_eq!(world.output(), "12");
}

/// MM5
#[test]
fn a_task_that_runs_at_most_once_has_no_memo() {
    async fn first(ctx: Ctx, _: ()) -> Result<u32> {
        ctx.task::<u32>("pay", &1).at_most_once().memo(hours(1)).await
    }
    async fn last(ctx: Ctx, _: ()) -> Result<u32> {
        ctx.task::<u32>("pay", &1).memo(hours(1)).at_most_once().await
    }
    for mut world in [World::new(first, &()), World::new(last, &())] {
        let fault = world.run_until_idle().unwrap_err();
        assert!(format!("{fault:?}").contains("its result cannot be memoized"), "{fault:?}");
    }
}

#[test]
fn a_memo_of_a_step_needs_a_key_or_an_input() {
    async fn bare(ctx: Ctx, _: ()) -> Result<u32> {
        ctx.step("s", async || Ok::<_, Failure>(1)).memo(hours(1)).await
    }
    async fn keyed(ctx: Ctx, _: ()) -> Result<u32> {
        ctx.step("s", async || Ok::<_, Failure>(1)).memo(Memo::new(hours(1)).key("k")).await
    }
    assert!(format!("{:?}", World::new(bare, &()).run_until_idle().unwrap_err()).contains("`.input(..)`"));
    let mut world = World::new(keyed, &());
    world.run_until_idle().unwrap();
    let key = |event: &Event| if let Event::MemoRequested(asked) = event { Some(asked.key.clone()) } else { None };
    assert_eq!(world.log().events().find_map(|(_, event)| key(event)).as_deref(), Some("k"));
}

#[test]
fn equal_calls_have_equal_keys_and_other_inputs_have_others() {
    async fn three(ctx: Ctx, _: ()) -> Result<()> {
        let _a = ctx.task::<u32>("resize", &serde_json::json!({"w": 1, "h": 2})).memo(hours(1));
        let _b = ctx.task::<u32>("resize", &serde_json::json!({"h": 2, "w": 1.0})).memo(Memo::new(hours(2)).in_tree());
        let _c = ctx.task::<u32>("resize", &serde_json::json!({"w": 1})).memo(hours(1));
        let _d = ctx.task::<u32>("rotate", &serde_json::json!({"w": 1})).memo(hours(1));
        Ok(())
    }
    let mut world = World::new(three, &());
    world.run_until_idle().unwrap();
    let key = |event: &Event| if let Event::MemoRequested(asked) = event { Some(asked.key.clone()) } else { None };
    let keys: Vec<String> = world.log().events().filter_map(|(_, event)| key(event)).collect();
    assert_eq!(keys[0], keys[1], "the canonical form of the input counts");
    assert!(keys[1] != keys[2] && keys[2] != keys[3], "{keys:?}");
    assert!(keys[0].starts_with("resize#") && keys[3].starts_with("rotate#"), "{keys:?}");
}

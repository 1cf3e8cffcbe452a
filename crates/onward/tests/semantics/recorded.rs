//! Recorded values are what replay sees: state, time, randomness, steps and their attempts.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use onward::prelude::*;
use onward::testing::World;
use onward_core::Event;

use crate::{count, crash_and_pump, fire_next};

/// Scenario 29.
#[test]
fn a_state_that_is_read_before_it_is_written_shows_the_value_of_then_on_every_replay() {
    async fn counting(ctx: Ctx, turns: u32) -> Result<Vec<u32>> {
        let mut seen = Vec::new();
        for _ in 0..turns {
            let before: u32 = ctx.state().get("counter")?.unwrap_or_default();
            seen.push(before);
            ctx.state().set("counter", &(before + 1))?;
            ctx.signal("turn").recv::<()>().await?;
        }
        Ok(seen)
    }
    let mut world = World::new(counting, &4);
    for _ in 0..4 {
        crash_and_pump(&mut world);
        world.signal("turn", &());
    }
    crash_and_pump(&mut world);
    assert_eq!(world.output(), "[0,1,2,3]");
}

#[test]
fn a_state_that_was_cleared_is_gone_on_every_replay() {
    async fn flow(ctx: Ctx, _: ()) -> Result<(Vec<String>, Vec<String>)> {
        let keys = || ctx.state().keys().iter().map(ToString::to_string).collect::<Vec<_>>();
        ctx.state().set("a", &1)?;
        ctx.state().set("b", &2)?;
        ctx.signal("go").recv::<()>().await?;
        let before = keys();
        ctx.state().clear("a");
        ctx.state().clear("never set");
        ctx.signal("go").recv::<()>().await?;
        Ok((before, keys()))
    }
    let mut world = World::new(flow, &());
    for _ in 0..2 {
        crash_and_pump(&mut world);
        world.signal("go", &());
    }
    crash_and_pump(&mut world);
    assert_eq!(world.output(), r#"[["a","b"],["b"]]"#);
    assert_eq!(count(&world, "state_cleared"), 1);
}

/// Scenario 30.
#[test]
fn time_and_chance_are_the_same_on_every_replay() {
    type Drawn = (u64, String, u64);
    async fn drawing(ctx: Ctx, seen: Arc<Mutex<Vec<Drawn>>>) -> Result<()> {
        let mut drawn = Vec::new();
        for _ in 0..3 {
            drawn.push((ctx.now().0, ctx.uuid(), ctx.random()));
            *seen.lock().unwrap() = drawn.clone();
            ctx.sleep(secs(10)).await?;
        }
        Ok(())
    }
    let seen = Arc::new(Mutex::new(Vec::new()));
    let in_run = seen.clone();
    let mut world = World::new(move |ctx, _: ()| drawing(ctx, in_run.clone()), &());
    let mut longest: Vec<Drawn> = Vec::new();
    for _ in 0..3 {
        crash_and_pump(&mut world);
        let drawn = seen.lock().unwrap().clone();
        assert_eq!(drawn[..longest.len()], longest[..], "what was drawn before is drawn again");
        assert_eq!(drawn.len(), longest.len() + 1);
        longest = drawn;
        fire_next(&mut world);
    }
    let (times, chances): (Vec<u64>, Vec<(String, u64)>) =
        longest.into_iter().map(|(now, uuid, random)| (now, (uuid, random))).unzip();
    assert_eq!([times[1] - times[0], times[2] - times[1]], [10_000, 10_000], "time moves with the log");
    assert!(chances[0].0 != chances[1].0 && chances[0].1 != chances[1].1, "and every draw is another one");
    assert_eq!(chances[0].0.len(), 36);
}

/// A generator has the numbers of its call id, and records nothing: neither its own numbers nor those of other generators move when
/// the code draws more of one.
#[test]
fn a_generator_draws_the_same_numbers_on_every_replay() {
    async fn drawing(ctx: Ctx, first_draws: u32) -> Result<(Vec<u32>, f64, u64, u64)> {
        let mut first = ctx.random_generator();
        let drawn = (0..first_draws).map(|_| first.integer(1..=6)).collect();
        ctx.sleep(secs(1)).await?;
        let mut second = ctx.random_generator();
        Ok((drawn, second.float(), first.bits(), ctx.random()))
    }
    let drawn = |first_draws: u32| {
        let mut world = World::new(drawing, &first_draws);
        crash_and_pump(&mut world);
        fire_next(&mut world);
        crash_and_pump(&mut world);
        assert!(!world.event_names().iter().any(|name| name.contains("random")), "{:?}", world.event_names());
        serde_json::from_str::<(Vec<u32>, f64, u64, u64)>(&world.output()).unwrap()
    };
    let (three, again, four) = (drawn(3), drawn(3), drawn(4));
    assert_eq!(three, again);
    assert_eq!(four.0[..3], three.0);
    assert_eq!((four.1, four.3), (three.1, three.3), "what other calls draw does not depend on it");
    assert_ne!(four.2, three.2);
}

/// A workflow with a step that fails `failures` times; counts the runs of its closure.
async fn flaky(ctx: Ctx, ran: Arc<AtomicU32>, failures: u32, failure: Failure) -> Result<u32> {
    let outcome = ctx
        .step_with("flaky", async |attempt: Attempt| {
            ran.fetch_add(1, Ordering::SeqCst);
            if attempt.number <= failures { Err(failure.clone()) } else { Ok(attempt.number) }
        })
        .retry(3)
        .await;
    ctx.signal("end").recv::<()>().await?;
    outcome
}

fn flaky_world(failures: u32, failure: Failure) -> (World, Arc<AtomicU32>) {
    let ran = Arc::new(AtomicU32::new(0));
    let in_run = ran.clone();
    let world = World::new(move |ctx, _: ()| flaky(ctx, in_run.clone(), failures, failure.clone()), &());
    (world, ran)
}

/// Scenario 31.
#[test]
fn a_step_runs_once_however_often_its_run_is_replayed() {
    let (mut world, ran) = flaky_world(0, Failure::retryable("unused"));
    for _ in 0..10 {
        crash_and_pump(&mut world);
    }
    world.signal("end", &());
    crash_and_pump(&mut world);
    assert_eq!(world.output(), "1");
    assert_eq!(ran.load(Ordering::SeqCst), 1);
}

/// Scenario 31.
#[test]
fn a_steps_error_is_thrown_again_from_the_log_with_everything_it_carried() {
    let details = onward_core::Payload::json(&[1, 2]).unwrap();
    let refused = Failure::fatal("card refused").with_code("card_refused").with_details(details);
    let (mut world, ran) = flaky_world(9, refused.clone());
    for _ in 0..5 {
        crash_and_pump(&mut world);
    }
    world.signal("end", &());
    crash_and_pump(&mut world);
    assert_eq!(world.outcome(), Some(Err(refused)));
    assert_eq!(ran.load(Ordering::SeqCst), 1);
}

/// Scenario 32.
#[test]
fn a_step_that_fails_twice_is_tried_a_third_time_after_pauses_that_double() {
    let (mut world, ran) = flaky_world(2, Failure::retryable("busy"));
    crash_and_pump(&mut world);
    let mut pauses = Vec::new();
    while let Some((_, due)) = world.next_timer() {
        pauses.push(due.since(world.now()));
        crash_and_pump(&mut world);
        fire_next(&mut world);
        crash_and_pump(&mut world);
    }
    // The pause counts from the end of the attempt, which took a moment of real time.
    let rounded: Vec<u64> = pauses.iter().map(|pause| pause.as_secs()).collect();
    assert_eq!(rounded, [1, 2]);
    world.signal("end", &());
    crash_and_pump(&mut world);
    assert_eq!(world.output(), "3");
    assert_eq!(ran.load(Ordering::SeqCst), 3);
    let attempts: Vec<u32> = world
        .log()
        .events()
        .filter_map(|(_, event)| match event {
            Event::StepFailed(event) => Some(event.attempt),
            Event::StepCompleted(event) => Some(event.attempt),
            _ => None,
        })
        .collect();
    assert_eq!(attempts, [1, 2, 3], "every attempt is recorded");
}

/// Scenario 32.
#[test]
fn a_fatal_failure_is_not_tried_again() {
    let (mut world, ran) = flaky_world(9, Failure::fatal("never"));
    crash_and_pump(&mut world);
    assert_eq!(world.next_timer(), None);
    world.signal("end", &());
    crash_and_pump(&mut world);
    assert_eq!(world.output(), "failed: never");
    assert_eq!(ran.load(Ordering::SeqCst), 1);
}

#[test]
fn a_step_that_fails_every_time_fails_with_its_last_error_after_its_last_attempt() {
    let (mut world, ran) = flaky_world(9, Failure::retryable("busy"));
    crash_and_pump(&mut world);
    while world.next_timer().is_some() {
        fire_next(&mut world);
        crash_and_pump(&mut world);
    }
    world.signal("end", &());
    crash_and_pump(&mut world);
    assert_eq!(world.output(), "failed: busy");
    assert_eq!(ran.load(Ordering::SeqCst), 3);
}

#[test]
fn every_attempt_gets_the_same_key_and_other_steps_get_others() {
    async fn keys(ctx: Ctx, seen: Arc<Mutex<Vec<String>>>) -> Result<()> {
        for name in ["first", "second"] {
            ctx.step_with(name, async |attempt: Attempt| {
                seen.lock().unwrap().push(attempt.idempotency_key());
                if attempt.number == 1 { Err(Failure::retryable("once more")) } else { Ok(()) }
            })
            .retry(2)
            .await?;
        }
        Ok(())
    }
    let seen = Arc::new(Mutex::new(Vec::new()));
    let in_run = seen.clone();
    let mut world = World::new(move |ctx, _: ()| keys(ctx, in_run.clone()), &());
    crash_and_pump(&mut world);
    while world.next_timer().is_some() {
        fire_next(&mut world);
        crash_and_pump(&mut world);
    }
    assert_eq!(world.output(), "null");
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 4);
    assert!(seen[0] == seen[1] && seen[2] == seen[3] && seen[0] != seen[2], "{seen:?}");
}

/// The commit that records the failed attempt leaves the run pending, since it may have more to do; another one must record that
/// it waits. A run that stays pending is claimed again and again.
#[test]
fn a_run_whose_step_pauses_before_its_next_attempt_waits() {
    let (mut world, _) = flaky_world(1, Failure::retryable("busy"));
    crash_and_pump(&mut world);
    assert_eq!(world.status(), onward_core::Status::Waiting);
    fire_next(&mut world);
    crash_and_pump(&mut world);
    assert_eq!(world.status(), onward_core::Status::Waiting, "now for the signal");
}

#[test]
fn a_run_that_goes_on_waiting_after_a_steps_result_waits() {
    async fn step_and_sleep(ctx: Ctx, _: ()) -> Result<u32> {
        let (slept, step) = onward::join!(ctx.sleep(secs(1)), ctx.step("quick", async || Ok::<_, Failure>(1)));
        slept?;
        step
    }
    let mut world = World::new(step_and_sleep, &());
    crash_and_pump(&mut world);
    assert_eq!(world.status(), onward_core::Status::Waiting);
    fire_next(&mut world);
    crash_and_pump(&mut world);
    assert_eq!(world.output(), "1");
}

/// Steps that are not scripted run for real, whatever they await.
fn a_script_runs_what_steps_await() {
    async fn naps(ctx: Ctx, _: ()) -> Result<u32> {
        let nap = |number: u32| {
            ctx.step("nap", async move || {
                tokio::time::sleep(std::time::Duration::from_millis(2)).await;
                tokio::spawn(async move { number }).await
            })
        };
        let first = nap(1).await?;
        Ok(first + nap(2).await?)
    }
    let script = onward::testing::Script::new(naps, &());
    let outcome = script.run();
    assert_eq!(outcome.output::<u32>(), 3);
    assert_eq!(outcome.steps_run(), ["nap", "nap"]);
    script.crash_everywhere();
}

#[test]
fn a_script_runs_what_steps_await_in_a_plain_test() {
    a_script_runs_what_steps_await();
}

#[tokio::test]
async fn a_script_runs_what_steps_await_in_an_async_test() {
    a_script_runs_what_steps_await();
}

/// JSON turns it into null, which reads back as `None`.
#[test]
fn a_float_that_is_not_a_number_is_a_final_failure_wherever_it_would_be_recorded() {
    async fn step(ctx: Ctx, _: ()) -> Result<Option<f64>> {
        ctx.step("divide", async || Ok::<_, Failure>(Some(f64::NAN))).retry(3).await
    }
    async fn output(_: Ctx, _: ()) -> Result<Vec<f64>> {
        Ok(vec![1.0, f64::INFINITY])
    }
    let mut world = World::new(step, &());
    world.run_until_idle().unwrap();
    let failure = world.outcome().unwrap().unwrap_err();
    assert!(!failure.retryable && failure.message.contains("a float that is not a number cannot be recorded"), "{failure}");
    assert_eq!(crate::count(&world, "step_failed"), 1, "the same code would return the same again");

    let mut world = World::new(output, &());
    world.run_until_idle().unwrap();
    let failure = world.outcome().unwrap().unwrap_err();
    assert!(!failure.retryable && failure.message.contains("the output cannot be recorded: an infinite float"), "{failure}");
}

/// What follows from a result must be the same on replay, to the last bit.
#[test]
fn the_float_a_step_returns_is_the_float_that_every_replay_sees() {
    async fn floats(ctx: Ctx, seed: u64) -> Result<Vec<u64>> {
        let bits = |number: u64| (seed + number).wrapping_mul(0x9e37_79b9_7f4a_7c15) & !(1 << 62); // finite, of every size
        let floats =
            ctx.step("measure", async || Ok::<_, Failure>((0..2_000).map(bits).map(f64::from_bits).collect::<Vec<_>>())).await?;
        let seen: Vec<u64> = floats.iter().map(|float| float.to_bits()).collect();
        assert_eq!(seen, (0..2_000).map(bits).collect::<Vec<_>>());
        Ok(seen)
    }
    let seed = 7;
    println!("seed {seed}");
    let mut world = World::new(floats, &seed);
    crash_and_pump(&mut world);
    world.outcome().unwrap().unwrap();
}

/// JSON has one null: the inner option would be read as the outer option's `None`.
#[test]
fn an_option_in_an_option_is_a_final_failure_wherever_it_would_be_recorded() {
    async fn step(ctx: Ctx, _: ()) -> Result<bool> {
        let found: Option<Option<u32>> = ctx.step("find", async || Ok::<_, Failure>(Some(None))).retry(3).await?;
        Ok(found.is_some())
    }
    async fn output(_: Ctx, _: ()) -> Result<Vec<Option<()>>> {
        Ok(vec![None, Some(())])
    }
    for mut world in [World::new(step, &()), World::new(output, &())] {
        world.run_until_idle().unwrap();
        let failure = world.outcome().unwrap().unwrap_err();
        assert!(!failure.retryable && failure.message.contains("a null inside an option cannot be recorded"), "{failure}");
        assert!(crate::count(&world, "step_failed") <= 1, "the same code would return the same again");
    }

    async fn state(ctx: Ctx, _: ()) -> Result<()> {
        ctx.state().set("found", &Some(None::<u32>))
    }
    let fault = World::new(state, &()).run_until_idle().unwrap_err();
    assert!(format!("{fault:?}").contains("a null inside an option cannot be recorded"), "{fault:?}");
}

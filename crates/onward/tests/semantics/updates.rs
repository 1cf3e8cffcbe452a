//! Handlers of updates that await calls.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use onward::prelude::*;
use onward::testing::{Script, World};
use onward_core::engine::Fault;
use onward_core::event::{CancelRequested, UpdateReceived};
use onward_core::{Event, Name, Payload};

fn update(world: &mut World, id: &str, name: &str, input: &impl serde::Serialize) {
    let payload = Payload::json(input).unwrap();
    world.input(UpdateReceived { update_id: id.to_owned(), name: Name::new(name).unwrap(), payload }).unwrap();
    world.run_until_idle().unwrap();
}

/// Returns the answers so far, in the order of the log: an id with a value or a failure code.
fn answers(world: &World) -> Vec<String> {
    let logs = world.past_logs().iter().chain([world.log()]);
    let answered = logs.flat_map(|log| log.events()).filter_map(|(_, event)| match event {
        Event::UpdateAnswered(answer) => Some(match &answer.result {
            Ok(value) => format!("{} {value:?}", answer.update_id),
            Err(failure) => format!("{} {}", answer.update_id, failure.code),
        }),
        _ => None,
    });
    answered.collect()
}

/// Adds to a total after a step and a signal; ends at the signal `end`.
async fn adds(ctx: Ctx, (): ()) -> Result<u32> {
    let total = Arc::new(Mutex::new(0));
    let (inner, shared) = (ctx.clone(), total.clone());
    ctx.update_async("add", move |(n, wait): (u32, Option<String>)| {
        let (ctx, total) = (inner.clone(), shared.clone());
        async move {
            let n = ctx.step("weigh", async || Ok::<_, Failure>(n)).await?;
            if let Some(name) = wait {
                let _: u32 = ctx.signal(name.as_str()).recv().await?;
            }
            let mut total = total.lock().unwrap();
            *total += n;
            Ok(*total)
        }
    });
    let _: u32 = ctx.signal("end").recv().await?;
    ctx.updates_finished().await;
    let total = *total.lock().unwrap();
    Ok(total)
}

#[test]
fn handlers_in_flight_are_answered_in_the_order_of_what_they_wait_for_whatever_crashes() {
    let play = |crashes: bool| {
        let mut world = World::new(adds, &());
        let step = |world: &mut World| {
            if crashes {
                world.crash();
            }
        };
        update(&mut world, "a", "add", &(1, Some("a")));
        step(&mut world);
        update(&mut world, "b", "add", &(2, Some("b")));
        update(&mut world, "c", "add", &(4, None::<String>));
        step(&mut world);
        for (name, end) in [("b", false), ("end", false), ("a", true)] {
            world.signal(name, &0);
            step(&mut world);
            world.run_until_idle().unwrap();
            assert_eq!(world.outcome().is_some(), end, "the code waits for the handlers");
        }
        assert_eq!(answers(&world), ["c 4", "b 6", "a 7"]);
        assert_eq!(world.output(), "7");
        assert!(world.shadow_replays() > 5);
        world.event_names()
    };
    assert_eq!(play(false), play(true));
}

#[test]
fn handlers_survive_crashes_at_every_commit_and_every_order_of_events() {
    let script = Script::new(adds, &())
        .update(secs(1), "add", &(1, Some("a")))
        .update(secs(1), "add", &(2, Some("a")))
        .update(secs(2), "add", &(4, None::<String>))
        .signal(secs(3), "a", &0)
        .signal(secs(3), "a", &0)
        .signal(secs(4), "end", &0);
    let outcome = script.run();
    assert_eq!(outcome.output::<u32>(), 7);
    assert_eq!(outcome.steps_run(), ["weigh", "weigh", "weigh"]);
    script.crash_everywhere();
    script.assert_deterministic();
    script.schedules(50);
}

#[test]
fn calls_of_handlers_do_not_move_those_of_the_code() {
    let names = |with_update: bool| {
        let mut world = World::new(
            async |ctx: Ctx, (): ()| {
                let inner = ctx.clone();
                ctx.update_async("u", move |(): ()| {
                    let ctx = inner.clone();
                    async move { ctx.step("in the handler", async || Ok::<_, Failure>(())).await }
                });
                let _: u32 = ctx.signal("go").recv().await?;
                ctx.step("in the code", async || Ok::<_, Failure>(())).await
            },
            &(),
        );
        world.run_until_idle().unwrap();
        if with_update {
            update(&mut world, "1", "u", &());
            update(&mut world, "2", "u", &());
        }
        world.signal("go", &0);
        world.run_until_idle().unwrap();
        let steps = world.log().events().filter_map(|(_, event)| match event {
            Event::StepCompleted(step) => Some(format!("{} {}", step.call_id, step.name)),
            _ => None,
        });
        steps.collect::<Vec<_>>()
    };
    assert_eq!(names(false), ["2 in the code"]);
    assert_eq!(names(true), ["0.0.0 in the handler", "0.1.0 in the handler", "2 in the code"]);
}

#[test]
fn an_update_in_flight_when_the_run_ends_fails_once_and_its_handler_is_dropped() {
    let dropped = Arc::new(AtomicU32::new(0));
    struct Dropped(Arc<AtomicU32>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let count = dropped.clone();
    let code = move |ctx: Ctx, fails: bool| {
        let count = count.clone();
        async move {
            let inner = ctx.clone();
            ctx.update_async("wait", move |(): ()| {
                let (ctx, guard) = (inner.clone(), Dropped(count.clone()));
                async move {
                    let _guard = guard;
                    ctx.sleep(days(1)).await
                }
            });
            ctx.on_failure("undo", async || Ok::<_, Failure>(()));
            let _: u32 = ctx.signal("end").recv().await?;
            if fails { Err(Failure::fatal("no")) } else { Ok(1) }
        }
    };
    for fails in [false, true] {
        dropped.store(0, Ordering::SeqCst);
        let mut world = World::new(code.clone(), &fails).without_shadow_replay();
        world.run_until_idle().unwrap();
        update(&mut world, "a", "wait", &());
        update(&mut world, "b", "wait", &());
        assert_eq!(world.open_timers(), 2);
        world.signal("end", &0);
        world.run_until_idle().unwrap();
        assert_eq!(answers(&world), ["a update_abandoned", "b update_abandoned"]); // N10
        assert_eq!(dropped.load(Ordering::SeqCst), 2);
        assert_eq!(world.outcome().unwrap().is_err(), fails);
        let names = world.event_names();
        let answered = names.iter().position(|name| *name == "update_answered").unwrap();
        assert!(names.iter().rposition(|name| *name == "step_completed").is_none_or(|undo| answered <= undo), "{names:?}");
    }
    // The same, replayed strictly after every commit.
    let mut world = World::new(code, &true);
    world.run_until_idle().unwrap();
    update(&mut world, "a", "wait", &());
    world.crash();
    world.signal("end", &0);
    world.run_until_idle().unwrap();
    assert_eq!(answers(&world), ["a update_abandoned"]);
}

#[test]
fn an_update_in_flight_when_the_run_continues_as_new_fails_and_others_are_carried_over() {
    let code = async |ctx: Ctx, generation: u32| -> Result<u32> {
        let inner = ctx.clone();
        ctx.update_async("wait", move |(): ()| {
            let ctx = inner.clone();
            async move { ctx.signal("never").recv::<u32>().await }
        });
        if generation == 1 {
            ctx.update_async("later", |n: u32| async move { Ok(n + 1) });
        }
        let _: u32 = ctx.signal("next").recv().await?;
        if generation == 0 { ctx.continue_as_new(&1).await } else { Ok(generation) }
    };
    let mut world = World::new(code, &0);
    world.run_until_idle().unwrap();
    update(&mut world, "a", "wait", &());
    update(&mut world, "b", "later", &6);
    world.signal("next", &0);
    world.run_until_idle().unwrap();
    assert_eq!(world.generation(), 1);
    assert_eq!(answers(&world), ["a update_abandoned", "b 7"]);
    update(&mut world, "c", "wait", &());
    world.signal("next", &0);
    world.run_until_idle().unwrap();
    assert_eq!(answers(&world), ["a update_abandoned", "b 7", "c update_abandoned"]);
    assert_eq!(world.output(), "1");
}

#[test]
fn a_cancel_request_interrupts_the_waits_of_handlers() {
    let mut world = World::new(adds, &());
    world.run_until_idle().unwrap();
    update(&mut world, "a", "add", &(1, Some("a")));
    world.input(CancelRequested::new("enough".to_owned())).unwrap();
    world.run_until_idle().unwrap();
    assert_eq!(answers(&world).len(), 1, "{:?}", answers(&world));
    assert!(["a canceled", "a update_abandoned"].contains(&answers(&world)[0].as_str()), "{:?}", answers(&world));
    assert!(world.outcome().unwrap().unwrap_err().is_canceled());
}

#[test]
fn code_that_handles_a_cancel_request_keeps_its_handlers() {
    let code = async |ctx: Ctx, (): ()| -> Result<u32> {
        let inner = ctx.clone();
        ctx.update_async("wait", move |(): ()| {
            let ctx = inner.clone();
            async move { ctx.signal("go").recv::<u32>().await }
        });
        ctx.canceled().await;
        ctx.updates_finished().await;
        Ok(1)
    };
    let mut world = World::new(code, &());
    world.run_until_idle().unwrap();
    update(&mut world, "a", "wait", &());
    world.input(CancelRequested::new(String::new())).unwrap();
    world.run_until_idle().unwrap();
    assert!(world.outcome().is_none() && answers(&world).is_empty());
    world.signal("go", &7);
    world.run_until_idle().unwrap();
    assert_eq!((answers(&world), world.output().as_str()), (vec!["a 7".to_owned()], "1"));
}

#[test]
fn failures_panics_and_inputs_that_do_not_fit_are_answers() {
    let code = async |ctx: Ctx, (): ()| -> Result<u32> {
        let inner = ctx.clone();
        ctx.update_async("odd", move |n: u32| {
            assert!(n != 1, "at the call");
            let ctx = inner.clone();
            async move {
                ctx.sleep(secs(0)).await?;
                assert!(n != 2, "in the future");
                if n == 3 { Err(Failure::fatal("three").with_code("three")) } else { Ok(n) }
            }
        });
        let _: u32 = ctx.signal("end").recv().await?;
        Ok(0)
    };
    let mut world = World::new(code, &());
    world.run_until_idle().unwrap();
    for n in 1..=4 {
        update(&mut world, &n.to_string(), "odd", &n);
        while world.next_timer().is_some() {
            super::fire_next(&mut world);
            world.run_until_idle().unwrap();
        }
    }
    update(&mut world, "5", "odd", &"five");
    assert_eq!(answers(&world), ["1 panicked", "2 panicked", "3 three", "4 4", "5 failed"]);
    assert!(world.outcome().is_none());
}

#[test]
fn updates_that_came_before_their_handler_are_begun_when_it_is_registered() {
    let code = async |ctx: Ctx, (): ()| -> Result<u32> {
        let _: u32 = ctx.signal("open").recv().await?;
        let inner = ctx.clone();
        ctx.update_async("u", move |n: u32| {
            let ctx = inner.clone();
            async move { ctx.step("s", async || Ok::<_, Failure>(n)).await }
        });
        let _: u32 = ctx.signal("end").recv().await?;
        Ok(0)
    };
    let mut world = World::new(code, &());
    world.run_until_idle().unwrap();
    update(&mut world, "a", "u", &1);
    update(&mut world, "b", "u", &2);
    assert!(answers(&world).is_empty());
    world.signal("open", &0);
    world.run_until_idle().unwrap();
    assert_eq!(answers(&world), ["a 1", "b 2"]);
}

#[test]
fn a_handler_that_waits_for_all_handlers_pauses_the_run() {
    let code = async |ctx: Ctx, (): ()| -> Result<u32> {
        let inner = ctx.clone();
        ctx.update_async("u", move |(): ()| {
            let ctx = inner.clone();
            async move {
                ctx.updates_finished().await;
                Ok(())
            }
        });
        ctx.signal("end").recv().await
    };
    let mut world = World::new(code, &());
    world.run_until_idle().unwrap();
    world.input(UpdateReceived { update_id: "a".into(), name: Name::new("u").unwrap(), payload: Payload::null() }).unwrap();
    let fault = world.run_until_idle().unwrap_err();
    assert!(matches!(&fault, Fault::Misuse(message) if message.contains("waits for itself")), "{fault:?}");
}

#[test]
fn memory_does_not_grow_with_answered_updates() {
    let mut world = World::new(adds, &()).without_shadow_replay();
    world.run_until_idle().unwrap();
    update(&mut world, "first", "add", &(1, None::<String>));
    let entries = world.entries();
    for n in 0..200 {
        update(&mut world, &n.to_string(), "add", &(1, None::<String>));
    }
    assert_eq!(world.entries(), entries);
    assert_eq!(answers(&world).len(), 201);
}

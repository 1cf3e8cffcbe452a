//! Long runs: continue-as-new, and code that changes while runs are open.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use onward::prelude::*;
use onward::select;
use onward::testing::{Replay, World};
use onward_core::event::{CancelRequested, PauseReason, UpdateReceived};
use onward_core::{Event, Log, Name, Payload, Status};

use crate::{count, crash_and_pump, fire_next};

/// Takes one signal per generation; the rest is carried over.
async fn one_each(ctx: Ctx, seen: Vec<u32>) -> Result<Vec<u32>> {
    let mut seen = seen;
    seen.push(ctx.signal("s").recv().await?);
    if seen.len() == 4 { Ok(seen) } else { ctx.continue_as_new(&seen).await }
}

#[test]
fn a_run_that_continues_as_new_takes_its_unread_signals_along_in_order() {
    let mut world = World::new(one_each, &Vec::<u32>::new());
    for n in 0..4 {
        world.signal("s", &n);
    }
    crash_and_pump(&mut world);
    assert_eq!(world.output(), "[0,1,2,3]");
}

#[test]
fn a_signal_that_lands_while_the_run_continues_goes_along() {
    let mut world = World::new(one_each, &vec![0u32, 1]);
    world.signal("s", &2);
    let continuing = world.activate().unwrap().unwrap();
    world.signal("s", &3);
    assert!(!world.commit(continuing), "what came meanwhile is taken along");
    world.run_until_idle().unwrap();
    assert_eq!(world.output(), "[0,1,2,3]");
}

/// The wait that lost the select still exists when the run continues, with the signal set aside for it.
#[test]
fn a_signal_set_aside_for_a_wait_goes_along_when_the_run_continues() {
    async fn keep_waiting(ctx: Ctx, generation: u32) -> Result<Vec<u32>> {
        if generation > 0 {
            return ctx.signal("s").drain();
        }
        let mut recv = ctx.signal("s").recv::<u32>();
        select! {
            _ = &mut recv => return Err(Failure::fatal("the timer comes before the signal")),
            fired = ctx.sleep(secs(1)) => fired?,
        }
        let result = ctx.continue_as_new(&1).await;
        drop(recv);
        result
    }
    let mut world = World::new(keep_waiting, &0);
    world.run_until_idle().unwrap();
    fire_next(&mut world);
    world.signal("s", &7);
    crash_and_pump(&mut world);
    assert_eq!(world.output(), "[7]");

    // The same when the signal arrives while the continuing commit is on its way.
    let mut world = World::new(keep_waiting, &0);
    world.run_until_idle().unwrap();
    fire_next(&mut world);
    let continuing = world.activate().unwrap().unwrap();
    world.signal("s", &7);
    assert!(!world.commit(continuing));
    world.run_until_idle().unwrap();
    assert_eq!(world.output(), "[7]");
}

/// A cancellation that comes after the event that makes the code continue belongs to the next generation.
#[test]
fn a_cancel_that_the_code_had_no_chance_to_see_reaches_the_next_generation() {
    async fn twice(ctx: Ctx, generation: u32) -> Result<u32> {
        if generation < 2 {
            let got: u32 = ctx.signal("s").recv().await?;
            return ctx.continue_as_new(&(generation + got)).await;
        }
        ctx.on_failure("undo", || async { Ok::<_, Failure>(()) });
        ctx.sleep(days(1)).await?;
        Ok(generation)
    }
    let cancel = || CancelRequested::new("enough".to_owned());
    let mut world = World::new(twice, &1);
    world.run_until_idle().unwrap();
    world.signal("s", &1);
    world.input(cancel()).unwrap();
    crash_and_pump(&mut world);
    assert_eq!(world.output(), "failed: the run was canceled: enough");
    assert_eq!(world.status(), Status::Canceled);
    assert_eq!(count(&world, "step_completed"), 1, "it could clean up");

    // The same when the request arrives while the continuing commit is on its way.
    let mut world = World::new(twice, &1);
    world.run_until_idle().unwrap();
    world.signal("s", &1);
    let continuing = world.activate().unwrap().unwrap();
    world.input(cancel()).unwrap();
    assert!(!world.commit(continuing));
    world.run_until_idle().unwrap();
    assert_eq!(world.status(), Status::Canceled);

    // Through a generation that waits for nothing, the request is carried on.
    async fn hasty(ctx: Ctx, generation: u32) -> Result<u32> {
        match generation {
            0 => {
                ctx.signal("s").recv::<()>().await?;
                ctx.continue_as_new(&1).await
            }
            1 => ctx.continue_as_new(&2).await,
            _ => ctx.step("work", async || Ok::<_, Failure>(2)).await,
        }
    }
    let mut world = World::new(hasty, &0);
    world.run_until_idle().unwrap();
    world.signal("s", &());
    world.input(cancel()).unwrap();
    crash_and_pump(&mut world);
    assert_eq!(world.status(), Status::Canceled);
}

#[test]
fn a_cancel_that_the_code_has_seen_does_not_follow_it() {
    async fn stubborn(ctx: Ctx, generation: u32) -> Result<u32> {
        match ctx.signal("s").recv::<u32>().await {
            Err(failure) if failure.is_canceled() => ctx.continue_as_new(&(generation + 1)).await,
            other => other,
        }
    }
    let mut world = World::new(stubborn, &0);
    world.run_until_idle().unwrap();
    world.input(CancelRequested::new(String::new())).unwrap();
    crash_and_pump(&mut world);
    assert_eq!(world.status(), Status::Waiting);
    world.signal("s", &7);
    crash_and_pump(&mut world);
    assert_eq!(world.output(), "7");
}

/// Counts what is added to it, in as many generations as there are signals.
async fn counter(ctx: Ctx, start: u32) -> Result<u32> {
    let total = Arc::new(AtomicU32::new(start));
    let shared = total.clone();
    ctx.update("add", move |n: u32| Ok(shared.fetch_add(n, Ordering::SeqCst) + n));
    let is_last: bool = ctx.signal("next").recv().await?;
    let total = total.load(Ordering::SeqCst);
    if is_last { Ok(total) } else { ctx.continue_as_new(&total).await }
}

fn add(world: &mut World, id: &str, n: u32) {
    let (name, payload) = (Name::new("add").unwrap(), Payload::json(&n).unwrap());
    world.input(UpdateReceived { update_id: id.to_owned(), name, payload }).unwrap();
}

fn answered_in(world: &World, id: &str) -> Vec<usize> {
    let answers = |log: &Log| {
        let answered = |event: &Event| matches!(event, Event::UpdateAnswered(answer) if answer.update_id == id);
        log.events().filter(|(_, event)| answered(event)).count()
    };
    world.past_logs().iter().chain([world.log()]).map(answers).collect()
}

/// N8: the end of the code has not seen it, so the successor answers it, once.
#[test]
fn an_update_that_the_code_had_no_chance_to_answer_is_answered_by_the_next_generation() {
    for crash in [false, true] {
        let mut world = World::new(counter, &0);
        world.run_until_idle().unwrap();
        add(&mut world, "u1", 1);
        world.signal("next", &false);
        add(&mut world, "u2", 2);
        let continuing = world.activate().unwrap().unwrap();
        add(&mut world, "u3", 4);
        assert!(!world.commit(continuing), "what came meanwhile is taken along");
        if crash {
            world.crash();
        }
        world.run_until_idle().unwrap();
        assert_eq!(world.generation(), 1);
        world.signal("next", &true);
        crash_and_pump(&mut world);
        assert_eq!(world.output(), "7", "every change is there, whichever generation answered it");
        for (id, answered) in [("u1", [1, 0]), ("u2", [0, 1]), ("u3", [0, 1])] {
            assert_eq!(answered_in(&world, id), answered, "{id}");
        }
    }
}

#[test]
fn an_update_waits_for_its_handler_over_generations() {
    async fn late(ctx: Ctx, generation: u32) -> Result<u32> {
        if generation < 3 {
            ctx.sleep(secs(1)).await?;
            return ctx.continue_as_new(&(generation + 1)).await;
        }
        counter(ctx, 0).await
    }
    let mut world = World::new(late, &0);
    world.run_until_idle().unwrap();
    add(&mut world, "u1", 5);
    world.signal("next", &true);
    for _ in 0..3 {
        crash_and_pump(&mut world);
        fire_next(&mut world);
    }
    crash_and_pump(&mut world);
    assert_eq!((world.output(), answered_in(&world, "u1")), ("5".to_owned(), vec![0, 0, 0, 1]));
}

#[test]
fn time_and_chance_differ_between_generations() {
    async fn draw(ctx: Ctx, seen: Vec<u64>) -> Result<Vec<u64>> {
        let mut seen = seen;
        seen.push(ctx.random());
        if ctx.generation() == 2 { Ok(seen) } else { ctx.continue_as_new(&seen).await }
    }
    let mut world = World::new(draw, &Vec::<u64>::new());
    crash_and_pump(&mut world);
    let drawn: Vec<u64> = world.outcome().unwrap().unwrap().read().unwrap();
    assert!(drawn[0] != drawn[1] && drawn[1] != drawn[2] && drawn[0] != drawn[2], "{drawn:?}");
}

/// A workflow in three builds: without the change, with it, and without support for the old branch.
async fn evolving(ctx: Ctx, build: u32) -> Result<String> {
    ctx.step("before", async || Ok::<_, Failure>(())).await?;
    let way = match build {
        0 => 1,
        1 => ctx.version("new-mail", 1, 2),
        _ => ctx.version("new-mail", 2, 3),
    };
    ctx.step(if way == 1 { "old mail" } else { "new mail" }, async || Ok::<_, Failure>(())).await?;
    ctx.signal("end").recv::<()>().await?;
    Ok(format!("way {way}"))
}

fn evolving_world(first_build: u32) -> (World, Arc<AtomicU32>) {
    let build = Arc::new(AtomicU32::new(first_build));
    let in_run = build.clone();
    (World::new(move |ctx, _: ()| evolving(ctx, in_run.load(Ordering::SeqCst)), &()), build)
}

#[test]
fn a_run_that_was_past_the_change_before_it_existed_lives_with_the_oldest_version() {
    let (mut world, build) = evolving_world(0);
    world.run_until_idle().unwrap();
    build.store(1, Ordering::SeqCst);
    world.signal("end", &());
    crash_and_pump(&mut world);
    assert_eq!((world.output(), count(&world, "version_chosen")), ("\"way 1\"".to_owned(), 0));
}

#[test]
fn a_run_that_comes_to_the_change_takes_the_newest_version_and_keeps_it() {
    let (mut world, build) = evolving_world(1);
    world.run_until_idle().unwrap();
    build.store(2, Ordering::SeqCst);
    world.signal("end", &());
    crash_and_pump(&mut world);
    assert_eq!((world.output(), count(&world, "version_chosen")), ("\"way 2\"".to_owned(), 1), "not 3, which is newer still");
}

#[test]
fn a_version_that_the_code_has_forgotten_pauses_the_run_and_is_named() {
    let (mut world, _) = evolving_world(0);
    world.run_until_idle().unwrap();
    // The old run counts as version 2 for code whose oldest version is 2, and then makes another call than the recorded step.
    Replay::new("test", world.log()).against(|ctx, ()| evolving(ctx, 2)).unwrap_err();

    let (mut world, _) = evolving_world(1);
    world.run_until_idle().unwrap();
    let forgetful = |ctx: Ctx, ()| async move {
        ctx.step("before", async || Ok::<_, Failure>(())).await?;
        ctx.version("new-mail", 3, 4);
        ctx.signal("end").recv::<()>().await
    };
    let pause = Replay::new("test", world.log()).against(forgetful).unwrap_err();
    assert_eq!(pause.reason, PauseReason::VersionTooOld);
    let report = pause.divergence.unwrap();
    assert_eq!((&*report.recorded, &*report.attempted), ("version 2 of `new-mail`", "a version from 3 to 4"));
    assert!(report.hint.contains("restore the code for version 2 of `new-mail`"), "{}", report.hint);
}

/// After a rollback of the code.
#[test]
fn a_version_that_the_code_does_not_know_yet_pauses_the_run_and_names_the_code_as_older() {
    let (mut world, _) = evolving_world(1);
    world.run_until_idle().unwrap();
    let older = |ctx: Ctx, ()| async move {
        ctx.step("before", async || Ok::<_, Failure>(())).await?;
        ctx.version("new-mail", 1, 1);
        ctx.signal("end").recv::<()>().await
    };
    let pause = Replay::new("test", world.log()).against(older).unwrap_err();
    assert_eq!(pause.reason, PauseReason::Diverged);
    let report = pause.divergence.unwrap();
    assert_eq!((&*report.recorded, &*report.attempted), ("version 2 of `new-mail`", "a version from 1 to 1"));
    assert!(report.hint.contains("this code is older than the code that chose version 2"), "{}", report.hint);
}

#[test]
fn a_version_is_durable_before_a_step_follows_from_it() {
    let (mut world, _) = evolving_world(1);
    world.run_until_idle().unwrap();
    let names = world.event_names();
    let position = |name: &str| names.iter().position(|other| *other == name).unwrap();
    let second_step = names.iter().rposition(|name| *name == "step_completed").unwrap();
    assert!(position("version_chosen") < second_step);
    let log = world.log();
    let commits: Vec<_> = log.records().iter().filter(|record| record.commit.is_some()).collect();
    let chosen = commits.iter().position(|commit| commit.events.iter().any(|event| event.name() == "version_chosen")).unwrap();
    assert!(commits[chosen].events.iter().all(|event| !event.is_step_result()), "in a commit before the step's");
}

/// The code polled the mailbox without the signal that kept it from continuing at once.
#[test]
fn a_run_that_looked_before_it_continued_saw_the_same_on_every_replay() {
    /// Polls in one of three ways and continues with what it saw.
    async fn look_and_continue(ctx: Ctx, (way, seen): (u32, Option<usize>)) -> Result<(usize, Vec<u32>)> {
        if let Some(seen) = seen {
            return Ok((seen, ctx.signal("s").drain()?));
        }
        let seen = match way {
            0 => ctx.signal("s").count(),
            1 => select! {
                received = ctx.signal("s").recv::<usize>() => received?,
                none = async { 0 } => none,
            },
            _ => {
                ctx.state().set("looked", &ctx.signal("s").has())?;
                0
            }
        };
        ctx.continue_as_new(&(way, Some(seen))).await
    }
    for way in 0..3 {
        for crash in [false, true] {
            let mut world = World::new(look_and_continue, &(way, None::<usize>));
            let continuing = world.activate().unwrap().unwrap();
            world.signal("s", &7);
            assert!(!world.commit(continuing), "what came meanwhile is taken along");
            let looked = world.activate().unwrap().unwrap();
            assert_eq!(looked.horizon, onward_core::Index(0), "the look is recorded as of then");
            world.signal("s", &8);
            assert!(world.commit(looked));
            if crash {
                world.crash();
            }
            world.run_until_idle().unwrap();
            assert_eq!(world.output(), "[0,[7,8]]", "way {way}, crash {crash}");
            let old = &world.past_logs()[0];
            Replay::new("test", old).against(look_and_continue).unwrap();
        }
    }
}

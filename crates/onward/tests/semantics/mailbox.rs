//! Signals: first in first out, none lost; patterns, and polls that are answered from the log.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;

use onward::prelude::*;
use onward::testing::World;
use onward_core::event::UpdateReceived;
use onward_core::{Event, Name, Payload, Status};

use crate::{count, crash_and_pump};

/// Scenario 4.
#[test]
fn signals_that_come_faster_than_the_code_are_taken_in_their_order() {
    async fn three(ctx: Ctx, _: ()) -> Result<Vec<u32>> {
        let mut seen = Vec::new();
        for _ in 0..3 {
            seen.push(ctx.signal("s").recv().await?);
            ctx.sleep(secs(1)).await?;
        }
        Ok(seen)
    }
    let mut world = World::new(three, &());
    world.run_until_idle().unwrap();
    for n in 1..=3 {
        world.signal("s", &n);
    }
    for _ in 0..3 {
        crash_and_pump(&mut world);
        crate::fire_next(&mut world);
    }
    crash_and_pump(&mut world);
    assert_eq!(world.output(), "[1,2,3]");
}

/// Scenario 5.
#[test]
fn signals_that_came_before_the_code_first_ran_are_all_there() {
    async fn late(ctx: Ctx, _: ()) -> Result<(bool, usize, Vec<u32>, bool)> {
        let s = ctx.signal("s");
        Ok((s.has(), s.count(), s.drain()?, s.has()))
    }
    let mut world = World::new(late, &());
    for n in 0..3 {
        world.signal("s", &n);
    }
    crash_and_pump(&mut world);
    assert_eq!(world.output(), "[true,3,[0,1,2],false]");
}

#[test]
fn a_pattern_takes_every_fitting_name_in_the_order_of_arrival() {
    async fn listen(ctx: Ctx, _: ()) -> Result<Vec<String>> {
        let mut seen = Vec::new();
        for _ in 0..2 {
            let (name, value): (Name, u32) = ctx.signals("user.*").recv().await?;
            seen.push(format!("{name}={value}"));
        }
        seen.push(format!("{} left", ctx.signals("*").count()));
        Ok(seen)
    }
    let mut world = World::new(listen, &());
    world.run_until_idle().unwrap();
    world.signal("admin.stop", &0);
    world.signal("user.b", &1);
    world.signal("user.a", &2);
    crash_and_pump(&mut world);
    assert_eq!(world.output(), r#"["user.b=1","user.a=2","1 left"]"#);
}

#[test]
fn a_signal_of_the_wrong_type_is_an_error_of_the_code_that_reads_it_and_is_consumed() {
    async fn typed(ctx: Ctx, _: ()) -> Result<(bool, u32)> {
        const AMOUNT: Signal<u32> = Signal::new("amount");
        let wrong = ctx.signal(&AMOUNT).recv().await.is_err();
        Ok((wrong, ctx.signal(&AMOUNT).recv().await?))
    }
    let mut world = World::new(typed, &());
    world.signal("amount", "a lot");
    world.signal("amount", &3);
    crash_and_pump(&mut world);
    assert_eq!(world.output(), "[true,3]");
}

/// Signals before the unreadable one are not lost with its error, and neither are those after it.
#[test]
fn draining_stops_before_what_cannot_be_read_and_fails_with_it_the_next_time() {
    async fn drain(ctx: Ctx, _: ()) -> Result<(Vec<u32>, bool, Vec<u32>, usize)> {
        ctx.signal("go").recv::<()>().await?;
        let amounts = ctx.signal("amount");
        Ok((amounts.drain()?, amounts.drain::<u32>().is_err(), amounts.drain()?, amounts.count()))
    }
    async fn drain_by_pattern(ctx: Ctx, _: ()) -> Result<(Vec<u32>, bool, Vec<u32>, usize)> {
        ctx.signal("go").recv::<()>().await?;
        let amounts = ctx.signals("amou*");
        let numbers = |drained: Vec<(Name, u32)>| drained.into_iter().map(|(_, number)| number).collect();
        Ok((numbers(amounts.drain()?), amounts.drain::<u32>().is_err(), numbers(amounts.drain()?), amounts.count()))
    }
    for mut world in [World::new(drain, &()), World::new(drain_by_pattern, &())] {
        [1, 2].iter().for_each(|amount| world.signal("amount", amount));
        world.signal("amount", "a lot");
        [3, 4].iter().for_each(|amount| world.signal("amount", amount));
        world.signal("go", &());
        crash_and_pump(&mut world);
        assert_eq!(world.output(), "[[1,2],true,[3,4],0]");
        assert_eq!(count(&world, "signal_consumed"), 6);
    }
}

#[test]
fn a_signal_leaves_for_another_run_once() {
    async fn sender(ctx: Ctx, _: ()) -> Result<()> {
        ctx.send_signal("other", "hello", &1)?;
        ctx.signal("end").recv::<()>().await
    }
    let mut world = World::new(sender, &());
    for _ in 0..3 {
        crash_and_pump(&mut world);
    }
    assert_eq!(count(&world, "signal_sent"), 1);
}

fn update(world: &mut World, id: &str, add: u32) {
    let (name, payload) = (Name::new("add").unwrap(), Payload::json(&add).unwrap());
    world.input(UpdateReceived { update_id: id.to_owned(), name, payload }).unwrap();
}

fn answers(world: &World) -> Vec<String> {
    let answer = |event: &Event| match event {
        Event::UpdateAnswered(event) => Some(format!("{} {:?}", event.update_id, event.result.as_ref().map_err(|f| &f.message))),
        _ => None,
    };
    world.log().events().filter_map(|(_, event)| answer(event)).collect()
}

async fn adding(ctx: Ctx, _: ()) -> Result<u32> {
    ctx.signal("open").recv::<()>().await?;
    let total = Arc::new(Mutex::new(0));
    let shared = total.clone();
    ctx.update("add", move |n: u32| {
        if n == 0 {
            return Err(Failure::fatal("nothing to add"));
        }
        *shared.lock().unwrap() += n;
        Ok(*shared.lock().unwrap())
    });
    ctx.signal("close").recv::<()>().await?;
    let total = *total.lock().unwrap();
    Ok(total)
}

#[test]
fn an_update_is_answered_once_and_its_change_is_there_on_every_replay() {
    let mut world = World::new(adding, &());
    world.signal("open", &());
    crash_and_pump(&mut world);
    update(&mut world, "u1", 2);
    crash_and_pump(&mut world);
    update(&mut world, "u2", 3);
    update(&mut world, "u3", 0);
    crash_and_pump(&mut world);
    world.signal("close", &());
    crash_and_pump(&mut world);
    assert_eq!(world.output(), "5");
    assert_eq!(answers(&world), ["u1 Ok(2)", "u2 Ok(5)", r#"u3 Err("nothing to add")"#]);
}

#[test]
fn an_update_that_came_before_its_handler_waits_for_it() {
    let mut world = World::new(adding, &());
    world.run_until_idle().unwrap();
    update(&mut world, "early", 4);
    crash_and_pump(&mut world);
    assert_eq!(answers(&world), [""; 0]);
    assert_eq!(world.status(), Status::Waiting);
    world.signal("open", &());
    crash_and_pump(&mut world);
    assert_eq!(answers(&world), ["early Ok(4)"]);
    world.signal("close", &());
    crash_and_pump(&mut world);
    assert_eq!(world.output(), "4");
}

/// Once a rare hang: the code takes all its signals at its start and ends before an update that came with them is delivered.
#[test]
fn an_update_that_comes_with_the_signals_that_end_the_run_changes_nothing_and_does_not_keep_it_from_ending() {
    let mut world = World::new(adding, &());
    update(&mut world, "u1", 4);
    world.signal("open", &());
    world.signal("close", &());
    crash_and_pump(&mut world);
    assert_eq!(world.status(), Status::Completed);
    assert_eq!((world.output(), answers(&world)), ("0".to_owned(), vec![]));
    assert_eq!(world.event_names().last(), Some(&"run_completed"));
}

/// N8: the handler would change state that is no longer read.
#[test]
fn an_update_behind_the_signal_that_ends_the_run_is_not_answered_by_code_that_has_ended() {
    for meanwhile in [false, true] {
        let mut world = World::new(adding, &());
        world.signal("open", &());
        world.run_until_idle().unwrap();
        world.signal("close", &());
        if meanwhile {
            let ending = world.activate().unwrap().unwrap();
            update(&mut world, "u1", 4);
            assert!(!world.commit(ending), "the run does not end over an input that it has not seen");
        } else {
            update(&mut world, "u1", 4);
        }
        crash_and_pump(&mut world);
        assert_eq!((world.output(), answers(&world)), ("0".to_owned(), vec![]));
    }
}

/// A step that runs until it is released.
#[derive(Clone, Default)]
struct Gate {
    open: Arc<AtomicBool>,
    entered: Arc<AtomicU32>,
}

impl Gate {
    async fn pass(&self) -> Result<u32> {
        let entered = self.entered.fetch_add(1, Ordering::SeqCst) + 1;
        std::future::poll_fn(|_| if self.open.load(Ordering::SeqCst) { Poll::Ready(()) } else { Poll::Pending }).await;
        Ok(entered)
    }
}

/// Waits for a signal by polling for it, beside a step.
async fn look_beside_a_step(ctx: Ctx, gate: Gate, by_hand: bool) -> Result<(u32, u32)> {
    let looked_for = ctx.signal("s");
    let look = std::future::poll_fn(|_| if looked_for.has() { Poll::Ready(()) } else { Poll::Pending });
    let step = ctx.step("slow", async || gate.pass().await);
    let ((), stepped) = if by_hand { futures::future::join(look, step).await } else { onward::join!(look, step) };
    Ok((stepped?, ctx.signal("s").recv().await?))
}

/// Regression: each poll caused a commit, and each commit a poll; or the step never began.
#[test]
fn looking_for_a_signal_beside_a_step_commits_once_for_each_thing_that_may_have_changed_the_answer() {
    for by_hand in [true, false] {
        let gate = Gate::default();
        let in_run = gate.clone();
        let mut world = World::new(move |ctx, ()| look_beside_a_step(ctx, in_run.clone(), by_hand), &());
        let activate = |world: &mut World| {
            let commits = (0..100).take_while(|_| world.activate().unwrap().is_some_and(|draft| world.commit(draft))).count();
            for _ in 0..200_000 {
                assert!(world.activate().unwrap().is_none(), "the step's progress changes no answer");
            }
            commits
        };
        assert_eq!(activate(&mut world), 1, "the first look");
        assert_eq!(gate.entered.load(Ordering::SeqCst), 1, "the step runs");
        world.signal("other", &1);
        assert_eq!(activate(&mut world), 1, "something has come");
        world.signal("s", &7);
        assert_eq!(activate(&mut world), 1, "the signal has come");
        gate.open.store(true, Ordering::SeqCst);
        world.crash();
        world.run_until_idle().unwrap();
        assert_eq!(world.output(), "[2,7]", "the second attempt of the step, and the signal");
    }
}

/// A wait that is dropped at once is a poll: what follows from it must not start before it is durable (N2).
#[test]
fn a_wait_that_is_given_up_at_once_is_durable_before_a_step_follows_from_it() {
    async fn look_in_disguise(ctx: Ctx, way: u32) -> Result<bool> {
        let recv = ctx.signal("s").recv::<u32>();
        let found = match way {
            0 => onward::select! { found = recv => found.is_ok(), nothing = async { false } => nothing },
            1 => {
                type Arm = std::pin::Pin<Box<dyn Future<Output = Result<bool>> + Send>>;
                let recv: Arm = Box::pin(async { Ok(recv.await? > 0) });
                race([recv, Box::pin(async { Ok(false) })]).await?
            }
            _ => matches!(futures::future::select(recv, futures::future::ready(())).await, futures::future::Either::Left(_)),
        };
        ctx.step(if found { "found" } else { "nothing" }, async || Ok::<_, Failure>(found)).await
    }
    for way in 0..3 {
        let mut world = World::new(look_in_disguise, &way);
        let looked = world.activate().unwrap().unwrap();
        assert!(looked.events.iter().all(|event| !event.is_step_result()), "way {way}: {looked:?}");
        assert!(world.commit(looked));
        world.signal("s", &1);
        crash_and_pump(&mut world);
        assert_eq!(world.output(), "false", "way {way}");
    }
}

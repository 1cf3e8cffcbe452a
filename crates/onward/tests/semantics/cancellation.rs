//! Cancellation: it interrupts open waits once, never a running step, and leaves room to compensate.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use onward::prelude::*;
use onward::testing::World;
use onward::{join, select};
use onward_core::event::CancelRequested;
use onward_core::{Event, Status};

use crate::{count, crash_and_pump};

fn cancel(world: &mut World, reason: &str) {
    world.input(CancelRequested::new(reason.to_owned())).unwrap();
}

#[test]
fn a_request_interrupts_every_open_wait_at_once() {
    async fn four_waits(ctx: Ctx, _: ()) -> Result<Vec<String>> {
        let (signal, sleep, task, approval) = join!(
            ctx.signal("s").recv::<()>(),
            ctx.sleep(days(1)),
            ctx.task::<()>("work", &()),
            ctx.approval("ship", "Ship it?"),
        );
        let codes = [signal.err(), sleep.err(), task.err(), approval.err()];
        Ok(codes.into_iter().map(|failure| failure.map_or("ok".to_owned(), |failure| failure.code)).collect())
    }
    let mut world = World::new(four_waits, &());
    world.run_until_idle().unwrap();
    cancel(&mut world, "enough");
    crash_and_pump(&mut world);
    assert_eq!(world.output(), r#"["canceled","canceled","canceled","canceled"]"#);
    assert_eq!((count(&world, "wait_canceled"), count(&world, "task_canceled")), (3, 1), "and withdraws open calls");
}

/// RD1, RD3
#[test]
fn a_deadline_is_shared_by_generations_and_interrupts_every_wait() {
    async fn rounds(ctx: Ctx, round: u32) -> Result<u32> {
        ctx.sleep(mins(40)).await?;
        ctx.continue_as_new(&(round + 1)).await
    }
    let mut world = World::new(rounds, &0).deadline(hours(1));
    world.run_until_idle().unwrap();
    while let Some((call_id, due)) = world.next_timer() {
        world.advance_time(due.since(world.now()));
        world.fire_timer(&call_id);
        world.run_until_idle().unwrap();
    }
    assert_eq!((world.status(), count(&world, "cancel_requested"), count(&world, "timer_fired")), (Status::Canceled, 1, 0));
}

/// An interrupted compensation would be skipped: the run is ending already.
#[test]
fn a_request_that_comes_while_the_run_undoes_its_work_leaves_nothing_undone() {
    static TRIES: AtomicU32 = AtomicU32::new(0);
    async fn fails(ctx: Ctx, _: ()) -> Result<()> {
        ctx.on_failure("undo-a", async || Ok::<_, Failure>(()));
        ctx.on_failure("undo-b", async || {
            if TRIES.fetch_add(1, Ordering::SeqCst) == 0 { Err(Failure::retryable("busy")) } else { Ok(()) }
        });
        Err(Failure::fatal("no"))
    }
    let mut world = World::new(fails, &());
    world.run_until_idle().unwrap();
    assert_eq!(count(&world, "step_failed"), 1, "the first undo waits for its next try");
    cancel(&mut world, "enough");
    world.run_until_idle().unwrap();
    let (call_id, due) = world.next_timer().expect("it still waits");
    world.advance_time(due.since(world.now()));
    world.fire_timer(&call_id);
    crash_and_pump(&mut world);
    assert_eq!((count(&world, "step_completed"), world.status()), (2, Status::Failed));
}

#[test]
fn a_canceled_run_undoes_what_it_did_in_reverse_order() {
    async fn trip(ctx: Ctx, undone: Arc<Mutex<Vec<&'static str>>>) -> Result<()> {
        for what in ["flight", "hotel", "car"] {
            ctx.step(what, async || Ok::<_, Failure>(())).await?;
            let undone = undone.clone();
            ctx.on_failure(&format!("undo {what}"), move || async move {
                undone.lock().unwrap().push(what);
                Ok::<_, Failure>(())
            });
        }
        ctx.signal("paid").recv::<()>().await
    }
    let undone = Arc::new(Mutex::new(Vec::new()));
    let in_run = undone.clone();
    let mut world = World::new(move |ctx, _: ()| trip(ctx, in_run.clone()), &());
    world.run_until_idle().unwrap();
    cancel(&mut world, "no holiday");
    crash_and_pump(&mut world);
    assert_eq!(*undone.lock().unwrap(), ["car", "hotel", "flight"]);
    assert_eq!(world.status(), Status::Canceled);
    assert_eq!(world.output(), "failed: the run was canceled: no holiday");
}

#[test]
fn a_run_that_succeeds_undoes_nothing() {
    async fn fine(ctx: Ctx, _: ()) -> Result<u32> {
        ctx.on_failure("undo", || async { Ok::<_, Failure>(()) });
        ctx.signal("go").recv().await
    }
    let mut world = World::new(fine, &());
    world.signal("go", &5);
    crash_and_pump(&mut world);
    assert_eq!((world.output(), count(&world, "step_completed")), ("5".to_owned(), 0));
}

#[test]
fn what_could_not_be_undone_is_named_in_the_failure() {
    async fn stuck(ctx: Ctx, _: ()) -> Result<()> {
        ctx.on_failure("undo a", || async { Ok::<_, Failure>(()) });
        ctx.on_failure("undo b", || async { Err(Failure::fatal("gone")) });
        Err(Failure::fatal("broken"))
    }
    let mut world = World::new(stuck, &());
    crash_and_pump(&mut world);
    assert_eq!(world.status(), Status::Failed);
    assert_eq!(world.output(), "failed: broken: `undo b` could not be undone: gone");
    assert_eq!(count(&world, "step_completed"), 1, "the others are undone all the same");
}

#[test]
fn a_running_step_is_not_interrupted_and_its_result_is_recorded() {
    async fn long_step(ctx: Ctx, client: Client) -> Result<u32> {
        let result = ctx
            .step("long", async || {
                let client = client.lock().unwrap().take().expect("the step runs once");
                Ok::<_, Failure>(client.await?)
            })
            .await?;
        ctx.sleep(secs(1)).await?;
        Ok(result)
    }
    let (open, client) = tokio::sync::oneshot::channel();
    let client: Client = Arc::new(Mutex::new(Some(client)));
    let mut world = World::new(move |ctx, _: ()| long_step(ctx, client.clone()), &());
    assert!(world.activate().unwrap().is_none(), "the step runs");
    cancel(&mut world, "hurry");
    world.run_until_idle().unwrap();
    assert_eq!(world.output(), "open", "whether the step happened is unknown");
    open.send(9).unwrap();
    world.run_until_idle().unwrap();
    assert_eq!(count(&world, "step_completed"), 1);
    assert_eq!(world.status(), Status::Canceled, "the request meets the wait after it");
}

#[test]
fn a_request_that_finds_nothing_open_meets_the_next_wait_and_only_that() {
    async fn insistent(ctx: Ctx, _: ()) -> Result<Vec<String>> {
        let mut seen = Vec::new();
        for _ in 0..2 {
            let slept = ctx.sleep(secs(1)).await;
            seen.push(slept.map_or_else(|failure| failure.code, |()| "slept".to_owned()));
        }
        Ok(seen)
    }
    let mut world = World::new(insistent, &());
    cancel(&mut world, "before it began");
    crash_and_pump(&mut world);
    let (timer, _) = world.next_timer().expect("the second sleep is not interrupted");
    world.fire_timer(&timer);
    crash_and_pump(&mut world);
    assert_eq!(world.output(), r#"["canceled","slept"]"#);
}

#[test]
fn a_second_request_interrupts_nothing() {
    async fn cleaning_up(ctx: Ctx, _: ()) -> Result<String> {
        let failure = ctx.sleep(days(1)).await.expect_err("the first request comes first");
        ctx.sleep(secs(1)).await?;
        Ok(failure.message)
    }
    let mut world = World::new(cleaning_up, &());
    world.run_until_idle().unwrap();
    cancel(&mut world, "first");
    world.run_until_idle().unwrap();
    cancel(&mut world, "second");
    crash_and_pump(&mut world);
    let (timer, _) = world.next_timer().unwrap();
    world.fire_timer(&timer);
    crash_and_pump(&mut world);
    assert_eq!(world.output(), "\"the run was canceled: first\"");
}

#[test]
fn code_that_watches_for_the_request_handles_it_by_itself() {
    async fn watching(ctx: Ctx, _: ()) -> Result<String> {
        let mut work = ctx.task::<String>("work", &());
        let reason = select! {
            _ = &mut work => None,
            failure = ctx.canceled() => Some(failure.message),
        };
        let work = work.await?; // not interrupted: it may end in peace
        Ok(format!("{work}, {}, {}", reason.unwrap_or_default(), ctx.is_canceled()))
    }
    let mut world = World::new(watching, &());
    world.run_until_idle().unwrap();
    cancel(&mut world, "please");
    crash_and_pump(&mut world);
    crate::complete_last(&mut world, "\"done\"");
    crash_and_pump(&mut world);
    assert_eq!(world.output(), "\"done, the run was canceled: please, true\"");
    assert_eq!(world.status(), Status::Completed);
}

type Client = Arc<Mutex<Option<tokio::sync::oneshot::Receiver<u32>>>>;

/// Runs a workflow whose first step is running when the cancellation comes; continues with `code` when the step is over.
fn canceled_in_a_step<F>(code: impl Fn(Ctx) -> F + Send + Sync + 'static, before_its_end: impl FnOnce(&mut World)) -> World
where
    F: Future<Output = Result<String>> + Send + 'static,
{
    let (open, client) = tokio::sync::oneshot::channel();
    let client: Client = Arc::new(Mutex::new(Some(client)));
    let code = Arc::new(code);
    let long_step = move |ctx: Ctx, (): ()| {
        let (client, code) = (client.clone(), code.clone());
        async move {
            ctx.step("long", async || {
                let client = client.lock().unwrap().take().expect("the step runs once");
                client.await
            })
            .await?;
            code(ctx).await
        }
    };
    let mut world = World::new(long_step, &());
    assert!(world.activate().unwrap().is_none(), "the step runs");
    cancel(&mut world, "stop");
    before_its_end(&mut world);
    world.run_until_idle().unwrap();
    open.send(1).unwrap();
    world.run_until_idle().unwrap();
    world
}

/// Once the code has seen the request it can clean up.
#[test]
fn nothing_is_interrupted_any_more_when_the_code_has_seen_the_request_by_watching() {
    async fn clean_up(ctx: Ctx) -> Result<String> {
        let failure = ctx.canceled().await;
        for step in ["close-valve", "second"] {
            ctx.step(step, async || Ok::<_, Failure>(())).await?;
        }
        ctx.sleep(secs(1)).await?;
        Ok(failure.message)
    }
    let mut world = canceled_in_a_step(clean_up, |_| {});
    assert_eq!(count(&world, "step_completed"), 3);
    crate::fire_next(&mut world);
    crash_and_pump(&mut world);
    assert_eq!(world.output(), "\"the run was canceled: stop\"");
}

/// Whatever is awaited beside the watcher, in either order, and whatever has arrived for it.
#[test]
fn an_undelivered_cancel_request_goes_to_the_watcher_and_not_to_another_wait() {
    async fn watch(ctx: Ctx, way: u32) -> Result<String> {
        let cleaned_up = async |failure: Failure| {
            ctx.step("close-valve", async || Ok::<_, Failure>(())).await?;
            Err(failure)
        };
        match way {
            0 => select! {
                reading = ctx.signal("reading").recv::<u64>() => Ok(format!("read {}", reading?)),
                failure = ctx.canceled() => cleaned_up(failure).await,
            },
            1 => select! {
                failure = ctx.canceled() => cleaned_up(failure).await,
                reading = ctx.signal("reading").recv::<u64>() => Ok(format!("read {}", reading?)),
            },
            _ => select! {
                slept = ctx.sleep(secs(1)) => slept.map(|()| "slept".to_owned()),
                done = ctx.task::<String>("work", &()) => done,
                stepped = ctx.step("beside", async || Ok::<_, Failure>("stepped".to_owned())) => stepped,
                failure = ctx.canceled() => cleaned_up(failure).await,
            },
        }
    }
    for way in 0..3 {
        for has_signal in [false, true] {
            let signal = |world: &mut World| {
                if has_signal {
                    world.signal("reading", &7);
                }
            };
            let world = canceled_in_a_step(move |ctx| watch(ctx, way), signal);
            assert_eq!(world.status(), Status::Canceled, "way {way}, signal {has_signal}");
            assert_eq!(count(&world, "step_completed"), 2, "it could clean up: way {way}, signal {has_signal}");
        }
    }
}

/// The signal precedes the request in the log; the request then interrupts the next wait.
#[test]
fn a_request_that_a_watcher_did_not_get_to_see_meets_the_next_wait() {
    async fn read_first(ctx: Ctx, _: ()) -> Result<String> {
        ctx.signal("go").recv::<()>().await?;
        let read = select! {
            reading = ctx.signal("reading").recv::<u64>() => reading?,
            _ = ctx.canceled() => return Err(Failure::fatal("the signal stands before the request")),
        };
        let slept = ctx.sleep(secs(1)).await;
        Ok(format!("{read} {}", slept.unwrap_err().code))
    }
    let mut world = World::new(read_first, &());
    world.signal("reading", &7);
    world.signal("go", &());
    cancel(&mut world, "stop");
    crash_and_pump(&mut world);
    assert_eq!(world.output(), "\"7 canceled\"");
}

/// N9: nothing has begun, so nothing has to be undone.
#[test]
fn a_run_that_is_canceled_before_it_has_begun_runs_no_step() {
    for crash in [false, true] {
        let ran = Arc::new(AtomicU32::new(0));
        let in_run = ran.clone();
        let charge = move |ctx: Ctx, (): ()| {
            let ran = in_run.clone();
            async move { ctx.step("charge", async || Ok::<_, Failure>(ran.fetch_add(1, Ordering::SeqCst))).await }
        };
        let mut world = World::new(charge, &());
        cancel(&mut world, "ordered by mistake");
        let draft = world.activate().unwrap().expect("the run ends");
        if crash {
            world.crash();
        } else {
            world.commit(draft);
        }
        crash_and_pump(&mut world);
        assert_eq!((world.status(), ran.load(Ordering::SeqCst)), (Status::Canceled, 0), "crash {crash}");
    }
}

/// N9: what follows from the interruption begins only when it is recorded, since another process would not know that nothing had
/// begun.
#[test]
fn a_step_that_is_interrupted_before_it_began_is_recorded_as_such_before_another_one_begins() {
    async fn in_turn(ctx: Ctx, ran: Arc<Mutex<Vec<&'static str>>>) -> Result<String> {
        let step = async |name: &'static str| {
            let ran = ran.clone();
            ctx.step(name, async || {
                ran.lock().unwrap().push(name);
                Ok::<_, Failure>(())
            })
            .await
        };
        ctx.signal("go").recv::<()>().await?;
        let charged = step("charge").await;
        step("clean up").await?;
        Ok(charged.map_or_else(|failure| failure.code, |()| "charged".to_owned()))
    }
    for is_hot in [true, false] {
        let ran = Arc::new(Mutex::new(Vec::new()));
        let in_run = ran.clone();
        let mut world = World::new(move |ctx, (): ()| in_turn(ctx, in_run.clone()), &());
        world.run_until_idle().unwrap();
        world.signal("go", &());
        cancel(&mut world, "stop");
        if !is_hot {
            // A process that died may have seen the signal, but not the request.
            world.crash();
        }
        let draft = world.activate().unwrap().unwrap();
        assert_eq!(*ran.lock().unwrap(), if is_hot { vec![] } else { vec!["charge"] });
        world.commit(draft);
        crash_and_pump(&mut world);
        let expected =
            if is_hot { ("\"canceled\"", vec!["clean up"]) } else { ("failed: the run was canceled: stop", vec!["charge"]) };
        assert_eq!((world.output().as_str(), ran.lock().unwrap().clone()), expected, "hot {is_hot}");
    }
}

#[test]
fn a_request_goes_on_to_the_child_that_is_awaited() {
    async fn parent(ctx: Ctx, _: ()) -> Result<()> {
        ctx.child("work", &()).await
    }
    let mut world = World::new(parent, &());
    world.run_until_idle().unwrap();
    cancel(&mut world, "stop all");
    crash_and_pump(&mut world);
    let canceled = world.log().events().find_map(|(_, event)| match event {
        Event::ChildCanceled(event) => Some(event.child.to_string()),
        _ => None,
    });
    assert_eq!(canceled.as_deref(), Some("test/0"));
    assert_eq!(world.status(), Status::Canceled);
}

#[test]
fn a_signal_set_aside_for_an_interrupted_wait_goes_back_to_the_mailbox() {
    async fn flow(ctx: Ctx, _: ()) -> Result<Vec<u32>> {
        ctx.signal("s").recv::<u32>().await.expect_err("the request stands before the signal");
        ctx.signal("s").drain()
    }
    let mut world = World::new(flow, &());
    world.run_until_idle().unwrap();
    cancel(&mut world, "");
    world.signal("s", &4);
    crash_and_pump(&mut world);
    assert_eq!(world.output(), "[4]");
}

/// The request is delivered in the batch in which the code has ended, and finds a task that is not awaited.
#[test]
fn a_request_that_comes_with_the_signal_that_ends_the_run_does_not_keep_it_from_ending() {
    async fn forgetful(ctx: Ctx, _: ()) -> Result<u32> {
        let task = ctx.task::<()>("unawaited", &());
        ctx.query("task", move |(): ()| Ok(format!("{:?}", task.cancel()))); // outlives the code
        ctx.signal("s").recv().await
    }
    let mut world = World::new(forgetful, &());
    world.run_until_idle().unwrap();
    world.signal("s", &3);
    cancel(&mut world, "too late");
    crash_and_pump(&mut world);
    assert_eq!(world.output(), "3");
}

//! DS1: the code of a run with a start time observes nothing before it, however often it is replayed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use onward::Status;
use onward::prelude::*;
use onward::testing::World;
use onward_core::Name;
use onward_core::event::{CancelRequested, PauseReason, RunBegun, RunPaused, RunResumed, UpdateReceived};

use crate::{count, crash_and_pump, fire_next};

type Seen = (u64, usize, u32);

/// Returns the time of its begin, how many signals were there, and the answer of an update.
async fn late(ctx: Ctx, _: ()) -> Result<Seen> {
    let (began, early) = (ctx.now().0, ctx.signal("paid").count());
    let sum = Arc::new(AtomicU32::new(0));
    let added = sum.clone();
    ctx.update("add", move |by: u32| Ok(added.fetch_add(by, Ordering::SeqCst) + by));
    ctx.step("charge", async || Ok::<_, Failure>(())).await?;
    ctx.signal("paid").recv::<()>().await?;
    Ok((began, early, sum.load(Ordering::SeqCst)))
}

fn update(id: &str) -> UpdateReceived {
    let (update_id, name) = (id.to_owned(), Name::new("add").unwrap());
    UpdateReceived { update_id, name, payload: onward::Payload::json(&7).unwrap() }
}

#[test]
fn inputs_before_the_begin_are_found_and_now_is_not_before_it() {
    let mut world = World::new(late, &()).start_after(hours(2));
    let due = world.now().after(hours(2));
    world.run_until_idle().unwrap();
    world.advance_time(hours(1));
    world.signal("paid", &());
    world.input(update("u")).unwrap();
    crash_and_pump(&mut world);
    world.signal("paid", &());
    world.run_until_idle().unwrap();
    assert_eq!(world.event_names(), ["run_started", "signal_received", "update_received", "signal_received"]);
    assert_eq!((world.status(), world.shadow_replays()), (Status::Waiting, 0));
    world.advance_time(hours(3));
    fire_next(&mut world);
    crash_and_pump(&mut world);
    let (began, early, added): Seen = world.outcome().expect("it has ended").unwrap().read().unwrap();
    assert!(began >= due.0 && world.shadow_replays() > 0);
    assert_eq!((early, added, count(&world, "run_begun")), (2, 7, 1));
}

/// A signal after the begin is in the same batch, and a replay that crashed after each commit sees the same.
#[test]
fn a_process_that_dies_after_every_commit_replays_the_begin() {
    let mut world = World::new(late, &()).start_after(mins(5));
    world.signal("paid", &());
    fire_next(&mut world);
    while let Some(draft) = world.activate().unwrap() {
        world.commit(draft);
        world.crash();
    }
    let (_, early, _): Seen = world.outcome().expect("it has ended").unwrap().read().unwrap();
    assert_eq!((early, count(&world, "step_completed")), (1, 1));
}

/// DS3, DS4
#[test]
fn a_pause_and_a_cancellation_run_no_code() {
    let mut world = World::new(late, &()).start_after(hours(2));
    let due = world.now().after(hours(2));
    world.input(RunPaused::because(PauseReason::Requested, "")).unwrap();
    world.run_until_idle().unwrap();
    assert_eq!(world.next_timer(), None, "a paused run does not begin");
    world.advance_time(hours(1));
    world.input(RunResumed::default()).unwrap();
    world.run_until_idle().unwrap();
    assert_eq!(world.next_timer().map(|(_, at)| at), Some(due));
    world.input(CancelRequested::new("no".to_owned())).unwrap();
    world.run_until_idle().unwrap();
    assert_eq!(world.event_names(), ["run_started", "run_paused", "run_resumed", "run_canceled"]);
    assert_eq!((world.status(), world.output()), (Status::Canceled, "failed: the run was canceled: no".to_owned()));
}

/// RQ2: no code runs before the queue lets the run in, and neither the code nor its replays see that it waited.
#[test]
fn a_replay_does_not_see_the_queue() {
    let run = |is_queued: bool| {
        let mut world = World::new(late, &());
        if is_queued {
            world = world.queue(Name::new("deploys").unwrap());
        }
        world.signal("paid", &());
        if is_queued {
            crash_and_pump(&mut world);
            assert_eq!((world.status(), world.event_names().len(), world.shadow_replays()), (Status::Waiting, 2, 0));
            world.input(RunBegun::default()).unwrap();
        }
        while let Some(draft) = world.activate().unwrap() {
            world.commit(draft);
            world.crash();
        }
        let names: Vec<&str> = world.event_names().into_iter().filter(|name| *name != "run_begun").collect();
        assert_eq!(count(&world, "run_begun"), usize::from(is_queued));
        (names.join(" "), world.output())
    };
    assert_eq!(run(true), run(false));
}

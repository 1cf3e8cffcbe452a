//! Runs that continue from a copy of a log: retried after a failure, or forked from a point.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use onward::join;
use onward::prelude::*;
use onward::testing::World;
use onward_core::event::{ApprovalDecided, ChildFailed, RunResumed, TaskFailed};
use onward_core::run::Refusal;
use onward_core::{CallId, Event, Index, Status};

use super::{complete, complete_last};

fn fail_task(world: &mut World, call_id: &str) {
    let call_id = CallId::parse(call_id).unwrap();
    world.input(TaskFailed { call_id, failure: Failure::fatal("no paper"), attempts: 1, ran: None }).unwrap();
}

/// A workflow with a step that fails while `broken` is not zero.
async fn fragile(ctx: Ctx, broken: Arc<AtomicU32>, keys: Arc<Mutex<Vec<String>>>) -> Result<String> {
    let before: u64 = ctx.step("before", async || Ok::<_, Failure>(1)).await?;
    let step = ctx.step_with("charge", async |attempt: Attempt| {
        keys.lock().unwrap().push(attempt.idempotency_key());
        if broken.load(Ordering::SeqCst) > 0 { Err(Failure::fatal("declined")) } else { Ok(41) }
    });
    let charged: u64 = step.await?;
    Ok(format!("{}", before + charged))
}

#[test]
fn a_failed_step_is_done_again_and_what_was_recorded_before_is_not() {
    let (broken, keys) = (Arc::new(AtomicU32::new(1)), Arc::new(Mutex::new(Vec::new())));
    let (in_broken, in_keys) = (broken.clone(), keys.clone());
    let mut world = World::new(move |ctx: Ctx, (): ()| fragile(ctx, in_broken.clone(), in_keys.clone()), &());
    world.run_until_idle().unwrap();
    assert_eq!(world.status(), Status::Failed);
    world.retry().unwrap();
    world.run_until_idle().unwrap();
    assert_eq!((world.status(), world.generation()), (Status::Failed, 1));
    broken.store(0, Ordering::SeqCst);
    world.retry().unwrap();
    world.run_until_idle().unwrap();
    assert_eq!((world.output().as_str(), world.generation()), ("\"42\"", 2));
    assert_eq!(world.event_names().iter().filter(|name| **name == "step_completed").count(), 2);
    // It is the same call, so an external service can recognize it by its idempotency key.
    let keys = keys.lock().unwrap();
    assert_eq!(keys.len(), 3);
    assert!(keys.iter().all(|key| *key == keys[0]), "{keys:?}");
    assert_eq!(world.past_logs().len(), 2);
}

#[test]
fn a_failed_task_is_scheduled_again_and_keeps_its_key() {
    let mut world = World::new(|ctx: Ctx, (): ()| async move { ctx.task::<u64>("print", &1).await }, &());
    world.run_until_idle().unwrap();
    let key = world.task_key(&CallId::root(0)).unwrap();
    fail_task(&mut world, "0");
    world.run_until_idle().unwrap();
    assert_eq!(world.status(), Status::Failed);
    world.retry().unwrap();
    world.run_until_idle().unwrap();
    assert_eq!((world.status(), world.task_key(&CallId::root(0))), (Status::Waiting, Some(key)));
    complete(&mut world, "0", "7");
    world.run_until_idle().unwrap();
    assert_eq!(world.output(), "7");
}

#[test]
fn everything_that_failed_in_a_join_is_done_again_and_what_succeeded_stays() {
    let code = |ctx: Ctx, (): ()| async move {
        let both = |ctx: Ctx, kind: &'static str| async move {
            let first: u64 = ctx.task(kind, &1).await?;
            let second: u64 = ctx.task(kind, &2).await?;
            Ok::<_, Failure>(first + second)
        };
        let (a, b, c) = join!(both(ctx.clone(), "a"), both(ctx.clone(), "b"), both(ctx.clone(), "c"));
        Ok(vec![a?, b?, c?])
    };
    let mut world = World::new(code, &());
    world.run_until_idle().unwrap();
    let call_ids = super::task_call_ids(&world);
    fail_task(&mut world, &call_ids[0]);
    world.run_until_idle().unwrap();
    complete(&mut world, &call_ids[1], "10");
    fail_task(&mut world, &call_ids[2]);
    world.run_until_idle().unwrap();
    complete_last(&mut world, "20");
    world.run_until_idle().unwrap();
    assert_eq!(world.status(), Status::Failed, "{}", world.log().to_json_lines());
    world.retry().unwrap();
    world.run_until_idle().unwrap();
    complete(&mut world, &call_ids[0], "1");
    complete(&mut world, &call_ids[2], "3");
    world.run_until_idle().unwrap();
    let call_ids = super::task_call_ids(&world);
    for call_id in &call_ids[4..] {
        complete(&mut world, call_id, "5");
    }
    world.run_until_idle().unwrap();
    assert_eq!(world.output(), "[6,30,8]");
}

#[test]
fn a_failed_child_is_started_again_under_another_id() {
    let mut world = World::new(|ctx: Ctx, (): ()| async move { ctx.child::<u64>("parcel", &1).await }, &());
    world.run_until_idle().unwrap();
    assert_eq!(world.children_started(), ["test/0"]);
    let failed = |call_id: &str| ChildFailed {
        call_id: CallId::parse(call_id).unwrap(),
        failure: Failure::fatal("lost"),
        child: None,
        spent: None,
    };
    world.input(failed("0")).unwrap();
    world.run_until_idle().unwrap();
    world.retry().unwrap();
    assert_eq!(world.children_started(), ["test/1-0"]);
    world.run_until_idle().unwrap();
    assert_eq!(world.status(), Status::Waiting);
    world.input(failed("0")).unwrap();
    world.run_until_idle().unwrap();
    world.retry().unwrap();
    assert_eq!(world.children_started(), ["test/2-0"]);
}

#[test]
fn a_run_that_has_undone_what_it_did_is_not_retried() {
    let code = |ctx: Ctx, (): ()| async move {
        ctx.step("book", async || Ok::<_, Failure>(())).await?;
        ctx.on_failure("unbook", async || Ok::<_, Failure>(()));
        ctx.task::<()>("pay", &1).await
    };
    let mut world = World::new(code, &());
    world.run_until_idle().unwrap();
    complete_or_fail(&mut world);
    world.run_until_idle().unwrap();
    assert_eq!(world.status(), Status::Failed);
    let log = world.log().to_json_lines();
    assert!(matches!(world.retry(), Err(Refusal::FailureHandled { .. })), "{log}");
    assert_eq!(world.log().to_json_lines(), log);
}

fn complete_or_fail(world: &mut World) {
    let call_id = super::last_task(world);
    fail_task(world, &call_id);
}

#[test]
fn code_that_failed_by_itself_is_asked_again_with_everything_it_had() {
    let fixed = Arc::new(AtomicU32::new(0));
    let in_run = fixed.clone();
    let code = move |ctx: Ctx, (): ()| {
        let fixed = in_run.clone();
        async move {
            let value: u64 = ctx.task("measure", &1).await?;
            // A bug that the next deployment does not have.
            if fixed.load(Ordering::SeqCst) == 0 { Err(Failure::fatal("cannot be")) } else { Ok(value) }
        }
    };
    let mut world = World::new(code, &()).without_shadow_replay();
    world.run_until_idle().unwrap();
    complete_last(&mut world, "7");
    world.run_until_idle().unwrap();
    assert_eq!(world.status(), Status::Failed);
    fixed.store(1, Ordering::SeqCst);
    world.retry().unwrap();
    world.run_until_idle().unwrap();
    assert_eq!(world.output(), "7");
}

#[test]
fn only_a_failed_run_is_retried() {
    let mut world = World::new(|ctx: Ctx, (): ()| async move { ctx.task::<u64>("t", &1).await }, &());
    world.run_until_idle().unwrap();
    assert!(matches!(world.retry(), Err(Refusal::NotFailed { .. })));
    complete(&mut world, "0", "1");
    world.run_until_idle().unwrap();
    assert!(matches!(world.retry(), Err(Refusal::NotFailed { .. })));
}

/// Returns the ids and random values that the code sees before and after a task.
async fn names(ctx: Ctx, (): ()) -> Result<Vec<String>> {
    let own = |ctx: &Ctx| format!("{} {} {}", ctx.run_id(), ctx.uuid(), ctx.random());
    let before = own(&ctx);
    let promise = ctx.promise::<u64>("callback");
    let handed_out = promise.id();
    ctx.task::<u64>("tell", &(&before, &handed_out)).await?;
    let child = ctx.child::<u64>("parcel", &own(&ctx));
    let later = promise.id();
    let answer = child.await?;
    Ok(vec![before, handed_out, own(&ctx), later, answer.to_string()])
}

#[test]
fn a_fork_has_names_of_its_own_behind_the_point_and_those_of_then_before_it() {
    let mut world = World::new(names, &());
    world.run_until_idle().unwrap();
    let point = world.log().records().last().unwrap().last_index();
    complete_last(&mut world, "1");
    world.run_until_idle().unwrap();
    let started = world.children_started();
    let mut fork = world.fork("copy", Some(point), true).unwrap();
    fork.run_until_idle().unwrap();
    complete_last(&mut fork, "1");
    fork.run_until_idle().unwrap();
    assert_eq!(fork.children_started().len(), 1);
    assert!(fork.children_started()[0].starts_with("copy/"), "{:?}", fork.children_started());
    assert!(started[0].starts_with("test/"));
    let call_id = |world: &World| match world.log().events().find(|(_, event)| matches!(event, Event::ChildStarted(_))) {
        Some((_, Event::ChildStarted(child))) => child.call_id.clone(),
        other => panic!("{other:?}"),
    };
    for world in [&mut world, &mut fork] {
        let call_id = call_id(world);
        let output = onward_core::Payload::json(&5).unwrap();
        world.input(onward_core::event::ChildCompleted { call_id, output, child: None, spent: None }).unwrap();
        world.run_until_idle().unwrap();
    }
    let read = |world: &World| world.outcome().unwrap().unwrap().read::<Vec<String>>().unwrap();
    let (original, copy) = (read(&world), read(&fork));
    assert_eq!(original[..2], copy[..2]);
    assert!(original[2].starts_with("test ") && copy[2].starts_with("copy "), "{original:?} {copy:?}");
    let chance = |text: &str| text.split_once(' ').unwrap().1.to_owned();
    assert_ne!(chance(&original[2]), chance(&copy[2]));
    assert!(original[3].starts_with("test~0~") && copy[3].starts_with("copy~0~"), "{original:?} {copy:?}");
}

#[test]
fn a_child_that_is_open_at_the_point_is_started_again_for_the_fork() {
    let code = |ctx: Ctx, (): ()| async move {
        let child = ctx.child::<u64>("parcel", &1);
        ctx.task::<u64>("t", &1).await?;
        child.await
    };
    let mut world = World::new(code, &());
    world.run_until_idle().unwrap();
    let mut fork = world.fork("copy", None, true).unwrap();
    assert_eq!(fork.children_started(), ["copy/0"]);
    fork.run_until_idle().unwrap();
    complete(&mut fork, "1", "1");
    let output = onward_core::Payload::json(&5).unwrap();
    fork.input(onward_core::event::ChildCompleted { call_id: CallId::root(0), output, child: None, spent: None }).unwrap();
    fork.run_until_idle().unwrap();
    assert_eq!((fork.output().as_str(), world.status()), ("5", Status::Waiting));
}

#[test]
fn signals_behind_the_point_are_kept_or_dropped_by_choice() {
    let code = |ctx: Ctx, (): ()| async move {
        ctx.task::<u64>("t", &1).await?;
        ctx.signal("x").drain::<u64>()
    };
    let mut world = World::new(code, &());
    world.run_until_idle().unwrap();
    world.signal("x", &1);
    world.signal("x", &2);
    for (keep, expected) in [(true, "[1,2]"), (false, "[]")] {
        let mut fork = world.fork("copy", None, keep).unwrap();
        fork.run_until_idle().unwrap();
        complete(&mut fork, "0", "1");
        fork.run_until_idle().unwrap();
        assert_eq!(fork.output(), expected);
    }
}

#[test]
fn a_point_inside_of_a_commit_is_refused_with_the_nearest_ones() {
    let code = |ctx: Ctx, (): ()| async move {
        let (a, b) = (ctx.task::<u64>("t", &1), ctx.task::<u64>("t", &2));
        Ok(a.await? + b.await?)
    };
    let mut world = World::new(code, &());
    world.run_until_idle().unwrap();
    let Err(Refusal::NoForkPoint { why, .. }) = world.fork("copy", Some(Index(1)), true).map(drop) else { panic!("refused") };
    assert!(why.contains("0 and 2"), "{why}");
    assert!(world.fork("copy", Some(Index(2)), true).is_ok());
    assert!(world.fork("copy", Some(Index(0)), true).is_ok());
}

#[test]
fn a_fork_of_a_retried_run_and_a_retry_of_a_fork_replay() {
    let mut world = World::new(names, &());
    world.run_until_idle().unwrap();
    complete_or_fail(&mut world);
    world.run_until_idle().unwrap();
    assert_eq!(world.status(), Status::Failed);
    world.retry().unwrap();
    world.run_until_idle().unwrap();
    let mut fork = world.fork("copy", None, true).unwrap();
    fork.run_until_idle().unwrap();
    complete_or_fail(&mut fork);
    fork.run_until_idle().unwrap();
    assert_eq!(fork.status(), Status::Failed);
    fork.retry().unwrap();
    fork.run_until_idle().unwrap();
    let mut again = fork.fork("copy-2", None, true).unwrap();
    again.run_until_idle().unwrap();
    complete_last(&mut again, "1");
    again.run_until_idle().unwrap();
    assert!(again.children_started()[0].starts_with("copy-2/"), "{:?}", again.children_started());
}

fn decide(world: &mut World, call_id: &str, approved: bool) {
    let (call_id, decision_id) = (CallId::parse(call_id).unwrap(), "d".to_owned());
    world.input(ApprovalDecided { call_id, approved, feedback: None, decided_by: None, answer: None, decision_id }).unwrap();
}

/// Pays after an approval, and reports it.
async fn pays(ctx: Ctx, (): ()) -> Result<u64> {
    if !ctx.approval("pay", "Pay?").await?.approved {
        return Ok(0);
    }
    ctx.task("pay", &()).await
}

/// Z8: whichever part of it is in the copy, and wherever the copy ends after the decision.
#[test]
fn a_copy_asks_again_for_what_was_approved_and_goes_on_only_then() {
    let mut world = World::new(pays, &());
    world.run_until_idle().unwrap();
    let mut before = world.fork("before", None, true).unwrap();
    before.run_until_idle().unwrap();
    assert_eq!(before.status(), Status::Waiting, "nothing was decided: the question is open as it was");
    decide(&mut world, "0", true);
    world.run_until_idle().unwrap();
    assert_eq!(world.event_names().last(), Some(&"task_scheduled"));
    let mut fork = world.fork("copy", None, true).unwrap();
    fork.run_until_idle().unwrap();
    assert_eq!((fork.status(), fork.event_names().last()), (Status::Paused, Some(&"run_paused")));
    let refused = fork.input(RunResumed { budget: None }).unwrap_err();
    assert!(matches!(refused, Refusal::ApprovalNeeded { count: 1, .. }), "{refused}");
    decide(&mut fork, "0", false);
    assert!(fork.input(RunResumed { budget: None }).is_err(), "who declines does not let it go on");
    decide(&mut fork, "0", true);
    fork.input(RunResumed { budget: None }).unwrap();
    fork.run_until_idle().unwrap();
    complete_last(&mut fork, "7");
    fork.run_until_idle().unwrap();
    assert_eq!(fork.output(), "7");
    // A declined approval stays declined, and a copy of a copy asks again.
    let again = world.fork("copy-2", None, true).unwrap().fork("copy-3", None, true).unwrap();
    assert_eq!(again.status(), Status::Paused);
    let mut declined = World::new(pays, &());
    declined.run_until_idle().unwrap();
    decide(&mut declined, "0", false);
    let mut fork = declined.fork("copy", None, true).unwrap();
    fork.run_until_idle().unwrap();
    assert_ne!(fork.status(), Status::Paused);
}

#[test]
fn a_retry_asks_again_for_what_was_approved() {
    let mut world = World::new(pays, &());
    world.run_until_idle().unwrap();
    decide(&mut world, "0", true);
    world.run_until_idle().unwrap();
    fail_task(&mut world, "1");
    world.run_until_idle().unwrap();
    assert_eq!(world.status(), Status::Failed);
    world.retry().unwrap();
    world.run_until_idle().unwrap();
    assert_eq!(world.status(), Status::Paused);
    assert!(world.input(RunResumed { budget: None }).is_err());
    decide(&mut world, "0", true);
    world.input(RunResumed { budget: None }).unwrap();
    world.run_until_idle().unwrap();
    complete(&mut world, "1", "7");
    world.run_until_idle().unwrap();
    assert_eq!(world.output(), "7");
}

/// Z8: outbox messages are not held back, so nothing is started again after an approval.
#[test]
fn a_child_behind_an_approval_is_not_started_again() {
    let code = |ctx: Ctx, (): ()| async move {
        ctx.approval("pay", "Pay?").await?;
        ctx.child::<u64>("pay", &()).await
    };
    let mut world = World::new(code, &());
    world.run_until_idle().unwrap();
    decide(&mut world, "0", true);
    world.run_until_idle().unwrap();
    let Err(Refusal::ChildBehindApproval { approval, .. }) = world.fork("copy", None, true).map(drop) else { panic!("refused") };
    assert_eq!(approval, Index(2));
    let mut earlier = world.fork("copy", Some(Index(1)), true).unwrap();
    earlier.run_until_idle().unwrap();
    assert_eq!((earlier.status(), earlier.children_started().len()), (Status::Waiting, 0));
}

//! Calls that are awaited together: all of them, the first, the first that succeeds, each with a time limit.

use std::sync::{Arc, Mutex};

use onward::prelude::*;
use onward::testing::World;
use onward::{CancelOutcome, select};
use onward_core::event::TaskFailed;
use onward_core::{CallId, Status};

use crate::{complete, complete_nth, count, crash_and_pump, fire_next, task_call_ids};

fn fail(world: &mut World, call_id: &str, message: &str) {
    let call_id = CallId::parse(call_id).unwrap();
    world.input(TaskFailed { call_id, failure: Failure::fatal(message), attempts: 1, ran: None }).unwrap();
}

async fn in_parallel(ctx: Ctx, tasks: u32) -> Result<Vec<u32>> {
    join_all((0..tasks).map(|n| ctx.task::<u32>("work", &n))).await
}

/// Scenario 8.
#[test]
fn parallel_tasks_answer_in_the_order_of_the_calls_whatever_the_order_of_completion() {
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let mut world = World::new(in_parallel, &3);
        world.run_until_idle().unwrap();
        let call_ids = task_call_ids(&world);
        assert_eq!(call_ids.len(), 3, "all three are scheduled before any is awaited");
        for task in order {
            complete(&mut world, &call_ids[task], &(task * 10).to_string());
            crash_and_pump(&mut world);
        }
        assert_eq!(world.output(), "[0,10,20]", "{order:?}");
    }
}

/// Scenario 9.
#[test]
fn ten_tasks_that_end_at_once_are_each_seen_once() {
    let mut world = World::new(in_parallel, &10);
    world.run_until_idle().unwrap();
    for (n, call_id) in task_call_ids(&world).iter().enumerate().rev() {
        complete(&mut world, call_id, &n.to_string());
    }
    crash_and_pump(&mut world);
    assert_eq!(world.output(), "[0,1,2,3,4,5,6,7,8,9]");
    assert_eq!(count(&world, "task_scheduled"), 10);
    assert_eq!(count(&world, "task_completed"), 10);
}

/// Scenario 10.
#[test]
fn a_task_that_ends_while_the_run_commits_its_suspension_leaves_the_run_pending() {
    let mut world = World::new(in_parallel, &2);
    world.run_until_idle().unwrap();
    let call_ids = task_call_ids(&world);
    complete(&mut world, &call_ids[0], "1");
    let suspension = world.activate().unwrap().expect("the run takes note of the first result");
    complete(&mut world, &call_ids[1], "2");
    assert!(world.commit(suspension));
    assert_eq!(world.status(), Status::Pending);
    crash_and_pump(&mut world);
    assert_eq!(world.output(), "[1,2]");
}

async fn slow_or_fast(ctx: Ctx, _: ()) -> Result<String> {
    let winner: String = select! {
        slow = ctx.task("slow", &()) => slow?,
        fast = ctx.task("fast", &()) => fast?,
    };
    ctx.sleep(secs(5)).await?;
    Ok(winner)
}

/// Scenario 11.
#[test]
fn the_winner_of_a_select_survives_a_restart_and_the_losers_late_answer() {
    let mut world = World::new(slow_or_fast, &());
    world.run_until_idle().unwrap();
    let call_ids = task_call_ids(&world);
    complete(&mut world, &call_ids[1], "\"fast\"");
    world.run_until_idle().unwrap();
    complete(&mut world, &call_ids[0], "\"slow\"");
    crash_and_pump(&mut world);
    fire_next(&mut world);
    crash_and_pump(&mut world);
    assert_eq!(world.output(), "\"fast\"");
}

async fn within_a_second(ctx: Ctx, _: ()) -> Result<String> {
    let answer = ctx.timeout(ctx.task::<String>("ask", &()), secs(1)).await;
    let outcome = match answer {
        Ok(answer) => answer,
        Err(failure) if failure.is_timed_out() => "too late".to_owned(),
        Err(failure) => return Err(failure),
    };
    ctx.signal("end").recv::<()>().await?;
    Ok(outcome)
}

/// Scenario 12.
#[test]
fn a_timeout_stays_a_timeout_when_the_answer_comes_later() {
    let mut world = World::new(within_a_second, &());
    world.run_until_idle().unwrap();
    fire_next(&mut world);
    world.run_until_idle().unwrap();
    complete_nth(&mut world, 0, "\"sorry\"");
    crash_and_pump(&mut world);
    world.signal("end", &());
    crash_and_pump(&mut world);
    assert_eq!(world.output(), "\"too late\"");
}

/// Scenario 12, in one batch: the first in the log wins.
#[test]
fn of_a_timer_and_an_answer_in_one_batch_the_first_in_the_log_wins() {
    for timer_first in [true, false] {
        let mut world = World::new(within_a_second, &());
        world.run_until_idle().unwrap();
        let call_id = task_call_ids(&world)[0].clone();
        let (timer, _) = world.next_timer().unwrap();
        if timer_first {
            world.fire_timer(&timer);
            complete(&mut world, &call_id, "\"in time\"");
        } else {
            complete(&mut world, &call_id, "\"in time\"");
            world.fire_timer(&timer);
        }
        world.signal("end", &());
        crash_and_pump(&mut world);
        assert_eq!(world.output(), if timer_first { "\"too late\"" } else { "\"in time\"" });
    }
}

/// Scenario 13.
#[test]
fn an_answer_in_time_takes_the_timer_back_for_good() {
    let mut world = World::new(within_a_second, &());
    world.run_until_idle().unwrap();
    complete_nth(&mut world, 0, "\"in time\"");
    crash_and_pump(&mut world);
    assert_eq!(world.next_timer(), None, "the timer is gone from the store");
    assert_eq!(count(&world, "wait_canceled"), 1);
    world.signal("end", &());
    crash_and_pump(&mut world);
    assert_eq!(world.output(), "\"in time\"");
    assert_eq!(count(&world, "timer_fired"), 0);
}

/// Scenario 14.
#[test]
fn one_failure_of_three_fails_join_all_with_its_message() {
    let mut world = World::new(in_parallel, &3);
    world.run_until_idle().unwrap();
    let call_ids = task_call_ids(&world);
    fail(&mut world, &call_ids[1], "no such card");
    crash_and_pump(&mut world);
    assert_eq!(world.output(), "open", "the others are not cut short");
    complete(&mut world, &call_ids[2], "2");
    complete(&mut world, &call_ids[0], "0");
    crash_and_pump(&mut world);
    assert_eq!(world.output(), "failed: no such card");
}

/// Scenario 14.
#[test]
fn join_all_settled_returns_the_two_that_succeeded_and_the_one_that_failed() {
    async fn settled(ctx: Ctx, _: ()) -> Result<Vec<String>> {
        let all = join_all_settled((0..3).map(|n| ctx.task::<u32>("work", &n))).await;
        Ok(all.into_iter().map(|one| one.map_or_else(|failure| failure.message, |n| n.to_string())).collect())
    }
    let mut world = World::new(settled, &());
    world.run_until_idle().unwrap();
    let call_ids = task_call_ids(&world);
    complete(&mut world, &call_ids[2], "2");
    fail(&mut world, &call_ids[1], "no such card");
    complete(&mut world, &call_ids[0], "0");
    crash_and_pump(&mut world);
    assert_eq!(world.output(), r#"["0","no such card","2"]"#);
}

async fn first_success(ctx: Ctx, _: ()) -> Result<String> {
    race((0..2).map(|n| ctx.task::<String>("ask", &n))).await
}

/// Scenario 15.
#[test]
fn a_race_is_won_by_the_first_that_succeeds_not_by_the_first_that_ends() {
    let mut world = World::new(first_success, &());
    world.run_until_idle().unwrap();
    let call_ids = task_call_ids(&world);
    fail(&mut world, &call_ids[0], "busy");
    crash_and_pump(&mut world);
    complete(&mut world, &call_ids[1], "\"yes\"");
    crash_and_pump(&mut world);
    assert_eq!(world.output(), "\"yes\"");
}

/// Scenario 15.
#[test]
fn a_race_in_which_all_fail_fails_with_every_reason() {
    let mut world = World::new(first_success, &());
    world.run_until_idle().unwrap();
    let call_ids = task_call_ids(&world);
    fail(&mut world, &call_ids[1], "closed");
    fail(&mut world, &call_ids[0], "busy");
    crash_and_pump(&mut world);
    let failure = world.outcome().unwrap().unwrap_err();
    assert_eq!(failure.code, "all_failed");
    assert_eq!(failure.causes, ["closed", "busy"]);
}

/// Scenario 16.
#[test]
fn a_loser_that_is_canceled_answers_promptly_when_it_is_awaited() {
    async fn cancel_the_loser(ctx: Ctx, _: ()) -> Result<String> {
        let mut slow = ctx.task::<String>("slow", &());
        let fast: String = select! {
            answer = ctx.task("fast", &()) => answer?,
            answer = &mut slow => answer?,
        };
        let outcome = slow.cancel();
        let failure = slow.await.expect_err("a canceled task has no answer");
        Ok(format!("{fast}, {outcome:?}, {}", failure.code))
    }
    let mut world = World::new(cancel_the_loser, &());
    world.run_until_idle().unwrap();
    complete_nth(&mut world, 1, "\"fast\"");
    crash_and_pump(&mut world);
    assert_eq!(world.output(), "\"fast, Canceled, canceled\"");
    assert_eq!(count(&world, "task_canceled"), 1);
}

/// Scenario 16.
#[test]
fn join_all_over_a_canceled_task_fails_instead_of_hanging() {
    async fn join_canceled(ctx: Ctx, _: ()) -> Result<Vec<u32>> {
        let (kept, canceled) = (ctx.task("work", &0), ctx.task("work", &1));
        canceled.cancel();
        join_all([kept, canceled]).await
    }
    let mut world = World::new(join_canceled, &());
    world.run_until_idle().unwrap();
    complete_nth(&mut world, 0, "0");
    crash_and_pump(&mut world);
    assert_eq!(world.output(), "failed: task `work` was canceled");
}

/// Scenario 17.
#[test]
fn canceling_returns_whether_it_was_in_time_and_whether_it_was_the_first() {
    async fn outcomes(ctx: Ctx, seen: Arc<Mutex<Vec<CancelOutcome>>>) -> Result<()> {
        let (done, open) = (ctx.task::<()>("work", &0), ctx.task::<()>("work", &1));
        ctx.signal("go").recv::<()>().await?;
        *seen.lock().unwrap() = vec![done.cancel(), open.cancel(), open.cancel()];
        Ok(())
    }
    let seen = Arc::new(Mutex::new(Vec::new()));
    let in_run = seen.clone();
    let mut world = World::new(move |ctx, _: ()| outcomes(ctx, in_run.clone()), &());
    world.run_until_idle().unwrap();
    complete_nth(&mut world, 0, "null");
    world.signal("go", &());
    crash_and_pump(&mut world);
    assert_eq!(world.status(), Status::Completed);
    use CancelOutcome::{AlreadyCanceled, AlreadyCompleted, Canceled};
    assert_eq!(*seen.lock().unwrap(), [AlreadyCompleted, Canceled, AlreadyCanceled]);
    assert_eq!(count(&world, "task_canceled"), 1);
}

/// Scenario 45.
#[test]
fn a_wait_with_a_deadline_goes_on_without_the_signal_and_the_signal_stays_for_the_next_wait() {
    async fn patient(ctx: Ctx, _: ()) -> Result<(Option<u32>, u32)> {
        let first = ctx.signal("s").recv_timeout(secs(3)).await?;
        Ok((first, ctx.signal("s").recv().await?))
    }
    let mut world = World::new(patient, &());
    world.run_until_idle().unwrap();
    fire_next(&mut world);
    crash_and_pump(&mut world);
    world.signal("s", &9);
    crash_and_pump(&mut world);
    assert_eq!(world.output(), "[null,9]");
}

/// Scenario 45.
#[test]
fn code_that_catches_and_retries_everything_still_suspends() {
    async fn stubborn(ctx: Ctx, _: ()) -> Result<(u32, u32)> {
        let mut timeouts = 0;
        loop {
            match ctx.timeout(ctx.signal("s").recv::<u32>(), secs(1)).await {
                Ok(value) => return Ok((timeouts, value)),
                Err(_) => timeouts += 1,
            }
        }
    }
    let mut world = World::new(stubborn, &());
    for _ in 0..3 {
        crash_and_pump(&mut world);
        assert_eq!(world.status(), Status::Waiting);
        fire_next(&mut world);
    }
    crash_and_pump(&mut world);
    world.signal("s", &7);
    crash_and_pump(&mut world);
    assert_eq!(world.output(), "[3,7]");
}

/// Blocking work continues after its step was dropped, and holds the attempt.
#[test]
fn an_attempt_that_outlives_its_step_does_not_keep_the_step() {
    type Kept = Arc<Mutex<Vec<Attempt>>>;
    async fn lose(ctx: Ctx, kept: Kept) -> Result<()> {
        select! {
            paid = ctx.step_with("pay", async |attempt: Attempt| {
                kept.lock().unwrap().push(attempt);
                std::future::pending::<Result<()>>().await
            }) => paid?,
            gone_on = ctx.signal("go").recv::<()>() => gone_on?,
        }
        ctx.signal("end").recv().await
    }
    let kept = Kept::default();
    let in_run = kept.clone();
    let mut world = World::new(move |ctx, (): ()| lose(ctx, in_run.clone()), &());
    world.run_until_idle().unwrap();
    world.signal("go", &());
    world.run_until_idle().unwrap();
    assert_eq!(world.status(), Status::Waiting, "no step runs any more");
    let attempt = kept.lock().unwrap().pop().unwrap();
    assert_eq!((attempt.number, attempt.idempotency_key().len()), (1, 32), "it still knows what it is");
    drop(attempt);
    world.signal("end", &());
    world.run_until_idle().unwrap();
    assert_eq!(world.status(), Status::Completed);
}

#[test]
fn a_step_that_loses_a_select_is_recorded_or_forgotten_but_never_run_again() {
    async fn flow(ctx: Ctx, ran: Arc<Mutex<u32>>) -> Result<String> {
        let winner = select! {
            step = ctx.step("count", async || { *ran.lock().unwrap() += 1; Ok::<_, Failure>("step".to_owned()) }) => step?,
            signal = ctx.signal("s").recv::<String>() => signal?,
        };
        ctx.sleep(secs(1)).await?;
        Ok(winner)
    }
    let ran = Arc::new(Mutex::new(0));
    let in_run = ran.clone();
    let mut world = World::new(move |ctx, _: ()| flow(ctx, in_run.clone()), &());
    let report = world.activate().unwrap().expect("the step has returned");
    world.signal("s", "signal");
    assert!(world.commit(report));
    crash_and_pump(&mut world);
    fire_next(&mut world);
    crash_and_pump(&mut world);
    assert_eq!(world.output(), "\"signal\"", "the signal comes before the step's result in the log");
    assert_eq!(*ran.lock().unwrap(), 1);
}

/// How the two tasks of [`tie`] are awaited.
#[derive(serde::Serialize, serde::Deserialize, Clone, Copy, Debug)]
enum Tie {
    Race,
    RaceOfBlocks,
    RaceOfNested,
    Select,
    SelectOfBlocks,
}

/// Two tasks are answered before they are awaited.
#[allow(clippy::redundant_async_block, reason = "a block hides what it awaits, and that is the point")]
async fn tie(ctx: Ctx, (how, swapped): (Tie, bool)) -> Result<String> {
    let mut tasks = vec![ctx.task::<String>("ask", &0), ctx.task::<String>("ask", &1)];
    ctx.signal("go").recv::<()>().await?;
    if swapped {
        tasks.reverse();
    }
    match how {
        Tie::Race => race(tasks).await,
        Tie::RaceOfBlocks => race(tasks.into_iter().map(|task| async move { task.await })).await,
        Tie::RaceOfNested => race(tasks.into_iter().map(|task| race([task]))).await,
        Tie::Select => {
            let [a, b] = <[_; 2]>::try_from(tasks).map_err(|_| Failure::fatal("two tasks"))?;
            select! { first = a => first, first = b => first }
        }
        Tie::SelectOfBlocks => {
            let [a, b] = <[_; 2]>::try_from(tasks).map_err(|_| Failure::fatal("two tasks"))?;
            select! { first = async { a.await } => first, first = async { b.await } => first }
        }
    }
}

/// Rule 3.
#[test]
fn of_several_that_were_answered_before_the_one_with_the_lower_index_wins_whatever_the_order_of_the_list() {
    for how in [Tie::Race, Tie::RaceOfBlocks, Tie::RaceOfNested, Tie::Select, Tie::SelectOfBlocks] {
        for (swapped, second_is_first, crash) in (0..8).map(|bits| (bits & 1 > 0, bits & 2 > 0, bits & 4 > 0)).collect::<Vec<_>>()
        {
            let mut world = World::new(tie, &(how, swapped));
            world.run_until_idle().unwrap();
            let order = if second_is_first { [1, 0] } else { [0, 1] };
            for nth in order {
                complete_nth(&mut world, nth, &format!("\"task {nth}\""));
            }
            world.signal("go", &());
            if crash {
                world.crash();
            }
            world.run_until_idle().unwrap();
            let expected = format!("\"task {}\"", order[0]);
            assert_eq!(world.output(), expected, "{how:?}, swapped {swapped}, crash {crash}");
        }
    }
}

/// An arm that reaches its second wait is not ahead of one whose only answer came in between.
#[test]
fn a_race_sees_the_answers_of_all_its_arms_in_the_order_of_the_log() {
    async fn two_against_one(ctx: Ctx, _: ()) -> Result<String> {
        let [a, b, c] = [0, 1, 2].map(|n| ctx.task::<String>("ask", &n));
        ctx.signal("go").recv::<()>().await?;
        type Arm = std::pin::Pin<Box<dyn Future<Output = Result<String>> + Send>>;
        let two: Arm = Box::pin(async move {
            a.await?;
            c.await
        });
        race([two, Box::pin(b)]).await
    }
    let mut world = World::new(two_against_one, &());
    world.run_until_idle().unwrap();
    for nth in 0..3 {
        complete_nth(&mut world, nth, &format!("\"task {nth}\""));
    }
    world.signal("go", &());
    crash_and_pump(&mut world);
    assert_eq!(world.output(), "\"task 1\"");
}

/// The losers have not begun to wait: nothing is called and dropped for them, and a signal in the mailbox stays.
#[test]
fn the_losers_of_a_race_that_is_decided_when_it_begins_leave_nothing_behind() {
    async fn decided(ctx: Ctx, _: ()) -> Result<(u32, u32)> {
        ctx.signal("go").recv::<()>().await?;
        let first = race([ctx.signal("late").recv::<u32>(), ctx.signal("early").recv(), ctx.signal("never").recv()]).await?;
        Ok((first, ctx.signal("late").count() as u32))
    }
    let mut world = World::new(decided, &());
    world.signal("early", &1);
    world.signal("late", &2);
    world.signal("go", &());
    crash_and_pump(&mut world);
    assert_eq!(world.output(), "[1,1]");
    assert_eq!(count(&world, "signal_awaited"), 0);
}

/// What a long run does repeatedly: steps that win and lose, waits that are dropped.
async fn over_and_over(ctx: Ctx, rounds: u32) -> Result<u32> {
    for round in 0..rounds {
        ctx.step("plain", async || Ok::<_, Failure>(round)).await?;
        race([0, 1].map(|lane| ctx.step("raced", async move || Ok::<_, Failure>(lane)))).await?;
        select! {
            done = async { ctx.step("in a block", async || Ok::<_, Failure>(())).await } => done?,
            stopped = ctx.signal("stop").recv::<()>() => stopped?,
            slept = ctx.sleep(secs(60)) => slept?,
            promised = ctx.promise::<()>("never").within(secs(60)) => promised?,
        }
        let (left, right) = onward::join!(async { ctx.random() }, async { ctx.random() });
        if left == right {
            return Err(Failure::fatal("two arms drew the same number"));
        }
    }
    ctx.signal("end").recv::<()>().await?;
    Ok(rounds)
}

#[test]
fn what_a_run_keeps_in_memory_does_not_grow_with_what_it_has_done() {
    const ROUNDS: u32 = 100_000 / 4;
    let mut world = World::new(over_and_over, &ROUNDS).without_shadow_replay();
    let mut most = 0;
    while let Some(draft) = world.activate().unwrap() {
        most = most.max(world.entries());
        world.commit(draft);
    }
    assert!(most < 20, "{most} entries at a time");
    assert_eq!(world.entries(), 2, "the wait for the end, as a call and in the mailbox");
    assert_eq!((world.open_timers(), world.open_waits()), (0, 0), "a promise that is dropped is withdrawn");

    world.crash();
    assert_eq!(world.activate().unwrap(), None);
    assert_eq!(world.entries(), 2, "as much after a replay");
    world.signal("end", &());
    world.run_until_idle().unwrap();
    assert_eq!(world.output(), ROUNDS.to_string());
}

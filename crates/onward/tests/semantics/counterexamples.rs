//! The counterexamples that rule out every simpler way of replaying signals, one test each.

use onward::prelude::*;
use onward::select;
use onward::testing::World;
use onward_core::event::SignalReceived;
use onward_core::projection::Projection;
use onward_core::run::Refusal;
use onward_core::view::RunView;
use onward_core::{Name, Namespace, Payload, RunId, RunKey, Status};

use crate::{complete, complete_last, crash_and_pump, fire, last_task, task_inputs};

/// An agent loop: steering while it works, then a durable wait.
async fn chat(ctx: Ctx, follow_ups: usize) -> Result<Vec<String>> {
    let mut messages: Vec<String> = Vec::new();
    let mut turn = 0;
    loop {
        while ctx.signal("message").has() {
            let steering: String = ctx.signal("message").recv().await?;
            messages.push(format!("steer:{steering}"));
        }
        let answer: String = ctx.task("model", &messages).await?;
        messages.push(answer);
        if turn == follow_ups {
            return Ok(messages);
        }
        turn += 1;
        let next: String = ctx.signal("message").recv().await?;
        messages.push(next);
    }
}

#[test]
fn ce01_a_poll_before_the_wait_stays_false_when_the_signal_comes_after_it() {
    let mut world = World::new(chat, &1);
    world.run_until_idle().unwrap();
    complete(&mut world, "0", "\"a0\"");
    world.run_until_idle().unwrap();
    world.signal("message", "s1");
    crash_and_pump(&mut world);
    assert_eq!(task_inputs(&world), ["[]", r#"["a0","s1"]"#]);
}

/// Scenario 6.
#[test]
fn ce02_every_turn_of_a_long_conversation_sees_its_own_message() {
    for turns in 2..=50 {
        let mut world = World::new(chat, &turns);
        let mut expected: Vec<String> = Vec::new();
        world.run_until_idle().unwrap();
        for turn in 0..=turns {
            let recorded = task_inputs(&world).pop().unwrap();
            assert_eq!(recorded, serde_json::to_string(&expected).unwrap(), "turn {turn} of {turns}");
            let call_id = last_task(&world);
            complete(&mut world, &call_id, &format!("\"a{turn}\""));
            expected.push(format!("a{turn}"));
            crash_and_pump(&mut world);
            if turn < turns {
                world.signal("message", &format!("s{}", turn + 1));
                expected.push(format!("s{}", turn + 1));
                crash_and_pump(&mut world);
            }
        }
        assert_eq!(world.output(), serde_json::to_string(&expected).unwrap());
    }
}

#[test]
fn ce03_a_poll_stays_false_when_the_next_turn_suspends_on_a_task() {
    let mut world = World::new(chat, &1);
    world.run_until_idle().unwrap();
    complete(&mut world, "0", "\"a0\"");
    world.run_until_idle().unwrap();
    world.signal("message", "s1");
    world.run_until_idle().unwrap();
    let call_id = last_task(&world);
    complete(&mut world, &call_id, "\"a1\"");
    crash_and_pump(&mut world);
    assert_eq!(world.output(), r#"["a0","s1","a1"]"#);
}

#[test]
fn ce04_a_signal_that_lands_while_an_activation_runs_is_seen_by_the_next_poll_only() {
    let mut world = World::new(chat, &0);
    let draft = world.activate().unwrap().unwrap();
    world.signal("message", "s1");
    assert!(world.commit(draft));
    crash_and_pump(&mut world);
    assert_eq!(task_inputs(&world), ["[]"]);

    // With one more round, the poll that follows sees it as steering.
    async fn two_rounds(ctx: Ctx, _: ()) -> Result<Vec<bool>> {
        let first = ctx.signal("message").has();
        ctx.task::<String>("model", &first).await?;
        let second = ctx.signal("message").has();
        Ok(vec![first, second])
    }
    let mut world = World::new(two_rounds, &());
    let draft = world.activate().unwrap().unwrap();
    world.signal("message", "s1");
    assert!(world.commit(draft));
    crash_and_pump(&mut world);
    complete(&mut world, "0", "\"a\"");
    crash_and_pump(&mut world);
    assert_eq!(world.output(), "[false,true]");
}

#[test]
fn ce05_a_poll_that_was_false_and_a_poll_that_was_true_are_told_apart_for_ever() {
    async fn branch(ctx: Ctx, _: ()) -> Result<String> {
        let there = ctx.signal("s").has();
        let message: u32 = ctx.signal("s").recv().await?;
        ctx.task::<()>(if there { "A" } else { "B" }, &message).await?;
        Ok(format!("{}{message}", if there { "A" } else { "B" }))
    }
    for (early, expected) in [(false, "\"B1\""), (true, "\"A1\"")] {
        let mut world = World::new(branch, &());
        if early {
            world.signal("s", &1);
        }
        crash_and_pump(&mut world);
        if !early {
            world.signal("s", &1);
        }
        crash_and_pump(&mut world);
        let call_id = last_task(&world);
        complete(&mut world, &call_id, "null");
        crash_and_pump(&mut world);
        assert_eq!(world.output(), expected);
    }
}

async fn signal_or_task(ctx: Ctx, _: ()) -> Result<String> {
    let winner = select! {
        signal = ctx.signal("s").recv::<u32>() => format!("signal {}", signal?),
        task = ctx.task::<u32>("t", &()) => format!("task {}", task?),
    };
    ctx.sleep(secs(1)).await?;
    Ok(winner)
}

#[test]
fn ce06_the_winner_of_a_select_stays_the_winner_when_the_loser_is_answered_too() {
    let mut world = World::new(signal_or_task, &());
    world.run_until_idle().unwrap();
    complete(&mut world, "1", "5");
    world.run_until_idle().unwrap();
    world.signal("s", &1);
    crash_and_pump(&mut world);
    let (call_id, _) = world.next_timer().unwrap();
    world.fire_timer(&call_id);
    crash_and_pump(&mut world);
    assert_eq!(world.output(), "\"task 5\"");

    // Both in one batch: the lower index wins, whatever the order of the arms.
    let mut world = World::new(signal_or_task, &());
    world.run_until_idle().unwrap();
    complete(&mut world, "1", "5");
    world.signal("s", &1);
    crash_and_pump(&mut world);
    let (call_id, _) = world.next_timer().unwrap();
    world.fire_timer(&call_id);
    crash_and_pump(&mut world);
    assert_eq!(world.output(), "\"task 5\"");
}

#[test]
fn ce07_a_poll_of_an_activation_without_commands_is_kept() {
    async fn flow(ctx: Ctx, _: ()) -> Result<bool> {
        ctx.signal("tick").recv::<()>().await?;
        let seen = ctx.signal("x").has();
        ctx.signal("go").recv::<()>().await?;
        ctx.task::<()>("t", &seen).await?;
        Ok(seen)
    }
    let mut world = World::new(flow, &());
    world.run_until_idle().unwrap();
    world.signal("tick", &());
    crash_and_pump(&mut world);
    world.signal("x", &());
    crash_and_pump(&mut world);
    world.signal("go", &());
    crash_and_pump(&mut world);
    complete_last(&mut world, "null");
    crash_and_pump(&mut world);
    assert_eq!(world.output(), "false");
}

#[test]
fn ce08_a_signal_that_lands_before_the_waiting_commit_leaves_the_run_pending() {
    async fn flow(ctx: Ctx, _: ()) -> Result<u32> {
        ctx.signal("s").recv().await
    }
    let mut world = World::new(flow, &());
    let draft = world.activate().unwrap().unwrap();
    world.signal("s", &9);
    assert!(world.commit(draft));
    assert_eq!(world.status(), Status::Pending);
    crash_and_pump(&mut world);
    assert_eq!(world.output(), "9");
}

#[test]
fn ce09_a_signal_set_aside_for_a_loser_goes_back_to_the_mailbox() {
    async fn flow(ctx: Ctx, _: ()) -> Result<(bool, Option<u32>)> {
        let timed_out = select! {
            _ = ctx.signal("x").recv::<u32>() => false,
            _ = ctx.sleep(secs(1)) => true,
        };
        Ok((timed_out, ctx.signal("x").try_recv()?))
    }
    let mut world = World::new(flow, &());
    world.run_until_idle().unwrap();
    fire(&mut world, "1");
    world.signal("x", &7);
    crash_and_pump(&mut world);
    assert_eq!(world.output(), "[true,7]");
}

#[test]
fn ce12_a_signal_accepted_before_the_end_is_processed_or_undelivered() {
    async fn flow(ctx: Ctx, _: ()) -> Result<Vec<u32>> {
        ctx.signal("s").drain()
    }
    let mut world = World::new(flow, &());
    let draft = world.activate().unwrap().unwrap();
    world.signal("s", &1);
    assert!(!world.commit(draft), "an end over an unread signal is refused");
    world.run_until_idle().unwrap();
    assert_eq!(world.output(), "[1]");
    assert!(matches!(world.input(signal_event(2)), Err(Refusal::Closed { .. })));
}

#[test]
fn ce12_a_storm_of_signals_cannot_keep_a_run_from_ending() {
    async fn flow(ctx: Ctx, _: ()) -> Result<usize> {
        Ok(ctx.signal("s").count())
    }
    let mut world = World::new(flow, &());
    let mut refused = 0;
    loop {
        let draft = world.activate().unwrap().unwrap();
        world.signal("s", &refused);
        if world.commit(draft) {
            break;
        }
        refused += 1;
    }
    assert_eq!(refused, 3);
    assert_eq!(world.output(), "3");
    assert_eq!(undelivered(&world), [0, 1, 2, 3], "counting consumes nothing");
}

#[test]
fn ce14_a_record_that_comes_twice_or_out_of_order_is_seen_once() {
    use onward_core::engine::{Advance, Engine};
    let mut world = World::new(signal_or_task, &());
    world.run_until_idle().unwrap();
    world.signal("s", &1);
    let records = world.log().records().to_vec();
    let key = onward_core::RunKey::new(Default::default(), onward_core::RunId::new("test").unwrap());
    let mut engine = Engine::new(key);
    engine.feed(records[0].clone());
    engine.feed(records[2].clone());
    assert_eq!(engine.gap(), Some(records[1].index));
    engine.feed(records[1].clone());
    engine.feed(records[2].clone());
    assert_eq!(engine.gap(), None);
    assert_eq!(engine.next_feed(), records[2].next_index());
    assert!(matches!(engine.advance(), Ok(Advance::Poll(_))));
}

#[test]
fn ce15_a_run_commits_while_signals_pour_in() {
    async fn flow(ctx: Ctx, rounds: u32) -> Result<u32> {
        let mut seen = 0;
        for round in 0..rounds {
            ctx.task::<()>("work", &round).await?;
            seen += ctx.signal("s").drain::<u32>()?.len() as u32;
        }
        Ok(seen)
    }
    let mut world = World::new(flow, &10);
    let mut sent = 0;
    for _ in 0..10 {
        for _ in 0..20 {
            let Some(draft) = world.activate().unwrap() else { break };
            world.signal("s", &sent);
            sent += 1;
            let before = world.log().next_index();
            assert!(world.commit(draft));
            assert!(world.log().next_index() > before);
        }
        complete_last(&mut world, "null");
        crash_and_pump(&mut world);
    }
    assert_eq!(world.output(), sent.to_string());
}

#[test]
fn ce16_drain_takes_all_there_are_and_the_next_one_is_refused_or_undelivered() {
    async fn flow(ctx: Ctx, _: ()) -> Result<Vec<u32>> {
        ctx.signal("s").drain()
    }
    let mut world = World::new(flow, &());
    for n in 0..20 {
        world.signal("s", &n);
    }
    world.run_until_idle().unwrap();
    assert_eq!(world.output(), serde_json::to_string(&(0..20).collect::<Vec<_>>()).unwrap());
    assert_eq!(world.status(), Status::Completed);
    assert!(matches!(world.input(signal_event(20)), Err(Refusal::Closed { .. })), "a closed run takes no signal");
    assert_eq!(undelivered(&world), [0; 0]);

    // The next signals arrive between each drain and its commit: the first three are drained, the fourth is undelivered.
    let mut world = World::new(flow, &());
    for n in 0..4 {
        let draft = world.activate().unwrap().unwrap();
        world.signal("s", &n);
        assert_eq!(world.commit(draft), n == 3, "signal {n}");
    }
    assert_eq!((world.output().as_str(), world.status()), ("[0,1,2]", Status::Completed));
    assert_eq!(undelivered(&world), [3]);
    assert!(matches!(world.input(signal_event(4)), Err(Refusal::Closed { .. })));
}

fn signal_event(value: u32) -> SignalReceived {
    SignalReceived { name: Name::new("s").unwrap(), payload: Payload::json(&value).unwrap(), signal_id: None, sender: None }
}

/// Returns the values of the signals that a closed run has not consumed.
fn undelivered(world: &World) -> Vec<u32> {
    let key = RunKey::new(Namespace::default(), RunId::new("test").unwrap());
    let head = Projection::of(key, world.log().records()).unwrap().head;
    let signals = RunView::fold(head, world.log().records()).undelivered;
    signals.iter().map(|signal| signal.payload.read().unwrap()).collect()
}

#[test]
fn ce17_names_are_compared_byte_for_byte_and_limited() {
    async fn flow(ctx: Ctx, _: ()) -> Result<Vec<usize>> {
        Ok(["a", "a/b", "\u{e9}", "e\u{301}"].map(|name| ctx.signal(name).count()).to_vec())
    }
    let mut world = World::new(flow, &());
    for name in ["a", "a/b", "a/b", "\u{e9}"] {
        world.signal(name, &());
    }
    world.run_until_idle().unwrap();
    assert_eq!(world.output(), "[1,2,1,0]");
    assert!(Name::new("").is_err());
    assert!(Name::new("x".repeat(1 << 20)).is_err());
    assert!(Name::new("x".repeat(255)).is_ok());
}

#[test]
fn has_signal_is_false_for_a_post_suspension_signal() {
    async fn flow(ctx: Ctx, _: ()) -> Result<(bool, String)> {
        let steering = ctx.signal("userMessage").has();
        ctx.task::<String>("llm-request", &()).await?;
        let message = ctx.signal("userMessage").recv().await?;
        Ok((steering, message))
    }
    let mut world = World::new(flow, &());
    world.run_until_idle().unwrap();
    complete(&mut world, "0", "\"hello\"");
    world.run_until_idle().unwrap();
    world.signal("userMessage", "follow-up");
    crash_and_pump(&mut world);
    assert_eq!(world.output(), r#"[false,"follow-up"]"#);
}

#[test]
fn two_turns_make_four_messages() {
    let mut world = World::new(chat, &1);
    world.signal("message", "hello");
    world.run_until_idle().unwrap();
    complete_last(&mut world, "\"hi\"");
    crash_and_pump(&mut world);
    world.signal("message", "how are you");
    crash_and_pump(&mut world);
    complete_last(&mut world, "\"fine\"");
    crash_and_pump(&mut world);
    assert_eq!(world.output(), r#"["steer:hello","hi","how are you","fine"]"#);
}

/// Scenario 7.
#[test]
fn steering_that_lands_while_a_task_runs_is_seen_before_the_next_task_on_every_replay() {
    let mut world = World::new(chat, &2);
    world.run_until_idle().unwrap();
    complete(&mut world, "0", "\"a0\"");
    world.run_until_idle().unwrap();
    world.signal("message", "s1");
    world.run_until_idle().unwrap();
    world.signal("message", "while a1 runs");
    crash_and_pump(&mut world);
    complete_last(&mut world, "\"a1\"");
    crash_and_pump(&mut world);
    complete_last(&mut world, "\"a2\"");
    crash_and_pump(&mut world);
    assert_eq!(world.output(), r#"["a0","s1","a1","while a1 runs","a2"]"#);
}

/// The step was called once more during replay, which must not make the run look busy when it comes to rest.
#[test]
fn a_run_with_new_calls_after_a_restart_waits_when_it_comes_to_rest() {
    async fn flow(ctx: Ctx, _: ()) -> Result<bool> {
        ctx.step("charge", async || Ok::<_, Failure>(1)).await?;
        ctx.signal("payment").recv::<u32>().await?;
        Ok(ctx.approval("ship", "Ship?").await?.approved)
    }
    let mut world = World::new(flow, &());
    world.run_until_idle().unwrap();
    world.signal("payment", &7);
    crash_and_pump(&mut world);
    assert_eq!(world.status(), Status::Waiting);
}

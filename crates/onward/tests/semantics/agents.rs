//! Agents: rules that a worker must keep about their logs.

use std::time::Duration;

use onward::agent::{AgentCtx, Turn};
use onward::prelude::*;
use onward::testing::{Replay, World};
use onward_core::event::{ApprovalDecided, TaskCompleted};
use onward_core::{CallId, Event, Payload, Status};

/// Appends a message that depends on configuration, runs a task, drains the mailbox and ends.
async fn wordy(ctx: AgentCtx, _: ()) -> Result<Vec<u32>> {
    ctx.append("system", if *ctx.dep::<bool>() { "be polite" } else { "be brief" }).await?;
    let _: String = ctx.task("look", &1).pure().await?;
    ctx.signal("s").drain()
}

fn look_done(world: &mut World) {
    let scheduled = |event: &Event| matches!(event, Event::TaskScheduled(_));
    assert_eq!(world.log().events().filter(|(_, event)| scheduled(event)).count(), 1);
    let output = Payload::json("found").unwrap();
    world.input(TaskCompleted { call_id: CallId::root(1), output, attempts: 1, ran: None }).unwrap();
}

/// R11: a commit that abandons a part of the log is refused until it has seen everything. That does not count as an attempt to
/// end (R5).
#[test]
fn a_log_that_was_hard_to_leave_does_not_end_over_unread_signals() {
    let mut world = World::new_agent(wordy, &()).dep(false);
    world.run_until_idle().unwrap();
    look_done(&mut world);
    world.crash();
    let mut world = world.dep(true);
    for n in 0..4u32 {
        let leaving = world.activate().unwrap().unwrap();
        assert!(matches!(leaving.events[0], Event::SegmentAbandoned(_)), "{:?}", leaving.events);
        world.signal("s", &n);
        assert!(!world.commit(leaving), "what came meanwhile is not seen");
    }
    loop {
        let draft = world.activate().unwrap().expect("it goes on to its end");
        let ends = draft.events.last().is_some_and(Event::ends_log);
        if ends {
            world.signal("s", &4u32);
            assert!(!world.commit(draft), "the first try to end does not end over a signal");
            break;
        }
        assert!(world.commit(draft));
    }
    world.run_until_idle().unwrap();
    assert_eq!((world.status(), world.output().as_str()), (Status::Completed, "[0,1,2,3,4]"));
}

/// Waits for a signal or an hour, appends a message that depends on configuration, and runs a task.
async fn patient(ctx: AgentCtx, _: ()) -> Result<String> {
    let received = onward::select! {
        word = ctx.signal("s").recv::<String>() => word?,
        slept = ctx.sleep(Duration::from_secs(3600)) => slept.map(|()| "nothing".to_owned())?,
    };
    ctx.append("system", if *ctx.dep::<bool>() { "be polite" } else { "be brief" }).await?;
    let _: String = ctx.task("look", &1).pure().await?;
    Ok(received)
}

/// SG5: the timer was canceled because of the signal, which the code receives again where it diverges from the log.
#[test]
fn a_timer_that_lost_in_what_the_code_has_left_does_not_win_as_canceled() {
    let mut world = World::new_agent(patient, &()).dep(false);
    world.run_until_idle().unwrap();
    world.signal("s", "hello");
    world.run_until_idle().unwrap();
    world.crash();
    let mut world = world.dep(true);
    world.run_until_idle().unwrap();
    let call_id = |(_, event): (_, &Event)| match event {
        Event::TaskScheduled(task) => Some(task.call_id.clone()),
        _ => None,
    };
    let call_id = world.log().events().filter_map(call_id).last().expect("it looks something up again");
    world.input(TaskCompleted { call_id, output: Payload::json("found").unwrap(), attempts: 1, ran: None }).unwrap();
    world.run_until_idle().unwrap();
    assert_eq!((world.status(), world.output().as_str()), (Status::Completed, "\"hello\""));
}

/// Requests an approval in a conversation that has begun, and may run a task before.
async fn request_approval(ctx: AgentCtx, _: ()) -> Result<bool> {
    ctx.append("user", "hello").await?;
    ctx.turns((), async |()| {
        if *ctx.dep::<bool>() {
            let _: String = ctx.task("look", &1).pure().await?;
        }
        Ok(Turn::Done(ctx.approval("may-i", "May I?").await?.approved))
    })
    .await
}

/// SG1: the approval was the first call of the turn.
#[test]
fn a_question_that_the_code_comes_back_to_is_not_asked_twice() {
    let mut world = World::new_agent(request_approval, &()).dep(false);
    for looks_first in [false, true, false] {
        world.crash();
        world = world.dep(looks_first);
        world.run_until_idle().unwrap();
    }
    let call_id = |(_, event): (_, &Event)| match event {
        Event::ApprovalRequested(question) => Some(question.call_id.clone()),
        _ => None,
    };
    let requested: Vec<CallId> = world.log().events().filter_map(call_id).collect();
    assert_eq!((requested.len(), world.open_waits()), (1, 1), "{:?}", world.event_names());
    let (call_id, feedback, decided_by, decision_id) = (requested[0].clone(), None, None, "d".to_owned());
    world.input(ApprovalDecided { call_id, approved: true, feedback, decided_by, answer: None, decision_id }).unwrap();
    world.run_until_idle().unwrap();
    assert_eq!((world.status(), world.output().as_str()), (Status::Completed, "true"));
}

async fn two_turns(ctx: AgentCtx, name: String) -> Result<String> {
    ctx.append("user", &name).await?;
    ctx.turns(0u32, |turn| {
        let ctx = ctx.clone();
        async move {
            ctx.append("assistant", &turn).await?;
            if turn == 1 { Ok(Turn::Done("bye".to_owned())) } else { Ok(Turn::Next(turn + 1)) }
        }
    })
    .await
}

/// Returns how many messages came before.
async fn counts(ctx: AgentCtx, name: String) -> Result<String> {
    ctx.append("user", &name).await?;
    ctx.turns(0u32, async |turn| {
        let count = ctx.messages().await?.len();
        ctx.append("assistant", &count).await?;
        if turn == 1 { Ok(Turn::Done("bye".to_owned())) } else { Ok(Turn::Next(turn + 1)) }
    })
    .await
}

#[test]
fn the_log_of_a_turn_that_reads_the_conversation_replays_with_the_logs_before_and_fails_without() {
    let mut world = World::new_agent(counts, "Ada");
    world.run_until_idle().unwrap();
    let past = world.past_logs();
    Replay::new("test", world.log()).prelude(&past[0]).earlier(past).against_agent(counts).unwrap();
    let missing = Replay::new("test", world.log()).prelude(&past[0]).against_agent(counts).unwrap_err();
    assert!(missing.message.contains("earlier logs of the run are not available"), "{}", missing.message);
    let lied = Replay::new("test", world.log()).prelude(&past[0]).earlier(&past[..1]).against_agent(counts);
    assert!(lied.is_err(), "a log is missing in between");
}

#[test]
fn the_log_of_a_turn_replays_behind_its_prelude_and_fails_without() {
    let mut world = World::new_agent(two_turns, "Ada");
    world.run_until_idle().unwrap();
    assert_eq!(world.output(), "\"bye\"");
    let [prelude, first] = world.past_logs() else { panic!("a prelude and a turn") };
    for turn in [first, world.log()] {
        Replay::new("test", turn).prelude(prelude).against_agent(two_turns).unwrap();
        let missing = Replay::new("test", turn).against_agent(two_turns).unwrap_err();
        assert!(missing.message.contains("generation 0"), "{}", missing.message);
    }
}

/// Draws random values under the id of its run, before its turns and in each of them.
async fn draws(ctx: AgentCtx, (): ()) -> Result<Vec<String>> {
    let first = format!("{} {}", ctx.run_id(), ctx.uuid());
    ctx.append("system", &first).await?;
    ctx.turns(vec![first], |drawn: Vec<String>| {
        let ctx = ctx.clone();
        async move {
            let drawn: Vec<String> = drawn.into_iter().chain([format!("{} {}", ctx.run_id(), ctx.uuid())]).collect();
            ctx.append("assistant", drawn.last().expect("it has drawn")).await?;
            let _: String = ctx.signal("go").recv().await?;
            if drawn.len() == 4 { Ok(Turn::Done(drawn)) } else { Ok(Turn::Next(drawn)) }
        }
    })
    .await
}

/// J2, Z6: the fork reaches its turn like the original, and draws its own values after it. Worlds replay every log strictly.
#[test]
fn a_fork_of_a_later_turn_has_the_logs_before_it_and_replays_them_under_the_names_of_then() {
    let go_on = |world: &mut World| {
        world.signal("go", "on");
        world.run_until_idle().unwrap();
    };
    let mut world = World::new_agent(draws, &());
    world.run_until_idle().unwrap();
    go_on(&mut world);
    let mut fork = world.fork("fork", None, true).unwrap();
    assert_eq!((fork.past_logs().len(), world.past_logs().len()), (2, 2));
    fork.run_until_idle().unwrap();
    [&mut world, &mut fork].into_iter().for_each(go_on);
    let mut second = fork.fork("second", None, true).unwrap();
    second.run_until_idle().unwrap();
    [&mut world, &mut fork, &mut second].into_iter().for_each(go_on);
    let drawn = |world: &World| serde_json::from_str::<Vec<String>>(&world.output()).unwrap();
    let (original, forked) = (drawn(&world), drawn(&fork));
    assert_eq!(original[..3], forked[..3]);
    assert!(forked[3].starts_with("fork ") && original[3] != forked[3], "{forked:?}");
    assert_eq!(drawn(&second), forked, "it was drawn before the second fork");
}

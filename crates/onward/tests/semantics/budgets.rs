//! Budgets as the code sees them: the same in every replay, wherever it crashed (BG5).

use onward::Budget;
use onward::agent::AgentCtx;
use onward::prelude::*;
use onward::testing::{Replay, World};
use onward_core::budget::BudgetUse;
use onward_core::event::{ChildCompleted, RunResumed, TaskAttemptEnded, TaskAttempted, TaskCompleted};
use onward_core::spend::{PicoDollars, Spend, Tokens};
use onward_core::{CallId, Event, Payload, Status};

use super::count;

/// An event of a run.
#[derive(Clone, Copy)]
enum Beat {
    Begins,
    Costs(u64),
    Ends,
    ChildEnds(u64),
}

/// Returns the id of the last call of this kind.
fn last(world: &World, of: impl Fn(&Event) -> Option<&CallId>) -> CallId {
    world.log().events().filter_map(|(_, event)| of(event).cloned()).last().expect("it was asked for")
}

fn last_task(world: &World) -> CallId {
    last(world, |event| if let Event::TaskScheduled(event) = event { Some(&event.call_id) } else { None })
}

fn happens(world: &mut World, beat: Beat) {
    let (ledger_name, now, generation) = (Some("m".to_owned()), world.now(), world.generation());
    let event: Event = match beat {
        Beat::Begins => TaskAttempted { call_id: last_task(world), attempt: 1, ledger_name, began_at: Some(now) }.into(),
        Beat::Costs(tokens) => TaskAttemptEnded {
            call_id: last_task(world),
            generation,
            attempt: 1,
            claim: 1,
            began_at: now,
            ledger_name,
            failure_code: None,
            spend: vec![Spend::on("m").tokens(Tokens { input: tokens, ..Tokens::default() })],
        }
        .into(),
        Beat::Ends => {
            TaskCompleted { call_id: last_task(world), output: Payload::json(&1).unwrap(), attempts: 1, ran: None }.into()
        }
        Beat::ChildEnds(tokens) => {
            let call_id = last(world, |event| if let Event::ChildStarted(event) = event { Some(&event.call_id) } else { None });
            let spent = Some(BudgetUse { tokens, cost: PicoDollars(0) });
            ChildCompleted { call_id, output: Payload::json(&1).unwrap(), child: None, spent }.into()
        }
    };
    world.input(event).unwrap();
}

/// Plays the events, with a crash after each position that is in `crashes`, before and after the code continues.
fn play(mut world: World, beats: &[Beat], crashes: impl Fn(usize) -> bool) -> World {
    world.run_until_idle().unwrap();
    for (position, beat) in beats.iter().enumerate() {
        happens(&mut world, *beat);
        if crashes(position) {
            world.crash();
        }
        world.run_until_idle().unwrap();
        if crashes(position) {
            world.crash();
            world.run_until_idle().unwrap();
        }
    }
    world
}

/// Runs tasks while much of the budget is left, then starts a child, and returns what it saw.
async fn thrifty(ctx: Ctx, _: ()) -> Result<Vec<u64>> {
    ctx.set_budget(Budget::default().tokens(100));
    let mut seen = Vec::new();
    loop {
        let (left, spent) = (ctx.budget_left().tokens.unwrap_or(1_000), ctx.spent().tokens);
        seen.extend([left, spent]);
        match left {
            0..30 => return Ok(seen),
            30..60 => drop(ctx.child::<u32>("helper", &left).await?),
            _ => drop(ctx.task::<u32>("ask", &left).costs().await?),
        }
    }
}

#[test]
fn code_that_goes_by_what_is_left_goes_the_same_way_after_every_crash() {
    use Beat::{Begins, ChildEnds, Costs, Ends};
    let beats = [Begins, Costs(10), Ends, Begins, Begins, Costs(35), Ends, ChildEnds(20), ChildEnds(9)];
    let plain = play(World::new(thrifty, &()), &beats, |_| false);
    assert_eq!(plain.output(), "[1000,0,90,10,55,45,35,65,26,74]");
    for crash in 0..beats.len() {
        let crashed = play(World::new(thrifty, &()), &beats, |position| position == crash);
        assert_eq!((crashed.output(), crashed.event_names()), (plain.output(), plain.event_names()), "behind beat {crash}");
    }
    let often = play(World::new(thrifty, &()), &beats, |_| true);
    assert_eq!(often.output(), plain.output());
}

/// The same as an agent, whose first call depends on configuration that is not recorded.
async fn frugal(ctx: AgentCtx, _: ()) -> Result<Vec<u64>> {
    ctx.set_budget(Budget::default().tokens(100));
    ctx.append("system", if *ctx.dep::<bool>() { "be polite" } else { "be brief" }).await?;
    let mut seen = Vec::new();
    loop {
        let left = ctx.budget_left().tokens.unwrap_or(1_000);
        seen.push(left);
        if left < 30 {
            return Ok(seen);
        }
        ctx.task::<u32>("ask", &seen.len()).costs().pure().await?;
    }
}

/// The cost of an abandoned segment stays spent, and is seen in the order of the log.
#[test]
fn an_agent_that_has_left_a_part_of_its_log_sees_what_that_has_cost_after_every_crash() {
    use Beat::{Begins, Costs, Ends};
    let left = || {
        let mut world = play(World::new_agent(frugal, &()).dep(false), &[Begins, Costs(30), Ends, Begins, Costs(20)], |_| false);
        world.crash();
        world.dep(true)
    };
    // The call that had begun is taken over, with its answer.
    let beats = [Ends, Begins, Costs(40), Ends];
    let plain = play(left(), &beats, |_| false);
    assert_eq!((count(&plain, "segment_abandoned"), plain.output().as_str()), (1, "[1000,70,50,10]"));
    assert_eq!(count(&plain, "budget_set"), 2, "the second one has no effect");
    for crash in 0..beats.len() {
        let crashed = play(left(), &beats, |position| position == crash);
        assert_eq!((crashed.output(), crashed.event_names()), (plain.output(), plain.event_names()), "behind beat {crash}");
    }
    Replay::new("test", plain.log()).dep(true).against_agent(frugal).unwrap();
}

/// Branches in its second generation by what the first has left.
async fn two_pages(ctx: Ctx, page: u32) -> Result<u64> {
    if page == 0 {
        ctx.set_budget(Budget::default().tokens(100).seconds(3_600));
        ctx.task::<u32>("ask", &page).costs().await?;
        return ctx.continue_as_new(&1u32).await;
    }
    let left = ctx.budget_left();
    let kind = if left.tokens == Some(70) && left.seconds == Some(3_540) { "few" } else { "many" };
    ctx.task::<u32>(kind, &left.tokens).await?;
    Ok(ctx.budget_left().tokens.unwrap_or_default())
}

/// The copied part was decided by what the original had left then, the rest by what the fork has: the same (BG6).
#[test]
fn a_fork_goes_the_way_of_its_original_up_to_where_it_begins() {
    use Beat::{Begins, Costs, Ends};
    let mut world = play(World::new(two_pages, &0u32), &[Begins, Costs(30)], |_| false);
    world.advance_time(std::time::Duration::from_secs(60));
    let world = play(world, &[Ends], |_| false);
    let scheduled = |world: &World| {
        let mut kinds = Vec::new();
        for (_, event) in world.log().events() {
            kinds.extend(if let Event::TaskScheduled(event) = event { Some(event.kind.to_string()) } else { None });
        }
        kinds
    };
    assert_eq!((world.generation(), scheduled(&world)), (1, vec!["few".to_owned()]));
    let fork = play(world.fork("fork", None, true).unwrap(), &[Ends], |_| true);
    assert_eq!((fork.status(), fork.output().as_str()), (Status::Completed, "70"));
    let original = play(world, &[Ends], |_| true);
    assert_eq!(original.output(), "70");
}

/// BG4.
#[test]
fn a_budget_that_the_code_sets_is_recorded_once_and_newer_code_may_set_another() {
    async fn sets(ctx: Ctx, _: ()) -> Result<Option<u64>> {
        ctx.set_budget(Budget::default().tokens(100));
        ctx.task::<u32>("ask", &1).await?;
        ctx.set_budget(Budget::default().tokens(900));
        ctx.task::<u32>("ask", &2).await?;
        Ok(ctx.budget_left().tokens)
    }
    async fn sets_more(ctx: Ctx, _: ()) -> Result<Option<u64>> {
        ctx.set_budget(Budget::default().tokens(500));
        ctx.task::<u32>("ask", &1).await?;
        ctx.set_budget(Budget::default().tokens(900));
        ctx.task::<u32>("ask", &2).await?;
        Ok(ctx.budget_left().tokens)
    }
    let world = play(World::new(sets, &()), &[Beat::Ends, Beat::Ends], |_| true);
    assert_eq!((world.output().as_str(), count(&world, "budget_set")), ("100", 1));
    Replay::new("test", world.log()).against(sets_more).unwrap();
}

/// BG5: a signal can be consumed before it is delivered; a grant before it is seen with it.
#[test]
fn code_that_takes_a_signal_sees_what_was_granted_before_it() {
    async fn looks(ctx: Ctx, _: ()) -> Result<Vec<Option<u64>>> {
        let before = ctx.budget_left().turns;
        let () = ctx.signal("go").recv().await?;
        Ok(vec![before, ctx.budget_left().turns])
    }
    for crashes in [false, true] {
        let mut world = World::new(looks, &());
        world.input(RunResumed { budget: Some(Budget::default().turns(9)) }).unwrap();
        world.signal("go", &());
        world.run_until_idle().unwrap();
        if crashes {
            world.crash();
            world.run_until_idle().unwrap();
        }
        assert_eq!(world.output(), "[null,9]");
        Replay::new("test", world.log()).against(looks).unwrap();
    }
}

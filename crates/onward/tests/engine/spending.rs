//! The cost of attempts, as task functions report it (LG1).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use onward::agent::{AgentCtx, MESSAGE, Spawned, Turn};
use onward::ledger::{SpendBy, SpendQuery};
use onward::prelude::*;
use onward::spend::{PicoDollars, Spend, SpendTotals, Tokens};
use onward::{Budget, Builder, RunHandle, RunQuery, Status, TaskCtx};
use onward_core::event::PauseReason;

use crate::site::{eventually, everywhere, until_logged};

fn line(model: &str, tokens: u64) -> Spend {
    let tokens = Tokens { input: tokens, ..Tokens::default() };
    Spend::on(model).by("acme").tokens(tokens).cost(PicoDollars(tokens.input))
}

async fn totals<O>(run: &RunHandle<O>) -> SpendTotals {
    run.view().await.unwrap().head.spend.map_or(SpendTotals::default(), |totals| *totals)
}

/// Returns attempts, unknown ones, tokens.
async fn counted<O>(run: &RunHandle<O>) -> (u64, u64, u64) {
    let totals = totals(run).await;
    (totals.attempts, totals.unknown, totals.tokens.total())
}

/// Reports 3 at first and 5 at the end; fails the first time.
async fn answers(ctx: TaskCtx, (): ()) -> Result<u32> {
    ctx.spend(line("small", 3));
    ctx.spend(line("small", 5));
    if ctx.attempt() == 1 { Err(Failure::retryable("busy")) } else { Ok(7) }
}

/// Costs 3, and never ends.
async fn hangs(ctx: TaskCtx, (): ()) -> Result<u32> {
    ctx.spend(line("small", 3));
    ctx.dep::<Arc<AtomicU32>>().fetch_add(1, Ordering::SeqCst);
    std::future::pending().await
}

async fn asks(ctx: Ctx, (): ()) -> Result<u32> {
    ctx.task("llm.small", &()).retry(2).await
}

async fn gives_up(ctx: Ctx, (): ()) -> Result<()> {
    let call = ctx.task::<u32>("llm.hangs", &());
    ctx.signal("enough").recv::<()>().await?;
    call.cancel();
    ctx.signal("end").recv::<()>().await
}

async fn waits_too_short(ctx: Ctx, (): ()) -> Result<()> {
    let outcome = ctx.task::<u32>("llm.hangs", &()).timeout(secs(5)).await;
    assert_eq!(outcome.unwrap_err().code, "timed_out");
    ctx.signal("end").recv::<()>().await
}

async fn cheap(ctx: TaskCtx, (): ()) -> Result<u32> {
    ctx.spend(line("small", 4));
    Ok(1)
}

/// Runs a task `times` times, for 4 tokens each.
async fn asks_often(ctx: Ctx, times: u32) -> Result<u32> {
    let mut sum = 0;
    for _ in 0..times {
        sum += ctx.task::<u32>("llm.cheap", &()).await?;
    }
    Ok(sum)
}

async fn delegates(ctx: Ctx, (): ()) -> Result<u32> {
    let first = ctx.child::<u32>("asks-often", &2).budget(Budget::default().tokens(20));
    let first = first.await?;
    // What the first child left is available again.
    let second = ctx.child::<u32>("asks-often", &3).budget(Budget::default().tokens(12)).await?;
    Ok(first + second)
}

/// Fails the first time.
async fn stumbles(ctx: TaskCtx, (): ()) -> Result<u32> {
    if ctx.dep::<Arc<AtomicU32>>().fetch_add(1, Ordering::SeqCst) == 0 { Err(Failure::fatal("a stone")) } else { Ok(1) }
}

/// Runs a task twice, and then one that fails at first.
async fn asks_and_stumbles(ctx: Ctx, (): ()) -> Result<u32> {
    let sum = ctx.task::<u32>("llm.cheap", &()).await? + ctx.task::<u32>("llm.cheap", &()).await?;
    Ok(sum + ctx.task::<u32>("stumbles", &()).await?)
}

async fn sends_out(ctx: Ctx, (): ()) -> Result<u32> {
    ctx.child::<u32>("asks-and-stumbles", &()).budget(Budget::default().tokens(18)).await
}

/// Spends something after a message.
async fn asks_when_told(ctx: Ctx, times: u32) -> Result<u32> {
    let () = ctx.signal(MESSAGE).recv().await?;
    asks_often(ctx, times).await
}

/// Spawns a child in one turn and lets it spend in another; returns what was left before, and on a signal.
async fn keeps_a_helper(ctx: AgentCtx, (): ()) -> Result<(Option<u64>, Option<u64>)> {
    ctx.turns(None, |helper: Option<Spawned<u32>>| {
        let ctx = ctx.clone();
        async move {
            let Some(helper) = helper else {
                return Ok(Turn::Next(Some(ctx.spawn_within("asks-when-told", &2, Budget::default().tokens(10))?)));
            };
            let before = ctx.budget_left().tokens;
            helper.message(&ctx, &())?;
            let () = ctx.signal("look").recv().await?;
            Ok(Turn::Done((before, ctx.budget_left().tokens)))
        }
    })
    .await
}

fn with_code(builder: Builder, begun: &Arc<AtomicU32>) -> Builder {
    builder
        .workflow("asks", asks)
        .workflow("gives-up", gives_up)
        .workflow("waits-too-short", waits_too_short)
        .workflow("asks-often", asks_often)
        .workflow("asks-when-told", asks_when_told)
        .workflow("delegates", delegates)
        .workflow("asks-and-stumbles", asks_and_stumbles)
        .workflow("sends-out", sends_out)
        .agent("keeps-a-helper", keeps_a_helper)
        .task("stumbles", stumbles)
        .task("llm.cheap", cheap)
        .task("llm.small", answers)
        .task("small", answers)
        .task("llm.hangs", hangs)
        .dep(begun.clone())
}

everywhere! {
    async fn a_failed_attempt_and_the_next_one_are_counted(site) {
        let onward = with_code(site.builder().await, &Arc::default()).start().await.unwrap();
        let run = onward.start::<u32, _>("asks", &()).await.unwrap();
        until_logged(&run, "task_attempt_ended", 1).await;
        assert_eq!(counted(&run).await, (1, 0, 5), "the later word counts");
        let end = eventually("the next attempt", async || {
            site.pass(&onward, secs(1)).await;
            (counted(&run).await.0 == 2).then_some(())
        });
        end.await;
        assert_eq!(run.result().await.unwrap(), 7);
        assert_eq!((counted(&run).await, totals(&run).await.cost), ((2, 0, 10), PicoDollars(10)));
        let rows = onward.read_spend(SpendQuery::by(SpendBy::Model)).await.unwrap();
        assert_eq!((rows.len(), rows[0].name.as_str(), rows[0].totals), (1, "small", totals(&run).await));
        onward.shutdown().await;
    }

    async fn a_run_that_has_spent_its_budget_pauses_until_it_may_spend_more(site) {
        let onward = with_code(site.builder().await, &Arc::default()).start().await.unwrap();
        let run = onward.start::<u32, _>("asks-often", &3).budget(Budget::default().tokens(8)).await.unwrap();
        let view = run.until(|view| view.pause.is_some()).await.unwrap();
        assert_eq!(view.pause.unwrap().reason, PauseReason::BudgetExhausted);
        assert_eq!((view.head.status, counted(&run).await), (Status::Paused, (2, 0, 8)));
        // Without a larger budget it pauses again.
        run.resume().await.unwrap();
        until_logged(&run, "run_paused", 2).await;
        assert_eq!(counted(&run).await, (2, 0, 8));
        run.resume_with(Budget::default().tokens(100)).await.unwrap();
        assert_eq!(run.result().await.unwrap(), 3);
        assert_eq!(counted(&run).await, (3, 0, 12));
        onward.shutdown().await;
    }

    async fn children_spend_what_they_are_given_and_what_they_leave_comes_back(site) {
        let onward = with_code(site.builder().await, &Arc::default()).start().await.unwrap();
        let run = onward.start::<u32, _>("delegates", &()).budget(Budget::default().tokens(20)).await.unwrap();
        assert_eq!(run.result().await.unwrap(), 5);
        let head = run.view().await.unwrap().head;
        assert_eq!((head.spend, head.budget.unwrap().children.tokens), (None, 20));
        onward.shutdown().await;
    }

    async fn a_child_that_is_started_again_gets_what_its_parent_has_left(site) {
        let onward = with_code(site.builder().await, &Arc::default()).start().await.unwrap();
        let run = onward.start::<u32, _>("sends-out", &()).id("p").budget(Budget::default().tokens(20)).await.unwrap();
        assert!(run.result().await.is_err());
        run.retry("the stone is gone").await.unwrap();
        assert_eq!(run.result().await.unwrap(), 3);
        let budget = run.view().await.unwrap().head.budget.unwrap();
        assert_eq!((budget.children.tokens, budget.lent.len()), (16, 0));
        let runs = onward.list_runs(RunQuery::default()).await.unwrap().runs;
        let children = runs.iter().filter(|head| head.parent.is_some());
        let mut given: Vec<_> = children.map(|head| head.budget.as_ref().unwrap().limit.tokens).collect();
        given.sort();
        assert_eq!(given, [Some(12), Some(18)], "8 of 20 are gone when it is started again");
        onward.shutdown().await;
    }

    async fn a_slice_of_a_spawned_child_is_out_from_turn_to_turn_until_it_ends(site) {
        let onward = with_code(site.builder().await, &Arc::default()).start().await.unwrap();
        let budget = Budget::default().tokens(30);
        let run = onward.start::<(Option<u64>, Option<u64>), _>("keeps-a-helper", &()).budget(budget).await.unwrap();
        until_logged(&run, "child_settled", 1).await;
        run.signal("look", &()).await.unwrap();
        assert_eq!(run.result().await.unwrap(), (Some(20), Some(22)), "its result is not awaited");
        onward.shutdown().await;
    }

    async fn a_standalone_task_is_counted(site) {
        let onward = with_code(site.builder().await, &Arc::default()).start().await.unwrap();
        let task = onward.task::<u32, _>("small", &()).costs().id("t").retry(2).await.unwrap();
        eventually("it has ended", async || {
            site.pass(&onward, secs(1)).await;
            task.view().await.unwrap().outcome
        })
        .await
        .unwrap();
        assert_eq!(counted(&onward.run::<u32>("t").unwrap()).await, (2, 0, 10));
        onward.shutdown().await;
    }

    async fn a_canceled_attempt_reports_its_cost(site) {
        let begun = Arc::default();
        let onward = with_code(site.builder().await, &begun).start().await.unwrap();
        let run = onward.start::<(), _>("gives-up", &()).await.unwrap();
        eventually("it begins", async || (begun.load(Ordering::SeqCst) == 1).then_some(())).await;
        assert_eq!(counted(&run).await, (1, 1, 0));
        run.signal("enough", &()).await.unwrap();
        until_logged(&run, "task_attempt_ended", 1).await;
        assert_eq!(counted(&run).await, (1, 0, 3));
        run.signal("end", &()).await.unwrap();
        run.result().await.unwrap();
        onward.shutdown().await;
    }

    async fn an_attempt_that_timed_out_reports_its_cost(site) {
        site.lease.set(secs(30)).unwrap();
        let begun = Arc::default();
        let onward = with_code(site.builder().await, &begun).start().await.unwrap();
        let run = onward.start::<(), _>("waits-too-short", &()).await.unwrap();
        eventually("it begins", async || (begun.load(Ordering::SeqCst) == 1).then_some(())).await;
        site.pass(&onward, secs(5)).await;
        eventually("it is told", async || {
            site.pass(&onward, secs(1)).await;
            (counted(&run).await == (1, 0, 3)).then_some(())
        })
        .await;
        run.signal("end", &()).await.unwrap();
        run.result().await.unwrap();
        onward.shutdown().await;
    }

    async fn an_attempt_that_a_stopping_worker_gives_back_reports_its_cost(site) {
        let begun = Arc::default();
        let onward = with_code(site.builder().await, &begun).start().await.unwrap();
        let run = onward.start::<(), _>("gives-up", &()).id("r").await.unwrap();
        eventually("it begins", async || (begun.load(Ordering::SeqCst) == 1).then_some(())).await;
        drop(run);
        onward.shutdown().await;
        let onward = with_code(site.builder().await, &begun).start().await.unwrap();
        let run = onward.run::<()>("r").unwrap();
        eventually("it begins again", async || (begun.load(Ordering::SeqCst) == 2).then_some(())).await;
        assert_eq!(counted(&run).await, (2, 1, 3), "the first is known, the second is under way");
        run.signal("enough", &()).await.unwrap();
        eventually("both are known", async || (counted(&run).await == (2, 0, 6)).then_some(())).await;
        onward.shutdown().await;
    }
}

/// BG7: an unknown amount of dollars.
#[tokio::test]
async fn a_budget_of_dollars_does_not_take_a_model_without_a_price_for_free() {
    let ask = |ctx: TaskCtx, (): ()| async move {
        ctx.spend(Spend::on("unpriced").tokens(Tokens { input: 5, ..Tokens::default() }));
        Ok::<_, Failure>(())
    };
    async fn asks(ctx: Ctx, times: u32) -> Result<u32> {
        for _ in 0..times {
            ctx.task::<()>("ask", &()).costs().await?;
        }
        Ok(times)
    }
    let onward = crate::in_memory().workflow("asks", asks).task("ask", ask).start().await.unwrap();
    let run = onward.start::<u32, _>("asks", &3).id("r").budget(Budget::default().cost(PicoDollars(1))).await.unwrap();
    let pause = crate::site::paused(&run).await;
    assert_eq!(pause.reason, PauseReason::BudgetExhausted);
    assert!(pause.message.contains("a model without a price"), "{}", pause.message);
    assert_eq!(run.view().await.unwrap().head.spend.unwrap().attempts, 1, "before it was known");
    run.resume().await.unwrap();
    assert_eq!(run.result().await.unwrap(), 3, "resuming accepts it");
    onward.shutdown().await;
}

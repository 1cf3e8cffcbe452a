//! Recorded logs are replayed with the identity of their run.

use onward::prelude::*;
use onward::testing::{Replay, Script};
use onward::{Log, Onward};

/// A dependency that the code reads on every replay.
struct Prices {
    teapot: u64,
}

async fn double(_: Ctx, cents: u64) -> Result<u64> {
    Ok(cents * 2)
}

/// A workflow in which everything depends on the run: its id, the ids of its child and its promise, its random seed.
async fn order(ctx: Ctx, item: String) -> Result<String> {
    let cents = ctx.dep::<Prices>().teapot;
    let answer = ctx.promise::<String>("label");
    let (label, run, chance) = (answer.id(), ctx.run_id(), ctx.random());
    ctx.step("hand out", async || Ok::<_, Failure>(())).input(&(label, run, chance)).await?;
    let paid: u64 = ctx.child("double", &cents).await?;
    ctx.step("record", async || Ok::<_, Failure>(())).input(&ctx.uuid()).await?;
    Ok(format!("{item} for {paid}"))
}

async fn recorded_log() -> Log {
    let builder = Onward::in_memory().namespace("shop").workflow("order", order).workflow("double", double);
    let onward = builder.dep(Prices { teapot: 21 }).start().await.unwrap();
    let run = onward.start::<String, _>("order", "a teapot").id("order-42").await.unwrap();
    assert_eq!(run.result().await.unwrap(), "a teapot for 42");
    let log = Log::load(run.log().await.unwrap()).unwrap();
    Log::from_json_lines(&log.to_json_lines()).unwrap() // as fixtures are stored
}

#[tokio::test]
async fn the_log_of_a_real_run_replays_with_its_id_namespace_seed_and_dependencies() {
    let log = recorded_log().await;
    let replay = || Replay::new("order-42", &log).namespace("shop").dep(Prices { teapot: 21 });
    replay().against(order).unwrap();

    // Each of them matters.
    let other_run = Replay::new("test", &log).namespace("shop").dep(Prices { teapot: 21 }).against(order).unwrap_err();
    assert!(other_run.message.contains("step `hand out`"), "{}", other_run.message);
    let other_price = replay().dep(Prices { teapot: 5 }).against(order).unwrap_err();
    assert!(other_price.message.contains("child `double`"), "{}", other_price.message);
    let nothing = Replay::new("order-42", &log).namespace("shop").against(order).unwrap_err();
    assert!(nothing.message.contains("no dependency of type `semantics::kit::replaying::Prices`"), "{}", nothing.message);
}

#[test]
fn a_script_records_as_the_run_it_names() {
    let script =
        Script::new(order, "a teapot").id("order-7").dep(Prices { teapot: 4 }).child("double", |cents: u64| Ok(cents * 2));
    let outcome = script.run();
    assert_eq!(outcome.output::<String>(), "a teapot for 8");
    Replay::new("order-7", outcome.log()).dep(Prices { teapot: 4 }).against(order).unwrap();
    script.crash_everywhere();
}

#[test]
fn a_log_of_a_later_generation_replays_alone() {
    async fn count(ctx: Ctx, left: u32) -> Result<u32> {
        ctx.step("count", async || Ok::<_, Failure>(())).input(&(ctx.generation(), ctx.random())).await?;
        if left > 0 { ctx.continue_as_new(&(left - 1)).await } else { Ok(ctx.generation()) }
    }
    let outcome = Script::new(count, &2u32).run();
    assert_eq!(outcome.output::<u32>(), 2);
    assert_eq!(outcome.continued_with::<u32>(), [1, 0]);
    for log in outcome.logs() {
        Replay::new("test", log).against(count).unwrap();
    }
}

//! Promises that callers find by a key, as a user sees them: in memory, in a directory, encrypted and over a server.

use onward::prelude::*;
use onward::{Builder, RunHandle, Status};

use crate::site::{Site, eventually, everywhere, until_logged, until_status};

const KEY: &str = "payment/42";

/// Waits for the promise, and then for a signal.
async fn pay(ctx: Ctx, (): ()) -> Result<String> {
    let paid = ctx.promise::<String>("paid").key(KEY).within(hours(1)).await;
    let result = paid.unwrap_or_else(|failure| failure.code);
    ctx.signal("end").recv::<()>().await?;
    Ok(result)
}

/// Stops waiting for the promise when a signal comes first.
async fn give_up(ctx: Ctx, (): ()) -> Result<String> {
    onward::select! {
        paid = ctx.promise::<String>("paid").key(KEY) => return paid,
        stop = ctx.signal("stop").recv::<()>() => stop?,
    }
    ctx.signal("end").recv::<()>().await?;
    Ok("gave up".to_owned())
}

/// Creates the promise again in each of two generations.
async fn again(ctx: Ctx, round: u32) -> Result<String> {
    let paid: String = ctx.promise("paid").key(KEY).await?;
    if round == 0 { ctx.continue_as_new(&1u32).await } else { Ok(paid) }
}

async fn unfit(ctx: Ctx, length: usize) -> Result<()> {
    ctx.promise("paid").key("k".repeat(length)).await
}

fn with_code(builder: Builder) -> Builder {
    builder.workflow("pay", pay).workflow("give-up", give_up).workflow("again", again).workflow("unfit", unfit)
}

async fn engine(site: &Site) -> Onward {
    with_code(site.builder().await).start().await.unwrap()
}

/// Waits until the key leads to a promise of the run, and returns its id.
async fn found<O>(onward: &Onward, run: &RunHandle<O>) -> String {
    let own = format!("{}~", run.id());
    eventually("the key", async || onward.find_promise(KEY).await.ok().filter(|promise| promise.starts_with(&own))).await
}

async fn start(onward: &Onward, kind: &str, id: &str) -> RunHandle<String> {
    onward.start::<String, _>(kind, &()).id(id).await.unwrap()
}

async fn end(run: &RunHandle<String>) -> String {
    run.signal("end", &()).await.unwrap();
    run.result().await.unwrap()
}

everywhere! {
    async fn a_promise_is_resolved_by_its_key_once(site) {
        let onward = engine(site).await;
        assert_eq!(onward.find_promise(KEY).await.unwrap_err().code(), "promise_key_not_found");
        let run = start(&onward, "pay", "a").await;
        let promise = found(&onward, &run).await;
        let first = onward.resolve(&promise, "paid", "hook-1").await.unwrap();
        let again = onward.resolve(&onward.find_promise(KEY).await.unwrap(), "paid", "hook-1").await.unwrap();
        assert!(again.repeated && again.index == first.index);
        let lost = onward.resolve(&onward.find_promise(KEY).await.unwrap(), "refunded", "hook-2").await.unwrap_err();
        assert_eq!(lost.code(), "signal_lost");
        assert_eq!(end(&run).await, "paid");
        assert_eq!(onward.find_promise(KEY).await.unwrap(), promise, "PK2");
        assert!(onward.resolve(&promise, "paid", "hook-1").await.unwrap().repeated, "also after the end");
    }

    /// PK1
    async fn of_two_open_promises_with_one_key_the_second_fails(site) {
        let onward = engine(site).await;
        let first = start(&onward, "pay", "a").await;
        let promise = found(&onward, &first).await;
        let second = start(&onward, "pay", "b").await;
        until_logged(&second, "promise_resolved", 1).await;
        assert_eq!(end(&second).await, "promise_key_taken");
        assert_eq!(onward.find_promise(KEY).await.unwrap(), promise, "the first one still has it");
        onward.resolve(&promise, "paid", "hook-1").await.unwrap();
        assert_eq!(end(&first).await, "paid");
    }

    /// PK1
    async fn a_promise_that_times_out_leaves_its_key_to_the_next_one(site) {
        let onward = engine(site).await;
        let first = start(&onward, "pay", "a").await;
        let promise = found(&onward, &first).await;
        site.pass(&onward, mins(61)).await;
        until_logged(&first, "timer_fired", 1).await;
        assert_eq!(onward.resolve(&promise, "late", "hook-1").await.unwrap_err().code(), "signal_lost");
        let second = start(&onward, "pay", "b").await;
        onward.resolve(&found(&onward, &second).await, "paid", "hook-1").await.unwrap();
        assert_eq!((end(&first).await, end(&second).await), ("timed_out".to_owned(), "paid".to_owned()));
    }

    /// PK1
    async fn a_promise_that_is_no_longer_awaited_leaves_its_key_to_the_next_one(site) {
        let onward = engine(site).await;
        let first = start(&onward, "give-up", "a").await;
        found(&onward, &first).await;
        first.signal("stop", &()).await.unwrap();
        until_logged(&first, "wait_canceled", 1).await;
        let second = start(&onward, "pay", "b").await;
        onward.resolve(&found(&onward, &second).await, "paid", "hook-1").await.unwrap();
        assert_eq!((end(&first).await, end(&second).await), ("gave up".to_owned(), "paid".to_owned()));
    }

    /// PK1, PK2: the key of a generation that has ended goes to the next one.
    async fn the_next_generation_has_the_key_again(site) {
        let onward = engine(site).await;
        let run = onward.start::<String, _>("again", &0u32).id("a").await.unwrap();
        let first = found(&onward, &run).await;
        onward.resolve(&first, "once", "hook-1").await.unwrap();
        let next = async || onward.find_promise(KEY).await.ok().filter(|promise| *promise != first);
        let second = eventually("the promise of the next generation", next).await;
        assert_eq!((first.as_str(), second.as_str()), ("a~0~0", "a~1~0"));
        assert!(onward.resolve(&first, "once", "hook-1").await.unwrap().repeated, "a late repeat is one");
        onward.resolve(&second, "twice", "hook-1").await.unwrap();
        assert_eq!(run.result().await.unwrap(), "twice");
    }

    async fn a_key_that_is_too_long_or_empty_pauses_the_run(site) {
        let onward = engine(site).await;
        for length in [0, 1_025usize] {
            let run = onward.start::<(), _>("unfit", &length).await.unwrap();
            until_status(&run, Status::Paused).await;
            let pause = run.view().await.unwrap().pause.unwrap();
            assert!(pause.message.contains("1 to 1024 bytes"), "{}", pause.message);
        }
    }
}

//! The code that made the golden logs. It may grow after `ctx.version`; the recorded calls must stay the same forever.

use onward::agent::AgentCtx;
use onward::prelude::*;
use onward::{Budget, Decision, OnParentClose, join, select, try_join};
use onward_core::Name;

/// Chooses its first entry by configuration that is not recorded, pays, and ends with a checkpoint.
pub async fn agent(ctx: AgentCtx, _: ()) -> Result<String> {
    let is_polite = *ctx.dep::<bool>();
    ctx.append("system", if is_polite { "be polite" } else { "be brief" }).await?;
    let receipt: String = ctx.task("pay", &10).keyed().await?;
    ctx.append("tool", &receipt).await?;
    ctx.checkpoint(&receipt).await
}

/// Answers one message, after a checkpoint.
pub async fn branched(ctx: AgentCtx, _: ()) -> Result<String> {
    if ctx.checkpointed::<u32>()?.is_none() {
        ctx.append("system", "be brief").await?;
        return ctx.checkpoint(&1).await;
    }
    let word: String = ctx.signal("message").recv().await?;
    ctx.append("user", &word).await?;
    let answer: String = ctx.task("think", &word).pure().await?;
    ctx.append("assistant", &answer).await?;
    Ok(answer)
}

/// Spawns two children, waits for one, stops the other, and hands the conversation over.
pub async fn handed(ctx: AgentCtx, _: ()) -> Result<String> {
    let first = ctx.spawn::<String>("researcher", "rivers")?;
    let second = ctx.spawn::<String>("researcher", "bridges")?;
    first.message(&ctx, "be quick")?;
    let found = first.result(&ctx).await?;
    second.cancel(&ctx);
    for signal in ctx.signal("message").drain_with_sender::<String>()? {
        ctx.append("user", &format!("{}: {}", signal.from.map_or_else(String::new, |from| from.to_string()), signal.value))
            .await?;
    }
    ctx.append("tool", &found).await?;
    ctx.handoff("billing", &found).await
}

pub async fn steps(ctx: Ctx, order: String) -> Result<(u32, String)> {
    let charged = ctx.step("charge", async || Ok::<_, Failure>(100)).input(&order).await?;
    let flaky = ctx.step_with("flaky", async |attempt: Attempt| {
        if attempt.number < 3 { Err(Failure::retryable("busy").with_code("busy")) } else { Ok(attempt.number) }
    });
    let attempts = flaky.retry(3).await?;
    let refused = ctx.step("refused", async || Err::<(), _>(Failure::fatal("never"))).await.expect_err("it always fails");
    Ok((charged + attempts, refused.message))
}

pub async fn tasks(ctx: Ctx, _: ()) -> Result<Vec<String>> {
    let plain = ctx.task::<u32>("plain", &1);
    let tuned = ctx.task::<u32>("tuned", &[1, 2]).queue("slow").priority(7).retry(RetryPolicy::attempts(4).delay(secs(2)));
    let tuned =
        tuned.timeout(mins(1)).total_timeout(hours(1)).queued_timeout(mins(5)).heartbeat(secs(20)).idempotency_key("key-1");
    let settled = join_all_settled([plain, tuned]).await;
    let canceled = ctx.task::<u32>("canceled", &());
    canceled.cancel();
    let canceled = canceled.await;
    let text = |answer: Result<u32>| answer.map_or_else(|failure| failure.message, |n| n.to_string());
    Ok(settled.into_iter().chain([canceled]).map(text).collect())
}

/// Spends under a budget that it sets itself, and branches by what is left.
pub async fn budgets(ctx: Ctx, _: ()) -> Result<Vec<u64>> {
    ctx.set_budget(Budget::default().tokens(100).turns(9));
    let mut seen = Vec::new();
    ctx.task::<u32>("ask", &1).costs().await?;
    let left = ctx.budget_left().tokens.unwrap_or_default();
    seen.extend([left, ctx.spent().tokens]);
    if left > 50 {
        ctx.child::<u32>("helper", &left).budget(Budget::default().tokens(left / 2)).await?;
        seen.extend(ctx.budget_left().tokens);
    }
    let second = ctx.child::<u32>("helper", &"half of what is left").await;
    seen.extend(ctx.budget_left().tokens);
    seen.push(u64::from(second.is_err()));
    Ok(seen)
}

/// Spawns a child whose result it never awaits.
pub async fn settled(ctx: Ctx, _: ()) -> Result<Vec<u64>> {
    ctx.set_budget(Budget::default().tokens(100));
    ctx.spawn_within::<u32>("helper", &(), Budget::default().tokens(40))?;
    let () = ctx.signal("look").recv().await?;
    let mut seen: Vec<u64> = ctx.budget_left().tokens.into_iter().collect();
    let () = ctx.signal("look").recv().await?;
    seen.extend(ctx.budget_left().tokens);
    Ok(seen)
}

pub async fn timers(ctx: Ctx, _: ()) -> Result<(u64, bool)> {
    let before = ctx.now();
    ctx.sleep(hours(1)).await?;
    let slept = ctx.now().since(before).as_secs();
    ctx.sleep_until(ctx.now().after(secs(1))).await?;
    ctx.timeout(ctx.task::<()>("quick", &()), mins(1)).await?;
    let late = ctx.timeout(ctx.task::<()>("slow", &()), mins(1)).await.expect_err("nobody answers");
    Ok((slept, late.is_timed_out()))
}

pub async fn late(ctx: Ctx, _: ()) -> Result<(String, Vec<String>)> {
    let (began, early) = (ctx.now(), ctx.signal("a").drain::<String>()?);
    ctx.step("greet", async || Ok::<_, Failure>(())).await?;
    ctx.signal("b").recv::<()>().await?;
    Ok((began.to_string(), early))
}

pub async fn signals(ctx: Ctx, _: ()) -> Result<Vec<String>> {
    let mut seen = vec![format!("{}", ctx.signal("a").has())];
    seen.push(ctx.signal("a").recv::<String>().await?);
    let (name, value): (Name, String) = ctx.signals("user.*").recv().await?;
    seen.push(format!("{name}={value}"));
    seen.push(format!("{:?}", ctx.signal("never").recv_timeout::<()>(secs(5)).await?));
    seen.extend(ctx.signal("a").drain::<String>()?);
    seen.push(format!("{} {:?}", ctx.signals("*").count(), ctx.signal("b").try_recv::<u32>()?));
    ctx.send_signal("other", "hello", &seen.len())?;
    Ok(seen)
}

pub async fn approvals(ctx: Ctx, _: ()) -> Result<Vec<Decision>> {
    let full = ctx.approval("ship", "Ship it?").describe("two boxes").show(&[1, 2]).deciders(["ada", "bob"]).within(days(2));
    let approved = full.await?;
    let denied = ctx.approval("refund", "Refund it?").await?;
    let expired = ctx.approval("late", "Anybody?").within(hours(1)).await?;
    let withdrawn = ctx.approval("withdrawn", "Never mind");
    drop(withdrawn);
    Ok(vec![approved, denied, expired])
}

pub async fn promises(ctx: Ctx, _: ()) -> Result<Vec<String>> {
    let (kept, broken, late) = (ctx.promise::<String>("kept"), ctx.promise::<String>("broken"), ctx.promise::<String>("late"));
    let late = late.within(hours(1));
    ctx.step("hand out", async || Ok::<_, Failure>(())).await?;
    let all = join_all_settled([kept, broken, late]).await;
    Ok(all.into_iter().map(|answer| answer.unwrap_or_else(|failure| format!("{}: {failure}", failure.code))).collect())
}

pub async fn children(ctx: Ctx, _: ()) -> Result<Vec<String>> {
    let plain = ctx.child::<String>("work", &1);
    let tuned = ctx.child::<String>("work", &2).id("my-child").version("v2").on_parent_close(OnParentClose::Abandon);
    plain.signal("hello", "child")?;
    let settled = join_all_settled([plain, tuned]).await;
    let canceled = ctx.child::<String>("work", &3).on_parent_close(OnParentClose::Terminate);
    canceled.cancel();
    let canceled = canceled.await;
    Ok(settled.into_iter().chain([canceled]).map(|answer| answer.unwrap_or_else(|failure| failure.message)).collect())
}

/// Records random values, so that their derivation cannot change unnoticed.
pub async fn state(ctx: Ctx, _: ()) -> Result<(u32, Vec<String>)> {
    let mut count: u32 = 0;
    for turn in 0..3 {
        count = ctx.state().get::<u32>("count")?.unwrap_or_default() + 1;
        ctx.state().set("count", &count)?;
        ctx.state().set("chance", &(ctx.uuid(), ctx.random(), ctx.now()))?;
        ctx.signal("turn").recv::<u32>().await?;
        if turn == 1 {
            ctx.state().clear("chance");
        }
    }
    Ok((count, ctx.state().keys().iter().map(ToString::to_string).collect()))
}

pub async fn versions(ctx: Ctx, _: ()) -> Result<u32> {
    let first = ctx.version("first-change", 1, 2);
    ctx.step("between", async || Ok::<_, Failure>(())).await?;
    let second = ctx.version("second-change", 0, 5);
    ctx.signal("go").recv::<()>().await?;
    Ok(first * 10 + second + ctx.version("first-change", 1, 2))
}

pub async fn updates(ctx: Ctx, _: ()) -> Result<u32> {
    ctx.signal("open").recv::<()>().await?;
    let sum = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
    let shared = sum.clone();
    ctx.update("add", move |n: u32| {
        if n == 0 {
            return Err(Failure::fatal("nothing to add").with_code("nothing"));
        }
        Ok(shared.fetch_add(n, std::sync::atomic::Ordering::SeqCst) + n)
    });
    ctx.signal("close").recv::<()>().await?;
    Ok(sum.load(std::sync::atomic::Ordering::SeqCst))
}

pub async fn trip(ctx: Ctx, _: ()) -> Result<()> {
    for what in ["flight", "hotel"] {
        ctx.step(what, async || Ok::<_, Failure>(())).await?;
        ctx.on_failure(&format!("undo {what}"), || async { Ok::<_, Failure>(()) });
    }
    let (paid, _, _) =
        try_join!(ctx.signal("paid").recv::<()>(), ctx.task::<()>("remind", &()), ctx.child::<()>("watch", &()).id("watcher"))?;
    Ok(paid)
}

pub async fn failing(ctx: Ctx, _: ()) -> Result<()> {
    let cause = std::io::Error::other("the disk is gone");
    let failed = ctx.step("write", async || Err::<(), _>(std::io::Error::other(cause.to_string()))).await;
    let details = onward::Payload::json(&["a", "b"])?;
    let failure = Failure::fatal("the report cannot be written").with_code("no_report").with_details(details);
    let failure = failure.with_retry_after(secs(3));
    failed.map_err(|error| Failure { causes: vec![error.message], ..failure })
}

/// Takes one signal per generation.
pub async fn pages(ctx: Ctx, seen: Vec<u32>) -> Result<Vec<u32>> {
    let mut seen = seen;
    seen.push(ctx.signal("s").recv().await?);
    ctx.state().set("pages", &(ctx.generation(), ctx.random()))?;
    if seen.len() == 2 { Ok(seen) } else { ctx.continue_as_new(&seen).await }
}

pub async fn waiting(ctx: Ctx, _: ()) -> Result<()> {
    ctx.sleep(days(1)).await?;
    ctx.signal("end").recv().await
}

/// Joins in selects in joins: call ids with branches.
pub async fn branches(ctx: Ctx, _: ()) -> Result<String> {
    let one = async {
        select! {
            signal = ctx.signal("s").recv::<String>() => signal,
            slept = ctx.sleep(secs(10)) => slept.map(|()| "slept".to_owned()),
        }
    };
    let two = async {
        let both = join_all((0..2).map(|n| ctx.task::<String>("t", &n))).await?;
        ctx.step("inside", async || Ok::<_, Failure>(both.join("+"))).await
    };
    let three = race([ctx.task::<String>("r", &0), ctx.task::<String>("r", &1)]);
    let (one, two, three) = join!(one, two, three);
    Ok([one?, two?, three?].join(" "))
}

/// Text that JSON can encode in several ways, and bytes that are not JSON.
pub async fn payloads(ctx: Ctx, input: serde_json::Value) -> Result<serde_json::Value> {
    let bytes_are_no_json = ctx.signal("bytes").recv::<String>().await.is_err();
    let text: String = ctx.signal("text").recv().await?;
    ctx.state().set("größe \u{1f980}", &text)?;
    let number: serde_json::Value = ctx.task("echo", &input).await?;
    Ok(serde_json::json!([bytes_are_no_json, text, number]))
}

/// Fails because of a task or a child, and records its random values before and after.
pub async fn reopened(ctx: Ctx, _: ()) -> Result<Vec<String>> {
    ctx.attributes().set("customer", "42");
    ctx.attributes().set("items", 3);
    ctx.attributes().set("express", true);
    ctx.attributes().clear("items");
    let before = ctx.uuid();
    let child = ctx.child::<u32>("parcel", &1);
    let done: u32 = ctx.task("pack", &before).await?;
    let sent = child.await?;
    Ok(vec![before, ctx.uuid(), (done + sent).to_string()])
}

pub async fn memos(ctx: Ctx, _: ()) -> Result<(String, String)> {
    let recorded = ctx.step("measure", async || Ok::<_, Failure>("measured".to_owned())).input(&"x").memo(hours(1)).await?;
    let computed = ctx.task("fetch", &"y").memo(Memo::new(days(1)).key("page/y").in_tree()).await?;
    drop(ctx.task::<String>("fetch", &"z").memo(hours(1)));
    Ok((recorded, computed))
}

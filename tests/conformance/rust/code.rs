//! The workflows and tasks of claims.json.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use onward::prelude::*;
use onward::{Builder, CancelOutcome, Payload, RandomGenerator};
use serde_json::{Value, json};

use crate::{does, kind, mark, ms};

/// The code before a change.
fn is_old() -> bool {
    std::env::var_os("CONFORMANCE_OLD").is_some()
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
}

fn number(value: &Value) -> u64 {
    value.as_u64().expect("a number")
}

fn texts(value: &Value) -> Vec<&str> {
    value.as_array().expect("a list").iter().map(text).collect()
}

fn numbers(value: &Value) -> Vec<i64> {
    value.as_array().expect("a list").iter().map(|number| number.as_i64().expect("a number")).collect()
}

/// Returns the value, or code and message of the failure.
fn shown(outcome: Result<Value>) -> Value {
    outcome.unwrap_or_else(|failure| json!([failure.code, failure.message]))
}

fn explodes(ctx: &Ctx, name: &str, message: &'static str) -> impl Future<Output = Result<Value>> + use<> {
    ctx.step(name, async move || Err::<Value, _>(Failure::retryable(message)))
}

fn canceled_or<T>(outcome: Result<T>) -> bool {
    outcome.is_err_and(|failure| failure.code == "canceled")
}

pub fn register(builder: Builder) -> Builder {
    let builder = time(cancellation(signals(steps(builder))));
    ends(changes(children(facts(answers(tasks(builder))))))
}

fn steps(builder: Builder) -> Builder {
    let builder = kind(builder, "once", async |ctx: Ctx, names: Value| {
        let mut found = Vec::new();
        for name in texts(&names) {
            found.push(does(&ctx, name, name).await?);
        }
        Ok(found.into())
    });
    let builder = kind(builder, "values", async |ctx: Ctx, value: Value| does(&ctx, "echo", value).await);
    let builder = kind(builder, "retried", async |ctx: Ctx, given: Value| {
        let (run, before, delay) = (ctx.run_id().to_string(), ctx.now(), ms(number(&given["delay"])));
        let (succeeds, is_fatal) = (number(&given["succeeds"]), given["fatal"] == true);
        let attempts = u32::try_from(number(&given["attempts"])).expect("few attempts");
        let flaky = ctx.step_with("flaky", async move |attempt: Attempt| {
            mark(&run, "flaky");
            match u64::from(attempt.number) {
                number if number >= succeeds => Ok(Value::from(number)),
                _ if is_fatal => Err(Failure::fatal("never")),
                number => Err(Failure::retryable(format!("attempt {number}"))),
            }
        });
        let found = shown(flaky.retry(RetryPolicy::attempts(attempts).delay(delay)).await);
        Ok(json!({"found": found, "waited": ctx.now().since(before) >= delay}))
    });
    let builder = kind(builder, "slow-step", async |ctx: Ctx, _| {
        let run = ctx.run_id().to_string();
        let slow = ctx.step("slow", async move || {
            mark(&run, "slow");
            std::future::pending::<Result<Value>>().await
        });
        Ok(shown(slow.timeout(ms(30)).await)[0].clone())
    });
    let builder = kind(builder, "inputs", async |ctx: Ctx, value: Value| {
        let run = ctx.run_id().to_string();
        let reads = ctx.step("reads", async move || {
            mark(&run, "reads");
            Ok::<_, Failure>(json!(1))
        });
        reads.input(&value).record().await
    });
    let builder = kind(builder, "fails", async |ctx: Ctx, how: Value| match text(&how) {
        "step" => explodes(&ctx, "explodes", "out of stock").await,
        "code" => Err(Failure::retryable("in the code")),
        "own" => {
            let data = Payload::json(&json!({"data": {"limit": 5}}))?;
            Err(Failure::fatal("too much").with_code("declined").with_details(data))
        }
        "caught" => Ok(shown(explodes(&ctx, "explodes", "out of stock").await)),
        _ => {
            ctx.step("bad", async || Ok::<_, Failure>(vec![1.0, f64::NAN])).await?;
            Ok(Value::Null)
        }
    });
    let builder = kind(builder, "large", async |ctx: Ctx, size: Value| {
        let size = usize::try_from(number(&size)).expect("it fits");
        Ok(shown(ctx.step("large", async move || Ok::<Value, Failure>("x".repeat(size).into())).await)[0].clone())
    });
    let builder = kind(builder, "gathered", async |ctx: Ctx, names: Value| {
        Ok(join_all(texts(&names).into_iter().map(|name| does(&ctx, name, name))).await?.into())
    });
    let builder = kind(builder, "settled", async |ctx: Ctx, _| {
        let (a, b, c) = onward::join!(does(&ctx, "a", 1), explodes(&ctx, "b", "b broke"), does(&ctx, "c", 3));
        let message = |outcome: Result<Value>| outcome.unwrap_or_else(|failure| failure.message.into());
        Ok(json!([message(a), message(b), message(c)]))
    });
    let builder = kind(builder, "gather-fails", async |ctx: Ctx, _| {
        let both = onward::try_join!(does(&ctx, "a", 1), explodes(&ctx, "b", "b broke"));
        Ok(shown(both.map(|(a, b)| json!([a, b]))))
    });
    kind(builder, "many", async |ctx: Ctx, count: Value| {
        let mut total = 0;
        for n in 0..number(&count) {
            total += number(&does(&ctx, &format!("s{n}"), n).await?);
        }
        Ok(total.into())
    })
}

fn signals(builder: Builder) -> Builder {
    let builder = kind(builder, "receives", async |ctx: Ctx, given: Value| {
        let mut found: Vec<Value> = Vec::new();
        for turn in 0..number(&given["count"]) {
            found.push(ctx.signal(text(&given["name"])).recv().await?);
            does(&ctx, &format!("turn-{turn}"), Value::Null).await?;
        }
        Ok(found.into())
    });
    let builder = kind(builder, "polls", async |ctx: Ctx, _| {
        let _: Value = ctx.signal("go").recv().await?;
        let mailbox = ctx.signal("box");
        let before = (mailbox.has(), mailbox.count(), mailbox.try_recv::<Value>()?, mailbox.drain::<Value>()?);
        let found = json!([before.0, before.1, before.2, before.3, mailbox.has(), mailbox.count(), mailbox.try_recv::<Value>()?]);
        does(&ctx, "after", Value::Null).await?;
        Ok(found)
    });
    let builder = kind(builder, "pattern", async |ctx: Ctx, _| {
        let mailbox = ctx.signals("user.*");
        let (name, value): (_, Value) = mailbox.recv().await?;
        let _: Value = ctx.signal("go").recv().await?;
        let (has, count) = (mailbox.has(), mailbox.count());
        let rest: Vec<(_, Value)> = mailbox.drain()?;
        let last = mailbox.try_recv::<Value>()?;
        Ok(json!([[name, value], has, count, rest, last.map(|(_, value)| value)]))
    });
    let builder = kind(builder, "times-out", async |ctx: Ctx, _| {
        let early: Option<Value> = ctx.signal("late").recv_timeout(ms(20)).await?;
        ctx.state().set("early", &early)?;
        let late: Option<Value> = ctx.signal("late").recv_timeout(hours(1)).await?;
        Ok(json!([early, late]))
    });
    let builder = kind(builder, "sends", async |ctx: Ctx, to: Value| {
        ctx.send_signal(text(&to), "news", &json!({"from": "a child"}))?;
        Ok(Value::Null)
    });
    let builder = kind(builder, "gets-news", async |ctx: Ctx, _| {
        let child = ctx.child::<Value>("sends", &json!({"in": ctx.run_id()}));
        let news: Value = ctx.signal("news").recv().await?;
        child.await?;
        Ok(news)
    });
    let builder = kind(builder, "select", async |ctx: Ctx, given: Value| {
        let (first, answer) = onward::select! {
            answer = ctx.signal("answer").recv::<Value>() => (0, Some(answer?)),
            _ = ctx.sleep(ms(number(&given["ms"]))) => (1, None),
        };
        ctx.state().set("first", &first)?;
        let answer = match answer {
            Some(answer) => answer,
            None => ctx.signal("answer").recv().await?,
        };
        does(&ctx, "after", Value::Null).await?;
        Ok(json!([first, answer]))
    });
    let builder = kind(builder, "race-arrival", async |ctx: Ctx, _| {
        ctx.state().set("ready", &true)?;
        let first = first_of_two(&ctx).await?;
        let _: Value = ctx.signal("end").recv().await?;
        Ok(first)
    });
    kind(builder, "race-order", async |ctx: Ctx, _| {
        let _: Value = ctx.signal("go").recv().await?;
        first_of_two(&ctx).await
    })
}

async fn first_of_two(ctx: &Ctx) -> Result<Value> {
    Ok(onward::select! {
        _ = ctx.signal("x").recv::<Value>() => 0.into(),
        _ = ctx.signal("y").recv::<Value>() => 1.into(),
    })
}

fn time(builder: Builder) -> Builder {
    let builder = kind(builder, "sleeps", async |ctx: Ctx, span: Value| {
        let (before, span) = (ctx.now(), ms(number(&span)));
        ctx.sleep(span).await?;
        does(&ctx, "between", Value::Null).await?;
        ctx.sleep_until(ctx.now().after(span)).await?;
        Ok((ctx.now().since(before) >= 2 * span).into())
    });
    let builder = kind(builder, "timers", async |ctx: Ctx, spans: Value| {
        let order = Mutex::new(Vec::new());
        let wait = async |span: i64| {
            ctx.sleep(ms(span.unsigned_abs())).await?;
            order.lock().unwrap_or_else(PoisonError::into_inner).push(span);
            Ok(())
        };
        join_all(numbers(&spans).into_iter().map(|span| Box::pin(wait(span)))).await?;
        Ok(order.into_inner().unwrap_or_else(PoisonError::into_inner).into())
    });
    let builder = kind(builder, "draws", async |ctx: Ctx, seed: Value| {
        let (mut seeded, mut own) = (RandomGenerator::new(number(&seed)), ctx.random_generator());
        let mut items = [0, 1, 2, 3];
        let integers = items.map(|_| seeded.integer(-3..7));
        let (float, chance, choice) = (seeded.float(), seeded.chance(0.5), seeded.choice(&["a", "b", "c"]).copied());
        seeded.shuffle(&mut items);
        let made = json!([own.integer(0..1000), own.float()]);
        let kept = does(&ctx, "keep", made.clone()).await?;
        let _: Value = ctx.signal("go").recv().await?;
        Ok(json!([integers, float, chance, choice, items, kept == made]))
    });
    kind(builder, "replays", async |ctx: Ctx, _| {
        let uuid = ctx.uuid();
        // The top 53 bits, as in languages whose numbers are floats.
        #[allow(clippy::cast_precision_loss, reason = "53 bits are exact")]
        let random = (ctx.random() >> 11) as f64 / (1u64 << 53) as f64;
        let made = json!([uuid, random, ctx.uuid(), ctx.now().since(onward::Timestamp::default()).as_millis() as u64]);
        let kept = does(&ctx, "keep", made.clone()).await?;
        let _: Value = ctx.signal("go").recv().await?;
        Ok(json!([kept == made, made[0] != made[2], (0.0..1.0).contains(&random)]))
    })
}

fn cancellation(builder: Builder) -> Builder {
    let builder = kind(builder, "waits", async |ctx: Ctx, _| {
        ctx.state().set("ready", &true)?;
        ctx.signal("never").recv().await
    });
    let builder = kind(builder, "cleans-up", async |ctx: Ctx, how: Value| {
        ctx.state().set("ready", &true)?;
        if let Err(failure) = ctx.signal("never").recv::<Value>().await {
            does(&ctx, "clean-up", Value::Null).await?;
            if how == "raise" {
                return Err(failure);
            }
        }
        Ok(json!([ctx.is_canceled(), does(&ctx, "after", 1).await?]))
    });
    let builder = kind(builder, "watches-cancel", async |ctx: Ctx, _| {
        let (signal, canceled) = (ctx.signal("never").recv::<Value>(), ctx.canceled());
        ctx.state().set("ready", &true)?;
        let first = onward::select! {
            _ = signal => 0,
            _ = canceled => 1,
        };
        does(&ctx, "close-valve", Value::Null).await?;
        Ok(first.into())
    });
    let builder = kind(builder, "two-waits", async |ctx: Ctx, _| {
        let (timer, signal) = (ctx.sleep(hours(1)), ctx.signal("never").recv::<Value>());
        ctx.state().set("ready", &true)?;
        let (timer, signal) = onward::join!(timer, signal);
        does(&ctx, "after", Value::Null).await?;
        Ok(json!([canceled_or(timer), canceled_or(signal)]))
    });
    kind(builder, "parent-waits", async |ctx: Ctx, _| {
        let child = ctx.child::<Value>("waits", &json!({})).id(&format!("{}-child", ctx.run_id()));
        ctx.state().set("ready", &true)?;
        child.await
    })
}

fn tasks(builder: Builder) -> Builder {
    let builder = builder
        .task("double", async |given: Value| {
            mark(text(&given["run"]), "double");
            Ok::<_, Failure>(2 * number(&given["n"]))
        })
        .task("flaky-task", async |task: TaskCtx, given: Value| {
            mark(text(&given["run"]), "flaky-task");
            if u64::from(task.attempt()) < number(&given["succeeds"]) { Err(Failure::retryable("not yet")) } else { Ok("done") }
        })
        .task("key", async |task: TaskCtx, _: Value| Ok::<_, Failure>(task.idempotency_key().to_owned()))
        .task("beats", async |task: TaskCtx, given: Value| {
            for done in 0..3 {
                task.heartbeat(&json!({"done": done}));
                tokio::time::sleep(ms(2)).await;
            }
            mark(text(&given["run"]), "beats");
            Ok::<_, Failure>(task.is_canceled())
        })
        .task("hangs", async |_: Value| std::future::pending::<Result<Value>>().await);
    let builder = kind(builder, "task", async |ctx: Ctx, given: Value| {
        let mut input = given["input"].as_object().cloned().unwrap_or_default();
        input.insert("run".to_owned(), ctx.run_id().as_str().into());
        let attempts = given["attempts"].as_u64().map_or(1, |attempts| u32::try_from(attempts).expect("few attempts"));
        let call = ctx.task::<Value>(text(&given["kind"]), &input).retry(RetryPolicy::attempts(attempts).delay(ms(1)));
        let call = given["timeout"].as_u64().into_iter().fold(call, |call, timeout| call.timeout(ms(timeout)));
        let call = given["key"].as_str().into_iter().fold(call, |call, key| call.idempotency_key(key));
        Ok(shown(call.heartbeat(mins(1)).await))
    });
    let builder = kind(builder, "many-tasks", async |ctx: Ctx, count: Value| {
        let call = |n| ctx.task::<Value>("double", &json!({"run": ctx.run_id(), "n": n})).pure();
        Ok(join_all((0..number(&count)).map(call)).await?.into())
    });
    kind(builder, "cancels-task", async |ctx: Ctx, _| {
        let call = ctx.task::<Value>("hangs", &json!({}));
        ctx.sleep(ms(10)).await?;
        let canceled = if call.cancel() == CancelOutcome::Canceled { "canceled" } else { "too late" };
        Ok(json!([canceled, shown(call.await)[0]]))
    })
}

fn answers(builder: Builder) -> Builder {
    let builder = kind(builder, "approval", async |ctx: Ctx, within: Value| {
        let call = ctx.approval("ship", "Ship it?").show(&json!({"to": "Basel"})).within(ms(number(&within)));
        ctx.state().set("id", &call.id())?;
        let decision = call.await?;
        Ok(json!([decision.approved, decision.feedback, decision.decided_by, decision.expired]))
    });
    kind(builder, "promise", async |ctx: Ctx, within: Value| {
        let call = ctx.promise::<Value>("parcel").within(ms(number(&within)));
        ctx.state().set("id", &call.id())?;
        Ok(shown(call.await))
    })
}

fn facts(builder: Builder) -> Builder {
    let builder = kind(builder, "state", async |ctx: Ctx, _| {
        let state = ctx.state();
        state.set("a", &json!({"deep": [1, 2]}))?;
        state.set("b", &2)?;
        state.set("b", &3)?;
        state.set("gone", &true)?;
        state.clear("gone");
        does(&ctx, "middle", Value::Null).await?;
        let mut keys = state.keys();
        keys.sort();
        Ok(json!([state.get::<Value>("a")?, state.get::<Value>("b")?, state.get::<Value>("gone")?, keys]))
    });
    let builder = kind(builder, "attributes", async |ctx: Ctx, value: Value| {
        let attributes = ctx.attributes();
        attributes.set("stage", text(&value));
        attributes.set("count", 3);
        attributes.set("gone", true);
        attributes.clear("gone");
        ctx.state().set("ready", &true)?;
        ctx.signal("end").recv().await
    });
    kind(builder, "emits", async |ctx: Ctx, count: Value| {
        for n in 0..number(&count) {
            ctx.emit("progress", &json!({"number": n}))?;
            does(&ctx, &format!("s{n}"), Value::Null).await?;
        }
        Ok(count)
    })
}

fn children(builder: Builder) -> Builder {
    let builder = kind(builder, "child", async |ctx: Ctx, n: Value| {
        let n = n.as_i64().expect("a number");
        if n < 0 {
            return Err(Failure::retryable("negative").with_code("negative"));
        }
        Ok(json!([does(&ctx, "add", n + 1).await?, ctx.nesting()]))
    });
    let builder = kind(builder, "parent", async |ctx: Ctx, given: Value| {
        let call = |n| ctx.child::<Value>("child", &json!({"in": n})).id(&format!("{}-{n}", ctx.run_id()));
        let calls: Vec<_> = numbers(&given).into_iter().map(call).collect();
        Ok(join_all_settled(calls).await.into_iter().map(shown).collect::<Vec<_>>().into())
    });
    let builder = kind(builder, "nested", async |ctx: Ctx, depth: Value| match number(&depth) {
        0 => Ok(ctx.nesting().into()),
        depth => ctx.child("nested", &json!({"in": depth - 1})).await,
    });
    let builder = kind(builder, "listens", async |ctx: Ctx, _| ctx.signal("pace").recv().await);
    let builder = kind(builder, "signals-child", async |ctx: Ctx, pace: Value| {
        let call = ctx.child::<Value>("listens", &json!({}));
        call.signal("pace", &pace)?;
        call.await
    });
    let builder = kind(builder, "spawns", async |ctx: Ctx, n: Value| {
        let spawned = ctx.spawn::<Value>("child", &json!({"in": n}))?;
        ctx.sleep(ms(5)).await?;
        Ok(json!([spawned.result(&ctx).await?, spawned.result(&ctx).await?]))
    });
    let builder = kind(builder, "reports", async |ctx: Ctx, report: Value| {
        if let Some(parent) = ctx.parent() {
            parent.message(&report)?;
        }
        ctx.signal("message").recv().await
    });
    kind(builder, "converses", async |ctx: Ctx, report: Value| {
        let spawned = ctx.spawn::<Value>("reports", &json!({"in": report}))?;
        let heard: Value = ctx.signal("message").recv().await?;
        spawned.message(&ctx, "back")?;
        Ok(json!([heard, spawned.result(&ctx).await?]))
    })
}

fn changes(builder: Builder) -> Builder {
    let builder = kind(builder, "version", async |ctx: Ctx, _| {
        does(&ctx, "before", Value::Null).await?;
        let chosen = if is_old() { 0 } else { ctx.version("change", 0, 2) };
        if chosen == 2 {
            does(&ctx, "new", Value::Null).await?;
        }
        does(&ctx, "after", Value::Null).await?;
        Ok(chosen.into())
    });
    let builder = kind(builder, "diverges", async |ctx: Ctx, _| {
        does(&ctx, "first", Value::Null).await?;
        does(&ctx, if is_old() { "old" } else { "new" }, Value::Null).await
    });
    let builder = kind(builder, "looks-at-clock", async |_: Ctx, _| {
        tokio::time::sleep(ms(1)).await;
        Ok(Value::Null)
    });
    let builder = kind(builder, "awaits-in-updates", awaits_in_updates);
    kind(builder, "counter", async |ctx: Ctx, start: Value| {
        let start = start.as_i64().expect("a number");
        let total = Arc::new(Mutex::new(start));
        let of = |total: &Mutex<i64>| *total.lock().unwrap_or_else(PoisonError::into_inner);
        let (read, plus, changed) = (total.clone(), total.clone(), total.clone());
        ctx.query("total", move |_: Value| Ok(of(&read)));
        ctx.query("plus", move |n: i64| Ok(of(&plus) + n));
        if start == 100 {
            let _: Value = ctx.signal("open").recv().await?;
        }
        ctx.update("add", move |n: i64| {
            if n < 0 {
                return Err(Failure::retryable("negative").with_code("negative"));
            }
            let mut total = changed.lock().unwrap_or_else(PoisonError::into_inner);
            *total += n;
            Ok(*total)
        });
        ctx.state().set("ready", &true)?;
        let _: Value = ctx.signal("end").recv().await?;
        Ok(of(&total).into())
    })
}

async fn awaits_in_updates(ctx: Ctx, how: Value) -> Result<Value> {
    let total = Arc::new(Mutex::new(5));
    let begun = Arc::new(AtomicBool::new(false));
    let (inner, changed) = (ctx.clone(), total.clone());
    ctx.update_async("add", move |n: i64| {
        let (ctx, total) = (inner.clone(), changed.clone());
        async move {
            if n < 0 {
                return Err(Failure::retryable("negative").with_code("negative"));
            }
            does(&ctx, &format!("add-{n}"), Value::Null).await?;
            ctx.sleep(ms(1)).await?;
            let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
            *total += n;
            Ok(*total)
        }
    });
    let (inner, seen) = (ctx.clone(), begun.clone());
    ctx.update_async("wait", move |name: String| {
        seen.store(true, Ordering::SeqCst);
        let ctx = inner.clone();
        async move { ctx.signal(name.as_str()).recv::<Value>().await }
    });
    ctx.state().set("ready", &true)?;
    if text(&how) == "abandon" {
        while !begun.load(Ordering::SeqCst) {
            ctx.sleep(ms(10)).await?;
        }
        return Ok("over".into());
    }
    let _: Value = ctx.signal("end").recv().await?;
    ctx.updates_finished().await;
    let total = *total.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(total.into())
}

fn ends(builder: Builder) -> Builder {
    let builder = kind(builder, "saga", async |ctx: Ctx, how: Value| {
        for (book, cancel) in [("book-flight", "cancel-flight"), ("book-hotel", "cancel-hotel")] {
            does(&ctx, book, Value::Null).await?;
            let run = ctx.run_id().to_string();
            ctx.on_failure(cancel, async move || {
                mark(&run, cancel);
                Ok::<_, Failure>(())
            });
        }
        ctx.state().set("ready", &true)?;
        match text(&how) {
            "fail" => return Err(Failure::retryable("no car").with_code("no_car")),
            "wait" => ctx.signal("never").recv::<Value>().await?,
            _ => Value::Null,
        };
        Ok("booked".into())
    });
    let builder = kind(builder, "continues", async |ctx: Ctx, left: Value| {
        let left = number(&left);
        does(&ctx, &format!("work-{left}"), Value::Null).await?;
        if left > 0 {
            return ctx.continue_as_new(&json!({"in": left - 1})).await;
        }
        Ok(ctx.generation().into())
    });
    kind(builder, "keeps-signals", async |ctx: Ctx, given: Value| {
        if given.is_null() {
            let first: Value = ctx.signal("item").recv().await?;
            let _: Value = ctx.signal("go").recv().await?;
            return ctx.continue_as_new(&json!({"in": first})).await;
        }
        Ok(json!([given, ctx.signal("item").recv::<Value>().await?]))
    })
}

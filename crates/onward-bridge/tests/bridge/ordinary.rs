//! Programs as users write them.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::shell::{Ctx, Programs, Ran, Result, failure, gather, race};
use crate::{directory, memory};

async fn order(ctx: Ctx, item: Value, charged: Arc<AtomicU32>) -> Result<Value> {
    let paid = ctx
        .step("charge", move || {
            charged.fetch_add(1, Ordering::SeqCst);
            Ok(json!(format!("paid for {}", item.as_str().unwrap())))
        })
        .await?;
    let (recv, note) = (ctx.wait("recv", json!({"signal": "payment"})), ctx.step("note", || Ok(json!("noted"))));
    let [payment, note] = gather([recv, note]).await;
    ctx.wait("sleep", json!({"ms": 50})).await?;
    let text = format!("{} {} {}", paid.as_str().unwrap(), payment?, note?.as_str().unwrap());
    ctx.wait("task", json!({"kind": "print-label", "input": text, "retry": 5})).await
}

fn orders(charged: &Arc<AtomicU32>) -> Programs {
    let charged = charged.clone();
    Programs::default()
        .with("order", move |ctx, item| order(ctx, item, charged.clone()))
        .task("print-label", |_, _, input, _| Ran::Now(Ok(json!(format!("label: {}", input.as_str().unwrap())))))
}

#[test]
fn an_order_runs_from_start_to_result() {
    let charged = Arc::default();
    let host = orders(&charged).start(memory());
    host.start("order", "order-42", json!("a teapot"));
    let receipt = host.request("signal", json!({"run": "order-42", "name": "payment", "value": 42, "id": "p-1"})).unwrap();
    assert_eq!(receipt["repeated"], false);
    assert_eq!(host.result("order-42"), Ok(json!("label: paid for a teapot 42 noted")));
    assert_eq!(charged.load(Ordering::SeqCst), 1);
    host.stop();
}

#[test]
fn a_recorded_step_does_not_run_again_after_a_crash() {
    let (folder, charged) = (TempDir::new().unwrap(), Arc::default());
    let host = orders(&charged).start(directory(&folder));
    host.start("order", "order-42", json!("a teapot"));
    host.until("order-42", "waiting");
    host.kill();
    let host = orders(&charged).start(directory(&folder));
    host.request("signal", json!({"run": "order-42", "name": "payment", "value": 42})).unwrap();
    assert_eq!(host.result("order-42"), Ok(json!("label: paid for a teapot 42 noted")));
    assert_eq!(charged.load(Ordering::SeqCst), 1, "the charge is recorded");
    host.stop();
}

#[test]
fn the_answer_with_the_lower_index_wins_a_race_also_after_a_crash() {
    let folder = TempDir::new().unwrap();
    let programs = || {
        Programs::default().with("race", async |ctx: Ctx, _| {
            let recv = |name: &str| ctx.wait("recv", json!({"signal": name}));
            let (first, _) = race([recv("a"), recv("b")]).await;
            ctx.wait("recv", json!({"signal": "go"})).await?;
            let (second, _) = race([recv("a"), recv("b")]).await;
            Ok(json!([first, second]))
        })
    };
    let host = programs().start(directory(&folder));
    host.start("race", "r", Value::Null);
    host.until("r", "waiting");
    for name in ["b", "a", "go"] {
        host.request("signal", json!({"run": "r", "name": name})).unwrap();
    }
    // The loser of the first race gave its signal back or never had it: `a` is there for the second.
    // The run may have ended by now.
    drop(host.request("signal", json!({"run": "r", "name": "b"})));
    let before = host.result("r").unwrap();
    assert_eq!(before[0], 1, "`b` came first");
    host.kill();
    let host = programs().start(directory(&folder));
    assert_eq!(host.result("r").unwrap(), before);
    host.stop();
}

#[test]
fn code_that_changed_diverges_with_a_report() {
    let folder = TempDir::new().unwrap();
    let program = |step: &'static str| {
        Programs::default().with("order", async move |ctx: Ctx, _| {
            ctx.step(step, || Ok(json!(1))).await?;
            ctx.wait("recv", json!({"signal": "go"})).await
        })
    };
    let host = program("charge").start(directory(&folder));
    host.start("order", "o", Value::Null);
    host.until("o", "waiting");
    host.kill();
    let host = program("refund").start(directory(&folder));
    host.request("signal", json!({"run": "o", "name": "go"})).unwrap();
    let view = host.until("o", "paused");
    let message = view["pause"]["message"].as_str().unwrap();
    assert!(message.contains("step `charge`") && message.contains("step `refund`"), "{message}");
    assert_eq!(host.seen.lock().unwrap().last().unwrap(), "close o", "the code is dropped");
    host.stop();
}

#[test]
fn a_failed_run_undoes_its_work_latest_first() {
    let undone: Arc<Mutex<Vec<&str>>> = Arc::default();
    let log = undone.clone();
    let program = move |ctx: Ctx, _| {
        let log = log.clone();
        async move {
            for name in ["one", "two"] {
                ctx.step(name, || Ok(Value::Null)).await?;
                let log = log.clone();
                ctx.on_failure(name, move || {
                    log.lock().unwrap().push(name);
                    Ok(Value::Null)
                });
            }
            ctx.wait("recv", json!({"signal": "go"})).await?;
            Err(json!({"message": "no stock", "code": "sold_out", "details": {"type": "SoldOut", "stack": "at order:7"}}))
        }
    };
    let host = Programs::default().with("order", program).start(memory());
    for (run, verb) in [("failed", "signal"), ("canceled", "cancel")] {
        host.start("order", run, Value::Null);
        host.until(run, "waiting");
        let arguments =
            if verb == "signal" { json!({"run": run, "name": "go"}) } else { json!({"run": run, "reason": "too late"}) };
        host.request(verb, arguments).unwrap();
        let error = host.result(run).unwrap_err();
        assert_eq!(error["code"], "run_failed");
        assert_eq!(error["failure"]["code"], if verb == "signal" { "sold_out" } else { "canceled" }, "{error}");
        if verb == "signal" {
            assert_eq!(error["failure"]["details"], json!({"type": "SoldOut", "stack": "at order:7"}));
        }
        assert_eq!(std::mem::take(&mut *undone.lock().unwrap()), ["two", "one"]);
    }
    host.stop();
}

#[test]
fn steps_are_retried_and_time_out() {
    let host = Programs::default().with("flaky", async |ctx: Ctx, _| {
        let policy = json!({"attempts_max": 3, "first_delay_ms": 1});
        let attempts = ctx.step_with(json!({"name": "flaky", "retry": policy}), |job| {
            Ran::Now(if job.attempt < 3 { Err(failure("not yet")) } else { Ok(json!([job.attempt, job.idempotency_key])) })
        });
        let attempts = attempts.await?;
        let slow = ctx.step_with(json!({"name": "slow", "timeout_ms": 20}), |_| Ran::Later).await.unwrap_err();
        let fatal = ctx
            .step_with(json!({"name": "fatal", "retry": 5}), |_| Ran::Now(Err(json!({"message": "never", "retryable": false}))));
        Ok(json!([attempts[0], slow["code"], fatal.await.unwrap_err()["message"]]))
    });
    let host = host.start(memory());
    host.start("flaky", "f", Value::Null);
    assert_eq!(host.result("f"), Ok(json!([3, "timed_out", "never"])));
    assert!(host.seen.lock().unwrap().iter().any(|seen| seen.starts_with("cancel job")), "the slow function is canceled");
    host.stop();
}

#[test]
fn updates_change_and_queries_read_the_memory_of_the_code() {
    let folder = TempDir::new().unwrap();
    let programs = || {
        Programs::default().with("counter", async |ctx: Ctx, _| {
            let count = std::rc::Rc::new(std::cell::Cell::new(0));
            let read = count.clone();
            ctx.query("count", move |_| Ok(json!(read.get())));
            ctx.wait("recv", json!({"signal": "open"})).await?;
            let added = count.clone();
            ctx.update("add", move |by| {
                let by = by.as_i64().ok_or_else(|| failure("add a number"))?;
                added.set(added.get() + by);
                Ok(json!(added.get()))
            });
            ctx.wait("recv", json!({"signal": "close"})).await?;
            Ok(json!(count.get()))
        })
    };
    let host = programs().start(directory(&folder));
    host.start("counter", "c", Value::Null);
    host.until("c", "waiting");
    // Waits for its handler, which the code registers later.
    let early = host.begin("update", json!({"run": "c", "name": "add", "input": 2}));
    host.request("signal", json!({"run": "c", "name": "open"})).unwrap();
    assert_eq!(early(), Ok(json!(2)));
    let add = |host: &crate::shell::Host, by: Value| host.request("update", json!({"run": "c", "name": "add", "input": by}));
    assert_eq!(add(&host, json!(3)), Ok(json!(5)));
    let refused = add(&host, json!("x")).unwrap_err();
    assert_eq!((refused["code"].as_str(), refused["failure"]["message"].as_str()), (Some("answer_failed"), Some("add a number")));
    let query = |host: &crate::shell::Host, name: &str| host.request("query", json!({"run": "c", "name": name}));
    assert_eq!(query(&host, "count"), Ok(json!(5)));
    assert_eq!(query(&host, "nothing").unwrap_err()["code"], "unknown_query");
    host.kill();
    // The memory is that of the log, also for a query of a closed run.
    let host = programs().start(directory(&folder));
    assert_eq!(query(&host, "count"), Ok(json!(5)));
    host.request("signal", json!({"run": "c", "name": "close"})).unwrap();
    assert_eq!(host.result("c"), Ok(json!(5)));
    assert_eq!(query(&host, "count"), Ok(json!(5)));
    host.stop();
}

#[test]
fn tasks_have_attempts_heartbeats_and_a_notice_when_they_are_canceled() {
    let programs = Programs::default()
        .with("order", async |ctx: Ctx, _| {
            let failed =
                ctx.wait("task", json!({"kind": "flaky", "input": 1, "retry": {"attempts_max": 2, "first_delay_ms": 1}}));
            let attempt = failed.await?;
            let slow = ctx.wait("task", json!({"kind": "slow"}));
            ctx.wait("recv", json!({"signal": "enough"})).await?;
            let canceled = ctx.call("cancel", json!({"call": slow.number()}))?;
            Ok(json!([attempt, canceled, slow.await.unwrap_err()["code"]]))
        })
        .task("flaky", |bridge, job, input, info| {
            bridge.task(job, "heartbeat", r#"{"progress":{"done":0.5}}"#).unwrap();
            assert_eq!(bridge.task(job, "is_canceled", "").unwrap(), "false");
            assert_eq!(input, json!(1));
            Ran::Now(if info["attempt"] == 1 { Err(failure("again")) } else { Ok(info["attempt"].clone()) })
        })
        .task("slow", |_, _, _, _| Ran::Later);
    let host = programs.start(memory());
    host.start("order", "o", Value::Null);
    while host.bridge.stats().jobs == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    host.request("signal", json!({"run": "o", "name": "enough"})).unwrap();
    assert_eq!(host.result("o"), Ok(json!([2, "canceled", "canceled"])));
    while host.bridge.stats().jobs > 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let task = host.request(
        "start_task",
        json!({"kind": "flaky", "input": 1, "id": "t", "retry": {"attempts_max": 2, "first_delay_ms": 1}}),
    );
    assert_eq!(task, Ok(json!({"id": "t"})));
    assert_eq!(host.request("task_result", json!({"task": "t"})), Ok(json!(2)));
    host.stop();
}

#[test]
fn an_agent_resumes_from_its_last_turn() {
    let folder = TempDir::new().unwrap();
    let programs = || {
        Programs::default().agent("chat", async |ctx: Ctx, input| {
            ctx.call("append", json!({"role": "user", "content": input}))?;
            let state = ctx.wait("turn_begin", json!({"state": {"turns": 0}})).await?;
            let turns = state["turns"].as_u64().unwrap();
            for message in ctx.call("drain", json!({"signal": "message"}))?.as_array().unwrap() {
                ctx.call("append", json!({"role": "user", "content": message["value"]}))?;
            }
            ctx.call("append", json!({"role": "assistant", "content": format!("answer {turns}")}))?;
            if turns == 2 {
                let entries = ctx.wait("messages", json!({})).await?;
                let texts: Vec<_> = entries.as_array().unwrap().iter().map(|entry| entry["content"]["json"].clone()).collect();
                return Ok(json!(texts));
            }
            ctx.wait("turn_end", json!({"state": {"turns": turns + 1}, "signal": "message"})).await
        })
    };
    let host = programs().start(directory(&folder));
    host.start("chat", "c", json!("hello"));
    host.until("c", "waiting");
    host.kill();
    let host = programs().start(directory(&folder));
    for text in ["one", "two"] {
        host.request("message", json!({"run": "c", "value": text})).unwrap();
        if text == "one" {
            host.request("wait", json!({"run": "c", "status": ["waiting"]})).unwrap();
        }
    }
    let texts = host.result("c").unwrap();
    let texts: Vec<_> = texts.as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect();
    assert!(texts.starts_with(&["hello", "answer 0"]) && texts.ends_with(&["answer 2"]), "{texts:?}");
    host.stop();
}

//! Agents with a real worker and a real store: turns, crashes, and nondeterministic code.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use onward::agent::{AgentCtx, Turn};
use onward::prelude::*;
use onward::time::secs;
use onward::{Builder, Event, Record, RetryPolicy, Status, join_all_settled};
use onward_core::event::PauseReason;
use onward_core::view::AwaitedKind;

use crate::site::{eventually, everywhere, paused, until_logged};
use crate::{embedded, in_memory};

const MESSAGE: Signal<String> = Signal::new("message");

/// Answers every message, and ends after two.
async fn chat(ctx: AgentCtx, first: String) -> Result<u32> {
    ctx.append("user", &first).await?;
    ctx.query("began with", move |()| Ok(first.clone()));
    ctx.turns(1u32, |answered| {
        let ctx = ctx.clone();
        async move {
            for message in ctx.signal(&MESSAGE).drain()? {
                ctx.append("user", &message).await?;
            }
            let leaf = ctx.leaf().map(|leaf| leaf.to_string());
            let reply: String = ctx.task("model", &leaf).pure().await?;
            ctx.append("assistant", &reply).await?;
            if answered == 2 { Ok(Turn::Done(answered)) } else { Ok(Turn::wait_for(answered + 1, &MESSAGE)) }
        }
    })
    .await
}

fn with_chat(builder: Builder, calls: &Arc<AtomicU32>) -> Builder {
    let calls = calls.clone();
    builder.agent("chat", chat).task("model", move |leaf: Option<String>| {
        let call = calls.fetch_add(1, Ordering::SeqCst) + 1;
        async move { Ok::<_, Failure>(format!("answer {call} to {}", leaf.is_some())) }
    })
}

/// Returns the records of all generations, oldest first.
async fn logs(onward: &Onward, id: &str) -> Vec<Vec<Record>> {
    let run = onward.run::<u32>(id).unwrap();
    let last = run.view().await.unwrap().head.generation;
    let mut logs = Vec::new();
    for generation in 0..=last {
        logs.push(run.log_of(generation).await.unwrap());
    }
    logs
}

/// Waits until the agent waits for a message.
async fn until_silent(onward: &Onward, id: &str) {
    let run = onward.run::<String>(id).unwrap();
    run.until(|view| view.awaiting.iter().any(|awaited| awaited.kind == AwaitedKind::Signal)).await.unwrap();
}

fn count(logs: &[Vec<Record>], is_counted: impl Fn(&Event) -> bool) -> usize {
    logs.iter().flatten().flat_map(|record| &record.events).filter(|event| is_counted(event)).count()
}

fn roles(logs: &[Vec<Record>]) -> Vec<String> {
    let events = logs.iter().flatten().flat_map(|record| &record.events);
    let role = |event: &Event| match event {
        Event::EntryAppended(entry) => Some(entry.role.to_string()),
        _ => None,
    };
    events.filter_map(role).collect()
}

async fn a_follow_up(builder: Builder) {
    let calls = Arc::new(AtomicU32::new(0));
    let onward = with_chat(builder, &calls).start().await.unwrap();
    let run = onward.start::<u32, _>("chat", "hello").id("c").await.unwrap();
    until_silent(&onward, "c").await;
    run.signal(&MESSAGE, &"and now?".to_owned()).await.unwrap();
    assert_eq!(run.result().await.unwrap(), 2);
    assert_eq!(roles(&logs(&onward, "c").await), ["user", "assistant", "user", "assistant"]);
    assert_eq!(calls.load(Ordering::SeqCst), 2, "one call of the model for each turn");
    onward.shutdown().await;
}

/// Scenario 50.
#[tokio::test(flavor = "multi_thread")]
async fn a_follow_up_by_signal_is_one_entry_and_one_answer_in_memory() {
    a_follow_up(in_memory()).await;
}

/// Scenario 50.
#[tokio::test(flavor = "multi_thread")]
async fn a_follow_up_by_signal_is_one_entry_and_one_answer_in_a_directory() {
    let directory = tempfile::tempdir().unwrap();
    a_follow_up(embedded(directory.path())).await;
}

/// The process ends between the turns, and the next one finds everything.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_goes_on_in_another_process() {
    let directory = tempfile::tempdir().unwrap();
    let calls = Arc::new(AtomicU32::new(0));
    let onward = with_chat(embedded(directory.path()), &calls).start().await.unwrap();
    let run = onward.start::<u32, _>("chat", "hello").id("c").await.unwrap();
    until_silent(&onward, "c").await;
    drop(run);
    onward.shutdown().await;
    let onward = with_chat(embedded(directory.path()), &calls).start().await.unwrap();
    let run = onward.run::<u32>("c").unwrap();
    run.signal(&MESSAGE, &"still there?".to_owned()).await.unwrap();
    assert_eq!(run.result().await.unwrap(), 2);
    assert_eq!(roles(&logs(&onward, "c").await), ["user", "assistant", "user", "assistant"]);
    assert_eq!(calls.load(Ordering::SeqCst), 2);
    onward.shutdown().await;
}

/// Appends one of two entries, pays, and waits for a message in the middle of its turn.
async fn pay(ctx: AgentCtx, (): ()) -> Result<String> {
    let is_other = ctx.dep::<Arc<AtomicBool>>();
    ctx.turns((), |()| {
        let ctx = ctx.clone();
        async move {
            let is_other = is_other.load(Ordering::SeqCst);
            ctx.append("system", if is_other { "be polite" } else { "be brief" }).await?;
            let receipt: String =
                ctx.task("pay", &if is_other { ctx.dep::<Amounts>().then } else { ctx.dep::<Amounts>().first }).await?;
            ctx.append("tool", &receipt).await?;
            let word = ctx.signal(&MESSAGE).recv().await?;
            ctx.append("user", &word).await?;
            Ok(Turn::Done(receipt))
        }
    })
    .await
}

/// The amount that the agent pays with the first entry, and with the other.
struct Amounts {
    first: u32,
    then: u32,
}

fn with_pay(directory: &std::path::Path, amounts: Amounts, is_other: bool, paid: &Arc<AtomicU32>) -> Builder {
    let paid = paid.clone();
    let builder = embedded(directory).dep(amounts).dep(Arc::new(AtomicBool::new(is_other))).agent("pay", pay);
    builder.task("pay", move |amount: u32| {
        let number = paid.fetch_add(1, Ordering::SeqCst) + 1;
        async move { Ok::<_, Failure>(format!("receipt {number} for {amount}")) }
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_words_it_differently_finds_what_it_has_paid() {
    let directory = tempfile::tempdir().unwrap();
    let paid = Arc::new(AtomicU32::new(0));
    let onward = with_pay(directory.path(), Amounts { first: 10, then: 10 }, false, &paid).start().await.unwrap();
    onward.start::<String, _>("pay", &()).id("p").await.unwrap();
    until_silent(&onward, "p").await;
    onward.shutdown().await;
    let onward = with_pay(directory.path(), Amounts { first: 10, then: 10 }, true, &paid).start().await.unwrap();
    let run = onward.run::<String>("p").unwrap();
    run.signal(&MESSAGE, &"go on".to_owned()).await.unwrap();
    assert_eq!(run.result().await.unwrap(), "receipt 1 for 10");
    assert_eq!(paid.load(Ordering::SeqCst), 1, "paid once");
    let logs = logs(&onward, "p").await;
    assert_eq!(count(&logs, |event| matches!(event, Event::SegmentAbandoned(_))), 1);
    assert_eq!(count(&logs, |event| matches!(event, Event::TaskScheduled(_))), 1);
    onward.shutdown().await;
}

/// A payment that the code no longer makes must not be forgotten.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_would_pay_something_else_is_paused() {
    let directory = tempfile::tempdir().unwrap();
    let paid = Arc::new(AtomicU32::new(0));
    let onward = with_pay(directory.path(), Amounts { first: 10, then: 12 }, false, &paid).start().await.unwrap();
    onward.start::<String, _>("pay", &()).id("p").await.unwrap();
    until_silent(&onward, "p").await;
    onward.shutdown().await;
    let onward = with_pay(directory.path(), Amounts { first: 10, then: 12 }, true, &paid).start().await.unwrap();
    let run = onward.run::<String>("p").unwrap();
    run.signal(&MESSAGE, &"go on".to_owned()).await.unwrap();
    let view = run.until(|view| view.head.status == Status::Paused).await.unwrap();
    let pause = view.pause.expect("it has a reason");
    assert!(pause.message.contains("task `pay`") && pause.message.contains("10"), "{}", pause.message);
    assert_eq!(paid.load(Ordering::SeqCst), 1, "nothing was paid in its place");
    run.resume().await.unwrap();
    assert_eq!(run.result().await.unwrap(), "receipt 2 for 12", "resuming accepts the effect");
    onward.shutdown().await;
}

/// A run that is not in memory is replayed for a query, also one whose code reaches its turn through an earlier log.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_is_not_in_memory_answers_in_its_second_turn() {
    let directory = tempfile::tempdir().unwrap();
    let calls = Arc::new(AtomicU32::new(0));
    let onward = with_chat(embedded(directory.path()), &calls).start().await.unwrap();
    onward.start::<u32, _>("chat", "hello").id("c").await.unwrap();
    until_silent(&onward, "c").await;
    onward.shutdown().await;
    let onward = with_chat(embedded(directory.path()), &calls).start().await.unwrap();
    let began_with: String = onward.run::<u32>("c").unwrap().query("began with", &()).await.unwrap();
    assert_eq!(began_with, "hello");
    onward.shutdown().await;
}

/// R14: a turn continues with the version it began with; new code takes over at a checkpoint.
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_keeps_its_version_and_the_next_one_has_the_current_one() {
    async fn named(ctx: AgentCtx, name: &'static str) -> Result<Vec<String>> {
        ctx.turns(Vec::new(), |mut turns: Vec<String>| {
            let ctx = ctx.clone();
            async move {
                drop(ctx.signal(&MESSAGE).drain()?);
                turns.push(ctx.step("name", async || Ok::<_, Failure>(name.to_owned())).await?);
                Ok(if turns.len() == 3 { Turn::Done(turns) } else { Turn::wait_for(turns, &MESSAGE) })
            }
        })
        .await
    }
    let directory = tempfile::tempdir().unwrap();
    let of = |name: &'static str| embedded(directory.path()).agent("a", move |ctx, (): ()| named(ctx, name)).version(name);
    let first = of("v1").start().await.unwrap();
    let run = first.start::<Vec<String>, _>("a", &()).id("r").await.unwrap();
    let waits_in = |generation| move |view: &onward::RunView| view.head.generation == generation && !view.awaiting.is_empty();
    run.until(waits_in(2)).await.unwrap();
    drop(run);
    first.shutdown().await;
    let onward = of("v2").previous("v1", |ctx: AgentCtx, (): ()| named(ctx, "v1")).start().await.unwrap();
    let run = onward.run::<Vec<String>>("r").unwrap();
    run.signal(&MESSAGE, "go on").await.unwrap();
    run.until(waits_in(3)).await.unwrap();
    assert_eq!(run.view().await.unwrap().head.version.unwrap().as_str(), "v2");
    run.signal(&MESSAGE, "go on").await.unwrap();
    assert_eq!(run.result().await.unwrap(), ["v1", "v1", "v2"]);
    onward.shutdown().await;
}

/// The state of one loop does not belong to another.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_has_one_loop() {
    async fn count(ctx: &AgentCtx, to: u32) -> Result<u32> {
        ctx.turns(0, |at| async move { Ok(if at < to { Turn::Next(at + 1) } else { Turn::Done(at) }) }).await
    }
    async fn behind(ctx: AgentCtx, (): ()) -> Result<u32> {
        Ok(count(&ctx, 2).await? + count(&ctx, 3).await?)
    }
    async fn inside(ctx: AgentCtx, (): ()) -> Result<u32> {
        let outer = ctx.clone();
        outer.turns(0u32, |_| async move { Ok(Turn::Done(count(&ctx, 2).await?)) }).await
    }
    let onward = in_memory().agent("behind", behind).agent("inside", inside).start().await.unwrap();
    for kind in ["behind", "inside"] {
        let run = onward.start::<u32, _>(kind, &()).id(kind).await.unwrap();
        let pause = crate::site::paused(&run).await;
        assert!(pause.message.contains("an agent has one loop"), "{kind}: {}", pause.message);
    }
    onward.shutdown().await;
}

/// Calls that are still open when a turn ends would be lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_ends_while_something_is_open_pauses_and_names_it() {
    async fn careless(ctx: AgentCtx, (): ()) -> Result<()> {
        let mut open = Box::pin(ctx.approval("refund", "May I?").into_future());
        ctx.turns((), |()| {
            std::future::poll_fn(|cx| {
                assert!(open.as_mut().poll(cx).is_pending());
                std::task::Poll::Ready(Ok(Turn::Next(())))
            })
        })
        .await
    }
    let onward = in_memory().agent("a", careless).start().await.unwrap();
    let run = onward.start::<(), _>("a", &()).id("r").await.unwrap();
    let pause = crate::site::paused(&run).await;
    assert!(pause.message.contains("a turn ended with open calls: approval `refund`"), "{}", pause.message);
    onward.shutdown().await;
}

/// Entries of this turn and of earlier ones, without reading all of them.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_reads_its_conversation_page_by_page() {
    async fn reads(ctx: AgentCtx, (): ()) -> Result<Vec<Vec<u32>>> {
        ctx.turns(0u32, |turn| {
            let ctx = ctx.clone();
            async move {
                for number in 0..4 {
                    ctx.append("user", &(turn * 4 + number)).await?;
                }
                if turn < 2 {
                    return Ok(Turn::Next(turn + 1));
                }
                let (mut pages, mut page) = (Vec::new(), ctx.messages().last(5).await?);
                while let Some(first) = page.first() {
                    pages.push(page.iter().map(|entry| entry.content.read().unwrap()).collect());
                    page = ctx.messages().last(5).before(first).await?;
                }
                Ok(Turn::Done(pages))
            }
        })
        .await
    }
    let onward = in_memory().agent("a", reads).start().await.unwrap();
    let run = onward.start::<Vec<Vec<u32>>, _>("a", &()).id("r").await.unwrap();
    let expected: [Vec<u32>; 3] = [(7..12).collect(), (2..7).collect(), (0..2).collect()];
    assert_eq!(run.result().await.unwrap(), expected);
    onward.shutdown().await;
}

/// The prompt of a process.
struct Prompt(String);

/// Appends its prompt, calls a model, and waits for a message in the middle of its turn.
async fn prompted(ctx: AgentCtx, (): ()) -> Result<String> {
    let prompt = ctx.dep::<Prompt>();
    ctx.turns((), |()| {
        let (ctx, prompt) = (ctx.clone(), prompt.clone());
        async move {
            ctx.append("system", &prompt.0).await?;
            let leaf = ctx.leaf().map(|leaf| leaf.to_string());
            let answer: String = ctx.task("model", &leaf).pure().await?;
            ctx.append("assistant", &answer).await?;
            Ok(Turn::Done(ctx.signal(&MESSAGE).recv().await?))
        }
    })
    .await
}

/// Runs three tasks at the same time, each for a minute at most, and returns their outcomes.
async fn patient(ctx: AgentCtx, (): ()) -> Result<Vec<String>> {
    ctx.turns((), |()| {
        let ctx = ctx.clone();
        async move {
            let look = |number: u32| ctx.task::<u32>("look", &number).timeout(secs(60)).retry(RetryPolicy::attempts(1));
            let looks = join_all_settled((0..3).map(look)).await;
            let results = looks.into_iter().map(|look| look.map_or_else(|failure| failure.code, |number| number.to_string()));
            let results: Vec<String> = results.collect();
            ctx.append("tool", &results).await?;
            Ok(Turn::Done(results))
        }
    })
    .await
}

everywhere! {
    /// Scenario 52.
    async fn an_agent_learns_which_tasks_took_too_long(site) {
        let begun = Arc::new(AtomicU32::new(0));
        let counts = begun.clone();
        let builder = site.builder().await.agent("patient", patient).task("look", move |number: u32| {
            counts.fetch_add(1, Ordering::SeqCst);
            async move {
                if number != 1 {
                    std::future::pending::<()>().await;
                }
                Ok::<_, Failure>(number)
            }
        });
        let onward = builder.start().await.unwrap();
        let run = onward.start::<Vec<String>, _>("patient", &()).id("p").await.unwrap();
        until_logged(&run, "task_completed", 1).await;
        eventually("all have begun", async || (begun.load(Ordering::SeqCst) == 3).then_some(())).await;
        site.pass(&onward, secs(61)).await;
        assert_eq!(run.result().await.unwrap(), ["timed_out", "1", "timed_out"]);
        assert_eq!(begun.load(Ordering::SeqCst), 3, "none is tried again");
    }

    /// Code that changes with every process must not cause a model call at every wake: it is paused, and the pause names the
    /// difference.
    async fn an_agent_with_a_different_entry_each_time_pauses_as_unstable_and_goes_on_when_resumed(site) {
        let calls = Arc::new(AtomicU32::new(0));
        let process = async |number: usize| {
            let calls = calls.clone();
            let builder = site.builder().await.dep(Prompt(format!("prompt {number}"))).agent("prompted", prompted);
            let model = move |_: Option<String>| {
                let call = calls.fetch_add(1, Ordering::SeqCst) + 1;
                async move { Ok::<_, Failure>(format!("answer {call}")) }
            };
            builder.task("model", model).start().await.unwrap()
        };
        let mut onward = process(0).await;
        onward.start::<String, _>("prompted", &()).id("p").await.unwrap();
        for number in 1..=4 {
            until_logged(&onward.run::<String>("p").unwrap(), "signal_awaited", number).await;
            until_silent(&onward, "p").await;
            onward.shutdown().await;
            onward = process(number).await;
            onward.run::<String>("p").unwrap().signal("nudge", &()).await.unwrap();
        }
        let run = onward.run::<String>("p").unwrap();
        let pause = paused(&run).await;
        assert_eq!(pause.reason, PauseReason::UnstableSegment);
        let differs = pause.divergence.expect("it has the difference");
        assert!(differs.recorded.contains("prompt 3") && differs.attempted.contains("prompt 4"), "{differs:?}");
        assert_eq!((calls.load(Ordering::SeqCst), crate::site::count(&run, "segment_abandoned").await), (4, 3));
        // Resuming accepts this prompt.
        run.resume().await.unwrap();
        run.signal(&MESSAGE, &"done".to_owned()).await.unwrap();
        assert_eq!(run.result().await.unwrap(), "done");
        assert_eq!(calls.load(Ordering::SeqCst), 5);
        let texts: Vec<String> = run.entries().await.unwrap().entries.iter().map(|entry| entry.content.read().unwrap()).collect();
        assert_eq!(texts, ["prompt 4", "answer 5"], "nothing of what was left is said");
        drop(run);
        onward.shutdown().await;
    }
}

//! Children that outlive the turn in which they were spawned, and messages between them and their parents.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use onward::agent::{AgentCtx, MESSAGE, ReceivedSignal, Spawned, Turn};
use onward::prelude::*;
use onward::{Event, RunHandle, Status};
use serde::{Deserialize, Serialize};

use crate::site::{events, eventually, everywhere, paused, until_status};

/// Sends every message back to its parent, across its own checkpoints, and ends with all of them.
async fn echo(ctx: AgentCtx, name: String) -> Result<Vec<String>> {
    ctx.turns(Vec::new(), |mut received: Vec<String>| {
        let (ctx, name) = (ctx.clone(), name.clone());
        async move {
            for ReceivedSignal { from, value } in ctx.signal(MESSAGE).drain_with_sender::<String>()? {
                assert_eq!(from.as_ref(), ctx.parent().map(|parent| parent.run_id().clone()).as_ref());
                if value == "end" {
                    return Ok(Turn::Done(received));
                }
                ctx.parent().expect("it has one").message(&format!("{name}: {value}"))?;
                received.push(value);
            }
            Ok(Turn::Await(received, MESSAGE))
        }
    })
    .await
}

#[derive(Serialize, Deserialize, Default)]
struct Crew {
    echoes: Vec<Spawned<Vec<String>>>,
    received: Vec<(String, String)>,
    turns: u32,
}

/// The received messages with their senders, and the results of the children.
type Report = (Vec<(String, String)>, Vec<Vec<String>>);

/// Spawns two children, sends three messages to each in separate turns, and waits for their messages.
async fn boss(ctx: AgentCtx, (): ()) -> Result<Report> {
    ctx.turns(Crew::default(), |mut crew| {
        let ctx = ctx.clone();
        async move {
            if crew.echoes.is_empty() {
                for name in ["a", "b"] {
                    crew.echoes.push(ctx.spawn("echo", name)?);
                }
            }
            let received = ctx.signal(MESSAGE).drain_with_sender::<String>()?;
            crew.received
                .extend(received.into_iter().map(|signal| (signal.from.expect("it is a run").to_string(), signal.value)));
            if crew.turns < 3 {
                for echo in &crew.echoes {
                    echo.message(&ctx, &crew.turns.to_string())?;
                }
                crew.turns += 1;
                return Ok(Turn::Next(crew));
            }
            if crew.received.len() < 6 {
                return Ok(Turn::Await(crew, MESSAGE));
            }
            crew.echoes.iter().try_for_each(|echo| echo.message(&ctx, "end"))?;
            let results = join_all(crew.echoes.iter().map(|echo| echo.result(&ctx))).await?;
            // A repeated query returns the same result.
            assert_eq!(crew.echoes[0].result(&ctx).await?, results[0]);
            Ok(Turn::Done((crew.received, results)))
        }
    })
    .await
}

/// Spawns a child that waits forever, and waits in another turn.
async fn keeper(ctx: AgentCtx, cancels: bool) -> Result<String> {
    ctx.turns(None, |kept: Option<Spawned<()>>| {
        let ctx = ctx.clone();
        async move {
            let Some(kept) = kept else {
                let child = ctx.spawn("sleeper", &())?;
                return Ok(Turn::Await(Some(child), MESSAGE));
            };
            if cancels {
                kept.cancel(&ctx);
                let failure = kept.result(&ctx).await.expect_err("it was canceled");
                return Ok(Turn::Done(failure.code));
            }
            Ok(Turn::Done("left".to_owned()))
        }
    })
    .await
}

async fn sleeper(ctx: Ctx, (): ()) -> Result<()> {
    ctx.signal("never").recv().await
}

/// Returns the only child of the run, once it exists.
async fn child_of(onward: &Onward, parent: &str) -> RunHandle<()> {
    let id = eventually("there is a child", async || {
        let runs = onward.list_runs(onward::RunQuery::default()).await.unwrap().runs;
        let is_child = |link: &onward_core::event::ParentLink| link.run.id.as_str() == parent;
        runs.into_iter().find(|head| head.parent.as_ref().is_some_and(is_child)).map(|head| head.key.id.to_string())
    })
    .await;
    onward.run(&id).unwrap()
}

everywhere! {
    async fn messages_between_a_run_and_its_spawned_runs_arrive_once_and_in_order_turn_by_turn(site) {
        let onward = site.builder().await.agent("boss", boss).agent("echo", echo).start().await.unwrap();
        let run: RunHandle<Report> = onward.start("boss", &()).id("boss").await.unwrap();
        let (received, results) = run.result().await.unwrap();
        assert_eq!(results, [["0", "1", "2"], ["0", "1", "2"]]);
        for name in ["a", "b"] {
            let messages: Vec<_> = received.iter().filter(|(_, text)| text.starts_with(name)).collect();
            let words: Vec<_> = messages.iter().map(|(_, text)| &text[3..]).collect();
            assert_eq!(words, ["0", "1", "2"]);
            assert!(messages.iter().all(|(from, _)| *from == messages[0].0 && from.starts_with("boss/")), "each knows its sender");
        }
        assert!(run.view().await.unwrap().head.generation >= 4, "over several generations");
    }

    async fn what_was_spawned_outlives_the_turn_and_ends_with_the_run(site) {
        let onward = site.builder().await.agent("keeper", keeper).workflow("sleeper", sleeper).start().await.unwrap();
        let run: RunHandle<String> = onward.start("keeper", &false).id("k").await.unwrap();
        let child = child_of(&onward, "k").await;
        until_status(&run, Status::Waiting).await;
        until_status(&child, Status::Waiting).await;
        run.message("go on").await.unwrap();
        assert_eq!(run.result().await.unwrap(), "left");
        until_status(&child, Status::Canceled).await;
    }

    async fn canceling_a_run_cancels_what_an_earlier_turn_has_spawned(site) {
        let onward = site.builder().await.agent("keeper", keeper).workflow("sleeper", sleeper).start().await.unwrap();
        let run: RunHandle<String> = onward.start("keeper", &false).id("k").await.unwrap();
        let child = child_of(&onward, "k").await;
        until_status(&child, Status::Waiting).await;
        run.cancel("enough").await.unwrap();
        until_status(&run, Status::Canceled).await;
        until_status(&child, Status::Canceled).await;
    }

    async fn a_child_that_is_canceled_by_its_handle_has_that_as_its_result(site) {
        let onward = site.builder().await.agent("keeper", keeper).workflow("sleeper", sleeper).start().await.unwrap();
        let run: RunHandle<String> = onward.start("keeper", &true).id("k").await.unwrap();
        run.message("now").await.unwrap();
        assert_eq!(run.result().await.unwrap(), "canceled");
    }

    /// Rule 4: messages of a child that is not on the live path end as undelivered; the child itself ends with the segment.
    async fn an_abandoned_child_has_no_receiver_and_ends(site) {
        async fn reporter(ctx: Ctx, number: u32) -> Result<()> {
            ctx.parent().expect("it has one").message(&format!("I am {number}"))?;
            ctx.signal("never").recv().await
        }
        async fn fickle(ctx: AgentCtx, (): ()) -> Result<Vec<String>> {
            let is_other = ctx.dep::<Arc<AtomicBool>>();
            ctx.turns(Vec::new(), |received: Vec<String>| {
                let (ctx, is_other) = (ctx.clone(), is_other.load(Ordering::SeqCst));
                async move {
                    if !received.is_empty() {
                        let more = ctx.signal(MESSAGE).drain::<String>()?;
                        return Ok(Turn::Done([received, more].concat()));
                    }
                    ctx.spawn::<()>("reporter", &if is_other { 2 } else { 1 })?;
                    ctx.signal("go").recv::<()>().await?;
                    let first = ctx.signal(MESSAGE).recv().await?;
                    Ok(Turn::Await(vec![first], "go"))
                }
            })
            .await
        }
        let is_other = Arc::new(AtomicBool::new(false));
        let builder = async || {
            let builder = site.builder().await.dep(is_other.clone());
            builder.agent("fickle", fickle).workflow("reporter", reporter).start().await.unwrap()
        };
        let onward = builder().await;
        let run: RunHandle<Vec<String>> = onward.start("fickle", &()).id("f").await.unwrap();
        let first = child_of(&onward, "f").await;
        until_status(&first, Status::Waiting).await;
        crate::site::until_logged(&run, "signal_received", 1).await;
        let left = first.id().to_string();
        drop((run, first));
        onward.shutdown().await;

        is_other.store(true, Ordering::SeqCst);
        let onward = builder().await;
        let run: RunHandle<Vec<String>> = onward.run("f").unwrap();
        run.signal("go", &()).await.unwrap();
        let pause = paused(&run).await;
        assert!(pause.message.contains("child `reporter`"), "{}", pause.message);
        run.resume().await.unwrap();
        let first: RunHandle<()> = onward.run(&left).unwrap();
        until_status(&first, Status::Canceled).await;
        run.signal("go", &()).await.unwrap();
        assert_eq!(run.result().await.unwrap(), ["I am 2"], "the child that it left is not heard");
        let view = run.view().await.unwrap();
        let undelivered: Vec<_> = view.undelivered.iter().filter(|signal| signal.name.as_str() == MESSAGE).collect();
        let texts: Vec<String> = undelivered.iter().map(|signal| signal.payload.read().unwrap()).collect();
        assert_eq!(texts, ["I am 1"], "and its message is visible");
        assert_eq!(undelivered[0].sender.as_ref().unwrap().id.as_str(), left);
    }

    /// The code changes another entry and spawns the same: it is the same child, and its message is received.
    async fn a_child_that_is_spawned_again_is_the_same_one(site) {
        async fn reporter(ctx: Ctx, (): ()) -> Result<String> {
            ctx.parent().expect("it has one").message("ready")?;
            ctx.signal(MESSAGE).recv().await
        }
        async fn fickle(ctx: AgentCtx, (): ()) -> Result<String> {
            let is_other = ctx.dep::<Arc<AtomicBool>>();
            ctx.turns((), |()| {
                let (ctx, is_other) = (ctx.clone(), is_other.load(Ordering::SeqCst));
                async move {
                    ctx.append("system", if is_other { "be polite" } else { "be brief" }).await?;
                    let child: Spawned<String> = ctx.spawn("reporter", &())?;
                    ctx.signal("go").recv::<()>().await?;
                    let word: String = ctx.signal(MESSAGE).recv().await?;
                    child.message(&ctx, &word)?;
                    Ok(Turn::Done(child.result(&ctx).await?))
                }
            })
            .await
        }
        let is_other = Arc::new(AtomicBool::new(false));
        let builder = async || {
            let builder = site.builder().await.dep(is_other.clone());
            builder.agent("fickle", fickle).workflow("reporter", reporter).start().await.unwrap()
        };
        let onward = builder().await;
        let run: RunHandle<String> = onward.start("fickle", &()).id("f").await.unwrap();
        crate::site::until_logged(&run, "signal_received", 1).await;
        drop(run);
        onward.shutdown().await;
        is_other.store(true, Ordering::SeqCst);
        let onward = builder().await;
        let run: RunHandle<String> = onward.run("f").unwrap();
        run.signal("go", &()).await.unwrap();
        assert_eq!(run.result().await.unwrap(), "ready");
        let log = run.log_of(1).await.unwrap();
        let started = log.iter().flat_map(|record| &record.events).filter(|event| matches!(event, Event::ChildStarted(_)));
        assert_eq!(started.count(), 1);
        assert!(events(&run).await.iter().any(|event| matches!(event, Event::CallAdopted(_))));
    }
}

//! Steps: real effects, recorded once.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onward::prelude::*;
use onward::{RunHandle, Status, join};
use onward_core::Event;
use onward_core::timeline::CallStatus;

use crate::site::{PAYLOAD_BYTES_MAX, count, events, eventually, everywhere, until_status};

everywhere! {
    /// Scenarios 30 and 31.
    async fn time_chance_and_steps_are_the_same_after_a_restart(site) {
        type Drawn = Vec<(u64, String, u64)>;
        #[derive(Default)]
        struct Seen {
            drawn: Mutex<Drawn>,
            steps: AtomicU32,
        }
        async fn draw(ctx: Ctx, (): ()) -> Result<Drawn> {
            let seen = ctx.dep::<Arc<Seen>>();
            let step = ctx.step("count", async || Ok::<_, Failure>(seen.steps.fetch_add(1, Ordering::SeqCst))).await?;
            let mut drawn = vec![(ctx.now().0, ctx.uuid(), ctx.random() ^ u64::from(step))];
            seen.drawn.lock().unwrap().clone_from(&drawn);
            ctx.signal("go").recv::<()>().await?;
            drawn.push((ctx.now().0, ctx.uuid(), ctx.random()));
            Ok(drawn)
        }
        let (first, second) = (Arc::new(Seen::default()), Arc::new(Seen::default()));
        let onward = site.builder().await.workflow("draw", draw).dep(first.clone()).start().await.unwrap();
        let run = onward.start::<Drawn, _>("draw", &()).id("r").await.unwrap();
        until_status(&run, Status::Waiting).await;
        drop(run);
        onward.shutdown().await;

        site.clock.advance(days(1));
        let onward = site.builder().await.workflow("draw", draw).dep(second.clone()).start().await.unwrap();
        let run = onward.run::<Drawn>("r").unwrap();
        run.signal("go", &()).await.unwrap();
        let drawn = run.result().await.unwrap();
        assert_eq!(drawn[..1], *first.drawn.lock().unwrap());
        assert_eq!(drawn[..1], *second.drawn.lock().unwrap());
        assert_eq!(drawn[1].0 - drawn[0].0, 86_400_000);
        assert_eq!((first.steps.load(Ordering::SeqCst), second.steps.load(Ordering::SeqCst)), (1, 0));
    }

    async fn inputs_are_recorded_on_request_or_for_a_whole_kind_and_never_compared(site) {
        async fn code(ctx: Ctx, (): ()) -> Result<()> {
            let step = |name: &str| ctx.step(name, async || Ok::<_, Failure>(()));
            step("recorded").input(&"a").record().await?;
            step("first").record().input(&"b").await?;
            step("plain").input(&"c").await?;
            step("none").record().await?;
            step("large").input(&"x".repeat(100_000)).record().await?;
            ctx.step("fails", async || Err::<(), _>(Failure::fatal("no"))).input(&"d").record().await.unwrap_err();
            ctx.signal("go").recv::<()>().await
        }
        let inputs = async |run: &RunHandle<()>| {
            let steps = events(run).await.into_iter().filter_map(|event| match event {
                Event::StepCompleted(step) => Some((step.name.to_string(), step.input)),
                Event::StepFailed(step) => Some((step.name.to_string(), step.input)),
                _ => None,
            });
            let recorded = steps.filter_map(|(name, input)| Some(format!("{name} {}", input?.read::<String>().unwrap())));
            recorded.collect::<Vec<_>>().join(", ")
        };
        let builder = site.builder().await.workflow("some", code).workflow("all", code).record_inputs();
        let onward = builder.start().await.unwrap();
        let (some, all) = (onward.start::<(), _>("some", &()).id("some").await.unwrap(), onward.start::<(), _>("all", &()).id("all").await.unwrap());
        until_status(&some, Status::Waiting).await;
        until_status(&all, Status::Waiting).await;
        assert_eq!(inputs(&some).await, "recorded a, first b, fails d");
        assert_eq!(inputs(&all).await, "recorded a, first b, plain c, fails d");
        drop((some, all));
        onward.shutdown().await;

        // The option of the kind has changed, and the log still replays.
        let onward = site.builder().await.workflow("some", code).record_inputs().workflow("all", code).start().await.unwrap();
        for id in ["some", "all"] {
            let run = onward.run::<()>(id).unwrap();
            run.signal("go", &()).await.unwrap();
            run.result().await.unwrap();
        }
    }

    async fn a_task_records_when_its_last_attempt_began_and_on_which_worker(site) {
        async fn code(ctx: Ctx, (): ()) -> Result<()> {
            ctx.task("work", &()).await
        }
        let onward = site.builder().await.workflow("code", code).task("work", async |(): ()| Ok::<_, Failure>(())).start().await.unwrap();
        let run = onward.start::<(), _>("code", &()).id("r").await.unwrap();
        run.result().await.unwrap();
        let timeline = run.timeline().await.unwrap();
        let [task] = &timeline.calls[..] else { panic!("{:?}", timeline.calls) };
        assert_eq!((task.status, task.attempts.len()), (CallStatus::Completed, 1));
        let attempt = &task.attempts[0];
        assert!(attempt.worker.is_some() && attempt.started_at >= task.queued_at && attempt.ended_at >= attempt.started_at, "{attempt:?}");
        assert_eq!((timeline.status, timeline.generations, timeline.ended_at.is_some()), (Status::Completed, 1, true));
    }

    /// Scenario 32.
    async fn an_attempt_that_takes_too_long_is_dropped_fails_as_timed_out_and_is_tried_again(site) {
        async fn slow_at_first(ctx: Ctx, (): ()) -> Result<u32> {
            let step = ctx.step_with("slow", async |attempt: Attempt| {
                if attempt.number == 1 {
                    std::future::pending::<()>().await;
                }
                Ok::<_, Failure>(attempt.number)
            });
            step.timeout(Duration::from_millis(20)).retry(2).await
        }
        let onward = site.builder().await.workflow("slow", slow_at_first).start().await.unwrap();
        let run = onward.start::<u32, _>("slow", &()).await.unwrap();
        eventually("the second attempt", async || {
            site.pass(&onward, secs(1)).await;
            (count(&run, "step_completed").await == 1).then_some(())
        })
        .await;
        assert_eq!(run.result().await.unwrap(), 2);
        let failure = events(&run).await.into_iter().find_map(|event| match event {
            onward_core::Event::StepFailed(event) => Some(event.failure),
            _ => None,
        });
        assert!(failure.unwrap().is_timed_out());
    }

    async fn inside_a_step_everything_async_works(site) {
        async fn everything(ctx: Ctx, (): ()) -> Result<(u32, String, u32)> {
            ctx.step("tokio", async || {
                tokio::time::sleep(Duration::from_millis(1)).await;
                let limited = tokio::time::timeout(Duration::from_secs(5), async { 1 }).await?;
                let (sender, mut receiver) = tokio::sync::mpsc::channel(1);
                let sent = tokio::spawn(async move { sender.send(2).await });
                let received = receiver.recv().await.unwrap_or(0);
                sent.await??;
                tokio::task::yield_now().await;
                let blocking = tokio::task::spawn_blocking(|| 4).await?;
                Ok::<_, Failure>(limited + received + blocking)
            })
            .await?;
            let echoed = ctx.step("socket", async || echo_over_a_socket().await).await?;
            let joined = ctx
                .step("many", async || {
                    let all = futures::future::join_all((0..40).map(|n| async move {
                        tokio::task::yield_now().await;
                        n
                    }));
                    Ok::<u32, Failure>(all.await.into_iter().sum())
                })
                .await?;
            Ok((7, echoed, joined))
        }
        async fn echo_over_a_socket() -> std::io::Result<String> {
            use tokio::io::{AsyncReadExt, AsyncWriteExt};
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
            let address = listener.local_addr()?;
            let serve = tokio::spawn(async move {
                let (mut socket, _) = listener.accept().await?;
                socket.write_all(b"hello").await
            });
            let mut text = String::new();
            tokio::net::TcpStream::connect(address).await?.read_to_string(&mut text).await?;
            serve.await??;
            Ok(text)
        }
        let onward = site.builder().await.workflow("everything", everything).start().await.unwrap();
        let run = onward.start::<(u32, String, u32), _>("everything", &()).await.unwrap();
        assert_eq!(run.result().await.unwrap(), (7, "hello".to_owned(), 780));
    }

    async fn steps_of_a_join_run_at_the_same_time(site) {
        async fn meet(ctx: Ctx, (): ()) -> Result<u32> {
            let meeting = Arc::new(tokio::sync::Barrier::new(3));
            let step = |name: &'static str| {
                let meeting = meeting.clone();
                ctx.step(name, move || async move {
                    meeting.wait().await;
                    Ok::<_, Failure>(1)
                })
            };
            let (a, b, c) = join!(step("a"), step("b"), step("c"));
            Ok(a? + b? + c?)
        }
        let onward = site.builder().await.workflow("meet", meet).start().await.unwrap();
        assert_eq!(onward.start::<u32, _>("meet", &()).await.unwrap().result().await.unwrap(), 3);
    }

    async fn a_steps_result_of_any_size_comes_back_byte_for_byte(site) {
        async fn large(ctx: Ctx, size: usize) -> Result<bool> {
            let made: String = ctx.step("make", async || Ok::<_, Failure>("ä\u{0}x".repeat(size))).await?;
            ctx.signal("end").recv::<()>().await?;
            Ok(made == "ä\u{0}x".repeat(size))
        }
        let onward = site.builder().await.workflow("large", large).start().await.unwrap();
        for size in [0, 1, 5_000, 50_000] {
            let run = onward.start::<bool, _>("large", &size).await.unwrap();
            until_status(&run, Status::Waiting).await;
            run.signal("end", &()).await.unwrap();
            assert!(run.result().await.unwrap(), "{size}");
        }
    }

    async fn a_failure_that_is_too_long_is_cut_and_the_same_after_a_restart(site) {
        async fn verbose(ctx: Ctx, (): ()) -> Result<usize> {
            let text = || Failure::fatal("x".repeat(3 * PAYLOAD_BYTES_MAX)).with_details(onward_core::Payload::json(&vec![7; PAYLOAD_BYTES_MAX]).unwrap());
            let failure = ctx.step("verbose", async || Err::<(), _>(text())).await.unwrap_err();
            ctx.signal("end").recv::<()>().await?;
            if failure.message.len() == onward_core::FAILURE_BYTES_MAX { Err(text()) } else { Ok(failure.message.len()) }
        }
        let onward = site.builder().await.workflow("verbose", verbose).cached_runs_max(0).start().await.unwrap();
        let run = onward.start::<usize, _>("verbose", &()).await.unwrap();
        until_status(&run, Status::Waiting).await;
        run.signal("end", &()).await.unwrap();
        until_status(&run, Status::Failed).await;
        let failure = run.view().await.unwrap().outcome.unwrap().unwrap_err();
        assert!(failure.message.ends_with("x… (cut)"));
    }
}

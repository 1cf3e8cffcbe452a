//! Live views: the log of a run, and what is under way and not in the log, for readers that come and go.

use std::sync::Arc;

use onward::live::{Audience, LiveContent, LiveFrame, RunUnderWay};
use onward::prelude::*;
use onward::{Builder, Index, LiveRun, RunHandle, Status};
use serde_json::{Value, json};

use crate::site::{Gate, Site, eventually, everywhere, until_status};

/// Runs a step that ends when the gate opens, then a task.
async fn sell(ctx: Ctx, gate: Arc<Gate>) -> Result<u32> {
    ctx.state().set("stage", &"begun")?;
    let charge = ctx.step("charge", async move || {
        gate.pass().await;
        Ok::<_, Failure>(5)
    });
    let sum: u32 = charge.await?;
    ctx.emit("charged", &sum)?;
    ctx.emission("margin", &2).internal().meta(&json!({"source": "erp"})).send()?;
    ctx.state().set("stage", &"charged")?;
    ctx.task("ship", &sum).await
}

async fn ship(ctx: TaskCtx, gate: Arc<Gate>) -> Result<u32> {
    ctx.heartbeat(&"half way");
    gate.pass().await;
    Ok(7)
}

fn gates() -> [Arc<Gate>; 2] {
    [Gate::shut(), Gate::shut()]
}

async fn shop(site: &Site, gates: &[Arc<Gate>; 2]) -> Builder {
    let (code, task) = (gates[0].clone(), gates[1].clone());
    let builder = site.builder().await;
    let builder = builder.workflow("sell", move |ctx: Ctx, (): ()| sell(ctx, code.clone()));
    builder.task("ship", move |ctx: TaskCtx, _: u32| ship(ctx, task.clone()))
}

fn word(frame: &LiveFrame) -> &'static str {
    match &frame.content {
        LiveContent::Snapshot(_) => "snapshot",
        LiveContent::Log(log) => log.record.events[0].name(),
        LiveContent::StepStarted(_) => "step_started",
        LiveContent::StepAttemptFailed(_) => "step_attempt_failed",
        LiveContent::StateChanged(_) => "state_changed",
        LiveContent::TaskStarted(_) => "task_started",
        LiveContent::TaskProgress(_) => "task_progress",
        LiveContent::Emitted(_) => "emitted",
        LiveContent::Blocked(_) => "blocked",
        LiveContent::End(_) => "end",
        LiveContent::Dropped(_) => "dropped",
    }
}

/// Reads up to the first frame of this name.
async fn until(live: &mut LiveRun, name: &str) -> Vec<LiveFrame> {
    let mut frames = Vec::new();
    loop {
        let frame = live.next().await.unwrap();
        let frame = frame.unwrap_or_else(|| panic!("the view ended before {name}: {frames:?}"));
        let is_wanted = word(&frame) == name;
        frames.push(frame);
        if is_wanted {
            return frames;
        }
    }
}

async fn rest(live: &mut LiveRun) -> Vec<LiveFrame> {
    let mut frames = Vec::new();
    while let Some(frame) = live.next().await.unwrap() {
        frames.push(frame);
    }
    frames
}

/// Returns the positions of all events.
fn events(frames: &[LiveFrame]) -> Vec<(u32, u64)> {
    let positions = |frame: &LiveFrame| match &frame.content {
        LiveContent::Log(log) => log.record.indexed().map(|(index, _)| (log.generation, index.0)).collect(),
        _ => Vec::new(),
    };
    frames.iter().flat_map(positions).collect()
}

fn snapshot(frames: &[LiveFrame]) -> &RunUnderWay {
    match &frames[0].content {
        LiveContent::Snapshot(snapshot) => snapshot,
        other => panic!("LU2: {other:?}"),
    }
}

/// Opens views until one shows that exactly this call is under way.
async fn until_under_way<O>(run: &RunHandle<O>, name: &str, status: Status) -> RunUnderWay {
    eventually("it is under way", async || {
        let mut live = run.watch(Index(0)).await.unwrap();
        let frames = until(&mut live, "snapshot").await;
        let RunUnderWay { active, .. } = snapshot(&frames);
        let is_there = active.len() == 1 && active[0].name.as_str() == name && snapshot(&frames).status == status;
        is_there.then(|| snapshot(&frames).clone())
    })
    .await
}

everywhere! {
    async fn a_reader_gets_what_happens_in_the_order_in_which_it_happens(site) {
        let gates = gates();
        let onward = shop(site, &gates).await.start().await.unwrap();
        let run = onward.start::<u32, _>("sell", &()).id("r").await.unwrap();
        let mut live = run.watch(Index(0)).await.unwrap();
        let mut frames = until(&mut live, "snapshot").await;
        assert_eq!(frames.len(), 1, "LU2");
        // The reader may have come before the step began or after it.
        if snapshot(&frames).active.is_empty() {
            frames.extend(until(&mut live, "step_started").await);
        }
        gates[0].open();
        frames.extend(until(&mut live, "task_progress").await);
        gates[1].open();
        frames.extend(rest(&mut live).await);
        let words: Vec<&str> = frames.iter().map(word).collect();
        let at = |name: &str| words.iter().position(|word| *word == name).unwrap_or_else(|| panic!("no {name}: {words:?}"));
        assert!(at("step_completed") < at("emitted") && at("task_started") < at("task_progress"), "LU3: {words:?}");
        assert!(at("task_progress") < at("task_completed"), "LU3: {words:?}");
        assert_eq!(words.iter().filter(|word| **word == "state_changed").count(), words.iter().filter(|word| **word == "state_set").count() - usize::from(snapshot(&frames).next_index > Index(1)));
        let all: Vec<(u32, u64)> = (0..events(&frames).len() as u64).map(|index| (0, index)).collect();
        assert_eq!(events(&frames), all, "LU1");
        let Some(LiveContent::End(end)) = frames.last().map(|frame| &frame.content) else { panic!("{words:?}") };
        assert_eq!((end.status, end.outcome.clone().unwrap().unwrap().read::<u32>().unwrap()), (Status::Completed, 7));
        let emitted: Vec<_> = frames.iter().filter_map(|frame| match &frame.content {
            LiveContent::Emitted(emitted) => Some(emitted),
            _ => None,
        }).collect();
        assert_eq!((emitted[0].audience, emitted[0].value.read::<u32>().unwrap()), (Audience::Public, 5));
        assert_eq!(emitted[1].audience, Audience::Internal);
        assert_eq!(emitted[1].meta.as_ref().unwrap().read::<Value>().unwrap(), json!({"source": "erp"}));
        let progress = frames.iter().find_map(|frame| match &frame.content {
            LiveContent::TaskProgress(progress) => Some(progress.progress.read::<String>().unwrap()),
            _ => None,
        });
        assert_eq!(progress.as_deref(), Some("half way"));
    }

    async fn a_late_reader_finds_what_is_under_way_in_the_snapshot(site) {
        let gates = gates();
        let onward = shop(site, &gates).await.start().await.unwrap();
        let run = onward.start::<u32, _>("sell", &()).id("r").await.unwrap();
        let charging = until_under_way(&run, "charge", Status::Running).await;
        assert_eq!(charging.active[0].attempt, 1);
        assert!(charging.doing.starts_with("Executes step charge since "), "{}", charging.doing);
        gates[0].open();
        let shipping = until_under_way(&run, "ship", Status::Waiting).await;
        assert!(shipping.active[0].worker.is_some(), "{shipping:?}");
        gates[1].open();
        run.result().await.unwrap();
        let mut live = run.watch(Index(0)).await.unwrap();
        let frames = rest(&mut live).await;
        assert!(snapshot(&frames).active.is_empty());
        let words: Vec<&str> = frames.iter().map(word).collect();
        assert!(!words.contains(&"state_changed"), "LU3: a closed run has no live part: {words:?}");
    }

    async fn a_reader_that_continues_after_its_last_event_gets_each_event_once(site) {
        let gates = gates();
        let onward = shop(site, &gates).await.start().await.unwrap();
        let run = onward.start::<u32, _>("sell", &()).id("r").await.unwrap();
        let mut live = run.watch(Index(0)).await.unwrap();
        let mut seen = events(&until(&mut live, "run_started").await);
        let cursor = live.cursor().unwrap();
        drop(live);
        gates.iter().for_each(|gate| gate.open());
        run.result().await.unwrap();
        let mut live = run.watch_after(cursor).await.unwrap();
        let frames = rest(&mut live).await;
        assert_eq!(snapshot(&frames).status, Status::Completed, "a snapshot comes first here, too");
        seen.extend(events(&frames));
        let all: Vec<(u32, u64)> = (0..seen.len() as u64).map(|index| (0, index)).collect();
        assert_eq!(seen, all, "LU1");
    }

    async fn a_reader_follows_a_run_into_its_next_generation(site) {
        async fn pages(ctx: Ctx, page: u32) -> Result<u32> {
            let () = ctx.signal("next").recv().await?;
            if page == 2 { Ok(page) } else { ctx.continue_as_new(&(page + 1)).await }
        }
        let onward = site.builder().await.workflow("pages", pages).start().await.unwrap();
        let run = onward.start::<u32, _>("pages", &0).id("r").await.unwrap();
        let mut live = run.watch(Index(0)).await.unwrap();
        let mut frames = Vec::new();
        for _ in 0..3 {
            frames.extend(until(&mut live, "signal_awaited").await);
            run.signal("next", &()).await.unwrap();
        }
        frames.extend(rest(&mut live).await);
        let starts = frames.iter().filter(|frame| word(frame) == "run_started").count();
        assert_eq!((starts, word(frames.last().unwrap())), (3, "end"));
        let mut sorted = events(&frames);
        sorted.dedup();
        assert!(sorted.is_sorted() && sorted == events(&frames), "LU1");
    }

    async fn a_failed_attempt_is_shown_with_the_time_of_the_next(site) {
        async fn flaky(ctx: Ctx, (): ()) -> Result<u32> {
            ctx.step_with("call", async |attempt| if attempt.number == 1 { Err(Failure::new("busy", "no")) } else { Ok(3) }).retry(2).await
        }
        let onward = site.builder().await.workflow("flaky", flaky).start().await.unwrap();
        let run = onward.start::<u32, _>("flaky", &()).id("r").await.unwrap();
        let mut live = run.watch(Index(0)).await.unwrap();
        let frames = until(&mut live, "step_failed").await;
        // The reader may have come after the failure, which is then in the log only.
        if snapshot(&frames).next_index == Index(1) {
            let frames = until(&mut live, "step_attempt_failed").await;
            let LiveContent::StepAttemptFailed(failed) = &frames.last().unwrap().content else { panic!("{frames:?}") };
            assert_eq!((failed.attempt, failed.failure.code.as_str()), (1, "busy"), "LV2");
            assert!(failed.next_attempt_at.is_some(), "LV2");
        }
        site.pass(&onward, onward::time::mins(1)).await;
        assert_eq!(word(rest(&mut live).await.last().unwrap()), "end");
    }

    async fn what_a_run_waits_for_is_shown_when_it_changes(site) {
        async fn wait(ctx: Ctx, (): ()) -> Result<()> {
            let () = ctx.signal("first").recv().await?;
            ctx.signal("second").recv().await
        }
        let onward = site.builder().await.workflow("wait", wait).start().await.unwrap();
        let run = onward.start::<(), _>("wait", &()).id("r").await.unwrap();
        until_status(&run, Status::Waiting).await;
        let mut live = run.watch(Index(0)).await.unwrap();
        let frames = until(&mut live, "signal_awaited").await;
        assert_eq!(snapshot(&frames).awaiting[0].name.as_ref().unwrap().as_str(), "first");
        run.signal("first", &()).await.unwrap();
        loop {
            let frames = until(&mut live, "blocked").await;
            let LiveContent::Blocked(blocked) = &frames.last().unwrap().content else { panic!("{frames:?}") };
            if blocked.awaiting.first().is_some_and(|awaited| awaited.name.as_ref().is_some_and(|name| name.as_str() == "second")) {
                assert_eq!(blocked.status, Status::Waiting);
                break;
            }
        }
    }
}

/// LW2: the worker of a run reports nothing before a reader comes and after the last one is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_is_watched_while_it_has_readers() {
    let (site, gates) = (Site::server(), gates());
    let onward = shop(&site, &gates).await.start().await.unwrap();
    let run = onward.start::<u32, _>("sell", &()).id("r").await.unwrap();
    until_under_way(&run, "charge", Status::Running).await;
    let key = onward_core::RunKey::new(Default::default(), onward::RunId::new("r").unwrap());
    let is_watched = || site.runtime(&onward).is_watched(&key);
    eventually("nothing is watched", async || (!is_watched()).then_some(())).await;
    let live = run.watch(Index(0)).await.unwrap();
    eventually("it is watched", async || is_watched().then_some(())).await;
    drop(live);
    eventually("nothing is watched again", async || (!is_watched()).then_some(())).await;
    gates.iter().for_each(|gate| gate.open());
    run.result().await.unwrap();
}

//! Clients of runs: identity, following a log, queries, updates, streams, and runs with several generations.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use onward::Status;
use onward::prelude::*;
use onward_core::{Index, Record};

use crate::site::{count, eventually, everywhere, paused, until_logged, until_status};

/// Adds up signals, returns the sum to queries, and accepts updates of it.
async fn adder(ctx: Ctx, first: u32) -> Result<u32> {
    let sum = Arc::new(Mutex::new(first));
    let (queried, updated) = (sum.clone(), sum.clone());
    ctx.query("sum", move |(): ()| Ok(*queried.lock().unwrap()));
    ctx.query("refuse", |(): ()| -> Result<u32> { Err(Failure::fatal("not today")) });
    ctx.update("set", move |value: u32| {
        if value > 1_000 {
            return Err(Failure::fatal("too much").with_code("too_much"));
        }
        Ok(std::mem::replace(&mut *updated.lock().unwrap(), value))
    });
    loop {
        let n: u32 = ctx.signal("add").recv().await?;
        *sum.lock().unwrap() += n;
        if n == 0 {
            let sum = *sum.lock().unwrap();
            return Ok(sum);
        }
        let shown = *sum.lock().unwrap();
        ctx.state().set("sum", &shown)?;
        ctx.emit("sum", &shown)?;
    }
}

async fn all_records(mut attached: onward::Attached) -> Vec<Record> {
    let mut records = Vec::new();
    while let Some(record) = attached.next().await.unwrap() {
        records.push(record);
    }
    records
}

everywhere! {
    /// An acknowledged cancellation counts, even if the code continues as new before it sees the request.
    async fn a_cancel_that_comes_right_behind_what_makes_the_code_continue_is_not_lost(site) {
        async fn renewed(ctx: Ctx, generation: u32) -> Result<u32> {
            let got: u32 = ctx.signal("s").recv().await?;
            ctx.continue_as_new(&(generation + got)).await
        }
        let onward = site.builder().await.workflow("renewed", renewed).start().await.unwrap();
        let run = onward.start::<u32, _>("renewed", &0).id("r").await.unwrap();
        until_status(&run, Status::Waiting).await;
        // Both come in one batch when the run is resumed.
        run.pause("").await.unwrap();
        run.signal("s", &1u32).await.unwrap();
        run.cancel("enough").await.unwrap();
        run.resume().await.unwrap();
        until_status(&run, Status::Canceled).await;
        let view = run.view().await.unwrap();
        assert_eq!((view.head.generation, view.cancel_reason.as_deref()), (1, Some("enough")));
    }

    /// Scenario 41.
    async fn the_same_id_with_the_same_input_is_the_same_run_however_often_it_is_started(site) {
        let onward = site.builder().await.workflow("adder", adder).start().await.unwrap();
        for _ in 0..3 {
            drop(onward.start::<u32, _>("adder", &5).id("r").await.unwrap());
        }
        let run = onward.run::<u32>("r").unwrap();
        run.signal("add", &0).await.unwrap();
        assert_eq!(run.result().await.unwrap(), 5);
        let after_the_end = onward.start::<u32, _>("adder", &5).id("r").await.unwrap();
        assert_eq!(after_the_end.result().await.unwrap(), 5);
        assert_eq!(count(&run, "run_started").await, 1);
    }

    /// Scenario 43.
    async fn an_attached_reader_gets_the_log_and_the_end_of_a_finished_run(site) {
        let onward = site.builder().await.workflow("adder", adder).start().await.unwrap();
        let run = onward.start::<u32, _>("adder", &5).signal("add", &0).await.unwrap();
        run.result().await.unwrap();
        let log = run.log().await.unwrap();
        assert_eq!(all_records(run.attach(Index(0)).await.unwrap()).await, log);
        let from_the_middle = all_records(run.attach(log[1].index).await.unwrap()).await;
        assert_eq!(from_the_middle, log[1..]);
        let past_the_end = log.last().unwrap().next_index();
        assert_eq!(all_records(run.attach(past_the_end).await.unwrap()).await, [], "there is nothing more to wait for");
    }

    /// Scenario 43.
    async fn an_attached_reader_gets_new_events_in_order_and_once(site) {
        let onward = site.builder().await.workflow("adder", adder).start().await.unwrap();
        let run = onward.start::<u32, _>("adder", &0).await.unwrap();
        until_status(&run, Status::Waiting).await;
        let following = tokio::spawn(all_records(run.attach(Index(0)).await.unwrap()));
        for n in (0..20).rev() {
            run.signal("add", &n).await.unwrap();
        }
        assert_eq!(run.result().await.unwrap(), 190);
        assert_eq!(following.await.unwrap(), run.log().await.unwrap());
    }

    /// Scenario 43.
    async fn an_attached_reader_gets_the_log_and_the_resume_of_a_paused_run(site) {
        let onward = site.builder().await.workflow("adder", adder).start().await.unwrap();
        let run = onward.start::<u32, _>("adder", &5).await.unwrap();
        until_status(&run, Status::Waiting).await;
        run.pause("").await.unwrap();
        paused(&run).await;
        let before = run.log().await.unwrap();
        let mut attached = run.attach(Index(0)).await.unwrap();
        for record in &before {
            assert_eq!(attached.next().await.unwrap().as_ref(), Some(record));
        }
        run.resume().await.unwrap();
        let next = attached.next().await.unwrap().unwrap();
        assert_eq!(next.events[0].name(), "run_resumed");
    }

    async fn a_query_is_answered_by_the_code_in_memory_and_by_a_replay_alike(site) {
        let onward = site.builder().await.workflow("adder", adder).start().await.unwrap();
        let run = onward.start::<u32, _>("adder", &5).id("r").signal("add", &2).await.unwrap();
        until_logged(&run, "state_set", 1).await;
        assert_eq!(run.query::<u32>("sum", &()).await.unwrap(), 7);
        let hot = run.log().await.unwrap();
        drop(run);
        onward.shutdown().await;

        // The run is not in memory here: no waiting run is cached.
        let onward = site.builder().await.workflow("adder", adder).cached_runs_max(0).start().await.unwrap();
        let run = onward.run::<u32>("r").unwrap();
        assert_eq!(run.query::<u32>("sum", &()).await.unwrap(), 7);
        assert_eq!(run.log().await.unwrap(), hot, "a question is not recorded");
        run.signal("add", &0).await.unwrap();
        run.result().await.unwrap();
        assert_eq!(run.query::<u32>("sum", &()).await.unwrap(), 7, "also after the end");
    }

    async fn a_query_that_fails_or_does_not_exist_is_an_error(site) {
        let onward = site.builder().await.workflow("adder", adder).start().await.unwrap();
        let run = onward.start::<u32, _>("adder", &5).await.unwrap();
        until_status(&run, Status::Waiting).await;
        let unknown = run.query::<u32>("product", &()).await.unwrap_err();
        assert_eq!((unknown.code(), unknown.hint().is_some()), ("unknown_query", true));
        let refused = run.query::<u32>("refuse", &()).await.unwrap_err();
        assert_eq!((refused.code(), &*refused.failure().unwrap().message), ("answer_failed", "not today"));
        let misfit = run.query::<u32>("sum", "a text").await.unwrap_err();
        assert_eq!(misfit.code(), "answer_failed");
        assert_eq!(run.query::<u32>("sum", &()).await.unwrap(), 5, "and the next question is answered");
    }

    async fn an_update_changes_the_run_and_its_answer_is_recorded(site) {
        let onward = site.builder().await.workflow("adder", adder).start().await.unwrap();
        let run = onward.start::<u32, _>("adder", &5).id("r").await.unwrap();
        assert_eq!(run.update::<u32>("set", &100).id("u1").await.unwrap(), 5);
        assert_eq!(run.update::<u32>("set", &100).id("u1").await.unwrap(), 5, "the same id gets the same answer");
        let refused = run.update::<u32>("set", &9_999).await.unwrap_err();
        assert_eq!(refused.failure().unwrap().code, "too_much");
        drop(run);
        onward.shutdown().await;
        let onward = site.builder().await.workflow("adder", adder).start().await.unwrap();
        let run = onward.run::<u32>("r").unwrap();
        run.signal("add", &0).await.unwrap();
        assert_eq!(run.result().await.unwrap(), 100);
        assert_eq!(run.update::<u32>("set", &100).id("u1").await.unwrap(), 5, "also after the end");
        assert_eq!(run.update::<u32>("set", &1).await.unwrap_err().code(), "run_closed");
    }

    async fn an_update_before_its_handler_waits_and_one_that_is_never_handled_fails(site) {
        async fn late(ctx: Ctx, handles: bool) -> Result<()> {
            ctx.signal("open").recv::<()>().await?;
            if handles {
                ctx.update("set", |n: u32| Ok(n + 1));
            }
            ctx.signal("close").recv::<()>().await
        }
        let onward = site.builder().await.workflow("late", late).start().await.unwrap();
        for handles in [true, false] {
            let run = onward.start::<(), _>("late", &handles).await.unwrap();
            let handle = run.clone();
            let answer = tokio::spawn(async move { handle.update::<u32>("set", &1).await });
            until_logged(&run, "update_received", 1).await;
            run.signal("open", &()).await.unwrap();
            if handles {
                // Code that takes both signals at once ends before the update is delivered (N8).
                until_logged(&run, "update_answered", 1).await;
            }
            run.signal("close", &()).await.unwrap();
            run.result().await.unwrap();
            match answer.await.unwrap() {
                Ok(answer) => assert_eq!((handles, answer), (true, 2)),
                Err(error) => assert_eq!((handles, error.code()), (false, "update_unanswered")),
            }
        }
    }

    async fn every_update_that_is_acknowledged_counts_while_the_run_continues_as_new(site) {
        async fn counter(ctx: Ctx, start: u64) -> Result<u64> {
            let total = Arc::new(AtomicU64::new(start));
            let shared = total.clone();
            ctx.update("add", move |n: u64| Ok(shared.fetch_add(n, Ordering::SeqCst) + n));
            let is_last: bool = ctx.signal("next").recv().await?;
            let total = total.load(Ordering::SeqCst);
            if is_last { Ok(total) } else { ctx.continue_as_new(&total).await }
        }
        let onward = site.builder().await.workflow("counter", counter).start().await.unwrap();
        let run = onward.start::<u64, _>("counter", &0).await.unwrap();
        for n in 1..=100 {
            let id = format!("u{n}");
            let (next, answer) = tokio::join!(run.signal("next", &false), run.update::<u64>("add", &1).id(&id));
            next.unwrap();
            assert_eq!(answer.unwrap(), n);
        }
        run.signal("next", &true).await.unwrap();
        assert_eq!(run.result().await.unwrap(), 100);
        assert_eq!(run.view().await.unwrap().head.generation, 100);
    }

    async fn emitted_values_are_received_once_and_not_again_on_replay(site) {
        let onward = site.builder().await.workflow("adder", adder).cached_runs_max(0).start().await.unwrap();
        let run = onward.start::<u32, _>("adder", &0).await.unwrap();
        let mut emissions = run.emitted();
        for n in [1, 2, 3] {
            run.signal("add", &n).await.unwrap(); // each replays the run: nothing is cached
            until_logged(&run, "state_set", n).await;
        }
        run.signal("add", &0).await.unwrap();
        run.result().await.unwrap();
        let mut sums = Vec::new();
        while let Ok(emitted) = emissions.try_recv() {
            assert_eq!(emitted.name, "sum");
            sums.push(emitted.value.read::<u32>().unwrap());
        }
        assert_eq!(sums, [1, 3, 6]);
    }

    async fn the_state_of_a_run_is_readable_while_it_runs(site) {
        let onward = site.builder().await.workflow("adder", adder).start().await.unwrap();
        let run = onward.start::<u32, _>("adder", &5).signal("add", &3).await.unwrap();
        until_logged(&run, "state_set", 1).await;
        let state = run.view().await.unwrap().state;
        assert_eq!(format!("{state:?}"), r#"{"sum": 8}"#);
    }

    async fn dependencies_are_shared_by_workflows_and_tasks(site) {
        async fn use_it(ctx: Ctx, (): ()) -> Result<u32> {
            let counter = ctx.dep::<AtomicU32>();
            ctx.step("count", async || Ok::<_, Failure>(counter.fetch_add(1, Ordering::SeqCst))).await?;
            ctx.task("count", &()).await
        }
        async fn count(ctx: TaskCtx, (): ()) -> Result<u32> {
            Ok(ctx.dep::<AtomicU32>().fetch_add(1, Ordering::SeqCst))
        }
        let builder = site.builder().await.workflow("use", use_it).task("count", count).dep(AtomicU32::new(7));
        let onward = builder.start().await.unwrap();
        assert_eq!(onward.start::<u32, _>("use", &()).await.unwrap().result().await.unwrap(), 8);
    }

    async fn a_run_that_continues_as_new_keeps_its_id_its_mailbox_and_its_memory_of_signal_ids(site) {
        async fn pages(ctx: Ctx, seen: Vec<u32>) -> Result<Vec<u32>> {
            let mut seen = seen;
            seen.push(ctx.signal("s").recv().await?);
            if seen.len() == 3 { Ok(seen) } else { ctx.continue_as_new(&seen).await }
        }
        let onward = site.builder().await.workflow("pages", pages).start().await.unwrap();
        let run = onward.start::<Vec<u32>, _>("pages", &Vec::<u32>::new()).id("r").await.unwrap();
        run.signal("s", &1).id("one").await.unwrap();
        eventually("the run goes on as new", async || (run.view().await.unwrap().head.generation == 1).then_some(())).await;
        assert!(run.signal("s", &1).id("one").await.unwrap().repeated, "a signal is taken once, over all generations");
        run.signal("s", &2).id("two").await.unwrap();
        run.signal("s", &3).id("three").await.unwrap();
        assert_eq!(run.result().await.unwrap(), [1, 2, 3]);
        assert_eq!(run.view().await.unwrap().head.generation, 2);
        let again = onward.start::<Vec<u32>, _>("pages", &Vec::<u32>::new()).id("r").await.unwrap();
        assert_eq!(again.result().await.unwrap(), [1, 2, 3], "its first input still names it");
    }

    async fn who_follows_a_run_that_continues_as_new_sees_all_its_logs(site) {
        async fn countdown(ctx: Ctx, left: u32) -> Result<u32> {
            ctx.signal("tick").recv::<()>().await?;
            if left == 0 { Ok(7) } else { ctx.continue_as_new(&(left - 1)).await }
        }
        let onward = site.builder().await.workflow("countdown", countdown).start().await.unwrap();
        let run = onward.start::<u32, _>("countdown", &2).await.unwrap();
        let following = tokio::spawn(all_records(run.attach(Index(0)).await.unwrap()));
        for _ in 0..3 {
            run.signal("tick", &()).await.unwrap();
        }
        assert_eq!(run.result().await.unwrap(), 7);
        let names: Vec<_> = following.await.unwrap().into_iter().flat_map(|record| record.events).map(|event| event.name()).collect();
        let of = |name| names.iter().filter(|other| **other == name).count();
        assert_eq!((of("run_started"), of("run_continued"), of("run_completed")), (3, 2, 1), "{names:?}");
    }

    async fn a_child_that_continues_as_new_still_answers_its_parent(site) {
        async fn parent(ctx: Ctx, (): ()) -> Result<u32> {
            ctx.child("countdown", &3).await
        }
        async fn countdown(ctx: Ctx, left: u32) -> Result<u32> {
            if left == 0 { Ok(42) } else { ctx.continue_as_new(&(left - 1)).await }
        }
        let onward = site.builder().await.workflow("parent", parent).workflow("countdown", countdown).start().await.unwrap();
        assert_eq!(onward.start::<u32, _>("parent", &()).await.unwrap().result().await.unwrap(), 42);
    }

    async fn a_run_that_is_deleted_is_gone_and_its_id_is_free(site) {
        let onward = site.builder().await.workflow("adder", adder).start().await.unwrap();
        let run = onward.start::<u32, _>("adder", &5).id("r").await.unwrap();
        assert_eq!(onward.delete_run("r", "").await.unwrap_err().code(), "run_busy");
        run.signal("add", &0).await.unwrap();
        run.result().await.unwrap();
        onward.delete_run("r", "a request").await.unwrap();
        assert_eq!(run.view().await.unwrap_err().code(), "run_not_found");
        let other = onward.start::<u32, _>("adder", &6).id("r").signal("add", &0).await.unwrap();
        assert_eq!(other.result().await.unwrap(), 6);
    }
}

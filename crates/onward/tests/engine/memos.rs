//! Memos: results that runs share, computed once, across crashes, ends and invalidations.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use onward::prelude::*;
use onward::{Builder, MemoKeys, RunHandle, RunQuery, Status};
use onward_core::Event;
use onward_core::event::MemoHit;

use crate::site::{Gate, Site, count, events, everywhere, until_logged, until_status};

/// Counts the executions of its task, which wait for the gate.
#[derive(Clone)]
struct Work {
    ran: Arc<AtomicU32>,
    gate: Arc<Gate>,
}

impl Work {
    fn new(is_open: bool) -> Work {
        let gate = Gate::shut();
        if is_open {
            gate.open();
        }
        Work { ran: Arc::default(), gate }
    }

    fn count(&self) -> u32 {
        self.ran.load(Ordering::SeqCst)
    }
}

async fn resize(ctx: Ctx, input: u32) -> Result<u32> {
    ctx.task::<u32>("resize", &input).memo(hours(1)).await
}

async fn keyed(ctx: Ctx, input: u32) -> Result<u32> {
    ctx.task::<u32>("resize", &input).memo(Memo::new(hours(1)).key(format!("image/{input}"))).await
}

async fn in_tree(ctx: Ctx, input: u32) -> Result<(u32, u32)> {
    let memo = || Memo::new(hours(1)).in_tree();
    let first = ctx.task::<u32>("resize", &input).memo(memo()).await?;
    Ok((first, ctx.task::<u32>("resize", &input).memo(memo()).await?))
}

async fn stepped(ctx: Ctx, input: u32) -> Result<u32> {
    let ran = ctx.dep::<Work>().ran.clone();
    ctx.step("measure", async move || Ok::<_, Failure>(ran.fetch_add(1, Ordering::SeqCst) + 100))
        .input(&input)
        .memo(hours(1))
        .await
}

fn with_code(builder: Builder, work: &Work) -> Builder {
    let task = work.clone();
    let builder = builder.dep(work.clone()).workflow("resize", resize).workflow("keyed", keyed).workflow("in-tree", in_tree);
    builder.workflow("stepped", stepped).task("resize", move |_: TaskCtx, input: u32| {
        let work = task.clone();
        async move {
            work.gate.pass().await;
            let ran = work.ran.fetch_add(1, Ordering::SeqCst);
            if input == 13 { Err(Failure::fatal("unlucky")) } else { Ok(input * 100 + ran) }
        }
    })
}

async fn engine(site: &Site, work: &Work) -> Onward {
    with_code(site.builder().await, work).start().await.unwrap()
}

async fn hit<O>(run: &RunHandle<O>) -> Option<MemoHit> {
    events(run).await.into_iter().find_map(|event| if let Event::MemoAnswered(answered) = event { answered.hit } else { None })
}

async fn start(onward: &Onward, kind: &str, id: &str, input: u32) -> RunHandle<u32> {
    onward.start::<u32, _>(kind, &input).id(id).await.unwrap()
}

async fn invalidate(onward: &Onward, key: &str) -> u64 {
    onward.invalidate_memos(MemoKeys::key(key)).await.unwrap()
}

async fn invalidate_prefix(onward: &Onward, prefix: &str) -> u64 {
    onward.invalidate_memos(MemoKeys::prefix(prefix)).await.unwrap()
}

everywhere! {
    async fn an_equal_task_of_another_run_is_computed_once_and_names_its_origin(site) {
        let work = Work::new(true);
        let onward = engine(site, &work).await;
        let first = start(&onward, "resize", "a", 5).await;
        assert_eq!(first.result().await.unwrap(), 500);
        let second = start(&onward, "resize", "b", 5).await;
        assert_eq!(second.result().await.unwrap(), 500);
        let hit = hit(&second).await.expect("it has the result of the first run");
        assert_eq!((hit.from.as_str(), hit.from_call.to_string().as_str()), ("a", "0"));
        assert_eq!((count(&second, "task_scheduled").await, work.count()), (0, 1));
        assert_eq!(start(&onward, "resize", "c", 6).await.result().await.unwrap(), 601, "another input is another call");
        let calls = second.timeline().await.unwrap().calls;
        assert_eq!(calls[0].memo_from.as_ref().map(|from| from.as_str()), Some("a"));
    }

    async fn calls_that_find_the_computation_in_progress_wait_for_it(site) {
        let work = Work::new(false);
        let onward = engine(site, &work).await;
        let owner = start(&onward, "resize", "owner", 5).await;
        until_logged(&owner, "task_scheduled", 1).await;
        let mut waiting = Vec::new();
        for number in 0..5 {
            let run = start(&onward, "resize", &format!("w{number}"), 5).await;
            until_status(&run, Status::Waiting).await;
            waiting.push(run);
        }
        work.gate.open();
        for run in &waiting {
            assert_eq!(run.result().await.unwrap(), 500);
            assert_eq!(hit(run).await.map(|hit| hit.from.as_str().to_owned()).as_deref(), Some("owner"));
        }
        assert_eq!(work.count(), 1);
    }

    /// MM2
    async fn the_next_waiting_call_computes_when_the_owner_ends_without_a_result(site) {
        let work = Work::new(false);
        let onward = engine(site, &work).await;
        let owner = start(&onward, "resize", "owner", 5).await;
        until_logged(&owner, "task_scheduled", 1).await;
        let (second, third) = (start(&onward, "resize", "b", 5).await, start(&onward, "resize", "c", 5).await);
        until_status(&second, Status::Waiting).await;
        until_status(&third, Status::Waiting).await;
        owner.terminate("away").await.unwrap();
        work.gate.open();
        let (second_value, third_value) = (second.result().await.unwrap(), third.result().await.unwrap());
        assert_eq!(second_value, third_value);
        let scheduled = count(&second, "task_scheduled").await + count(&third, "task_scheduled").await;
        assert_eq!(scheduled, 1, "one of them computed for both");
    }

    async fn a_failed_computation_is_not_a_result(site) {
        let work = Work::new(true);
        let onward = engine(site, &work).await;
        for id in ["a", "b"] {
            let failure = start(&onward, "resize", id, 13).await.result().await.unwrap_err();
            assert!(failure.to_string().contains("unlucky"), "{failure}");
        }
        assert_eq!(work.count(), 2);
    }

    async fn a_value_expires(site) {
        let work = Work::new(true);
        let onward = engine(site, &work).await;
        assert_eq!(start(&onward, "resize", "a", 5).await.result().await.unwrap(), 500);
        site.pass(&onward, mins(59)).await;
        assert_eq!(start(&onward, "resize", "b", 5).await.result().await.unwrap(), 500);
        site.pass(&onward, mins(1)).await;
        assert_eq!(start(&onward, "resize", "c", 5).await.result().await.unwrap(), 501);
        assert_eq!(start(&onward, "resize", "d", 5).await.result().await.unwrap(), 501);
    }

    /// MM4
    async fn an_invalidated_memo_is_computed_again(site) {
        let work = Work::new(true);
        let onward = engine(site, &work).await;
        for (id, input) in [("a", 1), ("b", 2), ("c", 30)] {
            start(&onward, "keyed", id, input).await.result().await.unwrap();
        }
        assert_eq!(invalidate(&onward, "image/1").await, 1);
        assert_eq!(invalidate(&onward, "image/1").await, 0);
        assert_eq!(start(&onward, "keyed", "a2", 1).await.result().await.unwrap(), 103);
        assert_eq!(start(&onward, "keyed", "b2", 2).await.result().await.unwrap(), 201);
        assert_eq!(invalidate_prefix(&onward, "image/").await, 3);
        assert_eq!(start(&onward, "keyed", "b3", 2).await.result().await.unwrap(), 204);
        assert_eq!(invalidate_prefix(&onward, "other").await, 0);
    }

    async fn a_result_whose_computation_began_before_an_invalidation_is_for_its_own_run_only(site) {
        let work = Work::new(false);
        let onward = engine(site, &work).await;
        let owner = start(&onward, "keyed", "owner", 1).await;
        until_logged(&owner, "task_scheduled", 1).await;
        let waiting = start(&onward, "keyed", "waiting", 1).await;
        until_status(&waiting, Status::Waiting).await;
        assert_eq!(invalidate(&onward, "image/1").await, 1);
        work.gate.open();
        let (own, other) = (owner.result().await.unwrap(), waiting.result().await.unwrap());
        assert_eq!((own.min(other), own.max(other), work.count()), (100, 101, 2));
    }

    async fn a_memo_of_a_tree_is_not_shared_with_other_trees(site) {
        let work = Work::new(true);
        let onward = engine(site, &work).await;
        let first = onward.start::<(u32, u32), _>("in-tree", &5).id("a").await.unwrap().result().await.unwrap();
        let second = onward.start::<(u32, u32), _>("in-tree", &5).id("b").await.unwrap().result().await.unwrap();
        assert_eq!((first, second), ((500, 500), (501, 501)));
        assert_eq!(invalidate_prefix(&onward, "resize#").await, 0);
        assert_eq!(onward.invalidate_memos(MemoKeys::prefix("resize#").in_tree_of("a")).await.unwrap(), 1);
    }

    async fn a_step_has_the_result_of_an_equal_step(site) {
        let work = Work::new(true);
        let onward = engine(site, &work).await;
        for id in ["a", "b"] {
            assert_eq!(start(&onward, "stepped", id, 1).await.result().await.unwrap(), 100);
        }
        assert_eq!(start(&onward, "stepped", "c", 2).await.result().await.unwrap(), 101);
        assert_eq!(invalidate_prefix(&onward, "stepped/measure#").await, 2);
    }

    async fn an_owner_and_its_waiters_continue_after_a_restart(site) {
        let work = Work::new(false);
        let onward = engine(site, &work).await;
        let owner = start(&onward, "resize", "owner", 5).await;
        until_logged(&owner, "task_scheduled", 1).await;
        let waiting = start(&onward, "resize", "waiting", 5).await;
        until_status(&waiting, Status::Waiting).await;
        drop((owner, waiting));
        onward.shutdown().await;
        work.gate.open();
        let onward = engine(site, &work).await;
        site.pass(&onward, secs(1)).await;
        for id in ["owner", "waiting"] {
            assert_eq!(onward.run::<u32>(id).unwrap().result().await.unwrap() / 100, 5);
        }
        assert_eq!(count(&onward.run::<u32>("waiting").unwrap(), "task_scheduled").await, 0);
    }

    /// MM6
    async fn cells_are_hidden_and_their_ids_are_reserved(site) {
        let work = Work::new(true);
        let onward = engine(site, &work).await;
        start(&onward, "resize", "a", 5).await.result().await.unwrap();
        let runs = onward.list_runs(RunQuery::default()).await.unwrap().runs;
        assert_eq!(runs.iter().map(|head| head.key.id.as_str()).collect::<Vec<_>>(), ["a"]);
        let cell = "memo:00112233445566778899aabbccddeeff";
        let code = |error: onward::Error| error.code().to_owned();
        let started = onward.start::<u32, _>("resize", &5).id(cell).await.map(drop);
        assert_eq!(code(started.unwrap_err()), "id_reserved");
        let run = onward.run::<u32>(cell).unwrap();
        assert_eq!(code(run.view().await.unwrap_err()), "id_reserved");
        assert_eq!(code(run.signal("x", &1).await.unwrap_err()), "id_reserved");
        assert_eq!(code(run.terminate("x").await.unwrap_err()), "id_reserved");
    }
}

/// Fork and retry: a hit is part of the log, and what was not answered is requested again (MM7).
#[tokio::test]
async fn a_fork_keeps_its_hit_and_asks_again_for_what_is_open() {
    let site = Site::memory();
    let work = Work::new(false);
    let onward = engine(&site, &work).await;
    let owner = start(&onward, "resize", "owner", 5).await;
    until_logged(&owner, "task_scheduled", 1).await;
    let waiting = start(&onward, "resize", "waiting", 5).await;
    until_status(&waiting, Status::Waiting).await;
    let fork = waiting.fork().id("fork").await.unwrap();
    work.gate.open();
    assert_eq!(fork.result().await.unwrap(), 500);
    assert_eq!(waiting.result().await.unwrap(), 500);
    assert_eq!(hit(&fork).await.map(|hit| hit.from.as_str().to_owned()).as_deref(), Some("owner"));
    let again = waiting.fork().id("fork-of-hit").await.unwrap();
    assert_eq!((again.result().await.unwrap(), work.count()), (500, 1));
}

/// The store has neither the input nor the hash that a reader could guess it from.
#[tokio::test]
async fn the_key_of_an_encrypted_memo_is_a_keyed_hash() {
    let (plain, sealed) = (Site::memory(), Site::sealed());
    let mut keys = Vec::new();
    for site in [&plain, &sealed] {
        let onward = engine(site, &Work::new(true)).await;
        start(&onward, "resize", "a", 5).await.result().await.unwrap();
        let key = onward_core::RunKey::new(onward_core::Namespace::default(), onward_core::RunId::new("a").unwrap());
        let records = onward.runtime().unwrap().store().read_log(key, None, onward_core::Index(0), 100).await.unwrap();
        let asked = records.iter().flat_map(|record| &record.events).find_map(|event| match event {
            Event::MemoRequested(asked) => Some(asked.clone()),
            _ => None,
        });
        let asked = asked.unwrap();
        assert_eq!(asked.sealed_key.is_some(), site.is_sealed);
        keys.push(asked.key);
    }
    assert_ne!(keys[0], keys[1]);
    assert!(keys.iter().all(|key| key.starts_with("resize#")), "{keys:?}");
}

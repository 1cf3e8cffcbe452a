//! Runs that are retried, forked and reset, as a user sees it: in a directory and over a server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use onward::Status;
use onward::prelude::*;
use onward_core::Index;

use crate::site::{eventually, everywhere, until_status};

#[derive(Default)]
struct Shop {
    is_open: AtomicBool,
    visits: AtomicU32,
    calls: AtomicU32,
}

async fn buy(ctx: Ctx, (): ()) -> Result<String> {
    let shop = ctx.dep::<Arc<Shop>>();
    let went: u32 = ctx.step("go", async || Ok::<_, Failure>(shop.visits.fetch_add(1, Ordering::SeqCst) + 1)).await?;
    let call = shop.clone();
    ctx.step("buy", async || {
        call.calls.fetch_add(1, Ordering::SeqCst);
        if call.is_open.load(Ordering::SeqCst) { Ok(()) } else { Err(Failure::fatal("closed")) }
    })
    .await?;
    Ok(format!("went {went}"))
}

async fn square(ctx: Ctx, n: u32) -> Result<u32> {
    ctx.signal("go").recv::<()>().await?;
    Ok(n * n)
}

async fn delegate(ctx: Ctx, (): ()) -> Result<u32> {
    let child = ctx.child::<u32>("square", &7);
    ctx.signal("ask").recv::<()>().await?;
    child.await
}

/// Uses everything that a log can hand on: a step's result, state, a task, a question, a signal, a child.
async fn loaded(ctx: Ctx, start: u32) -> Result<String> {
    let stepped: u32 = ctx.step("add", async || Ok::<_, Failure>(start + 1)).await?;
    ctx.state().set("sum", &stepped)?;
    let (decision, weighed, seen, squared) = onward::try_join!(
        ctx.approval("ok", "All of it?").show(&"a picture"),
        ctx.task::<u32>("weigh", &stepped),
        ctx.signal("note").recv::<String>(),
        ctx.child::<u32>("square", &stepped),
    )?;
    let sum: u32 = ctx.state().get("sum")?.unwrap_or_default();
    Ok(format!("{} {weighed} {seen} {squared} {sum}", decision.approved))
}

async fn hurried(ctx: Ctx, n: u32) -> Result<u32> {
    let shop = ctx.dep::<Arc<Shop>>();
    let open = ctx.step("look", async || Ok::<_, Failure>(shop.is_open.load(Ordering::SeqCst))).await?;
    if open { Ok(n) } else { Err(Failure::fatal("closed")) }
}

async fn hurry(ctx: Ctx, n: u32) -> Result<u32> {
    ctx.child::<u32>("hurried", &n).await
}

everywhere! {
    async fn everything_a_log_hands_on_is_there_in_its_copies_and_theirs(site) {
        let payload_bytes = async |n: u32| Ok::<_, Failure>(n * 10);
        let builder = site.builder().await.workflow("loaded", loaded).workflow("square", square).task("weigh", payload_bytes);
        let onward = builder.start().await.unwrap();
        let run = onward.start::<String, _>("loaded", &4).id("r").await.unwrap();
        until_status(&run, Status::Waiting).await;
        run.signal("note", &"kept").await.unwrap();
        let fork = run.fork().at(Index(6)).id("fork").restart_children().await.unwrap();
        until_status(&fork, Status::Waiting).await;
        let copy = fork.fork().id("copy").restart_children().await.unwrap();
        let mut last = None;
        for run in [&run, &fork, &copy] {
            let name = onward_core::Name::new("sum").unwrap();
            let view = run.until(|view| view.state.contains_key(&name)).await.unwrap();
            assert_eq!((view.input.read::<u32>().unwrap(), view.state[&name].read::<u32>().unwrap()), (4, 5), "{}", run.id());
            let mut tail = run.attach(Index(2)).await.unwrap();
            assert!(tail.next().await.unwrap().is_some());
            let find = async || onward.list_approvals().await.unwrap().into_iter().find(|wait| wait.run.id.as_str() == run.id());
            let shown = eventually("the question", find).await;
            assert_eq!(shown.show.as_ref().unwrap().read::<String>().unwrap(), "a picture");
            onward.approve(&format!("{}~{}~{}", run.id(), shown.generation, shown.call_id)).await.unwrap();
            let child = view.awaiting.iter().find_map(|awaited| awaited.child.clone()).unwrap();
            let child = onward.run::<u32>(child.as_str()).unwrap();
            eventually("the child", async || child.view().await.ok()).await;
            child.signal("go", &()).await.unwrap();
            assert_eq!(run.result().await.unwrap(), "true 50 kept 25 5", "{}", run.id());
            last = Some(child);
        }
        // The child that was started again has another parent, and so has its copy.
        let again = last.unwrap();
        assert!(again.id().starts_with("copy/"), "{}", again.id());
        assert_eq!(again.view().await.unwrap().input.read::<u32>().unwrap(), 5);
        let again = again.fork().at(Index(0)).id("once more").await.unwrap();
        assert_eq!(again.result().await.unwrap(), 25, "its signal was kept");
    }

    async fn a_child_that_failed_is_started_again_with_what_it_was_given(site) {
        let shop = Arc::new(Shop::default());
        let builder = site.builder().await.workflow("hurry", hurry).workflow("hurried", hurried).dep(shop.clone());
        let onward = builder.start().await.unwrap();
        let run = onward.start::<u32, _>("hurry", &3).id("r").await.unwrap();
        assert!(run.result().await.is_err());
        shop.is_open.store(true, Ordering::SeqCst);
        run.retry("it is open").await.unwrap();
        assert_eq!(run.result().await.unwrap(), 3);
    }

    async fn a_failed_run_goes_on_when_it_is_retried_and_its_handle_returns_the_new_end(site) {
        let shop = Arc::new(Shop::default());
        let onward = site.builder().await.workflow("buy", buy).dep(shop.clone()).start().await.unwrap();
        let run = onward.start::<String, _>("buy", &()).id("r").await.unwrap();
        assert!(run.result().await.is_err());
        let mut follower = run.attach(Index(0)).await.unwrap();
        let mut seen = Vec::new();
        while seen.last() != Some(&"run_failed") {
            seen.extend(follower.next().await.unwrap().unwrap().events.iter().map(onward_core::Event::name));
        }
        shop.is_open.store(true, Ordering::SeqCst);
        run.retry("the shop is open").id("again").await.unwrap();
        assert_eq!(run.result().await.unwrap(), "went 1");
        assert_eq!((shop.visits.load(Ordering::SeqCst), shop.calls.load(Ordering::SeqCst)), (1, 2));
        // Repeating the same request has no effect, also now; another request finds that nothing failed.
        run.retry("the shop is open").id("again").await.unwrap();
        assert_eq!(run.retry("why not").await.unwrap_err().code(), "run_not_failed");
        assert_eq!(run.view().await.unwrap().head.generation, 1);
        // A follower of the failed run receives its continuation, and nothing twice.
        let mut later = Vec::new();
        while let Some(record) = follower.next().await.unwrap() {
            later.extend(record.events.iter().map(onward_core::Event::name));
        }
        assert_eq!(later, ["retry_requested", "step_completed", "run_completed"]);
    }

    async fn a_fork_goes_on_by_itself_and_a_reset_in_the_place_of_the_original(site) {
        let onward = site.builder().await.workflow("delegate", delegate).workflow("square", square).start().await.unwrap();
        let run = onward.start::<u32, _>("delegate", &()).id("r").await.unwrap();
        until_status(&run, Status::Waiting).await;
        run.signal("ask", &()).await.unwrap();
        eventually("the child waits", async || {
            let view = onward.run::<u32>("r/0").unwrap().view().await.ok()?;
            (view.head.status == Status::Waiting).then_some(())
        })
        .await;
        // The fork awaits the child of the original; one outcome is delivered to both.
        let fork = run.fork().at(Index(2)).id("fork").await.unwrap();
        assert_eq!(run.fork().at(Index(2)).id("fork").await.unwrap().id(), "fork");
        assert_eq!(run.fork().at(Index(0)).id("fork").await.map(drop).unwrap_err().code(), "run_exists");
        assert_eq!(run.fork().at(Index(1)).id("x").await.map(drop).unwrap_err().code(), "fork_point_invalid");
        let again = run.fork().at(Index(2)).id("again").restart_children().await.unwrap();
        until_status(&fork, Status::Waiting).await;
        eventually("the fork listens", async || {
            let view = onward.run::<u32>("r/0").unwrap().view().await.ok()?;
            (view.head.listeners.len() == 1).then_some(())
        })
        .await;
        onward.run::<u32>("r/0").unwrap().signal("go", &()).await.unwrap();
        assert_eq!((run.result().await.unwrap(), fork.result().await.unwrap()), (49, 49));
        until_status(&again, Status::Waiting).await;
        eventually("the second child waits", async || onward.run::<u32>("again/0").unwrap().view().await.ok()).await;
        onward.run::<u32>("again/0").unwrap().signal("go", &()).await.unwrap();
        assert_eq!(again.result().await.unwrap(), 49);

        // A fork made after the end of the child receives it as well.
        let late = run.fork().at(Index(2)).id("late").await.unwrap();
        assert_eq!(late.result().await.unwrap(), 49);
    }

    async fn a_reset_ends_the_original_and_each_names_the_other(site) {
        let onward = site.builder().await.workflow("delegate", delegate).workflow("square", square).start().await.unwrap();
        let run = onward.start::<u32, _>("delegate", &()).id("r").await.unwrap();
        until_status(&run, Status::Waiting).await;
        let reset = run.reset().id("better").reason("with the new code").await.unwrap();
        until_status(&run, Status::Terminated).await;
        assert_eq!(run.view().await.unwrap().reset_to.unwrap().as_str(), "better");
        let from = reset.view().await.unwrap().forked_from.unwrap();
        assert_eq!((from.run.as_str(), from.generation, from.is_reset), ("r", 0, true));
        reset.signal("ask", &()).await.unwrap();
        eventually("the new child waits", async || onward.run::<u32>("better/0").unwrap().view().await.ok()).await;
        onward.run::<u32>("better/0").unwrap().signal("go", &()).await.unwrap();
        assert_eq!(reset.result().await.unwrap(), 49);
    }

    async fn runs_are_found_by_attributes_of_their_code_and_of_their_starter(site) {
        async fn staged(ctx: Ctx, (): ()) -> Result<()> {
            ctx.attributes().set("stage", "asked");
            ctx.signal("go").recv::<()>().await?;
            ctx.attributes().set("stage", "done");
            ctx.attributes().clear("customer");
            Ok(())
        }
        let onward = site.builder().await.workflow("staged", staged).start().await.unwrap();
        let run = onward.start::<(), _>("staged", &()).id("r").attribute("customer", 42).await.unwrap();
        onward.start::<(), _>("staged", &()).id("other").attribute("customer", "43").await.unwrap();
        until_status(&run, Status::Waiting).await;
        let find = async |name: &str, text: &str| {
            let wanted = onward_core::AttributeMatch::typed(onward_core::Name::new(name).unwrap(), text);
            let query = onward::RunQuery { attributes: vec![wanted], ..Default::default() };
            let page = onward.list_runs(query).await.unwrap();
            page.runs.iter().map(|head| head.key.id.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(find("customer", "42").await, ["r"]);
        run.signal("go", &()).await.unwrap();
        run.result().await.unwrap();
        assert_eq!(find("stage", "done").await, ["r"]);
        assert_eq!(find("customer", "42").await, [""; 0]);
        let counts = onward.list_versions().await.unwrap();
        assert_eq!(counts.iter().map(|count| count.open).collect::<Vec<_>>(), [1]);

        let filter = onward::RunQuery { kind: Some(onward_core::Name::new("staged").unwrap()), ..Default::default() };
        let bulk = onward::BulkRequest {
            verb: onward::BulkVerb::Cancel.as_str().to_owned(),
            filter,
            all: false,
            dry_run: true,
            bulk_id: "b".to_owned(),
            reason: "enough".to_owned(),
            include_outcome_unknown: false,
        };
        assert_eq!(onward.bulk_runs(bulk.clone()).await.unwrap().matched, 1);
        let done = onward.bulk_runs(onward::BulkRequest { dry_run: false, ..bulk }).await.unwrap();
        assert_eq!((done.done, done.refused.len(), done.next), (1, 0, None));
        until_status(&onward.run::<()>("other").unwrap(), Status::Canceled).await;
    }
}

//! Several servers on one PostgreSQL database: any of them serves any run, and any of them may die (F14).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use onward::live::{LiveContent, LiveFrame};
use onward::prelude::*;
use onward::{BlockReason, Onward, RunHandle, RunQuery};
use onward_core::{Index, Name, Namespace, Status};
use onward_runtime::{FeedFrame, RunChange};
use onward_testkit::{Cluster, Database};

use crate::proxy::Random;
use crate::site::{LEASE, Site, eventually, key};
use crate::with_seeds;
use crate::workload::{Ran, check, perform, worker};

const RUNS: u64 = 8;

fn database() -> Database<'static> {
    Cluster::shared().database(None).unwrap()
}

/// Answers queries, and emits the signals it receives until an empty one.
async fn chatty(ctx: Ctx, (): ()) -> Result<u32> {
    let mut sum = 0;
    ctx.query("state", |(): ()| Ok::<_, Failure>("listening"));
    loop {
        match ctx.signal("add").recv::<u32>().await? {
            0 => return Ok(sum),
            more => sum += more,
        }
        ctx.emit("received", &sum)?;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_is_served_by_a_server_that_its_worker_is_not_connected_to() {
    let database = database();
    let (here, there) = (Site::on(vec![database.url()]).await, Site::on(vec![database.url()]).await);
    let _worker = Onward::connect(there.url()).workflow("chatty", chatty).start().await.unwrap();
    let client = Onward::connect(here.url()).start().await.unwrap();
    let run: RunHandle<u32> = client.start("chatty", &()).id("r").await.unwrap();
    // A query for code that only a worker of the other server has.
    let answer: String = eventually("the code answers", async || run.query("state", &()).await.ok()).await;
    assert_eq!(answer, "listening");
    // Inputs and emitted values, through the database.
    let mut emitted = here.runtime().listen(&key("r"));
    let mut sent = 0;
    let value = eventually("it is received here", async || {
        sent += 1;
        run.signal("add", &1u32).await.unwrap();
        tokio::time::timeout(Duration::from_millis(200), emitted.recv()).await.ok()
    })
    .await;
    assert_eq!(value.unwrap().name, "received");
    run.signal("add", &0u32).await.unwrap();
    assert_eq!(run.result().await.unwrap(), sent);
    let servers = eventually("both are known", async || {
        let servers = here.runtime().store().list_servers().await.ok()?;
        (servers.len() == 2).then_some(servers)
    })
    .await;
    assert_ne!(servers[0].id, servers[1].id);
}

/// Steps of a worker at one server, for a reader at the other; and the feed of a server without workers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_is_watched_through_a_server_that_its_worker_is_not_connected_to() {
    let database = database();
    let (here, there) = (Site::on(vec![database.url()]).await, Site::on(vec![database.url()]).await);
    let (open, opened) = tokio::sync::watch::channel(false);
    let slow = move |ctx: Ctx, (): ()| {
        let mut opened = opened.clone();
        async move {
            let () = ctx.signal("begin").recv().await?;
            let charged = ctx.step("charge", async move || {
                drop(opened.wait_for(|open| *open).await);
                Ok::<_, Failure>(1u32)
            });
            let charged = charged.await?;
            ctx.emit("charged", &charged)?;
            ctx.step("ship", async || Ok::<_, Failure>(2u32)).await
        }
    };
    let mut feed = here.runtime().watch_runs(RunQuery::default());
    let _worker = Onward::connect(there.url()).workflow("slow", slow).start().await.unwrap();
    let client = Onward::connect(here.url()).start().await.unwrap();
    let run: RunHandle<u32> = client.start("slow", &()).id("r").await.unwrap();
    run.signal("begin", &()).await.unwrap();
    // A late reader finds the step in its snapshot.
    let mut live = eventually("the step is under way", async || {
        let mut live = run.watch(Index(0)).await.unwrap();
        let Some(LiveFrame { content: LiveContent::Snapshot(snapshot), .. }) = live.next().await.unwrap() else { panic!() };
        snapshot.active.iter().any(|call| call.name.as_str() == "charge").then_some(live)
    })
    .await;
    open.send_replace(true);
    assert_eq!(run.result().await.unwrap(), 2);
    let (mut seen, mut next_index) = (Vec::new(), 0);
    while let Some(frame) = live.next().await.unwrap() {
        match frame.content {
            LiveContent::StepStarted(started) => seen.push(started.step.name.to_string()),
            LiveContent::Emitted(emitted) => seen.push(emitted.name),
            LiveContent::Log(log) => {
                assert_eq!(log.record.index.0, next_index, "LU1");
                next_index = log.record.next_index().0;
            }
            _ => {}
        }
    }
    assert!(seen.contains(&"charged".to_owned()), "LW3: {seen:?}");
    loop {
        if let FeedFrame::Run { change: RunChange::Ended, head } = feed.next().await.unwrap() {
            assert_eq!((head.key.id.as_str(), head.status), ("r", Status::Completed));
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_die_in_turn_lose_nothing() {
    with_seeds(0..2, async |seed| {
        let database = database();
        let mut sites = [Site::on(vec![database.url()]).await, Site::on(vec![database.url()]).await];
        let (ran, mut random) = (Ran::default(), Random::new(seed));
        let urls = [sites[0].url(), sites[1].url()];
        let _workers = [worker(&urls[0], &ran).start().await.unwrap(), worker(&urls[1], &ran).start().await.unwrap()];
        let clients = [Onward::connect(&urls[0]).start().await.unwrap(), Onward::connect(&urls[1]).start().await.unwrap()];
        let driving = async {
            for n in 0..RUNS {
                perform(&clients[n as usize % 2], n).await;
            }
        };
        let killing = async {
            for _ in 0..4 {
                tokio::time::sleep(Duration::from_millis(50 + random.below(200))).await;
                let site = &mut sites[random.below(2) as usize];
                site.kill().await;
                tokio::time::sleep(Duration::from_millis(random.below(200))).await;
                site.revive().await;
            }
        };
        tokio::join!(driving, killing);
        for n in 0..RUNS {
            check(&sites[n as usize % 2], &clients[(n as usize + 1) % 2], &ran, n).await;
        }
    })
    .await;
}

async fn parent(ctx: Ctx, n: u64) -> Result<u64> {
    let child: u64 = ctx.child("child", &n).await?;
    Ok(child + ctx.signal("go").recv::<u64>().await?)
}

async fn child(ctx: Ctx, n: u64) -> Result<u64> {
    ctx.step("square", async || Ok::<_, Failure>(n * n)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_are_spread_over_two_databases_and_found_from_any_server() {
    let databases = [database(), database()];
    let urls: Vec<String> = databases.iter().map(Database::url).collect();
    let (here, there) = (Site::on(urls.clone()).await, Site::on(urls).await);
    let worker = Onward::connect(there.url()).workflow("parent", parent).workflow("child", child);
    let _worker = worker.start().await.unwrap();
    let client = Onward::connect(here.url()).start().await.unwrap();
    let mut runs = Vec::new();
    for n in 0..12u64 {
        let run = client.start::<u64, _>("parent", &n).id(format!("run-{n}")).await.unwrap();
        run.signal("go", &1u64).await.unwrap();
        runs.push((n, run));
    }
    for (n, run) in &runs {
        assert_eq!(run.result().await.unwrap(), n * n + 1);
    }
    let query = onward_store::RunQuery { limit: 100, ..Default::default() };
    let listed = here.runtime().store().list_runs(query).await.unwrap().runs;
    assert_eq!(listed.len(), 24, "children too");
    let counts: Vec<u64> =
        databases.iter().map(|database| database.psql("SELECT count(*) FROM onward.runs").unwrap().parse().unwrap()).collect();
    assert!(counts.iter().all(|count| *count > 0 && count % 2 == 0), "families stay together: {counts:?}");
}

/// Counts each step that it begins.
async fn steady(ctx: Ctx, n: u64) -> Result<u64> {
    let began = ctx.dep::<Arc<AtomicU64>>();
    let mut sum = 0;
    for _ in 0..4 {
        sum += ctx
            .step("step", async || {
                began.fetch_add(1, Ordering::SeqCst);
                Ok::<_, Failure>(n)
            })
            .await?;
    }
    Ok(sum)
}

/// Each write takes half of a lease (F20): everything takes longer, and no session expires.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_database_costs_time_and_no_lease() {
    let database = database();
    let site = Site::on(vec![database.url()]).await;
    let slow = "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.3); RETURN NULL; END $$;
       CREATE TRIGGER slow AFTER INSERT ON onward.events FOR EACH STATEMENT EXECUTE FUNCTION slow()";
    database.psql(slow).unwrap();
    let began = Arc::new(AtomicU64::new(0));
    let worker = Onward::connect(site.url()).workflow("steady", steady).dep(began.clone());
    let _worker = worker.start().await.unwrap();
    let client = Onward::connect(site.url()).start().await.unwrap();
    let begun = tokio::time::Instant::now();
    let mut runs = Vec::new();
    for n in 0..10u64 {
        runs.push((n, client.start::<u64, _>("steady", &n).id(format!("run-{n}")).await.unwrap()));
    }
    for (n, run) in runs {
        assert_eq!(run.result().await.unwrap(), 4 * n);
    }
    assert!(begun.elapsed() > LEASE, "it was slow");
    assert_eq!(began.load(Ordering::SeqCst), 40, "no step began twice, so no lease was lost");
}

/// A step that runs until it is notified.
#[derive(Clone, Default)]
struct Enough(std::sync::Arc<tokio::sync::Notify>);

async fn busy(ctx: Ctx, (): ()) -> Result<()> {
    let enough = ctx.dep::<Enough>();
    ctx.step("work", async || {
        enough.0.notified().await;
        Ok::<_, Failure>(())
    })
    .await
}

async fn double(_: TaskCtx, n: u64) -> Result<u64> {
    Ok(n * 2)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_server_knows_the_workers_of_all() {
    let database = database();
    let (here, there) = (Site::on(vec![database.url()]).await, Site::on(vec![database.url()]).await);
    let enough = Enough::default();
    let worker = Onward::connect(there.url()).workflow("busy", busy).task("double", double).dep(enough.clone()).runs_max(1);
    let worker = worker.start().await.unwrap();
    let client = onward::connect_client(&here.url(), &Namespace::default(), None).unwrap();
    let listed = async || {
        let workers = client.list_workers(Namespace::default()).await.unwrap().workers;
        workers.into_iter().find(|worker| worker.knows(&Name::new("busy").unwrap(), None))
    };
    let known = eventually("its worker is known here", listed).await;
    let at_home = onward::connect_client(&there.url(), &Namespace::default(), None).unwrap();
    let at_home = at_home.list_workers(Namespace::default()).await.unwrap().workers;
    assert_eq!(at_home.iter().map(|worker| &worker.id).collect::<Vec<_>>(), [&known.id], "once, and by the same name");
    assert_eq!((known.task_kinds.len(), known.queues.as_slice(), known.runs_max), (1, [None].as_slice(), 1));
    let queues = client.list_queues(Namespace::default()).await.unwrap().queues;
    assert_eq!(queues.iter().map(|queue| (queue.count.kind.as_str(), queue.workers)).collect::<Vec<_>>(), [("double", 1)]);

    let client = Onward::connect(here.url()).start().await.unwrap();
    let first: RunHandle<()> = client.start("busy", &()).id("first").await.unwrap();
    eventually("it is worked on", async || (first.view().await.unwrap().head.status == Status::Running).then_some(())).await;
    let second: RunHandle<()> = client.start("busy", &()).id("second").await.unwrap();
    assert_eq!(second.blocked_on().await.unwrap()[0].why, BlockReason::Queued, "a worker elsewhere has its code");
    let other: RunHandle<()> = client.start("unheard-of", &()).id("other").await.unwrap();
    assert_eq!(other.blocked_on().await.unwrap()[0].why, BlockReason::NoWorker);

    enough.0.notify_one();
    first.result().await.unwrap();
    enough.0.notify_one();
    second.result().await.unwrap();
    worker.shutdown().await;
    eventually("it is known to have gone", async || listed().await.is_none().then_some(())).await;
}

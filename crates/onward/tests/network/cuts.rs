//! Connections that are cut at any point.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use onward::Onward;
use onward::prelude::*;

use crate::proxy::{Faults, Proxy, Random};
use crate::site::{LEASE, Site, eventually};
use crate::with_seeds;
use crate::workload::{Ran, check, perform, worker};

const RUNS: u64 = 16;

/// How long the network is bad.
const STORM: Duration = Duration::from_millis(1_500);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_finishes_and_nothing_is_lost_or_doubled_while_connections_are_cut() {
    with_seeds(0..4, async |seed| {
        let site = Site::memory().await;
        let mut random = Random::new(seed);
        let mut proxies = Vec::new();
        for _ in 0..3 {
            proxies.push(Proxy::new(site.address, random.below(u64::MAX)).await);
        }
        let ran = Ran::default();
        let workers =
            [worker(&proxies[0].url, &ran).start().await.unwrap(), worker(&proxies[1].url, &ran).start().await.unwrap()];
        let client = Onward::connect(&proxies[2].url).start().await.unwrap();
        let driving = async {
            for n in 0..RUNS {
                perform(&client, n).await;
            }
        };
        let storm = async {
            let until = tokio::time::Instant::now() + STORM;
            while tokio::time::Instant::now() < until {
                let proxy = &proxies[random.below(3) as usize];
                proxy.set(Faults {
                    cut_before: (random.below(3) > 0).then(|| 200 + random.below(20_000)),
                    delay_ms: random.below(8),
                    hold_up: random.below(10) == 0,
                    hold_down: random.below(10) == 0,
                    refuse: random.below(10) == 0,
                });
                if random.below(3) == 0 {
                    proxy.cut();
                }
                tokio::time::sleep(Duration::from_millis(random.below(25))).await;
            }
            proxies.iter().for_each(Proxy::heal);
        };
        tokio::join!(driving, storm);
        for n in 0..RUNS {
            check(&site, &client, &ran, n).await;
        }
        assert!(proxies[0].connections() + proxies[1].connections() > 4, "the network was bad");
        let hot = async || (workers.iter().map(Onward::hot_runs).sum::<usize>() == 0).then_some(());
        eventually("the workers keep nothing of what has ended", hot).await;
    })
    .await;
}

/// A step that waits for a notification before it returns, and one signal after it.
async fn gated(ctx: Ctx, signals: u32) -> Result<u32> {
    let (gate, ran) = (ctx.dep::<Arc<tokio::sync::Notify>>(), ctx.dep::<Arc<AtomicU32>>());
    let times = ctx
        .step("gated", async || {
            gate.notified().await;
            Ok::<_, Failure>(ran.fetch_add(1, Ordering::SeqCst) + 1)
        })
        .await?;
    for _ in 0..signals {
        ctx.signal("end").recv::<()>().await?;
    }
    Ok(times)
}

struct Gated {
    site: Site,
    proxy: Proxy,
    worker: Onward,
    client: Onward,
    gate: Arc<tokio::sync::Notify>,
    ran: Arc<AtomicU32>,
}

impl Gated {
    async fn new(signals: u32) -> Gated {
        let site = Site::memory().await;
        let (proxy, straight) = (Proxy::new(site.address, 0).await, format!("http://{}", site.address));
        let (gate, ran) = (Arc::new(tokio::sync::Notify::new()), Arc::new(AtomicU32::new(0)));
        let worker = Onward::connect(&proxy.url).workflow("gated", gated).dep(gate.clone()).dep(ran.clone());
        let worker = worker.start().await.unwrap();
        let client = Onward::connect(straight).start().await.unwrap();
        client.start::<u32, _>("gated", &signals).id("r").await.unwrap();
        eventually("the worker has the run", async || (worker.hot_runs() == 1).then_some(())).await;
        Gated { site, proxy, worker, client, gate, ran }
    }

    /// Lets the step return and loses the response to the commit.
    async fn lose_the_answer(&self, event: &str) {
        self.proxy.set(Faults { hold_down: true, ..Faults::default() });
        self.gate.notify_one();
        self.site.until_logged("r", event, 1).await;
        self.proxy.cut();
        self.proxy.heal();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_answer_was_lost_is_recognized_by_its_id() {
    let gated = Gated::new(1).await;
    let epoch = gated.site.head("r").await.unwrap().epoch;
    gated.lose_the_answer("step_completed").await;
    let run = gated.client.run::<u32>("r").unwrap();
    run.signal("end", &()).await.unwrap();
    assert_eq!(run.result().await.unwrap(), 1);
    assert_eq!(gated.ran.load(Ordering::SeqCst), 1, "the step ran once");
    assert_eq!(gated.site.head("r").await.unwrap().epoch, epoch, "the worker went on with the lease it had");
    assert_eq!(gated.site.count("r", "step_completed").await, 1);
}

/// The first commit of a run is its last, and the response is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_without_a_reply_to_its_last_commit_lets_the_run_go() {
    /// Blocks its thread until it may return: a wait that is not recorded.
    async fn at_once(ctx: Ctx, (): ()) -> Result<u32> {
        let may_return = ctx.dep::<Arc<AtomicBool>>();
        while !may_return.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        Ok(7)
    }
    let site = Site::memory().await;
    let proxy = Proxy::new(site.address, 0).await;
    let may_return = Arc::new(AtomicBool::new(false));
    let builder = Onward::connect(&proxy.url).workflow("at-once", at_once).dep(may_return.clone());
    let (worker, client) = (builder.start().await.unwrap(), Onward::connect(format!("http://{}", site.address)));
    let client = client.start().await.unwrap();
    let run = client.start::<u32, _>("at-once", &()).id("r").await.unwrap();
    eventually("the worker has the run", async || (worker.hot_runs() == 1).then_some(())).await;
    proxy.set(Faults { hold_down: true, ..Faults::default() });
    may_return.store(true, Ordering::SeqCst);
    site.until_logged("r", "run_completed", 1).await;
    proxy.cut();
    proxy.heal();
    eventually("the worker let the run go", async || (worker.hot_runs() == 0).then_some(())).await;
    assert_eq!(run.result().await.unwrap(), 7);
}

/// A signal that came while the worker of the run was disconnected.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signal_that_came_between_two_connections_reaches_the_run() {
    let gated = Gated::new(2).await;
    gated.gate.notify_one();
    gated.site.until_logged("r", "step_completed", 1).await;
    gated.proxy.set(Faults { refuse: true, ..Faults::default() });
    gated.proxy.cut();
    let run = gated.client.run::<u32>("r").unwrap();
    run.signal("end", &()).await.unwrap();
    run.signal("end", &()).await.unwrap();
    gated.proxy.heal();
    assert_eq!(run.result().await.unwrap(), 1);
}

/// Each run that has ended frees its slot.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_remote_worker_has_room_again_when_its_runs_have_ended() {
    async fn quick(_ctx: Ctx, n: u32) -> Result<u32> {
        Ok(n)
    }
    async fn patient(ctx: Ctx, (): ()) -> Result<()> {
        ctx.signal("never").recv::<()>().await
    }
    let site = Site::memory().await;
    let url = format!("http://{}", site.address);
    let onward = Onward::connect(url).workflow("quick", quick).workflow("patient", patient).runs_max(2).start().await.unwrap();
    for n in 0..10 {
        assert_eq!(onward.start::<u32, _>("quick", &n).await.unwrap().result().await.unwrap(), n);
    }
    for n in 0..10 {
        let run = onward.start::<(), _>("patient", &()).id(format!("patient-{n}")).await.unwrap();
        site.until_logged(run.id(), "signal_awaited", 1).await;
        run.terminate("enough").await.unwrap();
    }
    assert_eq!(onward.start::<u32, _>("quick", &7).await.unwrap().result().await.unwrap(), 7, "ended from outside, they go too");
}

/// A network that drops everything, for longer than the lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_lost_its_lease_without_a_word_begins_anew() {
    let gated = Gated::new(0).await;
    gated.proxy.set(Faults { hold_up: true, hold_down: true, ..Faults::default() });
    eventually("the worker stops", async || (gated.worker.hot_runs() == 0).then_some(())).await;
    tokio::time::sleep(LEASE).await; // until the lease has expired at the server, too
    gated.proxy.heal();
    gated.gate.notify_one();
    assert_eq!(gated.client.run::<u32>("r").unwrap().result().await.unwrap(), 1);
}

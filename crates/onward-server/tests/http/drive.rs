//! Hosts that run a server's runs on demand, with the crate.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use onward::prelude::*;
use onward::{Driven, Onward, RunInput};
use tokio::sync::Notify;

use crate::site::{DEADLINE, Site};

#[derive(Default)]
struct World {
    charged: AtomicU32,
    begun: Notify,
    gate: Notify,
}

async fn pay(ctx: Ctx, (): ()) -> Result<u64> {
    let world = ctx.dep::<Arc<World>>();
    ctx.step("charge", async || {
        world.charged.fetch_add(1, Ordering::SeqCst);
        world.begun.notify_one();
        world.gate.notified().await;
        Ok::<_, Failure>(())
    })
    .await?;
    ctx.signal("payment").recv().await
}

async fn host(site: &Site, world: &Arc<World>) -> Onward {
    let url = format!("http://{}", site.address);
    Onward::connect(url).workflow("pay", pay).dep(world.clone()).on_demand().start().await.unwrap()
}

#[tokio::test]
async fn of_two_hosts_one_drives_the_run_and_the_other_goes_on_with_it_later() {
    let (site, world) = (Site::open().await, Arc::new(World::default()));
    let (first, second) = (host(&site, &world).await, host(&site, &world).await);
    let run = first.start::<u64, _>("pay", &()).id("p").await.unwrap();
    let driving = tokio::spawn({
        let first = first.clone();
        async move { first.drive("p", RunInput::nothing()).await }
    });
    tokio::time::timeout(DEADLINE, world.begun.notified()).await.unwrap();
    for host in [&first, &second] {
        assert_eq!(host.drive("p", RunInput::signal("payment", &1)).await.unwrap_err().code(), "run_busy");
    }
    assert_eq!(run.view().await.unwrap().counts.signals_received, 0, "nothing was taken");
    world.gate.notify_one();
    let Driven::Waiting(view) = driving.await.unwrap().unwrap() else { panic!("it waits for the payment") };
    assert_eq!(view.awaiting[0].name.as_ref().unwrap().as_str(), "payment");
    assert_eq!((first.hot_runs(), second.hot_runs()), (0, 0));

    // The other host replays the log and continues.
    let Driven::Ended(Ok(output)) = second.drive("p", RunInput::signal("payment", &42).id("a")).await.unwrap() else { panic!() };
    assert_eq!((output.read::<u64>().unwrap(), world.charged.load(Ordering::SeqCst)), (42, 1));
    assert_eq!(run.result().await.unwrap(), 42);
    for host in [first, second] {
        host.shutdown().await;
    }
}

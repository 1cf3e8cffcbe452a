//! Awaiting foreign futures: each case pauses the run with a message that names the position and what to use instead.

use std::time::Duration;

use onward::prelude::*;
use onward::testing::World;

use crate::misuse::{assert_contains, paused};

/// The calls around the offending await in each of these.
const NEIGHBORS: &str = "after step `charge` (#1, call id 0), before the next call (call id ";

/// Foreign futures, with a tokio runtime around the test and without one, since timers and sockets of tokio behave differently.
/// Each message names the neighboring calls and what to use instead.
const FOREIGN: &[(&str, &str)] = &[
    ("sleep", "`ctx.sleep`"),
    ("interval", "`ctx.sleep`"),
    ("timeout", "`ctx.timeout`"),
    ("mpsc", "`ctx.signal(..)`"),
    ("oneshot", "`ctx.promise(..)`"),
    ("watch", "`ctx.signal(..)`"),
    ("yield", "workflow code yields at every `await` of a `ctx` call"),
    ("pending", "await only what `ctx` returns"),
    ("tokio socket", "inside `ctx.step`"),
    ("reactor", "inside `ctx.step`"),
];

/// Acts like the future of an HTTP client with its own reactor: it keeps the waker, and a thread would wake it.
fn from_a_reactor() -> impl Future<Output = ()> {
    let mut kept: Vec<std::task::Waker> = Vec::new();
    std::future::poll_fn(move |cx| {
        kept.push(cx.waker().clone());
        std::task::Poll::<()>::Pending
    })
}

async fn foreign(ctx: Ctx, way: &'static str) -> Result<()> {
    ctx.step("charge", async || Ok::<_, Failure>(())).await?;
    match way {
        "sleep" => tokio::time::sleep(Duration::from_secs(9)).await,
        "interval" => {
            let mut interval = tokio::time::interval(Duration::from_secs(9));
            interval.tick().await;
            interval.tick().await;
        }
        "timeout" => drop(tokio::time::timeout(Duration::from_secs(9), ctx.signal("s").recv::<()>()).await),
        "mpsc" => drop(tokio::sync::mpsc::channel::<()>(1).1.recv().await),
        "oneshot" => {
            let (_keep, receiver) = tokio::sync::oneshot::channel::<()>();
            drop(receiver.await);
        }
        "watch" => {
            let (_keep, mut receiver) = tokio::sync::watch::channel(());
            drop(receiver.changed().await);
        }
        "yield" => tokio::task::yield_now().await,
        "pending" => std::future::pending().await,
        "tokio socket" => drop(tokio::net::TcpListener::bind("127.0.0.1:0").await?.accept().await),
        "reactor" => from_a_reactor().await,
        _ => unreachable!("{way} is not in the list"),
    }
    ctx.step("after", async || Ok::<_, Failure>(())).await
}

#[test]
fn every_foreign_await_names_its_neighbors_and_what_to_use_instead() {
    for (way, instead) in FOREIGN {
        let message = paused(|ctx, ()| foreign(ctx, way));
        assert_contains(&message, &[NEIGHBORS, instead]);
    }
}

#[test]
fn a_foreign_future_is_named_with_the_line_that_awaits_it() {
    let message = paused(|ctx, ()| foreign(ctx, "yield"));
    assert_contains(&message, &["tokio::task::yield_now", "semantics/foreign.rs:"]);
}

#[tokio::test]
async fn every_foreign_await_is_named_the_same_where_a_runtime_is_around() {
    for (way, instead) in FOREIGN {
        let message = paused(|ctx, ()| foreign(ctx, way));
        assert_contains(&message, &[NEIGHBORS, instead]);
    }
}

#[test]
fn a_foreign_await_in_an_arm_names_the_place_in_that_arm() {
    let message = paused(|ctx, ()| async move {
        let arm = async {
            ctx.step("inner", async || Ok::<_, Failure>(())).await?;
            from_a_reactor().await;
            Ok::<_, Failure>(())
        };
        let (step, arm) = onward::join!(ctx.step("other", async || Ok::<_, Failure>(())), arm);
        step.and(arm)
    });
    assert_contains(&message, &["call id 1.1.0), before the next call (call id 1.1.1)", "after step `inner` (#"]);
}

#[test]
fn a_signal_that_was_received_is_a_neighbor_too() {
    let mut world = World::new(
        |ctx: Ctx, ()| async move {
            ctx.signal("go").recv::<()>().await?;
            from_a_reactor().await;
            Ok(())
        },
        &(),
    );
    world.signal("go", &());
    let pause = world.run_until_idle().unwrap_err().into_pause().unwrap();
    assert_contains(&pause.message, &["after signal `go` (#1, call id 0), before the next call (call id 1)"]);
}

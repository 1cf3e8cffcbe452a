//! Futures that lose and are kept: awaited again later, in another combinator or alone.

use std::pin::Pin;
use std::sync::{Arc, Mutex};

use futures::channel::oneshot;
use onward::prelude::*;
use onward::testing::{Script, World};
use onward::{join, select};

use crate::fire_next;

/// What the tests below keep: two signals together, in one combinator or another.
#[derive(Debug, Clone, Copy, serde::Serialize, serde::Deserialize)]
enum Kept {
    JoinAll,
    Race,
    Block,
    Nested,
}

const KEPT: [Kept; 4] = [Kept::JoinAll, Kept::Race, Kept::Block, Kept::Nested];

type Both = Pin<Box<dyn Future<Output = Result<Vec<u32>>> + Send>>;

fn two(ctx: &Ctx, kept: Kept) -> Both {
    let recv = |name: &str| ctx.signal(name).recv::<u32>();
    let both = [recv("a"), recv("b")];
    match kept {
        Kept::JoinAll => Box::pin(join_all(both)),
        Kept::Race => Box::pin(async move { Ok(vec![race(both).await?]) }),
        Kept::Block => Box::pin(async move {
            let [a, b] = both;
            let (a, b) = onward::try_join!(a, b)?;
            Ok(vec![a, b])
        }),
        Kept::Nested => Box::pin(async move {
            let [a, b] = both;
            let (one, other) = join!(join_all([a]), async {
                select! { b = b => b }
            });
            Ok(one?.into_iter().chain([other?]).collect())
        }),
    }
}

/// Counts ticks while two signals are awaited.
async fn ticking(ctx: Ctx, kept: Kept) -> Result<String> {
    let mut both = two(&ctx, kept);
    let mut ticks = 0;
    loop {
        select! {
            values = &mut both => return Ok(format!("{:?} {ticks}", values?)),
            tick = ctx.signal("tick").recv::<()>() => tick?,
        }
        ticks += 1;
    }
}

#[test]
fn a_combinator_that_is_kept_is_woken_in_whichever_select_it_is_polled() {
    for crash in [false, true] {
        for kept in KEPT {
            let mut world = World::new(ticking, &kept);
            for (name, value) in [("tick", None), ("tick", None), ("a", Some(1)), ("tick", None), ("b", Some(2))] {
                if crash {
                    world.crash();
                }
                world.run_until_idle().unwrap();
                if !world.status().is_closed() {
                    world.signal(name, &value);
                }
            }
            world.run_until_idle().unwrap();
            let expected = if matches!(kept, Kept::Race) { "\"[1] 2\"" } else { "\"[1, 2] 3\"" };
            assert_eq!(world.output(), expected, "{kept:?}, crash {crash}");
        }
    }
}

/// Keeps two signals over a select and then awaits them in another combinator.
async fn then(ctx: Ctx, (kept, way): (Kept, u32)) -> Result<Vec<u32>> {
    let mut both = two(&ctx, kept);
    select! {
        _ = &mut both => return Err(Failure::fatal("nothing has come yet")),
        slept = ctx.sleep(secs(1)) => slept?,
    }
    match way {
        0 => both.await,
        1 => {
            let (values, slept) = join!(both, ctx.sleep(secs(1)));
            slept?;
            values
        }
        2 => ctx.timeout(both, hours(1)).await,
        _ => Ok(join_all([both]).await?.concat()),
    }
}

#[test]
fn a_combinator_that_is_kept_can_be_awaited_alone_in_a_join_and_with_a_limit() {
    for kept in KEPT {
        for way in 0..4 {
            let mut world = World::new(then, &(kept, way));
            world.run_until_idle().unwrap();
            fire_next(&mut world);
            world.run_until_idle().unwrap();
            if way == 1 {
                fire_next(&mut world);
                world.run_until_idle().unwrap();
            }
            for (name, value) in [("a", 1), ("b", 2)] {
                if !world.status().is_closed() {
                    world.signal(name, &value);
                    world.run_until_idle().unwrap();
                }
            }
            let expected = if matches!(kept, Kept::Race) { "[1]" } else { "[1,2]" };
            assert_eq!(world.output(), expected, "{kept:?} {way}");
        }
    }
}

/// The step's own waker must find the arm that awaits it by now.
#[test]
fn a_step_in_a_combinator_that_is_kept_is_polled_when_it_makes_progress() {
    let (sender, receiver) = oneshot::channel::<u32>();
    let gate = Arc::new(Mutex::new(Some(receiver)));
    let mut world = World::new(
        move |ctx: Ctx, (): ()| {
            let gate = gate.clone();
            async move {
                let step = ctx.step("slow", async || {
                    let receiver = gate.lock().unwrap().take();
                    receiver.expect("the step runs once").await
                });
                let mut work = join_all([step]);
                for _ in 0..2 {
                    select! {
                        done = &mut work => return done,
                        slept = ctx.sleep(secs(1)) => slept?,
                    }
                }
                work.await
            }
        },
        &(),
    );
    world.run_until_idle().unwrap();
    fire_next(&mut world);
    world.run_until_idle().unwrap();
    sender.send(7).unwrap();
    world.run_until_idle().unwrap();
    assert_eq!(world.output(), "[7]");
}

/// Awaits two signals for five seconds, does not poll them for twenty, and awaits them again.
async fn looked_away(ctx: Ctx, way: u32) -> Result<String> {
    let signal = || ctx.signal("a").recv::<u32>();
    let mut limited: Pin<Box<dyn Future<Output = String> + Send>> = match way {
        0 => {
            let limited = ctx.timeout(signal(), secs(5));
            Box::pin(async { limited.await.map_or_else(|failure| failure.code, |value| value.to_string()) })
        }
        1 => {
            let limited = ctx.timeout(join_all([signal()]), secs(5));
            Box::pin(async { limited.await.map_or_else(|failure| failure.code, |values| values[0].to_string()) })
        }
        _ => {
            let limited = ctx.signal("a").recv_timeout::<u32>(secs(5));
            let text = |value: Option<u32>| value.map_or("timed_out".to_owned(), |value| value.to_string());
            Box::pin(async move { limited.await.map_or_else(|failure| failure.code, text) })
        }
    };
    let begun = select! {
        early = &mut limited => Some(early),
        slept = ctx.sleep(secs(1)) => {
            slept?;
            None
        },
    };
    ctx.sleep(secs(20)).await?;
    let seen = match begun {
        Some(early) => early,
        None => limited.await,
    };
    Ok(format!("{seen} {}", ctx.signal("a").count()))
}

#[test]
fn a_time_limit_that_was_over_before_the_answer_counts_also_when_both_are_looked_at_later() {
    for way in 0..3 {
        for (after, expected) in [(2, "7 0"), (10, "timed_out 1")] {
            let script = Script::new(looked_away, &way).signal(secs(after), "a", &7);
            assert_eq!(script.run().output::<String>(), expected, "way {way}, after {after}");
            script.crash_everywhere();
        }
    }
}

#[test]
fn a_signal_by_pattern_and_a_time_limit_win_a_select_by_their_place_in_the_log() {
    async fn first(ctx: Ctx, way: u32) -> Result<String> {
        ctx.signal("go").recv::<()>().await?;
        match way {
            0 => select! {
                b = ctx.signal("b").recv::<u32>() => Ok(format!("b {}", b?)),
                user = ctx.signals("user.*").recv::<u32>() => user.map(|(name, value)| format!("{name} {value}")),
            },
            _ => select! {
                b = ctx.signal("b").recv::<u32>() => Ok(format!("b {}", b?)),
                user = ctx.timeout(ctx.signals("user.*").recv::<u32>(), secs(1)) => user.map(|(name, value)| format!("{name} {value}")),
            },
        }
    }
    for way in 0..2 {
        let script = Script::new(first, &way).signal(secs(1), "user.x", &1).signal(secs(2), "b", &2).signal(secs(3), "go", &());
        assert_eq!(script.run().output::<String>(), "user.x 1", "way {way}");
        script.crash_everywhere();
    }
}

//! Misuse in workflow code: each case pauses the run with a message that names what to use instead.

use std::time::Duration;

use onward::prelude::*;
use onward::testing::World;
use onward_core::engine::Fault;
use onward_core::event::PauseReason;

use crate::crash_and_pump;

/// Returns the message with which the run is paused when it runs `code`.
#[track_caller]
pub fn paused<F, Fut>(code: F) -> String
where
    F: Fn(Ctx, ()) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<()>> + Send + 'static,
{
    let mut world = World::new(code, &());
    let pause = world.run_until_idle().expect_err("the code does what it must not").into_pause().unwrap();
    assert_eq!(pause.reason, PauseReason::ActivationFailed);
    assert_eq!(pause.divergence, None);
    pause.message
}

#[track_caller]
pub fn assert_contains(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "{part:?} is missing in: {message}");
    }
}

#[test]
fn a_tokio_sleep_names_ctx_sleep() {
    let message = paused(|_, ()| async {
        tokio::time::sleep(Duration::from_millis(1)).await;
        Ok(())
    });
    assert_contains(&message, &["tokio", "`ctx.sleep`", "`ctx.step`"]);
}

#[test]
fn a_tokio_timeout_around_one_of_ours_names_ctx_timeout() {
    let message = paused(|ctx, ()| async move {
        drop(tokio::time::timeout(Duration::from_secs(1), ctx.signal("s").recv::<()>()).await);
        Ok(())
    });
    assert_contains(&message, &["tokio", "`ctx.timeout`"]);
}

#[test]
fn a_channel_names_signals_and_the_last_call_before_it() {
    let message = paused(|ctx, ()| async move {
        ctx.step("look", async || Ok::<_, Failure>(())).await?;
        let (_keep, mut receiver) = tokio::sync::mpsc::channel::<()>(1);
        receiver.recv().await;
        Ok(())
    });
    assert_contains(
        &message,
        &[
            "cannot be replayed",
            "mpsc",
            "semantics/misuse.rs:",
            "after step `look` (#1, call id 0), before the next call (call id 1)",
            "`ctx.signal(..)`",
        ],
    );
}

#[test]
fn a_oneshot_names_promises() {
    let message = paused(|_, ()| async {
        let (_keep, receiver) = tokio::sync::oneshot::channel::<()>();
        drop(receiver.await);
        Ok(())
    });
    assert_contains(&message, &["oneshot", "at the start", "`ctx.promise(..)`"]);
}

#[test]
fn yielding_is_named_as_needless() {
    let message = paused(|_, ()| async {
        tokio::task::yield_now().await;
        Ok(())
    });
    assert_contains(&message, &["leave it out"]);
}

#[test]
fn spawning_names_steps() {
    let message = paused(|_, ()| async {
        drop(tokio::spawn(async {}).await);
        Ok(())
    });
    assert_contains(&message, &["spawn", "`ctx.step`"]);
}

#[test]
fn a_join_handle_from_elsewhere_names_steps_and_join() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let handle = runtime.handle().clone();
    let message = paused(move |_, ()| {
        let handle = handle.clone();
        async move {
            drop(handle.spawn(std::future::pending::<()>()).await);
            Ok(())
        }
    });
    assert_contains(&message, &["JoinHandle", "`ctx.step`", "`join!`"]);
}

#[test]
fn a_future_that_nothing_can_answer_is_found_out() {
    let message = paused(|_, ()| std::future::pending());
    assert_contains(&message, &["no input can answer", "await only what `ctx` returns", "`ctx.step`"]);
}

#[test]
fn forty_calls_under_a_foreign_join_all_name_ours() {
    let message = paused(|ctx, ()| async move {
        futures::future::join_all((0..40).map(|n| ctx.task::<()>("work", &n))).await;
        Ok(())
    });
    assert_contains(&message, &["`onward::join_all`"]);
}

#[test]
fn a_foreign_select_over_ours_is_polled_like_ours_or_named() {
    // A small one holds nothing and is allowed; the winner then depends on the order of its arms.
    let mut world = World::new(
        |ctx: Ctx, ()| async move {
            let (a, b) = (ctx.signal("a").recv::<u32>(), ctx.signal("b").recv::<u32>());
            match futures::future::select(a, b).await {
                futures::future::Either::Left((value, _)) | futures::future::Either::Right((value, _)) => value,
            }
        },
        &(),
    );
    world.run_until_idle().unwrap();
    world.signal("b", &2);
    crash_and_pump(&mut world);
    assert_eq!(world.output(), "2");
}

#[test]
fn our_combinators_under_a_foreign_waker_name_where_they_belong() {
    let message = paused(|ctx, ()| async move {
        let inner = join_all([ctx.task::<()>("work", &())]);
        futures::future::join_all((0..40).map(|_| futures::future::Either::Left(std::future::ready(()))).chain([
            futures::future::Either::Right(Box::pin(async move {
                drop(inner.await);
            })),
        ]))
        .await;
        Ok(())
    });
    assert_contains(&message, &["onward"]);
}

#[test]
fn the_context_inside_a_step_names_where_to_use_it() {
    let message = paused(|ctx, ()| async move {
        let inner = ctx.clone();
        ctx.step("outer", async || {
            inner.signal("s").has();
            Ok::<_, Failure>(())
        })
        .await
    });
    assert_contains(&message, &["inside a step", "before or after the step"]);
}

#[test]
fn a_step_inside_a_step_is_named() {
    let message = paused(|ctx, ()| async move {
        let inner = ctx.clone();
        ctx.step("outer", async || inner.step("inner", async || Ok::<_, Failure>(())).await).await
    });
    assert_contains(&message, &["step was called inside a step"]);
}

#[test]
fn a_panic_pauses_with_its_own_words() {
    let message = paused(|_, ()| async { panic!("index {} out of bounds", 7) });
    assert_eq!(message, "the workflow code panicked: index 7 out of bounds");
}

#[test]
fn a_panic_before_the_first_await_pauses_too() {
    fn early(_: Ctx, _: ()) -> std::future::Ready<Result<()>> {
        panic!("too early")
    }
    assert_eq!(paused(early), "the workflow code panicked: too early");
}

#[test]
fn a_missing_dependency_names_the_builder() {
    let message = paused(|ctx, ()| async move {
        ctx.dep::<String>();
        Ok(())
    });
    assert_contains(&message, &["no dependency of type `alloc::string::String`", "`.dep(..)`"]);
}

/// Both before the handler is registered and after: the first update waits for it.
#[test]
fn a_panic_in_an_update_handler_answers_the_update_and_the_run_goes_on_with_what_was_changed() {
    let code = |ctx: Ctx, ()| async move {
        ctx.signal("ready").recv::<()>().await?;
        let changes = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
        let in_handler = changes.clone();
        ctx.update("u", move |change: u32| -> Result<()> {
            in_handler.fetch_add(change, std::sync::atomic::Ordering::SeqCst);
            panic!("no such thing as {change}")
        });
        ctx.signal("end").recv::<()>().await?;
        Ok(changes.load(std::sync::atomic::Ordering::SeqCst))
    };
    let mut world = World::new(code, &());
    let update = |world: &mut World, id: u32| {
        let (name, payload) = (onward_core::Name::new("u").unwrap(), onward_core::Payload::json(&id).unwrap());
        world.input(onward_core::event::UpdateReceived { update_id: id.to_string(), name, payload }).unwrap();
        crash_and_pump(world);
    };
    update(&mut world, 1);
    world.signal("ready", &());
    crash_and_pump(&mut world);
    update(&mut world, 2);
    let answers = world.log().events().filter_map(|(_, event)| match event {
        onward_core::Event::UpdateAnswered(answer) => answer.result.clone().err(),
        _ => None,
    });
    let answers: Vec<Failure> = answers.collect();
    let words: Vec<_> = answers.iter().map(|failure| (&*failure.code, &*failure.message)).collect();
    assert_eq!(
        words,
        [("panicked", "the update panicked: no such thing as 1"), ("panicked", "the update panicked: no such thing as 2")]
    );
    world.signal("end", &());
    crash_and_pump(&mut world);
    assert_eq!(world.output(), "3");
}

#[test]
fn a_step_that_panics_fails_with_its_own_words_and_is_tried_again() {
    async fn flow(ctx: Ctx, _: ()) -> Result<u32> {
        let step = ctx.step_with("fragile", async |attempt: Attempt| {
            assert!(attempt.number > 1, "first try");
            Ok::<_, Failure>(attempt.number)
        });
        step.retry(2).await
    }
    let mut world = World::new(flow, &());
    world.run_until_idle().unwrap();
    let failure = world.log().events().find_map(|(_, event)| match event {
        onward_core::Event::StepFailed(event) => Some(event.failure.clone()),
        _ => None,
    });
    let failure = failure.unwrap();
    assert_eq!((&*failure.code, &*failure.message), ("panicked", "the step panicked: first try"));
    crate::fire_next(&mut world);
    crash_and_pump(&mut world);
    assert_eq!(world.output(), "2");
}

#[test]
fn spinning_until_a_signal_comes_names_recv_and_sleep() {
    let message = paused(|ctx, ()| async move {
        while !ctx.signal("s").has() {}
        Ok(())
    });
    assert_contains(&message, &["without awaiting anything", "`recv()`", "`sleep`"]);
}

#[test]
fn spinning_on_try_recv_is_named_too_even_where_panics_are_caught() {
    let message = paused(|ctx, ()| async move {
        loop {
            let attempt = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| ctx.signal("s").try_recv::<()>()));
            if let Ok(Ok(Some(()))) | Err(_) = attempt {
                return Ok(());
            }
        }
    });
    assert_contains(&message, &["without awaiting anything"]);
}

#[test]
fn looking_into_the_mailbox_as_often_as_one_likes_is_fine_when_something_is_awaited_between() {
    async fn patient(ctx: Ctx, _: ()) -> Result<u32> {
        let mut looks = 0;
        while !ctx.signal("s").has() {
            looks += 1;
            ctx.sleep(secs(1)).await?;
        }
        Ok(looks)
    }
    let mut world = World::new(patient, &());
    for _ in 0..20 {
        world.run_until_idle().unwrap();
        crate::fire_next(&mut world);
    }
    world.signal("s", &());
    crash_and_pump(&mut world);
    assert_eq!(world.output(), "20");
}

#[test]
fn options_that_come_too_late_name_when_they_must_come() {
    let task = paused(|ctx, ()| async move {
        let task = ctx.task::<()>("work", &());
        ctx.step("between", async || Ok::<_, Failure>(())).await?;
        task.retry(3).await
    });
    let child = paused(|ctx, ()| async move {
        let child = ctx.child::<()>("work", &());
        ctx.step("between", async || Ok::<_, Failure>(())).await?;
        child.id("mine").await
    });
    let promise = paused(|ctx, ()| async move {
        let promise = ctx.promise::<()>("callback");
        ctx.step("between", async || Ok::<_, Failure>(())).await?;
        promise.within(secs(1)).await
    });
    for message in [task, child, promise] {
        assert_contains(&message, &["before anything is awaited"]);
    }
}

#[test]
fn invalid_names_are_reported_with_their_limit() {
    let long = "x".repeat(256);
    let too_long = long.clone();
    assert_contains(
        &paused(move |ctx, ()| {
            let name = too_long.clone();
            async move { ctx.step(&name, async || Ok::<_, Failure>(())).await }
        }),
        &["step: a name has at most 255 bytes, this one has 256"],
    );
    assert_contains(&paused(|ctx, ()| async move { ctx.signal("").recv().await }), &["signal: a name must not be empty"]);
    assert_contains(
        &paused(|ctx, ()| async move { ctx.task("a\nb", &()).await }),
        &["task: a name must not contain control characters"],
    );
    assert_contains(&paused(|ctx, ()| async move { ctx.child("", &()).await }), &["child: a name must not be empty"]);
    assert_contains(
        &paused(move |ctx, ()| {
            let id = long.clone();
            async move { ctx.child("kind", &()).id(&id).await }
        }),
        &["child: a run id has at most 255 bytes"],
    );
    assert_contains(
        &paused(|ctx, ()| async move {
            ctx.state().set("", &1)?;
            Ok(())
        }),
        &["state: a name must not be empty"],
    );
}

#[test]
fn a_value_that_is_not_json_is_reported() {
    let message = paused(|ctx, ()| async move {
        let map = std::collections::BTreeMap::from([((1, 2), 3)]);
        ctx.task("work", &map).await
    });
    assert_contains(&message, &["task input", "cannot be written as JSON", "key must be a string"]);
}

#[test]
fn a_float_that_is_not_a_number_is_reported_wherever_the_code_passes_it() {
    let task = paused(|ctx, ()| async move { ctx.task("work", &f64::NAN).await });
    let child = paused(|ctx, ()| async move { ctx.child("work", &[f64::NAN]).await });
    let signal = paused(|ctx, ()| async move {
        ctx.send_signal("other", "reading", &Some(f64::NAN))?;
        Ok(())
    });
    let state = paused(|ctx, ()| async move {
        ctx.state().set("mean", &(1, f64::NAN))?;
        Ok(())
    });
    let continued = paused(|ctx, ()| async move { ctx.continue_as_new(&f64::NAN).await });
    for message in [task, child, signal, state, continued] {
        assert_contains(&message, &["not a number cannot be recorded"]);
    }
}

#[test]
fn versions_in_the_wrong_order_are_reported() {
    let message = paused(|ctx, ()| async move {
        ctx.version("change", 3, 2);
        Ok(())
    });
    assert_contains(&message, &["version `change`: min 3 is above max 2"]);
}

#[test]
fn an_input_of_another_type_fails_the_run_with_the_reason() {
    let mut world = World::new(|_: Ctx, _: u32| async { Ok(()) }, &"seven");
    crash_and_pump(&mut world);
    let failure = world.outcome().unwrap().unwrap_err();
    assert_eq!(failure.code, "invalid_input");
    assert_contains(&failure.message, &["the input does not fit the workflow", "expected u32"]);
}

/// Live, it would wait forever, or never win a `select!` again.
#[test]
fn a_future_that_is_polled_after_it_was_ready_pauses_the_run_with_its_name() {
    async fn again(ctx: Ctx, way: u32) -> Result<()> {
        let mut once: std::pin::Pin<Box<dyn Future<Output = ()> + Send>> = match way {
            0 => {
                let mut sleep = ctx.sleep(secs(1));
                Box::pin(async move {
                    (&mut sleep).await.unwrap();
                    sleep.await.unwrap();
                })
            }
            1 => {
                let mut recv = ctx.signal("s").recv::<u32>();
                Box::pin(async move {
                    (&mut recv).await.unwrap();
                    recv.await.unwrap();
                })
            }
            2 => {
                let mut step = Box::pin(ctx.step("pay", async || Ok::<_, Failure>(())));
                Box::pin(async move {
                    (&mut step).await.unwrap();
                    step.await.unwrap();
                })
            }
            3 => {
                let mut all = join_all([ctx.sleep(secs(1))]);
                Box::pin(async move {
                    (&mut all).await.unwrap();
                    all.await.unwrap();
                })
            }
            4 => {
                let mut first = race([ctx.sleep(secs(1))]);
                Box::pin(async move {
                    (&mut first).await.unwrap();
                    first.await.unwrap();
                })
            }
            5 => {
                let mut limited = ctx.timeout(ctx.signal("s").recv::<u32>(), secs(1));
                Box::pin(async move {
                    (&mut limited).await.unwrap();
                    limited.await.unwrap();
                })
            }
            _ => {
                let mut limited = ctx.signal("s").recv_timeout::<u32>(secs(9));
                Box::pin(async move {
                    (&mut limited).await.unwrap();
                    limited.await.unwrap();
                })
            }
        };
        onward::select! {
            () = &mut once => Ok(()),
            slept = ctx.sleep(hours(1)) => slept,
        }
    }
    let named = [
        "`sleep` at call id 0",
        "`recv` at call id 0",
        "`step pay` at call id 0",
        "`join_all`",
        "`race`",
        "`timeout` at call id",
        "`recv_timeout` at call id 0",
    ];
    for (way, named) in named.into_iter().enumerate() {
        let mut world = World::new(again, &(way as u32));
        world.signal("s", &1);
        world.signal("s", &2);
        let fault = match world.run_until_idle() {
            Err(fault) => fault,
            Ok(()) => {
                crate::fire_next(&mut world);
                world.run_until_idle().unwrap_err()
            }
        };
        let Fault::Misuse(message) = fault else { panic!("{way}: {fault:?}") };
        assert!(message.contains(named) && message.contains("is polled after it was ready"), "{way}: {message}");
    }
}

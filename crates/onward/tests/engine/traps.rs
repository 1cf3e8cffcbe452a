//! Common mistakes: each is refused with a code and a hint, where it is made.

use std::time::Duration;

use onward::prelude::*;
use onward::{Error, Onward};
use onward_core::view::AwaitedKind;

use crate::site::{awaited, count, everywhere, paused};

async fn code(_: Ctx, (): ()) -> Result<()> {
    Ok(())
}

#[track_caller]
fn refused<T>(answer: Result<T, Error>, code: &str, message: &str, hint: &str) {
    let Err(error) = answer else { panic!("it was taken; expected {code}") };
    assert_eq!(error.code(), code, "{error}");
    assert!(error.to_string().contains(message), "{error}");
    assert!(error.hint().is_some_and(|given| given.contains(hint)), "{error}: {:?}", error.hint());
}

#[tokio::test]
async fn a_lease_that_cannot_be_kept_is_refused_at_the_start() {
    for lease in [Duration::ZERO, Duration::from_millis(99)] {
        let started = Onward::in_memory().lease(lease).start().await;
        refused(started, "register_invalid", "is shorter than 100ms", "30 seconds");
    }
    Onward::in_memory().lease(Duration::from_millis(100)).start().await.unwrap();
}

#[tokio::test]
async fn two_versions_of_one_registration_are_refused_at_the_start() {
    let twice = Onward::in_memory().workflow("w", code).version("v1").version("v2").start().await;
    refused(twice, "register_invalid", "workflow `w` has two versions at once: `v1` and `v2`", "`.previous(..)`");
    let as_before = Onward::in_memory().workflow("w", code).previous("v1", code).version("v1").start().await;
    refused(as_before, "register_invalid", "version `v1` was registered twice", "once");
    let other = Onward::in_memory().workflow("a", code).version("v1").workflow("b", code).version("v1");
    other.start().await.unwrap();
}

everywhere! {
    async fn a_compensation_without_a_name_is_found_where_it_is_registered(site) {
        async fn code(ctx: Ctx, (): ()) -> Result<()> {
            ctx.on_failure("", async || Ok::<_, Failure>(()));
            ctx.step("never", async || Ok::<_, Failure>(())).await
        }
        let onward = site.builder().await.workflow("w", code).start().await.unwrap();
        let run = onward.start::<(), _>("w", &()).await.unwrap();
        let pause = paused(&run).await;
        assert!(pause.message.contains("on_failure") && pause.message.contains("must not be empty"), "{}", pause.message);
        assert_eq!(count(&run, "step_completed").await, 0);
    }

    async fn a_child_with_a_taken_id_fails_with_the_owner_of_the_id(site) {
        async fn parent(ctx: Ctx, (): ()) -> Result<Vec<String>> {
            let first: u32 = ctx.child("same", &1).id("kid").await?;
            let again = ctx.child::<u32>("same", &1).id("kid").await.expect_err("it is the first one's");
            let taken = ctx.child::<u32>("same", &1).id("stranger").await.expect_err("it is nobody's child");
            let cousin = ctx.child::<u32>("same", &1).id("cousin").await.expect_err("it is another's child");
            let other = ctx.child::<u32>("same", &2).id("kid").await.expect_err("it has another input");
            assert_eq!(first, 1);
            Ok([again, taken, cousin, other].map(|failure| format!("{}: {failure}", failure.code)).to_vec())
        }
        async fn uncle(ctx: Ctx, (): ()) -> Result<u32> {
            ctx.child("same", &1).id("cousin").await
        }
        async fn same(_: Ctx, n: u32) -> Result<u32> {
            Ok(n)
        }
        let builder = site.builder().await.workflow("parent", parent).workflow("uncle", uncle).workflow("same", same);
        let onward = builder.start().await.unwrap();
        onward.start::<u32, _>("same", &1).id("stranger").await.unwrap().result().await.unwrap();
        onward.start::<u32, _>("uncle", &()).id("bob").await.unwrap().result().await.unwrap();
        let failures = onward.start::<Vec<String>, _>("parent", &()).await.unwrap().result().await.unwrap();
        let expected = [
            "run kid exists already and is the child of another call of this run, at call id 0 of generation 0",
            "run stranger exists already and is not a child",
            "run cousin exists already and is a child of run bob",
            "run kid already exists with a different kind or input",
        ];
        for (failure, expected) in failures.iter().zip(expected) {
            assert!(failure.starts_with(&format!("run_exists: {expected}")), "{failure}");
        }
    }

    async fn an_id_that_is_taken_is_not_taken_again_for_something_else(site) {
        async fn code(ctx: Ctx, (): ()) -> Result<(u32, bool)> {
            ctx.update("grow", |by: u32| Ok(by + 1));
            let ship = ctx.approval("ship", "Ship?").await?;
            Ok((ctx.signal("end").recv().await?, ship.approved))
        }
        let onward = site.builder().await.workflow("w", code).start().await.unwrap();
        let run = onward.start::<(u32, bool), _>("w", &()).id("r").await.unwrap();
        let question = awaited(&run, AwaitedKind::Approval).await;
        let decide = |approved| Decide { approved, feedback: None, decided_by: None, answer: None, decision_id: "click".to_owned() };
        let hint = "another id";

        assert_eq!(run.update::<u32>("grow", &1).id("u").await.unwrap(), 2);
        refused(run.update::<u32>("grow", &2).id("u").await, "id_taken", "update `u`", hint);
        assert_eq!(run.update::<u32>("grow", &1).id("u").await.unwrap(), 2);

        onward.decide_approval(&question, decide(true)).await.unwrap();
        refused(onward.decide_approval(&question, decide(false)).await, "id_taken", "answer `click`", hint);
        assert!(onward.decide_approval(&question, decide(true)).await.unwrap().repeated);

        run.signal("end", &7).id("s").await.unwrap();
        refused(run.signal("end", &8).id("s").await, "id_taken", "signal `s`", hint);
        refused(onward.start::<(), _>("w", &()).id("r").signal("end", &8).signal_id("s").await.map(drop), "id_taken", "signal `s`", hint);
        assert!(run.signal("end", &7).id("s").await.unwrap().repeated);
        assert_eq!(run.result().await.unwrap(), (7, true));
    }
}

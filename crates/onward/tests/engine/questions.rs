//! Questions that are answered exactly once: promises and approvals.

use std::sync::{Arc, OnceLock};

use onward::prelude::*;
use onward::{Decide, Decision, Status};
use onward_core::view::AwaitedKind;

use crate::site::{awaited, count, everywhere, until_logged, until_status};

async fn callback(ctx: Ctx, (): ()) -> Result<String> {
    let answer = ctx.promise::<String>("callback").within(hours(1)).await;
    let result = answer.unwrap_or_else(|failure| format!("{}: {}", failure.code, failure.message));
    ctx.signal("end").recv::<()>().await?;
    Ok(result)
}

async fn ship(ctx: Ctx, deciders: Vec<String>) -> Result<Decision> {
    let question = ctx.approval("ship", "Ship it?").describe("two boxes").show(&[1, 2]).deciders(deciders).within(hours(1));
    let decision = question.await?;
    ctx.signal("end").recv::<()>().await?;
    Ok(decision)
}

fn decide(approved: bool, id: &str) -> Decide {
    let feedback = (!approved).then(|| "too late in the day".to_owned());
    Decide { approved, feedback, decided_by: None, answer: None, decision_id: id.to_owned() }
}

everywhere! {
    /// Scenario 23.
    async fn a_promise_is_resolved_by_its_id_once(site) {
        let onward = site.builder().await.workflow("callback", callback).start().await.unwrap();
        let run = onward.start::<String, _>("callback", &()).await.unwrap();
        let promise = awaited(&run, AwaitedKind::Promise).await;
        let first = onward.resolve(&promise, "done", "hook-1").await.unwrap();
        let again = onward.resolve(&promise, "done", "hook-1").await.unwrap();
        assert!(again.repeated && again.index == first.index);
        let lost = onward.resolve(&promise, "something else", "hook-2").await.unwrap_err();
        assert_eq!(lost.code(), "signal_lost");
        assert!(lost.to_string().contains("hook-1"), "{lost}");
        assert_eq!(lost.hint(), Some("the first answer stands; this one was not recorded"));
        run.signal("end", &()).await.unwrap();
        assert_eq!(run.result().await.unwrap(), "done");
        assert_eq!(count(&run, "promise_resolved").await, 1);
        assert!(onward.resolve(&promise, "done", "hook-1").await.unwrap().repeated, "also after the end");
    }

    /// Scenario 23.
    async fn a_promise_is_rejected_by_its_id(site) {
        let onward = site.builder().await.workflow("callback", callback).start().await.unwrap();
        let run = onward.start::<String, _>("callback", &()).signal("end", &()).await.unwrap();
        let promise = awaited(&run, AwaitedKind::Promise).await;
        onward.reject(&promise, Failure::fatal("declined").with_code("declined"), "hook-1").await.unwrap();
        assert_eq!(run.result().await.unwrap(), "declined: declined");
    }

    /// Scenario 23.
    async fn an_unresolved_promise_times_out_and_a_late_resolution_is_refused(site) {
        let onward = site.builder().await.workflow("callback", callback).start().await.unwrap();
        let run = onward.start::<String, _>("callback", &()).await.unwrap();
        let promise = awaited(&run, AwaitedKind::Promise).await;
        site.pass(&onward, mins(61)).await;
        until_logged(&run, "timer_fired", 1).await;
        assert_eq!(onward.resolve(&promise, "late", "hook-1").await.unwrap_err().code(), "signal_lost");
        run.signal("end", &()).await.unwrap();
        assert_eq!(run.result().await.unwrap(), "timed_out: promise `callback` timed out");
    }

    async fn a_promise_that_a_step_hands_out_can_be_resolved_at_once(site) {
        async fn hand_out(ctx: Ctx, (): ()) -> Result<u32> {
            let outside = ctx.dep::<Arc<OnceLock<Onward>>>();
            let promise = ctx.promise::<u32>("callback");
            let id = promise.id();
            ctx.step("hand it out", async || {
                // The promise is resolved before this step ends.
                outside.get().unwrap().resolve(&id, &42, "at-once").await?;
                Ok::<_, onward::Error>(())
            })
            .await?;
            promise.await
        }
        let outside: Arc<OnceLock<Onward>> = Arc::default();
        let builder = site.builder().await.workflow("hand-out", hand_out).dep(outside.clone());
        let onward = builder.start().await.unwrap();
        assert!(outside.set(onward.clone()).is_ok());
        let run = onward.start::<u32, _>("hand-out", &()).await.unwrap();
        assert_eq!(run.result().await.unwrap(), 42);
    }

    /// Scenario 35.
    async fn an_approval_shows_what_is_asked_and_is_decided_once(site) {
        let onward = site.builder().await.workflow("ship", ship).start().await.unwrap();
        let run = onward.start::<Decision, _>("ship", &[""; 0]).await.unwrap();
        let approval = awaited(&run, AwaitedKind::Approval).await;
        let shown = onward.list_approvals().await.unwrap();
        assert_eq!((shown.len(), &*shown[0].title, shown[0].description.as_deref()), (1, "Ship it?", Some("two boxes")));
        assert_eq!(format!("{:?}", shown[0].show.as_ref().unwrap()), "[1,2]");

        onward.decide_approval(&approval, decide(true, "d1")).await.unwrap();
        assert!(onward.decide_approval(&approval, decide(true, "d1")).await.unwrap().repeated, "the same decision again is no error");
        assert_eq!(onward.decide_approval(&approval, decide(false, "d2")).await.unwrap_err().code(), "signal_lost");
        assert!(onward.list_approvals().await.unwrap().is_empty());
        run.signal("end", &()).await.unwrap();
        let decision = run.result().await.unwrap();
        assert!(decision.approved && !decision.expired);
        assert_eq!(count(&run, "approval_decided").await, 1);
    }

    /// Scenario 35.
    async fn an_approval_that_is_denied_brings_its_feedback(site) {
        let onward = site.builder().await.workflow("ship", ship).start().await.unwrap();
        let run = onward.start::<Decision, _>("ship", &[""; 0]).signal("end", &()).await.unwrap();
        let approval = awaited(&run, AwaitedKind::Approval).await;
        onward.disapprove(&approval, "too late in the day").await.unwrap();
        assert_eq!(onward.approve(&approval).await.unwrap_err().code(), "signal_lost");
        let decision = run.result().await.unwrap();
        assert_eq!((decision.approved, decision.feedback.as_deref()), (false, Some("too late in the day")));
    }

    /// Scenario 35.
    async fn an_approval_that_does_not_exist_is_refused_and_nothing_is_written(site) {
        let onward = site.builder().await.workflow("ship", ship).start().await.unwrap();
        let run = onward.start::<Decision, _>("ship", &[""; 0]).id("r").await.unwrap();
        awaited(&run, AwaitedKind::Approval).await;
        until_status(&run, Status::Waiting).await;
        let before = run.log().await.unwrap();
        for (id, code) in [("r~0~7", "wait_not_found"), ("nobody~0~0", "run_not_found"), ("r", "call_id_invalid")] {
            let error = onward.decide_approval(id, decide(true, "d1")).await.unwrap_err();
            assert_eq!(error.code(), code, "{id}");
            assert!(error.hint().is_some(), "{id}");
        }
        assert_eq!(run.log().await.unwrap(), before);
    }

    async fn only_a_decider_decides(site) {
        let onward = site.builder().await.workflow("ship", ship).start().await.unwrap();
        let run = onward.start::<Decision, _>("ship", &["ada", "bob"]).signal("end", &()).await.unwrap();
        let approval = awaited(&run, AwaitedKind::Approval).await;
        for who in [None, Some("eve".to_owned())] {
            let error = onward.decide_approval(&approval, Decide { decided_by: who, ..decide(true, "d1") }).await.unwrap_err();
            assert_eq!(error.code(), "not_a_decider");
        }
        let bob = Decide { decided_by: Some("bob".to_owned()), ..decide(true, "d1") };
        onward.decide_approval(&approval, bob).await.unwrap();
        assert_eq!(run.result().await.unwrap().decided_by.as_deref(), Some("bob"));
    }

    async fn an_undecided_approval_expires_as_not_approved(site) {
        let onward = site.builder().await.workflow("ship", ship).start().await.unwrap();
        let run = onward.start::<Decision, _>("ship", &[""; 0]).signal("end", &()).await.unwrap();
        let approval = awaited(&run, AwaitedKind::Approval).await;
        site.pass(&onward, mins(61)).await;
        let decision = run.result().await.unwrap();
        assert!(decision.expired && !decision.approved);
        assert_eq!(onward.decide_approval(&approval, decide(true, "d1")).await.unwrap_err().code(), "signal_lost");
    }

    async fn a_question_that_the_code_gave_up_is_no_longer_asked(site) {
        async fn impatient(ctx: Ctx, (): ()) -> Result<bool> {
            onward::select! {
                decision = ctx.approval("ship", "Ship it?") => { decision?; },
                nudge = ctx.signal("never mind").recv::<()>() => nudge?,
            }
            ctx.signal("end").recv::<()>().await?;
            Ok(true)
        }
        let onward = site.builder().await.workflow("impatient", impatient).start().await.unwrap();
        let run = onward.start::<bool, _>("impatient", &()).await.unwrap();
        let approval = awaited(&run, AwaitedKind::Approval).await;
        run.signal("never mind", &()).await.unwrap();
        until_logged(&run, "wait_canceled", 1).await;
        assert!(onward.list_approvals().await.unwrap().is_empty());
        assert_eq!(onward.decide_approval(&approval, decide(true, "d1")).await.unwrap_err().code(), "signal_lost");
        run.signal("end", &()).await.unwrap();
        assert!(run.result().await.unwrap());
    }
}

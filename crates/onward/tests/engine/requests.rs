//! Bad requests from outside: a typed error with a stable code, a hint, and nothing written.

use onward::prelude::*;
use onward::{Builder, Decide, Error, RunQuery, Status};
use onward_core::view::AwaitedKind;

use crate::site::{PAYLOAD_BYTES_MAX, awaited, everywhere, until_status};

async fn waits(ctx: Ctx, _: String) -> Result<()> {
    ctx.signal("end").recv().await
}

async fn asks(ctx: Ctx, (): ()) -> Result<bool> {
    Ok(ctx.approval("ship", "Ship it?").await?.approved)
}

#[track_caller]
fn refused<T>(answer: Result<T, Error>, code: &str, hint: &str) -> Error {
    let error = answer.err().unwrap_or_else(|| panic!("{code} was expected"));
    assert_eq!(error.code(), code, "{error}");
    let given = error.hint().unwrap_or_default();
    assert!(given.contains(hint), "the hint of {code} is {given:?}");
    error
}

async fn run_count(onward: &Onward) -> usize {
    onward.list_runs(RunQuery::default()).await.unwrap().runs.len()
}

everywhere! {
    async fn a_kind_that_is_not_registered_is_refused_at_the_start_or_waits_for_a_worker(site) {
        let onward = site.builder().await.workflow("waits", waits).start().await.unwrap();
        let unknown = onward.start::<(), _>("wait", "x").await;
        if site.is_remote() {
            // A server cannot know which workers will connect: it accepts the run and reports why it is pending.
            let blocked_on = unknown.unwrap().blocked_on().await.unwrap();
            assert_eq!(blocked_on[0].why, onward::BlockReason::NoWorker);
            return;
        }
        refused(unknown, "unknown_kind", ".workflow(&NAME, function)");
        assert_eq!(run_count(&onward).await, 0);
    }

    /// Scenario 41.
    async fn an_id_that_is_taken_by_another_input_or_kind_is_refused(site) {
        let onward = site.builder().await.workflow("waits", waits).workflow("asks", asks).start().await.unwrap();
        let run = onward.start::<(), _>("waits", "first").id("r").await.unwrap();
        until_status(&run, Status::Waiting).await;
        let before = run.log().await.unwrap();
        refused(onward.start::<(), _>("waits", "second").id("r").await, "run_exists", "another id");
        refused(onward.start::<bool, _>("asks", &()).id("r").await, "run_exists", "another id");
        refused(onward.start::<(), _>("waits", "second").id("r").signal("end", &()).await, "run_exists", "another id");
        assert_eq!(run.log().await.unwrap(), before, "not even the signal that came with the start");
    }

    async fn a_payload_over_the_limit_is_refused_wherever_it_comes_in(site) {
        let onward = site.builder().await.workflow("waits", waits).workflow("asks", asks).start().await.unwrap();
        let large = "x".repeat(PAYLOAD_BYTES_MAX);
        let error = refused(onward.start::<(), _>("waits", &large).await, "payload_too_large", "pass a reference");
        let message = error.to_string();
        // Encryption makes the payload a little longer.
        let sealed = if site.is_sealed { 74 } else { 0 };
        let (bytes, max) = ((PAYLOAD_BYTES_MAX + 2 + sealed).to_string(), PAYLOAD_BYTES_MAX.to_string());
        assert!(message.contains(&bytes) && message.contains(&max), "the error has both sizes: {message}");
        assert_eq!(run_count(&onward).await, 0);
        let run = onward.start::<(), _>("waits", "r").id("r").await.unwrap();
        until_status(&run, Status::Waiting).await;
        let before = run.log().await.unwrap();
        refused(run.signal("end", &large).await, "payload_too_large", "pass a reference");
        refused(run.update::<()>("u", &large).await, "payload_too_large", "pass a reference");
        refused(onward.start::<(), _>("waits", "r").id("r").signal("end", &large).await, "payload_too_large", "pass a reference");
        assert_eq!(run.log().await.unwrap(), before);
    }

    async fn names_that_are_none_are_refused_with_the_rule(site) {
        let onward = site.builder().await.workflow("waits", waits).start().await.unwrap();
        let rule = "1 to 255 bytes of UTF-8 without control characters";
        let (long, longest) = ("x".repeat(256), "y".repeat(255));
        refused(onward.start::<(), _>("waits", "").id(&long).await, "name_invalid", rule);
        refused(onward.start::<(), _>("waits", "").id("").await, "name_invalid", rule);
        refused(onward.start::<(), _>("waits", "").id("a\nb").await, "name_invalid", rule);
        refused(onward.start::<(), _>(&long, "").await, "name_invalid", rule);
        refused(onward.start::<(), _>("waits", "").signal(&long, &()).await, "name_invalid", rule);
        assert_eq!(run_count(&onward).await, 0);
        let run = onward.start::<(), _>("waits", "").id(&longest).await.unwrap();
        until_status(&run, Status::Waiting).await;
        let before = run.log().await.unwrap();
        refused(run.signal("", &()).await, "name_invalid", rule);
        refused(run.signal("end", &()).id(&long).await, "id_invalid", rule);
        refused(run.update::<()>("u", &()).id("").await, "id_invalid", rule);
        refused(run.query::<()>(&long, &()).await, "name_invalid", rule);
        refused(onward.run::<()>(&long), "name_invalid", rule);
        assert_eq!(run.log().await.unwrap(), before);
    }

    async fn a_run_that_does_not_exist_is_an_error(site) {
        let onward = site.builder().await.workflow("waits", waits).start().await.unwrap();
        let nobody = onward.run::<()>("nobody").unwrap();
        let hint = "onward run list";
        refused(nobody.signal("end", &()).await, "run_not_found", hint);
        refused(nobody.cancel("").await, "run_not_found", hint);
        refused(nobody.pause("").await, "run_not_found", hint);
        refused(nobody.resume().await, "run_not_found", hint);
        refused(nobody.terminate("").await, "run_not_found", hint);
        refused(nobody.view().await, "run_not_found", hint);
        refused(nobody.log().await, "run_not_found", hint);
        refused(nobody.result().await, "run_not_found", hint);
        refused(nobody.query::<()>("q", &()).await, "run_not_found", hint);
        refused(nobody.update::<()>("u", &()).await, "run_not_found", hint);
        refused(nobody.attach(onward_core::Index(0)).await.map(drop), "run_not_found", hint);
        assert_eq!(run_count(&onward).await, 0);
    }

    async fn a_closed_run_takes_nothing_more(site) {
        let onward = site.builder().await.workflow("waits", waits).start().await.unwrap();
        let run = onward.start::<(), _>("waits", "").signal("end", &()).await.unwrap();
        run.result().await.unwrap();
        let before = run.log().await.unwrap();
        let hint = "start a new one";
        refused(run.signal("end", &()).await, "run_closed", hint);
        refused(run.cancel("").await, "run_closed", hint);
        refused(run.terminate("").await, "run_closed", hint);
        refused(run.pause("").await, "run_closed", hint);
        refused(run.update::<()>("u", &()).await, "run_closed", hint);
        assert_eq!(run.log().await.unwrap(), before);
    }

    /// Scenario 35.
    async fn an_approval_that_is_decided_twice_names_the_first_decider_to_the_second(site) {
        let onward = site.builder().await.workflow("asks", asks).start().await.unwrap();
        let run = onward.start::<bool, _>("asks", &()).await.unwrap();
        let approval = awaited(&run, AwaitedKind::Approval).await;
        let decide = |approved, id: &str| Decide { approved, feedback: None, decided_by: None, answer: None, decision_id: id.to_owned() };
        onward.decide_approval(&approval, decide(true, "first")).await.unwrap();
        assert!(run.result().await.unwrap());
        let before = run.log().await.unwrap();
        let lost = refused(onward.decide_approval(&approval, decide(false, "second")).await, "signal_lost", "the first answer stands");
        assert!(lost.to_string().contains("`first` came first"), "{lost}");
        refused(onward.decide_approval(&approval, decide(false, "expired")).await, "id_reserved", "use another id");
        let long = Decide { feedback: Some("x".repeat(70_000)), ..decide(false, "third") };
        refused(onward.decide_approval(&approval, long).await, "text_too_long", "pass a reference");
        assert_eq!(run.log().await.unwrap(), before);
    }

    async fn a_promise_is_no_approval_and_an_approval_no_promise(site) {
        let onward = site.builder().await.workflow("asks", asks).start().await.unwrap();
        let run = onward.start::<bool, _>("asks", &()).await.unwrap();
        let approval = awaited(&run, AwaitedKind::Approval).await;
        refused(onward.resolve(&approval, &true, "r1").await, "wait_not_found", "onward approval list");
        assert!(onward.approve(&approval).await.is_ok());
    }

    async fn a_value_that_is_not_json_is_refused_before_anything_is_sent(site) {
        let onward = site.builder().await.workflow("waits", waits).start().await.unwrap();
        let map = std::collections::BTreeMap::from([((1, 2), 3)]);
        assert_eq!(onward.start::<(), _>("waits", &map).await.err().unwrap().code(), "value_invalid");
        let run = onward.start::<(), _>("waits", "").await.unwrap();
        assert_eq!(run.signal("end", &map).await.unwrap_err().code(), "value_invalid");
    }

    async fn a_result_of_another_type_is_an_error_and_the_run_is_unharmed(site) {
        let onward = site.builder().await.workflow("waits", waits).start().await.unwrap();
        let run = onward.start::<u32, _>("waits", "").id("r").signal("end", &()).await.unwrap();
        assert_eq!(run.result().await.unwrap_err().code(), "value_invalid");
        onward.run::<()>("r").unwrap().result().await.unwrap();
    }

    async fn an_invalid_registration_is_reported_at_the_start(site) {
        let wrong: [fn(Builder) -> Builder; 4] = [
            |builder| builder.workflow("w", waits).workflow("w", waits),
            |builder| builder.workflow("", waits),
            |builder| builder.version("v1"),
            |builder| builder.workflow("w", waits).version("v1").previous("v1", waits),
        ];
        for wrong in wrong {
            assert_eq!(wrong(site.builder().await).start().await.err().unwrap().code(), "register_invalid");
        }
    }
}

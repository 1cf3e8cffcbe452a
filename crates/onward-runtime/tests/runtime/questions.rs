//! Approvals and promises: decided once, by permitted deciders.

use onward_core::{Event, Failure, Index, Namespace, Payload, RunId};
use onward_runtime::{CallContext, CallRef, Decide, ForkRequest, LocalConnection};

use crate::kit::*;

fn call(text: &str) -> CallRef {
    CallRef::parse(&Namespace::default(), text).unwrap()
}

fn decide(id: &str, by: Option<&str>) -> Decide {
    Decide { approved: true, feedback: None, decided_by: by.map(str::to_owned), answer: None, decision_id: id.to_owned() }
}

fn fork(run: &str, id: &str) -> ForkRequest {
    ForkRequest { id: Some(RunId::new(id).unwrap()), ..ForkRequest::new(key(run), 7) }
}

fn by(caller: &str) -> CallContext {
    CallContext { caller: Some(caller.to_owned()), ..CallContext::default() }
}

async fn awaited(events: Vec<onward_core::Event>) -> (Harness, LocalConnection, HeldRun) {
    let kit = Harness::new();
    let worker = kit.worker("w");
    let mut held = kit.start_held(&worker, "r").await;
    kit.commit(&mut held, events).await;
    (kit, worker, held)
}

#[tokio::test]
async fn the_first_decision_stands_and_its_repeat_is_no_error() {
    let (kit, _worker, _held) = awaited(vec![approval(0, &[], None)]).await;
    let first = kit.runtime.decide_approval(&call("r~0~0"), decide("d1", None)).await.unwrap();
    let again = kit.runtime.decide_approval(&call("r~0~0"), decide("d1", None)).await.unwrap();
    assert_eq!((again.index, again.repeated), (first.index, true));
    refused(kit.runtime.decide_approval(&call("r~0~0"), decide("d2", None)).await, "signal_lost");
    assert_eq!(kit.log("r").await, ["run_started", "approval_requested", "approval_decided"]);
}

#[tokio::test]
async fn only_a_named_decider_may_decide_early_or_late() {
    let (kit, _worker, _held) = awaited(vec![approval(0, &["ann", "bob"], None)]).await;
    let runtime = &kit.runtime;
    for by in [None, Some("eve")] {
        refused(runtime.decide_approval(&call("r~0~0"), decide("d1", by)).await, "not_a_decider");
    }
    runtime.decide_approval(&call("r~0~0"), decide("d1", Some("bob"))).await.unwrap();
    refused(runtime.decide_approval(&call("r~0~0"), decide("d1", Some("eve"))).await, "not_a_decider");
    refused(runtime.decide_approval(&call("r~0~0"), decide("d2", Some("ann"))).await, "signal_lost");
    assert!(runtime.decide_approval(&call("r~0~0"), decide("d1", Some("bob"))).await.unwrap().repeated);
}

/// Z10: the caller of a copy requests its approvals like the person that started the original.
#[tokio::test]
async fn neither_the_requester_nor_the_caller_of_a_copy_decides_its_approval() {
    let kit = Harness::new();
    let worker = kit.worker("w");
    kit.runtime.start_run_for(start("r"), by("bob")).await.unwrap();
    let mut held = kit.next_held(&worker).await;
    let Event::ApprovalRequested(mut request) = approval(0, &[], None) else { unreachable!("an approval") };
    request.not_by_requester = true;
    kit.commit(&mut held, vec![Event::ApprovalRequested(request)]).await;
    let decides = async |run: &str, by: &str| {
        let answer = kit.runtime.decide_approval(&call(run), decide("d1", Some(by))).await;
        answer.map(drop).map_err(|error| error.code())
    };
    for (is_reset, id, caller) in [(false, "f", "alice"), (true, "x", "alice")] {
        let fork = ForkRequest { restart_children: is_reset, ..fork("r", id) };
        kit.runtime.fork_run(fork, is_reset, by(caller)).await.unwrap();
    }
    // A copy of a copy has all of them.
    kit.runtime.fork_run(fork("f", "ff"), false, by("carol")).await.unwrap();
    let copies = [("f~0~0", &["bob", "alice"][..]), ("x~0~0", &["bob", "alice"]), ("ff~0~0", &["bob", "alice", "carol"])];
    for (run, refused) in copies {
        for by in refused {
            assert_eq!(decides(run, by).await, Err("not_a_decider"), "{by} decides {run}");
        }
        assert_eq!(decides(run, "dave").await, Ok(()), "{run}");
    }
}

#[tokio::test]
async fn an_approval_is_no_promise() {
    let (kit, _worker, _held) = awaited(vec![approval(0, &[], None), promise(1)]).await;
    refused(kit.runtime.decide_approval(&call("r~0~1"), decide("d1", None)).await, "wait_not_found");
    refused(kit.runtime.resolve_promise(&call("r~0~0"), Ok(Payload::null()), "d1").await, "wait_not_found");
    assert_eq!(kit.head("r").await.next_index, Index(3));
}

#[tokio::test]
async fn an_unknown_approval_is_not_found() {
    let (kit, _worker, _held) = awaited(vec![approval(0, &[], None)]).await;
    let runtime = &kit.runtime;
    refused(runtime.decide_approval(&call("r~0~9"), decide("d1", None)).await, "wait_not_found");
    refused(runtime.decide_approval(&call("r~3~0"), decide("d1", None)).await, "run_not_found");
    refused(runtime.decide_approval(&call("x~0~0"), decide("d1", None)).await, "run_not_found");
    let elsewhere = CallRef::parse(&Namespace::new("other").unwrap(), "r~0~0").unwrap();
    refused(runtime.decide_approval(&elsewhere, decide("d1", None)).await, "run_not_found");
}

#[tokio::test]
async fn an_answer_after_the_deadline_has_lost_whatever_its_id() {
    let kit = Harness::new();
    let worker = kit.worker("w");
    let mut held = kit.start_held(&worker, "r").await;
    let deadline = kit.head("r").await.created_at.after(seconds(5));
    kit.commit(&mut held, vec![approval(0, &[], Some(deadline))]).await;
    kit.advance(seconds(5));
    kit.settle().await;
    refused(kit.runtime.decide_approval(&call("r~0~0"), decide("d1", None)).await, "signal_lost");
    for id in ["expired", "withdrawn"] {
        refused(kit.runtime.decide_approval(&call("r~0~0"), decide(id, None)).await, "id_reserved");
        refused(kit.runtime.resolve_promise(&call("r~0~0"), Ok(Payload::null()), id).await, "id_reserved");
    }
    assert_eq!(kit.log("r").await, ["run_started", "approval_requested", "timer_fired"]);
}

#[tokio::test]
async fn a_question_of_an_earlier_generation_is_over() {
    let (kit, _worker, mut held) = awaited(vec![approval(0, &[], None)]).await;
    kit.commit(&mut held, vec![continued()]).await;
    refused(kit.runtime.decide_approval(&call("r~0~0"), decide("d1", None)).await, "run_continued");
    assert_eq!(kit.log("r").await, ["run_started"]);
}

#[tokio::test]
async fn a_question_of_a_closed_run_is_over() {
    let (kit, _worker, mut held) = awaited(vec![approval(0, &[], None), promise(1)]).await;
    kit.complete(&mut held).await;
    refused(kit.runtime.decide_approval(&call("r~0~0"), decide("d1", None)).await, "run_closed");
    refused(kit.runtime.resolve_promise(&call("r~0~1"), Ok(Payload::null()), "p1").await, "run_closed");
}

#[tokio::test]
async fn a_promise_is_kept_or_broken_once() {
    let (kit, _worker, _held) = awaited(vec![promise(0), promise(1)]).await;
    let runtime = &kit.runtime;
    runtime.resolve_promise(&call("r~0~0"), Ok(text("yes")), "p1").await.unwrap();
    assert!(runtime.resolve_promise(&call("r~0~0"), Ok(text("yes")), "p1").await.unwrap().repeated);
    refused(runtime.resolve_promise(&call("r~0~0"), Ok(text("no")), "p2").await, "signal_lost");
    runtime.resolve_promise(&call("r~0~1"), Err(Failure::fatal("broken")), "p1").await.unwrap();
    assert_eq!(kit.head("r").await.next_index, Index(5));
}

#[tokio::test]
async fn a_decision_on_one_of_very_many_questions_finds_its_own() {
    let questions = (0..150).map(|call_id| approval(call_id, if call_id == 149 { &["ann"] } else { &[] }, None)).collect();
    let (kit, _worker, _held) = awaited(questions).await;
    refused(kit.runtime.decide_approval(&call("r~0~149"), decide("d1", Some("eve"))).await, "not_a_decider");
    kit.runtime.decide_approval(&call("r~0~149"), decide("d1", Some("ann"))).await.unwrap();
}

#[tokio::test]
async fn answer_ids_have_limits() {
    let (kit, _worker, _held) = awaited(vec![approval(0, &[], None)]).await;
    let runtime = &kit.runtime;
    refused(runtime.decide_approval(&call("r~0~0"), decide("", None)).await, "id_invalid");
    refused(runtime.decide_approval(&call("r~0~0"), decide("d1", Some(&"n".repeat(256)))).await, "id_invalid");
    let feedback = Some("f".repeat(64 * 1024 + 1));
    refused(runtime.decide_approval(&call("r~0~0"), Decide { feedback, ..decide("d1", None) }).await, "text_too_long");
    refused(runtime.resolve_promise(&call("r~0~0"), Ok(Payload::null()), "").await, "id_invalid");
}

//! Structured answers of approvals: checked where they enter, recorded once.

use onward_core::{Event, Namespace, Payload, RunId};
use onward_runtime::{CallContext, CallRef, Decide, ForkRequest, LocalConnection, RuntimeError, Violation};

use crate::kit::*;

const SCHEMA: &str = r#"{"type":"object","properties":{"cents":{"type":"integer","minimum":1}},"required":["cents"]}"#;

fn call(text: &str) -> CallRef {
    CallRef::parse(&Namespace::default(), text).unwrap()
}

fn decide(approved: bool, answer: Option<&str>, id: &str) -> Decide {
    let answer = answer.map(|answer| Payload::from_json_text(answer.to_owned()));
    Decide { approved, feedback: None, decided_by: None, answer, decision_id: id.to_owned() }
}

fn asking(call_id: u32, schema: Option<Payload>) -> Event {
    let Event::ApprovalRequested(request) = approval(call_id, &[], None) else { unreachable!("an approval") };
    Event::ApprovalRequested(onward_core::event::ApprovalRequested { answer_schema: schema, ..request })
}

fn json(text: &str) -> Option<Payload> {
    Some(Payload::from_json_text(text.to_owned()))
}

async fn awaiting(events: Vec<Event>) -> (Harness, LocalConnection, HeldRun) {
    let kit = Harness::new();
    let worker = kit.worker("w");
    let mut held = kit.start_held(&worker, "r").await;
    kit.commit(&mut held, events).await;
    (kit, worker, held)
}

#[track_caller]
fn violations(refused: RuntimeError) -> Vec<(String, String)> {
    let RuntimeError::AnswerInvalid { violations, .. } = refused else { panic!("{refused}") };
    violations.into_iter().map(|Violation { path, keyword, .. }| (path, keyword)).collect()
}

#[tokio::test]
async fn an_approval_with_a_schema_needs_an_answer_that_fits_and_a_refusal_writes_nothing() {
    let (kit, _worker, _held) = awaiting(vec![asking(0, json(SCHEMA))]).await;
    let refusal =
        async |answer| violations(kit.runtime.decide_approval(&call("r~0~0"), decide(true, answer, "d")).await.unwrap_err());
    assert_eq!(refusal(None).await, [(String::new(), "answer".to_owned())], "AN1");
    assert_eq!(refusal(Some(r#"{"cents":0}"#)).await, [("/cents".to_owned(), "minimum".to_owned())]);
    assert_eq!(refusal(Some(r#"{"cents":"4"}"#)).await, [("/cents".to_owned(), "type".to_owned())]);
    assert_eq!(refusal(Some("7")).await, [(String::new(), "type".to_owned())]);
    assert_eq!(kit.log("r").await, ["run_started", "approval_requested"]);
    kit.runtime.decide_approval(&call("r~0~0"), decide(true, Some(r#"{"cents":4}"#), "d")).await.unwrap();
    let records = kit.runtime.store().read_log(key("r"), None, onward_core::Index(0), 100).await.unwrap();
    let Some(Event::ApprovalDecided(decided)) = records.last().and_then(|record| record.events.first()) else {
        panic!("{records:?}")
    };
    assert_eq!(decided.answer, json(r#"{"cents":4}"#));
}

#[tokio::test]
async fn a_refusal_needs_no_answer_and_has_none() {
    let (kit, _worker, _held) = awaiting(vec![asking(0, json(SCHEMA)), asking(1, None)]).await;
    let decided = async |id: &str, decide| kit.runtime.decide_approval(&call(id), decide).await;
    let invalid = decided("r~0~0", decide(false, Some(r#"{"cents":4}"#), "d")).await;
    refused(invalid, "answer_invalid"); // AN2
    decided("r~0~0", decide(false, None, "d")).await.unwrap();
    refused(decided("r~0~1", decide(true, Some("1"), "d")).await, "answer_invalid");
    decided("r~0~1", decide(true, None, "d")).await.unwrap();
}

#[tokio::test]
async fn a_repeat_with_another_answer_is_another_decision() {
    let (kit, _worker, _held) = awaiting(vec![asking(0, json(SCHEMA))]).await;
    let decided = async |decide| kit.runtime.decide_approval(&call("r~0~0"), decide).await;
    decided(decide(true, Some(r#"{"cents":4}"#), "d")).await.unwrap();
    assert!(decided(decide(true, Some(r#"{"cents":4}"#), "d")).await.unwrap().repeated);
    refused(decided(decide(true, Some(r#"{"cents":5}"#), "d")).await, "id_taken");
    refused(decided(decide(true, Some(r#"{"cents":4}"#), "other")).await, "signal_lost");
}

/// AN3: the server sees that there is a schema, and that there is an answer.
#[tokio::test]
async fn an_encrypted_schema_needs_an_answer_that_is_not_checked_here() {
    let (kit, _worker, _held) = awaiting(vec![asking(0, Some(Payload::sealed("k", vec![7; 64])))]).await;
    let decided = async |decide| kit.runtime.decide_approval(&call("r~0~0"), decide).await;
    refused(decided(decide(true, None, "d")).await, "answer_invalid");
    let sealed = Decide { answer: Some(Payload::sealed("k", vec![8; 64])), ..decide(true, None, "d") };
    decided(sealed).await.unwrap();
}

#[tokio::test]
async fn an_approval_with_an_unusable_schema_can_only_be_rejected() {
    let (kit, _worker, _held) = awaiting(vec![asking(0, json(r#"{"$ref":"https://example.com/schema"}"#))]).await;
    let decided = async |decide| kit.runtime.decide_approval(&call("r~0~0"), decide).await;
    refused(decided(decide(true, Some("1"), "d")).await, "schema_invalid");
    decided(decide(false, None, "d")).await.unwrap();
}

/// AN4: the code continues with the answer in the copied log.
#[tokio::test]
async fn an_approval_that_a_copy_asks_for_again_needs_no_answer() {
    let (kit, _worker, mut held) = awaiting(vec![asking(0, json(SCHEMA))]).await;
    kit.runtime.decide_approval(&call("r~0~0"), decide(true, Some(r#"{"cents":4}"#), "d")).await.unwrap();
    kit.commit(&mut held, vec![timer(1, kit.head("r").await.created_at.after(seconds(60)))]).await;
    let fork = ForkRequest { id: Some(RunId::new("f").unwrap()), ..ForkRequest::new(key("r"), 3) };
    kit.runtime.fork_run(fork, false, CallContext::default()).await.unwrap();
    let decided = async |decide| kit.runtime.decide_approval(&call("f~0~0"), decide).await;
    refused(decided(decide(true, Some(r#"{"cents":5}"#), "d")).await, "answer_invalid");
    decided(decide(true, None, "d")).await.unwrap();
    assert!(decided(decide(true, None, "d")).await.unwrap().repeated);
}

//! Every verb, and its errors for invalid arguments.

use std::collections::BTreeMap;
use std::sync::Arc;

use onward_core::api::{BulkRequest, Call};
use onward_core::event::{PauseReason, RunPaused};
use onward_core::{Name, RunId, Status};
use onward_runtime::{CallContext, ForkRequest, RuntimeError, Signal, StartRequest, WorkerProfile};
use onward_store::{RunQuery, WaitQuery};

use crate::kit::*;

fn paused() -> RunPaused {
    RunPaused::because(PauseReason::Requested, "lunch")
}

#[tokio::test]
async fn the_same_start_again_finds_the_run() {
    let kit = Harness::new();
    assert!(kit.runtime.start_run(start("r")).await.unwrap().created);
    assert!(!kit.runtime.start_run(start("r")).await.unwrap().created);
    refused(kit.runtime.start_run(StartRequest { input: text("other"), ..start("r") }).await, "run_exists");
}

#[tokio::test]
async fn a_signal_with_the_start_comes_right_behind_it_and_only_once() {
    let kit = Harness::new();
    let signal = Signal { signal_id: Some("s1".into()), ..signal("paid") };
    for repeated in [false, true] {
        let started = kit.runtime.start_run(StartRequest { signal: Some(signal.clone()), ..start("r") }).await.unwrap();
        assert_eq!(started.signal.unwrap().repeated, repeated);
    }
    assert_eq!(kit.log("r").await, ["run_started", "signal_received"]);
}

#[tokio::test]
async fn a_signal_id_again_is_the_same_signal() {
    let kit = Harness::new();
    kit.start("r").await;
    let signal = Signal { signal_id: Some("s1".into()), ..signal("paid") };
    let first = kit.runtime.signal_run(&key("r"), signal.clone()).await.unwrap();
    let again = kit.runtime.signal_run(&key("r"), signal).await.unwrap();
    assert_eq!((again.index, again.repeated, first.repeated), (first.index, true, false));
}

#[tokio::test]
async fn an_unknown_run_is_not_found_by_any_verb() {
    let kit = Harness::new();
    let (runtime, key) = (&kit.runtime, &key("nobody"));
    refused(runtime.signal_run(key, signal("x")).await, "run_not_found");
    refused(runtime.cancel_run(key, "").await, "run_not_found");
    refused(runtime.terminate_run(key, "").await, "run_not_found");
    refused(runtime.pause_run(key, paused()).await, "run_not_found");
    refused(runtime.resume_run(key, None).await, "run_not_found");
    refused(runtime.read_run(key).await, "run_not_found");
    refused(runtime.read_outcome(key).await, "run_not_found");
    refused(runtime.read_log(key, None, onward_core::Index(0), 1).await, "run_not_found");
    refused(runtime.wait_for_outcome(key).await, "run_not_found");
    refused(runtime.watch_run(key).await.map(drop), "run_not_found");
    refused(runtime.delete_run(key, "").await, "run_not_found");
}

#[tokio::test]
async fn a_closed_run_takes_nothing_more() {
    let kit = Harness::new();
    kit.closed("r").await;
    let (runtime, key) = (&kit.runtime, &key("r"));
    refused(runtime.signal_run(key, signal("x")).await, "run_closed");
    refused(runtime.cancel_run(key, "").await, "run_closed");
    refused(runtime.terminate_run(key, "").await, "run_closed");
    refused(runtime.pause_run(key, paused()).await, "run_closed");
    refused(runtime.resume_run(key, None).await, "run_closed");
    assert_eq!(kit.log("r").await, ["run_started", "terminate_requested"]);
}

#[tokio::test]
async fn ids_and_texts_have_limits_and_nothing_is_written_over_them() {
    let kit = Harness::new();
    kit.start("r").await;
    let (runtime, key) = (&kit.runtime, &key("r"));
    let error = RuntimeError::from(Name::new("n".repeat(256)).unwrap_err());
    assert_eq!((error.code(), error.hint().is_some()), ("name_invalid", true));
    for id in ["", "a\nb", &"n".repeat(256)] {
        let signal = Signal { signal_id: Some(id.to_owned()), ..signal("x") };
        refused(runtime.signal_run(key, signal.clone()).await, "id_invalid");
        refused(runtime.start_run(StartRequest { signal: Some(signal), ..start("s") }).await, "id_invalid");
        refused(runtime.update_run(key, id, name("x"), text("")).await, "id_invalid");
    }
    let long = "t".repeat(64 * 1024 + 1);
    refused(runtime.cancel_run(key, &long).await, "text_too_long");
    refused(runtime.terminate_run(key, &long).await, "text_too_long");
    refused(runtime.pause_run(key, RunPaused { message: long.clone(), ..paused() }).await, "text_too_long");
    refused(runtime.delete_run(key, &long).await, "text_too_long");
    assert_eq!(kit.log("r").await, ["run_started"]);
    refused(runtime.read_run(&crate::kit::key("s")).await, "run_not_found");
}

#[tokio::test]
async fn a_request_to_cancel_is_left_to_the_code_and_terminate_is_not() {
    let kit = Harness::new();
    kit.start("r").await;
    kit.runtime.cancel_run(&key("r"), "changed my mind").await.unwrap();
    let view = kit.runtime.read_run(&key("r")).await.unwrap();
    assert_eq!((view.head.status, view.cancel_reason.as_deref()), (Status::Pending, Some("changed my mind")));
    kit.runtime.terminate_run(&key("r"), "too slow").await.unwrap();
    kit.runtime.wait_for_outcome(&key("r")).await.unwrap().unwrap_err();
    let view = kit.runtime.read_run(&key("r")).await.unwrap();
    assert_eq!(view.head.status, Status::Terminated);
    assert_eq!(view.outcome.unwrap().unwrap_err().code, "terminated");
}

#[tokio::test]
async fn a_paused_run_stands_still_until_it_is_resumed() {
    let kit = Harness::new();
    kit.start("r").await;
    refused(kit.runtime.resume_run(&key("r"), None).await, "run_not_paused");
    kit.runtime.pause_run(&key("r"), paused()).await.unwrap();
    let view = kit.runtime.read_run(&key("r")).await.unwrap();
    assert_eq!((view.head.status, view.pause), (Status::Paused, Some(paused())));
    kit.runtime.resume_run(&key("r"), None).await.unwrap();
    assert_eq!(kit.head("r").await.status, Status::Pending);
}

#[tokio::test]
async fn only_a_closed_run_can_be_deleted() {
    let kit = Harness::new();
    kit.start("r").await;
    refused(kit.runtime.delete_run(&key("r"), "gdpr").await, "run_busy");
    kit.runtime.terminate_run(&key("r"), "").await.unwrap();
    kit.runtime.delete_run(&key("r"), "gdpr").await.unwrap();
    refused(kit.runtime.read_run(&key("r")).await, "run_not_found");
}

#[tokio::test]
async fn lists_show_runs_and_open_approvals_only() {
    let kit = Harness::new();
    let worker = kit.worker("w");
    let mut held = kit.start_held(&worker, "r").await;
    kit.commit(&mut held, vec![approval(0, &[], None), promise(1)]).await;
    kit.closed("done").await;
    let runs =
        kit.runtime.store().list_runs(RunQuery { statuses: vec![Status::Terminated], ..Default::default() }).await.unwrap().runs;
    assert_eq!(runs.iter().map(|head| head.key.id.as_str()).collect::<Vec<_>>(), ["done"]);
    let approvals = kit.runtime.list_approvals(WaitQuery::default()).await.unwrap();
    assert_eq!(approvals.iter().map(|wait| wait.call_id.to_string()).collect::<Vec<_>>(), ["0"]);
    let error = kit.runtime.store().list_runs(RunQuery { cursor: Some("nonsense".into()), ..Default::default() }).await;
    refused(error.map_err(RuntimeError::from), "cursor_invalid");
}

#[tokio::test]
async fn a_view_shows_what_the_run_waits_for() {
    let kit = Harness::new();
    let worker = kit.worker("w");
    let mut held = kit.start_held(&worker, "r").await;
    kit.commit(&mut held, vec![approval(0, &[], None), awaited(1, "paid")]).await;
    let view = kit.runtime.read_run(&key("r")).await.unwrap();
    let ids: Vec<&str> = view.awaiting.iter().map(|awaited| awaited.id.as_str()).collect();
    assert_eq!((view.head.status, ids), (Status::Waiting, vec!["r~0~0", "r~0~1"]));
}

#[tokio::test]
async fn a_log_longer_than_a_page_is_read_whole() {
    let kit = Harness::new();
    kit.start("r").await;
    for _ in 0..2_500 {
        kit.runtime.signal_run(&key("r"), signal("x")).await.unwrap();
    }
    let view = kit.runtime.read_run(&key("r")).await.unwrap();
    assert_eq!(view.counts.signals_received, 2_500);
}

/// A client that starts a run need not have its code.
#[tokio::test]
async fn a_start_without_a_version_is_pinned_to_the_current_one_of_the_latest_worker() {
    let kit = Harness::new();
    let with = |id: &str, current: &[(&str, &str)]| {
        let knows = [None, Some(name("v1")), Some(name("v2"))];
        kit.runtime.join_worker(WorkerProfile {
            knows: Arc::new(BTreeMap::from([(name("order"), knows.to_vec())])),
            current: Arc::new(current.iter().map(|(kind, version)| (name(kind), name(version))).collect()),
            ..profile(id, 0)
        })
    };
    let version = async |id: &str, version: Option<&str>| {
        let started = kit.runtime.start_run(StartRequest { version: version.map(name), ..start(id) }).await.unwrap();
        started.head.version.map(|version| version.to_string())
    };
    let one = with("one", &[]);
    assert_eq!(version("a", None).await, None);
    let two = with("two", &[("order", "v1")]);
    assert_eq!(version("b", None).await.as_deref(), Some("v1"));
    let three = with("three", &[("order", "v2")]);
    assert_eq!(version("c", None).await.as_deref(), Some("v2"));
    assert_eq!(version("d", Some("v1")).await.as_deref(), Some("v1"), "an explicit version is kept");
    assert_eq!(version("b", None).await.as_deref(), Some("v1"), "the same start is the same run");
    three.leave().await;
    assert_eq!(version("e", None).await.as_deref(), Some("v1"));
    drop((one, two));
}

/// R10: a run that was deleted and started again is another one, also for forks.
#[tokio::test]
async fn a_fork_of_a_run_is_not_taken_for_one_of_its_namesake() {
    let kit = Harness::new();
    let fork = async || {
        let wanted = ForkRequest { id: Some(RunId::new("copy").unwrap()), ..ForkRequest::new(key("r"), 7) };
        kit.runtime.fork_run(wanted, false, CallContext::default()).await
    };
    kit.start("r").await;
    assert!(fork().await.unwrap().created);
    assert!(!fork().await.unwrap().created, "the same fork is the same run");
    kit.runtime.terminate_run(&key("r"), "").await.unwrap();
    kit.runtime.delete_run(&key("r"), "done").await.unwrap();
    kit.runtime.start_run(StartRequest { seed: 2, input: text("other"), ..start("r") }).await.unwrap();
    refused(fork().await, "run_exists");
}

/// `BulkRuns` needs the scope `operate`, `BulkDelete` the scope `admin`: neither method takes the verbs of the other.
#[tokio::test]
async fn a_bulk_method_takes_only_its_own_verbs() {
    let kit = Harness::new();
    let request = |verb: &str| BulkRequest {
        verb: verb.to_owned(),
        filter: Default::default(),
        all: true,
        dry_run: false,
        bulk_id: "b".to_owned(),
        reason: String::new(),
        include_outcome_unknown: false,
    };
    for call in [Call::BulkRuns(request("delete")), Call::BulkDelete(request("cancel")), Call::BulkRuns(request("no verb"))] {
        refused(kit.runtime.execute(call, CallContext::default()).await, "message_invalid");
    }
}

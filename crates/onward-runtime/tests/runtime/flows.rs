//! Definitions of flows: which documents are stored, which one is current, and when they are deleted.

use onward_core::api::{DeleteFlowRequest, FlowQuery, FlowVersion, PutFlowReply, PutFlowRequest};
use onward_core::{FLOW_KIND_PREFIX, KindSchemas, Namespace};
use onward_runtime::RuntimeError;
use onward_store::conformance::block_on;
use onward_store::{Registration, Store};

use crate::faulty::{Happening, When};
use crate::kit::*;

fn document(message: &str) -> String {
    format!("flow: greet\nsteps:\n  - name: hello\n    task: mail\n    with: \"{message}\"\n")
}

fn request(document: String) -> PutFlowRequest {
    PutFlowRequest { namespace: Namespace::default(), flow: name("greet"), document, expected: None, dry_run: false }
}

async fn put(kit: &Harness, message: &str) -> PutFlowReply {
    kit.advance(seconds(1));
    kit.runtime.put_flow(request(document(message))).await.unwrap()
}

async fn versions(kit: &Harness) -> Vec<FlowVersion> {
    kit.runtime.list_flows(&FlowQuery { flow: Some(name("greet")), ..FlowQuery::default() }).await.unwrap()
}

async fn start_greet(kit: &Harness, id: &str) -> Option<String> {
    let started = kit
        .runtime
        .start_run(onward_runtime::StartRequest {
            kind: name("greet"),
            input: onward_core::Payload::from_json_text("{}"),
            ..start(id)
        })
        .await;
    started.unwrap().head.version.map(|version| version.to_string())
}

/// DF2.
#[tokio::test]
async fn the_document_stored_last_is_current_and_new_runs_are_pinned_to_it() {
    let kit = Harness::new();
    let first = put(&kit, "hello").await;
    assert!(first.is_changed);
    assert_eq!(start_greet(&kit, "a").await.as_deref(), Some(first.flow.version.as_str()));
    let second = put(&kit, "good morning").await;
    assert_ne!(first.flow.version, second.flow.version);
    assert_eq!(start_greet(&kit, "b").await.as_deref(), Some(second.flow.version.as_str()));
    assert!(!put(&kit, "good morning").await.is_changed);
    let found = versions(&kit).await;
    let seen: Vec<_> = found.iter().map(|flow| (flow.version.clone(), flow.is_current, flow.open_runs)).collect();
    assert_eq!(seen, [(second.flow.version.clone(), true, 1), (first.flow.version.clone(), false, 1)]);
    assert_eq!(found[1].document, Some(document("hello")));
    // An older document that is stored again is current again.
    put(&kit, "hello").await;
    assert_eq!(start_greet(&kit, "c").await.as_deref(), Some(first.flow.version.as_str()));
    let all = kit.runtime.list_flows(&FlowQuery::default()).await.unwrap();
    assert_eq!(all.iter().map(|flow| (&flow.version, &flow.document)).collect::<Vec<_>>(), [(&first.flow.version, &None)]);
}

/// The worker of the test serves the task `mail`.
#[tokio::test]
async fn a_name_that_no_worker_serves_is_a_warning() {
    let kit = Harness::new();
    let document =
        "flow: greet\nsteps:\n  - { name: a, task: mail }\n  - { name: b, task: fax }\n  - { name: c, child: greet }\n";
    let stored = kit.runtime.put_flow(request(document.to_owned())).await.unwrap();
    assert_eq!(stored.warnings, [], "the first worker may connect later");
    let _worker = kit.worker("w");
    let stored = kit.runtime.put_flow(request(document.to_owned())).await.unwrap();
    let codes: Vec<_> = stored.warnings.iter().map(|warning| (warning.code.as_str(), warning.line)).collect();
    assert_eq!(codes, [("unknown_task", 4)]);
}

#[tokio::test]
async fn a_flow_does_not_take_the_kind_of_a_worker_nor_a_run_the_kind_of_a_definition() {
    let kit = Harness::new();
    let _worker = kit.worker("w");
    let order = PutFlowRequest { flow: name("order"), ..request(document("x").replace("greet", "order")) };
    refused(kit.runtime.put_flow(order).await, "flow_invalid");
    let start = onward_runtime::StartRequest { kind: name("flow:greet"), ..start("a") };
    refused(kit.runtime.start_run(start).await, "kind_reserved");
}

/// DF1.
#[tokio::test]
async fn a_document_with_errors_another_name_or_another_expectation_is_not_stored() {
    let kit = Harness::new();
    for (broken, part) in [
        ("flow: greet\nsteps:\n  - name: a\n    tsak: mail\n", "tsak"),
        ("flow: other\nsteps:\n  - name: a\n    task: mail\n", "`other`"),
        ("{", "line"),
    ] {
        let error = kit.runtime.put_flow(request(broken.to_owned())).await.unwrap_err();
        assert_eq!(error.code(), "flow_invalid");
        let RuntimeError::FlowInvalid { violations, .. } = &error else { panic!("{error}") };
        assert!(violations.iter().any(|one| one.message.contains(part)), "{violations:?}");
    }
    let dry = kit.runtime.put_flow(PutFlowRequest { dry_run: true, ..request(document("x")) }).await.unwrap();
    assert!(dry.is_changed && !dry.flow.is_current);
    let expecting = |expected: &str| PutFlowRequest { expected: Some(expected.to_owned()), ..request(document("hello")) };
    refused(kit.runtime.put_flow(expecting("0123")).await, "flow_changed");
    assert_eq!(versions(&kit).await, []);
    let first = kit.runtime.put_flow(expecting("")).await.unwrap();
    refused(kit.runtime.put_flow(expecting("")).await, "flow_changed");
    kit.runtime.put_flow(expecting(first.flow.version.as_str())).await.unwrap();
}

/// Makes another writer store a document between the next read of the definitions and the write.
fn overtake(kit: &Harness, version: &str) {
    let row = KindSchemas {
        flow: Some(document(version)),
        ..KindSchemas::empty(Namespace::default(), name(&format!("{FLOW_KIND_PREFIX}greet")), Some(name(version)))
    };
    let clock = kit.clock.clone();
    let act = move |memory: &onward_store::MemoryStore| {
        clock.advance(seconds(1));
        block_on(memory.register_kinds(vec![row], Registration::Always)).unwrap();
    };
    kit.store.once("register_kinds", When::Before, Happening::Do(Box::new(act)));
}

/// DF2: the version is compared in the write.
#[tokio::test]
async fn a_request_that_another_one_overtakes_fails_if_it_expects_a_version_and_wins_otherwise() {
    let kit = Harness::new();
    let first = put(&kit, "first").await.flow.version;
    overtake(&kit, "overtaker");
    let expecting = PutFlowRequest { expected: Some(first.to_string()), ..request(document("mine")) };
    refused(kit.runtime.put_flow(expecting).await, "flow_changed");
    let names = |found: &[FlowVersion]| found.iter().map(|flow| flow.version.to_string()).collect::<Vec<_>>();
    assert_eq!(names(&versions(&kit).await), ["overtaker", first.as_str()], "nothing is written");
    overtake(&kit, "second");
    let reply = kit.runtime.put_flow(request(document("mine"))).await.unwrap();
    assert!(reply.is_changed && reply.flow.is_current);
    let found = versions(&kit).await;
    assert_eq!(names(&found), [reply.flow.version.as_str(), "second", "overtaker", first.as_str()]);
    assert_eq!(found[0].applied_at, reply.flow.applied_at);
}

/// DF2: also if the clock goes back.
#[tokio::test]
async fn documents_that_are_stored_within_one_millisecond_are_current_in_their_order() {
    let kit = Harness::new();
    for message in ["a", "b", "c", "a", "d", "b"] {
        let stored = kit.runtime.put_flow(request(document(message))).await.unwrap().flow.version;
        assert_eq!(versions(&kit).await[0].version, stored);
    }
}

/// DF3.
#[tokio::test]
async fn a_flow_with_open_runs_is_deleted_only_by_force() {
    let kit = Harness::new();
    put(&kit, "hello").await;
    start_greet(&kit, "a").await;
    let delete = |force| DeleteFlowRequest { namespace: Namespace::default(), flow: name("greet"), force };
    refused(kit.runtime.delete_flow(delete(false)).await, "flow_in_use");
    assert_eq!(versions(&kit).await.len(), 1);
    kit.runtime.delete_flow(delete(true)).await.unwrap();
    assert_eq!(versions(&kit).await, []);
    refused(kit.runtime.delete_flow(delete(true)).await, "flow_not_found");
}

/// DF4.
#[tokio::test]
async fn workers_cannot_replace_a_definition() {
    let kit = Harness::new();
    let stored = put(&kit, "hello").await.flow;
    let row = KindSchemas {
        flow: Some("flow: greet".to_owned()),
        ..KindSchemas::empty(Namespace::default(), name(&format!("{FLOW_KIND_PREFIX}greet")), Some(stored.version))
    };
    refused(kit.runtime.register_kinds(&Namespace::default(), vec![row]).await, "kind_reserved");
    assert_eq!(versions(&kit).await[0].document, Some(document("hello")));
    let kinds = kit.runtime.list_kinds(&Namespace::default()).await.unwrap();
    assert!(kinds.iter().all(|kind| !kind.kind.as_str().starts_with(FLOW_KIND_PREFIX)), "{kinds:?}");
}

#[tokio::test]
async fn old_versions_are_deleted_but_for_the_newest_hundred_and_those_of_open_runs() {
    let kit = Harness::new();
    let first = put(&kit, "first").await.flow.version;
    start_greet(&kit, "a").await;
    for number in 0..105 {
        put(&kit, &number.to_string()).await;
    }
    let found = versions(&kit).await;
    assert_eq!(found.len(), 101);
    assert!(found.iter().any(|flow| flow.version == first));
}

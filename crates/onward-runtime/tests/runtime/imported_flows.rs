//! Definitions of flows that come along with exported runs.

use std::sync::Arc;

use onward_core::api::{FlowQuery, FlowVersion, PutFlowRequest};
use onward_core::event::{ChildStarted, OnParentClose};
use onward_core::transfer::{ExportedFlow, ExportedRun, FlowRef};
use onward_core::{Event, Name, Namespace, Payload};
use onward_runtime::{RuntimeError, StartRequest, export_run};

use crate::kit::*;

fn greet(message: &str) -> String {
    format!("flow: greet\nsteps:\n  - name: hello\n    task: mail\n    with: \"{message}\"\n")
}

/// A flow that calls `greet` in a branch, and a kind that is code.
const OUTER: &str =
    "flow: outer\nsteps:\n  - name: a\n    parallel: { x: [{ name: b, child: greet }] }\n  - { name: c, child: code }\n";

async fn put(kit: &Harness, flow: &str, document: String) -> FlowRef {
    kit.advance(seconds(1));
    let (namespace, flow) = (Namespace::default(), name(flow));
    let put = PutFlowRequest { namespace, flow: flow.clone(), document, expected: None, dry_run: false };
    FlowRef { version: kit.runtime.put_flow(put).await.unwrap().flow.version, flow }
}

async fn versions(kit: &Harness, flow: &str) -> Vec<FlowVersion> {
    kit.runtime.list_flows(&FlowQuery { flow: Some(name(flow)), ..FlowQuery::default() }).await.unwrap()
}

async fn begin(kit: &Harness, flow: &str, id: &str) -> Option<Name> {
    let input = Payload::from_json_text("{}");
    kit.runtime.start_run(StartRequest { kind: name(flow), input, ..start(id) }).await.unwrap().head.version
}

async fn exported(kit: &Harness, id: &str) -> ExportedRun {
    export_run(&kit.runtime, &key(id)).await.unwrap()
}

fn names(run: &ExportedRun) -> Vec<FlowRef> {
    run.flows.iter().map(|flow| flow.name.clone()).collect()
}

/// DF5
#[tokio::test(start_paused = true)]
async fn a_run_of_a_flow_brings_the_definition_that_it_is_pinned_to_and_makes_it_not_current() {
    let (from, to) = (Harness::new(), Harness::new());
    let first = put(&from, "greet", greet("hello")).await;
    begin(&from, "greet", "a").await;
    let second = put(&from, "greet", greet("good morning")).await;
    let run = exported(&from, "a").await;
    assert_eq!(names(&run), std::slice::from_ref(&first));

    let imported = to.runtime.import_runs(vec![run.clone()]).await.unwrap();
    assert_eq!((imported.created.len(), imported.flows), (1, vec![first.clone()]));
    let stored = versions(&to, "greet").await;
    assert_eq!(stored[0].document, Some(greet("hello")));
    let shown: Vec<_> = stored.iter().map(|flow| (&flow.version, flow.is_current, flow.is_imported, flow.open_runs)).collect();
    assert_eq!(shown, [(&first.version, false, true, 1)]);
    assert_eq!(to.runtime.needed_flows(&Namespace::default()).await.unwrap(), stored, "its worker needs it");
    assert_eq!(begin(&to, "greet", "new").await, None, "new runs do not use it");
    assert_eq!(exported(&to, "a").await, run, "U2");
    let again = to.runtime.import_runs(vec![run.clone()]).await.unwrap();
    assert_eq!((again.unchanged.len(), again.flows), (1, Vec::new()));

    // A current definition stays current, also if the imported one is newer, and the imported one becomes current if it is applied.
    let other = Harness::new();
    put(&other, "greet", greet("good morning")).await;
    other.advance(seconds(1));
    other.runtime.import_runs(vec![run]).await.unwrap();
    assert_eq!(begin(&other, "greet", "new").await, Some(second.version.clone()));
    let shown = versions(&other, "greet").await;
    assert_eq!(shown.iter().map(|flow| &flow.version).collect::<Vec<_>>(), [&second.version, &first.version]);
    put(&other, "greet", greet("hello")).await;
    assert_eq!(begin(&other, "greet", "newer").await, Some(first.version));
    assert!(versions(&other, "greet").await.iter().all(|flow| !flow.is_imported));
}

/// DF6, DF7: the flows that a flow calls come along, unless the store has them.
#[tokio::test(start_paused = true)]
async fn the_flows_that_a_flow_calls_come_along_unless_they_have_a_current_definition_there() {
    let from = Harness::new();
    let (inner, outer) = (put(&from, "greet", greet("hello")).await, put(&from, "outer", OUTER.to_owned()).await);
    begin(&from, "outer", "p").await;
    let run = exported(&from, "p").await;
    assert_eq!(names(&run), [inner.clone(), outer.clone()]);
    let (empty, other) = (Harness::new(), Harness::new());
    assert_eq!(empty.runtime.import_runs(vec![run.clone()]).await.unwrap().flows, [inner.clone(), outer.clone()]);
    assert_eq!(exported(&empty, "p").await, run, "U2");
    let current = put(&other, "greet", greet("here")).await;
    assert_eq!(other.runtime.import_runs(vec![run]).await.unwrap().flows, [outer]);
    for (kit, version) in [(&empty, inner.version), (&other, current.version)] {
        let worker = kit.worker("w");
        let mut held = kit.start_held(&worker, "code").await;
        let Event::ChildStarted(started) = child(0, "kid", OnParentClose::Cancel) else { panic!() };
        let started = ChildStarted { kind: name("greet"), ..*Box::new(started) };
        kit.commit(&mut held, vec![started.into()]).await;
        kit.settle().await;
        assert_eq!(kit.head("kid").await.version, Some(version));
    }
}

/// DF6
#[tokio::test(start_paused = true)]
async fn an_import_with_a_definition_that_is_not_what_it_claims_or_not_needed_writes_nothing() {
    let from = Harness::new();
    let version = put(&from, "greet", greet("hello")).await.version;
    put(&from, "alone", greet("hello").replace("greet", "alone")).await;
    begin(&from, "greet", "a").await;
    begin(&from, "alone", "b").await;
    let (run, other) = (exported(&from, "a").await, exported(&from, "b").await);
    let with = |version: &Name, document: String| {
        let name = FlowRef { flow: name("greet"), version: version.clone() };
        ExportedRun { flows: vec![Arc::new(ExportedFlow { name, document })], ..run.clone() }
    };
    let several = |run: &ExportedRun| ExportedRun { flows: [run.flows.clone(), other.flows.clone()].concat(), ..run.clone() };
    for (wrong, part) in [
        (with(&version, greet("evil")), "the document has version"),
        (with(&name("0123456789abcdef"), greet("hello")), "not 0123456789abcdef"),
        (with(&version, greet("hello").replace("greet", "alone")), "defines flow `alone`"),
        (with(&version, greet("{{ inputs.x }}")), "no input `x`"),
        (with(&version, format!("a: &a [{}]", "*a, ".repeat(1_000))), "line"),
        (with(&version, "[".repeat(100_000)), "line"),
        (several(&run), "neither is pinned"),
        (ExportedRun { flows: run.flows.clone(), ..other.clone() }, "neither is pinned"),
    ] {
        let to = Harness::new();
        let error = to.runtime.import_runs(vec![wrong.clone(), exported(&from, "b").await]).await.unwrap_err();
        assert_eq!(error.code(), "flow_invalid", "{error}");
        let RuntimeError::FlowInvalid { violations, .. } = &error else { panic!("{error}") };
        assert!(violations.iter().any(|one| one.message.contains(part)), "{part}: {violations:?}");
        for flow in ["greet", "alone"] {
            assert_eq!(versions(&to, flow).await, []);
        }
        for id in ["a", "b"] {
            refused(to.runtime.read_head(&key(id)).await, "run_not_found");
        }
        assert!(onward_runtime::check_flows(&[wrong]).await.is_err());
    }
}

/// A run that is refused brings no definition; the others do.
#[tokio::test(start_paused = true)]
async fn a_refused_run_brings_no_definition() {
    let (from, to) = (Harness::new(), Harness::new());
    let first = put(&from, "greet", greet("hello")).await;
    begin(&from, "greet", "a").await;
    let second = put(&from, "greet", greet("good morning")).await;
    begin(&from, "greet", "b").await;
    to.start("a").await;
    let runs = vec![exported(&from, "a").await, exported(&from, "b").await];
    assert_eq!(runs.iter().flat_map(names).collect::<Vec<_>>(), [first, second.clone()]);
    let imported = to.runtime.import_runs(runs).await.unwrap();
    assert_eq!(imported.refused, [(key("a").id, "run_exists")]);
    assert_eq!(imported.flows, [second]);
    assert_eq!(versions(&to, "greet").await.len(), 1);
}

/// DF3, DF5
#[tokio::test(start_paused = true)]
async fn imports_of_closed_runs_keep_a_hundred_definitions_and_remove_none_of_open_runs_nor_of_this_store() {
    let (from, to) = (Harness::new(), Harness::new());
    let current = put(&to, "greet", greet("here")).await.version;
    let mut open = None;
    for number in 0..105 {
        let version = put(&from, "greet", greet(&number.to_string())).await.version;
        let id = format!("run-{number}");
        begin(&from, "greet", &id).await;
        match &open {
            None => open = Some(version),
            Some(_) => drop(from.runtime.terminate_run(&key(&id), "done").await.unwrap()),
        }
        to.advance(seconds(1));
        to.runtime.import_runs(vec![exported(&from, &id).await]).await.unwrap();
    }
    let stored = versions(&to, "greet").await;
    assert_eq!(stored.len(), 102, "the current one, the one of the open run, and a hundred");
    assert_eq!(stored[0].version, current);
    assert!(stored.iter().any(|flow| Some(&flow.version) == open.as_ref()));
}

/// The worker of a flow without a current definition is no worker for new runs, and does not keep the flow from being applied.
#[tokio::test(start_paused = true)]
async fn a_worker_with_imported_definitions_serves_only_runs_that_are_pinned_to_them() {
    let (from, to) = (Harness::new(), Harness::new());
    let version = put(&from, "greet", greet("hello")).await.version;
    begin(&from, "greet", "a").await;
    to.runtime.import_runs(vec![exported(&from, "a").await]).await.unwrap();
    let knows = |version: Option<&Name>| Arc::new([(name("greet"), vec![version.cloned()])].into());
    let _code = to.runtime.join_worker(onward_runtime::WorkerProfile { knows: knows(None), ..profile("code", 9) });
    let flows = to.runtime.join_worker(onward_runtime::WorkerProfile { knows: knows(Some(&version)), ..profile("flows", 9) });
    assert_eq!(to.next_held(&flows).await.key, key("a"));
    let taken = PutFlowRequest {
        namespace: Namespace::default(),
        flow: name("greet"),
        document: greet("more"),
        expected: Some(String::new()),
        dry_run: true,
    };
    refused(to.runtime.put_flow(taken.clone()).await, "flow_invalid");
    let alone = Harness::new();
    alone.runtime.import_runs(vec![exported(&from, "a").await]).await.unwrap();
    let _flows = alone.runtime.join_worker(onward_runtime::WorkerProfile { knows: knows(Some(&version)), ..profile("flows", 9) });
    assert_eq!(begin(&alone, "greet", "new").await, None);
    alone.runtime.put_flow(PutFlowRequest { dry_run: false, ..taken }).await.unwrap();
}

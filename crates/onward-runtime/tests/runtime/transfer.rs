//! U3, U4: outbox messages of imported runs.

use onward_core::event::{OnParentClose, ParentLink};
use onward_core::transfer::ExportedRun;
use onward_core::{Event, Index, Namespace, RunId, RunKey};
use onward_runtime::export_run;

use crate::kit::*;

/// Creates a parent that waits for its child `c` at call id 0.
async fn waiting_parent(kit: &Harness) {
    let worker = kit.worker("w");
    let mut held = kit.start_held(&worker, "p").await;
    kit.commit(&mut held, vec![child(0, "c", OnParentClose::Cancel)]).await;
    worker.leave().await;
    kit.settle().await;
}

/// Creates a run in another store that names `parent` as its parent.
async fn made_elsewhere(key: RunKey, parent: &RunKey, is_closed: bool) -> ExportedRun {
    let kit = Harness::new();
    kit.start(key.id.as_str()).await;
    if is_closed {
        kit.runtime.terminate_run(&crate::kit::key(key.id.as_str()), "forged").await.unwrap();
    }
    let mut run = export_run(&kit.runtime, &crate::kit::key(key.id.as_str())).await.unwrap();
    let Event::RunStarted(started) = &mut run.logs[0][0].events[0] else { panic!("{run:?}") };
    let link = ParentLink {
        run: parent.clone(),
        generation: 0,
        call_id: at(0),
        on_parent_close: OnParentClose::Cancel,
        incarnation: None,
        is_spawned: false,
    };
    started.parent = Some(link);
    ExportedRun { key, ..run }
}

#[tokio::test(start_paused = true)]
async fn an_imported_run_never_answers_a_run_of_another_namespace() {
    for is_closed in [true, false] {
        let kit = Harness::new();
        waiting_parent(&kit).await;
        for id in ["c", "x"] {
            let evil = RunKey::new(Namespace::new("evil").unwrap(), RunId::new(id).unwrap());
            let run = made_elsewhere(evil.clone(), &key("p"), is_closed).await;
            let imported = kit.runtime.import_runs(vec![run]).await.unwrap();
            assert_eq!(imported.refused, [(evil.id.clone(), "log_invalid")]);
            refused(kit.runtime.read_head(&evil).await, "run_not_found");
        }
        kit.settle().await;
        assert_eq!(kit.log("p").await, ["run_started", "child_started"]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_imported_run_answers_only_the_parent_that_started_it() {
    let kit = Harness::new();
    waiting_parent(&kit).await;
    // A closed one is imported and sends nothing; an open one would send its result when it ends.
    let closed = made_elsewhere(key("x"), &key("p"), true).await;
    assert_eq!(kit.runtime.import_runs(vec![closed]).await.unwrap().created, [key("x").id]);
    let open = made_elsewhere(key("y"), &key("p"), false).await;
    assert_eq!(kit.runtime.import_runs(vec![open]).await.unwrap().refused, [(key("y").id, "log_invalid")]);
    kit.settle().await;
    assert_eq!(kit.log("p").await, ["run_started", "child_started"]);
}

#[tokio::test(start_paused = true)]
async fn a_tree_moves_and_its_child_answers_in_whatever_order_it_comes() {
    for child_ends_before in [true, false] {
        for parent_first in [true, false] {
            for together in [true, false] {
                let (from, to) = (Harness::new(), Harness::new());
                waiting_parent(&from).await;
                if child_ends_before {
                    from.runtime.terminate_run(&key("c"), "").await.unwrap(); // its outbox is not delivered and not exported
                }
                let mut runs = Vec::new();
                for id in if parent_first { ["p", "c"] } else { ["c", "p"] } {
                    runs.push(export_run(&from.runtime, &key(id)).await.unwrap());
                }
                if parent_first && !together {
                    continue; // the child is started again: a tree has to move as a whole
                }
                let pieces = if together { vec![runs] } else { runs.into_iter().map(|run| vec![run]).collect() };
                for piece in pieces {
                    assert!(to.runtime.import_runs(piece).await.unwrap().refused.is_empty());
                }
                to.settle().await;
                if !child_ends_before {
                    assert_eq!(to.log("p").await, ["run_started", "child_started"]);
                    to.runtime.terminate_run(&key("c"), "").await.unwrap();
                    to.settle().await;
                }
                assert_eq!(to.log("p").await, ["run_started", "child_started", "child_failed"]);
                assert_eq!(to.head("c").await.next_index, Index(2));
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_parent_that_comes_alone_starts_its_child() {
    let (from, to) = (Harness::new(), Harness::new());
    waiting_parent(&from).await;
    let parent = export_run(&from.runtime, &key("p")).await.unwrap();
    to.runtime.import_runs(vec![parent]).await.unwrap();
    assert_eq!(to.log("c").await, ["run_started"]);
}

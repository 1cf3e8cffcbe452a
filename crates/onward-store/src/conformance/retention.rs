//! L20, F27: only closed runs are deleted, as a whole, and not while another run depends on them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use onward_core::event::{OnParentClose, RunContinued};
use onward_core::task::{TaskId, TaskOptions, TaskReport};
use onward_core::{Index, RunKey};

use super::block_on;
use super::harness::{
    Harness, child, completed, json, key, name, new_run, new_run_of, refused, seconds, signal, task, terminate,
};
use crate::{Delete, DeletedQuery, Retention, StoreError};

pub async fn an_open_run_cannot_be_deleted(harness: Harness) {
    refused(delete(&harness, "r").await, "run_not_found");
    harness.start("r").await;
    refused(delete(&harness, "r").await, "run_busy");
    assert_eq!(harness.log("r").await, ["run_started"]);
}

pub async fn a_deleted_run_is_gone_with_all_its_generations(mut harness: Harness) {
    let held = harness.start_held("r").await;
    let seen = harness.append("r", signal(Some("a"))).await.unwrap();
    let mut commit = held.commit(vec![RunContinued { input: super::harness::json("2"), checkpoint: None }.into()]);
    commit.horizon = seen.index;
    harness.store().commit(commit).await.unwrap();
    let mut held = harness.claim_one("w").await;
    harness.commit(&mut held, vec![completed()]).await;
    assert_eq!(delete(&harness, "r").await.unwrap(), 1);
    harness.reopen();
    for generation in [None, Some(0), Some(1)] {
        assert_eq!(harness.store().read_run(key("r"), generation).await.unwrap(), None);
        refused(harness.store().read_log(key("r"), generation, Index(0), 10).await, "run_not_found");
    }
    assert_eq!(harness.store().list_runs(Default::default()).await.unwrap().runs, []);
    refused(harness.append("r", signal(Some("a"))).await, "run_not_found");
    // The id is free again, and nothing of the old run is left.
    assert!(harness.start("r").await.created);
    assert!(!harness.append("r", signal(Some("a"))).await.unwrap().repeated);
    assert_eq!(harness.log("r").await, ["run_started", "signal_received"]);
}

pub async fn a_lease_on_a_deleted_run_does_not_fit_its_namesake(harness: Harness) {
    let old = harness.start_held("r").await;
    harness.append("r", terminate()).await.unwrap();
    delete(&harness, "r").await.unwrap();
    harness.start("r").await;
    refused(harness.store().commit(old.commit(vec![completed()])).await, "lease_lost");
    let mut new = harness.claim_one("v").await;
    refused(harness.store().commit(old.commit(vec![completed()])).await, "lease_lost");
    harness.store().release_run(key("r"), old.head.epoch).await.unwrap();
    assert_eq!(harness.claim("u").await, []);
    harness.commit(&mut new, vec![completed()]).await;
}

/// K8: a task id without an incarnation refers to the current one.
pub async fn a_claim_on_a_task_of_a_deleted_run_does_not_fit_its_namesake(mut harness: Harness) {
    let mut tasks = Vec::new();
    for incarnation in [1, 2] {
        let mut run = new_run("r");
        run.started.seed = incarnation;
        let mut held = harness.start_held_as(run).await;
        harness.commit(&mut held, vec![task(0, TaskOptions::default())]).await;
        tasks.extend(harness.claim_tasks("t", 10).await);
        if incarnation == 1 {
            harness.append("r", terminate()).await.unwrap();
            delete(&harness, "r").await.unwrap();
        }
        harness.reopen();
    }
    let [old, new] = &tasks[..] else { panic!("each incarnation has a task: {tasks:?}") };
    let report = |id: &TaskId| {
        let (store, id, claim) = (harness.store(), id.clone(), new.claim);
        async move { store.report_task(id, claim, TaskReport::Completed(json("1")), seconds(30)).await }
    };
    assert_eq!(old.claim, new.claim, "the claim number alone does not distinguish them");
    refused(report(&old.id).await, "task_attempt_over");
    assert_eq!(harness.log("r").await, ["run_started", "task_scheduled"]);
    let unknown = TaskId { incarnation: None, ..new.id.clone() };
    report(&unknown).await.unwrap();
    assert_eq!(harness.log("r").await, ["run_started", "task_scheduled", "task_completed"]);
}

pub async fn a_run_with_an_open_child_is_kept(mut harness: Harness) {
    let mut parent = harness.start_held("p").await;
    harness.commit(&mut parent, vec![child("p/c", 0, OnParentClose::Abandon)]).await;
    harness.deliver().await;
    harness.commit(&mut parent, vec![completed()]).await;
    harness.deliver().await;
    harness.reopen();
    refused(delete(&harness, "p").await, "run_busy");
    assert_eq!(delete_expired(&harness, 0).await, 0);
    let mut held = harness.claim_one("v").await;
    harness.commit(&mut held, vec![completed()]).await;
    harness.deliver().await;
    assert_eq!(delete_expired(&harness, 0).await, 2);
}

/// However many there are, and however long their children stay open.
pub async fn runs_with_open_children_do_not_block_retention(mut harness: Harness) {
    for number in 0..60 {
        let id = format!("p{number}");
        let mut parent = harness.start_held(&id).await;
        harness.commit(&mut parent, vec![child(&format!("{id}/c"), 0, OnParentClose::Abandon)]).await;
        harness.deliver().await;
        harness.commit(&mut parent, vec![completed()]).await;
        harness.deliver().await;
    }
    harness.pass(seconds(1));
    harness.complete("free").await;
    harness.reopen();
    let delete = || Delete::Expired { retention: Retention { default: seconds(0), ..Retention::default() }, limit: 1 };
    assert_eq!(harness.store().delete_runs(delete()).await.unwrap(), 1);
    assert_eq!(harness.store().read_run(key("free"), None).await.unwrap(), None);
    assert_eq!(harness.store().delete_runs(delete()).await.unwrap(), 0);
}

pub async fn a_run_with_unfinished_news_is_kept(harness: Harness) {
    let mut parent = harness.start_held("p").await;
    harness.commit(&mut parent, vec![child("p/c", 0, OnParentClose::Cancel)]).await;
    harness.commit(&mut parent, vec![completed()]).await;
    refused(delete(&harness, "p").await, "run_busy");
    assert_eq!(delete_expired(&harness, 0).await, 0);
}

pub async fn closed_runs_go_when_the_time_of_their_kind_is_over(harness: Harness) {
    let mut parcel = harness.start_held_as(new_run_of("parcel", "short")).await;
    harness.commit(&mut parcel, vec![completed()]).await;
    harness.complete("long").await;
    harness.start("open").await;
    let retention = Retention { default: seconds(100), by_kind: BTreeMap::from([(name("parcel"), seconds(10))]) };
    let delete = || {
        let (store, retention) = (harness.store(), retention.clone());
        async move { store.delete_runs(Delete::Expired { retention, limit: 10 }).await.unwrap() }
    };
    harness.pass(seconds(9));
    assert_eq!(delete().await, 0);
    harness.pass(seconds(1));
    assert_eq!(delete().await, 1);
    assert_eq!(harness.store().read_run(key("short"), None).await.unwrap(), None);
    harness.pass(seconds(90));
    assert_eq!(delete().await, 1);
    assert_eq!(harness.log("open").await, ["run_started"]);
}

pub async fn a_reader_sees_a_whole_run_or_none(harness: Harness) {
    let over = Arc::new(AtomicBool::new(false));
    let (store, seen_over) = (harness.store(), over.clone());
    let reader = std::thread::spawn(move || {
        while !seen_over.load(Ordering::SeqCst) {
            match block_on(store.read_log(key("r"), None, Index(0), usize::MAX)) {
                Ok(records) => assert!(matches!(records.len(), 1..=5), "F27"),
                Err(error) => assert_eq!(error.code(), "run_not_found"),
            }
        }
    });
    for _ in 0..30 {
        let mut held = harness.start_held("r").await;
        for _ in 0..3 {
            harness.append("r", signal(None)).await.unwrap();
        }
        harness.read_on(&mut held).await;
        harness.commit(&mut held, vec![completed()]).await;
        assert_eq!(delete(&harness, "r").await.unwrap(), 1);
    }
    over.store(true, Ordering::SeqCst);
    reader.join().unwrap();
}

pub async fn a_deleted_run_leaves_its_reason_for_as_long_as_it_would_have_been_kept(mut harness: Harness) {
    let reason = |text: &str| text.to_owned();
    let listed = |harness: &Harness, query: DeletedQuery| {
        let store = harness.store();
        async move {
            let deleted = store.list_deleted(query).await.unwrap();
            deleted.into_iter().map(|run| (run.key.id.to_string(), run.kind.to_string(), run.reason)).collect::<Vec<_>>()
        }
    };
    for text in ["a wrong order", ""] {
        harness.complete("r").await;
        harness.pass(seconds(1));
        let delete = Delete::Run { key: key("r"), reason: reason(text) };
        harness.store().delete_runs(delete).await.unwrap();
    }
    harness.start("open").await;
    refused(delete(&harness, "open").await, "run_busy");
    refused(delete(&harness, "nobody").await, "run_not_found");
    harness.reopen();
    let order = |text: &str| ("r".to_owned(), "order".to_owned(), reason(text));
    assert_eq!(listed(&harness, DeletedQuery::default()).await, [order(""), order("a wrong order")]);
    assert_eq!(listed(&harness, DeletedQuery { limit: 1, ..Default::default() }).await, [order("")]);
    assert_eq!(listed(&harness, DeletedQuery { run: Some(key("x")), ..Default::default() }).await, []);
    let all = harness.store().list_deleted(DeletedQuery::default()).await.unwrap();
    assert_eq!(all[0].deleted_at, harness.now());

    harness.pass(seconds(9));
    assert_eq!(delete_expired(&harness, 10).await, 0);
    assert_eq!(listed(&harness, DeletedQuery::default()).await, [order("")]);
    harness.pass(seconds(1));
    assert_eq!(delete_expired(&harness, 10).await, 0);
    assert_eq!(listed(&harness, DeletedQuery::default()).await, []);
}

async fn delete(harness: &Harness, id: &str) -> Result<u64, StoreError> {
    let key: RunKey = key(id);
    harness.store().delete_runs(Delete::Run { key, reason: "requested by the test".to_owned() }).await
}

async fn delete_expired(harness: &Harness, after: u64) -> u64 {
    let retention = Retention { default: seconds(after), by_kind: BTreeMap::new() };
    harness.store().delete_runs(Delete::Expired { retention, limit: 10 }).await.unwrap()
}

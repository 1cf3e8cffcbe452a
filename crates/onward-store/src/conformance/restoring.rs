//! Restored logs: everything else about the run is derived from them (L16, J1).

use onward_core::event::{RunFailed, WaitCanceled};
use onward_core::reopen::{self, Fork, OpenChildren, Reopened, Retry};
use onward_core::run::Refusal;
use onward_core::task::{EffectClass, TaskOptions, TaskReport, idempotency_key};
use onward_core::{Epoch, Event, Failure, Index, Record, Status};

use super::block_on;
use super::harness::{
    Harness, HeldRun, approval, call_id, completed, decision, json, key, refused, resume, seconds, settled, signal, task, timer,
};
use crate::{Delete, Restore, RestoreRun, Restored, StoreError, TaskQuery};

async fn restore(harness: &Harness, id: &str, logs: Vec<Vec<Record>>) -> Result<Restored, StoreError> {
    harness.store().restore_run(RestoreRun { key: key(id), what: Restore::Run { logs }, outbox: Vec::new() }).await
}

/// Starts a run that has a timer, a task, an approval, an unread signal and a decision.
async fn busy(harness: &Harness, id: &str) -> HeldRun {
    let mut held = harness.start_held(id).await;
    let due = harness.now().after(seconds(60));
    let options = TaskOptions { priority: Some(3), ..TaskOptions::default() };
    harness.commit(&mut held, vec![task(0, options), timer(1, due), approval(2, Some(due)), approval(3, None)]).await;
    harness.append(id, decision(0, 3, "anna")).await.unwrap();
    harness.append(id, signal(Some("s-1"))).await.unwrap();
    held
}

pub async fn a_restored_run_is_the_run_it_was(mut harness: Harness) {
    busy(&harness, "r").await;
    let log = harness.records("r").await;
    harness.pass(seconds(10));
    let restored = restore(&harness, "copy", vec![log.clone()]).await.unwrap();
    assert!(restored.created);
    assert_eq!((restored.head.status, restored.head.next_index), (Status::Pending, Index(7)));
    harness.reopen();
    assert_eq!(harness.records("copy").await, log);
    harness.check_run(&key("copy")).await;
    // The worker that holds the original does not hold the copy.
    let copies: Vec<_> = harness.claim("v").await.into_iter().filter(|run| run.head.key == key("copy")).collect();
    assert_eq!(copies.len(), 1);
    assert!(harness.claim_tasks("t", 10).await.iter().any(|task| task.id.run == key("copy") && task.options.priority() == 3));
    harness.pass(seconds(49));
    assert_eq!(harness.expire().await.timers_fired, 0);
    harness.pass(seconds(1));
    harness.expire().await;
    let names = harness.log("copy").await;
    assert_eq!(names.iter().filter(|name| **name == "timer_fired").count(), 2, "{names:?}");
}

/// L7: neither the epoch of its last commit in the other store nor that of a later claim is valid.
pub async fn who_held_a_run_elsewhere_does_not_hold_it_where_it_was_restored(mut harness: Harness) {
    busy(&harness, "r").await;
    let mut log = harness.records("r").await;
    // The other store has higher epochs than this one.
    let theirs = harness.head("r").await.epoch.0 + (7 << 33) + 5;
    log[1].commit.as_mut().unwrap().epoch = Epoch(theirs);
    restore(&harness, "copy", vec![log]).await.unwrap();
    let mut last = theirs + 1_000;
    for by in ["u", "v", "w"] {
        let claimed = harness.claim(by).await.into_iter().find(|run| run.head.key == key("copy")).expect("it is pending");
        assert!(claimed.head.epoch.0 > last, "{by}: {:?} is not above {last}", claimed.head.epoch);
        last = claimed.head.epoch.0;
        for epoch in [theirs, theirs + 1, theirs + (1 << 33)] {
            let mut old = HeldRun::new(&claimed);
            old.head.epoch = Epoch(epoch);
            refused(harness.store().commit(old.commit(vec![completed()])).await, "lease_lost");
        }
        harness.store().release_run(key("copy"), claimed.head.epoch).await.unwrap();
        harness.reopen();
    }
}

/// K8: whatever the number of its claim in the other store.
pub async fn who_held_a_task_elsewhere_does_not_hold_it_where_it_was_restored(mut harness: Harness) {
    busy(&harness, "r").await;
    let there = harness.claim_tasks("t", 1).await.remove(0);
    restore(&harness, "copy", vec![harness.records("r").await]).await.unwrap();
    harness.reopen();
    let mut moved = there.id.clone();
    moved.run = key("copy");
    let done = || TaskReport::Completed(json("1"));
    for again in 1..=3 {
        let here = harness.claim_tasks("t", 1).await.remove(0);
        assert_eq!((&here.id, here.attempt), (&moved, 1));
        for claim in there.claim..there.claim + 10 {
            refused(harness.store().report_task(moved.clone(), claim, done(), seconds(30)).await, "task_attempt_over");
        }
        if again == 3 {
            harness.store().report_task(here.id, here.claim, done(), seconds(30)).await.unwrap();
        } else {
            harness.store().report_task(here.id.clone(), here.claim, here.not_started(), seconds(30)).await.unwrap();
        }
    }
    harness.store().report_task(there.id, there.claim, done(), seconds(30)).await.unwrap();
}

pub async fn a_restored_run_remembers_what_it_took(mut harness: Harness) {
    busy(&harness, "r").await;
    restore(&harness, "copy", vec![harness.records("r").await]).await.unwrap();
    harness.reopen();
    let first = harness.append("r", signal(Some("s-1"))).await.unwrap();
    assert_eq!(harness.append("copy", signal(Some("s-1"))).await.unwrap(), first);
    assert!(harness.append("copy", decision(0, 3, "anna")).await.unwrap().repeated);
    refused(harness.append("copy", decision(0, 3, "ben")).await, "signal_lost");
    assert!(!harness.append("copy", decision(0, 2, "ben")).await.unwrap().repeated);
    refused(harness.append("copy", resume()).await, "run_not_paused");
}

pub async fn the_same_run_again_is_nothing_new_and_another_is_refused(mut harness: Harness) {
    busy(&harness, "r").await;
    let log = harness.records("r").await;
    restore(&harness, "copy", vec![log.clone()]).await.unwrap();
    harness.reopen();
    assert!(!restore(&harness, "copy", vec![log.clone()]).await.unwrap().created);
    assert!(!restore(&harness, "r", vec![log.clone()]).await.unwrap().created);
    let shorter = log[..log.len() - 1].to_vec();
    refused(restore(&harness, "copy", vec![shorter]).await, "run_exists");
    assert_eq!(harness.records("copy").await, log);
}

pub async fn a_log_that_breaks_its_rules_is_not_taken(harness: Harness) {
    busy(&harness, "r").await;
    let log = harness.records("r").await;
    let mut gap = log.clone();
    gap.remove(1);
    let with = |change: &dyn Fn(&mut Vec<Record>)| {
        let mut log = log.clone();
        change(&mut log);
        vec![log]
    };
    let huge = [
        with(&|log| log[1].index = Index(u64::MAX)),
        with(&|log| log[0].index = Index(u64::MAX)),
        with(&|log| log[1].events.clear()),
        with(&|log| log[1].commit.as_mut().unwrap().n = u64::MAX),
        with(&|log| log[1].commit.as_mut().unwrap().horizon = Index(u64::MAX)),
        with(&|log| {
            if let Event::RunStarted(started) = &mut log[0].events[0] {
                started.generation = u32::MAX;
            }
        }),
    ];
    for bad in [vec![], vec![vec![]], vec![gap], vec![log.clone(), log.clone()]].into_iter().chain(huge) {
        refused(restore(&harness, "copy", bad).await, "log_invalid");
    }
    assert_eq!(harness.store().read_run(key("copy"), None).await.unwrap(), None);
}

/// Starts a run that fails because its task failed.
async fn failed(harness: &Harness, id: &str) -> Failure {
    let mut held = harness.start_held(id).await;
    harness.commit(&mut held, vec![task(0, TaskOptions::default()), approval(1, None)]).await;
    let claimed = harness.claim_tasks("t", 1).await.remove(0);
    let failure = Failure::fatal("no paper");
    harness.store().report_task(claimed.id, claimed.claim, TaskReport::Failed(failure.clone()), seconds(30)).await.unwrap();
    harness.read_on(&mut held).await;
    let withdrawn = WaitCanceled { call_id: super::harness::call_id(1) };
    harness.commit(&mut held, vec![withdrawn.into(), RunFailed { failure: failure.clone(), attempts: None }.into()]).await;
    failure
}

async fn reopened(harness: &Harness, id: &str, request: &str) -> Reopened {
    let (head, log) = (harness.head(id).await, harness.records(id).await);
    reopen::retry(&head, &log, &Retry::new(request), harness.now()).unwrap()
}

async fn retry(harness: &Harness, id: &str, after: u32, request: &str, again: Reopened) -> Result<Restored, StoreError> {
    let what = Restore::Retry { after, log: again.records, request_id: request.to_owned() };
    harness.store().restore_run(RestoreRun { key: key(id), what, outbox: again.outbox }).await
}

pub async fn a_failed_run_goes_on_as_its_next_generation(mut harness: Harness) {
    failed(&harness, "r").await;
    harness.pass(seconds(5));
    let again = reopened(&harness, "r", "a").await;
    let restored = retry(&harness, "r", 0, "a", again).await.unwrap();
    assert_eq!((restored.created, restored.head.status, restored.head.generation), (true, Status::Pending, 1));
    assert_eq!(restored.head.ended_at, None);
    harness.reopen();
    let names = harness.log("r").await;
    assert_eq!(names, ["run_started", "task_scheduled", "approval_requested", "task_failed", "retry_requested"]);
    let old = harness.store().read_run(key("r"), Some(0)).await.unwrap().unwrap();
    assert_eq!(old.status, Status::Failed);
    let mut held = harness.claim_one("v").await;
    assert_eq!(held.head.generation, 1);
    harness.commit(&mut held, vec![completed()]).await;
    assert_eq!(harness.head("r").await.status, Status::Completed);
}

pub async fn the_same_retry_twice_is_one(mut harness: Harness) {
    failed(&harness, "r").await;
    let again = reopened(&harness, "r", "a").await;
    let first = retry(&harness, "r", 0, "a", again.clone()).await.unwrap();
    harness.reopen();
    let repeat = retry(&harness, "r", 0, "a", again.clone()).await.unwrap();
    assert_eq!((repeat.created, repeat.head.generation), (false, first.head.generation));
    refused(retry(&harness, "r", 0, "b", again).await, "run_continued");
    assert_eq!(harness.head("r").await.generation, 1);
}

pub async fn only_a_failed_run_is_retried(harness: Harness) {
    failed(&harness, "r").await;
    let again = reopened(&harness, "r", "a").await;
    harness.complete("done").await;
    harness.start("open").await;
    refused(retry(&harness, "done", 0, "a", again.clone()).await, "run_not_failed");
    refused(retry(&harness, "open", 0, "a", again.clone()).await, "run_not_failed");
    refused(retry(&harness, "none", 0, "a", again).await, "run_not_found");
    assert_eq!(harness.log("done").await, ["run_started", "run_completed"]);
}

pub async fn a_question_of_a_retried_run_keeps_its_id(mut harness: Harness) {
    failed(&harness, "r").await;
    refused(harness.append("r", decision(0, 1, "early")).await, "signal_lost");
    let again = reopened(&harness, "r", "a").await;
    retry(&harness, "r", 0, "a", again).await.unwrap();
    harness.reopen();
    let waits = harness.store().list_waits(Default::default()).await.unwrap();
    assert_eq!((waits.len(), waits[0].generation), (1, 0));
    refused(harness.append("r", decision(1, 1, "anna")).await, "wait_not_found");
    assert!(!harness.append("r", decision(0, 1, "anna")).await.unwrap().repeated);
    refused(harness.append("r", decision(0, 1, "ben")).await, "signal_lost");
    assert!(harness.append("r", decision(0, 1, "anna")).await.unwrap().repeated);
}

pub async fn a_retried_task_is_scheduled_again_under_its_old_key(mut harness: Harness) {
    failed(&harness, "r").await;
    harness.pass(seconds(3_600));
    let again = reopened(&harness, "r", "a").await;
    retry(&harness, "r", 0, "a", again).await.unwrap();
    harness.reopen();
    let listed = harness.store().list_tasks(TaskQuery::default()).await.unwrap();
    assert_eq!((listed.len(), listed[0].scheduled_at, listed[0].id.generation), (1, harness.now(), 1));
    let claimed = harness.claim_tasks("t", 1).await.remove(0);
    assert_eq!(claimed.idempotency_key(), idempotency_key(&key("r"), 0, &claimed.id.call_id));
    let mut old = claimed.id.clone();
    old.generation = 0;
    let done = || TaskReport::Completed(super::harness::json("1"));
    refused(harness.store().report_task(old, 1, done(), seconds(30)).await, "task_attempt_over");
    harness.store().report_task(claimed.id, claimed.claim, done(), seconds(30)).await.unwrap();
    assert_eq!(harness.log("r").await.last(), Some(&"task_completed"));
}

pub async fn a_retry_that_comes_after_the_run_was_deleted_finds_nothing(mut harness: Harness) {
    failed(&harness, "r").await;
    let again = reopened(&harness, "r", "a").await;
    let delete = Delete::Run { key: key("r"), reason: String::new() };
    harness.store().delete_runs(delete.clone()).await.unwrap();
    refused(retry(&harness, "r", 0, "a", again).await, "run_not_found");
    harness.reopen();
    assert_eq!(harness.store().read_run(key("r"), None).await.unwrap(), None);

    failed(&harness, "s").await;
    let again = reopened(&harness, "s", "a").await;
    retry(&harness, "s", 0, "a", again).await.unwrap();
    let delete = Delete::Run { key: key("s"), reason: String::new() };
    refused(harness.store().delete_runs(delete).await, "run_busy");
}

/// F27 for a retry: readers see a complete open run, or none.
pub async fn of_a_retry_and_a_deletion_one_happens(harness: Harness) {
    for round in 0..8 {
        let id = format!("r{round}");
        failed(&harness, &id).await;
        let again = reopened(&harness, &id, "a").await;
        let store = harness.store();
        let delete = Delete::Run { key: key(&id), reason: String::new() };
        let deleting = std::thread::spawn(move || block_on(store.delete_runs(delete)).is_ok());
        let retried = retry(&harness, &id, 0, "a", again).await.is_ok();
        assert_ne!(retried, deleting.join().unwrap());
        let head = harness.store().read_run(key(&id), None).await.unwrap();
        assert_eq!(head.map(|head| head.status), retried.then_some(Status::Pending));
    }
}

pub(super) fn fork(id: &str, index: u64, is_reset: bool) -> Fork {
    Fork {
        key: key(id),
        index: Some(Index(index)),
        is_reset,
        keep_signals: true,
        children: OpenChildren::Restart,
        version: None,
        seed: 11,
        request_id: "f".to_owned(),
        reason: String::new(),
        include_outcome_unknown: false,
        caller: None,
        budget_max: None,
    }
}

pub async fn a_fork_is_a_run_of_its_own(mut harness: Harness) {
    let mut held = busy(&harness, "r").await;
    harness.read_on(&mut held).await;
    harness.commit(&mut held, vec![settled()]).await;
    let before = harness.records("r").await;
    harness.pass(seconds(20));
    let forked = reopen::fork(&harness.head("r").await, Vec::new(), &before, &fork("f", 4, false), harness.now()).unwrap();
    let what = Restore::Run { logs: forked.logs };
    harness.store().restore_run(RestoreRun { key: key("f"), what, outbox: forked.outbox }).await.unwrap();
    harness.reopen();
    let names = harness.log("f").await;
    assert_eq!(names[5..], ["run_forked", "signal_received"]);
    let head = harness.head("f").await;
    assert_eq!((head.status, head.created_at, head.generation), (Status::Pending, harness.now(), 0));
    // Both approvals are open in the fork under its own key, whatever became of the original's.
    let waits = harness.store().list_waits(Default::default()).await.unwrap();
    let own = waits.iter().filter(|wait| wait.run == key("f")).count();
    assert_eq!((own, waits.len() - own), (2, 1));
    assert!(!harness.append("f", decision(0, 3, "ben")).await.unwrap().repeated);
    assert_eq!(harness.records("r").await, before);
    // Timers keep their remaining time: sixty seconds, of which none had passed at the fork point.
    harness.pass(seconds(59));
    harness.expire().await;
    assert!(!harness.log("f").await.contains(&"timer_fired"));
    harness.pass(seconds(1));
    harness.expire().await;
    assert!(harness.log("f").await.contains(&"timer_fired"));
}

/// Z7: at any fork point, with the attempt running or ended, and also in an imported copy of the log.
pub async fn what_must_not_be_done_twice_is_not_done_again_in_a_fork(mut harness: Harness) {
    let once = TaskOptions { class: Some(EffectClass::AtMostOnce), ..TaskOptions::default() };
    let mut held = harness.start_held("r").await;
    harness.commit(&mut held, vec![task(0, once.clone()), task(1, TaskOptions::default()), task(2, once)]).await;
    let point = harness.head("r").await.next_index.0 - 1;
    let tasks = harness.claim_tasks("t", 10).await;
    let last = tasks.iter().find(|task| task.id.call_id == call_id(2)).unwrap();
    harness.store().report_task(last.id.clone(), last.claim, TaskReport::Completed(json("\"done\"")), seconds(30)).await.unwrap();
    let put = async |harness: &Harness, id: &str, index: u64, is_reset: bool| {
        let (head, log) = (harness.head("r").await, harness.records("r").await);
        let forked = reopen::fork(&head, Vec::new(), &log, &fork(id, index, is_reset), harness.now()).unwrap();
        let what = Restore::Run { logs: forked.logs };
        harness.store().restore_run(RestoreRun { key: key(id), what, outbox: forked.outbox }).await.unwrap();
    };
    put(&harness, "early", point, false).await;
    put(&harness, "reset", point, true).await;
    harness.reopen();
    harness.expire().await;
    for id in ["early", "reset"] {
        let log = harness.records(id).await;
        let events = || log.iter().flat_map(|record| &record.events);
        let unknown =
            events().filter(|event| matches!(event, Event::TaskFailed(failed) if failed.failure.code == "outcome_unknown"));
        let completed = events().filter(|event| matches!(event, Event::TaskCompleted(_)));
        assert_eq!((unknown.count(), completed.count()), (1, 1), "{id}: {log:?}");
        let query = TaskQuery { run: Some(key(id)), limit: 9, ..Default::default() };
        let open = harness.store().list_tasks(query).await.unwrap();
        assert_eq!(open.iter().map(|task| task.id.call_id.clone()).collect::<Vec<_>>(), [call_id(1)], "{id}");
    }
}

/// Z9: before a task that failed with an unknown outcome, and before one that is running.
pub async fn a_fork_before_an_unknown_outcome_is_explicit(harness: Harness) {
    let once = TaskOptions { class: Some(EffectClass::AtMostOnce), ..TaskOptions::default() };
    let mut held = harness.start_held("r").await;
    harness.commit(&mut held, vec![task(0, once)]).await;
    let scheduled = harness.head("r").await.next_index.0 - 1;
    let at = async |index: u64, is_reset: bool, include_outcome_unknown: bool| {
        let (head, log) = (harness.head("r").await, harness.records("r").await);
        let fork = Fork { include_outcome_unknown, ..fork("f", index, is_reset) };
        reopen::fork(&head, Vec::new(), &log, &fork, harness.now()).map(drop)
    };
    // No attempt has begun.
    at(0, false, false).await.unwrap();
    let claimed = harness.claim_tasks("t", 1).await.remove(0);
    let is_refused = async |is_reset: bool| matches!(at(0, is_reset, false).await, Err(Refusal::OutcomeUnknown { .. }));
    for report in [None, Some(TaskReport::Interrupted)] {
        if let Some(report) = report {
            harness.store().report_task(claimed.id.clone(), claimed.claim, report, seconds(30)).await.unwrap();
            assert_eq!(harness.log("r").await.last(), Some(&"task_failed"));
        }
        assert!(is_refused(false).await && is_refused(true).await);
        at(0, true, true).await.unwrap();
        // The copy with the task gets its outcome (Z7).
        at(scheduled, true, false).await.unwrap();
    }
}

/// Z7: a failed task is executed again, since the caller of the retry knows of the failure; the outcome of one that was running
/// when the run ended is unknown.
pub async fn what_must_not_be_done_twice_is_done_again_only_where_it_failed(mut harness: Harness) {
    let once = TaskOptions { class: Some(EffectClass::AtMostOnce), ..TaskOptions::default() };
    let mut held = harness.start_held("r").await;
    harness.commit(&mut held, vec![task(0, once.clone()), task(1, once)]).await;
    let tasks = harness.claim_tasks("t", 10).await;
    let first = tasks.iter().find(|task| task.id.call_id == call_id(0)).unwrap();
    let failure = Failure::fatal("no paper");
    harness.store().report_task(first.id.clone(), first.claim, TaskReport::Failed(failure.clone()), seconds(30)).await.unwrap();
    harness.read_on(&mut held).await;
    harness.commit(&mut held, vec![RunFailed { failure, attempts: None }.into()]).await;
    let again = reopened(&harness, "r", "a").await;
    retry(&harness, "r", 0, "a", again).await.unwrap();
    harness.reopen();
    harness.expire().await;
    let claimed = harness.claim_tasks("t", 10).await;
    assert_eq!(claimed.iter().map(|task| task.id.call_id.clone()).collect::<Vec<_>>(), [call_id(0)]);
    let log = harness.records("r").await;
    let unknown = log.iter().flat_map(|record| &record.events).find_map(|event| match event {
        Event::TaskFailed(failed) if failed.failure.code == "outcome_unknown" => Some(failed.call_id.clone()),
        _ => None,
    });
    assert_eq!(unknown, Some(call_id(1)));
}

pub async fn a_reset_ends_the_original(harness: Harness) {
    busy(&harness, "r").await;
    let log = harness.records("r").await;
    let forked = reopen::fork(&harness.head("r").await, Vec::new(), &log, &fork("f", 4, true), harness.now()).unwrap();
    let what = Restore::Run { logs: forked.logs };
    harness.store().restore_run(RestoreRun { key: key("f"), what, outbox: forked.outbox }).await.unwrap();
    assert_eq!(harness.deliver().await, 1);
    assert_eq!(harness.head("r").await.status, Status::Terminated);
    assert_eq!(harness.head("f").await.status, Status::Pending);
    let Some(Event::TerminateRequested(end)) = harness.records("r").await.last().and_then(|record| record.events.last().cloned())
    else {
        panic!("it was terminated");
    };
    assert_eq!(end.reset_to.map(|id| id.to_string()), Some("f".to_owned()));
    // Z5: a run has at most one successor; the same reset again returns it, and a fork is not a successor.
    let (head, log) = (harness.head("r").await, harness.records("r").await);
    let wanted =
        |id: &str, index, is_reset| reopen::fork(&head, Vec::new(), &log, &fork(id, index, is_reset), harness.now()).map(drop);
    let refusal = wanted("g", 0, true).unwrap_err();
    assert_eq!(refusal, Refusal::AlreadyReset { key: key("r"), successor: key("f").id });
    assert_eq!((wanted("f", 4, true), wanted("g", 0, false)), (Ok(()), Ok(())));
}

//! RQ1 to RQ7: a run waits in its queue until it is let in, and holds a slot until it ends.

use std::collections::BTreeMap;
use std::sync::Arc;

use onward_core::event::{CancelRequested, OnParentClose, ParentLink, RunCanceled, RunContinued, RunFailed, RunStarted};
use onward_core::queue::settings::settings_row;
use onward_core::queue::{QueueRate, QueueSettings};
use onward_core::reopen::{self, Retry};
use onward_core::run::delayed_start::start_call;
use onward_core::run::run_queue::{RUN_QUEUE_PREFIX, SLOT_KIND};
use onward_core::run::{Input, NewRun, RunQueue};
use onward_core::task::{Task, TaskId, TaskOptions, TaskReport, TaskState};
use onward_core::{Event, Failure, Name, Namespace, Status, Timestamp};

use super::forking::{forked, put};
use super::harness::{
    Harness, HeldRun, child, completed, json, key, name, new_run, pause, refused, resume, seconds, signal, task, terminate, timer,
    worker,
};
use super::seeds;
use crate::{ClaimTasks, Delete, Restore, RestoreRun, TaskQuery};

const QUEUE: &str = "deploys";

fn queued(id: &str, key: Option<&str>) -> NewRun {
    let (run, place) = (new_run(id), RunQueue { key: key.map(name), ..RunQueue::new(name(QUEUE)) });
    NewRun { started: RunStarted { queue: Some(Box::new(place)), ..run.started }, ..run }
}

/// Sets the limits of the queue; false if the store is divided among more databases than the limit permits.
async fn set(harness: &Harness, settings: impl Into<Option<QueueSettings>>) -> bool {
    let row = settings_row(Namespace::default(), Some(&name(QUEUE)), settings.into()).unwrap();
    match harness.store().register_kinds(vec![row]).await {
        Ok(()) => true,
        Err(error) => {
            assert_eq!(error.code(), "queue_invalid", "{error}");
            false
        }
    }
}

fn limit(count: u32) -> QueueSettings {
    QueueSettings { concurrency_max: Some(count), ..QueueSettings::default() }
}

async fn start(harness: &Harness, id: &str) {
    start_as(harness, queued(id, None)).await;
}

async fn start_as(harness: &Harness, run: NewRun) {
    let started = harness.store().start_run(run, Some(worker("w"))).await.unwrap();
    assert!(started.created && started.claimed.is_none(), "RQ2: {started:?}");
    assert_eq!(started.head.status, Status::Waiting);
}

/// Lets runs in and claims them; returns them by id.
async fn begin(harness: &Harness) -> BTreeMap<String, HeldRun> {
    while harness.expire().await.more {}
    let held = harness.claim("w").await.into_iter().map(|run| (run.head.key.id.as_str().to_owned(), HeldRun::new(&run)));
    held.collect()
}

fn ids(begun: &BTreeMap<String, HeldRun>) -> Vec<&str> {
    begun.keys().map(String::as_str).collect()
}

async fn slots(harness: &Harness) -> Vec<Task> {
    let open = harness.store().list_tasks(TaskQuery { limit: usize::MAX, ..TaskQuery::default() }).await.unwrap();
    open.into_iter().filter(Task::is_slot).collect()
}

async fn held(harness: &Harness) -> usize {
    slots(harness).await.iter().filter(|slot| slot.state == TaskState::Leased).count()
}

async fn finish(harness: &Harness, run: &mut HeldRun) {
    harness.read_on(run).await;
    harness.commit(run, vec![completed()]).await;
}

pub async fn a_queue_lets_in_as_many_runs_as_its_limit(mut harness: Harness) {
    if !set(&harness, limit(2)).await {
        return;
    }
    for id in ["a", "b", "c", "d"] {
        start(&harness, id).await;
        harness.pass(seconds(1));
    }
    let first = begin(&harness).await;
    assert_eq!(ids(&first), ["a", "b"], "RQ1");
    harness.reopen();
    assert_eq!(ids(&begin(&harness).await.into_iter().filter(|(id, _)| !first.contains_key(id)).collect()), [""; 0]);
    assert_eq!(harness.log("a").await, ["run_started", "run_begun"]);
    assert_eq!(harness.log("c").await, ["run_started"]);
    harness.append("a", terminate()).await.unwrap();
    assert_eq!(ids(&begin(&harness).await.into_iter().filter(|(id, _)| id != "b").collect()), ["c"], "RQ1");
    set(&harness, None).await;
    assert_eq!(ids(&begin(&harness).await.into_iter().filter(|(id, _)| id == "d").collect()), ["d"], "there is no limit any more");
}

pub async fn a_queue_without_settings_lets_runs_in_at_once(harness: Harness) {
    start(&harness, "a").await;
    start_as(&harness, queued("b", Some("k"))).await;
    assert_eq!(ids(&begin(&harness).await), ["a", "b"]);
    assert_eq!(harness.expire().await.runs_begun, 0);
}

/// RQ1: every end frees the slot in its own write.
pub async fn a_slot_is_free_however_its_run_ends(harness: Harness) {
    if !set(&harness, limit(1)).await {
        return;
    }
    for id in ["a", "b", "c", "d", "e"] {
        start(&harness, id).await;
        harness.pass(seconds(1));
    }
    let failure = || Failure::new("broken", "it broke");
    let failed: Event = RunFailed { failure: failure(), attempts: None }.into();
    let canceled: Event = RunCanceled { failure: failure() }.into();
    for (id, end) in [("a", completed()), ("b", failed), ("c", canceled)] {
        let mut begun = begin(&harness).await;
        assert_eq!((ids(&begun), held(&harness).await), (vec![id], 1));
        harness.commit(begun.get_mut(id).unwrap(), vec![end]).await;
        assert_eq!(held(&harness).await, 0, "RQ1: in the same write");
    }
    assert_eq!(ids(&begin(&harness).await), ["d"]);
    harness.append("d", terminate()).await.unwrap();
    assert_eq!(ids(&begin(&harness).await), ["e"]);
    for id in ["a", "b", "c", "d", "e"] {
        harness.check_run(&key(id)).await;
    }
}

pub async fn a_slot_is_kept_while_its_run_sleeps_is_paused_or_loses_its_worker(mut harness: Harness) {
    if !set(&harness, limit(1)).await {
        return;
    }
    start(&harness, "a").await;
    let mut a = begin(&harness).await.remove("a").unwrap();
    harness.pass(seconds(1));
    start(&harness, "b").await;
    let due = harness.now().after(seconds(500));
    harness.commit(&mut a, vec![timer(0, due)]).await;
    harness.append("a", pause()).await.unwrap();
    harness.pass(seconds(120));
    harness.reopen();
    assert_eq!((harness.expire().await.runs_begun, held(&harness).await), (0, 1), "RQ1: the session of its worker has ended");
    harness.append("a", resume()).await.unwrap();
    harness.append("a", signal(None)).await.unwrap();
    harness.pass(seconds(120));
    let again = begin(&harness).await;
    assert_eq!((ids(&again), held(&harness).await), (vec!["a"], 1), "RQ1");
    harness.check_run(&key("a")).await;
    harness.append("a", terminate()).await.unwrap();
    assert_eq!(ids(&begin(&harness).await), ["b"]);
}

pub async fn a_run_that_continues_as_new_keeps_its_slot(mut harness: Harness) {
    if !set(&harness, limit(1)).await {
        return;
    }
    start(&harness, "a").await;
    let mut a = begin(&harness).await.remove("a").unwrap();
    start(&harness, "b").await;
    for generation in 1..3 {
        let next = RunContinued { input: json("1"), checkpoint: None };
        harness.commit(&mut a, vec![next.into()]).await;
        assert_eq!(harness.expire().await.runs_begun, 0, "RQ1: there is no gap");
        harness.reopen();
        assert_eq!(held(&harness).await, 1);
        let begun = begin(&harness).await;
        assert_eq!(ids(&begun), ["a"]);
        a = begun.into_values().next().unwrap();
        assert_eq!(a.head.generation, generation);
        harness.check_run(&key("a")).await;
    }
    harness.commit(&mut a, vec![completed()]).await;
    assert_eq!(ids(&begin(&harness).await), ["b"]);
}

pub async fn a_queued_run_that_is_paused_is_not_let_in_and_one_that_is_canceled_ends(mut harness: Harness) {
    if !set(&harness, limit(1)).await {
        return;
    }
    for id in ["a", "b", "c"] {
        start(&harness, id).await;
        harness.pass(seconds(1));
    }
    assert!(!harness.append("b", signal(None)).await.unwrap().woke);
    harness.append("a", pause()).await.unwrap();
    assert_eq!(ids(&begin(&harness).await), ["b"], "RQ2");
    harness.append("a", resume()).await.unwrap();
    harness.reopen();
    assert_eq!(harness.head("a").await.status, Status::Waiting);
    harness.append("c", Input::new(CancelRequested::new("no".to_owned()))).await.unwrap();
    assert_eq!(harness.log("c").await, ["run_started", "run_canceled"]);
    harness.store().delete_runs(Delete::Run { key: key("c"), reason: String::new() }).await.unwrap();
    harness.append("b", terminate()).await.unwrap();
    assert_eq!(ids(&begin(&harness).await), ["a"]);
    assert_eq!(harness.log("b").await, ["run_started", "signal_received", "run_begun", "terminate_requested"]);
    assert_eq!(slots(&harness).await.len(), 1);
}

pub async fn keys_priorities_and_rates_apply_to_runs(mut harness: Harness) {
    let rate = Some(QueueRate { starts_max: 3, period_ms: 6_400 });
    let settings = QueueSettings { key_concurrency_max: Some(1), rate, ..QueueSettings::default() };
    if !set(&harness, settings).await {
        return;
    }
    for (id, key) in [("a1", "a"), ("a2", "a"), ("b1", "b"), ("b2", "b")] {
        start_as(&harness, queued(id, Some(key))).await;
        harness.pass(seconds(1));
    }
    assert_eq!(ids(&begin(&harness).await), ["a1", "b1"], "QL1");
    harness.append("a1", terminate()).await.unwrap();
    harness.append("b1", terminate()).await.unwrap();
    let mut urgent = queued("a3", Some("a"));
    urgent.started.queue = urgent.started.queue.map(|place| Box::new(RunQueue { priority: 5, ..*place }));
    start_as(&harness, urgent).await;
    harness.reopen();
    let next = begin(&harness).await;
    assert_eq!(next.len(), 1, "QL2: a third begins, and no fourth");
    assert!(!next.contains_key("a2"), "QL6");
    harness.pass(seconds(7));
    assert_eq!(begin(&harness).await.len(), 1);
}

/// RQ3, RQ7
pub async fn runs_and_tasks_of_a_queue_are_counted_apart(harness: Harness) {
    if !set(&harness, limit(1)).await {
        return;
    }
    start(&harness, "a").await;
    let mut a = begin(&harness).await.remove("a").unwrap();
    harness.pass(seconds(1));
    start(&harness, "b").await;
    let options = TaskOptions { queue: Some(name(QUEUE)), ..TaskOptions::default() };
    harness.commit(&mut a, vec![task(0, options)]).await;
    let claim = |queue: &str, kinds: &[&str]| {
        let kinds = Arc::new(kinds.iter().copied().map(name).collect());
        let (namespace, queues) = (Namespace::default(), vec![Some(name(queue))]);
        let (store, request) =
            (harness.store(), ClaimTasks { worker: worker("t"), namespace, queues, kinds, limit: 9, lease: seconds(30) });
        async move { store.claim_tasks(request).await }
    };
    let stored = format!("{RUN_QUEUE_PREFIX}{QUEUE}");
    assert_eq!(claim(&stored, &[SLOT_KIND, "mail"]).await.unwrap(), [], "RQ7");
    assert_eq!(claim(QUEUE, &[SLOT_KIND, "mail"]).await.unwrap().len(), 1, "RQ3");
    assert_eq!(harness.expire().await.runs_begun, 0, "the task frees no slot of a run");
    let slot = slots(&harness).await.into_iter().find(|slot| slot.id.run == key("a")).unwrap();
    let done = TaskReport::Completed(json("1"));
    assert!(harness.store().report_task(slot.id.clone(), slot.claim, done, seconds(30)).await.is_err(), "RQ7");
    assert!(harness.store().retry_task(slot.id).await.is_err(), "RQ7");
    let reserved = [TaskOptions { queue: Some(name(&stored)), ..TaskOptions::default() }];
    for options in reserved {
        refused(harness.store().commit(a.commit(vec![task(1, options)])).await, "commit_malformed");
    }
    let forged = super::harness::task_of(SLOT_KIND, 1, TaskOptions::default());
    refused(harness.store().commit(a.commit(vec![forged])).await, "commit_malformed");
    let taken = onward_core::event::TaskCanceled { call_id: start_call() };
    refused(harness.store().commit(a.commit(vec![taken.into()])).await, "commit_malformed");
    assert_eq!((held(&harness).await, harness.expire().await.runs_begun), (1, 0));
}

/// RQ6
pub async fn a_full_queue_refuses_starts_of_callers_only(mut harness: Harness) {
    set(&harness, QueueSettings { depth_max: Some(1), paused: true, ..QueueSettings::default() }).await;
    let mut id = 0;
    // Several databases may each take one.
    let full = loop {
        id += 1;
        match harness.store().start_run(queued(&format!("r{id}"), None), None).await {
            Ok(_) => assert!(id < 100),
            Err(error) => break error,
        }
    };
    assert_eq!(full.code(), "queue_full");
    assert!(full.to_string().contains(QUEUE), "{full}");
    harness.reopen();
    assert!(harness.store().read_run(key(&format!("r{id}")), None).await.unwrap().is_none(), "nothing was written");
    assert!(!harness.store().start_run(queued("r1", None), None).await.unwrap().created, "a repeat is no refusal");
    let mut parent = harness.start_held("p").await;
    let Event::ChildStarted(event) = child("p/child", 0, OnParentClose::Cancel) else { panic!("a child") };
    let place = Some(Box::new(RunQueue::new(name(QUEUE))));
    harness.commit(&mut parent, vec![onward_core::event::ChildStarted { queue: place, ..event }.into()]).await;
    harness.deliver().await;
    let child = harness.head("p/child").await;
    assert!(child.is_in_queue() && child.status == Status::Waiting, "{child:?}");
    assert_eq!(harness.expire().await.runs_begun, 0, "QL4");
    set(&harness, None).await;
    assert!(ids(&begin(&harness).await).contains(&"p/child"));
}

/// RQ4, RQ5
pub async fn a_copy_waits_in_the_queue_again_and_an_import_keeps_its_slot(mut harness: Harness) {
    if !set(&harness, limit(1)).await {
        return;
    }
    start(&harness, "a").await;
    let mut a = begin(&harness).await.remove("a").unwrap();
    harness.commit(&mut a, vec![timer(0, Timestamp(0))]).await;
    let fork = forked(&harness, "a", "fork").await;
    put(&harness, "fork", fork).await;
    harness.reopen();
    let head = harness.head("fork").await;
    assert!(head.is_in_queue() && head.status == Status::Waiting, "RQ4: {head:?}");
    harness.check_run(&key("fork")).await;
    harness.append("fork", Input::new(CancelRequested::new("stop".to_owned()))).await.unwrap();
    assert_eq!(harness.head("fork").await.status, Status::Waiting, "its code may compensate once it begins");
    harness.expire().await;
    let mut a = harness.regain(&a).await;
    let logs = vec![harness.records("a").await];
    harness.read_on(&mut a).await;
    let failed = RunFailed { failure: Failure::new("broken", "it broke"), attempts: None };
    harness.commit(&mut a, vec![failed.into()]).await;
    assert_eq!(ids(&begin(&harness).await), ["fork"]);
    harness.check_run(&key("fork")).await;
    let (head, records) = (harness.head("a").await, harness.records("a").await);
    let again = reopen::retry(&head, &records, &Retry::new("again"), harness.now()).unwrap();
    let what = Restore::Retry { after: 0, log: again.records, request_id: "again".to_owned() };
    harness.store().restore_run(RestoreRun { key: key("a"), what, outbox: again.outbox }).await.unwrap();
    harness.check_run(&key("a")).await;
    assert!(harness.head("a").await.is_in_queue() && harness.expire().await.runs_begun == 0, "RQ4");
    harness.append("fork", terminate()).await.unwrap();
    assert_eq!(ids(&begin(&harness).await), ["a"]);
    let what = Restore::Run { logs };
    harness.store().restore_run(RestoreRun { key: key("import"), what, outbox: Vec::new() }).await.unwrap();
    harness.reopen();
    assert_eq!(held(&harness).await, 2, "RQ5: the log says that it holds a slot");
    for id in ["a", "fork", "import"] {
        harness.check_run(&key(id)).await;
    }
}

pub async fn a_delayed_run_is_queued_when_its_time_comes(mut harness: Harness) {
    if !set(&harness, limit(1)).await {
        return;
    }
    let mut late = queued("late", None);
    late.started.start_after_ms = Some(10_000);
    late.started.deadline_ms = Some(5_000);
    start_as(&harness, late).await;
    let due = harness.head("late").await.starts_at.unwrap();
    assert_eq!(due, harness.now().after(seconds(10)));
    assert_eq!(harness.expire().await.next_due, Some(due));
    harness.append("late", pause()).await.unwrap();
    harness.pass(seconds(3));
    harness.append("late", resume()).await.unwrap();
    harness.reopen();
    harness.clock.set(Timestamp(due.0 - 1));
    assert_eq!(harness.expire().await.runs_begun, 0);
    harness.clock.set(due.after(seconds(2)));
    assert_eq!(ids(&begin(&harness).await), ["late"], "DS3");
    assert_eq!(harness.head("late").await.deadline_at, Some(due.after(seconds(7))), "DS5");
    harness.check_run(&key("late")).await;
}

/// Random numbers of one case.
struct Dice(u64);

impl Dice {
    fn below(&mut self, size: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % size as u64) as usize
    }
}

/// RQ1: runs end in every way, continue, lose their workers and are paused, the store restarts and limits change; never does a run
/// begin beyond a limit, and in the end every run has begun, so no slot was lost.
pub async fn holders_of_slots_never_exceed_a_limit_and_all_runs_end(mut harness: Harness) {
    for seed in seeds(8) {
        eprintln!("ONWARD_SEED={seed}");
        let mut dice = Dice(seed.wrapping_mul(1_031) + 7);
        let all: Vec<String> = (0..10).map(|number| format!("s{seed}-{number}")).collect();
        let mut settings = QueueSettings { concurrency_max: Some(3), ..QueueSettings::default() };
        set(&harness, settings.clone()).await;
        for id in &all {
            start_as(&harness, queued(id, [None, Some("a"), Some("b")][dice.below(3)])).await;
        }
        for _ in 0..40 {
            let id = &all[dice.below(all.len())];
            match dice.below(9) {
                0 => {
                    settings.concurrency_max = Some(3 + dice.below(3) as u32);
                    settings.key_concurrency_max = Some(3).filter(|_| dice.below(2) == 0);
                    set(&harness, settings.clone()).await;
                }
                1 => harness.reopen(),
                2 => drop(harness.append(id, pause()).await),
                3 => drop(harness.append(id, resume()).await),
                4 => drop(harness.append(id, terminate()).await),
                5 => harness.pass(seconds(20)),
                6 => step(&harness, &mut dice).await,
                _ => let_in(&harness, &settings).await,
            }
        }
        for _ in 0..200 {
            for id in &all {
                drop(harness.append(id, resume()).await);
            }
            let_in(&harness, &settings).await;
            harness.pass(seconds(31));
            harness.expire().await;
            for run in harness.claim("w").await {
                harness.commit(&mut HeldRun::new(&run), vec![completed()]).await;
            }
            if slots(&harness).await.is_empty() {
                break;
            }
        }
        assert_eq!(slots(&harness).await, [], "RQ1: a slot is lost");
        for id in &all {
            assert!(harness.head(id).await.status.is_closed(), "{id}");
            harness.check_run(&key(id)).await;
        }
    }
}

/// Lets runs in, and checks the limits if any began.
async fn let_in(harness: &Harness, settings: &QueueSettings) {
    let begun = harness.expire().await.runs_begun;
    let held: Vec<Task> = slots(harness).await.into_iter().filter(|slot| slot.state == TaskState::Leased).collect();
    if begun > 0 {
        assert!(settings.concurrency_max.is_none_or(|limit| held.len() <= limit as usize), "QL1: {}", held.len());
    }
    for slot in held {
        let head = harness.head_of(&slot.id.run).await;
        assert!(!head.is_in_queue() && !head.status.is_closed(), "RQ1: {head:?}");
    }
}

/// Lets a run that is pending do something.
async fn step(harness: &Harness, dice: &mut Dice) {
    for run in harness.claim("w").await {
        let mut held = HeldRun::new(&run);
        let n = held.head.next_commit as u32;
        let event = match dice.below(4) {
            0 => completed(),
            1 => RunContinued { input: json("1"), checkpoint: None }.into(),
            2 => continue, // its worker falls silent
            _ => timer(n, harness.now().after(seconds(5))),
        };
        let ends = event.ends_log();
        harness.commit(&mut held, vec![event]).await;
        if !ends {
            harness.store().release_run(held.key(), held.head.epoch).await.unwrap();
        }
    }
}

/// A slot belongs to one incarnation of a run.
pub async fn a_run_that_is_deleted_and_started_again_waits_again(harness: Harness) {
    if !set(&harness, limit(1)).await {
        return;
    }
    start(&harness, "a").await;
    let mut a = begin(&harness).await.remove("a").unwrap();
    finish(&harness, &mut a).await;
    harness.store().delete_runs(Delete::Run { key: key("a"), reason: String::new() }).await.unwrap();
    harness.pass(seconds(1));
    start(&harness, "b").await;
    harness.pass(seconds(1));
    start(&harness, "a").await;
    assert_eq!(ids(&begin(&harness).await), ["b"]);
    let waiting: Vec<TaskId> = slots(&harness).await.into_iter().filter(|slot| slot.state == TaskState::Queued).map(|s| s.id).collect();
    assert_eq!(waiting.iter().map(|id| id.run.clone()).collect::<Vec<_>>(), [key("a")]);
}

/// A child of a caller has a parent link; a forged one is not a way around the depth.
pub async fn a_run_that_a_parent_starts_is_queued_like_others(harness: Harness) {
    if !set(&harness, limit(1)).await {
        return;
    }
    let parent = harness.start_held("p").await;
    let mut run = queued("c", None);
    let (generation, call_id) = (0, super::harness::call_id(0));
    let (on_parent_close, incarnation) = (OnParentClose::Abandon, parent.head.incarnation);
    run.started.parent =
        Some(ParentLink { run: key("p"), generation, call_id, on_parent_close, incarnation, is_spawned: false });
    start_as(&harness, run).await;
    harness.pass(seconds(1));
    start(&harness, "d").await;
    assert_eq!(ids(&begin(&harness).await), ["c"]);
}

/// The name of a queue of runs, as stored.
pub async fn the_default_queue_of_runs_has_the_settings_of_the_default_queue(harness: Harness) {
    let row = settings_row(Namespace::default(), None, Some(QueueSettings { paused: true, ..QueueSettings::default() })).unwrap();
    harness.store().register_kinds(vec![row]).await.unwrap();
    let mut run = queued("a", None);
    run.started.queue = Some(Box::new(RunQueue::new(Name::new("default").unwrap())));
    start_as(&harness, run).await;
    assert_eq!(harness.expire().await.runs_begun, 0, "QL4");
    harness.store().register_kinds(vec![settings_row(Namespace::default(), None, None).unwrap()]).await.unwrap();
    assert_eq!(harness.expire().await.runs_begun, 1);
}

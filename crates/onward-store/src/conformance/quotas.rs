//! NQ1 to NQ7: quotas of namespaces, in the write that starts a run or leases a task.

use std::sync::Arc;
use std::time::Duration;

use onward_core::event::{OnParentClose, ParentLink, SignalReceived, StandaloneTask};
use onward_core::queue::QueueRate;
use onward_core::quota::settings::settings_row;
use onward_core::quota::{QuotaSettings, QuotaUse, next_day};
use onward_core::reopen;
use onward_core::run::{Input, NewRun};
use onward_core::spend::{PicoDollars, Spend};
use onward_core::task::{Task, TaskOptions, TaskReport, TaskState};
use onward_core::{CallId, Name, Namespace, Payload};

use super::harness::{
    Harness, HeldRun, completed, json, key, name, namespaces, new_run, new_run_of, refused, seconds, task_of, terminate, worker,
};
use super::restoring::fork;
use super::seeds;
use crate::{ClaimTasks, Restore, RestoreRun, Started, StoreError, TaskQuery};

async fn set(harness: &Harness, quota: impl Into<Option<QuotaSettings>>) {
    let row = settings_row(Namespace::default(), quota.into()).unwrap();
    harness.store().register_kinds(vec![row]).await.unwrap();
}

/// Returns true if the store divides limits among databases: what is refused depends on where runs are, so the sharded store has
/// tests of its own.
async fn is_divided(harness: &Harness) -> bool {
    let row = settings_row(Namespace::default(), Some(runs(1))).unwrap();
    match harness.store().register_kinds(vec![row]).await {
        Err(StoreError::QuotaTooSmall { .. }) => true,
        registered => {
            registered.unwrap();
            set(harness, None).await;
            false
        }
    }
}

fn runs(max: u64) -> QuotaSettings {
    QuotaSettings { runs_open_max: Some(max), ..QuotaSettings::default() }
}

fn tasks(max: u32) -> QuotaSettings {
    QuotaSettings { tasks_running_max: Some(max), ..QuotaSettings::default() }
}

fn in_namespace(namespace: &Namespace, run: NewRun) -> NewRun {
    NewRun { key: onward_core::RunKey { namespace: namespace.clone(), ..run.key }, ..run }
}

async fn start(harness: &Harness, id: &str) -> Result<Started, StoreError> {
    harness.store().start_run(new_run(id), None).await
}

fn started_by(parent: &str, child: &str) -> NewRun {
    let parent = ParentLink {
        run: key(parent),
        generation: 0,
        call_id: CallId::root(0),
        on_parent_close: OnParentClose::Abandon,
        incarnation: None,
        is_spawned: false,
    };
    let mut run = new_run(child);
    run.started.parent = Some(parent);
    run
}

fn standalone(id: &str) -> NewRun {
    let mut run = new_run_of("task:mail", id);
    run.started.task = Some(StandaloneTask { kind: name("mail"), options: TaskOptions::default() });
    run
}

async fn used(harness: &Harness) -> QuotaUse {
    harness.store().quota_use(Namespace::default()).await.unwrap()
}

pub async fn callers_never_start_more_runs_than_may_be_open(mut harness: Harness) {
    if is_divided(&harness).await {
        return;
    }
    set(&harness, runs(2)).await;
    start(&harness, "r1").await.unwrap();
    harness.store().start_run(standalone("t"), None).await.unwrap();
    let error = refused(start(&harness, "r2").await, "quota_exceeded");
    assert_eq!(error.retry_after_ms(), Some(1_000));
    harness.reopen();
    refused(start(&harness, "r2").await, "quota_exceeded");
    assert_eq!(harness.store().read_run(key("r2"), None).await.unwrap(), None, "NQ5: nothing was written");
    assert!(!start(&harness, "r1").await.unwrap().created, "a repeat is no refusal");
    let [_, other] = namespaces();
    for id in ["r1", "r2", "r3"] {
        harness.store().start_run(in_namespace(&other, new_run(id)), None).await.unwrap();
    }
    harness.append("r1", terminate()).await.unwrap();
    start(&harness, "r2").await.unwrap();
    refused(start(&harness, "r3").await, "quota_exceeded");
    set(&harness, runs(3)).await;
    start(&harness, "r3").await.unwrap();
    set(&harness, runs(0)).await;
    refused(start(&harness, "r4").await, "quota_exceeded");
    assert_eq!(used(&harness).await.runs_open, 3, "NQ7");
    set(&harness, None).await;
    start(&harness, "r4").await.unwrap();
}

/// NQ1: many starts at the same time, of which as many succeed as the quota permits.
pub async fn starts_at_the_same_time_share_a_quota(harness: Harness) {
    if is_divided(&harness).await {
        return;
    }
    set(&harness, QuotaSettings { start_rate: Some(QueueRate { starts_max: 9, period_ms: 60_000 }), ..runs(7) }).await;
    let store = harness.store();
    let ids: Vec<String> = (0..40).map(|number| format!("r{number}")).collect();
    let starts: Vec<_> = ids.iter().map(|id| store.start_run(new_run(id), None)).collect();
    let mut begun = Vec::new();
    for (id, start) in ids.iter().zip(starts) {
        begun.extend(start.await.is_ok().then_some(id));
    }
    assert_eq!(begun.len(), 7, "NQ1");
    for id in begun {
        harness.append(id, terminate()).await.unwrap();
    }
    let starts: Vec<_> = ids.iter().map(|id| store.start_run(new_run(&format!("again-{id}")), None)).collect();
    let mut count = 0;
    for start in starts {
        count += usize::from(start.await.is_ok());
    }
    assert_eq!(count, 2, "NQ2");
}

pub async fn children_count_and_are_never_refused(mut harness: Harness) {
    if is_divided(&harness).await {
        return;
    }
    set(&harness, runs(1)).await;
    start(&harness, "p").await.unwrap();
    harness.store().start_run(started_by("p", "p/c"), None).await.unwrap();
    refused(harness.store().start_run(started_by("schedule:nightly", "slot"), None).await, "quota_exceeded");
    harness.reopen();
    assert_eq!(used(&harness).await.runs_open, 2, "NQ1");
    harness.append("p", terminate()).await.unwrap();
    refused(start(&harness, "r").await, "quota_exceeded");
    harness.append("p/c", terminate()).await.unwrap();
    harness.store().start_run(started_by("schedule:nightly", "slot"), None).await.unwrap();
}

/// A fork and a retry open a run for a caller.
pub async fn copies_of_runs_count_as_starts(harness: Harness) {
    if is_divided(&harness).await {
        return;
    }
    schedule(&harness, new_run("r"), &[("mail", None, false)]).await;
    let (head, records) = (harness.head("r").await, harness.records("r").await);
    set(&harness, runs(2)).await;
    let copy = |id: &str| {
        let forked = reopen::fork(&head, Vec::new(), &records, &fork(id, 1, false), harness.now()).unwrap();
        RestoreRun { key: key(id), what: Restore::Run { logs: forked.logs }, outbox: forked.outbox }
    };
    harness.store().restore_run(copy("f")).await.unwrap();
    refused(harness.store().restore_run(copy("g")).await, "quota_exceeded");
    assert_eq!(harness.store().read_run(key("g"), None).await.unwrap(), None, "NQ5");
    assert!(!harness.store().restore_run(copy("f")).await.unwrap().created, "a repeat is no refusal");
}

pub async fn a_start_rate_holds_over_restarts(mut harness: Harness) {
    if is_divided(&harness).await {
        return;
    }
    let rate = QueueRate { starts_max: 2, period_ms: 6_400 };
    set(&harness, QuotaSettings { start_rate: Some(rate), ..QuotaSettings::default() }).await;
    for id in ["r1", "r2"] {
        start(&harness, id).await.unwrap();
        harness.append(id, terminate()).await.unwrap();
    }
    harness.reopen();
    let error = refused(start(&harness, "r3").await, "quota_exceeded");
    let wait = Duration::from_millis(error.retry_after_ms().unwrap());
    assert!(wait <= Duration::from_millis(6_500), "{wait:?}");
    assert!(!start(&harness, "r1").await.unwrap().created, "a repeat is no start");
    harness.store().start_run(started_by("r1", "r1/c"), None).await.unwrap();
    harness.pass(Duration::from_millis(6_399));
    refused(start(&harness, "r3").await, "quota_exceeded");
    harness.pass(Duration::from_millis(101));
    start(&harness, "r3").await.unwrap();
    assert!(used(&harness).await.starts.is_some());
}

/// Schedules a task of each kind, in a queue.
async fn schedule(harness: &Harness, run: NewRun, kinds: &[(&str, Option<&str>, bool)]) -> HeldRun {
    let mut held = harness.start_held_as(run).await;
    let options = |queue: &Option<&str>, costs| TaskOptions { queue: queue.map(name), costs, ..TaskOptions::default() };
    let tasks = kinds.iter().zip(0..).map(|((kind, queue, costs), at)| task_of(kind, at, options(queue, *costs)));
    harness.commit(&mut held, tasks.collect()).await;
    held
}

async fn claim_in(harness: &Harness, namespace: &Namespace, limit: usize) -> Vec<Task> {
    let queues: Vec<Option<Name>> = vec![None, Some(name("q"))];
    let kinds = Arc::new(["mail", "embed", "llm.small"].map(name).to_vec());
    let request = ClaimTasks { worker: worker("t"), namespace: namespace.clone(), queues, kinds, limit, lease: seconds(30) };
    harness.store().claim_tasks(request).await.unwrap()
}

async fn claim(harness: &Harness, limit: usize) -> Vec<Task> {
    claim_in(harness, &Namespace::default(), limit).await
}

async fn finish(harness: &Harness, task: &Task, cost: Option<u64>) {
    let done = TaskReport::Completed(json("1"));
    let line = |cost| Spend::on("small").cost(PicoDollars(cost));
    let done = match cost {
        Some(cost) => done.with_spend(task.attempt_spend(vec![line(cost)])),
        None => done,
    };
    harness.store().report_task(task.id.clone(), task.claim, done, seconds(30)).await.unwrap();
}

const PLAIN: [(&str, Option<&str>, bool); 4] =
    [("mail", None, false), ("mail", Some("q"), false), ("mail", None, false), ("mail", Some("q"), false)];

pub async fn a_namespace_never_runs_more_tasks_than_its_quota(mut harness: Harness) {
    if is_divided(&harness).await {
        return;
    }
    set(&harness, tasks(2)).await;
    schedule(&harness, new_run("r"), &PLAIN).await;
    let [_, other] = namespaces();
    schedule(&harness, in_namespace(&other, new_run("r")), &PLAIN).await;
    let first = claim(&harness, 10).await;
    assert_eq!(first.len(), 2, "NQ3: over all queues");
    harness.reopen();
    assert_eq!(claim(&harness, 10).await, [], "NQ3: the leases count after a restart");
    assert_eq!(claim_in(&harness, &other, 10).await.len(), 4, "NQ5");
    finish(&harness, &first[0], None).await;
    assert_eq!((claim(&harness, 10).await.len(), claim(&harness, 10).await.len()), (1, 0));
    harness.pass(seconds(31));
    harness.expire().await;
    assert_eq!((claim(&harness, 10).await.len(), used(&harness).await.tasks_running), (2, 2), "workers were lost");
    harness.append("r", terminate()).await.unwrap();
    assert_eq!(used(&harness).await.tasks_running, 0);
}

pub async fn attempts_with_a_cost_wait_while_the_day_is_spent(mut harness: Harness) {
    if is_divided(&harness).await {
        return;
    }
    let spend = |max| QuotaSettings { spend_per_day_max: Some(PicoDollars(max)), ..QuotaSettings::default() };
    set(&harness, spend(100)).await;
    let all = [
        ("llm.small", None, false),
        ("llm.small", None, false),
        ("embed", None, true),
        ("mail", None, false),
        ("embed", Some("q"), true),
    ];
    schedule(&harness, new_run("r"), &all).await;
    let [_, other] = namespaces();
    schedule(&harness, in_namespace(&other, new_run("r")), &all).await;
    let first = claim(&harness, 1).await.remove(0);
    finish(&harness, &first, Some(99)).await;
    assert_eq!(used(&harness).await.spent_today, PicoDollars(99));
    let second = claim(&harness, 1).await.remove(0);
    finish(&harness, &second, Some(500)).await;
    harness.reopen();
    assert_eq!(kinds(&claim(&harness, 1).await), ["mail"], "NQ4: what costs is not in the way of what does not");
    assert_eq!(claim(&harness, 10).await, [], "NQ4");
    assert_eq!(claim_in(&harness, &other, 10).await.len(), 5, "NQ5");
    set(&harness, spend(600)).await;
    let third = claim(&harness, 1).await.remove(0);
    finish(&harness, &third, Some(1)).await;
    assert_eq!(claim(&harness, 10).await, [], "NQ4: 600 are spent");
    let until = next_day(harness.now());
    harness.pass(until.since(harness.now()) - Duration::from_millis(1));
    assert_eq!(claim(&harness, 10).await, [], "NQ4: the day is not over");
    harness.pass(Duration::from_millis(1));
    assert_eq!(used(&harness).await.spent_today, PicoDollars(0));
    assert_eq!(claim(&harness, 10).await.len(), 1, "the next day");
}

fn kinds(tasks: &[Task]) -> Vec<&str> {
    tasks.iter().map(|task| task.kind.as_str()).collect()
}

pub async fn a_payload_over_the_quota_enters_on_no_way(mut harness: Harness) {
    set(&harness, QuotaSettings { payload_bytes_max: Some(2_000), ..QuotaSettings::default() }).await;
    harness.reopen();
    let large: Payload = json(&format!("\"{}\"", "x".repeat(2_000)));
    let mut run = new_run("l");
    run.started.input = large.clone();
    refused(harness.store().start_run(run.clone(), None).await, "payload_too_large");
    let [_, other] = namespaces();
    harness.store().start_run(in_namespace(&other, run), None).await.unwrap();
    let mut held = schedule(&harness, new_run("r"), &[("mail", None, false)]).await;
    let records = harness.records("r").await.len();
    let signal = |sender| {
        Input::signal(SignalReceived { name: name("paid"), payload: large.clone(), signal_id: None, sender })
    };
    refused(harness.append("r", signal(None)).await, "payload_too_large");
    let ended = onward_core::event::RunCompleted { output: large.clone(), attempts: None };
    refused(harness.store().commit(held.commit(vec![ended.into()])).await, "payload_too_large");
    let task = claim(&harness, 1).await.remove(0);
    let (store, large_result) = (harness.store(), TaskReport::Completed(large.clone()));
    let reported = store.report_task(task.id.clone(), task.claim, large_result, seconds(30)).await;
    refused(reported, "payload_too_large");
    assert_eq!(harness.records("r").await.len(), records, "NQ5");
    harness.append("r", signal(Some(key("s")))).await.expect("NQ6: what another run sends is in its log");
    harness.read_on(&mut held).await;
    harness.commit(&mut held, vec![completed()]).await;
}

/// Random numbers of one case.
struct Dice(u64);

impl Dice {
    fn below(&mut self, size: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % size
    }

    fn quota(&mut self) -> QuotaSettings {
        let limit = |dice: &mut Dice, below| Some(dice.below(below)).filter(|_| dice.below(4) > 0);
        let runs_open_max = limit(self, 6);
        QuotaSettings { runs_open_max, tasks_running_max: limit(self, 4).map(|max| max as u32), ..QuotaSettings::default() }
    }
}

/// NQ1, NQ3, NQ5: runs start and end, workers die, the store restarts and quotas change; never is more started or leased than the
/// quota permits, never less, and the other namespace is refused nothing.
pub async fn counts_of_a_quota_follow_every_change(mut harness: Harness) {
    if is_divided(&harness).await {
        return;
    }
    for seed in seeds(6) {
        eprintln!("ONWARD_SEED={seed}");
        let mut dice = Dice(seed.wrapping_mul(977) + 13);
        let mut quota = dice.quota();
        set(&harness, quota.clone()).await;
        for step in 0..60 {
            match dice.below(9) {
                0 => {
                    quota = dice.quota();
                    set(&harness, quota.clone()).await;
                }
                1 => harness.reopen(),
                2 => {
                    harness.pass(seconds(1 + dice.below(20)));
                    harness.expire().await;
                }
                3 => end_one_run(&harness, &mut dice).await,
                4 => end_one_task(&harness, &mut dice).await,
                5 | 6 => {
                    let before = used(&harness).await.runs_open;
                    let started = harness.store().start_run(standalone(&format!("t{seed}-{step}")), None).await;
                    let is_free = quota.runs_open_max.is_none_or(|max| before < max);
                    assert_eq!(started.is_ok(), is_free, "NQ1: {before} runs are open with {quota:?}");
                    let [_, other] = namespaces();
                    let neighbor = in_namespace(&other, new_run(&format!("n{seed}-{step}")));
                    harness.store().start_run(neighbor, None).await.expect("NQ5");
                }
                _ => {
                    let (before, waiting) = (used(&harness).await.tasks_running, waiting(&harness).await);
                    let claimed = claim(&harness, 1 + dice.below(4) as usize).await.len() as u64;
                    let room = quota.tasks_running_max.map_or(u64::MAX, |max| u64::from(max).saturating_sub(before));
                    assert!(claimed <= room, "NQ3: {claimed} beside {before} with {quota:?}");
                    assert!(claimed > 0 || room == 0 || waiting == 0, "NQ3: {waiting} wait with {quota:?}");
                }
            }
        }
        set(&harness, None).await;
        for task in open(&harness).await {
            harness.append(task.id.run.id.as_str(), terminate()).await.unwrap();
        }
        assert_eq!(used(&harness).await, QuotaUse::default());
    }
}

async fn open(harness: &Harness) -> Vec<Task> {
    harness.store().list_tasks(TaskQuery { limit: usize::MAX, ..TaskQuery::default() }).await.unwrap()
}

/// Counts the tasks that could be handed out.
async fn waiting(harness: &Harness) -> usize {
    open(harness).await.iter().filter(|task| task.may_be_claimed(harness.now())).count()
}

async fn end_one_run(harness: &Harness, dice: &mut Dice) {
    let open = open(harness).await;
    if !open.is_empty() {
        let task = &open[dice.below(open.len() as u64) as usize];
        harness.append(task.id.run.id.as_str(), terminate()).await.unwrap();
    }
}

/// Ends one leased task: well, interrupted, or with its worker.
async fn end_one_task(harness: &Harness, dice: &mut Dice) {
    let leased: Vec<Task> = open(harness).await.into_iter().filter(|task| task.state == TaskState::Leased).collect();
    if leased.is_empty() {
        return;
    }
    let task = &leased[dice.below(leased.len() as u64) as usize];
    let report = match dice.below(3) {
        0 => TaskReport::WorkerLost,
        1 => TaskReport::Interrupted,
        _ => TaskReport::Completed(json("1")),
    };
    harness.store().report_task(task.id.clone(), task.claim, report, seconds(30)).await.unwrap();
}

pub async fn a_quota_of_payloads_ends_with_its_removal(harness: Harness) {
    set(&harness, QuotaSettings { payload_bytes_max: Some(1_024), ..QuotaSettings::default() }).await;
    let mut run = new_run("l");
    run.started.input = json(&format!("\"{}\"", "x".repeat(2_000)));
    refused(harness.store().start_run(run.clone(), None).await, "payload_too_large");
    set(&harness, None).await;
    assert!(harness.store().start_run(run, None).await.unwrap().created);
}

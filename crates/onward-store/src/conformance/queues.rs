//! QL1 to QL7: limits and shares of queues, in the write that leases the tasks.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use onward_core::event::{StandaloneTask, TaskCanceled};
use onward_core::queue::settings::settings_row;
use onward_core::queue::{KeyWeight, QueueLimit, QueueRate, QueueSettings};
use onward_core::run::NewRun;
use onward_core::task::{Task, TaskOptions, TaskReport, TaskState};
use onward_core::{Event, Failure, Name, Namespace};

use super::harness::{
    Harness, HeldRun, call_id, completed, json, key, name, new_run_of, refused, seconds, task, terminate, worker,
};
use super::seeds;
use crate::{ClaimTasks, Registration, TaskQuery};

const QUEUE: &str = "q";

fn options(key: Option<&str>) -> TaskOptions {
    TaskOptions { queue: Some(name(QUEUE)), key: key.map(name), ..TaskOptions::default() }
}

/// Sets the limits of each database. All runs of a case have one root, so they are in one of them.
async fn set(harness: &Harness, settings: impl Into<Option<QueueSettings>>) {
    let databases = harness.databases();
    let limit = |limit: Option<u32>| limit.map(|limit| limit * databases);
    let rate = |rate: Option<QueueRate>| rate.map(|of| QueueRate { starts_max: of.starts_max * databases, ..of });
    let scaled = settings.into().map(|of: QueueSettings| QueueSettings {
        concurrency_max: limit(of.concurrency_max),
        key_concurrency_max: limit(of.key_concurrency_max),
        rate: rate(of.rate),
        key_rate: rate(of.key_rate),
        depth_max: of.depth_max.map(|depth| depth * u64::from(databases)),
        ..of
    });
    let row = settings_row(Namespace::default(), Some(&name(QUEUE)), scaled).unwrap();
    harness.store().register_kinds(vec![row], Registration::Always).await.unwrap();
}

/// Schedules a task for each key; the empty text stands for none.
async fn schedule(harness: &Harness, run: &str, keys: &[&str]) -> HeldRun {
    let mut held = harness.start_held(run).await;
    let tasks = keys.iter().zip(0..).map(|(key, at)| task(at, options(Some(*key).filter(|key| !key.is_empty()))));
    harness.commit(&mut held, tasks.collect()).await;
    held
}

/// Schedules tasks without a key that need so many slots.
async fn schedule_slots(harness: &Harness, run: &str, needs: &[u32]) -> HeldRun {
    let mut held = harness.start_held(run).await;
    let tasks = needs.iter().zip(0..).map(|(slots, at)| task(at, TaskOptions { slots: Some(*slots), ..options(None) }));
    harness.commit(&mut held, tasks.collect()).await;
    held
}

fn slots(tasks: &[Task]) -> Vec<u32> {
    tasks.iter().map(|task| task.options.slots()).collect()
}

async fn claim(harness: &Harness, limit: usize) -> Vec<Task> {
    claim_from(harness, vec![Some(name(QUEUE))], limit).await
}

async fn claim_from(harness: &Harness, queues: Vec<Option<Name>>, limit: usize) -> Vec<Task> {
    let (namespace, kinds) = (Namespace::default(), Arc::new(vec![name("mail")]));
    let request = ClaimTasks { worker: worker("t"), namespace, queues, kinds, limit, lease: seconds(30) };
    harness.store().claim_tasks(request).await.unwrap()
}

fn keys(tasks: &[Task]) -> Vec<&str> {
    let mut keys: Vec<&str> = tasks.iter().map(|task| task.options.key_text()).collect();
    keys.sort_unstable();
    keys
}

async fn finish(harness: &Harness, task: &Task) {
    let done = TaskReport::Completed(json("1"));
    harness.store().report_task(task.id.clone(), task.claim, done, seconds(30)).await.unwrap();
}

pub async fn a_queue_never_runs_more_than_its_limit(mut harness: Harness) {
    set(&harness, QueueSettings { concurrency_max: Some(2), ..Default::default() }).await;
    schedule(&harness, "r", &["", "", "", "", ""]).await;
    let first = claim(&harness, 10).await;
    assert_eq!(first.len(), 2, "QL1");
    harness.reopen();
    assert_eq!(claim(&harness, 10).await, [], "QL1: the leases count after a restart");
    finish(&harness, &first[0]).await;
    assert_eq!(claim(&harness, 10).await.len(), 1, "QL3");
    set(&harness, QueueSettings { concurrency_max: Some(3), ..Default::default() }).await;
    assert_eq!(claim(&harness, 10).await.len(), 1, "a raised limit counts at the next claim");
    set(&harness, None).await;
    assert_eq!(claim(&harness, 10).await.len(), 1, "there is no limit any more");
}

pub async fn a_key_never_runs_more_than_its_limit(mut harness: Harness) {
    set(&harness, QueueSettings { key_concurrency_max: Some(1), ..Default::default() }).await;
    schedule(&harness, "r", &["a", "a", "b", "", "", "a"]).await;
    let first = claim(&harness, 10).await;
    assert_eq!(keys(&first), ["", "", "a", "b"], "QL1");
    harness.reopen();
    assert_eq!(claim(&harness, 10).await, []);
    let of_a = first.iter().find(|task| task.options.key == Some(name("a"))).unwrap();
    finish(&harness, of_a).await;
    assert_eq!(keys(&claim(&harness, 10).await), ["a"], "QL3");
}

/// Checks QL3: a worker that dies, a task that is canceled, and a run that ends free their slots.
pub async fn a_slot_is_freed_however_its_task_ends(mut harness: Harness) {
    set(&harness, QueueSettings { concurrency_max: Some(1), ..Default::default() }).await;
    let mut held = schedule(&harness, "r", &["a", "a", "a", "a"]).await;
    let first = claim(&harness, 10).await;
    assert_eq!((first.len(), claim(&harness, 10).await.len()), (1, 0));
    let cancel = TaskCanceled { call_id: first[0].id.call_id.clone() };
    harness.commit(&mut held, vec![Event::from(cancel)]).await;
    assert_eq!((claim(&harness, 10).await.len(), claim(&harness, 10).await.len()), (1, 0), "it was canceled");
    harness.reopen();
    harness.pass(seconds(31));
    harness.expire().await;
    assert_eq!((claim(&harness, 10).await.len(), claim(&harness, 10).await.len()), (1, 0), "its worker was lost");
    schedule(&harness, "r/s", &["a"]).await;
    harness.append("r", terminate()).await.unwrap();
    let last = claim(&harness, 10).await;
    assert_eq!(last.iter().map(|task| task.id.run.id.as_str()).collect::<Vec<_>>(), ["r/s"], "its run has ended");
}

pub async fn a_task_holds_the_slots_that_it_needs(mut harness: Harness) {
    set(&harness, QueueSettings { concurrency_max: Some(4), ..Default::default() }).await;
    schedule_slots(&harness, "r", &[3, 2, 1, 1]).await;
    let first = claim(&harness, 10).await;
    assert_eq!(slots(&first), [3], "QL1, QL9: the fourth slot is kept for the next task");
    harness.reopen();
    assert_eq!(claim(&harness, 10).await, [], "QL1: the slots count after a restart");
    finish(&harness, &first[0]).await;
    assert_eq!(slots(&claim(&harness, 10).await), [2, 1, 1], "QL3");
    assert_eq!(claim(&harness, 10).await, []);
}

pub async fn slots_count_for_the_key(harness: Harness) {
    set(&harness, QueueSettings { key_concurrency_max: Some(3), ..Default::default() }).await;
    let mut held = harness.start_held("r").await;
    let with = |at, key, slots| task(at, TaskOptions { slots: Some(slots), ..options(Some(key)) });
    harness.commit(&mut held, vec![with(0, "a", 2), with(1, "a", 2), with(2, "a", 1), with(3, "b", 3)]).await;
    let mut first = claim(&harness, 10).await;
    first.sort_by_key(|task| task.id.call_id.clone());
    assert_eq!(slots(&first), [2, 3], "QL1");
    finish(&harness, &first[0]).await;
    assert_eq!(slots(&claim(&harness, 10).await), [2, 1], "QL3");
}

/// Checks QL8: nothing is written for a caller, and the code of a run learns it at once.
pub async fn a_task_that_needs_too_many_slots_is_refused(mut harness: Harness) {
    set(&harness, QueueSettings { concurrency_max: Some(2), ..Default::default() }).await;
    let mut run: NewRun = new_run_of("task:mail", "t");
    run.started.task = Some(StandaloneTask { kind: name("mail"), options: TaskOptions { slots: Some(3), ..options(None) } });
    let why = refused(harness.store().start_run(run.clone(), None).await, "slots_invalid");
    assert!(why.to_string().contains("needs 3 slots, and `concurrency_max` of queue q is 2"), "{why}");
    assert_eq!(harness.store().read_run(run.key, None).await.unwrap(), None);
    schedule_slots(&harness, "r", &[3, 2]).await;
    assert_eq!(slots(&claim(&harness, 10).await), [2], "it is not handed out");
    harness.reopen();
    harness.pass(seconds(1));
    harness.expire().await;
    let log = harness.check_run(&key("r")).await;
    let failed: Vec<&Failure> = log.events().filter_map(|(_, event)| task_failure(event)).collect();
    assert!(matches!(*failed, [failure] if failure.code == "slots_invalid" && !failure.retryable), "{failed:?}");
    assert_eq!(open(&harness).await.len(), 1, "the other one runs");
}

fn task_failure(event: &Event) -> Option<&Failure> {
    match event {
        Event::TaskFailed(failed) => Some(&failed.failure),
        _ => None,
    }
}

pub async fn a_task_that_needs_more_than_a_lowered_limit_runs_alone(harness: Harness) {
    set(&harness, QueueSettings { concurrency_max: Some(5), ..Default::default() }).await;
    schedule_slots(&harness, "r", &[1, 5, 1]).await;
    set(&harness, QueueSettings { concurrency_max: Some(2), ..Default::default() }).await;
    let mut order = Vec::new();
    for _ in 0..3 {
        let claimed = claim(&harness, 10).await;
        order.extend(slots(&claimed));
        assert_eq!(claim(&harness, 10).await, [], "QL8, QL9");
        finish(&harness, &claimed[0]).await;
    }
    assert_eq!(order, [1, 5, 1]);
}

pub async fn keys_of_a_queue_take_turns(harness: Harness) {
    let mut flood = vec!["a"; 40];
    flood.extend(["b", "c", "b"]);
    schedule(&harness, "r", &flood).await;
    // Tasks with keys take turns even if the queue has no settings.
    assert_eq!(keys(&claim(&harness, 4).await), ["a", "a", "b", "c"], "QL5");
    assert_eq!(keys(&claim(&harness, 2).await), ["a", "b"], "QL5");
    set(&harness, QueueSettings { weights: vec![KeyWeight { key: name("d"), weight: 3 }], ..Default::default() }).await;
    schedule(&harness, "r/s", &["d"; 9]).await;
    let mut claimed = Vec::new();
    for _ in 0..8 {
        claimed.extend(claim(&harness, 1).await);
    }
    assert_eq!(keys(&claimed), ["a", "a", "d", "d", "d", "d", "d", "d"], "QL5");
}

pub async fn tasks_of_a_key_go_by_rank(harness: Harness) {
    let mut held = harness.start_held("r").await;
    let with = |priority| TaskOptions { priority: Some(priority), ..options(Some("a")) };
    harness.commit(&mut held, vec![task(0, with(0)), task(1, with(1))]).await;
    harness.pass(seconds(59));
    harness.commit(&mut held, vec![task(2, with(1))]).await;
    harness.pass(seconds(2));
    harness.commit(&mut held, vec![task(3, with(1))]).await;
    let mut order = Vec::new();
    for _ in 0..4 {
        order.extend(claim(&harness, 1).await.into_iter().map(|task| task.id.call_id));
    }
    assert_eq!(order, [1, 2, 0, 3].map(call_id), "QL6: a level is worth a minute");
}

pub async fn a_rate_holds_over_restarts(mut harness: Harness) {
    let rate = |starts_max| Some(QueueRate { starts_max, period_ms: 6_400 });
    set(&harness, QueueSettings { rate: rate(3), key_rate: rate(2), ..Default::default() }).await;
    schedule(&harness, "r", &["a", "a", "a", "b", "b", "b"]).await;
    let first = claim(&harness, 10).await;
    assert_eq!(keys(&first), ["a", "a", "b"], "QL2");
    for task in &first {
        finish(&harness, task).await;
    }
    harness.reopen();
    assert_eq!(claim(&harness, 10).await, [], "QL2: what has ended counts");
    harness.pass(Duration::from_millis(6_399));
    assert_eq!(claim(&harness, 10).await, [], "QL2");
    harness.pass(Duration::from_millis(101));
    assert_eq!(claim(&harness, 10).await.len(), 3, "the period is over");
}

pub async fn a_paused_queue_hands_out_nothing(harness: Harness) {
    schedule(&harness, "r", &["a", ""]).await;
    set(&harness, QueueSettings { paused: true, ..Default::default() }).await;
    assert_eq!(claim(&harness, 10).await, [], "QL4");
    let mut other = harness.start_held("r/s").await;
    harness.commit(&mut other, vec![task(0, TaskOptions::default())]).await;
    assert_eq!(claim_from(&harness, vec![Some(name(QUEUE)), None], 10).await.len(), 1, "other queues continue");
    set(&harness, QueueSettings::default()).await;
    assert_eq!(claim(&harness, 10).await.len(), 2);
}

pub async fn a_full_queue_refuses_standalone_tasks(mut harness: Harness) {
    let start = |id: &str| {
        let mut run: NewRun = new_run_of("task:mail", id);
        run.started.task = Some(StandaloneTask { kind: name("mail"), options: options(None) });
        run
    };
    set(&harness, QueueSettings { depth_max: Some(2), ..Default::default() }).await;
    harness.store().start_run(start("t/1"), None).await.unwrap();
    harness.store().start_run(start("t/2"), None).await.unwrap();
    refused(harness.store().start_run(start("t/3"), None).await, "queue_full");
    harness.reopen();
    assert_eq!(harness.store().read_run(start("t/3").key, None).await.unwrap(), None, "QL7: nothing was written");
    assert!(!harness.store().start_run(start("t/2"), None).await.unwrap().created, "a repeat is no refusal");
    // What a run schedules is never refused.
    schedule(&harness, "r", &["", ""]).await;
    assert_eq!(claim(&harness, 3).await.len(), 3);
    harness.store().start_run(start("t/3"), None).await.unwrap();
    set(&harness, QueueSettings { depth_max: Some(0), ..Default::default() }).await;
    refused(harness.store().start_run(start("t/4"), None).await, "queue_full");
}

pub async fn keys_are_listed_with_what_waits_and_runs(mut harness: Harness) {
    let rate = Some(QueueRate { starts_max: 1, period_ms: 60_000 });
    set(&harness, QueueSettings { key_rate: rate, ..Default::default() }).await;
    schedule(&harness, "r", &["a", "a", "b", ""]).await;
    let at = harness.now();
    assert_eq!(claim(&harness, 10).await.len(), 3);
    harness.reopen();
    let of = harness.store().list_queue_keys(Namespace::default(), Some(name(QUEUE)), 10).await.unwrap();
    let shown: Vec<_> = of.iter().map(|load| (load.key.clone(), load.waiting, load.running, load.oldest_at)).collect();
    assert_eq!(shown, [(Some(name("a")), 1, 1, Some(at)), (None, 0, 1, None), (Some(name("b")), 0, 1, None)]);
    assert!(of[0].starts.is_some() && of[1].starts.is_none());
    assert_eq!(harness.store().list_queue_keys(Namespace::default(), None, 10).await.unwrap(), []);
}

pub async fn what_a_queue_uses_of_its_limits_is_read_with_its_keys(mut harness: Harness) {
    let rate = || Some(QueueRate { starts_max: 3, period_ms: 60_000 });
    let settings = QueueSettings { rate: rate(), key_rate: rate(), ..Default::default() };
    set(&harness, settings.clone()).await;
    schedule(&harness, "r", &["a", "a", "b", "c"]).await;
    assert_eq!(claim(&harness, 10).await.len(), 3);
    harness.reopen();
    let keys = ["a", "b", "c", "none"].map(name).to_vec();
    let used = harness.store().read_queue_use(Namespace::default(), Some(name(QUEUE)), keys).await.unwrap();
    let of_keys: Vec<_> = used.keys.iter().map(|of| (of.key.as_str(), of.held, of.starts.is_some())).collect();
    assert_eq!(of_keys, [("a", 1, true), ("b", 1, true), ("c", 1, true), ("none", 0, false)]);
    assert_eq!((used.held, used.rate_used(&settings, harness.now())), (3, Some(3)));
    let hold = used.hold_of(&options(Some("a")), &settings, harness.now()).unwrap();
    assert_eq!((hold.by, hold.until.is_some()), (QueueLimit::Rate, true));
    let elsewhere =
        harness.store().read_queue_use(Namespace::new("other").unwrap(), Some(name(QUEUE)), vec![name("a")]).await.unwrap();
    assert_eq!((elsewhere.held, elsewhere.starts, elsewhere.keys[0].held), (0, None, 0));
    let query = |queue, key| TaskQuery { queue, key, limit: 9, ..TaskQuery::default() };
    let list = async |query| harness.store().list_tasks(query).await.unwrap().len();
    assert_eq!(list(query(Some(Some(name(QUEUE))), None)).await, 4);
    assert_eq!(list(query(Some(Some(name(QUEUE))), Some(name("a")))).await, 2);
    assert_eq!(list(query(Some(None), None)).await, 0, "no task is in the default queue");
}

/// Random numbers of one case.
struct Dice(u64);

impl Dice {
    fn below(&mut self, size: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % size
    }

    /// Returns the options of a task of any key; a third of them need several slots.
    fn options(&mut self) -> TaskOptions {
        let key = [None, Some("a"), Some("b"), Some("c")][self.below(4) as usize];
        TaskOptions { slots: [None, None, None, None, Some(2), Some(3)][self.below(6) as usize], ..options(key) }
    }

    fn settings(&mut self) -> QueueSettings {
        let limit = |dice: &mut Dice, below| Some(1 + dice.below(below) as u32).filter(|_| dice.below(3) > 0);
        QueueSettings { concurrency_max: limit(self, 5), key_concurrency_max: limit(self, 3), ..QueueSettings::default() }
    }
}

/// Checks QL1 and QL3: workers die, tasks end in every way, the store restarts and limits change, and never are more leases given
/// than the limits permit; in the end every task is handed out, so no slot was lost.
pub async fn holders_never_exceed_a_limit_and_no_slot_is_lost(mut harness: Harness) {
    for seed in seeds(8) {
        eprintln!("ONWARD_SEED={seed}");
        let mut dice = Dice(seed.wrapping_mul(977) + 13);
        let mut settings = dice.settings();
        set(&harness, settings.clone()).await;
        let mut held = harness.start_held(&format!("r{seed}")).await;
        harness.commit(&mut held, (0..24).map(|at| task(at, dice.options())).collect()).await;
        for _ in 0..40 {
            match dice.below(8) {
                0 => {
                    settings = dice.settings();
                    set(&harness, settings.clone()).await;
                }
                1 => harness.reopen(),
                2 => {
                    harness.pass(seconds(1 + dice.below(20)));
                    harness.expire().await;
                }
                3 | 4 => end_one(&harness, &mut dice).await,
                _ => {
                    let before = leased(&harness).await;
                    let limit = dice.below(6) as usize;
                    let claimed = claim(&harness, limit).await;
                    assert!(claimed.len() <= limit);
                    check(&settings, &before, &claimed);
                }
            }
        }
        drain(&harness).await;
        harness.append(&format!("r{seed}"), terminate()).await.unwrap();
    }
}

/// Returns the slots of the leases of the queue, by key.
async fn leased(harness: &Harness) -> BTreeMap<String, Vec<u32>> {
    let mut leases: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for task in open(harness).await.into_iter().filter(|task| task.state == TaskState::Leased) {
        leases.entry(task.options.key_text().to_owned()).or_default().push(task.options.slots());
    }
    leases
}

async fn open(harness: &Harness) -> Vec<Task> {
    harness.store().list_tasks(TaskQuery { limit: usize::MAX, ..TaskQuery::default() }).await.unwrap()
}

/// Checks what was claimed beside what was leased before. A task that needs more than a limit runs alone (QL8).
fn check(settings: &QueueSettings, before: &BTreeMap<String, Vec<u32>>, claimed: &[Task]) {
    let exceeds =
        |held: &[u32], limit: Option<u32>| held.len() > 1 && limit.is_some_and(|limit| held.iter().sum::<u32>() > limit);
    let mut now = before.clone();
    for task in claimed {
        now.entry(task.options.key_text().to_owned()).or_default().push(task.options.slots());
    }
    let all = now.values().flatten().copied().collect::<Vec<u32>>();
    assert!(claimed.is_empty() || !exceeds(&all, settings.concurrency_max), "QL1: {now:?} after {before:?}");
    for key in claimed.iter().filter_map(|task| task.options.key.as_ref()) {
        assert!(!exceeds(&now[key.as_str()], settings.key_concurrency_max), "QL1: {now:?} of key {key}");
    }
}

/// Ends one leased task: well, badly, interrupted, or with its worker.
async fn end_one(harness: &Harness, dice: &mut Dice) {
    let leased: Vec<Task> = open(harness).await.into_iter().filter(|task| task.state == TaskState::Leased).collect();
    if leased.is_empty() {
        return;
    }
    let task = &leased[dice.below(leased.len() as u64) as usize];
    let report = match dice.below(4) {
        0 => TaskReport::WorkerLost,
        1 => TaskReport::Interrupted,
        2 => task.not_started(),
        _ => TaskReport::Completed(json("1")),
    };
    harness.store().report_task(task.id.clone(), task.claim, report, seconds(30)).await.unwrap();
}

/// Hands out every task that is left, one slot at a time, and ends it.
async fn drain(harness: &Harness) {
    set(harness, QueueSettings { concurrency_max: Some(1), key_concurrency_max: Some(1), ..QueueSettings::default() }).await;
    for _ in 0..1_000 {
        let tasks = open(harness).await;
        for task in &tasks {
            match task.state {
                TaskState::Leased => finish(harness, task).await,
                TaskState::Quarantined if task.refused.is_some() => drop(harness.expire().await),
                TaskState::Quarantined => harness.store().retry_task(task.id.clone()).await.unwrap(),
                TaskState::Queued => {}
            }
        }
        if tasks.is_empty() {
            return;
        }
        harness.pass(seconds(40)); // tasks that lost workers wait a moment (K5)
        claim(harness, 10).await;
    }
    panic!("QL3: a slot is lost: {:?}", open(harness).await);
}

/// Checks the check itself.
pub async fn the_check_of_holders_notices_one_too_many(harness: Harness) {
    schedule(&harness, "r", &["a", "a"]).await;
    let claimed = claim(&harness, 10).await;
    let settings = QueueSettings { key_concurrency_max: Some(1), ..QueueSettings::default() };
    let is_noticed = |settings: &QueueSettings, before: &BTreeMap<String, Vec<u32>>| {
        std::panic::catch_unwind(AssertUnwindSafe(|| check(settings, before, &claimed))).is_err()
    };
    assert!(is_noticed(&settings, &BTreeMap::new()));
    let settings = QueueSettings { concurrency_max: Some(2), ..QueueSettings::default() };
    let before = BTreeMap::from([("b".to_owned(), vec![1])]);
    assert!(is_noticed(&settings, &before));
}

/// Checks that a run that ends while its tasks run frees all their slots in the same write.
pub async fn the_end_of_a_run_frees_all_its_slots(harness: Harness) {
    set(&harness, QueueSettings { key_concurrency_max: Some(2), ..Default::default() }).await;
    let mut held = schedule(&harness, "r", &["a", "a"]).await;
    assert_eq!(claim(&harness, 10).await.len(), 2);
    schedule(&harness, "r/s", &["a", "a"]).await;
    assert_eq!(claim(&harness, 10).await, []);
    harness.commit(&mut held, vec![completed()]).await;
    assert_eq!(claim(&harness, 10).await.len(), 2, "QL3");
}

/// Checks that settings of another namespace or queue do not matter.
pub async fn limits_are_those_of_the_queue_and_namespace(harness: Harness) {
    let paused = || Some(QueueSettings { paused: true, ..Default::default() });
    let elsewhere = [
        settings_row(Namespace::new("other").unwrap(), Some(&name(QUEUE)), paused()),
        settings_row(Namespace::default(), None, paused()),
    ];
    let rows: Result<Vec<_>, _> = elsewhere.into_iter().collect();
    harness.store().register_kinds(rows.unwrap(), Registration::Always).await.unwrap();
    schedule(&harness, "r", &["", "a"]).await;
    assert_eq!(claim(&harness, 10).await.len(), 2);
    let mut held = harness.start_held("r/s").await;
    harness.commit(&mut held, vec![task(0, TaskOptions::default())]).await;
    assert_eq!(claim_from(&harness, vec![None], 10).await, [], "the default queue is paused");
}

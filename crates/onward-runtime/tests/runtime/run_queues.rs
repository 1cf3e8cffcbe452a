//! Queues of runs: holders never exceed a limit and every run begins, wherever the store fails; defaults of kinds place runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use onward_core::api::{PutDefaultsRequest, PutQueueRequest};
use onward_core::queue::QueueSettings;
use onward_core::task::{Task, TaskState};
use onward_core::{KindDefaults, Name, Namespace, Payload, Status, WorkerId};
use onward_runtime::{Runtime, StartRequest};
use onward_store::{ClaimRuns, Store, TaskQuery};

use crate::faulty::When;
use crate::kit::*;

const OPERATIONS: [&str; 5] = ["start_run", "append_input", "expire", "claim_runs", "commit"];

fn queued(id: &str, key: Option<&str>) -> StartRequest {
    StartRequest { queue: Some(name("deploys")), key: key.map(name), ..start(id) }
}

async fn limit(kit: &Harness, settings: QueueSettings) {
    let request = PutQueueRequest { namespace: Namespace::default(), queue: Some(name("deploys")), settings };
    kit.runtime.put_queue(request).await.unwrap();
}

fn one() -> QueueSettings {
    QueueSettings { concurrency_max: Some(1), ..QueueSettings::default() }
}

async fn slots(kit: &Harness) -> Vec<Task> {
    let open = kit.store.list_tasks(TaskQuery { limit: usize::MAX, ..TaskQuery::default() }).await.unwrap();
    open.into_iter().filter(Task::is_slot).collect()
}

/// Random numbers of one case.
struct Dice(u64);

impl Dice {
    fn below(&mut self, size: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % size as u64) as usize
    }
}

/// Claims what is pending and lets it do something; errors of the store are those of a process that died there.
async fn work(kit: &Harness, dice: &mut Dice, ends: bool) {
    let knows = Arc::new(BTreeMap::from([(name("order"), vec![None])]));
    let request = ClaimRuns { worker: WorkerId::new("w").unwrap(), namespace: Namespace::default(), knows, limit: 100 };
    let Ok(claimed) = kit.store.claim_runs(request).await else { return };
    for run in claimed {
        let mut held = HeldRun::of(&run);
        let event = match dice.below(4) {
            _ if ends => completed(),
            0 => continued(),
            1 => continue, // its worker dies
            2 => awaited(held.n as u32, "go"),
            _ => completed(),
        };
        drop(kit.try_commit(&mut held, vec![event]).await);
    }
}

/// RQ1: checks who holds a slot.
async fn check(kit: &Harness, settings: &QueueSettings) {
    let held: Vec<Task> = slots(kit).await.into_iter().filter(|slot| slot.state == TaskState::Leased).collect();
    assert!(settings.concurrency_max.is_none_or(|max| held.len() <= max as usize), "QL1: {} of {settings:?}", held.len());
    let mut keys: BTreeMap<&str, u32> = BTreeMap::new();
    for slot in held.iter().filter(|slot| slot.options.key.is_some()) {
        *keys.entry(slot.options.key_text()).or_default() += 1;
    }
    assert!(settings.key_concurrency_max.is_none_or(|max| keys.values().all(|count| *count <= max)), "QL1: {keys:?}");
    for slot in &held {
        let head = kit.head(slot.id.run.id.as_str()).await;
        assert!(!head.is_in_queue() && !head.status.is_closed() && slot.id.generation == head.generation, "RQ1: {head:?}");
    }
}

/// RQ1, RQ2: two runtimes share a store; operations fail before or after their write, as if the process had died there.
#[tokio::test(start_paused = true)]
async fn holders_never_exceed_a_limit_and_all_runs_end_wherever_a_process_dies() {
    let first: u64 = std::env::var("ONWARD_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    for seed in first..first + 300 {
        println!("ONWARD_SEED={seed}");
        let (kit, mut dice) = (Harness::new(), Dice(seed.wrapping_mul(7_919) + 3));
        let other = kit.other_runtime();
        let max = |dice: &mut Dice| Some(1 + dice.below(3) as u32).filter(|_| dice.below(3) > 0);
        let settings =
            QueueSettings { concurrency_max: max(&mut dice), key_concurrency_max: max(&mut dice), ..QueueSettings::default() };
        limit(&kit, settings.clone()).await;
        let runs: Vec<(String, Option<&str>)> =
            (0..7).map(|run| (format!("r{run}"), [None, Some("a"), Some("b")][dice.below(3)])).collect();
        for step in 0..40 {
            if dice.below(3) == 0 {
                kit.store.clear();
                kit.store.fail_once(OPERATIONS[dice.below(OPERATIONS.len())], [When::Before, When::After][dice.below(2)]);
            }
            let runtime: &Runtime = [&kit.runtime, &other][dice.below(2)];
            match dice.below(6) {
                0 | 1 => {
                    let (id, key) = &runs[if step < 14 { step / 2 } else { dice.below(runs.len()) }];
                    drop(runtime.start_run(queued(id, *key)).await);
                }
                2 => drop(tokio::join!(kit.runtime.tick(), other.tick())),
                3 => kit.advance(seconds(11)),
                4 => drop(runtime.signal_run(&key(&runs[dice.below(runs.len())].0), signal("go")).await),
                _ => work(&kit, &mut dice, false).await,
            }
            kit.store.clear();
            check(&kit, &settings).await;
        }
        for (id, of) in &runs {
            kit.runtime.start_run(queued(id, *of)).await.unwrap();
        }
        for _ in 0..60 {
            kit.settle().await;
            check(&kit, &settings).await;
            for (id, _) in &runs {
                drop(kit.runtime.resume_run(&key(id), None).await);
                drop(kit.runtime.signal_run(&key(id), signal("go")).await);
            }
            work(&kit, &mut dice, true).await;
            kit.advance(seconds(31));
        }
        assert_eq!(slots(&kit).await, [], "RQ1: no slot is lost");
        for (id, _) in &runs {
            assert_eq!(kit.head(id).await.status, Status::Completed, "{id}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_begins_at_once_in_a_free_queue_and_when_a_slot_is_freed() {
    let kit = Harness::new();
    limit(&kit, one()).await;
    let background = kit.runtime.spawn();
    let worker = kit.worker("w");
    let begun = tokio::time::Instant::now();
    kit.runtime.start_run(queued("a", None)).await.unwrap();
    let mut a = kit.next_held(&worker).await;
    kit.runtime.start_run(queued("b", None)).await.unwrap();
    assert!(waits(worker.next_runs(1)).await);
    let freed = tokio::time::Instant::now();
    kit.complete(&mut a).await;
    let b = kit.next_held(&worker).await;
    assert_eq!(b.key, key("b"));
    let at_once = std::time::Duration::from_millis(900); // less than the fallback
    assert!(begun.elapsed() < at_once + seconds(100) && freed.elapsed() < at_once, "{:?}", freed.elapsed());
    kit.runtime.start_run(queued("c", None)).await.unwrap();
    let raised = tokio::time::Instant::now();
    kit.runtime.delete_queue(&Namespace::default(), Some(&name("deploys"))).await.unwrap();
    assert_eq!(kit.next_held(&worker).await.key, key("c"));
    assert!(raised.elapsed() < at_once, "a change of settings wakes the queue");
    background.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_place_that_is_wrong_is_refused_and_nothing_is_started() {
    let kit = Harness::new();
    let long = "q".repeat(255);
    for wrong in [
        StartRequest { key: Some(name("k")), ..start("r") },
        StartRequest { priority: Some(1), ..start("r") },
        StartRequest { queue: Some(name("runs:deploys")), ..start("r") },
        StartRequest { queue: Some(name(&long)), ..start("r") },
    ] {
        let error = kit.runtime.start_run(wrong).await.unwrap_err();
        assert_eq!(error.code(), "run_queue_invalid", "{error}");
        assert!(error.hint().is_some() && kit.runtime.read_head(&key("r")).await.is_err());
    }
    let reserved = PutQueueRequest { namespace: Namespace::default(), queue: Some(name("runs:x")), settings: one() };
    refused(kit.runtime.put_queue(reserved).await, "run_queue_invalid");
    refused(kit.runtime.read_queue(&Namespace::default(), Some(name("runs:x"))).await, "run_queue_invalid");
}

async fn defaults(kit: &Harness, defaults: KindDefaults) -> Result<(), onward_runtime::RuntimeError> {
    let request = PutDefaultsRequest { namespace: Namespace::default(), kind: name("order"), defaults };
    kit.runtime.put_defaults(request).await.map(drop)
}

fn keyed(key: &str) -> KindDefaults {
    KindDefaults { queue: Some(name("deploys")), priority: Some(2), key: Some(key.to_owned()), ..KindDefaults::default() }
}

fn with_input(id: &str, input: &str) -> StartRequest {
    StartRequest { input: Payload::from_json_text(input.to_owned()), ..start(id) }
}

/// KD1, KD2
#[tokio::test(start_paused = true)]
async fn defaults_of_a_kind_place_its_runs_by_an_expression_over_the_input() {
    let kit = Harness::new();
    defaults(&kit, keyed("{{ input.tenant }}")).await.unwrap();
    let place = async |start: StartRequest| {
        let head = kit.runtime.start_run(start).await.unwrap().head;
        head.queue.map(|queue| (queue.name.to_string(), queue.key.map(|key| key.to_string()), queue.priority))
    };
    let of = |key: Option<&str>, priority| Some(("deploys".to_owned(), key.map(str::to_owned), priority));
    assert_eq!(place(with_input("a", r#"{"tenant": "acme"}"#)).await, of(Some("acme"), 2));
    assert_eq!(place(with_input("b", r#"{"tenant": 7}"#)).await, of(Some("7"), 2));
    assert_eq!(place(with_input("c", r#"{"tenant": ""}"#)).await, of(None, 2));
    let own = StartRequest { key: Some(name("own")), priority: Some(0), ..with_input("d", "{}") };
    assert_eq!(place(own).await, of(Some("own"), 0), "KD1");

    for input in ["{}", r#"{"tenant": {"id": 1}}"#] {
        let error = kit.runtime.start_run(with_input("e", input)).await.unwrap_err();
        assert_eq!(error.code(), "run_queue_invalid", "{error}");
        assert!(kit.runtime.read_head(&key("e")).await.is_err(), "nothing was started");
    }
    let error = kit.runtime.start_run(with_input("e", "{}")).await.unwrap_err();
    assert!(error.to_string().contains("position") && error.to_string().contains("tenant"), "{error}");
    let opaque = StartRequest { input: Payload::binary("application/octet-stream", vec![1, 2]), ..start("e") };
    assert!(kit.runtime.start_run(opaque).await.unwrap_err().to_string().contains("cannot read"));

    // A repeat of a start is none, whatever the defaults are now.
    defaults(&kit, keyed("{{ input.other }}")).await.unwrap();
    assert!(!kit.runtime.start_run(with_input("a", r#"{"tenant": "acme"}"#)).await.unwrap().created);
    for wrong in ["{{ input.tenant", "{{ slot.at }}"] {
        refused(defaults(&kit, keyed(wrong)).await, "defaults_invalid");
    }
}

/// A child whose key cannot be computed fails like one that cannot be started (D1).
#[tokio::test(start_paused = true)]
async fn a_child_is_placed_by_the_defaults_of_its_kind() {
    let kit = Harness::new();
    let worker = kit.worker("w");
    let mut parent = kit.start_held(&worker, "p").await;
    defaults(&kit, keyed("{{ input }}")).await.unwrap();
    kit.commit(&mut parent, vec![child(0, "p/0", onward_core::event::OnParentClose::Cancel)]).await;
    kit.settle().await;
    let placed = kit.head("p/0").await.queue.unwrap();
    assert_eq!(placed.key, Name::new("in").ok());
    defaults(&kit, keyed("{{ input.missing }}")).await.unwrap();
    kit.commit(&mut parent, vec![child(1, "p/1", onward_core::event::OnParentClose::Cancel)]).await;
    kit.settle().await;
    assert!(kit.log("p").await.contains(&"child_failed"), "{:?}", kit.log("p").await);
}

#[tokio::test(start_paused = true)]
async fn a_queue_shows_its_runs_beside_its_tasks() {
    let kit = Harness::new();
    limit(&kit, one()).await;
    for (id, of) in [("a", Some("x")), ("b", Some("x")), ("c", None)] {
        kit.runtime.start_run(queued(id, of)).await.unwrap();
    }
    kit.settle().await;
    let view = kit.runtime.read_queue(&Namespace::default(), Some(name("deploys"))).await.unwrap();
    assert_eq!((view.queued, view.running, view.runs.queued, view.runs.begun), (0, 0, 2, 1));
    assert!(view.keys.is_empty() && view.run_keys.len() == 2, "{view:?}");
    let (queues, runs) = kit.runtime.list_queues(&Namespace::default()).await.unwrap();
    assert!(queues.iter().all(|queue| queue.count.queue.is_none()), "places of runs are no tasks: {queues:?}");
    assert_eq!(
        runs.iter().map(|of| (of.queue.clone(), of.runs.queued, of.runs.begun)).collect::<Vec<_>>(),
        [(Some(name("deploys")), 2, 1)]
    );
    assert!(kit.runtime.blocked_on(&key("b")).await.unwrap().is_empty());
}

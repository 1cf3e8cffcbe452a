//! Tests of the parent module.

use onward_core::{Name, Namespace, WorkerId};
use onward_runtime::CallRef;

use super::*;

fn worker(tasks: &[&str]) -> WorkerInfo {
    WorkerInfo {
        id: WorkerId::new("w").unwrap(),
        kinds: Vec::new(),
        task_kinds: tasks.iter().map(|task| Name::new(*task).unwrap()).collect(),
        queues: vec![None],
        runs: 0,
        runs_max: 1,
        last_seen_at: None,
    }
}

fn sentence_of(kind: &str, why: BlockReason, workers: &[WorkerInfo]) -> String {
    let now = Timestamp(1_800_000_000_000);
    let blocker = Blocker {
        task: Some(CallRef::parse(&Namespace::default(), "r~0~3").unwrap().into()),
        kind: Name::new(kind).unwrap(),
        why,
        since: (why == BlockReason::Quarantined).then_some(Timestamp(1_799_999_880_000)),
        until: Some(now.after(std::time::Duration::from_secs(12))),
        lost_workers: 6,
        failure_code: Some("model_rate_limited".to_owned()),
        held_back: None,
    };
    sentence(&blocker, workers, now)
}

#[test]
fn an_unknown_name_is_reported_with_the_known_ones() {
    let workers = [worker(&["llm.gpt-4o", "llm.small"]), worker(&["llm.gpt-4o"])];
    let no_worker = |kind, workers| sentence_of(kind, BlockReason::NoWorker, workers);
    assert_eq!(no_worker("charge", &workers), "no worker serves task `charge`; the run is waiting");
    assert_eq!(
        no_worker("llm.gpt-5o", &workers),
        "no worker serves model `gpt-5o` (available: `gpt-4o`, `small`); the run is waiting"
    );
    assert!(no_worker("llm.gpt-5o", &[]).contains(" (available: none); "));
}

#[test]
fn a_wait_is_shown_with_its_end_or_with_what_ends_it() {
    assert_eq!(
        sentence_of("llm.m", BlockReason::RateLimited, &[]),
        "the provider rate-limits the key of model `m`; the run waits until 2027-01-15T08:00:12.000Z (in 12.0 s); \
             `onward queue reopen llm.m` ends the wait"
    );
    assert_eq!(
        sentence_of("llm.m", BlockReason::Quarantined, &[]),
        "task r~0~3 (`llm.m`) is in quarantine since 2027-01-15T07:58:00.000Z (2 min ago): it lost 6 workers in a row; \
         find out why, then run `onward queue retry r~0~3`"
    );
    assert_eq!(
        sentence_of("llm.m", BlockReason::Retries, &[]),
        "model `m`: next attempt in 12.0 s; the last one failed with model_rate_limited"
    );
}

#[test]
fn a_limit_of_a_queue_is_named_with_its_key_and_its_end() {
    let now = Timestamp(1_800_000_000_000);
    let sentence_of = |by, queue: Option<&str>, key: Option<&str>, until: Option<u64>| {
        let name = |text: &str| Name::new(text).unwrap();
        let held_back = Some(HeldBack { by, queue: queue.map(name), key: key.map(name) });
        let until = until.map(|seconds| now.after(Duration::from_secs(seconds)));
        let (task, why) = (Some(CallRef::parse(&Namespace::default(), "r~0~3").unwrap().into()), BlockReason::QueueLimit);
        let (kind, since, lost_workers, failure_code) = (name("mail"), None, 0, None);
        sentence(&Blocker { task, kind, why, since, until, lost_workers, failure_code, held_back }, &[], now)
    };
    assert_eq!(
        sentence_of(QueueLimit::Paused, None, Some("a"), None),
        "task `mail` waits: queue `default` is paused; `onward queue resume default` continues it"
    );
    assert_eq!(
        sentence_of(QueueLimit::KeyConcurrency, Some("q"), Some("a"), None),
        "task `mail` waits: key `a` in queue `q` runs as many tasks as it may"
    );
    assert_eq!(
        sentence_of(QueueLimit::Rate, Some("q"), Some("a"), Some(12)),
        "task `mail` waits: queue `q` has started as many tasks as it may; it may start the next one in 12.0 s"
    );
}

#[test]
fn a_wait_is_shown_once_and_again_when_it_has_outlasted_its_end() {
    let mut printed_blockers = PrintedBlockers::default();
    let mut is_new = |until: u64, now: u64| {
        let blocker = Blocker {
            task: Some(CallRef::parse(&Namespace::default(), "r~0~3").unwrap().into()),
            kind: Name::new("llm.m").unwrap(),
            why: BlockReason::RateLimited,
            since: None,
            until: Some(Timestamp(until)),
            lost_workers: 0,
            failure_code: None,
            held_back: None,
        };
        printed_blockers.is_new(&blocker, Timestamp(now))
    };
    assert!(is_new(60_000, 1_000));
    assert!(!is_new(60_300, 4_000), "it is the same end");
    assert!(!is_new(90_000, 7_000), "the printed end has not passed yet");
    assert!(!is_new(60_300, 60_100), "it ends within the tolerance");
    assert!(is_new(120_000, 60_200));
    assert!(!is_new(120_000, 63_000));
    assert!(is_new(180_000, 120_000));
}

#[test]
fn a_wait_without_an_end_is_shown_once() {
    let (kind, why) = (Name::new("agent").unwrap(), BlockReason::NoWorker);
    let blocker =
        Blocker { task: None, kind, why, since: None, until: None, lost_workers: 0, failure_code: None, held_back: None };
    assert_eq!(sentence(&blocker, &[], Timestamp(0)), "no worker serves `agent`; the run is waiting for one");
    let mut printed_blockers = PrintedBlockers::default();
    assert!(printed_blockers.is_new(&blocker, Timestamp(0)));
    assert!(!printed_blockers.is_new(&blocker, Timestamp(1)));
}

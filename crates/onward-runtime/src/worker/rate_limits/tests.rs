//! Tests of the parent module.

use onward_core::{Failure, WorkerId};

use super::*;

fn name(name: &str) -> Name {
    Name::new(name).unwrap()
}

/// Returns a worker with these kinds and their keys.
fn worker(namespace: &str, kinds: &[(&str, Option<&str>)]) -> WorkerProfile {
    let limits = kinds.iter().filter_map(|(kind, limit)| Some((name(kind), name((*limit)?))));
    WorkerProfile {
        id: WorkerId::new("w").unwrap(),
        namespace: Namespace::new(namespace).unwrap(),
        knows: Arc::default(),
        current: Arc::default(),
        task_kinds: Arc::new(kinds.iter().map(|(kind, _)| name(kind)).collect()),
        task_limits: Arc::new(limits.collect()),
        queues: vec![None],
        runs_max: 1,
        is_remote: false,
    }
}

fn refusal(worker: &WorkerProfile, kind: &str, span: Duration) -> RateLimited {
    let (namespace, limit) = (worker.namespace.clone(), worker.task_limits.get(&name(kind)).cloned());
    RateLimited { namespace, kind: name(kind), limit, span_ms: u64::try_from(span.as_millis()).unwrap_or(u64::MAX) }
}

/// Returns the kinds of which the worker may claim a task.
fn open(closed: &ClosedLimits, worker: &WorkerProfile) -> Vec<String> {
    let portions = closed.portions(worker, 1);
    portions.iter().for_each(|portion| closed.used(portion, 0));
    let mut kinds: Vec<String> = portions.iter().flat_map(|portion| portion.kinds.iter().map(ToString::to_string)).collect();
    kinds.sort();
    kinds
}

/// Returns how many tasks a worker gets that claims all it may.
fn take(closed: &ClosedLimits, worker: &WorkerProfile) -> usize {
    closed.portions(worker, 1_000_000).iter().map(|portion| portion.limit).sum()
}

const SECOND: Duration = Duration::from_secs(1);

/// CL2.
#[tokio::test(start_paused = true)]
async fn a_limit_is_closed_only_for_the_kinds_that_share_it() {
    let closed = ClosedLimits::default();
    let one = worker("here", &[("llm.a", Some("key 1")), ("llm.b", Some("key 1")), ("llm.c", Some("key 2"))]);
    let there = worker("there", &[("llm.x", Some("key 1")), ("llm.a", Some("key 3"))]);
    let (older, elsewhere) = (worker("here", &[("llm.a", None), ("llm.b", None)]), worker("there", &[("llm.a", None)]));
    closed.close(&refusal(&one, "llm.a", 5 * SECOND));
    assert_eq!(open(&closed, &one), ["llm.c"]);
    assert_eq!(open(&closed, &there), ["llm.a"], "the same key for another kind, and another key for the same kind");
    assert_eq!(open(&closed, &older), ["llm.b"], "a worker without a key is limited by kind");
    assert_eq!(open(&closed, &elsewhere), ["llm.a"], "and in the namespace alone");
    tokio::time::advance(5 * SECOND).await;
    assert_eq!(open(&closed, &one).len(), 3);
    assert_eq!(open(&closed, &older).len(), 2);
}

/// CL2.
#[tokio::test(start_paused = true)]
async fn a_worker_without_a_limit_key_closes_the_kind_for_its_like() {
    let closed = ClosedLimits::default();
    let (older, newer) = (worker("here", &[("llm.a", None), ("llm.b", None)]), worker("here", &[("llm.a", Some("key"))]));
    closed.close(&refusal(&older, "llm.a", SECOND));
    assert_eq!((open(&closed, &older), open(&closed, &newer).len()), (vec!["llm.b".to_owned()], 1));
}

/// CL1.
#[tokio::test(start_paused = true)]
async fn a_limit_is_closed_for_as_long_as_requested_and_no_longer_than_it_may() {
    let closed = ClosedLimits::default();
    let worker = worker("here", &[("llm.a", Some("key"))]);
    closed.close(&refusal(&worker, "llm.a", 5 * SECOND));
    closed.close(&refusal(&worker, "llm.a", SECOND)); // the later time counts
    assert_eq!(closed.opens_in(), Some(5 * SECOND));
    tokio::time::advance(4 * SECOND).await;
    assert_eq!((open(&closed, &worker).len(), closed.opens_in()), (0, Some(SECOND)));
    tokio::time::advance(SECOND).await;
    assert_eq!((open(&closed, &worker).len(), closed.opens_in()), (1, None));
    closed.close(&refusal(&worker, "llm.a", Duration::MAX));
    assert_eq!(closed.opens_in(), Some(CLOSED_MAX));
    tokio::time::advance(CLOSED_MAX).await;
    assert_eq!(open(&closed, &worker).len(), 1);
}

/// CL3.
#[tokio::test(start_paused = true)]
async fn a_limit_opens_to_one_first_and_then_to_twice_as_many_a_beat() {
    let closed = ClosedLimits::default();
    let (one, two) = (worker("here", &[("llm.a", Some("key"))]), worker("there", &[("llm.b", Some("key")), ("llm.c", None)]));
    closed.close(&refusal(&one, "llm.a", SECOND));
    assert_eq!(take(&closed, &one), 0);
    tokio::time::advance(SECOND).await;
    assert_eq!(closed.opens_in(), None, "one may go now");
    assert_eq!((take(&closed, &one), take(&closed, &one)), (1, 0));
    assert_eq!((take(&closed, &two), closed.opens_in()), (1_000_000, Some(BEAT)), "the other kind is not limited");
    tokio::time::advance(BEAT).await;
    let first = closed.portions(&two, 2).remove(0);
    assert_eq!((first.limit, take(&closed, &one)), (2, 0));
    closed.used(&first, 1);
    assert_eq!(take(&closed, &one), 1, "an unused rest is available to others");
    tokio::time::advance(BEAT).await;
    assert_eq!((take(&closed, &one), closed.opens_in()), (4, Some(BEAT)));
    closed.close(&refusal(&one, "llm.a", SECOND));
    assert_eq!((take(&closed, &one), closed.opens_in()), (0, Some(SECOND)), "refused again");
    tokio::time::advance(SECOND).await;
    assert_eq!(take(&closed, &one), 1, "the release starts again with one");
    tokio::time::advance(BEAT * BEATS).await;
    assert_eq!((take(&closed, &one), closed.opens_in()), (1_000_000, None));
}

#[test]
fn only_a_refusal_with_a_time_closes_anything() {
    let limited_for = |failure: Failure| closes_for(&TaskReport::Failed(failure)).map(Duration::from_millis);
    let limited = || Failure::new(RATE_LIMITED, "");
    assert_eq!(limited_for(limited().with_retry_after(9 * SECOND).with_limited(3 * SECOND)), Some(3 * SECOND));
    assert_eq!(limited_for(Failure::fatal("").with_limited(3 * SECOND)), Some(3 * SECOND), "a final failure has a wait too");
    assert_eq!(limited_for(limited().with_retry_after(3 * SECOND)), Some(3 * SECOND), "as reported by workers without keys");
    assert_eq!(limited_for(limited()), None);
    assert_eq!(limited_for(Failure::fatal("").with_code(RATE_LIMITED).with_retry_after(SECOND)), None);
    assert_eq!(limited_for(Failure::new("model_overloaded", "").with_retry_after(SECOND)), None);
    assert_eq!(limited_for(Failure::fatal("").with_code("model_key_refused")), None);
    assert_eq!(closes_for(&TaskReport::Interrupted), None);
}

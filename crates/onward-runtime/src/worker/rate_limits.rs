//! Rate-limited keys: after a provider refused a call, no worker uses the same key until the time that the provider named.
//!
//! A worker declares which key the calls of its kinds share: for a model, its name stands for the address and the API key of
//! the provider (ADR 0025). A refused attempt reports the wait. Until then no worker here gets a task of a kind with that key,
//! and the other runtimes over a shared store are notified. A task that is held back uses up no attempt and leaves no record.
//!
//! This is an optimization without a guarantee: a runtime that was restarted or missed the message claims a task and learns
//! from the next refusal. Nothing is recorded.
//!
//! Invariants:
//! - CL1: a key is rate-limited for as long as the refusal named and at most for [`CLOSED_MAX`], so every wait ends.
//! - CL2: a refusal limits its key in every namespace: only those who share a key know its name. Workers that declare no key
//!   are limited by the refused kind, in its namespace; their refusals limit no others.
//! - CL3: when the limit ends, one waiting task is released first, and then twice as many in each [`BEAT`]: if the provider
//!   still refuses, it refuses a few tasks and not all.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onward_core::task::TaskReport;
use onward_core::{Name, Namespace};
use tokio::time::Instant;

use crate::by_run::lock;
use crate::worker::profile::WorkerProfile;

/// Failure code of a refused attempt; workers that declare no key report the wait as the delay of their next attempt.
const RATE_LIMITED: &str = "model_rate_limited";

/// Maximum wait, whatever the provider asked for.
const CLOSED_MAX: Duration = Duration::from_secs(15 * 60);

/// Interval after which the number of released tasks doubles, from the end of the limit on.
const BEAT: Duration = Duration::from_millis(250);

/// Number of intervals after which all waiting tasks are released.
const BEATS: u32 = 12;

/// A call that the provider refused because of a rate limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub namespace: Namespace,
    pub kind: Name,
    /// `None` if the worker declares none.
    pub limit: Option<Name>,
    pub span: Duration,
}

/// The scope of a limit.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Limit(Name),
    /// For workers that declare no key.
    Kind(Namespace, Name),
}

impl What {
    fn of(namespace: &Namespace, kind: &Name, limit: Option<&Name>) -> What {
        match limit {
            Some(limit) => What::Limit(limit.clone()),
            None => What::Kind(namespace.clone(), kind.clone()),
        }
    }
}

/// A key that is rate-limited, or was until a moment ago.
#[derive(Clone, Copy)]
struct Closed {
    until: Instant,
    /// Number of tasks released since `until`.
    given: usize,
}

impl Closed {
    fn is_over(&self, now: Instant) -> bool {
        now >= self.until + BEAT * BEATS
    }

    /// Returns how many more tasks may be released, and when that number grows.
    fn room(&self, now: Instant) -> (usize, Instant) {
        let Some(open) = now.checked_duration_since(self.until) else { return (0, self.until) };
        let beats = (open.as_millis() / BEAT.as_millis()) as u32;
        let allowed = (2 << beats.min(BEATS)) - 1; // 1, then 3, then 7
        (allowed - self.given.min(allowed), self.until + BEAT * (beats + 1))
    }
}

/// A number of tasks of some kinds that a worker may claim now.
pub(crate) struct Portion {
    pub kinds: Arc<Vec<Name>>,
    pub limit: usize,
    /// The scope that these kinds share, if its limit ended a moment ago.
    opening: Option<What>,
}

#[derive(Default)]
pub(crate) struct ClosedLimits(Mutex<BTreeMap<What, Closed>>);

impl ClosedLimits {
    pub fn close(&self, refusal: &Refusal) {
        let Refusal { namespace, kind, limit, span } = refusal;
        let now = Instant::now();
        let until = now + (*span).min(CLOSED_MAX); // CL1
        let mut limits = lock(&self.0);
        limits.retain(|_, closed| !closed.is_over(now));
        let for_all = limit.clone().map(What::Limit);
        for what in for_all.into_iter().chain([What::Kind(namespace.clone(), kind.clone())]) {
            let known = limits.entry(what).or_insert(Closed { until, given: 0 }); // CL2
            if known.until < until {
                *known = Closed { until, given: 0 };
            }
        }
    }

    /// Ends the limit of a kind and of its key. Returns whether one of them was limited.
    pub fn reopen(&self, namespace: &Namespace, kind: &Name, limit: Option<&Name>) -> bool {
        let (now, mut limits) = (Instant::now(), lock(&self.0));
        let mut remove = |what: &What| limits.remove(what).is_some_and(|closed| closed.until > now);
        let was_kind = remove(&What::Kind(namespace.clone(), kind.clone()));
        limit.is_some_and(|limit| remove(&What::Limit(limit.clone()))) || was_kind
    }

    /// Returns what a worker with room for `limit` tasks may claim now. Report for each portion how much of it was
    /// [`used`](Self::used).
    pub fn portions(&self, worker: &WorkerProfile, limit: usize) -> Vec<Portion> {
        let mut limits = lock(&self.0);
        if limits.is_empty() {
            return vec![Portion { kinds: worker.task_kinds.clone(), limit, opening: None }];
        }
        let now = Instant::now();
        limits.retain(|_, closed| !closed.is_over(now));
        let mut by_what: BTreeMap<Option<What>, Vec<Name>> = BTreeMap::new();
        for kind in worker.task_kinds.iter() {
            let what = What::of(&worker.namespace, kind, worker.task_limits.get(kind));
            by_what.entry(limits.contains_key(&what).then_some(what)).or_default().push(kind.clone());
        }
        let mut portion = |(what, kinds): (Option<What>, Vec<Name>)| {
            let closed = what.as_ref().and_then(|what| limits.get_mut(what));
            let limit = closed.map_or(limit, |closed| {
                let room = closed.room(now).0.min(limit);
                closed.given += room; // reserved, so that others do not get it too (CL3)
                room
            });
            (limit > 0).then(|| Portion { kinds: Arc::new(kinds), limit, opening: what })
        };
        by_what.into_iter().rev().filter_map(&mut portion).collect() // kinds that were limited go first
    }

    /// Reports how many tasks of a portion were claimed; the rest is available to others.
    pub fn used(&self, portion: &Portion, count: usize) {
        let mut limits = lock(&self.0);
        if let Some(closed) = portion.opening.as_ref().and_then(|what| limits.get_mut(what)) {
            closed.given = closed.given.saturating_sub(portion.limit - count);
        }
    }

    /// Returns for how long a kind is rate-limited for workers that declare this key.
    pub fn closed_for(&self, namespace: &Namespace, kind: &Name, limit: Option<&Name>) -> Option<Duration> {
        let until = lock(&self.0).get(&What::of(namespace, kind, limit))?.until;
        Some(until.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero())
    }

    /// Returns the time until more tasks may be released for a key that is limited, or was until a moment ago.
    pub fn opens_in(&self) -> Option<Duration> {
        let now = Instant::now();
        let mut limits = lock(&self.0);
        limits.retain(|_, closed| !closed.is_over(now));
        let full = limits.values().map(|closed| closed.room(now)).filter(|(room, _)| *room == 0);
        full.map(|(_, more)| more - now).min()
    }
}

/// Returns for how long the report of an attempt limits its key.
pub(crate) fn closes_for(report: &TaskReport) -> Option<Duration> {
    let TaskReport::Failed(failure) = report.without_cost() else { return None };
    let is_older = failure.retryable && failure.code == RATE_LIMITED;
    let span = failure.limited_ms.map(u64::from).or_else(|| failure.retry_after_ms.filter(|_| is_older))?;
    Some(Duration::from_millis(span))
}

#[cfg(test)]
mod tests {
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

    fn refusal(worker: &WorkerProfile, kind: &str, span: Duration) -> Refusal {
        let (namespace, limit) = (worker.namespace.clone(), worker.task_limits.get(&name(kind)).cloned());
        Refusal { namespace, kind: name(kind), limit, span }
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
    async fn a_limit_is_closed_for_all_who_share_it_and_for_nobody_else() {
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
    async fn a_worker_that_says_no_limit_closes_the_kind_for_its_like() {
        let closed = ClosedLimits::default();
        let (older, newer) = (worker("here", &[("llm.a", None), ("llm.b", None)]), worker("here", &[("llm.a", Some("key"))]));
        closed.close(&refusal(&older, "llm.a", SECOND));
        assert_eq!((open(&closed, &older), open(&closed, &newer).len()), (vec!["llm.b".to_owned()], 1));
    }

    /// CL1.
    #[tokio::test(start_paused = true)]
    async fn a_limit_is_closed_for_as_long_as_was_said_and_no_longer_than_it_may() {
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
        let said = |failure: Failure| closes_for(&TaskReport::Failed(failure));
        let limited = || Failure::new(RATE_LIMITED, "");
        assert_eq!(said(limited().with_retry_after(9 * SECOND).with_limited(3 * SECOND)), Some(3 * SECOND));
        assert_eq!(said(Failure::fatal("").with_limited(3 * SECOND)), Some(3 * SECOND), "a final failure has a wait too");
        assert_eq!(said(limited().with_retry_after(3 * SECOND)), Some(3 * SECOND), "as reported by workers without keys");
        assert_eq!(said(limited()), None);
        assert_eq!(said(Failure::fatal("").with_code(RATE_LIMITED).with_retry_after(SECOND)), None);
        assert_eq!(said(Failure::new("model_overloaded", "").with_retry_after(SECOND)), None);
        assert_eq!(said(Failure::fatal("").with_code("model_key_refused")), None);
        assert_eq!(closes_for(&TaskReport::Interrupted), None);
    }
}

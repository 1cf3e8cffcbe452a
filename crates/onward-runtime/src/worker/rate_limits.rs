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

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onward_core::task::{TaskReport, TaskState};
use onward_core::{ErrorCode, Name, Namespace, Timestamp, message};
use onward_store::sync::lock;
use onward_store::{StoreError, TaskQuery};
use tokio::time::Instant;

use crate::worker::list::KnownWorker;
use crate::worker::profile::WorkerProfile;
use crate::{Runtime, RuntimeError};

/// Failure code of a refused attempt; workers that declare no key report the wait as the delay of their next attempt.
const RATE_LIMITED: ErrorCode = ErrorCode::ModelRateLimited;

/// Maximum wait, whatever the provider asked for.
const CLOSED_MAX: Duration = Duration::from_secs(15 * 60);

/// Number of queued tasks of a namespace among which refused ones are released with their key.
const RELEASED_MAX: usize = 10_000;

/// Interval after which the number of released tasks doubles, from the end of the limit on.
const BEAT: Duration = Duration::from_millis(250);

/// Number of intervals after which all waiting tasks are released.
const BEATS: u32 = 12;

message! {
    /// A call that its provider refused because of a rate limit.
    pub(crate) struct RateLimited {
        1 => namespace: Namespace,
        2 => kind: Name,
        /// Zero if an operator has ended the limit.
        3 => span_ms: u64,
        /// The key; absent if the worker declares none.
        4 => limit: Option<Name>,
    }
}

/// The scope of a limit.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum RateLimitKey {
    Limit(Name),
    /// For workers that declare no key.
    Kind(Namespace, Name),
}

impl RateLimitKey {
    fn of(namespace: &Namespace, kind: &Name, limit: Option<&Name>) -> RateLimitKey {
        match limit {
            Some(limit) => RateLimitKey::Limit(limit.clone()),
            None => RateLimitKey::Kind(namespace.clone(), kind.clone()),
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
    fn available(&self, now: Instant) -> (usize, Instant) {
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
    opening: Option<RateLimitKey>,
}

#[derive(Default)]
pub(crate) struct ClosedLimits(Mutex<BTreeMap<RateLimitKey, Closed>>);

impl ClosedLimits {
    pub fn close(&self, limited: &RateLimited) {
        let RateLimited { namespace, kind, limit, span_ms } = limited;
        let now = Instant::now();
        let until = now + Duration::from_millis(*span_ms).min(CLOSED_MAX); // CL1
        let mut limits = lock(&self.0);
        limits.retain(|_, closed| !closed.is_over(now));
        let for_all = limit.clone().map(RateLimitKey::Limit);
        for what in for_all.into_iter().chain([RateLimitKey::Kind(namespace.clone(), kind.clone())]) {
            let known = limits.entry(what).or_insert(Closed { until, given: 0 }); // CL2
            if known.until < until {
                *known = Closed { until, given: 0 };
            }
        }
    }

    /// Ends the limit of a kind and of its key. Returns whether one of them was limited.
    pub fn reopen(&self, reopened: &RateLimited) -> bool {
        let RateLimited { namespace, kind, limit, .. } = reopened;
        let (now, mut limits) = (Instant::now(), lock(&self.0));
        let mut remove = |key: &RateLimitKey| limits.remove(key).is_some_and(|closed| closed.until > now);
        let was_kind = remove(&RateLimitKey::Kind(namespace.clone(), kind.clone()));
        limit.as_ref().is_some_and(|limit| remove(&RateLimitKey::Limit(limit.clone()))) || was_kind
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
        let mut by_what: BTreeMap<Option<RateLimitKey>, Vec<Name>> = BTreeMap::new();
        for kind in worker.task_kinds.iter() {
            let what = RateLimitKey::of(&worker.namespace, kind, worker.task_limits.get(kind));
            by_what.entry(limits.contains_key(&what).then_some(what)).or_default().push(kind.clone());
        }
        let mut portion = |(what, kinds): (Option<RateLimitKey>, Vec<Name>)| {
            let closed = what.as_ref().and_then(|what| limits.get_mut(what));
            let limit = closed.map_or(limit, |closed| {
                let available = closed.available(now).0.min(limit);
                closed.given += available; // reserved, so that others do not get it too (CL3)
                available
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
        let until = lock(&self.0).get(&RateLimitKey::of(namespace, kind, limit))?.until;
        Some(until.saturating_duration_since(Instant::now())).filter(|remaining| !remaining.is_zero())
    }

    /// Returns the time until more tasks may be released for a key that is limited, or was until a moment ago.
    pub fn opens_in(&self) -> Option<Duration> {
        let now = Instant::now();
        let mut limits = lock(&self.0);
        limits.retain(|_, closed| !closed.is_over(now));
        let full = limits.values().map(|closed| closed.available(now)).filter(|(available, _)| *available == 0);
        full.map(|(_, more)| more - now).min()
    }
}

/// Returns for how many milliseconds the report of an attempt limits its key.
pub(crate) fn closes_for(report: &TaskReport) -> Option<u64> {
    let TaskReport::Failed(failure) = report.without_cost() else { return None };
    let is_older = failure.retryable && failure.code == RATE_LIMITED;
    failure.limited_ms.map(u64::from).or_else(|| failure.retry_after_ms.filter(|_| is_older))
}

/// A kind of task whose key is rate-limited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RateLimit {
    pub kind: Name,
    /// Time at which tasks of the kind are released again.
    pub until: Timestamp,
}

impl Runtime {
    /// Lists the kinds of a namespace that are rate-limited for at least one worker, as this runtime knows them, with the latest
    /// end.
    pub async fn list_rate_limits(&self, namespace: &Namespace) -> Vec<RateLimit> {
        let (now, mut found) = (self.clock().now(), BTreeMap::new());
        for (of, kind, limit) in self.kinds_with_limits(self.known_elsewhere_of_all().await.unwrap_or_default()) {
            let remaining = self.hub().closed.closed_for(namespace, &kind, limit.as_ref()).filter(|_| of == *namespace);
            if let Some(remaining) = remaining {
                let until = found.entry(kind).or_insert(now);
                *until = (*until).max(now.after(remaining));
            }
        }
        found.into_iter().map(|(kind, until)| RateLimit { kind, until }).collect()
    }

    /// Releases the tasks of a kind, and those of other kinds that share its key in any namespace, here and at the other runtimes,
    /// including tasks whose own attempt was refused. Returns whether the kind was rate-limited here. If the provider still refuses,
    /// the next attempt limits the key again.
    pub async fn reopen_rate_limit(&self, namespace: &Namespace, kind: &Name) -> Result<bool, RuntimeError> {
        let workers = self.kinds_with_limits(self.known_elsewhere_of_all().await.unwrap_or_default());
        let mut limits: BTreeSet<Option<Name>> =
            workers.into_iter().filter(|(of, its, _)| (of, its) == (namespace, kind)).map(|(.., limit)| limit).collect();
        limits.insert(None);
        let mut was_limited = false;
        for limit in limits {
            let reopened = RateLimited { namespace: namespace.clone(), kind: kind.clone(), limit, span_ms: 0 };
            was_limited |= self.reopen_limit(reopened).await;
        }
        for (namespace, kind) in self.kinds_sharing_limit(namespace, kind).await? {
            self.release_refused(namespace, &kind).await?;
        }
        Ok(was_limited)
    }

    /// Makes the tasks of a kind claimable whose attempt was refused, among the oldest [`RELEASED_MAX`] of the namespace.
    async fn release_refused(&self, namespace: Namespace, kind: &Name) -> Result<(), RuntimeError> {
        let (state, now) = (Some(TaskState::Queued), self.clock().now());
        let queued = self.store().list_tasks(TaskQuery { namespace, state, limit: RELEASED_MAX, ..TaskQuery::default() }).await?;
        for task in queued.into_iter().filter(|task| task.kind == *kind && task.waits_for_rate_limit(now)) {
            match self.store().retry_task(task.id).await {
                Ok(()) | Err(StoreError::TaskNotQuarantined { .. }) => {} // else its time has come meanwhile
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Returns the kinds that [`reopen_rate_limit`](Self::reopen_rate_limit) releases: the kind itself, and those for which a
    /// worker of any namespace uses the same key. Fails if the workers of the other servers cannot be read.
    pub async fn kinds_sharing_limit(
        &self,
        namespace: &Namespace,
        kind: &Name,
    ) -> Result<BTreeSet<(Namespace, Name)>, RuntimeError> {
        let workers = self.kinds_with_limits(self.known_elsewhere_of_all().await?);
        let own = workers.iter().filter(|(of, its, _)| (of, its) == (namespace, kind));
        let limits: BTreeSet<&Name> = own.filter_map(|(.., limit)| limit.as_ref()).collect();
        let shares = |limit: &Option<Name>| limit.as_ref().is_some_and(|limit| limits.contains(limit));
        let shared = workers.iter().filter(|(.., limit)| shares(limit)).map(|(of, kind, _)| (of.clone(), kind.clone()));
        Ok(shared.chain([(namespace.clone(), kind.clone())]).collect())
    }

    /// Returns the task kinds of the workers here and elsewhere, with the namespace of each worker and the key that it uses.
    fn kinds_with_limits(&self, elsewhere: Vec<(Namespace, KnownWorker)>) -> BTreeSet<(Namespace, Name, Option<Name>)> {
        let workers = self.workers_of_all().into_iter().chain(elsewhere);
        workers
            .flat_map(|(namespace, worker)| {
                let limits = worker.task_limits;
                let kinds = worker.info.task_kinds.into_iter();
                kinds.map(move |kind| (namespace.clone(), kind.clone(), limits.get(&kind).cloned()))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests;

//! Limits that are closed for a while: a provider has refused a call for one, and whoever shares it would be refused too.
//!
//! A worker says with its kinds which limit their calls share: for a model it stands for the address and the key of its provider (ADR
//! 0056). An attempt that was refused for its limit says for how long; until then no worker that shares it gets a task of those kinds
//! here, and the other runtimes over a shared store are told, so that one refusal does for all of them. A task that is not given out uses
//! up no attempt and leaves no record.
//!
//! It is a courtesy and no promise: a runtime that was started anew, or that was not told, gives a task out and learns it from the next
//! refusal. Must never record anything.
//!
//! Invariants:
//! - CL1: a limit is closed for as long as a refusal has said and for [`CLOSED_MAX`] at most, so nobody waits for it without an end.
//! - CL2: a refusal closes its limit, in every namespace: the name of a limit is known to those alone who share it. Workers that say no
//!   limit are held back by the kind that was refused, in its namespace; they hold back nobody else.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onward_core::task::TaskReport;
use onward_core::{Name, Namespace};
use tokio::time::Instant;

use crate::by_run::lock;
use crate::worker::WorkerProfile;

/// What such an attempt fails with; workers that know no limits say the time as that of their next attempt.
const RATE_LIMITED: &str = "model_rate_limited";

/// However long a provider wants to be left alone, it is asked again after so long.
const CLOSED_MAX: Duration = Duration::from_secs(15 * 60);

/// A call that was refused for its limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub namespace: Namespace,
    pub kind: Name,
    /// `None` if its worker says none.
    pub limit: Option<Name>,
    pub span: Duration,
}

/// What is closed.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Limit(Name),
    /// For workers that say no limit.
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

#[derive(Default)]
pub(crate) struct ClosedLimits(Mutex<BTreeMap<What, Instant>>);

impl ClosedLimits {
    pub fn close(&self, refusal: &Refusal) {
        let Refusal { namespace, kind, limit, span } = refusal;
        let now = Instant::now();
        let until = now + (*span).min(CLOSED_MAX); // CL1
        let mut closed = lock(&self.0);
        closed.retain(|_, until| *until > now);
        let for_all = limit.clone().map(What::Limit);
        for what in for_all.into_iter().chain([What::Kind(namespace.clone(), kind.clone())]) {
            let known = closed.entry(what).or_insert(until); // CL2
            *known = (*known).max(until);
        }
    }

    /// The kinds of a worker that are open to it now.
    pub fn open_to(&self, worker: &WorkerProfile) -> Arc<Vec<Name>> {
        let closed = lock(&self.0);
        if closed.is_empty() {
            return worker.task_kinds.clone();
        }
        drop(closed);
        let is_open = |kind: &&Name| self.closed_for(&worker.namespace, kind, worker.task_limits.get(*kind)).is_none();
        Arc::new(worker.task_kinds.iter().filter(is_open).cloned().collect())
    }

    /// For how long a kind is closed to workers that say this limit for it, if it is.
    pub fn closed_for(&self, namespace: &Namespace, kind: &Name, limit: Option<&Name>) -> Option<Duration> {
        let until = *lock(&self.0).get(&What::of(namespace, kind, limit))?;
        Some(until.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero())
    }

    /// How long it takes until anything opens that is closed now.
    pub fn opens_in(&self) -> Option<Duration> {
        let now = Instant::now();
        let mut closed = lock(&self.0);
        closed.retain(|_, until| *until > now);
        closed.values().min().map(|until| *until - now)
    }
}

/// For how long the report of an attempt closes its limit.
pub(crate) fn closes_for(report: &TaskReport) -> Option<Duration> {
    let TaskReport::Failed(failure) = report.without_cost() else { return None };
    let is_older = failure.retryable && failure.code == RATE_LIMITED;
    let span = failure.limited_ms.or_else(|| failure.retry_after_ms.filter(|_| is_older))?;
    Some(Duration::from_millis(span))
}

#[cfg(test)]
mod tests {
    use onward_core::{Failure, WorkerId};

    use super::*;

    fn name(name: &str) -> Name {
        Name::new(name).unwrap()
    }

    /// A worker with these kinds and their limits.
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

    fn open(closed: &ClosedLimits, worker: &WorkerProfile) -> Vec<String> {
        closed.open_to(worker).iter().map(ToString::to_string).collect()
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
        assert_eq!(open(&closed, &there), ["llm.a"], "it has the same key under another name, and another key under the same");
        assert_eq!(open(&closed, &older), ["llm.b"], "who says nothing is held back by kind");
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

    #[test]
    fn only_a_refusal_with_a_time_closes_anything() {
        let said = |failure: Failure| closes_for(&TaskReport::Failed(failure));
        let limited = || Failure::new(RATE_LIMITED, "");
        assert_eq!(said(limited().with_retry_after(9 * SECOND).with_limited(3 * SECOND)), Some(3 * SECOND));
        assert_eq!(
            said(Failure::fatal("").with_limited(3 * SECOND)),
            Some(3 * SECOND),
            "whoever gave up has been told a time too"
        );
        assert_eq!(said(limited().with_retry_after(3 * SECOND)), Some(3 * SECOND), "as workers say it that know no limits");
        assert_eq!(said(limited()), None);
        assert_eq!(said(Failure::fatal("").with_code(RATE_LIMITED).with_retry_after(SECOND)), None);
        assert_eq!(said(Failure::new("model_overloaded", "").with_retry_after(SECOND)), None);
        assert_eq!(said(Failure::fatal("").with_code("model_key_refused")), None);
        assert_eq!(closes_for(&TaskReport::Released), None);
    }
}

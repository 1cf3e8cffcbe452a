//! Kinds of model calls that nobody begins for a while, because the provider limits the key that they use.
//!
//! An attempt that the provider refused says when to come again. Until then no worker gets a task of that kind here, and the other runtimes
//! over a shared store are told, so that one refusal does for the workers of all processes. A task that is not given out uses up no attempt.
//!
//! It is a courtesy and no promise: a runtime that was started anew, or that was not told, gives a task out and learns it from the next
//! refusal. Must never record anything, and never close a kind for longer than a refusal has said, nor than [`CLOSED_MAX`].

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onward_core::task::TaskReport;
use onward_core::{Name, Namespace};
use tokio::time::Instant;

use crate::by_run::lock;

/// What such an attempt fails with.
const RATE_LIMITED: &str = "model_rate_limited";

/// However long a provider wants to be left alone, it is asked again after so long.
const CLOSED_MAX: Duration = Duration::from_secs(15 * 60);

#[derive(Default)]
pub(crate) struct ClosedKinds(Mutex<BTreeMap<(Namespace, Name), Instant>>);

impl ClosedKinds {
    pub fn close(&self, namespace: Namespace, kind: Name, span: Duration) {
        let now = Instant::now();
        let until = now + span.min(CLOSED_MAX);
        let mut closed = lock(&self.0);
        closed.retain(|_, until| *until > now);
        let known = closed.entry((namespace, kind)).or_insert(until);
        *known = (*known).max(until);
    }

    /// Those of `kinds` that are open now.
    pub fn open_of(&self, namespace: &Namespace, kinds: &Arc<Vec<Name>>) -> Arc<Vec<Name>> {
        let mut closed = lock(&self.0);
        if closed.is_empty() {
            return kinds.clone();
        }
        let now = Instant::now();
        closed.retain(|_, until| *until > now);
        let is_open = |kind: &&Name| !closed.contains_key(&(namespace.clone(), (*kind).clone()));
        Arc::new(kinds.iter().filter(is_open).cloned().collect())
    }
}

/// For how long the report of an attempt closes its kind.
pub(crate) fn closes_for(report: &TaskReport) -> Option<Duration> {
    let TaskReport::Failed(failure) = report.without_cost() else { return None };
    let span = failure.retry_after_ms.filter(|_| failure.retryable && failure.code == RATE_LIMITED)?;
    Some(Duration::from_millis(span))
}

#[cfg(test)]
mod tests {
    use onward_core::Failure;

    use super::*;

    fn name(name: &str) -> Name {
        Name::new(name).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_kind_is_closed_for_as_long_as_was_said_and_in_its_namespace_alone() {
        let (closed, kinds) = (ClosedKinds::default(), Arc::new(vec![name("llm.a"), name("llm.b")]));
        let (here, there) = (Namespace::default(), Namespace::new("there").unwrap());
        closed.close(here.clone(), name("llm.a"), Duration::from_secs(5));
        closed.close(here.clone(), name("llm.a"), Duration::from_secs(1)); // the later time counts
        assert_eq!(*closed.open_of(&here, &kinds), [name("llm.b")]);
        assert_eq!(closed.open_of(&there, &kinds), kinds);
        tokio::time::advance(Duration::from_secs(4)).await;
        assert_eq!(*closed.open_of(&here, &kinds), [name("llm.b")]);
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(closed.open_of(&here, &kinds), kinds);
        closed.close(here.clone(), name("llm.b"), Duration::MAX);
        tokio::time::advance(CLOSED_MAX + Duration::from_secs(1)).await;
        assert_eq!(closed.open_of(&here, &kinds), kinds);
    }

    #[test]
    fn only_a_limit_with_a_time_closes_anything() {
        let limited = Failure::new(RATE_LIMITED, "").with_retry_after(Duration::from_secs(3));
        assert_eq!(closes_for(&TaskReport::Failed(limited.clone())), Some(Duration::from_secs(3)));
        assert_eq!(closes_for(&TaskReport::Failed(Failure { retry_after_ms: None, ..limited.clone() })), None);
        assert_eq!(closes_for(&TaskReport::Failed(Failure { code: "model_overloaded".into(), ..limited })), None);
        assert_eq!(closes_for(&TaskReport::Released), None);
    }
}

//! Rate-limited keys of providers: lists them, and reopens one before the end that the provider named.

use std::collections::{BTreeMap, BTreeSet};

use onward_core::{Name, Namespace, Timestamp};

use crate::Runtime;
use crate::worker::rate_limits::Refusal;

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
        for (kind, limit) in self.kinds_with_limits(namespace).await {
            if let Some(left) = self.hub().closed.closed_for(namespace, &kind, limit.as_ref()) {
                let until = found.entry(kind).or_insert(now);
                *until = (*until).max(now.after(left));
            }
        }
        found.into_iter().map(|(kind, until)| RateLimit { kind, until }).collect()
    }

    /// Releases the tasks of a kind, and those of other kinds that share its key, here and at the other runtimes. Returns whether
    /// the kind was rate-limited here. If the provider still refuses, the next attempt limits the key again.
    pub async fn reopen_rate_limit(&self, namespace: &Namespace, kind: &Name) -> bool {
        let workers = self.kinds_with_limits(namespace).await;
        let mut limits: BTreeSet<Option<Name>> =
            workers.into_iter().filter(|(of, _)| of == kind).map(|(_, limit)| limit).collect();
        limits.insert(None);
        let mut was_limited = false;
        for limit in limits {
            let span = std::time::Duration::ZERO;
            let reopened = Refusal { namespace: namespace.clone(), kind: kind.clone(), limit, span };
            was_limited |= self.reopen_limit(reopened).await;
        }
        was_limited
    }

    /// Returns the kinds of a namespace that [`reopen_rate_limit`](Self::reopen_rate_limit) releases: the kind itself, and those
    /// for which a worker uses the same key.
    pub async fn kinds_sharing_limit(&self, namespace: &Namespace, kind: &Name) -> BTreeSet<Name> {
        let workers = self.kinds_with_limits(namespace).await;
        let limits: BTreeSet<&Name> =
            workers.iter().filter(|(of, _)| of == kind).filter_map(|(_, limit)| limit.as_ref()).collect();
        let shares = |limit: &Option<Name>| limit.as_ref().is_some_and(|limit| limits.contains(limit));
        workers.iter().filter(|(_, limit)| shares(limit)).map(|(of, _)| of.clone()).chain([kind.clone()]).collect()
    }

    /// Returns the task kinds of all workers of a namespace, with the key that each worker uses for them.
    async fn kinds_with_limits(&self, namespace: &Namespace) -> BTreeSet<(Name, Option<Name>)> {
        // If the other servers cannot be read, only the workers of this one count.
        let elsewhere = self.known_elsewhere(namespace).await.unwrap_or_default();
        let workers = self.known_workers(namespace).into_iter().chain(elsewhere);
        workers
            .flat_map(|worker| {
                let limits = worker.task_limits;
                worker.info.task_kinds.into_iter().map(move |kind| (kind.clone(), limits.get(&kind).cloned()))
            })
            .collect()
    }
}

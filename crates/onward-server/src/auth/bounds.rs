//! Kinds and queues to which an API key is bound.
//!
//! Invariants:
//! - BK1 (S4): a key that is bound to kinds can start, work on, signal, decide about and operate only runs and tasks of these
//!   kinds. What the code of such a run starts is not restricted. With the scope `read`, reading is allowed in the whole
//!   namespace, except numbers of runs, calls under way, live views, emitted values and the feed, which have only runs of its
//!   kinds; a worker without it reads the logs of its kinds, and of runs whose tasks it executes.
//! - BK2 (S4): a key that is bound to queues can start and work on only tasks of these queues.
//! - BK3 (S4, MM8): a worker whose key is bound to kinds requests and fills only memos of the tree of its run, and only if the run
//!   belongs to that tree or the tree began with one of its kinds. It gives no promise a key. Another commit pauses its run.

use std::collections::BTreeSet;

use onward_core::{ErrorCode, Name, Namespace, RunKey, TASK_KIND_PREFIX};
use onward_runtime::RuntimeError;
use onward_wire::worker::Hello;
use serde::{Deserialize, Serialize};

use crate::auth::{AuthRefusal, Caller, Scope};
use crate::http::problem::Problem;
use crate::server::Server;

/// Kinds and queues that a key is for; `None` is all of them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bounds {
    /// Kinds of workflows, agents and tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kinds: Option<BTreeSet<Name>>,
    /// Queues of tasks; the empty text is the default queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queues: Option<BTreeSet<String>>,
}

impl Bounds {
    /// Returns whether there are no bounds.
    pub fn is_none(&self) -> bool {
        *self == Bounds::default()
    }

    /// Returns whether everything within the other bounds is within these.
    pub fn cover(&self, other: &Bounds) -> bool {
        fn covers<T: Ord>(own: &Option<BTreeSet<T>>, other: &Option<BTreeSet<T>>) -> bool {
            let Some(own) = own else { return true };
            other.as_ref().is_some_and(|other| other.is_subset(own))
        }
        covers(&self.kinds, &other.kinds) && covers(&self.queues, &other.queues)
    }

    /// Refuses a kind outside the bounds. A standalone task has the kind of its task.
    pub fn check_kind(&self, kind: &Name) -> Result<(), AuthRefusal> {
        let plain = kind.as_str().strip_prefix(TASK_KIND_PREFIX).unwrap_or(kind.as_str());
        match &self.kinds {
            Some(kinds) if !kinds.iter().any(|own| own.as_str() == plain) => Err(AuthRefusal::Kind { kind: plain.to_owned() }),
            _ => Ok(()),
        }
    }

    /// Refuses a queue outside the bounds; the empty text is the default queue.
    pub fn check_queue(&self, queue: &str) -> Result<(), AuthRefusal> {
        match &self.queues {
            Some(queues) if !queues.contains(queue) => Err(AuthRefusal::Queue { queue: queue.to_owned() }),
            _ => Ok(()),
        }
    }

    /// Refuses a filter that may match runs of other kinds.
    pub fn check_filter(&self, kind: Option<&Name>) -> Result<(), AuthRefusal> {
        match (&self.kinds, kind) {
            (Some(_), None) => Err(AuthRefusal::EveryKind),
            (_, Some(kind)) => self.check_kind(kind),
            (None, None) => Ok(()),
        }
    }

    /// Restricts a query over kinds to those of the key; without a kind, the query is about all kinds of the key.
    pub fn limit_kinds(&self, kinds: &mut Vec<Name>) -> Result<(), AuthRefusal> {
        kinds.iter().try_for_each(|kind| self.check_kind(kind))?;
        if let Some(own) = self.kinds.as_ref().filter(|_| kinds.is_empty()) {
            let standalone = own.iter().filter_map(|kind| Name::new(format!("{TASK_KIND_PREFIX}{kind}")).ok());
            *kinds = own.iter().cloned().chain(standalone).collect();
            return if kinds.is_empty() { Err(AuthRefusal::EveryKind) } else { Ok(()) };
        }
        Ok(())
    }

    /// Refuses a worker that offers other kinds or queues.
    pub fn check_hello(&self, hello: &Hello) -> Result<(), AuthRefusal> {
        hello.kinds.iter().map(|offer| &offer.kind).chain(&hello.task_kinds).try_for_each(|kind| self.check_kind(kind))?;
        hello.queues.iter().try_for_each(|queue| self.check_queue(queue))?;
        // Tasks with a default queue leave the queues of the key.
        let of_kinds = hello
            .kinds
            .iter()
            .flat_map(|offer| offer.version_schemas.iter().map(|version| &version.defaults).chain([&offer.defaults]));
        let defaults = of_kinds.chain(hello.task_schemas.iter().map(|task| &task.defaults)).flatten();
        defaults.filter_map(|defaults| defaults.queue.as_ref()).try_for_each(|queue| self.check_queue(queue.as_str()))
    }
}

/// Refuses to signal a run, or to listen to it, if it exists and has a kind that the caller's key is not for.
pub(crate) async fn check_existing(server: &Server, caller: &Caller, run: &RunKey) -> Result<(), Problem> {
    match check_run(server, Scope::Signal, caller, run).await {
        Err(problem) if problem.code == ErrorCode::RunNotFound.as_str() => Ok(()),
        checked => checked,
    }
}

/// Refuses to change a schedule that exists and starts runs of a kind that the caller's key is not for.
pub(crate) async fn check_schedule(
    server: &Server,
    caller: &Caller,
    namespace: &Namespace,
    schedule: &Name,
) -> Result<(), Problem> {
    if caller.bounds.kinds.is_none() {
        return Ok(());
    }
    match server.runtime().schedule_definition(namespace, schedule).await {
        Ok(definition) => Ok(caller.bounds.check_kind(&definition.target.kind)?),
        Err(RuntimeError::ScheduleNotFound { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Refuses to show what a run does now if it has a kind that the caller's key is not for.
pub(crate) async fn check_live(server: &Server, caller: &Caller, run: &RunKey) -> Result<(), Problem> {
    check_run(server, Scope::Operate, caller, run).await
}

/// Refuses a generation of a run that had, before a handoff, a kind that the caller's key is not for.
pub(crate) async fn check_generation(server: &Server, caller: &Caller, run: &RunKey, generation: u32) -> Result<(), Problem> {
    if caller.bounds.kinds.is_none() {
        return Ok(());
    }
    let head = server.runtime().store().read_run(run.clone(), Some(generation)).await.map_err(RuntimeError::from)?;
    head.map_or(Ok(()), |head| Ok(caller.bounds.check_kind(&head.kind)?))
}

/// Refuses to act on a run of a kind that the caller's key is not for.
pub(crate) async fn check_run(server: &Server, scope: Scope, caller: &Caller, run: &RunKey) -> Result<(), Problem> {
    if caller.bounds.kinds.is_none() || scope == Scope::Read {
        return Ok(());
    }
    let head = server.runtime().read_head(run).await?;
    Ok(caller.bounds.check_kind(&head.kind)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_cover_what_is_within_them() {
        let set = |kinds: &[&str]| Some(kinds.iter().map(|kind| Name::new(*kind).unwrap()).collect());
        let kinds = |own: &[&str]| Bounds { kinds: set(own), queues: None };
        let free = Bounds::default();
        let queues = Bounds { kinds: None, queues: Some(BTreeSet::from([String::new()])) };
        assert!(free.cover(&free) && free.cover(&kinds(&["a"])) && kinds(&["a", "b"]).cover(&kinds(&["b"])));
        assert!(!kinds(&["a"]).cover(&free) && !kinds(&["a"]).cover(&kinds(&["a", "b"])));
        assert!(free.cover(&queues) && !queues.cover(&free) && !queues.cover(&kinds(&["a"])));
    }
}

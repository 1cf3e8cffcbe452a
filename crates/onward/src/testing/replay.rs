//! Old logs against new code.

use std::sync::Arc;

use onward_core::event::RunPaused;
use onward_core::{Log, Namespace, RunId, RunKey};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Result;
use crate::agent::AgentCtx;
use crate::ctx::Ctx;
use crate::host::code::{Handler, Shared};
use crate::host::replay::{Earlier, Logs, replay_log};
use crate::registry::{Registry, erase_agent, erase_workflow};

/// A log that was recorded, to be held against today's code. Nothing is run.
///
/// The ids of children, promises and approvals derive from the run's own, and code may ask for it: so a log is replayed as the run it
/// was recorded from. Its seed and its generation are in the log.
#[must_use = "a log is replayed by `against`"]
pub struct Replay<'a> {
    key: RunKey,
    log: &'a Log,
    prelude: Option<&'a Log>,
    earlier: &'a [Log],
    registry: Registry,
}

impl<'a> Replay<'a> {
    /// The log of the run with this id. A log that a [`super::Script`] recorded is that of run `test`, unless the script names another.
    ///
    /// # Panics
    /// If no run can have that id.
    #[track_caller]
    pub fn new(run: &str, log: &'a Log) -> Replay<'a> {
        let id = RunId::new(run).unwrap_or_else(|error| panic!("`{run}` is no run id: {error}"));
        Replay { key: RunKey::new(Namespace::default(), id), log, prelude: None, earlier: &[], registry: Registry::default() }
    }

    /// The namespace of the run; `default` otherwise.
    ///
    /// # Panics
    /// If there can be no such namespace.
    #[track_caller]
    pub fn namespace(mut self, namespace: &str) -> Self {
        self.key.namespace = Namespace::new(namespace).unwrap_or_else(|error| panic!("`{namespace}` is no namespace: {error}"));
        self
    }

    /// The log of what an agent did before its turns, where `log` is that of a turn.
    pub fn prelude(mut self, prelude: &'a Log) -> Self {
        self.prelude = Some(prelude);
        self
    }

    /// The logs of the generations before, oldest first: for an agent whose code reads its conversation.
    pub fn earlier(mut self, logs: &'a [Log]) -> Self {
        self.earlier = logs;
        self
    }

    /// A dependency, as for the real builder: steps do not run, but the code asks for it all the same.
    pub fn dep<T: std::any::Any + Send + Sync>(mut self, dep: T) -> Self {
        self.registry.dep(dep);
        self
    }

    /// Holds the log against `workflow`.
    ///
    /// # Errors
    /// With the report of the first thing on which log and code disagree.
    pub fn against<I, O, F, Fut>(self, workflow: F) -> Result<(), Box<RunPaused>>
    where
        I: DeserializeOwned + Send + 'static,
        O: Serialize + 'static,
        F: Fn(Ctx, I) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O>> + Send + 'static,
    {
        self.hold(&erase_workflow(workflow))
    }

    /// Holds the log of an open or closed segment against `agent`; that of a turn needs its [`Replay::prelude`], and code that reads its
    /// conversation what was said [before](Replay::earlier).
    ///
    /// # Errors
    /// With the report of the first thing on which log and code disagree: where a worker would leave the log, this stops.
    pub fn against_agent<I, O, F, Fut>(self, agent: F) -> Result<(), Box<RunPaused>>
    where
        I: DeserializeOwned + Send + 'static,
        O: Serialize + 'static,
        F: Fn(AgentCtx, I) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O>> + Send + 'static,
    {
        self.hold(&erase_agent(agent))
    }

    fn hold(self, handler: &Handler) -> Result<(), Box<RunPaused>> {
        let shared = Shared { deps: Arc::new(self.registry.deps), ..Shared::default() };
        let mut earlier = Earlier::default();
        for (generation, log) in self.earlier.iter().enumerate().rev() {
            earlier.push(u32::try_from(generation).unwrap_or(u32::MAX), log.records());
        }
        let prelude = self.prelude.map_or(&[][..], Log::records);
        let logs = Logs { prelude, records: self.log.records(), earlier: &|wish| earlier.read(wish) };
        match replay_log(&self.key, handler, logs, &shared, false) {
            Ok(_) => Ok(()),
            Err(fault) => Err(Box::new(fault.into_pause().expect("nobody else has a log that is only replayed"))),
        }
    }
}

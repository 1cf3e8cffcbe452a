//! Replay of old logs with new code.

use std::sync::Arc;

use onward_core::event::RunPaused;
use onward_core::{Log, Namespace, RunId, RunKey};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Result;
use crate::agent::AgentCtx;
use crate::ctx::Ctx;
use crate::host::code::{Handler, WorkerShared};
use crate::host::replay::{Earlier, Logs, replay_log};
use crate::middleware::Middleware;
use crate::registry::{Registry, erase_code, foreign_code};
use crate::shell::Shell;

/// A recorded log to be replayed with today's code. No step runs.
///
/// The ids of children, promises and approvals derive from the run's id, and code may read it, so a log is replayed under the id
/// that it was recorded with. Its seed and its generation are in the log.
#[must_use = "a log is replayed by `against`"]
pub struct Replay<'a> {
    key: RunKey,
    log: &'a Log,
    prelude: Option<&'a Log>,
    earlier: &'a [Log],
    registry: Registry,
}

impl<'a> Replay<'a> {
    /// Creates a replay of the log of the run with this id. A log recorded by a [`super::Script`] has run id `test`, unless the
    /// script sets another.
    ///
    /// # Panics
    /// Panics if the id is invalid.
    #[track_caller]
    pub fn new(run: &str, log: &'a Log) -> Replay<'a> {
        let id = RunId::new(run).unwrap_or_else(|error| panic!("invalid run id `{run}`: {error}"));
        Replay { key: RunKey::new(Namespace::default(), id), log, prelude: None, earlier: &[], registry: Registry::default() }
    }

    /// Sets the namespace of the run; default `default`.
    ///
    /// # Panics
    /// Panics if the namespace is invalid.
    #[track_caller]
    pub fn namespace(mut self, namespace: &str) -> Self {
        self.key.namespace = Namespace::new(namespace).unwrap_or_else(|error| panic!("invalid namespace `{namespace}`: {error}"));
        self
    }

    /// Sets the log of an agent's prelude, if `log` is that of a turn.
    pub fn prelude(mut self, prelude: &'a Log) -> Self {
        self.prelude = Some(prelude);
        self
    }

    /// Sets the logs of earlier generations, oldest first, for an agent whose code reads its conversation.
    pub fn earlier(mut self, logs: &'a [Log]) -> Self {
        self.earlier = logs;
        self
    }

    /// Adds a dependency, as on the real builder. Steps do not run, but the code may still request it.
    pub fn dep<T: std::any::Any + Send + Sync>(mut self, dep: T) -> Self {
        self.registry.dep(dep);
        self
    }

    /// Adds a middleware, as on the real builder. Only its deterministic part runs.
    pub fn middleware(mut self, middleware: impl Middleware) -> Self {
        self.registry.middleware(middleware);
        self
    }

    /// Replays the log with `workflow`.
    ///
    /// # Errors
    /// Fails with the report of the first divergence.
    pub fn against<I, O, F, Fut>(self, workflow: F) -> Result<(), Box<RunPaused>>
    where
        I: DeserializeOwned + Send + 'static,
        O: Serialize + 'static,
        F: Fn(Ctx, I) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O>> + Send + 'static,
    {
        self.hold(&erase_code(workflow))
    }

    /// Replays the log of an open or closed segment with `agent`. The log of a turn needs its [`Replay::prelude`], and code that
    /// reads its conversation needs the [earlier](Replay::earlier) logs.
    ///
    /// # Errors
    /// Fails with the report of the first divergence, where a worker would abandon the rest of the segment.
    pub fn against_agent<I, O, F, Fut>(self, agent: F) -> Result<(), Box<RunPaused>>
    where
        I: DeserializeOwned + Send + 'static,
        O: Serialize + 'static,
        F: Fn(AgentCtx, I) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O>> + Send + 'static,
    {
        self.hold(&erase_code(agent))
    }

    /// Replays the log with code in another language. Blocks until its shell has played it.
    ///
    /// # Errors
    /// Fails with the report of the first divergence.
    pub fn against_foreign(self, shell: Arc<dyn Shell>, is_agent: bool) -> Result<(), Box<RunPaused>> {
        self.hold(&foreign_code(shell, is_agent))
    }

    fn hold(self, handler: &Handler) -> Result<(), Box<RunPaused>> {
        let Registry { deps, middlewares, .. } = self.registry;
        let shared = WorkerShared { deps: Arc::new(deps), middlewares, ..WorkerShared::default() };
        let mut earlier = Earlier::default();
        for (generation, log) in self.earlier.iter().enumerate().rev() {
            earlier.push(u32::try_from(generation).unwrap_or(u32::MAX), log.records());
        }
        let prelude = self.prelude.map_or(&[][..], Log::records);
        let logs = Logs { prelude, records: self.log.records(), earlier: &|wish| earlier.read(wish) };
        match replay_log(&self.key, handler, logs, &shared, false) {
            Ok(_) => Ok(()),
            Err(fault) => Err(Box::new(fault.into_pause().expect("a replay has no lease to lose"))),
        }
    }
}

//! Runs that continue from a copy of another run's log.

use onward_core::api::ForkRequest;
use onward_core::{Index, Name, RunId};
use onward_store::sync::random_u64;

use crate::client::RunHandle;
use crate::{Error, Result};

/// A fork or reset to be started; see [`RunHandle::fork`] and [`RunHandle::reset`].
#[must_use = "await it to start the run"]
pub struct Fork<O> {
    original: RunHandle<O>,
    id: Option<String>,
    version: Option<String>,
    is_reset: bool,
    fork: ForkRequest,
}

impl<O> Fork<O> {
    pub(crate) fn new(original: &RunHandle<O>, is_reset: bool) -> Fork<O> {
        let fork = ForkRequest { restart_children: is_reset, ..ForkRequest::new(original.key.clone(), random_u64()) };
        Fork { original: original.clone(), id: None, version: None, is_reset, fork }
    }

    /// Sets the last event to copy, which must end a commit; default the last possible one.
    pub fn at(mut self, index: Index) -> Self {
        self.fork.index = Some(index);
        self
    }

    /// Copies the log of an earlier generation: a turn of an agent, or a run before it continued as new.
    pub fn of_generation(mut self, generation: u32) -> Self {
        self.fork.generation = Some(generation);
        self
    }

    /// Sets the new run's id. The same fork with the same id is the same run. Without an id, every fork is a new run, while all
    /// resets to one point are the same run.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Drops the signals that arrived after the fork point.
    pub fn drop_signals(mut self) -> Self {
        self.fork.drop_signals = true;
        self
    }

    /// Restarts children that had no result at the fork point, under new ids. A reset always does.
    pub fn restart_children(mut self) -> Self {
        self.fork.restart_children = true;
        self
    }

    /// Accepts that calls after the fork point are executed again whose outcome is unknown: their effect may then happen twice.
    /// Without this, such a fork or reset fails with `outcome_unknown`.
    pub fn include_outcome_unknown(mut self) -> Self {
        self.fork.include_outcome_unknown = true;
        self
    }

    /// Pins the new run to another version of the code than the original.
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.version = Some(version.into());
        self
    }

    /// Sets the reason, which is recorded in the log.
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.fork.reason = reason.into();
        self
    }

    async fn send(self) -> Result<RunHandle<O>, Error> {
        let Fork { original, id, version, is_reset, mut fork } = self;
        fork.id = id.map(RunId::new).transpose()?;
        fork.version = version.map(Name::new).transpose()?;
        let client = original.client();
        let forked = match is_reset {
            true => original.onward.call(client.reset_run(fork)).await?,
            false => original.onward.call(client.fork_run(fork)).await?,
        };
        Ok(RunHandle { key: forked.head.key, outcome: None, ..original })
    }
}

awaitable!(Fork<O> => RunHandle<O>);

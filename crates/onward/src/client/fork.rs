//! Runs that go on from a point of another run's log.

use std::future::IntoFuture;
use std::pin::Pin;

use onward_core::{Index, Name, RunId};
use onward_runtime::ForkRun;

use crate::client::RunHandle;
use crate::worker::random_u64;
use crate::{Error, Result};

/// A run to be begun from a copy; see [`RunHandle::fork`] and [`RunHandle::reset`].
#[must_use = "await it to begin the run"]
pub struct Fork<O> {
    original: RunHandle<O>,
    id: Option<String>,
    version: Option<String>,
    fork: ForkRun,
}

impl<O> Fork<O> {
    pub(crate) fn new(original: &RunHandle<O>, is_reset: bool) -> Fork<O> {
        let fork = if is_reset { ForkRun::reset(random_u64()) } else { ForkRun::new(random_u64()) };
        Fork { original: original.clone(), id: None, version: None, fork }
    }

    /// The last event to copy, which must end a commit; the last possible one otherwise.
    pub fn at(mut self, index: Index) -> Self {
        self.fork.index = Some(index);
        self
    }

    /// From the log of an earlier generation: a turn of an agent, or a run before it continued as new.
    pub fn of_generation(mut self, generation: u32) -> Self {
        self.fork.generation = Some(generation);
        self
    }

    /// The new run's id. The same fork with the same id is the same run. Without one every fork is another run; all resets to one point
    /// are one.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Leaves out the signals that came behind the point.
    pub fn drop_signals(mut self) -> Self {
        self.fork.keep_signals = false;
        self
    }

    /// Starts children again that had not answered at the point, under new ids. A reset does so anyway.
    pub fn restart_children(mut self) -> Self {
        self.fork.restart_children = true;
        self
    }

    /// Another version of the code than the original is pinned to.
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.version = Some(version.into());
        self
    }

    /// Why, for whoever reads the log.
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.fork.reason = reason.into();
        self
    }

    async fn go(self) -> Result<RunHandle<O>, Error> {
        let Fork { original, id, version, mut fork } = self;
        fork.id = id.map(RunId::new).transpose()?;
        fork.version = version.map(Name::new).transpose()?;
        let forked = original.ask(original.door().fork_run(original.key().clone(), fork)).await?;
        Ok(original.with_key(forked.head.key))
    }
}

impl<O: 'static> IntoFuture for Fork<O> {
    type Output = Result<RunHandle<O>, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.go())
    }
}

//! Reading a run live.

use std::sync::Arc;

use onward_core::Index;
use onward_core::api::WatchRequest;
use onward_core::live::{LiveFrame, LogCursor};
use onward_runtime::Updates;

use super::{OpenState, RunHandle};
use crate::Error;

/// The live view of a run; see [`RunHandle::watch`].
pub struct LiveRun {
    updates: Box<dyn Updates>,
    open: Arc<OpenState>,
    cursor: Option<LogCursor>,
}

impl<O> RunHandle<O> {
    /// Reads the run live: first a snapshot of what is under way, then its log from `from` on, and while it runs also steps and
    /// tasks that start, progress, and what the code emits. [`LiveFrame`] has all contents.
    pub async fn watch(&self, from: Index) -> Result<LiveRun, Error> {
        self.watch_from(WatchRequest { from, ..self.key.clone().into() }).await
    }

    /// Continues a live view after the last event that a reader got, [`LiveRun::cursor`].
    pub async fn watch_after(&self, LogCursor { generation, index }: LogCursor) -> Result<LiveRun, Error> {
        let (generation, from) = (Some(generation), index.plus(1));
        self.watch_from(WatchRequest { generation, from, ..self.key.clone().into() }).await
    }

    async fn watch_from(&self, request: WatchRequest) -> Result<LiveRun, Error> {
        let updates = self.onward.call(self.client().watch_updates(request)).await?;
        Ok(LiveRun { updates, open: self.onward.inner.open.clone(), cursor: None })
    }
}

impl LiveRun {
    /// Returns the next frame; `None` after the end of the run, or after the reader was dropped because it was too slow.
    ///
    /// Cancel-safe: dropping the future loses no frame.
    pub async fn next(&mut self) -> Result<Option<LiveFrame>, Error> {
        let frame = self.open.call(self.updates.next()).await?;
        self.cursor = frame.as_ref().and_then(LiveFrame::cursor).or(self.cursor);
        Ok(frame)
    }

    /// Returns the last event of the log that was returned.
    pub fn cursor(&self) -> Option<LogCursor> {
        self.cursor
    }
}

//! The verbs as an interface, for callers inside and outside the process.
//!
//! [`Runtime`] implements it inside one process; a remote client implements it over the network with the same behavior. Every
//! verb of the table in `onward_core::api` is a method of `dyn Client`.

use std::pin::Pin;
use std::sync::Arc;

use onward_core::api::{self, BulkDone, BulkRequest, BulkVerb, Call, LogRequest, Reply, StartReply, StartRequest, WatchRequest};
use onward_core::live::LiveFrame;
use onward_core::log::prelude_of;
use onward_core::view::{RunView, created_at};
use onward_core::{Failure, Index, Payload, Record, RunHead, RunKey};
use tokio::sync::broadcast;

use crate::api::execute::{CallContext, start_reply};
use crate::api::watch::{OutcomeWatch, RunWatch};
use crate::{Emitted, Runtime, RuntimeError};

/// Page size of log reads, in records.
pub(crate) const PAGE: usize = 1_000;

pub type ClientFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, RuntimeError>> + Send + 'a>>;

/// A handle that waits for the result of a run.
pub trait Outcome: Send + Sync {
    /// Waits until the run is closed, through all its generations.
    fn outcome(&self) -> ClientFuture<'_, Result<Payload, Failure>>;
}

/// A handle that waits for appends to one run.
pub trait Changes: Send {
    /// Returns after an append since the watch was created or since the last call returned.
    fn changed(&mut self) -> ClientFuture<'_, ()>;

    /// Returns the generation that was seen last.
    fn generation(&self) -> u32;
}

/// The frames of a run for one reader.
pub trait Updates: Send {
    /// Returns the next frame; `None` after the last one. Cancel-safe.
    fn next(&mut self) -> ClientFuture<'_, Option<LiveFrame>>;
}

/// A caller's connection to a runtime.
pub trait Client: Send + Sync {
    /// Executes a verb.
    fn call(&self, call: Call) -> ClientFuture<'_, Reply>;

    /// Starts a run and returns a handle that cannot miss its end.
    fn start_and_watch(&self, start: StartRequest) -> ClientFuture<'_, (StartReply, Arc<dyn Outcome>)>;

    /// Watches the end of a run, which need not exist yet.
    fn watch_outcome(&self, key: &RunKey) -> Arc<dyn Outcome>;

    /// Watches a run from now on.
    fn watch_run(&self, key: RunKey) -> ClientFuture<'_, Box<dyn Changes>>;

    /// Reads a run live: its log from an event on, and what is under way and not in the log.
    fn watch_updates(&self, request: WatchRequest) -> ClientFuture<'_, Box<dyn Updates>>;

    /// Reads the current generation of a run at one moment, folded from its log (F27).
    fn read_run(&self, key: RunKey) -> ClientFuture<'_, RunView>;

    /// Receives the values that a run emits from now on; not recorded.
    fn listen(&self, key: &RunKey) -> broadcast::Receiver<Emitted>;
}

/// Adds each verb as a method.
macro_rules! methods {
    ($($(#[$meta:meta])* $method:ident $name:ident($request:ident) -> $reply:ident, $scope:ident;)*) => {
        impl dyn Client + '_ {
            $(
                $(#[$meta])*
                pub async fn $method(&self, request: impl Into<api::$request>) -> Result<api::$reply, RuntimeError> {
                    match self.call(Call::$name(request.into())).await? {
                        Reply::$name(reply) => Ok(reply),
                        _ => unreachable!("the reply belongs to the call"),
                    }
                }
            )*
        }
    };
}

onward_core::with_verbs!(methods);

impl dyn Client + '_ {
    /// Waits until the run is closed and returns its result.
    pub async fn wait_for_outcome(&self, key: RunKey) -> Result<Result<Payload, Failure>, RuntimeError> {
        self.watch_outcome(&key).outcome().await
    }

    /// Executes one batch of a bulk request, also of a deletion, which has a scope of its own.
    pub async fn execute_bulk(&self, bulk: BulkRequest) -> Result<BulkDone, RuntimeError> {
        match bulk.verb == BulkVerb::Delete.as_str() {
            true => self.bulk_delete(bulk).await,
            false => self.bulk_runs(bulk).await,
        }
    }

    /// Reads up to `limit` records from the one that holds event `from`, of the current generation if `generation` is `None`.
    pub async fn read_log(
        &self,
        run: RunKey,
        generation: Option<u32>,
        mut from: Index,
        limit: usize,
    ) -> Result<Vec<Record>, RuntimeError> {
        let mut records: Vec<Record> = Vec::new();
        loop {
            let limit = limit - records.len();
            let page = self.read_log_page(LogRequest { run: run.clone(), generation, from, limit }).await?;
            records.extend(page.records);
            match records.last() {
                Some(last) if page.more => from = last.next_index(),
                _ => return Ok(records),
            }
        }
    }
}

/// Reads the current generation of a run at one moment, folded from its log (F27).
pub async fn read_view(client: &dyn Client, key: RunKey) -> Result<RunView, RuntimeError> {
    loop {
        let head = client.read_head(key.clone()).await?;
        let records = read_records(client, &head).await?;
        let covered = records.last().is_some_and(|record| record.next_index() >= head.next_index);
        let same = created_at(&records) == Some(head.created_at);
        if covered && same {
            let mut view = RunView::fold(head, &records);
            // Only the first generation of an agent has its input; later turns do not repeat it.
            if let Some(generation) = prelude_of(&records) {
                let first = client.read_log(key, Some(generation), Index(0), 1).await?;
                view.input = first.first().and_then(Record::started).map_or(view.input, |started| started.input.clone());
            }
            return Ok(view);
        }
        // The run was deleted and started again during the read: read it again.
    }
}

/// Reads the log of one generation, at least up to the end that `head` has.
pub async fn read_records(client: &dyn Client, head: &RunHead) -> Result<Vec<Record>, RuntimeError> {
    let mut records: Vec<Record> = Vec::new();
    loop {
        let from = records.last().map_or(Index(0), Record::next_index);
        if from >= head.next_index {
            return Ok(records);
        }
        let page = client.read_log(head.key.clone(), Some(head.generation), from, PAGE).await?;
        if page.is_empty() {
            return Ok(records);
        }
        records.extend(page);
    }
}

/// Reads the whole log of a generation, up to its current end if it is open.
pub(crate) async fn read_generation(client: &dyn Client, key: &RunKey, generation: u32) -> Result<Vec<Record>, RuntimeError> {
    let mut records: Vec<Record> = Vec::new();
    loop {
        let from = records.last().map_or(Index(0), Record::next_index);
        let page = client.read_log(key.clone(), Some(generation), from, PAGE).await?;
        let is_over = page.last().is_none_or(Record::ends_log);
        records.extend(page);
        if is_over {
            return Ok(records);
        }
    }
}

impl Outcome for OutcomeWatch {
    fn outcome(&self) -> ClientFuture<'_, Result<Payload, Failure>> {
        Box::pin(OutcomeWatch::outcome(self))
    }
}

impl Changes for RunWatch {
    fn changed(&mut self) -> ClientFuture<'_, ()> {
        Box::pin(RunWatch::changed(self))
    }

    fn generation(&self) -> u32 {
        RunWatch::generation(self)
    }
}

impl Client for Runtime {
    fn call(&self, call: Call) -> ClientFuture<'_, Reply> {
        self.execute(call, CallContext::default())
    }

    fn start_and_watch(&self, start: StartRequest) -> ClientFuture<'_, (StartReply, Arc<dyn Outcome>)> {
        Box::pin(async move {
            let (started, watch) = Runtime::start_and_watch(self, start).await?;
            Ok((start_reply(started), Arc::new(watch) as Arc<dyn Outcome>))
        })
    }

    fn watch_outcome(&self, key: &RunKey) -> Arc<dyn Outcome> {
        Arc::new(Runtime::watch_outcome(self, key))
    }

    fn watch_run(&self, key: RunKey) -> ClientFuture<'_, Box<dyn Changes>> {
        Box::pin(async move { Ok(Box::new(Runtime::watch_run(self, &key).await?) as Box<dyn Changes>) })
    }

    fn watch_updates(&self, request: WatchRequest) -> ClientFuture<'_, Box<dyn Updates>> {
        Box::pin(async move { Ok(Box::new(Runtime::watch_updates(self, request).await?) as Box<dyn Updates>) })
    }

    fn read_run(&self, key: RunKey) -> ClientFuture<'_, RunView> {
        Box::pin(read_view(self, key))
    }

    fn listen(&self, key: &RunKey) -> broadcast::Receiver<Emitted> {
        Runtime::listen(self, key)
    }
}

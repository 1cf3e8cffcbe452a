//! Drives runs over a store: the verbs of every door, workers and their leases, timers, news between runs, retention.
//!
//! This crate touches the world and never decides: what may be appended and what follows from it is decided in `onward-core`,
//! under the store's lock. It has no transport and no clock of its own: [`onward_store::Clock`] says what time it is, tokio only waits.
//!
//! Reading order: [`Runtime`], [`verbs`] (what a caller may ask), [`door`] (the same, wherever the runtime is), [`port`] (how a worker gets runs and tasks), [`driving`] (how one very run is taken), [`inbox`] (how inputs
//! reach a run that is being worked on), [`elsewhere`] (also those that another process wrote), [`housekeeping`] (what happens because time passes), [`courier`] (news between runs), [`kinds`] (what kinds take and give), [`entries`] (the conversation of an agent).

#![forbid(unsafe_code)]

mod api;
mod background;
mod by_run;
mod cluster;
mod conversation;
mod counts;
mod error;
mod schemas;
mod stream;
mod worker;

use std::sync::Arc;
use std::time::Duration;

use onward_store::{Clock, Retention, Store};

pub use api::blocked_on::{Hindrance, WhyHindered};
pub use api::bulk::{BULK_MAX, Bulk, BulkDone, BulkVerb};
pub use api::call_token::CallId;
pub use api::client::{Changes, Door, DoorFuture, Outcome, find_prelude, read_records};
pub use api::decide::Decide;
pub use api::drive::{Delivery, NotResumed, Resumed};
pub use api::external::{AppendExternal, AppendedExternal, ExternalPlace, ExternalRun};
pub use api::read::WhyPending;
pub use api::reopen::ForkRun;
pub use api::runs::{SendSignal, StartRun};
pub use api::tasks::{StartTask, TaskView, TaskWord};
pub use api::transfer::{Imported, export_run, leaves_out};
pub use api::update::UpdateWatch;
pub use api::watch::{OutcomeWatch, RunWatch};
pub use background::Background;
pub use background::tick::{Did, Tick};
pub use cluster::workers::WorkersSaid;
pub use conversation::append::{AppendEntry, AppendedEntry};
pub use conversation::branch::{BranchEntry, BranchRun};
pub use conversation::read::{ENTRIES_DEFAULT, ENTRIES_MAX, EntryPage, EntryQuery};
pub use counts::{Count, Counts};
pub use error::RuntimeError;
pub use onward_core::TASK_KIND_PREFIX;
pub use schemas::depth::{JSON_DEPTH_MAX, too_deep};
pub use schemas::kinds::{KindVersion, KindView, Violation};
pub use stream::StreamPage;
pub use stream::emits::Emitted;
pub use worker::connection::{Link, LinkFuture, Question};
pub use worker::inbox::Inbox;
pub use worker::list::{QueueInfo, WorkerInfo};
pub use worker::local::{Adoption, WorkerPort};
pub use worker::profile::WorkerProfile;

use cluster::listener::Hub;

/// How a runtime behaves.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// How long a worker may be silent before its runs and tasks go to others.
    pub lease: Duration,
    /// How long closed runs are kept.
    pub retention: Retention,
    /// How long anything waits for a hint before it looks for itself. A lost hint, a clock that jumped or another process's write is
    /// noticed after this time; one second is short for a person and costs an idle process one query.
    pub fallback: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options { lease: Duration::from_secs(30), retention: Retention::default(), fallback: Duration::from_secs(1) }
    }
}

/// The engine's shell over one store. Cheap to clone: all clones are one runtime.
#[derive(Clone)]
pub struct Runtime {
    shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub store: Arc<dyn Store>,
    pub clock: Arc<dyn Clock>,
    pub options: Options,
    /// What the store's listener tells; it must not know the store, which holds it.
    pub hub: Arc<Hub>,
    /// Held while somebody keeps house, so that two ticks do not do the same work twice.
    pub house: tokio::sync::Mutex<background::tick::House>,
    pub kinds: schemas::kinds::Kinds,
    pub counts: Counts,
}

impl Runtime {
    /// Listens to `store` from now on. Nothing happens by itself before [`Runtime::spawn`].
    ///
    /// `clock` must be the clock that the store judges by.
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>, options: Options) -> Runtime {
        let hub = Arc::new(Hub::default());
        store.subscribe(hub.clone());
        let (house, kinds, counts) = Default::default();
        Runtime { shared: Arc::new(Shared { store, clock, options, hub, house, kinds, counts }) }
    }

    pub fn store(&self) -> &Arc<dyn Store> {
        &self.shared.store
    }

    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.shared.clock
    }

    pub fn options(&self) -> &Options {
        &self.shared.options
    }

    /// How many logs the workers of this runtime have replayed and found in agreement with their code, since it began.
    pub fn replays_ok(&self) -> u64 {
        self.hub().replays.count()
    }

    /// What was counted since this runtime began.
    pub fn counts(&self) -> &Counts {
        &self.shared.counts
    }

    pub(crate) fn hub(&self) -> &Arc<Hub> {
        &self.shared.hub
    }
}

impl std::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runtime").field("options", &self.shared.options).finish_non_exhaustive()
    }
}

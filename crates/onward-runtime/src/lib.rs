//! Runs the engine over a store: the API verbs, workers and their leases, timers, the outbox, retention.
//!
//! This crate does I/O and makes no decisions: `onward-core` decides under the store's lock what may be appended and what
//! follows from it. It has no transport and no clock of its own: [`onward_store::Clock`] is the time source, and tokio is used
//! only to wait.
//!
//! Reading order: [`Runtime`], `api` (the verbs; [`Client`] is the same interface for local and remote callers), `worker`
//! (leases, inboxes and tasks of workers), `cluster` (changes that other processes wrote), `background` (timers, timeouts,
//! outbox, retention), `schemas` (inputs and results of kinds), `conversation` (entries of an agent), `stream` (what tasks
//! emit).

#![forbid(unsafe_code)]

mod api;
mod background;
mod by_run;
mod cluster;
mod conversation;
mod counts;
mod error;
mod memo;
mod schedule;
mod schemas;
mod start_policy;
mod stream;
mod worker;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use onward_core::{KindDefaults, Name};
use onward_store::{Clock, Retention, Store};

pub use api::bulk::BULK_MAX;
pub use api::call_ref::CallRef;
pub use api::client::{Changes, Client, ClientFuture, Outcome, Updates, read_records, read_view};
pub use api::drive::{DriveInput, NotResumed, Resumed};
pub use api::execute::CallContext;
pub use api::external::{AppendExternal, AppendedExternal, ExternalPosition, ExternalRun};
pub use api::live::RunUpdates;
pub use api::observe::{CALLS_DEFAULT, CALLS_MAX, read_moment};
pub use api::runs::new_run_id;
pub use api::transfer::{Imported, export_run, leaves_out};
pub use api::update::UpdateWatch;
pub use api::watch::{OutcomeWatch, RunWatch};
pub use background::Background;
pub use background::tick::{Tick, TickCounts};
pub use conversation::{ENTRIES_DEFAULT, ENTRIES_MAX, known_entry, read_page};
pub use counts::{Count, Counts, DURATION_BOUNDS, Histogram};
pub use error::RuntimeError;
pub use memo::check_run_id;
pub use onward_core::TASK_KIND_PREFIX;
pub use onward_core::api::{
    AppendEntry, AppendedEntry, BlockReason, Blocker, BranchEntry, BranchRun, BulkDone, BulkVerb, Decide, Emitted, EntryPage,
    EntryQuery, ForkRequest, QueueInfo, Signal, StartRequest, StreamPage, TaskStatus, TaskView, WorkerInfo,
};
pub use schemas::answers::check_answer;
pub use schemas::check::{ValueSchema, Violation, schema_problem, violations_now};
pub use schemas::depth::{JSON_DEPTH_MAX, too_deep};
pub use schemas::kinds::{KindVersion, KindView};
pub use stream::feed::{FeedFrame, RunChange, RunFeed};
pub use worker::connection::{ConnectionFuture, Question, WorkerConnection};
pub use worker::inbox::Inbox;
pub use worker::list::WorkerAnnouncement;
pub use worker::local::{Adoption, LocalConnection};
pub use worker::profile::WorkerProfile;
pub use worker::rate_limits::RateLimit;

use cluster::Hub;

/// Settings of a runtime.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Lease duration: the runs and tasks of a worker that is silent for longer go to other workers.
    pub lease: Duration,
    /// Retention of closed runs.
    pub retention: Retention,
    /// Poll interval of everything that waits for a notification. A lost notification, a clock jump or a write of another
    /// process is noticed after this time at the latest. An idle process makes one query per interval.
    pub fallback: Duration,
    /// Defaults of kinds, in all namespaces.
    pub defaults: BTreeMap<Name, KindDefaults>,
}

impl Default for Options {
    fn default() -> Options {
        let (lease, fallback) = (Duration::from_secs(30), Duration::from_secs(1));
        Options { lease, retention: Retention::default(), fallback, defaults: BTreeMap::new() }
    }
}

/// Handle of the engine over one store. Cheap to clone: all clones share one runtime.
#[derive(Clone)]
pub struct Runtime {
    shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub store: Arc<dyn Store>,
    pub clock: Arc<dyn Clock>,
    pub options: Options,
    /// Receiver of the store's change notifications. It holds no reference to the store, because the store holds it.
    pub hub: Arc<Hub>,
    /// Held during a tick, so that two ticks do not do the same work twice.
    pub background_state: tokio::sync::Mutex<background::tick::BackgroundState>,
    pub kinds: schemas::kinds::Kinds,
    pub counts: Counts,
}

impl Runtime {
    /// Subscribes to changes of `store`. Background jobs run only after [`Runtime::spawn`].
    ///
    /// `clock` must be the clock that the store uses.
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>, options: Options) -> Runtime {
        let hub = Arc::new(Hub::default());
        store.subscribe(hub.clone());
        let (background_state, kinds, counts) = Default::default();
        Runtime { shared: Arc::new(Shared { store, clock, options, hub, background_state, kinds, counts }) }
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

    /// Returns how many logs workers of this runtime have replayed without divergence since it was created.
    pub fn replays_ok(&self) -> u64 {
        self.hub().replays.count()
    }

    /// Returns how many results of steps, tasks and children these replays took from the log.
    pub fn results_replayed(&self) -> u64 {
        self.hub().replays.results()
    }

    /// Returns the counters since this runtime was created.
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

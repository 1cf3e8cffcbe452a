//! The client: starting runs, and operations on them.
//!
//! Every operation is one of the runtime. Its effect is durable when it returns.
//!
//! Invariant OP1: after a shutdown every call on the engine and its handles fails with `shut_down`, including calls that were
//! waiting.

/// Implements `IntoFuture` for a builder, by its method `send`.
macro_rules! awaitable {
    ($builder:ident $(<$t:ident $(: $bound:path)?>)? => $output:ty) => {
        impl $(<$t: $($bound +)? 'static>)? std::future::IntoFuture for $builder $(<$t>)? {
            type Output = $crate::Result<$output, $crate::Error>;
            type IntoFuture = std::pin::Pin<Box<dyn Future<Output = Self::Output> + Send>>;

            fn into_future(self) -> Self::IntoFuture {
                Box::pin(self.send())
            }
        }
    };
}

mod defaults;
mod drive;
mod entries;
pub(crate) mod fork;
mod memos;
mod schedules;
mod send;
mod stream;
mod task;
mod watch;

use std::marker::PhantomData;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onward_core::ancestry::behind_copy;
use onward_core::api::{
    ActivityQuery, ActivityReply, Appended, AskRequest, Blocker, BulkDone, BulkRequest, Call, ChildrenQuery, CountQuery,
    CountsReply, Decide, DecideRequest, DeletedQuery, DeletedRun, Emitted, Moment, MomentRequest, ReasonRequest, Reply,
    ResolveRequest, ResumeRequest, RunList, RunQuery, Signal, StartRequest, Timeline, TimelineRequest, VersionCount, WaitQuery,
};
use onward_core::budget::Budget;
use onward_core::ledger::{SpendQuery, SpendRow};
use onward_core::run::Wait;
use onward_core::time::millis;
use onward_core::view::RunView;
use onward_core::{
    Attribute, AttributeValue, Failure, Index, Name, NameError, Namespace, Payload, Record, RunHead, RunId, RunKey, Timestamp,
};
use onward_runtime::{Background, CALLS_MAX, CallRef, Changes, Client, Outcome, Runtime, new_run_id};
use onward_store::sync::{lock, random_u64};
use onward_store::{Clock, Store, SystemClock};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::task::JoinHandle;

use crate::client::fork::Fork;
use crate::names::{SignalName, WorkflowName};
use crate::worker::Worker;
use crate::{Error, Result};

pub use drive::{Driven, RunInput};
pub use entries::{Branch, Entries, EntryPages};
pub use memos::MemoKeys;
pub use schedules::{Backfill, ScheduleHandle, Trigger, Triggered};
pub use send::{Append, Retry, SendSignal, Update};
pub use stream::RunStream;
pub use task::{StartTask, TaskHandle};
pub use watch::LiveRun;

/// Number of records per read.
const PAGE: usize = 1_000;

/// Time limit for flushing spans to the collector on shutdown.
const FLUSH_MAX: Duration = Duration::from_secs(5);

/// Time limit for the engine's threads and tasks to release the store on shutdown.
const CLOSE_MAX: Duration = Duration::from_secs(1);

/// The open or closed state that an engine shares with all its handles.
#[derive(Default)]
pub(crate) struct OpenState {
    is_closed: tokio::sync::watch::Sender<bool>,
}

impl OpenState {
    pub fn close(&self) {
        self.is_closed.send_replace(true);
    }

    /// Returns the result of `call`, or `ShutDown` if the engine is closed first (OP1).
    pub async fn call<T, E>(&self, call: impl Future<Output = Result<T, E>>) -> Result<T, Error>
    where
        Error: From<E>,
    {
        let mut is_closed = self.is_closed.subscribe();
        if *is_closed.borrow() {
            return Err(Error::ShutDown);
        }
        tokio::select! {
            biased;
            answer = call => Ok(answer?),
            _ = is_closed.wait_for(|is_closed| *is_closed) => Err(Error::ShutDown),
        }
    }
}

/// A running engine: client and worker in one. Cheap to clone. Dropping the last clone stops everything at once, like the end of
/// the process.
#[derive(Clone)]
pub struct Onward {
    inner: Arc<Inner>,
}

struct Inner {
    client: Arc<dyn Client>,
    namespace: Namespace,
    worker: Arc<Worker>,
    loops: Vec<JoinHandle<()>>,
    open: Arc<OpenState>,
    local: LocalParts,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.loops.iter().for_each(JoinHandle::abort);
        self.worker.stop();
        self.open.close();
    }
}

/// The parts of an engine that are in this process; none over a server.
#[derive(Default)]
pub(crate) struct LocalParts {
    /// The runtime behind the client.
    pub runtime: Option<Runtime>,
    pub background: Mutex<Option<Background>>,
    /// The store, if it was opened here and must be closed here.
    pub opened: Option<Arc<dyn Store>>,
}

impl Onward {
    pub(crate) fn new(
        client: Arc<dyn Client>,
        namespace: Namespace,
        (worker, loops): (Arc<Worker>, Vec<JoinHandle<()>>),
        local: LocalParts,
    ) -> Onward {
        Onward { inner: Arc::new(Inner { client, namespace, worker, loops, open: Arc::default(), local }) }
    }

    /// Returns the runtime of this process, for operations that this type does not have; `None` when connected to a server.
    pub fn runtime(&self) -> Option<&Runtime> {
        self.inner.local.runtime.as_ref()
    }

    /// Returns the result of `call`, or `ShutDown` if this engine is shut down first.
    pub(crate) async fn call<T, E>(&self, call: impl Future<Output = Result<T, E>>) -> Result<T, Error>
    where
        Error: From<E>,
    {
        self.inner.open.call(call).await
    }

    fn key(&self, id: &str) -> Result<RunKey, Error> {
        Ok(RunKey::new(self.inner.namespace.clone(), RunId::new(id)?))
    }

    /// Starts a run of `kind`, a name or a typed [`crate::Workflow`]. Awaiting the builder starts it.
    pub fn start<O, I: Serialize + ?Sized>(&self, kind: impl WorkflowName<O>, input: &I) -> Start<O> {
        Start {
            onward: self.clone(),
            kind: kind.workflow_name().to_owned(),
            version: None,
            id: None,
            input: Payload::json(input),
            signal: None,
            trace: None,
            budget: None,
            deadline: None,
            start_at: None,
            start_after: None,
            queue: None,
            key: None,
            priority: None,
            attributes: Vec::new(),
            output: PhantomData,
        }
    }

    /// Returns a handle to an existing run, or to one that a schedule has decided to start.
    pub fn run<O>(&self, id: &str) -> Result<RunHandle<O>, Error> {
        let key = self.key(id)?;
        let outcome = schedules::outcome_of(&self.inner.client, &key);
        Ok(RunHandle { onward: self.clone(), key, outcome, output: PhantomData })
    }

    pub async fn list_runs(&self, query: RunQuery) -> Result<RunList, Error> {
        let query = RunQuery { namespace: self.inner.namespace.clone(), ..query };
        self.call(self.inner.client.list_runs(query)).await
    }

    /// Counts the open runs by kind and version.
    pub async fn list_versions(&self) -> Result<Vec<VersionCount>, Error> {
        Ok(self.call(self.inner.client.list_versions(self.inner.namespace.clone())).await?.versions)
    }

    /// Returns what was spent in this namespace, by model, day, run or tree. The namespace of the query is ignored.
    pub async fn read_spend(&self, query: SpendQuery) -> Result<Vec<SpendRow>, Error> {
        let query = SpendQuery { namespace: self.inner.namespace.clone(), ..query };
        Ok(self.call(self.inner.client.read_spend(query)).await?.rows)
    }

    /// Counts runs by status, of at most 20,000 runs. The namespace of the query is ignored.
    pub async fn count_runs(&self, query: CountQuery) -> Result<CountsReply, Error> {
        let query = CountQuery { namespace: self.inner.namespace.clone(), ..query };
        self.call(self.inner.client.count_runs(query)).await
    }

    /// Counts the starts and ends of runs over time. The namespace of the query is ignored.
    pub async fn read_activity(&self, query: ActivityQuery) -> Result<ActivityReply, Error> {
        let query = ActivityQuery { namespace: self.inner.namespace.clone(), ..query };
        self.call(self.inner.client.read_activity(query)).await
    }

    /// Lists the open approvals, oldest first.
    pub async fn list_approvals(&self) -> Result<Vec<Wait>, Error> {
        let query = WaitQuery { namespace: self.inner.namespace.clone(), ..WaitQuery::default() };
        Ok(self.call(self.inner.client.list_approvals(query)).await?.waits)
    }

    /// Decides an approval by its id. A repeat with the same `decision_id` returns the first result; another decision is
    /// rejected.
    pub async fn decide_approval(&self, approval: &str, decide: Decide) -> Result<Appended, Error> {
        let request = DecideRequest { namespace: self.inner.namespace.clone(), approval: approval.to_owned(), decide };
        self.call(self.inner.client.decide_approval(request)).await
    }

    /// Approves; short for [`Onward::decide_approval`].
    pub async fn approve(&self, approval: &str) -> Result<Appended, Error> {
        let decision_id = format!("{:016x}", random_u64());
        self.decide_approval(approval, Decide { approved: true, feedback: None, decided_by: None, answer: None, decision_id })
            .await
    }

    /// Approves with a structured answer; short for [`Onward::decide_approval`].
    pub async fn approve_with(&self, approval: &str, answer: &(impl Serialize + ?Sized)) -> Result<Appended, Error> {
        let answer = Payload::json(answer).map_err(|why| Error::Convert { what: "the answer", why })?;
        let (decided_by, decision_id) = (None, format!("{:016x}", random_u64()));
        let decide = Decide { approved: true, feedback: None, decided_by, answer: Some(answer), decision_id };
        self.decide_approval(approval, decide).await
    }

    /// Declines with feedback; short for [`Onward::decide_approval`].
    pub async fn disapprove(&self, approval: &str, feedback: &str) -> Result<Appended, Error> {
        let (feedback, decision_id) = (Some(feedback.to_owned()), format!("{:016x}", random_u64()));
        self.decide_approval(approval, Decide { approved: false, feedback, decided_by: None, answer: None, decision_id }).await
    }

    /// Resolves a promise by its id. A repeat with the same `resolution_id` returns the first result; another result is rejected.
    pub async fn resolve(
        &self,
        promise: &str,
        value: &(impl Serialize + ?Sized),
        resolution_id: &str,
    ) -> Result<Appended, Error> {
        let value = Payload::json(value).map_err(|why| Error::Convert { what: "the value", why })?;
        self.settle(promise, Ok(value), resolution_id).await
    }

    /// Rejects a promise by its id, with a failure.
    pub async fn reject(&self, promise: &str, failure: Failure, resolution_id: &str) -> Result<Appended, Error> {
        self.settle(promise, Err(failure), resolution_id).await
    }

    async fn settle(&self, promise: &str, result: Result<Payload>, resolution_id: &str) -> Result<Appended, Error> {
        let (namespace, promise) = (self.inner.namespace.clone(), promise.to_owned());
        CallRef::parse(&namespace, &promise)?;
        let request = ResolveRequest { namespace, promise, result, resolution_id: resolution_id.to_owned() };
        self.call(self.inner.client.resolve_promise(request)).await
    }

    /// Applies an operation to one batch of the runs that a filter selects, or counts them; see [`BulkRequest`]. Call it again with the
    /// returned cursor until there is none.
    pub async fn bulk_runs(&self, bulk: BulkRequest) -> Result<BulkDone, Error> {
        let filter = RunQuery { namespace: self.inner.namespace.clone(), ..bulk.filter };
        self.call(self.inner.client.execute_bulk(BulkRequest { filter, ..bulk })).await
    }

    /// Deletes a closed run and everything that belongs to it, at once.
    pub async fn delete_run(&self, id: &str, reason: &str) -> Result<(), Error> {
        let request = ReasonRequest { run: self.key(id)?, reason: reason.to_owned() };
        self.call(self.inner.client.delete_run(request)).await?;
        Ok(())
    }

    /// Lists runs that were deleted individually, newest first, with the reason. Entries are kept for as long as retention would
    /// have kept the run.
    pub async fn list_deleted(&self) -> Result<Vec<DeletedRun>, Error> {
        let query = DeletedQuery { namespace: self.inner.namespace.clone(), ..DeletedQuery::default() };
        Ok(self.call(self.inner.client.list_deleted(query)).await?.runs)
    }

    /// Executes a verb of the API, for operations that this type does not have.
    pub async fn execute(&self, call: Call) -> Result<Reply, Error> {
        self.call(self.inner.client.call(call)).await
    }

    pub fn namespace(&self) -> &Namespace {
        &self.inner.namespace
    }

    /// Returns the number of runs in this process's memory.
    pub fn hot_runs(&self) -> usize {
        self.inner.worker.hot_runs()
    }

    /// Stops claiming work, waits for running steps and tasks (at most ten seconds, `Builder::shutdown_timeout`), and releases
    /// every run.
    ///
    /// Afterwards every call on a clone or a run handle fails with [`Error::ShutDown`], including a waiting
    /// [`RunHandle::result`]. Runs continue when an engine starts over the same store.
    ///
    /// If no other clone and no run handle is left, the directory is closed when this returns and can be opened again.
    pub async fn shutdown(self) {
        let timeout = self.inner.worker.options.shutdown_timeout;
        self.shutdown_within(timeout).await;
    }

    /// Shuts down like [`Onward::shutdown`], and waits at most `timeout` for running steps and tasks.
    pub async fn shutdown_within(self, timeout: Duration) {
        self.inner.loops.iter().for_each(JoinHandle::abort);
        self.inner.worker.drain(timeout).await;
        self.inner.open.close(); // OP1
        if let Some(tracing) = &self.inner.worker.shared.tracing {
            tracing.flush(FLUSH_MAX).await;
        }
        let background = lock(&self.inner.local.background).take();
        if let Some(background) = background {
            background.stop().await;
        }
        let last = Arc::strong_count(&self.inner) == 1;
        let store = self.inner.local.opened.clone().filter(|_| last);
        drop(self);
        if let Some(store) = store {
            close(store).await;
        }
    }
}

/// Closes the store once the stopped threads and tasks have released it.
async fn close(store: Arc<dyn Store>) {
    let deadline = tokio::time::Instant::now() + CLOSE_MAX;
    while Arc::strong_count(&store) > 1 && tokio::time::Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // Waits for the store's own threads; a panic there was reported already.
    drop(tokio::task::spawn_blocking(move || drop(store)).await);
}

/// A run to be started; see [`Onward::start`].
#[must_use = "await it to start the run"]
pub struct Start<O> {
    onward: Onward,
    kind: String,
    version: Option<String>,
    id: Option<String>,
    input: Result<Payload, serde_json::Error>,
    signal: Option<Result<Signal, Error>>,
    trace: Option<String>,
    budget: Option<Budget>,
    deadline: Option<Duration>,
    start_at: Option<Timestamp>,
    start_after: Option<Duration>,
    queue: Option<String>,
    key: Option<String>,
    priority: Option<i32>,
    attributes: Vec<(String, AttributeValue)>,
    output: PhantomData<fn() -> O>,
}

impl<O> Start<O> {
    /// Sets the run's id. Starting the same id with the same input again returns the same run.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Pins the run to a version of its code; default the version registered as current.
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.version = Some(version.into());
        self
    }

    /// Sets the trace that the run belongs to, in the format of the header `traceparent`. An invalid value is ignored.
    pub fn trace(mut self, traceparent: impl Into<String>) -> Self {
        self.trace = Some(traceparent.into());
        self
    }

    /// Sets an attribute, by which the run is listed and selected. The code can change it with `ctx.attributes()`.
    pub fn attribute(mut self, name: &str, value: impl Into<AttributeValue>) -> Self {
        self.attributes.push((name.to_owned(), value.into()));
        self
    }

    /// Limits what the run and its children may spend. When it is exhausted, the run pauses as `budget_exhausted`.
    pub fn budget(self, budget: Budget) -> Self {
        Start { budget: Some(budget), ..self }
    }

    /// Begins the run's code at this time, or at once if it has passed. The run exists before: it keeps signals, and ends without
    /// running its code when it is canceled.
    pub fn at(self, time: Timestamp) -> Self {
        Start { start_at: Some(time), ..self }
    }

    /// Begins the run's code this long after its start; see [`Start::at`].
    pub fn after(self, delay: Duration) -> Self {
        Start { start_after: Some(delay), ..self }
    }

    /// Begins the run's code when this queue lets it in. The run holds a slot from then until it ends.
    pub fn queue(self, queue: &str) -> Self {
        Start { queue: Some(queue.to_owned()), ..self }
    }

    /// Sets the key whose limits and share of the queue apply to the run.
    pub fn key(self, key: &str) -> Self {
        Start { key: Some(key.to_owned()), ..self }
    }

    /// Sets the priority in the queue: higher begins first; default 0. One level is worth a minute of waiting.
    pub fn priority(self, priority: i32) -> Self {
        Start { priority: Some(priority), ..self }
    }

    /// Cancels the run if it has not ended after this time; its code may compensate. Time before [`Start::at`] and while it is paused
    /// does not count. Later
    /// generations of the run share the limit, and its children end with it.
    pub fn deadline(self, deadline: Duration) -> Self {
        Start { deadline: Some(deadline), ..self }
    }

    /// Sends a signal with the start, in one write, also if the run exists already.
    pub fn signal<N: SignalName>(mut self, name: N, payload: &(impl Serialize + ?Sized)) -> Self {
        self.signal = Some(signal(&name, payload));
        self
    }

    /// Sets an id under which the signal is accepted once.
    pub fn signal_id(mut self, id: impl Into<String>) -> Self {
        if let Some(Ok(signal)) = &mut self.signal {
            signal.signal_id = Some(id.into());
        }
        self
    }

    async fn send(self) -> Result<RunHandle<O>, Error> {
        let inner = &self.onward.inner;
        let kind = Name::new(&self.kind)?;
        let version = self.version.as_deref().map(Name::new).transpose()?;
        let registry = &inner.worker.registry;
        let version = version.or_else(|| registry.workflows.get(&kind).and_then(|kind| kind.current.clone()));
        // A server has workers with kinds that this process has not registered.
        if inner.local.runtime.is_some() && registry.handler(&kind, version.as_ref()).is_none() {
            return Err(Error::UnknownKind { kind: self.kind, version: version.map(|version| version.to_string()) });
        }
        let signal = self.signal.transpose()?;
        let id = self.id.unwrap_or_else(|| new_run_id(SystemClock.now()));
        let key = self.onward.key(&id)?;
        let input = self.input.map_err(|why| Error::Convert { what: "the input", why })?;
        let attribute = |(name, value): (String, AttributeValue)| Ok::<_, NameError>(Attribute { name: Name::new(name)?, value });
        let attributes = self.attributes.into_iter().map(attribute).collect::<Result<_, _>>()?;
        let start = StartRequest {
            version,
            signal,
            trace: self.trace,
            attributes,
            // Over a server, the API key limits the budget that may be granted.
            budget: self.budget,
            deadline_ms: self.deadline.map(millis),
            start_at: self.start_at,
            start_after_ms: self.start_after.map(millis),
            queue: self.queue.map(Name::new).transpose()?,
            key: self.key.map(Name::new).transpose()?,
            priority: self.priority,
            ..StartRequest::new(key.clone(), kind, input, random_u64())
        };
        let (_, outcome) = self.onward.call(inner.client.start_and_watch(start)).await?;
        Ok(RunHandle { onward: self.onward, key, outcome: Some(outcome), output: PhantomData })
    }
}

awaitable!(Start<O> => RunHandle<O>);

fn to_signal(name: &str, payload: Result<Payload, Error>) -> Result<Signal, Error> {
    Ok(Signal { payload: payload?, name: Name::new(name)?, signal_id: None })
}

/// Encodes a signal without an id.
fn signal<N: SignalName>(name: &N, payload: &(impl Serialize + ?Sized)) -> Result<Signal, Error> {
    to_signal(name.signal_name(), Payload::json(payload).map_err(|why| Error::Convert { what: "the signal", why }))
}

/// A handle to one run. Cheap to clone.
pub struct RunHandle<O> {
    onward: Onward,
    key: RunKey,
    /// The pending outcome, if this handle started the run or a schedule may start it.
    outcome: Option<Arc<dyn Outcome>>,
    output: PhantomData<fn() -> O>,
}

impl<O> Clone for RunHandle<O> {
    fn clone(&self) -> Self {
        let (onward, key, outcome) = (self.onward.clone(), self.key.clone(), self.outcome.clone());
        RunHandle { onward, key, outcome, output: PhantomData }
    }
}

impl<O: DeserializeOwned> RunHandle<O> {
    /// Waits for the run to end and returns its result.
    ///
    /// A paused run, whether it diverged or was paused on request, ends only after it is resumed, and this call waits until then.
    /// The engine logs a pause that was not requested with [`tracing`](https://docs.rs/tracing), or on stderr without a
    /// subscriber. [`RunHandle::view`] has it as `pause`, and `onward run show` prints it. To stop waiting at a pause, use
    /// [`RunHandle::until`] with `|view| view.pause.is_some()`.
    pub async fn result(&self) -> Result<O, Error> {
        let outcome = match &self.outcome {
            Some(watch) => self.onward.call(watch.outcome()).await?,
            None => self.onward.call(self.client().wait_for_outcome(self.key.clone())).await?,
        };
        match outcome {
            Ok(output) => output.read().map_err(|why| Error::Convert { what: "the output", why }),
            Err(failure) => Err(Error::RunFailed { run: self.id().to_owned(), failure: Box::new(failure) }),
        }
    }
}

impl<O> RunHandle<O> {
    pub fn id(&self) -> &str {
        self.key.id.as_str()
    }

    /// Returns a handle to the same run without a result type.
    fn untyped(&self) -> RunHandle<()> {
        RunHandle { onward: self.onward.clone(), key: self.key.clone(), outcome: None, output: PhantomData }
    }

    pub(crate) fn client(&self) -> &Arc<dyn Client> {
        &self.onward.inner.client
    }

    /// Returns the run's current status, what it awaits, its state and its outcome.
    pub async fn view(&self) -> Result<RunView, Error> {
        self.onward.call(self.client().read_run(self.key.clone())).await
    }

    /// Waits until `wanted` is true for the run's view and returns that view. Also returns when the run is closed, since its view
    /// no longer changes.
    pub async fn until(&self, mut wanted: impl FnMut(&RunView) -> bool) -> Result<RunView, Error> {
        let mut watch = self.onward.call(self.client().watch_run(self.key.clone())).await?;
        loop {
            let began = tokio::time::Instant::now();
            let view = self.view().await?;
            if wanted(&view) || view.head.status.is_closed() {
                return Ok(view);
            }
            let rest = began.elapsed();
            self.onward.call(watch.changed()).await?;
            // A view is folded from the whole log: reading a long one after each of its events would take most of the time.
            if rest > Duration::from_millis(1) {
                let sleep = async {
                    tokio::time::sleep(rest).await;
                    Ok::<_, Error>(())
                };
                self.onward.call(sleep).await?;
            }
        }
    }

    /// Sends a signal to the run. Awaiting the builder sends it; [`SendSignal::id`] makes a repeat the same signal.
    pub fn signal<N: SignalName>(&self, name: N, payload: &(impl Serialize + ?Sized)) -> SendSignal {
        SendSignal { run: self.untyped(), signal: signal(&name, payload) }
    }

    fn because(&self, reason: &str) -> ReasonRequest {
        ReasonRequest { run: self.key.clone(), reason: reason.to_owned() }
    }

    /// Requests cancellation of the run. Its code may run compensations first.
    pub async fn cancel(&self, reason: &str) -> Result<Appended, Error> {
        self.onward.call(self.client().cancel_run(self.because(reason))).await
    }

    /// Ends the run at once, without running any of its code.
    pub async fn terminate(&self, reason: &str) -> Result<Appended, Error> {
        self.onward.call(self.client().terminate_run(self.because(reason))).await
    }

    /// Lists the runs that this run started as its children, newest first, with their status.
    pub async fn children(&self) -> Result<Vec<RunHead>, Error> {
        let mut query = ChildrenQuery::from(self.key.clone());
        let mut children = Vec::new();
        loop {
            let page = self.onward.call(self.client().list_children(query.clone())).await?;
            children.extend(page.runs);
            match page.next {
                Some(next) => query.cursor = Some(next),
                None => return Ok(children),
            }
        }
    }

    /// Returns the calls of the run's current generation with their times and attempts, in order of their first events.
    pub async fn timeline(&self) -> Result<Timeline, Error> {
        let mut request = TimelineRequest { run: self.key.clone(), generation: None, limit: CALLS_MAX, cursor: None };
        let mut timeline = self.onward.call(self.client().read_timeline(request.clone())).await?;
        request.generation = Some(timeline.generation);
        while let Some(next) = timeline.next.take() {
            request.cursor = Some(next);
            let page = self.onward.call(self.client().read_timeline(request.clone())).await?;
            timeline.calls.extend(page.calls);
            timeline.next = page.next;
        }
        Ok(timeline)
    }

    /// Returns the run as of an event in the log of its current generation: status, waits, state.
    pub async fn at(&self, index: Index) -> Result<Moment, Error> {
        let request = MomentRequest { run: self.key.clone(), generation: None, index };
        self.onward.call(self.client().read_at(request)).await
    }

    /// Returns why the run and its tasks are blocked now, the run first. A pending run waits for a worker that has its code
    /// (`no_worker`) or is free (`queued`). For a task, no worker serves it, its provider key is rate-limited, it is in
    /// quarantine, or its next attempt is not due. Empty if nothing is blocked.
    pub async fn blocked_on(&self) -> Result<Vec<Blocker>, Error> {
        Ok(self.onward.call(self.client().read_blockers(self.key.clone())).await?.blocked_on)
    }

    /// Pauses the run: timers keep their remaining time, and running steps are recorded when they end.
    pub async fn pause(&self, reason: &str) -> Result<Appended, Error> {
        self.onward.call(self.client().pause_run(self.because(reason))).await
    }

    pub async fn resume(&self) -> Result<Appended, Error> {
        self.onward.call(self.client().resume_run(ResumeRequest { run: self.key.clone(), budget: None })).await
    }

    /// Resumes the run with new budget limits, which replace the current ones.
    pub async fn resume_with(&self, budget: Budget) -> Result<Appended, Error> {
        self.onward.call(self.client().resume_run(ResumeRequest { run: self.key.clone(), budget: Some(budget) })).await
    }

    /// Retries a failed run: the calls that failed are executed again, all other recorded results stay. Fails with
    /// `outcome_unknown` if a task failed with that code. Awaiting the builder sends the request.
    pub fn retry(&self, reason: &str) -> Retry {
        Retry::new(self.untyped(), reason)
    }

    /// Starts a run that continues from a point of this run's log; see [`Fork`]. Awaiting the builder starts it.
    pub fn fork(&self) -> Fork<O> {
        Fork::new(self, false)
    }

    /// Starts a fork like [`RunHandle::fork`] and ends this run.
    pub fn reset(&self) -> Fork<O> {
        Fork::new(self, true)
    }

    /// Calls a query handler of the run's code (`ctx.query`). Nothing is recorded.
    pub async fn query<T: DeserializeOwned>(&self, name: &str, input: &(impl Serialize + ?Sized)) -> Result<T, Error> {
        let name = Name::new(name)?;
        let input = Payload::json(input).map_err(|why| Error::Convert { what: "the query", why })?;
        let request = AskRequest { run: self.key.clone(), name: name.clone(), payload: input, update_id: String::new() };
        let answer = self.onward.call(self.client().query_run(request)).await?.answer;
        self.read_answer(answer.ok_or_else(|| Error::UnknownQuery { run: self.id().to_owned(), name: name.to_string() })?)
    }

    fn read_answer<T: DeserializeOwned>(&self, answer: Result<Payload>) -> Result<T, Error> {
        let payload = answer.map_err(|failure| Error::AnswerFailed { run: self.id().to_owned(), failure: Box::new(failure) })?;
        payload.read().map_err(|why| Error::Convert { what: "the answer", why })
    }

    /// Calls an update handler of the run's code (`ctx.update`) and returns the recorded result. Awaiting the builder sends it;
    /// [`Update::id`] makes a repeat the same update.
    pub fn update<T: DeserializeOwned>(&self, name: &str, input: &(impl Serialize + ?Sized)) -> Update<T> {
        let input = Payload::json(input).map_err(|why| Error::Convert { what: "the update", why });
        Update::new(self.untyped(), name, input)
    }

    /// Reads all records of the run's current log.
    pub async fn log(&self) -> Result<Vec<Record>, Error> {
        self.read_records(None).await
    }

    /// Reads all records of an earlier log of the run. The first generation is 0; each continue-as-new begins the next.
    pub async fn log_of(&self, generation: u32) -> Result<Vec<Record>, Error> {
        self.read_records(Some(generation)).await
    }

    async fn read_records(&self, generation: Option<u32>) -> Result<Vec<Record>, Error> {
        let (mut records, mut from) = (Vec::new(), Index(0));
        loop {
            let page = self.onward.call(self.client().read_log(self.key.clone(), generation, from, PAGE)).await?;
            let full = page.len() == PAGE;
            records.extend(page);
            match records.last() {
                Some(last) if full => from = last.next_index(),
                _ => return Ok(records),
            }
        }
    }

    /// Follows the run's log from `from`: recorded events first, then new ones, until the event that ends the run. If the run
    /// continues as new, follows its next log, which begins at 0 again.
    pub async fn attach(&self, from: Index) -> Result<Attached, Error> {
        let watch = self.onward.call(self.client().watch_run(self.key.clone())).await?;
        let (client, open) = (self.client().clone(), self.onward.inner.open.clone());
        let (key, generation) = (self.key.clone(), watch.generation());
        Ok(Attached {
            client,
            open,
            key,
            watch,
            generation,
            next: from,
            ready: Vec::new().into_iter(),
            log_over: false,
            ended: false,
        })
    }

    /// Reads the run's stream after `offset`: model answers as they arrive, and notices of what has become final. Without an
    /// offset, begins with what is not final yet.
    pub fn stream(&self, offset: Option<String>) -> RunStream {
        RunStream::new(self.client().clone(), self.onward.inner.open.clone(), self.key.clone(), offset)
    }

    /// Receives the values that the run emits with `ctx.emit` from now on. They are not recorded; without a receiver they are
    /// lost.
    pub fn emitted(&self) -> tokio::sync::broadcast::Receiver<Emitted> {
        self.client().listen(&self.key)
    }
}

/// A run's log as it grows; see [`RunHandle::attach`].
pub struct Attached {
    client: Arc<dyn Client>,
    open: Arc<OpenState>,
    key: RunKey,
    watch: Box<dyn Changes>,
    generation: u32,
    next: Index,
    ready: std::vec::IntoIter<Record>,
    /// The last record returned ended its generation.
    log_over: bool,
    ended: bool,
}

impl Attached {
    /// Returns the next record; `None` after the one that ended the run.
    pub async fn next(&mut self) -> Result<Option<Record>, Error> {
        loop {
            if let Some(record) = self.ready.next() {
                self.next = record.next_index();
                self.log_over = record.ends_log();
                return Ok(Some(record));
            }
            if self.ended {
                return Ok(None);
            }
            if self.log_over {
                // A run that continued as new, or failed and was retried, has not ended here.
                self.ended = self.open.call(self.client.read_head(self.key.clone())).await?.generation == self.generation;
                if !self.ended {
                    self.go_on().await?;
                }
                continue;
            }
            if !self.read().await? {
                let head = self.open.call(self.client.read_head(self.key.clone())).await?;
                let over = head.generation > self.generation || head.status.is_closed();
                // Records appended since the first read are visible now. If there are none, the reader began after the end and is
                // done.
                if !over {
                    self.open.call(self.watch.changed()).await?;
                } else if !self.read().await? {
                    self.ended = head.generation == self.generation;
                    if !self.ended {
                        self.go_on().await?;
                    }
                }
            }
        }
    }

    /// Moves to the next generation, after the copy of records that were already read.
    async fn go_on(&mut self) -> Result<(), Error> {
        let first = self.open.call(self.client.read_log(self.key.clone(), Some(self.generation + 1), Index(0), 1)).await?;
        self.next = first.first().map_or(Index(0), |first| behind_copy(&self.key, first));
        (self.generation, self.log_over) = (self.generation + 1, false);
        Ok(())
    }

    /// Reads the next page and returns whether it has records.
    async fn read(&mut self) -> Result<bool, Error> {
        let page = self.open.call(self.client.read_log(self.key.clone(), Some(self.generation), self.next, PAGE)).await?;
        self.ready = page.into_iter();
        Ok(self.ready.len() > 0)
    }
}

//! A run's code together with its engine: polled to quiescence, event by event.
//!
//! Owns the future that is the user's function. Must never wait: the driver feeds records and hands commits on.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use onward_core::conversation::Entry;
use onward_core::engine::{Advance, Cut, Draft, Engine, Fault};
use onward_core::event::UpdateReceived;
use onward_core::log::{CommitHeader, prelude_of};
use onward_core::{Failure, Index, Name, Payload, Place, Record, RunKey, Timestamp};
use onward_store::Clock;

use crate::agent::library::Wish;
use crate::ctx::Ctx;
use crate::host::cell::{Answerer, Deps, Emitter, RunCell, StepScript};
use crate::host::foreign;
use crate::host::stall::Stalls;
use crate::host::wake::{BorrowedWaker, Polling};
use crate::trace::{Origin, Tracing};

pub(crate) type RunFuture = Pin<Box<dyn Future<Output = Result<Payload, Failure>> + Send>>;

/// The user's function, its types forgotten.
#[derive(Clone)]
pub(crate) struct Handler {
    pub call: Arc<dyn Fn(Ctx, Payload) -> Result<RunFuture, Failure> + Send + Sync>,
    /// It may leave what is recorded of its open segment.
    pub is_agent: bool,
}

/// What all runs of a worker share.
#[derive(Clone)]
pub(crate) struct Shared {
    pub deps: Arc<Deps>,
    /// The largest payload that can be recorded.
    pub payload_bytes_max: usize,
    /// Says how long code holds its thread; nobody asks where there is none.
    pub clock: Option<Arc<dyn Clock>>,
    pub runtime: Option<tokio::runtime::Handle>,
    pub script: Option<Arc<dyn StepScript>>,
    pub emitter: Option<Emitter>,
    /// Who is told of what happens; `None` where nobody asked.
    pub tracing: Option<Tracing>,
    /// Where the run stands in its trace; of one run, and only while somebody is told.
    pub origin: Option<Origin>,
}

impl Default for Shared {
    fn default() -> Shared {
        let payload_bytes_max = onward_store::PAYLOAD_BYTES_MAX;
        Shared {
            deps: Arc::default(),
            payload_bytes_max,
            clock: None,
            runtime: None,
            script: None,
            emitter: None,
            tracing: None,
            origin: None,
        }
    }
}

/// What the driver has to do.
#[derive(Debug)]
pub(crate) enum Need {
    Commit(Draft),
    /// What the code wants to read of its conversation ([`Code::give_earlier`]).
    Earlier(Wish),
    /// Nothing until a record is fed or a step wakes the driver.
    Nothing,
}

pub(crate) struct Code {
    cell: Arc<RunCell>,
    handler: Handler,
    input: Option<Payload>,
    future: Option<RunFuture>,
    stalls: Stalls,
    prelude: Prelude,
    /// Something was read that the code has not seen yet.
    has_earlier: bool,
}

/// What the code of an agent did before its turns, which it does again on its way to each of them.
enum Prelude {
    None,
    /// The log of this generation is needed.
    Wanted(u32),
    Given(Vec<Record>),
}

impl Code {
    pub fn new(key: RunKey, handler: Handler, shared: &Shared) -> Code {
        let stalls = Stalls::new(shared.clock.clone());
        let cell = Arc::new(RunCell::new(key, shared));
        if handler.is_agent {
            cell.lock().engine.set_agent();
        }
        Code { cell, handler, input: None, future: None, stalls, prelude: Prelude::None, has_earlier: false }
    }

    /// The same code from the start, which leaves the log at `cut`. Before anything is fed.
    pub fn with_cut(self, cut: Option<Cut>) -> Code {
        if let Some(cut) = cut {
            self.cell.lock().engine.set_cut(cut);
        }
        self
    }

    /// The generation whose log the code needs before it can go on.
    pub fn wants_prelude(&self) -> Option<u32> {
        match self.prelude {
            Prelude::Wanted(generation) => Some(generation),
            _ => None,
        }
    }

    pub fn give_prelude(&mut self, records: Vec<Record>) {
        if let Some(started) = records.first().and_then(Record::started) {
            self.input = Some(started.input.clone());
        }
        self.prelude = Prelude::Given(records);
    }

    /// What the code wanted to read.
    pub fn give_earlier(&mut self, wish: Wish, entries: Arc<[Entry]>) {
        let mut state = self.cell.lock();
        state.earlier.push((wish, entries));
        state.poll_all += 1;
        self.has_earlier = true;
    }

    pub fn feed(&mut self, record: Record) {
        if record.index == Index(0)
            && let Some(started) = record.started()
        {
            self.input = Some(started.input.clone());
            self.stalls.kind = Some(started.kind.clone());
            if let Some(generation) = prelude_of(std::slice::from_ref(&record)) {
                self.prelude = Prelude::Wanted(generation);
            }
        }
        self.cell.lock().engine.feed(record);
    }

    pub fn committed(&mut self, header: CommitHeader, index: Index, at: Timestamp) {
        self.cell.lock().engine.committed(header, index, at);
    }

    /// Goes on until something is needed. `driver` is woken when a step makes progress.
    pub fn advance(&mut self, driver: &Waker) -> Result<Need, Fault> {
        let steps_run = {
            let mut state = self.cell.lock();
            if !state.driver.will_wake(driver) {
                state.driver = driver.clone();
            }
            state.engine.has_running_steps()
        };
        if steps_run || std::mem::take(&mut self.has_earlier) {
            self.poll()?;
        }
        match std::mem::replace(&mut self.prelude, Prelude::None) {
            Prelude::None => {}
            Prelude::Wanted(generation) => {
                let why = format!("the code gets to this log by that of generation {generation}, which is not there");
                return Err(Fault::LogBroken(why));
            }
            Prelude::Given(records) => self.play_prelude(records)?,
        }
        loop {
            // Before the engine is asked: where commits begin and end must not depend on what was at hand.
            if let Some(wish) = self.cell.lock().wish.take() {
                return Ok(Need::Earlier(wish));
            }
            let advance = self.cell.lock().engine.advance()?;
            match advance {
                Advance::Poll(wake) => {
                    self.cell.lock().wake(&wake);
                    self.poll()?;
                }
                Advance::Update(update) => {
                    answer_update(&self.cell, update);
                    self.cell.lock().poll_all += 1;
                    self.poll()?;
                }
                Advance::Commit(draft) => return Ok(Need::Commit(draft)),
                Advance::Idle => {
                    // Idle may have found that nothing can ever happen again.
                    let fault = self.cell.lock().engine.take_fault();
                    return fault.map_or(Ok(Need::Nothing), Err);
                }
            }
        }
    }

    /// Brings the code to its turns: what it did before them is recorded in a log of its own, and it does just that.
    fn play_prelude(&mut self, records: Vec<Record>) -> Result<(), Fault> {
        let segment = {
            let mut state = self.cell.lock();
            let mut prelude = Engine::new(state.engine.key().clone());
            records.into_iter().for_each(|record| prelude.feed(record));
            std::mem::replace(&mut state.engine, prelude)
        };
        loop {
            let advance = self.cell.lock().engine.advance()?;
            match advance {
                Advance::Poll(wake) => {
                    self.cell.lock().wake(&wake);
                    self.poll()?;
                }
                Advance::Update(update) => self.cell.lock().engine.keep_update(update),
                Advance::Idle if self.cell.lock().engine.is_ended() => break,
                Advance::Commit(_) | Advance::Idle => {
                    let place = self.cell.lock().engine.whereabouts();
                    let why = format!("what the code does before its turns has changed: {place} it does not get to them");
                    return Err(Fault::Misuse(why));
                }
            }
        }
        let mut state = self.cell.lock();
        state.engine = segment;
        state.poll_all += 1;
        Ok(())
    }

    fn poll(&mut self) -> Result<(), Fault> {
        if self.cell.lock().engine.is_ended() {
            return Ok(());
        }
        let cell = self.cell.clone();
        cell.lock().engine.poll_begins();
        let began = self.stalls.now();
        let polled = catch_unwind(AssertUnwindSafe(|| self.poll_future(&cell)));
        self.stalls.look(began, &cell);
        match polled {
            Err(panic) => Err(self.panicked(&*panic)),
            Ok(result) => {
                let fault = self.cell.lock().engine.take_fault();
                if let Some(fault) = fault {
                    self.drop_code();
                    return Err(fault);
                }
                if let Poll::Ready(result) = result {
                    self.cell.lock().engine.finish(result);
                    drop_user_code(self.future.take());
                }
                Ok(())
            }
        }
    }

    /// What a panic of the user's code means; the first thing that went wrong counts.
    fn panicked(&mut self, panic: &(dyn std::any::Any + Send)) -> Fault {
        let (fault, place) = {
            let mut state = self.cell.lock();
            (state.engine.take_fault(), state.engine.whereabouts())
        };
        self.drop_code();
        fault.unwrap_or_else(|| {
            let message = panic_message(panic);
            let misuse = foreign::is_tokio_panic(&message);
            if misuse { Fault::Misuse(foreign::tokio_without_runtime(&place)) } else { Fault::Panicked(message) }
        })
    }

    fn poll_future(&mut self, cell: &Arc<RunCell>) -> Poll<Result<Payload, Failure>> {
        if self.future.is_none() {
            let Some(input) = self.input.take() else { return Poll::Pending };
            match (self.handler.call)(Ctx::new(self.cell.clone()), input) {
                Ok(future) => self.future = Some(future),
                Err(failure) => return Poll::Ready(Err(failure)),
            }
        }
        let polling = Polling { cell, arm: None, limit: None };
        let waker = BorrowedWaker::new(&polling);
        let Some(future) = self.future.as_mut() else { return Poll::Pending };
        future.as_mut().poll(&mut Context::from_waker(&waker))
    }

    /// The store refused to continue the run as new before the inputs fed since have been taken along.
    pub fn retry_continue(&mut self) -> bool {
        let mut state = self.cell.lock();
        let continuing = state.engine.is_continuing();
        if continuing {
            state.engine.retry_continue();
        }
        continuing
    }

    /// The store refused the commit in flight because the run is paused. Feed what is missing before going on.
    pub fn stand(&mut self) {
        self.cell.lock().engine.stand();
    }

    pub fn is_paused(&self) -> bool {
        self.cell.lock().engine.is_paused()
    }

    pub fn set_strict(&mut self) {
        self.cell.lock().engine.set_strict();
    }

    /// The store cannot take the result in flight of the step at `place`.
    pub fn fail_reported(&mut self, place: &Place, failure: Failure) {
        self.cell.lock().engine.fail_reported(place, failure);
    }

    /// The events of the commit in flight.
    pub fn in_flight(&self) -> Vec<onward_core::Event> {
        self.cell.lock().engine.in_flight().map(<[_]>::to_vec).unwrap_or_default()
    }

    pub fn gap(&self) -> Option<Index> {
        self.cell.lock().engine.gap()
    }

    pub fn next_feed(&self) -> Index {
        self.cell.lock().engine.next_feed()
    }

    pub fn is_at_rest(&self) -> bool {
        self.cell.lock().engine.is_at_rest()
    }

    pub fn is_ended(&self) -> bool {
        self.cell.lock().engine.is_ended()
    }

    pub fn has_running_steps(&self) -> bool {
        self.cell.lock().engine.has_running_steps()
    }

    /// How many entries are kept in memory about what is not over.
    pub fn entries(&self) -> usize {
        self.cell.lock().entries()
    }

    pub fn open_calls(&self) -> Vec<String> {
        self.cell.lock().engine.open_calls()
    }

    /// Asks the code something without recording it.
    pub fn query(&self, name: &Name, input: Payload) -> Option<Result<Payload, Failure>> {
        // Taken out while it runs: the handler may use the context.
        let mut answerer = {
            let mut state = self.cell.lock();
            let answerer = state.queries.remove(name)?;
            state.in_query = true;
            answerer
        };
        let answer = answer("query", &mut answerer, input);
        let mut state = self.cell.lock();
        state.in_query = false;
        state.queries.entry(name.clone()).or_insert(answerer);
        Some(answer)
    }

    /// Drops the user's future; what it does while it is dropped is not recorded.
    fn drop_code(&mut self) {
        self.cell.lock().engine.detach();
        let future = self.future.take();
        drop_user_code(future);
        // Handlers and compensations may hold the context, and so the cell itself.
        let (queries, updates, compensations) = {
            let mut state = self.cell.lock();
            (std::mem::take(&mut state.queries), std::mem::take(&mut state.updates), std::mem::take(&mut state.compensations))
        };
        drop_user_code((queries, updates, compensations));
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        self.drop_code();
    }
}

/// Calls a handler that answers somebody outside. Its panic is an answer too: whoever asked would wait for ever otherwise.
fn answer(what: &str, answerer: &mut Answerer, input: Payload) -> Result<Payload, Failure> {
    catch_unwind(AssertUnwindSafe(|| answerer(input))).unwrap_or_else(|panic| {
        Err(Failure::fatal(format!("the {what} panicked: {}", panic_message(&*panic))).with_code("panicked"))
    })
}

pub(crate) fn answer_update(cell: &RunCell, update: UpdateReceived) {
    let handler = cell.lock().updates.remove(&update.name);
    let Some(mut handler) = handler else {
        cell.lock().engine.keep_update(update);
        return;
    };
    let result = answer("update", &mut handler, update.payload);
    let mut state = cell.lock();
    state.engine.answer_update(update.update_id, result);
    state.updates.entry(update.name).or_insert(handler);
}

/// Drops what holds user code. A panic there ends nothing but itself: the run is let go anyway.
pub(crate) fn drop_user_code<T>(code: T) {
    drop(catch_unwind(AssertUnwindSafe(|| drop(code))));
}

pub(crate) fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

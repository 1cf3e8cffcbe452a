//! A run's code with its engine: polled to quiescence, event by event.
//!
//! Owns the future of the user's function. Must never wait: the driver feeds records and sends commits.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, MutexGuard};
use std::task::{Context, Poll, Waker};

use onward_core::conversation::Entry;
use onward_core::engine::{Advance, CommitDraft, DivergencePoint, Engine, Fault};
use onward_core::event::UpdateReceived;
use onward_core::log::prelude_of;
use onward_core::{Failure, Index, Name, Payload, Record, RunKey};
use onward_runtime::WorkerConnection;
use onward_store::Clock;

use crate::agent::conversation_cache::ConversationRead;
use crate::ctx::{Ctx, compensate};
use crate::host::cell::{Deps, RunCell, RunCellState, StepScript};
use crate::host::foreign;
use crate::host::handlers::{abandon_handlers, contained, handle_update, poll_handlers};
use crate::host::stall::StallDetector;
use crate::host::wake::{BorrowedWaker, Polling};
use crate::middleware::{Middlewares, RunCall, ShellRun, shell_future};
use crate::registry::Checks;
use crate::shell::{Played, Query, QueryAnswer, Shell, ShellCode};
use crate::trace::{TraceOrigin, Tracing};

pub(crate) type RunFuture = Pin<Box<dyn Future<Output = Result<Payload, Failure>> + Send>>;

/// Starts the user's function.
pub(crate) type StartFuture = Arc<dyn Fn(Ctx, Payload) -> Result<RunFuture, Failure> + Send + Sync>;

/// The user's function without its types.
#[derive(Clone)]
pub(crate) enum UserFunction {
    /// In Rust: a future to poll.
    Future(StartFuture),
    /// In another language: activations to play.
    Shell(Arc<dyn Shell>),
}

#[derive(Clone)]
pub(crate) struct Handler {
    pub function: UserFunction,
    /// The function is an agent's, which may diverge from the log of its open segment.
    pub is_agent: bool,
    /// Steps of the function record their inputs.
    pub record_inputs: bool,
    /// The schemas that outputs and answers of updates must fit.
    pub checks: Checks,
}

/// Values that all runs of a worker share.
#[derive(Clone)]
pub(crate) struct WorkerShared {
    pub deps: Arc<Deps>,
    pub middlewares: Middlewares,
    /// The largest payload that can be recorded.
    pub payload_bytes_max: usize,
    /// Answers of approvals are checked here: they are encrypted, and the process that records them cannot read them (AN3).
    pub checks_answers: bool,
    /// The clock that measures how long code blocks its thread; `None` disables the check.
    pub clock: Option<Arc<dyn Clock>>,
    pub runtime: Option<tokio::runtime::Handle>,
    /// Scripted step results of tests, consulted before a closure runs.
    pub script: Option<Arc<dyn StepScript>>,
    /// Where values and steps are reported; `None` in replays.
    pub outlet: Option<Arc<dyn WorkerConnection>>,
    /// The exporter of spans; `None` without tracing.
    pub tracing: Option<Tracing>,
    /// The run's position in its trace; set per run, and only with tracing.
    pub origin: Option<TraceOrigin>,
}

impl Default for WorkerShared {
    fn default() -> WorkerShared {
        let payload_bytes_max = onward_store::PAYLOAD_BYTES_MAX;
        WorkerShared {
            deps: Arc::default(),
            middlewares: Middlewares::default(),
            payload_bytes_max,
            checks_answers: false,
            clock: None,
            runtime: None,
            script: None,
            outlet: None,
            tracing: None,
            origin: None,
        }
    }
}

/// The next action of the driver.
#[derive(Debug)]
pub(crate) enum Need {
    Commit(CommitDraft),
    /// A read of the conversation for the code ([`Code::give_earlier`]).
    Earlier(ConversationRead),
    /// No action until the shell has handed back an activation, which wakes the driver.
    Shell,
    /// No action until a record is fed or a step wakes the driver.
    Nothing,
}

pub(crate) struct Code {
    cell: Arc<RunCell>,
    handler: Handler,
    input: Option<Payload>,
    future: Option<RunFuture>,
    /// The code in another language, once it has started.
    shell_code: Option<Arc<ShellCode>>,
    /// An activation was given to the shell, and the code has not been polled since.
    is_activated: bool,
    stall_detector: StallDetector,
    prelude: Prelude,
    /// The result of a read that the code has not been polled with yet.
    has_earlier: bool,
    /// [`Code::advance`] has returned before the code was quiescent, for its shell or for a read.
    is_advancing: bool,
    /// Records that arrived since. Calls that the code has made must be committed before these become visible: a replay shows the
    /// code all records up to the horizon of a commit before it polls it.
    arrived: Vec<Record>,
}

/// The log of the code before an agent's turns, which every turn replays first.
enum Prelude {
    None,
    /// The log of this generation must be read.
    Wanted(u32),
    Given(Vec<Record>),
    /// The code is brought to its turns by an engine of its own; this is the engine of the turn.
    Playing(Box<Engine>),
}

impl Code {
    pub fn new(key: RunKey, handler: Handler, shared: &WorkerShared) -> Code {
        let stall_detector = StallDetector::new(shared.clock.clone());
        let cell = Arc::new(RunCell::new(key, shared));
        if handler.is_agent {
            cell.lock().engine.set_agent();
        }
        cell.lock().record_inputs = handler.record_inputs;
        cell.lock().checks = handler.checks.clone();
        Code {
            cell,
            handler,
            input: None,
            future: None,
            shell_code: None,
            is_activated: false,
            stall_detector,
            prelude: Prelude::None,
            has_earlier: false,
            is_advancing: false,
            arrived: Vec::new(),
        }
    }

    /// Sets the divergence point at which the code leaves the log. Must be called before anything is fed.
    pub fn with_divergence_point(self, divergence_point: Option<DivergencePoint>) -> Code {
        if let Some(divergence_point) = divergence_point {
            self.cell.lock().engine.set_cut(divergence_point);
        }
        self
    }

    /// Returns the generation whose log the code needs before it can continue.
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

    /// Delivers the result of a conversation read.
    pub fn give_earlier(&mut self, wish: ConversationRead, entries: Arc<[Entry]>) {
        let mut state = self.cell.lock();
        state.earlier.push((wish, entries));
        state.poll_all += 1;
        self.has_earlier = true;
    }

    /// Adds a record of the log, now or once the code is quiescent.
    pub fn feed(&mut self, record: Record) {
        if self.is_advancing {
            self.arrived.push(record);
            return;
        }
        if record.index == Index(0)
            && let Some(started) = record.started()
        {
            self.input = Some(started.input.clone());
            self.stall_detector.kind = Some(started.kind.clone());
            if let Some(generation) = prelude_of(std::slice::from_ref(&record)) {
                self.prelude = Prelude::Wanted(generation);
            }
        }
        self.cell.lock().engine.feed(record);
    }

    /// Advances until the driver must act. `driver` is woken when a step makes progress or the shell hands back.
    pub fn advance(&mut self, driver: &Waker) -> Result<Need, Fault> {
        loop {
            let need = self.advance_code(driver)?;
            self.is_advancing = matches!(need, Need::Shell | Need::Earlier(_));
            if self.is_advancing || self.arrived.is_empty() {
                return Ok(need);
            }
            std::mem::take(&mut self.arrived).into_iter().for_each(|record| self.feed(record));
            if !matches!(need, Need::Nothing) {
                return Ok(need);
            }
        }
    }

    fn advance_code(&mut self, driver: &Waker) -> Result<Need, Fault> {
        let steps_run = {
            let mut state = self.cell.lock();
            if !state.driver.will_wake(driver) {
                state.driver = driver.clone();
            }
            state.engine.has_running_steps()
        };
        if self.is_out() {
            return Ok(Need::Shell); // OT2
        }
        if std::mem::take(&mut self.is_activated) || steps_run || std::mem::take(&mut self.has_earlier) {
            self.poll()?;
        }
        match std::mem::replace(&mut self.prelude, Prelude::None) {
            Prelude::None => {}
            Prelude::Wanted(generation) => {
                let why = format!("the log of generation {generation}, the prelude of this one, is missing");
                return Err(Fault::LogBroken(why));
            }
            Prelude::Given(records) => self.begin_prelude(records),
            Prelude::Playing(segment) => self.prelude = Prelude::Playing(segment),
        }
        loop {
            if self.is_activated {
                if self.is_out() {
                    return Ok(Need::Shell);
                }
                self.is_activated = false; // the shell has played it at once
                self.poll()?;
                continue;
            }
            // Checked before the engine advances: commit boundaries must not depend on which entries were cached.
            if let Some(wish) = self.cell.lock().wish.take() {
                return Ok(Need::Earlier(wish));
            }
            let advance = self.cell.lock().engine.advance()?;
            match (advance, &self.prelude) {
                (Advance::Poll(wake), _) => {
                    self.cell.lock().wake(&wake);
                    self.poll()?;
                }
                (Advance::Update(update), Prelude::Playing(_)) => self.cell.lock().engine.keep_update(update),
                (Advance::Update(update), _) => {
                    self.answer_update(update);
                    self.cell.lock().poll_all += 1;
                    self.poll()?;
                }
                (Advance::Commit(_) | Advance::Idle, Prelude::Playing(_)) => self.end_prelude()?,
                (Advance::Commit(draft), _) => return Ok(Need::Commit(draft)),
                (Advance::Idle, _) => {
                    // The engine may have found that the code can never be woken again.
                    let fault = self.cell.lock().engine.take_fault();
                    return fault.map_or(Ok(Need::Nothing), Err);
                }
            }
        }
    }

    /// Brings the code to its turns by replaying the prelude, which is recorded in a log of its own.
    fn begin_prelude(&mut self, records: Vec<Record>) {
        let mut state = self.cell.lock();
        let mut prelude = Engine::new(state.engine.key().clone());
        records.into_iter().for_each(|record| prelude.feed(record));
        let segment = std::mem::replace(&mut state.engine, prelude);
        self.prelude = Prelude::Playing(Box::new(segment));
    }

    /// Continues with the engine of the turn, which the code must have reached.
    fn end_prelude(&mut self) -> Result<(), Fault> {
        let mut state = self.cell.lock();
        if !state.engine.is_ended() {
            let call_id = state.engine.code_position();
            let why = format!("the code before the turns has changed and does not reach them: it stopped {call_id}");
            return Err(Fault::Misuse(why));
        }
        if let Prelude::Playing(segment) = std::mem::replace(&mut self.prelude, Prelude::None) {
            state.engine = *segment;
        }
        state.poll_all += 1;
        Ok(())
    }

    /// Returns whether the shell has an activation.
    fn is_out(&self) -> bool {
        self.shell_code.as_ref().is_some_and(|code| code.is_out())
    }

    /// Calls the handler of an update, or keeps the update until there is one.
    fn answer_update(&mut self, update: UpdateReceived) {
        match &self.shell_code {
            None => handle_update(&self.cell, update),
            // Code that has ended answers no updates (N8).
            Some(_) if !matches!(self.cell.lock().shell_run, ShellRun::Running) => self.cell.lock().engine.keep_update(update),
            Some(code) => match code.update(update) {
                Some(update) => self.cell.lock().engine.keep_update(update),
                None => self.is_activated = true,
            },
        }
    }

    fn poll(&mut self) -> Result<(), Fault> {
        if self.cell.lock().engine.is_ended() || self.is_activated {
            return Ok(());
        }
        let cell = self.cell.clone();
        cell.lock().engine.poll_begins();
        let began = self.stall_detector.now();
        let polled = catch_unwind(AssertUnwindSafe(|| self.poll_future(&cell)));
        self.stall_detector.check(began, &cell);
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

    /// Converts a panic of user code into a fault; a fault that the engine already has takes precedence.
    fn panicked(&mut self, panic: &(dyn std::any::Any + Send)) -> Fault {
        let (fault, call_id) = {
            let mut state = self.cell.lock();
            (state.engine.take_fault(), state.engine.code_position())
        };
        self.drop_code();
        fault.unwrap_or_else(|| {
            let message = panic_message(panic);
            let misuse = foreign::is_tokio_panic(&message);
            if misuse { Fault::Misuse(foreign::tokio_without_runtime(&call_id)) } else { Fault::Panicked(message) }
        })
    }

    fn poll_future(&mut self, cell: &Arc<RunCell>) -> Poll<Result<Payload, Failure>> {
        if self.future.is_none() {
            let Some(input) = self.input.take() else { return Poll::Pending };
            self.future = Some(self.begin(input));
        }
        if self.play(cell).is_pending() {
            return Poll::Pending;
        }
        let polling = Polling { cell, arm: None, limit: None };
        let waker = BorrowedWaker::new(&polling);
        let Some(future) = self.future.as_mut() else { return Poll::Pending };
        loop {
            let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
            let is_over = polled.is_ready() || cell.lock().engine.is_ended();
            if is_over || !poll_handlers(cell) {
                self.start_shell(cell);
                return polled;
            }
            cell.lock().poll_all += 1; // the code may wait for the end of handlers
        }
    }

    /// Returns the future of the code: the function inside of the middlewares, then the compensations.
    fn begin(&self, input: Payload) -> RunFuture {
        let ctx = Ctx::new(self.cell.clone());
        let function = match &self.handler.function {
            UserFunction::Future(function) => function.clone(),
            UserFunction::Shell(_) => shell_future(),
        };
        let kind = self.stall_detector.kind.as_ref().map(Name::to_string).unwrap_or_default();
        Box::pin(async move {
            let shared = &ctx.cell.shared;
            let result = shared.middlewares.run(RunCall { ctx: ctx.clone(), kind, input }, function).await;
            abandon_handlers(&ctx.cell);
            match result.and_then(|output| ctx.cell.checked_output(output)) {
                Ok(output) => Ok(output),
                Err(failure) => Err(compensate(&ctx, failure).await),
            }
        })
    }

    /// Starts foreign code, if its future has requested that.
    fn start_shell(&mut self, cell: &Arc<RunCell>) {
        let UserFunction::Shell(shell) = &self.handler.function else { return };
        let input = {
            let mut state = cell.lock();
            match std::mem::take(&mut state.shell_run) {
                ShellRun::Wanted(input) => {
                    state.shell_run = ShellRun::Running;
                    input
                }
                other => {
                    state.shell_run = other;
                    return;
                }
            }
        };
        let code = ShellCode::new(cell, self.handler.is_agent, shell.clone());
        self.is_activated = true;
        self.shell_code.insert(code).start(input);
    }

    /// Continues foreign code: gives its shell the next activation, if there is one, or takes its result. Returns whether the future
    /// of the code may be polled.
    fn play(&mut self, cell: &Arc<RunCell>) -> Poll<()> {
        let Some(code) = &self.shell_code else { return Poll::Ready(()) };
        if !matches!(cell.lock().shell_run, ShellRun::Running) {
            return Poll::Ready(());
        }
        match code.play() {
            Played::Quiescent => return Poll::Ready(()),
            Played::Out => self.is_activated = true,
            Played::Gone => cell.lock().engine.set_fault(Fault::LeaseLost),
            Played::Ended(end) => {
                let mut state = cell.lock();
                state.shell_run = ShellRun::Ended(end);
                state.poll_all += 1; // a middleware may wait for it in a combinator
                return Poll::Ready(());
            }
        }
        Poll::Pending
    }

    /// Prepares the commit that continues the run as new again, after the store refused it because of unread inputs. Returns
    /// whether there is one.
    pub fn retry_continue(&mut self) -> bool {
        let mut state = self.cell.lock();
        let continuing = state.engine.is_continuing();
        if continuing {
            state.engine.retry_continue();
        }
        continuing
    }

    /// Returns the events of the commit in flight.
    pub fn in_flight(&self) -> Vec<onward_core::Event> {
        self.cell.lock().engine.in_flight().map(<[_]>::to_vec).unwrap_or_default()
    }

    /// Locks the state that the code and its engine share. Never hold it while the code is polled.
    pub fn lock(&self) -> MutexGuard<'_, RunCellState> {
        self.cell.lock()
    }

    /// Calls a query handler, without recording it. Foreign code answers later.
    pub fn query(&self, name: Name, input: Payload, reply: QueryAnswer) {
        if let Some(code) = &self.shell_code {
            return code.query(Query { name, input, answer: reply });
        }
        drop(reply.send(self.answer_query(name, input))); // the caller may have gone
    }

    fn answer_query(&self, name: Name, input: Payload) -> Option<Result<Payload, Failure>> {
        // Removed while it runs, because the handler may use the context.
        let mut answerer = {
            let mut state = self.cell.lock();
            let answerer = state.queries.remove(&name)?;
            state.in_query = true;
            answerer
        };
        let answer = contained("query", || answerer(input)).and_then(|answer| answer);
        let mut state = self.cell.lock();
        state.in_query = false;
        state.queries.entry(name).or_insert(answerer);
        Some(answer)
    }

    /// Drops the user's future. Calls that it makes while being dropped are not recorded.
    fn drop_code(&mut self) {
        self.cell.lock().engine.detach();
        if let Some(code) = self.shell_code.take() {
            code.close(); // OT3
        }
        let future = self.future.take();
        drop_user_code(future);
        // Handlers and compensations may hold the context, and through it the cell itself.
        let (queries, updates, handlers, compensations) = {
            let mut state = self.cell.lock();
            let (queries, updates) = (std::mem::take(&mut state.queries), std::mem::take(&mut state.updates));
            (queries, updates, std::mem::take(&mut state.handlers), std::mem::take(&mut state.compensations))
        };
        drop_user_code((queries, updates, handlers, compensations));
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        self.drop_code();
    }
}

/// Drops a value with user code and contains a panic of its destructor.
pub(crate) fn drop_user_code<T>(code: T) {
    drop(catch_unwind(AssertUnwindSafe(|| drop(code))));
}

pub(crate) fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

#[cfg(test)]
mod tests;

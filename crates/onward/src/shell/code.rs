//! The code of one run in another language: its open calls, and the activation that is out.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use onward_core::engine::{CancelOutcome, Fault};
use onward_core::event::UpdateReceived;
use onward_core::{Name, Payload};
use onward_store::sync::lock;

use super::{Activation, Call, Shell};
use crate::Result;
use crate::agent::AgentCtx;
use crate::ctx::{Ctx, Emission, name_or_misuse};
use crate::host::cell::RunCell;
use crate::host::code::{drop_user_code, panic_message};
use crate::host::wake::{Arms, BorrowedWaker, Polling};

/// The number of the next code object of this process.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// The code of one run in another language.
pub struct ShellCode {
    number: u64,
    ctx: AgentCtx,
    is_agent: bool,
    shell: Arc<dyn Shell>,
    /// The calls whose futures must be polled, by number.
    arms: Arc<Arms>,
    state: Mutex<ShellState>,
}

#[derive(Default)]
struct ShellState {
    calls: BTreeMap<u32, Pin<Box<dyn Call>>>,
    next_call: u32,
    /// Calls that may be answered, in the order in which the code gets the answers (OT1).
    due: VecDeque<u32>,
    poll_all_seen: u64,
    is_out: bool,
    /// The shell has not returned from [`Shell::activate`] yet. A hand-back then needs no wake: the driver looks for it.
    is_in_shell: bool,
    is_closed: bool,
    /// The result of the code, once it has ended.
    end: Option<Result<Payload>>,
    updates: BTreeSet<Name>,
    /// The id of the update that is out and has no answer yet.
    update: Option<String>,
    /// The names of updates that have no answer yet, by their ids.
    unanswered: BTreeMap<String, Name>,
    /// The ids of updates whose handlers answer them later.
    accepted: BTreeSet<String>,
}

/// The reason why the code can make no call: it is closed, no activation is out, or the run cannot continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// The code must unwind: its run cannot continue with it (OT3).
    Unwind,
    /// No activation is out: the call does not come from the code (OT2).
    Outside,
}

/// A call that the code has made.
#[derive(Debug)]
pub enum Opened {
    Waits(u32),
    Answered(u32, Result<Payload>),
}

/// What the engine may do after it has polled foreign code.
pub(crate) enum Played {
    /// An activation is out.
    Out,
    /// The code waits.
    Quiescent,
    Ended(Result<Payload>),
    /// The shell is gone.
    Gone,
}

impl ShellCode {
    pub(crate) fn new(cell: &Arc<RunCell>, is_agent: bool, shell: Arc<dyn Shell>) -> Arc<ShellCode> {
        Arc::new(ShellCode {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            ctx: AgentCtx::new(Ctx::new(cell.clone())),
            is_agent,
            shell,
            arms: Arc::default(),
            state: Mutex::default(),
        })
    }

    /// Returns the number of this code object; no other one of the process has it.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns whether the code is an agent's.
    pub fn is_agent(&self) -> bool {
        self.is_agent
    }

    /// Makes calls that do not wait.
    pub fn with<T>(&self, make: impl FnOnce(&AgentCtx) -> T) -> Result<T, Stopped> {
        drop(self.active()?);
        let made = self.guarded(|| make(&self.ctx));
        if made.is_err() || self.cell().lock().engine.has_fault() { Err(Stopped::Unwind) } else { made }
    }

    /// Reads values that code may read at any time, also in a query.
    pub fn read<T>(&self, read: impl FnOnce(&AgentCtx) -> T) -> Result<T, Stopped> {
        if self.lock().is_closed {
            return Err(Stopped::Unwind);
        }
        self.guarded(|| read(&self.ctx))
    }

    /// Sends a value to readers of the run. It is not recorded, so functions of steps may do this while the code waits.
    pub fn emit(&self, make: impl FnOnce(&AgentCtx) -> Emission) -> Result<Result<()>, Stopped> {
        if self.lock().is_closed {
            return Err(Stopped::Unwind);
        }
        self.guarded(|| make(&self.ctx).send_at_any_time())
    }

    /// Makes a call that waits (OT2). It is polled once, so the answer may be there already.
    /// `make` gets its number.
    pub fn open(&self, make: impl FnOnce(&AgentCtx, u32) -> Pin<Box<dyn Call>>) -> Result<Opened, Stopped> {
        let number = {
            let mut state = self.active()?;
            let number = state.next_call;
            state.next_call += 1;
            number
        };
        let mut call = self.with(|ctx| make(ctx, number))?;
        let polled = self.guarded(|| self.poll_call(number, call.as_mut()))?;
        if self.cell().lock().engine.has_fault() {
            return Err(Stopped::Unwind);
        }
        match polled {
            Poll::Ready(result) => Ok(Opened::Answered(number, result)),
            Poll::Pending => {
                self.lock().calls.insert(number, call);
                Ok(Opened::Waits(number))
            }
        }
    }

    /// Drops a call: the code no longer awaits it. Does nothing if it is answered.
    pub fn drop_call(&self, number: u32) -> Result<(), Stopped> {
        let call = self.active()?.calls.remove(&number);
        self.guarded(|| drop(call))
    }

    /// Cancels a call; awaiting it then fails with `canceled`. `None` if it cannot be canceled.
    pub fn cancel_call(&self, number: u32) -> Result<Option<CancelOutcome>, Stopped> {
        let state = self.active()?;
        match state.calls.get(&number) {
            Some(call) => self.guarded(|| call.cancel()),
            None => Ok(Some(CancelOutcome::AlreadyCompleted)),
        }
    }

    /// Registers the handler of an update. Returns the updates that have waited for it: handle them now, in order.
    pub fn register_update(&self, name: &str) -> Result<Vec<UpdateReceived>, Stopped> {
        self.with(|ctx| {
            let name = name_or_misuse(&ctx.cell, "update", name);
            let kept = ctx.cell.call("update").engine.kept_updates(&name);
            let mut state = self.lock();
            state.unanswered.extend(kept.iter().map(|update| (update.update_id.clone(), name.clone())));
            state.updates.insert(name);
            kept
        })
    }

    /// Records the result of an update.
    pub fn answer_update(&self, update: &str, result: Result<Payload>) -> Result<(), Stopped> {
        let name = {
            let mut state = self.active()?;
            state.update.take_if(|out| out == update);
            state.unanswered.remove(update)
        };
        let result = result.and_then(|answer| crate::ctx::small(self.cell().shared.payload_bytes_max, "the answer", answer));
        let result = result.and_then(|answer| match &name {
            Some(name) => self.cell().checked_answer(name, answer),
            None => Ok(answer),
        });
        let is_accepted = self.lock().accepted.remove(update);
        self.with(|ctx| {
            let mut state = ctx.cell.lock();
            if is_accepted {
                state.engine.finish_update(update, result);
                state.poll_all += 1; // the code may wait for the end of handlers
            } else {
                state.engine.answer_update(update.to_owned(), result);
            }
        })
    }

    /// Notes that the handler of an update answers it later, in another activation.
    pub fn accept_update(&self, update: &str) -> Result<(), Stopped> {
        {
            let mut state = self.active()?;
            state.update.take_if(|out| out == update);
            state.accepted.insert(update.to_owned());
        }
        self.with(|ctx| ctx.cell.lock().engine.begin_update(update.to_owned()))
    }

    /// Stops the run with a message about its code.
    pub fn misuse(&self, message: &str) {
        self.cell().lock().engine.misuse(message);
    }

    /// Hands the activation back: the code is quiescent, or has ended with `end`. Does nothing if none is out (OT3).
    pub fn hand_back(&self, end: Option<Result<Payload>>) {
        let (calls, update) = {
            let mut state = self.lock();
            if !state.is_out {
                return;
            }
            let calls = if end.is_some() { std::mem::take(&mut state.calls) } else { BTreeMap::new() };
            state.end = end;
            (calls, state.update.take())
        };
        if let Some(update) = update {
            let failure = onward_core::Failure::fatal("the update handler gave no answer");
            self.cell().lock().engine.answer_update(update, Err(failure));
        }
        drop_user_code(calls);
        let is_in_shell = {
            let mut state = self.lock();
            state.is_out = false;
            state.is_in_shell
        };
        if !is_in_shell {
            self.wake();
        }
    }

    /// Reports that the shell is gone: nothing will be handed back. The driver releases the run.
    pub fn abandon(&self) {
        self.lock().is_closed = true;
        self.wake();
    }

    fn wake(&self) {
        let driver = self.cell().lock().driver.clone();
        driver.wake();
    }

    fn cell(&self) -> &Arc<RunCell> {
        &self.ctx.cell
    }

    fn lock(&self) -> MutexGuard<'_, ShellState> {
        lock(&self.state)
    }

    /// Locks the state for a call of the code, which has an activation (OT2).
    fn active(&self) -> Result<MutexGuard<'_, ShellState>, Stopped> {
        let state = self.lock();
        match (state.is_closed, state.is_out) {
            (true, _) => Err(Stopped::Unwind),
            (false, false) => Err(Stopped::Outside),
            (false, true) => Ok(state),
        }
    }

    /// Contains a panic of `call`: code in Rust would be unwound by it.
    fn guarded<T>(&self, call: impl FnOnce() -> T) -> Result<T, Stopped> {
        catch_unwind(AssertUnwindSafe(call)).map_err(|panic: Box<dyn Any + Send>| {
            self.cell().lock().engine.set_fault(Fault::Panicked(panic_message(&*panic)));
            Stopped::Unwind
        })
    }

    fn poll_call(&self, number: u32, call: Pin<&mut dyn Call>) -> Poll<Result<Payload>> {
        let polling = Polling { cell: self.cell(), arm: Some((&self.arms, number)), limit: None };
        call.poll(&mut Context::from_waker(&BorrowedWaker::new(&polling)))
    }
}

/// The side of the driver.
impl ShellCode {
    pub(crate) fn is_out(&self) -> bool {
        let state = self.lock();
        state.is_out && !state.is_closed
    }

    pub(crate) fn start(self: &Arc<ShellCode>, input: Payload) {
        self.activate(Activation::Start(input));
    }

    /// Passes an update to its handler; returns it if the code has not registered one.
    pub(crate) fn update(self: &Arc<ShellCode>, update: UpdateReceived) -> Option<UpdateReceived> {
        let mut state = self.lock();
        if !state.updates.contains(&update.name) {
            return Some(update);
        }
        state.update = Some(update.update_id.clone());
        state.unanswered.insert(update.update_id.clone(), update.name.clone());
        drop(state);
        self.activate(Activation::Update(update));
        None
    }

    pub(crate) fn query(self: &Arc<ShellCode>, query: super::Query) {
        self.shell.query(self, query);
    }

    fn activate(self: &Arc<ShellCode>, activation: Activation) {
        {
            let mut state = self.lock();
            (state.is_out, state.is_in_shell) = (true, true);
        }
        self.shell.activate(self, activation);
        self.lock().is_in_shell = false;
    }

    /// Polls the calls that may be answered, and gives the code the first answer (OT1).
    pub(crate) fn play(self: &Arc<ShellCode>) -> Played {
        if self.lock().is_closed {
            return Played::Gone;
        }
        if let Some(end) = self.lock().end.take() {
            return Played::Ended(end);
        }
        while let Some((number, mut call)) = self.next_due() {
            match self.poll_call(number, call.as_mut()) {
                Poll::Pending => drop(self.lock().calls.insert(number, call)),
                Poll::Ready(result) => {
                    drop(call);
                    self.activate(Activation::Answer { call: number, result });
                    return Played::Out;
                }
            }
        }
        Played::Quiescent
    }

    /// Takes the next call to poll.
    fn next_due(&self) -> Option<(u32, Pin<Box<dyn Call>>)> {
        let poll_all = self.cell().lock().poll_all;
        let mut state = self.lock();
        loop {
            if state.due.is_empty() {
                self.collect_due(&mut state, poll_all);
            }
            let number = state.due.pop_front()?;
            if let Some(call) = state.calls.remove(&number) {
                return Some((number, call));
            }
        }
    }

    /// Collects the calls that may be answered, sorted by the index of the answer; first those that are not answered, which may
    /// be running steps.
    fn collect_due(&self, state: &mut ShellState, poll_all: u64) {
        let mut marked = Vec::new();
        self.arms.take(&mut marked);
        if state.poll_all_seen != poll_all {
            state.poll_all_seen = poll_all;
            marked.clear();
            marked.extend(state.calls.keys());
        }
        let ready_at = |number: &u32| state.calls.get(number).and_then(|call| call.ready_at());
        if marked.len() > 1 {
            marked.sort_by_cached_key(|number| (ready_at(number), *number));
        }
        state.due.extend(marked);
    }

    /// Closes the code (OT3). The engine is detached already, so the calls that are dropped here are not recorded.
    pub(crate) fn close(self: &Arc<ShellCode>) {
        let calls = {
            let mut state = self.lock();
            (state.is_closed, state.is_out) = (true, false);
            std::mem::take(&mut state.calls)
        };
        drop_user_code(calls);
        self.shell.close(self);
    }
}

/// Returns a waker that unparks the calling thread, for replays that wait for a shell.
pub(crate) fn unparks() -> Waker {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    Waker::from(Arc::new(Unpark(std::thread::current())))
}

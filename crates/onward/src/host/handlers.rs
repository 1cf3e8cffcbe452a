//! Handlers of updates that await calls: each is code beside that of the run, with call ids of its own.
//!
//! A handler is polled like the arm of a combinator at the call id of its registration. It is begun when its update is delivered, so
//! its calls and its answer are a function of the log.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use onward_core::event::UpdateReceived;
use onward_core::{Branch, CallId, Failure, Name, Payload};

use crate::Result;
use crate::host::cell::{RunCell, UpdateHandler};
use crate::host::code::{drop_user_code, panic_message};
use crate::host::wake::{Arms, BorrowedWaker, Polling};

pub(crate) type HandlerFuture = Pin<Box<dyn Future<Output = Result<Payload>> + Send>>;

type Start = Box<dyn FnMut(Payload) -> Result<HandlerFuture> + Send>;

/// A registered handler that awaits calls.
pub(crate) struct AwaitingHandler {
    start: Start,
    call_id: CallId,
    /// The number of updates that it has begun.
    begun: u32,
}

impl AwaitingHandler {
    pub fn new(call_id: CallId, start: Start) -> AwaitingHandler {
        AwaitingHandler { start, call_id, begun: 0 }
    }
}

/// The updates whose handlers are in flight, in the order in which they began.
#[derive(Default)]
pub(crate) struct Handlers {
    running: Vec<RunningHandler>,
    arms: Arc<Arms>,
    next: u32,
    poll_all_seen: u64,
    /// The code of the run has ended: no handler begins (N8).
    is_closed: bool,
    /// A handler is being polled.
    is_polled: bool,
}

struct RunningHandler {
    arm: u32,
    update_id: String,
    name: Name,
    branch: Branch,
    /// Absent while it is polled.
    future: Option<HandlerFuture>,
}

impl Handlers {
    pub fn is_polled(&self) -> bool {
        self.is_polled
    }

    /// Returns the arms to poll, in order.
    fn ready(&mut self, poll_all: u64) -> Vec<u32> {
        let mut ready = Vec::new();
        self.arms.take(&mut ready);
        if self.poll_all_seen != poll_all {
            self.poll_all_seen = poll_all;
            ready = self.running.iter().map(|handler| handler.arm).collect();
        }
        ready
    }

    fn find(&mut self, arm: u32) -> Option<&mut RunningHandler> {
        self.running.iter_mut().find(|handler| handler.arm == arm)
    }
}

/// Calls the handler of an update, or begins it; keeps the update if there is no handler.
pub(crate) fn handle_update(cell: &RunCell, update: UpdateReceived) {
    let handler = {
        let mut state = cell.lock();
        let is_late = state.handlers.is_closed && matches!(state.updates.get(&update.name), Some(UpdateHandler::Awaiting(_)));
        if is_late { None } else { state.updates.remove(&update.name) }
    };
    let name = update.name.clone();
    let handler = match handler {
        None => return cell.lock().engine.keep_update(update),
        Some(UpdateHandler::AtOnce(mut answerer)) => {
            let result = contained("update", || answerer(update.payload)).and_then(|result| result);
            let result = result.and_then(|answer| cell.checked_answer(&name, answer));
            cell.lock().engine.answer_update(update.update_id, result);
            UpdateHandler::AtOnce(answerer)
        }
        Some(UpdateHandler::Awaiting(mut handler)) => {
            begin(cell, &mut handler, update);
            UpdateHandler::Awaiting(handler)
        }
    };
    // The handler may have registered another one in its place.
    let mut state = cell.lock();
    if let std::collections::hash_map::Entry::Vacant(place) = state.updates.entry(name) {
        place.insert(handler);
        return;
    }
    drop(state);
    drop_user_code(handler);
}

/// Begins the future of a handler, in a branch of call ids of its own.
fn begin(cell: &RunCell, handler: &mut AwaitingHandler, update: UpdateReceived) {
    let branch = Branch::of_arm(&handler.call_id, handler.begun);
    handler.begun += 1;
    let before = cell.lock().engine.enter_branch(branch.clone());
    let started = contained("update", || (handler.start)(update.payload)).and_then(|started| started);
    let mut state = cell.lock();
    state.engine.enter_branch(before);
    match started {
        Err(failure) => state.engine.answer_update(update.update_id, Err(failure)),
        Ok(future) => {
            state.engine.begin_update(update.update_id.clone());
            let handlers = &mut state.handlers;
            let arm = handlers.next;
            handlers.next += 1;
            let UpdateReceived { update_id, name, .. } = update;
            handlers.running.push(RunningHandler { arm, update_id, name, branch, future: Some(future) });
            handlers.arms.mark(arm);
        }
    }
}

/// Polls the handlers whose calls were answered. Returns whether one has ended.
pub(crate) fn poll_handlers(cell: &Arc<RunCell>) -> bool {
    let (ready, arms) = {
        let mut state = cell.lock();
        if state.handlers.running.is_empty() {
            return false;
        }
        let poll_all = state.poll_all;
        (state.handlers.ready(poll_all), state.handlers.arms.clone())
    };
    let mut has_ended = false;
    for arm in ready {
        let mut state = cell.lock();
        let Some(handler) = state.handlers.find(arm) else { continue };
        let (branch, update_id, name) = (handler.branch.clone(), handler.update_id.clone(), handler.name.clone());
        let Some(mut future) = handler.future.take() else { continue };
        let before = state.engine.enter_branch(branch.clone());
        state.handlers.is_polled = true;
        drop(state);
        let polling = Polling { cell, arm: Some((&arms, arm)), limit: None };
        let waker = BorrowedWaker::new(&polling);
        let polled = contained("update", || future.as_mut().poll(&mut Context::from_waker(&waker)));
        let polled = polled.unwrap_or_else(|failure| Poll::Ready(Err(failure)));
        let mut state = cell.lock();
        state.handlers.is_polled = false;
        state.engine.enter_branch(before);
        let Poll::Ready(result) = polled else {
            match state.handlers.find(arm) {
                Some(handler) => handler.future = Some(future),
                None => {
                    drop(state);
                    drop_user_code(future); // abandoned meanwhile
                }
            }
            continue;
        };
        has_ended = true;
        state.handlers.running.retain(|handler| handler.arm != arm);
        drop(state);
        drop_user_code(future); // before its branch is closed: it may drop calls
        let result = result.and_then(|answer| cell.checked_answer(&name, answer));
        let mut state = cell.lock();
        state.engine.close_branches(&[branch]);
        state.engine.finish_update(&update_id, result);
    }
    has_ended
}

/// Drops the handlers in flight and answers their updates: the code of the run has ended (N10).
pub(crate) fn abandon_handlers(cell: &RunCell) {
    let handlers = {
        let mut state = cell.lock();
        state.handlers.is_closed = true;
        state.engine.abandon_updates();
        std::mem::take(&mut state.handlers.running)
    };
    drop_user_code(handlers);
}

/// Calls user code. A panic becomes a failure, because the caller of the update would wait forever otherwise.
pub(crate) fn contained<T>(what: &str, call: impl FnOnce() -> T) -> Result<T> {
    catch_unwind(AssertUnwindSafe(call))
        .map_err(|panic| Failure::fatal(format!("the {what} panicked: {}", panic_message(&*panic))).with_code("panicked"))
}

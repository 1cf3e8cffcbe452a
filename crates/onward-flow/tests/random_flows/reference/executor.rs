//! Runs the paths of the reference: one task for each, polled in the order in which they became ready.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use onward_flow::machine::{Call, CallId, CallMemo, CallRequest};
use serde_json::Value;

use super::Failed;

type Task<'f> = Pin<Box<dyn Future<Output = ()> + 'f>>;

#[derive(Default)]
pub struct Executor<'f> {
    tasks: RefCell<BTreeMap<usize, Option<Task<'f>>>>,
    spawned: Cell<usize>,
    ready: RefCell<VecDeque<usize>>,
    current: Cell<usize>,
    calls: RefCell<Calls>,
}

#[derive(Default)]
struct Calls {
    made: CallId,
    made_before: CallId,
    /// Open calls with the task that waits, and their answers.
    open: BTreeMap<CallId, (usize, Option<Failed<Value>>)>,
    new: Vec<Call>,
    canceled: Vec<CallId>,
}

impl<'f> Executor<'f> {
    pub fn spawn(&self, task: impl Future<Output = ()> + 'f) -> usize {
        let id = self.spawned.replace(self.spawned.get() + 1);
        self.tasks.borrow_mut().insert(id, Some(Box::pin(task)));
        self.wake(id);
        id
    }

    pub fn wake(&self, task: usize) {
        let mut ready = self.ready.borrow_mut();
        if self.tasks.borrow().contains_key(&task) && !ready.contains(&task) {
            ready.push_back(task);
        }
    }

    /// Drops a task, which cancels its calls.
    pub fn drop_task(&self, task: usize) {
        let task = self.tasks.borrow_mut().remove(&task);
        drop(task);
    }

    pub fn drop_all(&self) {
        self.ready.borrow_mut().clear();
        let tasks = std::mem::take(&mut *self.tasks.borrow_mut());
        drop(tasks);
    }

    /// Polls ready tasks until none is ready or `stops`. Returns whether a task is left.
    pub fn run(&self, stops: impl Fn() -> bool) -> bool {
        loop {
            let Some(id) = self.ready.borrow_mut().pop_front() else { break };
            let Some(Some(mut task)) = self.tasks.borrow_mut().get_mut(&id).map(Option::take) else { continue };
            self.current.set(id);
            let poll = task.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            if poll.is_ready() {
                self.tasks.borrow_mut().remove(&id);
            } else if let Some(place) = self.tasks.borrow_mut().get_mut(&id) {
                *place = Some(task);
            }
            if stops() {
                break;
            }
        }
        !self.tasks.borrow().is_empty()
    }

    pub fn answer(&self, call: CallId, answer: Failed<Value>) {
        let mut calls = self.calls.borrow_mut();
        let open = calls.open.get_mut(&call).expect("the call is open");
        open.1 = Some(answer);
        let task = open.0;
        drop(calls);
        self.wake(task);
    }

    pub fn any_open(&self) -> bool {
        !self.calls.borrow().open.is_empty()
    }

    /// Returns what was canceled and made since the last time.
    pub fn take(&self) -> (Vec<CallId>, Vec<Call>) {
        let mut calls = self.calls.borrow_mut();
        calls.made_before = calls.made;
        let mut new = std::mem::take(&mut calls.new);
        new.retain(|call| calls.open.contains_key(&call.id));
        let mut canceled = std::mem::take(&mut calls.canceled);
        canceled.sort_unstable();
        (canceled, new)
    }

    /// Makes a call when it is polled first, and cancels it when it is dropped without an answer.
    pub fn call(&self, label: String, request: CallRequest) -> CallFuture<'_, 'f> {
        self.memo_call(label, request, None)
    }

    /// Makes a call like [`Executor::call`], with a memo.
    pub fn memo_call(&self, label: String, request: CallRequest, memo: Option<CallMemo>) -> CallFuture<'_, 'f> {
        CallFuture { executor: self, call: Some((label, request, memo)), id: None }
    }
}

pub struct CallFuture<'e, 'f> {
    executor: &'e Executor<'f>,
    call: Option<(String, CallRequest, Option<CallMemo>)>,
    id: Option<CallId>,
}

impl Future for CallFuture<'_, '_> {
    type Output = Failed<Value>;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Failed<Value>> {
        let executor = self.executor;
        let mut calls = executor.calls.borrow_mut();
        if let Some((label, request, memo)) = self.call.take() {
            let id = calls.made;
            calls.made += 1;
            calls.open.insert(id, (executor.current.get(), None));
            calls.new.push(Call { id, label, request, memo });
            self.id = Some(id);
        }
        let Some(id) = self.id else { panic!("a call is polled after its answer") };
        match calls.open.get_mut(&id).and_then(|(_, answer)| answer.take()) {
            Some(answer) => {
                calls.open.remove(&id);
                self.id = None;
                Poll::Ready(answer)
            }
            None => Poll::Pending,
        }
    }
}

impl Drop for CallFuture<'_, '_> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            let mut calls = self.executor.calls.borrow_mut();
            calls.open.remove(&id);
            if id < calls.made_before {
                calls.canceled.push(id);
            }
        }
    }
}

//! The threads that poll workflow code.
//!
//! Workflow code runs outside of any async runtime, so that using one by mistake fails at once. Must never block: drivers are
//! futures, and what they wait for wakes them.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};
use std::thread;

/// How many tasks a thread takes from the queue at once: enough to save locking, few enough to share.
const TAKE_MAX: usize = 16;

type BoxFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

pub(crate) struct Executor {
    shared: Arc<Queue>,
    threads: Mutex<Vec<thread::JoinHandle<()>>>,
}

#[derive(Default)]
struct Queue {
    state: Mutex<QueueState>,
    filled: Condvar,
}

#[derive(Default)]
struct QueueState {
    tasks: VecDeque<Arc<Task>>,
    sleeping: usize,
    stopped: bool,
}

struct Task {
    future: Mutex<Option<BoxFuture>>,
    queued: AtomicBool,
    queue: Arc<Queue>,
}

impl Executor {
    pub fn new(threads: usize) -> std::io::Result<Executor> {
        let shared = Arc::new(Queue::default());
        let spawn = |number| {
            let queue = shared.clone();
            thread::Builder::new().name(format!("onward-{number}")).spawn(move || queue.work())
        };
        let threads = (0..threads.max(1)).map(spawn).collect::<Result<Vec<_>, _>>()?;
        Ok(Executor { shared, threads: Mutex::new(threads) })
    }

    pub fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        let future = Mutex::new(Some(Box::pin(future) as BoxFuture));
        Arc::new(Task { future, queued: AtomicBool::new(false), queue: self.shared.clone() }).wake();
    }

    /// Lets the threads end after what they are polling. Tasks that are left are dropped with their last waker.
    pub fn stop(&self) {
        let mut state = self.shared.lock();
        state.stopped = true;
        let left = std::mem::take(&mut state.tasks);
        drop(state);
        self.shared.filled.notify_all();
        drop(left); // user code may be dropped here, so not under the lock
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        self.stop();
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            // The last handle may be dropped by one of our own threads.
            if thread.thread().id() != thread::current().id() {
                drop(thread.join());
            }
        }
    }
}

impl Queue {
    fn lock(&self) -> std::sync::MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        let mut mine = Vec::with_capacity(TAKE_MAX);
        while self.take(&mut mine) {
            for task in mine.drain(..) {
                task.run();
            }
        }
    }

    /// Waits for tasks; `false` when there will be none.
    fn take(&self, mine: &mut Vec<Arc<Task>>) -> bool {
        let mut state = self.lock();
        while state.tasks.is_empty() {
            if state.stopped {
                return false;
            }
            state.sleeping += 1;
            state = self.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.sleeping -= 1;
        }
        let count = state.tasks.len().min(TAKE_MAX);
        mine.extend(state.tasks.drain(..count));
        true
    }

    fn push(&self, task: Arc<Task>) {
        let mut state = self.lock();
        if state.stopped {
            return;
        }
        state.tasks.push_back(task);
        let wake = state.sleeping > 0;
        drop(state);
        if wake {
            self.filled.notify_one();
        }
    }
}

impl Task {
    fn run(self: &Arc<Task>) {
        // Cleared before the poll: a wake during the poll queues the task again.
        self.queued.store(false, Ordering::Release);
        let mut slot = self.future.lock().unwrap_or_else(PoisonError::into_inner);
        let waker = Waker::from(self.clone());
        let done = slot.as_mut().is_some_and(|future| future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready());
        if done {
            let future = slot.take();
            drop(slot);
            drop(future);
        }
    }
}

impl Wake for Task {
    fn wake(self: Arc<Task>) {
        if !self.queued.swap(true, Ordering::AcqRel) {
            self.queue.clone().push(self);
        }
    }

    fn wake_by_ref(self: &Arc<Task>) {
        if !self.queued.swap(true, Ordering::AcqRel) {
            self.queue.push(self.clone());
        }
    }
}

//! The threads that poll workflow code.
//!
//! Workflow code runs outside of any async runtime, so that using one by mistake fails at once. Must never block: drivers are
//! futures and are woken by what they wait for.

use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::task::{Context, Wake, Waker};
use std::thread;

use onward_store::sync::lock;

use crate::host::code::drop_user_code;

/// Tasks that a thread takes from the queue at once: enough to save locking, few enough to share.
const TAKE_MAX: usize = 16;

type BoxFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

pub(crate) struct Executor {
    shared: Arc<ReadyQueue>,
    threads: Mutex<Vec<thread::JoinHandle<()>>>,
}

#[derive(Default)]
struct ReadyQueue {
    state: Mutex<QueueState>,
    filled: Condvar,
    stopped: AtomicBool,
}

#[derive(Default)]
struct QueueState {
    tasks: VecDeque<Arc<Task>>,
    /// Every unfinished task. A future holds wakers to its own task, so `stop` must drop it explicitly.
    alive: HashMap<u64, Weak<Task>>,
    next_number: u64,
    /// Number of sleeping threads that have not been notified.
    sleeping: usize,
}

struct Task {
    number: u64,
    future: Mutex<Option<BoxFuture>>,
    queued: AtomicBool,
    queue: Arc<ReadyQueue>,
}

impl Executor {
    pub fn new(threads: usize) -> std::io::Result<Executor> {
        let shared = Arc::new(ReadyQueue::default());
        let spawn = |number| {
            let queue = shared.clone();
            thread::Builder::new().name(format!("onward-{number}")).spawn(move || queue.work())
        };
        let threads = (0..threads.max(1)).map(spawn).collect::<Result<Vec<_>, _>>()?;
        Ok(Executor { shared, threads: Mutex::new(threads) })
    }

    pub fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        let future = Mutex::new(Some(Box::pin(future) as BoxFuture));
        let mut state = self.shared.lock();
        let number = state.next_number;
        state.next_number += 1;
        let task = Arc::new(Task { number, future, queued: AtomicBool::new(false), queue: self.shared.clone() });
        state.alive.insert(number, Arc::downgrade(&task));
        drop(state);
        task.wake();
    }

    /// Stops the threads after their current poll and drops every future.
    pub fn stop(&self) {
        let mut state = self.shared.lock();
        self.shared.stopped.store(true, Ordering::SeqCst);
        let (queued, alive) = (std::mem::take(&mut state.tasks), std::mem::take(&mut state.alive));
        drop(state);
        self.shared.filled.notify_all();
        // Not under the lock, because user code is dropped here. A future that is being polled is dropped by the polling thread.
        drop(queued);
        for task in alive.into_values().filter_map(|task| task.upgrade()) {
            let future = task.future.try_lock().ok().and_then(|mut slot| slot.take());
            drop_user_code(future);
        }
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        self.stop();
        let threads = std::mem::take(&mut *lock(&self.threads));
        for thread in threads {
            // The last handle may be dropped by one of these threads.
            if thread.thread().id() != thread::current().id() {
                drop(thread.join());
            }
        }
    }
}

impl ReadyQueue {
    fn lock(&self) -> std::sync::MutexGuard<'_, QueueState> {
        lock(&self.state)
    }

    fn work(&self) {
        let mut mine = Vec::with_capacity(TAKE_MAX);
        while self.take(&mut mine) {
            for task in mine.drain(..) {
                task.run();
            }
        }
    }

    /// Waits for tasks; returns `false` when the executor is stopped.
    fn take(&self, mine: &mut Vec<Arc<Task>>) -> bool {
        let mut state = self.lock();
        while state.tasks.is_empty() {
            if self.stopped.load(Ordering::SeqCst) {
                return false;
            }
            state.sleeping += 1;
            state = self.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let count = state.tasks.len().min(TAKE_MAX);
        mine.extend(state.tasks.drain(..count));
        true
    }

    fn push(&self, task: Arc<Task>) {
        let mut state = self.lock();
        if self.stopped.load(Ordering::SeqCst) {
            return;
        }
        state.tasks.push_back(task);
        // A notified thread is no longer counted as sleeping, so further pushes do not notify it again with a system call each.
        let wake = state.sleeping > 0;
        state.sleeping -= usize::from(wake);
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
        let mut slot = lock(&self.future);
        let waker = Waker::from(self.clone());
        let done = slot.as_mut().is_some_and(|future| {
            // User code is contained where it is polled and dropped. This keeps the thread alive if a panic gets past that.
            let poll = || future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
            catch_unwind(AssertUnwindSafe(poll)).unwrap_or(true)
        });
        if done {
            self.queue.lock().alive.remove(&self.number);
        }
        if done || self.queue.stopped.load(Ordering::SeqCst) {
            let future = slot.take();
            drop(slot);
            drop_user_code(future);
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

//! The queue of work for the shell, in the order in which it arose.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use onward_store::sync::lock;

use crate::Work;

type Wake = Arc<dyn Fn() + Send + Sync>;

#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<QueueState>,
    filled: Condvar,
}

#[derive(Default)]
struct QueueState {
    work: VecDeque<Work>,
    wake: Option<Wake>,
    /// The shell was woken and has not taken everything since.
    is_awake: bool,
    /// Nothing more is accepted.
    is_closed: bool,
}

impl Queue {
    /// Adds work and wakes the shell if there was none. Returns false if the queue is closed.
    pub fn push(&self, work: Work) -> bool {
        let mut state = lock(&self.state);
        if state.is_closed {
            return false;
        }
        state.work.push_back(work);
        self.wake(state);
        true
    }

    /// Adds the last work.
    pub fn close(&self, last: Option<Work>) {
        let mut state = lock(&self.state);
        if !std::mem::replace(&mut state.is_closed, true) {
            state.work.extend(last);
            self.wake(state);
        }
    }

    fn wake(&self, mut state: std::sync::MutexGuard<'_, QueueState>) {
        self.filled.notify_one();
        let wake = if state.is_awake || state.work.is_empty() { None } else { state.wake.clone() };
        state.is_awake |= wake.is_some();
        drop(state);
        if let Some(wake) = wake {
            wake();
        }
    }

    pub fn set_wake(&self, wake: Wake) {
        let mut state = lock(&self.state);
        state.wake = Some(wake);
        state.is_awake = false;
        self.wake(state);
    }

    /// Takes at most `max` items; waits up to `wait` for the first.
    pub fn take(&self, max: usize, wait: Duration) -> Vec<Work> {
        let mut state = lock(&self.state);
        let deadline = Instant::now().checked_add(wait);
        while state.work.is_empty() && !wait.is_zero() && !state.is_closed {
            let left = deadline.map_or(wait, |deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                break;
            }
            state = self.filled.wait_timeout(state, left).unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
        let count = state.work.len().min(max);
        let taken = state.work.drain(..count).collect();
        state.is_awake &= count == max;
        taken
    }

    /// Removes the work that is no longer wanted.
    pub fn retain(&self, wanted: impl Fn(&Work) -> bool) {
        lock(&self.state).work.retain(wanted);
    }

    pub fn len(&self) -> usize {
        lock(&self.state).work.len()
    }
}

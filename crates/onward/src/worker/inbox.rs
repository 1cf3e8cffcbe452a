//! Runs in memory: the inbox of each, for records appended to its log, and the cache of waiting runs, in which the least recently
//! used are evicted.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Waker;

use onward_core::Record;
use onward_runtime::{Inbox, Question};
use onward_store::sync::lock;

/// Messages since the driver last took them.
#[derive(Default)]
pub(crate) struct InboxItem {
    pub records: Vec<Record>,
    pub questions: Vec<Question>,
    pub lost: bool,
    pub evict: bool,
    /// Whether readers of the run exist, if that was announced.
    pub watch: Option<bool>,
}

#[derive(Default)]
struct InboxState {
    item: InboxItem,
    waker: Option<Waker>,
    closed: bool,
}

#[derive(Default)]
pub(crate) struct RunInbox {
    state: Mutex<InboxState>,
}

impl RunInbox {
    fn lock(&self) -> MutexGuard<'_, InboxState> {
        lock(&self.state)
    }

    /// Takes all messages and stores `waker` for later ones.
    pub fn take(&self, waker: &Waker) -> InboxItem {
        let mut state = self.lock();
        if !state.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
            state.waker = Some(waker.clone());
        }
        std::mem::take(&mut state.item)
    }

    /// Makes the driver release the run as soon as it waits.
    pub fn evict(&self) {
        let mut state = self.lock();
        state.item.evict = true;
        wake_driver(state);
    }

    /// Closes the inbox if it is empty; returns whether it did.
    pub fn close_if_empty(&self) -> bool {
        let mut state = self.lock();
        let empty = state.item.records.is_empty() && state.item.questions.is_empty();
        state.closed = empty;
        empty
    }

    /// Closes the inbox with whatever it has. Pending queries are dropped, and their callers retry.
    pub fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.waker = None;
        let item = std::mem::take(&mut state.item);
        drop(state);
        drop(item);
    }
}

impl Inbox for RunInbox {
    fn push(&self, record: Record) {
        let mut state = self.lock();
        state.item.records.push(record);
        wake_driver(state);
    }

    fn lost(&self) {
        let mut state = self.lock();
        state.item.lost = true;
        wake_driver(state);
    }

    fn ask(&self, question: Question) -> Result<(), Question> {
        let mut state = self.lock();
        if state.closed {
            return Err(question);
        }
        state.item.questions.push(question);
        wake_driver(state);
        Ok(())
    }

    fn watch(&self, on: bool) -> bool {
        let mut state = self.lock();
        let is_open = !state.closed;
        state.item.watch = Some(on);
        wake_driver(state);
        is_open
    }
}

/// Wakes the driver, outside of the lock.
fn wake_driver(state: MutexGuard<'_, InboxState>) {
    let waker = state.waker.clone();
    drop(state);
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// The waiting runs in memory.
pub(crate) struct Cache {
    runs_max: usize,
    idle: Mutex<Idle>,
}

#[derive(Default)]
struct Idle {
    /// The longest idle first.
    by_age: BTreeMap<u64, Arc<RunInbox>>,
    /// The age by the inbox's address, which identifies it while it is in `by_age`.
    age_of: HashMap<usize, u64>,
    next_age: u64,
}

impl Cache {
    pub fn new(runs_max: usize) -> Cache {
        Cache { runs_max, idle: Mutex::default() }
    }

    /// Marks the run as waiting. If there are too many, evicts the one that has waited longest.
    pub fn idle(&self, inbox: &Arc<RunInbox>) {
        let mut idle = lock(&self.idle);
        let age = idle.next_age;
        idle.next_age += 1;
        if let Some(before) = idle.age_of.insert(address(inbox), age) {
            idle.by_age.remove(&before);
        }
        idle.by_age.insert(age, inbox.clone());
        let over = if idle.by_age.len() > self.runs_max { idle.by_age.pop_first() } else { None };
        if let Some((_, inbox)) = &over {
            idle.age_of.remove(&address(inbox));
        }
        drop(idle);
        if let Some((_, inbox)) = over {
            inbox.evict();
        }
    }

    /// Marks the run as active, or removes it.
    pub fn busy(&self, inbox: &Arc<RunInbox>) {
        let mut idle = lock(&self.idle);
        if let Some(age) = idle.age_of.remove(&address(inbox)) {
            idle.by_age.remove(&age);
        }
    }
}

fn address(inbox: &Arc<RunInbox>) -> usize {
    Arc::as_ptr(inbox) as usize
}

//! The cache of waiting runs in memory: least recently used runs are evicted.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use super::inbox::RunInbox;
use onward_store::sync::lock;

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

    /// Marks the run as waiting. If there are too many, asks the one that has waited longest to leave.
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

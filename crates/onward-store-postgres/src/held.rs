//! Which runs are held through this server, and how far its listeners have heard of each.
//!
//! A worker gets the inputs of its runs from listeners, in order. With several servers an input may be taken elsewhere, and hints come in
//! any order; so what is told of a held run is checked here.
//!
//! Invariants:
//! - DB9: of a run that is held through this server listeners hear every record behind the claim once, in order, and none before those
//!   in front of it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use onward_core::{Epoch, Index, Record, RunHead, RunKey};

#[derive(Default)]
pub(crate) struct Held(Mutex<HashMap<RunKey, Position>>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Position {
    epoch: Epoch,
    generation: u32,
    /// Everything below was told.
    next: Index,
}

/// What is to be done with a record.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Tell,
    /// It was told before.
    Drop,
    /// Something before it was not.
    Behind,
}

impl Held {
    fn lock(&self) -> MutexGuard<'_, HashMap<RunKey, Position>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A worker got the run through this server, and listeners have heard of everything that was there by then.
    pub fn hold(&self, head: &RunHead) {
        let position = Position { epoch: head.epoch, generation: head.generation, next: head.next_index };
        self.lock().insert(head.key.clone(), position);
    }

    pub fn holds(&self, run: &RunKey) -> bool {
        self.lock().contains_key(run)
    }

    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    pub fn next(&self, run: &RunKey) -> Option<(u32, Index)> {
        self.lock().get(run).map(|position| (position.generation, position.next))
    }

    /// Decides about a record that somebody wants to tell.
    pub fn judge(&self, head: &RunHead, record: &Record) -> Verdict {
        let mut held = self.lock();
        let Some(position) = held.get_mut(&head.key) else { return Verdict::Tell };
        if head.epoch < position.epoch {
            return Verdict::Tell; // older than the lease, and only now told
        }
        if position.epoch != head.epoch || position.generation != head.generation {
            held.remove(&head.key); // somebody else has it, or nobody
            return Verdict::Tell;
        }
        if record.index < position.next {
            return Verdict::Drop;
        }
        if record.index > position.next {
            return Verdict::Behind;
        }
        position.next = record.next_index();
        if head.status.is_closed() {
            held.remove(&head.key);
        }
        Verdict::Tell
    }

    /// The lease was given back, or lost.
    pub fn let_go(&self, run: &RunKey, epoch: Epoch) {
        let mut held = self.lock();
        if held.get(run).is_some_and(|position| position.epoch == epoch) {
            held.remove(run);
        }
    }
}

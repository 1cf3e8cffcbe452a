//! Reads what other processes wrote to a shared store, for the runs that are held here.
//!
//! The store's listener receives every change of this process, and only notifications of changes by others. A watch reads its
//! run itself; a worker waits for its inbox, so this module reads for it. It reads only runs that are held or streamed here.
//!
//! Invariant B4 (F19): an input that another process appended to a run that is held here reaches its worker: soon after a
//! notification, and within the fallback if every notification is lost.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use onward_core::RunKey;
use onward_store::StoreError;
use onward_store::sync::lock;
use tokio::sync::Notify;

use crate::Runtime;
use crate::cluster::Hub;

/// Number of runs in one query to the store.
const RUNS_AT_ONCE: usize = 1_000;

#[derive(Default)]
pub(crate) struct Elsewhere {
    changed: Mutex<BTreeSet<RunKey>>,
    /// Any run may have changed.
    missed: AtomicBool,
    pub wakeup: Notify,
}

impl Elsewhere {
    pub fn changed(&self, run: &RunKey) {
        if lock(&self.changed).insert(run.clone()) {
            self.wakeup.notify_one();
        }
    }

    pub fn missed(&self) {
        self.missed.store(true, Ordering::SeqCst);
        self.wakeup.notify_one();
    }

    /// Returns and clears the changed runs; `None` stands for all.
    fn take(&self) -> Option<BTreeSet<RunKey>> {
        let changed = std::mem::take(&mut *lock(&self.changed));
        if self.missed.swap(false, Ordering::SeqCst) { None } else { Some(changed) }
    }
}

impl Runtime {
    /// Reads what others appended to the runs that are held here: to the announced runs, or to all. Returns true to look again
    /// soon, for an announced run whose claim is under way. After an error, the next read of all runs catches up.
    pub(crate) async fn catch_up(&self, all: bool) -> Result<bool, StoreError> {
        let Hub { elsewhere, inboxes, streams, .. } = &**self.hub();
        let claiming = inboxes.is_claiming();
        let announced = elsewhere.take().filter(|_| !all);
        let held = inboxes.known(announced.as_ref());
        for known in held.chunks(RUNS_AT_ONCE) {
            let updates = self.store().read_since(known.to_vec()).await?;
            updates.iter().for_each(|since| inboxes.caught_up(since));
        }
        for run in streams.runs() {
            // Changes that a stream misses are found by the next pass.
            if announced.as_ref().is_none_or(|announced| announced.contains(&run)) {
                drop(self.follow_stream(&run).await);
            }
        }
        let mut unheld = announced.unwrap_or_default();
        unheld.retain(|run| !held.iter().any(|known| known.run == *run));
        let again = claiming && !unheld.is_empty();
        if again {
            lock(&elsewhere.changed).extend(unheld);
        }
        Ok(again)
    }
}

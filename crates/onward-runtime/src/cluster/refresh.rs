//! What other processes wrote into a shared store, fetched for the runs that are worked on here.
//!
//! The store's listener hears everything that this process wrote, and only hints of what others did. Whoever watches a run looks by
//! itself; a worker that holds one waits for its inbox, so somebody has to look for it. Must never look at runs that nobody here holds.
//!
//! Invariant B4 (F19): an input that another process appended to a run that is held here gets to its worker: soon after a hint, and
//! within the fallback when every hint is lost.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use onward_core::RunKey;
use onward_store::StoreError;
use tokio::sync::Notify;

use crate::Runtime;
use crate::by_run::lock;
use crate::cluster::listener::Hub;

/// How many runs are looked at with one question to the store.
const RUNS_AT_ONCE: usize = 1_000;

#[derive(Default)]
pub(crate) struct Elsewhere {
    changed: Mutex<BTreeSet<RunKey>>,
    /// Any run may have changed.
    missed: AtomicBool,
    rung: Notify,
}

impl Elsewhere {
    pub fn changed(&self, run: &RunKey) {
        if lock(&self.changed).insert(run.clone()) {
            self.rung.notify_one();
        }
    }

    pub fn missed(&self) {
        self.missed.store(true, Ordering::SeqCst);
        self.rung.notify_one();
    }

    /// Waits until something was told; a call that came before counts.
    pub async fn rung(&self) {
        self.rung.notified().await;
    }

    /// The runs that were told of; `None` stands for all.
    fn take(&self) -> Option<BTreeSet<RunKey>> {
        let changed = std::mem::take(&mut *lock(&self.changed));
        if self.missed.swap(false, Ordering::SeqCst) { None } else { Some(changed) }
    }
}

impl Runtime {
    /// Looks for what others appended to the runs that are held here: those that were told of, or all of them. Returns whether to look
    /// again soon, for a run whose claim is under way. What could not be read comes with the next look at all.
    pub(crate) async fn catch_up(&self, all: bool) -> Result<bool, StoreError> {
        let Hub { elsewhere, inboxes, streams, .. } = &**self.hub();
        let claiming = inboxes.is_claiming();
        let told = elsewhere.take().filter(|_| !all);
        let held = inboxes.known(told.as_ref());
        for known in held.chunks(RUNS_AT_ONCE) {
            let news = self.store().read_since(known.to_vec()).await?;
            news.iter().for_each(|since| inboxes.caught_up(since));
        }
        for run in streams.runs() {
            // What a stream does not hear of, its readers miss; the next look finds it.
            if told.as_ref().is_none_or(|told| told.contains(&run)) {
                drop(self.follow_stream(&run).await);
            }
        }
        let mut unheld = told.unwrap_or_default();
        unheld.retain(|run| !held.iter().any(|known| known.run == *run));
        let again = claiming && !unheld.is_empty();
        if again {
            lock(&elsewhere.changed).extend(unheld);
        }
        Ok(again)
    }
}

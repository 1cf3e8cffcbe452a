//! Inboxes: delivery of inputs to the runs that a worker holds.
//!
//! Has one slot for each run that a worker of this process holds. Every input that is appended while the slot exists reaches
//! the worker in order: it is buffered until the worker opens its inbox, and pushed from then on. Must never call the store.
//!
//! Invariants:
//! - B1 (CE14): an input that is not in the log a worker received is in its slot. The slot of a run that is started here exists
//!   before the store is called; during a claim, the window buffers inputs of runs whose claim is not known yet.
//! - B2: a slot belongs to one claim: one generation and one epoch. Inputs of another generation are not delivered; a higher
//!   epoch means that the lease is lost.
//! - B3: opening an inbox after the slot is gone reports the lease as lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use onward_core::{Epoch, Index, Record, RunHead, RunKey};
use onward_store::sync::lock;
use onward_store::{ClaimedRun, KnownRun, RunUpdate};

use crate::by_run::ByRun;
use crate::worker::connection::Question;
use crate::worker::profile::{Permit, Worker};

/// Number of inputs that the window buffers during a claim; beyond it, the claimed runs are read from the store.
const WINDOW_RECORDS_MAX: usize = 4_096;

/// Receiver of the inputs of one run. Called under a lock on the store's own thread: it must be fast and must not call back.
pub trait Inbox: Send + Sync {
    /// Receives the next input of the run. An input that was in the log of the claim may come again.
    fn push(&self, record: Record);

    /// Reports that the lease is lost: drop the run's memory. Nothing is pushed after this.
    fn lost(&self);

    /// Passes a query to the run's code; returns the query if the run is no longer in memory.
    fn ask(&self, question: Question) -> Result<(), Question>;

    /// Notes whether readers of the run exist. If so, the worker reports all steps under way, and then each step that starts.
    /// Returns false if it cannot report steps.
    fn watch(&self, _on: bool) -> bool {
        false
    }
}

#[derive(Default)]
pub(crate) struct Inboxes {
    slots: ByRun<InboxSlot>,
    window: Window,
    tickets: AtomicU64,
}

struct InboxSlot {
    permit: Permit,
    ticket: Ticket,
    generation: u32,
    /// `None` until the claim is known.
    epoch: Option<Epoch>,
    /// Inputs of this process below this index have been delivered.
    next: Index,
    /// Records of any process below this index have been delivered.
    read_to: Index,
    to: SlotTarget,
}

enum SlotTarget {
    /// Buffered by index until the inbox is opened.
    Kept(BTreeMap<Index, Record>),
    Inbox(Arc<dyn Inbox>),
}

/// Distinguishes reservations of the same run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ticket(u64);

impl Inboxes {
    /// Creates a slot for a run that is about to be started; `None` if there is one, because the run exists or is being
    /// started.
    pub fn reserve(&self, key: &RunKey, permit: Permit) -> Option<Ticket> {
        let ticket = Ticket(self.tickets.fetch_add(1, Ordering::SeqCst));
        self.slots.edit(key, |slot| {
            if slot.is_some() {
                return None;
            }
            let to = SlotTarget::Kept(BTreeMap::new());
            // The worker gets `run_started` with the claim.
            *slot = Some(InboxSlot { permit, ticket, generation: 0, epoch: None, next: Index(1), read_to: Index(1), to });
            Some(ticket)
        })
    }

    /// Confirms that the run was created and claimed. Returns false if the slot is gone; then the claim has no owner.
    pub fn confirm(&self, ticket: Ticket, run: &ClaimedRun) -> bool {
        let confirmed = self.slots.update(&run.head.key, |slot| {
            if slot.ticket != ticket {
                return false;
            }
            slot.epoch = Some(run.head.epoch);
            slot.skip_to(end_of(run));
            true
        });
        confirmed == Some(true)
    }

    /// Returns the claim of the run that this process knows; `Some(None)` while a start is in progress.
    pub fn claim_of(&self, key: &RunKey) -> Option<Option<Epoch>> {
        self.slots.update(key, |slot| slot.epoch)
    }

    /// Removes the slot of a run that was not claimed.
    pub fn cancel(&self, key: &RunKey, ticket: Ticket) {
        self.remove(key, |slot| slot.ticket == ticket);
    }

    /// Delivers the buffered inputs and pushes to `inbox` from now on.
    pub fn open(&self, key: &RunKey, epoch: Epoch, inbox: Arc<dyn Inbox>) {
        let opened = self.slots.update(key, |slot| {
            if slot.epoch != Some(epoch) {
                return false;
            }
            if let SlotTarget::Kept(records) = &mut slot.to {
                std::mem::take(records).into_values().for_each(|record| inbox.push(record));
            }
            slot.to = SlotTarget::Inbox(inbox.clone());
            true
        });
        if opened != Some(true) {
            inbox.lost(); // B3
        }
    }

    /// Passes a query to the worker that has the run in memory; returns the query if there is none.
    pub fn ask(&self, question: Question) -> Result<(), Question> {
        let key = question.run.clone();
        let inbox = self.slots.update(&key, |slot| match &slot.to {
            SlotTarget::Inbox(inbox) => Some(inbox.clone()),
            SlotTarget::Kept(_) => None,
        });
        match inbox.flatten() {
            Some(inbox) => inbox.ask(question),
            None => Err(question),
        }
    }

    /// Passes to the worker that holds the run whether it is watched. Returns whether the worker reports steps then; `None` if no
    /// worker of this process holds the run.
    pub fn watch(&self, key: &RunKey, on: bool) -> Option<bool> {
        self.slots.update(key, |slot| match &slot.to {
            SlotTarget::Inbox(inbox) => inbox.watch(on),
            SlotTarget::Kept(_) => true, // it reports when it opens its inbox
        })
    }

    pub fn close(&self, key: &RunKey, epoch: Epoch) {
        self.remove(key, |slot| slot.epoch == Some(epoch));
    }

    /// Drops all slots of a worker that has lost its leases; returns its claims.
    pub fn lose_all(&self, worker: &Arc<Worker>) -> Vec<(RunKey, Epoch)> {
        let lost = self.slots.take_all(|slot| slot.permit.is_of(worker));
        lost.iter().for_each(|(_, slot)| slot.notify_lost());
        lost.into_iter().filter_map(|(key, slot)| Some((key, slot.epoch?))).collect()
    }

    pub fn appended(&self, head: &RunHead, record: &Record) {
        // First the window, then the slot: a claim that ends in between has created its slot before it closes the window (B1).
        self.window.keep(head, record);
        if self.slots.update(&head.key, |slot| slot.take(head, record)) == Some(false) {
            self.remove(&head.key, |slot| slot.epoch.is_some_and(|epoch| head.epoch > epoch));
        }
    }

    /// Returns up to where the runs that are held here are known; of the given runs only, if there are any.
    pub fn known(&self, of: Option<&BTreeSet<RunKey>>) -> Vec<KnownRun> {
        let known =
            |run: &RunKey, slot: &InboxSlot| KnownRun { run: run.clone(), generation: slot.generation, next: slot.read_to };
        let mut found = Vec::new();
        match of {
            Some(runs) => runs.iter().for_each(|run| found.extend(self.slots.update(run, |slot| known(run, slot)))),
            None => self.slots.each(|run, slot| found.push(known(run, slot))),
        }
        found
    }

    /// Notes a worker's own commit. It is no input, but if nothing is missing before it, it need not be read again.
    pub fn committed(&self, head: &RunHead, record: &Record) {
        self.slots.update(&head.key, |slot| slot.pass(head, record));
    }

    /// Delivers records that were read from the store, of any process.
    pub fn caught_up(&self, since: &RunUpdate) {
        if self.slots.update(&since.head.key, |slot| slot.catch_up(since)) == Some(false) {
            self.remove(&since.head.key, |slot| slot.epoch.is_some_and(|epoch| since.head.epoch > epoch));
        }
    }

    /// Returns true if a claim is in progress whose slots do not exist yet.
    pub fn is_claiming(&self) -> bool {
        self.window.open.load(Ordering::SeqCst) > 0
    }

    /// Opens the window before the store is called for runs; it buffers inputs until [`ClaimWindow::end`].
    pub fn begin_claim(&self) -> ClaimWindow<'_> {
        self.window.open.fetch_add(1, Ordering::SeqCst);
        ClaimWindow { inboxes: self }
    }

    fn admit(&self, run: &mut ClaimedRun, permit: Permit, seen: &Seen) {
        if seen.overflowed {
            run.records = None; // the worker reads the log, now that there is a slot
        }
        let (head, next) = (&run.head, end_of(run));
        let ticket = Ticket(self.tickets.fetch_add(1, Ordering::SeqCst));
        let to = SlotTarget::Kept(BTreeMap::new());
        let mut fresh =
            InboxSlot { permit, ticket, generation: head.generation, epoch: Some(head.epoch), next, read_to: next, to };
        let own = seen.records.iter().filter(|(seen, _)| seen.key == head.key);
        for (seen, record) in own {
            fresh.take(seen, record);
        }
        let before = self.slots.edit(&head.key, |slot| slot.replace(fresh));
        if let Some(before) = before {
            before.notify_lost(); // the same worker lost the run and claimed it again
        }
    }

    fn remove(&self, key: &RunKey, chosen: impl FnOnce(&InboxSlot) -> bool) {
        if self.slots.is_empty() {
            return;
        }
        let removed = self.slots.edit(key, |slot| slot.take_if(|slot| chosen(slot)));
        drop(removed); // outside of the lock, because it wakes a waiter
    }
}

impl InboxSlot {
    /// Takes the next input. Returns false if another worker has claimed the run.
    fn take(&mut self, head: &RunHead, record: &Record) -> bool {
        if self.epoch.is_some_and(|epoch| head.epoch > epoch) {
            self.notify_lost();
            return false; // B2
        }
        if head.generation != self.generation || record.index < self.next {
            return true;
        }
        self.next = record.next_index();
        match &mut self.to {
            SlotTarget::Inbox(inbox) => inbox.push(record.clone()),
            SlotTarget::Kept(records) => drop(records.insert(record.index, record.clone())),
        }
        self.pass(head, record);
        true
    }

    /// Advances `read_to` if nothing is missing before the record. After a gap, and after a record of a later claim, the store
    /// is read (B2).
    fn pass(&mut self, head: &RunHead, record: &Record) {
        let is_own = head.generation == self.generation && self.epoch.is_none_or(|epoch| head.epoch <= epoch);
        if is_own && record.index == self.read_to {
            self.read_to = record.next_index();
        }
    }

    /// Delivers what was read from the store. Records of this process may come again. Returns false if another worker has
    /// claimed the run.
    fn catch_up(&mut self, RunUpdate { generation, head, records }: &RunUpdate) -> bool {
        if self.epoch.is_some_and(|epoch| head.epoch > epoch) {
            self.notify_lost();
            return false; // B2
        }
        if *generation != self.generation {
            return true; // read for an earlier claim (B2)
        }
        let inputs = records.iter().filter(|record| record.commit.is_none() && record.index >= self.read_to);
        match &mut self.to {
            SlotTarget::Inbox(inbox) => inputs.for_each(|record| inbox.push(record.clone())),
            SlotTarget::Kept(kept) => kept.extend(inputs.map(|record| (record.index, record.clone()))),
        }
        self.read_to = records.last().map_or(self.read_to, |last| self.read_to.max(last.next_index()));
        true
    }

    fn skip_to(&mut self, next: Index) {
        self.next = self.next.max(next);
        self.read_to = self.read_to.max(next);
        if let SlotTarget::Kept(records) = &mut self.to {
            *records = records.split_off(&next);
        }
    }

    fn notify_lost(&self) {
        if let SlotTarget::Inbox(inbox) = &self.to {
            inbox.lost();
        }
    }
}

/// Returns the end of the log that the worker receives with the claim.
fn end_of(run: &ClaimedRun) -> Index {
    run.records.as_ref().and_then(|records| records.last()).map_or(Index(1), Record::next_index)
}

#[derive(Default)]
struct Window {
    /// Number of claims in progress.
    open: AtomicUsize,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    records: Vec<(RunHead, Record)>,
    overflowed: bool,
}

impl Window {
    fn keep(&self, head: &RunHead, record: &Record) {
        if self.open.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut seen = lock(&self.seen);
        if self.open.load(Ordering::SeqCst) == 0 {
            return; // the last claim ended meanwhile, and its slots exist
        }
        if seen.records.len() == WINDOW_RECORDS_MAX {
            seen.records.clear();
            seen.overflowed = true;
        }
        if !seen.overflowed {
            seen.records.push((head.clone(), record.clone()));
        }
    }
}

/// A claim in progress.
pub(crate) struct ClaimWindow<'a> {
    inboxes: &'a Inboxes,
}

impl ClaimWindow<'_> {
    /// Creates the slot of each run, with the inputs that arrived since the store leased it.
    pub fn end(self, runs: &mut [ClaimedRun], permits: Vec<Permit>) {
        let seen = lock(&self.inboxes.window.seen);
        for (run, permit) in runs.iter_mut().zip(permits) {
            self.inboxes.admit(run, permit, &seen);
        }
    }
}

impl Drop for ClaimWindow<'_> {
    fn drop(&mut self) {
        let mut seen = lock(&self.inboxes.window.seen);
        if self.inboxes.window.open.fetch_sub(1, Ordering::SeqCst) == 1 {
            *seen = Seen::default();
        }
    }
}

#[cfg(test)]
mod tests;

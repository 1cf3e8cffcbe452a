//! The feed of changed runs, for lists: which runs of a namespace started, changed their status or ended.
//!
//! Each reader has a queue of the runs that have changed since its last read; several changes of a run count as one. Without a
//! reader, an append costs one read of a counter.
//!
//! Invariants:
//! - FD1: after the last change of a run, a reader gets its latest head, or a reset: then it has to list the runs again. A reset
//!   follows when a queue is full, and when changes of other servers may be lost.
//! - FD2: a run that no longer matches the query is reported once more, if it may have matched before.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use onward_core::api::RunQuery;
use onward_core::{Attribute, Event, Namespace, Record, RunHead, RunKey, Status, Timestamp, numbered};
use onward_store::sync::lock;
use onward_store::{RunQuery as StoreQuery, shown};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::api::execute::run_query;
use crate::{Runtime, RuntimeError};

/// Number of changed runs that wait for a reader.
const CHANGED_MAX: usize = 10_000;

/// Number of runs whose status a reader remembers.
const KNOWN_MAX: usize = 10_000;

numbered! {
    /// The change of a run in the feed.
    pub enum RunChange {
        0 => Started / "started",
        1 => Status / "status",
        2 => Ended / "ended",
        3 => Deleted / "deleted",
    }
}

/// A frame of the feed.
#[derive(Debug, Clone, PartialEq)]
pub enum FeedFrame {
    Run {
        change: RunChange,
        head: Box<RunHead>,
    },
    /// Changes were lost: list the runs again.
    Reset,
}

#[derive(Default)]
pub(crate) struct Feed {
    count: AtomicUsize,
    queues: Mutex<Vec<Arc<FeedQueue>>>,
    /// A reader was added.
    has_reader: AtomicBool,
    elsewhere: Mutex<Elsewhere>,
}

/// Changes that the store does not announce, for feeds at other servers.
#[derive(Default)]
struct Elsewhere {
    until: Option<Instant>,
    changes: OutgoingChanges,
}

#[derive(Debug, Default)]
pub(crate) struct OutgoingChanges {
    pub touched: Vec<RunKey>,
    pub deleted: Vec<RunHead>,
    /// There were too many, or they could not be sent.
    pub is_lost: bool,
}

struct FeedQueue {
    namespace: Namespace,
    state: Mutex<QueueState>,
    woken: Notify,
}

#[derive(Default)]
struct QueueState {
    /// The latest head of each changed run; `None` if it has to be read.
    changed: BTreeMap<RunKey, Option<RunHead>>,
    deleted: Vec<RunHead>,
    is_lost: bool,
}

impl Feed {
    pub fn appended(&self, head: &RunHead, record: &Record, is_held: impl FnOnce() -> bool) {
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        if matches!(record.events.last(), Some(Event::RunContinued(_))) {
            return self.touched(&head.key); // its next generation is open
        }
        let is_held = record.commit.is_some() || is_held();
        self.change(&head.key, || Some(shown(head.clone(), is_held)));
    }

    /// Notes a run that may have changed and has to be read.
    pub fn touched(&self, key: &RunKey) {
        if self.count.load(Ordering::SeqCst) > 0 {
            self.change(key, || None);
        }
    }

    pub fn missed(&self) {
        self.each(None, |state| state.is_lost = true);
    }

    pub fn deleted(&self, head: &RunHead) {
        self.each(Some(&head.key.namespace), |state| {
            state.changed.remove(&head.key);
            match state.deleted.len() < CHANGED_MAX {
                true => state.deleted.push(head.clone()),
                false => state.is_lost = true,
            }
        });
    }

    fn change(&self, key: &RunKey, head: impl Fn() -> Option<RunHead>) {
        self.each(Some(&key.namespace), |state| match state.changed.len() < CHANGED_MAX {
            true => drop(state.changed.insert(key.clone(), head())),
            false => state.is_lost = true,
        });
    }

    fn each(&self, namespace: Option<&Namespace>, change: impl Fn(&mut QueueState)) {
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        for queue in lock(&self.queues).iter().filter(|queue| namespace.is_none_or(|namespace| queue.namespace == *namespace)) {
            change(&mut lock(&queue.state));
            queue.woken.notify_one();
        }
    }

    /// Registers the feed of another server.
    pub fn want(&self, until: Instant) {
        lock(&self.elsewhere).until = Some(until);
    }

    /// Returns whether other servers should be informed of readers here.
    pub fn is_announced(&self, is_time: bool) -> bool {
        let has_reader = self.has_reader.swap(false, Ordering::SeqCst);
        (has_reader || is_time) && self.count.load(Ordering::SeqCst) > 0
    }

    /// Takes the changes for feeds at other servers.
    pub fn take_outgoing(&self) -> OutgoingChanges {
        std::mem::take(&mut lock(&self.elsewhere).changes)
    }

    /// Notes that changes could not be sent to other servers (FD1).
    pub fn outgoing_lost(&self) {
        lock(&self.elsewhere).changes.is_lost = true;
    }

    fn forward(&self, note: impl FnOnce(&mut OutgoingChanges)) -> bool {
        let mut elsewhere = lock(&self.elsewhere);
        let is_wanted = elsewhere.until.is_some_and(|until| until > Instant::now());
        let changes = &mut elsewhere.changes;
        match changes.touched.len() + changes.deleted.len() < CHANGED_MAX {
            true if is_wanted => note(changes),
            true => {}
            false => *changes = OutgoingChanges { is_lost: true, ..OutgoingChanges::default() },
        }
        is_wanted
    }

    fn is_wanted(&self) -> bool {
        self.count.load(Ordering::SeqCst) > 0 || self.forward(|_| {})
    }
}

/// The changes of runs for one reader.
pub struct RunFeed {
    runtime: Runtime,
    queue: Arc<FeedQueue>,
    query: StoreQuery,
    known: HashMap<RunKey, KnownHead>,
    /// When the reader began, or got its last reset.
    since: Timestamp,
    /// Runs that have changed and are to be read.
    unread: BTreeSet<RunKey>,
    ready: VecDeque<FeedFrame>,
}

/// What a reader knows of a run.
#[derive(Debug, PartialEq)]
struct KnownHead {
    status: Status,
    attributes: Vec<Attribute>,
    /// The run is in the reader's list.
    matches: bool,
}

impl Drop for RunFeed {
    fn drop(&mut self) {
        let feed = &self.runtime.hub().feed;
        lock(&feed.queues).retain(|queue| !Arc::ptr_eq(queue, &self.queue));
        feed.count.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Runtime {
    /// Reads the changes of the runs that match a query from now on; its times, limit and cursor are ignored.
    pub fn watch_runs(&self, query: RunQuery) -> RunFeed {
        let query = RunQuery { created_from: None, created_until: None, cursor: None, ..query };
        let (state, woken) = Default::default();
        let queue = Arc::new(FeedQueue { namespace: query.namespace.clone(), state, woken });
        let feed = &self.hub().feed;
        lock(&feed.queues).push(queue.clone());
        feed.count.fetch_add(1, Ordering::SeqCst);
        feed.has_reader.store(true, Ordering::SeqCst);
        if self.store().is_shared() {
            self.hub().broadcast.wakeup.notify_one();
        }
        let (known, unread, ready) = Default::default();
        RunFeed { runtime: self.clone(), queue, query: run_query(query), known, since: self.clock().now(), unread, ready }
    }

    /// Notes that a worker has claimed or released a run, which appends nothing.
    pub(crate) fn lease_changed(&self, key: &RunKey) {
        let feed = &self.hub().feed;
        feed.touched(key);
        if self.store().is_shared() && feed.forward(|changes| changes.touched.push(key.clone())) {
            self.hub().broadcast.wakeup.notify_one();
        }
    }

    /// Returns the head of a run that is about to be deleted, if a feed needs it.
    pub(crate) async fn head_for_feed(&self, key: &RunKey) -> Option<RunHead> {
        match self.hub().feed.is_wanted() {
            true => self.read_head(key).await.ok(),
            false => None,
        }
    }

    pub(crate) fn run_deleted(&self, head: RunHead) {
        let feed = &self.hub().feed;
        feed.deleted(&head);
        if feed.forward(|changes| changes.deleted.push(head)) {
            self.hub().broadcast.wakeup.notify_one();
        }
    }
}

impl RunFeed {
    /// Waits for the next change.
    ///
    /// Cancel-safe: dropping the future loses no change.
    pub async fn next(&mut self) -> Result<FeedFrame, RuntimeError> {
        loop {
            if let Some(frame) = self.ready.pop_front() {
                return Ok(frame);
            }
            self.take_changes();
            if !self.ready.is_empty() {
                continue;
            }
            match self.unread.first().cloned() {
                Some(key) => self.read(key).await?,
                None => {
                    let queue = self.queue.clone();
                    queue.woken.notified().await;
                }
            }
        }
    }

    /// Takes the changes in the queue. Those of this server come first, because others have to be read one by one.
    fn take_changes(&mut self) {
        let QueueState { changed, deleted, is_lost } = std::mem::take(&mut *lock(&self.queue.state));
        if is_lost {
            self.unread.clear();
            self.forget_known();
            self.ready.push_back(FeedFrame::Reset); // FD1
            return;
        }
        for (key, head) in changed {
            match head {
                Some(head) => self.take(head),
                None => drop(self.unread.insert(key)),
            }
        }
        deleted.into_iter().for_each(|head| self.take_deleted(head));
    }

    /// Reads a run that has changed elsewhere. A run that is gone is not reported: its deletion is.
    async fn read(&mut self, key: RunKey) -> Result<(), RuntimeError> {
        let head = self.runtime.store().read_run(key.clone(), None).await?;
        self.unread.remove(&key); // a change during the read is in the queue (FD1)
        head.into_iter().for_each(|head| self.take(head));
        Ok(())
    }

    /// Adds a change, if the run matches the query or matched it before, and the change is one that lists show.
    fn take(&mut self, head: RunHead) {
        let matches = self.query.matches(&head);
        let now = KnownHead { status: head.status, attributes: head.attributes.clone(), matches };
        let before = self.known.insert(head.key.clone(), now);
        let is_listed = match &before {
            Some(before) => before.matches,
            None => head.created_at < self.since && self.may_have_matched(&head), // FD2
        };
        let is_same = before.as_ref() == self.known.get(&head.key);
        if self.known.len() > KNOWN_MAX {
            self.forget_known();
        }
        if is_same || !(matches || is_listed) {
            return;
        }
        let change = match before {
            _ if head.status.is_closed() => RunChange::Ended,
            None if head.created_at >= self.since => RunChange::Started,
            _ => RunChange::Status,
        };
        self.ready.push_back(FeedFrame::Run { change, head: Box::new(head) });
    }

    /// Returns whether the run matches but for what may have changed.
    fn may_have_matched(&self, head: &RunHead) -> bool {
        let lasting = StoreQuery { statuses: Vec::new(), attributes: Vec::new(), ..self.query.clone() };
        lasting.matches(head)
    }

    fn forget_known(&mut self) {
        self.known.clear();
        self.since = self.runtime.clock().now();
    }

    fn take_deleted(&mut self, head: RunHead) {
        self.unread.remove(&head.key);
        let was_listed = self.known.remove(&head.key).is_some_and(|known| known.matches);
        if was_listed || self.query.matches(&head) {
            self.ready.push_back(FeedFrame::Run { change: RunChange::Deleted, head: Box::new(head) });
        }
    }
}

#[cfg(test)]
mod tests;

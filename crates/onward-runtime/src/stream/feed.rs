//! The feed of changed runs, for lists: which runs of a namespace started, changed their status or ended.
//!
//! Each reader has a queue of the runs that have changed since its last read; several changes of a run count as one. Without a
//! reader, an append costs one read of a counter. A reader whose queue is full, or that may have missed changes of other
//! servers, gets a reset and has to list the runs again.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use onward_core::api::RunQuery;
use onward_core::{Attribute, Event, Namespace, Record, RunHead, RunKey, Status, numbered};
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
    touched: Vec<RunKey>,
    deleted: Vec<RunHead>,
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
            state.deleted.push(head.clone());
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
    pub fn take_outgoing(&self) -> (Vec<RunKey>, Vec<RunHead>) {
        let mut elsewhere = lock(&self.elsewhere);
        (std::mem::take(&mut elsewhere.touched), std::mem::take(&mut elsewhere.deleted))
    }

    fn forward(&self, note: impl FnOnce(&mut Elsewhere)) -> bool {
        let mut elsewhere = lock(&self.elsewhere);
        let is_wanted = elsewhere.until.is_some_and(|until| until > Instant::now());
        if is_wanted && elsewhere.touched.len() + elsewhere.deleted.len() < CHANGED_MAX {
            note(&mut elsewhere);
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
    /// The status and the attributes that the reader knows.
    known: HashMap<RunKey, (Status, Vec<Attribute>)>,
    since: onward_core::Timestamp,
    ready: VecDeque<FeedFrame>,
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
        let (known, ready) = Default::default();
        RunFeed { runtime: self.clone(), queue, query: run_query(query), known, since: self.clock().now(), ready }
    }

    /// Notes that a worker has claimed or released a run, which appends nothing.
    pub(crate) fn lease_changed(&self, key: &RunKey) {
        let feed = &self.hub().feed;
        feed.touched(key);
        if self.store().is_shared() && feed.forward(|elsewhere| elsewhere.touched.push(key.clone())) {
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
        if feed.forward(|elsewhere| elsewhere.deleted.push(head)) {
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
            let queue = self.queue.clone();
            let unread = {
                let mut state = lock(&queue.state);
                if std::mem::take(&mut state.is_lost) {
                    (state.changed, state.deleted) = Default::default();
                    drop(state);
                    self.known.clear();
                    return Ok(FeedFrame::Reset);
                }
                let unread = state.changed.iter().find(|(_, head)| head.is_none()).map(|(key, _)| key.clone());
                if unread.is_none() {
                    let (changed, deleted) = (std::mem::take(&mut state.changed), std::mem::take(&mut state.deleted));
                    drop(state);
                    changed.into_values().flatten().for_each(|head| self.take(head));
                    deleted.into_iter().for_each(|head| self.take_deleted(head));
                }
                unread
            };
            match unread {
                Some(key) => self.read(key).await?,
                None if self.ready.is_empty() => queue.woken.notified().await,
                None => {}
            }
        }
    }

    /// Reads a run that has changed elsewhere. A run that is gone is not reported: its deletion is.
    async fn read(&mut self, key: RunKey) -> Result<(), RuntimeError> {
        let head = self.runtime.store().read_run(key.clone(), None).await?;
        let mut state = lock(&self.queue.state);
        if state.changed.get(&key).is_some_and(Option::is_none) {
            state.changed.remove(&key);
        }
        drop(state);
        head.into_iter().for_each(|head| self.take(head));
        Ok(())
    }

    /// Adds a change, if the run matches the query or matched it before, and the change is one that lists show.
    fn take(&mut self, head: RunHead) {
        let matches = self.query.matches(&head);
        let now = (head.status, head.attributes.clone());
        let before = if matches { self.known.insert(head.key.clone(), now.clone()) } else { self.known.remove(&head.key) };
        if before.as_ref() == Some(&now) || (before.is_none() && !matches) {
            return;
        }
        let change = match before {
            _ if head.status.is_closed() => RunChange::Ended,
            None if head.created_at >= self.since => RunChange::Started,
            _ => RunChange::Status,
        };
        if self.known.len() > KNOWN_MAX {
            self.known.clear();
            self.since = self.runtime.clock().now();
        }
        self.ready.push_back(FeedFrame::Run { change, head: Box::new(head) });
    }

    fn take_deleted(&mut self, head: RunHead) {
        let was_known = self.known.remove(&head.key).is_some();
        if was_known || self.query.matches(&head) {
            self.ready.push_back(FeedFrame::Run { change: RunChange::Deleted, head: Box::new(head) });
        }
    }
}

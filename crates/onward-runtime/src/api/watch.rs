//! Waiting for something to happen to one run.
//!
//! A watch is a bell at the run: the store's listener rings it, and its owner then reads what there is. A bell that was not rung costs
//! time only: its owner looks by itself now and then, ever less often, because many may wait for months.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use onward_core::view::{RunView, outcome};
use onward_core::{Event, Failure, Index, Payload, Record, RunHead, RunKey};
use onward_store::Started;
use tokio::sync::Notify;

use crate::by_run::{ByRun, lock};
use crate::{Runtime, RuntimeError, StartRun};

/// By how much the pauses between own looks may grow over the fallback.
const PATIENCE_MAX: u32 = 16;

/// Where a log ends: its generation and the next index.
type Position = (u32, Index);

#[derive(Default)]
pub(crate) struct Watches {
    bells: ByRun<Vec<Arc<Bell>>>,
    /// How many bells ring for every append, not only for the last one.
    curious: AtomicUsize,
}

struct Bell {
    curious: bool,
    heard: Mutex<Heard>,
    rung: Notify,
}

#[derive(Default)]
struct Heard {
    position: Option<Position>,
    outcome: Option<Result<Payload, Failure>>,
    /// Something happened of which nothing more is known here.
    look: bool,
}

impl Watches {
    pub fn appended(&self, head: &RunHead, record: &Record) {
        // A run that is retried has an end again: who waits for one hears of it.
        let ends = record.ends_log() || reopens(record);
        if !ends && self.curious.load(Ordering::SeqCst) == 0 {
            return;
        }
        self.bells.update(&head.key, |bells| {
            let position = (head.generation, record.next_index());
            bells.iter().filter(|bell| ends || bell.curious).for_each(|bell| bell.ring(position, record));
        });
    }

    /// Another process has appended to the run: its watchers look for themselves, those who only want its end if it `ends`.
    pub fn look(&self, key: &RunKey, ends: bool) {
        self.bells.update(key, |bells| bells.iter().filter(|bell| ends || bell.curious).for_each(|bell| bell.look()));
    }

    pub fn look_all(&self) {
        self.bells.each(|_, bells| bells.iter().for_each(|bell| bell.look()));
    }

    /// The run was retried: what was heard of its end no longer counts. Told by whoever asked for it, because the store answers before it
    /// tells its listeners.
    pub fn reopened(&self, key: &RunKey) {
        self.bells.update(key, |bells| bells.iter().for_each(|bell| lock(&bell.heard).outcome = None));
    }

    fn hang(&self, key: &RunKey, curious: bool) -> Arc<Bell> {
        let bell = Arc::new(Bell { curious, heard: Mutex::default(), rung: Notify::new() });
        self.curious.fetch_add(usize::from(curious), Ordering::SeqCst);
        self.bells.edit(key, |bells| bells.get_or_insert_default().push(bell.clone()));
        bell
    }

    fn take_down(&self, key: &RunKey, bell: &Arc<Bell>) {
        self.curious.fetch_sub(usize::from(bell.curious), Ordering::SeqCst);
        self.bells.edit(key, |bells| {
            if let Some(list) = bells {
                list.retain(|other| !Arc::ptr_eq(other, bell));
                bells.take_if(|list| list.is_empty());
            }
        });
    }
}

impl Bell {
    fn look(&self) {
        lock(&self.heard).look = true;
        self.rung.notify_waiters();
    }

    fn ring(&self, position: Position, record: &Record) {
        let mut heard = lock(&self.heard);
        heard.position = heard.position.max(Some(position));
        if reopens(record) {
            heard.outcome = None;
        } else if heard.outcome.is_none() {
            heard.outcome = outcome(record);
        }
        drop(heard);
        self.rung.notify_waiters();
    }
}

fn reopens(record: &Record) -> bool {
    matches!(record.events.last(), Some(Event::RetryRequested(_)))
}

/// A bell that is taken down when nobody listens any more.
struct Hung {
    runtime: Runtime,
    key: RunKey,
    bell: Arc<Bell>,
}

impl Hung {
    fn new(runtime: &Runtime, key: &RunKey, curious: bool) -> Hung {
        let bell = runtime.hub().watches.hang(key, curious);
        Hung { runtime: runtime.clone(), key: key.clone(), bell }
    }

    /// Returns what `heard` finds as soon as it finds it, or `None` when it is time to look without the bell.
    async fn hear<T>(&self, patience: &mut u32, mut heard: impl FnMut(&Heard) -> Option<T>) -> Option<T> {
        let until = tokio::time::Instant::now() + self.runtime.options().fallback * *patience;
        loop {
            let mut rung = pin!(self.bell.rung.notified());
            // First the ear, then the look: what rings in between is heard.
            rung.as_mut().enable();
            let (found, look) = {
                let mut known = lock(&self.bell.heard);
                (heard(&known), std::mem::take(&mut known.look))
            };
            if found.is_some() || look {
                *patience = 1;
                return found;
            }
            if tokio::time::timeout_at(until, rung).await.is_err() {
                *patience = (*patience * 2).min(PATIENCE_MAX);
                return None;
            }
        }
    }
}

impl Drop for Hung {
    fn drop(&mut self) {
        self.runtime.hub().watches.take_down(&self.key, &self.bell);
    }
}

/// Tells of every append to one run.
pub struct RunWatch {
    hung: Hung,
    seen: Position,
    patience: u32,
}

impl RunWatch {
    /// Returns after an append that came since the watch was made or this last returned. Several appends may be one change.
    ///
    /// Fails with `run_not_found` when the run is deleted. May be dropped at any time without missing a change.
    pub async fn changed(&mut self) -> Result<(), RuntimeError> {
        loop {
            let seen = self.seen;
            let news = |heard: &Heard| heard.position.filter(|position| *position > seen);
            if let Some(position) = self.hung.hear(&mut self.patience, news).await {
                self.seen = position;
                return Ok(());
            }
            let head = self.hung.runtime.read_head(&self.hung.key).await?;
            let position = (head.generation, head.next_index);
            if std::mem::replace(&mut self.seen, position) != position {
                return Ok(());
            }
        }
    }

    /// The generation the watch last knew of.
    pub fn generation(&self) -> u32 {
        self.seen.0
    }
}

/// Waits for the end of one run, and keeps its outcome for whoever asks again.
pub struct OutcomeWatch {
    hung: Hung,
    /// The watch is older than the run, so the bell rings for its end: no need to ask the store first.
    older: bool,
}

impl OutcomeWatch {
    /// Waits until the run is closed, through all its generations, and returns its result.
    pub async fn outcome(&self) -> Result<Result<Payload, Failure>, RuntimeError> {
        let heard = |heard: &Heard| heard.outcome.clone();
        let (mut look, mut patience) = (!self.older, 1);
        loop {
            if look && let Some(outcome) = self.hung.runtime.read_outcome(&self.hung.key).await? {
                return Ok(outcome);
            }
            if let Some(outcome) = self.hung.hear(&mut patience, heard).await {
                return Ok(outcome);
            }
            look = true;
        }
    }
}

impl Runtime {
    /// Watches a run from now on.
    pub async fn watch_run(&self, key: &RunKey) -> Result<RunWatch, RuntimeError> {
        let hung = Hung::new(self, key, true);
        let head = self.read_head(key).await?;
        Ok(RunWatch { hung, seen: (head.generation, head.next_index), patience: 1 })
    }

    /// Starts a run and waits for its end from before its start, which spares asking the store whether it is over already.
    pub async fn start_and_watch(&self, start: StartRun) -> Result<(Started, OutcomeWatch), RuntimeError> {
        let hung = Hung::new(self, &start.key, false);
        let started = self.start_run(start).await?;
        let older = started.created;
        Ok((started, OutcomeWatch { hung, older }))
    }

    /// Hears how the run ends that is about to be started.
    pub(crate) fn watch_outcome(&self, key: &RunKey) -> OutcomeWatch {
        OutcomeWatch { hung: Hung::new(self, key, false), older: false }
    }

    /// Waits until the run is closed, through all its generations.
    pub async fn wait_for_end(&self, key: &RunKey) -> Result<RunView, RuntimeError> {
        let _outcome = self.wait_for_outcome(key).await?;
        self.read_run(key).await
    }

    /// Waits until the run is closed and returns its result, without reading its log.
    pub async fn wait_for_outcome(&self, key: &RunKey) -> Result<Result<Payload, Failure>, RuntimeError> {
        self.watch_outcome(key).outcome().await
    }
}

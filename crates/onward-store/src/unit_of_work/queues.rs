//! Queues that are shared out: those with settings, and those in which tasks with keys wait.
//!
//! [`Grants`] decides; this module asks the store which keys wait, and leases what was granted. The store makes sure that no other
//! claim shares out a queue with settings at the same time, so what is counted here stays true until the leases are written
//! (QL1, QL2).

use onward_core::queue::{Grants, QueueSettings, QueueStarts, Turn, WaitingKey};
use onward_core::{Name, Namespace, RunKey};

use super::Rows;
use super::quotas::Claimed;
use super::tasks::claim_task;
use crate::{Change, ClaimTasks, StoreError};

/// The number of keys that are read at once, and how often that may be repeated in one claim. So a claim that finds nothing ends
/// soon, and the next one continues behind it.
pub const KEYS_MAX: usize = 64;
const PAGES_MAX: usize = 16;

/// A queue that is shared out.
#[derive(Debug, Clone)]
pub struct SharedQueue {
    pub namespace: Namespace,
    pub queue: Option<Name>,
    pub settings: QueueSettings,
}

impl SharedQueue {
    /// Returns what identifies it in the store.
    pub fn name(&self) -> (Namespace, Option<Name>) {
        (self.namespace.clone(), self.queue.clone())
    }

    /// Returns the name of the queue as a column has it.
    pub fn queue_text(&self) -> &str {
        self.queue.as_ref().map_or("", Name::as_str)
    }
}

/// A page of the keys of a queue that have waiting tasks.
#[derive(Debug, Clone)]
pub struct KeyPage {
    /// The first key; the empty text stands for tasks without a key.
    pub from: String,
    /// The page has the first key itself.
    pub has_from: bool,
    /// The keys from this one on are left out; with the flag, only those behind it.
    pub until: Option<(String, bool)>,
    /// Number of waiting tasks of a key beyond which none need be counted.
    pub waiting_max: u32,
}

impl KeyPage {
    /// Returns true if the page has the key.
    pub fn has(&self, key: &str) -> bool {
        let begins = key > self.from.as_str() || self.has_from && key == self.from;
        begins && self.until.as_ref().is_none_or(|(until, with)| key < until.as_str() || *with && key == until)
    }
}

/// Refuses a standalone task if its queue is full (QL7).
pub(super) async fn refuse_full_queue<R: Rows>(rows: &mut R, key: &RunKey, queue: Option<&Name>) -> Result<(), R::Error> {
    let Some(settings) = rows.queue_settings(&key.namespace, queue).await? else { return Ok(()) };
    let (Some(depth_max), Some(own)) = (settings.depth_max, settings.own_depth()) else { return Ok(()) };
    if own == 0 || rows.count_waiting(&key.namespace, queue, own).await? >= own {
        return Err(StoreError::QueueFull { queue: queue.cloned(), depth_max }.into());
    }
    Ok(())
}

/// Leases up to `wanted` tasks of a shared queue.
pub(super) async fn claim_shared<R: Rows>(
    rows: &mut R,
    request: &ClaimTasks,
    shared: &SharedQueue,
    wanted: usize,
    claimed: &mut Claimed,
) -> Result<(), R::Error> {
    let (before, mut turn) = (claimed.len(), rows.turn(shared));
    let (mut grants, mut starts) = begin(rows, shared, wanted).await?;
    let mut is_held_back = (grants.room() as usize) < wanted;
    let mut walk = Walk::new(&turn);
    while grants.room() > 0
        // One more than may be granted, so that a key with more tasks keeps the rest of its turn.
        && let Some(page) = walk.page(grants.room().saturating_add(1))
    {
        let keys = rows.waiting_keys(request, shared, &page).await?;
        let granted = grants.grant(&keys, &mut turn);
        is_held_back |= keys.iter().zip(&granted).any(|(key, granted)| key.waiting > *granted);
        let begun = claim_granted(rows, request, shared, &keys, &granted, claimed).await?;
        grants.give_back(granted.iter().sum::<u32>() - begun.iter().sum::<u32>());
        record_starts(rows, shared, &keys, &begun, starts.as_mut()).await?;
        walk.seen(&keys);
    }
    if claimed.len() == before
        && let Some(last) = walk.cut_at()
    {
        turn = Turn { key: last, left: 0 };
    }
    rows.put_turn(shared, turn);
    if is_held_back && claimed.len() - before < wanted {
        let (namespace, queue) = shared.name();
        rows.set().notify(|_| Change::HeldBack { namespace, queue });
    }
    Ok(())
}

/// Counts what the queue as a whole holds, and reads what began lately if there is a rate.
async fn begin<'s, R: Rows>(
    rows: &mut R,
    shared: &'s SharedQueue,
    wanted: usize,
) -> Result<(Grants<'s>, Option<QueueStarts>), R::Error> {
    let held = match shared.settings.concurrency_max {
        Some(limit) => rows.count_held(shared, limit).await?,
        None => 0,
    };
    let starts = match &shared.settings.rate {
        Some(_) => Some(rows.load_starts(shared).await?.unwrap_or_else(|| new_starts(shared, None))),
        None => None,
    };
    Ok((Grants::new(&shared.settings, held, starts.as_ref(), wanted, rows.set().now), starts))
}

/// Leases the tasks that were granted; returns how many of each key.
async fn claim_granted<R: Rows>(
    rows: &mut R,
    request: &ClaimTasks,
    shared: &SharedQueue,
    keys: &[WaitingKey],
    granted: &[u32],
    claimed: &mut Claimed,
) -> Result<Vec<u32>, R::Error> {
    let mut begun = vec![0; keys.len()];
    let wanted: Vec<(Option<Name>, u32)> =
        keys.iter().zip(granted).filter(|(_, count)| **count > 0).map(|(of, count)| (of.key.clone(), *count)).collect();
    if wanted.is_empty() {
        return Ok(begun);
    }
    for (place, task) in rows.tasks_of_keys(request, shared, &wanted).await? {
        let at = keys.iter().position(|of| of.key == task.options.key);
        if claim_task(rows, request, place, task, claimed).await?
            && let Some(at) = at
        {
            begun[at] += 1;
        }
    }
    rows.save().await?;
    Ok(begun)
}

/// Records the attempts that begin, for rates (QL2).
async fn record_starts<R: Rows>(
    rows: &mut R,
    shared: &SharedQueue,
    keys: &[WaitingKey],
    begun: &[u32],
    starts: Option<&mut QueueStarts>,
) -> Result<(), R::Error> {
    let (now, mut changed) = (rows.set().now, Vec::new());
    if let (Some(rate), Some(starts)) = (&shared.settings.rate, starts) {
        let all = begun.iter().sum();
        if all > 0 {
            starts.add(rate, all, now);
            changed.push(starts.clone());
        }
    }
    if let Some(rate) = &shared.settings.key_rate {
        for (of, begun) in keys.iter().zip(begun).filter(|(of, begun)| of.key.is_some() && **begun > 0) {
            let mut own = of.starts.clone().unwrap_or_else(|| new_starts(shared, of.key.clone()));
            own.add(rate, *begun, now);
            changed.push(own);
        }
    }
    if changed.is_empty() { Ok(()) } else { rows.put_starts(changed).await }
}

fn new_starts(shared: &SharedQueue, key: Option<Name>) -> QueueStarts {
    QueueStarts::new(shared.namespace.clone(), shared.queue.clone(), key)
}

/// One way around the keys of a queue, from the key whose turn it is.
struct Walk {
    /// The rest of the way: the part behind the first key, then the part before it.
    parts: Vec<KeyPage>,
    pages: usize,
    last: Option<String>,
}

impl Walk {
    fn new(turn: &Turn) -> Walk {
        let has_from = turn.left > 0;
        let behind = KeyPage { from: turn.key.clone(), has_from, until: None, waiting_max: 0 };
        let before = KeyPage { from: String::new(), has_from: true, until: Some((turn.key.clone(), !has_from)), waiting_max: 0 };
        Walk { parts: vec![before, behind], pages: 0, last: None }
    }

    fn page(&mut self, waiting_max: u32) -> Option<KeyPage> {
        let page = self.parts.last().filter(|_| self.pages < PAGES_MAX)?;
        self.pages += 1;
        Some(KeyPage { waiting_max, ..page.clone() })
    }

    /// Continues behind the keys of the last page.
    fn seen(&mut self, keys: &[WaitingKey]) {
        let Some(page) = self.parts.last_mut() else { return };
        match keys.last() {
            Some(last) if keys.len() >= KEYS_MAX => {
                page.from = last.key.as_ref().map_or("", Name::as_str).to_owned();
                page.has_from = false;
                self.last = Some(page.from.clone());
            }
            _ => drop(self.parts.pop()),
        }
    }

    /// Returns the last key that was read, if others were not.
    fn cut_at(self) -> Option<String> {
        self.last.filter(|_| !self.parts.is_empty())
    }
}

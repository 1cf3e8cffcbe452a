//! Settings of queues: stored among the kinds, enforced by the stores.

use std::collections::BTreeSet;

use onward_core::api::{PutQueueRequest, QueueLimits, QueueView, ReadQueueRequest};
use onward_core::queue::load::KeyView;
use onward_core::queue::settings::{settings_queue, settings_row};
use onward_core::queue::{Hold, QueueSettings};
use onward_core::task::{Task, TaskCount};
use onward_core::time::millis;
use onward_core::{KindSchemas, Name, Namespace, Timestamp};
use onward_store::{Registration, StoreError};

use crate::{Runtime, RuntimeError};

/// The number of keys in the view of a queue.
const KEYS_MAX: usize = 1_000;

/// The number of keys among which those are counted that a limit holds back.
const COUNTED_MAX: usize = 10_000;

/// The number of keys among which one is searched, and up to which pages go.
const SEARCHED_MAX: usize = 100_000;

impl Runtime {
    /// Replaces the settings of a queue; they apply to the next claim of every server. Returns the queue. If the request has the
    /// settings that it replaces, they are compared first; two servers that do so at the same moment may both store theirs.
    ///
    /// # Errors
    /// `queue_invalid`, `queue_changed`.
    pub async fn put_queue(&self, request: PutQueueRequest) -> Result<QueueView, RuntimeError> {
        let PutQueueRequest { namespace, queue, settings, replaces } = request;
        if let Some(why) = settings.problem() {
            return Err(RuntimeError::QueueInvalid { why });
        }
        let settings = QueueSettings { part: None, ..settings };
        {
            let _changing = self.shared.queue_settings.lock().await;
            if let Some(replaces) = replaces
                && self.queue_settings(&namespace, queue.as_ref()).await?.unwrap_or_default() != replaces
            {
                return Err(RuntimeError::QueueChanged { queue });
            }
            self.store_queue(&namespace, queue.as_ref(), Some(settings)).await?;
        }
        self.read_queue(ReadQueueRequest { namespace, queue, limit: 0, cursor: None, key: None }).await
    }

    /// Removes the settings of a queue, and with them its limits.
    pub async fn delete_queue(&self, namespace: &Namespace, queue: Option<&Name>) -> Result<(), RuntimeError> {
        self.store_queue(namespace, queue, None).await
    }

    async fn store_queue(
        &self,
        namespace: &Namespace,
        queue: Option<&Name>,
        settings: Option<QueueSettings>,
    ) -> Result<(), RuntimeError> {
        let row = settings_row(namespace.clone(), queue, settings)?;
        self.store().register_kinds(vec![row], Registration::Always).await?;
        self.kinds_changed(namespace);
        // A limit may have been raised. Workers of other servers claim after a second at the latest.
        self.hub().workers.wake(Some(namespace));
        Ok(())
    }

    /// Lists the queues with settings, and which of their keys wait; the default queue first, then by name.
    pub async fn list_queue_settings(&self, namespace: &Namespace) -> Result<Vec<QueueLimits>, RuntimeError> {
        let (mut found, now) = (self.stored_queues(namespace).await?, self.clock().now());
        found.sort_by(|a, b| a.queue.cmp(&b.queue));
        for of in &mut found {
            let keys = self.queue_keys(namespace, of.queue.as_ref(), &of.settings, (KEYS_MAX, now)).await?;
            (of.throttled_keys, of.oldest_key) = (throttled(&keys).count() as u64, oldest(&keys));
        }
        Ok(found)
    }

    /// Returns the stored settings of queues, without their keys.
    async fn stored_queues(&self, namespace: &Namespace) -> Result<Vec<QueueLimits>, RuntimeError> {
        let stored = self.store().list_kinds(namespace.clone()).await?;
        Ok(stored.into_iter().filter_map(limits).collect())
    }

    async fn queue_settings(&self, namespace: &Namespace, queue: Option<&Name>) -> Result<Option<QueueSettings>, RuntimeError> {
        let all = self.stored_queues(namespace).await?;
        Ok(all.into_iter().find(|of| of.queue.as_ref() == queue).map(|of| of.settings))
    }

    /// Reads a queue as a whole, with a page of its keys.
    pub async fn read_queue(&self, request: ReadQueueRequest) -> Result<QueueView, RuntimeError> {
        let ReadQueueRequest { namespace, queue, limit, cursor, key } = request;
        let settings = self.queue_settings(&namespace, queue.as_ref()).await?;
        let limits = settings.clone().unwrap_or_default();
        let now = self.clock().now();
        let used = self.store().read_queue_use(namespace.clone(), queue.clone(), Vec::new()).await?;
        let (hold, rate_used) = (used.hold(&limits, now), used.rate_used(&limits, now));
        let page = KeyPage::new(limit, cursor, key)?;
        let keys = self.queue_keys(&namespace, queue.as_ref(), &limits, (page.read_max(&limits), now)).await?;
        let counted = &keys[..keys.len().min(COUNTED_MAX)];
        let throttled_keys = throttled(counted).count() as u64;
        let held_back = throttled(counted).map(|key| key.waiting).sum();
        let oldest_key = oldest(&keys);
        let (keys, next) = page.of(keys);
        let (held_back_by, opens_at) = (hold.map(|hold| hold.by), hold.and_then(|hold| hold.until));
        let counts = self.store().count_tasks(namespace).await?;
        let counts: Vec<TaskCount> = counts.into_iter().filter(|count| count.queue == queue).collect();
        let queued = counts.iter().map(|count| count.queued).sum();
        let oldest_at = counts.iter().filter_map(|count| count.oldest_at).min();
        Ok(QueueView {
            queue,
            settings,
            queued,
            running: counts.iter().map(|count| count.running).sum(),
            quarantined: counts.iter().map(|count| count.quarantined).sum(),
            oldest_at,
            oldest_age_ms: oldest_at.map(|at| millis(now.since(at))),
            oldest_key,
            throttled_keys,
            keys,
            next,
            held_back_by,
            opens_at,
            rate_used,
            held_back: if hold.is_some() { queued } else { held_back },
        })
    }

    /// Counts the keys of a queue whose limits hold their tasks back, for metrics; among the 1,000 with the longest wait.
    pub async fn count_throttled_keys(
        &self,
        namespace: &Namespace,
        queue: Option<&Name>,
        settings: &QueueSettings,
    ) -> Result<u64, RuntimeError> {
        let now = self.clock().now();
        Ok(throttled(&self.queue_keys(namespace, queue, settings, (KEYS_MAX, now)).await?).count() as u64)
    }

    /// Returns up to a number of keys with open tasks: those with the longest wait first.
    async fn queue_keys(
        &self,
        namespace: &Namespace,
        queue: Option<&Name>,
        settings: &QueueSettings,
        (limit, now): (usize, Timestamp),
    ) -> Result<Vec<KeyView>, RuntimeError> {
        let loads = self.store().list_queue_keys(namespace.clone(), queue.cloned(), limit).await?;
        Ok(loads.into_iter().map(|load| load.view(settings, now)).collect())
    }

    /// Returns for each of these tasks of a namespace the limit of its queue or key that holds it back, in their order; nothing
    /// for tasks that do not wait for a claim.
    pub async fn holds_of(&self, namespace: &Namespace, tasks: &[&Task]) -> Result<Vec<Option<Hold>>, RuntimeError> {
        let now = self.clock().now();
        let waits = |task: &&&Task| task.may_be_claimed(now);
        let mut found = vec![None; tasks.len()];
        if !tasks.iter().any(|task| waits(&task)) {
            return Ok(found);
        }
        for QueueLimits { queue, settings, .. } in self.stored_queues(namespace).await? {
            let of_queue = |task: &&&Task| waits(task) && task.options.queue == queue;
            let keys: BTreeSet<Name> = tasks.iter().filter(of_queue).filter_map(|task| task.options.key.clone()).collect();
            if keys.is_empty() && !tasks.iter().any(|task| of_queue(&task)) {
                continue;
            }
            let used = self.store().read_queue_use(namespace.clone(), queue.clone(), keys.into_iter().collect()).await?;
            for (hold, task) in found.iter_mut().zip(tasks).filter(|(_, task)| of_queue(task)) {
                *hold = used.hold_of(&task.options, &settings, now);
            }
        }
        Ok(found)
    }
}

fn throttled(keys: &[KeyView]) -> impl Iterator<Item = &KeyView> {
    keys.iter().filter(|key| key.held_back_by.is_some())
}

/// Returns the key that has waited longest, of keys in the order of their waits.
fn oldest(keys: &[KeyView]) -> Option<KeyView> {
    keys.first().filter(|key| key.waiting > 0).cloned()
}

/// A page of the keys of a queue. Keys come and go, so a cursor is a position.
struct KeyPage {
    limit: usize,
    from: usize,
    key: Option<String>,
}

impl KeyPage {
    fn new(limit: usize, cursor: Option<String>, key: Option<String>) -> Result<KeyPage, RuntimeError> {
        let position = |cursor: String| match cursor.parse() {
            Ok(from) if from < SEARCHED_MAX => Ok(from),
            _ => Err(RuntimeError::Store(StoreError::CursorInvalid { cursor })),
        };
        let from = cursor.map_or(Ok(0), position)?;
        Ok(KeyPage {
            limit: if limit == 0 { KEYS_MAX } else { limit.min(KEYS_MAX) },
            from,
            key: key.filter(|key| !key.is_empty()),
        })
    }

    /// Returns the number of keys that are read: one more than the page has, so that the next page is known, and more if keys are
    /// searched or counted.
    fn read_max(&self, limits: &QueueSettings) -> usize {
        let is_counted = limits.key_concurrency_max.is_some() || limits.key_rate.is_some();
        match self.key {
            Some(_) => SEARCHED_MAX,
            None => (self.from + self.limit + 1).max(if is_counted { COUNTED_MAX } else { 0 }),
        }
    }

    /// Returns the page and the cursor of the next one.
    fn of(&self, mut keys: Vec<KeyView>) -> (Vec<KeyView>, Option<String>) {
        if let Some(text) = &self.key {
            keys.retain(|of| of.key.as_ref().is_some_and(|key| key.as_str().starts_with(text.as_str())));
        }
        let until = self.from + self.limit;
        let next = (keys.len() > until).then(|| until.to_string());
        (keys.into_iter().skip(self.from).take(self.limit).collect(), next)
    }
}

/// Reads the settings of a queue in a row of the table of kinds, if it has any.
fn limits(row: KindSchemas) -> Option<QueueLimits> {
    let (queue, settings, stored_at) = (settings_queue(&row.kind)?, *row.queue?, row.registered_at);
    let settings = QueueSettings { part: None, ..settings };
    Some(QueueLimits { queue, settings, stored_at, throttled_keys: 0, oldest_key: None })
}

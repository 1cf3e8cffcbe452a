//! Settings of queues: stored among the kinds, enforced by the stores.

use onward_core::api::{PutQueueRequest, QueueLimits, QueueView};
use onward_core::queue::QueueSettings;
use onward_core::queue::load::KeyView;
use onward_core::queue::settings::{settings_queue, settings_row};
use onward_core::task::TaskCount;
use onward_core::time::millis;
use onward_core::{KindSchemas, Name, Namespace};
use onward_store::Registration;

use crate::{Runtime, RuntimeError};

/// The number of keys in the view of a queue.
const KEYS_MAX: usize = 1_000;

impl Runtime {
    /// Replaces the settings of a queue; they apply to the next claim of every server. Returns the queue.
    ///
    /// # Errors
    /// `queue_invalid`.
    pub async fn put_queue(&self, request: PutQueueRequest) -> Result<QueueView, RuntimeError> {
        let PutQueueRequest { namespace, queue, settings } = request;
        if let Some(why) = settings.problem() {
            return Err(RuntimeError::QueueInvalid { why });
        }
        let settings = QueueSettings { part: None, ..settings };
        self.store_queue(&namespace, queue.as_ref(), Some(settings)).await?;
        self.read_queue(&namespace, queue).await
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
        let stored = self.store().list_kinds(namespace.clone()).await?;
        let mut found: Vec<QueueLimits> = stored.into_iter().filter_map(limits).collect();
        found.sort_by(|a, b| a.queue.cmp(&b.queue));
        for of in &mut found {
            let keys = self.queue_keys(namespace, of.queue.as_ref(), &of.settings).await?;
            (of.throttled_keys, of.oldest_key) = (throttled(&keys), oldest(&keys));
        }
        Ok(found)
    }

    /// Reads a queue as a whole, with its keys.
    pub async fn read_queue(&self, namespace: &Namespace, queue: Option<Name>) -> Result<QueueView, RuntimeError> {
        let stored = self.store().list_kinds(namespace.clone()).await?;
        let settings = stored.into_iter().filter_map(limits).find(|of| of.queue == queue).map(|of| of.settings);
        let keys = self.queue_keys(namespace, queue.as_ref(), &settings.clone().unwrap_or_default()).await?;
        let counts = self.store().count_tasks(namespace.clone()).await?;
        let counts: Vec<TaskCount> = counts.into_iter().filter(|count| count.queue == queue).collect();
        let (oldest_at, now) = (counts.iter().filter_map(|count| count.oldest_at).min(), self.clock().now());
        Ok(QueueView {
            queue,
            settings,
            queued: counts.iter().map(|count| count.queued).sum(),
            running: counts.iter().map(|count| count.running).sum(),
            quarantined: counts.iter().map(|count| count.quarantined).sum(),
            oldest_at,
            oldest_age_ms: oldest_at.map(|at| millis(now.since(at))),
            oldest_key: oldest(&keys),
            throttled_keys: throttled(&keys),
            keys,
        })
    }

    /// Counts the keys of a queue whose limits hold their tasks back, for metrics; among the 1,000 with the longest wait.
    pub async fn count_throttled_keys(
        &self,
        namespace: &Namespace,
        queue: Option<&Name>,
        settings: &QueueSettings,
    ) -> Result<u64, RuntimeError> {
        Ok(throttled(&self.queue_keys(namespace, queue, settings).await?))
    }

    /// Returns the keys with open tasks: those with the longest wait first.
    async fn queue_keys(
        &self,
        namespace: &Namespace,
        queue: Option<&Name>,
        settings: &QueueSettings,
    ) -> Result<Vec<KeyView>, RuntimeError> {
        let loads = self.store().list_queue_keys(namespace.clone(), queue.cloned(), KEYS_MAX).await?;
        let now = self.clock().now();
        Ok(loads.into_iter().map(|load| load.view(settings, now)).collect())
    }
}

fn throttled(keys: &[KeyView]) -> u64 {
    keys.iter().filter(|key| key.held_back_by.is_some()).count() as u64
}

/// Returns the key that has waited longest, of keys in the order of their waits.
fn oldest(keys: &[KeyView]) -> Option<KeyView> {
    keys.first().filter(|key| key.waiting > 0).cloned()
}

/// Reads the settings of a queue in a row of the table of kinds, if it has any.
fn limits(row: KindSchemas) -> Option<QueueLimits> {
    let (queue, settings, stored_at) = (settings_queue(&row.kind)?, *row.queue?, row.registered_at);
    let settings = QueueSettings { part: None, ..settings };
    Some(QueueLimits { queue, settings, stored_at, throttled_keys: 0, oldest_key: None })
}

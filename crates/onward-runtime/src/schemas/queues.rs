//! Settings of queues: stored among the kinds, enforced by the stores.

use onward_core::api::{PutQueueRequest, QueueLimits, QueueView};
use onward_core::queue::QueueSettings;
use onward_core::queue::load::KeyView;
use onward_core::queue::settings::{settings_queue, settings_row};
use onward_core::quota::QUOTA_KIND;
use onward_core::{KindSchemas, Name, Namespace};

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
        if queue.as_ref().is_some_and(|queue| *queue == *QUOTA_KIND) {
            // Starts of the namespace are counted under this name.
            return Err(RuntimeError::QueueInvalid { why: format!("a queue called `{QUOTA_KIND}` has no settings") });
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
        self.store().register_kinds(vec![row]).await?;
        self.kinds_changed(namespace);
        // A limit may have been raised. Workers of other servers claim after a second at the latest.
        self.hub().workers.wake(Some(namespace));
        Ok(())
    }

    /// Lists the settings of all queues; the default queue first, then by name.
    pub async fn list_queue_settings(&self, namespace: &Namespace) -> Result<Vec<QueueLimits>, RuntimeError> {
        let stored = self.store().list_kinds(namespace.clone()).await?;
        let mut found: Vec<QueueLimits> = stored.into_iter().filter_map(limits).collect();
        found.sort_by(|a, b| a.queue.cmp(&b.queue));
        Ok(found)
    }

    /// Reads a queue as a whole, with its keys.
    pub async fn read_queue(&self, namespace: &Namespace, queue: Option<Name>) -> Result<QueueView, RuntimeError> {
        let settings = self.list_queue_settings(namespace).await?.into_iter().find(|of| of.queue == queue);
        let settings = settings.map(|of| of.settings);
        let limits = settings.clone().unwrap_or_default();
        let now = self.clock().now();
        let loads = self.store().list_queue_keys(namespace.clone(), queue.clone(), KEYS_MAX).await?;
        let keys: Vec<KeyView> = loads.into_iter().map(|load| load.view(&limits, now)).collect();
        let throttled_keys = keys.iter().filter(|key| key.held_back_by.is_some()).count() as u64;
        let (queued, running, quarantined, oldest_at) = (0, 0, 0, None);
        let mut view = QueueView { queue, settings, queued, running, quarantined, oldest_at, throttled_keys, keys };
        for count in self.store().count_tasks(namespace.clone()).await?.into_iter().filter(|count| count.queue == view.queue) {
            view.queued += count.queued;
            view.running += count.running;
            view.quarantined += count.quarantined;
            view.oldest_at = [view.oldest_at, count.oldest_at].into_iter().flatten().min();
        }
        Ok(view)
    }
}

/// Reads the settings of a queue in a row of the table of kinds, if it has any.
fn limits(row: KindSchemas) -> Option<QueueLimits> {
    let (queue, settings, stored_at) = (settings_queue(&row.kind)?, *row.queue?, row.registered_at);
    Some(QueueLimits { queue, settings: QueueSettings { part: None, ..settings }, stored_at })
}

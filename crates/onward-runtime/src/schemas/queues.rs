//! Settings of queues: stored among the kinds, enforced by the stores.

use onward_core::api::{PutQueueRequest, QueueLimits, QueueView, QueuedRuns};
use onward_core::queue::QueueSettings;
use onward_core::queue::load::KeyView;
use onward_core::queue::settings::{settings_queue, settings_row};
use onward_core::run::run_queue::stored_queue;
use onward_core::{KindSchemas, Name, Namespace};

use crate::schemas::run_queues::check_queue_name;
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
        check_queue_name(queue.as_ref())?;
        if let Some(why) = settings.problem() {
            return Err(RuntimeError::QueueInvalid { why });
        }
        let settings = QueueSettings { part: None, ..settings };
        self.store_queue(&namespace, queue.as_ref(), Some(settings)).await?;
        self.read_queue(&namespace, queue).await
    }

    /// Removes the settings of a queue, and with them its limits.
    pub async fn delete_queue(&self, namespace: &Namespace, queue: Option<&Name>) -> Result<(), RuntimeError> {
        check_queue_name(queue)?;
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
        self.hub().alarm.due_at(self.clock().now());
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
        check_queue_name(queue.as_ref())?;
        let settings = self.list_queue_settings(namespace).await?.into_iter().find(|of| of.queue == queue);
        let settings = settings.map(|of| of.settings);
        let limits = settings.clone().unwrap_or_default();
        let now = self.clock().now();
        let loads = self.store().list_queue_keys(namespace.clone(), queue.clone(), KEYS_MAX).await?;
        let keys: Vec<KeyView> = loads.into_iter().map(|load| load.view(&limits, now)).collect();
        let throttled_keys = keys.iter().filter(|key| key.held_back_by.is_some()).count() as u64;
        let (queued, running, quarantined, oldest_at) = (0, 0, 0, None);
        let runs_of = stored_queue(queue.as_ref());
        let loads = self.store().list_queue_keys(namespace.clone(), runs_of.clone(), KEYS_MAX).await?;
        let run_keys: Vec<KeyView> = loads.into_iter().map(|load| load.view(&limits, now)).collect();
        let runs = QueuedRuns::default();
        let mut view =
            QueueView { queue, settings, queued, running, quarantined, oldest_at, throttled_keys, keys, runs, run_keys };
        for count in self.store().count_tasks(namespace.clone()).await? {
            if count.queue == runs_of {
                view.runs.add(&count);
            }
            if count.queue != view.queue {
                continue;
            }
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

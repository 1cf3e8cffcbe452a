//! Lists of the workers that have joined this runtime, and of the queues they serve.

use std::collections::BTreeMap;

use onward_core::api::VersionedKind;
use onward_core::task::TaskCount;
use onward_core::{Name, Namespace};

use crate::by_run::lock;
use crate::{QueueInfo, Runtime, RuntimeError, WorkerInfo};

/// A worker, with what no API returns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KnownWorker {
    pub info: WorkerInfo,
    /// The rate-limited key of each kind. Servers exchange them.
    pub task_limits: BTreeMap<Name, Name>,
}

impl Runtime {
    /// Lists every queue with tasks or workers, by kind of task; the default queue first, then by name.
    pub async fn list_queues(&self, namespace: &Namespace) -> Result<Vec<QueueInfo>, RuntimeError> {
        let counts = self.store().count_tasks(namespace.clone()).await?;
        let row = |count: TaskCount| ((count.queue.clone(), count.kind.clone()), QueueInfo { count, workers: 0 });
        let mut found: BTreeMap<(Option<Name>, Name), QueueInfo> = counts.into_iter().map(row).collect();
        for worker in self.list_workers(namespace).into_iter().chain(self.workers_elsewhere(namespace).await?) {
            let works =
                worker.queues.iter().flat_map(|queue| worker.task_kinds.iter().map(move |kind| (queue.clone(), kind.clone())));
            for (queue, kind) in works {
                let empty = TaskCount {
                    queue: queue.clone(),
                    kind: kind.clone(),
                    queued: 0,
                    running: 0,
                    quarantined: 0,
                    oldest_at: None,
                };
                found.entry((queue, kind)).or_insert(QueueInfo { count: empty, workers: 0 }).workers += 1;
            }
        }
        Ok(found.into_values().collect())
    }

    /// Lists the workers of one namespace that have joined this runtime, ordered by id.
    pub fn list_workers(&self, namespace: &Namespace) -> Vec<WorkerInfo> {
        self.known_workers(namespace).into_iter().map(|worker| worker.info).collect()
    }

    pub(crate) fn known_workers(&self, namespace: &Namespace) -> Vec<KnownWorker> {
        self.workers_of_all().into_iter().filter(|(of, _)| of == namespace).map(|(_, worker)| worker).collect()
    }

    /// Lists the workers of all namespaces, ordered by id.
    pub(crate) fn workers_of_all(&self) -> Vec<(Namespace, KnownWorker)> {
        let workers = self.hub().workers.list();
        let mut found: Vec<(Namespace, KnownWorker)> = workers
            .iter()
            .map(|worker| {
                let profile = &worker.profile;
                let kinds = profile.knows.iter();
                let kinds = kinds.flat_map(|(kind, versions)| {
                    versions.iter().map(|version| VersionedKind { kind: kind.clone(), version: version.clone() })
                });
                let info = WorkerInfo {
                    id: profile.id.clone(),
                    kinds: kinds.collect(),
                    task_kinds: profile.task_kinds.to_vec(),
                    queues: profile.queues.clone(),
                    runs: worker.seats_taken() as u64,
                    runs_max: profile.runs_max as u64,
                    heard_at: worker.heard_at.as_ref().map(|heard_at| *lock(heard_at)),
                };
                (profile.namespace.clone(), KnownWorker { info, task_limits: (*profile.task_limits).clone() })
            })
            .collect();
        found.sort_by(|(_, one), (_, other)| one.info.id.cmp(&other.info.id));
        found
    }
}

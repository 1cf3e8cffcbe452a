//! Lists of the workers that have joined this runtime, and of the queues they serve.

use std::collections::BTreeMap;

use onward_core::task::TaskCount;
use onward_core::{Name, Namespace, Timestamp, WorkerId};

use crate::by_run::lock;
use crate::{Runtime, RuntimeError};

/// A worker and the kinds that it has code for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerInfo {
    pub id: WorkerId,
    /// Workflows with their versions; `None` stands for runs without one.
    pub kinds: Vec<(Name, Option<Name>)>,
    pub task_kinds: Vec<Name>,
    /// The rate-limited key of each kind. Servers exchange them; no API returns them.
    pub task_limits: BTreeMap<Name, Name>,
    /// `None` is the default queue.
    pub queues: Vec<Option<Name>>,
    /// Number of runs that it holds, and the maximum.
    pub runs: u64,
    pub runs_max: u64,
    /// Time of the last sign of life of a remote worker.
    pub heard_at: Option<Timestamp>,
}

/// The tasks of a queue, and the number of its workers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueInfo {
    pub count: TaskCount,
    /// Number of workers that take tasks of this kind from this queue.
    pub workers: u64,
}

impl WorkerInfo {
    /// Returns true if the worker has code for runs of this kind and version.
    pub fn knows(&self, kind: &Name, version: Option<&Name>) -> bool {
        self.kinds.iter().any(|(known, known_version)| known == kind && known_version.as_ref() == version)
    }
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
        self.workers_of_all().into_iter().filter(|(of, _)| of == namespace).map(|(_, worker)| worker).collect()
    }

    /// Lists the workers of all namespaces, ordered by id.
    pub(crate) fn workers_of_all(&self) -> Vec<(Namespace, WorkerInfo)> {
        let workers = self.hub().workers.list();
        let mut found: Vec<(Namespace, WorkerInfo)> = workers
            .iter()
            .map(|worker| {
                let profile = &worker.profile;
                let kinds = profile.knows.iter();
                let kinds = kinds.flat_map(|(kind, versions)| versions.iter().map(|version| (kind.clone(), version.clone())));
                let info = WorkerInfo {
                    id: profile.id.clone(),
                    kinds: kinds.collect(),
                    task_kinds: profile.task_kinds.to_vec(),
                    task_limits: (*profile.task_limits).clone(),
                    queues: profile.queues.clone(),
                    runs: worker.seats_taken() as u64,
                    runs_max: profile.runs_max as u64,
                    heard_at: worker.heard_at.as_ref().map(|heard_at| *lock(heard_at)),
                };
                (profile.namespace.clone(), info)
            })
            .collect();
        found.sort_by(|(_, one), (_, other)| one.id.cmp(&other.id));
        found
    }
}

//! The workers that have joined this runtime, as others see them.

use onward_core::{Name, Namespace, Timestamp, WorkerId};

use crate::Runtime;
use crate::by_run::lock;

/// A worker and what it has code for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerInfo {
    pub id: WorkerId,
    /// Workflows with their versions; `None` stands for runs without one.
    pub kinds: Vec<(Name, Option<Name>)>,
    pub task_kinds: Vec<Name>,
    /// `None` is the default queue.
    pub queues: Vec<Option<Name>>,
    /// How many runs it holds, and how many it takes.
    pub runs: u64,
    pub runs_max: u64,
    /// When it was last heard of, where it is in another process.
    pub heard_at: Option<Timestamp>,
}

impl WorkerInfo {
    /// Whether it has code for runs of this kind and version.
    pub fn knows(&self, kind: &Name, version: Option<&Name>) -> bool {
        self.kinds.iter().any(|(known, known_version)| known == kind && known_version.as_ref() == version)
    }
}

impl Runtime {
    /// The workers of one namespace, in the order of their ids.
    pub fn list_workers(&self, namespace: &Namespace) -> Vec<WorkerInfo> {
        let workers = self.hub().workers.list();
        let mut found: Vec<WorkerInfo> = workers
            .iter()
            .filter(|worker| worker.profile.namespace == *namespace)
            .map(|worker| WorkerInfo {
                id: worker.profile.id.clone(),
                kinds: worker
                    .profile
                    .knows
                    .iter()
                    .flat_map(|(kind, versions)| versions.iter().map(|version| (kind.clone(), version.clone())))
                    .collect(),
                task_kinds: worker.profile.task_kinds.to_vec(),
                queues: worker.profile.queues.clone(),
                runs: worker.seats_taken() as u64,
                runs_max: worker.profile.runs_max as u64,
                heard_at: worker.heard_at.as_ref().map(|heard_at| *lock(heard_at)),
            })
            .collect();
        found.sort_by(|one, other| one.id.cmp(&other.id));
        found
    }
}

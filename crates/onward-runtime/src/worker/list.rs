//! Lists of workers and of the queues they serve, at this server and at the others on the same store.
//!
//! Each server publishes its workers with its membership, and any server can read all of them (ADR 0015). The list is for
//! people and slightly out of date: no decision depends on it, and a worker that is missing in it gets work like any other.

use std::collections::BTreeMap;

use onward_core::api::{QueuedRuns, RunsOfQueue, VersionedKind};
use onward_core::codec::Message;
use onward_core::queue::settings::DEFAULT_QUEUE;
use onward_core::run::run_queue::{SLOT_KIND, queue_of_runs};
use onward_core::task::TaskCount;
use onward_core::{Name, Namespace, Timestamp, WorkerId, message};
use onward_store::sync::lock;

use crate::{QueueInfo, Runtime, RuntimeError, WorkerInfo};

/// A worker, with what no API returns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KnownWorker {
    pub info: WorkerInfo,
    /// The rate-limited key of each kind. Servers exchange them.
    pub task_limits: BTreeMap<Name, Name>,
}

message! {
    /// The workers of one server, grouped by code, because the workers of a fleet run the same code.
    struct ClusterWorkers {
        1 => groups: Vec<Group>,
    }
}

message! {
    /// Workers of one namespace with the same code.
    struct Group {
        1 => namespace: Namespace,
        2 => kinds: Vec<VersionedKind>,
        3 => task_kinds: Vec<Name>,
        4 => queues: Vec<Option<Name>>,
        6 => members: Vec<Member>,
        7 => task_limits: Vec<TaskLimit>,
    }
}

message! {
    struct TaskLimit {
        1 => kind: Name,
        2 => limit: Name,
    }
}

message! {
    struct Member {
        /// The name that the worker chose, and the id that the store uses.
        1 => name: WorkerId,
        2 => id: WorkerId,
        3 => runs: u64,
        4 => runs_max: u64,
        5 => last_seen_at: Option<Timestamp>,
    }
}

impl Group {
    fn of(namespace: &Namespace, worker: &KnownWorker) -> Group {
        let info = &worker.info;
        let limit = |(kind, limit): (&Name, &Name)| TaskLimit { kind: kind.clone(), limit: limit.clone() };
        Group {
            namespace: namespace.clone(),
            kinds: info.kinds.clone(),
            task_kinds: info.task_kinds.clone(),
            queues: info.queues.clone(),
            members: Vec::new(),
            task_limits: worker.task_limits.iter().map(limit).collect(),
        }
    }

    fn worker(&self, member: Member) -> KnownWorker {
        let info = WorkerInfo {
            id: member.name,
            kinds: self.kinds.clone(),
            task_kinds: self.task_kinds.clone(),
            queues: self.queues.clone(),
            runs: member.runs,
            runs_max: member.runs_max,
            last_seen_at: member.last_seen_at,
        };
        KnownWorker { info, task_limits: self.task_limits.iter().map(|key| (key.kind.clone(), key.limit.clone())).collect() }
    }
}

/// Returns the runs of a queue from the count of their places.
fn runs_of(count: &TaskCount) -> Option<RunsOfQueue> {
    let queue = Name::new(queue_of_runs(count.queue.as_ref()?)?).ok().filter(|queue| *queue != *DEFAULT_QUEUE);
    let mut runs = QueuedRuns::default();
    runs.add(count);
    Some(RunsOfQueue { queue, runs })
}

/// The published list of a server's workers, with a part to compare.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WorkerAnnouncement {
    pub bytes: Vec<u8>,
    /// The same without the fields that change all the time; publish at once when it changes.
    pub who: Vec<u8>,
}

impl Runtime {
    /// Lists every queue with tasks or workers, by kind of task, and every queue with runs; the default queue first, then by name.
    pub async fn list_queues(&self, namespace: &Namespace) -> Result<(Vec<QueueInfo>, Vec<RunsOfQueue>), RuntimeError> {
        let counts = self.store().count_tasks(namespace.clone()).await?;
        let (places, counts): (Vec<TaskCount>, Vec<TaskCount>) = counts.into_iter().partition(|count| count.kind == *SLOT_KIND);
        let mut runs: Vec<RunsOfQueue> = places.iter().filter_map(runs_of).collect();
        runs.sort_by(|a, b| a.queue.cmp(&b.queue));
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
        Ok((found.into_values().collect(), runs))
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
                    runs: worker.permits_taken() as u64,
                    runs_max: profile.runs_max as u64,
                    last_seen_at: worker.last_seen_at.as_ref().map(|last_seen_at| *lock(last_seen_at)),
                };
                (profile.namespace.clone(), KnownWorker { info, task_limits: (*profile.task_limits).clone() })
            })
            .collect();
        found.sort_by(|(_, one), (_, other)| one.info.id.cmp(&other.info.id));
        found
    }

    /// Encodes the list of this server's workers. `name_of` maps the store's id of a worker to the name that people know.
    pub fn worker_announcement(&self, name_of: impl Fn(&WorkerId) -> Option<WorkerId>) -> WorkerAnnouncement {
        let mut groups: BTreeMap<Vec<u8>, Group> = BTreeMap::new();
        for (namespace, worker) in self.workers_of_all() {
            let group = Group::of(&namespace, &worker);
            let name = name_of(&worker.info.id).unwrap_or_else(|| worker.info.id.clone());
            let WorkerInfo { id, runs, runs_max, last_seen_at, .. } = worker.info;
            let member = Member { name, id, runs, runs_max, last_seen_at };
            groups.entry(group.to_bytes()).or_insert(group).members.push(member);
        }
        let mut workers = ClusterWorkers { groups: groups.into_values().collect() };
        let bytes = workers.to_bytes();
        for member in workers.groups.iter_mut().flat_map(|group| &mut group.members) {
            (member.runs, member.last_seen_at) = (0, None);
        }
        WorkerAnnouncement { bytes, who: workers.to_bytes() }
    }

    /// Lists the workers of a namespace at the other servers, by the names that they chose. Empty if the store is not shared.
    pub async fn workers_elsewhere(&self, namespace: &Namespace) -> Result<Vec<WorkerInfo>, RuntimeError> {
        Ok(self.known_elsewhere(namespace).await?.into_iter().map(|worker| worker.info).collect())
    }

    pub(crate) async fn known_elsewhere(&self, namespace: &Namespace) -> Result<Vec<KnownWorker>, RuntimeError> {
        let workers = self.known_elsewhere_of_all().await?.into_iter();
        Ok(workers.filter(|(of, _)| of == namespace).map(|(_, worker)| worker).collect())
    }

    /// Lists the workers of all namespaces at the other servers.
    pub(crate) async fn known_elsewhere_of_all(&self) -> Result<Vec<(Namespace, KnownWorker)>, RuntimeError> {
        if !self.store().is_shared() {
            return Ok(Vec::new());
        }
        let here: Vec<WorkerId> = self.workers_of_all().into_iter().map(|(_, worker)| worker.info.id).collect();
        let mut found = Vec::new();
        for server in self.store().list_servers().await? {
            // A list of an incompatible version is skipped.
            let Ok(workers) = ClusterWorkers::decode_fields(&server.workers) else { continue };
            for mut group in workers.groups {
                let members = std::mem::take(&mut group.members);
                let elsewhere = members.into_iter().filter(|member| !here.contains(&member.id));
                found.extend(elsewhere.map(|member| (group.namespace.clone(), group.worker(member))));
            }
        }
        Ok(found)
    }
}

//! The workers of other servers on the same store.
//!
//! Each server publishes its workers with its membership, and any server can read all of them (ADR 0015). The list is for
//! people and slightly out of date: no decision depends on it, and a worker that is missing in it gets work like any other.

use std::collections::BTreeMap;

use onward_core::api::VersionedKind;
use onward_core::codec::Message;
use onward_core::{Name, Namespace, RunHead, Timestamp, WorkerId, message};

use crate::worker::list::KnownWorker;
use crate::{PendingReason, Runtime, RuntimeError, WorkerInfo};

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
        5 => heard_at: Option<Timestamp>,
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
            heard_at: member.heard_at,
        };
        KnownWorker { info, task_limits: self.task_limits.iter().map(|key| (key.kind.clone(), key.limit.clone())).collect() }
    }
}

/// The published list of a server's workers, with a part to compare.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WorkerAnnouncement {
    pub bytes: Vec<u8>,
    /// The same without the fields that change all the time; publish at once when it changes.
    pub who: Vec<u8>,
}

impl Runtime {
    /// Encodes the list of this server's workers. `name_of` maps the store's id of a worker to the name that people know.
    pub fn say_workers(&self, name_of: impl Fn(&WorkerId) -> Option<WorkerId>) -> WorkerAnnouncement {
        let mut groups: BTreeMap<Vec<u8>, Group> = BTreeMap::new();
        for (namespace, worker) in self.workers_of_all() {
            let group = Group::of(&namespace, &worker);
            let name = name_of(&worker.info.id).unwrap_or_else(|| worker.info.id.clone());
            let WorkerInfo { id, runs, runs_max, heard_at, .. } = worker.info;
            let member = Member { name, id, runs, runs_max, heard_at };
            groups.entry(group.to_bytes()).or_insert(group).members.push(member);
        }
        let mut roster = ClusterWorkers { groups: groups.into_values().collect() };
        let bytes = roster.to_bytes();
        for member in roster.groups.iter_mut().flat_map(|group| &mut group.members) {
            (member.runs, member.heard_at) = (0, None);
        }
        WorkerAnnouncement { bytes, who: roster.to_bytes() }
    }

    /// Lists the workers of a namespace at the other servers, by the names that they chose. Empty if the store is not shared.
    pub async fn workers_elsewhere(&self, namespace: &Namespace) -> Result<Vec<WorkerInfo>, RuntimeError> {
        Ok(self.known_elsewhere(namespace).await?.into_iter().map(|worker| worker.info).collect())
    }

    pub(crate) async fn known_elsewhere(&self, namespace: &Namespace) -> Result<Vec<KnownWorker>, RuntimeError> {
        if !self.store().is_shared() {
            return Ok(Vec::new());
        }
        let here: Vec<WorkerId> = self.list_workers(namespace).into_iter().map(|worker| worker.id).collect();
        let mut found = Vec::new();
        for server in self.store().list_servers().await? {
            // A list of an incompatible version is skipped.
            let Ok(roster) = ClusterWorkers::decode_fields(&server.roster) else { continue };
            for mut group in roster.groups.into_iter().filter(|group| group.namespace == *namespace) {
                let members = std::mem::take(&mut group.members);
                let elsewhere = members.into_iter().filter(|member| !here.contains(&member.id));
                found.extend(elsewhere.map(|member| group.worker(member)));
            }
        }
        Ok(found)
    }

    /// Returns why a run is pending, judging by the workers of all servers; `None` if it is not pending.
    pub async fn why_pending_anywhere(&self, head: &RunHead) -> Option<PendingReason> {
        let here = self.why_pending(head)?;
        if here == PendingReason::Queued {
            return Some(here);
        }
        // If the other servers cannot be read, only the workers of this one count.
        let elsewhere = self.workers_elsewhere(&head.key.namespace).await.unwrap_or_default();
        let is_known = elsewhere.iter().any(|worker| worker.knows(&head.kind, head.version.as_ref()));
        Some(if is_known { PendingReason::Queued } else { here })
    }
}

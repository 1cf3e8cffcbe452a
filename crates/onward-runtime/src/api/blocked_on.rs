//! Why tasks that a run waits for are not being worked on, for people.
//!
//! Puts together what the store, the workers and the limits know at one moment. Must never decide anything, and never tell of a task that
//! somebody works on or takes at once: what is told is worth looking at.

use onward_core::task::{Task, TaskState};
use onward_core::{Name, RunKey, Timestamp};
use onward_store::TaskQuery;

use crate::{CallId, Runtime, RuntimeError, WorkerInfo};

/// How many tasks of a run are looked at, of those that wait and of those in quarantine.
const LOOKED_AT_MAX: usize = 100;

/// What keeps a task of a run from being worked on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hindrance {
    pub task: CallId,
    pub kind: Name,
    pub why: WhyHindered,
    /// Since when it is in quarantine.
    pub since: Option<Timestamp>,
    /// When it goes on by itself.
    pub until: Option<Timestamp>,
    /// How many workers in a row vanished over it.
    pub lost_workers: u32,
    /// What its last attempt failed with.
    pub failure_code: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhyHindered {
    /// No worker that is known takes tasks of this kind from its queue.
    NoWorker,
    /// The provider that it calls has refused a call with the same key, and wants to be left alone: no worker that has the kind gets it.
    LimitClosed,
    /// It was taken off its queue because worker after worker vanished over it; a person lets it go on.
    Quarantined,
    /// Its last attempt failed, and the pause before the next one is not over.
    Retries,
}

impl WhyHindered {
    const ALL: [WhyHindered; 4] =
        [WhyHindered::NoWorker, WhyHindered::LimitClosed, WhyHindered::Quarantined, WhyHindered::Retries];

    pub fn from_word(word: &str) -> Option<WhyHindered> {
        WhyHindered::ALL.into_iter().find(|why| why.as_str() == word)
    }

    /// Stable word.
    pub fn as_str(self) -> &'static str {
        match self {
            WhyHindered::NoWorker => "no_worker",
            WhyHindered::LimitClosed => "limit_closed",
            WhyHindered::Quarantined => "quarantined",
            WhyHindered::Retries => "retries",
        }
    }
}

impl Hindrance {
    fn of(task: &Task, why: WhyHindered, until: Option<Timestamp>) -> Hindrance {
        Hindrance {
            task: task.id.clone().into(),
            kind: task.kind.clone(),
            why,
            since: task.quarantined_at(),
            until,
            lost_workers: task.lost_workers,
            failure_code: task.last_failure.as_ref().map(|failure| failure.code.clone()),
        }
    }

    /// What to do about it, where somebody has to.
    pub fn hint(&self) -> Option<String> {
        match self.why {
            WhyHindered::NoWorker => Some(format!("start a worker that has `{}`", self.kind)),
            WhyHindered::Quarantined => {
                Some(format!("find out why its workers vanish, then `onward queue retry {}` lets it go on", self.task))
            }
            WhyHindered::LimitClosed | WhyHindered::Retries => None,
        }
    }
}

impl Runtime {
    /// What keeps tasks of the run from being worked on at this moment, as far as all servers on the store can tell; nothing for a run
    /// whose tasks are worked on, and for one that has none. Of very many tasks some are left out.
    pub async fn hindrances(&self, key: &RunKey) -> Result<Vec<Hindrance>, RuntimeError> {
        let head = self.read_head(key).await?;
        if head.status.is_closed() || head.external.is_some() {
            return Ok(Vec::new());
        }
        let quarantined = self.tasks_in(key, TaskState::Quarantined).await?;
        let mut found: Vec<Hindrance> =
            quarantined.iter().map(|task| Hindrance::of(task, WhyHindered::Quarantined, None)).collect();
        let (now, here) = (self.clock().now(), self.list_workers(&key.namespace));
        let mut anywhere = None;
        let queued = self.tasks_in(key, TaskState::Queued).await?;
        for task in queued.iter().filter(|task| task.waits_its_turn()) {
            if task.visible_at > now {
                let failed = task.last_failure.as_ref();
                found.extend(failed.map(|_| Hindrance::of(task, WhyHindered::Retries, Some(task.visible_at))));
                continue;
            }
            if self.hindered(task, &here, now).is_none() {
                continue;
            }
            if anywhere.is_none() {
                // Where the others cannot be asked, what is known here is all that is known.
                let elsewhere = self.workers_elsewhere(&key.namespace).await.unwrap_or_default();
                anywhere = Some(here.iter().cloned().chain(elsewhere).collect::<Vec<_>>());
            }
            found.extend(self.hindered(task, anywhere.as_deref().unwrap_or_default(), now));
        }
        found.sort_by(|one, other| one.task.cmp(&other.task));
        Ok(found)
    }

    async fn tasks_in(&self, key: &RunKey, state: TaskState) -> Result<Vec<Task>, RuntimeError> {
        let (namespace, run) = (key.namespace.clone(), Some(key.clone()));
        let query = TaskQuery { namespace, run, state: Some(state), limit: LOOKED_AT_MAX, gaps: None };
        Ok(self.store().list_tasks(query).await?)
    }

    /// What keeps these workers from taking a task that could be taken now.
    fn hindered(&self, task: &Task, workers: &[WorkerInfo], now: Timestamp) -> Option<Hindrance> {
        let takes = |worker: &&WorkerInfo| worker.task_kinds.contains(&task.kind) && worker.queues.contains(&task.options.queue);
        let closed = |worker: &WorkerInfo| {
            let limit = worker.task_limits.get(&task.kind);
            self.hub().closed.closed_for(&task.id.run.namespace, &task.kind, limit)
        };
        let mut able = workers.iter().filter(takes).map(closed).peekable();
        if able.peek().is_none() {
            return Some(Hindrance::of(task, WhyHindered::NoWorker, None));
        }
        // Open to one of them is open.
        let first = able.collect::<Option<Vec<_>>>()?.into_iter().min()?;
        Some(Hindrance::of(task, WhyHindered::LimitClosed, Some(now.after(first))))
    }
}

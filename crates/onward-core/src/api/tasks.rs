//! Requests and replies about tasks and queues.

use super::QueueLimits;
use crate::task::{Task, TaskCount, TaskId, TaskOptions};
use crate::{Failure, Name, Namespace, Payload, RunHead, RunKey, Timestamp, message, numbered};

message! {
    /// A request to queue a standalone task.
    pub struct StartTaskRequest {
        /// The task's id is that of a run. A repeat with the same id, kind and input is the same task.
        1 => task: RunKey,
        2 => kind: Name,
        3 => input: Payload,
        4 => options: TaskOptions,
        /// Trace context of the caller, as a `traceparent`; by default the header of this name. An invalid value is ignored.
        5 => trace: Option<String>,
    }

    /// The current view of a standalone task.
    pub struct TaskView {
        1 => head: RunHead,
        2 => kind: Name,
        3 => input: Payload,
        4 => options: Box<TaskOptions>,
        5 => state: TaskStatus,
        /// Number of attempts that were started.
        6 => attempts: u32,
        /// Failure of the attempt before the current one.
        7 => last_failure: Option<Failure>,
        /// The latest progress that the worker reported.
        8 => progress: Option<Payload>,
        9 => outcome: Option<Result<Payload, Failure>>,
    }
}

numbered! {
    /// The state of a standalone task.
    pub enum TaskStatus {
        /// Waits for a worker or for its next attempt.
        0 => Queued / "queued",
        1 => Running / "running",
        /// Off its queue because it lost too many workers; an operator decides.
        2 => Quarantined / "quarantined",
        3 => Completed / "completed",
        4 => Failed / "failed",
        5 => Canceled / "canceled",
        6 => Terminated / "terminated",
    }
}

message! {
    pub struct BlockersReply { 1 => blocked_on: Vec<Blocker> }

    /// The reason why a pending run, or a task of a run, is not executed.
    #[derive(Eq)]
    pub struct Blocker {
        /// Absent if the run itself is not executed.
        1 => task: Option<TaskId>,
        /// The kind of the task or run.
        2 => kind: Name,
        3 => why: BlockReason,
        /// When the task was quarantined, or the run paused because it lost its workers.
        4 => since: Option<Timestamp>,
        /// When the task continues without intervention.
        5 => until: Option<Timestamp>,
        /// How many workers in a row were lost during this task, or while they executed the run.
        6 => lost_workers: u32,
        /// Failure code of the last attempt.
        7 => failure_code: Option<String>,
    }
}

impl Blocker {
    /// Returns the public id of the task, `RUN~GENERATION~CALL`.
    pub fn task_ref(&self) -> Option<String> {
        self.task.as_ref().map(|task| format!("{}~{}~{}", task.run.id, task.generation, task.call_id))
    }

    /// Returns what to do about it, if intervention is needed.
    pub fn hint(&self) -> Option<String> {
        match self.why {
            BlockReason::NoWorker => Some(format!("start a worker that has `{}`", self.kind)),
            BlockReason::Quarantined => {
                let task = self.task_ref()?;
                Some(format!("find out why its workers vanish, then run `onward queue retry {task}`"))
            }
            BlockReason::WorkerCrashed => Some("find out why its workers vanish, then resume the run".to_owned()),
            BlockReason::SpendQuota | BlockReason::TaskQuota => {
                Some("ask an administrator of the server to raise the quota; `onward quota show` shows what is used".to_owned())
            }
            BlockReason::RateLimited | BlockReason::Retries | BlockReason::Queued => None,
        }
    }
}

numbered! {
    pub enum BlockReason {
        /// No known worker takes tasks of this kind from its queue, or has code for the kind and version of the run.
        0 => NoWorker / "no_worker",
        /// The provider rate-limited the key that the task uses, for all workers that have the kind.
        1 => RateLimited / "rate_limited",
        /// The task lost too many workers and is off its queue until an operator retries it.
        2 => Quarantined / "quarantined",
        /// The last attempt failed, and the retry delay is not over.
        3 => Retries / "retries",
        /// A worker has the code of the run and claims it when it has a free slot.
        4 => Queued / "queued",
        /// The run lost its workers one after the other and is paused until an operator resumes it.
        5 => WorkerCrashed / "worker_crashed",
        /// The namespace has spent the quota of the day; the task continues on the next UTC day, or when the quota is raised.
        6 => SpendQuota / "spend_quota",
        /// The namespace has as many running tasks as its quota permits.
        7 => TaskQuota / "task_quota",
    }
}

message! {
    pub struct TaskRequest {
        1 => namespace: Namespace,
        /// Its run, generation and call id: `order-1~0~2`.
        2 => task: String,
    }

    /// A query for tasks.
    #[derive(Default)]
    pub struct TaskQuery {
        1 => namespace: Namespace,
        2 => run: Option<RunKey>,
        /// 0 means the default.
        3 => limit: usize,
        /// Permits a list without the runs of databases that are down.
        4 => partly: bool,
    }

    pub struct TasksReply {
        1 => tasks: Vec<Task>,
        /// The databases whose runs are missing, if that was permitted.
        2 => missing: Vec<String>,
    }

    pub struct QueuesReply {
        1 => queues: Vec<QueueInfo>,
        /// The settings of queues that have some.
        2 => settings: Vec<QueueLimits>,
    }

    /// The tasks of a queue, and the number of its workers.
    pub struct QueueInfo {
        1 => count: TaskCount,
        /// Number of workers that take tasks of this kind from this queue.
        2 => workers: u64,
    }
}

//! Queries that list runs, approvals, workers and costs, and verbs for many runs.

use crate::ledger::SpendRow;
use crate::run::Wait;
use crate::{AttributeMatch, Name, Namespace, RunHead, RunId, RunKey, Status, Timestamp, WorkerId, message, numbered};

message! {
    /// A query for runs.
    #[derive(Default)]
    pub struct RunQuery {
        1 => namespace: Namespace,
        2 => kind: Option<Name>,
        /// Empty means any.
        3 => statuses: Vec<Status>,
        4 => created_from: Option<Timestamp>,
        5 => created_until: Option<Timestamp>,
        /// 0 means the default.
        6 => limit: usize,
        /// End of the previous page.
        7 => cursor: Option<String>,
        /// Empty means any; an element without a version stands for runs without one.
        8 => versions: Vec<Option<Name>>,
        /// All of these must match.
        9 => attributes: Vec<AttributeMatch>,
        /// Permits a list without the runs of databases that are down.
        10 => partly: bool,
    }

    /// A page of runs.
    pub struct RunList {
        1 => runs: Vec<RunHead>,
        2 => next: Option<String>,
        /// The databases whose runs are missing, if that was permitted.
        3 => missing: Vec<String>,
    }

    /// A query for the children of a run.
    pub struct ChildrenQuery {
        1 => run: RunKey,
        /// Empty means any.
        2 => statuses: Vec<Status>,
        /// 0 means the default.
        3 => limit: usize,
        /// End of the previous page.
        4 => cursor: Option<String>,
        /// Permits a list without the runs of databases that are down.
        5 => partly: bool,
    }
}

impl From<RunKey> for ChildrenQuery {
    fn from(run: RunKey) -> ChildrenQuery {
        ChildrenQuery { run, statuses: Vec::new(), limit: 0, cursor: None, partly: false }
    }
}

message! {
    /// A query for deleted runs.
    #[derive(Default)]
    pub struct DeletedQuery {
        1 => namespace: Namespace,
        2 => run: Option<RunKey>,
        /// 0 means the default.
        3 => limit: usize,
        /// Permits a list without the runs of databases that are down.
        4 => partly: bool,
    }

    pub struct DeletedReply {
        1 => runs: Vec<DeletedRun>,
        /// The databases whose runs are missing, if that was permitted.
        2 => missing: Vec<String>,
    }

    /// The remaining data of a run that was deleted individually.
    #[derive(Eq)]
    pub struct DeletedRun { 1 => key: RunKey, 2 => kind: Name, 3 => reason: String, 4 => deleted_at: Timestamp }

    pub struct NamespaceRequest { 1 => namespace: Namespace }
}

impl From<Namespace> for NamespaceRequest {
    fn from(namespace: Namespace) -> NamespaceRequest {
        NamespaceRequest { namespace }
    }
}

message! {
    pub struct VersionsReply { 1 => versions: Vec<VersionCount> }

    /// The number of open runs that need a version of the code.
    #[derive(Eq)]
    pub struct VersionCount { 1 => kind: Name, 2 => version: Option<Name>, 3 => open: u64 }

    pub struct SpendReply {
        /// The newest day first, or the highest cost first.
        1 => rows: Vec<SpendRow>,
    }

    /// A query for open waits.
    #[derive(Default)]
    pub struct WaitQuery {
        1 => namespace: Namespace,
        2 => run: Option<RunKey>,
        /// 0 means the default.
        3 => limit: usize,
        /// Permits a list without the runs of databases that are down.
        4 => partly: bool,
        /// With `run`: also lists those of the runs below it.
        5 => below: bool,
    }

    pub struct WaitsReply {
        1 => waits: Vec<Wait>,
        /// The databases whose runs are missing, if that was permitted.
        2 => missing: Vec<String>,
    }

    pub struct WorkersReply { 1 => workers: Vec<WorkerInfo> }

    /// A worker and the kinds that it has code for.
    #[derive(Eq)]
    pub struct WorkerInfo {
        1 => id: WorkerId,
        2 => kinds: Vec<VersionedKind>,
        3 => task_kinds: Vec<Name>,
        /// The queues that it serves; an element without a name is the default queue.
        4 => queues: Vec<Option<Name>>,
        /// Number of runs that it holds, and the maximum.
        5 => runs: u64,
        6 => runs_max: u64,
        /// Time of the last sign of life; absent for a worker in the server's own process.
        7 => last_seen_at: Option<Timestamp>,
    }
}

impl WorkerInfo {
    /// Returns true if the worker has code for runs of this kind and version.
    pub fn knows(&self, kind: &Name, version: Option<&Name>) -> bool {
        self.kinds.iter().any(|known| known.kind == *kind && known.version.as_ref() == version)
    }
}

message! {
    /// A workflow and a version that a worker has code for.
    #[derive(Eq)]
    pub struct VersionedKind { 1 => kind: Name, 2 => version: Option<Name> }
}

numbered! {
    /// The verb that a bulk request applies to each run.
    pub enum BulkVerb {
        0 => Cancel / "cancel",
        1 => Terminate / "terminate",
        2 => Pause / "pause",
        3 => Resume / "resume",
        4 => Retry / "retry",
        5 => Delete / "delete",
    }
}

message! {
    /// A request for one batch of a bulk operation.
    pub struct BulkRequest {
        /// A word of [`BulkVerb`].
        1 => verb: String,
        /// Selects the runs. Its limit is the size of the batch, its cursor the end of the batch before.
        2 => filter: RunQuery,
        /// Permits a filter that matches every run of the namespace.
        3 => all: bool,
        /// Only counts the runs.
        4 => dry_run: bool,
        /// The same for all batches and repeats of one request.
        5 => bulk_id: String,
        6 => reason: String,
        /// A retry also executes calls again that failed with `outcome_unknown`.
        7 => include_outcome_unknown: bool,
    }

    /// The result of a batch.
    #[derive(Default)]
    pub struct BulkDone {
        /// Number of runs that match: in this batch, or in total for a dry run.
        1 => matched: u64,
        2 => done: u64,
        /// Runs to which the verb no longer applies.
        3 => refused: Vec<RefusedRun>,
        /// Some of the matching runs, for a dry run.
        4 => sample: Vec<RunId>,
        /// The cursor of the next batch; absent after the last.
        5 => next: Option<String>,
    }

    /// A run to which a bulk verb does not apply, with the error code.
    pub struct RefusedRun { 1 => run: RunId, 2 => code: String }
}

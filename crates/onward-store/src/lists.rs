//! Lists: their queries, pages and cursors, and the databases that a partial list left out.
//!
//! Cursors have the same format in every store, so that a list over several shards can continue in each of them after the last
//! run shown.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use onward_core::internal::InternalRuns;
use onward_core::root_run::root_run;
use onward_core::run::{Wait, WaitKind};
use onward_core::task::{Task, TaskState};
use onward_core::{AttributeMatch, Name, Namespace, RunHead, RunId, RunKey, Status, Timestamp};

use crate::{PAGE_DEFAULT, StoreError, sync};

#[derive(Debug, Clone, PartialEq, Default)]
pub struct RunQuery {
    pub namespace: Namespace,
    pub kind: Option<Name>,
    /// Empty means any; `None` stands for runs without a version.
    pub versions: Vec<Option<Name>>,
    /// Empty means any.
    pub statuses: Vec<Status>,
    /// All of these must match.
    pub attributes: Vec<AttributeMatch>,
    /// Only the children of this run.
    pub parent: Option<RunKey>,
    pub created_from: Option<Timestamp>,
    pub created_until: Option<Timestamp>,
    /// Internal runs of this type, which are left out otherwise.
    pub internal: Option<InternalRuns>,
    /// 0 means the store's default page.
    pub limit: usize,
    /// End of the previous page.
    pub cursor: Option<String>,
    /// If set, a partial list is accepted; collects the names of the missing databases.
    pub gaps: Option<Gaps>,
}

impl RunQuery {
    /// Returns whether a run matches the filters, ignoring the cursor.
    pub fn matches(&self, head: &RunHead) -> bool {
        head.key.namespace == self.namespace
            && InternalRuns::of(&head.key.id) == self.internal
            && self.kind.as_ref().is_none_or(|kind| *kind == head.kind)
            && (self.versions.is_empty() || self.versions.contains(&head.version))
            && (self.statuses.is_empty() || self.statuses.contains(&head.status))
            && self.attributes.iter().all(|wanted| wanted.matches(&head.attributes))
            && self.parent.as_ref().is_none_or(|parent| head.parent.as_ref().is_some_and(|link| link.run == *parent))
            && self.created_from.is_none_or(|from| head.created_at >= from)
            && self.created_until.is_none_or(|until| head.created_at < until)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct RunPage {
    pub runs: Vec<RunHead>,
    pub next: Option<String>,
}

impl RunPage {
    /// Sorts runs in list order and cuts them to a page. One run above the limit shows that there is another page.
    pub fn of(mut runs: Vec<RunHead>, limit: usize) -> RunPage {
        runs.sort_by(|a, b| (b.created_at, &b.key.id).cmp(&(a.created_at, &a.key.id)));
        let more = runs.len() > limit;
        runs.truncate(limit);
        let next = runs.last().filter(|_| more).map(cursor_after);
        RunPage { runs, next }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct WaitQuery {
    pub namespace: Namespace,
    pub kind: Option<WaitKind>,
    pub run: Option<RunKey>,
    /// With `run`: include the runs below it. A store returns all waits below the same root run ([`onward_core::root_run`]); the
    /// runtime narrows them to the runs below `run`.
    pub below: bool,
    /// 0 means the store's default page.
    pub limit: usize,
    /// If set, a partial list is accepted; collects the names of the missing databases.
    pub gaps: Option<Gaps>,
}

impl WaitQuery {
    pub fn matches(&self, wait: &Wait) -> bool {
        let is_its = |run: &RunKey| match self.below {
            true => run.namespace == wait.run.namespace && root_run(&run.id) == root_run(&wait.run.id),
            false => *run == wait.run,
        };
        wait.run.namespace == self.namespace
            && self.kind.is_none_or(|kind| kind == wait.kind)
            && self.run.as_ref().is_none_or(is_its)
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct TaskQuery {
    pub namespace: Namespace,
    pub state: Option<TaskState>,
    pub run: Option<RunKey>,
    /// Only tasks of this queue; `Some(None)` is the default queue.
    pub queue: Option<Option<Name>>,
    /// Only tasks with this key.
    pub key: Option<Name>,
    /// 0 means the store's default page.
    pub limit: usize,
    /// If set, a partial list is accepted; collects the names of the missing databases.
    pub gaps: Option<Gaps>,
}

impl TaskQuery {
    pub fn matches(&self, task: &Task) -> bool {
        task.id.run.namespace == self.namespace
            && self.state.is_none_or(|state| state == task.state)
            && self.queue.as_ref().is_none_or(|queue| *queue == task.options.queue)
            && self.key.as_ref().is_none_or(|key| task.options.key.as_ref() == Some(key))
            && self.run.as_ref().is_none_or(|run| *run == task.id.run)
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct DeletedQuery {
    pub namespace: Namespace,
    pub run: Option<RunKey>,
    /// 0 means the store's default page.
    pub limit: usize,
    /// If set, a partial list is accepted; collects the names of the missing databases.
    pub gaps: Option<Gaps>,
}

/// Returns the number of rows of a page: 0 in a query means [`PAGE_DEFAULT`].
pub fn page_limit(limit: usize) -> usize {
    if limit == 0 { PAGE_DEFAULT } else { limit }
}

/// Returns the cursor of the page that starts after `head`.
pub fn cursor_after(head: &RunHead) -> String {
    cursor(head.created_at, head.key.id.as_str())
}

pub(crate) fn cursor(at: Timestamp, id: &str) -> String {
    format!("{}:{id}", at.0)
}

/// Returns the creation time and the id of the last run of the previous page.
pub fn parse_cursor(cursor: &str) -> Result<(Timestamp, &str), StoreError> {
    // The id must be a valid run id: a database may reject other texts with errors of its own.
    let is_id = |id: &&str| RunId::new(id).is_ok();
    let parsed = cursor.split_once(':').and_then(|(at, id)| Some((Timestamp(at.parse().ok()?), Some(id).filter(is_id)?)));
    parsed.ok_or_else(|| StoreError::CursorInvalid { cursor: cursor.to_owned() })
}

/// Returns whether a run belongs behind the last run of the previous page.
pub fn is_behind(head: &RunHead, before: Option<(Timestamp, &str)>) -> bool {
    before.is_none_or(|(at, id)| (head.created_at, head.key.id.as_str()) < (at, id))
}

/// Collector for the names of databases that a list could not reach; clones share it. A caller that passes one accepts a list
/// without their rows and must report the gap. Without one, an unreachable database fails the list.
#[derive(Debug, Clone, Default)]
pub struct Gaps(Arc<Mutex<BTreeSet<String>>>);

impl Gaps {
    pub fn note(&self, database: impl Into<String>) {
        sync::lock(&self.0).insert(database.into());
    }

    /// Returns the names of the databases, without passwords; empty if the list is complete.
    pub fn names(&self) -> Vec<String> {
        sync::lock(&self.0).iter().cloned().collect()
    }
}

impl PartialEq for Gaps {
    fn eq(&self, other: &Gaps) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

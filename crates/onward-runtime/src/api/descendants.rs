//! The runs below a run: its children, their children and so on, and their open approvals.
//!
//! Defines which runs belong to a conversation besides its own run. A run is below another if the other started it, awaits it,
//! or if it is below such a run: a fork awaits children that its original started. Reads only the open approvals of the root
//! runs concerned, the runs that requested them, and the heads of their ancestors.
//!
//! Invariant BL1: an approval is listed and decided as one of a run only if that run or a run below it requested it.

use std::collections::{BTreeMap, BTreeSet};

use onward_core::RunKey;
use onward_core::api::{ChildrenQuery, RunList};
use onward_core::root_run::root_run;
use onward_core::run::Wait;
use onward_store::{Gaps, PAGE_DEFAULT, RunQuery, WaitQuery};

use crate::api::decide::AwaitedApprovals;
use crate::api::execute::names;
use crate::{Runtime, RuntimeError};

/// Bound on the number of ancestors. A longer chain is a cycle of reused ids.
const ABOVE_MAX: usize = 1_000;

impl Runtime {
    /// Lists the runs that a run started as its children, newest first. Fails if the run does not exist.
    pub async fn list_children(&self, query: ChildrenQuery) -> Result<RunList, RuntimeError> {
        let ChildrenQuery { run, statuses, limit, cursor, partly } = query;
        self.read_head(&run).await?;
        let (namespace, gaps) = (run.namespace.clone(), partly.then(Gaps::default));
        let (parent, gaps_) = (Some(run), gaps.clone());
        let query = RunQuery { namespace, parent, statuses, limit, cursor, gaps: gaps_, ..RunQuery::default() };
        let page = self.store().list_runs(query).await?;
        Ok(RunList { runs: page.runs, next: page.next, missing: names(gaps) })
    }

    /// Returns true if `run` is `top` or below it.
    pub async fn is_below(&self, run: &RunKey, top: &RunKey) -> Result<bool, RuntimeError> {
        if run == top {
            return Ok(true);
        }
        let tops = self.tops(top).await?;
        self.is_under(run, &tops, &mut BTreeMap::new()).await
    }

    /// Lists the open approvals of `top` and the runs below it, oldest first.
    pub(crate) async fn waits_below(&self, top: &RunKey, query: WaitQuery) -> Result<Vec<Wait>, RuntimeError> {
        let tops = self.tops(top).await?;
        let families: BTreeMap<&str, &RunKey> = tops.iter().map(|top| (root_run(&top.id), top)).collect();
        let (mut known, mut awaited, mut found) = (BTreeMap::new(), AwaitedApprovals::default(), Vec::new());
        for run in families.into_values() {
            for wait in self.store().list_waits(WaitQuery { run: Some(run.clone()), below: true, ..query.clone() }).await? {
                if self.is_under(&wait.run, &tops, &mut known).await? && awaited.contains(self, &wait).await? {
                    found.push(wait); // BL1
                }
            }
        }
        found.sort_by(|a, b| (a.requested_at, &a.run, &a.call_id).cmp(&(b.requested_at, &b.run, &b.call_id)));
        found.truncate(if query.limit == 0 { PAGE_DEFAULT } else { query.limit });
        Ok(found)
    }

    /// Returns the run and the children that it awaits. Code may choose a child's id, so a child may have another root run.
    async fn tops(&self, top: &RunKey) -> Result<BTreeSet<RunKey>, RuntimeError> {
        let awaited = self.read_run(top).await?.awaiting.into_iter().filter_map(|awaited| awaited.child);
        Ok(awaited.map(|id| RunKey::new(top.namespace.clone(), id)).chain([top.clone()]).collect())
    }

    /// Walks up the ancestors of `run`. Results are cached in `known`.
    async fn is_under(
        &self,
        run: &RunKey,
        tops: &BTreeSet<RunKey>,
        known: &mut BTreeMap<RunKey, bool>,
    ) -> Result<bool, RuntimeError> {
        let (mut at, mut passed) = (run.clone(), Vec::new());
        let is_under = loop {
            if tops.contains(&at) {
                break true;
            }
            if let Some(known) = known.get(&at) {
                break *known;
            }
            let head = self.store().read_run(at.clone(), None).await?;
            passed.push(at);
            match head.and_then(|head| head.parent).filter(|_| passed.len() < ABOVE_MAX) {
                Some(parent) => at = parent.run,
                None => break false,
            }
        };
        known.extend(passed.into_iter().map(|run| (run, is_under)));
        Ok(is_under)
    }
}

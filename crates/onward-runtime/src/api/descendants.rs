//! The runs below a run: its children, theirs, and so on, and what they ask.
//!
//! Owns who belongs to a conversation beside its own run. A run is below another if the other has started it, or waits for it, or if it is
//! below such a run: a fork waits for children that its original has started. Must never go through more than the open questions of the
//! families that are asked for, the runs that ask them, and the heads above these.
//!
//! Invariant BL1: a question is told as one of a run, and decided as one, only if it is of that run or of one below it.

use std::collections::{BTreeMap, BTreeSet};

use onward_core::RunKey;
use onward_core::family::family;
use onward_core::run::Wait;
use onward_store::{PAGE_DEFAULT, WaitQuery};

use crate::api::decide::Asking;
use crate::{Runtime, RuntimeError};

/// How many runs are above one at most; more are a circle of ids that were given twice.
const ABOVE_MAX: usize = 1_000;

impl Runtime {
    /// Whether `run` is `top`, or below it.
    pub async fn is_below(&self, run: &RunKey, top: &RunKey) -> Result<bool, RuntimeError> {
        if run == top {
            return Ok(true);
        }
        let tops = self.tops(top).await?;
        self.is_under(run, &tops, &mut BTreeMap::new()).await
    }

    /// What `top` and the runs below it ask, oldest first.
    pub(crate) async fn waits_below(&self, top: &RunKey, query: WaitQuery) -> Result<Vec<Wait>, RuntimeError> {
        let tops = self.tops(top).await?;
        let families: BTreeMap<&str, &RunKey> = tops.iter().map(|top| (family(&top.id), top)).collect();
        let (mut known, mut asking, mut found) = (BTreeMap::new(), Asking::default(), Vec::new());
        for run in families.into_values() {
            for wait in self.store().list_waits(WaitQuery { run: Some(run.clone()), below: true, ..query.clone() }).await? {
                if self.is_under(&wait.run, &tops, &mut known).await? && asking.asks(self, &wait).await? {
                    found.push(wait); // BL1
                }
            }
        }
        found.sort_by(|a, b| (a.requested_at, &a.run, &a.place).cmp(&(b.requested_at, &b.run, &b.place)));
        found.truncate(if query.limit == 0 { PAGE_DEFAULT } else { query.limit });
        Ok(found)
    }

    /// The run, and those that it waits for: an id that the code has chosen says nothing of a family.
    async fn tops(&self, top: &RunKey) -> Result<BTreeSet<RunKey>, RuntimeError> {
        let awaited = self.read_run(top).await?.awaiting.into_iter().filter_map(|awaited| awaited.child);
        Ok(awaited.map(|id| RunKey::new(top.namespace.clone(), id)).chain([top.clone()]).collect())
    }

    /// Goes up from `run`; what is found out on the way is kept in `known`.
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

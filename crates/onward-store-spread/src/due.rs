//! What happens because time passes: each database judges by its own clock what is due in it.

use std::collections::BTreeMap;
use std::time::Duration;

use onward_core::WorkerId;
use onward_store::{Change, Delete, Expired, Retention, StoreError};

use crate::claim::{Round, Used, full};
use crate::spread::{Answers, SpreadStore, Unanswered, some_answers};
use crate::together::{Asked, together};

impl SpreadStore {
    /// Does not wait longer than its caller for a database: the one that keeps it waiting counts as down from then on, so that the others
    /// keep hearing of the worker.
    pub(crate) async fn heartbeat_to_all(&self, worker: WorkerId, lease: Duration) -> Result<bool, StoreError> {
        let asked = self.places().iter().map(|place| -> Asked<'_, _> {
            let worker = worker.clone();
            Box::pin(async move {
                match place.refusal().await {
                    Some(error) => Err(error),
                    None => Unanswered::watch(place, place.ask(|store| store.heartbeat(worker, lease))).await,
                }
            })
        });
        let answers: Answers<bool> = together(asked.collect()).await.into_iter().enumerate().collect();
        let known = some_answers(answers)?;
        let is_known = known.iter().any(|(_, known)| *known); // SD6
        if is_known && known.iter().any(|(_, known)| !known) {
            // Others may have what was leased there: who follows runs here should look at them.
            self.tell(Change::Missed);
        }
        Ok(is_known)
    }

    pub(crate) async fn expire_all(&self, limit: usize) -> Result<Expired, StoreError> {
        let used = |expired: &Expired, _| Used {
            count: expired.timers_fired.max(expired.tasks_expired).max(expired.workers_lost) as usize,
            may_have_more: expired.more,
        };
        let Round { answers, is_cut } = self.share_out(limit, |part, store| store.expire(part), used).await?;
        let mut all = Expired::default();
        let mut last = BTreeMap::new();
        for (position, expired) in answers {
            all.timers_fired += expired.timers_fired;
            all.tasks_expired += expired.tasks_expired;
            // The same workers have been silent everywhere.
            all.workers_lost = all.workers_lost.max(expired.workers_lost);
            last.insert(position, expired);
        }
        all.more = is_cut || last.values().any(|expired| expired.more);
        all.next_due = last.values().filter_map(|expired| expired.next_due).min();
        Ok(all)
    }

    pub(crate) async fn delete_expired(&self, retention: Retention, limit: usize) -> Result<u64, StoreError> {
        let delete = |limit| Delete::Expired { retention: retention.clone(), limit };
        let used = |deleted: &u64, part| full(*deleted as usize, part);
        let round = self.share_out(limit, |limit, store| store.delete_runs(delete(limit)), used).await?;
        Ok(round.answers.into_iter().map(|(_, deleted)| deleted).sum())
    }
}

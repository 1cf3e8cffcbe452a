//! Work that becomes due: each database decides by its own clock.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use onward_core::WorkerId;
use onward_store::{Change, Delete, Expired, Retention, StoreError};

use crate::sharded::claim::{Round, Used, full};
use crate::sharded::merge::{Request, Requests};
use crate::sharded::routing::{Answers, ShardedStore, some_answers};

impl ShardedStore {
    /// Sends a heartbeat to all databases. A slow one completes on its own, so that the others keep the session alive.
    pub(crate) async fn heartbeat_to_all(&self, worker: WorkerId, lease: Duration) -> Result<bool, StoreError> {
        let requests = self.databases.iter().map(|database| -> Request<'_, _> {
            let worker = worker.clone();
            Box::pin(database.request(move |store| store.heartbeat(worker, lease)))
        });
        let answers: Answers<bool> = self.prompt(requests.collect()).await.into_iter().enumerate().collect();
        let known = some_answers(answers)?;
        let is_known = known.iter().any(|(_, known)| *known); // SD6
        if is_known && known.iter().any(|(_, known)| !known) {
            // Other workers may hold what was leased there: holders of runs here must check them.
            self.notify_listeners(&Change::Missed);
        }
        Ok(is_known)
    }

    /// Waits for all results, but only for `Pace::late` after the first success: a slower one counts as unavailable.
    async fn prompt<T>(&self, requests: Vec<Request<'_, Result<T, StoreError>>>) -> Vec<Result<T, StoreError>> {
        let mut pending = Requests::new(requests);
        let is_begun = |pending: &Requests<'_, _>| pending.answers.iter().flatten().any(Result::is_ok);
        poll_fn(|cx| if pending.poll(cx) || is_begun(&pending) { Poll::Ready(()) } else { Poll::Pending }).await;
        let rest = poll_fn(|cx| if pending.poll(cx) { Poll::Ready(()) } else { Poll::Pending });
        self.common.time.limit(self.common.pace.late, pin!(rest)).await;
        let late = || Err(StoreError::Unavailable { why: "no response in time".to_owned() });
        pending.answers.into_iter().map(|answer| answer.unwrap_or_else(late)).collect()
    }

    pub(crate) async fn expire_all(&self, limit: usize) -> Result<Expired, StoreError> {
        let used = |expired: &Option<Expired>, _| {
            let expired = expired.unwrap_or_default();
            let count =
                expired.timers_fired.max(expired.tasks_expired).max(expired.workers_lost).max(expired.runs_begun) as usize;
            Used { count, may_have_more: expired.more }
        };
        let Round { answers, is_cut } = self.share_out_by(limit, |database, part| Box::pin(database.expire(part)), used).await?;
        let mut all = Expired::default();
        let mut last = BTreeMap::new();
        // Calls that are still running have no result yet.
        for (position, expired) in answers.into_iter().filter_map(|(position, expired)| Some((position, expired?))) {
            all.timers_fired += expired.timers_fired;
            all.tasks_expired += expired.tasks_expired;
            all.runs_begun += expired.runs_begun;
            // Worker sessions expire in all databases, so the counts are not added.
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

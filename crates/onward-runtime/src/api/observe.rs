//! Reads of how runs proceed: the timeline of a run, a run as of an event, numbers of runs, starts and ends over time.
//!
//! Counts are scans of the list of runs. Invariant OB1: a scan reads a bounded number of runs, and its reply states whether that was
//! all of them; open runs are read first.

use std::collections::BTreeSet;
use std::time::Duration;

use onward_core::api::{
    ActivityBucket, ActivityQuery, ActivityReply, BUCKETS_MAX, CountQuery, CountsReply, Moment, MomentRequest, StatusCounts,
    Timeline, TimelineRequest,
};
use onward_core::timeline::Calls;
use onward_core::{Index, Name, Record, RunHead, RunKey, Status, Timestamp};
use onward_store::{Gaps, RunQuery, StoreError, TaskQuery};

use crate::api::client::{PAGE, read_records};
use crate::{Client, Runtime, RuntimeError};

/// The number of calls on a page of a timeline, and the maximum.
pub const CALLS_DEFAULT: usize = 1_000;
pub const CALLS_MAX: usize = 5_000;

/// The number of open tasks whose attempts a timeline shows.
const TASKS_MAX: usize = 1_000;

/// The number of runs that a scan reads.
const SCANNED_MAX: u64 = 20_000;

/// The number of runs from before the time of an activity that are read for their ends.
const EARLIER_MAX: u64 = 5_000;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const BUCKETS_DEFAULT: u32 = 60;

impl Runtime {
    /// Reads the calls of one generation of a run with their times and attempts.
    pub async fn read_timeline(&self, request: TimelineRequest) -> Result<Timeline, RuntimeError> {
        let TimelineRequest { run, generation, limit, cursor } = request;
        let mut current = self.read_head(&run).await?;
        let mut steps = Vec::new();
        if generation.is_none_or(|generation| generation == current.generation) {
            // Steps are listed before the log is read, which has their end if they end meanwhile.
            steps = self.running_steps(&current).await;
            current = self.read_head(&run).await?;
        }
        let generations = current.generation + 1;
        let head = match generation.filter(|generation| *generation != current.generation) {
            None => current,
            Some(generation) => {
                let earlier = self.store().read_run(run.clone(), Some(generation)).await?;
                earlier.ok_or_else(|| StoreError::RunNotFound { key: run.clone() })?
            }
        };
        let mut records = read_records(self, &head).await?;
        records.retain(|record| record.index < head.next_index); // VI1
        let mut calls = Calls::fold(&run, &records);
        if !head.status.is_closed() {
            let (namespace, run) = (run.namespace.clone(), Some(run.clone()));
            let query = TaskQuery { namespace, run, state: None, limit: TASKS_MAX, gaps: None };
            let tasks = self.store().list_tasks(query).await?;
            tasks
                .iter()
                .filter(|task| task.id.generation == head.generation && !task.is_slot())
                .for_each(|task| calls.show_task(task));
            steps.into_iter().filter(|step| step.generation == head.generation).for_each(|step| calls.show_step(step));
        }
        let limit = if limit == 0 { CALLS_DEFAULT } else { limit.min(CALLS_MAX) };
        let invalid = || StoreError::CursorInvalid { cursor: cursor.iter().flat_map(|text| text.chars()).take(100).collect() };
        let (calls, next) = calls.page(cursor.as_deref(), limit).ok_or_else(invalid)?;
        Ok(Timeline {
            run: run.id,
            kind: head.kind,
            generation: head.generation,
            generations,
            status: head.status,
            started_at: records.first().map_or(head.created_at, |first| first.at),
            ended_at: head.ended_at,
            now: self.clock().now(),
            calls,
            next,
        })
    }

    /// Counts runs by status, open ones first (OB1).
    pub async fn count_runs(&self, query: CountQuery) -> Result<CountsReply, RuntimeError> {
        self.count_up_to(SCANNED_MAX, query).await
    }

    async fn count_up_to(&self, max: u64, query: CountQuery) -> Result<CountsReply, RuntimeError> {
        let CountQuery { namespace, kinds, created_from, created_until, attributes } = query;
        let filter = RunQuery { namespace, created_from, created_until, attributes, ..RunQuery::default() };
        let (mut counts, mut scan) = (StatusCounts::default(), Scan::new(max));
        for closed in [false, true] {
            let statuses = Status::ALL.iter().copied().filter(|status| status.is_closed() == closed).collect();
            let filter = RunQuery { statuses, ..filter.clone() };
            scan.runs(self, &kinds, filter, |head| *count_of(&mut counts, head.status) += 1).await?;
        }
        Ok(CountsReply { counts, scanned: scan.scanned, complete: scan.is_complete() })
    }

    /// Counts the starts and ends of runs in equal parts of a time. The ends of runs that began before it are complete only if
    /// there are few of those runs (OB1).
    pub async fn read_activity(&self, query: ActivityQuery) -> Result<ActivityReply, RuntimeError> {
        let until = query.until.unwrap_or_else(|| self.clock().now());
        let from = query.from.unwrap_or_else(|| until.before(DAY));
        let count = if query.buckets == 0 { BUCKETS_DEFAULT } else { query.buckets };
        if from >= until || count > BUCKETS_MAX {
            let why = format!("an activity has from 1 to {BUCKETS_MAX} buckets, and `from` is before `until`");
            return Err(RuntimeError::RequestInvalid { why });
        }
        let bucket_ms = (until.0 - from.0).div_ceil(u64::from(count));
        let begin = |at| ActivityBucket { at: Timestamp(at), started: 0, completed: 0, failed: 0, canceled: 0 };
        let mut buckets: Vec<ActivityBucket> = (from.0..until.0).step_by(bucket_ms as usize).map(begin).collect();
        let bucket = |at: Timestamp| (from..until).contains(&at).then(|| ((at.0 - from.0) / bucket_ms) as usize);
        let take_end = |buckets: &mut Vec<ActivityBucket>, head: &RunHead| {
            let Some(bucket) = head.ended_at.and_then(bucket) else { return };
            match head.status {
                Status::Completed => buckets[bucket].completed += 1,
                Status::Failed => buckets[bucket].failed += 1,
                _ => buckets[bucket].canceled += 1,
            }
        };
        let filter = RunQuery { namespace: query.namespace, ..RunQuery::default() };
        let within = RunQuery { created_from: Some(from), created_until: Some(until), ..filter.clone() };
        let mut scan = Scan::new(SCANNED_MAX);
        let started = |head: &RunHead| {
            bucket(head.created_at).into_iter().for_each(|at| buckets[at].started += 1);
            take_end(&mut buckets, head);
        };
        scan.runs(self, &query.kinds, within, started).await?;
        let statuses = Status::ALL.iter().copied().filter(|status| status.is_closed()).collect();
        let earlier = RunQuery { created_until: Some(from), statuses, ..filter };
        let mut before = Scan::new(EARLIER_MAX);
        before.runs(self, &query.kinds, earlier, |head| take_end(&mut buckets, head)).await?;
        Ok(ActivityReply { from, until, bucket_ms, buckets, complete: scan.is_complete() && before.is_complete() })
    }
}

/// Reads a run as of an event of its log.
pub async fn read_moment(client: &dyn Client, request: MomentRequest) -> Result<Moment, RuntimeError> {
    let MomentRequest { run, generation, index } = request;
    let head = client.read_head(run.clone()).await?;
    let generation = generation.unwrap_or(head.generation);
    let mut records: Vec<Record> = Vec::new();
    let out_of_range = |run: &RunKey| RuntimeError::IndexOutOfRange { key: run.clone(), generation, index };
    if generation == head.generation && index >= head.next_index {
        return Err(out_of_range(&run)); // without a read of the whole log
    }
    while records.last().is_none_or(|last| last.next_index() <= index) {
        let from = records.last().map_or(Index(0), Record::next_index);
        let page = client.read_log(run.clone(), Some(generation), from, PAGE).await?;
        if page.is_empty() {
            return Err(out_of_range(&run));
        }
        records.extend(page);
    }
    Moment::of(&run, &records, index).ok_or_else(|| out_of_range(&run))
}

fn count_of(counts: &mut StatusCounts, status: Status) -> &mut u64 {
    match status {
        Status::Pending => &mut counts.pending,
        Status::Running => &mut counts.running,
        Status::Waiting => &mut counts.waiting,
        Status::Paused => &mut counts.paused,
        Status::Completed => &mut counts.completed,
        Status::Failed => &mut counts.failed,
        Status::Canceled => &mut counts.canceled,
        Status::Terminated => &mut counts.terminated,
    }
}

/// A bounded read of the list of runs.
struct Scan {
    scanned: u64,
    max: u64,
    is_cut: bool,
    gaps: Gaps,
}

impl Scan {
    fn new(max: u64) -> Scan {
        Scan { scanned: 0, max, is_cut: false, gaps: Gaps::default() }
    }

    fn is_complete(&self) -> bool {
        !self.is_cut && self.gaps.names().is_empty()
    }

    /// Calls `each` with the runs of these kinds that match, newest first, up to the bound of the scan.
    async fn runs(
        &mut self,
        runtime: &Runtime,
        kinds: &[Name],
        filter: RunQuery,
        mut each: impl FnMut(&RunHead),
    ) -> Result<(), RuntimeError> {
        let (kinds, any) = (kinds.iter().collect::<BTreeSet<_>>(), kinds.is_empty().then_some(None));
        for kind in kinds.into_iter().cloned().map(Some).chain(any) {
            let mut query = RunQuery { kind, gaps: Some(self.gaps.clone()), ..filter.clone() };
            loop {
                query.limit = PAGE.min((self.max - self.scanned) as usize);
                if query.limit == 0 {
                    self.is_cut = true;
                    return Ok(());
                }
                let page = runtime.store().list_runs(query.clone()).await?;
                self.scanned += page.runs.len() as u64;
                page.runs.iter().for_each(&mut each);
                match page.next {
                    Some(next) => query.cursor = Some(next),
                    None => break,
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;

//! Gauges of open runs and tasks, which the store counts when the page is read.
//!
//! Counting takes time in proportion to the open runs. So a count is used again for some seconds, and for long enough that
//! counting takes at most a twentieth of the time, however often the page is read.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use onward_core::internal::InternalRuns;
use onward_core::task::TaskCount;
use onward_core::{Name, Timestamp};
use onward_runtime::Runtime;
use onward_store::OpenCounts;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::serve::probe::{Figure, Sample};

/// Shortest time for which a count is used.
const AGE_MIN: Duration = Duration::from_secs(3);

/// Factor by which a count is used longer than it took.
const AGE_FACTOR: u32 = 20;

/// Time after which the page is sent without these gauges.
const COUNT_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum number of kinds, and of pairs of a queue and a kind; the rest is summed as `other`.
const NAMES_MAX: usize = 200;
const OTHER: &str = "other";

/// Latest count, if it succeeded, and until when it is used.
#[derive(Debug, Default)]
pub(crate) struct OpenGauges(Mutex<Option<(Instant, Option<OpenCounts>)>>);

impl OpenGauges {
    /// Returns the gauges; none if the store does not answer in time.
    pub async fn figures(&self, runtime: &Runtime) -> Vec<Figure> {
        let Ok(mut latest) = tokio::time::timeout(COUNT_TIMEOUT, self.0.lock()).await else { return Vec::new() };
        let begun = Instant::now();
        let counts = match latest.take().filter(|(until, _)| begun < *until) {
            Some(counted) => counted,
            None => {
                let counted = tokio::time::timeout(COUNT_TIMEOUT, runtime.store().count_open()).await;
                (Instant::now() + AGE_MIN.max(begun.elapsed() * AGE_FACTOR), counted.ok().and_then(Result::ok))
            }
        };
        let figures = counts.1.as_ref().map(|counts| figures(counts, runtime.clock().now())).unwrap_or_default();
        *latest = Some(counts);
        figures
    }
}

/// Returns the gauges of these counts.
fn figures(counts: &OpenCounts, now: Timestamp) -> Vec<Figure> {
    let is_shown = |kind: &Name| InternalRuns::of_kind(kind).is_none();
    let mut by_kind: BTreeMap<&Name, u64> = BTreeMap::new();
    counts
        .runs
        .iter()
        .filter(|((kind, _), _)| is_shown(kind))
        .for_each(|((kind, _), count)| *by_kind.entry(kind).or_default() += count);
    let kinds: BTreeSet<&Name> = largest(by_kind).into_iter().collect();
    let mut runs: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for ((kind, status), count) in counts.runs.iter().filter(|((kind, _), _)| is_shown(kind)) {
        let kind = if kinds.contains(kind) { kind.as_str() } else { OTHER };
        *runs.entry((kind, status.as_str())).or_default() += count;
    }
    let sample = |labels: &[(&'static str, &str)], value: f64| {
        let labels = labels.iter().map(|(label, value)| (*label, (*value).to_owned())).collect();
        Sample { suffix: "", labels, value }
    };
    let runs = runs.into_iter().map(|((kind, status), count)| sample(&[("kind", kind), ("status", status)], count as f64));
    let (mut tasks, mut ages) = (Vec::new(), Vec::new());
    for ((queue, kind), count) in limited(&counts.tasks) {
        for (state, value) in [("queued", count.queued), ("running", count.running), ("quarantined", count.quarantined)] {
            tasks.push(sample(&[("queue", queue), ("kind", kind), ("state", state)], value as f64));
        }
        let age = count.oldest_at.map_or(Duration::ZERO, |at| now.since(at));
        ages.push(sample(&[("queue", queue), ("kind", kind)], age.as_secs_f64()));
    }
    let gauge = |name, help, samples| Figure { name, help, kind: "gauge", samples };
    vec![
        gauge("onward_runs_open", "Open runs, by kind and status", runs.collect()),
        gauge("onward_queue_tasks", "Open tasks, by queue, kind and state", tasks),
        gauge("onward_queue_oldest_seconds", "Time for which the oldest queued task could have begun", ages),
    ]
}

/// Returns the keys with the largest counts.
fn largest<K: Ord + Copy>(counts: BTreeMap<K, u64>) -> Vec<K> {
    let mut counts: Vec<(K, u64)> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    counts.into_iter().take(NAMES_MAX).map(|(key, _)| key).collect()
}

/// Returns the counts by queue and kind; the empty text is the default queue.
fn limited(tasks: &[TaskCount]) -> BTreeMap<(&str, &str), TaskCount> {
    fn names(count: &TaskCount) -> (&str, &str) {
        (count.queue.as_ref().map_or("", Name::as_str), count.kind.as_str())
    }
    let sizes = tasks.iter().map(|count| (names(count), count.queued + count.running + count.quarantined)).collect();
    let kept: BTreeSet<(&str, &str)> = largest(sizes).into_iter().collect();
    let mut sums: BTreeMap<(&str, &str), TaskCount> = BTreeMap::new();
    for count in tasks {
        let key = if kept.contains(&names(count)) { names(count) } else { (OTHER, OTHER) };
        match sums.get_mut(&key) {
            Some(sum) => sum.add(count),
            None => drop(sums.insert(key, count.clone())),
        }
    }
    sums
}

#[cfg(test)]
mod tests;

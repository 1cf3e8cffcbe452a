//! Gauges of open runs, tasks and queues, which the store counts when the page is read.
//!
//! Counting takes time in proportion to the open runs. So a count is used again for some seconds, and for long enough that
//! counting takes at most a twentieth of the time, however often the page is read.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use onward_core::internal::InternalRuns;
use onward_core::queue::QueueSettings;
use onward_core::queue::settings::settings_queue;
use onward_core::task::TaskCount;
use onward_core::{Name, Namespace, Timestamp};
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

/// Maximum number of kinds, and of pairs of a queue and a kind; the rest is summed as `other`. Also the maximum number of queues
/// whose limits are shown.
const NAMES_MAX: usize = 200;
const OTHER: &str = "other";

/// What is counted at one time.
#[derive(Debug, Default)]
struct Counted {
    open: OpenCounts,
    queues: Vec<LimitedQueue>,
}

/// A queue with settings.
#[derive(Debug)]
struct LimitedQueue {
    namespace: Namespace,
    queue: Option<Name>,
    settings: QueueSettings,
    throttled_keys: u64,
}

/// Latest count, if it succeeded, and until when it is used.
#[derive(Debug, Default)]
pub(crate) struct OpenGauges(Mutex<Option<(Instant, Option<Counted>)>>);

impl OpenGauges {
    /// Returns the gauges; none if the store does not answer in time.
    pub async fn figures(&self, runtime: &Runtime) -> Vec<Figure> {
        let Ok(mut latest) = tokio::time::timeout(COUNT_TIMEOUT, self.0.lock()).await else { return Vec::new() };
        let begun = Instant::now();
        let counts = match latest.take().filter(|(until, _)| begun < *until) {
            Some(counted) => counted,
            None => {
                let counted = tokio::time::timeout(COUNT_TIMEOUT, count(runtime)).await;
                (Instant::now() + AGE_MIN.max(begun.elapsed() * AGE_FACTOR), counted.ok().flatten())
            }
        };
        let figures = counts.1.as_ref().map(|counts| figures(counts, runtime.clock().now())).unwrap_or_default();
        *latest = Some(counts);
        figures
    }
}

/// Counts everything; `None` if the store does not answer.
async fn count(runtime: &Runtime) -> Option<Counted> {
    let open = runtime.store().count_open().await.ok()?;
    let mut queues = Vec::new();
    for row in open.settings.iter().take(NAMES_MAX) {
        let (Some(queue), Some(settings)) = (settings_queue(&row.kind), row.queue.as_deref()) else { continue };
        let settings = QueueSettings { part: None, ..settings.clone() };
        let has_key_limits = settings.key_concurrency_max.is_some() || settings.key_rate.is_some();
        let throttled_keys = match has_key_limits {
            true => runtime.count_throttled_keys(&row.namespace, queue.as_ref(), &settings).await.ok()?,
            false => 0,
        };
        queues.push(LimitedQueue { namespace: row.namespace.clone(), queue, settings, throttled_keys });
    }
    Some(Counted { open, queues })
}

fn sample(labels: &[(&'static str, &str)], value: f64) -> Sample {
    Sample { suffix: "", labels: labels.iter().map(|(label, value)| (*label, (*value).to_owned())).collect(), value }
}

fn gauge(name: &'static str, help: &'static str, samples: Vec<Sample>) -> Figure {
    Figure { name, help, kind: "gauge", samples }
}

/// Returns the gauges of these counts.
fn figures(counted: &Counted, now: Timestamp) -> Vec<Figure> {
    let mut figures = open_figures(&counted.open, now);
    figures.extend(queue_figures(&counted.queues));
    figures
}

/// Returns the gauges of limits. Starts of a rate are per second, so that rates can be compared.
fn queue_figures(queues: &[LimitedQueue]) -> Vec<Figure> {
    let (mut limits, mut rates, mut paused, mut throttled) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for LimitedQueue { namespace, queue, settings, throttled_keys } in queues {
        let labels = [("namespace", namespace.as_str()), ("queue", queue.as_ref().map_or("", Name::as_str))];
        let with = |label, value| [labels[0], labels[1], (label, value)];
        let counts = [
            ("concurrency", settings.concurrency_max.map(u64::from)),
            ("key_concurrency", settings.key_concurrency_max.map(u64::from)),
            ("depth", settings.depth_max),
        ];
        limits.extend(counts.into_iter().filter_map(|(of, limit)| Some(sample(&with("limit", of), limit? as f64))));
        for (of, rate) in [("queue", &settings.rate), ("key", &settings.key_rate)] {
            let per_second = rate.as_ref().map(|rate| f64::from(rate.starts_max) * 1_000.0 / rate.period_ms.max(1) as f64);
            rates.extend(per_second.map(|per_second| sample(&with("of", of), per_second)));
        }
        paused.push(sample(&labels, f64::from(u8::from(settings.paused))));
        throttled.push(sample(&labels, *throttled_keys as f64));
    }
    vec![
        gauge("onward_queue_limit", "Limits of queues: slots, slots of a key, and waiting tasks", limits),
        gauge("onward_queue_rate_limit", "Attempts per second that rates of queues and of their keys permit", rates),
        gauge("onward_queue_paused", "Whether a queue with settings is paused", paused),
        gauge("onward_queue_throttled_keys", "Keys whose limits hold their tasks back", throttled),
    ]
}

fn open_figures(counts: &OpenCounts, now: Timestamp) -> Vec<Figure> {
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
    let runs = runs.into_iter().map(|((kind, status), count)| sample(&[("kind", kind), ("status", status)], count as f64));
    let (mut tasks, mut ages) = (Vec::new(), Vec::new());
    for ((queue, kind), count) in limited(&counts.tasks) {
        for (state, value) in [("queued", count.queued), ("running", count.running), ("quarantined", count.quarantined)] {
            tasks.push(sample(&[("queue", queue), ("kind", kind), ("state", state)], value as f64));
        }
        let age = count.oldest_at.map_or(Duration::ZERO, |at| now.since(at));
        ages.push(sample(&[("queue", queue), ("kind", kind)], age.as_secs_f64()));
    }
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

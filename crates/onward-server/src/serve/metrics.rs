//! Counters and gauges, and their page in the Prometheus text format.
//!
//! Every name begins with `onward_` and has its unit; counters end in `_total`; `promtool check metrics` reports no problems. The
//! values of labels come from fixed lists (routes, statuses, event names), so clients cannot make the page grow (S30); names of
//! kinds and queues are limited in number ([`open`]).

pub(crate) mod open;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use onward_core::event::PauseReason;
use onward_core::{Event, Record};
use onward_runtime::{DURATION_BOUNDS, Histogram, Runtime};
use onward_store::{Change, Listener};
use tonic::Code;

use crate::serve::probe::{Figure, Sample};

/// Number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Number of guards that are held.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    pub(crate) fn hold(self: &Arc<Gauge>) -> GaugeGuard {
        self.0.fetch_add(1, Ordering::Relaxed);
        GaugeGuard(self.clone())
    }

    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

pub(crate) struct GaugeGuard(Arc<Gauge>);

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The counters of one server.
#[derive(Debug, Default)]
pub struct Metrics {
    pub runs_started: Counter,
    pub commits: Counter,
    pub connections: Arc<Gauge>,
    pub attached: Arc<Gauge>,
    /// Connections that ended before the TLS handshake was complete.
    pub tls_refused: Counter,
    pub replays_diverged: Counter,
    /// Attempts of tasks that ended.
    task_attempts: Histogram,
    pub(crate) open: open::OpenGauges,
    /// By the event's name.
    inputs: Mutex<BTreeMap<&'static str, u64>>,
    /// By the last event's name.
    ends: Mutex<BTreeMap<&'static str, u64>>,
    requests: Mutex<BTreeMap<Request, u64>>,
    /// By the path of the method and the number of the gRPC status.
    calls: Mutex<BTreeMap<(&'static str, i32), u64>>,
}

/// Method, route and status.
type Request = (&'static str, &'static str, u16);

impl Metrics {
    /// Counts a request by the template of its route, never by its path.
    pub fn request(&self, method: &str, route: &'static str, status: u16) {
        let known = ["GET", "HEAD", "POST", "PUT", "DELETE"];
        let method = known.into_iter().find(|known| *known == method).unwrap_or("other");
        count(&self.requests, (method, route, status));
    }

    /// Counts a gRPC call by method and gRPC status; the HTTP status of a refused call is 200. A stream is counted when it
    /// begins.
    pub fn call(&self, path: &'static str, status: Code) {
        count(&self.calls, (path, status.into()));
    }

    fn appended(&self, record: &Record) {
        let inputs = match record.commit {
            Some(_) => {
                self.commits.add(1);
                &[][..]
            }
            None => &record.events,
        };
        for event in inputs {
            count(&self.inputs, event.name());
            if let Some(attempts) = task_attempts(event) {
                self.task_attempts.observe(ATTEMPT_BOUNDS, u64::from(attempts));
            }
            if let Event::RunStarted(started) = event {
                self.runs_started.add(u64::from(started.generation == 0));
            }
            if let Event::RunPaused(paused) = event {
                self.replays_diverged.add(u64::from(paused.reason == PauseReason::Diverged));
            }
        }
        if let Some(last) = record.events.last().filter(|event| event.ends_log()) {
            count(&self.ends, last.name());
        }
    }

    /// Returns the page for Prometheus, with the counters of the runtime and the store.
    pub fn page(&self, runtime: &Runtime, store: &[Figure]) -> String {
        let mut page = Page::default();
        let (inputs, ends) = (read(&self.inputs), read(&self.ends));
        page.counter("onward_runs_started_total", "Runs started, children included", self.runs_started.value());
        page.labeled("onward_inputs_total", "Events from outside, by name", "event", inputs);
        page.counter("onward_commits_total", "Commits by workers", self.commits.value());
        page.labeled("onward_logs_ended_total", "Logs that ended, by their last event", "event", ends);
        let outcomes = [("diverged", self.replays_diverged.value()), ("ok", runtime.replays_ok())];
        page.labeled("onward_replays_total", "Replays, by their comparison with the log", "outcome", outcomes);
        let counts = runtime.counts();
        for (name, help, count) in [
            ("onward_signals_dropped_total", "Signals between runs whose target could not accept them", &counts.signals_dropped),
            ("onward_agent_entry_duplicates_prevented_total", "Entries whose key existed already", &counts.entries_repeated),
            ("onward_agent_llm_empty_responses_total", "Empty responses of models", &counts.empty_answers),
            ("onward_agent_resume_conflicts_total", "Resumes of an agent that lost to a concurrent one", &counts.resumes_lost),
        ] {
            page.counter(name, help, count.value());
        }
        let refused = [("full", counts.tasks_over_depth.value()), ("slots", counts.tasks_over_slots.value())];
        page.labeled("onward_queue_refused_total", "Standalone tasks that their queue refused, by reason", "reason", refused);
        let help = "Results of steps, tasks and children that replays took from the log instead of repeating the effect";
        page.counter("onward_resume_duplicates_prevented_total", help, runtime.results_replayed());
        for (name, help, bounds, unit, histogram) in [
            ("onward_task_wait_seconds", "Time of tasks between due and begun", DURATION_BOUNDS, 1_000.0, &counts.task_waits),
            ("onward_task_seconds", "Duration of task attempts with a result", DURATION_BOUNDS, 1_000.0, &counts.task_durations),
            ("onward_task_attempts", "Attempts of tasks that ended", ATTEMPT_BOUNDS, 1.0, &self.task_attempts),
        ] {
            page.figure(&Figure { name, help, kind: "histogram", samples: samples_of(histogram, bounds, unit) });
        }
        let requests = read(&self.requests).into_iter().map(|((method, route, status), count)| {
            (format!("{{method=\"{method}\",route=\"{route}\",status=\"{status}\"}}"), count)
        });
        page.rows("onward_http_requests_total", "Requests, by method, route and status", "counter", requests);
        let calls = read(&self.calls)
            .into_iter()
            .map(|((path, status), count)| (format!("{{method=\"{path}\",status=\"{}\"}}", status_name(status)), count));
        page.rows("onward_grpc_calls_total", "gRPC calls, by method and status", "counter", calls);
        page.gauge("onward_http_connections", "Open connections", self.connections.value());
        page.counter("onward_tls_refused_total", "Connections without a complete TLS handshake", self.tls_refused.value());
        page.gauge("onward_attached_readers", "Readers attached to a run", self.attached.value());
        store.iter().for_each(|figure| page.figure(figure));
        page.0
    }
}

/// Upper bounds of the buckets of attempts.
const ATTEMPT_BOUNDS: &[u64] = &[1, 2, 3, 5, 10, 20];

/// Returns the number of attempts of a task that ended with this event.
fn task_attempts(event: &Event) -> Option<u32> {
    match event {
        Event::TaskCompleted(event) => Some(event.attempts),
        Event::TaskFailed(event) => Some(event.attempts),
        Event::RunCompleted(event) => event.attempts,
        Event::RunFailed(event) => event.attempts,
        _ => None,
    }
}

/// Returns the samples of a histogram; `unit` is how many of its values are one of the metric's.
fn samples_of(histogram: &Histogram, bounds: &[u64], unit: f64) -> Vec<Sample> {
    let (buckets, sum) = histogram.cumulative(bounds);
    let count = buckets.last().copied().unwrap_or_default() as f64;
    let texts = bounds.iter().map(|bound| (*bound as f64 / unit).to_string()).chain(["+Inf".to_owned()]);
    let mut samples: Vec<Sample> = texts
        .zip(buckets)
        .map(|(bound, value)| Sample { suffix: "_bucket", labels: vec![("le", bound)], value: value as f64 })
        .collect();
    samples.push(Sample { suffix: "_sum", labels: Vec::new(), value: sum as f64 / unit });
    samples.push(Sample { suffix: "_count", labels: Vec::new(), value: count });
    samples
}

/// Called for every record on the store's own thread.
impl Listener for Metrics {
    fn changed(&self, change: &Change) {
        if let Change::Appended { record, .. } = change {
            self.appended(record);
        }
    }
}

fn count<K: Ord>(counts: &Mutex<BTreeMap<K, u64>>, key: K) {
    *counts.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default() += 1;
}

fn read<K: Ord + Clone>(counts: &Mutex<BTreeMap<K, u64>>) -> BTreeMap<K, u64> {
    counts.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Text of the page. Writing to a String cannot fail, so results are dropped.
#[derive(Default)]
struct Page(String);

impl Page {
    fn head(&mut self, name: &str, help: &str, kind: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// Adds a metric; a row has the text of its labels and its value.
    fn rows(&mut self, name: &str, help: &str, kind: &str, rows: impl IntoIterator<Item = (String, u64)>) {
        self.head(name, help, kind);
        for (labels, value) in rows {
            let _ = writeln!(self.0, "{name}{labels} {value}");
        }
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.rows(name, help, "counter", [(String::new(), value)]);
    }

    fn gauge(&mut self, name: &str, help: &str, value: u64) {
        self.rows(name, help, "gauge", [(String::new(), value)]);
    }

    fn labeled(&mut self, name: &str, help: &str, label: &str, values: impl IntoIterator<Item = (&'static str, u64)>) {
        let rows = values.into_iter().map(|(value, count)| (format!("{{{label}=\"{value}\"}}"), count));
        self.rows(name, help, "counter", rows);
    }

    fn figure(&mut self, figure: &Figure) {
        self.head(figure.name, figure.help, figure.kind);
        for sample in &figure.samples {
            let labels: Vec<String> =
                sample.labels.iter().map(|(label, value)| format!("{label}=\"{}\"", label_value(value))).collect();
            let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
            let _ = writeln!(self.0, "{}{}{labels} {}", figure.name, sample.suffix, sample.value);
        }
    }
}

/// Returns the name of a status as in the gRPC specification: `INVALID_ARGUMENT` for `InvalidArgument`.
fn status_name(status: i32) -> String {
    let mut name = String::new();
    for letter in format!("{:?}", Code::from(status)).chars() {
        if letter.is_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.extend(letter.to_uppercase());
    }
    name
}

/// Escapes the value of a label.
fn label_value(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests;

//! Conversion of recorded events into spans.

use std::time::{Duration, SystemTime};

use onward_core::run::Commit;
use onward_core::spend::{Spend, Tokens};
use onward_core::task::{MODEL_CALL, Task};
use onward_core::trace::{activation_span, call_span, end_span, run_span, step_span, task_span};
use onward_core::{CallId, Event, Failure, Name, RunKey, Timestamp};

use super::TraceOrigin;

/// The kind of a span, by OTLP's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SpanKind {
    Internal = 1,
    /// Work that was queued for a consumer.
    Producer = 4,
    Consumer = 5,
}

/// A span with its times.
#[derive(Debug, Clone)]
pub(crate) struct Span {
    pub trace_id: [u8; 16],
    pub span_id: [u8; 8],
    pub parent: Option<[u8; 8]>,
    pub name: String,
    pub kind: SpanKind,
    pub start: SystemTime,
    pub end: SystemTime,
    pub attributes: Vec<(&'static str, String)>,
    /// Attributes that are numbers.
    pub numbers: Vec<(&'static str, u64)>,
    /// The code of the failure. The message is left out, because it may contain private data.
    pub failed: Option<String>,
}

/// The content of a commit, exported once it is accepted.
pub(crate) struct Activation {
    origin: TraceOrigin,
    key: RunKey,
    generation: u32,
    n: u64,
    kind: Name,
    created_at: Timestamp,
    began: SystemTime,
    events: Vec<Event>,
}

impl Activation {
    /// Copies the commit. Its payloads are not exported.
    pub fn of(origin: TraceOrigin, commit: &Commit, kind: &Name, created_at: Timestamp, began: SystemTime) -> Activation {
        let (key, generation, n) = (commit.key.clone(), commit.generation, commit.n);
        Activation { origin, key, generation, n, kind: kind.clone(), created_at, began, events: commit.events.clone() }
    }

    /// Returns the spans of the accepted commit.
    pub fn spans(self, now: SystemTime) -> Vec<Span> {
        let activation = activation_span(&self.key, self.generation, self.n);
        let mut earliest = self.began.min(now);
        let mut spans = Vec::new();
        for event in &self.events {
            if let Some(span) = self.span_of(event, activation, now) {
                earliest = earliest.min(span.start);
                spans.push(span);
            }
        }
        spans.push(self.span(activation, Some(run_span(&self.key)), format!("activation {}", self.kind), (earliest, now)));
        spans.extend(self.run_span(now));
        spans
    }

    /// Returns the span of the run with its first commit, and that of its end with its last; a run that ends with its first
    /// commit has one span for both. No span refers to one that is exported only when the run ends, which may be weeks later or
    /// never (SP3).
    fn run_span(&self, now: SystemTime) -> Option<Span> {
        let is_first = self.generation == 0 && self.n == 0;
        let end = self.events.last().filter(|event| event.ends_log() && !matches!(event, Event::RunContinued(_)));
        let (id, parent, what) = match (is_first, end) {
            (true, _) => (run_span(&self.key), self.origin.parent, "run"),
            (false, Some(_)) => (end_span(&self.key), Some(run_span(&self.key)), "end"),
            (false, None) => return None,
        };
        let start = SystemTime::UNIX_EPOCH + Duration::from_millis(self.created_at.0);
        let failed = match end {
            Some(Event::RunFailed(event)) => code(&event.failure),
            Some(Event::RunCanceled(event)) => code(&event.failure),
            _ => None,
        };
        let span = self.span(id, parent, format!("{what} {}", self.kind), (start.min(now), now));
        Some(Span { failed, kind: SpanKind::Consumer, ..span })
    }

    fn span_of(&self, event: &Event, activation: [u8; 8], now: SystemTime) -> Option<Span> {
        let step = |call_id: &CallId, name: &Name, attempt: u32, took_ms: u64, failed: Option<String>| {
            let id = step_span(&self.key, self.generation, call_id, attempt);
            let start = now.checked_sub(Duration::from_millis(took_ms)).unwrap_or(now);
            let span = self.span(id, Some(activation), format!("step {name}"), (start, now));
            let attributes =
                [span.attributes, vec![("onward.call_id", call_id.to_string()), ("onward.attempt", attempt.to_string())]];
            Span { attributes: attributes.concat(), failed, ..span }
        };
        let call = |call_id: &CallId, name: String| {
            let span = self.span(call_span(&self.key, self.generation, call_id), Some(activation), name, (now, now));
            let attributes = [span.attributes, vec![("onward.call_id", call_id.to_string())]].concat();
            Span { kind: SpanKind::Producer, attributes, ..span }
        };
        match event {
            Event::StepCompleted(event) => Some(step(&event.call_id, &event.name, event.attempt, event.took_ms, None)),
            Event::StepFailed(event) => {
                Some(step(&event.call_id, &event.name, event.attempt, event.took_ms, code(&event.failure)))
            }
            Event::TaskScheduled(event) => Some(call(&event.call_id, format!("schedule {}", event.kind))),
            Event::ChildStarted(event) => Some(call(&event.call_id, format!("start {}", event.kind))),
            _ => None,
        }
    }

    fn span(&self, span_id: [u8; 8], parent: Option<[u8; 8]>, name: String, (start, end): (SystemTime, SystemTime)) -> Span {
        let attributes = about(&self.key, &self.kind);
        let (trace_id, kind, failed) = (self.origin.trace_id, SpanKind::Internal, None);
        Span { trace_id, span_id, parent, name, kind, start, end, attributes, numbers: Vec::new(), failed }
    }
}

fn about(run: &RunKey, kind: &Name) -> Vec<(&'static str, String)> {
    vec![("onward.namespace", run.namespace.to_string()), ("onward.run", run.id.to_string()), ("onward.kind", kind.to_string())]
}

fn code(failure: &Failure) -> Option<String> {
    Some(failure.code.clone())
}

/// Returns the span of a reported task attempt with the cost `spent`.
pub(crate) fn attempt(
    origin: TraceOrigin,
    task: &Task,
    failed: Option<String>,
    spent: &[Spend],
    (start, end): (SystemTime, SystemTime),
) -> Span {
    let mut attributes = about(&task.id.run, &task.kind);
    attributes.push(("onward.call_id", task.id.call_id.to_string()));
    attributes.push(("onward.attempt", task.attempt.to_string()));
    let parent = Some(call_span(&task.id.run, task.id.generation, &task.id.call_id));
    let (trace_id, span_id) = (origin.trace_id, task_span(&task.id, task.claim));
    let (name, kind, start) = (format!("task {}", task.kind), SpanKind::Consumer, start.min(end));
    let mut span = Span { trace_id, span_id, parent, name, kind, start, end, attributes, numbers: Vec::new(), failed };
    if let Some(model) = task.kind.as_str().strip_prefix(MODEL_CALL) {
        describe_model_call(&mut span, model, spent);
    }
    span
}

/// Adds the attributes of a model call, named as in the semantic conventions of OpenTelemetry for generative AI.
fn describe_model_call(span: &mut Span, model: &str, spent: &[Spend]) {
    span.attributes.extend([("gen_ai.operation.name", "chat".to_owned()), ("gen_ai.request.model", model.to_owned())]);
    let Some(last) = spent.last() else { return };
    span.attributes.push(("gen_ai.response.model", last.model.clone()));
    if !last.provider.is_empty() {
        span.attributes.push(("gen_ai.provider.name", last.provider.clone()));
    }
    let Tokens { input, cached_read, cached_write, output, .. } =
        spent.iter().fold(Tokens::default(), |sum, line| sum.plus(&line.tokens));
    span.numbers.extend([
        ("gen_ai.usage.input_tokens", input.saturating_add(cached_read).saturating_add(cached_write)),
        ("gen_ai.usage.output_tokens", output),
        ("gen_ai.usage.cache_read.input_tokens", cached_read),
        ("gen_ai.usage.cache_creation.input_tokens", cached_write),
    ]);
}

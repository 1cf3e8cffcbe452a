//! Distributed tracing: W3C trace contexts, and span ids derived from recorded data.
//!
//! A run outlives processes, so no process holds its spans. Every span id is a hash of recorded data and is the same again after
//! a crash. Must never depend on anything that is not in the log.

use crate::hash::from_hex;
use crate::task::TaskId;
use crate::{CallId, Hash, RunKey};

/// A position in a trace: the fields of a version 00 `traceparent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceContext {
    pub trace_id: [u8; 16],
    pub span_id: [u8; 8],
    /// The sampled flag: the trace is to be recorded.
    pub sampled: bool,
}

impl TraceContext {
    /// Parses a `traceparent`. Later versions may append fields; ids of all zeros are invalid.
    pub fn parse(text: &str) -> Option<TraceContext> {
        let mut parts = text.split('-');
        let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let [version] = hex::<1>(version)?;
        if version == 0xff || (version == 0 && parts.next().is_some()) {
            return None;
        }
        let (trace_id, span_id, [flags]) = (hex::<16>(trace)?, hex::<8>(span)?, hex::<1>(flags)?);
        (trace_id != [0; 16] && span_id != [0; 8]).then_some(TraceContext { trace_id, span_id, sampled: flags & 1 == 1 })
    }

    /// Returns the same trace at another span.
    pub fn at(self, span_id: [u8; 8]) -> TraceContext {
        TraceContext { span_id, ..self }
    }
}

/// The value of the `traceparent` header.
impl std::fmt::Display for TraceContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("00-")?;
        self.trace_id.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str("-")?;
        self.span_id.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str(if self.sampled { "-01" } else { "-00" })
    }
}

/// Decodes lower-case hex digits; the W3C standard allows no others.
fn hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    from_hex(text).filter(|_| !text.bytes().any(|byte| byte.is_ascii_uppercase()))
}

/// Derives the trace id of a run that was started without a trace context.
pub fn trace_of(run: &RunKey, seed: u64) -> [u8; 16] {
    Hash::of_parts(&[b"trace", run.namespace.as_str().as_bytes(), run.id.as_str().as_bytes(), &seed.to_le_bytes()]).0
}

/// Derives the span id of a run: the ancestor of all its spans, the same in every generation.
pub fn run_span(run: &RunKey) -> [u8; 8] {
    span(run, b"run", &[])
}

/// Derives the span id of the end of a run that did not end in its first commit.
pub fn end_span(run: &RunKey) -> [u8; 8] {
    span(run, b"end", &[])
}

/// Derives the span id of the activation that made commit `n`.
pub fn activation_span(run: &RunKey, generation: u32, n: u64) -> [u8; 8] {
    span(run, b"activation", &[&generation.to_le_bytes(), &n.to_le_bytes()])
}

/// Derives the span id of a task or child that the code started.
pub fn call_span(run: &RunKey, generation: u32, call_id: &CallId) -> [u8; 8] {
    span(run, b"call", &[&generation.to_le_bytes(), call_id.to_string().as_bytes()])
}

/// Derives the span id of one attempt of a step.
pub fn step_span(run: &RunKey, generation: u32, call_id: &CallId, attempt: u32) -> [u8; 8] {
    span(run, b"step", &[&generation.to_le_bytes(), call_id.to_string().as_bytes(), &attempt.to_le_bytes()])
}

/// Derives the span id of one claim of a task.
pub fn task_span(task: &TaskId, claim: u64) -> [u8; 8] {
    let call_id = task.call_id.to_string();
    span(&task.run, b"task", &[&task.generation.to_le_bytes(), call_id.as_bytes(), &claim.to_le_bytes()])
}

fn span(run: &RunKey, what: &[u8], parts: &[&[u8]]) -> [u8; 8] {
    let mut all: Vec<&[u8]> = vec![b"span", run.namespace.as_str().as_bytes(), run.id.as_str().as_bytes(), what];
    all.extend(parts);
    let mut id = [0; 8];
    id.copy_from_slice(&Hash::of_parts(&all).0[..8]);
    // An id of all zeros would mean "no span".
    if id == [0; 8] { [1; 8] } else { id }
}

#[cfg(test)]
mod tests;

//! Log lines about runs that were paused because of their code, and about refused results of attempts.
//!
//! Callers would otherwise wait without an explanation. Without a `tracing` subscriber the line goes to stderr, as for a panic.

use onward_core::event::{Divergence, PauseReason, RunPaused};
use onward_core::task::TaskId;
use onward_core::{Name, RunKey};
use onward_store::StoreError;

pub(super) fn paused(run: &RunKey, kind: &Name, pause: &RunPaused) {
    let report = report(run, pause);
    if tracing::dispatcher::has_been_set() {
        let code = code(pause.reason);
        tracing::error!(run = %run.id, namespace = %run.namespace, kind = %kind, code, "the run is paused: {report}");
    } else {
        eprintln!("onward: run {} of `{kind}` is paused: {report}", run.id);
    }
}

/// Logs that the last report of an attempt was refused permanently. The result is lost, and the task continues after its lease
/// has expired.
pub(super) fn report_refused(task: &TaskId, kind: &Name, attempt: u32, error: &StoreError) {
    let (run, code) = (&task.run, error.code());
    if tracing::dispatcher::has_been_set() {
        let (id, namespace) = (&run.id, &run.namespace);
        tracing::error!(run = %id, %namespace, %kind, attempt, code, "the result of an attempt was refused: {error}");
    } else {
        eprintln!("onward: the result of attempt {attempt} at `{kind}` of run {} was refused ({code}): {error}", run.id);
    }
}

/// Returns the reason of the pause and a remedy.
fn report(run: &RunKey, pause: &RunPaused) -> String {
    let RunPaused { message, divergence, .. } = pause;
    match divergence {
        None => format!("{message}; deploy corrected code, then `onward run resume {}`", run.id),
        Some(Divergence { nearest, hint, .. }) => {
            let nearest = nearest.as_ref().map(|call| format!("; code and log agree up to {call}")).unwrap_or_default();
            format!("{message}{nearest}; {hint}")
        }
    }
}

/// Returns the pause reason as named in views and documents.
fn code(reason: PauseReason) -> &'static str {
    match reason {
        PauseReason::Requested => "requested",
        PauseReason::Diverged => "diverged",
        PauseReason::ActivationFailed => "activation_failed",
        PauseReason::VersionTooOld => "version_too_old",
        PauseReason::UnstableSegment => "unstable_segment",
        PauseReason::EffectAbandoned => "effect_abandoned",
        PauseReason::BudgetExhausted => "budget_exhausted",
        PauseReason::SegmentTooLong => "segment_too_long",
        PauseReason::ApprovalNeeded => "approval_needed",
        PauseReason::WorkerCrashed => "worker_crashed",
    }
}

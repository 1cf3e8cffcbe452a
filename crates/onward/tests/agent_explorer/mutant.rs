//! Injected faults between engine, log and environment, each of which the oracle must find.

use onward_core::engine::CommitDraft;
use onward_core::event::{ApprovalRequested, CallAdopted, ChildStarted, PromiseCreated, TaskScheduled};
use onward_core::{CallId, Event, Index, RunId};

use super::explore::State;
use super::recorded_calls;

/// A fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mutant {
    LosesMessage,
    RepeatsMessage,
    LosesGuest,
    RepeatsGuest,
    /// The answer to another open task is given.
    SwapsAnswers,
    /// The answer to the first of equal calls is given to the second.
    AnswersFirst,
    /// A call takes over the result of a call of the same kind, whatever its content.
    AdoptsByKind,
    /// A call that has begun is made anew instead of taken over.
    RepeatsCalls,
    /// The start of a task is not recorded.
    HidesAttempts,
    /// A withdrawn task goes to a worker nevertheless.
    KeepsTasks,
    /// A run that is paused for abandoned effects resumes without an operator.
    ResumesByItself,
    /// The bit flips more often than counted.
    HidesFlips,
    LosesEntry,
    RepeatsEntry,
    /// Inputs do not wake the run.
    LosesWakeups,
    /// The result of a task or child, or an answer, is lost.
    LosesAnswer,
    /// A branch replaces an earlier request.
    TakesEveryBranch,
}

/// Does something once, unless the fault applies.
pub(super) fn times(mutant: Option<Mutant>, never: Mutant, twice: Mutant, mut act: impl FnMut()) {
    let times = if mutant == Some(never) { 0 } else { 1 + u32::from(mutant == Some(twice)) };
    (0..times).for_each(|_| act());
}

/// Returns the answer to the call at `call_id`.
pub(super) fn answer(state: &State, call_id: &CallId, mutant: Option<Mutant>) -> String {
    let mut others = state.world.tasks.keys().filter(|other| *other != call_id);
    match mutant {
        Some(Mutant::SwapsAnswers) => state.answer_to(others.next().unwrap_or(call_id)),
        Some(Mutant::AnswersFirst) => state.answer_to(call_id).replace("#1", "#0"),
        _ => state.answer_to(call_id),
    }
}

/// Changes the draft of a commit.
pub(super) fn draft(state: &State, draft: &mut CommitDraft, mutant: Option<Mutant>) {
    let log = state.world.log();
    match mutant {
        Some(Mutant::LosesEntry) => draft.events.retain(|event| !matches!(event, Event::EntryAppended(_))),
        Some(Mutant::RepeatsEntry) => {
            let entry = draft.events.iter().position(|event| matches!(event, Event::EntryAppended(_)));
            entry.into_iter().for_each(|at| draft.events.insert(at, draft.events[at].clone()));
        }
        Some(Mutant::AdoptsByKind) => {
            let kind = |event: &Event| match event {
                Event::TaskScheduled(task) => Some((task.kind.clone(), task.call_id.clone())),
                Event::ApprovalRequested(question) => Some((question.name.clone(), question.call_id.clone())),
                _ => None,
            };
            let left =
                |index: Index| draft.events.iter().any(|event| matches!(event, Event::SegmentAbandoned(to) if to.from <= index));
            let left: Vec<_> = log.events().filter(|(index, _)| left(*index)).filter_map(|(_, event)| kind(event)).collect();
            for event in &mut draft.events {
                let Some((of, call_id)) = kind(event) else { continue };
                let found = left.iter().find(|(kind, _)| *kind == of);
                found
                    .into_iter()
                    .for_each(|(_, from)| *event = CallAdopted { call_id: call_id.clone(), from: from.clone() }.into());
            }
        }
        Some(Mutant::RepeatsCalls) => {
            for event in &mut draft.events {
                let Event::CallAdopted(adopted) = &*event else { continue };
                let anew = recorded_calls::origin(log, &adopted.from).and_then(|call| call_anew(call, adopted.call_id.clone()));
                anew.into_iter().for_each(|anew| *event = anew);
            }
        }
        _ => {}
    }
}

/// Returns the same call at another place.
fn call_anew(call: &Event, call_id: CallId) -> Option<Event> {
    Some(match call {
        Event::TaskScheduled(task) => TaskScheduled { call_id, ..task.clone() }.into(),
        Event::ChildStarted(started) => {
            let child = RunId::new(format!("{}-anew", started.child)).expect("an id");
            ChildStarted { call_id, child, ..started.clone() }.into()
        }
        Event::PromiseCreated(promise) => PromiseCreated { call_id, ..promise.clone() }.into(),
        Event::ApprovalRequested(question) => ApprovalRequested { call_id, ..question.clone() }.into(),
        _ => return None,
    })
}

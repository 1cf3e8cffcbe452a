//! Scripted results of steps.
//!
//! A result belongs to the attempt that requested it first: after a crash the same attempt gets the same result, as from a
//! service that knows the idempotency key.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use onward_core::{CallId, Name, Payload};

use crate::Result;
use crate::host::cell::{StepAttempt, StepScript};
use onward_store::sync::lock;

/// Provides and records the steps of one run.
pub(super) struct Steps {
    answers: BTreeMap<Name, Vec<Result<Payload>>>,
    seen: Mutex<StepRequests>,
}

/// The requests so far.
#[derive(Default)]
pub(super) struct StepRequests {
    /// The position of the result that an attempt got: by generation, call id and number.
    given: BTreeMap<(u32, CallId, u32), usize>,
    next: BTreeMap<Name, usize>,
    /// The steps whose closures ran, as often as they ran.
    pub ran: Vec<String>,
    /// The scripted steps, as often as they were requested.
    pub scripted: Vec<String>,
}

impl Steps {
    pub fn new(answers: BTreeMap<Name, Vec<Result<Payload>>>) -> Steps {
        Steps { answers, seen: Mutex::default() }
    }

    pub fn seen(&self) -> MutexGuard<'_, StepRequests> {
        lock(&self.seen)
    }
}

impl StepScript for Steps {
    fn answer(&self, asked: &StepAttempt<'_>) -> Option<Result<Payload>> {
        let answers = self.answers.get(asked.name)?;
        let StepRequests { given, next, scripted, .. } = &mut *self.seen();
        let attempt = (asked.generation, asked.call_id.clone(), asked.attempt);
        let position = *given.entry(attempt).or_insert_with(|| {
            let next = next.entry(asked.name.clone()).or_default();
            *next += 1;
            *next - 1
        });
        scripted.push(asked.name.to_string());
        // The last result repeats.
        answers.get(position).or(answers.last()).cloned()
    }

    fn ran(&self, name: &Name) {
        self.seen().ran.push(name.to_string());
    }
}

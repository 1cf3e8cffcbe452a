//! What a script answers steps with, in place of their closures.
//!
//! An answer belongs to the attempt that asked for it first: after a crash the same attempt gets the same answer again, as a service
//! that knows the idempotency key would give it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use onward_core::{Name, Payload, Place};

use crate::Result;
use crate::host::cell::{StepAttempt, StepScript};

/// Answers and lists the steps of one run.
pub(super) struct Steps {
    answers: BTreeMap<Name, Vec<Result<Payload>>>,
    seen: Mutex<Seen>,
}

/// What has been asked so far.
#[derive(Default)]
pub(super) struct Seen {
    /// Which answer of its name an attempt got: by generation, place and number.
    given: BTreeMap<(u32, Place, u32), usize>,
    next: BTreeMap<Name, usize>,
    /// The steps whose closures ran, each as often as it ran.
    pub ran: Vec<String>,
    /// The steps that the script answered, each as often as it was asked.
    pub scripted: Vec<String>,
}

impl Steps {
    pub fn new(answers: BTreeMap<Name, Vec<Result<Payload>>>) -> Steps {
        Steps { answers, seen: Mutex::default() }
    }

    pub fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StepScript for Steps {
    fn answer(&self, asked: &StepAttempt<'_>) -> Option<Result<Payload>> {
        let answers = self.answers.get(asked.name)?;
        let Seen { given, next, scripted, .. } = &mut *self.seen();
        let attempt = (asked.generation, asked.place.clone(), asked.attempt);
        let position = *given.entry(attempt).or_insert_with(|| {
            let next = next.entry(asked.name.clone()).or_default();
            *next += 1;
            *next - 1
        });
        scripted.push(asked.name.to_string());
        // The last answer stands for everything that comes after it.
        answers.get(position).or(answers.last()).cloned()
    }

    fn ran(&self, name: &Name) {
        self.seen().ran.push(name.to_string());
    }
}

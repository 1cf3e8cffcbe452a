//! The outcome of a scripted run, with its log.

use std::time::Duration;

use onward_core::{Event, Failure, Log, Payload};
use serde::de::DeserializeOwned;

use super::script::update_id;
use crate::Result;

/// The outcome of a scripted run.
pub struct ScriptOutcome {
    pub(super) result: Option<Result<Payload>>,
    /// One log per generation.
    pub(super) logs: Vec<Log>,
    pub(super) elapsed: Duration,
    pub(super) steps_run: Vec<String>,
    pub(super) steps_scripted: Vec<String>,
    pub(super) waits_for: Vec<String>,
}

impl ScriptOutcome {
    /// Returns the workflow's result.
    ///
    /// # Panics
    /// Panics if the run failed, is still waiting, or returned something else than a `T`.
    #[track_caller]
    pub fn output<T: DeserializeOwned>(&self) -> T {
        match &self.result {
            Some(Ok(payload)) => payload.read().expect("the output is of the expected type"),
            Some(Err(failure)) => panic!("the workflow failed: {failure}"),
            None => panic!("the workflow still waits for {}", self.waits_for.join(", ")),
        }
    }

    /// Returns the failure of the run.
    ///
    /// # Panics
    /// Panics if it did not fail.
    #[track_caller]
    pub fn failure(&self) -> &Failure {
        match &self.result {
            Some(Err(failure)) => failure,
            Some(Ok(payload)) => panic!("the workflow returned {payload:?}"),
            None => panic!("the workflow still waits for {}", self.waits_for.join(", ")),
        }
    }

    /// Returns the result or failure of the run; `None` if it is open.
    pub fn result(&self) -> Option<&Result<Payload>> {
        self.result.as_ref()
    }

    /// Returns descriptions of the calls that an open run awaits.
    pub fn waits_for(&self) -> &[String] {
        &self.waits_for
    }

    pub fn is_open(&self) -> bool {
        self.result.is_none()
    }

    /// Returns whether the run was canceled.
    pub fn is_canceled(&self) -> bool {
        self.events().any(|event| matches!(event, Event::RunCanceled(_)))
    }

    /// Returns the result of the `nth` update of the script, counted from zero.
    ///
    /// # Panics
    /// Panics if it has no result, or one that is not a `T`.
    #[track_caller]
    pub fn update<T: DeserializeOwned>(&self, nth: usize) -> Result<T> {
        let answer = self.events().find_map(|event| match event {
            Event::UpdateAnswered(answer) if answer.update_id == update_id(nth) => Some(answer.result.clone()),
            _ => None,
        });
        let payload = answer.unwrap_or_else(|| panic!("update {nth} of the script was not answered"))?;
        Ok(payload.read().expect("the answer is of the expected type"))
    }

    /// Returns the inputs with which the run continued as new, in order.
    ///
    /// # Panics
    /// Panics if one of them is not a `T`.
    #[track_caller]
    pub fn continued_with<T: DeserializeOwned>(&self) -> Vec<T> {
        let inputs = self.events().filter_map(|event| match event {
            Event::RunContinued(continued) => Some(continued.input.read()),
            _ => None,
        });
        inputs.collect::<std::result::Result<_, _>>().expect("the input of the next generation is of the expected type")
    }

    /// Returns the log of the last generation.
    pub fn log(&self) -> &Log {
        self.logs.last().expect("a run has a log")
    }

    /// Returns the logs of all generations, oldest first: one more than the run has continued as new.
    pub fn logs(&self) -> &[Log] {
        &self.logs
    }

    pub(super) fn events(&self) -> impl Iterator<Item = &Event> {
        self.logs.iter().flat_map(Log::events).map(|(_, event)| event)
    }

    /// Returns the virtual time that the run took.
    pub fn elapsed(&self) -> Duration {
        self.elapsed
    }

    /// Returns the steps whose closures ran, in order and as often as they ran. Scripted steps are not among them.
    pub fn steps_run(&self) -> &[String] {
        &self.steps_run
    }

    /// Returns the scripted steps, in order and as often as they were requested: once more for an attempt that a crash
    /// interrupted.
    pub fn steps_scripted(&self) -> &[String] {
        &self.steps_scripted
    }
}

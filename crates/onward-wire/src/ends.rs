//! The stream of the outcomes of many runs.

use onward_core::{Failure, Payload, RunKey, message};

use crate::Problem;

message! {
    /// Runs that the caller of AwaitEnds awaits from now on, and runs that it no longer awaits. A run may be repeated.
    #[derive(Default)]
    pub struct AwaitFrame { 1 => runs: Vec<RunKey>, 2 => forget: Vec<RunKey> }

    pub struct EndsFrame { 1 => ends: Vec<End> }

    /// The outcome of one awaited run, or the error of reading it. The run is no longer awaited.
    pub struct End {
        1 => run: RunKey,
        /// Absent if there is a problem.
        2 => outcome: Option<Result<Payload, Failure>>,
        3 => problem: Option<Problem>,
    }
}

//! Events of schedules (see [`crate::schedule`]).

use crate::message;
use crate::schedule::{ScheduleChange, ScheduleInput};

message! {
    /// At a schedule: an input, and what it changed.
    pub struct ScheduleDecided {
        1 => input: ScheduleInput,
        /// Filled in at admission.
        2 => changes: Vec<ScheduleChange>,
    }
}

impl ScheduleDecided {
    /// Returns the event of an input that is not decided yet.
    pub fn asked(input: ScheduleInput) -> ScheduleDecided {
        ScheduleDecided { input, changes: Vec::new() }
    }
}

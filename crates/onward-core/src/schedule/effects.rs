//! The effects of changes on the world outside of a schedule.

use super::head::{Firing, ScheduleChange, ScheduleHead};
use super::spec::Overlap;
use crate::{RunId, Timestamp};

/// An effect of a decision, to be carried out in the write that records it. Each may be repeated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScheduleEffect {
    /// Start a run with the target of the definition. If a run of this id exists, the firing ends as [`Ending::Existed`].
    Start(Firing),
    /// Request the cancellation of a run.
    Cancel {
        number: u32,
        run: RunId,
    },
    Terminate {
        number: u32,
        run: RunId,
    },
    /// Replace the timer of the schedule.
    Wake(Option<Timestamp>),
}

impl ScheduleHead {
    /// Returns the effects of changes.
    pub fn effects(changes: &[ScheduleChange]) -> Vec<ScheduleEffect> {
        changes.iter().filter_map(ScheduleHead::effect).collect()
    }

    /// Returns the effect of a change, if it has one.
    pub fn effect(change: &ScheduleChange) -> Option<ScheduleEffect> {
        match change {
            ScheduleChange::Started(firing) => Some(ScheduleEffect::Start(firing.clone())),
            ScheduleChange::Stopping(stopping) => {
                let (number, run) = (stopping.number, stopping.run.clone());
                match stopping.policy {
                    Overlap::TerminateOther => Some(ScheduleEffect::Terminate { number, run }),
                    _ => Some(ScheduleEffect::Cancel { number, run }),
                }
            }
            ScheduleChange::Wake(wake) => Some(ScheduleEffect::Wake(wake.at)),
            _ => None,
        }
    }
}

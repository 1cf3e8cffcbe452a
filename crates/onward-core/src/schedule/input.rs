//! The inputs of schedules, and their refusals.

use super::head::Ended;
use super::spec::{Overlap, ScheduleDefinition, SpecError};
use crate::internal::InternalRuns;
use crate::{Name, TASK_KIND_PREFIX, Timestamp, choice, error_enum, message};

/// The number of backfills that may be under way.
pub(super) const BACKFILLS_MAX: usize = 20;

/// The number of slots of one backfill.
pub const BACKFILL_SLOTS_MAX: u32 = 10_000;

/// The maximum length of the id of a schedule, so that it fits into those of its runs.
const ID_BYTES_MAX: usize = 150;

/// The maximum length of the id of a request.
const REQUEST_ID_BYTES_MAX: usize = 64;

message! {
    pub struct PauseSchedule { 1 => note: String }
    pub struct ResumeSchedule { 1 => note: String }

    /// A request for a run at once.
    pub struct TriggerSchedule {
        1 => request_id: Name,
        /// The policy of the schedule if absent.
        2 => overlap: Option<Overlap>,
        /// The name of the credential that requests it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        3 => requested_by: Option<String>,
    }

    /// A request for the slots from `from` on and before `until`.
    pub struct BackfillSchedule {
        1 => request_id: Name,
        2 => from: Timestamp,
        3 => until: Timestamp,
        /// `buffer_all` if absent.
        4 => overlap: Option<Overlap>,
        /// The name of the credential that requests it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        5 => requested_by: Option<String>,
    }

    /// Ends a backfill: slots that have not been started stay without a run.
    pub struct CancelBackfill {
        /// All backfills if absent.
        1 => request_id: Option<Name>,
    }

    /// The timer of the schedule is due.
    pub struct ScheduleDue {}
}

choice! {
    /// An input of a schedule.
    pub enum ScheduleInput {
        1 => Define / "define": Box<ScheduleDefinition>,
        2 => Pause / "pause": PauseSchedule,
        3 => Resume / "resume": ResumeSchedule,
        4 => Trigger / "trigger": TriggerSchedule,
        5 => Backfill / "backfill": BackfillSchedule,
        6 => Due / "due": ScheduleDue,
        7 => Ended / "ended": Ended,
        8 => CancelBackfill / "cancel_backfill": CancelBackfill,
    }
}

error_enum! {
    /// A rejected input. Nothing changes.
    #[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
    pub enum ScheduleRefusal {
        #[error(transparent)]
        Spec(#[from] SpecError) => (error),
        #[error("a schedule id has at most {ID_BYTES_MAX} bytes, none of `/` and `@`, and no reserved prefix such as `schedule:`")]
        Id => ScheduleInvalid hint() "the id is part of the ids of the runs that the schedule starts",
        #[error("a request id has at most {REQUEST_ID_BYTES_MAX} bytes, and no `/`")]
        RequestId => ScheduleInvalid hint() "the id is part of the id of the run that it starts",
        #[error("the range of a backfill ends before it begins, or in the future")]
        Range => ScheduleInvalid hint() "a backfill starts slots of the past",
        #[error("{BACKFILLS_MAX} backfills of schedule {id} are under way")]
        TooManyBackfills { id: Name } => ScheduleInvalid hint() "wait until one of them has ended, or cancel one",
        #[error("the range of a backfill has more than {BACKFILL_SLOTS_MAX} slots")]
        TooManySlots => ScheduleInvalid hint() "split the range into several backfills",
        #[error("schedule {id} has no such backfill under way")]
        NoBackfill { id: Name } => ScheduleInvalid hint() "`onward schedule show` lists the backfills that are under way",
    }
}

/// Refuses ids that do not fit into those of runs.
pub(super) fn check_id(id: &Name) -> Result<(), ScheduleRefusal> {
    // Runs of a schedule `memo:x` would have ids that are reserved for cells (SR4).
    let reserved = InternalRuns::ALL.into_iter().map(InternalRuns::prefix).chain([TASK_KIND_PREFIX]);
    let is_reserved = reserved.into_iter().any(|prefix| id.as_str().starts_with(prefix));
    if is_reserved || id.as_str().len() > ID_BYTES_MAX || id.as_str().contains(['/', '@']) {
        return Err(ScheduleRefusal::Id);
    }
    Ok(())
}

/// Refuses ids that do not fit into those of runs.
pub(super) fn check_request_id(id: &Name) -> Result<(), ScheduleRefusal> {
    if id.as_str().len() > REQUEST_ID_BYTES_MAX || id.as_str().contains('/') {
        return Err(ScheduleRefusal::RequestId);
    }
    Ok(())
}

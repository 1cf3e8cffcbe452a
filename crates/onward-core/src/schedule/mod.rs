//! Schedules: work that starts by the clock.
//!
//! Owns every decision about a schedule: which times are its slots ([`slots`]), and what happens when one is due ([`head`],
//! [`decide`]). A slot is a nominal time of the specification; jitter delays its start, never its identity. Must never read a clock
//! or a file: time is passed in, and the database of time zones is part of the program.
//!
//! Invariants of slots:
//! - SL1: the slots of a specification are the same on every server and for every question: `next_slot` and `slots` agree.
//! - SL2: slots have a strict order, and jitter keeps it: a slot is due before the next slot.
//! - SL3: a local time that does not exist is due at the end of the gap; one that comes twice is due the first time. A pattern that
//!   selects every hour follows elapsed time instead: it skips the gap and has both passes.
//! - SL4: the work of one question is bounded, whatever the specification, and no input panics.
//!
//! Invariants of decisions:
//! - SC1 (L23): the clock decides a slot once. The run of a slot has an id that follows from schedule and slot, so that a repeated
//!   start, a backfill and a second server meet the same run.
//! - SC2: no slot starts before it is due by the time that was passed in.
//! - SC3: unless the policy is `allow_all`, a run starts only when none is running.
//! - SC4: each slot that the clock has passed was started, buffered, or skipped with a reason.
//! - SC5: the lists of the head and the work of one decision are bounded.
//! - SC6: buffered slots start in the order in which they were buffered, or are discarded with a reason.
//! - SC7: a repeated input changes nothing: the end of a run that is not running, a pause of a paused schedule, an equal definition.
//! - SC8: while a schedule is paused, the clock starts nothing; requests of people do.
//! - SC9: the head after a decision follows from the head before and the changes alone: no zone or pattern is evaluated again.
//! - SC10: a firing whose id belongs to another run is in the history as `existed`, and is not counted as started.
//! - SC11: a backfill does not start a slot that is running, waits, or had a run by the history, even if that run was deleted.

mod calendar;
mod decide;
mod effects;
mod field;
mod head;
mod input;
mod pattern;
mod slots;
mod spec;
mod zone;

pub use decide::Decision;
pub use effects::ScheduleEffect;
pub use head::{
    BackfillRange, Buffered, Discarded, Ended, Ending, Firing, FiringCause, HISTORY_MAX, HistoryEntry, Paused, RUNNING_MAX,
    RunningFiring, ScheduleChange, ScheduleHead, ScheduleStart, SkipReason, Skipped, SlotContext, Stopping, Totals, run_of,
    trigger_of,
};
pub use input::{
    BACKFILL_SLOTS_MAX, BackfillSchedule, CancelBackfill, PauseSchedule, ResumeSchedule, ScheduleDue, ScheduleInput,
    ScheduleRefusal, TriggerSchedule,
};
pub use slots::{NextSlot, SlotPage, Slots};
pub use spec::{
    BUFFER_MAX, Calendar, Interval, Overlap, ScheduleDefinition, ScheduleOptions, ScheduleSpec, ScheduleTarget, SpecError,
};

pub use zone::{LocalTime, local_time};

#[cfg(test)]
mod tests;

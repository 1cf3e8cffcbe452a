//! Start policies: how repeated starts of runs with one key are combined.
//!
//! Owns every decision about a *cell*: the state of one kind, policy and key. [`decide`] returns what a start, a due timer or the
//! end of a run changes; [`head`] applies changes. Must never read a clock: time is passed in.
//!
//! Invariants:
//! - SP1: a singleton cell has at most one open run that it started.
//! - SP2: every run id that a start answers with belongs to a run that is started once, or was started; no held start is dropped
//!   without another one in its place.
//! - SP3: a debounced run starts with the last input, not before its due time, and with a due time at most `window` after the last
//!   start and at most the shortest `max_wait` of its starts after the first.
//! - SP4: a batch has each input once, in the order of the starts, and is due at most the shortest `window` of its starts after the
//!   first. It has at most [`BATCH_BYTES_MAX`] bytes of inputs.
//! - SP5: a run has the credential, the budget and the options of the start whose input it has; starts with other ones are never
//!   in one batch.
//! - SP6: the head after a decision follows from the head before, the input and the changes alone.
//! - SP7: a repeated input changes nothing: the end of a run that is not open, a timer that is not due.
//! - SP8: a cell that holds no start and has no open run ends within [`KEPT_FOR`] of its creation or at once, whichever is later.

mod cell;
mod decide;
mod head;
mod input;
mod policy;

pub use cell::{PolicyCell, context_of, policy_of};
pub use decide::PolicyDecision;
pub use head::{
    CellClosed, HeldStart, HoldAdded, HoldOpened, HoldReplaced, HoldStarted, NextWake, OpenRun, OpenRunCanceled, PolicyChange,
    PolicyHead, PolicyStart, RunOptions, StartSkipped,
};
pub use input::{PolicyAsk, PolicyDue, PolicyInput, StartAnswer, StartOutcome, StartPolicyRefusal};
pub use policy::{Batch, Debounce, OnConflict, PolicyType, Singleton, StartPolicy};

use std::time::Duration;

/// The time for which a cell remembers request ids, at least: a cell does not end earlier, and is kept as long after its end.
pub const KEPT_FOR: Duration = Duration::from_hours(24);

/// The maximum length of a key, in bytes.
pub const KEY_BYTES_MAX: usize = 1_024;

/// The maximum length of an input, in bytes: it is part of the state of its cell until the run starts.
pub const INPUT_BYTES_MAX: usize = 64 * 1024;

/// The maximum number of inputs of a batch.
pub const BATCH_SIZE_MAX: u32 = 1_000;

/// The maximum length of all inputs of a batch, in bytes.
pub const BATCH_BYTES_MAX: usize = 128 * 1024;

/// The longest window, and the longest wait.
pub const WINDOW_MAX: Duration = Duration::from_hours(30 * 24);

#[cfg(test)]
mod tests;

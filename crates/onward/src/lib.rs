//! Durable execution: async functions that survive crashes.
//!
//! A workflow is an ordinary async function. Onward records the results of its steps, tasks, timers and signals in a log. After a
//! crash, or when a run that waited for weeks is woken, the function resumes from that log. Acknowledged inputs are never lost,
//! and a step whose result is recorded never runs again.

pub mod agent;
mod builder;
pub mod check;
mod client;
pub mod combine;
pub mod ctx;
pub mod encryption;
mod error;
#[cfg(feature = "flows")]
pub mod flow;
mod host;
pub mod middleware;
mod names;
mod registry;
#[cfg(feature = "remote")]
mod remote;
mod schedule;
pub mod shell;
pub mod task;
pub mod testing;
#[cfg_attr(not(feature = "remote"), allow(dead_code, reason = "spans are exported only with the feature `remote`"))]
mod trace;
mod worker;

pub use builder::{Builder, Defaults, WITHIN};
pub use client::fork::Fork;
pub use client::{
    Attached, Backfill, Branch, Driven, Entries, EntryPages, LiveRun, MemoKeys, Onward, RunHandle, RunInput, RunStream,
    ScheduleHandle, Start, StartTask, StartWithPolicy, StartedWithPolicy, TaskHandle, Trigger, Triggered,
};
pub use combine::{join_all, join_all_settled, race};
pub use ctx::{Answered, Ctx, Memo};
#[cfg(feature = "encryption")]
pub use encryption::{Encryption, EncryptionKey};
pub use error::{Error, RegisterError};
pub use names::{Signal, Task, Workflow};
pub use onward_core::api::{
    Appended, AppendedEntry, BlockReason, Blocker, BulkDone, BulkRequest, BulkVerb, Decide, DeletedRun, Emitted, EntryPage,
    RunList, RunQuery, ScheduleView, TaskStatus, TaskView, TriggerOutcome, UpcomingSlot,
};
pub use onward_core::budget::{self, Budget};
pub use onward_core::conversation::{Entry, EntryCursor, PendingEntry};
pub use onward_core::engine::{CancelOutcome, Decision};
pub use onward_core::event::Event;
pub use onward_core::event::OnParentClose;
pub use onward_core::ledger;
pub use onward_core::live;
pub use onward_core::memo::MemoScope;
pub use onward_core::random::{RandomGenerator, RandomInteger};
pub use onward_core::schedule::{Calendar, Ending, FiringCause, HistoryEntry, Overlap, ScheduleSpec, SkipReason};
pub use onward_core::spend;
pub use onward_core::start_policy::{Batch, Debounce, OnConflict, Singleton, StartOutcome, StartPolicy};
pub use onward_core::stream;
pub use onward_core::task::{EffectClass, RetryPolicy};
pub use onward_core::trace::TraceContext;
pub use onward_core::view::{AwaitedKind, RunView};
pub use onward_core::{AttributeValue, Failure, Index, Log, Payload, Record, RunId, Status, Timestamp};
pub use onward_runtime::CallRef;
#[cfg(feature = "remote")]
pub use remote::{HttpAnswer, HttpClient, connect_client, connect_http};
pub use schedule::Schedule;
pub use task::TaskCtx;
#[cfg(feature = "remote")]
pub use trace::Otlp;
pub use worker::ReplayCheck;

/// The result type of workflows, steps and tasks.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

/// The imports that workflow code usually needs.
pub mod prelude {
    pub use crate::ctx::{Attempt, Ctx};
    pub use crate::time::{days, hours, mins, secs};
    pub use crate::{Decide, Memo, join, select, try_join};
    pub use crate::{Failure, Onward, Result, RetryPolicy, Signal, Task, TaskCtx, Workflow, join_all, join_all_settled, race};
}

/// Short constructors for durations.
pub mod time {
    use std::time::Duration;

    pub const fn secs(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    pub const fn mins(count: u64) -> Duration {
        secs(count * 60)
    }

    pub const fn hours(count: u64) -> Duration {
        mins(count * 60)
    }

    pub const fn days(count: u64) -> Duration {
        hours(count * 24)
    }
}

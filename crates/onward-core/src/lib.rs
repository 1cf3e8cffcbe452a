//! Vocabulary, log and replay engine of Onward.
//!
//! This crate makes decisions and has no side effects: no I/O, clock, randomness, threads or async. Time and seeds are passed in
//! as data. Stores, runtimes and SDKs carry out its decisions.
//!
//! Reading order: [`event`] (the facts), [`log`] (their order), [`run`] (admission: which events may be appended), [`task`] (work
//! on queues), [`external`] (logs of external engines), [`engine`] (replay of code against its log), [`view`] (a readable view of
//! a log), [`moment`] (the same as of an event), [`timeline`] (its calls with their times), [`live`] (what is under way), [`doing`] (one sentence about a run), [`conversation`] (an agent's conversation, derived from its logs), [`stream`] (live output of a run), [`projection`]
//! (rows that a store derives from a log), [`reopen`] (retry, fork and reset from a copy of a log), [`spend`] (cost of attempts),
//! [`queue`] (limits and shares of queues), [`quota`] (limits of namespaces), [`schedule`] (work that starts by the clock), [`ledger`] (sums of that cost), [`budget`] (limits on it), [`api`] (the verbs, with their requests and replies).

#![forbid(unsafe_code)]

mod agent;
pub mod api;
pub mod engine;
pub mod error_table;
pub mod failure;
pub mod hash;
pub mod id;
mod kind;
pub mod log;
pub mod payload;
pub mod queue;
pub mod quota;
pub mod random;
pub mod run;
pub mod schedule;
pub mod spend;
pub mod task;
pub mod time;
pub mod trace;

pub use error_table::{Consequence, ErrorCode, ErrorInfo};
pub use failure::{BoxError, FAILURE_BYTES_MAX, Failure, FailureError};
pub use hash::Hash;
pub use id::{
    Branch, CALL_ID_PARTS_MAX, CallId, Epoch, Index, NAME_BYTES_MAX, Name, NameError, Namespace, RunId, RunKey, WorkerId,
};
pub use kind::{
    DEFAULTS_KIND_PREFIX, FLOW_KIND_PREFIX, KindDefaults, KindSchemas, NamedSchema, TASK_KIND_PREFIX, TOOL_KIND_PREFIX,
    is_internal_task,
};
pub use log::event::Event;
pub use log::{CommitId, Log, Record};
pub use payload::Payload;
pub use run::attribute::{Attribute, AttributeMatch, AttributeValue};
pub use run::{RunHead, Status};
pub use time::Timestamp;

pub use agent::conversation;
pub use agent::stream;
pub use log::codec;
pub use log::event;
pub use log::external;
pub use log::projection;
pub use log::schema;
pub use log::transfer;
pub use run::ancestry;
pub use run::attribute;
pub use run::doing;
pub use run::internal;
pub use run::live;
pub use run::memo;
pub use run::moment;
pub use run::reopen;
pub use run::root as root_run;
pub use run::schedule as schedule_run;
pub use run::timeline;
pub use run::view;
pub use spend::budget;
pub use spend::ledger;

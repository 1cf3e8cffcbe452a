//! Vocabulary, log and replay engine of Onward.
//!
//! This crate decides and never touches the world: no I/O, no clock, no randomness, no threads, no async. Time and
//! seeds enter as data. Stores, runtimes and SDKs carry out what is decided here.
//!
//! Reading order: [`event`] (the facts), [`log`] (their order), [`run`] (what may be appended), [`task`] (work on
//! queues), [`external`] (logs of outside engines), [`engine`] (how code meets its log), [`view`] (what a log says to people), [`conversation`] (what an agent's logs say of its
//! conversation), [`stream`] (what is said while a run goes on),
//! [`projection`] (what a store keeps beside it), [`reopen`] (logs that go on from a copy), [`spend`] (what attempts cost),
//! [`ledger`] (what that comes to), [`budget`] (what it may come to).

#![forbid(unsafe_code)]

mod agent;
pub mod engine;
pub mod failure;
pub mod hash;
pub mod id;
mod kind;
pub mod log;
pub mod payload;
pub mod random;
pub mod run;
pub mod spend;
pub mod task;
pub mod time;
pub mod trace;

pub use failure::{BoxError, FAILURE_BYTES_MAX, Failure, FailureError};
pub use hash::Hash;
pub use id::{Branch, Epoch, Index, Name, NameError, Namespace, PLACE_PARTS_MAX, Place, RunId, RunKey, WorkerId};
pub use kind::{KindSchemas, TASK_KIND_PREFIX, TOOL_KIND_PREFIX, is_internal_task};
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
pub use run::ancestry as lineage;
pub use run::attribute;
pub use run::reopen;
pub use run::root as family;
pub use run::view;
pub use spend::budget;
pub use spend::ledger;

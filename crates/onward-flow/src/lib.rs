//! Flows: workflows as documents.
//!
//! A flow is a YAML or JSON document that names steps, the values that they pass on, and the ways between them. This crate parses
//! and checks documents ([`document`]), evaluates their expressions and templates ([`expression`]), and interprets a run of a flow
//! as a state machine ([`machine`]): it gets the answers of calls and returns the calls to make next. [`schema_rules`] are the rules
//! for JSON Schemas.
//!
//! Must never do I/O, read a clock or draw random numbers: a run of a flow is replayed from its log, and every replay must make
//! the same calls.

#![forbid(unsafe_code)]

#[cfg(feature = "documents")]
pub mod document;
#[cfg(feature = "documents")]
pub mod expression;
#[cfg(feature = "documents")]
pub mod graph;
#[cfg(feature = "documents")]
pub mod import;
#[cfg(feature = "documents")]
pub mod machine;
pub mod schema_rules;
#[cfg(feature = "documents")]
mod suggest;

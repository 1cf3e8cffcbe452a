//! The messages between servers, workers and clients.
//!
//! Owns every message that crosses a process boundary, in two forms from one definition: the log's own encoding, which is
//! protobuf and is used over gRPC, and JSON for HTTP. The `.proto` files under `proto/` are generated from these definitions
//! ([`proto`]). Makes no decisions, and knows of transports only how gRPC frames bytes.
//!
//! Reading order: [`worker`] (a worker's stream), [`api`] (the verbs), [`ends`] (outcomes of many runs), [`problem`] (errors), [`key`], [`grpc`].

#![forbid(unsafe_code)]

pub mod ends;
pub mod grpc;
pub mod key;
pub mod problem;
pub mod proto;
pub mod worker;

pub use key::ApiKey;
pub use onward_core::api;
pub use problem::Problem;

/// The protocol version of this build. Raised when an older peer could misunderstand; fields and frames may be added without
/// it.
pub const PROTOCOL: u32 = 1;

/// The compiled `proto/onward.proto`: a `FileDescriptorSet` without comments, for reflection.
pub const DESCRIPTOR: &[u8] = include_bytes!("../proto/onward.bin");

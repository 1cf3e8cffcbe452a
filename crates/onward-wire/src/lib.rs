//! What servers, workers and clients say to each other.
//!
//! Owns every message that crosses a process border, in two forms made from one definition: the log's own encoding, which is
//! protobuf's and travels over gRPC, and JSON for HTTP. The `.proto` files under `proto/` are printed from these definitions
//! ([`proto`]). Must never decide, and must not know a transport beyond how gRPC frames bytes.
//!
//! Reading order: [`worker`] (a worker's stream), [`api`] (what callers ask), [`problem`] (how a refusal travels), [`key`], [`grpc`].

#![forbid(unsafe_code)]

pub mod api;
pub mod grpc;
pub mod key;
pub mod problem;
pub mod proto;
pub mod worker;

pub use key::ApiKey;
pub use problem::Problem;

/// The protocol spoken by this build. Raised when an older peer could misunderstand; fields and frames may be added without.
pub const PROTOCOL: u32 = 1;

/// What `proto/onward.proto` says, compiled: a `FileDescriptorSet` without comments, for reflection.
pub const DESCRIPTOR: &[u8] = include_bytes!("../proto/onward.bin");

//! The global allocator of the programs `onward` and `onward-bench`: mimalloc.
//!
//! Commits are allocated on one thread and freed on another, which is slow with the system allocator (ADR 0028). A crate of its
//! own, because every allocation passes through it and the command itself is not optimized.

#![forbid(unsafe_code)]

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

//! What is said here can be read by others.

mod frames;
mod proto;

//! The native module `onward._native`: the bridge for Python, without a decision.
//!
//! It converts between the types of the bridge and tuples, and releases the GIL around calls that block or take long.
//! The threads of the bridge never wait for the GIL: they wake the event loop through a socket.

#![forbid(unsafe_code)]

// A test harness would be linked without an interpreter.
#[cfg(not(test))]
mod convert;
#[cfg(not(test))]
mod module;
#[cfg(not(test))]
mod wake;

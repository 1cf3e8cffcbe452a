//! Execution of workflow code: its future, wakers and threads, and detection of foreign awaits.

pub(crate) mod cell;
pub(crate) mod code;
pub(crate) mod executor;
pub(crate) mod foreign;
pub(crate) mod handlers;
pub(crate) mod replay;
pub(crate) mod stall;
pub(crate) mod wake;

//! Running workflow code: the future, its wakers, its threads, and what it must not await.

pub(crate) mod cell;
pub(crate) mod code;
pub(crate) mod executor;
pub(crate) mod foreign;
pub(crate) mod replay;
pub(crate) mod stall;
pub(crate) mod wake;

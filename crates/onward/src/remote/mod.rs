//! Onward over a network: the same functions, with the runtime in a server.
//!
//! Owns the connection. [`RemoteDoor`] is what a caller asks through, [`RemoteLink`] what a worker works through; both behave like
//! the runtime inside one process. Must never decide, and must never lose a frame that waits for an answer: after a lost connection
//! it is sent once more, and the server recognizes it.

mod channel;
mod door;
mod link;
mod problem;
mod trust;

pub(crate) use channel::Channel;
pub(crate) use door::RemoteDoor;
pub(crate) use link::RemoteLink;
pub(crate) use trust::Trust;

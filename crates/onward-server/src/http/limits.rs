//! How much a client may ask for, and how long it may take (S22, S25).

use std::time::Duration;

use onward_store::PAYLOAD_BYTES_MAX;

/// The longest page of a list.
pub(crate) const LIMIT_MAX: usize = 1_000;

pub use onward_runtime::JSON_DEPTH_MAX;

/// The longest that a request may wait for something to happen.
pub const WAIT_MAX: Duration = Duration::from_secs(60);

/// The limits of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The first line and all headers of a request.
    pub header_bytes_max: usize,
    pub headers_max: usize,
    /// From the first byte of a connection, or of the next request on it, to the end of the headers.
    pub header_timeout: Duration,
    pub body_bytes_max: usize,
    pub body_timeout: Duration,
    /// Bytes in a second with which a body over 64 KiB arrives, at least.
    pub body_rate_min: u64,
    /// Bytes of bodies over 64 KiB that are in memory at a time. A namespace holds at most as much as it leaves free; bodies beyond that
    /// wait their turn.
    pub body_memory_max: usize,
    /// The same for bodies of hooks, which are read before their sender is known: they use no memory that others need.
    pub hook_bytes_max: usize,
    pub hook_timeout: Duration,
    pub hook_memory_max: usize,
    /// How long a connection may rest between two requests.
    pub idle_timeout: Duration,
    /// How long a client may leave what was sent to it unread.
    pub write_timeout: Duration,
    /// When there are so many, the one that has rested longest makes place for the next.
    pub connections_max: usize,
    /// Requests at a time on one HTTP/2 connection.
    pub streams_max: u32,
    /// How long an attached reader may keep an event waiting before it is let go.
    pub slow_reader_timeout: Duration,
    /// How often an attached reader hears that nothing happened.
    pub keep_alive: Duration,
    /// How long requests may go on after the server was told to stop.
    pub shutdown_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            header_bytes_max: 16 * 1024,
            headers_max: 100,
            header_timeout: Duration::from_secs(10),
            // A whole payload and what is around it.
            body_bytes_max: PAYLOAD_BYTES_MAX + 64 * 1024,
            body_timeout: Duration::from_secs(30),
            body_rate_min: 16 * 1024,
            body_memory_max: 256 * 1024 * 1024,
            hook_bytes_max: 1024 * 1024,
            hook_timeout: Duration::from_secs(5),
            hook_memory_max: 8 * 1024 * 1024,
            idle_timeout: Duration::from_secs(75),
            write_timeout: Duration::from_secs(30),
            connections_max: 4_096,
            streams_max: 256,
            slow_reader_timeout: Duration::from_secs(15),
            keep_alive: Duration::from_secs(15),
            shutdown_timeout: Duration::from_secs(5),
        }
    }
}

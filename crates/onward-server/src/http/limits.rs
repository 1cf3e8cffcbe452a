//! Limits of requests and connections (S22, S25).

use std::time::Duration;

use onward_store::PAYLOAD_BYTES_MAX;

/// Maximum number of rows on a page of a list.
pub(crate) const LIMIT_MAX: usize = 1_000;

pub use onward_runtime::JSON_DEPTH_MAX;

/// Longest time that a request may wait.
pub const WAIT_MAX: Duration = Duration::from_secs(60);

/// Limits of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Size of the request line and all headers.
    pub header_bytes_max: usize,
    pub headers_max: usize,
    /// Time from the first byte of a connection, or of the next request on it, to the end of the headers.
    pub header_timeout: Duration,
    pub body_bytes_max: usize,
    pub body_timeout: Duration,
    /// Minimum rate in bytes per second of a body over 64 KiB.
    pub body_rate_min: u64,
    /// Memory for bodies over 64 KiB, in bytes. One namespace may hold at most as much as is free; other bodies wait in a queue.
    pub body_memory_max: usize,
    /// Limits of webhook bodies, which are read before the sender is authenticated and therefore have memory of their own.
    pub webhook_bytes_max: usize,
    pub webhook_timeout: Duration,
    pub webhook_memory_max: usize,
    /// Maximum idle time between two requests on a connection.
    pub idle_timeout: Duration,
    /// Maximum time that a client may leave sent data unread.
    pub write_timeout: Duration,
    /// Maximum number of connections; beyond it, the connection that has been idle longest is closed.
    pub connections_max: usize,
    /// Concurrent requests on one HTTP/2 connection.
    pub streams_max: u32,
    /// Maximum time that an event waits for an attached reader before the reader is disconnected.
    pub slow_reader_timeout: Duration,
    /// Interval of keep-alive comments to an attached reader.
    pub keep_alive: Duration,
    /// Time for open requests to end after the server was asked to stop.
    pub shutdown_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            header_bytes_max: 16 * 1024,
            headers_max: 100,
            header_timeout: Duration::from_secs(10),
            // The largest payload and the rest of its body.
            body_bytes_max: PAYLOAD_BYTES_MAX + 64 * 1024,
            body_timeout: Duration::from_secs(30),
            body_rate_min: 16 * 1024,
            body_memory_max: 256 * 1024 * 1024,
            webhook_bytes_max: 1024 * 1024,
            webhook_timeout: Duration::from_secs(5),
            webhook_memory_max: 8 * 1024 * 1024,
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

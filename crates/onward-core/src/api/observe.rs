//! Requests and replies that show how a run proceeds, and how many runs there are.

use crate::{AttributeMatch, Index, Name, Namespace, RunKey, Timestamp, message};

message! {
    /// A request for the calls of a run with their times.
    pub struct TimelineRequest {
        1 => run: RunKey,
        /// The current generation if absent.
        2 => generation: Option<u32>,
        /// 0 means the default.
        3 => limit: usize,
        /// End of the previous page.
        4 => cursor: Option<String>,
    }

    /// A request for a run as of an event of its log.
    pub struct MomentRequest {
        1 => run: RunKey,
        /// The current generation if absent.
        2 => generation: Option<u32>,
        3 => index: Index,
    }

    /// A query for numbers of runs.
    #[derive(Default)]
    pub struct CountQuery {
        1 => namespace: Namespace,
        /// Empty means any.
        2 => kinds: Vec<Name>,
        3 => created_from: Option<Timestamp>,
        4 => created_until: Option<Timestamp>,
        /// All of these must match.
        5 => attributes: Vec<AttributeMatch>,
    }

    pub struct CountsReply {
        1 => counts: StatusCounts,
        /// The number of runs that were read.
        2 => scanned: u64,
        /// False if there are more runs than were read, or if a database is down.
        3 => complete: bool,
    }

    /// The number of runs in each status.
    #[derive(Copy, Eq, Default)]
    pub struct StatusCounts {
        1 => pending: u64,
        2 => running: u64,
        3 => waiting: u64,
        4 => paused: u64,
        5 => completed: u64,
        6 => failed: u64,
        7 => canceled: u64,
        8 => terminated: u64,
    }

    /// A query for the starts and ends of runs over time.
    #[derive(Default)]
    pub struct ActivityQuery {
        1 => namespace: Namespace,
        /// Empty means any.
        2 => kinds: Vec<Name>,
        /// A day before `until` if absent.
        3 => from: Option<Timestamp>,
        /// Now if absent.
        4 => until: Option<Timestamp>,
        /// The number of equal parts of the time; 0 means the default.
        5 => buckets: u32,
    }

    pub struct ActivityReply {
        1 => from: Timestamp,
        2 => until: Timestamp,
        3 => bucket_ms: u64,
        4 => buckets: Vec<ActivityBucket>,
        /// False if runs were not read because there are too many, or if a database is down.
        5 => complete: bool,
    }

    /// The starts and ends of runs in one part of the time.
    #[derive(Copy, Eq)]
    pub struct ActivityBucket {
        /// Its beginning.
        1 => at: Timestamp,
        2 => started: u64,
        3 => completed: u64,
        4 => failed: u64,
        /// Terminated runs included.
        5 => canceled: u64,
    }
}

/// The largest number of parts of an activity.
pub const BUCKETS_MAX: u32 = 500;

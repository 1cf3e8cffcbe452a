//! What the protocol is made safe by, each of which can be left out to see that the model notices.

/// One guard of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    /// A commit is taken with the epoch of the newest claim alone (R1).
    Fence,
    /// Every claim raises the epoch (L7).
    EpochGrowth,
    /// The last commit is known by its id (R2).
    CommitId,
    /// A commit is taken with the next number alone (R1). Left out together with the id: without either, a repeat is another commit.
    CommitNumber,
    /// Time is what the database says, not what a server believes: of sessions and tasks, and of timers.
    DatabaseClock,
    TimerClock,
    /// Whoever claims a run looks again under its lock whether it is free (DB1).
    LeaseCheck,
    /// A release counts with the epoch of its claim alone.
    ReleaseEpoch,
    /// Who gets a run gets a session in the same write (DB5).
    SessionWithLease,
    /// A session stays as long as one of its worker's runs is locked (DB5).
    BusySession,
    /// Whoever ends a session has locked it before it looks for its runs (DB5).
    SessionLock,
    /// Whether a timer is still there is looked at under the lock of its run (L10).
    TimerUnderLock,
    /// A report counts with the number of its claim alone (K1).
    TaskClaim,
    /// A task whose row is gone has its result (L8).
    TaskRow,
    /// A task that somebody has leased is not given to anybody else, seen under its lock (K2).
    TaskLease,
    /// A signal is looked for in its slot before it is taken (L11).
    SignalSlot,
    /// A commit that waits over inputs that nobody has read leaves its run pending (R3).
    WakeOverUnread,
    /// Nobody is answered before the COMMIT has returned (DB6).
    AnswerBehindCommit,
    /// A worker that may have leases it does not know of finds out and gives them back (W1).
    LeasesCompared,
    /// An `at_most_once` task whose attempt may have begun is not queued again (K6).
    EndsOnce,
    /// The next execution of a task has the next attempt number (K9).
    AttemptNumbers,
    /// Whoever does not know whether an attempt has started does not say that it has not (V7).
    StartAssumed,
    /// What a server reports on its own about an attempt counts as long as the worker has not taken it along to another server (K10).
    SessionFence,
}

/// All guards but one, or all of them.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rules {
    pub without: Option<Guard>,
}

impl Rules {
    pub fn has(self, guard: Guard) -> bool {
        self.without != Some(guard)
    }
}

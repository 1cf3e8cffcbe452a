//! The guards of the protocol, each of which can be disabled to check that the model detects it.

/// One guard of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    /// A commit is accepted only with the epoch of the newest claim (R1).
    Fence,
    /// Every claim raises the epoch (L7).
    EpochGrowth,
    /// A repeat of the last commit is recognized by its id (R2).
    CommitId,
    /// A commit is accepted only with the next number (R1). Disabled together with the id: without either, a repeat is another
    /// commit.
    CommitNumber,
    /// Sessions and tasks go by the database clock, timers as well (`TimerClock`), not by the clock of a server.
    DatabaseClock,
    TimerClock,
    /// A claim checks again under the run's lock that the run is free (DB1).
    LeaseCheck,
    /// A release is accepted only with the epoch of its claim.
    ReleaseEpoch,
    /// A claim creates the worker's session in the same write (DB5).
    SessionWithLease,
    /// A session is not ended while one of its worker's runs is locked (DB5).
    BusySession,
    /// A session is locked before its runs are read and it is ended (DB5).
    SessionLock,
    /// A timer is checked again under the lock of its run (L10).
    TimerUnderLock,
    /// A report is accepted only with the number of its claim (K1).
    TaskClaim,
    /// A task without a row has its result (L8).
    TaskRow,
    /// A leased task is not claimed again, checked under its lock (K2).
    TaskLease,
    /// The idempotency record of a signal is checked before the signal is appended (L11).
    SignalSlot,
    /// A commit that waits over unread inputs leaves its run pending (R3).
    WakeOverUnread,
    /// No caller gets a reply before the COMMIT has returned (DB6).
    AnswerBehindCommit,
    /// A worker that may have leases it does not know of compares its leases and releases them (W1).
    LeasesCompared,
    /// An `at_most_once` task whose attempt may have begun is not queued again (K6).
    EndsOnce,
    /// The next execution of a task has the next attempt number (K9).
    AttemptNumbers,
    /// A server that does not know whether an attempt has started does not report it as not started (V7).
    StartAssumed,
    /// A server's own report about an attempt is accepted only while the worker has not moved to another server (K10).
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

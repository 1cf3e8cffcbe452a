//! Time limit for a database that does not respond.
//!
//! Owns the end of a connection on which nothing moves, because the process at its other end has stopped or the network drops
//! everything: pending statements fail as lost. Must never give up a database because this process itself was suspended, and
//! never end a statement that is known to be slow.
//!
//! Invariants:
//! - DB11: every statement ends, with a result or as lost, when nothing has moved on its connection for its time limit. Slow
//!   statements have a longer limit, migrations none.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;
use tokio_postgres::{AsyncMessage, Connection, Socket};

use crate::connection::tls::Stream;

/// Number of parts of the limit: a process that was suspended wakes up to one elapsed part, not to all of them.
const PARTS: u32 = 4;
/// Factor of the limit for slow statements.
const LONG: u32 = 20;

/// Time limit class of statements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum TimeLimit {
    #[default]
    Normal,
    /// May read or delete much before its first result.
    Long,
    /// Changes tables, or waits for a concurrent migration.
    Unlimited,
}

impl TimeLimit {
    fn parts_max(self) -> u32 {
        match self {
            TimeLimit::Normal => PARTS,
            TimeLimit::Long => PARTS * LONG,
            TimeLimit::Unlimited => u32::MAX,
        }
    }
}

/// State that the client and the driver task of a connection share.
pub(crate) struct Watch {
    pub limit: Duration,
    waiting: Cell<usize>,
    time_limit: Cell<TimeLimit>,
    /// The connection was dropped because of silence.
    pub was_silent: Cell<bool>,
}

impl Watch {
    pub fn new(limit: Duration) -> Rc<Watch> {
        Rc::new(Watch { limit, waiting: Cell::default(), time_limit: Cell::default(), was_silent: Cell::default() })
    }

    /// Sets the time limit of the statements that follow; returns the previous one.
    pub fn set_time_limit(&self, time_limit: TimeLimit) -> TimeLimit {
        self.time_limit.replace(time_limit)
    }

    /// Marks a statement as pending until the returned guard is dropped.
    pub fn wait(&self) -> impl Drop + '_ {
        self.waiting.set(self.waiting.get() + 1);
        WaitGuard(self)
    }
}

struct WaitGuard<'a>(&'a Watch);

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        self.0.waiting.set(self.0.waiting.get() - 1);
    }
}

/// Drives a connection until it ends, or until it was silent for too long with a statement pending (DB11).
pub(crate) async fn carry(
    mut connection: Connection<Socket, Stream>,
    watch: Rc<Watch>,
    mut on_message: impl FnMut(AsyncMessage),
) {
    let part = watch.limit / PARTS;
    let mut timer = pin!(tokio::time::sleep(part));
    let mut silent = 0;
    poll_fn(|cx| {
        let is_part_over = timer.as_mut().poll(cx).is_ready();
        while let Poll::Ready(message) = connection.poll_message(cx) {
            match message {
                Some(Ok(message)) => on_message(message),
                // Pending statements fail with the error.
                Some(Err(_)) | None => return Poll::Ready(()),
            }
        }
        // Any other wakeup is progress: received bytes, room to send, a new statement.
        if !is_part_over {
            silent = 0;
            return Poll::Pending;
        }
        // A connection without a client has as much time to close.
        let is_waited_for = watch.waiting.get() > 0 || Rc::strong_count(&watch) == 1;
        silent = if is_waited_for { silent + 1 } else { 0 };
        // The first part may have begun before the statement.
        if silent > watch.time_limit.get().parts_max() {
            watch.was_silent.set(true);
            return Poll::Ready(());
        }
        timer.as_mut().reset(Instant::now() + part);
        if timer.as_mut().poll(cx).is_ready() {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    })
    .await;
}

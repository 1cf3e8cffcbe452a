//! How long the database may be silent while somebody waits for it.
//!
//! Owns the end of a connection on which nothing moves any more, because the process at its other end stands still or whatever is in
//! between swallows everything: whoever waits is told that the connection is lost. Must never take a database for dead because this
//! process itself stood still, nor end what is known to take long.
//!
//! Invariants:
//! - DB11: every statement ends, with an answer or as lost, when nothing has moved on its connection for as long as it may take. What is
//!   known to take long may take longer; changes of the tables may take as long as they want.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;
use tokio_postgres::{AsyncMessage, Connection, Socket};

use crate::connection::tls::Stream;

/// Silence is counted in parts: a process that stood still itself wakes up to one part that is over, and not to all of them.
const PARTS: u32 = 4;
/// By how much longer a statement may be silent that is known to take long.
const LONG: u32 = 20;

/// What is known of how long a statement takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Patience {
    #[default]
    Usual,
    /// It may read or delete much before it says anything.
    Long,
    /// It changes tables, or waits for others who do.
    Endless,
}

impl Patience {
    fn parts_max(self) -> u32 {
        match self {
            Patience::Usual => PARTS,
            Patience::Long => PARTS * LONG,
            Patience::Endless => u32::MAX,
        }
    }
}

/// What the two ends of a connection in this process know of each other.
pub(crate) struct Watch {
    limit: Duration,
    waiting: Cell<usize>,
    patience: Cell<Patience>,
    was_silent: Cell<bool>,
}

impl Watch {
    pub fn new(limit: Duration) -> Rc<Watch> {
        Rc::new(Watch { limit, waiting: Cell::default(), patience: Cell::default(), was_silent: Cell::default() })
    }

    /// What is asked from now on may take so long; returns what it was before.
    pub fn be(&self, patience: Patience) -> Patience {
        self.patience.replace(patience)
    }

    /// Somebody waits for as long as what this returns is there.
    pub fn wait(&self) -> impl Drop + '_ {
        self.waiting.set(self.waiting.get() + 1);
        Wait(self)
    }

    /// Whether the connection was given up because nothing came any more.
    pub fn was_silent(&self) -> bool {
        self.was_silent.get()
    }

    pub fn limit(&self) -> Duration {
        self.limit
    }
}

struct Wait<'a>(&'a Watch);

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.0.waiting.set(self.0.waiting.get() - 1);
    }
}

/// Carries what goes over a connection until it ends, or until it has been silent for too long while somebody waits (DB11).
pub(crate) async fn carry(mut connection: Connection<Socket, Stream>, watch: Rc<Watch>, mut heard: impl FnMut(AsyncMessage)) {
    let part = watch.limit / PARTS;
    let mut timer = pin!(tokio::time::sleep(part));
    let mut silent = 0;
    poll_fn(|cx| {
        let is_part_over = timer.as_mut().poll(cx).is_ready();
        while let Poll::Ready(message) = connection.poll_message(cx) {
            match message {
                Some(Ok(message)) => heard(message),
                // Whoever waits meets the error.
                Some(Err(_)) | None => return Poll::Ready(()),
            }
        }
        // Whatever else has woken us has moved something: bytes that came, room for more of them, a question.
        if !is_part_over {
            silent = 0;
            return Poll::Pending;
        }
        // One that nobody has any more says goodbye in as much time.
        let is_waited_for = watch.waiting.get() > 0 || Rc::strong_count(&watch) == 1;
        silent = if is_waited_for { silent + 1 } else { 0 };
        // The first part may have begun before the question.
        if silent > watch.patience.get().parts_max() {
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

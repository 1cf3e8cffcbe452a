//! Sending and receiving of notifications.
//!
//! Owns the connection that listens and sends. Notifications are sent after the commit, in a separate transaction: they are
//! optional, and a NOTIFY inside of transactions would serialize all their commits. While no other server is heard, none are
//! sent. Cluster broadcasts (`onward.broadcasts`) are rows with a notification; if notifications do not arrive, the rows are polled.
//!
//! A server that does not receive its own notifications, because of a pooler or a lost connection, receives none of others.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use onward_core::Timestamp;
use onward_store::Change;
use onward_store::sync;
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::connection::sql::{Db, Sql};
use crate::error::Outcome;
use crate::notify::message::{Words, parse};
use crate::shared::ServerShared;

/// Delay that lets notifications accumulate.
const PACE: Duration = Duration::from_millis(5);
/// Interval of a server's announcements, and how long one counts.
const HELLO_EVERY: Duration = Duration::from_secs(10);
const BELIEVED_FOR: Duration = Duration::from_secs(30);
/// Interval of polling for broadcasts without notifications, and delay before a broken connection is replaced.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Lifetime of a broadcast; a server that has not read it by then was down.
pub(crate) const BROADCAST_MILLIS: i64 = 30_000;

#[derive(Default)]
pub(crate) struct Notifications {
    state: Mutex<ListenerState>,
    wake: Notify,
}

#[derive(Default)]
struct ListenerState {
    /// The notification to send next.
    words: Words,
    /// When another server was last heard, and when this one.
    others_at: Option<Instant>,
    own_at: Option<Instant>,
    /// Broadcasts that were read, or written here.
    read: BTreeSet<i64>,
}

impl ListenerState {
    fn is_alone(&self) -> bool {
        self.others_at.is_none_or(|at| at.elapsed() > BELIEVED_FOR)
    }
}

impl Notifications {
    fn lock(&self) -> MutexGuard<'_, ListenerState> {
        sync::lock(&self.state)
    }

    pub fn add(&self, changes: &[Change], due: Option<Timestamp>) {
        let mut state = self.lock();
        if state.is_alone() {
            return;
        }
        state.words.add(changes, due);
        drop(state);
        self.wake.notify_one();
    }

    /// Queues the notification for a broadcast that was written here.
    pub fn add_broadcast(&self, number: i64) {
        let mut state = self.lock();
        state.words.broadcasts.insert(number);
        state.read.insert(number);
        drop(state);
        self.wake.notify_one();
    }

    /// Returns whether notifications arrive: this server receives its own.
    pub fn can_receive(&self) -> bool {
        self.lock().own_at.is_some_and(|at| at.elapsed() < BELIEVED_FOR)
    }

    pub fn wake(&self) {
        self.wake.notify_one();
    }
}

/// Listens and sends while the store is open; reconnects when the connection breaks.
pub(crate) async fn run(shared: Arc<ServerShared>, listen: bool) {
    let mut is_first = true;
    loop {
        // Without listeners there is nothing to receive for.
        while !shared.has_listeners() {
            shared.notifications.wake.notified().await;
        }
        let opened = if listen { Db::listening(&shared.entrance).await } else { Db::deaf(&shared.entrance).await };
        if let Ok((db, mut payloads)) = opened {
            if !std::mem::take(&mut is_first) {
                shared.tell_change(&Change::Missed);
            }
            let _ = serve(&shared, &db, &mut payloads).await;
        }
        shared.notifications.lock().own_at = None;
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn serve(shared: &ServerShared, db: &Db, payloads: &mut UnboundedReceiver<String>) -> Outcome<()> {
    let mut hello = tokio::time::interval(HELLO_EVERY);
    let mut look = tokio::time::interval(LOOK_EVERY);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            payload = payloads.recv() => match payload {
                Some(payload) => hear(shared, db, &payload).await?,
                None => return Ok(()),
            },
            _ = hello.tick() => send(shared, db, true).await?,
            _ = look.tick() => {
                if !shared.notifications.can_receive() {
                    read_broadcasts(shared, db, None).await?;
                }
            }
            () = shared.notifications.wake.notified() => {
                send(shared, db, false).await?;
                tokio::time::sleep(PACE).await;
            }
        }
    }
}

async fn send(shared: &ServerShared, db: &Db, hello: bool) -> Outcome<()> {
    let words = std::mem::take(&mut shared.notifications.lock().words);
    if words.is_empty() && !hello {
        return Ok(());
    }
    let sql = Sql::new("SELECT pg_notify('onward', $1)").text(words.payload(&shared.server));
    // A notification need not wait for the disk.
    db.pipeline(Some("BEGIN; SET LOCAL synchronous_commit = off"), &[sql], Some("COMMIT")).await?;
    Ok(())
}

async fn hear(shared: &ServerShared, db: &Db, payload: &str) -> Outcome<()> {
    let Some((server, words)) = parse(payload) else { return Ok(()) };
    let is_new = {
        let mut state = shared.notifications.lock();
        if server == shared.server {
            state.own_at = Some(Instant::now());
            return Ok(());
        }
        let was_alone = state.is_alone();
        state.others_at = Some(Instant::now());
        was_alone
    };
    if is_new {
        send(shared, db, true).await?;
    }
    // Broadcasts, the output of a task for example, come before the end of the task.
    if !words.broadcasts.is_empty() {
        read_broadcasts(shared, db, Some(words.broadcasts)).await?;
    }
    if words.has_deliveries || words.is_cut || !words.work.is_empty() {
        shared.pulse.stir();
    }
    shared.tell_here(Vec::new(), words.due);
    words.grown.into_iter().for_each(|(run, ends)| shared.tell_change(&Change::Elsewhere { run, ends }));
    words.work.into_iter().for_each(|namespace| shared.tell_change(&Change::WorkElsewhere { namespace }));
    if words.has_deliveries {
        shared.tell_change(&Change::OutboxGrew);
    }
    if words.is_cut {
        shared.tell_change(&Change::Missed);
    }
    Ok(())
}

/// Reads the broadcasts with these numbers, or all. Each is published once. No number is used as a cursor, because a broadcast
/// with a lower number may be committed later.
async fn read_broadcasts(shared: &ServerShared, db: &Db, numbers: Option<BTreeSet<i64>>) -> Outcome<()> {
    let sql = match numbers {
        Some(numbers) => {
            let text = "SELECT id, data FROM onward.broadcasts WHERE id = ANY($1) ORDER BY id";
            Sql::new(text).numbers(numbers.into_iter().collect())
        }
        None => Sql::new("SELECT id, data FROM onward.broadcasts ORDER BY id"),
    };
    let rows = db.query(&sql).await?;
    for row in &rows {
        let is_new = shared.notifications.lock().read.insert(row.get(0));
        if is_new {
            shared.tell_change(&Change::Broadcast { message: row.get(1) });
        }
    }
    let mut state = shared.notifications.lock();
    while state.read.len() > 10_000 {
        state.read.pop_first();
    }
    Ok(())
}

//! Sending and receiving of notifications.
//!
//! Owns the connection that listens and sends. Notifications are sent after the commit, in a separate transaction: they are
//! optional, and a NOTIFY inside of transactions would serialize all their commits. While no other server sends notifications, none are
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
use crate::notify::message::{Notice, parse};
use crate::shared::ServerShared;

/// Delay that lets notifications accumulate.
const PACE: Duration = Duration::from_millis(5);
/// Interval of a server's announcements, and how long one counts.
const HELLO_EVERY: Duration = Duration::from_secs(10);
const BELIEVED_FOR: Duration = Duration::from_secs(30);
/// Interval of polling for broadcasts without notifications, and delay before a broken connection is replaced.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
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
    notice: Notice,
    /// When the last notification of another server arrived, and when the last of this one.
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
        state.notice.add(changes, due);
        drop(state);
        self.wake.notify_one();
    }

    /// Queues the notification for a broadcast that was written here.
    pub fn add_broadcast(&self, number: i64) {
        let mut state = self.lock();
        state.notice.broadcasts.insert(number);
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
        let opened = if listen { Db::listening(&shared.connector).await } else { Db::without_listen(&shared.connector).await };
        if let Ok((db, mut payloads)) = opened {
            if !std::mem::take(&mut is_first) {
                shared.notify_listeners(&Change::Missed);
            }
            let _ = serve(&shared, &db, &mut payloads).await;
        }
        shared.notifications.lock().own_at = None;
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

async fn serve(shared: &ServerShared, db: &Db, payloads: &mut UnboundedReceiver<String>) -> Outcome<()> {
    let mut hello = tokio::time::interval(HELLO_EVERY);
    let mut poll = tokio::time::interval(POLL_INTERVAL);
    poll.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            payload = payloads.recv() => match payload {
                Some(payload) => handle_notification(shared, db, &payload).await?,
                None => return Ok(()),
            },
            _ = hello.tick() => send(shared, db, true).await?,
            _ = poll.tick() => {
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
    let notice = std::mem::take(&mut shared.notifications.lock().notice);
    if notice.is_empty() && !hello {
        return Ok(());
    }
    let sql = Sql::new("SELECT pg_notify('onward', $1)").text(notice.payload(&shared.server));
    // A notification need not wait for the disk.
    db.pipeline(Some("BEGIN; SET LOCAL synchronous_commit = off"), &[sql], Some("COMMIT")).await?;
    Ok(())
}

async fn handle_notification(shared: &ServerShared, db: &Db, payload: &str) -> Outcome<()> {
    let Some((server, notice)) = parse(payload) else { return Ok(()) };
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
    if !notice.broadcasts.is_empty() {
        read_broadcasts(shared, db, Some(notice.broadcasts)).await?;
    }
    if notice.has_deliveries || notice.is_cut || !notice.work.is_empty() {
        shared.idle_cache.invalidate();
    }
    shared.publish_local(Vec::new(), notice.due);
    notice.grown.into_iter().for_each(|(run, ends)| shared.notify_listeners(&Change::Elsewhere { run, ends }));
    notice.work.into_iter().for_each(|namespace| shared.notify_listeners(&Change::WorkElsewhere { namespace }));
    if notice.has_deliveries {
        shared.notify_listeners(&Change::OutboxGrew);
    }
    if notice.is_cut {
        shared.notify_listeners(&Change::Missed);
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
            shared.notify_listeners(&Change::Broadcast { message: row.get(1) });
        }
    }
    let mut state = shared.notifications.lock();
    while state.read.len() > 10_000 {
        state.read.pop_first();
    }
    Ok(())
}

//! Background jobs of a runtime.
//!
//! Two tasks, because a store that is slow to fire timers must not delay heartbeats: one ticks, one sends heartbeats. Over a
//! shared store two more read what other servers wrote and answer their queries. All sleep until something is due, are woken by
//! notifications, and poll once per fallback, so an idle process makes one query per fallback.

pub(crate) mod outbox;
pub(crate) mod tick;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use onward_core::Timestamp;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::Runtime;
use crate::cluster::broadcast::LISTENING_PACE;

/// Minimum sleep, so that work that stays due cannot spin.
const SLEEP_MIN: Duration = Duration::from_millis(1);

/// Delay before another read of a run that was announced as changed while its claim is under way.
const SOON: Duration = Duration::from_millis(20);

/// Wakes the background jobs when something is due earlier than expected.
pub(crate) struct Alarm {
    /// The earliest due time since the last `take`; `u64::MAX` if there is none.
    due: AtomicU64,
    outbox_grew: AtomicBool,
    wakeup: Notify,
    /// Wakes the heartbeat task: a worker has joined and needs a session.
    pub joined: Notify,
}

impl Default for Alarm {
    fn default() -> Alarm {
        Alarm { due: AtomicU64::new(u64::MAX), outbox_grew: AtomicBool::new(false), wakeup: Notify::new(), joined: Notify::new() }
    }
}

impl Alarm {
    pub fn due_at(&self, at: Timestamp) {
        if self.due.fetch_min(at.0, Ordering::SeqCst) > at.0 {
            self.wakeup.notify_one();
        }
    }

    pub fn outbox_grew(&self) {
        if !self.outbox_grew.swap(true, Ordering::SeqCst) {
            self.wakeup.notify_one();
        }
    }

    /// Returns and clears the earliest due time, and whether the outbox has messages.
    pub fn take(&self) -> (Option<Timestamp>, bool) {
        let due = self.due.swap(u64::MAX, Ordering::SeqCst);
        ((due != u64::MAX).then_some(Timestamp(due)), self.outbox_grew.swap(false, Ordering::SeqCst))
    }
}

/// The background jobs of a runtime. Dropping it aborts them.
#[must_use = "background jobs stop when this is dropped"]
pub struct Background {
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
}

impl Runtime {
    /// Starts the background jobs on the current tokio runtime.
    pub fn spawn(&self) -> Background {
        let (stop, stopped) = watch::channel(false);
        let ticks = tokio::spawn(run_ticks(self.clone(), stopped.clone()));
        let sessions = tokio::spawn(keep_sessions(self.clone(), stopped.clone()));
        let mut tasks = vec![ticks, sessions];
        if self.store().is_shared() {
            tasks.push(tokio::spawn(follow_others(self.clone(), stopped.clone())));
            tasks.push(tokio::spawn(relay_broadcasts(self.clone(), stopped)));
        }
        Background { stop, tasks }
    }

    /// Returns the time to sleep until `at`, bounded by the fallback.
    fn sleep_until(&self, at: Option<Timestamp>) -> Duration {
        let fallback = self.options().fallback;
        let until = at.map_or(fallback, |at| at.since(self.clock().now()));
        until.clamp(SLEEP_MIN, fallback.max(SLEEP_MIN))
    }
}

impl Background {
    /// Stops after the current pass.
    pub async fn stop(mut self) {
        // The receivers are dropped only when the tasks have ended.
        self.stop.send_replace(true);
        for task in std::mem::take(&mut self.tasks) {
            drop(task.await);
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

async fn run_ticks(runtime: Runtime, mut stopped: watch::Receiver<bool>) {
    while !*stopped.borrow() {
        let tick = runtime.tick().await;
        let mut until = tick.next_due;
        // After an error, sleep for the whole fallback: the work that failed may still be due.
        if tick.error.is_some() {
            until = None;
        }
        loop {
            let sleep = runtime.sleep_until(until);
            let alarm = &runtime.hub().alarm;
            if let WakeReason::By(hint) = wait(sleep, alarm.wakeup.notified(), &mut stopped).await {
                if !hint {
                    return;
                }
                let (due, outbox_grew) = alarm.take();
                until = [until, due].into_iter().flatten().min();
                let is_due = until.is_some_and(|until| until <= runtime.clock().now());
                if !outbox_grew && !is_due {
                    continue;
                }
            }
            break;
        }
    }
}

async fn keep_sessions(runtime: Runtime, mut stopped: watch::Receiver<bool>) {
    while !*stopped.borrow() {
        let next = runtime.beat_sessions().await;
        let sleep = runtime.sleep_until(next);
        if let WakeReason::By(false) = wait(sleep, runtime.hub().alarm.joined.notified(), &mut stopped).await {
            return;
        }
    }
}

/// Reads what other processes wrote: announced runs at once, all runs once per fallback.
async fn follow_others(runtime: Runtime, mut stopped: watch::Receiver<bool>) {
    let mut whole = Instant::now();
    let mut soon = false;
    while !*stopped.borrow() {
        let until = whole + runtime.options().fallback;
        let sleep = if soon { SOON } else { until.saturating_duration_since(Instant::now()) };
        if let WakeReason::By(false) = wait(sleep, runtime.hub().elsewhere.wakeup.notified(), &mut stopped).await {
            return;
        }
        let all = Instant::now() >= until;
        if all {
            whole = Instant::now();
        }
        soon = runtime.catch_up(all).await.unwrap_or(false);
    }
}

async fn relay_broadcasts(runtime: Runtime, mut stopped: watch::Receiver<bool>) {
    // A deadline and not a pause: wakeups must not delay the announcements, which other servers forget.
    let mut announce_at = Instant::now() + LISTENING_PACE;
    while !*stopped.borrow() {
        let sleep = announce_at.saturating_duration_since(Instant::now());
        if let WakeReason::By(false) = wait(sleep, runtime.hub().broadcast.wakeup.notified(), &mut stopped).await {
            return;
        }
        let is_time = Instant::now() >= announce_at;
        if is_time {
            announce_at = Instant::now() + LISTENING_PACE;
        }
        runtime.exchange_broadcasts(is_time).await;
    }
}

enum WakeReason {
    ByTime,
    /// By a notification (true) or by the stop request (false).
    By(bool),
}

async fn wait(sleep: Duration, hint: impl Future<Output = ()>, stopped: &mut watch::Receiver<bool>) -> WakeReason {
    let stop = stopped.changed();
    let (mut hint, mut stop) = (std::pin::pin!(hint), std::pin::pin!(stop));
    let either = std::future::poll_fn(|cx| {
        if stop.as_mut().poll(cx).is_ready() {
            return std::task::Poll::Ready(false);
        }
        hint.as_mut().poll(cx).map(|()| true)
    });
    match tokio::time::timeout(sleep, either).await {
        Ok(hint) => WakeReason::By(hint),
        Err(_) => WakeReason::ByTime,
    }
}

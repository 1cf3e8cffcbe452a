//! Worker sessions: heartbeats to the store, and detection of lost sessions.
//!
//! Sends the heartbeats of the workers of this process. A worker that the store has forgotten, or that could not reach it for
//! two thirds of its lease, loses all its runs before others can claim them, so it stops before it becomes a zombie (L7, F13).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use onward_core::Timestamp;
use onward_core::task::TaskReport;
use onward_store::StoreError;
use onward_store::sync::lock;
use tokio::task::JoinSet;

use crate::Runtime;
use crate::worker::local::give_back;
use crate::worker::profile::Worker;

pub(crate) struct Session {
    /// When the last answered heartbeat was sent. Times here are monotonic, so that setting the clock has no effect.
    last_seen_at: Timestamp,
    next_beat: Timestamp,
    /// The store has acknowledged the worker before: only then can it have forgotten it.
    met: bool,
}

impl Session {
    pub fn new(now: Timestamp) -> Session {
        Session { last_seen_at: now, next_beat: now, met: false }
    }

    /// Sets when the next heartbeat is due.
    pub fn beat_at(&mut self, at: Timestamp) {
        self.next_beat = at;
    }

    /// Returns true if a heartbeat is due, which the caller then has to send.
    fn begin_beat(&mut self, now: Timestamp, pace: Duration) -> bool {
        let due = self.next_beat <= now;
        if due {
            self.next_beat = now.after(pace);
        }
        due
    }
}

impl Runtime {
    /// Sends the heartbeats that are due; returns when the next one is.
    pub(crate) async fn beat_sessions(&self) -> Option<Timestamp> {
        let workers = self.hub().workers.list();
        for worker in &workers {
            let due = lock(&worker.session).begin_beat(self.clock().steady(), self.options().lease / 3);
            if due {
                let lease = self.options().lease;
                // A remote worker's session is extended up to its lease since the last sign of life, not since this check
                // (F13).
                match lease.checked_sub(worker.silence(self.clock().steady())).filter(|remaining| !remaining.is_zero()) {
                    Some(remaining) => {
                        self.beat_session(worker, remaining).await;
                        self.beat_tasks(worker, remaining).await;
                    }
                    None => {
                        if !worker.away.swap(true, Ordering::SeqCst) {
                            self.lose_runs(worker);
                        }
                        worker.lease_expired.notify_waiters();
                    }
                }
            }
        }
        let next = workers.iter().map(|worker| lock(&worker.session).next_beat).min()?;
        Some(self.clock().now().after(next.since(self.clock().steady())))
    }

    /// Renews the lease of a worker.
    async fn beat_session(&self, worker: &Arc<Worker>, remaining: Duration) {
        let (lease, requested_at) = (self.options().lease, self.clock().steady());
        let beat = self.store().heartbeat(worker.profile.id.clone(), remaining);
        let known = match tokio::time::timeout(lease / 3, beat).await {
            Ok(Ok(known)) => Some(known),
            Ok(Err(_)) | Err(_) => None,
        };
        let mut session = lock(&worker.session);
        match known {
            Some(known) => {
                session.last_seen_at = requested_at;
                let forgotten = std::mem::replace(&mut session.met, true) && !known;
                drop(session);
                if forgotten {
                    self.lose_runs(worker);
                }
                let came_back = worker.away.swap(worker.has_left.load(Ordering::SeqCst), Ordering::SeqCst);
                if came_back {
                    worker.runs.want();
                    worker.tasks.want();
                }
            }
            None => {
                let now = self.clock().steady();
                session.next_beat = now.after(lease / 12);
                let silent = now.since(session.last_seen_at) >= lease * 2 / 3;
                drop(session);
                if silent && !worker.away.swap(true, Ordering::SeqCst) {
                    self.lose_runs(worker);
                }
            }
        }
    }

    /// Drops everything that the worker holds. A run that was claimed after the store forgot the worker is still leased to it,
    /// so all leases are released too, which has no effect on those that others have by now (W1). For those that the store has
    /// ended, it shows that the worker is alive (CW3).
    fn lose_runs(&self, worker: &Arc<Worker>) {
        let (runtime, worker, runs) = (self.clone(), worker.clone(), worker.runs.drain());
        let claims = self.hub().inboxes.lose_all(&worker);
        // The process of a silent worker may be gone; if not, the worker shows its claims when it connects again.
        if !worker.is_silent(self.clock().steady(), self.options().lease) {
            worker.leases.add_lost(claims);
        }
        tokio::spawn(async move {
            give_back(&runtime, &worker, runs, Vec::new()).await;
            runtime.release_lost(&worker).await;
        });
    }

    /// Extends the leases of tasks without their own heartbeats.
    async fn beat_tasks(&self, worker: &Arc<Worker>, lease: Duration) {
        let mut beats = JoinSet::new();
        for (id, claim) in worker.held.kept_alive() {
            let (runtime, worker) = (self.clone(), worker.clone());
            beats.spawn(async move {
                let beat = TaskReport::Heartbeat { progress: None }.by_session(worker.profile.id.clone());
                let answer = runtime.store().report_task(id.clone(), claim, beat, lease).await;
                if matches!(answer, Err(StoreError::TaskAttemptOver(_))) {
                    worker.held.end(&id, claim);
                }
            });
        }
        while beats.join_next().await.is_some() {}
    }
}

//! Keeping workers known to the store, and noticing when they are not.
//!
//! Owns the heartbeats of the workers of this process. A worker that the store has forgotten, or that could not reach it for two thirds
//! of its lease, is told that every run is lost before others can have them; so it stops before it becomes a zombie (L7, F13).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use onward_core::Timestamp;
use onward_core::task::TaskReport;
use onward_store::StoreError;
use tokio::task::JoinSet;

use crate::Runtime;
use crate::by_run::lock;
use crate::worker::local::give_back;
use crate::worker::profile::Worker;

pub(crate) struct Session {
    /// When the store last answered, by a time before it was asked. All times here are steady ones: a clock that is set silences nobody.
    heard_at: Timestamp,
    next_beat: Timestamp,
    /// The store has heard of the worker before: only then can it have forgotten it.
    met: bool,
}

impl Session {
    pub fn new(now: Timestamp) -> Session {
        Session { heard_at: now, next_beat: now, met: false }
    }

    /// The next heartbeat is due then.
    pub fn beat_at(&mut self, at: Timestamp) {
        self.next_beat = at;
    }

    /// Whether a heartbeat is due, which then is the caller's to send.
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
                // A worker elsewhere is vouched for until its lease has passed since it was heard of, not since we looked (F13).
                match lease.checked_sub(worker.silence(self.clock().steady())).filter(|left| !left.is_zero()) {
                    Some(left) => {
                        self.beat_session(worker, left).await;
                        self.beat_tasks(worker, left).await;
                    }
                    None => {
                        if !worker.away.swap(true, Ordering::SeqCst) {
                            self.lose_runs(worker);
                        }
                        worker.fell_silent.notify_waiters();
                    }
                }
            }
        }
        let next = workers.iter().map(|worker| lock(&worker.session).next_beat).min()?;
        Some(self.clock().now().after(next.since(self.clock().steady())))
    }

    async fn beat_session(&self, worker: &Arc<Worker>, left: Duration) {
        let (lease, asked_at) = (self.options().lease, self.clock().steady());
        let beat = self.store().heartbeat(worker.profile.id.clone(), left);
        let known = match tokio::time::timeout(lease / 3, beat).await {
            Ok(Ok(known)) => Some(known),
            Ok(Err(_)) | Err(_) => None,
        };
        let mut session = lock(&worker.session);
        match known {
            Some(known) => {
                session.heard_at = asked_at;
                let forgotten = std::mem::replace(&mut session.met, true) && !known;
                drop(session);
                if forgotten {
                    self.lose_runs(worker);
                }
                let came_back = worker.away.swap(worker.left.load(Ordering::SeqCst), Ordering::SeqCst);
                if came_back {
                    worker.runs.want();
                    worker.tasks.want();
                }
            }
            None => {
                let now = self.clock().steady();
                session.next_beat = now.after(lease / 12);
                let silent = now.since(session.heard_at) >= lease * 2 / 3;
                drop(session);
                if silent && !worker.away.swap(true, Ordering::SeqCst) {
                    self.lose_runs(worker);
                }
            }
        }
    }

    /// What the worker holds is lost. But a run that was claimed after the store forgot the worker, and before we heard of it, is still
    /// leased to it: so everything is given back too, which does no harm to what others have by now (W1).
    fn lose_runs(&self, worker: &Arc<Worker>) {
        let (runtime, worker, runs) = (self.clone(), worker.clone(), worker.runs.drain());
        self.hub().inboxes.lose_all(&worker);
        tokio::spawn(async move { give_back(&runtime, &worker, runs, Vec::new()).await });
    }

    /// Extends the leases of the tasks that cannot do it themselves.
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

//! Live notices of watched runs: what workers and servers know and the log does not have.
//!
//! A run is watched while a reader of it exists, at this server or another one. For any other run, a notice costs one read of a
//! counter. Notices are not recorded; the log is the source of truth about a run.
//!
//! Invariants:
//! - LW1: a notice never waits for a reader. A reader that falls behind is dropped and has to begin again.
//! - LW2: a worker reports the steps of a run only while it is watched, and lists all of them on each request.
//! - LW3: notices of a run reach its readers at other servers on the store; if they are lost, the next list of steps repairs it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onward_core::live::{ActiveCall, LiveContent, LiveFrame, StepsReport, TaskProgress, TaskStarted};
use onward_core::task::{Task, TaskId};
use onward_core::{Payload, RunHead, RunKey, Status, choice, message};
use onward_store::sync::lock;
use tokio::sync::broadcast;
use tokio::time::Instant;

use crate::Runtime;
use crate::by_run::ByRun;
use crate::cluster::Hub;
use crate::worker::running_tasks::HeldTasks;

/// Number of notices that a reader may fall behind.
const BEHIND_MAX: usize = 1_024;

/// Number of notices that wait to be sent to other servers, and the bound on their payloads in bytes; further ones are dropped.
const OUTGOING_MAX: usize = 1_024;
const OUTGOING_BYTES_MAX: usize = 4 * 1024 * 1024;

/// How long a reader waits for the list of steps of a worker.
const STEPS_MAX: Duration = Duration::from_millis(500);

choice! {
    /// A notice about a watched run.
    pub(crate) enum LiveNotice {
        1 => Frame / "frame": LiveFrame,
        2 => Steps / "steps": StepsReport,
    }
}

message! {
    /// A notice for readers at other servers.
    pub(crate) struct ForwardedNotice { 1 => run: RunKey, 2 => notice: LiveNotice }
}

#[derive(Default)]
pub(crate) struct Live {
    runs: ByRun<Watched>,
    outgoing: Mutex<(Vec<ForwardedNotice>, usize)>,
    /// A local reader was added.
    has_reader: AtomicBool,
}

struct Watched {
    sender: broadcast::Sender<LiveNotice>,
    /// Number of readers here.
    readers: usize,
    /// Until when readers at other servers count.
    elsewhere: Option<Instant>,
}

impl Watched {
    fn new() -> Watched {
        Watched { sender: broadcast::channel(BEHIND_MAX).0, readers: 0, elsewhere: None }
    }

    fn is_over(&self, now: Instant) -> bool {
        self.readers == 0 && self.elsewhere.is_none_or(|until| until <= now)
    }
}

impl Live {
    pub fn is_watched(&self, run: &RunKey) -> bool {
        self.runs.update(run, |_| ()).is_some()
    }

    /// Sends a notice to the readers of the run, if there are any. Returns true if it waits to be sent to other servers.
    fn send(&self, run: &RunKey, notice: impl FnOnce() -> LiveNotice) -> bool {
        let forwarded = self.runs.update(run, |watched| {
            let notice = notice();
            let is_elsewhere = watched.elsewhere.is_some_and(|until| until > Instant::now());
            let forwarded = is_elsewhere.then(|| ForwardedNotice { run: run.clone(), notice: notice.clone() });
            drop(watched.sender.send(notice)); // fails if there is no reader here, which is fine
            forwarded
        });
        let Some(forwarded) = forwarded.flatten() else { return false };
        let (mut outgoing, bytes) = (lock(&self.outgoing), forwarded.payload_bytes());
        if outgoing.0.len() < OUTGOING_MAX && outgoing.1 + bytes <= OUTGOING_BYTES_MAX {
            outgoing.0.push(forwarded);
            outgoing.1 += bytes;
        }
        true
    }

    /// Delivers a notice of another server to the readers here.
    pub fn deliver(&self, ForwardedNotice { run, notice }: ForwardedNotice) {
        self.runs.update(&run, |watched| drop(watched.sender.send(notice)));
    }

    /// Registers a reader at another server.
    pub fn want(&self, run: &RunKey, until: Instant) {
        self.runs.edit(run, |watched| watched.get_or_insert_with(Watched::new).elsewhere = Some(until));
    }

    /// Returns the runs that have readers here, if a reader was added or `is_time`.
    pub fn announced(&self, is_time: bool) -> Vec<RunKey> {
        let mut runs = Vec::new();
        if (self.has_reader.swap(false, Ordering::SeqCst) || is_time) && !self.runs.is_empty() {
            self.runs.each(|run, watched| runs.extend((watched.readers > 0).then(|| run.clone())));
        }
        runs
    }

    pub fn take_outgoing(&self) -> Vec<ForwardedNotice> {
        std::mem::take(&mut *lock(&self.outgoing)).0
    }

    fn join(&self, run: &RunKey) -> broadcast::Receiver<LiveNotice> {
        let notices = self.runs.edit(run, |watched| {
            let watched = watched.get_or_insert_with(Watched::new);
            watched.readers += 1;
            watched.sender.subscribe()
        });
        self.has_reader.store(true, Ordering::SeqCst);
        notices
    }

    fn leave(&self, run: &RunKey) {
        self.runs.update(run, |watched| watched.readers -= 1);
    }

    /// Forgets the run unless it has readers; returns true if it did.
    fn forget(&self, run: &RunKey) -> bool {
        let now = Instant::now();
        self.runs.edit(run, |watched| watched.take_if(|watched| watched.is_over(now)).is_some())
    }
}

impl ForwardedNotice {
    fn payload_bytes(&self) -> usize {
        let mut bytes = 128;
        onward_core::codec::Field::visit_payloads(&self.notice, &mut |payload| bytes += payload.data().len());
        bytes
    }
}

impl Hub {
    /// Stops the reports of workers about runs that have no readers any more.
    pub fn unwatch(&self, run: &RunKey) {
        if !self.live.forget(run) {
            return;
        }
        self.inboxes.watch(run, false);
        if self.live.is_watched(run) {
            self.inboxes.watch(run, true); // a reader came in between
        }
    }

    /// Stops the reports for readers at other servers that are gone.
    pub fn unwatch_expired(&self) {
        if self.live.runs.is_empty() {
            return;
        }
        let (now, mut over) = (Instant::now(), Vec::new());
        self.live.runs.each(|run, watched| over.extend(watched.is_over(now).then(|| run.clone())));
        over.iter().for_each(|run| self.unwatch(run));
    }
}

/// A reader of the notices of one run.
pub(crate) struct LiveReader {
    hub: Arc<Hub>,
    run: RunKey,
    pub notices: broadcast::Receiver<LiveNotice>,
}

impl Drop for LiveReader {
    fn drop(&mut self) {
        self.hub.live.leave(&self.run);
        self.hub.unwatch(&self.run);
    }
}

impl Runtime {
    /// Sends a frame to the readers of a run, if there are any. Not recorded.
    pub(crate) fn send_live(&self, run: &RunKey, content: impl FnOnce() -> LiveContent) {
        self.send_notice(run, || LiveNotice::Frame(LiveFrame { at: self.clock().now(), content: content() }));
    }

    /// Reports the start of an attempt of a task.
    pub(crate) fn publish_task_start(&self, task: &Task) {
        self.send_live(&task.id.run, || {
            let (generation, call_id, name) = (task.id.generation, task.id.call_id.clone(), task.kind.clone());
            let (attempt, worker) = (task.attempt, task.worker.clone());
            LiveContent::TaskStarted(TaskStarted { generation, call_id, name, attempt, worker })
        });
    }

    /// Reports the progress of an attempt of a task.
    pub(crate) fn publish_progress(&self, id: &TaskId, claim: u64, held: &HeldTasks, progress: Payload) {
        let (Some(name), Some((attempt, ..))) = (held.kind(id, claim), held.attempt(id, claim)) else { return };
        let (generation, call_id) = (id.generation, id.call_id.clone());
        let progress = TaskProgress { generation, call_id, name, attempt, progress };
        self.send_live(&id.run, || LiveContent::TaskProgress(progress));
    }

    pub(crate) fn send_notice(&self, run: &RunKey, notice: impl FnOnce() -> LiveNotice) {
        if self.hub().live.send(run, notice) {
            self.hub().broadcast.wakeup.notify_one();
        }
    }

    /// Returns whether readers of the run exist, at this server or another one.
    pub fn is_watched(&self, run: &RunKey) -> bool {
        self.hub().live.is_watched(run)
    }

    /// Reads the notices of a run from now on.
    pub(crate) fn read_notices(&self, run: &RunKey) -> LiveReader {
        let notices = self.hub().live.join(run);
        if self.store().is_shared() {
            self.hub().broadcast.wakeup.notify_one();
        }
        LiveReader { hub: self.hub().clone(), run: run.clone(), notices }
    }

    /// Returns the steps of a run that are under way, from a new list of its worker; none if it does not come in time. Passes
    /// other notices that arrive meanwhile to `others`.
    pub(crate) async fn list_steps(
        &self,
        head: &RunHead,
        reader: &mut LiveReader,
        mut others: impl FnMut(LiveNotice),
    ) -> Vec<ActiveCall> {
        if !matches!(head.status, Status::Running | Status::Paused) || head.is_task || head.external.is_some() {
            return Vec::new();
        }
        // The worker of a run that is not held here may be at another server, which answers the announcement of the reader.
        let is_elsewhere = || self.store().is_shared() && head.status == Status::Running;
        if !self.hub().inboxes.watch(&head.key, true).unwrap_or_else(is_elsewhere) {
            return Vec::new();
        }
        let until = Instant::now() + STEPS_MAX;
        loop {
            match tokio::time::timeout_at(until, reader.notices.recv()).await {
                Ok(Ok(LiveNotice::Steps(report))) if report.is_complete => {
                    let generation = report.generation;
                    return report.steps.into_iter().map(|step| ActiveCall::of_step(generation, step)).collect();
                }
                Ok(Ok(notice)) => others(notice),
                Ok(Err(broadcast::error::RecvError::Lagged(_))) => {}
                Ok(Err(broadcast::error::RecvError::Closed)) | Err(_) => return Vec::new(),
            }
        }
    }
}

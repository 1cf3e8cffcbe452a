//! Live notices of watched runs: what workers and servers know and the log does not have.
//!
//! A run is watched while a reader of it exists, at this server or another one. For any other run, a notice costs one read of a
//! counter. Notices are not recorded; the log is the source of truth about a run.
//!
//! Invariants:
//! - LW1: a notice never waits for a reader. A reader that falls behind, by count or by bytes, is dropped and has to begin again.
//! - LW2: a worker reports the steps of a run only while it is watched, and lists all of them on each request.
//! - LW3: notices of a run reach its readers at other servers on the store; if they are lost, the next list of steps repairs it.

use std::collections::VecDeque;
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

/// Number of notices that a reader may fall behind, and the bound on their payloads in bytes.
const BEHIND_MAX: usize = 1_024;
const BEHIND_BYTES_MAX: usize = 16 * 1024 * 1024;

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

#[derive(Default)]
struct Watched {
    /// The channel to the readers here; `None` without readers.
    channel: Option<NoticeChannel>,
    /// Number of readers here.
    readers: usize,
    /// Until when readers at other servers count.
    elsewhere: Option<Instant>,
}

/// A channel to the readers of one run, bounded by the number and the size of notices.
struct NoticeChannel {
    sender: broadcast::Sender<Arc<LiveNotice>>,
    /// The sizes of the notices that a reader has not taken yet, and their sum.
    sizes: VecDeque<usize>,
    bytes: usize,
}

impl Default for NoticeChannel {
    fn default() -> NoticeChannel {
        NoticeChannel { sender: broadcast::channel(BEHIND_MAX).0, sizes: VecDeque::new(), bytes: 0 }
    }
}

impl NoticeChannel {
    fn send(&mut self, notice: LiveNotice) {
        let (size, unread) = (payload_bytes(&notice), self.sender.len());
        while self.sizes.len() > unread {
            self.bytes -= self.sizes.pop_front().unwrap_or_default();
        }
        if self.bytes + size > BEHIND_BYTES_MAX {
            *self = NoticeChannel::default(); // closes the channel of the readers (LW1)
            return;
        }
        self.bytes += size;
        self.sizes.push_back(size);
        drop(self.sender.send(Arc::new(notice))); // fails without a reader, which is fine
    }
}

impl Watched {
    fn send(&mut self, notice: LiveNotice) {
        if let Some(channel) = &mut self.channel {
            channel.send(notice);
        }
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
            watched.send(notice);
            forwarded
        });
        let Some(forwarded) = forwarded.flatten() else { return false };
        let (mut outgoing, bytes) = (lock(&self.outgoing), payload_bytes(&forwarded.notice));
        if outgoing.0.len() < OUTGOING_MAX && outgoing.1 + bytes <= OUTGOING_BYTES_MAX {
            outgoing.0.push(forwarded);
            outgoing.1 += bytes;
        }
        true
    }

    /// Delivers a notice of another server to the readers here.
    pub fn deliver(&self, ForwardedNotice { run, notice }: ForwardedNotice) {
        self.runs.update(&run, |watched| watched.send(notice));
    }

    /// Registers a reader at another server.
    pub fn want(&self, run: &RunKey, until: Instant) {
        self.runs.edit(run, |watched| watched.get_or_insert_default().elsewhere = Some(until));
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

    fn join(&self, run: &RunKey) -> broadcast::Receiver<Arc<LiveNotice>> {
        let notices = self.runs.edit(run, |watched| {
            let watched = watched.get_or_insert_default();
            watched.readers += 1;
            watched.channel.get_or_insert_default().sender.subscribe()
        });
        self.has_reader.store(true, Ordering::SeqCst);
        notices
    }

    fn leave(&self, run: &RunKey) {
        self.runs.update(run, |watched| {
            watched.readers -= 1;
            watched.channel.take_if(|_| watched.readers == 0);
        });
    }

    /// Returns the number of readers of the run at this server.
    pub fn readers(&self, run: &RunKey) -> usize {
        self.runs.update(run, |watched| watched.readers).unwrap_or_default()
    }

    /// Forgets the run unless it has readers; returns true if it did.
    fn forget(&self, run: &RunKey) -> bool {
        let now = Instant::now();
        self.runs.edit(run, |watched| watched.take_if(|watched| watched.is_over(now)).is_some())
    }
}

/// Returns about how much memory a notice takes.
fn payload_bytes(notice: &LiveNotice) -> usize {
    let mut bytes = 128;
    onward_core::codec::Field::visit_payloads(notice, &mut |payload| bytes += payload.data().len());
    bytes
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
    pub notices: broadcast::Receiver<Arc<LiveNotice>>,
    /// Notices were lost: the reader must be dropped (LW1).
    pub is_behind: bool,
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
        LiveReader { hub: self.hub().clone(), run: run.clone(), notices, is_behind: false }
    }

    /// Returns the steps of a run that are under way, from a new list of its worker; `None` if it does not come in time. Passes
    /// other notices that arrive meanwhile to `others`.
    pub(crate) async fn list_steps(
        &self,
        head: &RunHead,
        reader: &mut LiveReader,
        mut others: impl FnMut(LiveNotice),
    ) -> Option<Vec<ActiveCall>> {
        if head.is_task || head.external.is_some() {
            return Some(Vec::new());
        }
        // Also the worker of a waiting run may have it in memory, and has to report the steps that start later (LW2).
        let is_reported = self.hub().inboxes.watch(&head.key, true);
        // The worker of a run that is not held here may be at another server, which answers the announcement of the reader.
        let is_elsewhere = || self.store().is_shared() && head.status == Status::Running;
        if !matches!(head.status, Status::Running | Status::Paused) || !is_reported.unwrap_or_else(is_elsewhere) {
            while let Ok(notice) = reader.notices.try_recv() {
                others(Arc::unwrap_or_clone(notice));
            }
            return Some(Vec::new());
        }
        let until = Instant::now() + STEPS_MAX;
        loop {
            let received = tokio::time::timeout_at(until, reader.notices.recv()).await;
            match received.map(|received| received.map(Arc::unwrap_or_clone)) {
                Ok(Ok(LiveNotice::Steps(report))) if report.is_complete => {
                    let generation = report.generation;
                    return Some(report.steps.into_iter().map(|step| ActiveCall::of_step(generation, step)).collect());
                }
                Ok(Ok(notice)) => others(notice),
                Ok(Err(broadcast::error::RecvError::Lagged(_))) => reader.is_behind = true,
                Ok(Err(broadcast::error::RecvError::Closed)) => {
                    reader.is_behind = true;
                    return None;
                }
                Err(_) => return None,
            }
        }
    }
}

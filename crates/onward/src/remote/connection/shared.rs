//! The state of a worker that outlives its connections.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use onward_core::task::{Task, TaskId};
use onward_core::{Epoch, Index, Name, Record, RunKey, WorkerId};
use onward_runtime::{Inbox, Question, RuntimeError, WorkerProfile};
use onward_store::sync::lock;
use onward_store::{ClaimedRun, PAYLOAD_BYTES_MAX, StoreError, payloads};
use onward_wire::worker as wire;
use onward_wire::worker::{ReplyOutcome, WorkerFrame};
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::Instant;

use super::stream::{FRAMES_BYTES, FRAMES_MAX};
use crate::remote::problem::from_problem;

pub(super) struct Shared {
    profile: WorkerProfile,
    kinds: Vec<wire::KindOffer>,
    task_schemas: Vec<wire::TaskSchemas>,
    next_request: AtomicU64,
    state: Mutex<State>,
    /// The lease duration; unknown before the first welcome.
    pub lease: watch::Sender<Option<Duration>>,
    /// As announced by the server last.
    pub payload_bytes_max: AtomicUsize,
    /// Notified when there is something to send.
    pub outgoing: Notify,
    pub runs_came: Notify,
    pub tasks_came: Notify,
    pub questions_came: Notify,
    pub greeted: Notify,
    /// Number of times that everything was lost. The server learns it from the next `hello`, so the connection ends on each loss.
    pub losses: watch::Sender<u64>,
}

#[derive(Default)]
pub(super) struct State {
    /// Number of the current connection, to distinguish a late `hello` from the current one.
    pub connection: u64,
    /// The server has accepted the current connection; nothing is sent before (V1).
    pub welcomed: bool,
    /// At this time or later, the server certainly received a message from this worker (Y4).
    pub last_seen_at: Option<Instant>,
    /// The heartbeat that the server has not confirmed yet, and when it was sent.
    pub beat: Option<(u64, Instant)>,
    pub outgoing: VecDeque<WorkerFrame>,
    /// By number, so that they are sent again in their order (Y1).
    pub requests: BTreeMap<u64, Request>,
    pub held: HashMap<RunKey, HeldRun>,
    /// Claims that were dropped since the last welcome (CW3).
    pub dropped: Vec<wire::DroppedRun>,
    pub held_tasks: BTreeMap<(TaskId, u64), Arc<Notify>>,
    pub runs: VecDeque<ClaimedRun>,
    /// Runs that were claimed by id, and their waiting callers.
    pub driving: HashMap<RunKey, oneshot::Sender<ClaimedRun>>,
    pub tasks: VecDeque<Task>,
    /// Task offers that have arrived in the latest session (V7).
    pub received: Option<wire::Received>,
    /// Offers that arrive are ignored, because the server was informed which ones arrived before.
    pub takes_no_tasks: bool,
    pub questions: VecDeque<Question>,
    /// Numbers of runs and tasks that were requested and have not arrived (Y3).
    pub runs_requested: u32,
    pub tasks_requested: u32,
    /// Nothing more is requested.
    pub is_leaving: bool,
    pub has_left: bool,
    pub greeting: Greeting,
    /// The error of the last connection attempt.
    pub trouble: Option<String>,
}

/// The result of the first connection.
#[derive(Default)]
pub(super) enum Greeting {
    #[default]
    Awaited,
    Welcomed,
    Refused(RuntimeError),
}

pub(super) struct Request {
    pub frame: WorkerFrame,
    pub made_at: Instant,
    pub answer: oneshot::Sender<ReplyOutcome>,
}

/// A request without a response yet.
pub(super) struct ReplyWaiter(oneshot::Receiver<ReplyOutcome>);

impl ReplyWaiter {
    pub async fn outcome(self) -> Result<ReplyOutcome, StoreError> {
        match self.0.await {
            Ok(ReplyOutcome::Problem(problem)) => Err(from_problem(problem)),
            Ok(outcome) => Ok(outcome),
            Err(_) => Err(StoreError::Unavailable { why: "the connection to the server was closed".to_owned() }),
        }
    }
}

pub(super) struct HeldRun {
    pub generation: u32,
    pub epoch: Epoch,
    /// The first event that was not sent to the worker.
    pub next: Index,
    pub sink: RecordSink,
    /// Readers of the run exist.
    pub is_watched: bool,
}

pub(super) enum RecordSink {
    Buffer(Vec<Record>),
    Inbox(Arc<dyn Inbox>),
}

impl Shared {
    pub fn new(profile: WorkerProfile, kinds: Vec<wire::KindOffer>, task_schemas: Vec<wire::TaskSchemas>) -> Shared {
        Shared {
            profile,
            kinds,
            task_schemas,
            next_request: AtomicU64::new(1),
            state: Mutex::default(),
            lease: watch::Sender::new(None),
            payload_bytes_max: AtomicUsize::new(PAYLOAD_BYTES_MAX),
            outgoing: Notify::new(),
            runs_came: Notify::new(),
            tasks_came: Notify::new(),
            questions_came: Notify::new(),
            greeted: Notify::new(),
            losses: watch::Sender::new(0),
        }
    }

    pub fn worker(&self) -> &WorkerId {
        &self.profile.id
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Sends a frame without a response, if the connection that it belongs to still exists (Y5).
    pub fn send_on(&self, connection: u64, frame: WorkerFrame) {
        let mut state = self.lock();
        if state.welcomed && state.connection == connection {
            state.outgoing.push_back(frame);
            drop(state);
            self.outgoing.notify_one();
        }
    }

    /// Sends a frame that gets a response, across lost connections.
    pub fn request(&self, frame: impl FnOnce(u64) -> WorkerFrame) -> ReplyWaiter {
        let request = self.next_request.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        let frame = frame(request);
        let mut state = self.lock();
        if state.welcomed {
            state.outgoing.push_back(frame.clone());
        }
        state.requests.insert(request, Request { frame, made_at: Instant::now(), answer });
        drop(state);
        self.outgoing.notify_one();
        ReplyWaiter(answered)
    }

    /// Begins a connection and returns its `hello`: identity and held runs and tasks. Nothing else is sent before the welcome
    /// (V1).
    pub fn begin(&self) -> wire::Hello {
        let mut state = self.lock();
        state.connection += 1;
        // Answers of the previous connection are of no use to this one. All requests are sent again.
        state.outgoing.clear();
        // The `hello` counts as a heartbeat that the welcome confirms.
        state.beat = Some((0, Instant::now()));
        let held = |(run, held): (&RunKey, &HeldRun)| wire::HeldRun {
            run: run.clone(),
            generation: held.generation,
            epoch: held.epoch,
            next_index: held.next,
        };
        let limit = |(kind, limit): (&Name, &Name)| wire::TaskLimit { kind: kind.clone(), limit: limit.clone() };
        wire::Hello {
            protocol: onward_wire::PROTOCOL,
            worker: self.profile.id.clone(),
            kinds: self.kinds.clone(),
            task_kinds: self.profile.task_kinds.to_vec(),
            queues: self.profile.queues.iter().map(|queue| queue.as_ref().map(ToString::to_string).unwrap_or_default()).collect(),
            runs_max: u32::try_from(self.profile.runs_max).unwrap_or(u32::MAX),
            runs: state.held.iter().map(held).collect(),
            tasks: state.held_tasks.keys().map(|(task, claim)| wire::HeldTask { task: task.clone(), claim: *claim }).collect(),
            sdk: concat!("onward-rust ", env!("CARGO_PKG_VERSION")).to_owned(),
            connection: state.connection,
            task_schemas: self.task_schemas.clone(),
            task_limits: self.profile.task_limits.iter().map(limit).collect(),
            received: state.received.clone(),
            reports_steps: true,
            dropped: state.dropped.clone(),
        }
    }

    /// Handles the welcome: sends outstanding credit and all unanswered requests.
    pub fn welcome(&self, welcome: &wire::Welcome) {
        let mut guard = self.lock();
        let state = &mut *guard;
        state.welcomed = true;
        state.dropped.clear();
        state.last_seen_at = state.beat.take().map(|(_, sent_at)| sent_at).or(state.last_seen_at);
        if state.received.as_ref().is_none_or(|received| received.session != welcome.session) {
            state.received = Some(wire::Received { session: welcome.session, offer: 0 });
        }
        let (runs, tasks) = (state.runs_requested, state.tasks_requested);
        if !state.is_leaving && (runs, tasks) != (0, 0) {
            state.outgoing.push_back(WorkerFrame::Credit(wire::Credit { runs, tasks }));
        }
        state.outgoing.extend(state.requests.values().map(|request| request.frame.clone()));
        drop(guard);
        if let Some(max) = welcome.payload_bytes_max.and_then(|max| usize::try_from(max).ok()) {
            self.payload_bytes_max.store(max, Ordering::Relaxed);
        }
        self.lease.send_replace(Some(Duration::from_millis(welcome.lease_ms)));
        self.outgoing.notify_one();
    }

    pub fn end(&self) {
        let mut state = self.lock();
        state.welcomed = false;
        state.outgoing.clear();
    }

    /// Returns a heartbeat. The server confirms one at a time.
    pub fn beat(&self) -> WorkerFrame {
        let mut state = self.lock();
        let mut request = 0;
        if state.beat.is_none() {
            request = self.next_request.fetch_add(1, Ordering::Relaxed);
            state.beat = Some((request, Instant::now()));
        }
        WorkerFrame::Heartbeat(wire::Heartbeat { request })
    }

    /// Returns the time since the server certainly received a message from this worker; `None` before the first.
    pub fn silent_for(&self) -> Option<Duration> {
        self.lock().last_seen_at.map(|last_seen_at| last_seen_at.elapsed())
    }

    /// Takes as many frames as fit into one message, at least one.
    pub fn take_outgoing(&self) -> Vec<WorkerFrame> {
        let mut state = self.lock();
        let (mut frames, mut bytes) = (Vec::new(), 0);
        while frames.len() < FRAMES_MAX
            && let Some(frame) = state.outgoing.pop_front_if(|frame| {
                bytes += payload_bytes(frame);
                frames.is_empty() || bytes <= FRAMES_BYTES
            })
        {
            frames.push(frame);
        }
        frames
    }

    pub fn greet(&self, greeting: Greeting) {
        self.lock().greeting = greeting;
        self.greeted.notify_waiters();
    }

    /// Waits until `take` returns something. Requests before each wait, because arrivals may have been lost before they were
    /// taken.
    pub async fn next<T>(&self, came: &Notify, want: impl Fn(), mut take: impl FnMut(&mut State) -> Vec<T>) -> Vec<T> {
        loop {
            want();
            let taken = take(&mut self.lock());
            if !taken.is_empty() {
                return taken;
            }
            came.notified().await;
        }
    }

    /// Requests more, so that `limit` are outstanding (Y3).
    pub fn want(&self, runs: usize, tasks: usize) {
        let wanted = |requested: &mut u32, limit: usize| {
            let more = u32::try_from(limit).unwrap_or(u32::MAX).saturating_sub(*requested);
            *requested += more;
            more
        };
        let mut state = self.lock();
        if state.is_leaving {
            return;
        }
        let (runs, tasks) = (wanted(&mut state.runs_requested, runs), wanted(&mut state.tasks_requested, tasks));
        if (runs, tasks) != (0, 0) && state.welcomed {
            state.outgoing.push_back(WorkerFrame::Credit(wire::Credit { runs, tasks }));
            self.outgoing.notify_one();
        }
    }

    pub fn release(&self, run: RunKey, epoch: Epoch) {
        drop(self.request(|request| WorkerFrame::Release(wire::ReleaseRun { request, run, epoch })));
    }
}

impl State {
    /// Takes the requests under a lost epoch, which must no longer be sent (V4).
    pub fn take_requests_about(&mut self, lost: impl Fn(&RunKey, Epoch) -> bool) -> Vec<Request> {
        let is_about = |frame: &WorkerFrame| match frame {
            WorkerFrame::Commit(frame) => lost(&frame.commit.key, frame.commit.epoch),
            WorkerFrame::Pause(frame) => lost(&frame.run, frame.epoch),
            _ => false,
        };
        self.outgoing.retain(|frame| !is_about(frame));
        self.requests.extract_if(.., |_, request| is_about(&request.frame)).map(|(_, request)| request).collect()
    }

    /// Removes the run from the held ones, if it is held under this epoch.
    pub fn remove_held(&mut self, run: &RunKey, epoch: Epoch) -> Option<HeldRun> {
        if self.held.get(run).is_some_and(|held| held.epoch == epoch) { self.held.remove(run) } else { None }
    }
}

/// Returns the payload bytes of a frame.
fn payload_bytes(frame: &WorkerFrame) -> usize {
    match frame {
        WorkerFrame::Commit(frame) => payloads::payload_bytes(&frame.commit.events),
        WorkerFrame::Report(frame) => payloads::report_payload_bytes(&frame.report),
        WorkerFrame::Answer(wire::AnswerQuery { answer: Some(Ok(answer)), .. }) => answer.data().len(),
        WorkerFrame::Emit(emit) => emit.value.data().len(),
        WorkerFrame::TaskFrames(task_frames) => task_frames.frames.iter().map(|frame| frame.frame.data().len()).sum(),
        _ => 0,
    }
}

//! The live view of a run: its log, then also what is under way, for readers that come and go.
//!
//! A reader never drives the run, and the run does not wait for it.
//!
//! Invariants:
//! - LU1 (A1): a reader gets every event of the run from where it began, in order, each once, through all generations.
//! - LU2: the first frame is a snapshot. A call that started before it is in it or its end is in the log that follows; a call that
//!   started after it has a frame, unless its worker could not report it.
//! - LU3 (LV2): the end of a call never comes before its start, and derived frames only follow events after the snapshot.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use onward_core::ancestry::behind_copy;
use onward_core::api::WatchRequest;
use onward_core::doing::doing;
use onward_core::live::{
    ActiveCall, ActiveTable, ActiveType, LiveContent, LiveFrame, LiveRecord, LogCursor, ReaderDropped, RunBlocked, RunEnd,
    RunUnderWay, StepStarted, TaskStarted, derived,
};
use onward_core::task::TaskState;
use onward_core::view::{RunView, outcome};
use onward_core::{CallId, Event, Index, Record, RunHead, RunKey, Status};
use onward_store::StoreError;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::time::Instant;

use crate::api::client::{ClientFuture, Updates};
use crate::stream::live::{LiveNotice, LiveReader};
use crate::{RunWatch, Runtime, RuntimeError};

/// Number of records per read of the log.
const RECORDS: usize = 256;

/// Number of notices that are taken at once.
const NOTICES: usize = 256;

/// Interval at which a reader checks what blocks its run, which no event reports.
const CHECK_PACE: Duration = Duration::from_secs(5);

/// The pause after a read of the whole log, as a multiple of its duration and of the number of readers.
const REST_FACTOR: u32 = 8;

/// Number of attempts to read all parts of a snapshot at one moment.
const READS_MAX: u32 = 3;

/// A position in the logs of a run: generation, and the next event.
type Position = (u32, Index);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The snapshot is next.
    Begin,
    /// The log may have more.
    Read,
    /// The log is read: notices are next.
    Settle,
    Wait,
    Over,
}

/// The calls of a run that workers execute now.
struct ActiveCalls {
    calls: Vec<ActiveCall>,
    /// The steps are complete: their worker has listed them.
    has_steps: bool,
}

/// What follows a page of the log.
enum Next {
    At(Position),
    End(RunEnd),
}

/// The frames of a run for one reader.
pub struct RunUpdates {
    runtime: Runtime,
    key: RunKey,
    watch: RunWatch,
    reader: LiveReader,
    request: WatchRequest,
    phase: Phase,
    at: Position,
    /// The end of the log in the snapshot.
    live_from: Position,
    /// The last event that the reader got.
    cursor: Option<LogCursor>,
    table: ActiveTable,
    /// Notices that wait until the log is read.
    notices: VecDeque<LiveNotice>,
    ready: VecDeque<LiveFrame>,
    /// What the reader was shown last; without the sentence.
    shown: Option<RunBlocked>,
    /// It may have changed since.
    is_stale: bool,
    /// When to look for changes that no event reports.
    check_at: Instant,
    /// No read of the whole log before this time.
    rest_until: Instant,
}

impl Runtime {
    /// Reads a run live, from the given event on.
    ///
    /// # Errors
    /// `run_not_found` if the run or the generation does not exist.
    pub async fn watch_updates(&self, request: WatchRequest) -> Result<RunUpdates, RuntimeError> {
        let key = request.run.clone();
        // Registers before anything is read, so that nothing in between is missed.
        let (watch, reader) = (self.watch_run(&key).await?, self.read_notices(&key));
        if request.generation.is_some_and(|generation| generation > watch.generation()) {
            return Err(StoreError::RunNotFound { key }.into());
        }
        let at = (request.generation.unwrap_or(watch.generation()), request.from);
        let (table, notices, ready) = Default::default();
        Ok(RunUpdates {
            runtime: self.clone(),
            key,
            watch,
            reader,
            request,
            phase: Phase::Begin,
            at,
            live_from: at,
            cursor: None,
            table,
            notices,
            ready,
            shown: None,
            is_stale: false,
            check_at: Instant::now(),
            rest_until: Instant::now(),
        })
    }

    /// Returns the steps and tasks of a run that workers execute now.
    pub async fn active(&self, key: &RunKey) -> Result<Vec<ActiveCall>, RuntimeError> {
        let head = self.read_head(key).await?;
        let mut reader = self.read_notices(key);
        Ok(self.active_of(&head, &mut reader, drop).await?.calls)
    }

    /// Returns the steps of a run that workers execute now.
    pub(crate) async fn running_steps(&self, head: &RunHead) -> Vec<ActiveCall> {
        let mut reader = self.read_notices(&head.key);
        self.list_steps(head, &mut reader, drop).await.unwrap_or_default()
    }

    async fn active_of(
        &self,
        head: &RunHead,
        reader: &mut LiveReader,
        others: impl FnMut(LiveNotice),
    ) -> Result<ActiveCalls, RuntimeError> {
        if head.status.is_closed() {
            return Ok(ActiveCalls { calls: Vec::new(), has_steps: true });
        }
        let steps = self.list_steps(head, reader, others).await;
        let has_steps = steps.is_some();
        let mut calls = steps.unwrap_or_default();
        let tasks = self.tasks_in(&head.key, TaskState::Leased).await?;
        calls.extend(tasks.into_iter().filter(|task| task.id.generation == head.generation).map(ActiveCall::of_task));
        Ok(ActiveCalls { calls, has_steps })
    }

    /// Decides what follows the record that ends a log: a failed run may have been retried since.
    async fn after_end(&self, key: &RunKey, generation: u32, last: &Record) -> Result<Next, RuntimeError> {
        let head = self.read_head(key).await?;
        if head.generation > generation {
            return Ok(Next::At(self.next_log(key, generation).await?));
        }
        Ok(Next::End(RunEnd { status: head.status, outcome: outcome(last) }))
    }

    /// Returns where the next generation continues. A copy of events that were read already is skipped.
    pub async fn next_log(&self, key: &RunKey, generation: u32) -> Result<(u32, Index), RuntimeError> {
        let first = self.read_log(key, Some(generation + 1), Index(0), 1).await?;
        Ok((generation + 1, first.first().map_or(Index(0), |first| behind_copy(key, first))))
    }
}

impl RunUpdates {
    /// Returns the next frame; `None` after the last one.
    ///
    /// Cancel-safe: dropping the future loses no frame.
    pub async fn next(&mut self) -> Result<Option<LiveFrame>, RuntimeError> {
        loop {
            if let Some(frame) = self.ready.pop_front() {
                self.cursor = frame.cursor().or(self.cursor);
                if frame.is_last() {
                    self.phase = Phase::Over;
                    self.ready.clear();
                }
                return Ok(Some(frame));
            }
            match self.phase {
                Phase::Begin => self.begin().await?,
                Phase::Read => self.read().await?,
                Phase::Settle => self.settle().await?,
                Phase::Wait => self.wait().await?,
                Phase::Over => return Ok(None),
            }
        }
    }

    fn push(&mut self, content: LiveContent) {
        self.ready.push_back(LiveFrame { at: self.runtime.clock().now(), content });
    }

    /// Makes the snapshot (LU2).
    async fn begin(&mut self) -> Result<(), RuntimeError> {
        let runtime = self.runtime.clone();
        let mut reads = 0;
        let (view, blocked_on, active) = loop {
            reads += 1;
            let view = runtime.read_run(&self.key).await?;
            let blocked_on = runtime.blocked_on(&self.key).await?;
            let notices = &mut self.notices;
            let ActiveCalls { calls: active, has_steps } =
                runtime.active_of(&view.head, &mut self.reader, |notice| notices.push_back(notice)).await?;
            // The lists are newer: what started before them is in them, or has ended (LU3).
            notices.retain(|notice| match notice {
                LiveNotice::Steps(_) => !has_steps,
                LiveNotice::Frame(frame) => !matches!(frame.content, LiveContent::TaskStarted(_)),
            });
            // All parts should be of one moment; a run that never rests is shown as it is.
            let head = runtime.read_head(&self.key).await?;
            if reads == READS_MAX || (head.generation, head.next_index) == (view.head.generation, view.head.next_index) {
                break (view, blocked_on, active);
            }
        };
        let RunHead { generation, next_index, status, .. } = view.head;
        self.live_from = (generation, next_index);
        if self.request.from_end {
            self.at = self.live_from;
        }
        for call in &active {
            self.table.start(call.clone());
        }
        let doing = doing(&view, &blocked_on, &active).sentence;
        let awaiting = view.awaiting;
        let shown = RunBlocked { status, doing: String::new(), blocked_on: blocked_on.clone(), awaiting: awaiting.clone() };
        self.shown = Some(shown);
        self.check_at = Instant::now() + CHECK_PACE;
        self.push(LiveContent::Snapshot(RunUnderWay { generation, next_index, status, doing, blocked_on, awaiting, active }));
        if self.reader.is_behind {
            self.push(LiveContent::Dropped(ReaderDropped { cursor: self.cursor })); // LW1
        }
        self.phase = Phase::Read;
        Ok(())
    }

    /// Reads the next page of the log. Waits before it changes anything, so that it can be dropped.
    async fn read(&mut self) -> Result<(), RuntimeError> {
        let (generation, from) = self.at;
        let records = self.runtime.read_log(&self.key, Some(generation), from, RECORDS).await?;
        let Some(last) = records.last() else { return self.read_empty().await };
        let next = match last.events.last() {
            Some(Event::RunContinued(_)) => Next::At((generation + 1, Index(0))),
            Some(event) if event.ends_log() => self.runtime.after_end(&self.key, generation, last).await?,
            _ => Next::At((generation, last.next_index())),
        };
        for record in records {
            self.take(generation, trimmed(record, from));
        }
        self.go_on(next);
        Ok(())
    }

    /// Decides what an empty page means: the position may be at the end of an earlier generation, or of the run.
    async fn read_empty(&mut self) -> Result<(), RuntimeError> {
        let (generation, from) = self.at;
        let head = self.runtime.read_head(&self.key).await?;
        if generation < head.generation {
            // This generation may have grown since the page was read. The next one begins only after its end (LU1).
            let earlier = self.runtime.store().read_run(self.key.clone(), Some(generation)).await?;
            if earlier.is_none_or(|earlier| from >= earlier.next_index) {
                self.at = self.runtime.next_log(&self.key, generation).await?;
            }
            return Ok(());
        }
        if head.status.is_closed() && from >= head.next_index {
            let outcome = if head.external.is_none() { self.runtime.read_outcome(&self.key).await? } else { None };
            self.go_on(Next::End(RunEnd { status: head.status, outcome }));
            return Ok(());
        }
        self.phase = Phase::Settle;
        Ok(())
    }

    fn go_on(&mut self, next: Next) {
        match next {
            Next::At(position) => self.at = position,
            Next::End(end) => {
                while let Ok(notice) = self.reader.notices.try_recv() {
                    self.notices.push_back(Arc::unwrap_or_clone(notice)); // emitted before the last commit
                }
                std::mem::take(&mut self.notices).into_iter().for_each(|notice| self.show(notice));
                self.push(LiveContent::End(end));
            }
        }
    }

    /// Adds a record and what derives from it.
    fn take(&mut self, generation: u32, record: Record) {
        let is_live = (generation, record.index) >= self.live_from;
        if is_live {
            let begins = |notice: &LiveNotice| started(notice).is_some_and(|call| ActiveTable::is_ended_by(&record, call));
            let (before, later): (VecDeque<_>, VecDeque<_>) = std::mem::take(&mut self.notices).into_iter().partition(begins);
            self.notices = later;
            before.into_iter().for_each(|notice| self.show(notice)); // LU3
            // Events before the snapshot may be a copy, with ends that a retry has set aside.
            self.table.appended(generation, &record);
        }
        let derived = if is_live { derived(generation, &record) } else { Vec::new() };
        self.is_stale |= is_live && self.may_change_waits(&record);
        self.ready.push_back(LiveFrame { at: record.at, content: LiveContent::Log(LiveRecord { generation, record }) });
        self.ready.extend(derived);
    }

    fn may_change_waits(&self, record: &Record) -> bool {
        let was_waiting = self.shown.as_ref().is_some_and(|shown| shown.status == Status::Waiting);
        let is_plain = |event: &Event| {
            matches!(event, Event::StepCompleted(_) | Event::StateSet(_) | Event::StateCleared(_) | Event::EntryAppended(_))
        };
        record.commit.is_none_or(|commit| commit.waits != was_waiting) || !record.events.iter().all(is_plain)
    }

    /// Shows the notices that came before the log was read, then what blocks the run, if that has changed.
    async fn settle(&mut self) -> Result<(), RuntimeError> {
        std::mem::take(&mut self.notices).into_iter().for_each(|notice| self.show(notice));
        if Instant::now() >= self.check_at {
            self.check().await?;
        }
        if self.is_stale && Instant::now() >= self.rest_until {
            return self.show_blocked().await;
        }
        self.phase = Phase::Wait;
        Ok(())
    }

    /// Compares the status and the blockers with what was shown, without a read of the log.
    async fn check(&mut self) -> Result<(), RuntimeError> {
        let status = self.runtime.read_head(&self.key).await?.status;
        let blocked_on = self.runtime.blocked_on(&self.key).await?;
        self.check_at = Instant::now() + CHECK_PACE;
        self.is_stale |= self.shown.as_ref().is_none_or(|shown| shown.status != status || shown.blocked_on != blocked_on);
        Ok(())
    }

    async fn show_blocked(&mut self) -> Result<(), RuntimeError> {
        let began = Instant::now();
        let runtime = self.runtime.clone();
        let view: RunView = runtime.read_run(&self.key).await?;
        let blocked_on = runtime.blocked_on(&self.key).await?;
        let is_behind = (view.head.generation, view.head.next_index) > self.at;
        self.phase = if is_behind { Phase::Read } else { Phase::Wait };
        self.is_stale = is_behind; // events come first
        let readers = u32::try_from(runtime.hub().live.readers(&self.key)).unwrap_or(u32::MAX).max(1);
        self.rest_until = Instant::now() + (began.elapsed() * REST_FACTOR).saturating_mul(readers);
        self.check_at = Instant::now() + CHECK_PACE;
        if is_behind || view.head.status.is_closed() {
            return Ok(());
        }
        let doing = doing(&view, &blocked_on, &self.table.calls()).sentence;
        let shown = RunBlocked { status: view.head.status, doing: String::new(), blocked_on, awaiting: view.awaiting };
        if self.shown.as_ref() != Some(&shown) {
            self.shown = Some(shown.clone());
            self.push(LiveContent::Blocked(RunBlocked { doing, ..shown }));
        }
        Ok(())
    }

    /// Adds the frames of a notice, unless the reader knows its content.
    fn show(&mut self, notice: LiveNotice) {
        match notice {
            LiveNotice::Steps(report) => {
                self.table.retain_steps(&report);
                let generation = report.generation;
                for step in report.steps {
                    let at = step.started_at;
                    if self.table.start(ActiveCall::of_step(generation, step.clone())) {
                        let content = LiveContent::StepStarted(StepStarted { generation, step });
                        self.ready.push_back(LiveFrame { at, content });
                    }
                }
                self.check_soon();
            }
            LiveNotice::Frame(frame) => {
                match &frame.content {
                    LiveContent::TaskStarted(started) => {
                        self.check_soon();
                        if !self.table.start(active_task(started, &frame)) {
                            return;
                        }
                    }
                    LiveContent::TaskProgress(progress) => self.table.progress(progress),
                    _ => {}
                }
                self.ready.push_back(frame);
            }
        }
    }

    /// Checks what blocks the run soon: a worker has taken it or a task of it.
    fn check_soon(&mut self) {
        self.check_at = self.check_at.min(Instant::now());
    }

    async fn wait(&mut self) -> Result<(), RuntimeError> {
        let check_at = if self.is_stale { self.check_at.min(self.rest_until) } else { self.check_at };
        tokio::select! {
            changed = self.watch.changed() => {
                changed?;
                self.phase = Phase::Read;
            }
            notice = self.reader.notices.recv() => self.take_notices(notice),
            () = tokio::time::sleep_until(check_at) => self.phase = Phase::Settle,
        }
        Ok(())
    }

    /// Takes a notice and those that follow it. The log is read before they are shown, because they may follow from it (LU3).
    fn take_notices(&mut self, first: Result<Arc<LiveNotice>, RecvError>) {
        self.phase = Phase::Read;
        let mut next = Some(first);
        while let Some(notice) = next.take() {
            match notice {
                Ok(notice) => self.notices.push_back(Arc::unwrap_or_clone(notice)),
                // The channel is closed if too many bytes are unread.
                Err(RecvError::Lagged(_) | RecvError::Closed) => {
                    self.push(LiveContent::Dropped(ReaderDropped { cursor: self.cursor })); // LW1
                }
            }
            if self.notices.len() < NOTICES && self.ready.is_empty() {
                next = match self.reader.notices.try_recv() {
                    Ok(notice) => Some(Ok(notice)),
                    Err(TryRecvError::Lagged(count)) => Some(Err(RecvError::Lagged(count))),
                    Err(TryRecvError::Closed) => Some(Err(RecvError::Closed)),
                    Err(TryRecvError::Empty) => None,
                };
            }
        }
    }
}

/// Returns the call that a notice reports as started.
fn started(notice: &LiveNotice) -> Option<&CallId> {
    match notice {
        LiveNotice::Steps(report) if !report.is_complete => report.steps.first().map(|step| &step.call_id),
        LiveNotice::Frame(LiveFrame { content: LiveContent::TaskStarted(started), .. }) => Some(&started.call_id),
        _ => None,
    }
}

fn active_task(started: &TaskStarted, frame: &LiveFrame) -> ActiveCall {
    let TaskStarted { generation, call_id, name, attempt, worker } = started.clone();
    let (of_type, started_at, input, progress) = (ActiveType::Task, frame.at, None, None);
    ActiveCall { generation, call_id, of_type, name, attempt, started_at, input, worker, progress }
}

/// Removes the events before `from`.
fn trimmed(mut record: Record, from: Index) -> Record {
    let known = from.0.saturating_sub(record.index.0).min(record.events.len() as u64);
    record.events.drain(..known as usize);
    record.index = record.index.plus(known);
    record
}

impl Updates for RunUpdates {
    fn next(&mut self) -> ClientFuture<'_, Option<LiveFrame>> {
        Box::pin(RunUpdates::next(self))
    }
}

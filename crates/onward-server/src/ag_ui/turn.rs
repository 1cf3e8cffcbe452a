//! One turn for one client: from the current state of the conversation until the agent is idle.
//!
//! Child runs count, too: an agent that waits for a child is idle when the child is. Approvals of runs below are reported once
//! nothing below makes progress by itself; a spawned run that is not awaited does not keep a turn open.

use std::time::Duration;

use onward_core::budget::resume_options;
use onward_core::event::{PauseReason, RunPaused};
use onward_core::run::Wait;
use onward_core::stream::{StreamEntry, StreamFrame};
use onward_core::view::{AwaitedKind, RunView, outcome};
use onward_core::{ErrorCode, Failure, Hash, Index, Name, Payload, RunId, RunKey, Status};
use onward_runtime::{BlockReason, Blocker, EntryQuery, RunWatch, Runtime, RuntimeError, WorkerInfo};
use onward_store::{PAGE_DEFAULT, StoreError, WaitQuery};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::client::KnownMessages;
use super::finish::{FinishOutcome, Finished};
use super::input::{RunAgentInput, UserMessage};
use super::messages::{conversation, entry, messages};
use super::parts::AttachmentLimit;
use super::translate::{Translator, TranslatorNeed, custom};
use crate::auth::Pass;
use crate::http::documents::OneBlocker;
use crate::http::sse::{self, NOTHING_NEW, Over, Sink, StreamError};
use crate::server::Server;

/// Time without a worker for the run's code before the client gets an error.
const WORKER_PATIENCE: Duration = Duration::from_secs(3);

/// Interval of checks for approvals of runs below, while the run waits for them.
const DESCENDANTS_POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Interval of checks what the run's tasks are blocked on, while there is no output.
const BLOCKED_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum number of runs below that are checked for activity and for what blocks them; with more, approvals are reported anyway.
const BELOW_MAX: usize = 100;

pub(super) struct AgUiTurn {
    server: Server,
    key: RunKey,
    thread_id: String,
    run_id: String,
    translator: Translator,
    offset: Option<String>,
    /// State of the run that was sent last.
    state: Option<Value>,
    /// First generation whose final state was not sent; valid once `has_read` is set.
    generation: u32,
    has_read: bool,
    client: KnownMessages,
    /// Time since which no worker can take the run.
    alone_since: Option<Instant>,
    /// Blocked tasks of the run and the runs below that were sent last, and the time of the last check below.
    blocked: Vec<BlockedTask>,
    descendants_checked_at: Option<Instant>,
    out: Vec<Value>,
    sink: Sink,
}

/// Blocked task, with its run and the kind of the run.
#[derive(Serialize)]
struct BlockedTask {
    agent: Name,
    run: RunId,
    #[serde(flatten, serialize_with = "as_document")]
    blocker: Blocker,
}

/// Progress of a run.
enum Progress {
    /// Continues by itself.
    Busy,
    /// Needs a signal or a promise.
    Waits,
    /// Needs a decision.
    Asks,
    /// Waits for runs below, which may need a decision.
    Below,
    Paused(Box<RunPaused>),
    Ended(Status),
}

impl AgUiTurn {
    pub fn new(server: Server, key: RunKey, input: &RunAgentInput, sent: Vec<UserMessage>, sink: Sink) -> AgUiTurn {
        let translator = Translator::new(&key.id, sent);
        let (thread_id, run_id) = (input.thread_id.clone(), input.run_id.clone());
        let client = KnownMessages::new(&input.messages);
        AgUiTurn {
            server,
            key,
            thread_id,
            run_id,
            translator,
            offset: None,
            state: None,
            generation: 0,
            has_read: false,
            client,
            alone_since: None,
            blocked: Vec::new(),
            descendants_checked_at: None,
            out: Vec::new(),
            sink,
        }
    }

    /// Sends events until the agent is idle or the credential is no longer valid; sends the error if there is one.
    pub async fn run(mut self, pass: Option<Pass>) {
        let server = self.server.clone();
        if let Some(problem) = sse::problem_of(self.send_events(), pass, &server).await {
            self.fail(problem.code, &problem.detail);
            drop(self.flush().await); // the client may be gone
        }
    }

    fn runtime(&self) -> &Runtime {
        self.server.runtime()
    }

    async fn send_events(&mut self) -> Result<(), StreamError> {
        let (thread_id, run_id) = (&self.thread_id, &self.run_id);
        self.out.push(json!({"type": "RUN_STARTED", "threadId": thread_id, "runId": run_id}));
        self.flush().await?;
        let mut watch = match self.runtime().watch_run(&self.key).await {
            // The thread has no messages yet.
            Err(RuntimeError::Store(StoreError::RunNotFound { .. })) => {
                self.out.push(json!({"type": "MESSAGES_SNAPSHOT", "messages": []}));
                return self.finish(FinishOutcome::Success, None).await;
            }
            watch => watch?,
        };
        loop {
            // Frames are read after the view, so everything that was emitted before the run became idle is sent.
            let view = self.runtime().read_run(&self.key).await?;
            let progress = progress_of(&view);
            while self.take_frames().await? {}
            self.show_states(&view).await?;
            let is_in_task = matches!(progress, Progress::Busy) && view.awaits(AwaitedKind::Task);
            self.show_blocked_on(&view, &progress).await;
            match progress {
                Progress::Busy => {}
                Progress::Waits | Progress::Asks | Progress::Below => {
                    let mut questions = self.questions().await?;
                    if matches!(progress, Progress::Below) && !questions.is_empty() {
                        // The run that became idle last may have requested an approval since.
                        questions =
                            if self.has_working_descendants(&view).await? { Vec::new() } else { self.questions().await? };
                    }
                    if !questions.is_empty() {
                        return self.end(FinishOutcome::asking(&self.key.clone(), &questions), None).await;
                    }
                    if matches!(progress, Progress::Waits) {
                        let result = view.agent_stop().map(|stop| json!({"stop": stop}));
                        return self.end(FinishOutcome::Success, result).await;
                    }
                }
                Progress::Paused(pause) => return self.end_paused(&pause).await,
                Progress::Ended(status) => return self.end_of_run(status).await,
            }
            self.flush().await?;
            self.expect_worker(&view).await?;
            let interval = if is_in_task {
                Some(BLOCKED_POLL_INTERVAL)
            } else {
                matches!(progress, Progress::Below).then_some(DESCENDANTS_POLL_INTERVAL)
            };
            let poll_at = interval.map(|interval| Instant::now() + interval);
            if !self.wait(&mut watch, poll_at).await? {
                return Ok(());
            }
        }
    }

    /// Fails if no worker has had the run's code for a while. The run continues later; the client is not kept waiting.
    async fn expect_worker(&mut self, view: &RunView) -> Result<(), StreamError> {
        let is_alone = self.runtime().pending_reason(&view.head).await == Some(BlockReason::NoWorker);
        let missing =
            if is_alone { Some((view.head.kind.clone(), view.head.version.clone())) } else { self.missing_task(view).await };
        let Some((kind, version)) = missing else {
            self.alone_since = None;
            return Ok(());
        };
        let since = *self.alone_since.get_or_insert_with(Instant::now);
        if since.elapsed() < WORKER_PATIENCE {
            return Ok(());
        }
        Err(RuntimeError::NoCompatibleWorker { kind, version }.into())
    }

    /// Sends what the run and the runs below are blocked on, when it begins, changes and ends: rate-limited keys and quarantined
    /// tasks. Missing workers and pending attempts are reported elsewhere.
    async fn show_blocked_on(&mut self, view: &RunView, progress: &Progress) {
        let is_working = matches!(progress, Progress::Busy | Progress::Below) && !self.translator.is_streaming();
        let checks_descendants = is_working && view.awaits(AwaitedKind::Child);
        if checks_descendants && self.descendants_checked_at.is_some_and(|visited| visited.elapsed() < BLOCKED_POLL_INTERVAL) {
            return;
        }
        self.descendants_checked_at = checks_descendants.then(Instant::now);
        // If it cannot be read, the last report stays valid.
        let Ok(found) = (if is_working { self.find_blocked_on(view).await } else { Ok(Vec::new()) }) else { return };
        let is_same = |(one, other): (&BlockedTask, &BlockedTask)| {
            // The end of a rate limit is computed from the remaining time, so it varies a little.
            let (one, other) = (&one.blocker, &other.blocker);
            let until = [one, other].map(|blocker| blocker.until.unwrap_or_default());
            let apart = until[0].since(until[1]).max(until[1].since(until[0]));
            one.task == other.task && one.why == other.why && apart < BLOCKED_POLL_INTERVAL
        };
        if found.len() != self.blocked.len() || !found.iter().zip(&self.blocked).all(is_same) {
            self.out.push(custom("blocked_on", &json!({"blocked_on": found})));
            self.blocked = found;
        }
    }

    /// Returns what the run and the runs that it waits for, directly or indirectly, are blocked on.
    async fn find_blocked_on(&self, view: &RunView) -> Result<Vec<BlockedTask>, RuntimeError> {
        let (mut found, mut open, mut visited) = (Vec::new(), vec![view.clone()], 0);
        while let Some(view) = open.pop() {
            if view.awaits(AwaitedKind::Task) {
                let mut blocked_on = self.runtime().blocked_on(&view.head.key).await?;
                blocked_on.retain(|blocker| matches!(blocker.why, BlockReason::RateLimited | BlockReason::Quarantined));
                let (agent, run) = (&view.head.kind, &view.head.key.id);
                let of_run = |blocker| BlockedTask { agent: agent.clone(), run: run.clone(), blocker };
                found.extend(blocked_on.into_iter().map(of_run));
            }
            for key in awaited_children(&view) {
                if visited == BELOW_MAX {
                    break;
                }
                visited += 1;
                match self.runtime().read_run(&key).await {
                    // Not started yet, or deleted.
                    Err(RuntimeError::Store(StoreError::RunNotFound { .. })) => {}
                    view => open.push(view?),
                }
            }
        }
        found.sort_by(|one, other| one.blocker.task.cmp(&other.blocker.task));
        Ok(found)
    }

    /// Returns a task that the run waits for and that no worker can execute, such as a call of a model that no worker serves.
    /// Workers that cannot be listed count as able.
    async fn missing_task(&self, view: &RunView) -> Option<(Name, Option<Name>)> {
        let tasks =
            view.awaiting.iter().filter(|awaited| awaited.kind == AwaitedKind::Task).filter_map(|awaited| awaited.name.clone());
        let has = |workers: &[WorkerInfo], task: &Name| workers.iter().any(|worker| worker.task_kinds.contains(task));
        let here = self.runtime().list_workers(&self.key.namespace);
        let missing: Vec<Name> = tasks.filter(|task| !has(&here, task)).collect();
        if missing.is_empty() {
            return None;
        }
        let elsewhere = self.runtime().workers_elsewhere(&self.key.namespace).await.ok()?;
        missing.into_iter().find(|task| !has(&elsewhere, task)).map(|task| (task, None))
    }

    /// Waits for a change of the run and sends its output meanwhile; returns false when the server stops.
    async fn wait(&mut self, watch: &mut RunWatch, poll_at: Option<Instant>) -> Result<bool, StreamError> {
        loop {
            let keep_alive = self.server.limits().keep_alive;
            let alone = self.alone_since.map(|since| since + WORKER_PATIENCE);
            let (server, key, offset) = (self.server.clone(), self.key.clone(), self.offset.clone());
            let page = tokio::select! {
                changed = watch.changed() => return Ok(changed.map(|()| true)?),
                page = server.runtime().read_stream(&key, offset.as_deref(), keep_alive) => page?,
                () = self.sink.gone() => return Err(StreamError::Over),
                () = server.closed() => return Ok(false),
                () = at(alone) => return Ok(true),
                () = at(poll_at) => return Ok(true),
            };
            if page.frames.is_empty() {
                self.sink.send(NOTHING_NEW.to_owned(), None).await?;
            }
            self.take(page.frames, page.next).await?;
            self.flush().await?;
        }
    }

    /// Processes the available frames of the stream; returns whether there were any.
    async fn take_frames(&mut self) -> Result<bool, StreamError> {
        let page = self.runtime().read_stream(&self.key, self.offset.as_deref(), Duration::ZERO).await?;
        let has_some = !page.frames.is_empty();
        self.take(page.frames, page.next).await?;
        Ok(has_some)
    }

    async fn take(&mut self, frames: Vec<StreamFrame>, next: String) -> Result<(), StreamError> {
        for frame in frames {
            let from = self.out.len();
            let want = self.translator.take(&frame.content, &mut self.out);
            self.out[from..].iter().for_each(|event| self.client.record_event(event));
            match want {
                TranslatorNeed::Nothing => {}
                TranslatorNeed::Snapshot => self.show_messages(self.translator.leaf).await?,
                TranslatorNeed::Entry(entry) => self.show_entry(&entry).await?,
            }
        }
        self.offset = Some(next);
        Ok(())
    }

    async fn show_entry(&mut self, position: &StreamEntry) -> Result<(), StreamError> {
        if let Some(entry) = entry(self.runtime(), &self.key, position, self.size_limit()).await? {
            let from = self.out.len();
            self.translator.show(&entry, &mut self.out);
            self.out[from..].iter().for_each(|event| self.client.record_event(event));
        }
        Ok(())
    }

    fn size_limit(&self) -> AttachmentLimit {
        AttachmentLimit::within(self.server.limits().body_bytes_max)
    }

    /// Replaces the client's conversation. Messages that are not in the conversation yet come last.
    async fn show_messages(&mut self, leaf: Option<Hash>) -> Result<(), StreamError> {
        let conversation = conversation(self.runtime(), &self.key, leaf, self.size_limit()).await?;
        self.client.recognize(&conversation, &mut self.translator.names);
        for entry in conversation.iter().filter(|entry| entry.is_of("user")) {
            // The message was sent as a signal or was part of the run's input, and its entry has an id of the agent's own.
            if let Some(at) = self.translator.pending.iter().position(|message| message.matches_entry(entry))
                && !self.translator.names.contains_key(&entry.entry)
            {
                let message = self.translator.pending.remove(at);
                self.translator.names.insert(entry.entry, message.id);
            }
        }
        // The client may also know the entry under an id from before.
        let names = &self.translator.names;
        self.translator.pending.retain(|message| !conversation.iter().any(|entry| names.get(&entry.entry) == Some(&message.id)));
        let mut shown = messages(conversation, &self.translator.names);
        let pending = self.translator.pending.iter();
        shown.extend(pending.map(|message| json!({"id": message.id, "role": "user", "content": message.sent()})));
        self.out.extend(self.client.replace(&shown));
        Ok(())
    }

    /// Sends the state of the run. State belongs to a generation, so the final state of earlier generations is sent, too.
    async fn show_states(&mut self, view: &RunView) -> Result<(), StreamError> {
        let last = view.head.generation;
        let earlier = if self.has_read { self.generation } else { last.saturating_sub(1) };
        for generation in earlier..last {
            let head = self.runtime().store().read_run(self.key.clone(), Some(generation)).await;
            if let Some(head) = head.map_err(RuntimeError::from)? {
                let records = onward_runtime::read_records(self.runtime(), &head).await?;
                self.show_state(&RunView::fold(head, &records));
            }
        }
        (self.generation, self.has_read) = (last, true);
        self.show_state(view);
        Ok(())
    }

    fn show_state(&mut self, view: &RunView) {
        let value = |payload: &Payload| payload.read::<Value>().unwrap_or_default();
        let state: Map<String, Value> = view.state.iter().map(|(key, payload)| (key.to_string(), value(payload))).collect();
        let state = Value::Object(state);
        // A generation that sets no state leaves the state of an earlier one as it is.
        if !view.state.is_empty() && self.state.as_ref() != Some(&state) {
            self.out.push(json!({"type": "STATE_SNAPSHOT", "snapshot": state}));
            self.state = Some(state);
        }
    }

    /// Returns the open approvals of the run and the runs below, each with the kind of its run.
    async fn questions(&self) -> Result<Vec<(Name, Wait)>, StreamError> {
        let (namespace, run) = (self.key.namespace.clone(), Some(self.key.clone()));
        let query = WaitQuery { namespace, run, below: true, limit: PAGE_DEFAULT, ..WaitQuery::default() };
        let mut questions = Vec::new();
        for wait in self.runtime().list_approvals(query).await? {
            // A run that was deleted meanwhile has no approvals.
            if let Some(head) = self.runtime().store().read_run(wait.run.clone(), None).await.map_err(RuntimeError::from)? {
                questions.push((head.kind, wait));
            }
        }
        Ok(questions)
    }

    /// Returns whether a run that this run waits for, directly or indirectly, continues by itself.
    async fn has_working_descendants(&self, view: &RunView) -> Result<bool, StreamError> {
        let (mut open, mut visited) = (awaited_children(view), 0);
        while let Some(key) = open.pop()
            && visited < BELOW_MAX
        {
            visited += 1;
            let view = match self.runtime().read_run(&key).await {
                // Not started yet, or deleted.
                Err(RuntimeError::Store(StoreError::RunNotFound { .. })) => return Ok(true),
                view => view?,
            };
            match progress_of(&view) {
                // The parent of an ended run continues once it gets the result.
                Progress::Busy | Progress::Ended(_) => return Ok(true),
                Progress::Below => open.extend(awaited_children(&view)),
                Progress::Waits | Progress::Asks | Progress::Paused(_) => {}
            }
        }
        Ok(false)
    }

    /// Sends the final conversation and the outcome of the turn.
    async fn end(&mut self, outcome: FinishOutcome<'_>, result: Option<Value>) -> Result<(), StreamError> {
        self.translator.close_all(&mut self.out);
        let last = EntryQuery { limit: 1, ..EntryQuery::default() };
        let leaf = self.runtime().read_entries(&self.key, last).await?.leaf;
        self.show_messages(leaf).await?;
        self.finish(outcome, result).await
    }

    async fn finish(&mut self, outcome: FinishOutcome<'_>, result: Option<Value>) -> Result<(), StreamError> {
        let finished = Finished {
            thread_id: &self.thread_id,
            run_id: &self.run_id,
            outcome,
            result: result.filter(|result| !result.is_null()),
            usage: self.translator.usage(),
        };
        let last = finished.event();
        self.flush().await?;
        Ok(self.sink.send(format!("data: {last}\n\n"), None).await?)
    }

    async fn end_paused(&mut self, pause: &RunPaused) -> Result<(), StreamError> {
        let reason = json!(pause.reason);
        let options = match pause.reason {
            PauseReason::BudgetExhausted => {
                let head = self.runtime().read_head(&self.key).await?;
                resume_options(&head, self.runtime().clock().now())
            }
            _ => String::new(),
        };
        let resume = format!("resume it with `onward run resume {}{options}`", self.key.id);
        let reason = reason.as_str().unwrap_or_default();
        self.fail(ErrorCode::RunPaused.as_str(), &format!("the run is paused ({reason}): {}; {resume}", pause.message));
        Ok(self.flush().await?)
    }

    async fn end_of_run(&mut self, status: Status) -> Result<(), StreamError> {
        let head = self.runtime().read_head(&self.key).await?;
        let last = Index(head.next_index.0.saturating_sub(1));
        let records = self.runtime().read_log(&self.key, Some(head.generation), last, 1).await?;
        match records.last().and_then(outcome) {
            Some(Ok(output)) => self.end(FinishOutcome::Success, output.read().ok()).await,
            Some(Err(_)) if status == Status::Canceled => self.end(FinishOutcome::Cancelled, None).await,
            Some(Err(Failure { code, message, .. })) => {
                self.fail(&code, &message);
                Ok(self.flush().await?)
            }
            None => self.end(FinishOutcome::Success, None).await,
        }
    }

    /// Sends an error, which is the last event.
    fn fail(&mut self, code: &str, message: &str) {
        self.translator.close_all(&mut self.out);
        self.out.push(json!({"type": "RUN_ERROR", "message": message, "code": code}));
    }

    async fn flush(&mut self) -> Result<(), Over> {
        if self.out.is_empty() {
            return Ok(());
        }
        let text: String = self.out.drain(..).map(|event| format!("data: {event}\n\n")).collect();
        self.sink.send(text, None).await
    }
}

async fn at(instant: Option<Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

fn as_document<S: Serializer>(blocker: &Blocker, serializer: S) -> Result<S::Ok, S::Error> {
    OneBlocker::from(blocker).serialize(serializer)
}

fn awaited_children(view: &RunView) -> Vec<RunKey> {
    let children = view.awaiting.iter().filter_map(|awaited| awaited.child.clone());
    children.map(|id| RunKey::new(view.head.key.namespace.clone(), id)).collect()
}

/// Returns whether a run continues by itself, or what it needs.
fn progress_of(view: &RunView) -> Progress {
    match view.head.status {
        Status::Pending | Status::Running => return Progress::Busy,
        Status::Paused => return view.pause.clone().map_or(Progress::Busy, |pause| Progress::Paused(Box::new(pause))),
        Status::Waiting => {}
        status => return Progress::Ended(status),
    }
    let awaits = |kind: AwaitedKind| view.awaits(kind);
    if awaits(AwaitedKind::Task) {
        return Progress::Busy;
    }
    if awaits(AwaitedKind::Child) {
        return Progress::Below;
    }
    if awaits(AwaitedKind::Approval) {
        return Progress::Asks;
    }
    // A timer lets the run continue by itself.
    if awaits(AwaitedKind::Signal) || awaits(AwaitedKind::Promise) { Progress::Waits } else { Progress::Busy }
}

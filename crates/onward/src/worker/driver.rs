//! The driver of one run in memory: feeds its code, sends its commits to the store, and releases it when it is evicted.
//!
//! A hand-written future rather than an async function, because a run waits for several things at once: its inbox, its commit and
//! its steps.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use onward_core::engine::{CommitDraft, DivergencePoint, Fault};
use onward_core::live::StepsReport;
use onward_core::log::CommitHeader;
use onward_core::run::{Carries, Commit, Committed, END_REFUSALS_MAX};
use onward_core::{Epoch, ErrorCode, Event, Failure, Index, Name, Record, RunKey};
use onward_runtime::Question;
use onward_store::{ClaimedRun, Consequence, StoreError, payloads};

use super::inbox::{InboxItem, RunInbox};
use super::{ReplayCheck, Worker, log_lines, read_all};
use crate::agent::conversation_cache::{CompletedRead, ConversationRead};
use crate::host::code::{Code, Handler, Need, WorkerShared};
use crate::host::replay::{Logs, no_earlier, replay_log};
use crate::trace::Traced;

/// The error code of a refused end of a run that has unread inputs.
const UNREAD: ErrorCode = ErrorCode::InputsUnread;

/// Delay before a failed write is retried.
const RETRY_DELAY: Duration = Duration::from_millis(500);

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

pub(super) struct Driver {
    worker: Arc<Worker>,
    inbox: Arc<RunInbox>,
    key: RunKey,
    kind: Name,
    generation: u32,
    epoch: Epoch,
    handler: Handler,
    shared: WorkerShared,
    code: Code,
    traced: Traced,
    /// A read of the log: all of it at first, later the records that the inbox missed.
    reading: Option<BoxFuture<Result<Vec<Record>, StoreError>>>,
    /// A read of the log of an agent's prelude.
    reading_prelude: Option<BoxFuture<Result<Vec<Record>, StoreError>>>,
    /// A read of the conversation for an agent's code.
    reading_earlier: Option<BoxFuture<Result<CompletedRead, StoreError>>>,
    /// The divergence point at which the code leaves the log, until that is recorded.
    divergence_point: Option<DivergencePoint>,
    in_flight: Option<(CommitHeader, BoxFuture<Result<Committed, StoreError>>)>,
    /// The part of the commit in flight that carries over into the next generation.
    carries: Carries,
    leaving: Option<BoxFuture<()>>,
    checking: Option<BoxFuture<Result<Vec<Record>, StoreError>>>,
    questions: Vec<Question>,
    refusals: u32,
    evict: bool,
    is_idle: bool,
    is_watched: bool,
}

/// The result of one turn: continue at once, or wait.
enum NextAction {
    Again,
    Wait,
}

impl Driver {
    pub fn new(worker: Arc<Worker>, claimed: ClaimedRun, inbox: Arc<RunInbox>, shared: WorkerShared) -> Driver {
        let head = claimed.head;
        let handler = worker.registry.handler(&head.kind, head.version.as_ref()).expect("only known kinds are claimed");
        let mut code = Code::new(head.key.clone(), handler.clone(), &shared);
        let traced = Traced::new(&shared, &head);
        let whole = claimed.records.is_some();
        claimed.records.into_iter().flatten().for_each(|record| code.feed(record));
        let mut driver = Driver {
            inbox,
            key: head.key,
            kind: head.kind,
            generation: head.generation,
            epoch: head.epoch,
            handler,
            shared,
            code,
            traced,
            reading: None,
            reading_prelude: None,
            reading_earlier: None,
            divergence_point: None,
            in_flight: None,
            carries: Carries::default(),
            leaving: None,
            checking: None,
            questions: Vec::new(),
            refusals: 0,
            evict: false,
            is_idle: false,
            is_watched: false,
            worker,
        };
        if !whole {
            driver.read();
        }
        driver
    }

    /// Reads the log from the first record that was not fed.
    fn read(&mut self) {
        self.reading = Some(self.read_from(self.code.lock().engine.next_feed()));
    }

    fn read_from(&self, from: Index) -> BoxFuture<Result<Vec<Record>, StoreError>> {
        let (connection, key, generation) = (self.worker.connection.clone(), self.key.clone(), self.generation);
        Box::pin(async move { read_all(&*connection, &key, Some(generation), from).await })
    }

    /// Restarts the code with nothing fed.
    fn start_over(&mut self) {
        self.code =
            Code::new(self.key.clone(), self.handler.clone(), &self.shared).with_divergence_point(self.divergence_point.clone());
        self.code.lock().is_watched = self.is_watched;
        self.reading_prelude = None;
        self.reading_earlier = None;
        self.read();
    }

    /// Reads the prelude of an agent's code. Returns a turn while it is not available.
    fn poll_prelude(&mut self, cx: &mut Context<'_>) -> Option<NextAction> {
        let generation = self.code.wants_prelude()?;
        if self.reading_prelude.is_none() {
            let (library, key) = (self.worker.library.clone(), self.key.clone());
            self.reading_prelude = Some(Box::pin(async move { library.prelude(&key, generation).await }));
        }
        match self.reading_prelude.as_mut()?.as_mut().poll(cx) {
            Poll::Pending => Some(NextAction::Wait),
            Poll::Ready(Err(error)) => Some(self.cannot_read(&error)),
            Poll::Ready(Ok(records)) => {
                self.reading_prelude = None;
                self.code.give_prelude(records);
                None
            }
        }
    }

    fn read_earlier(&mut self, wish: ConversationRead) {
        let (library, key, generation) = (self.worker.library.clone(), self.key.clone(), self.generation);
        self.reading_earlier = Some(Box::pin(async move {
            let found = library.read(&key, generation, wish.walk()).await;
            found.map(|found| (wish, found.into_path().into()))
        }));
    }

    /// Reads the conversation for an agent's code. Returns a turn while it is not available.
    fn poll_earlier(&mut self, cx: &mut Context<'_>) -> Option<NextAction> {
        match self.reading_earlier.as_mut()?.as_mut().poll(cx) {
            Poll::Pending => Some(NextAction::Wait),
            Poll::Ready(Err(error)) => Some(self.cannot_read(&error)),
            Poll::Ready(Ok((wish, entries))) => {
                self.reading_earlier = None;
                self.code.give_earlier(wish, entries);
                None
            }
        }
    }

    /// Takes the content of the inbox; returns whether the lease is lost.
    fn take_inbox(&mut self, waker: &Waker) -> bool {
        let InboxItem { records, questions, lost, evict, watch } = self.inbox.take(waker);
        if !records.is_empty() || !questions.is_empty() {
            self.wake_up();
        }
        records.into_iter().for_each(|record| self.code.feed(record));
        self.questions.extend(questions);
        self.evict |= evict;
        watch.into_iter().for_each(|on| self.watch(on));
        lost
    }

    /// Lists the steps under way for readers of the run, and reports later ones from now on; or stops that.
    fn watch(&mut self, on: bool) {
        self.is_watched = on;
        let steps = {
            let mut state = self.code.lock();
            state.is_watched = on;
            on.then(|| state.engine.steps_under_way())
        };
        if let Some(steps) = steps {
            let report = StepsReport { run: self.key.clone(), generation: self.generation, is_complete: true, steps };
            self.worker.connection.report_steps(report);
        }
    }

    fn turn(&mut self, cx: &mut Context<'_>) -> NextAction {
        self.traced.begin();
        if self.take_inbox(cx.waker()) {
            // As far as this worker knows the lease is lost. Releasing it does not affect a new holder.
            return self.leave(true);
        }
        if let Some(reading) = &mut self.reading {
            match reading.as_mut().poll(cx) {
                Poll::Pending => return NextAction::Wait,
                Poll::Ready(Err(error)) => return self.cannot_read(&error),
                Poll::Ready(Ok(records)) => {
                    self.reading = None;
                    records.into_iter().for_each(|record| self.code.feed(record));
                }
            }
        }
        if let Some((header, future)) = &mut self.in_flight
            && let Poll::Ready(answer) = future.as_mut().poll(cx)
        {
            let header = *header;
            self.in_flight = None;
            match answer {
                Ok(committed) => {
                    self.divergence_point = None;
                    self.traced.export(); // O1
                    if committed.status.is_closed() {
                        return self.leave(false);
                    }
                    self.code.lock().engine.committed(header, committed.index, committed.at);
                    self.check_replay(header.n);
                }
                Err(error) if retries(&error) => {
                    self.commit_again(header);
                    return NextAction::Again;
                }
                Err(error) => return self.refused(&error, header),
            }
        }
        if self.code.lock().engine.gap().is_some() && self.in_flight.is_none() {
            self.read();
            return NextAction::Again;
        }
        if let Some(turn) = self.poll_check(cx) {
            return turn;
        }
        if let Some(turn) = self.poll_prelude(cx) {
            return turn;
        }
        if let Some(turn) = self.poll_earlier(cx) {
            return turn;
        }
        match self.code.advance(cx.waker()) {
            Ok(Need::Commit(draft)) => {
                self.wake_up();
                self.commit(draft);
                NextAction::Again
            }
            Ok(Need::Earlier(wish)) => {
                self.read_earlier(wish);
                NextAction::Again
            }
            Ok(Need::Shell) => {
                self.wake_up();
                NextAction::Wait
            }
            Ok(Need::Nothing) => self.wait(),
            Err(Fault::Departed(divergence_point)) => {
                self.divergence_point = Some(divergence_point);
                self.start_over();
                NextAction::Again
            }
            Err(Fault::Branched) => {
                self.divergence_point = None;
                self.start_over();
                NextAction::Again
            }
            Err(fault) => self.pause(fault),
        }
    }

    fn commit(&mut self, draft: CommitDraft) {
        let mut commit = draft.into_commit(self.key.clone(), self.generation, self.epoch, self.worker.commit_id());
        commit.end_over_unread = self.refusals >= END_REFUSALS_MAX;
        if self.handler.is_agent && commit.events.last().is_some_and(Event::ends_log) {
            commit.carries.version = self.worker.registry.current_of(&self.kind).cloned(); // R14
        }
        self.carries = commit.carries.clone();
        self.traced.commit(&commit);
        self.in_flight = Some((commit.header(), self.worker.connection.commit(commit)));
    }

    /// Fails the step whose result is the largest payload of the refused commit: its effect has happened, and pausing the run
    /// would repeat it. Returns false if the largest payload is not a step result.
    fn fail_largest(&mut self, error: &StoreError) -> bool {
        let events = self.code.in_flight();
        let Some(Event::StepCompleted(step)) = events.iter().max_by_key(|event| payloads::payload_bytes([*event])) else {
            return false;
        };
        let hint = error.hint().map(|hint| format!("; {hint}")).unwrap_or_default();
        let message = format!("the result of step `{}` cannot be recorded: {error}{hint}", step.name);
        self.code.lock().engine.fail_reported(&step.call_id, Failure::fatal(message).with_code(ErrorCode::PayloadTooLarge));
        true
    }

    /// Repeats the commit in flight after a delay, with the same id. If the first request arrived after all, its response is
    /// returned (L5).
    fn commit_again(&mut self, header: CommitHeader) {
        let commit = self.commit_in_flight(header);
        let (connection, tokio) = (self.worker.connection.clone(), self.worker.tokio.clone());
        let future = async move {
            sleep(&tokio, RETRY_DELAY).await;
            connection.commit(commit).await
        };
        self.in_flight = Some((header, Box::pin(future)));
    }

    /// Returns the commit in flight, with its events from the engine.
    fn commit_in_flight(&self, header: CommitHeader) -> Commit {
        let CommitHeader { n, epoch, commit_id, horizon, waits, is_while_paused } = header;
        Commit {
            key: self.key.clone(),
            generation: self.generation,
            epoch,
            n,
            commit_id,
            horizon,
            events: self.code.in_flight(),
            waits,
            end_over_unread: self.refusals >= END_REFUSALS_MAX,
            is_while_paused,
            carries: self.carries.clone(),
        }
    }

    fn refused(&mut self, error: &StoreError, header: CommitHeader) -> NextAction {
        // Compared by code, because the error may have come over a network.
        match ErrorCode::find(error.code()) {
            Some(UNREAD) => {}
            // Results of running steps are still accepted. Everything else waits until the run continues, here or on another
            // worker.
            // For a key that this worker may not use, the server has paused the run (BK3).
            Some(ErrorCode::RunPaused | ErrorCode::SharedKeyNotAllowed) => {
                self.code.lock().engine.rejected_while_paused();
                self.read();
                return NextAction::Again;
            }
            Some(ErrorCode::PayloadTooLarge) if self.fail_largest(error) => {
                let header = CommitHeader { commit_id: self.worker.commit_id(), ..header };
                self.in_flight = Some((header, self.worker.connection.commit(self.commit_in_flight(header))));
                return NextAction::Again;
            }
            // A repeat would be refused as well, and this worker still holds the run: pause it with the error.
            Some(ErrorCode::PayloadTooLarge | ErrorCode::CommitMalformed) => {
                let hint = error.hint().map(|hint| format!("; {hint}")).unwrap_or_default();
                return self.pause(Fault::Misuse(format!("the calls of the code cannot be recorded: {error}{hint}")));
            }
            _ => return self.leave(false),
        }
        // Only ends count: a commit that abandons calls is refused until the code has seen every input, however often that is
        // (R11).
        self.refusals += u32::from(self.code.in_flight().last().is_some_and(Event::ends_log));
        if self.code.retry_continue() {
            self.read();
        } else {
            // The code returned, or diverged from its log, without having seen new inputs: it is replayed with them.
            self.start_over();
        }
        NextAction::Again
    }

    fn cannot_read(&mut self, error: &StoreError) -> NextAction {
        if error.consequence() == Consequence::IsolateRun {
            return self.pause(Fault::LogBroken(error.to_string()));
        }
        self.leave(true)
    }

    fn wait(&mut self) -> NextAction {
        for Question { name, input, answer, .. } in std::mem::take(&mut self.questions) {
            self.code.query(name, input, answer);
        }
        let busy = self.in_flight.is_some() || self.checking.is_some() || self.code.lock().engine.has_running_steps();
        if !busy {
            self.traced.mark_waiting();
        }
        if self.code.lock().engine.is_paused() && !busy {
            // Its steps are recorded, so the worker that claims the run after the resume finds everything in the log.
            return self.leave(true);
        }
        if self.in_flight.is_some()
            || self.code.lock().engine.is_ended()
            || !self.code.lock().engine.is_evictable()
            || self.checking.is_some()
        {
            return NextAction::Wait;
        }
        if self.evict && self.inbox.close_if_empty() {
            return self.leave(true);
        }
        if !self.is_idle {
            self.is_idle = true;
            self.worker.cache.idle(&self.inbox);
        }
        NextAction::Wait
    }

    fn wake_up(&mut self) {
        if self.is_idle {
            self.is_idle = false;
            self.worker.cache.busy(&self.inbox);
        }
    }

    fn pause(&mut self, fault: Fault) -> NextAction {
        let Some(report) = fault.into_pause() else { return self.leave(false) };
        let (connection, key, generation, epoch) =
            (self.worker.connection.clone(), self.key.clone(), self.generation, self.epoch);
        let kind = self.kind.clone();
        self.leaving = Some(Box::pin(async move {
            // The pause fails if another worker holds the run by now; if the store is unreachable, the run stays as it was.
            if connection.pause(key.clone(), generation, epoch, report.clone()).await.is_ok() {
                log_lines::paused(&key, &kind, &report);
            }
            drop(connection.release(key, epoch).await);
        }));
        NextAction::Again
    }

    /// Removes the run from memory. With `release`, also releases its lease, so that another worker may claim it at once.
    fn leave(&mut self, release: bool) -> NextAction {
        let (connection, key, epoch) = (self.worker.connection.clone(), self.key.clone(), self.epoch);
        self.leaving = Some(Box::pin(async move {
            connection.close_inbox(&key, epoch);
            if release {
                drop(connection.release(key, epoch).await);
            }
        }));
        NextAction::Again
    }

    fn check_replay(&mut self, n: u64) {
        let due = match self.worker.options.check {
            // An agent may diverge from its log.
            _ if self.handler.is_agent => false,
            ReplayCheck::Off => false,
            ReplayCheck::Doubling => (n + 1).is_power_of_two(),
            ReplayCheck::Every => true,
        };
        if due && self.checking.is_none() {
            self.checking = Some(self.read_from(Index(0)));
        }
    }

    fn poll_check(&mut self, cx: &mut Context<'_>) -> Option<NextAction> {
        let Poll::Ready(records) = self.checking.as_mut()?.as_mut().poll(cx) else { return None };
        self.checking = None;
        let records = records.ok()?;
        // Only agents have more logs than this one, and they are not checked.
        let logs = Logs { prelude: &[], records: &records, earlier: &no_earlier };
        let fault = replay_log(&self.key, &self.handler, logs, &self.shared, true).err()?;
        Some(self.pause(fault))
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        loop {
            if let Some(leaving) = &mut this.leaving {
                if leaving.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
                this.inbox.close();
                this.worker.forget(&this.key, &this.inbox);
                return Poll::Ready(());
            }
            match this.turn(cx) {
                NextAction::Again => {}
                NextAction::Wait => return Poll::Pending,
            }
        }
    }
}

fn retries(error: &StoreError) -> bool {
    error.consequence() == Consequence::Retry && error.code() != UNREAD
}

/// Sleeps on the async runtime, from a thread outside of it.
async fn sleep(tokio: &tokio::runtime::Handle, span: Duration) {
    let sleep = {
        let _entered = tokio.enter();
        tokio::time::sleep(span)
    };
    sleep.await;
}

//! One run in memory: its code, its log, and the effects of the log, in virtual time.
//!
//! Admission is the real one (`onward-core`), so a world decides like any store. After every commit the log is replayed strictly
//! from the start and compared, because state in memory can hide differences between live and replayed runs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use onward_core::conversation::{Entry, entries_of};
use onward_core::engine::{CommitDraft, Fault};
use onward_core::event::{RunStarted, SignalReceived};
use onward_core::log::prelude_of;
use onward_core::projection::Projection;
use onward_core::reopen;
use onward_core::run::RunQueue;
use onward_core::run::{Admitted, Again, CommitRefusal, END_REFUSALS_MAX, Effect, Input, NewRun, OutboxMessage, Refusal, Wait};
use onward_core::task::Task;
use onward_core::time::millis;
use onward_core::{CallId, CommitId, Epoch, Event, Log, Name, Namespace, Payload, RunHead, RunId, RunKey, Status, Timestamp};
use serde::Serialize;

use super::steps;
use crate::agent::AgentCtx;
use crate::agent::conversation_cache::ConversationRead;
use crate::ctx::Ctx;
use crate::host::code::{Code, Handler, Need, WorkerShared};
use crate::host::replay::{Logs, replay_log};
use crate::middleware::Middleware;
use crate::registry::{erase_code, foreign_code};
use crate::shell::Shell;

/// One run, executed and inspected step by step.
pub struct World {
    handler: Handler,
    shared: WorkerShared,
    head: RunHead,
    log: Log,
    /// The logs of earlier generations.
    past: Vec<Log>,
    code: Option<Code>,
    now: Timestamp,
    refusals: u32,
    pub(crate) timers: BTreeMap<CallId, Timestamp>,
    frozen: bool,
    pub(crate) tasks: BTreeMap<CallId, Task>,
    pub(crate) waits: BTreeMap<CallId, Wait>,
    pub(crate) sent: Vec<onward_core::run::OutboxMessage>,
    once: BTreeMap<String, (String, onward_core::Index)>,
    shadow: bool,
    /// Woken when a step makes progress.
    waker: Waker,
    shadow_replays: u64,
    /// A fault right after the last commit, found by a replay; the live code would have it, too.
    found: Option<Fault>,
}

/// Returns the default run key of tests.
pub(crate) fn default_key() -> RunKey {
    RunKey::new(Namespace::default(), RunId::new("test").expect("a constant name"))
}

impl World {
    /// Starts `workflow` with `input` at a fixed time.
    pub fn new<I, O, F, Fut>(workflow: F, input: &(impl Serialize + ?Sized)) -> World
    where
        I: serde::de::DeserializeOwned + Send + 'static,
        O: Serialize + 'static,
        F: Fn(Ctx, I) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = crate::Result<O>> + Send + 'static,
    {
        let input = Payload::json(input).expect("a test's input can be written as JSON");
        World::with_handler(default_key(), erase_code(workflow), input, WorkerShared::default(), 7)
    }

    /// Starts `agent` with `input` at a fixed time. Its log is not replayed after every commit, because an agent may diverge from
    /// it.
    pub fn new_agent<I, O, F, Fut>(agent: F, input: &(impl Serialize + ?Sized)) -> World
    where
        I: serde::de::DeserializeOwned + Send + 'static,
        O: Serialize + 'static,
        F: Fn(AgentCtx, I) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = crate::Result<O>> + Send + 'static,
    {
        let input = Payload::json(input).expect("a test's input can be written as JSON");
        World::with_handler(default_key(), erase_code(agent), input, WorkerShared::default(), 7).without_shadow_replay()
    }

    /// Starts code in another language at a fixed time, without replays after every commit: `shell` plays on another thread, and
    /// the world waits for it.
    pub fn foreign(shell: Arc<dyn Shell>, is_agent: bool, input: &(impl Serialize + ?Sized)) -> World {
        let input = Payload::json(input).expect("a test's input can be written as JSON");
        let handler = foreign_code(shell, is_agent);
        World::with_handler(default_key(), handler, input, WorkerShared::default(), 7).without_shadow_replay()
    }

    pub(crate) fn with_handler(key: RunKey, handler: Handler, input: Payload, shared: WorkerShared, seed: u64) -> World {
        let now = Timestamp(1_700_000_000_000);
        let started = RunStarted::new(Name::new("test").expect("a constant name"), input, seed);
        let (mut head, record) = RunHead::start(key, started, now);
        head.epoch = Epoch(1);
        let mut log = Log::default();
        log.push(record).expect("a log begins with its start");
        World {
            handler,
            shared,
            head,
            log,
            past: Vec::new(),
            code: None,
            now,
            refusals: 0,
            timers: BTreeMap::new(),
            frozen: false,
            tasks: BTreeMap::new(),
            waits: BTreeMap::new(),
            sent: Vec::new(),
            once: BTreeMap::new(),
            shadow: true,
            waker: Waker::noop().clone(),
            shadow_replays: 0,
            found: None,
        }
    }

    /// Adds a dependency, as on the real builder, from the next cold activation on.
    pub fn dep<T: std::any::Any + Send + Sync>(mut self, dep: T) -> World {
        let mut deps = (*self.shared.deps).clone();
        deps.insert(std::any::TypeId::of::<T>(), Arc::new(dep));
        self.shared.deps = Arc::new(deps);
        self
    }

    /// Adds a middleware, as on the real builder, from the next cold activation on.
    pub fn middleware(mut self, middleware: impl Middleware) -> World {
        self.shared.middlewares = self.shared.middlewares.with(middleware);
        self
    }

    /// Sets a deadline, before the run begins.
    pub fn deadline(self, limit: Duration) -> World {
        self.started(|started| RunStarted { deadline_ms: Some(millis(limit)), ..started })
    }

    /// Delays the start of the code, before the run begins. The timer of the start is one of the run's timers.
    pub fn start_after(self, delay: Duration) -> World {
        self.started(|started| RunStarted { start_after_ms: Some(millis(delay)), ..started })
    }

    /// Starts the run into a queue, before it begins. The test lets it in with `RunBegun`.
    pub fn queue(self, queue: Name) -> World {
        self.started(|started| RunStarted { queue: Some(Box::new(RunQueue::new(queue))), ..started })
    }

    fn started(mut self, change: impl FnOnce(RunStarted) -> RunStarted) -> World {
        let [first] = self.log.records() else { panic!("the run has begun already") };
        let started = change(first.started().expect("the first record").clone());
        let (head, record) = RunHead::start(self.head.key.clone(), started, self.now);
        head.start_effects(&record).into_iter().for_each(|effect| self.carry_out(effect));
        self.head = RunHead { epoch: self.head.epoch, ..head };
        self.log = Log::load(vec![record]).expect("a log begins with its start");
        self
    }

    /// Sets the waker for progress of steps.
    pub(crate) fn waking(mut self, waker: Waker) -> World {
        self.waker = waker;
        self
    }

    /// Disables the replay of the log after every commit, for very long runs.
    pub fn without_shadow_replay(mut self) -> World {
        self.shadow = false;
        self
    }

    pub fn now(&self) -> Timestamp {
        self.now
    }

    pub fn advance_time(&mut self, span: Duration) {
        self.now = self.now.after(span);
    }

    /// Returns the log of the current generation.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// Returns the logs of earlier generations, oldest first.
    pub fn past_logs(&self) -> &[Log] {
        &self.past
    }

    /// Returns how often the run has continued as new.
    pub fn generation(&self) -> u32 {
        self.head.generation
    }

    pub fn status(&self) -> Status {
        self.head.status
    }

    /// Returns how often the log was replayed from the start and compared.
    pub fn shadow_replays(&self) -> u64 {
        self.shadow_replays
    }

    /// Returns the names of the events in order, for assertions.
    pub fn event_names(&self) -> Vec<&'static str> {
        self.log.events().map(|(_, event)| event.name()).collect()
    }

    pub fn outcome(&self) -> Option<crate::Result<Payload>> {
        self.log.events().last().and_then(|(_, event)| match event {
            Event::RunCompleted(event) => Some(Ok(event.output.clone())),
            Event::RunFailed(event) => Some(Err(event.failure.clone())),
            Event::RunCanceled(event) => Some(Err(event.failure.clone())),
            _ => None,
        })
    }

    /// Returns the result as JSON text, for short assertions.
    pub fn output(&self) -> String {
        match self.outcome() {
            None => "open".to_owned(),
            Some(Ok(payload)) => format!("{payload:?}"),
            Some(Err(failure)) => format!("failed: {failure}"),
        }
    }

    /// Appends an input from outside. The code sees it at its next activation.
    pub fn input(&mut self, event: impl Into<Event>) -> Result<onward_core::Index, Refusal> {
        self.append(Input::new(event))
    }

    pub(crate) fn append(&mut self, mut input: Input) -> Result<onward_core::Index, Refusal> {
        if let Some(once) = &input.once
            && let Some((token, index)) = self.once.get(&once.key)
        {
            assert_eq!(once.again(token), Again::Repeated, "{} reaches the run twice with different content", once.describe());
            return Ok(*index);
        }
        let once = input.once.take();
        let admitted = self.head.admit_input(input, None, self.now)?;
        if let Some(once) = once {
            self.once.insert(once.key, (once.token, admitted.record.index));
        }
        Ok(self.apply(admitted))
    }

    /// Sends a signal.
    pub fn signal(&mut self, name: &str, payload: &(impl Serialize + ?Sized)) {
        let payload = Payload::json(payload).expect("a test's signal can be written as JSON");
        let name = Name::new(name).expect("a test's signal has a name");
        let signal = SignalReceived { name, payload, signal_id: None, sender: None };
        self.append(Input::signal(signal)).expect("an open run takes signals");
    }

    /// Runs the code until it needs a commit, without committing; inputs that follow arrive before the commit (CE4).
    pub fn activate(&mut self) -> Result<Option<CommitDraft>, Fault> {
        if let Some(fault) = self.found.take() {
            return Err(fault);
        }
        let mut divergence_point = None;
        loop {
            let mut code = match self.code.take() {
                Some(code) => code,
                None => Code::new(self.head.key.clone(), self.handler.clone(), &self.shared)
                    .with_divergence_point(divergence_point.take()),
            };
            let fed = self.log.records().partition_point(|record| record.index < code.lock().engine.next_feed());
            for record in &self.log.records()[fed..] {
                code.feed(record.clone());
            }
            if let Some(generation) = code.wants_prelude() {
                code.give_prelude(self.past[generation as usize].records().to_vec());
            }
            let mut need = code.advance(&self.waker);
            loop {
                match need {
                    Ok(Need::Earlier(wish)) => {
                        let entries = self.earlier(&wish);
                        code.give_earlier(wish, entries);
                    }
                    Ok(Need::Shell) => steps::wait(),
                    _ => break,
                }
                need = code.advance(&self.waker);
            }
            if let Err(Fault::Departed(found)) = need {
                divergence_point = Some(found);
                continue;
            }
            if let Err(Fault::Branched) = need {
                divergence_point = None;
                continue;
            }
            self.code = Some(code);
            return match need? {
                Need::Commit(draft) => Ok(Some(draft)),
                Need::Nothing => Ok(None),
                Need::Earlier(_) | Need::Shell => unreachable!("given above"),
            };
        }
    }

    /// Commits a draft. Returns `false` if it was refused: because of unread inputs, with which the code starts over, or because
    /// the run is paused.
    pub fn commit(&mut self, draft: CommitDraft) -> bool {
        // Any number that no other commit of the run has.
        let commit_id = CommitId((u64::from(self.head.generation) << 32) + self.head.next_commit + 1);
        let mut commit = draft.into_commit(self.head.key.clone(), self.head.generation, self.head.epoch, commit_id);
        commit.end_over_unread = self.refusals >= END_REFUSALS_MAX;
        let (header, ends) = (commit.header(), commit.events.last().is_some_and(Event::ends_log));
        match self.head.admit_commit(commit, self.now) {
            Ok(admitted) => {
                let index = self.apply(admitted);
                if let Some(code) = &mut self.code {
                    code.lock().engine.committed(header, index, self.now);
                }
                if self.shadow {
                    let log = std::mem::take(&mut self.log);
                    self.shadow_replay(&log);
                    self.log = log;
                }
                true
            }
            Err(CommitRefusal::Refused(Refusal::Unread { .. })) => {
                self.refusals += u32::from(ends);
                let continues = self.code.as_mut().is_some_and(Code::retry_continue);
                if !continues {
                    self.crash();
                }
                false
            }
            Err(CommitRefusal::Refused(Refusal::Paused { .. })) => {
                if let Some(code) = &mut self.code {
                    code.lock().engine.rejected_while_paused();
                }
                false
            }
            Err(other) => panic!("a lone worker's commit was refused: {other:?}"),
        }
    }

    /// Activates and commits until the code waits.
    pub fn run_until_idle(&mut self) -> Result<(), Fault> {
        while !self.head.status.is_closed() || self.code.is_some() {
            match self.activate()? {
                Some(draft) => {
                    self.commit(draft);
                }
                None => return Ok(()),
            }
        }
        Ok(())
    }

    /// Returns the number of running timers.
    pub fn open_timers(&self) -> usize {
        self.timers.len()
    }

    /// Returns the number of open approvals and promises.
    pub fn open_waits(&self) -> usize {
        self.waits.len()
    }

    /// Returns the number of entries in memory for calls that are not over, for tests of memory growth.
    pub fn entries(&self) -> usize {
        self.code.as_ref().map_or(0, |code| code.lock().entries())
    }

    pub(crate) fn has_running_steps(&self) -> bool {
        self.code.as_ref().is_some_and(|code| code.lock().engine.has_running_steps())
    }

    pub(crate) fn open_calls(&self) -> Vec<String> {
        self.code.as_ref().map(|code| code.lock().engine.open_calls()).unwrap_or_default()
    }

    /// Returns the logs of all generations, oldest first.
    pub(crate) fn into_logs(mut self) -> Vec<Log> {
        self.past.push(self.log);
        self.past
    }

    /// Crashes the process: everything in memory is lost.
    pub fn crash(&mut self) {
        self.code = None;
    }

    fn apply(&mut self, admitted: Admitted) -> onward_core::Index {
        let index = admitted.record.index;
        for effect in admitted.effects {
            self.carry_out(effect);
        }
        self.log.push(admitted.record).expect("what was admitted fits the log");
        if let Some(successor) = admitted.successor {
            self.continue_as_new(*successor);
        }
        index
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::StartTimer { call_id, due_at } => {
                self.timers.insert(call_id, due_at);
            }
            Effect::StopTimer { call_id } => {
                self.timers.remove(&call_id);
            }
            Effect::AddTask(task) => {
                self.tasks.insert(task.id.call_id.clone(), *task);
            }
            Effect::CancelTask { call_id } => {
                self.tasks.remove(&call_id);
            }
            Effect::OpenWait(wait) => {
                self.waits.insert(wait.call_id.clone(), *wait);
            }
            Effect::CloseWait { call_id, .. } => {
                self.waits.remove(&call_id);
            }
            Effect::Send(delivery) => self.sent.push(*delivery),
            Effect::Freeze { .. } => self.frozen = true,
            Effect::Thaw { shift } => {
                self.frozen = false;
                self.timers.values_mut().for_each(|due| *due = due.after(shift));
            }
            // The head has the totals, which is enough here.
            Effect::Charge { .. } => {}
            Effect::EndRun { .. } => {
                self.timers.clear();
                self.tasks.clear();
                self.waits.clear();
            }
        }
    }

    fn continue_as_new(&mut self, successor: onward_core::run::NewRun) {
        let epoch = Epoch(self.head.epoch.0 + 1);
        let (head, record) = RunHead::start(successor.key, successor.started, self.now);
        let effects = head.start_effects(&record);
        self.head = RunHead { epoch, ..head };
        let past = std::mem::take(&mut self.log);
        self.log.push(record).expect("a log begins with its start");
        effects.into_iter().for_each(|effect| self.carry_out(effect));
        self.code = None;
        self.refusals = 0;
        // Children of the old log no longer have a call to answer.
        let is_spawned = |run: &NewRun| run.started.parent.as_ref().is_some_and(|link| link.is_spawned);
        self.sent.retain(|delivery| !matches!(delivery, OutboxMessage::Start(run) if !is_spawned(run)));
        if self.shadow {
            self.shadow_replay(&past);
        }
        self.past.push(past);
    }

    /// Retries a failed run, which continues as its next generation.
    pub fn retry(&mut self) -> Result<(), Refusal> {
        let request = format!("retry-{}", self.head.generation);
        let again = reopen::retry(&self.head, self.log.records(), &reopen::Retry::new(request), self.now)?;
        self.past.push(std::mem::take(&mut self.log));
        self.go_on_from(again);
        Ok(())
    }

    /// Returns another world, whose run continues from a copy of this log up to `index`, or as far as possible.
    pub fn fork(&self, id: &str, index: Option<onward_core::Index>, keep_signals: bool) -> Result<World, Refusal> {
        let fork = reopen::Fork {
            key: RunKey::new(Namespace::default(), RunId::new(id).expect("a test's run has a name")),
            index,
            is_reset: false,
            keep_signals,
            children: reopen::OpenChildren::Restart,
            version: None,
            seed: 11,
            request_id: id.to_owned(),
            reason: String::new(),
            include_outcome_unknown: false,
            caller: None,
            budget_max: None,
        };
        let past = self.past.iter().filter(|_| reopen::takes_earlier(self.log.records()));
        let earlier = past.map(|log| log.records().to_vec()).collect();
        let reopen::Forked { mut logs, outbox } = reopen::fork(&self.head, earlier, self.log.records(), &fork, self.now)?;
        let records = logs.pop().expect("the last one goes on");
        let mut world = World::with_handler(fork.key, self.handler.clone(), Payload::null(), self.shared.clone(), 7);
        (world.now, world.shadow, world.waker) = (self.now, self.shadow, self.waker.clone());
        world.past = logs.into_iter().map(|log| Log::load(log).expect("a copy is a log")).collect();
        world.go_on_from(reopen::Reopened { records, outbox });
        Ok(world)
    }

    /// Derives everything but the log from the log (J1).
    fn go_on_from(&mut self, reopened: reopen::Reopened) {
        let epoch = Epoch(self.head.epoch.0 + 1);
        let projection = Projection::of(self.head.key.clone(), &reopened.records).expect("a copy begins with a start");
        self.log = Log::load(reopened.records).expect("a copy is a log");
        self.timers = projection.timers.into_iter().map(|(call_id, timer)| (call_id, timer.due_at)).collect();
        (self.tasks, self.waits) = (projection.tasks, projection.waits);
        self.once.extend(projection.slots.into_iter().map(|(key, slot)| (key, (slot.token, slot.index))));
        self.frozen = projection.head.status == Status::Paused;
        self.head = RunHead { epoch, ..projection.head };
        self.sent = reopened.outbox;
        (self.code, self.refusals, self.found) = (None, 0, None);
    }

    /// Returns the idempotency key of the run's task at `call_id`.
    pub fn task_key(&self, call_id: &CallId) -> Option<String> {
        Some(self.tasks.get(call_id)?.idempotency_key())
    }

    /// Returns the ids of the children that the run has started, in order.
    pub fn children_started(&self) -> Vec<String> {
        let id = |delivery: &onward_core::run::OutboxMessage| match delivery {
            onward_core::run::OutboxMessage::Start(run) | onward_core::run::OutboxMessage::StartFromTemplate { run, .. } => {
                Some(run.key.id.to_string())
            }
            onward_core::run::OutboxMessage::Input { .. } => None,
        };
        self.sent.iter().filter_map(id).collect()
    }

    /// Returns the next timer that is due, unless the run is paused.
    pub fn next_timer(&self) -> Option<(CallId, Timestamp)> {
        self.due_timers().min_by_key(|(call_id, due)| (*due, (*call_id).clone())).map(|(call_id, due)| (call_id.clone(), due))
    }

    /// Returns the running timers with their times; none while the run is paused.
    pub(super) fn due_timers(&self) -> impl Iterator<Item = (&CallId, Timestamp)> {
        self.timers.iter().filter(|_| !self.frozen).map(|(call_id, due)| (call_id, *due))
    }

    /// Fires the timer at `call_id` and advances the clock to its time.
    pub fn fire_timer(&mut self, call_id: &CallId) {
        if let Some(due) = self.timers.remove(call_id) {
            self.now = self.now.max(due);
            let input = self.head.timer_input(call_id.clone());
            self.input(input.event).expect("an open run takes its timers");
        }
    }

    pub(crate) fn earlier(&self, wish: &ConversationRead) -> Arc<[Entry]> {
        let mut walk = wish.walk();
        for (generation, log) in self.past.iter().enumerate().rev() {
            walk.read(&entries_of(generation as u32, log.records()));
        }
        walk.into_path().into()
    }

    /// Replays a whole log in a new engine and requires every byte to match.
    fn shadow_replay(&mut self, log: &Log) {
        let prelude = prelude_of(log.records()).map_or(&[][..], |generation| self.past[generation as usize].records());
        let earlier = |wish: &ConversationRead| Some(self.earlier(wish));
        let logs = Logs { prelude, records: log.records(), earlier: &earlier };
        let code = replay_log(&self.head.key, &self.handler, logs, &self.shared, true);
        self.shadow_replays += 1;
        match code {
            Ok(_) => {}
            Err(fault @ (Fault::Misuse(_) | Fault::Stuck(_) | Fault::Panicked(_))) => self.found = Some(fault),
            Err(fault) => panic!("the log does not replay: {fault:?}\n{}", log.to_json_lines()),
        }
    }
}

#[cfg(test)]
mod tests;

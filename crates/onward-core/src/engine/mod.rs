//! The replay engine: one state machine per run, for live execution and replay.
//!
//! The engine holds the open calls of the code and delivers the events of the log to them in index order. The worker that owns
//! the code drives it: it feeds records, calls [`Engine::advance`] until it is idle, polls the code when requested, and passes
//! commits to the store. Live execution and replay are one path: code observes only what is in the log.
//!
//! Must never do I/O, read a clock or generate a random number.
//!
//! Invariants:
//! - N1: what the code observes is a function of the log: waits are answered in index order, one event and then quiescence; polls
//!   look ahead exactly to the horizon of the commit that covers them.
//! - N2: no step starts before everything that the code has observed is durable, and none while recorded events are undelivered,
//!   because its result may be among them.
//! - N3: nothing is delivered while a commit is in flight, so every horizon is at or past the commit before it (H4).
//! - N4: every call has a call id; a recorded call with that id must agree in kind, name and input (see [`matching`]).
//! - N5: an activation commits if it made a call or polled the mailbox, and before it waits after consuming inputs or step
//!   results: the commit before may have left the run pending. A poll does not lead to a commit if nothing was delivered since a
//!   commit that covers a poll: its result is durable already.
//! - N6: the code of a paused run observes nothing more and starts nothing; results of its running steps are recorded at the
//!   current horizon (see [`paused`]).

mod approval;
mod attribute;
mod branching;
mod budget;
mod call;
mod cancel;
mod child;
mod entry;
mod identity;
mod mailbox;
pub mod matching;
mod memo;
mod paused;
mod promise;
mod run;
mod segment;
mod signal;
mod state;
mod step;
mod task;
mod timer;
mod update;
mod version;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

pub use approval::Decision;
pub use call::{CancelOutcome, Options};
pub use entry::{ENTRY_KEYS_MAX, KeyTaken};
pub use memo::MemoOptions;
pub use segment::{ABANDONMENTS_MAX, DivergencePoint};
pub use signal::Pattern;
pub use step::StepPoll;

use crate::failure::{FAILURE_BYTES_MAX, truncate};
use crate::log::event::{
    CarriedSignal, Divergence, PauseReason, RetryRequested, RunForked, RunPaused, SignalReceived, SuspendReason,
};
use crate::run::{Carries, Commit};
use crate::spend::budget::SpendState;
use crate::{Branch, CALL_ID_PARTS_MAX, CallId, CommitId, Epoch, Event, Index, Name, Payload, Record, RunKey, Timestamp};
use call::{Call, StepIdentity};
use mailbox::{Mailbox, PollState, Signal};

/// The maximum number of mailbox polls in one poll of the code; more count as spinning.
const POLLS_MAX: u32 = 100_000;

/// The next action of the worker.
#[derive(Debug, Clone, PartialEq)]
pub enum Advance {
    /// Poll the code.
    Poll(Wake),
    /// Answer an update: call its handler and then [`Engine::answer_update`], or [`Engine::keep_update`] if there is none yet.
    /// Not returned after the code has ended (N8).
    Update(crate::log::event::UpdateReceived),
    /// Pass this to the store, then call [`Engine::committed`] with its reply.
    Commit(CommitDraft),
    /// Nothing to do until a record is fed, a step makes progress, or the store replies to a commit.
    Idle,
}

/// The part of the code to poll.
#[derive(Debug, Clone, PartialEq)]
pub enum Wake {
    /// The call with this id was answered.
    Call(CallId),
    /// Anything may have changed.
    All,
}

/// The calls of one activation; the worker adds the lease and an id.
#[derive(Debug, Clone, PartialEq)]
pub struct CommitDraft {
    pub n: u64,
    pub horizon: Index,
    pub events: Vec<Event>,
    pub waits: bool,
    pub is_while_paused: bool,
    pub carries: Carries,
}

impl CommitDraft {
    /// Returns the commit for the store, made under the lease of `epoch`.
    pub fn into_commit(self, key: RunKey, generation: u32, epoch: Epoch, commit_id: CommitId) -> Commit {
        let CommitDraft { n, horizon, events, waits, is_while_paused, carries } = self;
        let end_over_unread = false;
        Commit { key, generation, epoch, n, commit_id, horizon, events, waits, end_over_unread, is_while_paused, carries }
    }
}

/// The reason why an activation cannot continue. Nothing is committed; the run is paused with this report.
#[derive(Debug, Clone, PartialEq)]
pub enum Fault {
    Diverged(Box<Divergence>),
    /// The code of an agent diverged from the log: continue from there with another pass (see [`segment`]).
    Departed(DivergencePoint),
    /// The code of an agent diverged too often.
    Unstable(Box<Divergence>),
    /// A branch was requested: continue with another pass, in which the code observes nothing (see [`branching`]).
    Branched,
    /// The code would continue without an abandoned call that had an effect.
    EffectAbandoned {
        message: String,
        abandoned_calls: Vec<CallId>,
    },
    /// Too many events since the last checkpoint.
    TooLong(String),
    /// The code no longer supports a recorded version.
    VersionTooOld(Box<Divergence>),
    /// The code did something that cannot be replayed.
    Misuse(String),
    /// The code awaits something that no input can answer.
    Stuck(String),
    Panicked(String),
    /// The records fed are not this run's log.
    LogBroken(String),
    /// Another worker has committed: the lease is lost.
    LeaseLost,
}

impl Fault {
    /// Returns the pause for the run's log; `None` if another worker holds the run.
    pub fn into_pause(self) -> Option<RunPaused> {
        let plain = |mut message: String| {
            truncate(&mut message, FAILURE_BYTES_MAX);
            RunPaused::because(PauseReason::ActivationFailed, message)
        };
        Some(match self {
            Fault::Diverged(report) => paused(PauseReason::Diverged, *report),
            Fault::Departed(divergence_point) => paused(PauseReason::Diverged, *divergence_point.divergence),
            Fault::Unstable(report) => paused(PauseReason::UnstableSegment, *report),
            Fault::EffectAbandoned { message, abandoned_calls } => {
                RunPaused { reason: PauseReason::EffectAbandoned, abandoned_calls, ..plain(message) }
            }
            Fault::TooLong(message) => RunPaused { reason: PauseReason::SegmentTooLong, ..plain(message) },
            Fault::VersionTooOld(report) => paused(PauseReason::VersionTooOld, *report),
            Fault::Misuse(message) | Fault::Stuck(message) | Fault::LogBroken(message) => plain(message),
            Fault::Panicked(message) => plain(format!("the workflow code panicked: {message}")),
            Fault::Branched => plain("a branch from an earlier entry of the conversation was requested".to_owned()),
            Fault::LeaseLost => return None,
        })
    }
}

fn paused(reason: PauseReason, report: Divergence) -> RunPaused {
    let message = format!("at event {}: recorded {}, attempted {}", report.index, report.recorded, report.attempted);
    RunPaused { divergence: Some(report), ..RunPaused::because(reason, message) }
}

struct Queued {
    record: Record,
    /// False for a recorded commit that the code has not been compared with yet.
    matched: bool,
    /// A commit that the code has abandoned.
    is_abandoned: bool,
}

struct Delivery {
    index: Index,
    /// The index of its record.
    record: Index,
    at: Timestamp,
    event: Event,
    /// The code does not observe it.
    is_abandoned: bool,
}

/// The engine of one run.
pub struct Engine {
    key: RunKey,
    identities: identity::Identities,
    now: Timestamp,

    /// Fed but not yet in a batch, in index order.
    queue: VecDeque<Queued>,
    /// Fed out of order.
    early: BTreeMap<Index, Record>,
    next_feed: Index,
    /// Undelivered events of the current batch.
    batch: VecDeque<Delivery>,
    /// The last event of the current batch: the limit of what polls observe.
    horizon: Index,
    /// The recorded commit that ends the current batch on replay.
    expected: Option<Record>,
    /// This pass diverges from the log after the current batch.
    cuts: bool,
    delivered: Option<Index>,

    next_commit: u64,
    in_flight: Option<Vec<Event>>,
    /// The code has observed an input or a step result since the last commit: if it waits now, no commit records that yet.
    unsettled: bool,
    /// The code has observed something that is durable only with the next commit.
    polled: bool,
    poll_state: PollState,
    /// The number of mailbox polls in this poll of the code.
    polls: u32,

    main_line: u32,
    /// The number of calls in each arm of an open combinator.
    arms: BTreeMap<Branch, u32>,
    /// The arm whose code is being polled.
    branch: Branch,
    calls: BTreeMap<CallId, Call>,
    /// Dropped steps whose result may still be in the log: at the latest in the commit of this number, which was the next one
    /// when the step was dropped.
    dropped_steps: BTreeMap<CallId, (StepIdentity, u64)>,
    /// Steps that may start once the engine has caught up and the code's observations are durable.
    deferred_steps: BTreeSet<CallId>,
    running_steps: u32,
    mailbox: Mailbox,
    state: BTreeMap<Name, Payload>,
    /// The names of the run's attributes.
    attributes: BTreeSet<Name>,
    spend_state: SpendState,
    /// The last event that `spend_state` includes: at least the last delivered one, and those before a signal that the code has
    /// consumed.
    spend_state_at: Option<Index>,
    versions: BTreeMap<Name, u32>,
    updates: VecDeque<crate::log::event::UpdateReceived>,
    /// The updates that handlers have begun and not answered, oldest first.
    updates_begun: Vec<String>,
    cancel: cancel::Cancel,

    out: Vec<Event>,
    out_batch: u64,
    last_matched: Option<matching::Matched>,
    /// The last call whose answer the code received, and the index of the answer.
    last_finished: Option<(CallId, call::CallDetails, Index)>,
    /// The highest index among the answers since the mark was set (see [`Engine::set_mark`]).
    mark: Option<Index>,
    wakes: VecDeque<Wake>,
    fault: Option<Fault>,
    ended: bool,
    /// The next commit omits the end that the code has called.
    postpones_end: bool,
    detached: bool,
    /// Compare every byte of the calls, not only what identifies them.
    strict: bool,
    /// The code has passed the end of the log once: a commit that is not its own is another worker's.
    was_live: bool,
    pause_state: paused::PauseState,
    segment: segment::Segment,
    /// The conversation of an agent.
    agent: entry::ConversationState,
    /// The parent of this run.
    parent: Option<RunKey>,
    nesting: u32,
    /// The kind and version of the run's code.
    kind: Option<Name>,
    version: Option<Name>,
    is_called: bool,
    /// The run has a start time, and `run_begun` was not delivered yet (DS1).
    is_delayed: bool,
    /// The last branch request and its index.
    branching: Option<(Index, Box<crate::log::event::BranchRequested>)>,
}

impl Engine {
    pub fn new(key: RunKey) -> Engine {
        Engine {
            identities: identity::Identities::new(&key),
            key,
            now: Timestamp(0),
            queue: VecDeque::new(),
            early: BTreeMap::new(),
            next_feed: Index(0),
            batch: VecDeque::new(),
            horizon: Index(0),
            expected: None,
            cuts: false,
            delivered: None,
            next_commit: 0,
            in_flight: None,
            unsettled: false,
            polled: false,
            poll_state: PollState::default(),
            polls: 0,
            main_line: 0,
            arms: BTreeMap::new(),
            branch: Branch::MAIN,
            calls: BTreeMap::new(),
            dropped_steps: BTreeMap::new(),
            deferred_steps: BTreeSet::new(),
            running_steps: 0,
            mailbox: Mailbox::default(),
            state: BTreeMap::new(),
            attributes: BTreeSet::new(),
            spend_state: SpendState::default(),
            spend_state_at: None,
            versions: BTreeMap::new(),
            updates: VecDeque::new(),
            updates_begun: Vec::new(),
            cancel: cancel::Cancel::default(),
            out: Vec::new(),
            out_batch: 0,
            last_matched: None,
            last_finished: None,
            mark: None,
            wakes: VecDeque::new(),
            fault: None,
            ended: false,
            postpones_end: false,
            detached: false,
            strict: false,
            was_live: false,
            pause_state: paused::PauseState::default(),
            segment: segment::Segment::default(),
            agent: entry::ConversationState::default(),
            parent: None,
            nesting: 0,
            kind: None,
            version: None,
            is_called: false,
            is_delayed: false,
            branching: None,
        }
    }

    /// Accepts one record of the run's log. Records may come twice or out of order (CE14); those after a gap wait for the missing
    /// ones.
    pub fn feed(&mut self, record: Record) {
        if record.index < self.next_feed {
            return;
        }
        if record.index > self.next_feed {
            self.early.insert(record.index, record);
            return;
        }
        let mut next = Some(record);
        while let Some(record) = next {
            self.next_feed = record.next_index();
            self.pause_state.observe(&record);
            self.segment.observe(&record);
            self.note_branch(&record);
            let is_abandoned = self.mark_abandoned(&record);
            let own = record.commit.is_some() && self.in_flight.take().is_some_and(|events| events == record.events);
            let matched = own || record.commit.is_none();
            self.queue.push_back(Queued { record, matched, is_abandoned });
            next = self.early.remove(&self.next_feed);
        }
    }

    /// Returns the first missing event, if later ones have been fed.
    pub fn gap(&self) -> Option<Index> {
        (!self.early.is_empty()).then_some(self.next_feed)
    }

    /// Returns the index of the next record to feed.
    pub fn next_feed(&self) -> Index {
        self.next_feed
    }

    /// Records that the store accepted the commit in flight.
    pub fn committed(&mut self, header: crate::log::CommitHeader, index: Index, at: Timestamp) {
        if index != self.next_feed {
            // Inputs before it are missing: it waits for them like any record.
            let Some(events) = self.in_flight.clone() else { return };
            return self.feed(Record { index, at, commit: Some(header), events });
        }
        let Some(events) = self.in_flight.take() else { return };
        let record = Record { index, at, commit: Some(header), events };
        self.next_feed = record.next_index();
        self.queue.push_back(Queued { record, matched: true, is_abandoned: false });
        if let Some(next) = self.early.remove(&self.next_feed) {
            self.feed(next);
        }
    }

    /// Returns the events of the commit in flight, to repeat it after a lost reply.
    pub fn in_flight(&self) -> Option<&[Event]> {
        self.in_flight.as_deref()
    }

    /// Performs the next actions that need neither the code nor the store; returns the next action of the worker.
    pub fn advance(&mut self) -> Result<Advance, Fault> {
        loop {
            if let Some(fault) = self.fault.take() {
                return Err(fault);
            }
            if self.branching.is_some() {
                return self.advance_branch(); // BR1
            }
            if let Some(wake) = self.wakes.pop_front() {
                return Ok(Advance::Poll(wake));
            }
            if let Some(delivery) = self.batch.pop_front() {
                if let Some(advance) = self.deliver(delivery)? {
                    return Ok(advance);
                }
                continue;
            }
            if self.in_flight.is_some() {
                return Ok(Advance::Idle); // N3
            }
            if self.cancel_given_up_calls() {
                continue; // SG5
            }
            if let Some(expected) = self.expected.take() {
                let from = expected.index;
                self.match_commit(expected).map_err(|fault| self.departed(from, fault))?;
            }
            if std::mem::take(&mut self.cuts) {
                self.mark_cut();
                let advance = self.try_draft(false);
                self.unsettled = true; // whether it waits now, no commit says yet (N5)
                return advance;
            }
            if let Some(advance) = self.advance_pause_state() {
                return advance;
            }
            if self.postpones_end {
                return Ok(self.postpone_end());
            }
            if self.begin_batch()? {
                continue;
            }
            return self.advance_quiescent();
        }
    }

    /// Begins the next batch: up to the horizon of the next recorded commit, or everything fed. Returns false if there is
    /// nothing.
    fn begin_batch(&mut self) -> Result<bool, Fault> {
        let commit = self.queue.iter().position(|queued| !queued.matched && !queued.is_abandoned);
        let bound = match (commit, self.cut_horizon()) {
            (None, None) => self.queue.len(),
            (None, Some((horizon, n))) => {
                self.begin_cut(horizon);
                self.next_commit = n;
                self.cuts = true;
                self.queue.iter().take_while(|queued| queued.record.last_index() <= horizon).count()
            }
            (Some(position), _) => {
                let record = &self.queue[position].record;
                let header = record.commit.expect("only commits are unmatched");
                if let Some(Event::SegmentAbandoned(marker)) = record.events.first() {
                    let (from, to, attempt) = (marker.from, marker.to, marker.attempt);
                    self.next_commit = header.n;
                    self.switch(from, to, attempt, header.horizon);
                } else if header.n != self.next_commit {
                    let (n, next) = (header.n, self.next_commit);
                    return Err(broken(format!("found commit {n}, expected commit {next}")));
                }
                if self.was_live {
                    return Err(Fault::LeaseLost);
                }
                self.queue.iter().take(position).take_while(|queued| queued.record.last_index() <= header.horizon).count()
            }
        };
        let reached = |queued: &Queued| queued.record.last_index();
        let horizon = bound.checked_sub(1).map(|last| reached(&self.queue[last]));
        if let Some(position) = commit {
            let header = self.queue[position].record.commit.expect("only commits are unmatched");
            if horizon.or(self.delivered) != Some(header.horizon) {
                return Err(broken(format!("the horizon of commit {} is not the end of a record", header.n)));
            }
            // Its own results become deliverable once the code has been compared with it.
            self.queue[position].matched = true;
            self.expected = Some(self.queue[position].record.clone());
        } else if bound == 0 {
            return Ok(false);
        }
        if let Some(horizon) = horizon {
            self.horizon = horizon;
        }
        for queued in self.queue.drain(..bound).collect::<Vec<_>>() {
            let (record, at, is_abandoned) = (queued.record.index, queued.record.at, queued.is_abandoned);
            for (offset, event) in queued.record.events.into_iter().enumerate() {
                let index = record.plus(offset as u64);
                if !is_abandoned {
                    self.announce(index, &event);
                    self.note_quotable(index, &event);
                }
                self.batch.push_back(Delivery { index, record, at, event, is_abandoned });
            }
        }
        Ok(true)
    }

    /// Makes a signal of the batch visible to polls, and reserves it for a call that already waits for it (rule 2).
    fn announce(&mut self, index: Index, event: &Event) {
        match event {
            Event::SignalReceived(SignalReceived { name, payload, sender, .. }) => {
                let (name, payload, sender) = (name.clone(), payload.clone(), sender.clone());
                self.signal_arrives(Signal { index, name, payload, sender });
            }
            Event::RunStarted(started) => {
                self.agent.begin_abandoned_children(started);
                for CarriedSignal { name, payload, sender, .. } in started.mailbox.iter().cloned() {
                    self.signal_arrives(Signal { index, name, payload, sender });
                }
            }
            _ => {}
        }
    }

    fn deliver(&mut self, delivery: Delivery) -> Result<Option<Advance>, Fault> {
        let Delivery { index, record, at, event, is_abandoned } = delivery;
        self.delivered = Some(index);
        self.now = self.now.max(at);
        self.follow_budget(index, &event, at);
        if is_abandoned {
            return Ok(None); // only its cost counts
        }
        if (event.is_input() && !event.is_quiet()) || event.is_step_result() {
            self.unsettled = true;
            self.poll_state.outdate();
        }
        if self.identities.is_set_aside(index) {
            return self.set_aside(index, event);
        }
        let Some(mut event) = self.segment.abandoned_calls.readdress(event) else { return Ok(None) };
        if let Event::CallAdopted(adopted) = &event {
            let Some(answer) = self.segment.abandoned_calls.take_answer(adopted) else { return Ok(None) };
            event = answer;
            self.unsettled = true;
        }
        let woken = match event {
            Event::RunStarted(started) => {
                self.is_delayed = started.begins_at(at).is_some();
                self.begin_identity(&started);
                self.begin_conversation(&started);
                self.parent = started.parent.as_ref().map(|link| link.run.clone());
                self.nesting = started.nesting.unwrap_or(0);
                (self.kind, self.version) = (Some(started.kind.clone()), started.version.clone());
                self.is_called = started.parent.as_ref().is_some_and(|link| !link.is_spawned);
                self.attributes = started.attributes.iter().map(|attribute| attribute.name.clone()).collect();
                self.cancel.begin(started.cancel_reason);
                self.updates = started.updates.into();
                (!self.is_delayed).then_some(Wake::All)
            }
            Event::RunBegun(_) => {
                self.is_delayed = false;
                Some(Wake::All)
            }
            Event::SignalReceived(_) => self.signal_delivered(index),
            Event::StepCompleted(event) => self.step_completed(index, event).map_err(|fault| self.departed(record, fault))?,
            Event::StepFailed(event) => self.step_failed(index, event).map_err(|fault| self.departed(record, fault))?,
            Event::TaskCompleted(event) => {
                self.memo_ended(&event.call_id, Some(&event.output));
                self.answer(&event.call_id, index, Ok(event.output))
            }
            Event::TaskFailed(event) => {
                self.memo_ended(&event.call_id, None);
                self.answer(&event.call_id, index, Err(event.failure))
            }
            Event::MemoAnswered(event) => self.memo_answered(index, event),
            Event::ChildCompleted(event) => self.answer(&event.call_id, index, Ok(event.output)),
            Event::ChildFailed(event) => self.answer(&event.call_id, index, Err(event.failure)),
            Event::TimerFired(event) => self.timer_fired(&event.call_id, index),
            Event::ApprovalDecided(event) => self.approval_decided(index, event),
            Event::PromiseResolved(event) => self.answer(&event.call_id, index, event.result),
            Event::UpdateReceived(event) => return Ok(self.update_received(event)),
            Event::CancelRequested(event) => self.cancel_requested(index, &event.reason),
            Event::RetryRequested(RetryRequested { children, .. }) | Event::RunForked(RunForked { children, .. }) => {
                self.children_again(children);
                self.segment.abandoned_calls.forget_decisions();
                None
            }
            Event::RunPaused(event) if event.reason == PauseReason::ApprovalNeeded => {
                self.segment.abandoned_calls.forget_decisions();
                None
            }
            // Calls of the code itself, and events for the runtime only.
            _ => None,
        };
        Ok(woken.filter(|_| !self.is_delayed).map(Advance::Poll))
    }

    /// Continues when the code is quiescent and the log is exhausted: starts steps, commits, or becomes idle.
    fn advance_quiescent(&mut self) -> Result<Advance, Fault> {
        if self.is_delayed {
            return Ok(Advance::Idle); // DS1
        }
        self.was_live = true;
        if self.pause_state.is_paused {
            return Ok(self.commit_while_paused());
        }
        if !self.deferred_steps.is_empty() && !self.polled {
            self.deferred_steps.clear();
            return Ok(Advance::Poll(Wake::All)); // N2: now they may start
        }
        let waits = self.running_steps == 0 && self.deferred_steps.is_empty() && !self.out.iter().any(Event::is_step_result);
        if self.out.is_empty() {
            let reason = match (self.polled, self.unsettled && waits && !self.ended) {
                (true, _) => SuspendReason::Polled,
                (false, true) => SuspendReason::Settled,
                (false, false) => return Ok(self.idle()),
            };
            self.out.push(crate::log::event::RunSuspended { reason }.into());
        }
        if self.ended && !self.out.iter().any(Event::ends_log) {
            return Ok(Advance::Idle);
        }
        self.try_draft(waits)
    }

    /// Drafts a commit of the code's calls, unless an abandoned effect or the segment's length forbids it.
    fn try_draft(&mut self, waits: bool) -> Result<Advance, Fault> {
        self.adopt_requested();
        match self.check_effects().or_else(|| self.check_length()) {
            Some(fault) => Err(fault),
            None => {
                let waits = waits && !self.adopts_answered();
                let events = self.take_out();
                Ok(self.commit(events, waits, false))
            }
        }
    }

    /// Puts events in flight, as the next commit. A commit while paused does not cover what the code has observed.
    fn commit(&mut self, events: Vec<Event>, waits: bool, is_while_paused: bool) -> Advance {
        let (n, horizon, carries) = (self.next_commit, self.horizon, self.carries(&events));
        self.in_flight = Some(events.clone());
        self.next_commit += 1;
        if !is_while_paused {
            self.settle();
        }
        Advance::Commit(CommitDraft { n, horizon, events, waits, is_while_paused, carries })
    }

    /// Takes back the rejected commit in flight: its events are part of the next one.
    fn take_back(&mut self) {
        if let Some(events) = self.in_flight.take() {
            // A step may have ended meanwhile.
            self.out.splice(0..0, events);
            self.next_commit -= 1;
        }
    }

    /// Marks everything that the code has observed as covered by the last commit, including the commit before it (H4).
    fn settle(&mut self) {
        let last = self.next_commit - 1;
        self.dropped_steps.retain(|_, (_, recorded_by)| *recorded_by >= last);
        self.polled = false;
        self.unsettled = false;
        self.poll_state.commit();
    }

    /// Returns the calls of the code since the last commit. Events after the code's end, such as a canceled task, go before the
    /// end, which nothing may follow (H2).
    fn take_out(&mut self) -> Vec<Event> {
        let mut events = std::mem::take(&mut self.out);
        self.out_batch += 1;
        if let Some(position) = events.iter().position(Event::ends_log) {
            let end = events.remove(position);
            events.push(end);
        }
        events
    }

    fn idle(&mut self) -> Advance {
        let stuck = !self.ended && self.running_steps == 0 && self.calls.is_empty() && self.delivered.is_some();
        if stuck {
            self.fault = Some(Fault::Stuck(format!(
                "the workflow awaits a future that is not from `ctx` and that no input can answer, {}; \
                 await only what `ctx` returns, and do everything else inside `ctx.step`",
                self.code_position()
            )));
        }
        Advance::Idle
    }

    /// Begins to track the answers that the code receives; returns the previous mark, for [`Engine::take_mark`].
    pub fn set_mark(&mut self) -> Option<Index> {
        self.mark.take()
    }

    /// Returns the highest index among the answers since the mark was set: the position in the log that led the code to its
    /// current call. `None` if it needed no answer. Restores `before`, the outer mark.
    pub fn take_mark(&mut self, before: Option<Index>) -> Option<Index> {
        let mark = self.mark;
        self.mark = mark.max(before);
        mark
    }

    /// Records that the code received the answer to the call at `call_id`.
    fn finished(&mut self, call_id: &CallId, what: call::CallDetails, index: Index) {
        self.mark = self.mark.max(Some(index));
        self.last_finished = Some((call_id.clone(), what, index));
    }

    /// Resets the poll counter, before every poll of the code.
    pub fn poll_begins(&mut self) {
        self.polls = 0;
    }

    /// Returns true if the code has passed the end of the log.
    pub fn is_live(&self) -> bool {
        self.expected.is_none() && self.queue.iter().all(|queued| queued.matched)
    }

    /// Returns true if the run can be dropped from memory without losing work: nothing in flight, nothing running.
    pub fn is_evictable(&self) -> bool {
        self.in_flight.is_none() && self.running_steps == 0 && self.queue.is_empty() && self.batch.is_empty()
    }

    pub fn is_ended(&self) -> bool {
        self.ended
    }

    /// Reports a misuse by the code; the first report is kept.
    pub fn misuse(&mut self, message: impl Into<String>) {
        self.fault.get_or_insert(Fault::Misuse(message.into()));
    }

    /// Returns the fault that prevents the code from continuing, if any.
    pub fn take_fault(&mut self) -> Option<Fault> {
        self.fault.take()
    }

    /// Returns true if there is a fault that [`Engine::take_fault`] would return.
    pub fn has_fault(&self) -> bool {
        self.fault.is_some()
    }

    pub fn has_running_steps(&self) -> bool {
        self.running_steps > 0
    }

    /// Describes the position of the code: after which call, and before which.
    pub fn code_position(&self) -> String {
        let ordinal =
            if self.branch.is_main() { self.main_line } else { self.arms.get(&self.branch).copied().unwrap_or_default() };
        let next = self.branch.call(ordinal);
        match &self.last_finished {
            None => format!("at the start, before the next call (call id {next})"),
            Some((call_id, what, index)) => {
                format!("after {} ({index}, call id {call_id}), before the next call (call id {next})", what.describe())
            }
        }
    }

    pub fn set_fault(&mut self, fault: Fault) {
        self.fault.get_or_insert(fault);
    }

    /// Requires replay to reproduce the recorded events exactly, including options, except for the spelling of JSON. Used to
    /// check that live execution and replay are equal.
    pub fn set_strict(&mut self) {
        self.strict = true;
    }

    /// Ignores calls from now on: the worker is about to drop the code, and its futures act while they are dropped.
    pub fn detach(&mut self) {
        self.detached = true;
    }

    /// Returns the time of the last delivered event: durable, the same on every replay (rule 12).
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Returns the call id of the next call on the current branch.
    pub fn next_call_id(&mut self) -> CallId {
        let ordinal = if self.branch.is_main() { &mut self.main_line } else { self.arms.entry(self.branch.clone()).or_default() };
        let made = *ordinal;
        *ordinal += 1;
        let call_id = self.branch.call(self.segment.ordinal(made));
        if call_id.is_too_deep() {
            let depth = CALL_ID_PARTS_MAX / 2;
            self.misuse(format!("a call is nested in more than {depth} combinators; move the inner part into a child"));
        }
        call_id
    }

    /// Removes the arms of a combinator that has ended: no more calls are made in them.
    pub fn close_branches(&mut self, branches: &[Branch]) {
        for branch in branches {
            self.arms.remove(branch);
        }
    }

    /// Returns the number of entries about open calls: it must not grow with the log.
    pub fn entries(&self) -> usize {
        let calls = self.calls.len() + self.arms.len() + self.dropped_steps.len() + self.deferred_steps.len();
        calls + self.mailbox.entries() + self.updates.len() + self.updates_begun.len() + self.wakes.len() + self.early.len()
    }

    /// Sets the branch whose code is polled from now on; returns the previous one.
    pub fn enter_branch(&mut self, branch: Branch) -> Branch {
        std::mem::replace(&mut self.branch, branch)
    }
}

fn broken(what: String) -> Fault {
    Fault::LogBroken(format!("the log cannot be replayed: {what}"))
}

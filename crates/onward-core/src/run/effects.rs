//! Effects of an append: timers, tasks, waits, and outbox messages for other runs.
//!
//! Must never decide on admission.

use std::time::Duration;

use super::{IdempotencyRecord, Input, NewRun, RunHead, Wait, WaitKind};
use crate::log::codec::{DecodeError, Field, Reader};
use crate::log::event::{
    CancelRequested, ChildAwaited, ChildCompleted, ChildFailed, ChildSettled, ChildStarted, OnParentClose, ParentLink,
    ResultRequested, RunStarted, SignalReceived, TerminateRequested,
};
use crate::run::ancestry::Origin;
use crate::run::schedule::{self, schedule_of};
use crate::schedule::SlotContext;
use crate::spend::budget::{self, BudgetUse};
use crate::spend::ledger::{LedgerKey, LedgerSum};
use crate::spend::{self, Charge};
use crate::task::{Task, TaskId};
use crate::{CallId, Event, Failure, Name, Payload, Record, RunId, RunKey, Timestamp};

/// An effect of an append, for the store to carry out in the same atomic write.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    StartTimer {
        call_id: CallId,
        due_at: Timestamp,
    },
    StopTimer {
        call_id: CallId,
    },
    AddTask(Box<Task>),
    CancelTask {
        call_id: CallId,
    },
    OpenWait(Box<Wait>),
    /// Removes the wait, if it is open, and writes its idempotency record: later answers have lost.
    CloseWait {
        call_id: CallId,
        token: String,
    },
    /// An outbox message to another run, delivered at least once; the receiver accepts it once.
    Send(Box<OutboxMessage>),
    /// The run is paused since `at`: its timers and tasks keep their remaining time, and no attempt of a task begins (K4).
    Freeze {
        at: Timestamp,
    },
    /// The run resumes after a pause of `shift`.
    Thaw {
        shift: Duration,
    },
    /// Adds to a row of the ledger (LG3).
    Charge {
        row: Box<LedgerKey>,
        sum: Box<LedgerSum>,
    },
    /// Removes every timer, task and wait of the run, and delivers [`RunHead::parent_closed`] to each open child.
    EndRun {
        /// The run continues as its next generation.
        goes_on: bool,
    },
}

/// An outbox message for another run.
#[derive(Debug, Clone, PartialEq)]
pub enum OutboxMessage {
    Start(NewRun),
    Input {
        to: RunKey,
        input: Input,
    },
    /// A start whose input is a template, to be rendered with the slot.
    StartFromTemplate {
        run: NewRun,
        slot: SlotContext,
    },
}

impl OutboxMessage {
    /// Returns the run that receives it.
    pub fn receiver(&self) -> &RunKey {
        match self {
            OutboxMessage::Start(run) | OutboxMessage::StartFromTemplate { run, .. } => &run.key,
            OutboxMessage::Input { to, .. } => to,
        }
    }

    /// Adds the use of its budget to the end of a child (BG2).
    pub fn with_spent(mut self, used: Option<BudgetUse>) -> OutboxMessage {
        if let OutboxMessage::Input { input, .. } = &mut self {
            match &mut input.event {
                Event::ChildCompleted(event) => event.spent = used,
                Event::ChildFailed(event) => event.spent = used,
                _ => {}
            }
        }
        self
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            OutboxMessage::Start(run) => run.encode(1, &mut out),
            OutboxMessage::Input { to, input } => {
                to.encode(2, &mut out);
                input.encode(3, &mut out);
            }
            OutboxMessage::StartFromTemplate { run, slot } => {
                slot.encode(4, &mut out);
                run.encode(1, &mut out);
            }
        }
        out
    }

    pub fn from_bytes(bytes: &[u8]) -> Result<OutboxMessage, DecodeError> {
        let mut reader = Reader::new(bytes);
        let (mut receiver, mut input, mut slot) = (None, None, None);
        while let Some((number, raw)) = reader.field()? {
            match number {
                1 => {
                    let run = NewRun::decode(raw)?;
                    return Ok(match slot {
                        None => OutboxMessage::Start(run),
                        Some(slot) => OutboxMessage::StartFromTemplate { run, slot },
                    });
                }
                2 => receiver = Some(RunKey::decode(raw)?),
                3 => input = Some(Input::decode(raw)?),
                4 => slot = Some(SlotContext::decode(raw)?),
                _ => {}
            }
        }
        match (receiver, input) {
            (Some(to), Some(input)) => Ok(OutboxMessage::Input { to, input }),
            _ => Err(DecodeError::Missing { message: "Delivery", field: "to or input" }),
        }
    }
}

impl RunHead {
    /// Returns the effects of the first record of a log: it schedules a standalone task, starts the timer of the start or of the
    /// deadline, or queues the run.
    pub fn start_effects(&self, first: &Record) -> Vec<Effect> {
        let Some(RunStarted { task: Some(task), input, .. }) = first.started() else {
            let timers = self.start_timer().into_iter().chain(self.deadline_timer());
            return timers.chain(self.schedule_timer()).chain(self.slot_effect(first.at)).collect();
        };
        let task = Task::new(self.task_id(CallId::root(0)), task.kind.clone(), input.clone(), task.options.clone(), first.at);
        vec![Effect::AddTask(Box::new(Task { ends_run: true, ..task }))]
    }

    fn task_id(&self, call_id: CallId) -> TaskId {
        TaskId { run: self.key.clone(), generation: self.generation, call_id, incarnation: self.incarnation }
    }

    /// Returns the effects of a record; `self` is the head before it.
    pub(crate) fn effects_of(&self, record: &Record) -> Vec<Effect> {
        match record.commit {
            _ if self.external.is_some() => Vec::new(),
            _ if self.schedule.is_some() => record.events.iter().flat_map(|event| self.schedule_effects(event)).collect(),
            Some(_) => self.commit_effects(&record.events, record.at),
            None => record.events.iter().flat_map(|event| self.input_effects(event, record.at)).collect(),
        }
    }

    pub(crate) fn input_effects(&self, event: &Event, at: Timestamp) -> Vec<Effect> {
        if let Some(result) = event.outcome() {
            return self.end_effects(event, result);
        }
        match event {
            Event::ApprovalDecided(event) => close_wait(&event.call_id, &event.decision_id),
            Event::PromiseResolved(event) => close_wait(&event.call_id, &event.resolution_id),
            Event::TimerFired(event) => vec![Effect::CloseWait { call_id: event.call_id.clone(), token: "expired".to_owned() }],
            Event::RunPaused(_) if self.paused_at.is_none() => vec![Effect::Freeze { at }],
            Event::RunResumed(_) => {
                let thaw = self.paused_at.map(|paused| Effect::Thaw { shift: at.since(paused) });
                // A pause does not move the start (DS3).
                let start = self.start_timer().filter(|_| thaw.is_some());
                thaw.into_iter().chain(start).collect()
            }
            Event::RunBegun(_) => {
                let mut begun = self.clone();
                begun.follow_start(event, at);
                begun.deadline_timer().into_iter().collect()
            }
            event if event.is_quiet() => spend::charges(event).iter().map(|charge| self.charge(charge)).collect(),
            _ => Vec::new(),
        }
    }

    fn charge(&self, charge: &Charge) -> Effect {
        Effect::Charge { row: Box::new(LedgerKey::of(self, charge)), sum: Box::new(LedgerSum::of(charge)) }
    }

    pub(super) fn commit_effects(&self, events: &[Event], at: Timestamp) -> Vec<Effect> {
        let mut effects = Vec::new();
        events.iter().for_each(|event| self.event_effects(event, at, &mut effects));
        if events.iter().any(|event| matches!(event, Event::ChildStarted(_))) {
            self.give_to_children(events, at, &mut effects);
        }
        if let Some(paused_at) = self.paused_at {
            freeze_new_timers(&mut effects, paused_at, at);
        }
        effects
    }

    /// Sets the slices of children that start, from the budget after the whole commit, which may have changed it (BG2).
    fn give_to_children(&self, events: &[Event], at: Timestamp, effects: &mut [Effect]) {
        let budget = budget::after(self, events, at);
        let mut child_started = events
            .iter()
            .filter_map(|event| if let Event::ChildStarted(child_started) = event { Some(child_started) } else { None });
        for effect in effects {
            if let Effect::Send(delivery) = effect
                && let OutboxMessage::Start(run) = &mut **delivery
                && let Some(child_started) = child_started.next()
            {
                run.started.budget = budget::of_child(budget.as_deref(), child_started, &child_started.child);
            }
        }
    }

    fn event_effects(&self, event: &Event, at: Timestamp, effects: &mut Vec<Effect>) {
        let timer = |call_id: &CallId, due_at: Timestamp| Effect::StartTimer { call_id: call_id.clone(), due_at };
        let wait = |kind, call_id: &CallId, name: &Name, deadline| Wait {
            run: self.key.clone(),
            generation: self.generation,
            call_id: call_id.clone(),
            kind,
            name: name.clone(),
            title: String::new(),
            description: None,
            show: None,
            deciders: Vec::new(),
            requested_at: at,
            deadline,
            not_by_requester: false,
            answer_schema: None,
        };
        match event {
            Event::StepFailed(event) => effects.extend(event.retry_at.map(|due_at| timer(&event.call_id, due_at))),
            Event::TimerStarted(event) => effects.push(timer(&event.call_id, event.due_at)),
            Event::WaitCanceled(event) => effects.extend([
                Effect::StopTimer { call_id: event.call_id.clone() },
                Effect::CloseWait { call_id: event.call_id.clone(), token: "withdrawn".to_owned() },
            ]),
            Event::TaskScheduled(event) => {
                let id = self.task_id(event.call_id.clone());
                let task = Task::new(id, event.kind.clone(), event.input.clone(), event.options.clone(), at);
                effects.push(Effect::AddTask(Box::new(task)));
            }
            Event::TaskCanceled(event) => effects.push(Effect::CancelTask { call_id: event.call_id.clone() }),
            Event::SegmentAbandoned(event) => {
                effects.extend(event.withdrawn.iter().map(|call_id| Effect::CancelTask { call_id: call_id.clone() }));
            }
            Event::ApprovalRequested(event) => {
                effects.push(Effect::OpenWait(Box::new(Wait {
                    title: event.title.clone(),
                    description: event.description.clone(),
                    show: event.show.clone(),
                    deciders: event.deciders.clone(),
                    not_by_requester: event.not_by_requester,
                    answer_schema: event.answer_schema.clone(),
                    ..wait(WaitKind::Approval, &event.call_id, &event.name, event.deadline)
                })));
                effects.extend(event.deadline.map(|due_at| timer(&event.call_id, due_at)));
            }
            Event::PromiseCreated(event) => {
                let wait = wait(WaitKind::Promise, &event.call_id, &event.name, event.deadline);
                effects.push(Effect::OpenWait(Box::new(wait)));
                effects.extend(event.deadline.map(|due_at| timer(&event.call_id, due_at)));
            }
            Event::ChildStarted(event) => effects.push(Effect::Send(Box::new(self.start_child(event, &event.child)))),
            Event::ChildCanceled(event) => {
                let to = RunKey::new(self.key.namespace.clone(), event.child.clone());
                effects.push(Effect::Send(Box::new(OutboxMessage::Input { to, input: cancel_by_parent(&self.key) })));
            }
            Event::ChildAwaited(event) => effects.push(Effect::Send(Box::new(self.request_child_result(event)))),
            Event::SignalSent(event) => {
                let to = RunKey::new(self.key.namespace.clone(), event.to.clone());
                let incarnation = self.incarnation.map(|incarnation| format!("~{incarnation:016x}")).unwrap_or_default(); // R10
                let signal_id = Some(format!("{}~{}~{}{incarnation}", self.key.id, self.generation, event.call_id));
                let signal = SignalReceived {
                    name: event.name.clone(),
                    payload: event.payload.clone(),
                    signal_id,
                    sender: Some(self.key.clone()),
                };
                effects.push(Effect::Send(Box::new(OutboxMessage::Input { to, input: Input::signal(signal) })));
            }
            // The parent still waits: the successor will answer it. Open children end with the old log, except for spawned ones.
            Event::RunContinued(_) => effects.push(Effect::EndRun { goes_on: true }),
            event => effects.extend(event.outcome().into_iter().flat_map(|result| self.end_effects(event, result))),
        }
    }

    /// Returns the start of a child under `id`, which differs from the id in the event if the child is restarted.
    pub fn start_child(&self, event: &ChildStarted, id: &RunId) -> OutboxMessage {
        let parent = self.link(&event.call_id, event.on_parent_close, event.is_spawned);
        // A restarted child has the start of the one before and nothing else of it.
        let first = RunKey::new(self.key.namespace.clone(), event.child.clone());
        let origins = if first.id == *id { Vec::new() } else { vec![Origin::of_start(first)] };
        let started = RunStarted {
            version: event.version.clone(),
            parent: Some(parent),
            nesting: Some(self.nesting.unwrap_or(0).saturating_add(1)),
            origins,
            requester: self.requester.clone(),
            copied_by: self.copied_by.clone(),
            budget: budget::of_child(self.budget.as_deref(), event, id),
            queue: event.queue.clone(),
            ..RunStarted::new(event.kind.clone(), event.input.clone(), self.child_seed(&event.call_id))
        };
        let key = RunKey::new(self.key.namespace.clone(), id.clone());
        OutboxMessage::Start(NewRun { key, started, signal: None })
    }

    /// Returns the reference of a child to the call that receives its result.
    pub(super) fn link(&self, call_id: &CallId, on_parent_close: OnParentClose, is_spawned: bool) -> ParentLink {
        let (run, generation, incarnation) = (self.key.clone(), self.generation, self.incarnation);
        ParentLink { run, generation, call_id: call_id.clone(), on_parent_close, incarnation, is_spawned }
    }

    /// Derives the child's seed; it differs also for runs started in the same millisecond.
    pub(super) fn child_seed(&self, call_id: &CallId) -> u64 {
        let (key, at) = (self.key.to_string(), self.created_at.0.to_le_bytes());
        let incarnation = self.incarnation.map(u64::to_le_bytes);
        let incarnation: &[u8] = incarnation.as_ref().map_or(&[], |incarnation| incarnation);
        let own = crate::Hash::of_parts(&[key.as_bytes(), &self.generation.to_le_bytes(), &at, incarnation]);
        let (low, _) = own.0.split_at(8);
        crate::random::derive(u64::from_le_bytes(low.try_into().expect("8 of 16 bytes")), call_id, 0)
    }

    /// Returns the effects of the run's end: cleanup, and its result for all calls that wait for it.
    fn end_effects(&self, event: &Event, result: Result<Payload, Failure>) -> Vec<Effect> {
        let mut effects = vec![Effect::EndRun { goes_on: false }];
        let answer = |link: &ParentLink| match schedule_of(&link.run.id) {
            Some(_) => schedule::ended_by(link, event, result.clone()),
            None => answer_to(link, &self.key.id, result.clone()).with_spent(self.budget_used()),
        };
        effects.extend(self.awaited_by().map(|link| Effect::Send(Box::new(answer(link)))));
        effects.extend(self.settle().map(|delivery| Effect::Send(Box::new(delivery))));
        effects
    }

    /// Reports the use of a spawned child's slice to its parent, in any generation (BG2).
    fn settle(&self) -> Option<OutboxMessage> {
        let parent = self.parent.as_ref().filter(|link| link.is_spawned && link.run.namespace == self.key.namespace)?;
        let spent = self.budget.as_ref().filter(|budget| budget.is_slice)?.used(self.spend.as_deref());
        let settled = ChildSettled { child: self.key.id.clone(), spent };
        // Another incarnation of the parent has no slice under this id, which contains the parent's incarnation.
        let input = Input { once: Some(settled.once()), ..Input::new(settled) };
        Some(OutboxMessage::Input { to: parent.run.clone(), input })
    }

    /// Returns the use of the run's budget, children included; `None` if it has no budget.
    pub fn budget_used(&self) -> Option<BudgetUse> {
        self.budget.as_ref().map(|budget| budget.used(self.spend.as_deref()))
    }

    /// Returns the calls that receive the run's result: its parent's and those of copies of the parent. Other namespaces are
    /// excluded (U3).
    pub fn awaited_by(&self) -> impl Iterator<Item = &ParentLink> {
        let parent = self.parent.iter().filter(|link| !link.is_spawned);
        let links = parent.chain(&self.listeners);
        links.filter(|link| link.run.namespace == self.key.namespace)
    }

    /// Returns the message for this open child when its parent's `generation`, or the whole parent, has ended; `None` lets it
    /// continue.
    pub fn parent_closed(&self, generation: u32, goes_on: bool) -> Option<OutboxMessage> {
        let parent = self.parent.as_ref()?;
        let is_over = if parent.is_spawned { !goes_on } else { parent.generation == generation };
        if !is_over {
            return None;
        }
        let input = match parent.on_parent_close {
            OnParentClose::Abandon => return None,
            OnParentClose::Cancel => cancel_by_parent(&parent.run),
            OnParentClose::Terminate => {
                let reason = format!("its parent {} ended", parent.run.id);
                Input { child_of: Some(parent.run.clone()), ..Input::new(TerminateRequested { reason, reset_to: None }) }
            }
        };
        Some(OutboxMessage::Input { to: self.key.clone(), input })
    }

    /// Returns the message for this child if its parent has ended before the child starts.
    pub fn parent_is_closed(&self, parent: &RunHead) -> Option<OutboxMessage> {
        let link = self.parent.as_ref()?;
        let is_open = !parent.status.is_closed() && (link.is_spawned || parent.generation == link.generation);
        if is_open { None } else { self.parent_closed(link.generation, false) }
    }

    /// Requests the result of a spawned child for this generation.
    fn request_child_result(&self, event: &ChildAwaited) -> OutboxMessage {
        let once = IdempotencyRecord::new(format!("listener:{}:{}:{}", self.key.id, self.generation, event.call_id));
        let by = self.link(&event.call_id, OnParentClose::Abandon, true);
        let to = RunKey::new(self.key.namespace.clone(), event.child.clone());
        OutboxMessage::Input { to, input: Input { once: Some(once), ..Input::new(ResultRequested { by }) } }
    }
}

/// Returns the message with a child's result for a waiting call.
pub fn answer_to(parent: &ParentLink, child: &RunId, result: Result<Payload, Failure>) -> OutboxMessage {
    if schedule_of(&parent.run.id).is_some() {
        return schedule::not_started(parent, result);
    }
    let call_id = parent.call_id.clone();
    // Only calls for spawned children need the id; other calls name their child.
    let child = parent.is_spawned.then(|| child.clone());
    let event = match result {
        Ok(output) => ChildCompleted { call_id, output, child, spent: None }.into(),
        Err(failure) => ChildFailed { call_id, failure, child, spent: None }.into(),
    };
    let input = Input { incarnation: parent.incarnation, ..Input::result(event, parent.generation, "child", &parent.call_id) };
    OutboxMessage::Input { to: parent.run.clone(), input }
}

/// Keeps the full duration of timers that start while the run is paused: resuming adds the whole pause, including the part that
/// has passed.
fn freeze_new_timers(effects: &mut Vec<Effect>, paused_at: Timestamp, at: Timestamp) {
    let mut started = false;
    for effect in effects.iter_mut() {
        if let Effect::StartTimer { due_at, .. } = effect {
            *due_at = due_at.before(at.since(paused_at));
            started = true;
        }
    }
    effects.extend(started.then_some(Effect::Freeze { at: paused_at }));
}

fn close_wait(call_id: &CallId, token: &str) -> Vec<Effect> {
    let stop = Effect::StopTimer { call_id: call_id.clone() };
    vec![stop, Effect::CloseWait { call_id: call_id.clone(), token: token.to_owned() }]
}

fn cancel_by_parent(parent: &RunKey) -> Input {
    let reason = format!("its parent {} asked for it", parent.id);
    let once = IdempotencyRecord::new("cancel:parent".to_owned());
    Input { once: Some(once), child_of: Some(parent.clone()), ..Input::new(CancelRequested::new(reason)) }
}

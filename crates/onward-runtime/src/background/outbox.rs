//! The outbox dispatcher: child starts, child results, signals between runs, cancellations.
//!
//! Delivery is at least once: a message is finished only after the receiver has it, so a crash in between delivers it again.
//! The receiver accepts it once, because a child's id and the idempotency record of every input derive from the sender's call.
//! Messages to one receiver go in order, so that nothing overtakes the start of a child; different receivers are served
//! concurrently.
//!
//! Invariants:
//! - D1 (L19): a child that cannot be started sends its parent a failure, exactly like a child that failed.
//! - D2: a message that can never be delivered is finished and counted; one that could not be delivered now stays.
//! - D3: a signal that no run accepts is counted and logged with its sender, because nothing else reports it.

use std::collections::BTreeMap;

use onward_core::budget::BudgetUse;
use onward_core::event::ParentLink;
use onward_core::memo;
use onward_core::run::{Input, NewRun, OutboxMessage, answer_to};
use onward_core::{ErrorCode, Event, Failure, Name, RunKey};
use onward_store::{Consequence, OutboxId, StoreError};
use tokio::task::JoinSet;

use crate::schedule::is_scheduled;
use crate::{Runtime, RuntimeError, TickCounts};

/// Number of messages in one pass.
const BATCH: usize = 128;

/// The result of the deliveries to one receiver.
#[derive(Default)]
struct Round {
    done: Vec<OutboxId>,
    delivered: u64,
    undeliverable: u64,
    /// A message has to wait for others.
    is_held: bool,
    error: Option<StoreError>,
}

impl Runtime {
    /// Delivers one batch of messages; returns true if more may be due now.
    pub(crate) async fn deliver_outbox(&self, counts: &mut TickCounts) -> Result<bool, StoreError> {
        let messages = self.store().outbox_messages(BATCH).await?;
        if messages.is_empty() {
            return Ok(false);
        }
        let full = messages.len() == BATCH;
        let mut rounds = JoinSet::new();
        for (_, messages) in by_receiver(messages) {
            let runtime = self.clone();
            rounds.spawn(async move { runtime.deliver_to_one(messages).await });
        }
        let (mut done, mut failed, mut is_held) = (Vec::new(), None, false);
        while let Some(round) = rounds.join_next().await {
            // A round that panicked has finished nothing: its messages stay.
            let Ok(round) = round else { continue };
            done.extend(round.done);
            counts.messages_delivered += round.delivered;
            counts.messages_undeliverable += round.undeliverable;
            failed = failed.or(round.error);
            is_held |= round.is_held;
        }
        let progress = !done.is_empty();
        if progress {
            done.sort();
            self.store().finish_deliveries(done).await?;
        }
        match failed {
            Some(error) => Err(error),
            None => Ok((full || is_held) && progress),
        }
    }

    /// Delivers messages to one receiver, in order, up to the first that has to wait.
    async fn deliver_to_one(&self, messages: Vec<(OutboxId, OutboxMessage)>) -> Round {
        let mut round = Round::default();
        for (id, delivery) in messages {
            match self.carry(delivery).await {
                Ok(true) => round.delivered += 1,
                Ok(false) => round.undeliverable += 1, // D2
                Err(StoreError::RunBusy { .. }) => {
                    round.is_held = true;
                    break;
                }
                Err(error) => {
                    round.error = Some(error);
                    break;
                }
            }
            round.done.push(id);
        }
        round
    }

    /// Returns true if the receiver accepted the message, false if it never will. Fails if a later attempt may succeed.
    pub(crate) async fn carry(&self, delivery: OutboxMessage) -> Result<bool, StoreError> {
        match delivery {
            OutboxMessage::Start(run) if is_scheduled(&run) => self.carry_scheduled(run, None).await,
            OutboxMessage::Start(run) => self.carry_start(run).await,
            OutboxMessage::StartFromTemplate { run, slot } => self.carry_scheduled(run, Some(&slot)).await,
            OutboxMessage::Input { to, input } => match input.event {
                Event::MemoAsked(asked) => self.carry_memo_request(to, asked).await,
                _ => self.carry_input(to, input).await,
            },
        }
    }

    async fn carry_input(&self, to: RunKey, input: Input) -> Result<bool, StoreError> {
        if let Some(parent) = &input.child_of {
            let head = self.store().read_run(to.clone(), None).await?;
            // A parent may not control a run that it did not start, even if the id fits. A run's parent never changes.
            if head.and_then(|head| head.parent).is_none_or(|link| link.run != *parent) {
                return Ok(false);
            }
        }
        let fallback_action = UndeliverableAction::by(&to, &input);
        match self.store().append_input(to, input).await {
            Ok(_) => Ok(true),
            Err(error) if may_pass(&error) => Err(error),

            // The receiver is closed, deleted or continued as new, or has a result already: it does not need the message.
            Err(error) => match fallback_action {
                UndeliverableAction::Outcome { child, by } => self.answer_listener(child, by, error).await,
                UndeliverableAction::Signal { to, name, sender } => {
                    self.drop_signal(&to, &name, sender.as_ref(), &error);
                    Ok(false)
                }
                UndeliverableAction::Return(message) => Box::pin(self.carry(*message)).await, // MM2
                UndeliverableAction::Nothing => Ok(false),
            },
        }
    }

    /// Counts and logs a dropped signal (D3). Its sender has continued and does not wait for a receipt.
    fn drop_signal(&self, to: &RunKey, name: &Name, sender: Option<&RunKey>, error: &StoreError) {
        self.shared.counts.signals_dropped.one();
        tracing::warn!(
            run = sender.map(|sender| sender.id.as_str()),
            namespace = %to.namespace,
            receiver = %to.id,
            signal = %name,
            code = error.code(),
            "dropped a signal between runs: {error}",
        );
    }

    /// Sends the outcome of a child that ended before it received the request for its result (D1).
    async fn answer_listener(&self, child: RunKey, by: ParentLink, error: StoreError) -> Result<bool, StoreError> {
        let outcome = match self.read_outcome(&child).await {
            Ok(outcome) => outcome,
            Err(RuntimeError::Store(error)) if may_pass(&error) => return Err(error),
            Err(_) => None,
        };
        let answer = match outcome {
            Some(outcome) => {
                let head = self.store().read_run(child.clone(), None).await?;
                answer_to(&by, &child.id, outcome).with_spent(head.and_then(|head| head.budget_used()))
            }
            None => answer_to(&by, &child.id, Err(Failure { retryable: false, ..Failure::new(error.code(), error.to_string()) })),
        };
        Box::pin(self.carry(answer)).await
    }

    pub(crate) async fn carry_start(&self, run: NewRun) -> Result<bool, StoreError> {
        let (key, parent) = (run.key.clone(), run.started.parent.clone());
        let spent = run.started.budget.as_ref().map(|_| BudgetUse::default());
        let (code, message) = match self.begin_run(run).await {
            // An unrelated run with the same kind and input is not this parent's child.
            Ok(started) if !started.created && !is_of(started.head.parent.as_ref(), parent.as_ref()) => {
                (ErrorCode::RunExists.as_str(), not_this_child(&key, started.head.parent.as_ref(), parent.as_ref()))
            }
            Ok(_) => return Ok(true),
            // Only starts of schedules: the slot has no run, and its history shows why. A message that waited would be in the way of
            // those of other namespaces (NQ5).
            Err(error @ StoreError::QuotaExceeded { .. }) => (error.code(), error.to_string()),
            Err(error) if may_pass(&error) => return Err(error),
            Err(error) => (error.code(), error.to_string()),
        };
        if let Some(parent) = parent {
            let failure = Failure { retryable: false, ..Failure::new(code, message) };
            let answer = answer_to(&parent, &key.id, Err(failure)).with_spent(spent);
            Box::pin(self.carry(answer)).await?; // D1
        }
        Ok(false)
    }
}

/// What else has to happen if a message cannot be delivered.
enum UndeliverableAction {
    Outcome {
        child: RunKey,
        by: ParentLink,
    },
    Signal {
        to: RunKey,
        name: Name,
        sender: Option<RunKey>,
    },
    /// The ownership of a memo goes back to its cell.
    Return(Box<OutboxMessage>),
    Nothing,
}

impl UndeliverableAction {
    fn by(to: &RunKey, input: &Input) -> UndeliverableAction {
        match &input.event {
            Event::ResultRequested(event) => UndeliverableAction::Outcome { child: to.clone(), by: event.by.clone() },
            Event::SignalReceived(event) => {
                UndeliverableAction::Signal { to: to.clone(), name: event.name.clone(), sender: event.sender.clone() }
            }
            Event::MemoAnswered(_) => memo::returned(to, input)
                .map_or(UndeliverableAction::Nothing, |message| UndeliverableAction::Return(Box::new(message))),
            _ => UndeliverableAction::Nothing,
        }
    }
}

/// Returns true if the existing run was started by the same call: then its start was delivered before.
fn is_of(whose: Option<&ParentLink>, expected: Option<&ParentLink>) -> bool {
    match (whose, expected) {
        (Some(whose), Some(expected)) => whose.is_same_call(expected), // R10
        (whose, expected) => whose == expected,
    }
}

/// Describes why a run of the same id, kind and input is not the requested child.
fn not_this_child(key: &RunKey, whose: Option<&ParentLink>, expected: Option<&ParentLink>) -> String {
    let whose = match whose {
        None => "not a child".to_owned(),
        Some(link) if expected.is_some_and(|expected| expected.run == link.run && expected.incarnation != link.incarnation) => {
            format!("a child of a deleted run with the id {}", link.run.id)
        }
        Some(link) if expected.is_some_and(|expected| expected.run == link.run) => {
            format!("the child of another call of this run, at call id {} of generation {}", link.call_id, link.generation)
        }
        Some(link) => format!("a child of run {}", link.run),
    };
    format!("run {key} exists already and is {whose}; every child needs its own id")
}

fn may_pass(error: &StoreError) -> bool {
    matches!(error.consequence(), Consequence::Retry | Consequence::StopProcess)
}

fn by_receiver(messages: Vec<(OutboxId, OutboxMessage)>) -> BTreeMap<RunKey, Vec<(OutboxId, OutboxMessage)>> {
    let mut receivers: BTreeMap<RunKey, Vec<(OutboxId, OutboxMessage)>> = BTreeMap::new();
    for (id, delivery) in messages {
        let receiver = match &delivery {
            OutboxMessage::Start(run) | OutboxMessage::StartFromTemplate { run, .. } => run.key.clone(),
            // Requests of different runs to one memo need no order.
            OutboxMessage::Input { input: Input { event: Event::MemoAsked(asked), .. }, .. } => asked.by.run.clone(),
            OutboxMessage::Input { to, .. } => to.clone(),
        };
        receivers.entry(receiver).or_default().push((id, delivery));
    }
    receivers
}

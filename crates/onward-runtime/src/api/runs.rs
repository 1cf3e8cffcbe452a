//! Verbs for runs: start, signal, cancel, terminate, pause, resume, delete, list.
//!
//! Validates the arguments and passes them to the store, which decides with `onward-core`. When a verb returns `Ok`, its effect
//! is durable.

use std::sync::Arc;

use onward_core::api::{Signal, StartRequest};
use onward_core::budget::{Allowance, Budget, BudgetHead};
use onward_core::conversation::{ENTRY_SIGNAL, attachment_fault, is_empty_message};
use onward_core::event::{CancelRequested, RunPaused, RunResumed, RunStarted, SignalReceived, TerminateRequested};
use onward_core::run::{Input, NewRun, Refusal, Wait, WaitKind};
use onward_core::task::TaskId;
use onward_core::trace::TraceContext;
use onward_core::{Event, Name, Payload, RunKey, Timestamp, attribute};
use onward_store::sync::random_u64;
use onward_store::{Appended, ClaimedRun, Consequence, Delete, Started, StoreError, WaitQuery};

use crate::api::decide::AwaitedApprovals;
use crate::api::execute::CallContext;
use crate::memo::check_run_id;
use crate::schemas::depth::{check_event_payloads, check_payload};
use crate::schemas::kinds::is_reserved;
use crate::worker::inbox::Ticket;
use crate::worker::profile::Worker;
use crate::{CallRef, Runtime, RuntimeError};

/// Maximum size of a reason or feedback, in bytes: these are texts for people, not data.
pub(crate) const TEXT_BYTES_MAX: usize = 64 * 1024;

/// Checks a signal from outside and returns the input that appends it.
pub(crate) fn signal_input(signal: Signal) -> Result<Input, RuntimeError> {
    let Signal { name, payload, signal_id } = signal;
    if name.as_str() == ENTRY_SIGNAL {
        return Err(RuntimeError::IdReserved { what: "signal name", id: name.to_string() });
    }
    if let Some(id) = &signal_id {
        check_id("signal id", id)?;
    }
    check_payload(&payload)?;
    Ok(Input::signal(SignalReceived { name, payload, signal_id, sender: None }))
}

impl Runtime {
    /// Starts a run, or returns the existing one. If a worker of this process has a free slot, the same write claims the run
    /// for it.
    ///
    /// Cancel-safe: the run is then started or not, and if it is, a worker gets it.
    pub async fn start_run(&self, start: StartRequest) -> Result<Started, RuntimeError> {
        self.start_run_for(start, CallContext::default()).await
    }

    /// Starts a run like [`Runtime::start_run`], records the caller as its requester and grants the caller's allowance.
    pub async fn start_run_for(&self, start: StartRequest, context: CallContext) -> Result<Started, RuntimeError> {
        let StartRequest { run: key, kind, version, input, seed, signal, attributes, trace, budget, deadline_ms } = start;
        check_run_id(&key.id)?;
        let (requester, budget) = (context.caller, context.allowance.or(budget.map(Allowance::granted)));
        if is_reserved(&kind) {
            return Err(RuntimeError::KindReserved { kind });
        }
        // A caller need not know the code: the run is pinned to the current version.
        let version = self.current_version(&key.namespace, &kind, version).await?;
        attribute::check(&attributes)?;
        check_payload(&input)?;
        let kind_key = (false, kind.clone(), version.clone());
        if let Some(signal) = &signal {
            self.check_first_signal(&key.namespace, &kind_key, signal).await?;
        }
        self.check_input(&key, kind_key, &input).await?;
        let trace = trace.filter(|trace| TraceContext::parse(trace).is_some());
        let signal = signal.map(signal_input).transpose()?.map(Box::new);
        let budget = budget.filter(|budget| !budget.limit.is_unlimited()).map(|budget| Box::new(BudgetHead::from(budget)));
        let started =
            RunStarted { version, attributes, trace, budget, deadline_ms, requester, ..RunStarted::new(kind, input, seed) };
        Ok(self.begin_run(NewRun { key, started, signal }).await?)
    }

    pub(crate) async fn begin_run(&self, mut run: NewRun) -> Result<Started, StoreError> {
        self.fill_start(&mut run).await;
        let Some(reservation) = Reservation::make(self, &run) else {
            return self.store().start_run(run, None).await;
        };
        let claim = reservation.worker.profile.id.clone();
        let mut started = match self.store().start_run(run, Some(claim)).await {
            Ok(started) => started,
            Err(error) => {
                // A quota has written nothing either; after other errors that may pass the outcome is unknown.
                if matches!(error.consequence(), Consequence::Fail) || matches!(error, StoreError::QuotaExceeded { .. }) {
                    reservation.withdraw();
                }
                return Err(error);
            }
        };
        let Some(claimed) = started.claimed.take() else {
            reservation.withdraw();
            return Ok(started);
        };
        let worker = reservation.worker.clone();
        if reservation.confirm(&claimed) {
            self.hand_over(&worker, claimed).await;
        } else {
            // The worker lost its session meanwhile: release the claim.
            self.store().release_run(claimed.head.key, claimed.head.epoch).await?;
        }
        Ok(started)
    }

    /// Fails if a message to an agent is empty, because a model has no answer to it, or if [`Runtime::check_entry`] fails. For
    /// messages of people; a signal may be empty.
    ///
    /// # Errors
    /// `message_empty`, `payload_invalid`, `attachment_invalid`.
    pub fn check_message(content: &Payload) -> Result<(), RuntimeError> {
        if is_empty_message(content) { Err(RuntimeError::MessageEmpty) } else { Runtime::check_entry(content) }
    }

    /// Fails if a payload of type JSON is invalid JSON, or if an attachment can never be shown to a model.
    ///
    /// # Errors
    /// `payload_invalid`, `attachment_invalid`.
    pub fn check_entry(content: &Payload) -> Result<(), RuntimeError> {
        check_payload(content)?;
        attachment_fault(content).map_or(Ok(()), |why| Err(RuntimeError::AttachmentInvalid { why }))
    }

    /// Appends a signal to the run's mailbox.
    pub async fn signal_run(&self, key: &RunKey, signal: Signal) -> Result<Appended, RuntimeError> {
        self.check_signal(key, &signal).await?;
        Ok(self.store().append_input(key.clone(), signal_input(signal)?).await?)
    }

    /// Requests cancellation of the run; its code may compensate first. A standalone task has no such code and ends at once.
    pub async fn cancel_run(&self, key: &RunKey, reason: &str) -> Result<Appended, RuntimeError> {
        check_text("reason", reason)?;
        match self.append(key, Input::new(CancelRequested::new(reason.to_owned()))).await {
            Err(RuntimeError::Store(StoreError::Refused(Refusal::IsTask { .. }))) => self.end_task(key, reason).await,
            answer => answer,
        }
    }

    /// Ends the run at once, without running its code.
    pub async fn terminate_run(&self, key: &RunKey, reason: &str) -> Result<Appended, RuntimeError> {
        check_text("reason", reason)?;
        self.append(key, Input::new(TerminateRequested { reason: reason.to_owned(), reset_to: None })).await
    }

    /// Pauses the run and its timers until it is resumed.
    pub async fn pause_run(&self, key: &RunKey, pause: RunPaused) -> Result<Appended, RuntimeError> {
        check_text("pause message", &pause.message)?;
        self.append(key, Input::new(pause)).await
    }

    /// Resumes a paused run. If limits are given, they replace those of its budget, also if the run is not paused.
    pub async fn resume_run(&self, key: &RunKey, budget: Option<Budget>) -> Result<Appended, RuntimeError> {
        let budget = budget.filter(|budget| !budget.is_unlimited());
        self.append(key, Input::new(Event::RunResumed(RunResumed { budget }))).await
    }

    /// Deletes a closed run with all its generations. An open external run can be deleted only by its engine.
    pub async fn delete_run(&self, key: &RunKey, reason: &str) -> Result<(), RuntimeError> {
        // A damaged run has no readable head, and can still be deleted.
        if self.read_head(key).await.is_ok_and(|head| head.external.is_some() && !head.status.is_closed()) {
            return Err(StoreError::from(Refusal::External { key: key.clone() }).into());
        }
        self.delete_any(key, reason).await
    }

    /// Deletes a run, open or closed, as far as the store allows it.
    pub(crate) async fn delete_any(&self, key: &RunKey, reason: &str) -> Result<(), RuntimeError> {
        check_text("reason", reason)?;
        let head = self.head_for_feed(key).await;
        self.store().delete_runs(Delete::Run { key: key.clone(), reason: reason.to_owned() }).await?;
        head.into_iter().for_each(|head| self.run_deleted(head));
        Ok(())
    }

    /// Lists open approvals, oldest first; the query's kind is ignored. Abandoned approvals, which cannot be decided, are left
    /// out.
    pub async fn list_approvals(&self, query: WaitQuery) -> Result<Vec<Wait>, RuntimeError> {
        let query = WaitQuery { kind: Some(WaitKind::Approval), ..query };
        match query.run.clone().filter(|_| query.below) {
            Some(top) => self.waits_below(&top, query).await,
            None => {
                let (mut awaited, mut waits) = (AwaitedApprovals::default(), Vec::new());
                for wait in self.store().list_waits(query).await? {
                    if awaited.contains(self, &wait).await? {
                        waits.push(wait);
                    }
                }
                Ok(waits)
            }
        }
    }

    /// Puts a task that is quarantined, with a reset count of lost workers, or waits for a rate limit, back on its queue.
    pub async fn retry_task(&self, call: &CallRef) -> Result<(), RuntimeError> {
        Ok(self.store().retry_task(TaskId::from(call.clone())).await?)
    }

    pub(crate) async fn append(&self, key: &RunKey, input: Input) -> Result<Appended, RuntimeError> {
        check_run_id(&key.id)?;
        check_event_payloads(&input.event)?;
        Ok(self.store().append_input(key.clone(), input).await?)
    }
}

/// A permit and an inbox slot for a run that is being started here. If it is dropped before the store has replied, it marks the
/// run as a possible orphan: the worker may hold a lease that it does not know of (W1).
struct Reservation {
    runtime: Runtime,
    worker: Arc<Worker>,
    key: RunKey,
    ticket: Ticket,
    settled: bool,
}

impl Reservation {
    fn make(runtime: &Runtime, run: &NewRun) -> Option<Reservation> {
        let hub = runtime.hub();
        let (worker, permit) = hub.workers.reserve_worker(run)?;
        let ticket = hub.inboxes.reserve(&run.key, permit)?;
        Some(Reservation { runtime: runtime.clone(), worker, key: run.key.clone(), ticket, settled: false })
    }

    fn confirm(mut self, run: &ClaimedRun) -> bool {
        self.settled = true;
        self.runtime.hub().inboxes.confirm(self.ticket, run)
    }

    /// Releases the slot: the run was not claimed.
    fn withdraw(mut self) {
        self.settled = true;
        self.runtime.hub().inboxes.cancel(&self.key, self.ticket);
        // A start of the run that was given up earlier can be checked now.
        if self.worker.leases.has_orphan(&self.key) {
            self.worker.runs.want();
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if !self.settled {
            self.runtime.hub().inboxes.cancel(&self.key, self.ticket);
            let until = self.runtime.clock().now().after(self.runtime.options().lease);
            self.worker.leases.add_orphan(self.key.clone(), until);
            self.worker.runs.want();
        }
    }
}

/// Returns a unique run id; ids sort by time.
pub fn new_run_id(now: Timestamp) -> String {
    const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
    let bits = (u128::from(now.0) & ((1 << 48) - 1)) << 80 | u128::from(random_u64()) << 16 | u128::from(random_u64() & 0xffff);
    let digit = |position: u32| DIGITS[(bits >> (5 * position) & 31) as usize] as char;
    format!("run_{}", (0..26).rev().map(digit).collect::<String>())
}

/// Fails with `id_invalid` if an id of a caller breaks the rules of names.
pub(crate) fn check_id(what: &'static str, id: &str) -> Result<(), RuntimeError> {
    Name::new(id).map(drop).map_err(|source| RuntimeError::IdInvalid { what, source })
}

pub(crate) fn check_text(what: &'static str, text: &str) -> Result<(), RuntimeError> {
    let (bytes, max) = (text.len(), TEXT_BYTES_MAX);
    if bytes > max { Err(RuntimeError::TextTooLong { what, bytes, max }) } else { Ok(()) }
}

//! Verbs for runs: start, signal, cancel, terminate, pause, resume, delete, list.
//!
//! Validates the arguments and passes them to the store, which decides with `onward-core`. When a verb returns `Ok`, its effect
//! is durable.

use std::sync::Arc;

use onward_core::api::{Signal, StartRequest};
use onward_core::budget::{Allowance, Budget, BudgetHead};
use onward_core::conversation::{ENTRY_SIGNAL, attachment_fault, says_nothing};
use onward_core::event::{CancelRequested, RunPaused, RunResumed, RunStarted, SignalReceived, TerminateRequested};
use onward_core::ledger::{SpendQuery, SpendRow};
use onward_core::run::{Input, NewRun, Refusal, Wait, WaitKind};
use onward_core::task::{Task, TaskId, TaskState};
use onward_core::trace::TraceContext;
use onward_core::{Attribute, Event, Name, Namespace, Payload, RunKey, TASK_KIND_PREFIX, attribute};
use onward_store::{
    Appended, ClaimedRun, Consequence, Delete, DeletedQuery, DeletedRun, RunPage, RunQuery, Started, StoreError, TaskQuery,
    VersionCount, WaitQuery,
};

use crate::api::decide::Asking;
use crate::schemas::depth::{check_event_payloads, check_payload};
use crate::worker::inbox::Ticket;
use crate::worker::profile::Worker;
use crate::{CallRef, Runtime, RuntimeError};

/// Maximum size of a reason or feedback, in bytes: these are texts for people, not data.
pub(crate) const TEXT_BYTES_MAX: usize = 64 * 1024;

/// A request to start a run.
#[derive(Debug, Clone, PartialEq)]
pub struct StartRun {
    /// A repeat with the same key, kind and input is the same run.
    pub key: RunKey,
    pub kind: Name,
    /// The code version that the run is pinned to.
    pub version: Option<Name>,
    pub input: Payload,
    /// Seed of the run's random numbers.
    pub seed: u64,
    /// Delivered in the same write as the start, also if the run exists already.
    pub signal: Option<SendSignal>,
    /// Search attributes; ignored if the run exists already.
    pub attributes: Vec<Attribute>,
    /// Trace context of the caller, as a `traceparent`; an invalid value is ignored.
    pub trace: Option<String>,
    /// Budget of the run and its children; ignored if the run exists already.
    pub budget: Option<Allowance>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct SendSignal {
    pub name: Name,
    pub payload: Payload,
    /// Idempotency key: a repeat with the same id is the same signal.
    pub signal_id: Option<String>,
    /// The run that sent the signal.
    pub sender: Option<RunKey>,
}

impl From<Signal> for SendSignal {
    fn from(signal: Signal) -> SendSignal {
        let Signal { name, payload, signal_id } = signal;
        SendSignal { name, payload, signal_id, sender: None }
    }
}

impl From<StartRequest> for StartRun {
    fn from(request: StartRequest) -> StartRun {
        let StartRequest { run, kind, version, input, seed, signal, trace, attributes, budget } = request;
        let (signal, budget) = (signal.map(SendSignal::from), budget.map(Allowance::granted));
        StartRun { key: run, kind, version, input, seed, signal, attributes, trace, budget }
    }
}

impl SendSignal {
    pub(crate) fn into_input(self) -> Result<Input, RuntimeError> {
        let SendSignal { name, payload, signal_id, sender } = self;
        if name.as_str() == ENTRY_SIGNAL {
            return Err(RuntimeError::IdReserved { what: "signal name", id: name.to_string() });
        }
        if let Some(id) = &signal_id {
            check_id("signal id", id)?;
        }
        check_payload(&payload)?;
        Ok(Input::signal(SignalReceived { name, payload, signal_id, sender }))
    }
}

impl Runtime {
    /// Starts a run, or returns the existing one. If a worker of this process has a free slot, the same write claims the run
    /// for it.
    ///
    /// Cancel-safe: the run is then started or not, and if it is, a worker gets it.
    pub async fn start_run(&self, start: StartRun) -> Result<Started, RuntimeError> {
        self.start_run_for(None, start).await
    }

    /// Starts a run like [`Runtime::start_run`] and records the requester: the name of a credential.
    pub async fn start_run_for(&self, requester: Option<String>, start: StartRun) -> Result<Started, RuntimeError> {
        let StartRun { key, kind, version, input, seed, signal, attributes, trace, budget } = start;
        if kind.as_str().starts_with(TASK_KIND_PREFIX) {
            return Err(RuntimeError::KindReserved { kind });
        }
        // A caller need not know the code: the run is pinned to the current version.
        let version = version.or_else(|| self.hub().workers.current_version(&key.namespace, &kind));
        attribute::check(&attributes)?;
        check_payload(&input)?;
        self.check_input(&key, (false, kind.clone(), version.clone()), &input).await?;
        let trace = trace.filter(|trace| TraceContext::parse(trace).is_some());
        let signal = signal.map(SendSignal::into_input).transpose()?.map(Box::new);
        let budget = budget.filter(|budget| !budget.limit.is_unlimited()).map(|budget| Box::new(BudgetHead::from(budget)));
        let started = RunStarted { version, attributes, trace, budget, requester, ..RunStarted::new(kind, input, seed) };
        Ok(self.begin_run(NewRun { key, started, signal }).await?)
    }

    pub(crate) async fn begin_run(&self, run: NewRun) -> Result<Started, StoreError> {
        let Some(reservation) = Reservation::make(self, &run) else {
            return self.store().start_run(run, None).await;
        };
        let claim = reservation.worker.profile.id.clone();
        let mut started = match self.store().start_run(run, Some(claim)).await {
            Ok(started) => started,
            Err(error) => {
                if matches!(error.consequence(), Consequence::TellCaller) {
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
        if says_nothing(content) { Err(RuntimeError::MessageEmpty) } else { Runtime::check_entry(content) }
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
    pub async fn signal_run(&self, key: &RunKey, signal: SendSignal) -> Result<Appended, RuntimeError> {
        self.append(key, signal.into_input()?).await
    }

    /// Requests cancellation of the run; its code may compensate first. A standalone task has no such code and ends at once.
    pub async fn cancel_run(&self, key: &RunKey, reason: &str) -> Result<Appended, RuntimeError> {
        check_text("reason", reason)?;
        match self.append(key, Input::new(CancelRequested { reason: reason.to_owned() })).await {
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
        self.store().delete_runs(Delete::Run { key: key.clone(), reason: reason.to_owned() }).await?;
        Ok(())
    }

    /// Lists runs that were deleted individually, newest first, with the reason. The list reaches back as far as the retention.
    pub async fn list_deleted(&self, query: DeletedQuery) -> Result<Vec<DeletedRun>, RuntimeError> {
        Ok(self.store().list_deleted(query).await?)
    }

    pub async fn list_runs(&self, query: RunQuery) -> Result<RunPage, RuntimeError> {
        Ok(self.store().list_runs(query).await?)
    }

    /// Counts the open runs for each version of each kind.
    pub async fn list_versions(&self, namespace: Namespace) -> Result<Vec<VersionCount>, RuntimeError> {
        Ok(self.store().count_versions(namespace).await?)
    }

    /// Returns the cost by model, day, run or tree, including deleted runs.
    pub async fn read_spend(&self, query: SpendQuery) -> Result<Vec<SpendRow>, RuntimeError> {
        Ok(self.store().spend(query).await?)
    }

    /// Lists open approvals, oldest first; the query's kind is ignored. Abandoned approvals, which cannot be decided, are left
    /// out.
    pub async fn list_approvals(&self, query: WaitQuery) -> Result<Vec<Wait>, RuntimeError> {
        let query = WaitQuery { kind: Some(WaitKind::Approval), ..query };
        match query.run.clone().filter(|_| query.below) {
            Some(top) => self.waits_below(&top, query).await,
            None => {
                let (mut asking, mut asked) = (Asking::default(), Vec::new());
                for wait in self.store().list_waits(query).await? {
                    if asking.asks(self, &wait).await? {
                        asked.push(wait);
                    }
                }
                Ok(asked)
            }
        }
    }

    /// Lists quarantined tasks, oldest first; the query's state is ignored.
    pub async fn list_quarantined(&self, query: TaskQuery) -> Result<Vec<Task>, RuntimeError> {
        Ok(self.store().list_tasks(TaskQuery { state: Some(TaskState::Quarantined), ..query }).await?)
    }

    /// Lists open tasks in the order in which they were scheduled.
    pub async fn list_tasks(&self, query: TaskQuery) -> Result<Vec<Task>, RuntimeError> {
        Ok(self.store().list_tasks(query).await?)
    }

    /// Puts a quarantined task back on its queue and resets its count of lost workers.
    pub async fn retry_task(&self, call: &CallRef) -> Result<(), RuntimeError> {
        Ok(self.store().retry_task(TaskId::from(call.clone())).await?)
    }

    pub(crate) async fn append(&self, key: &RunKey, input: Input) -> Result<Appended, RuntimeError> {
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
        let (worker, permit) = hub.workers.seat_for(run)?;
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

/// Fails with `id_invalid` if an id of a caller breaks the rules of names.
pub(crate) fn check_id(what: &'static str, id: &str) -> Result<(), RuntimeError> {
    Name::new(id).map(drop).map_err(|source| RuntimeError::IdInvalid { what, source })
}

pub(crate) fn check_text(what: &'static str, text: &str) -> Result<(), RuntimeError> {
    let (bytes, max) = (text.len(), TEXT_BYTES_MAX);
    if bytes > max { Err(RuntimeError::TextTooLong { what, bytes, max }) } else { Ok(()) }
}

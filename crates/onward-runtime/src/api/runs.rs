//! What a caller may ask of runs: start, signal, cancel, terminate, pause, resume, delete, list.
//!
//! Checks what came from outside and hands it to the store, which decides with `onward-core`. What is durable when a verb returns `Ok`
//! is what the store promises: everything.

use std::sync::Arc;

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
use crate::{CallId, Runtime, RuntimeError};

/// The longest reason or feedback, in bytes: texts for people, not data.
pub(crate) const TEXT_BYTES_MAX: usize = 64 * 1024;

/// A run to be.
#[derive(Debug, Clone, PartialEq)]
pub struct StartRun {
    /// The same key with the same kind and input is the same run.
    pub key: RunKey,
    pub kind: Name,
    /// The version of the code the run is pinned to.
    pub version: Option<Name>,
    pub input: Payload,
    /// Where the run's chance derives from; any number.
    pub seed: u64,
    /// Delivered with the start, in one write, also when the run exists already.
    pub signal: Option<SendSignal>,
    /// What the run is found by; of no account when it exists already.
    pub attributes: Vec<Attribute>,
    /// The trace that the caller stands in, as a `traceparent`. What is none is ignored.
    pub trace: Option<String>,
    /// What the run may spend, its children included; of no account when it exists already.
    pub budget: Option<Allowance>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct SendSignal {
    pub name: Name,
    pub payload: Payload,
    /// The same id again is the same signal.
    pub signal_id: Option<String>,
    /// The run it comes from.
    pub sender: Option<RunKey>,
}

impl SendSignal {
    pub(crate) fn into_input(self) -> Result<Input, RuntimeError> {
        let SendSignal { name, payload, signal_id, sender } = self;
        if name.as_str() == ENTRY_SIGNAL {
            return Err(RuntimeError::IdReserved { what: "signal's name", id: name.to_string() });
        }
        if let Some(id) = &signal_id {
            check_id("signal id", id)?;
        }
        check_payload(&payload)?;
        Ok(Input::signal(SignalReceived { name, payload, signal_id, sender }))
    }
}

impl Runtime {
    /// Starts a run, or finds it. A run that a worker of this process can take at once is claimed in the same write and handed to it.
    ///
    /// May be dropped at any time: the run is then started or not, and worked on if it is.
    pub async fn start_run(&self, start: StartRun) -> Result<Started, RuntimeError> {
        self.start_run_for(None, start).await
    }

    /// Starts a run like [`Runtime::start_run`] and records who asks for it: the name of a credential.
    pub async fn start_run_for(&self, requester: Option<String>, start: StartRun) -> Result<Started, RuntimeError> {
        let StartRun { key, kind, version, input, seed, signal, attributes, trace, budget } = start;
        if kind.as_str().starts_with(TASK_KIND_PREFIX) {
            return Err(RuntimeError::KindReserved { kind });
        }
        // Whoever starts it need not have its code: the run goes on with the code that there is now.
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
            // The worker lost its session meanwhile; the run is as good as never claimed.
            self.store().release_run(claimed.head.key, claimed.head.epoch).await?;
        }
        Ok(started)
    }

    /// Refuses what says nothing to an agent, because a model has no answer to it, and what [`Runtime::check_entry`] refuses. For doors
    /// at which people say something; a signal may be empty.
    ///
    /// # Errors
    /// `message_empty`, `payload_invalid`, `attachment_invalid`.
    pub fn check_message(content: &Payload) -> Result<(), RuntimeError> {
        if says_nothing(content) { Err(RuntimeError::MessageEmpty) } else { Runtime::check_entry(content) }
    }

    /// Refuses what is called JSON and is none, and attachments that nobody could ever show to a model.
    ///
    /// # Errors
    /// `payload_invalid`, `attachment_invalid`.
    pub fn check_entry(content: &Payload) -> Result<(), RuntimeError> {
        check_payload(content)?;
        attachment_fault(content).map_or(Ok(()), |why| Err(RuntimeError::AttachmentInvalid { why }))
    }

    /// Puts a signal into the run's mailbox.
    pub async fn signal_run(&self, key: &RunKey, signal: SendSignal) -> Result<Appended, RuntimeError> {
        self.append(key, signal.into_input()?).await
    }

    /// Asks the run to stop; its code may compensate first. A standalone task has none and ends at once.
    pub async fn cancel_run(&self, key: &RunKey, reason: &str) -> Result<Appended, RuntimeError> {
        check_text("reason", reason)?;
        match self.append(key, Input::new(CancelRequested { reason: reason.to_owned() })).await {
            Err(RuntimeError::Store(StoreError::Refused(Refusal::IsTask { .. }))) => self.end_task(key, reason).await,
            answer => answer,
        }
    }

    /// Ends the run at once; its code is not asked.
    pub async fn terminate_run(&self, key: &RunKey, reason: &str) -> Result<Appended, RuntimeError> {
        check_text("reason", reason)?;
        self.append(key, Input::new(TerminateRequested { reason: reason.to_owned(), reset_to: None })).await
    }

    /// Makes the run stand still, timers included, until it is resumed.
    pub async fn pause_run(&self, key: &RunKey, pause: RunPaused) -> Result<Appended, RuntimeError> {
        check_text("pause message", &pause.message)?;
        self.append(key, Input::new(pause)).await
    }

    /// Lets a paused run go on, and may spend more or less than before: limits that are given take the place of those that there were, also
    /// where nothing is paused.
    pub async fn resume_run(&self, key: &RunKey, budget: Option<Budget>) -> Result<Appended, RuntimeError> {
        let budget = budget.filter(|budget| !budget.is_unlimited());
        self.append(key, Input::new(Event::RunResumed(RunResumed { budget }))).await
    }

    /// Deletes a closed run with all its generations. An open run of an outside engine is its engine's alone to delete.
    pub async fn delete_run(&self, key: &RunKey, reason: &str) -> Result<(), RuntimeError> {
        // A damaged run has no head to be asked, and can be deleted all the same.
        if self.read_head(key).await.is_ok_and(|head| head.external.is_some() && !head.status.is_closed()) {
            return Err(StoreError::from(Refusal::External { key: key.clone() }).into());
        }
        self.delete_any(key, reason).await
    }

    /// Deletes whatever the store lets go.
    pub(crate) async fn delete_any(&self, key: &RunKey, reason: &str) -> Result<(), RuntimeError> {
        check_text("reason", reason)?;
        self.store().delete_runs(Delete::Run { key: key.clone(), reason: reason.to_owned() }).await?;
        Ok(())
    }

    /// Runs that were deleted one by one, newest first, and why; remembered for as long as retention would have kept them.
    pub async fn list_deleted(&self, query: DeletedQuery) -> Result<Vec<DeletedRun>, RuntimeError> {
        Ok(self.store().list_deleted(query).await?)
    }

    pub async fn list_runs(&self, query: RunQuery) -> Result<RunPage, RuntimeError> {
        Ok(self.store().list_runs(query).await?)
    }

    /// How many open runs need which version of which kind.
    pub async fn list_versions(&self, namespace: Namespace) -> Result<Vec<VersionCount>, RuntimeError> {
        Ok(self.store().count_versions(namespace).await?)
    }

    /// What was spent, by model, day, run or tree; runs that were deleted are in it.
    pub async fn read_spend(&self, query: SpendQuery) -> Result<Vec<SpendRow>, RuntimeError> {
        Ok(self.store().spend(query).await?)
    }

    /// Open approvals, oldest first, whatever kind the query names; without those that code has left, which nobody can decide.
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

    /// Tasks that were taken off their queue because worker after worker vanished over them, oldest first, whatever state the query
    /// names.
    pub async fn list_quarantined(&self, query: TaskQuery) -> Result<Vec<Task>, RuntimeError> {
        Ok(self.store().list_tasks(TaskQuery { state: Some(TaskState::Quarantined), ..query }).await?)
    }

    /// Open tasks in the order in which they were scheduled.
    pub async fn list_tasks(&self, query: TaskQuery) -> Result<Vec<Task>, RuntimeError> {
        Ok(self.store().list_tasks(query).await?)
    }

    /// Puts a quarantined task back on its queue; it may lose as many workers again as a new one.
    pub async fn retry_task(&self, call: &CallId) -> Result<(), RuntimeError> {
        Ok(self.store().retry_task(TaskId::from(call.clone())).await?)
    }

    pub(crate) async fn append(&self, key: &RunKey, input: Input) -> Result<Appended, RuntimeError> {
        check_event_payloads(&input.event)?;
        Ok(self.store().append_input(key.clone(), input).await?)
    }
}

/// A seat and an inbox slot for a run that is being started here. Dropped before the store has answered, it leaves word that the worker
/// may hold a run that nobody told it of (W1).
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
        let (worker, seat) = hub.workers.seat_for(run)?;
        let ticket = hub.inboxes.reserve(&run.key, seat)?;
        Some(Reservation { runtime: runtime.clone(), worker, key: run.key.clone(), ticket, settled: false })
    }

    fn confirm(mut self, run: &ClaimedRun) -> bool {
        self.settled = true;
        self.runtime.hub().inboxes.confirm(self.ticket, run)
    }

    /// The run was not claimed.
    fn withdraw(mut self) {
        self.settled = true;
        self.runtime.hub().inboxes.cancel(&self.key, self.ticket);
        // An earlier start of the run may have been given up; what became of it can be told from now on.
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

/// An id made up by a caller obeys the limits of every name.
pub(crate) fn check_id(what: &'static str, id: &str) -> Result<(), RuntimeError> {
    Name::new(id).map(drop).map_err(|source| RuntimeError::IdInvalid { what, source })
}

pub(crate) fn check_text(what: &'static str, text: &str) -> Result<(), RuntimeError> {
    let (bytes, max) = (text.len(), TEXT_BYTES_MAX);
    if bytes > max { Err(RuntimeError::TextTooLong { what, bytes, max }) } else { Ok(()) }
}

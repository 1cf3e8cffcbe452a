//! Schedules: the verbs of callers, and the delivery of the starts.
//!
//! A schedule is an internal run; `onward-core` decides what an input changes. This module checks definitions where they enter,
//! and prepares the runs of slots ([`start`]): it renders their inputs and selects their versions.
//!
//! Invariants:
//! - SZ1: a request that is refused writes nothing.
//! - SZ2: a run that a schedule starts is checked like one that a caller starts: reserved and internal kinds are refused, and the
//!   input is compared with the schema of its kind, that of a template as rendered for the next slot.
//! - SZ3 (S17): a run that a schedule starts has no limit above the ceiling of its namespace at that time, whatever was granted to
//!   the definition.

mod start;
mod template;

use onward_core::api::{
    BackfillScheduleRequest, CancelBackfillRequest, PauseScheduleRequest, PutScheduleReply, PutScheduleRequest, ScheduleQuery,
    ScheduleRequest, ScheduleView, SchedulesReply, SlotsReply, SlotsRequest, TriggerOutcome, TriggerScheduleReply,
    TriggerScheduleRequest, upcoming,
};
use onward_core::budget::{Allowance, BudgetHead};
use onward_core::event::TerminateRequested;
use onward_core::internal::InternalRuns;
use onward_core::run::{IdempotencyRecord, Input};
use onward_core::schedule::{
    BackfillSchedule, CancelBackfill, Ending, PauseSchedule, ResumeSchedule, ScheduleDefinition, ScheduleHead, ScheduleInput,
    ScheduleRefusal, TriggerSchedule, trigger_of,
};
use onward_core::schedule_run::{schedule_key, start_schedule};
use onward_core::{Name, Namespace, RunHead, RunKey};
use onward_store::sync::random_u64;
use onward_store::{Delete, RunQuery, StoreError};

use crate::api::execute::CallContext;
use crate::api::runs::check_text;
pub(crate) use start::is_scheduled;

use crate::{Runtime, RuntimeError, TickCounts};

/// Number of times that a schedule is read again because it changed meanwhile.
const ATTEMPTS: u32 = 100;

/// Default and maximum number of schedules on a page; each has its state.
const PAGE_MAX: usize = 100;

impl Runtime {
    /// Creates a schedule, or replaces its definition.
    ///
    /// # Errors
    /// `schedule_invalid`, `kind_not_found`, and those of the start of a run.
    pub async fn put_schedule(
        &self,
        request: PutScheduleRequest,
        context: CallContext,
    ) -> Result<PutScheduleReply, RuntimeError> {
        let PutScheduleRequest { namespace, schedule, mut definition, budget, force } = request;
        let key = schedule_key(namespace.clone(), &schedule).ok_or(ScheduleRefusal::Id)?;
        let allowance = context.allowance.or(budget.filter(|budget| !budget.is_unlimited()).map(Allowance::granted));
        (definition.requester, definition.granted) =
            (context.caller, allowance.map(|allowance| Box::new(BudgetHead::from(allowance))));
        ScheduleHead::create(schedule.clone(), definition.clone(), self.clock().now())?; // SZ1
        self.check_schedule_target(&namespace, &schedule, &definition, force).await?;
        for _ in 0..ATTEMPTS {
            if let Some(created) = self.try_put(&key, &definition).await? {
                return Ok(PutScheduleReply { schedule: self.view_schedule(&namespace, &schedule).await?, created });
            }
        }
        Err(StoreError::Unavailable { why: format!("schedule {schedule} changes all the time") }.into())
    }

    /// Stores a definition. Returns whether the schedule is new; `None` if it was deleted meanwhile.
    async fn try_put(&self, key: &RunKey, definition: &ScheduleDefinition) -> Result<Option<bool>, RuntimeError> {
        match self.store().read_run(key.clone(), None).await? {
            None => {
                let new = start_schedule(key.clone(), definition.clone(), random_u64());
                match self.store().start_run(new, None).await {
                    Ok(started) if started.created => return Ok(Some(true)),
                    Ok(_) => {}
                    Err(StoreError::Refused(_)) => return Ok(None),
                    Err(error) => return Err(error.into()),
                }
            }
            Some(head) if head.status.is_closed() => {
                self.remove_schedule(key).await?;
                return Ok(None);
            }
            Some(_) => {}
        }
        match self.store().append_input(key.clone(), ScheduleInput::Define(Box::new(definition.clone())).into()).await {
            Ok(_) => Ok(Some(false)),
            Err(StoreError::RunNotFound { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads a schedule with its history and its next slots.
    pub async fn read_schedule(&self, request: &ScheduleRequest) -> Result<ScheduleView, RuntimeError> {
        self.view_schedule(&request.namespace, &request.schedule).await
    }

    async fn view_schedule(&self, namespace: &Namespace, schedule: &Name) -> Result<ScheduleView, RuntimeError> {
        let (_, head) = self.find_schedule(namespace, schedule).await?;
        ScheduleView::of(head).ok_or_else(|| not_found(schedule))
    }

    /// Returns the run that keeps a schedule.
    async fn find_schedule(&self, namespace: &Namespace, schedule: &Name) -> Result<(RunKey, RunHead), RuntimeError> {
        let key = schedule_key(namespace.clone(), schedule).ok_or_else(|| not_found(schedule))?;
        let head = self.store().read_run(key.clone(), None).await?.filter(|head| !head.status.is_closed());
        Ok((key, head.ok_or_else(|| not_found(schedule))?))
    }

    /// Returns the definition of a schedule, for the authorization of requests about it.
    ///
    /// # Errors
    /// `schedule_not_found`
    pub async fn schedule_definition(&self, namespace: &Namespace, schedule: &Name) -> Result<ScheduleDefinition, RuntimeError> {
        let (_, head) = self.find_schedule(namespace, schedule).await?;
        head.schedule.map(|schedule| schedule.definition).ok_or_else(|| not_found(schedule))
    }

    /// Lists schedules, newest first, without their histories.
    pub async fn list_schedules(&self, query: ScheduleQuery) -> Result<SchedulesReply, RuntimeError> {
        let ScheduleQuery { namespace, limit, cursor } = query;
        let limit = if limit == 0 { PAGE_MAX } else { limit.min(PAGE_MAX) };
        let internal = Some(InternalRuns::Schedules);
        let page = self.store().list_runs(RunQuery { namespace, internal, limit, cursor, ..RunQuery::default() }).await?;
        let open = page.runs.into_iter().filter(|head| !head.status.is_closed());
        Ok(SchedulesReply { schedules: open.filter_map(ScheduleView::of).map(ScheduleView::in_list).collect(), next: page.next })
    }

    /// Deletes a schedule. Runs that it started continue.
    pub async fn delete_schedule(&self, request: &ScheduleRequest) -> Result<(), RuntimeError> {
        let (key, _) = self.find_schedule(&request.namespace, &request.schedule).await?;
        let ended = TerminateRequested { reason: "the schedule is deleted".to_owned(), reset_to: None };
        self.append_to_schedule(&request.schedule, key.clone(), Input::new(ended)).await?;
        self.remove_schedule(&key).await
    }

    /// Removes the run of a deleted schedule, once its last messages are delivered; the next definition of the id removes one that
    /// is left.
    async fn remove_schedule(&self, key: &RunKey) -> Result<(), RuntimeError> {
        for _ in 0..ATTEMPTS {
            let reason = "the schedule is deleted".to_owned();
            match self.store().delete_runs(Delete::Run { key: key.clone(), reason }).await {
                Ok(_) | Err(StoreError::RunNotFound { .. }) => return Ok(()),
                Err(StoreError::RunBusy { .. }) => drop(self.deliver_outbox(&mut TickCounts::default()).await?),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Pauses a schedule.
    pub async fn pause_schedule(&self, request: PauseScheduleRequest) -> Result<ScheduleView, RuntimeError> {
        let PauseScheduleRequest { namespace, schedule, note } = request;
        check_text("note", &note)?;
        self.change_schedule(&namespace, &schedule, ScheduleInput::Pause(PauseSchedule { note }).into()).await
    }

    /// Resumes a paused schedule.
    pub async fn resume_schedule(&self, request: PauseScheduleRequest) -> Result<ScheduleView, RuntimeError> {
        let PauseScheduleRequest { namespace, schedule, note } = request;
        check_text("note", &note)?;
        self.change_schedule(&namespace, &schedule, ScheduleInput::Resume(ResumeSchedule { note }).into()).await
    }

    /// Starts a run of a schedule at once, by its policy or another one.
    pub async fn trigger_schedule(
        &self,
        request: TriggerScheduleRequest,
        context: CallContext,
    ) -> Result<TriggerScheduleReply, RuntimeError> {
        let TriggerScheduleRequest { namespace, schedule, request_id, overlap } = request;
        let request_id = request_id.unwrap_or_else(random_id);
        let run = trigger_of(&schedule, &request_id);
        let once = Some(IdempotencyRecord::new(format!("trigger:{request_id}")));
        let trigger = TriggerSchedule { request_id, overlap, requested_by: context.caller };
        let view = self.change_schedule(&namespace, &schedule, Input { once, ..ScheduleInput::Trigger(trigger).into() }).await?;
        // The run is there when the reply is; a failure is repeated by the next tick.
        drop(self.deliver_outbox(&mut TickCounts::default()).await);
        let started = view.history.iter().find(|entry| entry.started.as_ref().is_some_and(|firing| firing.run == run));
        let outcome = match started.map(|entry| &entry.ended) {
            Some(Some(ended)) if ended.ending == Ending::Existed => TriggerOutcome::Existed,
            Some(_) => TriggerOutcome::Started,
            None if view.running.iter().any(|running| running.firing.run == run) => TriggerOutcome::Started,
            None if view.buffered.iter().any(|firing| firing.run == run) => TriggerOutcome::Buffered,
            // A repeat whose line has left the history.
            None if self.store().read_run(RunKey::new(namespace, run.clone()), None).await?.is_some() => TriggerOutcome::Started,
            None => TriggerOutcome::Skipped,
        };
        Ok(TriggerScheduleReply { run, outcome })
    }

    /// Starts runs for the slots of a past range.
    pub async fn backfill_schedule(
        &self,
        request: BackfillScheduleRequest,
        context: CallContext,
    ) -> Result<ScheduleView, RuntimeError> {
        let BackfillScheduleRequest { namespace, schedule, request_id, from, until, overlap } = request;
        let request_id = request_id.unwrap_or_else(random_id);
        let once = Some(IdempotencyRecord::new(format!("backfill:{request_id}")));
        let backfill = BackfillSchedule { request_id, from, until, overlap, requested_by: context.caller };
        self.change_schedule(&namespace, &schedule, Input { once, ..ScheduleInput::Backfill(backfill).into() }).await
    }

    /// Cancels backfills: slots that wait are skipped, and runs that were started continue.
    ///
    /// # Errors
    /// `schedule_invalid` if no such backfill is under way.
    pub async fn cancel_backfill(&self, request: CancelBackfillRequest) -> Result<ScheduleView, RuntimeError> {
        let CancelBackfillRequest { namespace, schedule, request_id } = request;
        self.change_schedule(&namespace, &schedule, ScheduleInput::CancelBackfill(CancelBackfill { request_id }).into()).await
    }

    /// Returns slots of a schedule, or of a specification that is not stored.
    pub async fn list_slots(&self, request: SlotsRequest) -> Result<SlotsReply, RuntimeError> {
        let SlotsRequest { namespace, schedule, spec, after, limit } = request;
        let spec = match (spec, &schedule) {
            (Some(spec), _) => spec,
            (None, Some(schedule)) => self.schedule_definition(&namespace, schedule).await?.spec,
            (None, None) => return Err(RuntimeError::RequestInvalid { why: "give a schedule or a specification".to_owned() }),
        };
        let after = after.unwrap_or_else(|| self.clock().now());
        let id = schedule.as_ref().map_or("-", Name::as_str);
        Ok(SlotsReply { slots: upcoming(&spec, id, after, limit).map_err(ScheduleRefusal::from)? })
    }

    /// Appends an input, and returns the schedule after it.
    async fn change_schedule(&self, namespace: &Namespace, schedule: &Name, input: Input) -> Result<ScheduleView, RuntimeError> {
        let (key, _) = self.find_schedule(namespace, schedule).await?;
        self.append_to_schedule(schedule, key, input).await?;
        self.view_schedule(namespace, schedule).await
    }

    async fn append_to_schedule(&self, schedule: &Name, key: RunKey, input: Input) -> Result<(), RuntimeError> {
        use onward_core::run::Refusal;
        match self.store().append_input(key, input).await {
            Ok(_) => Ok(()),
            Err(StoreError::RunNotFound { .. } | StoreError::Refused(Refusal::Closed { .. })) => Err(not_found(schedule)),
            Err(error) => Err(error.into()),
        }
    }
}

fn not_found(schedule: &Name) -> RuntimeError {
    RuntimeError::ScheduleNotFound { schedule: schedule.clone() }
}

fn random_id() -> Name {
    Name::new(format!("{:016x}", random_u64())).expect("hex digits are a name")
}

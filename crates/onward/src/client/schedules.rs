//! Schedules: storing, reading, pausing and triggering them.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use onward_core::api::{
    BackfillScheduleRequest, CancelBackfillRequest, PauseScheduleRequest, ScheduleQuery, ScheduleRequest, ScheduleView,
    SlotsRequest, TriggerOutcome, TriggerScheduleRequest, UpcomingSlot,
};
use onward_core::schedule::{Ending, HistoryEntry, Overlap, ScheduleSpec, run_of};
use onward_core::{ErrorCode, Failure, Name, Payload, RunId, RunKey, Timestamp};
use onward_runtime::{Client, ClientFuture, Outcome, RuntimeError};

use super::{Onward, RunHandle};
use crate::schedule::Schedule;
use crate::{Error, Result};

/// Longest time between two reads of a run that is not started yet.
const POLL_MAX: Duration = Duration::from_secs(1);

/// Shortest time between two such reads.
const POLL_MIN: Duration = Duration::from_millis(10);

impl Onward {
    /// Stores a schedule, or replaces the definition of the one with this id. An equal definition changes nothing.
    ///
    /// Over a server it needs the scopes `operate` and `start`; the runs are started in the name of this key.
    pub async fn put_schedule(&self, id: &str, schedule: Schedule) -> Result<ScheduleHandle, Error> {
        let handle = self.schedule(id)?;
        let put = schedule.put(self.namespace().clone(), handle.id.clone())?;
        self.call(self.inner.client.put_schedule(put)).await?;
        Ok(handle)
    }

    /// Returns a handle to a schedule, which need not exist.
    pub fn schedule(&self, id: &str) -> Result<ScheduleHandle, Error> {
        Ok(ScheduleHandle { onward: self.clone(), id: Name::new(id)? })
    }

    /// Lists the schedules, newest first, without their histories.
    pub async fn schedules(&self) -> Result<Vec<ScheduleView>, Error> {
        let mut query = ScheduleQuery { namespace: self.namespace().clone(), limit: 0, cursor: None };
        let mut schedules = Vec::new();
        loop {
            let page = self.call(self.inner.client.list_schedules(query.clone())).await?;
            schedules.extend(page.schedules);
            match page.next {
                Some(next) => query.cursor = Some(next),
                None => return Ok(schedules),
            }
        }
    }

    /// Returns the next slots of a specification that is not stored.
    pub async fn preview_slots(&self, spec: ScheduleSpec, count: usize) -> Result<Vec<UpcomingSlot>, Error> {
        let namespace = self.namespace().clone();
        let query = SlotsRequest { namespace, schedule: None, spec: Some(spec), after: None, limit: count };
        Ok(self.call(self.inner.client.list_slots(query)).await?.slots)
    }
}

/// A handle to one schedule. Cheap to clone.
#[derive(Clone)]
pub struct ScheduleHandle {
    onward: Onward,
    id: Name,
}

impl ScheduleHandle {
    pub fn id(&self) -> &str {
        self.id.as_str()
    }

    fn client(&self) -> &Arc<dyn Client> {
        &self.onward.inner.client
    }

    fn request(&self) -> ScheduleRequest {
        ScheduleRequest { namespace: self.onward.namespace().clone(), schedule: self.id.clone() }
    }

    fn note(&self, note: &str) -> PauseScheduleRequest {
        let ScheduleRequest { namespace, schedule } = self.request();
        PauseScheduleRequest { namespace, schedule, note: note.to_owned() }
    }

    /// Reads the schedule: its definition, its next slots, its running runs and the last lines of its history.
    pub async fn read(&self) -> Result<ScheduleView, Error> {
        self.onward.call(self.client().read_schedule(self.request())).await
    }

    /// Pauses the schedule: its slots are skipped until it is resumed.
    pub async fn pause(&self, note: &str) -> Result<ScheduleView, Error> {
        self.onward.call(self.client().pause_schedule(self.note(note))).await
    }

    /// Resumes the schedule; the slots of the pause stay skipped.
    pub async fn resume(&self, note: &str) -> Result<ScheduleView, Error> {
        self.onward.call(self.client().resume_schedule(self.note(note))).await
    }

    /// Starts a run at once, also while the schedule is paused. Awaiting the builder sends the request.
    pub fn trigger<O>(&self) -> Trigger<O> {
        Trigger { schedule: self.clone(), request_id: None, overlap: None, output: PhantomData }
    }

    /// Starts the slots from `from` on and before `until` that have no run yet, one after the other. Awaiting the builder sends
    /// the request, and returns the schedule while the runs are starting.
    pub fn backfill(&self, from: Timestamp, until: Timestamp) -> Backfill {
        let ScheduleRequest { namespace, schedule } = self.request();
        let request = BackfillScheduleRequest { namespace, schedule, request_id: None, from, until, overlap: None };
        Backfill { schedule: self.clone(), request, request_id: None }
    }

    /// Cancels the backfill with this id, or all backfills: slots that wait are skipped, and runs that were started continue.
    pub async fn cancel_backfill(&self, id: Option<&str>) -> Result<ScheduleView, Error> {
        let ScheduleRequest { namespace, schedule } = self.request();
        let request_id = id.map(Name::new).transpose()?;
        let request = CancelBackfillRequest { namespace, schedule, request_id };
        self.onward.call(self.client().cancel_backfill(request)).await
    }

    /// Returns the next slots, with the times at which they are due.
    pub async fn next_slots(&self, count: usize) -> Result<Vec<UpcomingSlot>, Error> {
        let ScheduleRequest { namespace, schedule } = self.request();
        let query = SlotsRequest { namespace, schedule: Some(schedule), spec: None, after: None, limit: count };
        Ok(self.onward.call(self.client().list_slots(query)).await?.slots)
    }

    /// Returns the handle of the run of a slot. [`RunHandle::result`] also waits for its start, if that was decided.
    pub fn run_at<O>(&self, slot: Timestamp) -> RunHandle<O> {
        self.run_of(run_of(&self.id, slot))
    }

    fn run_of<O>(&self, id: RunId) -> RunHandle<O> {
        let key = RunKey::new(self.onward.namespace().clone(), id);
        let outcome = outcome_of(self.client(), &key);
        RunHandle { onward: self.onward.clone(), key, outcome, output: PhantomData }
    }

    /// Deletes the schedule. Runs that it started continue.
    pub async fn delete(&self) -> Result<(), Error> {
        self.onward.call(self.client().delete_schedule(self.request())).await?;
        Ok(())
    }
}

/// A request for a run at once; see [`ScheduleHandle::trigger`].
#[must_use = "await it to start the run"]
pub struct Trigger<O> {
    schedule: ScheduleHandle,
    request_id: Option<String>,
    overlap: Option<Overlap>,
    output: PhantomData<fn() -> O>,
}

/// The run of a trigger, and whether it starts.
pub struct Triggered<O> {
    pub run: RunHandle<O>,
    pub outcome: TriggerOutcome,
}

impl<O> Trigger<O> {
    /// Sets an id under which the request is accepted once; the id of the run ends with it.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.request_id = Some(id.into());
        self
    }

    /// Sets what happens if a run is running; the default is the policy of the schedule.
    pub fn overlap(mut self, overlap: Overlap) -> Self {
        self.overlap = Some(overlap);
        self
    }

    async fn send(self) -> Result<Triggered<O>, Error> {
        let ScheduleRequest { namespace, schedule } = self.schedule.request();
        let request_id = self.request_id.map(Name::new).transpose()?;
        let request = TriggerScheduleRequest { namespace, schedule, request_id, overlap: self.overlap };
        let reply = self.schedule.onward.call(self.schedule.client().trigger_schedule(request)).await?;
        Ok(Triggered { run: self.schedule.run_of(reply.run), outcome: reply.outcome })
    }
}

awaitable!(Trigger<O> => Triggered<O>);

/// A request for past slots; see [`ScheduleHandle::backfill`].
#[must_use = "await it to start the runs"]
pub struct Backfill {
    schedule: ScheduleHandle,
    request: BackfillScheduleRequest,
    request_id: Option<String>,
}

impl Backfill {
    /// Sets an id under which the request is accepted once.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.request_id = Some(id.into());
        self
    }

    /// Sets what happens to a slot if a run is running; the default lets all slots wait.
    pub fn overlap(mut self, overlap: Overlap) -> Self {
        self.request.overlap = Some(overlap);
        self
    }

    async fn send(self) -> Result<ScheduleView, Error> {
        let request_id = self.request_id.map(Name::new).transpose()?;
        let request = BackfillScheduleRequest { request_id, ..self.request };
        self.schedule.onward.call(self.schedule.client().backfill_schedule(request)).await
    }
}

awaitable!(Backfill => ScheduleView);

/// Returns the outcome of a run that a schedule starts, by the form of its id; `None` for any other id.
pub(super) fn outcome_of(client: &Arc<dyn Client>, key: &RunKey) -> Option<Arc<dyn Outcome>> {
    let (schedule, _) = key.id.as_str().split_once('@')?;
    let schedule = ScheduleRequest { namespace: key.namespace.clone(), schedule: Name::new(schedule).ok()? };
    Some(Arc::new(ScheduledOutcome { client: client.clone(), schedule, key: key.clone() }))
}

/// The result of a run that a schedule starts: waits also for the start, which follows the decision. A run that no schedule starts
/// has its own result, and is missing as before.
struct ScheduledOutcome {
    client: Arc<dyn Client>,
    schedule: ScheduleRequest,
    key: RunKey,
}

impl ScheduledOutcome {
    async fn wait(&self) -> Result<Result<Payload, Failure>, RuntimeError> {
        let mut delay = POLL_MIN;
        loop {
            let first = self.client.wait_for_outcome(self.key.clone()).await;
            if !is_missing(&first) {
                return first;
            }
            let refused = match self.client.read_schedule(self.schedule.clone()).await {
                Ok(view) if self.is_expected(&view) => {
                    tokio::time::sleep(delay).await; // nothing announces the start of a run that does not exist
                    delay = (delay * 2).min(POLL_MAX);
                    continue;
                }
                Ok(view) => self.refusal(&view),
                Err(_) => None,
            };
            // The run may have started and ended since it was read.
            let last = self.client.wait_for_outcome(self.key.clone()).await;
            return if is_missing(&last) { refused.map_or(last, |failure| Ok(Err(failure))) } else { last };
        }
    }

    /// Returns true if the schedule has decided to start the run.
    fn is_expected(&self, view: &ScheduleView) -> bool {
        let mut firings = view.running.iter().map(|running| &running.firing).chain(&view.buffered);
        let slot = self.key.id.as_str().strip_prefix(view.schedule.as_str()).and_then(|rest| rest.strip_prefix('@'));
        let slot = slot.and_then(Timestamp::parse);
        firings.any(|firing| firing.run == self.key.id)
            || view.backfills.iter().any(|range| slot.is_some_and(|slot| range.after < slot && slot < range.until))
    }

    /// Returns the failure of a start that was refused, because of its template for example.
    fn refusal(&self, view: &ScheduleView) -> Option<Failure> {
        let is_it = |entry: &&HistoryEntry| entry.started.as_ref().is_some_and(|firing| firing.run == self.key.id);
        let ended = view.history.iter().rev().find(is_it)?.ended.as_ref().filter(|ended| ended.ending == Ending::Failed)?;
        let why = format!("schedule {} could not start run {}", self.schedule.schedule, self.key.id);
        Some(Failure::fatal(why).with_code(ended.code.as_deref().unwrap_or("failed")))
    }
}

fn is_missing<T>(result: &Result<T, RuntimeError>) -> bool {
    result.as_ref().is_err_and(|error| error.code() == ErrorCode::RunNotFound.as_str())
}

impl Outcome for ScheduledOutcome {
    fn outcome(&self) -> ClientFuture<'_, Result<Payload, Failure>> {
        Box::pin(self.wait())
    }
}

//! Schedules (`/v1/schedules`).

use std::collections::BTreeMap;

use onward_core::api::{
    BackfillScheduleRequest, CancelBackfillRequest, PauseScheduleRequest, PutScheduleRequest, ScheduleQuery, ScheduleRequest,
    ScheduleView, SlotsRequest, TriggerOutcome, TriggerScheduleRequest, UpcomingSlot, verb,
};
use onward_core::budget::{Budget, WrittenBudget};
use onward_core::schedule::{
    BackfillRange, Firing, HistoryEntry, Overlap, Paused, RunningFiring, ScheduleDefinition, ScheduleOptions, ScheduleSpec,
    ScheduleTarget, Totals,
};
use onward_core::{Name, Payload, RunId, Timestamp};

use super::attributes::{PlainValue, attributes};
use super::prelude::*;

bodies! {
    struct PutScheduleBody as PutSchedule {
        kind: String as Name,
        /// The input of the runs.
        input: Option<Box<RawValue>>,
        /// The texts of the input are templates in the language of flows, with the names `slot`, `schedule`, `run` and `cause`.
        #[serde(default)]
        template: bool,
        /// The version of the code; the current one at each start if absent.
        version: Option<String> as Option<Name>,
        #[serde(default)]
        attributes: BTreeMap<String, PlainValue> as Attributes,
        /// Time after which a run is canceled; time while it is paused does not count.
        deadline_ms: Option<u64>,
        /// The budget of each run.
        budget: Option<WrittenBudget>,
        spec: ScheduleSpec,
        #[serde(default)]
        options: OptionsBody,
        /// Also if no worker is known to have the kind.
        #[serde(default)]
        force: bool,
    }

    #[derive(Default)]
    struct OptionsBody as PutScheduleOptions {
        #[serde(default)]
        overlap: Overlap as Option<Overlap>,
        /// The age up to which a slot that was not started in time is started late; a day if absent.
        catch_up_ms: Option<u64>,
        /// Pause the schedule when a run fails.
        #[serde(default)]
        pause_on_failure: bool,
        /// The maximum number of waiting slots under `buffer_all`; 100 if absent.
        buffer_max: Option<u32>,
    }

    #[derive(Default)]
    struct NoteBody as ScheduleNote {
        #[serde(default)]
        note: String,
    }

    #[derive(Default)]
    struct TriggerBody as TriggerOptions {
        /// Idempotency key, and the end of the id of the run; random if absent.
        request_id: Option<String> as Option<Name>,
        /// The policy of the schedule if absent.
        overlap: Option<Overlap>,
    }

    struct BackfillBody as BackfillOptions {
        /// Idempotency key; random if absent.
        request_id: Option<String> as Option<Name>,
        /// The first time that can be a slot.
        from: Timestamp,
        /// Slots are before this time.
        until: Timestamp,
        /// `buffer_all` if absent.
        overlap: Option<Overlap>,
    }

    #[derive(Default)]
    struct CancelBackfillBody as CancelBackfillOptions {
        /// The id of the request that began the backfill; all backfills if absent.
        request_id: Option<String> as Option<Name>,
    }

    struct SlotsBody as PreviewSlots {
        spec: ScheduleSpec,
        /// Slots after this time; after now if absent.
        after: Option<Timestamp>,
        /// The number of slots; 10 if absent.
        #[serde(default)]
        limit: usize as Option<u32>,
    }
}

documents! {
    pub struct Schedule<'a>(view: &'a ScheduleView) {
        schedule: &'a Name = &view.schedule,
        kind: &'a Name = &view.definition.target.kind,
        input: &'a Payload = &view.definition.target.input,
        template: bool = view.definition.target.is_template,
        version: Option<&'a Name> = view.definition.target.version.as_ref(),
        attributes: BTreeMap<&'a Name, PlainValue> as Attributes =
            view.definition.target.attributes.iter().map(|of| (&of.name, of.value.clone().into())).collect(),
        deadline_ms: Option<u64> = view.definition.target.deadline_ms,
        /// The budget of each run.
        budget: Option<Budget> = view.definition.granted.as_ref().map(|granted| granted.limit),
        spec: &'a ScheduleSpec = &view.definition.spec,
        options: &'a ScheduleOptions = &view.definition.options,
        /// The name of the key that defined it; null without keys.
        requester: Option<&'a str> = view.definition.requester.as_deref(),
        /// The number of changes of the definition.
        revision: u32 = view.revision,
        created_at: Timestamp = view.created_at,
        updated_at: Timestamp = view.updated_at,
        paused: Option<&'a Paused> = view.paused.as_ref(),
        /// Runs that are running, oldest first.
        running: &'a [RunningFiring] = &view.running,
        /// Starts that wait for a run to end.
        waiting: &'a [Firing] = &view.buffered,
        backfills: &'a [BackfillRange] = &view.backfills,
        /// The last runs, and slots without one, oldest first; empty in lists.
        history: &'a [HistoryEntry] = &view.history,
        totals: &'a Totals = &view.totals,
        /// The next slots; empty while the schedule is paused.
        next: &'a [UpcomingSlot] = &view.next,
    }

    pub struct Schedules<'a> as ScheduleList {
        pub schedules: Vec<Schedule<'a>>,
        pub next: Option<String>,
    }

    pub struct Triggered<'a> as TriggeredRun {
        pub run: &'a RunId,
        pub outcome: TriggerOutcome,
    }

    pub struct Slots<'a> as SlotList {
        pub slots: &'a [UpcomingSlot],
    }
}

impl PutScheduleBody {
    fn definition(self) -> Result<(ScheduleDefinition, Option<Budget>, bool), Problem> {
        let target = ScheduleTarget {
            kind: Name::new(self.kind)?,
            input: payload(self.input),
            is_template: self.template,
            version: self.version.map(Name::new).transpose()?,
            attributes: attributes(self.attributes)?,
            deadline_ms: self.deadline_ms,
        };
        let OptionsBody { overlap, catch_up_ms, pause_on_failure, buffer_max } = self.options;
        let options = ScheduleOptions { overlap, catch_up_ms, pause_on_failure, buffer_max };
        let definition = ScheduleDefinition { target, spec: self.spec, options, requester: None, granted: None };
        Ok((definition, self.budget.map(Budget::from), self.force))
    }
}

fn schedule_of(request: &Request) -> Result<Name, Problem> {
    Ok(Name::new(request.id.as_deref().unwrap_or_default())?)
}

fn show_one(status: StatusCode, view: &ScheduleView) -> Response {
    json(status, &Schedule::from(view))
}

/// Handles `PUT /v1/schedules/{id}`.
pub(crate) async fn put(mut request: Request) -> Result<Response, Problem> {
    let (schedule, namespace) = (schedule_of(&request)?, request.by.namespace.clone());
    let (definition, budget, force) = request.json::<PutScheduleBody>().await?.definition()?;
    let put = PutScheduleRequest { namespace, schedule, definition, budget, force };
    let reply = request.execute::<verb::PutSchedule>(put).await?;
    Ok(show_one(if reply.created { StatusCode::CREATED } else { StatusCode::OK }, &reply.schedule))
}

/// Handles `GET /v1/schedules`.
pub(crate) async fn list(request: Request) -> Result<Response, Problem> {
    let cursor = request.query.get("cursor").map(str::to_owned);
    let query = ScheduleQuery { namespace: request.by.namespace.clone(), limit: request.query.limit()?, cursor };
    let page = request.execute::<verb::ListSchedules>(query).await?;
    Ok(json(StatusCode::OK, &Schedules { schedules: page.schedules.iter().map(Schedule::from).collect(), next: page.next }))
}

fn about(request: &Request) -> Result<ScheduleRequest, Problem> {
    Ok(ScheduleRequest { namespace: request.by.namespace.clone(), schedule: schedule_of(request)? })
}

/// Handles `GET /v1/schedules/{id}`.
pub(crate) async fn show(request: Request) -> Result<Response, Problem> {
    let about = about(&request)?;
    Ok(show_one(StatusCode::OK, &request.execute::<verb::ReadSchedule>(about).await?))
}

/// Handles `DELETE /v1/schedules/{id}`.
pub(crate) async fn remove(request: Request) -> Result<Response, Problem> {
    let about = about(&request)?;
    request.execute::<verb::DeleteSchedule>(about).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn note(request: &mut Request) -> Result<PauseScheduleRequest, Problem> {
    let ScheduleRequest { namespace, schedule } = about(request)?;
    let NoteBody { note } = request.json_or_default().await?;
    Ok(PauseScheduleRequest { namespace, schedule, note })
}

/// Handles `POST /v1/schedules/{id}/pause`.
pub(crate) async fn pause(mut request: Request) -> Result<Response, Problem> {
    let pause = note(&mut request).await?;
    Ok(show_one(StatusCode::OK, &request.execute::<verb::PauseSchedule>(pause).await?))
}

/// Handles `POST /v1/schedules/{id}/resume`.
pub(crate) async fn resume(mut request: Request) -> Result<Response, Problem> {
    let resume = note(&mut request).await?;
    Ok(show_one(StatusCode::OK, &request.execute::<verb::ResumeSchedule>(resume).await?))
}

/// Handles `POST /v1/schedules/{id}/trigger`.
pub(crate) async fn trigger(mut request: Request) -> Result<Response, Problem> {
    let ScheduleRequest { namespace, schedule } = about(&request)?;
    let TriggerBody { request_id, overlap } = request.json_or_default().await?;
    let request_id = request_id.map(Name::new).transpose()?;
    let trigger = TriggerScheduleRequest { namespace, schedule, request_id, overlap };
    let reply = request.execute::<verb::TriggerSchedule>(trigger).await?;
    Ok(json(StatusCode::ACCEPTED, &Triggered { run: &reply.run, outcome: reply.outcome }))
}

/// Handles `POST /v1/schedules/{id}/backfill`.
pub(crate) async fn backfill(mut request: Request) -> Result<Response, Problem> {
    let ScheduleRequest { namespace, schedule } = about(&request)?;
    let BackfillBody { request_id, from, until, overlap } = request.json().await?;
    let request_id = request_id.map(Name::new).transpose()?;
    let backfill = BackfillScheduleRequest { namespace, schedule, request_id, from, until, overlap };
    Ok(show_one(StatusCode::ACCEPTED, &request.execute::<verb::BackfillSchedule>(backfill).await?))
}

/// Handles `POST /v1/schedules/{id}/backfill/cancel`.
pub(crate) async fn cancel_backfill(mut request: Request) -> Result<Response, Problem> {
    let ScheduleRequest { namespace, schedule } = about(&request)?;
    let CancelBackfillBody { request_id } = request.json_or_default().await?;
    let cancel = CancelBackfillRequest { namespace, schedule, request_id: request_id.map(Name::new).transpose()? };
    Ok(show_one(StatusCode::OK, &request.execute::<verb::CancelBackfill>(cancel).await?))
}

/// Handles `GET /v1/schedules/{id}/slots`.
pub(crate) async fn slots(request: Request) -> Result<Response, Problem> {
    let ScheduleRequest { namespace, schedule } = about(&request)?;
    let (after, limit) = (request.query.time("after")?, request.query.limit()?);
    let query = SlotsRequest { namespace, schedule: Some(schedule), spec: None, after, limit };
    Ok(json(StatusCode::OK, &Slots { slots: &request.execute::<verb::ListSlots>(query).await?.slots }))
}

/// Handles `POST /v1/slots`: slots of a specification that is not stored.
pub(crate) async fn preview(mut request: Request) -> Result<Response, Problem> {
    let SlotsBody { spec, after, limit } = request.json().await?;
    let query = SlotsRequest { namespace: request.by.namespace.clone(), schedule: None, spec: Some(spec), after, limit };
    Ok(json(StatusCode::OK, &Slots { slots: &request.execute::<verb::ListSlots>(query).await?.slots }))
}

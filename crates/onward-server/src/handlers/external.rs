//! `/v1/external`: external runs, whose engines store their logs here.
//!
//! Their events and states are JSON that is not interpreted; it is returned as it was stored.

use onward_core::external::ExternalState;
use onward_core::{Event, Index, Name, Namespace, Payload, Record, RunId, RunKey, Status, Timestamp};
use onward_runtime::{AppendExternal, AppendedExternal, ExternalRun, Runtime, RuntimeError};

use super::attach::{self, Attach, Reading, Until};
use super::prelude::*;
use super::runs::{last_event_id, no_limit, wants_stream};
use crate::http::documents::LogPosition;
use crate::http::log_page::{Line, LogPage, PAGE_BYTES_MAX, RECORDS};
use crate::server::Server;

documents! {
    struct ExternalView<'a> as ExternalRun(run: &'a ExternalRun) {
        id: &'a RunId = &run.head.key.id,
        namespace: &'a Namespace = &run.head.key.namespace,
        kind: &'a Name = &run.head.kind,
        version: Option<&'a Name> = run.head.version.as_ref(),
        status: Status as SettableStatus = run.head.status,
        /// Index of its engine's next event.
        next_index: Index = run.next_index(),
        /// Data that its engine stored; null if it has only appended events.
        data: Option<Box<RawValue>> = run.state.as_ref().map(|state| raw(&state.data)),
        created_at: Timestamp = run.head.created_at,
        updated_at: Timestamp = run.head.updated_at,
        ended_at: Option<Timestamp> = run.head.ended_at,
    }

    /// Response to an append.
    struct ExternalAnswer<'a>(of: (&'a RunId, AppendedExternal)) {
        run: &'a RunId = of.0,
        /// Next index of the log after the append.
        next_index: Index = of.1.next_index,
        at: Timestamp = of.1.at,
        repeated: bool = of.1.repeated,
        created: bool = of.1.created,
    }

    /// Event of an external engine.
    struct ExternalEvent {
        /// Index as the engine counts.
        index: Index,
        at: Timestamp,
        event: Box<RawValue>,
    }

    /// Page of an external engine's log.
    struct ExternalEvents<'a> {
        run: &'a RunId,
        events: Vec<&'a RawValue> as Vec<ExternalEvent>,
        /// First index of the next page; null on the last page.
        next: Option<Index>,
        /// Index of the engine's next event.
        next_index: Index,
    }
}

pub(crate) async fn show(request: Request) -> Result<Response, Problem> {
    let run = request.server.runtime().read_external(&request.key()?).await?;
    Ok(json(StatusCode::OK, &ExternalView::from(&run)))
}

pub(crate) async fn delete(request: Request) -> Result<Response, Problem> {
    let reason = request.query.get("reason").unwrap_or_default();
    request.server.runtime().delete_external(&request.key()?, reason).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Returns a page of the engine's events, or attaches.
pub(crate) async fn events(request: Request) -> Result<Response, Problem> {
    let key = request.key()?;
    let from = Index(request.query.number("from")?.unwrap_or(0));
    let runtime = request.server.runtime();
    if wants_stream(&request.headers) {
        no_limit(&request)?;
        let from = last_event_id(&request.headers)?.map_or(from, |at| at.from);
        let at = runtime.find_external(&key, from).await?.at;
        let reading = Reading::External { from };
        let attach = Attach { key, generation: Some(0), from: at, until: Until::End, reading, pass: request.by.pass };
        return attach::attach(&request.server, attach).await;
    }
    let limit = request.query.limit()?;
    let position = runtime.find_external(&key, from).await?;
    let page = read(runtime, &key, position.at, from, limit).await?;
    let read_to = page.lines.last().map(|line| line.index.plus(1));
    let next_index = position.next_index.max(read_to.unwrap_or_default());
    let next = read_to.filter(|read_to| *read_to < next_index);
    let events: Vec<&RawValue> = page.lines.iter().map(|line| &*line.json).collect();
    Ok(json(StatusCode::OK, &ExternalEvents { run: &key.id, events, next, next_index }))
}

words! {
    /// Status that an external engine may set.
    #[derive(Deserialize)]
    enum SettableStatus as ExternalStatus {
        Running / "running",
        Waiting / "waiting",
        Completed / "completed",
        Failed / "failed",
        Canceled / "canceled",
    }
}

impl From<SettableStatus> for Status {
    fn from(status: SettableStatus) -> Status {
        match status {
            SettableStatus::Running => Status::Running,
            SettableStatus::Waiting => Status::Waiting,
            SettableStatus::Completed => Status::Completed,
            SettableStatus::Failed => Status::Failed,
            SettableStatus::Canceled => Status::Canceled,
        }
    }
}

bodies! {
    /// State of an external run, which replaces the previous state.
    struct StateBody as ExternalRunState {
        kind: String as Name,
        version: Option<String> as Option<Name>,
        status: SettableStatus,
        data: Option<Box<RawValue>>,
    }

    struct SetBody as SetExternal {
        kind: String as Name,
        version: Option<String> as Option<Name>,
        status: SettableStatus,
        data: Option<Box<RawValue>>,
        /// Index at which the log must end.
        expected_next_index: Option<u64>,
        /// Idempotency key: a repeat with the same id is the same write.
        append_id: Option<String> as Option<Name>,
    }

    struct AppendBody as AppendExternal {
        /// Index of the first event, at which the log must end.
        expected_next_index: u64,
        events: Vec<Box<RawValue>> as EventsToAppend,
        state: Option<StateBody>,
        /// Idempotency key: a repeat with the same id is the same append.
        append_id: Option<String> as Option<Name>,
    }
}

impl StateBody {
    fn read(self) -> Result<ExternalState, Problem> {
        let StateBody { kind, version, status, data } = self;
        let version = version.map(Name::new).transpose()?;
        Ok(ExternalState { kind: Name::new(kind)?, version, status: status.into(), data: payload(data) })
    }
}

/// Sets the state of an external run; creates the run if it does not exist.
pub(crate) async fn set_state(mut request: Request) -> Result<Response, Problem> {
    let key = request.key()?;
    let body: SetBody = request.json().await?;
    let SetBody { kind, version, status, data, expected_next_index, append_id } = body;
    let state = StateBody { kind, version, status, data }.read()?;
    let append = AppendExternal { expected: expected_next_index.map(Index), events: Vec::new(), state: Some(state), append_id };
    write(&request.server, &key, append).await
}

/// Appends events at the index that the engine expects, optionally with a new state.
pub(crate) async fn append(mut request: Request) -> Result<Response, Problem> {
    let key = request.key()?;
    let AppendBody { expected_next_index, events, state, append_id } = request.json().await?;
    if events.is_empty() {
        return Err(RequestError::JsonInvalid { why: "`events` is empty".to_owned() }.into());
    }
    let append = AppendExternal {
        expected: Some(Index(expected_next_index)),
        events: events.into_iter().map(|event| payload(Some(event))).collect(),
        state: state.map(StateBody::read).transpose()?,
        append_id,
    };
    write(&request.server, &key, append).await
}

async fn write(server: &Server, key: &RunKey, append: AppendExternal) -> Result<Response, Problem> {
    let appended = server.runtime().append_external(key, append).await?;
    let status = if appended.created { StatusCode::CREATED } else { StatusCode::OK };
    Ok(json(status, &ExternalAnswer::from((&key.id, appended))))
}

/// Reads up to `limit` of the engine's events from its index `from` on, starting at the run's event `at`. A short page does not
/// mean the end; an empty page does.
pub(crate) async fn read(runtime: &Runtime, key: &RunKey, at: Index, from: Index, limit: usize) -> Result<LogPage, RuntimeError> {
    let mut page = LogPage { lines: Vec::new(), next: None };
    let (mut at, mut bytes) = (at, 0);
    while page.lines.len() < limit && bytes < PAGE_BYTES_MAX {
        let records = runtime.read_log(key, None, at, RECORDS).await?;
        if records.is_empty() {
            break;
        }
        for record in &records {
            let (size, whole) = take(&mut page, record, from, limit);
            bytes += size;
            if !whole {
                break;
            }
            at = record.next_index();
        }
    }
    page.next = Some(LogPosition { generation: 0, from: at });
    Ok(page)
}

/// Adds a record's events to the page; returns their size, and whether all of them fit.
fn take(page: &mut LogPage, record: &Record, from: Index, limit: usize) -> (usize, bool) {
    let Some(Event::ExternalAppended(appended)) = record.events.first() else { return (0, true) };
    let mut bytes = 0;
    for (index, event) in appended.indexed().filter(|(index, _)| *index >= from) {
        if page.lines.len() >= limit {
            return (bytes, false);
        }
        let json = serde_json::value::to_raw_value(&ExternalEvent { index, at: record.at, event: raw(event) });
        let json = json.expect("events serialize");
        bytes += json.get().len();
        page.lines.push(Line { generation: 0, index, json });
    }
    (bytes, true)
}

/// Returns the engine's JSON as it was stored; a payload that is not JSON is returned as payloads are shown elsewhere.
fn raw(payload: &Payload) -> Box<RawValue> {
    let text = std::str::from_utf8(payload.data()).ok().filter(|_| payload.is_json());
    let raw = text.and_then(|text| RawValue::from_string(text.to_owned()).ok());
    raw.unwrap_or_else(|| serde_json::value::to_raw_value(payload).expect("payloads serialize"))
}

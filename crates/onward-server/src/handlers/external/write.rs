//! `PUT /v1/external/{id}` and `POST /v1/external/{id}/events`.

use axum::http::StatusCode;
use axum::response::Response;
use onward_core::external::ExternalState;
use onward_core::{Index, Name, RunKey, Status};
use onward_runtime::AppendExternal;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::http::documents::ExternalAnswer;
use crate::http::problem::{Problem, RequestError};
use crate::http::request::{Request, payload};
use crate::http::response::json;
use crate::server::Server;

/// Status of an external run.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Standing {
    Running,
    Waiting,
    Completed,
    Failed,
    Canceled,
}

impl From<Standing> for Status {
    fn from(standing: Standing) -> Status {
        match standing {
            Standing::Running => Status::Running,
            Standing::Waiting => Status::Waiting,
            Standing::Completed => Status::Completed,
            Standing::Failed => Status::Failed,
            Standing::Canceled => Status::Canceled,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StateBody {
    kind: String,
    version: Option<String>,
    status: Standing,
    data: Option<Box<RawValue>>,
}

impl StateBody {
    fn read(self) -> Result<ExternalState, Problem> {
        let StateBody { kind, version, status, data } = self;
        let version = version.map(Name::new).transpose()?;
        Ok(ExternalState { kind: Name::new(kind)?, version, status: status.into(), data: payload(data) })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SetBody {
    kind: String,
    version: Option<String>,
    status: Standing,
    data: Option<Box<RawValue>>,
    expected_next_index: Option<u64>,
    append_id: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AppendBody {
    expected_next_index: u64,
    events: Vec<Box<RawValue>>,
    state: Option<StateBody>,
    append_id: Option<String>,
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
    Ok(json(status, &ExternalAnswer::new(&key.id, &appended)))
}

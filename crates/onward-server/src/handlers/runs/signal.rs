//! `POST /v1/runs/{id}/signals`.

use axum::http::StatusCode;
use axum::response::Response;
use onward_core::Name;
use onward_runtime::SendSignal;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::http::documents::Answer;
use crate::http::problem::Problem;
use crate::http::request::{Request, payload};
use crate::http::response::json;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SignalBody {
    name: String,
    payload: Option<Box<RawValue>>,
    signal_id: Option<String>,
}

impl SignalBody {
    pub fn read(self) -> Result<SendSignal, Problem> {
        let name = Name::new(self.name)?;
        Ok(SendSignal { name, payload: payload(self.payload), signal_id: self.signal_id, sender: None })
    }
}

pub(crate) async fn signal(mut request: Request) -> Result<Response, Problem> {
    let key = request.key()?;
    let signal = request.json::<SignalBody>().await?.read()?;
    let (runtime, run) = (request.server.runtime().clone(), key.clone());
    let appended = request.carry_out(async move { runtime.signal_run(&run, signal).await }).await?;
    Ok(json(StatusCode::ACCEPTED, &Answer::new(&key.id, &appended)))
}

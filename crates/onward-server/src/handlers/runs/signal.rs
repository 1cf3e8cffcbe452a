//! `POST /v1/runs/{id}/signals`.

use axum::http::StatusCode;
use axum::response::Response;
use onward_core::Name;
use onward_core::api::{Signal, SignalRequest, verb};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::http::documents::Receipt;
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
    pub fn read(self) -> Result<Signal, Problem> {
        Ok(Signal { name: Name::new(self.name)?, payload: payload(self.payload), signal_id: self.signal_id })
    }
}

pub(crate) async fn signal(mut request: Request) -> Result<Response, Problem> {
    let run = request.key()?;
    let signal = request.json::<SignalBody>().await?.read()?;
    let appended = request.execute::<verb::SignalRun>(SignalRequest { run: run.clone(), signal }).await?;
    Ok(json(StatusCode::ACCEPTED, &Receipt::new(&run.id, &appended)))
}

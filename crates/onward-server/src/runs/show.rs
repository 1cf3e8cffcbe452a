//! `GET /v1/runs/{id}`.

use axum::http::StatusCode;
use axum::response::Response;

use crate::answer::json;
use crate::document::View;
use crate::problem::Problem;
use crate::request::Request;

pub(crate) async fn show(request: Request) -> Result<Response, Problem> {
    let view = request.server.runtime().read_run(&request.key()?).await?;
    Ok(json(StatusCode::OK, &View::from(&view)))
}

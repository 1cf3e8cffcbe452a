//! `GET /v1/runs/{id}`.

use axum::http::StatusCode;
use axum::response::Response;

use crate::answer::json;
use crate::document::View;
use crate::problem::Problem;
use crate::request::Request;

pub(crate) async fn show(request: Request) -> Result<Response, Problem> {
    let (runtime, key) = (request.server.runtime(), request.key()?);
    let view = runtime.read_run(&key).await?;
    let hindrances = match runtime.hindrances(&key).await {
        Err(error) if error.code() == "run_not_found" => Vec::new(), // it was deleted since
        found => found?,
    };
    Ok(json(StatusCode::OK, &View::from(&view).with(&hindrances)))
}

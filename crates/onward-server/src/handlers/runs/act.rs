//! Operations on a run: cancel, terminate, pause, resume, delete, and retry, fork and reset, which continue from a copy of a log.

use onward_core::api::{Appended, ForkRequest, ReasonRequest, Restored, ResumeRequest, RetryRequest, Verb, verb};
use onward_core::budget::{Budget, WrittenBudget};
use onward_core::{Index, Name, RunId, RunKey};

use crate::handlers::prelude::*;
use crate::http::documents::{Receipt, Run, StartedRun};
use crate::new_id;

bodies! {
    #[derive(Default)]
    struct ReasonBody as Reason {
        reason: Option<String> as Option<LongText>,
    }

    #[derive(Default)]
    struct ResumeBody as Resume {
        /// New limits, which replace the existing ones.
        budget: Option<WrittenBudget>,
    }

    #[derive(Default)]
    struct RetryBody as RetryRun {
        /// Idempotency key: a repeat with the same id is the same request.
        request_id: Option<String> as Option<Name>,
        reason: Option<String> as Option<LongText>,
        /// Execute calls again that failed with `outcome_unknown`.
        #[serde(default)]
        include_outcome_unknown: bool,
    }

    #[derive(Default)]
    struct CopyBody as CopyRun {
        /// Last event to copy, at the end of a commit; default: the last event.
        from: Option<u64>,
        /// Last event to copy, at the end of a commit; default: the last event.
        to: Option<u64>,
        /// Id of the new run; a repeat of the same fork returns it.
        id: Option<String> as Option<Name>,
        /// Generation to copy; default: the current one.
        generation: Option<u32>,
        /// Whether signals after the point are kept or dropped; default: kept.
        #[serde(default)]
        signals: LaterSignals,
        /// Whether children without a result at the point are awaited or restarted.
        children: Option<OpenChildren>,
        /// Version of the code; default: the version of the original.
        version: Option<String> as Option<Name>,
        reason: Option<String> as Option<LongText>,
        /// Accept that calls after the point whose outcome is unknown are executed again; otherwise such a request is refused with
        /// `outcome_unknown`.
        #[serde(default)]
        include_outcome_unknown: bool,
    }
}

words! {
    #[derive(Deserialize, Default)]
    enum LaterSignals as LaterSignals { #[default] Keep / "keep", Drop / "drop" }
}

words! {
    #[derive(Deserialize)]
    enum OpenChildren as OpenChildren { Await / "await", Restart / "restart" }
}

/// Handles `POST /v1/runs/{id}/resume`.
pub(crate) async fn resume(mut request: Request) -> Result<Response, Problem> {
    let run = request.key()?;
    let body: ResumeBody = request.json_or_default().await?;
    let resume = ResumeRequest { run: run.clone(), budget: body.budget.map(Budget::from) };
    let appended = request.execute::<verb::ResumeRun>(resume).await?;
    Ok(json(StatusCode::ACCEPTED, &Receipt::new(&run.id, &appended)))
}

/// Handles the routes of verbs that have a run, a reason and a receipt: cancel, terminate, pause.
pub(crate) async fn act<V: Verb<Request = ReasonRequest, Reply = Appended>>(mut request: Request) -> Result<Response, Problem> {
    let run = request.key()?;
    let body: ReasonBody = request.json_or_default().await?;
    let reason = body.reason.unwrap_or_default();
    let appended = request.execute::<V>(ReasonRequest { run: run.clone(), reason }).await?;
    Ok(json(StatusCode::ACCEPTED, &Receipt::new(&run.id, &appended)))
}

/// Handles `DELETE /v1/runs/{id}`.
pub(crate) async fn delete(request: Request) -> Result<Response, Problem> {
    let reason = request.query.get("reason").unwrap_or_default().to_owned();
    request.execute::<verb::DeleteRun>(ReasonRequest { run: request.key()?, reason }).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Handles `POST /v1/runs/{id}/retry`.
pub(crate) async fn retry(mut request: Request) -> Result<Response, Problem> {
    let run = request.key()?;
    let body: RetryBody = request.json_or_default().await?;
    let request_id = body.request_id.unwrap_or_else(new_id::request_id);
    let (reason, include_outcome_unknown) = (body.reason.unwrap_or_default(), body.include_outcome_unknown);
    let retry = RetryRequest { run, request_id, reason, include_outcome_unknown };
    Ok(answer(StatusCode::ACCEPTED, &request.execute::<verb::RetryRun>(retry).await?))
}

/// Handles `POST /v1/runs/{id}/fork`.
pub(crate) async fn fork(mut request: Request) -> Result<Response, Problem> {
    let body: CopyBody = request.json_or_default().await?;
    let from = only(body.from, "to", body.to)?;
    let fork = body.read(request.key()?, from, false)?;
    Ok(answer(StatusCode::CREATED, &request.execute::<verb::ForkRun>(fork).await?))
}

/// Handles `POST /v1/runs/{id}/reset`.
pub(crate) async fn reset(mut request: Request) -> Result<Response, Problem> {
    let body: CopyBody = request.json_or_default().await?;
    let to = only(body.to, "from", body.from)?;
    let fork = body.read(request.key()?, to, true)?;
    Ok(answer(StatusCode::CREATED, &request.execute::<verb::ResetRun>(fork).await?))
}

/// Refuses `to` in a fork and `from` in a reset: the caller may have confused the two verbs.
fn only(point: Option<u64>, other: &str, given: Option<u64>) -> Result<Option<u64>, RequestError> {
    match given {
        None => Ok(point),
        Some(_) => Err(RequestError::JsonInvalid { why: format!("unknown `{other}`; a fork has `from`, a reset `to`") }),
    }
}

impl CopyBody {
    fn read(self, run: RunKey, index: Option<u64>, is_reset: bool) -> Result<ForkRequest, Problem> {
        Ok(ForkRequest {
            id: self.id.map(RunId::new).transpose()?,
            generation: self.generation,
            index: index.map(Index),
            drop_signals: self.signals == LaterSignals::Drop,
            restart_children: self.children.map_or(is_reset, |children| children == OpenChildren::Restart),
            version: self.version.map(Name::new).transpose()?,
            reason: self.reason.unwrap_or_default(),
            include_outcome_unknown: self.include_outcome_unknown,
            ..ForkRequest::new(run, new_id::random_u64())
        })
    }
}

fn answer(created: StatusCode, restored: &Restored) -> Response {
    let status = if restored.created { created } else { StatusCode::OK };
    json(status, &StartedRun { run: Run::from(&restored.head), created: restored.created, signal: None })
}

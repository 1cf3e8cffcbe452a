//! Approvals, which people decide, and promises, which other systems resolve: each has one result.

use onward_core::api::{
    Decide, DecideRequest, FindPromiseReply, FindPromiseRequest, ResolveRequest, WaitQuery, WaitsReply, verb,
};
use onward_core::{Failure, Payload, RunId, RunKey};
use onward_runtime::CallRef;
use serde::Deserializer;

use super::prelude::*;
use crate::http::documents::{Approval, Approvals, Partly, Receipt};

/// Handles `GET /v1/approvals`.
pub(crate) async fn list(request: Request) -> Result<Response, Problem> {
    let runtime = request.server.runtime();
    let namespace = request.by.namespace.clone();
    let below = request.query.get("below");
    let run = below.or(request.query.get("run")).map(RunId::new).transpose()?.map(|id| RunKey::new(namespace.clone(), id));
    if let Some(key) = &run {
        runtime.read_head(key).await?; // fails if the run does not exist
    }
    let limit = request.query.limit()?;
    let query = WaitQuery { namespace, run, below: below.is_some(), limit, partly: true };
    let WaitsReply { waits, missing } = request.execute::<verb::ListApprovals>(query).await?;
    let approvals = Approvals { approvals: waits.iter().map(Approval::from).collect() };
    Ok(json(StatusCode::OK, &Partly::new(approvals, missing)))
}

bodies! {
    struct DecideBody as Decide {
        approved: bool,
        feedback: Option<String> as Option<LongText>,
        decided_by: Option<String> as Option<Name>,
        /// Idempotency key: a repeat with the same id is the same decision; another id is refused.
        decision_id: String as Name,
        /// The answer, if the approval has an `answer_schema`; only with `approved`.
        #[serde(default, deserialize_with = "present")]
        answer: Option<Box<RawValue>>,
    }

    /// Either a result or a failure.
    struct ResolveBody as Resolve {
        #[serde(default, deserialize_with = "present")]
        result: Option<Box<RawValue>>,
        failure: Option<FailureBody>,
        /// Idempotency key: a repeat with the same id is the same result; another id is refused.
        resolution_id: String as Name,
    }

    struct FailureBody as ResolveFailure {
        code: Option<String>,
        message: String,
        /// A retry may help; the code decides.
        #[serde(default)]
        retryable: bool,
        #[serde(default, deserialize_with = "present")]
        details: Option<Box<RawValue>>,
    }
}

/// Handles `POST /v1/approvals/{id}`.
pub(crate) async fn decide(mut request: Request) -> Result<Response, Problem> {
    let (namespace, call) = (request.by.namespace.clone(), request.call()?);
    let DecideBody { approved, feedback, decided_by, decision_id, answer } = request.json().await?;
    let answer = answer.map(|answer| payload(Some(answer)));
    let decide = Decide { approved, feedback, decided_by, decision_id, answer };
    let decided = DecideRequest { namespace, approval: call.to_string(), decide };
    let appended = request.execute::<verb::DecideApproval>(decided).await?;
    Ok(json(StatusCode::OK, &Receipt::new(&call.run.id, &appended)))
}

/// Returns `Some` for a field that is present, even if it is `null`.
pub(super) fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::deserialize(deserializer).map(Some)
}

impl FailureBody {
    fn read(self) -> Failure {
        let code = self.code.unwrap_or_else(|| "failed".to_owned());
        let failure = Failure { retryable: self.retryable, ..Failure::new(code, self.message) };
        match self.details {
            None => failure,
            details => failure.with_details(payload(details)),
        }
    }
}

/// Handles `POST /v1/promises/{id}`.
pub(crate) async fn resolve(request: Request) -> Result<Response, Problem> {
    let call = request.call()?;
    settle(request, call).await
}

/// Handles `GET /v1/promises/by-key/{id}`.
pub(crate) async fn find(request: Request) -> Result<Response, Problem> {
    let find = find_request(&request);
    Ok(json(StatusCode::OK, &request.execute::<verb::FindPromise>(find).await?))
}

/// Handles `POST /v1/promises/by-key/{id}`.
pub(crate) async fn resolve_by_key(request: Request) -> Result<Response, Problem> {
    let FindPromiseReply { promise } = request.execute::<verb::FindPromise>(find_request(&request)).await?;
    let call = CallRef::parse(&request.by.namespace, &promise)?;
    settle(request, call).await
}

fn find_request(request: &Request) -> FindPromiseRequest {
    FindPromiseRequest { namespace: request.by.namespace.clone(), key: request.id.clone().unwrap_or_default() }
}

async fn settle(mut request: Request, call: CallRef) -> Result<Response, Problem> {
    let ResolveBody { result, failure, resolution_id } = request.json().await?;
    let result: Result<Payload, Failure> = match (result, failure) {
        (Some(result), None) => Ok(payload(Some(result))),
        (None, Some(failure)) => Err(failure.read()),
        _ => return Err(RequestError::JsonInvalid { why: "send either `result` or `failure`".to_owned() }.into()),
    };
    let (namespace, promise) = (request.by.namespace.clone(), call.to_string());
    let resolved = ResolveRequest { namespace, promise, result, resolution_id };
    let appended = request.execute::<verb::ResolvePromise>(resolved).await?;
    Ok(json(StatusCode::OK, &Receipt::new(&call.run.id, &appended)))
}

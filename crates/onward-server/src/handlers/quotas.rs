//! Quotas of namespaces (`/v1/quotas`).
//!
//! The path names the namespace, so that an administrator of the server can read and set the quota of any. A key for one
//! namespace reads its own quota and sets none.

use onward_core::Namespace;
use onward_core::api::{PutQuotaRequest, QuotaRequest, verb};
use onward_core::queue::QueueRate;
use onward_core::quota::QuotaSettings;
use onward_core::spend::PicoDollars;

use super::prelude::*;
use super::queues::RateBody;
use crate::auth::Pass;

bodies! {
    struct QuotaBody as PutQuota {
        /// The number of open runs, standalone tasks included, at which callers and schedules start no further one.
        runs_open_max: Option<u64>,
        /// How many runs callers and schedules may start in a period.
        start_rate: Option<RateBody>,
        /// The maximum number of tasks that run at a time, over all queues.
        tasks_running_max: Option<u32>,
        /// The maximum size of one payload, in bytes.
        payload_bytes_max: Option<u64>,
        /// The recorded cost of a UTC day, in dollars, at which no further attempt with a cost begins.
        spend_per_day_max: Option<PicoDollars>,
    }
}

impl QuotaBody {
    fn settings(self) -> QuotaSettings {
        QuotaSettings {
            runs_open_max: self.runs_open_max,
            start_rate: self.start_rate.map(QueueRate::from),
            tasks_running_max: self.tasks_running_max,
            payload_bytes_max: self.payload_bytes_max,
            spend_per_day_max: self.spend_per_day_max,
            part: None,
        }
    }
}

/// Makes the namespace of the path that of the request, if the credential is valid there.
async fn enter(request: &mut Request) -> Result<Namespace, Problem> {
    let namespace = Namespace::new(request.id.as_deref().unwrap_or_default())?;
    if namespace != request.by.namespace {
        if let Some(pass) = &request.by.pass {
            let pass = Pass { namespace: namespace.clone(), ..pass.clone() };
            request.by.caller = pass.check(&request.server).await?;
            request.by.pass = Some(pass);
        }
        request.by.namespace = namespace.clone();
    }
    Ok(namespace)
}

/// Handles `GET /v1/quotas/{namespace}`.
pub(crate) async fn show(mut request: Request) -> Result<Response, Problem> {
    let namespace = enter(&mut request).await?;
    Ok(json(StatusCode::OK, &request.execute::<verb::ReadQuota>(QuotaRequest { namespace }).await?))
}

/// Handles `PUT /v1/quotas/{namespace}`.
pub(crate) async fn put(mut request: Request) -> Result<Response, Problem> {
    let namespace = enter(&mut request).await?;
    let settings = request.json::<QuotaBody>().await?.settings();
    Ok(json(StatusCode::OK, &request.execute::<verb::PutQuota>(PutQuotaRequest { namespace, settings }).await?))
}

/// Handles `DELETE /v1/quotas/{namespace}`.
pub(crate) async fn delete(mut request: Request) -> Result<Response, Problem> {
    let namespace = enter(&mut request).await?;
    request.execute::<verb::DeleteQuota>(QuotaRequest { namespace }).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

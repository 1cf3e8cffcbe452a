//! Queues: their tasks and workers, and their settings (`/v1/queues`).

use onward_core::Name;
use onward_core::api::{PutQueueRequest, QueueRequest, verb};
use onward_core::queue::settings::DEFAULT_QUEUE;
use onward_core::queue::{KeyWeight, QueueRate, QueueSettings};

use super::prelude::*;
use crate::http::documents::Queues;

bodies! {
    struct QueueBody as PutQueue {
        /// The maximum number of its tasks that run at a time.
        concurrency_max: Option<u32>,
        /// The maximum number of tasks of one key that run at a time.
        key_concurrency_max: Option<u32>,
        /// How many attempts of its tasks may begin in a period.
        rate: Option<RateBody>,
        /// How many attempts of tasks of one key may begin in a period.
        key_rate: Option<RateBody>,
        /// The number of waiting tasks at which it takes no further standalone task; 0 drains the queue.
        depth_max: Option<u64>,
        /// Hands out nothing.
        #[serde(default)]
        paused: bool,
        /// Keys with another weight than 1.
        #[serde(default)]
        weights: Vec<WeightBody>,
    }

    pub(crate) struct RateBody as Rate {
        starts_max: u32,
        period_ms: u64,
    }

    struct WeightBody as Weight {
        key: String as Name,
        /// The tasks that the key gets in each turn.
        weight: u32,
    }
}

impl From<RateBody> for QueueRate {
    fn from(body: RateBody) -> QueueRate {
        QueueRate { starts_max: body.starts_max, period_ms: body.period_ms }
    }
}

impl QueueBody {
    fn settings(self) -> Result<QueueSettings, Problem> {
        let weight = |body: WeightBody| Ok::<_, Problem>(KeyWeight { key: Name::new(body.key)?, weight: body.weight });
        Ok(QueueSettings {
            concurrency_max: self.concurrency_max,
            key_concurrency_max: self.key_concurrency_max,
            rate: self.rate.map(QueueRate::from),
            key_rate: self.key_rate.map(QueueRate::from),
            depth_max: self.depth_max,
            paused: self.paused,
            weights: self.weights.into_iter().map(weight).collect::<Result<_, _>>()?,
            part: None,
        })
    }
}

/// Returns the queue of the path; `default` is the default queue.
fn queue(request: &Request) -> Result<Option<Name>, Problem> {
    let name = Name::new(request.id.as_deref().unwrap_or_default())?;
    Ok(Some(name).filter(|name| *name != *DEFAULT_QUEUE))
}

/// Handles `GET /v1/queues`.
pub(crate) async fn list(request: Request) -> Result<Response, Problem> {
    let reply = request.execute::<verb::ListQueues>(request.by.namespace.clone().into()).await?;
    Ok(json(StatusCode::OK, &Queues::from((&*reply.queues, &*reply.settings))))
}

/// Handles `GET /v1/queues/{name}`.
pub(crate) async fn show(request: Request) -> Result<Response, Problem> {
    let (namespace, queue) = (request.by.namespace.clone(), queue(&request)?);
    Ok(json(StatusCode::OK, &request.execute::<verb::ReadQueue>(QueueRequest { namespace, queue }).await?))
}

/// Handles `PUT /v1/queues/{name}`.
pub(crate) async fn put(mut request: Request) -> Result<Response, Problem> {
    let (namespace, queue) = (request.by.namespace.clone(), queue(&request)?);
    let settings = request.json::<QueueBody>().await?.settings()?;
    Ok(json(StatusCode::OK, &request.execute::<verb::PutQueue>(PutQueueRequest { namespace, queue, settings }).await?))
}

/// Handles `DELETE /v1/queues/{name}`.
pub(crate) async fn delete(request: Request) -> Result<Response, Problem> {
    let (namespace, queue) = (request.by.namespace.clone(), queue(&request)?);
    request.execute::<verb::DeleteQueue>(QueueRequest { namespace, queue }).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

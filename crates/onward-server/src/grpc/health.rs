//! `grpc.health.v1`: readiness of this server, like `/readyz`, as a single check or a watch. Needs no key.
//!
//! The result is cached for a short time, so that unauthenticated clients cannot load the store.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::sync::{Mutex, mpsc};
use tokio::time::Instant;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use super::public::{ConnectionLimit, TimeLimit, method};
use crate::Server;
use crate::handlers::operations::readiness;

const CHECK: &str = "/grpc.health.v1.Health/Check";
const WATCH: &str = "/grpc.health.v1.Health/Watch";

/// Lifetime of the cached result, and interval at which watches read it.
const PAUSE: Duration = Duration::from_millis(500);

/// Service names that can be checked. All have the same status; the empty name is the whole server.
const SERVICES: [&str; 3] = ["", "onward.v1.Runs", "onward.v1.Workers"];

pub(super) fn routes(server: &Server, limit: &ConnectionLimit) -> Router {
    let service = HealthServer::new(Readiness { server: server.clone(), seen: Arc::default() });
    let check = method(server, limit, CHECK, TimeLimit::AtMost(server.limits().body_timeout), service.clone());
    Router::new().route(CHECK, check).route(WATCH, method(server, limit, WATCH, TimeLimit::Open, service))
}

#[derive(Clone)]
struct Readiness {
    server: Server,
    /// Time and result of the last check.
    seen: Arc<Mutex<Option<(Instant, ServingStatus)>>>,
}

impl Readiness {
    /// Returns the cached status or checks again; concurrent callers wait for the same check.
    async fn status(&self) -> ServingStatus {
        let mut seen = self.seen.lock().await;
        if let Some((at, status)) = *seen
            && at.elapsed() < PAUSE
        {
            return status;
        }
        let status = match readiness(&self.server).await {
            Ok(_) => ServingStatus::Serving,
            Err(_) => ServingStatus::NotServing,
        };
        *seen = Some((Instant::now(), status));
        status
    }

    /// Sends every change until the client is gone or the server closes.
    async fn send_changes(self, is_known: bool, replies: mpsc::Sender<Result<HealthCheckResponse, Status>>) {
        let mut last = None;
        loop {
            let status = if is_known { self.status().await } else { ServingStatus::ServiceUnknown };
            if last.replace(status) != Some(status) && replies.send(Ok(response(status))).await.is_err() {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(PAUSE) => {}
                () = replies.closed() => return,
                () = self.server.closed() => {
                    drop(replies.send(Ok(response(ServingStatus::NotServing))).await); // the client may be gone
                    return;
                }
            }
        }
    }
}

fn response(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status.into() }
}

#[tonic::async_trait]
impl Health for Readiness {
    async fn check(&self, request: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>, Status> {
        if !SERVICES.contains(&request.get_ref().service.as_str()) {
            return Err(Status::not_found("unknown service"));
        }
        Ok(Response::new(response(self.status().await)))
    }

    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    async fn watch(&self, request: Request<HealthCheckRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let (replies, responses) = mpsc::channel(1);
        let is_known = SERVICES.contains(&request.get_ref().service.as_str());
        tokio::spawn(self.clone().send_changes(is_known, replies));
        Ok(Response::new(Box::pin(ReceiverStream::new(responses))))
    }
}

//! gRPC services that need no key: health and reflection.
//!
//! Callers are unauthenticated, so the number of concurrent calls is limited and, where possible, their duration. Otherwise
//! unauthenticated clients could fill all connections with streams that are never idle (S25).

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, post};
use http_body::Frame;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep};
use tonic::codegen::Service;
use tonic::{Code, Status};

use super::line::refusal;
use super::refuse;
use crate::Server;

/// Maximum number of concurrent calls and streams of all these services.
const OPEN_MAX: usize = 64;

/// Maximum duration of a call.
#[derive(Clone, Copy)]
pub(super) enum TimeLimit {
    /// No time limit; only the number of calls is limited.
    Open,
    AtMost(Duration),
}

/// Permits that all calls share.
#[derive(Clone)]
pub(super) struct ConnectionLimit(Arc<Semaphore>);

impl ConnectionLimit {
    pub fn new() -> ConnectionLimit {
        ConnectionLimit(Arc::new(Semaphore::new(OPEN_MAX)))
    }
}

/// Serves one method of a service from another crate.
pub(super) fn method<S>(
    server: &Server,
    limit: &ConnectionLimit,
    path: &'static str,
    time_limit: TimeLimit,
    service: S,
) -> MethodRouter
where
    S: Service<Request, Response = axum::http::Response<tonic::body::Body>, Error = Infallible> + Clone + Send + Sync + 'static,
    S::Future: Send,
{
    let (server, limit) = (server.clone(), limit.clone());
    post(move |request: Request| async move {
        let response = answer(&limit, time_limit, service, request).await;
        server.metrics().call(path, refusal(&response).map_or(Code::Ok, |status| status.code()));
        response
    })
}

async fn answer<S>(limit: &ConnectionLimit, time_limit: TimeLimit, mut service: S, request: Request) -> Response
where
    S: Service<Request, Response = axum::http::Response<tonic::body::Body>, Error = Infallible>,
{
    let Ok(permit) = limit.0.clone().try_acquire_owned() else {
        return refuse(Status::resource_exhausted("too many calls of public services are open"));
    };
    let end = match time_limit {
        TimeLimit::Open => None,
        TimeLimit::AtMost(span) => Some(Instant::now() + span),
    };
    let answered = service.call(request);
    let answered = match end {
        None => answered.await,
        Some(end) => match tokio::time::timeout_at(end, answered).await {
            Ok(answered) => answered,
            Err(_) => return refuse(Status::deadline_exceeded("the request did not arrive in time")),
        },
    };
    let Ok(response) = answered;
    let end = end.map(|end| Box::pin(tokio::time::sleep_until(end)));
    response.map(|body| Body::new(LimitedBody { body: Body::new(body), end, _permit: permit })).into_response()
}

/// Response body that keeps its permit until it is sent, dropped or timed out.
struct LimitedBody {
    body: Body,
    end: Option<Pin<Box<Sleep>>>,
    _permit: OwnedSemaphorePermit,
}

impl http_body::Body for LimitedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Some(end) = &mut self.end
            && end.as_mut().poll(cx).is_ready()
        {
            self.end = None;
            self.body = Body::empty();
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", HeaderValue::from(Code::DeadlineExceeded as i32));
            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
        }
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}

#[cfg(test)]
mod tests;

//! Tests of the parent module.

use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use http_body_util::BodyExt;

use super::{ConnectionLimit, OPEN_MAX, TimeLimit, answer};

/// Service that sends headers at once and then nothing.
#[derive(Clone)]
struct Silent;

impl tonic::codegen::Service<Request> for Silent {
    type Response = axum::http::Response<tonic::body::Body>;
    type Error = std::convert::Infallible;
    type Future = std::future::Ready<Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Self::Error>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request) -> Self::Future {
        let (sender, receiver) = tokio::sync::mpsc::channel::<Result<_, std::convert::Infallible>>(1);
        std::mem::forget(sender);
        let body = Body::from_stream(tokio_stream::wrappers::ReceiverStream::<Result<Vec<u8>, _>>::new(receiver));
        std::future::ready(Ok(axum::http::Response::new(tonic::body::Body::new(body))))
    }
}

#[tokio::test]
async fn a_stream_that_need_not_last_ends_in_time_and_leaves_its_place() {
    let limit = ConnectionLimit::new();
    let time_limit = TimeLimit::AtMost(Duration::from_millis(20));
    let mut response = answer(&limit, time_limit, Silent, Request::new(Body::empty())).await;
    assert_eq!(limit.0.available_permits(), OPEN_MAX - 1);
    let last = response.body_mut().frame().await.unwrap().unwrap().into_trailers().unwrap();
    assert_eq!(last["grpc-status"], "4");
    drop(response);
    assert_eq!(limit.0.available_permits(), OPEN_MAX);
}

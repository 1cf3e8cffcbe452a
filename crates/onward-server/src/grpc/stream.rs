//! Streams over gRPC: the connection of a worker, and the values that a run emits.

use std::pin::pin;

use axum::extract::Request as HttpRequest;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use onward_runtime::RuntimeError;
use onward_store::StoreError;
use onward_wire::api::{Emitted, RunRequest};
use onward_wire::grpc::{CONNECT, Wire};
use onward_wire::worker::{Goodbye, ServerFrame, ServerFrames, WorkerFrame, WorkerFrames};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Status, Streaming};

use super::line::CallLog;
use super::problem::status_of;
use super::{MESSAGE_BYTES_MAX, StreamCall, admit, refuse};
use crate::Server;
use crate::auth::{self, Scope, bounds};
use crate::http::problem::RequestError;
use crate::verbs::may_see;

/// Capacity of the queue to the network, in messages.
const MESSAGES_MAX: usize = 2;

/// Returns the status for a message that can be decoded but is not valid.
fn invalid(why: &str) -> Status {
    status_of(&RequestError::MessageInvalid { why: why.to_owned() }.into())
}

type Sent<T> = ReceiverStream<Result<T, Status>>;

pub(super) async fn connect(server: Server, scope: Scope, request: HttpRequest) -> Response {
    let line = CallLog::begin(CONNECT, scope);
    let principal = match admit(&server, scope, request.headers()).await {
        Ok(admitted) => admitted,
        Err(status) => return line.end(&server, None, refuse(status)),
    };
    let (by, log_server) = (principal.caller.name.clone(), server.clone());
    let mut grpc =
        tonic::server::Grpc::new(Wire::<ServerFrames, WorkerFrames>::default()).max_decoding_message_size(MESSAGE_BYTES_MAX);
    let response = grpc.streaming(StreamCall { server, principal }, request).await.into_response();
    line.end(&log_server, by.as_deref(), response)
}

impl tonic::server::StreamingService<WorkerFrames> for StreamCall {
    type Response = ServerFrames;
    type ResponseStream = Sent<ServerFrames>;
    type Future = std::pin::Pin<Box<dyn Future<Output = Result<tonic::Response<Self::ResponseStream>, Status>> + Send>>;

    fn call(&mut self, request: Request<Streaming<WorkerFrames>>) -> Self::Future {
        let (server, principal) = (self.server.clone(), self.principal.clone());
        Box::pin(async move {
            let mut incoming = request.into_inner();
            let first = incoming.message().await?.ok_or_else(|| invalid("the stream ended before hello"))?;
            let mut frames = first.frames.into_iter();
            let Some(WorkerFrame::Hello(hello)) = frames.next() else {
                return Err(invalid("the first frame must be hello"));
            };
            let registered = server.sessions().register(server.runtime(), &principal, &hello).await;
            registered.map_err(|problem| status_of(&problem))?;
            let greeted = server.sessions().greet(server.runtime(), &principal, hello);
            let connection = greeted.map_err(|problem| status_of(&problem))?;
            let (sender, receiver) = mpsc::channel(MESSAGES_MAX);
            frames.for_each(|frame| connection.handle(frame));
            tokio::spawn(async move {
                // Returns the error if a message of the worker cannot be decoded.
                let up = async {
                    loop {
                        match incoming.message().await {
                            Ok(Some(message)) => message.frames.into_iter().for_each(|frame| connection.handle(frame)),
                            Ok(None) => return None,
                            Err(status) => return Some(status),
                        }
                    }
                };
                let down = async {
                    // Reserves capacity first, so that all frames that are ready go into one message.
                    while let Ok(permit) = sender.reserve().await {
                        let Some(frames) = connection.next().await else { return };
                        permit.send(Ok(ServerFrames { frames }));
                    }
                };
                let problem = tokio::select! {
                    refused = up => {
                        drop(refused.map(|status| sender.try_send(Err(status)))); // the worker may be gone
                        return;
                    }
                    () = down => return,
                    () = connection.over() => return,
                    () = server.closed() => {
                        let goodbye = ServerFrames { frames: vec![ServerFrame::Goodbye(Goodbye {})] };
                        drop(sender.try_send(Ok(goodbye))); // a worker that does not read notices the closed stream
                        return;
                    }
                    problem = auth::ended(principal.pass.as_ref(), &server) => problem,
                };
                // Dropped if the worker does not read.
                drop(sender.try_send(Err(status_of(&problem))));
                // A worker with an invalid key does not reconnect, so its session ends. An unreadable key file may be readable
                // again soon.
                if problem.status != StatusCode::SERVICE_UNAVAILABLE {
                    connection.end().await;
                }
            });
            Ok(tonic::Response::new(ReceiverStream::new(receiver)))
        })
    }
}

pub(super) async fn listen(server: Server, scope: Scope, request: HttpRequest) -> Response {
    let principal = match admit(&server, scope, request.headers()).await {
        Ok(admitted) => admitted,
        Err(status) => return refuse(status),
    };
    let mut grpc = tonic::server::Grpc::new(Wire::<Emitted, RunRequest>::default());
    grpc.server_streaming(StreamCall { server, principal }, request).await.into_response()
}

impl tonic::server::ServerStreamingService<RunRequest> for StreamCall {
    type Response = Emitted;
    type ResponseStream = Sent<Emitted>;
    type Future = std::pin::Pin<Box<dyn Future<Output = Result<tonic::Response<Self::ResponseStream>, Status>> + Send>>;

    fn call(&mut self, request: Request<RunRequest>) -> Self::Future {
        let (server, principal) = (self.server.clone(), self.principal.clone());
        Box::pin(async move {
            let key = request.into_inner().run;
            if key.namespace != principal.namespace {
                return Err(status_of(&RuntimeError::from(StoreError::RunNotFound { key }).into()));
            }
            let checked = bounds::check_existing(&server, &principal.caller, &key).await; // BK1
            checked.map_err(|problem| status_of(&problem))?;
            let mut emitted = server.runtime().listen(&key);
            let (sender, receiver) = mpsc::channel(MESSAGES_MAX);
            tokio::spawn(async move {
                let mut ended = pin!(auth::ended(principal.pass.as_ref(), &server));
                loop {
                    let value = tokio::select! {
                        value = emitted.recv() => value,
                        () = sender.closed() => return,
                        () = server.closed() => return,
                        problem = &mut ended => {
                            drop(sender.try_send(Err(status_of(&problem)))); // dropped if the caller does not read
                            return;
                        }
                    };
                    match value {
                        Ok(emitted) => {
                            if may_see(&server, &principal, &key, &emitted).await && sender.send(Ok(emitted)).await.is_err() {
                                return;
                            }
                        }
                        // A slow listener misses values; they are not recorded anywhere.
                        Err(RecvError::Lagged(_)) => {}
                        Err(RecvError::Closed) => return,
                    }
                }
            });
            Ok(tonic::Response::new(ReceiverStream::new(receiver)))
        })
    }
}

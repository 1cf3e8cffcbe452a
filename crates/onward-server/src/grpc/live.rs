//! The live view of a run over gRPC.

use std::pin::pin;

use axum::extract::Request as HttpRequest;
use axum::response::{IntoResponse, Response};
use onward_core::live::LiveFrame;
use onward_wire::api::WatchRequest;
use onward_wire::grpc::{WATCH, Wire};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Status};

use super::line::CallLog;
use super::problem::status_of;
use super::{MESSAGE_BYTES_MAX, StreamCall, admit, refuse};
use crate::Server;
use crate::auth::{self, Pass, Scope};
use crate::verbs::LiveView;

/// Capacity of the queue to the network, in messages.
const MESSAGES_MAX: usize = 16;

type Sent = Result<LiveFrame, Status>;

pub(super) async fn watch(server: Server, scope: Scope, request: HttpRequest) -> Response {
    let line = CallLog::begin(WATCH, scope);
    let principal = match admit(&server, scope, request.headers()).await {
        Ok(admitted) => admitted,
        Err(status) => return line.end(&server, None, refuse(status)),
    };
    let (by, log_server) = (principal.caller.name.clone(), server.clone());
    let mut grpc =
        tonic::server::Grpc::new(Wire::<LiveFrame, WatchRequest>::default()).max_encoding_message_size(MESSAGE_BYTES_MAX);
    let response = grpc.server_streaming(StreamCall { server, principal }, request).await.into_response();
    line.end(&log_server, by.as_deref(), response)
}

impl tonic::server::ServerStreamingService<WatchRequest> for StreamCall {
    type Response = LiveFrame;
    type ResponseStream = ReceiverStream<Sent>;
    type Future = std::pin::Pin<Box<dyn Future<Output = Result<tonic::Response<Self::ResponseStream>, Status>> + Send>>;

    fn call(&mut self, request: Request<WatchRequest>) -> Self::Future {
        let (server, principal) = (self.server.clone(), self.principal.clone());
        Box::pin(async move {
            let view = LiveView::open(&server, &principal, request.into_inner()).await;
            let view = view.map_err(|problem| status_of(&problem))?;
            let (sender, receiver) = mpsc::channel(MESSAGES_MAX);
            tokio::spawn(send(server, principal.pass, view, sender));
            Ok(tonic::Response::new(ReceiverStream::new(receiver)))
        })
    }
}

/// Sends frames until the run has ended, the credential is no longer valid, or the reader is gone or too slow. A reader that is
/// too slow continues after the last event that it got.
async fn send(server: Server, pass: Option<Pass>, mut view: LiveView, sender: mpsc::Sender<Sent>) {
    let mut ended = pin!(auth::ended(pass.as_ref(), &server));
    loop {
        let frame = tokio::select! {
            frame = view.next() => frame,
            () = sender.closed() => return,
            () = server.closed() => return,
            problem = &mut ended => Err(problem),
        };
        let sent = match frame {
            Ok(Some(frame)) => Ok(frame),
            Ok(None) => return,
            Err(problem) => Err(status_of(&problem)),
        };
        let is_over = sent.is_err();
        let sending = tokio::time::timeout(server.limits().slow_reader_timeout, sender.send(sent));
        if is_over | !matches!(sending.await, Ok(Ok(()))) {
            return;
        }
    }
}

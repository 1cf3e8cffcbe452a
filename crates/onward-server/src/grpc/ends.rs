//! Results of many runs over one stream, so that a caller that awaits thousands does not need a stream for each.
//!
//! A run is awaited until it has ended, the caller forgets it, or the stream ends. Each request for a run gets at most one reply.

use std::collections::BTreeMap;
use std::pin::Pin;

use axum::extract::Request as HttpRequest;
use axum::response::{IntoResponse, Response};
use onward_core::{Failure, Namespace, Payload, RunKey};
use onward_runtime::RuntimeError;
use onward_store::StoreError;
use onward_wire::ends::{AwaitFrame, End, EndsFrame};
use onward_wire::grpc::{AWAIT_ENDS, Wire};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Status, Streaming};

use super::line::CallLog;
use super::problem::{of_problem, status_of};
use super::{MESSAGE_BYTES_MAX, StreamCall, admit, refuse};
use crate::Server;
use crate::auth::{self, Scope};
use crate::http::diagnosis;
use crate::http::problem::RequestError;

/// Maximum number of runs that one stream may await.
const AWAITED_MAX: usize = 100_000;

/// Capacity of the queue to the network, in messages.
const MESSAGES_MAX: usize = 2;

/// Size of results after which a message ends.
const MESSAGE_BYTES: usize = 4 * 1024 * 1024;

type Outcome = Result<Result<Payload, Failure>, RuntimeError>;
type Sent = Result<EndsFrame, Status>;

pub(super) async fn await_ends(server: Server, scope: Scope, request: HttpRequest) -> Response {
    let line = CallLog::begin(AWAIT_ENDS, scope);
    let principal = match admit(&server, scope, request.headers()).await {
        Ok(admitted) => admitted,
        Err(status) => return line.end(&server, None, refuse(status)),
    };
    let (by, log_server) = (principal.caller.name.clone(), server.clone());
    let mut grpc =
        tonic::server::Grpc::new(Wire::<EndsFrame, AwaitFrame>::default()).max_decoding_message_size(MESSAGE_BYTES_MAX);
    let response = grpc.streaming(StreamCall { server, principal }, request).await.into_response();
    line.end(&log_server, by.as_deref(), response)
}

impl tonic::server::StreamingService<AwaitFrame> for StreamCall {
    type Response = EndsFrame;
    type ResponseStream = ReceiverStream<Sent>;
    type Future = Pin<Box<dyn Future<Output = Result<tonic::Response<Self::ResponseStream>, Status>> + Send>>;

    fn call(&mut self, request: Request<Streaming<AwaitFrame>>) -> Self::Future {
        let (server, principal) = (self.server.clone(), self.principal.clone());
        let (sender, receiver) = mpsc::channel(MESSAGES_MAX);
        tokio::spawn(async move {
            let awaited = Awaited { server: server.clone(), namespace: principal.namespace.clone(), runs: BTreeMap::new() };
            let problem = tokio::select! {
                () = awaited.serve(request.into_inner(), &sender) => return,
                () = sender.closed() => return,
                () = server.closed() => return, // the caller reconnects to another server, or to this one later
                problem = auth::ended(principal.pass.as_ref(), &server) => problem,
            };
            drop(sender.try_send(Err(status_of(&problem)))); // dropped if the caller does not read
        });
        Box::pin(async move { Ok(tonic::Response::new(ReceiverStream::new(receiver))) })
    }
}

/// Runs that one stream awaits.
struct Awaited {
    server: Server,
    namespace: Namespace,
    runs: BTreeMap<RunKey, AbortHandle>,
}

impl Awaited {
    async fn serve(mut self, mut incoming: Streaming<AwaitFrame>, sender: &mpsc::Sender<Sent>) {
        let mut waits = JoinSet::new();
        loop {
            let ends = tokio::select! {
                frame = incoming.message() => match frame {
                    Ok(Some(frame)) => self.take(frame, &mut waits),
                    Ok(None) | Err(_) => return,
                },
                Some(first) = waits.join_next() => self.collect(first, &mut waits),
            };
            if !ends.is_empty() && sender.send(Ok(EndsFrame { ends })).await.is_err() {
                return;
            }
        }
    }

    /// Starts and stops waiting for the runs that a frame names; returns the ones that are refused at once.
    fn take(&mut self, frame: AwaitFrame, waits: &mut JoinSet<(RunKey, Outcome)>) -> Vec<End> {
        for run in frame.forget {
            if let Some(wait) = self.runs.remove(&run) {
                wait.abort();
            }
        }
        let mut refused = Vec::new();
        for run in frame.runs {
            if run.namespace != self.namespace {
                refused.push(end(run.clone(), Err(StoreError::RunNotFound { key: run }.into()))); // S6
            } else if self.runs.len() >= AWAITED_MAX {
                let why = format!("this stream awaits {AWAITED_MAX} runs already");
                let problem = of_problem(&RequestError::NotReady { why }.into());
                refused.push(End { run, outcome: None, problem: Some(problem) });
            } else if !self.runs.contains_key(&run) {
                let (runtime, key) = (self.server.runtime().clone(), run.clone());
                let wait = waits.spawn(async move { (key.clone(), runtime.wait_for_outcome(&key).await) });
                self.runs.insert(run, wait);
            }
        }
        refused
    }

    /// Collects the run that has ended and others that have ended meanwhile, up to the size of a message.
    fn collect(&mut self, first: Result<(RunKey, Outcome), JoinError>, waits: &mut JoinSet<(RunKey, Outcome)>) -> Vec<End> {
        let (mut ends, mut bytes, mut next) = (Vec::new(), 0, Some(first));
        while let Some(done) = next {
            // A forgotten run gets no reply.
            if let Ok((run, outcome)) = done
                && self.runs.remove(&run).is_some()
            {
                bytes += outcome.as_ref().map_or(0, size);
                ends.push(end(run, outcome));
            }
            next = if bytes < MESSAGE_BYTES { waits.try_join_next() } else { None };
        }
        ends
    }
}

fn end(run: RunKey, outcome: Outcome) -> End {
    match outcome {
        Ok(mut outcome) => {
            diagnosis::hide_in_outcome(&mut outcome); // DG1
            End { run, outcome: Some(outcome), problem: None }
        }
        Err(error) => End { run, outcome: None, problem: Some(of_problem(&error.into())) },
    }
}

fn size(outcome: &Result<Payload, Failure>) -> usize {
    const FAILURE: usize = 64 * 1024;
    outcome.as_ref().map_or(FAILURE, |output| output.data().len())
}

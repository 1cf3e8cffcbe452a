//! The gRPC API: the verbs of the HTTP API, and the streams of workers.
//!
//! Every method has its scope in one table ([`METHODS`]). Messages are those of `onward-wire`; an error is in the details of the
//! status. Health and reflection are public. Makes no decisions about runs.

mod calls;
mod drive;
mod ends;
mod entries;
mod health;
mod line;
pub(crate) mod problem;
mod public;
mod reflection;
mod stream;
mod tasks;

use std::sync::Arc;

use axum::Router;
use axum::extract::Request as HttpRequest;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, post};
use onward_wire::api;
use onward_wire::grpc::{AWAIT_ENDS, CONNECT, LISTEN, Wire};
use tokio::sync::oneshot;
use tonic::{Request, Status};

use crate::auth::{Caller, Pass, Scope};
use crate::http::problem::RequestError;
use crate::{Problem, Server, http::request};
use line::Line;
use problem::status_of;

/// Maximum size of a message: some payloads of the largest size and their envelope.
const MESSAGE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Caller and namespace of a request.
#[derive(Debug, Clone)]
pub(crate) struct Asker {
    pub namespace: onward_core::Namespace,
    pub caller: Caller,
    pub pass: Pass,
}

/// One method: its path, its scope and its handler.
pub struct Method {
    /// `/onward.v1.Service/Method`.
    pub path: &'static str,
    pub scope: Scope,
    serve: fn(Server, Scope) -> MethodRouter,
}

macro_rules! unary {
    ($method:ident, $scope:ident, $call:ident) => {
        unary!($method, $scope, calls::$call)
    };
    ($method:ident, $scope:ident, $module:ident :: $call:ident) => {
        Method {
            path: <api::$method as onward_wire::grpc::Method>::PATH,
            scope: Scope::$scope,
            serve: |server, scope| unary::<api::$method, _>(server, scope, $module::$call),
        }
    };
}

/// All methods.
pub static METHODS: &[Method] = &[
    unary!(StartRun, Start, start_run),
    unary!(ReadRun, Read, read_run),
    unary!(StartTask, Start, tasks::start_task),
    unary!(ReadTask, Read, tasks::read_task),
    unary!(CancelTask, Operate, tasks::cancel_task),
    unary!(PendingReason, Read, why_pending),
    unary!(ReadBlockedOn, Read, read_blocked_on),
    unary!(ListDeleted, Read, list_deleted),
    unary!(ReadLog, Read, read_log),
    unary!(ReadEntries, Read, entries::read_entries),
    unary!(AppendEntry, Signal, entries::append_entry),
    unary!(BranchRun, Signal, entries::branch_run),
    unary!(SendMessage, Signal, entries::send_message),
    unary!(PutAttachment, Signal, entries::put_attachment),
    unary!(ResumeAgent, Work, drive::resume_agent),
    unary!(WatchRun, Read, watch_run),
    unary!(ReadStream, Read, read_stream),
    unary!(ListRuns, Read, list_runs),
    unary!(ListVersions, Read, list_versions),
    unary!(ReadSpend, Read, read_spend),
    unary!(SignalRun, Signal, signal_run),
    unary!(CancelRun, Operate, cancel_run),
    unary!(TerminateRun, Operate, terminate_run),
    unary!(PauseRun, Operate, pause_run),
    unary!(ResumeRun, Operate, resume_run),
    unary!(RetryRun, Operate, retry_run),
    unary!(ForkRun, Operate, fork_run),
    unary!(ResetRun, Operate, reset_run),
    unary!(BulkRuns, Operate, bulk_runs),
    unary!(BulkDelete, Admin, bulk_delete),
    unary!(DeleteRun, Admin, delete_run),
    unary!(UpdateRun, Signal, update_run),
    unary!(QueryRun, Read, query_run),
    unary!(ListApprovals, Read, list_approvals),
    unary!(DriveRun, Work, drive::drive_run),
    unary!(DecideApproval, Approve, decide_approval),
    unary!(ResolvePromise, Signal, resolve_promise),
    unary!(ListWorkers, Read, list_workers),
    unary!(ListQuarantined, Read, list_quarantined),
    unary!(RetryTask, Operate, tasks::retry_task),
    unary!(ListQueues, Read, tasks::list_queues),
    Method {
        path: LISTEN,
        scope: Scope::Read,
        serve: |server, scope| post(move |request: HttpRequest| stream::listen(server.clone(), scope, request)),
    },
    Method {
        path: AWAIT_ENDS,
        scope: Scope::Read,
        serve: |server, scope| post(move |request: HttpRequest| ends::await_ends(server.clone(), scope, request)),
    },
    Method {
        path: CONNECT,
        scope: Scope::Work,
        serve: |server, scope| post(move |request: HttpRequest| stream::connect(server.clone(), scope, request)),
    },
];

/// Returns the gRPC services, to be served beside HTTP ([`crate::router_with`]).
pub fn grpc(server: &Server) -> Router {
    let limit = public::ConnectionLimit::new();
    let public = health::routes(server, &limit).merge(reflection::routes(server, &limit));
    METHODS.iter().fold(public, |router, method| router.route(method.path, (method.serve)(server.clone(), method.scope)))
}

/// Serves one method; checks the credential first.
fn unary<M: onward_wire::grpc::Method, Fut>(
    server: Server,
    scope: Scope,
    call: fn(Server, Asker, M::Request) -> Fut,
) -> MethodRouter
where
    Fut: Future<Output = Result<M::Reply, Status>> + Send + 'static,
{
    post(move |request: HttpRequest| async move {
        let line = Line::begin(M::PATH, scope);
        let asker = match admit(&server, scope, request.headers()).await {
            Ok(asker) => asker,
            Err(status) => return line.end(&server, None, refuse(status)),
        };
        let (pass, by) = (asker.pass.clone(), asker.caller.name.clone());
        let (arrived, came) = oneshot::channel();
        let service = Call { server: server.clone(), asker, arrived: Some(arrived), call };
        let mut grpc = tonic::server::Grpc::new(Wire::<M::Reply, M::Request>::default())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        let response = tokio::select! {
            biased;
            response = grpc.unary(service, request) => response.into_response(),
            problem = pass.ended(&server) => refuse(status_of(&problem)),
            problem = too_slow(&server, came) => refuse(status_of(&problem)),
        };
        line.end(&server, by.as_deref(), response)
    })
}

/// Returns if the message does not arrive in time; processing it may take longer.
async fn too_slow(server: &Server, came: oneshot::Receiver<()>) -> Problem {
    let timeout = server.limits().body_timeout;
    match tokio::time::timeout(timeout, came).await {
        Err(_) => RequestError::BodyTooSlow { seconds: timeout.as_secs() }.into(),
        Ok(_) => std::future::pending().await,
    }
}

struct Call<Q, Fut> {
    server: Server,
    asker: Asker,
    /// Notified when the message has arrived.
    arrived: Option<oneshot::Sender<()>>,
    call: fn(Server, Asker, Q) -> Fut,
}

impl<Q, R, Fut> tonic::server::UnaryService<Q> for Call<Q, Fut>
where
    Fut: Future<Output = Result<R, Status>> + Send + 'static,
    R: Send + 'static,
{
    type Response = R;
    type Future = std::pin::Pin<Box<dyn Future<Output = Result<tonic::Response<R>, Status>> + Send>>;

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let _ = self.arrived.take().map(|arrived| arrived.send(()));
        let answered = (self.call)(self.server.clone(), self.asker.clone(), request.into_inner());
        Box::pin(async move { answered.await.map(tonic::Response::new) })
    }
}

/// Checks that the caller has `scope` in the namespace of the request.
async fn admit(server: &Server, scope: Scope, headers: &axum::http::HeaderMap) -> Result<Asker, Status> {
    let namespace = request::namespace(server, headers).map_err(|problem| status_of(&problem))?;
    let pass = Pass { scope, namespace: namespace.clone(), server_wide: false, headers: Arc::new(headers.clone()) };
    let caller = pass.check(server).await.map_err(|refusal| status_of(&refusal.into()))?;
    Ok(Asker { namespace, caller, pass })
}

/// Returns the response to a call that was refused before it began.
fn refuse(status: Status) -> Response {
    status.into_http::<axum::body::Body>().into_response()
}

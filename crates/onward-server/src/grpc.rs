//! The gRPC door: the same verbs as over HTTP, and the workers' streams.
//!
//! Every method names the scope it needs in one table ([`methods`]). Messages are those of `onward-wire`; a refusal travels in the
//! details of the status. Must never decide.

mod calls;
pub(crate) mod problem;
mod stream;

use axum::Router;
use axum::extract::Request as HttpRequest;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use onward_wire::api;
use onward_wire::grpc::{CONNECT, LISTEN, Method, Wire};
use tonic::{Request, Status};

use crate::Server;
use crate::auth::{Ask, Caller, Scope};
use crate::request;
use problem::status_of;

/// The largest message that is taken: some payloads of the largest size, and room around them.
const MESSAGE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Who asks, and about which namespace.
#[derive(Debug, Clone)]
pub(crate) struct Asker {
    pub namespace: onward_core::Namespace,
    pub caller: Caller,
}

/// The gRPC services, to be served beside HTTP ([`crate::router_with`]).
pub fn grpc(server: &Server) -> Router {
    let connecting = server.clone();
    methods(Router::new(), server)
        .route(
            LISTEN,
            post({
                let server = server.clone();
                move |request: HttpRequest| stream::listen(server.clone(), request)
            }),
        )
        .route(CONNECT, post(move |request: HttpRequest| stream::connect(connecting.clone(), request)))
}

/// Every unary method, with the scope it needs.
fn methods(router: Router, server: &Server) -> Router {
    let router = unary::<api::StartRun, _>(router, server, Scope::Start, calls::start_run);
    let router = unary::<api::ReadRun, _>(router, server, Scope::Read, calls::read_run);
    let router = unary::<api::WhyPending, _>(router, server, Scope::Read, calls::why_pending);
    let router = unary::<api::ListDeleted, _>(router, server, Scope::Read, calls::list_deleted);
    let router = unary::<api::ReadLog, _>(router, server, Scope::Read, calls::read_log);
    let router = unary::<api::WatchRun, _>(router, server, Scope::Read, calls::watch_run);
    let router = unary::<api::ListRuns, _>(router, server, Scope::Read, calls::list_runs);
    let router = unary::<api::SignalRun, _>(router, server, Scope::Signal, calls::signal_run);
    let router = unary::<api::CancelRun, _>(router, server, Scope::Operate, calls::cancel_run);
    let router = unary::<api::TerminateRun, _>(router, server, Scope::Operate, calls::terminate_run);
    let router = unary::<api::PauseRun, _>(router, server, Scope::Operate, calls::pause_run);
    let router = unary::<api::ResumeRun, _>(router, server, Scope::Operate, calls::resume_run);
    let router = unary::<api::DeleteRun, _>(router, server, Scope::Admin, calls::delete_run);
    let router = unary::<api::UpdateRun, _>(router, server, Scope::Signal, calls::update_run);
    let router = unary::<api::QueryRun, _>(router, server, Scope::Read, calls::query_run);
    let router = unary::<api::ListApprovals, _>(router, server, Scope::Read, calls::list_approvals);
    let router = unary::<api::DecideApproval, _>(router, server, Scope::Approve, calls::decide_approval);
    unary::<api::ResolvePromise, _>(router, server, Scope::Signal, calls::resolve_promise)
}

/// Serves one method: who asks and whether they may comes first.
fn unary<M: Method, Fut>(router: Router, server: &Server, scope: Scope, call: fn(Server, Asker, M::Request) -> Fut) -> Router
where
    Fut: Future<Output = Result<M::Reply, Status>> + Send + 'static,
{
    let server = server.clone();
    router.route(
        M::PATH,
        post(move |request: HttpRequest| async move {
            let asker = match admit(&server, scope, request.headers()).await {
                Ok(asker) => asker,
                Err(status) => return status.into_http::<axum::body::Body>().into_response(),
            };
            let service = Call { server: server.clone(), asker, call };
            let mut grpc =
                tonic::server::Grpc::new(Wire::<M::Reply, M::Request>::default()).max_decoding_message_size(MESSAGE_BYTES_MAX);
            let response = grpc.unary(service, request).await;
            server.metrics().request("GRPC", M::PATH, response.status().as_u16());
            response.into_response()
        }),
    )
}

struct Call<Q, Fut> {
    server: Server,
    asker: Asker,
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
        let answered = (self.call)(self.server.clone(), self.asker.clone(), request.into_inner());
        Box::pin(async move { answered.await.map(tonic::Response::new) })
    }
}

/// Whether the caller may do what needs `scope`, in the namespace it names.
async fn admit(server: &Server, scope: Scope, headers: &axum::http::HeaderMap) -> Result<Asker, Status> {
    let namespace = request::namespace(headers).map_err(|problem| status_of(&problem))?;
    let asked = server.options().auth.authenticate(Ask { scope, namespace: &namespace, headers }).await;
    let caller = asked.map_err(|problem| status_of(&problem))?;
    Ok(Asker { namespace, caller })
}

/// A refusal before the call began.
fn refuse(status: Status) -> Response {
    status.into_http::<axum::body::Body>().into_response()
}

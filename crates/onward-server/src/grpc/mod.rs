//! The gRPC API: the verbs of the HTTP API, and the streams of workers.
//!
//! Every verb of the table in `onward_core::api` is a method, and all of them have one handler. [`METHODS`] has the scope of each.
//! An error is in the details of the status. Health and reflection are public. Makes no decisions about runs.

mod ends;
mod health;
mod line;
mod live;
pub(crate) mod problem;
mod public;
mod reflection;
mod stream;

use std::sync::Arc;

use axum::Router;
use axum::extract::Request as HttpRequest;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, post};
use bytes::Bytes;
use onward_core::api::Call;
use onward_wire::grpc::{AWAIT_ENDS, CONNECT, LISTEN, Untyped, WATCH, undecodable};
use tokio::sync::oneshot;
use tonic::{Request, Status};

use crate::auth::{self, Pass, Scope};
use crate::http::problem::RequestError;
use crate::verbs::{self, Principal};
use crate::{Problem, Server, http::request};
use line::CallLog;
use problem::status_of;

/// Maximum size of a message: some payloads of the largest size and their envelope.
const MESSAGE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// One method: its path, its scope and its handler.
pub struct Method {
    /// `/onward.v1.Service/Method`.
    pub path: &'static str,
    pub scope: Scope,
    serve: fn(Server, &'static Method) -> MethodRouter,
}

macro_rules! methods {
    ($($(#[$meta:meta])* $method:ident $name:ident($request:ident) -> $reply:ident, $scope:ident;)*) => {
        /// All methods: the verbs, and the streams.
        pub static METHODS: &[Method] = &[
            $(Method { path: concat!("/onward.v1.Runs/", stringify!($name)), scope: Scope::$scope, serve: unary },)*
            Method {
                path: LISTEN,
                scope: Scope::Read,
                serve: |server, at| post(move |request: HttpRequest| stream::listen(server.clone(), at.scope, request)),
            },
            Method {
                path: WATCH,
                scope: Scope::Read,
                serve: |server, at| post(move |request: HttpRequest| live::watch(server.clone(), at.scope, request)),
            },
            Method {
                path: AWAIT_ENDS,
                scope: Scope::Read,
                serve: |server, at| post(move |request: HttpRequest| ends::await_ends(server.clone(), at.scope, request)),
            },
            Method {
                path: CONNECT,
                scope: Scope::Work,
                serve: |server, at| post(move |request: HttpRequest| stream::connect(server.clone(), at.scope, request)),
            },
        ];
    };
}

onward_core::with_verbs!(methods);

/// Returns the gRPC services, to be served beside HTTP ([`crate::router_with`]).
pub fn grpc(server: &Server) -> Router {
    let limit = public::ConnectionLimit::new();
    let public = health::routes(server, &limit).merge(reflection::routes(server, &limit));
    METHODS.iter().fold(public, |router, method| router.route(method.path, (method.serve)(server.clone(), method)))
}

/// Serves the method of a verb; checks the credential first.
fn unary(server: Server, method: &'static Method) -> MethodRouter {
    post(move |request: HttpRequest| async move {
        let line = CallLog::begin(method.path, method.scope);
        let principal = match admit(&server, method.scope, request.headers()).await {
            Ok(admitted) => admitted,
            Err(status) => return line.end(&server, None, refuse(status)),
        };
        let (caller, pass) = (principal.caller.name.clone(), principal.pass.clone());
        let (arrived, came) = oneshot::channel();
        let service = VerbService { server: server.clone(), principal, name: verb_name(method.path), arrived: Some(arrived) };
        let mut grpc = tonic::server::Grpc::new(Untyped)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        let response = tokio::select! {
            biased;
            response = grpc.unary(service, request) => response.into_response(),
            problem = auth::ended(pass.as_ref(), &server) => refuse(status_of(&problem)),
            problem = too_slow(&server, came) => refuse(status_of(&problem)),
        };
        line.end(&server, caller.as_deref(), response)
    })
}

/// Returns the last segment of a method's path.
fn verb_name(path: &'static str) -> &'static str {
    path.rsplit('/').next().unwrap_or_default()
}

/// Returns if the message does not arrive in time; processing it may take longer.
async fn too_slow(server: &Server, came: oneshot::Receiver<()>) -> Problem {
    let timeout = server.limits().body_timeout;
    match tokio::time::timeout(timeout, came).await {
        Err(_) => RequestError::BodyTooSlow { seconds: timeout.as_secs() }.into(),
        Ok(_) => std::future::pending().await,
    }
}

struct VerbService {
    server: Server,
    principal: Principal,
    /// The name of the verb.
    name: &'static str,
    /// Notified when the message has arrived.
    arrived: Option<oneshot::Sender<()>>,
}

impl tonic::server::UnaryService<Bytes> for VerbService {
    type Response = Vec<u8>;
    type Future = std::pin::Pin<Box<dyn Future<Output = Result<tonic::Response<Vec<u8>>, Status>> + Send>>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let _ = self.arrived.take().map(|arrived| arrived.send(()));
        let (server, principal, name) = (self.server.clone(), self.principal.clone(), self.name);
        Box::pin(async move {
            let call = Call::decode(name, request.get_ref()).map_err(|error| undecodable(&error))?;
            let reply = verbs::execute(&server, &principal, call).await.map_err(|problem| status_of(&problem))?;
            Ok(tonic::Response::new(reply.to_bytes()))
        })
    }
}

/// A stream and its caller.
struct StreamCall {
    server: Server,
    principal: Principal,
}

/// Checks that the caller has `scope` in the namespace of the request.
async fn admit(server: &Server, scope: Scope, headers: &axum::http::HeaderMap) -> Result<Principal, Status> {
    let namespace = request::namespace(server, headers).map_err(|problem| status_of(&problem))?;
    let begun = Pass::begin(server, scope, &namespace, false, &Arc::new(headers.clone())).await;
    let (pass, caller) = begun.map_err(|refusal| status_of(&refusal.into()))?;
    Ok(Principal { namespace, caller, pass: Some(pass) })
}

/// Returns the response to a call that was refused before it began.
fn refuse(status: Status) -> Response {
    status.into_http::<axum::body::Body>().into_response()
}

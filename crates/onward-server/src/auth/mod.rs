//! Authentication and scopes: the extension point for credentials.
//!
//! Every route and every gRPC method has a scope (see [`crate::ROUTES`] and [`crate::METHODS`]). It is checked before the handler
//! runs, and again at intervals while the request lasts ([`Pass`]). [`NoAuthentication`] allows every request, which is why a server without
//! keys listens on loopback only (S1); [`crate::auth::keys::Keys`] requires a key.

pub(crate) mod bounds;
pub(crate) mod ceilings;
pub mod keys;
pub mod secret_file;
pub mod session;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;
use onward_core::Namespace;
use onward_core::budget::Budget;
use serde::{Deserialize, Serialize};

use crate::auth::bounds::Bounds;
use crate::auth::keys::KeyEntry;
use crate::auth::session::SignedIn;
use crate::http::problem::{Problem, RequestError};
use crate::server::Server;

/// Time between two checks of the credential of an open request.
pub(crate) const PASS_PAUSE: Duration = Duration::from_secs(2);

/// Right that a credential may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Read runs.
    Read,
    /// Start runs.
    Start,
    /// Send signals and updates, resolve promises.
    Signal,
    /// Decide approvals.
    Approve,
    /// Cancel, terminate, pause, resume.
    Operate,
    /// Claim runs and tasks as a worker.
    Work,
    /// Everything else, such as deleting.
    Admin,
}

impl Scope {
    pub const ALL: [Scope; 7] =
        [Scope::Read, Scope::Start, Scope::Signal, Scope::Approve, Scope::Operate, Scope::Work, Scope::Admin];
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Scope::Read => "read",
            Scope::Start => "start",
            Scope::Signal => "signal",
            Scope::Approve => "approve",
            Scope::Operate => "operate",
            Scope::Work => "work",
            Scope::Admin => "admin",
        })
    }
}

/// Request that needs a decision.
#[derive(Debug, Clone, Copy)]
pub struct AuthRequest<'a> {
    pub scope: Scope,
    pub namespace: &'a Namespace,
    /// Concerns the whole server: a credential for some namespaces is not enough.
    pub server_wide: bool,
    pub headers: &'a HeaderMap,
}

/// Sender of a request, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Caller {
    /// Name of the credential. If there is one, it is recorded as the decider of an approval, not the name in the request (S8).
    pub name: Option<String>,
    /// Id of the credential; a rotated key keeps it. Sessions of workers are bound to it (S5).
    pub credential: Option<String>,
    /// Ceiling of the budgets of runs that are started or resumed with the credential.
    pub budget_max: Option<Budget>,
    /// Kinds and queues that the credential is for.
    pub bounds: Bounds,
}

/// Reason why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuthRefusal {
    /// No valid credential. One variant for every reason, so that they cannot be distinguished (S3).
    Unauthenticated,
    /// The credential does not have the scope.
    Scope { scope: Scope },
    /// The credential is not for this namespace.
    Namespace { namespace: Namespace },
    /// The credential is for some namespaces, and the request concerns all of them.
    ServerWide,
    /// The credential is bound to other kinds.
    Kind { kind: String },
    /// The credential is bound to some kinds, and the request may concern others.
    EveryKind,
    /// The credential is bound to other queues.
    Queue { queue: String },
    /// The credential was restricted to other kinds or queues after the request began.
    Narrowed,
    /// The credential cannot be checked now.
    Unavailable { why: String },
}

impl From<AuthRefusal> for Problem {
    fn from(refusal: AuthRefusal) -> Problem {
        let what = match refusal {
            AuthRefusal::Unauthenticated => return RequestError::Unauthenticated.into(),
            AuthRefusal::Unavailable { why } => return RequestError::NotReady { why }.into(),
            AuthRefusal::Scope { scope } => format!("the scope `{scope}`"),
            AuthRefusal::Namespace { namespace } => format!("the namespace `{namespace}`"),
            AuthRefusal::ServerWide => "all namespaces, which the request needs".to_owned(),
            AuthRefusal::Kind { kind } => format!("the kind `{kind}`"),
            AuthRefusal::EveryKind => "runs of every kind".to_owned(),
            AuthRefusal::Narrowed => "all kinds and queues for which it was valid when the request began".to_owned(),
            AuthRefusal::Queue { queue } if queue.is_empty() => "the default queue".to_owned(),
            AuthRefusal::Queue { queue } => format!("the queue `{queue}`"),
        };
        RequestError::NotAllowed { what }.into()
    }
}

pub type AuthFuture<'a> = Pin<Box<dyn Future<Output = Result<Caller, AuthRefusal>> + Send + 'a>>;

/// Decides whether a request is allowed: before its body is read, and every few seconds while it lasts. Must fail closed.
pub trait Authenticate: Send + Sync {
    fn authenticate<'a>(&'a self, request: AuthRequest<'a>) -> AuthFuture<'a>;

    /// Returns the namespace of a request that names none: that of a credential for one namespace, otherwise the default one.
    fn namespace(&self, _: &HeaderMap) -> Namespace {
        Namespace::default()
    }

    /// Returns the API key that the headers contain or whose session they use; `None` if no key is needed.
    fn key(&self, _: &HeaderMap) -> Result<Option<KeyEntry>, AuthRefusal> {
        Ok(None)
    }

    /// Begins a session of the console for an API key; `None` if no key is needed.
    fn sign_in(&self, _key: &str) -> Result<Option<SignedIn>, AuthRefusal> {
        Ok(None)
    }

    /// Returns why every request is refused, if that is so. The text is public.
    fn unavailable_reason(&self) -> Option<String> {
        None
    }
}

/// Allows every request.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoAuthentication;

impl Authenticate for NoAuthentication {
    fn authenticate<'a>(&'a self, _: AuthRequest<'a>) -> AuthFuture<'a> {
        Box::pin(std::future::ready(Ok(Caller::default())))
    }
}

/// Credential and scope of an open request, kept so that they can be checked again.
#[derive(Debug, Clone)]
pub(crate) struct Pass {
    pub scope: Scope,
    pub namespace: Namespace,
    pub server_wide: bool,
    pub headers: Arc<HeaderMap>,
    /// Kinds and queues of the credential when the request began.
    pub bounds: Bounds,
}

impl Pass {
    /// Checks the credential of a new request.
    pub async fn begin(
        server: &Server,
        scope: Scope,
        namespace: &Namespace,
        server_wide: bool,
        headers: &Arc<HeaderMap>,
    ) -> Result<(Pass, Caller), AuthRefusal> {
        let (namespace, headers, bounds) = (namespace.clone(), headers.clone(), Bounds::default());
        let pass = Pass { scope, namespace, server_wide, headers, bounds };
        let caller = pass.check(server).await?;
        Ok((Pass { bounds: caller.bounds.clone(), ..pass }, caller))
    }

    pub async fn check(&self, server: &Server) -> Result<Caller, AuthRefusal> {
        let Pass { scope, namespace, server_wide, headers, .. } = self;
        server.options().auth.authenticate(AuthRequest { scope: *scope, namespace, server_wide: *server_wide, headers }).await
    }

    /// Checks another scope for the same request: a part of a request needs the scope that it would need alone (S7).
    pub async fn check_also(&self, scope: Scope, server: &Server) -> Result<Caller, AuthRefusal> {
        Pass { scope, ..self.clone() }.check(server).await
    }
}

/// Returns when the credential is no longer valid, or no longer for all kinds and queues of the beginning; waits and streams end
/// then (G3). Never returns without a pass.
pub(crate) async fn ended(pass: Option<&Pass>, server: &Server) -> Problem {
    let Some(pass) = pass else { return std::future::pending().await };
    loop {
        tokio::time::sleep(PASS_PAUSE).await;
        match pass.check(server).await {
            Ok(caller) if caller.bounds.cover(&pass.bounds) => {}
            Ok(_) => return AuthRefusal::Narrowed.into(),
            Err(refusal) => return refusal.into(),
        }
    }
}

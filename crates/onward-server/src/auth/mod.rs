//! Who may do what: the extension point for credentials.
//!
//! Every route and every gRPC method names the scope it needs (see [`crate::ROUTES`] and [`crate::METHODS`]) and is asked about here
//! before its handler runs, and again for as long as it lasts ([`Pass`]). [`Open`] lets everybody in, which is why a server without
//! keys listens on loopback only (S1); [`crate::auth::keys::Keys`] asks for a key.

pub(crate) mod bounds;
pub(crate) mod ceilings;
pub mod keys;
pub(crate) mod whole_file;

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
use crate::http::problem::{Problem, RequestError};
use crate::server::Server;

/// How often who has something open is asked about again.
pub(crate) const PASS_PAUSE: Duration = Duration::from_secs(2);

/// What a credential may be good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Look at runs.
    Read,
    /// Start runs.
    Start,
    /// Send signals and updates, resolve promises.
    Signal,
    /// Decide approvals.
    Approve,
    /// Cancel, terminate, pause, resume.
    Operate,
    /// Do the work: claim runs and tasks.
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

/// What somebody is about to do.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    pub scope: Scope,
    pub namespace: &'a Namespace,
    /// Whether it concerns the whole server: a credential for some namespaces is not enough.
    pub server_wide: bool,
    pub headers: &'a HeaderMap,
}

/// Who asks, as far as that is known.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Caller {
    /// The name behind the credential. Where there is one, it and not the request says who decides an approval (S8).
    pub name: Option<String>,
    /// Identifies the credential; a key that was rotated keeps it. Sessions of workers are bound to it (S5).
    pub credential: Option<String>,
    /// The most that a run may spend that is started or resumed with the credential.
    pub budget_max: Option<Budget>,
    /// The kinds and queues that the credential is for.
    pub bounds: Bounds,
}

/// Why somebody is not let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// Nobody knows who asks. One word for every reason, so that none can be told from another (S3).
    Unauthenticated,
    /// It is known who asks, and they may not do this anywhere.
    Scope { scope: Scope },
    /// They may do it, but not in this namespace.
    Namespace { namespace: Namespace },
    /// They may do it in some namespaces, and it concerns all of them.
    ServerWide,
    /// The credential is bound to other kinds.
    Kind { kind: String },
    /// The credential is bound to some kinds, and it may concern others.
    EveryKind,
    /// The credential is bound to other queues.
    Queue { queue: String },
    /// It cannot be found out who asks.
    Unavailable { why: String },
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Problem {
        match refusal {
            Refusal::Unauthenticated => RequestError::Unauthenticated.into(),
            Refusal::Scope { scope } => RequestError::NotAllowed { what: format!("the scope `{scope}`") }.into(),
            Refusal::Namespace { namespace } => RequestError::NotAllowed { what: format!("the namespace `{namespace}`") }.into(),
            Refusal::ServerWide => RequestError::NotAllowed { what: "all namespaces, which this concerns".to_owned() }.into(),
            Refusal::Kind { kind } => RequestError::NotAllowed { what: format!("the kind `{kind}`") }.into(),
            Refusal::EveryKind => RequestError::NotAllowed { what: "runs of every kind".to_owned() }.into(),
            Refusal::Queue { queue } if queue.is_empty() => {
                RequestError::NotAllowed { what: "the default queue".to_owned() }.into()
            }
            Refusal::Queue { queue } => RequestError::NotAllowed { what: format!("the queue `{queue}`") }.into(),
            Refusal::Unavailable { why } => RequestError::NotReady { why }.into(),
        }
    }
}

pub type AuthFuture<'a> = Pin<Box<dyn Future<Output = Result<Caller, Refusal>> + Send + 'a>>;

/// Decides whether a request goes on. Asked before its body is read, and every few seconds while it lasts; must fail closed.
pub trait Authenticate: Send + Sync {
    fn authenticate<'a>(&'a self, ask: Ask<'a>) -> AuthFuture<'a>;

    /// Why nobody can be let in, if that is so. Told to everybody.
    fn trouble(&self) -> Option<String> {
        None
    }
}

/// Lets everybody do everything.
#[derive(Debug, Clone, Copy, Default)]
pub struct Open;

impl Authenticate for Open {
    fn authenticate<'a>(&'a self, _: Ask<'a>) -> AuthFuture<'a> {
        Box::pin(std::future::ready(Ok(Caller::default())))
    }
}

/// What somebody was let in with, kept for as long as what they asked for lasts.
#[derive(Debug, Clone)]
pub(crate) struct Pass {
    pub scope: Scope,
    pub namespace: Namespace,
    pub server_wide: bool,
    pub headers: Arc<HeaderMap>,
}

impl Pass {
    pub async fn check(&self, server: &Server) -> Result<Caller, Refusal> {
        let Pass { scope, namespace, server_wide, headers } = self;
        server.options().auth.authenticate(Ask { scope: *scope, namespace, server_wide: *server_wide, headers }).await
    }

    /// What is brought along needs its own scope, as if it came alone (S7).
    pub async fn check_also(&self, scope: Scope, server: &Server) -> Result<Caller, Refusal> {
        Pass { scope, ..self.clone() }.check(server).await
    }

    /// Returns when the pass is good no more: waits and streams end then (G3).
    pub async fn ended(&self, server: &Server) -> Problem {
        loop {
            tokio::time::sleep(PASS_PAUSE).await;
            if let Err(refusal) = self.check(server).await {
                return refusal.into();
            }
        }
    }
}

/// Like [`Pass::ended`]; for ever where nothing was asked for.
pub(crate) async fn ended(pass: Option<&Pass>, server: &Server) -> Problem {
    match pass {
        Some(pass) => pass.ended(server).await,
        None => std::future::pending().await,
    }
}

//! Who may do what: the extension point for credentials.
//!
//! Every route names the scope it needs (see [`crate::ROUTES`]) and is asked about here before its handler runs. [`Open`] lets
//! everybody in, which is why a server without credentials listens on loopback only (S1).

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use axum::http::HeaderMap;
use onward_core::Namespace;
use serde::{Deserialize, Serialize};

use crate::Problem;

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
    pub headers: &'a HeaderMap,
}

/// Who asks, as far as that is known.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Caller {
    /// The name behind the credential. Where there is one, it and not the request says who decides an approval (S8).
    pub name: Option<String>,
}

pub type AuthFuture<'a> = Pin<Box<dyn Future<Output = Result<Caller, Problem>> + Send + 'a>>;

/// Decides whether a request goes on. Asked once per request, before its body is read; must fail closed.
pub trait Authenticate: Send + Sync {
    fn authenticate<'a>(&'a self, ask: Ask<'a>) -> AuthFuture<'a>;
}

/// Lets everybody do everything.
#[derive(Debug, Clone, Copy, Default)]
pub struct Open;

impl Authenticate for Open {
    fn authenticate<'a>(&'a self, _: Ask<'a>) -> AuthFuture<'a> {
        Box::pin(std::future::ready(Ok(Caller::default())))
    }
}

//! Request as handlers see it: caller, namespace, query and body. Everything but the body is checked already.

mod body;
mod memory;
mod query;

use std::sync::Arc;

use axum::body::Body;
use axum::http::HeaderMap;
use onward_core::api::{Call, Reply as CallReply, Verb};
use onward_core::{Namespace, Payload, RunId, RunKey};
use onward_runtime::CallRef;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::http::problem::{Problem, RequestError};
use crate::serve::RequestTrust;
use crate::server::Server;
use crate::verbs::{self, Principal};

pub(crate) use body::{Rules, parse};
pub(crate) use memory::{BodyMemory, BodyShare};
pub(crate) use query::Query;

pub use onward_wire::grpc::NAMESPACE;

/// Returns the `traceparent` header.
pub(crate) fn trace(headers: &HeaderMap) -> Option<String> {
    headers.get("traceparent").and_then(|value| value.to_str().ok()).map(str::to_owned)
}

pub(crate) struct Request {
    pub server: Server,
    pub by: Principal,
    /// Unauthenticated for a request without a pass, until the handler marks it as authenticated.
    pub trust: Option<RequestTrust>,
    pub headers: Arc<HeaderMap>,
    pub query: Query,
    /// Value of `{id}` in the route's path.
    pub id: Option<String>,
    /// Value of `{index}` in the route's path.
    pub index: Option<String>,
    pub body: Body,
    /// Memory share of a large body, held while the request lasts.
    pub memory: Option<BodyShare>,
}

impl Request {
    /// Returns the run that the path names.
    pub fn key(&self) -> Result<RunKey, Problem> {
        let id = RunId::new(self.id.as_deref().unwrap_or_default())?;
        onward_runtime::check_run_id(&id)?;
        Ok(RunKey::new(self.by.namespace.clone(), id))
    }

    /// Returns the call id of the approval or promise that the path names.
    pub fn call(&self) -> Result<CallRef, Problem> {
        Ok(CallRef::parse(&self.by.namespace, self.id.as_deref().unwrap_or_default())?)
    }

    /// Parses the body as JSON; unknown fields are refused where `T` refuses them.
    pub async fn json<T: DeserializeOwned + Send + 'static>(&mut self) -> Result<T, Problem> {
        let bytes = self.read_body("application/json").await?;
        Ok(body::parse_aside(bytes).await?)
    }

    /// Executes a verb for the caller. With a large body, checking, hashing and encoding take long, so it runs on a blocking
    /// thread then.
    pub fn execute<V: Verb>(&self, request: V::Request) -> impl Future<Output = Result<V::Reply, Problem>> + Send + use<V>
    where
        V::Reply: Send,
    {
        let executed = self.execute_call(V::call(request));
        async move { Ok(V::reply(executed.await?).expect("the reply belongs to the call")) }
    }

    /// Executes a call; not generic, so that the code exists once for all verbs.
    fn execute_call(&self, call: Call) -> impl Future<Output = Result<CallReply, Problem>> + Send + use<> {
        let (server, principal, is_large) = (self.server.clone(), self.by.clone(), self.memory.is_some());
        async move {
            let executed = async move { verbs::execute(&server, &principal, call).await };
            if !is_large {
                return executed.await;
            }
            let tokio = tokio::runtime::Handle::current();
            body::aside(move || tokio.block_on(executed)).await
        }
    }

    /// Reads the body as lines of JSON: runs to import.
    pub async fn lines(&mut self) -> Result<bytes::Bytes, Problem> {
        let read = self.read_body("application/x-ndjson").await;
        Ok(read.map_err(|error| match error {
            RequestError::BodyTooLarge { max } => RequestError::ImportTooLarge { max },
            error => error,
        })?)
    }

    /// Parses the body like [`Request::json`]; an empty body is the default.
    pub async fn json_or_default<T: DeserializeOwned + Default + Send + 'static>(&mut self) -> Result<T, Problem> {
        let bytes = self.read_body("application/json").await?;
        if bytes.is_empty() { Ok(T::default()) } else { Ok(body::parse_aside(bytes).await?) }
    }
}

/// Returns the namespace in the request's header; without one, that of a key for one namespace, or the default one.
pub(crate) fn namespace(server: &Server, headers: &HeaderMap) -> Result<Namespace, Problem> {
    let mut given = headers.get_all(NAMESPACE).iter();
    let invalid = |why: &str| RequestError::HeaderInvalid { name: "Onward-Namespace", why: why.to_owned() };
    match (given.next(), given.next()) {
        (None, _) => Ok(server.options().auth.namespace(headers)),
        (Some(_), Some(_)) => Err(invalid("it is sent twice").into()),
        (Some(value), None) => {
            let text = std::str::from_utf8(value.as_bytes()).map_err(|_| invalid("it is not UTF-8"))?;
            Ok(Namespace::new(text).map_err(|error| invalid(&error.to_string()))?)
        }
    }
}

/// Converts user data to a payload. Line ends between tokens become blanks: they have no meaning in JSON, and a payload on one
/// line can be shown as JSON everywhere.
pub(crate) fn payload(json: Option<Box<RawValue>>) -> Payload {
    match json {
        None => Payload::null(),
        Some(json) if json.get().bytes().any(|byte| matches!(byte, b'\n' | b'\r')) => {
            Payload::from_json_text(json.get().replace(['\n', '\r'], " "))
        }
        Some(json) => Payload::from_json_text(Box::<str>::from(json).into_boxed_bytes()),
    }
}

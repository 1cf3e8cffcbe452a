//! Onward over a network: the same API, with the runtime in a server.
//!
//! Owns the connection. [`RemoteClient`] is the client and [`RemoteConnection`] the worker connection; both behave like the runtime of
//! this process. Must never decide, and must never lose a frame that waits for a response: after a lost connection it is sent
//! again, and the server recognizes it.

mod channel;
mod client;
mod connection;
mod ends;
mod http;
mod problem;

use std::sync::Arc;
use std::time::Duration;

use onward_core::{ErrorCode, Namespace};
use onward_runtime::Client;
use onward_wire::ApiKey;

use crate::Error;
use connection::WELCOME_MAX;

pub(crate) use channel::{Channel, Trust, endpoint};
pub(crate) use client::RemoteClient;
pub(crate) use connection::RemoteConnection;
pub use http::{HttpAnswer, HttpClient, connect_http};

/// Delay before a failed request is retried.
const RETRY_DELAY: Duration = Duration::from_millis(200);

/// Returns a client for the server at `url`, for tools without a worker and without types. Connects on first use.
///
/// A call fails at once if the server is unreachable; only waits continue until it is back.
pub fn connect_client(url: &str, namespace: &Namespace, key: Option<&str>) -> Result<Arc<dyn Client>, Error> {
    let channel = Channel::new(url, Some(namespace), parse_key(key)?.as_ref(), &Trust::default())?;
    Ok(Arc::new(RemoteClient::new(channel)))
}

/// Returns the namespace of a process that names none: that of a key for one namespace, otherwise `default`. Waits for the server as
/// long as a worker does at its start.
pub(crate) async fn namespace_of(url: &str, key: Option<&ApiKey>, trust: &Trust) -> Result<Namespace, Error> {
    if key.is_none() {
        return Ok(Namespace::default());
    }
    let http = HttpClient::new(Channel::new(url, None, key, trust)?);
    let mut failed = None;
    let lookup = async {
        loop {
            match http.namespace().await {
                Err(error) if error.code() == ErrorCode::ServerUnreachable || error.code() == ErrorCode::NotReady => {
                    failed = Some(error);
                }
                found => return found,
            }
            tokio::time::sleep(RETRY_DELAY).await;
        }
    };
    let found = tokio::time::timeout(WELCOME_MAX, lookup).await;
    match found {
        Ok(found) => found,
        Err(_) => Err(failed.unwrap_or_else(|| problem::unreachable(format!("no server answers at {url}")).into())),
    }
}

pub(crate) fn parse_key(text: Option<&str>) -> Result<Option<ApiKey>, Error> {
    let key = text.map(|text| ApiKey::parse(text.trim())).transpose();
    key.map_err(|error| Error::KeyInvalid { why: error.to_string() })
}

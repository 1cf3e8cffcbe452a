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

use onward_core::Namespace;
use onward_runtime::Client;
use onward_wire::ApiKey;

use crate::Error;

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
    let channel = Channel::new(url, namespace, parse_key(key)?.as_ref(), &Trust::default())?;
    Ok(Arc::new(RemoteClient::new(channel)))
}

pub(crate) fn parse_key(text: Option<&str>) -> Result<Option<ApiKey>, Error> {
    let key = text.map(|text| ApiKey::parse(text.trim())).transpose();
    key.map_err(|error| Error::KeyInvalid { why: error.to_string() })
}

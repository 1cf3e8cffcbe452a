//! Onward over a network: the same functions, with the runtime in a server.
//!
//! Owns the connection. [`RemoteDoor`] is what a caller asks through, [`RemoteLink`] what a worker works through; both behave like
//! the runtime inside one process. Must never decide, and must never lose a frame that waits for an answer: after a lost connection
//! it is sent once more, and the server recognizes it.

mod channel;
mod door;
mod ends;
mod http;
mod link;
mod problem;
mod trust;

use std::sync::Arc;
use std::time::Duration;

use onward_core::Namespace;
use onward_runtime::Door;
use onward_wire::ApiKey;

use crate::Error;

pub(crate) use channel::{Channel, endpoint};
pub(crate) use door::RemoteDoor;
pub use http::{HttpAnswer, HttpDoor, connect_http};
pub(crate) use link::RemoteLink;
pub(crate) use trust::Trust;

/// How long to wait before a question is asked again that did not get through.
const RETRY_DELAY: Duration = Duration::from_millis(200);

/// The verbs of the server at `url`, for tools that start no worker and know no types. Connects when it is first asked.
///
/// A call fails at once when the server cannot be reached; only waiting goes on until it is back.
pub fn connect_door(url: &str, namespace: &Namespace, key: Option<&str>) -> Result<Arc<dyn Door>, Error> {
    let channel = Channel::new(url, namespace, parse_key(key)?.as_ref(), &Trust::default())?;
    Ok(Arc::new(RemoteDoor::new(channel)))
}

pub(crate) fn parse_key(text: Option<&str>) -> Result<Option<ApiKey>, Error> {
    let key = text.map(|text| ApiKey::parse(text.trim())).transpose();
    key.map_err(|error| Error::KeyInvalid { why: error.to_string() })
}

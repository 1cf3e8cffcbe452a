//! Reading of request bodies: type, size, time limits, nesting depth, parsing.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE, EXPECT};
use bytes::{Bytes, BytesMut};
use http_body::Body as _;
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use onward_core::Namespace;
use onward_core::payload::is_type;

use super::Request;
use super::memory::{BodyMemory, BodyShare};
use crate::http::limits::JSON_DEPTH_MAX;
use crate::http::problem::{PLAIN_BYTES, RequestError};
use crate::server::Server;

/// Size from which a body is counted in the memory limit and must keep the minimum rate.
const LARGE_BYTES: usize = 64 * 1024;

/// Time that a large body may take in addition to its size divided by the minimum rate.
const GRACE: Duration = Duration::from_secs(5);

/// Maximum number of bytes of a body that is too large which are read and discarded, so that the client reads the response.
const DRAIN_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Limits of a body: size, time, rate, and the memory that it is counted in.
pub(crate) struct Rules {
    bytes_max: usize,
    timeout: Duration,
    /// Minimum rate of a large body in bytes per second.
    rate_min: u64,
    memory: Arc<BodyMemory>,
    /// Namespace whose share of the memory is used.
    namespace: Namespace,
}

impl Rules {
    /// Returns the rules for authenticated callers.
    pub fn of(request: &Request) -> Rules {
        let limits = request.server.limits();
        Rules {
            bytes_max: limits.body_bytes_max,
            timeout: limits.body_timeout,
            rate_min: limits.body_rate_min,
            memory: request.server.body_memory().clone(),
            namespace: request.by.namespace.clone(),
        }
    }

    /// Returns the rules for webhooks, which are authenticated by the body itself and have memory of their own (SV1).
    pub fn of_webhooks(server: &Server, namespace: Namespace) -> Rules {
        let limits = server.limits();
        Rules {
            bytes_max: limits.webhook_bytes_max.min(limits.body_bytes_max),
            timeout: limits.webhook_timeout,
            rate_min: limits.body_rate_min,
            memory: server.webhook_memory().clone(),
            namespace,
        }
    }
}

/// Body that is being received.
struct Arriving {
    rules: Rules,
    /// Start time, moved by the time that the body waited for memory.
    begun: Instant,
    size: usize,
}

impl Arriving {
    fn deadline(&self) -> Instant {
        self.begun + self.rules.timeout
    }

    /// Returns the deadline of the next bytes, and the error if they miss it.
    fn next_deadline(&self) -> (Instant, RequestError) {
        let timeout = (self.deadline(), RequestError::BodyTooSlow { seconds: self.rules.timeout.as_secs() });
        if self.size <= LARGE_BYTES {
            return timeout;
        }
        let rate = self.rules.rate_min;
        let stalled = self.begun + GRACE + Duration::from_secs_f64(self.size as f64 / rate as f64);
        if stalled < timeout.0 { (stalled, RequestError::BodyStalled { rate }) } else { timeout }
    }

    async fn next(&mut self, request: &mut Request) -> Result<Option<Bytes>, RequestError> {
        loop {
            let (deadline, slow) = self.next_deadline();
            let frame = tokio::time::timeout_at(deadline, request.body.frame()).await;
            let Some(frame) = frame.map_err(|_| slow)? else { return Ok(None) };
            let Ok(data) = frame.map_err(|_| RequestError::BodyBroken)?.into_data() else { continue };
            self.size += data.len();
            if self.size > self.rules.bytes_max {
                request.drain(self.deadline()).await;
                return Err(RequestError::BodyTooLarge { max: self.rules.bytes_max });
            }
            return Ok(Some(data));
        }
    }
}

impl Request {
    /// Reads the whole body. The content type is not checked if the body is empty.
    pub(super) async fn read_body(&mut self, wanted: &'static str) -> Result<Bytes, RequestError> {
        let bytes = self.read_bytes(Rules::of(self)).await?;
        if !bytes.is_empty() {
            self.check_content_type(wanted)?;
        }
        Ok(bytes)
    }

    /// Reads the whole body without checking its type.
    pub(crate) async fn read_bytes(&mut self, rules: Rules) -> Result<Bytes, RequestError> {
        let mut bytes = BytesMut::new();
        let mut arriving = self.arriving(rules).await?;
        while let Some(data) = arriving.next(self).await? {
            let size = bytes.len() + data.len();
            if size > LARGE_BYTES {
                // Time spent waiting for memory does not count against the client.
                let began = Instant::now();
                let Rules { memory, namespace, .. } = &arriving.rules;
                let share = self.memory.get_or_insert_with(|| memory.share(namespace.clone()));
                share.grow_to(size).await;
                arriving.begun += began.elapsed();
            }
            bytes.extend_from_slice(&data);
        }
        self.memory.iter_mut().for_each(BodyShare::complete);
        Ok(bytes.freeze())
    }

    /// Reads a body and discards it. Takes as long as reading it would.
    pub(crate) async fn pass_over(&mut self, rules: Rules, mut seen: impl FnMut(&[u8])) -> Result<(), RequestError> {
        let mut arriving = self.arriving(rules).await?;
        while let Some(data) = arriving.next(self).await? {
            seen(&data);
        }
        Ok(())
    }

    async fn arriving(&mut self, rules: Rules) -> Result<Arriving, RequestError> {
        let declared = usize::try_from(self.body.size_hint().lower()).unwrap_or(usize::MAX);
        let arriving = Arriving { begun: Instant::now(), size: 0, rules };
        let max = arriving.rules.bytes_max;
        if declared > max {
            // With `Expect: 100-continue` the client has not sent the body yet.
            if !self.headers.contains_key(EXPECT) && declared - max <= DRAIN_BYTES_MAX {
                self.drain(arriving.deadline()).await;
            }
            return Err(RequestError::BodyTooLarge { max });
        }
        Ok(arriving)
    }

    async fn drain(&mut self, until: Instant) {
        let mut drained = 0;
        while let Ok(Some(Ok(frame))) = tokio::time::timeout_at(until, self.body.frame()).await {
            drained += frame.data_ref().map_or(0, Bytes::len);
            if drained > DRAIN_BYTES_MAX {
                return;
            }
        }
    }

    /// Reads the whole body to be stored: of any type, but without a content encoding.
    pub(crate) async fn read_plain_bytes(&mut self, rules: Rules) -> Result<Bytes, RequestError> {
        let bytes = self.read_bytes(rules).await?;
        match self.coding() {
            None => Ok(bytes),
            Some(coding) => {
                let found = format!("encoded as {coding}").chars().take(100).collect();
                Err(RequestError::ContentTypeUnsupported { wanted: PLAIN_BYTES, found })
            }
        }
    }

    /// Returns the content encoding; `None` for `identity`.
    fn coding(&self) -> Option<String> {
        let coding = self.headers.get(CONTENT_ENCODING).map(|value| String::from_utf8_lossy(value.as_bytes()));
        coding.filter(|coding| !coding.trim().eq_ignore_ascii_case("identity")).map(Into::into)
    }

    fn check_content_type(&self, wanted: &'static str) -> Result<(), RequestError> {
        let found = self.headers.get(CONTENT_TYPE).map(|value| String::from_utf8_lossy(value.as_bytes()));
        let coding = self.coding();
        if coding.is_none() && found.as_deref().is_some_and(|found| is_type(found, wanted)) {
            return Ok(());
        }
        let found = found.as_deref().unwrap_or("untyped");
        let found = coding.map_or(found.to_owned(), |coding| format!("{found} encoded as {coding}"));
        Err(RequestError::ContentTypeUnsupported { wanted, found: found.chars().take(100).collect() })
    }
}

/// Parses a body like [`parse`]; a large one on a blocking thread, so that other requests do not wait.
pub(super) async fn parse_aside<T: DeserializeOwned + Send + 'static>(bytes: Bytes) -> Result<T, RequestError> {
    if bytes.len() <= LARGE_BYTES {
        return parse(&bytes);
    }
    aside(move || parse(&bytes)).await
}

/// Runs slow work on a blocking thread; propagates a panic.
pub(super) async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    // One type of task for all work, because the compiler generates much code for each type.
    let work: Box<dyn FnOnce() -> Box<dyn Any + Send> + Send> = Box::new(move || Box::new(work()));
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => *done.downcast().expect("the work returns its type"),
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// Parses an object. Checks the nesting depth first, without recursion, because the parser is recursive.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, RequestError> {
    if let Some((line, column)) = onward_runtime::too_deep(bytes, JSON_DEPTH_MAX) {
        return Err(RequestError::JsonTooDeep { max: JSON_DEPTH_MAX, line, column });
    }
    // serde would accept a list for a struct, field by field.
    if bytes.trim_ascii_start().first() == Some(&b'[') {
        return Err(RequestError::JsonInvalid { why: "expected an object, not a list".to_owned() });
    }
    serde_json::from_slice(bytes).map_err(|error| RequestError::JsonInvalid { why: in_words(&error.to_string()) })
}

/// Returns the parser's message without the names of our types.
fn in_words(message: &str) -> String {
    let Some((before, after)) = message.split_once("expected struct ") else { return message.to_owned() };
    let rest = after.trim_start_matches(|character: char| character.is_alphanumeric() || character == '_');
    format!("{before}expected an object{rest}")
}

#[cfg(test)]
mod tests;

//! Reading a body: its type, its size while it arrives, the time it takes, its depth, and then its shape.

use axum::http::header::{CONTENT_TYPE, EXPECT};
use bytes::{Bytes, BytesMut};
use http_body::Body as _;
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;

use super::{Request, depth};
use crate::limits::JSON_DEPTH_MAX;
use crate::problem::RequestError;

/// The size from which a body waits for one of the few seats.
const LARGE_BYTES: usize = 64 * 1024;

/// How much of a body that is too large is read and thrown away, so that its sender gets to read the answer.
const DRAIN_BYTES_MAX: usize = 16 * 1024 * 1024;

impl Request {
    /// The whole body. Empty if there is none; then its type does not matter.
    pub(super) async fn read_body(&mut self) -> Result<Bytes, RequestError> {
        self.read_body_of("application/json").await
    }

    pub(super) async fn read_body_of(&mut self, wanted: &'static str) -> Result<Bytes, RequestError> {
        let bytes = self.read_bytes(self.server.limits().body_bytes_max).await?;
        if !bytes.is_empty() {
            self.check_content_type(wanted)?;
        }
        Ok(bytes)
    }

    /// The whole body, whatever it is.
    pub(super) async fn read_bytes(&mut self, max: usize) -> Result<Bytes, RequestError> {
        let timeout = self.server.limits().body_timeout;
        let too_slow = RequestError::BodyTooSlow { seconds: timeout.as_secs() };
        tokio::time::timeout(timeout, self.collect(max)).await.map_err(|_| too_slow)?
    }

    async fn collect(&mut self, max: usize) -> Result<Bytes, RequestError> {
        let declared = usize::try_from(self.body.size_hint().lower()).unwrap_or(usize::MAX);
        if declared > max {
            // Who asks first has not sent it yet, and need not.
            if !self.headers.contains_key(EXPECT) && declared - max <= DRAIN_BYTES_MAX {
                self.drain().await;
            }
            return Err(RequestError::BodyTooLarge { max });
        }
        let mut bytes = BytesMut::new();
        while let Some(frame) = self.body.frame().await {
            let Ok(data) = frame.map_err(|_| RequestError::BodyBroken)?.into_data() else { continue };
            let size = bytes.len() + data.len();
            if size > max {
                self.drain().await;
                return Err(RequestError::BodyTooLarge { max });
            }
            if size > LARGE_BYTES && self.large.is_none() {
                // The semaphore is never closed.
                self.large = self.server.large_bodies().clone().acquire_owned().await.ok();
            }
            bytes.extend_from_slice(&data);
        }
        Ok(bytes.freeze())
    }

    async fn drain(&mut self) {
        let mut drained = 0;
        while let Some(Ok(frame)) = self.body.frame().await {
            drained += frame.data_ref().map_or(0, Bytes::len);
            if drained > DRAIN_BYTES_MAX {
                return;
            }
        }
    }

    fn check_content_type(&self, wanted: &'static str) -> Result<(), RequestError> {
        let found = self.headers.get(CONTENT_TYPE).map(|value| String::from_utf8_lossy(value.as_bytes()));
        let essence = found.as_deref().unwrap_or_default().split(';').next().unwrap_or_default().trim();
        if essence.eq_ignore_ascii_case(wanted) {
            return Ok(());
        }
        let found = found.map_or("nothing".to_owned(), |found| found.chars().take(100).collect());
        Err(RequestError::ContentTypeUnsupported { wanted, found })
    }
}

/// Depth first, with a counter and no recursion; only then the parser, which follows the nesting.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, RequestError> {
    if let Some((line, column)) = depth::too_deep(bytes, JSON_DEPTH_MAX) {
        return Err(RequestError::JsonTooDeep { max: JSON_DEPTH_MAX, line, column });
    }
    serde_json::from_slice(bytes).map_err(|error| RequestError::JsonInvalid { why: error.to_string() })
}

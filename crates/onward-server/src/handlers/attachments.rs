//! `POST /v1/attachments`: stores bytes that messages refer to by their hash, in the folder from which models get them.
//!
//! A file has the SHA-256 of its bytes as name, is written atomically and is durable before the hash is returned. The hash is the
//! only credential for the bytes, so no response reveals whether they were stored before.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use onward_core::api::PutAttachmentReply;

use super::prelude::*;
use crate::Server;
use crate::auth::secret_file::{make_directory, write_whole};
use crate::hex;
use crate::http::request::Rules;

/// Handles `POST /v1/attachments`.
pub(crate) async fn put(mut request: Request) -> Result<Response, Problem> {
    let rules = Rules::of(&request);
    let data = request.read_plain_bytes(rules).await?;
    Ok(json(StatusCode::CREATED, &keep(&request.server, data).await?))
}

pub(crate) async fn keep(server: &Server, data: Bytes) -> Result<PutAttachmentReply, RequestError> {
    let folder = server.options().attachments.clone().ok_or(RequestError::AttachmentsDisabled)?;
    if data.is_empty() {
        return Err(RequestError::JsonInvalid { why: "the attachment is empty".to_owned() });
    }
    let bytes = data.len() as u64;
    let kept = tokio::task::spawn_blocking(move || write(&folder, &data)).await;
    let kept = kept.unwrap_or_else(|panic| Err(std::io::Error::other(panic)));
    let hash =
        kept.map_err(|error| RequestError::NotReady { why: format!("the folder of attachments is not writable: {error}") })?;
    Ok(PutAttachmentReply { hash, bytes })
}

/// Returns whether exactly these bytes are stored. The file was complete when it was renamed into place; it may have been changed
/// since.
fn is_kept(path: &Path, data: &[u8]) -> bool {
    let has_size = std::fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() == data.len() as u64);
    has_size && std::fs::read(path).is_ok_and(|bytes| bytes == data)
}

fn write(folder: &Path, data: &[u8]) -> std::io::Result<String> {
    static WRITTEN: AtomicU64 = AtomicU64::new(0);
    let hash = hex::sha256(data);
    let path = folder.join(&hash);
    if !is_kept(&path, data) {
        make_directory(&path)?;
        let unfinished = format!(".{hash}.{}.{}", std::process::id(), WRITTEN.fetch_add(1, Ordering::Relaxed));
        write_whole(&path, &folder.join(unfinished), data)?;
    }
    Ok(hash)
}

//! Loading of attachments that messages refer to by hash.
//!
//! Owns the size limit of a request and the check of hashes. Must never read anything but the file of a hash, whatever a message
//! names as a hash.
//!
//! Invariants:
//! - AM1: the attachments of a request never exceed a limit; beyond it they are described in text instead, the oldest first.
//! - AM2: an attachment that does not exist is described as missing; one that cannot be read now is an error, because it may
//!   exist.
//! - AM3: bytes whose SHA-256 differs from the requested hash are never sent to a model.

use std::collections::HashMap;
use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use onward_core::Failure;
use onward_core::conversation::names_attachment;
use onward_llm::{Attachment, Block, CallError, ModelRequest, Source};
use sha2::{Digest as _, Sha256};

/// Providers accept about 30 MB, encoded as text.
const BYTES_MAX: usize = 20 * 1024 * 1024;

/// The store of attachments that messages refer to by hash: `{"type": "attachment", "media_type": "image/png", "source": {"hash":
/// "…"}}`. A hash is the SHA-256 of the bytes, 64 hexadecimal digits in lower case.
#[derive(Clone)]
pub struct Attachments {
    source: AttachmentSource,
    bytes_max: usize,
}

#[derive(Clone)]
enum AttachmentSource {
    Folder(PathBuf),
    Other(Arc<dyn Fn(String) -> Finding + Send + Sync>),
}

type Finding = Pin<Box<dyn Future<Output = Result<Option<Vec<u8>>, Failure>> + Send>>;

enum AttachmentLookup {
    Bytes(Vec<u8>),
    TooLarge,
    Damaged,
    Nothing,
}

impl Attachments {
    /// Loads attachments from a folder; each file is named by its hash.
    pub fn folder(folder: impl AsRef<Path>) -> Attachments {
        Attachments { source: AttachmentSource::Folder(folder.as_ref().to_owned()), bytes_max: BYTES_MAX }
    }

    /// Loads attachments with `find`, by hash.
    pub fn found_by<F, Fut>(find: F) -> Attachments
    where
        F: Fn(String) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Option<Vec<u8>>, Failure>> + Send + 'static,
    {
        Attachments { source: AttachmentSource::Other(Arc::new(move |hash| Box::pin(find(hash)))), bytes_max: BYTES_MAX }
    }

    /// Limits the bytes of attachments in one request; default 20 MiB. The others are described to the model as too large.
    pub fn bytes_max(self, bytes_max: usize) -> Attachments {
        Attachments { bytes_max, ..self }
    }

    async fn find(&self, hash: &str, bytes_max: usize) -> Result<AttachmentLookup, Failure> {
        if !names_attachment(hash) {
            return Ok(AttachmentLookup::Nothing);
        }
        let found = match &self.source {
            AttachmentSource::Folder(folder) => {
                let (folder, hash) = (folder.clone(), hash.to_owned());
                tokio::task::spawn_blocking(move || read(&folder, &hash, bytes_max)).await??
            }
            AttachmentSource::Other(find) => {
                find(hash.to_owned()).await?.map_or(AttachmentLookup::Nothing, AttachmentLookup::Bytes)
            }
        };
        Ok(match found {
            AttachmentLookup::Bytes(bytes) if bytes.len() > bytes_max => AttachmentLookup::TooLarge,
            AttachmentLookup::Bytes(bytes) if hash_of(&bytes) != hash => AttachmentLookup::Damaged, // AM3
            found => found,
        })
    }
}

fn hash_of(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn read(folder: &Path, hash: &str, bytes_max: usize) -> std::io::Result<AttachmentLookup> {
    let file = match File::open(folder.join(hash)) {
        Ok(file) if file.metadata()?.is_file() => file,
        Ok(_) => return Ok(AttachmentLookup::Nothing),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(AttachmentLookup::Nothing),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    file.take(bytes_max as u64 + 1).read_to_end(&mut bytes)?;
    Ok(AttachmentLookup::Bytes(bytes))
}

/// Replaces hashes by bytes. A missing or damaged attachment of a new message is an error, because its bytes may still arrive.
/// With `is_late`, or if a model has answered since, it is described in text instead.
pub(super) async fn put_in_place(
    request: &mut ModelRequest,
    attachments: Option<&Attachments>,
    is_late: bool,
) -> Result<(), CallError> {
    let mut blocks: HashMap<String, AttachmentLookup> = HashMap::new();
    let mut remaining = attachments.map_or(0, |attachments| attachments.bytes_max);
    let awaited = if is_late { Vec::new() } else { request.new_hashes() };
    for hash in request.hashes() {
        let found = match attachments {
            Some(attachments) => attachments.find(&hash, remaining).await,
            None => Ok(AttachmentLookup::Nothing),
        };
        let found = found.map_err(|failure| CallError::attachment_unreadable(&hash, &failure.to_string()))?; // AM2
        match &found {
            AttachmentLookup::Bytes(bytes) => remaining -= bytes.len(), // AM1
            AttachmentLookup::Nothing if awaited.contains(&hash) => {
                let why = match attachments {
                    Some(_) => "not found",
                    None => "no attachments are configured in this process",
                };
                return Err(CallError::attachment_missing(&hash, why));
            }
            AttachmentLookup::Damaged if awaited.contains(&hash) => return Err(CallError::attachment_damaged(&hash)),
            AttachmentLookup::Damaged => {
                tracing::warn!(hash, "an attachment is damaged: its stored bytes have another hash; store it again");
            }
            AttachmentLookup::Nothing | AttachmentLookup::TooLarge => {}
        }
        blocks.insert(hash, found);
    }
    request.replace_attachments(|attachment| {
        let Source::Hash(hash) = &attachment.source else { return None };
        Some(match blocks.get(hash)? {
            AttachmentLookup::Bytes(bytes) => {
                Block::Attachment(Attachment { source: Source::bytes(bytes), ..attachment.clone() })
            }
            AttachmentLookup::TooLarge => Block::text(attachment.described("which is too large to be shown")),
            AttachmentLookup::Damaged => {
                Block::text(attachment.described("which is damaged: its bytes are not those that were attached"))
            }
            AttachmentLookup::Nothing => Block::text(attachment.described("which cannot be found")),
        })
    });
    Ok(())
}

#[cfg(test)]
mod tests;

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
use std::future::Future;
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

enum Found {
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

    async fn find(&self, hash: &str, bytes_max: usize) -> Result<Found, Failure> {
        if !names_attachment(hash) {
            return Ok(Found::Nothing);
        }
        let found = match &self.source {
            AttachmentSource::Folder(folder) => {
                let (folder, hash) = (folder.clone(), hash.to_owned());
                tokio::task::spawn_blocking(move || read(&folder, &hash, bytes_max)).await??
            }
            AttachmentSource::Other(find) => find(hash.to_owned()).await?.map_or(Found::Nothing, Found::Bytes),
        };
        Ok(match found {
            Found::Bytes(bytes) if bytes.len() > bytes_max => Found::TooLarge,
            Found::Bytes(bytes) if hash_of(&bytes) != hash => Found::Damaged, // AM3
            found => found,
        })
    }
}

fn hash_of(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn read(folder: &Path, hash: &str, bytes_max: usize) -> std::io::Result<Found> {
    let file = match File::open(folder.join(hash)) {
        Ok(file) if file.metadata()?.is_file() => file,
        Ok(_) => return Ok(Found::Nothing),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Found::Nothing),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    file.take(bytes_max as u64 + 1).read_to_end(&mut bytes)?;
    Ok(Found::Bytes(bytes))
}

/// Replaces hashes by bytes. A missing or damaged attachment of a new message is an error, because its bytes may still arrive.
/// With `is_late`, or if a model has answered since, it is described in text instead.
pub(super) async fn put_in_place(
    request: &mut ModelRequest,
    attachments: Option<&Attachments>,
    is_late: bool,
) -> Result<(), CallError> {
    let mut blocks: HashMap<String, Found> = HashMap::new();
    let mut left = attachments.map_or(0, |attachments| attachments.bytes_max);
    let awaited = if is_late { Vec::new() } else { request.new_hashes() };
    for hash in request.hashes() {
        let found = match attachments {
            Some(attachments) => attachments.find(&hash, left).await,
            None => Ok(Found::Nothing),
        };
        let found = found.map_err(|failure| CallError::attachment_unreadable(&hash, &failure.to_string()))?; // AM2
        match &found {
            Found::Bytes(bytes) => left -= bytes.len(), // AM1
            Found::Nothing if awaited.contains(&hash) => {
                let why = match attachments {
                    Some(_) => "not found",
                    None => "no attachments are configured in this process",
                };
                return Err(CallError::attachment_missing(&hash, why));
            }
            Found::Damaged if awaited.contains(&hash) => return Err(CallError::attachment_damaged(&hash)),
            Found::Damaged => {
                tracing::warn!(hash, "an attachment is damaged: its stored bytes have another hash; store it again");
            }
            Found::Nothing | Found::TooLarge => {}
        }
        blocks.insert(hash, found);
    }
    request.replace_attachments(|attachment| {
        let Source::Hash(hash) = &attachment.source else { return None };
        Some(match blocks.get(hash)? {
            Found::Bytes(bytes) => Block::Attachment(Attachment { source: Source::bytes(bytes), ..attachment.clone() }),
            Found::TooLarge => Block::text(attachment.told("which is too large to be shown")),
            Found::Damaged => Block::text(attachment.told("which is damaged: its bytes are not those that were attached")),
            Found::Nothing => Block::text(attachment.told("which cannot be found")),
        })
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use onward_llm::{Message, Role};

    use super::*;

    fn request(hashes: &[&str]) -> ModelRequest {
        let attachment = |hash: &&str| {
            Block::Attachment(Attachment { media_type: "image/png".into(), source: Source::Hash((*hash).to_owned()) })
        };
        ModelRequest::new("m", vec![Message { role: Role::User, blocks: hashes.iter().map(attachment).collect() }])
    }

    async fn resolved(attachments: &Attachments, hashes: &[&str]) -> Result<String, CallError> {
        let mut request = request(hashes);
        put_in_place(&mut request, Some(attachments), false).await?;
        Ok(serde_json::to_string(&request.messages).unwrap())
    }

    /// AM1.
    #[tokio::test]
    async fn what_is_too_large_is_told_and_the_latest_are_shown() {
        let folder = tempfile::tempdir().unwrap();
        let [a, b, c, huge] = [[1; 6].as_slice(), &[2; 6], &[0; 4], &[0; 11]].map(|bytes| {
            std::fs::write(folder.path().join(hash_of(bytes)), bytes).unwrap();
            hash_of(bytes)
        });
        let attachments = Attachments::folder(folder.path()).bytes_max(10);
        let text = resolved(&attachments, &[&a, &b, &c, &c]).await.unwrap();
        assert!(text.contains(&format!("[an attachment {a} of type image/png, which is too large to be shown]")), "{text}");
        assert_eq!((text.matches(r#""base64":"AAAAAA=="#).count(), text.matches("too large").count()), (2, 1), "{text}");
        let found = Attachments::found_by(|_| async move { Ok(Some(vec![0; 4])) }).bytes_max(3);
        assert!(resolved(&found, &[&c]).await.unwrap().contains("too large"));
        assert!(resolved(&attachments, &[&huge]).await.unwrap().contains("too large"));
    }

    /// AM3.
    #[tokio::test]
    async fn bytes_that_are_not_those_of_their_hash_are_told_as_damaged() {
        let folder = tempfile::tempdir().unwrap();
        let hash = hash_of(b"seven");
        std::fs::write(folder.path().join(&hash), "eleven").unwrap();
        let exchanged = Attachments::found_by(|_| async { Ok(Some(b"eleven".to_vec())) });
        for attachments in [Attachments::folder(folder.path()), exchanged] {
            let error = resolved(&attachments, &[&hash]).await.unwrap_err();
            assert_eq!((error.code(), error.is_retryable()), ("attachment_damaged", true));
            let mut late = request(&[&hash]);
            put_in_place(&mut late, Some(&attachments), true).await.unwrap();
            let told =
                format!("[an attachment {hash} of type image/png, which is damaged: its bytes are not those that were attached]");
            assert_eq!(late.messages[0].blocks, [Block::text(told)]);
        }
    }

    #[tokio::test]
    async fn nothing_but_the_file_of_a_hash_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("inner");
        std::fs::create_dir_all(inner.join("deeper")).unwrap();
        std::fs::write(folder.path().join("secret"), "x").unwrap();
        std::fs::write(inner.join(".hidden"), "x").unwrap();
        let attachments = Attachments::folder(&inner);
        let absolute = folder.path().join("secret").to_str().unwrap().to_owned();
        let (gone, directory) = (hash_of(b"gone"), hash_of(b"directory"));
        std::fs::create_dir(inner.join(&directory)).unwrap();
        for hash in ["../secret", absolute.as_str(), "..", ".", "", "deeper", ".hidden", &gone, &directory, "a\0b"] {
            let error = resolved(&attachments, &[hash]).await.unwrap_err();
            assert_eq!((error.code(), error.is_retryable()), ("attachment_missing", true), "{hash}");
            assert!(error.to_string().contains("not found"), "{error}");
            let mut late = request(&[hash]);
            put_in_place(&mut late, Some(&attachments), true).await.unwrap();
            assert_eq!(
                late.messages[0].blocks,
                [Block::text(format!("[an attachment {hash} of type image/png, which cannot be found]"))]
            );
        }
    }

    #[tokio::test]
    async fn whoever_was_not_told_where_attachments_are_says_so() {
        let error = put_in_place(&mut request(&["ab"]), None, false).await.unwrap_err();
        assert!(error.to_string().contains("ab: no attachments are configured in this process"), "{error}");
    }

    /// AM2.
    #[tokio::test]
    async fn what_cannot_be_read_now_is_not_told_as_missing() {
        let down = Attachments::found_by(|_| async { Err(Failure::new("down", "gone fishing")) });
        for is_late in [false, true] {
            let error = put_in_place(&mut request(&[&hash_of(b"ab")]), Some(&down), is_late).await.unwrap_err();
            assert_eq!((error.code(), error.is_retryable()), ("attachment_unreadable", true));
        }
    }
}

//! Where attachments are that messages name by their hash, and how they get into a request.
//!
//! Owns how much of them a request may have. Must never read anything but the file of a hash, whatever a message calls a hash.
//!
//! Invariants:
//! - AM1: a request never has more than a limit of such attachments: what is left over is told instead of shown, the oldest first.
//! - AM2: what nobody has is told as missing; what cannot be read now is not, because nobody knows whether it is there.

use std::collections::HashMap;
use std::fs::File;
use std::future::Future;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use onward_core::Failure;
use onward_llm::{Attachment, Block, CallError, ModelRequest, Source};

/// Providers take some 30 MB, written as text.
const BYTES_MAX: usize = 20 * 1024 * 1024;

/// The longest name of a file that is looked for.
const HASH_BYTES_MAX: usize = 128;

/// Where attachments are that messages name by their hash: `{"type": "attachment", "media_type": "image/png", "source": {"hash": "…"}}`.
#[derive(Clone)]
pub struct Attachments {
    place: Place,
    bytes_max: usize,
}

#[derive(Clone)]
enum Place {
    Folder(PathBuf),
    Other(Arc<dyn Fn(String) -> Finding + Send + Sync>),
}

type Finding = Pin<Box<dyn Future<Output = Result<Option<Vec<u8>>, Failure>> + Send>>;

enum Found {
    Bytes(Vec<u8>),
    TooLarge,
    Nothing,
}

impl Attachments {
    /// Files in a folder, each named as its hash: letters, digits, `-`, `_` and `.`, which it does not begin with.
    pub fn folder(folder: impl AsRef<Path>) -> Attachments {
        Attachments { place: Place::Folder(folder.as_ref().to_owned()), bytes_max: BYTES_MAX }
    }

    /// Whatever `find` has for a hash.
    pub fn found_by<F, Fut>(find: F) -> Attachments
    where
        F: Fn(String) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Option<Vec<u8>>, Failure>> + Send + 'static,
    {
        Attachments { place: Place::Other(Arc::new(move |hash| Box::pin(find(hash)))), bytes_max: BYTES_MAX }
    }

    /// How much of them one request may have, 20 MiB otherwise. A model is told of the others that they are too large.
    pub fn bytes_max(self, bytes_max: usize) -> Attachments {
        Attachments { bytes_max, ..self }
    }

    async fn find(&self, hash: &str, bytes_max: usize) -> Result<Found, Failure> {
        let found = match &self.place {
            Place::Folder(folder) => {
                let (folder, hash) = (folder.clone(), hash.to_owned());
                tokio::task::spawn_blocking(move || read(&folder, &hash, bytes_max)).await??
            }
            Place::Other(find) => find(hash.to_owned()).await?.map_or(Found::Nothing, Found::Bytes),
        };
        Ok(match found {
            Found::Bytes(bytes) if bytes.len() > bytes_max => Found::TooLarge,
            found => found,
        })
    }
}

fn read(folder: &Path, hash: &str, bytes_max: usize) -> std::io::Result<Found> {
    let is_plain = hash.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    if !is_plain || hash.is_empty() || hash.starts_with('.') || hash.len() > HASH_BYTES_MAX {
        return Ok(Found::Nothing);
    }
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

/// Puts bytes in the place of hashes. What is missing is an error where its message has just come, for its bytes may come a little later;
/// not if `is_late`, and not where a model has answered since: then there was time for them.
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
                    Some(_) => "there is nothing of that name",
                    None => "this process was not told where attachments are",
                };
                return Err(CallError::attachment_missing(&hash, why));
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
        for (name, bytes) in [("a", 6), ("b", 6), ("c", 4), ("huge", 11)] {
            std::fs::write(folder.path().join(name), vec![0; bytes]).unwrap();
        }
        let attachments = Attachments::folder(folder.path()).bytes_max(10);
        let text = resolved(&attachments, &["a", "b", "c", "c"]).await.unwrap();
        assert!(text.contains("[an attachment a of type image/png, which is too large to be shown]"), "{text}");
        assert_eq!((text.matches(r#""base64":"AAAAAA=="#).count(), text.matches("too large").count()), (2, 1), "{text}");
        let found = Attachments::found_by(|hash| async move { Ok(Some(vec![0; hash.len()])) }).bytes_max(3);
        assert!(resolved(&found, &["four"]).await.unwrap().contains("too large"));
        assert!(resolved(&attachments, &["huge"]).await.unwrap().contains("too large"));
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
        for hash in ["../secret", absolute.as_str(), "..", ".", "", "deeper", ".hidden", "gone", "a\0b"] {
            let error = resolved(&attachments, &[hash]).await.unwrap_err();
            assert_eq!((error.code(), error.is_retryable()), ("attachment_missing", true), "{hash}");
            assert!(error.to_string().contains("there is nothing of that name"), "{error}");
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
        assert!(error.to_string().contains("ab: this process was not told where attachments are"), "{error}");
    }

    /// AM2.
    #[tokio::test]
    async fn what_cannot_be_read_now_is_not_told_as_missing() {
        let down = Attachments::found_by(|_| async { Err(Failure::new("down", "gone fishing")) });
        for is_late in [false, true] {
            let error = put_in_place(&mut request(&["ab"]), Some(&down), is_late).await.unwrap_err();
            assert_eq!((error.code(), error.is_retryable()), ("attachment_unreadable", true));
        }
    }
}

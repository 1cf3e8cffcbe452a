//! The actions `read` and `write`: files below one folder.
//!
//! Paths are relative and have no `..`. Links are resolved before a file is opened, and the result must be below the folder. A
//! program that changes links in the folder at the same moment is not defended against: only the operator's programs may write
//! there.

use std::io::{ErrorKind, Read as _, Write as _};
use std::path::{Component, Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use onward_core::Failure;
use onward_store::sync::random_u64;
use serde::Deserialize;
use serde_json::{Value, json};

use super::invalid;
use crate::Result;

/// The largest file that is read or written.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The most parts of a path. Writing makes a folder for each one but the last.
const PATH_PARTS_MAX: usize = 64;

/// The folder of documents.
#[derive(Debug)]
pub(crate) struct Documents {
    /// Without links.
    root: PathBuf,
}

/// The folder of documents that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the folder `{}` for documents of flows cannot be used: {why}", path.display())]
pub struct DocumentsError {
    path: PathBuf,
    why: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadArguments {
    path: String,
    #[serde(default, rename = "as")]
    form: Form,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Form {
    #[default]
    Text,
    Json,
    Base64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WriteArguments {
    path: String,
    text: Option<String>,
    json: Option<Value>,
}

impl Documents {
    pub fn new(folder: &Path) -> Result<Documents, DocumentsError> {
        let wrong = |why: String| DocumentsError { path: folder.to_owned(), why };
        let root = folder.canonicalize().map_err(|error| wrong(error.to_string()))?;
        if root.is_dir() { Ok(Documents { root }) } else { Err(wrong("it is not a folder".to_owned())) }
    }

    /// Returns the failure of an action where no folder is named.
    pub fn none() -> Failure {
        let message =
            "flows may not use files here: name a folder with `Builder::flow_documents` or the setting `flows.documents`";
        Failure::fatal(message).with_code("documents_not_allowed")
    }

    pub(super) async fn read(&self, ReadArguments { path, form }: ReadArguments) -> Result<Value> {
        let (root, shown) = (self.root.clone(), path.clone());
        let bytes = blocking(move || read(&root, &path)).await?;
        let text = |bytes| String::from_utf8(bytes).map_err(|_| unreadable(&shown, "it is not UTF-8; read it as base64"));
        match form {
            Form::Text => Ok(text(bytes)?.into()),
            Form::Json => super::parse(&text(bytes)?),
            Form::Base64 => Ok(BASE64_STANDARD.encode(bytes).into()),
        }
    }

    /// Writes a file; returns `{path, bytes}`.
    pub(super) async fn write(&self, WriteArguments { path, text, json }: WriteArguments) -> Result<Value> {
        let content = match (text, json) {
            (Some(text), None) => text,
            (None, Some(json)) => serde_json::to_string_pretty(&json)?,
            _ => return Err(invalid("give either `text` or `json`")),
        };
        let root = self.root.clone();
        blocking(move || write(&root, &path, content.as_bytes())).await
    }
}

/// Runs work on files on a thread that may block.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(Failure::retryable(error.to_string())))
}

/// Returns the parts of a relative path that stays below its beginning.
fn parts(path: &str) -> Result<Vec<&std::ffi::OsStr>> {
    let wrong = || invalid(format!("`{path}` is not a path below the folder of documents")).with_code("path_not_allowed");
    let parts = Path::new(path).components().map(|component| match component {
        Component::Normal(part) => Ok(part),
        _ => Err(wrong()),
    });
    let parts: Vec<_> = parts.collect::<Result<_>>()?;
    // A path that ends with a slash or a dot names a folder.
    let is_file = !parts.is_empty() && !path.ends_with(['/', '.']) && !path.contains('\0');
    match parts.len() {
        _ if !is_file => Err(wrong()),
        0..=PATH_PARTS_MAX => Ok(parts),
        many => Err(invalid(format!("the path has {many} parts, more than {PATH_PARTS_MAX}"))),
    }
}

/// Resolves links and checks that the result is below the folder (FP3).
fn resolved(root: &Path, path: &Path, shown: &str) -> Result<PathBuf> {
    let resolved = path.canonicalize().map_err(|error| io_failure(shown, &error))?;
    if resolved.starts_with(root) {
        return Ok(resolved);
    }
    let message = format!("`{shown}` is a link that leads out of the folder of documents");
    Err(Failure::fatal(message).with_code("path_not_allowed"))
}

fn read(root: &Path, path: &str) -> Result<Vec<u8>> {
    let file = resolved(root, &parts(path)?.iter().fold(root.to_owned(), |file, part| file.join(part)), path)?;
    // Opening a pipe waits until another program writes to it.
    if !file.metadata().map_err(|error| io_failure(path, &error))?.is_file() {
        return Err(unreadable(path, "it is not a file"));
    }
    let file = std::fs::File::open(file).map_err(|error| io_failure(path, &error))?;
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| io_failure(path, &error))?;
    if bytes.len() as u64 > FILE_BYTES_MAX { Err(too_large(path)) } else { Ok(bytes) }
}

fn write(root: &Path, path: &str, content: &[u8]) -> Result<Value> {
    if content.len() as u64 > FILE_BYTES_MAX {
        return Err(too_large(path));
    }
    let parts = parts(path)?;
    let Some((name, folders)) = parts.split_last() else { return Err(unreadable(path, "it has no name")) };
    let mut folder = root.to_owned();
    for part in folders {
        // Each one is checked before anything is made in it.
        let next = folder.join(part);
        match std::fs::create_dir(&next) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(io_failure(path, &error)),
            _ => folder = resolved(root, &next, path)?,
        }
    }
    let unfinished = folder.join(format!(".onward-{:016x}", random_u64()));
    let written = write_whole(&unfinished, &folder.join(name), content);
    written.map_err(|error| {
        drop(std::fs::remove_file(&unfinished)); // it may not exist
        io_failure(path, &error)
    })?;
    Ok(json!({"path": path, "bytes": content.len()}))
}

/// Writes a new file and moves it into place, so that a reader sees the old content or the new one. A link is replaced.
fn write_whole(unfinished: &Path, place: &Path, content: &[u8]) -> std::io::Result<()> {
    let mut file = std::fs::File::create_new(unfinished)?;
    file.write_all(content)?;
    file.sync_all()?;
    std::fs::rename(unfinished, place)
}

fn io_failure(path: &str, error: &std::io::Error) -> Failure {
    let final_code = match error.kind() {
        ErrorKind::NotFound => Some("document_not_found"),
        ErrorKind::NotADirectory | ErrorKind::IsADirectory | ErrorKind::PermissionDenied | ErrorKind::InvalidFilename => {
            Some("document_unusable")
        }
        _ => None,
    };
    let message = format!("the document `{path}`: {error}");
    match final_code {
        Some(code) => Failure::fatal(message).with_code(code),
        None => Failure::new("document_unusable", message),
    }
}

fn unreadable(path: &str, why: &str) -> Failure {
    Failure::fatal(format!("the document `{path}` cannot be used: {why}")).with_code("document_unusable")
}

fn too_large(path: &str) -> Failure {
    Failure::fatal(format!("the document `{path}` has more than {FILE_BYTES_MAX} bytes")).with_code("document_too_large")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code<T: std::fmt::Debug>(result: Result<T>) -> String {
        result.unwrap_err().code
    }

    #[test]
    fn a_written_document_is_read_again_and_replaced_as_a_whole() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        assert_eq!(write(&root, "a/b/c.txt", b"one").unwrap(), json!({"path": "a/b/c.txt", "bytes": 3}));
        write(&root, "a/b/c.txt", b"two").unwrap();
        assert_eq!(read(&root, "a/b/c.txt").unwrap(), b"two");
        let names: Vec<_> = std::fs::read_dir(root.join("a/b")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["c.txt"], "nothing unfinished is left");
    }

    #[test]
    fn no_path_leads_out_of_the_folder() {
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("secret"), "s").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        for path in ["", ".", "..", "../x", "a/../../x", "/etc/passwd", "a/", "a/.", "./../x", "a\0b"] {
            assert_eq!(code(read(&root, path)), "path_not_allowed", "{path:?}");
            assert_eq!(code(write(&root, path, b"x")), "path_not_allowed", "{path:?}");
        }
        std::os::unix::fs::symlink(outside.path(), root.join("link")).unwrap();
        std::os::unix::fs::symlink(outside.path().join("secret"), root.join("file")).unwrap();
        assert_eq!(code(read(&root, "link/secret")), "path_not_allowed");
        assert_eq!(code(read(&root, "file")), "path_not_allowed");
        assert_eq!(code(write(&root, "link/new/x", b"x")), "path_not_allowed");
        assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1, "nothing was made outside");
        // A link in the place of the file is replaced; what it led to stays.
        write(&root, "file", b"mine").unwrap();
        assert_eq!(std::fs::read(outside.path().join("secret")).unwrap(), b"s");
        assert_eq!(read(&root, "file").unwrap(), b"mine");
        std::fs::create_dir(root.join("inside")).unwrap();
        std::os::unix::fs::symlink(root.join("inside"), root.join("alias")).unwrap();
        write(&root, "alias/x", b"x").unwrap();
        assert_eq!(read(&root, "inside/x").unwrap(), b"x", "a link that stays below the folder may be used");
    }

    #[test]
    fn missing_and_large_documents_are_final_failures() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        assert_eq!(code(read(&root, "none")), "document_not_found");
        std::fs::create_dir(root.join("folder")).unwrap();
        assert_eq!(code(read(&root, "folder")), "document_unusable");
        assert_eq!(code(write(&root, "big", &vec![0; (1 << 20) + 1])), "document_too_large");
        std::fs::write(root.join("big"), vec![0; (1 << 20) + 1]).unwrap();
        assert_eq!(code(read(&root, "big")), "document_too_large");
        assert!(Documents::new(&root.join("none")).is_err());
    }

    #[test]
    fn a_path_has_64_parts_at_most() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let path = |parts| vec!["d"; parts].join("/");
        assert_eq!(code(write(&root, &path(65), b"x")), "invalid_arguments");
        assert_eq!(code(read(&root, &path(65))), "invalid_arguments");
        assert_eq!(std::fs::read_dir(&root).unwrap().count(), 0, "nothing was made");
        write(&root, &path(64), b"x").unwrap();
        assert_eq!(read(&root, &path(64)).unwrap(), b"x");
    }

    #[test]
    fn a_pipe_is_refused_before_it_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        assert!(std::process::Command::new("mkfifo").arg(root.join("pipe")).status().unwrap().success());
        let (send, receive) = std::sync::mpsc::channel();
        std::thread::spawn(move || send.send(read(&root, "pipe")));
        let refused = receive.recv_timeout(std::time::Duration::from_secs(120)).expect("the pipe is not opened");
        assert_eq!(code(refused), "document_unusable");
    }
}

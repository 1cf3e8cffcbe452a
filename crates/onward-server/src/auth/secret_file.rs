//! File with secrets or their hashes: a list of entries that is read and replaced as a whole.
//!
//! A change is written to another name, synced and renamed, so that a reader sees either the old or the new file. A writer holds
//! the lock file beside it, so that concurrent changes are not lost. The file is created for its owner only and is refused if
//! others may write it. [`FollowedFile`] reads the file again after a change: it is checked when a request arrives, at most once
//! a second, so a change is in force within seconds and no background task is needed.
//!
//! Errors contain a position in the file and never its text, which may be a secret (G4, HK4).

use std::collections::{BTreeSet, HashMap};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::marker::PhantomData;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use onward_core::{ErrorCode, Name};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::auth::keys::KeyEntry;
use crate::trace::{Level, Trace};

/// Maximum size of a file that is read.
const FILE_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// Version of the file format; there is only one.
const VERSION: u32 = 1;

/// Maximum age of the entries in memory when a request arrives.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Entry of a secret file.
pub trait SecretEntry: Clone + Serialize + DeserializeOwned {
    /// Name of an entry in messages: `key` or `webhook`.
    const NOUN: &'static str;

    /// Returns the text that identifies the entry in its file.
    fn id(&self) -> &str;
}

/// Reason why a secret file cannot be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum SecretFileError {
    #[error("the {noun} file {} is not usable: {why}", path.display())]
    Unusable { noun: &'static str, path: PathBuf, why: String, missing: bool },
    #[error("the {noun} file {} cannot be written", path.display())]
    NotWritten { noun: &'static str, path: PathBuf, source: std::io::Error },
    #[error("key {id} not found")]
    KeyNotFound { id: String },
    #[error("the key {id} is {state}")]
    KeyEnded { id: String, state: &'static str },
    #[error("webhook `{name}` not found")]
    WebhookNotFound { name: Name },
    #[error("webhook `{name}` exists already")]
    WebhookExists { name: Name },
    #[error("the secret is not usable: {why}")]
    WebhookSecretInvalid { why: &'static str },
}

impl SecretFileError {
    /// Returns the row of the error table.
    fn row(&self) -> ErrorCode {
        match self {
            SecretFileError::Unusable { noun: KeyEntry::NOUN, .. } => ErrorCode::KeyFileUnusable,
            SecretFileError::Unusable { .. } => ErrorCode::WebhookFileUnusable,
            SecretFileError::NotWritten { noun: KeyEntry::NOUN, .. } => ErrorCode::KeyFileNotWritten,
            SecretFileError::NotWritten { .. } => ErrorCode::WebhookFileNotWritten,
            SecretFileError::KeyNotFound { .. } => ErrorCode::KeyNotFound,
            SecretFileError::KeyEnded { .. } => ErrorCode::KeyEnded,
            SecretFileError::WebhookNotFound { .. } => ErrorCode::WebhookNotFound,
            SecretFileError::WebhookExists { .. } => ErrorCode::WebhookExists,
            SecretFileError::WebhookSecretInvalid { .. } => ErrorCode::WebhookSecretInvalid,
        }
    }

    /// Returns the stable error code, which `docs/errors` describes.
    pub fn code(&self) -> &'static str {
        self.row().as_str()
    }

    pub fn hint(&self) -> Option<&'static str> {
        match self {
            SecretFileError::Unusable { noun: KeyEntry::NOUN, missing: true, .. } => Some("create it with `onward key create`"),
            SecretFileError::Unusable { missing: true, .. } => Some("create it with `onward webhook create`"),
            _ => self.row().hint(),
        }
    }

    /// Returns whether the file does not exist.
    pub fn is_missing(&self) -> bool {
        matches!(self, SecretFileError::Unusable { missing: true, .. })
    }
}

/// Metadata by which a change is detected. A changed file has another inode, because it was renamed into place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(file: &std::fs::Metadata) -> Stamp {
        Stamp {
            device: file.dev(),
            inode: file.ino(),
            size: file.size(),
            modified: (file.mtime(), file.mtime_nsec()),
            changed: (file.ctime(), file.ctime_nsec()),
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SecretDocument<E> {
    version: u32,
    entries: Vec<E>,
}

/// Reader and writer of a secret file.
#[derive(Debug, Clone)]
pub struct SecretFile<E> {
    path: PathBuf,
    entries: PhantomData<fn() -> E>,
}

impl<E: SecretEntry> SecretFile<E> {
    pub fn at(path: impl Into<PathBuf>) -> SecretFile<E> {
        SecretFile { path: path.into(), entries: PhantomData }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path with `suffix` appended to its name.
    pub(crate) fn beside(&self, suffix: &str) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(suffix);
        name.into()
    }

    pub fn read(&self) -> Result<Vec<E>, SecretFileError> {
        self.read_with_stamp().map(|(entries, _)| entries)
    }

    fn stamp(&self) -> Result<Stamp, SecretFileError> {
        std::fs::metadata(&self.path).map(|file| Stamp::of(&file)).map_err(|error| self.unreadable(&error))
    }

    fn read_with_stamp(&self) -> Result<(Vec<E>, Stamp), SecretFileError> {
        let unreadable = |error| self.unreadable(&error);
        // Reading something else, such as a pipe, may block or never end.
        if !std::fs::metadata(&self.path).map_err(unreadable)?.is_file() {
            return Err(self.unusable("it is not a regular file"));
        }
        let mut file = File::open(&self.path).map_err(unreadable)?;
        let metadata = file.metadata().map_err(unreadable)?;
        // Write access to the file is enough to add an entry.
        if metadata.mode() & 0o022 != 0 {
            return Err(self.unusable("it is writable by others; run chmod 600"));
        }
        if metadata.size() > FILE_BYTES_MAX {
            return Err(self.unusable("it is too large"));
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(unreadable)?;
        Ok((self.parse(&bytes)?, Stamp::of(&metadata)))
    }

    pub(crate) fn parse(&self, bytes: &[u8]) -> Result<Vec<E>, SecretFileError> {
        // The message of serde_json would quote the unexpected text.
        let wrong = |error: serde_json::Error| {
            self.unusable(&format!("line {} column {} does not match the format", error.line(), error.column()))
        };
        let SecretDocument::<E> { version, entries } = serde_json::from_slice(bytes).map_err(wrong)?;
        if version != VERSION {
            return Err(self.unusable(&format!("it has version {version}; this program supports version {VERSION}")));
        }
        let ids: BTreeSet<&str> = entries.iter().map(SecretEntry::id).collect();
        if ids.len() != entries.len() {
            return Err(self.unusable("two entries are the same"));
        }
        Ok(entries)
    }

    /// Changes the entries under the lock and replaces the file atomically and durably. Creates a missing file and its directory
    /// if `may_make` is set. Writes nothing if `change` fails.
    pub(crate) fn change<T>(
        &self,
        may_make: bool,
        change: impl FnOnce(&mut Vec<E>) -> Result<T, SecretFileError>,
    ) -> Result<T, SecretFileError> {
        let _lock = self.lock(may_make)?;
        let mut entries = match self.read() {
            Err(error) if may_make && error.is_missing() => Vec::new(),
            entries => entries?,
        };
        let changed = change(&mut entries)?;
        write_whole(&self.path, &self.beside(".new"), format(&entries).as_bytes()).map_err(|source| self.not_written(source))?;
        Ok(changed)
    }

    /// Waits for the exclusive lock, which is held until the returned file is dropped. Fails if the file is missing, unless
    /// `may_make`.
    fn lock(&self, may_make: bool) -> Result<File, SecretFileError> {
        if may_make {
            make_directory(&self.path).map_err(|source| self.not_written(source))?;
        } else {
            self.stamp()?;
        }
        let lock = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(self.beside(".lock"));
        let lock = lock.map_err(|source| self.not_written(source))?;
        lock.lock().map_err(|source| self.not_written(source))?;
        Ok(lock)
    }

    fn unusable(&self, why: &str) -> SecretFileError {
        SecretFileError::Unusable { noun: E::NOUN, path: self.path.clone(), why: why.to_owned(), missing: false }
    }

    fn unreadable(&self, error: &std::io::Error) -> SecretFileError {
        let missing = error.kind() == ErrorKind::NotFound;
        let why = if missing { "it does not exist".to_owned() } else { error.to_string() };
        SecretFileError::Unusable { noun: E::NOUN, path: self.path.clone(), why, missing }
    }

    fn not_written(&self, source: std::io::Error) -> SecretFileError {
        SecretFileError::NotWritten { noun: E::NOUN, path: self.path.clone(), source }
    }
}

/// Formats entries as the text of a file.
pub(crate) fn format<E: SecretEntry>(entries: &[E]) -> String {
    let document = SecretDocument { version: VERSION, entries: entries.to_vec() };
    serde_json::to_string_pretty(&document).expect("entries serialize") + "\n"
}

/// State of a secret file.
pub(crate) enum FileState<E> {
    /// There is no file.
    Absent,
    /// Entries by their ids.
    Entries(HashMap<String, E>),
    /// The file cannot be read or parsed.
    Broken(String),
}

impl<E: SecretEntry> FileState<E> {
    fn of(entries: Vec<E>) -> FileState<E> {
        FileState::Entries(entries.into_iter().map(|entry| (entry.id().to_owned(), entry)).collect())
    }
}

/// Secret file whose entries are in memory and are read again after a change.
pub(crate) struct FollowedFile<E> {
    file: SecretFile<E>,
    trace: Trace,
    /// A file that existed may be removed; otherwise it is broken then.
    may_vanish: bool,
    cached: Mutex<CachedFile<E>>,
}

struct CachedFile<E> {
    state: Arc<FileState<E>>,
    /// Metadata of the file when it was read.
    stamp: Option<Stamp>,
    /// Time of the last check; `None` before the first request.
    checked_at: Option<Instant>,
}

impl<E: SecretEntry> FollowedFile<E> {
    /// Reads the file, which may be missing if `may_be_missing` is set. Fails if it is not usable.
    pub fn open(file: SecretFile<E>, may_be_missing: bool, may_vanish: bool, trace: Trace) -> Result<Self, SecretFileError> {
        let (state, stamp) = match file.read_with_stamp() {
            Err(error) if may_be_missing && error.is_missing() => (FileState::Absent, None),
            read => read.map(|(entries, stamp)| (FileState::of(entries), Some(stamp)))?,
        };
        let cached = CachedFile { state: Arc::new(state), stamp, checked_at: None };
        Ok(FollowedFile { file, trace, may_vanish, cached: Mutex::new(cached) })
    }

    /// Returns the entries as of at most a second ago. A check is one `stat` call, which blocks for microseconds.
    pub fn current(&self) -> Arc<FileState<E>> {
        let mut cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        if cached.checked_at.is_none_or(|checked_at| checked_at.elapsed() >= CHECK_INTERVAL) {
            cached.checked_at = Some(Instant::now());
            self.reload_if_changed(&mut cached);
        }
        cached.state.clone()
    }

    fn reload_if_changed(&self, cached: &mut CachedFile<E>) {
        let is_broken = matches!(*cached.state, FileState::Broken(_));
        match self.file.stamp() {
            Err(error) if error.is_missing() && (self.may_vanish || matches!(*cached.state, FileState::Absent)) => {
                (cached.state, cached.stamp) = (Arc::new(FileState::Absent), None);
                return;
            }
            Ok(stamp) if !is_broken && cached.stamp.as_ref() == Some(&stamp) => return,
            _ => {}
        }
        match self.file.read_with_stamp() {
            Ok((entries, stamp)) => {
                self.trace.log(Level::Info, &format!("{}s read", E::NOUN), &[("count", &entries.len())]);
                (cached.state, cached.stamp) = (Arc::new(FileState::of(entries)), Some(stamp));
            }
            Err(error) => {
                let why = error.to_string();
                // Logged once per reason, as the file is checked every second.
                if !matches!(&*cached.state, FileState::Broken(before) if *before == why) {
                    let message = format!("the {} file is not usable; all requests that need it are refused", E::NOUN);
                    self.trace.log(Level::Error, &message, &[("error", &why)]);
                }
                (cached.state, cached.stamp) = (Arc::new(FileState::Broken(why)), None);
            }
        }
    }
}

pub(crate) fn make_directory(file: &Path) -> std::io::Result<()> {
    let directory = directory_of(file);
    if directory.is_dir() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

fn directory_of(file: &Path) -> &Path {
    file.parent().filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Replaces a file atomically and durably, through the temporary file `unfinished`.
pub(crate) fn write_whole(path: &Path, unfinished: &Path, bytes: &[u8]) -> std::io::Result<()> {
    // A temporary file that a crash left may have another mode.
    match std::fs::remove_file(unfinished) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(unfinished)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(unfinished, path)?;
    File::open(directory_of(path))?.sync_all()
}

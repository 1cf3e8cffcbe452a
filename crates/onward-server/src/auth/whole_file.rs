//! Small file that is read and replaced as a whole.
//!
//! A change is written to another name, synced and renamed, so that a reader sees either the old or the new file. A writer holds
//! the lock file beside it, so that concurrent changes are not lost. The file is created for its owner only and is refused if
//! others may write it.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Maximum size of a file that is read.
const FILE_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// Reason why the file cannot be read or written.
#[derive(Debug)]
pub(crate) enum FileTrouble {
    Unusable { why: String, missing: bool },
    NotWritten(std::io::Error),
}

impl FileTrouble {
    pub fn unusable(why: impl Into<String>) -> FileTrouble {
        FileTrouble::Unusable { why: why.into(), missing: false }
    }

    fn unreadable(error: &std::io::Error) -> FileTrouble {
        let missing = error.kind() == ErrorKind::NotFound;
        let why = if missing { "it does not exist".to_owned() } else { error.to_string() };
        FileTrouble::Unusable { why, missing }
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

#[derive(Debug, Clone)]
pub(crate) struct WholeFile {
    path: PathBuf,
}

impl WholeFile {
    pub fn at(path: impl Into<PathBuf>) -> WholeFile {
        WholeFile { path: path.into() }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path with `suffix` appended to its name.
    pub fn beside(&self, suffix: &str) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(suffix);
        name.into()
    }

    pub fn stamp(&self) -> Result<Stamp, FileTrouble> {
        std::fs::metadata(&self.path).map(|file| Stamp::of(&file)).map_err(|error| FileTrouble::unreadable(&error))
    }

    pub fn read(&self) -> Result<(Vec<u8>, Stamp), FileTrouble> {
        let unreadable = |error| FileTrouble::unreadable(&error);
        // Reading something else, such as a pipe, may block or never end.
        if !std::fs::metadata(&self.path).map_err(unreadable)?.is_file() {
            return Err(FileTrouble::unusable("it is not a regular file"));
        }
        let mut file = File::open(&self.path).map_err(unreadable)?;
        let metadata = file.metadata().map_err(unreadable)?;
        // Write access to the file is enough to add a key.
        if metadata.mode() & 0o022 != 0 {
            return Err(FileTrouble::unusable("it is writable by others; run chmod 600"));
        }
        if metadata.size() > FILE_BYTES_MAX {
            return Err(FileTrouble::unusable("it is too large"));
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(unreadable)?;
        Ok((bytes, Stamp::of(&metadata)))
    }

    /// Waits for the exclusive lock, which is held until the returned file is dropped. Fails if the file is missing, unless
    /// `may_make`.
    pub fn lock(&self, may_make: bool) -> Result<File, FileTrouble> {
        if may_make {
            make_directory(&self.path).map_err(FileTrouble::NotWritten)?;
        } else {
            self.stamp()?;
        }
        let lock = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(self.beside(".lock"));
        let lock = lock.map_err(FileTrouble::NotWritten)?;
        lock.lock().map_err(FileTrouble::NotWritten)?;
        Ok(lock)
    }

    /// Replaces the file atomically and durably. The caller holds the lock.
    pub fn write(&self, bytes: &[u8]) -> Result<(), FileTrouble> {
        write_whole(&self.path, &self.beside(".new"), bytes).map_err(FileTrouble::NotWritten)
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

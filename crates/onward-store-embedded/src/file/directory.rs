//! The data directory: its permitted content and its lock.
//!
//! Owns the lock file and the order of opening: inspect, lock, create. Must never write into a directory that is foreign, was
//! written by a newer program, or is locked by another process.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};

use onward_store::StoreError;

use crate::file::failpoint;
use crate::file::lease_file::LEASES;
use crate::file::schema::{self, DATABASE, FORMAT, FileKind, LOCK, UNFINISHED, io_error, unusable};
use crate::file::synced::SYNCED;
use crate::repair::rebuild;

/// Name prefixes of a server's key and webhook files and their companions, which may exist before the first run.
const SERVER_FILES: [&str; 2] = ["onward.keys.json", "onward.webhooks.json"];

/// A directory that only this process may write to while this value lives. The kernel releases it when the process dies.
#[derive(Debug)]
pub(crate) struct Directory {
    pub path: PathBuf,
    _lock: Lock,
}

/// The lock of a directory, released on drop.
#[derive(Debug)]
pub(crate) struct Lock(File);

impl Drop for Lock {
    /// Unlocks the file explicitly: a process that was just forked also has it open until it executes its program.
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

impl Directory {
    pub fn open(path: &Path) -> Result<Directory, StoreError> {
        if rebuild::is_unfinished(path) {
            let _lock = lock(path)?;
            rebuild::finish(path)?;
        }
        check(path)?;
        make_directory(path)?;
        let lock = lock(path)?;
        // Another process may have written before the lock was acquired.
        if check(path)? == FileKind::Nothing {
            make_database(path)?;
        }
        restrict_files(path);
        Ok(Directory { path: path.to_owned(), _lock: lock })
    }
}

/// Returns whether there is a database that this program can read, without changing a byte.
pub(crate) fn check(path: &Path) -> Result<FileKind, StoreError> {
    // Usually an unset setting, which does not mean the current directory.
    if path.as_os_str().is_empty() {
        let why = "a directory needs a name; use `.` for the current one".to_owned();
        return Err(StoreError::DirectoryUnusable { path: PathBuf::from("the empty path"), why });
    }
    let found = schema::inspect(&schema::database(path))?;
    match found {
        FileKind::Ours { format } if format > FORMAT => {
            Err(StoreError::DirectoryNewer { path: path.to_owned(), found: format, supported: FORMAT })
        }
        FileKind::Ours { format } if format < FORMAT => {
            let why = format!("it has format {format}, and this program reads format {FORMAT} only");
            Err(StoreError::DirectoryUnusable { path: path.to_owned(), why })
        }
        FileKind::Ours { .. } => Ok(found),
        FileKind::Foreign(why) => {
            let why = format!("its {DATABASE} {why}");
            Err(StoreError::DirectoryForeign { path: path.to_owned(), why })
        }
        FileKind::Nothing => {
            refuse_unknown_files(path)?;
            Ok(found)
        }
    }
}

/// Fails if a directory without a database contains unknown files.
fn refuse_unknown_files(path: &Path) -> Result<(), StoreError> {
    let entries = match std::fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => {
            return Err(StoreError::DirectoryForeign { path: path.to_owned(), why: "it is a file".to_owned() });
        }
        Err(error) => return Err(unusable(path, &error)),
    };
    for entry in entries {
        let name = entry.map_err(|error| io_error(path, &error))?.file_name();
        let name = name.to_string_lossy();
        let is_server_file = SERVER_FILES.iter().any(|prefix| name.starts_with(prefix));
        let known = name == LOCK || name.starts_with(UNFINISHED) || is_server_file || name == "lost+found";
        if !known {
            return Err(StoreError::DirectoryForeign { path: path.to_owned(), why: format!("it contains `{name}`") });
        }
    }
    Ok(())
}

fn make_directory(path: &Path) -> Result<(), StoreError> {
    if path.is_dir() {
        return Ok(());
    }
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path).map_err(|error| unusable(path, &error))?;
    path.parent().map_or(Ok(()), sync_directory)
}

/// Mode of every file: no other user reads runs, whatever the mode of the directory or the umask (S39).
pub(crate) const OWNER_ONLY: u32 = 0o600;

/// Removes the permissions of other users. SQLite gives the files it creates the mode of the database. A process that may write
/// the files without owning them cannot do this; `onward doctor` reports it.
fn restrict_files(path: &Path) {
    #[cfg(unix)]
    for name in [DATABASE, &format!("{DATABASE}-wal"), &format!("{DATABASE}-shm"), LOCK, SYNCED, LEASES] {
        use std::os::unix::fs::PermissionsExt;
        let file = path.join(name);
        if std::fs::metadata(&file).is_ok_and(|found| found.permissions().mode() & 0o077 != 0) {
            let _ = std::fs::set_permissions(&file, std::fs::Permissions::from_mode(OWNER_ONLY));
        }
    }
}

/// Locks the directory for this process.
pub(crate) fn lock(path: &Path) -> Result<Lock, StoreError> {
    let name = path.join(LOCK);
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, OWNER_ONLY);
    let file = options.open(&name).map_err(|error| unusable(&name, &error))?;
    match file.try_lock() {
        Ok(()) => Ok(Lock(file)),
        Err(TryLockError::WouldBlock) => Err(StoreError::DirectoryLocked { path: path.to_owned() }),
        Err(TryLockError::Error(error)) => Err(io_error(&name, &error)),
    }
}

/// Creates the database under another name and renames it, so that it exists as a whole or not at all.
fn make_database(path: &Path) -> Result<(), StoreError> {
    let unfinished = path.join(UNFINISHED);
    remove_unfinished(path)?;
    schema::create(&unfinished, schema::fill_empty)?;
    failpoint::hit("create_before_rename");
    std::fs::rename(&unfinished, schema::database(path)).map_err(|error| io_error(&unfinished, &error))?;
    sync_directory(path)?;
    failpoint::hit("create_after_rename");
    Ok(())
}

/// Removes a partially created database.
pub(crate) fn remove_unfinished(path: &Path) -> Result<(), StoreError> {
    for leftover in ["", "-journal", "-wal", "-shm"] {
        let name = path.join(format!("{UNFINISHED}{leftover}"));
        match std::fs::remove_file(&name) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(io_error(&name, &error)),
            _ => {}
        }
    }
    Ok(())
}

pub(crate) fn sync_directory(path: &Path) -> Result<(), StoreError> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    File::open(path).and_then(|directory| directory.sync_all()).map_err(|error| io_error(path, &error))
}

#[cfg(test)]
mod tests;

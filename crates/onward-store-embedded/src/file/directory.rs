//! The directory: what it may contain, who holds it.
//!
//! Owns the lock file and the order of opening: look first, then lock, then make. Must never write into a directory that is not
//! ours, that a newer program wrote, or that somebody else holds.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};

use onward_store::StoreError;
use rusqlite::Connection;

use crate::file::schema::{self, DATABASE, FORMAT, Found, LOCK, UNFINISHED, io_error, unusable};
use crate::file::synced::SYNCED;
use crate::file::{failpoint, migrate};
use crate::repair::rebuild;

/// What the names of a server's key file and what belongs to it begin with: keys may be there before the first run is.
const KEYS: &str = "onward.keys.json";

/// A directory that this process alone may write to, for as long as this lives. The kernel frees it when the process dies.
#[derive(Debug)]
pub(crate) struct Directory {
    pub path: PathBuf,
    _lock: Lock,
}

/// The lock of a directory, free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Lock(File);

impl Drop for Lock {
    /// Unlocks the file before it is closed: a process that was just forked has the file open, too, until it executes its program.
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
        // Somebody may have written while we waited for nothing but the lock.
        match check(path)? {
            Found::Nothing => make_database(path, schema::fill_empty)?,
            Found::Ours { format: 1 } => {
                let old = migrate::open_format_1(path)?;
                make_database(path, move |new| migrate::copy_format_1(&old, new))?;
            }
            _ => {}
        }
        restrict_files(path);
        Ok(Directory { path: path.to_owned(), _lock: lock })
    }
}

/// Says whether there is a database that we can read, without changing a byte.
pub(crate) fn check(path: &Path) -> Result<Found, StoreError> {
    // Most often a setting that is not there; what is meant by it is not the directory that the process happens to stand in.
    if path.as_os_str().is_empty() {
        let why = "a directory needs a name; the current one is `.`".to_owned();
        return Err(StoreError::DirectoryUnusable { path: PathBuf::from("the empty path"), why });
    }
    let found = schema::inspect(&schema::database(path))?;
    match found {
        Found::Ours { format } if format > FORMAT => {
            Err(StoreError::DirectoryNewer { path: path.to_owned(), found: format, supported: FORMAT })
        }
        Found::Ours { .. } => Ok(found),
        Found::Foreign(why) => {
            let why = format!("its {DATABASE} {why}");
            Err(StoreError::DirectoryForeign { path: path.to_owned(), why })
        }
        Found::Nothing => {
            refuse_strangers(path)?;
            Ok(found)
        }
    }
}

/// A directory without a database must be empty, or as good as.
fn refuse_strangers(path: &Path) -> Result<(), StoreError> {
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
        let known = name == LOCK || name.starts_with(UNFINISHED) || name.starts_with(KEYS) || name == "lost+found";
        if !known {
            return Err(StoreError::DirectoryForeign { path: path.to_owned(), why: format!("it has a file `{name}` in it") });
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

/// The mode of every file: whatever the directory's mode or the umask, no other user reads runs (S39).
pub(crate) const OWNER_ONLY: u32 = 0o600;

/// Takes the files of a directory from other users. SQLite gives the files that it makes the mode of the database. Who may write them
/// without being their owner cannot do that, and `onward doctor` tells of it.
fn restrict_files(path: &Path) {
    #[cfg(unix)]
    for name in [DATABASE, &format!("{DATABASE}-wal"), &format!("{DATABASE}-shm"), LOCK, SYNCED] {
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

/// Makes the database under another name and renames it: it is there as a whole or not at all.
fn make_database(path: &Path, fill: impl FnOnce(&Connection) -> Result<(), StoreError>) -> Result<(), StoreError> {
    let unfinished = path.join(UNFINISHED);
    remove_unfinished(path)?;
    schema::create(&unfinished, fill)?;
    failpoint::hit("create_before_rename");
    std::fs::rename(&unfinished, schema::database(path)).map_err(|error| io_error(&unfinished, &error))?;
    sync_directory(path)?;
    failpoint::hit("create_after_rename");
    Ok(())
}

/// Removes a database that was being made.
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
mod tests {
    use super::*;

    /// A forked process shares the open file.
    #[test]
    fn a_directory_is_free_when_its_store_is_closed_whatever_has_the_lock_file_open() {
        let directory = tempfile::tempdir().unwrap();
        let held = lock(directory.path()).unwrap();
        let inherited = held.0.try_clone().unwrap();
        assert!(matches!(lock(directory.path()), Err(StoreError::DirectoryLocked { .. })));
        drop(held);
        lock(directory.path()).unwrap();
        drop(inherited);
    }
}

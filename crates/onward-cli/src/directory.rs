//! Opens a data directory for reading or writing.
//!
//! Must never create a directory except for an import: a command with a wrong path fails instead of leaving an empty store.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use onward_core::{ErrorCode, Namespace, RunId, RunKey};
use onward_runtime::{Options, Runtime, RuntimeError};
use onward_store::{Store, StoreError, SystemClock};
use onward_store_embedded::EmbeddedStore;

use crate::error::Mistake;
use crate::output::print_stderr;
use crate::serving::mark;

/// Interval at which a run in a directory of another process is read.
pub const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Opens a directory read-only; another process may have it open.
pub fn open_to_read(path: &Path) -> Result<Runtime> {
    expect_directory(path)?;
    let store = EmbeddedStore::open_read_only(path)?;
    warn_of_damage(path, &store);
    // Writes of another process do not notify this one.
    let options = Options { fallback: POLL_INTERVAL, ..Options::default() };
    Ok(Runtime::new(Arc::new(store), Arc::new(SystemClock), options))
}

/// Warns on stderr if the directory is damaged, because acknowledged writes may be missing from the output.
fn warn_of_damage(path: &Path, store: &EmbeddedStore) {
    let Some(damage) = store.damage() else { return };
    if EmbeddedStore::has_lost_writes(path).unwrap_or(true) {
        print_stderr(&format!("warning: the directory is damaged, and acknowledged writes may be missing: {damage}"));
        print_stderr("hint: run `onward doctor --repair`, which keeps all intact data and lists losses");
    } else {
        print_stderr(&format!("warning: the directory is damaged, and every acknowledged write can be read: {damage}"));
        print_stderr("hint: run `onward doctor --repair` to write to it again");
    }
}

/// Opens an existing directory for writing. Fails if another process has it open. Dropping the runtime releases the lock.
pub fn open_to_write(path: &Path) -> Result<Runtime> {
    drop(open_to_read(path)?); // fails if it does not exist or is foreign
    open_or_make(path)
}

/// Opens a directory like [`open_to_write`]. Creates it if it is missing or empty.
pub fn open_or_make(path: &Path) -> Result<Runtime> {
    match EmbeddedStore::open(path, Default::default()) {
        Err(StoreError::DirectoryLocked { .. }) if let Some(url) = mark::server_of(path) => {
            let message = format!("{} is in use by the server at {url}", path.display());
            let hint = format!("use `--server {url}` or ONWARD_URL; commands that read work without it");
            Err(Mistake::new(ErrorCode::DirectoryLocked, message, Some(&hint)).into())
        }
        opened => Ok(runtime(opened?)),
    }
}

/// Creates a runtime on a store, without background jobs.
pub fn runtime(store: EmbeddedStore) -> Runtime {
    let store: Arc<dyn Store> = Arc::new(store);
    Runtime::new(store, Arc::new(SystemClock), Options::default())
}

fn expect_directory(path: &Path) -> Result<()> {
    if path.exists() {
        return Ok(());
    }
    let hint = "set `--data DIR` or ONWARD_DATA, or a server with `--server URL`; `onward demo` creates a directory to try";
    Err(Mistake::new(ErrorCode::DirectoryMissing, format!("directory {} does not exist", path.display()), Some(hint)).into())
}

/// Returns the key of a run in the default namespace.
pub fn run_key(id: &str) -> Result<RunKey, RuntimeError> {
    Ok(RunKey::new(Namespace::default(), RunId::new(id)?))
}

/// Quotes a path for a shell.
pub fn shell_path(path: &Path) -> String {
    shell_word(&path.to_string_lossy())
}

pub fn shell_word(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./~:=@%+,".contains(&byte);
    let tilde_first = text.starts_with('~');
    if !text.is_empty() && !tilde_first && text.bytes().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Returns the command that runs this program from the current directory.
pub fn own_command() -> String {
    let called = std::env::args_os().next().map(PathBuf::from).unwrap_or_default();
    if called.components().count() <= 1 {
        return "onward".to_owned(); // found in PATH
    }
    let here = std::env::current_dir().unwrap_or_default();
    shell_path(called.strip_prefix(&here).unwrap_or(&called))
}

#[cfg(test)]
mod tests;

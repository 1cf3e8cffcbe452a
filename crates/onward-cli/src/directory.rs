//! Opening a directory of runs, for looking or for writing.
//!
//! Must never make a directory but for runs that are to come into it: a verb that was given the wrong place says so instead of leaving
//! an empty store there.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use onward_core::{Namespace, RunId, RunKey};
use onward_runtime::{Options, Runtime, RuntimeError};
use onward_store::{Store, StoreError, SystemClock};
use onward_store_embedded::EmbeddedStore;

use crate::error::{CONFLICT, FAILURE, Mistake};
use crate::output::say;
use crate::serving::mark;

/// Opens a directory that another process may have open; every write is refused.
pub fn open_to_read(path: &Path) -> Result<Runtime> {
    expect_directory(path)?;
    let store = EmbeddedStore::open_read_only(path)?;
    tell_damage(&store);
    Ok(runtime(store))
}

/// What is read of a damaged directory may lack writes: whoever reads it is told, beside what they read.
fn tell_damage(store: &EmbeddedStore) {
    if let Some(damage) = store.damage() {
        say(&format!("warning: the directory is damaged, and acknowledged writes may be missing: {damage}"));
        say("hint: `onward doctor --repair` keeps all that verifies and lists what is lost");
    }
}

/// Opens a directory that nobody else has open. Dropping the runtime frees it.
pub fn open_to_write(path: &Path) -> Result<Runtime> {
    drop(open_to_read(path)?); // it is there and it is ours
    open_or_make(path)
}

/// Like [`open_to_write`]; a directory that is not there or is empty becomes one of ours.
pub fn open_or_make(path: &Path) -> Result<Runtime> {
    match EmbeddedStore::open(path, Default::default()) {
        Err(StoreError::DirectoryLocked { .. }) if let Some(url) = mark::server_of(path) => {
            let message = format!("{} is held by the server at {url}", path.display());
            let hint = Some(format!("go through it with `--server {url}`, or ONWARD_URL; reading commands work without"));
            Err(Mistake { code: "directory_locked", message, hint, exit: CONFLICT }.into())
        }
        opened => Ok(runtime(opened?)),
    }
}

/// The verbs over a store; nothing happens by itself.
pub fn runtime(store: EmbeddedStore) -> Runtime {
    let store: Arc<dyn Store> = Arc::new(store);
    Runtime::new(store, Arc::new(SystemClock), Options::default())
}

fn expect_directory(path: &Path) -> Result<()> {
    if path.exists() {
        return Ok(());
    }
    let hint = "name it with `--data DIR` or ONWARD_DATA, or a server with `--server URL`; `onward demo` makes one to play with"
        .to_owned();
    let message = format!("there is no directory {}", path.display());
    Err(Mistake { code: "directory_missing", message, hint: Some(hint), exit: FAILURE }.into())
}

/// The run of this id in the default namespace.
pub fn run_key(id: &str) -> Result<RunKey, RuntimeError> {
    Ok(RunKey::new(Namespace::default(), RunId::new(id)?))
}

/// A path as the command line knew it, fit to be pasted into a shell.
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

/// How to call this very program again from the current directory.
pub fn own_command() -> String {
    let called = std::env::args_os().next().map(PathBuf::from).unwrap_or_default();
    if called.components().count() <= 1 {
        return "onward".to_owned(); // found on the search path
    }
    let here = std::env::current_dir().unwrap_or_default();
    shell_path(called.strip_prefix(&here).unwrap_or(&called))
}

#[cfg(test)]
mod tests {
    use super::shell_word;

    #[test]
    fn words_are_quoted_when_a_shell_would_take_them_apart() {
        assert_eq!(shell_word("order-1~0~2.1.0"), "order-1~0~2.1.0");
        assert_eq!(shell_word("a b"), "'a b'");
        assert_eq!(shell_word("it's"), r"'it'\''s'");
        assert_eq!(shell_word("~0"), "'~0'");
        assert_eq!(shell_word(""), "''");
    }
}

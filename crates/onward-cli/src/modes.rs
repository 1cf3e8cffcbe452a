//! Modes of files and directories: which ones other users of the machine can read.

use std::fmt::{Display, Formatter};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// A secret file or directory that other users can read.
#[derive(Debug, PartialEq, Eq)]
pub struct Readable {
    pub path: PathBuf,
    mode: u32,
    wanted: u32,
}

impl Display for Readable {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} has mode {:04o}: other users of this machine can read it", self.path.display(), self.mode)
    }
}

impl Readable {
    pub fn advice(&self) -> String {
        format!("`chmod {:o} {}`", self.wanted, crate::directory::shell_path(&self.path))
    }
}

/// Returns those of the data directory, its files and the TLS private key that other users can read.
pub fn readable_by_others(directory: &Path, tls_key: Option<&Path>) -> Vec<Readable> {
    let check = |path: &Path, wanted: u32| {
        let mode = std::fs::metadata(path).ok()?.permissions().mode() & 0o7777;
        (mode & 0o077 != 0).then(|| Readable { path: path.to_owned(), mode, wanted })
    };
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("onward."))
        .map(|entry| entry.path())
        .filter(|path| path.is_file())
        .collect();
    files.sort();
    let own = check(directory, 0o700).into_iter().chain(files.iter().filter_map(|file| check(file, 0o600)));
    own.chain(tls_key.and_then(|key| check(key, 0o600))).collect()
}

/// Creates a directory that other users cannot read. Fails if the path exists.
pub fn create_private(path: &Path) -> Result<()> {
    std::fs::DirBuilder::new().mode(0o700).create(path).with_context(|| format!("cannot create {}", path.display()))
}

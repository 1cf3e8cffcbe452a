//! A mark file in the directory with the URL of the server that holds it, for the error of a locked directory.
//!
//! Only advice: the lock decides whether the directory is free, and the mark of a dead process is ignored.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, test_kill_process};
use serde::{Deserialize, Serialize};

const FILE: &str = "onward.server.json";

#[derive(Serialize, Deserialize)]
struct Note {
    url: String,
    pid: i32,
}

/// The mark of this process; removed on drop.
pub struct ServerMark(PathBuf);

impl ServerMark {
    /// Writes the mark; `None` on errors, because a server works without it.
    pub fn leave(directory: &Path, url: &str) -> Option<ServerMark> {
        let path = directory.join(FILE);
        let note = Note { url: url.to_owned(), pid: i32::try_from(std::process::id()).ok()? };
        drop(std::fs::remove_file(&path)); // an old file would keep its mode
        let mut file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&path).ok()?;
        file.write_all(serde_json::to_string(&note).ok()?.as_bytes()).ok()?;
        Some(ServerMark(path))
    }
}

impl Drop for ServerMark {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.0)); // a remaining mark is ignored
    }
}

/// Returns the local URL of the running server in the mark.
pub fn server_of(directory: &Path) -> Option<String> {
    let note: Note = serde_json::from_str(&std::fs::read_to_string(directory.join(FILE)).ok()?).ok()?;
    test_kill_process(Pid::from_raw(note.pid)?).ok()?;
    Some(note.url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:"))
}

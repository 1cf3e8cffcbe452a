//! A directory on which a process is started and killed until its work is done.

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use super::judge::Judge;
use crate::torture::{TortureWorker, Work};

/// Timeout of a process that is not killed.
const LIFE_MAX: Duration = Duration::from_secs(600);

/// Number of processes without faults that may be needed to finish.
const PEACEFUL_LIVES: u32 = 1;

#[derive(Debug, PartialEq, Eq)]
pub enum Ended {
    Killed,
    Done,
}

pub struct Arena {
    directory: tempfile::TempDir,
    runs: u64,
    large: usize,
    judge: Judge,
}

impl Arena {
    pub fn new(runs: u64, large: usize) -> Arena {
        let directory = tempfile::tempdir().unwrap();
        let judge = Judge::new(directory.path().join("data"), directory.path().join("side"));
        Arena { directory, runs, large, judge }
    }

    /// Runs one process until a failpoint, a timeout or the end of its work kills or ends it; then checks the directory.
    pub fn life(&mut self, failpoint: Option<&str>, kill_after: Option<Duration>) -> Ended {
        let mut process = self.spawn(failpoint);
        let kill_at = kill_after.map(|after| Instant::now() + after);
        let deadline = Instant::now() + LIFE_MAX;
        let status = loop {
            if let Some(status) = process.try_wait().unwrap() {
                break status;
            }
            if kill_at.is_some_and(|at| Instant::now() >= at) {
                process.kill().unwrap();
                break process.wait().unwrap();
            }
            if Instant::now() >= deadline {
                process.kill().unwrap();
                process.wait().unwrap();
                self.keep();
                panic!("the worker timed out ({failpoint:?})");
            }
            std::thread::sleep(Duration::from_micros(200));
        };
        let ended = match (status.signal(), status.code()) {
            (Some(9), _) => Ended::Killed,
            (_, Some(0)) => Ended::Done,
            _ => {
                self.keep();
                panic!("the worker failed: {status} ({failpoint:?})");
            }
        };
        self.judge.look(ended == Ended::Killed);
        ended
    }

    /// Runs the rest of the work without faults, and checks everything.
    pub fn finish(mut self) {
        for _ in 0..PEACEFUL_LIVES {
            if self.life(None, None) == Ended::Done {
                self.judge.finish(self.runs);
                return;
            }
        }
        panic!("the work was not done");
    }

    fn spawn(&self, failpoint: Option<&str>) -> Child {
        let load = Work::Load { directory: self.path("data"), runs: self.runs, large: self.large };
        let mut command = TortureWorker::new(load, self.path("side")).command();
        if let Some(failpoint) = failpoint {
            command.env("ONWARD_FAILPOINT", failpoint);
        }
        command.stdin(Stdio::piped()).spawn().unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Keeps the directory for debugging.
    fn keep(&mut self) {
        self.directory.disable_cleanup(true);
        eprintln!("kept: {}", self.directory.path().display());
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.keep();
        }
    }
}

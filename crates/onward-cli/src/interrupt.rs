//! Ctrl-C: drops the running command with its child processes and exits with 130.

use std::future::Future;
use std::io::Read;
use std::process::ExitCode;

use anyhow::Result;

pub const INTERRUPTED: u8 = 130;

pub async fn or(work: impl Future<Output = Result<ExitCode>>) -> Result<ExitCode> {
    tokio::select! {
        biased; // registers the signal handler before the work starts, so that an early Ctrl-C counts
        Ok(()) = tokio::signal::ctrl_c() => Ok(ExitCode::from(INTERRUPTED)),
        done = work => done,
    }
}

/// Ends this process when its parent has exited in any way: the parent holds the other end of stdin.
pub fn end_with_parent() {
    std::thread::spawn(|| {
        let mut nothing = Vec::new();
        drop(std::io::stdin().read_to_end(&mut nothing));
        std::process::exit(i32::from(INTERRUPTED));
    });
}

//! Ctrl-C: what runs is dropped, and with it every child process it has; the process then ends with 130.

use std::future::Future;
use std::io::Read;
use std::process::ExitCode;

use anyhow::Result;

pub const INTERRUPTED: u8 = 130;

pub async fn or(work: impl Future<Output = Result<ExitCode>>) -> Result<ExitCode> {
    tokio::select! {
        biased; // it listens before anything is begun, so that whoever interrupts early is heard too
        Ok(()) = tokio::signal::ctrl_c() => Ok(ExitCode::from(INTERRUPTED)),
        done = work => done,
    }
}

/// Ends this process when the one that started it has gone, however it went: it holds the other end of stdin.
pub fn end_with_parent() {
    std::thread::spawn(|| {
        let mut nothing = Vec::new();
        drop(std::io::stdin().read_to_end(&mut nothing));
        std::process::exit(i32::from(INTERRUPTED));
    });
}

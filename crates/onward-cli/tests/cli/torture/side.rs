//! The side file: executions, and acknowledgements of the engine.
//!
//! Each line is appended with one write, so that a kill leaves complete lines: `did RUN GENERATION NAME ATTEMPT KEY` and
//! `ack WHAT RUN`. Written lines survive a kill, because the kernel has them.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use onward::prelude::{Attempt, Ctx};

#[derive(Clone)]
pub struct Side {
    path: Arc<PathBuf>,
}

impl Side {
    pub fn new(path: PathBuf) -> Side {
        Side { path: Arc::new(path) }
    }

    /// Appends an execution before its result is recorded.
    pub fn did(&self, run: &str, generation: u32, name: &str, attempt: u32, key: &str) -> std::io::Result<()> {
        self.append(&format!("did {run} {generation} {name} {attempt} {key}\n"))
    }

    pub fn did_in(&self, ctx: &Ctx, name: &str, attempt: &Attempt) -> std::io::Result<()> {
        self.did(ctx.run_id().as_str(), ctx.generation(), name, attempt.number, &attempt.idempotency_key())
    }

    /// Appends an acknowledgement after it was received.
    pub fn ack(&self, what: &str, run: &str) -> std::io::Result<()> {
        self.append(&format!("ack {what} {run}\n"))
    }

    fn append(&self, line: &str) -> std::io::Result<()> {
        OpenOptions::new().create(true).append(true).open(&*self.path)?.write_all(line.as_bytes())
    }
}

//! The side file: what was really done, and what the engine has acknowledged.
//!
//! One line each, appended with one write, so that a kill leaves whole lines or none: `did RUN GENERATION NAME ATTEMPT KEY`, and
//! `ack WHAT RUN`. What was written survives the process, because it is in the kernel's hands.

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

    /// Notes an execution, before its result can be anywhere.
    pub fn did(&self, run: &str, generation: u32, name: &str, attempt: u32, key: &str) -> std::io::Result<()> {
        self.append(&format!("did {run} {generation} {name} {attempt} {key}\n"))
    }

    pub fn did_in(&self, ctx: &Ctx, name: &str, attempt: &Attempt) -> std::io::Result<()> {
        self.did(ctx.run_id().as_str(), ctx.generation(), name, attempt.number, &attempt.idempotency_key())
    }

    /// Notes an acknowledgement, after it was given.
    pub fn ack(&self, what: &str, run: &str) -> std::io::Result<()> {
        self.append(&format!("ack {what} {run}\n"))
    }

    fn append(&self, line: &str) -> std::io::Result<()> {
        OpenOptions::new().create(true).append(true).open(&*self.path)?.write_all(line.as_bytes())
    }
}

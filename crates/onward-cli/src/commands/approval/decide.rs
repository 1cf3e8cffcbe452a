//! `onward approval decide`: one answer, once.

use std::hash::{BuildHasher, Hasher};
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use onward_core::Namespace;
use onward_runtime::{CallId, Decide};

use crate::args::Global;
use crate::commands::run::answer;
use crate::directory::open_to_write;

#[derive(Debug, Args)]
pub struct DecideArgs {
    /// The question, as `onward approval list` shows it
    id: String,
    /// Say yes
    #[arg(long, conflicts_with = "reject", required_unless_present = "reject")]
    approve: bool,
    /// Say no
    #[arg(long)]
    reject: bool,
    /// What the run is told besides
    #[arg(long, value_name = "TEXT")]
    feedback: Option<String>,
    /// Who decides
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
    /// The same id again is the same decision
    #[arg(long, value_name = "ID")]
    decision_id: Option<String>,
}

pub async fn execute(args: DecideArgs, global: &Global) -> Result<ExitCode> {
    let call = CallId::parse(&Namespace::default(), &args.id)?;
    let runtime = open_to_write(&global.directory())?;
    let decision_id = args.decision_id.unwrap_or_else(new_decision_id);
    let decide = Decide { approved: args.approve, feedback: args.feedback, decided_by: args.by, decision_id };
    let appended = runtime.decide_approval(&call, decide).await?;
    answer(global, &call.run, if args.approve { "approved" } else { "rejected" }, &appended)
}

/// An id nobody else has: the standard library's hash keys come from the system's randomness.
pub fn new_decision_id() -> String {
    format!("cli-{:016x}", std::collections::hash_map::RandomState::new().build_hasher().finish())
}

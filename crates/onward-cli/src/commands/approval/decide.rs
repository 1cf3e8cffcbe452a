//! `onward approval decide`: records the decision of an approval.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use onward_core::api::{Decide, DecideRequest};

use crate::args::Global;
use crate::commands::run::answer;
use crate::connection::Connection;
use crate::new_id;

#[derive(Debug, Args)]
pub struct DecideArgs {
    /// Approval id, as shown by `onward approval list`
    id: String,
    /// Approve
    #[arg(long, conflicts_with = "reject", required_unless_present = "reject")]
    approve: bool,
    /// Reject
    #[arg(long)]
    reject: bool,
    /// Feedback for the run
    #[arg(long, value_name = "TEXT")]
    feedback: Option<String>,
    /// Name of the decider
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
    /// Idempotency key: a repeated id returns the first decision
    #[arg(long, value_name = "ID")]
    decision_id: Option<String>,
}

pub async fn execute(args: DecideArgs, global: &Global) -> Result<ExitCode> {
    let connection = Connection::to_write(global)?;
    let call = connection.call(&args.id)?;
    let decision_id = args.decision_id.unwrap_or_else(new_id::unique);
    let decide = Decide { approved: args.approve, feedback: args.feedback, decided_by: args.by, decision_id };
    let (namespace, approval) = (connection.namespace.clone(), args.id);
    let appended = connection.decide_approval(DecideRequest { namespace, approval, decide }).await?;
    answer(global, &call.run, if args.approve { "approved" } else { "rejected" }, &appended)
}

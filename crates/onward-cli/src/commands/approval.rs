//! `onward approval …`: lists and decides approvals.

use anyhow::Result;
use clap::{Args, Subcommand};
use onward_core::api::{Decide, DecideRequest, WaitQuery, WaitsReply};
use onward_runtime::CallRef;

use crate::args::{Global, read_payload};
use crate::commands::run::answer as print_receipt;
use crate::connection::Connection;
use crate::new_id;
use crate::output::document::{Approval, Approvals, Partly};
use crate::output::{TextTable, cells, print_missing_databases, print_stderr, time};

#[derive(Debug, Subcommand)]
pub enum ApprovalCommand {
    /// List open approvals, oldest first
    #[command(visible_alias = "ls")]
    List(ApprovalListArgs),
    /// Approve or reject an approval
    Decide(DecideArgs),
}

#[derive(Debug, Args)]
pub struct ApprovalListArgs {
    /// Show only approvals of this run
    #[arg(long, value_name = "ID")]
    run: Option<String>,
    /// Show only approvals of this run and of all its descendants
    #[arg(long, value_name = "ID", conflicts_with = "run")]
    below: Option<String>,
    /// Maximum number of approvals
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
}

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
    /// Answer that the approval requires, as JSON (`@FILE` reads a file, `-` stdin)
    #[arg(long, value_name = "JSON", conflicts_with = "reject")]
    answer: Option<String>,
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

pub async fn execute(command: ApprovalCommand, global: &Global) -> Result<()> {
    match command {
        ApprovalCommand::List(args) => list(args, global).await,
        ApprovalCommand::Decide(args) => decide(args, global).await,
    }
}

async fn list(args: ApprovalListArgs, global: &Global) -> Result<()> {
    let connection = Connection::to_read(global).await?;
    let below = args.below.is_some();
    let run = args.below.or(args.run).as_deref().map(|id| connection.key(id)).transpose()?;
    if let Some(key) = &run {
        connection.read_head(key.clone()).await?; // an unknown run is an error, not an empty list
    }
    let query = WaitQuery { namespace: connection.namespace.clone(), run, below, limit: args.limit as usize, partly: true };
    let WaitsReply { waits, missing } = connection.list_approvals(query).await?;
    let now = time::now();
    let mut table = TextTable::new(&["ID", "SINCE", "DEADLINE", "DECIDERS", "QUESTION"]);
    for wait in &waits {
        let mut deciders = if wait.deciders.is_empty() { "any".to_owned() } else { wait.deciders.join(", ") };
        if wait.not_by_requester {
            deciders.push_str(", not the requester");
        }
        let deadline = wait.deadline.map(|deadline| time::until(deadline, now)).unwrap_or_default();
        let needs = if wait.answer_schema.is_some() { " (needs --answer)" } else { "" };
        let question = format!("{}{needs}", wait.title);
        table.row(cells![CallRef::from(wait), time::ago(wait.requested_at, now), deadline, deciders, question]);
    }
    let approvals = Approvals { approvals: waits.iter().map(Approval::from).collect() };
    global.show_table(&Partly::new(approvals, missing.clone()), table, "no open approvals")?;
    if !global.json && waits.len() == args.limit as usize {
        print_stderr("the list may be incomplete; raise --limit");
    }
    print_missing_databases(&missing);
    Ok(())
}

async fn decide(args: DecideArgs, global: &Global) -> Result<()> {
    let connection = Connection::to_write(global).await?;
    let call = connection.call(&args.id)?;
    let decision_id = args.decision_id.unwrap_or_else(new_id::unique);
    let answer = args.answer.as_deref().map(read_payload).transpose()?;
    let decide = Decide { approved: args.approve, feedback: args.feedback, decided_by: args.by, answer, decision_id };
    let (namespace, approval) = (connection.namespace.clone(), args.id);
    let appended = connection.decide_approval(DecideRequest { namespace, approval, decide }).await?;
    print_receipt(global, &call.run, if args.approve { "approved" } else { "rejected" }, &appended)
}

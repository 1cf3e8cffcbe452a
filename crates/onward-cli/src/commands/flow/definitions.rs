//! `onward flow apply|list|show|diff|delete`: definitions of flows on a server or in a directory.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Args, Subcommand};
use onward_core::api::{DeleteFlowRequest, FlowQuery, FlowVersion, FlowsReply, PutFlowReply, PutFlowRequest};
use onward_core::{ErrorCode, Name};
use onward_runtime::RuntimeError;
use serde_json::json;

use super::diff;
use super::document::Document;
use crate::args::Global;
use crate::connection::Connection;
use crate::error::Mistake;
use crate::output::{Style, TextTable, cells, escape, print, print_json, print_stderr, time};

#[derive(Debug, Subcommand)]
pub enum DefinitionCommand {
    /// Store a document as the current version of its flow; new runs use it, open runs continue with theirs
    Apply(ApplyArgs),
    /// List flows
    #[command(visible_alias = "ls")]
    List,
    /// Print the document of a flow
    Show(FlowShowArgs),
    /// Compare the current document of a flow with a file, or with another version
    Diff(DiffArgs),
    /// Delete a flow with all its versions
    Delete {
        /// Name of the flow
        name: String,
        /// Also if runs are open, which then wait for a worker with their version
        #[arg(long)]
        force: bool,
    },
}

#[derive(Debug, Args)]
pub struct ApplyArgs {
    /// Documents, YAML or JSON
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Fail unless this is the current version; an empty text if the flow must not exist yet
    #[arg(long, value_name = "VERSION")]
    expected: Option<String>,
    /// Only check the documents
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, Args)]
pub struct FlowShowArgs {
    /// Name of the flow
    name: String,
    /// Version, or its first digits; the default is the current one
    #[arg(long)]
    version: Option<String>,
    /// List the versions instead
    #[arg(long, conflicts_with = "version")]
    history: bool,
}

#[derive(Debug, Args)]
pub struct DiffArgs {
    /// Name of the flow
    name: String,
    /// File to compare with; the default is the version before the current one
    #[arg(value_name = "FILE", conflicts_with = "version")]
    file: Option<PathBuf>,
    /// Version to compare with, or its first digits
    #[arg(long)]
    version: Option<String>,
}

pub async fn execute(command: DefinitionCommand, global: &Global) -> Result<()> {
    match command {
        DefinitionCommand::Apply(args) => apply(args, global).await,
        DefinitionCommand::List => list(global).await,
        DefinitionCommand::Show(args) => show(args, global).await,
        DefinitionCommand::Diff(args) => compare(args, global).await,
        DefinitionCommand::Delete { name, force } => {
            let connection = Connection::to_write(global).await?;
            let namespace = connection.namespace.clone();
            connection.delete_flow(DeleteFlowRequest { namespace, flow: Name::new(name.as_str())?, force }).await?;
            if global.json {
                return print_json(&json!({"deleted": name}));
            }
            print_stderr(&format!("flow {} is deleted", escape::text(&name)));
            Ok(())
        }
    }
}

async fn apply(args: ApplyArgs, global: &Global) -> Result<()> {
    // All files are read before the first one is stored.
    let documents = args.files.iter().map(|file| checked(file, global)).collect::<Result<Vec<_>>>()?;
    let connection = Connection::to_write(global).await?;
    for (flow, document) in documents {
        let (namespace, expected) = (connection.namespace.clone(), args.expected.clone());
        let put = PutFlowRequest { namespace, flow, document, expected, dry_run: args.dry_run };
        print_applied(&connection.put_flow(put).await?, args.dry_run, global)?;
    }
    Ok(())
}

fn print_applied(reply: &PutFlowReply, dry_run: bool, global: &Global) -> Result<()> {
    if global.json {
        return print_json(reply);
    }
    let PutFlowReply { flow, is_changed, warnings } = reply;
    for warning in warnings {
        print_stderr(&format!("warning: line {}, column {}: {}", warning.line, warning.column, escape::text(&warning.message)));
    }
    let outcome = match (dry_run, is_changed) {
        (true, true) => "would become the current version",
        (true, false) => "is the current version",
        (false, true) => "is the current version now",
        (false, false) => "was the current version already",
    };
    print_stderr(&format!("flow {}: {} {outcome}", escape::text(flow.flow.as_str()), flow.version));
    Ok(())
}

async fn list(global: &Global) -> Result<()> {
    let connection = Connection::to_read(global).await?;
    let found = connection.list_flows(FlowQuery::all(connection.namespace.clone())).await?;
    global.show_table(&found, table(&found.flows), "no flows; `onward flow apply FILE` stores one")
}

fn table(flows: &[FlowVersion]) -> TextTable {
    let (mut table, now) = (TextTable::new(&["FLOW", "VERSION", "APPLIED", "OPEN RUNS", "CURRENT"]), time::now());
    for flow in flows {
        let current = match (flow.is_current, flow.is_imported) {
            (true, _) => "yes",
            (false, true) => "imported",
            (false, false) => "",
        };
        table.row(cells![&flow.flow, &flow.version, time::ago(flow.applied_at, now), flow.open_runs, current]);
    }
    table
}

async fn show(args: FlowShowArgs, global: &Global) -> Result<()> {
    let flows = versions(&args.name, global).await?;
    if args.history {
        return global.show_table(&FlowsReply { flows: flows.clone() }, table(&flows), "");
    }
    let found = find(&flows, args.version.as_deref())?;
    match global.json {
        true => print_json(found),
        false => Ok(print(&escape::lines(found.document.as_deref().unwrap_or_default()))?),
    }
}

async fn compare(args: DiffArgs, global: &Global) -> Result<()> {
    let flows = versions(&args.name, global).await?;
    let current = find(&flows, None)?;
    let of = |flow: &FlowVersion| (flow.version.to_string(), flow.document.clone().unwrap_or_default());
    let (old, new) = match (&args.file, &args.version) {
        (Some(file), _) => (of(current), (file.display().to_string(), read(file)?)),
        (None, Some(version)) => (of(find(&flows, Some(version))?), of(current)),
        (None, None) => {
            let before = flows.get(1).ok_or_else(|| {
                Mistake::usage(ErrorCode::FlowNotFound, "the flow has one version only", "name a file to compare it with")
            })?;
            (of(before), of(current))
        }
    };
    let lines = diff::lines(&old.1, &new.1);
    if global.json {
        let changed: Vec<_> = lines.iter().map(|line| json!({"change": line.change.sign(), "text": line.text})).collect();
        return print_json(&json!({"from": old.0, "to": new.0, "lines": changed}));
    }
    if old.1 == new.1 {
        print_stderr("the documents are equal");
        return Ok(());
    }
    print(&format!("--- {}\n+++ {}", escape::text(&old.0), escape::text(&new.0)))?;
    Ok(print(&diff::text(&lines, Style::stdout()))?)
}

/// Returns all versions of a flow, newest first.
async fn versions(name: &str, global: &Global) -> Result<Vec<FlowVersion>> {
    let connection = Connection::to_read(global).await?;
    let (namespace, flow) = (connection.namespace.clone(), Name::new(name)?);
    let found = connection.list_flows(FlowQuery { namespace, flow: Some(flow.clone()) }).await?;
    if found.flows.is_empty() {
        return Err(RuntimeError::FlowNotFound { flow }.into());
    }
    Ok(found.flows)
}

/// Returns the version that begins with these digits, or the current one.
fn find<'a>(flows: &'a [FlowVersion], version: Option<&str>) -> Result<&'a FlowVersion> {
    let found = flows.iter().find(|flow| version.is_none_or(|version| flow.version.as_str().starts_with(version)));
    let missing = || {
        let message = format!("there is no version `{}`", version.unwrap_or_default());
        Mistake::usage(ErrorCode::FlowNotFound, message, "see `onward flow show NAME --history` for the versions")
    };
    Ok(found.ok_or_else(missing)?)
}

fn read(file: &Path) -> Result<String> {
    let unreadable = |error: std::io::Error| {
        let message = format!("cannot read {}: {error}", file.display());
        Mistake::usage(ErrorCode::FlowInvalid, message, "name a YAML or JSON document")
    };
    Ok(std::fs::read_to_string(file).map_err(unreadable)?)
}

/// Reads a document without errors, with the name of its flow. Prints its problems.
fn checked(file: &Path, global: &Global) -> Result<(Name, String)> {
    let document = Document::read(file, global)?;
    let text = document.text.clone();
    Ok((Name::new(document.into_flow()?.flow)?, text))
}

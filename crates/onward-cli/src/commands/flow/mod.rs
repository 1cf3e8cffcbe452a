//! `onward flow …`: checks, draws, starts and runs workflows that are documents.

mod check;
mod definitions;
mod diff;
mod document;
mod graph;
mod import;
mod new;
mod run;
mod schema;
mod validate;

use anyhow::Result;
use clap::Subcommand;

use crate::args::Global;

#[derive(Debug, Subcommand)]
pub enum FlowCommand {
    /// Check flow files and list all problems
    Validate(validate::ValidateArgs),
    /// Replay the open runs of a flow with another document, and list which would continue
    Check(check::CheckArgs),
    /// Run a flow in this process and show its progress
    Run(run::RunArgs),
    /// Draw a flow as SVG or Mermaid
    Graph(graph::GraphArgs),
    /// Write a flow file to start from
    New(new::NewArgs),
    /// Print the JSON Schema of flow files, for editors
    Schema(schema::SchemaArgs),
    /// Translate workflows of other systems
    #[command(subcommand)]
    Import(import::ImportCommand),
    #[command(flatten)]
    Definitions(definitions::DefinitionCommand),
}

impl FlowCommand {
    /// Returns whether the command handles SIGINT itself.
    pub fn ends_by_itself(&self) -> bool {
        matches!(self, FlowCommand::Run(_))
    }
}

pub async fn execute(command: FlowCommand, global: &Global) -> Result<()> {
    match command {
        FlowCommand::Validate(args) => validate::execute(&args, global),
        FlowCommand::Check(args) => check::execute(&args, global).await,
        FlowCommand::Run(args) => run::execute(args, global).await,
        FlowCommand::Graph(args) => graph::execute(&args, global),
        FlowCommand::New(args) => new::execute(&args, global),
        FlowCommand::Schema(args) => schema::execute(&args, global),
        FlowCommand::Import(command) => import::execute(command, global),
        FlowCommand::Definitions(command) => definitions::execute(command, global).await,
    }
}

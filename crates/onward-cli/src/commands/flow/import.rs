//! `onward flow import …`: translates workflows of other systems.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use onward_core::ErrorCode;

use crate::args::{Global, read_file};
use crate::error::Mistake;
use crate::output::{Style, count, escape, print_json, print_stderr};

/// The file of the settings snippet.
const SETTINGS: &str = "onward.toml";

#[derive(Debug, Subcommand)]
pub enum ImportCommand {
    /// Translate the workflows of a Dive file, with its models, agents and MCP servers
    Dive(DiveArgs),
}

#[derive(Debug, Args)]
pub struct DiveArgs {
    /// Dive file, or - for stdin
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Directory for the flows and the settings; existing files are never overwritten
    #[arg(long, short, value_name = "DIR", default_value = ".")]
    output: PathBuf,
}

pub fn execute(command: ImportCommand, global: &Global) -> Result<()> {
    match command {
        ImportCommand::Dive(args) => dive(&args, global),
    }
}

/// A file that the translation writes.
struct Written {
    path: PathBuf,
    text: String,
}

/// Writes a file for each workflow and one for the settings, and lists what has no equivalent.
fn dive(args: &DiveArgs, global: &Global) -> Result<()> {
    let text = read_file(&args.file, "the Dive file")?;
    let name = args.file.display().to_string();
    let imported = onward_flow::import::dive(&text, &name)
        .map_err(|error| Mistake::new(ErrorCode::Failed, format!("cannot read {name}: {error}"), None))?;
    let mut files: Vec<Written> = imported
        .flows
        .iter()
        .map(|(name, text)| Written { path: args.output.join(format!("{}.yaml", file_name(name))), text: text.clone() })
        .collect();
    files.extend(imported.settings.map(|text| Written { path: args.output.join(SETTINGS), text }));
    if let Some(taken) = files.iter().find(|file| file.path.exists()) {
        return Err(exists(&taken.path));
    }
    let mut paths: Vec<&Path> = files.iter().map(|file| file.path.as_path()).collect();
    paths.sort();
    if let Some(twice) = paths.windows(2).find(|two| two[0] == two[1]) {
        let message = format!("two workflows would be written to {}", twice[0].display());
        return Err(Mistake::usage(ErrorCode::Usage, message, "rename one of them in the Dive file").into());
    }
    std::fs::create_dir_all(&args.output).with_context(|| format!("cannot create {}", args.output.display()))?;
    for file in &files {
        write_new(file)?;
    }
    if global.json {
        let unmapped: Vec<_> = imported
            .unmapped
            .iter()
            .map(|left| serde_json::json!({"line": left.line, "path": left.path, "what": left.what, "why": left.why, "hint": left.hint}))
            .collect();
        let files: Vec<_> = files.iter().map(|file| file.path.display().to_string()).collect();
        return print_json(&serde_json::json!({"files": files, "unmapped": unmapped}));
    }
    for file in &files {
        print_stderr(&format!("wrote {}", escape::text(&file.path.display().to_string())));
    }
    if imported.unmapped.is_empty() {
        print_stderr("everything was translated");
        return Ok(());
    }
    let style = Style::stderr();
    print_stderr(&style.yellow(&format!("not translated: {}", count(imported.unmapped.len() as u64, "part"))));
    for left in &imported.unmapped {
        let line = left.line.map(|line| format!("{name}:{line}: ")).unwrap_or_default();
        print_stderr(&format!("  {}", escape::text(&format!("{line}{}: {}", left.what, left.why))));
        left.hint.iter().for_each(|hint| print_stderr(&format!("    {} {}", style.cyan("hint:"), escape::text(hint))));
    }
    Ok(())
}

/// Returns a name of a file for a flow, whose name may be anything.
fn file_name(flow: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_') { c } else { '-' };
    let name: String = flow.chars().take(100).map(plain).collect();
    let name = name.trim_matches('-');
    if name.is_empty() { "flow".to_owned() } else { name.to_lowercase() }
}

fn write_new(file: &Written) -> Result<()> {
    let context = || format!("cannot write {}", file.path.display());
    match OpenOptions::new().write(true).create_new(true).open(&file.path) {
        Ok(mut open) => open.write_all(file.text.as_bytes()).with_context(context),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(exists(&file.path)),
        Err(error) => Err(error).with_context(context),
    }
}

fn exists(path: &Path) -> anyhow::Error {
    let message = format!("{} exists", path.display());
    Mistake::usage(ErrorCode::Usage, message, "choose an empty directory with `-o DIR`").into()
}

//! `onward flow schema`: the JSON Schema of flow files.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use onward_flow::document::json_schema;

use crate::args::Global;
use crate::directory::own_command;
use crate::output::{escape, print, print_stderr};

/// The usual name of the file, in hints.
const FILE: &str = "onward-flow.schema.json";

#[derive(Debug, Args)]
pub struct SchemaArgs {
    /// Write to this file instead of stdout
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub fn execute(args: &SchemaArgs, global: &Global) -> Result<()> {
    let text = format!("{:#}\n", json_schema());
    let path = args.output.as_deref();
    match path {
        Some(path) => std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?,
        None => print(&text)?,
    }
    if !global.json {
        if path.is_none() {
            print_stderr(&format!("save it with: {} flow schema -o {FILE}", own_command()));
        }
        let path = path.unwrap_or(Path::new(FILE)).display().to_string();
        print_stderr(&format!(
            "for completion in editors, begin flow files with: # yaml-language-server: $schema={}",
            escape::text(&path)
        ));
    }
    Ok(())
}

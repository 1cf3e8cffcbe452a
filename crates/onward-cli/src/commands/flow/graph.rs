//! `onward flow graph`: draws a flow.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use onward_flow::graph::{Graph, mermaid, svg};

use super::document::{Document, format_problem};
use crate::args::{Global, one_of};
use crate::error::{Exit, FAILURE};
use crate::output::{Style, count, print, print_stderr};

#[derive(Debug, Args)]
pub struct GraphArgs {
    /// Flow file, or - for stdin
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Output format [default: that of the output file, or svg]
    #[arg(long, value_name = "FORMAT", value_parser = one_of(PictureFormat::ALL, PictureFormat::as_str))]
    format: Option<PictureFormat>,
    /// Write to this file instead of stdout
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PictureFormat {
    Svg,
    Mermaid,
}

impl PictureFormat {
    const ALL: &'static [PictureFormat] = &[PictureFormat::Svg, PictureFormat::Mermaid];

    fn as_str(self) -> &'static str {
        match self {
            PictureFormat::Svg => "svg",
            PictureFormat::Mermaid => "mermaid",
        }
    }
}

/// Draws the flow, also one with errors as far as they leave its form intact.
pub fn execute(args: &GraphArgs, global: &Global) -> Result<()> {
    let document = Document::read(&args.file, global)?;
    let Some(flow) = &document.parsed.flow else {
        for problem in &document.problems {
            print_stderr(&format_problem(problem, &document.text, Style::stderr()));
        }
        return Err(Exit(FAILURE).into());
    };
    if document.errors() > 0 {
        let errors = count(document.errors() as u64, "error");
        print_stderr(&format!("warning: the flow has {errors}; list them with `onward flow validate`"));
    }
    let graph = Graph::of(flow);
    let text = match args.format.unwrap_or_else(|| usual_format(args)) {
        PictureFormat::Svg => svg(&graph, None),
        PictureFormat::Mermaid => mermaid(&graph),
    };
    match &args.output {
        Some(path) => std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display())),
        None => Ok(print(&text)?),
    }
}

fn usual_format(args: &GraphArgs) -> PictureFormat {
    let name = args.output.as_deref().and_then(|path| path.extension());
    if name.is_some_and(|name| name == "mmd" || name == "mermaid") { PictureFormat::Mermaid } else { PictureFormat::Svg }
}

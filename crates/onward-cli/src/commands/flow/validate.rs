//! `onward flow validate`: lists all problems of flow files.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use super::document::{Document, ProblemDocument, files, format_problem};
use crate::args::Global;
use crate::error::{Exit, FAILURE};
use crate::output::{Style, count, json_line, print, print_stderr};

#[derive(Debug, Args)]
pub struct ValidateArgs {
    /// Flow files, directories with flow files, or - for stdin
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
}

/// Prints the problems of all files. Fails if one of them is an error; warnings do not count.
pub fn execute(args: &ValidateArgs, global: &Global) -> Result<()> {
    let files = files(&args.files)?;
    let (mut errors, mut warnings) = (0, 0);
    let mut listed = Vec::new();
    for path in &files {
        let document = Document::read(path, global)?;
        errors += document.errors();
        warnings += document.problems.len() - document.errors();
        for problem in &document.problems {
            match global.json {
                true => listed.push(json_line(&ProblemDocument::from(problem))?),
                false => print(&format_problem(problem, &document.text, Style::stdout()))?,
            }
        }
    }
    if global.json {
        print(&format!("[{}]", listed.join(",")))?;
    } else {
        let checked = count(files.len() as u64, "file");
        let found = match (errors, warnings) {
            (0, 0) => Style::stderr().green("no problems"),
            (errors, 0) => count(errors as u64, "error"),
            (0, warnings) => count(warnings as u64, "warning"),
            (errors, warnings) => format!("{}, {}", count(errors as u64, "error"), count(warnings as u64, "warning")),
        };
        print_stderr(&format!("{checked}: {found}"));
    }
    if errors > 0 { Err(Exit(FAILURE).into()) } else { Ok(()) }
}

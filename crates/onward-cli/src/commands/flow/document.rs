//! Flow files: reading them, and their problems as text.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use onward_core::ErrorCode;
use onward_flow::document::{Flow, Known, Parsed, Problem, Severity, check, parse};
use serde::Serialize;
use unicode_width::UnicodeWidthStr;

use crate::args::Global;
use crate::error::{Exit, FAILURE, Mistake};
use crate::output::{Style, count, escape, print_stderr};

/// The most bytes that are read of a file. Documents have at most 1 MiB, so a file of this size is refused with its position.
const BYTES_MAX: u64 = 2 << 20;

/// The most characters of a source line left and right of a problem.
const AROUND: usize = 60;

/// A flow file with its problems.
pub struct Document {
    pub text: String,
    pub parsed: Parsed,
    pub problems: Vec<Problem>,
}

impl Document {
    /// Reads and checks a file, or stdin if the path is `-`. Models and agents are checked if the settings define any.
    pub fn read(path: &Path, global: &Global) -> Result<Document> {
        let is_stdin = path == Path::new("-");
        let name = if is_stdin { "stdin".to_owned() } else { path.display().to_string() };
        let mut bytes = Vec::new();
        let read = if is_stdin {
            std::io::stdin().take(BYTES_MAX).read_to_end(&mut bytes)
        } else {
            std::fs::File::open(path).and_then(|file| file.take(BYTES_MAX).read_to_end(&mut bytes))
        };
        read.with_context(|| format!("cannot read the flow in {name}"))?;
        let text = String::from_utf8(bytes).map_err(|error| {
            let message = format!("{name} is not UTF-8: byte {}", error.utf8_error().valid_up_to());
            Mistake::new(ErrorCode::Failed, message, Some("save the file as UTF-8"))
        })?;
        let parsed = parse(&text, &name);
        let problems = check(&parsed, &known(global));
        Ok(Document { text, parsed, problems })
    }

    pub fn errors(&self) -> usize {
        self.problems.iter().filter(|problem| problem.severity == Severity::Error).count()
    }

    /// Returns the flow. Prints the problems on stderr and fails if they are errors.
    pub fn into_flow(self) -> Result<Flow> {
        let errors = self.errors();
        for problem in &self.problems {
            print_stderr(&format_problem(problem, &self.text, Style::stderr()));
        }
        match self.parsed.flow {
            Some(flow) if errors == 0 => Ok(flow),
            _ => {
                print_stderr(&format!("the flow has {}", count(errors.max(1) as u64, "error")));
                Err(Exit(FAILURE).into())
            }
        }
    }
}

/// Returns the models and agents of the settings, if they define any.
fn known(global: &Global) -> Known {
    let Some(tables) = global.config.tables() else { return Known::default() };
    let names = |names: Vec<&String>| Some(names.into_iter().cloned().collect::<Vec<_>>()).filter(|names| !names.is_empty());
    Known { models: names(tables.models.keys().collect()), agents: names(tables.agents.keys().collect()), ..Known::default() }
}

/// Lists the files of arguments: directories are searched for YAML and JSON files, in the order of their names.
pub fn files(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        if path != Path::new("-") && path.is_dir() {
            let before = files.len();
            walk(path, &mut files)?;
            if files.len() == before {
                print_stderr(&format!("no flow files in {}", escape::text(&path.display().to_string())));
            }
        } else {
            files.push(path.clone());
        }
    }
    Ok(files)
}

/// Adds the files below a directory. Hidden directories and links to directories are left out.
fn walk(directory: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let context = || format!("cannot list {}", directory.display());
    let mut entries = std::fs::read_dir(directory).with_context(context)?.collect::<Result<Vec<_>, _>>().with_context(context)?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let (path, is_hidden) = (entry.path(), entry.file_name().to_string_lossy().starts_with('.'));
        if entry.file_type().with_context(context)?.is_dir() {
            if !is_hidden {
                walk(&path, files)?;
            }
        } else if path.extension().is_some_and(|name| ["yaml", "yml", "json"].iter().any(|known| name == *known)) && !is_hidden {
            files.push(path);
        }
    }
    Ok(())
}

/// Formats a problem with its position, the line of the source and a caret below the column.
pub fn format_problem(problem: &Problem, source: &str, style: Style) -> String {
    let place = format!("{}:{}:{}:", problem.file, problem.line, problem.column);
    let severity = format!("{}[{}]:", problem.severity, problem.code);
    let severity = if problem.severity == Severity::Error { style.red(&severity) } else { style.yellow(&severity) };
    let mut out = format!("{} {severity} {}", style.bold(&escape::text(&place)), escape::text(&problem.message));
    if let Some(line) = source.lines().nth(problem.line.saturating_sub(1)) {
        let (line, before) = excerpt(line, problem.column);
        let number = problem.line.to_string();
        let bar = style.dim(&format!("{number} |"));
        let below = style.dim(&format!("{:1$} |", "", number.len()));
        out.push_str(&format!("\n  {bar} {line}\n  {below} {:before$}{}", "", style.cyan("^")));
    }
    if let Some(hint) = &problem.hint {
        out.push_str(&format!("\n  {} {}", style.cyan("hint:"), escape::text(hint)));
    }
    out
}

/// Returns a source line near a column, escaped, and the width of what is left of the column.
fn excerpt(line: &str, column: usize) -> (String, usize) {
    let characters: Vec<char> = line.trim_end().chars().map(|c| if c == '\t' { ' ' } else { c }).collect();
    let at = column.saturating_sub(1).min(characters.len());
    let (start, end) = (at.saturating_sub(AROUND), (at + AROUND).min(characters.len()));
    let part = |range: &[char]| escape::text(&range.iter().collect::<String>()).into_owned();
    let first = if start > 0 { "…" } else { "" };
    let left = format!("{first}{}", part(&characters[start..at]));
    let last = if end < characters.len() { "…" } else { "" };
    (format!("{left}{}{last}", part(&characters[at..end])), left.width())
}

/// A problem as JSON.
#[derive(Serialize)]
pub struct ProblemDocument<'a> {
    file: &'a str,
    line: usize,
    column: usize,
    severity: String,
    code: &'a str,
    message: &'a str,
    hint: Option<&'a str>,
    path: &'a str,
    step: Option<&'a str>,
}

impl<'a> From<&'a Problem> for ProblemDocument<'a> {
    fn from(problem: &'a Problem) -> ProblemDocument<'a> {
        let Problem { severity, code, message, hint, file, line, column, path, step } = problem;
        ProblemDocument {
            file,
            line: *line,
            column: *column,
            severity: severity.to_string(),
            code,
            message,
            hint: hint.as_deref(),
            path,
            step: step.as_deref(),
        }
    }
}

#[cfg(test)]
mod tests;

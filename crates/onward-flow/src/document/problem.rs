//! Problems of a document: what, where, and how to repair it.

use std::fmt;

use serde::Serialize;

use super::yaml::{Place, SourcePosition};

/// Most problems that are listed; the rest is counted in the last one.
const PROBLEMS_MAX: usize = 1_000;

/// What is wrong with a document, and where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    pub severity: Severity,
    /// A stable name: `unknown_step`, for example.
    pub code: &'static str,
    pub message: String,
    /// How to repair it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The name of the file.
    pub file: String,
    /// The line, counted from 1.
    pub line: usize,
    /// The column in characters, counted from 1.
    pub column: usize,
    /// The place in the document: `steps[2].next[0].goto`.
    pub path: String,
    /// The name of the step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
}

/// How bad a problem is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The flow cannot run.
    Error,
    /// The flow can run, but may not do what is wanted.
    Warning,
}

impl Problem {
    /// Creates an error at the value of a place.
    pub(crate) fn error(code: &'static str, place: &Place, message: impl Into<String>) -> Problem {
        Problem::new(Severity::Error, code, place.node.at, &place.path, message)
    }

    /// Creates a warning at the value of a place.
    pub(crate) fn warning(code: &'static str, place: &Place, message: impl Into<String>) -> Problem {
        Problem::new(Severity::Warning, code, place.node.at, &place.path, message)
    }

    pub(crate) fn new(
        severity: Severity,
        code: &'static str,
        at: SourcePosition,
        path: &str,
        message: impl Into<String>,
    ) -> Problem {
        Problem {
            severity,
            code,
            message: message.into(),
            hint: None,
            file: String::new(),
            line: at.line,
            column: at.column,
            path: path.to_owned(),
            step: None,
        }
    }

    /// Sets how to repair it.
    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Problem {
        self.hint = Some(hint.into());
        self
    }

    /// Suggests a name, if one is like the unknown one.
    #[must_use]
    pub(crate) fn suggest(self, name: Option<&str>) -> Problem {
        match name {
            Some(name) => self.hint(format!("did you mean `{name}`?")),
            None => self,
        }
    }

    /// Moves it to another position.
    #[must_use]
    pub(crate) fn at(mut self, at: SourcePosition) -> Problem {
        (self.line, self.column) = (at.line, at.column);
        self
    }

    /// Sets the step that has it.
    #[must_use]
    pub(crate) fn of_step(mut self, step: &str) -> Problem {
        self.step = (!step.is_empty()).then(|| step.to_owned());
        self
    }

    /// Returns whether the flow cannot run with it.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
        })
    }
}

/// `file.yaml:12:5: error[unknown_step]: there is no step `shortn`; did you mean `shorten`?`
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: {}[{}]: {}", self.file, self.line, self.column, self.severity, self.code, self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "; {hint}"),
            None => Ok(()),
        }
    }
}

/// Collects problems of one file.
#[derive(Debug)]
pub(crate) struct Problems {
    file: String,
    list: Vec<Problem>,
    omitted: usize,
    most: usize,
    /// The step that is read at the moment.
    pub step: Option<String>,
}

impl Problems {
    pub fn new(file: &str) -> Problems {
        Problems::after(file, Vec::new())
    }

    /// Collects problems beside others, which leave as much room as if there were none.
    pub fn after(file: &str, others: Vec<Problem>) -> Problems {
        Problems { file: file.to_owned(), omitted: 0, most: others.len() + PROBLEMS_MAX, list: others, step: None }
    }

    pub fn add(&mut self, mut problem: Problem) {
        if self.list.len() >= self.most {
            self.omitted += 1;
            return;
        }
        problem.file.clone_from(&self.file);
        if problem.step.is_none() {
            problem.step.clone_from(&self.step);
        }
        self.list.push(problem);
    }

    /// Returns whether one of the problems that were added is an error.
    pub fn has_errors(&self) -> bool {
        self.list.iter().any(Problem::is_error) || self.omitted > 0
    }

    /// Returns how many problems there are.
    pub fn count(&self) -> usize {
        self.list.len() + self.omitted
    }

    /// Returns the problems in the order of the document, each once.
    pub fn finish(mut self) -> Vec<Problem> {
        self.list.sort_by(|a, b| {
            (a.line, a.column, a.severity, a.code, &a.message).cmp(&(b.line, b.column, b.severity, b.code, &b.message))
        });
        self.list.dedup();
        if self.omitted > 0 {
            let message = format!("{} more problems are not listed", self.omitted);
            let mut last = Problem::new(Severity::Error, "too_many_problems", SourcePosition { line: 1, column: 1 }, "", message);
            last.file = self.file;
            self.list.push(last);
        }
        self.list
    }
}

//! Reads workflows of other systems.
//!
//! Owns what is mapped to what. What has no equivalent is listed, never dropped without a note.

mod dive;
mod writer;

use std::fmt;

use crate::document::Problem;

pub use dive::dive;

/// What a document of another system has become.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Imported {
    /// Flows by name: YAML documents in the format of Onward.
    pub flows: Vec<(String, String)>,
    /// Tables for the settings file: models, agents and MCP servers.
    pub settings: Option<String>,
    /// What has no equivalent, or not quite.
    pub unmapped: Vec<Unmapped>,
}

/// A part of a document that has no equivalent, or not quite.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unmapped {
    pub line: Option<usize>,
    /// The place in the document: `Workflows[0].Steps[2].Next[0].Condition`.
    pub path: String,
    /// The part.
    pub what: String,
    /// Why it has no equivalent.
    pub why: String,
    /// What to write instead.
    pub hint: Option<String>,
}

impl fmt::Display for Unmapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        write!(f, "{}: {}", self.what, self.why)?;
        match &self.hint {
            Some(hint) => write!(f, "; {hint}"),
            None => Ok(()),
        }
    }
}

/// Why a text could not be read at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportError {
    pub problems: Vec<Problem>,
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            let separator = if index > 0 { "\n" } else { "" };
            write!(f, "{separator}{}:{}:{}: {}", problem.file, problem.line, problem.column, problem.message)?;
        }
        Ok(())
    }
}

impl std::error::Error for ImportError {}

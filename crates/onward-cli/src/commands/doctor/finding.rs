//! Findings: a check, its state, details and advice.

use serde::Serialize;

use crate::output::{Style, count, escape, print, print_stderr};

/// Column width of check names.
const NAME_WIDTH: usize = 13;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingState {
    Ok,
    Warn,
    Fail,
}

#[derive(Debug, Serialize)]
pub struct Finding {
    pub check: &'static str,
    pub state: FindingState,
    pub detail: String,
    /// Suggested fix.
    pub advice: Option<String>,
}

#[derive(Serialize)]
pub struct FindingsDocument<'a> {
    checks: &'a [Finding],
    warned: usize,
    failed: usize,
}

/// All findings; printed as they are added if `prints` is set.
pub struct Findings {
    all: Vec<Finding>,
    prints: bool,
}

impl Findings {
    pub fn new(prints: bool) -> Findings {
        Findings { all: Vec::new(), prints }
    }

    pub fn ok(&mut self, check: &'static str, detail: impl Into<String>) {
        self.add(Finding { check, state: FindingState::Ok, detail: detail.into(), advice: None });
    }

    pub fn warn(&mut self, check: &'static str, detail: impl Into<String>, advice: impl Into<String>) {
        self.add(Finding { check, state: FindingState::Warn, detail: detail.into(), advice: Some(advice.into()) });
    }

    pub fn fail(&mut self, check: &'static str, detail: impl Into<String>, advice: impl Into<String>) {
        self.add(Finding { check, state: FindingState::Fail, detail: detail.into(), advice: Some(advice.into()) });
    }

    /// Adds a failure with the message of an error; its hint is the advice.
    pub fn fail_with(&mut self, check: &'static str, error: &anyhow::Error) {
        let (detail, hint) = crate::error::words(error);
        let advice = hint.filter(|hint| !hint.is_empty());
        self.add(Finding { check, state: FindingState::Fail, detail, advice });
    }

    fn add(&mut self, finding: Finding) {
        if self.prints {
            drop(print(&finding.line())); // with a closed stdout the exit code still reports failures
        }
        self.all.push(finding);
    }

    fn number(&self, state: FindingState) -> usize {
        self.all.iter().filter(|finding| finding.state == state).count()
    }

    pub fn failed(&self) -> bool {
        self.number(FindingState::Fail) > 0
    }

    pub fn document(&self) -> FindingsDocument<'_> {
        FindingsDocument { checks: &self.all, warned: self.number(FindingState::Warn), failed: self.number(FindingState::Fail) }
    }

    pub fn sum_up(&self) {
        let (warned, failed) = (self.number(FindingState::Warn) as u64, self.number(FindingState::Fail) as u64);
        match (warned, failed) {
            (0, 0) => print_stderr("no problems found"),
            (_, 0) => print_stderr(&count(warned, "warning")),
            _ => print_stderr(&format!("{}, {}", count(failed, "failure"), count(warned, "warning"))),
        }
    }
}

impl Finding {
    fn line(&self) -> String {
        let style = Style::stdout();
        let state = match self.state {
            FindingState::Ok => style.green("ok  "),
            FindingState::Warn => style.yellow("warn"),
            FindingState::Fail => style.red("fail"),
        };
        let advice = self.advice.as_ref().map(|advice| format!("\n{:6}{:NAME_WIDTH$} -> {}", "", "", escape::text(advice)));
        format!("{state}  {:NAME_WIDTH$} {}{}", self.check, escape::text(&self.detail), advice.unwrap_or_default())
    }
}

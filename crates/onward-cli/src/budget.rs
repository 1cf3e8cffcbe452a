//! Budgets on the command line: the limits of `--budget`, and the command that resumes a run with an exhausted budget.

use onward_core::budget::{Budget, resume_options};
use onward_core::{ErrorCode, RunHead, Timestamp};

use crate::directory::shell_word;
use crate::error::Mistake;
use crate::output::escape;

/// Parses `--budget` limits; `None` without limits.
pub fn parse(limits: &[String]) -> Result<Option<Budget>, Mistake> {
    let mut budget = Budget::default();
    for limit in limits {
        let wrong = |why: String| {
            Mistake::usage(
                ErrorCode::Usage,
                format!("`--budget {limit}`: {why}"),
                "use for example `--budget tokens=50000 --budget cost=2.50`",
            )
        };
        budget.set(limit).map_err(wrong)?;
    }
    Ok((!budget.is_unlimited()).then_some(budget))
}

/// Returns the command that resumes the run with twice the limits that are exhausted.
pub fn resume_command(head: &RunHead, now: Timestamp) -> String {
    format!("onward run resume {}{}", shell_word(&escape::text(head.key.id.as_str())), resume_options(head, now))
}

//! Errors of a specification, with their position.

use anyhow::Result;
use onward_core::ErrorCode;
use onward_core::schedule::{ScheduleSpec, Slots, SpecError};

use crate::error::Mistake;
use crate::output::{Style, escape, print_stderr};

/// Refuses a specification with errors. Prints the text of the part with a caret below the character.
pub fn check(spec: &ScheduleSpec, json: bool) -> Result<()> {
    let Err(error) = Slots::new(spec) else { return Ok(()) };
    if !json && let Some(excerpt) = excerpt(spec, &error, Style::stderr()) {
        print_stderr(&excerpt);
    }
    Err(Mistake::usage(ErrorCode::ScheduleInvalid, error.to_string(), error.hint).into())
}

/// Returns the text of the part that has the error, and a line with a caret below the character.
fn excerpt(spec: &ScheduleSpec, error: &SpecError, style: Style) -> Option<String> {
    let position = error.position?;
    let document = serde_json::to_value(spec).ok()?;
    let path = error.part.strip_prefix("spec")?.replace(['.', '['], "/").replace(']', "");
    let text = document.pointer(&path)?.as_str()?;
    // Escaping changes the width of what is left of the caret.
    let before: String = text.chars().take(position.saturating_sub(1)).collect();
    let before = escape::text(&before).chars().count();
    Some(format!("  {}\n  {:before$}{}", escape::text(text), "", style.red("^")))
}

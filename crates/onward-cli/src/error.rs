//! Error output: `error[code]: message`, a hint and an exit code; with `--json` the problem document of the HTTP API.
//!
//! Exit codes: 0 ok, 1 error, 2 usage, 3 the awaited run failed, 4 not found, 5 server unreachable, 6 conflict, 7 missing or
//! insufficient key, 124 wait timed out, 130 interrupted. A closed stdout is not an error.

use std::fmt;
use std::io::ErrorKind;
use std::process::ExitCode;

use onward_runtime::RuntimeError;
use onward_server::auth::secret_file::SecretFileError;
use onward_server::problem;
use onward_store::StoreError;

use crate::output::{Style, escape, say};

pub const FAILURE: u8 = 1;
pub const USAGE: u8 = 2;
pub const RUN_FAILED: u8 = 3;
pub const NOT_FOUND: u8 = 4;
pub const UNREACHABLE: u8 = 5;
pub const CONFLICT: u8 = 6;
pub const NOT_ALLOWED: u8 = 7;
pub const TIMED_OUT: u8 = 124;

/// An error that the CLI itself detected.
#[derive(Debug)]
pub struct Mistake {
    pub code: &'static str,
    pub message: String,
    pub hint: Option<String>,
    pub exit: u8,
}

impl Mistake {
    pub fn usage(code: &'static str, message: impl Into<String>, hint: &str) -> Mistake {
        Mistake { code, message: message.into(), hint: Some(hint.to_owned()), exit: USAGE }
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Mistake {}

/// Code, hint and exit code of an error.
struct ErrorSummary {
    code: &'static str,
    hint: Option<String>,
    exit: u8,
}

/// Prints an error with its causes on stderr and returns the exit code. Ignores a broken pipe.
pub fn print_error(error: &anyhow::Error, json: bool) -> ExitCode {
    if is_broken_pipe(error) {
        return ExitCode::SUCCESS;
    }
    ExitCode::from(print_one(error, json))
}

/// Prints an error and returns its exit code; for errors that do not end the command.
pub fn print_one(error: &anyhow::Error, json: bool) -> u8 {
    let summary = summary(error);
    if json {
        say(&escape::json(problem::to_json(summary.code, &message(error), summary.hint.as_deref())));
        return summary.exit;
    }
    print_problem(summary.code, &message(error), summary.hint.as_deref());
    summary.exit
}

/// Prints a usage error; `text` is already escaped and may have several lines.
pub fn print_usage(text: &str, json: bool) -> ExitCode {
    if json {
        let (detail, _) = text.split_once("\n\n").unwrap_or((text, ""));
        let detail = detail.split_whitespace().collect::<Vec<_>>().join(" ");
        say(&problem::to_json("usage", &detail, Some("see `onward --help` and `onward COMMAND --help`")));
    } else {
        say(&format!("{} {text}", style_of("usage")));
    }
    ExitCode::from(USAGE)
}

/// Prints a problem as text.
pub fn print_problem(code: &str, detail: &str, hint: Option<&str>) {
    say(&format!("{} {}", style_of(&escape::text(code)), escape::text(detail)));
    if let Some(hint) = hint {
        say(&format!("{} {}", Style::stderr().cyan("hint:"), escape::text(hint)));
    }
}

/// Returns the message of an error with its causes, and its hint.
pub fn words(error: &anyhow::Error) -> (String, Option<String>) {
    (message(error), summary(error).hint)
}

pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io = error.chain().find_map(|cause| cause.downcast_ref::<std::io::Error>());
    io.is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

/// Formats `error[code]:` in red.
pub fn style_of(code: &str) -> String {
    Style::stderr().red(&format!("error[{code}]:"))
}

/// Joins the messages of the error and its causes, without consecutive duplicates.
fn message(error: &anyhow::Error) -> String {
    let mut texts: Vec<String> = error.chain().map(ToString::to_string).collect();
    texts.dedup();
    texts.join(": ")
}

fn summary(error: &anyhow::Error) -> ErrorSummary {
    if let Some(mistake) = error.downcast_ref::<Mistake>() {
        return ErrorSummary { code: mistake.code, hint: mistake.hint.clone(), exit: mistake.exit };
    }
    let (code, hint) = if let Some(error) = error.downcast_ref::<onward::Error>() {
        (error.code(), error.hint())
    } else if let Some(error) = error.downcast_ref::<RuntimeError>() {
        (error.code(), error.hint())
    } else if let Some(error) = error.downcast_ref::<StoreError>() {
        (error.code(), error.hint())
    } else if let Some(error) = error.downcast_ref::<SecretFileError>() {
        (error.code(), error.hint())
    } else if error.downcast_ref::<std::io::Error>().is_some() {
        return ErrorSummary { code: "io", hint: None, exit: FAILURE };
    } else {
        return ErrorSummary { code: "failed", hint: None, exit: FAILURE };
    };
    ErrorSummary { code, hint: hint.map(str::to_owned), exit: exit_code(code) }
}

/// Maps an error code to its exit code.
pub fn exit_code(code: &str) -> u8 {
    match code {
        "server_unreachable" | "not_ready" => UNREACHABLE,
        "unauthenticated" | "not_allowed" | "key_invalid" => NOT_ALLOWED,
        "run_closed"
        | "run_paused"
        | "budget_exhausted"
        | "approval_needed"
        | "child_behind_approval"
        | "outcome_unknown"
        | "run_not_paused"
        | "run_is_task"
        | "run_continued"
        | "run_exists"
        | "run_busy"
        | "run_not_failed"
        | "run_reset"
        | "run_external"
        | "run_not_external"
        | "task_not_quarantined"
        | "signal_lost"
        | "question_left"
        | "branch_pending"
        | "id_taken"
        | "key_ended"
        | "webhook_exists"
        | "directory_locked" => CONFLICT,
        "name_invalid"
        | "id_invalid"
        | "id_reserved"
        | "text_too_long"
        | "call_id_invalid"
        | "cursor_invalid"
        | "filter_empty"
        | "message_empty"
        | "attachment_invalid"
        | "input_invalid"
        | "server_url_invalid"
        | "webhook_secret_invalid" => USAGE,
        "directory_missing" => FAILURE,
        code if problem::status_of(code).is_some_and(|status| status == 404) => NOT_FOUND,
        _ => FAILURE,
    }
}

#[cfg(test)]
mod tests;

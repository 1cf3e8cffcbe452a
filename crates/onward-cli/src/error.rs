//! Error output: `error[code]: message`, a hint and an exit code; with `--json` the problem document of the HTTP API.

use std::fmt;
use std::io::ErrorKind;
use std::process::ExitCode;

use onward_core::ErrorCode;
use onward_runtime::RuntimeError;
use onward_server::auth::secret_file::SecretFileError;
use onward_server::problem;
use onward_store::StoreError;

use crate::output::{Style, escape, print_stderr};

pub const FAILURE: u8 = 1;
const USAGE: u8 = 2;
pub const RUN_FAILED: u8 = 3;
const NOT_FOUND: u8 = 4;
const UNREACHABLE: u8 = 5;
const CONFLICT: u8 = 6;
const NOT_ALLOWED: u8 = 7;
const TIMED_OUT: u8 = 124;
pub const INTERRUPTED: u8 = 130;

/// The exit codes and the error codes that lead to them. Every other error code leads to [`NOT_FOUND`] if its HTTP status is 404,
/// otherwise to [`FAILURE`]. `docs/operations.md` describes the exit codes.
#[rustfmt::skip]
const EXIT_CODES: &[(u8, &[ErrorCode])] = {
    use ErrorCode as E;
    &[
        (FAILURE, &[E::DirectoryMissing]),
        (USAGE, &[
            E::AnswerInvalid, E::AttachmentInvalid, E::CallIdInvalid, E::CursorInvalid, E::DefaultsInvalid, E::FilterEmpty, E::IdInvalid,
            E::IdReserved, E::InputInvalid, E::MessageEmpty, E::NameInvalid, E::QueueInvalid, E::QuotaInvalid, E::ScheduleInvalid,
            E::ServerUrlInvalid, E::TextTooLong, E::SignalInvalid, E::UpdateInvalid, E::WebhookSecretInvalid,
        ]),
        (RUN_FAILED, &[E::RunFailed]),
        (UNREACHABLE, &[E::NotReady, E::ServerUnreachable]),
        (CONFLICT, &[
            E::ApprovalNeeded, E::BranchPending, E::BudgetExhausted, E::ChildBehindApproval, E::DirectoryLocked,
            E::IdTaken, E::KeyEnded, E::OutcomeUnknown, E::WaitAbandoned, E::RunBusy, E::RunClosed, E::RunContinued,
            E::RunExists, E::RunExternal, E::RunIsTask, E::RunNotExternal, E::RunNotFailed, E::RunNotPaused,
            E::RunPaused, E::RunReset, E::SignalLost, E::TaskNotQuarantined, E::WebhookExists,
        ]),
        (NOT_ALLOWED, &[E::KeyInvalid, E::NotAllowed, E::Unauthenticated]),
        (TIMED_OUT, &[E::WaitTimedOut]),
    ]
};

/// An error that the CLI itself detected.
#[derive(Debug)]
pub struct Mistake {
    pub code: &'static str,
    pub message: String,
    pub hint: Option<String>,
    exit: u8,
}

impl Mistake {
    pub fn new(code: impl Into<&'static str>, message: impl Into<String>, hint: Option<&str>) -> Mistake {
        let code = code.into();
        Mistake { code, message: message.into(), hint: hint.map(str::to_owned), exit: exit_code(code) }
    }

    /// Returns an error of the command line or of a setting.
    pub fn usage(code: impl Into<&'static str>, message: impl Into<String>, hint: &str) -> Mistake {
        Mistake { exit: USAGE, ..Mistake::new(code, message, Some(hint)) }
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Mistake {}

/// Ends the command with this exit code; the command has printed everything else.
#[derive(Debug)]
pub struct Exit(pub u8);

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "exit code {}", self.0)
    }
}

impl std::error::Error for Exit {}

/// Prints an error with its causes on stderr and returns the exit code. A closed stdout is not an error.
pub fn print_error(error: &anyhow::Error, json: bool) -> ExitCode {
    match error.downcast_ref() {
        Some(Exit(code)) => ExitCode::from(*code),
        None if is_broken_pipe(error) => ExitCode::SUCCESS,
        None => ExitCode::from(print_one(error, json)),
    }
}

/// Prints an error and returns its exit code; for errors that do not end the command.
pub fn print_one(error: &anyhow::Error, json: bool) -> u8 {
    let Mistake { code, message, hint, exit } = summary(error);
    if json {
        print_stderr(&escape::json(problem::to_json(code, &message, hint.as_deref())));
    } else {
        print_problem(code, &message, hint.as_deref());
    }
    exit
}

/// Prints a usage error; `text` is already escaped and may have several lines.
pub fn print_usage(text: &str, json: bool) -> ExitCode {
    if json {
        let (detail, _) = text.split_once("\n\n").unwrap_or((text, ""));
        let detail = detail.split_whitespace().collect::<Vec<_>>().join(" ");
        print_stderr(&problem::to_json("usage", &detail, Some("see `onward --help` and `onward COMMAND --help`")));
    } else {
        print_stderr(&format!("{} {text}", style_of("usage")));
    }
    ExitCode::from(USAGE)
}

/// Prints a problem as text.
pub fn print_problem(code: &str, detail: &str, hint: Option<&str>) {
    print_stderr(&format!("{} {}", style_of(&escape::text(code)), escape::text(detail)));
    if let Some(hint) = hint {
        print_stderr(&format!("{} {}", Style::stderr().cyan("hint:"), escape::text(hint)));
    }
}

/// Returns the message of an error with its causes, and its hint.
pub fn words(error: &anyhow::Error) -> (String, Option<String>) {
    let Mistake { message, hint, .. } = summary(error);
    (message, hint)
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

/// Returns code, message with causes, hint and exit code of an error.
fn summary(error: &anyhow::Error) -> Mistake {
    let message = message(error);
    if let Some(mistake) = error.downcast_ref::<Mistake>() {
        return Mistake { message, hint: mistake.hint.clone(), ..*mistake };
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
        return Mistake::new(ErrorCode::Io, message, None);
    } else {
        return Mistake::new(ErrorCode::Failed, message, None);
    };
    Mistake::new(code, message, hint)
}

/// Maps an error code to its exit code.
pub fn exit_code(code: &str) -> u8 {
    let listed = EXIT_CODES.iter().find(|(_, codes)| codes.iter().any(|listed| code == *listed)).map(|(exit, _)| *exit);
    let is_missing = || problem::status_of(code).is_some_and(|status| status == 404);
    listed.unwrap_or_else(|| if is_missing() { NOT_FOUND } else { FAILURE })
}

#[cfg(test)]
mod tests;

//! Errors in gRPC: a status with an `onward.v1.Problem` in its details.

use onward_core::ErrorCode;
use onward_runtime::RuntimeError;
use onward_store::{Consequence, StoreError};
use onward_wire::problem::Advice;
use tonic::{Code, Status};

use crate::Problem;
use crate::verbs::VerbError;

pub(crate) fn of_store(error: &StoreError) -> onward_wire::Problem {
    told(error.code(), error.to_string(), error.hint(), error.consequence())
}

pub(super) fn of_runtime(error: &RuntimeError) -> Status {
    status(of_runtime_error(error))
}

pub(super) fn of_verb(error: &VerbError) -> Status {
    match error {
        VerbError::Runtime(error) => of_runtime(error),
        VerbError::Refused(problem) => status_of(problem),
    }
}

/// Returns an error as part of a reply.
pub(super) fn of_runtime_error(error: &RuntimeError) -> onward_wire::Problem {
    told(error.code(), sentence(error), error.hint(), error.consequence())
}

/// Returns the status of an error of the API itself.
pub(super) fn status_of(problem: &Problem) -> Status {
    status(of_problem(problem))
}

/// Returns an error of the API itself as part of a reply.
pub(super) fn of_problem(problem: &Problem) -> onward_wire::Problem {
    let consequence = ErrorCode::find(problem.code).map_or(Consequence::TellCaller, ErrorCode::consequence);
    told(problem.code, problem.detail.clone(), problem.hint, consequence)
}

fn told(code: &str, message: String, hint: Option<&'static str>, consequence: Consequence) -> onward_wire::Problem {
    let advice = match consequence {
        Consequence::TellCaller => Advice::TellCaller,
        Consequence::StopRun => Advice::StopRun,
        Consequence::Retry => Advice::Retry,
        Consequence::IsolateRun => Advice::IsolateRun,
        Consequence::StopProcess => Advice::StopProcess,
    };
    onward_wire::Problem { code: code.to_owned(), message, hint: hint.map(str::to_owned), advice }
}

/// Returns the message of the error with its causes.
fn sentence(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text += &format!(": {inner}");
        source = inner.source();
    }
    text
}

/// Codes of conflicts with something that exists under the same name.
const EXISTS: [&str; 4] = ["run_exists", "id_taken", "entry_key_taken", "webhook_exists"];

fn status(problem: onward_wire::Problem) -> Status {
    let http = crate::http::problem::status_of(&problem.code).map_or(500, |status| status.as_u16());
    let code = match http {
        _ if EXISTS.contains(&problem.code.as_str()) => Code::AlreadyExists,
        400 | 405 | 413 | 415 | 422 => Code::InvalidArgument,
        401 => Code::Unauthenticated,
        403 => Code::PermissionDenied,
        404 => Code::NotFound,
        408 | 504 => Code::DeadlineExceeded,
        409 => Code::FailedPrecondition,
        402 | 429 => Code::ResourceExhausted,
        503 => Code::Unavailable,
        507 => Code::ResourceExhausted,
        _ => Code::Internal,
    };
    problem.to_status(code)
}

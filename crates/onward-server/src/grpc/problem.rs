//! Errors in gRPC: a status with an `onward.v1.Problem` in its details.

use onward_core::ErrorCode;
use onward_runtime::RuntimeError;
use onward_store::{Consequence, StoreError};
use onward_wire::problem::Advice;
use tonic::{Code, Status};

use crate::Problem;

pub(crate) fn of_store(error: StoreError) -> onward_wire::Problem {
    of_problem(&RuntimeError::from(error).into())
}

/// Returns the status of an error.
pub(super) fn status_of(problem: &Problem) -> Status {
    status(of_problem(problem))
}

/// Returns an error as part of a reply.
pub(super) fn of_problem(problem: &Problem) -> onward_wire::Problem {
    let advice = match ErrorCode::find(problem.code).map_or(Consequence::Fail, ErrorCode::consequence) {
        Consequence::Fail => Advice::Fail,
        Consequence::StopRun => Advice::StopRun,
        Consequence::Retry => Advice::Retry,
        Consequence::IsolateRun => Advice::IsolateRun,
        Consequence::StopProcess => Advice::StopProcess,
    };
    let (code, message, hint) = (problem.code.to_owned(), problem.detail.clone(), problem.hint.map(str::to_owned));
    onward_wire::Problem { code, message, hint, advice, retry_after_ms: problem.retry_after_ms }
}

/// Codes of conflicts with something that exists under the same name.
const EXISTS: [ErrorCode; 4] = [ErrorCode::RunExists, ErrorCode::IdTaken, ErrorCode::EntryKeyTaken, ErrorCode::WebhookExists];

fn status(problem: onward_wire::Problem) -> Status {
    let http = crate::http::problem::status_of(&problem.code).map_or(500, |status| status.as_u16());
    let code = match http {
        _ if EXISTS.iter().any(|code| problem.code == *code) => Code::AlreadyExists,
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

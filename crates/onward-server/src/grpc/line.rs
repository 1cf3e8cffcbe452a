//! Metrics and log line of a gRPC call, as for an HTTP request.

use std::fmt::Display;
use std::time::Instant;

use axum::response::Response;
use tonic::{Code, Status};

use crate::Server;
use crate::auth::Scope;
use crate::trace::Level;

/// Call in progress.
pub(super) struct CallLog {
    path: &'static str,
    scope: Scope,
    begun: Instant,
}

impl CallLog {
    pub fn begin(path: &'static str, scope: Scope) -> CallLog {
        CallLog { path, scope, begun: Instant::now() }
    }

    /// Records the end of a call; for a stream, its beginning.
    pub fn end(self, server: &Server, by: Option<&str>, response: Response) -> Response {
        let refused = refusal(&response);
        let status = refused.as_ref().map_or(Code::Ok, Status::code);
        server.metrics().call(self.path, status);
        let problem = refused.and_then(|status| onward_wire::Problem::from_status(&status));
        let code = problem.map_or_else(|| "-".to_owned(), |problem| problem.code);
        let level = match status {
            Code::Internal | Code::Unknown | Code::DataLoss => Level::Error,
            _ if self.scope == Scope::Read => Level::Debug,
            _ => Level::Info,
        };
        let took = format!("{:.1}", self.begun.elapsed().as_secs_f64() * 1_000.0);
        let status = format!("{status:?}");
        let fields: [(&str, &dyn Display); 6] = [
            ("method", &"GRPC"),
            ("route", &self.path),
            ("by", &by.unwrap_or("-")),
            ("status", &status),
            ("code", &code),
            ("ms", &took),
        ];
        server.trace().log(level, "request", &fields);
        response
    }
}

/// Returns the status of a refused call. The status of a successful call is in the trailers, not in the headers.
pub(super) fn refusal(response: &Response) -> Option<Status> {
    Status::from_header_map(response.headers()).filter(|status| status.code() != Code::Ok)
}

//! What is counted and said of a call: the same as of a request over HTTP.

use std::fmt::Display;
use std::time::Instant;

use axum::response::Response;
use tonic::{Code, Status};

use crate::Server;
use crate::auth::Scope;
use crate::trace::Level;

/// A call that has begun.
pub(super) struct Line {
    path: &'static str,
    scope: Scope,
    begun: Instant,
}

impl Line {
    pub fn begin(path: &'static str, scope: Scope) -> Line {
        Line { path, scope, begun: Instant::now() }
    }

    /// Says how a call ended, or for a stream how it began.
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
        server.trace().say(level, "request", &fields);
        response
    }
}

/// Returns the status of a call that was refused. A call that went well says so behind its answer.
pub(super) fn refusal(response: &Response) -> Option<Status> {
    Status::from_header_map(response.headers()).filter(|status| status.code() != Code::Ok)
}

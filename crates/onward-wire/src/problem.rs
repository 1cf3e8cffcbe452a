//! Errors on the wire.
//!
//! The same in every API: a stable code with a page in `docs/errors/`, a message, a hint, and advice for the caller. Over gRPC
//! it is in the details of the status, where the libraries of all languages look for it: `grpc-status-details-bin` is a
//! `google.rpc.Status` with the code and the message of the call's status, and the problem as its only detail.

use onward_core::codec::{Message, Reader, put_bytes, put_nested, put_number};
use onward_core::{message, numbered};
use tonic::{Code, Status};

/// The type of a problem among the details of a status.
pub const TYPE_URL: &str = "type.googleapis.com/onward.v1.Problem";

message! {
    /// An error of a call.
    pub struct Problem {
        /// Stable; never reused, never renamed.
        1 => code: String,
        2 => message: String,
        3 => hint: Option<String>,
        4 => advice: Advice,
        /// After which time the same call may succeed, if that is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        5 => retry_after_ms: Option<u64>,
    }
}

numbered! {
    /// What a caller should do about a problem.
    pub enum Advice {
        /// A repeat of the call fails in the same way.
        0 => Fail / "tell_caller",
        /// The lease is lost: drop the run's memory and stop working on it.
        1 => StopRun / "stop_run",
        /// The same call may succeed later.
        2 => Retry / "retry",
        /// The data of this run is damaged; other runs continue.
        3 => IsolateRun / "isolate_run",
        /// The server writes nothing more until an operator intervenes.
        4 => StopProcess / "stop_process",
    }
}

impl Problem {
    /// Returns the gRPC status that carries the problem.
    pub fn to_status(&self, code: Code) -> Status {
        let mut details = Vec::new();
        put_number(1, code as u64, &mut details);
        put_bytes(2, self.message.as_bytes(), &mut details);
        put_nested(3, &mut details, |any| {
            put_bytes(1, TYPE_URL.as_bytes(), any);
            put_bytes(2, &self.to_bytes(), any);
        });
        Status::with_details(code, self.message.clone(), details.into())
    }

    /// Returns the problem that a gRPC status carries, if it carries one.
    pub fn from_status(status: &Status) -> Option<Problem> {
        let mut reader = Reader::new(status.details());
        while let Ok(Some((number, raw))) = reader.field() {
            // Proxies may have added their own details.
            if number == 3
                && let Ok(any) = raw.bytes("detail")
                && let Some(problem) = from_any(any)
            {
                return Some(problem);
            }
        }
        None
    }
}

/// Reads a `google.protobuf.Any` that holds a problem.
fn from_any(any: &[u8]) -> Option<Problem> {
    let mut reader = Reader::new(any);
    let (mut type_url, mut value) = (&[][..], &[][..]);
    while let Some((number, raw)) = reader.field().ok()? {
        match number {
            1 => type_url = raw.bytes("type").ok()?,
            2 => value = raw.bytes("value").ok()?,
            _ => {}
        }
    }
    (type_url == TYPE_URL.as_bytes()).then(|| Problem::decode_fields(value).ok()).flatten()
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

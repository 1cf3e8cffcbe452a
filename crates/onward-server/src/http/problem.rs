//! HTTP errors: RFC 9457 problem documents with stable codes.
//!
//! Owns the table from codes to statuses, and the errors that only the HTTP API has. Must never contain a payload.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use onward_core::NameError;
use onward_core::run::Refusal;
use onward_runtime::{RuntimeError, Violation};
use onward_store::StoreError;
use serde::Serialize;

/// Error of a request that was found before anything was done.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    #[error("there is no route for this path")]
    RouteNotFound,
    #[error("this path does not support {method}")]
    MethodNotAllowed { method: String },
    #[error("the body must be {wanted}, not {found}")]
    ContentTypeUnsupported { wanted: &'static str, found: String },
    #[error("run {run} has no query `{name}`")]
    UnknownQuery { run: String, name: String },
    #[error("cannot import the lines: {why}")]
    ImportInvalid { why: String },
    #[error("run {run} is not in the namespace `{namespace}` of this request")]
    ImportForeign { run: String, namespace: String },
    #[error("invalid body: {why}")]
    JsonInvalid { why: String },
    #[error("invalid message: {why}")]
    MessageInvalid { why: String },
    #[error("the body nests deeper than {max} levels, at line {line} column {column}")]
    JsonTooDeep { max: usize, line: usize, column: usize },
    #[error("the body has more than {max} bytes")]
    BodyTooLarge { max: usize },
    #[error("the runs to import have more than {max} bytes")]
    ImportTooLarge { max: usize },
    #[error("the body did not arrive within {seconds} seconds")]
    BodyTooSlow { seconds: u64 },
    #[error("the body arrives at less than {rate} bytes per second")]
    BodyStalled { rate: u64 },
    #[error("the connection broke while the body was read")]
    BodyBroken,
    #[error("invalid query: {why}")]
    QueryInvalid { why: String },
    #[error("invalid header {name}: {why}")]
    HeaderInvalid { name: &'static str, why: String },
    #[error("the host name `{host}` is not accepted")]
    HostRefused { host: String },
    #[error("cross-origin request from {origin} refused")]
    OriginRefused { origin: String },
    #[error("missing or invalid API key")]
    Unauthenticated,
    #[error("the API key is not valid for {what}")]
    NotAllowed { what: String },
    #[error("the limit of `{what}` is above the ceiling: {ceiling}")]
    BudgetTooLarge { what: &'static str, ceiling: String },
    #[error("the worker uses protocol {theirs}, this server {ours}")]
    ProtocolUnsupported { theirs: u32, ours: u32 },
    #[error("worker `{worker}` has a newer connection")]
    HelloOvertaken { worker: String },
    #[error("worker `{worker}` has no session on this server")]
    HelloMissing { worker: String },
    #[error("unknown webhook or invalid signature")]
    WebhookRefused,
    #[error("the body has no text and no integer at {pointer}")]
    WebhookUnroutable { pointer: String },
    #[error("there is no kind `{kind}`")]
    KindNotFound { kind: String },
    #[error("this server stores no attachments")]
    AttachmentsNotKept,
    #[error("the server is not ready: {why}")]
    NotReady { why: String },
    #[error("the store has stopped: {why}")]
    StoreStopped { why: String },
}

/// Required content type of a body that is stored byte for byte.
pub(crate) const PLAIN_BYTES: &str = "plain bytes";

impl RequestError {
    /// Returns the stable error code; has a page `docs/errors/<code>.md`. Never reused, never renamed.
    pub fn code(&self) -> &'static str {
        match self {
            RequestError::RouteNotFound => "route_not_found",
            RequestError::MethodNotAllowed { .. } => "method_not_allowed",
            RequestError::ContentTypeUnsupported { .. } => "content_type_unsupported",
            RequestError::UnknownQuery { .. } => "unknown_query",
            RequestError::ImportInvalid { .. } => "import_invalid",
            RequestError::JsonInvalid { .. } => "json_invalid",
            RequestError::MessageInvalid { .. } => "message_invalid",
            RequestError::JsonTooDeep { .. } => "json_too_deep",
            RequestError::BodyTooLarge { .. } | RequestError::ImportTooLarge { .. } => "body_too_large",
            RequestError::BodyTooSlow { .. } | RequestError::BodyStalled { .. } => "body_too_slow",
            RequestError::BodyBroken => "body_broken",
            RequestError::QueryInvalid { .. } => "query_invalid",
            RequestError::HeaderInvalid { .. } => "header_invalid",
            RequestError::HostRefused { .. } => "host_refused",
            RequestError::OriginRefused { .. } => "origin_refused",
            RequestError::Unauthenticated => "unauthenticated",
            RequestError::NotAllowed { .. } | RequestError::ImportForeign { .. } => "not_allowed",
            RequestError::BudgetTooLarge { .. } => "budget_too_large",
            RequestError::ProtocolUnsupported { .. } => "protocol_unsupported",
            RequestError::HelloOvertaken { .. } => "hello_overtaken",
            RequestError::HelloMissing { .. } => "hello_missing",
            RequestError::WebhookRefused => "webhook_refused",
            RequestError::WebhookUnroutable { .. } => "webhook_unroutable",
            RequestError::KindNotFound { .. } => "kind_not_found",
            RequestError::AttachmentsNotKept => "attachments_not_kept",
            RequestError::NotReady { .. } | RequestError::StoreStopped { .. } => "not_ready",
        }
    }

    /// Returns what to do about the error; every error has a hint.
    fn hint(&self) -> &'static str {
        match self {
            RequestError::RouteNotFound => "see GET /openapi.json for all routes",
            RequestError::MethodNotAllowed { .. } => "use a method that the header Allow lists",
            RequestError::ContentTypeUnsupported { wanted: "application/x-ndjson", .. } => {
                "send the header `Content-Type: application/x-ndjson`, in UTF-8 and without Content-Encoding"
            }
            RequestError::ContentTypeUnsupported { wanted: PLAIN_BYTES, .. } => {
                "send the bytes as they are, without Content-Encoding: models get the stored bytes"
            }
            RequestError::ContentTypeUnsupported { .. } => {
                "send the header `Content-Type: application/json`, in UTF-8 and without Content-Encoding"
            }
            RequestError::ImportForeign { .. } => {
                "send the namespace of the runs in the header `Onward-Namespace`; an import does not change it"
            }
            RequestError::ImportTooLarge { .. } => {
                "import fewer runs at a time; for a single run that is too large, stop the server and use `onward --data DIR import FILE`"
            }
            RequestError::BodyTooLarge { .. } => "keep large data elsewhere and pass a reference",
            RequestError::HostRefused { .. } => "use localhost or its address; a server on loopback accepts no other name",
            RequestError::Unauthenticated => "send one header `Authorization: Bearer onw_…`; create a key: `onward key create`",
            RequestError::BudgetTooLarge { .. } => "set a lower limit; ceilings are per namespace in the settings and per key",
            RequestError::ProtocolUnsupported { .. } => "use an SDK of the server's version",
            RequestError::UnknownQuery { .. } => "register it with `ctx.query(name, ..)`; the code must have reached that call",
            RequestError::WebhookRefused => "see docs/operations.md for how to create and sign webhooks",
            RequestError::WebhookUnroutable { .. } => "check the webhook's pointers with `onward webhook list`",
            RequestError::KindNotFound { .. } => "see GET /v1/kinds for the kinds with schemas or workers",
            RequestError::OriginRefused { .. } => "send changes only from pages of this server",
            RequestError::ImportInvalid { .. } => "import whole lines, as `onward export` writes them",
            RequestError::JsonInvalid { .. } => "see GET /openapi.json for the schema of every body",
            RequestError::MessageInvalid { .. } => "see the .proto file, which reflection serves",
            RequestError::JsonTooDeep { .. } => "keep deep structures elsewhere, or as text",
            RequestError::BodyTooSlow { .. } | RequestError::BodyStalled { .. } => {
                "send the body faster, or change the limits in the server's settings"
            }
            RequestError::BodyBroken => "send the request again",
            RequestError::QueryInvalid { .. } => "see GET /openapi.json for the parameters of every route",
            RequestError::HeaderInvalid { .. } => "send it once, as described in docs/http.md, or omit it",
            RequestError::NotAllowed { .. } => "create a key for other scopes, namespaces, kinds and queues: `onward key create`",
            RequestError::HelloOvertaken { .. } => "give every worker an id of its own",
            RequestError::HelloMissing { .. } => "send hello again; a session ends with its server or its lease",
            RequestError::AttachmentsNotKept => {
                "set `server.attachments` to a folder and restart the server, or send the bytes in the message as `base64`"
            }
            RequestError::NotReady { .. } => "retry in a moment; GET /readyz reports when the server is ready",
            RequestError::StoreStopped { .. } => {
                "remove the cause, which is in the server's log, and restart the server; it does not recover by itself"
            }
        }
    }
}

/// Returns the status of a documented code; `None` for an unknown code.
///
/// Includes the codes that only the library or the command line returns, so that every page of `docs/errors` has a status.
pub fn status_of(code: &str) -> Option<StatusCode> {
    let status = match code {
        "json_invalid"
        | "json_too_deep"
        | "message_invalid"
        | "body_broken"
        | "query_invalid"
        | "header_invalid"
        | "protocol_unsupported"
        | "name_invalid"
        | "id_invalid"
        | "id_reserved"
        | "text_too_long"
        | "value_invalid"
        | "payload_invalid"
        | "call_id_invalid"
        | "cursor_invalid"
        | "attribute_invalid"
        | "filter_empty"
        | "message_empty"
        | "attachment_invalid"
        | "not_confirmed"
        | "register_invalid"
        | "input_invalid"
        | "schema_invalid"
        | "kind_reserved"
        | "server_url_invalid"
        | "store_unsupported"
        | "config_invalid"
        | "log_unreadable"
        | "usage"
        | "key_invalid"
        | "webhook_secret_invalid"
        | "only_checked"
        | "check_failed"
        | "listen_refused" => 400,
        "unauthenticated" | "webhook_refused" => 401,
        "model_quota_exhausted" => 402,
        "host_refused" | "origin_refused" | "not_a_decider" | "not_allowed" | "kind_internal" | "budget_too_large" => 403,
        "route_not_found" | "run_not_found" | "wait_not_found" | "unknown_query" | "unknown_kind" | "directory_missing"
        | "key_not_found" | "kind_not_found" | "webhook_not_found" | "task_not_found" | "entry_not_found" | "unknown_model"
        | "attachments_not_kept" => 404,
        "method_not_allowed" => 405,
        "body_too_slow" => 408,
        "run_exists"
        | "run_closed"
        | "run_paused"
        | "budget_exhausted"
        | "approval_needed"
        | "child_behind_approval"
        | "outcome_unknown"
        | "run_not_paused"
        | "run_is_task"
        | "run_not_failed"
        | "run_reset"
        | "failure_handled"
        | "run_continued"
        | "run_busy"
        | "run_external"
        | "run_not_external"
        | "family_differs"
        | "log_conflict"
        | "signal_lost"
        | "question_left"
        | "id_taken"
        | "entry_key_taken"
        | "no_checkpoint"
        | "branch_pending"
        | "update_unanswered"
        | "query_unanswered"
        | "no_compatible_worker" // a condition of the run's workers, not of the server
        | "lease_lost"
        | "hello_overtaken"
        | "hello_missing"
        | "inputs_unread"
        | "task_attempt_over"
        | "task_not_quarantined"
        | "key_ended"
        | "webhook_exists"
        | "directory_locked" => 409,
        "body_too_large" | "payload_too_large" => 413,
        "content_type_unsupported" => 415,
        "run_failed" | "answer_failed" | "commit_malformed" | "webhook_unroutable" | "fork_point_invalid" | "log_invalid"
        | "import_invalid" | "model_request_refused" | "tool_call_refused" | "context_too_long"
        | "attachment_missing" | "attachment_damaged" => 422,
        "model_rate_limited" => 429,
        "log_corrupt"
        | "store_corrupt"
        | "database_newer"
        | "database_unusable"
        | "database_untrusted"
        | "directory_newer"
        | "directory_foreign"
        | "databases_differ"
        | "directory_unusable"
        | "worker_not_started"
        | "listen_failed"
        | "key_file_unusable"
        | "key_file_not_written"
        | "webhook_file_unusable"
        | "webhook_file_not_written"
        | "payload_unreadable"
        | "tls_files_unusable"
        | "model_key_missing"
        | "io"
        | "failed" => 500,
        "model_failed" | "empty_model_response" | "model_key_refused" | "model_answer_broken" | "model_answer_too_large"
        | "model_disconnected" | "tool_source_gone" | "tool_result_too_large" | "tool_key_refused" | "tool_source_broken" => 502,
        "not_ready"
        | "model_overloaded"
        | "attachment_unreadable"
        | "model_unreachable"
        | "tool_source_unreachable"
        | "shut_down"
        | "store_stopped"
        | "store_unavailable"
        | "store_damaged"
        | "server_unreachable"
        | "store_read_only" => 503,
        "wait_timed_out" | "model_timed_out" | "tool_timed_out" => 504,
        "disk_full" => 507,
        _ => return None,
    };
    StatusCode::from_u16(status).ok()
}

/// Error response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub status: StatusCode,
    pub code: &'static str,
    pub detail: String,
    pub hint: Option<&'static str>,
    /// Violations of the input's schema, each with its path.
    pub violations: Vec<Violation>,
    /// Next index of an external run's log, if the engine appended at another one.
    pub next_index: Option<u64>,
}

#[derive(Serialize)]
struct ProblemDocument<'a> {
    r#type: String,
    title: String,
    status: u16,
    detail: &'a str,
    code: &'a str,
    hint: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_index: Option<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    violations: Vec<ViolationDocument<'a>>,
}

#[derive(Serialize)]
struct ViolationDocument<'a> {
    path: &'a str,
    keyword: &'a str,
    message: &'a str,
}

impl Problem {
    /// Creates a problem with one of the documented codes.
    pub fn new(code: &'static str, detail: String, hint: Option<&'static str>) -> Problem {
        let status = status_of(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Problem { status, code, detail, hint, violations: Vec::new(), next_index: None }
    }

    /// Returns the document, for a response or an event stream.
    pub fn to_json(&self) -> String {
        document(self.code, &self.detail, self.hint, self.next_index, &self.violations)
    }
}

/// Returns the document of a problem with any code, for other parts of the program that report errors in this format.
pub fn to_json(code: &str, detail: &str, hint: Option<&str>) -> String {
    document(code, detail, hint, None, &[])
}

fn document(code: &str, detail: &str, hint: Option<&str>, next_index: Option<u64>, violations: &[Violation]) -> String {
    let violations = violations.iter().map(|Violation { path, keyword, message }| ViolationDocument { path, keyword, message });
    let status = status_of(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR).as_u16();
    let (r#type, title) = (format!("urn:onward:error:{code}"), code.replace('_', " "));
    let document = ProblemDocument { r#type, title, status, detail, code, hint, next_index, violations: violations.collect() };
    serde_json::to_string(&document).expect("a problem serializes")
}

impl From<RequestError> for Problem {
    fn from(error: RequestError) -> Problem {
        Problem::new(error.code(), error.to_string(), Some(error.hint()))
    }
}

impl From<RuntimeError> for Problem {
    fn from(error: RuntimeError) -> Problem {
        let mut detail = error.to_string();
        let mut source = std::error::Error::source(&error);
        while let Some(cause) = source {
            let text = cause.to_string();
            if !detail.ends_with(&text) {
                detail = format!("{detail}: {text}");
            }
            source = cause.source();
        }
        let problem = Problem::new(error.code(), detail, error.hint());
        match error {
            RuntimeError::InputInvalid { violations, .. } => Problem { violations, ..problem },
            RuntimeError::Store(StoreError::Refused(Refusal::LogConflict { next, .. })) => {
                Problem { next_index: Some(next.0), ..problem }
            }
            _ => problem,
        }
    }
}

impl From<NameError> for Problem {
    fn from(error: NameError) -> Problem {
        RuntimeError::from(error).into()
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = (self.status, self.to_json()).into_response();
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        // For metrics and the log.
        response.extensions_mut().insert(ResponseCode(self.code));
        response
    }
}

/// Error code of a response.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResponseCode(pub &'static str);

#[cfg(test)]
mod tests {
    use super::*;

    /// Codes of recorded failures that no response has.
    const RECORDED: [&str; 1] = ["outcome_unknown"];

    #[test]
    fn every_documented_code_has_a_status() {
        let pages = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/errors");
        let mut count = 0;
        for entry in std::fs::read_dir(pages).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let code = name.trim_end_matches(".md");
            if code != "README" && !RECORDED.contains(&code) {
                assert!(status_of(code).is_some(), "{code} has no status");
                count += 1;
            }
        }
        assert!(count > 50, "only {count} pages were found");
        assert_eq!(status_of("no_such_code"), None);
    }

    #[test]
    fn a_problem_tells_its_causes_once() {
        let source = onward_core::Name::new("").unwrap_err();
        let problem = Problem::from(RuntimeError::IdInvalid { what: "signal id", source });
        assert_eq!(problem.detail, "the signal id is invalid: a name must not be empty");
        let problem = Problem::from(RuntimeError::from(onward_store::StoreError::DiskFull));
        assert_eq!((problem.status.as_u16(), problem.detail.as_str()), (507, "the disk is full"));
    }
}

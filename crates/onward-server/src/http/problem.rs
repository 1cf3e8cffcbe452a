//! HTTP errors: RFC 9457 problem documents with stable codes.
//!
//! Owns the errors that only the HTTP API has. Must never contain a payload.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use onward_core::run::Refusal;
use onward_core::{ErrorCode, NameError, error_enum};
use onward_runtime::{RuntimeError, Violation};
use onward_store::StoreError;
use serde::Serialize;

error_enum! {
    /// Error of a request that was found before anything was done.
    #[derive(Debug, thiserror::Error)]
    pub enum RequestError {
        #[error("no route for {method} {path}")]
        RouteNotFound { method: String, path: String } => RouteNotFound,
        #[error("this path does not support {method}")]
        MethodNotAllowed { method: String } => MethodNotAllowed,
        #[error("the body must be {wanted}, not {found}")]
        ContentTypeUnsupported { wanted: &'static str, found: String } => ContentTypeUnsupported
            hint(wanted) content_type_hint(wanted),
        #[error("run {run} has no query `{name}`")]
        UnknownQuery { run: String, name: String } => UnknownQuery,
        #[error("cannot import the lines: {why}")]
        ImportInvalid { why: String } => ImportInvalid,
        #[error("run {run} is not in the namespace `{namespace}` of this request")]
        ImportForeign { run: String, namespace: String } => NotAllowed
            hint() "send the namespace of the runs in the header `Onward-Namespace`; an import does not change it",
        #[error("invalid body: {why}")]
        JsonInvalid { why: String } => JsonInvalid,
        #[error("invalid message: {why}")]
        MessageInvalid { why: String } => MessageInvalid,
        #[error("the body nests deeper than {max} levels, at line {line} column {column}")]
        JsonTooDeep { max: usize, line: usize, column: usize } => JsonTooDeep,
        #[error("the body has more than {max} bytes")]
        BodyTooLarge { max: usize } => BodyTooLarge,
        #[error("the runs to import have more than {max} bytes")]
        ImportTooLarge { max: usize } => BodyTooLarge
            hint() "import fewer runs at a time; for a single run that is too large, stop the server and use `onward --data DIR import FILE`",
        #[error("the body did not arrive within {seconds} seconds")]
        BodyTooSlow { seconds: u64 } => BodyTooSlow,
        #[error("the body arrives at less than {rate} bytes per second")]
        BodyStalled { rate: u64 } => BodyTooSlow,
        #[error("the connection broke while the body was read")]
        BodyBroken => BodyBroken,
        #[error("invalid query: {why}")]
        QueryInvalid { why: String } => QueryInvalid,
        #[error("invalid header {name}: {why}")]
        HeaderInvalid { name: &'static str, why: String } => HeaderInvalid,
        #[error("the host name `{host}` is not accepted")]
        HostRefused { host: String } => HostRefused,
        #[error("cross-origin request from {origin} refused")]
        OriginRefused { origin: String } => OriginRefused,
        #[error("the request uses a session of the console and does not come from the console")]
        Csrf => Csrf,
        #[error("missing or invalid API key")]
        Unauthenticated => Unauthenticated,
        #[error("the API key is not valid for {what}")]
        NotAllowed { what: String } => NotAllowed,
        #[error("the limit of `{what}` is above the ceiling: {ceiling}")]
        BudgetTooLarge { what: &'static str, ceiling: String } => BudgetTooLarge,
        #[error("the worker uses protocol {theirs}, this server {ours}")]
        ProtocolUnsupported { theirs: u32, ours: u32 } => ProtocolUnsupported,
        #[error("worker `{worker}` has a newer connection")]
        HelloOvertaken { worker: String } => HelloOvertaken,
        #[error("worker `{worker}` has no session on this server")]
        HelloMissing { worker: String } => HelloMissing,
        #[error("unknown webhook or invalid signature")]
        WebhookRefused => WebhookRefused,
        #[error("the body has no text and no integer at {pointer}")]
        WebhookUnroutable { pointer: String } => WebhookUnroutable,
        #[error("there is no kind `{kind}`")]
        KindNotFound { kind: String } => KindNotFound,
        #[error("this server stores no attachments")]
        AttachmentsDisabled => AttachmentsDisabled,
        #[error("the server is not ready: {why}")]
        NotReady { why: String } => NotReady,
        #[error("the store has stopped: {why}")]
        StoreStopped { why: String } => NotReady
            hint() "remove the cause, which is in the server's log, and restart the server; it does not recover by itself",
    }
}

/// Required content type of a body that is stored byte for byte.
pub(crate) const PLAIN_BYTES: &str = "plain bytes";

/// Returns the hint for a body of a type other than JSON.
fn content_type_hint(wanted: &str) -> Option<&'static str> {
    match wanted {
        "application/x-ndjson" => {
            Some("send the header `Content-Type: application/x-ndjson`, in UTF-8 and without Content-Encoding")
        }
        PLAIN_BYTES => Some("send the bytes as they are, without Content-Encoding: models get the stored bytes"),
        _ => None,
    }
}

/// Returns the status of a code; `None` for an unknown code.
pub fn status_of(code: &str) -> Option<StatusCode> {
    ErrorCode::find(code).and_then(|code| StatusCode::from_u16(code.status()).ok())
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
    /// After which time the same request may succeed, if that is known.
    pub retry_after_ms: Option<u64>,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    #[serde(skip_serializing_if = "<[Violation]>::is_empty")]
    violations: &'a [Violation],
}

impl Problem {
    /// Creates a problem with one of the documented codes.
    pub fn new(code: impl Into<&'static str>, detail: String, hint: Option<&'static str>) -> Problem {
        let code = code.into();
        let status = status_of(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Problem { status, code, detail, hint, violations: Vec::new(), next_index: None, retry_after_ms: None }
    }

    /// Returns the document, for a response or an event stream.
    pub fn to_json(&self) -> String {
        let Problem { next_index, retry_after_ms, .. } = *self;
        document(ProblemDocument {
            next_index,
            retry_after_ms,
            violations: &self.violations,
            ..plain(self.code, &self.detail, self.hint)
        })
    }
}

/// Returns the document of a problem with any code, for other parts of the program that report errors in this format.
pub fn to_json(code: &str, detail: &str, hint: Option<&str>) -> String {
    document(plain(code, detail, hint))
}

/// Returns the document of a problem without further members.
fn plain<'a>(code: &'a str, detail: &'a str, hint: Option<&'a str>) -> ProblemDocument<'a> {
    let status = status_of(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR).as_u16();
    let (r#type, title) = (format!("urn:onward:error:{code}"), code.replace('_', " "));
    ProblemDocument { r#type, title, status, detail, code, hint, next_index: None, retry_after_ms: None, violations: &[] }
}

fn document(document: ProblemDocument<'_>) -> String {
    serde_json::to_string(&document).expect("a problem serializes")
}

impl From<RequestError> for Problem {
    fn from(error: RequestError) -> Problem {
        Problem::new(error.code(), error.to_string(), error.hint())
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
        let retry_after_ms = error.retry_after_ms();
        let problem = Problem { retry_after_ms, ..Problem::new(error.code(), detail, error.hint()) };
        match error {
            RuntimeError::InputInvalid { violations, .. }
            | RuntimeError::AnswerInvalid { violations, .. }
            | RuntimeError::SignalInvalid { violations, .. }
            | RuntimeError::UpdateInvalid { violations, .. }
            | RuntimeError::FlowInvalid { violations, .. } => Problem { violations, ..problem },
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
        if let Some(seconds) = self.retry_after_ms.map(|millis| millis.div_ceil(1_000)) {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
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
mod tests;

//! Conversion of documents to responses.

use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

/// Returns a JSON response that must not be cached.
pub(crate) fn json(status: StatusCode, document: &impl Serialize) -> Response {
    let text = serde_json::to_string(document).expect("documents serialize");
    typed(status, "application/json", text)
}

pub(crate) fn text(status: StatusCode, text: impl Into<String>) -> Response {
    typed(status, "text/plain; charset=utf-8", text.into())
}

pub(crate) fn typed(status: StatusCode, content_type: &'static str, text: String) -> Response {
    let mut response = (status, text).into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

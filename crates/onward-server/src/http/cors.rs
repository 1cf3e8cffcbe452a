//! Cross-origin resource sharing: which pages of other origins may call the server and read its responses.
//!
//! Off by default: then no response allows another origin to read it. The server never sends `Access-Control-Allow-Credentials`,
//! so browsers send no cookies or client certificates; a page sends its API key in the header Authorization.

use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS,
    ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, ORIGIN, VARY,
};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};

/// Request headers that pages may send.
const ALLOWED_HEADERS: &str = "authorization, content-type, last-event-id, onward-namespace, traceparent";

/// Response headers that pages may read.
const EXPOSED_HEADERS: &str = "location, onward-next, retry-after, www-authenticate";

/// Seconds for which a browser may cache the response to a preflight request.
const PREFLIGHT_SECONDS: &str = "600";

/// Origins whose pages may call the server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cors {
    origins: Vec<String>,
}

impl Cors {
    /// Parses a comma-separated list of exact origins, like `https://app.example.com`; `*` is every origin.
    pub fn parse(list: &str) -> Result<Cors, String> {
        let origins: Vec<String> =
            list.split(',').map(str::trim).filter(|origin| !origin.is_empty()).map(str::to_owned).collect();
        match origins.iter().find(|origin| *origin != "*" && !is_origin(origin)) {
            Some(wrong) => Err(format!("`{wrong}` must be an origin like https://app.example.com, or *")),
            None => Ok(Cors { origins }),
        }
    }

    /// Returns whether pages of every origin are allowed.
    pub fn allows_all(&self) -> bool {
        self.origins.iter().any(|origin| origin == "*")
    }

    /// Returns the value of `Access-Control-Allow-Origin` for a request; `None` if its origin is not allowed or it has none.
    pub(crate) fn allowed_origin(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let origin = headers.get(ORIGIN)?;
        if self.allows_all() {
            return Some(HeaderValue::from_static("*"));
        }
        self.origins.iter().any(|allowed| origin == allowed.as_str()).then(|| origin.clone())
    }

    /// Adds the headers with which a browser lets the page read the response.
    pub(crate) fn add_headers(&self, response: &mut HeaderMap, allowed: Option<HeaderValue>) {
        if !self.origins.is_empty() && !self.allows_all() {
            response.append(VARY, HeaderValue::from_static("origin"));
        }
        if let Some(origin) = allowed {
            response.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            response.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED_HEADERS));
        }
    }
}

/// Returns whether `text` is a scheme, a host and an optional port, as browsers write it.
fn is_origin(text: &str) -> bool {
    let Ok(uri) = text.parse::<Uri>() else { return false };
    let is_plain = uri.path() == "/" && uri.query().is_none() && !text.ends_with('/') && !text.contains(['@', '*']);
    is_plain && matches!(uri.scheme_str(), Some("http" | "https")) && text == text.to_lowercase()
}

/// Returns whether the request is the preflight of a cross-origin request.
pub(crate) fn is_preflight(method: &Method, headers: &HeaderMap) -> bool {
    *method == Method::OPTIONS && headers.contains_key(ORIGIN) && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

/// Returns the response to a preflight request of an allowed origin.
pub(crate) fn preflight() -> Response {
    let allowed = [
        (ACCESS_CONTROL_ALLOW_METHODS, "GET, POST, PUT, DELETE"),
        (ACCESS_CONTROL_ALLOW_HEADERS, ALLOWED_HEADERS),
        (ACCESS_CONTROL_MAX_AGE, PREFLIGHT_SECONDS),
    ];
    (StatusCode::NO_CONTENT, allowed).into_response()
}

#[cfg(test)]
mod tests;

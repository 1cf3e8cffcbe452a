//! Checks that every request passes, and headers that every response has.
//!
//! Protects a server on loopback from foreign pages in a browser on the same machine: DNS rebinding is refused by the host name
//! (S20), cross-site requests by their origin (S19), unless the origin is allowed ([`cors`]). Requests with the cookie of a session
//! must come from the console (CS3).

use std::net::IpAddr;

use axum::extract::{Request, State};
use axum::http::header::{HOST, HeaderName, ORIGIN, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::Server;
use crate::auth::session;
use crate::http::cors;
use crate::http::problem::{Problem, RequestError};

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Host names that a server accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hosts {
    /// `localhost` and addresses of the loopback network.
    Loopback,
    /// Any name: for servers that require credentials.
    Any,
}

/// Checks host and origin of a request and sets the headers of every response (S21).
pub(crate) async fn watch(State(server): State<Server>, request: Request, next: Next) -> Response {
    let cors = &server.options().cors;
    let allowed = cors.allowed_origin(request.headers());
    let is_preflight = cors::is_preflight(request.method(), request.headers());
    let mut response = match check(&server.options().hosts, &request, allowed.is_some()) {
        Ok(()) if is_preflight => cors::preflight(),
        Ok(()) => next.run(request).await,
        Err(error) => {
            let problem = Problem::from(error);
            server.metrics().request(request.method().as_str(), "refused", problem.status.as_u16());
            problem.into_response()
        }
    };
    let headers = response.headers_mut();
    cors.add_headers(headers, allowed);
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    response
}

fn check(hosts: &Hosts, request: &Request, is_allowed_origin: bool) -> Result<(), RequestError> {
    let host = host_of(request)?;
    if *hosts == Hosts::Loopback && !host.as_ref().is_some_and(|host| is_loopback(host.host())) {
        let host = host.map(|host| host.to_string()).unwrap_or_default();
        return Err(RequestError::HostRefused { host });
    }
    if session::needs_console(request.method(), request.uri().path(), request.headers()) {
        let is_own = session::is_of_console(request.headers()) && check_origin(request.headers(), host.as_ref()).is_ok();
        return if is_own { Ok(()) } else { Err(RequestError::Csrf) };
    }
    let is_safe = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    if is_allowed_origin || (is_safe && !cors::is_preflight(request.method(), request.headers())) {
        return Ok(());
    }
    check_origin(request.headers(), host.as_ref())
}

/// Returns the host that the client addressed: the `:authority` of HTTP/2, or the only Host header.
fn host_of(request: &Request) -> Result<Option<Authority>, RequestError> {
    let mut named = request.headers().get_all(HOST).iter();
    let (first, second) = (named.next(), named.next());
    if let Some(authority) = request.uri().authority() {
        return Ok(Some(authority.clone()));
    }
    let invalid = |why: &str| RequestError::HeaderInvalid { name: "Host", why: why.to_owned() };
    match (first, second) {
        (_, Some(_)) => Err(invalid("it is sent twice")),
        (None, None) => Ok(None),
        (Some(host), None) => Ok(Some(Authority::try_from(host.as_bytes()).map_err(|_| invalid("it is not a host name"))?)),
    }
}

fn is_loopback(host: &str) -> bool {
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host.eq_ignore_ascii_case("localhost") || address.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Refuses a request from a page of another origin. Browsers send these headers; other clients do not.
fn check_origin(headers: &HeaderMap, host: Option<&Authority>) -> Result<(), RequestError> {
    let refused = |origin: &[u8]| Err(RequestError::OriginRefused { origin: String::from_utf8_lossy(origin).into_owned() });
    if let Some(origin) = headers.get(ORIGIN) {
        let text = origin.to_str().unwrap_or_default();
        let from = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
        let same = from.zip(host).is_some_and(|(from, host)| from.eq_ignore_ascii_case(host.as_str()));
        return if same { Ok(()) } else { refused(origin.as_bytes()) };
    }
    match headers.get(SEC_FETCH_SITE) {
        Some(site) if site == "cross-site" || site == "same-site" => refused(b"another site"),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;

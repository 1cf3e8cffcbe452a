//! The action `http`: one request to an allowed host.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::{Method, Request, Response, StatusCode, Uri};
use onward_core::{Failure, Payload};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{HttpHosts, invalid};
use crate::Result;

/// The largest body of a response.
const BODY_BYTES_MAX: usize = 1 << 20;

/// The part of an error response that its failure has.
const SHOWN_BYTES_MAX: usize = 8 << 10;

/// How long a request may take if its step has no `timeout`.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The longest wait that a server may ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(3600);

/// Headers that follow from the request, or that would change how it is sent.
const OWN_HEADERS: [&str; 7] = ["host", "content-length", "transfer-encoding", "connection", "upgrade", "te", "trailer"];

const IDEMPOTENCY_KEY: &str = "idempotency-key";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HttpArguments {
    url: String,
    /// `GET`, or `POST` with a body.
    method: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// Added to the URL. A list is added once for each item, and null is left out.
    #[serde(default)]
    query: BTreeMap<String, Value>,
    /// A body of text.
    body: Option<String>,
    /// A body of JSON.
    json: Option<Value>,
}

/// Sends the request; returns `{status, headers, body}`. Redirects are not followed: they are returned like other responses.
pub(super) async fn send(hosts: &HttpHosts, arguments: HttpArguments, idempotency_key: &str) -> Result<Value> {
    let request = request(hosts, arguments, idempotency_key)?;
    let exchange = async {
        let response = hosts.http.send(request).await.map_err(|lost| {
            let message = format!("no response from `{}`: {lost}", if lost.reached { "the host" } else { "the address" });
            Failure::new("http_unreachable", message)
        })?;
        receive(response).await
    };
    tokio::time::timeout(TIMEOUT, exchange).await.unwrap_or_else(|_| Err(Failure::timed_out("the request")))
}

fn request(hosts: &HttpHosts, arguments: HttpArguments, idempotency_key: &str) -> Result<Request<Full<Bytes>>> {
    let HttpArguments { url, method, headers, query, body, json } = arguments;
    let url = hosts.check(&with_query(&url, &query))?;
    let (body, content_type) = match (body, json) {
        (Some(_), Some(_)) => return Err(invalid("give either `body` or `json`")),
        (Some(text), None) => (Some(text), "text/plain; charset=utf-8"),
        (None, Some(json)) => (Some(json.to_string()), "application/json"),
        (None, None) => (None, ""),
    };
    let method = method.unwrap_or_else(|| if body.is_some() { "POST" } else { "GET" }.to_owned()).to_ascii_uppercase();
    let method = Method::from_bytes(method.as_bytes()).ok().filter(|method| *method != Method::CONNECT);
    let method = method.ok_or_else(|| invalid("`method` is not a method of HTTP"))?;
    let mut all = HeaderMap::new();
    if body.is_some() {
        all.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    }
    // A server that knows it discards repeats: an attempt may be lost after its request was sent.
    if !matches!(method, Method::GET | Method::HEAD | Method::OPTIONS) {
        all.insert(HeaderName::from_static(IDEMPOTENCY_KEY), header_value(IDEMPOTENCY_KEY, idempotency_key)?);
    }
    for (name, value) in &headers {
        let key = HeaderName::from_bytes(name.to_ascii_lowercase().as_bytes());
        let key = key.ok().filter(|key| !OWN_HEADERS.contains(&key.as_str()) && !key.as_str().starts_with("proxy-"));
        all.insert(key.ok_or_else(|| invalid(format!("the header `{name}` cannot be set")))?, header_value(name, value)?);
    }
    build(method, url, all, body)
}

fn build(method: Method, url: Uri, headers: HeaderMap, body: Option<String>) -> Result<Request<Full<Bytes>>> {
    let body = Full::new(body.map_or_else(Bytes::new, Bytes::from));
    let mut request = Request::builder().method(method).uri(url).body(body).map_err(|error| invalid(error.to_string()))?;
    *request.headers_mut() = headers;
    Ok(request)
}

fn header_value(name: &str, value: &str) -> Result<HeaderValue> {
    HeaderValue::from_str(value).map_err(|_| invalid(format!("the header `{name}` has a value with control characters")))
}

/// Adds names and values to the query of a URL.
fn with_query(url: &str, query: &BTreeMap<String, Value>) -> String {
    let mut pairs = Vec::new();
    for (name, value) in query {
        let values = match value {
            Value::Null => &[],
            Value::Array(values) => values.as_slice(),
            value => std::slice::from_ref(value),
        };
        pairs.extend(values.iter().map(|value| {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            format!("{}={}", percent_encoded(name), percent_encoded(&text))
        }));
    }
    if pairs.is_empty() {
        return url.to_owned();
    }
    let before = url.split('#').next().unwrap_or_default();
    let mark = if before.contains('?') { '&' } else { '?' };
    format!("{before}{mark}{}", pairs.join("&"))
}

fn percent_encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => encoded.push(char::from(byte)),
            byte => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

async fn receive(response: Response<Incoming>) -> Result<Value> {
    let (head, body) = response.into_parts();
    let body = Limited::new(body, BODY_BYTES_MAX).collect().await.map_err(|error| {
        if error.is::<http_body_util::LengthLimitError>() {
            let message = format!("the response has more than {BODY_BYTES_MAX} bytes");
            return Failure::fatal(message).with_code("http_response_too_large");
        }
        Failure::new("http_unreachable", format!("the response broke off: {error}"))
    })?;
    let value = json!({
        "status": head.status.as_u16(),
        "headers": headers(&head.headers),
        "body": body_value(&head.headers, &body.to_bytes()),
    });
    if head.status.is_client_error() || head.status.is_server_error() {
        return Err(refused(head.status, &head.headers, value));
    }
    Ok(value)
}

fn headers(headers: &HeaderMap) -> Value {
    let mut all: BTreeMap<&str, String> = BTreeMap::new();
    for (name, value) in headers {
        let text = String::from_utf8_lossy(value.as_bytes());
        all.entry(name.as_str())
            .and_modify(|known| {
                known.push_str(", ");
                known.push_str(&text);
            })
            .or_insert_with(|| text.clone().into_owned());
    }
    Value::Object(all.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect::<Map<_, _>>())
}

/// Returns the body: parsed if it is JSON, else as text.
fn body_value(headers: &HeaderMap, body: &[u8]) -> Value {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let parsed = if kind == "application/json" || kind.ends_with("+json") { serde_json::from_slice(body).ok() } else { None };
    parsed.unwrap_or_else(|| Value::String(String::from_utf8_lossy(body).into_owned()))
}

/// Returns the failure of an error response: `http_404`, for example. Another attempt may help after 429 and 5xx.
fn refused(status: StatusCode, headers: &HeaderMap, mut response: Value) -> Failure {
    let text = match &response["body"] {
        Value::String(text) => text.clone(),
        body => body.to_string(),
    };
    if text.len() > SHOWN_BYTES_MAX {
        response["body"] = text[..text.floor_char_boundary(SHOWN_BYTES_MAX)].into();
    }
    let retryable = status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS;
    let failure = Failure::new(format!("http_{}", status.as_u16()), format!("the server answered {status}"));
    let details = Payload::json(&response).ok();
    let failure = details.into_iter().fold(Failure { retryable, ..failure }, Failure::with_details);
    let after = headers.get(RETRY_AFTER).filter(|_| retryable).and_then(|value| retry_after(value, SystemTime::now()));
    after.into_iter().fold(failure, Failure::with_retry_after)
}

/// Reads `Retry-After`: seconds or a date.
fn retry_after(value: &HeaderValue, now: SystemTime) -> Option<Duration> {
    let text = value.to_str().ok()?.trim();
    let span = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => httpdate::parse_http_date(text).ok()?.duration_since(now).unwrap_or_default(),
    };
    Some(span.min(RETRY_AFTER_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(value: Value) -> HttpArguments {
        serde_json::from_value(value).unwrap()
    }

    fn made(value: Value) -> Result<Request<Full<Bytes>>> {
        request(&HttpHosts::new(["a.test"]).unwrap(), arguments(value), "key-1")
    }

    #[test]
    fn a_request_has_its_query_headers_and_key() {
        let request = made(json!({
            "url": "https://a.test/find?lang=de#top", "query": {"q": "a&b c/ü", "n": [1, 2], "none": null},
            "headers": {"X-Tag": "t"}, "json": {"a": 1},
        }))
        .unwrap();
        assert_eq!(request.uri(), "https://a.test/find?lang=de&n=1&n=2&q=a%26b%20c%2F%C3%BC");
        assert_eq!((request.method(), request.headers()["x-tag"].to_str().unwrap()), (&Method::POST, "t"));
        assert_eq!(request.headers()[CONTENT_TYPE], "application/json");
        assert_eq!(request.headers()[IDEMPOTENCY_KEY], "key-1");
        let own = made(json!({"url": "http://a.test", "method": "delete", "headers": {"Idempotency-Key": "mine"}})).unwrap();
        assert_eq!((own.method(), own.headers()[IDEMPOTENCY_KEY].to_str().unwrap()), (&Method::DELETE, "mine"));
        let get = made(json!({"url": "http://a.test"})).unwrap();
        assert!(get.headers().is_empty());
    }

    #[test]
    fn what_cannot_be_sent_is_refused() {
        let code = |value: Value| made(value).unwrap_err().code;
        assert_eq!(code(json!({"url": "http://b.test"})), "http_not_allowed");
        // A query cannot change the host.
        assert_eq!(code(json!({"url": "http://", "query": {"x": "a.test"}})), "invalid_arguments");
        for wrong in [
            json!({"url": "http://a.test", "headers": {"Host": "b.test"}}),
            json!({"url": "http://a.test", "headers": {"Proxy-Authorization": "x"}}),
            json!({"url": "http://a.test", "headers": {"x": "a\r\nb: c"}}),
            json!({"url": "http://a.test", "method": "CONNECT"}),
            json!({"url": "http://a.test", "method": "G T"}),
            json!({"url": "http://a.test", "body": "x", "json": 1}),
            json!({"url": "file:///etc/passwd"}),
        ] {
            assert_eq!(code(wrong.clone()), "invalid_arguments", "{wrong}");
        }
    }

    #[test]
    fn retry_after_is_seconds_or_a_date_and_bounded() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let read = |text: &str| retry_after(&HeaderValue::from_str(text).unwrap(), now).map(|span| span.as_secs());
        assert_eq!(read("7"), Some(7));
        assert_eq!(read("999999"), Some(3600));
        assert_eq!(read(&httpdate::fmt_http_date(now + Duration::from_secs(30))), Some(30));
        assert_eq!(read(&httpdate::fmt_http_date(now - Duration::from_secs(30))), Some(0));
        assert_eq!(read("soon"), None);
    }
}

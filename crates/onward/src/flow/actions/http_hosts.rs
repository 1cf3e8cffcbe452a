//! The hosts that the action `http` may reach.
//!
//! The client is that of models and tools (LH1): it follows no redirects and reads no proxy variables. Private addresses are
//! allowed, because the operator names each host.

use hyper::Uri;
use onward_core::Failure;
use onward_llm::{Http, server_url};
use serde_json::Value;

use super::invalid;
use crate::Result;

/// The hosts that an operator allows, and the connections to them.
pub(crate) struct HttpHosts {
    pub http: Http,
    allowed: Vec<AllowedHost>,
}

/// An entry of the list: `[http://|https://]HOST[:PORT]`, where the host may begin with `*.`.
#[derive(Debug, PartialEq)]
struct AllowedHost {
    /// Only this scheme, if it is given.
    scheme: Option<String>,
    host: String,
    /// All names below the host, and not the host itself.
    is_suffix: bool,
    /// Only this port; without one, the usual port of the scheme.
    port: Option<u16>,
}

/// An entry of the list of allowed hosts that is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{entry}` is not a host: use HOST, HOST:PORT or *.DOMAIN, with http:// or https:// before it to allow only that")]
pub struct HostError {
    entry: String,
}

impl HttpHosts {
    pub fn new<S: AsRef<str>>(allowed: impl IntoIterator<Item = S>) -> Result<HttpHosts, HostError> {
        let parse = |entry: S| AllowedHost::parse(entry.as_ref()).ok_or_else(|| HostError { entry: entry.as_ref().to_owned() });
        let allowed = allowed.into_iter().map(parse).collect::<Result<_, _>>()?;
        Ok(HttpHosts { http: Http::new(), allowed })
    }

    /// Returns the failure of a request where no host is allowed.
    pub fn none(arguments: &Value) -> Failure {
        let url = arguments.get("url").and_then(Value::as_str).unwrap_or_default();
        not_allowed(&url.parse().unwrap_or_default())
    }

    /// Parses a URL and checks its host (FP3).
    pub fn check(&self, url: &str) -> Result<Uri> {
        let url = server_url(url).map_err(|why| invalid(format!("`url`: {why}")))?;
        if self.allowed.iter().any(|allowed| allowed.fits(&url)) { Ok(url) } else { Err(not_allowed(&url)) }
    }
}

/// Returns the failure of a request to another host, or to another port or with another scheme than the allowed ones.
fn not_allowed(url: &Uri) -> Failure {
    let (host, port) = (url.host().unwrap_or_default(), port(url));
    let scheme = url.scheme_str().unwrap_or("http");
    let message = format!(
        "the action `http` may not reach port {port} of the host `{host}` with {scheme}: allow it with `Builder::flow_http` or \
         the setting `flows.http`"
    );
    Failure::fatal(message).with_code("http_not_allowed")
}

/// Returns the port that is usual for the scheme of a URL.
fn usual_port(url: &Uri) -> u16 {
    if url.scheme_str() == Some("https") { 443 } else { 80 }
}

/// Returns the port of a URL.
fn port(url: &Uri) -> u16 {
    url.port_u16().unwrap_or_else(|| usual_port(url))
}

impl AllowedHost {
    fn parse(entry: &str) -> Option<AllowedHost> {
        let entry = entry.trim().to_ascii_lowercase();
        let (scheme, rest) = match entry.split_once("://") {
            Some((scheme, rest)) => (Some(scheme.to_owned()), rest),
            None => (None, entry.as_str()),
        };
        let (is_suffix, rest) = rest.strip_prefix("*.").map_or((false, rest), |rest| (true, rest));
        // A list that allows a whole top-level domain by mistake would allow almost everything.
        if is_suffix && !rest.contains('.') {
            return None;
        }
        let url = server_url(&format!("{}://{rest}", scheme.as_deref().unwrap_or("http"))).ok()?;
        let is_bare = url.path_and_query().is_none_or(|path| path.as_str() == "/") && !rest.contains(['/', '?', '#', '*']);
        is_bare.then(|| AllowedHost { scheme, host: url.host().unwrap_or_default().to_owned(), is_suffix, port: url.port_u16() })
    }

    fn fits(&self, url: &Uri) -> bool {
        let host = url.host().unwrap_or_default().to_ascii_lowercase();
        let is_host = match host.strip_suffix(self.host.as_str()) {
            Some(before) if self.is_suffix => before.len() > 1 && before.ends_with('.'),
            Some(before) => before.is_empty(),
            None => false,
        };
        is_host
            && port(url) == self.port.unwrap_or_else(|| usual_port(url))
            && self.scheme.as_deref().is_none_or(|scheme| url.scheme_str() == Some(scheme))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reaches(allowed: &[&str], url: &str) -> bool {
        HttpHosts::new(allowed).unwrap().check(url).is_ok()
    }

    #[test]
    fn only_allowed_hosts_with_their_scheme_and_port_are_reached() {
        assert!(reaches(&["api.example.com"], "https://API.example.com/v1?q=1"));
        assert!(reaches(&["api.example.com"], "http://api.example.com:80/"));
        assert!(!reaches(&["api.example.com"], "https://api.example.com:8443/"));
        assert!(!reaches(&["api.example.com"], "https://example.com/"));
        assert!(!reaches(&["api.example.com"], "https://evilapi.example.com/"));
        assert!(!reaches(&["api.example.com"], "https://api.example.com.evil.test/"));
        assert!(!reaches(&["api.example.com"], "https://api.example.com@evil.test/"));
        assert!(reaches(&["https://api.example.com"], "https://api.example.com/"));
        assert!(!reaches(&["https://api.example.com"], "http://api.example.com/"));
        assert!(reaches(&["localhost:8080", "[::1]:9"], "http://localhost:8080/x"));
        assert!(reaches(&["[::1]:9"], "http://[::1]:9/"));
        assert!(!reaches(&["localhost:8080"], "http://localhost/"));
        assert!(!reaches(&[], "http://169.254.169.254/latest"));
    }

    #[test]
    fn a_refusal_names_the_host_and_the_port() {
        let refused = |allowed: &[&str], url: &str| HttpHosts::new(allowed).unwrap().check(url).unwrap_err().message;
        let wanted = "the action `http` may not reach port 8443 of the host `a.test` with https: allow it with";
        let message = refused(&["a.test"], "https://a.test:8443/x");
        assert!(message.starts_with(wanted), "{message}");
        let message = refused(&["https://a.test"], "http://a.test/x");
        assert!(message.contains("port 80 of the host `a.test` with http:"), "{message}");
        let message = HttpHosts::none(&serde_json::json!({"url": "https://[::1]/"})).message;
        assert!(message.contains("port 443 of the host `[::1]`"), "{message}");
    }

    #[test]
    fn a_star_stands_for_names_below_a_domain() {
        assert!(reaches(&["*.example.com"], "https://a.b.example.com/"));
        assert!(!reaches(&["*.example.com"], "https://example.com/"));
        assert!(!reaches(&["*.example.com"], "https://.example.com/"));
        assert!(!reaches(&["*.example.com"], "https://badexample.com/"));
    }

    #[test]
    fn an_entry_that_is_no_host_is_refused() {
        for entry in ["", "*", "*.com", "http://", "a/b", "ftp://a.test", "a.test?x", "user@a.test", "a*.test", "a.test:99999"] {
            assert!(HttpHosts::new([entry]).is_err(), "{entry}");
        }
    }
}

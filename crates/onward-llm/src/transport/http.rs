//! Connections to servers of models and tools: HTTP/1.1, TLS with the system's root certificates, keep-alive.
//!
//! Invariant LH1 (S13): a request goes only to the host of the URL that the operator configured. Redirects are not followed,
//! proxies of the environment are not used, and a URL contains no user name and no password. Nothing from a caller, a model or
//! a tool is ever used as a URL here, so private addresses are allowed.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{HeaderName, HeaderValue};
use hyper::{Request, Response, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Shorter than the usual timeouts of servers and proxies, so that they rarely close a connection that is about to be used.
const IDLE_CONNECTION_TIMEOUT: Duration = Duration::from_secs(50);

/// A connection pool that several providers share. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Http(Client<HttpsConnector<HttpConnector>, Full<Bytes>>);

/// The reason why there is no response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Lost {
    /// True if there was a connection, so that the request may have arrived.
    pub reached: bool,
    pub why: String,
}

/// Parses the URL of a server from the operator's configuration (LH1).
///
/// # Errors If it is not `http(s)://HOST[:PORT][/PATH][?QUERY]`, as text.
pub fn server_url(text: &str) -> Result<Uri, String> {
    let wrong = || "it must be http(s)://HOST[:PORT][/PATH], without user name or password".to_owned();
    let url: Uri = text.parse().map_err(|_| wrong())?;
    let authority = url.authority().ok_or_else(wrong)?;
    // The parser accepts more bytes in an authority than a host name has, and the host would be looked up.
    let is_plain = authority.as_str().bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte));
    let has_port = match authority.as_str().strip_prefix(authority.host()) {
        Some("") => true,
        Some(rest) => rest.strip_prefix(':').and_then(|port| port.parse::<u16>().ok()).is_some_and(|port| port != 0),
        None => false,
    };
    let is_usable = matches!(url.scheme_str(), Some("http" | "https")) && !authority.host().is_empty() && is_plain && has_port;
    if is_usable { Ok(url) } else { Err(wrong()) }
}

impl Default for Http {
    fn default() -> Http {
        Http::new()
    }
}

impl Http {
    /// Trusts the system's root certificates. If there are none, only `http://` can be reached.
    pub fn new() -> Http {
        Http::trusting(rustls_native_certs::load_native_certs().certs)
    }

    /// Trusts only these root certificates.
    pub fn trusting(authorities: impl IntoIterator<Item = CertificateDer<'static>>) -> Http {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
        tcp.set_keepalive(Some(Duration::from_secs(30))); // models are silent for long
        let tls = HttpsConnectorBuilder::new().with_tls_config(tls_config(authorities));
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_CONNECTION_TIMEOUT)
            .build(tls.https_or_http().enable_http1().wrap_connector(tcp));
        Http(client)
    }

    pub(crate) async fn post(
        &self,
        url: &Uri,
        headers: &[(HeaderName, HeaderValue)],
        body: Bytes,
    ) -> Result<Response<Incoming>, Lost> {
        let mut request = Request::post(url.clone()).body(Full::new(body)).expect("a method and a URL that was parsed");
        request.headers_mut().extend(headers.iter().cloned());
        self.send(request).await
    }

    /// Sends a request once. It is sent again only if it was never written because the other side had closed an idle
    /// connection.
    pub async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, Lost> {
        self.0.request(request).await.map_err(|error| Lost { reached: !error.is_connect(), why: chain(&error) })
    }
}

fn tls_config(authorities: impl IntoIterator<Item = CertificateDer<'static>>) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(authorities);
    // Explicit, so that a program with another default crypto provider is not affected.
    let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().expect("ring has the usual versions");
    builder.with_root_certificates(roots).with_no_client_auth()
}

fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests;

//! Connections to model servers: HTTP/1.1, TLS by what the system trusts, kept open between calls.

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

/// Shorter than what servers and proxies usually allow, so that they seldom close one that is about to be used.
const IDLE_CONNECTION_TIMEOUT: Duration = Duration::from_secs(50);

/// Connections that several providers share. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Http(Client<HttpsConnector<HttpConnector>, Full<Bytes>>);

/// Why no answer came.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Lost {
    /// Whether there was a connection, so that the request may have arrived.
    pub reached: bool,
    pub why: String,
}

impl Default for Http {
    fn default() -> Http {
        Http::new()
    }
}

impl Http {
    /// Trusts the authorities that the system trusts. Where it has none, only `http://` can be reached.
    pub fn new() -> Http {
        Http::trusting(rustls_native_certs::load_native_certs().certs)
    }

    /// Trusts these authorities and no others.
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

    /// Sends a request once. Only one that was never written, because the other side had closed the connection before, goes to the next.
    pub async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, Lost> {
        self.0.request(request).await.map_err(|error| Lost { reached: !error.is_connect(), why: chain(&error) })
    }
}

fn tls_config(authorities: impl IntoIterator<Item = CertificateDer<'static>>) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(authorities);
    // Named here, so that a program which has another provider as its default is not disturbed.
    let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().expect("ring has the usual versions");
    builder.with_root_certificates(roots).with_no_client_auth()
}

fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

//! Connections to one server: one that all calls share, and one for each of the worker's streams.
//!
//! Must never fall back to a connection without TLS, or to a peer whose certificate was not verified.

use std::error::Error as _;
use std::time::Duration;

use onward_core::codec::Message;
use onward_core::{ErrorCode, Namespace};
use onward_runtime::RuntimeError;
use onward_wire::ApiKey;
use onward_wire::api::{Call, Reply};
use onward_wire::grpc::{NAMESPACE, Untyped, Wire, path_of, undecodable};
use tonic::Streaming;
use tonic::body::Body;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::codegen::tokio_stream::Stream;
use tonic::codegen::{Service, http};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Endpoint;

use super::problem::{from_status, unreachable_at};
use crate::Error;

/// The largest message that a server accepts: several payloads of the maximum size.
const SENT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The largest message that a server may send: pages are small, but one record may be large.
const RECEIVED_BYTES_MAX: usize = 1024 * 1024 * 1024;

/// Interval and timeout of pings on an idle connection.
const PING_PAUSE: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(5);

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The authorities that a server's certificate is verified with: those of the system, or configured ones.
#[derive(Debug, Clone, Default)]
pub(crate) struct Trust {
    /// PEM, with one or more certificates.
    #[cfg(feature = "tls")]
    pub root: Option<Vec<u8>>,
}

impl Trust {
    #[cfg(feature = "tls")]
    pub fn apply(&self, endpoint: Endpoint) -> Result<Endpoint, String> {
        use tonic::transport::{Certificate, ClientTlsConfig};
        let config = match &self.root {
            // An empty list would be accepted here, and every server rejected later for another reason.
            Some(pem) if !String::from_utf8_lossy(pem).contains("-----BEGIN CERTIFICATE-----") => {
                return Err("the root certificate is not PEM".to_owned());
            }
            Some(pem) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem)),
            None => ClientTlsConfig::new().with_native_roots(),
        };
        endpoint.tls_config(config).map_err(|error| {
            let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
            format!("{error}{cause}")
        })
    }

    #[cfg(not(feature = "tls"))]
    pub fn apply(&self, _: Endpoint) -> Result<Endpoint, String> {
        Err("https:// needs the cargo feature `tls` of the crate `onward`".to_owned())
    }
}

#[derive(Clone)]
pub(crate) struct Channel {
    endpoint: Endpoint,
    inner: tonic::transport::Channel,
    /// Sent with every call and stream; without it, the server uses the namespace of the key.
    namespace: Option<MetadataValue<Ascii>>,
    /// Sent with every call and stream; marked as sensitive, so that it is not logged.
    authorization: Option<MetadataValue<Ascii>>,
}

/// Parses the URL of a server. URLs with a user name or password are rejected, because these would be ignored and printed.
pub(crate) fn endpoint(url: &str, trust: &Trust) -> Result<Endpoint, Error> {
    let wrong = |why: String| Error::ServerUrl { url: url.to_owned(), why };
    let endpoint = Endpoint::from_shared(url.to_owned()).map_err(|error| wrong(error.to_string()))?;
    if endpoint.uri().authority().is_some_and(|authority| authority.as_str().contains('@')) {
        // The message must not contain the password.
        let url = "http(s)://...@...".to_owned();
        return Err(Error::ServerUrl { url, why: "it must not have a user name or password".to_owned() });
    }
    match endpoint.uri().scheme_str() {
        Some("http") => Ok(endpoint),
        Some("https") => trust.apply(endpoint).map_err(wrong),
        _ => Err(wrong("it must begin with http:// or https://".to_owned())),
    }
}

impl Channel {
    /// Creates a channel that connects on first use, and again whenever the connection is lost.
    pub fn new(url: &str, namespace: Option<&Namespace>, key: Option<&ApiKey>, trust: &Trust) -> Result<Channel, Error> {
        let endpoint = endpoint(url, trust)?
            .connect_timeout(CONNECT_TIMEOUT)
            .http2_keep_alive_interval(PING_PAUSE)
            .keep_alive_timeout(PING_TIMEOUT)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(4 * 1024 * 1024)
            .initial_connection_window_size(16 * 1024 * 1024)
            .tcp_nodelay(true);
        // Any text without control characters is a valid header value, also outside of ASCII.
        let namespace = namespace.map(|namespace| {
            MetadataValue::try_from(namespace.as_str().as_bytes()).expect("a namespace has no control characters")
        });
        Ok(Channel { inner: endpoint.connect_lazy(), endpoint, namespace, authorization: key.map(authorization) })
    }

    /// Returns a separate connection to the same server.
    pub fn fresh(&self) -> Channel {
        Channel { inner: self.endpoint.connect_lazy(), ..self.clone() }
    }

    /// Sends the request of any verb.
    pub async fn call(&self, call: Call) -> Result<Reply, RuntimeError> {
        let mut grpc = self.ready().await?;
        let path = PathAndQuery::from_static(path_of(&call));
        let reply = grpc.unary(self.request(call.to_bytes()), path, Untyped).await;
        let bytes = reply.map(tonic::Response::into_inner).map_err(|status| self.error_of(&status))?;
        Reply::decode(call.name(), &bytes).map_err(|error| from_status(&undecodable(&error)))
    }

    /// Opens a stream of a worker or of the ends of runs, at `path`.
    pub async fn open<Sent, Received>(
        &self,
        path: &'static str,
        frames: impl Stream<Item = Sent> + Send + 'static,
    ) -> Result<Streaming<Received>, RuntimeError>
    where
        Sent: Message + Send + Sync + 'static,
        Received: Message + Send + Sync + 'static,
    {
        let mut grpc = self.ready().await?;
        let codec = Wire::<Sent, Received>::default();
        let reply = grpc.streaming(self.request(frames), PathAndQuery::from_static(path), codec).await;
        reply.map(tonic::Response::into_inner).map_err(|status| self.error_of(&status))
    }

    /// Opens a stream of the server about a run, at `path`.
    pub async fn receive<Sent, Received>(&self, path: &'static str, request: Sent) -> Result<Streaming<Received>, RuntimeError>
    where
        Sent: Message + Send + Sync + 'static,
        Received: Message + Send + Sync + 'static,
    {
        let mut grpc = self.ready().await?;
        let (path, codec) = (PathAndQuery::from_static(path), Wire::<Sent, Received>::default());
        let reply = grpc.server_streaming(self.request(request), path, codec).await;
        reply.map(tonic::Response::into_inner).map_err(|status| self.error_of(&status))
    }

    /// Sends a plain HTTP request.
    pub async fn send(&self, request: http::Request<Body>) -> Result<http::Response<Body>, RuntimeError> {
        let mut inner = self.inner.clone();
        let failed = |error: tonic::transport::Error| self.unreachable(&sentence(&error.to_string(), error.source()));
        std::future::poll_fn(|cx| inner.poll_ready(cx)).await.map_err(failed)?;
        inner.call(request).await.map_err(failed)
    }

    /// Returns the headers of every request.
    pub fn headers(&self) -> http::HeaderMap {
        self.request(()).into_parts().0.into_headers()
    }

    /// Returns a request with the headers of every request.
    fn request<T>(&self, message: T) -> tonic::Request<T> {
        let mut request = tonic::Request::new(message);
        if let Some(namespace) = &self.namespace {
            request.metadata_mut().insert(NAMESPACE, namespace.clone());
        }
        if let Some(authorization) = &self.authorization {
            request.metadata_mut().insert("authorization", authorization.clone());
        }
        request
    }

    async fn ready(&self) -> Result<tonic::client::Grpc<tonic::transport::Channel>, RuntimeError> {
        let mut grpc = tonic::client::Grpc::new(self.inner.clone())
            .max_decoding_message_size(RECEIVED_BYTES_MAX)
            .max_encoding_message_size(SENT_BYTES_MAX);
        grpc.ready().await.map_err(|error| self.unreachable(&sentence(&error.to_string(), error.source())))?;
        Ok(grpc)
    }

    /// Converts a status into the server's error, or into `server_unreachable`.
    pub fn error_of(&self, status: &tonic::Status) -> RuntimeError {
        let error = from_status(status);
        if error.code() == ErrorCode::ServerUnreachable {
            self.unreachable(&sentence(status.message(), status.source()))
        } else {
            error
        }
    }

    fn unreachable(&self, why: &str) -> RuntimeError {
        unreachable_at(&self.endpoint.uri().to_string(), why)
    }
}

fn authorization(key: &ApiKey) -> MetadataValue<Ascii> {
    let text = format!("Bearer {}", key.reveal());
    let mut value = MetadataValue::try_from(text).expect("a key has letters and digits only");
    value.set_sensitive(true);
    value
}

/// Joins an error with its causes, without repetitions and without the text of every error of the transport.
fn sentence(first: &str, mut source: Option<&dyn std::error::Error>) -> String {
    let mut texts = vec![first.to_owned()];
    while let Some(inner) = source {
        texts.push(inner.to_string());
        source = inner.source();
    }
    let mut why = String::new();
    for text in texts.iter().filter(|text| *text != "transport error") {
        match why.contains(text.as_str()) {
            true => {}
            false if why.is_empty() => why.push_str(text),
            false => why += &format!(": {text}"),
        }
    }
    if why.is_empty() { first.to_owned() } else { why }
}

#[cfg(test)]
mod tests;

//! Connections to one server: one that all calls share, and one for each of the worker's streams.

use std::time::Duration;

use onward_core::{Namespace, RunKey};
use onward_runtime::RuntimeError;
use onward_wire::ApiKey;
use onward_wire::api::{EmittedValue, RunRequest};
use onward_wire::grpc::{Method, NAMESPACE, Wire};
use onward_wire::worker::{ServerFrames, WorkerFrames};
use tonic::Streaming;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::codegen::tokio_stream::Stream;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Endpoint;

use super::problem::from_status;
use super::trust::Trust;
use crate::Error;

/// The largest message that a server takes: some payloads of the largest size, and room around them.
const SENT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The largest message that a server may send: its pages are small, but one record may be large.
const RECEIVED_BYTES_MAX: usize = 1024 * 1024 * 1024;

/// How often an idle connection is checked, and how long the answer may take.
const PING_PAUSE: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(5);

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Clone)]
pub(crate) struct Channel {
    endpoint: Endpoint,
    inner: tonic::transport::Channel,
    /// Goes with every call and stream.
    namespace: MetadataValue<Ascii>,
    /// Sent with everything; marked so that nobody prints it.
    authorization: Option<MetadataValue<Ascii>>,
}

impl Channel {
    /// Connects when it is first used, and again whenever the connection is lost.
    pub fn new(url: &str, namespace: &Namespace, key: Option<&ApiKey>, trust: &Trust) -> Result<Channel, Error> {
        let wrong = |why: String| Error::ServerUrl { url: url.to_owned(), why };
        let endpoint = Endpoint::from_shared(url.to_owned()).map_err(|error| wrong(error.to_string()))?;
        let endpoint = match endpoint.uri().scheme_str() {
            Some("http") => endpoint,
            Some("https") => trust.apply(endpoint).map_err(wrong)?,
            _ => return Err(wrong("it has to begin with http:// or https://".to_owned())),
        };
        let endpoint = endpoint
            .connect_timeout(CONNECT_TIMEOUT)
            .http2_keep_alive_interval(PING_PAUSE)
            .keep_alive_timeout(PING_TIMEOUT)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(4 * 1024 * 1024)
            .initial_connection_window_size(16 * 1024 * 1024)
            .tcp_nodelay(true);
        // Any text without control characters is a header's value, also outside of ASCII.
        let namespace = MetadataValue::try_from(namespace.as_str().as_bytes()).expect("a namespace has no control characters");
        Ok(Channel { inner: endpoint.connect_lazy(), endpoint, namespace, authorization: key.map(authorization) })
    }

    /// Another connection to the same server.
    pub fn fresh(&self) -> Channel {
        Channel { inner: self.endpoint.connect_lazy(), ..self.clone() }
    }

    pub async fn call<M: Method>(&self, request: M::Request) -> Result<M::Reply, RuntimeError> {
        let mut grpc = self.grpc();
        grpc.ready().await.map_err(|error| unreachable(&error))?;
        let (path, codec) = (PathAndQuery::from_static(M::PATH), Wire::<M::Request, M::Reply>::default());
        let reply = grpc.unary(self.request(request), path, codec).await;
        reply.map(tonic::Response::into_inner).map_err(|status| from_status(&status))
    }

    /// Opens a worker's stream.
    pub async fn connect(
        &self,
        frames: impl Stream<Item = WorkerFrames> + Send + 'static,
    ) -> Result<Streaming<ServerFrames>, RuntimeError> {
        let mut grpc = self.grpc();
        grpc.ready().await.map_err(|error| unreachable(&error))?;
        let path = PathAndQuery::from_static(onward_wire::grpc::CONNECT);
        let codec = Wire::<WorkerFrames, ServerFrames>::default();
        let reply = grpc.streaming(self.request(frames), path, codec).await;
        reply.map(tonic::Response::into_inner).map_err(|status| from_status(&status))
    }

    /// What a run emits from now on.
    pub async fn listen(&self, run: RunKey) -> Result<Streaming<EmittedValue>, RuntimeError> {
        let mut grpc = self.grpc();
        grpc.ready().await.map_err(|error| unreachable(&error))?;
        let (path, codec) = (PathAndQuery::from_static(onward_wire::grpc::LISTEN), Wire::<RunRequest, EmittedValue>::default());
        let reply = grpc.server_streaming(self.request(RunRequest { run }), path, codec).await;
        reply.map(tonic::Response::into_inner).map_err(|status| from_status(&status))
    }

    /// A message with what goes along with every one.
    fn request<T>(&self, message: T) -> tonic::Request<T> {
        let mut request = tonic::Request::new(message);
        request.metadata_mut().insert(NAMESPACE, self.namespace.clone());
        if let Some(authorization) = &self.authorization {
            request.metadata_mut().insert("authorization", authorization.clone());
        }
        request
    }

    fn grpc(&self) -> tonic::client::Grpc<tonic::transport::Channel> {
        tonic::client::Grpc::new(self.inner.clone())
            .max_decoding_message_size(RECEIVED_BYTES_MAX)
            .max_encoding_message_size(SENT_BYTES_MAX)
    }
}

fn authorization(key: &ApiKey) -> MetadataValue<Ascii> {
    let text = format!("Bearer {}", key.reveal());
    let mut value = MetadataValue::try_from(text).expect("a key has letters and digits only");
    value.set_sensitive(true);
    value
}

fn unreachable(error: &dyn std::error::Error) -> RuntimeError {
    let mut why = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        why += &format!(": {inner}");
        source = inner.source();
    }
    onward_store::StoreError::Unavailable { why }.into()
}

//! Connections to one server: one that all calls share, and one for each of the worker's streams.

use std::time::Duration;

use onward_core::RunKey;
use onward_runtime::RuntimeError;
use onward_wire::api::{EmittedValue, RunRequest};
use onward_wire::grpc::{Method, Wire};
use onward_wire::worker::{ServerFrames, WorkerFrames};
use tonic::Streaming;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::codegen::tokio_stream::Stream;
use tonic::transport::Endpoint;

use super::problem::from_status;
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
}

impl Channel {
    /// Connects when it is first used, and again whenever the connection is lost.
    pub fn new(url: &str) -> Result<Channel, Error> {
        let wrong = |why: String| Error::ServerUrl { url: url.to_owned(), why };
        let endpoint = Endpoint::from_shared(url.to_owned()).map_err(|error| wrong(error.to_string()))?;
        if !matches!(endpoint.uri().scheme_str(), Some("http" | "https")) {
            return Err(wrong("it has to begin with http:// or https://".to_owned()));
        }
        let endpoint = endpoint
            .connect_timeout(CONNECT_TIMEOUT)
            .http2_keep_alive_interval(PING_PAUSE)
            .keep_alive_timeout(PING_TIMEOUT)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(4 * 1024 * 1024)
            .initial_connection_window_size(16 * 1024 * 1024)
            .tcp_nodelay(true);
        Ok(Channel { inner: endpoint.connect_lazy(), endpoint })
    }

    /// Another connection to the same server.
    pub fn fresh(&self) -> Channel {
        Channel { inner: self.endpoint.connect_lazy(), endpoint: self.endpoint.clone() }
    }

    pub async fn call<M: Method>(&self, request: M::Request) -> Result<M::Reply, RuntimeError> {
        let mut grpc = self.grpc();
        grpc.ready().await.map_err(|error| unreachable(&error))?;
        let (path, codec) = (PathAndQuery::from_static(M::PATH), Wire::<M::Request, M::Reply>::default());
        let reply = grpc.unary(tonic::Request::new(request), path, codec).await;
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
        let reply = grpc.streaming(tonic::Request::new(frames), path, codec).await;
        reply.map(tonic::Response::into_inner).map_err(|status| from_status(&status))
    }

    /// What a run emits from now on.
    pub async fn listen(&self, run: RunKey) -> Result<Streaming<EmittedValue>, RuntimeError> {
        let mut grpc = self.grpc();
        grpc.ready().await.map_err(|error| unreachable(&error))?;
        let (path, codec) = (PathAndQuery::from_static(onward_wire::grpc::LISTEN), Wire::<RunRequest, EmittedValue>::default());
        let reply = grpc.server_streaming(tonic::Request::new(RunRequest { run }), path, codec).await;
        reply.map(tonic::Response::into_inner).map_err(|status| from_status(&status))
    }

    fn grpc(&self) -> tonic::client::Grpc<tonic::transport::Channel> {
        tonic::client::Grpc::new(self.inner.clone())
            .max_decoding_message_size(RECEIVED_BYTES_MAX)
            .max_encoding_message_size(SENT_BYTES_MAX)
    }
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

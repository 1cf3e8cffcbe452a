//! Export of spans to a collector in batches; spans that it does not accept are dropped.

use std::time::Duration;

use onward_wire::grpc::Untyped;
use tokio::sync::{mpsc, oneshot};
use tonic::Status;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::{Ascii, AsciiMetadataKey, MetadataValue};
use tonic::transport::Channel;

use super::spans::Span;
use super::{Otlp, message};
use crate::Error;
use crate::remote::Trust;

const EXPORT: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/// Number of queued spans; further ones are dropped.
const WAITING_MAX: usize = 8_192;

/// Number of spans in one message, and how long the first may wait for others.
const BATCH_MAX: usize = 512;
const BATCH_DELAY: Duration = Duration::from_millis(500);

/// Timeout and number of attempts of an export.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);
const TRIES: u32 = 4;
const RETRY_DELAY: Duration = Duration::from_millis(250);

enum Work {
    Span(Box<Span>),
    Flush(oneshot::Sender<()>),
}

#[derive(Clone)]
pub(super) struct Exporter {
    work: mpsc::Sender<Work>,
}

impl Exporter {
    pub fn start(otlp: Otlp) -> Result<Exporter, Error> {
        let sender = Sender::new(otlp)?;
        let (work, waiting) = mpsc::channel(WAITING_MAX);
        tokio::spawn(run(sender, waiting));
        Ok(Exporter { work })
    }

    pub fn export(&self, span: Span) {
        drop(self.work.try_send(Work::Span(Box::new(span)))); // a slow collector must not slow down the work
    }

    pub async fn flush(&self, timeout: Duration) {
        let (sender, done) = oneshot::channel();
        let flushed = async {
            if self.work.send(Work::Flush(sender)).await.is_ok() {
                drop(done.await);
            }
        };
        drop(tokio::time::timeout(timeout, flushed).await);
    }
}

/// Collects spans until the batch is full, its delay has passed, or a flush is requested.
async fn run(sender: Sender, mut waiting: mpsc::Receiver<Work>) {
    while let Some(first) = waiting.recv().await {
        let mut batch = Vec::new();
        let mut flushed = None;
        let deadline = tokio::time::Instant::now() + BATCH_DELAY;
        let mut next = Some(first);
        while let Some(work) = next {
            match work {
                Work::Span(span) => batch.push(*span),
                Work::Flush(done) => {
                    flushed = Some(done);
                    break;
                }
            }
            if batch.len() == BATCH_MAX {
                break;
            }
            next = tokio::time::timeout_at(deadline, waiting.recv()).await.ok().flatten();
        }
        if !batch.is_empty() {
            sender.send(&batch).await;
        }
        if let Some(done) = flushed {
            let _ = done.send(()); // the caller may have gone
        }
    }
}

struct Sender {
    channel: Channel,
    service: String,
    headers: Vec<(AsciiMetadataKey, MetadataValue<Ascii>)>,
}

impl Sender {
    fn new(otlp: Otlp) -> Result<Sender, Error> {
        let Otlp { endpoint: url, service, headers, unsupported } = otlp;
        let wrong = |why: String| Error::ServerUrl { url: url.clone(), why };
        if let Some(protocol) = unsupported {
            return Err(wrong(format!(
                "OTEL_EXPORTER_OTLP_PROTOCOL is `{protocol}`, but only `grpc` is supported: set the collector's gRPC \
                 endpoint, usually on port 4317, and the variable to `grpc`"
            )));
        }
        let endpoint = crate::remote::endpoint(&url, &Trust::default())?;
        let header = |(name, value): (String, String)| -> Result<(AsciiMetadataKey, MetadataValue<Ascii>), Error> {
            let key =
                AsciiMetadataKey::from_bytes(name.as_bytes()).map_err(|error| wrong(format!("header `{name}`: {error}")))?;
            let mut value = MetadataValue::try_from(value).map_err(|error| wrong(format!("header `{name}`: {error}")))?;
            value.set_sensitive(true);
            Ok((key, value))
        };
        let headers = headers.into_iter().map(header).collect::<Result<Vec<_>, Error>>()?;
        let channel = endpoint.connect_timeout(EXPORT_TIMEOUT).timeout(EXPORT_TIMEOUT).connect_lazy();
        Ok(Sender { channel, service, headers })
    }

    /// Sends spans in a few attempts, then drops them.
    async fn send(&self, spans: &[Span]) {
        let message = message::request(&self.service, spans);
        for attempt in 0..TRIES {
            match self.export(message.clone()).await {
                Ok(()) => return,
                Err(status) if !may_pass(status.code()) => return,
                Err(_) => tokio::time::sleep(RETRY_DELAY * 2u32.pow(attempt)).await,
            }
        }
    }

    async fn export(&self, message: Vec<u8>) -> Result<(), Status> {
        let mut grpc = Grpc::new(self.channel.clone());
        grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        let mut request = tonic::Request::new(message);
        for (name, value) in &self.headers {
            request.metadata_mut().insert(name.clone(), value.clone());
        }
        grpc.unary(request, PathAndQuery::from_static(EXPORT), Untyped).await.map(drop) // rejected spans are ignored
    }
}

/// Returns whether OTLP allows a retry after this status.
fn may_pass(code: tonic::Code) -> bool {
    use tonic::Code::{Aborted, Cancelled, DataLoss, DeadlineExceeded, OutOfRange, ResourceExhausted, Unavailable};
    matches!(code, Cancelled | DeadlineExceeded | Aborted | OutOfRange | Unavailable | DataLoss | ResourceExhausted)
}

#[cfg(test)]
mod tests;

//! An OpenTelemetry collector: the official messages over a real listener.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{TraceService, TraceServiceServer};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};

/// A received span.
#[derive(Debug, Clone)]
pub struct ReceivedSpan {
    pub service: String,
    /// The header `x-key` of its request.
    pub key: Option<String>,
    pub trace_id: Vec<u8>,
    pub span_id: Vec<u8>,
    pub parent: Vec<u8>,
    pub name: String,
    pub start: u64,
    pub end: u64,
    /// The message of an error status.
    pub failed: Option<String>,
    pub texts: BTreeMap<String, String>,
    pub numbers: BTreeMap<String, i64>,
}

pub struct Collector {
    pub url: String,
    spans: Arc<Mutex<Vec<ReceivedSpan>>>,
}

struct Service(Arc<Mutex<Vec<ReceivedSpan>>>);

#[tonic::async_trait]
impl TraceService for Service {
    async fn export(&self, request: Request<ExportTraceServiceRequest>) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let key = request.metadata().get("x-key").map(|value| value.to_str().unwrap().to_owned());
        for resource_spans in request.into_inner().resource_spans {
            let attributes = resource_spans.resource.unwrap().attributes;
            let service = attributes.into_iter().find(|attribute| attribute.key == "service.name").unwrap();
            let Some(Value::StringValue(service)) = service.value.unwrap().value else { panic!("a service has a name") };
            for span in resource_spans.scope_spans.into_iter().flat_map(|scope| scope.spans) {
                assert!(span.attributes.iter().any(|attribute| attribute.key == "onward.run"), "{span:?}");
                let (mut texts, mut numbers) = (BTreeMap::new(), BTreeMap::new());
                for attribute in span.attributes {
                    match attribute.value.unwrap().value.unwrap() {
                        Value::StringValue(text) => drop(texts.insert(attribute.key, text)),
                        Value::IntValue(number) => drop(numbers.insert(attribute.key, number)),
                        other => panic!("{other:?}"),
                    }
                }
                self.0.lock().unwrap().push(ReceivedSpan {
                    texts,
                    numbers,
                    service: service.clone(),
                    key: key.clone(),
                    trace_id: span.trace_id,
                    span_id: span.span_id,
                    parent: span.parent_span_id,
                    name: span.name,
                    start: span.start_time_unix_nano,
                    end: span.end_time_unix_nano,
                    failed: span.status.filter(|status| status.code == 2).map(|status| status.message),
                });
            }
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    pub async fn start() -> Collector {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let spans = Arc::new(Mutex::new(Vec::new()));
        let service = TraceServiceServer::new(Service(spans.clone()));
        let serving = tonic::transport::Server::builder().add_service(service);
        tokio::spawn(serving.serve_with_incoming(TcpListenerStream::new(listener)));
        Collector { url, spans }
    }

    pub fn spans(&self) -> Vec<ReceivedSpan> {
        self.spans.lock().unwrap().clone()
    }

    /// Waits until a span with this name has arrived.
    pub async fn until(&self, name: &str) {
        let deadline = tokio::time::Instant::now() + super::DEADLINE;
        while !self.spans().iter().any(|span| span.name == name) {
            assert!(tokio::time::Instant::now() < deadline, "{name} does not arrive");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

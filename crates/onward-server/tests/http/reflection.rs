//! gRPC for clients without a `.proto` file: health and reflection.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use onward_core::{Name, Namespace};
use onward_server::keys::{KeyFile, NewKey, Reach};
use onward_server::trace::Trace;
use onward_server::{Bounds, Keys, Options, Scope};
use onward_store::{Clock, SystemClock};
use prost_reflect::prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, MethodDescriptor, Value};
use serde_json::json;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::Channel;
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::v1::{ServerReflectionRequest, ServerReflectionResponse};

use crate::site::{DEADLINE, Site, limits};

async fn channel(site: &Site) -> Channel {
    Channel::from_shared(format!("http://{}", site.address)).unwrap().connect().await.unwrap()
}

/// Sends several reflection requests on one stream.
async fn reflect(channel: Channel, questions: Vec<MessageRequest>) -> Vec<MessageResponse> {
    let requests: Vec<ServerReflectionRequest> = questions
        .into_iter()
        .map(|question| ServerReflectionRequest { host: String::new(), message_request: Some(question) })
        .collect();
    let mut client = ServerReflectionClient::new(channel);
    let mut answers = client.server_reflection_info(tokio_stream::iter(requests)).await.unwrap().into_inner();
    let mut responses = Vec::new();
    while let Some(ServerReflectionResponse { message_response, .. }) = answers.message().await.unwrap() {
        responses.push(message_response.unwrap());
    }
    responses
}

/// Codec for messages of a method that is known only by its descriptor.
struct Dynamic(MethodDescriptor);

impl Codec for Dynamic {
    type Encode = DynamicMessage;
    type Decode = DynamicMessage;
    type Encoder = Dynamic;
    type Decoder = Dynamic;

    fn encoder(&mut self) -> Dynamic {
        Dynamic(self.0.clone())
    }

    fn decoder(&mut self) -> Dynamic {
        Dynamic(self.0.clone())
    }
}

impl Encoder for Dynamic {
    type Item = DynamicMessage;
    type Error = Status;

    fn encode(&mut self, item: DynamicMessage, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        item.encode(out).map_err(|error| Status::internal(error.to_string()))
    }
}

impl Decoder for Dynamic {
    type Item = DynamicMessage;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<DynamicMessage>, Status> {
        DynamicMessage::decode(self.0.output(), from).map(Some).map_err(|error| Status::internal(error.to_string()))
    }
}

/// Finds a method through reflection only.
async fn find(channel: Channel, service: &str, method: &str) -> MethodDescriptor {
    let responses = reflect(channel, vec![MessageRequest::FileContainingSymbol(service.to_owned())]).await;
    let [MessageResponse::FileDescriptorResponse(files)] = &responses[..] else { panic!("{responses:?}") };
    let mut pool = DescriptorPool::new();
    for file in &files.file_descriptor_proto {
        pool.decode_file_descriptor_proto(&file[..]).unwrap();
    }
    let service = pool.get_service_by_name(service).unwrap();
    service.methods().find(|found| found.name() == method).unwrap()
}

#[tokio::test]
async fn reflection_is_enough_to_list_runs() {
    let site = Site::open().await;
    site.start("order", "a", json!("x")).await;
    let channel = channel(&site).await;
    let responses = reflect(channel.clone(), vec![MessageRequest::ListServices(String::new())]).await;
    let [MessageResponse::ListServicesResponse(list)] = &responses[..] else { panic!("{responses:?}") };
    let services: Vec<&str> = list.service.iter().map(|service| service.name.as_str()).collect();
    for service in ["onward.v1.Runs", "onward.v1.Workers", "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection"] {
        assert!(services.contains(&service), "{service} is not in {services:?}");
    }
    let method = find(channel.clone(), "onward.v1.Runs", "ListRuns").await;
    let mut request = DynamicMessage::new(method.input());
    request.set_field_by_name("namespace", Value::String("default".to_owned()));
    request.set_field_by_name("limit", Value::U32(10));
    let path = format!("/{}/{}", method.parent_service().full_name(), method.name());
    let mut grpc = Grpc::new(channel);
    grpc.ready().await.unwrap();
    let reply = grpc.unary(tonic::Request::new(request), path.parse().unwrap(), Dynamic(method)).await.unwrap().into_inner();
    let text = format!("{:?}", reply.get_field_by_name("runs").unwrap());
    assert!(text.contains("\"order\"") && text.contains("\"a\""), "{text}");
}

/// Reflection lists exactly the methods of the table.
#[tokio::test]
async fn reflection_knows_the_methods_that_are_served() {
    let site = Site::open().await;
    let channel = channel(&site).await;
    for served in onward_server::METHODS {
        let (service, method) = served.path.trim_start_matches('/').split_once('/').unwrap();
        find(channel.clone(), service, method).await;
    }
}

#[tokio::test]
async fn a_symbol_that_is_not_there_is_not_found() {
    let site = Site::open().await;
    let questions = ["onward.v1.Nothing", "onward.v1.RunHead"].map(|name| MessageRequest::FileContainingSymbol(name.to_owned()));
    let status = {
        let requests = questions.map(|question| ServerReflectionRequest { host: String::new(), message_request: Some(question) });
        let mut client = ServerReflectionClient::new(channel(&site).await);
        let mut answers = client.server_reflection_info(tokio_stream::iter(requests)).await.unwrap().into_inner();
        answers.message().await.unwrap_err()
    };
    assert_eq!(status.code(), Code::NotFound);
}

async fn check(channel: Channel, service: &str) -> Result<ServingStatus, Code> {
    let request = HealthCheckRequest { service: service.to_owned() };
    let reply = HealthClient::new(channel).check(request).await.map_err(|status| status.code())?;
    Ok(reply.into_inner().status())
}

#[tokio::test]
async fn health_is_reported_for_the_server_and_for_its_services() {
    let site = Site::open().await;
    let channel = channel(&site).await;
    for service in ["", "onward.v1.Runs", "onward.v1.Workers"] {
        assert_eq!(check(channel.clone(), service).await, Ok(ServingStatus::Serving), "{service}");
    }
    assert_eq!(check(channel.clone(), "onward.v1.Nothing").await, Err(Code::NotFound));
    let request = HealthCheckRequest { service: "onward.v1.Nothing".to_owned() };
    let mut watched = HealthClient::new(channel).watch(request).await.unwrap().into_inner();
    assert_eq!(watched.message().await.unwrap().unwrap().status(), ServingStatus::ServiceUnknown);
}

/// A watch reports that the keys are unreadable, that they are back, and that the server stops.
#[tokio::test]
async fn health_follows_readiness() {
    let directory = tempfile::tempdir().unwrap();
    let file = KeyFile::at(directory.path().join("keys.json"));
    let scopes = BTreeSet::from([Scope::Read]);
    let key = NewKey {
        name: Name::new("a").unwrap(),
        namespace: Reach::from(Namespace::default()),
        scopes,
        lifetime: None,
        budget_max: None,
        bounds: Bounds::default(),
    };
    file.create(key, SystemClock.now()).unwrap();
    let keys = Keys::open(file.path(), Arc::new(SystemClock), Trace::silent()).unwrap();
    let mut site = Site::with(Options { auth: Arc::new(keys), limits: limits(), ..Options::default() }).await;
    let channel = channel(&site).await;
    let mut watched = HealthClient::new(channel.clone()).watch(HealthCheckRequest::default()).await.unwrap().into_inner();
    let mut next = async || {
        let change = tokio::time::timeout(DEADLINE, watched.message()).await;
        change.expect("a change is sent").unwrap().expect("the stream goes on").status()
    };
    assert_eq!(next().await, ServingStatus::Serving, "health needs no key");
    let (there, away) = (directory.path().join("keys.json"), directory.path().join("away.json"));
    std::fs::rename(&there, &away).unwrap();
    assert_eq!(next().await, ServingStatus::NotServing);
    assert_eq!(check(channel.clone(), "").await, Ok(ServingStatus::NotServing));
    std::fs::rename(&away, &there).unwrap();
    assert_eq!(next().await, ServingStatus::Serving);
    let (stopped, status) = tokio::join!(site.stop(), next());
    assert_eq!((stopped, status), ((), ServingStatus::NotServing));
}

/// S25: the number of streams without a key is limited, and `Check` reports it.
#[tokio::test]
async fn streams_without_a_key_have_their_number() {
    let site = Site::open().await;
    let channel = channel(&site).await;
    let mut held = Vec::new();
    let refused = loop {
        match HealthClient::new(channel.clone()).watch(HealthCheckRequest::default()).await {
            Ok(watched) => held.push(watched.into_inner()),
            Err(status) => break status,
        }
        assert!(held.len() < 1_000, "the number of streams is not limited");
    };
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert_eq!(site.get("/healthz").await.body, "ok\n");
    drop(held);
    let deadline = tokio::time::Instant::now() + DEADLINE;
    while check(channel.clone(), "").await != Ok(ServingStatus::Serving) {
        assert!(tokio::time::Instant::now() < deadline, "a permit is released when its stream ends");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

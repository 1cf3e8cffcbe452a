//! A server with a manual clock, and a worker that sends raw frames.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use onward_core::{Name, Namespace, Payload, RunId, RunKey, WorkerId};
use onward_runtime::{Background, Options, Runtime, Signal, StartRequest};
use onward_server::{Server, grpc, router_with, serve};
use onward_store::{ManualClock, MemoryStore, Store};
use onward_wire::grpc::{CONNECT, Wire};
use onward_wire::worker::*;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Status, Streaming};

/// Time limit for an expected frame.
pub const DEADLINE: Duration = Duration::from_secs(300);

/// Lease by the manual clock; the server's polling interval is short in real time.
pub const LEASE: Duration = Duration::from_millis(300);

pub struct Site {
    pub runtime: Runtime,
    clock: Arc<ManualClock>,
    pub url: String,
    _background: Background,
}

impl Site {
    pub async fn new() -> Site {
        Site::with(onward_server::Options::default()).await
    }

    pub async fn with(served: onward_server::Options) -> Site {
        let clock = Arc::new(ManualClock::default());
        Site::on(Arc::new(MemoryStore::new(clock.clone())), clock, served).await
    }

    /// Opens another server on the same store.
    pub async fn beside(&self) -> Site {
        self.beside_with(onward_server::Options::default()).await
    }

    pub async fn beside_with(&self, served: onward_server::Options) -> Site {
        Site::on(self.runtime.store().clone(), self.clock.clone(), served).await
    }

    async fn on(store: Arc<dyn Store>, clock: Arc<ManualClock>, served: onward_server::Options) -> Site {
        let options = Options { lease: LEASE, fallback: Duration::from_millis(20), ..Options::default() };
        let runtime = Runtime::new(store, clock.clone(), options);
        let background = runtime.spawn();
        let server = Server::new(runtime.clone(), served);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let clients = router_with(server.clone(), grpc(&server));
        tokio::spawn(async move { serve(&server, listener, clients, std::future::pending()).await });
        Site { runtime, clock, url, _background: background }
    }

    pub async fn start(&self, run: &str, kind: &str) {
        let (kind, input) = (Name::new(kind).unwrap(), Payload::null());
        self.runtime.start_run(StartRequest::new(key(run), kind, input, 7)).await.unwrap();
    }

    pub async fn signal(&self, run: &str, name: &str, payload: Payload) {
        let signal = Signal { name: Name::new(name).unwrap(), payload, signal_id: None };
        self.runtime.signal_run(&key(run), signal).await.unwrap();
    }

    pub async fn terminate(&self, run: &str) {
        self.runtime.terminate_run(&key(run), "enough").await.unwrap();
    }

    /// Advances the clock and runs what is due.
    pub async fn pass(&self, span: Duration) {
        self.clock.advance(span);
        assert!(self.runtime.tick().await.error.is_none());
    }

    pub async fn connect(&self, frames: Vec<WorkerFrame>) -> Result<Raw, Status> {
        self.connect_with(None, frames).await
    }

    /// Connects with a key.
    pub async fn connect_with(&self, key: Option<&str>, frames: Vec<WorkerFrame>) -> Result<Raw, Status> {
        let channel = tonic::transport::Endpoint::from_shared(self.url.clone()).unwrap().connect().await.unwrap();
        let mut grpc = tonic::client::Grpc::new(channel);
        grpc.ready().await.unwrap();
        let (up, receiver) = mpsc::channel(16);
        up.send(WorkerFrames { frames }).await.unwrap();
        let codec = Wire::<WorkerFrames, ServerFrames>::default();
        let mut stream = tonic::Request::new(ReceiverStream::new(receiver));
        if let Some(key) = key {
            stream.metadata_mut().insert("authorization", format!("Bearer {key}").parse().unwrap());
        }
        let down = grpc.streaming(stream, PathAndQuery::from_static(CONNECT), codec).await?.into_inner();
        Ok(Raw { up, down, ready: VecDeque::new() })
    }

    /// Connects a worker with one kind of runs and one of tasks, and reads the welcome.
    pub async fn welcome(&self, hello: Hello) -> Raw {
        let mut raw = self.connect(vec![WorkerFrame::Hello(hello)]).await.unwrap();
        assert!(matches!(raw.next().await, Some(ServerFrame::Welcome(_))));
        raw
    }
}

pub fn key(run: &str) -> RunKey {
    RunKey::new(Namespace::default(), RunId::new(run).unwrap())
}

pub fn hello(connection: u64) -> Hello {
    let kind = |kind: &str| Name::new(kind).unwrap();
    let offer = KindOffer {
        kind: kind("pay"),
        versions: vec![String::new()],
        current: None,
        input_schema: None,
        output_schema: None,
        version_schemas: Vec::new(),
        is_internal: false,
        defaults: None,
        signals: Vec::new(),
        updates: Vec::new(),
        update_answers: Vec::new(),
    };
    Hello {
        protocol: onward_wire::PROTOCOL,
        worker: WorkerId::new("w").unwrap(),
        kinds: vec![offer],
        task_kinds: vec![kind("mail")],
        queues: vec![String::new()],
        runs_max: 10,
        runs: Vec::new(),
        tasks: Vec::new(),
        sdk: "test".to_owned(),
        connection,
        task_schemas: Vec::new(),
        task_limits: Vec::new(),
        received: None,
        reports_steps: false,
        dropped: Vec::new(),
    }
}

/// One connection of a worker.
pub struct Raw {
    up: mpsc::Sender<WorkerFrames>,
    down: Streaming<ServerFrames>,
    ready: VecDeque<ServerFrame>,
}

impl Raw {
    pub async fn send(&self, frame: WorkerFrame) {
        drop(self.up.send(WorkerFrames { frames: vec![frame] }).await); // the server may have closed it
    }

    /// Returns the next frame; `None` when the server ended the connection.
    pub async fn next(&mut self) -> Option<ServerFrame> {
        tokio::time::timeout(DEADLINE, self.take()).await.expect("a frame comes in time")
    }

    /// Returns the next frame, if there is one within `patience`.
    pub async fn next_within(&mut self, patience: Duration) -> Option<ServerFrame> {
        tokio::time::timeout(patience, self.take()).await.unwrap_or(None)
    }

    async fn take(&mut self) -> Option<ServerFrame> {
        while self.ready.is_empty() {
            self.ready.extend(self.down.message().await.ok()??.frames);
        }
        self.ready.pop_front()
    }

    /// Returns the reply to `request`; earlier frames stay queued.
    pub async fn outcome(&mut self, request: u64) -> ReplyOutcome {
        let mut before = VecDeque::new();
        loop {
            match self.next().await {
                Some(ServerFrame::Reply(reply)) if reply.request == request => {
                    before.append(&mut self.ready);
                    self.ready = before;
                    return reply.outcome;
                }
                Some(frame) => before.push_back(frame),
                None => panic!("the connection ended without an answer to {request}, but with {before:?}"),
            }
        }
    }

    pub async fn task(&mut self) -> onward_core::task::Task {
        loop {
            match self.next().await {
                Some(ServerFrame::Task(offer)) => return offer.task,
                Some(ServerFrame::TaskOver(_)) => {} // of the earlier claim
                other => panic!("no task, but {other:?}"),
            }
        }
    }

    pub async fn run(&mut self) -> Run {
        match self.next().await {
            Some(ServerFrame::Run(run)) => run,
            other => panic!("no run, but {other:?}"),
        }
    }
}

//! F28: workers of other protocol versions, byte by byte.
//!
//! `onward-wire/tests/frames/protocol_1.hex` has the bytes of a worker of protocol 1, one message per line, for the conversation
//! `a_run_from_start_to_end`. They are not regenerated as long as the server supports that protocol: a server that cannot read
//! them cannot serve deployed workers. `ONWARD_WRITE=1` writes them before the first release.

use std::path::{Path, PathBuf};

use onward_core::codec::{Message, Raw as RawField, Reader, put_bytes, put_number};
use onward_wire::grpc::{CONNECT, Wire};
use onward_wire::worker::*;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::codec::{Codec, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Code, Status, Streaming};

use crate::conversations::{Act, Line, lines_of, steady};
use crate::raw::{DEADLINE, Site, hello};

/// Sends raw bytes, and decodes the frames of the current server.
#[derive(Default)]
struct Bytes;

impl Codec for Bytes {
    type Encode = Vec<u8>;
    type Decode = ServerFrames;
    type Encoder = Bytes;
    type Decoder = Wire<WorkerFrames, ServerFrames>;

    fn encoder(&mut self) -> Bytes {
        Bytes
    }

    fn decoder(&mut self) -> Self::Decoder {
        Wire::default()
    }
}

impl Encoder for Bytes {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        bytes::BufMut::put_slice(out, &item);
        Ok(())
    }
}

struct OldWorker {
    up: mpsc::Sender<Vec<u8>>,
    down: Streaming<ServerFrames>,
    ready: std::collections::VecDeque<ServerFrame>,
}

impl OldWorker {
    async fn connect(site: &Site, first: Vec<u8>) -> Result<OldWorker, Status> {
        let channel = tonic::transport::Endpoint::from_shared(site.url.clone()).unwrap().connect().await.unwrap();
        let mut grpc = tonic::client::Grpc::new(channel);
        grpc.ready().await.unwrap();
        let (up, receiver) = mpsc::channel(16);
        up.send(first).await.unwrap();
        let stream = tonic::Request::new(ReceiverStream::new(receiver));
        let down = grpc.streaming(stream, PathAndQuery::from_static(CONNECT), Bytes).await?.into_inner();
        Ok(OldWorker { up, down, ready: Default::default() })
    }

    /// Returns the next frame; `None` at the end of the stream.
    async fn next(&mut self) -> Result<Option<ServerFrame>, Status> {
        while self.ready.is_empty() {
            match tokio::time::timeout(DEADLINE, self.down.message()).await.expect("the server sends a frame")? {
                Some(more) => self.ready.extend(more.frames),
                None => return Ok(None),
            }
        }
        Ok(self.ready.pop_front())
    }
}

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../onward-wire/tests/frames/protocol_1.hex")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes_of(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

fn conversation() -> Vec<Line> {
    lines_of("a_run_from_start_to_end.jsonl")
}

fn message(frame: &WorkerFrame) -> Vec<u8> {
    WorkerFrames { frames: vec![frame.clone()] }.to_bytes()
}

/// Returns the bytes of the worker's messages, in the order of the conversation.
fn recorded() -> Vec<Vec<u8>> {
    if std::env::var_os("ONWARD_WRITE").is_some() {
        let lines = conversation();
        let frames = lines.iter().filter_map(|line| if let Line::Up(frame) = line { Some(frame) } else { None });
        let text: String = frames.map(|frame| hex(&message(frame)) + "\n").collect();
        std::fs::create_dir_all(file().parent().unwrap()).unwrap();
        std::fs::write(file(), text).unwrap();
    }
    std::fs::read_to_string(file()).unwrap().lines().map(bytes_of).collect()
}

/// Runs the conversation with the current server; `messages` is the worker's side.
async fn converse(messages: Vec<Vec<u8>>) {
    let site = Site::new().await;
    let (mut messages, mut worker) = (messages.into_iter(), None);
    for (number, line) in conversation().into_iter().enumerate() {
        match (line, &mut worker) {
            (Line::Up(_), None) => worker = Some(OldWorker::connect(&site, messages.next().unwrap()).await.unwrap()),
            (Line::Up(_), Some(worker)) => worker.up.send(messages.next().unwrap()).await.unwrap(),
            (Line::Down(expected), Some(worker)) => {
                let next = worker.next().await.unwrap().map(steady);
                assert_eq!(next.as_ref(), Some(&*expected), "line {}", number + 1)
            }
            (Line::Do(Act::Start { run, kind }), _) => site.start(&run, &kind).await,
            (Line::Do(Act::Signal { run, name }), _) => site.signal(&run, &name, onward_core::Payload::null()).await,
            (Line::Do(Act::Ended), Some(worker)) => assert_eq!(worker.next().await.unwrap(), None),
            (line, _) => panic!("{line:?}"),
        }
    }
    assert_eq!(messages.next(), None, "all messages were sent");
}

#[tokio::test]
async fn a_worker_that_was_built_with_protocol_1_is_served() {
    converse(recorded()).await;
}

/// Returns the message inside of a frame.
fn inner(frame: &WorkerFrame) -> Vec<u8> {
    match frame {
        WorkerFrame::Hello(inner) => inner.to_bytes(),
        WorkerFrame::Credit(inner) => inner.to_bytes(),
        WorkerFrame::Commit(inner) => inner.to_bytes(),
        WorkerFrame::Heartbeat(inner) => inner.to_bytes(),
        WorkerFrame::Leave(inner) => inner.to_bytes(),
        other => panic!("{other:?}"),
    }
}

/// Returns `bytes` with `extra` appended to the message `inner`, which is somewhere in it.
fn extended(bytes: &[u8], inner: &[u8], extra: &[u8]) -> Option<Vec<u8>> {
    if bytes == inner {
        return Some([inner, extra].concat());
    }
    let (mut reader, mut out, mut found) = (Reader::new(bytes), Vec::new(), false);
    while let Ok(Some((number, raw))) = reader.field() {
        match raw {
            RawField::Bytes(content) => match extended(content, inner, extra).filter(|_| !found) {
                Some(content) => {
                    found = true;
                    put_bytes(number, &content, &mut out);
                }
                None => put_bytes(number, content, &mut out),
            },
            RawField::Varint(value) => put_number(number, value, &mut out),
        }
    }
    found.then_some(out)
}

/// Returns fields that a later version might add: a number and a message, under unused numbers.
fn unknown_fields() -> Vec<u8> {
    let mut extra = Vec::new();
    put_number(900, 7, &mut extra);
    put_bytes(901, b"what nobody knows yet", &mut extra);
    extra
}

#[tokio::test]
async fn fields_that_a_newer_worker_adds_are_skipped() {
    let mut messages = Vec::new();
    for line in conversation() {
        let Line::Up(frame) = line else { continue };
        let mut bytes = extended(&message(&frame), &inner(&frame), &unknown_fields()).expect("a message is in its frame");
        bytes.extend(unknown_fields());
        assert_eq!(WorkerFrames::decode_fields(&bytes).unwrap().frames, [*frame]);
        messages.push(bytes);
    }
    converse(messages).await;
}

/// A frame of an unknown kind is not skipped, because the worker would wait for a reply.
#[tokio::test]
async fn a_frame_of_an_unknown_kind_ends_the_stream_with_an_error() {
    let site = Site::new().await;
    let mut worker = OldWorker::connect(&site, message(&WorkerFrame::Hello(hello(1)))).await.unwrap();
    assert!(matches!(worker.next().await, Ok(Some(ServerFrame::Welcome(_)))));
    // A valid frame whose oneof field has another number.
    let heartbeat = message(&WorkerFrame::Heartbeat(Heartbeat { request: 3 }));
    let unknown = renumbered(&heartbeat, &inner(&WorkerFrame::Heartbeat(Heartbeat { request: 3 })), 900).unwrap();
    worker.up.send(unknown).await.unwrap();
    let refused = worker.next().await.expect_err("it is no frame of this protocol");
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused:?}");
    assert!(refused.message().contains("WorkerFrame"), "{refused:?}");
    // Without the frame it is served again.
    let mut again = OldWorker::connect(&site, message(&WorkerFrame::Hello(hello(2)))).await.unwrap();
    assert!(matches!(again.next().await, Ok(Some(ServerFrame::Welcome(_)))));
}

/// Returns `bytes` with another number for the field that holds the message `inner`.
fn renumbered(bytes: &[u8], inner: &[u8], number: u32) -> Option<Vec<u8>> {
    let (mut reader, mut out, mut found) = (Reader::new(bytes), Vec::new(), false);
    while let Ok(Some((own, raw))) = reader.field() {
        match raw {
            RawField::Bytes(content) if content == inner => {
                found = true;
                put_bytes(number, content, &mut out);
            }
            RawField::Bytes(content) => match renumbered(content, inner, number) {
                Some(content) => {
                    found = true;
                    put_bytes(own, &content, &mut out);
                }
                None => put_bytes(own, content, &mut out),
            },
            RawField::Varint(value) => put_number(own, value, &mut out),
        }
    }
    found.then_some(out)
}

#[tokio::test]
async fn a_worker_of_another_protocol_is_refused_with_both_versions() {
    let site = Site::new().await;
    for protocol in [0, onward_wire::PROTOCOL + 1, u32::MAX] {
        let hello = Hello { protocol, ..hello(1) };
        let refused = match OldWorker::connect(&site, message(&WorkerFrame::Hello(hello))).await {
            Ok(mut worker) => worker.next().await.expect_err("it is refused"),
            Err(refused) => refused,
        };
        let outcome = refused.message();
        let ours = onward_wire::PROTOCOL.to_string();
        assert!(outcome.contains(&protocol.to_string()) && outcome.contains(&ours), "{refused:?}");
    }
    // No worker was accepted.
    site.start("r", "pay").await;
    assert_eq!(site.runtime.list_workers(&Default::default()).len(), 0);
}

//! Bytes that no writer of the protocol has made: refused, or decoded to something that reads back; never a panic (S35).
//!
//! The random part is [`onward_testkit`]'s.

use std::fmt::Debug;

use onward_core::codec::{DecodeError, Message, put_bytes, put_nested, put_number};
use onward_core::conversation::{EntryCursor, attachment_fault, with_faults_replaced};
use onward_core::run::OutboxMessage;
use onward_core::spend::PicoDollars;
use onward_core::trace::TraceContext;
use onward_core::{CallId, Hash, Name, Record, RunHead, RunId, Timestamp};
use onward_wire::problem::Problem;
use onward_wire::worker::*;
use onward_wire::{ApiKey, api};

use super::frames::{server_frames, worker_frames};

/// Decodes bytes as one type of message. Accepted bytes must read back the same (C1).
type Reader = fn(&[u8]) -> bool;

fn reads<M: Message + PartialEq + Debug>(bytes: &[u8]) -> bool {
    let Ok(read) = M::decode_fields(bytes) else { return false };
    assert_eq!(M::decode_fields(&read.to_bytes()).as_ref(), Ok(&read), "{}", bytes.escape_ascii());
    true
}

fn reads_record(bytes: &[u8]) -> bool {
    let (index, at) = (onward_core::Index(7), Timestamp(1));
    let Ok(read) = Record::decode_body(index, at, bytes) else { return false };
    let mut body = Vec::new();
    read.encode_body(&mut body);
    assert_eq!(Record::decode_body(index, at, &body).as_ref(), Ok(&read), "{}", bytes.escape_ascii());
    true
}

fn reads_delivery(bytes: &[u8]) -> bool {
    let Ok(read) = OutboxMessage::from_bytes(bytes) else { return false };
    assert_eq!(OutboxMessage::from_bytes(&read.to_bytes()).as_ref(), Ok(&read));
    true
}

fn reads_json(bytes: &[u8]) -> bool {
    let Ok(read) = serde_json::from_slice::<WorkerFrame>(bytes) else { return false };
    let text = serde_json::to_string(&read).unwrap();
    assert_eq!(serde_json::from_str::<WorkerFrame>(&text).unwrap(), read);
    true
}

fn reads_details(bytes: &[u8]) -> bool {
    let status = tonic::Status::with_details(tonic::Code::Internal, "", bytes.to_vec().into());
    Problem::from_status(&status).is_some()
}

fn reads_key(bytes: &[u8]) -> bool {
    ApiKey::parse(&String::from_utf8_lossy(bytes)).is_ok()
}

/// Returns every decoder of bytes from other processes and from disk, each with bytes that it accepts.
fn decoders() -> Vec<(&'static str, Reader, Vec<Vec<u8>>)> {
    let up: Vec<Vec<u8>> = worker_frames().into_iter().map(|frame| WorkerFrames { frames: vec![frame] }.to_bytes()).collect();
    let down: Vec<Vec<u8>> = server_frames().into_iter().map(|frame| ServerFrames { frames: vec![frame] }.to_bytes()).collect();
    let runs = server_frames().into_iter().filter_map(|frame| match frame {
        ServerFrame::Run(run) => Some(run),
        _ => None,
    });
    let runs: Vec<Run> = runs.collect();
    let heads = runs.iter().map(|run| run.head.to_bytes()).collect();
    let records = runs.iter().flat_map(|run| run.log.iter().flat_map(|log| &log.records));
    let bodies = records.map(|record| {
        let mut body = Vec::new();
        record.encode_body(&mut body);
        body
    });
    let start = api::StartRequest {
        run: runs[0].head.key.clone(),
        kind: runs[0].head.kind.clone(),
        version: None,
        input: onward_core::Payload::null(),
        seed: 1 << 40,
        signal: None,
        trace: Some(String::new()),
        attributes: vec![onward_core::attribute::Attribute { name: runs[0].head.kind.clone(), value: (-5).into() }],
        budget: None,
        deadline_ms: Some(86_400_000),
    };
    let started = onward_core::event::RunStarted::new(runs[0].head.kind.clone(), onward_core::Payload::null(), 3);
    let delivery = OutboxMessage::Start(onward_core::run::NewRun { key: runs[0].head.key.clone(), started, signal: None });
    let problem = Problem {
        code: "run_not_found".to_owned(),
        message: "there is no such run".to_owned(),
        hint: None,
        advice: onward_wire::problem::Advice::Fail,
        retry_after_ms: None,
    };
    let details = problem.to_status(tonic::Code::NotFound).details().to_vec();
    let json = worker_frames().iter().map(|frame| serde_json::to_vec(frame).unwrap()).collect();
    let key = ApiKey::new([7; 8], [9; 32]).reveal().as_bytes().to_vec();
    vec![
        ("worker frames", reads::<WorkerFrames>, up),
        ("server frames", reads::<ServerFrames>, down),
        ("worker frames in JSON", reads_json, json),
        ("heads", reads::<RunHead>, heads),
        ("records", reads_record, bodies.collect()),
        ("start requests", reads::<api::StartRequest>, vec![start.to_bytes()]),
        ("outbox", reads_delivery, vec![delivery.to_bytes()]),
        ("problems", reads::<Problem>, vec![problem.to_bytes()]),
        ("details of a status", reads_details, vec![details]),
        ("keys", reads_key, vec![key]),
    ]
}

#[test]
fn mutated_bytes_are_refused_or_read_back_and_never_panic() {
    for (what, read, good) in decoders() {
        onward_testkit::mutate(what, &good, read).assert_refuses();
    }
}

/// Texts that callers put into paths, queries and headers.
#[test]
fn mutated_texts_are_refused_or_read_back_and_never_panic() {
    type Parser = fn(&str) -> bool;
    fn reads_back<T: PartialEq + Debug>(text: &str, parse: impl Fn(&str) -> Option<T>, print: impl Fn(&T) -> String) -> bool {
        let Some(read) = parse(text) else { return false };
        assert_eq!(parse(&print(&read)).as_ref(), Some(&read), "{text:?}");
        true
    }
    let hash = onward_core::Hash::of_parts(&[b"x"]);
    let parsers: Vec<(&str, Parser, Vec<String>)> = vec![
        (
            "entries",
            |text| reads_back(text, |text| text.parse::<EntryCursor>().ok(), EntryCursor::to_string),
            vec![format!("{hash}~7")],
        ),
        ("hashes", |text| reads_back(text, Hash::parse, Hash::to_string), vec![hash.to_string()]),
        ("call_ids", |text| reads_back(text, CallId::parse, CallId::to_string), vec!["0".to_owned(), "2.1.4.0.9".to_owned()]),
        ("times", |text| reads_back(text, Timestamp::parse, Timestamp::to_string), vec!["2026-11-15T08:00:00Z".to_owned()]),
        ("money", |text| reads_back(text, PicoDollars::parse, PicoDollars::to_string), vec!["12.5".to_owned()]),
        (
            "traces",
            |text| reads_back(text, TraceContext::parse, TraceContext::to_string),
            vec!["00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".to_owned()],
        ),
        ("names", |text| reads_back(text, |text| Name::new(text).ok(), Name::to_string), vec!["order.paid".to_owned()]),
        ("runs", |text| reads_back(text, |text| RunId::new(text).ok(), RunId::to_string), vec!["order/1 ~x".to_owned()]),
    ];
    for (what, parse, good) in parsers {
        let good: Vec<Vec<u8>> = good.into_iter().map(String::into_bytes).collect();
        onward_testkit::mutate(what, &good, |bytes| std::str::from_utf8(bytes).is_ok_and(parse)).assert_refuses();
    }
}

/// Attachments in messages of callers: after faults are replaced by text, no fault is left.
#[test]
fn mutated_attachments_never_panic_and_faults_are_replaced_once() {
    let block = r#"{"blocks":[{"type":"attachment","media_type":"image/png","source":{"base64":"aGVsbG8="}},{"type":"text","text":"x"}]}"#;
    let counts = onward_testkit::mutate("attachments", &[block.as_bytes().to_vec()], |bytes| {
        let content = onward_core::Payload::from_json_text(bytes.to_vec());
        if attachment_fault(&content).is_none() {
            return true;
        }
        if let Some(replaced) = with_faults_replaced(&content) {
            let replaced = onward_core::Payload::json(&replaced).unwrap();
            assert_eq!(attachment_fault(&replaced), None, "{}", bytes.escape_ascii());
        }
        false
    });
    assert!(counts.refused > 0, "{counts:?}");
}

#[test]
fn a_message_that_ends_in_the_middle_is_refused() {
    for frame in worker_frames() {
        let bytes = WorkerFrames { frames: vec![frame.clone()] }.to_bytes();
        for end in 1..bytes.len() {
            let cut = WorkerFrames::decode_fields(&bytes[..end]);
            assert_eq!(cut.err(), Some(DecodeError::Truncated), "{frame:?} cut at {end} of {}", bytes.len());
        }
    }
}

/// Bytes that are wrong in one way each.
#[test]
fn foreign_bytes_are_refused() {
    let frame = |fill: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = Vec::new();
        put_nested(1, &mut bytes, |frame| fill(frame));
        bytes
    };
    let credit = |value: u64| frame(&|out| put_nested(2, out, |credit| put_number(1, value, credit)));
    assert!(WorkerFrames::decode_fields(&credit(3)).is_ok());
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("a frame of no known kind", frame(&|out| put_bytes(99, b"", out))),
        ("an empty frame", frame(&|_| {})),
        ("a number where a message belongs", frame(&|out| put_number(2, 1, out))),
        ("a number that is too large for its type", credit(1 << 32)),
        ("a text where a number belongs", frame(&|out| put_nested(2, out, |credit| put_bytes(1, b"x", credit)))),
        ("a group, which proto3 does not have", vec![0x0b, 0x0c]),
        ("a varint that never ends", vec![0xff; 32]),
        ("a length beyond the end", vec![0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f]),
        ("a length beyond every memory", vec![0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]),
        ("hello without a worker", frame(&|out| put_nested(1, out, |hello| put_number(1, 1, hello)))),
        ("a name that is not UTF-8", frame(&|out| put_nested(1, out, |hello| put_bytes(2, b"\xff", hello)))),
    ];
    for (what, bytes) in cases {
        assert!(WorkerFrames::decode_fields(&bytes).is_err(), "{what} is accepted");
    }
}

/// Depth is bounded by the types of messages: bytes that nest two thousand times use no stack.
#[test]
fn bytes_that_nest_deeply_are_refused_or_skipped() {
    let mut bytes = Vec::new();
    for _ in 0..2_000 {
        let mut outer = Vec::with_capacity(bytes.len() + 8);
        put_bytes(1, &bytes, &mut outer);
        bytes = outer;
    }
    for (_, read, _) in decoders() {
        read(&bytes);
    }
}

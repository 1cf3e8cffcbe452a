//! Bytes that no writer of the protocol has made: refused, or understood as something that reads back; never a panic (S35).
//!
//! The random part prints its seed; `ONWARD_TORTURE_SEED` repeats one. `cargo xtask torture` plays more cases, with other seeds.

use std::fmt::Debug;

use onward_core::codec::{DecodeError, Message, put_bytes, put_nested, put_number};
use onward_core::run::Delivery;
use onward_core::{Record, RunHead, Timestamp};
use onward_wire::problem::Problem;
use onward_wire::worker::*;
use onward_wire::{ApiKey, api};

use super::frames::{server_frames, worker_frames};

/// A generator that is the same everywhere (splitmix64).
struct Random(u64);

impl Random {
    fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// Reads the bytes as one type of message. What is accepted must read back as it was read (C1).
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
    let Ok(read) = Delivery::from_bytes(bytes) else { return false };
    assert_eq!(Delivery::from_bytes(&read.to_bytes()).as_ref(), Ok(&read));
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

/// Every decoder of what comes from other processes and from the disk, each with bytes that it accepts.
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
    };
    let started = onward_core::event::RunStarted::new(runs[0].head.kind.clone(), onward_core::Payload::null(), 3);
    let delivery = Delivery::Start(onward_core::run::NewRun { key: runs[0].head.key.clone(), started, signal: None });
    let problem = Problem {
        code: "run_not_found".to_owned(),
        message: "there is no such run".to_owned(),
        hint: None,
        advice: onward_wire::problem::Advice::TellCaller,
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

/// One change that a network, a disk or an attacker could make.
fn mutate(random: &mut Random, bytes: &mut Vec<u8>, other: &[u8]) {
    let at = |random: &mut Random, length: usize| (random.next_u64() % (length as u64).max(1)) as usize;
    let position = at(random, bytes.len());
    match random.next_u64() % 8 {
        0 if !bytes.is_empty() => bytes[position] ^= 1 << (random.next_u64() % 8),
        1 if !bytes.is_empty() => bytes[position] = random.next_u64() as u8,
        2 => bytes.truncate(position),
        3 => bytes.insert(position.min(bytes.len()), random.next_u64() as u8),
        4 if !bytes.is_empty() => {
            bytes.remove(position);
        }
        5 => bytes.extend_from_slice(&other[..at(random, other.len())]),
        // A length or a number that promises more than there is.
        6 => {
            let huge = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
            let keep = 1 + at(random, huge.len());
            let end = position.min(bytes.len());
            bytes.splice(end..end, huge[huge.len() - keep..].iter().copied());
        }
        _ => {
            let whole = bytes.clone();
            bytes.splice(position.min(whole.len())..position.min(whole.len()), whole);
            bytes.truncate(64 * 1024);
        }
    }
}

#[test]
fn mutated_bytes_are_refused_or_read_back_and_never_panic() {
    let from_env = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let minutes = from_env("ONWARD_TORTURE_MINUTES");
    let now = || std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs());
    let seed = from_env("ONWARD_TORTURE_SEED").or_else(|| minutes.map(|_| now())).unwrap_or(35);
    let cases = minutes.map_or(3_000, |minutes| minutes.max(1) * 100_000);
    println!("reproduce with ONWARD_TORTURE_SEED={seed}");
    for (what, read, good) in decoders() {
        let mut random = Random(seed);
        let (mut accepted, mut refused) = (0, 0);
        for case in 0..cases {
            let mut bytes = match good.get(case as usize % good.len().max(1)) {
                Some(good) => good.clone(),
                None => (0..random.next_u64() % 64).map(|_| random.next_u64() as u8).collect(),
            };
            let other = good.last().cloned().unwrap_or_default();
            for _ in 0..1 + random.next_u64() % 4 {
                mutate(&mut random, &mut bytes, &other);
            }
            match read(&bytes) {
                true => accepted += 1,
                false => refused += 1,
            }
        }
        assert!(refused > cases / 20, "{what}: of {cases} damaged messages {accepted} were accepted");
    }
}

#[test]
fn what_was_encoded_is_accepted_by_its_decoder() {
    for (what, read, good) in decoders() {
        assert!(good.iter().all(|bytes| read(bytes)), "{what}");
    }
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

/// Depth is bounded by what a message may contain: bytes that nest two thousand times cost no stack.
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

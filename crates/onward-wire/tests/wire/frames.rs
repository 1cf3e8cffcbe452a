//! Frames survive both forms, and a reader that has only the `.proto` file understands their bytes.

use std::collections::BTreeMap;

use onward_core::codec::{Field, Message};
use onward_core::event::{RunStarted, StepCompleted};
use onward_core::live::{Audience, RunningStep, StepsReport};
use onward_core::run::Commit;
use onward_core::task::{RetryPolicy, TaskReport};
use onward_core::{
    CallId, CommitId, Epoch, Event, Failure, Hash, Index, Name, Namespace, Payload, Record, RunHead, RunId, RunKey, Status,
    Timestamp,
};
use onward_wire::problem::{Advice, Problem};
use onward_wire::worker::*;
use prost_reflect::{DescriptorPool, DynamicMessage, ReflectMessage, Value};

fn key() -> RunKey {
    RunKey::new(Namespace::default(), RunId::new("run-1").unwrap())
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

pub fn worker_frames() -> Vec<WorkerFrame> {
    let step = StepCompleted {
        call_id: CallId::root(3),
        name: name("charge"),
        input_hash: None,
        output: Payload::json(&serde_json::json!({"paid": 12})).unwrap(),
        attempt: 1,
        took_ms: 7,
        input: None,
    };
    let commit = Commit {
        key: key(),
        generation: 0,
        epoch: Epoch(5),
        n: 2,
        commit_id: CommitId(u64::MAX),
        horizon: Index(4),
        events: vec![step.into()],
        waits: true,
        end_over_unread: false,
        is_while_paused: false,
        carries: Default::default(),
    };
    let task = onward_core::task::TaskId { run: key(), generation: 0, call_id: CallId::root(1), incarnation: None };
    let report = |report| ReportTask { request: 9, task: task.clone(), claim: 1, report };
    vec![
        WorkerFrame::Hello(Hello {
            protocol: onward_wire::PROTOCOL,
            worker: onward_core::WorkerId::new("w").unwrap(),
            kinds: vec![KindOffer {
                kind: name("pay"),
                versions: vec![String::new(), "v2".to_owned()],
                current: Some(name("v2")),
                input_schema: None,
                output_schema: None,
                version_schemas: Vec::new(),
                is_internal: false,
                defaults: None,
                signals: Vec::new(),
                updates: Vec::new(),
            }],
            task_kinds: vec![name("mail")],
            task_limits: vec![onward_wire::worker::TaskLimit { kind: name("mail"), limit: name("1f") }],
            queues: vec![String::new()],
            runs_max: 10,
            runs: vec![HeldRun { run: key(), generation: 0, epoch: Epoch(5), next_index: Index(0) }],
            tasks: vec![HeldTask { task: task.clone(), claim: 1 }],
            sdk: "test".to_owned(),
            connection: 2,
            task_schemas: Vec::new(),
            received: Some(Received { session: 7, offer: 0 }),
            reports_steps: true,
            dropped: vec![DroppedRun { run: key(), epoch: Epoch(3) }],
        }),
        WorkerFrame::Credit(Credit { runs: 3, tasks: 0 }),
        WorkerFrame::Commit(CommitRun { request: 1, commit }),
        WorkerFrame::Report(report(TaskReport::Completed(Payload::null()))),
        WorkerFrame::Report(report(TaskReport::Failed(Failure::fatal("no")))),
        WorkerFrame::Report(report(TaskReport::Interrupted)),
        WorkerFrame::Report(report(TaskReport::NotStarted)),
        WorkerFrame::Report(report(TaskReport::WorkerLost)),
        WorkerFrame::Report(report(TaskReport::Heartbeat { progress: None })),
        WorkerFrame::Report(report(TaskReport::Heartbeat { progress: Some(Payload::null()) })),
        WorkerFrame::Answer(AnswerQuery { question: 4, answer: None, is_passed_on: true }),
        WorkerFrame::Emit(Emit {
            run: key(),
            name: "sum".to_owned(),
            value: Payload::null(),
            audience: Audience::Internal,
            meta: Some(Payload::json(&BTreeMap::from([("n", 1)])).unwrap()),
        }),
        WorkerFrame::Steps(StepsReport {
            run: key(),
            generation: 0,
            is_complete: true,
            steps: vec![RunningStep {
                call_id: CallId::root(0),
                name: name("charge"),
                attempt: 1,
                started_at: Timestamp(5),
                input: None,
            }],
        }),
        WorkerFrame::Heartbeat(Heartbeat { request: 12 }),
        WorkerFrame::Leave(Leave { request: 3, received: Some(Received { session: 7, offer: 2 }) }),
    ]
}

pub fn server_frames() -> Vec<ServerFrame> {
    let started = RunStarted::new(name("pay"), Payload::json("order").unwrap(), 7);
    let (head, record): (RunHead, Record) = RunHead::start(key(), started, Timestamp(1_000));
    vec![
        ServerFrame::Welcome(Welcome {
            protocol: 1,
            lease_ms: 30_000,
            server: "0.1.0".to_owned(),
            payload_bytes_max: Some(1 << 24),
            session: 7,
        }),
        ServerFrame::Run(Run { head: head.clone(), log: Some(Log { records: vec![record.clone()], more: true }) }),
        ServerFrame::Run(Run { head, log: None }),
        ServerFrame::Input(Input { run: key(), epoch: Epoch(5), record }),
        ServerFrame::RunLost(RunLost { run: key(), epoch: Epoch(5) }),
        ServerFrame::Reply(Reply { request: 0, outcome: ReplyOutcome::Done(Done {}) }),
        ServerFrame::Reply(Reply {
            request: 2,
            outcome: ReplyOutcome::Problem(Problem {
                code: "lease_lost".to_owned(),
                message: "gone".to_owned(),
                hint: None,
                advice: Advice::StopRun,
                retry_after_ms: None,
            }),
        }),
        ServerFrame::Watch(Watch { run: key(), on: true }),
        ServerFrame::Goodbye(Goodbye {}),
    ]
}

fn both_ways<F>(frames: Vec<F>)
where
    F: Field + PartialEq + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
{
    for frame in frames {
        let mut bytes = Vec::new();
        frame.encode(1, &mut bytes);
        let (_, raw) = onward_core::codec::Reader::new(&bytes).field().unwrap().unwrap();
        assert_eq!(F::decode(raw).unwrap(), frame);
        let json = serde_json::to_string(&frame).unwrap();
        assert_eq!(serde_json::from_str::<F>(&json).unwrap(), frame, "{json}");
    }
}

#[test]
fn every_frame_reads_back_from_bytes_and_from_json() {
    both_ways(worker_frames());
    both_ways(server_frames());
}

/// The JSON defaults of docs/protocol.md.
#[test]
fn a_frame_needs_only_its_required_fields_in_json() {
    let read = |json: &str| serde_json::from_str::<WorkerFrame>(json).unwrap();
    let WorkerFrame::Hello(hello) = read(r#"{"hello":{"protocol":1,"worker":"w","kinds":[{"kind":"pay"}]}}"#) else { panic!() };
    assert_eq!((hello.queues, &hello.kinds[0].versions), (vec![String::new()], &vec![String::new()]));
    assert_eq!((hello.runs_max, hello.connection, hello.runs.len()), (0, 0, 0));
    assert_eq!(read(r#"{"credit":{"tasks":2}}"#), WorkerFrame::Credit(Credit { runs: 0, tasks: 2 }));
    assert_eq!(read(r#"{"heartbeat":{}}"#), WorkerFrame::Heartbeat(Heartbeat { request: 0 }));
    let WorkerFrame::ReadLog(page) = read(r#"{"read_log":{"request":1,"run":{"namespace":"default","id":"r"}}}"#) else {
        panic!()
    };
    assert_eq!((page.from, page.limit), (Index(0), u32::MAX));
    let commit = r#"{"commit":{"request":1,"commit":{"key":{"namespace":"default","id":"r"},"generation":0,"epoch":1,"n":0,
        "commit_id":"7","horizon":0,"events":[
            {"type":"step_completed","call_id":"0","name":"s","output":{"json":1}},
            {"type":"task_scheduled","call_id":"1","kind":"t","input":{"json":{"b":1,"a":2}},"options":{"retry":{"attempts_max":3}}},
            {"type":"run_failed","failure":{"code":"x","message":"y"}}]}}}"#;
    let WorkerFrame::Commit(CommitRun { commit, .. }) = read(commit) else { panic!() };
    assert_eq!((commit.commit_id, commit.waits, commit.is_while_paused), (CommitId(7), false, false));
    let [Event::StepCompleted(step), Event::TaskScheduled(task), Event::RunFailed(failed)] = &commit.events[..] else { panic!() };
    assert_eq!((step.attempt, step.took_ms), (1, 0));
    assert_eq!(task.input_hash, Hash::of(&Payload::json(&serde_json::json!({"a": 2, "b": 1})).unwrap()));
    assert_eq!(task.options.retry(), RetryPolicy::attempts(3));
    assert_eq!(failed.failure, Failure::new("x", "y"));
}

/// Reads with the descriptor only, like a program in another language.
fn read(message: &str, bytes: &[u8]) -> DynamicMessage {
    let file = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/proto/onward.bin")).unwrap();
    let pool = DescriptorPool::decode(&file[..]).unwrap();
    let descriptor = pool.get_message_by_name(&format!("onward.v1.{message}")).unwrap();
    let read = DynamicMessage::decode(descriptor, bytes).unwrap();
    assert_eq!(read.unknown_fields().count(), 0, "{message} has fields that the file does not know");
    read
}

fn check_deep(message: &DynamicMessage) {
    for (field, value) in message.fields() {
        let inner = |value: &Value| {
            if let Some(message) = value.as_message() {
                assert_eq!(message.unknown_fields().count(), 0, "{} in {}", field.name(), message.descriptor().name());
                check_deep(message);
            }
        };
        match value {
            Value::List(values) => values.iter().for_each(inner),
            value => inner(value),
        }
    }
}

#[test]
fn a_reader_of_the_proto_file_understands_every_frame() {
    let frames = WorkerFrames { frames: worker_frames() };
    let seen = read("WorkerFrames", &frames.to_bytes());
    check_deep(&seen);
    let text = format!("{:?}", seen.get_field_by_name("frames").unwrap().as_list().unwrap()[2]);
    assert!(text.contains("charge") && text.contains("18446744073709551615"), "{text}");
    check_deep(&read("ServerFrames", &ServerFrames { frames: server_frames() }.to_bytes()));
}

/// Writes with the descriptor only, like a program in another language.
#[test]
fn what_a_writer_of_the_proto_file_leaves_out_or_packs_is_understood() {
    use onward_wire::api::{PutAttachmentRequest, RunQuery};
    let zeros =
        RunQuery { limit: 0, statuses: vec![Status::Pending, Status::Running], created_from: Some(Timestamp(0)), ..list() };
    for request in [list(), zeros] {
        let seen = read("RunQuery", &request.to_bytes());
        assert_eq!(seen.has_field_by_name("created_from"), request.created_from.is_some());
        assert_eq!(seen.get_field_by_name("statuses").unwrap().as_list().unwrap().len(), request.statuses.len());
        let written = prost_reflect::prost::Message::encode_to_vec(&seen);
        assert_eq!(RunQuery::decode_fields(&written).unwrap(), request);
    }
    // An empty attachment: field 1 is a payload without data.
    let empty = PutAttachmentRequest { content: Payload::binary("image/png", Vec::new()) };
    let written = prost_reflect::prost::Message::encode_to_vec(&read("PutAttachmentRequest", &empty.to_bytes()));
    assert_eq!(PutAttachmentRequest::decode_fields(&written).unwrap(), empty);
}

fn list() -> onward_wire::api::RunQuery {
    onward_wire::api::RunQuery {
        namespace: Namespace::default(),
        kind: None,
        statuses: Vec::new(),
        created_from: None,
        created_until: None,
        limit: 7,
        cursor: None,
        versions: Vec::new(),
        attributes: Vec::new(),
        partly: false,
    }
}

//! Frames of a malicious worker about runs of another namespace (S6), which our own workers never send, and hellos in quick
//! succession.

use std::sync::Arc;
use std::time::Duration;

use onward_core::event::{PauseReason, RunPaused, RunStarted, TaskScheduled};
use onward_core::run::{Commit, NewRun};
use onward_core::task::{TaskId, TaskOptions, TaskReport};
use onward_core::{CallId, CommitId, Epoch, Hash, Index, Name, Namespace, Payload, RunId, RunKey, WorkerId};
use onward_runtime::{Options, Runtime};
use onward_store::{ClaimTasks, MemoryStore, Store, SystemClock};
use onward_wire::worker::*;

use super::{Connection, Sessions};
use crate::auth::Caller;
use crate::verbs::Principal;

fn by(of: &str) -> Principal {
    Principal { namespace: namespace(of), caller: Caller::default(), pass: None }
}

fn namespace(name: &str) -> Namespace {
    Namespace::new(name).expect("a constant name")
}

fn worker(id: &str) -> WorkerId {
    WorkerId::new(id).expect("a constant name")
}

fn key(of: &str) -> RunKey {
    RunKey::new(namespace(of), RunId::new("r").expect("a constant name"))
}

fn hello(runs: Vec<HeldRun>) -> Hello {
    let kind = Name::new("order").expect("a constant name");
    Hello {
        protocol: onward_wire::PROTOCOL,
        connection: 1,
        worker: worker("w"),
        kinds: vec![KindOffer {
            kind,
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
        }],
        task_schemas: Vec::new(),
        task_limits: Vec::new(),
        received: None,
        reports_steps: false,
        dropped: Vec::new(),
        task_kinds: Vec::new(),
        queues: vec![String::new()],
        runs_max: 10,
        runs,
        tasks: Vec::new(),
        sdk: String::new(),
    }
}

struct SessionFixture {
    runtime: Runtime,
    sessions: Sessions,
}

impl SessionFixture {
    fn new() -> SessionFixture {
        let store = Arc::new(MemoryStore::new(Arc::new(SystemClock)));
        SessionFixture { runtime: Runtime::new(store, Arc::new(SystemClock), Options::default()), sessions: Sessions::default() }
    }

    fn greet(&self, of: &str, runs: Vec<HeldRun>) -> Connection {
        self.sessions.greet(&self.runtime, &by(of), hello(runs)).expect("a worker is taken in")
    }

    fn store(&self) -> &dyn Store {
        &**self.runtime.store()
    }

    async fn start(&self, of: &str) {
        let started = RunStarted::new(Name::new("order").expect("a constant name"), Payload::null(), 0);
        let run = NewRun { key: key(of), started, signal: None };
        self.store().start_run(run, None).await.expect("a run is started");
    }
}

/// Returns the first result of `wanted` for the next frames.
async fn next<T>(connection: &Connection, wanted: impl Fn(&ServerFrame) -> Option<T>) -> T {
    loop {
        let frames = connection.next().await.expect("the connection is open");
        if let Some(found) = frames.iter().find_map(&wanted) {
            return found;
        }
    }
}

async fn given(connection: &Connection) -> (RunKey, Epoch) {
    next(connection, |frame| match frame {
        ServerFrame::Run(run) => Some((run.head.key.clone(), run.head.epoch)),
        _ => None,
    })
    .await
}

async fn problem_of(connection: &Connection, request: u64) -> String {
    next(connection, |frame| match frame {
        ServerFrame::Reply(Reply { request: of, outcome }) if *of == request => Some(match outcome {
            ReplyOutcome::Problem(problem) => problem.code.clone(),
            outcome => format!("{outcome:?}"),
        }),
        _ => None,
    })
    .await
}

fn commit(key: RunKey, epoch: Epoch) -> Commit {
    Commit {
        key,
        generation: 0,
        epoch,
        n: 0,
        commit_id: CommitId(1),
        horizon: Index(0),
        events: Vec::new(),
        waits: true,
        end_over_unread: false,
        is_while_paused: false,
        carries: Default::default(),
    }
}

#[tokio::test]
async fn every_frame_about_a_run_of_another_namespace_finds_no_such_run() {
    let fixture = SessionFixture::new();
    let owning = fixture.greet("theirs", Vec::new());
    owning.handle(WorkerFrame::Credit(Credit { runs: 1, tasks: 0 }));
    fixture.start("theirs").await;
    let (run, epoch) = given(&owning).await;
    assert_eq!(run, key("theirs"));

    let lying = fixture.greet("ours", Vec::new());
    let mut emitted = fixture.runtime.listen(&run);
    lying.handle(WorkerFrame::Emit(Emit {
        run: run.clone(),
        name: "x".to_owned(),
        value: Payload::null(),
        audience: Default::default(),
        meta: None,
    }));
    let report = RunPaused::because(PauseReason::Requested, "");
    let task = TaskId { run: run.clone(), generation: 0, call_id: CallId::root(0), incarnation: None };
    let outcome = [
        WorkerFrame::Commit(CommitRun { request: 1, commit: commit(run.clone(), epoch) }),
        WorkerFrame::Release(ReleaseRun { request: 2, run: run.clone(), epoch }),
        WorkerFrame::Pause(PauseRun { request: 3, run: run.clone(), generation: 0, epoch, report }),
        WorkerFrame::ReadLog(ReadLog { request: 4, run: run.clone(), generation: None, from: Index(0), limit: 10 }),
        WorkerFrame::Report(ReportTask { request: 5, task, claim: 1, report: TaskReport::Interrupted }),
    ];
    for (request, frame) in (1..).zip(outcome) {
        lying.handle(frame);
        assert_eq!(problem_of(&lying, request).await, "run_not_found", "request {request}");
    }
    assert!(emitted.try_recv().is_err(), "no listener received it");
    let head = fixture.store().read_run(run, None).await.expect("it can be read").expect("it is there");
    assert_eq!((head.epoch, head.next_index), (epoch, Index(1)), "nothing happened to it");
}

#[tokio::test]
async fn a_worker_that_claims_to_hold_a_run_of_another_namespace_loses_it() {
    let fixture = SessionFixture::new();
    let owning = fixture.greet("theirs", Vec::new());
    owning.handle(WorkerFrame::Credit(Credit { runs: 1, tasks: 0 }));
    fixture.start("theirs").await;
    let (run, epoch) = given(&owning).await;
    let held = HeldRun { run: run.clone(), generation: 0, epoch, next_index: Index(0) };
    let lying = fixture.greet("ours", vec![held]);
    let lost = next(&lying, |frame| match frame {
        ServerFrame::RunLost(lost) => Some(lost.run.clone()),
        _ => None,
    });
    assert_eq!(lost.await, run);
}

/// Q7: the worker reconnects to a restarted server, is silent for too long, and reconnects again without its task.
#[tokio::test]
async fn a_task_that_its_worker_has_let_go_meanwhile_is_not_taken_up_for_it() {
    let fixture = SessionFixture::new();
    let (run, kind) = (key("ours"), Name::new("mail").expect("a constant name"));
    let started = RunStarted::new(Name::new("order").expect("a constant name"), Payload::null(), 0);
    let new_run = NewRun { key: run.clone(), started, signal: None };
    let claimed = fixture.store().start_run(new_run, Some(worker("before"))).await.expect("a run is started").claimed;
    let scheduled = TaskScheduled {
        call_id: CallId::root(0),
        kind: kind.clone(),
        input_hash: Hash::of(&Payload::null()),
        input: Payload::null(),
        options: TaskOptions::default(),
    };
    let epoch = claimed.expect("it is new").head.epoch;
    let schedule = Commit { events: vec![scheduled.into()], ..commit(run.clone(), epoch) };
    fixture.store().commit(schedule).await.expect("a task is scheduled");
    let claim = |by: WorkerId| ClaimTasks {
        worker: by,
        namespace: namespace("ours"),
        queues: vec![None],
        kinds: Arc::new(vec![kind.clone()]),
        limit: 1,
        lease: Duration::from_secs(30),
    };
    let given = fixture
        .store()
        .claim_tasks(claim(worker("w").in_session(&namespace("ours"), None, 7)))
        .await
        .expect("tasks can be claimed")
        .remove(0);
    let held = HeldTask { task: given.id, claim: given.claim };
    let greet = |connection: u64, tasks: Vec<HeldTask>| {
        let hello = Hello { connection, tasks, ..hello(Vec::new()) };
        fixture.sessions.greet(&fixture.runtime, &by("ours"), hello).expect("a worker is taken in")
    };
    // Nothing runs between the two: the task of the first hello is adopted after the second.
    let _connections = [greet(1, vec![held]), greet(2, Vec::new())];
    let again = async {
        loop {
            if let Some(task) = fixture.store().claim_tasks(claim(worker("other"))).await.expect("tasks can be claimed").pop() {
                return task.claim;
            }
            tokio::task::yield_now().await;
        }
    };
    let again = tokio::time::timeout(Duration::from_secs(5), again).await.expect("somebody else gets it");
    assert_eq!(again, 2);
}

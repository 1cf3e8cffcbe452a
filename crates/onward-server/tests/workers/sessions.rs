//! Sessions over several connections.

use std::time::Duration;

use onward_core::event::{RunCompleted, SignalAwaited, TaskScheduled};
use onward_core::run::Commit;
use onward_core::task::TaskReport;
use onward_core::{CallId, CommitId, Event, Hash, Index, Name, Payload};
use onward_wire::worker::*;
use tonic::Code;

use crate::raw::{LEASE, Raw, Site, hello, key};

/// Long enough for a wrong frame to arrive.
const PATIENCE: Duration = Duration::from_millis(100);

pub fn credit(runs: u32, tasks: u32) -> WorkerFrame {
    WorkerFrame::Credit(Credit { runs, tasks })
}

pub fn commit(request: u64, run: &Run, events: Vec<Event>) -> WorkerFrame {
    let head = &run.head;
    let commit = Commit {
        key: head.key.clone(),
        generation: head.generation,
        epoch: head.epoch,
        n: head.next_commit,
        commit_id: CommitId(77),
        horizon: Index(head.next_index.0 - 1),
        waits: !events.iter().any(Event::ends_log),
        events,
        end_over_unread: false,
        is_while_paused: false,
        carries: Default::default(),
    };
    WorkerFrame::Commit(CommitRun { request, commit })
}

fn completed() -> Event {
    RunCompleted { output: Payload::null(), attempts: None }.into()
}

fn held(run: &Run) -> HeldRun {
    let head = &run.head;
    HeldRun { run: head.key.clone(), generation: head.generation, epoch: head.epoch, next_index: head.next_index }
}

async fn is_served(raw: &mut Raw) {
    raw.send(WorkerFrame::Heartbeat(Heartbeat { request: 1 })).await;
    assert!(matches!(raw.outcome(1).await, ReplyOutcome::Done(_)));
}

#[tokio::test]
async fn what_an_earlier_connection_brings_does_not_count() {
    let site = Site::new().await;
    let mut earlier = site.welcome(hello(1)).await;
    let mut later = site.welcome(hello(2)).await;
    earlier.send(credit(5, 5)).await;
    assert_eq!(earlier.next().await, None, "it ends");
    site.start("r", "pay").await;
    assert_eq!(later.next_within(PATIENCE).await, None, "no run was requested");
    later.send(credit(1, 0)).await;
    assert_eq!(later.run().await.head.key, key("r"));
    site.start("another", "pay").await;
    assert_eq!(later.next_within(PATIENCE).await, None, "one run was requested");
}

#[tokio::test]
async fn a_hello_that_a_later_one_has_overtaken_is_refused() {
    let site = Site::new().await;
    let mut later = site.welcome(hello(2)).await;
    let refused = site.connect(vec![WorkerFrame::Hello(hello(1))]).await.err().unwrap();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    is_served(&mut later).await;
}

#[tokio::test]
async fn the_last_commit_of_a_run_is_recognized_when_it_is_repeated() {
    let site = Site::new().await;
    let mut raw = site.welcome(hello(1)).await;
    raw.send(credit(1, 0)).await;
    site.start("r", "pay").await;
    let run = raw.run().await;
    raw.send(commit(3, &run, vec![completed()])).await;
    let first = raw.outcome(3).await;
    assert!(matches!(first, ReplyOutcome::Committed(_)));
    drop(raw);
    let mut raw = site.welcome(hello(2)).await;
    raw.send(commit(3, &run, vec![completed()])).await;
    assert_eq!(raw.outcome(3).await, first, "the first answer comes back (V3)");
    // Another commit to the closed run is refused.
    let WorkerFrame::Commit(mut other) = commit(4, &run, vec![completed()]) else { unreachable!() };
    other.commit.commit_id = CommitId(78);
    raw.send(WorkerFrame::Commit(other)).await;
    assert!(matches!(raw.outcome(4).await, ReplyOutcome::Problem(_)));
}

#[tokio::test]
async fn a_worker_that_was_silent_past_its_lease_begins_anew_under_the_same_id() {
    let site = Site::new().await;
    let mut raw = site.welcome(hello(1)).await;
    raw.send(credit(1, 0)).await;
    site.start("r", "pay").await;
    let run = raw.run().await;
    site.pass(LEASE * 2).await;
    while raw.next().await.is_some() {} // the connection ends with the session (Q4)

    let mut raw = site.welcome(Hello { runs: vec![held(&run)], ..hello(2) }).await;
    let lost = RunLost { run: key("r"), epoch: run.head.epoch };
    assert_eq!(raw.next().await, Some(ServerFrame::RunLost(lost)));
    raw.send(commit(9, &run, vec![completed()])).await;
    assert!(matches!(raw.outcome(9).await, ReplyOutcome::Problem(problem) if problem.code == "lease_lost"));
    raw.send(credit(1, 0)).await;
    let again = raw.run().await;
    assert!(again.head.epoch > run.head.epoch);
    raw.send(commit(10, &again, vec![completed()])).await;
    assert!(matches!(raw.outcome(10).await, ReplyOutcome::Committed(_)));
}

/// The frame was in transit when the connection broke.
#[tokio::test]
async fn a_run_that_did_not_arrive_is_offered_again() {
    let site = Site::new().await;
    let mut raw = site.welcome(hello(1)).await;
    raw.send(credit(1, 0)).await;
    site.start("r", "pay").await;
    let lost = raw.run().await; // as if it had not arrived
    drop(raw);
    let mut raw = site.welcome(hello(2)).await;
    raw.send(credit(1, 0)).await;
    assert!(raw.run().await.head.epoch > lost.head.epoch);
}

#[tokio::test]
async fn a_worker_without_a_connection_is_given_nothing() {
    let site = Site::new().await;
    let raw = site.welcome(hello(1)).await;
    raw.send(credit(5, 0)).await;
    drop(raw);
    let other = Hello { worker: onward_core::WorkerId::new("other").unwrap(), ..hello(1) };
    let mut other = site.welcome(other).await;
    for n in 0..4 {
        other.send(credit(1, 0)).await;
        site.start(&format!("r-{n}"), "pay").await;
        other.run().await; // no lease of the absent worker has to expire first
    }
}

#[tokio::test]
async fn a_run_that_ended_makes_room_for_another() {
    let site = Site::new().await;
    let mut raw = site.welcome(Hello { runs_max: 1, ..hello(1) }).await;
    for n in 0..3 {
        raw.send(credit(1, 0)).await;
        site.start(&format!("r-{n}"), "pay").await;
        let run = raw.run().await;
        raw.send(commit(1, &run, vec![completed()])).await;
        assert!(matches!(raw.outcome(1).await, ReplyOutcome::Committed(_)));
    }
}

/// The same worker gets the same task again before the end of the earlier claim is known everywhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_comes_back_to_the_worker_that_gave_it_back_can_be_reported() {
    let site = Site::new().await;
    let mut raw = site.welcome(hello(1)).await;
    raw.send(credit(1, 1)).await;
    site.start("r", "pay").await;
    let run = raw.run().await;
    let input = Payload::null();
    let scheduled = TaskScheduled {
        call_id: CallId::root(0),
        kind: Name::new("mail").unwrap(),
        input_hash: Hash::of(&input),
        input,
        options: Default::default(),
    };
    raw.send(commit(1, &run, vec![scheduled.into()])).await;
    assert!(matches!(raw.outcome(1).await, ReplyOutcome::Committed(_)));
    let mut last = None;
    for request in 2..30 {
        let task = raw.task().await;
        assert_eq!(task.attempt, 1, "what was given back does not count");
        raw.send(credit(0, 1)).await;
        let (id, claim) = (task.id.clone(), task.claim);
        let report = if request == 29 { TaskReport::Completed(Payload::null()) } else { TaskReport::NotStarted };
        raw.send(WorkerFrame::Report(ReportTask { request, task: id, claim, report })).await;
        let outcome = raw.outcome(request).await;
        assert!(matches!(outcome, ReplyOutcome::Done(_)), "claim {claim}: {outcome:?}");
        last = Some(claim);
    }
    assert!(last > Some(20));
}

#[tokio::test]
async fn a_log_that_does_not_fit_into_a_message_comes_in_parts() {
    let site = Site::new().await;
    let mut raw = site.welcome(hello(1)).await;
    raw.send(credit(1, 0)).await;
    site.start("r", "pay").await;
    let run = raw.run().await;
    let awaited = SignalAwaited { call_id: CallId::root(0), name: Name::new("s").unwrap(), deadline: None, is_pattern: false };
    raw.send(commit(1, &run, vec![awaited.into()])).await;
    assert!(matches!(raw.outcome(1).await, ReplyOutcome::Committed(_)));
    let large = Payload::json(&"x".repeat(1 << 20)).unwrap();
    for _ in 0..7 {
        site.signal("r", "s", large.clone()).await;
        assert!(matches!(raw.next().await, Some(ServerFrame::Input(_))));
    }
    let (mut from, mut parts) = (Index(0), 0);
    loop {
        let read = ReadLog { request: 2, run: key("r"), generation: None, from, limit: 1_000 };
        raw.send(WorkerFrame::ReadLog(read)).await;
        let ReplyOutcome::Log(Log { records, more }) = raw.outcome(2).await else { panic!("no log") };
        (from, parts) = (records.last().unwrap().next_index(), parts + 1);
        if !more {
            break;
        }
    }
    assert_eq!((from, parts), (Index(9), 3), "three and three and one");
}

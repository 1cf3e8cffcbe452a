//! V7, K6: attempts whose worker reconnects without them, leaves or is silent.

use std::time::Duration;

use onward_core::event::TaskScheduled;
use onward_core::task::{EffectClass, Task, TaskOptions, TaskReport};
use onward_core::{CallId, Event, Hash, Index, Name, Payload, WorkerId};
use onward_wire::worker::*;

use crate::raw::{DEADLINE, LEASE, Raw, Site, hello, key};
use crate::sessions::{commit, credit};

/// A worker that was offered a task, with the offer.
struct Offered {
    site: Site,
    raw: Raw,
    session: u64,
    number: u64,
    task: Task,
}

impl Offered {
    async fn new(class: EffectClass) -> Offered {
        let site = Site::new().await;
        let mut raw = site.connect(vec![WorkerFrame::Hello(hello(1))]).await.unwrap();
        let Some(ServerFrame::Welcome(Welcome { session, .. })) = raw.next().await else { panic!("no welcome") };
        raw.send(credit(1, 1)).await;
        site.start("r", "pay").await;
        let (run, input) = (raw.run().await, Payload::null());
        let options = TaskOptions { class: Some(class), ..TaskOptions::default() };
        let (call_id, kind, input_hash) = (CallId::root(0), Name::new("mail").unwrap(), Hash::of(&input));
        raw.send(commit(1, &run, vec![TaskScheduled { call_id, kind, input_hash, input, options }.into()])).await;
        loop {
            match raw.next().await {
                Some(ServerFrame::Task(TaskOffer { task, number })) => return Offered { site, raw, session, number, task },
                Some(_) => {}
                None => panic!("no task"),
            }
        }
    }

    fn received(&self, offer: u64) -> Option<Received> {
        Some(Received { session: self.session, offer })
    }

    /// Reconnects, and requests another task.
    async fn come_back(&mut self, received: Option<Received>, tasks: Vec<HeldTask>) {
        self.raw = self.site.welcome(Hello { received, tasks, ..hello(2) }).await;
        self.raw.send(credit(0, 1)).await;
    }

    async fn leave(&mut self, received: Option<Received>) {
        self.raw.send(WorkerFrame::Leave(Leave { request: 9, received })).await;
        assert!(matches!(self.raw.outcome(9).await, ReplyOutcome::Done(_)));
        self.raw = self.site.welcome(Hello { worker: WorkerId::new("other").unwrap(), ..hello(1) }).await;
        self.raw.send(credit(0, 1)).await;
    }

    /// Checks that the task is offered again, as an attempt of this number.
    async fn is_offered_again(&mut self, attempt: u32) {
        let again = self.raw.task().await;
        assert_eq!((again.attempt, again.claim, again.lost_workers), (attempt, self.task.claim + 1, 0));
    }

    async fn is_unknown(&self) {
        assert_eq!(self.outcome().await, "outcome_unknown");
    }

    async fn outcome(&self) -> String {
        let store = self.site.runtime.store();
        let begun = tokio::time::Instant::now();
        loop {
            let log = store.read_log(key("r"), None, Index(0), usize::MAX).await.unwrap();
            let outcome = log.iter().flat_map(|record| &record.events).find_map(|event| match event {
                Event::TaskFailed(failed) => Some(failed.failure.code.clone()),
                Event::TaskCompleted(_) => Some("completed".to_owned()),
                _ => None,
            });
            if let Some(outcome) = outcome {
                return outcome;
            }
            assert!(begun.elapsed() < DEADLINE * 6, "the task has no outcome");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// K10: a server loses a worker that has moved, but not the task that the worker holds at another server.
#[tokio::test]
async fn a_worker_that_moves_to_another_server_keeps_its_task() {
    for class in [EffectClass::AtMostOnce, EffectClass::AtLeastOnce] {
        let mut offered = Offered::new(class).await;
        let other = offered.site.beside().await;
        let tasks = vec![HeldTask { task: offered.task.id.clone(), claim: offered.task.claim }];
        let mut moved = other.welcome(Hello { received: offered.received(offered.number), tasks, ..hello(2) }).await;
        let (task, claim) = (offered.task.id.clone(), offered.task.claim);
        let report = |request, report| WorkerFrame::Report(ReportTask { request, task: task.clone(), claim, report });
        moved.send(report(1, TaskReport::Heartbeat { progress: None })).await;
        assert!(matches!(moved.outcome(1).await, ReplyOutcome::Done(_)));
        for request in 2..8 {
            offered.site.pass(LEASE / 3).await;
            moved.send(WorkerFrame::Heartbeat(Heartbeat { request })).await;
            assert!(matches!(moved.outcome(request).await, ReplyOutcome::Done(_)));
            other.pass(Duration::ZERO).await;
        }
        while offered.raw.next().await.is_some() {} // its session at the first server ends
        moved.send(report(9, TaskReport::Completed(Payload::null()))).await;
        assert!(matches!(moved.outcome(9).await, ReplyOutcome::Done(_)), "{class:?}");
        assert_eq!(offered.outcome().await, "completed");
    }
}

/// K10: a worker that was at another server in between adopts its task at the first one again, although that one had kept it.
#[tokio::test]
async fn a_worker_that_comes_back_from_another_server_keeps_its_task() {
    comes_back(|_, there| Some(Received { session: there, offer: 0 })).await;
    comes_back(|_, _| None).await;
}

/// K10: the worker has not received the welcome of the other server, which has adopted its task.
#[tokio::test]
async fn a_worker_that_another_server_could_not_answer_keeps_its_task() {
    comes_back(|offered, _| offered.received(offered.number)).await;
}

/// Plays a worker that goes to another server and back, with the result of `received` for its session there.
async fn comes_back(received: impl Fn(&Offered, u64) -> Option<Received>) {
    let offered = Offered::new(EffectClass::AtMostOnce).await;
    let other = offered.site.beside().await;
    let (task, claim) = (offered.task.id.clone(), offered.task.claim);
    let tasks = vec![HeldTask { task: task.clone(), claim }];
    let report = |request, report| WorkerFrame::Report(ReportTask { request, task: task.clone(), claim, report });
    let away = Hello { received: offered.received(offered.number), tasks: tasks.clone(), ..hello(2) };
    let mut there = other.connect(vec![WorkerFrame::Hello(away)]).await.unwrap();
    let Some(ServerFrame::Welcome(Welcome { session, .. })) = there.next().await else { panic!("no welcome") };
    there.send(report(1, TaskReport::Heartbeat { progress: None })).await;
    assert!(matches!(there.outcome(1).await, ReplyOutcome::Done(_)));
    let mut back = offered.site.welcome(Hello { received: received(&offered, session), tasks, ..hello(3) }).await;
    back.send(report(1, TaskReport::Heartbeat { progress: None })).await;
    assert!(matches!(back.outcome(1).await, ReplyOutcome::Done(_)));
    let adopted = async || {
        let query = onward_store::TaskQuery { run: Some(key("r")), limit: 9, ..Default::default() };
        let open = offered.site.runtime.store().list_tasks(query).await.unwrap();
        open[0].worker.as_ref().is_some_and(|worker| worker.as_str().ends_with(&format!("{:016x}", offered.session)))
    };
    let begun = tokio::time::Instant::now();
    while !adopted().await {
        assert!(begun.elapsed() < Duration::from_secs(20), "the first server does not adopt the task");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for request in 2..8 {
        other.pass(LEASE / 3).await;
        back.send(WorkerFrame::Heartbeat(Heartbeat { request })).await;
        assert!(matches!(back.outcome(request).await, ReplyOutcome::Done(_)));
        offered.site.pass(Duration::ZERO).await;
    }
    while there.next().await.is_some() {} // its session at the other server ends
    back.send(report(9, TaskReport::Completed(Payload::null()))).await;
    assert!(matches!(back.outcome(9).await, ReplyOutcome::Done(_)));
    assert_eq!(offered.outcome().await, "completed");
}

#[tokio::test]
async fn an_offer_that_has_not_arrived_is_made_again() {
    for class in [EffectClass::AtMostOnce, EffectClass::Keyed] {
        let mut offered = Offered::new(class).await;
        offered.come_back(offered.received(offered.number - 1), Vec::new()).await;
        offered.is_offered_again(1).await;
        let mut offered = Offered::new(class).await;
        offered.leave(offered.received(offered.number - 1)).await;
        offered.is_offered_again(1).await;
    }
}

#[tokio::test]
async fn an_attempt_that_a_worker_has_let_go_may_have_begun() {
    for is_known in [true, false] {
        let mut offered = Offered::new(EffectClass::AtMostOnce).await;
        offered.come_back(offered.received(offered.number).filter(|_| is_known), Vec::new()).await;
        offered.is_unknown().await;
        let mut offered = Offered::new(EffectClass::Keyed).await;
        offered.come_back(offered.received(offered.number).filter(|_| is_known), Vec::new()).await;
        offered.is_offered_again(2).await;
        let mut offered = Offered::new(EffectClass::AtMostOnce).await;
        offered.leave(offered.received(offered.number).filter(|_| is_known)).await;
        offered.is_unknown().await;
        let mut offered = Offered::new(EffectClass::Keyed).await;
        offered.leave(offered.received(offered.number).filter(|_| is_known)).await;
        offered.is_offered_again(2).await;
    }
}

/// Offers of another session are not compared with those of this one.
#[tokio::test]
async fn the_offers_of_another_session_are_not_compared() {
    let mut offered = Offered::new(EffectClass::AtMostOnce).await;
    let of_another = Some(Received { session: offered.session + 1, offer: 0 });
    offered.come_back(of_another, Vec::new()).await;
    offered.is_unknown().await;
}

#[tokio::test]
async fn an_attempt_that_the_worker_still_has_goes_on() {
    let mut offered = Offered::new(EffectClass::AtMostOnce).await;
    let (id, claim) = (offered.task.id.clone(), offered.task.claim);
    offered.come_back(None, vec![HeldTask { task: id.clone(), claim }]).await;
    let report = TaskReport::Completed(Payload::null());
    offered.raw.send(WorkerFrame::Report(ReportTask { request: 5, task: id, claim, report })).await;
    assert!(matches!(offered.raw.outcome(5).await, ReplyOutcome::Done(_)));
    assert_eq!(offered.outcome().await, "completed");
}

#[tokio::test]
async fn a_silent_worker_may_have_begun_its_attempt() {
    let offered = Offered::new(EffectClass::AtMostOnce).await;
    offered.site.pass(LEASE).await;
    offered.is_unknown().await;
    let mut offered = Offered::new(EffectClass::Keyed).await;
    offered.site.pass(LEASE).await;
    offered.raw = offered.site.welcome(Hello { worker: WorkerId::new("other").unwrap(), ..hello(1) }).await;
    offered.raw.send(credit(0, 1)).await;
    let again = offered.raw.task().await;
    assert_eq!((again.attempt, again.lost_workers), (2, 1), "counted towards quarantine (K3)");
}

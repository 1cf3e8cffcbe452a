//! A run that continues as new closes its log and begins another under the same id, in one write.

use onward_core::conversation::OutsideEntry;
use onward_core::event::{
    BranchRequested, CarriedSignal, Checkpoint, ChildAwaited, ChildStarted, OnParentClose, RunContinued, UpdateReceived,
};
use onward_core::run::{Carries, Commit, IdempotencyRecord, Input};
use onward_core::task::{TaskOptions, TaskReport};
use onward_core::{CallId, Event, Index, RunId, Status};

use super::block_on;
use super::harness::{
    Harness, HeldRun, approval, call_id, child, completed, decision, json, key, name, new_run, pause, refused, resume, seconds,
    signal, task, terminate, timer,
};
use crate::RunQuery;

pub async fn a_continued_run_begins_a_new_log_under_its_old_name(mut harness: Harness) {
    let (held, created_at) = (harness.start_held("r").await, harness.now());
    harness.pass(seconds(1));
    let committed = harness.store().commit(continued(&held)).await.unwrap();
    assert_eq!(committed.status, Status::Completed);
    harness.reopen();
    let head = harness.head("r").await;
    assert_eq!((head.generation, head.next_index, head.created_at), (1, Index(1), created_at));
    let Event::RunStarted(started) = harness.records("r").await.remove(0).events.remove(0) else { panic!("H2") };
    assert_eq!((started.input, started.mailbox.len(), started.generation), (json("2"), 1, 1));
    assert_eq!(harness.log("r").await, ["run_started"]);

    let old = harness.store().read_run(key("r"), Some(0)).await.unwrap().unwrap();
    assert_eq!((old.generation, old.status, old.ended_at), (0, Status::Completed, Some(harness.now())));
    let old = harness.store().read_log(key("r"), Some(0), Index(0), 10).await.unwrap();
    assert_eq!(old.last().unwrap().events.last().unwrap().name(), "run_continued");
    assert_eq!(harness.store().read_run(key("r"), Some(2)).await.unwrap(), None);
    let listed = harness.store().list_runs(Default::default()).await.unwrap();
    assert_eq!(listed.runs, [head]);
}

pub async fn the_successor_is_free_and_the_old_lease_does_not_fit_it(mut harness: Harness) {
    let old = harness.start_held("r").await;
    harness.store().commit(continued(&old)).await.unwrap();
    assert_eq!(harness.head("r").await.status, Status::Pending);
    harness.reopen();
    let mut new = harness.claim_one("v").await;
    assert_eq!(new.head.generation, 1);
    harness.store().release_run(key("r"), old.head.epoch).await.unwrap();
    assert_eq!(harness.claim("u").await, []);
    let mut late = old.commit(vec![completed()]);
    late.n = 1;
    refused(harness.store().commit(late).await, "lease_lost");
    harness.commit(&mut new, vec![completed()]).await;
}

pub async fn a_repeat_of_the_commit_that_continued_gets_its_first_answer(mut harness: Harness) {
    let held = harness.start_held("r").await;
    let first = harness.store().commit(continued(&held)).await.unwrap();
    harness.pass(seconds(1));
    harness.reopen();
    assert_eq!(harness.store().commit(continued(&held)).await.unwrap(), first);
    assert_eq!(harness.head("r").await.generation, 1);
}

pub async fn slots_carry_over_to_the_successor(mut harness: Harness) {
    let mut held = harness.start_held("r").await;
    harness.commit(&mut held, vec![approval(0, None)]).await;
    harness.append("r", signal(Some("a"))).await.unwrap();
    harness.append("r", decision(0, 0, "anna")).await.unwrap();
    harness.read_on(&mut held).await;
    harness.store().commit(continued(&held)).await.unwrap();
    harness.reopen();
    assert!(harness.append("r", signal(Some("a"))).await.unwrap().repeated);
    assert!(harness.append("r", decision(0, 0, "anna")).await.unwrap().repeated);
    refused(harness.append("r", decision(0, 0, "ben")).await, "signal_lost");
    assert_eq!(harness.log("r").await, ["run_started"]);
    // The successor's approval at the same call id is another one.
    let mut held = harness.claim_one("v").await;
    harness.commit(&mut held, vec![approval(0, None)]).await;
    assert!(!harness.append("r", decision(1, 0, "ben")).await.unwrap().repeated);
}

pub async fn of_two_branches_before_the_first_is_carried_out_one_is_taken(mut harness: Harness) {
    let mut held = harness.start_held("r").await;
    assert!(!harness.append("r", branch("one", Some("a"))).await.unwrap().repeated);
    // Neither later inputs nor a restart hide the pending request.
    harness.append("r", signal(None)).await.unwrap();
    refused(harness.append("r", branch("two", None)).await, "branch_pending");
    harness.reopen();
    refused(harness.append("r", branch("two", Some("b"))).await, "branch_pending");
    harness.append("r", pause()).await.unwrap();
    harness.reopen();
    refused(harness.append("r", branch("two", Some("b"))).await, "branch_pending");
    harness.append("r", resume()).await.unwrap();
    assert!(harness.append("r", branch("one", Some("a"))).await.unwrap().repeated);
    refused(harness.append("r", branch("two", Some("a"))).await, "id_taken");
    let requests = harness.log("r").await.into_iter().filter(|name| *name == "branch_requested").count();
    assert_eq!(requests, 1);
    // Once it is carried out, the refused request may be sent again.
    held = harness.regain(&held).await;
    harness.store().commit(continued(&held)).await.unwrap();
    harness.reopen();
    assert!(!harness.append("r", branch("two", Some("b"))).await.unwrap().repeated);
    assert!(harness.append("r", branch("one", Some("a"))).await.unwrap().repeated);
}

pub async fn of_branches_that_come_at_the_same_time_one_is_taken(harness: Harness) {
    harness.start("r").await;
    let store = harness.store();
    let append_branch = |number: u32| {
        let store = store.clone();
        std::thread::spawn(move || block_on(store.append_input(key("r"), branch(&number.to_string(), None))))
    };
    let threads: Vec<_> = (0..8).map(append_branch).collect();
    let answers: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    assert_eq!(answers.into_iter().filter_map(Result::err).map(|error| error.code()).collect::<Vec<_>>(), ["branch_pending"; 7]);
    assert_eq!(harness.log("r").await, ["run_started", "branch_requested"]);
}

pub async fn what_answers_the_old_generation_is_refused(harness: Harness) {
    let mut held = harness.start_held("r").await;
    harness.commit(&mut held, vec![approval(0, None)]).await;
    harness.store().commit(continued(&held)).await.unwrap();
    refused(harness.append("r", decision(0, 0, "anna")).await, "run_continued");
    assert!(!harness.append("r", signal(Some("a"))).await.unwrap().repeated);
    assert_eq!(harness.log("r").await, ["run_started", "signal_received"]);
}

pub async fn nothing_open_of_the_old_generation_is_left(mut harness: Harness) {
    let mut held = harness.start_held("r").await;
    let due = harness.now().after(seconds(5));
    let open = vec![task(0, TaskOptions::default()), timer(1, due), approval(2, None), child("r/c", 3, OnParentClose::Terminate)];
    harness.commit(&mut held, open).await;
    harness.deliver().await;
    harness.store().commit(continued(&held)).await.unwrap();
    harness.reopen();
    assert_eq!(harness.claim_tasks("t", 10).await, []);
    assert_eq!(harness.waits().await, [] as [CallId; 0]);
    harness.clock.set(due);
    assert_eq!(harness.expire().await.timers_fired, 0);
    harness.deliver().await;
    assert_eq!(harness.head("r/c").await.status, Status::Terminated);
    assert_eq!(harness.log("r").await, ["run_started"]);
}

pub async fn a_result_of_the_old_generation_does_not_fit_the_successor(harness: Harness) {
    let mut held = harness.start_held("r").await;
    harness.commit(&mut held, vec![task(0, TaskOptions::default())]).await;
    let old = harness.claim_tasks("t", 1).await.remove(0);
    harness.store().commit(continued(&held)).await.unwrap();
    let mut held = harness.claim_one("v").await;
    harness.commit(&mut held, vec![task(0, TaskOptions::default())]).await;
    let new = harness.claim_tasks("u", 1).await.remove(0);
    assert_eq!((&new.id.call_id, new.claim, new.id.generation), (&old.id.call_id, old.claim, 1));
    let done = || TaskReport::Completed(json("1"));
    refused(harness.store().report_task(old.id, old.claim, done(), seconds(30)).await, "task_attempt_over");
    harness.store().report_task(new.id, new.claim, done(), seconds(30)).await.unwrap();
    assert_eq!(harness.log("r").await, ["run_started", "task_scheduled", "task_completed"]);
}

pub async fn a_child_of_the_old_generation_hears_once_of_its_end(harness: Harness) {
    let mut held = harness.start_held("r").await;
    harness.commit(&mut held, vec![child("r/c", 0, OnParentClose::Cancel)]).await;
    harness.deliver().await;
    harness.store().commit(continued(&held)).await.unwrap();
    assert_eq!(harness.deliver().await, 1);
    harness.append("r", terminate()).await.unwrap();
    assert_eq!(harness.store().outbox_messages(10).await.unwrap(), []);
    assert_eq!(harness.log("r/c").await, ["run_started", "cancel_requested"]);
}

/// A spawned child outlives a generation, answers the generation that awaits it, and ends with the run.
pub async fn a_spawned_child_outlives_a_generation_and_ends_with_the_run(mut harness: Harness) {
    let mut held = harness.start_held("r").await;
    harness.commit(&mut held, vec![spawned("r/a", 0), spawned("r/b", 1)]).await;
    harness.deliver().await;
    harness.store().commit(continued(&held)).await.unwrap();
    harness.reopen();
    assert_eq!(harness.deliver().await, 0, "no child is notified");
    // Neither is a child that starts late.
    let claimed = harness.claim("v").await;
    let mut second = HeldRun::new(claimed.iter().find(|run| run.head.key == key("r")).expect("it is pending"));
    let awaited = ChildAwaited { call_id: call_id(0), child: RunId::new("r/a").unwrap() };
    harness.commit(&mut second, vec![awaited.into(), spawned("r/c", 1)]).await;
    harness.store().commit(continued(&second)).await.unwrap();
    harness.deliver().await;
    assert_eq!(harness.log("r/a").await, ["run_started", "result_requested"]);
    assert_eq!(harness.log("r/c").await, ["run_started"]);
    harness.append("r/a", terminate()).await.unwrap();
    harness.deliver().await;
    assert_eq!(harness.log("r").await, ["run_started"], "the generation that awaited it is closed");
    harness.append("r", terminate()).await.unwrap();
    harness.reopen();
    assert_eq!(harness.deliver().await, 2);
    assert_eq!(harness.log("r/b").await, ["run_started", "cancel_requested"]);
    assert_eq!(harness.log("r/c").await, ["run_started", "cancel_requested"]);
}

fn spawned(id: &str, ordinal: u32) -> Event {
    match child(id, ordinal, OnParentClose::Cancel) {
        Event::ChildStarted(event) => ChildStarted { is_spawned: true, ..event }.into(),
        event => event,
    }
}

/// A handoff changes the run's kind for claims and lists; a repeat of the original start still finds the run.
pub async fn a_run_that_is_handed_over_is_of_the_other_kind(mut harness: Harness) {
    let held = harness.start_held("r").await;
    let checkpoint = Checkpoint { handoff: Some(name("other")), ..first_checkpoint() };
    let over = RunContinued { input: json("2"), checkpoint: Some(Box::new(checkpoint)) };
    harness.store().commit(held.commit(vec![over.into()])).await.unwrap();
    harness.reopen();
    let head = harness.head("r").await;
    assert_eq!((head.kind.as_str(), head.generation, head.first_kind()), ("other", 1, &new_run("r").started.kind));
    let again = harness.store().start_run(new_run("r"), None).await.unwrap();
    assert!(!again.created, "the same start is the same run");
    let query = RunQuery { kind: Some(name("other")), ..RunQuery::default() };
    assert_eq!(harness.store().list_runs(query).await.unwrap().runs.len(), 1);
}

/// Returns the checkpoint of an empty conversation.
fn first_checkpoint() -> Checkpoint {
    Checkpoint {
        state: json("null"),
        prelude: None,
        awaits: None,
        leaf: None,
        depth: 0,
        kept: Vec::new(),
        keys: Vec::new(),
        abandoned_children: Vec::new(),
        handoff: None,
        tally: None,
    }
}

/// Returns a request to branch from the beginning with another entry.
fn branch(text: &str, id: Option<&str>) -> Input {
    let entry = OutsideEntry { role: name("user"), content: json(&format!("{text:?}")), idempotency_key: None };
    let request = BranchRequested {
        from: None,
        depth: 0,
        entry: Some(entry),
        checkpoint: Box::new(first_checkpoint()),
        input: json("{}"),
        request_id: id.map(str::to_owned),
    };
    Input { once: id.map(|id| IdempotencyRecord::branch(&request, id)), ..Input::new(request) }
}

fn continued(held: &HeldRun) -> Commit {
    let carried = CarriedSignal { name: name("paid"), payload: json("1"), signal_id: None, sender: None };
    let events = vec![RunContinued { input: json("2"), checkpoint: None }.into()];
    let carries = Carries { signals: vec![carried], cancel_reason: None, updates: Vec::new(), version: None };
    Commit { carries, ..held.commit(events) }
}

/// A commit never closes a generation over unread inputs, even with `end_over_unread`: they could not be carried over.
pub async fn a_run_does_not_continue_over_what_its_worker_has_not_seen(harness: Harness) {
    let held = harness.start_held("r").await;
    let unread = harness.append("r", signal(Some("a"))).await.unwrap();
    let insisting = Commit { end_over_unread: true, ..continued(&held) };
    refused(harness.store().commit(insisting).await, "inputs_unread");
    assert_eq!(harness.log("r").await, ["run_started", "signal_received"]);
    let seeing = Commit { horizon: unread.index, ..continued(&held) };
    harness.store().commit(seeing).await.unwrap();
    assert_eq!(harness.log("r").await, ["run_started"]);
}

pub async fn a_request_to_cancel_goes_along(mut harness: Harness) {
    for reason in ["", "enough"] {
        let id = format!("r{reason}");
        let held = harness.start_held(&id).await;
        let mut commit = continued(&held);
        commit.carries.cancel_reason = Some(reason.to_owned());
        harness.store().commit(commit).await.unwrap();
        harness.reopen();
        let Event::RunStarted(started) = harness.records(&id).await.remove(0).events.remove(0) else { panic!("H2") };
        assert_eq!(started.cancel_reason.as_deref(), Some(reason));
    }
}

/// The update keeps its id: a repeat gets the reply of the generation that has it.
pub async fn an_unanswered_update_goes_along(mut harness: Harness) {
    let held = harness.start_held("r").await;
    let payload = onward_core::Payload::binary("application/octet-stream", vec![7; 100_000]);
    let update = UpdateReceived { update_id: "u".to_owned(), name: name("address"), payload };
    let unread = harness.append("r", Input::update(update.clone())).await.unwrap();
    let mut commit = Commit { horizon: unread.index, ..continued(&held) };
    commit.carries.updates = vec![update.clone()];
    harness.store().commit(commit).await.unwrap();
    harness.reopen();
    let Event::RunStarted(started) = harness.records("r").await.remove(0).events.remove(0) else { panic!("H2") };
    assert_eq!(started.updates, std::slice::from_ref(&update));
    assert!(harness.append("r", Input::update(update)).await.unwrap().repeated);
    assert_eq!(harness.log("r").await, ["run_started"]);
}

//! A run that continues as new closes its log and begins another under the same id, in one write.

use onward_core::event::{
    BranchRequested, CarriedSignal, Checkpoint, ChildAwaited, ChildStarted, OnParentClose, RunContinued, UpdateReceived,
};
use onward_core::conversation::OutsideEntry;
use onward_core::run::{Carries, Commit, Input, IdempotencyRecord};
use onward_core::task::{TaskOptions, TaskReport};
use onward_core::{Event, Index, CallId, RunId, Status};

use super::kit::{
    HeldRun, Kit, approval, child, completed, decision, json, key, name, new_run, pause, call_id, refused, resume, seconds, signal, task,
    terminate, timer,
};
use super::block_on;
use crate::RunQuery;

pub async fn a_continued_run_begins_a_new_log_under_its_old_name(mut kit: Kit) {
    let (held, created_at) = (kit.start_held("r").await, kit.now());
    kit.pass(seconds(1));
    let committed = kit.store().commit(continued(&held)).await.unwrap();
    assert_eq!(committed.status, Status::Completed);
    kit.reopen();
    let head = kit.head("r").await;
    assert_eq!((head.generation, head.next_index, head.created_at), (1, Index(1), created_at));
    let Event::RunStarted(started) = kit.records("r").await.remove(0).events.remove(0) else { panic!("H2") };
    assert_eq!((started.input, started.mailbox.len(), started.generation), (json("2"), 1, 1));
    assert_eq!(kit.log("r").await, ["run_started"]);

    let old = kit.store().read_run(key("r"), Some(0)).await.unwrap().unwrap();
    assert_eq!((old.generation, old.status, old.ended_at), (0, Status::Completed, Some(kit.now())));
    let old = kit.store().read_log(key("r"), Some(0), Index(0), 10).await.unwrap();
    assert_eq!(old.last().unwrap().events.last().unwrap().name(), "run_continued");
    assert_eq!(kit.store().read_run(key("r"), Some(2)).await.unwrap(), None);
    let listed = kit.store().list_runs(Default::default()).await.unwrap();
    assert_eq!(listed.runs, [head]);
}

pub async fn the_successor_is_free_and_the_old_lease_does_not_fit_it(mut kit: Kit) {
    let old = kit.start_held("r").await;
    kit.store().commit(continued(&old)).await.unwrap();
    assert_eq!(kit.head("r").await.status, Status::Pending);
    kit.reopen();
    let mut new = kit.claim_one("v").await;
    assert_eq!(new.head.generation, 1);
    kit.store().release_run(key("r"), old.head.epoch).await.unwrap();
    assert_eq!(kit.claim("u").await, []);
    let mut late = old.commit(vec![completed()]);
    late.n = 1;
    refused(kit.store().commit(late).await, "lease_lost");
    kit.commit(&mut new, vec![completed()]).await;
}

pub async fn a_repeat_of_the_commit_that_continued_gets_its_first_answer(mut kit: Kit) {
    let held = kit.start_held("r").await;
    let first = kit.store().commit(continued(&held)).await.unwrap();
    kit.pass(seconds(1));
    kit.reopen();
    assert_eq!(kit.store().commit(continued(&held)).await.unwrap(), first);
    assert_eq!(kit.head("r").await.generation, 1);
}

pub async fn slots_carry_over_to_the_successor(mut kit: Kit) {
    let mut held = kit.start_held("r").await;
    kit.commit(&mut held, vec![approval(0, None)]).await;
    kit.append("r", signal(Some("a"))).await.unwrap();
    kit.append("r", decision(0, 0, "anna")).await.unwrap();
    kit.read_on(&mut held).await;
    kit.store().commit(continued(&held)).await.unwrap();
    kit.reopen();
    assert!(kit.append("r", signal(Some("a"))).await.unwrap().repeated);
    assert!(kit.append("r", decision(0, 0, "anna")).await.unwrap().repeated);
    refused(kit.append("r", decision(0, 0, "ben")).await, "signal_lost");
    assert_eq!(kit.log("r").await, ["run_started"]);
    // The successor's approval at the same call id is another one.
    let mut held = kit.claim_one("v").await;
    kit.commit(&mut held, vec![approval(0, None)]).await;
    assert!(!kit.append("r", decision(1, 0, "ben")).await.unwrap().repeated);
}

pub async fn of_two_branches_before_the_first_is_carried_out_one_is_taken(mut kit: Kit) {
    let mut held = kit.start_held("r").await;
    assert!(!kit.append("r", branch("one", Some("a"))).await.unwrap().repeated);
    // Neither later inputs nor a restart hide the pending request.
    kit.append("r", signal(None)).await.unwrap();
    refused(kit.append("r", branch("two", None)).await, "branch_pending");
    kit.reopen();
    refused(kit.append("r", branch("two", Some("b"))).await, "branch_pending");
    kit.append("r", pause()).await.unwrap();
    kit.reopen();
    refused(kit.append("r", branch("two", Some("b"))).await, "branch_pending");
    kit.append("r", resume()).await.unwrap();
    assert!(kit.append("r", branch("one", Some("a"))).await.unwrap().repeated);
    refused(kit.append("r", branch("two", Some("a"))).await, "id_taken");
    let requests = kit.log("r").await.into_iter().filter(|name| *name == "branch_requested").count();
    assert_eq!(requests, 1);
    // Once it is carried out, the refused request may be sent again.
    held = kit.regain(&held).await;
    kit.store().commit(continued(&held)).await.unwrap();
    kit.reopen();
    assert!(!kit.append("r", branch("two", Some("b"))).await.unwrap().repeated);
    assert!(kit.append("r", branch("one", Some("a"))).await.unwrap().repeated);
}

pub async fn of_branches_that_come_at_the_same_time_one_is_taken(kit: Kit) {
    kit.start("r").await;
    let store = kit.store();
    let asks = |number: u32| {
        let store = store.clone();
        std::thread::spawn(move || block_on(store.append_input(key("r"), branch(&number.to_string(), None))))
    };
    let threads: Vec<_> = (0..8).map(asks).collect();
    let answers: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    assert_eq!(answers.into_iter().filter_map(Result::err).map(|error| error.code()).collect::<Vec<_>>(), ["branch_pending"; 7]);
    assert_eq!(kit.log("r").await, ["run_started", "branch_requested"]);
}

pub async fn what_answers_the_old_generation_is_refused(kit: Kit) {
    let mut held = kit.start_held("r").await;
    kit.commit(&mut held, vec![approval(0, None)]).await;
    kit.store().commit(continued(&held)).await.unwrap();
    refused(kit.append("r", decision(0, 0, "anna")).await, "run_continued");
    assert!(!kit.append("r", signal(Some("a"))).await.unwrap().repeated);
    assert_eq!(kit.log("r").await, ["run_started", "signal_received"]);
}

pub async fn nothing_open_of_the_old_generation_is_left(mut kit: Kit) {
    let mut held = kit.start_held("r").await;
    let due = kit.now().after(seconds(5));
    let open = vec![task(0, TaskOptions::default()), timer(1, due), approval(2, None), child("r/c", 3, OnParentClose::Terminate)];
    kit.commit(&mut held, open).await;
    kit.deliver().await;
    kit.store().commit(continued(&held)).await.unwrap();
    kit.reopen();
    assert_eq!(kit.claim_tasks("t", 10).await, []);
    assert_eq!(kit.waits().await, [] as [CallId; 0]);
    kit.clock.set(due);
    assert_eq!(kit.expire().await.timers_fired, 0);
    kit.deliver().await;
    assert_eq!(kit.head("r/c").await.status, Status::Terminated);
    assert_eq!(kit.log("r").await, ["run_started"]);
}

pub async fn a_result_of_the_old_generation_does_not_fit_the_successor(kit: Kit) {
    let mut held = kit.start_held("r").await;
    kit.commit(&mut held, vec![task(0, TaskOptions::default())]).await;
    let old = kit.claim_tasks("t", 1).await.remove(0);
    kit.store().commit(continued(&held)).await.unwrap();
    let mut held = kit.claim_one("v").await;
    kit.commit(&mut held, vec![task(0, TaskOptions::default())]).await;
    let new = kit.claim_tasks("u", 1).await.remove(0);
    assert_eq!((&new.id.call_id, new.claim, new.id.generation), (&old.id.call_id, old.claim, 1));
    let done = || TaskReport::Completed(json("1"));
    refused(kit.store().report_task(old.id, old.claim, done(), seconds(30)).await, "task_attempt_over");
    kit.store().report_task(new.id, new.claim, done(), seconds(30)).await.unwrap();
    assert_eq!(kit.log("r").await, ["run_started", "task_scheduled", "task_completed"]);
}

pub async fn a_child_of_the_old_generation_hears_once_of_its_end(kit: Kit) {
    let mut held = kit.start_held("r").await;
    kit.commit(&mut held, vec![child("r/c", 0, OnParentClose::Cancel)]).await;
    kit.deliver().await;
    kit.store().commit(continued(&held)).await.unwrap();
    assert_eq!(kit.deliver().await, 1);
    kit.append("r", terminate()).await.unwrap();
    assert_eq!(kit.store().outbox_messages(10).await.unwrap(), []);
    assert_eq!(kit.log("r/c").await, ["run_started", "cancel_requested"]);
}

/// A spawned child outlives a generation, answers the generation that awaits it, and ends with the run.
pub async fn a_spawned_child_outlives_a_generation_and_ends_with_the_run(mut kit: Kit) {
    let mut held = kit.start_held("r").await;
    kit.commit(&mut held, vec![spawned("r/a", 0), spawned("r/b", 1)]).await;
    kit.deliver().await;
    kit.store().commit(continued(&held)).await.unwrap();
    kit.reopen();
    assert_eq!(kit.deliver().await, 0, "no child is notified");
    // Neither is a child that starts late.
    let claimed = kit.claim("v").await;
    let mut second = HeldRun::new(claimed.iter().find(|run| run.head.key == key("r")).expect("it is pending"));
    let asked = ChildAwaited { call_id: call_id(0), child: RunId::new("r/a").unwrap() };
    kit.commit(&mut second, vec![asked.into(), spawned("r/c", 1)]).await;
    kit.store().commit(continued(&second)).await.unwrap();
    kit.deliver().await;
    assert_eq!(kit.log("r/a").await, ["run_started", "result_requested"]);
    assert_eq!(kit.log("r/c").await, ["run_started"]);
    kit.append("r/a", terminate()).await.unwrap();
    kit.deliver().await;
    assert_eq!(kit.log("r").await, ["run_started"], "the generation that awaited it is closed");
    kit.append("r", terminate()).await.unwrap();
    kit.reopen();
    assert_eq!(kit.deliver().await, 2);
    assert_eq!(kit.log("r/b").await, ["run_started", "cancel_requested"]);
    assert_eq!(kit.log("r/c").await, ["run_started", "cancel_requested"]);
}

fn spawned(id: &str, ordinal: u32) -> Event {
    match child(id, ordinal, OnParentClose::Cancel) {
        Event::ChildStarted(event) => ChildStarted { is_spawned: true, ..event }.into(),
        event => event,
    }
}

/// A handoff changes the run's kind for claims and lists; a repeat of the original start still finds the run.
pub async fn a_run_that_is_handed_over_is_of_the_other_kind(mut kit: Kit) {
    let held = kit.start_held("r").await;
    let checkpoint = Checkpoint { handoff: Some(name("other")), ..first_checkpoint() };
    let over = RunContinued { input: json("2"), checkpoint: Some(Box::new(checkpoint)) };
    kit.store().commit(held.commit(vec![over.into()])).await.unwrap();
    kit.reopen();
    let head = kit.head("r").await;
    assert_eq!((head.kind.as_str(), head.generation, head.first_kind()), ("other", 1, &new_run("r").started.kind));
    let again = kit.store().start_run(new_run("r"), None).await.unwrap();
    assert!(!again.created, "the same start is the same run");
    let query = RunQuery { kind: Some(name("other")), ..RunQuery::default() };
    assert_eq!(kit.store().list_runs(query).await.unwrap().runs.len(), 1);
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
fn branch(says: &str, id: Option<&str>) -> Input {
    let entry = OutsideEntry { role: name("user"), content: json(&format!("{says:?}")), idempotency_key: None };
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
pub async fn a_run_does_not_continue_over_what_its_worker_has_not_seen(kit: Kit) {
    let held = kit.start_held("r").await;
    let unread = kit.append("r", signal(Some("a"))).await.unwrap();
    let insisting = Commit { end_over_unread: true, ..continued(&held) };
    refused(kit.store().commit(insisting).await, "inputs_unread");
    assert_eq!(kit.log("r").await, ["run_started", "signal_received"]);
    let seeing = Commit { horizon: unread.index, ..continued(&held) };
    kit.store().commit(seeing).await.unwrap();
    assert_eq!(kit.log("r").await, ["run_started"]);
}

pub async fn a_request_to_cancel_goes_along(mut kit: Kit) {
    for reason in ["", "enough"] {
        let id = format!("r{reason}");
        let held = kit.start_held(&id).await;
        let mut commit = continued(&held);
        commit.carries.cancel_reason = Some(reason.to_owned());
        kit.store().commit(commit).await.unwrap();
        kit.reopen();
        let Event::RunStarted(started) = kit.records(&id).await.remove(0).events.remove(0) else { panic!("H2") };
        assert_eq!(started.cancel_reason.as_deref(), Some(reason));
    }
}

/// The update keeps its id: a repeat gets the reply of the generation that has it.
pub async fn an_unanswered_update_goes_along(mut kit: Kit) {
    let held = kit.start_held("r").await;
    let payload = onward_core::Payload::binary("application/octet-stream", vec![7; 100_000]);
    let update = UpdateReceived { update_id: "u".to_owned(), name: name("address"), payload };
    let unread = kit.append("r", Input::update(update.clone())).await.unwrap();
    let mut commit = Commit { horizon: unread.index, ..continued(&held) };
    commit.carries.updates = vec![update.clone()];
    kit.store().commit(commit).await.unwrap();
    kit.reopen();
    let Event::RunStarted(started) = kit.records("r").await.remove(0).events.remove(0) else { panic!("H2") };
    assert_eq!(started.updates, std::slice::from_ref(&update));
    assert!(kit.append("r", Input::update(update)).await.unwrap().repeated);
    assert_eq!(kit.log("r").await, ["run_started"]);
}

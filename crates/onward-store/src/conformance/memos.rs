//! MM1 to MM7 in a store: cells are runs that only requests, results and invalidations reach, and that lists leave out.

use onward_core::event::{
    MemoAsked, MemoInvalidated, MemoRequested, MemoReturned, MemoSettled, MemoStored, PromiseCreated, PromiseResolved,
};
use onward_core::internal::InternalRuns;
use onward_core::memo::{MemoCallType, MemoCaller, MemoCell, MemoScope, start_cell};
use onward_core::run::{Input, OutboxMessage};
use onward_core::{Event, RunKey, Status, Timestamp};

use super::harness::{Harness, call_id, completed, json, key, name, new_run, refused, seconds, signal, terminate};
use crate::{Delete, DeletedQuery, Restore, RestoreRun, Retention, RunQuery};

fn memo() -> MemoCell {
    MemoCell { scope: MemoScope::Namespace, key: "k".to_owned(), tree: None }
}

fn cell() -> RunKey {
    RunKey::new(key("r").namespace, memo().id())
}

fn caller(id: &str) -> MemoCaller {
    MemoCaller { run: key(id), generation: 0, call_id: call_id(0), incarnation: Some(7) }
}

fn asked(id: &str) -> MemoAsked {
    MemoAsked { by: caller(id), cell: memo(), ttl_ms: 60_000, waited_for: None }
}

fn settled(id: &str) -> Input {
    let computed_at = Timestamp(1_000);
    let event = MemoSettled { by: caller(id), ttl_ms: 60_000, output: Some(json("42")), computed_at };
    Input { incarnation: Some(3), ..Input::new(event) }
}

fn requested() -> Event {
    let (scope, key, call_id) = (MemoScope::Namespace, "k".to_owned(), call_id(0));
    let (of_type, name, ttl_ms) = (MemoCallType::Task, name("mail"), 60_000);
    MemoRequested { call_id, of_type, name, scope, key, ttl_ms, is_derived: false, sealed_key: None }.into()
}

/// Starts the cell for `a`, and lets `b` wait.
async fn computing(harness: &Harness) {
    harness.store().start_run(start_cell(cell(), asked("a"), 3), None).await.unwrap();
    harness.store().append_input(cell(), asked("b").into_input()).await.unwrap();
}

/// Returns the messages of the outbox, which are finished.
async fn sent(harness: &Harness) -> Vec<OutboxMessage> {
    let messages = harness.store().outbox_messages(100).await.unwrap();
    harness.store().finish_deliveries(messages.iter().map(|(id, _)| *id).collect()).await.unwrap();
    messages.into_iter().map(|(_, message)| message).collect()
}

fn names(messages: &[OutboxMessage]) -> Vec<(String, &'static str)> {
    let name = |message: &OutboxMessage| match message {
        OutboxMessage::Input { to, input } => (to.id.to_string(), input.event.name()),
        OutboxMessage::Start(run) | OutboxMessage::StartFromTemplate { run, .. } => (run.key.id.to_string(), "start"),
    };
    messages.iter().map(name).collect()
}

pub async fn a_cell_grants_its_first_request_and_answers_the_others_with_the_value(mut harness: Harness) {
    computing(&harness).await;
    harness.reopen();
    assert_eq!(names(&sent(&harness).await), [("a".to_owned(), "memo_answered")]);
    let head = harness.store().read_run(cell(), None).await.unwrap().unwrap();
    assert_eq!((head.status, head.cell.as_ref().map(|cell| cell.waiters.len())), (Status::Waiting, Some(1)));
    assert!(harness.store().append_input(cell(), asked("b").into_input()).await.unwrap().repeated, "MM3");
    refused(harness.store().append_input(cell(), settled("b")).await, "commit_malformed");
    harness.store().append_input(cell(), settled("a")).await.unwrap();
    harness.reopen();
    assert_eq!(names(&sent(&harness).await), [(cell().id.to_string(), "memo_asked")], "the waiting call asks again");
    let head = harness.store().read_run(cell(), None).await.unwrap().unwrap();
    let value = head.cell.as_ref().and_then(|cell| cell.value.clone()).unwrap();
    assert_eq!((head.status, value.from), (Status::Completed, caller("a")));
    let last = harness.store().read_log(cell(), None, onward_core::Index(head.next_index.0 - 1), 1).await.unwrap();
    assert_eq!(onward_core::view::outcome(&last[0]), Some(Ok(json("42"))));
    refused(harness.store().append_input(cell(), asked("c").into_input()).await, "run_closed");
}

pub async fn a_returned_cell_goes_to_the_next_request_and_closes_after_the_last(mut harness: Harness) {
    computing(&harness).await;
    sent(&harness).await;
    let back = |id: &str| Input::new(MemoReturned { by: caller(id) });
    harness.store().append_input(cell(), back("a")).await.unwrap();
    harness.reopen();
    assert_eq!(names(&sent(&harness).await), [("b".to_owned(), "memo_answered")]);
    refused(harness.store().append_input(cell(), back("a")).await, "commit_malformed");
    harness.store().append_input(cell(), back("b")).await.unwrap();
    harness.reopen();
    assert_eq!(harness.store().read_run(cell(), None).await.unwrap().unwrap().status, Status::Canceled);
    assert_eq!(sent(&harness).await, []);
}

pub async fn a_result_after_an_invalidation_is_not_kept(mut harness: Harness) {
    computing(&harness).await;
    sent(&harness).await;
    harness.store().append_input(cell(), Input::new(MemoInvalidated { reason: String::new() })).await.unwrap();
    harness.reopen();
    harness.store().append_input(cell(), settled("a")).await.unwrap();
    assert_eq!(names(&sent(&harness).await), [("b".to_owned(), "memo_answered")]);
    harness.store().append_input(cell(), settled("b")).await.unwrap();
    harness.reopen();
    assert_eq!(harness.store().read_run(cell(), None).await.unwrap().unwrap().status, Status::Completed);
}

pub async fn a_cell_accepts_nothing_else_and_no_other_run_is_one(mut harness: Harness) {
    computing(&harness).await;
    harness.store().start_run(new_run("r"), None).await.unwrap();
    for input in [signal(None), terminate()] {
        refused(harness.store().append_input(cell(), input).await, "commit_malformed");
    }
    refused(harness.store().append_input(key("r"), settled("a")).await, "commit_malformed");
    harness.reopen();
    assert_eq!(harness.claim("w").await.len(), 1, "no worker claims a cell");
}

pub async fn lists_leave_cells_out_and_their_deletion_is_not_recorded(mut harness: Harness) {
    computing(&harness).await;
    harness.store().start_run(new_run("r"), None).await.unwrap();
    harness.reopen();
    let ids = async |harness: &Harness, query: RunQuery| -> Vec<String> {
        harness.store().list_runs(query).await.unwrap().runs.iter().map(|head| head.key.id.to_string()).collect()
    };
    assert_eq!(ids(&harness, RunQuery::default()).await, ["r"]);
    let waiting = vec![Status::Waiting];
    let internal = Some(InternalRuns::Memos);
    assert_eq!(ids(&harness, RunQuery { statuses: waiting.clone(), ..Default::default() }).await, [""; 0]);
    assert_eq!(ids(&harness, RunQuery { internal, ..Default::default() }).await, [cell().id.to_string()]);
    assert_eq!(ids(&harness, RunQuery { internal, statuses: waiting, ..Default::default() }).await, [cell().id.to_string()]);
    let delete = || Delete::Run { key: cell(), reason: "x".to_owned() };
    refused(harness.store().delete_runs(delete()).await, "run_busy");
    harness.store().append_input(cell(), settled("a")).await.unwrap();
    refused(harness.store().delete_runs(delete()).await, "run_busy");
    sent(&harness).await;
    harness.store().delete_runs(delete()).await.unwrap();
    harness.reopen();
    assert_eq!(harness.store().list_deleted(DeletedQuery::default()).await.unwrap(), []);
    assert_eq!(harness.store().read_run(cell(), None).await.unwrap(), None);
}

pub async fn a_closed_cell_is_kept_for_the_time_of_its_value(mut harness: Harness) {
    computing(&harness).await;
    harness.store().append_input(cell(), settled("a")).await.unwrap();
    sent(&harness).await;
    harness.reopen();
    let expired = || Delete::Expired { retention: Retention::default(), limit: 10 };
    harness.pass(seconds(60));
    assert_eq!(harness.store().delete_runs(expired()).await.unwrap(), 0);
    harness.pass(seconds(5));
    assert_eq!(harness.store().delete_runs(expired()).await.unwrap(), 1);
}

/// Returns the events of the messages to the cell.
async fn to_cell(harness: &Harness) -> Vec<&'static str> {
    let messages = sent(harness).await;
    let id = cell().id.to_string();
    names(&messages).into_iter().filter(|(to, _)| *to == id).map(|(_, name)| name).collect()
}

pub async fn a_run_returns_what_it_asked_for_when_it_ends(mut harness: Harness) {
    let mut held = harness.start_held("r").await;
    harness.commit(&mut held, vec![requested()]).await;
    assert_eq!(to_cell(&harness).await, ["memo_asked"]);
    harness.reopen();
    harness.append("r", signal(None)).await.unwrap();
    let mut held = harness.regain(&held).await;
    harness.read_on(&mut held).await;
    harness.commit(&mut held, vec![completed()]).await;
    assert_eq!(to_cell(&harness).await, ["memo_returned"], "MM2");
    let late = answered();
    refused(harness.store().append_input(key("r"), late).await, "run_closed");
}

/// Returns the answer that makes the call of run `r` the owner.
fn answered() -> Input {
    let event = onward_core::event::MemoAnswered { call_id: call_id(0), cell: cell().id, hit: None, grant: Some(3) };
    Input { once: Some(event.once(0)), generation: Some(0), ..Input::new(event) }
}

pub async fn an_owner_sends_its_result_once(mut harness: Harness) {
    let mut held = harness.start_held("r").await;
    refused(harness.store().append_input(key("r"), answered()).await, "wait_not_found");
    harness.commit(&mut held, vec![requested()]).await;
    to_cell(&harness).await;
    harness.store().append_input(key("r"), answered()).await.unwrap();
    assert!(harness.store().append_input(key("r"), answered()).await.unwrap().repeated, "MM3");
    harness.reopen();
    let mut held = harness.regain(&held).await;
    harness.read_on(&mut held).await;
    let stored: Event = MemoStored { call_id: call_id(0), cell: cell().id, output: json("1") }.into();
    harness.commit(&mut held, vec![stored, completed()]).await;
    assert_eq!(to_cell(&harness).await, ["memo_settled"]);
    assert_eq!(harness.head("r").await.memos, []);
}

/// Checks MM7.
pub async fn a_restored_run_asks_again(mut harness: Harness) {
    let mut held = harness.start_held("r").await;
    harness.commit(&mut held, vec![requested()]).await;
    assert_eq!(to_cell(&harness).await, ["memo_asked"]);
    let log = harness.records("r").await;
    let restore = RestoreRun { key: key("copy"), what: Restore::Run { logs: vec![log] }, outbox: Vec::new() };
    harness.store().restore_run(restore).await.unwrap();
    harness.reopen();
    let messages = sent(&harness).await;
    let by: Vec<String> = messages
        .iter()
        .filter_map(|message| match message {
            OutboxMessage::Input { input, .. } => Some(&input.event),
            OutboxMessage::Start(_) | OutboxMessage::StartFromTemplate { .. } => None,
        })
        .filter_map(|event| if let Event::MemoAsked(asked) = event { Some(asked.by.run.id.to_string()) } else { None })
        .collect();
    assert_eq!(by, ["copy"]);
}

/// Checks PK1 and PK2: the key is requested with the promise, refused to another one while it is open, and released with its end.
pub async fn the_key_of_a_promise_belongs_to_it_until_it_ends(mut harness: Harness) {
    let memo = MemoCell::of_promise("payment/42".to_owned());
    let cell = RunKey::new(key("r").namespace, memo.id());
    let mut held = harness.start_held("r").await;
    let promise = PromiseCreated { call_id: call_id(0), name: name("paid"), deadline: None, key: Some(memo.key.clone()) };
    harness.commit(&mut held, vec![promise.into()]).await;
    harness.reopen();
    let [OutboxMessage::Input { to, input: Input { event: Event::MemoAsked(asked), .. } }] = &sent(&harness).await[..] else {
        panic!("one request");
    };
    assert_eq!((to, &asked.cell), (&cell, &memo));
    harness.store().start_run(start_cell(cell.clone(), asked.clone(), 3), None).await.unwrap();
    let [OutboxMessage::Input { input: granted, .. }] = &sent(&harness).await[..] else { panic!("one answer") };
    harness.store().append_input(key("r"), granted.clone()).await.unwrap();
    let other = MemoAsked { by: caller("b"), ..asked.clone() };
    harness.store().append_input(cell.clone(), other.clone().into_input()).await.unwrap();
    harness.reopen();
    assert_eq!(names(&sent(&harness).await), [("b".to_owned(), "promise_resolved")], "PK1");
    let resolved = PromiseResolved { call_id: call_id(0), result: Ok(json("1")), resolution_id: "x".to_owned() };
    harness.store().append_input(key("r"), Input::answer(resolved, 0, &call_id(0), "x")).await.unwrap();
    harness.reopen();
    let [OutboxMessage::Input { input: settled, .. }] = &sent(&harness).await[..] else { panic!("one release") };
    harness.store().append_input(cell.clone(), settled.clone()).await.unwrap();
    harness.reopen();
    let head = harness.store().read_run(cell.clone(), None).await.unwrap().unwrap();
    assert_eq!((head.status, head.cell.as_ref().and_then(|cell| cell.promise())), (Status::Completed, Some(&asked.by)), "PK2");
    let third = MemoAsked { by: caller("c"), ..other };
    refused(harness.store().append_input(cell, third.into_input()).await, "run_closed");
    assert_eq!(harness.head("r").await.memos, []);
}

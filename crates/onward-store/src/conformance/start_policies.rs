//! SP1 to SP8 and SS1 to SS5 in a store: the cell of a start policy is an internal run that starts what it holds once.

use onward_core::internal::InternalRuns;
use onward_core::run::{Input, NewRun, OutboxMessage};
use onward_core::start_policy::{
    Batch, Debounce, KEPT_FOR, OnConflict, PolicyAsk, PolicyCell, PolicyHead, PolicyInput, RunOptions, Singleton, StartPolicy,
};
use onward_core::start_policy_run::{EVENTS_MAX, start_cell};
use onward_core::{Event, Namespace, RunId, RunKey, Status, Timestamp};

use super::harness::{Harness, completed, json, key, name, refused, seconds, signal, terminate};
use crate::{Appended, Delete, Retention, RunQuery, StoreError};

fn singleton(on_conflict: OnConflict) -> StartPolicy {
    StartPolicy::Singleton(Singleton { key: "k".to_owned(), on_conflict })
}

fn debounce() -> StartPolicy {
    StartPolicy::Debounce(Debounce { key: "k".to_owned(), window_ms: 10_000, max_wait_ms: Some(25_000) })
}

fn batch(size_max: u32) -> StartPolicy {
    StartPolicy::Batch(Batch { key: "k".to_owned(), size_max, window_ms: 10_000 })
}

/// Returns a start of a run `order` with its id as the input.
fn ask(policy: &StartPolicy, run: &str, request_id: Option<&str>) -> PolicyAsk {
    let options = RunOptions { requester: Some("ada".to_owned()), ..RunOptions::default() };
    let (policy, run, input) = (policy.clone(), RunId::new(run).unwrap(), json(&format!("\"{run}\"")));
    PolicyAsk { policy, run, options, input, request_id: request_id.map(name) }
}

fn input(ask: PolicyAsk) -> Input {
    PolicyInput::Ask(Box::new(ask)).into()
}

fn cell(policy: &StartPolicy) -> RunKey {
    let [first, _] = PolicyCell::of(policy, &name("order"), Some("ada")).ids();
    RunKey::new(Namespace::default(), first)
}

/// Starts the cell with its first start.
async fn begin(harness: &Harness, ask: PolicyAsk) -> Appended {
    let own = PolicyCell::of(&ask.policy, &name("order"), Some("ada"));
    let started = harness.store().start_run(start_cell(cell(&ask.policy), own, ask, 3), None).await.unwrap();
    started.signal.expect("a cell begins with a start")
}

async fn append(harness: &Harness, ask: PolicyAsk) -> Result<Appended, StoreError> {
    harness.store().append_input(cell(&ask.policy), input(ask)).await
}

async fn head(harness: &Harness, policy: &StartPolicy) -> PolicyHead {
    *harness.head_of(&cell(policy)).await.start_policy.expect("it is a cell")
}

/// Returns the starts in the outbox as `run input`; they stay there.
async fn starts(harness: &Harness) -> Vec<String> {
    let text = |run: NewRun| format!("{} {}", run.key.id, String::from_utf8_lossy(run.started.input.data()));
    let messages = harness.store().outbox_messages(1_000).await.unwrap();
    let starts = messages.into_iter().filter_map(|(_, message)| match message {
        OutboxMessage::Start(run) => Some(text(run)),
        _ => None,
    });
    starts.collect()
}

/// Completes the only run that is claimable.
async fn complete(harness: &Harness) {
    let mut held = harness.claim_one("w").await;
    harness.commit(&mut held, vec![completed()]).await;
}

pub async fn a_debounced_run_starts_once_with_the_last_input(mut harness: Harness) {
    let policy = debounce();
    begin(&harness, ask(&policy, "a", None)).await;
    harness.reopen();
    assert_eq!(harness.expire().await.next_due, Some(harness.now().after(seconds(10))), "SS2");
    for run in ["b", "c"] {
        harness.pass(seconds(9));
        append(&harness, ask(&policy, run, None)).await.unwrap();
        assert_eq!((harness.expire().await.timers_fired, starts(&harness).await.len()), (0, 0), "SP3");
        harness.reopen();
    }
    // The longest wait is over before the window.
    harness.pass(seconds(6));
    assert_eq!(harness.expire().await.timers_fired, 0);
    harness.pass(seconds(1));
    assert_eq!(harness.expire().await.timers_fired, 1);
    harness.reopen();
    assert_eq!(harness.expire().await.timers_fired, 0);
    assert_eq!(starts(&harness).await, ["a \"c\""], "SP3");
    harness.deliver().await;
    assert_eq!(harness.head("a").await.requester.as_deref(), Some("ada"), "SP5");
    harness.check_run(&cell(&policy)).await;
}

pub async fn a_batch_has_each_input_once(mut harness: Harness) {
    let policy = batch(3);
    begin(&harness, ask(&policy, "a", None)).await;
    append(&harness, ask(&policy, "b", None)).await.unwrap();
    harness.reopen();
    append(&harness, ask(&policy, "c", None)).await.unwrap();
    append(&harness, ask(&policy, "d", None)).await.unwrap();
    harness.reopen();
    harness.pass(seconds(10));
    assert_eq!(harness.expire().await.timers_fired, 1);
    assert_eq!(starts(&harness).await, ["a [\"a\",\"b\",\"c\"]", "d [\"d\"]"], "SP4");
    harness.deliver().await;
    // Its runs are nothing to the cell (SS3).
    let before = harness.head_of(&cell(&policy)).await;
    let claimed = harness.claim("w").await;
    for run in &claimed {
        harness.commit(&mut super::harness::HeldRun::new(run), vec![completed()]).await;
    }
    assert_eq!((claimed.len(), harness.deliver().await), (2, 0));
    assert_eq!(harness.head_of(&cell(&policy)).await, before);
    harness.check_run(&cell(&policy)).await;
}

pub async fn a_singleton_has_one_open_run(mut harness: Harness) {
    let (skip, cancel) = (singleton(OnConflict::Skip), singleton(OnConflict::Cancel));
    begin(&harness, ask(&skip, "a", None)).await;
    append(&harness, ask(&skip, "b", None)).await.unwrap();
    harness.deliver().await;
    harness.reopen();
    append(&harness, ask(&cancel, "c", None)).await.unwrap();
    append(&harness, ask(&cancel, "d", None)).await.unwrap();
    assert_eq!(starts(&harness).await, [""; 0], "SP1");
    harness.deliver().await;
    let log = harness.log("a").await;
    assert_eq!(log.iter().filter(|event| **event == "cancel_requested").count(), 1, "{log:?}");
    harness.reopen();
    complete(&harness).await;
    harness.deliver().await;
    assert_eq!(harness.head("c").await.status, Status::Pending, "SP2");
    let records = harness.records("c").await;
    assert_eq!(records[0].started().unwrap().input, json("\"d\""), "SP2");
    assert!(harness.store().read_run(key("d"), None).await.unwrap().is_none());
    let log = harness.records(cell(&skip).id.as_str()).await;
    let is_decision = |event: &Event| matches!(event, Event::RunStarted(_) | Event::StartDecided(_));
    assert!(log.iter().flat_map(|record| &record.events).all(is_decision), "SS3");
    harness.check_run(&cell(&skip)).await;
}

pub async fn a_repeated_request_counts_once_also_after_the_end_of_its_cell(mut harness: Harness) {
    for policy in [singleton(OnConflict::Skip), debounce(), batch(2)] {
        let first = begin(&harness, ask(&policy, "a", Some("q"))).await;
        harness.reopen();
        // A repeat proposes another run, which it does not get.
        let again = append(&harness, PolicyAsk { run: RunId::new("x").unwrap(), ..ask(&policy, "a", Some("q")) }).await.unwrap();
        assert_eq!((again.repeated, again.index), (true, first.index), "{policy:?}");
        assert!(append(&harness, ask(&policy, "b", Some("q"))).await.is_err(), "another input under the id");
        harness.pass(seconds(10));
        harness.expire().await;
        harness.deliver().await;
        complete(&harness).await;
        harness.deliver().await;
        harness.pass(KEPT_FOR);
        harness.expire().await;
        harness.reopen();
        assert_eq!(harness.head_of(&cell(&policy)).await.status, Status::Completed, "SP8");
        let again = append(&harness, ask(&policy, "a", Some("q"))).await.unwrap();
        assert_eq!((again.repeated, again.index), (true, first.index));
        refused(append(&harness, ask(&policy, "b", Some("r"))).await, "run_closed");
        // It is removed a day after its end.
        let expired = || Delete::Expired { retention: Retention::default(), limit: 100 };
        harness.pass(KEPT_FOR - seconds(60));
        assert_eq!(harness.store().delete_runs(expired()).await.unwrap(), 0);
        harness.pass(seconds(60));
        assert_eq!(harness.store().delete_runs(expired()).await.unwrap(), 1);
        harness.store().delete_runs(Delete::Run { key: key("a"), reason: String::new() }).await.unwrap();
    }
    assert!(harness.store().list_deleted(Default::default()).await.unwrap().iter().all(|run| run.key == key("a")));
}

pub async fn a_busy_cell_continues_with_what_it_holds(mut harness: Harness) {
    let policy = debounce();
    begin(&harness, ask(&policy, "a", None)).await;
    let incarnation = harness.head_of(&cell(&policy)).await.incarnation;
    for number in 0..EVENTS_MAX {
        append(&harness, ask(&policy, &format!("r{number}"), None)).await.unwrap();
    }
    harness.reopen();
    let now = harness.head_of(&cell(&policy)).await;
    assert_eq!((now.generation, now.status, now.origin_incarnation()), (1, Status::Waiting, incarnation), "SS5");
    assert_eq!(now.start_policy.unwrap().held.unwrap().run.as_str(), "a", "SP2");
    harness.check_run(&cell(&policy)).await;
    harness.pass(seconds(10));
    assert_eq!(harness.expire().await.timers_fired, 1, "SS2");
    assert_eq!(starts(&harness).await, [format!("a \"r{}\"", EVENTS_MAX - 1)]);
}

pub async fn a_start_that_is_refused_writes_nothing(mut harness: Harness) {
    let policy = batch(5);
    begin(&harness, ask(&policy, "a", None)).await;
    let before = (harness.head_of(&cell(&policy)).await, harness.records(cell(&policy).id.as_str()).await);
    let wrong = StartPolicy::Batch(Batch { key: "k".to_owned(), size_max: 0, window_ms: 1 });
    let wrong = ask(&wrong, "b", Some("q"));
    refused(harness.store().append_input(cell(&policy), input(wrong)).await, "start_policy_invalid");
    refused(harness.store().append_input(cell(&policy), input(ask(&debounce(), "b", None))).await, "commit_malformed");
    harness.reopen();
    assert_eq!((harness.head_of(&cell(&policy)).await, harness.records(cell(&policy).id.as_str()).await), before);
    assert!(!append(&harness, ask(&policy, "b", Some("q"))).await.unwrap().repeated);
}

pub async fn a_cell_accepts_nothing_else_and_lists_leave_it_out(mut harness: Harness) {
    let policy = batch(5);
    begin(&harness, ask(&policy, "a", None)).await;
    harness.store().start_run(super::harness::new_run("r"), None).await.unwrap();
    refused(harness.store().append_input(cell(&policy), signal(None)).await, "commit_malformed");
    refused(harness.store().append_input(cell(&policy), terminate()).await, "commit_malformed");
    refused(harness.store().append_input(key("r"), input(ask(&policy, "b", None))).await, "commit_malformed");
    harness.reopen();
    assert_eq!(harness.claim("w").await.len(), 1, "no worker claims a cell");
    let list = async |query: RunQuery| -> Vec<String> {
        harness.store().list_runs(query).await.unwrap().runs.iter().map(|head| head.key.id.to_string()).collect()
    };
    assert_eq!(list(RunQuery::default()).await, ["r"]);
    let internal = Some(InternalRuns::StartPolicies);
    assert_eq!(list(RunQuery { internal, ..RunQuery::default() }).await, [cell(&policy).id.to_string()]);
    assert_eq!(list(RunQuery { internal: Some(InternalRuns::Schedules), ..RunQuery::default() }).await, [""; 0]);
}

pub async fn the_runs_of_a_cell_outlive_it(mut harness: Harness) {
    let policy = batch(1);
    begin(&harness, ask(&policy, "a", None)).await;
    let delete = || Delete::Run { key: cell(&policy), reason: String::new() };
    refused(harness.store().delete_runs(delete()).await, "run_busy");
    harness.pass(KEPT_FOR);
    harness.expire().await;
    refused(harness.store().delete_runs(delete()).await, "run_busy");
    harness.deliver().await;
    harness.reopen();
    assert_eq!(harness.store().delete_runs(delete()).await.unwrap(), 1);
    assert_eq!((harness.head("a").await.status, harness.expire().await.timers_fired), (Status::Pending, 0));
    // The end of a run of an earlier cell is nothing to a later one under the id.
    let policy = singleton(OnConflict::Skip);
    complete(&harness).await;
    begin(&harness, ask(&policy, "b", None)).await;
    let other = onward_core::schedule::Ended { number: 0, ending: onward_core::schedule::Ending::Completed, code: None };
    let late = Input { incarnation: Some(99), ..PolicyInput::Ended(other).into() };
    refused(harness.store().append_input(cell(&policy), late).await, "run_continued");
    assert!(head(&harness, &policy).await.open.is_some(), "SP1");
    harness.clock.set(Timestamp(0));
    append(&harness, ask(&policy, "c", None)).await.unwrap();
    assert_eq!(starts(&harness).await.len(), 1, "a clock that goes back starts nothing");
}

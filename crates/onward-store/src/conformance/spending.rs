//! LG1, R12: the cost of an attempt is recorded with its outcome, and every attempt is in the totals once.

use std::time::Duration;

use onward_core::budget::{Budget, BudgetHead};
use onward_core::event::{OnParentClose, PauseReason, RunContinued, RunFailed, RunResumed, StandaloneTask, TaskAttempted};
use onward_core::ledger::{SpendBy, SpendQuery};
use onward_core::reopen::{self, Retry};
use onward_core::run::{Input, NewRun};
use onward_core::spend::{PicoDollars, Spend, SpendTotals, Tokens};
use onward_core::task::{EffectClass, RetryPolicy, Task, TaskOptions, TaskReport};
use onward_core::{CallId, Event, Failure, Index, Namespace, Status, Timestamp};

use super::forking::{checkpoint, forked, put};
use super::harness::{
    Harness, HeldRun, call_id, child, completed, json, key, name, new_run, new_run_of, refused, seconds, settled, signal, task,
    task_of, terminate,
};
use super::restoring::fork;
use crate::{Delete, Restore, RestoreRun, StoreError};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The cost of a run, or of a row of the ledger.
#[derive(Debug, PartialEq, Eq)]
struct Cost {
    attempts: u64,
    unknown: u64,
    tokens: u64,
    pico: u64,
}

fn cost(attempts: u64, unknown: u64, tokens: u64, pico: u64) -> Cost {
    Cost { attempts, unknown, tokens, pico }
}

async fn cost_of(harness: &Harness, id: &str) -> Cost {
    let totals = harness.head(id).await.spend.map_or(SpendTotals::default(), |totals| *totals);
    let totals_of_head = cost_in(&totals);
    let rows = ledger(harness, SpendBy::Run).await;
    let row = rows.into_iter().find_map(|(name, cost)| (name == id).then_some(cost)).unwrap_or(cost(0, 0, 0, 0));
    assert_eq!(row, totals_of_head, "LG3: the ledger agrees with the head of {id}");
    totals_of_head
}

fn cost_in(totals: &SpendTotals) -> Cost {
    cost(totals.attempts, totals.unknown, totals.tokens.total(), totals.cost.0)
}

async fn query_spend(harness: &Harness, query: SpendQuery) -> Vec<(String, Cost)> {
    let rows = harness.store().spend(query).await.unwrap();
    rows.iter().map(|row| (row.name.clone(), cost_in(&row.totals))).collect()
}

async fn ledger(harness: &Harness, by: SpendBy) -> Vec<(String, Cost)> {
    query_spend(harness, SpendQuery::by(by)).await
}

fn options() -> TaskOptions {
    TaskOptions { costs: true, retry: Some(RetryPolicy::attempts(3).delay(seconds(1))), ..TaskOptions::default() }
}

/// Starts a run that waits for a task with a cost.
async fn start_waiting(harness: &Harness) -> HeldRun {
    let mut held = harness.start_held("r").await;
    harness.commit(&mut held, vec![task_of("mail", 0, options())]).await;
    held
}

/// Claims the only task; its attempt is in the log before it is executed (K7).
async fn begin(harness: &Harness) -> Task {
    let mut tasks = harness.claim_tasks("t", 10).await;
    assert_eq!(tasks.len(), 1);
    let task = tasks.remove(0);
    assert_eq!(task.ledger_name().as_deref(), Some("mail"));
    let recorded = harness.records(task.id.run.id.as_str()).await.into_iter().flat_map(|record| record.events);
    let last = recorded.filter_map(|event| if let Event::TaskAttempted(event) = event { Some(event) } else { None }).last();
    let call_id = task.id.call_id.clone();
    assert_eq!(
        last,
        Some(TaskAttempted { call_id, attempt: task.attempt, ledger_name: task.ledger_name(), began_at: task.started_at })
    );
    task
}

fn spent(task: &Task, report: TaskReport, tokens: u64) -> TaskReport {
    let tokens = Tokens { input: tokens, ..Tokens::default() };
    let line = Spend::on("small").by("acme").tokens(tokens).cost(PicoDollars(tokens.input * 10));
    report.with_spend(task.attempt_spend(vec![line]))
}

async fn report(harness: &Harness, task: &Task, task_report: TaskReport) -> Result<(), StoreError> {
    harness.store().report_task(task.id.clone(), task.claim, task_report, seconds(30)).await
}

fn done() -> TaskReport {
    TaskReport::Completed(json("1"))
}

/// Sends a late report as the runtime does: it is refused, and its cost is appended as an input.
async fn report_late_cost(harness: &Harness, task: &Task, task_report: TaskReport) -> Result<bool, StoreError> {
    refused(report(harness, task, task_report.clone()).await, "task_attempt_over");
    let ended = task_report.attempt_ended(&task.id, task.claim).expect("the report has a cost");
    harness.append(task.id.run.id.as_str(), Input::attempt_ended(ended)).await.map(|appended| appended.repeated)
}

pub async fn an_attempt_is_unknown_until_it_says_what_it_cost(mut harness: Harness) {
    start_waiting(&harness).await;
    let task = begin(&harness).await;
    assert_eq!((harness.head("r").await.status, cost_of(&harness, "r").await), (Status::Waiting, cost(1, 1, 0, 0)));
    report(&harness, &task, spent(&task, done(), 7)).await.unwrap();
    harness.reopen();
    assert_eq!(cost_of(&harness, "r").await, cost(1, 0, 7, 70));
    assert_ne!(harness.head("r").await.status, Status::Waiting);
    let log = ["run_started", "task_scheduled", "task_attempted", "task_attempt_ended", "task_completed"];
    assert_eq!(harness.log("r").await, log, "the cost is recorded before the result");
}

pub async fn a_failed_attempt_is_counted_and_wakes_no_worker(mut harness: Harness) {
    start_waiting(&harness).await;
    let task = begin(&harness).await;
    report(&harness, &task, spent(&task, TaskReport::Failed(Failure::retryable("busy")), 3)).await.unwrap();
    harness.reopen();
    assert_eq!((harness.head("r").await.status, cost_of(&harness, "r").await), (Status::Waiting, cost(1, 0, 3, 30)));
    harness.pass(seconds(1));
    let again = begin(&harness).await;
    report(&harness, &again, spent(&again, done(), 4)).await.unwrap();
    assert_eq!(cost_of(&harness, "r").await, cost(2, 0, 7, 70));
    let failed = harness.records("r").await.into_iter().flat_map(|record| record.events).find_map(|event| match event {
        Event::TaskAttemptEnded(event) => event.failure_code,
        _ => None,
    });
    assert_eq!(failed.as_deref(), Some("failed"));
}

pub async fn an_attempt_that_says_nothing_stays_unknown(harness: Harness) {
    start_waiting(&harness).await;
    let task = begin(&harness).await;
    report(&harness, &task, done()).await.unwrap();
    assert_eq!(cost_of(&harness, "r").await, cost(1, 1, 0, 0));
}

pub async fn a_task_that_only_happened_to_cost_something_is_counted_too(harness: Harness) {
    let mut held = harness.start_held("r").await;
    harness.commit(&mut held, vec![task_of("mail", 0, TaskOptions::default())]).await;
    let task = harness.claim_tasks("t", 10).await.remove(0);
    assert_eq!(task.ledger_name(), None);
    report(&harness, &task, spent(&task, done(), 2)).await.unwrap();
    assert_eq!(cost_of(&harness, "r").await, cost(1, 0, 2, 20));
}

pub async fn a_report_whose_answer_was_lost_is_counted_once(mut harness: Harness) {
    start_waiting(&harness).await;
    let task = begin(&harness).await;
    report(&harness, &task, spent(&task, done(), 7)).await.unwrap();
    harness.reopen();
    assert!(report_late_cost(&harness, &task, spent(&task, done(), 7)).await.unwrap(), "the cost is already recorded");
    assert_eq!(cost_of(&harness, "r").await, cost(1, 0, 7, 70));
}

pub async fn a_report_is_counted_once_also_when_its_run_has_gone_on(mut harness: Harness) {
    let mut held = start_waiting(&harness).await;
    let task = begin(&harness).await;
    report(&harness, &task, spent(&task, done(), 7)).await.unwrap();
    harness.read_on(&mut held).await;
    for _ in 0..3 {
        harness.store().commit(held.commit(vec![RunContinued { input: json("2"), checkpoint: None }.into()])).await.unwrap();
        harness.reopen();
        assert!(report_late_cost(&harness, &task, spent(&task, done(), 7)).await.unwrap(), "the cost is already recorded");
        assert_eq!(cost_of(&harness, "r").await, cost(1, 0, 7, 70));
        held = harness.claim_one("w").await;
    }
}

/// Returns the event names of the last record.
async fn last_events(harness: &Harness, id: &str) -> Vec<&'static str> {
    harness.records(id).await.last().unwrap().events.iter().map(Event::name).collect()
}

pub async fn an_outcome_and_what_it_has_cost_are_one_record(mut harness: Harness) {
    start_waiting(&harness).await;
    let task = begin(&harness).await;
    report(&harness, &task, spent(&task, done(), 7)).await.unwrap();
    harness.reopen();
    assert_eq!(last_events(&harness, "r").await, ["task_attempt_ended", "task_completed"]);
    assert_eq!(harness.head("r").await.next_index, Index(5), "each has an index of its own");
    harness.check_run(&key("r")).await;
}

pub async fn an_outcome_is_taken_whatever_becomes_of_its_cost(mut harness: Harness) {
    start_waiting(&harness).await;
    let task = begin(&harness).await;
    let task_report = spent(&task, done(), 7);
    let ended = task_report.attempt_ended(&task.id, task.claim).unwrap();
    harness.append("r", Input::attempt_ended(ended)).await.unwrap();
    report(&harness, &task, task_report).await.unwrap();
    harness.reopen();
    assert_eq!(last_events(&harness, "r").await, ["task_completed"], "the cost is already counted");
    assert_eq!(cost_of(&harness, "r").await, cost(1, 0, 7, 70));

    let mut held = harness.start_held("nameless").await;
    harness.commit(&mut held, vec![task_of("mail", 0, options())]).await;
    let task = begin(&harness).await;
    let nameless = done().with_spend(task.attempt_spend(vec![Spend::on("")]));
    report(&harness, &task, nameless).await.unwrap();
    harness.reopen();
    assert_eq!(last_events(&harness, "nameless").await, ["task_completed"], "a malformed cost is dropped");
    assert_eq!(cost_of(&harness, "nameless").await, cost(1, 1, 0, 0));
}

pub async fn a_task_that_failed_at_a_cost_is_tried_again_with_its_run(mut harness: Harness) {
    let mut held = start_waiting(&harness).await;
    let task = begin(&harness).await;
    let failure = Failure::fatal("no paper");
    report(&harness, &task, spent(&task, TaskReport::Failed(failure.clone()), 7)).await.unwrap();
    harness.read_on(&mut held).await;
    harness.commit(&mut held, vec![RunFailed { failure, attempts: None }.into()]).await;
    let again =
        reopen::retry(&harness.head("r").await, &harness.records("r").await, &Retry::new("again"), harness.now()).unwrap();
    let what = Restore::Retry { after: 0, log: again.records, request_id: "again".to_owned() };
    harness.store().restore_run(RestoreRun { key: key("r"), what, outbox: again.outbox }).await.unwrap();
    harness.reopen();
    let task = begin(&harness).await;
    assert_eq!((task.id.generation, task.attempt, task.counted_attempt()), (1, 2, 1));
    report(&harness, &task, spent(&task, done(), 4)).await.unwrap();
    harness.check_run(&key("r")).await;
    assert_eq!(cost_of(&harness, "r").await, cost(2, 0, 11, 110));
}

pub async fn an_attempt_whose_worker_was_lost_is_counted_beside_the_next_one(mut harness: Harness) {
    start_waiting(&harness).await;
    let lost = begin(&harness).await;
    harness.pass(seconds(30));
    harness.expire().await;
    let again = begin(&harness).await;
    assert_eq!((again.attempt, cost_of(&harness, "r").await), (lost.attempt + 1, cost(2, 2, 0, 0)));
    report(&harness, &again, spent(&again, done(), 5)).await.unwrap();
    assert_eq!(cost_of(&harness, "r").await, cost(2, 1, 5, 50), "the cost of the first attempt is unknown");
    for is_known in [false, true] {
        assert_eq!(report_late_cost(&harness, &lost, spent(&lost, done(), 6)).await.unwrap(), is_known);
        assert_eq!(cost_of(&harness, "r").await, cost(2, 0, 11, 110));
        harness.reopen();
    }
}

pub async fn what_comes_late_is_counted_in_the_generation_that_there_is(mut harness: Harness) {
    let mut held = start_waiting(&harness).await;
    let task = begin(&harness).await;
    held.horizon = held.horizon.plus(1);
    harness.store().commit(held.commit(vec![RunContinued { input: json("2"), checkpoint: None }.into()])).await.unwrap();
    assert_eq!(cost_of(&harness, "r").await, cost(1, 1, 0, 0), "it is carried over (R12)");
    assert!(!report_late_cost(&harness, &task, spent(&task, TaskReport::Interrupted, 9)).await.unwrap());
    harness.reopen();
    assert!(report_late_cost(&harness, &task, spent(&task, TaskReport::Interrupted, 9)).await.unwrap());
    assert_eq!((harness.head("r").await.generation, cost_of(&harness, "r").await), (1, cost(1, 0, 9, 90)));
}

pub async fn a_closed_run_is_told_nothing_more(harness: Harness) {
    start_waiting(&harness).await;
    let task = begin(&harness).await;
    harness.append("r", terminate()).await.unwrap();
    refused(report_late_cost(&harness, &task, spent(&task, done(), 9)).await, "run_closed");
    assert_eq!(cost_of(&harness, "r").await, cost(1, 1, 0, 0));
}

pub async fn a_standalone_task_has_its_cost_with_its_end(mut harness: Harness) {
    let mut run = new_run_of("task:mail", "t");
    run.started.task = Some(StandaloneTask { kind: name("mail"), options: options() });
    harness.store().start_run(run, None).await.unwrap();
    let task = begin(&harness).await;
    report(&harness, &task, spent(&task, TaskReport::Failed(Failure::retryable("busy")), 3)).await.unwrap();
    harness.pass(seconds(1));
    let again = begin(&harness).await;
    report(&harness, &again, spent(&again, done(), 4)).await.unwrap();
    harness.reopen();
    assert_eq!((harness.head("t").await.status, cost_of(&harness, "t").await), (Status::Completed, cost(2, 0, 7, 70)));
}

/// Runs a task with a cost to completion and completes its run.
async fn spender(harness: &Harness, id: &str, tokens: u64) {
    let mut held = harness.start_held(id).await;
    harness.commit(&mut held, vec![task_of("mail", 0, options())]).await;
    let task = begin(harness).await;
    report(harness, &task, spent(&task, done(), tokens)).await.unwrap();
    harness.read_on(&mut held).await;
    harness.commit(&mut held, vec![completed()]).await;
}

pub async fn the_ledger_is_asked_by_model_day_run_and_tree(mut harness: Harness) {
    spender(&harness, "a", 1).await;
    spender(&harness, "a/0", 2).await;
    harness.pass(DAY);
    spender(&harness, "b", 4).await;
    let mut held = harness.start_held("c").await;
    harness.commit(&mut held, vec![task_of("mail", 0, options())]).await;
    begin(&harness).await;
    harness.reopen();
    let row = |name: &str, attempts, unknown, tokens| (name.to_owned(), cost(attempts, unknown, tokens, tokens * 10));
    assert_eq!(ledger(&harness, SpendBy::Model).await, [row("small", 3, 0, 7), row("mail", 1, 1, 0)], "the model is unknown");
    assert_eq!(
        ledger(&harness, SpendBy::Run).await,
        [row("b", 1, 0, 4), row("a/0", 1, 0, 2), row("a", 1, 0, 1), row("c", 1, 1, 0)]
    );
    assert_eq!(ledger(&harness, SpendBy::Tree).await, [row("b", 1, 0, 4), row("a", 2, 0, 3), row("c", 1, 1, 0)]);
    let days = ledger(&harness, SpendBy::Day).await;
    assert_eq!(days.iter().map(|(_, cost)| cost.tokens).collect::<Vec<_>>(), [4, 3], "the newest first");
    let query = || SpendQuery::by(SpendBy::Run);
    assert_eq!(query_spend(&harness, SpendQuery { limit: 1, ..query() }).await, [row("b", 1, 0, 4)]);
    let tree = SpendQuery { tree: Some(key("a/7").id), ..query() };
    assert_eq!(query_spend(&harness, tree.clone()).await, [row("a/0", 1, 0, 2), row("a", 1, 0, 1)]);
    assert_eq!(query_spend(&harness, SpendQuery { from: Some(harness.now()), ..tree }).await, []);
    assert_eq!(query_spend(&harness, SpendQuery { from: Some(harness.now()), ..query() }).await.len(), 2);
    let midnight = Timestamp(harness.now().0 - harness.now().0 % DAY.as_millis() as u64);
    assert_eq!(query_spend(&harness, SpendQuery { until: Some(midnight), ..query() }).await.len(), 2);
    let elsewhere = Namespace::new("elsewhere").unwrap();
    assert_eq!(query_spend(&harness, SpendQuery { namespace: elsewhere, ..query() }).await, []);
}

/// LG4: deletion does not change the ledger.
pub async fn what_a_deleted_run_has_cost_stays_in_the_ledger(mut harness: Harness) {
    spender(&harness, "r", 3).await;
    let logs = vec![harness.records("r").await];
    let delete = || Delete::Run { key: key("r"), reason: String::new() };
    harness.store().delete_runs(delete()).await.unwrap();
    harness.reopen();
    let row = |tokens| vec![("r".to_owned(), cost(1, 0, tokens, tokens * 10))];
    assert_eq!(ledger(&harness, SpendBy::Run).await, row(3));
    // Restoring the same run adds no cost.
    let what = Restore::Run { logs };
    harness.store().restore_run(RestoreRun { key: key("r"), what, outbox: Vec::new() }).await.unwrap();
    assert_eq!(cost_of(&harness, "r").await, cost(1, 0, 3, 30));
    harness.store().delete_runs(delete()).await.unwrap();
    // Another run with the same id does.
    let mut namesake = new_run("r");
    namesake.started.seed += 1;
    harness.store().start_run(namesake, None).await.unwrap();
    let mut held = harness.claim_one("w").await;
    harness.commit(&mut held, vec![task_of("mail", 0, options())]).await;
    let task = begin(&harness).await;
    report(&harness, &task, spent(&task, TaskReport::Interrupted, 4)).await.unwrap();
    harness.reopen();
    assert_eq!(ledger(&harness, SpendBy::Run).await, [("r".to_owned(), cost(2, 0, 7, 70))]);
    assert_eq!(harness.head("r").await.spend.unwrap().tokens.total(), 4);
}

/// LG3 for a restored run of several generations, where the cost of an attempt is recorded in a later generation than its start.
pub async fn a_restored_run_has_the_rows_that_its_logs_say(mut harness: Harness) {
    let mut held = start_waiting(&harness).await;
    let task = begin(&harness).await;
    held.horizon = held.horizon.plus(1);
    harness.store().commit(held.commit(vec![RunContinued { input: json("2"), checkpoint: None }.into()])).await.unwrap();
    assert!(!report_late_cost(&harness, &task, spent(&task, TaskReport::Interrupted, 9)).await.unwrap());
    let first = harness.store().read_log(key("r"), Some(0), Index(0), usize::MAX).await.unwrap();
    let logs = vec![first, harness.records("r").await];
    let what = Restore::Run { logs };
    harness.store().restore_run(RestoreRun { key: key("copy"), what, outbox: Vec::new() }).await.unwrap();
    harness.reopen();
    for id in ["r", "copy"] {
        assert_eq!(cost_of(&harness, id).await, cost(1, 0, 9, 90));
    }
    // Generations share their ledger rows: costs of the next one are added (LG3).
    let claimed = harness.claim("v").await.into_iter().find(|run| run.head.key == key("copy")).expect("it is not leased");
    let mut held = HeldRun::new(&claimed);
    harness.commit(&mut held, vec![task_of("mail", 0, options())]).await;
    let task = begin(&harness).await;
    report(&harness, &task, spent(&task, done(), 4)).await.unwrap();
    harness.reopen();
    assert_eq!(cost_of(&harness, "copy").await, cost(2, 0, 13, 130));
    assert_eq!(cost_of(&harness, "r").await, cost(1, 0, 9, 90));
}

/// The clock does not move, so the first attempt of the fork's task begins at the same time as the original's.
pub async fn an_attempt_of_a_fork_is_not_taken_for_one_of_the_original(mut harness: Harness) {
    let mut held = harness.start_held("r").await;
    harness.commit(&mut held, vec![task_of("mail", 0, options())]).await;
    let task = begin(&harness).await;
    report(&harness, &task, spent(&task, TaskReport::Failed(Failure::retryable("busy")), 7)).await.unwrap();
    harness.read_on(&mut held).await;
    harness.commit(&mut held, vec![settled()]).await;
    let log = harness.records("r").await;
    let last = log.last().unwrap().last_index();
    let forked = reopen::fork(&harness.head("r").await, Vec::new(), &log, &fork("f", last.0, false), harness.now()).unwrap();
    let what = Restore::Run { logs: forked.logs };
    harness.store().restore_run(RestoreRun { key: key("f"), what, outbox: forked.outbox }).await.unwrap();
    harness.reopen();
    assert_eq!(cost_of(&harness, "f").await, cost(0, 0, 0, 0), "a copy counts nothing (R12)");
    let own = begin(&harness).await;
    assert_eq!((&own.id.run, own.attempt, own.started_at), (&key("f"), 2, task.started_at));
    report(&harness, &own, spent(&own, done(), 4)).await.unwrap();
    assert_eq!(cost_of(&harness, "f").await, cost(1, 0, 4, 40));
    assert_eq!(cost_of(&harness, "r").await, cost(1, 0, 7, 70));
}

/// Z6, BG6: costs before the fork point are in the original's rows, and they count against the fork's budget.
pub async fn what_was_spent_in_the_turns_before_a_fork_is_the_originals(mut harness: Harness) {
    let mut held = harness.start_held_as(budgeted("r", Budget::default().tokens(100).turns(9))).await;
    for (turn, tokens) in [(0, 7), (1, 8), (2, 9)] {
        harness.commit(&mut held, vec![task_of("mail", 0, options())]).await;
        let task = begin(&harness).await;
        report(&harness, &task, spent(&task, done(), tokens)).await.unwrap();
        harness.read_on(&mut held).await;
        if turn < 2 {
            harness.store().commit(held.commit(vec![checkpoint(json("1"))])).await.unwrap();
            held = harness.claim_one("w").await;
        }
    }
    harness.commit(&mut held, vec![settled()]).await;
    let wanted = forked(&harness, "r", "r/f").await;
    put(&harness, "r/f", wanted).await;
    harness.reopen();
    assert_eq!(cost_of(&harness, "r/f").await, cost(0, 0, 0, 0));
    assert_eq!(cost_of(&harness, "r").await, cost(3, 0, 24, 240));
    assert_eq!((left(&harness, "r/f").await, left(&harness, "r").await.tokens), (left(&harness, "r").await, Some(76)));
    let claimed = harness.claim("v").await.into_iter().find(|run| run.head.key == key("r/f")).expect("it is not leased");
    let mut held = HeldRun::new(&claimed);
    held.horizon = Index(claimed.head.next_index.0 - 1);
    harness.store().commit(held.commit(vec![checkpoint(json("1"))])).await.unwrap();
    held = harness.claim_one("v").await;
    harness.commit(&mut held, vec![task_of("mail", 0, options())]).await;
    let task = begin(&harness).await;
    report(&harness, &task, spent(&task, done(), 4)).await.unwrap();
    harness.reopen();
    assert_eq!(cost_of(&harness, "r/f").await, cost(1, 0, 4, 40));
    assert_eq!(ledger(&harness, SpendBy::Tree).await, [("r".to_owned(), cost(4, 0, 28, 280))], "each attempt once");
    assert_eq!(left(&harness, "r/f").await.tokens, Some(72));
}

fn budgeted(id: &str, budget: Budget) -> NewRun {
    let mut run = new_run(id);
    run.started.budget = Some(Box::new(BudgetHead::of(budget)));
    run
}

async fn left(harness: &Harness, id: &str) -> Budget {
    let head = harness.head(id).await;
    head.budget.unwrap().left(head.spend.as_deref(), harness.now())
}

/// BG1, R13: claiming a task of a run without budget pauses the run instead, in the same write.
pub async fn a_run_that_has_spent_its_budget_begins_no_attempt_until_it_may_spend_more(mut harness: Harness) {
    let mut held = harness.start_held_as(budgeted("r", Budget::default().tokens(10).seconds(3_600))).await;
    let tasks = (0..3).map(|ordinal| task_of("mail", ordinal, options())).collect();
    harness.commit(&mut held, tasks).await;
    // Attempts that are running when the budget runs out are the most by which it is exceeded.
    for task in harness.claim_tasks("t", 2).await {
        report(&harness, &task, spent(&task, done(), 7)).await.unwrap();
    }
    harness.reopen();
    assert!(harness.claim_tasks("t", 10).await.is_empty());
    harness.reopen();
    assert_eq!((left(&harness, "r").await.tokens, cost_of(&harness, "r").await.attempts), (Some(0), 2));
    let message = "the run has exhausted its tokens budget".to_owned();
    assert_eq!(paused_because(&harness, "r").await, [(PauseReason::BudgetExhausted, message)]);
    assert!(harness.claim_tasks("t", 10).await.is_empty(), "K4");
    assert_eq!(paused_because(&harness, "r").await.len(), 1);
    let budget = Some(Budget::default().tokens(20));
    harness.append("r", Input::new(RunResumed { budget })).await.unwrap();
    harness.reopen();
    assert_eq!(
        (left(&harness, "r").await.tokens, left(&harness, "r").await.seconds),
        (Some(6), Some(3_600)),
        "the other limit stays"
    );
    assert_eq!(harness.claim_tasks("t", 10).await.len(), 1);
    harness.log("r").await;
}

/// L16: a raised budget changes no status and is visible to every reader.
pub async fn a_budget_is_changed_also_where_nothing_is_paused(harness: Harness) {
    harness.store().start_run(budgeted("r", Budget::default().tokens(5)), None).await.unwrap();
    harness.append("r", Input::new(RunResumed { budget: Some(Budget::default().tokens(5_000)) })).await.unwrap();
    assert_eq!(harness.head("r").await.budget.unwrap().limit, Budget::default().tokens(5_000));
    harness.log("r").await;
}

async fn paused_because(harness: &Harness, id: &str) -> Vec<(PauseReason, String)> {
    let events = harness.records(id).await.into_iter().flat_map(|record| record.events);
    let paused = events.filter_map(|event| if let Event::RunPaused(event) = event { Some(event) } else { None });
    paused.map(|event| (event.reason, event.message)).collect()
}

/// Tasks without a cost are handed out until the run is paused; then all are frozen.
pub async fn a_run_whose_time_is_over_begins_no_attempt(mut harness: Harness) {
    let free = TaskOptions::default;
    let mut held = harness.start_held_as(budgeted("r", Budget::default().seconds(60))).await;
    let mut other = harness.start_held("other").await;
    harness.commit(&mut held, vec![task_of("mail", 0, free()), task_of("mail", 1, options()), task_of("mail", 2, free())]).await;
    harness.commit(&mut other, vec![task_of("mail", 0, options())]).await;
    harness.pass(seconds(60));
    let tasks = harness.claim_tasks("t", 10).await;
    let claimed: Vec<_> = tasks.iter().map(|task| (task.id.run.id.as_str(), task.id.call_id.clone())).collect();
    assert_eq!(claimed, [("r", call_id(0)), ("other", call_id(0))]);
    harness.reopen();
    assert_eq!((harness.head("r").await.status, paused_because(&harness, "r").await.len()), (Status::Paused, 1));
    report(&harness, &tasks[0], done()).await.unwrap(); // it is running
    assert!(harness.claim_tasks("t", 10).await.is_empty());
    let budget = Some(Budget::default().seconds(3_600));
    harness.append("r", Input::new(RunResumed { budget })).await.unwrap();
    assert_eq!(harness.claim_tasks("t", 10).await.len(), 2);
    harness.log("r").await;
}

/// BG2.
pub async fn what_a_child_may_spend_is_its_parents_no_more_until_it_has_ended(mut harness: Harness) {
    let mut held = harness.start_held_as(budgeted("p", Budget::default().tokens(100))).await;
    let child_with_budget = |id: &str, ordinal, tokens: Option<u64>| match child(id, ordinal, OnParentClose::Cancel) {
        Event::ChildStarted(mut event) => {
            event.budget = tokens.map(|tokens| Budget::default().tokens(tokens));
            Event::ChildStarted(event)
        }
        other => other,
    };
    // In order: the second gets half of what the first leaves, the third no more than there is, the fourth nothing.
    let children = vec![
        child_with_budget("p/0", 0, Some(60)),
        child_with_budget("p/1", 1, None),
        child_with_budget("p/2", 2, Some(60)),
        child_with_budget("p/3", 3, None),
    ];
    harness.commit(&mut held, children).await;
    harness.deliver().await;
    harness.reopen();
    for (id, tokens) in [("p/0", 60), ("p/1", 20), ("p/2", 20), ("p/3", 0)] {
        assert_eq!(left(&harness, id).await.tokens, Some(tokens), "{id}");
    }
    assert_eq!(left(&harness, "p").await.tokens, Some(0));
    let claimed = harness.claim("w").await;
    let mut first = HeldRun::new(claimed.iter().find(|run| run.head.key == key("p/0")).unwrap());
    harness.commit(&mut first, vec![task_of("mail", 0, options())]).await;
    let task = begin(&harness).await;
    report(&harness, &task, spent(&task, done(), 25)).await.unwrap();
    harness.read_on(&mut first).await;
    harness.commit(&mut first, vec![completed()]).await;
    assert_eq!(left(&harness, "p").await.tokens, Some(0), "the result is not delivered yet");
    harness.deliver().await;
    harness.reopen();
    assert_eq!(left(&harness, "p").await.tokens, Some(35));
    harness.log("p").await;
}

/// BG3: the limits and what was spent are carried over.
pub async fn a_budget_goes_along_when_a_run_continues_as_new(mut harness: Harness) {
    let mut held = harness.start_held_as(budgeted("r", Budget::default().tokens(100).turns(2))).await;
    harness.commit(&mut held, vec![task_of("mail", 0, options())]).await;
    let task = begin(&harness).await;
    report(&harness, &task, spent(&task, done(), 30)).await.unwrap();
    harness.read_on(&mut held).await;
    harness.store().commit(held.commit(vec![RunContinued { input: json("2"), checkpoint: None }.into()])).await.unwrap();
    harness.reopen();
    assert_eq!((harness.head("r").await.generation, left(&harness, "r").await.tokens), (1, Some(70)));
    harness.log("r").await;
}

/// A commit waits even if the worker has not read a quiet input (R3), but not if another input behind it is unread.
pub async fn quiet_inputs_keep_no_run_from_waiting(mut harness: Harness) {
    let mut held = start_waiting(&harness).await;
    let task = begin(&harness).await;
    harness.commit(&mut held, vec![task_of("mail", 1, options())]).await;
    assert_eq!(harness.head("r").await.status, Status::Waiting, "only the start of an attempt is unread");
    report(&harness, &task, spent(&task, TaskReport::Interrupted, 1)).await.unwrap();
    harness.append("r", signal(None)).await.unwrap();
    harness.reopen();
    let mut again = harness.regain(&held).await;
    again.horizon = held.horizon;
    harness.commit(&mut again, vec![task_of("mail", 2, options())]).await;
    let head = harness.head("r").await;
    assert!(!matches!(head.status, Status::Waiting), "the signal is unread");
}

/// K7: started attempts are recorded in the log, except for tasks that may be repeated and cost nothing.
pub async fn an_attempt_is_recorded_when_it_is_handed_out(mut harness: Harness) {
    let mut held = harness.start_held("r").await;
    let class = |class| TaskOptions { class: Some(class), ..TaskOptions::default() };
    let tasks = vec![task(0, class(EffectClass::AtMostOnce)), task(1, TaskOptions::default()), task(2, class(EffectClass::Pure))];
    harness.commit(&mut held, tasks).await;
    assert_eq!(harness.claim_tasks("t", 10).await.len(), 3);
    harness.reopen();
    let events = harness.records("r").await.into_iter().flat_map(|record| record.events);
    let begun: Vec<CallId> =
        events.filter_map(|event| if let Event::TaskAttempted(event) = event { Some(event.call_id) } else { None }).collect();
    assert_eq!(begun, [call_id(0), call_id(2)]);
    assert_eq!(cost_of(&harness, "r").await, cost(0, 0, 0, 0));
}

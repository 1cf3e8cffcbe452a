//! LG1, R12: what attempts cost is recorded with their outcome, and every attempt is in the totals once.

use onward_core::event::{RunContinued, StandaloneTask, TaskAttempted};
use onward_core::run::Input;
use onward_core::spend::{PicoDollars, Spend, SpendTotals, Tokens};
use onward_core::task::{EffectClass, RetryPolicy, Task, TaskOptions, TaskReport};
use onward_core::{Event, Failure, Place, Status};

use super::kit::{Held, Kit, json, name, new_run_of, place, refused, seconds, signal, task, task_of, terminate};
use crate::StoreError;

/// What a run has cost.
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

async fn cost_of(kit: &Kit, id: &str) -> Cost {
    let totals = kit.head(id).await.spend.map_or(SpendTotals::default(), |totals| *totals);
    cost(totals.attempts, totals.unknown, totals.tokens.total(), totals.cost.0)
}

fn options() -> TaskOptions {
    TaskOptions { costs: true, retry: RetryPolicy::attempts(3).delay(seconds(1)), ..TaskOptions::default() }
}

/// A run that waits for something that costs.
async fn asking(kit: &Kit) -> Held {
    let mut held = kit.start_held("r").await;
    kit.commit(&mut held, vec![task_of("mail", 0, options())]).await;
    held
}

/// Takes the only task; the attempt stands in the log before anybody works on it (K7).
async fn begin(kit: &Kit) -> Task {
    let mut tasks = kit.claim_tasks("t", 10).await;
    assert_eq!(tasks.len(), 1);
    let task = tasks.remove(0);
    assert_eq!(task.stands_as().as_deref(), Some("mail"));
    let recorded = kit.records(task.id.run.id.as_str()).await.into_iter().flat_map(|record| record.events);
    let last = recorded.filter_map(|event| if let Event::TaskAttempted(event) = event { Some(event) } else { None }).last();
    let place = task.id.place.clone();
    assert_eq!(
        last,
        Some(TaskAttempted { place, attempt: task.attempt, stands_as: task.stands_as(), began_at: task.started_at })
    );
    task
}

fn spent(task: &Task, report: TaskReport, tokens: u64) -> TaskReport {
    let tokens = Tokens { input: tokens, ..Tokens::default() };
    let line = Spend::on("small").by("acme").tokens(tokens).cost(PicoDollars(tokens.input * 10));
    report.with_spend(task.attempt_spend(vec![line]))
}

async fn report(kit: &Kit, task: &Task, said: TaskReport) -> Result<(), StoreError> {
    kit.store().report_task(task.id.clone(), task.claim, said, seconds(30)).await
}

fn done() -> TaskReport {
    TaskReport::Completed(json("1"))
}

/// What a runtime does with a report that came too late.
async fn tell_late(kit: &Kit, task: &Task, said: TaskReport) -> Result<bool, StoreError> {
    refused(report(kit, task, said.clone()).await, "task_attempt_over");
    let ended = said.attempt_ended(&task.id, task.claim).expect("it says what it cost");
    kit.append(task.id.run.id.as_str(), Input::attempt_ended(ended)).await.map(|appended| appended.repeated)
}

pub async fn an_attempt_is_unknown_until_it_says_what_it_cost(mut kit: Kit) {
    asking(&kit).await;
    let task = begin(&kit).await;
    assert_eq!((kit.head("r").await.status, cost_of(&kit, "r").await), (Status::Waiting, cost(1, 1, 0, 0)));
    report(&kit, &task, spent(&task, done(), 7)).await.unwrap();
    kit.reopen();
    assert_eq!(cost_of(&kit, "r").await, cost(1, 0, 7, 70));
    assert_ne!(kit.head("r").await.status, Status::Waiting);
    let log = ["run_started", "task_scheduled", "task_attempted", "task_attempt_ended", "task_completed"];
    assert_eq!(kit.log("r").await, log, "the code that sees the result has seen what it cost");
}

pub async fn a_failed_attempt_is_counted_and_wakes_nobody(mut kit: Kit) {
    asking(&kit).await;
    let task = begin(&kit).await;
    report(&kit, &task, spent(&task, TaskReport::Failed(Failure::retryable("busy")), 3)).await.unwrap();
    kit.reopen();
    assert_eq!((kit.head("r").await.status, cost_of(&kit, "r").await), (Status::Waiting, cost(1, 0, 3, 30)));
    kit.pass(seconds(1));
    let again = begin(&kit).await;
    report(&kit, &again, spent(&again, done(), 4)).await.unwrap();
    assert_eq!(cost_of(&kit, "r").await, cost(2, 0, 7, 70));
    let failed = kit.records("r").await.into_iter().flat_map(|record| record.events).find_map(|event| match event {
        Event::TaskAttemptEnded(event) => event.failure_code,
        _ => None,
    });
    assert_eq!(failed.as_deref(), Some("failed"));
}

pub async fn an_attempt_that_says_nothing_stays_unknown(kit: Kit) {
    asking(&kit).await;
    let task = begin(&kit).await;
    report(&kit, &task, done()).await.unwrap();
    assert_eq!(cost_of(&kit, "r").await, cost(1, 1, 0, 0));
}

pub async fn a_task_that_only_happened_to_cost_something_is_counted_too(kit: Kit) {
    let mut held = kit.start_held("r").await;
    kit.commit(&mut held, vec![task_of("mail", 0, TaskOptions::default())]).await;
    let task = kit.claim_tasks("t", 10).await.remove(0);
    assert_eq!(task.stands_as(), None);
    report(&kit, &task, spent(&task, done(), 2)).await.unwrap();
    assert_eq!(cost_of(&kit, "r").await, cost(1, 0, 2, 20));
}

pub async fn a_report_whose_answer_was_lost_is_counted_once(mut kit: Kit) {
    asking(&kit).await;
    let task = begin(&kit).await;
    report(&kit, &task, spent(&task, done(), 7)).await.unwrap();
    kit.reopen();
    assert!(tell_late(&kit, &task, spent(&task, done(), 7)).await.unwrap(), "it is known already");
    assert_eq!(cost_of(&kit, "r").await, cost(1, 0, 7, 70));
}

pub async fn an_attempt_whose_worker_was_lost_is_counted_beside_the_next_one(mut kit: Kit) {
    asking(&kit).await;
    let lost = begin(&kit).await;
    kit.pass(seconds(30));
    kit.expire().await;
    let again = begin(&kit).await;
    assert_eq!((again.attempt, cost_of(&kit, "r").await), (lost.attempt, cost(2, 2, 0, 0)));
    report(&kit, &again, spent(&again, done(), 5)).await.unwrap();
    assert_eq!(cost_of(&kit, "r").await, cost(2, 1, 5, 50), "nobody knows what the first one cost");
    for is_known in [false, true] {
        assert_eq!(tell_late(&kit, &lost, spent(&lost, done(), 6)).await.unwrap(), is_known);
        assert_eq!(cost_of(&kit, "r").await, cost(2, 0, 11, 110));
        kit.reopen();
    }
}

pub async fn what_comes_late_is_counted_in_the_generation_that_there_is(mut kit: Kit) {
    let mut held = asking(&kit).await;
    let task = begin(&kit).await;
    held.horizon = held.horizon.plus(1);
    kit.store().commit(held.commit(vec![RunContinued { input: json("2"), checkpoint: None }.into()])).await.unwrap();
    assert_eq!(cost_of(&kit, "r").await, cost(1, 1, 0, 0), "it goes along (R12)");
    assert!(!tell_late(&kit, &task, spent(&task, TaskReport::Released, 9)).await.unwrap());
    kit.reopen();
    assert!(tell_late(&kit, &task, spent(&task, TaskReport::Released, 9)).await.unwrap());
    assert_eq!((kit.head("r").await.generation, cost_of(&kit, "r").await), (1, cost(1, 0, 9, 90)));
}

pub async fn a_closed_run_is_told_nothing_more(kit: Kit) {
    asking(&kit).await;
    let task = begin(&kit).await;
    kit.append("r", terminate()).await.unwrap();
    refused(tell_late(&kit, &task, spent(&task, done(), 9)).await, "run_closed");
    assert_eq!(cost_of(&kit, "r").await, cost(1, 1, 0, 0));
}

pub async fn a_standalone_task_has_its_cost_with_its_end(mut kit: Kit) {
    let mut run = new_run_of("task:mail", "t");
    run.started.task = Some(StandaloneTask { kind: name("mail"), options: options() });
    kit.store().start_run(run, None).await.unwrap();
    let task = begin(&kit).await;
    report(&kit, &task, spent(&task, TaskReport::Failed(Failure::retryable("busy")), 3)).await.unwrap();
    kit.pass(seconds(1));
    let again = begin(&kit).await;
    report(&kit, &again, spent(&again, done(), 4)).await.unwrap();
    kit.reopen();
    assert_eq!((kit.head("t").await.status, cost_of(&kit, "t").await), (Status::Completed, cost(2, 0, 7, 70)));
}

/// A run whose worker has not read a quiet input waits all the same (R3); one that has not read another input behind it does not.
pub async fn quiet_inputs_keep_no_run_from_waiting(mut kit: Kit) {
    let mut held = asking(&kit).await;
    let task = begin(&kit).await;
    kit.commit(&mut held, vec![task_of("mail", 1, options())]).await;
    assert_eq!(kit.head("r").await.status, Status::Waiting, "only the beginning of an attempt is unread");
    report(&kit, &task, spent(&task, TaskReport::Released, 1)).await.unwrap();
    kit.append("r", signal(None)).await.unwrap();
    kit.reopen();
    let mut again = kit.regain(&held).await;
    again.horizon = held.horizon;
    kit.commit(&mut again, vec![task_of("mail", 2, options())]).await;
    let head = kit.head("r").await;
    assert!(!matches!(head.status, Status::Waiting), "the signal is unread");
}

/// K7: what has begun is known to whoever reads the log; a task that may be done twice and costs nothing is not written about.
pub async fn an_attempt_is_recorded_by_whoever_hands_it_out(mut kit: Kit) {
    let mut held = kit.start_held("r").await;
    let class = |class| TaskOptions { class: Some(class), ..TaskOptions::default() };
    let tasks = vec![task(0, class(EffectClass::AtMostOnce)), task(1, TaskOptions::default()), task(2, class(EffectClass::Pure))];
    kit.commit(&mut held, tasks).await;
    assert_eq!(kit.claim_tasks("t", 10).await.len(), 3);
    kit.reopen();
    let events = kit.records("r").await.into_iter().flat_map(|record| record.events);
    let begun: Vec<Place> =
        events.filter_map(|event| if let Event::TaskAttempted(event) = event { Some(event.place) } else { None }).collect();
    assert_eq!(begun, [place(0), place(2)]);
    assert_eq!(cost_of(&kit, "r").await, cost(0, 0, 0, 0));
}

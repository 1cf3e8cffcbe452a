//! Tests of the parent module.

use super::*;
use crate::log::event::*;
use crate::run::view::tests::{Script, at, awaited, completed, name, script, signal, task};
use crate::task::TaskId;
use crate::{AttributeValue, Event, Failure, Payload, RunId};

/// The time of the second record, in which a script makes its calls.
const T: &str = "1970-01-01T00:00:01.001Z";

fn said(script: &Script, blocked_on: &[Blocker]) -> String {
    doing(&script.view(), blocked_on, &[]).sentence
}

fn blocker(script: &Script, call_id: Option<u32>, why: BlockReason) -> Blocker {
    let run = script.head.key.clone();
    let task = call_id.map(|call_id| TaskId { run, generation: 0, call_id: at(call_id), incarnation: None });
    let until = matches!(why, BlockReason::RateLimited | BlockReason::Retries).then_some(Timestamp(60_000));
    let failure_code = (why == BlockReason::Retries).then(|| "busy".to_owned());
    Blocker { task, kind: name("order"), why, since: None, until, lost_workers: 5, failure_code }
}

fn of_kind(kind: &str) -> Event {
    let Event::TaskScheduled(scheduled) = task(0) else { unreachable!("it is a task") };
    TaskScheduled { kind: name(kind), ..scheduled }.into()
}

#[test]
fn a_pending_run_waits_for_a_worker_with_its_kind() {
    let mut run = script(vec![]);
    assert_eq!(said(&run, &[]), "Waits for a worker with the kind order since 1970-01-01T00:00:01.000Z");
    let none = [blocker(&run, None, BlockReason::NoWorker)];
    assert_eq!(said(&run, &none), "Waits for a worker with the kind order since 1970-01-01T00:00:01.000Z; none is connected");
    run.head.version = Some(name("v2"));
    let busy = [blocker(&run, None, BlockReason::Queued)];
    assert_eq!(said(&run, &busy), "Waits for a free worker with the kind order in version v2 since 1970-01-01T00:00:01.000Z");
}

#[test]
fn a_running_run_executes_its_code_unless_another_engine_does() {
    let mut run = script(vec![]);
    run.head.status = Status::Running;
    assert_eq!(said(&run, &[]), "Executes its code since 1970-01-01T00:00:01.000Z");
    run.head.external = Some(Default::default());
    assert_eq!(said(&run, &[]), "Is executed by an external engine since 1970-01-01T00:00:01.000Z");
}

#[test]
fn each_wait_has_its_words() {
    let deadline = Some(Timestamp(5_000));
    let child = ChildStarted {
        call_id: at(0),
        child: RunId::new("order-1/0").unwrap(),
        kind: name("pack"),
        version: None,
        input_hash: Default::default(),
        input: Payload::null(),
        on_parent_close: OnParentClose::Cancel,
        budget: None,
        queue: None,
        is_spawned: false,
    };
    let (call_id, failure) = (at(0), Failure::retryable("busy"));
    let failed = StepFailed {
        call_id,
        name: name("charge"),
        input_hash: None,
        failure,
        attempt: 1,
        took_ms: 0,
        retry_at: deadline,
        input: None,
    };
    let approval = ApprovalRequested {
        call_id: at(0),
        name: name("refund"),
        title: String::new(),
        description: None,
        show: None,
        deciders: vec![],
        deadline,
        bound_to: None,
        not_by_requester: false,
        answer_schema: None,
    };
    let cases: [(Event, &str); 9] = [
        (awaited(0, "payment"), "Waits for the signal payment since T"),
        (approval.into(), "Waits for approval of refund since T, until D"),
        (PromiseCreated { call_id: at(0), name: name("paid"), deadline: None }.into(), "Waits for the promise paid since T"),
        (TimerStarted { call_id: at(0), due_at: Timestamp(5_000) }.into(), "Sleeps since T, until D"),
        (failed.into(), "Waits for the next attempt of step charge since T, until D"),
        (child.into(), "Waits for the child order-1/0 since T"),
        (task(0), "Waits for task mail since T"),
        (of_kind("llm.gpt"), "Waits for the model gpt since T"),
        (
            ChildAwaited { call_id: at(0), child: RunId::new("order-1/1").unwrap() }.into(),
            "Waits for the child order-1/1 since T",
        ),
    ];
    for (event, sentence) in cases {
        let run = script(vec![]).commit(vec![event]);
        let shown = said(&run, &[]).replace(T, "T").replace("1970-01-01T00:00:05.000Z", "D");
        assert_eq!(shown, sentence);
        assert_eq!(doing(&run.view(), &[], &[]).since, Timestamp(1_001));
    }
    let update = UpdateReceived { update_id: "u".to_owned(), name: name("address"), payload: Payload::null() };
    let mut run = script(vec![]).input(update);
    run.head.status = Status::Waiting;
    assert_eq!(said(&run, &[]).replace(T, "T"), "Has not answered the update address since T");
    let mut run = script(vec![]);
    run.head.status = Status::Waiting;
    assert_eq!(said(&run, &[]), "Waits since 1970-01-01T00:00:01.000Z");
}

#[test]
fn a_blocked_task_says_what_it_waits_for() {
    let run = script(vec![]).commit(vec![task(0)]);
    let cases = [
        (BlockReason::Quarantined, "Waits for an operator: task mail lost 5 workers in a row and is in quarantine since T"),
        (BlockReason::NoWorker, "Waits for a worker that executes task mail since T; none is connected"),
        (BlockReason::RateLimited, "Waits for the end of a rate limit at U to execute task mail since T"),
        (BlockReason::Retries, "Waits for the next attempt of task mail at U (the last one failed with busy) since T"),
        (BlockReason::Queued, "Waits for a free worker that executes task mail since T"),
    ];
    for (why, sentence) in cases {
        let shown = said(&run, &[blocker(&run, Some(0), why)]);
        assert_eq!(shown.replace(T, "T").replace("1970-01-01T00:01:00.000Z", "U"), sentence);
    }
}

#[test]
fn of_several_waits_the_most_important_one_is_named() {
    let timer = TimerStarted { call_id: at(2), due_at: Timestamp(5_000) };
    let run = script(vec![]).commit(vec![task(0), awaited(1, "paid"), timer.into()]);
    assert_eq!(said(&run, &[]).replace(T, "T"), "Waits for the signal paid and 2 more since T");
    let quarantined = [blocker(&run, Some(0), BlockReason::Quarantined)];
    assert!(said(&run, &quarantined).contains("task mail lost 5 workers in a row and is in quarantine and 2 more"));
}

#[test]
fn an_agent_that_stopped_says_why() {
    let mut run = script(vec![]).commit(vec![awaited(0, "message")]);
    let (name, value) = (name(crate::agent::conversation::AGENT_STOP), AttributeValue::Text("turns_exhausted".to_owned()));
    run.head.attributes = vec![crate::Attribute { name, value }];
    assert_eq!(said(&run, &[]).replace(T, "T"), "Waits for the next message after it stopped with turns_exhausted since T");
}

#[test]
fn a_paused_run_says_why() {
    for reason in PauseReason::ALL {
        let run = script(vec![]).input(RunPaused::because(*reason, "secret"));
        let shown = said(&run, &[]);
        assert!(shown.starts_with(&format!("Is paused since {T} ")), "{shown}");
        assert_eq!(shown.ends_with(" on request: secret"), *reason == PauseReason::Requested, "{shown}");
    }
    let run = script(vec![]).input(RunPaused::because(PauseReason::BudgetExhausted, ""));
    assert_eq!(said(&run, &[]), format!("Is paused since {T} because its budget is exhausted"));
}

#[test]
fn an_open_run_names_a_requested_cancellation() {
    let run = script(vec![]).commit(vec![awaited(0, "paid")]).input(CancelRequested::new("too late".to_owned()));
    let shown = said(&run, &[]);
    assert!(shown.ends_with("; cancellation was requested: too late"), "{shown}");
}

#[test]
fn a_closed_run_says_how_it_ended() {
    let ended = |event: Event| said(&script(vec![]).commit(vec![event]), &[]).replace(T, "T");
    assert_eq!(ended(completed()), "Completed at T");
    let failure = Failure::fatal("declined").with_code("declined");
    assert_eq!(ended(RunFailed { failure, attempts: None }.into()), "Failed at T with declined");
    assert_eq!(ended(RunContinued { input: Payload::null(), checkpoint: None }.into()), "Continued as its next generation at T");
    let run = script(vec![]).input(CancelRequested::new("late".to_owned()));
    let run = run.commit(vec![RunCanceled { failure: Failure::canceled("late") }.into()]);
    assert_eq!(said(&run, &[]), "Was canceled at 1970-01-01T00:00:01.002Z: late");
    let terminated = |reset_to| {
        let run = script(vec![]).input(signal("x")).input(TerminateRequested { reason: String::new(), reset_to });
        said(&run, &[])
    };
    assert_eq!(terminated(None), "Was terminated at 1970-01-01T00:00:01.002Z");
    let to = RunId::new("order-2").unwrap();
    assert_eq!(terminated(Some(to)), "Was ended at 1970-01-01T00:00:01.002Z by a reset to order-2");
}

#[test]
fn a_running_run_executes_the_steps_under_way() {
    let mut run = script(vec![]);
    run.head.status = Status::Running;
    let step = |call_id: u32, attempt, started_at| ActiveCall {
        generation: 0,
        call_id: at(call_id),
        of_type: ActiveType::Step,
        name: name("charge"),
        attempt,
        started_at: Timestamp(started_at),
        input: None,
        worker: None,
        progress: None,
    };
    let sentence = |active: &[ActiveCall]| doing(&run.view(), &[], active).sentence;
    assert_eq!(sentence(&[step(0, 1, 2_000)]), "Executes step charge since 1970-01-01T00:00:02.000Z");
    let two = [step(0, 1, 3_000), step(1, 2, 2_000)];
    assert_eq!(sentence(&two), "Executes step charge (attempt 2) and 1 more since 1970-01-01T00:00:02.000Z");
}

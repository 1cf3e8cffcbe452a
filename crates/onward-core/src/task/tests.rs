//! Tests of the parent module.

use super::*;
use crate::{Namespace, RunId};

fn task(options: TaskOptions) -> Task {
    let run = RunKey::new(Namespace::default(), RunId::new("r").unwrap());
    let id = TaskId { run, generation: 0, call_id: CallId::root(0), incarnation: Some(1) };
    Task::new(id, Name::new("mail").unwrap(), Payload::null(), options, Timestamp(1_000))
}

fn worker() -> WorkerId {
    WorkerId::new("w").unwrap()
}

const LEASE: Duration = Duration::from_secs(30);

#[test]
fn a_task_that_must_not_be_done_twice_is_not_given_to_another_worker() {
    for options in [
        TaskOptions::default(),
        TaskOptions { attempt_timeout_ms: Some(5_000), ..TaskOptions::default() },
        TaskOptions { heartbeat_timeout_ms: Some(5_000), ..TaskOptions::default() },
    ] {
        let mut task =
            task(TaskOptions { class: Some(EffectClass::AtMostOnce), retry: Some(RetryPolicy::attempts(5)), ..options });
        task.claim(&worker(), LEASE, Timestamp(2_000));
        let TaskTransition::Ended(event) = task.expire(Timestamp(60_000)) else { panic!("it is still open") };
        let Event::TaskFailed(failed) = *event else { panic!("{event:?}") };
        assert_eq!((failed.failure.code.as_str(), failed.failure.retryable), ("outcome_unknown", false));
    }
    let once = || {
        let mut task = task(TaskOptions {
            class: Some(EffectClass::AtMostOnce),
            retry: Some(RetryPolicy::attempts(5)),
            ..TaskOptions::default()
        });
        task.claim(&worker(), LEASE, Timestamp(2_000));
        task
    };
    let panicked = TaskReport::Failed(Failure::new(PANICKED, "index out of bounds"));
    for report in [TaskReport::Interrupted, TaskReport::WorkerLost, panicked] {
        let transition = once().report(1, report.clone(), LEASE, Timestamp(3_000)).unwrap();
        let TaskTransition::Ended(event) = transition else { panic!("{report:?} leaves it open") };
        let Event::TaskFailed(failed) = *event else { panic!("{event:?}") };
        assert_eq!((failed.failure.code.as_str(), failed.failure.retryable), ("outcome_unknown", false));
    }
    // Also if the total timeout is over: the attempt was running.
    let mut late = once();
    late.options.total_timeout_ms = Some(5_000);
    let TaskTransition::Ended(event) = late.expire(Timestamp(6_000)) else { panic!("it is still open") };
    assert!(matches!(&*event, Event::TaskFailed(failed) if failed.failure.code == "outcome_unknown"), "{event:?}");
    // An attempt that has not started is no execution: the next worker gets the task, under the same number.
    let mut queued = once();
    assert_eq!(queued.report(1, queued.not_started(), LEASE, Timestamp(3_000)), Ok(TaskTransition::Open));
    assert_eq!((queued.state, queued.attempt, queued.visible_at), (TaskState::Queued, 1, Timestamp(3_000)));
    // A worker that reports a failure knows that nothing happened, or returns another failure.
    let mut known = task(TaskOptions {
        class: Some(EffectClass::AtMostOnce),
        retry: Some(RetryPolicy::attempts(2)),
        ..TaskOptions::default()
    });
    known.claim(&worker(), LEASE, Timestamp(2_000));
    let transition = known.report(1, TaskReport::Failed(Failure::retryable("refused")), LEASE, Timestamp(3_000));
    assert_eq!(transition, Ok(TaskTransition::Open));
}

#[test]
fn delays_grow_up_to_their_limit_and_never_overflow() {
    let policy = RetryPolicy::forever();
    let delay = |attempt| policy.next_attempt(attempt, &Failure::retryable("x"), Timestamp(0)).unwrap().0;
    assert_eq!([1, 2, 3, 7, 64, u32::MAX].map(delay), [1_000, 2_000, 4_000, 60_000, 60_000, 60_000]);
}

#[test]
fn no_attempts_are_one_and_for_ever_has_its_own_word() {
    let again = |policy: RetryPolicy| policy.next_attempt(1, &Failure::retryable("x"), Timestamp(0)).is_some();
    assert!(!again(RetryPolicy::from(0)) && !again(RetryPolicy::from(1)) && again(RetryPolicy::from(2)));
    assert_eq!(RetryPolicy::from(0), RetryPolicy::from(1));
    assert!(RetryPolicy::forever().next_attempt(u32::MAX, &Failure::retryable("x"), Timestamp(0)).is_some());
}

#[test]
fn a_first_pause_is_not_cut() {
    let delays = |policy: RetryPolicy| {
        [1, 2, 3].map(|attempt| policy.next_attempt(attempt, &Failure::retryable("x"), Timestamp(0)).unwrap().0 / 1_000)
    };
    let policy = || RetryPolicy::forever().delay(Duration::from_secs(300));
    assert_eq!(delays(policy()), [300, 300, 300]);
    assert_eq!(delays(policy().delay_max(Duration::from_secs(900))), [300, 600, 900]);
    assert_eq!(delays(RetryPolicy::forever().delay_max(Duration::from_secs(1))), [1, 1, 1]);
}

#[test]
fn the_callee_may_request_a_longer_pause() {
    let failure = Failure::retryable("busy").with_retry_after(Duration::from_secs(90));
    assert_eq!(RetryPolicy::attempts(2).next_attempt(1, &failure, Timestamp(0)), Some(Timestamp(90_000)));
}

#[test]
fn a_fatal_failure_ends_the_task_whatever_attempts_are_left() {
    let mut task = task(TaskOptions { retry: Some(RetryPolicy::attempts(5)), ..Default::default() });
    task.claim(&worker(), LEASE, Timestamp(1_000));
    let transition = task.report(1, TaskReport::Failed(Failure::fatal("no")), LEASE, Timestamp(1_001)).unwrap();
    let TaskTransition::Ended(event) = transition else { panic!("the task goes on") };
    assert!(matches!(*event, Event::TaskFailed(TaskFailed { attempts: 1, .. })));
}

#[test]
fn a_lost_worker_burns_no_attempt_but_many_lost_workers_quarantine() {
    let mut task = task(TaskOptions::default());
    for lost in 1..=LOST_WORKERS_MAX + 1 {
        let now = Timestamp(u64::from(lost) * 100_000);
        task.claim(&worker(), LEASE, now);
        assert_eq!(task.expire(now.after(LEASE)), TaskTransition::Open);
        assert_eq!((task.attempt, task.counted_attempt(), task.lost_workers), (lost + 1, 1, lost));
    }
    let last = u64::from(LOST_WORKERS_MAX + 1) * 100_000;
    assert_eq!((task.state, task.quarantined_at()), (TaskState::Quarantined, Some(Timestamp(last).after(LEASE))));
    task.retry(Timestamp(900_000)).unwrap();
    assert_eq!((task.state, task.lost_workers, task.visible_at), (TaskState::Queued, 0, Timestamp(900_000)));
    assert_eq!(task.retry(Timestamp(9_000)), Err(NotQuarantined));
    assert_eq!(task.due_at(), None);
}

#[test]
fn a_task_that_waits_for_a_rate_limit_can_be_retried_and_one_that_waits_for_another_reason_cannot() {
    let limited = Failure::new("model_rate_limited", "").with_retry_after(Duration::from_secs(60));
    let refused = Failure::retryable("busy").with_limited(Duration::from_secs(60));
    for (failure, outcome) in [(limited, Ok(())), (refused, Ok(())), (Failure::retryable("busy"), Err(NotQuarantined))] {
        let mut task = task(TaskOptions { retry: Some(RetryPolicy::attempts(2)), ..TaskOptions::default() });
        task.claim(&worker(), LEASE, Timestamp(1_000));
        task.report(1, TaskReport::Failed(failure), LEASE, Timestamp(1_000)).unwrap();
        assert_eq!(task.retry(Timestamp(1_001)), outcome);
        assert_eq!(task.visible_at == Timestamp(1_001), outcome.is_ok());
        assert_eq!((task.attempt, task.counted_attempt()), (2, 2));
    }
}

/// K9.
#[test]
fn an_interrupted_attempt_uses_up_its_number_but_no_retry() {
    let mut task = task(TaskOptions { retry: Some(RetryPolicy::attempts(2)), ..TaskOptions::default() });
    let mut now = Timestamp(1_000);
    let mut executions = Vec::new();
    let failed = || TaskReport::Failed(Failure::retryable("busy"));
    for (report, next) in [
        (TaskReport::Interrupted, (2, 1, 1_000)),
        (TaskReport::WorkerLost, (3, 1, 1_000)),
        (failed(), (4, 2, 2_000)),
        (TaskReport::Interrupted, (5, 2, 2_000)),
    ] {
        task.claim(&worker(), LEASE, now);
        executions.push(task.attempt);
        assert_eq!(task.report(task.claim, report, LEASE, now), Ok(TaskTransition::Open));
        now = task.visible_at;
        assert_eq!((task.attempt, task.counted_attempt(), now.0), next);
    }
    task.claim(&worker(), LEASE, now);
    let transition = task.report(task.claim, failed(), LEASE, now).unwrap();
    let TaskTransition::Ended(event) = transition else { panic!("a third failure is allowed") };
    assert!(matches!(*event, Event::TaskFailed(TaskFailed { attempts: 5, .. })), "{event:?}");
    assert_eq!(executions, [1, 2, 3, 4]);
}

/// K9.
#[test]
fn a_task_that_begins_anew_does_not_use_attempt_numbers_again() {
    let mut lost = task(TaskOptions { retry: Some(RetryPolicy::attempts(3)), ..TaskOptions::default() });
    lost.lose_attempt(2, Timestamp(1_000));
    assert_eq!((lost.attempt, lost.counted_attempt(), lost.state), (3, 1, TaskState::Queued));
    let rescheduled = lost.rescheduled(Timestamp(2_000));
    assert_eq!((rescheduled.attempt, rescheduled.counted_attempt()), (3, 1));
}

/// Returns the number of lost workers until the task is quarantined, each lost right after its claim.
fn losses(task: &mut Task) -> u32 {
    while task.state == TaskState::Queued {
        let now = task.visible_at;
        task.claim(&worker(), LEASE, now);
        task.lose_worker(now);
    }
    task.lost_workers
}

/// K3.
#[test]
fn a_model_call_outlasts_servers_that_crash_but_not_for_ever() {
    let call = |kind: &str, class| {
        let options = TaskOptions { class, retry: Some(RetryPolicy::forever()), ..TaskOptions::default() };
        Task { kind: Name::new(kind).unwrap(), ..task(options) }
    };
    let mut pure = call("llm.m", Some(EffectClass::Pure));
    assert_eq!(losses(&mut pure), LOST_CALLERS_MAX + 1);
    assert!(pure.visible_at.since(Timestamp(1_000)) > Duration::from_secs(20 * 60), "{}", pure.visible_at);
    for mut other in [call("llm.m", None), call("mail", Some(EffectClass::Pure))] {
        assert_eq!(losses(&mut other), LOST_WORKERS_MAX + 1, "it may run user code");
    }
}

#[test]
fn only_workers_that_vanish_in_a_row_count() {
    let mut task = task(TaskOptions { retry: Some(RetryPolicy::forever()), ..TaskOptions::default() });
    for _ in 0..3 * LOST_WORKERS_MAX {
        for _ in 0..LOST_WORKERS_MAX {
            let now = task.visible_at;
            task.claim(&worker(), LEASE, now);
            task.lose_worker(now);
        }
        assert_eq!((task.state, task.lost_workers), (TaskState::Queued, LOST_WORKERS_MAX));
        let now = task.visible_at;
        task.claim(&worker(), LEASE, now);
        task.report(task.claim, TaskReport::Failed(Failure::retryable("busy")), LEASE, now).unwrap();
        assert_eq!(task.lost_workers, 0, "a worker that reports a failure is alive");
    }
}

/// K5.
#[test]
fn tasks_that_lost_workers_together_are_not_together_for_long() {
    let mut tasks: Vec<Task> = (0..9)
        .map(|call_id| {
            let id = TaskId { call_id: crate::CallId::root(call_id), ..task(TaskOptions::default()).id };
            Task { id, ..task(TaskOptions::default()) }
        })
        .collect();
    let mut seen = Vec::new();
    for _ in 0..4 {
        tasks.iter_mut().for_each(|task| task.lose_worker(Timestamp(1_000)));
        let mut times: Vec<u64> = tasks.iter().map(|task| task.visible_at.0 - 1_000).collect();
        times.sort_unstable();
        times.dedup();
        seen.push((times.len(), times.last().copied().unwrap_or_default()));
    }
    assert_eq!(seen[0], (1, 0), "no delay after the first loss");
    assert!(seen[1..].iter().all(|(different, _)| *different == 9), "{seen:?}");
    assert!(seen[1].1 < 500 && seen[2].1 < 1_000 && seen[3].1 < 2_000, "{seen:?}");
}

#[test]
fn the_report_of_a_worker_that_lost_its_lease_is_stale() {
    let mut task = task(TaskOptions::default());
    task.claim(&worker(), LEASE, Timestamp(1_000));
    task.expire(Timestamp(1_000).after(LEASE));
    let done = || TaskReport::Completed(Payload::null());
    assert_eq!(task.report(1, done(), LEASE, Timestamp(40_000)), Err(StaleReport));
    task.claim(&worker(), LEASE, Timestamp(40_000));
    assert_eq!(task.report(1, done(), LEASE, Timestamp(40_001)), Err(StaleReport));
    assert!(task.report(2, done(), LEASE, Timestamp(40_001)).is_ok());
}

/// K10.
#[test]
fn a_server_that_the_worker_has_left_does_not_end_the_attempt() {
    let (here, there) = (worker(), WorkerId::new("there").unwrap());
    let mut task = task(TaskOptions { class: Some(EffectClass::AtMostOnce), ..TaskOptions::default() });
    task.claim(&here, LEASE, Timestamp(1_000));
    task.report(1, TaskReport::Heartbeat { progress: None }.by_session(here.clone()), LEASE, Timestamp(2_000)).unwrap();
    task.report(1, TaskReport::Adopted { session: there.clone() }, LEASE, Timestamp(3_000)).unwrap();
    let adopted = task.clone();
    let beat = TaskReport::Heartbeat { progress: None };
    for report in [TaskReport::WorkerLost, TaskReport::Interrupted, task.not_started(), beat] {
        let late = report.clone().by_session(here.clone());
        assert_eq!(task.report(1, late, Duration::from_millis(1), Timestamp(4_000)), Err(StaleReport), "{report:?}");
        assert_eq!(task, adopted, "{report:?}");
    }
    // Reports of the worker itself count, on any connection.
    assert!(task.clone().report(1, TaskReport::Completed(Payload::null()), LEASE, Timestamp(4_000)).is_ok());
    // The current server can lose the worker.
    let transition = task.report(1, TaskReport::WorkerLost.by_session(there), LEASE, Timestamp(4_000)).unwrap();
    assert!(matches!(transition, TaskTransition::Ended(_)));
}

#[test]
fn a_paused_task_begins_no_attempt_and_keeps_its_remaining_time() {
    let options = TaskOptions {
        retry: Some(RetryPolicy::attempts(3)),
        queued_timeout_ms: Some(100),
        total_timeout_ms: Some(10_000),
        ..Default::default()
    };
    let mut task = task(options);
    task.freeze(Timestamp(1_040));
    task.freeze(Timestamp(1_050));
    assert_eq!((task.may_be_claimed(Timestamp(1_060)), task.due_at()), (false, None));
    assert_eq!(task.expire(Timestamp(99_000)), TaskTransition::Open);
    task.unfreeze(Duration::from_millis(500));
    assert_eq!((task.may_be_claimed(Timestamp(1_540)), task.due_at()), (true, Some(Timestamp(1_600))));

    // An attempt that runs when the run is paused ends as any other; its retry delay starts at the resume.
    task.claim(&worker(), LEASE, Timestamp(1_550));
    task.freeze(Timestamp(2_000));
    assert_eq!(task.due_at(), Some(Timestamp(1_550).after(LEASE)));
    task.report(1, TaskReport::Failed(Failure::retryable("busy")), LEASE, Timestamp(2_300)).unwrap();
    assert_eq!((task.attempt, task.may_be_claimed(Timestamp(9_000)), task.due_at()), (2, false, None));
    task.unfreeze(Duration::from_millis(700));
    assert_eq!((task.visible_at, task.due_at()), (Timestamp(3_700), Some(Timestamp(12_200))));

    // A retry that was scheduled before the pause keeps its remaining delay.
    task.freeze(Timestamp(3_000));
    task.unfreeze(Duration::from_millis(1_000));
    assert_eq!(task.visible_at, Timestamp(4_700));
}

#[test]
fn each_timeout_has_its_own_consequence() {
    let with = |f: fn(&mut TaskOptions)| {
        let mut options = TaskOptions { retry: Some(RetryPolicy::attempts(2)), ..Default::default() };
        f(&mut options);
        task(options)
    };
    let mut queued = with(|options| options.queued_timeout_ms = Some(10));
    assert_eq!(queued.expire(Timestamp(1_009)), TaskTransition::Open);
    assert!(matches!(queued.expire(Timestamp(1_010)), TaskTransition::Ended(_)));

    let mut slow = with(|options| options.attempt_timeout_ms = Some(10));
    slow.claim(&worker(), LEASE, Timestamp(2_000));
    assert_eq!(slow.expire(Timestamp(2_010)), TaskTransition::Open);
    assert_eq!((slow.attempt, slow.visible_at), (2, Timestamp(3_010)));

    let mut silent = with(|options| options.heartbeat_timeout_ms = Some(10));
    silent.claim(&worker(), LEASE, Timestamp(2_000));
    silent.report(1, TaskReport::Heartbeat { progress: None }, LEASE, Timestamp(2_009)).unwrap();
    assert_eq!(silent.due_at(), Some(Timestamp(2_019)));

    let mut long = with(|options| options.total_timeout_ms = Some(10));
    long.claim(&worker(), LEASE, Timestamp(1_001));
    assert!(matches!(long.expire(Timestamp(1_010)), TaskTransition::Ended(_)));
}

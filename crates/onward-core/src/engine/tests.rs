//! The engine by itself: data in, data out. Tests make the calls of the code by hand.

use super::*;
use crate::log::CommitHeader;
use crate::log::event::{
    CancelRequested, RunCompleted, RunResumed, RunStarted, SignalReceived, StepCompleted, TaskCompleted, TimerFired,
    UpdateReceived, VersionChosen,
};
use crate::{CommitId, Epoch, Failure, Hash, Log, Namespace, RunId};

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn json(text: &str) -> Payload {
    Payload::from_json_text(text.to_owned())
}

/// An engine with the log it is fed from.
struct Bench {
    engine: Engine,
    log: Log,
}

impl Bench {
    fn new() -> Bench {
        let key = RunKey::new(Namespace::default(), RunId::new("run").unwrap());
        let mut bench = Bench { engine: Engine::new(key), log: Log::default() };
        let started = RunStarted::new(name("k"), Payload::null(), 1);
        bench.input(started);
        bench
    }

    /// Appends an input and feeds it.
    fn input(&mut self, event: impl Into<Event>) {
        let index = self.log.next_index();
        let record = Record::input(index, Timestamp(1_000 + index.0), event.into());
        self.log.push(record.clone()).unwrap();
        self.engine.feed(record);
    }

    fn signal(&mut self, signal: &str, value: &str) {
        self.input(SignalReceived { name: name(signal), payload: json(value), signal_id: None, sender: None });
    }

    /// Advances, expecting a poll.
    fn poll(&mut self) {
        match self.engine.advance() {
            Ok(Advance::Poll(_)) => {}
            other => panic!("expected a poll, got {other:?}"),
        }
    }

    fn idle(&mut self) {
        assert_eq!(self.engine.advance(), Ok(Advance::Idle));
    }

    /// Advances, expecting a commit; appends it and feeds it back.
    fn commit(&mut self) -> CommitDraft {
        let draft = match self.engine.advance() {
            Ok(Advance::Commit(draft)) => draft,
            other => panic!("expected a commit, got {other:?}"),
        };
        let index = self.log.next_index();
        let header = CommitHeader {
            n: draft.n,
            epoch: Epoch(1),
            commit_id: CommitId(draft.n),
            horizon: draft.horizon,
            waits: draft.waits,
            is_while_paused: draft.is_while_paused,
        };
        let at = Timestamp(1_000 + index.0);
        self.log.push(Record { index, at, commit: Some(header), events: draft.events.clone() }).unwrap();
        self.engine.committed(header, index, at);
        draft
    }

    fn pause(&mut self) {
        self.input(RunPaused::because(PauseReason::Requested, ""));
    }

    fn resume(&mut self) {
        self.input(RunResumed::default());
    }

    /// Returns a fresh engine that is fed the whole log.
    fn restart(&self) -> Bench {
        let mut engine = Engine::new(self.engine.key().clone());
        self.log.records().iter().for_each(|record| engine.feed(record.clone()));
        Bench { engine, log: self.log.clone() }
    }

    fn diverges(&mut self) -> Divergence {
        loop {
            match self.engine.advance() {
                Ok(Advance::Poll(_)) => {}
                Err(Fault::Diverged(report)) => return *report,
                other => panic!("expected a divergence, got {other:?}"),
            }
        }
    }
}

fn exactly(text: &str) -> Pattern {
    Pattern::Exactly(name(text))
}

/// Returns a bench whose code has run one step `charge` to its recorded end.
fn charged() -> Bench {
    let mut bench = Bench::new();
    bench.poll();
    let call_id = bench.engine.open_step(name("charge"));
    assert_eq!(bench.engine.poll_step(&call_id), StepPoll::Start { attempt: 1 });
    bench.engine.report_step(&call_id, Ok(json("5")), 2);
    let draft = bench.commit();
    assert!(!draft.waits, "there is a result to deliver");
    bench.poll();
    assert_eq!(bench.engine.poll_step(&call_id), StepPoll::Recorded(Ok(json("5"))));
    bench
}

#[test]
fn a_recorded_step_is_answered_from_the_log_and_not_started() {
    let mut bench = charged().restart();
    bench.poll();
    let call_id = bench.engine.open_step(name("charge"));
    assert_eq!(bench.engine.poll_step(&call_id), StepPoll::Pending, "N2: its result is not delivered yet");
    bench.poll();
    assert_eq!(bench.engine.poll_step(&call_id), StepPoll::Recorded(Ok(json("5"))));
}

#[test]
fn a_step_that_was_running_at_a_crash_starts_again_once_the_log_is_exhausted() {
    let mut bench = charged();
    let call_id = bench.engine.open_step(name("ship"));
    assert_eq!(bench.engine.poll_step(&call_id), StepPoll::Start { attempt: 1 });
    let mut bench = bench.restart();
    bench.poll();
    let charge = bench.engine.open_step(name("charge"));
    bench.engine.poll_step(&charge);
    bench.poll();
    bench.engine.poll_step(&charge);
    let ship = bench.engine.open_step(name("ship"));
    assert_eq!(bench.engine.poll_step(&ship), StepPoll::Start { attempt: 1 });
}

#[test]
fn no_step_starts_before_what_the_code_polled_is_durable() {
    let mut bench = Bench::new();
    bench.poll();
    assert_eq!(bench.engine.count_signals(&exactly("stop")), 0);
    let call_id = bench.engine.open_step(name("ship"));
    assert_eq!(bench.engine.poll_step(&call_id), StepPoll::Pending);
    let draft = bench.commit();
    assert_eq!(draft.events, [crate::log::event::RunSuspended { reason: SuspendReason::Polled }.into()]);
    assert!(!draft.waits, "a step is about to start");
    bench.poll();
    assert_eq!(bench.engine.poll_step(&call_id), StepPoll::Start { attempt: 1 });
}

#[test]
fn a_failed_step_waits_for_its_timer_and_keeps_its_attempts_across_a_restart() {
    let mut bench = Bench::new();
    bench.poll();
    let call_id = bench.engine.open_step(name("mail"));
    bench.engine.set_step_retry(&call_id, 3.into());
    bench.engine.poll_step(&call_id);
    bench.engine.report_step(&call_id, Err(Failure::retryable("busy")), 0);
    assert!(!bench.commit().waits, "its result is not delivered yet");
    assert!(bench.commit().waits, "N5: or the run would stay pending until the timer fires");
    bench.idle();
    bench.input(TimerFired { call_id: call_id.clone() });
    let mut bench = bench.restart();
    bench.poll();
    let call_id = bench.engine.open_step(name("mail"));
    bench.engine.set_step_retry(&call_id, 3.into());
    assert_eq!(bench.engine.poll_step(&call_id), StepPoll::Pending);
    bench.poll();
    assert_eq!(bench.engine.poll_step(&call_id), StepPoll::Start { attempt: 2 });
}

#[test]
fn a_signal_goes_to_the_call_that_waited_first() {
    let mut bench = Bench::new();
    bench.poll();
    let (first, second) = (bench.engine.next_call_id(), bench.engine.next_call_id());
    assert_eq!(bench.engine.await_signal(&first, &Pattern::Like(name("*")), None), None);
    assert_eq!(bench.engine.await_signal(&second, &exactly("s"), None), None);
    bench.commit();
    bench.signal("s", "1");
    bench.signal("s", "2");
    bench.poll();
    assert_eq!(bench.engine.poll_call(&first), Some(Ok(json("1"))));
    assert_eq!(bench.engine.poll_call(&second), None, "one event, then quiescence");
    bench.poll();
    assert_eq!(bench.engine.poll_call(&second), Some(Ok(json("2"))));
}

#[test]
fn a_signal_set_aside_for_a_dropped_call_goes_to_the_next_that_waits() {
    let mut bench = Bench::new();
    bench.poll();
    let (first, second) = (bench.engine.next_call_id(), bench.engine.next_call_id());
    bench.engine.await_signal(&first, &exactly("s"), None);
    bench.engine.await_signal(&second, &exactly("s"), None);
    bench.commit();
    bench.signal("s", "1");
    bench.poll();
    bench.engine.drop_call(&first);
    bench.poll();
    assert_eq!(bench.engine.poll_call(&second), Some(Ok(json("1"))));
}

#[test]
fn inputs_that_change_nothing_are_settled_before_the_run_waits() {
    let mut bench = Bench::new();
    bench.poll();
    bench.engine.schedule_task(name("t"), json("1"));
    bench.commit();
    bench.signal("unexpected", "1");
    let draft = bench.commit();
    assert_eq!(draft.events, [crate::log::event::RunSuspended { reason: SuspendReason::Settled }.into()]);
    assert!(draft.waits);
    bench.idle();
}

#[test]
fn a_changed_step_name_diverges_with_a_report_that_helps() {
    let mut bench = charged().restart();
    bench.poll();
    bench.engine.open_step(name("refund"));
    let report = bench.diverges();
    assert_eq!(report.index, Index(1));
    assert_eq!(report.recorded, "step `charge` at 0");
    assert_eq!(report.attempted, "step `refund` at 0");
    assert!(report.hint.contains("ctx.version"), "{}", report.hint);
}

/// KI6
#[test]
fn a_recorded_refusal_of_an_answer_stays_while_another_answer_diverges() {
    let wait = |bench: &mut Bench| {
        let call_id = bench.engine.next_call_id();
        assert_eq!(bench.engine.await_signal(&call_id, &exactly("end"), None), None);
    };
    let update = |bench: &mut Bench, answer: Result<Payload, Failure>| {
        assert!(matches!(bench.engine.advance(), Ok(Advance::Update(_))));
        bench.engine.answer_update("u".to_owned(), answer);
    };
    let answered = |answer: Result<Payload, Failure>| {
        let mut bench = Bench::new();
        bench.poll();
        wait(&mut bench);
        bench.commit();
        bench.input(UpdateReceived { update_id: "u".to_owned(), name: name("add"), payload: json("1") });
        update(&mut bench, answer);
        bench.commit();
        bench
    };
    let replayed = |recorded: &Bench, answer: &str| {
        let mut again = recorded.restart();
        again.poll();
        wait(&mut again);
        update(&mut again, Ok(json(answer)));
        again
    };
    let failed = |code: &str| answered(Err(Failure::fatal("no").with_code(code)));
    replayed(&failed("output_invalid"), "7").idle();
    replayed(&failed("no"), "7").diverges();
    let given = answered(Ok(json("6")));
    replayed(&given, "6").idle();
    replayed(&given, "7").diverges();
}

#[test]
fn a_changed_step_input_diverges() {
    let mut bench = charged().restart();
    bench.poll();
    let call_id = bench.engine.open_step(name("charge"));
    bench.engine.set_step_input(&call_id, Hash::of(&json("42")));
    let report = bench.diverges();
    assert!(report.attempted.starts_with("step `charge` at 0 with input "), "{}", report.attempted);
}

#[test]
fn a_changed_task_input_diverges_but_map_order_and_options_do_not() {
    let mut bench = Bench::new();
    bench.poll();
    bench.engine.schedule_task(name("t"), json(r#"{"a":1,"b":2}"#));
    bench.commit();
    let mut same = bench.restart();
    same.poll();
    let call_id = same.engine.schedule_task(name("t"), json(r#"{"b":2,"a":1}"#));
    same.engine.configure(&call_id, &mut |event| {
        if let Event::TaskScheduled(task) = event {
            task.options.priority = Some(9);
        }
    });
    same.idle();
    let mut other = bench.restart();
    other.poll();
    other.engine.schedule_task(name("t"), json(r#"{"a":1,"b":3}"#));
    let report = other.diverges();
    assert_eq!(report.recorded, r#"task `t` at 0 with input {"a":1,"b":2}"#);
    assert_eq!(report.attempted, r#"task `t` at 0 with input {"a":1,"b":3}"#);
}

#[test]
fn code_that_makes_fewer_or_more_calls_than_recorded_diverges() {
    let mut bench = Bench::new();
    bench.poll();
    bench.engine.schedule_task(name("t"), json("1"));
    bench.commit();
    let mut less = bench.restart();
    less.poll();
    less.engine.finish(Ok(json("0")));
    assert_eq!(less.diverges().attempted, "the end of the run with 0");
    let mut more = bench.restart();
    more.poll();
    more.engine.schedule_task(name("t"), json("1"));
    more.engine.schedule_task(name("u"), json("2"));
    let report = more.diverges();
    assert_eq!((report.recorded.as_str(), report.index), ("nothing more at this point", Index(2)));
    assert_eq!(report.nearest.as_deref(), Some("task `t` at 0 with input 1"));
}

#[test]
fn new_code_may_go_on_beyond_the_recorded_end() {
    let mut bench = charged().restart();
    bench.poll();
    let charge = bench.engine.open_step(name("charge"));
    bench.poll();
    bench.engine.poll_step(&charge);
    bench.engine.schedule_task(name("new"), json("1"));
    assert_eq!(bench.commit().events.len(), 1);
}

#[test]
fn a_version_is_max_for_a_new_run_and_stays_what_was_recorded() {
    let mut bench = Bench::new();
    bench.poll();
    assert_eq!(bench.engine.version(name("pricing"), 1, 2), 2);
    bench.engine.schedule_task(name("t"), json("1"));
    let draft = bench.commit();
    assert_eq!(draft.events[0], VersionChosen { change: name("pricing"), version: 2 }.into());
    let mut later = bench.restart();
    later.poll();
    assert_eq!(later.engine.version(name("pricing"), 1, 3), 2);
    later.engine.schedule_task(name("t"), json("1"));
    later.idle();
}

#[test]
fn a_version_is_min_for_a_run_that_was_past_this_point() {
    let mut bench = Bench::new();
    bench.poll();
    bench.engine.schedule_task(name("t"), json("1"));
    bench.commit();
    let mut later = bench.restart();
    later.poll();
    assert_eq!(later.engine.version(name("pricing"), 1, 2), 1);
    later.engine.schedule_task(name("t"), json("1"));
    later.idle();
    assert_eq!(later.engine.version(name("pricing"), 1, 2), 1, "also in a later call, live");
}

#[test]
fn a_recorded_version_below_min_is_a_fault_with_a_report() {
    let mut bench = Bench::new();
    bench.poll();
    bench.engine.version(name("pricing"), 1, 1);
    bench.engine.schedule_task(name("t"), json("1"));
    bench.commit();
    let mut later = bench.restart();
    later.poll();
    later.engine.version(name("pricing"), 2, 3);
    match later.engine.advance() {
        Err(Fault::VersionTooOld(report)) => assert_eq!(report.recorded, "version 1 of `pricing`"),
        other => panic!("expected a fault, got {other:?}"),
    }
}

#[test]
fn a_cancel_interrupts_open_waits_once_and_spares_a_running_step() {
    let mut bench = Bench::new();
    bench.poll();
    let task = bench.engine.schedule_task(name("t"), json("1"));
    let step = bench.engine.open_step(name("s"));
    assert!(matches!(bench.engine.poll_step(&step), StepPoll::Start { .. }));
    bench.commit();
    bench.input(CancelRequested::new("enough".to_owned()));
    bench.poll();
    let failure = bench.engine.poll_call(&task).unwrap().unwrap_err();
    assert!(failure.is_canceled());
    assert_eq!(bench.engine.poll_step(&step), StepPoll::Pending, "it is still running");
    let after = bench.engine.schedule_task(name("undo"), json("1"));
    assert_eq!(bench.engine.poll_call(&after), None, "compensation is not interrupted");
}

#[test]
fn a_cancel_that_meets_no_wait_interrupts_the_next_one() {
    let mut bench = Bench::new();
    bench.poll();
    let step = bench.engine.open_step(name("s"));
    bench.engine.poll_step(&step);
    bench.idle();
    bench.input(CancelRequested::new(String::new()));
    bench.poll();
    bench.engine.report_step(&step, Ok(json("1")), 0);
    bench.commit();
    bench.poll();
    assert_eq!(bench.engine.poll_step(&step), StepPoll::Recorded(Ok(json("1"))));
    let next = bench.engine.start_timer(Timestamp(9_999));
    assert!(bench.engine.poll_call(&next).is_some_and(|result| result.is_err_and(|failure| failure.is_canceled())));
}

/// N9: live and on replay, for a step that was running and for one that was not.
#[test]
fn a_cancel_interrupts_a_step_that_has_not_begun_and_the_log_records_it() {
    for runs in [false, true] {
        let mut bench = Bench::new();
        if !runs {
            bench.input(cancel());
        }
        bench.poll();
        let step = bench.engine.open_step(name("s"));
        let polled = bench.engine.poll_step(&step);
        assert_eq!(polled, if runs { StepPoll::Start { attempt: 1 } } else { StepPoll::Pending });
        if runs {
            bench.idle();
            bench.input(cancel());
        }
        bench.poll();
        if runs {
            assert_eq!(bench.engine.poll_step(&step), StepPoll::Pending);
            bench.engine.report_step(&step, Ok(json("1")), 0);
        } else {
            assert!(matches!(bench.engine.poll_step(&step), StepPoll::Recorded(Err(failure)) if failure.is_canceled()));
        }
        let events = bench.commit().events;
        assert_eq!(events.iter().any(|event| matches!(event, Event::WaitCanceled(_))), !runs, "{events:?}");
        // The logs begin alike, and replay polls the step at the same points.
        let mut replay = bench.restart();
        replay.poll();
        let step = replay.engine.open_step(name("s"));
        assert_eq!(replay.engine.poll_step(&step), StepPoll::Pending);
        replay.poll();
        let polled = replay.engine.poll_step(&step);
        assert_eq!(matches!(polled, StepPoll::Recorded(Err(_))), !runs, "{polled:?}");
    }
}

#[test]
fn a_commit_of_another_worker_means_the_lease_is_lost() {
    let mut bench = Bench::new();
    bench.poll();
    bench.engine.schedule_task(name("t"), json("1"));
    bench.commit();
    bench.idle();
    let header =
        CommitHeader { n: 1, epoch: Epoch(2), commit_id: CommitId(99), horizon: Index(1), waits: true, is_while_paused: false };
    let index = bench.log.next_index();
    let events = vec![RunCompleted { output: json("0"), attempts: None }.into()];
    bench.engine.feed(Record { index, at: Timestamp(5_000), commit: Some(header), events });
    assert_eq!(bench.engine.advance(), Err(Fault::LeaseLost));
}

#[test]
fn code_that_waits_for_nothing_is_stuck() {
    let mut bench = Bench::new();
    bench.poll();
    bench.commit();
    bench.idle();
    assert!(matches!(bench.engine.take_fault(), Some(Fault::Stuck(_))));
}

#[test]
fn a_result_of_a_call_the_code_has_forgotten_is_ignored() {
    let mut bench = Bench::new();
    bench.poll();
    let task = bench.engine.schedule_task(name("t"), json("1"));
    bench.engine.drop_call(&task);
    bench.engine.start_timer(Timestamp(9_999));
    bench.commit();
    bench.input(TaskCompleted { call_id: task, output: json("1"), attempts: 1, ran: None });
    let draft = bench.commit();
    assert_eq!(draft.events.len(), 1, "only a suspension");
}

#[test]
fn an_unrequested_step_result_diverges() {
    let mut bench = Bench::new();
    let header =
        CommitHeader { n: 0, epoch: Epoch(1), commit_id: CommitId(1), horizon: Index(0), waits: false, is_while_paused: false };
    let step = StepCompleted {
        call_id: CallId::root(3),
        name: name("ghost"),
        input_hash: None,
        output: json("1"),
        attempt: 1,
        took_ms: 0,
        input: None,
    };
    bench.engine.feed(Record { index: Index(1), at: Timestamp(2_000), commit: Some(header), events: vec![step.into()] });
    let report = bench.diverges();
    assert_eq!((report.recorded.as_str(), report.attempted.as_str()), ("step `ghost` at 3", "nothing"));
}

/// Opens a step and starts it.
fn run_step(bench: &mut Bench, step: &str) -> CallId {
    let call_id = bench.engine.open_step(name(step));
    assert_eq!(bench.engine.poll_step(&call_id), StepPoll::Start { attempt: 1 });
    call_id
}

#[test]
fn a_paused_run_records_its_steps_one_by_one_and_does_nothing_else() {
    let mut bench = Bench::new();
    bench.poll();
    let (a, b) = (run_step(&mut bench, "a"), run_step(&mut bench, "b"));
    bench.idle();
    bench.pause();
    bench.signal("s", "1");
    bench.idle();
    for call_id in [&a, &b] {
        bench.engine.report_step(call_id, Ok(json("5")), 2);
        let draft = bench.commit();
        assert!(draft.is_while_paused && !draft.waits);
        assert_eq!((draft.horizon, draft.events.len()), (Index(0), 1), "H3 is enough for a commit while paused");
        bench.idle();
        assert_eq!(bench.engine.poll_step(call_id), StepPoll::Pending, "N6");
    }
    assert!(bench.engine.is_paused() && !bench.engine.has_running_steps());

    // The engine that holds the run and one that has only the log continue alike.
    let mut other = bench.restart();
    other.poll();
    assert_eq!((other.engine.open_step(name("a")), other.engine.open_step(name("b"))), (a.clone(), b.clone()));
    for call_id in [&a, &b] {
        assert_eq!(other.engine.poll_step(call_id), StepPoll::Pending);
    }
    for bench in [&mut bench, &mut other] {
        bench.resume();
        for call_id in [&a, &b] {
            bench.poll();
            assert_eq!(bench.engine.poll_step(call_id), StepPoll::Recorded(Ok(json("5"))));
        }
        let last = bench.engine.open_step(name("c"));
        assert_eq!(bench.engine.poll_step(&last), StepPoll::Pending, "N2: the resume is not delivered yet");
        bench.poll();
        assert_eq!(bench.engine.poll_step(&last), StepPoll::Start { attempt: 1 });
        bench.engine.report_step(&last, Ok(json("6")), 1);
        let draft = bench.commit();
        assert_eq!((draft.is_while_paused, draft.horizon), (false, Index(5)));
    }
    assert_eq!(bench.log, other.log);
}

/// The calls of a rejected commit go out later, and the step that ran beside it is called at the same horizon again.
#[test]
fn the_calls_of_a_paused_run_follow_the_results_of_its_steps() {
    let mut bench = Bench::new();
    bench.poll();
    let timer = bench.engine.start_timer(Timestamp(9_999));
    let step = run_step(&mut bench, "a");
    assert!(matches!(bench.engine.advance(), Ok(Advance::Commit(_))));
    bench.engine.report_step(&step, Ok(json("5")), 2); // while the commit is on its way
    bench.pause();
    bench.engine.rejected_while_paused();
    let pause_state = bench.commit();
    assert_eq!((pause_state.is_while_paused, pause_state.n, pause_state.events.len()), (true, 0, 1));
    bench.signal("s", "1");

    let mut other = bench.restart();
    other.engine.set_strict();
    other.poll();
    assert_eq!(other.engine.start_timer(Timestamp(9_999)), timer);
    let again = other.engine.open_step(name("a"));
    assert_eq!(other.engine.poll_step(&again), StepPoll::Pending);
    for bench in [&mut bench, &mut other] {
        bench.resume();
        bench.poll();
        assert_eq!(bench.engine.poll_step(&step), StepPoll::Recorded(Ok(json("5"))));
        let draft = bench.commit();
        assert_eq!((draft.n, draft.horizon, draft.is_while_paused), (1, Index(4), false));
        assert_eq!(draft.events, [crate::log::event::TimerStarted { call_id: timer.clone(), due_at: Timestamp(9_999) }.into()]);
    }
    assert_eq!(bench.log, other.log);
}

/// N7: a poll of the mailbox is recorded before the code observes what came during the pause.
#[test]
fn what_a_paused_run_had_seen_is_recorded_before_it_sees_more() {
    let mut bench = Bench::new();
    let step = {
        bench.poll();
        let step = run_step(&mut bench, "a");
        bench.idle();
        step
    };
    bench.signal("other", "1");
    assert_eq!(bench.engine.count_signals(&exactly("s")), 0);
    bench.poll();
    let refused = match bench.engine.advance() {
        Ok(Advance::Commit(draft)) => draft,
        other => panic!("expected a commit, got {other:?}"),
    };
    bench.pause();
    bench.engine.rejected_while_paused();
    bench.signal("s", "1");
    bench.idle();
    bench.resume();
    let draft = bench.commit();
    assert_eq!((draft.n, draft.horizon, &draft.events), (refused.n, refused.horizon, &refused.events));
    bench.engine.report_step(&step, Ok(json("5")), 2);
    bench.poll();
    let draft = bench.commit();
    assert_eq!((draft.is_while_paused, draft.horizon), (false, Index(5)));
}

#[test]
fn nothing_starts_at_the_end_of_a_log_that_ends_in_a_pause() {
    let mut bench = Bench::new();
    bench.pause();
    bench.signal("s", "1");
    bench.poll();
    let awaited = bench.engine.next_call_id();
    assert_eq!(bench.engine.await_signal(&awaited, &exactly("s"), None).map(|(_, value)| value), Some(json("1")));
    let step = bench.engine.open_step(name("a"));
    assert_eq!(bench.engine.poll_step(&step), StepPoll::Pending, "N6");
    bench.idle();
    bench.resume();
    let draft = bench.commit();
    assert_eq!((draft.horizon, draft.events[0].name()), (Index(2), "signal_consumed"));
}

fn cancel() -> CancelRequested {
    CancelRequested::new("enough".to_owned())
}

#[test]
fn a_cancel_that_the_code_has_not_seen_goes_along_when_it_continues_as_new() {
    // After the event that made the code continue: the waits that it interrupts have ended.
    let mut late = Bench::new();
    late.poll();
    let task = late.engine.schedule_task(name("t"), json("1"));
    late.commit();
    late.signal("s", "1");
    late.engine.continue_as_new(json("2"));
    late.input(cancel());
    late.poll();
    assert!(late.engine.ready_at(&task).is_some());
    assert_eq!(late.commit().carries.cancel_reason.as_deref(), Some("enough"));

    // Before it, while nothing was open that it could interrupt.
    let mut due = Bench::new();
    due.poll();
    let step = due.engine.open_step(name("s"));
    due.engine.poll_step(&step);
    due.idle();
    due.input(cancel());
    due.poll();
    due.engine.report_step(&step, Ok(json("1")), 0);
    due.commit();
    due.poll();
    due.engine.poll_step(&step);
    due.engine.continue_as_new(json("2"));
    assert_eq!(due.commit().carries.cancel_reason.as_deref(), Some("enough"));
}

#[test]
fn a_cancel_that_the_code_has_seen_stays_with_its_generation() {
    for watches in [false, true] {
        let mut bench = Bench::new();
        bench.poll();
        let timer = bench.engine.start_timer(Timestamp(9_999));
        let call_id = if watches { bench.engine.await_canceled() } else { timer };
        bench.commit();
        bench.input(cancel());
        bench.poll();
        assert!(bench.engine.poll_call(&call_id).is_some_and(|result| result.is_err()));
        bench.engine.continue_as_new(json("2"));
        assert_eq!(bench.commit().carries.cancel_reason, None);
    }
}

#[test]
fn a_cancel_of_the_generation_before_interrupts_the_first_wait() {
    let key = RunKey::new(Namespace::default(), RunId::new("run").unwrap());
    let mut bench = Bench { engine: Engine::new(key), log: Log::default() };
    bench.input(RunStarted {
        generation: 1,
        cancel_reason: Some(String::new()),
        ..RunStarted::new(name("k"), Payload::null(), 1)
    });
    bench.poll();
    assert!(bench.engine.is_canceled());
    let first = bench.engine.start_timer(Timestamp(9_999));
    assert!(bench.engine.poll_call(&first).is_some_and(|result| result.is_err_and(|failure| failure.is_canceled())));
    let second = bench.engine.start_timer(Timestamp(9_999));
    assert_eq!(bench.engine.poll_call(&second), None);
}

#[test]
fn a_result_in_flight_that_cannot_be_taken_becomes_the_failure_of_its_step() {
    let mut bench = Bench::new();
    bench.poll();
    let (small, large) = (bench.engine.open_step(name("small")), bench.engine.open_step(name("large")));
    for step in [&small, &large] {
        assert_eq!(bench.engine.poll_step(step), StepPoll::Start { attempt: 1 });
        bench.engine.report_step(step, Ok(json("1")), 0);
    }
    let Ok(Advance::Commit(draft)) = bench.engine.advance() else { panic!("results are committed") };
    bench.engine.fail_reported(&large, Failure::retryable("too large"));
    let events = bench.engine.in_flight().unwrap().to_vec();
    let Event::StepFailed(failed) = &events[1] else { panic!("{events:?}") };
    assert_eq!((failed.retry_at, failed.failure.retryable, &events[0]), (None, false, &draft.events[0]));
    let header = CommitHeader {
        n: 0,
        epoch: Epoch(1),
        commit_id: CommitId(9),
        horizon: draft.horizon,
        waits: false,
        is_while_paused: false,
    };
    bench.engine.committed(header, Index(1), Timestamp(2_000));
    bench.poll();
    assert_eq!(bench.engine.poll_step(&small), StepPoll::Recorded(Ok(json("1"))));
    bench.poll();
    assert!(matches!(bench.engine.poll_step(&large), StepPoll::Recorded(Err(failure)) if failure.message == "too large"));
}

#[test]
fn a_refused_call_schedules_nothing_and_takes_its_call_id() {
    let mut bench = Bench::new();
    bench.poll();
    let call_id = bench.engine.refuse_task(name("t"), Failure::fatal("too large"));
    bench.engine.configure(&call_id, &mut |_| panic!("there is nothing to configure"));
    assert!(matches!(bench.engine.poll_call(&call_id), Some(Err(_))));
    assert_eq!(bench.engine.schedule_task(name("t"), Payload::null()).to_string(), "1");
    assert_eq!(bench.commit().events.len(), 1);
    let mut replay = bench.restart();
    replay.poll();
    let call_id = replay.engine.refuse_task(name("t"), Failure::fatal("too large"));
    assert!(matches!(replay.engine.poll_call(&call_id), Some(Err(_))));
    replay.engine.schedule_task(name("t"), Payload::null());
    replay.idle();
}

/// ADR 0003: the order of a hash map differs each time; its content may not.
#[test]
fn a_strict_replay_compares_payloads_by_value_and_not_by_spelling() {
    let recorded = r#"{"a":1,"b":[1.0,"A"]}"#;
    let make_calls = |engine: &mut Engine, text: &str| {
        engine.schedule_task(name("t"), json(text));
        engine.set_state(name("s"), json(text));
        engine.finish(Ok(json(text)));
    };
    let mut bench = Bench::new();
    bench.poll();
    make_calls(&mut bench.engine, recorded);
    bench.commit();
    for (text, is_same) in [
        (recorded, true),
        (r#"{ "b": [1, "\u0041"], "a": 1 }"#, true),
        (r#"{"a":1,"b":["A",1.0]}"#, false),
        (r#"{"a":2,"b":[1.0,"A"]}"#, false),
    ] {
        let mut other = bench.restart();
        other.engine.set_strict();
        other.poll();
        make_calls(&mut other.engine, text);
        assert_eq!(other.engine.advance().is_ok(), is_same, "{text}");
    }
}

#[test]
fn a_call_inside_of_too_many_joins_pauses_the_run_before_anything_is_written() {
    let deep = |parts: usize| Branch::of_arm(&CallId::from_path(&vec![0; parts]).unwrap(), 0);
    for (parts, is_taken) in [(CALL_ID_PARTS_MAX - 2, true), (CALL_ID_PARTS_MAX, false)] {
        let mut bench = Bench::new();
        bench.poll();
        bench.engine.enter_branch(deep(parts));
        bench.engine.start_timer(Timestamp(9_000));
        match bench.engine.advance() {
            Ok(Advance::Commit(draft)) => assert!(is_taken && draft.events.len() == 1),
            Err(Fault::Misuse(message)) => assert!(!is_taken && message.contains("more than 127 combinators"), "{message}"),
            other => panic!("{other:?}"),
        }
    }
}

/// SG6.
#[test]
fn a_segment_that_has_become_too_long_pauses_before_another_call() {
    let mut bench = Bench::new();
    bench.engine.set_agent();
    bench.poll();
    bench.engine.start_timer(Timestamp(9_999));
    bench.commit();
    for _ in 0..segment::SEGMENT_EVENTS_MAX {
        bench.signal("word", "1");
    }
    bench.engine.start_timer(Timestamp(9_999));
    let too_long = |bench: &mut Bench| loop {
        match bench.engine.advance() {
            Ok(Advance::Poll(_)) => {}
            Err(Fault::TooLong(message)) => return message,
            other => panic!("{other:?}"),
        }
    };
    let message = too_long(&mut bench);
    assert!(message.contains("100001 events"), "{message}");
    let pause = Fault::TooLong(message).into_pause().unwrap();
    assert_eq!(pause.reason, PauseReason::SegmentTooLong);
    bench.input(pause);
    bench.resume();
    assert_eq!(bench.commit().events.len(), 1, "the resume allows as many again");
}

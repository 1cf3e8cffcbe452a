//! Middleware: its deterministic part is code of the run, its effectful part surrounds real attempts.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use onward::middleware::{AttemptCall, Middleware, MiddlewareFuture, NextAttempt, NextRun, Redaction, RunCall, Timed, Timing};
use onward::prelude::*;
use onward::shell::{Activation, Query, Shell, ShellCode};
use onward::testing::{Replay, Script, World};
use onward_core::engine::Fault;
use onward_core::event::CancelRequested;
use onward_core::{Event, Payload};

type Seen = Arc<Mutex<Vec<String>>>;

/// Notes what it surrounds.
#[derive(Clone)]
struct Notes {
    name: &'static str,
    seen: Seen,
}

impl Notes {
    fn note(&self, text: String) {
        self.seen.lock().unwrap().push(format!("{} {text}", self.name));
    }
}

impl Middleware for Notes {
    fn run<'a>(&'a self, call: RunCall, next: NextRun<'a>) -> MiddlewareFuture<'a> {
        Box::pin(async move {
            self.note(format!("run {} {:?}", call.kind, call.input));
            let result = next.run(call).await;
            self.note("run ended".to_owned());
            result
        })
    }

    fn attempt<'a>(&'a self, call: AttemptCall, next: NextAttempt<'a>) -> MiddlewareFuture<'a> {
        Box::pin(async move {
            self.note(format!("{} {} {} {:?}", call.kind.as_str(), call.name, call.attempt, call.input));
            let result = next.run(call).await;
            self.note("attempt ended".to_owned());
            result
        })
    }
}

fn notes(name: &'static str) -> (Notes, Seen) {
    let seen = Seen::default();
    (Notes { name, seen: seen.clone() }, seen)
}

fn attempts(seen: &Seen) -> Vec<String> {
    seen.lock().unwrap().iter().filter(|note| !note.contains(" run ")).cloned().collect()
}

#[test]
fn middlewares_surround_runs_and_attempts_in_their_order() {
    let (outer, seen) = notes("outer");
    let inner = Notes { name: "inner", seen: seen.clone() };
    let code = async |ctx: Ctx, input: u32| ctx.step("s", async || Ok::<_, Failure>(input + 1)).input(&input).await;
    let mut world = World::new(code, &1).middleware(outer).middleware(inner).without_shadow_replay();
    world.run_until_idle().unwrap();
    assert_eq!(world.output(), "2");
    let expected = [
        "outer run test 1",
        "inner run test 1",
        "outer step s 1 1",
        "inner step s 1 1",
        "inner attempt ended",
        "outer attempt ended",
        "inner run ended",
        "outer run ended",
    ];
    assert_eq!(*seen.lock().unwrap(), expected); // MW1
}

#[test]
fn a_replay_runs_the_deterministic_part_again_and_no_attempt() {
    let (outer, seen) = notes("outer");
    let code = async |ctx: Ctx, (): ()| {
        ctx.step("a", async || Ok::<_, Failure>(())).await?;
        ctx.signal("go").recv::<()>().await?;
        ctx.step("b", async || Ok::<_, Failure>(())).await
    };
    let mut world = World::new(code, &()).middleware(outer);
    world.run_until_idle().unwrap();
    world.crash();
    world.signal("go", &());
    world.run_until_idle().unwrap();
    assert_eq!(world.output(), "null");
    assert!(world.shadow_replays() > 2);
    let begun = seen.lock().unwrap().iter().filter(|note| note.starts_with("outer run test")).count();
    assert_eq!(begun as u64, world.shadow_replays() + 2, "each replay, and the two lives of the run");
    assert_eq!(attempts(&seen).len(), 4, "two attempts in all: {:?}", attempts(&seen)); // MW2
}

/// Changes inputs, results and failures.
struct Changes;

impl Middleware for Changes {
    fn run<'a>(&'a self, mut call: RunCall, next: NextRun<'a>) -> MiddlewareFuture<'a> {
        Box::pin(async move {
            let input: u32 = call.input.read()?;
            call.input = Payload::json(&(input * 10))?;
            let ctx = call.ctx.clone();
            let tenant = ctx.step("tenant", async || Ok::<_, Failure>("acme".to_owned())).await?;
            ctx.state().set("tenant", &tenant)?;
            match next.run(call).await {
                Ok(output) => Ok(Payload::json(&format!("{tenant} {output:?}"))?),
                Err(failure) if failure.code == "harmless" => Ok(Payload::json("harmless")?),
                Err(failure) => Err(failure.with_code("wrapped")),
            }
        })
    }

    fn attempt<'a>(&'a self, call: AttemptCall, next: NextAttempt<'a>) -> MiddlewareFuture<'a> {
        Box::pin(async move {
            let is_doubled = call.name == "doubled";
            let output = next.run(call).await?;
            if is_doubled { Ok(Payload::json(&(2 * output.read::<u32>()?))?) } else { Ok(output) }
        })
    }
}

#[test]
fn the_code_sees_the_value_that_a_middleware_returns_live_and_replayed() {
    let code = async |ctx: Ctx, input: u32| {
        let doubled = ctx.step("doubled", async || Ok::<_, Failure>(input + 1)).await?;
        assert_eq!(doubled, 22); // MW3, in the first pass and in every replay
        ctx.sleep(secs(1)).await?;
        Ok(doubled)
    };
    Script::new(code, &1).middleware(Changes).crash_everywhere();
    let outcome = Script::new(code, &1).middleware(Changes).run();
    assert_eq!(outcome.output::<String>(), "acme 22");
    assert_eq!(outcome.steps_run(), ["tenant", "doubled"]);
    let recorded = outcome.log().events().map(|(_, event)| event).filter_map(|event| match event {
        Event::StepCompleted(step) if step.name.as_str() == "doubled" => Some(format!("{:?}", step.output)),
        _ => None,
    });
    assert_eq!(recorded.collect::<Vec<_>>(), ["22"]);
    Replay::new("test", outcome.log()).middleware(Changes).against(code).unwrap();
}

#[test]
fn calls_of_a_middleware_are_compared_on_replay_like_those_of_the_code() {
    let code = async |ctx: Ctx, _: u32| ctx.signal("go").recv::<()>().await;
    let mut world = World::new(code, &1).middleware(Changes);
    world.run_until_idle().unwrap();
    let report = Replay::new("test", world.log()).against(code).unwrap_err(); // MW2: without the middleware it is other code
    assert!(report.message.contains("tenant"), "{}", report.message);
}

/// Depends on something that is not recorded.
struct Counts(AtomicU32);

impl Middleware for Counts {
    fn run<'a>(&'a self, call: RunCall, next: NextRun<'a>) -> MiddlewareFuture<'a> {
        let name = format!("s{}", self.0.fetch_add(1, Ordering::SeqCst));
        Box::pin(async move {
            let ctx = call.ctx.clone();
            ctx.step(&name, async || Ok::<_, Failure>(())).await?;
            next.run(call).await
        })
    }
}

#[test]
#[should_panic(expected = "the log does not replay")]
fn a_middleware_that_is_not_deterministic_is_found_by_a_replay() {
    let mut world = World::new(async |_: Ctx, (): ()| Ok(()), &()).middleware(Counts(AtomicU32::new(0)));
    drop(world.run_until_idle());
}

#[test]
fn a_failure_that_a_middleware_handles_is_not_compensated_and_others_are_once() {
    let code = async |ctx: Ctx, input: u32| -> Result<()> {
        ctx.on_failure("undo", async || Ok::<_, Failure>(()));
        Err(Failure::fatal("no").with_code(if input == 10 { "harmless" } else { "serious" }))
    };
    let handled = Script::new(code, &1).middleware(Changes).run();
    assert_eq!((handled.output::<String>().as_str(), handled.steps_run()), ("harmless", &["tenant".to_owned()][..]));
    let (noting, seen) = notes("n");
    let failed = Script::new(code, &2).middleware(noting).middleware(Changes).run();
    assert_eq!(failed.failure().code, "wrapped");
    assert_eq!(failed.steps_run(), ["tenant", "undo"]);
    assert!(attempts(&seen).contains(&"n step undo 1 null".to_owned()), "compensations are attempts: {seen:?}");
}

/// Panics in the part of this name.
struct Panics(&'static str);

impl Middleware for Panics {
    fn run<'a>(&'a self, call: RunCall, next: NextRun<'a>) -> MiddlewareFuture<'a> {
        assert!(self.0 != "run", "the middleware broke");
        next.run(call)
    }

    fn attempt<'a>(&'a self, call: AttemptCall, next: NextAttempt<'a>) -> MiddlewareFuture<'a> {
        assert!(call.attempt > 1, "the middleware broke");
        next.run(call)
    }
}

#[test]
fn a_panic_of_a_middleware_counts_as_one_of_the_code_that_it_surrounds() {
    let code = async |ctx: Ctx, (): ()| ctx.step("s", async || Ok::<_, Failure>(1)).retry(2).await;
    let outcome = Script::new(code, &()).middleware(Panics("attempt")).run();
    assert_eq!(outcome.output::<u32>(), 1);
    let failed = outcome.log().events().map(|(_, event)| event).find_map(|event| match event {
        Event::StepFailed(step) => Some(step.failure.clone()),
        _ => None,
    });
    let failed = failed.unwrap();
    assert_eq!((failed.code.as_str(), failed.message.contains("the middleware broke")), ("panicked", true));
    let mut world = World::new(code, &()).middleware(Panics("run"));
    assert!(matches!(world.run_until_idle(), Err(Fault::Panicked(message)) if message.contains("the middleware broke")));
}

/// Awaits something that is not of the context.
struct Sleeps;

impl Middleware for Sleeps {
    fn run<'a>(&'a self, call: RunCall, next: NextRun<'a>) -> MiddlewareFuture<'a> {
        Box::pin(async move {
            let (sender, receiver) = futures::channel::oneshot::channel::<()>();
            std::thread::spawn(move || sender.send(()));
            receiver.await.unwrap();
            next.run(call).await
        })
    }
}

#[test]
fn io_in_the_deterministic_part_pauses_the_run() {
    let mut world = World::new(async |_: Ctx, (): ()| Ok(()), &()).middleware(Sleeps);
    let fault = world.run_until_idle().unwrap_err();
    assert!(matches!(&fault, Fault::Misuse(message) if message.contains("cannot be replayed")), "{fault:?}");
}

#[test]
fn a_cancel_request_reaches_the_code_inside_of_middlewares() {
    let (noting, seen) = notes("n");
    let code = async |ctx: Ctx, (): ()| ctx.signal("never").recv::<()>().await;
    let mut world = World::new(code, &()).middleware(noting).without_shadow_replay();
    world.run_until_idle().unwrap();
    world.input(CancelRequested::new("enough".to_owned())).unwrap();
    world.run_until_idle().unwrap();
    assert!(world.outcome().unwrap().unwrap_err().is_canceled());
    assert_eq!(*seen.lock().unwrap(), ["n run test null", "n run ended"]);
}

#[test]
fn a_generation_that_continues_as_new_ends_inside_of_its_middlewares() {
    let (noting, seen) = notes("n");
    let code = async |ctx: Ctx, left: u32| if left == 0 { Ok(0) } else { ctx.continue_as_new(&(left - 1)).await };
    let mut world = World::new(code, &2).middleware(noting).without_shadow_replay();
    world.run_until_idle().unwrap();
    assert_eq!(*seen.lock().unwrap(), ["n run test 2", "n run test 1", "n run test 0", "n run ended"]);
}

/// Races the code with a timer.
struct Within;

impl Middleware for Within {
    fn run<'a>(&'a self, call: RunCall, next: NextRun<'a>) -> MiddlewareFuture<'a> {
        Box::pin(async move {
            let ctx = call.ctx.clone();
            ctx.timeout(next.run(call), secs(60)).await
        })
    }
}

#[test]
fn a_middleware_may_race_the_code_with_other_calls() {
    let code = async |ctx: Ctx, wait: u64| {
        let first = ctx.step("first", async || Ok::<_, Failure>(1)).await?;
        ctx.sleep(secs(wait)).await?;
        Ok(first + ctx.step("second", async || Ok::<_, Failure>(1)).await?)
    };
    let script = |wait: u64| Script::new(code, &wait).middleware(Within);
    assert_eq!(script(59).run().output::<u32>(), 2);
    assert!(script(61).run().failure().is_timed_out());
    script(59).crash_everywhere();
    script(61).crash_everywhere();
}

/// A shell that receives two signals and returns its input with them.
struct Receives;

impl Shell for Receives {
    fn activate(&self, code: &Arc<ShellCode>, activation: Activation) {
        use onward::shell::{Call, CallFuture};
        let recv = |name: &'static str| {
            let opened = code.open(|ctx, _| {
                let recv = ctx.signal(name).recv::<u32>();
                Box::pin(CallFuture::durable(recv, |result| Ok(Payload::json(&result?)?))) as std::pin::Pin<Box<dyn Call>>
            });
            opened.unwrap();
        };
        match activation {
            Activation::Start(input) => {
                code.with(|ctx| ctx.state().set("input", &input.read::<u32>().unwrap())).unwrap().unwrap();
                recv("a");
                code.hand_back(None);
            }
            Activation::Answer { call: 0, .. } => {
                recv("b");
                code.hand_back(None);
            }
            Activation::Answer { result, .. } => code.hand_back(Some(result)),
            Activation::Update(_) => panic!("there is no update"),
        }
    }
    fn query(&self, _: &Arc<ShellCode>, _: Query) {}
    fn close(&self, _: &Arc<ShellCode>) {}
}

#[test]
fn code_of_other_languages_runs_inside_of_middlewares() {
    let script =
        Script::foreign(Arc::new(Receives), false, &4).middleware(Changes).signal(secs(1), "a", &1).signal(secs(2), "b", &2);
    let outcome = script.run();
    assert_eq!(outcome.output::<String>(), "acme 2");
    assert_eq!(outcome.steps_run(), ["tenant"]);
    let input = outcome.log().events().map(|(_, event)| event).find_map(|event| match event {
        Event::StateSet(set) if set.key.as_str() == "input" => Some(format!("{:?}", set.value)),
        _ => None,
    });
    assert_eq!(input.as_deref(), Some("40"));
    script.crash_everywhere();
    let raced = Script::foreign(Arc::new(Receives), false, &4).middleware(Timing::new(drop).run_state("took_ms"));
    let raced = raced.signal(secs(1), "a", &1).signal(secs(2), "b", &2).run();
    let took = raced.log().events().map(|(_, event)| event).find_map(|event| match event {
        Event::StateSet(set) if set.key.as_str() == "took_ms" => Some(set.value.read::<u64>().unwrap()),
        _ => None,
    });
    assert_eq!(took, Some(2_000));
}

#[test]
fn a_middleware_that_gives_up_the_code_of_another_language_pauses_the_run() {
    let mut world = World::foreign(Arc::new(Receives), false, &4).middleware(Within);
    world.run_until_idle().unwrap();
    fire_all(&mut world);
    let fault = world.run_until_idle().unwrap_err();
    assert!(matches!(&fault, Fault::Misuse(message) if message.contains("dropped the code")), "{fault:?}");
}

fn fire_all(world: &mut World) {
    while world.next_timer().is_some() {
        super::fire_next(world);
    }
}

#[test]
fn redaction_applies_to_results_failures_recorded_inputs_and_outputs() {
    let redaction = || Redaction::new().field("card").text(|text| text.contains("4111").then(|| text.replace("4111", "****")));
    let code = async |ctx: Ctx, (): ()| -> Result<serde_json::Value> {
        let input = serde_json::json!({"card": "4111", "n": 1});
        let seen = ctx
            .step("pay", async || Ok::<_, Failure>(serde_json::json!({"card": 4111, "ok": true})))
            .input(&input)
            .record()
            .await?;
        assert_eq!(seen, serde_json::json!({"card": "[redacted]", "ok": true}));
        let failed = ctx.step("fails", async || Err::<(), _>(Failure::fatal("card 4111 declined"))).await.unwrap_err();
        assert_eq!(failed.message, "card **** declined");
        Ok(serde_json::json!(["card 4111", seen]))
    };
    let script = Script::new(code, &()).middleware(redaction());
    let outcome = script.run();
    assert_eq!(outcome.output::<serde_json::Value>()[0], "card ****");
    let log: String = outcome.log().to_json_lines();
    assert!(!log.contains("4111"), "{log}");
    assert!(log.contains(r#""n":1"#), "the rest of the input is recorded: {log}");
    script.crash_everywhere();
}

#[test]
fn timing_reports_each_attempt_once_with_its_failure() {
    let timed: Seen = Seen::default();
    let seen = timed.clone();
    let line = |timed: Timed| format!("{} {} {} {:?}", timed.kind.as_str(), timed.name, timed.attempt, timed.failed);
    let timing = Timing::new(move |timed| seen.lock().unwrap().push(line(timed)));
    let code = async |ctx: Ctx, (): ()| {
        let attempt =
            async |attempt: onward::ctx::Attempt| if attempt.number == 1 { Err(Failure::retryable("no")) } else { Ok(1) };
        ctx.step_with("s", attempt).retry(2).await
    };
    let mut world = World::new(code, &()).middleware(timing);
    world.run_until_idle().unwrap();
    fire_all(&mut world);
    world.run_until_idle().unwrap();
    assert_eq!(world.output(), "1");
    assert_eq!(*timed.lock().unwrap(), [r#"step s 1 Some("failed")"#, "step s 2 None"]);
}

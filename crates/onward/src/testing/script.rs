//! A workflow with a scripted environment: results of steps and tasks, timed signals, decisions of approvals.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use onward_core::engine::matching;
use onward_core::event::{CancelRequested, SignalReceived, UpdateReceived};
use onward_core::{Event, Failure, Log, Name, Payload, RunId, RunKey};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::outcome::ScriptOutcome;
use super::play::{Chooser, CrashAt, DefaultChooser, Play, Random};
use super::steps::{Background, Steps};
use super::world::{World, default_key};
use crate::Result;
use crate::ctx::Ctx;
use crate::host::code::{Handler, WorkerShared};
use crate::middleware::Middleware;
use crate::registry::{Registry, erase_code, foreign_code};
use crate::shell::{Shell, unparks};

/// The result of a task or child of a kind, from its input and the number of the attempt.
pub(super) type Responder = Arc<dyn Fn(&Payload, u32) -> Result<Payload> + Send + Sync>;

/// The seed of `ctx.random()`: the same in every play, so that plays differ only in their schedule.
const RUN_SEED: u64 = 7;

/// A workflow and its scripted environment. Every run starts from the beginning.
#[derive(Clone)]
pub struct Script {
    key: RunKey,
    handler: Handler,
    input: Payload,
    registry: Registry,
    steps: BTreeMap<Name, Vec<Result<Payload>>>,
    pub(super) tasks: BTreeMap<Name, Responder>,
    pub(super) children: BTreeMap<Name, Responder>,
    pub(super) approvals: BTreeMap<Name, Vec<Decided>>,
    pub(super) promises: BTreeMap<Name, Result<Payload>>,
    pub(super) timeline: Vec<(Duration, Event)>,
    updates: usize,
    pub(super) generations_max: u32,
    shadow: bool,
    /// The runtime of steps that are not scripted; created on first use, shared by all runs.
    background: Arc<OnceLock<Background>>,
}

/// The decision of an approval, and its delay after the request.
#[derive(Clone)]
pub(super) struct Decided {
    pub after: Duration,
    pub approved: bool,
    pub feedback: Option<String>,
    pub answer: Option<Payload>,
}

fn json(value: &(impl Serialize + ?Sized)) -> Payload {
    Payload::json(value).expect("a test's value can be written as JSON")
}

pub(super) fn update_id(nth: usize) -> String {
    format!("update {nth}")
}

fn name(text: &str) -> Name {
    Name::new(text).expect("a test's name is a name")
}

impl Script {
    pub fn new<I, O, F, Fut>(workflow: F, input: &(impl Serialize + ?Sized)) -> Script
    where
        I: DeserializeOwned + Send + 'static,
        O: Serialize + 'static,
        F: Fn(Ctx, I) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O>> + Send + 'static,
    {
        Script::with_handler(erase_code(workflow), json(input))
    }

    /// Creates a script of code in another language. That of an agent is not replayed after every commit, because it may diverge.
    pub fn foreign(shell: Arc<dyn Shell>, is_agent: bool, input: &(impl Serialize + ?Sized)) -> Script {
        let script = Script::with_handler(foreign_code(shell, is_agent), json(input));
        if is_agent { script.without_shadow_replay() } else { script }
    }

    fn with_handler(handler: Handler, input: Payload) -> Script {
        Script {
            key: default_key(),
            handler,
            input,
            registry: Registry::default(),
            steps: BTreeMap::new(),
            tasks: BTreeMap::new(),
            children: BTreeMap::new(),
            approvals: BTreeMap::new(),
            promises: BTreeMap::new(),
            timeline: Vec::new(),
            updates: 0,
            generations_max: u32::MAX,
            shadow: true,
            background: Arc::default(),
        }
    }

    /// Sets the id of the run; default `test`. The ids of its children, approvals and promises derive from it.
    pub fn id(mut self, run: &str) -> Script {
        self.key.id = RunId::new(run).expect("a test's run id is a name");
        self
    }

    /// Adds a dependency, as on the real builder.
    pub fn dep<T: std::any::Any + Send + Sync>(mut self, dep: T) -> Script {
        self.registry.dep(dep);
        self
    }

    /// Adds a middleware, as on the real builder. Scripted results do not pass it (MW2).
    pub fn middleware(mut self, middleware: impl Middleware) -> Script {
        self.registry.middleware(middleware);
        self
    }

    /// Sets the result of a step, which then does not run. Several calls set the results of several attempts of steps with this
    /// name; the last one repeats. An attempt that a crash interrupted gets the same result again.
    pub fn step(mut self, step: &str, value: &(impl Serialize + ?Sized)) -> Script {
        self.steps.entry(name(step)).or_default().push(Ok(json(value)));
        self
    }

    pub fn step_fails(mut self, step: &str, failure: Failure) -> Script {
        self.steps.entry(name(step)).or_default().push(Err(failure));
        self
    }

    /// Sets the results of tasks of a kind, from their input. Tasks of other kinds wait for a worker that never comes.
    pub fn task<I, O>(self, kind: &str, answer: impl Fn(I) -> Result<O> + Send + Sync + 'static) -> Script
    where
        I: DeserializeOwned,
        O: Serialize,
    {
        self.task_with(kind, move |input, _| answer(input))
    }

    /// Sets the results of tasks like [`Script::task`], with the number of the attempt: 1, 2, … A script runs many times, so
    /// differences between attempts must follow from that number and not from a counter in the test.
    pub fn task_with<I, O>(mut self, kind: &str, answer: impl Fn(I, u32) -> Result<O> + Send + Sync + 'static) -> Script
    where
        I: DeserializeOwned,
        O: Serialize,
    {
        self.tasks.insert(name(kind), responder(answer));
        self
    }

    /// Sets the results of children of a kind, from their input.
    pub fn child<I, O>(mut self, kind: &str, answer: impl Fn(I) -> Result<O> + Send + Sync + 'static) -> Script
    where
        I: DeserializeOwned,
        O: Serialize,
    {
        self.children.insert(name(kind), responder(move |input, _| answer(input)));
        self
    }

    /// Approves approvals of this name as soon as they are requested. Several calls decide several approvals of the name; the
    /// last one repeats.
    pub fn approve(self, approval: &str) -> Script {
        self.approve_after(Duration::ZERO, approval)
    }

    /// Approves this long after the request, unless the approval is closed by then.
    pub fn approve_after(self, after: Duration, approval: &str) -> Script {
        self.decide(approval, Decided { after, approved: true, feedback: None, answer: None })
    }

    /// Approves approvals of this name with a structured answer, as soon as they are requested. An answer that does not fit fails the
    /// approval.
    pub fn approve_with(self, approval: &str, answer: &(impl Serialize + ?Sized)) -> Script {
        self.approve_with_after(Duration::ZERO, approval, answer)
    }

    /// Approves with a structured answer this long after the request, unless the approval is closed by then.
    pub fn approve_with_after(self, after: Duration, approval: &str, answer: &(impl Serialize + ?Sized)) -> Script {
        self.decide(approval, Decided { after, approved: true, feedback: None, answer: Some(json(answer)) })
    }

    pub fn reject(self, approval: &str, feedback: &str) -> Script {
        self.reject_after(Duration::ZERO, approval, feedback)
    }

    pub fn reject_after(self, after: Duration, approval: &str, feedback: &str) -> Script {
        self.decide(approval, Decided { after, approved: false, feedback: Some(feedback.to_owned()), answer: None })
    }

    fn decide(mut self, approval: &str, decided: Decided) -> Script {
        self.approvals.entry(name(approval)).or_default().push(decided);
        self
    }

    /// Resolves promises of this name as soon as they are created.
    pub fn resolve(mut self, promise: &str, value: &(impl Serialize + ?Sized)) -> Script {
        self.promises.insert(name(promise), Ok(json(value)));
        self
    }

    /// Rejects promises of this name as soon as they are created.
    pub fn reject_promise(mut self, promise: &str, failure: Failure) -> Script {
        self.promises.insert(name(promise), Err(failure));
        self
    }

    /// Sends a signal this long after the start; with zero it arrives before the code runs.
    pub fn signal(mut self, after: Duration, signal: &str, payload: &(impl Serialize + ?Sized)) -> Script {
        let event = SignalReceived { name: name(signal), payload: json(payload), signal_id: None, sender: None };
        self.timeline.push((after, event.into()));
        self
    }

    /// Sends an update this long after the start; [`ScriptOutcome::update`] returns its result.
    pub fn update(mut self, after: Duration, update: &str, input: &(impl Serialize + ?Sized)) -> Script {
        let event = UpdateReceived { update_id: update_id(self.updates), name: name(update), payload: json(input) };
        self.updates += 1;
        self.timeline.push((after, event.into()));
        self
    }

    /// Stops a run that continues as new forever: after this many generations it is left open.
    pub fn generations(mut self, max: u32) -> Script {
        self.generations_max = max;
        self
    }

    /// Requests cancellation this long after the start.
    pub fn cancel(mut self, after: Duration, reason: &str) -> Script {
        self.timeline.push((after, CancelRequested::new(reason.to_owned()).into()));
        self
    }

    /// Disables the replay of the log after every commit, for very long runs.
    pub fn without_shadow_replay(mut self) -> Script {
        self.shadow = false;
        self
    }

    /// Runs until the run ends or nothing more can happen.
    ///
    /// # Panics
    /// Panics if the code diverges on replay, panics, or awaits a foreign future.
    #[track_caller]
    pub fn run(&self) -> ScriptOutcome {
        self.play(&mut DefaultChooser)
    }

    /// Runs once per commit and crash point: the process dies before, or right after, the n-th commit and starts again. Every run
    /// must end like the one without a crash, and record the same steps once.
    ///
    /// # Panics
    /// Panics if one does not; the message names the crash.
    #[track_caller]
    pub fn crash_everywhere(&self) {
        let calm = self.run();
        let commits = calm.logs.iter().flat_map(Log::records).filter(|record| record.commit.is_some()).count();
        for commit in 0..commits {
            for after in [false, true] {
                let outcome = self.play(&mut CrashAt { commit, after, seen: 0 });
                let point = if after { "after" } else { "before" };
                assert_same(&calm, &outcome, &format!("after a crash {point} commit {commit}"));
            }
        }
    }

    /// Runs twice from the start: the code must make the same calls in the same order.
    ///
    /// # Panics
    /// Panics if it does not; the message shows the first difference.
    #[track_caller]
    pub fn assert_deterministic(&self) {
        let (first, second) = (self.run(), self.run());
        // In canonical form, because the order of a hash map does not count as a difference.
        let calls = |outcome: &ScriptOutcome| -> Vec<Event> {
            outcome.events().filter(|event| !event.is_input()).map(matching::canonical).collect()
        };
        let (first, second) = (calls(&first), calls(&second));
        for (position, (a, b)) in first.iter().zip(&second).enumerate() {
            let text = |event: &Event| {
                let texts = (matching::describe(a), matching::describe(b));
                if texts.0 == texts.1 { format!("{event:?}") } else { matching::describe(event) }
            };
            assert!(
                is_same_call(a, b),
                "call {position} differs between two runs: the code depends on something that is not recorded\n first: {}\nsecond: {}",
                text(a),
                text(b)
            );
        }
        assert_eq!(first.len(), second.len(), "two runs made different numbers of calls");
    }

    /// Runs `count` random schedules: events due at the same time happen in random order, and the process dies at random moments.
    /// Every run must end or wait like that of [`Script::run`]. If the result may depend on the order, use
    /// [`Script::schedules_with`].
    ///
    /// # Panics
    /// Panics if one does not; the message has the seed, for [`Script::schedule`].
    #[track_caller]
    pub fn schedules(&self, count: u64) {
        let calm = self.run();
        self.schedules_with(count, |outcome| {
            let (expected, found) = (describe_end(&calm), describe_end(outcome));
            assert!(
                ends(&calm) == ends(outcome),
                "{found}; in the order of the script {expected}. If both are right, check them with `.schedules_with(..)`"
            );
        });
    }

    /// Runs `count` random schedules like [`Script::schedules`], and calls `check` with the outcome of each.
    ///
    /// # Panics
    /// Panics if a run or `check` does; the message has the seed, for [`Script::schedule`].
    #[track_caller]
    pub fn schedules_with(&self, count: u64, check: impl Fn(&ScriptOutcome)) {
        for seed in 0..count {
            let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(&self.schedule(seed))));
            if let Err(panic) = checked {
                panic!("schedule {seed}: {}; reproduce it with `.schedule({seed})`", crate::host::code::panic_message(&*panic));
            }
        }
    }

    /// Runs one random schedule.
    #[track_caller]
    pub fn schedule(&self, seed: u64) -> ScriptOutcome {
        self.play(&mut Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1))
    }

    #[track_caller]
    fn play(&self, chooser: &mut dyn Chooser) -> ScriptOutcome {
        let steps = Arc::new(Steps::new(self.steps.clone()));
        let runtime = Some(self.background.get_or_init(Background::start).handle());
        let shared = WorkerShared {
            deps: Arc::new(self.registry.deps.clone()),
            middlewares: self.registry.middlewares.clone(),
            script: Some(steps.clone()),
            checks_answers: true,
            runtime,
            ..WorkerShared::default()
        };
        let world =
            World::with_handler(self.key.clone(), self.handler.clone(), self.input.clone(), shared, RUN_SEED).waking(unparks());
        let world = if self.shadow { world } else { world.without_shadow_replay() };
        let started = world.now();
        let world = Play::new(self, world).play_out(chooser);
        let seen = std::mem::take(&mut *steps.seen());
        ScriptOutcome {
            result: world.outcome(),
            elapsed: world.now().since(started),
            waits_for: world.open_calls(),
            logs: world.into_logs(),
            steps_run: seen.ran,
            steps_scripted: seen.scripted,
        }
    }
}

fn responder<I, O>(answer: impl Fn(I, u32) -> Result<O> + Send + Sync + 'static) -> Responder
where
    I: DeserializeOwned,
    O: Serialize,
{
    Arc::new(move |input, attempt| {
        let input = input.read().map_err(|error| Failure::fatal(format!("the script cannot read the input: {error}")))?;
        Ok(json(&answer(input, attempt)?))
    })
}

/// Returns whether two runs made the same call. Steps are compared by name and input, not by result. Suspensions may have
/// different reasons, because the duration of a step is not a call of the code.
fn is_same_call(a: &Event, b: &Event) -> bool {
    match (a, b) {
        (Event::RunSuspended(_), Event::RunSuspended(_)) => true,
        _ if a.is_step_result() => matching::describe(a) == matching::describe(b),
        _ => a == b,
    }
}

fn ends(outcome: &ScriptOutcome) -> Option<Result<Payload>> {
    outcome.result.as_ref().map(matching::canonical_result)
}

fn describe_end(outcome: &ScriptOutcome) -> String {
    match &outcome.result {
        None => format!("the run waits for {}", outcome.waits_for.join(", ")),
        Some(Ok(payload)) => format!("the run returns {payload:?}"),
        Some(Err(failure)) => format!("the run fails: {failure}"),
    }
}

#[track_caller]
fn assert_same(calm: &ScriptOutcome, outcome: &ScriptOutcome, when: &str) {
    assert_eq!(ends(calm), ends(outcome), "{when} the run ends differently");
    let recorded = |outcome: &ScriptOutcome| -> Vec<String> {
        let results = outcome.events().filter(|event| event.is_step_result());
        let mut results: Vec<String> = results
            .map(|event| match event {
                Event::StepCompleted(step) => format!("{} {} completed {:?}", step.call_id, step.name, step.output.canonical()),
                Event::StepFailed(step) => format!("{} {} failed, attempt {}", step.call_id, step.name, step.attempt),
                _ => String::new(),
            })
            .collect();
        results.sort();
        results
    };
    assert_eq!(recorded(calm), recorded(outcome), "{when} other steps are recorded");
}

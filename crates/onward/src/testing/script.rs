//! A workflow with everything around it scripted: what steps and tasks return, which signals come when, who approves.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use onward_core::engine::Fault;
use onward_core::event::{
    ApprovalDecided, CancelRequested, ChildCompleted, ChildFailed, PromiseResolved, SignalReceived, TaskCompleted, TaskFailed,
    UpdateReceived,
};
use onward_core::run::{Delivery, Input, Wait, WaitKind};
use onward_core::{Event, Failure, Log, Name, Payload, Place, Timestamp};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::background::{self, Background};
use super::world::{World, key};
use crate::Result;
use crate::cell::StepScript;
use crate::code::{Handler, Shared};
use crate::ctx::Ctx;
use crate::registry::{Registry, erase_workflow};
use crate::replay::replay_log;

type Responder = Arc<dyn Fn(&Payload) -> Result<Payload> + Send + Sync>;

/// How many events one run may have before a script takes it for endless.
const EVENTS_MAX: u64 = 1_000_000;

/// A workflow and the world around it. Runs as often as you like, each time from the start.
#[derive(Clone)]
pub struct Script {
    handler: Handler,
    input: Payload,
    registry: Registry,
    steps: BTreeMap<Name, VecDeque<Result<Payload>>>,
    tasks: BTreeMap<Name, Responder>,
    children: BTreeMap<Name, Responder>,
    approvals: BTreeMap<Name, Vec<Decided>>,
    promises: BTreeMap<Name, Result<Payload>>,
    timeline: Vec<(Duration, Event)>,
    updates: usize,
    generations_max: u32,
    shadow: bool,
    /// Where steps that are not scripted run; made when it is first needed, shared by all runs.
    background: Arc<OnceLock<Background>>,
}

/// What somebody says to an approval, and how long after it was asked for.
#[derive(Clone)]
struct Decided {
    after: Duration,
    approved: bool,
    feedback: Option<String>,
}

/// How a scripted run ended.
pub struct Outcome {
    result: Option<Result<Payload>>,
    /// One for each generation.
    logs: Vec<Log>,
    elapsed: Duration,
    steps_run: Vec<String>,
    waits_for: Vec<String>,
}

impl Outcome {
    /// What the workflow returned.
    ///
    /// # Panics
    /// If it failed, is still waiting, or returned something else than a `T`.
    #[track_caller]
    pub fn output<T: DeserializeOwned>(&self) -> T {
        match &self.result {
            Some(Ok(payload)) => payload.read().expect("the output is of the expected type"),
            Some(Err(failure)) => panic!("the workflow failed: {failure}"),
            None => panic!("the workflow still waits for {}", self.waits_for.join(", ")),
        }
    }

    /// The failure it ended with.
    ///
    /// # Panics
    /// If it did not fail.
    #[track_caller]
    pub fn failure(&self) -> &Failure {
        match &self.result {
            Some(Err(failure)) => failure,
            Some(Ok(payload)) => panic!("the workflow returned {payload:?}"),
            None => panic!("the workflow still waits for {}", self.waits_for.join(", ")),
        }
    }

    pub fn is_open(&self) -> bool {
        self.result.is_none()
    }

    /// Whether it ended as canceled.
    pub fn is_canceled(&self) -> bool {
        self.events().any(|event| matches!(event, Event::RunCanceled(_)))
    }

    /// The answer to the `nth` update of the script, counted from zero.
    ///
    /// # Panics
    /// If it was not answered, or with something else than a `T`.
    #[track_caller]
    pub fn update<T: DeserializeOwned>(&self, nth: usize) -> Result<T> {
        let answer = self.events().find_map(|event| match event {
            Event::UpdateAnswered(answer) if answer.update_id == update_id(nth) => Some(answer.result.clone()),
            _ => None,
        });
        let payload = answer.unwrap_or_else(|| panic!("update {nth} of the script was not answered"))?;
        Ok(payload.read().expect("the answer is of the expected type"))
    }

    /// What the run continued as new with, each time.
    ///
    /// # Panics
    /// If one of them is not a `T`.
    #[track_caller]
    pub fn continued_with<T: DeserializeOwned>(&self) -> Vec<T> {
        let inputs = self.events().filter_map(|event| match event {
            Event::RunContinued(continued) => Some(continued.input.read()),
            _ => None,
        });
        inputs.collect::<std::result::Result<_, _>>().expect("the input of the next generation is of the expected type")
    }

    /// The log of the last generation.
    pub fn log(&self) -> &Log {
        self.logs.last().expect("a run has a log")
    }

    /// The logs of all generations, oldest first: one more than the run has continued as new.
    pub fn logs(&self) -> &[Log] {
        &self.logs
    }

    fn events(&self) -> impl Iterator<Item = &Event> {
        self.logs.iter().flat_map(Log::events).map(|(_, event)| event)
    }

    /// How long it took in virtual time.
    pub fn elapsed(&self) -> Duration {
        self.elapsed
    }

    /// The steps whose closures really ran, in order, each as often as it ran.
    pub fn steps_run(&self) -> &[String] {
        &self.steps_run
    }
}

/// Counts and scripts the steps of one run.
struct Steps {
    answers: Mutex<BTreeMap<Name, VecDeque<Result<Payload>>>>,
    ran: Mutex<Vec<String>>,
}

impl StepScript for Steps {
    fn answer(&self, name: &Name, _: u32) -> Option<Result<Payload>> {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let queue = answers.get_mut(name)?;
        // The last answer stands for every further attempt.
        let answer = if queue.len() > 1 { queue.pop_front() } else { queue.front().cloned() };
        self.ran(name, 0);
        answer
    }

    fn ran(&self, name: &Name, _: u32) {
        self.ran.lock().unwrap_or_else(PoisonError::into_inner).push(name.to_string());
    }
}

fn json(value: &(impl Serialize + ?Sized)) -> Payload {
    Payload::json(value).expect("a test's value can be written as JSON")
}

fn update_id(nth: usize) -> String {
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
        Script {
            handler: erase_workflow(workflow),
            input: json(input),
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

    /// A dependency, as for the real builder.
    pub fn dep<T: std::any::Any + Send + Sync>(mut self, dep: T) -> Script {
        self.registry.dep(dep);
        self
    }

    /// What the step returns instead of running; several calls script several attempts, and the last one stands.
    pub fn step(mut self, step: &str, value: &(impl Serialize + ?Sized)) -> Script {
        self.steps.entry(name(step)).or_default().push_back(Ok(json(value)));
        self
    }

    pub fn step_fails(mut self, step: &str, failure: Failure) -> Script {
        self.steps.entry(name(step)).or_default().push_back(Err(failure));
        self
    }

    /// What tasks of a kind return, from their input.
    pub fn task<I, O>(mut self, kind: &str, answer: impl Fn(I) -> Result<O> + Send + Sync + 'static) -> Script
    where
        I: DeserializeOwned,
        O: Serialize,
    {
        self.tasks.insert(name(kind), responder(answer));
        self
    }

    /// What children of a kind return, from their input.
    pub fn child<I, O>(mut self, kind: &str, answer: impl Fn(I) -> Result<O> + Send + Sync + 'static) -> Script
    where
        I: DeserializeOwned,
        O: Serialize,
    {
        self.children.insert(name(kind), responder(answer));
        self
    }

    /// Approvals of this name are approved as soon as they are asked for; several calls decide several approvals of the name, and the
    /// last one stands.
    pub fn approve(self, approval: &str) -> Script {
        self.approve_after(Duration::ZERO, approval)
    }

    /// Somebody approves this long after being asked, unless the question is over by then.
    pub fn approve_after(self, after: Duration, approval: &str) -> Script {
        self.decide(approval, Decided { after, approved: true, feedback: None })
    }

    pub fn reject(self, approval: &str, feedback: &str) -> Script {
        self.reject_after(Duration::ZERO, approval, feedback)
    }

    pub fn reject_after(self, after: Duration, approval: &str, feedback: &str) -> Script {
        self.decide(approval, Decided { after, approved: false, feedback: Some(feedback.to_owned()) })
    }

    fn decide(mut self, approval: &str, decided: Decided) -> Script {
        self.approvals.entry(name(approval)).or_default().push(decided);
        self
    }

    /// Promises of this name are resolved as soon as they are made.
    pub fn resolve(mut self, promise: &str, value: &(impl Serialize + ?Sized)) -> Script {
        self.promises.insert(name(promise), Ok(json(value)));
        self
    }

    /// A signal that comes this long after the start; at zero it is there before the code runs.
    pub fn signal(mut self, after: Duration, signal: &str, payload: &(impl Serialize + ?Sized)) -> Script {
        let event = SignalReceived { name: name(signal), payload: json(payload), signal_id: None, sender: None };
        self.timeline.push((after, event.into()));
        self
    }

    /// An update that comes this long after the start; [`Outcome::update`] has its answer.
    pub fn update(mut self, after: Duration, update: &str, input: &(impl Serialize + ?Sized)) -> Script {
        let event = UpdateReceived { update_id: update_id(self.updates), name: name(update), payload: json(input) };
        self.updates += 1;
        self.timeline.push((after, event.into()));
        self
    }

    /// Stops a run that continues as new for ever: after this many generations it is left open.
    pub fn generations(mut self, max: u32) -> Script {
        self.generations_max = max;
        self
    }

    /// A request to cancel that comes this long after the start.
    pub fn cancel(mut self, after: Duration, reason: &str) -> Script {
        self.timeline.push((after, CancelRequested { reason: reason.to_owned() }.into()));
        self
    }

    /// Does not replay the log after every commit: for very long runs.
    pub fn without_shadow_replay(mut self) -> Script {
        self.shadow = false;
        self
    }

    /// Runs to the end, or until nothing can happen any more.
    ///
    /// # Panics
    /// If the code cannot be replayed, panics, or awaits something foreign.
    #[track_caller]
    pub fn run(&self) -> Outcome {
        self.play(&mut Always(Choice::Go), 7)
    }

    /// Runs once per commit and crash point: the process dies before, or right after, the n-th commit and starts again.
    /// Every run must end like the one without a crash, and record the same steps once.
    ///
    /// # Panics
    /// If one does not; the message names the crash.
    #[track_caller]
    pub fn crash_everywhere(&self) {
        let calm = self.run();
        let commits = calm.logs.iter().flat_map(Log::records).filter(|record| record.commit.is_some()).count();
        for commit in 0..commits {
            for after in [false, true] {
                let outcome = self.play(&mut CrashAt { commit, after, seen: 0 }, 7);
                let point = if after { "after" } else { "before" };
                assert_same(&calm, &outcome, &format!("after a crash {point} commit {commit}"));
            }
        }
    }

    /// Runs twice from the start: the code must ask for the same things in the same order.
    ///
    /// # Panics
    /// If it does not; the message shows the first difference.
    #[track_caller]
    pub fn assert_deterministic(&self) {
        let (first, second) = (self.run(), self.run());
        let calls = |outcome: &Outcome| -> Vec<String> {
            let asked = outcome.events().filter(|event| !event.is_input());
            asked.map(onward_core::engine::matching::describe).collect()
        };
        let (first, second) = (calls(&first), calls(&second));
        for (position, (a, b)) in first.iter().zip(&second).enumerate() {
            assert_eq!(a, b, "call {position} differs between two runs: the code depends on something that is not recorded");
        }
        assert_eq!(first.len(), second.len(), "two runs asked for different numbers of things");
    }

    /// Runs under `count` random schedules: what is due happens in random order, the process dies at random moments. Every run must
    /// come to an end where the calm one does.
    ///
    /// # Panics
    /// If one does not; the message has the seed, for [`Script::schedule`].
    #[track_caller]
    pub fn schedules(&self, count: u64) {
        let calm = self.run();
        for seed in 0..count {
            let attempt = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.schedule(seed)));
            match attempt {
                Ok(outcome) => assert!(
                    outcome.is_open() == calm.is_open(),
                    "schedule {seed}: the run {}; reproduce it with `.schedule({seed})`",
                    if outcome.is_open() { "did not end" } else { "ended" }
                ),
                Err(panic) => {
                    panic!("schedule {seed}: {}; reproduce it with `.schedule({seed})`", crate::code::panic_message(&*panic))
                }
            }
        }
    }

    /// One random schedule.
    #[track_caller]
    pub fn schedule(&self, seed: u64) -> Outcome {
        self.play(&mut Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1), seed)
    }

    #[track_caller]
    fn play(&self, chooser: &mut dyn Chooser, seed: u64) -> Outcome {
        let steps = Arc::new(Steps { answers: Mutex::new(self.steps.clone()), ran: Mutex::default() });
        let runtime = Some(self.background.get_or_init(Background::start).handle());
        let shared =
            Shared { deps: Arc::new(self.registry.deps.clone()), script: Some(steps.clone()), runtime, ..Shared::default() };
        let world = World::with_handler(self.handler.clone(), self.input.clone(), shared, seed).waking(background::waker());
        let world = if self.shadow { world } else { world.without_shadow_replay() };
        let started = world.now();
        let mut timeline = self.timeline.clone();
        timeline.sort_by_key(|(after, _)| *after);
        let mut play = Play { script: self, world, timeline: timeline.into(), started, decided: BTreeMap::new() };
        play.play_out(chooser);
        let Play { world, .. } = play;
        let steps_run = steps.ran.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Outcome {
            result: world.outcome(),
            elapsed: world.now().since(started),
            waits_for: world.open_calls(),
            logs: world.into_logs(),
            steps_run,
        }
    }
}

fn responder<I, O>(answer: impl Fn(I) -> Result<O> + Send + Sync + 'static) -> Responder
where
    I: DeserializeOwned,
    O: Serialize,
{
    Arc::new(move |input| {
        let output = answer(input.read().map_err(|error| Failure::fatal(format!("the script cannot read the input: {error}")))?)?;
        Ok(json(&output))
    })
}

#[track_caller]
fn assert_same(calm: &Outcome, outcome: &Outcome, when: &str) {
    assert_eq!(calm.result, outcome.result, "{when} the run ends differently");
    let recorded = |outcome: &Outcome| -> Vec<String> {
        let results = outcome.events().filter(|event| event.is_step_result());
        let mut results: Vec<String> = results
            .map(|event| match event {
                Event::StepCompleted(step) => format!("{} {} completed {:?}", step.place, step.name, step.output),
                Event::StepFailed(step) => format!("{} {} failed, attempt {}", step.place, step.name, step.attempt),
                _ => String::new(),
            })
            .collect();
        results.sort();
        results
    };
    assert_eq!(recorded(calm), recorded(outcome), "{when} other steps are recorded");
}

/// What happens at a choice.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Choice {
    Go,
    Crash,
}

/// Decides about crashes and about who is next.
trait Chooser {
    fn before_commit(&mut self) -> Choice;
    fn after_commit(&mut self) -> Choice;
    /// Which of `count` things that could happen now happens.
    fn pick(&mut self, count: usize) -> usize;
}

struct Always(Choice);

impl Chooser for Always {
    fn before_commit(&mut self) -> Choice {
        self.0
    }
    fn after_commit(&mut self) -> Choice {
        self.0
    }
    fn pick(&mut self, _: usize) -> usize {
        0
    }
}

struct CrashAt {
    commit: usize,
    after: bool,
    seen: usize,
}

impl Chooser for CrashAt {
    fn before_commit(&mut self) -> Choice {
        let hit = self.seen == self.commit && !self.after;
        self.seen += 1;
        if hit { Choice::Crash } else { Choice::Go }
    }
    fn after_commit(&mut self) -> Choice {
        if self.seen == self.commit + 1 && self.after { Choice::Crash } else { Choice::Go }
    }
    fn pick(&mut self, _: usize) -> usize {
        0
    }
}

/// A small random generator: the same on every machine, so that a seed reproduces.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11
    }
}

impl Chooser for Random {
    fn before_commit(&mut self) -> Choice {
        if self.next().is_multiple_of(10) { Choice::Crash } else { Choice::Go }
    }
    fn after_commit(&mut self) -> Choice {
        self.before_commit()
    }
    fn pick(&mut self, count: usize) -> usize {
        (self.next() % count as u64) as usize
    }
}

/// Something that could happen now.
enum Happening {
    Timeline,
    Timer(Place),
    Task(Place),
    Child(usize),
    Wait(Place),
}

/// One run of a script.
struct Play<'a> {
    script: &'a Script,
    world: World,
    timeline: VecDeque<(Duration, Event)>,
    started: Timestamp,
    /// How many approvals of a name were decided.
    decided: BTreeMap<Name, usize>,
}

impl Play<'_> {
    #[track_caller]
    fn play_out(&mut self, chooser: &mut dyn Chooser) {
        while self.timeline.front().is_some_and(|(after, _)| after.is_zero()) {
            self.next_of_timeline();
        }
        loop {
            self.work(chooser);
            if self.world.status().is_closed() || self.world.generation() >= self.script.generations_max {
                return;
            }
            let mut happenings = self.happenings();
            if happenings.is_empty() {
                return;
            }
            let chosen = happenings.swap_remove(chooser.pick(happenings.len()));
            self.happen(chosen);
        }
    }

    /// Lets the code go on until it rests.
    #[track_caller]
    fn work(&mut self, chooser: &mut dyn Chooser) {
        while self.world.generation() < self.script.generations_max {
            let past: u64 = self.world.past_logs().iter().map(|log| log.next_index().0).sum();
            let events = past + self.world.log().next_index().0;
            assert!(
                events < EVENTS_MAX,
                "the run has {EVENTS_MAX} events and does not end; `.generations(n)` stops one that never does"
            );
            let draft = match self.world.activate() {
                Ok(draft) => draft,
                Err(fault) => panic!("the activation failed: {}\n{}", explain(fault), self.world.log().to_json_lines()),
            };
            let Some(draft) = draft else {
                if !self.world.has_running_steps() {
                    return;
                }
                background::wait();
                continue;
            };
            if chooser.before_commit() == Choice::Crash {
                self.world.crash();
                continue;
            }
            self.world.commit(draft);
            if chooser.after_commit() == Choice::Crash {
                self.world.crash();
            }
        }
    }

    /// What could happen now: everything that answers the code, and the earliest of what time brings.
    fn happenings(&self) -> Vec<Happening> {
        let script = self.script;
        let mut happenings: Vec<Happening> = Vec::new();
        let tasks = self.world.tasks.iter().filter(|(_, task)| script.tasks.contains_key(&task.kind));
        happenings.extend(tasks.map(|(place, _)| Happening::Task(place.clone())));
        let answers: Vec<(Timestamp, Place)> =
            self.world.waits.values().filter_map(|wait| Some((self.answered_at(wait)?, wait.place.clone()))).collect();
        let now = self.world.now();
        happenings.extend(answers.iter().filter(|(at, _)| *at <= now).map(|(_, place)| Happening::Wait(place.clone())));
        for (position, delivery) in self.world.sent.iter().enumerate() {
            if let Delivery::Start(run) = delivery
                && script.children.contains_key(&run.started.kind)
            {
                happenings.push(Happening::Child(position));
            }
        }
        if !happenings.is_empty() {
            return happenings;
        }
        // Nothing answers by itself: time passes to whatever it brings first.
        let mut next: Vec<(Timestamp, Happening)> = Vec::new();
        next.extend(self.timeline.front().map(|(after, _)| (self.started.after(*after), Happening::Timeline)));
        next.extend(answers.into_iter().map(|(at, place)| (at, Happening::Wait(place))));
        next.extend(self.world.next_timer().map(|(place, due)| (due, Happening::Timer(place))));
        next.into_iter().min_by_key(|(at, _)| *at).map(|(_, happening)| happening).into_iter().collect()
    }

    /// When the script answers an approval or promise, if it does.
    fn answered_at(&self, wait: &Wait) -> Option<Timestamp> {
        match wait.kind {
            WaitKind::Approval => Some(wait.requested_at.after(self.decision(&wait.name)?.after)),
            WaitKind::Promise => self.script.promises.contains_key(&wait.name).then_some(wait.requested_at),
        }
    }

    /// What is said to the next approval of this name.
    fn decision(&self, approval: &Name) -> Option<&Decided> {
        let decisions = self.script.approvals.get(approval)?;
        decisions.get(self.decided.get(approval).copied().unwrap_or_default()).or(decisions.last())
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Timeline => self.next_of_timeline(),
            Happening::Timer(place) => self.world.fire_timer(&place),
            Happening::Task(place) => self.finish_task(&place),
            Happening::Child(position) => self.finish_child(position),
            Happening::Wait(place) => self.answer(&place),
        }
    }

    fn next_of_timeline(&mut self) {
        let Some((after, event)) = self.timeline.pop_front() else { return };
        self.wait_until(self.started.after(after));
        // A script may outlive the run it is about.
        drop(self.world.append(match event {
            Event::SignalReceived(signal) => Input::signal(signal),
            event => Input::new(event),
        }));
    }

    /// Lets time pass to `at`, if it has not.
    fn wait_until(&mut self, at: Timestamp) {
        self.world.advance_time(at.since(self.world.now()));
    }

    fn finish_task(&mut self, place: &Place) {
        let Some(mut task) = self.world.tasks.remove(place) else { return };
        let Some(answer) = self.script.tasks.get(&task.kind) else { return };
        let event = match answer(&task.input) {
            Ok(output) => TaskCompleted { place: place.clone(), output, attempts: task.attempt }.into(),
            Err(failure) => match task.options.retry.next_attempt(task.attempt, &failure, self.world.now()) {
                Some(at) => {
                    self.wait_until(at);
                    task.attempt += 1;
                    self.world.tasks.insert(place.clone(), task);
                    return;
                }
                None => TaskFailed { place: place.clone(), failure, attempts: task.attempt }.into(),
            },
        };
        self.input(event);
    }

    fn finish_child(&mut self, position: usize) {
        let Delivery::Start(run) = self.world.sent.remove(position) else { return };
        let (Some(answer), Some(parent)) = (self.script.children.get(&run.started.kind), run.started.parent) else { return };
        let place = parent.place;
        self.input(match answer(&run.started.input) {
            Ok(output) => ChildCompleted { place, output }.into(),
            Err(failure) => ChildFailed { place, failure }.into(),
        });
    }

    fn answer(&mut self, place: &Place) {
        let Some(wait) = self.world.waits.get(place).cloned() else { return };
        let place = place.clone();
        self.wait_until(self.answered_at(&wait).unwrap_or_default());
        match wait.kind {
            WaitKind::Approval => {
                let Some(Decided { approved, feedback, .. }) = self.decision(&wait.name).cloned() else { return };
                *self.decided.entry(wait.name).or_default() += 1;
                self.input(
                    ApprovalDecided { place, approved, feedback, decided_by: None, decision_id: "script".to_owned() }.into(),
                );
            }
            WaitKind::Promise => {
                let Some(result) = self.script.promises.get(&wait.name).cloned() else { return };
                self.input(PromiseResolved { place, result, resolution_id: "script".to_owned() }.into());
            }
        }
    }

    fn input(&mut self, event: Event) {
        self.world.input(event).expect("an open run takes inputs");
    }
}

fn explain(fault: Fault) -> String {
    fault.into_pause().map_or("the run is somebody else's".to_owned(), |pause| {
        let hint = pause.divergence.map(|report| format!("\nhint: {}", report.hint)).unwrap_or_default();
        format!("{}{hint}", pause.message)
    })
}

/// Replays a recorded log against today's code. Nothing is run.
///
/// # Errors
/// With the report of the first thing on which log and code disagree.
pub fn replay<I, O, F, Fut>(workflow: F, log: &Log) -> Result<(), Box<onward_core::event::RunPaused>>
where
    I: DeserializeOwned + Send + 'static,
    O: Serialize + 'static,
    F: Fn(Ctx, I) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<O>> + Send + 'static,
{
    let handler = erase_workflow(workflow);
    match replay_log(&key(), &handler, log.records(), &Shared::default(), false) {
        Ok(_) => Ok(()),
        Err(fault) => Err(Box::new(fault.into_pause().expect("nobody else has a log that is only replayed"))),
    }
}

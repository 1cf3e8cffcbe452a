//! Random small programs under random schedules and crashes, compared with a plain model that reads the same log.
//!
//! The model has no futures, wakers or engine: branches are explicit, inputs are fed one by one. The code must return what the
//! model derives.

mod model;
mod mutants;
mod reopened;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onward::prelude::*;
use onward::testing::World;
use onward::{join, select};
use onward_core::event::{ApprovalDecided, CancelRequested, ChildCompleted, TaskCompleted, TaskFailed, UpdateReceived};
use onward_core::moment::view_at;
use onward_core::timeline::Calls;
use onward_core::view::{Awaited, RunView};
use onward_core::{CallId, Event, Log, Name, Namespace, Payload, RunHead, RunId, RunKey, Status};

use model::Model;
use mutants::Mutant;

/// Number of cases of the ordinary run: ten times as many as the last mutant needs. `cargo xtask torture` has 200,000.
const CASES: u64 = 3_000;

#[derive(Debug, Clone)]
enum Op {
    Task,
    Step,
    Sleep,
    Child,
    Now,
    Random,
    Has(usize),
    /// Another step if a signal is there.
    StepIfHas(usize),
    Count(usize),
    Recv(usize),
    RecvTimeout(usize),
    Drain(usize),
    SignalOrTask(usize),
    SignalOrSleep(usize),
    /// A hidden poll: a signal, or a future that is ready at once.
    SignalOrNothing(usize),
    /// An approval with a timeout of one second.
    Approval,
    /// A different step for each version of a change.
    VersionedStep(usize),
    /// Registers the handler of updates, which may have come before.
    Handle,
    /// Reads what the updates have changed.
    Updated,
    /// Watches for a cancellation, for a second.
    WatchOrSleep,
    Both(Vec<Op>, Vec<Op>),
    /// Two tasks that may fail, a second in which they may be answered, and then both together.
    Together(Combinator),
    /// Two tasks that may fail, kept together over a `select!` for each second that they take.
    Kept(Combinator),
    /// The same for one second, and then with another one in a `join!`.
    KeptThenJoined(Combinator),
    /// The first of two signals.
    RaceSignals,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Combinator {
    /// The first success.
    Race,
    /// Both, or the first failure.
    JoinAll,
}

const CHANGES: [&str; 2] = ["change", "other-change"];
const NAMES: [&str; 2] = ["x", "y"];
const SECOND: Duration = Duration::from_secs(1);

/// State of a case outside of its run.
struct Build {
    /// One program for each generation.
    programs: Vec<Vec<Op>>,
    /// Recorded steps: none may run again.
    recorded: Mutex<BTreeSet<String>>,
    /// Steps that have run: each must be recorded in the end, since it depended only on durable state (N2).
    ran: Mutex<BTreeSet<String>>,
    /// Steps that were running when the process died before anything was recorded. They are unknown to the log, and a
    /// cancellation interrupts them as if they had not begun (N9).
    lost: Mutex<BTreeSet<String>>,
    /// The newest version of every change; grows when the process dies.
    newest: AtomicU32,
    /// See [`Harness`].
    steps_are_eager: bool,
}

impl Build {
    fn new(programs: Vec<Vec<Op>>) -> Build {
        let (recorded, ran, lost) = (Mutex::default(), Mutex::default(), Mutex::default());
        Build { programs, recorded, ran, lost, newest: AtomicU32::new(2), steps_are_eager: false }
    }
}

type Seen = Vec<String>;

/// State that the lines of a run share with the handler of its updates.
type Updates = Arc<Mutex<Vec<u64>>>;

/// Runs the programs on the real context, one in each generation, and passes on what was seen before.
async fn interpret(ctx: Ctx, (generation, before): (usize, Seen), build: Arc<Build>) -> Result<Seen> {
    let program = build.programs[generation].clone();
    let seen = line(ctx.clone(), program, build.clone(), Updates::default(), format!("g{generation}m")).await?;
    let seen: Seen = before.into_iter().chain(seen).collect();
    if generation + 1 < build.programs.len() { ctx.continue_as_new(&(generation + 1, seen)).await } else { Ok(seen) }
}

/// Renders an outcome. Code that was canceled continues.
fn text(what: &str, outcome: Result<impl ToString>) -> Result<String> {
    match outcome {
        Ok(value) => Ok(format!("{what} {}", value.to_string()).trim_end().to_owned()),
        Err(failure) if failure.is_canceled() => Ok(format!("{what} canceled")),
        Err(failure) => Err(failure),
    }
}

/// Handles an update; every third one is refused, without a change.
fn handle(updates: &Mutex<Vec<u64>>, value: u64) -> Result<usize> {
    if value.is_multiple_of(3) {
        return Err(Failure::fatal("refused"));
    }
    let mut updates = updates.lock().unwrap();
    updates.push(value);
    Ok(updates.len())
}

async fn step(ctx: &Ctx, build: &Build, id: String) -> Result<String> {
    if build.steps_are_eager {
        build.ran.lock().unwrap().insert(id.clone());
    }
    let step = ctx.step(&id, async || {
        assert!(!build.recorded.lock().unwrap().contains(&id), "a recorded step ran again");
        build.ran.lock().unwrap().insert(id.clone());
        Ok::<_, Failure>(id.len() as u64)
    });
    text("step", step.await)
}

/// Renders a failure, with its origin where several could be confused.
fn describe(failure: Failure) -> String {
    if failure.code == "failed" { format!("failed {}", failure.message) } else { failure.code }
}

async fn together(ctx: &Ctx, id: &str, combinator: Combinator) -> Result<String> {
    let tasks = [ctx.task::<u64>("risky", id), ctx.task::<u64>("risky", id)];
    let slept = text("slept", ctx.sleep(SECOND).await.map(|()| ""))?;
    let outcome = match combinator {
        Combinator::Race => race(tasks).await.map(|first| first.to_string()),
        Combinator::JoinAll => join_all(tasks).await.map(|both| format!("{both:?}")),
    };
    Ok(format!("{combinator:?} {slept} {}", outcome.unwrap_or_else(describe)))
}

type Pair = std::pin::Pin<Box<dyn Future<Output = String> + Send>>;

/// Returns two tasks that may fail as one future that can be kept.
fn pair(ctx: &Ctx, id: &str, combinator: Combinator) -> Pair {
    let tasks = [ctx.task::<u64>("risky", id), ctx.task::<u64>("risky", id)];
    Box::pin(async move {
        let outcome = match combinator {
            Combinator::Race => race(tasks).await.map(|first| first.to_string()),
            Combinator::JoinAll => join_all(tasks).await.map(|both| format!("{both:?}")),
        };
        outcome.unwrap_or_else(describe)
    })
}

async fn kept(ctx: &Ctx, id: &str, combinator: Combinator) -> Result<String> {
    let mut pair = pair(ctx, id, combinator);
    let mut seconds = 0;
    loop {
        select! {
            outcome = &mut pair => return Ok(format!("{combinator:?} kept {seconds} {outcome}")),
            slept = ctx.sleep(SECOND) => slept?,
        }
        seconds += 1;
    }
}

async fn kept_then_joined(ctx: &Ctx, id: &str, combinator: Combinator) -> Result<String> {
    let mut pair = pair(ctx, id, combinator);
    select! {
        outcome = &mut pair => return Ok(format!("{combinator:?} kept {outcome}")),
        slept = ctx.sleep(SECOND) => slept?,
    }
    let (outcome, slept) = join!(&mut pair, ctx.sleep(SECOND));
    Ok(format!("{combinator:?} joined {outcome} {}", text("slept", slept.map(|()| ""))?))
}

type LineFuture = std::pin::Pin<Box<dyn Future<Output = Result<Seen>> + Send>>;

fn line(ctx: Ctx, ops: Vec<Op>, build: Arc<Build>, updates: Updates, path: String) -> LineFuture {
    Box::pin(async move {
        let mut seen: Seen = Vec::new();
        for (position, op) in ops.into_iter().enumerate() {
            let id = format!("{path}{position}");
            match op {
                Op::Task => seen.push(text("task", ctx.task::<u64>("t", &id).await)?),
                Op::Step => seen.push(step(&ctx, &build, id).await?),
                Op::Sleep => seen.push(text("slept", ctx.sleep(SECOND).await.map(|()| ""))?),
                Op::Child => seen.push(text("child", ctx.child::<u64>("c", &id).await)?),
                Op::Approval => {
                    let decided = ctx.approval("a", "May I?").within(SECOND).await;
                    let words = |decision: onward::Decision| format!("{} {}", decision.approved, decision.expired);
                    seen.push(text("approval", decided.map(words))?);
                }
                Op::VersionedStep(change) => {
                    let version = ctx.version(CHANGES[change], 1, build.newest.load(Ordering::SeqCst));
                    seen.push(format!("version {version} {}", step(&ctx, &build, format!("{id}v{version}")).await?));
                }
                Op::StepIfHas(name) => {
                    let has = ctx.signal(NAMES[name]).has();
                    seen.push(format!("has {has} {}", step(&ctx, &build, format!("{id}{has}")).await?));
                }
                Op::Handle => {
                    let updates = updates.clone();
                    ctx.update("u", move |value: u64| handle(&updates, value));
                }
                Op::Updated => seen.push(format!("updated {:?}", updates.lock().unwrap())),
                Op::WatchOrSleep => seen.push(select! {
                    _ = ctx.canceled() => "watch canceled".to_owned(),
                    slept = ctx.sleep(SECOND) => text("watch slept", slept.map(|()| ""))?,
                }),
                Op::Now => seen.push(format!("now {}", ctx.now().0)),
                Op::Random => seen.push(format!("random {}", ctx.random())),
                Op::Has(name) => seen.push(format!("has {}", ctx.signal(NAMES[name]).has())),
                Op::Count(name) => seen.push(format!("count {}", ctx.signal(NAMES[name]).count())),
                Op::Recv(name) => seen.push(text("recv", ctx.signal(NAMES[name]).recv::<u64>().await)?),
                Op::RecvTimeout(name) => {
                    let received = ctx.signal(NAMES[name]).recv_timeout::<u64>(SECOND).await;
                    seen.push(text("recv_timeout", received.map(|value| format!("{value:?}")))?);
                }
                Op::Drain(name) => seen.push(format!("drain {:?}", ctx.signal(NAMES[name]).drain::<u64>()?)),
                Op::SignalOrTask(name) => seen.push(select! {
                    signal = ctx.signal(NAMES[name]).recv::<u64>() => text("select signal", signal)?,
                    task = ctx.task::<u64>("t", &id) => text("select task", task)?,
                }),
                Op::SignalOrSleep(name) => seen.push(select! {
                    slept = ctx.sleep(SECOND) => text("select slept", slept.map(|()| ""))?,
                    signal = ctx.signal(NAMES[name]).recv::<u64>() => text("select signal", signal)?,
                }),
                Op::SignalOrNothing(name) => seen.push(select! {
                    signal = ctx.signal(NAMES[name]).recv::<u64>() => text("select signal", signal)?,
                    nothing = async { "select nothing".to_owned() } => nothing,
                }),
                Op::Together(combinator) => seen.push(together(&ctx, &id, combinator).await?),
                Op::Kept(combinator) => seen.push(kept(&ctx, &id, combinator).await?),
                Op::KeptThenJoined(combinator) => seen.push(kept_then_joined(&ctx, &id, combinator).await?),
                Op::RaceSignals => {
                    let first = race(NAMES.map(|name| ctx.signal(name).recv::<u64>())).await;
                    seen.push(format!("race {}", first.map_or_else(describe, |value| value.to_string())));
                }
                Op::Both(left, right) => {
                    let (left, right) = join!(
                        line(ctx.clone(), left, build.clone(), updates.clone(), format!("{id}l")),
                        line(ctx.clone(), right, build.clone(), updates.clone(), format!("{id}r")),
                    );
                    seen.push(format!("both {:?} {:?}", left?, right?));
                }
            }
        }
        Ok(seen)
    })
}

struct Random(u64);

impl Random {
    fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(0x1234_5678_9abc_def1))
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % bound
    }
}

fn program(random: &mut Random, length: u64, nested: bool) -> Vec<Op> {
    let count = 1 + random.below(length);
    (0..count)
        .map(|_| {
            let name = random.below(NAMES.len() as u64) as usize;
            let combinator = if random.below(2) == 0 { Combinator::Race } else { Combinator::JoinAll };
            match random.below(if nested { 24 } else { 25 }) {
                0 => Op::Task,
                1 => Op::Step,
                2 => Op::Sleep,
                3 => Op::Child,
                4 => Op::Now,
                5 => Op::Random,
                6 => Op::Has(name),
                7 => Op::Count(name),
                8 => Op::Recv(name),
                9 => Op::RecvTimeout(name),
                10 => Op::Drain(name),
                11 => Op::SignalOrTask(name),
                12 => Op::SignalOrSleep(name),
                13 => Op::Approval,
                14 => Op::VersionedStep(name),
                15 => Op::Handle,
                16 => Op::Updated,
                17 => Op::WatchOrSleep,
                18 => Op::SignalOrNothing(name),
                19 => Op::StepIfHas(name),
                20 => Op::Together(combinator),
                21 => Op::Kept(combinator),
                22 => Op::KeptThenJoined(combinator),
                23 => Op::RaceSignals,
                _ => Op::Both(program(random, 3, true), program(random, 3, true)),
            }
        })
        .collect()
}

/// The outside world: everything that a run waits for.
struct Outside {
    next_value: u64,
    /// Tasks, children and approvals that were answered, by generation, so that each is answered once.
    answered: BTreeSet<(u32, CallId)>,
    /// A run is canceled in its last generation only: this test does not cover a cancellation that meets continue-as-new.
    may_cancel_in: u32,
}

/// Kind of answer that an open call waits for.
#[derive(Clone, Copy, PartialEq)]
enum Owed {
    Task,
    /// A task that may fail.
    RiskyTask,
    Child,
    Decision,
}

impl Outside {
    fn signal(&mut self, world: &mut World, name: usize) {
        self.next_value += 1;
        world.signal(NAMES[name], &self.next_value);
    }

    /// Returns the open tasks, children and approvals.
    fn owed(&self, world: &World) -> Vec<(CallId, Owed)> {
        let mut owed = BTreeMap::new();
        for (_, event) in world.log().events() {
            match event {
                Event::TaskScheduled(task) => {
                    let owes = if task.kind.as_str() == "risky" { Owed::RiskyTask } else { Owed::Task };
                    owed.insert(task.call_id.clone(), owes);
                }
                Event::ChildStarted(child) => drop(owed.insert(child.call_id.clone(), Owed::Child)),
                Event::ApprovalRequested(approval) => drop(owed.insert(approval.call_id.clone(), Owed::Decision)),
                // An expired or withdrawn question has no answer; a canceled task may have one.
                Event::TimerFired(timer) => drop(owed.remove(&timer.call_id)),
                Event::WaitCanceled(wait) => drop(owed.remove(&wait.call_id)),
                _ => {}
            }
        }
        let generation = world.generation();
        owed.into_iter().filter(|(call_id, _)| !self.answered.contains(&(generation, call_id.clone()))).collect()
    }

    fn answer(&mut self, world: &mut World, call_id: CallId, owed: Owed) {
        self.answered.insert((world.generation(), call_id.clone()));
        self.next_value += 1;
        let output = Payload::json(&self.next_value).unwrap();
        let approved = self.next_value.is_multiple_of(2);
        let event: Event = match owed {
            Owed::RiskyTask if self.next_value.is_multiple_of(2) => {
                TaskFailed { call_id, failure: Failure::fatal(self.next_value.to_string()), attempts: 1, ran: None }.into()
            }
            Owed::Task | Owed::RiskyTask => TaskCompleted { call_id, output, attempts: 1, ran: None }.into(),
            Owed::Child => ChildCompleted { call_id, output, child: None, spent: None }.into(),
            Owed::Decision => {
                ApprovalDecided { call_id, approved, feedback: None, decided_by: None, answer: None, decision_id: "d".to_owned() }
                    .into()
            }
        };
        world.input(event).unwrap();
    }

    fn update(&mut self, world: &mut World) {
        self.next_value += 1;
        let (update_id, payload) = (self.next_value.to_string(), Payload::json(&self.next_value).unwrap());
        world.input(UpdateReceived { update_id, name: Name::new("u").unwrap(), payload }).unwrap();
    }

    /// Makes something random happen.
    fn happen(&mut self, world: &mut World, random: &mut Random) {
        world.advance_time(Duration::from_millis(random.below(3)));
        match random.below(8) {
            0..=2 => self.signal(world, random.below(NAMES.len() as u64) as usize),
            3 | 4 => {
                let owed = self.owed(world);
                if !owed.is_empty() {
                    let (call_id, owed) = owed[random.below(owed.len() as u64) as usize].clone();
                    self.answer(world, call_id, owed);
                }
            }
            5 => self.update(world),
            6 if world.generation() == self.may_cancel_in => {
                world.input(CancelRequested::new("enough".to_owned())).unwrap();
            }
            _ => {
                if let Some((call_id, _)) = world.next_timer() {
                    world.fire_timer(&call_id);
                }
            }
        }
    }
}

/// Runs one program under one schedule; panics if anything is wrong.
fn case(seed: u64) {
    let (world, build) = play(seed, Harness::default());
    check(&world, &build, None);
    if seed.is_multiple_of(reopened::FORKED) {
        reopened::check_forks(&world, &build, None);
    }
}

/// Faults of the harness itself, to test its own checks.
#[derive(Default, Clone, Copy, PartialEq)]
struct Harness {
    /// A step counts as run when it is called, as if it did not wait until what the code has seen is durable.
    steps_are_eager: bool,
    /// A step counts as recorded before its commit is acknowledged, as if an acknowledged commit could be lost.
    commits_are_lost: bool,
}

/// Runs one program under one schedule to its end.
fn play(seed: u64, harness: Harness) -> (World, Arc<Build>) {
    let mut random = Random::new(seed);
    let programs = match random.below(4) {
        0 => vec![program(&mut random, 3, false), program(&mut random, 3, false)],
        _ => vec![program(&mut random, 5, false)],
    };
    let last = programs.len() as u32 - 1;
    let build = Arc::new(Build { steps_are_eager: harness.steps_are_eager, ..Build::new(programs) });
    let in_run = build.clone();
    let mut world = World::new(move |ctx: Ctx, input| interpret(ctx, input, in_run.clone()), &(0, Seen::new()));
    let mut outside = Outside { next_value: 0, answered: BTreeSet::new(), may_cancel_in: last };
    for round in 0..400 {
        // At first anything may happen; later only what the run waits for, so that every program ends.
        let wild = round < 12;
        if wild && random.below(2) == 0 {
            outside.happen(&mut world, &mut random);
        }
        if wild && random.below(6) == 0 {
            crash(&mut world, &build, &mut random);
        }
        let draft = world.activate().unwrap_or_else(|fault| panic!("{fault:?}\n{}", world.log().to_json_lines()));
        match draft {
            Some(draft) => {
                if wild && random.below(3) == 0 {
                    outside.happen(&mut world, &mut random); // between the activation and its commit
                }
                if harness.commits_are_lost {
                    build.recorded.lock().unwrap().extend(build.ran.lock().unwrap().iter().cloned());
                }
                if wild && random.below(6) == 0 {
                    crash(&mut world, &build, &mut random);
                    continue;
                }
                world.commit(draft);
                note_recorded(&world, &build);
                if world.status().is_closed() {
                    break;
                }
            }
            None if world.status() != Status::Waiting => {
                panic!("a run at rest is {}\n{}", world.status(), world.log().to_json_lines())
            }
            None if wild => outside.happen(&mut world, &mut random),
            None => calm(&mut world, &mut outside),
        }
    }
    (world, build)
}

/// Compares a finished run with the model, in which `mutant` breaks a rule; panics if they differ.
fn check(world: &World, build: &Build, mutant: Option<Mutant>) {
    let programs = &build.programs;
    assert_eq!(world.status(), Status::Completed, "the run did not end: {programs:?}\n{}", world.log().to_json_lines());
    let logs: Vec<&Log> = world.past_logs().iter().chain([world.log()]).collect();
    assert_eq!(logs.len(), programs.len());
    let (mut ran, recorded) = (build.ran.lock().unwrap().clone(), build.recorded.lock().unwrap().clone());
    if world.log().events().any(|(_, event)| matches!(event, Event::CancelRequested(_))) {
        let lost = build.lost.lock().unwrap().clone();
        ran.retain(|step| !lost.contains(step));
    }
    assert!(ran.is_subset(&recorded), "{ran:?} ran, {recorded:?} are recorded: {programs:?}\n{}", world.log().to_json_lines());
    let (mut seen, mut kept) = (Seen::new(), Vec::new());
    for (generation, (log, program)) in logs.into_iter().zip(programs).enumerate() {
        assert_eq!(carried_updates(log), kept, "{program:?}\n{}", log.to_json_lines());
        let model = Model::read_as(program, log, mutant);
        kept = model.kept.iter().map(|(id, _)| id.clone()).collect();
        seen.extend(model.lines[0].seen.iter().cloned());
        let (found, expected) = match log.events().last() {
            Some((_, Event::RunContinued(end))) => (&end.input, serde_json::to_string(&(generation + 1, &seen))),
            Some((_, Event::RunCompleted(end))) => (&end.output, serde_json::to_string(&seen)),
            other => panic!("a generation ends with {other:?}"),
        };
        assert_eq!(format!("{found:?}"), expected.unwrap(), "{program:?}\n{}", log.to_json_lines());
        let answer = |event: &Event| match event {
            Event::UpdateAnswered(answer) => {
                Some((answer.update_id.clone(), answer.result.clone().map(|payload| payload.read::<usize>().unwrap())))
            }
            _ => None,
        };
        let answers: Vec<_> = log.events().filter_map(|(_, event)| answer(event)).collect();
        assert_eq!(answers, model.answers, "{program:?}\n{}", log.to_json_lines());
        check_records(log);
        check_moments(log);
    }
}

/// Checks that the last moment of every prefix of the log is its view (MO2), that a moment does not change (MO1), and that the
/// timeline has the open calls of the view (TI2).
fn check_moments(log: &Log) {
    let key = RunKey::new(Namespace::default(), RunId::new("test").unwrap());
    for (position, record) in log.records().iter().enumerate() {
        let known = &log.records()[..=position];
        let view = RunView::fold(RunHead::rebuild(key.clone(), known).unwrap(), known);
        let (last, cut) = view_at(&key, log.records(), record.last_index()).unwrap();
        assert_eq!((&last, &cut[..]), (&view, known), "{}", log.to_json_lines());
        let (calls, _) = Calls::fold(&key, known).page(None, usize::MAX).unwrap();
        let mut open: Vec<String> = calls.into_iter().filter(|call| call.status.is_open()).map(|call| call.call_id).collect();
        let awaited = |awaited: &Awaited| awaited.call_id.as_ref().map_or_else(|| awaited.id.clone(), CallId::to_string);
        let mut awaiting: Vec<String> = view.awaiting.iter().map(awaited).collect();
        open.sort();
        awaiting.sort();
        assert_eq!(open, awaiting, "after event {}:\n{}", record.last_index(), log.to_json_lines());
    }
}

/// Returns the updates that a generation got from the previous one.
fn carried_updates(log: &Log) -> Vec<String> {
    match log.events().next() {
        Some((_, Event::RunStarted(started))) => started.updates.iter().map(|update| update.update_id.clone()).collect(),
        other => panic!("a log begins with {other:?}"),
    }
}

/// Kills the process. Its successor may have newer code.
fn crash(world: &mut World, build: &Build, random: &mut Random) {
    world.crash();
    if world.log().records().iter().all(|record| record.commit.is_none()) {
        build.lost.lock().unwrap().extend(build.ran.lock().unwrap().iter().cloned());
    }
    build.newest.fetch_add(random.below(2) as u32, Ordering::SeqCst);
}

/// Gives the run what it waits for.
fn calm(world: &mut World, outside: &mut Outside) {
    if let Some((call_id, owed)) = outside.owed(world).into_iter().next() {
        return outside.answer(world, call_id, owed);
    }
    if let Some((call_id, _)) = world.next_timer() {
        return world.fire_timer(&call_id);
    }
    (0..NAMES.len()).for_each(|name| outside.signal(world, name));
}

fn note_recorded(world: &World, build: &Build) {
    let name = |event: &Event| match event {
        Event::StepCompleted(step) => Some(step.name.to_string()),
        _ => None,
    };
    build.recorded.lock().unwrap().extend(world.log().events().filter_map(|(_, event)| name(event)));
}

/// Checks that no step is recorded twice, no signal consumed twice and no version chosen twice.
fn check_records(log: &Log) {
    let mut once = BTreeSet::new();
    for (index, event) in log.events() {
        let fact = match event {
            Event::StepCompleted(step) => format!("step {}", step.call_id),
            // Signals carried over from the previous generation have the index of the start.
            Event::SignalConsumed(signal) if signal.index.0 > 0 => format!("signal {}", signal.index),
            Event::TimerStarted(timer) => format!("timer {}", timer.call_id),
            Event::TaskScheduled(task) => format!("task {}", task.call_id),
            Event::ApprovalRequested(approval) => format!("approval {}", approval.call_id),
            Event::VersionChosen(chosen) => format!("version of {}", chosen.change),
            Event::UpdateAnswered(answer) => format!("update {}", answer.update_id),
            _ => continue,
        };
        assert!(once.insert(fact.clone()), "recorded twice, again at {index}: {fact}");
    }
}

/// Reproduces one case: `ONWARD_SEED=123 cargo test -p onward --test semantics generated`. `ONWARD_CASES` runs more of them.
#[test]
fn random_programs_see_what_the_plain_model_says_under_every_schedule() {
    if let Some(seed) = std::env::var("ONWARD_SEED").ok().and_then(|seed| seed.parse().ok()) {
        return case(seed);
    }
    let cases = std::env::var("ONWARD_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(CASES);
    let threads = 2;
    let workers: Vec<_> = (0..threads)
        .map(|thread| {
            std::thread::spawn(move || {
                for seed in (thread..cases).step_by(threads as usize) {
                    let failed = std::panic::catch_unwind(|| case(seed)).is_err();
                    assert!(!failed, "reproduce with ONWARD_SEED={seed}");
                }
            })
        })
        .collect();
    for worker in workers {
        worker.join().unwrap();
    }
}

//! Random small programs under random schedules and crashes, compared with a plain model that reads the same log.
//!
//! The model is written without futures, wakers or engine: branches are explicit, inputs are fed one by one. What it says
//! the code must have seen is what the code must have returned.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onward::prelude::*;
use onward::testing::World;
use onward::{join, select};
use onward_core::event::{ChildCompleted, TaskCompleted};
use onward_core::{Event, Payload, Place, Status};

/// How many cases the ordinary run has.
const CASES: u64 = 20_000;

#[derive(Debug, Clone)]
enum Op {
    Task,
    Step,
    Sleep,
    Child,
    Now,
    Random,
    Has(usize),
    Count(usize),
    Recv(usize),
    RecvTimeout(usize),
    Drain(usize),
    SignalOrTask(usize),
    SignalOrSleep(usize),
    Both(Vec<Op>, Vec<Op>),
}

const NAMES: [&str; 2] = ["x", "y"];
const SECOND: Duration = Duration::from_secs(1);

/// Which steps are recorded, and how often each was run: none may run once it is recorded.
#[derive(Default)]
struct Steps {
    recorded: Mutex<Vec<String>>,
}

type Seen = Vec<String>;

/// Runs the program on the real context.
async fn interpret(ctx: Ctx, program: Arc<Vec<Op>>, steps: Arc<Steps>) -> Result<Seen> {
    line(ctx, program.as_ref().clone(), steps, "m".to_owned()).await
}

fn line(ctx: Ctx, ops: Vec<Op>, steps: Arc<Steps>, path: String) -> std::pin::Pin<Box<dyn Future<Output = Result<Seen>> + Send>> {
    Box::pin(async move {
        let mut seen: Seen = Vec::new();
        for (position, op) in ops.into_iter().enumerate() {
            let id = format!("{path}{position}");
            match op {
                Op::Task => seen.push(format!("task {}", ctx.task::<u64>("t", &id).await?)),
                Op::Step => {
                    let steps = steps.clone();
                    let step = ctx.step(&id, async || {
                        assert!(!steps.recorded.lock().unwrap().contains(&id), "a recorded step ran again");
                        Ok::<_, Failure>(id.len() as u64)
                    });
                    seen.push(format!("step {}", step.await?));
                }
                Op::Sleep => {
                    ctx.sleep(SECOND).await?;
                    seen.push("slept".to_owned());
                }
                Op::Child => seen.push(format!("child {}", ctx.child::<u64>("c", &id).await?)),
                Op::Now => seen.push(format!("now {}", ctx.now().0)),
                Op::Random => seen.push(format!("random {}", ctx.random())),
                Op::Has(name) => seen.push(format!("has {}", ctx.signal(NAMES[name]).has())),
                Op::Count(name) => seen.push(format!("count {}", ctx.signal(NAMES[name]).count())),
                Op::Recv(name) => seen.push(format!("recv {}", ctx.signal(NAMES[name]).recv::<u64>().await?)),
                Op::RecvTimeout(name) => {
                    let received: Option<u64> = ctx.signal(NAMES[name]).recv_timeout(SECOND).await?;
                    seen.push(format!("recv_timeout {received:?}"));
                }
                Op::Drain(name) => seen.push(format!("drain {:?}", ctx.signal(NAMES[name]).drain::<u64>()?)),
                Op::SignalOrTask(name) => seen.push(select! {
                    signal = ctx.signal(NAMES[name]).recv::<u64>() => format!("select signal {}", signal?),
                    task = ctx.task::<u64>("t", &id) => format!("select task {}", task?),
                }),
                Op::SignalOrSleep(name) => seen.push(select! {
                    slept = ctx.sleep(SECOND) => { slept?; "select slept".to_owned() },
                    signal = ctx.signal(NAMES[name]).recv::<u64>() => format!("select signal {}", signal?),
                }),
                Op::Both(left, right) => {
                    let (left, right) = join!(
                        line(ctx.clone(), left, steps.clone(), format!("{id}l")),
                        line(ctx.clone(), right, steps.clone(), format!("{id}r")),
                    );
                    seen.push(format!("both {:?} {:?}", left?, right?));
                }
            }
        }
        Ok(seen)
    })
}

/// A line, the name it waits for, and the signal promised to it: index and value.
type Waiter = (usize, usize, Option<(u64, u64)>);

/// The plain model.
struct Model<'a> {
    lines: Vec<Line<'a>>,
    /// Signals that nobody has and nobody is promised, by index.
    mailbox: Vec<(u64, usize, u64)>,
    /// Who waits for a signal of which name, longest first, and the signal promised to them.
    waiters: Vec<Waiter>,
    delivered: u64,
    now: u64,
    seed: u64,
}

struct Line<'a> {
    ops: &'a [Op],
    at: usize,
    branch: Vec<u32>,
    ordinal: u32,
    seen: Seen,
    wait: Wait,
    parent: Option<usize>,
}

#[derive(Debug, Clone, PartialEq)]
enum Wait {
    /// Can go on.
    None,
    /// For the answer to the call at this place.
    Call(Vec<u32>),
    Signal,
    /// For a signal, or the call at this place.
    SignalOr(Vec<u32>),
    /// For two lines.
    Lines(usize, usize),
    Done,
}

impl<'a> Model<'a> {
    fn read(program: &'a [Op], world: &World) -> Option<Seen> {
        let main = Line { ops: program, at: 0, branch: Vec::new(), ordinal: 0, seen: Vec::new(), wait: Wait::None, parent: None };
        let mut model = Model { lines: vec![main], mailbox: Vec::new(), waiters: Vec::new(), delivered: 0, now: 0, seed: 0 };
        let records = world.log().records();
        let mut horizons: Vec<u64> = records.iter().filter_map(|record| record.commit.map(|commit| commit.horizon.0)).collect();
        horizons.push(u64::MAX);
        let events: Vec<_> =
            records.iter().flat_map(|record| record.indexed().map(|(index, event)| (index.0, record.at.0, event))).collect();
        let mut next = 0;
        for horizon in horizons {
            let end = events[next..].iter().position(|(index, ..)| *index > horizon).map_or(events.len(), |offset| next + offset);
            for (index, _, event) in &events[next..end] {
                if let Event::SignalReceived(signal) = event {
                    let name = NAMES.iter().position(|name| signal.name == **name).unwrap();
                    model.place_signal(*index, name, signal.payload.read().unwrap());
                }
            }
            for (index, at, event) in &events[next..end] {
                model.deliver(*index, *at, event);
            }
            next = end;
        }
        (model.lines[0].wait == Wait::Done).then(|| model.lines[0].seen.clone())
    }

    /// Promises a signal to who has waited longest, or leaves it in the mailbox.
    fn place_signal(&mut self, index: u64, name: usize, value: u64) {
        match self.waiters.iter_mut().find(|(_, waited, promised)| *waited == name && promised.is_none()) {
            Some(waiter) => waiter.2 = Some((index, value)),
            None => {
                self.mailbox.push((index, name, value));
                self.mailbox.sort_unstable();
            }
        }
    }

    fn deliver(&mut self, index: u64, at: u64, event: &Event) {
        self.delivered = index;
        self.now = self.now.max(at);
        let path = |place: &Place| place.path().collect::<Vec<u32>>();
        let value = |payload: &Payload| payload.read::<u64>().unwrap();
        match event {
            Event::RunStarted(started) => {
                self.seed = started.seed;
                self.run(0);
            }
            Event::SignalReceived(_) => self.hand_out(),
            Event::TaskCompleted(event) => self.answer(&path(&event.place), &format!("task {}", value(&event.output))),
            Event::ChildCompleted(event) => self.answer(&path(&event.place), &format!("child {}", value(&event.output))),
            Event::StepCompleted(event) => self.answer(&path(&event.place), &format!("step {}", value(&event.output))),
            Event::TimerFired(event) => self.answer(&path(&event.place), "slept"),
            _ => {}
        }
    }

    /// Whoever is promised a signal that has been delivered gets it, lowest index first.
    fn hand_out(&mut self) {
        loop {
            let due =
                self.waiters.iter().enumerate().filter(|(_, waiter)| waiter.2.is_some_and(|(index, _)| index <= self.delivered));
            let Some(position) = due.min_by_key(|(_, waiter)| waiter.2).map(|(position, _)| position) else { return };
            let (line, _, promised) = self.waiters.remove(position);
            let (_, value) = promised.unwrap();
            let text = match self.lines[line].ops[self.lines[line].at] {
                Op::RecvTimeout(_) => format!("recv_timeout Some({value})"),
                Op::SignalOrTask(_) | Op::SignalOrSleep(_) => format!("select signal {value}"),
                _ => format!("recv {value}"),
            };
            self.go_on(line, text);
        }
    }

    fn answer(&mut self, place: &[u32], text: &str) {
        let waits = |line: &Line| matches!(&line.wait, Wait::Call(own) | Wait::SignalOr(own) if own == place);
        let Some(line) = self.lines.iter().position(waits) else { return };
        let text = match self.lines[line].ops[self.lines[line].at] {
            Op::RecvTimeout(_) => "recv_timeout None".to_owned(),
            Op::SignalOrTask(_) | Op::SignalOrSleep(_) => format!("select {text}"),
            _ => text.to_owned(),
        };
        if let Some(position) = self.waiters.iter().position(|(waiter, ..)| *waiter == line) {
            let (_, name, promised) = self.waiters.remove(position);
            if let Some((index, value)) = promised {
                // The loser is dropped before the line goes on: the signal is there for what comes next.
                self.place_signal(index, name, value);
            }
            self.go_on(line, text);
            return self.hand_out();
        }
        self.go_on(line, text);
    }

    fn go_on(&mut self, line: usize, text: String) {
        self.lines[line].seen.push(text);
        self.lines[line].at += 1;
        self.lines[line].wait = Wait::None;
        self.run(line);
    }

    fn next_place(&mut self, line: usize) -> Vec<u32> {
        let line = &mut self.lines[line];
        let place = line.branch.iter().copied().chain([line.ordinal]).collect();
        line.ordinal += 1;
        place
    }

    fn take(&mut self, name: usize) -> Option<u64> {
        let position = self.mailbox.iter().position(|(_, other, _)| *other == name)?;
        Some(self.mailbox.remove(position).2)
    }

    /// Runs a line until it waits.
    fn run(&mut self, line: usize) {
        while self.lines[line].wait == Wait::None {
            let (ops, at) = (self.lines[line].ops, self.lines[line].at);
            let Some(op) = ops.get(at) else {
                self.lines[line].wait = Wait::Done;
                return self.line_done(line);
            };
            match self.ask(line, op) {
                Ok(text) => {
                    self.lines[line].seen.push(text);
                    self.lines[line].at += 1;
                }
                Err(wait) => {
                    self.lines[line].wait = wait.clone();
                    if let Wait::Lines(left, right) = wait {
                        self.run(left);
                        self.run(right);
                    }
                }
            }
        }
    }

    fn line_done(&mut self, line: usize) {
        let Some(parent) = self.lines[line].parent else { return };
        if let Wait::Lines(left, right) = self.lines[parent].wait
            && [left, right].iter().all(|arm| self.lines[*arm].wait == Wait::Done)
        {
            let text = format!("both {:?} {:?}", self.lines[left].seen, self.lines[right].seen);
            self.go_on(parent, text);
        }
    }

    /// What an operation sees at once, or what it waits for.
    fn ask(&mut self, line: usize, op: &'a Op) -> Result<String, Wait> {
        let count = |model: &Model, name: usize| model.mailbox.iter().filter(|(_, other, _)| *other == name).count();
        match op {
            Op::Task | Op::Step | Op::Sleep | Op::Child => Err(Wait::Call(self.next_place(line))),
            Op::Now => Ok(format!("now {}", self.now)),
            Op::Random => {
                let place = Place::from_path(&self.next_place(line)).unwrap();
                Ok(format!("random {}", onward_core::random::derive(self.seed, &place, 0)))
            }
            Op::Has(name) => Ok(format!("has {}", count(self, *name) > 0)),
            Op::Count(name) => Ok(format!("count {}", count(self, *name))),
            Op::Recv(name) => {
                self.next_place(line);
                match self.take(*name) {
                    Some(value) => Ok(format!("recv {value}")),
                    None => {
                        self.waiters.push((line, *name, None));
                        Err(Wait::Signal)
                    }
                }
            }
            Op::RecvTimeout(name) => {
                self.next_place(line);
                match self.take(*name) {
                    Some(value) => Ok(format!("recv_timeout Some({value})")),
                    None => {
                        self.waiters.push((line, *name, None));
                        Err(Wait::SignalOr(self.next_place(line)))
                    }
                }
            }
            Op::Drain(name) => {
                let taken: Vec<u64> = std::iter::from_fn(|| self.take(*name)).collect();
                (0..=taken.len()).for_each(|_| drop(self.next_place(line)));
                Ok(format!("drain {taken:?}"))
            }
            Op::SignalOrTask(name) | Op::SignalOrSleep(name) => {
                let places = [self.next_place(line), self.next_place(line), self.next_place(line)];
                match self.take(*name) {
                    Some(value) => Ok(format!("select signal {value}")),
                    None => {
                        self.waiters.push((line, *name, None));
                        let call = if matches!(op, Op::SignalOrTask(_)) { 1 } else { 0 };
                        Err(Wait::SignalOr(places[call].clone()))
                    }
                }
            }
            Op::Both(left, right) => {
                let place = self.next_place(line);
                let arm = |ops: &'a [Op], arm: u32| Line {
                    ops,
                    at: 0,
                    branch: place.iter().copied().chain([arm]).collect(),
                    ordinal: 0,
                    seen: Vec::new(),
                    wait: Wait::None,
                    parent: Some(line),
                };
                let first = self.lines.len();
                self.lines.extend([arm(left, 0), arm(right, 1)]);
                Err(Wait::Lines(first, first + 1))
            }
        }
    }
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
            match random.below(if nested { 13 } else { 14 }) {
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
                _ => Op::Both(program(random, 3, true), program(random, 3, true)),
            }
        })
        .collect()
}

/// Everything the world still owes the run.
struct Outside {
    next_value: u64,
    /// Tasks and children that were answered, so that each is once.
    answered: BTreeMap<Place, ()>,
}

impl Outside {
    fn signal(&mut self, world: &mut World, name: usize) {
        self.next_value += 1;
        world.signal(NAMES[name], &self.next_value);
    }

    /// The open tasks and children.
    fn owed(&self, world: &World) -> Vec<(Place, bool)> {
        let call = |event: &Event| match event {
            Event::TaskScheduled(task) => Some((task.place.clone(), true)),
            Event::ChildStarted(child) => Some((child.place.clone(), false)),
            _ => None,
        };
        let open = |place: &Place| !self.answered.contains_key(place);
        world.log().events().filter_map(|(_, event)| call(event)).filter(|(place, _)| open(place)).collect()
    }

    fn answer(&mut self, world: &mut World, place: Place, is_task: bool) {
        self.answered.insert(place.clone(), ());
        self.next_value += 1;
        let output = Payload::json(&self.next_value).unwrap();
        let event: Event =
            if is_task { TaskCompleted { place, output, attempts: 1 }.into() } else { ChildCompleted { place, output }.into() };
        world.input(event).unwrap();
    }

    /// Something random happens outside.
    fn happen(&mut self, world: &mut World, random: &mut Random) {
        world.advance_time(Duration::from_millis(random.below(3)));
        match random.below(4) {
            0 | 1 => self.signal(world, random.below(NAMES.len() as u64) as usize),
            2 => {
                let owed = self.owed(world);
                if !owed.is_empty() {
                    let (place, is_task) = owed[random.below(owed.len() as u64) as usize].clone();
                    self.answer(world, place, is_task);
                }
            }
            _ => {
                if let Some((place, _)) = world.next_timer() {
                    world.fire_timer(&place);
                }
            }
        }
    }
}

/// One program under one schedule; panics when anything is wrong.
fn case(seed: u64) {
    let mut random = Random::new(seed);
    let ops = Arc::new(program(&mut random, 5, false));
    let steps = Arc::new(Steps::default());
    let (ops_for_code, steps_for_code) = (ops.clone(), steps.clone());
    let workflow = move |ctx: Ctx, _: ()| interpret(ctx, ops_for_code.clone(), steps_for_code.clone());
    let mut world = World::new(workflow, &());
    let mut outside = Outside { next_value: 0, answered: BTreeMap::new() };
    for round in 0..400 {
        // At first the world is wild; later it only does what the run waits for, so that every program can end.
        let wild = round < 12;
        if wild && random.below(2) == 0 {
            outside.happen(&mut world, &mut random);
        }
        if wild && random.below(6) == 0 {
            world.crash();
        }
        let draft = world.activate().unwrap_or_else(|fault| panic!("{fault:?}\n{}", world.log().to_json_lines()));
        match draft {
            Some(draft) => {
                if wild && random.below(3) == 0 {
                    outside.happen(&mut world, &mut random); // between the activation and its commit
                }
                if wild && random.below(6) == 0 {
                    world.crash();
                    continue;
                }
                world.commit(draft);
                note_recorded(&world, &steps);
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
    assert_eq!(world.status(), Status::Completed, "the run did not end: {ops:?}\n{}", world.log().to_json_lines());
    let expected = Model::read(&ops, &world).expect("the model ends where the run ends");
    assert_eq!(world.output(), serde_json::to_string(&expected).unwrap(), "{ops:?}\n{}", world.log().to_json_lines());
    check_records(&world);
}

/// Gives the run what it waits for.
fn calm(world: &mut World, outside: &mut Outside) {
    if let Some((place, is_task)) = outside.owed(world).into_iter().next() {
        return outside.answer(world, place, is_task);
    }
    if let Some((place, _)) = world.next_timer() {
        return world.fire_timer(&place);
    }
    (0..NAMES.len()).for_each(|name| outside.signal(world, name));
}

fn note_recorded(world: &World, steps: &Steps) {
    let name = |event: &Event| match event {
        Event::StepCompleted(step) => Some(step.name.to_string()),
        _ => None,
    };
    *steps.recorded.lock().unwrap() = world.log().events().filter_map(|(_, event)| name(event)).collect();
}

/// No step is recorded twice, and no signal consumed twice.
fn check_records(world: &World) {
    let mut once = BTreeMap::new();
    for (_, event) in world.log().events() {
        let fact = match event {
            Event::StepCompleted(step) => format!("step {}", step.place),
            Event::SignalConsumed(signal) => format!("signal {}", signal.index),
            Event::TimerStarted(timer) => format!("timer {}", timer.place),
            Event::TaskScheduled(task) => format!("task {}", task.place),
            _ => continue,
        };
        assert!(once.insert(fact.clone(), ()).is_none(), "recorded twice: {fact}");
    }
}

/// Reproduces one case: `ONWARD_SEED=123 cargo test -p onward --test semantics generated`.
#[test]
fn random_programs_see_what_the_plain_model_says_under_every_schedule() {
    if let Some(seed) = std::env::var("ONWARD_SEED").ok().and_then(|seed| seed.parse().ok()) {
        return case(seed);
    }
    let threads = 2;
    let workers: Vec<_> = (0..threads)
        .map(|thread| {
            std::thread::spawn(move || {
                for seed in (thread..CASES).step_by(threads as usize) {
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

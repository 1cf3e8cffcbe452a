//! Breadth-first search over everything that can happen next.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use onward_core::conversation::{ENTRY_SIGNAL, OutsideEntry};
use onward_core::engine::Fault;
use onward_core::event::{
    ApprovalDecided, BranchRequested, ChildCompleted, ChildFailed, PromiseResolved, RunResumed, RunStarted, TaskAttempted,
    TaskCompleted, TaskFailed,
};
use onward_core::run::{Input, OutboxMessage, WaitKind};
use onward_core::task::EffectClass;
use onward_core::{CallId, Event, Failure, Name, Payload, Status};

use super::judge;
use super::mutant::{self, Mutant};
use super::program::{BETWEEN_TURNS, EDITOR, GUEST, MESSAGE, Outside, Program};
use super::recorded_calls::call_at;
use crate::agent::AgentCtx;
use crate::testing::World;

/// Limits of what may happen.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub signals: u32,
    /// Entries that a client appends.
    pub entries: u32,
    pub flips: u32,
    pub crashes: u32,
    /// Branches from an earlier entry that a client requests.
    pub branches: u32,
    /// Failures of tasks, children and promises, declined approvals, and lost workers.
    pub failures: u32,
    /// How often a run is taken from its worker, which continues and commits late.
    pub zombies: u32,
    pub resumes: u32,
    /// The bit is a clock: it never returns to an earlier value.
    pub clock: bool,
    /// The injected fault.
    pub mutant: Option<Mutant>,
}

impl Limits {
    pub const fn new(signals: u32, flips: u32, crashes: u32) -> Limits {
        let (entries, branches, failures, zombies, resumes) = (0, 0, 0, 0, 1);
        Limits { signals, entries, flips, crashes, branches, failures, zombies, resumes, clock: false, mutant: None }
    }

    pub const fn failures(self, failures: u32) -> Limits {
        Limits { failures, ..self }
    }

    pub const fn zombies(self, zombies: u32) -> Limits {
        Limits { zombies, ..self }
    }

    pub const fn branches(self, branches: u32) -> Limits {
        Limits { branches, ..self }
    }

    pub const fn entries(self, entries: u32) -> Limits {
        Limits { entries, ..self }
    }
}

#[derive(Default)]
pub(super) struct Explored {
    pub states: usize,
    pub abandonments: usize,
    pub unstable: usize,
    /// Violations, each with the shortest path to it.
    pub found: Vec<String>,
}

/// Maximum number of states of one program.
const STATES_MAX: usize = 200_000;

pub(super) struct State {
    pub world: World,
    log_hash: LogHash,
    pub bit: u32,
    pub signals: u32,
    pub entries: u32,
    pub flips: u32,
    pub crashes: u32,
    pub resumes: u32,
    pub branches: u32,
    failures: u32,
    zombies: u32,
    /// The bit at the checkpoint that closed the code before the loop.
    prelude: Option<u32>,
    /// Tasks that have begun: their generation and call id.
    pub begun: BTreeSet<(u32, CallId)>,
    /// Abandoned effects that were accepted by resuming the run.
    pub accepted: BTreeSet<(u32, CallId)>,
    /// The operation of the code after the last commit.
    pub doing: char,
    /// Children that have ended.
    pub ended: BTreeSet<String>,
    /// An activation that has not committed yet.
    flying: Option<Activation>,
    /// The same of the previous worker, which does not know that the run was taken from it.
    zombie: Option<Activation>,
    trace: Option<Arc<Trace>>,
}

/// The world and the bit as an activation has read them.
struct Activation {
    world: World,
    log_hash: LogHash,
    bit: u32,
}

impl Activation {
    fn copy(&self) -> Activation {
        Activation { world: self.world.copy(), ..*self }
    }
}

/// The hash of the open log, which is continued with each new record.
#[derive(Clone, Copy, Default, Hash)]
struct LogHash {
    generation: usize,
    records: usize,
    hash: u64,
}

impl LogHash {
    fn update(&mut self, world: &World) {
        let generation = world.past_logs().len();
        if self.generation != generation {
            *self = LogHash { generation, ..LogHash::default() };
        }
        for record in &world.log().records()[self.records..] {
            let mut hasher = DefaultHasher::new();
            // Ids of commits depend on the path to a state, and nothing else does.
            let commit = record.commit.map(|commit| (commit.n, commit.horizon, commit.waits));
            (self.hash, record.index, commit, format!("{:?}", record.events)).hash(&mut hasher);
            self.hash = hasher.finish();
            self.records += 1;
        }
    }
}

struct Trace {
    made: Move,
    before: Option<Arc<Trace>>,
}

impl State {
    fn first(program: &Program, outside: &Outside) -> State {
        let (code, outside) = (program.clone(), outside.clone());
        State {
            world: World::new_agent(move |ctx: AgentCtx, (): ()| code.clone().run(ctx, outside.clone()), &()),
            log_hash: LogHash::default(),
            bit: 0,
            signals: 0,
            entries: 0,
            flips: 0,
            crashes: 0,
            resumes: 0,
            branches: 0,
            failures: 0,
            zombies: 0,
            prelude: None,
            begun: BTreeSet::new(),
            accepted: BTreeSet::new(),
            doing: BETWEEN_TURNS,
            ended: BTreeSet::new(),
            flying: None,
            zombie: None,
            trace: None,
        }
    }

    fn copy(&self) -> State {
        State {
            world: self.world.copy(),
            flying: self.flying.as_ref().map(Activation::copy),
            zombie: self.zombie.as_ref().map(Activation::copy),
            begun: self.begun.clone(),
            accepted: self.accepted.clone(),
            ended: self.ended.clone(),
            trace: self.trace.clone(),
            ..*self
        }
    }

    fn key(&mut self) -> u64 {
        self.log_hash.update(&self.world);
        let mut hasher = DefaultHasher::new();
        let held = [&self.flying, &self.zombie].map(|held| held.as_ref().map(|held| (held.log_hash, held.bit)));
        (self.log_hash, held, self.prelude, self.failures, self.zombies).hash(&mut hasher);
        (self.bit, self.signals, self.entries, self.flips, self.crashes, self.resumes, self.branches).hash(&mut hasher);
        (&self.begun, &self.accepted, self.doing).hash(&mut hasher);
        (&self.ended, self.world.tasks.keys().collect::<Vec<_>>()).hash(&mut hasher);
        (self.world.waits.keys().collect::<Vec<_>>(), self.world.timers.keys().collect::<Vec<_>>()).hash(&mut hasher);
        hasher.finish()
    }

    /// Returns the answer to the call at `call_id`: its identity and call id.
    pub fn answer_to(&self, call_id: &CallId) -> String {
        let call = call_at(self.world.log(), self.world.generation(), call_id).expect("there is a call");
        format!("{call} by {call_id}")
    }

    fn failure(&self, call_id: &CallId, code: &str) -> Failure {
        Failure { retryable: false, ..Failure::new(code, self.answer_to(call_id)) }
    }

    /// Appends an input to the open generation.
    fn append_input(&mut self, event: impl Into<Event>) {
        let generation = Some(self.world.generation());
        self.world.append(Input { generation, ..Input::new(event) }).expect("an open run takes inputs");
    }

    fn append_answer(&mut self, event: impl Into<Event>, mutant: Option<Mutant>) {
        if mutant != Some(Mutant::LosesAnswer) {
            self.append_input(event);
        }
    }

    /// Renders the path to the state, and all its logs.
    pub fn describe(&self) -> String {
        let logs = self.world.past_logs().iter().chain([self.world.log()]);
        format!("{}\n{}", self.way(), logs.map(onward_core::Log::to_json_lines).collect::<Vec<_>>().join("\n"))
    }

    fn way(&self) -> String {
        let (mut labels, mut next) = (Vec::new(), &self.trace);
        while let Some(trace) = next {
            labels.push(format!("{:?}", trace.made));
            next = &trace.before;
        }
        labels.reverse();
        labels.join(" | ")
    }
}

pub(super) fn explore(program: &Program, limits: Limits) -> Explored {
    let outside = Outside::default();
    let mut first = State::first(program, &outside);
    let (mut explored, mut seen, mut todo) = (Explored::default(), HashSet::from([first.key()]), VecDeque::from([first]));
    while let Some(state) = todo.pop_front() {
        let moves = moves(&state, limits);
        if moves.is_empty() && judge::is_stuck(&state) {
            explored.found.push(stuck(&state));
        }
        for next in moves {
            match make(state.copy(), next, limits, &outside) {
                Err(found) => explored.found.push(found),
                Ok(mut state) => {
                    if seen.insert(state.key()) {
                        explored.abandonments += judge::abandonments(state.world.log());
                        explored.unstable += usize::from(judge::is_unstable(&state));
                        todo.push_back(state);
                    }
                }
            }
        }
        assert!(seen.len() < STATES_MAX, "{program:?} has too many states");
        if explored.found.len() > 3 {
            break;
        }
    }
    explored.states = seen.len();
    explored
}

type Next = Result<State, String>;

/// A possible event.
#[derive(Debug, Clone)]
enum Move {
    Message,
    Append,
    /// A client branches from the beginning of an earlier turn, so many checkpoints back, with a message or without.
    Branch(usize, bool),
    Begin(CallId),
    Finish(CallId),
    /// The task fails for good.
    Fail(CallId),
    /// The worker of the task is lost.
    Lose(CallId),
    Answer(CallId),
    Decline(CallId),
    Fire(CallId),
    ChildEnds(CallId, String),
    ChildFails(CallId, String),
    /// An activation reads the log, with the bit as it was (0) or flipped (1).
    TakeOff(u32),
    /// The activation commits once.
    Land,
    Crash,
    /// Another worker takes the run, because its holder is silent.
    Take,
    /// The previous holder commits late.
    LandLate,
    /// An activation that continues until there is nothing more to do, commit after commit.
    Pump,
    Resume,
}

fn moves(state: &State, limits: Limits) -> Vec<Move> {
    let mut moves = Vec::new();
    let status = state.world.status();
    if !status.is_closed() {
        inputs(state, limits, &mut moves);
    }
    if state.flying.is_some() {
        moves.push(Move::Land);
        moves.extend((state.crashes < limits.crashes).then_some(Move::Crash));
        moves.extend((state.zombies < limits.zombies && state.zombie.is_none()).then_some(Move::Take));
    } else if status == Status::Pending {
        moves.push(Move::TakeOff(0));
        moves.extend((state.flips < limits.flips).then_some(Move::TakeOff(1)));
        // Faults are injected into single commits.
        moves.extend(limits.mutant.is_none().then_some(Move::Pump));
    } else if status == Status::Paused && state.resumes < limits.resumes {
        moves.push(Move::Resume);
    }
    moves.extend(state.zombie.is_some().then_some(Move::LandLate));
    moves
}

/// Adds the inputs that may come.
fn inputs(state: &State, limits: Limits, moves: &mut Vec<Move>) {
    moves.extend((state.signals < limits.signals).then_some(Move::Message));
    moves.extend((state.entries < limits.entries).then_some(Move::Append));
    if state.branches < limits.branches {
        let ways = [(0, false), (0, true), (1, true)].into_iter();
        let count = checkpoints(&state.world).len();
        moves.extend(ways.filter(|(back, _)| *back < count).map(|(back, has_entry)| Move::Branch(back, has_entry)));
    }
    let (generation, may_fail) = (state.world.generation(), state.failures < limits.failures);
    for (call_id, task) in &state.world.tasks {
        // A pure task may begin any number of times.
        let is_begun = state.begun.contains(&(generation, call_id.clone()));
        if is_begun || task.options.class == Some(EffectClass::Pure) {
            moves.push(Move::Finish(call_id.clone()));
            moves.extend(may_fail.then(|| Move::Fail(call_id.clone())));
            moves.extend((may_fail && is_begun).then(|| Move::Lose(call_id.clone())));
        } else if state.world.status() != Status::Paused {
            moves.push(Move::Begin(call_id.clone()));
        }
    }
    moves.extend(state.world.waits.keys().cloned().map(Move::Answer));
    moves.extend(state.world.waits.keys().filter(|_| may_fail).cloned().map(Move::Decline));
    moves.extend(state.world.next_timer().map(|(call_id, _)| Move::Fire(call_id)));
    for delivery in &state.world.sent {
        let OutboxMessage::Start(run) = delivery else { continue };
        let (Some(parent), id) = (&run.started.parent, run.key.id.to_string()) else { continue };
        if !state.ended.contains(&id) && parent.generation == generation {
            moves.extend(may_fail.then(|| Move::ChildFails(parent.call_id.clone(), id.clone())));
            moves.push(Move::ChildEnds(parent.call_id.clone(), id));
        }
    }
}

fn make(mut state: State, made: Move, limits: Limits, outside: &Outside) -> Next {
    state.trace = Some(Arc::new(Trace { made: made.clone(), before: state.trace.take() }));
    let generation = state.world.generation();
    let mutant = limits.mutant;
    match made {
        Move::Message => {
            state.signals += 1;
            let number = state.signals;
            mutant::times(mutant, Mutant::LosesMessage, Mutant::RepeatsMessage, || state.world.signal(MESSAGE, &number));
        }
        Move::Append => {
            state.entries += 1;
            let entry = guest(state.entries);
            mutant::times(mutant, Mutant::LosesGuest, Mutant::RepeatsGuest, || state.world.signal(ENTRY_SIGNAL, &entry));
        }
        Move::Branch(back, has_entry) => {
            state.branches += 1;
            let entry = has_entry.then(|| outside_entry(EDITOR, state.branches));
            let request = BranchRequested { entry, ..checkpoints(&state.world).swap_remove(back) };
            if mutant == Some(Mutant::TakesEveryBranch) {
                state.world.forget_branch();
            }
            let answer = state.world.append(Input { generation: Some(generation), ..Input::new(request) });
            if let Some(refusal) = answer.err().filter(|_| !judge::is_branched(state.world.log())) {
                return Err(format!("MA9 {refusal}: {}", state.describe()));
            }
            return judge::judge(state);
        }
        Move::Begin(call_id) => {
            if !judge::claimed(state.world.log()).contains(&call_id) {
                return Err(format!("MA3 {call_id} begins, though it is abandoned: {}", state.describe()));
            }
            state.begun.insert((generation, call_id.clone()));
            if mutant != Some(Mutant::HidesAttempts) {
                state.append_input(TaskAttempted { call_id, attempt: 1, ledger_name: None, began_at: None });
            }
            return judge::judge(state);
        }
        Move::Finish(call_id) => {
            let output = mutant::answer(&state, &call_id, mutant);
            state.world.tasks.remove(&call_id);
            let output = Payload::json(&output).expect("text");
            state.append_answer(TaskCompleted { call_id, output, attempts: 1, ran: None }, mutant);
        }
        Move::Fail(call_id) => {
            state.failures += 1;
            state.world.tasks.remove(&call_id);
            let failure = state.failure(&call_id, "failed");
            state.append_input(TaskFailed { call_id, failure, attempts: 1, ran: None });
        }
        Move::Lose(call_id) => {
            state.failures += 1;
            if state.world.tasks[&call_id].options.class == Some(EffectClass::AtMostOnce) {
                state.world.tasks.remove(&call_id);
                let failure = state.failure(&call_id, "outcome_unknown");
                state.append_input(TaskFailed { call_id, failure, attempts: 1, ran: None });
            } else {
                state.append_input(TaskAttempted { call_id, attempt: 2, ledger_name: None, began_at: None });
            }
        }
        Move::Answer(call_id) => {
            let (kind, answer) = (state.world.waits[&call_id].kind, Ok(mutant::answer(&state, &call_id, mutant)));
            if mutant == Some(Mutant::LosesAnswer) {
                state.world.waits.remove(&call_id);
            }
            state.append_answer(decide(call_id, kind, answer), mutant);
        }
        Move::Decline(call_id) => {
            state.failures += 1;
            let (kind, answer) = (state.world.waits[&call_id].kind, Err(state.failure(&call_id, "declined")));
            state.append_input(decide(call_id, kind, answer));
        }
        Move::Fire(call_id) => state.world.fire_timer(&call_id),
        Move::ChildEnds(call_id, id) => {
            state.ended.insert(id);
            let output = Payload::json(&mutant::answer(&state, &call_id, mutant)).expect("text");
            state.append_answer(ChildCompleted { call_id, output, child: None, spent: None }, mutant);
        }
        Move::ChildFails(call_id, id) => {
            state.failures += 1;
            state.ended.insert(id);
            let failure = state.failure(&call_id, "failed");
            state.append_input(ChildFailed { call_id, failure, child: None, spent: None });
        }
        Move::TakeOff(flip) => {
            state.bit = if limits.clock { state.bit + flip } else { (state.bit + flip) % 2 };
            state.flips += if mutant == Some(Mutant::HidesFlips) { 0 } else { flip };
            state.log_hash.update(&state.world);
            state.flying = Some(Activation { world: state.world.copy(), log_hash: state.log_hash, bit: state.bit });
        }
        Move::Land => return land(state, limits, outside),
        Move::Crash => (state.flying, state.crashes) = (None, state.crashes + 1),
        Move::Take => {
            state.zombies += 1;
            state.zombie = state.flying.take();
            state.world.take_lease();
        }
        Move::LandLate => return land_late(state, outside),
        Move::Pump => {
            outside.set(state.bit, state.prelude);
            let pumped = state.world.run_until_idle();
            state.world.crash();
            return match pumped {
                Ok(()) if state.world.status() == Status::Paused => judge::judge(state),
                Ok(()) => committed(state, outside, generation),
                Err(fault) => pause(state, fault, limits),
            };
        }
        Move::Resume => {
            state.resumes += 1;
            state.accepted.extend(judge::accepted(&state));
            state.append_input(RunResumed::default());
        }
    }
    if mutant == Some(Mutant::LosesWakeups) && state.world.status() == Status::Pending && state.world.log().records().len() > 1 {
        state.world.sleep_on();
    }
    Ok(state)
}

/// Returns the checkpoints that a branch may go back to, the latest first.
fn checkpoints(world: &World) -> Vec<BranchRequested> {
    let logs = [world.log()].into_iter().chain(world.past_logs().iter().rev());
    let started = logs.filter_map(|log| log.records().first()?.started().cloned());
    let request = |started: RunStarted| {
        let checkpoint = started.checkpoint?;
        let (from, depth, input) = (checkpoint.leaf, checkpoint.depth, started.input);
        Some(BranchRequested { from, depth, entry: None, checkpoint, input, request_id: None })
    };
    started.filter_map(request).collect()
}

/// Returns an entry from outside; every second one has a key.
fn guest(number: u32) -> OutsideEntry {
    OutsideEntry { idempotency_key: number.is_multiple_of(2).then(|| number.to_string()), ..outside_entry(GUEST, number) }
}

fn outside_entry(role: &str, number: u32) -> OutsideEntry {
    let content = Payload::json(&number).expect("a number");
    OutsideEntry { role: Name::new(role).expect("a name"), content, idempotency_key: None }
}

fn decide(call_id: CallId, kind: WaitKind, answer: Result<String, Failure>) -> Event {
    match kind {
        WaitKind::Approval => {
            let (approved, decided_by, decision_id) = (answer.is_ok(), None, "d".to_owned());
            let feedback = Some(answer.unwrap_or_else(|failure| failure.message));
            ApprovalDecided { call_id, approved, feedback, decided_by, answer: None, decision_id }.into()
        }
        WaitKind::Promise => {
            let result = answer.map(|text| Payload::json(&text).expect("text"));
            PromiseResolved { call_id, result, resolution_id: "r".to_owned() }.into()
        }
    }
}

fn land(mut state: State, limits: Limits, outside: &Outside) -> Next {
    let Some(Activation { world: mut seen, bit, .. }) = state.flying.take() else { return Ok(state) };
    outside.set(bit, state.prelude);
    let generation = state.world.generation();
    match seen.activate() {
        Ok(Some(mut draft)) => {
            mutant::draft(&state, &mut draft, limits.mutant);
            let tasks = state.world.tasks.clone();
            if !state.world.commit(draft) {
                return judge::judge(state);
            }
            if limits.mutant == Some(Mutant::KeepsTasks) && state.world.generation() == generation {
                state.world.tasks.extend(tasks);
            }
            committed(state, outside, generation)
        }
        Ok(None) => judge::judge(state),
        Err(fault) => pause(state, fault, limits),
    }
}

/// Commits for the previous holder of a run, which must be refused (MA8).
fn land_late(mut state: State, outside: &Outside) -> Next {
    let Some(Activation { world: mut seen, bit, .. }) = state.zombie.take() else { return Ok(state) };
    outside.set(bit, state.prelude);
    let is_refused = match seen.activate() {
        Ok(None) => true,
        Ok(Some(draft)) => state.world.refuses_late(draft, &seen),
        Err(fault) => fault.into_pause().is_none_or(|report| state.world.refuses_late_pause(report, &seen)),
    };
    if !is_refused {
        return Err(format!("MA8 a commit of a previous holder was accepted: {}", state.describe()));
    }
    judge::judge(state)
}

/// Checks that what the code did in its last execution, from `generation` on, is recorded.
fn committed(mut state: State, outside: &Outside, generation: u32) -> Next {
    let done = outside.done();
    state.doing = done.doing;
    if generation == 0 && state.world.generation() > 0 {
        state.prelude = Some(outside.bit());
    }
    judge::compare(&state, &done)?;
    judge::judge(state)
}

fn pause(mut state: State, fault: Fault, limits: Limits) -> Next {
    if !matches!(fault, Fault::EffectAbandoned { .. } | Fault::Unstable(_)) {
        return Err(format!("{fault:?}: {}", state.describe()));
    }
    let report = fault.into_pause().expect("both are told");
    // It may have been paused or ended meanwhile.
    let is_paused = state.world.input(report).is_ok();
    if is_paused && limits.mutant == Some(Mutant::ResumesByItself) {
        state.append_input(RunResumed::default());
    }
    judge::judge(state)
}

fn stuck(state: &State) -> String {
    format!("MA5 stuck: {}", state.describe())
}

/// Follows one path of a program; `choose` selects one of the given number of moves.
pub(super) fn walk(program: &Program, limits: Limits, mut choose: impl FnMut(usize) -> usize) -> Result<Walked, String> {
    let outside = Outside::default();
    let mut state = State::first(program, &outside);
    for _ in 0..MOVES_MAX {
        let mut moves = moves(&state, limits);
        if moves.is_empty() {
            return if judge::is_stuck(&state) { Err(stuck(&state)) } else { Ok(Walked::of(&state)) };
        }
        let next = moves.swap_remove(choose(moves.len()));
        state = make(state, next, limits, &outside)?;
    }
    Err(format!(
        "MA5 no end after {MOVES_MAX} moves: {}",
        stuck(&state).chars().rev().take(6_000).collect::<String>().chars().rev().collect::<String>()
    ))
}

/// Maximum length of a path: far more than any program needs.
const MOVES_MAX: usize = 500;

/// The end of a path.
#[derive(Clone)]
pub(super) struct Walked {
    pub is_closed: bool,
    pub abandonments: usize,
}

impl Walked {
    fn of(state: &State) -> Walked {
        let logs = state.world.past_logs().iter().chain([state.world.log()]);
        Walked { is_closed: state.world.status().is_closed(), abandonments: logs.map(judge::abandonments).sum() }
    }
}

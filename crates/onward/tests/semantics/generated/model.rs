//! The plain model of a random program: no futures, no wakers, no engine. It reads a log and derives what the code must have
//! seen.

use std::collections::{BTreeMap, BTreeSet};

use onward::prelude::*;
use onward_core::{CallId, Event, Log, Name, Payload};

use super::mutants::Mutant;
use super::{CHANGES, Combinator, NAMES, Op, Seen, Updates, handle};

/// A line, the name it waits for, and the signal promised to it: index and value.
type Waiter = (usize, usize, Option<(u64, u64)>);

/// The plain model of one generation.
pub struct Model<'a> {
    pub lines: Vec<Line<'a>>,
    /// Signals that are neither consumed nor promised, by index.
    mailbox: Vec<(u64, usize, u64)>,
    /// Lines that wait for a signal, longest first, and the signal promised to them.
    waiters: Vec<Waiter>,
    delivered: u64,
    now: u64,
    seed: u64,
    /// The recorded version of each change.
    versions: BTreeMap<String, u32>,
    /// The steps that were recorded as canceled before they began.
    given_up: BTreeSet<Vec<u32>>,
    /// A cancellation was requested; whether it has yet to interrupt a call.
    canceled: Option<bool>,
    handles_updates: bool,
    /// Updates without a handler, and those that came after the end.
    pub kept: Vec<(String, u64)>,
    updated: Updates,
    pub answers: Vec<(String, Result<usize>)>,
    /// The rule that this model breaks on purpose.
    mutant: Option<Mutant>,
}

pub struct Line<'a> {
    ops: &'a [Op],
    at: usize,
    branch: Vec<u32>,
    ordinal: u32,
    pub seen: Seen,
    /// What the waiting operation has seen before.
    saw: String,
    wait: Wait,
    /// The two tasks of the current operation of the line.
    pair: Option<Pair>,
    parent: Option<usize>,
}

/// Two tasks that are scheduled at once and awaited together, after a pause.
#[derive(Debug)]
struct Pair {
    tasks: [Vec<u32>; 2],
    /// Their answers with the index of the event; `Err` is the text of the failure.
    answers: [Option<(u64, Result<u64, String>)>; 2],
    timer: Vec<u32>,
    /// The outcome of the pause, once it is over.
    slept: Option<&'static str>,
    /// Number of pauses during which they were kept.
    seconds: u32,
    /// The pause that they are joined with, and its outcome.
    beside: Option<(Vec<u32>, Option<&'static str>)>,
}

impl Pair {
    /// Returns the outcome of the combinator once it is decided. Of several answers the one with the lower index counts.
    fn outcome(&self, combinator: Combinator, mutant: Option<Mutant>) -> Option<String> {
        let mut answers: Vec<_> = self.answers.iter().flatten().collect();
        if mutant != Some(Mutant::FirstInListWins) {
            answers.sort_by_key(|(index, _)| *index); // stable: the order of the list is next
        }
        let all = answers.len() == self.tasks.len() || mutant == Some(Mutant::FirstFailureEnds);
        let first =
            |wanted: fn(&Result<u64, String>) -> bool| answers.iter().map(|(_, answer)| answer).find(|answer| wanted(answer));
        match (combinator, first(Result::is_ok), first(Result::is_err)) {
            (Combinator::Race, Some(Ok(value)), _) => Some(value.to_string()),
            (Combinator::Race, _, _) => all.then(|| "all_failed".to_owned()),
            (Combinator::JoinAll, _, Some(Err(failure))) => all.then(|| failure.clone()),
            (Combinator::JoinAll, _, _) => {
                all.then(|| format!("{:?}", self.answers.iter().flatten().flat_map(|(_, answer)| answer).collect::<Vec<_>>()))
            }
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
enum Wait {
    /// Can continue.
    None,
    /// For the answer to the call with this id.
    Call(Vec<u32>),
    Signal,
    /// For a signal, or the call with this id.
    SignalOr(Vec<u32>),
    /// For a cancellation, or the call with this id.
    CancelOr(Vec<u32>),
    /// For two tasks, or the pause before they are awaited.
    Pair,
    /// For two lines.
    Lines(usize, usize),
    Done,
}

impl<'a> Line<'a> {
    fn new(ops: &'a [Op], branch: Vec<u32>, parent: Option<usize>) -> Line<'a> {
        Line { ops, at: 0, branch, ordinal: 0, seen: Vec::new(), saw: String::new(), wait: Wait::None, pair: None, parent }
    }
}

impl<'a> Model<'a> {
    /// Reads the log of one generation to its end.
    pub fn read(program: &'a [Op], log: &Log) -> Model<'a> {
        Model::read_as(program, log, None)
    }

    /// Reads a log like [`Model::read`], except for the rule that `mutant` breaks.
    pub fn read_as(program: &'a [Op], log: &Log, mutant: Option<Mutant>) -> Model<'a> {
        let main = Line::new(program, Vec::new(), None);
        let chosen = |event: &Event| match event {
            Event::VersionChosen(chosen) => Some((chosen.change.to_string(), chosen.version)),
            _ => None,
        };
        let given_up = |event: &Event| match event {
            Event::WaitCanceled(wait) => Some(wait.call_id.path().collect()),
            _ => None,
        };
        let mut model = Model {
            lines: vec![main],
            mailbox: Vec::new(),
            waiters: Vec::new(),
            delivered: 0,
            now: 0,
            seed: 0,
            versions: log.events().filter_map(|(_, event)| chosen(event)).collect(),
            given_up: log.events().filter_map(|(_, event)| given_up(event)).collect(),
            canceled: None,
            handles_updates: false,
            kept: Vec::new(),
            updated: Updates::default(),
            answers: Vec::new(),
            mutant,
        };
        let records = log.records();
        // Events after the last horizon came too late: the code has not seen them.
        let horizons = records.iter().filter_map(|record| {
            let horizon = record.commit?.horizon.0;
            Some(if mutant == Some(Mutant::HorizonAtCommit) { record.index.0 - 1 } else { horizon })
        });
        let events: Vec<_> =
            records.iter().flat_map(|record| record.indexed().map(|(index, event)| (index.0, record.at.0, event))).collect();
        let set_aside: Vec<u64> = match events.first() {
            Some((_, _, Event::RunStarted(started))) => {
                started.origins.iter().flat_map(|origin| &origin.set_aside).map(|index| index.0).collect()
            }
            _ => Vec::new(),
        };
        if mutant == Some(Mutant::PollsSeeTheFuture) {
            for (index, _, event) in &events {
                model.announce(*index, event);
            }
        }
        let mut next = 0;
        for horizon in horizons {
            let end = events[next..].iter().position(|(index, ..)| *index > horizon).map_or(events.len(), |offset| next + offset);
            let announced_one_by_one = mutant == Some(Mutant::PollsSeeTheDelivered);
            for (index, _, event) in events[next..end].iter().filter(|_| !announced_one_by_one) {
                if mutant != Some(Mutant::PollsSeeTheFuture) {
                    model.announce(*index, event);
                }
            }
            // What a retry has set aside does not count.
            for (index, at, event) in events[next..end].iter().filter(|(index, ..)| !set_aside.contains(index)) {
                if announced_one_by_one {
                    model.announce(*index, event);
                }
                model.deliver(*index, *at, event);
            }
            next = end;
        }
        assert_eq!(model.lines[0].wait, Wait::Done, "the model ends where the run ends");
        model
    }

    fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// Makes the signals of an event visible: to polls at once, to waiting lines once they are delivered.
    fn announce(&mut self, index: u64, event: &Event) {
        let is_carried = !self.is(Mutant::MailboxIsNotCarried);
        let mut arrives = |name: &Name, payload: &Payload| {
            let name = NAMES.iter().position(|other| *name == **other).unwrap();
            self.place_signal(index, name, payload.read().unwrap());
        };
        match event {
            Event::SignalReceived(signal) => arrives(&signal.name, &signal.payload),
            Event::RunStarted(started) if is_carried => {
                started.mailbox.iter().for_each(|signal| arrives(&signal.name, &signal.payload));
            }
            _ => {}
        }
    }

    /// Promises a signal to the line that has waited longest, or leaves it in the mailbox.
    fn place_signal(&mut self, index: u64, name: usize, value: u64) {
        let last_first = self.is(Mutant::LastWaiterIsFirst);
        let mut waiting = self.waiters.iter_mut().filter(|(_, waited, promised)| *waited == name && promised.is_none());
        match if last_first { waiting.next_back() } else { waiting.next() } {
            Some(waiter) => waiter.2 = Some((index, value)),
            None => {
                self.mailbox.push((index, name, value));
                if !self.is(Mutant::PutBackAtTheEnd) {
                    self.mailbox.sort_unstable();
                }
            }
        }
    }

    fn deliver(&mut self, index: u64, at: u64, event: &Event) {
        self.delivered = index;
        if !self.is(Mutant::NowIsTheStart) || index == 0 {
            self.now = self.now.max(at);
        }
        let path = |call_id: &CallId| call_id.path().collect::<Vec<u32>>();
        let value = |payload: &Payload| payload.read::<u64>().unwrap();
        match event {
            Event::RunStarted(started) => {
                self.seed = started.seed;
                self.kept = started.updates.iter().map(|update| (update.update_id.clone(), value(&update.payload))).collect();
                self.run(0);
            }
            Event::SignalReceived(_) => self.hand_out(),
            Event::TaskCompleted(event) if self.answer_pair(&path(&event.call_id), Ok(value(&event.output))) => {}
            Event::TaskFailed(event) => {
                self.answer_pair(&path(&event.call_id), Err(format!("failed {}", event.failure.message)));
            }
            Event::TimerFired(event) if self.end_pause(&path(&event.call_id)) => {}
            Event::TaskCompleted(event) => self.answer(&path(&event.call_id), &format!("task {}", value(&event.output))),
            Event::ChildCompleted(event) => self.answer(&path(&event.call_id), &format!("child {}", value(&event.output))),
            Event::StepCompleted(event) => self.answer(&path(&event.call_id), &format!("step {}", value(&event.output))),
            Event::TimerFired(event) => self.answer(&path(&event.call_id), "slept"),
            Event::ApprovalDecided(event) => self.answer(&path(&event.call_id), &format!("approval {} false", event.approved)),
            Event::UpdateReceived(event) => self.update(event.update_id.clone(), value(&event.payload)),
            Event::CancelRequested(_) => self.cancel(),
            _ => {}
        }
    }

    /// Answers one of two tasks; returns whether a line has scheduled it.
    fn answer_pair(&mut self, call_id: &[u32], answer: Result<u64, String>) -> bool {
        let task_position = |line: &Line| line.pair.as_ref().and_then(|pair| pair.tasks.iter().position(|task| task == call_id));
        let Some((line, task)) = self.lines.iter().enumerate().find_map(|(at, line)| Some((at, task_position(line)?))) else {
            return false;
        };
        if let Some(pair) = &mut self.lines[line].pair {
            pair.answers[task].get_or_insert((self.delivered, answer));
        }
        self.settle_pair(line);
        true
    }

    /// Ends a pause before or beside two tasks; returns whether this timer was one.
    fn end_pause(&mut self, timer: &[u32]) -> bool {
        let waits = |line: &Line| line.pair.as_ref().is_some_and(|pair| pair.slept.is_none() && pair.timer == timer);
        let beside =
            |line: &Line| line.pair.as_ref().and_then(|pair| pair.beside.as_ref()).is_some_and(|(call_id, _)| call_id == timer);
        if let Some(line) = self.lines.iter().position(waits) {
            self.await_pair(line, "slept");
            self.settle_pair(line);
        } else if let Some(line) = self.lines.iter().position(beside) {
            self.end_beside(line, "slept");
            self.settle_pair(line);
        } else {
            return false;
        }
        true
    }

    fn end_beside(&mut self, line: usize, slept: &'static str) {
        if let Some((_, seen)) = self.lines[line].pair.as_mut().and_then(|pair| pair.beside.as_mut()) {
            seen.get_or_insert(slept);
        }
    }

    /// Awaits the two tasks, alone or beside another pause. A combinator takes a call id, and so does a pause.
    fn await_pair(&mut self, line: usize, slept: &'static str) {
        let op = self.op(line);
        let timer = if matches!(op, Op::Together(_)) { Vec::new() } else { self.next_call_id(line) };
        self.next_call_id(line);
        let Some(pair) = &mut self.lines[line].pair else { return };
        match op {
            Op::Kept(_) => (pair.timer, pair.seconds) = (timer, pair.seconds + 1),
            Op::KeptThenJoined(_) => (pair.slept, pair.beside) = (Some(slept), Some((timer, None))),
            _ => pair.slept = Some(slept),
        }
    }

    fn settle_pair(&mut self, line: usize) {
        let (op, Some(pair)) = (self.op(line), &self.lines[line].pair) else { return };
        let (Op::Together(combinator) | Op::Kept(combinator) | Op::KeptThenJoined(combinator)) = op else {
            unreachable!("no other operation has two tasks")
        };
        let Some(outcome) = pair.outcome(*combinator, self.mutant) else { return };
        let text = match (op, pair.slept, &pair.beside) {
            (Op::Kept(_), ..) => format!("{combinator:?} kept {} {outcome}", pair.seconds),
            (Op::KeptThenJoined(_), None, _) => format!("{combinator:?} kept {outcome}"),
            (Op::KeptThenJoined(_), _, Some((_, Some(slept)))) => format!("{combinator:?} joined {outcome} {slept}"),
            (Op::Together(_), Some(slept), _) => format!("{combinator:?} {slept} {outcome}"),
            _ => return,
        };
        self.lines[line].pair = None;
        self.go_on(line, text);
    }

    /// Answers an update, unless the code has ended.
    fn update(&mut self, id: String, value: u64) {
        if self.handles_updates && (self.lines[0].wait != Wait::Done || self.is(Mutant::UpdatesAfterTheEnd)) {
            let answer = handle(&self.updated, value);
            self.answers.push((id, answer));
        } else {
            self.kept.push((id, value));
        }
    }

    /// Wakes watchers, else interrupts every wait, else the next call. A step that has begun continues, which only the log shows.
    fn cancel(&mut self) {
        if self.canceled.is_some() || self.is(Mutant::CancelIsIgnored) {
            return;
        }
        let waiting = |line: &&usize, model: &Model| match &model.lines[**line].wait {
            Wait::Call(call_id) => {
                !matches!(model.op(**line), Op::Step | Op::VersionedStep(_) | Op::StepIfHas(_))
                    || model.given_up.contains(call_id)
            }
            wait => matches!(wait, Wait::Signal | Wait::SignalOr(_) | Wait::Pair),
        };
        let lines: Vec<usize> = (0..self.lines.len()).collect();
        let watching: Vec<usize> =
            lines.iter().filter(|line| matches!(self.lines[**line].wait, Wait::CancelOr(_))).copied().collect();
        let met: Vec<usize> =
            if watching.is_empty() { lines.iter().filter(|line| waiting(line, self)).copied().collect() } else { watching };
        self.canceled = Some(met.is_empty());
        // No line waits any more: promised signals go back before any line continues.
        for line in &met {
            self.stop_waiting(*line);
        }
        for line in met {
            if self.lines[line].wait == Wait::Pair {
                self.cancel_pair(line);
                continue;
            }
            if matches!(self.op(line), Op::RaceSignals) {
                self.go_on(line, "race all_failed".to_owned());
                continue;
            }
            let what = match self.op(line) {
                Op::VersionedStep(_) | Op::StepIfHas(_) => &format!("{} step", self.lines[line].saw),
                Op::Step => "step",
                Op::Task => "task",
                Op::Sleep => "slept",
                Op::Child => "child",
                Op::Approval => "approval",
                Op::Recv(_) => "recv",
                Op::RecvTimeout(_) => "recv_timeout",
                Op::SignalOrTask(_) => "select signal",
                Op::SignalOrSleep(_) => "select slept",
                Op::WatchOrSleep => "watch",
                other => panic!("{other:?} waits for nothing that is interrupted"),
            };
            self.go_on(line, format!("{what} canceled"));
        }
        self.hand_out();
    }

    /// Stops waiting for signals; a promised one goes back.
    fn stop_waiting(&mut self, line: usize) {
        while let Some(position) = self.waiters.iter().position(|(waiter, ..)| *waiter == line) {
            let (_, name, promised) = self.waiters.remove(position);
            if let Some((index, value)) = promised.filter(|_| !self.is(Mutant::PromisedIsLost)) {
                self.place_signal(index, name, value);
            }
        }
    }

    /// Interrupts everything that the line still waits for.
    fn cancel_pair(&mut self, line: usize) {
        let Some(pair) = &mut self.lines[line].pair else { unreachable!("it waits for two tasks") };
        for answer in &mut pair.answers {
            answer.get_or_insert((self.delivered, Err("canceled".to_owned())));
        }
        if pair.slept.is_none() && matches!(self.op(line), Op::Together(_)) {
            self.await_pair(line, "slept canceled");
        }
        self.end_beside(line, "slept canceled");
        self.settle_pair(line);
    }

    /// Returns whether the cancellation interrupts the call that is being made.
    fn meets_cancel(&mut self) -> bool {
        let due = self.canceled == Some(true);
        if due && !self.is(Mutant::CancelMeetsEveryCall) {
            self.canceled = Some(false);
        }
        due
    }

    /// Returns the current operation of a line.
    fn op(&self, line: usize) -> &'a Op {
        &self.lines[line].ops[self.lines[line].at]
    }

    /// Gives promised signals that were delivered to their lines, lowest index first.
    fn hand_out(&mut self) {
        loop {
            let due =
                self.waiters.iter().enumerate().filter(|(_, waiter)| waiter.2.is_some_and(|(index, _)| index <= self.delivered));
            let Some(position) = due.min_by_key(|(_, waiter)| waiter.2).map(|(position, _)| position) else { return };
            let (line, _, promised) = self.waiters.remove(position);
            let (_, value) = promised.unwrap();
            self.stop_waiting(line); // for the other signal of a race
            let text = match self.lines[line].ops[self.lines[line].at] {
                Op::RecvTimeout(_) => format!("recv_timeout Some({value})"),
                Op::SignalOrTask(_) | Op::SignalOrSleep(_) => format!("select signal {value}"),
                Op::RaceSignals => format!("race {value}"),
                _ => format!("recv {value}"),
            };
            self.go_on(line, text);
        }
    }

    fn answer(&mut self, call_id: &[u32], text: &str) {
        let waits =
            |line: &Line| matches!(&line.wait, Wait::Call(own) | Wait::SignalOr(own) | Wait::CancelOr(own) if own == call_id);
        let Some(line) = self.lines.iter().position(waits) else { return };
        let text = match self.lines[line].ops[self.lines[line].at] {
            Op::RecvTimeout(_) => "recv_timeout None".to_owned(),
            Op::SignalOrTask(_) | Op::SignalOrSleep(_) => format!("select {text}"),
            Op::Approval if text == "slept" => "approval false true".to_owned(),
            Op::WatchOrSleep => format!("watch {text}"),
            Op::VersionedStep(_) | Op::StepIfHas(_) => format!("{} {text}", self.lines[line].saw),
            _ => text.to_owned(),
        };
        if let Some(position) = self.waiters.iter().position(|(waiter, ..)| *waiter == line) {
            let (_, name, promised) = self.waiters.remove(position);
            if let Some((index, value)) = promised.filter(|_| !self.is(Mutant::LosersSignalIsLost)) {
                // The loser is dropped before the line continues: the signal is available to the next call.
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

    fn next_call_id(&mut self, line: usize) -> Vec<u32> {
        let line = &mut self.lines[line];
        let call_id = line.branch.iter().copied().chain([line.ordinal]).collect();
        line.ordinal += 1;
        call_id
    }

    fn take(&mut self, name: usize) -> Option<u64> {
        let mut found = self.mailbox.iter().enumerate().filter(|(_, (_, other, _))| *other == name).map(|(position, _)| position);
        let position = if self.is(Mutant::LastSignalIsFirst) { found.next_back()? } else { found.next()? };
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
            match self.execute(line, op) {
                Ok(text) => {
                    // Registering a handler has no outcome.
                    self.lines[line].seen.extend(Some(text).filter(|text| !text.is_empty()));
                    self.lines[line].at += 1;
                }
                Err(wait) => {
                    self.lines[line].wait = wait.clone();
                    if let Wait::Lines(left, right) = wait {
                        let order = if self.is(Mutant::RightArmIsFirst) { [right, left] } else { [left, right] };
                        order.into_iter().for_each(|arm| self.run(arm));
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

    /// Returns the outcome of an operation, or what it waits for.
    fn execute(&mut self, line: usize, op: &'a Op) -> Result<String, Wait> {
        let count = |model: &Model, name: usize| model.mailbox.iter().filter(|(_, other, _)| *other == name).count();
        match op {
            Op::Task | Op::Step | Op::Sleep | Op::Child | Op::Approval => {
                let call_id = self.next_call_id(line);
                if !self.meets_cancel() {
                    return Err(Wait::Call(call_id));
                }
                let what = match op {
                    Op::Task => "task",
                    Op::Step => "step",
                    Op::Sleep => "slept",
                    Op::Child => "child",
                    _ => "approval",
                };
                Ok(format!("{what} canceled"))
            }
            Op::VersionedStep(_) | Op::StepIfHas(_) => {
                let call_id = self.next_call_id(line);
                let saw = match op {
                    Op::VersionedStep(_) if self.is(Mutant::VersionIsTheNewest) => {
                        format!("version {}", self.versions.values().max().unwrap())
                    }
                    Op::VersionedStep(change) => format!("version {}", self.versions[CHANGES[*change]]),
                    Op::StepIfHas(name) => format!("has {}", count(self, *name) > 0),
                    _ => String::new(),
                };
                if self.meets_cancel() {
                    return Ok(format!("{saw} step canceled"));
                }
                self.lines[line].saw = saw;
                Err(Wait::Call(call_id))
            }
            Op::Handle => {
                self.handles_updates = true;
                let kept = if self.is(Mutant::EarlyUpdatesAreKept) { Vec::new() } else { std::mem::take(&mut self.kept) };
                kept.into_iter().for_each(|(id, value)| self.update(id, value));
                Ok(String::new())
            }
            Op::Updated => Ok(format!("updated {:?}", self.updated.lock().unwrap())),
            Op::WatchOrSleep => {
                let call_ids = [self.next_call_id(line), self.next_call_id(line), self.next_call_id(line)];
                self.meets_cancel(); // and has seen the request
                if self.canceled.is_some() { Ok("watch canceled".to_owned()) } else { Err(Wait::CancelOr(call_ids[1].clone())) }
            }
            Op::Now => Ok(format!("now {}", self.now)),
            Op::Random => {
                let path = self.next_call_id(line);
                let path = if self.is(Mutant::RandomIgnoresTheBranch) { &path[path.len() - 1..] } else { &path };
                let call_id = CallId::from_path(path).unwrap();
                Ok(format!("random {}", onward_core::random::derive(self.seed, &call_id, 0)))
            }
            Op::Has(name) => Ok(format!("has {}", count(self, *name) > 0)),
            Op::Count(name) => Ok(format!("count {}", count(self, *name))),
            Op::Recv(name) => {
                self.next_call_id(line);
                if self.meets_cancel() {
                    return Ok("recv canceled".to_owned());
                }
                match self.take(*name) {
                    Some(value) => Ok(format!("recv {value}")),
                    None => {
                        self.waiters.push((line, *name, None));
                        Err(Wait::Signal)
                    }
                }
            }
            Op::RecvTimeout(name) => {
                self.next_call_id(line);
                if self.meets_cancel() {
                    return Ok("recv_timeout canceled".to_owned());
                }
                match self.take(*name) {
                    Some(value) => Ok(format!("recv_timeout Some({value})")),
                    None => {
                        self.waiters.push((line, *name, None));
                        Err(Wait::SignalOr(self.next_call_id(line)))
                    }
                }
            }
            Op::Drain(name) => {
                let most = if self.is(Mutant::DrainTakesOne) { 1 } else { usize::MAX };
                let taken: Vec<u64> = std::iter::from_fn(|| self.take(*name)).take(most).collect();
                (0..=taken.len()).for_each(|_| drop(self.next_call_id(line)));
                Ok(format!("drain {taken:?}"))
            }
            Op::SignalOrTask(name) | Op::SignalOrSleep(name) => {
                let call_ids = [self.next_call_id(line), self.next_call_id(line), self.next_call_id(line)];
                if self.meets_cancel() {
                    // An arm with an answer is awaited first, else the first of the list.
                    let there = self.mailbox.iter().any(|(_, other, _)| other == name);
                    let what = if there || matches!(op, Op::SignalOrTask(_)) { "signal" } else { "slept" };
                    return Ok(format!("select {what} canceled"));
                }
                match self.take(*name) {
                    Some(value) => Ok(format!("select signal {value}")),
                    None => {
                        self.waiters.push((line, *name, None));
                        let call = if matches!(op, Op::SignalOrTask(_)) { 1 } else { 0 };
                        Err(Wait::SignalOr(call_ids[call].clone()))
                    }
                }
            }
            Op::SignalOrNothing(name) => {
                let _places = [self.next_call_id(line), self.next_call_id(line)];
                if self.is(Mutant::SelectTakesNothing) {
                    return Ok("select nothing".to_owned());
                }
                let there = self.mailbox.iter().any(|(_, other, _)| other == name);
                if there && self.meets_cancel() {
                    return Ok("select signal canceled".to_owned());
                }
                Ok(self.take(*name).map_or("select nothing".to_owned(), |value| format!("select signal {value}")))
            }
            Op::Together(_) | Op::Kept(_) | Op::KeptThenJoined(_) => {
                let tasks = [self.next_call_id(line), self.next_call_id(line)];
                // A pending cancellation interrupts the call that is awaited first.
                let met = self.meets_cancel();
                let canceled = (met && !matches!(op, Op::Together(_))).then(|| (self.delivered, Err("canceled".to_owned())));
                let timer = self.next_call_id(line);
                if !matches!(op, Op::Together(_)) {
                    self.next_call_id(line); // they are awaited at once, in a `select!`
                }
                let pair = Pair { tasks, answers: [canceled, None], timer, slept: None, seconds: 0, beside: None };
                self.lines[line].pair = Some(pair);
                if met && matches!(op, Op::Together(_)) {
                    self.await_pair(line, "slept canceled");
                }
                Err(Wait::Pair)
            }
            Op::RaceSignals => {
                (0..NAMES.len() + 1).for_each(|_| drop(self.next_call_id(line)));
                let there = |model: &Model| model.mailbox.first().map(|(_, name, _)| *name);
                // A pending cancellation interrupts the call with the first answer, else the first call.
                let canceled = self.meets_cancel().then(|| there(self).unwrap_or(0));
                let left = (0..NAMES.len()).filter(|name| Some(*name) != canceled);
                let next = self.mailbox.iter().find(|(_, name, _)| Some(*name) != canceled).map(|(_, name, _)| *name);
                if let Some(value) = next.and_then(|name| self.take(name)) {
                    return Ok(format!("race {value}"));
                }
                self.waiters.extend(left.map(|name| (line, name, None)));
                Err(Wait::Signal)
            }
            Op::Both(left, right) => {
                let call_id = self.next_call_id(line);
                let arm = |ops: &'a [Op], arm: u32| Line::new(ops, call_id.iter().copied().chain([arm]).collect(), Some(line));
                let first = self.lines.len();
                self.lines.extend([arm(left, 0), arm(right, 1)]);
                Err(Wait::Lines(first, first + 1))
            }
        }
    }
}

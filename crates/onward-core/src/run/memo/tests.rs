//! Runs and cells that exchange messages in any order, against a plain list of events.

use std::collections::BTreeMap;

use super::*;
use crate::log::event::{MemoInvalidated, MemoReleased, MemoStored, RunFailed, TaskFailed, TerminateRequested};
use crate::run::{Again, Commit, Effect};
use crate::{CommitId, Epoch, Event, Failure, Index, Namespace, Record};

/// Numbers from a seed.
struct Seeded(u64);

impl Seeded {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % bound as u64) as usize
    }
}

/// A run as a store keeps it.
struct Kept {
    head: RunHead,
    records: Vec<Record>,
    slots: BTreeMap<String, String>,
}

impl Kept {
    fn append(&mut self, input: Input, at: Timestamp) -> Option<Vec<Effect>> {
        if let Some(once) = &input.once
            && let Some(taken) = self.slots.get(&once.key)
        {
            return (once.again(taken) == Again::Repeated).then(Vec::new);
        }
        let once = input.once.clone();
        let admitted = self.head.admit_input(input, None, at).ok()?;
        self.slots.extend(once.map(|once| (once.key, once.token)));
        self.records.push(admitted.record);
        Some(admitted.effects)
    }
}

/// The state of a call, as its code knows it.
#[derive(Debug, Clone, Copy, PartialEq)]
enum CallState {
    Waits { asked: u64 },
    Owns,
    Done,
}

struct World {
    seeded: Seeded,
    now: Timestamp,
    /// Counts all actions.
    step: u64,
    runs: BTreeMap<RunKey, Kept>,
    /// Messages with their sender.
    messages: Vec<(RunKey, OutboxMessage)>,
    calls: BTreeMap<(RunKey, CallId), CallState>,
    /// When each call became an owner.
    granted: BTreeMap<(RunId, CallId), u64>,
    invalidated: Vec<u64>,
    next_call: u32,
    hits: u64,
}

const TTL: u64 = 1_000;

fn cell_key() -> RunKey {
    RunKey::new(Namespace::default(), memo().id())
}

fn memo() -> MemoCell {
    MemoCell { scope: MemoScope::Namespace, key: "k".to_owned(), tree: None }
}

impl World {
    fn new(seed: u64) -> World {
        World {
            seeded: Seeded(seed),
            now: Timestamp(1_000_000),
            step: 0,
            runs: BTreeMap::new(),
            messages: Vec::new(),
            calls: BTreeMap::new(),
            granted: BTreeMap::new(),
            invalidated: Vec::new(),
            next_call: 0,
            hits: 0,
        }
    }

    fn send(&mut self, from: &RunKey, effects: Vec<Effect>) {
        for effect in effects {
            if let Effect::Send(message) = effect {
                self.messages.push((from.clone(), *message));
            }
        }
    }

    fn commit(&mut self, run: &RunKey, events: Vec<Event>) {
        let kept = self.runs.get_mut(run).unwrap();
        let head = &mut kept.head;
        let commit = Commit {
            key: run.clone(),
            generation: 0,
            epoch: Epoch(0),
            n: head.next_commit,
            commit_id: CommitId(head.next_commit),
            horizon: Index(head.next_index.0 - 1),
            events,
            waits: true,
            end_over_unread: true,
            is_while_paused: false,
            carries: Default::default(),
        };
        let admitted = head.admit_commit(commit, self.now).unwrap();
        kept.records.push(admitted.record);
        self.send(run, admitted.effects);
    }

    fn begin(&mut self, key: RunKey, started: RunStarted) {
        let (head, first) = RunHead::start(key.clone(), started, self.now);
        self.runs.insert(key, Kept { head, records: vec![first], slots: BTreeMap::new() });
    }

    /// Requests the memo from one of five runs.
    fn ask(&mut self) {
        let id = format!("run-{}", self.seeded.below(5));
        let run = RunKey::new(Namespace::default(), RunId::new(&id).unwrap());
        if self.runs.get(&run).is_none_or(|kept| kept.head.status.is_closed()) {
            self.begin(run.clone(), RunStarted::new(Name::new("k").unwrap(), Payload::null(), self.step));
        }
        let call_id = CallId::root(self.next_call);
        self.next_call += 1;
        let requested = MemoRequested {
            call_id: call_id.clone(),
            of_type: MemoCallType::Task,
            name: Name::new("t").unwrap(),
            scope: MemoScope::Namespace,
            key: "k".to_owned(),
            ttl_ms: TTL + self.seeded.below(3) as u64 * TTL,
            is_derived: false,
            sealed_key: None,
        };
        self.commit(&run, vec![requested.into()]);
        self.calls.insert((run, call_id), CallState::Waits { asked: self.step });
    }

    fn some_call(&mut self, wanted: impl Fn(CallState) -> bool) -> Option<(RunKey, CallId)> {
        let found: Vec<_> = self.calls.iter().filter(|(_, state)| wanted(**state)).map(|(call, _)| call.clone()).collect();
        if found.is_empty() { None } else { Some(found[self.seeded.below(found.len())].clone()) }
    }

    fn complete(&mut self) {
        let Some((run, call_id)) = self.some_call(|state| state == CallState::Owns) else { return };
        let output = Payload::json(&format!("{} {call_id}", run.id)).unwrap();
        self.commit(&run, vec![MemoStored { call_id: call_id.clone(), cell: memo().id(), output }.into()]);
        self.calls.insert((run, call_id), CallState::Done);
    }

    /// Ends a call, or its whole run, without a value.
    fn fail(&mut self) {
        let Some((run, call_id)) = self.some_call(|state| state != CallState::Done) else { return };
        let failure = Failure::new("f", "f");
        match self.seeded.below(4) {
            0 if self.calls[&(run.clone(), call_id.clone())] == CallState::Owns => {
                let failed = TaskFailed { call_id: call_id.clone(), failure, attempts: 1, ran: None };
                self.input(&run, Input::outcome(failed.into(), 0));
                self.calls.insert((run, call_id), CallState::Done);
            }
            1 => self.end(&run, |world, run| world.commit(run, vec![RunFailed { failure, attempts: None }.into()])),
            2 => self.end(&run, |world, run| {
                world.input(run, Input::new(TerminateRequested { reason: String::new(), reset_to: None }));
            }),
            _ => {
                self.commit(&run, vec![MemoReleased { call_id: call_id.clone() }.into()]);
                self.calls.insert((run, call_id), CallState::Done);
            }
        }
    }

    fn input(&mut self, run: &RunKey, input: Input) {
        let effects = self.runs.get_mut(run).unwrap().append(input, self.now).expect("it is accepted");
        self.send(run, effects);
    }

    fn end(&mut self, run: &RunKey, end: impl FnOnce(&mut World, &RunKey)) {
        end(self, run);
        self.calls.iter_mut().filter(|((of, _), _)| of == run).for_each(|(_, state)| *state = CallState::Done);
        if self.seeded.below(2) == 0 && self.messages.iter().all(|(from, _)| from != run) {
            self.runs.remove(run); // L20
        }
    }

    /// Deletes the cell if it is closed; returns false if its messages are not delivered yet (L20).
    fn delete_cell(&mut self) -> bool {
        let is_closed = self.runs.get(&cell_key()).is_some_and(|cell| cell.head.status.is_closed());
        let may = is_closed && self.messages.iter().all(|(from, _)| *from != cell_key());
        if may {
            self.runs.remove(&cell_key());
        }
        may
    }

    fn invalidate(&mut self) {
        match self.runs.get(&cell_key()).map(|cell| cell.head.status.is_closed()) {
            Some(true) if !self.delete_cell() => return,
            Some(false) => self.input(&cell_key(), Input::new(MemoInvalidated { reason: String::new() })),
            _ => {}
        }
        self.invalidated.push(self.step);
    }

    /// Delivers a message, and perhaps again later.
    fn deliver(&mut self, may_repeat: bool) {
        if self.messages.is_empty() {
            return;
        }
        let position = self.seeded.below(self.messages.len());
        let (_, message) = self.messages[position].clone();
        let repeats = may_repeat && self.seeded.below(4) == 0;
        if self.carry(message) && !repeats {
            self.messages.remove(position);
        }
    }

    /// Does what the outbox dispatcher does; returns false if the message stays.
    fn carry(&mut self, message: OutboxMessage) -> bool {
        let OutboxMessage::Input { to, input } = message else { panic!("no run is started directly") };
        match &input.event {
            Event::MemoAsked(asked) => self.carry_request(asked.clone(), to),
            Event::MemoAnswered(_) => {
                let bounced = returned(&to, &input);
                match self.runs.get_mut(&to).and_then(|kept| kept.append(input.clone(), self.now)) {
                    Some(_) => self.answered(to, &input),
                    None => self.messages.extend(bounced.map(|message| (to, message))),
                }
                true
            }
            _ => {
                let now = self.now;
                if let Some(effects) = self.runs.get_mut(&to).and_then(|kept| kept.append(input, now)) {
                    self.send(&to, effects);
                }
                true
            }
        }
    }

    fn carry_request(&mut self, asked: MemoAsked, to: RunKey) -> bool {
        let head = self.runs.get(&to).map(|kept| &kept.head);
        match look(head, &asked, self.now) {
            Look::Start => {
                let NewRun { key, started, signal } = start_cell(to.clone(), asked, self.step << 20 | self.messages.len() as u64);
                self.begin(key, started);
                self.input(&to, *signal.unwrap());
                true
            }
            Look::Append => {
                if let Some(effects) = self.runs.get_mut(&to).unwrap().append(asked.into_input(), self.now) {
                    self.send(&to, effects);
                }
                true
            }
            Look::Hit => {
                let output = self.runs[&to].records.last().unwrap().events.last().unwrap().outcome().unwrap().unwrap();
                let answer = hit(&self.runs[&to].head, output, &asked.by).unwrap();
                self.carry(answer)
            }
            Look::Renew => self.delete_cell() && self.carry_request(asked, to),
        }
    }

    fn answered(&mut self, run: RunKey, input: &Input) {
        let Event::MemoAnswered(answer) = &input.event else { return };
        let call = (run.clone(), answer.call_id.clone());
        let Some(CallState::Waits { asked }) = self.calls.get(&call).copied() else { return };
        match (&answer.hit, answer.grant) {
            (Some(hit), _) => {
                self.hits += 1;
                let granted = self.granted[&(hit.from.clone(), hit.from_call.clone())];
                let stale = self.invalidated.iter().any(|invalidated| granted < *invalidated && *invalidated < asked);
                assert!(!stale, "MM4: the value of {} was granted at {granted} and asked for at {asked}", hit.from);
                self.calls.insert(call, CallState::Done);
            }
            (None, Some(_)) => {
                let owners = self.calls.values().filter(|state| **state == CallState::Owns).count();
                assert_eq!(owners, 0, "MM1");
                self.granted.insert((run.id, answer.call_id.clone()), self.step);
                self.calls.insert(call, CallState::Owns);
            }
            (None, None) => panic!("there are few waiters"),
        }
    }

    fn act(&mut self) {
        self.step += 1;
        match self.seeded.below(20) {
            0..4 => self.ask(),
            4..6 => self.complete(),
            6 => self.fail(),
            7 => self.invalidate(),
            8 => self.now = Timestamp(self.now.0 + self.seeded.below(3_000) as u64),
            9 => drop(self.delete_cell()),
            _ => self.deliver(true),
        }
    }

    /// Delivers everything and completes every computation; then no call waits (MM2).
    fn settle(&mut self) {
        for _ in 0..20_000 {
            self.step += 1;
            if self.messages.is_empty() && self.some_call(|state| state == CallState::Owns).is_none() {
                break;
            }
            self.deliver(false);
            self.complete();
        }
        let waits = self.some_call(|state| matches!(state, CallState::Waits { .. }));
        assert_eq!(waits, None, "MM2: with the cell {:?}", self.runs.get(&cell_key()).map(|cell| &cell.head.cell));
        for (key, kept) in &self.runs {
            assert_eq!(RunHead::rebuild(key.clone(), &kept.records).as_ref(), Some(&kept.head), "L16");
            assert!(kept.head.memos.is_empty(), "MM2: {:?}", kept.head.memos);
        }
    }
}

#[test]
fn every_call_is_answered_once_in_any_order_of_messages_and_ends() {
    let first: u64 = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let mut hits = 0;
    for seed in first..first + 3_000 {
        let world = std::panic::catch_unwind(|| {
            let mut world = World::new(seed);
            (0..150).for_each(|_| world.act());
            world.settle();
            world.hits
        });
        hits += world.unwrap_or_else(|panic| {
            println!("SEED={seed} repeats it");
            std::panic::resume_unwind(panic)
        });
    }
    assert!(hits > 3_000, "the worlds have hits: {hits}");
}

#[test]
fn the_last_waiter_that_fits_waits_and_the_next_one_computes_for_itself() {
    let caller = |number: u32| MemoCaller {
        run: RunKey::new(Namespace::default(), RunId::new(format!("r{number}")).unwrap()),
        generation: 0,
        call_id: CallId::root(0),
        incarnation: Some(1),
    };
    let asked = |number| MemoAsked { by: caller(number), cell: memo(), ttl_ms: TTL, waited_for: None };
    let NewRun { key, started, .. } = start_cell(cell_key(), asked(0), 7);
    let (mut cell, _) = RunHead::start(key, started, Timestamp(0));
    let mut answers = Vec::new();
    for number in 0..WAITERS_MAX as u32 + 2 {
        let admitted = cell.admit_input(asked(number).into_input(), None, Timestamp(1)).unwrap();
        answers.push(admitted.effects);
    }
    assert_eq!(answers[0], [Effect::Send(Box::new(caller(0).answer(&memo().id(), None, Some(7))))]);
    assert!(answers[1..=WAITERS_MAX].iter().all(Vec::is_empty));
    assert_eq!(answers.last().unwrap(), &[Effect::Send(Box::new(caller(501).answer(&memo().id(), None, None)))]);
}

#[test]
fn a_value_is_used_within_the_shorter_time_of_owner_and_caller() {
    let (by, now) = (MemoCaller { run: cell_key(), generation: 0, call_id: CallId::root(0), incarnation: None }, Timestamp(10));
    let asked = |ttl_ms| MemoAsked { by: by.clone(), cell: memo(), ttl_ms, waited_for: None };
    let NewRun { key, started, signal } = start_cell(cell_key(), asked(1_000), 7);
    let (mut cell, _) = RunHead::start(key, started, now);
    cell.admit_input(*signal.unwrap(), None, now).unwrap();
    assert_eq!(look(Some(&cell), &asked(1_000), now), Look::Append);
    let settled =
        crate::log::event::MemoSettled { by: by.clone(), ttl_ms: 1_000, output: Some(Payload::null()), computed_at: now };
    cell.admit_input(Input::new(settled), None, Timestamp(500)).unwrap();
    assert_eq!(look(Some(&cell), &asked(5_000), Timestamp(1_009)), Look::Hit);
    assert_eq!(look(Some(&cell), &asked(5_000), Timestamp(1_010)), Look::Renew);
    assert_eq!(look(Some(&cell), &asked(500), Timestamp(510)), Look::Renew);
    assert_eq!(look(None, &asked(500), Timestamp(510)), Look::Start);
    let waited = MemoAsked { waited_for: Some(7), ..asked(1) };
    assert_eq!(look(Some(&cell), &waited, Timestamp(9_999)), Look::Hit, "it was computed while the call waited");
}

#[test]
fn a_cell_is_kept_for_its_time_and_has_one_of_few_kinds() {
    let kept_for = InternalRuns::kept_for;
    assert_eq!(kept_for(&kind_for(1)), Some(Duration::from_secs(64)));
    assert_eq!(kept_for(&kind_for(3_600_000)), Some(Duration::from_secs(4_096)));
    assert_eq!(kept_for(&kind_for(u64::MAX)), Some(Duration::from_secs(1 << 55)));
    assert_eq!(kept_for(&Name::new("memory").unwrap()), None);
}

#[test]
fn a_memo_of_a_tree_is_that_of_its_root_run_only() {
    let id = |run: &str, scope| MemoCell::of(&RunId::new(run).unwrap(), scope, "k".to_owned()).id();
    assert_eq!(id("a/1", MemoScope::Tree), id("a/2.1.0", MemoScope::Tree));
    assert_ne!(id("a", MemoScope::Tree), id("b", MemoScope::Tree));
    assert_eq!(id("a", MemoScope::Namespace), id("b", MemoScope::Namespace));
    assert!(crate::internal::InternalRuns::of(&id("a", MemoScope::Tree)).is_some());
}

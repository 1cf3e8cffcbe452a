//! The model: a schedule in a world where effects are lost and repeated, clocks jump, and processes die before and after a write.
//!
//! Every decision is compared with [`Plain`], and checked against the invariants of the module. A run plays one seed.

use std::collections::{BTreeMap, BTreeSet};

use super::plain::{MINUTE, Plain, PlainSpec};
use super::*;
use crate::RunId;
use crate::random::RandomGenerator;

/// Number of seeds of the ordinary run.
const CASES: u64 = 10_000;
const STEPS: u32 = 40;

/// A change of a decision by a fault that the model must detect.
pub(super) type Fault = fn(&ScheduleHead, &ScheduleInput, Timestamp) -> Option<Decision>;

pub(super) fn no_fault(_: &ScheduleHead, _: &ScheduleInput, _: Timestamp) -> Option<Decision> {
    None
}

macro_rules! check {
    ($condition:expr, $($text:tt)+) => {
        if !$condition {
            return Err(format!($($text)+));
        }
    };
}

/// A run that was started.
struct WorldRun {
    number: u32,
    is_open: bool,
}

pub(super) struct World {
    random: RandomGenerator,
    fault: Fault,
    now: u64,
    head: ScheduleHead,
    plain: Plain,
    outbox: Vec<ScheduleEffect>,
    timer: Option<Timestamp>,
    runs: BTreeMap<RunId, WorldRun>,
    reports: Vec<Ended>,
    /// All written changes.
    log: Vec<(Timestamp, Vec<ScheduleChange>)>,
    first_head: ScheduleHead,
    clock_starts: BTreeSet<u64>,
    requests: u32,
}

const POLICIES: &[Overlap] = Overlap::ALL;

fn plain_spec(random: &mut RandomGenerator, now: u64) -> PlainSpec {
    let has_cron = random.chance(0.5);
    let mut pick = |count: u64, most: u64| -> Vec<u64> {
        let numbers: BTreeSet<u64> = (0..count).map(|_| random.integer(0..most)).collect();
        numbers.into_iter().collect()
    };
    let (minutes, hours, quiet) = (pick(2, 60), pick(6, 24), pick(2, 24));
    let single = pick(2, 600).into_iter().map(|minute| now / MINUTE + minute).collect();
    PlainSpec {
        every_minutes: if random.chance(0.7) { random.integer(10..120) } else { 0 },
        minutes: if has_cron { minutes } else { Vec::new() },
        hours: if has_cron { hours } else { Vec::new() },
        single,
        quiet: if random.chance(0.3) { quiet } else { Vec::new() },
        jitter_ms: if random.chance(0.3) { random.integer(1..10 * MINUTE) } else { 0 },
    }
}

fn options(random: &mut RandomGenerator) -> ScheduleOptions {
    ScheduleOptions {
        overlap: *random.choice(POLICIES).unwrap(),
        catch_up_ms: random.chance(0.5).then(|| random.integer(MINUTE..300 * MINUTE)),
        pause_on_failure: random.chance(0.2),
        buffer_max: random.chance(0.5).then(|| random.integer(1..5)),
    }
}

/// Plays one seed; the error describes the first difference.
pub(super) fn play(seed: u64, fault: Fault) -> Result<World, String> {
    let mut random = RandomGenerator::new(seed);
    let now = random.integer(1_790_000_000_000..1_790_000_000_000u64 + 86_400_000);
    let (spec, options) = (plain_spec(&mut random, now), options(&mut random));
    let created = ScheduleHead::create(name("s"), definition(spec.spec(), options.clone()), Timestamp(now))
        .map_err(|error| error.to_string())?;
    let first_head = ScheduleHead { wake_at: None, ..created.head.clone() };
    let mut world = World {
        random,
        fault,
        now,
        head: first_head.clone(),
        plain: Plain::new(spec, options, now),
        outbox: Vec::new(),
        timer: None,
        runs: BTreeMap::new(),
        reports: Vec::new(),
        log: Vec::new(),
        first_head,
        clock_starts: BTreeSet::new(),
        requests: 0,
    };
    world.write(created)?;
    for _ in 0..STEPS {
        world.step()?;
    }
    world.settle()?;
    Ok(world)
}

impl World {
    fn step(&mut self) -> Result<(), String> {
        match self.random.integer(0..20) {
            0..=4 => self.pass_time(),
            5..=7 => return self.tick(),
            8..=10 => self.deliver()?,
            11..=12 => self.end_a_run(),
            13..=15 => return self.report(),
            16 => return self.trigger(),
            17 => return if self.random.chance(0.8) { self.backfill() } else { self.cancel_backfill() },
            18 => return self.pause_or_resume(),
            _ => return self.define(),
        }
        Ok(())
    }

    /// Advances the clock, sometimes to the timer exactly; after a restore or on another server it is sometimes behind.
    fn pass_time(&mut self) {
        let to_timer = self.timer.filter(|at| at.0 > self.now && at.0 - self.now < 480 * MINUTE);
        self.now = match (self.random.integer(0..10), to_timer) {
            (0, _) => self.now - self.random.integer(0..90 * MINUTE),
            (1..=5, Some(at)) => at.0 - self.random.integer(0..2),
            (6, _) => self.now + self.random.integer(0..480 * MINUTE),
            _ => self.now + self.random.integer(0..60 * MINUTE),
        };
    }

    fn input(&mut self, input: &ScheduleInput) -> Result<(), String> {
        let now = Timestamp(self.now);
        // The process dies before the write: the decision is made again.
        if self.random.chance(0.1) {
            drop(self.head.decide(input, now));
        }
        let decision = match (self.fault)(&self.head, input, now) {
            Some(decision) => decision,
            None => self.head.decide(input, now).map_err(|error| error.to_string())?,
        };
        self.write(decision)
    }

    /// Writes a decision: the head, the record, and the effects.
    fn write(&mut self, decision: Decision) -> Result<(), String> {
        let now = Timestamp(self.now);
        let before = std::mem::replace(&mut self.head, decision.head);
        let mut replayed = before.clone();
        for change in &decision.changes {
            self.check_change(&replayed, change)?;
            replayed.apply(change, now);
        }
        check!(replayed == self.head, "SC9: the changes do not lead to the head:\n{replayed:?}\n{:?}", self.head);
        for effect in ScheduleHead::effects(&decision.changes) {
            match effect {
                ScheduleEffect::Wake(at) => self.timer = at,
                effect => self.outbox.push(effect),
            }
        }
        self.log.push((now, decision.changes));
        self.check_bounds()
    }

    fn check_change(&mut self, before: &ScheduleHead, change: &ScheduleChange) -> Result<(), String> {
        let ScheduleChange::Started(firing) = change else { return Ok(()) };
        let slots = Slots::new(&before.definition.spec).map_err(|error| error.to_string())?;
        if firing.cause == FiringCause::Clock {
            check!(self.clock_starts.insert(firing.slot.0), "SC1: slot {} starts twice", firing.slot);
            check!(before.paused.is_none(), "SC8: the clock starts slot {} while paused", firing.slot);
            let was_buffered = before.buffered.iter().any(|buffered| buffered == firing);
            check!(was_buffered || slots.due("s", firing.slot).0 <= self.now, "SC2: slot {} starts at {}", firing.slot, self.now);
        }
        if firing.cause == FiringCause::Backfill {
            let had_run = self.runs.contains_key(&firing.run) && before.history.iter().any(|entry| is_run(entry, &firing.run));
            check!(!had_run, "SC11: slot {} is started again", firing.slot);
        }
        if firing.cause != FiringCause::Trigger {
            let id = format!("s@{}", firing.slot.to_string().replace(".000Z", "Z"));
            check!(firing.run.as_str() == id, "SC1: slot {} starts {}", firing.slot, firing.run);
        }
        Ok(())
    }

    fn check_bounds(&self) -> Result<(), String> {
        let ScheduleHead { running, buffered, history, .. } = &self.head;
        check!(
            history.len() <= HISTORY_MAX && running.len() <= RUNNING_MAX,
            "SC5: {} lines, {} runs",
            history.len(),
            running.len()
        );
        check!(buffered.len() <= 1_000, "SC5: {} are buffered", buffered.len());
        Ok(())
    }

    /// Compares the head with the reference.
    fn compare(&self) -> Result<(), String> {
        let (head, plain) = (&self.head, &self.plain);
        let of = |firing: &Firing| (firing.number, firing.slot.0, firing.cause);
        let running: Vec<_> = head.running.iter().map(|running| (of(&running.firing), running.stopped_by.is_some())).collect();
        let expected: Vec<_> =
            plain.running.iter().map(|(firing, stopped)| ((firing.number, firing.slot, firing.cause), *stopped)).collect();
        check!(running == expected, "SC3: running {running:?}, not {expected:?}");
        let waiting: Vec<_> = head.buffered.iter().map(of).collect();
        let expected: Vec<_> = plain.waiting.iter().map(|firing| (firing.number, firing.slot, firing.cause)).collect();
        check!(waiting == expected, "SC6: buffered {waiting:?}, not {expected:?}");
        let totals = (head.totals.started, head.totals.skipped, head.totals.missed);
        let expected = (plain.started, plain.skipped, plain.missed);
        check!(totals == expected, "SC4: started, skipped, missed {totals:?}, not {expected:?}");
        check!(head.paused.is_some() == plain.paused, "SC8: paused {:?}", head.paused);
        check!(head.decided_until.0 == plain.cursor, "SC1: decided until {}, not {}", head.decided_until.0, plain.cursor);
        self.check_wake()
    }

    /// Checks that nothing that is due is left without a timer.
    fn check_wake(&self) -> Result<(), String> {
        let decided = self.head.decided_until.0;
        let next = self.plain.spec.first_slot(decided, decided.max(self.now) + 600 * MINUTE);
        match (next, self.timer) {
            (Some(slot), timer) if !self.plain.paused => {
                let latest = slot + self.plain.spec.jitter_ms;
                check!(timer.is_some_and(|timer| timer.0 <= latest), "SC4: slot {slot} has no timer: {timer:?}");
            }
            (_, None) => check!(!self.plain.has_backfill() || !self.head.running.is_empty(), "SC4: a backfill has no timer"),
            _ => {}
        }
        Ok(())
    }

    fn tick(&mut self) -> Result<(), String> {
        // A timer fires when it is due; a second server may fire it again, or for a record that was replaced.
        if self.timer.is_none_or(|at| at.0 > self.now) && self.random.chance(0.8) {
            return Ok(());
        }
        self.plain.begin();
        self.plain.tick(self.now);
        self.input(&ScheduleInput::Due(ScheduleDue {}))?;
        self.compare()
    }

    /// Delivers an effect. Sometimes it stays, because its sender dies before it records the delivery.
    fn deliver(&mut self) -> Result<(), String> {
        let Some(effect) = self.outbox.first().cloned() else { return Ok(()) };
        if self.random.chance(0.7) {
            self.outbox.remove(0);
        }
        match effect {
            ScheduleEffect::Start(firing) => {
                let number = firing.number;
                match self.runs.get(&firing.run) {
                    Some(run) if run.number == number => {}
                    Some(_) => self.reports.push(Ended::new(number, Ending::Existed, None)),
                    None => drop(self.runs.insert(firing.run, WorldRun { number, is_open: true })),
                }
            }
            ScheduleEffect::Cancel { run, number } | ScheduleEffect::Terminate { run, number } => {
                check!(self.runs.contains_key(&run), "{run} is stopped before its start was delivered");
                self.close(&run, number, Ending::Canceled);
            }
            ScheduleEffect::Wake(_) => {}
        }
        Ok(())
    }

    fn close(&mut self, run: &RunId, number: u32, ending: Ending) {
        if let Some(run) = self.runs.get_mut(run).filter(|run| run.is_open && run.number == number) {
            run.is_open = false;
            self.reports.push(Ended::new(number, ending, None));
        }
    }

    fn end_a_run(&mut self) {
        let open: Vec<(RunId, u32)> =
            self.runs.iter().filter(|(_, run)| run.is_open).map(|(id, run)| (id.clone(), run.number)).collect();
        let ending = *self.random.choice(&[Ending::Completed, Ending::Failed, Ending::Canceled]).unwrap();
        if let Some((id, number)) = self.random.choice(&open).cloned() {
            self.close(&id, number, ending);
        }
    }

    fn report(&mut self) -> Result<(), String> {
        let Some(ended) = self.random.choice(&self.reports).cloned() else { return Ok(()) };
        if self.random.chance(0.7) {
            self.reports.retain(|report| *report != ended);
        }
        self.plain.begin();
        self.plain.end(ended.number, ended.ending);
        self.plain.tick(self.now);
        self.input(&ScheduleInput::Ended(ended))?;
        self.compare()
    }

    fn trigger(&mut self) -> Result<(), String> {
        self.requests += 1;
        let request_id = name(&format!("r{}", self.requests));
        let overlap = self.random.chance(0.5).then(|| *self.random.choice(POLICIES).unwrap());
        self.plain.begin();
        self.plain.trigger(self.now, overlap);
        self.plain.tick(self.now);
        self.input(&ScheduleInput::Trigger(TriggerSchedule { request_id, overlap, requested_by: None }))?;
        self.compare()
    }

    fn backfill(&mut self) -> Result<(), String> {
        // The same request comes again now and then.
        self.requests += u32::from(self.random.chance(0.8));
        let id = format!("b{}", self.requests);
        let overlap = *self.random.choice(POLICIES).unwrap();
        let from = self.now - self.random.integer(1..600 * MINUTE);
        let until = self.random.integer(from + 1..=self.now);
        let request = BackfillSchedule {
            request_id: name(&id),
            from: Timestamp(from),
            until: Timestamp(until),
            overlap: Some(overlap),
            requested_by: None,
        };
        self.plain.begin();
        self.plain.backfill(&id, from, until, overlap);
        self.plain.tick(self.now);
        self.input(&ScheduleInput::Backfill(request))?;
        self.compare()
    }

    fn cancel_backfill(&mut self) -> Result<(), String> {
        let id = self.random.chance(0.7).then(|| format!("b{}", self.requests));
        let input = ScheduleInput::CancelBackfill(CancelBackfill { request_id: id.as_deref().map(name) });
        self.plain.begin();
        if !self.plain.cancel(id.as_deref()) {
            let refused = self.head.decide(&input, Timestamp(self.now));
            check!(matches!(refused, Err(ScheduleRefusal::NoBackfill { .. })), "SC7: {refused:?}");
            return Ok(());
        }
        self.plain.tick(self.now);
        self.input(&input)?;
        self.compare()
    }

    fn pause_or_resume(&mut self) -> Result<(), String> {
        self.plain.begin();
        let input = if self.random.chance(0.4) {
            self.plain.tick(self.now);
            self.plain.paused = true;
            ScheduleInput::Pause(PauseSchedule { note: "enough".to_owned() })
        } else {
            if self.plain.paused {
                self.plain.pass(self.now, SkipReason::Paused);
            }
            self.plain.paused = false;
            ScheduleInput::Resume(ResumeSchedule { note: String::new() })
        };
        self.plain.tick(self.now);
        self.input(&input)?;
        self.compare()
    }

    fn define(&mut self) -> Result<(), String> {
        let spec = if self.random.chance(0.5) { plain_spec(&mut self.random, self.now) } else { self.plain.spec.clone() };
        let options = if self.random.chance(0.5) { options(&mut self.random) } else { self.plain.options.clone() };
        let definition = definition(spec.spec(), options.clone());
        if Slots::new(&definition.spec).is_err() {
            return Ok(());
        }
        if definition != self.head.definition {
            self.plain.begin();
            if definition.spec != self.head.definition.spec {
                self.plain.tick(self.now);
                let reason = if self.plain.paused { SkipReason::Paused } else { SkipReason::Replaced };
                self.plain.pass(self.now, reason);
            }
            (self.plain.spec, self.plain.options) = (spec, options);
            self.plain.tick(self.now);
        }
        self.input(&ScheduleInput::Define(Box::new(definition)))?;
        self.compare()
    }

    /// Delivers everything and ends every run: then nothing waits, and the log leads to the head.
    fn settle(&mut self) -> Result<(), String> {
        for _ in 0..2_000 {
            self.deliver()?;
            self.end_a_run();
            self.report()?;
            if self.timer.is_some_and(|at| at.0 <= self.now) {
                self.tick()?;
            }
            if self.outbox.is_empty() && self.reports.is_empty() && self.runs.values().all(|run| !run.is_open) {
                break;
            }
        }
        let head = &self.head;
        check!(head.running.is_empty(), "SC6: a run is never reported: {:?}", head.running);
        let is_held = head.paused.is_some() && head.buffered.iter().all(|firing| firing.cause == FiringCause::Clock);
        check!(head.buffered.is_empty() || is_held, "SC6: {:?} wait for nothing", head.buffered);
        check!(!self.plain.has_backfill(), "SC4: a backfill does not end");
        let mut replayed = self.first_head.clone();
        self.log.iter().for_each(|(at, changes)| changes.iter().for_each(|change| replayed.apply(change, *at)));
        check!(replayed == *head, "SC9: the log does not lead to the head");
        Ok(())
    }
}

/// Returns true if the history has a run of this id that ended.
fn is_run(entry: &HistoryEntry, run: &RunId) -> bool {
    let ended = entry.ended.as_ref().is_some_and(|ended| ended.ending != Ending::Existed);
    ended && entry.started.as_ref().is_some_and(|firing| firing.run == *run)
}

/// SC1 to SC11 (L23). The seed of a failure is in its message.
#[test]
fn random_schedules_agree_with_the_plain_reference_whatever_is_lost_or_repeated() {
    let (mut started, mut skipped, mut decisions) = (0, 0, 0);
    for seed in 0..CASES {
        match play(seed, no_fault) {
            Ok(world) => {
                (started, skipped) = (started + world.head.totals.started, skipped + world.head.totals.skipped);
                decisions += world.log.len();
            }
            Err(why) => panic!("seed {seed}: {why}"),
        }
    }
    assert!(started > CASES && skipped > CASES, "{started} runs, {skipped} skipped slots, {decisions} decisions");
}

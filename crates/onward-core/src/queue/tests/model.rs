//! Claims of random queues against a plain reference, while settings change, workers die and time passes.
//!
//! The reference shares nothing with the code under test: it has every lease and every start in a list, and looks at whole spans.

use std::collections::{BTreeMap, VecDeque};

use super::*;

/// The number of cases in the ordinary run.
const CASES: u64 = 10_000;

/// Random numbers of one case, by SplitMix64.
struct Dice(u64);

impl Dice {
    fn below(&mut self, size: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (bits ^ (bits >> 31)) % size
    }

    fn maybe<T>(&mut self, make: impl FnOnce(&mut Dice) -> T) -> Option<T> {
        (self.below(2) == 0).then(|| make(self))
    }

    fn settings(&mut self) -> QueueSettings {
        let rate = |dice: &mut Dice| QueueRate { starts_max: 1 + dice.below(6) as u32, period_ms: 1 + dice.below(400) };
        QueueSettings {
            concurrency_max: self.maybe(|dice| 1 + dice.below(6) as u32),
            key_concurrency_max: self.maybe(|dice| 1 + dice.below(3) as u32),
            rate: self.maybe(rate),
            key_rate: self.maybe(rate),
            depth_max: None,
            paused: self.below(10) == 0,
            weights: (0..self.below(3))
                .map(|at| KeyWeight { key: name(KEYS[1 + at as usize]), weight: 1 + at as u32 * 2 })
                .collect(),
            part: None,
        }
    }
}

/// The first stands for tasks without a key.
const KEYS: [&str; 4] = ["", "a", "b", "c"];

/// What a store would keep, and what really happened.
#[derive(Default)]
struct World {
    now: u64,
    /// The slots of the tasks of each key, in their order.
    waiting: BTreeMap<&'static str, VecDeque<u32>>,
    /// With their slots.
    leases: Vec<(&'static str, u32)>,
    /// Every start since the beginning.
    started: Vec<(u64, &'static str)>,
    all: Option<QueueStarts>,
    by_key: BTreeMap<&'static str, QueueStarts>,
    turn: Turn,
}

impl World {
    /// Returns the leases, of one key or of all, and their slots.
    fn held(&self, key: Option<&str>) -> (usize, u32) {
        let held = || self.leases.iter().filter(|(of, _)| key.is_none_or(|key| key == *of));
        (held().count(), held().map(|(_, slots)| slots).sum())
    }

    fn keys(&self, settings: &QueueSettings, wanted: usize) -> Vec<WaitingKey> {
        let waiting = self.waiting.iter().filter(|(_, needs)| !needs.is_empty());
        let mut keys: Vec<WaitingKey> = waiting
            .map(|(key, needs)| WaitingKey {
                key: Name::new(key).ok(),
                needs: needs.iter().copied().take(wanted + 1).collect(),
                held: self.held(Some(key)).1,
                starts: settings.key_rate.as_ref().and_then(|_| self.by_key.get(key).cloned()),
            })
            .collect();
        // From the key whose turn it is.
        let text = |of: &WaitingKey| of.key.as_ref().map_or("", Name::as_str).to_owned();
        let first = keys.iter().position(|of| text(of) > self.turn.key || self.turn.left > 0 && text(of) == self.turn.key);
        keys.rotate_left(first.unwrap_or(0));
        keys
    }

    /// Claims as a store does; returns what was granted.
    fn claim(&mut self, settings: &QueueSettings, wanted: usize) -> Vec<(&'static str, u32)> {
        let (keys, now) = (self.keys(settings, wanted), Timestamp(self.now));
        let mut grants = Grants::new(settings, self.held(None).1, self.all.as_ref(), wanted, now);
        let granted = grants.grant(&keys, &mut self.turn);
        let mut claimed = Vec::new();
        for (of, count) in keys.iter().zip(granted).filter(|(_, count)| *count > 0) {
            let key = KEYS.into_iter().find(|key| of.key.as_ref().map_or("", Name::as_str) == *key).unwrap();
            let begun = self.waiting.get_mut(key).unwrap().drain(..count as usize);
            self.leases.extend(begun.map(|slots| (key, slots)));
            self.started.extend((0..count).map(|_| (self.now, key)));
            let new = || QueueStarts::new(Namespace::default(), None, None);
            if let Some(rate) = &settings.rate {
                self.all.get_or_insert_with(new).add(rate, count, now);
            }
            if let Some(rate) = settings.key_rate.as_ref().filter(|_| !key.is_empty()) {
                self.by_key.entry(key).or_insert_with(new).add(rate, count, now);
            }
            claimed.push((key, count));
        }
        claimed
    }

    /// Returns how many starts, of one key or of all, a rate counted since it was set still has in the span before `now`.
    fn in_span(&self, period: u64, since: usize, key: Option<&str>) -> usize {
        let begin = (self.now + 1).saturating_sub(period);
        let is_in = |(at, of): &&(u64, &str)| *at >= begin && key.is_none_or(|key| key == *of);
        self.started[since..].iter().filter(is_in).count()
    }
}

/// Returns what is wrong with a claim: by the reference, which counts everything itself.
fn wrong(world: &World, settings: &QueueSettings, claimed: &[(&str, u32)], wanted: usize, since: usize) -> Option<String> {
    let count: u32 = claimed.iter().map(|(_, count)| count).sum();
    if count as usize > wanted || settings.paused && count > 0 {
        return Some("more than was wanted, or from a paused queue".to_owned());
    }
    // A task that needs more than a limit runs alone (QL8).
    let exceeds = |(count, slots): (usize, u32), limit: Option<u32>| count > 1 && limit.is_some_and(|limit| slots > limit);
    if count > 0 && exceeds(world.held(None), settings.concurrency_max) {
        return Some("QL1: the queue".to_owned());
    }
    if count > 0 && settings.rate.as_ref().is_some_and(|of| world.in_span(of.period_ms, since, None) > of.starts_max as usize) {
        return Some("QL2: the queue".to_owned());
    }
    for (key, _) in claimed.iter().filter(|(key, _)| !key.is_empty()) {
        if exceeds(world.held(Some(key)), settings.key_concurrency_max) {
            return Some(format!("QL1: key {key}"));
        }
        let rate = settings.key_rate.as_ref();
        if rate.is_some_and(|of| world.in_span(of.period_ms, since, Some(key)) > of.starts_max as usize) {
            return Some(format!("QL2: key {key}"));
        }
    }
    None
}

/// Returns what a claim left although nothing forbids it: nothing was lost for good (QL3).
fn left(world: &World, settings: &QueueSettings, count: u32, wanted: usize, since: usize) -> Option<String> {
    // Starts are counted for up to a 64th of a period longer, and at least a millisecond.
    let longer = |of: &QueueRate| of.period_ms + (of.period_ms / 64).max(1);
    let has_slots =
        |(count, held): (usize, u32), limit: Option<u32>, need: u32| count == 0 || limit.is_none_or(|limit| held + need <= limit);
    let is_full = count as usize >= wanted
        || settings.paused
        || settings.rate.as_ref().is_some_and(|of| world.in_span(longer(of), since, None) >= of.starts_max as usize);
    if is_full {
        return None;
    }
    let is_free = |key: &str| {
        key.is_empty()
            || has_slots(world.held(Some(key)), settings.key_concurrency_max, world.waiting[key][0])
                && settings
                    .key_rate
                    .as_ref()
                    .is_none_or(|of| world.in_span(longer(of), since, Some(key)) < of.starts_max as usize)
    };
    let mut free = world.waiting.iter().filter(|(key, needs)| !needs.is_empty() && is_free(key));
    // One that the queue has too few slots for may keep the others waiting (QL9).
    let is_waiting = |needs: &VecDeque<u32>| !has_slots(world.held(None), settings.concurrency_max, needs[0]);
    if free.clone().any(|(_, needs)| is_waiting(needs)) {
        return None;
    }
    free.next().map(|(key, _)| format!("a task of key `{key}` was left"))
}

fn play(seed: u64) -> Result<(), String> {
    let mut dice = Dice(seed);
    let (mut world, mut settings, mut since) = (World::default(), dice.settings(), 0);
    for step in 0..30 {
        match dice.below(8) {
            0 | 1 => {
                let (key, count) = (KEYS[dice.below(4) as usize], 1 + dice.below(8));
                let slots = |dice: &mut Dice| if dice.below(3) == 0 { 1 + dice.below(4) as u32 } else { 1 };
                world.waiting.entry(key).or_default().extend((0..count).map(|_| slots(&mut dice)));
            }
            2 => world.now += dice.below(300),
            // A task ends, or its worker dies and the task waits again.
            3 | 4 if !world.leases.is_empty() => {
                let at = dice.below(world.leases.len() as u64) as usize;
                let (key, slots) = world.leases.swap_remove(at);
                if dice.below(2) == 0 {
                    world.waiting.entry(key).or_default().push_front(slots);
                }
            }
            5 if dice.below(4) == 0 => {
                settings = dice.settings();
                // What began before a rate was set is not its concern.
                (since, world.all) = (world.started.len(), None);
                world.by_key.clear();
            }
            _ => {
                let wanted = dice.below(10) as usize;
                let claimed = world.claim(&settings, wanted);
                let count = claimed.iter().map(|(_, count)| count).sum();
                let found =
                    wrong(&world, &settings, &claimed, wanted, since).or_else(|| left(&world, &settings, count, wanted, since));
                if let Some(why) = found {
                    return Err(format!("step {step}: {why}; claimed {claimed:?} with {settings:?} at {}", world.now));
                }
            }
        }
    }
    Ok(())
}

#[test]
fn claims_agree_with_a_plain_reference() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds = number("ONWARD_SEED").map_or(0..number("ONWARD_CASES").unwrap_or(CASES), |seed| seed..seed + 1);
    for seed in seeds {
        if let Err(why) = play(seed) {
            panic!("ONWARD_SEED={seed}: {why}");
        }
    }
}

/// The negative tests: the reference notices each of these mistakes.
#[test]
fn the_reference_notices_a_limit_that_is_exceeded() {
    let limited = QueueSettings { concurrency_max: Some(1), key_concurrency_max: Some(1), ..QueueSettings::default() };
    let held = World { leases: vec![("a", 1), ("a", 1)], ..World::default() };
    assert!(wrong(&held, &limited, &[("a", 1)], 5, 0).unwrap().contains("QL1: the queue"));
    let limited = QueueSettings { concurrency_max: None, ..limited };
    assert!(wrong(&held, &limited, &[("a", 1)], 5, 0).unwrap().contains("QL1: key a"));
    let rate = Some(QueueRate { starts_max: 1, period_ms: 10 });
    let rated = QueueSettings { rate: rate.clone(), ..QueueSettings::default() };
    let started = World { started: vec![(0, "a"), (9, "a")], now: 9, ..World::default() };
    assert!(wrong(&started, &rated, &[("a", 1)], 5, 0).unwrap().contains("QL2: the queue"));
    let rated = QueueSettings { key_rate: rate, ..QueueSettings::default() };
    assert!(wrong(&started, &rated, &[("a", 1)], 5, 0).unwrap().contains("QL2: key a"));
    let later = World { now: 10, started: vec![(0, "a"), (10, "a")], ..World::default() };
    assert_eq!(wrong(&later, &rated, &[("a", 1)], 5, 0), None);
    let waits = World { waiting: [("b", [1].into())].into(), ..World::default() };
    assert!(left(&waits, &QueueSettings::default(), 0, 1, 0).unwrap().contains("key `b`"));
    let limited = QueueSettings { concurrency_max: Some(3), ..QueueSettings::default() };
    let held = World { leases: vec![("a", 2), ("b", 2)], ..World::default() };
    assert!(wrong(&held, &limited, &[("b", 1)], 5, 0).unwrap().contains("QL1: the queue"), "slots count");
    let alone = World { leases: vec![("a", 4)], ..World::default() };
    assert_eq!(wrong(&alone, &limited, &[("a", 1)], 5, 0), None, "QL8");
    let waits = World { waiting: [("b", [2].into())].into(), leases: vec![("a", 1)], ..World::default() };
    assert!(left(&waits, &limited, 0, 1, 0).unwrap().contains("key `b`"), "two slots are free");
}

/// QL5: however many tasks one key has, another gets every second one.
#[test]
fn a_flood_of_one_key_does_not_delay_another() {
    for wanted in 1..6 {
        let mut world = World { waiting: [("a", vec![1; 50_000].into())].into(), ..World::default() };
        for _ in 0..200 {
            world.waiting.insert("b", [1].into());
            let before = world.leases.len();
            world.claim(&QueueSettings::default(), wanted);
            world.claim(&QueueSettings::default(), wanted);
            assert!(world.leases[before..].contains(&("b", 1)));
        }
    }
}

/// QL9: however many small tasks others queue, one that needs every slot begins once those before it have ended.
#[test]
fn a_task_that_needs_every_slot_is_not_kept_waiting_by_small_ones() {
    let settings = QueueSettings { concurrency_max: Some(4), ..QueueSettings::default() };
    for wanted in 1..6 {
        let small = || VecDeque::from(vec![1; 1_000]);
        let mut world = World { waiting: [("a", small()), ("b", [4].into()), ("c", small())].into(), ..World::default() };
        for _ in 0..20 {
            world.claim(&settings, wanted);
            if world.waiting["b"].is_empty() {
                break;
            }
            world.leases.remove(0); // the one that has run for the longest time ends
        }
        assert_eq!(world.leases, [("b", 4)], "claims of {wanted}");
    }
}

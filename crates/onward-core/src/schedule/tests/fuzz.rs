//! Random specifications: no panic, bounded work, and agreement of all questions.

use super::*;
use crate::random::RandomGenerator;
use crate::schedule::pattern::Pattern;

const CASES: u64 = 3_000;

fn text(random: &mut RandomGenerator) -> String {
    const PIECES: &[&str] = &[
        "*",
        "0",
        "1",
        "5",
        "12",
        "31",
        "59",
        "60",
        "99999999999",
        "-",
        "/",
        ",",
        "#",
        "L",
        "W",
        "LW",
        "?",
        " ",
        "MON",
        "fri",
        "DEC",
        "L-",
        "é",
        "\u{0}",
        "2026",
        "\t",
        "@daily",
        "*/",
        "1-5",
        "* * * * *",
        "0 0 ",
    ];
    (0..random.integer(0..12)).map(|_| *random.choice(PIECES).unwrap()).collect()
}

fn number(random: &mut RandomGenerator) -> u64 {
    match random.integer(0..5) {
        0 => random.integer(0..3),
        1 => u64::MAX - random.integer(0..3_000),
        2 => 7_258_118_400_000 - random.integer(0..100_000),
        3 => random.integer(0..100_000),
        _ => random.integer(0..5_000_000_000_000),
    }
}

fn field(random: &mut RandomGenerator, least: u64, most: u64) -> String {
    let value = |random: &mut RandomGenerator| random.integer(least..=most);
    match random.integer(0..6) {
        0 | 1 => "*".to_owned(),
        2 => format!("*/{}", random.integer(1..=(most - least).max(1))),
        3 => {
            let (a, b) = (value(random), value(random));
            format!("{}-{}", a.min(b), a.max(b))
        }
        _ => (0..random.integer(1..4)).map(|_| value(random).to_string()).collect::<Vec<_>>().join(","),
    }
}

fn expression(random: &mut RandomGenerator) -> String {
    if random.chance(0.2) {
        return text(random);
    }
    let day = match random.integer(0..8) {
        0 => "L".to_owned(),
        1 => format!("L-{}", random.integer(0..31)),
        2 => format!("{}W", random.integer(1..32)),
        _ => field(random, 1, 31),
    };
    let weekday = match random.integer(0..6) {
        0 => format!("{}#{}", random.integer(0..8), random.integer(1..6)),
        1 => format!("{}L", random.integer(0..8)),
        _ => field(random, 0, 6),
    };
    let (minute, hour, month) = (field(random, 0, 59), field(random, 0, 23), field(random, 1, 12));
    let second = if random.chance(0.3) { field(random, 0, 59) + " " } else { String::new() };
    format!("{second}{minute} {hour} {day} {month} {weekday}")
}

fn calendar(random: &mut RandomGenerator) -> Calendar {
    let mut part =
        |least, most| random.chance(0.5).then(|| if random.chance(0.1) { text(random) } else { field(random, least, most) });
    Calendar {
        second: part(0, 59),
        minute: part(0, 59),
        hour: part(0, 23),
        day: part(1, 31),
        month: part(1, 12),
        weekday: part(0, 7),
        year: part(1970, 2199),
        dates: if part(0, 1).is_some() { Vec::new() } else { vec!["2026-01-01/2099-12-31".to_owned(), "2024-02-29".to_owned()] },
    }
}

fn spec(random: &mut RandomGenerator) -> ScheduleSpec {
    let zones = ["Europe/Berlin", "Australia/Lord_Howe", "Pacific/Apia", "America/New_York", "Africa/Casablanca", "UTC", "Nope"];
    let mut maybe = |chance: f64| random.chance(chance);
    let (has_cron, has_every, has_at, has_calendar, has_except) = (maybe(0.6), maybe(0.3), maybe(0.3), maybe(0.3), maybe(0.4));
    let (has_start, has_end, has_jitter) = (maybe(0.2), maybe(0.2), maybe(0.3));
    ScheduleSpec {
        cron: (0..u64::from(has_cron)).map(|_| expression(random)).collect(),
        every: (0..u64::from(has_every))
            .map(|_| Interval { every_ms: number(random), offset_ms: random.integer(0..2_000) })
            .collect(),
        at: (0..3 * u64::from(has_at)).map(|_| Timestamp(number(random))).collect(),
        calendars: (0..u64::from(has_calendar)).map(|_| calendar(random)).collect(),
        except: (0..u64::from(has_except)).map(|_| calendar(random)).collect(),
        time_zone: random.choice(&zones).map(|zone| (*zone).to_owned()),
        start_at: has_start.then(|| Timestamp(number(random))),
        end_at: has_end.then(|| Timestamp(number(random))),
        jitter_ms: if has_jitter { number(random) } else { 0 },
    }
}

/// SL1, SL2, SL4: the seed of a failure is in its message.
#[test]
fn random_specifications_have_ordered_slots_and_every_question_agrees() {
    let mut accepted = 0;
    for seed in 0..CASES {
        let random = &mut RandomGenerator::new(seed);
        let spec = spec(random);
        let Ok(slots) = Slots::new(&spec) else { continue };
        accepted += 1;
        let from = Timestamp(number(random));
        let page = slots.slots(from, Timestamp(u64::MAX), 20);
        let mut after = Timestamp(from.0.saturating_sub(1));
        let mut due = Timestamp(0);
        for slot in &page.slots {
            if from.0 > 0 {
                let next = loop {
                    match slots.next_slot(after) {
                        NextSlot::After(time) if time > after => after = time,
                        next => break next,
                    }
                };
                assert_eq!(next, NextSlot::At(*slot), "seed {seed}: {spec:?} after {after}"); // SL1
            }
            assert!(*slot >= from && due <= *slot, "seed {seed}: {spec:?}: the slot before {slot} is due at {due}"); // SL2
            due = slots.due("nightly", *slot);
            assert!(due >= *slot && due.0 - slot.0 <= spec.jitter_ms, "seed {seed}: {slot} is due at {due}");
            assert_eq!(due, slots.due("nightly", *slot));
            after = *slot;
        }
    }
    assert!(accepted > CASES / 4, "{accepted} of {CASES} were accepted");
}

/// The search skips what cannot match; a scan of every second does not.
#[test]
fn the_next_match_is_the_first_second_that_matches() {
    for seed in 0..400 {
        let random = &mut RandomGenerator::new(seed);
        let expression = expression(random);
        let Ok(pattern) = Pattern::cron(&expression, "cron") else { continue };
        let from: i64 = random.integer(0..7_000_000_000);
        let until = from + 20_000;
        let scanned = (from..until).find(|local| pattern.matches(*local));
        assert_eq!(pattern.next(from, until), scanned, "seed {seed}: {expression} from {from}");
        if let Some(next) = pattern.next(from, i64::MAX / 100_000) {
            assert!(pattern.matches(next), "seed {seed}: {expression} from {from}");
        }
    }
}

/// SL2: jitter differs between schedules and slots, and stays the same.
#[test]
fn jitter_spreads_schedules() {
    let slots = Slots::new(&ScheduleSpec { jitter_ms: 300_000, ..every(10) }).unwrap();
    let slot = at("2026-01-01T00:10:00Z");
    let delays: std::collections::BTreeSet<u64> = (0..100).map(|n| slots.due(&format!("s{n}"), slot).0 - slot.0).collect();
    assert!(delays.len() > 90 && delays.iter().all(|delay| *delay <= 300_000), "{delays:?}");
    assert!(delays.iter().max().unwrap() - delays.iter().min().unwrap() > 200_000, "{delays:?}");
    // Jitter is part of what a slot is: another version must give the same.
    assert_eq!(slots.due("nightly", slot), Timestamp(slot.0 + JITTER_OF_NIGHTLY));
}

const JITTER_OF_NIGHTLY: u64 = 222_263;

//! Faults that the model must detect: each is a plausible error of an implementation.

use super::world::{Fault, no_fault, play};
use super::*;

/// Leads the head through other changes.
fn with_changes(head: &ScheduleHead, changes: Vec<ScheduleChange>, now: Timestamp) -> Option<Decision> {
    let mut head = head.clone();
    changes.iter().for_each(|change| head.apply(change, now));
    Some(Decision { changes, head })
}

/// Decides, and leaves out some changes.
fn without(
    head: &ScheduleHead,
    input: &ScheduleInput,
    now: Timestamp,
    is_left_out: fn(&ScheduleChange) -> bool,
) -> Option<Decision> {
    let changes = head.decide(input, now).ok()?.changes;
    with_changes(head, changes.into_iter().filter(|change| !is_left_out(change)).collect(), now)
}

/// The names of the faults, each with the invariant that it violates.
const FAULTS: &[(&str, Fault)] = &[
    ("SC1: forgets which slots it has decided", |head, input, now| {
        without(head, input, now, |change| matches!(change, ScheduleChange::Decided(_)))
    }),
    ("SC1: starts a slot under another id", |head, input, now| {
        let mut changes = head.decide(input, now).ok()?.changes;
        for change in &mut changes {
            if let ScheduleChange::Started(firing) = change {
                firing.run = crate::RunId::new(format!("s@{}", firing.number)).unwrap();
            }
        }
        with_changes(head, changes, now)
    }),
    ("SC2: starts a minute early", |head, input, now| head.decide(input, Timestamp(now.0 + 60_000)).ok()),
    ("SC3: does not see what is running", |head, input, now| {
        let blind = ScheduleHead { running: Vec::new(), ..head.clone() };
        with_changes(head, blind.decide(input, now).ok()?.changes, now)
    }),
    ("SC4: loses skipped slots", |head, input, now| {
        without(head, input, now, |change| matches!(change, ScheduleChange::Skipped(_)))
    }),
    ("SC4: sets no timer", |head, input, now| without(head, input, now, |change| matches!(change, ScheduleChange::Wake(_)))),
    ("SC6: starts the newest buffered slot", |head, input, now| {
        let mut reversed = head.clone();
        reversed.buffered.reverse();
        let mut decision = reversed.decide(input, now).ok()?;
        decision.head.buffered.reverse();
        with_changes(head, decision.changes, now)
    }),
    ("SC6: loses buffered slots", |head, input, now| {
        without(head, input, now, |change| matches!(change, ScheduleChange::Buffered(_)))
    }),
    ("SC7: takes a repeated end for another one", |head, input, now| match input {
        ScheduleInput::Ended(ended) if !head.running.iter().any(|running| running.firing.number == ended.number) => {
            let number = head.running.first()?.firing.number;
            head.decide(&ScheduleInput::Ended(Ended { number, ..ended.clone() }), now).ok()
        }
        _ => None,
    }),
    ("SC7: forgets the ends of runs", |head, input, now| match input {
        ScheduleInput::Ended(_) => head.decide(&ScheduleInput::Due(ScheduleDue {}), now).ok(),
        _ => None,
    }),
    ("SC8: starts slots while paused", |head, input, now| {
        let awake = ScheduleHead { paused: None, ..head.clone() };
        with_changes(head, awake.decide(input, now).ok()?.changes, now)
    }),
    ("SC9: changes the head without a change", |head, input, now| {
        let mut decision = head.decide(input, now).ok()?;
        decision.head.totals.failed += 1;
        Some(decision)
    }),
];

#[test]
fn the_model_detects_every_fault() {
    for (what, fault) in FAULTS {
        let detected = (0..300).find_map(|seed| play(seed, *fault).err().map(|why| (seed, why)));
        let (seed, why) = detected.unwrap_or_else(|| panic!("nothing detects a schedule that {what}"));
        assert!(play(seed, no_fault).is_ok(), "{what}: seed {seed} fails without it: {why}");
    }
}

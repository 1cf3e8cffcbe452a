//! Bounded work and size (SC5, SL4).

use super::*;
use crate::schedule::slots::SlotWalk;

const START: u64 = 1_800_000_000_000;
const YEAR: u64 = 365 * 86_400_000;

fn every_second(overlap: Overlap) -> ScheduleHead {
    let spec = ScheduleSpec { every: vec![Interval { every_ms: 1_000, offset_ms: 0 }], ..ScheduleSpec::default() };
    let options = ScheduleOptions { overlap, ..ScheduleOptions::default() };
    ScheduleHead::create(name("s"), definition(spec, options), Timestamp(START)).unwrap().head
}

/// Decides until the timer is in the future, and returns the number of decisions.
fn catch_up(head: &mut ScheduleHead, now: Timestamp) -> u32 {
    for decisions in 1..2_000 {
        let decision = head.decide(&ScheduleInput::Due(ScheduleDue {}), now).unwrap();
        assert!(ScheduleHead::effects(&decision.changes).len() <= 101, "the effects of one decision are bounded");
        *head = decision.head;
        if head.wake_at.is_none_or(|at| at > now) {
            return decisions;
        }
    }
    panic!("the schedule does not catch up");
}

#[test]
fn a_year_of_seconds_is_caught_up_in_bounded_steps() {
    let now = Timestamp(START + YEAR);
    let mut head = every_second(Overlap::Skip);
    let decisions = catch_up(&mut head, now);
    assert!(decisions <= 90, "{decisions} decisions");
    assert_eq!((head.totals.started, head.running.len(), head.decided_until), (1, 1, now));
    assert!(head.history.iter().any(|entry| entry.skipped.as_ref().is_some_and(|skipped| skipped.is_partial)));
}

#[test]
fn runs_side_by_side_are_limited_and_so_is_the_history() {
    let mut head = every_second(Overlap::AllowAll);
    catch_up(&mut head, Timestamp(START + 700_000));
    assert_eq!((head.running.len(), head.totals.skipped), (RUNNING_MAX, 200));
    assert_eq!(head.history.len(), HISTORY_MAX);
    assert_eq!(head.history.last().unwrap().skipped.as_ref().map(|skipped| skipped.reason), Some(SkipReason::TooManyRuns));
}

#[test]
fn a_resume_after_a_year_does_not_count_every_second() {
    let mut head = every_second(Overlap::Skip);
    head.apply(&ScheduleChange::Paused(Paused { note: String::new(), after: None, at: Timestamp(0) }), Timestamp(START));
    let resume = ScheduleInput::Resume(ResumeSchedule { note: String::new() });
    let resumed = head.decide(&resume, Timestamp(START + YEAR)).unwrap().head;
    assert_eq!((resumed.decided_until, resumed.running.len()), (Timestamp(START + YEAR), 0));
    let skipped = resumed.history[0].skipped.as_ref().unwrap();
    assert_eq!((skipped.count, skipped.is_partial, skipped.last), (1_000, true, Timestamp(START + YEAR)));
}

/// SL4: the search ends, and continues from where it ended.
#[test]
fn exceptions_that_leave_nothing_end_the_search() {
    let even = Calendar { second: Some("*/2".to_owned()), ..Calendar::default() };
    let odd = Calendar { second: Some("1/2".to_owned()), ..Calendar::default() };
    let spec = ScheduleSpec { except: vec![even, odd], ..cron("* * * * * *", "Europe/Berlin") };
    let slots = Slots::new(&spec).unwrap();
    assert_eq!(slots.next_slot(Timestamp(START)), NextSlot::After(Timestamp(START + 1_000_999)));
    let head = ScheduleHead::create(name("s"), definition(spec, ScheduleOptions::default()), Timestamp(START)).unwrap().head;
    assert_eq!(head.wake_at, Some(Timestamp(START + 1_000_999)));
    let head = head.decide(&ScheduleInput::Due(ScheduleDue {}), Timestamp(START + 1_000_999)).unwrap().head;
    assert_eq!(head.wake_at, Some(Timestamp(START + 2_000_999)));
}

/// A weekend without slots is one step for each exception, not one for each second.
#[test]
fn exceptions_of_whole_days_are_passed_at_once() {
    let weekend = Calendar { weekday: Some("SAT,SUN".to_owned()), ..Calendar::default() };
    let spec = ScheduleSpec { except: vec![weekend], ..cron("* * * * * *", "Europe/Berlin") };
    assert_eq!(first(&spec, "2026-03-27T22:59:59Z", 1), ["2026-03-29T22:00:00Z"]);
}

/// SL4: patterns without a match to come cost nothing, and the others are evaluated once for each match.
#[test]
fn a_hundred_patterns_of_the_past_do_not_slow_down_a_walk() {
    let past = |year: usize| Calendar { year: Some((1970 + year % 40).to_string()), ..Calendar::default() };
    let rare = Calendar { year: Some("1970,2199".to_owned()), month: Some("2".to_owned()), ..Calendar::default() };
    let spec = ScheduleSpec {
        cron: vec!["* * * * * *".to_owned()],
        calendars: (0..98).map(past).chain([rare]).collect(),
        time_zone: Some("Europe/Berlin".to_owned()),
        jitter_ms: 100,
        ..ScheduleSpec::default()
    };
    let slots = Slots::new(&spec).unwrap();
    let found = slots.upcoming("s", Timestamp(START), 1_000);
    assert_eq!(found.len(), 1_000);
    assert!(found.windows(2).all(|pair| pair[0].1 < pair[1].0), "SL2");
    let mut walk = SlotWalk::new(&slots, Timestamp(START));
    for _ in 0..1_000 {
        assert!(matches!(walk.next(), NextSlot::At(_)));
    }
    assert_eq!(walk.evaluations, 1_000 + 99, "each second, and the other patterns once");
}

#[test]
fn long_specifications_and_reserved_ids_are_refused() {
    let dates = vec![format!("2026-12-24{}", " ".repeat(70_000))];
    let spec = ScheduleSpec { except: vec![Calendar { dates, ..Calendar::default() }], ..every(1) };
    assert!(ScheduleHead::create(name("s"), definition(spec, ScheduleOptions::default()), Timestamp(START)).is_err());
    for id in ["schedule:s", "memo:s", "task:s", "a/b", "a@b"] {
        let created = ScheduleHead::create(name(id), definition(every(1), ScheduleOptions::default()), Timestamp(START));
        assert_eq!(created, Err(ScheduleRefusal::Id), "{id}");
    }
    let jitter = ScheduleSpec { jitter_ms: u64::MAX, ..every(1) };
    assert!(Slots::new(&jitter).is_err());
}

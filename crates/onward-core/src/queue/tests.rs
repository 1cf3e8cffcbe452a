//! Tests of the parent module.

use std::time::Duration;

use super::*;
use crate::task::TaskOptions;
use crate::{Name, Namespace};

mod hold;
mod model;

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn waiting(key: &str, waiting: u32, held: u32) -> WaitingKey {
    WaitingKey { key: Name::new(key).ok(), needs: vec![1; waiting as usize], held, starts: None }
}

fn grant(settings: &QueueSettings, held: u32, wanted: usize, keys: &[WaitingKey], turn: &mut Turn) -> Vec<u32> {
    Grants::new(settings, held, None, wanted, Timestamp(0)).grant(keys, turn)
}

#[test]
fn keys_take_turns_by_weight() {
    let weights = vec![KeyWeight { key: name("b"), weight: 3 }];
    let settings = QueueSettings { weights, ..QueueSettings::default() };
    let (keys, mut turn) = ([waiting("a", 100, 0), waiting("b", 100, 0), waiting("c", 1, 0)], Turn::default());
    assert_eq!(grant(&settings, 0, 9, &keys, &mut turn), [2, 6, 1]);
    assert_eq!(turn, Turn { key: "b".to_owned(), left: 0 });
}

#[test]
fn a_turn_continues_in_the_next_claim() {
    let settings = QueueSettings { weights: vec![KeyWeight { key: name("a"), weight: 3 }], ..QueueSettings::default() };
    let (keys, mut turn) = ([waiting("a", 100, 0), waiting("b", 100, 0)], Turn::default());
    assert_eq!(grant(&settings, 0, 1, &keys, &mut turn), [1, 0]);
    assert_eq!(turn, Turn { key: "a".to_owned(), left: 2 });
    assert_eq!(grant(&settings, 0, 1, &keys, &mut turn), [1, 0]);
    assert_eq!(grant(&settings, 0, 2, &keys, &mut turn), [1, 1]);
}

#[test]
fn a_limit_counts_what_is_held_already() {
    let settings = QueueSettings { concurrency_max: Some(5), key_concurrency_max: Some(2), ..QueueSettings::default() };
    let keys = [waiting("a", 9, 1), waiting("b", 9, 2), waiting("c", 9, 0)];
    assert_eq!(grant(&settings, 3, 9, &keys, &mut Turn::default()), [1, 0, 1]);
    // Lowered below what is held.
    assert_eq!(grant(&settings, 7, 9, &keys, &mut Turn::default()), [0, 0, 0]);
    let unkeyed = [waiting("", 9, 7)];
    assert_eq!(grant(&settings, 0, 9, &unkeyed, &mut Turn::default()), [5], "limits of keys do not concern tasks without a key");
}

#[test]
fn a_paused_queue_hands_out_nothing() {
    let settings = QueueSettings { paused: true, ..QueueSettings::default() };
    assert_eq!(grant(&settings, 0, 9, &[waiting("a", 9, 0)], &mut Turn::default()), [0]);
}

fn needing(key: &str, needs: &[u32]) -> WaitingKey {
    WaitingKey { needs: needs.to_vec(), ..waiting(key, 0, 0) }
}

#[test]
fn a_task_that_waits_for_slots_is_not_overtaken() {
    let settings = QueueSettings { concurrency_max: Some(4), ..QueueSettings::default() };
    let (keys, mut turn) = ([needing("a", &[1, 3]), needing("b", &[1, 1, 1])], Turn::default());
    let mut grants = Grants::new(&settings, 0, None, 9, Timestamp(0));
    assert_eq!(grants.grant(&keys, &mut turn), [1, 1], "QL9: the third and fourth slot are kept");
    assert!(grants.is_waiting_for_slots() && grants.room() == 0);
    assert_eq!(turn, Turn { key: "a".to_owned(), left: 1 });
    let keys = [needing("a", &[3]), needing("b", &[1, 1])];
    assert_eq!(grant(&settings, 2, 9, &keys, &mut turn), [0, 0], "QL9");
    assert_eq!(grant(&settings, 1, 9, &keys, &mut turn), [1, 0], "QL1");
}

#[test]
fn a_task_that_its_key_has_no_slots_for_is_passed_over() {
    let settings = QueueSettings { key_concurrency_max: Some(2), ..QueueSettings::default() };
    let keys = [needing("a", &[1, 2, 1]), needing("b", &[2, 1]), needing("", &[5, 5])];
    assert_eq!(grant(&settings, 0, 9, &keys, &mut Turn::default()), [1, 1, 2]);
}

#[test]
fn a_task_that_needs_more_than_a_lowered_limit_runs_alone() {
    let settings = QueueSettings { concurrency_max: Some(2), key_concurrency_max: Some(1), ..QueueSettings::default() };
    let keys = [needing("a", &[5]), needing("b", &[1])];
    assert_eq!(grant(&settings, 1, 9, &keys, &mut Turn::default()), [0, 0], "QL8");
    assert_eq!(grant(&settings, 0, 9, &keys, &mut Turn::default()), [1, 0], "QL8");
    assert_eq!(grant(&settings, 5, 9, &keys, &mut Turn::default()), [0, 0], "QL1");
}

#[test]
fn a_task_exceeds_the_limit_that_is_smaller_than_its_slots() {
    let settings = QueueSettings { concurrency_max: Some(5), key_concurrency_max: Some(2), ..QueueSettings::default() };
    let options = |slots, key: Option<&str>| TaskOptions { slots: Some(slots), key: key.map(name), ..TaskOptions::default() };
    assert_eq!(settings.exceeded_by(&TaskOptions::default()), None);
    assert_eq!(settings.exceeded_by(&options(5, None)), None);
    assert_eq!(settings.exceeded_by(&options(6, None)), Some(("concurrency_max", 5)));
    assert_eq!(settings.exceeded_by(&options(3, Some("a"))), Some(("key_concurrency_max", 2)));
    assert_eq!(settings.part(1, 2).unwrap().exceeded_by(&options(3, None)), Some(("concurrency_max", 2)), "its own part");
}

#[test]
fn slots_that_are_given_back_can_be_granted_again() {
    let settings = QueueSettings { concurrency_max: Some(3), ..QueueSettings::default() };
    let mut grants = Grants::new(&settings, 0, None, 9, Timestamp(0));
    assert_eq!(grants.grant(&[needing("a", &[2, 1])], &mut Turn::default()), [2]);
    grants.give_back(1, 2);
    assert_eq!(grants.grant(&[needing("b", &[1, 1, 1])], &mut Turn::default()), [2]);
}

#[test]
fn a_task_of_low_priority_waits_a_bounded_time() {
    let low = rank(0, Timestamp(1_000));
    assert!(rank(3, Timestamp(1_000 + 179_999)) < low, "QL6");
    assert!(rank(3, Timestamp(1_000 + 180_001)) > low, "QL6");
    assert_eq!(rank(i32::MIN, Timestamp(u64::MAX)), i64::MAX, "no overflow");
}

#[test]
fn parts_of_a_limit_are_the_limit() {
    let rate = Some(QueueRate { starts_max: 7, period_ms: 1_000 });
    let settings = QueueSettings { concurrency_max: Some(5), depth_max: Some(4), key_rate: rate, ..QueueSettings::default() };
    for count in 1..=5 {
        let parts: Vec<QueueSettings> = (0..count).map(|at| settings.part(at, count).unwrap()).collect();
        assert_eq!(parts.iter().map(|part| part.own(5)).sum::<u32>(), 5);
        assert_eq!(parts.iter().map(|part| part.own(7)).sum::<u32>(), 7);
        let depths = parts.iter().filter_map(QueueSettings::own_depth);
        assert_eq!(depths.sum::<u64>(), 4.max(u64::from(count)), "each takes one at least");
    }
    assert_eq!(settings.part(0, 6), Err("concurrency_max"));
}

#[test]
fn settings_name_the_field_that_is_wrong() {
    let wrong = |settings: QueueSettings| settings.problem().unwrap();
    assert!(wrong(QueueSettings { concurrency_max: Some(0), ..Default::default() }).contains("at least 1"));
    let rate = |starts_max, period_ms| Some(QueueRate { starts_max, period_ms });
    assert!(wrong(QueueSettings { rate: rate(0, 1), ..Default::default() }).contains("`rate.starts_max`"));
    assert!(wrong(QueueSettings { key_rate: rate(1, 0), ..Default::default() }).contains("`key_rate.period_ms`"));
    let heavy = vec![KeyWeight { key: name("a"), weight: 1 }, KeyWeight { key: name("b"), weight: 0 }];
    assert!(wrong(QueueSettings { weights: heavy, ..Default::default() }).contains("`weights[1].weight`"));
    assert_eq!(QueueSettings::default().problem(), None);
}

#[test]
fn the_time_at_which_a_rate_opens_is_the_first_with_room() {
    let rate = QueueRate { starts_max: 2, period_ms: 6_400 };
    let mut starts = QueueStarts::new(Namespace::default(), None, None);
    starts.add(&rate, 1, Timestamp(1_000));
    assert_eq!(starts.opens_at(&rate, 2, Timestamp(1_000)), None);
    starts.add(&rate, 1, Timestamp(1_950));
    let opens_at = starts.opens_at(&rate, 2, Timestamp(1_950)).unwrap();
    assert_eq!(opens_at, Timestamp(1_000).after(Duration::from_millis(6_400)));
    assert_eq!(starts.room(&rate, 2, opens_at), 1);
    assert_eq!(starts.room(&rate, 2, opens_at.before(Duration::from_millis(1))), 0);
}

#[test]
fn the_settings_of_a_queue_are_found_under_its_name() {
    for queue in [None, Some(name("mail"))] {
        assert_eq!(settings::settings_queue(&settings::settings_kind(queue.as_ref()).unwrap()), Some(queue));
    }
    assert_eq!(settings::settings_queue(&name("mail")), None);
}

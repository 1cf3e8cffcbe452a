//! What people are shown agrees with what claims decide.

use super::*;
use crate::queue::hold::{Hold, KeyUse, QueueLimit, QueueUse};

const PERIOD_MS: u64 = 6_400;

/// Random numbers of one case.
struct Dice(u64);

impl Dice {
    fn below(&mut self, size: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % size
    }

    fn limit(&mut self) -> Option<u32> {
        Some(1 + self.below(4) as u32).filter(|_| self.below(3) > 0)
    }

    fn rate(&mut self) -> Option<QueueRate> {
        self.limit().map(|starts_max| QueueRate { starts_max, period_ms: PERIOD_MS })
    }

    fn starts(&mut self, rate: Option<&QueueRate>, key: Option<Name>) -> Option<QueueStarts> {
        let (rate, mut starts) = (rate?, QueueStarts::new(Namespace::default(), None, key));
        let mut times: Vec<u64> = (0..self.below(4)).map(|_| self.below(3 * PERIOD_MS)).collect();
        times.sort_unstable();
        for at in times {
            starts.add(rate, 1 + self.below(2) as u32, Timestamp(at));
        }
        Some(starts).filter(|_| self.below(4) > 0)
    }
}

#[test]
fn a_task_is_held_back_exactly_if_a_claim_grants_it_nothing() {
    let seed = 42;
    let (mut dice, mut seen) = (Dice(seed), std::collections::BTreeMap::new());
    for case in 0..20_000 {
        let settings = QueueSettings {
            concurrency_max: dice.limit(),
            key_concurrency_max: dice.limit(),
            rate: dice.rate(),
            key_rate: dice.rate(),
            paused: dice.below(12) == 0,
            ..QueueSettings::default()
        };
        let key = Some(name("a")).filter(|_| dice.below(4) > 0);
        let (held, key_held) = (dice.below(6), dice.below(6));
        let (starts, key_starts) =
            (dice.starts(settings.rate.as_ref(), None), dice.starts(settings.key_rate.as_ref(), key.clone()));
        let keys = key.iter().map(|key| KeyUse { key: key.clone(), held: key_held, starts: key_starts.clone() }).collect();
        let used = QueueUse { held, starts: starts.clone(), keys };
        let now = Timestamp(2 * PERIOD_MS + dice.below(2 * PERIOD_MS));
        let slots = 1 + dice.below(3) as u32;
        let task = TaskOptions { key: key.clone(), slots: Some(slots), ..TaskOptions::default() };
        let waiting = WaitingKey { key: key.clone(), needs: vec![slots], held: key_held as u32, starts: key_starts };
        let granted = |now| {
            Grants::new(&settings, held as u32, starts.as_ref(), 1, now)
                .grant(std::slice::from_ref(&waiting), &mut Turn::default())
        };
        let hold = used.hold_of(&task, &settings, now);
        assert_eq!(hold.is_none(), granted(now) == [1], "seed {seed}, case {case}: {hold:?} for {settings:?}, {used:?} at {now}");
        if let Some(Hold { until: Some(until), .. }) = hold {
            let later = used.hold_of(&task, &settings, until);
            assert_ne!(later.map(|later| later.by), hold.map(|hold| hold.by), "case {case}: the limit is open at its end");
            assert!(until > now, "case {case}");
        }
        *seen.entry(hold.map(|hold| hold.by.as_str())).or_insert(0) += 1;
    }
    assert_eq!(seen.len(), 6, "every limit holds some task back, and some are not held back: {seen:?}");
}

#[test]
fn the_use_of_several_databases_is_their_sum() {
    let rate = QueueRate { starts_max: 3, period_ms: PERIOD_MS };
    let of = |held, key: &str, begun: u32| {
        let mut starts = QueueStarts::new(Namespace::default(), None, None);
        starts.add(&rate, begun, Timestamp(100));
        QueueUse { held, starts: Some(starts), keys: vec![KeyUse { key: name(key), held, starts: None }] }
    };
    let (mut used, now) = (of(1, "a", 1), Timestamp(200));
    used.add(of(2, "a", 1));
    used.add(of(4, "b", 1));
    let settings = QueueSettings { rate: Some(rate), key_concurrency_max: Some(3), ..QueueSettings::default() };
    assert_eq!((used.held, used.rate_used(&settings, now)), (7, Some(3)));
    assert_eq!(used.hold(&settings, now).map(|hold| hold.by), Some(QueueLimit::Rate));
    let by_key = QueueSettings { rate: None, ..settings };
    let hold = |key| {
        let task = TaskOptions { key: Some(name(key)), ..TaskOptions::default() };
        used.hold_of(&task, &by_key, now).map(|hold| hold.by)
    };
    assert_eq!((hold("a"), hold("b"), hold("c")), (Some(QueueLimit::KeyConcurrency), Some(QueueLimit::KeyConcurrency), None));
}

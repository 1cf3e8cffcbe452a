use super::*;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_key_may_use_its_whole_number_at_once_and_then_gets_one_after_the_other() {
    let (mut buckets, start) = (Buckets::new(4, SECOND), Instant::now());
    let waits: Vec<u128> = (0..7).map(|_| buckets.take("a", start, SECOND).unwrap().as_millis()).collect();
    assert_eq!(waits, [0, 0, 0, 0, 250, 500, 750]);
    assert_eq!(buckets.take("b", start, SECOND), Ok(Duration::ZERO), "keys have a limit each");
}

#[test]
fn in_every_span_at_most_twice_the_number_begins_and_on_average_the_number() {
    let (mut buckets, start) = (Buckets::new(10, SECOND), Instant::now());
    let mut begun: Vec<u128> = Vec::new();
    for ms in (0..10_000).step_by(7) {
        let now = start + Duration::from_millis(ms);
        if let Ok(wait) = buckets.take("a", now, Duration::ZERO) {
            begun.push(now.duration_since(start).as_millis() + wait.as_millis());
        }
    }
    assert!((100..=110).contains(&begun.len()), "{}", begun.len());
    for from in 0..9_000 {
        let count = begun.iter().filter(|ms| (from..from + 1_000).contains(*ms)).count();
        assert!(count <= 20, "{count} from {from} ms");
    }
}

#[test]
fn a_refused_attempt_takes_no_token() {
    let (mut buckets, start) = (Buckets::new(1, SECOND), Instant::now());
    assert_eq!(buckets.take("a", start, Duration::ZERO), Ok(Duration::ZERO));
    for _ in 0..3 {
        assert_eq!(buckets.take("a", start, Duration::ZERO), Err(SECOND));
    }
    assert_eq!(buckets.take("a", start + SECOND, Duration::ZERO), Ok(Duration::ZERO));
}

#[test]
fn keys_that_have_recovered_are_removed() {
    let (mut buckets, start) = (Buckets::new(1, SECOND), Instant::now());
    for second in 0..10_u32 {
        for key in 0..KEYS_KEPT {
            buckets.take(&format!("{second} {key}"), start + 2 * second * SECOND, Duration::ZERO).unwrap();
        }
    }
    assert!(buckets.full_at.len() <= 3 * KEYS_KEPT, "{}", buckets.full_at.len());
}

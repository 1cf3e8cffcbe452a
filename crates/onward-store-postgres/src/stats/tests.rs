//! Tests of the parent module.

use super::*;

#[test]
fn a_span_is_counted_under_the_first_bound_that_it_does_not_pass() {
    let mut stats = Stats::default();
    for micros in [0, 1_000, 1_001, 5_000_000, 5_000_001] {
        stats.add_batch(1, Duration::from_micros(micros));
    }
    assert_eq!(stats.commits, [2, 1, 0, 0, 0, 0, 0, 0, 0, 1, 1]);
    assert_eq!(stats.commit_time, Duration::from_micros(10_002_002));
}

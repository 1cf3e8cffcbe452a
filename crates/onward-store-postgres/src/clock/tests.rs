//! Tests of the parent module.

use super::*;

/// A server whose clock is an hour off waits as long as any other.
#[test]
fn a_clock_that_is_off_is_corrected_by_the_database() {
    for here in [Timestamp(1_000), Timestamp(10_000_000)] {
        let clock = DatabaseClock::default();
        clock.learn(Timestamp(3_600_000), here);
        assert_eq!(clock.correct(here.after(std::time::Duration::from_secs(1))), Timestamp(3_601_000));
    }
}

//! Tests of the parent module.

use super::*;

#[test]
fn a_clock_that_is_set_forward_is_noticed_and_one_that_goes_on_or_back_is_not() {
    let mut jumps = ClockJumps::default();
    jumps.lease_given(Duration::from_secs(90));
    jumps.observe(Timestamp(1_000_000), Timestamp(500));
    jumps.observe(Timestamp(9_000_000), Timestamp(8_000_500));
    jumps.observe(Timestamp(5_400_000), Timestamp(8_000_600));
    assert_eq!(jumps.hold_until, Timestamp(0));
    jumps.observe(Timestamp(5_400_000 + 86_400_000), Timestamp(8_000_700));
    assert_eq!(jumps.hold_until, Timestamp(8_090_700));
}

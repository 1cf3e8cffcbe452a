//! Tests of the parent module.

use super::*;

#[test]
fn durations_are_printed_in_the_unit_that_fits() {
    let spans = [850, 2_499, 12_345, 300_000, 3 * 3_600_000, 5 * 86_400_000].map(|ms| span(Duration::from_millis(ms)));
    assert_eq!(spans, ["850 ms", "2.5 s", "12.3 s", "5 min", "3 h", "5 d"]);
    assert_eq!(offset(Timestamp(1_250), Timestamp(1_000)), "+0.250s");
    assert_eq!(until(Timestamp(61_000), Timestamp(0)), "in 1 min");
    assert_eq!(until(Timestamp(0), Timestamp(61_000)), "1 min ago");
}

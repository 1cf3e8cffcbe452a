//! Tests of the parent module.

use super::*;

#[test]
fn a_span_is_a_number_and_a_unit() {
    assert_eq!(parse("90d"), Ok(Duration::from_secs(90 * 86_400)));
    assert_eq!(parse("0s"), Ok(Duration::ZERO));
    for wrong in ["", "d", "90", "-1d", "+1d", "1.5h", "1é", "36501d", "99999999999999999999d"] {
        assert!(parse(wrong).is_err(), "{wrong}");
    }
    assert!(parse_positive("0d").is_err());
}

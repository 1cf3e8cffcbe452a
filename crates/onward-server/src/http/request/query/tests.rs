//! Tests of the parent module.

use super::*;

const KNOWN: &[Parameter] = &[Parameter::new("limit", "", ""), Parameter::new("status", "", "").repeated()];

#[test]
fn what_is_not_known_or_given_twice_is_refused_by_name() {
    let refused = |text| Query::parse(Some(text), KNOWN).unwrap_err().to_string();
    assert!(refused("limt=1").contains("`limt` is unknown; known are `limit`, `status`"));
    assert!(refused("limit=1&limit=2").contains("`limit` is given twice"));
    assert_eq!(Query::parse(Some("status=a&status=b"), KNOWN).unwrap().all("status").count(), 2);
}

#[test]
fn a_limit_has_two_ends() {
    let limit = |text| Query::parse(Some(text), KNOWN).unwrap().limit().ok();
    assert_eq!([limit(""), limit("limit=1"), limit("limit=1000")], [Some(100), Some(1), Some(1_000)]);
    assert_eq!([limit("limit=0"), limit("limit=1001"), limit("limit=x"), limit("limit=-1")], [None; 4]);
}

#[test]
fn a_time_has_a_shape() {
    assert!(is_time("2026-11-15T08:00:00Z") && is_time("2026-11-15T08:00:00.123Z"));
    for text in ["", "2026", "99999999999999999-01-01T00:00:00Z", "2026-11-15T08:00:00", "2026-11-15T08:00:00.x", "é"] {
        assert!(!is_time(text), "{text}");
    }
}

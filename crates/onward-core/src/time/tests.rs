//! Tests of the parent module.

use super::*;

#[test]
fn a_time_reads_back_from_its_text() {
    for (millis, text) in [
        (0, "1970-01-01T00:00:00.000Z"),
        (951_782_400_000, "2000-02-29T00:00:00.000Z"),
        (1_794_718_302_123, "2026-11-15T04:51:42.123Z"),
        (4_102_444_799_999, "2099-12-31T23:59:59.999Z"),
    ] {
        assert_eq!(Timestamp(millis).to_string(), text);
        assert_eq!(Timestamp::parse(text), Some(Timestamp(millis)));
    }
    assert_eq!(Timestamp::parse("1970-01-01T00:00:01Z"), Some(Timestamp(1_000)));
    assert_eq!(Timestamp::parse("yesterday"), None);
    for text in [
        "9999999999999999-01-01T00:00:00Z",
        "584556020-01-01T00:00:00Z",
        "2026-9223372036854775807-01T00:00:00Z",
        "2026-11-15T9223372036854775807:00:00Z",
        "2026-11--5T00:00:00Z",
        "2026-13-01T00:00:00Z",
    ] {
        assert_eq!(Timestamp::parse(text), None, "{text}");
    }
    assert_eq!(Timestamp::parse(&Timestamp(u64::MAX).to_string()), Some(Timestamp(u64::MAX)));
}

#[test]
fn a_span_is_rounded_up() {
    assert_eq!(millis(Duration::from_micros(1)), 1);
    assert_eq!(millis(Duration::from_millis(2)), 2);
}

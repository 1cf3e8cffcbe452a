//! Tests of the parent module.

use super::*;

#[test]
fn names_are_defined_once_and_follow_the_rule() {
    for (at, key) in KEYS.iter().enumerate() {
        assert!(KEYS[..at].iter().all(|other| other.name != key.name), "{}", key.name);
        assert!(key.name.split('.').count() <= 2 && !key.what.is_empty());
    }
    assert_eq!(SettingKey::of("url").unwrap().variable(), "ONWARD_URL");
    assert_eq!(SettingKey::of("limits.body_timeout").unwrap().variable(), "ONWARD_LIMITS__BODY_TIMEOUT");
}
